/* Kernels of decoders of the llama family: RMSNorm, rotary positions with grouped heads, gated
 * activations. They stand in for layer norms, position tables and GELUs. */
#include <math.h>
#include <omp.h>
#include <stddef.h>

#include "exec/cpu/cpu.h"

enum { ROW_TILE = 64, STRIP = 512 };

/* --- RMSNorm -------------------------------------------------------------------------------- */

static inline float norm_row(const float *x, const float *gamma, float plus, float eps, int n,
                             float *y)
{
    const float rstd = 1.0f / sqrtf(cpu_dot(x, x, n) / (float)n + eps);
    for (int c = 0; c < n; c++)
        y[c] = x[c] * rstd * (plus + gamma[c]);
    return rstd;
}

/* g = dy (plus + gamma), h = x rstd: dx = rstd (g - h mean(g h)), and dgamma += dy h. g may be dy. */
static inline void norm_row_backward(const float *dy, const float *x, const float *gamma,
                                     float plus, float rstd, int n, float *dgamma, float *g,
                                     float *dx)
{
    for (int c = 0; dgamma && c < n; c++)
        dgamma[c] += dy[c] * (x[c] * rstd);
    if (!dx)
        return;
    for (int c = 0; c < n; c++)
        g[c] = dy[c] * (plus + gamma[c]);
    const float mean = cpu_dot(g, x, n) * rstd / (float)n;
    for (int c = 0; c < n; c++)
        dx[c] = rstd * (g[c] - x[c] * rstd * mean);
}

static void rmsnorm_forward(struct backend *be, const struct rmsnorm *n, const void *x,
                            const float *gamma, void *y, float *stats)
{
    const int cols = n->cols;
    const int64_t wide = cpu_pad(cols);
    float *buffers = cpu_scratch(be, 2 * wide * be->threads * (int64_t)sizeof *buffers);
    if (!buffers)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, n->rows *cols))
    for (int64_t r = 0; r < n->rows; r++) {
        float *buffer = buffers + 2 * wide * omp_get_thread_num();
        const float *in = cpu_in(be, x, r * cols, cols, buffer);
        float *out = cpu_out(be, y, r * cols, buffer + wide);
        stats[r] = norm_row(in, gamma, n->plus, n->eps, cols, out);
        cpu_put(be, y, r * cols, cols, out);
    }
}

/* Sums of gamma go by tiles of ROW_TILE rows. */
static void rmsnorm_backward(struct backend *be, const struct rmsnorm *n, const void *dy,
                             const void *x, const float *stats, const float *gamma, const void *add,
                             void *dx, float *part)
{
    const int cols = n->cols;
    const int64_t wide = cpu_pad(cols), tiles = cpu_tiles(n->rows, ROW_TILE);
    /* scratch: sums of gamma [tiles][wide], then five rows per thread: dy, x, add, g, dx */
    float *sums = cpu_scratch(be, (tiles * wide + 5 * wide * be->threads) * (int64_t)sizeof *sums);
    if (!sums)
        return;
    float *buffers = sums + tiles * wide;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, n->rows *cols))
    for (int64_t t = 0; t < tiles; t++) {
        float *buffer = buffers + 5 * wide * omp_get_thread_num();
        float *dgamma = part ? sums + t * cols : NULL, *g = buffer + 3 * wide;
        float *got = buffer + 4 * wide;
        for (int c = 0; part && c < cols; c++)
            dgamma[c] = 0.0f;
        for (int64_t r = t * ROW_TILE; r < cpu_min((t + 1) * ROW_TILE, n->rows); r++) {
            const float *d = cpu_in(be, dy, r * cols, cols, buffer);
            const float *in = cpu_in(be, x, r * cols, cols, buffer + wide);
            norm_row_backward(d, in, gamma, n->plus, stats[r], cols, dgamma, g, dx ? got : NULL);
            if (!dx)
                continue;
            const float *more = add ? cpu_in(be, add, r * cols, cols, buffer + 2 * wide) : NULL;
            for (int c = 0; more && c < cols; c++)
                got[c] += more[c];
            cpu_store(be, dx, r * cols, cols, got);
        }
    }
    if (part)
        cpu_add_partials(sums, tiles, cols, 1.0f, true, part);
}

/* --- rotary positions ----------------------------------------------------------------------- */

/* Turn a head by the angles of its position, or back (sign -1). y may be x. */
static inline void turn(const float *angles, int half, float sign, const float *x, float *y)
{
    for (int i = 0; i < half; i++) {
        const float c = angles[2 * i], s = sign * angles[2 * i + 1];
        const float a = x[i], b = x[i + half];
        y[i] = a * c - b * s;
        y[i + half] = b * c + a * s;
    }
}

static void rotary_forward(struct backend *be, const struct rotary *r, const void *x, void *qkv,
                           float *stats)
{
    const int d = r->head_dim, all = r->heads + 2 * r->kv_heads, turned = r->heads + r->kv_heads;
    const int group = r->heads / r->kv_heads;
    const int64_t rows = r->num_samples * r->seq;
    float *buffers = cpu_scratch(be, 2 * cpu_pad(d) * be->threads * (int64_t)sizeof *buffers);
    if (!buffers)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, rows *all *d))
    for (int64_t row = 0; row < rows; row++) {
        float *buffer = buffers + 2 * cpu_pad(d) * omp_get_thread_num(), *out = buffer + cpu_pad(d);
        const float *angles = r->angles + (row % r->seq) * d;
        for (int h = 0; h < all; h++) {
            const float *in = cpu_in(be, x, (row * all + h) * d, d, buffer);
            const bool query = h < r->heads;
            const int nth = query ? h : (h - r->heads) % r->kv_heads; /* of its kind */
            const int kind = query ? 0 : 1 + (h - r->heads) / r->kv_heads;
            if (r->gamma && h < turned) {
                stats[row * turned + h] =
                    norm_row(in, r->gamma + (int64_t)kind * d, r->plus, r->eps, d, out);
                in = out;
            }
            if (h < turned) {
                turn(angles, d / 2, 1.0f, in, out);
                in = out;
            }
            const int times = query ? 1 : group;
            for (int copy = 0; copy < times; copy++)
                cpu_store(be, qkv, ((row * 3 + kind) * r->heads + nth * times + copy) * d, d, in);
        }
    }
}

/* A tile is ROW_TILE rows: sums of gamma are added by tiles. */
static void rotary_backward(struct backend *be, const struct rotary *r, const void *dqkv,
                            const void *x, const float *stats, void *dx, float *part)
{
    const int d = r->head_dim, all = r->heads + 2 * r->kv_heads, turned = r->heads + r->kv_heads;
    const int group = r->heads / r->kv_heads;
    const int64_t rows = r->num_samples * r->seq, tiles = cpu_tiles(rows, ROW_TILE);
    const int64_t wide = cpu_pad(d), kept = r->gamma ? tiles * 2 * d : 0;
    float *sums = cpu_scratch(be, (cpu_pad(kept) + 4 * wide * be->threads) * (int64_t)sizeof *sums);
    if (!sums)
        return;
    float *buffers = sums + cpu_pad(kept);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, rows *all *d))
    for (int64_t t = 0; t < tiles; t++) {
        float *dgamma = r->gamma ? sums + t * 2 * d : NULL;
        float *buffer = buffers + 4 * wide * omp_get_thread_num();
        float *sum = buffer + wide, *g = buffer + 2 * wide, *got = buffer + 3 * wide;
        for (int c = 0; dgamma && c < 2 * d; c++)
            dgamma[c] = 0.0f;
        for (int64_t row = t * ROW_TILE; row < cpu_min((t + 1) * ROW_TILE, rows); row++)
            for (int h = 0; h < all; h++) {
                const bool query = h < r->heads;
                const int nth = query ? h : (h - r->heads) % r->kv_heads;
                const int kind = query ? 0 : 1 + (h - r->heads) / r->kv_heads;
                const int times = query ? 1 : group;
                for (int copy = 0; copy < times; copy++) {
                    const float *from =
                        cpu_in(be, dqkv, ((row * 3 + kind) * r->heads + nth * times + copy) * d, d,
                               buffer);
                    for (int c = 0; c < d; c++)
                        sum[c] = copy ? sum[c] + from[c] : from[c];
                }
                float *grad = sum;
                if (h < turned)
                    turn(r->angles + (row % r->seq) * d, d / 2, -1.0f, sum, sum);
                if (r->gamma && h < turned) {
                    const float *in = cpu_in(be, x, (row * all + h) * d, d, buffer);
                    norm_row_backward(sum, in, r->gamma + (int64_t)kind * d, r->plus,
                                      stats[row * turned + h], d, dgamma + (int64_t)kind * d, g,
                                      got);
                    grad = got;
                }
                cpu_store(be, dx, (row * all + h) * d, d, grad);
            }
    }
    if (r->gamma)
        cpu_add_partials(sums, tiles, 2 * (int64_t)d, 1.0f, true, part);
}

/* --- gated activation ----------------------------------------------------------------------- */

static void gate_forward(struct backend *be, int64_t rows, int cols, enum act act, const void *x,
                         void *y)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, 2 * rows * cols))
    for (int64_t r = 0; r < rows; r++)
        for (int c0 = 0; c0 < cols; c0 += STRIP) {
            float buffer[3][STRIP], gate[STRIP];
            const int n = (int)cpu_min(STRIP, cols - c0);
            const float *in = cpu_in(be, x, 2 * r * cols + c0, n, buffer[0]);
            const float *up = cpu_in(be, x, (2 * r + 1) * cols + c0, n, buffer[1]);
            float *out = cpu_out(be, y, r * cols + c0, buffer[2]);
            for (int c = 0; c < n; c++)
                gate[c] = in[c];
            cpu_act(n, act, gate);
            for (int c = 0; c < n; c++)
                out[c] = gate[c] * up[c];
            cpu_put(be, y, r * cols + c0, n, out);
        }
}

static void gate_backward(struct backend *be, int64_t rows, int cols, enum act act, const void *x,
                          const void *dy, void *dx)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, 2 * rows * cols))
    for (int64_t r = 0; r < rows; r++)
        for (int c0 = 0; c0 < cols; c0 += STRIP) {
            float buffer[3][STRIP], gate[STRIP], dgate[STRIP], dup[STRIP];
            const int n = (int)cpu_min(STRIP, cols - c0);
            const float *in = cpu_in(be, x, 2 * r * cols + c0, n, buffer[0]);
            const float *up = cpu_in(be, x, (2 * r + 1) * cols + c0, n, buffer[1]);
            const float *d = cpu_in(be, dy, r * cols + c0, n, buffer[2]);
            for (int c = 0; c < n; c++) {
                gate[c] = in[c];
                dgate[c] = d[c] * up[c];
            }
            cpu_act(n, act, gate);
            cpu_act_grad(n, act, in, dgate, dgate);
            for (int c = 0; c < n; c++)
                dup[c] = d[c] * gate[c];
            cpu_store(be, dx, 2 * r * cols + c0, n, dgate);
            cpu_store(be, dx, (2 * r + 1) * cols + c0, n, dup);
        }
}

/* One head of one query: the sums of its probabilities and of its values are kept for the largest
 * score so far, so that one walk over the keys is enough (Milakov and Gimelshein 2018). */
static void cached_head(const struct cached_attention *a, int first, int last, int head,
                        const float *q, float *out)
{
    const int64_t step = (int64_t)a->kv_heads * a->head_dim;
    const int64_t at = (int64_t)(head / (a->heads / a->kv_heads)) * a->head_dim;
    const float scale = 1.0f / sqrtf((float)a->head_dim);
    float largest = -INFINITY, sum = 0.0f;
    for (int c = 0; c < a->head_dim; c++)
        out[c] = 0.0f;
    for (int k = first; k <= last; k++) {
        const float score = scale * cpu_dot(q, a->keys + k * step + at, a->head_dim);
        const float *v = a->values + k * step + at;
        if (score > largest) {
            const float shrink = expf(largest - score);
            sum *= shrink;
            for (int c = 0; c < a->head_dim; c++)
                out[c] *= shrink;
            largest = score;
        }
        const float e = expf(score - largest);
        sum += e;
        for (int c = 0; c < a->head_dim; c++)
            out[c] += e * v[c];
    }
    for (int c = 0; c < a->head_dim; c++)
        out[c] /= sum;
}

static void attention_cached(struct backend *be, const struct cached_attention *a, const float *qkv,
                             float *ctx)
{
    const int64_t width = (int64_t)a->heads * a->head_dim;
    const int64_t work = (int64_t)a->rows * (a->first + a->rows) * width / PRODUCTS_PER_ELEMENT;
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(be, work))
    for (int r = 0; r < a->rows; r++)
        for (int head = 0; head < a->heads; head++) {
            const int last = a->first + r;
            const int first = a->window > 0 && last + 1 > a->window ? last + 1 - a->window : 0;
            const int64_t at = (int64_t)head * a->head_dim;
            cached_head(a, first, last, head, qkv + 3 * r * width + at, ctx + r * width + at);
        }
}

void cpu_decoder_install(struct backend *be)
{
    be->attention_cached = attention_cached;
    be->rmsnorm_forward = rmsnorm_forward;
    be->rmsnorm_backward = rmsnorm_backward;
    be->rotary_forward = rotary_forward;
    be->rotary_backward = rotary_backward;
    be->gate_forward = gate_forward;
    be->gate_backward = gate_backward;
}
