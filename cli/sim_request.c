#include "cli/sim_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/autodp.h"
#include "partition/cut_model.h"
#include "partition/units.h"
#include "profiles/clock.h"
#include "profiles/job_json.h"

#define RANKS_MAX 65535 /* struct op keeps a stage in 16 bits */

void step_request_init(struct step_request *request)
{
    *request = (struct step_request){
        .schedule_text = "1f1b",
        .num_ranks = 1,
        .num_replicas = 1,
        .num_microbatches = 1,
        .chunks = 0,
        .host_op_ns = -1,
        .latency_ns = -1,
        .mem_bytes = -1,
        .optimizer_bytes = 4, /* SGD with momentum */
        .options.seed = 1,
    };
}

static enum status set_flag(const char *text, const char *what, bool *value, struct err *err)
{
    if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0)
        *value = true;
    else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0)
        *value = false;
    else
        return err_set(err, ERR_INPUT, "%s must be true or false, got '%.64s'", what, text);
    return OK;
}

static enum status set_named(const char *text, const char *what, const char *const *names, int n,
                             int *value, struct err *err)
{
    char list[256] = "";
    for (int i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0) {
            *value = i;
            return OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
    }
    return err_set(err, ERR_INPUT, "%s must be one of %s, got '%.64s'", what, list, text);
}

static enum status set_recompute(struct step_request *q, const char *text, struct err *err)
{
    const char *names[RECOMPUTE_MODE_COUNT];
    int value = 0;
    for (int i = 0; i < RECOMPUTE_MODE_COUNT; i++)
        names[i] = recompute_mode_name((enum recompute_mode)i);
    enum status rc = set_named(text, "recompute", names, RECOMPUTE_MODE_COUNT, &value, err);
    if (rc == OK)
        q->recompute = (enum recompute_mode)value;
    return rc;
}

static enum status set_placement(struct step_request *q, const char *text, struct err *err)
{
    const char *names[FROZEN_PLACEMENT_COUNT];
    int value = 0;
    for (int i = 0; i < FROZEN_PLACEMENT_COUNT; i++)
        names[i] = frozen_placement_name((enum frozen_placement)i);
    enum status rc =
        set_named(text, "frozen-placement", names, FROZEN_PLACEMENT_COUNT, &value, err);
    if (rc == OK)
        q->frozen = (enum frozen_placement)value;
    return rc;
}

static enum status set_allreduce(struct step_request *q, const char *text, struct err *err)
{
    const char *names[ALLREDUCE_KIND_COUNT];
    int value = 0;
    for (int i = 0; i < ALLREDUCE_KIND_COUNT; i++)
        names[i] = allreduce_kind_name((enum allreduce_kind)i);
    enum status rc = set_named(text, "allreduce", names, ALLREDUCE_KIND_COUNT, &value, err);
    if (rc == OK)
        q->options.allreduce = (enum allreduce_kind)value;
    return rc;
}

enum step_setting {
    SET_MODEL,
    SET_CLUSTER,
    SET_STAGES,
    SET_REPLICAS,
    SET_MICROBATCHES,
    SET_SCHEDULE,
    SET_CHUNKS,
    SET_FROZEN,
    SET_FROZEN_PLACEMENT,
    SET_CACHE_WRITE,
    SET_BATCH,
    SET_RECOMPUTE,
    SET_CUT,
    SET_LINK,
    SET_UPLINK,
    SET_LATENCY,
    SET_MEM,
    SET_HALF_DUPLEX,
    SET_HOST_OP,
    SET_HOST_BLOCKING,
    SET_BUCKET,
    SET_CLIP,
    SET_OPTIMIZER_BYTES,
    SET_JITTER,
    SET_SEED,
    SET_ENGINE,
    SET_ALLREDUCE,
    SET_STRAGGLERS,
    SET_SLOW_LINKS,
    SETTING_COUNT
};

static const char *const setting_names[SETTING_COUNT] = {
    "model",
    "cluster",
    "stages",
    "replicas",
    "microbatches",
    "schedule",
    "chunks",
    "frozen",
    "frozen-placement",
    "cache-write",
    "batch",
    "recompute",
    "cut",
    "link",
    "uplink",
    "latency",
    "mem",
    "half-duplex",
    "host-op",
    "host-blocking",
    "bucket",
    "clip",
    "optimizer-bytes",
    "jitter",
    "seed",
    "engine",
    "allreduce",
    "stragglers",
    "slow-links",
};

static const char *const engine_names[] = {"auto", "event", "relax"};

enum status step_request_set(struct step_request *q, const char *name, const char *text,
                             struct err *err)
{
    int setting = 0;
    while (setting < SETTING_COUNT && strcmp(setting_names[setting], name) != 0)
        setting++;
    int64_t value = 0;
    int index = 0;
    enum status rc;
    switch ((enum step_setting)setting) {
    case SET_MODEL:
        q->model_text = text;
        return OK;
    case SET_CLUSTER:
        q->cluster_text = text;
        return OK;
    case SET_STAGES:
        return parse_int(text, name, 1, RANKS_MAX, &q->num_ranks, err);
    case SET_REPLICAS:
        return parse_int(text, name, 1, 1 << 20, &q->num_replicas, err);
    case SET_MICROBATCHES:
        return parse_int(text, name, 1, 1 << 24, &q->num_microbatches, err);
    case SET_SCHEDULE:
        q->schedule_text = text;
        return OK;
    case SET_CHUNKS:
        return parse_int(text, name, 1, 1024, &q->chunks, err);
    case SET_FROZEN:
        return parse_int(text, name, 0, INT32_MAX, &q->num_frozen, err);
    case SET_FROZEN_PLACEMENT:
        return set_placement(q, text, err);
    case SET_CACHE_WRITE:
        return set_flag(text, name, &q->cache_write, err);
    case SET_BATCH:
        return parse_int(text, name, 1, (int64_t)1 << 40, &q->batch, err);
    case SET_RECOMPUTE:
        return set_recompute(q, text, err);
    case SET_CUT:
        q->cut_text = text;
        return OK;
    case SET_LINK:
        return parse_rate(text, name, &q->link_bytes_per_s, err);
    case SET_UPLINK:
        return parse_rate(text, name, &q->uplink_bytes_per_s, err);
    case SET_LATENCY:
        return parse_ns(text, name, &q->latency_ns, err);
    case SET_MEM:
        return parse_bytes(text, name, &q->mem_bytes, err);
    case SET_HALF_DUPLEX:
        return set_flag(text, name, &q->half_duplex, err);
    case SET_HOST_OP:
        return parse_ns(text, name, &q->host_op_ns, err);
    case SET_HOST_BLOCKING:
        return set_flag(text, name, &q->host_blocking, err);
    case SET_BUCKET:
        return parse_bytes(text, name, &q->bucket_bytes, err);
    case SET_CLIP:
        return set_flag(text, name, &q->clip, err);
    case SET_OPTIMIZER_BYTES:
        return parse_int(text, name, 0, 64, &q->optimizer_bytes, err);
    case SET_JITTER:
        return parse_ratio(text, name, &q->options.jitter, err);
    case SET_SEED:
        rc = parse_int(text, name, 0, INT64_MAX, &value, err);
        q->options.seed = (uint64_t)value;
        return rc;
    case SET_ENGINE:
        rc = set_named(text, name, engine_names, 3, &index, err);
        q->options.engine = (enum sim_engine)index;
        return rc;
    case SET_ALLREDUCE:
        return set_allreduce(q, text, err);
    case SET_STRAGGLERS:
        q->stragglers_text = text;
        return OK;
    case SET_SLOW_LINKS:
        q->slow_links_text = text;
        return OK;
    case SETTING_COUNT:
        break;
    }
    rc = err_set(err, ERR_INPUT, "no setting '%.64s'", name);
    const char *near = nearest_name(name, setting_names, SETTING_COUNT);
    if (near)
        err_hint(err, "did you mean '%s'?", near);
    else
        err_hint(err, "settings are the long options of 'elapse sim --step', without dashes");
    return rc;
}

void step_answer_clear(struct step_answer *a)
{
    free(a->model_key);
    free(a->cluster_key);
    model_clear(&a->model);
    cluster_clear(&a->base);
    cluster_clear(&a->cluster);
    cost_handle_clear(&a->cost);
    plan_clear(&a->plan);
    schedule_clear(&a->custom);
    schedule_clear(&a->full);
    workload_clear(&a->workload);
    sim_result_clear(&a->result);
    *a = (struct step_answer){0};
}

double step_answer_samples_per_s(const struct step_answer *a)
{
    const double samples = (double)a->plan.batch * a->plan.num_replicas;
    return a->result.step_ns > 0 ? samples * 1e9 / (double)a->result.step_ns : 0;
}

static enum status take_model(const struct step_request *q, struct step_answer *a, struct err *err)
{
    if (!q->model_text)
        return err_set(err, ERR_INPUT, "sim --step needs --model MODEL or a job");
    if (a->model_key && strcmp(a->model_key, q->model_text) == 0)
        return OK;
    free(a->model_key);
    a->model_key = NULL;
    model_clear(&a->model);
    cost_handle_clear(&a->cost); /* it knows the model's items */
    enum status rc = model_load(q->model_text, &a->model, err);
    if (rc == OK && !(a->model_key = strdup(q->model_text)))
        rc = err_nomem(err);
    return rc;
}

static enum status take_cluster(const struct step_request *q, struct step_answer *a,
                                struct err *err)
{
    char text[64];
    snprintf(text, sizeof text, "1x%lld", (long long)(q->num_ranks * q->num_replicas));
    const char *key = q->cluster_text ? q->cluster_text : text;
    enum status rc = OK;
    if (!a->cluster_key || strcmp(a->cluster_key, key) != 0) {
        free(a->cluster_key);
        a->cluster_key = NULL;
        cluster_clear(&a->base);
        cost_handle_clear(&a->cost);
        rc = cluster_load(key, &a->base, err);
        if (rc == OK && !(a->cluster_key = strdup(key)))
            rc = err_nomem(err);
        if (rc != OK)
            return rc;
    }
    cluster_clear(&a->cluster);
    rc = cluster_copy(&a->base, &a->cluster, err);
    if (rc != OK)
        return rc;
    struct cluster *c = &a->cluster;
    for (int d = 0; d < c->num_devices; d++) {
        if (q->link_bytes_per_s > 0)
            c->devices[d].link_bytes_per_s = q->link_bytes_per_s;
        if (q->mem_bytes >= 0)
            c->devices[d].mem_bytes = q->mem_bytes;
    }
    for (int n = 0; n < c->num_nodes; n++) {
        if (q->uplink_bytes_per_s > 0)
            c->uplink_bytes_per_s[n] = q->uplink_bytes_per_s;
    }
    if (q->latency_ns >= 0)
        c->link_latency_ns = c->uplink_latency_ns = q->latency_ns;
    if (q->host_op_ns >= 0)
        c->host_op_ns = q->host_op_ns;
    c->host_blocking = c->host_blocking || q->host_blocking;
    c->half_duplex = c->half_duplex || q->half_duplex;
    return cluster_check(c, err);
}

/* --cut 3,1,2: items per stage, frozen ones outside the pipeline not counted. */
static enum status cut_given(const struct step_request *q, const struct model *model,
                             struct plan *plan, struct err *err)
{
    int64_t *sizes = NULL;
    int count = 0;
    enum status rc = parse_int_list(q->cut_text, "cut", 1, model->num_items, &sizes, &count, err);
    if (rc != OK)
        return rc;
    int S = plan->num_stages;
    int64_t at = plan_cut_start(plan, model);
    plan->first_item = calloc((size_t)S + 1, sizeof *plan->first_item);
    if (!plan->first_item) {
        rc = err_nomem(err);
    } else if (count != S) {
        rc = err_set(err, ERR_INPUT, "cut has %d stages, expected %d", count, S);
    } else {
        for (int s = 0; s < S && at <= model->num_items; s++) {
            plan->first_item[s] = (int)at;
            at += sizes[s];
        }
        plan->first_item[S] = (int)at;
        if (at != model->num_items)
            rc = err_set(err, ERR_INPUT, "cut covers %lld items, model '%s' has %d", (long long)at,
                         model->name, model->num_items);
    }
    free(sizes);
    return rc;
}

static enum status take_plan(const struct step_request *q, struct step_answer *a, struct err *err)
{
    struct plan plan = {0};
    enum schedule_kind kind;
    enum status rc = schedule_kind_parse(q->schedule_text, &kind, err);
    if (rc != OK)
        return rc;
    int64_t devices;
    if (!mul_ok(q->num_ranks, q->num_replicas, &devices) || devices > a->cluster.num_devices) {
        rc = err_set(err, ERR_INFEASIBLE,
                     "%lld replicas of %lld devices do not fit cluster '%s' of %d devices",
                     (long long)q->num_replicas, (long long)q->num_ranks, a->cluster.name,
                     a->cluster.num_devices);
        return rc;
    }
    int64_t chunks = q->chunks ? q->chunks : schedule_default_chunks(kind);
    if (q->num_ranks * chunks > RANKS_MAX)
        return err_set(err, ERR_INPUT, "%lld stages of %lld chunks, at most %d stages",
                       (long long)q->num_ranks, (long long)chunks, RANKS_MAX);
    if (q->num_ranks * chunks > a->model.num_items)
        return err_set(err, ERR_INFEASIBLE, "cannot cut %d items of model '%s' into %lld stages",
                       a->model.num_items, a->model.name, (long long)(q->num_ranks * chunks));
    rc = model_check_frozen(&a->model, q->num_frozen, err);
    if (rc != OK)
        return rc;
    plan.num_ranks = (int)q->num_ranks;
    plan.chunks = (int)chunks;
    plan.num_stages = (int)(q->num_ranks * chunks);
    plan.num_replicas = (int)q->num_replicas;
    plan.batch = q->batch ? q->batch : q->num_microbatches;
    if (q->num_microbatches > plan.batch)
        return err_set(err, ERR_INFEASIBLE, "cannot cut a batch of %lld into %lld micro-batches",
                       (long long)plan.batch, (long long)q->num_microbatches);
    plan.microbatches = microbatches_of(plan.batch, (int)q->num_microbatches);
    plan.schedule = kind;
    plan.num_frozen_layers = (int)q->num_frozen;
    plan.frozen = q->num_frozen == 0         ? FROZEN_NONE
                  : q->frozen == FROZEN_NONE ? FROZEN_SPREAD
                                             : q->frozen;
    plan.cache_write = q->cache_write;
    plan.recompute = q->recompute;
    plan.bucket_bytes = q->bucket_bytes;
    plan.clip = q->clip;
    plan.optim_bytes_per_param = (int)q->optimizer_bytes;
    rc = plan_check_counts(&plan, &a->model, &a->cluster, err);
    if (rc != OK)
        return rc;
    plan.device = calloc((size_t)devices, sizeof *plan.device);
    if (!plan.device) {
        rc = err_nomem(err);
        goto out;
    }
    rc = autodp_map(&a->cluster, MAP_PIPELINE_INSIDE, plan.num_ranks, plan.num_replicas,
                    plan.device, err);
    if (rc == OK)
        rc = q->cut_text
                 ? cut_given(q, &a->model, &plan, err)
                 : cut_plan(&(struct setting){&a->model, &a->cluster, &a->cost.cost}, &plan, err);
    if (rc == OK)
        rc = plan_check(&plan, &a->model, &a->cluster, err);
    if (rc != OK)
        goto out;
    plan_clear(&a->plan);
    a->plan = plan;
    plan = (struct plan){0};
out:
    plan_clear(&plan);
    return rc;
}

enum status step_answer_simulate(struct step_answer *a, const struct sim_options *options,
                                 struct err *err)
{
    int64_t start = clock_now_ns();
    schedule_clear(&a->full);
    workload_clear(&a->workload);
    sim_result_clear(&a->result);
    const struct setting setting = {&a->model, &a->cluster, &a->cost.cost};
    enum status rc = sim_check_size(&a->plan, err);
    if (rc == OK)
        rc = plan_lower(&setting, &a->plan, a->custom.num_ranks ? &a->custom : NULL, &a->workload,
                        &a->full, err);
    if (rc == OK)
        rc = sim_step(&a->full, &a->workload, &setting, &a->plan, options, &a->result, err);
    a->wall_ns = clock_now_ns() - start;
    return rc;
}

enum status step_request_run(const struct step_request *q, struct step_answer *a, struct err *err)
{
    enum status rc = take_model(q, a, err);
    if (rc == OK)
        rc = take_cluster(q, a, err);
    a->query = cost_query_of_model(&a->model);
    if (rc == OK && !a->cost.cost.item_ns)
        rc = cost_choose_for(q->db_path, &a->model, &a->cluster, &a->query, &a->cost, err);
    if (rc == OK)
        rc = take_plan(q, a, err);
    if (rc == OK)
        rc = cluster_slow(q, &a->cluster, err);
    if (rc == OK)
        rc = step_answer_simulate(a, &q->options, err);
    return rc;
}
