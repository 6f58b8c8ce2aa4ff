#include "sim/elastic_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/autodp.h"
#include "partition/planner.h"
#include "partition/units.h"

/* One kind of epoch: boundary, cache level read (0: none), level written or not; K where
 * elastic.stages says it, else 0. */
struct epoch_kind {
    int frozen, read, stages;
    bool write;
};

/* What an epoch of a kind costs; simulated once. */
struct epoch_cost {
    struct epoch_kind kind;
    struct plan plan; /* owned; of the whole model, for transitions */
    int64_t steps, step_ns, last_step_ns;
    double bubble_fraction;
};

struct runner {
    const struct job *job;
    struct cost cost; /* with the job's cache times */
    int64_t num_samples, num_test;
    const struct sim_options *options;
    struct plan first;        /* owned; plan of F = 0 */
    struct epoch_cost *known; /* owned */
    int num_known, max_known;
    int64_t steps_simulated;
    bool extrapolated;
    struct err *err;
};

/* ---- a model whose first `cut` items are replaced by reading their output from the cache ---- */

struct cached_view {
    const struct model *whole;
    const struct cost *base;
    int offset; /* item i of the view is item i + offset of the model, for i > 0 */
    int64_t bytes;
    struct model model; /* owned */
    struct cost cost;   /* ctx is this view */
};

static enum status view_item_ns(const void *ctx, const struct model *model, int item,
                                enum pass pass, int64_t samples, const struct device *device,
                                int64_t *ns, bool *extrapolated, struct err *err)
{
    const struct cached_view *view = ctx;
    (void)model;
    if (item > 0)
        return view->base->item_ns(view->base->ctx, view->whole, item + view->offset, pass, samples,
                                   device, ns, extrapolated, err);
    *ns = 0;
    if (pass == PASS_FWD)
        *ns =
            samples * view->base->cache_read_ns +
            (int64_t)((double)samples * (double)view->bytes / device->copy_bytes_per_s * 1e9 + 0.5);
    return OK;
}

static int64_t view_transfer_ns(const void *ctx, const struct cluster *cluster, int from, int to,
                                int64_t bytes)
{
    const struct cached_view *view = ctx;
    return cost_transfer_ns(view->base, cluster, from, to, bytes);
}

static int64_t view_allreduce_ns(const void *ctx, const struct cluster *cluster, const int *devices,
                                 int n, int64_t bytes)
{
    const struct cached_view *view = ctx;
    return cost_allreduce_ns(view->base, cluster, devices, n, bytes);
}

static void view_clear(struct cached_view *view)
{
    model_clear(&view->model);
}

/* Layers [0, level) come from the cache. The view stays where it is: its cost points at it. */
static enum status view_init(struct cached_view *view, const struct model *model,
                             const struct cost *base, int level, struct err *err)
{
    *view = (struct cached_view){.whole = model, .base = base};
    int gone = model_frozen_items(model, level);
    view->offset = gone - 1;
    view->bytes = model->items[gone - 1].act_bytes;
    enum status rc = model_copy(model, &view->model, err);
    if (rc != OK)
        return rc;
    struct model *m = &view->model;
    m->num_items -= view->offset;
    m->num_layers -= level;
    memmove(&m->items[1], &m->items[gone], (size_t)(m->num_items - 1) * sizeof *m->items);
    m->items[0] = (struct item){
        .name = "cache", .kind = ITEM_EMBEDDING, .layer = -1, .act_bytes = view->bytes};
    for (int i = 1; i < m->num_items; i++)
        m->items[i].layer -= level;
    m->num_skips = 0;
    view->cost = *base;
    view->cost.ctx = view;
    view->cost.item_ns = view_item_ns;
    view->cost.transfer_ns = view_transfer_ns;
    view->cost.allreduce_ns = view_allreduce_ns;
    return OK;
}

/* ---- plans and steps ---- */

struct judge {
    const struct model *model;
    const struct cluster *cluster;
    const struct cost *cost;
    bool *extrapolated; /* set when a step's costs are; NULL: nobody asks */
};

static enum status simulate(const struct judge *on, const struct plan *plan,
                            const struct sim_options *options, int64_t *step_ns, double *bubble,
                            struct err *err)
{
    struct workload workload = {0};
    struct schedule full = {0};
    struct sim_result result = {0};
    struct sim_options quiet = *options;
    quiet.record_ops = false;
    enum status rc = sim_check_size(plan, err);
    if (rc == OK)
        rc = plan_lower(on->model, on->cluster, on->cost, plan, NULL, &workload, &full, err);
    if (rc == OK)
        rc = sim_step(&full, &workload, on->cluster, on->cost, plan, &quiet, &result, err);
    if (rc == OK) {
        *step_ns = result.step_ns;
        *bubble = result.bubble_fraction;
        if (on->extrapolated && workload.extrapolated)
            *on->extrapolated = true;
    }
    workload_clear(&workload);
    schedule_clear(&full);
    sim_result_clear(&result);
    return rc;
}

static enum status judge_plan(void *ctx, const struct plan *plan, int64_t *step_ns, struct err *err)
{
    static const struct sim_options plain = {.seed = 1};
    double bubble;
    return simulate(ctx, plan, &plain, step_ns, &bubble, err);
}

/* R2. first is the plan of F = 0, NULL for that one itself. stages: K, 0: as the job says. */
static enum status choose_plan(const struct job *job, const struct cost *cost, int num_frozen,
                               const struct plan *first, int stages, bool filled, bool write,
                               struct plan *plan, struct err *err)
{
    const struct model *model = &job->model;
    struct planner_problem problem;
    struct planner_options options;
    struct planner_result result = {0};
    struct judge judge = {model, &job->cluster, cost, NULL};
    planner_from_job(job, cost, num_frozen, &problem, &options);
    options.cache_filled = filled;
    options.cache_write = write;
    if (filled && job->pipeline.balancer == BALANCER_OPTIMAL) {
        options.frozen_auto = false;
        options.frozen = FROZEN_CACHED;
        options.equal_microbatches = true; /* as exec/: its cache serves full micro-batches */
    }
    if (filled && job->pipeline.balancer != BALANCER_OPTIMAL)
        options.frozen_auto = true;
    if (first && num_frozen > 0) {
        if (job->elastic.auto_pipe) {
            options.num_ranks = AUTO;
            options.num_replicas = job->elastic.auto_dp ? AUTO : first->num_replicas;
        } else {
            int left = model->num_items - model_frozen_items(model, num_frozen);
            options.num_ranks = first->num_ranks < left ? first->num_ranks : left;
            options.num_replicas = first->num_replicas;
            options.chunks = first->chunks;
        }
    }
    if (stages > 0) {
        options.num_ranks = stages;
        options.num_replicas = job->pipeline.num_replicas ? job->pipeline.num_replicas : 1;
        if (job->elastic.auto_dp && (first || job->pipeline.num_replicas == AUTO))
            options.num_replicas =
                job->cluster.num_devices / stages; /* all that there is room for */
        else if (first)
            options.num_replicas = first->num_replicas;
    }
    if (job->pipeline.balancer == BALANCER_OPTIMAL) {
        options.judge = judge_plan;
        options.judge_ctx = &judge;
    }
    bool fixed = first && num_frozen > 0 && !job->elastic.auto_pipe && stages == 0;
    struct err tried = {0};
    enum status rc = planner_solve(&problem, &options, &result, fixed ? &tried : err);
    if (fixed && rc == ERR_INFEASIBLE && options.balancer != BALANCER_OPTIMAL) {
        /* K stays and a greedy balancer may leave stages empty: the nearest cut that has none. */
        options.balancer = BALANCER_OPTIMAL;
        options.frozen_auto = false;
        options.frozen = filled ? FROZEN_CACHED : FROZEN_FIRST;
        options.num_microbatches = first->microbatches.count;
        rc = planner_solve(&problem, &options, &result, err);
    } else if (fixed && rc != OK) {
        err_set(err, rc, "%s", tried.msg);
    }
    if (rc == OK) {
        *plan = result.plan;
        result.plan = (struct plan){0};
        plan->cache_write = write && plan->frozen != FROZEN_CACHED && num_frozen > 0;
    }
    planner_result_clear(&result);
    return rc;
}

/* K of an epoch as elastic.stages says it; 0: it does not. */
static int wanted_stages(const struct job *job, int epoch)
{
    int last = job->elastic.num_stages - 1;
    return last < 0 ? 0 : job->elastic.stages[epoch < last ? epoch : last];
}

enum status elastic_plan(const struct job *job, const struct cost *cost, int num_frozen_layers,
                         bool filled, bool write, struct plan *plan, struct err *err)
{
    if (num_frozen_layers < 0 || num_frozen_layers > job->model.num_layers)
        return err_set(err, ERR_INFEASIBLE, "frozen must be 0..%d for model '%s', got %d",
                       job->model.num_layers, job->model.name, num_frozen_layers);
    return choose_plan(job, cost, num_frozen_layers, NULL, wanted_stages(job, 0), filled, write,
                       plan, err);
}

/* Move a plan's cut by `offset` items: whole model to view (negative) or back. */
static void shift_cut(struct plan *plan, int offset)
{
    for (int s = plan->first_item[0] == 0 ? 1 : 0; s <= plan->num_stages; s++)
        plan->first_item[s] += offset;
}

/* R4. */
static enum status simulate_epoch(struct runner *run, const struct judge *on, struct plan *plan,
                                  struct epoch_cost *cost)
{
    int64_t per_step;
    if (!mul_ok(plan->batch, plan->num_replicas, &per_step))
        return err_set(run->err, ERR_INPUT, "batch %lld x %d replicas overflows",
                       (long long)plan->batch, plan->num_replicas);
    enum status rc =
        simulate(on, plan, run->options, &cost->step_ns, &cost->bubble_fraction, run->err);
    run->steps_simulated++;
    if (rc != OK)
        return rc;
    cost->steps = (run->num_samples - 1) / per_step + 1;
    cost->last_step_ns = cost->step_ns;
    int64_t total;
    if (!mul_ok(cost->steps, cost->step_ns, &total) || total > INT64_MAX / 4)
        return err_set(run->err, ERR_INPUT, "an epoch of %lld samples is too long to simulate",
                       (long long)run->num_samples);
    int64_t left = run->num_samples - (cost->steps - 1) * per_step;
    int64_t share = (left + plan->num_replicas - 1) / plan->num_replicas;
    if (share < plan->batch) {
        struct plan small = {0};
        double bubble;
        rc = plan_copy(plan, &small, run->err);
        if (rc == OK) {
            small.batch = share;
            small.microbatches = microbatches_of(
                share, plan->microbatches.count < share ? plan->microbatches.count : (int)share);
            rc = simulate(on, &small, run->options, &cost->last_step_ns, &bubble, run->err);
            run->steps_simulated++;
            if (rc == ERR_INFEASIBLE) { /* a schedule that wants M in multiples: pad to a step */
                *run->err = (struct err){0};
                cost->last_step_ns = cost->step_ns;
                rc = OK;
            }
        }
        plan_clear(&small);
    }
    return rc;
}

/* Where steps run: the job's cluster with what slows it. */
static const struct cluster *step_cluster(const struct runner *run)
{
    return run->options->slowed ? run->options->slowed : &run->job->cluster;
}

/* R6. */
static enum status evaluation_ns(struct runner *run, const struct plan *plan, int64_t *ns)
{
    struct plan eval = {0};
    struct workload w = {0};
    int64_t share = (run->num_test - 1) / plan->num_replicas + 1;
    int64_t count = (share - 1) / plan->microbatches.size + 1;
    *ns = 0;
    enum status rc = plan_copy(plan, &eval, run->err);
    if (rc == OK) {
        eval.num_frozen_layers = 0;
        eval.frozen = FROZEN_NONE;
        eval.cache_write = false;
        eval.recompute = RECOMPUTE_NEVER;
        eval.first_item[0] = 0;
        rc = workload_build(&run->job->model, step_cluster(run), &run->cost, &eval, &w, run->err);
    }
    run->extrapolated = run->extrapolated || w.extrapolated;
    for (int c = 0; c < w.num_classes && rc == OK; c++) {
        int64_t once = 0, slowest = 0;
        for (int k = 0; k < w.num_ranks; k++) {
            int64_t busy = 0;
            for (int s = 0; s < w.num_stages; s++) {
                if (w.rank_of_stage[s] == k)
                    busy += w.stages[c * w.num_stages + s].op_ns[OP_F][MB_FULL];
            }
            once += busy;
            if (busy > slowest)
                slowest = busy;
        }
        for (int e = 0; e < w.num_stages - 1; e++)
            once += workload_edge_ns(&w, c, e, false, MB_FULL);
        int64_t all;
        if (!mul_ok(slowest, count - 1, &all) || !add_ok(all, once, &all))
            rc = err_set(run->err, ERR_INPUT, "an evaluation of %lld samples is too long",
                         (long long)run->num_test);
        else if (all > *ns)
            *ns = all;
    }
    workload_clear(&w);
    plan_clear(&eval);
    return rc;
}

/* Plan and simulate an epoch of a kind, or find it done. */
static enum status epoch_of(struct runner *run, struct epoch_kind kind,
                            const struct epoch_cost **found)
{
    for (int i = 0; i < run->num_known; i++) {
        const struct epoch_kind *k = &run->known[i].kind;
        if (k->frozen == kind.frozen && k->read == kind.read && k->write == kind.write &&
            k->stages == kind.stages) {
            *found = &run->known[i];
            return OK;
        }
    }
    const struct job *job = run->job;
    struct epoch_cost cost = {.kind = kind};
    struct cached_view view = {0};
    struct judge on = {&job->model, step_cluster(run), &run->cost, &run->extrapolated};
    const struct plan *first = run->first.num_ranks ? &run->first : NULL;
    const bool upgrade = kind.read > 0 && kind.read < kind.frozen;
    const bool greedy = job->pipeline.balancer != BALANCER_OPTIMAL;
    enum status rc = OK;
    if (upgrade) {
        rc = view_init(&view, &job->model, &run->cost, kind.read, run->err);
        if (rc != OK)
            goto out;
        on.model = &view.model;
        on.cost = &view.cost;
    }
    /* The plan is that of the epochs that read; what the cache lacks is computed before it. */
    rc = choose_plan(job, &run->cost, kind.frozen, first, kind.stages,
                     greedy ? kind.read > 0 && !upgrade : kind.read > 0 || kind.write,
                     greedy && kind.write, &cost.plan, run->err);
    if (rc != OK)
        goto out;
    const enum frozen_placement placement = cost.plan.frozen;
    if (placement == FROZEN_CACHED && kind.read < kind.frozen) {
        cost.plan.frozen = FROZEN_FIRST;
        cost.plan.cache_write = kind.write;
    }
    if (upgrade) {
        shift_cut(&cost.plan, -view.offset);
        cost.plan.num_frozen_layers = kind.frozen - kind.read;
    }
    rc = simulate_epoch(run, &on, &cost.plan, &cost);
    if (rc != OK)
        goto out;
    if (upgrade) {
        shift_cut(&cost.plan, view.offset);
        cost.plan.num_frozen_layers = kind.frozen;
    }
    cost.plan.frozen = placement;
    if (run->num_known == run->max_known) {
        int max = run->max_known ? 2 * run->max_known : 16;
        struct epoch_cost *more = realloc(run->known, (size_t)max * sizeof *more);
        if (!more) {
            rc = err_nomem(run->err);
            goto out;
        }
        run->known = more;
        run->max_known = max;
    }
    run->known[run->num_known] = cost;
    cost.plan = (struct plan){0};
    *found = &run->known[run->num_known++];
out:
    view_clear(&view);
    plan_clear(&cost.plan);
    return rc;
}

static int64_t steps_ns(const struct epoch_cost *cost)
{
    return (cost->steps - 1) * cost->step_ns + cost->last_step_ns;
}

/* Whether a level of the cache fits the limit of each node. */
static bool level_fits(const struct runner *run, int frozen)
{
    const struct job *job = run->job;
    int64_t bytes, node = job->cluster.num_nodes;
    if (job->cache.limit_bytes == 0)
        return true;
    int last = model_frozen_items(&job->model, frozen) - 1;
    int64_t item = job->model.items[last].act_bytes / (job->cache.bf16 ? 2 : 1);
    return mul_ok(item, (run->num_samples - 1) / node + 1, &bytes) &&
           bytes <= job->cache.limit_bytes;
}

/* R3 for a run whose cache starts at epoch `from` (num_epochs: never). */
static void epoch_kinds(const struct runner *run, const int *frozen, int num_epochs, int from,
                        struct epoch_kind *kinds)
{
    int level = 0;
    for (int e = 0; e < num_epochs; e++) {
        kinds[e] = (struct epoch_kind){.frozen = frozen[e], .stages = wanted_stages(run->job, e)};
        if (frozen[e] == 0 || e < from)
            continue;
        kinds[e].read = level;
        if (frozen[e] > level && e + 1 < num_epochs && level_fits(run, frozen[e])) {
            kinds[e].write = true;
            level = frozen[e];
        }
        if (run->job->model.num_skips > 0 && kinds[e].read < frozen[e])
            kinds[e].read = 0; /* a skip tensor would have to be cached with every level */
    }
}

/* R5. */
static enum status transition_parts(struct runner *run, const struct plan *old, struct plan *plan,
                                    struct elastic_epoch *epoch)
{
    if (old->num_ranks == plan->num_ranks && old->num_replicas == plan->num_replicas &&
        old->num_stages == plan->num_stages && old->frozen == plan->frozen &&
        memcmp(old->first_item, plan->first_item,
               ((size_t)plan->num_stages + 1) * sizeof *plan->first_item) == 0)
        return OK;
    struct transition transition = {0};
    enum status rc =
        transition_build(&run->job->model, &run->job->cluster, old, plan, &transition, run->err);
    if (rc != OK)
        return rc;
    epoch->move_ns = transition.ns;
    epoch->moved_bytes = transition.bytes;
    if (old->num_ranks != plan->num_ranks || old->num_replicas != plan->num_replicas)
        epoch->setup_ns = run->job->elastic.setup_ns;
    transition_clear(&transition);
    if (!add_ok(epoch->move_ns, epoch->setup_ns, &epoch->transition_ns))
        return err_set(run->err, ERR_INPUT, "a change of plan is too long to simulate");
    return OK;
}

/* What an epoch's steps take longer because the cache lacks their level: R3. */
static enum status fill_ns(struct runner *run, struct epoch_kind kind,
                           const struct epoch_cost *cost, int64_t *ns)
{
    const int64_t whole = steps_ns(cost); /* cost may move */
    const struct epoch_cost *filled;
    enum status rc = OK;
    *ns = 0;
    if (!kind.write)
        return OK;
    rc = epoch_of(run, (struct epoch_kind){kind.frozen, kind.frozen, kind.stages, false}, &filled);
    if (rc == OK && whole > steps_ns(filled))
        *ns = whole - steps_ns(filled);
    return rc;
}

/* One epoch on its plan; before is the plan of the epoch before and becomes this one's. */
static enum status one_epoch(struct runner *run, int e, struct epoch_kind kind, struct plan *before,
                             bool details, struct elastic_epoch *epoch)
{
    const struct job *job = run->job;
    const int64_t every = job->train.eval_every_epochs;
    const bool evaluates =
        run->num_test > 0 && (e == job->train.epochs - 1 || (every > 0 && (e + 1) % every == 0));
    const struct epoch_cost *cost = NULL;
    struct plan plan = {0};
    *epoch = (struct elastic_epoch){0};
    enum status rc = epoch_of(run, kind, &cost);
    if (rc == OK)
        rc = plan_copy(&cost->plan, &plan, run->err);
    if (rc == OK && before->num_ranks) {
        rc = autodp_keep_devices(&job->model, &job->cluster, before, &plan, run->err);
        if (rc == OK)
            rc = transition_parts(run, before, &plan, epoch);
    }
    if (rc == OK) {
        epoch->frozen_layers = kind.frozen;
        epoch->pipeline_length = plan.num_ranks;
        epoch->replicas = plan.num_replicas;
        epoch->microbatches = plan.microbatches.count;
        epoch->microbatch_size = plan.microbatches.size;
        epoch->schedule = plan.schedule;
        epoch->frozen = plan.frozen;
        epoch->steps = cost->steps;
        epoch->step_ns = cost->step_ns;
        epoch->last_step_ns = cost->last_step_ns;
        epoch->epoch_ns = steps_ns(cost);
        epoch->samples_per_s = (double)run->num_samples * 1e9 / (double)steps_ns(cost);
        epoch->bubble_fraction = cost->bubble_fraction;
        epoch->cache_read = kind.read;
        epoch->cache_write = kind.write;
    }
    if (rc == OK && details)
        rc = fill_ns(run, kind, cost, &epoch->cache_ns);
    if (rc == OK && details && evaluates)
        rc = evaluation_ns(run, &plan, &epoch->eval_ns);
    plan_clear(before);
    *before = plan;
    return rc;
}

/* Total time with the cache from an epoch on; fills epochs when it is not NULL. */
static enum status total_of(struct runner *run, const int *frozen, int from,
                            struct elastic_epoch *epochs, int64_t *total_ns, double *device_ns)
{
    int num = run->job->train.epochs;
    struct epoch_kind *kinds = calloc((size_t)num, sizeof *kinds);
    struct plan before = {0};
    enum status rc = OK;
    if (!kinds)
        return err_nomem(run->err);
    epoch_kinds(run, frozen, num, from, kinds);
    *total_ns = 0;
    *device_ns = 0;
    for (int e = 0; rc == OK && e < num; e++) {
        struct elastic_epoch epoch;
        int64_t ns = 0;
        rc = one_epoch(run, e, kinds[e], &before, epochs != NULL, &epoch);
        if (rc == OK &&
            (!add_ok(epoch.epoch_ns, epoch.transition_ns, &ns) || !add_ok(*total_ns, ns, total_ns)))
            rc = err_set(run->err, ERR_INPUT, "a run of %d epochs is too long to simulate", num);
        *device_ns += (double)ns * epoch.pipeline_length * epoch.replicas;
        if (epochs)
            epochs[e] = epoch;
    }
    plan_clear(&before);
    free(kinds);
    return rc;
}

/* R1. */
static enum status decide_frozen(struct runner *run, int *frozen, char (*reasons)[160])
{
    const struct job *job = run->job;
    struct freeze freeze = {0};
    enum status rc = freeze_init(&freeze, &job->freeze, job->model.num_layers, run->err);
    for (int e = 0; e < job->train.epochs && rc == OK; e++) {
        const double *norms = NULL;
        if (job->norms && e > 0 && e - 1 < job->norm_epochs)
            norms = &job->norms[(int64_t)(e - 1) * job->model.num_layers];
        rc = freeze_decide(&freeze, e, norms, &frozen[e], reasons[e], run->err);
    }
    freeze_clear(&freeze);
    return rc;
}

enum status elastic_run(const struct job *job, const struct cost *cost, int64_t num_samples,
                        int64_t num_test, const struct sim_options *options,
                        struct elastic_run *result, struct err *err)
{
    enum status rc;
    int num = job->train.epochs;
    struct err local = {0};
    struct runner run = {.job = job,
                         .cost = *cost,
                         .num_samples = num_samples,
                         .num_test = num_test,
                         .options = options,
                         .err = &local};
    struct elastic_run got = {.num_epochs = num};
    int *frozen = NULL;
    char(*reasons)[160] = NULL;
    double device_ns = 0;
    if (num_samples < 1) {
        rc = err_set(&local, ERR_INPUT,
                     "data.train_samples must be set: the data kind has no published size");
        goto out;
    }
    if (num < 1) {
        rc = err_set(&local, ERR_INPUT, "train.epochs must be at least 1, got %d", num);
        goto out;
    }
    if (job->freeze.every_steps > 0 && job->freeze.policy != FREEZE_NONE) {
        rc = err_set(&local, ERR_INFEASIBLE,
                     "freeze.every_steps %lld: decisions within an epoch are not simulated",
                     (long long)job->freeze.every_steps);
        goto out;
    }
    if (job->cache.read_ns > 0)
        run.cost.cache_read_ns = job->cache.read_ns;
    if (job->cache.write_ns > 0)
        run.cost.cache_write_ns = job->cache.write_ns;
    frozen = calloc((size_t)num, sizeof *frozen);
    reasons = calloc((size_t)num, sizeof *reasons);
    got.epochs = calloc((size_t)num, sizeof *got.epochs);
    if (!frozen || !reasons || !got.epochs) {
        rc = err_nomem(&local);
        goto out;
    }
    rc = decide_frozen(&run, frozen, reasons);
    if (rc == OK)
        rc = choose_plan(job, &run.cost, 0, NULL, wanted_stages(job, 0), false, false, &run.first,
                         &local);
    if (rc != OK)
        goto out;
    int best = job->cache.policy == CACHE_ON ? 0 : num;
    if (job->cache.policy == CACHE_AUTO) {
        int64_t least = INT64_MAX;
        for (int from = num; from >= 0; from--) { /* only epochs that move the boundary matter */
            if (from < num && (frozen[from] == 0 || (from > 0 && frozen[from] == frozen[from - 1])))
                continue;
            int64_t total;
            rc = total_of(&run, frozen, from, NULL, &total, &device_ns);
            if (rc != OK)
                goto out;
            if (total < least) {
                least = total;
                best = from;
            }
        }
    }
    rc = total_of(&run, frozen, best, got.epochs, &got.total_ns, &device_ns);
    if (rc != OK)
        goto out;
    for (int e = 0; e < num; e++) {
        memcpy(got.epochs[e].reason, reasons[e], sizeof reasons[e]);
        if (!add_ok(got.eval_ns, got.epochs[e].eval_ns, &got.eval_ns)) {
            rc = err_set(&local, ERR_INPUT, "evaluations are too long to simulate");
            goto out;
        }
    }
    got.device_hours = device_ns / 3.6e12;
    got.steps_simulated = run.steps_simulated;
    got.extrapolated = run.extrapolated;
    *result = got;
    got = (struct elastic_run){0};
out:
    if (rc != OK) {
        err_set(err, rc, "%s", local.msg);
        if (local.hint[0])
            err_hint(err, "%s", local.hint);
    }
    for (int i = 0; i < run.num_known; i++)
        plan_clear(&run.known[i].plan);
    free(run.known);
    plan_clear(&run.first);
    free(frozen);
    free(reasons);
    elastic_run_clear(&got);
    return rc;
}

void elastic_run_clear(struct elastic_run *run)
{
    free(run->epochs);
    *run = (struct elastic_run){0};
}
