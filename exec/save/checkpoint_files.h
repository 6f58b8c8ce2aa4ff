/* exec/save/checkpoint_files.h - the files of a checkpoint's folder: the manifest and what it
 * lists; private to exec/save/. */
#ifndef ELAPSE_EXEC_SAVE_CHECKPOINT_FILES_H
#define ELAPSE_EXEC_SAVE_CHECKPOINT_FILES_H

#include "exec/save/safetensors.h"
#include "profiles/json.h"

enum { CHECKPOINT_SCHEMA = 1 };

/* Read and check manifest.json: its format, its schema and that its list holds file names. The
 * caller frees it. ERR_SYSTEM, ERR_INPUT. */
enum status checkpoint_manifest(const char *dir, struct json **manifest, struct err *err);

/* Open the safetensors files that the manifest lists. */
enum status checkpoint_files_open(const char *dir, struct safetensors ***files, int *num_files,
                                  struct err *err);
void checkpoint_files_close(struct safetensors **files, int num_files); /* NULL is fine */

#endif
