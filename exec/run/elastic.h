/* exec/run/elastic.h - a run that changes shape: which layers freeze, and a new plan in mid-run.
 *
 * L1  Before each turn (partition/turn.h) rank 0 decides; the ranks at work learn it by a broadcast
 *     among them. Nobody else decides anything.
 * L2  Where F or K changes, rank 0 wakes the idle ranks, and all ranks make the same change: the
 *     new plan, groups by split, weights and optimizer state from owner to new owner, batches,
 *     runtime. Survivors keep the buffers of the items that stay with them.
 * L3  Idle ranks wait for a message of rank 0 in the message group: a look, then a sleep that grows
 *     to 5 ms, so that they cost no core.
 * L4  Samples, learning rate, optimizer step count and random numbers depend on epoch, step and
 *     global micro-batch only, so a change leaves them alone. A change in mid-epoch goes on at the
 *     next sample, also where the global batch is another one. */
#ifndef ELAPSE_EXEC_RUN_ELASTIC_H
#define ELAPSE_EXEC_RUN_ELASTIC_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/run/trainer_state.h"

/* Read what a resumed run decided before, and decide F for the epoch at which it starts.
 * Collective. *num_frozen is the same on all ranks. */
enum status elastic_open(struct trainer *t, const char *resume_dir, int *num_frozen,
                         struct err *err);
void elastic_clear(struct elastic *elastic);

/* Add the squares of the last step's gradients; rank 0's sums are what counts. */
void elastic_count(struct trainer *t);
/* Close a turn: what filling the cache took; rank 0: norms.json of the run folder, as freeze.norms
 * reads it. Collective over the ranks at work. */
enum status elastic_turn_end(struct trainer *t, struct err *err);

/* Before a turn, on the ranks at work: decide, and change the plan where it is due. */
enum status elastic_turn_start(struct trainer *t, struct err *err);

/* What rank 0 tells the idle ranks. */
enum order_kind { ORDER_CHANGE, ORDER_AHEAD, ORDER_SAVE, ORDER_END };
/* Rank 0 to all idle ranks; elsewhere, and where none is idle, nothing. status: of the run (END).
 */
enum status elastic_order(struct trainer *t, enum order_kind kind, enum status status,
                          struct err *err);
/* An idle rank's work: wait and obey until it gets a place or the run ends (*ended). The status of
 * the run comes back at its end. */
enum status elastic_idle(struct trainer *t, bool *ended, struct err *err);

/* transitions[] of the summary, and its sums. */
void elastic_json(const struct trainer *t, struct json *root);

#endif
