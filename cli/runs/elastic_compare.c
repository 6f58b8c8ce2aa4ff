/* An elastic run beside its simulation, epoch by epoch.
 *
 * The job of the run is simulated with the recorded gradient norms, or with the decisions of
 * `safe`, so both sides freeze alike. Step times, the parts of changes and the total time are
 * compared. Read elastic_compare() at the end first. */
#include "cli/runs/elastic_compare.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/runs/comparison.h"
#include "partition/base/units.h"
#include "profiles/job/evidence_json.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json.h"
#include "sim/run/elastic_run.h"

static const char *const part_names[] = {"decide", "plan", "move", "groups", "cache"};
enum { DECIDE, PLAN, MOVE, GROUPS, CACHE, NUM_PARTS };

/* One epoch of the real run and of the simulated one. */
struct epoch_pair {
    struct epoch_row real;
    int64_t real_ns, real_samples; /* sums over the steps of the real epoch */
    int64_t real_part_ns[NUM_PARTS], real_moved_bytes;
    const struct elastic_epoch *sim;
};

struct elastic_pair {
    struct elastic_run sim;
    struct epoch_row *rows;    /* owned */
    struct epoch_pair *epochs; /* owned */
    int64_t num_epochs;
    int64_t real_ns, real_steps_ns, real_transition_ns;
    double median_abs_error, worst_abs_error; /* of the epochs' step times */
};

bool elastic_compare_applies(const struct replay *replay)
{
    for (int64_t i = 1; i < replay->num_steps; i++) {
        const struct step_row *a = &replay->steps[i - 1], *b = &replay->steps[i];
        if (a->frozen_layers != b->frozen_layers || a->pipeline_length != b->pipeline_length ||
            a->replicas != b->replicas)
            return true;
    }
    return false;
}

static void pair_clear(struct elastic_pair *pair)
{
    elastic_run_clear(&pair->sim);
    free(pair->rows);
    free(pair->epochs);
}

/* Give the job the gradient norms that the run recorded, if the job has none of its own. */
static enum status take_norms(const char *run_dir, struct replay *replay, struct err *err)
{
    char path[PATH_MAX], set[PATH_MAX + 16];
    const char *sets[1] = {set};
    struct json *text = NULL;
    struct job again = {0};
    snprintf(path, sizeof path, "%s/norms.json", run_dir);
    if (replay->job.norms || access(path, F_OK) != 0)
        return OK;
    char *whole = realpath(path, NULL);
    if (!whole)
        return err_set(err, ERR_SYSTEM, "cannot find '%s'", path);
    snprintf(set, sizeof set, "freeze.norms=%s", whole);
    free(whole);
    enum status rc = json_parse(replay->info.job_json, "job of the run", &text, err);
    THEN(job_from_record(text, "job of the run", sets, 1, &again, err));
    if (rc == OK) {
        replay->job.norms = again.norms;
        replay->job.norm_epochs = again.norm_epochs;
        again.norms = NULL;
    }
    job_clear(&again);
    json_free(text);
    return rc;
}

/* F by turn of a run under the policy safe, from its decisions. */
static enum status make_table(const struct freeze_history *history, struct freeze_spec *spec,
                              struct err *err)
{
    const int64_t last = history->num_rows > 0 ? history->rows[history->num_rows - 1].turn + 1 : 0;
    if (last >= JOB_EPOCHS_MAX)
        return err_set(err, ERR_INFEASIBLE, "%lld turns of freezing are too many to simulate",
                       (long long)last);
    int *table = calloc((size_t)last + 1, sizeof *table);
    int64_t row = 0;
    if (!table)
        return err_nomem(err);
    for (int64_t turn = 1; turn <= last; turn++) {
        table[turn] = table[turn - 1];
        for (; row < history->num_rows && history->rows[row].turn < turn; row++)
            if (history->rows[row].verdict.made)
                table[turn] = history->rows[row].verdict.frozen;
    }
    free(spec->table);
    spec->policy = FREEZE_TABLE;
    spec->table = table;
    spec->num_table = (int)last + 1;
    return OK;
}

/* A job under the policy safe is simulated with the decisions of its run: how well those were made
 * is not the question here. */
static enum status take_decisions(const char *run_dir, struct replay *replay, struct err *err)
{
    char path[PATH_MAX];
    struct freeze_history history = {0};
    struct json *json = NULL;
    snprintf(path, sizeof path, "%s/evidence.json", run_dir);
    if (replay->job.freeze.policy != FREEZE_SAFE || access(path, F_OK) != 0)
        return OK;
    enum status rc = json_read_file(path, &json, err);
    THEN(evidence_from_json(json, path, &replay->job.model, &history, err));
    THEN(make_table(&history, &replay->job.freeze, err));
    freeze_history_clear(&history);
    json_free(json);
    return rc;
}

static int64_t summary_int(const struct replay *replay, const char *key)
{
    int64_t value = 0;
    return json_int64(json_get(replay->summary, key), &value) ? value : 0;
}

static enum status read_real(const char *run_dir, const struct replay *replay,
                             struct elastic_pair *pair, struct err *err)
{
    char path[PATH_MAX];
    struct store *store = NULL;
    struct transition_row *parts = NULL;
    int64_t num_parts = 0;
    snprintf(path, sizeof path, "%s/run.db", run_dir);
    enum status rc = store_open(path, STORE_READ, &store, err);
    THEN(record_read_epochs(store, replay->info.id, &pair->rows, &pair->num_epochs, err));
    THEN(record_read_transitions(store, replay->info.id, &parts, &num_parts, err));
    if (rc == OK)
        pair->epochs = calloc((size_t)pair->num_epochs + 1, sizeof *pair->epochs);
    if (rc == OK && !pair->epochs)
        rc = err_nomem(err);
    for (int64_t i = 0; rc == OK && i < pair->num_epochs; i++) {
        struct epoch_pair *e = &pair->epochs[i];
        e->real = pair->rows[i];
        for (int64_t s = 0; s < replay->num_steps; s++)
            if (replay->steps[s].epoch == e->real.epoch) {
                const struct step_row *step = &replay->steps[s];
                e->real_ns += step->step_ns;
                e->real_samples += llround(step->samples_per_s * (double)step->step_ns / 1e9);
            }
        for (int64_t t = 0; t < num_parts; t++) {
            if (parts[t].epoch != e->real.epoch)
                continue;
            for (int p = 0; p < NUM_PARTS; p++)
                if (strcmp(parts[t].part, part_names[p]) == 0)
                    e->real_part_ns[p] = parts[t].ns;
            if (strcmp(parts[t].part, part_names[MOVE]) == 0)
                e->real_moved_bytes = parts[t].bytes;
        }
        pair->real_steps_ns += e->real_ns;
        pair->real_transition_ns += e->real.transition_ns;
    }
    pair->real_ns = summary_int(replay, "train_ns");
    free(parts);
    store_close(store);
    return rc;
}

/* Refuse a run that did only a part of its job, because the prediction is for the whole job. */
static enum status check_whole(const char *run_dir, const struct elastic_pair *pair,
                               struct err *err)
{
    if (pair->num_epochs != pair->sim.num_epochs)
        return err_set(err, ERR_INFEASIBLE, "%s: the run has %lld of its %d epochs", run_dir,
                       (long long)pair->num_epochs, pair->sim.num_epochs);
    if (pair->real_steps_ns > pair->real_ns)
        return err_set(err, ERR_INFEASIBLE,
                       "%s: the run was resumed, so its total time is not known", run_dir);
    for (int64_t i = 0; i < pair->num_epochs; i++) {
        const struct epoch_pair *e = &pair->epochs[i];
        const int64_t samples = e->sim->samples;
        if (e->real_samples != samples)
            return err_set(err, ERR_INFEASIBLE, "%s: epoch %lld has %lld of %lld samples", run_dir,
                           (long long)e->real.epoch, (long long)e->real_samples,
                           (long long)samples);
    }
    return OK;
}

/* Relative error of an epoch's steps, including its last step and steps that fill the cache. */
static double epoch_error(const struct epoch_pair *e)
{
    return comparison_ratio((double)e->sim->epoch_ns, (double)e->real_ns) - 1;
}

static double total_error(const struct elastic_pair *pair)
{
    return comparison_ratio((double)pair->sim.total_ns, (double)pair->real_ns) - 1;
}

static enum status judge_epochs(struct elastic_pair *pair, struct err *err)
{
    const size_t n = (size_t)pair->num_epochs;
    double *errors = malloc((n + 1) * sizeof *errors);
    if (!errors)
        return err_nomem(err);
    for (size_t i = 0; i < n; i++)
        errors[i] = fabs(epoch_error(&pair->epochs[i]));
    comparison_errors(errors, pair->num_epochs, &pair->median_abs_error, &pair->worst_abs_error);
    free(errors);
    return OK;
}

/* The parts of a simulated epoch apart from its plain steps: moving, setup, filling the cache. */
static void sim_parts(const struct elastic_epoch *epoch, int64_t ns[NUM_PARTS])
{
    ns[DECIDE] = ns[PLAN] = 0;
    ns[MOVE] = epoch->move_ns;
    ns[GROUPS] = epoch->setup_ns;
    ns[CACHE] = epoch->cache_ns;
}

static bool changes(const struct epoch_pair *e)
{
    return e->real.transition_ns > 0 || e->sim->transition_ns > 0 || e->real_part_ns[CACHE] > 0 ||
           e->sim->cache_ns > 0;
}

static void add_plan(struct json *json, int64_t frozen, int64_t k, int64_t r, int64_t m,
                     int64_t steps, int64_t ns, bool cached)
{
    json_add_int(json, "frozen_layers", frozen);
    json_add_int(json, "pipeline_length", k);
    json_add_int(json, "replicas", r);
    json_add_int(json, "microbatches", m);
    json_add_int(json, "steps", steps);
    json_add_int(json, "epoch_ns", ns);
    json_add_bool(json, "cached", cached);
}

static void add_parts(struct json *json, const int64_t ns[NUM_PARTS], int64_t total_ns,
                      int64_t bytes)
{
    char key[32];
    for (int p = 0; p < NUM_PARTS; p++) {
        snprintf(key, sizeof key, "%s_ns", part_names[p]);
        json_add_int(json, key, ns[p]);
    }
    json_add_int(json, "total_ns", total_ns);
    json_add_int(json, "moved_bytes", bytes);
}

static struct json *answer_json(const struct command *command, const struct replay *replay,
                                const struct elastic_pair *pair)
{
    struct json *root = command_json(command);
    struct json *configs = json_add_array(root, "configs");
    json_add_bool(root, "elastic", true);
    json_add_string(root, "name", replay->job.name);
    for (int64_t i = 0; i < pair->num_epochs; i++) {
        const struct epoch_pair *e = &pair->epochs[i];
        const int64_t steps = e->real.steps > 0 ? e->real.steps : 1;
        struct json *one = json_add_object(configs, NULL);
        json_add_int(one, "epoch", e->real.epoch);
        add_plan(json_add_object(one, "real"), e->real.frozen_layers, e->real.pipeline_length,
                 e->real.replicas, e->real.microbatches, e->real.steps, e->real_ns, e->real.cached);
        add_plan(json_add_object(one, "sim"), e->sim->frozen_layers, e->sim->pipeline_length,
                 e->sim->replicas, e->sim->microbatches, e->sim->steps, e->sim->epoch_ns,
                 e->sim->frozen == FROZEN_CACHED);
        json_add_int(one, "real_step_ns", e->real_ns / steps);
        json_add_int(one, "sim_step_ns", e->sim->epoch_ns / e->sim->steps);
        json_add_double(one, "error", epoch_error(e));
    }
    struct json *list = json_add_array(root, "transitions");
    for (int64_t i = 0; i < pair->num_epochs; i++) {
        const struct epoch_pair *e = &pair->epochs[i];
        int64_t ns[NUM_PARTS];
        if (!changes(e))
            continue;
        struct json *one = json_add_object(list, NULL);
        json_add_int(one, "epoch", e->real.epoch);
        add_parts(json_add_object(one, "real"), e->real_part_ns, e->real.transition_ns,
                  e->real_moved_bytes);
        sim_parts(e->sim, ns);
        add_parts(json_add_object(one, "sim"), ns, e->sim->transition_ns, e->sim->moved_bytes);
    }
    json_add_int(root, "real_total_ns", pair->real_ns);
    json_add_int(root, "real_steps_ns", pair->real_steps_ns);
    json_add_int(root, "real_transition_ns", pair->real_transition_ns);
    json_add_int(root, "real_between_steps_ns",
                 pair->real_ns - pair->real_steps_ns - pair->real_transition_ns);
    json_add_int(root, "sim_total_ns", pair->sim.total_ns);
    json_add_double(root, "total_error", total_error(pair));
    json_add_double(root, "median_abs_error", pair->median_abs_error);
    json_add_double(root, "worst_abs_error", pair->worst_abs_error);
    json_add_string(root, "cost_source", cost_source_name(replay->cost.cost.source));
    json_add_string(root, "cost_label", replay->cost.cost.label);
    return root;
}

/* "F=4 K=1 R=2 M=3 cached" */
static const char *plan_text(char *to, size_t size, int64_t frozen, int64_t k, int64_t r, int64_t m,
                             bool cached)
{
    snprintf(to, size, "F=%lld K=%lld R=%lld M=%lld%s", (long long)frozen, (long long)k,
             (long long)r, (long long)m, cached ? " cached" : "");
    return to;
}

static void print_epochs(const struct elastic_pair *pair)
{
    char real[64], sim[64], one[32], two[32];
    printf("%5s  %-26s %-26s %6s %12s %12s %8s\n", "epoch", "plan", "simulated", "steps", "step",
           "simulated", "error");
    for (int64_t i = 0; i < pair->num_epochs; i++) {
        const struct epoch_pair *e = &pair->epochs[i];
        plan_text(real, sizeof real, e->real.frozen_layers, e->real.pipeline_length,
                  e->real.replicas, e->real.microbatches, e->real.cached);
        plan_text(sim, sizeof sim, e->sim->frozen_layers, e->sim->pipeline_length, e->sim->replicas,
                  e->sim->microbatches, e->sim->frozen == FROZEN_CACHED);
        printf("%5lld  %-26s %-26s %6lld %12s %12s %+6.1f %%\n", (long long)e->real.epoch, real,
               strcmp(real, sim) == 0 ? "the same" : sim, (long long)e->real.steps,
               format_ns(e->real.steps ? e->real_ns / e->real.steps : 0, one, sizeof one),
               format_ns(e->sim->epoch_ns / e->sim->steps, two, sizeof two), 100 * epoch_error(e));
    }
}

static void print_parts(const char *side, const int64_t ns[NUM_PARTS], int64_t total_ns)
{
    char text[32];
    printf("  %-9s", side);
    for (int p = 0; p < CACHE; p++)
        printf(" %10s", format_ns(ns[p], text, sizeof text));
    printf(" %10s", format_ns(total_ns, text, sizeof text));
    printf(" %12s\n", format_ns(ns[CACHE], text, sizeof text));
}

static void print_answer(const struct replay *replay, const struct elastic_pair *pair)
{
    char one[32], two[32], three[32];
    printf("%s, costs: %s\n", replay->job.name, replay->cost.cost.label);
    print_epochs(pair);
    printf("\nchanges; filling the cache counts in the steps after them\n%5s  %-9s", "epoch", "");
    for (int p = 0; p < CACHE; p++)
        printf(" %10s", part_names[p]);
    printf(" %10s %12s\n", "total", "cache");
    for (int64_t i = 0; i < pair->num_epochs; i++) {
        const struct epoch_pair *e = &pair->epochs[i];
        int64_t ns[NUM_PARTS];
        if (!changes(e))
            continue;
        printf("%5lld", (long long)e->real.epoch);
        print_parts("measured", e->real_part_ns, e->real.transition_ns);
        sim_parts(e->sim, ns);
        printf("%5s", "");
        print_parts("simulated", ns, e->sim->transition_ns);
    }
    printf("\ntraining measured %s: steps %s, changes %s, between steps %s\n",
           format_ns(pair->real_ns, one, sizeof one),
           format_ns(pair->real_steps_ns, two, sizeof two),
           format_ns(pair->real_transition_ns, three, sizeof three),
           format_ns(pair->real_ns - pair->real_steps_ns - pair->real_transition_ns, (char[32]){""},
                     32));
    printf("training simulated %s: off by %+.1f %%; epochs: median %.1f %%, worst %.1f %%\n",
           format_ns(pair->sim.total_ns, one, sizeof one), 100 * total_error(pair),
           100 * pair->median_abs_error, 100 * pair->worst_abs_error);
}

enum status elastic_compare(const struct command *command, const char *run_dir,
                            struct replay *replay, double tolerance, bool json, struct err *err)
{
    const struct json *room = json_get(replay->summary, "cache_room");
    const double share = room ? json_number(room) : 0;
    const struct sim_options options = {.seed = 1, .cache_room = room ? &share : NULL};
    struct elastic_pair pair = {0};
    enum status rc = take_norms(run_dir, replay, err);
    THEN(take_decisions(run_dir, replay, err));
    THEN(read_real(run_dir, replay, &pair, err));
    THEN(elastic_run(&replay->job, &replay->cost.cost, summary_int(replay, "train_samples"), 0,
                     &options, &pair.sim, err));
    for (int64_t i = 0; rc == OK && i < pair.num_epochs && i < pair.sim.num_epochs; i++)
        pair.epochs[i].sim = &pair.sim.epochs[i];
    THEN(check_whole(run_dir, &pair, err));
    THEN(judge_epochs(&pair, err));
    if (rc == OK && json)
        rc = command_answer(answer_json(command, replay, &pair), err);
    else if (rc == OK)
        print_answer(replay, &pair);
    /* The training cannot be judged closer than its steps spread. */
    const double noise = comparison_ratio((double)(replay->real_p90_ns - replay->real_p10_ns),
                                          (double)replay->real_step_ns);
    const double limit = comparison_noise_limit(tolerance);
    if (rc == OK)
        comparison_print_notes(replay->cost.note, replay->cost.cost.source);
    if (rc == OK && !(noise <= limit))
        fprintf(stderr,
                "elapse: note: this machine is noisy: equal steps spread by up to %.0f %%\n",
                100 * noise);
    if (rc == OK && !isnan(tolerance))
        rc = comparison_refuse(!(noise <= limit), limit, replay->cost.other_host, err);
    if (rc == OK && !isnan(tolerance) && fabs(total_error(&pair)) > tolerance)
        rc =
            err_set(err, ERR_INFEASIBLE, "error of the training time is %.1f %%, tolerance %.1f %%",
                    100 * fabs(total_error(&pair)), 100 * tolerance);
    pair_clear(&pair);
    return rc;
}
