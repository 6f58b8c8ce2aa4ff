/* State-space items: flops of the scans counted one by one, flops as NVIDIA counts Nemotron-H 56B, what
 * tensor parallelism divides, and the products among the kernels. */
#include <string.h>

#include "partition/cost/kernels.h"
#include "partition/layout/model_shard.h"
#include "partition/layout/tensor_group.h"
#include "partition/model/model.h"
#include "tests/unit/test.h"

/* A decoder of the given items, one a layer. */
static struct model_spec hybrid(const char *pattern, enum mixer_kind kind)
{
    struct model_spec spec;
    struct err err = {0};
    if (model_preset("llama", &spec, &err) != OK)
        fail_msg("%s", err.msg);
    strcpy(spec.pattern, pattern);
    spec.num_layers = (int)strlen(pattern);
    spec.layer_items = 1;
    spec.elem_bytes = 2;
    spec.state = (struct state_space){.kind = (int)kind,
                                      .heads = 6,
                                      .head_dim = 5,
                                      .groups = 2,
                                      .state = 7,
                                      .conv = 4,
                                      .chunk = 8,
                                      .rank = 3,
                                      .conv_bias = 1,
                                      .norm = 1};
    spec.hidden = 48;
    spec.heads = 4;
    spec.kv_heads = 2;
    spec.mlp = 96;
    spec.vocab = 512;
    spec.seq = 24;
    if (kind == MIXER_MAMBA) {
        spec.state.heads = 30;
        spec.state.head_dim = spec.state.groups = 1;
    } else if (kind == MIXER_LIGHTNING) {
        spec.state.groups = spec.state.heads;
        spec.state.conv = spec.state.conv_bias = 0;
    }
    return spec;
}

static struct model build(const struct model_spec *spec)
{
    struct model model = {0};
    struct err err = {0};
    if (model_build(spec, &model, &err) != OK)
        fail_msg("%s", err.msg);
    return model;
}

/* Multiply-adds of a product [m, k] [k, n], one by one. */
static int64_t product(int m, int n, int k)
{
    int64_t count = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int x = 0; x < k; x++)
                count++;
    return count;
}

/* What the layer computes for a sample beside its linears, in flops. */
static int64_t slow_scan(const struct model_spec *s)
{
    const struct state_space *t = &s->state;
    const int Q = t->chunk, N = t->state, P = t->head_dim;
    const int channels = t->kind == MIXER_LIGHTNING ? 0
                         : t->kind == MIXER_MAMBA   ? t->heads
                                                    : t->heads * P + 2 * t->groups * N;
    int64_t flops = 0;
    for (int token = 0; token < s->seq; token++)
        for (int c = 0; c < channels; c++)
            flops += 2 * t->conv;
    if (t->kind == MIXER_MAMBA) {
        for (int token = 0; token < s->seq; token++)
            for (int c = 0; c < t->heads; c++)
                for (int n = 0; n < N; n++)
                    flops += 1 + 2 + 2 + 2; /* rate x A; B x rate x input; decay, sum; C, sum */
        return flops;
    }
    for (int chunk = 0; chunk < s->seq / Q; chunk++) {
        for (int g = 0; g < t->groups && t->kind != MIXER_DELTA; g++)
            flops += 2 * product(Q, Q, N); /* C B^T */
        for (int h = 0; h < t->heads; h++) {
            if (t->kind != MIXER_DELTA) {
                flops += 2 * product(Q, P, Q); /* its product with the inputs */
                flops += 2 * product(N, P, Q); /* the chunk's state */
                flops += 2 * N * P;            /* added to the decayed state so far */
                flops += 2 * product(Q, P, N); /* what comes of the state so far */
                continue;
            }
            flops += 2 * product(Q, Q, N);                        /* K K^T */
            flops += 2 * product(Q, N, Q) + 2 * product(Q, P, Q); /* W and U */
            flops += 2 * product(Q, P, N) + 2 * product(N, P, Q); /* new values, state */
            flops += 2 * product(Q, P, N);                        /* from the state */
            flops += 2 * product(Q, Q, N) + 2 * product(Q, P, Q); /* from the chunk */
            flops += Q * (Q * Q / 3);                             /* the inverse */
        }
    }
    return flops;
}

static int64_t slow_linears(const struct model_spec *s)
{
    const struct state_space *t = &s->state;
    const int D = t->heads * t->head_dim, keys = t->groups * t->state, h = s->hidden;
    switch ((enum mixer_kind)t->kind) {
    case MIXER_MAMBA:
        return product(h, 2 * D, 1) + product(D, t->rank + 2 * t->state, 1) +
               product(t->rank, D, 1) + product(D, h, 1);
    case MIXER_MAMBA2:
        return product(h, 2 * D + 2 * keys + t->heads, 1) + product(D, h, 1);
    case MIXER_DELTA:
        return product(h, 2 * D + 2 * keys, 1) + product(h, 2 * t->heads, 1) + product(D, h, 1);
    default:
        return product(h, 3 * D, 1) + product(h, D, 1) + product(D, h, 1);
    }
}

static void flops__are_those_of_a_slow_count(void **state)
{
    (void)state;
    for (int kind = MIXER_MAMBA; kind <= MIXER_LIGHTNING; kind++) {
        const struct model_spec spec = hybrid("M-", (enum mixer_kind)kind);
        struct model model = build(&spec);
        assert_int_equal(model.items[1].kind, ITEM_STATE);
        assert_int_equal(model.items[1].fwd_flops,
                         2 * spec.seq * slow_linears(&spec) + slow_scan(&spec));
        assert_true(model_product_flops(&model, &model.items[1]) ==
                    2 * spec.seq * slow_linears(&spec));
        model_clear(&model);
    }
}

/* 2.816e15 flops for a sample of 8,192 tokens, forward and backward (NVIDIA/dgxc-benchmarking,
 * nemotron-h/README.md, notes); it leaves out the convolution and the states that are passed on. */
static void nemotron_h__has_the_flops_that_nvidia_counts(void **state)
{
    (void)state;
    char pattern[MODEL_PATTERN_SIZE] = "M-M-M-M*-";
    for (int i = 0; i < 9; i++)
        strcat(pattern, "M-M-M-M-M*-");
    strcat(pattern, "M-M-M-M-M-");
    struct model_spec spec = hybrid(pattern, MIXER_MAMBA2);
    spec.hidden = 8192;
    spec.heads = 64;
    spec.kv_heads = 8;
    spec.mlp = 32768;
    spec.block.plain_mlp = true;
    spec.vocab = 131072;
    spec.seq = 8192;
    spec.state = (struct state_space){.kind = MIXER_MAMBA2,
                                      .heads = 256,
                                      .head_dim = 64,
                                      .groups = 8,
                                      .state = 256,
                                      .conv = 4,
                                      .chunk = 256,
                                      .conv_bias = 1,
                                      .norm = 1};
    struct model model = build(&spec);
    double flops = 0;
    for (int i = 0; i < model.num_items; i++)
        flops += 3 * (double)model.items[i].fwd_flops;
    assert_int_equal(model.num_items, 54 + 54 + 10 + 3);
    assert_true(fabs(flops / 2.816e15 - 1) < 2e-4);
    model_clear(&model);
}

/* T devices together hold all, and once more the norm that each has, T - 1 times. */
static void tensor__divides_heads(void **state)
{
    (void)state;
    struct err err = {0};
    for (int kind = MIXER_MAMBA2; kind <= MIXER_DELTA; kind++) {
        const struct model_spec spec = hybrid("M-*-", (enum mixer_kind)kind);
        struct model model = build(&spec), part = {0};
        const int64_t same = spec.hidden + (kind == MIXER_DELTA ? spec.state.head_dim : 0);
        if (model_shard(&model, 2, true, &part, &err) != OK)
            fail_msg("%s", err.msg);
        assert_int_equal(2 * part.items[1].params, model.items[1].params + same);
        assert_int_equal(2 * part.items[1].fwd_flops, model.items[1].fwd_flops);
        assert_int_equal(2 * part.items[1].stash_bytes, model.items[1].stash_bytes);
        assert_int_equal(2 * model_product_flops(&part, &part.items[1]),
                         model_product_flops(&model, &model.items[1]));
        struct exchange to[MODEL_EXCHANGES_MAX];
        assert_int_equal(model_exchanges(&part, 1, PASS_FWD, to), 2);
        model_clear(&part);
        model_clear(&model);
    }
}

static void layouts__that_no_framework_has_are_refused(void **state)
{
    (void)state;
    static const struct {
        enum mixer_kind kind;
        int tensor, context, beside;
        const char *says;
    } cases[] = {
        {MIXER_MAMBA,     2, 1, 0, "no framework divides the channels of Mamba layers"   },
        {MIXER_LIGHTNING, 2, 1, 0, "no framework divides the lightning attention"        },
        {MIXER_MAMBA2,    2, 1, 1, "no framework divides the state-space heads beside"   },
        {MIXER_MAMBA2,    4, 1, 0, "does not divide heads of states 6"                   },
        {MIXER_DELTA,     1, 2, 0, "the states of model 'llama' pass from token to token"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct model_spec spec = hybrid("M-", cases[i].kind);
        spec.state.beside_attention = cases[i].beside;
        spec.kv_heads = 4;
        struct model model = build(&spec);
        enum status rc = model_shard_check(&model, cases[i].tensor, false, &err);
        if (rc == OK)
            rc = model_context_check(&model, cases[i].context, CONTEXT_RING, 1, &err);
        assert_int_equal(rc, ERR_INFEASIBLE);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("%s", err.msg);
        model_clear(&model);
    }
    struct err err = {0};
    struct model model = {0};
    struct model_spec spec = hybrid("M-", MIXER_MAMBA2);
    spec.num_layers = 3;
    assert_int_equal(model_build(&spec, &model, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "layers must be 2, as its pattern has, got 3"));
}

/* The products among the forward's kernels are the flops of linears and scan, but the convolution, what
 * is passed from chunk to chunk, and the inverse. On two devices each has half. */
static void kernels__have_the_products_of_the_item(void **state)
{
    (void)state;
    for (int kind = MIXER_MAMBA2; kind <= MIXER_LIGHTNING; kind++)
        for (int tensor = 1; tensor <= (kind == MIXER_LIGHTNING ? 1 : 2); tensor++) {
            const struct model_spec spec = hybrid("M-", (enum mixer_kind)kind);
            struct model whole = build(&spec), model = {0};
            struct err err = {0};
            if (model_shard(&whole, tensor, false, &model, &err) != OK)
                fail_msg("%s", err.msg);
            const struct state_space *t = &spec.state;
            const struct cost_options options = {.efficiency = 1};
            struct kernel list[KERNELS_MAX];
            double flops = 0;
            const int n = kernels_of(&model, 1, PASS_FWD, 3, &options, list);
            for (int i = 0; i < n; i++)
                flops += list[i].kind == KERNEL_MATMUL ? list[i].flops : 0;
            const int chunks = spec.seq / t->chunk, Q = t->chunk;
            const int channels = t->heads * t->head_dim + 2 * t->groups * t->state;
            int64_t rest = kind == MIXER_LIGHTNING ? 0 : 2 * spec.seq * channels * t->conv;
            if (kind == MIXER_DELTA)
                rest += chunks * t->heads * Q * (Q * Q / 3);
            else
                rest += 2 * chunks * t->state * t->heads * t->head_dim;
            const double want = 3.0 * (double)(whole.items[1].fwd_flops - rest) / tensor;
            /* k of an output's product is a whole number */
            assert_true(fabs(flops / want - 1) < (kind == MIXER_DELTA ? 0.02 : 1e-12));
            model_clear(&model);
            model_clear(&whole);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flops__are_those_of_a_slow_count),
        cmocka_unit_test(nemotron_h__has_the_flops_that_nvidia_counts),
        cmocka_unit_test(tensor__divides_heads),
        cmocka_unit_test(layouts__that_no_framework_has_are_refused),
        cmocka_unit_test(kernels__have_the_products_of_the_item),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
