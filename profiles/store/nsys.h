/* profiles/store/nsys.h - steps in a report of Nsight Systems, as `nsys export --type sqlite` writes it. */
#pragma once

#include <stdbool.h>

#include "partition/base/status.h"

/* Find the time of a step: the median distance between the begins of the ranges of NVTX that are
 * steps. Those are the ranges of one thread whose names are equal but for digits and have "step" or
 * "iter" in them, but not "forward", "backward", "micro"; of several the ones that last longest. A
 * single range has its own length. *first_left_out: of more than two distances the first, which
 * warms up. ERR_INPUT: no such range, or not such a file. ERR_SYSTEM, ERR_NOMEM. */
enum status nsys_step_ns(const char *path, double *ns, bool *first_left_out, struct err *err);
