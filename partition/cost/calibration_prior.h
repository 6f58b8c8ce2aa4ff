/* partition/cost/calibration_prior.h - how far computed times may be off before any row is
 * measured.
 *
 * One table of standard deviations, by what published runs have judged: the kind of device, the
 * framework, the data type, and the operators of the model. Pure. */
#pragma once

#include "partition/cost/calibration.h"
#include "partition/model/model.h"

/* The prior of steps of a model on a kind of device. kind and dtype are names ("h100", "bf16"); the
 * model has its framework, its adapters and its dims. ideal: times are a roofline's. */
struct calibration_prior calibration_prior_of(const struct model *model, const char *kind,
                                              const char *dtype, bool ideal);
