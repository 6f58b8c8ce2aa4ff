/* exec/run/training_loop.h - the steps of a run: epoch by epoch, turn by turn. */
#ifndef ELAPSE_EXEC_RUN_TRAINING_LOOP_H
#define ELAPSE_EXEC_RUN_TRAINING_LOOP_H

#include "exec/run/trainer_state.h"

/* Steps until the job, the call or a signal ends the run. A rank without a stage waits in here for
 * orders from rank 0. */
enum status trainer_train(struct trainer *t, struct err *err);

/* Whether any of these ranks was asked by a signal to stop; then t->interrupted is set, too. For
 * loops that last, besides the steps, which vote. Collective over the ranks that hold a stage: one
 * small reduction. */
enum status trainer_heed_stop(struct trainer *t, bool *stopped, struct err *err);

/* Begin the record of an epoch. */
void trainer_clear_epoch(struct trainer *t);

#endif
