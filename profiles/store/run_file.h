/* profiles/store/run_file.h - a run that another program has measured, as JSON, into a store.
 *
 *     {"name": "mine", "host": "box", "cost_source": "", "devices": 2, "job": {...},
 *      "steps": [{"step": 0, "step_ns": 9000000, "loss": 2.3, "pipeline_length": 2}, ...],
 * "ops": [{"step": 0, "rank": 0, "op": "F", "stage": 0, "microbatch": 0, "start_ns": 0, "end_ns":
 * 70}]}
 *
 * steps must have one at least; everything else may be absent. A step begins where the one before
 * it ended, unless start_ns says when. bridge/torch writes such files. */
#pragma once

#include "profiles/json/json.h"
#include "profiles/store/store.h"

/* Refuse a parsed file that run_file_import() would refuse, before a store is made for it. ERR_INPUT,
 * ERR_NOMEM. */
enum status run_file_check(const struct json *root, const char *file, struct err *err);

/* Add the run of a parsed file to a store that is open for writing; *run_id and *num_steps tell
 * what was added. file names the source in errors. ERR_INPUT: an unknown key, a wrong type, a value
 * out of range; then nothing is written. ERR_SYSTEM: the store cannot be written. */
enum status run_file_import(const struct json *root, const char *file, struct store *store,
                            int64_t *run_id, int64_t *num_steps, struct err *err);
