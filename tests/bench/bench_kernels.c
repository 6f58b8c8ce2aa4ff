/* A training step (forward, backward, update) of whole models on the cpu backend, one micro-batch:
 * the C half of tests/bench/bench_torch.py, which alternates the two.
 *   bench_kernels MODEL THREADS REPEATS [bf16]    MODEL: minilm vit-tiny gpt2 llama
 * prints the median step time in ms, the GFLOP/s of the model's own FLOP count (x3), and the memory
 * of the stage. */
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

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static enum status run(const struct bench *b, enum dtype dtype, int threads, int repeats,
                       struct err *err)
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
    qsort(times, (size_t)repeats, sizeof *times, by_value);
    if (rc == OK)
        printf(
            "%s %d threads: median %.1f ms min %.1f ms %.1f samples/s %.1f GFLOP/s %s %.1f MiB\n",
            b->name, threads, times[repeats / 2], times[0], 1e3 * (double)n / times[repeats / 2],
            flops / times[repeats / 2] * 1e-6, dtype == DTYPE_BF16 ? "bf16" : "fp32",
            (double)stage_bytes(stage) / 1048576);
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
    const enum dtype dtype = argc > 4 && strcmp(argv[4], "bf16") == 0 ? DTYPE_BF16 : DTYPE_FP32;
    bool known = false;
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        struct err err = {0};
        if (argc > 1 && strcmp(argv[1], benches[i].name) != 0)
            continue;
        known = true;
        if (run(&benches[i], dtype, threads, repeats > 0 ? repeats : 1, &err) != OK) {
            fprintf(stderr, "bench_kernels: %s\n", err.msg);
            return status_exit_code(err.status);
        }
    }
    if (!known)
        fprintf(stderr, "bench_kernels: no model '%s': minilm, vit-tiny, gpt2 or llama\n", argv[1]);
    return known ? 0 : 2;
}
