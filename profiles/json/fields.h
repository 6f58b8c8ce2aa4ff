/* profiles/json/fields.h - read JSON objects into structs and write them, by a table of members.
 *
 * Parsing, checks, the valid keys in errors, the help text and writing all follow from the rows of
 * the table (partition/base/member.h). The names are keys, dotted paths ("train.optimizer.lr"). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/member.h"
#include "partition/base/status.h"
#include "profiles/json/json.h"

/* The origin of an object. With file "job.json" and prefix "cluster", errors start with
 * "job.json: cluster.link must be ...". */
struct fields_source {
    const char *file;   /* file name in errors */
    const char *prefix; /* of keys in errors: "" or "cluster" */
    const char *dir;    /* folder that relative paths start from; NULL: the current one */
};

/* Fill base from object. A key that is absent leaves its field unchanged. ERR_INPUT: an unknown key
 * (the error names the nearest, the hint the valid ones), a wrong type, a value out of range.
 * MEMBER_STRING and MEMBER_PATH free the old text. */
enum status fields_read(const struct member *fields, int n, const struct json *object,
                        const struct fields_source *source, void *base, struct err *err);

/* Set one member from its value; NULL: the key is absent, which is refused. */
enum status fields_read_member(const struct member *field, const struct json *value,
                               const struct fields_source *source, void *base, struct err *err);

/* Write every field of base except MEMBER_OTHER to object, in table order. NULL strings are left
 * out. */
void fields_write(const struct member *fields, int n, const void *base, struct json *object);

/* Find the field of a key; NULL if there is none. *group (may be NULL) tells whether the key names
 * a group of fields ("train"). */
const struct member *fields_find(const struct member *fields, int n, const char *key, bool *group);

/* Fail with ERR_INPUT for a key that the table lacks. The error names the nearest key, the hint the
 * valid ones; or the hint names the key that others call by this name (partition/base/synonyms.h). */
enum status fields_unknown(const struct member *fields, int n, const struct fields_source *source,
                           const char *key, struct err *err);

/* A key in help texts: what it takes ("0..1024", "gpipe|1f1b|auto", "time"; "": see its meaning). */
struct key_help {
    const char *key, *takes, *meaning;
};
typedef void key_visitor(const struct key_help *key, void *ctx);
/* Call visit for each field in table order. The texts live until it returns. */
void fields_each(const struct member *fields, int n, key_visitor *visit, void *ctx);

/* Fail with ERR_INPUT and "FILE: KEY must be LIMIT, got VALUE". */
enum status fields_refuse(const struct fields_source *source, const char *key, const char *limit,
                          const struct json *value, struct err *err);

/* dir/path, or path if it is absolute or dir is NULL. Fresh (free() it); NULL without memory. */
char *path_join(const char *dir, const char *path);
/* Whether a path ends in a suffix, such as ".csv", after a name of its own; large and small letters
 * are equal. path NULL: no. */
bool path_ends(const char *path, const char *suffix);
/* Whether a MODEL or CLUSTER text names a file, not a preset: it ends in ".json". */
bool path_is_json(const char *text);
