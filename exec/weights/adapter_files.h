/* exec/weights/adapter_files.h - adapters as the package peft keeps them: a folder with adapter_config.json and
 * adapter_model.safetensors. */
#pragma once

#include "exec/stage/stage.h"
#include "exec/weights/hf_classes.h"
#include "partition/model/lora.h"

enum { ADAPTER_NAME_BYTES = 160 };

/* The name that peft gives our tensor, which trains beside a frozen base. later: the modules have the names
 * of transformers 5 (ViT's differ). */
void adapter_file_name(const char *ours, bool later, char name[ADAPTER_NAME_BYTES]);

/* ERR_INPUT: the path is a folder of adapters, which are no weights of a model. */
enum status adapter_files_refuse(const char *path, struct err *err);

/* What a folder's adapter_config.json asks for. ERR_INPUT names what adapters here do not have: another
 * peft_type, a pattern of targets, ranks that differ, biases, DoRA, other modules that train beside them. */
enum status adapter_files_ask(const char *dir, struct lora_ask *ask, struct err *err);

/* Check that the folder holds all adapters of the model, of its shapes, and no others, and load those of the
 * stages in the list. The head loads with them if it trains beside them; its outputs are in the order of
 * the weights `base`, and go to the data's classes of the same names (hf_classes.h). classes NULL: as they
 * are. ERR_INPUT names the tensor. */
enum status adapter_files_load(const char *dir, const char *base, const struct class_names *classes,
                               const struct model *model, const struct stage_list *list,
                               struct err *err);
