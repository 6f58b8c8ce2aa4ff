/* Kernel lists, one function per kind of item and direction. Read kernels_of() at the end first.
 *
 * The bytes of a memory-bound kernel are written as passes over a tensor: 2 is one read and one
 * write. Passes are counted from the operators that Megatron-LM and PyTorch 2 launch. A dropout's
 * mask has one byte per element. In comments t is tokens, h hidden, m the MLP's width, a heads, d a
 * head's width, V vocabulary, T tensor-parallel ways. */
#include "partition/cost/kernels.h"

#include "partition/model/attention.h"
#include "partition/model/expert_parts.h"
#include "partition/model/framework.h"
#include "partition/model/lora.h"
#include "partition/model/packing.h"

struct lister {
    const struct model *model;
    const struct item *item;
    int index; /* of the item */
    enum pass pass;
    int64_t samples;
    int64_t tokens; /* of the micro-batch */
    int ways;       /* T */
    double e;       /* bytes of an activation element */
    double mask;    /* bytes of a dropout mask per element; 0 without dropout */
    bool unfused;   /* as Megatron-LM in 2021 */
    bool biases;
    enum narrow_format narrow; /* of the products of weights in this item */
    bool fp8_attention, delayed_scaling;
    enum graph_parts graphs;
    bool in_adapter; /* the current kernels are an adapter's */
    bool dynamic;    /* the current kernels have sizes that the choice of experts sets */
    int cast_part;   /* of the rows that are cast: one of so many; 0: all */
    int loops;       /* experts for each of which a kernel is launched; 0: for all at once */
    struct kernel *list;
    int count;
};

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static void add(struct lister *l, struct kernel kernel)
{
    if (l->pass == PASS_BWD_WEIGHT && !l->in_adapter && model_item_is_base(l->model, l->index))
        return; /* the base has no gradients */
    kernel.dynamic = l->dynamic;
    if (l->count < KERNELS_MAX)
        l->list[l->count++] = kernel;
}

static void add_memory(struct lister *l, double bytes)
{
    if (bytes > 0)
        add(l, (struct kernel){.kind = KERNEL_MEMORY, .bytes = bytes});
}

/* An operator of PyTorch over `elements` that reads a view, repeats an operand along a dim, or casts what it
 * reads: its kernel takes them one by one (SCATTERED_PER_SM in device_curves.c). */
static void add_scattered(struct lister *l, double bytes, double elements)
{
    if (bytes > 0)
        add(l, (struct kernel){.kind = KERNEL_MEMORY, .bytes = bytes, .elements = elements});
}

/* A product of activations with activations or weights. */
static void add_matmul(struct lister *l, enum matmul_layout layout, int64_t batch, int64_t m,
                       int64_t n, int64_t k)
{
    const double all = (double)batch * (double)m * (double)n;
    if (all <= 0 || k <= 0)
        return;
    add(l, (struct kernel){.kind = KERNEL_MATMUL,
                           .layout = layout,
                           .out_bytes = (int)l->e,
                           .batch = batch,
                           .m = m,
                           .n = n,
                           .k = k,
                           .flops = 2 * all * (double)k,
                           .bytes =
                               l->e * ((double)batch * (double)k * ((double)m + (double)n) + all)});
}

/* SMs that collectives take from the products of attention and of the MLP that they overlap. The
 * sum after the second linear goes out in SCATTER_PIECES by `scatter` of them. Backwards, transfers
 * take `input` SMs from the gradient of the first linear's input, and `weights` from that of its
 * weights. From ub_tp_comm_overlap_cfg of NeMo's recipe for GPT-3 175B (NVIDIA/dgxc-benchmarking,
 * nemo_megatron/gpt3_175b_hydra.yaml). */
#define SCATTER_PIECES 4
static const struct {
    int scatter, input, weights;
} taken_sms[] = {
    {24, 4, 8}, /* proj_fprop, qkv_dgrad, qkv_wgrad */
    {20, 2, 4}, /* fc2_fprop, fc1_dgrad, fc1_wgrad */
};

/* The collective that a linear's product runs in steps with under PyTorch's symmetric memory: a gather in front of
 * the first linear forward and of the second backward, the sum behind the second linear forward. Not the sum of the
 * gradient of the first linear's input: it is a sum of several products (queries, keys and values, or gate and up),
 * and only a product by itself in front of a reduce-scatter is found (torch/_inductor/fx_passes/micro_pipeline_tp.py,
 * fuse_matmul_reduce_scatter()). */
static enum kernel_beside stepped(const struct lister *l, bool first)
{
    const bool ahead = l->pass == PASS_FWD || l->pass == PASS_FWD_NOGRAD;
    if (l->ways < 2 || !model_steps_tensor(l->model) || l->pass == PASS_BWD_WEIGHT)
        return BESIDE_NOTHING;
    if (ahead)
        return first ? BESIDE_GATHER : BESIDE_SCATTER;
    return !first ? BESIDE_GATHER : BESIDE_NOTHING;
}

/* T products of a T-th of the rows, alternating between two streams, so that one fills the last wave of the other:
 * waves are those of T / 2. The host launches a copy and a product for each, and behind products that are summed two
 * barriers more. Copies are the copy engine's. */
static void step_beside_collective(const struct lister *l, struct kernel *kernel, bool first)
{
    kernel->beside = stepped(l, first);
    if (kernel->beside == BESIDE_NOTHING)
        return;
    kernel->pieces = l->ways / 2;
    kernel->launches = l->ways * (kernel->beside == BESIDE_GATHER ? 2 : 4);
}

/* If the framework overlaps the collectives of tensor parallelism with the products, they divide
 * a product, or take SMs from it (Transformer Engine's userbuffers). A gather in front of a
 * product comes in T pieces by copies, without SMs, and each is multiplied when it is there: the
 * first linear forward, the second backward. The sum after the second linear goes out in
 * pieces, by SMs. Backwards, the first linear's input is gathered for its weights during the
 * product for the input, and that product's sum during the one for the weights. */
static void share_with_collective(const struct lister *l, struct kernel *kernel, bool first)
{
    if (!l->model->overlaps_tensor || l->ways < 2 || !l->model->sequence_parallel ||
        kernel->kind != KERNEL_MATMUL)
        return;
    if (model_steps_tensor(l->model)) {
        step_beside_collective(l, kernel, first);
        return;
    }
    const bool ahead = l->pass == PASS_FWD || l->pass == PASS_FWD_NOGRAD;
    const bool weights = l->pass == PASS_BWD_WEIGHT, mlp = l->item->kind == ITEM_MLP;
    if (ahead ? first : !first && !weights) {
        kernel->pieces = l->ways;
    } else if (ahead) {
        kernel->pieces = SCATTER_PIECES;
        kernel->taken_sms = taken_sms[mlp].scatter;
    } else if (first) {
        kernel->taken_sms = weights ? taken_sms[mlp].weights : taken_sms[mlp].input;
    }
}

/* Bytes of an element with its share of the scales: MX has a byte for 32 elements, NVFP4 for 16. */
static double narrow_bytes(enum narrow_format format)
{
    return format == NARROW_NVFP4 ? 0.5 + 1.0 / 16 : format == NARROW_MXFP8 ? 1 + 1.0 / 32 : 1;
}

/* Mark the product that was added last as one of narrow operands. */
static void make_narrow(struct lister *l)
{
    struct kernel *last = &l->list[l->count > 0 ? l->count - 1 : 0];
    if (l->narrow == NARROW_NONE || l->count == 0 || last->kind != KERNEL_MATMUL)
        return;
    last->narrow = true;
    last->bytes -= (l->e - narrow_bytes(l->narrow)) * (double)last->batch * (double)last->k *
                   ((double)last->m + (double)last->n);
}

/* In front of a product of operands with a scale for each block, Transformer Engine puts the scales in the order that tensor
 * cores read, a kernel for each operand, of all experts at once (swizzle_scaling_factors(); its pull requests 2019 and 3011, of
 * which the latter does away with it for NVFP4 in May 2026). */
static void add_swizzle(struct lister *l, double elements)
{
    const double scale = l->narrow == NARROW_NVFP4 ? 1.0 / 16 : 1.0 / 32;
    if ((l->narrow == NARROW_NVFP4 || l->narrow == NARROW_MXFP8) && l->model->framework &&
        l->model->framework->swizzles_scales)
        add(l,
            (struct kernel){.kind = KERNEL_MEMORY, .launches = 1, .bytes = elements * 2 * scale});
}

static void add_narrow_matmul(struct lister *l, enum matmul_layout layout, int64_t batch, int64_t m,
                              int64_t n, int64_t k)
{
    add_swizzle(l, (double)batch * (double)m * (double)k);
    add_swizzle(l, (double)batch * (double)n * (double)k);
    add_matmul(l, layout, batch, m, n, k);
    make_narrow(l);
}

/* Scaling and casting `elements` of an operand, as Transformer Engine does it: a pass for the largest
 * value where a tensor has one scale (fp8 by current scaling, NVFP4's outer scale; by delayed scaling the cast
 * finds it for the next step), and one that
 * reads and writes the narrow copies, by rows and for the gradient of the weights by columns. */
static void add_cast(struct lister *l, double elements)
{
    const int copies = l->pass == PASS_FWD_NOGRAD ? 1 : 2;
    if (l->cast_part > 1)
        elements /= l->cast_part;
    if (l->narrow == NARROW_NONE)
        return;
    if (l->narrow == NARROW_NVFP4 || (l->narrow == NARROW_FP8 && !l->delayed_scaling))
        add_memory(l, elements * l->e);
    add_memory(l, elements * (l->e + copies * narrow_bytes(l->narrow)));
}

/* The gradient of weights [n, k] from `rows` rows. It is added to a sum, mostly fp32: inside the product,
 * or with the old list by a kernel that reads it once and the sum once, and writes the sum. */
static void add_weight_grad(struct lister *l, int64_t batch, int64_t n, int64_t k, int64_t rows)
{
    const double weights = (double)batch * (double)n * (double)k;
    add_narrow_matmul(l, LAYOUT_NT, batch, n, k, rows);
    if (l->unfused || (l->model->framework && l->model->framework->narrow_grads)) {
        add_memory(l, weights * 3 * l->e);
        return;
    }
    if (l->count > 0) {
        struct kernel *last = &l->list[l->count - 1];
        last->accumulate = true;
        last->out_bytes = model_grad_bytes(l->model) == 2 ? 2 : 4;
        last->bytes += weights * (2 * last->out_bytes - l->e);
    }
}

/* The adapter beside a linear [k -> n]: two products by a rank, and a sum with what the linear
 * gives, or backwards with its gradient. alpha / r is a kernel of its own, each way, in frameworks
 * (peft's lora/layer.py; ParallelLinearAdapter of Megatron Bridge). Dropout of its input reads and writes it and a
 * mask of a byte an element, and backwards the gradient. A narrow base is made wide before
 * it is multiplied. */
static void add_adapter(struct lister *l, int64_t rows, int64_t k, int64_t n)
{
    const int64_t r = l->model->lora.rank;
    const bool scales = l->model->framework && !l->model->framework->fused_adapter_scale;
    const double scale = scales ? 2 * (double)rows * (double)n * l->e : 0;
    const double dropout = l->model->lora.dropout ? (2 * l->e + 1) * (double)rows * (double)k : 0;
    l->in_adapter = true;
    switch (l->pass) {
    case PASS_FWD:
    case PASS_FWD_NOGRAD:
        add_memory(l, dropout);
        add_matmul(l, LAYOUT_TN, 1, rows, r, k);
        add_matmul(l, LAYOUT_TN, 1, rows, n, r);
        add_memory(l, scale);
        add_memory(l, 3 * (double)rows * (double)n * l->e);
        break;
    case PASS_BWD_INPUT:
    case PASS_BWD_REST:
        add_memory(l, scale);
        add_matmul(l, LAYOUT_NN, 1, rows, r, n);
        add_matmul(l, LAYOUT_NN, 1, rows, k, r);
        add_memory(l, dropout);
        add_memory(l, 3 * (double)rows * (double)k * l->e);
        break;
    case PASS_BWD_WEIGHT:
        add_matmul(l, LAYOUT_NT, 1, n, r, rows);
        add_matmul(l, LAYOUT_NT, 1, r, k, rows);
        break;
    case PASS_UPDATE:
    case PASS_COUNT:
        break;
    }
    l->in_adapter = false;
}

/* A base of 4 bits by GPTQ becomes wide by PyTorch's operators: shift to 32 bits, cast to 8, mask, the scales
 * and the zeros of each row, difference, product (auto_gptq 0.5.1, nn_modules/qlinear/qlinear_cuda.py). The
 * forward's product keeps what came out for the backward. */
static void add_gptq_base(struct lister *l, double weights)
{
    static const double bytes[] = {4.5, 5, 2, 2, 1, 3, 5};
    if (l->pass == PASS_FWD || l->pass == PASS_FWD_NOGRAD)
        for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
            add_memory(l, weights * bytes[i]);
}

static void add_base(struct lister *l, int64_t k, int64_t n)
{
    const double weights = (double)k * (double)n;
    if (l->model->lora.rank > 0 && l->model->lora.base == LORA_BASE_GPTQ)
        add_gptq_base(l, weights);
    else if (l->model->lora.rank > 0 && l->model->lora.base != LORA_BASE_SAME)
        add_memory(l, weights * (model_base_bytes_per_param(l->model) + l->e));
}

/* torchao casts a weight in each forward, after a pass for its largest value, and once more, transposed, in each
 * backward (torchao/testing/training/roofline_utils.py counts the same bytes). */
static void add_weight_cast(struct lister *l, double weights)
{
    const bool ahead = l->pass == PASS_FWD || l->pass == PASS_FWD_NOGRAD;
    if (l->narrow == NARROW_NONE || !l->model->framework || !l->model->framework->casts_weights)
        return;
    if (ahead && (l->narrow == NARROW_NVFP4 || (l->narrow == NARROW_FP8 && !l->delayed_scaling)))
        add_memory(l, weights * l->e);
    add_memory(l, weights * (l->e + narrow_bytes(l->narrow)));
}

/* One linear [k -> n] over `rows` rows, in the current pass. Its input is cast in the forward, the
 * gradient of its output in front of the input's gradient. */
static void add_linear(struct lister *l, int64_t rows, int64_t k, int64_t n)
{
    add_base(l, k, n);
    switch (l->pass) {
    case PASS_FWD:
    case PASS_FWD_NOGRAD:
        add_cast(l, (double)rows * (double)k);
        add_weight_cast(l, (double)k * (double)n);
        add_narrow_matmul(l, LAYOUT_TN, 1, rows, n, k);
        break;
    case PASS_BWD_INPUT:
    case PASS_BWD_REST:
        add_cast(l, (double)rows * (double)n);
        add_weight_cast(l, (double)k * (double)n);
        add_narrow_matmul(l, LAYOUT_NN, 1, rows, k, n);
        break;
    case PASS_BWD_WEIGHT:
        add_weight_grad(l, 1, n, k, rows);
        if (l->biases) /* the sum of the output's gradient over the rows */
            add_memory(l, (double)rows * (double)n * l->e);
        break;
    case PASS_UPDATE:
    case PASS_COUNT:
        break;
    }
}

/* The share of the bandwidth of torch.sum() over a short dimension: 23 to 43 % (pytorch/pytorch, pull request 191803). */
#define SHORT_SUM_SHARE 0.33

/* What steps of a linear's product add: a device copies its own rows to where the others read them, or sums what it
 * got from them, T tensors of its own rows. */
static void add_step_copies(struct lister *l, bool first, int64_t rows, int64_t k, int64_t n)
{
    const enum kernel_beside beside = stepped(l, first);
    const bool ahead = l->pass == PASS_FWD || l->pass == PASS_FWD_NOGRAD;
    const double e = l->model->gathers_fp8 ? 1 : l->e;
    if (beside == BESIDE_GATHER)
        add_memory(l, 2 * e * (double)rows * (double)(ahead ? k : n) / l->ways);
    if (beside == BESIDE_SCATTER)
        add(l, (struct kernel){.kind = KERNEL_MEMORY,
                               .share = SHORT_SUM_SHARE,
                               .bytes = l->e * (double)rows * (double)n * (1 + 1.0 / l->ways)});
}

/* Of how many parts of the rows a device casts one in front of a linear of a group: what is gathered is cast before. */
static int cast_part(const struct lister *l, bool first)
{
    const bool ahead = l->pass == PASS_FWD || l->pass == PASS_FWD_NOGRAD;
    return l->model->gathers_fp8 && l->model->sequence_parallel && ahead == first ? l->ways : 0;
}

/* The first or the second linear of an item, with the adapters of its parts. */
static void add_adapted(struct lister *l, bool first, int64_t rows, int64_t k, int64_t n)
{
    struct lora_product list[LORA_PRODUCTS];
    const int before = l->count, num = lora_products(l->model, l->index, list);
    int64_t whole = 0;
    l->cast_part = cast_part(l, first);
    add_linear(l, rows, k, n);
    l->cast_part = 0;
    for (int i = before; i < l->count; i++)
        share_with_collective(l, &l->list[i], first);
    add_step_copies(l, first, rows, k, n);
    for (int i = 0; i < num; i++)
        whole += list[i].first == first ? list[i].out : 0;
    for (int i = 0; i < num; i++)
        if (list[i].adapted && list[i].first == first)
            add_adapter(l, rows, k, divide_up(n * list[i].out, whole));
}

static bool forward(const struct lister *l)
{
    return l->pass == PASS_FWD || l->pass == PASS_FWD_NOGRAD;
}

static bool for_input(const struct lister *l)
{
    return l->pass == PASS_BWD_INPUT || l->pass == PASS_BWD_REST;
}

/* Bytes of [t, h] where the group divides tokens for norms and dropouts. */
static double hidden_bytes(const struct lister *l)
{
    const double all = (double)l->tokens * l->model->hidden * l->e;
    return l->model->sequence_parallel ? all / l->ways : all;
}

/* RMSNorm by PyTorch's operators (LlamaRMSNorm of transformers): cast to fp32, square, mean, product
 * with 1 / rms, cast, product with the weights. Backwards each has one of its own, the products with
 * the weights and with 1 / rms have two, and the two gradients of the fp32 input are added. */
static void add_eager_norm(struct lister *l)
{
    const double e = l->e, x = hidden_bytes(l) / e;
    if (forward(l)) {
        add_scattered(l, x * (e + 4), x);
        add_memory(l, x * 8);
        add_memory(l, x * 4);
        add_scattered(l, x * 8, x);
        add_memory(l, x * (4 + e));
        add_scattered(l, x * 2 * e, x);
    } else if (for_input(l)) {
        add_scattered(l, x * 2 * e, x);   /* product with the weights */
        add_scattered(l, x * (e + 4), x); /* cast */
        add_scattered(l, x * 8, x);       /* product with 1 / rms */
        add_memory(l, x * 12);            /* product with the input, */
        add_memory(l, x * 4);             /* summed over a row */
        add_memory(l, x * 8);             /* square */
        add_memory(l, x * 12);            /* both gradients */
        add_memory(l, x * (4 + e));       /* cast */
    } else {
        add_memory(l, x * 3 * e);
        add_memory(l, x * e);
    }
}

/* A norm of [t, h]. Its backward reads gradient and input and writes a gradient; the gradients of
 * its own weights read both once more. */
static void add_norm(struct lister *l)
{
    if (l->model->eager_norm && l->model->rms_norm)
        add_eager_norm(l);
    else if (forward(l))
        add_memory(l, 2 * hidden_bytes(l));
    else if (for_input(l))
        add_memory(l, 3 * hidden_bytes(l));
    else
        add_memory(l, 2 * hidden_bytes(l));
}

/* The norms of an attention or MLP item. */
static void add_norms(struct lister *l)
{
    const int norms = model_item_norms(l->model, l->item->kind);
    for (int i = 0; i < norms; i++)
        add_norm(l);
}

/* Bias, dropout and residual add after an output projection. Forward reads output and residual and
 * writes the sum. Backward: dropout reads a gradient and its mask and writes a gradient; where the
 * two branches meet their gradients are added (3). */
static void add_residual(struct lister *l)
{
    const double x = hidden_bytes(l), masked = x / l->e * l->mask;
    if (model_is_parallel(l->model) && l->item->kind == ITEM_ATTENTION)
        return; /* the MLP item adds both outputs at once */
    if (forward(l)) {
        add_memory(l, (model_is_parallel(l->model) ? 4 : 3) * x + masked);
    } else if (for_input(l)) {
        if (l->mask > 0)
            add_memory(l, 2 * x + masked);
        add_memory(l, 3 * x);
    }
}

/* --- attention -------------------------------------------------------------------------------- */

struct heads {
    int64_t query, key;  /* heads of queries and of keys on one device */
    int64_t wide, width; /* of a head of queries and of values */
    bool causal;
};

static struct heads heads_of(const struct lister *l)
{
    const struct model *m = l->model;
    const int64_t width = m->head_dim > 0 ? m->head_dim : m->hidden / m->heads;
    const int64_t keys = m->kv_heads > 0 && m->kv_rank == 0 ? m->kv_heads : m->heads;
    if (m->kv_rank > 0)
        return (struct heads){.query = divide_up(m->heads, l->ways),
                              .key = divide_up(m->heads, l->ways),
                              .wide = width + m->rope_dim,
                              .width = m->v_dim,
                              .causal = true};
    return (struct heads){.query = divide_up(m->heads, l->ways),
                          .key = divide_up(keys, l->ways),
                          .wide = width,
                          .width = width,
                          .causal = m->task == TASK_CAUSAL_LM};
}

static void add_fused_core(struct lister *l, const struct heads *h)
{
    const double s = l->model->seq, batch = (double)l->samples * (double)h->query;
    const double pairs = (double)model_attention_pairs(l->model, l->item->layer);
    const double flops = 2 * batch * pairs * (double)(h->wide + h->width);
    const double rows = (double)l->samples * s * l->e;
    const double q = rows * (double)(h->query * h->wide), k = rows * (double)(h->key * h->wide);
    const int64_t length = model_core_tokens(l->model);
    const struct kernel kernel = {.kind = KERNEL_ATTENTION,
                                  .backward = !forward(l),
                                  .early = l->model->attention == ATTENTION_FLASH1,
                                  .narrow = l->fp8_attention,
                                  .causal = h->causal,
                                  .batch = divide_up(l->tokens * h->query, length),
                                  .m = length,
                                  .k = (h->wide + h->width) / 2,
                                  /* backward repeats the scores: 5 products for 2 (Dao 2023) */
                                  .flops = forward(l) ? flops : 2.5 * flops,
                                  .bytes = forward(l) ? 2 * q + 2 * k : 4 * q + 4 * k};
    if (l->fp8_attention) { /* queries, keys, values, and the output's gradient, each by a scale of its own */
        const double cast = forward(l) ? q + 2 * k : q;
        if (!l->delayed_scaling)
            add_memory(l, cast);
        add_memory(l, cast * (l->e + 1) / l->e);
    }
    add(l, kernel);
}

/* Scale, mask and softmax. Megatron-LM has one kernel for them, which takes more than 16 and at
 * most 2048 tokens, and a multiple of 4 matrices (is_kernel_available() in
 * megatron/model/fused_softmax.py, 2021). The kernel of a causal model reads the unmasked half of
 * the scores and writes all. Where it cannot be used, and for eager attention, there are five, on
 * fp32: cast, scale, mask, softmax, cast. */
static void add_softmax(struct lister *l, int64_t matrices, int64_t s, bool causal)
{
    const double scores = (double)matrices * (double)s * (double)s, read = causal ? 0.5 : 1;
    if (l->model->attention != ATTENTION_EAGER && s > 16 && s <= 2048 && s % 4 == 0 &&
        matrices % 4 == 0) {
        add_memory(l, scores * l->e * (forward(l) ? 1 + read : 1 + 2 * read));
        return;
    }
    add_memory(l, scores * (l->e + 4));
    add_memory(l, scores * 8);
    add_memory(l, scores * 8);
    add_memory(l, scores * (forward(l) ? 8 : 12));
    add_memory(l, scores * (l->e + 4));
}

/* Scores, softmax, dropout and context through memory. */
static void add_unfused_core(struct lister *l, const struct heads *h)
{
    const int64_t batch = l->samples * h->query, s = l->model->seq;
    const double scores = (double)batch * (double)s * (double)s;
    if (forward(l)) {
        add_matmul(l, LAYOUT_TN, batch, s, s, h->wide);
        add_softmax(l, batch, s, h->causal);
        if (l->mask > 0)
            add_memory(l, scores * (2 * l->e + l->mask));
        add_matmul(l, LAYOUT_NN, batch, s, h->width, s);
        add_memory(l, 2 * (double)batch * (double)(s * h->width) * l->e); /* heads side by side */
        return;
    }
    add_memory(l, 2 * (double)batch * (double)(s * h->width) * l->e);
    add_matmul(l, LAYOUT_TN, batch, s, s, h->width); /* gradient of the probabilities */
    add_matmul(l, LAYOUT_NT, batch, s, h->width, s); /* of the values */
    if (l->mask > 0)
        add_memory(l, scores * (2 * l->e + l->mask));
    add_softmax(l, batch, s, h->causal);
    add_matmul(l, LAYOUT_NN, batch, s, h->wide, s); /* of queries */
    add_matmul(l, LAYOUT_NT, batch, s, h->wide, s); /* of keys */
}

static void add_core(struct lister *l, const struct heads *h)
{
    if (l->pass == PASS_BWD_WEIGHT)
        return;
    if (l->unfused)
        add_unfused_core(l, h);
    else
        add_fused_core(l, h);
}

/* PyTorch's operators for rotary positions of x bytes: negate a half, concatenate, two products with the table, their sum;
 * backwards as many (apply_rotary_pos_emb() of transformers). */
static void add_eager_rope(struct lister *l, double x)
{
    add_scattered(l, x, x / l->e / 2);
    add_memory(l, 2 * x);
    add_scattered(l, 2 * x, x / l->e);
    add_scattered(l, 2 * x, x / l->e);
    add_memory(l, 3 * x);
}

/* Latent attention turns rope_dim numbers of each query, and of one key that all heads share. One kernel turns the queries
 * in place; another reads keys, values and the shared key, and writes keys as wide as queries, and values
 * (fused_apply_mla_rope_for_q() and _kv() of megatron/core/fusions/fused_mla_yarn_rope_apply.py, 0.13). By operators
 * heads are joined from both parts (DeepseekV3Attention of transformers). Backwards the same goes the other way. */
static void add_latent_rope(struct lister *l, const struct heads *h)
{
    const double t = (double)l->tokens * l->e, a = (double)h->query, turned = l->model->rope_dim,
                 kept = (double)h->wide - turned;
    if (l->model->eager_rope) {
        add_eager_rope(l, t * (a + 1) * turned);
        add_memory(l, t * 2 * a * (double)h->wide);
        add_memory(l, t * (a * (kept + (double)h->wide) + turned));
        return;
    }
    add_memory(l, t * 2 * a * turned);
    add_memory(l, t * (a * (kept + (double)h->wide + 2 * (double)h->width) + turned));
}

/* Rotary positions of queries and keys. */
static void add_rope(struct lister *l, const struct heads *h)
{
    const double x = (double)l->tokens * (double)((h->query + h->key) * h->wide) * l->e;
    if (!l->model->rope || l->pass == PASS_BWD_WEIGHT)
        return;
    if (l->model->kv_rank > 0)
        add_latent_rope(l, h);
    else if (l->model->eager_rope)
        add_eager_rope(l, x);
    else
        add_memory(l, 2 * x);
}

/* Whether the product for the input's gradient is left out: after a frozen prefix nobody needs it,
 * unless a norm in front of it trains. */
static bool drops_input_grad(const struct lister *l)
{
    return l->pass == PASS_BWD_REST && l->model->family == FAMILY_BERT;
}

/* The linears from hidden to queries, keys and values. Latent attention (DeepSeek-V2) compresses
 * both, norms the compressed numbers, and only then makes heads of them. */
static void add_projections(struct lister *l, const struct heads *h)
{
    const struct model *m = l->model;
    const int64_t t = l->tokens, hidden = m->hidden;
    if (m->kv_rank == 0) {
        const int64_t gates = m->block.gated_heads ? h->query * h->wide : 0;
        add_adapted(l, true, t, hidden, h->query * h->wide + h->key * (h->wide + h->width) + gates);
        return;
    }
    if (m->q_rank > 0)
        add_linear(l, t, hidden, m->q_rank);
    add_linear(l, t, m->q_rank > 0 ? m->q_rank : hidden, h->query * h->wide);
    add_linear(l, t, hidden, m->kv_rank + m->rope_dim);
    add_linear(l, t, m->kv_rank, h->key * (h->wide - m->rope_dim + h->width));
    add_memory(l, (forward(l) ? 2 : 3) * (double)t * (m->q_rank + m->kv_rank) * l->e);
}

/* Norms of queries and keys: one kernel each way, and one for the gradients of the weights. */
static void add_qk_norm(struct lister *l, const struct heads *h)
{
    const double x = (double)l->tokens * (double)((h->query + h->key) * h->wide) * l->e;
    if (l->model->block.qk_norm != QK_NORM_NONE)
        add_memory(l, (for_input(l) ? 3 : 2) * x);
}

/* The gate of attention's output: reads both and writes the product; backwards reads the gradient too and
 * writes two. */
static void add_head_gate(struct lister *l, const struct heads *h)
{
    const double x = (double)l->tokens * (double)(h->query * h->width) * l->e;
    if (l->model->block.gated_heads && l->pass != PASS_BWD_WEIGHT)
        add_memory(l, (forward(l) ? 3 : 5) * x);
}

static void list_attention(struct lister *l)
{
    const struct heads h = heads_of(l);
    const int64_t t = l->tokens, hidden = l->model->hidden;
    const int64_t columns = h.query * h.wide + h.key * (h.wide + h.width);
    if (forward(l)) {
        add_norms(l);
        add_projections(l, &h);
        if (l->unfused && l->biases) /* the bias of the old list is a kernel of its own */
            add_memory(l, 2 * (double)t * (double)columns * l->e);
        add_qk_norm(l, &h);
        add_rope(l, &h);
        add_core(l, &h);
        add_head_gate(l, &h);
        add_adapted(l, false, t, h.query * h.width, hidden);
        add_residual(l);
        return;
    }
    add_residual(l);
    add_adapted(l, false, t, h.query * h.width, hidden);
    add_head_gate(l, &h);
    add_core(l, &h);
    add_rope(l, &h);
    add_qk_norm(l, &h);
    if (!drops_input_grad(l))
        add_projections(l, &h);
    add_norms(l);
}

/* --- states ----------------------------------------------------------------------------------- */

/* Dims of a state-space item on one device, as in partition/model/model_state.c. */
struct states {
    int64_t H, P, D, G, N, Q, C; /* C: channels of the convolution */
    int64_t chunks;              /* of all samples */
};

static struct states states_of(const struct lister *l)
{
    const struct state_space *t = &l->model->state;
    const bool mamba = t->kind == MIXER_MAMBA;
    struct states got = {.H = divide_up(t->heads, l->ways),
                         .P = t->head_dim,
                         .G = divide_up(t->groups, l->ways),
                         .N = t->state};
    got.D = got.H * got.P;
    got.Q = t->chunk < l->model->seq ? t->chunk : l->model->seq;
    got.Q = got.Q > 0 ? got.Q : 1;
    got.C = t->conv > 0 ? got.D + (mamba ? 0 : 2 * got.G * got.N) : 0;
    got.chunks = l->samples * divide_up(l->model->seq, got.Q);
    return got;
}

/* `numbers` of each token, read or written. */
static void add_tokens(struct lister *l, double numbers)
{
    add_memory(l, (double)l->tokens * numbers * l->e);
}

/* A product in a chunk, for each of `batch`. The kernels are Triton's, of which no curve is measured:
 * they take as long as a library's product of that shape. */
static void add_chunk_product(struct lister *l, int64_t batch, int64_t m, int64_t n, int64_t k)
{
    add_matmul(l, LAYOUT_TN, batch, m, n, k);
}

/* Mamba-2's state-space dual: the kernels of _mamba_chunk_scan_combined_fwd() and _bwd() of mamba_ssm
 * 2.2 (ops/triton/ssd_combined.py), in their order. States and C B^T are fp32. */
static void add_dual_scan(struct lister *l, const struct states *t)
{
    const double states = (double)(t->chunks * t->H) * (double)(t->N * t->P);
    const double steps = (double)l->tokens * (double)t->H * (l->e + 8);
    const int64_t heads = t->chunks * t->H, groups = t->chunks * t->G;
    add_memory(l, steps);                           /* decays, summed along a chunk */
    add_chunk_product(l, heads, t->P, t->N, t->Q);  /* states of chunks */
    add_memory(l, states * (8 + l->e));             /* passed from chunk to chunk */
    add_chunk_product(l, groups, t->Q, t->Q, t->N); /* C B^T */
    if (forward(l)) {
        add_chunk_product(l, heads, t->Q, t->P, t->Q + t->N); /* outputs, from chunk and state */
        return;
    }
    add_chunk_product(l, heads, t->P, t->N, t->Q);        /* gradients: of the states used, */
    add_memory(l, states * 12);                           /* passed back, */
    add_chunk_product(l, heads, t->Q, t->P, t->Q + t->N); /* of the inputs, */
    add_chunk_product(l, heads, t->Q, t->N, t->P);        /* of B by the states, */
    add_chunk_product(l, heads, t->Q, t->N, t->P);        /* of C by the states, */
    add_chunk_product(l, heads, t->Q, t->Q, t->P);        /* of C B^T, */
    add_chunk_product(l, groups, t->Q, t->N, t->Q);       /* of B */
    add_chunk_product(l, groups, t->Q, t->N, t->Q);       /* and C by it, */
    add_chunk_product(l, heads, t->Q, t->Q, t->P);        /* of the decays */
    add_memory(l, 2 * steps);
}

/* The gated delta rule: chunk_gated_delta_rule_fwd() and _bwd() of flash-linear-attention 0.4
 * (ops/gated_delta_rule/chunk.py). The state goes from chunk to chunk inside one kernel, so that a head is one block
 * of work. Queries and keys are normed in front, and repeated for each head of values. */
static void add_delta_scan(struct lister *l, const struct states *t)
{
    const int64_t heads = t->chunks * t->H, Q = t->Q, N = t->N, P = t->P;
    const int64_t all = l->samples * t->H, tokens = l->model->seq;
    const double triangle = (double)heads * (double)(Q * Q);
    if (forward(l)) {
        add_tokens(l, 2 * (double)(t->G + t->H) * (double)N); /* repeated; */
        add_tokens(l, 2 * (double)t->H * (double)N);          /* norms */
        add_tokens(l, 2 * (double)t->H * (double)N);
        add_memory(l, (double)l->tokens * (double)t->H * 8); /* decays, summed along a chunk */
        add_chunk_product(l, heads, Q, Q, N);                /* K K^T */
        add_memory(l, triangle * (4 + l->e));                /* its triangle is inverted */
    }
    add_chunk_product(l, heads, Q, N + P, Q);    /* W and U; again backwards */
    add_chunk_product(l, all, N, P, 2 * tokens); /* states, again backwards */
    if (forward(l)) {
        add_chunk_product(l, heads, Q, P, N + Q + Q * N / P); /* outputs */
        return;
    }
    add_chunk_product(l, heads, Q, Q + P, N);         /* gradients: of new values, */
    add_chunk_product(l, all, N, P, 3 * tokens);      /* of the states, */
    add_chunk_product(l, heads, Q, N, 3 * P + 2 * Q); /* of queries, keys and W, */
    add_chunk_product(l, heads, Q, 2 * Q, N + P);     /* their scores */
    add_chunk_product(l, heads, Q, N + P, 3 * Q);     /* of keys and values through W and U, */
    add_chunk_product(l, heads, Q, Q, 2 * Q + N);     /* of the triangle */
    add_memory(l, (double)l->tokens * (double)t->H * 8);
    add_tokens(l, 6 * (double)t->H * (double)N); /* of the norms */
    add_tokens(l, 2 * (double)(t->G + t->H) * (double)N);
}

/* Mamba's selective scan, one kernel each way (csrc/selective_scan of mamba_ssm 2.2). An exponential per
 * channel, number of the state and token takes longer than its seven operations: the units for it do 1/16
 * of the fp32 operations (CUDA C++ Programming Guide, table of arithmetic throughput; Shah et al. 2024,
 * section 3.1). The backward computes states and exponentials again. */
#define EXPONENTIAL 16.0
static void add_selective_scan(struct lister *l, const struct states *t)
{
    const int64_t R = l->model->state.rank;
    const double work = EXPONENTIAL * (double)l->tokens * (double)(t->D * t->N);
    add_linear(l, l->tokens, t->D, R + 2 * t->N);
    add_linear(l, l->tokens, R, t->D);
    if (l->pass == PASS_BWD_WEIGHT)
        return;
    if (l->model->state.inner_norms) /* time steps, B, C */
        for (int i = 0; i < 3; i++)
            add_tokens(l, (forward(l) ? 2 : 3) * (double)(i == 0 ? R : t->N));
    add(l, (struct kernel){.kind = KERNEL_PLAIN,
                           .fp32 = true,
                           .flops = forward(l) ? work : 2 * work,
                           .bytes = (double)l->tokens * l->e *
                                    ((forward(l) ? 5 : 9) * (double)t->D + 2 * (double)t->N)});
}

/* The depthwise convolution with its activation (causal_conv1d), which backwards runs again in front. */
static void add_convolution(struct lister *l, const struct states *t)
{
    add_tokens(l, 2 * (double)t->C);
    if (!forward(l))
        add_tokens(l, 3 * (double)t->C);
}

static void add_states(struct lister *l)
{
    const struct states t = states_of(l);
    const int kind = l->model->state.kind;
    const int64_t in = kind == MIXER_MAMBA    ? 2 * t.D
                       : kind == MIXER_MAMBA2 ? 2 * t.D + 2 * t.G * t.N + t.H
                       : kind == MIXER_DELTA  ? 2 * t.D + 2 * t.G * t.N
                                              : 3 * t.D;
    const int64_t second = kind == MIXER_DELTA ? 2 * t.H : kind == MIXER_LIGHTNING ? t.D : 0;
    const bool both = kind == MIXER_DELTA || kind == MIXER_LIGHTNING || l->model->state.norm;
    l->biases = l->model->state.bias > 0;
    add_adapted(l, true, l->tokens, l->model->hidden, in);
    if (second > 0) /* rates and decays; the gate */
        add_linear(l, l->tokens, l->model->hidden, second);
    if (kind == MIXER_MAMBA)
        add_selective_scan(l, &t);
    if (l->pass != PASS_BWD_WEIGHT) {
        if (t.C > 0)
            add_convolution(l, &t);
        else
            add_tokens(l, (forward(l) ? 2 : 3) * 3 * (double)t.D); /* activation */
        if (kind == MIXER_DELTA)
            add_delta_scan(l, &t);
        else if (kind != MIXER_MAMBA)
            add_dual_scan(l, &t);
        if (kind != MIXER_MAMBA) { /* the gate, with the norm where there is one */
            add_tokens(l, (forward(l) ? 3 : 5) * (double)t.D);
            if (kind == MIXER_LIGHTNING)
                add_tokens(l, (forward(l) ? 2 : 3) * (double)t.D);
        }
    } else if (both) { /* of the norm's weights */
        add_tokens(l, 2 * (double)t.D);
    }
    l->biases = l->model->state.out_bias > 0;
    add_adapted(l, false, l->tokens, t.D, l->model->hidden);
}

static void list_state(struct lister *l)
{
    if (forward(l))
        add_norms(l);
    else
        add_residual(l);
    if (l->model->state.beside_attention) {
        const struct heads h = heads_of(l);
        add_projections(l, &h);
        add_rope(l, &h);
        add_core(l, &h);
        add_adapted(l, false, l->tokens, h.query * h.width, l->model->hidden);
        add_tokens(l, l->pass == PASS_BWD_WEIGHT ? 0 : 3 * (double)l->model->hidden);
    }
    add_states(l);
    if (forward(l))
        add_residual(l);
    else
        add_norms(l);
}

/* --- MLP -------------------------------------------------------------------------------------- */

/* The activation between the linears, [rows, width]. GELU: forward 2, backward 3. SwiGLU: forward
 * reads gate and up, backward reads both and a gradient and writes two. By operators silu (2) and
 * the product (3) are two kernels, and backwards three (3 each). An input that is kept in fp8 is cast, and
 * backwards cast back. */
static void add_activation(struct lister *l, int64_t rows, int64_t width)
{
    const double x = (double)rows * (double)width * l->e;
    const bool gated = l->model->gated_mlp;
    const bool casts = l->model->fp8_activation && !model_item_has_experts(l->model, l->index);
    if (gated && l->model->eager_activation && l->pass != PASS_BWD_WEIGHT) {
        add_memory(l, 3 * x);
        add_memory(l, (forward(l) ? 2 : 3) * x);
        if (for_input(l))
            add_memory(l, 3 * x);
    } else if (forward(l))
        add_memory(l, (gated ? 3 : 2) * x);
    else if (for_input(l))
        add_memory(l, (gated ? 5 : 3) * x);
    if (casts && (l->pass == PASS_FWD || for_input(l)))
        add_memory(l, 2 * (double)rows * (double)width * (l->e + 1));
}

static void add_dense(struct lister *l, int64_t width)
{
    const int64_t t = l->tokens, hidden = l->model->hidden;
    const int64_t share = divide_up(width, l->ways),
                  first = l->model->gated_mlp ? 2 * share : share;
    if (width <= 0)
        return;
    if (forward(l)) {
        add_adapted(l, true, t, hidden, first);
        add_activation(l, t, share);
        add_adapted(l, false, t, share, hidden);
        return;
    }
    add_adapted(l, false, t, share, hidden);
    add_activation(l, t, share);
    if (!drops_input_grad(l))
        add_adapted(l, true, t, hidden, first);
}

static void list_grouped(struct lister *l, int64_t experts, int64_t rows, int64_t k, int64_t n)
{
    if (l->pass == PASS_BWD_WEIGHT) {
        add_weight_grad(l, experts, n, k, rows);
        return;
    }
    add_cast(l, (double)experts * (double)rows * (double)(forward(l) ? k : n));
    if (forward(l))
        add_narrow_matmul(l, LAYOUT_TN, experts, rows, n, k);
    else
        add_narrow_matmul(l, LAYOUT_NN, experts, rows, k, n);
}

/* Linear [k -> n] of each local expert over `rows` rows, as one grouped product. Where each expert has
 * kernels of its own they run on several streams, so that the device takes no longer: 2,672 TFLOP/s on
 * a GB200, as much as grouped ones (Megatron-LM's discussion of DeepSeek-V3 on GB200, 2025). */
static void add_grouped(struct lister *l, int64_t experts, int64_t rows, int64_t k, int64_t n)
{
    const int before = l->count;
    list_grouped(l, experts, rows, k, n);
    for (int i = before; i < l->count; i++)
        if (l->list[i].launches == 0)
            l->list[i].launches = l->loops;
}

/* The biases of the experts' second linear [chosen, hidden], which no product of Megatron-LM's adds: for
 * each local expert bias x weight and the sum with its rows, both fp32, then all joined and cast
 * (TEGroupedMLP._apply_bias() in megatron/core/transformer/moe/experts.py, 0.16). Backwards casts to
 * fp32 and back, the products for bias and weight and their sums, and the rows joined again. The first
 * linear's biases are added by its product. tests/reference/gptoss_peer.py has PyTorch's own list. */
static void add_expert_biases(struct lister *l, int64_t chosen)
{
    static const struct {
        int passes[3]
                  [2]; /* forward, for the input, for the weights: bytes, and elements of e bytes */
        bool each;     /* one for each expert */
        bool scattered[3];
    } kernels[] = {
        {{{4, 0}, {4, 1}, {8, 0}},
         true,                            {true, false, true}  }, /* bias x weight; cast back; gradient x weight */
        {{{8, 1}, {8, 0}, {4, 0}},
         true,                            {true, true, false}  }, /* sum; gradient x bias; summed over rows */
        {{{0, 0}, {4, 0}, {0, 0}}, true,  {false, false, false}}, /* summed over columns */
        {{{8, 0}, {0, 2}, {0, 0}}, false, {false, false, false}}, /* joined */
        {{{4, 1}, {4, 1}, {0, 0}}, false, {false, true, false} }, /* cast; cast to fp32 */
    };
    const int pass = forward(l) ? 0 : for_input(l) ? 1 : 2;
    const double x = (double)chosen * (double)l->model->hidden;
    if (!l->model->block.expert_mlp_bias || !l->model->framework ||
        !l->model->framework->loops_experts)
        return;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const int *bytes = kernels[i].passes[pass], before = l->count;
        add_scattered(l, x * (bytes[0] + bytes[1] * l->e), kernels[i].scattered[pass] ? x : 0);
        if (kernels[i].each && l->count > before)
            l->list[before].launches = l->loops;
    }
}

/* GPT-OSS clamps gate and up [rows, width] each, views of one tensor, and joins them: operators outside what
 * is compiled (weighted_bias_quick_geglu_impl() in megatron/core/fusions/fused_bias_geglu.py, 0.16). Backwards
 * a comparison with each limit gives a mask of bytes, the two of up are joined, and the masks choose from the gradient.
 * torch.compile of the layer leaves none of it. */
static void add_expert_clamp(struct lister *l, int64_t rows, int64_t width)
{
    const double n = (double)rows * (double)width, x = n * l->e;
    const struct framework *f = l->model->framework;
    if (!l->model->block.expert_clamp || !f || l->pass == PASS_BWD_WEIGHT ||
        (f->fused_activation && !f->loops_experts))
        return;
    if (forward(l)) {
        add_scattered(l, 2 * x, n);
        add_scattered(l, 2 * x, n);
    } else {
        for (int i = 0; i < 3; i++) /* limits: one of gate, two of up */
            add_scattered(l, x + n, n);
        add_memory(l, 3 * n);
        for (int i = 0; i < 2; i++)
            add_scattered(l, 2 * x + n, n);
    }
    add_memory(l, 4 * x);
}

/* The router's product in fp32. Megatron-LM's (megatron-te) multiplies 2-byte operands and writes
 * fp32 (RouterGatingLinearFunction in megatron/core/transformer/moe/moe_utils.py). A router that is
 * written in PyTorch casts tokens and weights, and multiplies them by fp32 units, which tf32 does
 * not replace by default (DeepseekV3TopkRouter of transformers; RouterGatingLinearFunction without
 * Transformer Engine). */
static void add_router(struct lister *l)
{
    const struct framework *framework = l->model->framework;
    const int64_t t = l->tokens, hidden = l->model->hidden, experts = l->model->experts;
    const enum narrow_format narrow = l->narrow;
    const bool casts = framework && framework->casts_router && l->e < 4;
    const int before = l->count;
    l->narrow = NARROW_NONE;
    if (casts && forward(l)) {
        add_memory(l, (double)t * (double)hidden * (l->e + 4));
        add_memory(l, (double)experts * (double)hidden * (l->e + 4));
    }
    add_linear(l, t, hidden, experts);
    for (int i = before; i < l->count; i++) {
        struct kernel *kernel = &l->list[i];
        if (kernel->kind != KERNEL_MATMUL || l->e >= 4)
            continue;
        kernel->fp32 = casts;
        if (forward(
                l)) /* backwards add_linear() has counted the tokens' gradient, or an fp32 sum */
            kernel->out_bytes = 4;
        kernel->bytes += (4 - l->e) * ((double)t * (double)experts +
                                       (casts ? (double)(t + experts) * (double)hidden : 0));
    }
    if (casts && for_input(l))
        add_memory(l, (double)t * (double)hidden * (l->e + 4));
    l->narrow = narrow;
}

/* What PyTorch's operators move beyond one kernel each for the permutation and the weighted sum of experts'
 * tokens, `moved` bytes (permute() and unpermute() of megatron/core/transformer/moe/moe_utils.py, 0.7). Forward
 * the sum begins with zeros and index_copy, and is a product and a sum of its own. Backwards the product has two
 * gradients, that of the weights is summed, index_copy's is a copy, and the tokens' own begins with zeros, to
 * which rows are added. */
static void add_permutation_operators(struct lister *l, double moved)
{
    if (l->pass == PASS_BWD_WEIGHT)
        return;
    add_memory(l, forward(l) ? moved : hidden_bytes(l));
    for (int i = 0; i < 2; i++)
        add_memory(l, 2 * moved);
    add_memory(l, forward(l) ? 0 : 2 * moved);
}

/* Kernels of Megatron-LM's router and of what it prepares for the dispatcher, forward, with
 * moe_router_fusion: 31, and 17 where the dispatcher prepares it in one (Megatron-LM's discussion of
 * DeepSeek-V3 on GB200, 2025). Of the backward none is published. */
#define ROUTER_LAUNCHES(sends_once) ((sends_once) ? 17 : 31)

/* Bytes that the permutation of tokens by expert moves, one way; the weighted sum of the experts' outputs moves them too. A
 * copy for each device comes through a dispatcher that sends tokens once, and is read and written beside the `moved`
 * bytes of the experts' rows. An all-to-all of copies needs one permutation to the order of devices and one to that of
 * experts (section 2.1.1 of Megatron-LM's discussion of DeepSeek-V3 on GB200, 2025). */
static double permuted_bytes(const struct lister *l, double moved, bool out)
{
    const struct model *m = l->model;
    const int ways = m->expert_ways > 1 ? m->expert_ways : 1;
    const bool loops = m->framework && m->framework->loops_experts;
    const bool sorts = loops && !m->sends_once && ways > 1 && m->experts > ways;
    if (loops && m->sends_once && ways > 1)
        return moved * (1 + model_expert_parts(m, ways) / m->experts_active);
    return (out ? 2 * moved : moved + hidden_bytes(l)) + (sorts ? 2 * moved : 0);
}

/* Narrow products take rows in multiples of 16 or 32, so Megatron-LM copies the experts' rows to a padded tensor in
 * front of them, and from one behind (Fp8Padding and Fp8Unpadding of Transformer Engine in TEGroupedMLP.forward()).
 * DeepEP and HybridEP pad as they permute. */
static void add_padding(struct lister *l, double moved)
{
    const struct framework *f = l->model->framework;
    if (l->narrow != NARROW_NONE && f && f->loops_experts && !l->model->sends_once &&
        l->pass != PASS_BWD_WEIGHT)
        add_memory(l, 2 * moved);
}

/* Router, permutation by expert, the experts' linears, and the weighted sum of their outputs. A
 * device computes as many rows as its own tokens choose, times model.expert_load: the experts of a
 * device are in balance, and the device with most tokens is what the others wait for. Where X < T
 * devices of a group divide each expert, they compute an X/T of its tokens. */
static void add_experts(struct lister *l)
{
    const struct model *m = l->model;
    const int64_t ways = m->expert_ways > 1 ? m->expert_ways : 1;
    const int64_t local = divide_up(m->experts, ways), all = l->tokens, hidden = m->hidden;
    const int64_t X = m->expert_tensor > 0 ? m->expert_tensor : l->ways;
    const int64_t t = divide_up(all * X, l->ways);
    const int64_t chosen = model_expert_tokens(m, t * m->experts_active);
    const int64_t rows = divide_up(chosen, local);
    const int64_t share = divide_up(m->expert_mlp, X);
    const int64_t first = m->gated_mlp ? 2 * share : share;
    const double moved = (double)chosen * (double)hidden * l->e;
    const bool loops = m->framework && m->framework->loops_experts;
    l->tokens = t;
    add_router(l);
    if (l->pass != PASS_BWD_WEIGHT) {
        add_memory(l, 3.0 * (double)t * m->experts * 4); /* softmax and choice, fp32 */
        if (loops && forward(l))
            l->list[l->count - 1].launches = ROUTER_LAUNCHES(m->sends_once) - 1;
    }
    l->dynamic = true;
    l->loops = loops && l->graphs != GRAPHS_STEP ? (int)local : 0;
    if (l->pass != PASS_BWD_WEIGHT)
        add_memory(l, permuted_bytes(l, moved, true));
    add_padding(l, moved);
    if (forward(l)) {
        add_grouped(l, local, rows, hidden, first);
        add_expert_clamp(l, chosen, share);
        add_activation(l, chosen, share);
        add_grouped(l, local, rows, share, hidden);
        add_expert_biases(l, chosen);
    } else {
        add_expert_biases(l, chosen);
        add_grouped(l, local, rows, share, hidden);
        add_expert_clamp(l, chosen, share);
        add_activation(l, chosen, share);
        add_grouped(l, local, rows, hidden, first);
    }
    add_padding(l, moved);
    if (l->pass != PASS_BWD_WEIGHT)
        add_memory(l, permuted_bytes(l, moved, false));
    if (m->framework && m->framework->permutes_by_operators)
        add_permutation_operators(l, moved);
    l->dynamic = false;
    l->tokens = all;
    add_dense(l, (int64_t)m->shared_experts * m->expert_mlp);
}

static void list_mlp(struct lister *l)
{
    if (forward(l))
        add_norms(l);
    else
        add_residual(l);
    if (model_item_has_experts(l->model, (int)(l->item - l->model->items)))
        add_experts(l);
    else
        add_dense(l, l->model->mlp);
    if (forward(l))
        add_residual(l);
    else
        add_norms(l);
}

/* --- embedding, head and the rest ------------------------------------------------------------- */

static int64_t vocab_share(const struct lister *l)
{
    /* padded to 128 columns a device, as Megatron-LM does by default */
    return divide_up(l->model->vocab, 128 * (int64_t)l->ways) * 128;
}

/* Look-up (2) and positions (3) with dropout. The gradient of the table is a dense tensor in
 * frameworks: it is cleared, rows are added to it, and it is added to the sum of micro-batches. */
static void list_embedding(struct lister *l)
{
    const struct model *m = l->model;
    const double x = (double)l->tokens * m->hidden * l->e;
    if (m->family == FAMILY_VIT) {
        if (!for_input(l))
            add_linear(l, l->samples * (m->seq - 1), (int64_t)m->channels * m->patch * m->patch,
                       m->hidden);
        if (forward(l))
            add_memory(l, 3 * x);
        return;
    }
    if (forward(l)) {
        add_memory(l, 2 * x);
        add_memory(l, (m->max_seq > 0 ? 3 : 0) * x);
        add_memory(l, m->block.embedding_norm ? 2 * x : 0);
        if (l->mask > 0)
            add_memory(l, hidden_bytes(l) * (2 + l->mask / l->e));
    } else if (for_input(l)) {
        add_memory(l, m->block.embedding_norm ? 3 * x : 0);
    } else if (l->pass == PASS_BWD_WEIGHT) {
        const double table = (double)vocab_share(l) * m->hidden;
        if (l->mask > 0)
            add_memory(l, hidden_bytes(l) * (2 + l->mask / l->e));
        add_memory(l, table * l->e);
        add_memory(l, 3 * x);
        add_memory(l, table * (l->unfused ? 3 * l->e : l->e + 8));
    }
}

/* Cross entropy of [rows, n] in fp32. The list of 2021 is Megatron-LM's vocab-parallel one: cast,
 * maximum, subtraction, exponential, sum, division (38 bytes an element with e = 2), and product and
 * cast backwards. Otherwise cast and log-softmax, and their two backwards; PyTorch's cross_entropy()
 * first clears a gradient of all log-softmax's numbers. A metric is a cast and a log-softmax.
 * Fused, a kernel reads the logits, and another reads them and writes their gradient. */
static void add_loss(struct lister *l, int64_t rows, int64_t n)
{
    const struct framework *framework = l->model->framework;
    const bool whole = framework && framework->whole_logits && l->ways > 1;
    const double x = (double)rows * (double)(whole ? l->model->vocab : n);
    if (whole && forward(l)) { /* pieces are copied out of the receive buffer, and joined */
        add_memory(l, 2 * x * l->e);
        add_memory(l, 2 * x * l->e);
    }
    for (int i = 0; framework && i < framework->metrics && l->pass == PASS_FWD; i++) {
        add_memory(l, x * (l->e + 4));
        add_memory(l, x * 8);
    }
    if (framework && framework->loss == LOSS_FUSED) {
        add_memory(l, (forward(l) ? 1 : for_input(l) ? 2 : 0) * x * l->e);
        return;
    }
    if (framework_loss_is_eager(framework) && for_input(l))
        add_memory(l, x * 4);
    if (forward(l)) {
        add_memory(l, x * (l->e + 4));
        if (l->unfused) {
            add_memory(l, x * 4);
            add_memory(l, x * 8);
            add_memory(l, x * 8);
            add_memory(l, x * 4);
        }
        add_memory(l, x * 8);
    } else if (for_input(l)) {
        add_memory(l, x * (l->unfused ? 8 : 12));
        add_memory(l, x * (l->e + 4));
    }
}

/* Logits capped by tanh: division, tanh and product (2 each), and backwards 2, 3 and 2. */
static void add_softcap(struct lister *l, int64_t rows, int64_t n)
{
    const double x = (double)rows * (double)n * l->e;
    if (l->model->block.softcap && l->pass != PASS_BWD_WEIGHT)
        add_memory(l, (forward(l) ? 6 : 7) * x);
}

static void list_head(struct lister *l)
{
    const struct model *m = l->model;
    const bool mlm = m->task == TASK_MLM, lm = mlm || m->task == TASK_CAUSAL_LM;
    const int64_t rows = mlm                        ? l->samples * model_masked_of(m->seq)
                         : lm || m->task == TASK_QA ? l->tokens
                                                    : l->samples;
    const int64_t n = lm ? vocab_share(l) : m->classes;
    const double x = (double)rows * m->hidden * l->e;
    if (l->pass == PASS_BWD_REST && !mlm)
        return;
    l->biases = l->biases && m->task != TASK_CAUSAL_LM;
    if (!forward(l)) {
        add_loss(l, rows, n);
        add_softcap(l, rows, n);
        add_linear(l, rows, m->hidden, n);
    }
    if (mlm) { /* dense, GELU, norm */
        if (l->pass != PASS_BWD_REST)
            add_linear(l, rows, m->hidden, m->hidden);
        add_memory(l, (forward(l) ? 4 : for_input(l) ? 6 : 2) * x);
    }
    if (forward(l)) {
        add_linear(l, rows, m->hidden, n);
        add_softcap(l, rows, n);
        add_loss(l, rows, n);
    }
}

static void list_pooler(struct lister *l)
{
    const double x = (double)l->samples * l->model->hidden * l->e;
    if (l->pass == PASS_BWD_REST)
        return;
    add_adapted(l, true, l->samples, l->model->hidden, l->model->hidden);
    if (l->pass != PASS_BWD_WEIGHT)
        add_memory(l, (forward(l) ? 2 : 3) * x);
}

/* An item of unknown inside: its flops, and its sizes once. The backward for the input and the one
 * for the weights each repeat the forward's flops. */
static void list_opaque(struct lister *l)
{
    const struct item *it = l->item;
    const double n = l->model->per_microbatch ? 1 : (double)l->samples;
    add(l, (struct kernel){.kind = KERNEL_PLAIN,
                           .flops = n * (double)it->fwd_flops,
                           .bytes = (double)it->params * l->model->param_bytes +
                                    n * (it->moved_bytes > 0
                                             ? (double)it->moved_bytes
                                             : (double)it->stash_bytes + (double)it->act_bytes)});
}

static void add_piece_core(struct lister *l, const struct model_piece *p)
{
    const double queries = (double)l->samples * (double)(p->rows * p->heads * p->in) * l->e;
    const double keys = (double)l->samples * (double)(p->groups * p->keys * p->out * p->in) * l->e;
    const double flops =
        4 * (double)l->samples * (double)(p->rows * p->heads) * (double)(p->keys * p->in);
    add(l, (struct kernel){.kind = KERNEL_ATTENTION,
                           .backward = !forward(l),
                           .causal = p->causal,
                           .batch = l->samples * p->groups * p->heads,
                           .m = p->rows / p->groups,
                           .k = p->in,
                           .flops = forward(l) ? flops : 2.5 * flops,
                           .bytes = (forward(l) ? 2 : 4) * (queries + keys)});
}

/* One operation of an item that is a list of them. */
static void add_piece(struct lister *l, const struct model_piece *p)
{
    const int64_t rows = l->samples * p->rows;
    const double x = (double)rows * (double)p->in * l->e;
    const bool weights = l->pass == PASS_BWD_WEIGHT;
    switch (p->kind) {
    case PIECE_LINEAR:
        l->biases = p->params > p->in * p->out;
        if (p->input != PIECE_INPUT_DATA || !for_input(l))
            add_linear(l, rows, p->in, p->out);
        break;
    case PIECE_CORE:
        if (!weights)
            add_piece_core(l, p);
        break;
    case PIECE_NORM:
        if (!weights || p->params > 0)
            add_memory(l, (for_input(l) ? 3 : 2) * x);
        break;
    case PIECE_ACTIVATION:
    case PIECE_GATE:
        if (!weights)
            add_memory(l, (forward(l) ? 2 : 3) * x + (p->kind == PIECE_ACTIVATION ? 0
                                                      : forward(l)                ? x
                                                                                  : 2 * x));
        break;
    case PIECE_ADD:
        add_memory(l, weights ? 0 : 3 * x);
        break;
    case PIECE_MOVE:
        add_memory(l, weights ? 0 : 2 * x);
        break;
    case PIECE_TABLE:
        if (forward(l)) {
            add_memory(l, 2 * x);
        } else if (weights) { /* cleared, added to by rows, added to the sum of micro-batches */
            add_memory(l, 3 * x);
            add_memory(l, (double)p->params * (2 * l->e + 8));
        }
        break;
    case PIECE_LOSS:
        add_loss(l, rows, p->in);
        break;
    case PIECE_NUMBERS:
        break;
    }
}

/* One pass of a multi-tensor optimizer: it reads gradient, weight and states, writes weight and
 * states, and clears the gradient. With 2-byte activations it also writes the copy that kernels
 * read, and with the list of 2021 the fp16 gradients are copied and unscaled before. */
static void list_update(struct lister *l)
{
    const double params = (double)l->item->params, states = (double)l->samples;
    const bool narrow = l->model->elem_bytes < l->model->param_bytes;
    add_memory(l, params * 4 * (2 + states));                      /* reads */
    add_memory(l, params * (4 * (1 + states) + (narrow ? 6 : 0))); /* writes, copy */
    add_memory(l, params * 4);                                     /* clear */
    if (narrow && l->unfused)
        add_memory(l, params * (4 + 8));
    if (!l->model->framework || !l->model->framework->casts_weights)
        add_cast(l, params); /* of weights: once a step */
}

static void list_norm(struct lister *l)
{
    add_norm(l);
}

static bool has_biases(const struct model *model, enum item_kind kind)
{
    const struct block *block = &model->block;
    if (model->family != FAMILY_LLAMA)
        return true;
    return kind == ITEM_ATTENTION ? block->out_bias
           : kind == ITEM_HEAD    ? block->head_bias
                                  : kind == ITEM_MLP && block->mlp_bias;
}

static void start(struct lister *l, const struct model *model, int item, enum pass pass,
                  int64_t samples, const struct cost_options *options, struct kernel *list)
{
    *l = (struct lister){.model = model,
                         .item = &model->items[item],
                         .index = item,
                         .pass = pass,
                         .samples = samples,
                         .tokens = samples * (model->seq > 0 ? model->seq : 1),
                         .ways = model->tensor > 1 ? model->tensor : 1,
                         .e = model->elem_bytes,
                         .mask = options->dropout ? 1 : 0,
                         .unfused = attention_is_unfused(model->attention),
                         .biases = has_biases(model, model->items[item].kind),
                         .narrow = model->items[item].kind == ITEM_ATTENTION ||
                                           model->items[item].kind == ITEM_MLP ||
                                           model->items[item].kind == ITEM_STATE ||
                                           (model->items[item].kind == ITEM_OPAQUE &&
                                            model->family == FAMILY_COMPOSED)
                                       ? options->narrow
                                       : NARROW_NONE,
                         .fp8_attention = options->fp8_attention,
                         .delayed_scaling = options->delayed_scaling,
                         .graphs = options->graphs,
                         .list = list};
}

int kernels_of(const struct model *model, int item, enum pass pass, int64_t samples,
               const struct cost_options *options, struct kernel list[KERNELS_MAX])
{
    static void (*const lists[ITEM_KIND_COUNT])(struct lister *) = {
        [ITEM_EMBEDDING] = list_embedding,
        [ITEM_ATTENTION] = list_attention,
        [ITEM_MLP] = list_mlp,
        [ITEM_NORM] = list_norm,
        [ITEM_POOLER] = list_pooler,
        [ITEM_HEAD] = list_head,
        [ITEM_OPAQUE] = list_opaque,
        [ITEM_STATE] = list_state};
    struct lister l;
    start(&l, model, item, pass, samples, options, list);
    const struct item *it = l.item;
    if (pass == PASS_UPDATE)
        list_update(&l);
    else if (it->num_pieces > 0)
        for (int i = 0; i < it->num_pieces; i++)
            add_piece(&l, &model->pieces[it->first_piece + i]);
    else
        lists[l.item->kind](&l);
    return l.count;
}

/* The activations of an item's experts and of its dense MLP. */
static void add_activations(struct lister *l)
{
    const struct model *m = l->model;
    if (!model_item_has_experts(m, l->index)) {
        add_activation(l, l->tokens, divide_up(m->mlp, l->ways));
        return;
    }
    const int64_t X = m->expert_tensor > 0 ? m->expert_tensor : l->ways;
    const int64_t t = model_expert_tokens(m, divide_up(l->tokens * X, l->ways) * m->experts_active);
    add_expert_clamp(l, t, divide_up(m->expert_mlp, X));
    add_activation(l, t, divide_up(m->expert_mlp, X));
    if (m->shared_experts > 0)
        add_activation(l, l->tokens,
                       divide_up((int64_t)m->shared_experts * m->expert_mlp, l->ways));
}

static void list_rerun(struct lister *l, enum rerun rerun)
{
    struct rerun_product products[RERUN_PRODUCTS];
    const bool attention = l->item->kind == ITEM_ATTENTION, ops = rerun == RERUN_OPS;
    const int n = model_rerun_products(l->model, l->index, rerun, products);
    const bool experts = model_item_has_experts(l->model, l->index);
    if (model_item_norms(l->model, l->item->kind) > 0)
        add_norm(l);
    if (experts && ops) { /* torchtitan's list has no grouped products */
        add_experts(l);
        return;
    }
    for (int i = 0; i < n; i++)
        if (products[i].again)
            add_linear(l, l->tokens, products[i].in, products[i].out);
    if (!attention) {
        add_activations(l);
        return;
    }
    const struct heads h = heads_of(l);
    if (l->model->kv_rank > 0)
        add_memory(l, 2 * (double)l->tokens * (l->model->q_rank + l->model->kv_rank) * l->e);
    add_qk_norm(l, &h);
    if (ops || l->model->kv_rank > 0 || l->model->block.qk_norm != QK_NORM_NONE)
        add_rope(l, &h);
    if (ops && l->unfused)
        add_core(l, &h);
    if (ops)
        add_residual(l);
}

int kernels_of_rerun(const struct model *model, int item, enum rerun rerun, int64_t samples,
                     const struct cost_options *options, struct kernel list[KERNELS_MAX])
{
    struct lister l;
    start(&l, model, item, PASS_FWD, samples, options, list);
    if (rerun != RERUN_CORE) {
        list_rerun(&l, rerun);
    } else if (l.item->kind == ITEM_ATTENTION) {
        const struct heads h = heads_of(&l);
        add_core(&l, &h);
    }
    return l.count;
}
