/* exec/checkpoint/checkpoint.c - finds checkpoints, removes old ones and reads them. Each tensor is looked
 * up by name in all files, so the cut may differ. They are written by checkpoint_save.c. */
#include "exec/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/checkpoint/checkpoint_files.h"
#include "exec/checkpoint/owned_folder.h"
#include "exec/weights/safetensors.h"
#include "partition/base/safe_text.h"
#include "profiles/job/evidence_json.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json.h"
#include "profiles/base/whole_file.h"

enum { NAME_MAX_BYTES = 128, TEMP_NAMES = 100 };

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
        rc = err_set(err, ERR_INPUT, "'%s' belongs to a run with optimizer %s, the job has %s", dir,
                     optimizer ? optimizer : "?", want);
    else if (rc == OK && seed != want_seed)
        rc = err_set(err, ERR_INPUT, "'%s' belongs to a run with train.seed %lld, the job has %lld",
                     dir, (long long)seed, (long long)want_seed);
    else
        return rc;
    err_hint(err, "--init takes its weights alone");
    return rc;
}

enum status checkpoint_peek(const char *dir, const struct job *job, bool state,
                            struct progress *progress, struct err *err)
{
    struct json *manifest = NULL;
    struct progress got = {0};
    int64_t frozen = 0, value;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    if (rc != OK)
        return rc;
    rc = manifest_int(manifest, dir, "step", INT64_MAX, &got.step, err);
    THEN(manifest_int(manifest, dir, "epoch", JOB_EPOCHS_MAX, &got.epoch, err));
    THEN(manifest_int(manifest, dir, "position", INT64_MAX, &got.position, err));
    THEN(manifest_int(manifest, dir, "frozen_layers", job->model.num_layers, &frozen, err));
    got.num_frozen_layers = (int)frozen;
    const struct model *model = state ? model_at(&job->model, (int)frozen) : &job->model;
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
    for (size_t i = 0; rc == OK && i < sizeof dims / sizeof *dims; i++) {
        rc = manifest_int(manifest, dir, dims[i].key, INT64_MAX, &value, err);
        if (rc == OK && value != dims[i].want) {
            rc = err_set(err, ERR_INPUT, "'%s' holds another model: %s is %lld, the job has %lld",
                         dir, dims[i].key, (long long)value, (long long)dims[i].want);
            if (model->lora.rank > 0)
                err_hint(err, "a base without adapters: elapse export %s -o DIR, --init DIR",
                         SHELL_PATH(dir));
            else if (value - dims[i].want == model->items[model->num_items - 1].tied_params)
                err_hint(err,
                         "its head has a table of its own: elapse export %s -o DIR, --init DIR "
                         "--set model=DIR/config.json",
                         SHELL_PATH(dir));
        }
    }
    if (rc == OK && state)
        rc = check_state(manifest, dir, job, err);
    if (rc == OK)
        *progress = got;
    json_free(manifest);
    return rc;
}

enum status checkpoint_untie(const char *dir, struct model *model, struct err *err)
{
    struct json *manifest = NULL;
    int64_t frozen = 0;
    enum status rc = model->untied ? checkpoint_manifest(dir, &manifest, err) : OK;
    if (manifest)
        rc = manifest_int(manifest, dir, "frozen_layers", model->num_layers, &frozen, err);
    if (frozen > 0) {
        model_untie(model);
        model_drop_untied(model);
    }
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

enum status checkpoint_store(const char *dir, char **db, struct err *err)
{
    struct json *manifest = NULL;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    const char *const text = rc == OK ? json_string(json_get(manifest, "db")) : NULL;
    *db = text ? strdup(text) : NULL;
    if (text && !*db)
        rc = err_nomem(err);
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

/* The name under which a checkpoint has a param: a head's own table is still the shared one in a checkpoint
 * of the step behind which the prefix takes the embedding. */
static const char *name_in(struct safetensors **files, int num_files, const struct param *param)
{
    struct tensor_info info;
    bool found = !param->began_as;
    for (int f = 0; !found && f < num_files; f++)
        found = safetensors_find(files[f], param->name, &info);
    return found ? param->name : param->began_as;
}

static enum status load_stages(struct safetensors **files, int num_files, const char *where,
                               const struct stage_list *list, bool state, struct err *err)
{
    enum status rc = OK;
    for (int s = 0; rc == OK && s < list->num_stages; s++) {
        struct param *params = list->stages[s] ? stage_params(list->stages[s]) : NULL;
        for (int i = 0; rc == OK && params && i < stage_num_params(list->stages[s]); i++) {
            const char *const as = name_in(files, num_files, &params[i]);
            rc = load_tensor(files, num_files, where, as, &params[i], params[i].weight,
                             list->backend, err);
            for (int j = 0; rc == OK && state && j < STAGE_STATES; j++) {
                char name[NAME_MAX_BYTES];
                if (!params[i].state[j])
                    continue;
                snprintf(name, sizeof name, "optimizer.%d.%s", j, as);
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
