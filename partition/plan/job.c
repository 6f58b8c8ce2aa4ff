/* Defaults and checks of a job. Both walk the rows of its keys (job_members.c); the functions here
 * hold the rules between keys, one function per group of keys. Read struct job in job.h first. */
#include "partition/plan/job.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/freeze/apf.h"
#include "partition/layout/model_shard.h"
#include "partition/model/framework.h"
#include "partition/base/units.h"

void job_defaults(struct job *job)
{
    *job = (struct job){0};
    for (int i = 0; i < job_keys.num; i++)
        if (member_default(&job_keys.rows[i], job, NULL) != OK)
            assert(!"a default is within its limits");
    job->train.batch_mode = BATCH_PER_PIPELINE;
    job->train.batch = 32;
    job->pipeline.schedule = SCHEDULE_1F1B; /* these two where "auto" is switched off */
    job->pipeline.frozen = FROZEN_SPREAD;
}

bool job_is_default(const struct job *job, const struct member *key)
{
    struct job other = {0};
    member_default(key, &other, NULL);
    return member_equal(key, job, &other);
}

static bool has_experts(const struct model *model)
{
    int i = 0;
    while (i < model->num_items && !model_item_has_experts(model, i))
        i++;
    return i < model->num_items;
}

/* Whether one of the conditions of struct member's `needs` is met: n characters of text. */
static bool is_met(const struct job *job, const char *text, size_t n)
{
    char need[160], value[64];
    snprintf(need, sizeof need, "%.*s", (int)n, text);
    char *words = strchr(need, '=');
    if (words)
        *words++ = '\0';
    if (strcmp(need, "a model with experts") == 0)
        return has_experts(&job->model);
    const struct member *row = job_keys.rows, *end = row + job_keys.num;
    while (row < end && strcmp(row->name, need) != 0)
        row++;
    assert(row < end);
    if (!words || row == end)
        return !job_is_default(job, row);
    member_text(row, job, value, sizeof value);
    for (char *word = strtok(words, "|"); word; word = strtok(NULL, "|"))
        if (strcmp(word, value) == 0)
            return true;
    return false;
}

static bool is_used(const struct job *job, const struct member *key)
{
    static const char join[] = " or ";
    if (!key->needs || job_is_default(job, key))
        return true;
    for (const char *at = key->needs; at; at += strlen(join)) {
        const char *next = strstr(at, join);
        if (is_met(job, at, next ? (size_t)(next - at) : strlen(at)))
            return true;
        if (!next)
            break;
        at = next;
    }
    return false;
}

void job_note_unused(struct job *job)
{
    char *note = job->model.note;
    const size_t size = sizeof job->model.note;
    for (int i = 0; i < job_keys.num; i++) {
        const struct member *key = &job_keys.rows[i];
        const size_t used = strlen(note);
        if (!is_used(job, key))
            snprintf(note + used, size - used, "%s%s has no effect without %s", used ? "; " : "",
                     key->name, key->needs);
    }
}

/* The job's name in error messages. */
static const char *source_of(const struct job *job)
{
    return job->path ? job->path : "job";
}

static enum status check_train(const struct job *job, struct err *err)
{
    if (job->train.tokens > 0 && (job->data.kind != DATA_SYNTHETIC || job->data.train_samples > 0))
        return err_set(err, ERR_INPUT,
                       "%s: train.tokens needs synthetic data without train_samples",
                       source_of(job));
    if (job->train.tokens > 0 && (job->model.seq < 1 || model_has_images(&job->model)))
        return err_set(err, ERR_INPUT, "%s: train.tokens: samples of model '%s' are not tokens",
                       source_of(job), job->model.name);
    if (job->data.length == 0 &&
        (job->data.length_deviation != 0 || job->data.documents != 0 || job->train.rows))
        return err_set(err, ERR_INPUT, "%s: %s needs data.length", source_of(job),
                       job->train.rows       ? "train.rows"
                       : job->data.documents ? "data.documents"
                                             : "data.length_deviation");
    if (job->data.documents > 0 && (job->train.tokens > 0 || job->data.train_samples > 0))
        return err_set(err, ERR_INPUT,
                       "%s: give data.documents, data.train_samples or train.tokens",
                       source_of(job));
    if (job->train.post_validation && job->train.clip_norm == 0) {
        err_set(err, ERR_INPUT,
                "%s: train.post_validation needs train.clip_norm: without it no update "
                "waits for a gradient norm",
                source_of(job));
        err_hint(err,
                 "set train.clip_norm, as \"--set train.clip_norm=1\", or 'sim --step --clip'");
        return ERR_INPUT;
    }
    if (job->train.batch < 1 || job->train.batch > INT32_MAX)
        return err_set(err, ERR_INPUT, "%s: train.batch must be 1..2147483647, got %lld",
                       source_of(job), (long long)job->train.batch);
    return OK;
}

/* Whether replicas can divide experts and the tokens of samples as the job asks. */
static enum status check_expert(const struct job *job, struct err *err)
{
    const int E = job->pipeline.layout.at.expert, C = job->pipeline.layout.at.context,
              T = job->pipeline.layout.at.tensor;
    const int X = job->pipeline.layout.at.expert_tensor;
    const struct layout layout = {.tensor = T,
                                  .sequence_parallel = job->pipeline.layout.at.sequence_parallel ||
                                                       job->pipeline.layout.open[LAYOUT_SEQUENCE],
                                  .expert = E,
                                  .expert_tensor = T == AUTO ? 0 : X};
    const bool known = C > 0 && job->pipeline.num_replicas != AUTO; /* the number of pipelines */
    if (E > 1 && T == 1 && known && (int64_t)job->pipeline.num_replicas * C % E != 0)
        return err_set(err, ERR_INFEASIBLE,
                       "%s: pipeline.expert %d does not divide pipeline.num_replicas %d%s",
                       source_of(job), E, job->pipeline.num_replicas,
                       C > 1 ? " times pipeline.context" : "");
    struct err why = {0};
    enum status rc = model_experts_check(&job->model, &layout, &why);
    if (rc == OK && !job->pipeline.layout.open[LAYOUT_CONTEXT_KIND])
        rc = model_context_check(&job->model, C, job->pipeline.layout.at.context_kind,
                                 job->pipeline.layout.at.tensor, &why);
    return rc == OK ? OK : err_set(err, rc, "%s: %s", source_of(job), why.msg);
}

/* Whether the shards of a layout that is not searched divide something. */
static enum status check_shards(const struct job *job, struct err *err)
{
    const struct layout *at = &job->pipeline.layout.at;
    const bool open = job->pipeline.layout.open[LAYOUT_SHARD];
    const int R = job->pipeline.num_replicas, G = at->shard_group;
    if (G != AUTO && !open) {
        const int64_t known = (int64_t)R * at->context;
        const int pipelines = known > 0 && known <= INT32_MAX ? (int)known : 2 * G;
        struct err why = {0};
        if (shard_group_check(G, at->shard, pipelines, at->expert, &why) != OK)
            return err_set(err, ERR_INFEASIBLE, "%s: %s", source_of(job), why.msg);
    }
    if (!open && at->shard != SHARD_NONE && R == 1 && at->context == 1 &&
        !(at->shard == SHARD_WEIGHTS && framework_shards_alone(job->model.framework)))
        return err_set(err, ERR_INFEASIBLE,
                       "%s: pipeline.shard %s divides nothing with pipeline.num_replicas 1",
                       source_of(job), shard_mode_name(at->shard));
    if (job->train.reduction == REDUCTION_CANONICAL && (open || at->shard != SHARD_NONE))
        return err_set(err, ERR_INFEASIBLE,
                       "%s: pipeline.shard must be none with train.reduction canonical",
                       source_of(job));
    return OK;
}

/* Whether the model has a stage for each chunk of each rank, and the schedule takes the chunks. */
static enum status check_stages(const struct job *job, struct err *err)
{
    const int K = job->pipeline.num_stages, chunks = job->pipeline.chunks;
    if (!job->pipeline.schedule_auto && job->pipeline.schedule != SCHEDULE_SEARCH) {
        const enum schedule_kind kind = job->pipeline.schedule;
        if (!schedule_any_chunks(kind) && chunks != 1 && chunks != schedule_default_chunks(kind))
            return err_set(err, ERR_INPUT, "%s: pipeline.chunks must be %d for schedule %s, got %d",
                           source_of(job), schedule_default_chunks(kind), schedule_kind_name(kind),
                           chunks);
    }
    int64_t stages;
    if (K > 0 && (!mul_ok(K, chunks, &stages) || stages > job->model.num_items))
        return err_set(err, ERR_INFEASIBLE,
                       "%s: pipeline.num_stages must be 1..%d (items of model '%s'), got %d%s",
                       source_of(job), job->model.num_items / chunks, job->model.name, K,
                       chunks > 1 ? " with several chunks each" : "");
    return OK;
}

/* num_microbatches splits train.batch as the job gives it (partition/search/plan_for.h). */
static enum status check_batches(const struct job *job, struct err *err)
{
    const int64_t batch = job->train.batch, micro = job->train.micro;
    const int M = job->pipeline.num_microbatches;
    const bool split = job->train.batch_mode == BATCH_GLOBAL && job->pipeline.num_replicas > 0;
    const int R = split ? job->pipeline.num_replicas : 1;
    if (batch % R != 0)
        return err_set(err, ERR_INPUT,
                       "%s: train.batch.global %lld must be a multiple of pipeline.num_replicas %d",
                       source_of(job), (long long)batch, R);
    if (micro != AUTO && M != AUTO)
        return err_set(err, ERR_INPUT,
                       "%s: give train.batch.micro or pipeline.num_microbatches, got both",
                       source_of(job));
    if (micro != AUTO && batch / R % micro != 0)
        return err_set(err, ERR_INPUT,
                       "%s: train.batch.micro must divide the batch of %lld, got %lld",
                       source_of(job), (long long)(batch / R), (long long)micro);
    if (M > batch)
        return err_set(err, ERR_INPUT,
                       "%s: pipeline.num_microbatches must be at most the batch of %lld, got %d",
                       source_of(job), (long long)batch, M);
    return OK;
}

static enum status check_pipeline(const struct job *job, struct err *err)
{
    enum status rc = check_expert(job, err);
    THEN(check_shards(job, err));
    THEN(check_stages(job, err));
    THEN(check_batches(job, err));
    return rc;
}

/* A head that has left the embedding does not go back to its table. */
static enum status check_head(const struct job *job, struct err *err)
{
    const struct freeze_spec *spec = &job->freeze;
    bool falls = false;
    for (int e = 1; spec->policy == FREEZE_TABLE && e < spec->num_table; e++)
        falls = falls || spec->table[e] < spec->table[e - 1];
    if (spec->policy != FREEZE_SAFE && !falls && !spec->record)
        return OK;
    return err_set(err, ERR_INPUT, "%s: freeze.head alone cannot be combined with %s",
                   source_of(job),
                   falls                         ? "a freeze.table that goes down"
                   : spec->policy == FREEZE_SAFE ? "freeze.policy safe, which may undo a freeze"
                                                 : "freeze.record");
}

static enum status check_freeze(const struct job *job, struct err *err)
{
    const struct freeze_spec *spec = &job->freeze;
    const int num_layers = job->model.num_layers;
    if (spec->min_active > num_layers)
        return err_set(err, ERR_INPUT, "%s: freeze.min_active must be 0..%d, got %d",
                       source_of(job), num_layers, spec->min_active);
    if (spec->policy == FREEZE_TABLE) {
        if (spec->num_table < 1)
            return err_set(err, ERR_INPUT, "%s: freeze.table must name at least one epoch",
                           source_of(job));
        for (int e = 0; e < spec->num_table; e++)
            if (spec->table[e] < 0 || spec->table[e] > num_layers)
                return err_set(err, ERR_INPUT, "%s: freeze.table[%d] must be 0..%d, got %d",
                               source_of(job), e, num_layers, spec->table[e]);
    }
    for (int64_t i = 0; i < (int64_t)job->norm_epochs * num_layers; i++)
        if (!(job->norms[i] >= 0 && isfinite(job->norms[i])))
            return err_set(err, ERR_INPUT,
                           "%s: freeze.norms[%lld][%lld] must be at least 0, got %g",
                           source_of(job), (long long)(i / num_layers), (long long)(i % num_layers),
                           job->norms[i]);
    return job->model.untied ? check_head(job, err) : OK;
}

enum status job_check(const struct job *job, struct err *err)
{
    if (job->model.num_items < 1)
        return err_set(err, ERR_INPUT, "%s: model is missing", source_of(job));
    enum status rc = cluster_check(&job->cluster, err);
    for (int i = 0; i < job_keys.num; i++)
        THEN(member_check(&job_keys.rows[i], job, source_of(job), err));
    THEN(check_train(job, err));
    THEN(check_pipeline(job, err));
    THEN(check_freeze(job, err));
    if (rc != OK)
        return rc;
    if (job->data.kind != DATA_TABLE &&
        (job->data.text || job->data.text_pair || job->data.label)) {
        err_set(err, ERR_INPUT, "%s: data.%s is for data.kind table", source_of(job),
                job->data.text        ? "text"
                : job->data.text_pair ? "text_pair"
                                      : "label");
        return ERR_INPUT;
    }
    if (job->cache.spill_bytes > 0 && !job->cache.spill_dir)
        return err_set(err, ERR_INPUT, "%s: cache.spill_bytes needs cache.spill_dir",
                       source_of(job));
    if (job->cache.policy == CACHE_ON && job_views(job) == 0) {
        rc =
            err_set(err, ERR_INPUT, "%s: cache.policy 'on' would freeze each %s sample to one view",
                    source_of(job), job->data.augment ? "augmented" : "masked");
        err_hint(err, "cache.views N gives each sample N views and caches them all; or set %s",
                 job->data.augment ? "data.augment to 'none', or cache.policy to 'off'"
                                   : "cache.policy to 'off'");
        return rc;
    }
    return OK;
}

#define PROBE_KEPT_BYTES ((int64_t)256 << 20)
enum { RECORD_SAMPLES = 256, HELD_OUT_PART = 8 };

int64_t job_run_samples(const struct job *job, int64_t num_samples)
{
    int64_t all, steps;
    if (!mul_ok(num_samples, job->train.epochs, &all))
        all = INT64_MAX;
    if (job->train.max_steps > 0 && mul_ok(job->train.max_steps, job->train.batch, &steps) &&
        steps < all)
        all = steps;
    return all;
}

enum valid_source job_valid_source(const struct job *job)
{
    const char *valid = job->data.valid;
    if (!valid || strcmp(valid, "auto") == 0)
        return VALID_HELD_OUT;
    return strcmp(valid, "test") == 0 ? VALID_TEST : VALID_PATH;
}

int64_t job_probe_samples(const struct job *job, int64_t num_train, int64_t num_source)
{
    if (!job_lags(job))
        return 0;
    if (job->freeze.probe > 0)
        return job->freeze.probe;
    int64_t probe = job->freeze.record ? RECORD_SAMPLES
                                       : freeze_safe_probe(0, job_run_samples(job, num_train), 0);
    if (num_source > 0 && probe > num_source)
        probe = num_source;
    return probe < 2 ? 2 : probe; /* an error of one block is not known */
}

/* Samples of an epoch that the job asks for; 0: all there are. */
static int64_t asked_samples(const struct job *job)
{
    const int64_t tokens = job->train.tokens, epochs = job->train.epochs, seq = job->model.seq;
    if (job->data.documents > 0)
        return (int64_t)ceil((double)job->data.documents / model_row_documents(&job->model));
    if (tokens == 0 || epochs < 1 || seq < 1)
        return job->data.train_samples;
    const int64_t of_epoch = tokens / epochs + (tokens % epochs != 0);
    if (job->model.packing.documents > 0)
        return (int64_t)ceil((double)of_epoch / model_row_tokens(&job->model));
    return of_epoch / seq + (of_epoch % seq != 0);
}

int64_t job_held_out(const struct job *job, int64_t num_split)
{
    const bool made = job->data.kind == DATA_SYNTHETIC;
    const int64_t asked = asked_samples(job), limit = num_split / HELD_OUT_PART;
    const int64_t train = asked > 0 && asked < num_split ? asked : num_split;
    if (!job_lags(job) || job_valid_source(job) != VALID_HELD_OUT)
        return 0;
    if (made)
        return job_probe_samples(job, train, 0);
    int64_t held = job_probe_samples(job, train, limit > 1 ? limit : 1);
    if (train > num_split - held) /* the probe follows from the samples that are left to train on */
        held = job_probe_samples(job, num_split - held, limit > 1 ? limit : 1);
    return held;
}

int64_t job_train_samples(const struct job *job, int64_t num_split)
{
    const int64_t asked = asked_samples(job);
    if (num_split <= 0 || asked > num_split)
        return asked;
    const int64_t left =
        job->data.kind == DATA_SYNTHETIC ? num_split : num_split - job_held_out(job, num_split);
    return asked > 0 && asked < left ? asked : left;
}

int64_t job_probe_limit(const struct job *job, int64_t num_train, int64_t num_test)
{
    switch (job_valid_source(job)) {
    case VALID_TEST:
        return num_test;
    case VALID_HELD_OUT: /* an eighth of what a seventh of the training samples completes */
        return job->data.kind == DATA_SYNTHETIC ? 0 : num_train / (HELD_OUT_PART - 1);
    case VALID_PATH:
        break;
    }
    return 0;
}

double job_probe_passes(const struct job *job, int64_t num_samples, int64_t num_source)
{
    const int64_t run = job_run_samples(job, num_samples), wanted = job->freeze.probe;
    return freeze_safe_passes(wanted, run, freeze_safe_probe(wanted, run, num_source));
}

const struct model *job_probe_keeps(const struct job *job, int64_t num_samples, int64_t num_source)
{
    const int64_t run = job_run_samples(job, num_samples);
    const int64_t probe = freeze_safe_probe(job->freeze.probe, run, num_source);
    int64_t most = 1;
    for (int i = 0; i + 1 < job->model.num_items; i++)
        most = job->model.items[i].act_bytes > most ? job->model.items[i].act_bytes : most;
    return job->model.num_skips == 0 && probe <= PROBE_KEPT_BYTES / most ? &job->model : NULL;
}

int64_t job_views(const struct job *job)
{
    return job->data.augment || job->model.task == TASK_MLM ? job->cache.views : 1;
}

bool job_wants_norm(const struct job *job)
{
    return (job->train.clip_norm > 0 && !job->train.post_validation) ||
           freeze_uses_norms(job->freeze.policy);
}

int job_optim_bytes_per_param(const struct job *job)
{
    const int copy = job->train.gradient_copy ? 4 : 0;
    const int state = job->train.optimizer.state_dtype == DTYPE_BF16 ? 4 : 8; /* of two moments */
    const int apf = job->freeze.policy == FREEZE_APF ? 4 * APF_STATES : 0;
    if (job->train.optimizer.kind == OPTIMIZER_SGD)
        return copy + apf + (job->train.optimizer.momentum > 0 ? state / 2 : 0);
    return copy + apf + state;
}

bool job_lags(const struct job *job)
{
    return job->freeze.record || (job->freeze.policy == FREEZE_SAFE && job->freeze.max_loss > 0);
}

bool job_searches(const struct job *job)
{
    return job->pipeline.schedule_auto ? job->pipeline.schedules >> SCHEDULE_SEARCH & 1
                                       : job->pipeline.schedule == SCHEDULE_SEARCH;
}

struct job job_with_named_schedules(const struct job *job)
{
    struct job named = *job;
    if (job_searches(job)) {
        named.pipeline.schedules =
            job->pipeline.schedule_auto ? job->pipeline.schedules & ~(1u << SCHEDULE_SEARCH) : 0;
        named.pipeline.schedule_auto = true;
    }
    return named;
}

struct job job_as_static(const struct job *job)
{
    struct job fixed = *job;
    fixed.freeze.policy = FREEZE_NONE;
    fixed.freeze.max_share = 0;
    fixed.pipeline.num_stages = fixed.pipeline.num_replicas = AUTO;
    fixed.pipeline.num_microbatches = AUTO;
    fixed.train.micro = AUTO;
    fixed.pipeline.schedules = job_searches(job) ? 1u << SCHEDULE_SEARCH : 0;
    fixed.pipeline.schedule_auto = fixed.pipeline.recompute_auto = true;
    fixed.pipeline.frozen_auto = true;
    fixed.pipeline.balancer = BALANCER_OPTIMAL;
    return fixed;
}

struct job job_as_released(const struct job *job)
{
    struct job released = *job;
    released.pipeline.balancer = BALANCER_RELEASED;
    released.pipeline.schedule_auto = false;
    released.pipeline.schedule = SCHEDULE_GPIPE;
    released.pipeline.layout_open = false;
    released.pipeline.layout = layout_ask_whole();
    released.pipeline.recompute_auto = false;
    released.pipeline.recompute = RECOMPUTE_NEVER;
    released.pipeline.frozen_auto = true;
    return released;
}

void job_clear(struct job *job)
{
    free(job->path);
    free(job->dir);
    model_clear(&job->model);
    free(job->data.path);
    free(job->data.vocab);
    free(job->data.merges);
    free(job->data.valid);
    free(job->data.text);
    free(job->data.text_pair);
    free(job->data.label);
    cluster_clear(&job->cluster);
    freeze_spec_clear(&job->freeze);
    free(job->elastic.stages);
    free(job->norms);
    freeze_history_clear(&job->evidence);
    free(job->cache.dir);
    free(job->cache.spill_dir);
    for (int i = 0; i < job->num_baseline; i++)
        free(job->baseline[i]);
    free(job->baseline);
    free(job->json);
    free(job->text);
    *job = (struct job){0};
}

const char *job_optimizer_name(const struct job *job)
{
    switch (job->train.optimizer.kind) {
    case OPTIMIZER_SGD:
        return job->train.optimizer.momentum > 0 ? "sgd-momentum" : "sgd";
    case OPTIMIZER_ADAMW:
        return "adamw";
    default:
        return "lamb";
    }
}
