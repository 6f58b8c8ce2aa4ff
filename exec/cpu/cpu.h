/* exec/cpu/cpu.h - what the files of the cpu backend share; private to exec/cpu/.
 *
 * Parallel loops run over tiles whose bounds depend on shapes only; every output element is written
 * by one tile, and sums over tiles are taken in tile order. */
#ifndef ELAPSE_EXEC_CPU_CPU_H
#define ELAPSE_EXEC_CPU_CPU_H

#include "exec/backend.h"

struct cpu_backend {
    struct backend base; /* first: the table is the object */
    void *scratch;       /* owned; 64-byte aligned, grows */
    int64_t scratch_bytes;
    struct err failed; /* first failure, reported by sync() */
};

/* At least `bytes` of scratch, valid until the next call on this backend; NULL after recording the
 * failure when there is no memory. */
void *cpu_scratch(struct backend *be, int64_t bytes);

static inline int64_t cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t cpu_tiles(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

/* dst[cols] += the rows of part[tiles][cols], in tile order (dst = when fresh). */
void cpu_add_partials(struct backend *be, const float *part, int64_t tiles, int64_t cols,
                      float scale, bool fresh, float *dst);
/* x[cols] of one row of sample ids/rows, masked: y = keep ? x / (1 - p) : 0. */
void cpu_dropout_row(const struct dropout *drop, int64_t row, int cols, const float *x, float *y);

#define CPU_FUNCTIONS(name)                                                                        \
    void name##_install(struct backend *be) /* each file puts its kernels into the table */
CPU_FUNCTIONS(cpu_linear);
CPU_FUNCTIONS(cpu_norm);
CPU_FUNCTIONS(cpu_attention);
CPU_FUNCTIONS(cpu_embed);
CPU_FUNCTIONS(cpu_loss);
CPU_FUNCTIONS(cpu_optim);
#undef CPU_FUNCTIONS

#endif
