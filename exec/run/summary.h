/* exec/run/summary.h - summary.json: what is told of a run at its end. */
#ifndef ELAPSE_EXEC_RUN_SUMMARY_H
#define ELAPSE_EXEC_RUN_SUMMARY_H

#include "exec/run/trainer_state.h"

/* summary.json of a run that ends now; the caller frees it. Evaluations that were not made have no
 * count. */
struct json *trainer_summary(const struct trainer *t, const struct cache_counts *counts,
                             const struct evaluation *before, const struct evaluation *after,
                             const char *digest, int64_t wall_ns);
/* Language models: e to the loss a token. Questions: exact match and F1. */
void trainer_add_metrics(struct json *root, const struct job *job,
                         const struct evaluation *evaluation);

#endif
