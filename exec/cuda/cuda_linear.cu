/* exec/cuda/cuda_linear.cu - linear layers: products by cuBLASLt with as much of what follows them
 * as its epilogues take; the rest (GELU by erf, dropout, what the library refuses) in one pass of a
 * kernel of ours behind it.
 *
 * Row-major y [rows, out] is the library's column-major [out, rows], so every product is computed
 * transposed: y^T = W x^T. Where an activation or dropout comes behind, the product is rounded to
 * the dtype before it, as it is stored for the backward anyway. */
#include "exec/cuda/cuda_matmul.h"
#include "exec/cuda/elem.cuh"

/* --- activations ------------------------------------------------------------------------------ */

#define SQRT_HALF 0.70710678118654752440f
#define SQRT_2_OVER_PI 0.79788456080286535588f
#define INV_SQRT_2PI 0.39894228040143267794f
#define TANH_CUBIC 0.044715f

template <int ACT> static __device__ __forceinline__ float act_of(float x)
{
    if (ACT == ACT_GELU_ERF)
        return 0.5f * x * (1.0f + erff(x * SQRT_HALF));
    if (ACT == ACT_GELU_TANH)
        return 0.5f * x * (1.0f + tanhf(SQRT_2_OVER_PI * (x + TANH_CUBIC * x * x * x)));
    if (ACT == ACT_TANH)
        return tanhf(x);
    return x;
}

/* Of the activation's input; for ACT_TANH of its output. */
template <int ACT> static __device__ __forceinline__ float act_grad_of(float x)
{
    if (ACT == ACT_GELU_ERF)
        return 0.5f * (1.0f + erff(x * SQRT_HALF)) + x * INV_SQRT_2PI * expf(-0.5f * x * x);
    if (ACT == ACT_GELU_TANH) {
        const float t = tanhf(SQRT_2_OVER_PI * (x + TANH_CUBIC * x * x * x));
        const float slope = SQRT_2_OVER_PI * (1.0f + 3.0f * TANH_CUBIC * x * x);
        return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope;
    }
    if (ACT == ACT_TANH)
        return 1.0f - x * x;
    return 1.0f;
}

/* --- behind a product ------------------------------------------------------------------------- */

enum { PASS_THREADS = 256 };

/* y = residual + dropout(act(t + bias)), pre = t + bias. All but bias have rows ld apart; pointers
 * may be equal. */
struct forward_pass {
    int64_t packs; /* of V elements, to which cols is a multiple */
    int cols;
    int64_t ld;
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
        const int64_t row = i / per_row;
        const int col = (int)(i - row * per_row) * V;
        const int64_t at = row * p.ld + col;
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
            value[k] = act_of<ACT>(value[k]);
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

/* dx = add + t * act'(pre); rows of t are ld_t apart, of the others ld. */
struct backward_pass {
    int64_t packs;
    int cols;
    int64_t ld_t, ld;
    const void *t, *pre, *add;
    void *dx;
};

template <int V, int ACT, typename T>
static __global__ void __launch_bounds__(PASS_THREADS) finish_backward(const struct backward_pass p)
{
    const int64_t per_row = p.cols / V;
    for (int64_t i = (int64_t)blockIdx.x * PASS_THREADS + threadIdx.x; i < p.packs;
         i += (int64_t)gridDim.x * PASS_THREADS) {
        const int64_t row = i / per_row;
        const int col = (int)(i - row * per_row) * V;
        const int64_t at = row * p.ld + col;
        float value[V], other[V];
        elem_load_n<V>((const T *)p.t + row * p.ld_t + col, value);
        if (ACT != ACT_NONE) {
            elem_load_n<V>((const T *)p.pre + at, other);
#pragma unroll
            for (int k = 0; k < V; k++)
                value[k] *= act_grad_of<ACT>(other[k]);
        }
        if (p.add) {
            elem_load_n<V>((const T *)p.add + at, other);
#pragma unroll
            for (int k = 0; k < V; k++)
                value[k] += other[k];
        }
        elem_store_n<V>((T *)p.dx + at, value);
    }
}

/* db[cols] += grad[cols]. */
static __global__ void add_bias_grad(int cols, const float *grad, float *db)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c < cols)
        db[c] += grad[c];
}

static int pass_blocks(const struct cuda_backend *cuda, int64_t packs)
{
    return cuda_blocks(packs, PASS_THREADS, (int64_t)cuda->num_sms * 16);
}

template <int V, typename T>
static void launch_forward(struct cuda_backend *cuda, enum act act, int64_t rows,
                           struct forward_pass p)
{
    p.packs = rows * (p.cols / V);
    const int blocks = pass_blocks(cuda, p.packs);
    switch (act) {
    case ACT_NONE:
        CUDA_LAUNCH((finish_forward<V, ACT_NONE, T>), blocks, PASS_THREADS, 0, cuda->stream, p);
        break;
    case ACT_GELU_ERF:
        CUDA_LAUNCH((finish_forward<V, ACT_GELU_ERF, T>), blocks, PASS_THREADS, 0, cuda->stream, p);
        break;
    case ACT_GELU_TANH:
        CUDA_LAUNCH((finish_forward<V, ACT_GELU_TANH, T>), blocks, PASS_THREADS, 0, cuda->stream,
                    p);
        break;
    case ACT_TANH:
        CUDA_LAUNCH((finish_forward<V, ACT_TANH, T>), blocks, PASS_THREADS, 0, cuda->stream, p);
        break;
    }
}

template <int V, typename T>
static void launch_backward(struct cuda_backend *cuda, enum act act, int64_t rows,
                            struct backward_pass p)
{
    p.packs = rows * (p.cols / V);
    const int blocks = pass_blocks(cuda, p.packs);
    switch (act) {
    case ACT_NONE:
        CUDA_LAUNCH((finish_backward<V, ACT_NONE, T>), blocks, PASS_THREADS, 0, cuda->stream, p);
        break;
    case ACT_GELU_ERF:
        CUDA_LAUNCH((finish_backward<V, ACT_GELU_ERF, T>), blocks, PASS_THREADS, 0, cuda->stream,
                    p);
        break;
    case ACT_GELU_TANH:
        CUDA_LAUNCH((finish_backward<V, ACT_GELU_TANH, T>), blocks, PASS_THREADS, 0, cuda->stream,
                    p);
        break;
    case ACT_TANH:
        CUDA_LAUNCH((finish_backward<V, ACT_TANH, T>), blocks, PASS_THREADS, 0, cuda->stream, p);
        break;
    }
}

/* 16 bytes at a time where rows and pointers are aligned to that, else one element. */
static void run_forward(struct backend *be, enum act act, int64_t rows,
                        const struct forward_pass *p)
{
    const uintptr_t bits = (uintptr_t)p->t | (uintptr_t)p->bias | (uintptr_t)p->residual |
                           (uintptr_t)p->pre | (uintptr_t)p->y;
    if (rows <= 0)
        return;
    CUDA_DTYPE(be, T, {
        const int V = 16 / sizeof(T);
        if (bits % 16 == 0 && p->cols % V == 0 && p->ld % V == 0)
            launch_forward<V, T>(cuda_of(be), act, rows, *p);
        else
            launch_forward<1, T>(cuda_of(be), act, rows, *p);
    });
}

static void run_backward(struct backend *be, enum act act, int64_t rows,
                         const struct backward_pass *p)
{
    const uintptr_t bits =
        (uintptr_t)p->t | (uintptr_t)p->pre | (uintptr_t)p->add | (uintptr_t)p->dx;
    if (rows <= 0)
        return;
    CUDA_DTYPE(be, T, {
        const int V = 16 / sizeof(T);
        if (bits % 16 == 0 && p->cols % V == 0 && p->ld % V == 0 && p->ld_t % V == 0)
            launch_backward<V, T>(cuda_of(be), act, rows, *p);
        else
            launch_backward<1, T>(cuda_of(be), act, rows, *p);
    });
}

/* --- the table -------------------------------------------------------------------------------- */

static int64_t stride(int64_t given, int64_t dense)
{
    return given ? given : dense;
}

static bool drops(const struct dropout *drop)
{
    return drop && drop->p > 0.0f;
}

static void linear_forward(struct backend *be, const struct linear *l, const void *x, const void *w,
                           const void *bias, enum act act, const void *residual,
                           const struct dropout *drop, void *pre, void *y)
{
    const int64_t ldy = stride(l->y_stride, l->out);
    struct matmul p = {};
    p.m = l->out;
    p.n = l->rows;
    p.k = l->in;
    p.a = w;
    p.lda = l->in_out ? l->out : l->in;
    p.trans_a = !l->in_out;
    p.b = x;
    p.ldb = stride(l->x_stride, l->in);
    p.ldd = ldy;
    p.alpha = 1.0f;
    p.bias = bias;
    p.d = y;
    if (!drops(drop) && act == ACT_NONE && !pre) {
        p.beta = residual ? 1.0f : 0.0f;
        p.c = residual;
        if (cuda_matmul_run(be, &p))
            return;
    }
    if (!drops(drop) && act == ACT_GELU_TANH && !residual) {
        p.epilogue = MATMUL_GELU;
        p.aux = pre;
        if (cuda_matmul_run(be, &p))
            return;
    }
    /* The product lies where the backward wants it, or in y, or aside; the rest in a pass. */
    void *t = pre ? pre : y;
    if (t == residual)
        t = cuda_scratch(be, l->rows * ldy * be->elem_bytes);
    if (!t)
        return;
    p.epilogue = MATMUL_PLAIN;
    p.aux = NULL;
    p.beta = 0.0f;
    p.c = NULL;
    p.d = t;
    const bool with_bias = cuda_matmul_run(be, &p);
    if (!with_bias && bias) {
        p.bias = NULL;
        cuda_matmul_run(be, &p);
    }
    const void *late = with_bias ? NULL : bias;
    if (t == y && !late && act == ACT_NONE && !drops(drop) && !residual)
        return;
    struct forward_pass pass = {};
    pass.cols = l->out;
    pass.ld = ldy;
    pass.t = t;
    pass.bias = late;
    pass.residual = residual;
    pass.drop = drop_args_of(drop);
    pass.pre = t == pre && !late ? NULL : pre;
    pass.y = y;
    run_forward(be, act, l->rows, &pass);
}

static void linear_backward_input(struct backend *be, const struct linear *l, const void *dy,
                                  const void *w, float scale, enum act act, const void *pre,
                                  const void *add, void *dx)
{
    const int64_t ldx = stride(l->x_stride, l->in);
    struct matmul p = {};
    p.m = l->in;
    p.n = l->rows;
    p.k = l->out;
    p.a = w;
    p.lda = l->in_out ? l->out : l->in;
    p.trans_a = l->in_out;
    p.b = dy;
    p.ldb = stride(l->y_stride, l->out);
    p.ldd = ldx;
    p.alpha = scale;
    p.d = dx;
    if (act == ACT_NONE) {
        p.beta = add ? 1.0f : 0.0f;
        p.c = add;
        cuda_matmul_run(be, &p);
        return;
    }
    if (act == ACT_GELU_TANH && !add) {
        /* dx may be pre: an element of the output needs that element of the aux alone. */
        p.epilogue = MATMUL_DGELU;
        p.aux = (void *)pre;
        if (cuda_matmul_run(be, &p))
            return;
    }
    const bool aside = dx == pre || dx == add;
    void *t = aside ? cuda_scratch(be, l->rows * (int64_t)l->in * be->elem_bytes) : dx;
    if (!t)
        return;
    p.epilogue = MATMUL_PLAIN;
    p.aux = NULL;
    p.d = t;
    p.ldd = aside ? l->in : ldx;
    cuda_matmul_run(be, &p);
    struct backward_pass pass = {};
    pass.cols = l->in;
    pass.ld_t = p.ldd;
    pass.ld = ldx;
    pass.t = t;
    pass.pre = pre;
    pass.add = add;
    pass.dx = dx;
    run_backward(be, act, l->rows, &pass);
}

static void linear_backward_weight(struct backend *be, const struct linear *l, const void *dy,
                                   const void *x, float scale, float *dw, float *db)
{
    const int64_t ldx = stride(l->x_stride, l->in), ldy = stride(l->y_stride, l->out);
    cudaStream_t stream = cuda_of(be)->stream;
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
    p.beta = 1.0f;
    p.c = p.d = dw;
    if (dw && db && scale == 1.0f) {
        p.epilogue = MATMUL_BIAS_GRAD;
        p.grad_of_a = l->in_out;
        p.bias_grad = (float *)cuda_scratch(be, l->out * (int64_t)sizeof(float));
        if (!p.bias_grad)
            return;
        if (cuda_matmul_run(be, &p)) {
            CUDA_LAUNCH(add_bias_grad, cuda_blocks(l->out, 128, INT32_MAX), 128, 0, stream, l->out,
                        (const float *)p.bias_grad, db);
            return;
        }
    }
    if (db)
        cuda_column_sums(be, l->rows, l->out, ldy, dy, scale, db);
    if (dw) {
        p.epilogue = MATMUL_PLAIN;
        p.grad_of_a = false;
        p.bias_grad = NULL;
        cuda_matmul_run(be, &p);
    }
}

static void act_backward(struct backend *be, int64_t num, enum act act, const void *pre,
                         const void *dy, void *dx)
{
    /* Rows as long as an int counts; the pass goes on from one to the next. */
    const int cols = num % 4096 == 0 ? 4096 : num % 64 == 0 ? 64 : 1;
    struct backward_pass pass = {};
    pass.cols = cols;
    pass.ld_t = pass.ld = cols;
    pass.t = dy;
    pass.pre = pre;
    pass.dx = dx;
    run_backward(be, act, num / cols, &pass);
}

void cuda_linear_install(struct backend *be)
{
    be->linear_forward = linear_forward;
    be->linear_backward_input = linear_backward_input;
    be->linear_backward_weight = linear_backward_weight;
    be->act_backward = act_backward;
}
