/* Attention on the CPU, one head of one sample a task.
 *
 * head_forward() and head_backward() take QUERY_BLOCK queries at a time, so that a task holds
 * QUERY_BLOCK x seq scores and not seq x seq. The forward saves the log-sum-exp of each row; the
 * backward recomputes the probabilities from it. Each thread runs a fixed range of tasks with
 * scratch of its own: memory for products first, then fp32 copies of the head's tensors (bf16
 * only), then scores. */
#include <math.h>
#include <string.h>

#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/vmath.h"

enum { QUERY_BLOCK = 128, LANES = 16 };

static inline int64_t keys_of(const struct attention *a, int64_t sample, int64_t query_end)
{
    int64_t keys = a->lengths ? a->lengths[sample] : a->seq;
    /* A sample that is all padding attends to its first key. */
    keys = keys < 1 ? 1 : cpu_min(keys, a->seq);
    return a->causal ? cpu_min(keys, query_end) : keys;
}

/* The first key that a query sees; never falls from query to query. */
static inline int64_t first_key(const struct attention *a, int64_t sample, int64_t query)
{
    int64_t first = a->starts ? a->starts[sample * a->seq + query] : 0;
    if (a->window > 0 && query + 1 - a->window > first)
        first = query + 1 - a->window;
    /* A query of padding after the sample's end sees the last key that counts. */
    return cpu_min(first, keys_of(a, sample, query + 1) - 1);
}

/* Index of the first element of row `query` in a sample's dropout mask [heads, seq, seq]. */
static inline uint32_t mask_first(const struct attention *a, int head, int64_t query)
{
    return (uint32_t)(((int64_t)head * a->seq + query) * a->seq);
}

static inline float row_max(const float *x, int64_t n)
{
    float lane[LANES];
    for (int k = 0; k < LANES; k++)
        lane[k] = -INFINITY;
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = x[c + k] > lane[k] ? x[c + k] : lane[k];
    float max = -INFINITY;
    for (int k = 0; k < LANES; k++)
        max = lane[k] > max ? lane[k] : max;
    for (; c < n; c++)
        max = x[c] > max ? x[c] : max;
    return max;
}

/* x = exp(x - max). Returns the sum. */
static inline float row_exp(float *x, int64_t n, float max)
{
    float lane[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int k = 0; k < LANES; k++) {
            float e = vexp(x[c + k] - max);
            x[c + k] = e;
            lane[k] += e;
        }
    for (int k = 0; c < n; c++, k++) {
        x[c] = vexp(x[c] - max);
        lane[k] += x[c];
    }
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int k = 0; k < w; k++)
            lane[k] += lane[k + w];
    return lane[0];
}

/* Queries, keys and values of one head as fp32, rows `ld` apart. In fp32 they point into qkv; in
 * bf16 they are copies [seq, head_dim] in the task's buffers. */
struct head {
    const float *q, *k, *v;
    int ld;
};

/* Copies rows of a head, `ld` elements apart, from bf16 to fp32. */
static void widen_rows(const struct attention *a, const void *x, int64_t at, int64_t ld, float *y)
{
    for (int64_t i = 0; i < a->seq; i++)
        bf16_widen(a->head_dim, (const uint16_t *)x + at + i * ld, y + i * a->head_dim);
}

static void store_rows(const struct backend *be, const struct attention *a, const float *x, void *y,
                       int64_t at, int64_t ld)
{
    for (int64_t i = 0; i < a->seq; i++)
        cpu_store(be, y, at + i * ld, a->head_dim, x + i * a->head_dim);
}

/* Floats of a head's buffer for one tensor [seq, head_dim]; 0 in fp32, which needs no copy. */
static int64_t buffer_elems(const struct backend *be, const struct attention *a)
{
    return be->elem_bytes == 4 ? 0 : cpu_pad((int64_t)a->seq * a->head_dim);
}

static struct head head_of(const struct backend *be, const struct attention *a, int64_t s, int h,
                           const void *qkv, float *buffers)
{
    const int64_t wide = (int64_t)a->heads * a->head_dim, one = buffer_elems(be, a);
    const int64_t at = s * a->seq * 3 * wide + (int64_t)h * a->head_dim;
    if (one == 0) {
        const float *q = (const float *)qkv + at;
        return (struct head){q, q + wide, q + 2 * wide, (int)(3 * wide)};
    }
    for (int i = 0; i < 3; i++)
        widen_rows(a, qkv, at + i * wide, 3 * wide, buffers + i * one);
    return (struct head){buffers, buffers + one, buffers + 2 * one, a->head_dim};
}

/* Floats of scratch that the products of a head need; a multiple of a cache line. */
static int64_t product_elems(const struct attention *a)
{
    const int64_t block = cpu_min(QUERY_BLOCK, a->seq), seq = a->seq, d = a->head_dim;
    const int64_t bytes[] = {gemm_alone_bytes(block, seq, d), gemm_alone_bytes(block, d, seq),
                             gemm_alone_bytes(seq, d, block)};
    int64_t most = 0;
    for (int i = 0; i < 3; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return most / (int64_t)sizeof(float);
}

struct operand {
    const float *x;
    int64_t ld;
    bool turned; /* the matrix is stored by columns */
};

/* c [m, n] += alpha a b; fresh: c is written. room: scratch of gemm_alone(). */
static void product(int64_t m, int64_t n, int64_t k, float alpha, struct operand a,
                    struct operand b, bool fresh, float *c, int64_t ldc, float *room)
{
    gemm_alone(&(struct gemm){.m = m,
                              .n = n,
                              .k = k,
                              .a = a.x,
                              .a_row = a.turned ? 1 : a.ld,
                              .a_col = a.turned ? a.ld : 1,
                              .b = b.x,
                              .b_row = b.turned ? 1 : b.ld,
                              .b_col = b.turned ? b.ld : 1,
                              .alpha = alpha,
                              .c = c,
                              .ldc = ldc,
                              .fresh = fresh},
               room);
}

static void head_forward(struct backend *be, const struct attention *a, int64_t s, int h,
                         const void *qkv, const struct dropout *drop, float *room, float *scratch,
                         void *ctx, float *lse)
{
    const int d = a->head_dim;
    const float scale = 1.0f / sqrtf((float)d);
    const int64_t wide = (int64_t)a->heads * d, at = s * a->seq * wide + (int64_t)h * d;
    const int64_t one = buffer_elems(be, a);
    const struct head in = head_of(be, a, s, h, qkv, scratch);
    float *o = one ? scratch + 3 * one : (float *)ctx + at, *score = scratch + 4 * one;
    const int ldo = one ? d : (int)wide;
    float *row_lse = lse + (s * a->heads + h) * a->seq;
    const uint64_t key = cpu_drops(drop) ? cpu_mask_key(drop, s) : 0;
    for (int64_t q0 = 0; q0 < a->seq; q0 += QUERY_BLOCK) {
        const int nq = (int)cpu_min(QUERY_BLOCK, a->seq - q0);
        const int64_t k0 = first_key(a, s, q0), at_k = k0 * in.ld;
        const int nk = (int)(keys_of(a, s, q0 + nq) - k0);
        float inv[QUERY_BLOCK];
        const struct operand q = {in.q + q0 * in.ld, in.ld, false}, k = {in.k + at_k, in.ld, true};
        product(nq, nk, d, scale, q, k, true, score, nk, room);
        for (int i = 0; i < nq; i++) {
            float *row = score + (int64_t)i * nk;
            const int64_t end = a->causal ? cpu_min(nk, q0 + i + 1 - k0) : nk;
            const int64_t first = first_key(a, s, q0 + i) - k0, n = end - first;
            float max = row_max(row + first, n);
            float sum = row_exp(row + first, n, max);
            for (int64_t c = 0; c < first; c++)
                row[c] = 0.0f;
            for (int64_t c = end; c < nk; c++)
                row[c] = 0.0f;
            if (cpu_drops(drop))
                cpu_mask(drop, key, mask_first(a, h, q0 + i) + (uint32_t)(k0 + first), n,
                         row + first, row + first);
            inv[i] = 1.0f / sum;
            row_lse[q0 + i] = max + logf(sum);
        }
        const struct operand p = {score, nk, false}, v = {in.v + at_k, in.ld, false};
        product(nq, d, nk, 1.0f, p, v, true, o + q0 * ldo, ldo, room);
        for (int i = 0; i < nq; i++)
            for (int c = 0; c < d; c++)
                o[(q0 + i) * ldo + c] *= inv[i];
    }
    if (one)
        store_rows(be, a, o, ctx, at, wide);
}

static void head_backward(struct backend *be, const struct attention *a, int64_t s, int h,
                          const void *qkv, const struct dropout *drop, const void *ctx,
                          const float *lse, const void *dctx, float *room, float *scratch,
                          void *dqkv)
{
    const int d = a->head_dim;
    const float scale = 1.0f / sqrtf((float)d);
    const int64_t wide = (int64_t)a->heads * d, at = s * a->seq * wide + (int64_t)h * d;
    const int64_t one = buffer_elems(be, a);
    const struct head in = head_of(be, a, s, h, qkv, scratch);
    const float *o = one ? scratch + 3 * one : (const float *)ctx + at;
    const float *go = one ? scratch + 4 * one : (const float *)dctx + at;
    const int ldc = one ? d : (int)wide;
    const float *row_lse = lse + (s * a->heads + h) * a->seq;
    const uint64_t key = cpu_drops(drop) ? cpu_mask_key(drop, s) : 0;
    const int64_t block = (int64_t)cpu_min(QUERY_BLOCK, a->seq) * a->seq;
    float *prob = scratch + 5 * one, *dprob = prob + block;
    float *dq = dprob + block, *dk = dq + (int64_t)a->seq * d, *dv = dk + (int64_t)a->seq * d;
    if (one) {
        widen_rows(a, ctx, at, wide, scratch + 3 * one);
        widen_rows(a, dctx, at, wide, scratch + 4 * one);
    }
    memset(dk, 0, 2 * (size_t)(dv - dk) * sizeof *dk); /* also clears dv, which follows dk */
    for (int64_t q0 = 0; q0 < a->seq; q0 += QUERY_BLOCK) {
        const int nq = (int)cpu_min(QUERY_BLOCK, a->seq - q0);
        const int64_t k0 = first_key(a, s, q0);
        const int nk = (int)(keys_of(a, s, q0 + nq) - k0);
        const float *keys = in.k + k0 * in.ld, *values = in.v + k0 * in.ld;
        const struct operand q = {in.q + q0 * in.ld, in.ld, false};
        const struct operand dout = {go + q0 * ldc, ldc, false}, k = {keys, in.ld, false};
        product(nq, nk, d, scale, q, (struct operand){keys, in.ld, true}, true, prob, nk, room);
        product(nq, nk, d, 1.0f, dout, (struct operand){values, in.ld, true}, true, dprob, nk,
                room);
        for (int i = 0; i < nq; i++) {
            float *p = prob + (int64_t)i * nk, *dp = dprob + (int64_t)i * nk;
            const float *gi = go + (q0 + i) * ldc, *oi = o + (q0 + i) * ldc;
            const int64_t end = a->causal ? cpu_min(nk, q0 + i + 1 - k0) : nk;
            const int64_t first = first_key(a, s, q0 + i) - k0, n = end - first;
            const float l = row_lse[q0 + i];
            float delta = 0.0f;
            for (int c = 0; c < d; c++)
                delta += gi[c] * oi[c];
            for (int64_t c = first; c < end; c++)
                p[c] = vexp(p[c] - l);
            if (cpu_drops(drop)) {
                const uint32_t at_mask = mask_first(a, h, q0 + i) + (uint32_t)(k0 + first);
                cpu_mask(drop, key, at_mask, n, dp + first, dp + first);
                for (int64_t c = first; c < end; c++)
                    dp[c] = p[c] * (dp[c] - delta) * scale;
                cpu_mask(drop, key, at_mask, n, p + first, p + first);
            } else {
                for (int64_t c = first; c < end; c++)
                    dp[c] = p[c] * (dp[c] - delta) * scale;
            }
            for (int64_t c = 0; c < first; c++)
                p[c] = dp[c] = 0.0f;
            for (int64_t c = end; c < nk; c++)
                p[c] = dp[c] = 0.0f;
        }
        product(nk, d, nq, 1.0f, (struct operand){prob, nk, true}, dout, false, dv + k0 * d, d,
                room);
        product(nq, d, nk, 1.0f, (struct operand){dprob, nk, false}, k, true, dq + q0 * d, d, room);
        product(nk, d, nq, 1.0f, (struct operand){dprob, nk, true}, q, false, dk + k0 * d, d, room);
    }
    const float *grad[3] = {dq, dk, dv};
    for (int g = 0; g < 3; g++)
        store_rows(be, a, grad[g], dqkv, s * a->seq * 3 * wide + g * wide + (int64_t)h * d,
                   3 * wide);
}

/* An iteration of the loop over workers runs a fixed range of tasks with scratch of its own. */
static void attention_forward(struct backend *be, const struct attention *a, const void *qkv,
                              const struct dropout *drop, void *ctx, float *lse)
{
    const int64_t tasks = a->num_samples * a->heads;
    const int64_t room = product_elems(a), block = room + 4 * buffer_elems(be, a) +
                                                   cpu_pad(cpu_min(QUERY_BLOCK, a->seq) * a->seq);
    const int workers = be->threads;
    float *scratch = cpu_scratch(be, workers * block * (int64_t)sizeof *scratch);
    if (!scratch)
        return;
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads(be, tasks * a->seq * a->seq * a->head_dim / PRODUCTS_PER_ELEMENT))
    for (int w = 0; w < workers; w++)
        for (int64_t t = cpu_share(tasks, w, workers); t < cpu_share(tasks, w + 1, workers); t++)
            head_forward(be, a, t / a->heads, (int)(t % a->heads), qkv, drop, scratch + w * block,
                         scratch + w * block + room, ctx, lse);
}

static void attention_backward(struct backend *be, const struct attention *a, const void *qkv,
                               const struct dropout *drop, const void *ctx, const float *lse,
                               const void *dctx, void *dqkv)
{
    const int64_t tasks = a->num_samples * a->heads;
    int64_t block = 2 * cpu_min(QUERY_BLOCK, a->seq) * a->seq + 3 * (int64_t)a->seq * a->head_dim;
    const int64_t room = product_elems(a);
    block = room + cpu_pad(block) + 5 * buffer_elems(be, a);
    const int workers = be->threads;
    float *scratch = cpu_scratch(be, workers * block * (int64_t)sizeof *scratch);
    if (!scratch)
        return;
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads(be, tasks * a->seq * a->seq * a->head_dim / PRODUCTS_PER_ELEMENT))
    for (int w = 0; w < workers; w++)
        for (int64_t t = cpu_share(tasks, w, workers); t < cpu_share(tasks, w + 1, workers); t++)
            head_backward(be, a, t / a->heads, (int)(t % a->heads), qkv, drop, ctx, lse, dctx,
                          scratch + w * block, scratch + w * block + room, dqkv);
}

void cpu_attention_install(struct backend *be)
{
    be->attention_forward = attention_forward;
    be->attention_backward = attention_backward;
}
