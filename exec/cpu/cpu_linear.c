/* Linear layers: forward, both halves of the backward, activations and dropout.
 *
 * The products are gemm.h's. Forward and input gradient give gemm() a finish() function
 * (end_forward(), end_backward()), which adds bias, activation, dropout and residual to a tile
 * while it is in cache. The weight gradient goes directly to its accumulator, and so does an fp32
 * product to which nothing is added to its tensor. */
#include <string.h>

#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/vmath.h"

enum { STRIP = 1024, SUM_COLS = 256 };

/* Applies dropout to elements [first, first + num) of a row of `cols` elements. */
static void mask(const struct dropout *drop, int64_t row, int64_t cols, int64_t first, int num,
                 const float *x, float *y)
{
    const uint32_t at = (uint32_t)((row % drop->rows_per_sample) * cols + first);
    cpu_mask(drop, cpu_mask_key(drop, row / drop->rows_per_sample), at, num, x, y);
}

/* y[at .. at + n) = x[0 .. n) + add[at .. at + n). add may be NULL, or y. */
static void put_sum(const struct backend *be, int n, const float *restrict x, const void *add,
                    int64_t at, void *y)
{
    float buffer[2][GEMM_COLS];
    if (!add) {
        cpu_store(be, y, at, n, x);
        return;
    }
    const float *more = cpu_in(be, add, at, n, buffer[0]);
    float *out = cpu_out(be, y, at, buffer[1]);
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (int c = 0; c < n; c++)
        out[c] = x[c] + more[c];
    cpu_put(be, y, at, n, out);
}

void cpu_act(int n, enum act act, float *x)
{
    switch (act) {
    case ACT_NONE:
        break;
    case ACT_GELU_ERF:
        for (int c = 0; c < n; c++)
            x[c] = vgelu_erf(x[c]);
        break;
    case ACT_GELU_TANH:
        for (int c = 0; c < n; c++)
            x[c] = vgelu_tanh(x[c]);
        break;
    case ACT_TANH:
        for (int c = 0; c < n; c++)
            x[c] = vtanh(x[c]);
        break;
    case ACT_SILU:
        for (int c = 0; c < n; c++)
            x[c] = vsilu(x[c]);
        break;
    }
}

void cpu_act_grad(int n, enum act act, const float *pre, const float *dy, float *dx)
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
    case ACT_SILU:
        for (int c = 0; c < n; c++)
            dx[c] = dy[c] * vsilu_grad(pre[c]);
        break;
    }
}

void cpu_add_partials(const float *part, int64_t tiles, int64_t cols, float scale, bool fresh,
                      float *dst)
{
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

/* Arguments of end_forward(). */
struct forward_end {
    const struct backend *be;
    const void *bias, *residual;
    const struct dropout *drop;
    enum act act;
    void *pre, *y;
    int64_t ldy;
    int out;
};

/* Bias, activation, dropout and residual of a tile of the product; stores it. */
static void end_forward(void *ctx, int64_t r0, int rows, int64_t c0, int cols, float *tile,
                        int64_t ld)
{
    const struct forward_end *f = ctx;
    float buffer[GEMM_COLS];
    const float *bias = f->bias ? cpu_in(f->be, f->bias, c0, cols, buffer) : NULL;
    for (int r = 0; r < rows; r++) {
        const int64_t at = (r0 + r) * f->ldy + c0;
        float *restrict row = tile + r * ld;
        for (int c = 0; bias && c < cols; c++)
            row[c] += bias[c];
        if (f->pre)
            cpu_store(f->be, f->pre, at, cols, row);
        cpu_act(cols, f->act, row);
        if (cpu_drops(f->drop)) /* the mask index counts over the whole row */
            mask(f->drop, r0 + r, f->out, c0, cols, row, row);
        put_sum(f->be, cols, row, f->residual, at, f->y);
    }
}

/* Each weight is read once, in its order. */
static void lone_row(struct backend *be, const struct linear *l, const float *x, const float *w,
                     const float *bias, const float *add, float *y)
{
    const int64_t work = (int64_t)l->out * l->in / PRODUCTS_PER_ELEMENT;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, work))
    for (int r = 0; r < l->out; r++)
        y[r] = cpu_dot(x, w + (int64_t)r * l->in, l->in) + (bias ? bias[r] : 0.0f) +
               (add ? add[r] : 0.0f);
}

static void linear_forward(struct backend *be, const struct linear *l, const void *x, const void *w,
                           const void *bias, enum act act, const void *residual,
                           const struct dropout *drop, void *pre, void *y)
{
    const int64_t ldy = l->y_stride ? l->y_stride : l->out;
    if (l->alone && l->rows == 1 && !l->in_out && act == ACT_NONE && be->elem_bytes == 4 &&
        !cpu_drops(drop)) {
        lone_row(be, l, x, w, bias, residual, y);
        return;
    }
    struct forward_end end = {be, bias, residual, drop, act, pre, y, ldy, l->out};
    const bool whole =
        be->elem_bytes == 4 && !bias && !residual && !pre && act == ACT_NONE && !cpu_drops(drop);
    gemm(be, &(struct gemm){.m = l->rows,
                            .n = l->out,
                            .k = l->in,
                            .a = x,
                            .a_row = l->x_stride ? l->x_stride : l->in,
                            .a_col = 1,
                            .b = w,
                            .b_row = l->in_out ? l->out : 1,
                            .b_col = l->in_out ? 1 : l->in,
                            .alpha = 1.0f,
                            .c = whole ? y : NULL,
                            .ldc = ldy,
                            .fresh = true,
                            .finish = end_forward,
                            .ctx = &end});
}

/* Arguments of end_backward(). */
struct backward_end {
    const struct backend *be;
    const void *pre, *add;
    enum act act;
    void *dx;
    int64_t ldx;
};

static void end_backward(void *ctx, int64_t r0, int rows, int64_t c0, int cols, float *tile,
                         int64_t ld)
{
    const struct backward_end *b = ctx;
    float buffer[GEMM_COLS];
    for (int r = 0; r < rows; r++) {
        const int64_t at = (r0 + r) * b->ldx + c0;
        float *row = tile + r * ld;
        if (b->act != ACT_NONE)
            cpu_act_grad(cols, b->act, cpu_in(b->be, b->pre, at, cols, buffer), row, row);
        put_sum(b->be, cols, row, b->add, at, b->dx);
    }
}

static void linear_backward_input(struct backend *be, const struct linear *l, const void *dy,
                                  const void *w, float scale, enum act act, const void *pre,
                                  const void *add, void *dx)
{
    const int64_t ldx = l->x_stride ? l->x_stride : l->in;
    struct backward_end end = {be, pre, add, act, dx, ldx};
    gemm(be, &(struct gemm){.m = l->rows,
                            .n = l->in,
                            .k = l->out,
                            .a = dy,
                            .a_row = l->y_stride ? l->y_stride : l->out,
                            .a_col = 1,
                            .b = w,
                            .b_row = l->in_out ? 1 : l->in,
                            .b_col = l->in_out ? l->out : 1,
                            .alpha = scale,
                            .c = be->elem_bytes == 4 && !add && act == ACT_NONE ? dx : NULL,
                            .ldc = ldx,
                            .fresh = true,
                            .finish = end_backward,
                            .ctx = &end});
}

/* db += scale * column sums of dy; fresh: db is written. A tile is a strip of SUM_COLS columns. */
static void add_columns(struct backend *be, int64_t rows, int cols, int64_t stride, const void *dy,
                        float scale, bool fresh, float *db)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, rows *cols))
    for (int c = 0; c < cols; c += SUM_COLS) {
        const int n = (int)cpu_min(SUM_COLS, cols - c);
        float sum[SUM_COLS] = {0}, buffer[SUM_COLS];
        for (int64_t r = 0; r < rows; r++) {
            const float *row = cpu_in(be, dy, r * stride + c, n, buffer);
            for (int k = 0; k < n; k++)
                sum[k] += row[k];
        }
        for (int k = 0; k < n; k++)
            db[c + k] = fresh ? scale * sum[k] : db[c + k] + scale * sum[k];
    }
}

static void linear_backward_weight(struct backend *be, const struct linear *l, const void *dy,
                                   const void *x, float scale, float *dw, float *db)
{
    const int64_t ldx = l->x_stride ? l->x_stride : l->in, ldy = l->y_stride ? l->y_stride : l->out;
    if (db)
        add_columns(be, l->rows, l->out, ldy, dy, scale, l->fresh, db);
    if (dw)
        gemm(be, &(struct gemm){.m = l->in_out ? l->in : l->out,
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
                                .fresh = l->fresh});
}

static void act_forward(struct backend *be, int64_t num, enum act act, const void *x, void *y)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t t = 0; t < cpu_tiles(num, STRIP); t++) {
        float buffer[STRIP], row[STRIP];
        const int64_t at = t * STRIP, n = cpu_min(STRIP, num - at);
        memcpy(row, cpu_in(be, x, at, n, buffer), (size_t)n * sizeof *row);
        cpu_act((int)n, act, row);
        cpu_store(be, y, at, (int)n, row);
    }
}

static void act_backward(struct backend *be, int64_t num, enum act act, const void *pre,
                         const void *dy, void *dx)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t t = 0; t < cpu_tiles(num, STRIP); t++) {
        float buffer[3][STRIP];
        const int64_t at = t * STRIP, n = cpu_min(STRIP, num - at);
        const float *p = cpu_in(be, pre, at, n, buffer[0]), *d = cpu_in(be, dy, at, n, buffer[1]);
        float *out = cpu_out(be, dx, at, buffer[2]);
        cpu_act_grad((int)n, act, p, d, out);
        cpu_put(be, dx, at, n, out);
    }
}

static void dropout(struct backend *be, int64_t rows, int cols, const struct dropout *drop,
                    const void *x, void *y)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, rows *cols))
    for (int64_t r = 0; r < rows; r++)
        for (int c = 0; c < cols; c += STRIP) {
            float buffer[2][STRIP];
            const int n = (int)cpu_min(STRIP, cols - c);
            const float *in = cpu_in(be, x, r * cols + c, n, buffer[0]);
            float *out = cpu_out(be, y, r * cols + c, buffer[1]);
            mask(drop, r, cols, c, n, in, out);
            cpu_put(be, y, r * cols + c, n, out);
        }
}

void cpu_linear_install(struct backend *be)
{
    be->linear_forward = linear_forward;
    be->linear_backward_input = linear_backward_input;
    be->linear_backward_weight = linear_backward_weight;
    be->act_forward = act_forward;
    be->act_backward = act_backward;
    be->dropout = dropout;
}
