/* cli/figures.h - the figures of `elapse plot` and `elapse report`. */
#ifndef ELAPSE_CLI_FIGURES_H
#define ELAPSE_CLI_FIGURES_H

#include "partition/status.h"

#define FIGURE_MAX_RUNS 16

struct figure_options {
    const char *out_path, *term; /* see gnuplot_begin() */
    const char *db_path;         /* profile store of the prediction; NULL: the run's own */
    int width, height;           /* 0: the default of the figure */
};

/* Draw "timeline" (one run folder: simulated above measured), "loss", "throughput", "step-time" or
 * "lr" (up to FIGURE_MAX_RUNS run folders), or "error" (one file of `elapse compare --json`).
 * ERR_INPUT: the figure is unknown or the arguments do not fit it. Errors of reading, simulating
 * and drawing pass through. */
enum status figure_draw(const char *name, const char *const *args, int num_args,
                        const struct figure_options *options, struct err *err);

#endif
