#include "exec/train_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/backend.h"
#include "exec/device_info.h"
#include "partition/autodp.h"
#include "partition/balance.h"
#include "partition/cache_rule.h"
#include "partition/planner.h"
#include "profiles/profile_cost.h"

/* What rank 0 decided, ready for a broadcast; first_item and device follow as arrays. */
struct plan_message {
    struct plan plan;
    char cost_label[96], cost_note[256];
};

void train_plan_clear(struct train_plan *plan)
{
    plan_clear(&plan->plan);
    cluster_clear(&plan->cluster);
    if (plan->workload)
        workload_clear(plan->workload);
    if (plan->full)
        schedule_clear(plan->full);
    free(plan->workload);
    free(plan->full);
    *plan = (struct train_plan){0};
}

static enum status check_counts(const struct job *job, int n, struct err *err)
{
    const char *name = job->path ? job->path : job->name;
    int k = job->pipeline.num_stages, r = job->pipeline.num_replicas;
    if (train_plan_elastic(job)) {
        for (int i = 0; i < (job->elastic.num_stages ? job->elastic.num_stages : 1); i++) {
            int wanted = job->elastic.num_stages ? job->elastic.stages[i] : k == AUTO ? 1 : k;
            int64_t least = (int64_t)wanted * (r == AUTO || i > 0 ? 1 : r);
            if (least > n)
                return err_set(err, ERR_INPUT, "%s: %s %d needs %lld ranks, got %d", name,
                               job->elastic.num_stages ? "elastic.stages" : "pipeline.num_stages",
                               wanted, (long long)least, n);
            k = k == AUTO || wanted > k ? wanted : k;
        }
        n = k; /* ranks may be left over */
        r = 1;
    }
    if (k != AUTO && r != AUTO && (int64_t)k * r != n)
        return err_set(err, ERR_INPUT,
                       "%s: pipeline.num_stages %d times pipeline.num_replicas %d must equal the "
                       "number of ranks, got %d",
                       name, k, r, n);
    if (k != AUTO && n % k != 0)
        return err_set(err, ERR_INPUT,
                       "%s: pipeline.num_stages must divide the number of ranks %d, got %d", name,
                       n, k);
    if (r != AUTO && n % r != 0)
        return err_set(err, ERR_INPUT,
                       "%s: pipeline.num_replicas must divide the number of ranks %d, got %d", name,
                       n, r);
    if (k == AUTO && r != AUTO)
        k = n / r;
    if (k > job->model.num_items)
        return err_set(err, ERR_INFEASIBLE, "%s: cannot cut %d items into %d stages", name,
                       job->model.num_items, k);
    return OK;
}

bool train_plan_elastic(const struct job *job)
{
    return job->freeze.policy != FREEZE_NONE || job->elastic.num_stages > 0;
}

static bool needs_norms(const struct job *job)
{
    return job->freeze.policy == FREEZE_GRADIENT_NORM ||
           job->freeze.policy == FREEZE_RELATIVE_CHANGE || job->freeze.policy == FREEZE_PLATEAU;
}

/* The paper's rule: halve while the largest stage stays within that of the unfrozen model at the
 * first K. */
static enum status halve(const struct job *job, int num_frozen, const struct plan *old, int *k,
                         struct err *err)
{
    const struct model *model = &job->model;
    int items = model->num_items, first = old->num_ranks;
    int *count = calloc((size_t)items, sizeof *count);
    double *sizes = calloc((size_t)items, sizeof *sizes);
    double *load = calloc((size_t)items, sizeof *load);
    enum status rc = count && sizes && load ? OK : err_nomem(err);
    if (job->pipeline.num_stages != AUTO)
        first = job->pipeline.num_stages;
    *k = old->num_ranks;
    if (rc == OK) {
        balance_sizes(model, sizes);
        rc = balance_greedy(BALANCE_RELEASED, sizes, items, 0, first, count, load, err);
    }
    if (rc == OK)
        rc = balance_compress(BALANCE_RELEASED, sizes, items, model_frozen_items(model, num_frozen),
                              balance_max(BALANCE_RELEASED, sizes, 0, first, load), k, err);
    free(count);
    free(sizes);
    free(load);
    return rc;
}

/* K and R that may be tried; 0: any. */
static enum status wanted_counts(const struct job *job, const struct train_ask *ask, int *k, int *r,
                                 struct err *err)
{
    const struct model *model = &job->model;
    enum status rc = OK;
    *k = job->pipeline.num_stages;
    *r = job->pipeline.num_replicas;
    if (ask->old) {
        int left = model->num_items - model_frozen_items(model, ask->num_frozen_layers);
        *k = 0;
        *r = job->elastic.auto_dp ? 0 : ask->old->num_replicas;
        if (!job->elastic.auto_pipe)
            *k = ask->old->num_ranks < left ? ask->old->num_ranks : left;
        else if (job->elastic.halving)
            rc = halve(job, ask->num_frozen_layers, ask->old, k, err);
    }
    if (job->elastic.num_stages > 0) {
        int64_t at = ask->turn < job->elastic.num_stages ? ask->turn : job->elastic.num_stages - 1;
        *k = job->elastic.stages[at];
        if (!ask->old && *r == AUTO && !job->elastic.auto_dp)
            *r = 1;
    }
    return rc;
}

/* Micro-batches a pipeline has at R under the canonical reduction; 0: as the planner likes. */
static enum status canonical_count(const struct job *job, const struct train_ask *ask, int r,
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
    *count = (int)(all / r);
    return OK;
}

static bool may_cache(const struct job *job, const struct train_ask *ask)
{
    return ask->cache && ask->num_frozen_layers > 0 && job->model.num_skips == 0 &&
           (job->pipeline.frozen_auto || job->pipeline.frozen == FROZEN_CACHED);
}

/* The planner's best with K and R given, and the frozen forward read from the cache or not. */
static enum status solve_one(const struct job *job, const struct cluster *cluster,
                             const struct cost *cost, const struct train_ask *ask, int k, int r,
                             bool cached, struct planner_result *result, struct err *err)
{
    struct planner_problem problem;
    struct planner_options options;
    enum status rc;
    planner_from_job(job, cost, ask->num_frozen_layers, &problem, &options);
    problem.cluster = cluster;
    problem.clip |= needs_norms(job);
    if (problem.batch_mode == BATCH_GLOBAL && problem.batch % r != 0)
        return err_set(err, ERR_INPUT,
                       "%s: train.batch.global must be a multiple of the %d replicas, got %lld",
                       job->path ? job->path : job->name, r, (long long)problem.batch);
    options.num_ranks = k;
    options.num_replicas = r;
    options.cache_write = false;
    if (job->model.num_skips > 0 && ask->num_frozen_layers > 0) {
        options.frozen_auto = false; /* skip tensors stay inside the pipeline */
        options.frozen = FROZEN_SPREAD;
    }
    if (cached) {
        options.frozen_auto = false;
        options.frozen = FROZEN_CACHED;
        options.cache_filled = true;
        options.equal_microbatches = true; /* the others would be computed (runtime_cache.c) */
    } else if (options.frozen == FROZEN_CACHED && ask->num_frozen_layers > 0) {
        options.frozen_auto = true; /* asked for, and not to be had */
        options.frozen = FROZEN_SPREAD;
    }
    rc = canonical_count(job, ask, r, &options.num_microbatches, err);
    if (rc == OK)
        rc = planner_solve(&problem, &options, result, err);
    if (rc == OK && job->train.reduction == REDUCTION_CANONICAL &&
        result->plan.batch % result->plan.microbatches.count != 0)
        rc = err_set(
            err, ERR_INFEASIBLE,
            "train.reduction canonical needs equal micro-batches: %lld samples do not divide "
            "into %d",
            (long long)result->plan.batch, result->plan.microbatches.count);
    return rc;
}

/* Of K and R given: whether the cache pays (partition/cache_rule.h), and the plan for that;
 * *ns_per_sample is the mean over the epochs that are left, if F stays. */
static enum status solve_cached(const struct job *job, const struct cluster *cluster,
                                const struct cost *cost, const struct train_ask *ask, int k, int r,
                                struct planner_result *result, double *ns_per_sample,
                                struct err *err)
{
    struct planner_result reads = {0};
    const int level = ask->old && ask->old->frozen == FROZEN_CACHED ? ask->old->first_item[0] : 0;
    enum status rc = solve_one(job, cluster, cost, ask, k, r, false, result, err);
    *ns_per_sample = rc == OK ? 1e9 / result->samples_per_s : INFINITY;
    if ((rc != OK && rc != ERR_INFEASIBLE) || !may_cache(job, ask))
        return rc;
    if (solve_one(job, cluster, cost, ask, k, r, true, &reads, NULL) == OK) {
        const double samples = (double)reads.plan.batch * reads.plan.num_replicas;
        int64_t extra = 0;
        cache_fill_extra(&job->model, cluster, cost, &reads.plan, level, &extra, NULL);
        const struct cache_case c = {.plain_ns = *ns_per_sample,
                                     .read_ns = 1e9 / reads.samples_per_s,
                                     .fill_ns = 1e9 / reads.samples_per_s + (double)extra / samples,
                                     .share = cache_share(ask->cache, reads.plan.microbatches.size),
                                     .epochs = job->train.epochs - ask->epoch,
                                     .views = job_views(job)};
        if (job->cache.policy == CACHE_ON || cache_case_pays(&c)) {
            planner_result_clear(result);
            *result = reads;
            reads = (struct planner_result){0};
            *ns_per_sample = cache_case_ns(&c);
            rc = OK;
        }
    }
    planner_result_clear(&reads);
    return rc;
}

/* Rank 0 decides and writes, so it has a place. */
static void keep_rank_0(struct plan *plan)
{
    for (int i = 0; i < plan->num_ranks * plan->num_replicas; i++)
        if (plan->device[i] == 0)
            return;
    plan->device[0] = 0;
}

/* The fastest plan: the planner's answer for each K, with as many replicas as there are ranks for.
 * Only elastic jobs may leave ranks over. */
static enum status solve(const struct job *job, const struct cluster *cluster,
                         const struct cost *cost, const struct train_ask *ask, struct plan *plan,
                         struct err *err)
{
    const bool elastic = train_plan_elastic(job);
    const int n = cluster->num_devices;
    double best = INFINITY; /* ns a sample */
    int k_wanted, r_wanted;
    struct err first = {0};
    enum status rc = wanted_counts(job, ask, &k_wanted, &r_wanted, err);
    if (rc != OK)
        return rc;
    for (int k = 1; k <= n; k++) {
        if ((k_wanted != 0 && k != k_wanted) || (!elastic && n % k != 0))
            continue;
        bool done = false;
        for (int r = n / k; r >= 1 && !done; r--) {
            struct planner_result result = {0};
            struct err one = {0};
            double ns = INFINITY;
            if ((r_wanted != 0 && r != r_wanted) || (!elastic && k * r != n))
                continue;
            if (ask->old && job->train.batch_mode == BATCH_PER_PIPELINE && r > 1 &&
                job->train.batch > ask->num_samples / r)
                continue; /* more replicas than an epoch has samples for */
            rc = solve_cached(job, cluster, cost, ask, k, r, &result, &ns, &one);
            if (rc != OK && rc != ERR_INFEASIBLE && rc != ERR_INPUT) {
                planner_result_clear(&result);
                if (err)
                    *err = one;
                return rc;
            }
            if (rc != OK && first.status == OK)
                first = one;
            done = rc == OK;
            if (rc == OK && ns < best) {
                best = ns;
                plan_clear(plan);
                *plan = result.plan;
                result.plan = (struct plan){0};
            }
            planner_result_clear(&result);
        }
    }
    if (best < INFINITY) {
        rc = ask->old ? autodp_keep_devices(&job->model, cluster, ask->old, plan, err) : OK;
        keep_rank_0(plan);
        return rc;
    }
    if (first.status == OK)
        err_set(&first, ERR_INFEASIBLE, "no plan has %d stages and %d replicas on %d ranks",
                k_wanted, r_wanted, n);
    if (err)
        *err = first;
    return first.status;
}

static enum status share(const struct comm *comm, struct train_plan *plan, struct err *err)
{
    struct plan_message message = {.plan = plan->plan};
    struct plan got;
    size_t stages, devices;
    enum status rc;
    memcpy(message.cost_label, plan->cost_label, sizeof message.cost_label);
    memcpy(message.cost_note, plan->cost_note, sizeof message.cost_note);
    rc = comm_bcast(comm->all, &message, sizeof message, 0, err);
    if (rc != OK)
        return rc;
    got = message.plan;
    stages = (size_t)got.num_stages + 1;
    devices = (size_t)got.num_ranks * (size_t)got.num_replicas;
    if (comm->rank != 0) {
        got.first_item = malloc(stages * sizeof *got.first_item);
        got.device = malloc(devices * sizeof *got.device);
        got.memory_bytes = NULL;
        plan->plan = got;
        memcpy(plan->cost_label, message.cost_label, sizeof plan->cost_label);
        memcpy(plan->cost_note, message.cost_note, sizeof plan->cost_note);
    }
    rc = comm_agree(comm, got.first_item && got.device ? OK : err_nomem(err), err);
    if (rc == OK)
        rc = comm_bcast(comm->all, got.first_item, (int64_t)(stages * sizeof(int)), 0, err);
    if (rc == OK)
        rc = comm_bcast(comm->all, got.device, (int64_t)(devices * sizeof(int)), 0, err);
    return rc;
}

enum status train_plan_make(const struct comm *comm, const struct cores *cores,
                            const struct job *job, const char *db, const struct train_ask *ask,
                            struct train_plan *plan, struct err *err)
{
    struct train_plan got = {0};
    struct cost_handle cost = {0};
    struct cost roofline;
    struct profile_info present = {0};
    enum status rc;
    int nodes = comm->size % comm->num_nodes == 0 ? comm->num_nodes : 1;
    rc = check_counts(job, comm->size, err);
    if (rc == OK)
        rc = cluster_grid(nodes, comm->size / nodes, &got.cluster, err);
    if (rc == OK)
        rc = comm_agree(comm, device_describe(job->train.device, cores, &present, err), err);
    for (int i = 0; rc == OK && i < got.cluster.num_devices; i++)
        strcpy(got.cluster.devices[i].kind, present.device_kind);
    if (rc == OK && comm->rank == 0) {
        const struct cost_query query = {.backend = device_text(job->train.device),
                                         .dtype = job->train.dtype,
                                         .threads = cores->threads,
                                         .ranks = comm->local_size,
                                         .input = job->data.kind == DATA_SYNTHETIC,
                                         .present = &present};
        rc = cost_choose_for(db, &job->model, &got.cluster, &query, &cost, err);
        if (rc == OK)
            rc = solve(job, &got.cluster, &cost.cost, ask, &got.plan, err);
        if (rc == OK) {
            memcpy(got.cost_label, cost.cost.label, sizeof got.cost_label);
            memcpy(got.cost_note, cost.note, sizeof got.cost_note);
        }
    }
    rc = comm_agree(comm, rc, err);
    if (rc == OK)
        rc = share(comm, &got, err);
    if (rc != OK)
        goto out;
    got.workload = calloc(1, sizeof *got.workload);
    got.full = calloc(1, sizeof *got.full);
    if (!got.workload || !got.full) {
        rc = err_nomem(err);
    } else {
        /* What the executor reads of the workload (edges, buckets) does not depend on times. */
        cost_roofline(&roofline);
        rc = plan_lower(&job->model, &got.cluster, &roofline, &got.plan, NULL, got.workload,
                        got.full, err);
    }
    rc = comm_agree(comm, rc, err);
    if (rc == OK) {
        *plan = got;
        got = (struct train_plan){0};
    }
out:
    cost_handle_clear(&cost);
    train_plan_clear(&got);
    return rc;
}

void train_plan_json(const struct train_plan *plan, struct json *object)
{
    const struct plan *p = &plan->plan;
    struct json *list;
    json_add_int(object, "pipeline_length", p->num_ranks);
    json_add_int(object, "replicas", p->num_replicas);
    json_add_int(object, "microbatches", p->microbatches.count);
    json_add_int(object, "microbatch_size", p->microbatches.size);
    json_add_int(object, "batch", p->batch);
    json_add_string(object, "schedule", schedule_kind_name(p->schedule));
    json_add_int(object, "chunks", p->chunks);
    list = json_add_array(object, "cut");
    for (int s = 0; s < p->num_stages; s++)
        json_add_int(list, NULL, p->first_item[s + 1] - p->first_item[s]);
    json_add_int(object, "frozen_layers", p->num_frozen_layers);
    json_add_string(object, "frozen", frozen_placement_name(p->frozen));
    json_add_string(object, "recompute", recompute_mode_name(p->recompute));
    json_add_int(object, "bucket_bytes", p->bucket_bytes);
    json_add_int(object, "step_ns", p->step_ns);
    json_add_string(object, "cost_source", plan->cost_label);
}
