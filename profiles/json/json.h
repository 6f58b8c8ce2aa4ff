/* profiles/json/json.h - read and write all JSON of the project, over cJSON (which only profiles/
 * includes).
 *
 * A struct json is a handle to a cJSON value. json_free() frees a tree; a value that was added to a
 * parent or obtained from one belongs to the parent. Building does not report failures: running out
 * of memory marks the tree, and json_check(), json_text() and json_write() then return ERR_NOMEM.
 * Integers keep all 64 bits, doubles round-trip. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "partition/base/status.h"
#include "profiles/base/whole_file.h"

struct json; /* opaque */

/* Reading. `what` names the source in errors ("job.json"). ERR_INPUT with line and column:
 * truncated text, text after the value, duplicate keys, bytes that are not UTF-8, nesting over 64.
 * ERR_SYSTEM: a missing file. */
enum status json_read_file(const char *path, struct json **json, struct err *err);
enum status json_parse(const char *text, const char *what, struct json **json, struct err *err);
void json_free(struct json *json);

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };
enum json_type json_type(const struct json *json);
const char *json_type_name(enum json_type type);
struct json *json_get(const struct json *object, const char *key); /* NULL when absent */
struct json *json_path(const struct json *root, const char *path); /* "a.b.0.c"; NULL when absent */
int json_count(const struct json *array_or_object);
struct json *json_at(const struct json *array_or_object,
                     int index); /* O(index); NULL past the end */
/* Walk a long array or object in O(1) a step: for (m = json_first(a); m; m = json_next(m)). */
struct json *json_first(const struct json *array_or_object);
struct json *json_next(const struct json *member);
const char *json_key(const struct json *member);          /* of a member of an object */
const char *json_string(const struct json *json);         /* NULL when not a string */
double json_number(const struct json *json);              /* NaN when not a number */
bool json_int64(const struct json *json, int64_t *value); /* false when not an exact integer */
bool json_true(const struct json *json);

/* Building. key is NULL inside arrays. A NULL root means that memory ran out. */
struct json *json_object_new(void);
struct json *json_array_new(void);
struct json *json_add_object(struct json *parent, const char *key);
struct json *json_add_array(struct json *parent, const char *key);
void json_add_int(struct json *parent, const char *key, int64_t value);
/* An array of n integers. */
void json_add_ints(struct json *parent, const char *key, const int *values, int n);
void json_add_int64s(struct json *parent, const char *key, const int64_t *values, int n);
void json_add_double(struct json *parent, const char *key, double value); /* NaN, Inf: null */
/* A NULL value becomes null. Bytes that are not UTF-8 become U+FFFD. */
void json_add_string(struct json *parent, const char *key, const char *value);
void json_add_bool(struct json *parent, const char *key, bool value);
void json_add_null(struct json *parent, const char *key);
void json_remove(struct json *parent, const char *key);
/* Add a deep copy of a value under a key; it replaces the key's old value. */
void json_add_copy(struct json *parent, const char *key, const struct json *value);
/* Parse JSON text (a job's or a record's) and add it under a key. Adds nothing if text is NULL or
 * not JSON. */
void json_add_parsed(struct json *parent, const char *key, const char *text);
/* ERR_NOMEM if a value could not be added for want of memory. For trees that are never written. */
enum status json_check(const struct json *root, struct err *err);

/* Fresh text (free() it), compact or indented. */
enum status json_text(const struct json *root, bool pretty, char **text, struct err *err);
/* Write the text and a newline to out. A failed write is not returned; the owner of the FILE checks
 * ferror(). */
enum status json_write(const struct json *root, bool pretty, FILE *out, struct err *err);
/* Write to a temporary file beside path, sync and rename it, so path is whole or absent. */
enum status json_write_file(const struct json *root, const char *path, struct err *err);
/* The same to a path that the user has named: output_open(). */
enum status json_write_output(const struct json *root, const char *path, struct err *err);
