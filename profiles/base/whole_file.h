/* profiles/base/whole_file.h - read files whole, and write files that appear whole or not at
 * all. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "partition/base/status.h"

/* Read all of a file or pipe into fresh memory (free() it). A NUL follows the bytes; *length does
 * not count it. file_read_text() skips a byte order mark. The results are untouched on failure.
 * Errors of input_open(), and ERR_INPUT: larger than 1 GiB, or than 64 MiB if it is a pipe, or text
 * in UTF-16 or with a NUL inside; ERR_NOMEM. It takes no more memory than twice what it accepts. */
enum status file_read(const char *path, char **bytes, size_t *length, struct err *err);
enum status file_read_text(const char *path, char **text, struct err *err);
/* Open an input for reading, without waiting: the one function that does. It is noted as an input
 * (file_note_input()). A folder, a named pipe, a device and a socket are refused, because a pipe
 * would wait for a writer for ever and a device may never end. /dev/stdin, /dev/fd/N and
 * /proc/self/fd/N, which this process was given open, may be pipes and devices. verb: "open" or
 * "read", of the error. ERR_SYSTEM: missing, unreadable, a folder. ERR_INPUT: refused. The caller
 * closes *fd; st may be NULL. */
enum status input_open(const char *path, const char *verb, int *fd, struct stat *st,
                       struct err *err);
/* input_open() as a stream; the caller closes *in. */
enum status input_file(const char *path, FILE **in, struct err *err);
/* The most bytes to read of an open file, where `most` of a plain file are accepted: of a pipe,
 * which may never end, 64 MiB. */
int64_t file_limit(const struct stat *st, int64_t most);
/* Length in bytes of a text's byte order mark, which some editors put in front of UTF-8; else 0. */
size_t file_mark(const char *text);
/* ERR_INPUT if a file's bytes begin with the byte order mark of UTF-16; the message names it. */
enum status file_refuse_utf16(const char *path, const char *bytes, size_t length, struct err *err);

/* A file that appears whole or not at all. Open it, write to file.out, then call atomic_close()
 * with the status of the writing. With OK the file is synced and renamed; otherwise it is removed.
 * atomic_close() returns the status that it was given, or ERR_SYSTEM if a write failed. */
struct atomic_file {
    FILE *out;
    char *path, *temp; /* owned; temp NULL: a device or pipe, written to directly */
    bool is_output;    /* of output_open() */
};
enum status atomic_open(struct atomic_file *file, const char *path, struct err *err);

/* atomic_open() for a file that the user has named, by -o or --trace: it never replaces an input of
 * this process, nor anything in the folder of a checkpoint. atomic_close() looks again, because
 * inputs may be read after the output was opened. ERR_INPUT in addition. */
enum status output_open(struct atomic_file *file, const char *path, struct err *err);
/* The check alone, for a command that works for long before it writes. */
enum status output_check(const char *path, struct err *err);
/* Note a file that this process reads as an input, by its device and inode: links and other names
 * of it count. file_read() and the profile store do so by themselves; whoever opens an input
 * otherwise calls it. Threads may call it. */
void file_note_input(const char *path);

/* Whether a path is written to directly, not replaced: standard output or error, a device, a pipe.
 */
bool file_is_stream(const char *path);
enum status atomic_close(struct atomic_file *file, enum status status, struct err *err);

/* Make the missing folders of a path, up to its last '/'. whole: the path itself is a folder too.
 * ERR_SYSTEM. */
enum status folders_make(const char *path, bool whole, struct err *err);

/* Sync the folder that contains path, which makes a new name durable. Errors are ignored, because
 * some file systems cannot sync a folder. atomic_close() calls it for files; call it after renaming
 * a folder. */
void file_sync_name(const char *path);
