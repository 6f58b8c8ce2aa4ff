/* cli/figures/figures.h - the figures of `elapse plot` and `elapse report`. */
#ifndef ELAPSE_CLI_FIGURES_H
#define ELAPSE_CLI_FIGURES_H

#include "cli/runs/subject.h"
#include "partition/base/status.h"

#define FIGURE_MAX_RUNS 16

struct figure_options {
    const char *out_path, *term; /* see gnuplot_begin() */
    struct subject_options subject;
    const char *x, *y; /* sweep: keys to draw; NULL: chosen from the file */
    bool heat;         /* sweep: two keys as a heat map */
    int width, height; /* 0: the default of the figure */
};

/* The kinds of figure, for help texts and error messages. */
struct figure_kind {
    const char *name, *takes, *summary;
};
extern const struct figure_kind figure_kinds[];
extern const int num_figure_kinds;

/* Draw a figure of files or folders; figure_kinds says which each kind takes. ERR_INPUT: the kind
 * is unknown, or the arguments do not fit it. Errors of reading, simulating and drawing pass
 * through. */
enum status figure_draw(const char *name, const char *const *args, int num_args,
                        const struct figure_options *options, struct err *err);

/* Draw a figure of subjects that are open: for a report, which shows several figures of each. Only
 * kinds that take run folders or jobs. */
enum status figure_draw_subjects(const char *name, struct subject *subjects, int num_subjects,
                                 const struct figure_options *options, struct err *err);

#endif
