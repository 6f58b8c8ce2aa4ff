/* exec/cuda/cuda_cudnn.h - attention, and products with GELU behind them, by cuDNN's fused kernels,
 * where its library is there.
 *
 * libcudnn.so.9 is loaded at run time (ELAPSE_CUDNN_LIB in the environment names another file), so
 * that nothing needs it. A plan is cuDNN's graph of one shape (cuda_cudnn_graph.h) and one of the
 * engines it proposes that give the same bits every time (any engine where sdpa_shape.any_bits):
 * which these are depends on shape, device and library version, nothing is timed. bf16. Attention
 * has head_dim a multiple of 8 up to 128 and no dropout: cuDNN's masks are not those of
 * exec/base/rng.h.
 */
#ifndef ELAPSE_EXEC_CUDA_CUDA_CUDNN_H
#define ELAPSE_EXEC_CUDA_CUDA_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a plan depends on; compared byte by byte, so zeroed first. */
struct sdpa_shape {
    int64_t samples;
    int32_t seq, heads, head_dim;
    bool causal, padded; /* padded: with SDPA_LEN_Q and SDPA_LEN_KV */
    bool backward;
    bool any_bits; /* backward: blocks add to dq in any order, so bits differ from run to run */
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
    SDPA_DELTA,  /* fp32 [n, heads, seq], scratch */
    SDPA_DQ_SUM, /* where any_bits: fp32 [n, heads, seq, head_dim], scratch, zero before the run */
    SDPA_SCALE,  /* numbers from here on; the plan has them */
    SDPA_ONE,
    SDPA_PADDING_BIAS, /* minus infinity, as the next */
    SDPA_CAUSAL_BIAS,
    SDPA_NUM_UIDS,
};

/* y = gelu(x w + bias), with what enters gelu in `pre`; or, backward, y = (x w) gelu'(pre). Rows
 * have ld elements; compared byte by byte, so zeroed first. */
struct gelu_shape {
    int64_t rows, in, out, ld_x, ld_w, ld_y; /* pre has ld_y too */
    bool out_in;                             /* w is [out, in], else [in, out] */
    bool erf;                                /* else the tanh form */
    bool pre;                                /* forward: wanted */
    bool backward;
};
enum gelu_uid {
    GELU_X = 1, /* bf16, as all */
    GELU_W,
    GELU_BIAS, /* [out], forward */
    GELU_PRE,
    GELU_Y,
};
enum { CUDNN_NUM_UIDS = SDPA_NUM_UIDS }; /* of either */

struct CUstream_st; /* a cudaStream_t points to one */
struct cuda_cudnn;
struct cudnn_plan;

/* All is issued to `stream`. ERR_INFEASIBLE: built without cuDNN's headers, no such library here,
 * one older than 9.10.2; ERR_SYSTEM: it does not start; ERR_NOMEM. */
enum status cuda_cudnn_new(struct CUstream_st *stream, struct cuda_cudnn **cudnn, struct err *err);
void cuda_cudnn_free(struct cuda_cudnn *cudnn); /* after its plans; NULL is fine */
/* The backend's own, loaded at the first call; NULL: it is not there. */
struct cuda_cudnn *cuda_cudnn_of(struct backend *be);
/* The same where the user asks for it: `elapse: WITHOUT: why` on stderr where it is not there. */
void cuda_cudnn_need(struct backend *be, const char *without);

int cuda_cudnn_version(const struct cuda_cudnn *cudnn); /* 91002 is 9.10.2 */

/* What a variable of the environment says of its use: "auto" or nothing, where it was found faster;
 * "own", never; "cudnn", wherever it can; "fastest", where the caller has that: wherever it can, by
 * kernels whose bits may differ from run to run. ERR_INPUT: something else. */
enum cudnn_use { CUDNN_WHERE_FASTER, CUDNN_NEVER, CUDNN_WHEREVER, CUDNN_ANY_BITS };
enum status cuda_cudnn_use(const char *variable, bool has_fastest, enum cudnn_use *use,
                           struct err *err);

/* Whether SDPA_LEN_* are wanted of a batch that has no lengths: up to 9.15.0 the backward is wrong
 * without where seq is no multiple of 128. */
bool cuda_cudnn_wants_lengths(const struct cuda_cudnn *cudnn, int seq);

/* The caller owns *plan. cuDNN compiles kernels meanwhile: seconds. `proposal` counts its engines
 * for the shape, best first by its own guess; CUDNN_FIRST, as for attention: the first that it can
 * compile. ERR_INFEASIBLE with cuDNN's reason: no such engine whose bits are the same every time;
 * ERR_NOMEM. A shape with any_bits for which cuDNN has no sum over blocks gets the other graph,
 * from whichever engine cuDNN proposes first; SDPA_DQ_SUM is not looked at then. */
enum { CUDNN_FIRST = -1 };
enum status cuda_cudnn_sdpa(struct cuda_cudnn *cudnn, const struct sdpa_shape *shape,
                            struct cudnn_plan **plan, struct err *err);
enum status cuda_cudnn_gelu(struct cuda_cudnn *cudnn, const struct gelu_shape *shape, int proposal,
                            struct cudnn_plan **plan, struct err *err);
void cuda_cudnn_plan_free(struct cudnn_plan *plan);          /* NULL is fine */
int64_t cuda_cudnn_workspace(const struct cudnn_plan *plan); /* bytes */

/* Issue it: at[uid] for each tensor that the shape has, device memory aligned to 16 bytes. Outputs
 * may not be inputs, nor does cuDNN say that GELU_Y may be GELU_PRE. ERR_SYSTEM: cuDNN's reason. */
enum status cuda_cudnn_run(struct cuda_cudnn *cudnn, const struct cudnn_plan *plan,
                           void *const at[CUDNN_NUM_UIDS], void *workspace, struct err *err);

/* What the library says of a shape on a device that need not be there: `device` is its description
 * as JSON, in the form of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION. For tests: cuDNN matches the
 * graph and compiles its kernels as for a plan, whose errors it has. The other shape is NULL. */
enum status cuda_cudnn_try(const char *device, const struct sdpa_shape *sdpa,
                           const struct gelu_shape *gelu, int64_t *workspace_bytes,
                           struct err *err);

#ifdef __cplusplus
}
#endif
#endif
