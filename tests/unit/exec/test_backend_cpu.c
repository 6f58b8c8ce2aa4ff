/* Every kernel of the cpu backend against tests/unit/ref64.h, gradients against central differences of
 * it; 1 and 3 threads must give the same bits. */
#include "exec/base/backend.h"
#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/cpu/vmath.h"
#include "tests/unit/ref64.h"
#include "tests/unit/test.h"

#define BIG 400000

static struct backend *one, *three;
static float fa[BIG], fb[BIG], fc[BIG], fd[BIG], fe[BIG], ff[BIG], same[BIG];
static double da[BIG], db[BIG], dc[BIG], dd[BIG], de[BIG];

static int open_backends(void **state)
{
    (void)state;
    one = backend_cpu_new(DTYPE_FP32, 1, NULL);
    three = backend_cpu_new(DTYPE_FP32, 3, NULL);
    return one && three ? 0 : -1;
}

static int close_backends(void **state)
{
    (void)state;
    backend_free(one);
    backend_free(three);
    return 0;
}

static void fill(uint64_t key, int num, double std, float *f, double *d)
{
    for (int i = 0; i < num; i++) {
        f[i] = (float)(std * rng_normal(key, (uint64_t)i));
        if (d)
            d[i] = f[i];
    }
}

static void assert_near(const float *got, const double *want, int num, double tol)
{
    double scale = 1e-3;
    for (int i = 0; i < num; i++)
        scale = fmax(scale, fabs(want[i]));
    for (int i = 0; i < num; i++)
        if (!(fabs(got[i] - want[i]) <= tol * scale))
            fail_msg("element %d: %.9g, reference %.9g (scale %g)", i, got[i], want[i], scale);
}

static void assert_bits(const float *a, const float *b, int num)
{
    assert_memory_equal(a, b, (size_t)num * sizeof *a);
}

/* d loss / d x[i] by central differences. */
#define DIFFERENCE(x, i, loss)                                                                     \
    __extension__({                                                                                \
        const double at_ = (x)[i], h_ = 1e-5;                                                      \
        (x)[i] = at_ + h_;                                                                         \
        const double up_ = (loss);                                                                 \
        (x)[i] = at_ - h_;                                                                         \
        const double down_ = (loss);                                                               \
        (x)[i] = at_;                                                                              \
        (up_ - down_) / (2 * h_);                                                                  \
    })

static double dot(const double *a, const float *b, int num)
{
    double sum = 0;
    for (int i = 0; i < num; i++)
        sum += a[i] * b[i];
    return sum;
}

/* --- elementary functions -------------------------------------------------------------------- */

static void vmath__errors_below_stated(void **state)
{
    (void)state;
    double exp_err = 0, gelu_err = 0, grad_err = 0, tanh_err = 0, gt_err = 0, gt_grad_err = 0;
    for (int i = -200000; i <= 200000; i++) {
        const float x = (float)i * 0.0001f, wide = (float)i * 0.00043f; /* 20; 86 */
        const double u = 0.7978845608028654 * (x + 0.044715 * (double)x * x * x), t = tanh(u);
        const double phi = 0.5 * erfc(-(double)x / sqrt(2.0)), den = 0.3989422804014327;
        exp_err = fmax(exp_err, fabs(vexp(wide) / exp((double)wide) - 1));
        gelu_err = fmax(gelu_err, fabs(vgelu_erf(x) - x * phi) / fmax(1, fabs(x)));
        grad_err = fmax(grad_err, fabs(vgelu_erf_grad(x) - (phi + x * den * exp(-0.5 * x * x))));
        tanh_err = fmax(tanh_err, fabs(vtanh(x) - tanh((double)x)));
        gt_err = fmax(gt_err, fabs(vgelu_tanh(x) - 0.5 * x * (1 + t)) / fmax(1, fabs(x)));
        gt_grad_err =
            fmax(gt_grad_err, fabs(vgelu_tanh_grad(x) -
                                   (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 *
                                                        (1 + 0.134145 * (double)x * x))));
    }
    assert_true(exp_err < 2e-7);
    assert_true(gelu_err < 2e-7);
    assert_true(grad_err < 5e-7);
    assert_true(tanh_err < 2e-7);
    assert_true(gt_err < 3e-7);
    assert_true(gt_grad_err < 1e-6);
    assert_true(vexp(-1000.0f) < 1e-37f && vexp(1000.0f) > 1e38f);
    assert_true(isnan(vexp(NAN)));
}

/* --- linear ---------------------------------------------------------------------------------- */

static double act64(enum act act, double x)
{
    return act == ACT_NONE ? x : act == ACT_TANH ? tanh(x) : ref_gelu(x, act == ACT_GELU_TANH);
}

static void linear__matches_reference_in_all_forms(void **state)
{
    (void)state;
    static const struct {
        int rows, in, out, stride;
    } shapes[] = {
        {1,   1,  1,    0 },
        {7,   5,  3,    0 },
        {33,  19, 40,   0 },
        {130, 48, 33,   0 },
        {9,   16, 10,   50},
        {260, 32, 1100, 0 }
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int form = 0; form < 16; form++) {
            const int rows = shapes[s].rows, in = shapes[s].in, out = shapes[s].out;
            const int stride = shapes[s].stride ? shapes[s].stride : in;
            const enum act act = (enum act)(form & 3);
            const bool residual = form & 4, in_place = residual && (form & 8);
            const struct linear l = {.rows = rows,
                                     .in = in,
                                     .out = out,
                                     .in_out = form & 8,
                                     .x_stride = shapes[s].stride};
            fill(1, rows * stride, 1, fa, NULL);
            fill(2, in * out, 0.3, fb, db);
            fill(3, out, 1, fc, dc);
            fill(4, rows * out, 1, fd, NULL);
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < in; i++)
                    da[r * in + i] = fa[r * stride + i];
            ref_linear(da, db, dc, rows, in, out, l.in_out, dd);
            for (int i = 0; i < rows * out; i++)
                de[i] = act64(act, dd[i]) + (residual ? fd[i] : 0.0);
            float *y = in_place ? fd : fe;
            if (in_place)
                memcpy(same, fd, sizeof(float) * (size_t)(rows * out));
            one->linear_forward(one, &l, fa, fb, fc, act, residual ? fd : NULL, NULL, ff, y);
            assert_near(y, de, rows * out, 3e-6);
            assert_near(ff, dd, rows * out, 3e-6);
            if (in_place) {
                three->linear_forward(three, &l, fa, fb, fc, act, same, NULL, ff, same);
            } else {
                three->linear_forward(three, &l, fa, fb, fc, act, residual ? fd : NULL, NULL, ff,
                                      same);
            }
            assert_bits(y, same, rows * out);
        }
}

static void linear__backward_matches_differences(void **state)
{
    (void)state;
    for (int form = 0; form < 8; form++) {
        const int rows = 21, in = 13, out = 18, stride = form & 4 ? 29 : 13;
        const struct linear l = {.rows = rows,
                                 .in = in,
                                 .out = out,
                                 .in_out = form & 1,
                                 .x_stride = form & 4 ? stride : 0};
        /* The input is act(pre), so that dx tests the activation's derivative too. */
        const enum act act = form & 2 ? ACT_GELU_ERF : ACT_GELU_TANH;
        fill(1, rows * stride, 1, fa, NULL);
        fill(2, in * out, 0.3, fb, db);
        fill(3, out, 1, fc, dc);
        fill(4, rows * out, 1, fd, NULL); /* dy */
        fill(5, rows * stride, 1, fe, NULL);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < in; i++)
                da[r * in + i] = fa[r * stride + i];
        double x[21 * 13];
#define LOSS                                                                                       \
    __extension__({                                                                                \
        for (int k_ = 0; k_ < rows * in; k_++)                                                     \
            x[k_] = act64(act, da[k_]);                                                            \
        ref_linear(x, db, dc, rows, in, out, l.in_out, dd);                                        \
        0.5 * dot(dd, fd, rows *out);                                                              \
    })
        double want_x[21 * 13], want_w[13 * 18], want_b[18];
        for (int i = 0; i < rows * in; i++)
            want_x[i] = DIFFERENCE(da, i, LOSS) + fe[i / in * stride + i % in];
        for (int i = 0; i < in * out; i++)
            want_w[i] = DIFFERENCE(db, i, LOSS) + 1.5;
        for (int i = 0; i < out; i++)
            want_b[i] = DIFFERENCE(dc, i, LOSS) - 0.5;
#undef LOSS
        for (int k = 0; k < 2; k++) { /* k: in place over pre */
            struct backend *be = k ? three : one;
            float pre[21 * 29], got[21 * 13];
            memcpy(pre, fa, sizeof(float) * (size_t)(rows * stride));
            float *dx = k ? pre : ff;
            be->linear_backward_input(be, &l, fd, fb, 0.5f, act, pre, fe, dx);
            for (int i = 0; i < rows * in; i++)
                got[i] = dx[i / in * stride + i % in];
            assert_near(got, want_x, rows * in, 5e-6);
            if (k)
                assert_bits(got, same, rows * in);
            memcpy(same, got, sizeof got);
        }
        for (int i = 0; i < rows * stride; i++)
            fe[i] = act == ACT_GELU_ERF ? vgelu_erf(fa[i]) : vgelu_tanh(fa[i]);
        for (int i = 0; i < in * out; i++)
            ff[i] = 1.5f;
        for (int i = 0; i < out; i++)
            fc[i] = -0.5f;
        one->linear_backward_weight(one, &l, fd, fe, 0.5f, ff, fc);
        assert_near(ff, want_w, in * out, 5e-6);
        assert_near(fc, want_b, out, 5e-6);
    }
}

static void linear__weights_gradient_same_bits_threaded(void **state)
{
    (void)state;
    const struct linear l = {.rows = 700, .in = 270, .out = 130};
    fill(1, 700 * 130, 1, fa, NULL);
    fill(2, 700 * 270, 1, fb, NULL);
    memset(fc, 0, sizeof fc);
    memset(fd, 0, sizeof fd);
    memset(fe, 0, sizeof fe);
    memset(ff, 0, sizeof ff);
    one->linear_backward_weight(one, &l, fa, fb, 1.0f, fc, fd);
    three->linear_backward_weight(three, &l, fa, fb, 1.0f, fe, ff);
    assert_bits(fc, fe, 270 * 130);
    assert_bits(fd, ff, 130);
    for (int o = 0; o < 130; o++) {
        dc[o] = 0;
        for (int r = 0; r < 700; r++)
            dc[o] += fa[r * 130 + o];
    }
    assert_near(fd, dc, 130, 1e-5);
    for (int i = 0; i < 50; i++) {
        const int o = i * 2, k = i * 5;
        dd[i] = 0;
        for (int r = 0; r < 700; r++)
            dd[i] += (double)fa[r * 130 + o] * fb[r * 270 + k];
        same[i] = fc[o * 270 + k];
    }
    assert_near(same, dd, 50, 1e-5);
}

/* The old contents are not read. Forms: way of W, either output alone, rows apart. */
static void linear__fresh_weights_gradient_is_the_one_added_to_zeros(void **state)
{
    (void)state;
    for (int form = 0; form < 16; form++) {
        const int in = form & 8 ? 270 : 30, out = 130, pad = form & 1 ? 0 : 6;
        struct linear l = {.rows = form & 4 ? 700 : 21,
                           .in = in,
                           .out = out,
                           .in_out = form & 2,
                           .x_stride = pad ? in + pad : 0,
                           .y_stride = pad ? out + pad : 0};
        fill(1, (int)l.rows * (out + pad), 1, fa, NULL);
        fill(2, (int)l.rows * (in + pad), 1, fb, NULL);
        memset(fc, 0, sizeof fc);
        memset(fd, 0, sizeof fd);
        memset(fe, 0xff, sizeof fe);
        memset(ff, 0xff, sizeof ff);
        one->linear_backward_weight(one, &l, fa, fb, 0.5f, fc, fd);
        l.fresh = true;
        one->linear_backward_weight(one, &l, fa, fb, 0.5f, fe, ff);
        assert_bits(fe, fc, in * out);
        assert_bits(ff, fd, out);
        memset(fe, 0xff, sizeof fe);
        memset(ff, 0xff, sizeof ff);
        three->linear_backward_weight(three, &l, fa, fb, 0.5f, fe, NULL);
        three->linear_backward_weight(three, &l, fa, fb, 0.5f, NULL, ff);
        assert_bits(fe, fc, in * out);
        assert_bits(ff, fd, out);
    }
}

static void linear__input_gradient_over_many_tiles(void **state)
{
    (void)state;
    for (int in_out = 0; in_out < 2; in_out++) {
        const struct linear l = {.rows = 700, .in = 270, .out = 130, .in_out = in_out};
        fill(1, 700 * 130, 1, fa, NULL);
        fill(2, 270 * 130, 1, fb, NULL);
        fill(3, 700 * 270, 1, fc, NULL);
        one->linear_backward_input(one, &l, fa, fb, 1.0f, ACT_NONE, NULL, fc, fd);
        memcpy(fe, fc, sizeof(float) * 700 * 270);
        three->linear_backward_input(three, &l, fa, fb, 1.0f, ACT_NONE, NULL, fe,
                                     fe); /* in place */
        assert_bits(fd, fe, 700 * 270);
        for (int i = 0; i < 200; i++) {
            const int r = i * 3 + 99, k = i;
            dd[i] = fc[r * 270 + k];
            for (int o = 0; o < 130; o++)
                dd[i] += (double)fa[r * 130 + o] * (in_out ? fb[k * 130 + o] : fb[o * 270 + k]);
            same[i] = fd[r * 270 + k];
        }
        assert_near(same, dd, 200, 3e-6);
    }
}

/* Products to which nothing is added go directly to their tensor: with the bits of the others, over
 * whatever lies there, and between rows that are apart nothing is written. */
static void linear__plain_products_have_the_bits_of_finished_ones(void **state)
{
    enum { ROWS = 70, OUT = 130, PAD = 6 };
    (void)state;
    for (int form = 0; form < 4; form++) {
        const int in = form & 1 ? 2060 : 270;
        const struct linear l = {.rows = ROWS,
                                 .in = in,
                                 .out = OUT,
                                 .in_out = form & 2,
                                 .x_stride = in + PAD,
                                 .y_stride = OUT + PAD};
        fill(1, ROWS * (in + PAD), 1, fa, NULL);
        fill(2, in * OUT, 1, fb, NULL);
        memset(fc, 0xff, sizeof fc);
        memset(fd, 0xff, sizeof fd);
        one->linear_forward(one, &l, fa, fb, NULL, ACT_NONE, NULL, NULL, fe, fc);
        three->linear_forward(three, &l, fa, fb, NULL, ACT_NONE, NULL, NULL, NULL, fd);
        assert_bits(fc, fd, ROWS * (OUT + PAD));
        memset(fd, 0, sizeof fd);
        memset(fe, 0xff, sizeof fe);
        memset(ff, 0xff, sizeof ff);
        one->linear_backward_input(one, &l, fc, fb, 0.5f, ACT_NONE, NULL, fd, fe);
        three->linear_backward_input(three, &l, fc, fb, 0.5f, ACT_NONE, NULL, NULL, ff);
        assert_bits(fe, ff, ROWS * (in + PAD));
    }
}

/* --- layernorm ------------------------------------------------------------------------------- */

static void layernorm__matches_reference_and_differences(void **state)
{
    (void)state;
    static const int cols_of[] = {1, 15, 16, 37, 64};
    for (int k = 1; k < 5; k++) {
        const int rows = 70, cols = cols_of[k], n = rows * cols;
        float stats[140], part[128], other[128];
        fill(1, n, 2, fa, da);
        fill(2, cols, 1, fb, db);
        fill(3, cols, 1, fc, dc);
        fill(4, n, 1, fd, NULL);
        ref_layernorm(da, db, dc, rows, cols, 1e-5, dd);
        const struct layernorm norm = {
            .rows = rows, .cols = cols, .gamma = fb, .beta = fc, .eps = 1e-5f};
        one->layernorm_forward(one, &norm, fa, fe, stats);
        assert_near(fe, dd, n, 5e-6);
#define LOSS (ref_layernorm(da, db, dc, 3, cols, 1e-5, dd), dot(dd, fd, 3 * cols))
        for (int i = 0; i < 3 * cols; i++) /* rows are independent: three of them tell */
            de[i] = DIFFERENCE(da, i, LOSS) + fa[i];
#undef LOSS
#define LOSS (ref_layernorm(da, db, dc, rows, cols, 1e-5, dd), dot(dd, fd, n))
        double want[128];
        for (int i = 0; i < cols; i++) {
            want[i] = DIFFERENCE(db, i, LOSS);
            want[cols + i] = DIFFERENCE(dc, i, LOSS);
        }
#undef LOSS
        three->layernorm_backward(three, &norm, fd, fa, stats, fa, same, other);
        one->layernorm_backward(one, &norm, fd, fa, stats, fa, fa, part); /* in place */
        assert_near(fa, de, 3 * cols, 2e-5);
        assert_near(part, want, 2 * cols, 2e-5);
        assert_bits(fa, same, n);
        assert_bits(part, other, 2 * cols);
    }
}

/* --- attention ------------------------------------------------------------------------------- */

static void attention__matches_reference_and_differences(void **state)
{
    (void)state;
    static const int64_t ids[] = {4, 9};
    static const int32_t some[] = {3, 150};
    /* 8 and 9: documents and a window, over several blocks of queries, and with dropout */
    for (int form = 0; form < 10; form++) {
        const bool from = form >= 8, causal = (form & 1) || from;
        const bool padded = form & 2, dropped = (form & 4) || form == 9;
        const int seq = form < 4 || form == 8 ? 200 : 11, heads = 2, d = 5, n = 2, h = heads * d;
        const int32_t lengths[] = {some[0], seq - 1};
        static int32_t starts[2 * 200];
        for (int i = 0; i < n * seq; i++) /* documents of 50 tokens, or of 4 */
            starts[i] = seq == 200 ? i % seq / 50 * 50 : i % seq / 4 * 4;
        const struct attention a = {.num_samples = n,
                                    .seq = seq,
                                    .heads = heads,
                                    .head_dim = d,
                                    .causal = causal,
                                    .window = from ? (seq == 200 ? 37 : 3) : 0,
                                    .starts = from ? starts : NULL,
                                    .lengths = padded || from ? lengths : NULL};
        const struct dropout drop = {
            .p = dropped ? 0.3f : 0.0f, .key = 77, .ids = ids, .rows_per_sample = 0};
        const int num = n * seq * h;
        double *keep = NULL;
        fill(1, 3 * num, 0.8, fa, da);
        fill(2, num, 1, fb, NULL);
        if (dropped) {
            keep = dc;
            for (int s = 0; s < n; s++)
                for (int i = 0; i < heads * seq * seq; i++)
                    keep[s * heads * seq * seq + i] =
                        rng_bits(rng_mix(77 ^ (uint64_t)ids[s]), (uint32_t)i) >=
                                (uint32_t)((double)0.3f * 4294967296.0)
                            ? 1 / (1 - (double)0.3f)
                            : 0.0;
        }
        float *lse = fe, *ctx = fd;
        ref_attention_from(da, n, seq, heads, d, causal, a.lengths, a.window, a.starts, keep, dd);
        one->attention_forward(one, &a, fa, &drop, ctx, lse);
        assert_near(ctx, dd, num, 3e-6);
        three->attention_forward(three, &a, fa, &drop, same, lse);
        assert_bits(ctx, same, num);
        three->attention_backward(three, &a, fa, &drop, ctx, lse, fb, same);
        one->attention_backward(one, &a, fa, &drop, ctx, lse, fb, fa); /* in place */
        assert_bits(fa, same, 3 * num);
        const int step = seq == 200 ? 173 : 1; /* 200 tokens: a sample of the elements */
        int count = 0;
        for (int i = 0; i < 3 * num; i += step, count++) {
            db[count] = DIFFERENCE(da, i,
                                   (ref_attention_from(da, n, seq, heads, d, causal, a.lengths,
                                                       a.window, a.starts, keep, dd),
                                    dot(dd, fb, num)));
            fc[count] = fa[i];
        }
        assert_near(fc, db, count, 1e-5);
    }
}

/* --- decoders -------------------------------------------------------------------------------- */

static void rmsnorm__matches_reference_and_differences(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        const struct rmsnorm norm = {
            .rows = 600, .cols = form ? 21 : 33, .eps = 1e-5f, .plus = (float)form};
        const int cols = norm.cols, n = 600 * cols;
        float stats[600], part[40], other[40];
        double want[40];
        fill(1, n, 2, fa, da);
        fill(2, cols, 1, fb, db);
        fill(3, n, 1, fc, dc);
        fill(4, n, 1, fd, NULL);
        ref_rmsnorm(da, db, form, 600, cols, 1e-5, dd);
        one->rmsnorm_forward(one, &norm, fa, fb, fe, stats);
        assert_near(fe, dd, n, 3e-6);
        three->rmsnorm_forward(three, &norm, fa, fb, same, stats);
        assert_bits(fe, same, n);
#define LOSS (ref_rmsnorm(da, db, form, 600, cols, 1e-5, dd), dot(dd, fc, n))
        for (int i = 0; i < cols; i++)
            want[i] = DIFFERENCE(db, i, LOSS);
        for (int i = 0; i < 3 * cols; i++)
            de[i] = DIFFERENCE(da, i, LOSS) + fd[i];
#undef LOSS
        three->rmsnorm_backward(three, &norm, fc, fa, stats, fb, fd, same, other);
        one->rmsnorm_backward(one, &norm, fc, fa, stats, fb, fd, fa, part); /* in place */
        assert_near(fa, de, 3 * cols, 2e-5);
        assert_near(part, want, cols, 2e-5);
        assert_bits(fa, same, n);
        assert_bits(part, other, cols);
        one->rmsnorm_backward(one, &norm, fc, same, stats, fb, NULL, NULL, NULL); /* nothing */
    }
}

static void rotary__matches_reference_and_differences(void **state)
{
    (void)state;
    static const struct {
        int heads, kv, d;
        bool norm;
    } forms[] = {
        {4, 4, 6,  false},
        {4, 2, 6,  true },
        {6, 1, 20, false},
        {3, 3, 18, true }
    };
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        const int n = 3, seq = 37, heads = forms[f].heads, kv = forms[f].kv, d = forms[f].d;
        const int rows = n * seq, in = rows * (heads + 2 * kv) * d, out = rows * 3 * heads * d;
        const struct rotary r = {.num_samples = n,
                                 .seq = seq,
                                 .heads = heads,
                                 .kv_heads = kv,
                                 .head_dim = d,
                                 .angles = fe,
                                 .gamma = forms[f].norm ? ff : NULL,
                                 .eps = 1e-6f,
                                 .plus = f == 3 ? 1.0f : 0.0f};
        const double *gamma = forms[f].norm ? db : NULL;
        float stats[111 * 8], part[40], other[40];
        double want[40];
        for (int i = 0; i < seq * d / 2; i++) {
            fe[2 * i] = cosf((float)i);
            fe[2 * i + 1] = sinf((float)i);
        }
        fill(1, in, 1, fa, da);
        fill(2, 2 * d, 1, ff, db);
        fill(3, out, 1, fb, NULL);
#define FORWARD ref_rotary(da, fe, gamma, r.plus, 1e-6, rows, seq, heads, kv, d, dd)
        FORWARD;
        one->rotary_forward(one, &r, fa, fc, stats);
        assert_near(fc, dd, out, 2e-6);
        three->rotary_forward(three, &r, fa, same, stats);
        assert_bits(fc, same, out);
        int count = 0;
        for (int i = 0; i < in; i += 23)
            de[count++] = DIFFERENCE(da, i, (FORWARD, dot(dd, fb, out)));
        for (int i = 0; gamma && i < 2 * d; i++)
            want[i] = DIFFERENCE(db, i, (FORWARD, dot(dd, fb, out)));
#undef FORWARD
        three->rotary_backward(three, &r, fb, fa, stats, same, other);
        one->rotary_backward(one, &r, fb, fa, stats, fa, part); /* in place */
        assert_bits(fa, same, in);
        for (int i = 0; i < count; i++)
            fa[i] = fa[23 * i];
        assert_near(fa, de, count, 1e-5);
        if (gamma) {
            assert_near(part, want, 2 * d, 1e-5);
            assert_bits(part, other, 2 * d);
        }
    }
}

static void gate__matches_reference_and_differences(void **state)
{
    (void)state;
    for (int silu = 0; silu < 2; silu++) {
        const int rows = 40, cols = 600, n = rows * cols;
        const enum act act = silu ? ACT_SILU : ACT_GELU_TANH;
        fill(1, 2 * n, 2, fa, da);
        fill(2, n, 1, fb, NULL);
        for (int i = 0; i < n; i++) {
            const int gate = i / cols * 2 * cols + i % cols;
            dd[i] = ref_act(da[gate], silu) * da[gate + cols];
            de[gate] = DIFFERENCE(da, gate, ref_act(da[gate], silu)) * da[gate + cols] * fb[i];
            de[gate + cols] = ref_act(da[gate], silu) * fb[i];
        }
        one->gate_forward(one, rows, cols, act, fa, fc);
        assert_near(fc, dd, n, 1e-6);
        three->gate_forward(three, rows, cols, act, fa, same);
        assert_bits(fc, same, n);
        three->gate_backward(three, rows, cols, act, fa, fb, same);
        one->gate_backward(one, rows, cols, act, fa, fb, fa); /* in place */
        assert_near(fa, de, 2 * n, 2e-6);
        assert_bits(fa, same, 2 * n);
    }
}

/* --- loss ------------------------------------------------------------------------------------ */

static void xent__matches_reference_and_differences(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        const bool span = form & 1;
        const int rows = 6, classes = 21;
        const struct xent x = {.rows = rows,
                               .classes = classes,
                               .group = span ? 2 : 1,
                               .group_stride = span ? 2 * classes : classes,
                               .row_stride = span ? 1 : 0,
                               .class_stride = span ? 2 : 1,
                               .smoothing = form & 2 ? 0.1f : 0.0f};
        int32_t labels[] = {0, 20, -100, 7, 7, 3};
        struct xent_sums sums;
        double loss = 0;
        int correct = 0;
        fill(1, rows * classes, 3, fa, da);
        for (int r = 0; r < rows; r++) {
            double *row = da + (span ? (r / 2) * 2 * classes + r % 2 : r * classes);
            const int stride = span ? 2 : 1;
            bool best = true;
            for (int c = 0; c < classes; c++) {
                const double smooth = x.smoothing;
                const int label = labels[r];
                const long at = row - da + c * stride;
                de[at] = label < 0 ? 0.0
                                   : DIFFERENCE(row, c * stride,
                                                ref_xent(row, stride, classes, label, smooth));
                if (label >= 0 && row[c * stride] > row[label * stride])
                    best = false;
            }
            if (labels[r] >= 0) {
                loss += ref_xent(row, stride, classes, labels[r], x.smoothing);
                correct += best;
            }
        }
        three->xent(three, &x, labels, fa, &sums);
        assert_near(fa, de, rows * classes, 2e-6);
        assert_true(fabs(sums.loss - loss) < 1e-5);
        assert_int_equal(sums.count, 5);
        assert_int_equal(sums.correct, correct);
    }
}

/* --- embeddings ------------------------------------------------------------------------------ */

static void tokens__forward_and_backward_count_every_use(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 0, 2, 2, 1, 0}, types[] = {0, 1, 1, 0, 0, 1};
    const struct tokens t = {
        .num_samples = 2, .seq = 3, .hidden = 150, .vocab = 4, .ids = ids, .types = types};
    const int h = 150;
    fill(1, 4 * h, 1, fa, NULL);
    fill(2, 5 * h, 1, fb, NULL);
    fill(3, 2 * h, 1, fc, NULL);
    three->tokens_forward(three, &t, fa, fb, fc, fd);
    for (int i = 0; i < 6 * h; i++)
        dd[i] = (double)fa[ids[i / h] * h + i % h] + fb[i / h % 3 * h + i % h] +
                fc[types[i / h] * h + i % h];
    assert_near(fd, dd, 6 * h, 1e-6);
    memset(fa, 0, sizeof fa);
    memset(fb, 0, sizeof fb);
    memset(fc, 0, sizeof fc);
    memset(da, 0, sizeof da);
    memset(db, 0, sizeof db);
    memset(dc, 0, sizeof dc);
    three->tokens_backward(three, &t, fd, fa, fb, fc);
    for (int i = 0; i < 6 * h; i++) {
        da[ids[i / h] * h + i % h] += fd[i];
        db[i / h % 3 * h + i % h] += fd[i];
        dc[types[i / h] * h + i % h] += fd[i];
    }
    assert_near(fa, da, 4 * h, 1e-6);
    assert_near(fb, db, 5 * h, 1e-6);
    assert_near(fc, dc, 2 * h, 1e-6);
}

/* The whole patch embedding is judged by PyTorch's conv2d in test_parity and by differences in
 * test_stage_grad; here: that patches hold the right pixels. */
static void tokens__are_scaled_where_there_are_no_positions(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 0, 2, 1};
    const struct tokens t = {
        .num_samples = 2, .seq = 2, .hidden = 130, .vocab = 3, .scale = 0.5f, .ids = ids};
    fill(1, 3 * 130, 1, fa, NULL);
    three->tokens_forward(three, &t, fa, NULL, NULL, fb);
    for (int i = 0; i < 4 * 130; i++)
        assert_true(fb[i] == 0.5f * fa[ids[i / 130] * 130 + i % 130]);
    memset(fc, 0, 3 * 130 * sizeof *fc);
    three->tokens_backward(three, &t, fb, fc, NULL, NULL);
    for (int i = 0; i < 130; i++)
        assert_true(fc[260 + i] == 0.5f * fb[i] + 0.5f * fb[260 + i]);
}

static void patchify__puts_each_pixel_once(void **state)
{
    (void)state;
    const struct patches p = {.num_samples = 2, .channels = 3, .image = 6, .patch = 2, .hidden = 4};
    for (int i = 0; i < 2 * 3 * 36; i++)
        fa[i] = (float)(i + 1);
    one->patchify(one, &p, fa, fb);
    for (int s = 0; s < 2; s++)
        for (int t = 0; t < 10; t++)
            for (int k = 0; k < 12; k++) {
                const int c = k / 4, y = (t - 1) / 3 * 2 + k / 2 % 2, x = (t - 1) % 3 * 2 + k % 2;
                const float want = t == 0 ? 0.0f : fa[((s * 3 + c) * 6 + y) * 6 + x];
                assert_true(fb[(s * 10 + t) * 12 + k] == want);
            }
}

/* --- dropout --------------------------------------------------------------------------------- */

static void gather_rows__and_scatter_rows_move_whole_rows(void **state)
{
    enum { ROWS = 7, COLS = 5, NUM = 3 };
    static const int32_t rows[NUM] = {0, 3, 6};
    float x[ROWS * COLS], y[NUM * COLS];
    (void)state;
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = (float)i;
    for (int t = 0; t < 2; t++) {
        float back[ROWS * COLS];
        struct backend *be = t ? three : one;
        memset(back, 1, sizeof back);
        be->gather_rows(be, NUM, COLS, rows, x, y);
        be->scatter_rows(be, ROWS, NUM, COLS, rows, y, back);
        for (int i = 0; i < ROWS * COLS; i++) {
            const int row = i / COLS;
            assert_true(back[i] == (row % 3 == 0 ? x[i] : 0.0f));
            if (row % 3 == 0)
                assert_true(y[row / 3 * COLS + i % COLS] == x[i]);
        }
    }
}

static void dropout__depends_on_sample_not_on_row(void **state)
{
    (void)state;
    static const int64_t ab[] = {5, 6}, ba[] = {6, 5};
    const int rows = 40, cols = 50, half = rows * cols / 2;
    const struct dropout x = {.p = 0.25f, .key = 9, .ids = ab, .rows_per_sample = 20};
    const struct dropout y = {.p = 0.25f, .key = 9, .ids = ba, .rows_per_sample = 20};
    int kept = 0;
    for (int i = 0; i < rows * cols; i++)
        fa[i] = 1.0f;
    one->dropout(one, rows, cols, &x, fa, fb);
    three->dropout(three, rows, cols, &y, fa, fc);
    assert_bits(fb, fc + half, half);
    assert_bits(fb + half, fc, half);
    for (int i = 0; i < rows * cols; i++) {
        assert_true(fb[i] == 0.0f || fabsf(fb[i] - 1.0f / 0.75f) < 1e-6f);
        kept += fb[i] != 0.0f;
    }
    assert_in_range(kept, 1400, 1600); /* 1500 +- 5 deviations of 19 */
    /* The linear's epilogue uses the same mask. */
    const struct linear l = {.rows = rows, .in = 1, .out = cols};
    for (int i = 0; i < rows; i++)
        fd[i] = 1.0f;
    one->linear_forward(one, &l, fd, fa, NULL, ACT_NONE, NULL, &x, NULL, fe);
    assert_bits(fe, fb, rows * cols);
}

/* --- sums ------------------------------------------------------------------------------------ */

static void sumsq_many__has_the_sums_of_squares(void **state)
{
    (void)state;
    const int64_t num[] = {40000, 3};
    const float *const x[] = {fa, fb};
    double sum[2], want = 0;
    fill(1, 40000, 1, fa, NULL);
    for (int i = 0; i < 40000; i++)
        want += (double)fa[i] * fa[i];
    fb[0] = 1, fb[1] = -2, fb[2] = 3;
    assert_int_equal(three->sumsq_many(three, 2, num, x, sum, NULL), OK);
    assert_true(fabs(sum[0] / want - 1) < 1e-12);
    assert_true(sum[1] == 14);
}

static void optimizers__same_bits_threaded(void **state)
{
    (void)state;
    const int n = 50000; /* several tiles; PyTorch judges the values (test_parity) */
    struct update_rule rule = {
        .sgd = {.lr = 0.1f,  .momentum = 0.9f, .weight_decay = 0.01f, .grad_mul = 0.5f},
        .adam = { .lr = 0.01,
                .beta1 = 0.9,
                .beta2 = 0.999,
                .eps = 1e-8,
                .weight_decay = 0.1,
                .grad_mul = 0.5f,
                .step = 3}
    };
    for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_LAMB; kind++) {
        struct backend *bes[] = {one, three};
        fill(9, n, 1, fa, NULL);
        for (int k = 0; k < 2; k++) {
            float *w = k ? fe : fb, *m = k ? ff : fc, *v = k ? same : fd;
            fill(1, n, 1, w, NULL);
            fill(2, n, 1, m, NULL);
            fill(3, n, 1, v, NULL);
            for (int i = 0; i < n; i++)
                v[i] = v[i] * v[i];
            const struct update tensor = {
                .num = n, .grad = fa, .weight = w, .state = {m, v},
                           .decay = true
            };
            rule.kind = (enum optimizer_kind)kind;
            bes[k]->update(bes[k], &rule, 1, &tensor);
        }
        assert_bits(fb, fe, n);
        assert_bits(fc, ff, n);
        assert_bits(fd, same, n);
    }
}

/* The sizes are such that malloc() takes them from its heap and from the system, fresh and used before. */
static void alloc_zeroed__is_zero_and_aligned(void **state)
{
    static const int64_t sizes[] = {
        0, 1, 63, 64, 65, 4096, 100000, (2 << 20) - 1, 2 << 20, (2 << 20) + 3968, 5 << 20};
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, NULL);
    (void)state;
    for (int round = 0; round < 3; round++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            void *zeroed = NULL, *used = NULL;
            assert_int_equal(be->alloc_zeroed(be, sizes[s], &zeroed, NULL), OK);
            assert_int_equal(be->alloc(be, sizes[s], &used, NULL), OK);
            assert_true((uintptr_t)zeroed % 64 == 0 && (uintptr_t)used % 64 == 0);
            for (int64_t i = 0; i < sizes[s]; i++)
                assert_int_equal(((const char *)zeroed)[i], 0);
            memset(zeroed, 0xa5, (size_t)sizes[s]);
            memset(used, 0x5a, (size_t)sizes[s]);
            be->free(be, zeroed);
            be->free(be, used);
        }
    void *none = NULL;
    assert_int_equal(be->alloc_zeroed(be, INT64_MAX, &none, NULL), ERR_NOMEM);
    assert_int_equal(be->alloc(be, -1, &none, NULL), ERR_NOMEM);
    assert_int_equal(be->alloc(be, INT64_MAX / 2, &none, NULL), ERR_NOMEM);
    assert_null(none);
    be->free(be, NULL);
    backend_free(be);
}

static void backend_cpu_new__refuses_bad_thread_counts(void **state)
{
    (void)state;
    struct err err = {0};
    assert_null(backend_cpu_new(DTYPE_FP32, 0, &err));
    assert_int_equal(err.status, ERR_INPUT);
    assert_null(backend_cpu_new(DTYPE_FP32, 100000, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vmath__errors_below_stated),
        cmocka_unit_test(linear__matches_reference_in_all_forms),
        cmocka_unit_test(linear__backward_matches_differences),
        cmocka_unit_test(linear__weights_gradient_same_bits_threaded),
        cmocka_unit_test(linear__fresh_weights_gradient_is_the_one_added_to_zeros),
        cmocka_unit_test(linear__input_gradient_over_many_tiles),
        cmocka_unit_test(linear__plain_products_have_the_bits_of_finished_ones),
        cmocka_unit_test(layernorm__matches_reference_and_differences),
        cmocka_unit_test(attention__matches_reference_and_differences),
        cmocka_unit_test(rmsnorm__matches_reference_and_differences),
        cmocka_unit_test(rotary__matches_reference_and_differences),
        cmocka_unit_test(gate__matches_reference_and_differences),
        cmocka_unit_test(xent__matches_reference_and_differences),
        cmocka_unit_test(tokens__forward_and_backward_count_every_use),
        cmocka_unit_test(tokens__are_scaled_where_there_are_no_positions),
        cmocka_unit_test(patchify__puts_each_pixel_once),
        cmocka_unit_test(gather_rows__and_scatter_rows_move_whole_rows),
        cmocka_unit_test(dropout__depends_on_sample_not_on_row),
        cmocka_unit_test(sumsq_many__has_the_sums_of_squares),
        cmocka_unit_test(optimizers__same_bits_threaded),
        cmocka_unit_test(alloc_zeroed__is_zero_and_aligned),
        cmocka_unit_test(backend_cpu_new__refuses_bad_thread_counts),
    };
    return cmocka_run_group_tests(tests, open_backends, close_backends);
}
