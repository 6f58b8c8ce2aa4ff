/* partition/model/rerun.h - the parts of a layer that may run again inside its backward.
 *
 * Each set says which tensors a layer gives up, so that the backward computes them again from what is kept.
 * All answers are of one device's share of an item. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rerun {
    RERUN_CORE, /* attention's core: scores, softmax, dropout, context */
    /* Outputs of the norms in front of the linears and of activations, and the linears of latent attention from
     * ranks to heads: --recompute-modules layernorm moe_act mla_up_proj of Megatron-LM (core 0.16,
     * transformer_config.py); DeepSeek-V3 report, section 3.2.3. */
    RERUN_NORMS,
    /* All but fused attention, every second product of weights, and sums between devices: the list of PyTorch's
     * selective activation checkpointing that torchtitan saves (distributed/activation_checkpoint.py). */
    RERUN_OPS,
    RERUN_COUNT
};

/* One product of weights [in -> out] on a device. */
struct rerun_product {
    int64_t in, out;
    bool again; /* runs again */
};
#define RERUN_PRODUCTS 5

/* The products of an item's layer, but for routed experts. Returns how many. */
int model_rerun_products(const struct model *model, int item, enum rerun rerun,
                         struct rerun_product list[RERUN_PRODUCTS]);
/* Stash bytes of a sample that an item gives up; 0 to its stash. */
int64_t model_rerun_bytes(const struct model *model, int item, enum rerun rerun);
/* Flops of a sample that run again. */
int64_t model_rerun_flops(const struct model *model, int item, enum rerun rerun);

#ifdef __cplusplus
}
#endif
