/* profiles/json/fields.h - read JSON objects into structs and write them, from one table of fields.
 *
 * Parsing, checks, the valid keys in errors, the help text and writing all follow from the table,
 * so they cannot disagree. Keys are dotted paths ("train.optimizer.lr"). */
#ifndef ELAPSE_PROFILES_FIELDS_H
#define ELAPSE_PROFILES_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"
#include "profiles/json/json.h"

enum field_type {
    FIELD_INT,    /* int or int64_t by size, min..max */
    FIELD_COUNT,  /* int or int64_t by size, min..max, or "auto" = 0 */
    FIELD_REAL,   /* double; text may be a fraction "1/3"; min..max */
    FIELD_BOOL,   /* bool */
    FIELD_CHOICE, /* one of names; int or bool by size; "auto" sets the bool at auto_offset */
    FIELD_TEXT, /* char[size]; with min 1, the caller reads an object that stands in its place; with
                   min 2, a list of texts is read as one, joined by commas */
    FIELD_STRING, /* owned char * */
    FIELD_PATH,   /* owned char *, resolved against the folder of the file */
    FIELD_NS,     /* int64_t; a text with unit; 0, and in keys "..._ns" any number of ns */
    FIELD_BYTES,  /* int64_t; a number of bytes, or a text with unit */
    FIELD_RATE,   /* double; a number of bytes per second, or a text with unit */
    FIELD_OTHER   /* anything; the caller reads it itself */
};

struct field {
    const char *key;
    enum field_type type;
    size_t offset, size;
    int64_t min, max;         /* FIELD_INT, FIELD_COUNT; FIELD_REAL if max > min. FIELD_CHOICE: with
                                 min > 0, "auto" may be a list of names, which sets the bits
                                 1 << name of the unsigned at that offset */
    const char *const *names; /* FIELD_CHOICE: NULL-terminated; "" cannot be chosen */
    size_t auto_offset;       /* FIELD_CHOICE: offset of the bool of "auto"; 0: no "auto" */
    const char *help;
};

/* The origin of an object. With file "job.json" and prefix "cluster", errors start with
 * "job.json: cluster.link must be ...". */
struct fields_source {
    const char *file;   /* file name in errors */
    const char *prefix; /* of keys in errors: "" or "cluster" */
    const char *dir;    /* folder that relative paths start from; NULL: the current one */
};

/* Fill base from object. A key that is absent leaves its field unchanged. ERR_INPUT: an unknown key
 * (the error names the nearest, the hint the valid ones), a wrong type, a value out of range.
 * FIELD_STRING and FIELD_PATH free the old text. */
enum status fields_read(const struct field *fields, int n, const struct json *object,
                        const struct fields_source *source, void *base, struct err *err);

/* Write every field of base except FIELD_OTHER to object, in table order. NULL strings are left
 * out. */
void fields_write(const struct field *fields, int n, const void *base, struct json *object);

/* Find the field of a key; NULL if there is none. *group (may be NULL) tells whether the key names
 * a group of fields ("train"). */
const struct field *fields_find(const struct field *fields, int n, const char *key, bool *group);

/* Fail with ERR_INPUT for a key that the table lacks. The error names the nearest key, the hint the
 * valid ones; or the hint names the key that others call by this name (partition/base/synonyms.h). */
enum status fields_unknown(const struct field *fields, int n, const struct fields_source *source,
                           const char *key, struct err *err);

/* A key in help texts: what it takes ("0..1024", "gpipe|1f1b|auto", "time"; "": see its meaning). */
struct key_help {
    const char *key, *takes, *meaning;
};
typedef void key_visitor(const struct key_help *key, void *ctx);
/* Call visit for each field in table order. The texts live until it returns. */
void fields_each(const struct field *fields, int n, key_visitor *visit, void *ctx);

/* Fail with ERR_INPUT and "FILE: KEY must be LIMIT, got VALUE". */
enum status fields_refuse(const struct fields_source *source, const char *key, const char *limit,
                          const struct json *value, struct err *err);

/* dir/path, or path if it is absolute or dir is NULL. Fresh (free() it); NULL without memory. */
char *path_join(const char *dir, const char *path);
/* Whether a path ends in a suffix, such as ".csv", behind a name of its own; large and small letters
 * are equal. path NULL: no. */
bool path_ends(const char *path, const char *suffix);
/* Whether a MODEL or CLUSTER text names a file, not a preset: it ends in ".json". */
bool path_is_json(const char *text);

#endif
