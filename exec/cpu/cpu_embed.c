/* Embeddings: patches of images and tables of tokens, and moves of rows for heads and skips. */
#include "exec/cpu/cpu.h"

#include <string.h>

enum { STRIP = 256 }; /* elements that are widened, computed and rounded together */

static void patchify(struct backend *be, const struct patches *p, const float *images, void *cols)
{
    const int side = p->image / p->patch, np = side * side, ps = p->patch;
    const int64_t row = (int64_t)p->channels * ps * ps;
    const int64_t image = (int64_t)p->channels * p->image * p->image;
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads(be, p->num_samples *(np + 1) * row))
    for (int64_t s = 0; s < p->num_samples; s++) {
        const int64_t first = s * (np + 1) * row;
        memset(backend_at(be, cols, first), 0, (size_t)backend_bytes(be, row));
        for (int t = 0; t < np; t++)
            for (int c = 0; c < p->channels; c++)
                for (int y = 0; y < ps; y++) {
                    const float *from = images + s * image +
                                        ((int64_t)c * p->image + (t / side) * ps + y) * p->image +
                                        (t % side) * ps;
                    cpu_store(be, cols, first + (t + 1) * row + ((int64_t)c * ps + y) * ps, ps,
                              from);
                }
    }
}

static void patch_finish(struct backend *be, const struct patches *p, const void *cls,
                         const void *pos, void *y)
{
    const int side = p->image / p->patch;
    const int64_t tokens = (int64_t)side * side + 1, h = p->hidden;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, p->num_samples *tokens *h))
    for (int64_t r = 0; r < p->num_samples * tokens; r++)
        for (int64_t c0 = 0; c0 < h; c0 += STRIP) {
            float buffer[3][STRIP];
            const int64_t n = cpu_min(STRIP, h - c0), t = r % tokens, at = r * h + c0;
            const float *from =
                t == 0 ? cpu_in(be, cls, c0, n, buffer[0]) : cpu_in(be, y, at, n, buffer[0]);
            const float *where = cpu_in(be, pos, t * h + c0, n, buffer[1]);
            float *out = cpu_out(be, y, at, buffer[2]);
            for (int64_t c = 0; c < n; c++)
                out[c] = from[c] + where[c];
            cpu_put(be, y, at, n, out);
        }
}

/* A tile is one token; it adds the samples in order. */
static void patch_backward(struct backend *be, const struct patches *p, const void *dy, float *dcls,
                           float *dpos, float *db)
{
    const int side = p->image / p->patch, h = p->hidden;
    const int64_t tokens = (int64_t)side * side + 1;
    float *sum = cpu_scratch(be, tokens * h * (int64_t)sizeof *sum);
    if (!sum)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, p->num_samples *tokens *h))
    for (int64_t t = 0; t < tokens; t++) {
        float *row = sum + t * h;
        memset(row, 0, (size_t)h * sizeof *row);
        for (int64_t s = 0; s < p->num_samples; s++)
            for (int c0 = 0; c0 < h; c0 += STRIP) {
                float buffer[STRIP];
                const int n = (int)cpu_min(STRIP, h - c0);
                const float *d = cpu_in(be, dy, (s * tokens + t) * h + c0, n, buffer);
                for (int c = 0; c < n; c++)
                    row[c0 + c] += d[c];
            }
        for (int c = 0; c < h; c++)
            dpos[t * h + c] += row[c];
    }
    for (int c = 0; c < h; c++)
        dcls[c] += sum[c];
    cpu_add_partials(sum + h, tokens - 1, h, 1.0f, false, db);
}

static void tokens_forward(struct backend *be, const struct tokens *t, const void *wte,
                           const void *wpe, const void *wtt, void *y)
{
    const int64_t rows = t->num_samples * t->seq, h = t->hidden;
    const float scale = t->scale == 0.0f ? 1.0f : t->scale;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, rows *h))
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c0 = 0; c0 < h; c0 += STRIP) {
            float buffer[4][STRIP];
            const int64_t n = cpu_min(STRIP, h - c0), type_id = t->types ? t->types[r] : 0;
            const float *word = cpu_in(be, wte, t->ids[r] * h + c0, n, buffer[0]);
            const float *pos = wpe ? cpu_in(be, wpe, (r % t->seq) * h + c0, n, buffer[1]) : NULL;
            const float *type = wtt ? cpu_in(be, wtt, type_id * h + c0, n, buffer[2]) : NULL;
            float *out = cpu_out(be, y, r * h + c0, buffer[3]);
            for (int64_t c = 0; pos && c < n; c++)
                out[c] = (type ? word[c] + type[c] : word[c]) + pos[c];
            for (int64_t c = 0; !pos && c < n; c++)
                out[c] = scale * word[c];
            cpu_put(be, y, r * h + c0, n, out);
        }
}

/* A tile is a strip of columns. It adds the tokens in order, so repeated ids cause no race. */
static void tokens_backward(struct backend *be, const struct tokens *t, const void *dy, float *dwte,
                            float *dwpe, float *dwtt)
{
    const int64_t rows = t->num_samples * t->seq, h = t->hidden, strip = 128;
    const float scale = t->scale == 0.0f ? 1.0f : t->scale;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, rows *h))
    for (int64_t j = 0; j < cpu_tiles(h, strip); j++) {
        const int64_t c0 = j * strip, n = cpu_min(strip, h - c0);
        float buffer[128];
        for (int64_t r = 0; r < rows; r++) {
            const float *d = cpu_in(be, dy, r * h + c0, n, buffer);
            float *word = dwte + t->ids[r] * h + c0;
            float *pos = dwpe ? dwpe + (r % t->seq) * h + c0 : NULL;
            for (int64_t c = 0; c < n; c++)
                word[c] += scale * d[c];
            for (int64_t c = 0; pos && c < n; c++)
                pos[c] += d[c];
            if (dwtt) {
                float *type = dwtt + (t->types ? t->types[r] : 0) * h + c0;
                for (int64_t c = 0; c < n; c++)
                    type[c] += d[c];
            }
        }
    }
}

static void join(struct backend *be, int64_t rows, int cols, const void *a, const void *b,
                 void *out)
{
    const size_t bytes = (size_t)backend_bytes(be, cols);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, rows *cols))
    for (int64_t r = 0; r < rows; r++) {
        memcpy(backend_at(be, out, 2 * r * cols), backend_at_const(be, a, r * cols), bytes);
        memcpy(backend_at(be, out, (2 * r + 1) * cols), backend_at_const(be, b, r * cols), bytes);
    }
}

static void split(struct backend *be, int64_t rows, int cols, const void *in, void *a, void *b)
{
    const size_t bytes = (size_t)backend_bytes(be, cols);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, rows *cols))
    for (int64_t r = 0; r < rows; r++) {
        if (a)
            memcpy(backend_at(be, a, r * cols), backend_at_const(be, in, 2 * r * cols), bytes);
        if (b)
            memcpy(backend_at(be, b, r * cols), backend_at_const(be, in, (2 * r + 1) * cols),
                   bytes);
    }
}

static void gather_rows(struct backend *be, int64_t num, int cols, const int32_t *rows,
                        const void *x, void *y)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num *cols))
    for (int64_t i = 0; i < num; i++)
        memcpy(backend_at(be, y, i * cols), backend_at_const(be, x, (int64_t)rows[i] * cols),
               (size_t)backend_bytes(be, cols));
}

static void scatter_rows(struct backend *be, int64_t total, int64_t num, int cols,
                         const int32_t *rows, const void *y, void *x)
{
    memset(x, 0, (size_t)backend_bytes(be, total * cols));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num *cols))
    for (int64_t i = 0; i < num; i++)
        memcpy(backend_at(be, x, (int64_t)rows[i] * cols), backend_at_const(be, y, i * cols),
               (size_t)backend_bytes(be, cols));
}

void cpu_embed_install(struct backend *be)
{
    be->gather_rows = gather_rows;
    be->scatter_rows = scatter_rows;
    be->patchify = patchify;
    be->join = join;
    be->split = split;
    be->patch_finish = patch_finish;
    be->patch_backward = patch_backward;
    be->tokens_forward = tokens_forward;
    be->tokens_backward = tokens_backward;
}
