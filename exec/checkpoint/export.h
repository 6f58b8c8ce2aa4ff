/* exec/checkpoint/export.h - a checkpoint as a model of Hugging Face's. */
#pragma once

#include "partition/base/status.h"
#include "profiles/json/json.h"

struct export_answer {
    int num_tensors;
    struct json *files; /* owned; array of the paths that were written, the weights first */
    char note[512];     /* "", or why there is no tokenizer */
};

/* What becomes of adapters: files of their own as the package peft has them (adapter_config.json and
 * adapter_model.safetensors in a folder), or parts of the weights beside which they were trained. */
enum export_form { EXPORT_AS_TRAINED, EXPORT_MERGED };

/* Write all weights of a checkpoint under Hugging Face's names. path is a safetensors file, beside
 * which config.json is written (U-ViT has none), or a folder, which from_pretrained() of
 * transformers can read: model.safetensors, config.json, and as the run's data say
 * preprocessor_config.json or the tokenizer's files. What the folder has under these names is
 * replaced. Adapters are written alone, with the tokenizer's files but without config.json, unless
 * they are merged. A path is a folder if it is one, or if nothing is there and its name has no dot.
 * A device or pipe gets the weights only. Release *answer with export_answer_clear() also on
 * failure. ERR_INPUT: a damaged checkpoint, a config.json beside the file that describes another
 * model, adapters for a file, or nothing to merge. */
enum status checkpoint_export(const char *dir, const char *path, enum export_form form,
                              struct export_answer *answer, struct err *err);
void export_answer_clear(struct export_answer *answer);
