/* exec/device/backend_count.h - a backend that computes nothing and counts what is asked of it.
 *
 * Stages and a runtime made on it once say how much device memory they will take, before any is
 * taken; sizes have no second home. It has all that comes before the kernels in the table, up to
 * round(), and none of it does anything; what a backend may lack and kernels are NULL. */
#ifndef ELAPSE_EXEC_DEVICE_BACKEND_COUNT_H
#define ELAPSE_EXEC_DEVICE_BACKEND_COUNT_H

#include "exec/base/backend.h"

/* In place of `like`, whose dtype it has; memory is not the host's. ERR_NOMEM. Released with
 * backend_free(). */
enum status backend_count_new(const struct backend *like, struct backend **count, struct err *err);

/* The pieces asked for so far, in order; borrowed. */
const int64_t *backend_count_pieces(const struct backend *count, int64_t *num);

#endif
