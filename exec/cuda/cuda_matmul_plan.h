/* exec/cuda/cuda_matmul_plan.h - the plans of cuda_matmul.h; private to its three files.
 * cuda_matmul.c keeps plans by shape and calls the other two. cuda_matmul_plan.c makes and issues
 * them. cuda_matmul_tune.c finds the fastest by timing. */
#pragma once

#include <cublasLt.h>

#include "exec/cuda/cuda_choice.h"
#include "exec/cuda/cuda_internal.h"
#include "exec/cuda/matmul_call.h"

/* Everything a plan depends on. Compared byte by byte, so it must be zeroed first. */
struct matmul_key {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t trans_a, trans_b, fp32_out, epilogue, grad_of_a;
    int32_t has_bias, has_aux, adds, in_place, aux_in_place;
    int32_t align_a, align_b, align_c, align_d, align_extra; /* extra: bias and aux */
};

struct matmul_plan {
    struct matmul_key key;
    bool made, works, tuned, compared; /* compared: with the separate kernels */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
};

struct cuda_matmul {
    cublasLtHandle_t handle;
    struct cuda_arena *arena; /* borrowed */
    void *workspace;
    struct matmul_plan *table; /* hash table with open addressing; size is a power of two */
    int size, count;
};

/* Twice what cuBLAS asks for on Hopper. Gradients of weights have few tiles and long sums, which
 * are cut into parts that lie in the workspace in fp32. For 2304 x 768, 54 tiles of 128 x 256 fill
 * 132 multiprocessors when cut into 7 parts (50 MB); for 3072 x 768, 72 tiles in 5 parts (47 MB).
 * In 32 MiB only 4 and 3 parts fit. */
#define MATMUL_WORKSPACE_BYTES ((int64_t)64 << 20)

/* --- cuda_matmul_plan.c ----------------------------------------------------------------------- */

/* Make cuBLASLt's descriptors of the product. false: failed and recorded. */
bool matmul_describe(const struct backend *be, struct matmul_plan *e, const struct matmul *p);
/* Ask cuBLASLt for at most `most` <= MAX_PROPOSALS proposals, best first by its own estimate.
 * Returns their number; 0: it cannot do the product. */
enum { MAX_PROPOSALS = 24 };
int matmul_propose(struct backend *be, const struct matmul_plan *e,
                   cublasLtMatmulHeuristicResult_t *proposals, int most);
void matmul_take_proposal(struct matmul_plan *e, const cublasLtMatmulHeuristicResult_t *proposal);

/* Let the plan use what an answer of cuda_choice.h names. false: the library does not accept it. */
bool matmul_follow(struct backend *be, struct matmul_plan *e, const char *answer);
/* The problem of a plan for cuda_choice.h: a text of its whole key. */
void matmul_name(const struct backend *be, const struct matmul_key *k, char problem[CHOICE_BYTES]);
/* Note what the plan uses, as the answer for its problem. */
void matmul_note(struct backend *be, const struct matmul_plan *e);
/* Note, in place of that, that the separate kernels are faster. */
void matmul_note_apart(struct backend *be, const struct matmul_plan *e);
bool matmul_is_apart(const char *answer);

/* Issue p by the plan. */
cublasStatus_t matmul_issue(struct backend *be, const struct matmul_plan *e,
                            const struct matmul *p);
void matmul_plan_clear(struct matmul_plan *e);

/* --- cuda_matmul_tune.c ----------------------------------------------------------------------- */

/* Let the plan use the fastest of cuBLASLt's proposals, of which there is one at least. All are timed
 * on the real operands. Outputs go to other memory, except an aux that is written, which gets the
 * same values each time up to their last bits. Without memory for the outputs the first proposal is
 * used. */
void matmul_fastest(struct backend *be, struct matmul_plan *e, const struct matmul *p,
                    const cublasLtMatmulHeuristicResult_t *proposals, int count);
/* Whether the plan gives the same bits when aux is also its output; tried on a copy. */
bool matmul_works_in_place(struct backend *be, const struct matmul_plan *e, const struct matmul *p);
/* Whether the plan is not slower than separate kernels. Outputs go to other memory. The separate
 * kernels may make plans, so the plan must be a copy. */
bool matmul_beats(struct backend *be, const struct matmul_plan *e, const struct matmul *p,
                  matmul_apart *apart, const void *call);
