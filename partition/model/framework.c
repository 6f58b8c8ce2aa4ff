/* The table of frameworks, and what eager operators keep. */
#include "partition/model/framework.h"

#include <math.h>

#include "partition/base/units.h"
#include "partition/model/lora.h"

/* The memory that PyTorch's allocator reserves beyond its tensors when it runs out of memory, by
 * two published messages: 28.92 GiB of tensors, 30.43 reserved (ColossalAI, discussion 2907);
 * 13.73 GiB, and 736.86 MiB unallocated (kaito, issue 976). Both 5.2 %. Expandable segments
 * leave next to nothing; NeMo's launchers and torchtitan's set them (Megatron-Bridge's page of
 * memory tuning). */
#define SEGMENTS 52

/* Memory of a communicator of 2 devices, and of more (NVIDIA/nccl issue 964: A100, NVLink). */
#define COMMUNICATOR_BYTES(n) ((n) < 2 ? 0 : ((n) == 2 ? (int64_t)544 : (int64_t)688) << 20)

/* The host's time a kernel. A device kind's own (30 to 51 us) is that of modules of PyTorch with
 * autograd, called from Python. Code that torch.compile made calls operators without both: 11.3 to
 * 17.7 us, mean 14.5, for a product of PyTorch in a loop (NVIDIA/dgxc-benchmarking,
 * microbenchmarks/cpu_overhead). This executor is C: 3.1 and 3.4 us on an H100's host
 * (tests/truth/gpu-h100-2026-11-26, "launch"). */
#define COMPILED_US 14.5
#define OURS_US 3.4
/* A module of PyTorch without an engine's hooks: the forward of Linear on the hosts of an H100 and
 * of a GB200 takes 30 and 37 us (NVIDIA/TransformerEngine, issue 2053). The A100's 51 us are
 * Megatron-DeepSpeed's. */
#define PYTORCH_US 30
/* ZeRO-3's hooks before and after each module of a pass, in Python: DeepSpeed 0.18.3 with PyTorch
 * 2.15 needs 2.69 s of processor time for a step of 8 micro-batches of a tiny Llama of 24 layers
 * that run again in the backward, 0.75 s without ZeRO (one core of an EPYC of 2022, 2026-11-28):
 * 1.7 ms a pass over attention or an MLP. */
#define HOOK_US 1700

const char *const framework_kind_names[] = {"auto",
                                            "megatron-te",
                                            "megatron-te@2023",
                                            "megatron-te@2024",
                                            "megatron-te@2025",
                                            "megatron-te@2026",
                                            "nemo",
                                            "megatron-2021",
                                            "deepspeed",
                                            "fsdp",
                                            "fsdp-compiled",
                                            "fsdp-compiled@2024",
                                            "fsdp-compiled@2025",
                                            "hf-eager",
                                            "hf-eager@2024",
                                            "composer",
                                            "aa-scaling",
                                            "ours",
                                            NULL};
const char *const norm_kind_names[] = {"auto", "fused", "eager", NULL};
const char *const overlap_kind_names[] = {"auto", "none", "tensor", "experts", "all", NULL};
const char *const dispatcher_kind_names[] = {"alltoall", "flex", NULL};
_Static_assert(sizeof framework_kind_names / sizeof *framework_kind_names ==
                   FRAMEWORK_KIND_COUNT + 1,
               "an entry for each value");

/* Sources. megatron-te: Transformer Engine's norms; bias_swiglu_fusion, apply_rope_fusion of
 * Megatron-LM's transformer_config.py. megatron-2021: apex' norms, a fused bias and GELU
 * (megatron/model, 2021); rotary positions and SwiGLU came later, as PyTorch's operators.
 * deepspeed: the model is written in PyTorch; its engine launches no kernels of layers. fsdp: the
 * same, without torch.compile; fsdp-compiled: torch.compile of each layer joins elementwise
 * operators with the norm, the loss stays as it is (torchtitan, train.py, 2024). copies_shards:
 * FSDP2's copy-out and copy-in (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py).
 * hf-eager: transformers' modeling_llama.py. overlaps_tensor: tp_comm_overlap of Transformer Engine
 * (its userbuffers), which NeMo's recipes set. aa-scaling: the trainer of Hagemann et al., whose
 * engine descends from DeepSpeed's; whole_logits, splits_gate, sums_whole, narrow_grads,
 * sends_whole (Aleph-Alpha/scaling, 2024: lm_head.py, losses/cross_entropy.py, mlp.py,
 * optimizer/allreduce.py, optimizer/parameter_group.py, parallel_module/communicator.py).
 * DeepSpeed's own engine divides messages (pipe/engine.py, is_pipe_partitioned). keeps_logits:
 * outputs of the last stage are read, never taken out of their buffer, of which there are two
 * (there, parallel_module.py, _execute_loss_fn(); pipeline_schedule/train.py,
 * required_buffer_count(); DeepSpeed's pipe/engine.py keeps them too). With one micro-batch there
 * is no earlier one: they count still. loss: torchtitan's train.py deletes `pred` before the
 * backward, while transformers' and DeepSpeed's outputs live on; MPT's FusedCrossEntropyLoss is
 * flash-attn's, with inplace_backward off. metrics: LanguageCrossEntropy and LanguagePerplexity of
 * MPT (use_train_metrics), which composer's trainer.py updates in _eval_train_metrics().
 * blocks_sends: DeepSpeed's p2p.send(); Megatron-LM's
 * batch_isend_irecv(), for which 1F1B waits and the interleaved schedule does not
 * (overlap_p2p_comm). composer: llm-foundry's trainer: FSDP of PyTorch, the loss is flash-attn's
 * kernel (MPT's loss_fn, fused_crossentropy). gathers_late: its backward_prefetch is BACKWARD_POST
 * (dist_strategy.py), which gathers a layer when the gradients of the one before are there
 * (PyTorch, fsdp/api.py). casts_router: DeepseekV3TopkRouter of transformers. packs_ahead: Megatron
 * Bridge packs by first fit, by falling lengths or shuffled (data/datasets/packing_utils.py), TRL
 * by best fit by falling lengths (SFTConfig.packing_strategy), llm-foundry by BinPackCollator;
 * torchtune's and AutoModel's packers begin a new row instead (PackedSequence). Variable lengths:
 * Transformer Engine's THD layout, flash_attn_varlen_func (transformers'
 * DataCollatorWithFlattening; AutoModel's packing.py; Aleph-Alpha/scaling), block masks of
 * FlexAttention (torchtitan). masks_rows: Megatron-LM's --reset-attention-mask is a mask of the
 * scores, and models under DeepSpeed's engine have what their authors wrote. keeps_wide: torchao's
 * Float8Linear and MXLinear save input_hp (float8_linear.py, mx_linear.py); Transformer Engine's
 * Linear and LayerNormLinear save the copy by columns only (linear.py, own_quantized_input).
 * keeps_narrow_weights: fp8_param_gather, which Megatron Bridge sets in fp8 and mxfp8
 * (mixed_precision.py). weighs_activation: weighted_bias_swiglu_impl() of Megatron-LM's
 * TEGroupedMLP (experts.py). loops_experts: te_general_grouped_gemm() multiplies expert by expert
 * on several streams (NVIDIA/TransformerEngine, pytorch/csrc/extensions/gemm.cpp), and
 * multi_tensor_quantize_impl() casts one by one but for delayed scaling (cast.cpp).
 * steps_tensor: torch/distributed/_symmetric_memory/__init__.py. gathers_narrow: torchao casts an input, and
 * backwards the gradient of an output, before it is gathered (float8_tensor_parallel.py). casts_weights: torchao's
 * Float8Linear casts a weight in the forward and again in the backward (float8_linear.py).
 * gathers_take_share: FSDP's collectives are NCCL's kernels, which occupy SMs (time-1b has how
 * many).
 *
 * Years, by Megatron-LM's CHANGELOG.md. 2023, core 0.2 to 0.4: rotary positions and SwiGLU are PyTorch's
 * operators, and gradients are summed after the backward. 2024, 0.5 to 0.9: both are fused (0.5.0), and
 * overlap_grad_reduce sums buckets of max(40 million, a million for each replica) parameters, on the first
 * stage only (distributed_data_parallel.py). Until then permutations are PyTorch's operators (moe_utils.py).
 * 2025, 0.10 to 0.14: they are kernels of Transformer Engine (0.11), fp8 weights have no 2-byte copy (0.10), experts'
 * weights multiply their activations and norms run again (0.13). 2026, 0.15 and 0.16: nothing that counts here.
 * nemo: Megatron Bridge's performance recipes set ddp.grad_reduce_in_fp32 = False
 * (scripts/performance/configs). fsdp-compiled: torchtitan compiles the loss too since 2025
 * (components/loss.py, build_cross_entropy_loss()), into
 * a kernel each way; a name without a year is 2024's, of which runs are published. Sums at the end: aa-scaling and DeepSpeed's pipeline
 * engine (pipe/engine.py, _exec_reduce_grads()), Megatron-LM in 2021. */
/* clang-format off */
#define MEGATRON_TE .of = FRAMEWORK_MEGATRON_TE, .blocks_sends = true, .fused_norm = true, .loss = LOSS_PARALLEL, \
    .has_communicators = true, .overlaps_tensor = true, .fuses_adapters = true, .packs_ahead = true, .loops_experts = true, \
    .swizzles_scales = true
#define MEGATRON_TE_2024 MEGATRON_TE, .fused_rope = true, .fused_activation = true, .bucket_params = 40000000
#define MEGATRON_TE_2025 MEGATRON_TE_2024, .reruns = 1u << RERUN_NORMS, .keeps_narrow_weights = true, .weighs_activation = true
#define TORCH .steps_tensor = true, .gathers_narrow = true, .casts_weights = true
#define FSDP_COMPILED TORCH, .of = FRAMEWORK_FSDP_COMPILED, .reruns = 1u << RERUN_OPS, .fused_norm = true, .fused_rope = true, \
    .fused_activation = true, .has_communicators = true, .gathers_take_share = true, \
    .copies_shards = true, .casts_router = true, .launch_us = COMPILED_US, .keeps_wide = true
#define HF_EAGER .of = FRAMEWORK_HF_EAGER, .loss = LOSS_EAGER, .has_communicators = true, \
    .allocator_per_thousand = SEGMENTS, .gathers_take_share = true, .casts_router = true, .packs_ahead = true, \
    .launch_us = PYTORCH_US, .keeps_wide = true
static const struct framework frameworks[FRAMEWORK_KIND_COUNT] = {
    [FRAMEWORK_MEGATRON_TE] = {MEGATRON_TE_2025, .likely = true},
    [FRAMEWORK_MEGATRON_TE_2023] = {MEGATRON_TE, .sums_at_end = true, .permutes_by_operators = true},
    [FRAMEWORK_MEGATRON_TE_2024] = {MEGATRON_TE_2024, .permutes_by_operators = true},
    [FRAMEWORK_MEGATRON_TE_2025] = {MEGATRON_TE_2025},
    [FRAMEWORK_MEGATRON_TE_2026] = {MEGATRON_TE_2025},
    [FRAMEWORK_NEMO] = {MEGATRON_TE_2025, .grad_bytes = 2},
    [FRAMEWORK_MEGATRON_2021] = {.sums_at_end = true, .blocks_sends = true, .fused_norm = true, .loss = LOSS_PARALLEL,
        .has_communicators = true, .allocator_per_thousand = SEGMENTS, .fuses_adapters = true, .masks_rows = true, .keeps_wide = true},
    [FRAMEWORK_DEEPSPEED] = {.likely = true, .sums_at_end = true, .blocks_sends = true, .loss = LOSS_EAGER, .whole_logits = true,
        .keeps_logits = true, .splits_gate = true, .sums_whole = true, .narrow_grads = true,
        .has_communicators = true, .allocator_per_thousand = SEGMENTS, .casts_router = true, .masks_rows = true,
        .hook_us = HOOK_US, .keeps_wide = true},
    [FRAMEWORK_FSDP] = {TORCH, .likely = true, .reruns = 1u << RERUN_OPS, .loss = LOSS_EAGER_ALONE,
        .has_communicators = true, .allocator_per_thousand = SEGMENTS, .gathers_take_share = true,
        .copies_shards = true, .casts_router = true, .keeps_wide = true},
    [FRAMEWORK_FSDP_COMPILED] = {FSDP_COMPILED, .loss = LOSS_EAGER_ALONE, .likely = true},
    [FRAMEWORK_FSDP_COMPILED_2024] = {FSDP_COMPILED, .loss = LOSS_EAGER_ALONE},
    [FRAMEWORK_FSDP_COMPILED_2025] = {FSDP_COMPILED, .loss = LOSS_FUSED},
    [FRAMEWORK_HF_EAGER] = {HF_EAGER, .likely = true},
    [FRAMEWORK_HF_EAGER_2024] = {HF_EAGER},
    [FRAMEWORK_COMPOSER] = {.loss = LOSS_FUSED, .metrics = 2, .has_communicators = true, .allocator_per_thousand = SEGMENTS,
        .gathers_take_share = true, .gathers_late = true, .casts_router = true, .packs_ahead = true, .keeps_wide = true},
    [FRAMEWORK_AA_SCALING] = {.sums_at_end = true, .blocks_sends = true, .sends_whole = true, .loss = LOSS_EAGER,
        .whole_logits = true, .keeps_logits = true, .splits_gate = true, .sums_whole = true, .narrow_grads = true,
        .has_communicators = true, .allocator_per_thousand = SEGMENTS, .casts_router = true, .keeps_wide = true},
    [FRAMEWORK_OURS] = {.fused_norm = true, .fused_rope = true, .fused_activation = true, .launch_us = OURS_US,
        .fused_adapter_scale = true},
};
/* clang-format on */

bool framework_loss_is_eager(const struct framework *framework)
{
    return framework && (framework->loss == LOSS_EAGER || framework->loss == LOSS_EAGER_ALONE);
}

bool framework_reruns(const struct framework *framework, enum rerun parts)
{
    return framework && framework->reruns >> parts & 1;
}

const struct framework *framework_of(enum framework_kind kind)
{
    return kind == FRAMEWORK_AUTO ? NULL : &frameworks[kind];
}

bool framework_shards_alone(const struct framework *framework)
{
    return framework && framework->hook_us > 0;
}

bool framework_loops_in_python(const struct model *model)
{
    const struct framework *const f = model->framework;
    return f && model->experts > 0 &&
           (f == framework_of(FRAMEWORK_DEEPSPEED) || f == framework_of(FRAMEWORK_FSDP) ||
            f->of == FRAMEWORK_HF_EAGER);
}

const char *framework_name(const struct framework *framework)
{
    return framework_kind_names[framework ? framework - frameworks : FRAMEWORK_AUTO];
}

const char *framework_family(const struct framework *framework)
{
    return framework && framework->of ? framework_kind_names[framework->of]
                                      : framework_name(framework);
}

int64_t framework_bucket_bytes(const struct model *model, int num_replicas)
{
    const struct framework *const f = model->framework;
    if (f && f->sums_at_end)
        return 0;
    if (!f || f->bucket_params == 0)
        return FRAMEWORK_BUCKET_BYTES;
    const int64_t many = (int64_t)num_replicas * 1000000;
    return (many > f->bucket_params ? many : f->bucket_params) * model_grad_bytes(model);
}

/* RMSNorm by PyTorch's operators casts its input to fp32, and keeps that copy for the square and
 * the product with 1 / rms, and the normalised tensor for the gradient of its weights. The input
 * itself is no longer needed (LlamaRMSNorm in transformers' modeling_llama.py). */
int64_t model_norm_extra_bytes(const struct model *model)
{
    return model->eager_norm && model->rms_norm ? 4 * (int64_t)model->seq * model->hidden : 0;
}

/* SwiGLU by operators keeps the output of silu too. */
static int64_t activation_extra_bytes(const struct model *model, int item)
{
    int64_t width = model->mlp;
    if (!model->eager_activation || !model->gated_mlp)
        return 0;
    if (model_item_has_experts(model, item))
        width = (int64_t)(model->experts_active + model->shared_experts) * model->expert_mlp;
    return model->seq * width * model->elem_bytes;
}

/* The loss keeps fp32 numbers for each logit, where model.c counts an element. While it runs, the
 * logits are there too, and its backward has a gradient in fp32. In PyTorch's cross_entropy() that
 * is a gradient of log_softmax's output, from which a second one of its input is made. A fused loss
 * keeps the logits alone. */
static void count_logits(const struct model *model, struct item *head)
{
    const int64_t logits = (int64_t)model->seq * model->vocab, e = model->elem_bytes;
    const enum loss_kernels loss = model->framework->loss;
    const int64_t counted = model->family == FAMILY_LLAMA ? 4 : e; /* as its items say */
    const int copies = loss == LOSS_EAGER_ALONE ? 0 : model->framework->keeps_logits ? 2 : 1;
    if (loss == LOSS_FUSED) {
        head->stash_bytes += logits * (e - counted);
        head->work_bytes += logits * e;
        return;
    }
    head->stash_bytes += logits * (4 - counted);
    head->work_bytes += logits * (e * copies + (framework_loss_is_eager(model->framework) ? 8 : 4));
}

/* Set what launches the kernels, but not what it keeps. */
static void set_launcher(struct model *model, enum framework_kind kind, bool eager_norm)
{
    const struct framework *framework = framework_of(kind);
    model->framework = framework;
    model->eager_norm = eager_norm;
    model->eager_rope = framework && !framework->fused_rope;
    model->eager_activation = framework && !framework->fused_activation;
    model->overlaps_tensor = framework && framework->overlaps_tensor;
    if (framework && (framework->narrow_grads || framework->grad_bytes == model->elem_bytes) &&
        model->elem_bytes < model->param_bytes && model->grad_bytes_per_param == 0)
        model->grad_bytes_per_param = model->elem_bytes;
}

static bool has_eager_norm(enum framework_kind kind, enum norm_kind norm)
{
    const struct framework *framework = framework_of(kind);
    return norm == NORM_EAGER || (norm == NORM_AUTO && framework && !framework->fused_norm);
}

struct model model_launched_by(const struct model *model, enum framework_kind kind)
{
    struct model other = *model;
    set_launcher(&other, kind, has_eager_norm(kind, NORM_AUTO));
    return other;
}

void model_set_framework(struct model *model, enum framework_kind kind, enum norm_kind norm)
{
    const struct framework *framework = framework_of(kind);
    set_launcher(model, kind, has_eager_norm(kind, norm));
    for (int i = 0; i < model->num_items; i++) {
        struct item *item = &model->items[i];
        if (item->kind == ITEM_ATTENTION || item->kind == ITEM_MLP || item->kind == ITEM_STATE)
            item->stash_bytes +=
                model_item_norms(model, item->kind) * model_norm_extra_bytes(model);
        if (item->kind == ITEM_NORM)
            item->stash_bytes += model_norm_extra_bytes(model);
        if (item->kind == ITEM_MLP)
            item->stash_bytes += activation_extra_bytes(model, i);
        if (model_item_has_experts(model, i))
            item->stash_bytes -=
                (2 - model_expert_tensors(model)) * model->hidden * model->elem_bytes *
                model_expert_tokens(model, (int64_t)model->seq * model->experts_active);
        if (item->kind == ITEM_HEAD && framework && framework->loss != LOSS_UNCOUNTED &&
            model->task == TASK_CAUSAL_LM)
            count_logits(model, item);
    }
}

/* Elements of a token that an item keeps in a narrow format in place of two bytes, and those that
 * it also keeps in that format. */
struct narrow {
    int64_t instead, besides;
};

/* A norm and the linear after it are one module, which keeps the norm's output narrow. Attention
 * keeps its output in two bytes itself, and the projection after it a narrow copy. Latent attention
 * has two linears on the norm's output. The activation keeps gate and up in two bytes, the second
 * linear what comes out. A router keeps the norm's output in two bytes, the experts their copies
 * narrow. */
static struct narrow narrow_of(const struct model *model, int item, bool tokens)
{
    const int64_t h = model->hidden, q = model->q_rank, c = model->kv_rank;
    const bool own = model_item_norms(model, model->items[item].kind) > 0;
    const int64_t width = c > 0                 ? model->v_dim
                          : model->head_dim > 0 ? model->head_dim
                                                : h / model->heads;
    const int64_t shared = (int64_t)model->shared_experts * model->expert_mlp;
    if (model->items[item].kind == ITEM_ATTENTION && tokens)
        return (struct narrow){h + q + c, c > 0 ? h : 0};
    if (model->items[item].kind == ITEM_ATTENTION)
        return (struct narrow){0, model->heads * width};
    if (model_item_has_experts(model, item))
        return tokens ? (struct narrow){0, shared > 0 ? h : 0} : (struct narrow){shared, 0};
    return tokens ? (struct narrow){own ? h : 0, own ? 0 : h} : (struct narrow){model->mlp, 0};
}

int64_t model_narrow_bytes(const struct model *model, int item, bool tokens)
{
    const enum item_kind kind = model->items[item].kind;
    const int64_t n = model->kept_32nds, seq = model->seq;
    if (n == 0 || (kind != ITEM_ATTENTION && kind != ITEM_MLP) || model_drops_inputs(model, item))
        return 0;
    const struct narrow narrow = narrow_of(model, item, tokens);
    int64_t bytes = seq * (narrow.besides * n - narrow.instead * (64 - n)) / 32;
    if (model_item_has_experts(model, item))
        bytes -= model_expert_tokens(model, seq * model->experts_active) *
                 (tokens ? model->hidden : model->expert_mlp) * (64 - n) / 32;
    return bytes;
}

int model_expert_tensors(const struct model *model)
{
    return model->framework && model->framework->weighs_activation ? 1 : 2;
}

bool model_steps_tensor(const struct model *model)
{
    return model->overlaps_tensor && model->sequence_parallel && model->framework &&
           model->framework->steps_tensor;
}

int64_t model_gathered_bytes(const struct model *model)
{
    return (int64_t)model->seq * model->hidden * (model->gathers_fp8 ? 1 : model->elem_bytes);
}

void model_keep_narrow(struct model *model, int thirty_seconds)
{
    const bool decoder = model->family == FAMILY_LLAMA || model->family == FAMILY_GPT;
    model->gathers_fp8 =
        decoder && thirty_seconds == 32 && model->framework && model->framework->gathers_narrow;
    if (!decoder || model->elem_bytes != 2 || (model->framework && model->framework->keeps_wide))
        return;
    model->kept_32nds = thirty_seconds;
    for (int i = 0; i < model->num_items; i++)
        model->items[i].stash_bytes +=
            model_narrow_bytes(model, i, true) + model_narrow_bytes(model, i, false);
}

void model_keep_fp8(struct model *model, bool attention, bool delayed, bool activation)
{
    const bool decoder = model->family == FAMILY_LLAMA || model->family == FAMILY_GPT;
    if (!decoder || model->elem_bytes != 2 || model->kv_rank > 0 || model->heads < 1)
        return;
    const int64_t d = model->head_dim > 0 ? model->head_dim : model->hidden / model->heads;
    const int64_t query = model->heads * d;
    const int64_t key = (model->kv_heads > 0 ? model->kv_heads : model->heads) * d;
    model->fp8_activation = activation && model->gated_mlp;
    for (int i = 0; i < model->num_items; i++) {
        struct item *item = &model->items[i];
        if (attention &&
            item->kind ==
                ITEM_ATTENTION) /* the output may be narrow already: an input of a product */
            item->stash_bytes -=
                model->seq *
                (query + 2 * key + (delayed && model_drops_inputs(model, i) ? query : 0));
        if (model->fp8_activation && item->kind == ITEM_MLP && !model_item_has_experts(model, i))
            item->stash_bytes -= (int64_t)model->seq * 2 * model->mlp;
    }
}

void model_set_overlap(struct model *model, enum overlap_kind overlap,
                       enum dispatcher_kind dispatcher)
{
    if (overlap != OVERLAP_AUTO) {
        model->overlaps_tensor = overlap == OVERLAP_TENSOR || overlap == OVERLAP_ALL;
        model->overlaps_experts = overlap == OVERLAP_EXPERTS || overlap == OVERLAP_ALL;
    }
    model->sends_once = dispatcher == DISPATCHER_FLEX;
}

int64_t framework_context_bytes(const struct model *model, int num_ranks, int num_pipelines)
{
    if (!model->framework || !model->framework->has_communicators)
        return 0;
    return COMMUNICATOR_BYTES(num_ranks) + COMMUNICATOR_BYTES(num_pipelines) +
           COMMUNICATOR_BYTES(model->tensor);
}

int framework_beyond_tensors(const struct framework *framework, double memory_factor)
{
    const int share = framework ? framework->allocator_per_thousand : 0;
    const double all = (1000 + share) * (memory_factor > 0 ? memory_factor : 1);
    return (int)lround(fmin(fmax(all, 1), 1e6)) - 1000;
}

/* 1.28 standard deviations are exceeded in one of ten cases. The logarithm of a peak over the
 * computed one has 0.1, and 0.05 once a peak was measured (calibration.c). */
double framework_memory_doubt(const struct framework *framework, double memory_factor)
{
    const bool measured = memory_factor > 0 && memory_factor != 1;
    return framework && framework->has_communicators ? exp(1.2816 * (measured ? 0.05 : 0.1)) : 1;
}

int64_t framework_beyond_bytes(int beyond_per_thousand, int64_t bytes)
{
    return bytes / 1000 * beyond_per_thousand;
}

int64_t framework_room_bytes(int beyond_per_thousand, int64_t bytes)
{
    return beyond_per_thousand == 0 || bytes < 0
               ? bytes
               : mul_saturated(bytes / (1000 + beyond_per_thousand) + 1, 1000);
}
