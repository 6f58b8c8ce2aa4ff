/* exec/change/elastic.h - a run that changes shape: layers freeze, and the plan changes during the
 * run.
 *
 * Before each turn (partition/search/turn.h) rank 0 decides how many layers are frozen and whether
 * the plan changes, and broadcasts that to the ranks that hold stages. If the plan changes, rank 0
 * wakes the idle ranks, and all ranks make the same change: they take the new plan, split groups,
 * move weights and optimizer state from each owner to the new one, and build batches and runtime.
 * Items that stay on a rank keep their buffers.
 *
 * Idle ranks wait for a message of rank 0 in the message group. They look, then sleep for a time
 * that grows to 5 ms, so that they take no core from others.
 *
 * Samples, learning rate, optimizer step count and random numbers depend on epoch, step and global
 * micro-batch only, so a change does not alter them. A change within an epoch continues at the next
 * sample, also if the global batch is another one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/trainer/trainer_state.h"

/* Repeat the decisions that a resumed run made before, and decide how many layers are frozen where
 * it starts. Where it starts after the last step of a turn and a window of the probe is open, that
 * window may be due: then elastic_go_on() makes the decision. Collective; *num_frozen is the same on
 * all ranks. */
enum status elastic_open(struct trainer *t, const char *resume_dir, int *num_frozen,
                         struct err *err);
/* Once the steps of the run are counted: which layers freeze after the first turn. Collective. */
enum status elastic_look_ahead(struct trainer *t, struct err *err);
void elastic_clear(struct elastic *elastic);

/* Add the squares of the last step's gradients to the turn's sums, which rank 0 uses. */
void elastic_count(struct trainer *t);
/* Close a turn: record the time spent on filling the cache; rank 0 writes norms.json into the run
 * folder, in the form that freeze.norms reads. Collective over the ranks that hold stages. */
enum status elastic_turn_end(struct trainer *t, struct err *err);
/* End the turn that a resumed run stands after, if elastic_open() has left that open; *ended says
 * whether. elastic_turn_start() is to follow. Collective over the ranks that hold stages. */
enum status elastic_go_on(struct trainer *t, bool *ended, struct err *err);

/* Before a turn, on the ranks that hold stages: decide, and change the plan if the decision says
 * so. */
enum status elastic_turn_start(struct trainer *t, struct err *err);

/* The order of freeze.choice norm (struct freeze_pass), or NULL. */
const int *elastic_order_of_items(const struct trainer *t);

/* Orders of rank 0 to idle ranks. */
enum order_kind { ORDER_CHANGE, ORDER_AHEAD, ORDER_SAVE, ORDER_SAVED, ORDER_COPY, ORDER_END };
/* Rank 0 sends the order to all idle ranks; other ranks do nothing. status: of the run, for
 * ORDER_END.
 */
enum status elastic_order(struct trainer *t, enum order_kind kind, enum status status,
                          struct err *err);
/* An idle rank waits for orders and follows them until it gets a stage or the run ends (*ended). At
 * the end it returns the status of the run. */
enum status elastic_idle(struct trainer *t, bool *ended, struct err *err);

/* Add transitions[] and their sums to the summary. */
void elastic_json(const struct trainer *t, struct json *root);
