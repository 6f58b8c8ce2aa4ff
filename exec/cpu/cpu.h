/* exec/cpu/cpu.h - helpers that the files of the cpu backend share; private to exec/cpu/.
 *
 * Parallel loops run over tiles. The bounds of a tile depend on shapes only, every output element
 * is written by one tile, and sums over tiles are added in tile order. So results do not depend on
 * the number of threads. */
#pragma once

#include "exec/base/backend.h"
#include "exec/base/bf16.h"
#include "exec/base/rng.h"

struct cpu_backend {
    struct backend base; /* must come first, because a struct backend * is cast to this struct */
    void *scratch;       /* owned; 64-byte aligned; grows on demand */
    int64_t scratch_bytes;
    struct err failed; /* the first failure; sync() reports it */
};

/* Memory aligned to 64 bytes; NULL when there is none. */
void *cpu_alloc64(int64_t bytes, bool zeroed);
void cpu_free64(void *ptr); /* NULL is fine */

/* At least `bytes` of scratch, valid until the next call on this backend. Without memory the
 * failure is recorded for sync(), and the result is NULL. */
void *cpu_scratch(struct backend *be, int64_t bytes);

static inline int64_t cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t cpu_tiles(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

/* A loop over fewer elements than this runs on the calling thread: one thread passes over them in some
 * 5 us, and waking the others takes as long. A product's multiply-add costs that share of an element. */
enum { ELEMENTS_WORTH_THREADS = 16384, PRODUCTS_PER_ELEMENT = 16 };

/* How many threads a loop over `elements` is worth. No result depends on it. */
static inline int cpu_threads(const struct backend *be, int64_t elements)
{
    return elements < ELEMENTS_WORTH_THREADS ? 1 : be->threads;
}

/* First index of part `part` when n items are cut into `parts` equal parts. */
static inline int64_t cpu_share(int64_t n, int64_t part, int64_t parts)
{
    return n * part / parts;
}

/* Access to n elements of a tensor of the backend's dtype as fp32. In fp32 they return a pointer
 * into the tensor; in bf16 they use the caller's buffer. cpu_in() reads. cpu_out() returns where to
 * compute, and cpu_put() then rounds the buffer into the tensor (in fp32 it does nothing). Each
 * thread must write a range of its own. */
static inline const float *cpu_in(const struct backend *be, const void *x, int64_t at, int64_t n,
                                  float *buffer)
{
    if (be->elem_bytes == 4)
        return (const float *)x + at;
    bf16_widen(n, (const uint16_t *)x + at, buffer);
    return buffer;
}
static inline float *cpu_out(const struct backend *be, void *y, int64_t at, float *buffer)
{
    return be->elem_bytes == 4 ? (float *)y + at : buffer;
}
static inline void cpu_put(const struct backend *be, void *y, int64_t at, int64_t n,
                           const float *buffer)
{
    if (be->elem_bytes != 4)
        bf16_narrow(n, buffer, (uint16_t *)y + at);
}
/* Store n fp32 values from any place: rounded to bf16, or copied. */
static inline void cpu_store(const struct backend *be, void *y, int64_t at, int64_t n,
                             const float *x)
{
    if (be->elem_bytes == 4)
        memcpy((float *)y + at, x, (size_t)n * sizeof *x);
    else
        bf16_narrow(n, x, (uint16_t *)y + at);
}
/* n rounded up to 16 floats, so that row buffers of two threads do not share a cache line. */
static inline int64_t cpu_pad(int64_t n)
{
    return (n + 15) / 16 * 16;
}

/* The sum of a[c] * b[c] in 16 lanes, so that the order of additions does not depend on the vector
 * width of the machine. */
static inline float cpu_dot(const float *a, const float *b, int n)
{
    enum { LANES = 16 };
    float lane[LANES] = {0};
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += a[c + k] * b[c + k];
    for (int k = 0; c < n; c++, k++)
        lane[k] += a[c] * b[c];
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int k = 0; k < w; k++)
            lane[k] += lane[k + w];
    return lane[0];
}

/* dst[cols] += scale * the sum of the rows of part[tiles][cols], in tile order. fresh: dst is
 * written, not added to. */
void cpu_add_partials(const float *part, int64_t tiles, int64_t cols, float scale, bool fresh,
                      float *dst);

/* x = act(x); dx = dy * act'(pre), dx may be dy. */
void cpu_act(int n, enum act act, float *x);
void cpu_act_grad(int n, enum act act, const float *pre, const float *dy, float *dx);

/* Dropout as defined in exec/base/backend.h. cpu_drops(): whether it is on. cpu_mask_key(): the key
 * of a sample's random numbers. cpu_mask(): apply elements [first, first + n) of the mask, y = keep
 * ? x / (1 - p) : 0; y may be x. */
static inline bool cpu_drops(const struct dropout *drop)
{
    return drop && drop->p > 0.0f;
}
static inline uint64_t cpu_mask_key(const struct dropout *drop, int64_t sample)
{
    return rng_mix(drop->key ^ (uint64_t)drop->ids[sample]);
}
static inline void cpu_mask(const struct dropout *drop, uint64_t key, uint32_t first, int64_t n,
                            const float *x, float *y)
{
    const uint32_t limit = (uint32_t)((double)drop->p * 4294967296.0);
    const float up = 1.0f / (1.0f - drop->p);
    for (int64_t c = 0; c < n; c++)
        y[c] = rng_bits(key, first + (uint32_t)c) >= limit ? x[c] * up : 0.0f;
}

#define CPU_FUNCTIONS(name)                                                                        \
    void name##_install(struct backend *be) /* each file enters its kernels into the table */
CPU_FUNCTIONS(cpu_host);
CPU_FUNCTIONS(cpu_linear);
CPU_FUNCTIONS(cpu_norm);
CPU_FUNCTIONS(cpu_decoder);
CPU_FUNCTIONS(cpu_attention);
CPU_FUNCTIONS(cpu_embed);
CPU_FUNCTIONS(cpu_loss);
CPU_FUNCTIONS(cpu_optim);
#undef CPU_FUNCTIONS
