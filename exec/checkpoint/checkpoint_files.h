/* exec/checkpoint/checkpoint_files.h - the files of a checkpoint's folder: the manifest and the files
 * that it lists; private to exec/checkpoint/.
 *
 * The manifest is one line of JSON. Its last member, "sha256", is the digest of the line without
 * that member (and with the newline), so `sed 's/,"sha256":"[0-9a-f]*"}$/}/' manifest.json |
 * sha256sum` prints it. Each entry of "files" holds name, bytes and sha256 of a file. Schema 1, of
 * older versions, has names only. */
#pragma once

#include "exec/weights/safetensors.h"
#include "profiles/json/json.h"

enum { CHECKPOINT_SCHEMA = 2, CHECKPOINT_SCHEMA_BARE = 1 /* without digests */ };

/* Write manifest.json with its digest; *root gets no new member. */
enum status checkpoint_manifest_write(const char *dir, const struct json *root, struct err *err);

/* Read and check manifest.json: its digest, format and schema, that its list holds file names with
 * sizes and digests, and that the step is the number in the folder's name "checkpoint-STEP". The
 * caller frees it. ERR_SYSTEM, ERR_INPUT. */
enum status checkpoint_manifest(const char *dir, struct json **manifest, struct err *err);

/* Whether a manifest that checkpoint_manifest() has read holds digests. */
bool checkpoint_has_sums(const struct json *manifest);
const char *checkpoint_file_name(const struct json *manifest, int index);
/* Length and digest of a file as the manifest states them. */
void checkpoint_file_sum(const struct json *manifest, int index, struct file_sum *sum);

/* Open the safetensors files that the manifest lists. Their digests are not computed here: see
 * checkpoint_check(). */
enum status checkpoint_files_open(const char *dir, struct safetensors ***files, int *num_files,
                                  struct err *err);
void checkpoint_files_close(struct safetensors **files, int num_files); /* NULL is fine */
