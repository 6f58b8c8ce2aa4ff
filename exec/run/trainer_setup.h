/* exec/run/trainer_setup.h - makes what a run needs before its first step, and frees it at the
 * end. */
#pragma once

#include "exec/trainer/trainer_state.h"

/* Everything that can fail before the first file is made: data, backend, cache, plan, stages,
 * weights. All ranks agree on each part, so a failure here is known to all of them. weights: a
 * checkpoint or a safetensors file, NULL: initial weights. resume: the run resumes from it.
 * Collective over the message group. */
enum status trainer_set_up(struct trainer *t, const char *weights, bool resume, struct err *err);
void trainer_clear(struct trainer *t);

/* End the job because of a failure that other ranks do not know of. Messages may be under way in
 * memory of this rank, so nothing is freed. */
_Noreturn void trainer_fail_alone(struct trainer *t, const struct err *err);
