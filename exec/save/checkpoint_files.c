#include "exec/save/checkpoint_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status checkpoint_manifest(const char *dir, struct json **manifest, struct err *err)
{
    char *path = NULL;
    struct json *root = NULL, *value;
    int64_t schema;
    enum status rc;
    if (asprintf(&path, "%s/manifest.json", dir) < 0)
        return err_nomem(err);
    rc = json_read_file(path, &root, err);
    if (rc != OK)
        goto out;
    value = json_get(root, "format");
    if (!value || !json_string(value) || strcmp(json_string(value), "elapse-checkpoint") != 0) {
        rc = err_set(err, ERR_INPUT, "'%s' is not the manifest of a checkpoint", path);
        goto out;
    }
    value = json_get(root, "schema");
    if (!value || !json_int64(value, &schema) || schema != CHECKPOINT_SCHEMA) {
        rc = err_set(err, ERR_INPUT, "'%s': schema must be %d", path, CHECKPOINT_SCHEMA);
        goto out;
    }
    value = json_get(root, "files");
    if (!value || json_type(value) != JSON_ARRAY || json_count(value) < 1) {
        rc = err_set(err, ERR_INPUT, "'%s': files is missing", path);
        goto out;
    }
    for (int i = 0; i < json_count(value); i++) {
        const char *name = json_string(json_at(value, i));
        if (!name || strchr(name, '/')) {
            rc = err_set(err, ERR_INPUT, "'%s': files.%d is not a file name", path, i);
            goto out;
        }
    }
    *manifest = root;
    root = NULL;
out:
    json_free(root);
    free(path);
    return rc;
}

void checkpoint_files_close(struct safetensors **files, int num_files)
{
    for (int i = 0; files && i < num_files; i++)
        safetensors_close(files[i]);
    free(files);
}

enum status checkpoint_files_open(const char *dir, struct safetensors ***files, int *num_files,
                                  struct err *err)
{
    struct json *manifest = NULL;
    struct safetensors **got = NULL;
    int n = 0;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    if (rc != OK)
        return rc;
    n = json_count(json_get(manifest, "files"));
    got = calloc((size_t)n, sizeof *got);
    if (!got)
        rc = err_nomem(err);
    for (int i = 0; rc == OK && i < n; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s", dir, json_string(json_at(json_get(manifest, "files"), i))) <
            0) {
            rc = err_nomem(err);
            break;
        }
        rc = safetensors_open(path, &got[i], err);
        free(path);
    }
    json_free(manifest);
    if (rc == OK) {
        *files = got;
        *num_files = n;
    } else {
        checkpoint_files_close(got, n);
    }
    return rc;
}
