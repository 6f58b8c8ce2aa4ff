/* partition/cost/device_curves.h - how long a GPU of a kind takes for one kernel.
 *
 * A kernel takes the largest of its work at the rate that the device reaches for its shape, its
 * bytes at the rate that memory reaches, and a start. The constants of a kind were fitted to
 * published measurements of kernels (tests/truth); docs/costs.md has the formula and the fits, the files
 * of profiles/devices the constants. Kinds that nobody measured take those of the nearest kind at their
 * own peak. Pure. */
#pragma once

#include "partition/cluster/device_kinds.h"
#include "partition/cost/cost.h"
#include "partition/cost/kernels.h"

/* Time of one kernel in ns on the device itself, launches aside. peak is in flops per second for the
 * kernel's type of number, bytes_per_s the published memory bandwidth. */
double device_kernel_ns(const struct device_curve *curve, double peak, double bytes_per_s,
                        const struct kernel *kernel);
