/* cli/figures/gnuplot.h - one figure through gnuplot. The caller writes settings and data blocks,
 * gnuplot_run() adds a script of plots/ and runs gnuplot. The scripts are linked into the program.
 * The output file gets its name only when it is complete. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "partition/base/status.h"
#include "profiles/base/whole_file.h"

/* The scripts of plots/. They are embedded in the program, so that it can be copied anywhere. */
/* clang-format off */
#define PLOT_SCRIPTS(ROW) \
    ROW(style) ROW(timeline) ROW(curves) ROW(throughput) ROW(error) ROW(lines) ROW(heat) \
    ROW(goodput) ROW(losses) ROW(partition) ROW(freeze) ROW(bars)
/* clang-format on */
#define SCRIPT_DECLARED(name) extern const char script_##name[];
PLOT_SCRIPTS(SCRIPT_DECLARED)

struct gnuplot {
    FILE *program;           /* write settings and data blocks here, then call gnuplot_run() */
    struct atomic_file file; /* the output file; unused with term "dumb" */
    bool dumb;
};

/* Begin a figure. out_path ends in .svg, .png or .pdf. NULL with term "dumb" draws characters on
 * stdout. *plot must be zeroed. ERR_INPUT: no output is given, or its suffix or the terminal is
 * unknown. */
enum status gnuplot_begin(struct gnuplot *plot, const char *out_path, const char *term,
                          struct err *err);

/* Write the terminal's line with this size in pixels, and plots/style.gp. Call it once, before
 * anything else is written to the program. */
void gnuplot_size(struct gnuplot *plot, int width, int height);

/* Write text as a gnuplot string, with quotes doubled and without control characters. Every string
 * that is not ours goes through here: in double quotes gnuplot runs `COMMAND`. */
void gnuplot_quote(struct gnuplot *plot, const char *text);

/* Append a script and run all of it.
 * ERR_SYSTEM: gnuplot is missing or failed (its first line is in the message), or the file cannot
 * be written. gnuplot_clear() then removes the incomplete file. */
enum status gnuplot_run(struct gnuplot *plot, const char *script, struct err *err);
void gnuplot_clear(struct gnuplot *plot);
