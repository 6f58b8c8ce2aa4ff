/* Jobs from JSON: one table of keys, overrides, and the keys that a table cannot read.
 *
 * job_fields describes each plain key: its type, place in struct job, limits and help. Overrides
 * ("a.b=v") change the JSON tree before it is read. Then the table fills the job, and the read_*()
 * functions read the rest: batch, model, cluster, freeze table, norms, stages and baseline. The
 * resolved job is written back to job->json. Read job_from_json() first, then job_fields. */
#include "profiles/job_json.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/units.h"
#include "profiles/fields.h"

/* --- the keys --------------------------------------------------------------------------------- */

static const char *const data_names[] = {"synthetic", "cifar10", "cifar100", "idx", "images",
                                         "sst2",      "squad",   "text",     NULL};
static const char *const augment_names[] = {"none", "crop-flip", NULL};
static const char *const optimizer_names[] = {"sgd", "adamw", "lamb", NULL};
static const char *const lr_names[] = {"constant", "linear", "cosine", NULL};
static const char *const dtype_names[] = {"fp32", "bf16", "tf32", NULL};
static const char *const device_names[] = {"cpu", "cuda", NULL};
static const char *const transport_names[] = {"mpi", "nccl", NULL};
static const char *const reduction_names[] = {"fast", "canonical", NULL};
static const char *const schedule_names[] = {"gpipe", "1f1b", "interleaved", "zb-h1",
                                             "zb-h2", "zb-v", "dualpipe-v",  NULL};
static const char *const balancer_names[] = {"optimal", "released", "paper", NULL};
static const char *const by_names[] = {"time", "params", NULL};
static const char *const recompute_names[] = {"never", "always", "except-last", NULL};
static const char *const frozen_names[] = {"", "first", "spread", "cached", NULL};
static const char *const policy_names[] = {
    "none", "closed-form", "gradient-norm", "relative-change", "table", "plateau", NULL};
static const char *const compression_names[] = {"best", "halving", NULL};
static const char *const cache_names[] = {"off", "on", "auto", NULL};
static const char *const cache_dtype_names[] = {"fp32", "bf16", NULL};

_Static_assert(DATA_KIND_COUNT == 8 && DEVICE_CUDA == 1 && FREEZE_POLICY_COUNT == 6 &&
                   RECOMPUTE_MODE_COUNT == 3 && FROZEN_PLACEMENT_COUNT == 4 && SCHEDULE_AUTO == 7,
               "the lists of names follow the enums");

#define AT(member) offsetof(struct job, member), sizeof(((struct job *)0)->member)
#define INT(key, member, min, max, help)                                                           \
    {                                                                                              \
        key, FIELD_INT, AT(member), min, max, NULL, 0, help                                        \
    }
#define COUNT(key, member, help)                                                                   \
    {                                                                                              \
        key, FIELD_COUNT, AT(member), 1, INT_MAX, NULL, 0, help                                    \
    }
#define REAL(key, member, help)                                                                    \
    {                                                                                              \
        key, FIELD_REAL, AT(member), 0, 0, NULL, 0, help                                           \
    }
#define BOOL(key, member, help)                                                                    \
    {                                                                                              \
        key, FIELD_BOOL, AT(member), 0, 0, NULL, 0, help                                           \
    }
#define CHOICE(key, member, names, help)                                                           \
    {                                                                                              \
        key, FIELD_CHOICE, AT(member), 0, 0, names, 0, help                                        \
    }
#define CHOICE_AUTO(key, member, names, automatic, help)                                           \
    {                                                                                              \
        key, FIELD_CHOICE, AT(member), 0, 0, names, offsetof(struct job, automatic), help          \
    }
#define PLAIN(key, type, member, help)                                                             \
    {                                                                                              \
        key, type, AT(member), 0, 0, NULL, 0, help                                                 \
    }
#define OTHER(key, help)                                                                           \
    {                                                                                              \
        key, FIELD_OTHER, 0, 0, 0, 0, NULL, 0, help                                                \
    }

/* clang-format off */
static const struct field job_fields[] = {
    PLAIN("name", FIELD_TEXT, name, "name of the job, for people"),
    OTHER("model", "MODEL text, file, or object: preset or family, and its dims"),
    CHOICE("data.kind", data.kind, data_names, "the data set [synthetic]"),
    PLAIN("data.path", FIELD_PATH, data.path, "file or folder of the data set"),
    PLAIN("data.vocab", FIELD_PATH, data.vocab, "vocabulary: vocab.txt or GPT-2's vocab.json"),
    PLAIN("data.merges", FIELD_PATH, data.merges, "GPT-2's merges.txt [beside data.vocab]"),
    CHOICE("data.augment", data.augment, augment_names, "augmentation of training images [none]"),
    BOOL("data.resize", data.resize, "scale images to the model's size [false]"),
    INT("data.train_samples", data.train_samples, 0, INT64_MAX, "use the first n [0: all]"),
    INT("data.test_samples", data.test_samples, 0, INT64_MAX, "use the first n [0: all]"),
    INT("data.workers", data.workers, 0, 1024, "threads per rank that prepare samples [0: one for each core of the rank that does not compute]"),
    INT("train.epochs", train.epochs, 0, JOB_EPOCHS_MAX, "epochs of the run; with 0 train writes the initial weights and sim refuses the job [1]"),
    INT("train.max_steps", train.max_steps, 0, INT64_MAX, "the run ends after n steps [0: after its epochs]"),
    OTHER("train.batch.per_pipeline", "samples per step of each pipeline [32]"),
    OTHER("train.batch.global", "samples per step of all pipelines together"),
    CHOICE("train.optimizer.kind", train.optimizer.kind, optimizer_names, "optimizer [sgd]"),
    REAL("train.optimizer.lr", train.optimizer.lr, "peak learning rate [0.03]"),
    REAL("train.optimizer.momentum", train.optimizer.momentum, "for sgd [0.9]"),
    REAL("train.optimizer.beta1", train.optimizer.beta1, "for adamw, lamb [0.9]"),
    REAL("train.optimizer.beta2", train.optimizer.beta2, "for adamw, lamb [0.999]"),
    REAL("train.optimizer.eps", train.optimizer.eps, "for adamw, lamb [1e-8]"),
    REAL("train.optimizer.weight_decay", train.optimizer.weight_decay, "weight decay [0]"),
    CHOICE("train.lr_schedule.kind", train.lr_schedule, lr_names, "learning rate after the warm-up [constant]"),
    INT("train.lr_schedule.warmup_steps", train.warmup_steps, 0, INT64_MAX, "steps in which the learning rate rises linearly from 0 [0]"),
    REAL("train.clip_norm", train.clip_norm, "largest global gradient norm; gradients are scaled down to it [0: off]"),
    REAL("train.dropout", train.dropout, "dropout probability [0]"),
    REAL("train.label_smoothing", train.label_smoothing, "label smoothing [0]"),
    CHOICE("train.dtype", train.dtype, dtype_names, "data type of activations [fp32]"),
    CHOICE("train.device", train.device, device_names, "device that each rank computes on [cpu]"),
    CHOICE("train.transport", train.transport, transport_names, "how activations and gradients travel; nccl: from GPU to GPU [mpi]"),
    CHOICE("train.reduction", train.reduction, reduction_names, "canonical: bit-identical results with R = 1, 2, 4 [fast]"),
    INT("train.seed", train.seed, 0, INT64_MAX, "seed of all random numbers [1]"),
    INT("train.eval_every_epochs", train.eval_every_epochs, 0, INT64_MAX, "evaluate after every n epochs [0: only at the end]"),
    INT("train.checkpoint_every_steps", train.checkpoint_every_steps, 0, INT64_MAX, "write a checkpoint after every n steps [0: only at the end]"),
    OTHER("cluster", "CLUSTER text, file, or object, for plan and sim [this-machine]"),
    COUNT("pipeline.num_stages", pipeline.num_stages, "K, devices per pipeline [auto]"),
    COUNT("pipeline.num_replicas", pipeline.num_replicas, "R, number of pipelines [auto]"),
    COUNT("pipeline.num_microbatches", pipeline.num_microbatches, "M, micro-batches of train.batch as given, per pipeline or global [auto]"),
    INT("pipeline.chunks", pipeline.chunks, 1, 1024, "v, stages per device [1]"),
    CHOICE_AUTO("pipeline.schedule", pipeline.schedule, schedule_names, pipeline.schedule_auto, "order of forwards and backwards [auto]"),
    CHOICE("pipeline.balancer", pipeline.balancer, balancer_names, "how the chain is cut [optimal]"),
    CHOICE("pipeline.by", pipeline.by_params, by_names, "quantity that the cut balances [time]"),
    CHOICE_AUTO("pipeline.recompute", pipeline.recompute, recompute_names, pipeline.recompute_auto, "micro-batches whose stash is recomputed [never]"),
    CHOICE_AUTO("pipeline.frozen", pipeline.frozen, frozen_names, pipeline.frozen_auto, "where the frozen prefix runs if the cache is not read [auto]"),
    PLAIN("pipeline.bucket_bytes", FIELD_BYTES, pipeline.bucket_bytes, "gradients per all-reduce; 0: one all-reduce per stage [25MiB]"),
    CHOICE("freeze.policy", freeze.policy, policy_names, "how the frozen prefix grows [none]"),
    REAL("freeze.alpha", freeze.alpha, "share of the active layers that one decision may freeze [1/3]"),
    INT("freeze.min_active", freeze.min_active, 0, INT_MAX, "layers that stay active [0]"),
    INT("freeze.warmup", freeze.warmup, 0, INT_MAX, "epochs, or turns of every_steps, at the start in which nothing freezes [0]"),
    INT("freeze.every_steps", freeze.every_steps, 0, INT64_MAX, "decide after every n steps [0: after every epoch]"),
    OTHER("freeze.table", "F per epoch: array, file, or mild|mild-early|by_epoch|linear"),
    OTHER("freeze.norms", "recorded gradient norms: array of epochs, each an array of layers, or file"),
    BOOL("elastic.auto_pipe", elastic.auto_pipe, "re-cut when layers freeze [true]"),
    BOOL("elastic.auto_dp", elastic.auto_dp, "use freed devices as replicas [true]"),
    CHOICE("elastic.compression", elastic.halving, compression_names, "halving: the paper's rule [best]"),
    OTHER("elastic.stages", "K per epoch, an array; its last entry holds for all later epochs [planned]"),
    PLAIN("elastic.setup", FIELD_NS, elastic.setup_ns, "time of a change of K or R, without the transfers over links [0]"),
    CHOICE("cache.policy", cache.policy, cache_names, "whether plans read the frozen prefix's output from a cache [auto]"),
    PLAIN("cache.limit_bytes", FIELD_BYTES, cache.limit_bytes, "memory for the cache per node [0: half of the free memory; sim assumes enough]"),
    CHOICE("cache.dtype", cache.bf16, cache_dtype_names, "data type of cached activations [fp32]"),
    PLAIN("cache.read", FIELD_NS, cache.read_ns, "host time to read a sample [0: from the cost source]"),
    PLAIN("cache.write", FIELD_NS, cache.write_ns, "host time to write a sample [0: from the cost source]"),
    PLAIN("cache.dir", FIELD_PATH, cache.dir, "folder of the cache's files [shared memory]"),
    PLAIN("cache.spill_dir", FIELD_PATH, cache.spill_dir, "folder on a disk for entries that do not fit the memory [none]"),
    PLAIN("cache.spill_bytes", FIELD_BYTES, cache.spill_bytes, "space on that disk per node [0: half of the free space]"),
    INT("cache.views", cache.views, 0, 1000, "augmented or masked views per sample [0: unlimited, which rules out the cache]"),
    OTHER("baseline", "the job that speedup is measured against: overrides, as an object or as texts \"a.b=v\""),
};
/* clang-format on */
enum { NUM_FIELDS = sizeof job_fields / sizeof *job_fields };

enum status job_keys_help(char **text, struct err *err)
{
    return fields_help(job_fields, NUM_FIELDS, text, err);
}

/* --- overrides -------------------------------------------------------------------------------- */

/* Whether a key such as "model.classes", "cluster.link" or "baseline.freeze.policy" belongs to an
 * object whose reader checks its keys. */
static bool inside_other(const char *key)
{
    return strncmp(key, "model.", 6) == 0 || strncmp(key, "cluster.", 8) == 0 ||
           strncmp(key, "baseline.", 9) == 0;
}

static enum status check_key(const char *what, const char *prefix, const char *key, struct err *err)
{
    const struct fields_source source = {.file = what, .prefix = prefix};
    bool group;
    if (fields_find(job_fields, NUM_FIELDS, key, &group) || group || inside_other(key))
        return OK;
    return fields_unknown(job_fields, NUM_FIELDS, &source, key, err);
}

/* Find the object that holds the last part of key. Missing objects on the way are made. */
static enum status holder_of(struct json *root, const char *key, struct json **holder,
                             const char **last, struct err *err)
{
    const char *const whole = key;
    struct json *at = root;
    for (const char *dot = strchr(key, '.'); dot && at; dot = strchr(key, '.')) {
        char part[96];
        snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
        struct json *next = json_get(at, part);
        if (next && at == root && json_string(next)) {
            /* "model": "vit-b16" with model.classes set becomes {"preset": "vit-b16", ...}. */
            struct json *object = json_object_new();
            json_add_string(object, "preset", json_string(next));
            enum status rc = json_check(object, err);
            if (rc == OK)
                json_add_copy(at, part, object);
            json_free(object);
            if (rc != OK)
                return rc;
            next = json_get(at, part);
        } else if (!next) {
            next = json_add_object(at, part);
        }
        at = json_type(next) == JSON_OBJECT ? next : NULL;
        key = dot + 1;
    }
    *last = key;
    *holder = at;
    enum status rc = json_check(root, err);
    if (rc == OK && !at)
        rc = err_set(err, ERR_INPUT, "--set %s: there is no object to set it in", whole);
    return rc;
}

/* Read the value of "key=value" into the member "value" of a fresh object *box. It is JSON if it
 * parses as JSON and the key is not a text, otherwise a text. */
static enum status override_value(const char *key, const char *text, struct json **box,
                                  struct err *err)
{
    const struct field *field = fields_find(job_fields, NUM_FIELDS, key, NULL);
    bool is_text = field && (field->type == FIELD_TEXT || field->type == FIELD_STRING ||
                             field->type == FIELD_PATH);
    struct json *value = NULL;
    enum status rc = is_text ? ERR_INPUT : json_parse(text, "--set", &value, NULL);
    if (rc == ERR_NOMEM)
        return err_nomem(err);
    *box = json_object_new();
    if (rc == OK)
        json_add_copy(*box, "value", value);
    else
        json_add_string(*box, "value", text);
    json_free(value);
    return json_check(*box, err);
}

static enum status apply_override(struct json *root, const char *text, struct err *err)
{
    char key[96];
    const char *equals = strchr(text, '='), *last;
    struct json *box = NULL, *at = NULL;
    enum status rc;
    if (!equals || equals == text || equals - text >= (ptrdiff_t)sizeof key)
        return err_set(err, ERR_INPUT, "--set '%.100s': must be key=value", text);
    snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    rc = check_key("--set", "", key, err);
    if (rc == OK)
        rc = override_value(key, equals + 1, &box, err);
    if (rc == OK)
        rc = holder_of(root, key, &at, &last, err);
    if (rc == OK) {
        /* The two batch modes exclude each other, so the new one replaces the old one. */
        if (strncmp(key, "train.batch.", 12) == 0) {
            json_remove(at, "per_pipeline");
            json_remove(at, "global");
        }
        json_add_copy(at, last, json_get(box, "value"));
        rc = json_check(root, err);
    }
    json_free(box);
    return rc;
}

/* --- the keys that a table cannot read -------------------------------------------------------- */

static enum status read_batch(const struct json *root, const struct fields_source *source,
                              struct job *job, struct err *err)
{
    static const char *const keys[] = {"train.batch.per_pipeline", "train.batch.global"};
    int given = 0;
    for (int mode = 0; mode < 2; mode++) {
        const struct json *value = json_path(root, keys[mode]);
        int64_t batch;
        if (!value)
            continue;
        if (given++)
            return err_set(err, ERR_INPUT,
                           "%s: train.batch must have one of per_pipeline, global, got both",
                           source->file);
        if (!json_int64(value, &batch) || batch < 1 || batch > INT32_MAX)
            return fields_refuse(source, keys[mode], "an integer 1..2147483647", value, err);
        job->train.batch_mode = mode == 0 ? BATCH_PER_PIPELINE : BATCH_GLOBAL;
        job->train.batch = batch;
    }
    return OK;
}

/* The array of a key, which is inside the job file or in a file of its own. In the second case
 * *owned holds the parsed file, and the caller frees it. */
static enum status array_of(const struct json *value, const char *key,
                            const struct fields_source *source, const struct json **array,
                            struct json **owned, struct err *err)
{
    const char *file = json_string(value);
    *array = value;
    if (file) {
        char *path = path_join(source->dir, file);
        if (!path)
            return err_nomem(err);
        enum status rc = json_read_file(path, owned, err);
        free(path);
        if (rc != OK)
            return rc;
        *array = *owned;
    }
    if (json_type(*array) != JSON_ARRAY || json_count(*array) == 0)
        return fields_refuse(source, key, "an array that is not empty, or a file that holds one",
                             *array, err);
    return OK;
}

enum status counts_from_json(const struct json *array, const char *file, const char *key, int low,
                             int high, const char *unit, int **counts, int *num, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    if (json_type(array) != JSON_ARRAY)
        return fields_refuse(&source, key, "an array", array, err);
    int n = 0, *got = calloc((size_t)json_count(array) + 1, sizeof *got);
    if (!got)
        return err_nomem(err);
    for (struct json *m = json_first(array); m; m = json_next(m), n++) {
        int64_t count;
        if (!json_int64(m, &count) || count < low || count > high) {
            char place[48], limit[48];
            snprintf(place, sizeof place, "%s[%d]", key, n);
            snprintf(limit, sizeof limit, "%d..%d (%s)", low, high, unit);
            free(got);
            return fields_refuse(&source, place, limit, m, err);
        }
        got[n] = (int)count;
    }
    free(*counts);
    *counts = got;
    *num = n;
    return OK;
}

enum status norms_from_json(const struct json *array, const char *file, const char *key,
                            int num_layers, double **norms, int *num_epochs, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    char place[64];
    int epoch = 0;
    if (json_type(array) != JSON_ARRAY)
        return fields_refuse(&source, key, "an array of epochs", array, err);
    /* Every epoch must have num_layers entries in the text, so the text bounds the memory. calloc
     * checks the product. */
    for (struct json *m = json_first(array); m; m = json_next(m), epoch++)
        if (json_type(m) != JSON_ARRAY || json_count(m) != num_layers) {
            char count[32] = "";
            if (json_type(m) == JSON_ARRAY)
                snprintf(count, sizeof count, " of %d", json_count(m));
            return err_set(err, ERR_INPUT,
                           "%s: %s[%d] must be an array of %d norms (layers), got %s%s", file, key,
                           epoch, num_layers, json_type_name(json_type(m)), count);
        }
    double *got = calloc((size_t)epoch * (size_t)num_layers + 1, sizeof *got), *at = got;
    if (!got)
        return err_nomem(err);
    for (struct json *m = json_first(array); m; m = json_next(m))
        for (struct json *norm = json_first(m); norm; norm = json_next(norm), at++) {
            *at = json_number(norm);
            if (!(*at >= 0)) {
                snprintf(place, sizeof place, "%s[%d][%d]", key, (int)((at - got) / num_layers),
                         (int)((at - got) % num_layers));
                free(got);
                return fields_refuse(&source, place, "a number at least 0", norm, err);
            }
        }
    free(*norms);
    *norms = got;
    *num_epochs = epoch;
    return OK;
}

void norms_to_json(struct json *array, const double *norms, int64_t num_epochs, int num_layers)
{
    for (int64_t e = 0; e < num_epochs; e++) {
        struct json *epoch = json_add_array(array, NULL);
        for (int l = 0; l < num_layers; l++)
            json_add_double(epoch, NULL, norms[e * num_layers + l]);
    }
}

/* Read an array of whole numbers of the job and replace *counts by it. */
static enum status read_counts(const struct json *value, const char *key, int low, int high,
                               const char *unit, const struct fields_source *source, int **counts,
                               int *num, struct err *err)
{
    struct json *owned = NULL;
    const struct json *array;
    enum status rc = array_of(value, key, source, &array, &owned, err);
    if (rc == OK)
        rc = counts_from_json(array, source->file, key, low, high, unit, counts, num, err);
    json_free(owned);
    return rc;
}

static enum status read_table(const struct json *value, const struct fields_source *source,
                              struct job *job, struct err *err)
{
    const char *text = json_string(value);
    if (text && !strchr(text, '/') && !strchr(text, '.')) {
        struct freeze_spec named = {0};
        enum status rc =
            freeze_named_table(text, job->model.num_layers, job->train.epochs, &named, err);
        if (rc == OK) {
            free(job->freeze.table);
            job->freeze.table = named.table;
            job->freeze.num_table = named.num_table;
        }
        return rc;
    }
    return read_counts(value, "freeze.table", 0, job->model.num_layers, "layers", source,
                       &job->freeze.table, &job->freeze.num_table, err);
}

static enum status read_stages(const struct json *value, const struct fields_source *source,
                               struct job *job, struct err *err)
{
    return read_counts(value, "elastic.stages", 1, job->model.num_items, "items", source,
                       &job->elastic.stages, &job->elastic.num_stages, err);
}

static enum status read_norms(const struct json *value, const struct fields_source *source,
                              struct job *job, struct err *err)
{
    struct json *owned = NULL;
    const struct json *array;
    enum status rc = array_of(value, "freeze.norms", source, &array, &owned, err);
    if (rc == OK)
        rc = norms_from_json(array, source->file, "freeze.norms", job->model.num_layers,
                             &job->norms, &job->norm_epochs, err);
    json_free(owned);
    return rc;
}

static enum status add_baseline(struct job *job, const char *key, const char *value,
                                struct err *err)
{
    size_t size = strlen(key) + strlen(value) + 2;
    char **more = realloc(job->baseline, (size_t)(job->num_baseline + 1) * sizeof *more);
    if (!more)
        return err_nomem(err);
    job->baseline = more;
    char *text = malloc(size);
    if (!text)
        return err_nomem(err);
    snprintf(text, size, "%s%s%s", key, *key ? "=" : "", value);
    job->baseline[job->num_baseline++] = text;
    return OK;
}

/* Turn the leaves of an object into overrides. Keys may be nested objects or dotted names. */
static enum status flatten_baseline(const struct json *object, const char *at, const char *file,
                                    struct job *job, struct err *err)
{
    enum status rc = OK;
    for (struct json *m = json_first(object); m && rc == OK; m = json_next(m)) {
        char key[96];
        if (snprintf(key, sizeof key, "%s%s%s", at, *at ? "." : "", json_key(m)) >= (int)sizeof key)
            return err_set(err, ERR_INPUT, "%s: baseline: key '%.60s...' is too long", file, key);
        if (json_type(m) == JSON_OBJECT && strcmp(key, "model") != 0 &&
            strcmp(key, "cluster") != 0) {
            rc = flatten_baseline(m, key, file, job, err);
            continue;
        }
        char *text = NULL;
        rc = check_key(file, "baseline", key, err);
        if (rc == OK && !json_string(m))
            rc = json_text(m, false, &text, err);
        if (rc == OK)
            rc = add_baseline(job, key, text ? text : json_string(m), err);
        free(text);
    }
    return rc;
}

static enum status read_baseline(const struct json *value, const struct fields_source *source,
                                 struct job *job, struct err *err)
{
    if (json_type(value) == JSON_OBJECT)
        return flatten_baseline(value, "", source->file, job, err);
    if (json_type(value) != JSON_ARRAY)
        return fields_refuse(source, "baseline", "an object of overrides", value, err);
    enum status rc = OK;
    for (struct json *m = json_first(value); m && rc == OK; m = json_next(m)) {
        char key[96];
        const char *text = json_string(m), *equals = text ? strchr(text, '=') : NULL;
        if (!equals || equals - text >= (ptrdiff_t)sizeof key)
            return fields_refuse(source, "baseline", "texts \"key=value\"", m, err);
        snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
        rc = check_key(source->file, "baseline", key, err);
        if (rc == OK)
            rc = add_baseline(job, "", text, err);
    }
    return rc;
}

/* --- the whole -------------------------------------------------------------------------------- */

/* Write the resolved job to job->json: the fields of the table, and the other keys as they were
 * read, with relative file names resolved. */
static enum status resolve(const struct json *root, const char *dir, struct job *job,
                           struct err *err)
{
    static const char *const copied[] = {"model", "cluster"};
    struct json *out = json_object_new();
    fields_write(job_fields, NUM_FIELDS, job, out);
    for (int i = 0; i < 2; i++) {
        const struct json *value = json_get(root, copied[i]);
        const char *text = json_string(value);
        if (text && path_is_json(text)) {
            char *whole = path_join(dir, text);
            if (!whole) {
                json_free(out);
                return err_nomem(err);
            }
            json_add_string(out, copied[i], whole);
            free(whole);
        } else if (value) {
            json_add_copy(out, copied[i], value);
        }
    }
    struct json *train = json_get(out, "train");
    struct json *batch = json_add_object(train, "batch");
    json_add_int(batch, job->train.batch_mode == BATCH_GLOBAL ? "global" : "per_pipeline",
                 job->train.batch);
    struct json *freeze = json_get(out, "freeze");
    if (job->freeze.num_table > 0) {
        struct json *table = json_add_array(freeze, "table");
        for (int i = 0; i < job->freeze.num_table; i++)
            json_add_int(table, NULL, job->freeze.table[i]);
    }
    if (job->elastic.num_stages > 0) {
        struct json *stages = json_add_array(json_get(out, "elastic"), "stages");
        for (int i = 0; i < job->elastic.num_stages; i++)
            json_add_int(stages, NULL, job->elastic.stages[i]);
    }
    if (job->norm_epochs > 0)
        norms_to_json(json_add_array(freeze, "norms"), job->norms, job->norm_epochs,
                      job->model.num_layers);
    if (job->num_baseline > 0) {
        /* An object with dotted keys, so that --set baseline.a.b=v can change it. */
        struct json *baseline = json_add_object(out, "baseline");
        for (int i = 0; i < job->num_baseline; i++) {
            char key[96];
            const char *equals = strchr(job->baseline[i], '=');
            snprintf(key, sizeof key, "%.*s", (int)(equals - job->baseline[i]), job->baseline[i]);
            json_remove(baseline, key);
            json_add_string(baseline, key, equals + 1);
        }
    }
    enum status rc = json_text(out, false, &job->json, err);
    json_free(out);
    return rc;
}

/* Refuse a batch that exceeds the samples of an epoch. With a batch per pipeline the planner limits
 * the replicas later. */
static enum status check_batch(const struct job *job, struct err *err)
{
    const int64_t samples = job_num_samples(job, true);
    if (samples == 0 || job->train.batch <= samples)
        return OK;
    return err_set(err, ERR_INPUT, "%s: train.batch of %lld exceeds the %lld training samples",
                   job->path ? job->path : job->name, (long long)job->train.batch,
                   (long long)samples);
}

static enum status read_job(const struct json *root, const char *what, const char *dir,
                            struct job *job, struct err *err)
{
    const struct fields_source source = {.file = what, .prefix = "", .dir = dir};
    const struct json *value;
    enum status rc = fields_read(job_fields, NUM_FIELDS, root, &source, job, err);
    if (rc == OK)
        rc = read_batch(root, &source, job, err);
    if (rc != OK)
        return rc;
    value = json_get(root, "model");
    if (!value)
        return err_set(err, ERR_INPUT, "%s: model is missing", what);
    rc = model_from_json(value, what, "model", dir, job->train.dtype == DTYPE_BF16 ? 2 : 0,
                         &job->model, err);
    if (rc != OK)
        return rc;
    /* If the model has no item after its last layer, one layer must stay active, because a step
     * must train something. */
    if (job->freeze.min_active == 0 &&
        model_frozen_items(&job->model, job->model.num_layers) == job->model.num_items)
        job->freeze.min_active = 1;
    value = json_get(root, "cluster");
    rc = value ? cluster_from_json(value, what, "cluster", dir, &job->cluster, err)
               : cluster_load("this-machine", &job->cluster, err);
    if (rc == OK && (value = json_path(root, "freeze.table")))
        rc = read_table(value, &source, job, err);
    if (rc == OK && (value = json_path(root, "elastic.stages")))
        rc = read_stages(value, &source, job, err);
    if (rc == OK && (value = json_path(root, "freeze.norms")))
        rc = read_norms(value, &source, job, err);
    if (rc == OK && (value = json_get(root, "baseline")))
        rc = read_baseline(value, &source, job, err);
    if (rc == OK)
        rc = job_check(job, err);
    if (rc == OK)
        rc = check_batch(job, err);
    return rc == OK ? resolve(root, dir, job, err) : rc;
}

enum status job_from_json(const struct json *root, const char *what, const char *dir,
                          const char *const *overrides, int num_overrides, struct job *job,
                          struct err *err)
{
    enum status rc;
    struct job got;
    struct json *box = json_object_new(), *changed;
    job_defaults(&got);
    got.path = strdup(what);
    got.dir = strdup(dir ? dir : ".");
    json_add_copy(box, "job", root);
    changed = json_get(box, "job");
    rc = got.path && got.dir ? json_check(box, err) : err_nomem(err);
    if (rc != OK)
        goto out;
    if (json_type(changed) == JSON_OBJECT)
        for (int i = 0; i < num_overrides && rc == OK; i++)
            rc = apply_override(changed, overrides[i], err);
    if (rc == OK)
        rc = read_job(changed, what, dir, &got, err);
    if (rc != OK)
        goto out;
    *job = got;
    got = (struct job){0};
out:
    job_clear(&got);
    json_free(box);
    return rc;
}

enum status job_load(const char *path, const char *const *overrides, int num_overrides,
                     struct job *job, struct err *err)
{
    struct json *root = NULL;
    char *dir = NULL;
    const char *slash = strrchr(path, '/');
    enum status rc = json_read_file(path, &root, err);
    if (rc != OK)
        return rc;
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (folder)
        dir = realpath(folder, NULL);
    rc = dir ? job_from_json(root, path, dir, overrides, num_overrides, job, err)
             : err_set(err, ERR_SYSTEM, "cannot find the folder of '%s'", path);
    free(folder);
    free(dir);
    json_free(root);
    return rc;
}

/* Published sizes: CIFAR (Krizhevsky 2009), MNIST (LeCun et al. 1998), SST-2 as in GLUE (Wang et
 * al. 2018), SQuAD 1.1 (Rajpurkar et al. 2016). The synthetic set is unlimited; its defaults are
 * 10,000 and 2,000. */
int64_t job_num_samples(const struct job *job, bool train)
{
    static const int64_t sizes[DATA_KIND_COUNT][2] = {
        {10000, 2000 },
        {50000, 10000},
        {50000, 10000},
        {60000, 10000},
        {0,     0    },
        {67349, 872  },
        {87599, 10570},
        {0,     0    }
    };
    int64_t said = train ? job->data.train_samples : job->data.test_samples;
    return said > 0 ? said : sizes[job->data.kind][train ? 0 : 1];
}
