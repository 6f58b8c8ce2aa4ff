/* exec/cuda/cuda_cudnn.h - attention, and products followed by GELU, as fused kernels of cuDNN.
 * Optional.
 *
 * libcudnn.so.9 is loaded at run time (ELAPSE_CUDNN_LIB in the environment names another file), so
 * nothing depends on it. A plan is cuDNN's graph of one shape (cuda_cudnn_graph.h) and one of the
 * engines that cuDNN proposes for it and that give the same bits every time (any engine with
 * sdpa_shape.any_bits). The choice depends on shape, device and library version; nothing is timed.
 * Elements are bf16. Attention needs a head_dim that is a multiple of 8, up to 128, and no dropout,
 * because cuDNN's masks are not those of exec/base/rng.h. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_CUDNN_H
#define ELAPSE_EXEC_CUDA_CUDA_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything a plan depends on. Compared byte by byte, so it must be zeroed first. */
struct sdpa_shape {
    int64_t samples;
    int32_t seq, heads, head_dim;
    bool causal, padded; /* padded: has SDPA_LEN_Q and SDPA_LEN_KV */
    bool backward;
    bool any_bits; /* backward: blocks may add to dq in any order, so bits may differ from run to
                      run */
};

/* The tensors of a plan that lie in memory. The numbers are cuDNN's unique ids. */
enum sdpa_uid {
    SDPA_Q = 1, /* q, k, v, dq, dk, dv: in [n, seq, 3, heads, head_dim] */
    SDPA_K,
    SDPA_V,
    SDPA_CTX,    /* [n, seq, heads, head_dim] */
    SDPA_LSE,    /* fp32 [n, heads, seq] */
    SDPA_LEN_Q,  /* int32 [n], 1..seq: number of real queries, if padded */
    SDPA_LEN_KV, /* number of real keys, if padded */
    SDPA_DCTX,   /* like ctx; from here on only in the backward */
    SDPA_DQ,
    SDPA_DK, /* rows of padding keys may be left unwritten, also in dv */
    SDPA_DV,
    SDPA_DELTA,  /* fp32 [n, heads, seq], scratch */
    SDPA_DQ_SUM, /* with any_bits: fp32 [n, heads, seq, head_dim], scratch, zero before the run */
    SDPA_SCALE,  /* from here on scalars, which the plan holds */
    SDPA_ONE,
    SDPA_PADDING_BIAS, /* minus infinity, like the next one */
    SDPA_CAUSAL_BIAS,
    SDPA_NUM_UIDS,
};

/* y = gelu(x w + bias), and `pre` receives gelu's input. Backward: y = (x w) gelu'(pre). Rows have
 * ld elements. Compared byte by byte, so it must be zeroed first. */
struct gelu_shape {
    int64_t rows, in, out, ld_x, ld_w, ld_y; /* ld_y also applies to pre */
    bool out_in;                             /* w is [out, in]; false: [in, out] */
    bool erf;                                /* GELU by erf; false: its tanh form */
    bool pre;                                /* forward: pre is needed */
    bool backward;
};
enum gelu_uid {
    GELU_X = 1, /* bf16, like all of them */
    GELU_W,
    GELU_BIAS, /* [out]; forward only */
    GELU_PRE,
    GELU_Y,
};
enum { CUDNN_NUM_UIDS = SDPA_NUM_UIDS }; /* enough for either kind */

struct CUstream_st; /* a cudaStream_t points to one */
struct cuda_cudnn;
struct cudnn_plan;

/* Load cuDNN; all its work is issued to `stream`. ERR_INFEASIBLE: built without cuDNN's headers,
 * the library is not installed, or it is older than 9.10.2. ERR_SYSTEM: it fails to start.
 * ERR_NOMEM. */
enum status cuda_cudnn_new(struct CUstream_st *stream, struct cuda_cudnn **cudnn, struct err *err);
void cuda_cudnn_free(struct cuda_cudnn *cudnn); /* free its plans first; NULL is fine */
/* The backend's cuDNN, loaded at the first call. NULL: not available. */
struct cuda_cudnn *cuda_cudnn_of(struct backend *be);
/* Load cuDNN because the user asked for it. If it is not available, print `elapse: WITHOUT: reason`
 * on stderr. */
void cuda_cudnn_need(struct backend *be, const char *without);

int cuda_cudnn_version(const struct cuda_cudnn *cudnn); /* 91002 is 9.10.2 */

/* Read an environment variable about the use of cuDNN. "auto" or unset: where it was found faster.
 * "own": never. "cudnn": wherever possible. "fastest", if has_fastest: wherever possible, also by
 * kernels whose bits may differ from run to run. ERR_INPUT: any other value. */
enum cudnn_use { CUDNN_WHERE_FASTER, CUDNN_NEVER, CUDNN_WHEREVER, CUDNN_ANY_BITS };
enum status cuda_cudnn_use(const char *variable, bool has_fastest, enum cudnn_use *use,
                           struct err *err);

/* Whether a batch without lengths must still pass SDPA_LEN_*: up to version 9.15.0 the backward is
 * wrong without them if seq is not a multiple of 128. */
bool cuda_cudnn_wants_lengths(const struct cuda_cudnn *cudnn, int seq);

/* Make a plan; cuDNN compiles kernels, which takes seconds. The caller owns *plan. `proposal`
 * counts cuDNN's engines for the shape, best first by its own estimate; CUDNN_FIRST, which
 * attention always uses, is the first one that it can compile. ERR_INFEASIBLE, with cuDNN's reason:
 * it has no such engine that gives the same bits every time. ERR_NOMEM. If cuDNN cannot sum over
 * blocks for a shape with any_bits, the plan is made from the other graph and the first engine that
 * cuDNN proposes; SDPA_DQ_SUM is not used then. */
enum { CUDNN_FIRST = -1 };
enum status cuda_cudnn_sdpa(struct cuda_cudnn *cudnn, const struct sdpa_shape *shape,
                            struct cudnn_plan **plan, struct err *err);
enum status cuda_cudnn_gelu(struct cuda_cudnn *cudnn, const struct gelu_shape *shape, int proposal,
                            struct cudnn_plan **plan, struct err *err);
void cuda_cudnn_plan_free(struct cudnn_plan *plan);          /* NULL is fine */
int64_t cuda_cudnn_workspace(const struct cudnn_plan *plan); /* bytes */

/* Issue a plan. at[uid]: each tensor of the shape, device memory aligned to 16 bytes. Outputs must
 * not be inputs; cuDNN does not document that GELU_Y may be GELU_PRE either. ERR_SYSTEM: with
 * cuDNN's reason. */
enum status cuda_cudnn_run(struct cuda_cudnn *cudnn, const struct cudnn_plan *plan,
                           void *const at[CUDNN_NUM_UIDS], void *workspace, struct err *err);

/* For tests: try to make a plan for a device that need not be installed. `device` describes it as
 * JSON, in the form of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION. cuDNN matches the graph and
 * compiles its kernels; errors are those of making a plan. Pass one shape; the other is NULL. */
enum status cuda_cudnn_try(const char *device, const struct sdpa_shape *sdpa,
                           const struct gelu_shape *gelu, int64_t *workspace_bytes,
                           struct err *err);

#ifdef __cplusplus
}
#endif
#endif
