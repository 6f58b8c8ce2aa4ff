/* Plans to and from JSON. The table `members` describes numbers, flags and names for writer and
 * reader alike, and layout_members (partition/layout/layout.h) those of the layout. The arrays (cut,
 * devices, memory) have code of their own. Read the table first,
 * then plan_json_add() and plan_json_read(). */
#include "profiles/job/plan_json.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "profiles/json/fields.h"

/* --- the members: one table for writer and reader --------------------------------------------- */

#define INT(key, member, ...) MEMBER(plan, key, INT, member, NULL, __VA_ARGS__)
#define BOOL(key, member) MEMBER(plan, key, BOOL, member, NULL, )
#define NAME(key, member, ...) MEMBER(plan, key, NAME, member, NULL, .names = __VA_ARGS__)

static const struct member members[] = {
    INT("pipeline_length", num_ranks, .min = 1),
    INT("chunks", chunks, .min = 1),
    INT("replicas", num_pipelines, .min = 1),
    INT("microbatches", microbatches.count, .min = 1),
    INT("microbatch_size", microbatches.size, .min = 1),
    INT("batch", batch, .min = 1),
    NAME("schedule", schedule, schedule_names),
    INT("frozen_layers", num_frozen_layers, ),
    NAME("frozen", frozen, frozen_placement_names),
    NAME("recompute", recompute, recompute_mode_names, .max = RECOMPUTE_MODE_COUNT - 1),
    BOOL("cache_write", cache_write),
    INT("bucket_bytes", bucket_bytes, ),
    BOOL("clip", clip),
    INT("optimizer_bytes_per_param", optim_bytes_per_param, ),
    BOOL("canonical", canonical),
    INT("step_ns", step_ns, ),
};
enum {
    NUM_MEMBERS = sizeof members / sizeof members[0],
    NUM_SHAPE = 10 /* the members up to recompute */
};

/* --- writing --------------------------------------------------------------------------------- */

/* R is written without C. */
static void add_member(struct json *object, const struct member *member, const struct plan *plan)
{
    struct plan shown = *plan;
    shown.num_pipelines = plan_width(plan);
    fields_write(member, 1, &shown, object);
}

/* A dimension as a member of struct layout. */
static struct member member_of(enum layout_dim dim)
{
    static const enum member_type types[] = {
        [LAYOUT_COUNT] = MEMBER_INT, [LAYOUT_FLAG] = MEMBER_BOOL, [LAYOUT_NAME] = MEMBER_NAME};
    const struct layout_member *row = &layout_members[dim];
    return (struct member){.name = row->key,
                           .type = types[row->type],
                           .offset = row->offset,
                           .size = row->type == LAYOUT_FLAG ? sizeof(bool) : sizeof(int),
                           .min = row->least,
                           .names = row->names};
}

void layout_json_add_dim(struct json *object, const struct layout *layout, enum layout_dim dim)
{
    const struct member member = member_of(dim);
    struct layout shown = *layout;
    layout_set(&shown, dim, layout_get(layout, dim));
    fields_write(&member, 1, &shown, object);
}

void layout_json_add(struct json *object, const struct layout *layout, enum layout_json_form form)
{
    bool core = form != LAYOUT_JSON_DIVIDED;
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++)
        core = core || (d != LAYOUT_OFFLOAD && layout_uses(layout, (enum layout_dim)d));
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++) {
        const struct layout_member *row = &layout_members[d];
        if (!layout_uses(layout, (enum layout_dim)d) && !(core && row->core) &&
            form != LAYOUT_JSON_WHOLE)
            continue;
        layout_json_add_dim(object, layout, (enum layout_dim)d);
    }
}

void plan_json_add_shape(struct json *object, const struct plan *plan)
{
    for (int i = 0; i < NUM_SHAPE; i++)
        add_member(object, &members[i], plan);
    struct json *cut = json_add_array(object, "cut");
    for (int s = 0; s < plan->num_stages; s++)
        json_add_int(cut, NULL, plan->first_item[s + 1] - plan->first_item[s]);
    layout_json_add(object, &plan->layout, LAYOUT_JSON_DIVIDED);
    if (plan->recompute_layers)
        json_add_ints(object, "recompute_layers", plan->recompute_layers, plan->num_stages);
}

void plan_json_add(struct json *object, const struct plan *plan)
{
    plan_json_add_shape(object, plan);
    struct json *devices = json_add_array(object, "devices");
    for (int r = 0; r < plan->num_pipelines; r++)
        json_add_ints(devices, NULL, plan->device + (int64_t)r * plan->num_ranks, plan->num_ranks);
    for (int i = NUM_SHAPE; i < NUM_MEMBERS; i++)
        add_member(object, &members[i], plan);
    if (plan->shares.share) {
        struct json *stages = json_add_array(object, "shares");
        for (int s = 0; s < plan->num_stages; s++) {
            struct json *stage = json_add_array(stages, NULL);
            for (int m = 0; m < plan->microbatches.count; m++)
                json_add_double(stage, NULL, shares_at(&plan->shares, s, m));
        }
    }
    char *csv = NULL;
    if (plan->order && schedule_to_csv(plan->order, &csv, NULL) == OK)
        json_add_string(object, "order", csv);
    free(csv);
    if (plan->memory_bytes)
        json_add_int64s(object, "memory_bytes", plan->memory_bytes, plan->num_ranks);
}

/* --- reading --------------------------------------------------------------------------------- */

struct reader {
    const struct json *object;
    const char *what;
    const struct model *model;
    const struct cluster *cluster;
    struct plan *plan;
    struct err *err;
};

static enum status malformed(const struct reader *in, const char *key, const char *must)
{
    return err_set(in->err, ERR_INPUT, "%s: plan.%s must be %s", in->what, key, must);
}

static enum status read_member(const struct reader *in, const struct member *member)
{
    const struct fields_source source = {.file = in->what, .prefix = "plan"};
    return fields_read_member(member, json_get(in->object, member->name), &source, in->plan,
                              in->err);
}

static enum status unfit(const struct reader *in, const char *key, const char *why)
{
    return err_set(in->err, ERR_INFEASIBLE, "%s: plan.%s: %s", in->what, key, why);
}

/* Check the counts against each other, the model and the cluster, before any array is allocated for
 * them. */
static enum status check_counts(const struct reader *in)
{
    struct plan *plan = in->plan;
    struct microbatches *mb = &plan->microbatches;
    char why[128];
    int64_t full, stages, devices;
    if (!mul_ok(mb->size, mb->count - 1, &full) || full >= plan->batch ||
        plan->batch - full > mb->size) {
        snprintf(why, sizeof why, "%d micro-batches of it do not make a batch of %lld", mb->count,
                 (long long)plan->batch);
        return unfit(in, "microbatch_size", why);
    }
    mb->last_size = plan->batch - full;
    if (!mul_ok(plan->num_ranks, plan->num_pipelines, &devices) ||
        devices > in->cluster->num_devices) {
        snprintf(why, sizeof why, "%d pipelines of %d devices, there are %d devices",
                 plan->num_pipelines, plan->num_ranks, in->cluster->num_devices);
        return unfit(
            in, plan->num_ranks > in->cluster->num_devices ? "pipeline_length" : "replicas", why);
    }
    if (!mul_ok(plan->num_ranks, plan->chunks, &stages) || stages > in->model->num_items) {
        snprintf(why, sizeof why, "%d ranks of %d stages, model '%.40s' has %d items",
                 plan->num_ranks, plan->chunks, in->model->name, in->model->num_items);
        return unfit(in, plan->chunks > 1 ? "chunks" : "pipeline_length", why);
    }
    plan->num_stages = (int)stages;
    if (schedule_v_shaped(plan->schedule) && plan->chunks != 2)
        return unfit(in, "chunks", "this schedule has 2 stages a rank");
    if (plan->num_frozen_layers > in->model->num_layers) {
        snprintf(why, sizeof why, "model '%.40s' has %d layers, got %d", in->model->name,
                 in->model->num_layers, plan->num_frozen_layers);
        return unfit(in, "frozen_layers", why);
    }
    if ((plan->num_frozen_layers > 0) != (plan->frozen != FROZEN_NONE))
        return unfit(in, "frozen", "'none' goes with 0 frozen layers, and only with them");
    return OK;
}

static enum status read_cut(const struct reader *in)
{
    struct plan *plan = in->plan;
    const struct json *cut = json_get(in->object, "cut");
    char must[64], key[32];
    snprintf(must, sizeof must, "an array of %d counts", plan->num_stages);
    if (!cut || json_type(cut) != JSON_ARRAY || json_count(cut) != plan->num_stages)
        return malformed(in, "cut", must);
    plan->first_item = calloc((size_t)plan->num_stages + 1, sizeof *plan->first_item);
    if (!plan->first_item)
        return err_nomem(in->err);
    int item = plan_cut_start(plan, in->model), s = 0;
    for (const struct json *one = json_first(cut); one; one = json_next(one), s++) {
        int64_t size;
        snprintf(key, sizeof key, "cut[%d]", s);
        if (!json_int64(one, &size) || size < 1)
            return malformed(in, key, "a count, at least 1");
        if (size > in->model->num_items - item)
            return unfit(in, key, "the model has fewer items");
        plan->first_item[s] = item;
        item += (int)size;
    }
    plan->first_item[plan->num_stages] = item;
    return item == in->model->num_items ? OK : unfit(in, "cut", "the model has more items");
}

static enum status read_devices(const struct reader *in)
{
    struct plan *plan = in->plan;
    const struct json *devices = json_get(in->object, "devices");
    const int K = plan->num_ranks, R = plan->num_pipelines;
    char must[64], key[48];
    enum status rc = OK;
    snprintf(must, sizeof must, "%d arrays of %d devices", R, K);
    if (!devices || json_type(devices) != JSON_ARRAY || json_count(devices) != R)
        return malformed(in, "devices", must);
    plan->device = calloc((size_t)K * (size_t)R, sizeof *plan->device);
    bool *used = calloc((size_t)in->cluster->num_devices, sizeof *used);
    if (!plan->device || !used)
        rc = err_nomem(in->err);
    for (int i = 0; i < K * R && rc == OK; i++) {
        const struct json *replica = json_at(devices, i / K);
        int64_t device;
        snprintf(key, sizeof key, "devices[%d][%d]", i / K, i % K);
        if (json_type(replica) != JSON_ARRAY || json_count(replica) != K)
            rc = malformed(in, "devices", must);
        else if (!json_int64(json_at(replica, i % K), &device) || device < 0)
            rc = malformed(in, key, "a device, counted from 0");
        else if (device >= in->cluster->num_devices)
            rc = unfit(in, key, "the cluster has no such device");
        else if (used[device])
            rc = unfit(in, key, "the device has a place already");
        else
            used[plan->device[i] = (int)device] = true;
    }
    free(used);
    return rc;
}

/* A dimension of the layout. It may be missing, as all are in plan files of before. */
static enum status read_dim(const struct reader *in, enum layout_dim dim)
{
    const struct fields_source source = {.file = in->what, .prefix = "plan"};
    const struct member member = member_of(dim);
    const struct json *json = json_get(in->object, member.name);
    layout_set(&in->plan->layout, dim, layout_members[dim].least);
    return json ? fields_read_member(&member, json, &source, &in->plan->layout, in->err) : OK;
}

static enum status read_layout(const struct reader *in)
{
    enum status rc = OK;
    int64_t pipelines;
    for (int d = 0; d < LAYOUT_DIM_COUNT && rc == OK; d++)
        rc = read_dim(in, (enum layout_dim)d);
    if (rc == OK && (!mul_ok(in->plan->num_pipelines, in->plan->layout.context, &pipelines) ||
                     pipelines > INT32_MAX))
        rc = malformed(in, "context", "a number of replicas that a plan can have");
    if (rc == OK)
        in->plan->num_pipelines *= in->plan->layout.context;
    return rc;
}

static enum status read_recompute_layers(const struct reader *in)
{
    struct plan *plan = in->plan;
    const struct json *layers = json_get(in->object, "recompute_layers");
    char must[64];
    int s = 0;
    if (plan->recompute != RECOMPUTE_LAYER)
        return layers ? unfit(in, "recompute_layers", "goes with recompute 'layer' only") : OK;
    snprintf(must, sizeof must, "an array of %d counts", plan->num_stages);
    if (!layers || json_type(layers) != JSON_ARRAY || json_count(layers) != plan->num_stages)
        return malformed(in, "recompute_layers", must);
    plan->recompute_layers = calloc((size_t)plan->num_stages, sizeof *plan->recompute_layers);
    if (!plan->recompute_layers)
        return err_nomem(in->err);
    for (const struct json *one = json_first(layers); one; one = json_next(one), s++) {
        int64_t count;
        if (!json_int64(one, &count) || count < 0 || count > INT32_MAX)
            return malformed(in, "recompute_layers", must);
        plan->recompute_layers[s] = (int)count;
    }
    return OK;
}

/* The op lists, which a plan has with these schedules and only with them. */
static enum status read_order(const struct reader *in)
{
    const struct json *order = json_get(in->object, "order");
    struct schedule lists = {0};
    char what[64];
    if (in->plan->schedule < SCHEDULE_SEARCH)
        return order ? unfit(in, "order", "goes with schedule 'search' or 'custom' only") : OK;
    if (!order || !json_string(order))
        return malformed(in, "order", "the op lists as CSV");
    snprintf(what, sizeof what, "%.40s: plan.order", in->what);
    enum status rc = schedule_from_csv(json_string(order), what, &lists, in->err);
    THEN(plan_set_order(in->plan, in->plan->schedule, &lists, in->err));
    schedule_clear(&lists);
    return rc;
}

/* Shares of weight gradients, in a plan that leaves some out. */
static enum status read_shares(const struct reader *in)
{
    struct plan *plan = in->plan;
    const struct json *stages = json_get(in->object, "shares");
    const int S = plan->num_stages, M = plan->microbatches.count;
    char must[80];
    if (!stages)
        return OK;
    snprintf(must, sizeof must, "%d arrays of %d numbers, 0..1", S, M);
    if (json_type(stages) != JSON_ARRAY || json_count(stages) != S)
        return malformed(in, "shares", must);
    enum status rc = shares_init(S, M, &plan->shares, in->err);
    double *share = plan->shares.share;
    for (const struct json *stage = json_first(stages); stage && rc == OK;
         stage = json_next(stage)) {
        if (json_type(stage) != JSON_ARRAY || json_count(stage) != M)
            return malformed(in, "shares", must);
        for (const struct json *one = json_first(stage); one; one = json_next(one)) {
            *share = json_number(one);
            if (!(*share >= 0 && *share <= 1))
                return malformed(in, "shares", must);
            share++;
        }
    }
    return rc;
}

static enum status read_memory(const struct reader *in)
{
    struct plan *plan = in->plan;
    const struct json *memory = json_get(in->object, "memory_bytes");
    char must[64];
    int k = 0;
    if (!memory)
        return OK;
    snprintf(must, sizeof must, "an array of %d sizes", plan->num_ranks);
    if (json_type(memory) != JSON_ARRAY || json_count(memory) != plan->num_ranks)
        return malformed(in, "memory_bytes", must);
    plan->memory_bytes = calloc((size_t)plan->num_ranks, sizeof *plan->memory_bytes);
    if (!plan->memory_bytes)
        return err_nomem(in->err);
    for (const struct json *one = json_first(memory); one; one = json_next(one), k++)
        if (!json_int64(one, &plan->memory_bytes[k]) || plan->memory_bytes[k] < 0)
            return malformed(in, "memory_bytes", must);
    return OK;
}

enum status plan_json_read(const struct json *object, const char *what, const struct model *model,
                           const struct cluster *cluster, struct plan *plan, struct err *err)
{
    struct plan got = {0};
    const struct reader in = {object, what, model, cluster, &got, err};
    enum status rc = OK;
    if (!object || json_type(object) != JSON_OBJECT)
        rc = err_set(err, ERR_INPUT, "%s: plan must be an object", what);
    for (int i = 0; i < NUM_MEMBERS && rc == OK; i++)
        rc = read_member(&in, &members[i]);
    THEN(read_layout(&in));
    THEN(check_counts(&in));
    THEN(read_cut(&in));
    THEN(read_recompute_layers(&in));
    THEN(read_devices(&in));
    THEN(read_order(&in));
    THEN(read_shares(&in));
    THEN(read_memory(&in));
    THEN(plan_check(&got, model, cluster, err));
    if (rc == OK) {
        *plan = got;
        got = (struct plan){0};
    }
    plan_clear(&got);
    return rc;
}

/* --- files ----------------------------------------------------------------------------------- */

static enum status differs(const char *path, const char *key, int64_t has, int64_t wants,
                           struct err *err)
{
    return err_set(err, ERR_INFEASIBLE, "%s: plan.%s is %lld, the job says %lld", path, key,
                   (long long)has, (long long)wants);
}

/* Check that a plan also has the job's batch, optimizer state, clipping and reduction. */
static enum status check_job(const char *path, const struct job *job, const struct plan *plan,
                             struct err *err)
{
    const bool global = job->train.batch_mode == BATCH_GLOBAL;
    const int64_t batch = plan->batch * (global ? plan_width(plan) : 1);
    const int optimizer = job_optim_bytes_per_param(job);
    const bool canonical = job->train.reduction == REDUCTION_CANONICAL;
    if (batch != job->train.batch)
        return differs(path, "batch", plan->batch,
                       job->train.batch / (global ? plan_width(plan) : 1), err);
    if (plan->optim_bytes_per_param != optimizer)
        return differs(path, "optimizer_bytes_per_param", plan->optim_bytes_per_param, optimizer,
                       err);
    if (job->pipeline.offload <= OFFLOAD_OPTIMIZER &&
        plan->layout.offload != (job->pipeline.offload == OFFLOAD_OPTIMIZER))
        return differs(path, "offload", plan->layout.offload, !plan->layout.offload, err);
    if (plan->clip != job_wants_norm(job))
        return differs(path, "clip", plan->clip, job_wants_norm(job), err);
    if (plan->canonical != canonical)
        return differs(path, "canonical", plan->canonical, canonical, err);
    if (plan->shares.share && job->freeze.max_share == 0)
        return err_set(err, ERR_INFEASIBLE,
                       "%s: plan.shares leaves out weight gradients, the job's freeze.max_share is "
                       "0",
                       path);
    return OK;
}

enum status plan_json_load(const char *path, const struct job *job, const struct cluster *cluster,
                           struct plan *plan, struct err *err)
{
    struct json *json = NULL;
    enum status rc = json_read_file(path, &json, err);
    THEN(plan_json_read(json, path, &job->model, cluster, plan, err));
    THEN(check_job(path, job, plan, err));
    if (rc == OK)
        plan->lagged = job_lags(job);
    else
        plan_clear(plan);
    json_free(json);
    return rc;
}
