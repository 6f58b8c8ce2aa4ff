/* exec/probe/probe.h - the evidence about freezing that a run measures (partition/freeze/evidence.h).
 *
 * A window is one turn, or under the policy `safe` as many as pass until that wants evidence. While
 * it runs, stages hold the weights of its begin (stage_lag_take()). At its end the ranks that hold
 * stages run the samples of data.valid forward, with the weights of a prefix or of the
 * rest exchanged for the lagged ones. Each micro-batch is a block; blocks are added by their index,
 * so the sums have the same bits at any K, and at any R under train.reduction canonical.
 *
 * A change of plan ends a window, because the new stages have no lagged weights.
 *
 * Forwards keep what they can use again (job_probe_keeps()), in host memory: the output of the
 * frozen prefix, until the plan changes, and that of the row's first candidate. The weights of the
 * last window's end are the lagged ones of this window, so its outputs serve as the lagged ones
 * too. Later forwards begin there. */
#pragma once

#include <stdbool.h>

#include "exec/trainer/trainer_state.h"

struct json;

/* Decide whether this job measures, and on how many samples. Call it after the data set is open. */
void probe_open(struct trainer *t);
void probe_clear(struct probe *probe);

/* A turn begins: a window begins with the present weights, unless one is open. On a rank that holds
 * stages. */
void probe_begin(struct trainer *t);
/* The plan changes, on all ranks: an open window is given up. */
void probe_cut(struct probe *probe);
/* A step with learning rate lr has ended. */
void probe_count(struct trainer *t, double lr);
/* The turn has ended: measure if the window is to end, and add a row to rank 0's history. norms:
 * [L] of the turn, or NULL. Rank 0 writes evidence.json. A signal to stop ends it after the present
 * micro-batches, without a row: t->interrupted is set, and the window stays open, so that the
 * checkpoint has what a later call needs to begin with this (elastic_open()). Collective over the
 * ranks that hold stages. */
enum status probe_end(struct trainer *t, const double *norms, struct err *err);

/* Write evidence.json on rank 0, with the decisions so far. */
enum status probe_write(struct trainer *t, struct err *err);

/* Add what was measured and what it cost to the summary. */
void probe_json(const struct trainer *t, struct json *root);
