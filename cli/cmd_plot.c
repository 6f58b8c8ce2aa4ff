#include <stdio.h>

#include "cli/command.h"
#include "cli/figures.h"

static enum status run_plot(const struct command *command, int argc, char **argv, struct err *err)
{
    struct figure_options figure = {0};
    int64_t width = 0, height = 0;
    const struct option options[] = {
        {"o",      OPTION_STRING, &figure.out_path, "FILE",   "figure: .svg, .png or .pdf",   0,   0,     NULL},
        {"term",   OPTION_STRING, &figure.term,     "dumb",   "draw in the terminal instead", 0,   0,     NULL},
        {"db",     OPTION_STRING, &figure.db_path,  "FILE",
         "timeline: profile store of the prediction (the run's own)",                         0,   0,     NULL},
        {"width",  OPTION_INT,    &width,           "PIXELS", "width (1100)",                 200, 20000, NULL},
        {"height", OPTION_INT,    &height,          "PIXELS", "height (550; timeline 620)",   150, 20000, NULL},
    };
    const char *words[1 + FIGURE_MAX_RUNS];
    int num_words = 0;
    bool help = false;
    enum status rc = command_parse(command, options, (int)(sizeof options / sizeof options[0]),
                                   argc, argv, words, 1 + FIGURE_MAX_RUNS, &num_words, &help, err);
    if (rc != OK || help)
        return rc;
    if (num_words < 2) {
        rc = err_set(err, ERR_INPUT, "plot needs a KIND and a RUN_DIR");
        err_hint(err, "KIND: timeline loss throughput step-time lr, or error and a file of 'elapse "
                      "compare --json'");
        return rc;
    }
    figure.width = (int)width;
    figure.height = (int)height;
    rc = figure_draw(words[0], words + 1, num_words - 1, &figure, err);
    if (rc == OK && figure.out_path)
        printf("%s\n", figure.out_path);
    return rc;
}

const struct command command_plot = {
    "plot", "timeline|loss|throughput|step-time|lr RUN_DIR... | error COMPARE_JSON  -o FILE",
    "draw a run, or a prediction beside a run, through gnuplot", run_plot};
