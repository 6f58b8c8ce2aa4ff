/* exec/base/backend.h - the functions that a compute device offers to exec/stage/.
 *
 * A stage knows layers, a backend knows arithmetic: `cpu` (exec/cpu/, OpenBLAS and C) and `cuda`
 * fill the same table. All tensors are row-major, in backend memory (what alloc() returned; host
 * memory on the cpu backend) unless a parameter says otherwise. Kernels return nothing: a device
 * failure sticks and the next sync() reports it. Calls on one backend are ordered as issued and
 * come from one thread.
 *
 * Elements. A `void *` tensor has elements of the backend's dtype: activations, their gradients,
 * and the weights, biases and tables that kernels read (the compute copy of fp32 masters, see
 * round()). A `float *` tensor is fp32 always: master weights, gamma and beta, gradients of
 * weights, optimizer state, statistics, images. Sums inside kernels are fp32; a result is rounded
 * once, to nearest even, when it is stored.
 *
 * Same bits: a result depends on shapes and operands only, never on the number of threads; no
 * kernel splits a sum by thread. Gradients of weights are added to (+=) but where linear.fresh, all
 * other outputs are written (=). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/plan/job.h"
#include "partition/freeze/apf.h"
#include "partition/base/library_choice.h"
#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Dropout by counter: the mask of an element depends on (key, sample id, index in the sample) and
 * on nothing else, so that forward, recompute and backward agree wherever they run. */
struct dropout {
    float p;            /* 0: off */
    uint64_t key;       /* rng_key(seed, step, item, site) */
    const int64_t *ids; /* sample ids, one per sample, backend memory */
    int64_t rows_per_sample;
};

/* y[rows, out] = x[rows, in] W^T + b with W [out, in], or x W + b with W [in, out] when in_out
 * (GPT-2's Conv1D). */
struct linear {
    int64_t rows;
    int in, out;
    bool in_out;
    int64_t x_stride; /* elements between rows of x, dx, and of dx's add and pre; 0: in */
    int64_t y_stride; /* elements between rows of y, of its residual and pre, and of dy; 0: out */
    float *dx_sums;   /* linear_backward_input(), where sums_dx(): receives the sums of dx's columns
                         [in]; NULL: not wanted */
    bool fresh;       /* linear_backward_weight(): dw and db are written, what was in them is not
                         read; the bits are those of adding to zeros, but for the sign of a zero */
    bool alone; /* linear_forward() of a row that comes alone, as in generated text: each weight
                         is read once, where it is otherwise copied for tiles. The bits are others */
};

enum act { ACT_NONE, ACT_GELU_ERF, ACT_GELU_TANH, ACT_TANH, ACT_SILU };

struct attention {
    int64_t num_samples;
    int seq, heads, head_dim;
    bool causal;
    const int32_t *lengths; /* [n] keys that count, backend memory; NULL: all */
    int window;             /* keys that a query sees, its own included; 0: all before it. Needs
                               causal */
    const int32_t *starts;  /* [n, seq] the first key that a query sees, its document's; ascends in
                               a sample. Backend memory; needs causal. NULL: 0 */
    float *dqkv_sums;       /* attention_backward(), where sums_dqkv(): receives the sums of dqkv's
                               columns [3 * heads * head_dim]; NULL: not wanted */
};

/* RMSNorm of rows (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * (plus + gamma). */
/* gamma and beta: [cols]. */
struct layernorm {
    int64_t rows;
    int cols;
    int64_t x_stride; /* elements between rows of x, and backward of add and dx; 0: cols */
    const float *gamma, *beta;
    float eps;
    bool sums; /* backward, where backend.sums_norm: part has a third row */
};

struct rmsnorm {
    int64_t rows;
    int cols;
    float eps;
    float plus; /* 0; 1 where gamma is kept as the difference from 1 (Gemma) */
};

/* Queries, keys and values of a decoder between their linear and attention. A row of x has heads +
 * 2 kv_heads heads of head_dim elements: queries, keys, values. Queries and keys are normalised
 * (where gamma is not NULL) and turned: elements i and i + head_dim / 2 of a head are a point that
 * turns by the angle i of its position (Su et al. 2021). A head of keys or values is written once
 * for each of the heads / kv_heads queries that read it (Ainslie et al. 2023). */
struct rotary {
    int64_t num_samples;
    int seq, heads, kv_heads, head_dim;
    const float *angles; /* [seq, head_dim / 2, 2] cosine and sine, backend memory */
    const float *gamma;  /* [2, head_dim] of queries and of keys, backend memory; NULL: no norm */
    float eps, plus;     /* as in struct rmsnorm */
};

/* The attention of `rows` successive queries of one sequence, the first of which has position
 * `first`, over all keys up to its own. keys, values: [first + rows, kv_heads, head_dim]. */
struct cached_attention {
    int rows, first, heads, kv_heads, head_dim;
    int window; /* as in struct attention */
    const float *keys, *values;
};

/* Cross-entropy over rows of classes. Element (r, c) of the logits lies at
 * (r / group) * group_stride + (r % group) * row_stride + c * class_stride: class_stride 1 and
 * group 1 for a matrix; span heads read [seq, 2] blocks column-wise. */
struct xent {
    int64_t rows;
    int classes;
    int group;
    int64_t group_stride, row_stride, class_stride;
    float smoothing; /* label smoothing, 0: off */
};

/* Sums over one micro-batch; the layout is the same in backend memory. */
struct xent_sums {
    double loss;
    int64_t count, correct;
};

struct patches {
    int64_t num_samples;
    int channels, image, patch, hidden; /* tokens: 1 + (image / patch)^2 */
};

struct tokens {
    int64_t num_samples;
    int seq, hidden;
    int64_t vocab;
    const int32_t *ids, *types; /* [n, seq] backend memory; types may be NULL */
    float scale;                /* of the token table's rows, where there is no wpe; 0: 1 */
};

struct sgd {
    float lr, momentum, weight_decay, grad_mul;
};
struct adam {                                   /* AdamW and LAMB */
    double lr, beta1, beta2, eps, weight_decay; /* double: 1 - beta2 must not be rounded twice */
    float grad_mul;
    int64_t step; /* 1, 2, ... of bias correction */
};

/* A step of the optimizer, for many tensors at once. */
struct update_rule {
    enum optimizer_kind kind;
    struct sgd sgd;   /* of OPTIMIZER_SGD */
    struct adam adam; /* of the others */
};
struct update {
    int64_t num;
    const float *grad;
    float *weight;
    float *state[2]; /* momentum, or m and v; NULL where the rule has none */
    void *low;       /* the weights' compute copy, written with them; NULL: none */
    bool decay;      /* the rule's weight decay applies */
    double *sumsq;   /* host: receives grad's sum of squares by the next sync(); NULL: no */
};

/* What follows an update of a tensor under the policy apf. */
struct apf_update {
    int64_t num;
    float *weight;
    float *state[APF_STATES];
    void *low; /* as in struct update */
    double
        *held; /* host: receives how many of the weights are held, by the next sync(); NULL: no */
};

struct backend_event; /* opaque */
struct backend_lane;  /* opaque */

/* Memory to come. */
struct memory_need {
    const int64_t *bytes; /* of alloc()s to follow, in their order */
    int64_t num;
    int64_t kernel_bytes; /* what kernels may take for themselves beside their operands */
};

struct backend {
    const char *name; /* "cpu", "cuda" */
    enum dtype dtype; /* fp32, bf16, or tf32: fp32 storage, products in TF32 */
    int elem_bytes;   /* of dtype in memory: 4 or 2 */
    int threads;
    bool host_memory; /* backend memory is host memory: pointers of the data room serve as they are
                       */
    /* A row of a product has the same bits in a matrix of any number of rows. */
    bool bits_independent_of_row_count;
    /* A row has the same bits at any position among the same number of rows. If
     * measure_row_position() exists, false until it was called. */
    bool bits_independent_of_row_position;
    bool sums_norm; /* layernorm_backward() sums on its way where asked, as sums_dx() */

    void (*free_backend)(struct backend *be);
    /* Memory: 64-byte aligned (256 on a GPU), not zeroed. */
    enum status (*alloc)(struct backend *be, int64_t bytes, void **ptr, struct err *err);
    /* The same, all zero. On the host pages that nobody writes to take no memory and no time. */
    enum status (*alloc_zeroed)(struct backend *be, int64_t bytes, void **ptr, struct err *err);
    void (*free)(struct backend *be, void *ptr); /* NULL is fine */
    void (*zero)(struct backend *be, void *dst, int64_t bytes);
    void (*copy)(struct backend *be, void *dst, const void *src, int64_t bytes);
    void (*copy_in)(struct backend *be, void *dst, const void *host_src, int64_t bytes);
    void (*copy_out)(struct backend *be, void *host_dst, const void *src, int64_t bytes);
    /* Wait for everything issued; reports the first failure since the last call. */
    enum status (*sync)(struct backend *be, struct err *err);
    /* The first failure known so far, without waiting; sync() will report it still. */
    enum status (*failure)(struct backend *be, struct err *err);
    /* Reserve, in one block, the part of `need` that is not allocated yet. Called once per plan, before
     * stages are built. ERR_INFEASIBLE if the device has less; the message names both sizes. */
    enum status (*reserve)(struct backend *be, const struct memory_need *need, struct err *err);
    /* Host memory that copies of the device run to and from by themselves (pinned): copy_in() from
     * it and copy_out() to it return at once, and it must stay as it is until a sync() or an event
     * after them. Not zeroed. */
    enum status (*alloc_host)(struct backend *be, int64_t bytes, void **ptr, struct err *err);
    void (*free_host)(struct backend *be, void *ptr); /* NULL is fine */
    /* Places in the order of calls: record() marks the place after everything issued so far,
     * done() asks whether the device is past it, wait() waits for that, ns() is the time between
     * two (waits for the second). An event never recorded is done. */
    enum status (*event_new)(struct backend *be, struct backend_event **event, struct err *err);
    void (*event_free)(struct backend *be, struct backend_event *event); /* NULL is fine */
    void (*event_record)(struct backend *be, struct backend_event *event);
    bool (*event_done)(struct backend *be, struct backend_event *event);
    void (*event_wait)(struct backend *be, struct backend_event *event);
    int64_t (*event_ns)(struct backend *be, struct backend_event *from, struct backend_event *to);
    /* A head start for the host, where something is measured: after hold() the main lane starts
     * nothing until release(), or 10 ms have passed. Whoever holds also releases, before any wait.
     * NULL, both: the host is the device. */
    void (*hold)(struct backend *be);
    void (*release)(struct backend *be);
    /* Lanes: queues of the device beside the main one, which is the lane NULL, for copies and
     * messages that run while it computes. The work of a lane runs in its order. record() marks the
     * place after everything that a lane was given so far; after wait() a lane continues when that
     * place, recorded before the call, has been reached (at once where none was). The host waits in
     * none of them; memory that copies leave or enter is alloc_host()'s. Failures stick. All NULL
     * where backend memory is host memory. */
    enum status (*lane_new)(struct backend *be, struct backend_lane **lane, struct err *err);
    void (*lane_free)(struct backend *be, struct backend_lane *lane); /* NULL is fine */
    void (*lane_record)(struct backend *be, struct backend_lane *lane, struct backend_event *event);
    void (*lane_wait)(struct backend *be, struct backend_lane *lane, struct backend_event *event);
    void (*lane_copy_in)(struct backend *be, struct backend_lane *lane, void *dst,
                         const void *host_src, int64_t bytes);
    void (*lane_copy_out)(struct backend *be, struct backend_lane *lane, void *host_dst,
                          const void *src, int64_t bytes);
    /* The queue itself (a cudaStream_t), for libraries that put work of their own into it. */
    void *(*lane_stream)(struct backend *be, struct backend_lane *lane);

    /* Mark the calls that the host issues between the two, for profilers: a name that stays, and a
     * number (a micro-batch). NULL where no profiler could look. */
    void (*range_push)(struct backend *be, const char *name, int64_t number);
    void (*range_pop)(struct backend *be);
    /* Choices by time (backend_spec.tune) differ from run to run, and so may bits. choices() has
     * what was chosen since the start, borrowed until the next kernel; choose() gives a backend,
     * before its first kernel, what it shall choose. A problem that is not among them gets the
     * library's first proposal, always the same. NULL, both: nothing to choose. */
    int (*choices)(struct backend *be, const struct library_choice **list);
    enum status (*choose)(struct backend *be, const struct library_choice *list, int num,
                          struct err *err);

    /* Measure bits_independent_of_row_position by computing some products, because libraries choose their kernels
     * by shape and do not say. Call it after choose(). The first call takes memory and some ms, and
     * waits; later calls do nothing. NULL: it is known when the backend is opened. */
    void (*measure_row_position)(struct backend *be);

    /* low = master, rounded to the dtype: the compute copy of fp32 weights. A stage calls it where
     * elem_bytes is not 4; else the master itself is what kernels read. */
    void (*round)(struct backend *be, int64_t num, const float *master, void *low);

    /* y = residual + dropout(act(x W + b)); pre, when not NULL, receives x W + b. residual, drop,
     * bias may be NULL; y may be residual. */
    void (*linear_forward)(struct backend *be, const struct linear *l, const void *x, const void *w,
                           const void *bias, enum act act, const void *residual,
                           const struct dropout *drop, void *pre, void *y);
    /* dx = add + scale * (dy W) * act'(pre); add and pre may be NULL; dx may be add or pre.
     * ACT_TANH takes the tanh itself as pre. */
    void (*linear_backward_input)(struct backend *be, const struct linear *l, const void *dy,
                                  const void *w, float scale, enum act act, const void *pre,
                                  const void *add, void *dx);
    /* Whether the kernel that ends this activation's backward sums the columns of dx on its way, at
     * no cost: the gradient of the bias below, which the weights' half of that layer would read all
     * of dx once more for. NULL: none does. */
    bool (*sums_dx)(const struct backend *be, enum act act);
    /* dw += scale * dy^T x, db += scale * column sums of dy (= where fresh); dw or db may be NULL.
     */
    void (*linear_backward_weight)(struct backend *be, const struct linear *l, const void *dy,
                                   const void *x, float scale, float *dw, float *db);
    /* y = act(x), elementwise; y may be x. */
    void (*act_forward)(struct backend *be, int64_t num, enum act act, const void *x, void *y);
    /* dx = dy * act'(pre), elementwise; dx may be dy. */
    void (*act_backward)(struct backend *be, int64_t num, enum act act, const void *pre,
                         const void *dy, void *dx);
    /* y may be x. */
    void (*dropout)(struct backend *be, int64_t rows, int cols, const struct dropout *drop,
                    const void *x, void *y);

    /* stats: mean and reciprocal deviation, [rows, 2]. */
    void (*layernorm_forward)(struct backend *be, const struct layernorm *n, const void *x, void *y,
                              float *stats);
    /* dx = add + gradient; dx may be x or add; dx NULL: not wanted. part [2, cols] is written: this
     * micro-batch's gradients of gamma and beta; part NULL: not wanted. With n->sums part is
     * [3, cols], in its last row the sums of the columns of add, or of dx where there is no add:
     * the gradient of the bias of the linear layer whose output is that far. */
    void (*layernorm_backward)(struct backend *be, const struct layernorm *n, const void *dy,
                               const void *x, const float *stats, const void *add, void *dx,
                               float *part);

    /* stats [rows]: the reciprocal of the root. */
    void (*rmsnorm_forward)(struct backend *be, const struct rmsnorm *n, const void *x,
                            const float *gamma, void *y, float *stats);
    /* dx = add + gradient; add may be NULL; dx may be x or add, and NULL: not wanted. part [cols]
     * is written: this micro-batch's gradient of gamma; NULL: not wanted. */
    void (*rmsnorm_backward)(struct backend *be, const struct rmsnorm *n, const void *dy,
                             const void *x, const float *stats, const float *gamma, const void *add,
                             void *dx, float *part);
    /* x -> qkv [n, seq, 3, heads, head_dim]. stats [rows, heads + kv_heads] as rmsnorm_forward()'s;
     * written where there is a norm. */
    void (*rotary_forward)(struct backend *be, const struct rotary *r, const void *x, void *qkv,
                           float *stats);
    /* dx may be x. part [2, head_dim]: this micro-batch's gradient of gamma. x, stats and part are
     * read and written where there is a norm. */
    void (*rotary_backward)(struct backend *be, const struct rotary *r, const void *dqkv,
                            const void *x, const float *stats, void *dx, float *part);
    /* y [rows, cols] = act(gate) * up, with x [rows, 2, cols] = gate, up (Shazeer 2020). act:
     * ACT_SILU or a GELU. Backward: dx may be x. */
    void (*gate_forward)(struct backend *be, int64_t rows, int cols, enum act act, const void *x,
                         void *y);
    void (*gate_backward)(struct backend *be, int64_t rows, int cols, enum act act, const void *x,
                          const void *dy, void *dx);

    /* qkv [n, seq, 3, heads, head_dim] -> ctx [n, seq, heads, head_dim]; lse [n, heads, seq] is the
     * log-sum-exp of each score row, from which the backward rebuilds probabilities. */
    void (*attention_forward)(struct backend *be, const struct attention *a, const void *qkv,
                              const struct dropout *drop, void *ctx, float *lse);
    /* Whether attention's backward of this shape sums the columns of dqkv on its way, as sums_dx();
     * the answer stays. Pointers of *a and *drop are not looked at. NULL: of none. */
    bool (*sums_dqkv)(struct backend *be, const struct attention *a, const struct dropout *drop);
    /* dqkv may be qkv. */
    void (*attention_backward)(struct backend *be, const struct attention *a, const void *qkv,
                               const struct dropout *drop, const void *ctx, const float *lse,
                               const void *dctx, void *dqkv);

    /* The queries of qkv [rows, 3, heads, head_dim] -> ctx [rows, heads, head_dim], fp32, in host
     * memory: text is generated there. NULL: not on this backend. */
    void (*attention_cached)(struct backend *be, const struct cached_attention *a, const float *qkv,
                             float *ctx);

    /* Patches of images as rows [n, 1 + patches, channels * patch * patch]; row 0 of a sample, the
     * class token's, is zero. */
    void (*patchify)(struct backend *be, const struct patches *p, const float *images, void *cols);
    /* y [n, tokens, hidden] += positions; the class token's row is written. */
    void (*patch_finish)(struct backend *be, const struct patches *p, const void *cls,
                         const void *pos, void *y);
    /* dpos, dcls and db (the projection's bias) from dy. */
    void (*patch_backward)(struct backend *be, const struct patches *p, const void *dy, float *dcls,
                           float *dpos, float *db);
    /* y = scale * table[ids] + pos + types table; wpe and wtt may be NULL. */
    void (*tokens_forward)(struct backend *be, const struct tokens *t, const void *wte,
                           const void *wpe, const void *wtt, void *y);
    void (*tokens_backward)(struct backend *be, const struct tokens *t, const void *dy, float *dwte,
                            float *dwpe, float *dwtt);

    /* Replaces the logits by the gradient of the summed loss (softmax - target; zero rows where the
     * label is -100). sums is backend memory, written. */
    void (*xent)(struct backend *be, const struct xent *x, const int32_t *labels, void *logits,
                 struct xent_sums *sums);

    /* out [rows, 2 cols] = [a, b]; and back: a or b may be NULL, not wanted. */
    void (*join)(struct backend *be, int64_t rows, int cols, const void *a, const void *b,
                 void *out);
    void (*split)(struct backend *be, int64_t rows, int cols, const void *in, void *a, void *b);
    /* y[i] = x[rows[i]], i < num; and back: x [total, cols] is zero but x[rows[i]] = y[i]. rows:
     * backend memory, ascending; num > 0. */
    void (*gather_rows)(struct backend *be, int64_t num, int cols, const int32_t *rows,
                        const void *x, void *y);
    void (*scatter_rows)(struct backend *be, int64_t total, int64_t num, int cols,
                         const int32_t *rows, const void *y, void *x);
    void (*add)(struct backend *be, int64_t num, const void *x, void *y); /* y += x */
    /* y += x in fp32: gradients of weights. */
    void (*accumulate)(struct backend *be, int64_t num, const float *x, float *y);
    /* x *= factor, of gradients too. */
    void (*scale)(struct backend *be, int64_t num, float factor, float *x);
    /* Sums of squares in double, for many tensors at once. num, x and sums are host arrays; the
     * call waits for the results. */
    enum status (*sumsq_many)(struct backend *be, int count, const int64_t *num,
                              const float *const *x, double *sums, struct err *err);
    /* LAMB's lengths are per tensor. tensors: host array. */
    void (*update)(struct backend *be, const struct update_rule *rule, int count,
                   const struct update *tensors);
    /* apf_step() for each weight of a tensor. */
    void (*apf)(struct backend *be, const struct apf_rule *rule, const struct apf_update *tensor);
};

/* Element `index` of a tensor of the backend's dtype. NULL stays NULL. */
static inline void *backend_at(const struct backend *be, void *tensor, int64_t index)
{
    return tensor ? (char *)tensor + index * be->elem_bytes : NULL;
}
static inline const void *backend_at_const(const struct backend *be, const void *tensor,
                                           int64_t index)
{
    return tensor ? (const char *)tensor + index * be->elem_bytes : NULL;
}
static inline int64_t backend_bytes(const struct backend *be, int64_t num_elems)
{
    return num_elems * be->elem_bytes;
}
static inline int dtype_bytes(enum dtype dtype) /* in memory */
{
    return dtype == DTYPE_BF16 ? 2 : 4;
}

static inline void backend_free(struct backend *be) /* NULL is fine */
{
    if (be)
        be->free_backend(be);
}

#ifdef __cplusplus
}
#endif
