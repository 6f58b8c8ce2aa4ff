/* exec/base/file_part.h - parts of open files, whole. */
#ifndef ELAPSE_EXEC_BASE_FILE_PART_H
#define ELAPSE_EXEC_BASE_FILE_PART_H

#include <stdbool.h>
#include <stdint.h>

/* Read or write all `bytes` at an offset, however many calls that takes; a signal interrupts
 * nothing. False: not all of them, and errno says why, or is 0 where the file ends before. */
bool file_read_at(int fd, void *to, int64_t bytes, int64_t offset);
bool file_write_at(int fd, const void *from, int64_t bytes, int64_t offset);

/* Why file_read_at() was false, for people: strerror(errno), or that the file is too short now. */
const char *file_read_why(void);

#endif
