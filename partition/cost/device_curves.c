/* The table of curves and their formulas. Read device_curves.h first. */
#include "partition/cost/device_curves.h"

#include <math.h>
#include <string.h>

/* Launch times. A100: fitted on the rows of hidden 1,024 and micro-batch 1 of vTrain's measurements
 * (Megatron-DeepSpeed in Python, MICRO 2024), judged on the others by tests/truth. Others: the start
 * of memory-bound kernels in SimuMax's descriptions, 30 to 40 us. */
#define A100_HOST_US 51
#define HOST_US 35
#define SIMUMAX "SimuMax's device descriptions, 2025"

/* Matmul constants are printed by tests/truth/fit_matmul.py, which fits half of the rows; those of
 * attention follow SimuMax's rows by eye. A100: a PCIe card with a 300 W limit, and narrow
 * products on an SXM module (EleutherAI). The SXM module reaches 267.9 of 312 TFLOP/s where the
 * PCIe card reaches 256.4 (Bekman, "Machine Learning Engineering", table of maximum achievable
 * matmul FLOPS, CUDA 12.1), so its peak is 1.045 times that of the card. */
#define A100_MATMUL(clock)                                                                         \
    {                                                                                              \
        .peak = 0.8996 * (clock), .tile = 0.2122, .tail = 0.8692, .part = 0.3829, .depth = 53.77,  \
        .nn = 1.021, .nt = 0.9648, .start_us = 6.302, .hot = 0.8859 * (clock), .warm_us = 79.36,   \
        .memory = 0.7611, .blend = 3.37                                                            \
    }
#define A100_ATTENTION                                                                             \
    {                                                                                              \
        .forward = 1.27, .backward = 1.03, .half_blocks = {160, 70}, .half_seq = 380               \
    }
/* OpenXLA's products were timed in short bursts at the boost clock, which a training run does not
 * hold. `hot`: one H100 at its power limit keeps 0.87 on uniform numbers (26 products,
 * tests/truth/data/h100_sustained_matmul.csv), and on normal ones, which training has, 0.971 of that
 * (6 products, h100_normal_matmul.csv). Memory: copies, norms, AdamW and the loss of our own kernels move 2.79 to
 * 2.99 of 3.35 TB/s on that card (tests/truth/gpu-h100-2026-11-26/kernels.txt). */
#define H100_MATMUL                                                                                \
    {                                                                                              \
        .peak = 1, .tile = 0.2322, .tail = 0.2635, .part = 0.9892, .depth = 156.5, .nn = 1.009,    \
        .nt = 0.9586, .start_us = 5.488, .hot = 0.845, .warm_us = 14.33, .memory = 0.91,           \
        .blend = 0                                                                                 \
    }
#define H100_ATTENTION                                                                             \
    {                                                                                              \
        .forward = 0.75, .backward = 0.68, .half_blocks = {160, 70}, .half_seq = 380               \
    }

#define OPENXLA                                                                                    \
    "OpenXLA's products, 2025; attention: Dao, FlashAttention-2, 2023; memory: one H100 here, "    \
    "2026"

/* The curve of a measured kind, for a kind with so many SMs; share: of the memory bandwidth. */
#define CURVE(name, of, num_sms, products, heads, share, launch_us, from)                          \
    {                                                                                              \
        .kind = name, .fitted_on = of, .sms = num_sms, .matmul = products, .attention = heads,     \
        .bandwidth = share, .memory_start_us = 3, .host_us = launch_us, .source = from             \
    }

/* SimuMax's measurements of a B200. */
#define B200_MATMUL                                                                                \
    {                                                                                              \
        .peak = 1, .tile = 0.06146, .tail = 0.1565, .part = 0.03915, .depth = 172, .nn = 1.003,    \
        .nt = 0.9761, .start_us = 9.495, .hot = 0.5233, .warm_us = 14.33, .memory = 0.67,          \
        .blend = 0                                                                                 \
    }
#define B200_ATTENTION                                                                             \
    {                                                                                              \
        .forward = 1.15, .backward = 0.83, .half_blocks = {700, 130}, .half_seq = 380              \
    }

/* Numbers of SMs: the vendor's white paper of each architecture. Cards without NVLink and consumer cards have the curve
 * of the A100, whose tensor cores are programmed as theirs are; nobody has published a table of their products. */
/* clang-format off */
static const struct device_curve curves[] = {
    CURVE("v100", "a100", 80, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("v100-16gb", "a100", 80, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("t4", "a100", 40, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("rtx5000", "a100", 48, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("rtx2080ti", "a100", 68, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("a100", "a100-pcie", 108, A100_MATMUL(1.045), A100_ATTENTION, 0.91, A100_HOST_US, SIMUMAX),
    CURVE("a100-40gb", "a100-pcie", 108, A100_MATMUL(1.045), A100_ATTENTION, 0.91, A100_HOST_US, SIMUMAX),
    CURVE("a100-pcie", "a100-pcie", 108, A100_MATMUL(1), A100_ATTENTION, 0.91, A100_HOST_US, SIMUMAX),
    CURVE("a800", "a100-pcie", 108, A100_MATMUL(1.045), A100_ATTENTION, 0.91, A100_HOST_US, SIMUMAX),
    CURVE("a10", "a100", 72, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("a30", "a100", 56, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("a40", "a100", 84, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("a6000", "a100", 84, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("rtx3090", "a100", 82, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("l4", "a100", 58, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("l40s", "a100", 142, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("rtx4090", "a100", 128, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("rtx6000ada", "a100", 142, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("rtx5090", "a100", 170, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("rtxpro6000", "a100", 188, A100_MATMUL(1), A100_ATTENTION, 0.91, HOST_US, SIMUMAX),
    CURVE("h100", "h100", 132, H100_MATMUL, H100_ATTENTION, 0.86, HOST_US, OPENXLA),
    CURVE("h100-pcie", "h100", 114, H100_MATMUL, H100_ATTENTION, 0.86, HOST_US, OPENXLA),
    CURVE("h100-nvl", "h100", 132, H100_MATMUL, H100_ATTENTION, 0.86, HOST_US, OPENXLA),
    CURVE("h20", "h100", 78, H100_MATMUL, H100_ATTENTION, 0.86, HOST_US, OPENXLA),
    CURVE("h800", "h100", 132, H100_MATMUL, H100_ATTENTION, 0.86, HOST_US, OPENXLA),
    CURVE("h200", "h100", 132, H100_MATMUL, H100_ATTENTION, 0.86, HOST_US, OPENXLA),
    CURVE("gh200", "h100", 132, H100_MATMUL, H100_ATTENTION, 0.86, HOST_US, OPENXLA),
    CURVE("b200", "b200", 148, B200_MATMUL, B200_ATTENTION, 0.67, HOST_US, SIMUMAX),
    CURVE("gb200", "b200", 148, B200_MATMUL, B200_ATTENTION, 0.67, HOST_US, SIMUMAX),
    CURVE("b300", "b200", 148, B200_MATMUL, B200_ATTENTION, 0.67, HOST_US, SIMUMAX),
    CURVE("gb300", "b200", 148, B200_MATMUL, B200_ATTENTION, 0.67, HOST_US, SIMUMAX),
};
/* clang-format on */
enum { NUM_CURVES = sizeof curves / sizeof *curves };

static const char *const curve_kinds[NUM_CURVES + 1] = {
    "v100",      "v100-16gb", "t4",      "rtx5000",    "rtx2080ti", "a100",       "a100-40gb",
    "a100-pcie", "a800",      "a10",     "a30",        "a40",       "a6000",      "rtx3090",
    "l4",        "l40s",      "rtx4090", "rtx6000ada", "rtx5090",   "rtxpro6000", "h100",
    "h100-pcie", "h100-nvl",  "h20",     "h800",       "h200",      "gh200",      "b200",
    "gb200",     "b300",      "gb300",   NULL};

const struct device_curve *device_curve_find(const char *kind)
{
    for (int i = 0; i < NUM_CURVES; i++)
        if (strcmp(curves[i].kind, kind) == 0)
            return &curves[i];
    return NULL;
}

const char *const *device_curve_names(void)
{
    return curve_kinds;
}

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
    const double work =
        best * pieces * curve->sms / peak * (1 + c->depth / k) / clock / layout * 1e9;
    const double moved = kernel->bytes / (bytes_per_s * c->memory) * 1e9;
    const double more = fmax(work, moved), less = fmin(work, moved);
    return c->blend > 0 ? more * pow(1 + pow(less / more, c->blend), 1 / c->blend) : more;
}

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
    return kernel->flops / (peak * rate * many * shape * length) * 1e9;
}

double device_kernel_ns(const struct device_curve *curve, double peak, double bytes_per_s,
                        const struct kernel *kernel)
{
    const double moved = kernel->bytes / (bytes_per_s * curve->bandwidth) * 1e9;
    const double ideal = kernel->flops / peak * 1e9;
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
        start = curve->memory_start_us * 1e3;
        break;
    case KERNEL_PLAIN:
        work = ideal / curve->matmul.hot;
        break;
    }
    return fmax(fmax(work, ideal), moved) + start;
}
