/* exec/run/training_loop.h - the steps of a run: epoch by epoch, turn by turn. */
#pragma once

#include "exec/trainer/trainer_state.h"

/* Steps until the job, the call or a signal ends the run. A rank without a stage waits in here for
 * orders from rank 0. */
enum status trainer_train(struct trainer *t, struct err *err);

/* Begin the record of an epoch. */
void trainer_clear_epoch(struct trainer *t);
