/* Translate a job and the state of its run into the planner's problem, and ask the planner once.
 *
 * The planner is asked again in two cases: cache.policy is on but no plan can read the cache, or a
 * greedy balancer has no cut for a K that must stay. The set_*() functions each fill one part of
 * the problem. Read plan_for() at the end first. */
#include "partition/search/plan_for.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "partition/cost/lighter_cost.h"
#include "partition/plan/autodp.h"
#include "partition/plan/balance.h"
#include "partition/search/turn.h"
#include "partition/step/lower.h"
#include "partition/step/shares_solve.h"
#include "partition/step/schedule_auto.h"
#include "partition/step/schedule_memory.h"
#include "partition/step/schedule_time.h"
#include "partition/step/traffic.h"

/* Whether plans are for a framework's GPUs: they may recompute inside backwards and divide layers
 * without being asked. Our executor does neither, so plans for what it measured, and for hosts,
 * which it runs on, leave it out. */
static bool for_frameworks(const struct setting *setting)
{
    bool gpus = true;
    for (int d = 0; d < setting->cluster->num_devices && gpus; d++)
        gpus = !device_is_host(&setting->cluster->devices[d]);
    return gpus && !cost_is_measured(setting->cost);
}

static bool memory_is_limited(const struct setting *setting)
{
    for (int d = 0; d < setting->cluster->num_devices; d++)
        if (setting->cluster->devices[d].mem_bytes != INT64_MAX)
            return true;
    return false;
}

static bool greedy(const struct job *job)
{
    return job->pipeline.balancer != BALANCER_OPTIMAL;
}

void planner_from_job(const struct job *job, const struct setting *setting, int num_frozen_layers,
                      struct planner_problem *problem, struct planner_options *options)
{
    *problem = (struct planner_problem){.setting = setting_at(setting, num_frozen_layers),
                                        .batch_mode = job->train.batch_mode,
                                        .batch = job->train.batch,
                                        .num_frozen_layers = num_frozen_layers,
                                        .bucket_bytes = job->pipeline.bucket_bytes,
                                        .bucket_auto = job->pipeline.bucket_auto,
                                        .clip = job_wants_norm(job),
                                        .optim_bytes_per_param = job_optim_bytes_per_param(job),
                                        .canonical = job->train.reduction == REDUCTION_CANONICAL,
                                        .lagged = job_lags(job)};
    const struct job named = job_with_named_schedules(job);
    const bool choose_schedule = named.pipeline.schedule_auto;
    bool fits = job->pipeline.recompute == RECOMPUTE_FIT && !job->pipeline.recompute_auto;
    *options = (struct planner_options){
        .num_ranks = job->pipeline.num_stages,
        .num_replicas = job->pipeline.num_replicas,
        .num_microbatches = job->pipeline.num_microbatches,
        .microbatch_size = job->train.micro,
        .equal_microbatches = job->train.reduction == REDUCTION_CANONICAL,
        .chunks = job->pipeline.chunks > 1 ? job->pipeline.chunks : AUTO,
        .schedules = !choose_schedule           ? 1u << job->pipeline.schedule
                     : named.pipeline.schedules ? named.pipeline.schedules
                                                : PLANNER_ALL_SCHEDULES,
        .balancer = job->pipeline.balancer,
        .by_params = job->pipeline.by_params,
        .recompute_auto =
            job->pipeline.recompute_auto || (fits && !greedy(job) && memory_is_limited(setting)),
        .recompute = fits ? RECOMPUTE_NEVER : job->pipeline.recompute,
        .recompute_inside = for_frameworks(setting),
        .recompute_layers = job->pipeline.recompute_layers,
        .layout = job->pipeline.layout,
        .offload = job->pipeline.offload,
        .few_samples = job->train.batch_mode == BATCH_GLOBAL &&
                       job->train.batch < setting->cluster->num_devices,
        .frozen_auto = job->pipeline.frozen_auto,
        .frozen = job->pipeline.frozen};
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++)
        options->layout.open[d] = layout_ask_opens(&job->pipeline.layout, (enum layout_dim)d);
    if (greedy(job) || turn_elastic(job)) { /* check_balancer() */
        options->layout.at.context = layout_context(&options->layout.at);
        options->layout.open[LAYOUT_CONTEXT] = false;
    }
    if (!choose_schedule && schedule_any_chunks(job->pipeline.schedule) &&
        job->pipeline.chunks == 1)
        options->chunks = 1;
}

/* A job that leaves its layout open gets all of them searched, on GPUs. A run that changes its plan
 * keeps whole layers, because its changes are for our executor; so does one whose sums are
 * canonical. */
static void open_layout(const struct job *job, const struct setting *setting,
                        const struct run_state *state, struct planner_options *options)
{
    const bool ours = greedy(job) || state->executor || turn_elastic(job) ||
                      job->train.reduction == REDUCTION_CANONICAL || !for_frameworks(setting);
    if (ours && options->offload == OFFLOAD_FIT)
        options->offload = OFFLOAD_NONE;
    if (ours || !job->pipeline.layout_open)
        return;
    options->recompute_auto = true;
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++)
        options->layout.open[d] = options->layout.open[d] || layout_members[d].opens;
}

/* Restrict the options to what the job's framework runs. */
static enum status restrict_to_target(const struct job *job, struct planner_options *options,
                                      struct err *err)
{
    const struct plan_target *target = job->pipeline.target;
    if (!target)
        return OK;
    const char *const name = target->name;
    if (greedy(job))
        return err_set(err, ERR_INPUT, "%s needs pipeline.balancer optimal", name);
    options->target = target;
    options->equal_microbatches = true;
    if (target->given)
        return OK;
    if (job_searches(job) && !(target->schedules >> SCHEDULE_SEARCH & 1))
        return err_set(err, ERR_INPUT, "%s does not run pipeline.schedule search", name);
    if (!(options->schedules & target->schedules))
        return err_set(err, ERR_INPUT, "%s does not run pipeline.schedule %s", name,
                       schedule_kind_name((enum schedule_kind)__builtin_ctz(options->schedules)));
    options->schedules &= target->schedules;
    if (!options->layout.open[LAYOUT_SHARD] && !(target->shards >> options->layout.at.shard & 1))
        return err_set(err, ERR_INPUT, "%s does not run pipeline.shard %s", name,
                       shard_mode_name(options->layout.at.shard));
    if (target->replicas_in_shard && !options->layout.open[LAYOUT_SHARD] &&
        options->layout.at.shard < SHARD_GRADIENTS && options->num_replicas > 1)
        return err_set(err, ERR_INPUT, "%s does not run pipeline.shard %s with several replicas",
                       name, shard_mode_name(options->layout.at.shard));
    if (target->reduces_by_layer && job->pipeline.bucket_bytes != FRAMEWORK_BUCKET_BYTES &&
        (options->layout.open[LAYOUT_SHARD] || options->layout.at.shard == SHARD_NONE))
        return err_set(err, ERR_INPUT,
                       "%s reduces the gradients of each layer at once, not pipeline.bucket_bytes "
                       "%" PRId64,
                       name, job->pipeline.bucket_bytes);
    if (!options->recompute_auto && !(target->recomputes >> options->recompute & 1))
        return err_set(err, ERR_INPUT, "%s does not run pipeline.recompute %s", name,
                       recompute_mode_name(options->recompute));
    if (!target->offloads && options->offload == OFFLOAD_OPTIMIZER)
        return err_set(err, ERR_INPUT, "%s does not run pipeline.offload optimizer", name);
    if (target->all_layers && options->recompute_layers != AUTO)
        return err_set(err, ERR_INPUT, "%s runs all layers again, not pipeline.recompute_layers %d",
                       name, options->recompute_layers);
    if (target->all_layers)
        options->recompute_layers = INT_MAX;
    return OK;
}

/* Set *k by the paper's rule: halve K while the largest stage is no larger than the largest stage
 * of the unfrozen model at the first K. With a greedy balancer the first K is the number of devices
 * of a node. */
static enum status halve(const struct job *job, const struct setting *setting,
                         const struct run_state *state, int *k, struct err *err)
{
    const struct model *model = setting->model;
    const struct cluster *cluster = setting->cluster;
    const enum balancer_kind balancer = greedy(job) ? job->pipeline.balancer : BALANCER_RELEASED;
    const int items = model->num_items,
              frozen = model_frozen_items(model, state->num_frozen_layers);
    const int a_node = cluster->num_devices / cluster->num_nodes;
    int first = job->pipeline.num_stages;
    int *count = calloc((size_t)items, sizeof *count);
    double *sizes = calloc((size_t)items, sizeof *sizes);
    double *load = calloc((size_t)items, sizeof *load);
    enum status rc = count && sizes && load ? OK : err_nomem(err);
    if (first == AUTO)
        first = state->old && !greedy(job) ? state->old->num_ranks
                : a_node < items           ? a_node
                                           : items;
    *k = state->old ? state->old->num_ranks : first;
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

/* The least number of stages per rank under the job's schedule. */
static int chunks_of(const struct job *job)
{
    const struct job named = job_with_named_schedules(job);
    const unsigned list = named.pipeline.schedules;
    int least = INT_MAX;
    if (named.pipeline.schedule_auto && list) {
        for (int k = 0; k < SCHEDULE_KIND_COUNT; k++)
            if (list >> k & 1 &&
                schedule_chunks((enum schedule_kind)k, job->pipeline.chunks) < least)
                least = schedule_chunks((enum schedule_kind)k, job->pipeline.chunks);
        return least;
    }
    return named.pipeline.schedule_auto
               ? 1
               : schedule_chunks(job->pipeline.schedule, job->pipeline.chunks);
}

static int items_left(const struct setting *setting, const struct run_state *state)
{
    return setting->model->num_items - model_frozen_items(setting->model, state->num_frozen_layers);
}

/* Set which K and R the planner may try. */
static enum status set_counts(const struct job *job, const struct setting *setting,
                              const struct run_state *state, struct planner_problem *problem,
                              struct planner_options *options, struct err *err)
{
    const struct plan *old = state->old;
    const int stages = turn_stages(job, state->turn);
    int *k = &options->num_ranks, *r = &options->num_replicas;
    problem->most_replicas = turn_elastic(job);
    if (old) {
        const int left = items_left(setting, state), chunks = chunks_of(job);
        const int most = left > chunks ? left / chunks : 1;
        *k = job->elastic.auto_pipe ? AUTO : old->num_ranks < most ? old->num_ranks : most;
        *r = job->elastic.auto_dp ? AUTO : plan_width(old);
        problem->most_samples = state->num_samples;
    }
    if (stages > 0) {
        *k = stages;
        if (!old && *r == AUTO && !job->elastic.auto_dp)
            *r = 1;
    }
    if (*k == AUTO && old && (greedy(job) || job->elastic.halving))
        return halve(job, setting, state, k, err);
    return OK;
}

/* Fix M under canonical sums, and check R and M against the global batch. */
static enum status set_microbatches(const struct job *job, const struct run_state *state,
                                    struct planner_options *options, struct err *err)
{
    const bool canonical = job->train.reduction == REDUCTION_CANONICAL;
    const bool global = job->train.batch_mode == BATCH_GLOBAL;
    const int r = options->num_replicas;
    int *m = &options->num_microbatches;
    if (canonical && global && *m == AUTO && state->old)
        *m = state->old->microbatches.count * plan_width(state->old);
    if (r == AUTO)
        return OK;
    if (canonical && (r & (r - 1)) != 0)
        return err_set(err, ERR_INFEASIBLE,
                       "train.reduction canonical needs a power of two of replicas, got %d", r);
    if (global && job->train.batch % r != 0)
        return err_set(err, ERR_INPUT,
                       "%s: train.batch.global must be a multiple of the %d replicas, got %lld",
                       job->path ? job->path : job->name, r, (long long)job->train.batch);
    if (canonical && global && *m != AUTO && (job->train.batch % *m != 0 || *m % r != 0))
        return err_set(
            err, ERR_INFEASIBLE,
            "train.reduction canonical: %lld samples of the global batch and %d replicas "
            "must divide into %d micro-batches",
            (long long)job->train.batch, r, *m);
    return OK;
}

/* Set where the frozen forward may run, and whether plans may read its output from the cache. */
static void set_frozen(const struct job *job, const struct setting *setting,
                       const struct run_state *state, struct planner_problem *problem,
                       struct planner_options *options)
{
    const struct plan *old = state->old;
    const bool skips = setting->model->num_skips > 0;
    const bool asked = !options->frozen_auto && options->frozen == FROZEN_CACHED;
    const int level = old && old->frozen == FROZEN_CACHED ? old->first_item[0] : 0;
    const int frozen = model_frozen_items(setting->model, state->num_frozen_layers);
    if (state->num_frozen_layers == 0)
        return;
    if (skips) { /* skip tensors never leave the pipeline, so the prefix must stay in it */
        options->frozen_auto = false;
        options->frozen = FROZEN_SPREAD;
    } else if (asked) { /* for plans that cannot read the cache */
        options->frozen_auto = true;
        options->frozen = FROZEN_SPREAD;
    }
    if (skips || state->cache_room <= 0)
        return;
    problem->cache = (struct planner_cache){
        .use = job->cache.policy == CACHE_ON || (asked && state->cache_filled) ? CACHE_WANTED
                                                                               : CACHE_ALLOWED,
        .filled = state->cache_filled,
        .level = level <= frozen ? level : 0, /* else the prefix trains again: content is dropped */
        .room = state->cache_room,
        .whole = state->cache_whole,
        .epochs = job->train.epochs - state->epoch,
        .views = job_views(job)};
}

/* Ask the planner. If every plan should read the cache and none can, fall back to plans that
 * compute the prefix. If a greedy balancer leaves a stage empty for a K that must stay, fall back
 * to the optimal balancer. */
static enum status solve(const struct job *job, const struct run_state *state,
                         struct planner_problem *problem, struct planner_options *options,
                         struct planner_result *result, struct err *err)
{
    struct err why = {0};
    enum status rc = planner_solve(problem, options, result, &why);
    if (rc == ERR_INFEASIBLE && problem->cache.use == CACHE_WANTED) {
        problem->cache.use = CACHE_UNUSED;
        rc = planner_solve(problem, options, result, err);
        problem->cache.use = CACHE_WANTED;
    } else if (rc != OK) {
        err_copy(err, &why);
    }
    if (rc == ERR_INFEASIBLE && greedy(job) && state->old && !job->elastic.auto_pipe) {
        options->balancer = BALANCER_OPTIMAL;
        options->frozen_auto = false;
        options->frozen = FROZEN_FIRST;
        if (problem->batch_mode != BATCH_GLOBAL)
            options->num_microbatches = state->old->microbatches.count;
        rc = planner_solve(problem, options, result, err);
    }
    return rc;
}

/* The greedy balancers cut for whole devices and know no layouts. A run that changes its plan changes
 * replicas one by one. */
static enum status check_balancer(const struct job *job, const struct planner_options *options,
                                  struct err *err)
{
    if (job->pipeline.layout.at.context > 1 && (greedy(job) || turn_elastic(job)))
        return err_set(
            err, ERR_INFEASIBLE,
            greedy(job) ? "pipeline.context cannot be combined with pipeline.balancer"
                        : "pipeline.context cannot be combined with a run that changes its plan");
    const bool tensor = options->layout.open[LAYOUT_TENSOR] || options->layout.at.tensor > 1,
               shard = options->layout.open[LAYOUT_SHARD] || options->layout.at.shard != SHARD_NONE;
    if (!greedy(job) || (!tensor && !shard))
        return OK;
    return err_set(err, ERR_INFEASIBLE, "pipeline.balancer %s cannot be combined with pipeline.%s",
                   balancer_kind_names[job->pipeline.balancer], tensor ? "tensor" : "shard");
}

/* Time a plan as the planner times candidates, and fill in its memory. */
static enum status time_plan(const struct setting *setting, const struct planner_judge *judge,
                             struct planner_candidate *candidate, struct err *err)
{
    struct plan *plan = &candidate->plan;
    struct workload workload = {0};
    struct schedule full = {0};
    struct step_time time = {0};
    int64_t traffic_ns = 0;
    enum status rc = plan_lower(setting, plan, &workload, &full, err);
    THEN(schedule_memory(&full, &workload, plan->memory_bytes, err));
    THEN(schedule_time(&full, &workload, plan, &time, err));
    THEN(workload_traffic_ns(&workload, plan, &traffic_ns, err));
    candidate->unshared_ns = time.step_ns;
    plan->step_ns = time.step_ns > traffic_ns ? time.step_ns : traffic_ns;
    if (rc == OK && judge && judge->step_ns)
        rc = judge->step_ns(judge->ctx, plan, &candidate->judged_ns, err);
    if (candidate->judged_ns > plan->step_ns)
        plan->step_ns = candidate->judged_ns;
    step_time_clear(&time);
    schedule_clear(&full);
    workload_clear(&workload);
    return rc;
}

enum status plan_find_order(const struct setting *setting, struct plan *plan, struct err *err)
{
    struct workload workload = {0};
    struct schedule found = {0};
    if (plan->num_ranks == 1) /* all lists take the same time there */
        return OK;
    enum status rc = schedule_auto(setting, plan, &workload, &found, err);
    THEN(plan_set_order(plan, found.kind, found.kind < SCHEDULE_SEARCH ? NULL : &found, err));
    schedule_clear(&found);
    workload_clear(&workload);
    return rc;
}

/* Search op lists for the layout of the chosen plan, and choose it with them if it is faster. */
static enum status prefer_order(const struct setting *setting, const struct planner_judge *judge,
                                struct planner_result *result, struct err *err)
{
    struct planner_candidate next = {.lower_bound_ns = result->best[0].lower_bound_ns};
    struct err why = {0};
    enum status rc = plan_copy(&result->plan, &next.plan, &why);
    THEN(plan_find_order(setting, &next.plan, &why));
    THEN(time_plan(setting, judge, &next, &why));
    if (rc == OK && next.plan.step_ns < result->plan.step_ns)
        rc = planner_result_prefer(result, &next, &why);
    else if (rc == ERR_INFEASIBLE) /* no list fits, or the judge refuses it */
        rc = OK;
    plan_clear(&next.plan);
    return rc == OK ? OK : err_copy(err, &why);
}

/* Refuse the first plan of a job if it is too large for the search of op lists, which would find
 * nothing. A later plan then keeps its named schedule. */
static enum status search_order(const struct job *job, const struct setting *setting,
                                const struct run_state *state, const struct planner_judge *judge,
                                struct planner_result *result, struct err *err)
{
    const struct plan *plan = &result->plan;
    if (schedule_search_work(plan) <= SCHEDULE_SEARCH_WORK)
        return prefer_order(setting, judge, result, err);
    return state->old ? OK
                      : err_set(err, ERR_INFEASIBLE,
                                "%s: pipeline.schedule search takes up to %lld ops x ranks, "
                                "%d stages on %d ranks and %d micro-batches have %lld",
                                job->path ? job->path : job->name, (long long)SCHEDULE_SEARCH_WORK,
                                plan->num_stages, plan->num_ranks, plan->microbatches.count,
                                (long long)schedule_search_work(plan));
}

/* Take the given plan if its frozen layers match the run's. */
static enum status take_given(const struct plan *given, int num_frozen, struct plan *plan,
                              struct err *err)
{
    if (given->num_frozen_layers != num_frozen)
        return err_set(err, ERR_INFEASIBLE, "plan.frozen_layers is %d, the run begins with %d",
                       given->num_frozen_layers, num_frozen);
    return plan_copy(given, plan, err);
}

/* Fill the planner's problem and options. */
static enum status set_problem(const struct job *job, const struct setting *setting,
                               const struct run_state *state, struct planner_problem *problem,
                               struct planner_options *options, struct err *err)
{
    planner_from_job(job, setting, state->num_frozen_layers, problem, options);
    options->recompute_inside = options->recompute_inside && !state->executor;
    open_layout(job, setting, state, options);
    problem->with_device_0 = state->executor;
    if (items_left(setting, state) < chunks_of(job)) {
        options->schedules = 1u << SCHEDULE_1F1B;
        options->chunks = 1;
    }
    enum status rc = check_balancer(job, options, err);
    THEN(restrict_to_target(job, options, err));
    THEN(set_counts(job, setting, state, problem, options, err));
    THEN(set_microbatches(job, state, options, err));
    if (rc == OK)
        set_frozen(job, setting, state, problem, options);
    return rc;
}

enum status plan_only(const struct job *job, const struct setting *setting,
                      const struct run_state *state, bool any_cut, struct plan *plan,
                      struct err *err)
{
    struct planner_problem problem;
    struct planner_options options;
    if (state->old || state->given || job_searches(job) ||
        job->train.reduction == REDUCTION_CANONICAL || job->freeze.max_share > 0)
        return OK;
    const enum status rc = set_problem(job, setting, state, &problem, &options, err);
    return rc == OK ? planner_only(&problem, &options, any_cut, plan, err) : rc;
}

/* Forward and backward of a full micro-batch in each stage. */
static enum status time_stages(const struct setting *setting, const struct plan *plan,
                               int64_t *stage_ns, struct err *err)
{
    struct workload workload = {0};
    struct schedule full = {0};
    const enum status rc = plan_lower(setting, plan, &workload, &full, err);
    for (int s = 0; rc == OK && s < plan->num_stages; s++)
        stage_ns[s] = workload_stage_ns(&workload, s);
    schedule_clear(&full);
    workload_clear(&workload);
    return rc;
}

/* Whether two plans differ in their cuts at most. */
static bool same_but_cut(const struct plan *a, const struct plan *b)
{
    return a->num_ranks == b->num_ranks && a->num_stages == b->num_stages &&
           a->num_pipelines == b->num_pipelines && a->batch == b->batch &&
           a->microbatches.count == b->microbatches.count && a->schedule == b->schedule &&
           a->frozen == b->frozen && a->recompute == b->recompute &&
           a->num_frozen_layers == b->num_frozen_layers;
}

/* Stages that leave out weight gradients can hold more items. Cut anew by costs of which shares of
 * max_share are gone, with all else as chosen, and take that cut if the step ends sooner. */
static enum status move_cut(const struct job *job, const struct setting *setting,
                            const struct run_state *state, const struct planner_judge *judge,
                            struct planner_result *result, struct err *err)
{
    struct plan *plan = &result->plan;
    struct lighter_cost lighter;
    struct planner_problem problem;
    struct planner_options options;
    struct planner_result other = {0};
    struct planner_candidate next = {0};
    struct err why = {0};
    lighter_cost_init(setting->cost, 1 - job->freeze.max_share, &lighter);
    const struct setting light = {setting->model, setting->cluster, &lighter.cost};
    enum status rc = set_problem(job, &light, state, &problem, &options, &why);
    options.num_ranks = plan->num_ranks;
    options.num_replicas = plan->num_pipelines;
    options.num_microbatches = plan->microbatches.count;
    options.microbatch_size = AUTO;
    options.schedules = 1u << plan->schedule;
    options.chunks = plan->chunks;
    THEN(solve(job, state, &problem, &options, &other, &why));
    const size_t cut = ((size_t)plan->num_stages + 1) * sizeof *plan->first_item;
    if (rc == OK && same_but_cut(plan, &other.plan) &&
        memcmp(plan->first_item, other.plan.first_item, cut) != 0) {
        rc = plan_copy(plan, &next.plan, &why);
        if (rc == OK)
            memcpy(next.plan.first_item, other.plan.first_item, cut);
        shares_free(&next.plan.shares);
        THEN(time_plan(setting, judge, &next, &why));
        THEN(plan_set_shares(setting, job->freeze.max_share, &next.plan, &why));
        if (rc == OK && next.plan.step_ns < plan->step_ns) {
            rc = time_stages(setting, &next.plan, result->stage_ns, &why);
            plan_clear(plan);
            *plan = next.plan;
            next.plan = (struct plan){0};
        }
    }
    plan_clear(&next.plan);
    planner_result_clear(&other);
    return rc == ERR_NOMEM ? err_copy(err, &why) : OK; /* the plan stands without another cut */
}

/* Samples per second of a plan with shares, by the judge if there is one. ERR_INFEASIBLE: it refuses the plan. */
static enum status rate_shares(const struct planner_judge *judge, struct plan *plan, double *rate,
                               struct err *err)
{
    int64_t step_ns = 0;
    enum status rc = OK;
    if (judge && judge->step_ns)
        rc = judge->step_ns(judge->ctx, plan, &step_ns, err);
    *rate = plan_samples_per_s(plan, step_ns > plan->step_ns ? step_ns : plan->step_ns);
    return rc;
}

/* result->plan has become that of another candidate. */
static enum status choose_candidate(const struct setting *setting, int index,
                                    struct planner_result *result, struct err *err)
{
    const struct planner_candidate chosen = result->best[index];
    int64_t *stage_ns = calloc((size_t)result->plan.num_stages, sizeof *stage_ns);
    if (!stage_ns)
        return err_nomem(err);
    free(result->stage_ns);
    result->stage_ns = stage_ns;
    memmove(result->best + 1, result->best, (size_t)index * sizeof chosen);
    result->best[0] = chosen;
    planner_result_mark(result);
    return time_stages(setting, &result->plan, result->stage_ns, err);
}

/* The plan that is best as a whole need not be the best with shares. Give other candidates theirs, and take the
 * one that is fastest with them in place of the chosen plan. */
static enum status compare_shares(const struct job *job, const struct setting *setting,
                                  const struct planner_judge *judge, struct planner_result *result,
                                  struct err *err)
{
    struct planner_progress progress = {.phase = PLANNER_JUDGES,
                                        .memory_share = result->memory_share};
    int best = 0;
    enum status rc = rate_shares(judge, &result->plan, &progress.best_per_s, err);
    for (int i = 1; i < result->num_best && rc == OK; i++) {
        const struct plan *of = &result->best[i].plan;
        struct plan plan = {0};
        struct err why = {0};
        double rate = 0;
        if (of->frozen != result->plan.frozen || of->frozen == FROZEN_CACHED ||
            (judge && judge->watch && !judge->watch(judge->watch_ctx, &progress)))
            continue;
        rc = plan_copy(of, &plan, &why);
        if (rc == OK && !plan.memory_bytes)
            plan.memory_bytes = calloc((size_t)plan.num_ranks, sizeof *plan.memory_bytes);
        if (rc == OK && !plan.memory_bytes)
            rc = err_nomem(&why);
        THEN(plan_set_shares(setting, job->freeze.max_share, &plan, &why));
        THEN(rate_shares(judge, &plan, &rate, &why));
        if (rc == OK && rate > progress.best_per_s) {
            const struct plan slower = result->plan;
            result->plan = plan;
            plan = slower;
            progress.best_per_s = rate;
            best = i;
        }
        plan_clear(&plan);
        rc = rc == ERR_NOMEM ? err_copy(err, &why) : OK; /* a plan stands without another */
    }
    return rc == OK && best > 0 ? choose_candidate(setting, best, result, err) : rc;
}

/* Give the chosen plan its shares of weight gradients. They are solved without shared links; the judge,
 * which may be NULL, then says what a step of the plan takes. */
static enum status leave_out(const struct job *job, const struct setting *setting,
                             const struct run_state *state, const struct planner_judge *judge,
                             struct planner_result *result, struct err *err)
{
    const int64_t whole_ns = result->plan.step_ns;
    int64_t step_ns = 0;
    enum status rc = plan_leave_out(setting, job->freeze.max_share, &result->plan, err);
    const bool named = rc == OK && result->plan.shares.share && !greedy(job) &&
                       result->plan.schedule < SCHEDULE_SEARCH && !state->old;
    if (named)
        rc = compare_shares(job, setting, judge, result, err);
    if (rc == OK && named && result->plan.num_stages > 1)
        rc = move_cut(job, setting, state, judge, result, err);
    if (rc == OK && result->plan.shares.share && judge && judge->step_ns)
        rc = judge->step_ns(judge->ctx, &result->plan, &step_ns, err);
    if (rc == OK && result->plan.shares.share) {
        if (step_ns > result->plan.step_ns)
            result->plan.step_ns = step_ns;
        result->whole_ns = whole_ns;
        result->lower_bound_ns = 0; /* it is one of plans without shares */
        result->gap = 0;
        result->samples_per_s = plan_samples_per_s(&result->plan, result->plan.step_ns);
    }
    return rc;
}

enum status plan_for(const struct job *job, const struct setting *setting,
                     const struct run_state *state, const struct planner_judge *judge,
                     struct planner_result *result, struct err *err)
{
    struct planner_problem problem;
    struct planner_options options;
    struct planner_result got = {0};
    if (state->given && !state->old)
        return take_given(state->given, state->num_frozen_layers, &result->plan, err);
    enum status rc = set_problem(job, setting, state, &problem, &options, err);
    if (rc != OK)
        return rc;
    if (judge)
        options.judge = *judge;
    options.judge.all |= job->freeze.max_share > 0; /* compare_shares() chooses among them */
    rc = solve(job, state, &problem, &options, &got, err);
    struct plan *plan = &got.plan;
    if (rc == OK && problem.canonical && plan->batch % plan->microbatches.count != 0)
        rc = err_set(err, ERR_INFEASIBLE,
                     "train.reduction canonical needs equal micro-batches: %lld samples do not "
                     "divide into %d",
                     (long long)plan->batch, plan->microbatches.count);
    if (rc == OK && state->old)
        rc = autodp_keep_devices(setting->model, setting->cluster, state->old, state->executor,
                                 plan, err);
    if (rc == OK && job_searches(job))
        rc = search_order(job, setting, state, judge, &got, err);
    if (rc == OK && job->freeze.max_share > 0)
        rc = leave_out(job, setting, state, judge, &got, err);
    if (rc == OK) {
        *result = got;
        got = (struct planner_result){0};
    }
    planner_result_clear(&got);
    return rc;
}
