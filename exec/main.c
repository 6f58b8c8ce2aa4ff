/* exec/main.c - elapse-exec: the commands that need MPI and BLAS. `elapse` starts it under mpirun;
 * under Slurm, `srun elapse-exec train job.json` is the same. Only rank 0 speaks, except to report
 * its own failure. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/base/ending.h"
#include "exec/comm/watchdog.h"
#include "exec/device/device_info.h"
#include "exec/device/devices.h"
#include "exec/device/doctor.h"
#include "exec/measure/profile_request.h"
#include "exec/serve/generate_request.h"
#include "exec/serve/predict_request.h"
#include "exec/run/report.h"
#include "exec/run/resume.h"
#include "exec/trainer/train_plan.h"
#include "exec/run/trainer_run.h"
#include "exec/weights/adapter_files.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/export.h"
#include "partition/base/options.h"
#include "partition/base/units.h"
#include "profiles/base/clock.h"
#include "profiles/base/safe_output.h"
#include "profiles/json/build_facts.h"
#include "profiles/json/fields.h"
#include "profiles/job/job_json.h"
#include "profiles/store/store.h"

#define HELP_MAX 16384     /* bytes */
#define TRACE_STEPS 16     /* steps of which every op goes into the record, by default */
#define MAX_THREADS 1024   /* of a rank */
#define EXIT_SIGNALLED 128 /* and the signal, as shells do */
#define QUICK_NS ((int64_t)46000000000) /* of `profile --quick`; start and end come on top */
#define PING_S 30                       /* that a ping may take with the start of MPI */
#define OTHERS_US 300000 /* that a rank gives rank 0 to report what both have found */

static const char *restarted; /* by `elapse --max-restarts`: "KIND: REASON"; NULL: it is not */
static const char *call_name; /* of all starts of one `elapse train --max-restarts`; NULL: none */
static const char *losses; /* by `elapse --plan-losses`: "STEP:RANK:STEP" (losses.h); NULL: none */
static int64_t ended_ns; /* when `elapse` saw the ranks of the start before end; 0: no such start */
static int64_t ready_ns; /* when MPI knew the ranks */
static int64_t asked;    /* ranks, where `elapse` has started this one; else 0 */
static bool checking;    /* what can be refused without MPI is; nothing else is done */
static int stopped_by;   /* the signal that ended the run early; 0: none */

/* The input of a command: its ranks, its arguments. */
struct call {
    struct comm *comm; /* NULL for commands that take no ranks */
    int argc;
    char **argv;
};

struct exec_command {
    const char *name, *args, *summary;
    int num_needed; /* arguments */
    bool ranks;
    enum status (*run)(const struct exec_command *command, struct call *call, struct err *err);
};

static bool on_terminal(void)
{
    const char *tty = getenv("ELAPSE_TTY");
    return (tty && strcmp(tty, "1") == 0) || isatty(STDERR_FILENO);
}

static bool speaks(const struct call *call)
{
    return !call->comm || call->comm->rank == 0;
}

/* options_parse(), the usage on misuse, and the help on stdout where asked for. All positional
 * arguments are needed. */
static enum status parse(const struct exec_command *command, struct call *call,
                         struct command_line *line, struct err *err)
{
    enum status rc = options_parse(line, call->argc, call->argv, err);
    if (rc == OK && line->help) {
        char *text = malloc(HELP_MAX);
        if (!text)
            return err_nomem(err);
        if (line->rows)
            options_rows(line->options, line->num_options, text, HELP_MAX);
        else
            options_help(line->options, line->num_options, true, text, HELP_MAX);
        if (speaks(call) && !line->rows)
            printf("usage: elapse %s %s\n%s\n\n", command->name, command->args, command->summary);
        if (speaks(call))
            fputs(text, stdout);
        free(text);
        return OK;
    }
    if (rc == OK && line->num_positional < command->num_needed)
        rc = err_set(err, ERR_INPUT, "usage: elapse %s %s", command->name, command->args);
    if (rc != OK)
        err_hint(err, "'elapse %s --help' lists the options", command->name);
    return rc;
}

static struct json *answer_new(const char *command)
{
    struct json *root = json_object_new();
    json_add_int(root, "schema", 1);
    json_add_string(root, "version", ELAPSE_VERSION);
    json_add_string(root, "command", command);
    return root;
}

static enum status print_json(const struct json *json, struct err *err)
{
    return json_write(json, false, stdout, err);
}

static double number(const struct json *json, const char *key)
{
    const struct json *value = json_get(json, key);
    return value ? json_number(value) : 0;
}

/* The option that begins beside weights with the adapters of a folder. */
#define ADAPTER_OPTION(value)                                                                      \
    OPTION("adapter", STRING, value, "DIR",                                                        \
           "adapters beside the weights of a base: a folder of peft or of 'elapse export'")

/* --- train, eval ------------------------------------------------------------------------------ */

static void on_stop(int signal_number)
{
    trainer_stop(signal_number);
}

static void on_stop_measuring(int signal_number)
{
    if (stopped_by == 0 && signal_number != SIGUSR1)
        stopped_by = signal_number;
    measure_stop();
}

static void on_yield(int signal_number)
{
    (void)signal_number;
    trainer_yield();
}

static void catch_signals(void (*handler)(int))
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

static void catch_stop_signals(void)
{
    struct sigaction action = {.sa_flags = SA_RESTART};
    catch_signals(on_stop);
    action.sa_handler = on_yield;
    sigaction(SIGUSR2, &action, NULL);
}

/* Adapters of a folder lie beside a base that no run of ours trained. */
static enum status refuse_adapter(const struct job_ask *ask, struct err *err)
{
    err_set(err, ERR_INPUT,
            "--adapter %s needs the weights of its base: safetensors of transformers",
            ask->adapter);
    err_hint(err, "a run of its own: elapse export RUN -o BASE, and BASE in its place");
    return ERR_INPUT;
}

/* Choose the weights to begin with, and load the job, which is compared with the recorded one of
 * a run that goes on or is evaluated. Collective; all ranks agree on the status. */
static enum status begin(struct call *call, const char *from, struct job_ask *ask, bool recorded,
                         struct checkpoint_choice *weights, struct job *job, struct err *err)
{
    char *differences = NULL;
    enum status rc = from ? resume_choose(call->comm, from, weights, err) : OK;
    ask->checkpoint = rc == OK && recorded ? weights->dir : NULL;
    ask->weights_only = ask->evaluates && weights->foreign;
    if (rc == OK && ask->adapter && !weights->foreign)
        rc = refuse_adapter(ask, err);
    THEN(resume_job(ask, job, &differences, err));
    if (call->comm->rank == 0)
        report_start(weights->note, job->model.note, differences, stderr);
    free(differences);
    return comm_agree(call->comm, rc, err);
}

/* Check everything that can be refused before ranks are started: files that are not there, the job,
 * the number of ranks. from, db: NULL if they are not named. */
static enum status check_call(const char *from, const char *db, const struct job_ask *ask,
                              bool trains, struct err *err)
{
    struct stat st;
    struct store *store = NULL;
    struct job job = {0};
    char *differences = NULL;
    enum status rc = OK;
    if (from && stat(from, &st) != 0)
        rc = err_set(err, ERR_SYSTEM, "cannot open '%s': %s", from, strerror(errno));
    else if (from)
        rc = adapter_files_refuse(from, err);
    if (rc == OK && ask->path)
        rc = resume_job(ask, &job, &differences, err);
    if (rc == OK && ask->path && trains)
        rc = train_plan_check(&job, (int)asked, err);
    if (rc == OK && db)
        rc = store_open(db, STORE_READ, &store, err);
    store_close(store);
    job_clear(&job);
    free(differences);
    return rc;
}

/* Divide the cores among the ranks. Collective. */
static enum status bind(const struct call *call, int threads, struct cores *cores, struct err *err)
{
    const struct comm *comm = call->comm;
    return comm_agree(comm, cores_bind(comm->local_rank, comm->local_size, threads, cores, err),
                      err);
}

/* After a signal: which one, for all ranks, and on rank 0 how to go on. timing: a run of which
 * nothing is kept. */
static enum status report_run_stop(const struct call *call, const struct json *summary, bool timing,
                                   struct err *err)
{
    int64_t number_of = trainer_stop_signal();
    enum status rc = comm_max_i64(call->comm->all, &number_of, 1, err);
    stopped_by = (int)number_of;
    if (rc != OK || timing || call->comm->rank != 0 || !json_true(json_get(summary, "interrupted")))
        return rc;
    if (asked > 0 && json_true(json_get(summary, "yielded"))) /* `elapse` says that it goes on */
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
        OPTION("set", LIST, &set, "a.b=v", "override a value of the job file (repeatable)"),
        OPTION("device", STRING, &ask.device, "KIND", "%s (default: train.device of the job)",
               .values = "cpu cuda"),
        OPTION(
            "steps", INT, &options.max_steps, "N",
            "stop after N steps of this call, restarts included (default: at the end of the job)",
            .min = 1, .max = INT64_MAX),
        OPTION("threads", INT, &threads, "N",
               "threads a rank (default: its share of the cores at hand)", .min = 1,
               .max = MAX_THREADS),
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
    struct command_line line = COMMAND_LINE(table, 1);
    enum status rc = parse(command, call, &line, err);
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
    options.log.mode = quiet                                      ? RUN_LOG_QUIET
                       : on_terminal() && !verbose && !every_seen ? RUN_LOG_TERMINAL
                                                                  : RUN_LOG_LINES;
    if (verbose)
        options.log.every_ns = 0;
    if (checking)
        return check_call(options.resume ? options.resume : options.init, options.db, &ask, true,
                          err);
    rc = begin(call, options.resume ? options.resume : options.init, &ask, options.resume != NULL,
               &weights, &job, err);
    options.run = weights.run;
    if (options.resume)
        options.resume = weights.dir;
    else if (options.init)
        options.init = weights.dir;
    THEN(bind(call, (int)threads, &cores, err));
    if (rc == OK) {
        options.heeds_signals = catch_stop_signals;
        options.measure = no_measure ? NULL : profile_for_run;
        options.call = call_name;
        options.restarted = restarted;
        options.ended_ns = ended_ns;
        options.ready_ns = ready_ns;
        if (losses)
            read_losses(losses, call->comm->rank, &options);
        if (restarted)
            train_plan_fit(&job, call->comm->size);
        rc = trainer_run(call->comm, &cores, &job, &options, &summary, err);
    }
    THEN(report_run_stop(call, summary, no_eval, err));
    if (rc == OK && call->comm->rank == 0) {
        if (!quiet)
            report_notes(summary, no_eval, stderr);
        if (json)
            rc = print_json(summary, err);
        else
            report_train(summary, stdout);
    }
    json_free(summary);
    job_clear(&job);
    checkpoint_choice_clear(&weights);
    return rc;
}

static enum status run_eval(const struct exec_command *command, struct call *call, struct err *err)
{
    struct option_list set = {0};
    int64_t threads = 0;
    bool json = false;
    const char *db = NULL;
    struct job_ask ask = {.set = &set, .evaluates = true};
    const struct option table[] = {
        ADAPTER_OPTION(&ask.adapter),
        OPTION("set", LIST, &set, "a.b=v", "override a value of the job (repeatable)"),
        OPTION("device", STRING, &ask.device, "KIND", "%s (default: train.device of the job)",
               .values = "cpu cuda"),
        OPTION("threads", INT, &threads, "N",
               "threads a rank (default: its share of the cores at hand)", .min = 1,
               .max = MAX_THREADS),
        OPTION("db", STRING, &db, "FILE", "profile store to plan from"),
        OPTION("json", FLAG, &json, NULL, "print one JSON object"),
    };
    struct job job = {0};
    struct cores cores;
    struct json *summary = NULL;
    struct checkpoint_choice weights = {0};
    struct command_line line = COMMAND_LINE(table, 2);
    enum status rc = parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    ask.path = line.positional[1];
    if (checking)
        return check_call(line.positional[0], db, &ask, false, err);
    rc = begin(call, line.positional[0], &ask, true, &weights, &job, err);
    THEN(bind(call, (int)threads, &cores, err));
    const struct trainer_options options = {.init = weights.dir, .adapter = ask.adapter, .db = db};
    THEN(trainer_eval(call->comm, &cores, &job, &options, &summary, err));
    if (rc == ERR_INPUT && ask.path && !weights.foreign && !err->hint[0])
        err_hint(err, "without JOB, the job that the run recorded is evaluated");
    if (rc == OK && call->comm->rank == 0) {
        if (json) {
            rc = print_json(summary, err);
        } else {
            printf("accuracy %.2f %%, loss %.4f over %.0f test samples\n",
                   100 * number(summary, "eval_accuracy"), number(summary, "eval_loss"),
                   number(summary, "eval_samples"));
            report_scores(summary, stdout);
        }
    }
    json_free(summary);
    job_clear(&job);
    checkpoint_choice_clear(&weights);
    return rc;
}

/* --- export ----------------------------------------------------------------------------------- */

static enum status run_export(const struct exec_command *command, struct call *call,
                              struct err *err)
{
    const char *out = NULL;
    bool json = false, merged = false;
    const struct option table[] = {
        OPTION("o", STRING, &out, "PATH",
               "FILE.safetensors, with config.json beside it, or a folder for from_pretrained() "
               "of transformers, or adapters for peft"),
        OPTION("merged", FLAG, &merged, NULL,
               "add adapters to the weights beside which they trained"),
        OPTION("json", FLAG, &json, NULL, "print one JSON object"),
    };
    struct checkpoint_choice choice = {0};
    struct export_answer answer = {0};
    struct command_line line = COMMAND_LINE(table, 1);
    enum status rc = parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    if (!out)
        return err_set(err, ERR_INPUT, "-o PATH is missing");
    rc = checkpoint_choose(NULL, line.positional[0], &choice, err);
    THEN(checkpoint_export(choice.dir, out, merged ? EXPORT_MERGED : EXPORT_AS_TRAINED, &answer,
                           err));
    if (choice.note[0])
        fprintf(stderr, "note: %s\n", choice.note);
    if (answer.note[0])
        fprintf(stderr, "note: %s\n", answer.note);
    if (rc == OK && json) {
        struct json *root = answer_new("export");
        json_add_string(root, "checkpoint", choice.dir);
        json_add_string(root, "out", out);
        json_add_int(root, "tensors", answer.num_tensors);
        json_add_copy(root, "files", answer.files);
        if (answer.note[0])
            json_add_string(root, "note", answer.note);
        rc = print_json(root, err);
        json_free(root);
    } else if (rc == OK && strcmp(out, "/dev/stdout") != 0) {
        const struct json *file = json_first(answer.files);
        printf("wrote %s to %s\n", COUNT_TEXT(answer.num_tensors, "tensor"), json_string(file));
        while ((file = json_next(file)))
            printf("wrote %s\n", json_string(file));
    }
    export_answer_clear(&answer);
    checkpoint_choice_clear(&choice);
    return rc;
}

/* --- generate --------------------------------------------------------------------------------- */

static enum status run_generate(const struct exec_command *command, struct call *call,
                                struct err *err)
{
    struct generate_request q = {
        .max_tokens = 128, .seed = 1, .rule = {.temperature = 1.0, .top_p = 1.0}
    };
    const struct option table[] = {
        OPTION("prompt", STRING, &q.prompt, "TEXT", "what the text begins with"),
        ADAPTER_OPTION(&q.adapter),
        OPTION("max-tokens", INT, &q.max_tokens, "N", "tokens at most (default 128)", .min = 1,
               .max = 1 << 24),
        OPTION("temperature", RATIO, &q.rule.temperature, "X",
               "divides the logits; 0: always the likeliest token (default 1)"),
        OPTION("top-k", INT, &q.rule.top_k, "N", "of the N likeliest tokens (default: of all)",
               .min = 1, .max = INT32_MAX),
        OPTION("top-p", RATIO, &q.rule.top_p, "P",
               "of the likeliest tokens that together have probability P (default 1)"),
        OPTION("seed", INT, &q.seed, "N", "of the draws (default 1)", .max = INT64_MAX),
        OPTION("stop", LIST, &q.stops, "TEXT", "end in front of TEXT (repeatable)"),
        OPTION("vocab", STRING, &q.vocab, "FILE",
               "tokenizer.json or vocab.json (default: the run's, or the one beside the weights)"),
        OPTION("threads", INT, &q.threads, "N", "threads (default: the cores at hand)", .min = 1,
               .max = MAX_THREADS),
        OPTION("json", FLAG, &q.json, NULL,
               "print one JSON object at the end: text, tokens, their log-probabilities, times"),
    };
    struct command_line line = COMMAND_LINE(table, 1);
    enum status rc = parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    if (!q.prompt)
        return err_set(err, ERR_INPUT, "--prompt TEXT is missing");
    if (q.rule.top_p <= 0.0 || q.rule.top_p > 1.0)
        return err_set(err, ERR_INPUT, "--top-p must be above 0 and at most 1, got %g",
                       q.rule.top_p);
    if (q.rule.temperature < 0.0)
        return err_set(err, ERR_INPUT, "--temperature must be at least 0, got %g",
                       q.rule.temperature);
    for (int i = 0; i < q.stops.count; i++)
        if (!*q.stops.items[i])
            return err_set(err, ERR_INPUT, "--stop must not be empty");
    q.from = line.positional[0];
    return generate_request_run(&q, err);
}

/* --- predict ---------------------------------------------------------------------------------- */

static enum status run_predict(const struct exec_command *command, struct call *call,
                               struct err *err)
{
    struct option_list set = {0}, texts = {0}, pairs = {0};
    struct predict_request q = {
        .inputs = {.texts = &texts, .pairs = &pairs}
    };
    struct job_ask ask = {.set = &set, .evaluates = true};
    bool csv = false, json = false;
    int64_t threads = 0;
    const struct option table[] = {
        OPTION("text", LIST, &texts, "TEXT", "a text to classify (repeatable)"),
        OPTION("text-pair", LIST, &pairs, "TEXT", "the second text of each --text"),
        OPTION("top", INT, &q.top, "N", "print the N likeliest classes (default: all)", .min = 1,
               .max = INT32_MAX),
        OPTION("csv", FLAG, &csv, NULL, "print CSV with a header"),
        OPTION("json", FLAG, &json, NULL, "print JSON lines, an object a sample"),
        OPTION("o", STRING, &q.out, "FILE", "write there; .csv and .jsonl choose the form"),
        OPTION("job", STRING, &ask.path, "JOB", "the job of weights that no run recorded"),
        ADAPTER_OPTION(&ask.adapter),
        OPTION("set", LIST, &set, "a.b=v", "override a value of the job (repeatable)"),
        OPTION("device", STRING, &ask.device, "KIND", "%s (default: train.device of the job)",
               .values = "cpu cuda"),
        OPTION("threads", INT, &threads, "N",
               "threads a rank (default: its share of the cores at hand)", .min = 1,
               .max = MAX_THREADS),
        OPTION("db", STRING, &q.db, "FILE", "profile store to plan from"),
    };
    struct job job = {0};
    struct cores cores;
    struct checkpoint_choice weights = {0};
    struct command_line line = COMMAND_LINE(table, POSITIONAL_MAX);
    enum status rc = parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    if (csv && json)
        return err_set(err, ERR_INPUT, "--csv and --json exclude each other");
    q.form = csv || (!json && path_ends(q.out, ".csv")) ? PREDICT_CSV
             : json || path_ends(q.out, ".jsonl")       ? PREDICT_JSON
                                                        : PREDICT_TEXT;
    q.inputs.paths = line.positional + 1;
    q.inputs.num_paths = line.num_positional - 1;
    if (checking) {
        for (int i = 0; i < q.inputs.num_paths; i++)
            if (access(q.inputs.paths[i], R_OK) != 0)
                return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", q.inputs.paths[i],
                               strerror(errno));
        return check_call(line.positional[0], q.db, &ask, false, err);
    }
    rc = begin(call, line.positional[0], &ask, true, &weights, &job, err);
    THEN(bind(call, (int)threads, &cores, err));
    q.weights = weights.dir;
    q.adapter = ask.adapter;
    THEN(predict_request_run(call->comm, &cores, &job, &q, err));
    job_clear(&job);
    checkpoint_choice_clear(&weights);
    return rc;
}

/* --- checkpoint ------------------------------------------------------------------------------- */

static enum status run_checkpoint(const struct exec_command *command, struct call *call,
                                  struct err *err)
{
    char *dir = NULL;
    bool json = false;
    const struct option table[] = {
        OPTION("json", FLAG, &json, NULL, "print one JSON object"),
    };
    struct command_line line = COMMAND_LINE(table, 2);
    enum status rc = parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    if (strcmp(line.positional[0], "verify") != 0)
        return err_set(err, ERR_INPUT, "checkpoint knows verify, not '%.64s'", line.positional[0]);
    rc = checkpoint_find(line.positional[1], &dir, err);
    if (rc != OK)
        return rc;
    struct json *root = answer_new("checkpoint verify");
    json_add_string(root, "checkpoint", dir);
    rc = checkpoint_verify(dir, root, err);
    const bool good = rc == OK && json_true(json_get(root, "ok"));
    if (rc == OK && json)
        rc = print_json(root, err);
    else if (rc == OK)
        report_verdicts(root, dir, stdout);
    if (rc == OK && !good)
        rc = err_set(err, ERR_INFEASIBLE, "'%s' is damaged", dir);
    json_free(root);
    free(dir);
    return rc;
}

/* --- profile ---------------------------------------------------------------------------------- */

static enum status run_profile(const struct exec_command *command, struct call *call,
                               struct err *err)
{
    struct profile_request q = {.model_text = "vit-tiny:image=32,patch=4,classes=10",
                                .device = "cpu",
                                .sizes_text = "1,2,4,8,16,32"};
    bool quiet = false, quick = false;
    const struct option table[] = {
        OPTION("model", STRING, &q.model_text, "MODEL",
               "whose sublayers to measure (default vit-tiny:image=32,patch=4,classes=10)"),
        OPTION("device", STRING, &q.device, "KIND", "%s (default cpu)", .values = "cpu cuda"),
        OPTION("microbatches", STRING, &q.sizes_text, "B,B,...",
               "micro-batch sizes in samples (default 1,2,4,8,16,32)"),
        OPTION("threads", INT, &q.threads, "N",
               "threads a rank (default: its share of the cores at hand)", .min = 1,
               .max = MAX_THREADS),
        OPTION("dropout", FLAG, &q.measure.dropout, NULL,
               "layers drop, as jobs with train.dropout train them"),
        OPTION("quick", FLAG, &quick, NULL,
               "fewer repeats, of which the fastest counts, within a minute"),
        OPTION("retune", FLAG, &q.measure.retune, NULL,
               "time the GPU libraries' algorithms again and replace the stored choices"),
        OPTION("quiet", FLAG, &quiet, NULL, "no progress on stderr"),
        OPTION("name", STRING, &q.name, "NAME", "of the profile (default: KIND-HOST)"),
        OPTION("db", STRING, &q.db, "FILE",
               "profile store (default: $ELAPSE_DB, else ~/.local/share/elapse)"),
        OPTION("json", FLAG, &q.json, NULL, "print one JSON object"),
    };
    struct command_line line = COMMAND_LINE(table, 0);
    enum status rc = parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    if (checking)
        return OK;
    q.measure.quick_ns = quick ? QUICK_NS : 0;
    q.measure.progress = quiet ? TICKER_QUIET : on_terminal() ? TICKER_TERMINAL : TICKER_LINES;
    catch_signals(on_stop_measuring);
    return profile_request_run(&q, call->comm, err);
}

/* --- facts, ping: for `elapse doctor` ---------------------------------------------------------- */

static enum status run_facts(const struct exec_command *command, struct call *call, struct err *err)
{
    struct command_line line = {0};
    enum status rc = parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    struct json *root = answer_new(command->name);
    if (call->comm)
        rc = doctor_ping(call->comm, root, err);
    else
        doctor_facts(root);
    if (rc == OK && speaks(call))
        rc = print_json(root, err);
    json_free(root);
    return rc;
}

/* --- main ------------------------------------------------------------------------------------- */

static const struct exec_command commands[] = {
    {"train",      "JOB [-n RANKS] [options]",
     "Train a job for real on RANKS processes; writes metrics, checkpoints and a record.",                                     0, true,
     run_train                                                                                                                                     },
    {"eval",       "CHECKPOINT [JOB] [-n RANKS] [options]",
     "Evaluate a checkpoint (or safetensors file) on the test data of JOB (default: the run's "
     "own).",                                                                                                                  1, true,  run_eval  },
    {"export",     "CHECKPOINT -o DIR|FILE.safetensors",
     "Write a checkpoint as a model of Hugging Face: safetensors, config.json, in DIR also the "
     "tokenizer.",                                                                                                             1, false, run_export},
    {"generate",   "CHECKPOINT --prompt TEXT [options]",
     "Write text that goes on where a prompt ends, by a run or a model of Hugging Face.",                                      1, false,
     run_generate                                                                                                                                  },
    {"predict",    "CHECKPOINT [FILE|DIR ...] [--text TEXT] [options]",
     "Classify pictures, texts or table rows by a run; without any, its test samples.",                                        1, true,
     run_predict                                                                                                                                   },
    {"checkpoint", "verify DIR",
     "Compare every file of a checkpoint with the digests of its manifest.",                                                   2, false,
     run_checkpoint                                                                                                                                },
    {"profile",    "[--model MODEL] [-n RANKS] [options]",
     "Measure layers, links and overheads of this machine into the profile store.",                                            0, true,
     run_profile                                                                                                                                   },
    {"facts",      "",                                                  "What libraries and GPUs say of themselves, as JSON.", 0, false, run_facts },
    {"ping",       "",                                                  "Latency and rate between ranks 0 and 1, as JSON.",    0, true,  run_facts },
};

static void report(const struct err *err)
{
    fprintf(stderr, "elapse: %s\n", err->msg);
    if (err->hint[0])
        fprintf(stderr, "hint: %s\n", err->hint);
}

/* A launcher of another MPI starts processes that do not know each other: each would train alone.
 */
static enum status check_launcher(const struct comm *comm, struct err *err)
{
    enum status rc = OK;
    if (asked > 0 && asked != comm->size) {
        rc = err_set(err, ERR_SYSTEM, "%s asked for, MPI knows %d", COUNT_TEXT(asked, "rank"),
                     comm->size);
        err_hint(err, "is mpirun another MPI's? ELAPSE_MPIRUN names the one of this program");
    }
    return rc;
}

/* The value of option `name` if it comes next; it is taken out of argv. Else NULL. */
static const char *take_next(const char *name, int *argc, char ***argv)
{
    if (*argc <= 2 || strcmp((*argv)[1], name) != 0)
        return NULL;
    const char *value = (*argv)[2];
    (*argv)[2] = (*argv)[0];
    *argv += 2;
    *argc -= 2;
    return value;
}

/* As `elapse` starts it: "-n RANKS [--check] [--call NAME] [--ended NS]
 * [--restarted WHY] [--losses TEXT]" before the command. */
static enum status take_asked(int *argc, char ***argv, struct err *err)
{
    const char *ranks = take_next("-n", argc, argv);
    enum status rc = ranks ? parse_int(ranks, "-n", 1, INT32_MAX, &asked, err) : OK;
    if (asked > 0 && *argc > 1 && strcmp((*argv)[1], "--check") == 0) {
        checking = true;
        (*argv)[1] = (*argv)[0];
        (*argv)++;
        (*argc)--;
    }
    if (asked > 0)
        call_name = take_next("--call", argc, argv);
    const char *ended = asked > 0 ? take_next("--ended", argc, argv) : NULL;
    if (rc == OK && ended)
        rc = parse_int(ended, "--ended", 0, INT64_MAX, &ended_ns, err);
    if (asked > 0)
        restarted = take_next("--restarted", argc, argv);
    if (asked > 0)
        losses = take_next("--losses", argc, argv);
    return rc;
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

static int print_version(int argc, char **argv)
{
    enum status rc = OK;
    struct err err = {0};
    if (argc == 3 && strcmp(argv[2], "--json") == 0) {
        struct json *root = answer_new("version");
        build_facts_to_json(root);
        rc = print_json(root, &err);
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

int main(int argc, char **argv)
{
    const struct exec_command *command = NULL;
    struct err err = {0};
    struct comm comm = {0};
    struct call call = {0};
    ending_prepare(argv);
    safe_output_begin(on_terminal());
    signal(SIGUSR2, SIG_IGN); /* until the run can act on it */
    enum status rc = take_asked(&argc, &argv, &err);
    bool help = false;
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            command = &commands[i];
    for (int i = 1; i < argc; i++)
        help |= strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--help=rows") == 0;
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return print_version(argc, argv);
    if (!command) {
        FILE *out = help ? stdout : stderr;
        fprintf(out, "usage: elapse-exec COMMAND [options]; mpirun -n RANKS in front\n");
        for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
            fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
        return help ? 0 : status_exit_code(ERR_INPUT);
    }
    call.argc = argc - 1;
    call.argv = argv + 1;
    if (command->run == run_facts && command->ranks)
        alarm(PING_S); /* a rank that is never answered must not wait for ever */
    if (rc == OK && command->ranks && !help && !checking) {
        rc = comm_init(&argc, &argv, &comm, &err);
        ready_ns = clock_wall_ns();
        if (rc == OK) {
            comm.fail = fail_alone;
            call.comm = &comm;
            rc = check_launcher(&comm, &err);
            THEN(watchdog_start(&comm, &err));
        }
    }
    if (rc != OK) {
        report(&err);
        if (call.comm)
            comm_finalize(&comm);
        return exit_code(rc);
    }
    rc = command->run(command, &call, &err);
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == OK)
        rc = err_set(&err, ERR_SYSTEM, "cannot write to standard output");
    if (rc != OK && speaks(&call))
        report(&err);
    if (call.comm)
        comm_finalize(&comm);
    return rc == OK && stopped_by > 0 && asked == 0 ? EXIT_SIGNALLED + stopped_by : exit_code(rc);
}
