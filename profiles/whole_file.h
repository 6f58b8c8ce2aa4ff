/* profiles/whole_file.h - files that are read and written as a whole. */
#ifndef ELAPSE_PROFILES_WHOLE_FILE_H
#define ELAPSE_PROFILES_WHOLE_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "partition/status.h"

/* Read all of a file or pipe into fresh memory (free() it), with a NUL behind it that *length does
 * not count; of text, what is behind a byte order mark. Both are untouched on failure. ERR_SYSTEM:
 * it cannot be read; ERR_INPUT: larger than 1 GiB, or text with a NUL inside; ERR_NOMEM. */
enum status file_read(const char *path, char **bytes, size_t *length, struct err *err);
enum status file_read_text(const char *path, char **text, struct err *err);
/* How many bytes a text's byte order mark takes: some editors put one in front of UTF-8. */
size_t file_mark(const char *text);

/* Any file that appears whole or not at all: write to file.out, then close with the status of the
 * writing; only OK makes it appear (synced, renamed), anything else leaves nothing behind. Returns
 * that status, or ERR_SYSTEM where a write has failed. */
struct atomic_file {
    FILE *out;
    char *path, *temp; /* owned; temp NULL: a device or pipe, written to directly */
};
enum status atomic_open(struct atomic_file *file, const char *path, struct err *err);
/* Whether what is there under that name is written to as it is: standard output and error, a device
 * or pipe. */
bool file_is_stream(const char *path);
enum status atomic_close(struct atomic_file *file, enum status status, struct err *err);

/* Make the folders before every '/' of a path, and, whole, the path itself; those that are there
 * are fine. ERR_SYSTEM. */
enum status folders_make(const char *path, bool whole, struct err *err);

/* A new name is durable once the folder that it lies in is; where a file system cannot say so, it
 * is not asked twice. atomic_close() does this; for folders that are renamed. */
void file_sync_name(const char *path);

#endif
