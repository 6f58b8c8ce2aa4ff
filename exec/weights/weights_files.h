/* exec/weights/weights_files.h - the weights of a model as people have them: a safetensors file, the
 * shards of one with their index, or a folder with either.
 *
 * All files together are one set of names. Names are looked up without the parts that wrappers of
 * modules leave in them: "module._orig_mod.bert.pooler.dense.weight" is found as
 * "bert.pooler.dense.weight". */
#pragma once

#include "exec/weights/safetensors.h"

struct weights; /* opaque: open files */

/* The place of a tensor. */
struct weights_tensor {
    const struct safetensors *file; /* borrowed, as the name */
    const char *name;               /* in the file, with the parts of wrappers */
    struct tensor_info info;
};

/* Whether a path is for weights_open(): every path that is no folder, and a folder with weights of
 * other tools in place of a checkpoint. */
bool weights_are_at(const char *path);

/* Open what path names: a safetensors file; an index (*.index.json) with its shards; one shard, which
 * stands for all; a folder that holds one of these. ERR_SYSTEM: a file is missing or cannot be read.
 * ERR_INPUT: malformed, a file of another format, a name that two shards have or an index promises
 * in vain, a folder without safetensors or with several models. Time O(n log n) in the tensors. */
enum status weights_open(const char *path, struct weights **weights, struct err *err);
void weights_close(struct weights *weights); /* NULL is fine */

/* false: there is none of that name. */
bool weights_find(const struct weights *weights, const char *name, struct weights_tensor *tensor);
typedef bool name_filter(const void *ctx, const char *name);
/* The name, without the parts of wrappers, that a user may have meant: one that ends in `name`, else
 * the nearest of its layer for which is_used() is false; NULL: none is near. */
const char *weights_nearest(const struct weights *weights, const char *name, name_filter *is_used,
                            const void *ctx);
/* Folder of the files, for what lies beside them; "." for a bare file name. */
const char *weights_folder(const struct weights *weights);
