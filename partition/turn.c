#include "partition/turn.h"

#include <math.h>
#include <stdlib.h>

#include "partition/autodp.h"
#include "partition/balance.h"
#include "partition/cache_rule.h"
#include "partition/planner.h"

bool turn_elastic(const struct job *job)
{
    return job->freeze.policy != FREEZE_NONE || job->elastic.num_stages > 0;
}

int64_t turn_at(const struct job *job, int64_t step, int64_t epoch)
{
    const int64_t every = job->freeze.every_steps;
    return every > 0 ? step / every : epoch;
}

bool turn_begins(const struct job *job, int64_t step, int64_t position)
{
    const int64_t every = job->freeze.every_steps;
    return every > 0 ? step % every == 0 : position == 0;
}

int64_t turn_steps_left(const struct job *job, int64_t step)
{
    const int64_t every = job->freeze.every_steps;
    return every > 0 ? every - step % every : INT64_MAX;
}

enum status turn_decide(struct freeze *freeze, const double *norms, int64_t num_rows, int64_t turn,
                        int *num_frozen, char reason[160], struct err *err)
{
    const bool known = norms && turn > 0 && turn - 1 < num_rows;
    return freeze_decide(freeze, (int)turn, known ? norms + (turn - 1) * freeze->num_layers : NULL,
                         num_frozen, reason, err);
}

/* K as elastic.stages says it; 0: it does not. */
static int stages_of(const struct job *job, int64_t turn)
{
    const int64_t last = job->elastic.num_stages - 1;
    return last < 0 ? 0 : job->elastic.stages[turn < last ? turn : last];
}

bool turn_changes(const struct job *job, int64_t turn, int num_frozen, const struct plan *plan)
{
    const int stages = stages_of(job, turn);
    return num_frozen != plan->num_frozen_layers || (stages > 0 && stages != plan->num_ranks);
}

struct cost turn_cost(const struct job *job, const struct cost *cost)
{
    struct cost own = *cost;
    if (job->cache.read_ns > 0)
        own.cache_read_ns = job->cache.read_ns;
    if (job->cache.write_ns > 0)
        own.cache_write_ns = job->cache.write_ns;
    return own;
}

static bool greedy(const struct job *job)
{
    return job->pipeline.balancer != BALANCER_OPTIMAL;
}

/* The paper's rule: halve while the largest stage stays within that of the unfrozen model at the
 * first K. The greedy balancers start with a node's devices. */
static enum status halve(const struct job *job, const struct cluster *cluster,
                         const struct turn_ask *ask, int *k, struct err *err)
{
    const struct model *model = &job->model;
    const enum balancer_kind balancer = greedy(job) ? job->pipeline.balancer : BALANCER_RELEASED;
    const int items = model->num_items, frozen = model_frozen_items(model, ask->num_frozen_layers);
    const int a_node = cluster->num_devices / cluster->num_nodes;
    int first = job->pipeline.num_stages;
    int *count = calloc((size_t)items, sizeof *count);
    double *sizes = calloc((size_t)items, sizeof *sizes);
    double *load = calloc((size_t)items, sizeof *load);
    enum status rc = count && sizes && load ? OK : err_nomem(err);
    if (first == AUTO)
        first = ask->old && !greedy(job) ? ask->old->num_ranks : a_node < items ? a_node : items;
    *k = ask->old ? ask->old->num_ranks : first;
    if (rc == OK) {
        balance_sizes(model, sizes);
        rc = balance_greedy(balancer, sizes, items, 0, first, count, load, err);
    }
    if (rc == OK && frozen > 0)
        rc = balance_compress(balancer, sizes, items, frozen,
                              balance_max(balancer, sizes, 0, first, load), k, err);
    free(count);
    free(sizes);
    free(load);
    return rc;
}

/* Stages a rank that the job's schedule has at least. */
static int chunks_of(const struct job *job)
{
    const enum schedule_kind kind = job->pipeline.schedule;
    if (job->pipeline.schedule_auto || kind == SCHEDULE_AUTO)
        return 1;
    return schedule_chunks(kind, job->pipeline.chunks);
}

static int items_left(const struct job *job, const struct turn_ask *ask)
{
    return job->model.num_items - model_frozen_items(&job->model, ask->num_frozen_layers);
}

/* U4. K and R that may be tried; 0: any. */
static enum status wanted_counts(const struct job *job, const struct cluster *cluster,
                                 const struct turn_ask *ask, int *k, int *r, struct err *err)
{
    const int stages = stages_of(job, ask->turn);
    *k = job->pipeline.num_stages;
    *r = job->pipeline.num_replicas;
    if (ask->old) {
        const int left = items_left(job, ask);
        const int most = left > chunks_of(job) ? left / chunks_of(job) : 1;
        const int old = ask->old->num_ranks;
        *k = job->elastic.auto_pipe ? AUTO : old < most ? old : most;
        *r = job->elastic.auto_dp ? AUTO : ask->old->num_replicas;
    }
    if (stages > 0) {
        *k = stages;
        if (!ask->old && *r == AUTO && !job->elastic.auto_dp)
            *r = 1;
    }
    if (*k == AUTO && (greedy(job) || (ask->old && job->elastic.halving)))
        return halve(job, cluster, ask, k, err);
    return OK;
}

/* Micro-batches to ask the planner for: under the canonical reduction those of the global batch,
 * which stay what they were. */
static enum status canonical_count(const struct job *job, const struct turn_ask *ask, int r,
                                   int *count, struct err *err)
{
    int64_t all = job->pipeline.num_microbatches;
    *count = job->pipeline.num_microbatches;
    if (job->train.reduction != REDUCTION_CANONICAL)
        return OK;
    if ((r & (r - 1)) != 0)
        return err_set(err, ERR_INFEASIBLE,
                       "train.reduction canonical needs a power of two of replicas, got %d", r);
    if (job->train.batch_mode != BATCH_GLOBAL)
        return OK;
    if (all == AUTO && ask->old)
        all = (int64_t)ask->old->microbatches.count * ask->old->num_replicas;
    if (all == AUTO)
        return OK;
    if (job->train.batch % all != 0 || all % r != 0)
        return err_set(
            err, ERR_INFEASIBLE,
            "train.reduction canonical: %lld samples of the global batch and %d replicas "
            "must divide into %lld micro-batches",
            (long long)job->train.batch, r, (long long)all);
    *count = (int)all;
    return OK;
}

static bool may_cache(const struct job *job, const struct turn_ask *ask)
{
    return ask->cache_room > 0 && ask->num_frozen_layers > 0 && job->model.num_skips == 0;
}

/* One K and R of those that are tried. */
struct attempt {
    int k, r;
    bool many;      /* K by K, to the same effort as the planner's own search */
    double beat_ns; /* a sample: plans that take as long are not wanted */
};

/* The planner's best of a K and R, and the frozen forward read from the cache or not. */
static enum status solve_one(const struct job *job, const struct cluster *cluster,
                             const struct cost *cost, const struct turn_ask *ask,
                             const struct attempt *attempt, bool cached,
                             struct planner_result *result, struct err *err)
{
    const int r = attempt->r;
    struct planner_problem problem;
    struct planner_options options;
    enum status rc;
    planner_from_job(job, cost, ask->num_frozen_layers, &problem, &options);
    problem.setting.cluster = cluster;
    if (problem.batch_mode == BATCH_GLOBAL && problem.batch % r != 0)
        return err_set(err, ERR_INPUT,
                       "%s: train.batch.global must be a multiple of the %d replicas, got %lld",
                       job->path ? job->path : job->name, r, (long long)problem.batch);
    options.num_ranks = attempt->k;
    options.num_replicas = r;
    options.one_of_many = attempt->many;
    options.beat_per_s = 1e9 / attempt->beat_ns;
    options.cache_write = false;
    if (items_left(job, ask) < chunks_of(job)) {
        options.schedules = 1u << SCHEDULE_1F1B;
        options.chunks = 1;
    }
    if (job->model.num_skips > 0 && ask->num_frozen_layers > 0) {
        options.frozen_auto = false; /* skip tensors stay inside the pipeline */
        options.frozen = FROZEN_SPREAD;
    }
    if (cached) {
        options.frozen_auto = greedy(job); /* these know of a cache that way */
        options.frozen = FROZEN_CACHED;
        options.cache_filled = true;
        options.equal_microbatches = true; /* the others would be computed: full ones are cached */
    } else if (options.frozen == FROZEN_CACHED && ask->num_frozen_layers > 0) {
        options.frozen_auto = true; /* asked for, and not to be had */
        options.frozen = FROZEN_SPREAD;
    }
    rc = canonical_count(job, ask, r, &options.num_microbatches, err);
    if (rc != OK)
        return rc;
    rc = planner_solve(&problem, &options, result, err);
    if (rc == ERR_INFEASIBLE && greedy(job) && ask->old && !job->elastic.auto_pipe) {
        /* K stays and a greedy balancer may leave stages empty: the nearest cut that has none. */
        options.balancer = BALANCER_OPTIMAL;
        options.frozen_auto = false;
        options.frozen = cached ? FROZEN_CACHED : FROZEN_FIRST;
        if (!problem.canonical || problem.batch_mode != BATCH_GLOBAL)
            options.num_microbatches = ask->old->microbatches.count;
        rc = planner_solve(&problem, &options, result, err);
    }
    if (rc == OK && result->plan.num_ranks > 0 && job->train.reduction == REDUCTION_CANONICAL &&
        result->plan.batch % result->plan.microbatches.count != 0)
        rc = err_set(
            err, ERR_INFEASIBLE,
            "train.reduction canonical needs equal micro-batches: %lld samples do not divide "
            "into %d",
            (long long)result->plan.batch, result->plan.microbatches.count);
    return rc;
}

/* Neither a plan nor a "no" of its K and R: the search as a whole fails. */
static bool no_answer(enum status status)
{
    return status != OK && status != ERR_INFEASIBLE && status != ERR_INPUT;
}

/* Time a sample of what the planner found; INFINITY: nothing that is wanted. */
static double sample_ns(const struct planner_result *result)
{
    return result->plan.num_ranks > 0 ? 1e9 / result->samples_per_s : INFINITY;
}

/* Of one K and R: whether the cache pays (partition/cache_rule.h), and the plan for that;
 * *ns_per_sample is the mean over the epochs that are left, if F stays; INFINITY: nothing that is
 * wanted. */
static enum status solve_cached(const struct job *job, const struct cluster *cluster,
                                const struct cost *cost, const struct turn_ask *ask,
                                const struct attempt *attempt, struct planner_result *result,
                                double *ns_per_sample, struct err *err)
{
    struct planner_result reads = {0};
    struct err why = {0};
    const int level = ask->old && ask->old->frozen == FROZEN_CACHED ? ask->old->first_item[0] : 0;
    enum status rc = solve_one(job, cluster, cost, ask, attempt, false, result, err);
    *ns_per_sample = rc == OK ? sample_ns(result) : INFINITY;
    if ((rc != OK && rc != ERR_INFEASIBLE) || !may_cache(job, ask))
        return rc;
    int64_t extra = 0;
    enum status other = solve_one(job, cluster, cost, ask, attempt, true, &reads, &why);
    const bool found = other == OK && reads.plan.num_ranks > 0;
    if (found)
        other = cache_fill_extra(&(struct setting){&job->model, cluster, cost}, &reads.plan, level,
                                 &extra, &why);
    if (no_answer(other)) {
        rc = other;
        if (err)
            *err = why;
    } else if (other == OK && found) {
        const double samples = (double)reads.plan.batch * reads.plan.num_replicas;
        const struct cache_case c = {
            .plain_ns = *ns_per_sample,
            .read_ns = sample_ns(&reads),
            .fill_ns = sample_ns(&reads) + (double)extra / samples,
            .share = cache_share(ask->cache_room, reads.plan.microbatches.size, ask->cache_whole),
            .epochs = job->train.epochs - ask->epoch,
            .views = job_views(job)};
        if (job->cache.policy == CACHE_ON || cache_case_pays(&c)) {
            planner_result_clear(result);
            *result = reads;
            reads = (struct planner_result){0};
            *ns_per_sample = cache_case_ns(&c);
            rc = OK;
        }
    } else if (other == OK && job->cache.policy == CACHE_ON) {
        planner_result_clear(result); /* a plan that reads would be taken, and is not wanted */
        *ns_per_sample = INFINITY;
        rc = OK;
    }
    planner_result_clear(&reads);
    return rc;
}

/* The rank on device 0 decides and writes, so it has a place. */
static void keep_device_0(struct plan *plan)
{
    for (int i = 0; i < plan->num_ranks * plan->num_replicas; i++)
        if (plan->device[i] == 0)
            return;
    plan->device[0] = 0;
}

/* A plan from a file, where a run begins. */
static enum status take_given(const struct plan *given, int num_frozen, struct plan *plan,
                              struct err *err)
{
    if (given->num_frozen_layers != num_frozen)
        return err_set(err, ERR_INFEASIBLE, "plan.frozen_layers is %d, the run begins with %d",
                       given->num_frozen_layers, num_frozen);
    return plan_copy(given, plan, err);
}

/* The planner's answer for each K, with as many replicas as there are devices for. Only elastic
 * jobs may leave devices over. */
enum status turn_plan(const struct job *job, const struct cluster *cluster, const struct cost *cost,
                      const struct turn_ask *ask, struct plan *plan, struct err *err)
{
    if (ask->given && !ask->old)
        return take_given(ask->given, ask->num_frozen_layers, plan, err);
    const bool elastic = turn_elastic(job);
    const struct cost own = turn_cost(job, cost);
    const int n = cluster->num_devices;
    double best = INFINITY; /* ns a sample */
    int k_wanted, r_wanted;
    struct err first = {0}; /* why the first K has no plan, at the fewest replicas tried */
    enum status rc = wanted_counts(job, cluster, ask, &k_wanted, &r_wanted, err);
    if (rc != OK)
        return rc;
    const bool many = k_wanted == 0;
    for (int k = 1; k <= n; k++) {
        if ((k_wanted != 0 && k != k_wanted) || (!elastic && n % k != 0))
            continue;
        bool done = false;
        struct err last = {0};
        for (int r = n / k; r >= 1 && !done; r--) {
            struct planner_result result = {0};
            struct err one = {0};
            const struct attempt attempt = {.k = k, .r = r, .many = many, .beat_ns = best};
            double ns = INFINITY;
            if ((r_wanted != 0 && r != r_wanted) || (!elastic && k * r != n))
                continue;
            if (ask->old && job->train.batch_mode == BATCH_PER_PIPELINE && r > 1 &&
                job->train.batch > ask->num_samples / r)
                continue; /* more replicas than an epoch has samples for */
            rc = solve_cached(job, cluster, &own, ask, &attempt, &result, &ns, &one);
            if (no_answer(rc)) {
                planner_result_clear(&result);
                plan_clear(plan);
                return err_copy(err, &one);
            }
            if (rc != OK)
                last = one;
            done = rc == OK;
            if (rc == OK && ns < best) {
                best = ns;
                plan_clear(plan);
                *plan = result.plan;
                result.plan = (struct plan){0};
            }
            planner_result_clear(&result);
        }
        if (!done && first.status == OK)
            first = last;
    }
    if (best < INFINITY) {
        rc = ask->old ? autodp_keep_devices(&job->model, cluster, ask->old, plan, err) : OK;
        if (rc == OK)
            keep_device_0(plan);
        else
            plan_clear(plan);
        return rc;
    }
    if (first.status == OK)
        err_set(&first, ERR_INFEASIBLE, "no plan has %d stages and %d replicas on %d devices",
                k_wanted, r_wanted, n);
    return err_copy(err, &first);
}
