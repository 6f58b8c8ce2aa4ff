/* partition/model/lora.h - low-rank adapters beside weights that stay as they are (LoRA; Hu et al. 2021).
 *
 * A product [k -> n] of a target gets an adapter: r numbers between, so r (k + n) parameters train. All
 * other parameters of the model become base_params of their items: kept in `base` precision, without
 * gradients and optimizer state. Backwards still compute gradients of inputs. One adapter is counted for
 * each product that runs as one, that is for queries, keys and values together and for gate and up
 * together, as Megatron-LM's fused linears have it. Pure. */
#ifndef ELAPSE_PARTITION_LORA_H
#define ELAPSE_PARTITION_LORA_H

#include "partition/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum lora_targets { LORA_ALL, LORA_ATTENTION, LORA_QKV, LORA_MLP, LORA_TARGETS_COUNT };
/* How the base is kept: as kernels read it; 8 bits; NF4 with double quantization, 4.127 bits (QLoRA;
 * Dettmers et al. 2023, section 3). */
enum lora_base { LORA_BASE_SAME, LORA_BASE_INT8, LORA_BASE_NF4, LORA_BASE_COUNT };

/* Give the model adapters of a rank; 0: none. The model is whole and its dtype is set. ERR_INFEASIBLE
 * names what is not there: dims, plain heads, a dense MLP in the layers, or a rank that is more than the
 * width. */
enum status model_set_lora(struct model *model, int rank, enum lora_targets targets,
                           enum lora_base base, struct err *err);

/* Whether products of an item have adapters: the first one (queries, keys and values; gate and up) and
 * the second (the output's; down). */
bool model_has_adapter(const struct model *model, int item, bool first);

/* Bytes of the frozen base that an item keeps on a device, and those of one parameter. */
int64_t model_base_bytes(const struct model *model, int item);
double model_base_bytes_per_param(const struct model *model);

#ifdef __cplusplus
}
#endif
#endif
