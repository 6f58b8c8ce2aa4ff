/* exec/run/plan_ahead.h - communicators between devices for plans to come, made beside the steps of
 * the present one, so that a change of plan finds them (train.transport nccl).
 *
 * What the next decision may be is known when a turn begins (freeze_bounds()), and so are the plans
 * that may follow it. A thread of rank 0 makes those plans; when it has them, rank 0 says so with
 * the vote of a step, and behind that step all ranks learn which groups they need and start making
 * them (nccl_prepare() of exec/comm/comm_nccl.h). A guess that was wrong costs the change what it
 * would have cost without. Elsewhere than with nccl, nothing happens. */
#ifndef ELAPSE_EXEC_RUN_PLAN_AHEAD_H
#define ELAPSE_EXEC_RUN_PLAN_AHEAD_H

#include <stdbool.h>

#include "partition/status.h"

struct trainer;
struct ahead; /* opaque: of rank 0 */

/* At a turn's start, with its plan in place. Does nothing on other ranks, nor where no turn
 * follows. Without memory or a thread, nothing is made ahead. */
void ahead_start(struct trainer *t);
/* Before the plan goes. Waits for the plan that the thread is at. Safe twice. */
void ahead_stop(struct trainer *t);

/* Whether rank 0 has something for the others; false elsewhere. */
bool ahead_ready(const struct trainer *t);
/* All ranks learn what is to be made. Collective over the message group. */
enum status ahead_share(struct trainer *t, struct err *err);

#endif
