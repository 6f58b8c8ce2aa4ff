/* The AMX kernel: bf16 blocks on tile registers (Intel, Software Developer's Manual 1, chapter 18).
 *
 * A tile holds 16 rows of 64 bytes. One instruction multiplies 16 x 32 by 32 x 16 elements;
 * subnormal operands count as zero. Four tiles hold the sums of 32 x 32 elements. The other four
 * hold two tiles of a and two of b, so four loads feed four products. A row of a tile of a has the
 * values of k of one row of a. A row of a tile of b has pairs (k, k + 1) of 16 columns. Whichever
 * way a matrix lies, a block of 16 x 16 pairs is read along memory and transposed in registers
 * where needed (pairs_load()). Read pack_panel() and multiply_panels() first, then multiply(). */
#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm_kernel.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/cpu/gemm_units.h"

#define AMX __attribute__((target("avx512f,avx512bw,avx512vl,amx-tile,amx-bf16")))

/* A panel of b with KC = 512 values of k is 32 KiB and fits the L1 cache. */
enum { SIDE = UNITS_SIDE, STEP = PAIRS_STEP, PANEL = 32, KC = 512, TILE_BYTES = 1024 };

/* AMX needs the processor's support (CPUID leaf 7: AMX-BF16, AMX-TILE) and the kernel's permission:
 * Linux saves the tiles only of a process that has asked for it (arch/x86/xstate.rst). */
static bool usable(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18, BF16_AND_TILE = 1 << 22 | 1 << 24 };
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & BF16_AND_TILE) == BF16_AND_TILE &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

AMX static void configure(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int t = 0; t < 8; t++)
        config.row_bytes[t] = 64, config.rows[t] = SIDE;
    _tile_loadconfig(&config);
}

/* Packs `num` rows (or columns) from `first` on and `len` values of k from `k` on as one tile of 16
 * x 32, zero outside. of_a: pair p of row i goes to [i][p]; otherwise to [p][i]. */
AMX static inline __attribute__((always_inline)) void pack_part(const struct gemm_block *b,
                                                                int64_t first, int64_t k, int num,
                                                                int len, bool of_a, void *to)
{
    __m512i x[16];
    pairs_load(b, first, k, num, len, of_a, x);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_store_si512((char *)to + 64 * i, x[i]);
}

/* Packs one tile. A full tile passes num and len as constants, which takes half the time. */
AMX static void pack_tile(const struct gemm_block *b, int64_t first, int64_t k, bool of_a, void *to)
{
    const int num = (int)cpu_min(SIDE, b->num - first), len = (int)cpu_min(STEP, b->k - k);
    if (num == SIDE && len == STEP)
        pack_part(b, first, k, SIDE, STEP, of_a, to);
    else
        pack_part(b, first, k, num, len, of_a, to);
}

/* Packs rows (or columns) [first, first + 32) for k in [k, k + len): tile by tile, the two tiles of
 * the same k side by side. */
AMX static void pack_panel(const struct gemm_block *b, int64_t first, int64_t k, int64_t len,
                           bool of_a, char *to)
{
    for (int64_t s = 0; s < len; s += STEP)
        for (int half = 0; half < 2; half++, to += TILE_BYTES)
            pack_tile(b, first + half * SIDE, k + s, of_a, to);
}

static int64_t panel_bytes(int64_t k)
{
    return cpu_tiles(k, STEP) * 2 * TILE_BYTES;
}

static int64_t packed_bytes(const struct gemm_kernel *kernel, int64_t cols, int64_t k)
{
    (void)kernel;
    return cpu_tiles(cols, PANEL) * panel_bytes(k);
}

static int64_t work_bytes(const struct gemm_kernel *kernel, int64_t rows, int64_t k)
{
    (void)kernel;
    return cpu_tiles(rows, PANEL) * panel_bytes(cpu_min(k, KC));
}

/* The packed block has pieces of KC values of k one after another, and in each piece panel after
 * panel. The loops follow the order in which b lies in memory, so that memory is read sequentially.
 */
static void pack(const struct gemm_kernel *kernel, const struct gemm_block *b, int part, int parts,
                 void *packed)
{
    (void)kernel;
    const int64_t panels = cpu_tiles(b->num, PANEL), steps = cpu_tiles(b->k, STEP);
    if (b->inner == 1) {
        for (int64_t p = cpu_share(panels, part, parts); p < cpu_share(panels, part + 1, parts);
             p++)
            for (int64_t k = 0; k < b->k; k += KC) {
                const int64_t len = cpu_min(KC, b->k - k);
                pack_panel(b, p * PANEL, k, len, false,
                           (char *)packed + panels * panel_bytes(k) + p * panel_bytes(len));
            }
        return;
    }
    for (int64_t s = cpu_share(steps, part, parts); s < cpu_share(steps, part + 1, parts); s++) {
        const int64_t at = s * STEP, k = at / KC * KC, len = cpu_min(KC, b->k - k);
        char *to = (char *)packed + panels * panel_bytes(k) + panel_bytes(at - k);
        for (int64_t p = 0; p < panels; p++)
            pack_panel(b, p * PANEL, at, cpu_min(STEP, b->k - at), false,
                       to + p * panel_bytes(len));
    }
}

/* sum [32, 32] = a b, over `steps` steps of 32 k. */
AMX static void multiply_panels(int64_t steps, const char *a, const char *b,
                                float sum[PANEL][PANEL])
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < steps; s++, a += 2 * TILE_BYTES, b += 2 * TILE_BYTES) {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, a + TILE_BYTES, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + TILE_BYTES, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sum[0], sizeof sum[0]);
    _tile_stored(1, sum[0] + SIDE, sizeof sum[0]);
    _tile_stored(2, sum[SIDE], sizeof sum[0]);
    _tile_stored(3, sum[SIDE] + SIDE, sizeof sum[0]);
}

/* c [rows, cols] = (add ? c : 0) + alpha sum. */
AMX static void add_sum(float sum[PANEL][PANEL], int rows, int cols, float alpha, bool add,
                        float *c, int64_t ldc)
{
    const __m512 scale = _mm512_set1_ps(alpha);
    for (int at = 0; at < cols; at += 16) {
        const __mmask16 mask = (__mmask16)(cols - at >= 16 ? 0xffff : (1 << (cols - at)) - 1);
        for (int i = 0; i < rows; i++) {
            float *to = c + i * ldc + at;
            const __m512 old = add ? _mm512_maskz_loadu_ps(mask, to) : _mm512_setzero_ps();
            _mm512_mask_storeu_ps(to, mask,
                                  _mm512_fmadd_ps(scale, _mm512_load_ps(sum[i] + at), old));
        }
    }
}

AMX static void multiply(const struct gemm_kernel *kernel, const struct gemm_block *a,
                         const struct gemm_block *b, const void *packed, void *work, float alpha,
                         bool add, float *c, int64_t ldc)
{
    const int64_t panels = cpu_tiles(b->num, PANEL);
    (void)kernel;
    configure();
    for (int64_t k = 0; k < a->k; k += KC) {
        const int64_t len = cpu_min(KC, a->k - k), bytes = panel_bytes(len);
        const char *from = (const char *)packed + panels * panel_bytes(k);
        char *mine = work;
        for (int64_t r = 0; r < a->num; r += PANEL)
            pack_panel(a, r, k, len, true, mine + r / PANEL * bytes);
        for (int64_t p = 0; p < panels; p++)
            for (int64_t r = 0; r < a->num; r += PANEL) {
                _Alignas(64) float sum[PANEL][PANEL];
                multiply_panels(cpu_tiles(len, STEP), mine + r / PANEL * bytes, from + p * bytes,
                                sum);
                add_sum(sum, (int)cpu_min(PANEL, a->num - r),
                        (int)cpu_min(PANEL, b->num - p * PANEL), alpha, add || k > 0,
                        c + r * ldc + p * PANEL, ldc);
            }
    }
    _tile_release();
}

/* The sum of an element runs over k in the same order inside a panel and at the edge of the matrix.
 */
const struct gemm_kernel gemm_amx = {.name = "amx",
                                     .elem_bytes = 2,
                                     .bits_independent_of_row_count = true,
                                     .tile_rows = 128,
                                     .usable = usable,
                                     .packed_bytes = packed_bytes,
                                     .work_bytes = work_bytes,
                                     .pack = pack,
                                     .multiply = multiply};
#endif
