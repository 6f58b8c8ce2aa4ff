/* A training step (forward, backward, update) of whole models on the cpu backend, one micro-batch:
 * the C half of tests/bench/bench_torch.py, which alternates the two.
 *   bench_kernels MODEL THREADS REPEATS [bf16] [ops]    MODEL: minilm vit-tiny gpt2 llama
 * prints the median step time in ms, the GFLOP/s of the model's own FLOP count (x3), and the memory
 * of the stage. One thread is timed by its processor time, which other work on the machine hardly
 * lengthens; several are timed by the clock. With `ops` the time of a step by kernel follows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/stage/stage.h"

struct bench {
    const char *name, *model;
    int64_t batch;
};
#define LLAMA_100M                                                                                 \
    "llama3.2-1b:seq=256,layers=12,hidden=768,heads=12,kv_heads=4,mlp=2048,vocab=32000"
static const struct bench benches[] = {
    {"minilm",   "minilm-l6:seq=64,task=classify,classes=2", 32},
    {"vit-tiny", "vit-tiny:image=32,patch=4,classes=10",     64},
    {"gpt2",     "gpt2:seq=256",                             4 },
    {"llama",    LLAMA_100M,                                 2 },
};

static clockid_t clock_used = CLOCK_MONOTONIC;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(clock_used, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* --- time by kernel -------------------------------------------------------------------------- */

/* One row of the table: a kernel, and for a product its sizes. */
struct kernel_time {
    const char *name;
    int64_t rows;
    int in, out, calls;
    double ms;
};
enum { MAX_OPS = 64 };
static struct kernel_time ops[MAX_OPS];
static int num_ops;
static struct backend kernels; /* the backend's own functions */

static void op_add(const char *name, const struct linear *l, double ms)
{
    const struct kernel_time want = {name, l ? l->rows : 0, l ? l->in : 0, l ? l->out : 0, 0, 0.0};
    int i = 0;
    while (i < num_ops && (strcmp(ops[i].name, name) != 0 || ops[i].rows != want.rows ||
                           ops[i].in != want.in || ops[i].out != want.out))
        i++;
    if (i == MAX_OPS)
        return;
    if (i == num_ops)
        ops[num_ops++] = want;
    ops[i].calls++;
    ops[i].ms += ms;
}

/* A function of struct backend that times the one it replaces. */
#define TIMED(name, l, parameters, arguments)                                                      \
    static void timed_##name parameters                                                            \
    {                                                                                              \
        const double start = now_ms();                                                             \
        kernels.name arguments;                                                                    \
        op_add(#name, l, now_ms() - start);                                                        \
    }
#define BE struct backend *be
#define IN const void *
TIMED(zero, NULL, (BE, void *y, int64_t n), (be, y, n))
TIMED(copy, NULL, (BE, void *y, IN x, int64_t n), (be, y, x, n))
TIMED(linear_forward, l,
      (BE, const struct linear *l, IN x, IN w, IN b, enum act act, IN add, const struct dropout *d,
       void *pre, void *y),
      (be, l, x, w, b, act, add, d, pre, y))
TIMED(linear_backward_input, l,
      (BE, const struct linear *l, IN dy, IN w, float scale, enum act act, IN pre, IN add,
       void *dx),
      (be, l, dy, w, scale, act, pre, add, dx))
TIMED(linear_backward_weight, l,
      (BE, const struct linear *l, IN dy, IN x, float scale, float *dw, float *db),
      (be, l, dy, x, scale, dw, db))
TIMED(layernorm_forward, NULL, (BE, const struct layernorm *n, IN x, void *y, float *stats),
      (be, n, x, y, stats))
TIMED(layernorm_backward, NULL,
      (BE, const struct layernorm *n, IN dy, IN x, const float *stats, IN add, void *dx,
       float *part),
      (be, n, dy, x, stats, add, dx, part))
TIMED(rmsnorm_forward, NULL,
      (BE, const struct rmsnorm *n, IN x, const float *g, void *y, float *stats),
      (be, n, x, g, y, stats))
TIMED(rmsnorm_backward, NULL,
      (BE, const struct rmsnorm *n, IN dy, IN x, const float *stats, const float *g, IN add,
       void *dx, float *part),
      (be, n, dy, x, stats, g, add, dx, part))
TIMED(rotary_forward, NULL, (BE, const struct rotary *r, IN x, void *qkv, float *stats),
      (be, r, x, qkv, stats))
TIMED(rotary_backward, NULL,
      (BE, const struct rotary *r, IN dqkv, IN x, const float *stats, void *dx, float *part),
      (be, r, dqkv, x, stats, dx, part))
TIMED(gate_forward, NULL, (BE, int64_t rows, int cols, enum act act, IN x, void *y),
      (be, rows, cols, act, x, y))
TIMED(gate_backward, NULL, (BE, int64_t rows, int cols, enum act act, IN x, IN dy, void *dx),
      (be, rows, cols, act, x, dy, dx))
TIMED(attention_forward, NULL,
      (BE, const struct attention *a, IN qkv, const struct dropout *d, void *ctx, float *lse),
      (be, a, qkv, d, ctx, lse))
TIMED(attention_backward, NULL,
      (BE, const struct attention *a, IN qkv, const struct dropout *d, IN ctx, const float *lse,
       IN dctx, void *dqkv),
      (be, a, qkv, d, ctx, lse, dctx, dqkv))
TIMED(patchify, NULL, (BE, const struct patches *p, const float *x, void *y), (be, p, x, y))
TIMED(tokens_forward, NULL, (BE, const struct tokens *t, IN e, IN p, IN k, void *y),
      (be, t, e, p, k, y))
TIMED(tokens_backward, NULL, (BE, const struct tokens *t, IN dy, float *e, float *p, float *k),
      (be, t, dy, e, p, k))
TIMED(xent, NULL,
      (BE, const struct xent *x, const int32_t *labels, void *logits, struct xent_sums *sums),
      (be, x, labels, logits, sums))
TIMED(accumulate, NULL, (BE, int64_t n, const float *x, float *y), (be, n, x, y))
TIMED(update, NULL, (BE, const struct update_rule *rule, int count, const struct update *tensors),
      (be, rule, count, tensors))

static void ops_install(struct backend *be)
{
    kernels = *be;
    num_ops = 0;
#define REPLACE(name) be->name = timed_##name
    REPLACE(zero), REPLACE(copy), REPLACE(linear_forward), REPLACE(linear_backward_input);
    REPLACE(linear_backward_weight), REPLACE(layernorm_forward), REPLACE(layernorm_backward);
    REPLACE(rmsnorm_forward), REPLACE(rmsnorm_backward), REPLACE(rotary_forward);
    REPLACE(rotary_backward), REPLACE(gate_forward), REPLACE(gate_backward);
    REPLACE(attention_forward), REPLACE(attention_backward), REPLACE(patchify);
    REPLACE(tokens_forward), REPLACE(tokens_backward), REPLACE(xent), REPLACE(accumulate);
    REPLACE(update);
}

static int by_ms(const void *a, const void *b)
{
    const double x = ((const struct kernel_time *)a)->ms, y = ((const struct kernel_time *)b)->ms;
    return x > y ? -1 : x < y;
}

/* total: of all steps, in ms. */
static void ops_print(int steps, double total)
{
    double rest = total;
    qsort(ops, (size_t)num_ops, sizeof *ops, by_ms);
    for (int i = 0; i < num_ops; i++) {
        const struct kernel_time *o = &ops[i];
        const double ms = o->ms / steps;
        rest -= o->ms;
        printf("  %-23s", o->name);
        if (o->rows)
            printf("%6lld x %5d -> %5d %6.1f GFLOP/s", (long long)o->rows, o->in, o->out,
                   2e-6 * (double)o->rows * o->in * o->out * o->calls / steps / ms);
        else
            printf("%37s", "");
        printf(" %4d calls %8.2f ms %5.1f %%\n", o->calls / steps, ms, 100.0 * o->ms / total);
    }
    printf("  %-60s %15.2f ms %5.1f %%\n", "rest", rest / steps, 100.0 * rest / total);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static enum status run(const struct bench *b, enum dtype dtype, int threads, int repeats,
                       bool by_op, struct err *err)
{
    struct job job;
    struct stage *stage = NULL;
    job_defaults(&job);
    job.train.dtype = dtype;
    model_clear(&job.model);
    enum status rc = model_parse(b->model, &job.model, err);
    const struct model *m = &job.model;
    struct backend *be = backend_cpu_new(dtype, threads, err);
    double *times = calloc((size_t)repeats, sizeof *times);
    if (rc != OK || !be || !times)
        goto out;
    const struct stage_spec spec = {.model = m,
                                    .job = &job,
                                    .backend = be,
                                    .end_item = m->num_items,
                                    .max_samples = b->batch,
                                    .max_live = 1};
    rc = stage_new(&spec, &stage, err);
    if (rc == OK)
        rc = stage_init_weights(stage, 1, err);
    if (rc != OK)
        goto out;
    const int64_t n = b->batch, image = (int64_t)m->channels * m->image * m->image;
    int64_t *ids = calloc((size_t)n, sizeof *ids);
    float *images = calloc((size_t)(n * image + 1), sizeof *images);
    int32_t *tokens = calloc((size_t)(n * m->seq), sizeof *tokens);
    int32_t *labels = calloc((size_t)(n * m->seq), sizeof *labels);
    for (int64_t i = 0; i < n * image; i++)
        images[i] = (float)rng_normal(3, (uint64_t)i);
    for (int64_t i = 0; i < n * m->seq; i++) {
        tokens[i] = m->vocab ? (int32_t)(rng_bits(1, (uint32_t)i) % (uint32_t)m->vocab) : 0;
        labels[i] = (int32_t)(rng_bits(2, (uint32_t)i) %
                              (uint32_t)(m->task == TASK_CAUSAL_LM ? m->vocab : m->classes));
    }
    const struct sample_block block = {
        .num_samples = n, .ids = ids, .images = images, .tokens = tokens, .labels = labels};
    double flops = 0.0;
    for (int i = 0; i < m->num_items; i++)
        flops += 3.0 * (double)m->items[i].fwd_flops * (double)n;
    struct loss_sums loss = {0};
    for (int r = -1; r < repeats && rc == OK; r++) { /* one warm-up */
        void *in = NULL, *out = NULL;
        if (r == 0 && by_op)
            ops_install(be);
        const double start = now_ms();
        stage_begin_grad(stage);
        rc = stage_forward(stage, &(struct stage_batch){.block = &block}, &in, &out, true, err);
        if (rc == OK)
            rc = stage_loss(stage, 0, &loss, err);
        if (rc == OK)
            rc = stage_backward(
                stage,
                &(struct stage_batch){.block = &block, .grad_scale = 1.0f / (float)loss.count},
                BACKWARD_BOTH, NULL, NULL, err);
        if (rc == OK) {
            stage_tied_add(stage);
            stage_update(stage, 0, 1e-3, 1.0f, false);
        }
        if (r >= 0)
            times[r] = now_ms() - start;
    }
    double total = 0.0;
    for (int r = 0; r < repeats; r++)
        total += times[r];
    qsort(times, (size_t)repeats, sizeof *times, by_value);
    if (rc == OK)
        printf(
            "%s %d threads: median %.1f ms min %.1f ms %.1f samples/s %.1f GFLOP/s %s %.1f MiB\n",
            b->name, threads, times[repeats / 2], times[0], 1e3 * (double)n / times[repeats / 2],
            flops / times[repeats / 2] * 1e-6, dtype == DTYPE_BF16 ? "bf16" : "fp32",
            (double)stage_bytes(stage) / 1048576);
    if (rc == OK && by_op)
        ops_print(repeats, total);
    free(ids);
    free(images);
    free(tokens);
    free(labels);
out:
    free(times);
    stage_free(stage);
    backend_free(be);
    job_clear(&job);
    return rc;
}

int main(int argc, char **argv)
{
    const int threads = argc > 2 ? atoi(argv[2]) : 2, repeats = argc > 3 ? atoi(argv[3]) : 3;
    enum dtype dtype = DTYPE_FP32;
    bool known = false, by_op = false;
    for (int i = 4; i < argc; i++) {
        dtype = strcmp(argv[i], "bf16") == 0 ? DTYPE_BF16 : dtype;
        by_op = by_op || strcmp(argv[i], "ops") == 0;
    }
    if (threads == 1)
        clock_used = CLOCK_PROCESS_CPUTIME_ID;
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        struct err err = {0};
        if (argc > 1 && strcmp(argv[1], benches[i].name) != 0)
            continue;
        known = true;
        if (run(&benches[i], dtype, threads, repeats > 0 ? repeats : 1, by_op, &err) != OK) {
            fprintf(stderr, "bench_kernels: %s\n", err.msg);
            return status_exit_code(err.status);
        }
    }
    if (!known)
        fprintf(stderr, "bench_kernels: no model '%s': minilm, vit-tiny, gpt2 or llama\n", argv[1]);
    return known ? 0 : 2;
}
