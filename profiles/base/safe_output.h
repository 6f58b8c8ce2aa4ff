/* profiles/base/safe_output.h - no control character of a foreign text reaches the terminal. */
#pragma once

#include <stdbool.h>

/* Replace stdout and stderr by streams that pass every byte through safe_byte(), so that names from
 * stores, profiles and jobs cannot command a terminal, whoever prints them. With
 * progress, stderr still passes the "\r" and "\033[K" of progress lines. Files that are written as
 * data, also "/dev/stdout" (atomic_open()), are not changed. A main calls it first. Without memory
 * nothing changes. */
void safe_output_begin(bool progress);

/* The width of the terminal that standard output is; 0: it is none, or says no width. */
int terminal_columns(void);

/* After safe_output_begin(): on a terminal, break lines of stdout that are too long for it between words.
 * Left as they are: JSON, rows of tables (a gap of two blanks behind column WRAP_LABEL), and a line that
 * is written in parts. What follows a label and a gap in front of WRAP_LABEL goes on below itself. */
void safe_output_wrap(void);
