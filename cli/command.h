/* cli/command.h - the table of subcommands of `elapse`; one file cmd_<name>.c each. */
#ifndef ELAPSE_CLI_COMMAND_H
#define ELAPSE_CLI_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "partition/options.h"
#include "partition/status.h"
#include "profiles/json.h"

struct command {
    const char *name;
    const char *args;    /* "MODEL --stages K [...]" */
    const char *summary; /* one line */
    /* argv[0] is the command's name. Prints its answer on stdout (data only) and returns; main
     * prints the error line, the hint and picks the exit code. A command whose answer is "no"
     * prints it and returns ERR_INFEASIBLE with the reason. */
    enum status (*run)(const struct command *command, int argc, char **argv, struct err *err);
};

extern const struct command command_model, command_balance, command_freeze, command_schedule,
    command_plan, command_sim, command_profile, command_profiles, command_train, command_eval,
    command_export, command_compare, command_plot, command_report, command_runs;

/* options_parse(), and on --help prints the command's help to stdout and sets *help: return OK
 * then. */
enum status command_parse(const struct command *command, const struct option *options,
                          int num_options, int argc, char **argv, const char **positional,
                          int max_positional, int *num_positional, bool *help, struct err *err);

/* Where a command is used in several ways (an action, RUN_DIR or --matrix), ways[i] is the one that
 * options[i] is of; NULL: any. ERR_INPUT names the first option given that is of another way; every
 * option of one way needs its `seen`. */
enum status command_check_way(const struct command *command, const struct option *options,
                              const char *const *ways, int num_options, const char *way,
                              struct err *err);

/* A fresh answer object {"schema":1,"version":...,"command":name}; NULL never (allocation failure
 * is reported by command_answer()). */
struct json *command_json(const struct command *command);
/* Print the object as one line on stdout, and free it. A write that fails is main's to report. */
enum status command_answer(struct json *json, struct err *err);

#endif
