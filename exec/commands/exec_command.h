/* exec/commands/exec_command.h - the commands of elapse-exec. exec_<name>.c holds one; the table of
 * all is in exec/main.c. */
#pragma once

#include <stdbool.h>

#include "exec/comm/comm.h"
#include "exec/commands/launch_words.h"
#include "partition/base/options.h"
#include "profiles/json/json.h"

#define MAX_THREADS 1024 /* of a rank */

/* A call of a command: its ranks, its arguments. */
struct call {
    struct comm *comm; /* NULL: the command has no ranks, or this call needs none (help, --check) */
    struct launch_words words;
    int64_t ready_ns; /* when MPI knew the ranks */
    int argc;
    char **argv;    /* argv[0] is the command's name */
    int stopped_by; /* set by the command: the signal that ended it early; 0: none */
};

struct exec_command {
    const char *name, *args, *summary;
    int num_needed; /* arguments */
    bool ranks;
    unsigned limit_s; /* after which SIGALRM ends the process; 0: none */
    enum status (*run)(const struct exec_command *command, struct call *call, struct err *err);
};

extern const struct exec_command exec_train, exec_eval, exec_export, exec_checkpoint, exec_profile,
    exec_facts, exec_ping;

/* Like options_parse(). On misuse the hint names --help; with --help, rank 0 prints the help on
 * stdout. All positional arguments that the command needs must be there. */
enum status exec_parse(const struct exec_command *command, struct call *call,
                       struct command_line *line, struct err *err);

/* Whether stderr is a terminal, also where mpirun stands between. */
bool exec_on_terminal(void);
/* Whether this process prints: rank 0, or one without ranks. */
bool exec_speaks(const struct call *call);

/* Let handler answer SIGTERM, SIGINT and SIGUSR1. */
void exec_catch_signals(void (*handler)(int));

/* A fresh answer object {"schema":1,"version":...,"command":command}. */
struct json *exec_answer(const char *command);
/* Print it as one line on stdout. */
enum status exec_print(const struct json *json, struct err *err);
