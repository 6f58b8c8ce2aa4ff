#include <stdio.h>

#include "cli/command.h"
#include "cli/figures.h"

static enum status run_plot(const struct command *command, int argc, char **argv, struct err *err)
{
    struct figure_options figure = {0};
    int64_t width = 0, height = 0;
    const struct option options[] = {
        OPTION("o", STRING, &figure.out_path, "FILE", "figure: .svg, .png or .pdf"),
        OPTION("term", STRING, &figure.term, "dumb", "draw in the terminal instead"),
        OPTION("db", STRING, &figure.db_path, "FILE",
               "timeline: profile store of the prediction (the run's own)"),
        OPTION("width", INT, &width, "PIXELS", "width (1100)", .min = 200, .max = 20000),
        OPTION("height", INT, &height, "PIXELS", "height (550; timeline 620)", .min = 150,
               .max = 20000),
    };
    struct command_line line = COMMAND_LINE(options, 1 + FIGURE_MAX_RUNS);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    if (line.num_positional < 2) {
        rc = err_set(err, ERR_INPUT, "plot needs a KIND and a RUN_DIR");
        err_hint(err, "KIND: timeline loss throughput step-time lr, or error and a file of 'elapse "
                      "compare --json'");
        return rc;
    }
    figure.width = (int)width;
    figure.height = (int)height;
    rc =
        figure_draw(line.positional[0], line.positional + 1, line.num_positional - 1, &figure, err);
    if (rc == OK && figure.out_path)
        printf("%s\n", figure.out_path);
    return rc;
}

const struct command command_plot = {
    "plot", "timeline|loss|throughput|step-time|lr RUN_DIR... | error COMPARE_JSON  -o FILE",
    "draw a run, or a prediction beside a run, through gnuplot", run_plot};
