#include "exec/save/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/save/checkpoint_files.h"
#include "exec/data/tokenizer.h"
#include "profiles/json/fields.h"
#include "profiles/base/whole_file.h"

struct export_source {
    const struct safetensors *file;
    const char *name;
    struct tensor_info info;
};

static enum status fetch_export(void *ctx, const void *source, int64_t num_elems, float *values,
                                struct err *err)
{
    const struct export_source *from = source;
    (void)ctx;
    (void)num_elems;
    return safetensors_read(from->file, from->name, &from->info, values, err);
}

/* --- what lies beside the weights ------------------------------------------------------------- */

static void add_written(struct export_answer *answer, const char *path)
{
    json_add_string(answer->files, NULL, path);
}

/* Write an object of the manifest as a file of the folder; none: nothing to write. */
static enum status write_object(const struct json *manifest, const char *key, const char *dir,
                                const char *name, struct export_answer *answer, struct err *err)
{
    const struct json *object = json_get(manifest, key);
    char *path = NULL;
    if (!object)
        return OK;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return err_nomem(err);
    enum status rc = json_write_file(object, path, err);
    if (rc == OK)
        add_written(answer, path);
    free(path);
    return rc;
}

/* Copy a file of the tokenizer into the folder. One that is gone is named in the note, because the
 * weights are worth having without it. */
static enum status copy_file(const char *from, const char *dir, const char *name,
                             struct export_answer *answer, struct err *err)
{
    char *bytes = NULL, *path = NULL;
    size_t length = 0;
    struct atomic_file file = {0};
    struct err why = {0};
    enum status rc = file_read(from, &bytes, &length, &why);
    if (rc != OK) {
        snprintf(answer->note, sizeof answer->note, "no tokenizer: %.400s", why.msg);
        return rc == ERR_NOMEM ? err_nomem(err) : OK;
    }
    if (asprintf(&path, "%s/%s", dir, name) < 0) {
        free(bytes);
        return err_nomem(err);
    }
    rc = atomic_open(&file, path, err);
    if (rc == OK) {
        fwrite(bytes, 1, length, file.out);
        rc = atomic_close(&file, OK, err);
    }
    if (rc == OK)
        add_written(answer, path);
    free(bytes);
    free(path);
    return rc;
}

/* The tokenizer's files, as the job that is in the manifest names them. */
static enum status write_tokenizer(const struct json *manifest, const char *dir,
                                   struct export_answer *answer, struct err *err)
{
    const char *vocab = json_string(json_path(manifest, "job.data.vocab"));
    const char *merges = json_string(json_path(manifest, "job.data.merges"));
    char *beside = NULL;
    if (!json_get(manifest, "tokenizer") || !vocab)
        return OK;
    const bool whole = tokenizer_named(vocab), byte_level = !whole && path_is_json(vocab);
    enum status rc = copy_file(vocab, dir,
                               whole        ? "tokenizer.json"
                               : byte_level ? "vocab.json"
                                            : "vocab.txt",
                               answer, err);
    if (rc == OK && byte_level) {
        const char *slash = strrchr(vocab, '/');
        if (!merges &&
            asprintf(&beside, "%.*smerges.txt", slash ? (int)(slash + 1 - vocab) : 0, vocab) < 0)
            return err_nomem(err);
        rc = copy_file(merges ? merges : beside, dir, "merges.txt", answer, err);
        free(beside);
    }
    if (rc == OK && !answer->note[0])
        rc = write_object(manifest, "tokenizer", dir, "tokenizer_config.json", answer, err);
    return rc;
}

/* Refuse a config.json beside a file of weights that says something else. In a folder of its own,
 * which the user has named, it is replaced. */
static enum status check_beside(const struct json *config, const char *dir, struct err *err)
{
    struct json *there = NULL;
    char *path = NULL, *want = NULL, *got = NULL;
    if (asprintf(&path, "%s/config.json", dir) < 0)
        return err_nomem(err);
    enum status rc = json_text(config, false, &want, err);
    if (rc == OK && access(path, F_OK) == 0) {
        if (json_read_file(path, &there, NULL) == OK)
            rc = json_text(there, false, &got, err);
        if (rc == OK && (!got || strcmp(got, want) != 0)) {
            rc = err_set(err, ERR_INPUT, "'%s' is there and describes something else", path);
            err_hint(err, "'-o DIR' replaces it, or export into a folder of its own");
        }
    }
    json_free(there);
    free(path);
    free(want);
    free(got);
    return rc;
}

/* --- the weights ------------------------------------------------------------------------------ */

static enum status write_weights(const char *dir, const char *path, int *tensors, struct err *err)
{
    struct safetensors **files = NULL;
    int num_files = 0, most = 0, count = 0;
    struct export_source *sources = NULL;
    struct tensor_out *outs = NULL;
    enum status rc = checkpoint_files_open(dir, &files, &num_files, err);
    if (rc != OK)
        goto out;
    for (int f = 0; f < num_files; f++)
        most += safetensors_count(files[f]);
    sources = calloc((size_t)most + 1, sizeof *sources);
    outs = calloc((size_t)most + 1, sizeof *outs);
    if (!sources || !outs) {
        rc = err_nomem(err);
        goto out;
    }
    for (int f = 0; f < num_files; f++)
        for (int i = 0; i < safetensors_count(files[f]); i++) {
            struct export_source *source = &sources[count];
            source->file = files[f];
            source->name = safetensors_name(files[f], i);
            if (strncmp(source->name, "optimizer.", 10) == 0 ||
                !safetensors_find(files[f], source->name, &source->info))
                continue;
            outs[count] = (struct tensor_out){.name = source->name,
                                              .ndim = source->info.ndim,
                                              .shape = source->info.shape,
                                              .num_elems = source->info.num_elems,
                                              .source = source};
            count++;
        }
    rc = safetensors_write(path, &(struct tensor_source){outs, count, fetch_export, NULL}, NULL,
                           err);
    if (rc == OK)
        *tensors = count;
out:
    free(sources);
    free(outs);
    checkpoint_files_close(files, num_files);
    return rc;
}

/* Whether a path is for a folder: one that is there, or a name without a suffix. */
static bool is_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    struct stat st;
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode);
    return !strchr(name, '.');
}

enum status checkpoint_export(const char *dir, const char *path, struct export_answer *answer,
                              struct err *err)
{
    const bool folder = is_folder(path), stream = !folder && file_is_stream(path);
    const char *slash = strrchr(path, '/');
    struct json *manifest = NULL;
    char *into = NULL, *weights = NULL;
    *answer = (struct export_answer){.files = json_array_new()};
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    if (rc != OK)
        goto out;
    if (folder) {
        into = strdup(path);
        if (!into || asprintf(&weights, "%s/model.safetensors", path) < 0)
            rc = err_nomem(err);
        if (rc == OK)
            rc = folders_make(path, true, err);
    } else {
        into = !slash ? strdup(".") : strndup(path, slash > path ? (size_t)(slash - path) : 1);
        weights = strdup(path);
        if (!into || !weights)
            rc = err_nomem(err);
        if (rc == OK && strcmp(slash ? slash + 1 : path, "config.json") == 0) {
            rc = err_set(err, ERR_INPUT, "'%s' is where the weights are described", path);
            err_hint(err, "give the weights another name");
        }
        if (rc == OK && !stream && json_get(manifest, "config"))
            rc = check_beside(json_get(manifest, "config"), into, err);
    }
    if (rc == OK && !stream)
        rc = output_check(weights, err);
    if (rc == OK)
        rc = write_weights(dir, weights, &answer->num_tensors, err);
    if (rc == OK)
        add_written(answer, weights);
    if (rc == OK && !stream)
        rc = write_object(manifest, "config", into, "config.json", answer, err);
    if (rc == OK && folder)
        rc = write_object(manifest, "preprocessor", into, "preprocessor_config.json", answer, err);
    if (rc == OK && folder)
        rc = write_tokenizer(manifest, into, answer, err);
    if (rc == OK)
        rc = json_check(answer->files, err);
out:
    json_free(manifest);
    free(into);
    free(weights);
    return rc;
}

void export_answer_clear(struct export_answer *answer)
{
    json_free(answer->files);
    *answer = (struct export_answer){0};
}
