/* cli/commands/cmd_exec.c - the commands train, profile, eval, export, generate, predict and
 * checkpoint: they start `elapse-exec` under mpirun with the wanted number of ranks and return its
 * exit code.
 *
 * Only "-n RANKS" and train's "--max-restarts N", "--min-ranks N" and "--plan-losses FILE" are
 * read here. Every other
 * argument belongs to elapse-exec. Under Slurm or another launcher, call it directly: `srun
 * elapse-exec train job.json`. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command.h"
#include "cli/launch/launch.h"
#include "cli/launch/restarts.h"
#include "partition/base/synonyms.h"
#include "partition/base/units.h"

#define MAX_RESTARTS 1000
#define MAX_RANKS 4096 /* of one mpirun on one machine; more ranks need another launcher */

/* The options that are read here. */
struct front {
    int64_t num_ranks, max_restarts, min_ranks;
    const char *out, *resume; /* borrowed from argv: the run folder; NULL: not given */
    const char *losses;       /* a trace to replay; NULL: none */
    bool help, rows;          /* rows: --help=rows */
    bool ranks_given;         /* by -n */
};

/* Read option `name`, whose value is `value_name`, at argv[*i]. *taken tells whether argv[*i] was
 * that option. *text must be NULL before the first one. */
static enum status take_text(int argc, char **argv, int *i, const char *name,
                             const char *value_name, const char **text, bool *taken,
                             struct err *err)
{
    const size_t len = strlen(name);
    const char *arg = argv[*i], *value;
    *taken =
        strcmp(arg, name) == 0 || (strncmp(arg, name, len) == 0 && (arg[len] == '=' || len == 2));
    if (!*taken)
        return OK;
    if (arg[len])
        value = arg + len + (arg[len] == '=');
    else if (*i + 1 < argc)
        value = argv[++*i];
    else
        return err_set(err, ERR_INPUT, "%s needs a value (%s)", name, value_name);
    if (*text)
        return err_set(err, ERR_INPUT, "%s given twice", name);
    *text = value;
    return OK;
}

/* Like take_text(), for a number. *text is where it was read from. */
static enum status take_one(int argc, char **argv, int *i, const char *name, int64_t min,
                            int64_t max, const char **text, int64_t *value, bool *taken,
                            struct err *err)
{
    const enum status rc = take_text(argc, argv, i, name, "N", text, taken, err);
    return rc == OK && *taken ? parse_int(*text, name, min, max, value, err) : rc;
}

/* Refuse an option that another launcher has for the number of ranks: "-np" is not "-n p". */
static enum status refuse_synonym_of_n(const char *arg, struct err *err)
{
    char word[64];
    const char *bare = arg + strspn(arg, "-"), *ours;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(bare, "="), bare);
    ours = bare > arg ? synonym_option(word) : NULL;
    if (!ours || strcmp(ours, "n") != 0)
        return OK;
    const enum status rc =
        err_set(err, ERR_INPUT, "unknown option '%.*s%s'", (int)(bare - arg), arg, word);
    err_hint(err, "use -n");
    return rc;
}

/* Remove these options from argv (-n only if the command has ranks). The others keep their order.
 */
static enum status take_options(int *argc, char **argv, bool train, struct front *front,
                                struct err *err)
{
    int kept = 0;
    const bool ranks = front->num_ranks > 0;
    const char *n = NULL, *restarts = NULL, *min = NULL;
    bool taken;
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            while (i < *argc)
                argv[kept++] = argv[i++];
            break;
        }
        enum status rc = OK;
        taken = false;
        if (ranks)
            rc = refuse_synonym_of_n(argv[i], err);
        if (rc == OK && ranks)
            rc = take_one(*argc, argv, &i, "-n", 1, MAX_RANKS, &n, &front->num_ranks, &taken, err);
        if (rc == OK && !taken && train)
            rc = take_one(*argc, argv, &i, "--max-restarts", 0, MAX_RESTARTS, &restarts,
                          &front->max_restarts, &taken, err);
        if (rc == OK && !taken && train)
            rc = take_one(*argc, argv, &i, "--min-ranks", 1, MAX_RANKS, &min, &front->min_ranks,
                          &taken, err);
        if (rc == OK && !taken && train)
            rc = take_text(*argc, argv, &i, "--plan-losses", "FILE", &front->losses, &taken, err);
        if (rc != OK)
            return rc;
        if (taken)
            continue;
        front->rows |= strcmp(argv[i], "--help=rows") == 0;
        front->help |= front->rows || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        if (strcmp(argv[i], "--out") == 0)
            front->out = argv[i + 1];
        else if (strcmp(argv[i], "--resume") == 0)
            front->resume = argv[i + 1];
        else if (strncmp(argv[i], "--out=", 6) == 0)
            front->out = argv[i] + 6;
        else if (strncmp(argv[i], "--resume=", 9) == 0)
            front->resume = argv[i] + 9;
        argv[kept++] = argv[i];
    }
    argv[kept] = NULL;
    *argc = kept;
    front->ranks_given = n != NULL;
    return OK;
}

/* First the options of elapse-exec, which prints them itself, then those read here. */
static enum status print_help(const struct command *command, const struct front *front, int argc,
                              char **argv, struct err *err)
{
    char text[1024], ranks[96];
    snprintf(ranks, sizeof ranks, "processes (default %lld%s)", (long long)front->num_ranks,
             command == &command_train ? ", with --resume as many as the run had" : "");
    const struct option own[] = {
        OPTION("n", INT, NULL, "RANKS", ranks),
        OPTION(
            "max-restarts", INT, NULL, "N",
            "continue from the last checkpoint when a rank or node is lost, with those left; with "
            "--out (default 0)"),
        OPTION("min-ranks", INT, NULL, "N", "but not with fewer ranks than N (default 1)"),
        OPTION(
            "plan-losses", STRING, NULL, "FILE",
            "CSV of step,rank,lost|back: kill ranks of this run after these steps, and take them "
            "back, to see what losses cost; with --max-restarts"),
    };
    const int num_own = front->num_ranks == 0 ? 0 : command == &command_train ? 4 : 1;
    if (front->rows)
        command_heading(command, true);
    enum status rc = launch_exec(&(struct launch){0}, argc, argv, NULL, err);
    if (rc != OK)
        return rc;
    if (front->rows)
        options_rows(own, num_own, text, sizeof text);
    else
        options_help(own, num_own, false, text, sizeof text);
    printf("%s%s", num_own > 0 && !front->rows ? "\n" : "", text);
    return OK;
}

/* num_ranks: without -n; 0: the command starts none. */
static enum status run_front(const struct command *command, int num_ranks, int argc, char **argv,
                             struct err *err)
{
    bool train = command == &command_train;
    struct front front = {.min_ranks = 1, .num_ranks = num_ranks};
    enum status rc = take_options(&argc, argv, train, &front, err);
    if (!front.out) /* a resumed run writes to the folder that it resumes */
        front.out = front.resume;
    if (rc == OK && train && front.resume && !front.ranks_given && !front.help) {
        const int64_t ranks = restarts_ranks(front.resume);
        front.num_ranks = ranks > 0 && ranks <= MAX_RANKS ? ranks : front.num_ranks;
    }
    if (rc == OK && front.max_restarts > 0 && !front.out)
        rc = err_set(err, ERR_INPUT, "--max-restarts needs --out DIR");
    if (rc == OK && front.min_ranks > 1 && front.max_restarts == 0)
        rc = err_set(err, ERR_INPUT, "--min-ranks needs --max-restarts N");
    if (rc == OK && train && front.min_ranks > front.num_ranks)
        rc = err_set(err, ERR_INPUT, "--min-ranks must be at most -n, got %lld and %lld",
                     (long long)front.min_ranks, (long long)front.num_ranks);
    if (rc == OK && front.losses && front.max_restarts == 0)
        rc = err_set(err, ERR_INPUT, "--plan-losses needs --max-restarts N");
    if (rc == OK && front.losses && !launch_is_local())
        rc = err_set(err, ERR_INPUT, "--plan-losses is for the ranks of one machine");
    if (rc == OK && front.max_restarts > 0 && front.out == front.resume &&
        access(front.resume, F_OK) == 0 && restarts_newest_step(front.resume) < 0)
        rc = err_set(err, ERR_INPUT, "--max-restarts needs --out DIR, '%s' is no run folder",
                     front.resume);
    if (rc != OK) {
        err_hint(err, "'elapse %s --help' lists the options", command->name);
        return rc;
    }
    if (front.help)
        return print_help(command, &front, argc, argv, err);
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
    "write text behind a prompt", "PATH", run_alone};
/* wall end */
