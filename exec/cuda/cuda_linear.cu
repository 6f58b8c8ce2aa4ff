/* exec/cuda/cuda_linear.cu - linear layers.
 *
 * The products are cuBLASLt's, with as much of the following work as its epilogues can do. One of
 * our kernels does the rest in one pass afterwards: dropout, GELU by erf, and whatever the library
 * refuses or does no faster. Row-major y [rows, out] is the library's column-major [out,
 * rows], so every product is computed transposed: y^T = W x^T. If an activation or dropout follows,
 * the product is rounded to the dtype before it, because the backward needs it stored in that form
 * anyway.
 *
 * linear_forward(), linear_backward_input() and linear_backward_weight() each build one struct
 * matmul and try it in one piece; forward_apart(), backward_apart() and weight_apart() compute the
 * same in separate kernels. Read linear_forward() and forward_apart() first. */
#include "exec/cuda/act.cuh"
#include "exec/cuda/columns.cuh"
#include "exec/cuda/cuda_matmul.h"
#include "exec/cuda/cuda_scratch.h"

/* --- after a product -------------------------------------------------------------------------- */

enum { PASS_THREADS = 256 };

/* y = residual + dropout(act(t + bias)), pre = t + bias. Rows are ld elements apart, except for
 * bias. Pointers may be equal. */
struct forward_pass {
    int64_t packs; /* number of packs of V elements; cols is a multiple of V */
    int64_t cols, ld;
    bool flat; /* rows have no gap, and nothing depends on the row or column */
    const void *t, *bias, *residual;
    struct drop_args drop;
    void *pre, *y;
};

template <int V, int ACT, typename T>
static __global__ void __launch_bounds__(PASS_THREADS) finish_forward(const struct forward_pass p)
{
    const int64_t per_row = p.cols / V;
    for (int64_t i = (int64_t)blockIdx.x * PASS_THREADS + threadIdx.x; i < p.packs;
         i += (int64_t)gridDim.x * PASS_THREADS) {
        const int64_t row = p.flat ? 0 : i / per_row;
        const int64_t col = (i - row * per_row) * V, at = row * p.ld + col;
        float value[V], other[V];
        elem_load_n<V>((const T *)p.t + at, value);
        if (p.bias) {
            elem_load_n<V>((const T *)p.bias + col, other);
#pragma unroll
            for (int k = 0; k < V; k++)
                value[k] += other[k];
        }
        if (p.pre)
            elem_store_n<V>((T *)p.pre + at, value);
#pragma unroll
        for (int k = 0; k < V; k++)
            value[k] = act_of<ACT, T>(value[k]);
        if (p.drop.limit) {
            const int64_t sample = row / p.drop.rows_per_sample;
            const uint64_t key = drop_row_key(p.drop, sample);
            const uint32_t first =
                (uint32_t)((row - sample * p.drop.rows_per_sample) * p.cols + col);
#pragma unroll
            for (int k = 0; k < V; k++)
                value[k] = drop_apply(p.drop, key, first + (uint32_t)k, value[k]);
        }
        if (p.residual) {
            elem_load_n<V>((const T *)p.residual + at, other);
#pragma unroll
            for (int k = 0; k < V; k++)
                value[k] += other[k];
        }
        elem_store_n<V>((T *)p.y + at, value);
    }
}

/* dx = add + t * act'(pre). Rows of t are ld_t apart, of the others ld. */
struct backward_pass {
    int64_t packs, cols, ld_t, ld;
    bool flat;
    const void *t, *pre, *add;
    void *dx;
};

/* V neighbouring elements of the operands of the backward. */
template <int V, int ACT, typename T> struct backward_packs {
    elem_pack<V, T> t, pre;
};
template <int V, int ACT, typename T>
static __device__ __forceinline__ void backward_load(const struct backward_pass &p, int64_t row,
                                                     int64_t col, backward_packs<V, ACT, T> *in)
{
    in->t = elem_pack_load<V>((const T *)p.t + row * p.ld_t + col);
    if (ACT != ACT_NONE)
        in->pre = elem_pack_load<V>((const T *)p.pre + row * p.ld + col);
}
/* Computes and stores V elements of dx. value: the result before rounding. */
template <int V, int ACT, typename T>
static __device__ __forceinline__ void
backward_store(const struct backward_pass &p, int64_t row, int64_t col,
               const backward_packs<V, ACT, T> &in, float *value)
{
    const int64_t at = row * p.ld + col;
#pragma unroll
    for (int k = 0; k < V; k++) {
        value[k] = elem_load(&in.t.at[k]);
        if (ACT != ACT_NONE)
            value[k] *= act_grad_of<ACT, T>(elem_load(&in.pre.at[k]));
    }
    if (p.add) {
        float other[V];
        elem_load_n<V>((const T *)p.add + at, other);
#pragma unroll
        for (int k = 0; k < V; k++)
            value[k] += other[k];
    }
    elem_store_n<V>((T *)p.dx + at, value);
}

template <int V, int ACT, typename T>
static __global__ void __launch_bounds__(PASS_THREADS) finish_backward(const struct backward_pass p)
{
    const int64_t per_row = p.cols / V;
    for (int64_t i = (int64_t)blockIdx.x * PASS_THREADS + threadIdx.x; i < p.packs;
         i += (int64_t)gridDim.x * PASS_THREADS) {
        const int64_t row = p.flat ? 0 : i / per_row, col = (i - row * per_row) * V;
        backward_packs<V, ACT, T> in;
        float value[V];
        backward_load(p, row, col, &in);
        backward_store(p, row, col, in, value);
    }
}

/* Like finish_backward(), by strips of columns, and writes their sums to parts[][cols]
 * (columns.cuh). Two rows are loaded at a time, because dx may be any of the operands and so the
 * compiler loads none ahead. Three blocks per SM: with four, ptxas (CUDA 13.0) has too few
 * registers and handles one row after the other. */
template <int V, int ACT, typename T>
static __global__ void __launch_bounds__(COLUMN_THREADS, 3)
    finish_backward_sums(const struct backward_pass p, int64_t rows, int64_t per_part, float *parts)
{
    const int64_t col = column_of_lane<V>(), first = blockIdx.y * per_part;
    const int64_t end = first + per_part < rows ? first + per_part : rows;
    float sum[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = 0.0f;
    if (col < p.cols)
        for (int64_t r = first + threadIdx.x / 32; r < end; r += 2 * COLUMN_WARPS) {
            backward_packs<V, ACT, T> in[2];
            float value[V];
            const int num = r + COLUMN_WARPS < end ? 2 : 1;
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (i < num)
                    backward_load(p, r + i * COLUMN_WARPS, col, &in[i]);
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (i < num) {
                    backward_store(p, r + i * COLUMN_WARPS, col, in[i], value);
#pragma unroll
                    for (int k = 0; k < V; k++)
                        sum[k] += value[k];
                }
        }
    column_store<V>(sum, p.cols, parts);
}

static int pass_blocks(const struct cuda_backend *cuda, int64_t packs)
{
    return cuda_blocks(packs, PASS_THREADS, (int64_t)cuda->num_sms * 16);
}

/* PASS_LAUNCH() launches kernel<V, A, T> for the activation. */
#define PASS_CASE(name, kernel, be, V, T, p)                                                       \
    CUDA_CASE(A, name, {                                                                           \
        CUDA_LAUNCH((kernel<V, A, T>), pass_blocks(cuda_of(be), (p).packs), PASS_THREADS, 0,       \
                    cuda_of(be)->stream, p);                                                       \
    })
#define PASS_LAUNCH(kernel, act, be, V, T, p)                                                      \
    switch (act) {                                                                                 \
        PASS_CASE(ACT_NONE, kernel, be, V, T, p)                                                   \
        PASS_CASE(ACT_GELU_ERF, kernel, be, V, T, p)                                               \
        PASS_CASE(ACT_GELU_TANH, kernel, be, V, T, p)                                              \
        PASS_CASE(ACT_TANH, kernel, be, V, T, p)                                                   \
    case ACT_SILU: /* of gates only (cuda_decoder.cu) */                                           \
        break;                                                                                     \
    }
/* Uses packs of 16 bytes if rows and pointers are aligned to that, else single elements. */
#define PASS_RUN(kernel, act, be, rows, aligned, p)                                                \
    CUDA_DTYPE(be, T, {                                                                            \
        constexpr int WIDE = 16 / (int)sizeof(T);                                                  \
        if ((aligned) && (p).cols % WIDE == 0 && (p).ld % WIDE == 0) {                             \
            (p).packs = (rows) * ((p).cols / WIDE);                                                \
            PASS_LAUNCH(kernel, act, be, WIDE, T, p)                                               \
        } else {                                                                                   \
            (p).packs = (rows) * (p).cols;                                                         \
            PASS_LAUNCH(kernel, act, be, 1, T, p)                                                  \
        }                                                                                          \
    })

static void run_forward(struct backend *be, enum act act, int64_t rows, struct forward_pass p)
{
    const uintptr_t bits = (uintptr_t)p.t | (uintptr_t)p.bias | (uintptr_t)p.residual |
                           (uintptr_t)p.pre | (uintptr_t)p.y;
    if (rows <= 0)
        return;
    p.flat = p.ld == p.cols && !p.bias && !p.drop.limit;
    PASS_RUN(finish_forward, act, be, rows, bits % 16 == 0, p);
}

static void run_backward(struct backend *be, enum act act, int64_t rows, struct backward_pass p)
{
    const uintptr_t bits = (uintptr_t)p.t | (uintptr_t)p.pre | (uintptr_t)p.add | (uintptr_t)p.dx;
    if (rows <= 0)
        return;
    p.flat = p.ld == p.cols && p.ld_t == p.cols;
    PASS_RUN(finish_backward, act, be, rows, bits % 16 == 0 && p.ld_t * be->elem_bytes % 16 == 0,
             p);
}

template <int V, int ACT, typename T>
static void launch_backward_sums(struct backend *be, int64_t rows, const struct backward_pass &p,
                                 const struct column_split &split, float *parts)
{
    CUDA_LAUNCH((finish_backward_sums<V, ACT, T>), column_grid(split), COLUMN_THREADS, 0,
                cuda_of(be)->stream, p, rows, split.per_part, parts);
}

/* Backward that also sums the columns of dx; parts: column_part_bytes(). false: not for this shape
 * or alignment. */
static bool run_backward_sums(struct backend *be, enum act act, int64_t rows,
                              const struct backward_pass &p, float *parts, float *sums)
{
    const uintptr_t bits = (uintptr_t)p.t | (uintptr_t)p.pre | (uintptr_t)p.add | (uintptr_t)p.dx;
    const int V = 16 / be->elem_bytes;
    if (rows <= 0 || bits % 16 || p.cols % V || p.ld % V || p.ld_t % V)
        return false;
    const struct column_split split = column_split_of(rows, p.cols, V);
#define BACKWARD_SUMS(name)                                                                        \
    CUDA_CASE(A, name,                                                                             \
              { launch_backward_sums<16 / (int)sizeof(T), A, T>(be, rows, p, split, parts); })
    CUDA_DTYPE(be, T, {
        switch (act) {
            BACKWARD_SUMS(ACT_NONE)
            BACKWARD_SUMS(ACT_GELU_ERF)
            BACKWARD_SUMS(ACT_GELU_TANH)
            BACKWARD_SUMS(ACT_TANH)
        case ACT_SILU:
            break;
        }
    });
    cuda_fold(be, split.num_parts, p.cols, parts, 1.0f, false, sums);
    return true;
}

/* --- the table -------------------------------------------------------------------------------- */

static int64_t stride(int64_t given, int64_t dense)
{
    return given ? given : dense;
}

/* cuBLASLt does not document the accuracy of its GELU's tanh, so it is used only for dtypes with
 * few bits. */
static bool gelu_by_library(const struct backend *be, enum act act)
{
    return act == ACT_GELU_TANH && be->dtype != DTYPE_FP32;
}

static bool drops(const struct dropout *drop)
{
    return drop && drop->p > 0.0f;
}

/* The three calls, with the work of the epilogue in kernels of our own. Tuning compares the
 * epilogue with them (matmul_apart). `product` is the call's product without its epilogue. */

struct forward_call {
    struct matmul product;
    enum act act;
    const void *residual;
    const struct dropout *drop;
    void *pre;
};

/* The product goes to pre if the backward needs it, else to y or to scratch; one pass does the
 * rest. */
static void forward_apart(struct backend *be, const void *call, void *y, float *unused)
{
    const struct forward_call *c = (const struct forward_call *)call;
    struct matmul p = c->product;
    const bool dropped = drops(c->drop);
    void *t = c->pre ? c->pre : y;
    (void)unused;
    if (t == c->residual)
        t = cuda_scratch(be, p.n * p.ldd * be->elem_bytes);
    if (!t)
        return;
    p.d = t;
    const void *late = NULL;
    if (!cuda_matmul_run(be, &p) && p.bias) {
        late = p.bias;
        p.bias = NULL;
        cuda_matmul_run(be, &p);
    }
    if (t == y && !late && c->act == ACT_NONE && !dropped && !c->residual)
        return;
    struct forward_pass pass = {};
    pass.cols = p.m;
    pass.ld = p.ldd;
    pass.t = t;
    pass.bias = late;
    pass.residual = c->residual;
    pass.drop = drop_args_of(c->drop);
    pass.pre = t == c->pre && !late ? NULL : c->pre;
    pass.y = y;
    run_forward(be, c->act, p.n, pass);
}

static void linear_forward(struct backend *be, const struct linear *l, const void *x, const void *w,
                           const void *bias, enum act act, const void *residual,
                           const struct dropout *drop, void *pre, void *y)
{
    struct matmul p = {};
    p.m = l->out;
    p.n = l->rows;
    p.k = l->in;
    p.a = w;
    p.lda = l->in_out ? l->out : l->in;
    p.trans_a = !l->in_out;
    p.b = x;
    p.ldb = stride(l->x_stride, l->in);
    p.ldd = stride(l->y_stride, l->out);
    p.alpha = 1.0f;
    p.bias = bias;
    p.d = y;
    const struct forward_call call = {p, act, residual, drop, pre};
    if (!drops(drop) && act == ACT_NONE && !pre) {
        p.beta = residual ? 1.0f : 0.0f;
        p.c = residual;
        if (cuda_matmul_run(be, &p))
            return;
    }
    if (!drops(drop) && gelu_by_library(be, act) && !residual) {
        p.epilogue = MATMUL_GELU;
        p.aux = pre;
        if (cuda_matmul_pays(be, &p, forward_apart, &call) && cuda_matmul_run(be, &p))
            return;
    }
    forward_apart(be, &call, y, NULL);
}

/* Whether the backward sums dx's columns on the way. Not with cuBLASLt's epilogue: it would need a
 * pass of its own, which tuning would have to compare with our kernel. There
 * layer_backward_weight() sums (MATMUL_BIAS_GRAD). */
static bool sums_dx(const struct backend *be, enum act act)
{
    return act != ACT_NONE && !gelu_by_library(be, act);
}

struct backward_call {
    struct matmul product;
    enum act act;
    const void *pre, *add;
    float *sums; /* column sums of dx; NULL: not needed */
};

static void backward_apart(struct backend *be, const void *call, void *dx, float *unused)
{
    const struct backward_call *c = (const struct backward_call *)call;
    struct matmul p = c->product;
    const bool aside = dx == c->pre || dx == c->add;
    const int64_t aside_bytes = aside ? (p.n * p.m * be->elem_bytes + 255) / 256 * 256 : 0;
    float *sums = c->sums;
    const int64_t part_bytes = sums ? column_part_bytes(p.n, p.m, 16 / be->elem_bytes) : 0;
    char *scratch = aside || sums ? (char *)cuda_scratch(be, aside_bytes + part_bytes) : NULL;
    void *t = aside ? scratch : dx;
    (void)unused;
    if (!t || (sums && !scratch))
        return;
    struct backward_pass pass = {};
    pass.cols = p.m;
    pass.ld = p.ldd;
    p.d = t;
    if (aside)
        p.ldd = p.m;
    cuda_matmul_run(be, &p);
    pass.ld_t = p.ldd;
    pass.t = t;
    pass.pre = c->pre;
    pass.add = c->add;
    pass.dx = dx;
    if (sums &&
        run_backward_sums(be, c->act, p.n, pass, (float *)(void *)(scratch + aside_bytes), sums))
        return;
    run_backward(be, c->act, p.n, pass);
    if (sums)
        cuda_column_sums(be, p.n, pass.cols, pass.ld, dx, 1.0f, false, sums);
}

static void linear_backward_input(struct backend *be, const struct linear *l, const void *dy,
                                  const void *w, float scale, enum act act, const void *pre,
                                  const void *add, void *dx)
{
    struct matmul p = {};
    p.m = l->in;
    p.n = l->rows;
    p.k = l->out;
    p.a = w;
    p.lda = l->in_out ? l->out : l->in;
    p.trans_a = l->in_out;
    p.b = dy;
    p.ldb = stride(l->y_stride, l->out);
    p.ldd = stride(l->x_stride, l->in);
    p.alpha = scale;
    p.d = dx;
    const struct backward_call call = {p, act, pre, add, l->dx_sums};
    if (act == ACT_NONE) {
        p.beta = add ? 1.0f : 0.0f;
        p.c = add;
        cuda_matmul_run(be, &p);
        if (l->dx_sums)
            cuda_column_sums(be, p.n, p.m, p.ldd, dx, 1.0f, false, l->dx_sums);
        return;
    }
    if (!add && gelu_by_library(be, act) && !l->dx_sums) {
        /* dx may be pre, because an element of the output needs only the same element of aux. */
        p.epilogue = MATMUL_DGELU;
        p.aux = (void *)pre;
        if (cuda_matmul_pays(be, &p, backward_apart, &call) && cuda_matmul_run(be, &p))
            return;
    }
    backward_apart(be, &call, dx, NULL);
}

struct weight_call {
    const struct linear *l;
    struct matmul product; /* the product for dw */
    const void *dy;
    float scale;
};

static void weight_apart(struct backend *be, const void *call, void *dw, float *db)
{
    const struct weight_call *c = (const struct weight_call *)call;
    if (db)
        cuda_column_sums(be, c->l->rows, c->l->out, stride(c->l->y_stride, c->l->out), c->dy,
                         c->scale, !c->l->fresh, db);
    if (dw) {
        struct matmul p = c->product;
        p.c = p.d = dw;
        cuda_matmul_run(be, &p);
    }
}

static void linear_backward_weight(struct backend *be, const struct linear *l, const void *dy,
                                   const void *x, float scale, float *dw, float *db)
{
    const int64_t ldx = stride(l->x_stride, l->in), ldy = stride(l->y_stride, l->out);
    struct matmul p = {};
    p.m = l->in_out ? l->out : l->in;
    p.n = l->in_out ? l->in : l->out;
    p.k = l->rows;
    p.a = l->in_out ? dy : x;
    p.lda = l->in_out ? ldy : ldx;
    p.b = l->in_out ? x : dy;
    p.ldb = l->in_out ? ldx : ldy;
    p.trans_b = true;
    p.ldd = p.m;
    p.fp32_out = true;
    p.alpha = scale;
    p.beta = l->fresh ? 0.0f : 1.0f;
    p.c = p.d = dw;
    const struct weight_call call = {l, p, dy, scale};
    if (dw && db && scale == 1.0f) {
        p.epilogue = MATMUL_BIAS_GRAD;
        p.grad_of_a = l->in_out;
        p.bias_grad = (float *)cuda_scratch(be, l->out * (int64_t)sizeof(float));
        const bool pays = p.bias_grad && cuda_matmul_pays(be, &p, weight_apart, &call);
        /* Take scratch again, because it may have moved. */
        p.bias_grad = (float *)cuda_scratch(be, l->out * (int64_t)sizeof(float));
        if (pays && cuda_matmul_run(be, &p)) {
            cuda_fold(be, 1, l->out, p.bias_grad, 1.0f, !l->fresh, db);
            return;
        }
    }
    weight_apart(be, &call, dw, db);
}

static void act_forward(struct backend *be, int64_t num, enum act act, const void *x, void *y)
{
    struct forward_pass pass = {};
    pass.cols = pass.ld = num;
    pass.t = x;
    pass.drop = drop_args_of(NULL);
    pass.y = y;
    run_forward(be, act, 1, pass);
}

static void act_backward(struct backend *be, int64_t num, enum act act, const void *pre,
                         const void *dy, void *dx)
{
    struct backward_pass pass = {};
    pass.cols = pass.ld_t = pass.ld = num;
    pass.t = dy;
    pass.pre = pre;
    pass.dx = dx;
    run_backward(be, act, 1, pass);
}

void cuda_linear_install(struct backend *be)
{
    be->linear_forward = linear_forward;
    be->linear_backward_input = linear_backward_input;
    be->linear_backward_weight = linear_backward_weight;
    be->sums_dx = sums_dx;
    be->act_forward = act_forward;
    be->act_backward = act_backward;
}
