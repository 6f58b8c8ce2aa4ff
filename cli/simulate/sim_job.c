/* `elapse sim JOB` and `elapse sim JOB --step`.
 *
 * A step is the plan of the job, made by plan_for() or read from --plan, and one simulated step. A
 * run is elastic_run() for the job, for its baseline, and for our best static plan. Read
 * sim_job_step() and sim_run() first. */
#include <stdlib.h>
#include <string.h>

#include "cli/plans/band_show.h"
#include "cli/plans/framework_show.h"
#include "cli/plans/plan_search.h"
#include "cli/runs/run_rows.h"
#include "cli/simulate/sim_command.h"
#include "partition/search/plan_for.h"
#include "partition/search/turn.h"
#include "partition/base/units.h"
#include "partition/step/shares_solve.h"
#include "profiles/base/clock.h"
#include "profiles/job/job_json.h"
#include "profiles/job/plan_json.h"
#include "profiles/json/columns.h"
#include "sim/run/elastic_run.h"

enum status sim_job_load(const struct sim_args *args, struct job *job, struct err *err)
{
    struct job_sets sets = {0};
    enum status rc = job_sets_add(&sets, args->settings, args->num_settings, !args->job_path, err);
    job_sets_append(&sets, args->overrides.items, args->overrides.count);
    THEN((args->sweeps.count > 0 ? job_open : job_load)(args->job_path, sets.items, sets.count, job,
                                                        err));
    if (rc != OK)
        job_sets_name_option(args->settings, args->num_settings, err);
    job_sets_clear(&sets);
    return rc;
}

/* Make the plan of a step with F frozen layers. The cache counts as filled if the step reads it. */
static enum status plan_step(const struct step_request *q, const struct job *job,
                             const struct cost *cost, struct plan *plan, struct searched *searched,
                             struct err *err)
{
    const bool cached = q->frozen == FROZEN_CACHED;
    const struct run_state state = {.num_frozen_layers = (int)q->num_frozen,
                                    .num_samples = job_num_samples(job, true),
                                    .cache_room = cached,
                                    .cache_filled = cached};
    struct planner_result result = {0};
    if (q->num_frozen > job->model.num_layers)
        return err_set(err, ERR_INFEASIBLE, "frozen must be 0..%d for model '%s', got %lld",
                       job->model.num_layers, job->model.name, (long long)q->num_frozen);
    const struct setting setting = {&job->model, &job->cluster, cost};
    enum status rc = plan_only(job, &setting, &state, q->cut_text != NULL, plan, err);
    if (rc == OK && plan->num_ranks == 0) {
        rc = plan_for_sim(&q->time, job, cost, &state, &result, err);
        *plan = result.plan;
        *searched = result.searched;
        result.plan = (struct plan){0};
    }
    plan->cache_write = rc == OK && q->cache_write && !cached && q->num_frozen > 0;
    planner_result_clear(&result);
    return rc;
}

static bool counts_are_fixed(const struct job *job)
{
    return job->pipeline.num_stages != AUTO && job->pipeline.num_replicas != AUTO &&
           job->pipeline.num_microbatches != AUTO && job->train.batch_mode == BATCH_PER_PIPELINE;
}

/* Refuse a step that is too large to simulate, before a plan is sought. */
static enum status check_size(const struct job *job, struct err *err)
{
    const struct plan counts = {.num_stages = job->pipeline.num_stages,
                                .num_pipelines = job->pipeline.num_replicas,
                                .microbatches.count = job->pipeline.num_microbatches};
    return counts_are_fixed(job) ? sim_check_size(&counts, err) : OK;
}

/* Plan a step that does not fit as if memory were unlimited: the engine then names the device, the
 * moment and the parts of its memory. */
static enum status plan_ample(const struct step_request *q, const struct job *job,
                              const struct cost *cost, struct plan *plan, struct searched *searched)
{
    struct job ample = *job; /* borrows all but the cluster */
    struct step_request own = *q;
    own.time.keep = NULL;
    ample.cluster = (struct cluster){0};
    enum status rc = cluster_copy(&job->cluster, &ample.cluster, NULL);
    for (int d = 0; rc == OK && d < ample.cluster.num_devices; d++)
        ample.cluster.devices[d].mem_bytes = INT64_MAX;
    THEN(plan_step(&own, &ample, cost, plan, searched, NULL));
    cluster_clear(&ample.cluster);
    return rc;
}

/* Replace the plan's cut by --cut, the items of each stage after a prefix outside the pipeline. */
static enum status take_cut(const char *text, const struct job *job, struct plan *plan,
                            struct err *err)
{
    const int num_items = job->model.num_items - plan->first_item[0];
    int64_t *sizes = NULL, sum = 0;
    int n = 0;
    enum status rc = parse_int_list(text, "cut", 1, num_items, &sizes, &n, err);
    for (int s = 0; s < n && rc == OK; s++)
        sum += sizes[s];
    if (rc == OK && n != plan->num_stages) {
        rc = err_set(err, ERR_INPUT, "--cut has %s, the plan of the job %d", COUNT_TEXT(n, "stage"),
                     plan->num_stages);
        err_hint(err, "give K with --set pipeline.num_stages=K");
    } else if (rc == OK && sum != num_items) {
        rc = err_set(err, ERR_INPUT, "--cut has %s, model '%s' has %d to cut",
                     COUNT_TEXT(sum, "item"), job->model.name, num_items);
    } else if (rc == OK && plan->recompute == RECOMPUTE_LAYER) {
        rc = err_set(err, ERR_INPUT,
                     "--cut: the plan says how many layers of each stage run again; "
                     "give another pipeline.recompute");
    }
    for (int s = 0; s < n && rc == OK; s++)
        plan->first_item[s + 1] = plan->first_item[s] + (int)sizes[s];
    free(sizes);
    return rc == OK ? plan_check(plan, &job->model, &job->cluster, err) : rc;
}

/* Give the plan --share, or the shares of freeze.max_share for the cut and the lists of the request. */
static enum status take_shares(const struct step_request *q, const struct job *job,
                               const struct setting *setting, struct plan *plan, struct err *err)
{
    if (q->share == 0)
        return (q->cut_text || q->order) && job->freeze.max_share > 0
                   ? plan_leave_out(setting, job->freeze.max_share, plan, err)
                   : OK;
    shares_free(&plan->shares);
    const int passes = plan->num_stages * plan->microbatches.count;
    const enum status rc =
        shares_init(plan->num_stages, plan->microbatches.count, &plan->shares, err);
    for (int i = 0; rc == OK && i < passes; i++)
        plan->shares.share[i] = q->share;
    return rc;
}

/* Plan the step. A job that fixes the layout is simulated even where no plan fits in memory. */
static enum status find_plan(const struct step_request *request, const struct job *job,
                             struct step_answer *a, struct err *err)
{
    struct err why = {0};
    enum status rc = plan_step(request, job, &a->cost.cost, &a->plan, &a->searched, &why);
    if (rc == ERR_INFEASIBLE && counts_are_fixed(job) &&
        plan_ample(request, job, &a->cost.cost, &a->plan, &a->searched) == OK)
        return OK;
    return rc == OK ? OK : err_copy(err, &why);
}

enum status sim_step_of_job(const struct step_request *request, const struct job *job,
                            struct plan *given, struct step_answer *a, struct err *err)
{
    struct job placed = *job; /* borrows everything */
    struct judged_step judged = {0};
    struct step_request own = *request;
    own.time.keep = request->stragglers_text || request->slow_links_text ? NULL : &judged;
    if (request->frozen != FROZEN_NONE) {
        placed.pipeline.frozen = request->frozen;
        placed.pipeline.frozen_auto = false;
    }
    if (request->cut_text && counts_are_fixed(job) && !job->pipeline.schedule_auto &&
        !job_searches(job))
        placed.freeze.max_share = 0; /* take_shares() solves for the cut */
    enum status rc = check_size(job, err);
    THEN(model_copy(&job->model, &a->model, err));
    THEN(cluster_copy(&job->cluster, &a->cluster, err));
    THEN(cost_choose(request->db_path, job, &a->cost, err));
    if (rc == OK) {
        a->cost.cost = turn_cost(job, &a->cost.cost);
        a->query = cost_query_of(job);
        a->headroom = job_headroom(job);
        a->optimizer = job_optimizer_name(job);
    }
    if (rc == OK && given) {
        a->plan = *given;
        *given = (struct plan){0};
    } else {
        THEN(find_plan(&own, &placed, a, err));
    }
    const struct setting setting = {&a->model, &a->cluster, &a->cost.cost};
    if (request->order)
        THEN(plan_set_order(&a->plan, SCHEDULE_CUSTOM, request->order, err));
    if (request->cut_text)
        THEN(take_cut(request->cut_text, job, &a->plan, err));
    if (request->cut_text && job_searches(job) && !request->order)
        THEN(plan_find_order(&setting, &a->plan, err));
    THEN(take_shares(request, job, &setting, &a->plan, err));
    THEN(cluster_slow(request, &a->cluster, err));
    THEN(step_answer_simulate(a, &request->options, &judged, err));
    sim_result_clear(&judged.result);
    return rc;
}

enum status sim_job_step(const struct sim_args *args, const struct job *job, struct step_answer *a,
                         struct err *err)
{
    struct plan plan = {0};
    enum status rc =
        args->plan_path ? plan_json_load(args->plan_path, job, &job->cluster, &plan, err) : OK;
    THEN(sim_step_of_job(&args->request, job, args->plan_path ? &plan : NULL, a, err));
    plan_clear(&plan);
    return rc;
}

enum status simulate_job(const struct step_request *request, const struct job *job,
                         const struct cost *cost, const struct plan *plan, struct elastic_run *run,
                         struct err *err)
{
    struct cost_handle own = {0};
    struct cluster slowed = {0};
    struct sim_options options = request->options;
    enum status rc = cost ? OK : cost_choose(request->db_path, job, &own, err);
    options.plan = plan;
    options.first_plan = plan_for_sim;
    options.first_plan_ctx = &request->time;
    if (rc == OK && (request->stragglers_text || request->slow_links_text)) {
        rc = cluster_copy(&job->cluster, &slowed, err);
        THEN(cluster_slow(request, &slowed, err));
        options.slowed = &slowed;
    }
    THEN(elastic_run(job, cost ? cost : &own.cost, job_num_samples(job, true),
                     job_num_samples(job, false), &options, run, err));
    cluster_clear(&slowed);
    cost_handle_clear(&own);
    return rc;
}

/* The runs that the answer compares. */
struct run_answer {
    struct elastic_run run, baseline, tuned;
    struct elastic_run same; /* the baseline with its best M; num_epochs 0: no M could run */
    bool has_baseline;
    struct run_cost cost;       /* of run, by the job's cluster */
    const struct job *job;      /* borrowed */
    struct cost_handle *source; /* of its costs; borrowed */
    char note[768];             /* a part of the job that the answer leaves out; "": none */
    int64_t wall_ns;
};

static void answer_clear(struct run_answer *a)
{
    elastic_run_clear(&a->run);
    elastic_run_clear(&a->baseline);
    elastic_run_clear(&a->tuned);
    elastic_run_clear(&a->same);
}

static bool differ(const struct elastic_run *one, const struct elastic_run *other)
{
    return (one->stopped || other->stopped) && one->samples != other->samples;
}

/* Run the baseline with each M of K..6K, as the paper does, and keep the fastest. *best stays empty
 * if no M can run. */
static enum status tune_baseline(const struct step_request *request, const struct job *base,
                                 const struct cost *cost, const struct elastic_epoch *first,
                                 struct elastic_run *best, struct err *err)
{
    struct job tuned = *base; /* borrows everything */
    /* With a global batch M counts the micro-batches of all replicas. */
    const int unit =
        first->pipeline_length * (base->train.batch_mode == BATCH_GLOBAL ? first->replicas : 1);
    tuned.train.micro = AUTO;
    for (int m = 1; m <= 6; m++) {
        struct elastic_run got = {0};
        struct err why = {0};
        tuned.pipeline.num_microbatches = m * unit;
        enum status rc = job_check(&tuned, &why);
        THEN(simulate_job(request, &tuned, cost, NULL, &got, &why));
        if (rc == OK && (best->num_epochs == 0 || elastic_speedup(&got, best) > 1)) {
            struct elastic_run swap = *best;
            *best = got;
            got = swap;
        }
        elastic_run_clear(&got);
        if (rc != OK && rc != ERR_INFEASIBLE && rc != ERR_INPUT && rc != ERR_UNFINISHED)
            return err_copy(err, &why);
    }
    return OK;
}

/* Simulate the job's baseline, also with its best M. */
static enum status run_baseline(const struct step_request *request, const struct job *job,
                                struct run_answer *a, struct err *err)
{
    struct job base = {0};
    struct cost_handle cost = {0};
    enum status rc =
        job_changed(job, (const char *const *)job->baseline, job->num_baseline, &base, err);
    THEN(cost_choose(request->db_path, &base, &cost, err));
    THEN(simulate_job(request, &base, &cost.cost, NULL, &a->baseline, err));
    THEN(tune_baseline(request, &base, &cost.cost, &a->baseline.epochs[0], &a->same, err));
    cost_handle_clear(&cost);
    job_clear(&base);
    return rc;
}

/* A note about the part of a job that its simulated run leaves out; "" if there is none. */
static const char *run_note(const struct job *job)
{
    if (job->freeze.policy == FREEZE_GRADIENT_NORM && job->norm_epochs == 0)
        return "freeze.norms is not given: the cap decides alone";
    if (job->freeze.policy == FREEZE_SAFE && job->evidence.num_rows == 0)
        return "freeze.evidence is not given: safe freezes nothing";
    return "";
}

/* Simulate the static run: by the plan that the search finds, or by the given one if that is faster. */
static enum status run_static(const struct step_request *request, const struct job *job,
                              const struct cost *cost, const struct plan *given,
                              struct elastic_run *best, struct err *err)
{
    const struct job fixed = job_as_static(job);
    struct elastic_run other = {0};
    enum status rc = simulate_job(request, &fixed, cost, NULL, best, err);
    if (rc != OK || !given)
        return rc;
    struct err why = {0};
    rc = simulate_job(request, &fixed, cost, given, &other, &why);
    if (rc == ERR_INFEASIBLE) /* the plan begins with layers frozen, say */
        rc = OK;
    else if (rc != OK)
        err_copy(err, &why);
    else if (elastic_speedup(&other, best) > 1) {
        const struct elastic_run swap = *best;
        *best = other;
        other = swap;
    }
    elastic_run_clear(&other);
    return rc;
}

/* Simulate the run, the job's baseline, and our best static plan without freezing. */
static enum status answer_run(const struct sim_args *args, const struct job *job,
                              struct cost_handle *cost, struct run_answer *a, struct err *err)
{
    const int64_t start = clock_now_ns();
    const struct step_request *request = &args->request;
    struct plan plan = {0};
    const bool given = args->plan_path != NULL;
    enum status rc = given ? plan_json_load(args->plan_path, job, &job->cluster, &plan, err) : OK;
    *a = (struct run_answer){.job = job, .source = cost, .has_baseline = job->num_baseline > 0};
    THEN(cost_choose(request->db_path, job, cost, err));
    THEN(simulate_job(request, job, &cost->cost, given ? &plan : NULL, &a->run, err));
    if (rc == OK && a->has_baseline)
        rc = run_baseline(request, job, a, err);
    THEN(run_static(request, job, &cost->cost, given ? &plan : NULL, &a->tuned, err));
    const double hours = a->run.device_hours + a->run.device_hours_idle;
    a->cost = (struct run_cost){a->run.total_ns, hours, hours * job->cluster.price_per_hour,
                                hours * job->cluster.power_watts / 1000};
    const char *left_out = run_note(job);
    snprintf(a->note, sizeof a->note, "%s%s%s", left_out,
             *left_out && job->model.note[0] ? "; " : "", job->model.note);
    if (differ(&a->run, &a->tuned) || (a->has_baseline && differ(&a->run, &a->baseline)))
        snprintf(a->note + strlen(a->note), sizeof a->note - strlen(a->note),
                 "%strain.max_steps ends runs after different numbers of samples: speedups are by "
                 "the sample",
                 *a->note ? "; " : "");
    plan_clear(&plan);
    a->wall_ns = clock_now_ns() - start;
    return rc;
}

/* Whether any of the runs is extrapolated. The speedups depend on all of them. */
static bool is_extrapolated(const struct run_answer *a)
{
    return a->run.extrapolated || a->baseline.extrapolated || a->same.extrapolated ||
           a->tuned.extrapolated;
}

static const char *cache_text(const void *row, char *buf, size_t size)
{
    const struct elastic_epoch *x = row;
    if (x->cache_read == 0 && !x->cache_write)
        return "-";
    snprintf(buf, size, "%s%.0d%s", x->cache_read > 0 ? "read " : "", x->cache_read,
             x->cache_write ? " write" : "");
    return buf;
}

#define EPOCH(type, member, ...) COLUMN(elastic_epoch, #member, type, member, __VA_ARGS__)
static const struct row_table run_table = ROW_TABLE_BESIDES(
    5, elastic_epoch, EPOCH(INT, frozen_layers, SHOWN(" frozen", 6)),
    EPOCH(INT, pipeline_length, SHOWN(" K", 3)), EPOCH(INT, replicas, SHOWN(" R", 3)),
    EPOCH(INT, microbatches, SHOWN(" M", 4), .leaves = 6), EPOCH(INT, microbatch_size),
    EPOCH(NAME, schedule, SHOWN(" schedule", -11), .leaves = 3, .names = schedule_names),
    EPOCH(NAME, frozen, SHOWN(" prefix", -7), .leaves = 4, .names = frozen_placement_names),
    EPOCH(INT, samples), EPOCH(INT, steps, SHOWN(" steps", 6), .leaves = 7),
    EPOCH(INT, step_ns, SHOWN(" step", 12)), EPOCH(INT, last_step_ns), EPOCH(INT, epoch_ns),
    EPOCH(REAL, samples_per_s, SHOWN(" samples/s", 9), .leaves = 8, .format = "%.1f"),
    EPOCH(REAL, bubble_fraction, SHOWN(" bubble", 7), .leaves = 1, .format = "%.1f%%",
          .scale = 100),
    EPOCH(INT, transition_ns, SHOWN(" transition", 11), .leaves = 2), EPOCH(INT, moved_bytes),
    EPOCH(INT, eval_ns),
    COLUMN(elastic_epoch, NULL, OTHER, cache_read, SHOWN("  cache", 0), .leaves = 5,
           .text = cache_text));
static const struct row_table cache_table =
    ROW_TABLE(elastic_epoch, COLUMN(elastic_epoch, "cache_read_level", INT, cache_read),
              EPOCH(BOOL, cache_write), EPOCH(TEXT, reason));

static void run_json(struct json *json, const struct run_answer *a, bool no_wall)
{
    json_add_string(json, "name", a->job->name);
    json_add_parsed(json, "job", a->job->json);
    json_add_int(json, "total_ns", a->run.total_ns);
    if (a->has_baseline) {
        json_add_int(json, "baseline_ns", a->baseline.total_ns);
        json_add_double(json, "speedup", elastic_speedup(&a->run, &a->baseline));
    } else {
        json_add_null(json, "baseline_ns");
        json_add_null(json, "speedup");
    }
    if (a->same.num_epochs > 0) {
        json_add_int(json, "tuned_m_baseline_ns", a->same.total_ns);
        json_add_int(json, "tuned_m_baseline_microbatches", a->same.epochs[0].microbatches);
        json_add_double(json, "tuned_m_speedup", elastic_speedup(&a->run, &a->same));
    } else if (a->has_baseline) {
        json_add_null(json, "tuned_m_baseline_ns");
        json_add_null(json, "tuned_m_baseline_microbatches");
        json_add_null(json, "tuned_m_speedup");
    }
    json_add_int(json, "tuned_baseline_ns", a->tuned.total_ns);
    json_add_double(json, "fair_speedup", elastic_speedup(&a->run, &a->tuned));
    json_add_double(json, "device_hours", a->run.device_hours);
    json_add_double(json, "device_hours_idle", a->run.device_hours_idle);
    run_cost_add_price(json, &a->cost);
    json_add_int(json, "eval_ns", a->run.eval_ns);
    struct json *epochs = json_add_array(json, "epochs");
    for (int e = 0; e < a->run.num_epochs; e++) {
        const struct elastic_epoch *x = &a->run.epochs[e];
        struct json *epoch = json_add_object(epochs, NULL);
        json_add_int(epoch, "epoch", e);
        row_to_json(epoch, &run_table, x);
        json_add_bool(epoch, "cached", x->cache_read > 0 && x->cache_read == x->frozen_layers);
        row_to_json(epoch, &cache_table, x);
    }
    json_add_string(json, "cost_source", cost_source_name(a->source->cost.source));
    json_add_string(json, "cost_label", a->source->cost.label);
    if (a->source->note[0])
        json_add_string(json, "cost_note", a->source->note);
    json_add_bool(json, "extrapolated", is_extrapolated(a));
    const struct setting setting = {&a->job->model, &a->job->cluster, &a->source->cost};
    band_add(&setting, a->source, 0, json);
    const struct framework_range range = framework_range_of_none(&setting);
    framework_show_add(&range, json);
    if (a->note[0])
        json_add_string(json, "note", a->note);
    if (a->run.searched.judged > 0)
        searched_add(json_add_object(json, "searched"), &a->run.searched, !no_wall);
    json_add_int(json, "steps_simulated", a->run.steps_simulated);
    if (!no_wall)
        json_add_int(json, "wall_ns", a->wall_ns);
}

static void run_print(const struct run_answer *a, bool no_wall)
{
    char one[32], two[32], three[32], speed[40], price[96];
    printf("%s (costs: %s%s)\n", a->job->name, a->source->cost.label,
           is_extrapolated(a) ? ", extrapolated" : "");
    if (a->source->note[0])
        printf("note: %s\n", a->source->note);
    if (a->note[0])
        printf("note: %s\n", a->note);
    printf("epoch");
    row_print_head(stdout, &run_table);
    for (int e = 0; e < a->run.num_epochs; e++) {
        printf("\n%5d", e);
        row_print(stdout, &run_table, &a->run.epochs[e]);
    }
    putchar('\n');
    const struct setting setting = {&a->job->model, &a->job->cluster, &a->source->cost};
    band_print(&setting, a->source, 0);
    const struct framework_range range = framework_range_of_none(&setting);
    framework_show_print(&range);
    printf("total %s, %.2f device hours", format_ns(a->run.total_ns, one, sizeof one),
           a->run.device_hours);
    if (a->run.device_hours_idle > 0)
        printf(" and %.2f idle", a->run.device_hours_idle);
    printf("%s", run_cost_text(&a->cost, price, sizeof price));
    if (a->run.eval_ns > 0)
        printf("; evaluation (not in the total): %s", format_ns(a->run.eval_ns, one, sizeof one));
    printf("\n");
    if (a->has_baseline)
        printf("baseline %s: %s", format_ns(a->baseline.total_ns, one, sizeof one),
               format_speed(elastic_speedup(&a->run, &a->baseline), speed, sizeof speed));
    if (a->same.num_epochs > 0)
        printf("; baseline with its best M=%d %s: %s", a->same.epochs[0].microbatches,
               format_ns(a->same.total_ns, two, sizeof two),
               format_speed(elastic_speedup(&a->run, &a->same), speed, sizeof speed));
    if (a->has_baseline)
        printf("\n");
    if (a->job->freeze.policy != FREEZE_NONE) /* else this run is a static one */
        printf("best static plan without freezing %s: this run is %s\n",
               format_ns(a->tuned.total_ns, three, sizeof three),
               format_speed(elastic_speedup(&a->run, &a->tuned), speed, sizeof speed));
    if (a->run.searched.judged > 0 && !a->run.searched.complete)
        printf("the search for its plan was stopped by its budget\n");
    if (!no_wall)
        printf("simulated in %s\n", format_ns(a->wall_ns, one, sizeof one));
}

/* Write the run's epochs and transitions into the tables of record.h. There is no loss, because
 * nothing was trained. */
static enum status record_run_at(const char *path, const struct run_answer *a, struct err *err)
{
    struct store *store = NULL;
    struct run_rows rows = {0};
    int64_t id = 0;
    enum status rc = run_rows_simulated(&a->run, &rows, err);
    struct run_info info = rows.info;
    info.job_json = a->job->json;
    snprintf(info.name, sizeof info.name, "%s", a->job->name);
    snprintf(info.cost_source, sizeof info.cost_source, "%s", a->source->cost.label);
    THEN(store_open(path, STORE_RECORD, &store, err));
    THEN(record_start(store, &info, &id, err));
    THEN(record_epochs(store, id, rows.epochs, rows.num_epochs, err));
    if (rc == OK && rows.num_transitions > 0)
        rc = record_transitions(store, id, rows.transitions, rows.num_transitions, err);
    THEN(record_finish(store, id, a->run.total_ns, err));
    store_close(store);
    run_rows_clear(&rows);
    return rc;
}

enum status sim_run(const struct command *command, const struct sim_args *args,
                    const struct job *job, struct err *err)
{
    struct run_answer answer;
    struct cost_handle cost = {0};
    enum status rc = answer_run(args, job, &cost, &answer, err);
    if (rc == OK && args->record_path)
        rc = record_run_at(args->record_path, &answer, err);
    if (rc == OK && args->json) {
        struct json *json = command_json(command);
        run_json(json, &answer, args->no_wall);
        rc = command_answer(json, err);
    } else if (rc == OK) {
        run_print(&answer, args->no_wall);
    }
    answer_clear(&answer);
    cost_handle_clear(&cost);
    return rc;
}
