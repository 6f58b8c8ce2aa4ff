/* exec/trainer/train_plan.c - rank 0 makes the plan, all ranks get it by broadcast and lower it
 * themselves. Read train_plan_make() first. */
#include "exec/trainer/train_plan.h"

#include <stdlib.h>
#include <string.h>

#include "exec/base/backend.h"
#include "exec/device/device_info.h"
#include "exec/device/devices.h"
#include "partition/model/framework.h"
#include "partition/step/lower.h"
#include "partition/base/units.h"
#include "profiles/job/plan_json.h"
#include "profiles/json/json.h"
#include "profiles/cost/profile_cost.h"

/* The plan as rank 0 broadcasts it; first_item, device and shares follow as arrays. */
struct plan_message {
    struct plan plan;
    char cost_source[16];
    char cost_label[96], cost_note[COST_NOTE_BYTES];
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

/* After err_set(ERR_INPUT): hint at a number of ranks that works. */
static enum status use_ranks(struct err *err, int64_t num_ranks)
{
    err_hint(err, "use -n %lld", (long long)num_ranks);
    return ERR_INPUT;
}

enum status train_plan_check(const struct job *job, int num_ranks, struct err *err)
{
    const char *name = job->path ? job->path : job->name;
    int k = job->pipeline.num_stages, r = job->pipeline.num_replicas, n = num_ranks;
    if (turn_elastic(job)) {
        for (int i = 0; i < (job->elastic.num_stages ? job->elastic.num_stages : 1); i++) {
            int wanted = job->elastic.num_stages ? job->elastic.stages[i] : k == AUTO ? 1 : k;
            int64_t least = (int64_t)wanted * (r == AUTO || i > 0 ? 1 : r);
            if (least > n) {
                err_set(err, ERR_INPUT, "%s: %s %d needs %s, got %d", name,
                        job->elastic.num_stages ? "elastic.stages" : "pipeline.num_stages", wanted,
                        COUNT_TEXT(least, "rank"), n);
                return use_ranks(err, least);
            }
            k = k == AUTO || wanted > k ? wanted : k;
        }
        n = k; /* ranks may be left over */
        r = 1;
    }
    if (k != AUTO && r != AUTO && (int64_t)k * r != n) {
        err_set(err, ERR_INPUT,
                "%s: pipeline.num_stages %d times pipeline.num_replicas %d must equal the "
                "number of ranks, got %d",
                name, k, r, n);
        return use_ranks(err, (int64_t)k * r);
    }
    if (k != AUTO && n % k != 0) {
        err_set(err, ERR_INPUT,
                "%s: pipeline.num_stages must divide the number of ranks %d, got %d", name, n, k);
        return use_ranks(err, k);
    }
    if (r != AUTO && n % r != 0) {
        err_set(err, ERR_INPUT,
                "%s: pipeline.num_replicas must divide the number of ranks %d, got %d", name, n, r);
        return use_ranks(err, r);
    }
    if (k == AUTO && r != AUTO)
        k = n / r;
    if (k > job->model.num_items)
        return err_set(err, ERR_INFEASIBLE, "%s: cannot cut %s into %s", name,
                       COUNT_TEXT(job->model.num_items, "item"), COUNT_TEXT(k, "stage"));
    return OK;
}

void train_plan_fit(struct job *job, int num_ranks)
{
    if (train_plan_check(job, num_ranks, NULL) == OK)
        return;
    for (int i = 0; i < job->elastic.num_stages; i++)
        if (job->elastic.stages[i] > num_ranks)
            job->elastic.stages[i] = num_ranks;
    job->pipeline.num_stages = job->pipeline.num_replicas = AUTO;
}

/* Give all ranks the op lists that rank 0 has in its plan, as CSV. The schedule is known to all. */
static enum status share_order(const struct comm *comm, struct plan *plan, struct err *err)
{
    struct schedule order = {0};
    char *csv = NULL;
    int64_t size = 0;
    enum status rc = OK;
    if (plan->schedule < SCHEDULE_SEARCH)
        return OK;
    if (comm->rank == 0)
        rc = schedule_to_csv(plan->order, &csv, err);
    if (csv)
        size = (int64_t)strlen(csv) + 1;
    rc = comm_agree(comm, rc, err);
    THEN(comm_bcast(comm->all, &size, sizeof size, 0, err));
    if (rc == OK && comm->rank != 0)
        csv = malloc((size_t)size);
    THEN(comm_agree(comm, csv ? OK : err_nomem(err), err));
    THEN(comm_bcast(comm->all, csv, size, 0, err));
    if (rc == OK && comm->rank != 0)
        rc = schedule_from_csv(csv, "the plan of rank 0", &order, err);
    if (rc == OK && comm->rank != 0)
        rc = plan_set_order(plan, plan->schedule, &order, err);
    schedule_clear(&order);
    free(csv);
    return comm_agree(comm, rc, err);
}

/* Give all ranks the shares of weight gradients that rank 0 has in its plan. */
static enum status share_shares(const struct comm *comm, const struct freeze_shares *of_rank_0,
                                struct freeze_shares *shares, struct err *err)
{
    const int stages = of_rank_0->num_stages, m = of_rank_0->num_micro_batches;
    if (!of_rank_0->share)
        return OK;
    enum status rc = comm->rank == 0 ? OK : shares_init(stages, m, shares, err);
    rc = comm_agree(comm, rc, err);
    THEN(comm_bcast(comm->all, shares->share, (int64_t)sizeof(double) * stages * m, 0, err));
    return rc;
}

static enum status share(const struct comm *comm, struct train_plan *plan, struct err *err)
{
    struct plan_message message = {.plan = plan->plan};
    struct plan got;
    size_t stages, devices;
    enum status rc;
    memcpy(message.cost_source, plan->cost_source, sizeof message.cost_source);
    memcpy(message.cost_label, plan->cost_label, sizeof message.cost_label);
    memcpy(message.cost_note, plan->cost_note, sizeof message.cost_note);
    rc = comm_bcast(comm->all, &message, sizeof message, 0, err);
    if (rc != OK)
        return rc;
    got = message.plan;
    stages = (size_t)got.num_stages + 1;
    devices = (size_t)got.num_ranks * (size_t)got.num_pipelines;
    if (comm->rank != 0) {
        got.first_item = malloc(stages * sizeof *got.first_item);
        got.device = malloc(devices * sizeof *got.device);
        got.memory_bytes = NULL;
        got.order = NULL;
        got.shares = (struct freeze_shares){0};
        plan->plan = got;
        memcpy(plan->cost_source, message.cost_source, sizeof plan->cost_source);
        memcpy(plan->cost_label, message.cost_label, sizeof plan->cost_label);
        memcpy(plan->cost_note, message.cost_note, sizeof plan->cost_note);
    }
    rc = comm_agree(comm, got.first_item && got.device ? OK : err_nomem(err), err);
    THEN(comm_bcast(comm->all, got.first_item, (int64_t)(stages * sizeof(int)), 0, err));
    THEN(comm_bcast(comm->all, got.device, (int64_t)(devices * sizeof(int)), 0, err));
    THEN(share_shares(comm, &message.plan.shares, &plan->plan.shares, err));
    return rc == OK ? share_order(comm, &plan->plan, err) : rc;
}

/* The plan for the ranks' cluster. */
static enum status plan_from(const struct planning *with, const struct cost *cost,
                             const struct run_state *state, struct train_plan *plan,
                             struct err *err)
{
    const struct setting setting = {&with->job->model, &plan->cluster, cost};
    struct planner_result result = {0};
    struct run_state ask = *state;
    ask.executor = true;
    enum status rc = plan_for(with->job, &setting, &ask, NULL, &result, err);
    if (rc == OK) {
        plan->plan = result.plan;
        plan->sample_ns = result.samples_per_s > 0 ? 1e9 / result.samples_per_s : 0;
        result.plan = (struct plan){0};
    }
    planner_result_clear(&result);
    return rc;
}

/* Refuse by name what plans may have and this executor has not. `group` is the plan's or the job's
 * group of keys. */
static enum status check_layout(const char *what, const char *group, const struct plan *plan,
                                struct err *err)
{
    char text[128];
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++)
        if (layout_uses(&plan->layout, (enum layout_dim)d))
            return err_set(err, ERR_INFEASIBLE, "%s: %s.%s: train has PP and DP only, not %s", what,
                           group, layout_members[d].key,
                           layout_text(&plan->layout, 0, 0, 0, text, sizeof text));
    if (recompute_parts(plan->recompute) != RERUN_COUNT || plan->recompute == RECOMPUTE_LAYER)
        return err_set(err, ERR_INFEASIBLE,
                       "%s: %s.recompute is %s: train recomputes whole stages only", what, group,
                       recompute_mode_name(plan->recompute));
    return OK;
}

/* Refuse by name the adapters that this executor has not. */
static enum status check_adapters(const struct job *job, const char *what, struct err *err)
{
    const struct model *model = &job->model;
    if (job->train.lora.rank == 0)
        return strcmp(job->train.lora.targets, "all") == 0 &&
                       job->train.lora.base == LORA_BASE_SAME && job->train.lora.alpha == 0.0
                   ? OK
                   : err_set(err, ERR_INPUT,
                             "%s: train.lora.rank is 0, but other keys of train.lora are given",
                             what);
    if (model->framework && model->framework->fuses_adapters)
        return err_set(err, ERR_INFEASIBLE,
                       "%s: train.framework %s is for plan and sim: it fuses adapters", what,
                       framework_name(model->framework));
    if (job->train.lora.base != LORA_BASE_SAME)
        return err_set(err, ERR_INFEASIBLE,
                       "%s: train.lora.base must be 'same': train cannot quantize a base", what);
    if (job->train.dropout > 0.0)
        return err_set(err, ERR_INFEASIBLE, "%s: train.dropout must be 0 with train.lora, got %g",
                       what, job->train.dropout);
    return OK;
}

/* Refuse a job that asks for such a plan, before anything is planned. */
static enum status check_job_layout(const struct job *job, struct err *err)
{
    const char *what = job->path ? job->path : job->name;
    const struct layout_ask *ask = &job->pipeline.layout;
    struct plan asked = {.layout = ask->at,
                         .recompute = job->pipeline.recompute == RECOMPUTE_FIT
                                          ? RECOMPUTE_NEVER
                                          : job->pipeline.recompute};
    asked.layout.offload = job->pipeline.offload == OFFLOAD_OPTIMIZER;
    const enum status rc = check_adapters(job, what, err);
    if (rc != OK)
        return rc;
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++)
        if (layout_members[d].place != LAYOUT_BRACKETS &&
            (layout_ask_opens(ask, (enum layout_dim)d) ||
             (d == LAYOUT_OFFLOAD && job->pipeline.offload == OFFLOAD_AUTO)))
            return err_set(err, ERR_INFEASIBLE,
                           "%s: pipeline.%s is auto: train has no such layouts", what,
                           layout_members[d].key);
    return check_layout(what, "pipeline", &asked, err);
}

/* The plan of a file, for these ranks: rank 0, which writes the run's files, must have a place. */
static enum status read_plan(const struct planning *with, const struct run_state *ask,
                             struct train_plan *plan, struct err *err)
{
    struct run_state begun = *ask;
    struct plan given = {0};
    bool found = false;
    enum status rc = plan_json_load(with->plan_path, with->job, &plan->cluster, &given, err);
    for (int i = 0; rc == OK && i < given.num_ranks * given.num_pipelines; i++)
        found = found || given.device[i] == 0;
    if (rc == OK && !found)
        rc = err_set(err, ERR_INFEASIBLE, "%s: plan.devices: device 0 needs a place",
                     with->plan_path);
    THEN(check_layout(with->plan_path, "plan", &given, err));
    begun.given = &given;
    /* The file's shares hold, and there are no costs to choose others by. */
    struct job as_given = *with->job;
    struct planning own = *with;
    as_given.freeze.max_share = 0;
    own.job = &as_given;
    THEN(plan_from(&own, NULL, &begun, plan, err));
    snprintf(plan->cost_source, sizeof plan->cost_source, "plan");
    snprintf(plan->cost_label, sizeof plan->cost_label, "plan of a file");
    plan->measured_here = true;
    plan_clear(&given);
    return rc;
}

/* Whether the costs were asked for a micro-batch outside of those that they know. */
static bool is_extrapolated(const struct cost *cost, const struct model *model,
                            const struct train_plan *plan)
{
    bool extrapolated = false;
    int64_t ns;
    for (int i = 0; i < model->num_items && !extrapolated; i++)
        if (cost_item_ns(cost, model, i, PASS_FWD, plan->plan.microbatches.size,
                         &plan->cluster.devices[0], STASH_FAR, &ns, &extrapolated, NULL) != OK)
            return false;
    return extrapolated;
}

/* How to measure the job's model: its text in the job, where it is one. */
static void hint_profile(const struct job *job, struct err *err)
{
    struct json *root = NULL;
    const char *text = job->json && json_parse(job->json, "the job", &root, NULL) == OK
                           ? json_string(json_get(root, "model"))
                           : NULL;
    err_hint(err, "elapse profile --model '%s'", text ? text : "FILE");
    json_free(root);
}

enum status train_plan_choose(const struct planning *with, const struct run_state *ask,
                              struct train_plan *plan, struct err *err)
{
    const struct job *job = with->job;
    struct cost_query query = cost_query_of(job);
    struct cost_handle cost = {0};
    enum status refused = check_job_layout(job, err);
    if (refused != OK)
        return refused;
    if (with->plan_path && !ask->old)
        return read_plan(with, ask, plan, err);
    query.backend = device_kind_names[job->train.device];
    query.threads = with->cores->threads;
    query.ranks = with->comm->local_size;
    query.present = &plan->present;
    enum status rc = cost_choose_for(with->db, &job->model, &plan->cluster, &query, &cost, err);
    cost.cost = turn_cost(job, &cost.cost);
    if (rc == OK && job->freeze.max_share > 0 && !cost_is_measured(&cost.cost)) {
        rc = err_set(err, ERR_INFEASIBLE,
                     "%s: freeze.max_share %g needs measured times, and the profile store has none "
                     "of this model on this machine",
                     job->path ? job->path : job->name, job->freeze.max_share);
        hint_profile(job, err);
    }
    THEN(plan_from(with, &cost.cost, ask, plan, err));
    if (rc == OK) {
        snprintf(plan->cost_source, sizeof plan->cost_source, "%s",
                 cost_source_name(cost.cost.source));
        memcpy(plan->cost_label, cost.cost.label, sizeof plan->cost_label);
        memcpy(plan->cost_note, cost.note, sizeof plan->cost_note);
        plan->measured_here = cost.measured_here;
        plan->extrapolated = is_extrapolated(&cost.cost, &job->model, plan);
    }
    cost_handle_clear(&cost);
    return rc;
}

enum status train_plan_make(const struct planning *with, const struct run_state *ask,
                            struct train_plan *plan, struct err *err)
{
    const struct comm *comm = with->comm;
    struct train_plan got = {0};
    struct cost roofline;
    enum status rc = OK;
    if (!with->plan_path)
        rc = train_plan_check(with->job, comm->size, err);
    THEN(comm_agree(comm, device_describe(with->job->train.device, with->cores, &got.present, err),
                    err));
    THEN(cluster_of_ranks(comm->node_ranks, comm->num_nodes, got.present.device_kind, &got.cluster,
                          err));
    /* Op lists do not depend on speeds, so the choice alone weighs them. */
    for (int r = 0; rc == OK && with->speeds && r < comm->size; r++)
        got.cluster.devices[r].speed = with->speeds[r];
    if (rc == OK && comm->rank == 0)
        rc = train_plan_choose(with, ask, &got, err);
    for (int r = 0; with->speeds && got.cluster.devices && r < comm->size; r++)
        got.cluster.devices[r].speed = 1;
    rc = comm_agree(comm, rc, err);
    THEN(share(comm, &got, err));
    if (rc != OK)
        goto out;
    got.workload = calloc(1, sizeof *got.workload);
    got.full = calloc(1, sizeof *got.full);
    if (!got.workload || !got.full) {
        rc = err_nomem(err);
    } else {
        /* The executor reads edges and buckets of the workload; these do not depend on times. */
        cost_roofline(&roofline, NULL);
        rc = plan_lower(&(struct setting){&with->job->model, &got.cluster, &roofline}, &got.plan,
                        got.workload, got.full, err);
        if (rc == OK) /* of the setting, only the model outlives this call */
            got.workload->setting = (struct setting){.model = got.workload->setting.model};
    }
    rc = comm_agree(comm, rc, err);
    if (rc == OK) {
        *plan = got;
        got = (struct train_plan){0};
    }
out:
    train_plan_clear(&got);
    return rc;
}

void train_plan_json(const struct train_plan *plan, struct json *object)
{
    plan_json_add(object, &plan->plan);
    json_add_string(object, "cost_source", plan->cost_source);
    json_add_string(object, "cost_label", plan->cost_label);
}
