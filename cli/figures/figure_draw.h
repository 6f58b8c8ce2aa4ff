/* cli/figures/figure_draw.h - declarations that all figures share. Each figure_<name>() writes its
 * settings and data into call->plot.program and runs the script of plots/. figures.c calls them. */
#pragma once

#include "cli/figures/figures.h"
#include "cli/figures/gnuplot.h"

struct figure_call {
    const char *kind; /* name of the figure */
    const char *const *args;
    int num_args;
    struct subject *subjects; /* num_args open ones, or NULL: args are other files */
    const struct figure_options *options;
    struct gnuplot plot;
    int width, height; /* of the figure in pixels; set by figure_begin() */
};

figure_function figure_timeline, figure_curves, figure_throughput, figure_error, figure_memory,
    figure_traffic, figure_partition, figure_freeze, figure_breakdown, figure_bubble,
    figure_scaling, figure_sweep, figure_goodput, figure_losses;

/* Begin the program of a figure with this size, unless the options say another. Returns the FILE to
 * write settings and data to. */
FILE *figure_begin(struct figure_call *call, int width, int height);
/* Write `name = "text"` in gnuplot's words; printf() format. */
void figure_text(struct figure_call *call, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Draw it by a script of plots/, such as script_lines. */
#define figure_end(call, script, err) gnuplot_run(&(call)->plot, script, err)

/* "K=2 R=1 M=16 1f1b" of a plan. */
const char *figure_plan_text(const struct plan *plan, char *text, size_t size);

/* The unit in which a span of time reads well: us, ms or s. */
struct time_unit {
    const char *name;
    double ns;
};
const struct time_unit *figure_time_unit(int64_t span_ns);

/* The title of a value of an answer by its JSON key, and the factor to its unit; the key and 1
 * where it has no title. */
const char *figure_value_label(const char *key, double *factor);

/* The tokens of a sample if all subjects are jobs of texts of one length; else 1. */
double figure_tokens(const struct figure_call *call);

#define NS_PER_MS 1e6
