/* partition/model/model_items.h - declarations that the makers of item chains share: model.c,
 * model_llama.c and model_explicit.c. Not for others, who call model_build() or
 * model_explicit(). */
#pragma once

#include <stdbool.h>

#include "partition/model/model.h"

/* Formulas are evaluated in 128 bits, which dims within the limits of model.h cannot overflow.
 * item_store() checks that the result fits 64 bits. */
typedef __int128 wide;

bool item_store(wide value, int64_t *out);
/* Write one item. False if a value exceeds int64. */
bool item_fill(struct item *item, enum item_kind kind, int layer, const char *name, wide params,
               wide fwd_flops, wide act_bytes, wide stash_bytes);

struct dim {
    const char *name;
    int value, max;
};
/* ERR_INPUT for the first dim that is not 1..max. */
enum status model_check_dims(const char *name, const struct dim *dims, int num_dims,
                             struct err *err);
/* ERR_INPUT if a sum over items exceeds int64, because most callers sum. Every function that makes
 * a model calls this. */
enum status model_check_totals(const struct model *model, struct err *err);

/* The llama family: copy the dims of spec into the model, zeros replaced by those of base, and
 * check them; write the items of a chain. */
enum status llama_resolve(const struct model_spec *spec, const struct model_spec *base,
                          struct model *model, struct err *err);
bool llama_fill_embedding(const struct model *model, struct item *item);
bool llama_fill_attention(const struct model *model, int layer, struct item *item);
bool llama_fill_mlp(const struct model *model, int layer, struct item *item);
bool state_fill(const struct model *model, int layer, struct item *item);
/* Copy a spec's state-space dims and pattern, and check them. */
enum status state_resolve(const struct model_spec *spec, struct model *model, struct err *err);
/* The chain of a spec of FAMILY_COMPOSED. */
enum status composed_build(const struct model_spec *spec, struct model *model, struct err *err);
/* Whether a type of FAMILY_COMPOSED has a key of MODEL texts. */
bool composed_has_key(const char *type, const char *key);
/* Whether the MLP of a layer has experts. */
bool model_layer_has_experts(const struct model *model, int layer);
/* Two items: the last norm and the head. */
bool llama_fill_tail(const struct model *model, struct item item[2]);
