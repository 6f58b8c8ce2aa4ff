/* profiles/job/hub_model.h - models of the Hugging Face hub by their ids, from the local cache alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "partition/base/status.h"

/* Whether the first `length` bytes of a text are "org/name" and no preset's name. */
bool hub_is_id(const char *text, size_t length);

/* Set *path to the config.json of a model that is in the cache of huggingface_hub: $HF_HUB_CACHE, else hub
 * in $HF_HOME, else in $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface. Of the commit that "main" was
 * when it was fetched. The caller frees *path. ERR_INPUT: it is not there; the hint says how to fetch it. */
enum status hub_config_path(const char *id, char **path, struct err *err);
