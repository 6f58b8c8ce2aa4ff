/* exec/cuda/cuda_matmul_plan.h - the plans of cuda_matmul.h, shared by its three files:
 * cuda_matmul.c keeps them by shape, cuda_matmul_plan.c has the ways that a plan may go, by
 * cuBLASLt and by cuDNN, cuda_matmul_tune.c finds the fastest by timing. Private to them. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_MATMUL_PLAN_H
#define ELAPSE_EXEC_CUDA_CUDA_MATMUL_PLAN_H

#include <cublasLt.h>

#include "exec/cuda/cuda_choice.h"
#include "exec/cuda/cuda_cudnn.h"
#include "exec/cuda/cuda_internal.h"
#include "exec/cuda/cuda_matmul.h"

/* What a plan depends on; compared byte by byte, so zeroed first. */
struct matmul_key {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t trans_a, trans_b, fp32_out, epilogue, grad_of_a, erf, scaled, sums;
    int32_t has_bias, has_aux, adds, in_place, aux_in_place;
    int32_t align_a, align_b, align_c, align_d, align_extra; /* extra: of bias and aux */
};

struct matmul_plan {
    struct matmul_key key;
    bool made, works, tuned, compared; /* compared: with the work in pieces */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    struct cudnn_plan *cudnn; /* in place of the algorithm; NULL: none */
    int cudnn_proposal;
};

struct cuda_matmul {
    cublasLtHandle_t handle;
    enum cudnn_use gelu;
    struct cuda_arena *arena; /* borrowed */
    struct err refused;       /* by cuDNN, the last time */
    void *workspace;
    struct matmul_plan *table; /* open addressing, a power of two */
    int size, count;
};

/* Twice what cuBLAS asks for on Hopper. Gradients of weights have few tiles and long sums, which
 * are cut into parts, in fp32: 2304 x 768 fills 132 multiprocessors with 54 tiles of 128 x 256 in 7
 * parts (50 MB), 3072 x 768 with 72 in 5 (47 MB); in 32 MiB there are 4 and 3. */
#define MATMUL_WORKSPACE_BYTES ((int64_t)64 << 20)

/* --- cuda_matmul.c ---------------------------------------------------------------------------- */

/* The plan of p's shape, made at its first call; NULL after recording that there is no memory. The
 * next call may move it. */
struct matmul_plan *matmul_plan_of(struct backend *be, const struct matmul *p);

/* --- cuda_matmul_plan.c ----------------------------------------------------------------------- */

/* cuBLASLt's descriptors of the product. false: noted. */
bool matmul_describe(const struct backend *be, struct matmul_plan *e, const struct matmul *p);
/* cuBLASLt's proposals, at most `most` of MAX_PROPOSALS, best first by its own guess; 0: it cannot.
 */
enum { MAX_PROPOSALS = 24 };
int matmul_propose(struct backend *be, const struct matmul_plan *e,
                   cublasLtMatmulHeuristicResult_t *proposals, int most);
void matmul_take_proposal(struct matmul_plan *e, const cublasLtMatmulHeuristicResult_t *proposal);
/* cuDNN's of this number (cuda_cudnn.h) becomes the plan's way; false: there is none. */
bool matmul_plan_by_cudnn(struct backend *be, struct matmul_plan *e, int proposal);

/* The way that an answer of cuda_choice.h names. false: the library there does not take it. */
bool matmul_follow(struct backend *be, struct matmul_plan *e, const char *answer);
/* The plan's problem in the terms of cuda_choice.h: all of its key. */
void matmul_name(const struct backend *be, const struct matmul_key *k, char problem[CHOICE_BYTES]);
void matmul_note(struct backend *be, const struct matmul_plan *e);       /* the plan's way */
void matmul_note_apart(struct backend *be, const struct matmul_plan *e); /* in place of that */
bool matmul_is_apart(const char *answer);

/* Issue p the plan's way; NULL, or why it could not be. */
const char *matmul_issue(struct backend *be, const struct matmul_plan *e, const struct matmul *p);
void matmul_plan_clear(struct matmul_plan *e);

/* --- cuda_matmul_tune.c ----------------------------------------------------------------------- */

/* The fastest way becomes the plan's: of cuBLASLt's proposals, and where `cudnn` of cuDNN's. All
 * are timed on the real operands, outputs aside, but for an aux that is written: that comes out the
 * same each time, up to its last bits. Where there is no room cuBLASLt's first stands. false: there
 * is no way. */
bool matmul_fastest(struct backend *be, struct matmul_plan *e, const struct matmul *p,
                    const cublasLtMatmulHeuristicResult_t *proposals, int count, bool cudnn);
/* Whether the plan gives the same bits where its aux is its output: tried on a copy. */
bool matmul_works_in_place(struct backend *be, const struct matmul_plan *e, const struct matmul *p);

#endif
