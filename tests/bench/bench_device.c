/* Kernels of one backend by themselves: median time, and what that is in bytes that must move (each
 * operand once) and in operations of the model's count. Beside them the device's own copy and a
 * large matrix product, the ceilings to compare with. Attention, and GELU behind a product, are our
 * own kernels', and in bf16 on cuda once more cuDNN's where it can.
 *   bench_device [DEVICE [DTYPE [SHRINK [REPEATS]]]]    cuda bf16 1 11
 * Batches are divided by SHRINK, and from 1024 on also the other sides by 16, for an emulated
 * device; REPEATS 1 has no warm-up. Without such a device: one line, exit 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/base/backend.h"
#include "exec/base/bf16.h"
#include "exec/base/plugin.h"
#include "exec/base/rng.h"
#include "exec/device/cuda_load.h"
#include "exec/device/devices.h"

enum { MAX_REPEATS = 101, WARM = 3, SEED_ELEMS = 1 << 18, MAX_TENSORS = 32 };

static struct backend *be;
static int64_t shrink = 1;
static int repeats = 11;
static void *kept[MAX_TENSORS];
static int num_kept;
static bool failed; /* reported already */
/* Functions of cuda_attention_pick.h and cuda_matmul.h; NULL unless cuDNN computes the rows. */
static int (*cudnn_served)(struct backend *be, bool backward);

static bool ok(enum status rc, const struct err *err)
{
    if (rc != OK && !failed)
        fprintf(stderr, "bench_device: %s\n", err->msg);
    failed = failed || rc != OK;
    return !failed;
}

static void *bytes_of(int64_t bytes)
{
    struct err err = {0};
    void *at = NULL;
    if (failed || !ok(be->alloc(be, bytes, &at, &err), &err))
        return NULL;
    return kept[num_kept++] = at;
}

static void give_back(void)
{
    while (num_kept > 0)
        be->free(be, kept[--num_kept]);
}

/* A random piece, copied over and over. */
static void *repeated(const void *piece, int64_t piece_bytes, int64_t bytes)
{
    struct err err = {0};
    char *at = bytes_of(bytes);
    if (!at)
        return NULL;
    int64_t have = bytes < piece_bytes ? bytes : piece_bytes;
    be->copy_in(be, at, piece, have);
    while (have < bytes) {
        const int64_t more = bytes - have < have ? bytes - have : have;
        be->copy(be, at + have, at, more);
        have += more;
    }
    ok(be->sync(be, &err), &err);
    return at;
}

static float *fp32_of(int64_t elems)
{
    static float piece[SEED_ELEMS];
    if (piece[0] == 0.0f)
        for (int i = 0; i < SEED_ELEMS; i++)
            piece[i] = (float)rng_normal(1, (uint64_t)i);
    return repeated(piece, sizeof piece, elems * (int64_t)sizeof *piece);
}
/* Elements of the backend's dtype. */
static void *elems_of(int64_t elems)
{
    static uint16_t piece[SEED_ELEMS];
    if (be->elem_bytes == 4)
        return fp32_of(elems);
    if (piece[0] == 0)
        for (int i = 0; i < SEED_ELEMS; i++)
            piece[i] = bf16_from((float)rng_normal(1, (uint64_t)i));
    return repeated(piece, sizeof piece, elems * (int64_t)sizeof *piece);
}
static int32_t *ids_of(int64_t elems, int32_t below)
{
    static int32_t piece[SEED_ELEMS];
    for (int i = 0; i < SEED_ELEMS; i++)
        piece[i] = (int32_t)(rng_bits(2, (uint32_t)i) % (uint32_t)below);
    return repeated(piece, sizeof piece, elems * (int64_t)sizeof *piece);
}

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Times call(ctx), prints a row, and frees all tensors. */
static void row(const char *name, double bytes, double flops, void (*call)(const void *ctx),
                const void *ctx)
{
    struct backend_event *from = NULL, *to = NULL;
    struct err err = {0};
    int64_t ns[MAX_REPEATS] = {0};
    if (!failed && ok(be->event_new(be, &from, &err), &err) &&
        ok(be->event_new(be, &to, &err), &err)) {
        for (int r = repeats > 1 ? -WARM : 0; r < repeats && !failed; r++) {
            be->event_record(be, from);
            call(ctx);
            be->event_record(be, to);
            if (ok(be->sync(be, &err), &err) && r >= 0)
                ns[r] = be->event_ns(be, from, to);
        }
        qsort(ns, (size_t)repeats, sizeof *ns, by_value);
        const double s = (double)ns[repeats / 2] * 1e-9;
        if (!failed && s > 0.0) {
            printf("%-44s %9.3f ms %8.0f GB/s", name, s * 1e3, bytes / s * 1e-9);
            if (flops > 0.0)
                printf(" %8.1f TFLOP/s", flops / s * 1e-12);
            printf("\n");
        }
    }
    be->event_free(be, from);
    be->event_free(be, to);
    give_back();
}

/* --- the kernels ----------------------------------------------------------------------------- */

struct operands {
    int64_t num;
    int cols;
    void *t[6];
    float *f[8];
    int64_t *ids;
    struct linear linear;
    enum act act;
    struct attention attention;
    struct xent xent;
    struct tokens tokens;
    struct dropout drop;
    struct update update;
    struct rotary rotary;
};

static void do_copy(const void *ctx)
{
    const struct operands *o = ctx;
    be->copy(be, o->t[0], o->t[1], backend_bytes(be, o->num));
}
static void do_linear(const void *ctx)
{
    const struct operands *o = ctx;
    be->linear_forward(be, &o->linear, o->t[0], o->t[1], NULL, ACT_NONE, NULL, NULL, NULL, o->t[2]);
}
static void do_linear_gelu(const void *ctx)
{
    const struct operands *o = ctx;
    be->linear_forward(be, &o->linear, o->t[0], o->t[1], o->t[4], o->act, NULL, NULL, o->t[3],
                       o->t[2]);
}
static void do_linear_dgelu(const void *ctx)
{
    const struct operands *o = ctx;
    const struct linear back = {
        .rows = o->linear.rows, .in = o->linear.out, .out = o->linear.in, .in_out = true};
    be->linear_backward_input(be, &back, o->t[0], o->t[1], 1.0f, o->act, o->t[3], NULL, o->t[3]);
}
static void do_linear_dgelu_sums(const void *ctx)
{
    const struct operands *o = ctx;
    const struct linear back = {.rows = o->linear.rows,
                                .in = o->linear.out,
                                .out = o->linear.in,
                                .in_out = true,
                                .dx_sums = o->f[1]};
    be->linear_backward_input(be, &back, o->t[0], o->t[1], 1.0f, o->act, o->t[3], NULL, o->t[3]);
}
static void do_linear_weight_alone(const void *ctx)
{
    const struct operands *o = ctx;
    be->linear_backward_weight(be, &o->linear, o->t[2], o->t[0], 1.0f, o->f[0], NULL);
}
static void do_linear_weight(const void *ctx)
{
    const struct operands *o = ctx;
    be->linear_backward_weight(be, &o->linear, o->t[2], o->t[0], 1.0f, o->f[0], o->f[1]);
}
static void do_attention(const void *ctx)
{
    const struct operands *o = ctx;
    be->attention_forward(be, &o->attention, o->t[0], &o->drop, o->t[1], o->f[0]);
}
static void do_attention_backward(const void *ctx)
{
    const struct operands *o = ctx;
    be->attention_backward(be, &o->attention, o->t[0], &o->drop, o->t[1], o->f[0], o->t[2],
                           o->t[3]);
}
static struct layernorm norm_of(const struct operands *o, bool sums)
{
    return (struct layernorm){.rows = o->num,
                              .cols = o->cols,
                              .gamma = o->f[0],
                              .beta = o->f[1],
                              .eps = 1e-5f,
                              .sums = sums};
}
static void do_norm(const void *ctx)
{
    const struct operands *o = ctx;
    const struct layernorm norm = norm_of(o, false);
    be->layernorm_forward(be, &norm, o->t[0], o->t[1], o->f[2]);
}
static void do_norm_backward(const void *ctx)
{
    const struct operands *o = ctx;
    const struct layernorm norm = norm_of(o, false);
    be->layernorm_backward(be, &norm, o->t[2], o->t[0], o->f[2], o->t[3], o->t[1], o->f[3]);
}
static void do_norm_backward_sums(const void *ctx)
{
    const struct operands *o = ctx;
    const struct layernorm norm = norm_of(o, true);
    be->layernorm_backward(be, &norm, o->t[2], o->t[0], o->f[2], o->t[3], o->t[1], o->f[3]);
}
static void do_rmsnorm(const void *ctx)
{
    const struct operands *o = ctx;
    const struct rmsnorm n = {.rows = o->num, .cols = o->cols, .eps = 1e-5f};
    be->rmsnorm_forward(be, &n, o->t[0], o->f[0], o->t[1], o->f[1]);
}
static void do_rmsnorm_backward(const void *ctx)
{
    const struct operands *o = ctx;
    const struct rmsnorm n = {.rows = o->num, .cols = o->cols, .eps = 1e-5f};
    be->rmsnorm_backward(be, &n, o->t[2], o->t[0], o->f[1], o->f[0], o->t[3], o->t[1], o->f[2]);
}
static void do_rotary(const void *ctx)
{
    const struct operands *o = ctx;
    be->rotary_forward(be, &o->rotary, o->t[0], o->t[1], o->f[2]);
}
static void do_rotary_backward(const void *ctx)
{
    const struct operands *o = ctx;
    be->rotary_backward(be, &o->rotary, o->t[1], o->t[0], o->f[2], o->t[2], o->f[3]);
}
static void do_gate(const void *ctx)
{
    const struct operands *o = ctx;
    be->gate_forward(be, o->num, o->cols, o->act, o->t[0], o->t[1]);
}
static void do_gate_backward(const void *ctx)
{
    const struct operands *o = ctx;
    be->gate_backward(be, o->num, o->cols, o->act, o->t[0], o->t[1], o->t[2]);
}
static void do_xent(const void *ctx)
{
    const struct operands *o = ctx;
    be->xent(be, &o->xent, o->tokens.ids, o->t[0], (struct xent_sums *)(void *)o->f[0]);
}
static void do_tokens_backward(const void *ctx)
{
    const struct operands *o = ctx;
    be->tokens_backward(be, &o->tokens, o->t[0], o->f[0], o->f[1], NULL);
}
static void do_update(const void *ctx)
{
    const struct operands *o = ctx;
    const struct update_rule rule = {
        .kind = OPTIMIZER_ADAMW,
        .adam = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_mul = 1, .step = 9}
    };
    be->update(be, &rule, 1, &o->update);
}
static void do_dropout(const void *ctx)
{
    const struct operands *o = ctx;
    be->dropout(be, o->num, o->cols, &o->drop, o->t[0], o->t[1]);
}

/* --- the table ------------------------------------------------------------------------------- */

static int64_t batch(int64_t n)
{
    return n / shrink > 0 ? n / shrink : 1;
}

static int side(int n)
{
    return shrink < 1024 || n < 16 * 16 ? n : (n / 16 + 7) / 8 * 8;
}

static int64_t *sample_ids(int64_t n)
{
    int64_t *ids = bytes_of(n * (int64_t)sizeof *ids);
    if (ids)
        be->zero(be, ids, n * (int64_t)sizeof *ids);
    return ids;
}

/* window: 0 for none; heads are of dim elements. */
static void attention_rows_of(const char *model, int64_t n, int tokens, int heads, int dim,
                              bool causal, int window, float p)
{
    const int seq = side(tokens);
    for (int backward = 0; backward < 2; backward++) {
        char name[96];
        const int64_t width = (int64_t)heads * dim, rows = batch(n) * seq;
        struct operands o = {
            .attention = {.num_samples = batch(n),
                          .seq = seq,
                          .heads = heads,
                          .head_dim = dim,
                          .causal = causal,
                          .window = window},
            .drop = {.p = p,        .key = 5, .ids = sample_ids(batch(n))}
        };
        o.t[0] = elems_of(rows * 3 * width);
        o.t[1] = elems_of(rows * width);
        o.f[0] = fp32_of(batch(n) * heads * seq);
        if (backward) {
            o.t[2] = elems_of(rows * width);
            o.t[3] = elems_of(rows * 3 * width);
        }
        const int served = cudnn_served ? cudnn_served(be, backward) : 0;
        if (!failed)
            do_attention(&o); /* lse of these scores */
        if (!failed && backward)
            do_attention_backward(&o);
        const bool by_cudnn = cudnn_served && cudnn_served(be, backward) > served;
        const double keys =
            window ? window - 0.5 * window * window / seq : seq * (causal ? 0.5 : 1);
        const double pairs = (double)rows * keys;
        snprintf(name, sizeof name, "attention %s %s n=%lld T=%d%s%s%s", backward ? "bwd" : "fwd",
                 model, (long long)batch(n), seq,
                 window   ? " window"
                 : causal ? " causal"
                          : "",
                 p > 0.0f ? " dropout" : "", by_cudnn ? ", cuDNN" : "");
        if (cudnn_served && !by_cudnn) {
            give_back();
            continue; /* it has said why */
        }
        row(name, (double)backend_bytes(be, rows * width * (backward ? 8 : 4)),
            pairs * (double)width * (backward ? 10.0 : 4.0),
            backward ? do_attention_backward : do_attention, &o);
    }
}

static void attention_rows(const char *model, int64_t n, int tokens, int heads, bool causal,
                           float p)
{
    attention_rows_of(model, n, tokens, heads, 64, causal, 0, p);
}

static void attention_without_dropout(void)
{
    attention_rows_of("llama3-8b", 2, 2048, 32, 128, true, 0, 0.0f);
    attention_rows("gpt2", 16, 1024, 12, true, 0.0f);
    attention_rows("vit-b16", 256, 197, 12, false, 0.0f);
    attention_rows("bert-large", 256, 128, 16, false, 0.0f);
}

static void linear_row(int64_t rows, int in, int out, int out_stride)
{
    char name[96];
    struct operands o = {
        .linear = {.rows = batch(rows), .in = in, .out = out, .y_stride = out_stride}
    };
    o.t[0] = elems_of(batch(rows) * in);
    o.t[1] = elems_of((int64_t)in * out);
    o.t[2] = elems_of(batch(rows) * (out_stride ? out_stride : out));
    snprintf(name, sizeof name, "linear fwd %lld x %d x %d", (long long)batch(rows), in, out);
    row(name, (double)backend_bytes(be, batch(rows) * (in + out) + (int64_t)in * out),
        2.0 * (double)batch(rows) * in * out, do_linear, &o);
}

/* The passes around an MLP's wide layer: GELU behind a product, its gradient, weights and bias. */
static void mlp_rows(int64_t rows, int in, int out)
{
    static const struct {
        const char *name;
        enum act act;
        void (*call)(const void *ctx);
        int wide, narrow; /* tensors of out and of in columns that must move */
    } kinds[] = {
        {"linear fwd gelu tanh",      ACT_GELU_TANH, do_linear_gelu,         2, 1},
        {"linear fwd gelu erf",       ACT_GELU_ERF,  do_linear_gelu,         2, 1},
        {"linear bwd gelu tanh",      ACT_GELU_TANH, do_linear_dgelu,        2, 1},
        {"linear bwd gelu erf",       ACT_GELU_ERF,  do_linear_dgelu,        2, 1},
        {"linear bwd gelu erf, sums", ACT_GELU_ERF,  do_linear_dgelu_sums,   2, 1},
        {"linear weight",             ACT_NONE,      do_linear_weight_alone, 1, 1},
        {"linear weight and bias",    ACT_NONE,      do_linear_weight,       1, 1},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[96];
        if (kinds[i].call == do_linear_dgelu_sums && !be->sums_dx)
            continue;
        const int64_t n = batch(rows), weights = (int64_t)in * out;
        struct operands o = {
            .linear = {.rows = n, .in = in, .out = out},
              .act = kinds[i].act
        };
        const bool gradient = strncmp(kinds[i].name, "linear weight", 13) == 0;
        o.t[0] = elems_of(n * in);
        o.t[1] = elems_of(weights);
        o.t[2] = elems_of(n * out);
        o.t[3] = elems_of(n * out);
        o.t[4] = elems_of(out);
        o.f[0] = fp32_of(weights);
        o.f[1] = fp32_of(out);
        snprintf(name, sizeof name, "%s %lld x %d x %d", kinds[i].name, (long long)n, in, out);
        row(name,
            (double)backend_bytes(be, n * (kinds[i].wide * out + kinds[i].narrow * in)) +
                (double)weights * (gradient ? 8 : be->elem_bytes),
            2.0 * (double)n * (double)weights, kinds[i].call, &o);
    }
}

/* Rows of Llama 3.2 1B (d = 64) and of Qwen3 1.7B (d = 128, queries and keys normalised). */
static void decoder_rows(void)
{
    const int64_t rows = batch(1 << 14), hidden = side(2048), wide = side(8192), seq = side(1024);
    const double elems = (double)backend_bytes(be, rows);
    struct operands o = {.num = rows, .cols = (int)hidden};
    for (int backward = 0; backward < 2; backward++) {
        for (int i = 0; i < (backward ? 4 : 2); i++)
            o.t[i] = elems_of(rows * hidden);
        for (int i = 0; i < 3; i++)
            o.f[i] = fp32_of(i == 1 ? rows : hidden);
        row(backward ? "rms norm bwd 2048" : "rms norm fwd 2048",
            elems * (double)hidden * (backward ? 4 : 2), 0.0,
            backward ? do_rmsnorm_backward : do_rmsnorm, &o);
    }
    for (int i = 0; i < 4; i++) {
        const bool qwen = i & 1, backward = i & 2;
        const int heads = qwen ? 16 : 32, d = qwen ? 128 : 64, all = heads + 16;
        o.f[1] = fp32_of(2 * d);
        o.rotary = (struct rotary){.num_samples = rows / seq > 0 ? rows / seq : 1,
                                   .seq = (int)(rows < seq ? rows : seq),
                                   .heads = heads,
                                   .kv_heads = 8,
                                   .head_dim = d,
                                   .angles = fp32_of(seq * d),
                                   .gamma = qwen ? o.f[1] : NULL,
                                   .eps = 1e-6f};
        o.t[0] = elems_of(rows * all * d);
        o.t[1] = elems_of(rows * 3 * heads * d);
        o.t[2] = elems_of(rows * all * d);
        o.f[2] = fp32_of(rows * all);
        o.f[3] = fp32_of(2 * d);
        row(backward ? (qwen ? "rotary bwd 16 of 128, norm" : "rotary bwd 32 of 64")
                     : (qwen ? "rotary fwd 16 of 128, norm" : "rotary fwd 32 of 64"),
            elems * d * (3 * heads + all * (qwen && backward ? 2 : 1)), 0.0,
            backward ? do_rotary_backward : do_rotary, &o);
    }
    o.cols = (int)wide;
    o.act = ACT_SILU;
    for (int backward = 0; backward < 2; backward++) {
        for (int i = 0; i < 3; i++)
            o.t[i] = elems_of(rows * wide * (i == 1 ? 1 : 2));
        row(backward ? "gate bwd 8192" : "gate fwd 8192", elems * (double)wide * (backward ? 5 : 3),
            0.0, backward ? do_gate_backward : do_gate, &o);
    }
    attention_rows_of("mistral", 2, 4096, 32, 128, true, side(1024), 0.0f);
}

static void run(void)
{
    const int h = side(768), classes = side(50257), padded = side(50304);
    struct operands o = {.num = batch(1 << 29)};
    o.t[0] = elems_of(o.num);
    o.t[1] = elems_of(o.num);
    row("copy", 2.0 * (double)backend_bytes(be, o.num), 0.0, do_copy, &o);
    linear_row(8192, side(8192), side(8192), 0);
    linear_row(1 << 16, h, 4 * h, 0);
    linear_row(1 << 14, h, (classes + 7) / 8 * 8,
               padded); /* GPT-2's head, as models/arch.h has it */
    mlp_rows(1 << 15, h, 4 * h);
    attention_without_dropout();
    attention_rows("gpt2", 16, 1024, 12, true, 0.1f);
    attention_rows("bert-large", 256, 128, 16, false, 0.1f);

    o = (struct operands){.num = batch(1 << 18), .cols = h};
    const double elems = (double)backend_bytes(be, o.num * h);
    const struct {
        const char *name;
        int passes; /* over the elements */
        void (*call)(const void *ctx);
    } norms[] = {
        {"layer norm fwd",          2, do_norm              },
        {"layer norm bwd",          4, do_norm_backward     },
        {"layer norm bwd and sums", 4, do_norm_backward_sums},
    };
    for (int kind = 0; kind < 2 + be->sums_norm; kind++) {
        for (int i = 0; i < norms[kind].passes; i++)
            o.t[i] = elems_of(o.num * h);
        o.f[0] = fp32_of(h);
        o.f[1] = fp32_of(h);
        o.f[2] = fp32_of(o.num * 2);
        o.f[3] = fp32_of(3 * h);
        row(norms[kind].name, elems * norms[kind].passes, 0.0, norms[kind].call, &o);
    }
    decoder_rows();
    o.drop = (struct dropout){.p = 0.1f, .key = 5, .rows_per_sample = o.num, .ids = sample_ids(1)};
    o.t[0] = elems_of(o.num * h);
    o.t[1] = elems_of(o.num * h);
    row("dropout", elems * 2, 0.0, do_dropout, &o);

    o = (struct operands){.num = batch(1 << 14)};
    o.xent = (struct xent){
        .rows = o.num, .classes = classes, .group = 1, .group_stride = padded, .class_stride = 1};
    o.t[0] = elems_of(o.num * padded);
    o.tokens.ids = ids_of(o.num, classes);
    o.f[0] = fp32_of(64);
    row("cross-entropy of 50257 classes", 2.0 * (double)backend_bytes(be, o.num * classes), 0.0,
        do_xent, &o);

    o.tokens =
        (struct tokens){.num_samples = batch(16), .seq = 1024, .hidden = h, .vocab = classes};
    o.tokens.ids = ids_of(o.tokens.num_samples * 1024, classes);
    o.t[0] = elems_of(o.tokens.num_samples * 1024 * h);
    o.f[0] = fp32_of((int64_t)classes * h);
    o.f[1] = fp32_of((int64_t)1024 * h);
    row("tokens bwd, 50257 ids", (double)o.tokens.num_samples * 1024 * h * (2 * be->elem_bytes + 8),
        0.0, do_tokens_backward, &o);

    const int64_t params = batch(124 << 20);
    o.update = (struct update){.num = params, .grad = fp32_of(params), .weight = fp32_of(params)};
    o.update.state[0] = fp32_of(params);
    o.update.state[1] = bytes_of(params * 4);
    if (!failed)
        be->zero(be, o.update.state[1], params * 4);
    o.update.low = be->elem_bytes == 2 ? bytes_of(params * 2) : NULL;
    row("adamw", (double)params * (be->elem_bytes == 2 ? 30 : 28), 0.0, do_update, &o);
}

int main(int argc, char **argv)
{
    const char *dtype = argc > 2 ? argv[2] : "bf16";
    struct backend_spec spec = {.device = argc > 1 ? argv[1] : "cuda", .threads = 1, .tune = true};
    struct err err = {0};
    const char *const dtypes[] = {
        [DTYPE_FP32] = "fp32", [DTYPE_BF16] = "bf16", [DTYPE_TF32] = "tf32"};
    int known = 0;
    while (known < 3 && strcmp(dtype, dtypes[known]) != 0)
        known++;
    if (known == 3) {
        fprintf(stderr, "bench_device: dtype must be fp32, bf16 or tf32, got '%s'\n", dtype);
        return 2;
    }
    spec.dtype = (enum dtype)known;
    shrink = argc > 3 && atoll(argv[3]) > 0 ? atoll(argv[3]) : 1;
    if (argc > 4 && atoi(argv[4]) > 0 && atoi(argv[4]) <= MAX_REPEATS)
        repeats = atoi(argv[4]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("ELAPSE_ATTENTION", "own", 1);
    be = backend_new(&spec, &err);
    if (!be) {
        printf("bench_device: skipped: %s\n", err.msg);
        return 0;
    }
    run();
    backend_free(be);
    if (strcmp(spec.device, "cuda") != 0 || spec.dtype != DTYPE_BF16 || failed)
        return failed;
    void *attention = plugin_symbol(PLUGIN_CUDA, "cuda_pick_served", &err);
    if (!ok(attention ? OK : err.status, &err))
        return failed;
    memcpy(&cudnn_served, &attention, sizeof attention);
    setenv("ELAPSE_ATTENTION", "cudnn", 1);
    be = backend_new(&spec, &err);
    if (ok(be ? OK : err.status, &err))
        attention_without_dropout();
    backend_free(be);
    return failed;
}
