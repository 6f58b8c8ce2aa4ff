#include <stdio.h>

#include "cli/base/command.h"
#include "cli/figures/figures.h"

/* The kinds with what each takes and shows, for --help. */
static void print_kinds(void)
{
    printf("\nKIND, what it takes, and what it shows:\n");
    for (int i = 0; i < num_figure_kinds; i++)
        printf("  %-10s %-30s %s\n", figure_kinds[i].name, figure_kinds[i].takes,
               figure_kinds[i].summary);
}

static enum status run_plot(const struct command *command, int argc, char **argv, struct err *err)
{
    struct figure_options figure = {0};
    struct option_list overrides = {0};
    int64_t width = 0, height = 0;
    const struct option options[] = {
        OPTION("o", STRING, &figure.out_path, "FILE", "figure: .svg, .png or .pdf"),
        OPTION("term", STRING, &figure.term, "dumb", "draw in the terminal instead",
               .values = "dumb"),
        OPTION("set", LIST, &overrides, "a.b=v", "override a value of a job", .keys = &job_keys),
        OPTION("frozen", INT, &figure.subject.num_frozen, "F", "frozen layers of a job's step (0)",
               .max = 100000),
        OPTION("cached", FLAG, &figure.subject.cached, NULL, "their output comes from the cache"),
        OPTION("plan", STRING, &figure.subject.plan_path, "FILE",
               "the plan of a job, a file of 'elapse plan -o' (default: the best plan)"),
        OPTION("db", STRING, &figure.subject.db_path, "FILE",
               "profile store of the prediction (the run's own, or the user's)"),
        OPTION("x", STRING, &figure.x, "KEY",
               "sweep: the key on the x axis (the first with numbers)"),
        OPTION("y", STRING, &figure.y, "KEY",
               "sweep, scaling: the value to draw (tokens_per_s, else samples_per_s; of whole runs "
               "speedup or total_ns)"),
        OPTION("heat", FLAG, &figure.heat, NULL, "sweep: two keys as a map of colours"),
        OPTION("width", INT, &width, "PIXELS", "width (1000)", .min = 200, .max = 20000),
        OPTION("height", INT, &height, "PIXELS", "height (by the figure)", .min = 150,
               .max = 20000),
    };
    struct command_line line = COMMAND_LINE(options, 1 + FIGURE_MAX_RUNS);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc == OK && line.help && !line.rows)
        print_kinds();
    if (rc != OK || line.help)
        return rc;
    if (line.num_positional < 2) {
        rc = err_set(err, ERR_INPUT, "plot needs a KIND and a RUN_DIR, JOB or file");
        err_hint(err, "'elapse plot --help' lists the kinds and what each takes");
        return rc;
    }
    figure.subject.overrides = &overrides;
    figure.width = (int)width;
    figure.height = (int)height;
    rc =
        figure_draw(line.positional[0], line.positional + 1, line.num_positional - 1, &figure, err);
    if (rc == OK && figure.out_path)
        printf("%s\n", figure.out_path);
    return rc;
}

const struct command command_plot = {
    "plot", "KIND RUN_DIR|JOB|FILE...  -o FILE  (error COMPARE_JSON, timeline JOB, ...)",
    "draw runs, predictions and tables through gnuplot", "FIGURE PATH", run_plot};
