/* exec/base/file_part.h - reads and writes a part of an open file completely. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Read or write all `bytes` at an offset, in as many calls as that takes; signals do not interrupt
 * it. false: not all of them. Then errno says why, or is 0 if the file ends too early. */
bool file_read_at(int fd, void *to, int64_t bytes, int64_t offset);
bool file_write_at(int fd, const void *from, int64_t bytes, int64_t offset);

/* The reason why file_read_at() was false, for a message: strerror(errno), or that the file has
 * become too short. */
const char *file_read_why(void);
