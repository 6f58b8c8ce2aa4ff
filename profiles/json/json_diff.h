/* profiles/json/json_diff.h - lists the values in which two JSON trees differ. */
#pragma once

#include "profiles/json/json.h"

/* Called for each difference, with the dotted key and both values as JSON text; "none" where a tree
 * has no such key. */
typedef void (*json_difference)(void *ctx, const char *key, const char *was, const char *is);

/* Compare objects member by member, whatever their order; arrays and other values as a whole. Calls
 * each() in the order of `was`, then for keys that only `is` has. ERR_NOMEM. */
enum status json_diff(const struct json *was, const struct json *is, json_difference each,
                      void *ctx, struct err *err);
