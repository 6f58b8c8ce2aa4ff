/* Jobs from JSON.
 *
 * Overrides ("a.b=v") change the JSON tree before it is read (job_override.c). Then the table of
 * keys (job_members.c) fills the job, and functions read the keys that a table cannot: the batch,
 * model, cluster, arrays (job_arrays.c) and baseline. The resolved job is written back to
 * job->json. Read job_from_json() first. */
#include "profiles/job/job_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/model/attention.h"
#include "partition/base/units.h"
#include "profiles/job/evidence_json.h"
#include "profiles/job/job_parts.h"

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

/* The keys of "pipeline" of which a job that names none leaves its layout to the planner; returns how
 * many. A resolved job keeps that. */
enum { MOST_LAYOUT_KEYS = LAYOUT_DIM_COUNT + 2 };
static int layout_keys(const char *keys[MOST_LAYOUT_KEYS])
{
    int n = 0;
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++)
        if (layout_members[d].opens)
            keys[n++] = layout_members[d].key;
    keys[n++] = "recompute";
    keys[n++] = "schedule";
    return n;
}

/* Copy a key of the job as it was read, with a file's name resolved against the job's folder. */
static enum status copy_key(const struct json *root, const char *dir, const char *key,
                            struct json *out, struct err *err)
{
    const struct json *value = json_get(root, key);
    const char *text = json_string(value);
    if (!text || !path_is_json(text)) {
        if (value)
            json_add_copy(out, key, value);
        return OK;
    }
    char *whole = path_join(dir, text);
    if (!whole)
        return err_nomem(err);
    json_add_string(out, key, whole);
    free(whole);
    return OK;
}

/* The baseline as an object with dotted keys, so that --set baseline.a.b=v can change it. */
static void add_baseline(const struct job *job, struct json *baseline)
{
    for (int i = 0; i < job->num_baseline; i++) {
        char key[96];
        const char *equals = strchr(job->baseline[i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - job->baseline[i]), job->baseline[i]);
        json_remove(baseline, key);
        json_add_string(baseline, key, equals + 1);
    }
}

/* Write the resolved job to job->json: the fields of the table, and the other keys as they were
 * read, with relative file names resolved. */
static enum status resolve(const struct json *root, const char *dir, struct job *job,
                           struct err *err)
{
    struct json *out = json_object_new();
    fields_write(job_keys.rows, job_keys.num, job, out);
    enum status rc = copy_key(root, dir, "model", out, err);
    THEN(copy_key(root, dir, "cluster", out, err));
    const char *keys[MOST_LAYOUT_KEYS];
    for (int i = layout_keys(keys); i > 0 && job->pipeline.layout_open; i--)
        if (strcmp(keys[i - 1], "schedule") != 0 || !job_searches(job))
            json_remove(json_get(out, "pipeline"), keys[i - 1]);
    if (job->pipeline.bucket_auto)
        json_remove(json_get(out, "pipeline"), "bucket_bytes");
    struct json *train = json_get(out, "train");
    struct json *batch = json_get(train, "batch"); /* train.batch.micro made it */
    json_add_int(batch, job->train.batch_mode == BATCH_GLOBAL ? "global" : "per_pipeline",
                 job->train.batch);
    struct json *freeze = json_get(out, "freeze");
    if (job->freeze.num_table > 0)
        json_add_ints(freeze, "table", job->freeze.table, job->freeze.num_table);
    if (job->elastic.num_stages > 0)
        json_add_ints(json_get(out, "elastic"), "stages", job->elastic.stages,
                      job->elastic.num_stages);
    if (job->norm_epochs > 0)
        norms_to_json(json_add_array(freeze, "norms"), job->norms, job->norm_epochs,
                      job->model.num_layers);
    if (job->evidence.num_rows > 0)
        evidence_to_json(json_add_object(freeze, "evidence"), &job->model, &job->evidence);
    if (job->num_baseline > 0)
        add_baseline(job, json_add_object(out, "baseline"));
    THEN(json_text(out, false, &job->json, err));
    json_free(out);
    return rc;
}

/* Refuse a batch that exceeds the samples of an epoch. With a batch per pipeline the planner limits
 * the replicas later. Samples that no option gives a first question limit nothing. */
static enum status check_batch(const struct job *job, struct err *err)
{
    const int64_t samples = job_num_samples(job, true);
    const bool invented =
        job->of_options && job->data.train_samples == 0 && job->data.documents == 0;
    if (samples == 0 || job->train.batch <= samples || invented)
        return OK;
    return err_set(err, ERR_INPUT,
                   "%s: train.batch of %lld exceeds the %lld training samples (data.train_samples)",
                   job->path ? job->path : job->name, (long long)job->train.batch,
                   (long long)samples);
}

/* Sizes in a narrow format. A weight has two copies in it, by rows and by columns, to whole bytes, beside
 * the 2-byte one or in its place. */
static void keep_narrow(struct job *job)
{
    static const int thirty_seconds[] = {[DTYPE_FP8] = 32, [DTYPE_MXFP8] = 33, [DTYPE_NVFP4] = 18};
    const struct framework *framework = job->model.framework;
    const enum dtype dtype = job->train.dtype;
    if (dtype < DTYPE_FP8)
        return;
    const bool alone = dtype != DTYPE_NVFP4 && framework && framework->keeps_narrow_weights;
    if (job->model.weight_bytes_per_param == 0 && !alone)
        job->model.weight_bytes_per_param =
            model_weight_bytes(&job->model) + (dtype == DTYPE_NVFP4 ? 1 : 2);
    model_keep_narrow(&job->model, thirty_seconds[dtype]);
}

/* The 2-byte format that all devices multiply faster in than in fp32; DTYPE_FP32: there is none. */
static enum dtype fast_dtype(const struct cluster *cluster)
{
    bool bf16 = true, fp16 = true;
    for (int d = 0; d < cluster->num_devices; d++) {
        const struct roofline *roof = device_roofline(&cluster->devices[d]);
        bf16 = bf16 && roof && roof->bf16_flops_per_s > roof->fp32_flops_per_s;
        fp16 = fp16 && roof && roof->fp16_flops_per_s > roof->fp32_flops_per_s;
    }
    return bf16 ? DTYPE_BF16 : fp16 ? DTYPE_FP16 : DTYPE_FP32;
}

/* What a first question leaves open is what people train text models with. The model is read, with the
 * default of a job file, and the cluster too. */
static void assume(const struct json *root, struct job *job)
{
    const struct model *model = &job->model;
    const enum dtype dtype = fast_dtype(&job->cluster);
    const bool text = model->vocab > 0 && model->image == 0;
    if (!job->of_options || !text || dtype == DTYPE_FP32)
        return;
    job->assumed.dtype = !json_path(root, "train.dtype") && !model->dtype && model->elem_bytes == 4;
    job->assumed.optimizer = !json_path(root, "train.optimizer.kind");
    if (job->assumed.dtype)
        job->train.dtype = dtype;
    if (job->assumed.optimizer)
        job->train.optimizer.kind = OPTIMIZER_ADAMW;
}

/* Read the model, with one dtype for it and the job: train.dtype where the job names it, otherwise the one
 * of the model's text, as in llama3-8b:dtype=bf16. */
static enum status read_model(const struct json *root, const struct fields_source *source,
                              struct job *job, struct err *err)
{
    const bool given = json_path(root, "train.dtype") != NULL,
               wide = job->train.dtype == DTYPE_FP32 || job->train.dtype == DTYPE_TF32;
    const int bytes = !wide ? 2 : given ? 4 : 0;
    const struct json *value = json_get(root, "model");
    enum status rc = model_from_json(value, source, bytes, &job->model, err);
    if (rc == OK)
        assume(root, job);
    if (rc == OK && job->assumed.dtype) {
        model_clear(&job->model);
        return model_from_json(value, source, 2, &job->model, err);
    }
    if (rc == OK && !given && wide && job->model.elem_bytes == 2)
        job->train.dtype = DTYPE_BF16;
    for (int i = 0; rc == OK && !given && job->model.dtype && dtype_names[i]; i++)
        if (strcmp(dtype_names[i], job->model.dtype) == 0)
            job->train.dtype = (enum dtype)i;
    return rc;
}

/* Read the cluster and the model. Without a cluster it is this machine. */
static enum status read_setting(const struct json *root, const char *what, const char *dir,
                                struct job *job, struct err *err)
{
    const struct fields_source in_model = {.file = what, .prefix = "model", .dir = dir};
    const struct fields_source in_cluster = {.file = what, .prefix = "cluster", .dir = dir};
    const struct json *cluster = json_get(root, "cluster");
    if (!json_get(root, "model"))
        return err_set(err, ERR_INPUT, "%s: model is missing", what);
    enum status rc = cluster ? cluster_from_json(cluster, &in_cluster, &job->cluster, err)
                             : cluster_load("this-machine", &job->cluster, err);
    THEN(read_model(root, &in_model, job, err));
    if (rc != OK)
        return rc;
    const struct packing_ask packing = {.mean = job->data.length,
                                        .deviation = job->data.length_deviation,
                                        .rows = job->train.rows,
                                        .batch = job->train.micro > 0 ? job->train.micro
                                                                      : job->train.batch,
                                        .framework = job->train.framework,
                                        .attention = job->train.attention};
    struct err why = {0};
    if (model_set_packing(&job->model, &packing, &why) != OK)
        return err_set(err, why.status, "%s: %s", job->path ? job->path : job->name, why.msg);
    model_set_expert_load(&job->model, job->train.expert_load);
    if (job->train.dropout == 0)
        model_drop_nothing(&job->model);
    model_set_attention(&job->model, job->train.attention);
    if (job->train.gradient_bytes > 0)
        job->model.grad_bytes_per_param = job->train.gradient_bytes;
    model_set_framework(&job->model, job->train.framework, job->train.norm);
    model_set_overlap(&job->model, job->train.overlap, job->train.dispatcher);
    keep_narrow(job);
    if (model_set_lora(&job->model, &job->train.lora, &why) != OK) {
        err_set(err, why.status, "%s: %s", job->path ? job->path : job->name, why.msg);
        if (why.hint[0])
            err_hint(err, "%s", why.hint);
        return why.status;
    }
    model_keep_fp8(&job->model, job->train.fp8_attention, job->train.fp8_scaling == SCALING_DELAYED,
                   job->train.fp8_activation);
    if (job->freeze.min_active < 0)
        job->freeze.min_active = job->model.num_layers;
    /* If nothing after the last layer trains (there is no item, or only layers have adapters), one
     * layer must stay active, because a step must train something. */
    bool behind_trains = false;
    for (int i = model_frozen_items(&job->model, job->model.num_layers); i < job->model.num_items;
         i++)
        behind_trains = behind_trains || !model_item_is_base(&job->model, i);
    if (job->freeze.min_active == 0 && !behind_trains)
        job->freeze.min_active = 1;
    return job->freeze.head == HEAD_ALONE ? model_let_head_go_on(&job->model, err) : OK;
}

/* A job that asks for freezing without naming a policy gets `safe`, for shares `timed`, with a table
 * `table`. */
static void choose_policy(const struct json *root, struct job *job)
{
    static const char *const asks[] = {"freeze.alpha", "freeze.max_loss", "freeze.min_active",
                                       "freeze.warmup", "freeze.evidence"};
    bool asked = false;
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++)
        asked = asked || json_path(root, asks[i]);
    if (json_path(root, "freeze.table") && !json_path(root, "freeze.policy"))
        job->freeze.policy = FREEZE_TABLE;
    else if (asked && !json_path(root, "freeze.policy"))
        job->freeze.policy = FREEZE_SAFE;
    else if (json_path(root, "freeze.max_share") && !json_path(root, "freeze.policy"))
        job->freeze.policy = FREEZE_TIMED;
    if (job->freeze.policy == FREEZE_TIMED && !json_path(root, "freeze.max_share")) {
        const bool budget = json_path(root, "freeze.max_loss");
        job->freeze.max_share = budget ? 1 : 0.5;
        if (budget) { /* the budget says how much of that; no prefix */
            job->freeze.policy = FREEZE_SAFE;
            job->freeze.min_active = -1; /* all layers */
        }
    }
    if (job->freeze.policy == FREEZE_SAFE && !json_path(root, "freeze.alpha"))
        job->freeze.alpha = 0.5;
}

/* Whether a key of the layout restricts nothing: any schedule, and also its own op lists. */
static bool asks_for_more(const struct json *pipeline, const char *key)
{
    const char *text = json_string(json_get(pipeline, key));
    return strcmp(key, "schedule") == 0 && text &&
           (strcmp(text, "search") == 0 || strcmp(text, "auto") == 0);
}

static void choose_layout(const struct json *root, struct job *job)
{
    const struct json *pipeline = json_get(root, "pipeline");
    job->pipeline.layout_open = true;
    const char *keys[MOST_LAYOUT_KEYS];
    for (int i = layout_keys(keys); i > 0; i--)
        if (json_get(pipeline, keys[i - 1]) && !asks_for_more(pipeline, keys[i - 1]))
            job->pipeline.layout_open = false;
    if (job->pipeline.layout_open && !json_get(pipeline, "offload"))
        job->pipeline.offload = OFFLOAD_FIT;
    if (job->pipeline.layout.at.tensor == AUTO && !json_get(pipeline, "sequence_parallel"))
        job->pipeline.layout.open[LAYOUT_SEQUENCE] = true;
    job->pipeline.bucket_auto =
        job->train.framework != FRAMEWORK_AUTO && !json_get(pipeline, "bucket_bytes");
}

/* How much of a job is set: its text, path and dir; all but the resolved text; all. */
enum job_extent { JOB_TEXT, JOB_VALUES, JOB_RESOLVED };

static enum status read_job(const struct json *root, const char *what, const char *dir,
                            enum job_extent extent, struct job *job, struct err *err)
{
    static const struct {
        const char *key;
        enum status (*read)(const struct json *value, const struct fields_source *source,
                            struct job *job, struct err *err);
    } others[] = {
        {"freeze.table",    job_read_table   },
        {"elastic.stages",  job_read_stages  },
        {"freeze.norms",    job_read_norms   },
        {"freeze.evidence", job_read_evidence},
        {"baseline",        job_read_baseline},
    };
    const struct fields_source source = {.file = what, .prefix = "", .dir = dir};
    enum status rc = fields_read(job_keys.rows, job_keys.num, root, &source, job, err);
    choose_policy(root, job);
    choose_layout(root, job);
    THEN(read_batch(root, &source, job, err));
    THEN(read_setting(root, what, dir, job, err));
    for (size_t i = 0; i < sizeof others / sizeof *others && rc == OK; i++) {
        const struct fields_source here = {.file = what, .prefix = others[i].key, .dir = dir};
        const struct json *value = json_path(root, others[i].key);
        if (value)
            rc = others[i].read(value, &here, job, err);
    }
    THEN(job_check(job, err));
    THEN(check_batch(job, err));
    if (rc == OK)
        job_note_unused(job);
    return rc == OK && extent == JOB_RESOLVED ? resolve(root, dir, job, err) : rc;
}

static const char OPTIONS[] = "the options";

/* job_from_json(), or less. what NULL: the options. */
static enum status open_job(const struct json *root, const char *what, const char *dir,
                            const char *const *overrides, int num_overrides, enum job_extent extent,
                            struct job *job, struct err *err)
{
    enum status rc;
    struct job got;
    struct json *box = json_object_new(), *changed;
    job_defaults(&got);
    got.of_options = !what;
    what = what ? what : OPTIONS;
    got.path = strdup(what);
    got.dir = strdup(dir ? dir : ".");
    json_add_copy(box, "job", root);
    changed = json_get(box, "job");
    rc = got.path && got.dir ? json_check(box, err) : err_nomem(err);
    if (rc != OK)
        goto out;
    if (json_type(changed) == JSON_OBJECT)
        for (int i = 0; i < num_overrides && rc == OK; i++)
            rc = job_override(changed, dir, overrides[i], err);
    THEN(json_text(changed, false, &got.text, err));
    if (rc == OK && extent != JOB_TEXT)
        rc = read_job(changed, what, dir, extent, &got, err);
    if (rc != OK)
        goto out;
    *job = got;
    got = (struct job){0};
out:
    job_clear(&got);
    json_free(box);
    return rc;
}

enum status job_from_json(const struct json *root, const char *what, const char *dir,
                          const char *const *overrides, int num_overrides, struct job *job,
                          struct err *err)
{
    return open_job(root, what, dir, overrides, num_overrides, JOB_RESOLVED, job, err);
}

static enum status change_job(const struct job *job, const char *const *overrides,
                              int num_overrides, enum job_extent extent, struct job *changed,
                              struct err *err)
{
    struct json *root = NULL;
    const char *what = job && !job->of_options ? job->path : NULL;
    enum status rc = json_parse(job ? job->text : "{}", what ? what : OPTIONS, &root, err);
    THEN(open_job(root, what, job ? job->dir : NULL, overrides, num_overrides, extent, changed,
                  err));
    json_free(root);
    return rc;
}

enum status job_changed(const struct job *job, const char *const *overrides, int num_overrides,
                        struct job *changed, struct err *err)
{
    return change_job(job, overrides, num_overrides, JOB_RESOLVED, changed, err);
}

enum status job_point(const struct job *job, const char *const *overrides, int num_overrides,
                      struct job *point, struct err *err)
{
    return change_job(job, overrides, num_overrides, JOB_VALUES, point, err);
}

/* Give a time that is a bare number its unit. ctx: the object that the table of keys describes. */
static void name_unit(const struct key_help *key, void *ctx)
{
    const char *dot = strrchr(key->key, '.'), *last = dot ? dot + 1 : key->key;
    char parent[64], text[32];
    int64_t ns;
    snprintf(parent, sizeof parent, "%.*s", dot ? (int)(dot - key->key) : 0, key->key);
    struct json *object = dot ? json_path(ctx, parent) : ctx;
    if (strcmp(key->takes, "time") != 0 || !json_int64(json_get(object, last), &ns) || ns <= 0)
        return;
    json_remove(object, last);
    json_add_string(object, last, write_ns(ns, text, sizeof text));
}

static void name_units(struct json *job)
{
    struct json *cluster = json_get(job, "cluster");
    struct json *collective = json_get(cluster, "collective");
    keys_each(KEYS_JOB, name_unit, job);
    keys_each(KEYS_CLUSTER, name_unit, cluster);
    keys_each(KEYS_COLLECTIVE, name_unit, collective);
    for (struct json *kind = json_first(collective); kind; kind = json_next(kind))
        keys_each(KEYS_COLLECTIVE, name_unit, kind);
}

enum status job_from_record(const struct json *root, const char *what, const char *const *overrides,
                            int num_overrides, struct job *job, struct err *err)
{
    struct json *box = json_object_new();
    json_add_copy(box, "job", root);
    name_units(json_get(box, "job"));
    enum status rc = json_check(box, err);
    THEN(job_from_json(json_get(box, "job"), what, NULL, overrides, num_overrides, job, err));
    json_free(box);
    return rc;
}

char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    char *folder = name ? realpath(name, NULL) : NULL;
    free(name);
    return folder;
}

static enum status open_file(const char *path, const char *const *overrides, int num_overrides,
                             enum job_extent extent, struct job *job, struct err *err)
{
    struct json *root = NULL;
    char *dir = NULL;
    enum status rc;
    if (!path)
        return change_job(NULL, overrides, num_overrides, extent, job, err);
    rc = json_read_file(path, &root, err);
    if (rc != OK)
        return rc;
    dir = folder_of(path);
    rc = dir ? open_job(root, path, dir, overrides, num_overrides, extent, job, err)
             : err_set(err, ERR_SYSTEM, "cannot find the folder of '%s'", path);
    free(dir);
    json_free(root);
    return rc;
}

enum status job_load(const char *path, const char *const *overrides, int num_overrides,
                     struct job *job, struct err *err)
{
    return open_file(path, overrides, num_overrides, JOB_RESOLVED, job, err);
}

enum status job_open(const char *path, const char *const *overrides, int num_overrides,
                     struct job *job, struct err *err)
{
    return open_file(path, overrides, num_overrides, JOB_TEXT, job, err);
}

void keys_each(enum key_table table, key_visitor *visit, void *ctx)
{
    if (table == KEYS_JOB)
        fields_each(job_keys.rows, job_keys.num, visit, ctx);
    else if (table <= KEYS_SKIP)
        model_keys_each(table, visit, ctx);
    else
        cluster_keys_each(table, visit, ctx);
}

int64_t job_num_samples(const struct job *job, bool train)
{
    const struct data_set *set = &data_sets[job->data.kind];
    if (train)
        return job_train_samples(job, set->num_train);
    return job->data.test_samples > 0 ? job->data.test_samples : set->num_test;
}
