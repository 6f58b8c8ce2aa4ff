/* cli/base/command.h - the subcommands of `elapse`. cmd_<name>.c holds one; those that
 * elapse-exec runs are in cmd_exec.c. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "partition/base/options.h"
#include "partition/base/status.h"
#include "profiles/json/json.h"
#include "profiles/base/ticker.h"

struct command {
    const char *name;
    const char *args;    /* "MODEL --stages K [...]" */
    const char *summary; /* one line */
    /* The kind of each argument, for completion: words ("list|show"), or a class of names or files in
     * capitals ("MODEL", "FILE"). The last one repeats. "": no arguments. */
    const char *takes;
    /* argv[0] is the command's name. Prints its answer on stdout (data only) and returns; main
     * prints the error line and the hint, and chooses the exit code. A command whose answer is "no"
     * prints it and returns ERR_INFEASIBLE with the reason. */
    enum status (*run)(const struct command *command, int argc, char **argv, struct err *err);
};

/* All commands, in the order of the help. */
/* clang-format off */
#ifndef COMMANDS /* a build with fewer defines it */
#define COMMANDS(ROW) \
    ROW(model) ROW(balance) ROW(freeze) ROW(schedule) ROW(plan) ROW(sim) ROW(profile) \
    ROW(profiles) ROW(train) ROW(eval) ROW(export) \
    /* wall: exec/serve */ \
    ROW(generate) ROW(predict) \
    /* wall end */ \
    ROW(checkpoint) ROW(compare) \
    /* wall: cli/figures */ \
    ROW(plot) ROW(report) \
    /* wall end */ \
    ROW(runs) ROW(devices) ROW(cluster) ROW(doctor) ROW(calibrate) ROW(page)
#endif
/* clang-format on */
#define COMMAND_DECLARED(name) extern const struct command command_##name;
COMMANDS(COMMAND_DECLARED)

/* Like options_parse(). If line->help gets set, it also prints the command's help to stdout, and
 * the command then returns OK. With --help=rows, that is the command's line for programs
 * ("command", name, arguments, summary, takes, with tabs between) and options_rows(). */
enum status command_parse(const struct command *command, struct command_line *line, int argc,
                          char **argv, struct err *err);

/* Print the beginning of that help: usage and summary, or the command's line. */
void command_heading(const struct command *command, bool rows);

/* For a command with several forms (an action, or RUN_DIR and --matrix): refuse an option that
 * belongs to another form than `way`. ways[i] is the form of line->options[i], NULL: any form. Each
 * option of one form needs its `seen`. ERR_INPUT names the first wrong option. */
enum status command_check_way(const struct command *command, const struct command_line *line,
                              const char *const *ways, const char *way, struct err *err);

/* Refuse a page's file whose name ends in another suffix than .html, unless it is a stream. */
enum status command_check_page(const char *path, struct err *err);

/* The form of a command's progress on stderr: none if quiet, one line that changes on a
 * terminal, else a line now and then. */
enum ticker_mode command_progress(bool quiet);

/* A fresh answer object {"schema":1,"version":...,"command":name}. It is never NULL:
 * command_answer() reports a failed allocation. */
struct json *command_json(const struct command *command);
/* Print the object as one line on stdout, and free it. main() reports a failed write. */
enum status command_answer(struct json *json, struct err *err);
