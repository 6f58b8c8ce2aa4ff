/* exec/data/resample.c - scales a picture as Pillow does (resample.h).
 *
 * An output pixel is the weighted mean of the inputs within the filter's reach around its centre; when
 * shrinking, the filter is as much wider. Weights have 22 bits after the point and each pass is rounded
 * to bytes, so the results are Pillow's own. Source: Pillow's documentation of filters; Turkowski, Filters
 * for common resampling tasks, 1990. */
#include "exec/data/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BITS = 22 };
static const double pi = 3.14159265358979323846;

static double sinc(double x)
{
    return x == 0 ? 1 : sin(pi * x) / (pi * x);
}

static double box(double x)
{
    return x > -.5 && x <= .5 ? 1 : 0;
}

static double triangle(double x)
{
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

static double hamming(double x)
{
    return fabs(x) < 1 ? sinc(x) * (.54 + .46 * cos(pi * x)) : 0;
}

/* Keys' cubic convolution with a = -1/2. */
static double cubic(double x)
{
    const double a = -.5, d = fabs(x);
    if (d < 1)
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? (((d - 5) * d + 8) * d - 4) * a : 0;
}

static double lanczos(double x)
{
    return fabs(x) < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*weight)(double x);
    double reach;
} filters[RESAMPLE_COUNT] = {
    [RESAMPLE_LANCZOS] = {lanczos,  3 },
      [RESAMPLE_BILINEAR] = {triangle, 1 },
    [RESAMPLE_BICUBIC] = {cubic,    2 },
      [RESAMPLE_BOX] = {box,      .5},
    [RESAMPLE_HAMMING] = {hamming,  1 },
};

/* The weights of every output of one axis. */
struct axis {
    int most;        /* weights of an output, at most */
    int *first;      /* [outputs]: its first input */
    int *count;      /* [outputs] */
    int32_t *weight; /* [outputs][most] */
};

static void axis_clear(struct axis *axis)
{
    free(axis->first);
    free(axis->count);
    free(axis->weight);
}

static enum status axis_init(int in, int out, enum resample kind, struct axis *axis,
                             struct err *err)
{
    const double scale = (double)in / out, wide = scale > 1 ? scale : 1;
    const double reach = filters[kind].reach * wide;
    *axis = (struct axis){.most = 2 * (int)ceil(reach) + 1};
    double *weights = malloc((size_t)axis->most * sizeof *weights);
    axis->first = malloc((size_t)out * sizeof *axis->first);
    axis->count = malloc((size_t)out * sizeof *axis->count);
    axis->weight = malloc((size_t)out * (size_t)axis->most * sizeof *axis->weight);
    if (!weights || !axis->first || !axis->count || !axis->weight) {
        free(weights);
        axis_clear(axis);
        return err_nomem(err);
    }
    for (int i = 0; i < out; i++) {
        const double centre = (i + .5) * scale;
        int from = (int)(centre - reach + .5), to = (int)(centre + reach + .5);
        double sum = 0;
        from = from < 0 ? 0 : from;
        to = to > in ? in : to;
        for (int j = from; j < to; j++)
            sum += weights[j - from] = filters[kind].weight((j - centre + .5) / wide);
        for (int j = 0; j < to - from; j++) {
            const double w = weights[j] / (sum != 0 ? sum : 1) * (1 << WEIGHT_BITS);
            axis->weight[(size_t)i * (size_t)axis->most + (size_t)j] =
                (int32_t)(w + (w < 0 ? -.5 : .5));
        }
        axis->first[i] = from;
        axis->count[i] = to - from;
    }
    free(weights);
    return OK;
}

/* One pass: out pixels of `step` bytes apart in each of `lines` lines of `stride` bytes apart. */
struct pass {
    int lines, out;
    size_t from_line, from_step, to_line, to_step;
};

static void run_pass(const struct axis *axis, const struct pass *p, const unsigned char *from,
                     unsigned char *to)
{
    for (int line = 0; line < p->lines; line++)
        for (int i = 0; i < p->out; i++) {
            const int32_t *weight = axis->weight + (size_t)i * (size_t)axis->most;
            const unsigned char *at =
                from + (size_t)line * p->from_line + (size_t)axis->first[i] * p->from_step;
            int64_t sum[3] = {1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1),
                              1 << (WEIGHT_BITS - 1)};
            for (int j = 0; j < axis->count[i]; j++, at += p->from_step)
                for (int c = 0; c < 3; c++)
                    sum[c] += (int64_t)at[c] * weight[j];
            unsigned char *out = to + (size_t)line * p->to_line + (size_t)i * p->to_step;
            for (int c = 0; c < 3; c++) {
                const int64_t level = sum[c] < 0 ? 0 : sum[c] >> WEIGHT_BITS;
                out[c] = (unsigned char)(level > 255 ? 255 : level);
            }
        }
}

static enum status nearest(const struct pixels *from, struct pixels *to)
{
    for (int y = 0; y < to->height; y++)
        for (int x = 0; x < to->width; x++) {
            const int sy = (int)((y + .5) * from->height / to->height);
            const int sx = (int)((x + .5) * from->width / to->width);
            memcpy(to->rgb + ((size_t)y * (size_t)to->width + (size_t)x) * 3,
                   from->rgb + ((size_t)sy * (size_t)from->width + (size_t)sx) * 3, 3);
        }
    return OK;
}

enum status resample(const struct pixels *from, int width, int height, enum resample filter,
                     struct pixels *to, struct err *err)
{
    struct axis across = {0}, down = {0};
    struct pixels got = {width, height, malloc((size_t)width * (size_t)height * 3)};
    unsigned char *half = malloc((size_t)width * (size_t)from->height * 3);
    enum status rc = got.rgb && half ? OK : err_nomem(err);
    if (rc == OK && filter == RESAMPLE_NEAREST) {
        rc = nearest(from, &got);
        goto out;
    }
    THEN(axis_init(from->width, width, filter, &across, err));
    THEN(axis_init(from->height, height, filter, &down, err));
    if (rc != OK)
        goto out;
    const size_t row = (size_t)width * 3;
    /* A side that keeps its length is copied. */
    if (width == from->width)
        memcpy(half, from->rgb, row * (size_t)from->height);
    else
        run_pass(&across,
                 &(struct pass){.lines = from->height,
                                .out = width,
                                .from_line = (size_t)from->width * 3,
                                .from_step = 3,
                                .to_line = row,
                                .to_step = 3},
                 from->rgb, half);
    if (height == from->height)
        memcpy(got.rgb, half, row * (size_t)height);
    else
        run_pass(&down,
                 &(struct pass){.lines = width,
                                .out = height,
                                .from_line = 3,
                                .from_step = row,
                                .to_line = 3,
                                .to_step = row},
                 half, got.rgb);
out:
    axis_clear(&across);
    axis_clear(&down);
    free(half);
    if (rc == OK)
        *to = got;
    else
        free(got.rgb);
    return rc;
}
