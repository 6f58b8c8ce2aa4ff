/* cli/commands/cmd_exec.c - the commands train, profile, eval, export, generate, predict and
 * checkpoint: they start `elapse-exec` under mpirun with the wanted number of ranks and return its
 * exit code.
 *
 * Only "-n RANKS" and train's "--max-restarts N", "--min-ranks N" and "--plan-losses FILE" are
 * read here. Every other
 * argument belongs to elapse-exec. Under Slurm or another launcher, call it directly: `srun
 * elapse-exec train job.json`. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/base/command.h"
#include "cli/launch/launch.h"
#include "cli/launch/restarts.h"
#include "partition/base/options.h"

#define MAX_RESTARTS 1000
#define MAX_RANKS 4096 /* of one mpirun on one machine; more ranks need another launcher */

/* The options that are read here. */
struct front {
    int64_t num_ranks, max_restarts, min_ranks;
    const char *out, *resume; /* borrowed from argv: the run folder; NULL: not given */
    const char *losses;       /* a trace to replay; NULL: none */
    bool ranks_given;         /* by -n */
};

/* First the options of elapse-exec, which prints them itself, then the `num` of `own`. */
static enum status print_help(const struct command *command, const struct option *own, int num,
                              bool rows, int argc, char **argv, struct err *err)
{
    char text[1024];
    if (rows)
        command_heading(command, true);
    enum status rc = launch_exec(&(struct launch){0}, argc, argv, NULL, err);
    if (rc != OK)
        return rc;
    if (rows)
        options_rows(own, num, text, sizeof text);
    else
        options_help(own, num, false, text, sizeof text);
    printf("%s%s", num > 0 && !rows ? "\n" : "", text);
    return OK;
}

static enum status check_front(const struct front *front, bool train, struct err *err)
{
    const bool restarts = front->max_restarts > 0;
    const enum status rc = OPTIONS_REFUSE(
        err, {restarts && !front->out, "--max-restarts needs --out DIR"},
        {front->min_ranks > 1 && !restarts, "--min-ranks needs --max-restarts N"},
        {front->losses && !restarts, "--plan-losses needs --max-restarts N"},
        {front->losses && !launch_is_local(), "--plan-losses is for the ranks of one machine"});
    if (rc == OK && train && front->min_ranks > front->num_ranks)
        return err_set(err, ERR_INPUT, "--min-ranks must be at most -n, got %lld and %lld",
                       (long long)front->min_ranks, (long long)front->num_ranks);
    if (rc == OK && restarts && front->out == front->resume && access(front->resume, F_OK) == 0 &&
        restarts_newest_step(front->resume) < 0)
        return err_set(err, ERR_INPUT, "--max-restarts needs --out DIR, '%s' is not a run folder",
                       front->resume);
    return rc;
}

/* num_ranks: without -n; 0: the command starts none. */
static enum status run_front(const struct command *command, int num_ranks, int argc, char **argv,
                             struct err *err)
{
    const bool train = command == &command_train;
    struct front front = {.min_ranks = 1, .num_ranks = num_ranks};
    char ranks_help[96];
    snprintf(ranks_help, sizeof ranks_help, "processes (default %d%s)", num_ranks,
             train ? ", with --resume as many as the run had" : "");
    const struct option table[] = {
        OPTION("n", INT, &front.num_ranks, "RANKS", ranks_help, .min = 1, .max = MAX_RANKS,
               .seen = &front.ranks_given),
        OPTION(
            "max-restarts", INT, &front.max_restarts, "N",
            "continue from the last checkpoint when a rank or node is lost, with those left; with "
            "--out (default 0)",
            .max = MAX_RESTARTS),
        OPTION("min-ranks", INT, &front.min_ranks, "N",
               "but not with fewer ranks than N (default 1)", .min = 1, .max = MAX_RANKS),
        OPTION(
            "plan-losses", STRING, &front.losses, "FILE",
            "CSV of step,rank,lost|back: kill ranks of this run after these steps, and take them "
            "back, to see what losses cost; with --max-restarts"),
        OPTION("out", STRING, &front.out, "DIR", "of elapse-exec", .leave = true),
        OPTION("resume", STRING, &front.resume, "DIR", "of elapse-exec", .leave = true),
    };
    const int num_own = num_ranks == 0 ? 0 : train ? 4 : 1;
    struct command_line line = {.options = table, .num_options = train ? num_own + 2 : num_own};
    enum status rc = options_take(&line, &argc, argv, false, err);
    if (!front.out) /* a resumed run writes to the folder that it resumes */
        front.out = front.resume;
    if (rc == OK && train && front.resume && !front.ranks_given && !line.help) {
        const int64_t ranks = restarts_ranks(front.resume);
        front.num_ranks = ranks > 0 && ranks <= MAX_RANKS ? ranks : front.num_ranks;
    }
    THEN(check_front(&front, train, err));
    if (rc != OK) {
        err_hint(err, "'elapse %s --help' lists the options", command->name);
        return rc;
    }
    if (line.help)
        return print_help(command, table, num_own, line.rows, argc, argv, err);
    /* A refusal under mpirun takes its start and end: seconds. What one process can refuse, it
     * does. */
    if (front.num_ranks > 0 && launch_is_local())
        rc = launch_exec(&(struct launch){.check_ranks = front.num_ranks}, argc, argv, NULL, err);
    if (rc != OK)
        return rc;
    return restarts_run(&(struct restarts){.num_ranks = front.num_ranks,
                                           .max_restarts = front.max_restarts,
                                           .min_ranks = front.min_ranks,
                                           .out = front.out,
                                           .losses = front.losses},
                        argc, argv, err);
}

static enum status run_alone(const struct command *command, int argc, char **argv, struct err *err)
{
    return run_front(command, 0, argc, argv, err);
}

static enum status run_ranks(const struct command *command, int argc, char **argv, struct err *err)
{
    return run_front(command, 1, argc, argv, err);
}

/* Links are measured between two ranks. */
static enum status run_pair(const struct command *command, int argc, char **argv, struct err *err)
{
    return run_front(command, 2, argc, argv, err);
}

const struct command command_train = {
    "train", "JOB [-n RANKS] [--out DIR] [--resume DIR [--override]] [--max-restarts N] [...]",
    "train a job for real, on RANKS processes", "JOB", run_ranks};
const struct command command_profile = {"profile", "[--model MODEL] [-n RANKS] [--db FILE] [...]",
                                        "measure this machine into the profile store", "",
                                        run_pair};
const struct command command_eval = {"eval", "CHECKPOINT [JOB] [-n RANKS]",
                                     "evaluate a checkpoint on the job's test data", "PATH JOB",
                                     run_ranks};
const struct command command_export = {"export", "CHECKPOINT -o DIR|FILE.safetensors",
                                       "write a checkpoint as a model of Hugging Face", "DIR",
                                       run_alone};
const struct command command_checkpoint = {"checkpoint", "verify DIR",
                                           "compare a checkpoint's files with their digests",
                                           "verify DIR", run_alone};
/* wall: exec/serve */
const struct command command_predict = {
    "predict", "RUN|CHECKPOINT [FILE|DIR ...] [--text TEXT] [--top N] [-o FILE] [...]",
    "classify pictures, texts or table rows by a run", "PATH", run_ranks};
const struct command command_generate = {
    "generate", "RUN|CHECKPOINT|DIR --prompt TEXT [--temperature X] [--top-k N] [--top-p P] [...]",
    "write text after a prompt", "PATH", run_alone};
/* wall end */
