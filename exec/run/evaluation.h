/* exec/run/evaluation.h - one pass over the test split. */
#pragma once

#include "exec/trainer/trainer_state.h"

/* Collective over the ranks that hold a stage. A stop that one of them was asked for ends the pass
 * after the present batch on all of them, with evaluation->stopped and t->interrupted. */
enum status trainer_evaluate(struct trainer *t, struct evaluation *evaluation, struct err *err);
