/* profiles/fields.h - JSON objects into structs and back, from one table of fields.
 *
 * The table gives the parsing, the checks, the list of valid keys in errors, the help text and the
 * writing, so that they cannot disagree. Keys are dotted paths ("train.optimizer.lr"). */
#ifndef ELAPSE_PROFILES_FIELDS_H
#define ELAPSE_PROFILES_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/status.h"
#include "profiles/json.h"

enum field_type {
    FIELD_INT,    /* int or int64_t by size, min..max */
    FIELD_COUNT,  /* the same, or "auto" = 0 */
    FIELD_REAL,   /* double; text may be a fraction "1/3"; min..max */
    FIELD_BOOL,   /* bool */
    FIELD_CHOICE, /* a name of names; int or bool by size; "auto" sets the bool at auto_offset */
    FIELD_TEXT,   /* char[size] */
    FIELD_STRING, /* owned char * */
    FIELD_PATH,   /* owned char *, resolved against the folder of the file */
    FIELD_NS,     /* int64_t; a number of ns, or a text with unit */
    FIELD_BYTES,  /* int64_t; likewise */
    FIELD_RATE,   /* double, bytes per second; likewise */
    FIELD_OTHER   /* anything; the caller reads it itself */
};

struct field {
    const char *key;
    enum field_type type;
    size_t offset, size;
    int64_t min, max;         /* FIELD_INT, FIELD_COUNT; FIELD_REAL where max > min */
    const char *const *names; /* FIELD_CHOICE: NULL-terminated; "" cannot be chosen */
    size_t auto_offset;       /* FIELD_CHOICE: of the bool behind "auto"; 0: no "auto" */
    const char *help;
};

/* Where an object comes from: "job.json" and "cluster" give errors like
 * "job.json: cluster.link must be ...". */
struct fields_source {
    const char *file;   /* in errors */
    const char *prefix; /* of keys in errors: "" or "cluster" */
    const char *dir;    /* that relative paths start from; NULL: none */
};

/* Fill base from object. Absent keys keep what base holds; unknown ones are ERR_INPUT naming the
 * nearest and the valid ones. FIELD_STRING/PATH free and replace. */
enum status fields_read(const struct field *fields, int n, const struct json *object,
                        const struct fields_source *source, void *base, struct err *err);

/* The other way: every field but FIELD_OTHER, in table order; NULL strings are left out. */
void fields_write(const struct field *fields, int n, const void *base, struct json *object);

/* The field of a key; NULL. *group (may be NULL): the key names a group of fields ("train"). */
const struct field *fields_find(const struct field *fields, int n, const char *key, bool *group);

/* ERR_INPUT for a key that the table lacks, with the nearest one and the valid ones as a hint. */
enum status fields_unknown(const struct field *fields, int n, const struct fields_source *source,
                           const char *key, struct err *err);

/* One line a field: key, what it takes, what it means. Fresh text (free() it). */
enum status fields_help(const struct field *fields, int n, char **text, struct err *err);

/* "file: key must be LIMIT, got VALUE". */
enum status fields_refuse(const struct fields_source *source, const char *key, const char *limit,
                          const struct json *value, struct err *err);

/* dir/path, or path when it is absolute or dir is NULL. Fresh; NULL without memory. */
char *path_join(const char *dir, const char *path);
bool path_is_json(const char *text); /* ends in ".json": a file, not a preset */

#endif
