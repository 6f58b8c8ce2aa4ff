/* The settings of `elapse sim --step`, and the way from them to a job.
 *
 * The table `entries` holds each setting with its help and the job's key that it is short for. Read
 * job_sets_add() first. */
#include "cli/simulate/sim_request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/synonyms.h"
#include "partition/base/units.h"
#include "partition/plan/plausible.h"
#include "partition/step/lower.h"
#include "partition/step/recompute_fit.h"
#include "profiles/base/clock.h"
#include "profiles/job/job_json.h"
#include "profiles/json/fields.h"

void step_request_init(struct step_request *request)
{
    *request = (struct step_request){.time = PLAN_TIME, .options.seed = 1};
}

/* clang-format off */
static const struct {
    const char *name, *key, *arg, *help; /* key NULL: of the step alone. arg NULL: a flag */
    const char *values; /* NULL: those of the key */
} entries[] = {
    {"model", "model", "MODEL", "model of the step: preset, file or uniform:...", ""},
    {"cluster", "cluster", "CLUSTER", "preset, file or NODESxDEVICES (default 1xK*R*T*C)", ""},
    {"seq", "model.seq", "N", "tokens of a sample", ""},
    {"price", "cluster.price", "X", "of a device and hour", ""},
    {"stages", "pipeline.num_stages", "K", "devices per pipeline (default 1)", ""},
    {"replicas", "pipeline.num_replicas", "R", "pipelines side by side (default 1)", ""},
    {"microbatches", "pipeline.num_microbatches", "M",
     "micro-batches per mini-batch of a pipeline (default 1)", ""},
    {"schedule", "pipeline.schedule", "KIND",
     "%s (default 1f1b); search: op lists of its own, found for the step's times", NULL},
    {"chunks", "pipeline.chunks", "V",
     "stages per device (default 2 if the schedule has several, otherwise 1)", ""},
    {"batch", "train.batch.per_pipeline", "B", "samples per pipeline (default M)", ""},
    {"frozen", NULL, "F", "frozen layers (default 0)", ""},
    {"share", NULL, "X", "share of the weight gradients that each backward leaves out (default 0)",
     ""},
    {"max-share", "freeze.max_share", "X",
     "leave out at most this share of each stage's, so that the step ends soonest (default 0)", ""},
    {"frozen-placement", NULL, "WHERE",
     "where frozen layers run: %s (default: as the job; without one spread)", "first spread cached"},
    {"cut", NULL, "N,N,...", "items per stage (default: the planner's)", ""},
    {"recompute", "pipeline.recompute", "MODE", "%s (default never)", NULL},
    {"headroom", "pipeline.headroom", "X",
     "share of a device's memory to keep free (default 8%%, with a framework 12%%); a step with "
     "less is tight", ""},
    {"recompute-layers", "pipeline.recompute_layers", "N",
     "layers of a stage that --recompute layer runs again (default: as many as the memory needs)", ""},
    {"tensor", "pipeline.tensor", "T",
     "neighbouring devices that hold each item together (default 1)", ""},
    {"expert", "pipeline.expert", "E", "replicas that divide the experts of each layer (default 1)",
     ""},
    {"expert-tensor", "pipeline.expert_tensor", "X",
     "neighbours that divide each expert (default: T)", ""},
    {"context", "pipeline.context", "C",
     "replicas that divide the tokens of each sample (default 1)", ""},
    {"context-comm", "pipeline.context_comm", "KIND",
     "how attention meets keys of other replicas: %s (default ring)", NULL},
    {"shard", "pipeline.shard", "WHAT", "what replicas divide: %s (default none)", NULL},
    {"shard-group", "pipeline.shard_group", "G",
     "replicas that divide gradients or weights, of which other groups have copies: HSDP "
     "(default: all)", ""},
    {"attention", "train.attention", "KIND",
     "whether stashes hold score matrices: %s; eager: they do, softmax by operators; flash1: "
     "fused, by kernels before FlashAttention-2 (default auto)", NULL},
    {"framework", "train.framework", "KIND",
     "what launches the kernels: %s; @YEAR: as it was then (default auto: fused operators)", NULL},
    {"norm", "train.norm", "KIND",
     "whether RMSNorm is one kernel: %s (default auto: as the framework has it)", NULL},
    {"link", "cluster.link", "RATE", "bandwidth of a device's port (default as CLUSTER; 16GBps)",
     ""},
    {"uplink", "cluster.uplink", "RATE",
     "bandwidth of a node's uplink (default as CLUSTER; 16GBps)", ""},
    {"latency", "cluster.latency", "TIME", "latency of a message (default as CLUSTER; 5us)", ""},
    {"mem", "cluster.mem", "BYTES", "memory of a device (default as CLUSTER; unlimited)", ""},
    {"host-op", "cluster.host_op", "TIME", "host time to launch an op (default as CLUSTER; 0)", ""},
    {"sends", "cluster.sends", "KIND",
     "%s; blocking: a send holds its device (default as CLUSTER; as --framework; eager)", NULL},
    {"bucket", "pipeline.bucket_bytes", "BYTES",
     "gradient bucket of the all-reduce, 0: one per stage (default as --framework; 0)", ""},
    {"dtype", "train.dtype", "NAME", "data type: %s (default that of MODEL, or fp32)", NULL},
    {"optimizer", "train.optimizer", "KIND", "%s (default momentum)", "momentum sgd adam adamw"},
    {"optimizer-bytes", "train.optimizer", "N",
     "optimizer state per parameter: %s (default that of the optimizer)", "0 4 8"},
    {"cost", "cost.source", "NAME", "source of times: %s (default auto; roofline is ideal)", NULL},
    {"efficiency", "cost.efficiency", "X",
     "speed of kernels or roofline, more than 0 to 10 (default 1)", ""},
    {"calibration", "cost.calibration", "NAME",
     "a calibration of 'elapse calibrate', which scales kernels or roofline", ""},
    {"jitter", NULL, "RATIO", "standard deviation of op times over their mean (default 0)", ""},
    {"seed", NULL, "N", "seed of the jitter (default 1)", ""},
    {"allreduce", NULL, "KIND", "%s (default ring)", ALLREDUCE_NAMES},
    {"stragglers", NULL, "TABLE",
     "slow devices: DEVICE:FACTOR,... or random:SHARE:FACTOR (by --seed); 3:0.5: device 3 at half "
     "speed", ""},
    {"slow-links", NULL, "TABLE",
     "slow ports: DEVICE:FACTOR,... or random:SHARE:FACTOR; 3:0.1: a tenth of the bandwidth", ""},
    {"cache-write", NULL, NULL, "write the frozen prefix's output to the cache", ""},
    {"host-blocking", "cluster.host_blocking", NULL,
     "each launch blocks the host, because one process drives a pipeline", ""},
    {"sequence-parallel", "pipeline.sequence_parallel", NULL,
     "with --tensor: divide norms and dropout by tokens", ""},
    {"half-duplex", "cluster.half_duplex", NULL, "both directions of a link share its bandwidth",
     ""},
    {"dropout", "train.dropout", NULL, "count the kernels of dropout (kernels)", ""},
    {"clip", "train.clip_norm", NULL, "compute a global gradient norm before the update", ""},
};
/* clang-format on */
enum { NUM_ENTRIES = sizeof entries / sizeof entries[0] };

/* Set the words that a setting takes: "a|b|c" becomes "a b c". */
static void set_words(struct step_setting *setting, const char *takes)
{
    snprintf(setting->values, sizeof setting->values, "%s", takes);
    for (char *c = setting->values; *c; c++)
        *c = *c == '|' ? ' ' : *c;
}

static void list_cluster_key(const struct key_help *key, void *settings)
{
    for (struct step_setting *s = settings; s < (struct step_setting *)settings + NUM_ENTRIES; s++)
        if (s->key && strncmp(s->key, "cluster.", 8) == 0 && strcmp(s->key + 8, key->key) == 0 &&
            strchr(key->takes, '|') && s->arg)
            set_words(s, key->takes);
}

int step_settings(struct step_setting settings[STEP_SETTINGS_MAX])
{
    int n = 0;
    for (int i = 0; i < NUM_ENTRIES; i++) {
        settings[n] = (struct step_setting){.name = entries[i].name,
                                            .arg = entries[i].arg,
                                            .help = entries[i].help,
                                            .key = entries[i].key};
        set_words(&settings[n++], entries[i].values ? entries[i].values : "");
    }
    for (int i = 0; i < job_keys.num && n < STEP_SETTINGS_MAX; i++) {
        const struct member *row = &job_keys.rows[i];
        if (row->option)
            settings[n++] = (struct step_setting){.name = row->option,
                                                  .arg = row->type == MEMBER_BOOL ? NULL : "VALUE",
                                                  .help = row->help,
                                                  .key = row->name};
    }
    for (int i = 0; i < n; i++) {
        const char *key = settings[i].key;
        char takes[160];
        const struct member *row = key ? fields_find(job_keys.rows, job_keys.num, key, NULL) : NULL;
        if (row && row->type == MEMBER_NAME)
            set_words(&settings[i], member_takes(row, takes, sizeof takes));
    }
    keys_each(KEYS_CLUSTER, list_cluster_key, settings);
    return n;
}

struct step_setting *step_setting_find(struct step_setting *settings, int num, const char *name)
{
    const char *ours = synonym_short_option(name);
    for (int i = 0; i < num; i++)
        if (strcmp(settings[i].name, ours ? ours : name) == 0)
            return &settings[i];
    return NULL;
}

/* The place of a word in a list "a b c"; -1 and ERR_INPUT: it is not there. */
static int find_word(const char *words, const char *name, const char *text, struct err *err)
{
    char list[160];
    int n = 0;
    const size_t length = strlen(text);
    for (const char *w = words; w; w = strchr(w, ' ') ? strchr(w, ' ') + 1 : NULL, n++)
        if (length > 0 && strncmp(w, text, length) == 0 && (w[length] == ' ' || !w[length]))
            return n;
    n = 0;
    for (const char *w = words; *w && n < (int)sizeof list - 3; w++) {
        if (*w == ' ')
            list[n++] = ',';
        list[n++] = *w;
    }
    list[n] = '\0';
    err_set(err, ERR_INPUT, "%s must be one of %s, got '%.64s'", name, list, text);
    return -1;
}

enum status step_request_read(const struct step_setting *settings, int num, struct step_request *q,
                              struct err *err)
{
    enum status rc = OK;
    for (int i = 0; i < num && rc == OK; i++) {
        const struct step_setting *s = &settings[i];
        int word = 0;
        int64_t seed = 0;
        if (!s->text || s->key)
            continue;
        if (strcmp(s->name, "frozen") == 0) {
            rc = parse_int(s->text, s->name, 0, INT32_MAX, &q->num_frozen, err);
        } else if (strcmp(s->name, "frozen-placement") == 0) {
            word = find_word(s->values, s->name, s->text, err);
            q->frozen = (enum frozen_placement)(FROZEN_FIRST + word);
        } else if (strcmp(s->name, "cut") == 0) {
            q->cut_text = s->text;
        } else if (strcmp(s->name, "share") == 0) {
            rc = parse_ratio(s->text, s->name, &q->share, err);
            if (rc == OK && q->share > 1)
                rc = err_set(err, ERR_INPUT, "share must be 0..1, got %s", s->text);
        } else if (strcmp(s->name, "jitter") == 0) {
            rc = parse_ratio(s->text, s->name, &q->options.jitter, err);
        } else if (strcmp(s->name, "seed") == 0) {
            rc = parse_int(s->text, s->name, 0, INT64_MAX, &seed, err);
            q->options.seed = (uint64_t)seed;
        } else if (strcmp(s->name, "allreduce") == 0) {
            word = find_word(s->values, s->name, s->text, err);
            q->options.allreduce = (enum allreduce_kind)word;
        } else if (strcmp(s->name, "stragglers") == 0) {
            q->stragglers_text = s->text;
        } else if (strcmp(s->name, "slow-links") == 0) {
            q->slow_links_text = s->text;
        } else {
            q->cache_write = strcmp(s->text, "true") == 0;
        }
        if (word < 0)
            rc = ERR_INPUT;
    }
    return rc;
}

/* --- a job of settings ------------------------------------------------------------------------ */

static const char *text_of(const struct step_setting *settings, int num, const char *name)
{
    for (int i = 0; i < num; i++)
        if (strcmp(settings[i].name, name) == 0)
            return settings[i].text;
    return NULL;
}

static enum status add_owned(struct job_sets *sets, const char *key, const char *value,
                             struct err *err)
{
    char *text = NULL;
    if (asprintf(&text, "%s=%s", key, value) < 0)
        return err_nomem(err);
    sets->owned[sets->num_owned++] = text;
    sets->items[sets->count++] = text;
    return OK;
}

/* The words of a setting as the value of its key. NULL and ERR_INPUT: no such word. */
static const char *value_of(const struct step_setting *s, struct err *err)
{
    /* momentum, sgd, adam, adamw; and by the bytes of their state */
    static const char *const optimizers[] = {"{\"kind\":\"sgd\"}",
                                             "{\"kind\":\"sgd\",\"momentum\":0}",
                                             "{\"kind\":\"adamw\"}", "{\"kind\":\"adamw\"}"};
    static const int of_bytes[] = {1, 0, 2};
    if (strcmp(s->key, "train.optimizer") == 0) {
        const int word = find_word(s->values, s->name, s->text, err);
        return word < 0 ? NULL : optimizers[s->name[9] ? of_bytes[word] : word];
    }
    const bool dropout = strcmp(s->key, "train.dropout") == 0;
    if (dropout || strcmp(s->key, "train.clip_norm") == 0) {
        if (strcmp(s->text, "true") == 0)
            return dropout ? "0.1" : "1";
        return strcmp(s->text, "false") == 0 ? "0" : s->text;
    }
    return s->text;
}

/* The keys of a step without a job that depend on other settings. */
static enum status add_defaults(struct job_sets *sets, const struct step_setting *settings, int num,
                                struct err *err)
{
    static const char *const plain[] = {
        "pipeline.num_stages=1",      "pipeline.num_replicas=1", "pipeline.num_microbatches=1",
        "pipeline.tensor=1",          "pipeline.expert=1",       "pipeline.context=1",
        "pipeline.context_comm=ring", "pipeline.shard=none",     "pipeline.recompute=never",
        "pipeline.frozen=spread",     "train.optimizer.kind=sgd"};
    static const char *const counts[] = {"stages", "replicas", "tensor", "context"};
    const char *model_text = text_of(settings, num, "model");
    const char *schedule = text_of(settings, num, "schedule");
    const char *batch = text_of(settings, num, "microbatches");
    enum schedule_kind kind = SCHEDULE_1F1B;
    struct model model = {0};
    char text[64];
    double devices = 1;
    if (!model_text)
        return err_set(err, ERR_INPUT, "sim --step needs --model MODEL or a job");
    enum status rc = model_load(model_text, &model, err);
    if (rc == OK && schedule && schedule_kind_parse(schedule, &kind, NULL) != OK)
        kind = SCHEDULE_1F1B; /* the job's reader refuses it */
    job_sets_append(sets, plain, sizeof plain / sizeof *plain);
    const char *framework = text_of(settings, num, "framework");
    if (!framework || strcmp(framework, "auto") == 0)
        rc = rc == OK ? add_owned(sets, "pipeline.bucket_bytes", "0", err) : rc;
    if (rc == OK && !text_of(settings, num, "tokens"))
        rc = add_owned(sets, "data.train_samples", "9000000000000000", err);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *count = text_of(settings, num, counts[i]);
        devices *= count && atof(count) > 1 ? atof(count) : 1;
    }
    snprintf(text, sizeof text, "1x%.0f", devices < 1e9 ? devices : 1e9);
    if (rc == OK && !text_of(settings, num, "cluster"))
        rc = add_owned(sets, "cluster", text, err);
    THEN(add_owned(sets, "pipeline.schedule", "1f1b", err));
    snprintf(text, sizeof text, "%d", schedule_default_chunks(kind));
    THEN(add_owned(sets, "pipeline.chunks", text, err));
    THEN(add_owned(sets, "train.batch.per_pipeline", batch ? batch : "1", err));
    THEN(add_owned(sets, "train.dtype",
                   model.dtype             ? model.dtype
                   : model.elem_bytes == 2 ? "bf16"
                                           : "fp32",
                   err));
    model_clear(&model);
    return rc;
}

enum status job_sets_add(struct job_sets *sets, const struct step_setting *settings, int num,
                         bool whole, struct err *err)
{
    enum status rc = whole ? add_defaults(sets, settings, num, err) : OK;
    for (int i = 0; i < num && rc == OK; i++) {
        const struct step_setting *s = &settings[i];
        const char *value = s->text && s->key ? value_of(s, err) : NULL;
        if (value)
            rc = add_owned(sets, s->key, value, err);
        else if (s->text && s->key)
            rc = ERR_INPUT;
    }
    return rc;
}

void job_sets_append(struct job_sets *sets, const char *const *items, int count)
{
    for (int i = 0; i < count; i++)
        sets->items[sets->count++] = items[i];
}

void job_sets_clear(struct job_sets *sets)
{
    for (int i = 0; i < sets->num_owned; i++)
        free(sets->owned[i]);
    sets->num_owned = sets->count = 0;
}

void job_sets_name_option(const struct step_setting *settings, int num, struct err *err)
{
    static const char file[] = "the options: ";
    const char *at = err->msg + strlen(file);
    if (strncmp(err->msg, file, strlen(file)) != 0)
        return;
    for (int i = 0; i < num; i++) {
        const struct step_setting *s = &settings[i];
        const size_t n = s->text && s->key ? strlen(s->key) : 0;
        if (n > 0 && strncmp(at, s->key, n) == 0 && (at[n] == ' ' || at[n] == ':')) {
            char msg[sizeof err->msg];
            snprintf(msg, sizeof msg, "%s%s", at[n] == ' ' ? s->name : "",
                     at + n + 2 * (at[n] == ':'));
            memcpy(err->msg, msg, sizeof msg);
            return;
        }
    }
}

void step_answer_clear(struct step_answer *a)
{
    model_clear(&a->model);
    cluster_clear(&a->cluster);
    cost_handle_clear(&a->cost);
    plan_clear(&a->plan);
    schedule_clear(&a->full);
    workload_clear(&a->workload);
    sim_result_clear(&a->result);
    *a = (struct step_answer){0};
}

double step_answer_samples_per_s(const struct step_answer *a)
{
    return plan_samples_per_s(&a->plan, a->result.step_ns);
}

struct step_rates step_answer_rates(const struct step_answer *a)
{
    return rates_of_step(&a->model, &a->cluster, &a->plan, a->query.dtype,
                         step_answer_samples_per_s(a));
}

/* Whether a simulated step can be true. Ops that draw their times may be faster than any device. */
static enum status check_answer(const struct step_answer *a, const struct sim_options *options,
                                struct err *err)
{
    const struct setting setting = {&a->model, &a->cluster, &a->cost.cost};
    const bool drawn = options->jitter > 0 || options->low;
    int64_t *peak = malloc((size_t)a->plan.num_ranks * sizeof *peak);
    if (!peak)
        return err_nomem(err);
    for (int k = 0; k < a->plan.num_ranks; k++)
        peak[k] = a->result.devices[k].peak_bytes;
    const struct step_claim claim = {.setting = &setting,
                                     .plan = &a->plan,
                                     .step_ns = a->result.step_ns,
                                     .rates = step_answer_rates(a),
                                     .bubble = a->result.bubble_fraction,
                                     .memory_bytes = peak,
                                     .fits = true,
                                     .speed = drawn ? INFINITY : rates_allowed_speed(&a->query)};
    const enum status rc = plausible_step(&claim, err);
    free(peak);
    return rc;
}

/* Whether a step with these options is the one that a judge simulates. */
static bool is_plain(const struct sim_options *options)
{
    return options->jitter == 0 && !options->record_ops && !options->every_event && !options->low &&
           options->allreduce == ALLREDUCE_RING;
}

enum status step_answer_simulate(struct step_answer *a, const struct sim_options *options,
                                 struct judged_step *judged, struct err *err)
{
    int64_t start = clock_now_ns();
    schedule_clear(&a->full);
    workload_clear(&a->workload);
    sim_result_clear(&a->result);
    const struct setting setting = {&a->model, &a->cluster, &a->cost.cost};
    enum status rc = sim_check_size(&a->plan, err);
    THEN(plan_lower_to_simulate(&setting, &a->plan, &a->workload, &a->full, err));
    if (rc == OK && a->plan.recompute_layers)
        rc = recompute_fit(&a->plan, false, &a->full, &a->workload, err);
    if (rc == OK && judged && judged->digest != 0 && judged->digest == plan_digest(&a->plan) &&
        is_plain(options)) {
        a->result = judged->result;
        *judged = (struct judged_step){0};
    } else {
        THEN(sim_step(&a->full, &a->workload, &a->plan, options, &a->result, err));
    }
    THEN(check_answer(a, options, err));
    a->wall_ns = clock_now_ns() - start;
    return rc;
}
