/* exec/save/checkpoint.c - writes a run's state into a folder, and reads it back.
 *
 * Saving: every rank writes the files of its stages under a temporary folder name, all agree, and
 * rank 0 adds the manifest and renames the folder. Loading: each tensor is looked up by name in all
 * files, so the cut may differ. Read checkpoint_save() first. */
#include "exec/save/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/save/checkpoint_files.h"
#include "exec/save/hf_names.h"
#include "exec/save/safetensors.h"
#include "partition/units.h"
#include "profiles/job_json.h"
#include "profiles/json.h"
#include "profiles/whole_file.h"

enum { NAME_MAX_BYTES = 128 };

/* --- writing ---------------------------------------------------------------------------------- */

static enum status fetch_backend(void *ctx, const void *source, int64_t num_elems, float *values,
                                 struct err *err)
{
    struct backend *be = ctx;
    be->copy_out(be, values, source, num_elems * (int64_t)sizeof *values);
    return be->sync(be, err);
}

static enum status write_stage(const char *path, struct stage *stage, struct backend *be,
                               struct err *err)
{
    struct param *params = stage_params(stage);
    int n = stage_num_params(stage), count = 0;
    struct tensor_out *tensors = calloc((size_t)n * 3, sizeof *tensors);
    char(*names)[NAME_MAX_BYTES] = calloc((size_t)n * 3, sizeof *names);
    enum status rc;
    if (n > 0 && (!tensors || !names)) {
        rc = err_nomem(err);
        goto out;
    }
    for (int i = 0; i < n; i++) {
        const void *sources[3] = {params[i].weight, params[i].state[0], params[i].state[1]};
        if (params[i].tied_copy)
            continue;
        for (int j = 0; j < 3; j++) {
            if (!sources[j])
                continue;
            if (j == 0)
                snprintf(names[count], sizeof *names, "%s", params[i].name);
            else
                snprintf(names[count], sizeof *names, "optimizer.%d.%s", j - 1, params[i].name);
            tensors[count] = (struct tensor_out){.name = names[count],
                                                 .ndim = params[i].ndim,
                                                 .shape = params[i].shape,
                                                 .num_elems = params[i].num_elems,
                                                 .source = sources[j]};
            count++;
        }
    }
    rc = safetensors_write(path, tensors, count, fetch_backend, be, err);
out:
    free(tensors);
    free(names);
    return rc;
}

/* Remove a folder of plain files; a missing one is fine. */
static void remove_dir(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(path);
}

static const char *optimizer_name(const struct job *job)
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

static enum status write_manifest(const char *dir, const struct job *job, int num_stages,
                                  const struct progress *progress, const struct turn_norms *norms,
                                  struct err *err)
{
    const struct model *model = &job->model;
    struct json *root = json_object_new(), *object, *list, *config;
    char name[32], *path = NULL;
    enum status rc;
    json_add_string(root, "format", "elapse-checkpoint");
    json_add_int(root, "schema", CHECKPOINT_SCHEMA);
    json_add_int(root, "step", progress->step);
    json_add_int(root, "epoch", progress->epoch);
    json_add_int(root, "position", progress->position);
    json_add_int(root, "frozen_layers", progress->num_frozen_layers);
    if (norms->num_turns > 0)
        norms_to_json(json_add_array(root, "norms"), norms->rows, norms->num_turns,
                      model->num_layers);
    if (norms->steps > 0) {
        object = json_add_object(root, "turn");
        json_add_int(object, "steps", norms->steps);
        list = json_add_array(object, "sumsq");
        for (int l = 0; l < model->num_layers; l++)
            json_add_double(list, NULL, norms->sumsq[l]);
    }
    json_add_string(root, "optimizer", optimizer_name(job));
    json_add_int(root, "seed", (int64_t)job->train.seed);
    object = json_add_object(root, "model");
    json_add_string(object, "name", model->name);
    json_add_string(object, "family", model_family_name(model->family));
    json_add_int(object, "layers", model->num_layers);
    json_add_int(object, "hidden", model->hidden);
    json_add_int(object, "heads", model->heads);
    json_add_int(object, "mlp", model->mlp);
    json_add_int(object, "params", model_total_params(model));
    config = hf_config(model);
    if (config)
        json_add_copy(root, "config", config);
    json_free(config);
    list = json_add_array(root, "files");
    for (int s = 0; s < num_stages; s++) {
        snprintf(name, sizeof name, "stage-%05d.safetensors", s);
        json_add_string(list, NULL, name);
    }
    if (asprintf(&path, "%s/manifest.json", dir) < 0) {
        json_free(root);
        return err_nomem(err);
    }
    rc = json_write_file(root, path, err);
    free(path);
    json_free(root);
    return rc;
}

enum status checkpoint_save(const struct comm *comm, const char *dir, const struct job *job,
                            const struct stage_list *list, bool write,
                            const struct progress *progress, const struct turn_norms *norms,
                            struct err *err)
{
    enum status rc = OK;
    char *temp = NULL, *path = NULL;
    if (asprintf(&temp, "%s.tmp", dir) < 0) {
        temp = NULL;
        rc = err_nomem(err);
    }
    if (rc == OK && comm->rank == 0) {
        remove_dir(temp);
        if (mkdir(temp, 0777) != 0)
            rc = err_set(err, ERR_SYSTEM, "cannot create '%s': %s", temp, strerror(errno));
    }
    rc = comm_agree(comm, rc, err);
    for (int s = 0; rc == OK && write && s < list->num_stages; s++) {
        if (!list->stages[s])
            continue;
        if (asprintf(&path, "%s/stage-%05d.safetensors", temp, s) < 0) {
            rc = err_nomem(err);
            break;
        }
        rc = write_stage(path, list->stages[s], list->backend, err);
        free(path);
    }
    rc = comm_agree(comm, rc, err);
    if (comm->rank == 0) {
        if (rc == OK)
            rc = write_manifest(temp, job, list->num_stages, progress, norms, err);
        if (rc == OK) { /* writing the manifest has synced the folder's names */
            remove_dir(dir);
            if (rename(temp, dir) != 0)
                rc = err_set(err, ERR_SYSTEM, "cannot rename '%s' to '%s': %s", temp, dir,
                             strerror(errno));
        }
        if (rc == OK)
            file_sync_name(dir);
        if (rc != OK && temp)
            remove_dir(temp);
    }
    free(temp);
    return comm_agree(comm, rc, err);
}

/* --- reading ---------------------------------------------------------------------------------- */

static enum status manifest_int(const struct json *manifest, const char *dir, const char *key,
                                int64_t max, int64_t *value, struct err *err)
{
    const struct json *member = json_path(manifest, key);
    if (!member || !json_int64(member, value) || *value < 0 || *value > max)
        return err_set(err, ERR_INPUT, "'%s/manifest.json': %s must be 0..%lld", dir, key,
                       (long long)max);
    return OK;
}

/* Another optimizer cannot use the optimizer state, and another seed orders the samples
 * differently, so the position within the epoch would be wrong. */
static enum status check_state(const struct json *manifest, const char *dir, const struct job *job,
                               struct err *err)
{
    const char *want = optimizer_name(job);
    const char *optimizer = json_string(json_get(manifest, "optimizer"));
    const int64_t want_seed = (int64_t)job->train.seed;
    int64_t seed;
    enum status rc = manifest_int(manifest, dir, "seed", INT64_MAX, &seed, err);
    if (rc == OK && (!optimizer || strcmp(optimizer, want) != 0))
        rc = err_set(err, ERR_INPUT, "'%s' is of a run with optimizer %s, the job has %s", dir,
                     optimizer ? optimizer : "?", want);
    else if (rc == OK && seed != want_seed)
        rc = err_set(err, ERR_INPUT, "'%s' is of a run with train.seed %lld, the job has %lld", dir,
                     (long long)seed, (long long)want_seed);
    else
        return rc;
    err_hint(err, "--init takes its weights alone");
    return rc;
}

enum status checkpoint_peek(const char *dir, const struct job *job, bool state,
                            struct progress *progress, struct err *err)
{
    const struct model *model = &job->model;
    struct json *manifest = NULL;
    struct progress got = {0};
    int64_t frozen = 0, value;
    const struct {
        const char *key;
        int64_t want;
    } dims[] = {
        {"model.layers", model->num_layers        },
        {"model.hidden", model->hidden            },
        {"model.mlp",    model->mlp               },
        {"model.heads",  model->heads             },
        {"model.params", model_total_params(model)},
    };
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    if (rc != OK)
        return rc;
    rc = manifest_int(manifest, dir, "step", INT64_MAX, &got.step, err);
    if (rc == OK)
        rc = manifest_int(manifest, dir, "epoch", JOB_EPOCHS_MAX, &got.epoch, err);
    if (rc == OK)
        rc = manifest_int(manifest, dir, "position", INT64_MAX, &got.position, err);
    if (rc == OK)
        rc = manifest_int(manifest, dir, "frozen_layers", model->num_layers, &frozen, err);
    got.num_frozen_layers = (int)frozen;
    for (size_t i = 0; rc == OK && i < sizeof dims / sizeof *dims; i++) {
        rc = manifest_int(manifest, dir, dims[i].key, INT64_MAX, &value, err);
        if (rc == OK && value != dims[i].want)
            rc = err_set(err, ERR_INPUT, "'%s' holds another model: %s is %lld, the job has %lld",
                         dir, dims[i].key, (long long)value, (long long)dims[i].want);
    }
    if (rc == OK && state)
        rc = check_state(manifest, dir, job, err);
    if (rc == OK)
        *progress = got;
    json_free(manifest);
    return rc;
}

enum status checkpoint_norms(const char *dir, int num_layers, struct turn_norms *norms,
                             struct err *err)
{
    const struct fields_source source = {.file = dir, .prefix = "norms"};
    struct json *manifest = NULL;
    const struct json *list;
    int rows = 0;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    norms->steps = 0;
    memset(norms->sumsq, 0, (size_t)num_layers * sizeof *norms->sumsq);
    if (rc == OK && (list = json_get(manifest, "norms")))
        rc = norms_from_json(list, &source, num_layers, &norms->rows, &rows, err);
    norms->num_turns = rows;
    if (rc == OK && json_get(manifest, "turn")) {
        rc = manifest_int(manifest, dir, "turn.steps", INT64_MAX, &norms->steps, err);
        list = json_path(manifest, "turn.sumsq");
        if (rc == OK && (!list || json_type(list) != JSON_ARRAY || json_count(list) != num_layers))
            rc = err_set(err, ERR_INPUT, "'%s/manifest.json': turn.sumsq must hold %d numbers", dir,
                         num_layers);
        for (int l = 0; rc == OK && l < num_layers; l++) {
            norms->sumsq[l] = json_number(json_at(list, l));
            if (!(norms->sumsq[l] >= 0 && isfinite(norms->sumsq[l])))
                rc = err_set(err, ERR_INPUT,
                             "'%s/manifest.json': turn.sumsq.%d must be a number at least 0", dir,
                             l);
        }
    }
    json_free(manifest);
    return rc;
}

static bool same_shape(const struct param *param, const struct tensor_info *info)
{
    bool same = param->ndim == info->ndim;
    for (int d = 0; same && d < param->ndim; d++)
        same = param->shape[d] == info->shape[d];
    return same;
}

/* Load one tensor from the file that has it. */
static enum status load_tensor(struct safetensors **files, int num_files, const char *where,
                               const char *name, const struct param *param, float *to,
                               struct backend *be, struct err *err)
{
    struct tensor_info info;
    char want[96], got[96];
    float *values;
    enum status rc;
    for (int f = 0; f < num_files; f++) {
        if (!safetensors_find(files[f], name, &info))
            continue;
        if (!same_shape(param, &info)) {
            tensor_shape_text(param->ndim, param->shape, want, sizeof want);
            tensor_shape_text(info.ndim, info.shape, got, sizeof got);
            return err_set(err, ERR_INPUT, "'%s': tensor '%s' has shape [%s], the model wants [%s]",
                           where, name, got, want);
        }
        values = malloc(info.num_elems ? (size_t)info.num_elems * sizeof *values : 1);
        if (!values)
            return err_nomem(err);
        rc = safetensors_read(files[f], name, &info, values, err);
        if (rc == OK) {
            be->copy_in(be, to, values, info.num_elems * (int64_t)sizeof *values);
            rc = be->sync(be, err);
        }
        free(values);
        return rc;
    }
    return err_set(err, ERR_INPUT, "'%s' has no tensor '%s'", where, name);
}

static enum status load_stages(struct safetensors **files, int num_files, const char *where,
                               const struct stage_list *list, bool state, struct err *err)
{
    enum status rc = OK;
    for (int s = 0; rc == OK && s < list->num_stages; s++) {
        struct param *params = list->stages[s] ? stage_params(list->stages[s]) : NULL;
        for (int i = 0; rc == OK && params && i < stage_num_params(list->stages[s]); i++) {
            rc = load_tensor(files, num_files, where, params[i].name, &params[i], params[i].weight,
                             list->backend, err);
            for (int j = 0; rc == OK && state && j < 2; j++) {
                char name[NAME_MAX_BYTES];
                if (!params[i].state[j])
                    continue;
                snprintf(name, sizeof name, "optimizer.%d.%s", j, params[i].name);
                rc = load_tensor(files, num_files, where, name, &params[i], params[i].state[j],
                                 list->backend, err);
            }
        }
        if (rc == OK && params)
            stage_round_weights(list->stages[s]);
    }
    return rc;
}

enum status checkpoint_load(const char *dir, const struct stage_list *list, bool state,
                            struct err *err)
{
    struct safetensors **files = NULL;
    int num_files = 0;
    enum status rc = checkpoint_files_open(dir, &files, &num_files, err);
    if (rc != OK)
        return rc;
    rc = load_stages(files, num_files, dir, list, state, err);
    checkpoint_files_close(files, num_files);
    return rc;
}

enum status checkpoint_find(const char *dir, char **path, struct err *err)
{
    DIR *folder = NULL;
    struct dirent *entry;
    int64_t best = -1;
    char *manifest = NULL;
    enum status rc = OK;
    if (asprintf(&manifest, "%s/manifest.json", dir) < 0)
        return err_nomem(err);
    if (access(manifest, F_OK) == 0) {
        *path = strdup(dir);
        rc = *path ? OK : err_nomem(err);
        goto out;
    }
    folder = opendir(dir);
    if (!folder) {
        rc = err_set(err, ERR_SYSTEM, "cannot open '%s': %s", dir, strerror(errno));
        goto out;
    }
    while ((entry = readdir(folder))) {
        int64_t step;
        if (strncmp(entry->d_name, "checkpoint-", 11) == 0 &&
            parse_int(entry->d_name + 11, "step", 0, INT64_MAX, &step, NULL) == OK && step > best)
            best = step;
    }
    if (best < 0)
        rc = err_set(err, ERR_SYSTEM, "no checkpoint in '%s'", dir);
    else if (asprintf(path, "%s/checkpoint-%lld", dir, (long long)best) < 0)
        rc = err_nomem(err);
out:
    if (folder)
        closedir(folder);
    free(manifest);
    return rc;
}

enum status checkpoint_run(const char *dir, char **run, struct err *err)
{
    char *checkpoint = NULL;
    enum status rc = checkpoint_find(dir, &checkpoint, err);
    char *real = rc == OK ? realpath(checkpoint, NULL) : NULL; /* resolves "." and links */
    if (rc == OK && !real)
        rc = err_set(err, ERR_SYSTEM, "cannot open '%s': %s", checkpoint, strerror(errno));
    if (real) {
        char *slash = strrchr(real, '/');
        slash[slash == real] = '\0';
        *run = real;
    }
    free(checkpoint);
    return rc;
}
