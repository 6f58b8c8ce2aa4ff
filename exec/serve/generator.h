/* exec/serve/generator.h - the forward pass of a language model over a growing sequence, with a
 * cache of keys and values: GPT-2 and the decoders of the llama family, in fp32 on the processor.
 *
 * It calls the kernels that training calls, on the weights of one stage that holds all items. */
#pragma once

#include "exec/base/backend.h"
#include "partition/model/model.h"

struct generator; /* opaque */

/* Load the weights at `path`: a checkpoint, or with `foreign` what weights_open() knows; adapter:
 * the folder of the model's adapters beside them, or NULL. context: positions that the cache has
 * room for. model and backend (cpu, fp32) are borrowed. ERR_INPUT: not a language model of these
 * families, or weights of another model. ERR_NOMEM. */
enum status generator_new(const struct model *model, const char *path, bool foreign,
                          const char *adapter, int context, struct backend *backend,
                          struct generator **generator, struct err *err);
void generator_free(struct generator *generator); /* NULL is fine */

/* Read `num` more tokens. *logits [vocab] are those after the last one, valid until the next call.
 * ERR_INPUT: more than the context, or an id outside the vocabulary. O(num * (params +
 * context)). */
enum status generator_read(struct generator *generator, const int32_t *tokens, int num,
                           const float **logits, struct err *err);
