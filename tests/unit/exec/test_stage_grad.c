/* Whole models in double by plain loops (tests/unit/ref64.h), sublayer for sublayer as the item chain:
 * the loss of exec/stage/stage.h, and its gradients against central differences of that. */
#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/stage/layers.h"
#include "exec/stage/stage.h"
#include "tests/unit/ref64.h"
#include "tests/unit/test.h"

enum { N = 2, MAX_PARAMS = 96, ROOM = 4096 };

struct reference {
    const struct model *model;
    const struct sample_block *block;
    double *w[MAX_PARAMS]; /* in the order of stage_params() */
    int num, at;
    float dropout;
    uint64_t seed;
};

static const double *next(struct reference *r)
{
    return r->w[r->at++];
}

static void add(double *y, const double *x, int num)
{
    for (int i = 0; i < num; i++)
        y[i] += x[i];
}

/* x [N, per_sample] *= mask / (1 - p), the mask of exec/base/rng.h's counter. */
static void ref_dropout(const struct reference *r, int item, enum dropout_site site, int per_sample,
                        double *x)
{
    if (r->dropout == 0.0f)
        return;
    const uint64_t key = rng_key(r->seed, 0, (uint64_t)item, site);
    for (int i = 0; i < N * per_sample; i++) {
        const uint64_t sample = rng_mix(key ^ (uint64_t)r->block->ids[i / per_sample]);
        const bool keep = rng_bits(sample, (uint32_t)(i % per_sample)) >=
                          (uint32_t)((double)r->dropout * 4294967296.0);
        x[i] *= keep ? 1 / (1 - (double)r->dropout) : 0.0;
    }
}

/* One transformer layer, pre- or post-norm, on x [N * seq, hidden] in place; skip, when not NULL,
 * is the long skip that joins it first (its linear is the last of the attention item's tensors). */
static void ref_layer(struct reference *r, int layer, double *x, const double *skip)
{
    const int attn = 1 + 2 * layer; /* item numbers: dropout's keys */
    const struct model *m = r->model;
    const int rows = N * m->seq, h = m->hidden;
    const bool gpt = m->family == FAMILY_GPT, post = m->family == FAMILY_BERT;
    const double eps = gpt ? 1e-5 : 1e-12;
    double ln[ROOM], qkv[3 * ROOM], ctx[ROOM], out[ROOM], wide[2 * ROOM], keep[ROOM];
    if (skip) {
        double both[2 * ROOM];
        for (int row = 0; row < rows; row++) {
            memcpy(both + 2 * row * h, x + row * h, sizeof(double) * (size_t)h);
            memcpy(both + (2 * row + 1) * h, skip + row * h, sizeof(double) * (size_t)h);
        }
        ref_linear(both, r->w[r->at + 10], r->w[r->at + 11], rows, 2 * h, h, false, x);
    }
    const double *g = next(r), *b = next(r);
    if (post)
        memcpy(ln, x, sizeof(double) * (size_t)(rows * h));
    else
        ref_layernorm(x, g, b, rows, h, eps, ln);
    if (gpt) {
        const double *w = next(r), *bias = next(r);
        ref_linear(ln, w, bias, rows, h, 3 * h, true, qkv);
    } else {
        for (int i = 0; i < 3; i++) {
            const double *w = next(r), *bias = next(r);
            ref_linear(ln, w, bias, rows, h, h, false, out);
            for (int row = 0; row < rows; row++)
                memcpy(qkv + (row * 3 + i) * h, out + row * h, sizeof(double) * (size_t)h);
        }
    }
    for (int i = 0; i < N * m->heads * m->seq * m->seq; i++)
        keep[i] = 1.0;
    ref_dropout(r, attn, SITE_PROBS, m->heads * m->seq * m->seq, keep);
    ref_attention(qkv, N, m->seq, m->heads, h / m->heads, gpt, post ? r->block->lengths : NULL,
                  keep, ctx);
    const double *ow = next(r), *ob = next(r);
    ref_linear(ctx, ow, ob, rows, h, h, gpt, out);
    ref_dropout(r, attn, SITE_ATTENTION, m->seq * h, out);
    add(x, out, rows * h);
    r->at += skip ? 2 : 0;
    if (post) {
        memcpy(ln, x, sizeof(double) * (size_t)(rows * h));
        ref_layernorm(ln, g, b, rows, h, eps, x);
    }
    g = next(r), b = next(r);
    if (post)
        memcpy(ln, x, sizeof(double) * (size_t)(rows * h));
    else
        ref_layernorm(x, g, b, rows, h, eps, ln);
    const double *w1 = next(r), *b1 = next(r), *w2 = next(r), *b2 = next(r);
    ref_linear(ln, w1, b1, rows, h, m->mlp, gpt, wide);
    for (int i = 0; i < rows * m->mlp; i++)
        wide[i] = ref_gelu(wide[i], gpt);
    ref_linear(wide, w2, b2, rows, m->mlp, h, gpt, out);
    ref_dropout(r, attn + 1, SITE_MLP, m->seq * h, out);
    add(x, out, rows * h);
    if (post) {
        memcpy(ln, x, sizeof(double) * (size_t)(rows * h));
        ref_layernorm(ln, g, b, rows, h, eps, x);
    }
}

static void ref_embedding(struct reference *r, double *x)
{
    const struct model *m = r->model;
    const int h = m->hidden, s = m->seq;
    if (m->family != FAMILY_VIT) {
        const bool bert = m->family == FAMILY_BERT;
        const double *word = next(r), *pos = next(r), *type = bert ? next(r) : NULL;
        double sum[ROOM];
        for (int i = 0; i < N * s * h; i++)
            sum[i] = word[r->block->tokens[i / h] * h + i % h] + pos[i / h % s * h + i % h] +
                     (bert ? type[r->block->token_types[i / h] * h + i % h] : 0.0);
        if (bert) {
            const double *g = next(r), *b = next(r);
            ref_layernorm(sum, g, b, N * s, h, 1e-12, x);
        } else {
            memcpy(x, sum, sizeof(double) * (size_t)(N * s * h));
        }
        return;
    }
    const double *cls = next(r), *pos = next(r), *w = next(r), *b = next(r);
    const int side = m->image / m->patch, ps = m->patch, im = m->image, ch = m->channels;
    for (int i = 0; i < N * s * h; i++) {
        const int n = i / h / s, t = i / h % s, o = i % h;
        x[i] = pos[t * h + o] + (t ? b[o] : cls[o]);
        for (int c = 0; t && c < ch; c++)
            for (int k = 0; k < ps * ps; k++)
                x[i] += w[(o * ch + c) * ps * ps + k] *
                        r->block->images[((n * ch + c) * im + (t - 1) / side * ps + k / ps) * im +
                                         (t - 1) % side * ps + k % ps];
    }
}

static double ref_loss(struct reference *r)
{
    const struct model *m = r->model;
    const int h = m->hidden, s = m->seq, rows = N * s;
    double x[ROOM], y[ROOM], logits[ROOM], loss = 0;
    r->at = 0;
    ref_embedding(r, x);
    ref_dropout(r, 0, SITE_EMBED, s * h, x);
    double kept[2][ROOM];
    for (int i = 0; i < m->num_layers; i++) {
        const int mirror = m->num_layers - 1 - i; /* block i is joined to block L-1-i */
        ref_layer(r, i, x, m->num_skips && mirror < m->num_skips ? kept[mirror] : NULL);
        if (i < m->num_skips)
            memcpy(kept[i], x, sizeof(double) * (size_t)(rows * h));
    }
    if (m->family != FAMILY_BERT) {
        const double *g = next(r), *b = next(r);
        ref_layernorm(x, g, b, rows, h, m->family == FAMILY_GPT ? 1e-5 : 1e-12, y);
        memcpy(x, y, sizeof(double) * (size_t)(rows * h));
    }
    const int32_t *labels = r->block->labels;
    switch (m->task) {
    case TASK_CLASSIFY: {
        for (int n = 0; n < N; n++)
            memcpy(y + n * h, x + n * s * h, sizeof(double) * (size_t)h);
        if (m->family == FAMILY_BERT) {
            const double *w = next(r), *b = next(r);
            ref_linear(y, w, b, N, h, h, false, x);
            for (int i = 0; i < N * h; i++)
                y[i] = tanh(x[i]);
            ref_dropout(r, m->num_items - 1, SITE_HEAD, h, y);
        }
        const double *w = next(r), *b = next(r);
        ref_linear(y, w, b, N, h, m->classes, false, logits);
        for (int n = 0; n < N; n++)
            loss += ref_xent(logits + n * m->classes, 1, m->classes, labels[n], 0);
        break;
    }
    case TASK_QA: {
        const double *w = next(r), *b = next(r);
        ref_linear(x, w, b, rows, h, 2, false, logits);
        for (int i = 0; i < 2 * N; i++)
            loss += ref_xent(logits + i / 2 * 2 * s + i % 2, 2, s, labels[i], 0);
        break;
    }
    case TASK_MLM: {
        const double *w = next(r), *b = next(r), *g = next(r), *gb = next(r), *bias = next(r);
        ref_linear(x, w, b, rows, h, h, false, y);
        for (int i = 0; i < rows * h; i++)
            y[i] = ref_gelu(y[i], false);
        ref_layernorm(y, g, gb, rows, h, 1e-12, x);
        ref_linear(x, r->w[0], bias, rows, h, m->vocab, false, logits);
        for (int i = 0; i < rows; i++)
            if (labels[i] >= 0)
                loss += ref_xent(logits + i * m->vocab, 1, m->vocab, labels[i], 0);
        break;
    }
    case TASK_CAUSAL_LM:
        ref_linear(x, r->w[0], NULL, rows, h, m->vocab, false, logits);
        for (int i = 0; i < rows; i++)
            if (labels[i] >= 0)
                loss += ref_xent(logits + i * m->vocab, 1, m->vocab, labels[i], 0);
        break;
    }
    assert_int_equal(r->at, r->num);
    return loss;
}

static void compare(enum model_family family, enum model_task task, int layers, bool skips,
                    double dropout)
{
    const bool vit = family == FAMILY_VIT;
    const struct model_spec spec = {.family = family,
                                    .task = task,
                                    .name = "grad",
                                    .num_layers = layers,
                                    .hidden = 6,
                                    .heads = 2,
                                    .mlp = 10,
                                    .image = vit ? 4 : 0,
                                    .patch = vit ? 2 : 0,
                                    .channels = vit ? 3 : 0,
                                    .classes = task == TASK_CLASSIFY ? 4 : 0,
                                    .seq = vit ? 0 : 5,
                                    .max_seq = vit ? 0 : 5,
                                    .vocab = vit ? 0 : 11,
                                    .elem_bytes = 4,
                                    .unet_skips = skips};
    struct err err = {0};
    struct job job;
    job_defaults(&job);
    job.train.dropout = dropout;
    model_clear(&job.model);
    assert_int_equal(model_build(&spec, &job.model, &err), OK);
    const int64_t ids[N] = {0, 1};
    const int32_t lengths[N] = {3, 5};
    float images[N * 3 * 16];
    int32_t tokens[N * 5], types[N * 5], labels[N * 5];
    for (int i = 0; i < N * 3 * 16; i++)
        images[i] = (float)rng_normal(1, (uint64_t)i);
    for (int i = 0; i < N * 5; i++) {
        tokens[i] = (int32_t)(rng_bits(2, (uint32_t)i) % 11);
        types[i] = (int32_t)(rng_bits(3, (uint32_t)i) % 2);
        labels[i] = task == TASK_MLM && i % 6 ? -100 : (int32_t)(rng_bits(4, (uint32_t)i) % 4);
    }
    const struct sample_block block = {.num_samples = N,
                                       .ids = ids,
                                       .images = images,
                                       .tokens = tokens,
                                       .token_types = family == FAMILY_BERT ? types : NULL,
                                       .lengths = family == FAMILY_BERT ? lengths : NULL,
                                       .labels = labels};
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    const struct stage_spec stage_spec = {.model = &job.model,
                                          .job = &job,
                                          .backend = be,
                                          .end_item = job.model.num_items,
                                          .max_samples = N,
                                          .max_live = 1};
    struct stage *stage;
    assert_int_equal(stage_new(&stage_spec, &stage, &err), OK);
    struct param *params = stage_params(stage);
    struct reference ref = {.model = &job.model,
                            .block = &block,
                            .num = stage_num_params(stage),
                            .dropout = (float)dropout,
                            .seed = job.train.seed};
    assert_true(ref.num <= MAX_PARAMS);
    for (int t = 0; t < ref.num; t++) {
        ref.w[t] = malloc((size_t)params[t].num_elems * sizeof(double));
        for (int64_t i = 0; i < params[t].num_elems; i++) {
            const double centre = params[t].ndim == 1 && strstr(params[t].name, "weight") ? 1 : 0;
            params[t].weight[i] = (float)(centre + 0.4 * rng_normal((uint64_t)t, (uint64_t)i));
            ref.w[t][i] = params[t].weight[i];
        }
    }
    void *in = NULL, *out;
    struct loss_sums loss;
    assert_int_equal(
        stage_forward(stage, &(struct stage_batch){.block = &block}, &in, &out, true, &err), OK);
    assert_int_equal(stage_loss(stage, 0, &loss, &err), OK);
    const double want = ref_loss(&ref);
    assert_true(fabs(loss.loss / want - 1) < 3e-6);
    assert_int_equal(stage_backward(stage,
                                    &(struct stage_batch){.block = &block, .grad_scale = 0.25f},
                                    BACKWARD_BOTH, NULL, NULL, &err),
                     OK);
    stage_tied_add(stage);
    for (int t = 0; t < ref.num; t++)
        for (int64_t i = 0; i < params[t].num_elems; i++) {
            const double at = ref.w[t][i], step = 1e-5;
            ref.w[t][i] = at + step;
            const double up = ref_loss(&ref);
            ref.w[t][i] = at - step;
            const double slope = 0.25 * (up - ref_loss(&ref)) / (2 * step);
            ref.w[t][i] = at;
            if (!(fabs(params[t].grad[i] - slope) <= 1e-5 * (1 + fabs(slope))))
                fail_msg("d loss / d %s[%d]: %.9g, difference %.9g", params[t].name, (int)i,
                         params[t].grad[i], slope);
        }
    for (int t = 0; t < ref.num; t++)
        free(ref.w[t]);
    stage_free(stage);
    backend_free(be);
    job_clear(&job);
}

static void stage_backward__matches_differences_vit(void **state)
{
    (void)state;
    compare(FAMILY_VIT, TASK_CLASSIFY, 1, false, 0);
}

static void stage_backward__matches_differences_uvit(void **state)
{
    (void)state;
    compare(FAMILY_VIT, TASK_CLASSIFY, 4, true, 0);
}

static void stage_backward__matches_differences_bert(void **state)
{
    (void)state;
    compare(FAMILY_BERT, TASK_CLASSIFY, 1, false, 0);
    compare(FAMILY_BERT, TASK_QA, 1, false, 0);
    compare(FAMILY_BERT, TASK_MLM, 1, false, 0);
}

static void stage_backward__matches_differences_gpt(void **state)
{
    (void)state;
    compare(FAMILY_GPT, TASK_CAUSAL_LM, 1, false, 0);
}

static void stage_backward__matches_differences_under_dropout(void **state)
{
    (void)state;
    compare(FAMILY_VIT, TASK_CLASSIFY, 2, false, 0.3);
    compare(FAMILY_BERT, TASK_CLASSIFY, 2, false, 0.3);
    compare(FAMILY_GPT, TASK_CAUSAL_LM, 2, false, 0.3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stage_backward__matches_differences_vit),
        cmocka_unit_test(stage_backward__matches_differences_uvit),
        cmocka_unit_test(stage_backward__matches_differences_bert),
        cmocka_unit_test(stage_backward__matches_differences_gpt),
        cmocka_unit_test(stage_backward__matches_differences_under_dropout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
