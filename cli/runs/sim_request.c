/* The settings of `elapse sim --step`, and the way from them to a simulated step.
 *
 * The table `entries` holds each setting with its help, type and limits. step_request_run() makes
 * the model, the cluster, the costs, the plan and the lists in this order, and simulates the step.
 * Read step_request_run() at the end first. */
#include "cli/runs/sim_request.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/plan/cut_model.h"
#include "partition/step/lower.h"
#include "partition/model/attention.h"
#include "partition/step/recompute_fit.h"
#include "partition/base/synonyms.h"
#include "partition/base/units.h"
#include "profiles/base/clock.h"
#include "profiles/job/job_json.h"

#define RANKS_MAX SCHEDULE_MAX_STAGES

void step_request_init(struct step_request *request)
{
    *request = (struct step_request){
        .schedule_text = "1f1b",
        .num_ranks = 1,
        .num_replicas = 1,
        .tensor = 1,
        .expert = 1,
        .context = 1,
        .num_microbatches = 1,
        .chunks = 0,
        .sends = -1,
        .host_op_ns = -1,
        .latency_ns = -1,
        .mem_bytes = -1,
        .efficiency = 1,
        .optimizer_bytes = -1,
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

static const char *frozen_name(int i)
{
    return frozen_placement_name((enum frozen_placement)i);
}

static const char *recompute_name(int i)
{
    return recompute_mode_name((enum recompute_mode)i);
}

/* Optimizers by name, with the bytes of their state for each parameter. */
static const struct {
    const char *name;
    int bytes;
} optimizers[] = {
    {"momentum", 4},
    {"sgd",      0},
    {"adam",     8},
    {"adamw",    8},
};
enum { NUM_OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static const char *optimizer_name(int i)
{
    return optimizers[i].name;
}

static const char *sends_name(int i)
{
    return cluster_sends_name((enum cluster_sends)i);
}

static const char *cost_name(int i)
{
    return cost_choice_name((enum cost_choice)i);
}

static const char *shard_name(int i)
{
    return shard_mode_name((enum shard_mode)i);
}

static const char *context_name(int i)
{
    return context_kind_name((enum context_kind)i);
}

static const char *attention_name(int i)
{
    return attention_kind_name((enum attention_kind)i);
}

static const char *framework_name(int i)
{
    return framework_kind_name((enum framework_kind)i);
}

static const char *norm_name(int i)
{
    return norm_kind_name((enum norm_kind)i);
}

static const char *allreduce_name(int i)
{
    return allreduce_kind_name((enum allreduce_kind)i);
}

enum setting_type {
    SET_TEXT,  /* borrowed */
    SET_INT,   /* int64_t, min..max */
    SET_NAME,  /* an enum of max names */
    SET_RATE,  /* double, bytes per second */
    SET_RATIO, /* double */
    SET_SHARE, /* double, an efficiency */
    SET_NS,    /* int64_t */
    SET_BYTES, /* int64_t */
    SET_FLAG   /* bool */
};

#define SETTING(name_, type_, member_, arg_, help_, ...)                                           \
    {                                                                                              \
        .name = (name_), .type = SET_##type_, .offset = offsetof(struct step_request, member_),    \
        .arg = (arg_), .help = (help_), __VA_ARGS__                                                \
    }
static const struct setting_entry {
    const char *name, *arg, *help; /* arg NULL: not listed as an option with a value */
    enum setting_type type;
    size_t offset;
    int64_t min, max;
    const char *(*name_of)(int);
    const char *values; /* of a SET_TEXT that takes a fixed set of words */
} entries[] = {
    SETTING("model", TEXT, model_text, "MODEL", "model of the step: preset, file or uniform:..."),
    SETTING("cluster", TEXT, cluster_text, "CLUSTER",
            "preset, file or NODESxDEVICES (default 1xK*R*T*C)"),
    SETTING("stages", INT, num_ranks, "K", "devices per pipeline (default 1)", .min = 1,
            .max = RANKS_MAX),
    SETTING("replicas", INT, num_replicas, "R", "pipelines side by side (default 1)", .min = 1,
            .max = 1 << 20),
    SETTING("microbatches", INT, num_microbatches, "M", "micro-batches per mini-batch (default 1)",
            .min = 1, .max = 1 << 24),
    SETTING("schedule", TEXT, schedule_text, "KIND", "%s (default 1f1b)", .values = SCHEDULE_NAMES),
    SETTING("chunks", INT, chunks, "V",
            "stages per device (default 2 if the schedule has several, otherwise 1)", .min = 1,
            .max = 1024),
    SETTING("batch", INT, batch, "B", "samples per pipeline (default M)", .min = 1,
            .max = (int64_t)1 << 40),
    SETTING("frozen", INT, num_frozen, "F", "frozen layers (default 0)", .max = INT32_MAX),
    SETTING("frozen-placement", NAME, frozen, "WHERE",
            "where frozen layers run: %s (default none: spread if F > 0)",
            .max = FROZEN_PLACEMENT_COUNT, .name_of = frozen_name),
    SETTING("cut", TEXT, cut_text, "N,N,...", "items per stage (default: exact min-max by time)"),
    SETTING("recompute", NAME, recompute, "MODE", "%s (default never)", .max = RECOMPUTE_MODE_COUNT,
            .name_of = recompute_name),
    SETTING("recompute-layers", INT, recompute_layers, "N",
            "layers of a stage that --recompute layer runs again (default: as many as the memory "
            "needs)",
            .min = 1, .max = INT32_MAX),
    SETTING("tensor", INT, tensor, "T",
            "neighbouring devices that hold each item together (default 1)", .min = 1, .max = 64),
    SETTING("expert", INT, expert, "E",
            "replicas that divide the experts of each layer (default 1)", .min = 1,
            .max = MODEL_EXPERTS_MAX),
    SETTING("expert-tensor", INT, expert_tensor, "X",
            "neighbours that divide each expert (default: T)", .min = 1, .max = 64),
    SETTING("context", INT, context, "C",
            "replicas that divide the tokens of each sample (default 1)", .min = 1,
            .max = CONTEXT_MAX),
    SETTING("context-comm", NAME, context_kind, "KIND",
            "how attention meets keys of other replicas: %s (default ring)",
            .max = CONTEXT_KIND_COUNT, .name_of = context_name),
    SETTING("shard", NAME, shard, "WHAT", "what replicas divide: %s (default none)",
            .max = SHARD_MODE_COUNT, .name_of = shard_name),
    SETTING("shard-group", INT, shard_group, "G",
            "replicas that divide gradients or weights, of which other groups have copies: HSDP "
            "(default: all)",
            .min = 2, .max = 1 << 20),
    SETTING("attention", NAME, attention, "KIND",
            "whether stashes hold score matrices: %s; eager: they do, softmax by operators; "
            "flash1: fused, by kernels before FlashAttention-2 (default auto)",
            .max = ATTENTION_KIND_COUNT, .name_of = attention_name),
    SETTING("framework", NAME, framework, "KIND",
            "what launches the kernels: %s (default auto: fused operators)",
            .max = FRAMEWORK_KIND_COUNT, .name_of = framework_name),
    SETTING("norm", NAME, norm, "KIND",
            "whether RMSNorm is one kernel: %s (default auto: as the framework has it)",
            .max = NORM_KIND_COUNT, .name_of = norm_name),
    SETTING("link", RATE, link_bytes_per_s, "RATE",
            "bandwidth of a device's port (default as CLUSTER; 16GBps)"),
    SETTING("uplink", RATE, uplink_bytes_per_s, "RATE",
            "bandwidth of a node's uplink (default as CLUSTER; 16GBps)"),
    SETTING("latency", NS, latency_ns, "TIME", "latency of a message (default as CLUSTER; 5us)"),
    SETTING("mem", BYTES, mem_bytes, "BYTES", "memory of a device (default as CLUSTER; unlimited)"),
    SETTING("host-op", NS, host_op_ns, "TIME", "host time to launch an op (default as CLUSTER; 0)"),
    SETTING("sends", NAME, sends, "KIND",
            "%s; blocking: a send holds its device (default as CLUSTER; as --framework; eager)",
            .max = SENDS_AUTO + 1, .name_of = sends_name),
    SETTING("bucket", BYTES, bucket_bytes, "BYTES",
            "gradient bucket of the all-reduce, 0: one per stage (default 0)"),
    SETTING("optimizer", NAME, optimizer, "KIND", "%s (default momentum)", .max = NUM_OPTIMIZERS,
            .name_of = optimizer_name),
    SETTING("optimizer-bytes", INT, optimizer_bytes, "N",
            "optimizer state per parameter (default that of the optimizer)", .max = 64),
    SETTING("cost", NAME, cost, "NAME", "source of times: %s (default auto; roofline is ideal)",
            .max = COST_CHOICE_COUNT, .name_of = cost_name),
    SETTING("efficiency", SHARE, efficiency, "X",
            "speed of kernels or roofline, more than 0 to 10 (default 1)"),
    SETTING("calibration", TEXT, calibration, "NAME",
            "a calibration of 'elapse calibrate', which scales kernels or roofline"),
    SETTING("jitter", RATIO, options.jitter, "RATIO",
            "standard deviation of op times over their mean (default 0)"),
    SETTING("seed", INT, options.seed, "N", "seed of the jitter (default 1)", .max = INT64_MAX),
    SETTING("allreduce", NAME, options.allreduce, "KIND", "%s (default ring)",
            .max = ALLREDUCE_KIND_COUNT, .name_of = allreduce_name),
    SETTING("stragglers", TEXT, stragglers_text, "TABLE",
            "slow devices: DEVICE:FACTOR,... or random:SHARE:FACTOR (by --seed); 3:0.5: device 3 "
            "at half speed"),
    SETTING(
        "slow-links", TEXT, slow_links_text, "TABLE",
        "slow ports: DEVICE:FACTOR,... or random:SHARE:FACTOR; 3:0.1: a tenth of the bandwidth"),
    SETTING("cache-write", FLAG, cache_write, NULL, NULL),
    SETTING("host-blocking", FLAG, host_blocking, NULL, NULL),
    SETTING("half-duplex", FLAG, half_duplex, NULL, NULL),
    SETTING("dropout", FLAG, dropout, NULL, NULL),
    SETTING("sequence-parallel", FLAG, sequence_parallel, NULL, NULL),
    SETTING("clip", FLAG, clip, NULL, NULL),
};
enum { NUM_ENTRIES = sizeof entries / sizeof entries[0] };

/* The words that an entry takes. A name that is empty cannot be chosen. */
static void list_values(const struct setting_entry *entry, char values[128])
{
    const char *names[16];
    int n = 0;
    for (int i = 0; entry->name_of && i < (int)entry->max; i++)
        if (*entry->name_of(i))
            names[n++] = entry->name_of(i);
    if (n > 0)
        join_names(names, n, values, 128);
    else
        snprintf(values, 128, "%s", entry->values ? entry->values : "");
}

int step_settings(struct step_setting settings[STEP_SETTINGS_MAX])
{
    int n = 0;
    for (int i = 0; i < NUM_ENTRIES; i++) {
        if (!entries[i].arg)
            continue;
        settings[n] = (struct step_setting){
            .name = entries[i].name, .arg = entries[i].arg, .help = entries[i].help};
        list_values(&entries[i], settings[n++].values);
    }
    return n;
}

bool step_setting_is_flag(const char *name)
{
    for (int i = 0; i < NUM_ENTRIES; i++)
        if (strcmp(entries[i].name, name) == 0)
            return entries[i].type == SET_FLAG;
    return false;
}

static enum status set_named(const struct setting_entry *entry, const char *text, int *value,
                             struct err *err)
{
    char list[256] = "";
    for (int i = 0; i < (int)entry->max; i++) {
        if (strcmp(current_value(text), entry->name_of(i)) == 0) {
            *value = i;
            return OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
                 entry->name_of(i));
    }
    const char *names[17] = {NULL};
    for (int i = 0; i < (int)entry->max && i < 16; i++)
        names[i] = entry->name_of(i);
    const enum status rc =
        err_set(err, ERR_INPUT, "%s must be one of %s, got '%.64s'", entry->name, list, text);
    const char *ours = synonym_value(text, names);
    if (ours)
        err_hint(err, "use %s", ours);
    return rc;
}

static enum status set_entry(struct step_request *q, const struct setting_entry *entry,
                             const char *text, struct err *err)
{
    void *at = (char *)q + entry->offset;
    switch (entry->type) {
    case SET_TEXT:
        *(const char **)at = text;
        return OK;
    case SET_INT:
        return parse_int(text, entry->name, entry->min, entry->max, at, err);
    case SET_NAME:
        return set_named(entry, text, at, err);
    case SET_RATE:
        return parse_rate(text, entry->name, at, err);
    case SET_RATIO:
        return parse_ratio(text, entry->name, at, err);
    case SET_SHARE: {
        double share = 0;
        const enum status rc = parse_ratio(text, entry->name, &share, err);
        *(double *)at = share;
        return rc == OK ? cost_efficiency_check(share, err) : rc;
    }
    case SET_NS:
        return parse_ns(text, entry->name, at, err);
    case SET_BYTES:
        return parse_bytes(text, entry->name, at, err);
    case SET_FLAG:
        return set_flag(text, entry->name, at, err);
    }
    return OK;
}

enum status step_request_set(struct step_request *q, const char *name, const char *text,
                             struct err *err)
{
    const char *names[NUM_ENTRIES], *ours = synonym_short_option(name);
    for (int i = 0; i < NUM_ENTRIES; i++) {
        names[i] = entries[i].name;
        if (strcmp(entries[i].name, ours ? ours : name) == 0)
            return set_entry(q, &entries[i], text, err);
    }
    enum status rc = err_set(err, ERR_INPUT, "no setting '%.64s'", name);
    const char *near = nearest_name(name, names, NUM_ENTRIES);
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
    const double samples = (double)plan_samples(&a->plan);
    return a->result.step_ns > 0 ? samples * 1e9 / (double)a->result.step_ns : 0;
}

struct step_rates step_answer_rates(const struct step_answer *a)
{
    return rates_of_step(&a->model, &a->cluster, &a->plan, a->query.dtype,
                         step_answer_samples_per_s(a));
}

static enum status take_model(const struct step_request *q, struct step_answer *a, struct err *err)
{
    if (!q->model_text)
        return err_set(err, ERR_INPUT, "sim --step needs --model MODEL or a job");
    if (a->model_key && strcmp(a->model_key, q->model_text) == 0 && a->attention == q->attention &&
        a->framework == q->framework && a->norm == q->norm)
        return OK;
    free(a->model_key);
    a->model_key = NULL;
    model_clear(&a->model);
    cost_handle_clear(&a->cost); /* it belongs to the items of the old model */
    enum status rc = model_load(q->model_text, &a->model, err);
    if (rc == OK && !(a->model_key = strdup(q->model_text)))
        rc = err_nomem(err);
    if (rc == OK) {
        model_set_attention(&a->model, q->attention);
        model_set_framework(&a->model, q->framework, q->norm);
    }
    a->attention = q->attention;
    a->framework = q->framework;
    a->norm = q->norm;
    return rc;
}

static enum status take_cluster(const struct step_request *q, struct step_answer *a,
                                struct err *err)
{
    char text[64];
    snprintf(text, sizeof text, "1x%lld",
             (long long)(q->num_ranks * q->num_replicas * q->tensor * q->context));
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
    for (int n = 0; n < c->num_nodes; n++)
        if (q->uplink_bytes_per_s > 0)
            c->uplink_bytes_per_s[n] = q->uplink_bytes_per_s;
    if (q->latency_ns >= 0)
        c->link_latency_ns = c->uplink_latency_ns = q->latency_ns;
    if (q->host_op_ns >= 0)
        c->host_op_ns = q->host_op_ns;
    if (q->sends >= 0)
        c->sends = (enum cluster_sends)q->sends;
    c->host_blocking = c->host_blocking || q->host_blocking;
    c->half_duplex = c->half_duplex || q->half_duplex;
    return cluster_check(c, err);
}

static enum status take_plan(const struct step_request *q, struct step_answer *a, struct err *err)
{
    const struct setting setting = {&a->model, &a->cluster, &a->cost.cost};
    struct plan plan = {.num_ranks = (int)q->num_ranks,
                        .chunks = (int)q->chunks,
                        .num_replicas = (int)(q->num_replicas * q->context),
                        .batch = q->batch ? q->batch : q->num_microbatches,
                        .microbatches.count = (int)q->num_microbatches,
                        .num_frozen_layers = (int)q->num_frozen,
                        .frozen = q->frozen,
                        .cache_write = q->cache_write,
                        .recompute = q->recompute,
                        .tensor = (int)q->tensor,
                        .sequence_parallel = q->sequence_parallel,
                        .expert = (int)q->expert,
                        .expert_tensor = (int)q->expert_tensor,
                        .context = (int)q->context,
                        .context_kind = q->context_kind,
                        .shard = q->shard,
                        .shard_group = (int)q->shard_group,
                        .bucket_bytes = q->bucket_bytes,
                        .clip = q->clip,
                        .optim_bytes_per_param = q->optimizer_bytes >= 0
                                                     ? (int)q->optimizer_bytes
                                                     : optimizers[q->optimizer].bytes};
    int64_t *sizes = NULL; /* --cut 3,1,2 */
    int num_sizes = 0;
    a->optimizer = q->optimizer_bytes >= 0 ? optimizer_of_bytes(plan.optim_bytes_per_param)
                                           : optimizers[q->optimizer].name;
    enum status rc = schedule_kind_parse(q->schedule_text, &plan.schedule, err);
    if (rc == OK && q->cut_text)
        rc = parse_int_list(q->cut_text, "cut", 1, a->model.num_items, &sizes, &num_sizes, err);
    if (rc == OK)
        rc = plan_complete(&setting, sizes, num_sizes, &plan, err);
    for (int s = 0; rc == OK && plan.recompute_layers && s < plan.num_stages; s++)
        plan.recompute_layers[s] = (int)q->recompute_layers;
    free(sizes);
    if (rc != OK)
        return rc;
    plan_clear(&a->plan);
    a->plan = plan;
    a->fit_layers = q->recompute_layers == AUTO;
    return OK;
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
    if (rc == OK && a->plan.recompute_layers)
        rc = recompute_fit(&setting, &a->plan, a->fit_layers, &a->full, &a->workload, err);
    if (rc == OK)
        rc = sim_step(&a->full, &a->workload, &setting, &a->plan, options, &a->result, err);
    a->wall_ns = clock_now_ns() - start;
    return rc;
}

/* Whether the costs at hand were chosen for another request. */
static bool cost_differs(const struct step_request *q, const struct step_answer *a)
{
    return q->cost != a->cost_choice || q->efficiency != a->efficiency ||
           strcmp(q->calibration ? q->calibration : "", a->cost.calibration.name) != 0;
}

enum status step_request_run(const struct step_request *q, struct step_answer *a, struct err *err)
{
    enum status rc = take_model(q, a, err);
    if (rc == OK)
        rc = take_cluster(q, a, err);
    a->query = cost_query_of_model(&a->model);
    a->query.choice = q->cost;
    a->query.efficiency = q->efficiency;
    a->query.dropout = q->dropout;
    snprintf(a->query.calibration, sizeof a->query.calibration, "%s",
             q->calibration ? q->calibration : "");
    if (rc == OK && a->cost.cost.item_ns && cost_differs(q, a))
        cost_handle_clear(&a->cost);
    a->cost_choice = q->cost;
    a->efficiency = q->efficiency;
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
