/* exec/cuda/cudnn_shape.h - the calls that cuDNN can serve: their shapes, and the tensors of each.
 */
#ifndef ELAPSE_EXEC_CUDA_CUDNN_SHAPE_H
#define ELAPSE_EXEC_CUDA_CUDNN_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
