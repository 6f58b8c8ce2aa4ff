/* exec/stage/stage.h: any cut, any number of threads, I then W, recompute and frozen prefixes give
 * the same bits as one stage that runs everything at once. */
#include "exec/base/bf16.h"
#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/stage/stage.h"
#include "tests/unit/test.h"

enum { SAMPLES = 3, MICROBATCHES = 3, MAX_ITEMS = 14, MAX_EDGES = 8 };

struct fixture {
    struct job job;
    float *images;
    int32_t *tokens, *types, *lengths, *labels;
    int64_t *ids;
};

static const struct model_spec vit = {.family = FAMILY_VIT,
                                      .task = TASK_CLASSIFY,
                                      .name = "vit",
                                      .num_layers = 2,
                                      .hidden = 32,
                                      .heads = 2,
                                      .mlp = 64,
                                      .image = 12,
                                      .patch = 4,
                                      .channels = 3,
                                      .classes = 5,
                                      .elem_bytes = 4};
static const struct model_spec uvit = {.family = FAMILY_VIT,
                                       .task = TASK_CLASSIFY,
                                       .name = "uvit",
                                       .num_layers = 5,
                                       .hidden = 16,
                                       .heads = 2,
                                       .mlp = 32,
                                       .image = 12,
                                       .patch = 4,
                                       .channels = 3,
                                       .classes = 5,
                                       .elem_bytes = 4,
                                       .unet_skips = 1};
static const struct model_spec bert = {.family = FAMILY_BERT,
                                       .task = TASK_CLASSIFY,
                                       .name = "bert",
                                       .num_layers = 2,
                                       .hidden = 32,
                                       .heads = 2,
                                       .mlp = 64,
                                       .classes = 3,
                                       .seq = 9,
                                       .max_seq = 12,
                                       .vocab = 50,
                                       .elem_bytes = 4};
static const struct model_spec gpt = {.family = FAMILY_GPT,
                                      .task = TASK_CAUSAL_LM,
                                      .name = "gpt",
                                      .num_layers = 2,
                                      .hidden = 32,
                                      .heads = 2,
                                      .mlp = 64,
                                      .seq = 9,
                                      .max_seq = 12,
                                      .vocab = 50,
                                      .elem_bytes = 4};

/* With its own head, norms of queries and keys, and a window; and with a tied head and biases. */
static const struct model_spec qwen3 = {
    .family = FAMILY_LLAMA,
    .task = TASK_CAUSAL_LM,
    .name = "qwen3",
    .type = "qwen3",
    .num_layers = 2,
    .hidden = 32,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 10,
    .mlp = 64,
    .seq = 9,
    .vocab = 50,
    .elem_bytes = 4,
    .block = {.qk_norm = QK_NORM_HEAD, .window = 5}
};
static const struct model_spec qwen2 = {.family = FAMILY_LLAMA,
                                        .task = TASK_CAUSAL_LM,
                                        .name = "qwen2",
                                        .type = "qwen2",
                                        .num_layers = 2,
                                        .hidden = 32,
                                        .heads = 4,
                                        .kv_heads = 1,
                                        .mlp = 48,
                                        .seq = 9,
                                        .vocab = 50,
                                        .elem_bytes = 4,
                                        .qkv_bias = 1,
                                        .tied_head = 1};

static void open_fixture(struct fixture *f, const struct model_spec *spec, enum model_task task)
{
    struct err err = {0};
    memset(f, 0, sizeof *f);
    job_defaults(&f->job);
    model_clear(&f->job.model);
    struct model_spec with = *spec;
    with.task = task;
    assert_int_equal(model_build(&with, &f->job.model, &err), OK);
    const struct model *m = &f->job.model;
    f->job.train.dropout = spec->unet_skips ? 0.0 : 0.1;
    const int64_t n = SAMPLES * MICROBATCHES, image = (int64_t)m->channels * m->image * m->image;
    f->ids = calloc((size_t)n, sizeof *f->ids);
    f->images = calloc((size_t)(n * image + 1), sizeof *f->images);
    f->tokens = calloc((size_t)(n * m->seq), sizeof *f->tokens);
    f->types = calloc((size_t)(n * m->seq), sizeof *f->types);
    f->lengths = calloc((size_t)n, sizeof *f->lengths);
    f->labels = calloc((size_t)(n * m->seq), sizeof *f->labels);
    for (int64_t i = 0; i < n * image; i++)
        f->images[i] = (float)rng_normal(7, (uint64_t)i);
    const uint32_t outputs = task == TASK_CLASSIFY ? (uint32_t)m->classes
                             : task == TASK_QA     ? (uint32_t)m->seq
                                                   : (uint32_t)m->vocab;
    for (int64_t i = 0; i < n * m->seq; i++) {
        f->tokens[i] = m->vocab ? (int32_t)(rng_bits(1, (uint32_t)i) % (uint32_t)m->vocab) : 0;
        f->types[i] = (int32_t)(rng_bits(2, (uint32_t)i) % 2);
        f->labels[i] = (int32_t)(rng_bits(3, (uint32_t)i) % outputs);
        if (task == TASK_MLM && i % 10) /* at most one of 9 */
            f->labels[i] = -100;
    }
    for (int64_t i = 0; i < n; i++) {
        f->ids[i] = 100 + 3 * i;
        f->lengths[i] = 1 + (int32_t)(rng_bits(4, (uint32_t)i) % (uint32_t)m->seq);
    }
}

static void close_fixture(struct fixture *f)
{
    free(f->images);
    free(f->tokens);
    free(f->types);
    free(f->lengths);
    free(f->labels);
    free(f->ids);
    job_clear(&f->job);
}

static struct sample_block block_of(const struct fixture *f, int mb)
{
    const struct model *m = &f->job.model;
    const int64_t first = (int64_t)mb * SAMPLES;
    const int64_t each = m->task == TASK_CLASSIFY ? 1 : m->task == TASK_QA ? 2 : m->seq;
    const bool vit_family = m->family == FAMILY_VIT;
    return (struct sample_block){
        .num_samples = SAMPLES,
        .ids = f->ids + first,
        .images = vit_family ? f->images + first * m->channels * m->image * m->image : NULL,
        .tokens = vit_family ? NULL : f->tokens + first * m->seq,
        .token_types = m->family == FAMILY_BERT ? f->types + first * m->seq : NULL,
        .lengths = m->family == FAMILY_BERT ? f->lengths + first : NULL,
        .labels = f->labels + first * each,
    };
}

struct way {
    int num_stages, cut[MAX_ITEMS + 1]; /* item boundaries */
    int threads;
    bool split, recompute, interleave; /* interleave: all I before all W */
    int frozen;
    int freeze_to; /* when above frozen: stage_freeze() between the steps */
};

/* Two steps of training one way; weights and losses as bytes. */
struct outcome {
    double loss[2];
    double sumsq[MAX_ITEMS];
    float *weights; /* in parameter order, tied copies left out */
    int64_t num;
    int64_t stash_bytes; /* of the first stage: what another micro-batch in flight takes */
};

/* The skip edges of a stage with other stages, as partition/step/workload.c orders them. */
struct skip_peers {
    int count, peer[MAX_EDGES];
    bool grad[MAX_EDGES];
};

static int stage_of(const struct way *way, int item)
{
    int s = 0;
    while (way->cut[s + 1] <= item)
        s++;
    return s;
}

static struct skip_peers peers_of(const struct fixture *f, const struct way *way, int s, bool in)
{
    const struct model *m = &f->job.model;
    struct skip_peers got = {0};
    for (int peer = 0; peer < way->num_stages; peer++)
        for (int grad = 0; grad < 2; grad++)
            for (int k = 0; k < m->num_skips; k++) {
                const int from = stage_of(way, m->skips[k].from),
                          to = stage_of(way, m->skips[k].to);
                if (from != to && (in ? to : from) == s && (in ? from : to) == peer &&
                    (m->skips[k].from >= way->frozen) == (grad == 1)) {
                    got.peer[got.count] = peer;
                    got.grad[got.count++] = grad;
                    break;
                }
            }
    return got;
}

/* Collects what stage s gets over its edges: row e of table[peer], the peer's edge back to s. */
static void gather(const struct fixture *f, const struct way *way, int s, bool in,
                   void *table[MAX_ITEMS][MAX_EDGES], void **got)
{
    const struct skip_peers mine = peers_of(f, way, s, in);
    for (int e = 0; e < mine.count; e++) {
        const struct skip_peers theirs = peers_of(f, way, mine.peer[e], !in);
        for (int k = 0; k < theirs.count; k++)
            if (theirs.peer[k] == s && theirs.grad[k] == mine.grad[e])
                got[e + 1] = table[mine.peer[e]][k + 1];
    }
}

static int64_t bytes_of_a_slot(const struct stage_spec *spec, const struct stage *stage)
{
    struct stage_spec fewer = *spec;
    struct stage *less = NULL;
    fewer.max_live--;
    assert_int_equal(stage_new(&fewer, &less, NULL), OK);
    const int64_t bytes = stage_bytes(stage) - stage_bytes(less);
    stage_free(less);
    return bytes;
}

static void run(struct fixture *f, const struct way *plan, struct outcome *o)
{
    struct way now = *plan, *way = &now;
    struct err err = {0};
    struct backend *be = backend_cpu_new(f->job.train.dtype, way->threads, &err);
    struct stage *stages[MAX_ITEMS] = {0};
    const int k = way->num_stages;
    memset(o, 0, sizeof *o);
    assert_non_null(be);
    for (int s = 0; s < k; s++) {
        const struct stage_spec spec = {.model = &f->job.model,
                                        .job = &f->job,
                                        .backend = be,
                                        .first_item = way->cut[s],
                                        .end_item = way->cut[s + 1],
                                        .num_frozen_items = way->frozen,
                                        .max_samples = SAMPLES,
                                        .max_live = MICROBATCHES,
                                        .recompute = way->recompute,
                                        .first_items = way->cut,
                                        .num_stages = k};
        assert_int_equal(stage_new(&spec, &stages[s], &err), OK);
        assert_int_equal(stage_init_weights(stages[s], 11, &err), OK);
        if (s == 0)
            o->stash_bytes = bytes_of_a_slot(&spec, stages[0]);
    }
    for (uint64_t step = 0; step < 2; step++) {
        void *in[MICROBATCHES][MAX_ITEMS][MAX_EDGES] = {{{NULL}}};
        void *out[MICROBATCHES][MAX_ITEMS][MAX_EDGES] = {{{NULL}}};
        if (step == 1 && way->freeze_to > way->frozen) {
            way->frozen = way->freeze_to;
            for (int s = 0; s < k; s++) {
                const int64_t before = stage_bytes(stages[s]);
                assert_int_equal(stage_freeze(stages[s], way->frozen, &err), OK);
                assert_true(stage_bytes(stages[s]) < before || way->cut[s] >= way->frozen);
            }
        }
        for (int s = 0; s < k; s++)
            stage_begin_grad(stages[s]);
        for (int mb = 0; mb < MICROBATCHES; mb++) {
            const struct sample_block block = block_of(f, mb);
            const struct stage_batch batch = {.block = &block, .slot = mb, .step = step};
            struct loss_sums loss = {0};
            for (int s = 0; s < k; s++) {
                in[mb][s][0] = s > 0 ? out[mb][s - 1][0] : NULL;
                gather(f, way, s, true, out[mb], in[mb][s]);
                assert_int_equal(
                    stage_forward(stages[s], &batch, in[mb][s], out[mb][s], !way->recompute, &err),
                    OK);
                assert_int_equal(stage_loss(stages[s], mb, &loss, &err), OK);
            }
            o->loss[step] += loss.loss;
        }
        const float scale = 1.0f / (SAMPLES * MICROBATCHES);
        void *grad[MICROBATCHES][MAX_ITEMS][MAX_EDGES] = {{{NULL}}}; /* grad_in of each stage */
        for (int pass = 0; pass < (way->interleave ? 2 : 1); pass++)
            for (int mb = 0; mb < MICROBATCHES; mb++) {
                const struct sample_block block = block_of(f, mb);
                const struct stage_batch batch = {
                    .block = &block, .slot = mb, .step = step, .grad_scale = scale};
                for (int s = k - 1; s >= 0 && way->cut[s + 1] > way->frozen; s--) {
                    void *from[MAX_EDGES] = {s + 1 < k ? grad[mb][s + 1][0] : NULL};
                    void **to = grad[mb][s];
                    gather(f, way, s, false, grad[mb], from);
                    if (way->recompute && pass == 0)
                        assert_int_equal(
                            stage_forward(stages[s], &batch, in[mb][s], out[mb][s], true, &err),
                            OK);
                    if (way->split && pass == 0)
                        assert_int_equal(
                            stage_backward(stages[s], &batch, BACKWARD_INPUT, from, to, &err), OK);
                    if (way->split && (pass == 1 || !way->interleave))
                        assert_int_equal(
                            stage_backward(stages[s], &batch, BACKWARD_WEIGHT, from, NULL, &err),
                            OK);
                    if (!way->split)
                        assert_int_equal(
                            stage_backward(stages[s], &batch, BACKWARD_BOTH, from, to, &err), OK);
                    if (s > 0 && way->cut[s] <= way->frozen && pass == 0)
                        assert_null(to[0]);
                }
            }
        /* The two sides of a tied table meet, as the runtime does over the wire. */
        struct tied_table first, last;
        if (k > 1 && stage_tied(stages[0], &first) && stage_tied(stages[k - 1], &last)) {
            memcpy(last.table_grad, first.table_grad, (size_t)first.num_elems * sizeof(float));
            memcpy(first.head_grad, last.head_grad, (size_t)first.num_elems * sizeof(float));
        }
        for (int s = 0; s < k; s++) {
            stage_tied_add(stages[s]);
            assert_int_equal(stage_grad_sumsq(stages[s], o->sumsq + way->cut[s], &err), OK);
        }
        for (int s = 0; s < k; s++)
            stage_update(stages[s], step, 0.05, 0.5f, false);
    }
    for (int s = 0; s < k; s++)
        for (int t = 0; t < stage_num_params(stages[s]); t++) {
            const struct param *p = &stage_params(stages[s])[t];
            if (p->tied_copy) {
                const struct param *table = &stage_params(stages[0])[0];
                assert_string_equal(p->name, table->name);
                assert_memory_equal(p->weight, table->weight, (size_t)p->num_elems * sizeof(float));
                continue;
            }
            o->weights = realloc(o->weights, (size_t)(o->num + p->num_elems) * sizeof(float));
            memcpy(o->weights + o->num, p->weight, (size_t)p->num_elems * sizeof(float));
            o->num += p->num_elems;
        }
    for (int s = 0; s < k; s++)
        stage_free(stages[s]);
    backend_free(be);
}

static void assert_same(const struct outcome *a, const struct outcome *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->sumsq, b->sumsq, sizeof a->sumsq);
    assert_int_equal(a->num, b->num);
    assert_memory_equal(a->weights, b->weights, (size_t)a->num * sizeof(float));
}

static struct way one_stage(const struct fixture *f)
{
    return (struct way){
        .num_stages = 1, .cut = {0, f->job.model.num_items},
             .threads = 1
    };
}

struct family {
    const struct model_spec *spec;
    enum model_task task;
};
static const struct family families[] = {
    {&vit,   TASK_CLASSIFY },
    {&uvit,  TASK_CLASSIFY },
    {&bert,  TASK_CLASSIFY },
    {&bert,  TASK_QA       },
    {&bert,  TASK_MLM      },
    {&gpt,   TASK_CAUSAL_LM},
    {&qwen3, TASK_CAUSAL_LM},
    {&qwen2, TASK_CAUSAL_LM},
};
enum { NUM_FAMILIES = sizeof families / sizeof *families };

static void against_whole(void (*vary)(struct way *, const struct fixture *, int), int count,
                          int frozen, enum dtype dtype)
{
    for (int i = 0; i < NUM_FAMILIES; i++) {
        struct fixture f;
        struct outcome want, got;
        open_fixture(&f, families[i].spec, families[i].task);
        f.job.train.dtype = dtype;
        struct way way = one_stage(&f);
        way.frozen = frozen;
        run(&f, &way, &want);
        assert_true(want.loss[0] > 0.0 && want.loss[1] > 0.0 && want.loss[0] != want.loss[1]);
        for (int v = 0; v < count; v++) {
            struct way other = way;
            vary(&other, &f, v);
            if (other.num_stages == 0)
                continue;
            run(&f, &other, &got);
            assert_same(&want, &got);
            free(got.weights);
        }
        free(want.weights);
        close_fixture(&f);
    }
}

static void cut_in_two(struct way *way, const struct fixture *f, int v)
{
    const int items = f->job.model.num_items;
    if (v + 1 >= items) {
        way->num_stages = 0;
        return;
    }
    way->num_stages = 2;
    way->cut[1] = v + 1;
    way->cut[2] = items;
}

static void stage__same_bits_at_every_cut(void **state)
{
    (void)state;
    against_whole(cut_in_two, MAX_ITEMS, 0, DTYPE_FP32);
}

static void every_item_alone(struct way *way, const struct fixture *f, int v)
{
    way->num_stages = f->job.model.num_items;
    for (int i = 0; i <= way->num_stages; i++)
        way->cut[i] = i;
    way->split = v & 1;
    way->interleave = way->split && (v & 2);
    way->recompute = v & 4;
    way->threads = 1 + v % 3;
}

static void stage__same_bits_split_recomputed_threaded(void **state)
{
    (void)state;
    against_whole(every_item_alone, 8, 0, DTYPE_FP32);
}

static void vary_whole(struct way *way, const struct fixture *f, int v)
{
    (void)f;
    way->threads = 1 + v;
    way->split = v & 1;
    way->recompute = v == 2;
}

static void stage__same_bits_at_any_thread_count(void **state)
{
    (void)state;
    against_whole(vary_whole, 4, 0, DTYPE_FP32);
}

static void stage__same_bits_with_frozen_prefix_at_every_cut(void **state)
{
    (void)state;
    against_whole(cut_in_two, MAX_ITEMS, 3, DTYPE_FP32);
    against_whole(every_item_alone, 4, 3, DTYPE_FP32);
}

static struct stage *open_whole(struct fixture *f, struct backend *be)
{
    struct err err = {0};
    struct stage *stage = NULL;
    const struct stage_spec spec = {.model = &f->job.model,
                                    .job = &f->job,
                                    .backend = be,
                                    .end_item = f->job.model.num_items,
                                    .max_samples = SAMPLES,
                                    .max_live = 1};
    assert_int_equal(stage_new(&spec, &stage, &err), OK);
    assert_int_equal(stage_init_weights(stage, 1, &err), OK);
    return stage;
}

/* Forward and backward of micro-batches 0 and 1. */
static void two_backwards(struct stage *stage, const struct fixture *f)
{
    struct err err = {0};
    for (int mb = 0; mb < 2; mb++) {
        const struct sample_block block = block_of(f, mb);
        struct loss_sums loss;
        void *in = NULL, *out;
        assert_int_equal(
            stage_forward(stage, &(struct stage_batch){.block = &block}, &in, &out, true, &err),
            OK);
        assert_int_equal(stage_loss(stage, 0, &loss, &err), OK);
        assert_int_equal(stage_backward(stage,
                                        &(struct stage_batch){.block = &block, .grad_scale = 0.25f},
                                        BACKWARD_BOTH, NULL, NULL, &err),
                         OK);
    }
}

static void spoil(struct stage *stage)
{
    for (int i = 0; i < stage_num_items(stage); i++) {
        int64_t elems;
        float *grad = stage_grad_block(stage, i, &elems);
        for (int64_t e = 0; e < elems; e++)
            grad[e] = NAN;
    }
}

/* Every gradient of both; none is no number. with NULL: all are zero. */
static void assert_gradients(struct stage *stage, struct stage *with)
{
    struct tied_table mine = {0}, theirs = {0};
    for (int t = 0; t < stage_num_params(stage); t++) {
        const struct param *p = &stage_params(stage)[t];
        for (int64_t e = 0; p->grad && e < p->num_elems; e++)
            assert_true(p->grad[e] == (with ? stage_params(with)[t].grad[e] : 0.0f));
    }
    const bool tied = stage_tied(stage, &mine) && (!with || stage_tied(with, &theirs));
    for (int64_t e = 0; tied && e < mine.num_elems; e++)
        assert_true(mine.head_grad[e] == (with ? theirs.head_grad[e] : 0.0f));
}

/* The first backward of a step writes all that later ones add to, whatever lay there; so does what
 * takes its place where a step has none. */
static void stage_begin_grad__makes_old_gradients_count_as_zero(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * NUM_FAMILIES; i++) {
        struct fixture f;
        struct err err = {0};
        open_fixture(&f, families[i % NUM_FAMILIES].spec, families[i % NUM_FAMILIES].task);
        f.job.train.dtype = i / NUM_FAMILIES % 2 ? DTYPE_BF16 : DTYPE_FP32;
        const int frozen = i / NUM_FAMILIES < 2 ? 0 : 3;
        struct backend *be = backend_cpu_new(f.job.train.dtype, 1, &err);
        struct stage *zeroed = open_whole(&f, be), *begun = open_whole(&f, be);
        assert_int_equal(stage_freeze(zeroed, frozen, &err), OK);
        assert_int_equal(stage_freeze(begun, frozen, &err), OK);
        two_backwards(zeroed, &f);
        for (int round = 0; round < 2; round++) {
            spoil(begun);
            stage_begin_grad(begun);
            two_backwards(begun, &f);
            stage_skip_grad(begun); /* not the first: nothing */
            assert_gradients(begun, zeroed);
        }
        spoil(begun);
        stage_begin_grad(begun);
        stage_skip_grad(begun);
        assert_gradients(begun, NULL);
        two_backwards(begun, &f);
        assert_gradients(begun, zeroed);
        stage_free(zeroed);
        stage_free(begun);
        backend_free(be);
        close_fixture(&f);
    }
}

static int sumsq_calls;
static enum status (*real_sumsq)(struct backend *, int, const int64_t *, const float *const *,
                                 double *, struct err *);
static enum status counted_sumsq(struct backend *be, int count, const int64_t *num,
                                 const float *const *x, double *sums, struct err *err)
{
    sumsq_calls++;
    return real_sumsq(be, count, num, x, sums, err);
}

/* There are more tensors than any kernel takes at once; a device is waited for once. The judge takes a
 * tensor at a time. */
static void stage_grad_sumsq__asks_the_backend_once(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = {0};
    struct model_spec deep = vit;
    deep.num_layers = 12;
    double got[2 * 12 + 3], want[2 * 12 + 3] = {0};
    open_fixture(&f, &deep, TASK_CLASSIFY);
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    struct stage *stage = open_whole(&f, be);
    real_sumsq = be->sumsq_many;
    be->sumsq_many = counted_sumsq;
    two_backwards(stage, &f);
    assert_int_equal(stage_grad_sumsq(stage, got, &err), OK);
    assert_int_equal(sumsq_calls, 1);
    assert_int_equal(f.job.model.num_items, 2 * 12 + 3);
    assert_true(stage_num_params(stage) > 192);
    for (int t = 0; t < stage_num_params(stage); t++) {
        const struct param *p = &stage_params(stage)[t];
        double sum;
        const float *one = p->grad;
        assert_int_equal(real_sumsq(be, 1, &p->num_elems, &one, &sum, &err), OK);
        want[p->item] += sum;
    }
    assert_memory_equal(got, want, sizeof got);
    assert_int_equal(stage_freeze(stage, f.job.model.num_items, &err), OK);
    assert_int_equal(stage_grad_sumsq(stage, got, &err), OK); /* nothing to ask */
    assert_int_equal(sumsq_calls, 1);
    assert_true(got[0] == 0.0);
    stage_free(stage);
    backend_free(be);
    close_fixture(&f);
}

/* A head that stays keeps nothing of a table that froze: replicas go on to sum its block. */
static void stage_freeze__leaves_no_gradient_of_a_tied_table(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = {0};
    int64_t elems;
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    open_fixture(&f, &gpt, TASK_CAUSAL_LM);
    struct stage *stage = open_whole(&f, be);
    two_backwards(stage, &f);
    assert_int_equal(stage_freeze(stage, 3, &err), OK);
    stage_grad_block(stage, stage_num_items(stage) - 1, &elems);
    assert_int_equal(elems, 0);
    stage_free(stage);
    backend_free(be);
    close_fixture(&f);
}

/* A head apart from its table that freezes between steps holds what one has that was made so, and
 * the optimizer state of what goes on training. */
static void stage_freeze__leaves_a_head_as_if_made_frozen(void **state)
{
    (void)state;
    struct err err = {0};
    for (int masked = 0; masked < 2; masked++) {
        struct fixture f;
        struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
        open_fixture(&f, masked ? &bert : &gpt, masked ? TASK_MLM : TASK_CAUSAL_LM);
        f.job.train.optimizer.kind = OPTIMIZER_ADAMW;
        struct stage_spec spec = {.model = &f.job.model,
                                  .job = &f.job,
                                  .backend = be,
                                  .first_item = f.job.model.num_items - 1,
                                  .end_item = f.job.model.num_items,
                                  .max_samples = SAMPLES,
                                  .max_live = 1};
        struct stage *late = NULL, *early = NULL;
        int64_t late_elems, early_elems;
        assert_int_equal(stage_new(&spec, &late, &err), OK);
        const int64_t before = stage_bytes(late);
        struct param *params = stage_params(late);
        for (int t = 0; t < stage_num_params(late); t++)
            for (int64_t e = 0; e < params[t].num_elems; e++)
                params[t].state[1][e] = (float)(t + 1);
        assert_int_equal(stage_freeze(late, 1, &err), OK);
        spec.num_frozen_items = 1;
        assert_int_equal(stage_new(&spec, &early, &err), OK);
        assert_int_equal(stage_freeze(early, 1, &err), OK); /* drops its slots, too */
        assert_int_equal(stage_bytes(late), stage_bytes(early));
        const int64_t table =
            (int64_t)f.job.model.vocab * f.job.model.hidden * (int64_t)sizeof(float);
        assert_true(stage_bytes(late) <= before - 4 * table); /* two gradients, two states */
        stage_grad_block(late, 0, &late_elems);
        stage_grad_block(early, 0, &early_elems);
        assert_int_equal(late_elems, early_elems);
        int trained = 0;
        for (int t = 0; t < stage_num_params(late); t++) {
            const struct param *p = &stage_params(late)[t];
            assert_int_equal(p->frozen, p->tied_copy);
            assert_int_equal(p->frozen, !p->state[1]);
            for (int64_t e = 0; !p->frozen && e < p->num_elems; e++)
                assert_true(p->state[1][e] == (float)(t + 1));
            trained += !p->frozen;
        }
        assert_int_equal(trained, masked ? 5 : 0);
        stage_free(late);
        stage_free(early);
        backend_free(be);
        close_fixture(&f);
    }
}

static void stage__same_bits_in_bf16(void **state)
{
    (void)state;
    against_whole(cut_in_two, MAX_ITEMS, 0, DTYPE_BF16);
    against_whole(every_item_alone, 4, 0, DTYPE_BF16);
    against_whole(vary_whole, 4, 3, DTYPE_BF16);
}

/* Two steps in bf16 stay near those in fp32: a loss within 1 %, an item's gradient within 10 % of
 * its length, in less memory; and the masters move by less than bf16 could show. */
static void stage__bf16_is_near_fp32_in_less_memory(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_FAMILIES; i++) {
        struct fixture f;
        struct outcome want, got;
        int64_t fine = 0;
        open_fixture(&f, families[i].spec, families[i].task);
        const struct way way = one_stage(&f);
        run(&f, &way, &want);
        f.job.train.dtype = DTYPE_BF16;
        run(&f, &way, &got);
        for (int step = 0; step < 2; step++)
            assert_true(fabs(got.loss[step] / want.loss[step] - 1) < 0.01);
        for (int item = 0; item < f.job.model.num_items; item++)
            assert_true(fabs(sqrt(got.sumsq[item]) - sqrt(want.sumsq[item])) <=
                        0.1 * sqrt(want.sumsq[item]));
        for (int64_t e = 0; e < got.num; e++)
            fine += bf16_to(bf16_from(got.weights[e])) != got.weights[e];
        assert_true(fine > got.num / 2);
        assert_true(memcmp(want.weights, got.weights, (size_t)got.num * sizeof(float)) != 0);
        assert_true(got.stash_bytes < 0.6 * (double)want.stash_bytes);
        free(want.weights);
        free(got.weights);
        close_fixture(&f);
    }
}

/* A stage updated by one backward of block 0, with the items below end_item at a share of the rate. */
static struct stage *updated(struct fixture *f, struct backend *be, double lr, int end_item,
                             double share)
{
    struct err err = {0};
    struct stage *stage = open_whole(f, be);
    const struct sample_block block = block_of(f, 0);
    const struct stage_batch batch = {.block = &block, .grad_scale = 1};
    void *in = NULL, *out;
    assert_int_equal(stage_forward(stage, &batch, &in, &out, true, &err), OK);
    assert_int_equal(stage_backward(stage, &batch, BACKWARD_BOTH, NULL, NULL, &err), OK);
    stage_anneal(stage, end_item, share);
    stage_update(stage, 0, lr, 1, false);
    return stage;
}

static void stage_anneal__scales_the_rate_of_the_items_below(void **state)
{
    (void)state;
    struct err err = {0};
    struct fixture f;
    open_fixture(&f, &gpt, TASK_CAUSAL_LM);
    for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_LAMB; kind++) {
        f.job.train.optimizer.kind = (enum optimizer_kind)kind;
        struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
        struct stage *full = updated(&f, be, 0.1, 0, 0), *slow = updated(&f, be, 0.1 * .25, 0, 0);
        struct stage *both = updated(&f, be, 0.1, 3, .25);
        int below = 0;
        for (int t = 0; t < stage_num_params(both); t++) {
            const struct param *p = &stage_params(both)[t];
            const struct param *like = &stage_params(p->item < 3 ? slow : full)[t];
            const struct param *other = &stage_params(p->item < 3 ? full : slow)[t];
            const size_t bytes = (size_t)p->num_elems * sizeof(float);
            assert_memory_equal(p->weight, like->weight, bytes);
            if (strstr(p->name, "weight"))
                assert_int_not_equal(memcmp(p->weight, other->weight, bytes), 0);
            below += p->item < 3;
        }
        assert_in_range(below, 1, stage_num_params(both) - 1);
        stage_free(full);
        stage_free(slow);
        stage_free(both);
        backend_free(be);
    }
    close_fixture(&f);
}

/* Values written into the parameters from outside count after stage_round_weights(), those of an update
 * at once. */
static void stage_round_weights__makes_kernels_see_the_parameters(void **state)
{
    (void)state;
    struct err err = {0};
    struct fixture f;
    open_fixture(&f, &gpt, TASK_CAUSAL_LM);
    f.job.train.dtype = DTYPE_BF16;
    struct backend *be = backend_cpu_new(DTYPE_BF16, 1, &err);
    struct stage *one = open_whole(&f, be), *other = open_whole(&f, be);
    const struct sample_block block = block_of(&f, 0);
    struct loss_sums loss[4] = {{0}};
    void *in = NULL, *out;
    assert_int_equal(
        stage_forward(one, &(struct stage_batch){.block = &block}, &in, &out, true, &err), OK);
    assert_int_equal(stage_loss(one, 0, &loss[0], &err), OK);
    assert_int_equal(stage_backward(one, &(struct stage_batch){.block = &block, .grad_scale = 1},
                                    BACKWARD_BOTH, NULL, NULL, &err),
                     OK);
    stage_update(one, 0, 0.1, 1, false);
    assert_int_equal(stage_forward(one, &(struct stage_batch){.block = &block, .step = STEP_EVAL},
                                   &in, &out, false, &err),
                     OK);
    assert_int_equal(stage_loss(one, 0, &loss[1], &err), OK);
    for (int t = 0; t < stage_num_params(one); t++)
        memcpy(stage_params(other)[t].weight, stage_params(one)[t].weight,
               (size_t)stage_params(one)[t].num_elems * sizeof(float));
    assert_int_equal(stage_forward(other, &(struct stage_batch){.block = &block, .step = STEP_EVAL},
                                   &in, &out, false, &err),
                     OK);
    assert_int_equal(stage_loss(other, 0, &loss[2], &err), OK);
    stage_round_weights(other);
    assert_int_equal(stage_forward(other, &(struct stage_batch){.block = &block, .step = STEP_EVAL},
                                   &in, &out, false, &err),
                     OK);
    assert_int_equal(stage_loss(other, 0, &loss[3], &err), OK);
    assert_true(loss[1].loss == loss[3].loss);
    assert_true(loss[2].loss != loss[3].loss);
    stage_free(one);
    stage_free(other);
    backend_free(be);
    close_fixture(&f);
}

static void freeze_between(struct way *way, const struct fixture *f, int v)
{
    cut_in_two(way, f, v);
    way->split = v & 1;
    way->recompute = v & 2;
}

static void stage_freeze__same_bits_at_every_cut(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_FAMILIES; i++) {
        struct fixture f;
        struct outcome want, got, other;
        open_fixture(&f, families[i].spec, families[i].task);
        struct way way = one_stage(&f);
        run(&f, &way, &other);
        way.freeze_to = 5;
        run(&f, &way, &want);
        assert_true(memcmp(other.weights, want.weights, (size_t)want.num * sizeof(float)) != 0);
        for (int v = 0; v + 1 < f.job.model.num_items; v++) {
            struct way cut = way;
            freeze_between(&cut, &f, v);
            run(&f, &cut, &got);
            assert_same(&want, &got);
            free(got.weights);
        }
        free(want.weights);
        free(other.weights);
        close_fixture(&f);
    }
}

/* --- bad input ------------------------------------------------------------------------------- */

static void refuse(struct stage *stage, const struct sample_block *b, const char *text)
{
    struct err err = {0};
    void *in = NULL, *out;
    assert_int_equal(stage_forward(stage, &(struct stage_batch){.block = b}, &in, &out, true, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.msg, text));
}

static void stage_forward__refuses_what_would_read_or_write_astray(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = {0};
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    open_fixture(&f, &bert, TASK_CLASSIFY);
    struct stage *stage = open_whole(&f, be);
    struct sample_block good = block_of(&f, 0), bad = good;
    bad.num_samples = SAMPLES + 1;
    refuse(stage, &bad, "limit 3");
    bad.num_samples = 0;
    refuse(stage, &bad, "0 samples");
    bad = good;
    bad.labels = NULL;
    refuse(stage, &bad, "no labels");
    bad = good;
    bad.tokens = NULL;
    refuse(stage, &bad, "no tokens");
    f.tokens[10] = 50;
    refuse(stage, &good, "token 50 of sample 1");
    f.tokens[10] = -1;
    refuse(stage, &good, "token -1 of sample 1");
    f.tokens[10] = 0;
    f.types[0] = 2;
    refuse(stage, &good, "token type 2 of sample 0");
    f.types[0] = 0;
    f.labels[2] = 3;
    refuse(stage, &good, "label 3 of sample 2 in the micro-batch is not in 0..2");
    f.labels[2] = 0;
    assert_int_equal(stage_backward(stage, &(struct stage_batch){.block = &good, .grad_scale = 1},
                                    BACKWARD_BOTH, NULL, NULL, NULL),
                     ERR_INPUT);
    struct loss_sums loss;
    void *in = NULL, *out;
    assert_int_equal(
        stage_forward(stage, &(struct stage_batch){.block = &good}, &in, &out, true, &err), OK);
    assert_int_equal(stage_loss(stage, 0, &loss, &err), OK);
    refuse(stage, &good, "slot 0");
    assert_int_equal(stage_freeze(stage, 3, NULL), ERR_INPUT); /* in flight */
    assert_int_equal(stage_backward(stage, &(struct stage_batch){.block = &good, .grad_scale = 1},
                                    BACKWARD_WEIGHT, NULL, NULL, &err),
                     OK);
    assert_int_equal(stage_freeze(stage, 3, &err), OK);
    assert_int_equal(stage_freeze(stage, 0, NULL), ERR_INPUT); /* never backwards */
    stage_free(stage);
    close_fixture(&f);
    backend_free(be);
}

static void stage_new__refuses_bad_specs(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = {0};
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    struct stage *stage = NULL;
    open_fixture(&f, &vit, TASK_CLASSIFY);
    const struct stage_spec good = {.model = &f.job.model,
                                    .job = &f.job,
                                    .backend = be,
                                    .end_item = f.job.model.num_items,
                                    .max_samples = SAMPLES,
                                    .max_live = 1};
    struct stage_spec bad = good;
    bad.end_item = 99;
    assert_int_equal(stage_new(&bad, &stage, NULL), ERR_INPUT);
    bad = good;
    bad.first_item = bad.end_item;
    assert_int_equal(stage_new(&bad, &stage, NULL), ERR_INPUT);
    bad = good;
    bad.max_live = 0;
    assert_int_equal(stage_new(&bad, &stage, NULL), ERR_INPUT);
    bad = good;
    bad.max_samples = INT64_MAX / 2;
    assert_int_equal(stage_new(&bad, &stage, NULL), ERR_INPUT);
    f.job.train.dtype = DTYPE_BF16; /* the backend computes in fp32 */
    assert_int_equal(stage_new(&good, &stage, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "fp32"));
    assert_null(stage);
    close_fixture(&f);
    backend_free(be);
}

static int allocations_left;
static enum status (*real_alloc)(struct backend *, int64_t, void **, struct err *);
static enum status (*real_zeroed)(struct backend *, int64_t, void **, struct err *);
static enum status failing_alloc(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    if (allocations_left-- == 0)
        return err_nomem(err);
    return real_alloc(be, bytes, ptr, err);
}
static enum status failing_zeroed(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    if (allocations_left-- == 0)
        return err_nomem(err);
    return real_zeroed(be, bytes, ptr, err);
}

static void stage_new__survives_each_failing_allocation(void **state)
{
    (void)state;
    struct fixture f;
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, NULL);
    open_fixture(&f, &uvit, TASK_CLASSIFY);
    real_alloc = be->alloc;
    be->alloc = failing_alloc;
    real_zeroed = be->alloc_zeroed;
    be->alloc_zeroed = failing_zeroed;
    const struct stage_spec spec = {.model = &f.job.model,
                                    .job = &f.job,
                                    .backend = be,
                                    .end_item = f.job.model.num_items,
                                    .max_samples = SAMPLES,
                                    .max_live = 2};
    enum status rc = ERR_NOMEM;
    int n;
    for (n = 0; rc != OK; n++) {
        struct stage *stage = NULL;
        allocations_left = n;
        rc = stage_new(&spec, &stage, NULL);
        assert_true(rc == ERR_NOMEM ? !stage : stage != NULL);
        stage_free(stage);
    }
    assert_true(n > 20);
    close_fixture(&f);
    backend_free(be);
}

static void stage_forward__evaluation_drops_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = {0};
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    double loss_of[4];
    open_fixture(&f, &gpt, TASK_CAUSAL_LM);
    for (int i = 0; i < 4; i++) { /* evaluation, dropout 0.1, 0 and another step */
        struct stage *stage;
        struct loss_sums loss;
        void *in = NULL, *out;
        f.job.train.dropout = i == 2 ? 0.0 : 0.1;
        stage = open_whole(&f, be);
        const struct sample_block block = block_of(&f, 0);
        assert_int_equal(
            stage_forward(
                stage,
                &(struct stage_batch){.block = &block, .step = i == 0 ? STEP_EVAL : (uint64_t)i},
                &in, &out, false, &err),
            OK);
        assert_int_equal(stage_loss(stage, 0, &loss, &err), OK);
        loss_of[i] = loss.loss;
        assert_int_equal(loss.count, SAMPLES * f.job.model.seq);
        stage_free(stage);
    }
    assert_true(loss_of[0] == loss_of[2]);
    assert_true(loss_of[0] != loss_of[1] && loss_of[1] != loss_of[3]);
    close_fixture(&f);
    backend_free(be);
}

/* Micro-batches with and without tokens to predict; more than a micro-batch has room for. */
static void stage_forward__takes_no_masked_token_and_refuses_too_many(void **state)
{
    struct fixture f;
    struct err err = {0};
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    struct loss_sums loss = {.loss = 1, .count = 1};
    void *in = NULL, *out;
    (void)state;
    open_fixture(&f, &bert, TASK_MLM);
    f.job.train.dropout = 0.0;
    struct stage *stage = open_whole(&f, be);
    const struct sample_block block = block_of(&f, 0);
    for (int i = 0; i < SAMPLES * f.job.model.seq; i++)
        f.labels[i] = -100;
    spoil(stage);
    stage_begin_grad(stage);
    assert_int_equal(
        stage_forward(stage, &(struct stage_batch){.block = &block}, &in, &out, true, &err), OK);
    assert_int_equal(stage_loss(stage, 0, &loss, &err), OK);
    assert_true(loss.loss == 0 && loss.count == 0);
    assert_int_equal(stage_backward(stage, &(struct stage_batch){.block = &block, .grad_scale = 1},
                                    BACKWARD_BOTH, NULL, NULL, &err),
                     OK);
    assert_gradients(stage, NULL);
    for (int i = 0; i < SAMPLES; i++) /* 1 of 9 each: all from one sample do as well */
        f.labels[i] = 1;
    assert_int_equal(
        stage_forward(stage, &(struct stage_batch){.block = &block}, &in, &out, false, &err), OK);
    assert_int_equal(stage_loss(stage, 0, &loss, &err), OK);
    assert_int_equal(loss.count, SAMPLES);
    f.labels[SAMPLES] = 1;
    assert_int_equal(
        stage_forward(stage, &(struct stage_batch){.block = &block}, &in, &out, false, &err),
        ERR_INPUT);
    assert_non_null(strstr(err.msg, "4 tokens of a micro-batch are to be predicted, at most 3"));
    stage_free(stage);
    close_fixture(&f);
    backend_free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stage__same_bits_at_every_cut),
        cmocka_unit_test(stage__same_bits_split_recomputed_threaded),
        cmocka_unit_test(stage__same_bits_at_any_thread_count),
        cmocka_unit_test(stage__same_bits_with_frozen_prefix_at_every_cut),
        cmocka_unit_test(stage_begin_grad__makes_old_gradients_count_as_zero),
        cmocka_unit_test(stage_grad_sumsq__asks_the_backend_once),
        cmocka_unit_test(stage_freeze__leaves_no_gradient_of_a_tied_table),
        cmocka_unit_test(stage_freeze__leaves_a_head_as_if_made_frozen),
        cmocka_unit_test(stage__same_bits_in_bf16),
        cmocka_unit_test(stage__bf16_is_near_fp32_in_less_memory),
        cmocka_unit_test(stage_anneal__scales_the_rate_of_the_items_below),
        cmocka_unit_test(stage_round_weights__makes_kernels_see_the_parameters),
        cmocka_unit_test(stage_freeze__same_bits_at_every_cut),
        cmocka_unit_test(stage_forward__refuses_what_would_read_or_write_astray),
        cmocka_unit_test(stage_new__refuses_bad_specs),
        cmocka_unit_test(stage_new__survives_each_failing_allocation),
        cmocka_unit_test(stage_forward__evaluation_drops_nothing),
        cmocka_unit_test(stage_forward__takes_no_masked_token_and_refuses_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
