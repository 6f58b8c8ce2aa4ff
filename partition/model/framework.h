/* partition/model/framework.h - what a training framework launches and keeps, where that differs
 * between frameworks: which operators are one kernel, what eager operators keep for the backward,
 * how the memory of a device is used apart from tensors. Pure. */
#pragma once

#include "partition/model/model.h"
#include "partition/model/rerun.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FRAMEWORK_BUCKET_BYTES (25 << 20) /* as PyTorch's DDP */

/* Values of train.framework. AUTO: the lists and sizes of model.c and kernels.c as they are: fused
 * operators, and nothing but tensors. A value with a year is the framework as it was released then; one
 * without is the newest, but FSDP_COMPILED is 2024's, of which runs are published. */
enum framework_kind {
    FRAMEWORK_AUTO,
    FRAMEWORK_MEGATRON_TE,
    FRAMEWORK_MEGATRON_TE_2023,
    FRAMEWORK_MEGATRON_TE_2024,
    FRAMEWORK_MEGATRON_TE_2025,
    FRAMEWORK_MEGATRON_TE_2026,
    FRAMEWORK_NEMO, /* Megatron Bridge's recipes */
    FRAMEWORK_MEGATRON_2021,
    FRAMEWORK_DEEPSPEED,
    FRAMEWORK_FSDP,
    FRAMEWORK_FSDP_COMPILED,
    FRAMEWORK_FSDP_COMPILED_2024,
    FRAMEWORK_FSDP_COMPILED_2025,
    FRAMEWORK_HF_EAGER,
    FRAMEWORK_HF_EAGER_2024,
    FRAMEWORK_COMPOSER,
    FRAMEWORK_AA_SCALING,
    FRAMEWORK_OURS,
    FRAMEWORK_KIND_COUNT
};

/* Values of train.norm: whether RMSNorm is one kernel. AUTO: as the framework has it. */
enum norm_kind { NORM_AUTO, NORM_FUSED, NORM_EAGER, NORM_KIND_COUNT };

/* Values of train.overlap: which collectives overlap compute. AUTO: as the framework has it. */
enum overlap_kind {
    OVERLAP_AUTO,
    OVERLAP_NONE,
    OVERLAP_TENSOR,
    OVERLAP_EXPERTS,
    OVERLAP_ALL,
    OVERLAP_KIND_COUNT
};

/* Values of train.dispatcher: what goes to the devices that have a token's experts. */
enum dispatcher_kind {
    DISPATCHER_ALLTOALL, /* a copy for each expert */
    DISPATCHER_FLEX,     /* a copy for each device (DeepEP, HybridEP) */
    DISPATCHER_KIND_COUNT
};

/* Names by value, NULL-terminated. */
extern const char *const framework_kind_names[],
    *const norm_kind_names[], *const overlap_kind_names[], *const dispatcher_kind_names[];

/* What cross entropy keeps and needs beside the logits in the activation's type. */
enum loss_kernels {
    LOSS_UNCOUNTED,   /* what the family's items say */
    LOSS_PARALLEL,    /* fp32 numbers are kept, logits and one fp32 gradient are there meanwhile */
    LOSS_EAGER,       /* PyTorch's cross_entropy(): its backward has two fp32 tensors of logits */
    LOSS_EAGER_ALONE, /* that, but the logits are freed before the backward */
    LOSS_FUSED,       /* a kernel each way on the logits alone; their gradient is a new tensor */
};

struct framework {
    enum framework_kind
        of; /* the name without a year, by which published runs are known; AUTO: its own */
    /* One kernel each, else PyTorch's operators one by one. LayerNorm is one kernel everywhere. */
    bool fused_norm, fused_rope, fused_activation;
    enum loss_kernels loss;
    int metrics; /* cross entropies that it computes of each micro-batch beside the loss, by PyTorch in fp32 */
    /* Each device of a tensor-parallel group gathers the logits of the whole vocabulary and computes
     * the loss of all of them. */
    bool whole_logits;
    /* The last stage holds the logits of the micro-batch before, because its buffers of outputs are
     * written over, not emptied. */
    bool keeps_logits;
    /* Gate and up are two linears, and the gradient of their input is summed for each. */
    bool splits_gate;
    /* Replicas sum all gradients by all-reduces of fp32, also where they divide the optimizer. */
    bool sums_whole;
    /* Each device of a tensor-parallel group sends the whole tensor to the next stage, not a part. */
    bool sends_whole;
    /* A rank waits for its sends under schedules without chunks. */
    bool blocks_sends;
    /* Gradients of 2-byte weights have 2 bytes: each micro-batch adds its own by another kernel. */
    bool narrow_grads;
    /* Collectives of tensor parallelism overlap the products that they feed or follow, piece by
     * piece, where the group divides tokens. */
    bool overlaps_tensor;
    /* Its overlap of tensor parallelism is that of PyTorch's symmetric memory ("async tensor parallelism"), not
     * Transformer Engine's: see model_steps_tensor(). */
    bool steps_tensor;
    /* In fp8 with one scale a tensor, a tensor-parallel group gathers inputs of products that are cast already. */
    bool gathers_narrow;
    /* Narrow copies of weights are made in each pass, not once a step. */
    bool casts_weights;
    bool gathers_take_share; /* gathers and reduce-scatters of shards take cluster.overlap_share of
                                the device from the compute meanwhile (as in time-1b) */
    bool copies_shards; /* gathered weights are copied out of the receive buffer, and gradients into
                                the send buffer, by the device that computes */
    bool gathers_late;  /* the backward of a layer begins by waiting for its gather */
    bool has_communicators; /* NCCL's, one for each group of devices */
    bool casts_router;      /* the router's product is one of fp32 operands */
    /* The product of each local expert, and the cast of each one's tokens, is a kernel of its own, and
     * the router and the dispatcher launch many small ones. */
    bool loops_experts;
    /* Kernels of their own put the scales of MX formats and NVFP4 in order. */
    bool swizzles_scales;
    bool fused_adapter_scale; /* alpha / r is part of an adapter's product */
    /* one adapter for each product that runs as one (NeMo's LoRA beside linear_qkv) */
    bool fuses_adapters;
    /* its packer looks for a row among many, not only at the last one (packing.h) */
    bool packs_ahead;
    bool masks_rows; /* attention computes packed rows as a whole, under a mask */
    bool keeps_wide; /* inputs of narrow products are kept in 2 bytes, and cast again backwards */
    bool keeps_narrow_weights; /* in fp8 and mxfp8 no 2-byte copy of a weight is kept */
    /* an expert's weight multiplies its activation, so its output is not kept */
    bool weighs_activation;
    /* the host's time to fetch and release the weights of an item where replicas divide them */
    double hook_us;
    unsigned
        reruns; /* bits 1 << enum rerun, beside RERUN_CORE: the parts of layers that it runs again */
    /* Permutations and weighted sums of experts' tokens are PyTorch's operators. */
    bool permutes_by_operators;
    int grad_bytes; /* of a 2-byte weight's gradient, which products add up themselves; 0: 4 */
    /* Gradients that replicas sum together, in parameters; 0: FRAMEWORK_BUCKET_BYTES. Only
     * the first stage has buckets, the others have one each. */
    int64_t bucket_params;
    bool sums_at_end; /* in one bucket a stage */
    bool likely;      /* one that people without a name for it may run (framework_range.h) */
    double launch_us; /* the host's time to launch a kernel; 0: that of the device's kind */
    int allocator_per_thousand; /* what the allocator holds beyond its tensors, of 1,000 bytes */
};

/* Whether the framework runs its hooks for divided weights also where one replica has them all: DeepSpeed's ZeRO-3 on
 * one GPU. */
bool framework_shards_alone(const struct framework *framework);
bool framework_loss_is_eager(const struct framework *framework);
/* Whether plans are searched in which the framework runs these parts of layers again. */
bool framework_reruns(const struct framework *framework, enum rerun parts);
/* The framework of a kind; NULL: FRAMEWORK_AUTO. */
const struct framework *framework_of(enum framework_kind kind);
/* The name of a framework; NULL is "auto". */
const char *framework_name(const struct framework *framework);

/* The name of its family: "megatron-te" for each year of it. */
const char *framework_family(const struct framework *framework);
/* Bytes of a bucket of gradients that num_replicas sum, where nobody says another; 0: one of each stage. */
int64_t framework_bucket_bytes(const struct model *model, int num_replicas);

/* Whether the framework runs models of transformers, whose experts may be modules of their own that
 * Python calls one after another. This is not counted. */
bool framework_loops_in_python(const struct model *model);

/* Set what launches a model's kernels, and change the sizes of its items to what that keeps. Call it
 * once, before the model is divided. Items of constants stay as they are. */
void model_set_framework(struct model *model, enum framework_kind kind, enum norm_kind norm);

/* The model as another framework launches it: its times are that framework's, its sizes remain. Items
 * are borrowed. */
struct model model_launched_by(const struct model *model, enum framework_kind kind);

/* Keep for the backward in fp8: queries, keys and values of fused attention that computes in it, and its output
 * where scales are `delayed` (Transformer Engine, FusedAttnFunc); the input of a dense SwiGLU (Megatron-LM's
 * activation_func_fp8_input_store). Call it after model_set_lora(). */
void model_keep_fp8(struct model *model, bool attention, bool delayed, bool activation);

/* Keep inputs of the layers' products in a narrow format, whose element has this number of 32nds of a byte with
 * its share of the scales, as the framework does. Call it once, after model_set_framework(). */
void model_keep_narrow(struct model *model, int thirty_seconds);
/* Bytes of a sample that an item's stash has more with narrow inputs than without: of those that every
 * device of a group holds (tokens), or of those that the group divides. */
int64_t model_narrow_bytes(const struct model *model, int item, bool tokens);
/* Whether each collective of tensor parallelism is cut into T steps, each a copy from another device by the copy
 * engine beside a product of a T-th of the rows. */
bool model_steps_tensor(const struct model *model);
/* Bytes of a [s, h] tensor of a sample that a group gathers in front of a product. */
int64_t model_gathered_bytes(const struct model *model);
/* Tensors [h] that an expert keeps for each token that chooses it: its input, and its output. */
int model_expert_tensors(const struct model *model);
/* Set which collectives overlap, and how tokens reach experts. Call it after model_set_framework(),
 * which sets those of the framework, and before the model is divided. */
void model_set_overlap(struct model *model, enum overlap_kind overlap,
                       enum dispatcher_kind dispatcher);

/* Bytes that a norm of the model keeps of a sample beyond the norm's input. 0 where it is fused. */
int64_t model_norm_extra_bytes(const struct model *model);

/* Bytes that a device of a pipeline of num_ranks, with num_pipelines of them, holds for its groups. */
int64_t framework_context_bytes(const struct model *model, int num_ranks, int num_pipelines);
/* The bytes that a device takes beyond its tensors, of 1,000 bytes of them: the allocator's share,
 * where all of it is memory_factor times as much as computed (0: 1). At least -999. */
int framework_beyond_tensors(const struct framework *framework, double memory_factor);
/* How many times as much memory as computed nine of ten runs stay below, where memory is that of a
 * framework on GPUs; else 1. */
double framework_memory_doubt(const struct framework *framework, double memory_factor);
/* Bytes beyond those of tensors. */
int64_t framework_beyond_bytes(int beyond_per_thousand, int64_t bytes);
/* No fewer bytes of tensors than fit into `bytes` with what is beyond them; at most 1,000 bytes
 * more. */
int64_t framework_room_bytes(int beyond_per_thousand, int64_t bytes);

#ifdef __cplusplus
}
#endif
