/* exec/save/export.h - a checkpoint as a model of Hugging Face's. */
#ifndef ELAPSE_EXEC_SAVE_EXPORT_H
#define ELAPSE_EXEC_SAVE_EXPORT_H

#include "partition/base/status.h"

/* Write all weights of a checkpoint into one safetensors file, under Hugging Face's names, and its
 * config.json into the same folder (U-ViT has none). *tensors gets the number of tensors. */
enum status checkpoint_export(const char *dir, const char *path, int *tensors, struct err *err);

#endif
