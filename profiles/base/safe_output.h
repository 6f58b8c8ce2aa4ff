/* profiles/base/safe_output.h - no control character of a foreign text reaches the terminal. */
#pragma once

#include <stdbool.h>

/* Replace stdout and stderr by streams that pass every byte through safe_byte(), so that names from
 * stores, profiles and jobs cannot command a terminal, whoever prints them. With
 * progress, stderr still passes the "\r" and "\033[K" of progress lines. Files that are written as
 * data, also "/dev/stdout" (atomic_open()), are not changed. A main calls it first. Without memory
 * nothing changes. */
void safe_output_begin(bool progress);
