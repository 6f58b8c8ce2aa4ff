/* exec/save/checkpoint.c - writes a run's state into a folder, and reads it back.
 *
 * Saving: every rank writes the files of its stages under a temporary folder name, all agree, and
 * rank 0 gathers their digests, adds the manifest and renames the folder. Loading: each tensor is
 * looked up by name in all files, so the cut may differ. Read checkpoint_save() first. */
#include "exec/save/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/save/checkpoint_files.h"
#include "exec/save/hf_config.h"
#include "exec/save/hf_names.h"
#include "exec/save/owned_folder.h"
#include "exec/save/safetensors.h"
#include "profiles/job/evidence_json.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json.h"
#include "profiles/base/whole_file.h"

enum { NAME_MAX_BYTES = 128, TEMP_NAMES = 100 };

/* --- writing ---------------------------------------------------------------------------------- */

static enum status fetch_backend(void *ctx, const void *source, int64_t num_elems, float *values,
                                 struct err *err)
{
    struct backend *be = ctx;
    be->copy_out(be, values, source, num_elems * (int64_t)sizeof *values);
    return be->sync(be, err);
}

static enum status write_stage(const char *path, struct stage *stage,
                               const struct checkpoint_state *state, struct file_sum *sum,
                               struct err *err)
{
    struct backend *be = state->list->backend;
    struct param *params = stage_params(stage);
    int n = stage_num_params(stage), count = 0;
    struct tensor_out *tensors = calloc((size_t)n * 4, sizeof *tensors);
    char(*names)[NAME_MAX_BYTES] = calloc((size_t)n * 4, sizeof *names);
    enum status rc;
    if (n > 0 && (!tensors || !names)) {
        rc = err_nomem(err);
        goto out;
    }
    for (int i = 0; i < n; i++) {
        const void *sources[4] = {params[i].weight, params[i].state[0], params[i].state[1],
                                  state->lagged ? stage_lagged(stage, &params[i]) : NULL};
        if (params[i].tied_copy)
            continue;
        for (int j = 0; j < 4; j++) {
            if (!sources[j])
                continue;
            if (j == 0)
                snprintf(names[count], sizeof *names, "%s", params[i].name);
            else if (j == 3)
                snprintf(names[count], sizeof *names, "lagged.%s", params[i].name);
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
    rc = safetensors_write(path, &(struct tensor_source){tensors, count, fetch_backend, be}, sum,
                           err);
out:
    free(tensors);
    free(names);
    return rc;
}

/* A file that a rank has written: what rank 0 needs to know for the manifest. */
struct written {
    int64_t stage;
    struct file_sum sum;
};

static void add_description(struct json *root, const char *key, struct json *object)
{
    if (object)
        json_add_copy(root, key, object);
    json_free(object);
}

static void add_model(struct json *root, const struct model *model, const struct hf_data *data)
{
    struct json *object = json_add_object(root, "model");
    json_add_string(object, "name", model->name);
    json_add_string(object, "family", model_family_name(model->family));
    json_add_int(object, "layers", model->num_layers);
    json_add_int(object, "hidden", model->hidden);
    json_add_int(object, "heads", model->heads);
    json_add_int(object, "mlp", model->mlp);
    json_add_int(object, "params", model_total_params(model));
    add_description(root, "config", hf_config(model, data));
    add_description(root, "preprocessor", hf_preprocessor(model, data));
    add_description(root, "tokenizer", hf_tokenizer(model, data));
}

static void add_history(struct json *root, const struct run_history *history)
{
    struct json *object = json_add_object(root, "history");
    json_add_double(object, "first_loss", history->first_loss);
    json_add_double(object, "first_accuracy", history->first_accuracy);
    json_add_int(object, "train_ns", history->train_ns);
}

static void add_norms(struct json *root, const struct turn_norms *norms, int num_layers)
{
    struct json *object, *list;
    if (norms->num_turns > 0)
        norms_to_json(json_add_array(root, "norms"), norms->rows, norms->num_turns, num_layers);
    if (norms->steps <= 0)
        return;
    object = json_add_object(root, "turn");
    json_add_int(object, "steps", norms->steps);
    list = json_add_array(object, "sumsq");
    for (int l = 0; l < num_layers; l++)
        json_add_double(list, NULL, norms->sumsq[l]);
}

static enum status write_manifest(const char *dir, const struct checkpoint_state *state,
                                  int num_ranks, const struct written *files, int num_files,
                                  struct err *err)
{
    const struct job *job = state->job;
    const struct progress *progress = state->progress;
    struct json *root = json_object_new(), *list;
    json_add_string(root, "format", "elapse-checkpoint");
    json_add_int(root, "schema", CHECKPOINT_SCHEMA);
    json_add_string(root, "run", state->run_id);
    json_add_int(root, "ranks", num_ranks);
    json_add_int(root, "step", progress->step);
    json_add_int(root, "epoch", progress->epoch);
    json_add_int(root, "position", progress->position);
    json_add_int(root, "frozen_layers", progress->num_frozen_layers);
    if (isfinite(state->eval_loss))
        json_add_double(root, "eval_loss", state->eval_loss);
    add_history(root, &state->history);
    add_norms(root, state->norms, job->model.num_layers);
    if (state->evidence) {
        evidence_to_json(json_add_object(root, "evidence"), &job->model, state->evidence);
        json_add_double(root, "rate", state->rate);
        json_add_double(root, "window_steps", state->steps);
    }
    json_add_string(root, "optimizer", job_optimizer_name(job));
    json_add_int(root, "seed", (int64_t)job->train.seed);
    add_model(root, &job->model, &state->data);
    json_add_parsed(root, "job", job->json);
    list = json_add_array(root, "files");
    for (int i = 0; i < num_files; i++) {
        struct json *entry = json_add_object(list, NULL);
        char name[32], hex[SHA256_HEX];
        snprintf(name, sizeof name, "stage-%05d.safetensors", (int)files[i].stage);
        sha256_hex(files[i].sum.sha256, hex);
        json_add_string(entry, "name", name);
        json_add_int(entry, "bytes", files[i].sum.bytes);
        json_add_string(entry, "sha256", hex);
    }
    enum status rc = checkpoint_manifest_write(dir, root, err);
    json_free(root);
    return rc;
}

/* Write the files of this rank's stages, and list them. */
static enum status write_stages(const char *temp, const struct checkpoint_state *state,
                                struct written *files, int *num_files, struct err *err)
{
    const struct stage_list *list = state->list;
    enum status rc = OK;
    for (int s = 0; rc == OK && s < list->num_stages; s++) {
        char *path = NULL;
        if (!list->stages[s])
            continue;
        if (asprintf(&path, "%s/stage-%05d.safetensors", temp, s) < 0)
            return err_nomem(err);
        files[*num_files].stage = s;
        rc = write_stage(path, list->stages[s], state, &files[*num_files].sum, err);
        (*num_files)++;
        free(path);
    }
    return rc;
}

/* Write what rank 0 keeps of frozen items as one more file. */
static enum status write_kept(const char *temp, const struct checkpoint_state *state,
                              struct written *files, int *num_files, struct err *err)
{
    char *path = NULL;
    if (!state->kept || !kept_any(state->kept))
        return OK;
    if (asprintf(&path, "%s/stage-%05d.safetensors", temp, state->list->num_stages) < 0)
        return err_nomem(err);
    files[*num_files].stage = state->list->num_stages;
    enum status rc = kept_write(path, state->kept, state->job, &files[(*num_files)++].sum, err);
    free(path);
    return rc;
}

/* Make the temporary folder DIR.tmp, or DIR.tmp-2 and so on where a name is taken. What this run
 * left under such a name when it was killed is removed; what others have put there stays. */
static enum status make_temp(const char *dir, const char *run_id, char temp[PATH_MAX],
                             struct err *err)
{
    for (int n = 1;; n++) {
        struct err why = {0};
        char suffix[16] = "";
        if (n > 1)
            snprintf(suffix, sizeof suffix, "-%d", n);
        if (snprintf(temp, PATH_MAX, "%s.tmp%s", dir, suffix) >= PATH_MAX)
            return err_set(err, ERR_SYSTEM, "path '%.200s' is too long", dir);
        if (!owned_folder_remove(temp, run_id) && n < TEMP_NAMES)
            continue;
        if (owned_folder_make(temp, run_id, &why) == OK)
            return OK;
        if (access(temp, F_OK) != 0 || n >= TEMP_NAMES)
            return err_copy(err, &why);
    }
}

/* Give the folder temp the name dir. An older checkpoint of this run there changes places with it
 * and is removed; on a file system that cannot exchange names it is removed first. */
static enum status put_in_place(const char *temp, const char *dir, const char *run_id,
                                struct err *err)
{
    if (renameat2(AT_FDCWD, temp, AT_FDCWD, dir, RENAME_NOREPLACE) == 0)
        return OK;
    if (errno == EEXIST && !owned_folder_is(dir, run_id))
        return err_set(err, ERR_SYSTEM, "cannot write '%s': it is there and not of this run", dir);
    if (errno == EEXIST && renameat2(AT_FDCWD, temp, AT_FDCWD, dir, RENAME_EXCHANGE) == 0) {
        (void)owned_folder_remove(temp, run_id);
        return OK;
    }
    if ((errno == EINVAL || errno == ENOSYS) && access(dir, F_OK) == 0 &&
        !owned_folder_remove(dir, run_id))
        return err_set(err, ERR_SYSTEM, "cannot write '%s': it is there and not of this run", dir);
    if (rename(temp, dir) != 0)
        return err_set(err, ERR_SYSTEM, "cannot rename '%s' to '%s': %s", temp, dir,
                       strerror(errno));
    return OK;
}

enum status checkpoint_save(const struct comm *comm, const char *dir,
                            const struct checkpoint_state *state, struct err *err)
{
    struct err own = {0};
    char temp[PATH_MAX] = "";
    int num_files = 0;
    int64_t *sizes = NULL;
    void *all = NULL;
    struct written *files = calloc((size_t)state->list->num_stages + 2, sizeof *files);
    enum status rc = files ? OK : err_nomem(&own);
    if (rc == OK && comm->rank == 0)
        rc = make_temp(dir, state->run_id, temp, &own);
    const bool made = rc == OK && comm->rank == 0;
    rc = comm_agree(comm, rc, &own);
    if (rc == OK)
        rc = comm_bcast(comm->all, temp, sizeof temp, 0, &own);
    if (rc == OK && state->write)
        rc = write_stages(temp, state, files, &num_files, &own);
    if (rc == OK && comm->rank == 0)
        rc = write_kept(temp, state, files, &num_files, &own);
    rc = comm_agree(comm, rc, &own);
    if (rc == OK)
        rc = comm_gather(comm->all, files, num_files * (int64_t)sizeof *files, &all, &sizes, &own);
    if (comm->rank == 0) {
        int64_t total = 0;
        for (int r = 0; rc == OK && r < comm->size; r++)
            total += sizes[r];
        if (rc == OK)
            rc = write_manifest(temp, state, comm->size, all, (int)(total / (int64_t)sizeof *files),
                                &own);
        if (rc == OK) /* writing the manifest has synced the folder's names */
            rc = put_in_place(temp, dir, state->run_id, &own);
        if (rc == OK)
            file_sync_name(dir);
        else if (made)
            (void)owned_folder_remove(temp, state->run_id);
    }
    free(files);
    free(sizes);
    free(all);
    rc = comm_agree(comm, rc, &own);
    return rc == OK ? OK : err_copy(err, &own);
}

/* --- keeping a few ---------------------------------------------------------------------------- */

/* The evaluation's loss in a checkpoint of this run; NaN: none, or not of this run. */
static double loss_of(const char *run_dir, int64_t step, const char *run_id)
{
    char path[PATH_MAX];
    struct json *manifest = NULL;
    double loss = NAN;
    snprintf(path, sizeof path, "%s/checkpoint-%lld", run_dir, (long long)step);
    if (owned_folder_is(path, run_id) && checkpoint_manifest(path, &manifest, NULL) == OK &&
        json_get(manifest, "eval_loss"))
        loss = json_number(json_get(manifest, "eval_loss"));
    json_free(manifest);
    return loss;
}

double checkpoint_best_loss(const char *run_dir, const char *run_id)
{
    int64_t *steps = NULL;
    int n = 0;
    double best = NAN;
    (void)checkpoint_steps(run_dir, &steps, &n, NULL);
    for (int i = 0; i < n; i++) {
        const double loss = loss_of(run_dir, steps[i], run_id);
        if (isnan(best) || loss < best)
            best = loss;
    }
    free(steps);
    return best;
}

void checkpoint_prune(const char *run_dir, const char *run_id, int64_t keep)
{
    int64_t *steps = NULL;
    int n = 0, seen = 0;
    const double best = checkpoint_best_loss(run_dir, run_id);
    if (keep <= 0 || checkpoint_steps(run_dir, &steps, &n, NULL) != OK)
        return;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX], temp[PATH_MAX + 8];
        snprintf(path, sizeof path, "%s/checkpoint-%lld", run_dir, (long long)steps[i]);
        if (!owned_folder_is(path, run_id) || seen++ < keep ||
            loss_of(run_dir, steps[i], run_id) == best)
            continue;
        /* Killed from here on, the run leaves a folder that no reader takes for a checkpoint. */
        snprintf(temp, sizeof temp, "%s.tmp", path);
        if (owned_folder_remove(temp, run_id) && rename(path, temp) == 0)
            (void)owned_folder_remove(temp, run_id);
    }
    free(steps);
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
    const char *want = job_optimizer_name(job);
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

enum status checkpoint_history(const char *dir, struct run_history *history, struct err *err)
{
    struct json *manifest = NULL;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    *history = (struct run_history){.first_loss = NAN, .first_accuracy = NAN};
    if (rc == OK && json_get(manifest, "history")) {
        history->first_loss = json_number(json_path(manifest, "history.first_loss"));
        history->first_accuracy = json_number(json_path(manifest, "history.first_accuracy"));
        rc = manifest_int(manifest, dir, "history.train_ns", INT64_MAX, &history->train_ns, err);
    }
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

enum status checkpoint_evidence(const char *dir, const struct model *model,
                                struct freeze_history *history, double *rate, double *steps,
                                struct err *err)
{
    struct json *manifest = NULL;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    const struct json *evidence = rc == OK ? json_get(manifest, "evidence") : NULL;
    const struct json *sum = rc == OK ? json_get(manifest, "rate") : NULL;
    const struct json *count = rc == OK ? json_get(manifest, "window_steps") : NULL;
    *rate = sum ? json_number(sum) : 0;
    *steps = count ? json_number(count) : 0;
    if (evidence)
        rc = evidence_from_json(evidence, dir, model, history, err);
    if (rc == OK && !(*rate >= 0 && isfinite(*rate) && *steps >= 0 && isfinite(*steps)))
        rc = err_set(err, ERR_INPUT,
                     "'%s/manifest.json': rate and window_steps must be numbers at least 0", dir);
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

/* Load the lagged weights of a param, if there are any. */
static enum status load_lagged(struct safetensors **files, int num_files, const char *where,
                               struct stage *stage, const struct param *param,
                               const struct stage_list *list, struct err *err)
{
    float *lagged = stage_lagged(stage, param);
    char name[NAME_MAX_BYTES];
    struct tensor_info info;
    bool found = false;
    snprintf(name, sizeof name, "lagged.%s", param->name);
    for (int f = 0; lagged && !found && f < num_files; f++)
        found = safetensors_find(files[f], name, &info);
    return found ? load_tensor(files, num_files, where, name, param, lagged, list->backend, err)
                 : OK;
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
        if (params && state)
            stage_lag_take(list->stages[s]); /* where the checkpoint has none */
        for (int i = 0; rc == OK && params && state && i < stage_num_params(list->stages[s]); i++)
            rc = load_lagged(files, num_files, where, list->stages[s], &params[i], list, err);
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
    int64_t *steps = NULL;
    int n = 0;
    char *manifest = NULL;
    enum status rc = OK;
    if (asprintf(&manifest, "%s/manifest.json", dir) < 0)
        return err_nomem(err);
    if (access(manifest, F_OK) == 0) {
        *path = strdup(dir);
        rc = *path ? OK : err_nomem(err);
        goto out;
    }
    rc = checkpoint_steps(dir, &steps, &n, err);
    if (rc == OK && n == 0)
        rc = err_set(err, ERR_SYSTEM, "no checkpoint in '%s'", dir);
    else if (rc == OK && asprintf(path, "%s/checkpoint-%lld", dir, (long long)steps[0]) < 0)
        rc = err_nomem(err);
out:
    free(steps);
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
