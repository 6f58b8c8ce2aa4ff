#include <cblas.h>
#include <math.h>

#include "exec/cpu/cpu.h"
#include "exec/cpu/vmath.h"
#include "exec/rng.h"

/* One task is one head of one sample. Its scores live in scratch a block of queries at a time,
 * never more; the backward rebuilds probabilities from the saved log-sum-exp. */
enum { QUERY_BLOCK = 128, LANES = 16 };

static inline int64_t keys_of(const struct attention *a, int64_t sample, int64_t query_end)
{
    int64_t keys = a->lengths ? a->lengths[sample] : a->seq;
    keys = keys < 1 ? 1 : cpu_min(keys, a->seq); /* a sample of padding only attends to itself */
    return a->causal ? cpu_min(keys, query_end) : keys;
}

/* Index of the first element of row `query` in the mask of a sample: [heads, seq, seq]. */
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

/* x = exp(x - max), returns the sum. */
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

static inline bool drops(const struct dropout *drop)
{
    return drop && drop->p > 0.0f;
}

static void mask_row(const struct dropout *drop, uint64_t key, uint32_t first, int64_t n, float *x)
{
    uint32_t limit = (uint32_t)((double)drop->p * 4294967296.0);
    float up = 1.0f / (1.0f - drop->p);
    for (int64_t c = 0; c < n; c++)
        x[c] = rng_bits(key, first + (uint32_t)c) >= limit ? x[c] * up : 0.0f;
}

static void head_forward(const struct attention *a, int64_t s, int h, const float *qkv,
                         const struct dropout *drop, float *score, float *ctx, float *lse)
{
    const int d = a->head_dim, ldc = a->heads * d, ldq = 3 * ldc;
    const float scale = 1.0f / sqrtf((float)d);
    const float *q = qkv + s * a->seq * ldq + h * d, *k = q + ldc, *v = k + ldc;
    float *o = ctx + s * a->seq * ldc + h * d;
    float *row_lse = lse + (s * a->heads + h) * a->seq;
    const uint64_t key = drops(drop) ? rng_mix(drop->key ^ (uint64_t)drop->ids[s]) : 0;
    for (int64_t q0 = 0; q0 < a->seq; q0 += QUERY_BLOCK) {
        const int nq = (int)cpu_min(QUERY_BLOCK, a->seq - q0);
        const int nk = (int)keys_of(a, s, q0 + nq);
        float inv[QUERY_BLOCK];
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, nq, nk, d, scale, q + q0 * ldq, ldq, k,
                    ldq, 0.0f, score, nk);
        for (int i = 0; i < nq; i++) {
            float *row = score + (int64_t)i * nk;
            const int64_t n = a->causal ? cpu_min(nk, q0 + i + 1) : nk;
            float max = row_max(row, n);
            float sum = row_exp(row, n, max);
            for (int64_t c = n; c < nk; c++)
                row[c] = 0.0f;
            if (drops(drop))
                mask_row(drop, key, mask_first(a, h, q0 + i), n, row);
            inv[i] = 1.0f / sum;
            row_lse[q0 + i] = max + logf(sum);
        }
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, nq, d, nk, 1.0f, score, nk, v, ldq,
                    0.0f, o + q0 * ldc, ldc);
        for (int i = 0; i < nq; i++)
            for (int c = 0; c < d; c++)
                o[(q0 + i) * ldc + c] *= inv[i];
    }
}

static void head_backward(const struct attention *a, int64_t s, int h, const float *qkv,
                          const struct dropout *drop, const float *ctx, const float *lse,
                          const float *dctx, float *scratch, float *dqkv)
{
    const int d = a->head_dim, ldc = a->heads * d, ldq = 3 * ldc;
    const float scale = 1.0f / sqrtf((float)d);
    const float *q = qkv + s * a->seq * ldq + h * d, *k = q + ldc, *v = k + ldc;
    const float *o = ctx + s * a->seq * ldc + h * d, *go = dctx + s * a->seq * ldc + h * d;
    const float *row_lse = lse + (s * a->heads + h) * a->seq;
    const uint64_t key = drops(drop) ? rng_mix(drop->key ^ (uint64_t)drop->ids[s]) : 0;
    const int64_t block = (int64_t)cpu_min(QUERY_BLOCK, a->seq) * a->seq;
    float *prob = scratch, *dprob = prob + block;
    float *dq = dprob + block, *dk = dq + (int64_t)a->seq * d, *dv = dk + (int64_t)a->seq * d;
    for (int64_t q0 = 0; q0 < a->seq; q0 += QUERY_BLOCK) {
        const int nq = (int)cpu_min(QUERY_BLOCK, a->seq - q0);
        const int nk = (int)keys_of(a, s, q0 + nq);
        /* The keys that earlier blocks have not met start from this block's product alone. */
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, nq, nk, d, scale, q + q0 * ldq, ldq, k,
                    ldq, 0.0f, prob, nk);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, nq, nk, d, 1.0f, go + q0 * ldc, ldc, v,
                    ldq, 0.0f, dprob, nk);
        for (int i = 0; i < nq; i++) {
            float *p = prob + (int64_t)i * nk, *dp = dprob + (int64_t)i * nk;
            const float *gi = go + (q0 + i) * ldc, *oi = o + (q0 + i) * ldc;
            const int64_t n = a->causal ? cpu_min(nk, q0 + i + 1) : nk;
            const float l = row_lse[q0 + i];
            float delta = 0.0f;
            for (int c = 0; c < d; c++)
                delta += gi[c] * oi[c];
            for (int64_t c = 0; c < n; c++)
                p[c] = vexp(p[c] - l);
            if (drops(drop)) {
                mask_row(drop, key, mask_first(a, h, q0 + i), n, dp);
                for (int64_t c = 0; c < n; c++)
                    dp[c] = p[c] * (dp[c] - delta) * scale;
                mask_row(drop, key, mask_first(a, h, q0 + i), n, p);
            } else {
                for (int64_t c = 0; c < n; c++)
                    dp[c] = p[c] * (dp[c] - delta) * scale;
            }
            for (int64_t c = n; c < nk; c++)
                p[c] = dp[c] = 0.0f;
        }
        const float beta = 1.0f;
        if (q0 == 0)
            for (int64_t c = 0; c < a->seq * d; c++)
                dk[c] = dv[c] = 0.0f;
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, nk, d, nq, 1.0f, prob, nk,
                    go + q0 * ldc, ldc, beta, dv, d);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, nq, d, nk, 1.0f, dprob, nk, k, ldq,
                    0.0f, dq + q0 * d, d);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, nk, d, nq, 1.0f, dprob, nk,
                    q + q0 * ldq, ldq, beta, dk, d);
    }
    float *out = dqkv + s * a->seq * ldq + h * d;
    for (int64_t i = 0; i < a->seq; i++)
        for (int c = 0; c < d; c++) {
            out[i * ldq + c] = dq[i * d + c];
            out[i * ldq + ldc + c] = dk[i * d + c];
            out[i * ldq + 2 * ldc + c] = dv[i * d + c];
        }
}

static void attention_forward(struct backend *be, const struct attention *a, const float *qkv,
                              const struct dropout *drop, float *ctx, float *lse)
{
    const int64_t tasks = a->num_samples * a->heads;
    const int64_t block = (cpu_min(QUERY_BLOCK, a->seq) * a->seq + 15) / 16 * 16;
    const int workers = be->threads;
    float *scratch = cpu_scratch(be, workers * block * (int64_t)sizeof *scratch);
    if (!scratch)
        return;
        /* One iteration a worker: a fixed run of tasks, and scratch of its own. */
#pragma omp parallel for schedule(static) num_threads(workers)
    for (int w = 0; w < workers; w++)
        for (int64_t t = tasks * w / workers; t < tasks * (w + 1) / workers; t++)
            head_forward(a, t / a->heads, (int)(t % a->heads), qkv, drop, scratch + w * block, ctx,
                         lse);
}

static void attention_backward(struct backend *be, const struct attention *a, const float *qkv,
                               const struct dropout *drop, const float *ctx, const float *lse,
                               const float *dctx, float *dqkv)
{
    const int64_t tasks = a->num_samples * a->heads;
    int64_t block = 2 * cpu_min(QUERY_BLOCK, a->seq) * a->seq + 3 * (int64_t)a->seq * a->head_dim;
    block = (block + 15) / 16 * 16;
    const int workers = be->threads;
    float *scratch = cpu_scratch(be, workers * block * (int64_t)sizeof *scratch);
    if (!scratch)
        return;
#pragma omp parallel for schedule(static) num_threads(workers)
    for (int w = 0; w < workers; w++)
        for (int64_t t = tasks * w / workers; t < tasks * (w + 1) / workers; t++)
            head_backward(a, t / a->heads, (int)(t % a->heads), qkv, drop, ctx, lse, dctx,
                          scratch + w * block, dqkv);
}

void cpu_attention_install(struct backend *be)
{
    be->attention_forward = attention_forward;
    be->attention_backward = attention_backward;
}
