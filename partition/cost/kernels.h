/* partition/cost/kernels.h - the kernels that a training framework launches for one pass over an
 * item.
 *
 * The lists follow Megatron-LM and PyTorch: matrix products in three layouts, attention in one
 * kernel or in parts, and between them kernels that only move memory (norms, activations, dropout,
 * residual adds, the loss, the optimizer). They answer for one device's share of an item under
 * model.tensor and model.sequence_parallel. device_curves.h gives a kernel's time. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/cost/cost.h"
#include "partition/model/model.h"

enum kernel_kind {
    KERNEL_MATMUL,
    KERNEL_ATTENTION, /* scores, softmax, dropout and context without score matrices in memory */
    KERNEL_MEMORY,    /* reads and writes, hardly computes */
    KERNEL_PLAIN      /* flops of unknown shape: explicit items */
};

/* Memory layout of the operands of C[m, n] = A[m, k] B[k, n] as BLAS names them. */
enum matmul_layout {
    LAYOUT_TN, /* forward: weights are stored as [n, k] */
    LAYOUT_NN, /* gradient of the input */
    LAYOUT_NT  /* gradient of the weights: k runs over tokens */
};

/* The collective of tensor parallelism whose steps a product's pieces feed or wait for (PyTorch's symmetric
 * memory). */
enum kernel_beside { BESIDE_NOTHING, BESIDE_GATHER, BESIDE_SCATTER };

struct kernel {
    enum kernel_kind kind;
    enum matmul_layout layout;
    enum kernel_beside beside; /* MATMUL */
    bool accumulate;           /* MATMUL: adds to C, which is read, too */
    bool backward;             /* ATTENTION */
    bool early;                /* ATTENTION: by kernels before FlashAttention-2 */
    bool causal; /* ATTENTION: half of the scores is masked, and flops count both halves */
    bool narrow; /* MATMUL: in the narrow format of the options; ATTENTION: in fp8 */
    bool fp32;   /* MATMUL: by fp32 units, whatever the model's type of number */
    /* its sizes depend on the choice of experts, so no CUDA graph of a layer has it */
    bool dynamic;
    int launches;  /* kernels that the host launches for it; 0: one */
    int out_bytes; /* MATMUL: of an element of C */
    int pieces;    /* MATMUL: computed in this number of pieces of rows; 0: at once */
    int taken_sms; /* MATMUL: that a collective beside it has */
    int64_t batch, m, n,
        k;           /* MATMUL; ATTENTION: batch is samples x heads, m tokens, k head width */
    double flops;    /* a multiply-add is 2; 0 for MEMORY */
    double bytes;    /* read and written, each tensor once */
    double elements; /* MEMORY: that the kernel takes one by one; 0: in vectors */
    double share;    /* MEMORY: of the published bandwidth; 0: that of the curve */
};

#define KERNELS_MAX 64

/* List the kernels of one pass over `samples` samples. For PASS_UPDATE samples is the number of
 * optimizer state tensors. PASS_BWD_REST is PASS_BWD_INPUT without the product for the input's
 * gradient where nobody needs it (cost.h). With unfused attention (ATTENTION_UNFUSED of the model)
 * the list is that of Megatron-LM in 2021: score matrices pass through memory, and gradients of
 * weights are added by kernels of their own. Returns how many. */
int kernels_of(const struct model *model, int item, enum pass pass, int64_t samples,
               const struct cost_options *options, struct kernel list[KERNELS_MAX]);

/* The kernels of the parts of an item's forward that run again (rerun.h). 0 for items without such parts. */
int kernels_of_rerun(const struct model *model, int item, enum rerun rerun, int64_t samples,
                     const struct cost_options *options, struct kernel list[KERNELS_MAX]);
