/* cli/figures/figures.h - the figures of `elapse plot` and `elapse report`. */
#pragma once

#include "cli/simulate/subject.h"
#include "partition/base/status.h"

#define FIGURE_MAX_RUNS 16

struct figure_options {
    const char *out_path, *term; /* see gnuplot_begin() */
    struct subject_options subject;
    const char *x, *y; /* sweep: keys to draw; NULL: chosen from the file */
    bool heat;         /* sweep: two keys as a heat map */
    int width, height; /* 0: the default of the figure */
};

struct figure_call;
typedef enum status figure_function(struct figure_call *call, struct err *err);

enum figure_flag {
    FIGURE_OF_FILES = 1, /* its arguments are files of answers, not runs and jobs */
    FIGURE_DB = 2,       /* it takes --db */
    FIGURE_Y = 4,        /* it takes -y */
    FIGURE_X = 8         /* it takes -x and --heat */
};

struct figure_kind {
    const char *name, *takes, *summary;
    figure_function *draw;
    int max_args;
    int flags; /* of enum figure_flag */
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
