/* profiles/store/profile_file.h - write a profile as JSON, CSV or SQL text; read JSON and CSV.
 *
 * JSON: {"elapse_profile": 1, "profile": {...}, "layer_cost": [{...}], ...} with one key per
 * column. CSV: one block per table with the header "table,<columns>"; every row starts with the
 * table's name and is quoted as in RFC 4180. The last line must end with a newline, because
 * otherwise the file was cut off. SQL: statements for profiles/shipped/; there is no reader. All
 * numbers round-trip. Columns have their units in their names, so a file in other units is refused.
 */
#pragma once

#include <stdio.h>

#include "profiles/json/json.h"
#include "profiles/store/profile.h"

void profile_to_json(const struct profile *profile, struct json *object);
/* A failed write is not returned; the owner of the FILE checks ferror(). */
void profile_to_csv(const struct profile *profile, FILE *out);
void profile_to_sql(const struct profile *profile, FILE *out);

/* Read a file and check it with profile_check(). It is JSON if its first character is '{', a table of
 * item times if it starts with such a header (item_csv.h), else CSV. ERR_INPUT names file, table
 * and row: an unknown or missing column, a wrong type, NaN, a negative time, a duplicate key.
 * *profile must be zeroed or cleared and is untouched on failure.
 */
enum status profile_read_file(const char *path, struct profile *profile, struct err *err);
/* Like profile_read_file(), from a CSV text. `where` names it in errors. */
enum status profile_from_csv(const char *text, const char *where, struct profile *profile,
                             struct err *err);

/* Report the rows in which two profiles differ, in key order, through a callback. a or b is NULL if
 * only the other profile has the row. Both profiles must be sorted (profile_check()). */
typedef void profile_diff_fn(void *ctx, const struct row_table *table, const void *a,
                             const void *b);
void profile_diff(const struct profile *a, const struct profile *b, profile_diff_fn *report,
                  void *ctx);
