/* exec/weights/hf_names.h - weights of Hugging Face models.
 *
 * Our tensors have the names and shapes of transformers' modules with their heads
 * (exec/stage/arch.h), so an export is a plain safetensors file and a config.json. Files from other
 * tools vary: the prefix of the base model ("bert.", "vit.", "transformer.") may be missing, norms
 * may be called gamma and beta, a tied tensor may have the name of either module, GPT-2's linears
 * may be [out, in], and the head may be another one. Tensors that the model lacks are not read. */
#pragma once

#include "exec/weights/hf_classes.h"
#include "exec/weights/weights_files.h"
#include "exec/stage/stage.h"
#include "profiles/json/json.h"

/* The number of the model's tensors that a file has, equal on every rank. */
struct hf_import {
    int num_loaded, num_fresh; /* tensors of the model; fresh ones keep their initial values */
    char note[200];            /* one line about fresh tensors; empty if there are none */
    char classes[240];         /* one line about the names of classes; may be empty */
};

/* Check weights against the whole model. fresh_head: the head (and BERT's pooler) may be missing or
 * have another number of classes; every other tensor must be there with its shape. ERR_INPUT names
 * file, tensor and both shapes. It also refuses a file with more layers than the model, and one
 * whose output table differs from its token table. path is for errors; import may be NULL. */
enum status hf_check(const struct weights *weights, const char *path, const struct model *model,
                     bool fresh_head, struct hf_import *import, struct err *err);

/* Check what weights_open() finds at path, then fill the stages of this rank. The outputs of a head of
 * classes go to the data's classes of the same names (hf_classes.h); classes NULL: as they are. Not
 * collective. */
enum status hf_load(const char *path, const struct model *model, const struct class_names *classes,
                    const struct stage_list *list, bool fresh_head, struct hf_import *import,
                    struct err *err);
