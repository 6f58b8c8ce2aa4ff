/* exec/main.c - elapse-exec: the commands that need MPI and BLAS. `elapse` starts it under mpirun;
 * under Slurm, `srun elapse-exec train job.json` is the same. Only rank 0 speaks, except to report
 * its own failure. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "exec/base/ending.h"
#include "exec/comm/starter.h"
#include "exec/comm/watchdog.h"
#include "exec/commands/exec_command.h"
/* wall: exec/serve */
#include "exec/serve/exec_serve.h"
/* wall end */
#include "profiles/base/clock.h"
#include "profiles/base/safe_output.h"
#include "profiles/json/build_facts.h"

#define EXIT_SIGNALLED 128 /* and the signal, as shells do */
#define OTHERS_US 300000   /* that a rank gives rank 0 to report what both have found */

static const struct exec_command *const commands[] = {
    &exec_train,
    &exec_eval,
    &exec_export,
    /* wall: exec/serve */
    &exec_generate,
    &exec_predict,
    /* wall end */
    &exec_checkpoint,
    &exec_profile,
    &exec_facts,
    &exec_ping,
};
enum { NUM_COMMANDS = sizeof commands / sizeof *commands };

static int64_t asked; /* ranks, for fail_alone(): see struct launch_words */

static void report(const struct err *err)
{
    fprintf(stderr, "elapse: %s\n", err->msg);
    if (err->hint[0])
        fprintf(stderr, "hint: %s\n", err->hint);
}

static int exit_code(enum status status)
{
    return status == ERR_INFEASIBLE && asked > 0 ? EXIT_RANK_INFEASIBLE : status_exit_code(status);
}

/* Report the error and abort the job. Ranks other than 0 wait first: if rank 0 fails too, it
 * reports and ends them by SIGTERM. */
static void fail_alone(const struct comm *comm, const struct err *err)
{
    if (comm->rank != 0) {
        signal(SIGTERM, SIG_DFL);
        usleep(OTHERS_US);
    }
    report(err);
    comm_abort(comm, exit_code(err->status));
}

/* For a rank that waits in MPI_Init() for one that is gone. */
static void fail_before_mpi(const struct err *err)
{
    report(err);
    _exit(exit_code(err->status));
}

/* Begin MPI and meet the other ranks. */
static enum status meet(int *argc, char ***argv, struct call *call, struct comm *comm,
                        struct err *err)
{
    enum status rc = asked > 0 ? OK : starter_check_plugin(err);
    if (rc == OK)
        watchdog_begin(fail_before_mpi);
    THEN(comm_init(argc, argv, comm, err));
    call->ready_ns = clock_wall_ns();
    if (rc != OK)
        return rc;
    comm->fail = fail_alone;
    call->comm = comm;
    rc = starter_check_ranks(asked, comm->size, err);
    THEN(watchdog_start(comm, err));
    return rc;
}

static int print_version(int argc, char **argv)
{
    enum status rc = OK;
    struct err err = {0};
    if (argc == 3 && strcmp(argv[2], "--json") == 0) {
        struct json *root = exec_answer("version");
        build_facts_to_json(root);
        rc = exec_print(root, &err);
        json_free(root);
    } else if (argc == 2) {
        build_facts_print("elapse-exec");
    } else {
        rc = err_set(&err, ERR_INPUT, "--version takes --json only");
    }
    if (rc != OK)
        report(&err);
    return exit_code(rc);
}

static const struct exec_command *find_command(const char *name)
{
    for (int i = 0; i < NUM_COMMANDS; i++)
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
    return NULL;
}

static bool asks_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--help=rows") == 0)
            return true;
    return false;
}

static void print_usage(FILE *out)
{
    fprintf(out, "usage: elapse-exec COMMAND [options]; mpirun -n RANKS in front\n");
    for (int i = 0; i < NUM_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct comm comm = {0};
    struct call call = {0};
    ending_prepare(argv);
    safe_output_begin(exec_on_terminal());
    signal(SIGUSR2, SIG_IGN); /* until the run can act on it */
    enum status rc = launch_words_take(&argc, argv, &call.words, &err);
    asked = call.words.ranks;
    const bool help = asks_help(argc, argv);
    const struct exec_command *const command = argc > 1 ? find_command(argv[1]) : NULL;
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return print_version(argc, argv);
    if (!command) {
        print_usage(help ? stdout : stderr);
        return help ? 0 : status_exit_code(ERR_INPUT);
    }
    call.argc = argc - 1;
    call.argv = argv + 1;
    alarm(command->limit_s); /* a rank that is never answered must not wait for ever */
    if (rc == OK && command->ranks && !help && !call.words.check)
        rc = meet(&argc, &argv, &call, &comm, &err);
    const bool met = rc == OK;
    THEN(command->run(command, &call, &err));
    if (met && (fflush(stdout) != 0 || ferror(stdout)) && rc == OK)
        rc = err_set(&err, ERR_SYSTEM, "cannot write to standard output");
    if (rc != OK && (met ? exec_speaks(&call) : asked > 0 || starter_speaks()))
        report(&err);
    if (call.comm)
        comm_finalize(&comm);
    return rc == OK && call.stopped_by > 0 && asked == 0 ? EXIT_SIGNALLED + call.stopped_by
                                                         : exit_code(rc);
}
