/* cli/plans/framework_show.h - which framework's kernels an answer takes where nobody names one, and what its
 * step takes under others, in text and JSON. */
#pragma once

#include "partition/step/framework_range.h"
#include "profiles/json/json.h"

/* Print a line, or add "framework_range". Nothing where a framework is named, or times are not those of
 * kernels. */
void framework_show_print(const struct framework_range *range);
void framework_show_add(const struct framework_range *range, struct json *json);
