#include "exec/cuda/elem.cuh"

#include <math.h>

/* Optimizers in fp32, four elements an access, one pass, bound by memory: SGD with momentum moves
 * 20 bytes an element, AdamW 28, LAMB 28 + 20 (its step's length is known only after a pass). */
enum { THREADS = 256, PART = 16384, V = 4 };

static int stride_blocks(struct backend *be, int64_t num)
{
    return cuda_blocks(num, (int64_t)THREADS * V, 8 * (int64_t)cuda_of(be)->num_sms);
}

/* Element by element in registers; `end` cuts the last group. WIDE: all addresses are multiples of
 * 16 bytes. */
template <bool WIDE>
static __device__ __forceinline__ void load4(const float *x, int64_t i, int64_t end, float *to)
{
    if (WIDE && i + V <= end) {
        elem_load_n<V>(x + i, to);
        return;
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        to[k] = i + k < end ? x[i + k] : 0.0f;
}
template <bool WIDE>
static __device__ __forceinline__ void store4(float *x, int64_t i, int64_t end, const float *from)
{
    if (WIDE && i + V <= end) {
        elem_store_n<V>(x + i, from);
        return;
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        if (i + k < end)
            x[i + k] = from[k];
}

#define FOR_GROUPS(i, num)                                                                         \
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V; i < (num);                 \
         i += (int64_t)gridDim.x * THREADS * V)

#define OPTIM_LAUNCH(kernel, wide, blocks, stream, ...)                                            \
    do {                                                                                           \
        if (wide)                                                                                  \
            CUDA_LAUNCH((kernel<true>), blocks, THREADS, 0, stream, __VA_ARGS__);                  \
        else                                                                                       \
            CUDA_LAUNCH((kernel<false>), blocks, THREADS, 0, stream, __VA_ARGS__);                 \
    } while (0)

static bool aligned4(const void *a, const void *b, const void *c, const void *d)
{
    return ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) % 16 == 0;
}

/* PyTorch's SGD: g += decay w; m = momentum m + g; w -= lr m. */
template <bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    sgd_step(int64_t num, const struct sgd o, const float *grad, float *weight, float *momentum)
{
    FOR_GROUPS(i, num)
    {
        float g[V], w[V], m[V];
        load4<WIDE>(grad, i, num, g);
        load4<WIDE>(weight, i, num, w);
        if (momentum)
            load4<WIDE>(momentum, i, num, m);
#pragma unroll
        for (int k = 0; k < V; k++) {
            g[k] = o.grad_mul * g[k] + o.weight_decay * w[k];
            m[k] = momentum ? o.momentum * m[k] + g[k] : g[k];
            w[k] -= o.lr * m[k];
        }
        if (momentum)
            store4<WIDE>(momentum, i, num, m);
        store4<WIDE>(weight, i, num, w);
    }
}

static void sgd(struct backend *be, int64_t num, const struct sgd *o, const float *grad,
                float *weight, float *momentum)
{
    if (num > 0)
        OPTIM_LAUNCH(sgd_step, aligned4(grad, weight, momentum, NULL), stride_blocks(be, num),
                     cuda_of(be)->stream, num, *o, grad, weight, momentum);
}

/* What AdamW and LAMB take from struct adam, computed in double once. */
struct adam_step {
    float b1, b2, c1, c2, mul, eps;
    float inv1, inv2; /* bias corrections of m and of sqrt(v) */
    float lr, rate;   /* lr / (1 - beta1^step) */
    float decay, shrink;
};

static struct adam_step adam_step_of(const struct adam *o)
{
    const double fix1 = 1.0 - pow(o->beta1, (double)o->step);
    const double fix2 = sqrt(1.0 - pow(o->beta2, (double)o->step));
    struct adam_step s;
    s.b1 = (float)o->beta1;
    s.b2 = (float)o->beta2;
    s.c1 = (float)(1.0 - o->beta1);
    s.c2 = (float)(1.0 - o->beta2);
    s.mul = o->grad_mul;
    s.eps = (float)o->eps;
    s.inv1 = (float)(1.0 / fix1);
    s.inv2 = (float)(1.0 / fix2);
    s.lr = (float)o->lr;
    s.rate = (float)(o->lr / fix1);
    s.decay = (float)o->weight_decay;
    s.shrink = (float)(1.0 - o->lr * o->weight_decay);
    return s;
}

/* Decoupled weight decay (Loshchilov and Hutter, 2019), in PyTorch's order of operations. */
template <bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    adamw_step(int64_t num, const struct adam_step s, const float *grad, float *weight, float *m,
               float *v)
{
    FOR_GROUPS(i, num)
    {
        float g[V], w[V], m1[V], v1[V];
        load4<WIDE>(grad, i, num, g);
        load4<WIDE>(weight, i, num, w);
        load4<WIDE>(m, i, num, m1);
        load4<WIDE>(v, i, num, v1);
#pragma unroll
        for (int k = 0; k < V; k++) {
            g[k] *= s.mul;
            m1[k] = s.b1 * m1[k] + s.c1 * g[k];
            v1[k] = s.b2 * v1[k] + s.c2 * g[k] * g[k];
            w[k] = w[k] * s.shrink - s.rate * m1[k] / (sqrtf(v1[k]) * s.inv2 + s.eps);
        }
        store4<WIDE>(m, i, num, m1);
        store4<WIDE>(v, i, num, v1);
        store4<WIDE>(weight, i, num, w);
    }
}

static void adamw(struct backend *be, int64_t num, const struct adam *o, const float *grad,
                  float *weight, float *m, float *v)
{
    const struct adam_step s = adam_step_of(o);
    if (num > 0)
        OPTIM_LAUNCH(adamw_step, aligned4(grad, weight, m, v), stride_blocks(be, num),
                     cuda_of(be)->stream, num, s, grad, weight, m, v);
}

/* The sum of two doubles a thread over the block, pairwise, in every thread. */
static __device__ __forceinline__ double2 block_sum(double2 x, double2 *shared)
{
    const int tid = (int)threadIdx.x;
    shared[tid] = x;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (tid < half) {
            shared[tid].x += shared[tid + half].x;
            shared[tid].y += shared[tid + half].y;
        }
    }
    __syncthreads();
    return shared[0];
}

static __device__ __forceinline__ float lamb_direction(const struct adam_step &s, float m, float v,
                                                       float w)
{
    return m * s.inv1 / (sqrtf(v) * s.inv2 + s.eps) + s.decay * w;
}

/* You et al. 2020, algorithm 2, with bias correction. First the moments, and the squared lengths of
 * weights and direction in parts of PART elements; then every block sums the parts alike. */
template <bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    lamb_moments(int64_t num, const struct adam_step s, const float *grad, const float *weight,
                 float *m, float *v, double2 *parts)
{
    __shared__ double2 shared[THREADS];
    const int64_t first = (int64_t)blockIdx.x * PART;
    const int64_t end = first + PART < num ? first + PART : num;
    double2 sum = {0.0, 0.0};
    for (int64_t i = first + (int64_t)threadIdx.x * V; i < end; i += THREADS * V) {
        float g[V], w[V], m1[V], v1[V];
        load4<WIDE>(grad, i, end, g);
        load4<WIDE>(weight, i, end, w);
        load4<WIDE>(m, i, end, m1);
        load4<WIDE>(v, i, end, v1);
#pragma unroll
        for (int k = 0; k < V; k++) {
            g[k] *= s.mul;
            m1[k] = s.b1 * m1[k] + s.c1 * g[k];
            v1[k] = s.b2 * v1[k] + s.c2 * g[k] * g[k];
            const float u = i + k < end ? lamb_direction(s, m1[k], v1[k], w[k]) : 0.0f;
            sum.x += (double)w[k] * (double)w[k];
            sum.y += (double)u * (double)u;
        }
        store4<WIDE>(m, i, end, m1);
        store4<WIDE>(v, i, end, v1);
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

template <bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    lamb_step(int64_t num, const struct adam_step s, int64_t num_parts, const double2 *parts,
              float *weight, const float *m, const float *v)
{
    __shared__ double2 shared[THREADS];
    double2 sum = {0.0, 0.0};
    for (int64_t p = threadIdx.x; p < num_parts; p += THREADS) {
        sum.x += parts[p].x;
        sum.y += parts[p].y;
    }
    sum = block_sum(sum, shared);
    const float trust = sum.x > 0.0 && sum.y > 0.0 ? (float)sqrt(sum.x / sum.y) : 1.0f;
    const float rate = s.lr * trust;
    FOR_GROUPS(i, num)
    {
        float w[V], m1[V], v1[V];
        load4<WIDE>(weight, i, num, w);
        load4<WIDE>(m, i, num, m1);
        load4<WIDE>(v, i, num, v1);
#pragma unroll
        for (int k = 0; k < V; k++)
            w[k] -= rate * lamb_direction(s, m1[k], v1[k], w[k]);
        store4<WIDE>(weight, i, num, w);
    }
}

static void lamb(struct backend *be, int64_t num, const struct adam *o, const float *grad,
                 float *weight, float *m, float *v)
{
    const struct adam_step s = adam_step_of(o);
    const int64_t num_parts = (num + PART - 1) / PART;
    const bool wide = aligned4(grad, weight, m, v);
    cudaStream_t stream = cuda_of(be)->stream;
    double2 *parts = (double2 *)cuda_scratch(be, (num_parts + 1) * (int64_t)sizeof *parts);
    if (!parts || num <= 0)
        return;
    OPTIM_LAUNCH(lamb_moments, wide, (unsigned)num_parts, stream, num, s, grad,
                 (const float *)weight, m, v, parts);
    OPTIM_LAUNCH(lamb_step, wide, stride_blocks(be, num), stream, num, s, num_parts,
                 (const double2 *)parts, weight, (const float *)m, (const float *)v);
}

void cuda_optim_install(struct backend *be)
{
    be->sgd = sgd;
    be->adamw = adamw;
    be->lamb = lamb;
}
