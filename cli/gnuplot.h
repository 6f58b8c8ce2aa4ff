/* cli/gnuplot.h - one figure through gnuplot: a program is written (settings, data blocks, one of
 * the scripts of plots/, which are linked in), run, and its output takes its name only when whole.
 */
#ifndef ELAPSE_CLI_GNUPLOT_H
#define ELAPSE_CLI_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

#include "partition/status.h"
#include "profiles/whole_file.h"

struct gnuplot {
    FILE *program;           /* write settings and data blocks here, then call gnuplot_run() */
    struct atomic_file file; /* unused: the terminal */
    bool dumb;
};

/* out_path ends in .svg, .png or .pdf; NULL with term "dumb" draws on stdout with characters.
 * *plot must be zeroed. ERR_INPUT: no output, an unknown ending or terminal. */
enum status gnuplot_begin(struct gnuplot *plot, const char *out_path, const char *term, int width,
                          int height, struct err *err);

/* text as a gnuplot string, quotes doubled, control characters dropped. */
void gnuplot_quote(struct gnuplot *plot, const char *text);

/* Append the script of plots/<name>.gp ("timeline", "curves", "error") and run all of it.
 * ERR_SYSTEM: gnuplot is missing or failed (its first line is in the message), or the file cannot
 * be written; gnuplot_clear() then removes what there is of it. */
enum status gnuplot_run(struct gnuplot *plot, const char *name, struct err *err);
void gnuplot_clear(struct gnuplot *plot);

#endif
