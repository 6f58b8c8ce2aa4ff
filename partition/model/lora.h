/* partition/model/lora.h - low-rank adapters beside weights that stay as they are (LoRA; Hu et al.
 * 2021).
 *
 * A product [k -> n] of a target gets an adapter: r numbers between, so r (k + n) parameters train.
 * All other parameters of the model become base_params of their items: kept in `base` precision,
 * without gradients and optimizer state. Backwards still compute gradients of inputs. The products
 * of a family and their names are one table here, which exec/ reads too: those that transformers
 * has as modules, so queries, keys and values of a Llama are three. A framework that fuses adapters
 * (framework.h) has one for each product that runs as one. Pure. */
#pragma once

#include "partition/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the base is kept: as kernels read it; 8 bits; NF4 with double quantization, 4.127 bits
 * (QLoRA; Dettmers et al. 2023, section 3); GPTQ's 4 bits, of 128 weights an fp16 scale and 4 bits
 * of zero. */
enum lora_base { LORA_BASE_SAME, LORA_BASE_INT8, LORA_BASE_NF4, LORA_BASE_GPTQ, LORA_BASE_COUNT };
extern const char *const lora_base_names[]; /* by value, NULL-terminated */

/* What a job asks for: its keys train.lora. */
struct lora_ask {
    int rank;       /* 0: no adapters */
    double dropout; /* of each adapter's input; 0: none */
    bool fused_qkv; /* queries, keys and values are one module: one adapter */
    double alpha;   /* adapters count alpha / rank; 0: as much as the rank */
    char targets
        [256]; /* words joined by commas: all, attention, qkv, mlp, or a product's name or the end of
                          one after a dot, as the package peft matches target_modules */
    enum lora_base base;
    bool head; /* a head of classes or of answers trains too, as by peft's modules_to_save */
};

/* Give the model adapters; rank 0: none. The model is whole, and its dtype and framework are set.
 * ERR_INPUT: a target that names no product. ERR_INFEASIBLE names what is not there: dims, plain
 * heads, a dense MLP in the layers, or a rank that is more than the width. */
enum status model_set_lora(struct model *model, const struct lora_ask *ask, struct err *err);

/* A product of an item. */
struct lora_product {
    const char *module; /* name within its layer, or within the model for the pooler */
    bool first; /* it is, or is a part of, the item's first product (queries, keys and values; gate
                           and up; the pooler), else the second (attention's output; down) */
    bool adapted; /* it has an adapter */
    int64_t in, out;
    int64_t column; /* where its part begins in a row of that product's output */
};
enum { LORA_PRODUCTS = 4 };
/* List the products of an item, in the order of their columns; returns their number. */
int lora_products(const struct model *model, int item, struct lora_product list[LORA_PRODUCTS]);

/* The name of a ViT's module in transformers 5; a name that is not in the table stays. */
const char *lora_later_name(const char *module);

/* Whether the parameters of an item stay as they are because only adapters train. */
bool model_item_is_base(const struct model *model, int item);
/* Forward FLOPs of an item's adapters, for one sample. */
int64_t model_adapter_flops(const struct model *model, int item);

/* Whether autograd keeps no input of a product of the item that neither trains nor has an adapter:
 * F.linear() and Transformer Engine's linears save it for the gradient of weights alone. Not of
 * experts, nor of latent attention. Adapters read an input of 2 bytes, so such items keep no narrow
 * ones either. */
bool model_drops_inputs(const struct model *model, int item);
/* Bytes of a sample that an item's stash does not have because nobody needs the inputs of its
 * frozen products, where a framework drops them, minus what dropout of the adapters' inputs keeps
 * (each dropped input and a mask of a byte an element: lora/layer.py of peft, by PyTorch's
 * dropout): of the stash that every device of a group holds (tokens), or of what the group
 * divides. */
int64_t model_unkept_bytes(const struct model *model, int item, bool tokens);

/* Bytes of the frozen base that an item keeps on a device, and those of one parameter. */
int64_t model_base_bytes(const struct model *model, int item);
double model_base_bytes_per_param(const struct model *model);

#ifdef __cplusplus
}
#endif
