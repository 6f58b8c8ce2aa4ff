/* exec/cuda/cuda_internal.h - declarations shared by the files of the cuda backend; private to
 * exec/cuda/.
 *
 * Results are deterministic: no atomics on floats, and sums over blocks go through scratch in a
 * fixed order that depends on shapes only. Kernels compute in fp32 and round once, to nearest even,
 * when they store. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_INTERNAL_H
#define ELAPSE_EXEC_CUDA_CUDA_INTERNAL_H

#include <cuda_runtime_api.h>

#include "exec/base/backend.h"
#include "partition/job.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_arena;   /* cuda_arena.h: device memory */
struct cuda_choices; /* cuda_choice.h: choices made by timing */
struct cuda_cudnn;   /* cuda_cudnn.h: an optional library */
struct cuda_graphs;  /* cuda_graph.h: repeated runs of calls, launched as a whole */
struct cuda_matmul;  /* cuda_matmul.h: plans of matrix products */
struct cuda_pick;    /* cuda_attention_pick.h: our attention or cuDNN's, by shape */
struct cuda_staging; /* cuda_staging.h: copies through pinned host memory */
struct cuda_warps;   /* cuda_warps.h: warps per block of attention's backward */

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
    struct cuda_graphs *graphs;
    struct cuda_matmul *matmul;
    struct cuda_staging *staging;
    struct cuda_warps *warps;
    struct cuda_pick *pick;   /* NULL: our own kernels always */
    struct cuda_cudnn *cudnn; /* see cuda_cudnn_of(); NULL: not loaded yet, or not available */
    struct err no_cudnn;      /* why cuDNN is not available */
    bool rows_known;          /* base.rows_anywhere has been measured */
    struct err failed;        /* the first failure; sync() reports it */
};

struct backend_event {
    cudaEvent_t event;
};

static inline struct cuda_backend *cuda_of(struct backend *be)
{
    return (struct cuda_backend *)be;
}

/* At least `bytes` of device memory, 256-byte aligned, for the kernels of one call of the table.
 * The next call may reuse it. Without memory the failure is recorded and the result is NULL; launch
 * nothing then. */
void *cuda_scratch(struct backend *be, int64_t bytes);
/* Like cuda_scratch(), but running out of memory is returned in err (may be NULL) instead of ending
 * the run. */
void *cuda_scratch_or(struct backend *be, int64_t bytes, struct err *err);

/* Record a failure. The first one sticks, with the text and place of the call, and the next sync()
 * of a backend reports it. Returns OK if code is cudaSuccess. */
enum status cuda_note(cudaError_t code, const char *call, const char *file, int line);
/* Record a failure of another library, as text. */
void cuda_note_text(enum status status, const char *fmt, ...) ELAPSE_PRINTF(2, 3);
/* Read the first failure since the last sync(), and restore it. */
struct err cuda_failures(void);
void cuda_set_failures(const struct err *failures);
bool cuda_waits(void); /* ELAPSE_CUDA_SYNC=1 */
/* Called after every launch (by CUDA_LAUNCH). With ELAPSE_CUDA_SYNC=1 in the environment it waits
 * for the kernel, so that a fault is reported for the launch that caused it. */
void cuda_launched(const char *kernel, const char *file, int line);
#define CUDA_NOTE(call) cuda_note((call), #call, __FILE__, __LINE__)

/* Set err to `cuda: CALL failed: TEXT (file:line)`. Returns ERR_INFEASIBLE if device memory ran
 * out, else ERR_SYSTEM. For functions with one exit, CUDA_TRY(call) sets rc and goes to out. */
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

#define CUDA_FUNCTIONS(name)                                                                       \
    void name##_install(struct backend *be) /* each file enters its kernels into the table */
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
