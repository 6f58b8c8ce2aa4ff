/* exec/cuda/cuda_attention.cuh - what the attention kernels share; private to exec/cuda/.
 *
 * Two families: cuda_flash_*.cu for bf16 on the tensor cores (head_dim 32, 64, 96, 128), and
 * cuda_attention.cu, fp32 arithmetic for every dtype and any head_dim up to 256. Both tile as
 * FlashAttention-2 does (Dao, 2023): scores never leave the chip, the forward keeps a running
 * maximum and sum per row, the backward rebuilds probabilities from the saved log-sum-exp. The
 * backward runs over each pair of tiles twice, once to sum dq in query order and once to sum dk and
 * dv in key order, or once where one block holds a whole head: no two blocks add to one element, so
 * no atomics and the same bits every time. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_ATTENTION_CUH
#define ELAPSE_EXEC_CUDA_CUDA_ATTENTION_CUH

#include "exec/cuda/elem.cuh"

/* Kernel argument. Strides in elements. */
struct attn_args {
    const void *qkv, *ctx, *dctx;
    void *out; /* forward: ctx; backward: dqkv */
    void *dq;  /* backward: dq, of row stride dq_stride; may lie in out */
    int64_t dq_stride;
    float *lse, *delta; /* [n, heads, seq]; delta: row sums of dctx * ctx, by the dq kernel */
    const int32_t *lengths;
    int seq, heads, head_dim, tiles; /* tiles: blocks of one head */
    bool causal;
    float scale; /* 1 / sqrt(head_dim) */
    struct drop_args drop;
};

/* Of one block: a tile of queries or keys of one head of one sample. */
struct attn_place {
    int64_t sample;
    int head, tile, keys;     /* keys that count */
    int64_t qkv_row, ctx_row; /* strides between tokens */
    int64_t qkv_at, ctx_at;   /* first element of the head: of q (k, v: heads * head_dim further) */
    int64_t stat_at;          /* in lse and delta */
    uint64_t drop_key;
    uint32_t mask_at; /* element (query 0, key 0) in the sample's mask [heads, seq, seq] */
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

static __device__ __forceinline__ bool attn_keeps(const struct attn_args &a,
                                                  const struct attn_place &p, int query, int key)
{
    return rng_bits(p.drop_key, p.mask_at + (uint32_t)query * (uint32_t)a.seq + (uint32_t)key) >=
           a.drop.limit;
}

/* bf16 on the tensor cores: whether there are kernels for a head_dim. */
static inline bool cuda_flash_takes(const struct backend *be, int head_dim)
{
    return be->elem_bytes == 2 && head_dim % 32 == 0 && head_dim > 0 && head_dim <= 128;
}
/* False: not this shape or alignment, use the fp32 kernels. */
bool cuda_flash_forward(struct backend *be, const struct attn_args *a, int64_t num_samples);
/* Blocks of a head in cuda_flash_backward(). */
int cuda_flash_tiles(int seq, int head_dim);
/* dq and dk, dv; a->delta is written first. parts [n, tiles, 3, heads, head_dim] receives the sums
 * of dqkv's columns, a row a tile of a sample; NULL: not wanted. */
bool cuda_flash_backward(struct backend *be, const struct attn_args *a, float *parts,
                         int64_t num_samples);
/* The backward of a short sequence in one kernel, a block a head: how many warps a block may have,
 * the default first. Returns how many numbers there are; 0: not this shape or alignment. */
int cuda_flash_whole_warps(struct backend *be, const struct attn_args *a, int warps[2]);
/* With one of them: the bits are the same. out may be qkv, dq and delta are not looked at. parts
 * [n, 3, heads, head_dim] as above. */
void cuda_flash_backward_whole(struct backend *be, const struct attn_args *a, float *parts,
                               int64_t num_samples, int warps);

#endif
