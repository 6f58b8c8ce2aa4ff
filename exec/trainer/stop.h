/* exec/trainer/stop.h - whether signals have asked this rank to stop or to yield. The handlers call
 * trainer_stop() and trainer_yield() (trainer.h). Each step votes on the answers (training_loop.c);
 * other loops that last ask stop_agreed(). */
#pragma once

#include <stdbool.h>

#include "exec/comm/comm.h"

/* Whether trainer_stop() or trainer_yield() was called on this rank. */
bool stop_wanted(void);
bool stop_yielded(void);

/* Whether any rank of the group is to stop. Collective over the group: one small reduction. */
enum status stop_agreed(const struct comm_group *group, bool *stopped, struct err *err);
