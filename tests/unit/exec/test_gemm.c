/* Products of matrices against plain loops in double over the same operands. */
#include <sys/mman.h>
#include <unistd.h>

#include "exec/base/bf16.h"
#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/cpu/gemm_kernel.h"
#include "exec/cpu/gemm.h"
#include "profiles/store/profile.h"
#include "tests/unit/test.h"

struct product {
    float *c;
    int64_t n;
    int *times; /* every element is finished once */
};

static void keep(void *ctx, int64_t r0, int rows, int64_t c0, int cols, float *tile, int64_t ld)
{
    const struct product *p = ctx;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            p->c[(r0 + r) * p->n + c0 + c] = tile[r * ld + c];
            p->times[(r0 + r) * p->n + c0 + c]++;
        }
}

/* num elements of bf16 (2 bytes) or fp32, and what they are worth. Behind them is a page that must
 * not be read. */
struct matrix {
    char *pages;
    size_t page_bytes;
    void *x;
    double *worth;
};

static struct matrix random_matrix(uint64_t key, int64_t num, int elem_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)(num * elem_bytes);
    const size_t used = (bytes + page - 1) / page * page;
    struct matrix m = {.page_bytes = used + page, .worth = malloc((size_t)num * sizeof *m.worth)};
    m.pages = mmap(NULL, m.page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m.pages != MAP_FAILED && m.worth);
    assert_int_equal(mprotect(m.pages + used, page, PROT_NONE), 0);
    m.x = m.pages + used - bytes;
    for (int64_t i = 0; i < num; i++) {
        const float value = (float)rng_normal(key, (uint64_t)i);
        if (elem_bytes == 2)
            ((uint16_t *)m.x)[i] = bf16_from(value);
        else
            ((float *)m.x)[i] = value;
        m.worth[i] = elem_bytes == 2 ? bf16_to(((uint16_t *)m.x)[i]) : value;
    }
    return m;
}

static void free_matrix(struct matrix m)
{
    munmap(m.pages, m.page_bytes);
    free(m.worth);
}

/* Shapes at and beside the edges of panels (8, 48; 4, 24; 32), pieces of k (192; 256; 512), chunks
 * of columns (240), tiles and blocks (960 columns, 2048 rows, 2048 k). Few elements of the large ones are judged, all of
 * them must be bit-equal with three threads. */
static void matches_plain_loops(const struct gemm_kernel *kernel)
{
    static const int shapes[][3] = {
        {1,    1,   1   },
        {1,    40,  9   },
        {40,   1,   9   },
        {7,    47,  3   },
        {16,   32,  32  },
        {17,   31,  31  },
        {33,   65,  545 },
        {8,    48,  2   },
        {9,    49,  257 },
        {4,    24,  4   },
        {6,    23,  263 },
        {24,   96,  193 },
        {65,   100, 511 },
        {20,   500, 600 },
        {12,   40,  300 },
        {9,    32,  260 },
        {130,  961, 33  },
        {2050, 50,  17  },
        {24,   60,  4099},
        {300,  192, 768 }
    };
    const enum dtype dtype = kernel->elem_bytes == 2 ? DTYPE_BF16 : DTYPE_FP32;
    struct backend *bes[] = {backend_cpu_new(dtype, 1, NULL), backend_cpu_new(dtype, 3, NULL)};
    gemm_kernel_set(kernel);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int form = 0; form < 16; form++) {
            const int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
            const bool a_turned = form & 1, b_turned = form & 2, to_c = form & 4;
            const bool fresh = form & 8, adds = to_c && !fresh;
            if (fresh && !to_c)
                continue;
            const bool gaps = m > 1 && n > 1; /* else both strides of a vector are 1 */
            const int64_t lda = (a_turned ? m : k) + 3 * gaps, ldb = (b_turned ? k : n) + gaps;
            const struct matrix a = random_matrix(
                1, a_turned ? lda * (k - 1) + m : lda * (m - 1) + k, kernel->elem_bytes);
            const struct matrix b = random_matrix(
                2, b_turned ? ldb * (n - 1) + k : ldb * (k - 1) + n, kernel->elem_bytes);
            float *c[2];
            for (int t = 0; t < 2; t++) {
                struct product p = {calloc((size_t)(m * n), sizeof(float)), n,
                                    calloc((size_t)(m * n), sizeof(int))};
                assert_true(p.c && p.times);
                for (int64_t i = 0; to_c && i < m * n; i++)
                    p.c[i] = fresh ? NAN : (float)(i % 7);
                const struct gemm g = {.m = m,
                                       .n = n,
                                       .k = k,
                                       .a = a.x,
                                       .a_row = a_turned ? 1 : lda,
                                       .a_col = a_turned ? lda : 1,
                                       .b = b.x,
                                       .b_row = b_turned ? 1 : ldb,
                                       .b_col = b_turned ? ldb : 1,
                                       .alpha = 0.5f,
                                       .c = to_c ? p.c : NULL,
                                       .ldc = n,
                                       .fresh = fresh,
                                       .finish = keep,
                                       .ctx = &p};
                gemm(bes[t], &g);
                assert_int_equal(bes[t]->sync(bes[t], NULL), OK);
                for (int64_t i = 0; !to_c && i < m * n; i++)
                    assert_int_equal(p.times[i], 1);
                c[t] = p.c;
                free(p.times);
            }
            assert_memory_equal(c[0], c[1], (size_t)(m * n) * sizeof(float));
            const int64_t step = m * n * k > 2000000 ? m * n * k / 2000000 * 13 + 1 : 1;
            for (int64_t e = 0; e < m * n; e += step) {
                const int64_t i = e / n, j = e % n;
                double want = 0, size = 0;
                for (int64_t q = 0; q < k; q++) {
                    const double one = a.worth[a_turned ? q * lda + i : i * lda + q] *
                                       b.worth[b_turned ? j * ldb + q : q * ldb + j];
                    want += 0.5 * one;
                    size += 0.5 * fabs(one);
                }
                want += adds ? (double)(e % 7) : 0.0;
                /* fp32 sums in any order: k roundings of 2^-24 of the sum of sizes, far from all of
                 * the same sign. */
                if (!(fabs(c[0][e] - want) <= 1e-7 * (size + 10) * (1 + sqrt((double)k))))
                    fail_msg("%s %dx%dx%d form %d: element %d is %.9g, reference %.9g",
                             kernel->name, (int)m, (int)n, (int)k, form, (int)e, c[0][e], want);
            }
            free(c[0]);
            free(c[1]);
            free_matrix(a);
            free_matrix(b);
        }
    backend_free(bes[0]);
    backend_free(bes[1]);
    gemm_kernel_set(NULL);
}

static void gemm_kernels__match_plain_loops(void **state)
{
    (void)state;
    for (int i = 0; gemm_kernels[i]; i++) {
        if (gemm_kernels[i]->usable())
            matches_plain_loops(gemm_kernels[i]);
        else
            print_message("%s: not on this machine\n", gemm_kernels[i]->name);
        /* The last one of a dtype always is. */
        if (!gemm_kernels[i + 1] || gemm_kernels[i + 1]->elem_bytes != gemm_kernels[i]->elem_bytes)
            assert_true(gemm_kernels[i]->usable());
    }
}

/* A row's bits in a product of many rows and in one of its own, for the kernels that promise it. */
static void gemm_kernels__keep_the_bits_of_a_row(void **state)
{
    enum { M = 130, N = 70, K = 300 };
    static float all[M * N], one[N];
    (void)state;
    for (int i = 0; gemm_kernels[i]; i++) {
        const int elem = gemm_kernels[i]->elem_bytes;
        if (!gemm_kernels[i]->usable() || !gemm_kernels[i]->bits_independent_of_row_count)
            continue;
        struct backend *be = backend_cpu_new(elem == 2 ? DTYPE_BF16 : DTYPE_FP32, 2, NULL);
        const struct matrix a = random_matrix(3, M * K, elem), b = random_matrix(4, N * K, elem);
        struct gemm g = {.m = M,
                         .n = N,
                         .k = K,
                         .a = a.x,
                         .a_row = K,
                         .a_col = 1,
                         .b = b.x,
                         .b_row = 1,
                         .b_col = K,
                         .alpha = 1.0f,
                         .c = all,
                         .ldc = N};
        gemm_kernel_set(gemm_kernels[i]);
        memset(all, 0, sizeof all);
        gemm(be, &g);
        for (int r = 0; r < M; r++) {
            memset(one, 0, sizeof one);
            g.m = 1;
            g.a = (char *)a.x + (size_t)(r * K * elem);
            g.c = one;
            gemm(be, &g);
            if (memcmp(one, all + r * N, sizeof one) != 0)
                fail_msg("%s: row %d alone has other bits", gemm_kernels[i]->name, r);
        }
        free_matrix(a);
        free_matrix(b);
        backend_free(be);
    }
    gemm_kernel_set(NULL);
}

/* A profile answers by the name of the kernel in it. */
static void profile_rows_alone__says_what_the_kernels_say(void **state)
{
    struct profile_info info = {0};
    (void)state;
    assert_false(profile_bits_independent_of_row_count(&info, DTYPE_FP32));
    for (int i = 0; gemm_kernels[i]; i++) {
        const bool bf16 = gemm_kernels[i]->elem_bytes == 2;
        char *name = bf16 ? info.bf16_kernel : info.fp32_kernel;
        strcpy(name, gemm_kernels[i]->name);
        assert_int_equal(
            profile_bits_independent_of_row_count(&info, bf16 ? DTYPE_BF16 : DTYPE_FP32),
            gemm_kernels[i]->bits_independent_of_row_count);
    }
}

static void bf16__rounds_to_nearest_even(void **state)
{
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        {0x3f800000, 0x3f80}, /* 1 */
        {0x3f808000, 0x3f80}, /* a tie, even below */
        {0x3f808001, 0x3f81},
        {0x3f818000, 0x3f82}, /* a tie, even above */
        {0xbf818000, 0xbf82},
        {0x7f7fffff, 0x7f80}, /* the largest fp32 overflows */
        {0x7f800000, 0x7f80}, /* infinity */
        {0xff800000, 0xff80},
        {0x7f800001, 0x7fc0}, /* NaN stays NaN */
        {0xffffffff, 0xffff},
        {0x80000000, 0x8000}, /* -0 */
        {0x00000001, 0x0000}
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float x;
        memcpy(&x, &cases[i].from, sizeof x);
        assert_int_equal(bf16_from(x), cases[i].to);
    }
    for (uint32_t i = 0; i < 0x10000; i++) {
        const float wide = bf16_to((uint16_t)i);
        if (!isnan(wide))
            assert_int_equal(bf16_from(wide), i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_kernels__match_plain_loops),
        cmocka_unit_test(gemm_kernels__keep_the_bits_of_a_row),
        cmocka_unit_test(profile_rows_alone__says_what_the_kernels_say),
        cmocka_unit_test(bf16__rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
