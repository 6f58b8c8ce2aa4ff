/* Optimizers in fp32, many tensors per launch.
 *
 * All are bound by memory. SGD with momentum moves 20 bytes an element, AdamW 28, LAMB 28 + 20
 * because its step length is known only after a first pass, and each moves 2 more if it writes the
 * bf16 copy of the weights. A block takes PART elements of one tensor; a thread accesses 16 bytes
 * of each array at a time. On request a block also writes the sum of squares of its gradients to
 * squares[block]. update() collects tensors into a list, update_list() launches the kernels for a
 * list. Read these first. */
#include "exec/cuda/squares.cuh"
#include "exec/cuda/cuda_scratch.h"

#include <math.h>

enum { THREADS = SQUARE_THREADS, V = 4, PART = SQUARE_PART, MAX_TENSORS = SQUARE_TENSORS };

struct tensor_ref {
    const float *grad;
    float *weight, *m, *v; /* m: also SGD's momentum; NULL: the rule does not have it */
    __nv_bfloat16 *low;    /* NULL: no copy */
    int64_t num;
};
/* Passed by value: it is smaller than the 4 KiB of a kernel's arguments. */
struct tensor_list {
    int count;
    struct tensor_ref tensor[MAX_TENSORS];
    float decay[MAX_TENSORS];         /* see decay_of() */
    int first_block[MAX_TENSORS + 1]; /* first block of each tensor in the grid */
};

/* The part of a tensor that a block works on. */
struct tensor_part {
    struct tensor_ref t;
    int index;
    float decay;
    int64_t first, end;
    bool wide; /* all addresses are multiples of 16 bytes */
};

static __device__ __forceinline__ struct tensor_part tensor_part_of(const struct tensor_list &list)
{
    struct tensor_part p;
    /* Find the last tensor whose first block is this one or before it. */
    int low = 0, high = list.count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (list.first_block[middle] <= (int)blockIdx.x)
            low = middle;
        else
            high = middle - 1;
    }
    p.t = list.tensor[low];
    p.index = low;
    p.decay = list.decay[low];
    p.first = (int64_t)((int)blockIdx.x - list.first_block[low]) * PART;
    p.end = p.first + PART < p.t.num ? p.first + PART : p.t.num;
    p.wide = ((uintptr_t)p.t.grad | (uintptr_t)p.t.weight | (uintptr_t)p.t.m | (uintptr_t)p.t.v |
              (uintptr_t)p.t.low * 2) %
                 16 ==
             0;
    return p;
}

static __device__ __forceinline__ void load4(const struct tensor_part &p, const float *x, int64_t i,
                                             float *to)
{
    load_four(p.wide, x, i, p.end, to);
}
template <typename T>
static __device__ __forceinline__ void store4(const struct tensor_part &p, T *x, int64_t i,
                                              const float *from)
{
    if (p.wide && i + V <= p.end) {
        elem_store_n<V>(x + i, from);
        return;
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        if (i + k < p.end)
            elem_store(x + i + k, from[k]);
}
static __device__ __forceinline__ void store_weights(const struct tensor_part &p, int64_t i,
                                                     const float *w)
{
    store4(p, p.t.weight, i, w);
    if (p.t.low)
        store4(p, p.t.low, i, w);
}

#define FOR_GROUPS(i, p) FOR_FOURS(i, (p).first, (p).end)

/* SGD as in PyTorch: g += decay w; m = momentum m + g; w -= lr m. */
static __global__ void __launch_bounds__(THREADS)
    sgd_step(const struct sgd o, const struct tensor_list list, double *squares)
{
    const struct tensor_part p = tensor_part_of(list);
    double sq = 0.0;
    FOR_GROUPS(i, p)
    {
        float g[V], w[V], m[V] = {0.0f, 0.0f, 0.0f, 0.0f};
        load4(p, p.t.grad, i, g);
        if (squares)
            sq = square_four(sq, g);
        load4(p, p.t.weight, i, w);
        if (p.t.m)
            load4(p, p.t.m, i, m);
#pragma unroll
        for (int k = 0; k < V; k++) {
            g[k] = o.grad_mul * g[k] + p.decay * w[k];
            m[k] = p.t.m ? o.momentum * m[k] + g[k] : g[k];
            w[k] -= o.lr * m[k];
        }
        if (p.t.m)
            store4(p, p.t.m, i, m);
        store_weights(p, i, w);
    }
    if (squares)
        square_store(sq, squares);
}

/* Constants of a step of AdamW or LAMB, computed once in double. */
struct adam_step {
    float b1, b2, c1, c2, mul, eps;
    float inv1, inv2; /* bias corrections of m and of sqrt(v) */
    float lr, rate;   /* lr / (1 - beta1^step) */
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
    return s;
}

static __device__ __forceinline__ void adam_moments(const struct adam_step &s, float g, float *m,
                                                    float *v)
{
    g *= s.mul;
    *m = s.b1 * *m + s.c1 * g;
    *v = s.b2 * *v + s.c2 * g * g;
}

/* AdamW: decoupled weight decay (Loshchilov and Hutter, 2019), in PyTorch's order of operations.
 * decay holds 1 - lr * weight_decay. */
static __global__ void __launch_bounds__(THREADS)
    adamw_step(const struct adam_step s, const struct tensor_list list, double *squares)
{
    const struct tensor_part p = tensor_part_of(list);
    double sq = 0.0;
    FOR_GROUPS(i, p)
    {
        float g[V], w[V], m[V], v[V];
        load4(p, p.t.grad, i, g);
        if (squares)
            sq = square_four(sq, g);
        load4(p, p.t.weight, i, w);
        load4(p, p.t.m, i, m);
        load4(p, p.t.v, i, v);
#pragma unroll
        for (int k = 0; k < V; k++) {
            adam_moments(s, g[k], &m[k], &v[k]);
            w[k] = w[k] * p.decay - s.rate * m[k] / (sqrtf(v[k]) * s.inv2 + s.eps);
        }
        store4(p, p.t.m, i, m);
        store4(p, p.t.v, i, v);
        store_weights(p, i, w);
    }
    if (squares)
        square_store(sq, squares);
}

/* Sums two doubles per thread over the block, pairwise. Thread 0 returns the result. */
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
    return shared[tid];
}

static __device__ __forceinline__ float lamb_direction(const struct adam_step &s, float m, float v,
                                                       float w, float decay)
{
    return m * s.inv1 / (sqrtf(v) * s.inv2 + s.eps) + decay * w;
}

/* LAMB (You et al. 2020, algorithm 2) with bias correction takes three kernels. lamb_moments()
 * updates m and v and writes the squared lengths of weights and direction by block. lamb_rates()
 * computes the rate of each tensor from them. lamb_step() takes the step. */
static __global__ void __launch_bounds__(THREADS)
    lamb_moments(const struct adam_step s, const struct tensor_list list, double2 *parts,
                 double *squares)
{
    __shared__ double2 shared[THREADS];
    const struct tensor_part p = tensor_part_of(list);
    double sq = 0.0;
    double2 sum = {0.0, 0.0};
    FOR_GROUPS(i, p)
    {
        float g[V], w[V], m[V], v[V];
        load4(p, p.t.grad, i, g);
        if (squares)
            sq = square_four(sq, g);
        load4(p, p.t.weight, i, w);
        load4(p, p.t.m, i, m);
        load4(p, p.t.v, i, v);
#pragma unroll
        for (int k = 0; k < V; k++) {
            adam_moments(s, g[k], &m[k], &v[k]);
            const float u = i + k < p.end ? lamb_direction(s, m[k], v[k], w[k], p.decay) : 0.0f;
            sum.x += (double)w[k] * (double)w[k];
            sum.y += (double)u * (double)u;
        }
        store4(p, p.t.m, i, m);
        store4(p, p.t.v, i, v);
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
    if (squares)
        square_store(sq, squares);
}

static __global__ void __launch_bounds__(THREADS)
    lamb_rates(float lr, const struct tensor_list list, const double2 *parts, float *rates)
{
    __shared__ double2 shared[THREADS];
    const int t = (int)blockIdx.x;
    double2 sum = {0.0, 0.0};
    for (int p = list.first_block[t] + (int)threadIdx.x; p < list.first_block[t + 1];
         p += THREADS) {
        sum.x += parts[p].x;
        sum.y += parts[p].y;
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        rates[t] = lr * (sum.x > 0.0 && sum.y > 0.0 ? (float)sqrt(sum.x / sum.y) : 1.0f);
}

static __global__ void __launch_bounds__(THREADS)
    lamb_step(const struct adam_step s, const struct tensor_list list, const float *rates)
{
    const struct tensor_part p = tensor_part_of(list);
    const float rate = rates[p.index];
    FOR_GROUPS(i, p)
    {
        float w[V], m[V], v[V];
        load4(p, p.t.weight, i, w);
        load4(p, p.t.m, i, m);
        load4(p, p.t.v, i, v);
#pragma unroll
        for (int k = 0; k < V; k++)
            w[k] -= rate * lamb_direction(s, m[k], v[k], w[k], p.decay);
        store_weights(p, i, w);
    }
}

/* Policy apf. held: NULL, or [blocks]: how many weights of its part the check has held. */
static __global__ void __launch_bounds__(THREADS)
    apf_part(const struct apf_rule rule, const struct apf_update u, double *held)
{
    const int64_t first = (int64_t)blockIdx.x * PART;
    const int64_t end = first + PART < u.num ? first + PART : u.num;
    double count = 0.0;
    for (int64_t i = first + (int64_t)threadIdx.x; i < end; i += THREADS) {
        float state[APF_STATES], w = u.weight[i];
        for (int s = 0; s < APF_STATES; s++)
            state[s] = u.state[s][i];
        apf_step(&rule, &w, state);
        for (int s = 0; s < APF_STATES && rule.check; s++)
            u.state[s][i] = state[s];
        u.weight[i] = w;
        if (u.low)
            elem_store((__nv_bfloat16 *)u.low + i, w);
        count += state[APF_LEFT] > 0 ? 1.0 : 0.0;
    }
    if (held)
        square_store(count, held);
}

/* --- host ------------------------------------------------------------------------------------ */

/* Weight decay as the rule's kernel takes it. SGD and LAMB: the coefficient, 0 for none; AdamW: the factor
 * 1 - lr x decay, 1 for none. */
static float decay_of(const struct update_rule *rule, bool decay)
{
    switch (rule->kind) {
    case OPTIMIZER_SGD:
        return decay ? rule->sgd.weight_decay : 0.0f;
    case OPTIMIZER_ADAMW:
        return decay ? (float)(1.0 - rule->adam.lr * rule->adam.weight_decay) : 1.0f;
    case OPTIMIZER_LAMB:
        break;
    }
    return decay ? (float)rule->adam.weight_decay : 0.0f;
}

/* Launches the kernels of the rule for a list. squares: NULL, or [blocks]. */
static void launch_list(struct backend *be, const struct update_rule *rule,
                        const struct tensor_list &list, double2 *parts, double *squares)
{
    cudaStream_t stream = cuda_of(be)->stream;
    const unsigned blocks = (unsigned)list.first_block[list.count];
    if (rule->kind == OPTIMIZER_SGD) {
        CUDA_LAUNCH(sgd_step, blocks, THREADS, 0, stream, rule->sgd, list, squares);
        return;
    }
    const struct adam_step s = adam_step_of(&rule->adam);
    if (rule->kind == OPTIMIZER_ADAMW) {
        CUDA_LAUNCH(adamw_step, blocks, THREADS, 0, stream, s, list, squares);
        return;
    }
    float *rates = (float *)(void *)(parts + blocks);
    CUDA_LAUNCH(lamb_moments, blocks, THREADS, 0, stream, s, list, parts, squares);
    CUDA_LAUNCH(lamb_rates, (unsigned)list.count, THREADS, 0, stream, s.lr, list,
                (const double2 *)parts, rates);
    CUDA_LAUNCH(lamb_step, blocks, THREADS, 0, stream, s, list, (const float *)rates);
}

/* Updates the tensors of a list. to[t], if not NULL, receives the sum of squares of tensor t's
 * gradient; adjacent destinations take one copy. */
static void update_list(struct backend *be, const struct update_rule *rule,
                        const struct tensor_list &list, double *const *to)
{
    const int64_t blocks = list.first_block[list.count];
    const int64_t lamb_bytes =
        rule->kind == OPTIMIZER_LAMB ? blocks * (int64_t)sizeof(double2) + MAX_TENSORS * 16 : 0;
    bool wanted = false;
    for (int t = 0; t < list.count; t++)
        wanted |= to[t] != NULL;
    const int64_t square_bytes = wanted ? (blocks + MAX_TENSORS) * (int64_t)sizeof(double) : 0;
    char *scratch = NULL;
    if (lamb_bytes + square_bytes > 0) {
        scratch = (char *)cuda_scratch(be, lamb_bytes + square_bytes);
        if (!scratch)
            return;
    }
    double *sums = wanted ? (double *)(void *)(scratch + lamb_bytes) : NULL;
    double *squares = wanted ? sums + MAX_TENSORS : NULL;
    launch_list(be, rule, list, (double2 *)(void *)scratch, squares);
    if (wanted)
        cuda_add_squares(be, list.count, list.first_block, squares, sums);
    for (int t = 0, n; t < list.count; t += n) {
        n = 1;
        while (to[t] && t + n < list.count && to[t + n] == to[t] + n)
            n++;
        if (to[t])
            be->copy_out(be, to[t], sums + t, n * (int64_t)sizeof *sums);
    }
}

static void update(struct backend *be, const struct update_rule *rule, int count,
                   const struct update *tensors)
{
    struct tensor_list list;
    double *to[MAX_TENSORS];
    list.count = 0;
    list.first_block[0] = 0;
    for (int t = 0; t < count; t++) {
        const struct update *u = &tensors[t];
        if (u->num > 0) {
            const int at = list.count++;
            list.tensor[at] = {
                u->grad, u->weight, u->state[0], u->state[1], (__nv_bfloat16 *)u->low, u->num};
            list.decay[at] = decay_of(rule, u->decay);
            list.first_block[at + 1] = list.first_block[at] + (int)((u->num + PART - 1) / PART);
            to[at] = u->sumsq;
        } else if (u->sumsq) {
            *u->sumsq = 0.0;
        }
        if (list.count == MAX_TENSORS || (t + 1 == count && list.count > 0)) {
            update_list(be, rule, list, to);
            list.count = 0;
        }
    }
}

static void apf(struct backend *be, const struct apf_rule *rule, const struct apf_update *u)
{
    const int first[] = {0, (int)((u->num + PART - 1) / PART)};
    double *sum = NULL;
    if (u->held) {
        *u->held = 0.0;
        sum = (double *)cuda_scratch(be, (1 + first[1]) * (int64_t)sizeof *sum);
    }
    if (u->num == 0 || (u->held && !sum))
        return;
    CUDA_LAUNCH(apf_part, (unsigned)first[1], THREADS, 0, cuda_of(be)->stream, *rule, *u,
                sum ? sum + 1 : NULL);
    if (!sum)
        return;
    cuda_add_squares(be, 1, first, sum + 1, sum);
    be->copy_out(be, u->held, sum, (int64_t)sizeof *sum);
}

void cuda_optim_install(struct backend *be)
{
    be->update = update;
    be->apf = apf;
}
