/* profiles/job/model_config.h - models from config.json of Hugging Face's transformers. */
#pragma once

#include "partition/model/model.h"
#include "profiles/json/json.h"

/* Build the model of an object with "model_type". file is for errors; elem_bytes is of an activation,
 * 0: the default. model->note names keys that are unknown or not modelled. ERR_INPUT: a type, an
 * activation or a head that we do not have, a dim that is no number, a key that asks for other
 * parameters or another computation than ours. */
enum status model_from_config(const struct json *object, const char *file, int elem_bytes,
                              struct model *model, struct err *err);

/* Check that weights described by such an object compute in `model` what they were made for: its
 * activation, kind of attention and positions, and the epsilon of its norms, which is eps in the
 * model. Dims are not compared, because the tensors' shapes show them. ERR_INPUT names the key.
 * Another family, or a type that we do not have, passes. */
enum status model_config_check(const struct json *object, const char *file,
                               const struct model *model, double eps, struct err *err);
