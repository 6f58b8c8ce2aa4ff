/* partition/base/safe_text.h - texts of others, made safe for a terminal and for a shell.
 *
 * A name in a store, a profile or a path may hold anything. What the programs print passes
 * safe_byte(), and a command that they print for people to copy has its paths from shell_path().
 * Pure. */
#pragma once

#include <stddef.h>

/* The byte to print for `byte`, which follows `before` (0 at the start) in UTF-8 text. Control
 * characters other than newline and tab become '?' (those of two bytes, U+0080 to U+009F, become
 * U+00BF). */
char safe_byte(char before, char byte);

/* The path as one word of a POSIX shell's command line; unchanged where it needs no quotes. A path
 * that begins with '-' gets "./", so that it is no option. With control characters the word is in
 * the form $'...' of bash and POSIX 2024. A path that does not fit in size bytes gives "DIR". */
const char *shell_path(const char *path, char *word, size_t size);
/* That in storage of the enclosing block, as an argument of a printf. */
#define SHELL_PATH(path) shell_path((path), (char[SHELL_PATH_SIZE]){0}, SHELL_PATH_SIZE)
enum { SHELL_PATH_SIZE = 400 }; /* bytes; a hint of struct err has room for it and a command */
