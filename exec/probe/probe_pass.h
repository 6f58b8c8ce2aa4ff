/* exec/probe/probe_pass.h - forward passes over the probe, and means over their blocks. */
#pragma once

#include "exec/trainer/trainer_state.h"

/* The blocks of one pass. */
struct probe_blocks {
    struct loss_sums *sums; /* owned */
    int num;
};

struct probe_window {
    struct loader *loader;
    struct sampler sampler;
    struct probe_blocks now, before; /* L(n,n), L(o,o) */
};

/* A pass over the probe. */
struct probe_pass {
    int lagged[2];         /* items whose weights are the lagged ones */
    struct eval_part part; /* of the model; its batch counts in here */
};

/* Call it for each stage of this rank. */
void probe_each_stage(struct trainer *t, void (*visit)(struct stage *stage, const int *range),
                      const int *range);

/* Run the probe forward, and append its blocks. ERR_SYSTEM without a message, and t->probe.cut: a
 * signal asks the run to stop. Collective over the ranks that hold stages. */
enum status probe_measure(struct trainer *t, const struct probe_window *window,
                          struct probe_pass *pass, struct probe_blocks *blocks, struct err *err);

double probe_mean(const struct probe_blocks *blocks);

/* Mean of weight[k] * loss over the passes, and its standard error over the blocks: that of a ratio
 * of sums. With one block nothing is known, so the error is as large as the value. */
void probe_combine(const struct probe_blocks *const *passes, const double *weight, int num_passes,
                   double *value, double *se);
