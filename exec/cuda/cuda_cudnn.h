/* exec/cuda/cuda_cudnn.h - attention by cuDNN's fused kernels, where its library is there.
 *
 * libcudnn.so.9 is loaded at run time (ELAPSE_CUDNN_LIB in the environment names another file), so
 * that nothing needs it. A plan is cuDNN's graph of one shape (cuda_cudnn_graph.h) and the first of
 * the engines it proposes that gives the same bits every time: chosen by shape, device and library
 * version, nothing is timed. bf16, head_dim a multiple of 8 up to 128, no dropout: cuDNN's masks
 * are not those of exec/rng.h. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_CUDNN_H
#define ELAPSE_EXEC_CUDA_CUDA_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a plan depends on; compared byte by byte, so zeroed first. */
struct sdpa_shape {
    int64_t samples;
    int32_t seq, heads, head_dim;
    bool causal, padded; /* padded: with SDPA_LEN_Q and SDPA_LEN_KV */
    bool backward;
};

/* The tensors of a plan that have memory behind them; the numbers are cuDNN's unique ids. */
enum sdpa_uid {
    SDPA_Q = 1, /* q, k, v, dq, dk, dv: in [n, seq, 3, heads, head_dim] */
    SDPA_K,
    SDPA_V,
    SDPA_CTX,    /* [n, seq, heads, head_dim] */
    SDPA_LSE,    /* fp32 [n, heads, seq] */
    SDPA_LEN_Q,  /* int32 [n], 1..seq: queries that count, where padded */
    SDPA_LEN_KV, /* keys that count */
    SDPA_DCTX,   /* as ctx; from here on backward only */
    SDPA_DQ,
    SDPA_DK, /* rows of keys that do not count may be left unwritten, as of dv */
    SDPA_DV,
    SDPA_DELTA, /* fp32 [n, heads, seq], scratch */
    SDPA_SCALE, /* numbers from here on; the plan has them */
    SDPA_ONE,
    SDPA_PADDING_BIAS, /* minus infinity, as the next */
    SDPA_CAUSAL_BIAS,
    SDPA_NUM_UIDS,
};
/* Whether a plan of this shape has the tensor. */
bool sdpa_has(const struct sdpa_shape *shape, enum sdpa_uid uid);

struct CUstream_st; /* a cudaStream_t points to one */
struct cuda_cudnn;
struct cudnn_plan;

/* All is issued to `stream`. ERR_INFEASIBLE: built without cuDNN's headers, no such library here,
 * one older than 9.10.2; ERR_SYSTEM: it does not start; ERR_NOMEM. */
enum status cuda_cudnn_new(struct CUstream_st *stream, struct cuda_cudnn **cudnn, struct err *err);
void cuda_cudnn_free(struct cuda_cudnn *cudnn); /* after its plans; NULL is fine */

int cuda_cudnn_version(const struct cuda_cudnn *cudnn); /* 91002 is 9.10.2 */

/* Whether SDPA_LEN_* are wanted of a batch that has no lengths: up to 9.15.0 the backward is wrong
 * without where seq is no multiple of 128. */
bool cuda_cudnn_wants_lengths(const struct cuda_cudnn *cudnn, int seq);

/* The caller owns *plan. cuDNN compiles kernels meanwhile: seconds. ERR_INFEASIBLE with cuDNN's
 * reason: it has no engine for this shape whose bits are the same every time; ERR_NOMEM. */
enum status cuda_cudnn_plan(struct cuda_cudnn *cudnn, const struct sdpa_shape *shape,
                            struct cudnn_plan **plan, struct err *err);
void cuda_cudnn_plan_free(struct cudnn_plan *plan);          /* NULL is fine */
int64_t cuda_cudnn_workspace(const struct cudnn_plan *plan); /* bytes */

/* Issue it: at[uid] for each tensor that the shape has, device memory aligned to 16 bytes. Outputs
 * may not be inputs. ERR_SYSTEM: cuDNN's reason. */
enum status cuda_cudnn_run(struct cuda_cudnn *cudnn, const struct cudnn_plan *plan,
                           void *const at[SDPA_NUM_UIDS], void *workspace, struct err *err);

/* What the library says of a shape on a device that need not be there: `device` is its description
 * as JSON, in the form of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION. For tests: cuDNN matches the
 * graph and compiles its kernels as in cuda_cudnn_plan(), whose errors it has. */
enum status cuda_cudnn_try(const char *device, const struct sdpa_shape *shape,
                           int64_t *workspace_bytes, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
