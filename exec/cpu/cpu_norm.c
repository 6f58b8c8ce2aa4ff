/* Layer norm, forward and backward. */
#include <math.h>
#include <omp.h>
#include <stddef.h>

#include "exec/cpu/cpu.h"

enum { LANES = 16, ROW_TILE = 64 };

/* Adds the 16 partial sums of a row pairwise. Rows are always summed in 16 lanes, so the order of
 * additions does not depend on the vector width of the machine. */
static inline float fold(float *lane)
{
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int k = 0; k < w; k++)
            lane[k] += lane[k + w];
    return lane[0];
}

static inline float row_sum(const float *x, int n)
{
    float lane[LANES] = {0};
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += x[c + k];
    for (int k = 0; c < n; c++, k++)
        lane[k] += x[c];
    return fold(lane);
}

static inline float row_sumsq(const float *x, int n, float mean)
{
    float lane[LANES] = {0};
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int k = 0; k < LANES; k++) {
            float d = x[c + k] - mean;
            lane[k] += d * d;
        }
    for (int k = 0; c < n; c++, k++) {
        float d = x[c] - mean;
        lane[k] += d * d;
    }
    return fold(lane);
}

static void layernorm_forward(struct backend *be, const struct layernorm *n, const void *x, void *y,
                              float *stats)
{
    const int cols = n->cols;
    const int64_t rows = n->rows, ldx = n->x_stride ? n->x_stride : cols, wide = cpu_pad(cols);
    const float *gamma = n->gamma, *beta = n->beta, eps = n->eps;
    float *buffers = cpu_scratch(be, 2 * wide * be->threads * (int64_t)sizeof *buffers);
    if (!buffers)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, rows *cols))
    for (int64_t r = 0; r < rows; r++) {
        float *buffer = buffers + 2 * wide * omp_get_thread_num();
        const float *in = cpu_in(be, x, r * ldx, cols, buffer);
        float *out = cpu_out(be, y, r * cols, buffer + wide);
        float mean = row_sum(in, cols) / (float)cols;
        float rstd = 1.0f / sqrtf(row_sumsq(in, cols, mean) / (float)cols + eps);
        for (int c = 0; c < cols; c++)
            out[c] = (in[c] - mean) * rstd * gamma[c] + beta[c];
        cpu_put(be, y, r * cols, cols, out);
        if (stats) {
            stats[2 * r] = mean;
            stats[2 * r + 1] = rstd;
        }
    }
}

/* dx = rstd (g - mean(g) - h mean(g h)), with g = dy gamma and h = (x - mean) rstd. Sums of gamma
 * and beta go by tiles of ROW_TILE rows. */
static void layernorm_backward(struct backend *be, const struct layernorm *n, const void *dy,
                               const void *x, const float *stats, const void *add, void *dx,
                               float *part)
{
    const int cols = n->cols;
    const int64_t rows = n->rows, ldx = n->x_stride ? n->x_stride : cols, wide = cpu_pad(cols);
    const float *gamma = n->gamma;
    const int64_t tiles = cpu_tiles(rows, ROW_TILE), sum_elems = part ? tiles * 2 * cols : 0;
    /* scratch: sums of gamma and beta [tiles][2][cols], then four rows per thread: dy, x, add, dx
     */
    float *scratch =
        cpu_scratch(be, (cpu_pad(sum_elems) + 4 * wide * be->threads) * (int64_t)sizeof *scratch);
    if (!scratch)
        return;
    float *sums = part ? scratch : NULL, *buffers = scratch + cpu_pad(sum_elems);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, rows *cols))
    for (int64_t t = 0; t < tiles; t++) {
        float *buffer = buffers + 4 * wide * omp_get_thread_num();
        float *restrict dgamma = sums ? sums + t * 2 * cols : NULL;
        float *restrict dbeta = sums ? dgamma + cols : NULL;
        if (sums)
            for (int c = 0; c < 2 * cols; c++)
                dgamma[c] = 0.0f;
        for (int64_t r = t * ROW_TILE; r < cpu_min((t + 1) * ROW_TILE, rows); r++) {
            const float *d = cpu_in(be, dy, r * cols, cols, buffer);
            const float *in = cpu_in(be, x, r * ldx, cols, buffer + wide);
            const float mean = stats[2 * r], rstd = stats[2 * r + 1];
            if (sums)
                for (int c = 0; c < cols; c++) {
                    dgamma[c] += d[c] * ((in[c] - mean) * rstd);
                    dbeta[c] += d[c];
                }
            if (!dx)
                continue;
            float g_lane[LANES] = {0}, gh_lane[LANES] = {0};
            int c = 0;
            for (; c + LANES <= cols; c += LANES)
                for (int k = 0; k < LANES; k++) {
                    float g = d[c + k] * gamma[c + k];
                    g_lane[k] += g;
                    gh_lane[k] += g * ((in[c + k] - mean) * rstd);
                }
            for (int k = 0; c < cols; c++, k++) {
                float g = d[c] * gamma[c];
                g_lane[k] += g;
                gh_lane[k] += g * ((in[c] - mean) * rstd);
            }
            const float mean_g = fold(g_lane) / (float)cols;
            const float mean_gh = fold(gh_lane) / (float)cols;
            float *out = cpu_out(be, dx, r * ldx, buffer + 3 * wide);
            if (add) {
                const float *more = cpu_in(be, add, r * ldx, cols, buffer + 2 * wide);
                for (c = 0; c < cols; c++)
                    out[c] = more[c] +
                             rstd * (d[c] * gamma[c] - mean_g - (in[c] - mean) * rstd * mean_gh);
            } else {
                for (c = 0; c < cols; c++)
                    out[c] = rstd * (d[c] * gamma[c] - mean_g - (in[c] - mean) * rstd * mean_gh);
            }
            cpu_put(be, dx, r * ldx, cols, out);
        }
    }
    if (part)
        cpu_add_partials(sums, tiles, 2 * (int64_t)cols, 1.0f, true, part);
}

void cpu_norm_install(struct backend *be)
{
    be->layernorm_forward = layernorm_forward;
    be->layernorm_backward = layernorm_backward;
}
