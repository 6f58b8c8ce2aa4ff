/* exec/run/summary.h - summary.json, written at the end of a run. */
#pragma once

#include "exec/trainer/trainer_state.h"

/* The summary; the caller frees it. An evaluation that was not made has count 0. */
struct json *trainer_summary(const struct trainer *t, const struct cache_counts *counts,
                             const struct evaluation *before, const struct evaluation *after,
                             const char *digest, int64_t wall_ns);
/* Add a task's own scores: perplexity for language models, exact match and F1 for questions. */
void trainer_add_metrics(struct json *root, const struct job *job,
                         const struct evaluation *evaluation);
