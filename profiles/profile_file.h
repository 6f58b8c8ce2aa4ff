/* profiles/profile_file.h - a profile as JSON, CSV or SQL text, and back.
 *
 * JSON: {"elapse_profile": 1, "profile": {...}, "layer_cost": [{...}], ...}, a key a column. CSV:
 * one block a table, its header "table,<columns>", rows that start with the table's name, quoted as
 * RFC 4180 says; the last line ends, too, or the file was cut off. SQL: statements for
 * profiles/shipped/, written only. All numbers round-trip. Units are in the names of the columns,
 * so a file in other units fails by its names. */
#ifndef ELAPSE_PROFILES_PROFILE_FILE_H
#define ELAPSE_PROFILES_PROFILE_FILE_H

#include <stdio.h>

#include "profiles/json.h"
#include "profiles/profile.h"

void profile_to_json(const struct profile *profile, struct json *object);
void profile_to_csv(const struct profile *profile, FILE *out); /* a failed write shows in out */
void profile_to_sql(const struct profile *profile, FILE *out);

/* Read a file, JSON when its first character is '{', else CSV, and check it (profile_check()).
 * Unknown and missing columns, wrong types, NaN, negative times and duplicate keys are ERR_INPUT
 * with file, table and row; *profile (zeroed or cleared) is then untouched. */
enum status profile_read_file(const char *path, struct profile *profile, struct err *err);
/* The same of a CSV text; where: what errors call it. */
enum status profile_from_csv(const char *text, const char *where, struct profile *profile,
                             struct err *err);

/* Rows in which two profiles differ, in key order, by callback: a or b is NULL where only the other
 * has the row. Both must be sorted (profile_check()). */
typedef void profile_diff_fn(void *ctx, const struct profile_table *table, const void *a,
                             const void *b);
void profile_diff(const struct profile *a, const struct profile *b, profile_diff_fn *report,
                  void *ctx);

#endif
