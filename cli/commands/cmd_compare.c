/* cli/commands/cmd_compare.c - `elapse compare`: a prediction beside a real run.
 *
 * A run folder is replayed: its plan is simulated with the profile of its machine, and step times
 * are compared (cli/runs/comparison.c). An elastic run is compared epoch by epoch
 * (cli/runs/elastic_compare.c). With --matrix the command first trains each entry of a matrix of
 * configurations (cli/runs/compare_matrix.c). Read run_compare() at the end first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/command.h"
#include "cli/runs/compare_matrix.h"
#include "cli/runs/comparison.h"
#include "cli/runs/elastic_compare.h"
#include "cli/runs/replay.h"
#include "cli/simulate/trace_file.h"
#include "partition/base/units.h"
#include "profiles/json/columns.h"

/* The cell of an error, "+1.2 %", or "noisy". */
static const char *error_cell(double error, bool noisy, char *buf, size_t size)
{
    snprintf(buf, size, noisy ? "noisy" : "%+.1f %%", 100 * error);
    return isfinite(error) ? buf : "-";
}

/* Ops or messages of one kind. */
struct timed {
    const char *name;
    struct message_times t;
    double error;
    bool noisy;
};

static const char *timed_error(const void *row, char *buf, size_t size)
{
    const struct timed *t = row;
    return error_cell(t->error, t->noisy, buf, size);
}

static const char *known_real(const void *row, char *buf, size_t size)
{
    const struct timed *t = row;
    return t->t.num_known > 0 ? format_ns(t->t.real_ns, buf, size) : "-";
}

static const char *known_sim(const void *row, char *buf, size_t size)
{
    const struct timed *t = row;
    return t->t.num_known > 0 ? format_ns(t->t.sim_ns, buf, size) : "-";
}

#define TIMED(type, name, member, ...) COLUMN(timed, name, type, member, __VA_ARGS__)
#define BOTH_TIMES(what)                                                                           \
    TIMED(STRING, what, name, SHOWN(what, -10)),                                                   \
        TIMED(INT, "count", t.count, SHOWN(" count", 6), .leaves = 11),                            \
        TIMED(INT, "real_ns", t.real_ns, SHOWN(" measured", 12), .text = known_real),              \
        TIMED(INT, "sim_ns", t.sim_ns, SHOWN(" simulated", 12), .text = known_sim),                \
        TIMED(REAL, "error", error, SHOWN(" error", 8), .text = timed_error)
static const struct row_table op_table = ROW_TABLE(timed, BOTH_TIMES("op"));
static const struct row_table message_table =
    ROW_TABLE(timed, BOTH_TIMES("message"),
              TIMED(INT, "compared", t.num_known, SHOWN(" compared", 9), .leaves = 10),
              TIMED(INT, "posting_ns", t.post_ns, SHOWN(" posting", 12), .leaves = 9));

/* Add a row to n others, if there are such ops. Returns how many there are then. */
static int add_timed(struct timed *rows, int n, const char *name, struct message_times t,
                     bool noisy)
{
    const double error = comparison_ratio((double)t.sim_ns, (double)t.real_ns) - 1;
    rows[n] = (struct timed){name, t, error, noisy};
    return n + (t.count > 0);
}

static int list_ops(const struct comparison *c, struct timed rows[OP_KIND_COUNT])
{
    int n = 0;
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        const struct kind_time *t = &c->kinds[k];
        const struct message_times times = {t->count, t->count, t->real_ns, t->sim_ns, 0};
        n = add_timed(rows, n, op_kind_name((enum op_kind)k), times, c->noisy);
    }
    return n;
}

static int list_messages(const struct comparison *c, struct timed rows[MESSAGE_KINDS])
{
    int n = add_timed(rows, 0, "activation", c->messages[MESSAGE_ACTIVATION], c->noisy);
    return add_timed(rows, n, "gradient", c->messages[MESSAGE_GRADIENT], c->noisy);
}

static const char *frozen_cell(const void *row, char *buf, size_t size)
{
    const struct comparison *c = row;
    (void)buf, (void)size;
    return c->num_frozen_layers ? frozen_placement_name(c->frozen) : "-";
}

static const char *step_error(const void *row, char *buf, size_t size)
{
    const struct comparison *c = row;
    return error_cell(c->error, c->noisy, buf, size);
}

#define CONFIG(type, name, member, ...) COLUMN(comparison, name, type, member, __VA_ARGS__)
static const struct row_table config_table = ROW_TABLE(
    comparison, CONFIG(INT, "pipeline_length", num_ranks, SHOWN("K", 3)),
    CONFIG(INT, "replicas", num_replicas, SHOWN(" R", 3)),
    CONFIG(INT, "microbatches", num_microbatches, SHOWN(" M", 4)), CONFIG(INT, "batch", batch),
    CONFIG(INT, "frozen_layers", num_frozen_layers, SHOWN(" F", 3), .leaves = 7),
    CONFIG(NAME, "frozen", frozen, SHOWN(" frozen", -7), .leaves = 6,
           .names = frozen_placement_names, .text = frozen_cell),
    CONFIG(NAME, "schedule", schedule, SHOWN(" schedule", -12), .leaves = 8,
           .names = schedule_names),
    CONFIG(NAME, "recompute", recompute, SHOWN(" recompute", -11), .leaves = 5,
           .names = recompute_mode_names),
    CONFIG(INT, "runs", num_runs), CONFIG(INT, "steps", num_steps),
    CONFIG(INT, "real_step_ns", real_step_ns, SHOWN(" measured", 12)),
    CONFIG(INT, "real_p10_ns", real_p10_ns, SHOWN(" p10", 12), .leaves = 3),
    CONFIG(REAL, "spread", spread, SHOWN(" spread", 8), .leaves = 4, .format = "%.1f %%",
           .scale = 100),
    CONFIG(REAL, "noise", noise), CONFIG(BOOL, "noisy", noisy),
    CONFIG(INT, "sim_step_ns", sim_step_ns, SHOWN(" simulated", 12)),
    CONFIG(REAL, "error", error, SHOWN(" error", 8), .text = step_error),
    CONFIG(REAL, "real_bubble_fraction", real_bubble),
    CONFIG(REAL, "sim_bubble_fraction", sim_bubble),
    CONFIG(INT, "real_peak_bytes", real_peak_bytes, SHOWN(" peak", 10), .leaves = 2,
           .flags = MEMBER_KNOWN),
    CONFIG(INT, "sim_peak_bytes", sim_peak_bytes, .flags = MEMBER_KNOWN),
    CONFIG(REAL, "peak_error", peak_error, SHOWN(" error", 8), .leaves = 1, .format = "%+.1f %%",
           .scale = 100),
    CONFIG(NAME, "cost_source", cost, .names = cost_source_names),
    CONFIG(TEXT, "cost_label", cost_label), CONFIG(BOOL, "extrapolated", extrapolated));

static struct json *answer_json(const struct command *command, const struct comparison *configs,
                                int n, const struct comparison_summary *s)
{
    struct json *root = command_json(command);
    struct json *list = json_add_array(root, "configs");
    struct timed rows[OP_KIND_COUNT];
    for (int i = 0; i < n; i++) {
        const struct comparison *c = &configs[i];
        struct json *config = json_add_object(list, NULL);
        row_to_json(config, &config_table, c);
        json_add_bool(config, "cached", c->frozen == FROZEN_CACHED);
        double low, high;
        if (comparison_interval(c, &low, &high)) {
            json_add_double(config, "error_low", low);
            json_add_double(config, "error_high", high);
            json_add_int(config, "parts", c->num_parts);
        }
        rows_to_json(config, "ops", &op_table, rows, list_ops(c, rows));
        rows_to_json(config, "messages", &message_table, rows, list_messages(c, rows));
    }
    json_add_double(root, "median_abs_error", s->median_abs_error);
    json_add_double(root, "worst_abs_error", s->worst_abs_error);
    json_add_double(root, "worst_spread", s->worst_spread);
    json_add_double(root, "noise_limit", s->noise_limit);
    json_add_int(root, "noisy_configs", s->num_noisy);
    json_add_double(root, "worst_abs_peak_error", s->worst_abs_peak_error);
    return root;
}

/* The kinds of op and of message of a single configuration. */
static void print_ops(const struct comparison *c)
{
    struct timed rows[OP_KIND_COUNT];
    printf("bubble: measured %.1f %%, simulated %.1f %%\n\n", 100 * c->real_bubble,
           100 * c->sim_bubble);
    rows_print(&op_table, rows, list_ops(c, rows));
    const int n = list_messages(c, rows);
    if (n == 0)
        return;
    printf("\nmessages whose receiver was waiting: median from send to arrival; posting: all "
           "messages\n");
    rows_print(&message_table, rows, n);
}

static void print_table(const struct comparison *configs, int n, const struct comparison_summary *s)
{
    printf("costs: %s\n", configs[0].cost_label);
    rows_print(&config_table, configs, n);
    if (n == 1)
        print_ops(&configs[0]);
    putchar('\n');
    if (s->num_noisy < n)
        printf("error of the step time: median %.1f %%, worst %.1f %%\n", 100 * s->median_abs_error,
               100 * s->worst_abs_error);
    double low, high;
    if (n == 1 && s->num_noisy == 0 && comparison_interval(&configs[0], &low, &high))
        printf("error of this run: %+.1f %%; of its %d parts by themselves %+.1f to %+.1f %%\n",
               100 * configs[0].error, configs[0].num_parts, 100 * low, 100 * high);
    if (s->num_noisy > 0)
        printf(
            "%d of %d configurations too noisy to judge: their step time is not known within %.0f "
            "%%\n",
            s->num_noisy, n, 100 * s->noise_limit);
    if (isfinite(s->worst_abs_peak_error))
        printf("error of the peak memory: worst %.1f %%\n", 100 * s->worst_abs_peak_error);
}

/* Print the answer, notes about noise, and judge by the tolerance (NaN: no tolerance). */
static enum status finish(const struct command *command, struct comparison *configs, int n,
                          double tolerance, bool json, struct err *err)
{
    struct comparison_summary s = comparison_summarize(configs, n, tolerance);
    enum status rc = OK;
    if (json)
        rc = command_answer(answer_json(command, configs, n, &s), err);
    else
        print_table(configs, n, &s);
    bool cache_unknown = false, extrapolated = false;
    for (int i = 0; i < n; i++) {
        cache_unknown = cache_unknown || configs[i].cache_unknown;
        extrapolated = extrapolated || configs[i].extrapolated;
    }
    comparison_print_notes(configs[0].note, configs[0].cost);
    if (cache_unknown)
        fprintf(stderr, "elapse: note: the profile has no host time for reads of the cache; "
                        "simulated as 0\n");
    if (extrapolated)
        fprintf(stderr, "elapse: note: sizes outside the measured ones: their times are "
                        "extrapolated\n");
    if (s.worst_spread > s.noise_limit)
        fprintf(stderr,
                "elapse: note: this machine is noisy: equal steps spread by up to %.0f %%\n",
                100 * s.worst_spread);
    if (rc == OK && !isnan(tolerance))
        rc = comparison_refuse(s.num_noisy == n, s.noise_limit, configs[0].other_host, err);
    if (rc == OK && !isnan(tolerance) && s.median_abs_error > tolerance)
        rc = err_set(err, ERR_INFEASIBLE, "error of the step time is %.1f %%, tolerance %.1f %%",
                     100 * s.median_abs_error, 100 * tolerance);
    return rc;
}

static enum status compare_matrix(const struct command *command, const struct matrix_ask *ask,
                                  double tolerance, bool json, struct err *err)
{
    int n = 0;
    struct comparison *configs = calloc(COMPARISONS_MAX, sizeof *configs);
    if (!configs)
        return err_nomem(err);
    enum status rc = matrix_run(ask, configs, &n, err);
    THEN(finish(command, configs, n, tolerance, json, err));
    free(configs);
    return rc;
}

/* The action on a run folder. */
struct run_ask {
    const char *run_dir, *db_path;
    const char *trace_path; /* NULL: none */
    double tolerance;       /* NaN: none */
    bool json;
};

static enum status compare_run(const struct command *command, const struct run_ask *ask,
                               struct err *err)
{
    struct replay replay = {0};
    struct comparison config = {0};
    enum status rc = replay_load(ask->run_dir, ask->db_path, &replay, err);
    if (rc == OK && ask->trace_path)
        rc = trace_both_file(ask->trace_path, ask->run_dir, &replay, err);
    if (rc == OK && elastic_compare_applies(&replay))
        rc = elastic_compare(command, ask->run_dir, &replay, ask->tolerance, ask->json, err);
    else if (rc == OK && (rc = comparison_add_run(&config, &replay, err)) == OK)
        rc = finish(command, &config, 1, ask->tolerance, ask->json, err);
    replay_clear(&replay);
    return rc;
}

/* Refuse values above 1 without a %, because 5 would mean 500 % and accept everything. */
static enum status parse_tolerance(const char *text, double *tolerance, struct err *err)
{
    enum status rc = parse_ratio(text, "--tolerance", tolerance, err);
    if (rc == OK && *tolerance > 1 && !strchr(text, '%')) {
        rc = err_set(err, ERR_INPUT, "--tolerance must be at most 1 without a %%, got '%s'", text);
        err_hint(err, "did you mean '--tolerance %s%%'?", text);
    }
    return rc;
}

/* The options of `compare`. */
struct compare_args {
    struct matrix_ask matrix; /* job is NULL without --matrix */
    const char *trace_path, *tolerance;
    bool json;
};

enum { NUM_OPTIONS = 17, FIRST_OF_MATRIX = 1, END_OF_MATRIX = 13, TRACE = 13 };

static void list_options(struct compare_args *args, struct option options[NUM_OPTIONS],
                         bool seen[NUM_OPTIONS])
{
    struct matrix_ask *m = &args->matrix;
    const struct option all[] = {
        OPTION("matrix", STRING, &m->job, "JOB", "run a matrix of configurations of a job"),
        OPTION("n", INT, &m->ranks, "RANKS", "--matrix: ranks (2)", .min = 1, .max = 4096),
        OPTION("stages", STRING, &m->stages, "K,...", "--matrix: pipeline lengths (1 and RANKS)"),
        OPTION("replicas", STRING, &m->replicas, "R,...", "--matrix: replicas (1 and RANKS)"),
        OPTION("microbatches", STRING, &m->microbatches, "M,...",
               "--matrix: micro-batches (2,4,8)"),
        OPTION("schedules", STRING, &m->schedules, "KIND,...", "--matrix: schedules (gpipe,1f1b)",
               .values = SCHEDULE_NAMES),
        OPTION("recompute", STRING, &m->recomputes, "MODE,...",
               "--matrix: recompute modes, of %s (never)", .names = recompute_mode_names),
        OPTION("frozen", STRING, &m->frozen, "F,...",
               "--matrix: layers frozen from the first epoch on"),
        OPTION("cache", STRING, &m->caches, "off,on",
               "--matrix: cache of frozen activations, if F > 0 (off)", .values = "off on"),
        OPTION("threads", INT, &m->threads, "N",
               "--matrix: threads per rank (its share of the cores)", .min = 1, .max = 1024),
        OPTION("steps", INT, &m->steps, "N",
               "--matrix: steps per run; the first 3 are warm-up (12)", .min = 4, .max = 10000),
        OPTION("repeats", INT, &m->repeats, "N", "--matrix: runs of each entry, interleaved (2)",
               .min = 1, .max = COMPARISON_RUNS_MAX),
        OPTION("set", LIST, &m->sets, "a.b=v", "--matrix: override a value of the job",
               .keys = &job_keys),
        OPTION("trace", STRING, &args->trace_path, "FILE",
               "simulated and measured step of RUN_DIR in one trace for Perfetto"),
        OPTION("db", STRING, &m->db_path, "FILE", "profile store (the run's own)"),
        OPTION("tolerance", STRING, &args->tolerance, "5%",
               "exit 1 if the median error is larger (no limit)"),
        OPTION_JSON(&args->json),
    };
    _Static_assert(sizeof all / sizeof *all == NUM_OPTIONS, "one place for each");
    memcpy(options, all, sizeof all);
    for (int i = 0; i < NUM_OPTIONS; i++)
        options[i].seen = &seen[i];
}

static enum status run_compare(const struct command *command, int argc, char **argv,
                               struct err *err)
{
    struct compare_args args = {
        .matrix = {.ranks = 2,
                   .steps = 12,
                   .repeats = 2,
                   .microbatches = "2,4,8",
                   .schedules = "gpipe,1f1b",
                   .recomputes = "never",
                   .caches = "off"}
    };
    struct option options[NUM_OPTIONS];
    bool seen[NUM_OPTIONS] = {false};
    const char *ways[NUM_OPTIONS] = {NULL}; /* the options from -n to --set need --matrix */
    for (int i = FIRST_OF_MATRIX; i < END_OF_MATRIX; i++)
        ways[i] = "--matrix";
    ways[TRACE] = "RUN_DIR";
    list_options(&args, options, seen);
    double tolerance = NAN;
    struct command_line line = COMMAND_LINE(options, 1);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    if (args.tolerance && (rc = parse_tolerance(args.tolerance, &tolerance, err)) != OK)
        return rc;
    const bool matrix = args.matrix.job != NULL;
    if ((line.num_positional == 1) == matrix)
        return err_set(err, ERR_INPUT, "compare needs either a RUN_DIR or --matrix JOB");
    rc = command_check_way(command, &line, ways, matrix ? "--matrix" : "RUN_DIR", err);
    if (rc != OK)
        return rc;
    if (matrix)
        return compare_matrix(command, &args.matrix, tolerance, args.json, err);
    return compare_run(command,
                       &(struct run_ask){line.positional[0], args.matrix.db_path, args.trace_path,
                                         tolerance, args.json},
                       err);
}

const struct command command_compare = {
    "compare", "RUN_DIR | --matrix JOB -n RANKS [--tolerance 5%]",
    "compare a simulation with the real run, or with a matrix of runs", "RUN_DIR", run_compare};
