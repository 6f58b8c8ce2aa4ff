/* exec/change/plan_ahead.h - makes communicators of later plans while steps of the present plan run,
 * so that a change of plan finds them ready (train.transport nccl).
 *
 * When a turn begins, freeze_bounds() limits what the next decision can be, and so the plans that
 * may follow. A thread of rank 0 makes those plans. When it has them, rank 0 says so by its vote in
 * a step; after that step all ranks learn which groups the plans need and start making them
 * (nccl_prepare()). If a guess was wrong, the change makes its groups itself.
 * Without NCCL nothing happens. */
#pragma once

#include <stdbool.h>

#include "partition/base/status.h"

struct trainer;
struct ahead; /* opaque: of rank 0 */

/* Call at a turn's start, with its plan in place. Does nothing on ranks other than 0, or if no turn
 * follows. If there is no memory or no thread, nothing is made ahead. */
void ahead_start(struct trainer *t);
/* Call before the present plan is freed. Waits for the plan that the thread is making. Safe twice.
 */
void ahead_stop(struct trainer *t);

/* Whether rank 0 has groups to tell the others; false elsewhere. */
bool ahead_ready(const struct trainer *t);
/* Tell all ranks which groups to make. Collective over the message group. */
enum status ahead_share(struct trainer *t, struct err *err);
