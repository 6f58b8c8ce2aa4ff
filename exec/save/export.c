#include "exec/save/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/save/checkpoint_files.h"
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

/* Write the manifest's config as config.json into the folder of the weights, where other tools look
 * for it. An existing file that says something else is not replaced. Weights that go into a device
 * or pipe get none. *made: the name of a file that did not exist before; free() it. */
static enum status export_config(const char *dir, const char *weights, char **made, struct err *err)
{
    const char *slash = strrchr(weights, '/');
    struct json *manifest = NULL, *there = NULL;
    char *path = NULL, *want = NULL, *got = NULL;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    const struct json *config = rc == OK ? json_get(manifest, "config") : NULL;
    if (!config || file_is_stream(weights))
        goto out;
    if (strcmp(slash ? slash + 1 : weights, "config.json") == 0) {
        rc = err_set(err, ERR_INPUT, "'%s' is where the weights are described", weights);
        err_hint(err, "give the weights another name");
        goto out;
    }
    if (asprintf(&path, "%.*sconfig.json", slash ? (int)(slash + 1 - weights) : 0, weights) < 0) {
        path = NULL;
        rc = err_nomem(err);
        goto out;
    }
    rc = json_text(config, false, &want, err);
    if (rc == OK && access(path, F_OK) == 0) {
        if (json_read_file(path, &there, NULL) == OK)
            rc = json_text(there, false, &got, err);
        if (rc == OK && (!got || strcmp(got, want) != 0)) {
            rc = err_set(err, ERR_INPUT, "'%s' is there and describes something else", path);
            err_hint(err, "export into a folder of its own");
        }
        goto out;
    }
    if (rc == OK)
        rc = json_write_file(config, path, err);
    if (rc == OK) {
        *made = path;
        path = NULL;
    }
out:
    json_free(manifest);
    json_free(there);
    free(path);
    free(want);
    free(got);
    return rc;
}

enum status checkpoint_export(const char *dir, const char *path, int *tensors, struct err *err)
{
    struct safetensors **files = NULL;
    int num_files = 0, most = 0, count = 0;
    struct export_source *sources = NULL;
    struct tensor_out *outs = NULL;
    char *config = NULL;
    enum status rc = export_config(dir, path, &config, err);
    if (rc == OK)
        rc = checkpoint_files_open(dir, &files, &num_files, err);
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
    if (rc != OK && config)
        unlink(config);
    free(config);
    free(sources);
    free(outs);
    checkpoint_files_close(files, num_files);
    return rc;
}
