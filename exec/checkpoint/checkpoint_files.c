#include "exec/checkpoint/checkpoint_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

static const char tail_begin[] = ",\"sha256\":\"", tail_end[] = "\"}\n";
enum { TAIL_BYTES = sizeof tail_begin - 1 + SHA256_HEX - 1 + sizeof tail_end - 1 };

/* --- the manifest ----------------------------------------------------------------------------- */

/* The digest of the text with "}\n" in place of what begins at `tail`. */
static enum status digest_before(const char *text, size_t tail, char hex[SHA256_HEX],
                                 struct err *err)
{
    unsigned char digest[SHA256_BYTES];
    struct sha256 sha;
    sha256_begin(&sha);
    sha256_add(&sha, text, tail);
    sha256_add(&sha, "}\n", 2);
    enum status rc = sha256_end(&sha, digest, err);
    sha256_hex(digest, hex);
    return rc;
}

enum status checkpoint_manifest_write(const char *dir, const struct json *root, struct err *err)
{
    char *text = NULL, *path = NULL, hex[SHA256_HEX];
    struct atomic_file file;
    enum status rc = json_text(root, false, &text, err);
    const size_t tail = rc == OK ? strlen(text) - 1 : 0; /* of the closing brace */
    THEN(digest_before(text, tail, hex, err));
    if (rc == OK && asprintf(&path, "%s/manifest.json", dir) < 0) {
        path = NULL;
        rc = err_nomem(err);
    }
    THEN(atomic_open(&file, path, err));
    if (rc == OK) {
        fprintf(file.out, "%.*s%s%s%s", (int)tail, text, tail_begin, hex, tail_end);
        rc = atomic_close(&file, OK, err);
    }
    free(path);
    free(text);
    return rc;
}

/* Check the digest at the end of a manifest's text. *summed: there is one. */
static enum status check_text(const char *text, const char *path, bool *summed, struct err *err)
{
    const size_t length = strlen(text), tail = length - TAIL_BYTES;
    char hex[SHA256_HEX];
    *summed = length > TAIL_BYTES && strncmp(text + tail, tail_begin, sizeof tail_begin - 1) == 0 &&
              strcmp(text + length - (sizeof tail_end - 1), tail_end) == 0;
    if (!*summed)
        return OK;
    enum status rc = digest_before(text, tail, hex, err);
    if (rc == OK && strncmp(text + tail + sizeof tail_begin - 1, hex, SHA256_HEX - 1) != 0)
        rc = err_set(err, ERR_INPUT, "'%s' is damaged: its SHA-256 differs", path);
    return rc;
}

static bool read_sum(const struct json *entry, struct file_sum *sum)
{
    const char *hex = json_string(json_get(entry, "sha256"));
    if (!json_int64(json_get(entry, "bytes"), &sum->bytes) || sum->bytes < 0 || !hex ||
        strlen(hex) != SHA256_HEX - 1 || strspn(hex, "0123456789abcdef") != SHA256_HEX - 1)
        return false;
    for (int i = 0; i < SHA256_BYTES; i++) {
        unsigned byte;
        sscanf(hex + 2 * i, "%2x", &byte);
        sum->sha256[i] = (unsigned char)byte;
    }
    return true;
}

/* Check a manifest's members that all readers rely on. */
static enum status check_members(const struct json *root, const char *path, bool summed,
                                 struct err *err)
{
    const struct json *value = json_get(root, "format");
    int64_t schema;
    if (!value || !json_string(value) || strcmp(json_string(value), "elapse-checkpoint") != 0)
        return err_set(err, ERR_INPUT, "'%s' is not the manifest of a checkpoint", path);
    value = json_get(root, "schema");
    if (!value || !json_int64(value, &schema) ||
        (schema != CHECKPOINT_SCHEMA && schema != CHECKPOINT_SCHEMA_BARE))
        return err_set(err, ERR_INPUT, "'%s': schema must be %d or %d", path,
                       CHECKPOINT_SCHEMA_BARE, CHECKPOINT_SCHEMA);
    if (schema == CHECKPOINT_SCHEMA && !summed)
        return err_set(err, ERR_INPUT, "'%s' is damaged: it does not end with its SHA-256", path);
    value = json_get(root, "files");
    if (!value || json_type(value) != JSON_ARRAY || json_count(value) < 1)
        return err_set(err, ERR_INPUT, "'%s': files is missing", path);
    for (int i = 0; i < json_count(value); i++) {
        const struct json *entry = json_at(value, i);
        struct file_sum sum;
        const char *name =
            json_string(schema == CHECKPOINT_SCHEMA ? json_get(entry, "name") : entry);
        if (!name || strchr(name, '/'))
            return err_set(err, ERR_INPUT, "'%s': files.%d is not a file name", path, i);
        if (schema == CHECKPOINT_SCHEMA && !read_sum(entry, &sum))
            return err_set(err, ERR_INPUT, "'%s': files.%d has no size and SHA-256", path, i);
    }
    return OK;
}

/* A folder "checkpoint-STEP" must hold that step. */
static enum status check_step(const struct json *root, const char *dir, struct err *err)
{
    char *real = realpath(dir, NULL); /* without "." or a slash at the end */
    const char *slash = real ? strrchr(real, '/') : NULL;
    int64_t named, step;
    enum status rc = OK;
    if (slash && strncmp(slash, "/checkpoint-", 12) == 0 &&
        parse_int(slash + 12, "step", 0, INT64_MAX, &named, NULL) == OK &&
        (!json_int64(json_get(root, "step"), &step) || step != named))
        rc = err_set(err, ERR_INPUT, "'%s' holds another step than its name says", dir);
    free(real);
    return rc;
}

enum status checkpoint_manifest(const char *dir, struct json **manifest, struct err *err)
{
    char *path = NULL, *text = NULL;
    struct json *root = NULL;
    bool summed = false;
    enum status rc;
    if (asprintf(&path, "%s/manifest.json", dir) < 0)
        return err_nomem(err);
    rc = file_read_text(path, &text, err);
    THEN(check_text(text, path, &summed, err));
    THEN(json_parse(text, path, &root, err));
    THEN(check_members(root, path, summed, err));
    THEN(check_step(root, dir, err));
    if (rc == OK) {
        *manifest = root;
        root = NULL;
    }
    json_free(root);
    free(text);
    free(path);
    return rc;
}

bool checkpoint_has_sums(const struct json *manifest)
{
    int64_t schema = 0;
    return json_int64(json_get(manifest, "schema"), &schema) && schema == CHECKPOINT_SCHEMA;
}

const char *checkpoint_file_name(const struct json *manifest, int index)
{
    const struct json *entry = json_at(json_get(manifest, "files"), index);
    return json_string(checkpoint_has_sums(manifest) ? json_get(entry, "name") : entry);
}

void checkpoint_file_sum(const struct json *manifest, int index, struct file_sum *sum)
{
    *sum = (struct file_sum){0};
    (void)read_sum(json_at(json_get(manifest, "files"), index), sum);
}

/* --- the tensors ------------------------------------------------------------------------------ */

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
        if (asprintf(&path, "%s/%s", dir, checkpoint_file_name(manifest, i)) < 0) {
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
