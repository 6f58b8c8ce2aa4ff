/* exec/save/hf_names.h - weights of Hugging Face models, in and out.
 *
 * Our tensors carry the names and shapes of transformers' modules with their heads
 * (exec/stage/arch.h), so that an export is a plain safetensors file and a config.json. Files from
 * elsewhere vary: the name of the base model ("bert.", "vit.", "transformer.") may be absent, norms
 * may be called gamma and beta, GPT-2's linears may lie as [out, in], the head may be another one.
 */
#ifndef ELAPSE_EXEC_SAVE_HF_NAMES_H
#define ELAPSE_EXEC_SAVE_HF_NAMES_H

#include "exec/save/safetensors.h"
#include "exec/stage/stage.h"
#include "profiles/json.h"

/* What a file has for a model: the same answer on every rank. */
struct hf_import {
    int num_loaded, num_fresh; /* tensors of the model; fresh ones keep their initial values */
    char note[200];            /* one line about the fresh ones, or empty */
};

/* Check a file against the whole model. fresh_head: the head (and BERT's pooler) may be absent, or
 * have another number of classes; everything else must be there with its shape. ERR_INPUT names
 * file, tensor and both shapes; a file with more layers than the model is refused, and one whose
 * output table is not tied to its token table. *import may be NULL. */
enum status hf_check(const struct safetensors *file, const char *path, const struct model *model,
                     bool fresh_head, struct hf_import *import, struct err *err);

/* Check, then fill the stages of this rank. Not collective. */
enum status hf_load_file(const char *path, const struct model *model, const struct stage_list *list,
                         bool fresh_head, struct hf_import *import, struct err *err);

/* config.json of a model as transformers writes it; NULL for models that it does not know (uniform,
 * explicit, U-ViT). Fresh. */
struct json *hf_config(const struct model *model);

#endif
