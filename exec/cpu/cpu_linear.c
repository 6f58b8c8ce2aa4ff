#include <cblas.h>
#include <omp.h>

#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm_bf16.h"
#include "exec/cpu/vmath.h"
#include "exec/rng.h"

/* A tile's output stays in the L2 cache between the GEMM and its epilogue: at most 128 K floats. */
enum { TILE_FLOATS = 128 * 1024, MIN_ROWS = 64, MAX_COLS = 1024, SUM_ROWS = 512, STRIP = 1024 };

struct tiling {
    int64_t rows, cols; /* of one tile */
    int64_t down, across;
};

static struct tiling tile_output(int64_t rows, int64_t cols)
{
    struct tiling t;
    t.cols = cpu_min(cols, MAX_COLS);
    t.rows = TILE_FLOATS / t.cols;
    if (t.rows < MIN_ROWS)
        t.rows = MIN_ROWS;
    t.rows -= t.rows % 16;
    t.rows = cpu_min(t.rows, rows);
    t.down = cpu_tiles(rows, t.rows);
    if (t.down % 2 && rows >= 2 * MIN_ROWS) { /* an even number of equal tiles */
        t.down += 1;
        t.rows = cpu_tiles(rows, t.down);
        t.rows += (16 - t.rows % 16) % 16;
        t.down = cpu_tiles(rows, t.rows);
    }
    t.across = cpu_tiles(cols, t.cols);
    return t;
}

void cpu_dropout(const struct dropout *drop, int64_t row, int64_t cols, int64_t first, int num,
                 const float *x, float *y)
{
    const int64_t sample = row / drop->rows_per_sample;
    const uint32_t at = (uint32_t)((row % drop->rows_per_sample) * cols + first);
    const uint64_t key = rng_mix(drop->key ^ (uint64_t)drop->ids[sample]);
    const uint32_t limit = (uint32_t)((double)drop->p * 4294967296.0);
    const float up = 1.0f / (1.0f - drop->p);
    for (int c = 0; c < num; c++)
        y[c] = rng_bits(key, at + (uint32_t)c) >= limit ? x[c] * up : 0.0f;
}

static inline bool drops(const struct dropout *drop)
{
    return drop && drop->p > 0.0f;
}

/* One row of a tile: bias, activation, residual, in this order; one pass where it pays. bias and
 * residual may be NULL, pre as well. */
static void finish_row(int n, const float *bias, enum act act, const float *restrict residual,
                       float *restrict pre, float *restrict y)
{
    if (bias && act == ACT_NONE && residual && !pre) {
        for (int c = 0; c < n; c++)
            y[c] = (y[c] + bias[c]) + residual[c];
        return;
    }
    if (bias)
        for (int c = 0; c < n; c++)
            y[c] += bias[c];
    if (pre)
        for (int c = 0; c < n; c++)
            pre[c] = y[c];
    switch (act) {
    case ACT_NONE:
        break;
    case ACT_GELU_ERF:
        for (int c = 0; c < n; c++)
            y[c] = vgelu_erf(y[c]);
        break;
    case ACT_GELU_TANH:
        for (int c = 0; c < n; c++)
            y[c] = vgelu_tanh(y[c]);
        break;
    case ACT_TANH:
        for (int c = 0; c < n; c++)
            y[c] = vtanh(y[c]);
        break;
    }
    if (residual)
        for (int c = 0; c < n; c++)
            y[c] += residual[c];
}

static void dact_row(int n, enum act act, const float *pre, const float *dy, float *dx)
{
    switch (act) {
    case ACT_NONE:
        if (dx != dy)
            for (int c = 0; c < n; c++)
                dx[c] = dy[c];
        break;
    case ACT_GELU_ERF:
        for (int c = 0; c < n; c++)
            dx[c] = dy[c] * vgelu_erf_grad(pre[c]);
        break;
    case ACT_GELU_TANH:
        for (int c = 0; c < n; c++)
            dx[c] = dy[c] * vgelu_tanh_grad(pre[c]);
        break;
    case ACT_TANH:
        for (int c = 0; c < n; c++)
            dx[c] = dy[c] * (1.0f - pre[c] * pre[c]);
        break;
    }
}

static void forward_fp32(struct backend *be, const struct linear *l, const float *x, const float *w,
                         const float *bias, enum act act, const float *residual,
                         const struct dropout *drop, float *pre, float *y)
{
    const int in = l->in, out = l->out;
    const int64_t ldx = l->x_stride ? l->x_stride : in, ldy = l->y_stride ? l->y_stride : out;
    const struct tiling t = tile_output(l->rows, out);
    /* In place, the GEMM writes to a tile of the thread's own first, hot in its cache. */
    const bool aside = residual == y || drops(drop);
    float *scratch = NULL;
    if (aside) {
        scratch = cpu_scratch(be, be->threads * t.rows * t.cols * (int64_t)sizeof *scratch);
        if (!scratch)
            return;
    }
#pragma omp parallel for collapse(2) schedule(static) num_threads(be->threads)
    for (int64_t i = 0; i < t.down; i++)
        for (int64_t j = 0; j < t.across; j++) {
            int64_t r0 = i * t.rows, c0 = j * t.cols;
            int nr = (int)cpu_min(t.rows, l->rows - r0), nc = (int)cpu_min(t.cols, out - c0);
            float *tile =
                aside ? scratch + omp_get_thread_num() * t.rows * t.cols : y + r0 * ldy + c0;
            int64_t ld = aside ? nc : ldy;
            if (nr <= 0 || nc <= 0)
                continue;
            cblas_sgemm(CblasRowMajor, CblasNoTrans, l->in_out ? CblasNoTrans : CblasTrans, nr, nc,
                        in, 1.0f, x + r0 * ldx, (int)ldx, l->in_out ? w + c0 : w + c0 * in,
                        l->in_out ? out : in, 0.0f, tile, (int)ld);
            for (int r = 0; r < nr; r++) {
                int64_t at = (r0 + r) * ldy + c0;
                float *row = tile + r * ld;
                if (!aside) {
                    finish_row(nc, bias ? bias + c0 : NULL, act, residual ? residual + at : NULL,
                               pre ? pre + at : NULL, row);
                    continue;
                }
                finish_row(nc, bias ? bias + c0 : NULL, act, NULL, pre ? pre + at : NULL, row);
                if (drops(drop)) /* the mask is indexed in the whole row */
                    cpu_dropout(drop, r0 + r, out, c0, nc, row, row);
                for (int c = 0; c < nc; c++)
                    y[at + c] = residual ? row[c] + residual[at + c] : row[c];
            }
        }
}

static void backward_input_fp32(struct backend *be, const struct linear *l, const float *dy,
                                const float *w, float scale, enum act act, const float *pre,
                                const float *add, float *dx)
{
    const int in = l->in, out = l->out;
    const int64_t ldx = l->x_stride ? l->x_stride : in, ldy = l->y_stride ? l->y_stride : out;
    const struct tiling t = tile_output(l->rows, in);
    const bool aside = dx == pre || dx == add;
    float *scratch = NULL;
    if (aside) {
        scratch = cpu_scratch(be, be->threads * t.rows * t.cols * (int64_t)sizeof *scratch);
        if (!scratch)
            return;
    }
#pragma omp parallel for collapse(2) schedule(static) num_threads(be->threads)
    for (int64_t i = 0; i < t.down; i++)
        for (int64_t j = 0; j < t.across; j++) {
            int64_t r0 = i * t.rows, c0 = j * t.cols;
            int nr = (int)cpu_min(t.rows, l->rows - r0), nc = (int)cpu_min(t.cols, in - c0);
            float *tile =
                aside ? scratch + omp_get_thread_num() * t.rows * t.cols : dx + r0 * ldx + c0;
            int64_t ld = aside ? nc : ldx;
            if (nr <= 0 || nc <= 0)
                continue;
            cblas_sgemm(CblasRowMajor, CblasNoTrans, l->in_out ? CblasTrans : CblasNoTrans, nr, nc,
                        out, scale, dy + r0 * ldy, (int)ldy, l->in_out ? w + c0 * out : w + c0,
                        l->in_out ? out : in, 0.0f, tile, (int)ld);
            for (int r = 0; r < nr; r++) {
                int64_t at = (r0 + r) * ldx + c0;
                float *row = tile + r * ld;
                dact_row(nc, act, pre ? pre + at : NULL, row, row);
                if (add)
                    for (int c = 0; c < nc; c++)
                        dx[at + c] = add[at + c] + row[c];
                else if (aside)
                    for (int c = 0; c < nc; c++)
                        dx[at + c] = row[c];
            }
        }
}

void cpu_add_partials(struct backend *be, const float *part, int64_t tiles, int64_t cols,
                      float scale, bool fresh, float *dst)
{
    (void)be;
    for (int64_t c = 0; c < cols; c += 1024) {
        int n = (int)cpu_min(1024, cols - c);
        float sum[1024] = {0};
        for (int64_t t = 0; t < tiles; t++)
            for (int k = 0; k < n; k++)
                sum[k] += part[t * cols + c + k];
        if (fresh)
            for (int k = 0; k < n; k++)
                dst[c + k] = scale * sum[k];
        else
            for (int k = 0; k < n; k++)
                dst[c + k] += scale * sum[k];
    }
}

/* db[cols] += scale * column sums of x [rows, cols] (db = when fresh). */
static void add_columns(const float *x, int64_t stride, int rows, int cols, float scale, bool fresh,
                        float *db)
{
    for (int c = 0; c < cols; c += 256) {
        const int n = (int)cpu_min(256, cols - c);
        float sum[256] = {0};
        for (int r = 0; r < rows; r++)
            for (int k = 0; k < n; k++)
                sum[k] += x[r * stride + c + k];
        for (int k = 0; k < n; k++)
            db[c + k] = fresh ? scale * sum[k] : db[c + k] + scale * sum[k];
    }
}

static void backward_weight_fp32(struct backend *be, const struct linear *l, const float *dy,
                                 const float *x, float scale, float *dw, float *db)
{
    const int in = l->in, out = l->out;
    const int64_t ldx = l->x_stride ? l->x_stride : in, ldy = l->y_stride ? l->y_stride : out;
    /* dw as a matrix of m x n, cut into tiles of its rows and columns; each sums over all rows of
     * the batch in one GEMM. */
    const int m = l->in_out ? in : out, n = l->in_out ? out : in;
    const int64_t mt = m >= 256 ? 2 * cpu_tiles(m, 1024) : (m >= 32 ? 2 : 1);
    const int64_t nt = cpu_tiles(n, 2048);
    const int64_t tm = cpu_tiles(cpu_tiles(m, mt), 16) * 16,
                  tn = cpu_tiles(cpu_tiles(n, nt), 16) * 16;
    const float *a = l->in_out ? x : dy, *b = l->in_out ? dy : x;
    const int64_t lda = l->in_out ? ldx : ldy, ldb = l->in_out ? ldy : ldx;
    if (db && !dw) {
        for (int64_t r = 0; r < l->rows; r += SUM_ROWS)
            add_columns(dy + r * ldy, ldy, (int)cpu_min(SUM_ROWS, l->rows - r), out, scale,
                        l->fresh && r == 0, db);
        return;
    }
    /* Blocks of rows follow each other: the sums of dy's columns meet it just before the GEMM does.
     */
#pragma omp parallel for collapse(2) schedule(static) num_threads(be->threads)
    for (int64_t i = 0; i < mt; i++)
        for (int64_t j = 0; j < nt; j++) {
            const int64_t r0 = i * tm, c0 = j * tn;
            const int nr = (int)cpu_min(tm, m - r0), nc = (int)cpu_min(tn, n - c0);
            for (int64_t k = 0; k < l->rows && nr > 0 && nc > 0; k += SUM_ROWS) {
                const int rows = (int)cpu_min(SUM_ROWS, l->rows - k);
                const bool fresh = l->fresh && k == 0;
                if (db && !l->in_out && j == 0)
                    add_columns(a + k * lda + r0, lda, rows, nr, scale, fresh, db + r0);
                if (db && l->in_out && i == 0)
                    add_columns(b + k * ldb + c0, ldb, rows, nc, scale, fresh, db + c0);
                cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, nr, nc, rows, scale,
                            a + k * lda + r0, (int)lda, b + k * ldb + c0, (int)ldb,
                            fresh ? 0.0f : 1.0f, dw + r0 * n + c0, n);
            }
        }
}

/* --- bf16 ------------------------------------------------------------------------------------ */

/* What happens to a tile of the product before it is stored. */
struct forward_end {
    const uint16_t *bias, *residual;
    const struct dropout *drop;
    enum act act;
    uint16_t *pre, *y;
    int64_t ldy;
    int out;
};

static void end_forward(void *ctx, int64_t r0, int rows, int64_t c0, int cols, float *tile,
                        int64_t ld)
{
    const struct forward_end *f = ctx;
    float bias[GEMM_COLS], residual[GEMM_COLS], pre[GEMM_COLS];
    if (f->bias)
        bf16_widen(cols, f->bias + c0, bias);
    for (int r = 0; r < rows; r++) {
        const int64_t at = (r0 + r) * f->ldy + c0;
        float *row = tile + r * ld;
        const bool masked = drops(f->drop);
        if (f->residual)
            bf16_widen(cols, f->residual + at, residual);
        finish_row(cols, f->bias ? bias : NULL, f->act, f->residual && !masked ? residual : NULL,
                   f->pre ? pre : NULL, row);
        if (masked) {
            cpu_dropout(f->drop, r0 + r, f->out, c0, cols, row, row);
            for (int c = 0; f->residual && c < cols; c++)
                row[c] += residual[c];
        }
        if (f->pre)
            bf16_narrow(cols, pre, f->pre + at);
        bf16_narrow(cols, row, f->y + at);
    }
}

static void forward_bf16(struct backend *be, const struct linear *l, const void *x, const void *w,
                         const struct forward_end *end)
{
    const struct gemm_bf16 g = {.m = l->rows,
                                .n = l->out,
                                .k = l->in,
                                .a = x,
                                .a_row = l->x_stride ? l->x_stride : l->in,
                                .a_col = 1,
                                .b = w,
                                .b_row = l->in_out ? l->out : 1,
                                .b_col = l->in_out ? 1 : l->in,
                                .alpha = 1.0f,
                                .finish = end_forward,
                                .ctx = (void *)end};
    gemm_bf16(be, &g);
}

struct backward_end {
    const uint16_t *pre, *add;
    enum act act;
    uint16_t *dx;
    int64_t ldx;
};

static void end_backward(void *ctx, int64_t r0, int rows, int64_t c0, int cols, float *tile,
                         int64_t ld)
{
    const struct backward_end *b = ctx;
    float other[GEMM_COLS];
    for (int r = 0; r < rows; r++) {
        const int64_t at = (r0 + r) * b->ldx + c0;
        float *row = tile + r * ld;
        if (b->act != ACT_NONE) {
            bf16_widen(cols, b->pre + at, other);
            dact_row(cols, b->act, other, row, row);
        }
        if (b->add) {
            bf16_widen(cols, b->add + at, other);
            for (int c = 0; c < cols; c++)
                row[c] = other[c] + row[c];
        }
        bf16_narrow(cols, row, b->dx + at);
    }
}

static void backward_input_bf16(struct backend *be, const struct linear *l, const void *dy,
                                const void *w, float scale, const struct backward_end *end)
{
    const struct gemm_bf16 g = {.m = l->rows,
                                .n = l->in,
                                .k = l->out,
                                .a = dy,
                                .a_row = l->y_stride ? l->y_stride : l->out,
                                .a_col = 1,
                                .b = w,
                                .b_row = l->in_out ? 1 : l->in,
                                .b_col = l->in_out ? l->out : 1,
                                .alpha = scale,
                                .finish = end_backward,
                                .ctx = (void *)end};
    gemm_bf16(be, &g);
}

/* db += scale * column sums (db = when fresh); strips of columns are the tiles. */
static void add_columns_bf16(struct backend *be, int64_t rows, int cols, int64_t stride,
                             const uint16_t *dy, float scale, bool fresh, float *db)
{
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int c = 0; c < cols; c += 256) {
        const int n = (int)cpu_min(256, cols - c);
        float sum[256] = {0}, wide[256];
        for (int64_t r = 0; r < rows; r++) {
            bf16_widen(n, dy + r * stride + c, wide);
            for (int k = 0; k < n; k++)
                sum[k] += wide[k];
        }
        for (int k = 0; k < n; k++)
            db[c + k] = fresh ? scale * sum[k] : db[c + k] + scale * sum[k];
    }
}

static void backward_weight_bf16(struct backend *be, const struct linear *l, const void *dy,
                                 const void *x, float scale, float *dw, float *db)
{
    const int64_t ldx = l->x_stride ? l->x_stride : l->in, ldy = l->y_stride ? l->y_stride : l->out;
    const struct gemm_bf16 g = {.m = l->in_out ? l->in : l->out,
                                .n = l->in_out ? l->out : l->in,
                                .k = l->rows,
                                .a = l->in_out ? x : dy,
                                .a_row = 1,
                                .a_col = l->in_out ? ldx : ldy,
                                .b = l->in_out ? dy : x,
                                .b_row = l->in_out ? ldy : ldx,
                                .b_col = 1,
                                .alpha = scale,
                                .c = dw,
                                .ldc = l->in_out ? l->out : l->in,
                                .fresh = l->fresh};
    if (db)
        add_columns_bf16(be, l->rows, l->out, ldy, dy, scale, l->fresh, db);
    if (dw)
        gemm_bf16(be, &g);
}

/* --- either ---------------------------------------------------------------------------------- */

static void linear_forward(struct backend *be, const struct linear *l, const void *x, const void *w,
                           const void *bias, enum act act, const void *residual,
                           const struct dropout *drop, void *pre, void *y)
{
    const int64_t ldy = l->y_stride ? l->y_stride : l->out;
    if (be->elem_bytes == 4)
        forward_fp32(be, l, x, w, bias, act, residual, drop, pre, y);
    else
        forward_bf16(be, l, x, w,
                     &(struct forward_end){bias, residual, drop, act, pre, y, ldy, l->out});
}

static void linear_backward_input(struct backend *be, const struct linear *l, const void *dy,
                                  const void *w, float scale, enum act act, const void *pre,
                                  const void *add, void *dx)
{
    const int64_t ldx = l->x_stride ? l->x_stride : l->in;
    if (be->elem_bytes == 4)
        backward_input_fp32(be, l, dy, w, scale, act, pre, add, dx);
    else
        backward_input_bf16(be, l, dy, w, scale, &(struct backward_end){pre, add, act, dx, ldx});
}

static void linear_backward_weight(struct backend *be, const struct linear *l, const void *dy,
                                   const void *x, float scale, float *dw, float *db)
{
    if (be->elem_bytes == 4)
        backward_weight_fp32(be, l, dy, x, scale, dw, db);
    else
        backward_weight_bf16(be, l, dy, x, scale, dw, db);
}

static void act_backward(struct backend *be, int64_t num, enum act act, const void *pre,
                         const void *dy, void *dx)
{
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t t = 0; t < cpu_tiles(num, STRIP); t++) {
        float buffer[3][STRIP];
        const int64_t at = t * STRIP, n = cpu_min(STRIP, num - at);
        const float *p = cpu_in(be, pre, at, n, buffer[0]), *d = cpu_in(be, dy, at, n, buffer[1]);
        float *out = cpu_out(be, dx, at, buffer[2]);
        dact_row((int)n, act, p, d, out);
        cpu_put(be, dx, at, n, out);
    }
}

static void dropout(struct backend *be, int64_t rows, int cols, const struct dropout *drop,
                    const void *x, void *y)
{
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t r = 0; r < rows; r++)
        for (int c = 0; c < cols; c += STRIP) {
            float buffer[2][STRIP];
            const int n = (int)cpu_min(STRIP, cols - c);
            const float *in = cpu_in(be, x, r * cols + c, n, buffer[0]);
            float *out = cpu_out(be, y, r * cols + c, buffer[1]);
            cpu_dropout(drop, r, cols, c, n, in, out);
            cpu_put(be, y, r * cols + c, n, out);
        }
}

void cpu_linear_install(struct backend *be)
{
    be->linear_forward = linear_forward;
    be->linear_backward_input = linear_backward_input;
    be->linear_backward_weight = linear_backward_weight;
    be->act_backward = act_backward;
    be->dropout = dropout;
}
