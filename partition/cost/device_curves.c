/* The formulas of a kernel's time. Read device_curves.h first. */
#include "partition/cost/device_curves.h"

#include <math.h>
#include <string.h>

/* Shapes of a block of C that a library chooses from. */
static const double tiles[][2] = {
    {256, 128},
    {128, 256},
    {128, 128},
    {64,  256},
    {256, 64 },
    {64,  128},
    {128, 64 },
    {64,  64 }
};

/* Time of the products of one SM: waves x tile, by the tile that is fastest. The clock falls from
 * peak to hot as a product's ideal time grows. */
static double matmul_ns(const struct device_curve *curve, double peak, double bytes_per_s,
                        const struct kernel *kernel)
{
    const struct matmul_curve *c = &curve->matmul;
    const double pieces = kernel->pieces > 1 ? kernel->pieces : 1,
                 sms = curve->sms - kernel->taken_sms;
    const double m = (double)kernel->m / pieces, n = (double)kernel->n, k = (double)kernel->k;
    double best = INFINITY;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const double rows = tiles[i][0], columns = tiles[i][1];
        const double waves = (double)kernel->batch * ceil(m / rows) * ceil(n / columns) / sms;
        const double used =
            waves > 1 ? waves + (ceil(waves) - waves) * c->tail : waves + (1 - waves) * c->part;
        const double loss = 1 + 64 * c->tile * (1 / rows + 1 / columns);
        best = fmin(best, used * 2 * rows * columns * k * loss);
    }
    const double ideal = kernel->flops / peak;
    const double warm = ideal / (ideal + c->warm_us * 1e-6);
    const double clock = c->peak + (fmin(c->hot, c->peak) - c->peak) * warm;
    const double layout = kernel->layout == LAYOUT_NN   ? c->nn
                          : kernel->layout == LAYOUT_NT ? c->nt
                                                        : 1;
    const double narrow = kernel->narrow ? c->narrow : 1;
    const double work =
        best * pieces * curve->sms / peak * (1 + c->depth / k) / (clock * narrow) / layout * 1e9;
    const double moved = kernel->bytes / (bytes_per_s * c->memory) * 1e9;
    const double more = fmax(work, moved), less = fmin(work, moved);
    return c->blend > 0 ? more * pow(1 + pow(less / more, c->blend), 1 / c->blend) : more;
}

/* Elements that one multiprocessor takes in a second in PyTorch's kernels that read them one by one. V100: 165e9 by 80
 * of 1.53 GHz, comparisons with a repeated operand (pytorch/pytorch, pull request 69111). A card that casts fp32 to bf16 at
 * 6.8 TB/s, so one of Blackwell: 381e9 by 148, bf16 to fp32 (PaddlePaddle/Paddle, pull request 76988, its column of
 * PyTorch). Both are 1.35 a clock; taken is the mean of the logarithms. */
#define SCATTERED_PER_SM 2.3e9

/* FlashAttention-2 is "around 2x" as fast as FlashAttention (Dao 2023, abstract). */
#define EARLY_SHARE 0.5
/* Attention in fp8 over that in 2 bytes, forward: cuDNN's 971 and 600 TFLOP/s on an H100, heads of 128, 8,192 tokens
 * (Shah et al. 2024, FlashAttention-3, figures of attention's forward speed). Of the backward none is published: taken as
 * much faster. */
#define FP8_GAIN 1.62

/* Heads narrower than 128 reach less, because softmax takes a larger share (Dao 2023, figure 5), and
 * wider ones need more registers (192 and 128: 0.9 in the measurements). */
static double attention_ns(const struct device_curve *curve, double peak,
                           const struct kernel *kernel)
{
    const struct attention_curve *c = &curve->attention;
    const double seq = (double)kernel->m, width = (double)kernel->k;
    const double blocks = (double)kernel->batch * ceil(seq / 128);
    const double many = blocks / (blocks + c->half_blocks[kernel->backward]);
    const double shape = width > 128 ? 0.9 : (1 + 17.0 / 128) / (1 + 17.0 / width);
    const double length = (1 + c->half_seq / 4096) / (1 + c->half_seq / seq);
    const double rate = (kernel->backward ? c->backward : c->forward) * (kernel->causal ? 1 : 0.5);
    const double early = kernel->early ? EARLY_SHARE : 1;
    const double gain = kernel->narrow ? FP8_GAIN : 1;
    return kernel->flops / (peak * rate * early * gain * many * shape * length) * 1e9;
}

double device_kernel_ns(const struct device_curve *curve, double peak, double bytes_per_s,
                        const struct kernel *kernel)
{
    const double share = kernel->share > 0 ? kernel->share : curve->bandwidth;
    const double moved = kernel->bytes / (bytes_per_s * share) * 1e9;
    const bool fp8 = kernel->kind == KERNEL_ATTENTION && kernel->narrow;
    const double ideal = kernel->flops / (fp8 ? 2 * peak : peak) * 1e9;
    double work = 0, start = curve->matmul.start_us * 1e3;
    switch (kernel->kind) {
    case KERNEL_MATMUL:
        work = matmul_ns(curve, peak, bytes_per_s, kernel);
        break;
    case KERNEL_ATTENTION:
        work = attention_ns(curve, peak, kernel);
        if (kernel->causal) /* the masked half is not computed */
            return fmax(fmax(work, ideal / 2), moved) + start;
        break;
    case KERNEL_MEMORY:
        work = kernel->elements / (SCATTERED_PER_SM * curve->sms) * 1e9;
        start = curve->memory_start_us * 1e3 * (kernel->launches > 1 ? kernel->launches : 1);
        break;
    case KERNEL_PLAIN:
        work = ideal / curve->matmul.hot;
        break;
    }
    return fmax(fmax(work, ideal), moved) + start;
}
