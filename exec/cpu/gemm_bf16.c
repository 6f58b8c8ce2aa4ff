#include "exec/cpu/gemm_bf16.h"

#include <cblas.h>
#include <omp.h>
#include <string.h>

#include "exec/cpu/cpu.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

/* Rows are taken in blocks, whose tiles stay in a cache while a block of b, packed once, passes by
 * all of them. */
enum { ROW_BLOCK = 2048, K_BLOCK = 2048, TILE_ROWS = 128 };

/* A block of a or b: element (i, k) or (k, j) of it at x + i * outer + k * inner. */
struct block {
    const uint16_t *x;
    int64_t outer, inner; /* strides across panels and along k */
    int64_t num, k;
};

#ifdef __AVX512BF16__

/* b in panels of 48 columns, a in panels of 8 rows; in a panel pairs of k lie together, as the
 * instruction takes them. A panel of b of 256 k is 24 KiB, of the L1 cache. */
enum { PANEL_A = 8, PANEL_B = 48, KC = 256 };

static int64_t panel_bytes(int64_t num, int64_t k, int panel)
{
    return (num + panel - 1) / panel * panel * ((k + 1) / 2) * 4;
}

/* Pairs (k, k + 1) of one panel: to[p * panel + i]; what is outside of the block is zero. */
static void pack_panel(const struct block *b, int64_t first, int panel, uint32_t *to)
{
    const int num = (int)cpu_min(panel, b->num - first);
    const uint16_t *from = b->x + first * b->outer;
    const int64_t pairs = b->k / 2;
    if (num < panel)
        memset(to, 0, (size_t)((b->k + 1) / 2 * panel) * sizeof *to);
    if (b->inner == 1)
        for (int i = 0; i < num; i++)
            for (int64_t p = 0; p < pairs; p++)
                memcpy(&to[p * panel + i], from + i * b->outer + 2 * p, sizeof *to);
    else
        for (int64_t p = 0; p < pairs; p++) {
            const uint16_t *low = from + 2 * p * b->inner, *high = low + b->inner;
            for (int i = 0; i < num; i++)
                to[p * panel + i] = low[i * b->outer] | (uint32_t)high[i * b->outer] << 16;
        }
    if (b->k % 2)
        for (int i = 0; i < num; i++)
            to[pairs * panel + i] = from[i * b->outer + (b->k - 1) * b->inner];
}

/* c [8, 48] = (add ? c : 0) + alpha a b over `pairs` pairs of k. */
static void multiply_panels(int64_t pairs, const uint32_t *a, const uint32_t *b, float alpha,
                            bool add, float *c, int64_t ldc)
{
    __m512 sum[PANEL_A][3];
    for (int i = 0; i < PANEL_A; i++)
        for (int j = 0; j < 3; j++)
            sum[i][j] = _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b + p * PANEL_B);
        const __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + p * PANEL_B + 16);
        const __m512bh b2 = (__m512bh)_mm512_loadu_si512(b + p * PANEL_B + 32);
#pragma GCC unroll 8
        for (int i = 0; i < PANEL_A; i++) {
            const __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[p * PANEL_A + i]);
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, b0);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, b1);
            sum[i][2] = _mm512_dpbf16_ps(sum[i][2], x, b2);
        }
    }
    const __m512 scale = _mm512_set1_ps(alpha);
    for (int i = 0; i < PANEL_A; i++)
        for (int j = 0; j < 3; j++) {
            float *to = c + i * ldc + 16 * j;
            const __m512 old = add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
            _mm512_storeu_ps(to, _mm512_fmadd_ps(scale, sum[i][j], old));
        }
}

/* A panel at the edge of a tile goes through a buffer. */
static void multiply_edge(int64_t pairs, const uint32_t *a, const uint32_t *b, float alpha,
                          bool add, int rows, int cols, float *c, int64_t ldc)
{
    float edge[PANEL_A * PANEL_B];
    for (int i = 0; add && i < rows; i++)
        memcpy(edge + i * PANEL_B, c + i * ldc, (size_t)cols * sizeof *c);
    multiply_panels(pairs, a, b, alpha, add, edge, PANEL_B);
    for (int i = 0; i < rows; i++)
        memcpy(c + i * ldc, edge + i * PANEL_B, (size_t)cols * sizeof *c);
}

/* An element's sum goes over k in one order, inside a panel and at its edge. */
bool gemm_bf16_rows_alone(void)
{
    return true;
}

static int64_t packed_bytes(int64_t cols, int64_t k)
{
    return panel_bytes(cols, k, PANEL_B);
}

static int64_t work_bytes(int64_t rows, int64_t k)
{
    return panel_bytes(rows, cpu_min(k, KC), PANEL_A);
}

/* Pieces of KC of k one behind the other; within one, panel by panel. */
static void pack_block(struct backend *be, const struct block *b, void *packed)
{
    const int64_t panels = cpu_tiles(b->num, PANEL_B);
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t p = 0; p < panels; p++)
        for (int64_t k = 0; k < b->k; k += KC) {
            const struct block piece = {b->x + k * b->inner, b->outer, b->inner, b->num,
                                        cpu_min(KC, b->k - k)};
            uint32_t *to = (uint32_t *)packed + panels * PANEL_B * (k / 2);
            pack_panel(&piece, p * PANEL_B, PANEL_B, to + p * PANEL_B * ((piece.k + 1) / 2));
        }
}

static void multiply_block(const struct block *a, int64_t cols, const struct block *b,
                           const void *packed, void *work, float alpha, bool add, float *c,
                           int64_t ldc)
{
    const int64_t panels = cpu_tiles(cols, PANEL_B);
    (void)b;
    for (int64_t k = 0; k < a->k; k += KC) {
        const struct block piece = {a->x + k * a->inner, a->outer, a->inner, a->num,
                                    cpu_min(KC, a->k - k)};
        const int64_t pairs = (piece.k + 1) / 2;
        const uint32_t *from = (const uint32_t *)packed + panels * PANEL_B * (k / 2);
        uint32_t *mine = work;
        for (int64_t r = 0; r < a->num; r += PANEL_A)
            pack_panel(&piece, r, PANEL_A, mine + r * pairs);
        for (int64_t p = 0; p < panels; p++)
            for (int64_t r = 0; r < a->num; r += PANEL_A) {
                const int nr = (int)cpu_min(PANEL_A, a->num - r);
                const int nc = (int)cpu_min(PANEL_B, cols - p * PANEL_B);
                float *to = c + r * ldc + p * PANEL_B;
                if (nr == PANEL_A && nc == PANEL_B)
                    multiply_panels(pairs, mine + r * pairs, from + p * PANEL_B * pairs, alpha,
                                    add || k > 0, to, ldc);
                else
                    multiply_edge(pairs, mine + r * pairs, from + p * PANEL_B * pairs, alpha,
                                  add || k > 0, nr, nc, to, ldc);
            }
    }
}

#else

/* Blocks as fp32, in the order in which they lie. */
/* BLAS has other kernels for small matrices. */
bool gemm_bf16_rows_alone(void)
{
    return false;
}

static int64_t packed_bytes(int64_t cols, int64_t k)
{
    return cols * k * (int64_t)sizeof(float);
}

static int64_t work_bytes(int64_t rows, int64_t k)
{
    return rows * k * (int64_t)sizeof(float);
}

static void widen_block(const struct block *b, int64_t first, int64_t end, float *to)
{
    const bool along_k = b->inner == 1;
    const int64_t row = along_k ? b->k : b->num, stride = along_k ? b->outer : b->inner;
    for (int64_t r = first; r < end; r++)
        bf16_widen(row, b->x + r * stride, to + r * row);
}

static void pack_block(struct backend *be, const struct block *b, void *packed)
{
    const int64_t rows = b->inner == 1 ? b->num : b->k;
#pragma omp parallel for schedule(static) num_threads(be->threads)
    for (int64_t r = 0; r < cpu_tiles(rows, 16); r++)
        widen_block(b, r * 16, cpu_min((r + 1) * 16, rows), packed);
}

static void multiply_block(const struct block *a, int64_t cols, const struct block *b,
                           const void *packed, void *work, float alpha, bool add, float *c,
                           int64_t ldc)
{
    const bool a_along = a->inner == 1, b_along = b->inner == 1;
    widen_block(a, 0, a_along ? a->num : a->k, work);
    cblas_sgemm(CblasRowMajor, a_along ? CblasNoTrans : CblasTrans,
                b_along ? CblasTrans : CblasNoTrans, (int)a->num, (int)cols, (int)a->k, alpha, work,
                (int)(a_along ? a->k : a->num), packed, (int)(b_along ? b->k : b->num),
                add ? 1.0f : 0.0f, c, (int)ldc);
}

#endif

/* Equal tiles, an even number of them where there are rows for two. */
static int64_t tile_rows(int64_t rows)
{
    const int64_t tiles = rows < 32 ? 1 : 2 * cpu_tiles(rows, 2 * TILE_ROWS);
    return cpu_tiles(cpu_tiles(rows, tiles), 8) * 8;
}

static int64_t up64(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

void gemm_bf16(struct backend *be, const struct gemm_bf16 *g)
{
    const int64_t most_rows = cpu_min(g->m, ROW_BLOCK), most_cols = cpu_min(g->n, GEMM_COLS);
    const int64_t most_k = cpu_min(g->k, K_BLOCK), tile = tile_rows(most_rows);
    const int64_t packed = up64(packed_bytes(most_cols, most_k)),
                  work = up64(work_bytes(tile, most_k));
    /* Tiles of the product: of a thread if one block of k makes them, else of the block of rows. */
    const bool whole = g->k <= K_BLOCK;
    const int64_t tiles = g->c ? 0 : whole ? be->threads : cpu_tiles(most_rows, tile);
    const int64_t tile_bytes = up64(tile * most_cols * (int64_t)sizeof(float));
    char *scratch = cpu_scratch(be, packed + be->threads * work + tiles * tile_bytes);
    if (!scratch)
        return;
    char *works = scratch + packed, *products = works + be->threads * work;
    for (int64_t r0 = 0; r0 < g->m; r0 += ROW_BLOCK)
        for (int64_t c0 = 0; c0 < g->n; c0 += GEMM_COLS)
            for (int64_t k0 = 0; k0 < g->k; k0 += K_BLOCK) {
                const int64_t rows = cpu_min(ROW_BLOCK, g->m - r0);
                const int64_t cols = cpu_min(GEMM_COLS, g->n - c0), k = cpu_min(K_BLOCK, g->k - k0);
                const struct block b = {g->b + k0 * g->b_row + c0 * g->b_col, g->b_col, g->b_row,
                                        cols, k};
                pack_block(be, &b, scratch);
#pragma omp parallel for schedule(static) num_threads(be->threads)
                for (int64_t t = 0; t < cpu_tiles(rows, tile); t++) {
                    const int thread = omp_get_thread_num();
                    const int64_t row = r0 + t * tile, num = cpu_min(tile, r0 + rows - row);
                    const struct block a = {g->a + row * g->a_row + k0 * g->a_col, g->a_row,
                                            g->a_col, num, k};
                    float *c =
                        g->c ? g->c + row * g->ldc + c0
                             : (float *)(void *)(products + (whole ? thread : t) * tile_bytes);
                    const int64_t ld = g->c ? g->ldc : cols;
                    multiply_block(&a, cols, &b, scratch, works + thread * work, g->alpha,
                                   g->c || k0 > 0, c, ld);
                    if (!g->c && k0 + k == g->k)
                        g->finish(g->ctx, row, (int)num, c0, (int)cols, c, ld);
                }
            }
}
