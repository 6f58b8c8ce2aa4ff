/* The operation graphs of attention (cuda_cudnn_graph.h). They follow NVIDIA's documentation of the
 * graph API ("fused flash attention"), in the exact form that its own front end uses from cuDNN
 * 9.10.2 on. cuDNN finds its kernels by that form: an equivalent graph written in another way is
 * refused. Helpers come first (descriptors, tensors, operations). Read forward() and backward(). */
#if __has_include(<cudnn.h>) && !defined(ELAPSE_NO_CUDNN)
#include "exec/cuda/cuda_cudnn_graph.h"

#include <math.h>
#include <string.h>

typedef cudnnBackendDescriptor_t desc;

/* --- descriptors ------------------------------------------------------------------------------ */

static bool good(struct cudnn_graph *g, cudnnStatus_t code, const char *what)
{
    if (code != CUDNN_STATUS_SUCCESS && g->failed == CUDNN_STATUS_SUCCESS) {
        g->failed = code;
        g->failed_at = what;
    }
    return g->failed == CUDNN_STATUS_SUCCESS;
}

static desc make(struct cudnn_graph *g, cudnnBackendDescriptorType_t type, const char *what)
{
    desc d = NULL;
    if (g->num_made == (int)(sizeof g->made / sizeof *g->made))
        good(g, CUDNN_STATUS_INTERNAL_ERROR, "a graph with too many parts");
    else if (good(g, g->cudnn->cudnnBackendCreateDescriptor(type, &d), what))
        g->made[g->num_made++] = d;
    return d;
}

static void set(struct cudnn_graph *g, desc d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values,
                const char *what)
{
    if (g->failed == CUDNN_STATUS_SUCCESS)
        good(g, g->cudnn->cudnnBackendSetAttribute(d, name, type, count, values), what);
}
#define SET(d, name, type, value)                                                                  \
    set(g, d, CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, &(value), #name)

static void finalize(struct cudnn_graph *g, desc d, const char *what)
{
    if (g->failed == CUDNN_STATUS_SUCCESS)
        good(g, g->cudnn->cudnnBackendFinalize(d), what);
}

static void add_op(struct cudnn_graph *g, desc op, const char *what)
{
    finalize(g, op, what);
    if (g->num_ops == (int)(sizeof g->ops / sizeof *g->ops))
        good(g, CUDNN_STATUS_INTERNAL_ERROR, "a graph with too many operations");
    else
        g->ops[g->num_ops++] = op;
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* Dimensions and strides (in elements): [sample, head, row, column]. */
struct form {
    int64_t dims[4], strides[4];
};

static struct form packed(int64_t n, int64_t heads, int64_t rows, int64_t cols)
{
    return (struct form){
        {n,                   heads,       rows, cols},
        {heads * rows * cols, rows * cols, cols, 1   }
    };
}
static struct form transposed(struct form f)
{
    return (struct form){
        {f.dims[0],    f.dims[1],    f.dims[3],    f.dims[2]   },
        {f.strides[0], f.strides[1], f.strides[3], f.strides[2]}
    };
}
enum tensor_kind { VIRTUAL, MEMORY, NUMBER };

static desc tensor(struct cudnn_graph *g, int64_t uid, cudnnDataType_t type, struct form f,
                   enum tensor_kind kind)
{
    const int64_t alignment = 16;
    const bool is_virtual = kind == VIRTUAL, by_value = kind == NUMBER;
    desc d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
    SET(d, TENSOR_UNIQUE_ID, INT64, uid);
    SET(d, TENSOR_DATA_TYPE, DATA_TYPE, type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, f.dims, "TENSOR_DIMENSIONS");
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, f.strides, "TENSOR_STRIDES");
    SET(d, TENSOR_BYTE_ALIGNMENT, INT64, alignment);
    SET(d, TENSOR_IS_VIRTUAL, BOOLEAN, is_virtual);
    SET(d, TENSOR_IS_BY_VALUE, BOOLEAN, by_value);
    finalize(g, d, "a tensor's finalize");
    return d;
}
/* A tensor in memory. Each uid may be used once. */
static desc memory(struct cudnn_graph *g, int64_t uid, cudnnDataType_t type, struct form f)
{
    g->uids[g->num_uids++] = uid;
    return tensor(g, uid, type, f, MEMORY);
}
static desc scalar(struct cudnn_graph *g, int64_t uid, float value)
{
    g->uids[g->num_uids++] = uid;
    g->is_number[uid] = true;
    g->numbers[uid] = value;
    return tensor(g, uid, CUDNN_DATA_FLOAT, packed(1, 1, 1, 1), NUMBER);
}
static desc between(struct cudnn_graph *g, cudnnDataType_t type, struct form f)
{
    return tensor(g, FIRST_VIRTUAL + g->num_virtual++, type, f, VIRTUAL);
}

/* --- operations: each returns its output ------------------------------------------------------ */

/* Sizes of a product per sample (m rows, n columns, k summed); NULL: the full size. */
struct extent {
    desc m, n, k;
};

static desc multiply(struct cudnn_graph *g, desc a, desc b, struct extent extent, desc c)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const double padding = 0.0;
    desc how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a product");
    SET(how, MATMUL_COMP_TYPE, DATA_TYPE, type);
    SET(how, MATMUL_PADDING_VALUE, DOUBLE, padding);
    finalize(g, how, "a product's finalize");
    desc op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a product's operation");
    SET(op, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, a);
    SET(op, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, b);
    SET(op, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, c);
    SET(op, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, how);
    if (extent.m)
        SET(op, OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, BACKEND_DESCRIPTOR, extent.m);
    if (extent.n)
        SET(op, OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, BACKEND_DESCRIPTOR, extent.n);
    if (extent.k)
        SET(op, OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, BACKEND_DESCRIPTOR, extent.k);
    add_op(g, op, "a product's operation's finalize");
    return c;
}

/* y = mode(x, b, t); b and t are NULL if the mode takes fewer operands. axis: for an index operation;
 * otherwise -1. */
static desc pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type,
                      int64_t axis, desc x, desc b, desc t, desc y)
{
    desc how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "an elementwise form");
    SET(how, POINTWISE_MODE, POINTWISE_MODE, mode);
    SET(how, POINTWISE_MATH_PREC, DATA_TYPE, type);
    if (axis >= 0)
        SET(how, POINTWISE_AXIS, INT64, axis);
    finalize(g, how, "an elementwise form's finalize");
    desc op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an elementwise operation");
    SET(op, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, how);
    SET(op, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, x);
    if (b)
        SET(op, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, b);
    if (t)
        SET(op, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, t);
    SET(op, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, y);
    add_op(g, op, "an elementwise operation's finalize");
    return y;
}
/* y = mode(x, b) in fp32; y is virtual, of form f. b may be NULL. */
static desc apply(struct cudnn_graph *g, cudnnPointwiseMode_t mode, desc x, desc b, struct form f)
{
    return pointwise(g, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, between(g, CUDNN_DATA_FLOAT, f));
}

/* Reduces x over its columns. */
static desc reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t kind, desc x, struct form f)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    desc y = between(g, type, f);
    desc how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction");
    SET(how, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, kind);
    SET(how, REDUCTION_COMP_TYPE, DATA_TYPE, type);
    finalize(g, how, "a reduction's finalize");
    desc op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction's operation");
    SET(op, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, x);
    SET(op, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, y);
    SET(op, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, how);
    add_op(g, op, "a reduction's operation's finalize");
    return y;
}

/* Transposes rows and columns of x; the strides of y say how. */
static desc turn(struct cudnn_graph *g, desc x, desc y)
{
    desc op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "a transpose");
    SET(op, OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR, x);
    SET(op, OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR, y);
    add_op(g, op, "a transpose's finalize");
    return y;
}

/* --- attention -------------------------------------------------------------------------------- */

/* Tensors that forward and backward have in common. */
struct parts {
    const struct sdpa_shape *shape;
    /* Forms of q, of ctx, of [n, heads, seq, seq], of [n, heads, seq, 1]. */
    struct form qkv, ctx, scores, rows;
    desc q, k_t, out, lse, scale, len_q, len_kv; /* k_t: k as [head_dim, seq]; out: ctx */
};

static struct parts parts_of(struct cudnn_graph *g, const struct sdpa_shape *s)
{
    const int64_t width = (int64_t)s->heads * s->head_dim;
    struct parts p = {.shape = s};
    p.qkv = (struct form){
        {s->samples,         s->heads,    s->seq,    s->head_dim},
        {s->seq * 3 * width, s->head_dim, 3 * width, 1          }
    };
    p.ctx = p.qkv;
    p.ctx.strides[0] = s->seq * width;
    p.ctx.strides[2] = width;
    p.scores = packed(s->samples, s->heads, s->seq, s->seq);
    p.rows = packed(s->samples, s->heads, s->seq, 1);
    p.q = memory(g, SDPA_Q, CUDNN_DATA_BFLOAT16, p.qkv);
    p.k_t = memory(g, SDPA_K, CUDNN_DATA_BFLOAT16, transposed(p.qkv));
    p.out = memory(g, SDPA_CTX, CUDNN_DATA_BFLOAT16, p.ctx);
    p.lse = memory(g, SDPA_LSE, CUDNN_DATA_FLOAT, p.rows);
    p.scale = scalar(g, SDPA_SCALE, 1.0f / sqrtf((float)s->head_dim));
    if (s->padded) {
        p.len_q = memory(g, SDPA_LEN_Q, CUDNN_DATA_INT32, packed(s->samples, 1, 1, 1));
        p.len_kv = memory(g, SDPA_LEN_KV, CUDNN_DATA_INT32, packed(s->samples, 1, 1, 1));
    }
    return p;
}

static desc index_of(struct cudnn_graph *g, const struct parts *p, int64_t axis, desc like)
{
    return pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis, like, NULL, NULL,
                     between(g, CUDNN_DATA_INT32, p->scores));
}
static desc decide(struct cudnn_graph *g, const struct parts *p, cudnnPointwiseMode_t mode, desc x,
                   desc b)
{
    return pointwise(g, mode, CUDNN_DATA_BOOLEAN, -1, x, b, NULL,
                     between(g, CUDNN_DATA_BOOLEAN, p->scores));
}
/* scores where `keep` is true, else the value of `bias`. */
static desc masked(struct cudnn_graph *g, const struct parts *p, desc scores, enum sdpa_uid bias,
                   desc keep)
{
    return pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, scores,
                     scalar(g, bias, -INFINITY), keep, between(g, CUDNN_DATA_FLOAT, p->scores));
}

static desc mask_padding(struct cudnn_graph *g, const struct parts *p, desc scores)
{
    desc row = index_of(g, p, 2, scores);
    desc col = index_of(g, p, 3, scores);
    desc in_rows = decide(g, p, CUDNN_POINTWISE_CMP_LT, row, p->len_q);
    desc in_cols = decide(g, p, CUDNN_POINTWISE_CMP_LT, col, p->len_kv);
    desc keep = decide(g, p, CUDNN_POINTWISE_LOGICAL_AND, in_rows, in_cols);
    return masked(g, p, scores, SDPA_PADDING_BIAS, keep);
}
static desc mask_future(struct cudnn_graph *g, const struct parts *p, desc scores)
{
    desc row = index_of(g, p, 2, scores);
    desc col = index_of(g, p, 3, scores);
    desc keep = decide(g, p, CUDNN_POINTWISE_CMP_GE, row, col);
    return masked(g, p, scores, SDPA_CAUSAL_BIAS, keep);
}

/* scale * q k^T. */
static desc scaled_scores(struct cudnn_graph *g, const struct parts *p)
{
    desc scores = multiply(g, p->q, p->k_t, (struct extent){p->len_q, p->len_kv, NULL},
                           between(g, CUDNN_DATA_FLOAT, p->scores));
    return apply(g, CUDNN_POINTWISE_MUL, scores, p->scale, p->scores);
}

static void forward(struct cudnn_graph *g, const struct parts *p)
{
    desc v = memory(g, SDPA_V, CUDNN_DATA_BFLOAT16, p->qkv);
    desc scores = scaled_scores(g, p);
    if (p->shape->padded)
        scores = mask_padding(g, p, scores);
    if (p->shape->causal)
        scores = mask_future(g, p, scores);
    desc max = reduce(g, CUDNN_REDUCE_TENSOR_MAX, scores, p->rows);
    desc shifted = apply(g, CUDNN_POINTWISE_SUB, scores, max, p->scores);
    desc grown = apply(g, CUDNN_POINTWISE_EXP, shifted, NULL, p->scores);
    desc sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, grown, p->rows);
    desc log = apply(g, CUDNN_POINTWISE_LOG, sum, NULL, p->rows);
    pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, -1, max, log, NULL, p->lse);
    desc prob = pointwise(g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, -1, grown, sum, NULL,
                          between(g, CUDNN_DATA_BFLOAT16, p->scores));
    multiply(g, prob, v, (struct extent){p->len_q, NULL, p->len_kv}, p->out);
}

/* The graph makes dq the output of its own product, not a sum in memory that blocks add to: the bits
 * must be the same every time. cuDNN then takes the kernels that write dS once and multiply it by k
 * afterwards. */
static void backward(struct cudnn_graph *g, const struct parts *p)
{
    const struct sdpa_shape *s = p->shape;
    const struct form turned = transposed(p->scores);
    desc v = memory(g, SDPA_V, CUDNN_DATA_BFLOAT16, transposed(p->qkv));
    desc dctx = memory(g, SDPA_DCTX, CUDNN_DATA_BFLOAT16, p->ctx);
    desc dq = memory(g, SDPA_DQ, CUDNN_DATA_BFLOAT16, p->qkv);
    desc dk = memory(g, SDPA_DK, CUDNN_DATA_BFLOAT16, p->qkv);
    desc dv = memory(g, SDPA_DV, CUDNN_DATA_BFLOAT16, p->qkv);
    desc delta = memory(g, SDPA_DELTA, CUDNN_DATA_FLOAT, p->rows);

    /* delta = row sums of dctx * ctx */
    desc both = apply(g, CUDNN_POINTWISE_MUL, dctx, p->out,
                      packed(s->samples, s->heads, s->seq, s->head_dim));
    desc row_sums = reduce(g, CUDNN_REDUCE_TENSOR_ADD, both, p->rows);
    pointwise(g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, row_sums, scalar(g, SDPA_ONE, 1.0f),
              NULL, delta);

    /* P = exp(masked scores - lse); dv = P^T dctx */
    desc scores = scaled_scores(g, p);
    if (s->padded)
        scores = mask_padding(g, p, scores);
    scores = apply(g, CUDNN_POINTWISE_SUB, scores, p->lse, p->scores);
    if (s->causal)
        scores = mask_future(g, p, scores);
    desc prob = apply(g, CUDNN_POINTWISE_EXP, scores, NULL, p->scores);
    desc prob_t = turn(g, prob, between(g, CUDNN_DATA_BFLOAT16, turned));
    multiply(g, prob_t, dctx, (struct extent){p->len_kv, NULL, p->len_q}, dv);

    /* dS = P (dctx v^T - delta) scale; dk = dS^T q */
    desc ds = multiply(g, dctx, v, (struct extent){p->len_q, p->len_kv, NULL},
                       between(g, CUDNN_DATA_FLOAT, p->scores));
    ds = apply(g, CUDNN_POINTWISE_SUB, ds, delta, p->scores);
    ds = apply(g, CUDNN_POINTWISE_MUL, ds, prob, p->scores);
    ds = apply(g, CUDNN_POINTWISE_MUL, ds, p->scale, p->scores);
    desc ds_t = turn(g, ds, between(g, CUDNN_DATA_BFLOAT16, turned));
    multiply(g, ds_t, p->q, (struct extent){p->len_kv, NULL, p->len_q}, dk);

    /* dq = dS k */
    desc k = turn(g, p->k_t, between(g, CUDNN_DATA_FLOAT, p->qkv));
    multiply(g, ds, k, (struct extent){p->len_q, NULL, p->len_kv}, dq);
}

/* --- graphs ----------------------------------------------------------------------------------- */

static bool finish(struct cudnn_graph *g, cudnnHandle_t handle)
{
    g->graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a graph");
    set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->num_ops,
        g->ops, "OPERATIONGRAPH_OPS");
    if (handle)
        SET(g->graph, OPERATIONGRAPH_HANDLE, HANDLE, handle);
    finalize(g, g->graph, "the graph's finalize");
    return g->failed == CUDNN_STATUS_SUCCESS;
}

bool cudnn_graph_sdpa(struct cudnn_graph *g, cudnnHandle_t handle, const struct sdpa_shape *shape)
{
    const struct parts p = parts_of(g, shape);
    if (shape->backward)
        backward(g, &p);
    else
        forward(g, &p);
    return finish(g, handle);
}

void cudnn_graph_clear(struct cudnn_graph *g)
{
    while (g->num_made > 0)
        g->cudnn->cudnnBackendDestroyDescriptor(g->made[--g->num_made]);
    *g = (struct cudnn_graph){0};
}
#endif
