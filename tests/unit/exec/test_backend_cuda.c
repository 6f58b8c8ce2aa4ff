/* Every kernel of the cuda backend against the cpu backend in fp32, whose own judge is
 * tests/unit/ref64.h, and the forward of attention and products against that reference itself. Operands
 * are rounded to the dtype first, so that what is compared is arithmetic.
 *
 * Without a GPU (ELAPSE_TEST_DEVICE is not cuda) kernels run emulated, with every access checked
 * (tests/cudasim/), in several orders of threads and with work that comes late: same bits each
 * time. On a GPU each test runs twice for that. Skipped where neither is there.
 * group: emulated, seconds: 38 */
#include <dlfcn.h>
#include <unistd.h>

#include "exec/base/backend.h"
#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/device/cuda_load.h"
#include "tests/unit/ref64.h"
#include "tests/unit/test.h"

enum { MAX_KEPT = 64 };

static struct backend *cpu, *cuda, *tuned, *by_dtype[3]; /* fp32, bf16, tf32; tuned: bf16 */
static bool emulated;
static void (*set_order)(unsigned), (*set_streams)(unsigned);
static const char *(*take_fault)(void);
static int64_t (*num_matmuls)(void);
static uint64_t outputs_hash; /* of everything that came down in this run of a test */
static void *host_kept[MAX_KEPT], *device_kept[MAX_KEPT];
static int num_host, num_device;
static uint64_t next_key;

static const int64_t ids_host[] = {1000, 17, 4, 99, 3, 123456789012, 7, 8};

/* --- tensors --------------------------------------------------------------------------------- */

static bool low(void)
{
    return cuda->elem_bytes == 2;
}

static float round_low(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void sync_now(void)
{
    struct err err = {0};
    if (cuda->sync(cuda, &err) != OK)
        fail_msg("%s", err.msg);
    if (take_fault) {
        const char *fault = take_fault();
        if (fault[0])
            fail_msg("%s", fault);
    }
}

static void *host_bytes(int64_t bytes)
{
    void *at = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
    assert_non_null(at);
    assert_true(num_host < MAX_KEPT);
    return host_kept[num_host++] = at;
}

/* Normal numbers; `tensor` ones are rounded to the backend's dtype. */
static float *numbers(int64_t num, double std, bool tensor)
{
    float *x = host_bytes(num * 4);
    const uint64_t key = rng_mix(++next_key);
    for (int64_t i = 0; i < num; i++) {
        x[i] = (float)(std * rng_normal(key, (uint64_t)i));
        if (tensor && low())
            x[i] = round_low(x[i]);
    }
    return x;
}
static float *copy_of(const float *x, int64_t num)
{
    return memcpy(host_bytes(num * 4), x, (size_t)num * 4);
}

static void *device_bytes(int64_t bytes)
{
    struct err err = {0};
    void *at = NULL;
    if (cuda->alloc(cuda, bytes > 0 ? bytes : 1, &at, &err) != OK)
        fail_msg("%s", err.msg);
    assert_true(num_device < MAX_KEPT);
    return device_kept[num_device++] = at;
}
static void *up_bytes(const void *host, int64_t bytes)
{
    void *at = device_bytes(bytes);
    cuda->copy_in(cuda, at, host, bytes);
    return at;
}
static float *up_fp32(const float *x, int64_t num)
{
    return up_bytes(x, num * 4);
}
/* Elements of the backend's dtype, `off` elements behind an aligned address. */
static void *up_off(const float *x, int64_t num, int off)
{
    char *at = device_bytes((num + off) * cuda->elem_bytes);
    at += off * cuda->elem_bytes;
    if (!low()) {
        cuda->copy_in(cuda, at, x, num * 4);
        return at;
    }
    uint16_t *bits = host_bytes(num * 2);
    for (int64_t i = 0; i < num; i++) {
        uint32_t word;
        const float rounded = round_low(x[i]);
        memcpy(&word, &rounded, sizeof word);
        bits[i] = (uint16_t)(word >> 16);
    }
    cuda->copy_in(cuda, at, bits, num * 2);
    return at;
}
static void *up(const float *x, int64_t num)
{
    return up_off(x, num, 0);
}

static void hash_in(const void *bytes, int64_t num)
{
    const unsigned char *at = bytes;
    for (int64_t i = 0; i < num; i++)
        outputs_hash = (outputs_hash ^ at[i]) * 0x100000001b3ULL;
}
static void down_bytes(void *host, const void *device, int64_t bytes)
{
    cuda->copy_out(cuda, host, device, bytes);
    sync_now();
    hash_in(host, bytes);
}
static float *down_fp32(const float *device, int64_t num)
{
    float *x = host_bytes(num * 4);
    down_bytes(x, device, num * 4);
    return x;
}
static float *down(const void *device, int64_t num)
{
    if (!low())
        return down_fp32(device, num);
    float *x = host_bytes(num * 4);
    uint16_t *bits = host_bytes(num * 2);
    down_bytes(bits, device, num * 2);
    for (int64_t i = 0; i < num; i++) {
        const uint32_t word = (uint32_t)bits[i] << 16;
        memcpy(&x[i], &word, sizeof word);
    }
    return x;
}

static void forget(void)
{
    sync_now();
    for (int i = 0; i < num_device; i++)
        cuda->free(cuda, device_kept[i]);
    for (int i = 0; i < num_host; i++)
        free(host_kept[i]);
    num_device = num_host = 0;
}

/* Relative L2 error, and no element off by more than 8 times that of the largest; gradients that
 * cancel to nothing are held to a thousandth of the operands' size, 1. */
static void near_by(const char *what, const float *got, const double *want, int64_t num, double tol)
{
    double off = 0, size = 0, most = 0;
    for (int64_t i = 0; i < num; i++) {
        off += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
        most = fmax(most, fabs(want[i]));
    }
    if (!(sqrt(off) <= tol * fmax(sqrt(size), 1e-3 * sqrt((double)num))))
        fail_msg("%s: relative error %.3g, allowed %.3g", what, sqrt(off / size), tol);
    for (int64_t i = 0; i < num; i++)
        if (!(fabs(got[i] - want[i]) <= 8 * tol * fmax(most, 1e-3)))
            fail_msg("%s: element %lld is %.9g, must be %.9g (largest %.3g)", what, (long long)i,
                     got[i], want[i], most);
}
static void near(const char *what, const float *got, const float *want, int64_t num, double tol)
{
    double *wide = host_bytes(num * 8);
    for (int64_t i = 0; i < num; i++)
        wide[i] = want[i];
    near_by(what, got, wide, num, tol);
}
/* The tolerance of results stored in the dtype, and of fp32 sums over operands in the dtype. */
static double tol(void)
{
    return low() ? 6e-3 : cuda->dtype == DTYPE_TF32 ? 2e-3 : 1e-5;
}
static double tol_sum(void)
{
    return cuda->dtype == DTYPE_TF32 ? 2e-3 : 2e-5;
}

/* --- one test in all dtypes, orders and stream modes ----------------------------------------- */

static void in_all_ways(void (*test)(void), bool with_tf32)
{
    static const struct {
        unsigned order, streams;
    } ways[] = {
        {0, 0},
        {7, 1},
    };
    const int num_ways = 2;
    if (!by_dtype[0])
        skip();
    for (int d = 0; d < (with_tf32 ? 3 : 2); d++) {
        uint64_t first = 0;
        cuda = by_dtype[d];
        for (int w = 0; w < num_ways; w++) {
            if (emulated) {
                set_order(ways[w].order);
                set_streams(ways[w].streams);
            }
            outputs_hash = 0xcbf29ce484222325ULL;
            next_key = 0;
            test();
            forget();
            if (w == 0)
                first = outputs_hash;
            if (outputs_hash != first)
                fail_msg("dtype %d: other bits in way %d than in the first", d, w);
        }
    }
}
#define IN_ALL_WAYS(name, with_tf32)                                                               \
    static void name##_once(void);                                                                 \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        in_all_ways(name##_once, with_tf32);                                                       \
    }                                                                                              \
    static void name##_once(void)

/* --- linear ---------------------------------------------------------------------------------- */

static void linear_forward_case(int64_t rows, int in, int out, int form, int x_pad, int y_pad)
{
    static const enum act acts[] = {ACT_NONE, ACT_GELU_ERF, ACT_GELU_TANH, ACT_TANH};
    const enum act act = acts[form & 3];
    const bool residual = form & 4, in_place = (form & 12) == 12, dropped = form & 16;
    const bool with_pre = form & 32, with_bias = !(form & 64), odd_bias = form & 128;
    const int64_t ldx = in + x_pad, ldy = out + y_pad;
    const struct linear l = {.rows = rows,
                             .in = in,
                             .out = out,
                             .in_out = form & 8,
                             .x_stride = x_pad ? ldx : 0,
                             .y_stride = y_pad ? ldy : 0};
    struct dropout drop = {dropped ? 0.1f : 0.0f, 77, ids_host, (rows + 7) / 8}, drop_cuda = drop;
    drop_cuda.ids = up_bytes(ids_host, sizeof ids_host);
    float *x = numbers(rows * ldx, 1, true), *w = numbers((int64_t)in * out, 0.2, true);
    float *bias = numbers(out, 1, true), *res = numbers(rows * ldy, 1, true);
    float *pre = numbers(rows * ldy, 1, true), *y = in_place ? res : numbers(rows * ldy, 1, true);
    void *x_c = up(x, rows * ldx), *w_c = up(w, (int64_t)in * out);
    void *b_c = up_off(bias, out, odd_bias);
    void *res_c = up(res, rows * ldy), *pre_c = up(pre, rows * ldy);
    void *y_c = in_place ? res_c : up(y, rows * ldy);
    cpu->linear_forward(cpu, &l, x, w, with_bias ? bias : NULL, act, residual ? res : NULL, &drop,
                        with_pre ? pre : NULL, y);
    cuda->linear_forward(cuda, &l, x_c, w_c, with_bias ? b_c : NULL, act, residual ? res_c : NULL,
                         &drop_cuda, with_pre ? pre_c : NULL, y_c);
    float *y_d = down(y_c, rows * ldy);
    near("y", y_d, y, rows * ldy, tol());
    near("pre", down(pre_c, rows * ldy), pre, rows * ldy, tol());
    if (!residual && dropped && act == ACT_NONE)
        for (int64_t i = 0; i < rows * ldy; i++) /* the same masks */
            assert_int_equal(y[i] == 0.0f, y_d[i] == 0.0f);
    if (act == ACT_NONE && !residual && !dropped && rows * out < 4000) {
        double *wide = host_bytes((rows * in + (int64_t)in * out + out + rows * out) * 8);
        double *wd = wide + rows * in, *bd = wd + (int64_t)in * out, *yd = bd + out;
        for (int64_t i = 0; i < rows * in; i++)
            wide[i] = x[i / in * ldx + i % in];
        for (int64_t i = 0; i < (int64_t)in * out; i++)
            wd[i] = w[i];
        for (int i = 0; i < out; i++)
            bd[i] = bias[i];
        ref_linear(wide, wd, with_bias ? bd : NULL, (int)rows, in, out, l.in_out, yd);
        for (int64_t r = 0; r < rows; r++)
            near_by("y in double", y_d + r * ldy, yd + r * out, out, 2 * tol());
    }
    forget();
}

IN_ALL_WAYS(linear__forward_in_all_forms, true)
{
    for (int form = 0; form < 128; form++)
        linear_forward_case(form % 3 ? 19 : 24, form % 5 ? 40 : 33, form % 7 ? 24 : 21, form,
                            form % 11 ? 0 : 16, form % 13 ? 0 : 8);
    linear_forward_case(197, 96, 384, 2 + 32, 0, 0);
    linear_forward_case(197, 384, 100, 1 + 4 + 16 + 32, 0, 0);
    linear_forward_case(8, 64, 768, 4 + 8 + 16, 0, 0);
    linear_forward_case(1, 1, 1, 0, 0, 0);
    linear_forward_case(3, 64, 50, 0, 197 * 64 - 64, 14); /* class token's rows; padded logits */
    for (int form = 0; form < 64; form += 5)
        linear_forward_case(24, 32, 40, form + 128, 0, 0);
}

/* Fresh over what is no number: the bits of adding to zeros, in dw (fp32, [in, out]) and db. */
static void fresh_weight_case(const struct linear *fresh, const void *dy, const void *x,
                              float scale, float *dw, float *db)
{
    const int64_t num[2] = {dw ? (int64_t)fresh->in * fresh->out : 0, db ? fresh->out : 0};
    float *at[2] = {dw, db}, *added[2];
    struct linear adds = *fresh;
    adds.fresh = false;
    for (int i = 0; i < 2; i++)
        cuda->zero(cuda, at[i], num[i] * 4);
    cuda->linear_backward_weight(cuda, &adds, dy, x, scale, dw, db);
    for (int i = 0; i < 2; i++) {
        added[i] = down_fp32(at[i], num[i]);
        float *not_numbers = memset(host_bytes(num[i] * 4), 0xff, (size_t)num[i] * 4);
        cuda->copy_in(cuda, at[i], not_numbers, num[i] * 4);
    }
    cuda->linear_backward_weight(cuda, fresh, dy, x, scale, dw, db);
    for (int i = 0; i < 2; i++) {
        const float *written = down_fp32(at[i], num[i]);
        for (int64_t e = 0; e < num[i]; e++)
            assert_true(written[e] == added[i][e]);
    }
}

static void linear_backward_case(int64_t rows, int in, int out, int form, int x_pad, int y_pad)
{
    static const enum act acts[] = {ACT_NONE, ACT_GELU_ERF, ACT_GELU_TANH, ACT_TANH};
    const enum act act = acts[form & 3];
    const int where = form >> 3 & 3; /* dx: apart, over add, over pre */
    const bool with_add = where == 1 || form & 32;
    const float scale = form & 64 ? 0.5f : 1.0f;
    const int64_t ldx = in + x_pad, ldy = out + y_pad;
    const bool with_sums = !(form % 3);
    const struct linear l = {.rows = rows,
                             .in = in,
                             .out = out,
                             .in_out = form & 4,
                             .x_stride = x_pad ? ldx : 0,
                             .y_stride = y_pad ? ldy : 0};
    struct linear l_cuda = l, l_fresh = l;
    l_fresh.fresh = true;
    if (with_sums)
        l_cuda.dx_sums = up_fp32(numbers(in, 1, false), in);
    float *dy = numbers(rows * ldy, 1, true), *w = numbers((int64_t)in * out, 0.2, true);
    float *pre = numbers(rows * ldx, 0.7, true), *add = numbers(rows * ldx, 1, true);
    float *x = numbers(rows * ldx, 1, true), *dx = numbers(rows * ldx, 1, true);
    float *dw = numbers((int64_t)in * out, 1, false), *db = numbers(out, 1, false);
    void *dy_c = up(dy, rows * ldy), *w_c = up(w, (int64_t)in * out), *x_c = up(x, rows * ldx);
    void *pre_c = up(pre, rows * ldx), *add_c = up(add, rows * ldx);
    float *dw_c = up_fp32(dw, (int64_t)in * out), *db_c = up_fp32(db, out);
    void *dx_c = where == 1 ? add_c : where == 2 ? pre_c : up(dx, rows * ldx);
    if (where == 1)
        dx = add;
    else if (where == 2)
        dx = pre;
    cuda->linear_backward_weight(cuda, &l, dy_c, x_c, scale, form & 128 ? NULL : dw_c,
                                 form & 256 ? NULL : db_c);
    cpu->linear_backward_weight(cpu, &l, dy, x, scale, form & 128 ? NULL : dw,
                                form & 256 ? NULL : db);
    near("dw", down_fp32(dw_c, (int64_t)in * out), dw, (int64_t)in * out, tol_sum());
    near("db", down_fp32(db_c, out), db, out, tol_sum());
    fresh_weight_case(&l_fresh, dy_c, x_c, scale, form & 128 ? NULL : dw_c,
                      form & 256 ? NULL : db_c);
    cuda->linear_backward_input(cuda, &l_cuda, dy_c, w_c, scale, act,
                                act == ACT_NONE ? NULL : pre_c, with_add ? add_c : NULL, dx_c);
    cpu->linear_backward_input(cpu, &l, dy, w, scale, act, act == ACT_NONE ? NULL : pre,
                               with_add ? add : NULL, dx);
    near("dx", down(dx_c, rows * ldx), dx, rows * ldx, tol());
    if (with_sums) {
        float *sums = host_bytes((int64_t)in * 4);
        for (int c = 0; c < in; c++) {
            sums[c] = 0.0f;
            for (int64_t r = 0; r < rows; r++)
                sums[c] += dx[r * ldx + c];
        }
        near("sums", down_fp32(l_cuda.dx_sums, in), sums, in, tol());
    }
    forget();
}

IN_ALL_WAYS(linear__backward_in_all_forms, true)
{
    for (int form = 0; form < 128; form++)
        if ((form >> 3 & 3) != 3)
            linear_backward_case(form % 3 ? 19 : 24, form % 5 ? 40 : 33, form % 7 ? 24 : 21, form,
                                 form % 11 ? 0 : 16, form % 13 ? 0 : 8);
    linear_backward_case(197, 384, 96, 1 + 32, 0, 0);
    linear_backward_case(530, 264, 24, 1 + 16 + 64, 0, 0); /* sums of several parts and strips */
    linear_backward_case(530, 264, 24, 1 + 16 + 64, 8, 8);
    linear_backward_case(531, 20, 24, 2 + 16, 0, 0);
    linear_backward_case(30, 16, 24, 128, 0, 0);
    linear_backward_case(30, 16, 24, 256 + 4, 0, 0);
    linear_backward_case(300, 16, 770, 0, 0, 0);
}

/* Either way, an epilogue or a kernel behind, may be quicker from time to time: both are right. */
static void linear__tuned_is_right_whichever_way_it_takes(void **state)
{
    (void)state;
    if (!tuned)
        skip();
    cuda = tuned;
    for (int round = 0; round < 2; round++) { /* timed, then by the plan */
        for (int form = 0; form < 64; form++) {
            linear_forward_case(24, 40, 24, form, 0, 0);
            if ((form >> 3 & 3) != 3)
                linear_backward_case(24, 40, 24, form, 0, 0);
        }
        linear_backward_case(300, 16, 770, 2 + 16, 0, 0);
        forget();
    }
}

/* A library that proposes a product with an epilogue and then does not take it. */
static void linear__refused_product_is_done_in_pieces(void **state)
{
    (void)state;
    if (!emulated)
        skip();
    cuda = by_dtype[1];
    for (int form = 0; form < 2; form++) {
        char fault[32];
        snprintf(fault, sizeof fault, "matmul@%lld", (long long)num_matmuls() + 1);
        setenv("ELAPSE_CUDASIM_FAULT", fault, 1);
        if (form == 0)
            linear_forward_case(24, 48, 56, 2 + 32, 0, 0);
        else
            linear_backward_case(24, 48, 56, 2, 0, 0);
        unsetenv("ELAPSE_CUDASIM_FAULT");
    }
}

IN_ALL_WAYS(act_backward__and_dropout_keep_the_masks_of_the_cpu, false)
{
    static const enum act acts[] = {ACT_NONE, ACT_GELU_ERF, ACT_GELU_TANH, ACT_TANH};
    for (int i = 0; i < 8; i++) {
        const int64_t num = i % 3 ? 4096 : 999;
        const int off = i >= 4 && i % 3 == 0;
        float *pre = numbers(num, 0.8, true), *dy = numbers(num, 1, true);
        void *pre_c = up_off(pre, num, off), *dy_c = up_off(dy, num, off);
        cuda->act_backward(cuda, num, acts[i % 4], pre_c, dy_c, dy_c);
        cpu->act_backward(cpu, num, acts[i % 4], pre, dy, dy);
        near("dx", down(dy_c, num), dy, num, tol());
        cuda->act_forward(cuda, num, acts[i % 4], pre_c, dy_c);
        cpu->act_forward(cpu, num, acts[i % 4], pre, dy);
        near("y", down(dy_c, num), dy, num, tol());
        forget();
    }
    for (int i = 0; i < 6; i++) {
        const int64_t rows = 12;
        const int cols = i % 2 ? 64 : 33;
        float *x = numbers(rows * cols, 1, true), *y = host_bytes(rows * cols * 4);
        struct dropout drop = {i == 5 ? 0.0f : 0.1f, 7 + (uint64_t)i, ids_host, 3}, on = drop;
        on.ids = up_bytes(ids_host, sizeof ids_host);
        void *x_c = up_off(x, rows * cols, i & 1);
        void *y_c = i < 3 ? x_c : up(x, rows * cols);
        cuda->dropout(cuda, rows, cols, &on, x_c, y_c);
        cpu->dropout(cpu, rows, cols, &drop, x, y);
        float *got = down(y_c, rows * cols);
        near("dropout", got, y, rows * cols, tol());
        for (int64_t j = 0; j < rows * cols; j++)
            assert_int_equal(got[j] == 0.0f, y[j] == 0.0f);
        forget();
    }
}

/* --- layernorm ------------------------------------------------------------------------------- */

/* where: dx beside all, over x, over add; without add; without dx; without part. */
static void norm_case(int64_t rows, int cols, int64_t stride, int where, int off, bool sums)
{
    const int64_t ld = stride ? stride : cols, num = rows * ld;
    float *x = numbers(num, 2, true), *gamma = numbers(cols, 1, false);
    float *beta = numbers(cols, 1, false), *y = host_bytes(rows * cols * 4);
    float *stats = host_bytes(rows * 8), *part = host_bytes((int64_t)cols * 12);
    float *dy = numbers(rows * cols, 1, true), *add = numbers(num, 1, true);
    void *x_c = up_off(x, num, off), *add_c = up_off(add, num, off);
    void *dy_c = up_off(dy, rows * cols, off), *y_c = up_off(dy, rows * cols, off);
    float *gamma_c = up_fp32(gamma, cols), *beta_c = up_fp32(beta, cols);
    float *stats_c = device_bytes(rows * 8), *part_c = device_bytes((int64_t)cols * 12);
    const struct layernorm n = {rows, cols, stride, gamma, beta, 1e-5f, false};
    struct layernorm n_c = {rows, cols, stride, gamma_c, beta_c, 1e-5f, false};
    cuda->layernorm_forward(cuda, &n_c, x_c, y_c, stats_c);
    cpu->layernorm_forward(cpu, &n, x, y, stats);
    near("y", down(y_c, rows * cols), y, rows * cols, tol());
    near("stats", down_fp32(stats_c, rows * 2), stats, rows * 2, 1e-5);
    void *dx_c = where == 1 ? x_c : where == 2 ? add_c : up_off(x, num, off);
    float *dx = where == 1 ? x : where == 2 ? add : copy_of(x, num);
    const bool with_add = where != 3;
    const float *summed = with_add ? copy_of(add, num) : dx;
    n_c.sums = sums = sums && where != 5;
    cuda->layernorm_backward(cuda, &n_c, dy_c, x_c, stats_c, with_add ? add_c : NULL,
                             where == 4 ? NULL : dx_c, where == 5 ? NULL : part_c);
    cpu->layernorm_backward(cpu, &n, dy, x, stats, with_add ? add : NULL, where == 4 ? NULL : dx,
                            where == 5 ? NULL : part);
    near("dx", down(dx_c, num), dx, num, tol());
    if (where != 5)
        near("part", down_fp32(part_c, 2 * cols), part, 2 * cols, 5e-5);
    for (int c = 0; c < cols && sums; c++) {
        part[2 * cols + c] = 0.0f;
        for (int64_t r = 0; r < rows; r++)
            part[2 * cols + c] += summed[r * ld + c];
    }
    if (sums)
        near("sums", down_fp32(part_c + 2 * cols, cols), part + 2 * cols, cols,
             with_add ? 5e-5 : tol()); /* of dx as it was stored or as it was before that */
    forget();
}

IN_ALL_WAYS(layernorm__forward_and_backward_of_all_widths, false)
{
    static const int widths[] = {8, 12, 33, 64, 100, 384, 768, 1024, 2048};
    for (int i = 0; i < 18; i++)
        norm_case(i % 9 < 5 ? 19 : 5, widths[i % 9], 0, i % 6, 0, i / 9);
    for (int sums = 0; sums < 2; sums++) {
        norm_case(4, 64, 200, 1, 0, sums);
        norm_case(4, 64, 201, 2, 0, sums);
        norm_case(6, 128, 0, 1, 1, sums);
        norm_case(700, 16, 0, 0, 0, sums);
        norm_case(197, 100, 0, 2, 0, sums);
    }
    for (int where = 0; where < 5; where++) { /* sums with and without add and dx, both kernels */
        norm_case(37, 48, 0, where, 0, true);
        norm_case(37, 33, 0, where, 0, true);
    }
}

/* --- decoders -------------------------------------------------------------------------------- */

/* where: as in norm_case(). */
static void rmsnorm_case(int64_t rows, int cols, int where, int off)
{
    const int64_t num = rows * cols;
    const struct rmsnorm n = {.rows = rows, .cols = cols, .eps = 1e-5f, .plus = (float)(where % 2)};
    float *x = numbers(num, 2, true), *gamma = numbers(cols, 1, false), *y = host_bytes(num * 4);
    float *stats = host_bytes(rows * 4), *part = host_bytes((int64_t)cols * 4);
    float *dy = numbers(num, 1, true), *add = numbers(num, 1, true);
    void *x_c = up_off(x, num, off), *add_c = up_off(add, num, off), *dy_c = up_off(dy, num, off);
    void *y_c = up_off(dy, num, off);
    float *gamma_c = up_fp32(gamma, cols), *stats_c = device_bytes(rows * 4);
    float *part_c = device_bytes((int64_t)cols * 4);
    cuda->rmsnorm_forward(cuda, &n, x_c, gamma_c, y_c, stats_c);
    cpu->rmsnorm_forward(cpu, &n, x, gamma, y, stats);
    near("y", down(y_c, num), y, num, tol());
    near("stats", down_fp32(stats_c, rows), stats, rows, 1e-5);
    void *dx_c = where == 1 ? x_c : where == 2 ? add_c : up_off(x, num, off);
    float *dx = where == 1 ? x : where == 2 ? add : copy_of(x, num);
    cuda->rmsnorm_backward(cuda, &n, dy_c, x_c, stats_c, gamma_c, where == 3 ? NULL : add_c,
                           where == 4 ? NULL : dx_c, where == 5 ? NULL : part_c);
    cpu->rmsnorm_backward(cpu, &n, dy, x, stats, gamma, where == 3 ? NULL : add,
                          where == 4 ? NULL : dx, where == 5 ? NULL : part);
    near("dx", down(dx_c, num), dx, num, tol());
    if (where != 5)
        near("part", down_fp32(part_c, cols), part, cols, 5e-5);
    forget();
}

IN_ALL_WAYS(rmsnorm__forward_and_backward_of_all_widths, false)
{
    /* One warp a row of 1 to 4 chunks, four warps of 2 to 8, then too wide for registers. */
    static const int widths[] = {8, 12, 33, 64, 256, 576, 896, 1024, 1536, 2048, 3072, 4096, 8200};
    for (int i = 0; i < 26; i++)
        rmsnorm_case(i % 13 < 5 ? 19 : 5, widths[i % 13], i % 6, 0);
    rmsnorm_case(37, 128, 1, 1);
    rmsnorm_case(1100, 16, 0, 0);
    rmsnorm_case(150, 1032, 2, 0);
}

/* form: 1 norms, 2 their weights are differences from 1, 4 dx over x. */
static void rotary_case(int n, int seq, int heads, int kv_heads, int d, int form, int off)
{
    const int64_t rows = (int64_t)n * seq, width = (int64_t)(heads + 2 * kv_heads) * d;
    const int64_t turned = rows * (heads + kv_heads), wide = 3 * (int64_t)heads * d;
    float *angles = host_bytes((int64_t)seq * d * 4), *gamma = numbers(2 * d, 1, false);
    for (int i = 0; i < seq * d / 2; i++) {
        angles[2 * i] = cosf((float)i);
        angles[2 * i + 1] = sinf((float)i);
    }
    struct rotary r = {.num_samples = n,
                       .seq = seq,
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .head_dim = d,
                       .angles = angles,
                       .gamma = form & 1 ? gamma : NULL,
                       .eps = 1e-6f,
                       .plus = form & 2 ? 1.0f : 0.0f},
                  on = r;
    on.angles = up_fp32(angles, (int64_t)seq * d);
    on.gamma = form & 1 ? up_fp32(gamma, 2 * d) : NULL;
    float *x = numbers(rows * width, 1, true), *qkv = host_bytes(rows * wide * 4);
    float *dqkv = numbers(rows * wide, 1, true), *stats = numbers(turned, 1, false);
    float *dx = form & 4 ? x : host_bytes(rows * width * 4), *part = numbers(2 * d, 1, false);
    void *x_c = up_off(x, rows * width, off), *qkv_c = up_off(dqkv, rows * wide, off);
    void *dqkv_c = up_off(dqkv, rows * wide, off);
    void *dx_c = form & 4 ? x_c : device_bytes(rows * width * cuda->elem_bytes);
    float *stats_c = up_fp32(stats, turned), *part_c = up_fp32(part, 2 * d);
    cuda->rotary_forward(cuda, &on, x_c, qkv_c, stats_c);
    cpu->rotary_forward(cpu, &r, x, qkv, stats);
    near("qkv", down(qkv_c, rows * wide), qkv, rows * wide, tol());
    near("stats", down_fp32(stats_c, turned), stats, turned, 1e-5);
    cuda->rotary_backward(cuda, &on, dqkv_c, x_c, stats_c, dx_c, part_c);
    cpu->rotary_backward(cpu, &r, dqkv, x, stats, dx, part);
    near("dx", down(dx_c, rows * width), dx, rows * width, tol());
    near("part", down_fp32(part_c, 2 * d), part, 2 * d, 5e-5);
    forget();
}

IN_ALL_WAYS(rotary__turns_groups_of_heads_and_back, false)
{
    static const int dims[] = {64, 128, 16, 96, 6, 256, 2, 80};
    for (int i = 0; i < 16; i++)
        rotary_case(2, 5 + i, 4, i % 3 == 0 ? 4 : i % 3, dims[i % 8], i & 7, 0);
    rotary_case(3, 90, 6, 2, 64, 1, 0); /* several tasks a slot */
    rotary_case(2, 9, 4, 2, 64, 3, 1);
    rotary_case(2, 9, 2, 1, 256, 5, 1);
}

IN_ALL_WAYS(gate__forward_and_backward_of_all_activations, false)
{
    static const enum act acts[] = {ACT_SILU, ACT_GELU_TANH, ACT_GELU_ERF};
    for (int i = 0; i < 12; i++) {
        const int64_t rows = 9 + i, cols = i % 4 == 1 ? 33 : i % 4 == 2 ? 640 : 24;
        const int64_t num = rows * cols, off = i % 4 == 3;
        float *x = numbers(2 * num, 2, true), *dy = numbers(num, 1, true), *y = host_bytes(num * 4);
        float *dx = i & 1 ? x : host_bytes(2 * num * 4);
        void *x_c = up_off(x, 2 * num, (int)off), *dy_c = up_off(dy, num, (int)off);
        void *y_c = up_off(dy, num, (int)off);
        void *dx_c = i & 1 ? x_c : device_bytes(2 * num * cuda->elem_bytes);
        cuda->gate_forward(cuda, rows, (int)cols, acts[i % 3], x_c, y_c);
        cpu->gate_forward(cpu, rows, (int)cols, acts[i % 3], x, y);
        near("y", down(y_c, num), y, num, tol());
        cuda->gate_backward(cuda, rows, (int)cols, acts[i % 3], x_c, dy_c, dx_c);
        cpu->gate_backward(cpu, rows, (int)cols, acts[i % 3], x, dy, dx);
        near("dx", down(dx_c, 2 * num), dx, 2 * num, tol());
        forget();
    }
}

/* --- attention ------------------------------------------------------------------------------- */

/* form: 1 causal, 2 padded, 4 dropout, 8 in place, 16 a window, 32 documents in a sample. */
static void attention_case(int n, int seq, int heads, int d, int form, int off)
{
    const bool causal = form & 1, padded = form & 2, dropped = form & 4, in_place = form & 8;
    const int64_t rows = (int64_t)n * seq, width = (int64_t)heads * d;
    const int32_t lengths[] = {seq - seq / 3, seq, 1};
    struct dropout drop = {dropped ? 0.1f : 0.0f, 5, ids_host, 0}, on = drop;
    int32_t *starts = host_bytes(rows * 4);
    for (int64_t i = 0; i < rows; i++) /* documents of three lengths */
        starts[i] = (int32_t)(i % seq < seq / 5 ? 0 : i % seq < seq / 3 ? seq / 5 : seq / 3);
    struct attention a = {.num_samples = n,
                          .seq = seq,
                          .heads = heads,
                          .head_dim = d,
                          .causal = causal,
                          .window = form & 16 ? 1 + seq / 4 : 0,
                          .starts = form & 32 ? starts : NULL,
                          .lengths = padded ? lengths : NULL},
                     ac = a;
    on.ids = up_bytes(ids_host, sizeof ids_host);
    if (form & 32)
        ac.starts = up_bytes(starts, rows * 4);
    if (padded)
        ac.lengths = up_bytes(lengths, sizeof lengths);
    float *qkv = numbers(3 * rows * width, 1, true), *ctx = host_bytes(rows * width * 4);
    float *lse = host_bytes(rows * heads * 4), *dctx = numbers(rows * width, 1, true);
    float *dqkv = host_bytes(3 * rows * width * 4);
    void *qkv_c = up_off(qkv, 3 * rows * width, off), *dctx_c = up_off(dctx, rows * width, off);
    void *ctx_c = up_off(dctx, rows * width, off);
    float *lse_c = device_bytes(rows * heads * 4);
    void *dqkv_c = in_place ? qkv_c : device_bytes(3 * rows * width * cuda->elem_bytes);
    cuda->attention_forward(cuda, &ac, qkv_c, &on, ctx_c, lse_c);
    cpu->attention_forward(cpu, &a, qkv, &drop, ctx, lse);
    float *ctx_d = down(ctx_c, rows * width);
    near("ctx", ctx_d, ctx, rows * width, tol());
    if (!padded) /* rows of a sample of length 1 need no lse in backward */
        near("lse", down_fp32(lse_c, rows * heads), lse, rows * heads, low() ? 2e-3 : 1e-5);
    if (!dropped && seq <= 256 && rows * width < 20000) {
        double *wide = host_bytes(4 * rows * width * 8), *ctx64 = wide + 3 * rows * width;
        for (int64_t i = 0; i < 3 * rows * width; i++)
            wide[i] = qkv[i];
        ref_attention_from(wide, n, seq, heads, d, causal, a.lengths, a.window, a.starts, NULL,
                           ctx64);
        near_by("ctx in double", ctx_d, ctx64, rows * width, tol());
    }
    if (form % 5 != 1)
        ac.dqkv_sums = device_bytes(3 * width * 4);
    if (low() && d % 32 == 0 && d <= 128 && !cuda->sums_dqkv(cuda, &ac, &on))
        fail_msg("the bias's gradient is another pass over dqkv");
    cuda->attention_backward(cuda, &ac, qkv_c, &on, ctx_c, lse_c, dctx_c, dqkv_c);
    cpu->attention_backward(cpu, &a, qkv, &drop, ctx, lse, dctx, dqkv);
    float *got = down(dqkv_c, 3 * rows * width);
    /* Sums are of the written values, or of unrounded ones where these come on the way: 2^-8 of each off. */
    if (ac.dqkv_sums) {
        float *sums = down_fp32(ac.dqkv_sums, 3 * width);
        for (int64_t c = 0; c < 3 * width; c++) {
            double sum = 0.0, size = 0.0;
            for (int64_t r = 0; r < rows; r++) {
                sum += got[r * 3 * width + c];
                size += fabs(got[r * 3 * width + c]);
            }
            if (!(fabs(sums[c] - sum) <= (low() ? 0x1p-8 : 1e-6) * size))
                fail_msg("column %lld of dqkv sums to %g, must be %g (absolute %g)", (long long)c,
                         sums[c], sum, size);
        }
    }
    for (int part = 0; part < 3; part++) { /* dq, dk, dv by themselves: their sizes differ */
        float *x = host_bytes(rows * width * 4), *y = host_bytes(rows * width * 4);
        for (int64_t r = 0; r < rows; r++) {
            memcpy(x + r * width, got + (r * 3 + part) * width, (size_t)width * 4);
            memcpy(y + r * width, dqkv + (r * 3 + part) * width, (size_t)width * 4);
        }
        near(part == 0 ? "dq" : part == 1 ? "dk" : "dv", x, y, rows * width, low() ? 1.2e-2 : 2e-5);
    }
    forget();
}

IN_ALL_WAYS(attention__all_masks_and_head_widths, false)
{
    static const int dims[] = {32, 64, 128, 16, 5};
    for (int form = 0; form < 16; form++)
        attention_case(form & 2 ? 3 : 2, 37 + form, 2, dims[form % 5], form, 0);
    attention_case(1, 197, 1, 64, 0, 0);
    attention_case(1, 197, 1, 32, 1 + 4 + 8, 0);
    attention_case(3, 70, 1, 64, 1 + 2 + 4, 0);
    attention_case(1, 130, 1, 128, 4, 0);
    attention_case(1, 1, 1, 64, 1, 0);
    attention_case(2, 33, 2, 64, 2, 1);      /* rows not aligned to 16 bytes */
    for (int form = 0; form < 16; form += 3) /* a head in one block, of 4 warps and of 8 */
        attention_case(form & 2 ? 2 : 1, form % 2 ? 97 : 128, 1, form % 4 ? 64 : 32, form, 0);
    attention_case(1, 197, 1, 64, 1 + 4 + 8, 0);
    attention_case(2, 197, 1, 64, 2 + 8, 0);
    attention_case(1, 256, 1, 64, 8, 0);
    attention_case(1, 257, 1, 64, 8, 0); /* longer: in two kernels */
    attention_case(2, 290, 1, 64, 1 + 2 + 4 + 8, 0);
    attention_case(3, 140, 1, 96, 1 + 2, 0);
}

IN_ALL_WAYS(attention__windows_and_documents_in_all_kernels, false)
{
    static const int dims[] = {64, 128, 32, 16, 5, 96};
    for (int form = 16 + 1; form < 64; form += 2) /* causal */
        attention_case(form & 2 ? 3 : 2, 40 + form, 1, dims[form / 2 % 6], form, 0);
    attention_case(1, 197, 1, 64, 1 + 8 + 16, 0);      /* a head in one block */
    attention_case(2, 300, 1, 64, 1 + 8 + 16 + 32, 0); /* tiles that a block passes by */
    attention_case(3, 290, 1, 128, 1 + 2 + 16, 0);
    attention_case(1, 600, 1, 64, 1 + 4 + 16, 0);
    attention_case(2, 150, 1, 160, 1 + 16, 0); /* in fp32 arithmetic, tiles of 32 */
    attention_case(2, 33, 2, 64, 1 + 2 + 32, 1);
}

/* 99 KiB a block, as sm_86 and sm_89 have: no room for a head of more than 128 tokens. */
static void attention__with_little_shared_memory(void **state)
{
    const struct cuda_spec spec = {.device = 0, .dtype = DTYPE_BF16, .threads = 1};
    struct err err = {0};
    (void)state;
    if (!emulated) {
        print_message("the device has what it has: skipped\n");
        skip();
    }
    setenv("ELAPSE_CUDASIM_SHARED", "101376", 1);
    cuda = cuda_load_backend(&spec, &err);
    assert_non_null(cuda);
    attention_case(2, 100, 1, 64, 0, 0);
    attention_case(2, 197, 1, 64, 0, 0);
    attention_case(1, 230, 1, 64, 0, 0);
    attention_case(1, 200, 1, 128, 8, 0);
    backend_free(cuda);
    unsetenv("ELAPSE_CUDASIM_SHARED");
}

/* --- embeddings ------------------------------------------------------------------------------ */

/* scale: 0 with a table of positions, else without. */
static void tokens_case(int n, int seq, int hidden, int vocab, bool types, bool skewed, float scale)
{
    const int64_t rows = (int64_t)n * seq;
    int32_t *ids = host_bytes(rows * 4), *type_ids = host_bytes(rows * 4);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = skewed && i % 3 ? 2 : (int32_t)(rng_bits(9, (uint32_t)i) % (uint32_t)vocab);
        type_ids[i] = i % 5 < 2;
    }
    struct tokens t = {.num_samples = n,
                       .seq = seq,
                       .hidden = hidden,
                       .vocab = vocab,
                       .ids = ids,
                       .scale = scale == 1.0f ? 0.0f : scale,
                       .types = types ? type_ids : NULL},
                  tc = t;
    tc.ids = up_bytes(ids, rows * 4);
    if (types)
        tc.types = up_bytes(type_ids, rows * 4);
    float *wte = numbers((int64_t)vocab * hidden, 1, true), *wpe = numbers(seq * hidden, 1, true);
    float *wtt = numbers(2 * hidden, 1, true), *y = host_bytes(rows * hidden * 4);
    float *dy = numbers(rows * hidden, 1, true), *dwte = numbers((int64_t)vocab * hidden, 1, false);
    float *dwpe = numbers(seq * hidden, 1, false), *dwtt = numbers(2 * hidden, 1, false);
    void *y_c = up(dy, rows * hidden), *dy_c = up(dy, rows * hidden);
    void *wte_c = up(wte, (int64_t)vocab * hidden), *wpe_c = up(wpe, seq * hidden);
    void *wtt_c = up(wtt, 2 * hidden);
    float *dwte_c = up_fp32(dwte, (int64_t)vocab * hidden), *dwpe_c = up_fp32(dwpe, seq * hidden);
    float *dwtt_c = up_fp32(dwtt, 2 * hidden);
    const bool pos = scale == 0.0f;
    cuda->tokens_forward(cuda, &tc, wte_c, pos ? wpe_c : NULL, types ? wtt_c : NULL, y_c);
    cpu->tokens_forward(cpu, &t, wte, pos ? wpe : NULL, types ? wtt : NULL, y);
    near("y", down(y_c, rows * hidden), y, rows * hidden, tol());
    cuda->tokens_backward(cuda, &tc, dy_c, dwte_c, pos ? dwpe_c : NULL, types ? dwtt_c : NULL);
    cpu->tokens_backward(cpu, &t, dy, dwte, pos ? dwpe : NULL, types ? dwtt : NULL);
    near("dwte", down_fp32(dwte_c, (int64_t)vocab * hidden), dwte, (int64_t)vocab * hidden, 1e-5);
    near("dwpe", down_fp32(dwpe_c, seq * hidden), dwpe, seq * hidden, 1e-5);
    near("dwtt", down_fp32(dwtt_c, 2 * hidden), dwtt, 2 * hidden, 1e-5);
    forget();
}

IN_ALL_WAYS(tokens__forward_and_backward_count_every_use, false)
{
    tokens_case(4, 25, 64, 300, false, false, 0);
    tokens_case(3, 33, 48, 3000, true, true, 0);
    tokens_case(2, 40, 33, 17, true, true, 0);
    tokens_case(1, 5, 8, 2, false, false, 0);
    tokens_case(4, 25, 64, 300, false, false, 1);
    tokens_case(3, 70, 33, 17, false, true, 8);
    tokens_case(2, 4300, 1, 70000, false, true,
                0); /* warps that sort several hundred, three passes */
}

static void patches_case(int n, int channels, int image, int patch, int hidden)
{
    const struct patches p = {n, channels, image, patch, hidden};
    const int side = image / patch;
    const int64_t tokens = 1 + side * side, rows = n * tokens,
                  in = (int64_t)channels * patch * patch;
    float *images = numbers((int64_t)n * channels * image * image, 1, false);
    float *cols = host_bytes(rows * in * 4), *cls = numbers(hidden, 1, true);
    float *pos = numbers(tokens * hidden, 1, true), *y = numbers(rows * hidden, 1, true);
    float *dy = numbers(rows * hidden, 1, true), *dcls = numbers(hidden, 1, false);
    float *dpos = numbers(tokens * hidden, 1, false), *db = numbers(hidden, 1, false);
    float *images_c = up_fp32(images, (int64_t)n * channels * image * image);
    void *cols_c = device_bytes(rows * in * cuda->elem_bytes), *y_c = up(y, rows * hidden);
    void *cls_c = up(cls, hidden), *pos_c = up(pos, tokens * hidden), *dy_c = up(dy, rows * hidden);
    float *dcls_c = up_fp32(dcls, hidden), *dpos_c = up_fp32(dpos, tokens * hidden);
    float *db_c = up_fp32(db, hidden);
    cuda->patchify(cuda, &p, images_c, cols_c);
    cpu->patchify(cpu, &p, images, cols);
    near("cols", down(cols_c, rows * in), cols, rows * in, tol());
    cuda->patch_finish(cuda, &p, cls_c, pos_c, y_c);
    cpu->patch_finish(cpu, &p, cls, pos, y);
    near("y", down(y_c, rows * hidden), y, rows * hidden, tol());
    cuda->patch_backward(cuda, &p, dy_c, dcls_c, dpos_c, db_c);
    cpu->patch_backward(cpu, &p, dy, dcls, dpos, db);
    near("dcls", down_fp32(dcls_c, hidden), dcls, hidden, 1e-5);
    near("dpos", down_fp32(dpos_c, tokens * hidden), dpos, tokens * hidden, 1e-5);
    near("db", down_fp32(db_c, hidden), db, hidden, 1e-5);
    forget();
}

IN_ALL_WAYS(patches__each_pixel_once_and_back, false)
{
    patches_case(3, 3, 32, 8, 64);
    patches_case(2, 3, 28, 7, 48);
    patches_case(2, 1, 32, 4, 33);
}

/* --- loss ------------------------------------------------------------------------------------ */

static void xent_case(int64_t rows, int classes, int pad, bool spans, float smoothing)
{
    const int64_t num = spans ? rows * classes : rows * (classes + pad);
    const struct xent x = {.rows = rows,
                           .classes = classes,
                           .group = spans ? 2 : 1,
                           .group_stride = spans ? 2 * (int64_t)classes : classes + pad,
                           .row_stride = spans ? 1 : 0,
                           .class_stride = spans ? 2 : 1,
                           .smoothing = smoothing};
    int32_t *labels = host_bytes(rows * 4);
    for (int64_t i = 0; i < rows; i++)
        labels[i] = i % 5 == 3 ? -100 : (int32_t)(rng_bits(3, (uint32_t)i) % (uint32_t)classes);
    struct xent_sums want, got;
    float *logits = numbers(num, 3, true);
    for (int64_t i = 0; i < rows; i += 2) { /* these are right, wherever their maximum lies */
        const float *row = logits + i / x.group * x.group_stride + i % x.group * x.row_stride;
        labels[i] = 0;
        for (int c = 1; c < classes; c++)
            if (row[c * x.class_stride] > row[labels[i] * x.class_stride])
                labels[i] = c;
    }
    void *logits_c = up(logits, num), *labels_c = up_bytes(labels, rows * 4);
    struct xent_sums *sums_c = device_bytes(sizeof *sums_c);
    cuda->xent(cuda, &x, labels_c, logits_c, sums_c);
    cpu->xent(cpu, &x, labels, logits, &want);
    down_bytes(&got, sums_c, sizeof got);
    near("gradient", down(logits_c, num), logits, num, tol());
    assert_int_equal(got.count, want.count);
    assert_int_equal(got.correct, want.correct);
    assert_true(fabs(got.loss - want.loss) <= 2e-6 * fabs(want.loss));
    forget();
}

IN_ALL_WAYS(xent__rows_spans_padding_and_smoothing, false)
{
    xent_case(11, 1000, 0, false, 0.0f);
    xent_case(7, 10, 0, false, 0.1f);
    xent_case(3, 9001, 0, false, 0.1f);
    xent_case(6, 12299, 1, false, 0.1f); /* rows that wait in shared memory, at any alignment */
    xent_case(2, 40003, 0, false, 0.0f); /* in fp32 too long for that */
    xent_case(6, 1003, 5, false, 0.0f);
    xent_case(8, 197, 0, true, 0.1f);
    xent_case(300, 2, 0, false, 0.0f);
    xent_case(3, 1, 0, false, 0.0f);
    enum { TIED = 700 }; /* of equal logits the first class wins */
    const struct xent x = {
        .rows = 2, .classes = TIED, .group = 1, .group_stride = TIED, .class_stride = 1};
    const int32_t labels[2] = {0, 1};
    float *logits = numbers(2 * TIED, 0, true);
    struct xent_sums sums, *sums_c = device_bytes(sizeof sums);
    cuda->xent(cuda, &x, up_bytes(labels, sizeof labels), up(logits, 2 * TIED), sums_c);
    down_bytes(&sums, sums_c, sizeof sums);
    assert_int_equal(sums.count, 2);
    assert_int_equal(sums.correct, 1);
    assert_true(fabs(sums.loss - 2 * log(TIED)) < 1e-4);
}

/* --- elementwise, sums, optimizers ----------------------------------------------------------- */

static void elementwise_case(int64_t num, int off)
{
    float *x = numbers(num, 1, true), *y = numbers(num, 1, true), *f = numbers(num, 1, false);
    float *g = numbers(num, 1, false);
    void *x_c = up_off(x, num, off), *y_c = up_off(y, num, off), *low_c = up_off(x, num, off);
    float *f_c = up_fp32(f, num), *g_c = up_fp32(g, num);
    cuda->add(cuda, num, x_c, y_c);
    cpu->add(cpu, num, x, y);
    near("add", down(y_c, num), y, num, tol());
    cuda->accumulate(cuda, num, f_c, g_c);
    cpu->accumulate(cpu, num, f, g);
    assert_memory_equal(down_fp32(g_c, num), g, (size_t)num * 4);
    cuda->scale(cuda, num, 4.0f / 3, g_c);
    cpu->scale(cpu, num, 4.0f / 3, g);
    assert_memory_equal(down_fp32(g_c, num), g, (size_t)num * 4);
    cuda->round(cuda, num, f_c, low_c);
    float *rounded = down(low_c, num);
    for (int64_t i = 0; i < num; i++)
        assert_true(rounded[i] == (low() ? round_low(f[i]) : f[i]));
    double sum = 0, sum_cuda = 0;
    struct err err = {0};
    const float *one = f, *one_c = f_c;
    assert_int_equal(cpu->sumsq_many(cpu, 1, &num, &one, &sum, &err), OK);
    assert_int_equal(cuda->sumsq_many(cuda, 1, &num, &one_c, &sum_cuda, &err), OK);
    assert_true(fabs(sum - sum_cuda) <= 1e-12 * sum);
    hash_in(&sum_cuda, sizeof sum_cuda);
    forget();
}

IN_ALL_WAYS(elementwise__sums_copies_and_rounding, false)
{
    elementwise_case(1000, 0);
    elementwise_case(1003, 0);
    elementwise_case(77, 1);
    elementwise_case(1, 0);
    elementwise_case(5000, 0);
    for (int i = 0; i < 2; i++) { /* rows beside one another, and apart again */
        const int64_t rows = 7;
        const int cols = i ? 64 : 33;
        float *a = numbers(rows * cols, 1, true), *b = numbers(rows * cols, 1, true);
        float *wide = host_bytes(2 * rows * cols * 4);
        void *a_c = up(a, rows * cols), *b_c = up(b, rows * cols);
        void *wide_c = device_bytes(2 * rows * cols * cuda->elem_bytes);
        cuda->join(cuda, rows, cols, a_c, b_c, wide_c);
        cpu->join(cpu, rows, cols, a, b, wide);
        assert_memory_equal(down(wide_c, 2 * rows * cols), wide, (size_t)(2 * rows * cols) * 4);
        cuda->zero(cuda, a_c, rows * cols * cuda->elem_bytes);
        cuda->zero(cuda, b_c, rows * cols * cuda->elem_bytes);
        cuda->split(cuda, rows, cols, wide_c, a_c, NULL);
        assert_memory_equal(down(a_c, rows * cols), a, (size_t)(rows * cols) * 4);
        cuda->split(cuda, rows, cols, wide_c, NULL, b_c);
        assert_memory_equal(down(b_c, rows * cols), b, (size_t)(rows * cols) * 4);
        cuda->copy(cuda, a_c, b_c, rows * cols * cuda->elem_bytes);
        assert_memory_equal(down(a_c, rows * cols), b, (size_t)(rows * cols) * 4);
        forget();
    }
}

static void optimizer_case(int64_t num, int kind)
{
    static const enum optimizer_kind kinds[] = {OPTIMIZER_SGD, OPTIMIZER_SGD, OPTIMIZER_ADAMW,
                                                OPTIMIZER_LAMB};
    const struct update_rule rule = {
        .kind = kinds[kind],
        .sgd = {0.1f,  0.9f, 0.01f, 0.5f},
        .adam = { 1e-2, 0.9, 0.999,  1e-8,    0.01, 0.5f, 3}
    };
    float *g = numbers(num, 1, false), *w = numbers(num, 1, false), *m = numbers(num, 0.1, false);
    float *v = numbers(num, 1, false);
    for (int64_t i = 0; i < num; i++)
        v[i] *= v[i];
    float *g_c = up_fp32(g, num), *w_c = up_fp32(w, num), *m_c = up_fp32(m, num);
    float *v_c = up_fp32(v, num);
    for (int i = 0; i < 2; i++) {
        struct backend *be = i ? cuda : cpu;
        const struct update tensor = {
            .num = num,
            .grad = i ? g_c : g,
            .weight = i ? w_c : w,
            .state = {kind == 0 ? NULL
                      : i       ? m_c
                                : m,
                      kind < 2 ? NULL
                      : i      ? v_c
                               : v},
            .decay = true
        };
        be->update(be, &rule, 1, &tensor);
    }
    near("weight", down_fp32(w_c, num), w, num, 1e-6);
    near("momentum", down_fp32(m_c, num), m, num, 1e-6);
    near("second moment", down_fp32(v_c, num), v, num, 1e-6);
    forget();
}

IN_ALL_WAYS(optimizers__sgd_adamw_lamb, false)
{
    for (int kind = 0; kind < 4; kind++) {
        optimizer_case(1000, kind);
        optimizer_case(4003, kind);
        optimizer_case(1, kind);
    }
}

/* Many tensors at once, with the copy in the dtype; one is empty, one needs several blocks. */
static void update_case(enum optimizer_kind kind)
{
    enum { TENSORS = 60, MOST = 20001, ALL = 64000 };
    const struct update_rule rule = {
        .kind = kind,
        .sgd = {0.1f,  0.9f, 0.01f, 0.5f},
        .adam = { 1e-2, 0.9, 0.999,  1e-8,    0.01, 0.5f, 3}
    };
    float *mine[4], *theirs[4]; /* grad, weight, m, v: all tensors one behind another */
    struct update host[TENSORS], device[TENSORS];
    double sums[TENSORS], sum;
    struct err err = {0};
    int64_t at = 0;
    for (int i = 0; i < 4; i++) {
        mine[i] = numbers(ALL, i == 2 ? 0.1 : 1, false);
        for (int64_t k = 0; k < ALL && i == 3; k++)
            mine[i][k] *= mine[i][k];
        theirs[i] = up_fp32(mine[i], ALL);
    }
    char *low_c = up(mine[1], ALL);
    for (int t = 0; t < TENSORS; t++) {
        const int64_t num = t == 7 ? 0 : t == 50 ? MOST : 1 + t * 37 % 300;
        const bool momentum = kind != OPTIMIZER_SGD || t % 5;
        host[t] = (struct update){
            .num = num,
            .grad = mine[0] + at,
            .weight = mine[1] + at,
            .state = {momentum ? mine[2] + at : NULL, mine[3] + at},
            .decay = t % 2
        };
        device[t] = (struct update){
            .num = num,
            .grad = theirs[0] + at,
            .weight = theirs[1] + at,
            .state = {momentum ? theirs[2] + at : NULL,
                      kind == OPTIMIZER_SGD ? NULL : theirs[3] + at},
            .low = low() ? low_c + at * cuda->elem_bytes : NULL,
            .decay = t % 2,
            .sumsq = t % 4 == 1 ? NULL : &sums[t]
        };
        at += num + (t % 3 ? 0 : 3); /* now and then a gap that must stay as it is */
    }
    assert_true(at <= ALL);
    cpu->update(cpu, &rule, TENSORS, host);
    cuda->update(cuda, &rule, TENSORS, device);
    float *weights = down_fp32(theirs[1], ALL);
    near("weights", weights, mine[1], ALL, 1e-6);
    near("m", down_fp32(theirs[2], ALL), mine[2], ALL, 1e-6);
    near("v", down_fp32(theirs[3], ALL), mine[3], ALL, 1e-6);
    for (int t = 0; t < TENSORS; t++) { /* to the bit */
        assert_int_equal(cuda->sumsq_many(cuda, 1, &device[t].num, &device[t].grad, &sum, &err),
                         OK);
        assert_true(!device[t].sumsq || sums[t] == sum);
    }
    float *rounded = down(low_c, at);
    int64_t past = 0;
    for (int t = 0; t < TENSORS && low(); t++) {
        for (int64_t i = past; i < past + device[t].num; i++)
            assert_true(rounded[i] == round_low(weights[i]));
        past += device[t].num + (t % 3 ? 0 : 3);
    }
    forget();
}

IN_ALL_WAYS(update__many_tensors_in_one_launch, false)
{
    update_case(OPTIMIZER_SGD);
    update_case(OPTIMIZER_ADAMW);
    update_case(OPTIMIZER_LAMB);
}

/* Policy apf: moves in quarters and averages with halves are exact, so both sides have the same bits. */
static void apf_case(int64_t num)
{
    struct apf_update host = {.num = num}, device = {.num = num};
    double held[2] = {-1, -1};
    struct err err = {0};
    bool some = false;
    float *moves = host_bytes(num * 4);
    host.weight = host_bytes(num * 4);
    host.held = &held[0];
    device.held = &held[1];
    device.low = low() ? device_bytes(num * cuda->elem_bytes) : NULL;
    for (int s = 0; s < APF_STATES; s++) {
        host.state[s] = host_bytes(num * 4);
        memset(host.state[s], 0, (size_t)num * 4);
    }
    memset(host.weight, 0, (size_t)num * 4);
    device.weight = up_fp32(host.weight, num);
    for (int s = 0; s < APF_STATES; s++)
        device.state[s] = up_fp32(host.state[s], num);
    for (int step = 0; step < 12; step++) {
        const struct apf_rule rule = {0.5f, 0.3f, step % 2 == 1, true};
        for (int64_t i = 0; i < num; i++)
            moves[i] = (float)((int)((uint64_t)i * 2654435761u >> (step + 3)) % 5 - 2) / 4;
        float *moves_c = up_fp32(moves, num);
        cpu->accumulate(cpu, num, moves, host.weight);
        cuda->accumulate(cuda, num, moves_c, device.weight);
        cpu->apf(cpu, &rule, &host);
        cuda->apf(cuda, &rule, &device);
        assert_int_equal(cuda->sync(cuda, &err), OK);
        assert_true(held[0] == held[1]);
        some |= held[0] > 0 && held[0] < (double)num;
    }
    assert_true(some || num == 1);
    assert_memory_equal(down_fp32(device.weight, num), host.weight, (size_t)num * 4);
    for (int s = 0; s < APF_STATES; s++)
        assert_memory_equal(down_fp32(device.state[s], num), host.state[s], (size_t)num * 4);
    if (low())
        near("rounded", down(device.low, num), host.weight, num, 4e-3);
    forget();
}

IN_ALL_WAYS(apf__holds_the_same_weights, false)
{
    apf_case(1);
    apf_case(20001);
}

static void rows_case(int total, int num, int cols, int off)
{
    int32_t *rows = host_bytes((int64_t)num * 4);
    for (int i = 0; i < num; i++)
        rows[i] = i * total / num;
    float *x = numbers((int64_t)total * cols, 1, true), *y = host_bytes((int64_t)num * cols * 4);
    void *x_c = up_off(x, (int64_t)total * cols, off), *y_c = up_off(x, (int64_t)num * cols, off);
    const int32_t *rows_c = up_bytes(rows, (int64_t)num * 4);
    cuda->gather_rows(cuda, num, cols, rows_c, x_c, y_c);
    cpu->gather_rows(cpu, num, cols, rows, x, y);
    assert_memory_equal(down(y_c, (int64_t)num * cols), y, (size_t)num * (size_t)cols * 4);
    cuda->scatter_rows(cuda, total, num, cols, rows_c, y_c, x_c);
    cpu->scatter_rows(cpu, total, num, cols, rows, y, x);
    assert_memory_equal(down(x_c, (int64_t)total * cols), x, (size_t)total * (size_t)cols * 4);
    forget();
}

IN_ALL_WAYS(rows__gathered_and_put_back, false)
{
    rows_case(50, 13, 64, 0);
    rows_case(50, 50, 33, 0);
    rows_case(20, 3, 10, 1);
}

/* --- memory, copies, events ------------------------------------------------------------------ */

/* A device that is held starts nothing; a hold ends at its release, and by itself. */
IN_ALL_WAYS(hold__keeps_what_follows_back_until_its_release, false)
{
    enum { BYTES = 4096 };
    struct err err = {0};
    struct backend_event *after = NULL;
    assert_int_equal(cuda->event_new(cuda, &after, &err), OK);
    char *device = device_bytes(BYTES);
    unsigned char *back = host_bytes(BYTES);
    for (int turn = 0; turn < 4; turn++) {
        const bool released = turn % 2 == 0;
        cuda->hold(cuda);
        cuda->zero(cuda, device, BYTES);
        cuda->event_record(cuda, after);
        assert_true(emulated || !cuda->event_done(cuda, after)); /* it may work at once */
        if (released)
            cuda->release(cuda);
        cuda->event_wait(cuda, after);
        assert_true(cuda->event_done(cuda, after));
    }
    down_bytes(back, device, BYTES);
    assert_int_equal(back[BYTES - 1], 0);
    cuda->event_free(cuda, after);
}

IN_ALL_WAYS(copies__of_pinned_memory_and_of_plain_come_whole, false)
{
    enum { BYTES = 100000, PIECES = 9 };
    struct err err = {0};
    void *pinned = NULL;
    struct backend_event *before = NULL, *after = NULL;
    assert_int_equal(cuda->alloc_host(cuda, BYTES, &pinned, &err), OK);
    assert_int_equal(cuda->event_new(cuda, &before, &err), OK);
    assert_int_equal(cuda->event_new(cuda, &after, &err), OK);
    assert_true(cuda->event_done(cuda, before)); /* never recorded */
    unsigned char *plain = host_bytes(BYTES), *back = host_bytes(BYTES);
    char *device = device_bytes(BYTES * PIECES);
    cuda->event_record(cuda, before);
    for (int i = 0; i < PIECES; i++) { /* a plain buffer may be used again at once */
        memset(plain, i + 1, BYTES);
        cuda->copy_in(cuda, device + i * BYTES, plain, BYTES);
    }
    memset(pinned, 77, BYTES);
    cuda->copy_in(cuda, device + 3 * BYTES, pinned, BYTES);
    cuda->event_record(cuda, after);
    cuda->event_wait(cuda, after);
    assert_true(cuda->event_ns(cuda, before, after) >= 0);
    memset(pinned, 0, BYTES);
    for (int i = 0; i < PIECES; i++) {
        down_bytes(back, device + i * BYTES, BYTES);
        for (int k = 0; k < BYTES; k += 999)
            assert_int_equal(back[k], i == 3 ? 77 : i + 1);
    }
    cuda->copy_out(cuda, pinned, device, BYTES);
    sync_now();
    assert_int_equal(((unsigned char *)pinned)[BYTES - 1], 1);
    cuda->event_free(cuda, before);
    cuda->event_free(cuda, after);
    cuda->free_host(cuda, pinned);
}

/* --- a device, or none ----------------------------------------------------------------------- */

static int open_backends(void **state)
{
    const char *device = getenv("ELAPSE_TEST_DEVICE");
    char path[4096];
    struct err err = {0};
    (void)state;
    cpu = backend_cpu_new(DTYPE_FP32, 1, &err);
    if (!cpu)
        return -1;
    if (!device || strcmp(device, "cuda") != 0) {
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
        if (length <= 0)
            return -1;
        path[length] = '\0';
        char *slash = strrchr(path, '/');
        snprintf(slash, 64, "/../cudasim/elapse-cuda-check.so");
        if (getenv("ELAPSE_CUDA_LIB")) /* another emulation */
            snprintf(path, sizeof path, "%s", getenv("ELAPSE_CUDA_LIB"));
        if (access(path, R_OK) != 0) {
            print_message("no GPU and no emulation (CUDA toolkit and g++): skipped\n");
            return 0;
        }
        setenv("ELAPSE_CUDA_LIB", path, 1);
        emulated = true;
    }
    static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_TF32};
    for (int i = 0; i < 3; i++) {
        by_dtype[i] = cuda_load_backend(
            &(struct cuda_spec){.device = 0, .dtype = dtypes[i], .threads = 1}, &err);
        if (!by_dtype[i]) {
            print_error("%s\n", err.msg);
            return -1;
        }
    }
    tuned = cuda_load_backend(
        &(struct cuda_spec){.device = 0, .dtype = DTYPE_BF16, .threads = 1, .tune = true}, &err);
    if (!tuned) {
        print_error("%s\n", err.msg);
        return -1;
    }
    if (emulated) {
        void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* the same once more */
        assert_non_null(lib);
        void *symbols[] = {dlsym(lib, "cudasim_set_order"), dlsym(lib, "cudasim_set_streams"),
                           dlsym(lib, "cudasim_take_fault"), dlsym(lib, "cudasim_num_matmuls")};
        memcpy(&set_order, &symbols[0], sizeof symbols[0]);
        memcpy(&set_streams, &symbols[1], sizeof symbols[1]);
        memcpy(&take_fault, &symbols[2], sizeof symbols[2]);
        memcpy(&num_matmuls, &symbols[3], sizeof symbols[3]);
    }
    return 0;
}

static int close_backends(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        backend_free(by_dtype[i]);
    backend_free(tuned);
    backend_free(cpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear__forward_in_all_forms),
        cmocka_unit_test(linear__backward_in_all_forms),
        cmocka_unit_test(linear__refused_product_is_done_in_pieces),
        cmocka_unit_test(linear__tuned_is_right_whichever_way_it_takes),
        cmocka_unit_test(act_backward__and_dropout_keep_the_masks_of_the_cpu),
        cmocka_unit_test(layernorm__forward_and_backward_of_all_widths),
        cmocka_unit_test(rmsnorm__forward_and_backward_of_all_widths),
        cmocka_unit_test(rotary__turns_groups_of_heads_and_back),
        cmocka_unit_test(gate__forward_and_backward_of_all_activations),
        cmocka_unit_test(attention__all_masks_and_head_widths),
        cmocka_unit_test(attention__windows_and_documents_in_all_kernels),
        cmocka_unit_test(attention__with_little_shared_memory),
        cmocka_unit_test(tokens__forward_and_backward_count_every_use),
        cmocka_unit_test(patches__each_pixel_once_and_back),
        cmocka_unit_test(xent__rows_spans_padding_and_smoothing),
        cmocka_unit_test(elementwise__sums_copies_and_rounding),
        cmocka_unit_test(optimizers__sgd_adamw_lamb),
        cmocka_unit_test(update__many_tensors_in_one_launch),
        cmocka_unit_test(apf__holds_the_same_weights),
        cmocka_unit_test(rows__gathered_and_put_back),
        cmocka_unit_test(hold__keeps_what_follows_back_until_its_release),
        cmocka_unit_test(copies__of_pinned_memory_and_of_plain_come_whole),
    };
    return cmocka_run_group_tests(tests, open_backends, close_backends);
}
