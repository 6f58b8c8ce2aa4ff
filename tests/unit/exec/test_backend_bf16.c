/* The kernels of the cpu backend in bf16. The judge is the same kernel in fp32 on the same
 * (rounded) operands, which test_backend_cpu.c holds to double precision within 1e-5: a result in
 * bf16 is that one rounded, so off by half a unit of its 8 bits (2^-8 relative at most), plus what
 * the fp32 sums differ by. */
#include "exec/base/backend.h"
#include "exec/base/bf16.h"
#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/device/devices.h"
#include "tests/unit/test.h"

enum { BIG = 300000, TENSORS = 8 };

static struct backend *wide, *one, *three;
/* w[i] and b[i] hold the same values; the fp32 kernel works on w, the bf16 kernels on b and c. */
static float w[TENSORS][BIG];
static uint16_t b[TENSORS][BIG], c[TENSORS][BIG];

static int open_backends(void **state)
{
    (void)state;
    wide = backend_cpu_new(DTYPE_FP32, 1, NULL);
    one = backend_cpu_new(DTYPE_BF16, 1, NULL);
    three = backend_cpu_new(DTYPE_BF16, 3, NULL);
    return wide && one && three ? 0 : -1;
}

static int close_backends(void **state)
{
    (void)state;
    backend_free(wide);
    backend_free(one);
    backend_free(three);
    return 0;
}

static void fill(int i, int num, double std)
{
    for (int e = 0; e < num; e++) {
        b[i][e] = c[i][e] = bf16_from((float)(std * rng_normal((uint64_t)i + 1, (uint64_t)e)));
        w[i][e] = bf16_to(b[i][e]);
    }
}

/* b[i] is w[i] rounded once, and three threads (c[i]) give the same bits. */
static void assert_rounded(int i, int num, const char *what)
{
    double scale = 1e-3;
    for (int e = 0; e < num; e++)
        scale = fmax(scale, fabs(w[i][e]));
    for (int e = 0; e < num; e++) {
        const double got = bf16_to(b[i][e]), want = w[i][e];
        if (!(fabs(got - want) <= ldexp(fabs(want), -8) + 1e-5 * scale))
            fail_msg("%s, element %d: %.9g, in fp32 %.9g (scale %g)", what, e, got, want, scale);
    }
    assert_memory_equal(b[i], c[i], (size_t)num * sizeof b[i][0]);
}

static void assert_fp32(const float *got, const float *same, const float *want, int num, double tol)
{
    double scale = 1e-3;
    for (int e = 0; e < num; e++)
        scale = fmax(scale, fabs(want[e]));
    for (int e = 0; e < num; e++)
        if (!(fabs((double)got[e] - want[e]) <= tol * scale))
            fail_msg("element %d: %.9g, in fp32 %.9g (scale %g)", e, got[e], want[e], scale);
    assert_memory_equal(got, same, (size_t)num * sizeof *got);
}

/* A kernel on all three. X: expression in `be` and the row of tensors `t`. */
#define EVERYWHERE(call)                                                                           \
    do {                                                                                           \
        for (int way_ = 0; way_ < 3; way_++) {                                                     \
            struct backend *be = way_ == 0 ? wide : way_ == 1 ? one : three;                       \
            void *t[TENSORS];                                                                      \
            for (int i_ = 0; i_ < TENSORS; i_++)                                                   \
                t[i_] = way_ == 0 ? (void *)w[i_] : way_ == 1 ? (void *)b[i_] : (void *)c[i_];     \
            const int way = way_;                                                                  \
            (void)way;                                                                             \
            call;                                                                                  \
            assert_int_equal(be->sync(be, NULL), OK);                                              \
        }                                                                                          \
    } while (0)

static void linear_forward__is_fp32_rounded_once(void **state)
{
    static const int64_t ids[] = {3, 8, 1};
    (void)state;
    for (int form = 0; form < 64; form++) {
        const enum act act = (enum act)(form & 3);
        const bool residual = form & 4, in_place = residual && (form & 8), masked = form & 16;
        const int rows = 39, in = 37, out = 70, ldx = form & 32 ? 51 : in,
                  ldy = form & 32 ? 80 : out;
        const struct linear l = {.rows = rows,
                                 .in = in,
                                 .out = out,
                                 .in_out = form & 8,
                                 .x_stride = form & 32 ? ldx : 0,
                                 .y_stride = form & 32 ? ldy : 0};
        const struct dropout drop = {.p = 0.25f, .key = 5, .ids = ids, .rows_per_sample = 13};
        fill(0, rows * ldx, 1);
        fill(1, in * out, 0.3);
        fill(2, out, 1);
        fill(3, rows * ldy, 1);
        fill(4, rows * ldy, 1);
        fill(5, rows * ldy, 1);
        EVERYWHERE(be->linear_forward(be, &l, t[0], t[1], t[2], act, residual ? t[3] : NULL,
                                      masked ? &drop : NULL, t[4], in_place ? t[3] : t[5]));
        assert_rounded(4, rows * ldy, "pre");
        assert_rounded(3, rows * ldy, "y in place");
        assert_rounded(5, rows * ldy, "y");
    }
}

static void linear_backward__is_fp32_rounded_once(void **state)
{
    (void)state;
    for (int form = 0; form < 32; form++) {
        const enum act act = (enum act)(form & 3);
        const bool add = form & 4, over_pre = form & 16;
        const int rows = 139, in = 61, out = 50, ldx = form & 16 ? 64 : in,
                  ldy = form & 16 ? 56 : out;
        const struct linear l = {.rows = rows,
                                 .in = in,
                                 .out = out,
                                 .in_out = form & 8,
                                 .x_stride = form & 16 ? ldx : 0,
                                 .y_stride = form & 16 ? ldy : 0};
        float dw[3][61 * 50], db[3][50];
        for (int i = 0; i < 3; i++) {
            for (int e = 0; e < in * out; e++)
                dw[i][e] = 0.25f;
            for (int e = 0; e < out; e++)
                db[i][e] = -1.0f;
        }
        fill(0, rows * ldy, 1);
        fill(1, in * out, 0.3);
        fill(2, rows * ldx, 0.7);
        fill(3, rows * ldx, 1);
        fill(4, rows * ldx, 1);
        EVERYWHERE(be->linear_backward_weight(be, &l, t[0], t[3], 0.5f, dw[way], db[way]));
        EVERYWHERE(be->linear_backward_input(be, &l, t[0], t[1], 0.5f, act, t[2], add ? t[3] : NULL,
                                             over_pre ? t[2] : t[4]));
        struct linear fresh = l;
        fresh.fresh = true;
        float fresh_dw[3][61 * 50], fresh_db[3][50];
        memset(fresh_dw, 0xff, sizeof fresh_dw);
        memset(fresh_db, 0xff, sizeof fresh_db);
        EVERYWHERE(
            be->linear_backward_weight(be, &fresh, t[0], t[3], 0.5f, fresh_dw[way], fresh_db[way]));
        for (int i = 0; i < 3; i++) {
            for (int e = 0; e < in * out; e++)
                fresh_dw[i][e] += 0.25f;
            for (int e = 0; e < out; e++)
                fresh_db[i][e] += -1.0f;
        }
        assert_fp32(fresh_dw[1], fresh_dw[2], dw[0], in * out, 2e-6);
        assert_fp32(fresh_db[1], fresh_db[2], db[0], out, 2e-6);
        assert_rounded(4, rows * ldx, "dx");
        assert_rounded(2, rows * ldx, "dx over pre");
        assert_fp32(dw[1], dw[2], dw[0], in * out, 2e-6);
        assert_fp32(db[1], db[2], db[0], out, 2e-6);
    }
}

static void layernorm__is_fp32_rounded_once(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        const int rows = 150, cols = form & 1 ? 64 : 37, ldx = form & 2 ? 70 : cols;
        float stats[3][300], part[3][128], gamma[64], beta[64];
        for (int i = 0; i < cols; i++) {
            gamma[i] = (float)rng_normal(50, (uint64_t)i);
            beta[i] = (float)rng_normal(51, (uint64_t)i);
        }
        fill(0, rows * ldx, 2);
        fill(1, rows * cols, 1);
        fill(2, rows * ldx, 1);
        fill(3, rows * ldx, 1);
        const struct layernorm norm = {.rows = rows,
                                       .cols = cols,
                                       .x_stride = form & 2 ? ldx : 0,
                                       .gamma = gamma,
                                       .beta = beta,
                                       .eps = 1e-5f};
        EVERYWHERE(be->layernorm_forward(be, &norm, t[0], t[1], stats[way]));
        assert_rounded(1, rows * cols, "y");
        assert_fp32(stats[1], stats[2], stats[0], 2 * rows, 1e-6);
        EVERYWHERE(be->layernorm_backward(be, &norm, t[1], t[0], stats[0], t[2], t[3], NULL));
        fill(1, rows * cols, 1);
        EVERYWHERE(be->layernorm_backward(be, &norm, t[1], t[0], stats[0], NULL, t[0],
                                          part[way])); /* in place */
        assert_rounded(0, rows * ldx, "dx");
        assert_fp32(part[1], part[2], part[0], 2 * cols, 2e-6);
    }
}

static void attention__is_fp32_rounded_once(void **state)
{
    static const int64_t ids[] = {4, 9};
    static const int32_t lengths[] = {3, 140};
    (void)state;
    for (int form = 0; form < 8; form++) {
        const int seq = 150, heads = 2, d = 12, n = 2, num = n * seq * heads * d;
        const struct attention a = {.num_samples = n,
                                    .seq = seq,
                                    .heads = heads,
                                    .head_dim = d,
                                    .causal = form & 1,
                                    .lengths = form & 2 ? lengths : NULL};
        const struct dropout drop = {.p = form & 4 ? 0.3f : 0.0f, .key = 7, .ids = ids};
        float lse[3][2 * 2 * 150];
        fill(0, 3 * num, 0.8);
        fill(1, num, 1);
        fill(2, num, 1);
        EVERYWHERE(be->attention_forward(be, &a, t[0], &drop, t[1], lse[way]));
        assert_rounded(1, num, "ctx");
        assert_fp32(lse[1], lse[2], lse[0], n * heads * seq, 2e-6);
        /* The backward gets the rounded ctx on both sides. */
        for (int e = 0; e < num; e++)
            w[1][e] = bf16_to(b[1][e]);
        fill(3, 3 * num, 1);
        EVERYWHERE(be->attention_backward(be, &a, t[0], &drop, t[1], lse[0], t[2], t[3]));
        assert_rounded(3, 3 * num, "dqkv");
        EVERYWHERE(be->attention_backward(be, &a, t[0], &drop, t[1], lse[0], t[2], t[0]));
        assert_rounded(0, 3 * num, "dqkv in place");
    }
}

static void xent__is_fp32_rounded_once(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        const bool span = form & 1;
        const int rows = 6, classes = 121;
        static const int32_t labels[] = {0, 120, -100, 7, 7, 3};
        const struct xent x = {.rows = rows,
                               .classes = classes,
                               .group = span ? 2 : 1,
                               .group_stride = span ? 2 * classes : classes,
                               .row_stride = span ? 1 : 0,
                               .class_stride = span ? 2 : 1,
                               .smoothing = form & 2 ? 0.1f : 0.0f};
        struct xent_sums sums[3];
        fill(0, rows * classes, 2);
        EVERYWHERE(be->xent(be, &x, labels, t[0], &sums[way]));
        assert_rounded(0, rows * classes, "gradient");
        for (int i = 1; i < 3; i++) {
            assert_true(fabs(sums[i].loss - sums[0].loss) < 1e-5);
            assert_int_equal(sums[i].count, 5);
            assert_int_equal(sums[i].correct, sums[0].correct);
        }
    }
}

static void embeddings__are_fp32_rounded_once(void **state)
{
    static const int32_t ids[] = {2, 0, 2, 2, 1, 0}, types[] = {0, 1, 1, 0, 0, 1};
    const int h = 300;
    const struct tokens tok = {
        .num_samples = 2, .seq = 3, .hidden = h, .vocab = 4, .ids = ids, .types = types};
    const struct patches p = {.num_samples = 2, .channels = 3, .image = 8, .patch = 4, .hidden = h};
    float grads[3][3][5 * 300] = {{{0}}}, images[2 * 3 * 64];
    (void)state;
    fill(0, 4 * h, 1);
    fill(1, 3 * h, 1);
    fill(2, 2 * h, 1);
    fill(3, 6 * h, 1);
    EVERYWHERE(be->tokens_forward(be, &tok, t[0], t[1], t[2], t[3]));
    assert_rounded(3, 6 * h, "tokens");
    fill(3, 6 * h, 1);
    EVERYWHERE(be->tokens_backward(be, &tok, t[3], grads[way][0], grads[way][1], grads[way][2]));
    for (int i = 0; i < 3; i++) {
        assert_fp32(grads[1][i], grads[2][i], grads[0][i], 5 * h, 1e-6);
        memset(grads[0][i], 0, sizeof grads[0][i]);
        memset(grads[1][i], 0, sizeof grads[1][i]);
        memset(grads[2][i], 0, sizeof grads[2][i]);
    }
    for (int i = 0; i < 2 * 3 * 64; i++)
        images[i] = (float)rng_normal(60, (uint64_t)i);
    EVERYWHERE(be->patchify(be, &p, images, t[4]));
    assert_rounded(4, 2 * 5 * 48, "patches");
    fill(0, h, 1);
    fill(1, 5 * h, 1);
    fill(2, 10 * h, 1);
    EVERYWHERE(be->patch_finish(be, &p, t[0], t[1], t[2]));
    assert_rounded(2, 10 * h, "positions");
    fill(2, 10 * h, 1);
    EVERYWHERE(be->patch_backward(be, &p, t[2], grads[way][0], grads[way][1], grads[way][2]));
    assert_fp32(grads[1][0], grads[2][0], grads[0][0], h, 1e-6);
    assert_fp32(grads[1][1], grads[2][1], grads[0][1], 5 * h, 1e-6);
    assert_fp32(grads[1][2], grads[2][2], grads[0][2], h, 1e-6);
}

static void elementwise__is_fp32_rounded_once(void **state)
{
    static const int64_t ids[] = {3, 8};
    const int rows = 30, cols = 1500, n = rows * cols;
    const struct dropout drop = {.p = 0.25f, .key = 5, .ids = ids, .rows_per_sample = 15};
    (void)state;
    for (int act = 0; act < 4; act++) {
        fill(0, n, 0.5);
        fill(1, n, 1);
        EVERYWHERE(be->act_backward(be, n, (enum act)act, t[0], t[1], t[1]));
        assert_rounded(1, n, "act");
        EVERYWHERE(be->act_forward(be, n, (enum act)act, t[0], t[1]));
        assert_rounded(1, n, "act forward");
    }
    fill(1, n, 1);
    EVERYWHERE(be->dropout(be, rows, cols, &drop, t[0], t[1]));
    assert_rounded(1, n, "dropout");
    fill(1, n, 1);
    EVERYWHERE(be->add(be, n, t[0], t[1]));
    assert_rounded(1, n, "add");
    fill(2, 2 * n, 1);
    EVERYWHERE(be->join(be, rows, cols, t[0], t[1], t[2]));
    EVERYWHERE(be->split(be, rows, cols, t[2], t[3], t[4]));
    assert_memory_equal(b[3], b[0], (size_t)n * 2);
    assert_memory_equal(b[4], b[1], (size_t)n * 2);
    assert_memory_equal(b[2] + cols, b[1], (size_t)cols * 2);
}

static void round__makes_the_compute_copy(void **state)
{
    const int n = 70001;
    (void)state;
    for (int i = 0; i < n; i++)
        w[0][i] = (float)rng_normal(1, (uint64_t)i);
    one->round(one, n, w[0], b[1]);
    three->round(three, n, w[0], c[1]);
    for (int i = 0; i < n; i++)
        assert_int_equal(b[1][i], bf16_from(w[0][i]));
    assert_memory_equal(b[1], c[1], (size_t)n * 2);
    wide->round(wide, n, w[0], w[1]);
    assert_memory_equal(w[0], w[1], (size_t)n * 4);
}

static void backend_new__gives_what_is_asked_or_says_why(void **state)
{
    struct backend_spec spec = {.device = "cpu", .dtype = DTYPE_BF16, .threads = 1};
    struct err err = {0};
    struct backend *be = backend_new(&spec, &err);
    (void)state;
    assert_non_null(be);
    assert_int_equal(be->dtype, DTYPE_BF16);
    assert_int_equal(be->elem_bytes, 2);
    backend_free(be);
    spec.dtype = DTYPE_TF32;
    assert_null(backend_new(&spec, &err));
    assert_int_equal(err.status, ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "train.dtype must be fp32 or bf16 on the cpu backend"));
    spec.device = "tpu";
    err = (struct err){0};
    assert_null(backend_new(&spec, &err));
    assert_int_equal(err.status, ERR_INPUT);
    assert_non_null(strstr(err.msg, "tpu"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_forward__is_fp32_rounded_once),
        cmocka_unit_test(linear_backward__is_fp32_rounded_once),
        cmocka_unit_test(layernorm__is_fp32_rounded_once),
        cmocka_unit_test(attention__is_fp32_rounded_once),
        cmocka_unit_test(xent__is_fp32_rounded_once),
        cmocka_unit_test(embeddings__are_fp32_rounded_once),
        cmocka_unit_test(elementwise__is_fp32_rounded_once),
        cmocka_unit_test(round__makes_the_compute_copy),
        cmocka_unit_test(backend_new__gives_what_is_asked_or_says_why),
    };
    return cmocka_run_group_tests(tests, open_backends, close_backends);
}
