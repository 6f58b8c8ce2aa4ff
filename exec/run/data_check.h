/* exec/run/data_check.h - reads every picture of a run once before its first step.
 *
 * A damaged file is so found at the start, not when its sample's turn comes. The ranks share the
 * files, and what was read well is remembered by path, size and time of change in a file of the
 * user, so a later run or a restart does not read it again. */
#pragma once

#include "exec/trainer/trainer_state.h"

/* Check the samples that the run uses, those of the test split alone for an evaluation. Does nothing
 * where opening the data has checked them. All ranks are taken to see the same files, and return the
 * same status. ERR_INPUT, ERR_SYSTEM: of the first bad file, named in the message; the hint counts
 * the others. Collective over the message group. Reads each file that is not remembered once, on all
 * threads of all ranks. */
enum status data_check(struct trainer *t, struct err *err);
