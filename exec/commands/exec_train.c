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
    exec_catch_signals(on_stop);
}

/* Under --max-restarts, where `elapse` starts a run again that has yielded. */
static void catch_all_signals(void)
{
    struct sigaction action = {.sa_handler = on_yield, .sa_flags = SA_RESTART};
    catch_stop_signals();
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

/* The options of `train`, and what the command owns while the run lasts. */
struct train_call {
    struct option_list set;
    struct job_ask ask;
    struct trainer_options options;
    int64_t threads;
    bool json, no_eval, no_measure, every_seen, quiet, verbose;
    struct checkpoint_choice weights; /* of --resume or --init */
    char *db;                         /* owned: the store of the run that is resumed */
    int lock;                         /* rank 0: of the folder of a run that is resumed; else -1 */
};

static enum status check_options(const struct exec_command *command, const struct train_call *t,
                                 struct err *err)
{
    const struct trainer_options *o = &t->options;
    const enum status rc =
        OPTIONS_REFUSE(err, {o->resume && o->init, "--resume and --init exclude each other"},
                       {t->ask.adapter && !o->init, "--adapter needs --init BASE"},
                       {t->quiet && t->verbose, "--quiet and -v exclude each other"},
                       {t->quiet && t->every_seen, "--quiet and --log-every exclude each other"},
                       {t->ask.override && !o->resume, "--override needs --resume DIR"});
    if (rc == OK && !t->ask.path && !o->resume)
        return err_set(err, ERR_INPUT, "usage: elapse %s %s", command->name, command->args);
    return rc;
}

/* Hold the folder of the run, read the job and bind the rank to its cores. */
static enum status begin(struct train_call *t, struct call *call, struct job *job,
                         struct cores *cores, struct err *err)
{
    struct trainer_options *o = &t->options;
    const char *const from = o->resume ? o->resume : o->init;
    enum status rc = OK;
    if (o->resume && call->comm->rank == 0)
        rc = run_folder_hold(o->out ? o->out : o->resume, &t->lock, err);
    if (o->resume)
        rc = comm_agree(call->comm, rc, err);
    o->is_held = t->lock >= 0;
    THEN(exec_begin(call, from, &t->ask, o->resume != NULL, &t->weights, job, err));
    o->run = t->weights.run;
    if (o->resume)
        o->resume = t->weights.dir;
    else if (o->init)
        o->init = t->weights.dir;
    if (o->resume && !o->db)
        THEN(store_of_run(call->comm, o->resume, &t->db, err));
    if (!o->db)
        o->db = t->db;
    THEN(exec_bind(call, (int)t->threads, cores, err));
    return rc;
}

static enum status train(struct train_call *t, struct call *call, struct job *job,
                         const struct cores *cores, struct json **summary, struct err *err)
{
    struct trainer_options *o = &t->options;
    o->heeds_signals = call->words.call ? catch_all_signals : catch_stop_signals;
    o->measure = t->no_measure ? NULL : profile_for_run;
    o->call = call->words.call;
    o->restarted = call->words.restarted;
    o->ended_ns = call->words.ended_ns;
    o->ready_ns = call->ready_ns;
    if (call->words.losses)
        read_losses(call->words.losses, call->comm->rank, o);
    if (call->words.restarted)
        train_plan_fit(job, call->comm->size);
    return trainer_run(call->comm, cores, job, o, summary, err);
}

static enum status print(const struct train_call *t, const struct json *summary, struct err *err)
{
    if (!t->quiet)
        report_notes(summary, t->no_eval, stderr);
    if (t->json)
        return exec_print(summary, err);
    report_train(summary, stdout);
    return OK;
}

enum { OPTIONS_ROOM = 24 };

/* List the options. Returns how many there are. */
static int list_options(struct train_call *t, struct option options[OPTIONS_ROOM])
{
    struct trainer_options *const o = &t->options;
    const struct option rows[] = {
        OPTION("out", STRING, &o->out, "DIR", "run folder (default: runs/NAME)"),
        OPTION("resume", STRING, &o->resume, "DIR",
               "continue from a run folder or checkpoint, in the same folder unless --out"),
        OPTION("override", FLAG, &t->ask.override, NULL,
               "with --resume: the job may differ from the one that the run recorded"),
        OPTION("init", STRING, &o->init, "PATH",
               "start from these weights: a checkpoint, a safetensors file, a shard or an index of "
               "several, a folder with these"),
        ADAPTER_OPTION(&t->ask.adapter),
        OPTION("plan", STRING, &o->plan, "FILE",
               "the plan to train on, of 'elapse plan -o' (default: planned)"),
        SET_OPTION(&t->set),
        DEVICE_OPTION(&t->ask.device),
        OPTION(
            "steps", INT, &o->max_steps, "N",
            "stop after N steps of this call, restarts included (default: at the end of the job)",
            .min = 1, .max = INT64_MAX),
        THREADS_OPTION(&t->threads),
        OPTION("no-eval", FLAG, &t->no_eval, NULL,
               "no evaluation, no checkpoint, no notes on costs: timing runs"),
        OPTION("trace-steps", INT, &o->trace_steps, "N",
               "record every op of this many steps and of the last one (default 16)",
               .max = 1000000),
        OPTION("trace", STRING, &o->trace, "FILE", "trace of the recorded steps for Perfetto"),
        OPTION("tensorboard", STRING, &o->tensorboard, "DIR", "event file of TensorBoard"),
        OPTION("db", STRING, &o->db, "FILE", "profile store to plan from"),
        OPTION("no-measure", FLAG, &t->no_measure, NULL,
               "plan by what costs there are: a long run on processors without a profile of this "
               "machine is otherwise measured first, for about 5 s"),
        OPTION("log-every", NS, &o->log.every_ns, "TIME",
               "a line of progress every TIME in a log (default 10s; on a terminal one line that "
               "is overwritten)",
               .seen = &t->every_seen),
        OPTION("quiet", FLAG, &t->quiet, NULL, "no progress and no notes"),
        OPTION("v", FLAG, &t->verbose, NULL, "a line of progress for every step"),
        OPTION("json", FLAG, &t->json, NULL, "print the summary as one JSON object"),
    };
    return options_add(options, 0, rows, sizeof rows / sizeof *rows);
}

static enum status run_train(const struct exec_command *command, struct call *call, struct err *err)
{
    struct train_call t = {.lock = -1};
    struct trainer_options *const o = &t.options;
    t.ask.set = &t.set;
    o->log.every_ns = 10000000000;
    o->trace_steps = TRACE_STEPS;
    struct job job = {0};
    struct cores cores;
    struct json *summary = NULL;
    struct option options[OPTIONS_ROOM];
    struct command_line line = {.options = options, .max_positional = 1};
    line.num_options = list_options(&t, options);
    enum status rc = exec_parse(command, call, &line, err);
    t.ask.path = line.positional[0];
    if (rc != OK || line.help || (rc = check_options(command, &t, err)) != OK)
        return rc;
    o->adapter = t.ask.adapter;
    o->evaluate = !t.no_eval;
    o->log.mode = t.quiet                                             ? RUN_LOG_QUIET
                  : exec_on_terminal() && !t.verbose && !t.every_seen ? RUN_LOG_TERMINAL
                                                                      : RUN_LOG_LINES;
    if (t.verbose)
        o->log.every_ns = 0;
    if (call->words.check)
        return exec_check(call, o->resume ? o->resume : o->init, o->db, &t.ask, true, err);
    rc = begin(&t, call, &job, &cores, err);
    THEN(train(&t, call, &job, &cores, &summary, err));
    THEN(report_run_stop(call, summary, t.no_eval, err));
    if (call->comm->rank == 0)
        THEN(print(&t, summary, err));
    json_free(summary);
    job_clear(&job);
    checkpoint_choice_clear(&t.weights);
    free(t.db);
    if (t.lock >= 0)
        close(t.lock);
    return rc;
}

const struct exec_command exec_train = {
    .name = "train",
    .args = "JOB [-n RANKS] [options]",
    .summary = "Train a job for real on RANKS processes; writes metrics, checkpoints and a record.",
    .ranks = true,
    .run = run_train,
};
