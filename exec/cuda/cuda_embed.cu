/* Embeddings: images as rows of patches, tables of tokens, their gradients, and moves of rows.
 *
 * All kernels are bound by memory. A thread takes V neighbouring elements: 16 bytes, or one element
 * if widths or addresses are not aligned. The gradient of the token table has no atomics:
 * sort_ids() sorts the tokens by id, add_runs() sums equal ids inside tiles, and join_runs() adds
 * the runs that cross tiles. Read tokens_backward() for the order of these kernels. */
#include "exec/cuda/elem.cuh"
#include "exec/cuda/cuda_scratch.h"

enum { THREADS = 128 };

#define EMBED_PICK(be, wide, DO)                                                                   \
    CUDA_DTYPE(be, T, {                                                                            \
        if (wide)                                                                                  \
            DO(T, 16 / (int)sizeof(T));                                                            \
        else                                                                                       \
            DO(T, 1);                                                                              \
    })

/* Rows that a thread loads before it uses the first, because few threads must keep memory busy. */
enum { ROWS_AHEAD = 8 };

static bool embed_wide(struct backend *be, int64_t cols, uintptr_t pointers)
{
    return cols * be->elem_bytes % 16 == 0 && pointers % 16 == 0;
}

/* --- images ---------------------------------------------------------------------------------- */

/* A block makes one row of patches. For each element it reads 4 bytes and writes one element. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    patch_rows(const struct patches p, const float *images, T *cols)
{
    const int side = p.image / p.patch, ps = p.patch, width = p.channels * ps * ps;
    const int64_t r = blockIdx.x, tokens = (int64_t)side * side + 1, s = r / tokens;
    const int t = (int)(r % tokens) - 1;
    for (int c = (int)threadIdx.x * V; c < width; c += THREADS * V) {
        float value[V];
#pragma unroll
        for (int k = 0; k < V; k++)
            value[k] = 0.0f;
        if (t >= 0) {
            const int x = c % ps, y = c / ps % ps, channel = c / (ps * ps);
            const int64_t line = (s * p.channels + channel) * p.image + t / side * ps + y;
            elem_load_n<V>(images + line * p.image + t % side * ps + x, value);
        }
        elem_store_n<V>(cols + r * width + c, value);
    }
}

static void patchify(struct backend *be, const struct patches *p, const float *images, void *cols)
{
    const int side = p->image / p->patch;
    const int64_t rows = p->num_samples * ((int64_t)side * side + 1);
    const bool wide =
        p->patch % 4 == 0 && p->image % 4 == 0 && ((uintptr_t)images | (uintptr_t)cols) % 16 == 0;
    if (rows == 0)
        return;
    CUDA_DTYPE(be, T, {
        if (wide)
            CUDA_LAUNCH((patch_rows<T, 4>), (unsigned)rows, THREADS, 0, cuda_of(be)->stream, *p,
                        images, (T *)cols);
        else
            CUDA_LAUNCH((patch_rows<T, 1>), (unsigned)rows, THREADS, 0, cuda_of(be)->stream, *p,
                        images, (T *)cols);
    });
}

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    patch_positions(int64_t tokens, int hidden, const T *cls, const T *pos, T *y)
{
    const int64_t r = blockIdx.x, t = r % tokens;
    for (int c = (int)threadIdx.x * V; c < hidden; c += THREADS * V) {
        float value[V], more[V];
        elem_load_n<V>(t ? y + r * hidden + c : cls + c, value);
        elem_load_n<V>(pos + t * hidden + c, more);
#pragma unroll
        for (int k = 0; k < V; k++)
            value[k] += more[k];
        elem_store_n<V>(y + r * hidden + c, value);
    }
}

static void patch_finish(struct backend *be, const struct patches *p, const void *cls,
                         const void *pos, void *y)
{
    const int side = p->image / p->patch;
    const int64_t tokens = (int64_t)side * side + 1;
    const bool wide = embed_wide(be, p->hidden, (uintptr_t)cls | (uintptr_t)pos | (uintptr_t)y);
    if (p->num_samples == 0)
        return;
#define PATCH_POSITIONS(T, V)                                                                      \
    CUDA_LAUNCH((patch_positions<T, V>), (unsigned)(p->num_samples * tokens), THREADS, 0,          \
                cuda_of(be)->stream, tokens, p->hidden, (const T *)cls, (const T *)pos, (T *)y)
    EMBED_PICK(be, wide, PATCH_POSITIONS);
}

/* --- sums of gradients ----------------------------------------------------------------------- */

/* dst[i] += the sum over samples, in order, of x[sample][i]. kept: NULL, or receives the sum. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    sum_samples(int64_t num_samples, int64_t size, const T *x, float *dst, float *kept)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    float sum[V];
    if (i >= size)
        return;
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = 0.0f;
    for (int64_t s = 0; s < num_samples; s += ROWS_AHEAD) {
        const int num = num_samples - s < ROWS_AHEAD ? (int)(num_samples - s) : ROWS_AHEAD;
        elem_pack<V, T> ahead[ROWS_AHEAD];
#pragma unroll
        for (int a = 0; a < ROWS_AHEAD; a++)
            if (a < num)
                ahead[a] = elem_pack_load<V>(x + (s + a) * size + i);
#pragma unroll
        for (int a = 0; a < ROWS_AHEAD; a++)
            if (a < num)
#pragma unroll
                for (int k = 0; k < V; k++)
                    sum[k] += elem_load(&ahead[a].at[k]);
    }
    elem_add_n<V>(dst + i, sum);
    if (kept)
        elem_store_n<V>(kept + i, sum);
}

static void launch_sum_samples(struct backend *be, int64_t num_samples, int64_t size, const void *x,
                               float *dst, float *kept)
{
    const bool wide = embed_wide(be, size, (uintptr_t)x | (uintptr_t)dst | (uintptr_t)kept);
#define SUM_SAMPLES(T, V)                                                                          \
    CUDA_LAUNCH((sum_samples<T, V>), cuda_blocks(size, V *THREADS, INT32_MAX), THREADS, 0,         \
                cuda_of(be)->stream, num_samples, size, (const T *)x, dst, kept)
    EMBED_PICK(be, wide, SUM_SAMPLES);
}

static void patch_backward(struct backend *be, const struct patches *p, const void *dy, float *dcls,
                           float *dpos, float *db)
{
    const int side = p->image / p->patch;
    const int64_t tokens = (int64_t)side * side + 1, size = tokens * p->hidden;
    float *sums = (float *)cuda_scratch(be, size * (int64_t)sizeof *sums);
    if (!sums || p->num_samples == 0)
        return;
    launch_sum_samples(be, p->num_samples, size, dy, dpos, sums);
    cuda_fold(be, 1, p->hidden, sums, 1.0f, true, dcls);
    cuda_fold(be, tokens - 1, p->hidden, sums + p->hidden, 1.0f, true, db);
}

/* --- tokens ---------------------------------------------------------------------------------- */

/* A warp makes the row of one token. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    token_rows(const struct tokens t, const T *wte, const T *wpe, const T *wtt, T *y)
{
    const int64_t r = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32, h = t.hidden;
    if (r >= t.num_samples * t.seq)
        return;
    const T *word = wte + t.ids[r] * h, *pos = wpe ? wpe + r % t.seq * h : NULL;
    const T *type = wtt ? wtt + (t.types ? t.types[r] : 0) * h : NULL;
    for (int64_t c = (int64_t)(threadIdx.x % 32) * V; c < h; c += 32 * V) {
        float value[V], more[V];
        elem_load_n<V>(word + c, value);
        if (type) {
            elem_load_n<V>(type + c, more);
#pragma unroll
            for (int k = 0; k < V; k++)
                value[k] += more[k];
        }
        if (pos)
            elem_load_n<V>(pos + c, more);
#pragma unroll
        for (int k = 0; k < V; k++)
            value[k] = pos ? value[k] + more[k] : value[k] * t.scale;
        elem_store_n<V>(y + r * h + c, value);
    }
}

/* The factor of the token table's rows. */
static float scale_of(const struct tokens *t)
{
    return t->scale == 0.0f ? 1.0f : t->scale;
}

static void tokens_forward(struct backend *be, const struct tokens *t, const void *wte,
                           const void *wpe, const void *wtt, void *y)
{
    const int64_t rows = t->num_samples * t->seq;
    const bool wide =
        embed_wide(be, t->hidden, (uintptr_t)wte | (uintptr_t)wpe | (uintptr_t)wtt | (uintptr_t)y);
    struct tokens scaled = *t;
    if (rows == 0)
        return;
    scaled.scale = scale_of(t);
#define TOKEN_ROWS(T, V)                                                                           \
    CUDA_LAUNCH((token_rows<T, V>), cuda_blocks(rows, THREADS / 32, INT32_MAX), THREADS, 0,        \
                cuda_of(be)->stream, scaled, (const T *)wte, (const T *)wpe, (const T *)wtt,       \
                (T *)y)
    EMBED_PICK(be, wide, TOKEN_ROWS);
}

/* order = the rows sorted by id, rows of equal id in ascending order: a stable radix sort, 8 bits a
 * pass, in one block. A warp owns a run of neighbouring positions and takes 32 at a time. The place
 * of a position is its warp's counter for the digit, plus the number of lower lanes with the same
 * digit. Counters are summed digit by digit, and within a digit warp by warp. 32 Ki ids of 16 bits
 * take four passes over 128 KiB. The time is that of dependent loads, so SORT_AHEAD times 32 are in
 * flight. */
enum { SORT_THREADS = 1024, SORT_WARPS = SORT_THREADS / 32, SORT_BITS = 8, SORT_AHEAD = 8 };
enum { SORT_DIGITS = 1 << SORT_BITS, SORT_EACH = SORT_DIGITS * SORT_WARPS / SORT_THREADS };

/* The lanes of the warp with the same digit as this lane. -1 counts as a digit of its own. */
static __device__ __forceinline__ unsigned same_digit(int digit)
{
    unsigned peers = ~0u;
#pragma unroll
    for (int bit = 0; bit <= SORT_BITS; bit++) {
        const bool set = digit >> bit & 1;
        const unsigned lanes = __ballot_sync(~0u, set);
        peers &= set ? lanes : ~lanes;
    }
    return peers;
}

/* Loads SORT_AHEAD positions for this lane: at, at + 32, ... row: their rows. digit: the digits of
 * the ids of these rows; -1 from `end` on. */
static __device__ __forceinline__ void sort_load(const int32_t *ids, const int32_t *from, int at,
                                                 int end, int shift, int32_t *row, int *digit)
{
#pragma unroll
    for (int a = 0; a < SORT_AHEAD; a++)
        row[a] = at + 32 * a >= end ? 0 : from ? from[at + 32 * a] : at + 32 * a;
#pragma unroll
    for (int a = 0; a < SORT_AHEAD; a++)
        digit[a] = at + 32 * a >= end ? -1 : ids[row[a]] >> shift & (SORT_DIGITS - 1);
}

static __global__ void __launch_bounds__(SORT_THREADS)
    sort_ids(int rows, int bits, const int32_t *ids, int32_t *order, int32_t *other)
{
    __shared__ int32_t counts[SORT_DIGITS][SORT_WARPS + 1]; /* one more element, so that the digits
                                                               are in different banks */
    __shared__ int32_t totals[SORT_THREADS];
    const int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int per = ((rows + SORT_WARPS - 1) / SORT_WARPS + 31) / 32 * 32;
    const int first = warp * per, end = first + per < rows ? first + per : rows;
    int32_t *mine = &counts[tid * SORT_EACH / SORT_WARPS][tid * SORT_EACH % SORT_WARPS];
    int32_t *from = NULL, *to = order, row[SORT_AHEAD];
    int digit[SORT_AHEAD];
    /* Choose the first target so that the last pass writes to `order`. */
    if ((bits + SORT_BITS - 1) / SORT_BITS % 2 == 0)
        to = other;
    for (int shift = 0; shift < bits; shift += SORT_BITS) {
        for (int i = 0; i < SORT_EACH; i++)
            mine[i] = 0;
        __syncthreads();
        for (int i = first; i < end; i += 32 * SORT_AHEAD) {
            sort_load(ids, from, i + lane, end, shift, row, digit);
#pragma unroll
            for (int a = 0; a < SORT_AHEAD; a++) {
                const unsigned peers = same_digit(digit[a]);
                if (digit[a] >= 0 && lane == __ffs((int)peers) - 1)
                    counts[digit[a]][warp] += __popc(peers);
                __syncwarp();
            }
        }
        __syncthreads();
        /* Exclusive sums in place: first over the SORT_EACH counters of a thread, then over the
         * threads. */
        int32_t sum = 0;
        for (int i = 0; i < SORT_EACH; i++) {
            const int32_t count = mine[i];
            mine[i] = sum;
            sum += count;
        }
        totals[tid] = sum;
        __syncthreads();
        for (int step = 1; step < SORT_THREADS; step *= 2) {
            const int32_t left = tid >= step ? totals[tid - step] : 0;
            __syncthreads();
            totals[tid] += left;
            __syncthreads();
        }
        const int32_t before = tid ? totals[tid - 1] : 0;
        for (int i = 0; i < SORT_EACH; i++)
            mine[i] += before;
        __syncthreads();
        for (int i = first; i < end; i += 32 * SORT_AHEAD) {
            sort_load(ids, from, i + lane, end, shift, row, digit);
#pragma unroll
            for (int a = 0; a < SORT_AHEAD; a++) {
                const bool valid = digit[a] >= 0;
                const unsigned peers = same_digit(digit[a]);
                if (valid)
                    to[counts[digit[a]][warp] + __popc(peers & ((1u << lane) - 1))] = row[a];
                __syncwarp();
                if (valid && lane == __ffs((int)peers) - 1)
                    counts[digit[a]][warp] += __popc(peers);
                __syncwarp();
            }
        }
        __syncthreads(); /* the block must see the writes to `to` before it reads them */
        from = to;
        to = to == order ? other : order;
    }
}

/* Sums the gradients of equal ids, times scale, over tiles of RUN_TILE sorted rows. A run of equal ids that lies
 * inside a tile is added to the table at once. A run that crosses tiles leaves pieces: the piece
 * that began in an earlier tile goes to parts[tile][0], and the piece that begins here and goes on
 * in the next tile to parts[tile][1]. dy is read once, by rows. */
enum { RUN_TILE = 64 };
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    add_runs(int rows, int hidden, const int32_t *ids, const int32_t *order, const T *dy,
             float scale, float *dwte, float *parts)
{
    __shared__ int32_t row_of[RUN_TILE], id_of[RUN_TILE + 2]; /* id_of[0]: the id before the tile */
    const int first = (int)blockIdx.x * RUN_TILE;
    const int num = rows - first < RUN_TILE ? rows - first : RUN_TILE;
    for (int i = (int)threadIdx.x; i < RUN_TILE + 2; i += THREADS) {
        const int at = first + i - 1;
        const int32_t row = at >= 0 && at < rows ? order[at] : -1;
        id_of[i] = row >= 0 ? ids[row] : -1;
        if (i > 0 && i <= RUN_TILE)
            row_of[i - 1] = row;
    }
    __syncthreads();
    const int c = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * V;
    if (c >= hidden)
        return;
    float sum[V];
    bool came = id_of[1] == id_of[0]; /* whether the current run began in an earlier tile */
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = 0.0f;
    for (int i0 = 0; i0 < num; i0 += ROWS_AHEAD) {
        elem_pack<V, T> ahead[ROWS_AHEAD];
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++)
            if (i0 + i < num)
                ahead[i] = elem_pack_load<V>(dy + (int64_t)row_of[i0 + i] * hidden + c);
#pragma unroll
        for (int i = 0; i < ROWS_AHEAD; i++) {
            const int at = i0 + i;
            if (at >= num)
                break;
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] += elem_load(&ahead[i].at[k]);
            const bool goes_on = id_of[at + 2] == id_of[at + 1];
            if (goes_on && at + 1 < num)
                continue;
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] *= scale;
            if (came || goes_on)
                elem_store_n<V>(parts + ((int64_t)blockIdx.x * 2 + (came ? 0 : 1)) * hidden + c,
                                sum);
            else
                elem_add_n<V>(dwte + (int64_t)id_of[at + 1] * hidden + c, sum);
            came = false;
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] = 0.0f;
        }
    }
}

/* Adds the runs that cross tiles. The block of the tile where a run begins adds its pieces in
 * order. */
template <int V>
static __global__ void __launch_bounds__(THREADS)
    join_runs(int rows, int hidden, const int32_t *ids, const int32_t *order, const float *parts,
              float *dwte)
{
    const int first = (int)blockIdx.x * RUN_TILE, next = first + RUN_TILE;
    const int c = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * V;
    if (next >= rows || c >= hidden)
        return;
    const int32_t id = ids[order[next]];
    if (ids[order[next - 1]] != id || (first > 0 && ids[order[first - 1]] == id))
        return;
    int low = next, high = rows; /* find the end of the run by bisection, because ids are sorted */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (ids[order[middle]] == id)
            low = middle + 1;
        else
            high = middle;
    }
    const int last_tile = (low - 1) / RUN_TILE;
    float sum[V];
    elem_load_n<V>(parts + ((int64_t)blockIdx.x * 2 + 1) * hidden + c, sum);
#pragma unroll 8
    for (int tile = (int)blockIdx.x + 1; tile <= last_tile; tile++) {
        float value[V];
        elem_load_n<V>(parts + (int64_t)tile * 2 * hidden + c, value);
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] += value[k];
    }
    elem_add_n<V>(dwte + (int64_t)id * hidden + c, sum);
}

/* Sums the rows of TYPE_TILE tokens by type, in order: parts[tile][TYPES][hidden]. */
enum { TYPES = 2, TYPE_TILE = 64 }; /* BERT has two segments */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    type_parts(int64_t rows, int hidden, const int32_t *types, const T *dy, float *parts)
{
    const int c = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * V;
    const int64_t first = (int64_t)blockIdx.x * TYPE_TILE;
    const int64_t end = first + TYPE_TILE < rows ? first + TYPE_TILE : rows;
    float sum[TYPES][V];
    if (c >= hidden)
        return;
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[0][k] = sum[1][k] = 0.0f;
    for (int64_t r = first; r < end; r += ROWS_AHEAD) {
        const int num = end - r < ROWS_AHEAD ? (int)(end - r) : ROWS_AHEAD;
        elem_pack<V, T> ahead[ROWS_AHEAD];
        bool second[ROWS_AHEAD];
#pragma unroll
        for (int a = 0; a < ROWS_AHEAD; a++)
            if (a < num) {
                ahead[a] = elem_pack_load<V>(dy + (r + a) * hidden + c);
                second[a] = types && types[r + a];
            }
#pragma unroll
        for (int a = 0; a < ROWS_AHEAD; a++)
            if (a < num)
#pragma unroll
                for (int k = 0; k < V; k++) {
                    const float value = elem_load(&ahead[a].at[k]);
                    sum[0][k] += second[a] ? 0.0f : value;
                    sum[1][k] += second[a] ? value : 0.0f;
                }
    }
#pragma unroll
    for (int i = 0; i < TYPES; i++)
        elem_store_n<V>(parts + ((int64_t)blockIdx.x * TYPES + i) * hidden + c, sum[i]);
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static void tokens_backward(struct backend *be, const struct tokens *t, const void *dy, float *dwte,
                            float *dwpe, float *dwtt)
{
    cudaStream_t stream = cuda_of(be)->stream;
    const int64_t rows = t->num_samples * t->seq, h = t->hidden;
    const int64_t tiles = (rows + RUN_TILE - 1) / RUN_TILE;
    const int64_t type_tiles = dwtt ? (rows + TYPE_TILE - 1) / TYPE_TILE : 0;
    const int64_t order_bytes = aligned(rows * (int64_t)sizeof(int32_t));
    const int64_t part_bytes = aligned(tiles * 2 * h * (int64_t)sizeof(float));
    const int64_t type_bytes = type_tiles * TYPES * h * (int64_t)sizeof(float);
    char *scratch = (char *)cuda_scratch(be, 2 * order_bytes + part_bytes + type_bytes);
    if (!scratch || rows == 0)
        return;
    int32_t *order = (int32_t *)(void *)scratch;
    int32_t *other = (int32_t *)(void *)(scratch + order_bytes);
    float *parts = (float *)(void *)(scratch + 2 * order_bytes);
    float *of_types = (float *)(void *)(scratch + 2 * order_bytes + part_bytes);
    const bool wide = embed_wide(be, h, (uintptr_t)dy | (uintptr_t)dwte);
    int bits = 1;
    while (bits < 31 && (int64_t)1 << bits < t->vocab)
        bits++;
    CUDA_LAUNCH(sort_ids, 1, SORT_THREADS, 0, stream, (int)rows, bits, t->ids, order, other);
#define TOKEN_RUNS(T, V)                                                                           \
    do {                                                                                           \
        const unsigned strips = (unsigned)((h + V * THREADS - 1) / (V * THREADS));                 \
        const dim3 grid((unsigned)tiles, strips), type_grid((unsigned)type_tiles, strips);         \
        CUDA_LAUNCH((add_runs<T, V>), grid, THREADS, 0, stream, (int)rows, (int)h, t->ids,         \
                    (const int32_t *)order, (const T *)dy, scale_of(t), dwte, parts);              \
        if (dwtt)                                                                                  \
            CUDA_LAUNCH((type_parts<T, V>), type_grid, THREADS, 0, stream, rows, (int)h, t->types, \
                        (const T *)dy, of_types);                                                  \
    } while (0)
    EMBED_PICK(be, wide, TOKEN_RUNS);
    if (tiles > 1) {
        const dim3 grid((unsigned)tiles, (unsigned)((h + THREADS - 1) / THREADS));
        CUDA_LAUNCH((join_runs<1>), grid, THREADS, 0, stream, (int)rows, (int)h, t->ids,
                    (const int32_t *)order, (const float *)parts, dwte);
    }
    if (dwpe)
        launch_sum_samples(be, t->num_samples, t->seq * h, dy, dwpe, NULL);
    if (dwtt)
        cuda_fold(be, type_tiles, TYPES * h, of_types, 1.0f, true, dwtt);
}

/* --- rows moved ------------------------------------------------------------------------------ */

/* Interleaves rows of `unit` packs of type P: out row 2 r is row r of a, and 2 r + 1 is row r of b.
 * split_rows() reverses it. */
template <typename P>
static __global__ void __launch_bounds__(THREADS)
    join_rows(int64_t num, int unit, const P *a, const P *b, P *out)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < num;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t r = i / unit, c = i % unit;
        out[2 * r * unit + c] = a[i];
        out[(2 * r + 1) * unit + c] = b[i];
    }
}
template <typename P>
static __global__ void __launch_bounds__(THREADS)
    split_rows(int64_t num, int unit, const P *in, P *a, P *b)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < num;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t r = i / unit, c = i % unit;
        if (a)
            a[i] = in[2 * r * unit + c];
        if (b)
            b[i] = in[(2 * r + 1) * unit + c];
    }
}

/* Calls DO(P, packs per row) with the widest P that is aligned: 16, 4 or 2 bytes. */
#define ROWS_PICK(row_bytes, pointers, DO)                                                         \
    do {                                                                                           \
        if ((row_bytes) % 16 == 0 && (pointers) % 16 == 0)                                         \
            DO(uint4, (row_bytes) / 16);                                                           \
        else if ((row_bytes) % 4 == 0 && (pointers) % 4 == 0)                                      \
            DO(uint32_t, (row_bytes) / 4);                                                         \
        else                                                                                       \
            DO(uint16_t, (row_bytes) / 2);                                                         \
    } while (0)

static void join(struct backend *be, int64_t rows, int cols, const void *a, const void *b,
                 void *out)
{
    const int64_t bytes = backend_bytes(be, cols);
#define JOIN_ROWS(P, unit)                                                                         \
    CUDA_LAUNCH((join_rows<P>), cuda_blocks(rows *(unit), THREADS, 16 * cuda_of(be)->num_sms),     \
                THREADS, 0, cuda_of(be)->stream, rows *(unit), (int)(unit), (const P *)a,          \
                (const P *)b, (P *)out)
    ROWS_PICK(bytes, (uintptr_t)a | (uintptr_t)b | (uintptr_t)out, JOIN_ROWS);
}

static void split(struct backend *be, int64_t rows, int cols, const void *in, void *a, void *b)
{
    const int64_t bytes = backend_bytes(be, cols);
#define SPLIT_ROWS(P, unit)                                                                        \
    CUDA_LAUNCH((split_rows<P>), cuda_blocks(rows *(unit), THREADS, 16 * cuda_of(be)->num_sms),    \
                THREADS, 0, cuda_of(be)->stream, rows *(unit), (int)(unit), (const P *)in, (P *)a, \
                (P *)b)
    ROWS_PICK(bytes, (uintptr_t)a | (uintptr_t)b | (uintptr_t)in, SPLIT_ROWS);
}

/* y[i] = x[rows[i]], for rows of `unit` packs; scatter_packs() reverses it. */
template <typename P>
static __global__ void __launch_bounds__(THREADS)
    gather_packs(int64_t num, int unit, const int32_t *rows, const P *x, P *y)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < num;
         i += (int64_t)gridDim.x * THREADS)
        y[i] = x[rows[i / unit] * (int64_t)unit + i % unit];
}
template <typename P>
static __global__ void __launch_bounds__(THREADS)
    scatter_packs(int64_t num, int unit, const int32_t *rows, const P *y, P *x)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < num;
         i += (int64_t)gridDim.x * THREADS)
        x[rows[i / unit] * (int64_t)unit + i % unit] = y[i];
}

static void gather_rows(struct backend *be, int64_t num, int cols, const int32_t *rows,
                        const void *x, void *y)
{
    const int64_t bytes = backend_bytes(be, cols);
#define GATHER_ROWS(P, unit)                                                                       \
    CUDA_LAUNCH((gather_packs<P>), cuda_blocks(num *(unit), THREADS, 16 * cuda_of(be)->num_sms),   \
                THREADS, 0, cuda_of(be)->stream, num *(unit), (int)(unit), rows, (const P *)x,     \
                (P *)y)
    ROWS_PICK(bytes, (uintptr_t)x | (uintptr_t)y, GATHER_ROWS);
}

static void scatter_rows(struct backend *be, int64_t total, int64_t num, int cols,
                         const int32_t *rows, const void *y, void *x)
{
    const int64_t bytes = backend_bytes(be, cols);
    be->zero(be, x, total * bytes);
#define SCATTER_ROWS(P, unit)                                                                      \
    CUDA_LAUNCH((scatter_packs<P>), cuda_blocks(num *(unit), THREADS, 16 * cuda_of(be)->num_sms),  \
                THREADS, 0, cuda_of(be)->stream, num *(unit), (int)(unit), rows, (const P *)y,     \
                (P *)x)
    ROWS_PICK(bytes, (uintptr_t)x | (uintptr_t)y, SCATTER_ROWS);
}

void cuda_embed_install(struct backend *be)
{
    be->gather_rows = gather_rows;
    be->scatter_rows = scatter_rows;
    be->patchify = patchify;
    be->patch_finish = patch_finish;
    be->patch_backward = patch_backward;
    be->tokens_forward = tokens_forward;
    be->tokens_backward = tokens_backward;
    be->join = join;
    be->split = split;
}
