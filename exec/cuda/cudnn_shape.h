/* exec/cuda/cudnn_shape.h - the attention that cuDNN can serve: its shape and its tensors. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Everything a plan depends on. Compared byte by byte, so it must be zeroed first. */
struct sdpa_shape {
    int64_t samples;
    int32_t seq, heads, head_dim;
    bool causal, padded; /* padded: has SDPA_LEN_Q and SDPA_LEN_KV */
    bool backward;
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
    SDPA_DELTA, /* fp32 [n, heads, seq], scratch */
    SDPA_SCALE, /* from here on scalars, which the plan holds */
    SDPA_ONE,
    SDPA_PADDING_BIAS, /* minus infinity, like the next one */
    SDPA_CAUSAL_BIAS,
    SDPA_NUM_UIDS,
};
