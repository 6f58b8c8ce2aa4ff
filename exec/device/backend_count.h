/* exec/device/backend_count.h - a backend that computes nothing and counts the memory asked of it.
 *
 * Stages and a runtime that are made on it show how much device memory they will take, before any
 * is taken. So the formulas for sizes exist once. It has the functions that come before the kernels
 * in the table, up to round(), and they do nothing. Kernels and optional functions are NULL. */
#pragma once

#include "exec/base/backend.h"

/* A counting backend in place of `like`, with its dtype; it claims to be a device. ERR_NOMEM.
 * Released with backend_free(). */
enum status backend_count_new(const struct backend *like, struct backend **count, struct err *err);

/* The sizes asked for so far, in order; borrowed. */
const int64_t *backend_count_pieces(const struct backend *count, int64_t *num);
