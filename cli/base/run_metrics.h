/* cli/base/run_metrics.h - reads the lines of a run's metrics.jsonl. */
#pragma once

#include <stdbool.h>

#include "partition/base/status.h"
#include "profiles/json/json.h"

/* A line of a step, or of a restart: the latter stands before the first step after it. */
typedef void metrics_visit(void *ctx, const struct json *line, bool is_restart);

/* Call visit() with each line of the run in folder dir, in order. A line that is not whole is
 * passed over. ERR_SYSTEM: there is no metrics.jsonl. */
enum status metrics_each(const char *dir, metrics_visit *visit, void *ctx, struct err *err);

/* A whole number of a line; 0: it has none of that name. */
int64_t metrics_int(const struct json *line, const char *key);
