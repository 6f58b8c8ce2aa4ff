#include "exec/cpu/cpu.h"

#include <string.h>

static void patchify(struct backend *be, const struct patches *p, const float *images, float *cols)
{
    const int side = p->image / p->patch, np = side * side, ps = p->patch;
    const int64_t row = (int64_t)p->channels * ps * ps;
    const int64_t image = (int64_t)p->channels * p->image * p->image;
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t s = 0; s < p->num_samples; s++) {
        float *out = cols + s * (np + 1) * row;
        memset(out, 0, (size_t)row * sizeof *out);
        for (int t = 0; t < np; t++)
            for (int c = 0; c < p->channels; c++)
                for (int y = 0; y < ps; y++)
                    memcpy(out + (t + 1) * row + ((int64_t)c * ps + y) * ps,
                           images + s * image +
                               ((int64_t)c * p->image + (t / side) * ps + y) * p->image +
                               (t % side) * ps,
                           (size_t)ps * sizeof *out);
    }
}

static void patch_finish(struct backend *be, const struct patches *p, const float *cls,
                         const float *pos, float *y)
{
    const int side = p->image / p->patch;
    const int64_t tokens = (int64_t)side * side + 1, h = p->hidden;
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t s = 0; s < p->num_samples; s++) {
        float *out = y + s * tokens * h;
        for (int64_t c = 0; c < h; c++)
            out[c] = cls[c] + pos[c];
        for (int64_t c = h; c < tokens * h; c++)
            out[c] += pos[c];
    }
}

/* Samples are added in order; tokens are the tiles. */
static void patch_backward(struct backend *be, const struct patches *p, const float *dy,
                           float *dcls, float *dpos, float *db)
{
    const int side = p->image / p->patch, h = p->hidden;
    const int64_t tokens = (int64_t)side * side + 1;
    float *sum = cpu_scratch(be, tokens * h * (int64_t)sizeof *sum);
    if (!sum)
        return;
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t t = 0; t < tokens; t++) {
        float *row = sum + t * h;
        memset(row, 0, (size_t)h * sizeof *row);
        for (int64_t s = 0; s < p->num_samples; s++)
            for (int c = 0; c < h; c++)
                row[c] += dy[(s * tokens + t) * h + c];
        for (int c = 0; c < h; c++)
            dpos[t * h + c] += row[c];
    }
    for (int c = 0; c < h; c++)
        dcls[c] += sum[c];
    cpu_add_partials(be, sum + h, tokens - 1, h, 1.0f, false, db);
}

static void tokens_forward(struct backend *be, const struct tokens *t, const float *wte,
                           const float *wpe, const float *wtt, float *y)
{
    const int64_t rows = t->num_samples * t->seq, h = t->hidden;
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t r = 0; r < rows; r++) {
        const float *word = wte + t->ids[r] * h, *pos = wpe + (r % t->seq) * h;
        const float *type = wtt ? wtt + (t->types ? t->types[r] : 0) * h : NULL;
        for (int64_t c = 0; c < h; c++)
            y[r * h + c] = (type ? word[c] + type[c] : word[c]) + pos[c];
    }
}

/* Columns are the tiles: within one, tokens are added in order, so repeated ids never race. */
static void tokens_backward(struct backend *be, const struct tokens *t, const float *dy,
                            float *dwte, float *dwpe, float *dwtt)
{
    const int64_t rows = t->num_samples * t->seq, h = t->hidden, strip = 128;
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t j = 0; j < cpu_tiles(h, strip); j++) {
        const int64_t c0 = j * strip, n = cpu_min(strip, h - c0);
        for (int64_t r = 0; r < rows; r++) {
            const float *d = dy + r * h + c0;
            float *word = dwte + t->ids[r] * h + c0, *pos = dwpe + (r % t->seq) * h + c0;
            for (int64_t c = 0; c < n; c++)
                word[c] += d[c];
            for (int64_t c = 0; c < n; c++)
                pos[c] += d[c];
            if (dwtt) {
                float *type = dwtt + (t->types ? t->types[r] : 0) * h + c0;
                for (int64_t c = 0; c < n; c++)
                    type[c] += d[c];
            }
        }
    }
}

static void join(struct backend *be, int64_t rows, int cols, const float *a, const float *b,
                 float *out)
{
    const size_t bytes = (size_t)cols * sizeof *out;
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t r = 0; r < rows; r++) {
        memcpy(out + 2 * r * cols, a + r * cols, bytes);
        memcpy(out + (2 * r + 1) * cols, b + r * cols, bytes);
    }
}

static void split(struct backend *be, int64_t rows, int cols, const float *in, float *a, float *b)
{
    const size_t bytes = (size_t)cols * sizeof *in;
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t r = 0; r < rows; r++) {
        if (a)
            memcpy(a + r * cols, in + 2 * r * cols, bytes);
        if (b)
            memcpy(b + r * cols, in + (2 * r + 1) * cols, bytes);
    }
}

void cpu_embed_install(struct backend *be)
{
    be->patchify = patchify;
    be->join = join;
    be->split = split;
    be->patch_finish = patch_finish;
    be->patch_backward = patch_backward;
    be->tokens_forward = tokens_forward;
    be->tokens_backward = tokens_backward;
}
