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
#include "cli/runs/trace_file.h"
#include "partition/base/units.h"

static void add_kinds(struct json *config, const struct comparison *c)
{
    struct json *ops = json_add_array(config, "ops");
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        if (c->kinds[k].count == 0)
            continue;
        struct json *op = json_add_object(ops, NULL);
        json_add_string(op, "op", op_kind_name((enum op_kind)k));
        json_add_int(op, "count", c->kinds[k].count);
        json_add_int(op, "real_ns", c->kinds[k].real_ns);
        json_add_int(op, "sim_ns", c->kinds[k].sim_ns);
        json_add_double(op, "error",
                        comparison_ratio((double)c->kinds[k].sim_ns, (double)c->kinds[k].real_ns) -
                            1);
    }
}

static const char *const message_names[MESSAGE_KINDS] = {"activation", "gradient"};

static void add_messages(struct json *config, const struct comparison *c)
{
    struct json *messages = json_add_array(config, "messages");
    for (int k = 0; k < MESSAGE_KINDS; k++) {
        const struct message_times *t = &c->messages[k];
        if (t->count == 0)
            continue;
        struct json *one = json_add_object(messages, NULL);
        json_add_string(one, "message", message_names[k]);
        json_add_int(one, "count", t->count);
        json_add_int(one, "compared", t->num_known);
        json_add_int(one, "real_ns", t->real_ns);
        json_add_int(one, "sim_ns", t->sim_ns);
        json_add_double(one, "error", comparison_ratio((double)t->sim_ns, (double)t->real_ns) - 1);
        json_add_int(one, "posting_ns", t->post_ns);
    }
}

static void add_peak(struct json *config, const char *key, int64_t bytes)
{
    if (bytes > 0)
        json_add_int(config, key, bytes);
    else
        json_add_null(config, key); /* not known */
}

static struct json *answer_json(const struct command *command, const struct comparison *configs,
                                int n, const struct comparison_summary *s)
{
    struct json *root = command_json(command);
    struct json *list = json_add_array(root, "configs");
    for (int i = 0; i < n; i++) {
        const struct comparison *c = &configs[i];
        struct json *config = json_add_object(list, NULL);
        json_add_int(config, "pipeline_length", c->num_ranks);
        json_add_int(config, "replicas", c->num_replicas);
        json_add_int(config, "microbatches", c->num_microbatches);
        json_add_int(config, "batch", c->batch);
        json_add_string(config, "schedule", schedule_kind_name(c->schedule));
        json_add_string(config, "recompute", recompute_mode_name(c->recompute));
        json_add_int(config, "frozen_layers", c->num_frozen_layers);
        json_add_string(config, "frozen", frozen_placement_name(c->frozen));
        json_add_bool(config, "cached", c->frozen == FROZEN_CACHED);
        json_add_int(config, "runs", c->num_runs);
        json_add_int(config, "steps", c->num_steps);
        json_add_int(config, "real_step_ns", c->real_step_ns);
        json_add_int(config, "real_p10_ns", c->real_p10_ns);
        json_add_double(config, "spread", c->spread);
        json_add_double(config, "noise", c->noise);
        json_add_bool(config, "noisy", comparison_is_noisy(c, s->noise_limit));
        json_add_int(config, "sim_step_ns", c->sim_step_ns);
        json_add_double(config, "error", c->error);
        double low, high;
        if (comparison_interval(c, &low, &high)) {
            json_add_double(config, "error_low", low);
            json_add_double(config, "error_high", high);
            json_add_int(config, "parts", c->num_parts);
        }
        json_add_double(config, "real_bubble_fraction", c->real_bubble);
        json_add_double(config, "sim_bubble_fraction", c->sim_bubble);
        add_peak(config, "real_peak_bytes", c->real_peak_bytes);
        add_peak(config, "sim_peak_bytes", c->sim_peak_bytes);
        json_add_double(config, "peak_error", comparison_peak_error(c));
        json_add_string(config, "cost_source", cost_source_name(c->cost));
        json_add_string(config, "cost_label", c->cost_label);
        json_add_bool(config, "extrapolated", c->extrapolated);
        add_kinds(config, c);
        add_messages(config, c);
    }
    json_add_double(root, "median_abs_error", s->median_abs_error);
    json_add_double(root, "worst_abs_error", s->worst_abs_error);
    json_add_double(root, "worst_spread", s->worst_spread);
    json_add_double(root, "noise_limit", s->noise_limit);
    json_add_int(root, "noisy_configs", s->num_noisy);
    json_add_double(root, "worst_abs_peak_error", s->worst_abs_peak_error);
    return root;
}

/* Print "+1.2 %" in a column, "noisy", or nothing if the ratio is not known. */
static void print_error(double simulated, double measured, bool noisy)
{
    const double error = comparison_ratio(simulated, measured) - 1;
    if (isfinite(error) && noisy)
        printf(" %8s", "noisy");
    else if (isfinite(error))
        printf(" %+6.1f %%", 100 * error);
}

/* The kinds of op and of message of a single configuration. */
static void print_ops(const struct comparison *c, bool noisy)
{
    char real[32], sim[32], post[32];
    printf("bubble: measured %.1f %%, simulated %.1f %%\n\n", 100 * c->real_bubble,
           100 * c->sim_bubble);
    printf("%-10s %6s %12s %12s %8s\n", "op", "count", "measured", "simulated", "error");
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        if (c->kinds[k].count == 0)
            continue;
        printf("%-10s %6lld %12s %12s", op_kind_name((enum op_kind)k), (long long)c->kinds[k].count,
               format_ns(c->kinds[k].real_ns, real, sizeof real),
               format_ns(c->kinds[k].sim_ns, sim, sizeof sim));
        print_error((double)c->kinds[k].sim_ns, (double)c->kinds[k].real_ns, noisy);
        putchar('\n');
    }
    if (c->messages[MESSAGE_ACTIVATION].count + c->messages[MESSAGE_GRADIENT].count == 0)
        return;
    printf("\nmessages whose receiver was waiting: median from send to arrival; posting: all "
           "messages\n%-10s %6s %12s %12s %8s %9s %12s\n",
           "message", "count", "measured", "simulated", "error", "compared", "posting");
    for (int k = 0; k < MESSAGE_KINDS; k++) {
        const struct message_times *t = &c->messages[k];
        if (t->count == 0)
            continue;
        format_ns(t->post_ns, post, sizeof post);
        if (t->num_known == 0)
            printf("%-10s %6lld %12s %12s %8s", message_names[k], (long long)t->count, "-", "-",
                   "-");
        else
            printf("%-10s %6lld %12s %12s", message_names[k], (long long)t->count,
                   format_ns(t->real_ns, real, sizeof real), format_ns(t->sim_ns, sim, sizeof sim));
        if (t->num_known > 0)
            print_error((double)t->sim_ns, (double)t->real_ns, noisy);
        printf(" %9lld %12s\n", (long long)t->num_known, post);
    }
}

static void print_table(const struct comparison *configs, int n, const struct comparison_summary *s)
{
    char real[32], p10[32], sim[32];
    printf("costs: %s\n", configs[0].cost_label);
    printf("%3s %3s %4s %3s %-7s %-12s %-11s %12s %12s %8s %12s %8s %10s %8s\n", "K", "R", "M", "F",
           "frozen", "schedule", "recompute", "measured", "p10", "spread", "simulated", "error",
           "peak", "error");
    for (int i = 0; i < n; i++) {
        const struct comparison *c = &configs[i];
        printf("%3d %3d %4d %3d %-7s %-12s %-11s %12s %12s %6.1f %% %12s", c->num_ranks,
               c->num_replicas, c->num_microbatches, c->num_frozen_layers,
               c->num_frozen_layers ? frozen_placement_name(c->frozen) : "-",
               schedule_kind_name(c->schedule), recompute_mode_name(c->recompute),
               format_ns(c->real_step_ns, real, sizeof real),
               format_ns(c->real_p10_ns, p10, sizeof p10), 100 * c->spread,
               format_ns(c->sim_step_ns, sim, sizeof sim));
        if (comparison_is_noisy(c, s->noise_limit))
            printf(" %8s", "noisy");
        else
            printf(" %+6.1f %%", 100 * c->error);
        if (isfinite(comparison_peak_error(c)))
            printf(" %10s %+6.1f %%", format_bytes(c->real_peak_bytes, p10, sizeof p10),
                   100 * comparison_peak_error(c));
        putchar('\n');
    }
    if (n == 1)
        print_ops(&configs[0], s->num_noisy > 0);
    putchar('\n');
    if (s->num_noisy < n)
        printf("error of the step time: median %.1f %%, worst %.1f %%\n", 100 * s->median_abs_error,
               100 * s->worst_abs_error);
    double low, high;
    if (n == 1 && s->num_noisy == 0 && comparison_interval(&configs[0], &low, &high))
        printf("error of this run: %+.1f %%; of its %d parts by themselves %+.1f to %+.1f %%\n",
               100 * configs[0].error, configs[0].num_parts, 100 * low, 100 * high);
    if (s->num_noisy > 0)
        printf("%d of %d configurations too noisy to judge: their step time is not known to %.0f "
               "%%\n",
               s->num_noisy, n, 100 * s->noise_limit);
    if (isfinite(s->worst_abs_peak_error))
        printf("error of the peak memory: worst %.1f %%\n", 100 * s->worst_abs_peak_error);
}

/* Print the answer, notes about noise, and judge by the tolerance (NaN: no tolerance). */
static enum status finish(const struct command *command, const struct comparison *configs, int n,
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
    if (configs[0].note[0])
        fprintf(stderr, "elapse: note: %s\n", configs[0].note);
    if (configs[0].cost != COST_MEASURED && configs[0].cost != COST_PUBLISHED)
        fprintf(stderr, "elapse: note: simulated by published data, which predict nothing of this "
                        "machine; elapse profile measures it\n");
    if (cache_unknown)
        fprintf(stderr, "elapse: note: the profile does not say what reading the cache takes on "
                        "the host; simulated as 0\n");
    if (extrapolated)
        fprintf(stderr, "elapse: note: sizes outside of what the profile has measured: times there "
                        "are extrapolated\n");
    if (s.worst_spread > s.noise_limit)
        fprintf(stderr,
                "elapse: note: this machine is noisy: equal steps spread by up to %.0f %%\n",
                100 * s.worst_spread);
    if (rc == OK && !isnan(tolerance) && s.num_noisy == n) {
        rc = err_set(err, ERR_INFEASIBLE,
                     "the machine is too noisy to judge: no step time is known to %.0f %%",
                     100 * s.noise_limit);
        err_hint(err, "let nothing else run, or take more --steps and --repeats");
    }
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
               "--matrix: recompute modes, of %s (never)", .values = RECOMPUTE_MODE_NAMES),
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
        OPTION("set", LIST, &m->sets, "a.b=v", "--matrix: override a value of the job"),
        OPTION("trace", STRING, &args->trace_path, "FILE",
               "simulated and measured step of RUN_DIR in one trace for Perfetto"),
        OPTION("db", STRING, &m->db_path, "FILE", "profile store (the run's own)"),
        OPTION("tolerance", STRING, &args->tolerance, "5%",
               "exit 1 if the median error is larger (no limit)"),
        OPTION("json", FLAG, &args->json, NULL, "one JSON object"),
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
