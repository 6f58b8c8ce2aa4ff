/* profiles/model_config.h - models from config.json of Hugging Face's transformers. */
#ifndef ELAPSE_PROFILES_MODEL_CONFIG_H
#define ELAPSE_PROFILES_MODEL_CONFIG_H

#include "partition/model.h"
#include "profiles/json.h"

/* Build the model of an object with "model_type". file is for errors. ERR_INPUT: a type or an
 * activation that we do not have, a dim that is no number. */
enum status model_from_config(const struct json *object, const char *file, struct model *model,
                              struct err *err);

#endif
