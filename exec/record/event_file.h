/* exec/record/event_file.h - scalars of a run as a TensorBoard event file.
 *
 * Written by ourselves: the format is TFRecord (length, masked CRC-32C, data, masked CRC-32C) around
 * protocol buffers of two messages with five fields. Rank 0 only. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"

struct event_file; /* opaque */

/* Make dir if it is missing, and a fresh event file in it. A resumed run adds another file, which
 * TensorBoard reads as the continuation. ERR_SYSTEM. */
enum status event_file_open(const char *dir, struct event_file **file, struct err *err);

struct event_scalar {
    const char *tag; /* "train/loss" */
    double value;    /* NaN: left out */
};
/* Append one event of a step, and flush it, so that TensorBoard can follow the run. ERR_SYSTEM. */
enum status event_file_write(struct event_file *file, int64_t step,
                             const struct event_scalar *scalars, int num_scalars, struct err *err);
void event_file_close(struct event_file *file); /* NULL is fine */

/* CRC-32C (Castagnoli) of bytes; public for the tests. */
uint32_t crc32c(const void *data, size_t size);
