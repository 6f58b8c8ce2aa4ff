/* exec/cuda/attention_parts.cuh - declarations shared by the attention kernels; private to
 * exec/cuda/.
 *
 * There are two families. cuda_flash_*.cu computes in bf16 on the tensor cores (head_dim 32, 64,
 * 96, 128). cuda_attention.cu computes in fp32 for every dtype and any head_dim up to 256. Both
 * tile like FlashAttention-2 (Dao, 2023): scores never leave the chip, the forward keeps a running
 * maximum and sum per row, and the backward recomputes probabilities from the saved log-sum-exp.
 * The backward visits each pair of tiles twice, once to sum dq in query order and once to sum dk
 * and dv in key order; once is enough if a block holds a whole head. No two blocks add to the same
 * element, so there are no atomics, and the bits are the same every time. */
#pragma once

#include "exec/cuda/elem.cuh"

/* The argument of all attention kernels. Strides are in elements. */
struct attn_args {
    const void *qkv, *ctx, *dctx;
    void *out; /* forward: ctx; backward: dqkv */
    void *dq;  /* backward: dq with row stride dq_stride; may be part of out */
    int64_t dq_stride;
    /* [n, heads, seq]. delta: row sums of dctx * ctx, written by the dq kernel. */
    float *lse, *delta;
    const int32_t *lengths;
    int seq, heads, head_dim, tiles; /* tiles: number of blocks of one head */
    bool causal;
    int window;            /* as in struct attention; 0 where it is not narrower than seq */
    const int32_t *starts; /* as in struct attention */
    float scale;           /* 1 / sqrt(head_dim) */
    struct drop_args drop;
};

/* The work of one block: a tile of queries or keys of one head of one sample. */
struct attn_place {
    int64_t sample;
    int head, tile, keys;     /* keys: number of real keys */
    int64_t qkv_row, ctx_row; /* strides between tokens */
    /* First element of the head: in qkv that of q (k and v follow, heads * head_dim apart), and in
     * ctx. */
    int64_t qkv_at, ctx_at;
    int64_t stat_at; /* index in lse and delta */
    uint64_t drop_key;
    uint32_t mask_at; /* index of (query 0, key 0) in the sample's mask [heads, seq, seq] */
};

static __device__ __forceinline__ struct attn_place attn_place_of(const struct attn_args &a)
{
    struct attn_place p;
    const int64_t width = (int64_t)a.heads * a.head_dim;
    const int64_t task = blockIdx.x / a.tiles;
    p.tile = (int)(blockIdx.x % a.tiles);
    p.sample = task / a.heads;
    p.head = (int)(task % a.heads);
    p.keys = a.lengths ? a.lengths[p.sample] : a.seq;
    p.keys = p.keys < 1 ? 1 : p.keys > a.seq ? a.seq : p.keys;
    p.qkv_row = 3 * width;
    p.ctx_row = width;
    p.qkv_at = p.sample * a.seq * p.qkv_row + (int64_t)p.head * a.head_dim;
    p.ctx_at = p.sample * a.seq * p.ctx_row + (int64_t)p.head * a.head_dim;
    p.stat_at = task * a.seq;
    p.drop_key = a.drop.limit ? drop_row_key(a.drop, p.sample) : 0;
    p.mask_at = (uint32_t)p.head * (uint32_t)a.seq * (uint32_t)a.seq;
    return p;
}

/* The first key that a query sees; never falls from query to query. Queries from seq on count as the
 * last one. */
static __device__ __forceinline__ int attn_first(const struct attn_args &a,
                                                 const struct attn_place &p, int query)
{
    if (!a.window && !a.starts)
        return 0;
    query = query < a.seq ? query : a.seq - 1;
    int first = a.starts ? a.starts[p.sample * a.seq + query] : 0;
    if (a.window && query + 1 - a.window > first)
        first = query + 1 - a.window;
    /* A query of padding after the sample's end sees the last key that counts. */
    const int last = (p.keys < query + 1 ? p.keys : query + 1) - 1;
    return first < last ? first : last;
}

/* The end of the queries that see a key below `end`, where the attention is causal. */
static __device__ __forceinline__ int attn_queries_end(const struct attn_args &a,
                                                       const struct attn_place &p, int end)
{
    int low = 0, high = a.seq;
    if (!a.window && !a.starts)
        return a.seq;
    while (low < high) { /* by bisection, because first keys ascend */
        const int middle = low + (high - low) / 2;
        if (attn_first(a, p, middle) < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static __device__ __forceinline__ bool attn_keeps(const struct attn_args &a,
                                                  const struct attn_place &p, int query, int key)
{
    return rng_bits(p.drop_key, p.mask_at + (uint32_t)query * (uint32_t)a.seq + (uint32_t)key) >=
           a.drop.limit;
}

/* Whether the tensor-core kernels support this head_dim. */
static inline bool cuda_flash_takes(const struct backend *be, int head_dim)
{
    return be->elem_bytes == 2 && head_dim % 32 == 0 && head_dim > 0 && head_dim <= 128;
}
/* Forward on the tensor cores. false: not for this shape or alignment; use the fp32 kernels. */
bool cuda_flash_forward(struct backend *be, const struct attn_args *a, int64_t num_samples);
/* Number of blocks per head in cuda_flash_backward(). */
int cuda_flash_tiles(int seq, int head_dim);
/* Backward on the tensor cores, in two kernels; writes a->delta first. parts [n, tiles, 3, heads,
 * head_dim] receives the column sums of dqkv, one row for a tile of a sample; NULL: not needed.
 * false: as for cuda_flash_forward(). */
bool cuda_flash_backward(struct backend *be, const struct attn_args *a, float *parts,
                         int64_t num_samples);
/* Whether cuda_flash_backward_whole() has this shape and alignment: a block holds a whole head. */
bool cuda_flash_whole_fits(struct backend *be, const struct attn_args *a);
/* Backward of a short sequence in one kernel, one block per head. out may be qkv; dq and delta are
 * not used. parts [n, 3, heads, head_dim] as for cuda_flash_backward(). */
void cuda_flash_backward_whole(struct backend *be, const struct attn_args *a, float *parts,
                               int64_t num_samples);
