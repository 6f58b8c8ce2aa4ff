#include <math.h>
#include <omp.h>

#include "exec/cpu/cpu.h"
#include "exec/cpu/vmath.h"

enum { LANES = 16, IGNORED = -100 };

struct row_result {
    double loss;
    int counted, correct;
};

/* Turns one row of logits into softmax - target, in place. The loss is computed in double, from the
 * maximum and the sum of the fp32 logits. If several logits are the maximum, the first class counts
 * as the prediction. */
static struct row_result xent_row(float *x, int64_t stride, int n, int32_t label, float smoothing)
{
    struct row_result res = {0};
    if (label == IGNORED) {
        for (int c = 0; c < n; c++)
            x[c * stride] = 0.0f;
        return res;
    }
    float max = x[0];
    int best = 0;
    double sum_logits = 0.0;
    for (int c = 1; c < n; c++)
        if (x[c * stride] > max) {
            max = x[c * stride];
            best = c;
        }
    if (smoothing > 0.0f)
        for (int c = 0; c < n; c++)
            sum_logits += x[c * stride];
    const double target = x[label * stride];
    float lane[LANES] = {0};
    int c = 0;
    if (stride == 1) {
        for (; c + LANES <= n; c += LANES)
            for (int k = 0; k < LANES; k++) {
                x[c + k] = vexp(x[c + k] - max);
                lane[k] += x[c + k];
            }
    }
    for (int k = 0; c < n; c++, k = (k + 1) % LANES) {
        x[c * stride] = vexp(x[c * stride] - max);
        lane[k] += x[c * stride];
    }
    double sum = 0.0;
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    const float inv = (float)(1.0 / sum), even = smoothing / (float)n;
    if (stride == 1)
        for (c = 0; c < n; c++)
            x[c] = x[c] * inv - even;
    else
        for (c = 0; c < n; c++)
            x[c * stride] = x[c * stride] * inv - even;
    x[label * stride] -= 1.0f - smoothing;
    const double lse = (double)max + log(sum);
    res.loss = lse - target;
    if (smoothing > 0.0f)
        res.loss = (1.0 - smoothing) * res.loss + smoothing * (lse - sum_logits / n);
    res.counted = 1;
    res.correct = best == label;
    return res;
}

static void xent(struct backend *be, const struct xent *x, const int32_t *labels, void *logits,
                 struct xent_sums *sums)
{
    const int64_t head = (x->rows * (int64_t)sizeof(struct row_result) + 63) / 64 * 64;
    const int64_t wide = be->elem_bytes == 4 ? 0 : cpu_pad(x->classes);
    struct row_result *res = cpu_scratch(be, head + wide * be->threads * (int64_t)sizeof(float));
    *sums = (struct xent_sums){0};
    if (!res)
        return;
    float *buffers = (float *)(void *)((char *)res + head);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, x->rows * x->classes))
    for (int64_t r = 0; r < x->rows; r++) {
        const int64_t at = (r / x->group) * x->group_stride + (r % x->group) * x->row_stride;
        if (be->elem_bytes == 4) {
            res[r] = xent_row((float *)logits + at, x->class_stride, x->classes, labels[r],
                              x->smoothing);
            continue;
        }
        uint16_t *row = (uint16_t *)logits + at;
        float *wider = buffers + wide * omp_get_thread_num();
        for (int64_t c = 0; c < x->classes; c++)
            wider[c] = bf16_to(row[c * x->class_stride]);
        res[r] = xent_row(wider, 1, x->classes, labels[r], x->smoothing);
        for (int64_t c = 0; c < x->classes; c++)
            row[c * x->class_stride] = bf16_from(wider[c]);
    }
    for (int64_t r = 0; r < x->rows; r++) {
        sums->loss += res[r].loss;
        sums->count += res[r].counted;
        sums->correct += res[r].correct;
    }
}

void cpu_loss_install(struct backend *be)
{
    be->xent = xent;
}
