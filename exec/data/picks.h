/* exec/data/picks.h - picks the samples of the files that a run trains on, tests on and probes.
 *
 * data.train_samples and data.test_samples are drawn from the whole split, because files may be in
 * the order of their classes. The probe's samples are held out of training, unless data.valid says
 * otherwise. All choices follow from train.seed and the number of samples alone, so every rank
 * makes the same. */
#pragma once

#include "exec/data/dataset.h"

/* Set dataset->picks and, by them, num_samples, which on entry counts the samples of each source.
 * Adds notes about what was chosen. A source without test samples gives a tenth of its training
 * samples to the test. ERR_INPUT: more samples are asked for than there are. */
enum status picks_make(const struct job *job, struct dataset *dataset, struct err *err);
