/* exec/cuda/cuda_internal.h - declarations shared by the files of the cuda backend; private to
 * exec/cuda/.
 *
 * Results are deterministic: no atomics on floats, and sums over blocks go through scratch in a
 * fixed order that depends on shapes only. Kernels compute in fp32 and round once, to nearest even,
 * when they store. */
#pragma once

#include <cuda_runtime_api.h>

#include "exec/base/backend.h"
#include "exec/cuda/cuda_failure.h"
#include "partition/plan/job.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_arena;   /* cuda_arena.h: device memory */
struct cuda_choices; /* cuda_choice.h: choices made by timing */
struct cuda_cudnn;   /* cuda_cudnn.h: an optional library */
struct cuda_hold;    /* cuda_hold.c: a head start for the host */
struct cuda_matmul;  /* cuda_matmul.h: plans of matrix products */
struct cuda_pick;    /* cuda_attention_pick.h: our attention or cuDNN's, by shape */
struct cuda_staging; /* cuda_staging.h: copies through pinned host memory */

struct cuda_backend {
    struct backend base; /* must come first, because a struct backend * is cast to this struct */
    int device, major, minor;
    int num_sms;          /* multiprocessors */
    int64_t shared_bytes; /* largest shared memory of a block */
    int64_t l2_bytes;
    cudaStream_t stream; /* runs all kernels */
    void *scratch;       /* owned */
    int64_t scratch_bytes;
    struct cuda_arena *arena;
    struct cuda_choices *choices;
    struct cuda_hold *hold;
    struct cuda_matmul *matmul;
    struct cuda_staging *staging;
    struct cuda_pick *pick;   /* NULL: our own kernels always */
    struct cuda_cudnn *cudnn; /* see cuda_cudnn_of(); NULL: not loaded yet, or not available */
    struct err no_cudnn;      /* why cuDNN is not available */
    bool row_position_known;  /* base.bits_independent_of_row_position has been measured */
    struct err failed;        /* the first failure; sync() reports it */
};

struct backend_event {
    cudaEvent_t event;
};

static inline struct cuda_backend *cuda_of(struct backend *be)
{
    return (struct cuda_backend *)be;
}

/* Number of blocks of `per` elements that cover n, at most `most` (kernels loop over the rest). */
static inline int cuda_blocks(int64_t n, int64_t per, int64_t most)
{
    int64_t blocks = (n + per - 1) / per;
    return (int)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

/* dst[cols] = scale * the sum over p of parts[p][cols]; add: dst += it. The parts are added in 32
 * interleaved runs, and then the runs in order. In cuda_sums.cu. */
void cuda_fold(struct backend *be, int64_t num_parts, int64_t cols, const float *parts, float scale,
               bool add, float *dst);
/* sums[cols] = scale * the column sums of x [rows, cols], rows ld apart; add: sums += them. Uses
 * scratch. In cuda_sums.cu. */
void cuda_column_sums(struct backend *be, int64_t rows, int64_t cols, int64_t ld, const void *x,
                      float scale, bool add, float *sums);

/* sums[t] = the sum of parts [first[t], first[t + 1]) of tensor t, for t < count <= SQUARE_TENSORS
 * (squares.cuh). In cuda_sums.cu. */
void cuda_add_squares(struct backend *be, int count, const int *first, const double *parts,
                      double *sums);

enum status cuda_hold_new(struct cuda_hold **hold, struct err *err); /* ERR_NOMEM */
void cuda_hold_free(struct cuda_hold *hold);                         /* NULL is fine */

#define CUDA_FUNCTIONS(name)                                                                       \
    void name##_install(struct backend *be) /* each file enters its kernels into the table */
CUDA_FUNCTIONS(cuda_lane);                  /* lane_* */
CUDA_FUNCTIONS(cuda_hold);                  /* hold, release */
CUDA_FUNCTIONS(cuda_range);                 /* range_* */
CUDA_FUNCTIONS(cuda_linear);                /* linear_*, act_* */
CUDA_FUNCTIONS(cuda_rows);                  /* measure_row_position */
CUDA_FUNCTIONS(cuda_sums);                  /* sumsq_many */
CUDA_FUNCTIONS(cuda_norm);                  /* layernorm_* */
CUDA_FUNCTIONS(cuda_decoder);               /* rmsnorm_*, rotary_*, gate_* */
CUDA_FUNCTIONS(cuda_attention);             /* attention_* */
CUDA_FUNCTIONS(cuda_embed);                 /* patchify, patch_*, tokens_*, join, split */
CUDA_FUNCTIONS(cuda_loss);                  /* xent */
CUDA_FUNCTIONS(cuda_elementwise);           /* dropout, add, reduce, round, accumulate, sumsq */
CUDA_FUNCTIONS(cuda_optim);                 /* sgd, adamw, lamb */
#undef CUDA_FUNCTIONS

#ifdef __cplusplus
}
#endif
