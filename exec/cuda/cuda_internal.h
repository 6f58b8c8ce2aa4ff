/* exec/cuda/cuda_internal.h - what the files of the cuda backend share; private to exec/cuda/.
 *
 * Deterministic: no atomics on floats; sums over blocks go through scratch in a fixed order, which
 * depends on shapes only. Kernels compute in fp32 and round once, to nearest even, at the store. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_INTERNAL_H
#define ELAPSE_EXEC_CUDA_CUDA_INTERNAL_H

#include <cuda_runtime_api.h>

#include "exec/base/backend.h"
#include "partition/job.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_arena;   /* cuda_arena.h: the device's memory, given out by the piece */
struct cuda_choices; /* cuda_choice.h: ways found by timing */
struct cuda_cudnn;   /* cuda_cudnn.h: a library that need not be there */
struct cuda_graphs;  /* cuda_graph.h: runs of calls launched as a whole */
struct cuda_matmul;  /* cuda_matmul.h: plans of matrix products */
struct cuda_pick;    /* cuda_attention_pick.h: whose attention a shape gets */
struct cuda_staging; /* cuda_staging.h: pinned host memory that copies go through */
struct cuda_warps;   /* cuda_warps.h: the size of blocks of attention's backward */

struct cuda_backend {
    struct backend base; /* first: the table is the object */
    int device, major, minor;
    int num_sms;          /* multiprocessors */
    int64_t shared_bytes; /* most shared memory a block may ask for */
    int64_t l2_bytes;
    cudaStream_t stream; /* all kernels */
    void *scratch;       /* owned */
    int64_t scratch_bytes;
    struct cuda_arena *arena;
    struct cuda_choices *choices;
    struct cuda_graphs *graphs;
    struct cuda_matmul *matmul;
    struct cuda_staging *staging;
    struct cuda_warps *warps;
    struct cuda_pick *pick;   /* NULL: our own kernels */
    struct cuda_cudnn *cudnn; /* cuda_cudnn_of(); NULL: not loaded, or not there, for which */
    struct err no_cudnn;      /* see here */
    bool rows_known;          /* base.rows_anywhere is */
    struct err failed;        /* first failure, reported by sync() */
};

struct backend_event {
    cudaEvent_t event;
};

static inline struct cuda_backend *cuda_of(struct backend *be)
{
    return (struct cuda_backend *)be;
}

/* At least `bytes` of device memory, 256-byte aligned, for the kernels of this one call of the
 * table; the next call may use the same. NULL after recording the failure when there is no memory
 * (then launch nothing). */
void *cuda_scratch(struct backend *be, int64_t bytes);
/* The same for who can do without: its want is no failure, err (NULL is fine) has it. */
void *cuda_scratch_or(struct backend *be, int64_t bytes, struct err *err);

/* The first failure sticks, with the call's text and place; the next sync() of a backend reports
 * it. OK when code is cudaSuccess. */
enum status cuda_note(cudaError_t code, const char *call, const char *file, int line);
/* The same for failures of other libraries; printf-like. */
void cuda_note_text(enum status status, const char *fmt, ...) ELAPSE_PRINTF(2, 3);
/* The first failure since the last sync(), and to put it back. */
struct err cuda_failures(void);
void cuda_set_failures(const struct err *failures);
bool cuda_waits(void); /* ELAPSE_CUDA_SYNC=1 */
/* Behind every launch (CUDA_LAUNCH). With ELAPSE_CUDA_SYNC=1 in the environment it waits for the
 * kernel, so that a fault is pinned on the launch that made it. */
void cuda_launched(const char *kernel, const char *file, int line);
#define CUDA_NOTE(call) cuda_note((call), #call, __FILE__, __LINE__)

/* Fills err: `cuda: CALL failed: TEXT (file:line)`; ERR_INFEASIBLE for want of device memory,
 * ERR_SYSTEM else. For functions with one exit: CUDA_TRY(call) goes to out with rc set. */
enum status cuda_failed(struct err *err, const char *call, cudaError_t code, const char *file,
                        int line);
#define CUDA_TRY(call)                                                                             \
    do {                                                                                           \
        cudaError_t cuda_code_ = (call);                                                           \
        if (cuda_code_ != cudaSuccess) {                                                           \
            rc = cuda_failed(err, #call, cuda_code_, __FILE__, __LINE__);                          \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

/* Blocks of `per` that cover n, at most `most` (kernels stride over the rest). */
static inline int cuda_blocks(int64_t n, int64_t per, int64_t most)
{
    int64_t blocks = (n + per - 1) / per;
    return (int)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

/* dst[cols] = scale * sum over p of parts[p][cols], added to dst where `add`: 32 interleaved runs
 * of parts, the runs in order; cuda_sums.cu. */
void cuda_fold(struct backend *be, int64_t num_parts, int64_t cols, const float *parts, float scale,
               bool add, float *dst);
/* sums[cols] = scale * column sums of x [rows, cols], rows ld apart, or += where `add`; takes
 * scratch; cuda_sums.cu. */
void cuda_column_sums(struct backend *be, int64_t rows, int64_t cols, int64_t ld, const void *x,
                      float scale, bool add, float *sums);

/* sums[t] = the sum of parts [first[t], first[t + 1]) of tensor t < count, at most SQUARE_TENSORS
 * (squares.cuh); cuda_sums.cu. */
void cuda_add_squares(struct backend *be, int count, const int *first, const double *parts,
                      double *sums);

#define CUDA_FUNCTIONS(name)                                                                       \
    void name##_install(struct backend *be) /* each file puts its kernels into the table */
CUDA_FUNCTIONS(cuda_lane);                  /* lane_* */
CUDA_FUNCTIONS(cuda_range);                 /* range_* */
CUDA_FUNCTIONS(cuda_linear);                /* linear_*, act_backward */
CUDA_FUNCTIONS(cuda_rows);                  /* find_rows_anywhere */
CUDA_FUNCTIONS(cuda_sums);                  /* sumsq_many */
CUDA_FUNCTIONS(cuda_norm);                  /* layernorm_* */
CUDA_FUNCTIONS(cuda_attention);             /* attention_* */
CUDA_FUNCTIONS(cuda_embed);                 /* patchify, patch_*, tokens_*, join, split */
CUDA_FUNCTIONS(cuda_loss);                  /* xent */
CUDA_FUNCTIONS(cuda_elementwise);           /* dropout, add, reduce, round, accumulate, sumsq */
CUDA_FUNCTIONS(cuda_optim);                 /* sgd, adamw, lamb */
#undef CUDA_FUNCTIONS

#ifdef __cplusplus
}
#endif
#endif
