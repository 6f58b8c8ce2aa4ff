/* partition/cost/device_curves.h - how long a GPU of a kind takes for one kernel.
 *
 * A kernel takes the largest of its work at the rate that the device reaches for its shape, its
 * bytes at the rate that memory reaches, and a start. The constants of a kind were fitted to
 * published measurements of kernels (tests/truth); docs/costs.md has the formula and the fits. Kinds
 * that nobody measured take the constants of the nearest kind at their own peak. Pure. */
#ifndef ELAPSE_PARTITION_DEVICE_CURVES_H
#define ELAPSE_PARTITION_DEVICE_CURVES_H

#include "partition/cost/cost.h"
#include "partition/cost/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Matrix products. C is computed in tiles; each wave gives every SM one. */
struct matmul_curve {
    double peak;     /* fraction of the published peak that a large tile reaches */
    double tile;     /* loss of smaller tiles: 1 + 64 x tile x (1/rows + 1/columns) */
    double tail;     /* part of a last, incomplete wave that is lost; 1: all */
    double part;     /* the same, if there is one wave only */
    double depth;    /* k at which filling and draining the pipeline doubles the time */
    double nn, nt;   /* speed of these layouts; TN is 1 */
    double start_us; /* launch and first loads */
    double hot;      /* replaces peak when the power limit lowers the clock */
    double warm_us;  /* ideal time of a product at which half of that has happened */
    double memory;   /* fraction of the published memory bandwidth that products reach */
    double blend;    /* time = (work^blend + bytes^blend)^(1/blend); 0: the larger of the two */
};

/* Fused attention. Rates count both halves of a causal mask, as the measurements do. */
struct attention_curve {
    double forward, backward; /* fraction of the peak, causal, many blocks, 4096 tokens */
    double half_blocks[2];    /* blocks of 128 rows at which half of it is reached: F, B */
    double half_seq;          /* tokens by which short sequences lose */
};

struct device_curve {
    const char *kind;
    const char *fitted_on; /* whose measurements these are; another kind: the nearest */
    int sms;
    struct matmul_curve matmul;
    struct attention_curve attention;
    double bandwidth;       /* fraction of the published memory bandwidth that kernels reach */
    double memory_start_us; /* of a memory-bound kernel */
    double host_us;         /* the host's time to launch one kernel */
    const char *source;
};

/* NULL: no curve for the kind. */
const struct device_curve *device_curve_find(const char *kind);

/* Names of all kinds that have a curve, NULL-terminated. */
const char *const *device_curve_names(void);

/* Time of one kernel in ns on the device itself, launches aside. peak is in flops per second for the
 * kernel's type of number, bytes_per_s the published memory bandwidth. */
double device_kernel_ns(const struct device_curve *curve, double peak, double bytes_per_s,
                        const struct kernel *kernel);

#ifdef __cplusplus
}
#endif
#endif
