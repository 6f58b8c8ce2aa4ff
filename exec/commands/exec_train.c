/* exec/commands/exec_train.c - train a job on the ranks. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/owned_folder.h"
#include "exec/commands/exec_begin.h"
#include "exec/commands/exec_command.h"
#include "exec/measure/profile_request.h"
#include "exec/run/report.h"
#include "exec/run/trainer_run.h"
#include "exec/trainer/train_plan.h"

#define TRACE_STEPS 16 /* steps of which every op goes into the record, by default */

static void on_stop(int signal_number)
{
    trainer_stop(signal_number);
}

static void on_yield(int signal_number)
{
    (void)signal_number;
    trainer_yield();
}

static void catch_stop_signals(void)
{
    struct sigaction action = {.sa_flags = SA_RESTART};
    exec_catch_signals(on_stop);
    action.sa_handler = on_yield;
    sigaction(SIGUSR2, &action, NULL);
}

/* After a signal: which one, for all ranks, and on rank 0 how to resume. timing: a run of which
 * nothing is kept. */
static enum status report_run_stop(struct call *call, const struct json *summary, bool timing,
                                   struct err *err)
{
    int64_t number_of = trainer_stop_signal();
    enum status rc = comm_max_i64(call->comm->all, &number_of, 1, err);
    call->stopped_by = (int)number_of;
    if (rc != OK || timing || call->comm->rank != 0 || !json_true(json_get(summary, "interrupted")))
        return rc;
    /* `elapse` says that the run continues. */
    if (call->words.ranks > 0 && json_true(json_get(summary, "yielded")))
        return OK;
    report_stop(summary, call->comm->size, stderr);
    return OK;
}

/* "STEP:RANK:STEP": see losses_text() in cli/launch/losses.h. */
static void read_losses(const char *text, int rank, struct trainer_options *options)
{
    long long lose = -1, back = -1;
    int who = -1;
    if (sscanf(text, "%lld:%d:%lld", &lose, &who, &back) != 3)
        return;
    options->dies = lose >= 0 && who == rank;
    options->die_step = lose;
    options->yields = back >= 0;
    options->yield_step = back;
}

/* The store that a run was planned from, so that it keeps its plan. One that is gone is said. */
static enum status store_of_run(const struct comm *comm, const char *checkpoint, char **db,
                                struct err *err)
{
    const enum status rc = comm_agree(comm, checkpoint_store(checkpoint, db, err), err);
    if (rc != OK || !*db || access(*db, R_OK) == 0)
        return rc;
    if (comm->rank == 0)
        fprintf(stderr,
                "elapse: note: the run was planned from store '%s', which is gone; the default one "
                "is taken\n",
                *db);
    free(*db);
    *db = NULL;
    return OK;
}

static enum status run_train(const struct exec_command *command, struct call *call, struct err *err)
{
    struct option_list set = {0};
    int64_t threads = 0;
    bool json = false, no_eval = false, no_measure = false, every_seen = false, quiet = false,
         verbose = false;
    struct job_ask ask = {.set = &set};
    struct trainer_options options = {.log.every_ns = 10000000000, .trace_steps = TRACE_STEPS};
    const struct option table[] = {
        OPTION("out", STRING, &options.out, "DIR", "run folder (default: runs/NAME)"),
        OPTION("resume", STRING, &options.resume, "DIR",
               "continue from a run folder or checkpoint, in the same folder unless --out"),
        OPTION("override", FLAG, &ask.override, NULL,
               "with --resume: the job may differ from the one that the run recorded"),
        OPTION("init", STRING, &options.init, "PATH",
               "start from these weights: a checkpoint, a safetensors file, a shard or an index of "
               "several, a folder with these"),
        ADAPTER_OPTION(&ask.adapter),
        OPTION("plan", STRING, &options.plan, "FILE",
               "the plan to train on, of 'elapse plan -o' (default: planned)"),
        SET_OPTION(&set),
        DEVICE_OPTION(&ask.device),
        OPTION(
            "steps", INT, &options.max_steps, "N",
            "stop after N steps of this call, restarts included (default: at the end of the job)",
            .min = 1, .max = INT64_MAX),
        THREADS_OPTION(&threads),
        OPTION("no-eval", FLAG, &no_eval, NULL,
               "no evaluation, no checkpoint, no notes on costs: timing runs"),
        OPTION("trace-steps", INT, &options.trace_steps, "N",
               "record every op of this many steps and of the last one (default 16)",
               .max = 1000000),
        OPTION("trace", STRING, &options.trace, "FILE", "trace of the recorded steps for Perfetto"),
        OPTION("tensorboard", STRING, &options.tensorboard, "DIR", "event file of TensorBoard"),
        OPTION("db", STRING, &options.db, "FILE", "profile store to plan from"),
        OPTION("no-measure", FLAG, &no_measure, NULL,
               "plan by what costs there are: a long run on processors without a profile of this "
               "machine is otherwise measured first, for about 5 s"),
        OPTION("log-every", NS, &options.log.every_ns, "TIME",
               "a line of progress every TIME in a log (default 10s; on a terminal one line that "
               "is overwritten)",
               .seen = &every_seen),
        OPTION("quiet", FLAG, &quiet, NULL, "no progress and no notes"),
        OPTION("v", FLAG, &verbose, NULL, "a line of progress for every step"),
        OPTION("json", FLAG, &json, NULL, "print the summary as one JSON object"),
    };
    struct job job = {0};
    struct cores cores;
    struct json *summary = NULL;
    struct checkpoint_choice weights = {0};
    char *db = NULL;
    int lock = -1; /* rank 0: of the folder of a run that is resumed */
    struct command_line line = COMMAND_LINE(table, 1);
    enum status rc = exec_parse(command, call, &line, err);
    ask.path = line.positional[0];
    if (rc != OK || line.help)
        return rc;
    if (options.resume && options.init)
        return err_set(err, ERR_INPUT, "--resume and --init exclude each other");
    if (ask.adapter && !options.init)
        return err_set(err, ERR_INPUT, "--adapter needs --init BASE");
    options.adapter = ask.adapter;
    if (quiet && (verbose || every_seen))
        return err_set(err, ERR_INPUT, "--quiet and %s exclude each other",
                       verbose ? "-v" : "--log-every");
    if (ask.override && !options.resume)
        return err_set(err, ERR_INPUT, "--override needs --resume DIR");
    if (!ask.path && !options.resume)
        return err_set(err, ERR_INPUT, "usage: elapse %s %s", command->name, command->args);
    options.evaluate = !no_eval;
    options.log.mode = quiet                                           ? RUN_LOG_QUIET
                       : exec_on_terminal() && !verbose && !every_seen ? RUN_LOG_TERMINAL
                                                                       : RUN_LOG_LINES;
    if (verbose)
        options.log.every_ns = 0;
    if (call->words.check)
        return exec_check(call, options.resume ? options.resume : options.init, options.db, &ask,
                          true, err);
    if (options.resume && call->comm->rank == 0)
        rc = run_folder_hold(options.out ? options.out : options.resume, &lock, err);
    if (options.resume)
        rc = comm_agree(call->comm, rc, err);
    options.is_held = lock >= 0;
    if (rc == OK)
        rc = exec_begin(call, options.resume ? options.resume : options.init, &ask,
                        options.resume != NULL, &weights, &job, err);
    options.run = weights.run;
    if (options.resume)
        options.resume = weights.dir;
    else if (options.init)
        options.init = weights.dir;
    if (rc == OK && options.resume && !options.db)
        rc = store_of_run(call->comm, options.resume, &db, err);
    if (!options.db)
        options.db = db;
    THEN(exec_bind(call, (int)threads, &cores, err));
    if (rc == OK) {
        options.heeds_signals = catch_stop_signals;
        options.measure = no_measure ? NULL : profile_for_run;
        options.call = call->words.call;
        options.restarted = call->words.restarted;
        options.ended_ns = call->words.ended_ns;
        options.ready_ns = call->ready_ns;
        if (call->words.losses)
            read_losses(call->words.losses, call->comm->rank, &options);
        if (call->words.restarted)
            train_plan_fit(&job, call->comm->size);
        rc = trainer_run(call->comm, &cores, &job, &options, &summary, err);
    }
    THEN(report_run_stop(call, summary, no_eval, err));
    if (rc == OK && call->comm->rank == 0) {
        if (!quiet)
            report_notes(summary, no_eval, stderr);
        if (json)
            rc = exec_print(summary, err);
        else
            report_train(summary, stdout);
    }
    json_free(summary);
    job_clear(&job);
    checkpoint_choice_clear(&weights);
    free(db);
    if (lock >= 0)
        close(lock);
    return rc;
}

const struct exec_command exec_train = {
    .name = "train",
    .args = "JOB [-n RANKS] [options]",
    .summary = "Train a job for real on RANKS processes; writes metrics, checkpoints and a record.",
    .ranks = true,
    .run = run_train,
};
