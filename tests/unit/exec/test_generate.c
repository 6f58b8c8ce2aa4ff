/* Text from a prompt: the cache of keys and values gives the logits of a whole forward, and the rule draws
 * what it says. tests/e2e/e2e_transformers.sh compares tokens with transformers. */
#include "exec/cpu/backend_cpu.h"
#include "exec/serve/choose_token.h"
#include "exec/serve/generator.h"
#include "exec/weights/hf_names.h"
#include "exec/stage/arch.h"
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

enum { VOCAB = 20, LONG = 70 };

static const char *const models[] = {
    "llama:layers=2,hidden=16,heads=4,kv_heads=2,mlp=24,vocab=20,seq=80",
    "llama:layers=2,hidden=16,heads=4,kv_heads=1,mlp=24,vocab=20,seq=80,window=6,qkv_bias=1,tied_"
    "head=1",
    "gpt2:layers=2,hidden=16,heads=4,mlp=24,vocab=20,seq=80,max_seq=80",
};

static enum status fetch(void *ctx, const void *source, int64_t num_elems, float *values,
                         struct err *err)
{
    (void)ctx;
    (void)source;
    (void)err;
    for (int64_t e = 0; e < num_elems; e++)
        values[e] = (float)(random_unit() - 0.5);
    return OK;
}

/* A file with random weights. */
static void put_weights(const struct model *model)
{
    static struct item_spec specs[16];
    struct tensor_out outs[128];
    struct arch arch;
    int n = 0;
    assert_int_equal(arch_init(model, &arch, NULL), OK);
    for (int i = 0; i < model->num_items; i++) {
        arch_item(model, &arch, i, &specs[i]);
        for (int t = 0; t < specs[i].num_tensors; t++) {
            const struct tensor_spec *tensor = &specs[i].tensors[t];
            if (!specs[i].tied || tensor->block != HEAD_TABLE)
                outs[n++] = (struct tensor_out){tensor->name, tensor->ndim, tensor->shape,
                                                tensor->num_elems, NULL};
        }
    }
    random_state = 3;
    assert_int_equal(safetensors_write(in_folder("w.safetensors"),
                                       &(struct tensor_source){outs, n, fetch, NULL}, NULL, NULL),
                     OK);
}

/* However a sequence is cut into reads, its logits are the same; a sequence that ends earlier has those
 * of its end. */
static void generator_read__gives_the_same_logits_however_it_is_cut(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct model model = {0};
        struct err err = {0};
        struct generator *whole = NULL, *single = NULL;
        struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
        int32_t tokens[LONG];
        float after[LONG][VOCAB];
        const float *logits;
        assert_int_equal(model_parse(models[m], &model, &err), OK);
        put_weights(&model);
        for (int i = 0; i < LONG; i++)
            tokens[i] = (int32_t)random_below(VOCAB);
        if (generator_new(&model, in_folder("w.safetensors"), true, NULL, LONG, be, &single,
                          &err) != OK)
            fail_msg("%s", err.msg);
        for (int i = 0; i < LONG; i++) {
            assert_int_equal(generator_read(single, &tokens[i], 1, &logits, &err), OK);
            memcpy(after[i], logits, sizeof after[i]);
        }
        assert_int_equal(generator_read(single, tokens, 1, &logits, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "context of 70 is full: 70 tokens used"));
        for (int end = 1; end <= LONG; end += 23) {
            err = (struct err){0};
            assert_int_equal(generator_new(&model, in_folder("w.safetensors"), true, NULL, LONG, be,
                                           &whole, &err),
                             OK);
            assert_int_equal(generator_read(whole, tokens, end, &logits, &err), OK);
            for (int c = 0; c < VOCAB; c++)
                assert_float_equal(logits[c], after[end - 1][c], 1e-4f);
            generator_free(whole);
        }
        tokens[0] = VOCAB;
        assert_int_equal(
            generator_new(&model, in_folder("w.safetensors"), true, NULL, LONG, be, &whole, &err),
            OK);
        assert_int_equal(generator_read(whole, tokens, 1, &logits, &err), ERR_INPUT);
        generator_free(whole);
        generator_free(single);
        backend_free(be);
        model_clear(&model);
    }
}

static void generator_new__refuses_models_that_predict_no_token(void **state)
{
    struct model model = {0};
    struct err err = {0};
    struct generator *g = NULL;
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    (void)state;
    assert_int_equal(
        model_parse("bert-base:layers=1,hidden=8,heads=1,mlp=8,vocab=20,seq=8", &model, &err), OK);
    assert_int_equal(generator_new(&model, in_folder("w.safetensors"), true, NULL, 8, be, &g, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.msg, "does not predict the next token"));
    model_clear(&model);
    backend_free(be);
}

static void choose_token__keeps_to_its_rule(void **state)
{
    static const float logits[] = {1.0f, 3.0f, 3.0f, 0.0f, 2.0f};
    struct token_work work[5];
    double logprob, sum = 0.0;
    (void)state;
    for (int i = 0; i < 5; i++)
        sum += exp((double)logits[i]);
    const struct token_rule greedy = {.top_p = 1.0};
    assert_int_equal(choose_token(logits, 5, &greedy, 0.9, work, &logprob), 1);
    assert_float_equal(logprob, 3.0 - log(sum), 1e-9);
    /* The shares of many draws are the probabilities of the rule. */
    static const struct {
        struct token_rule rule;
        double wanted[5]; /* weights */
    } cases[] = {
        {{1.0, 0, 1.0},  {2.718282, 20.085537, 20.085537, 1.0, 7.389056}},
        {{2.0, 0, 1.0},  {1.648721, 4.481689, 4.481689, 1.0, 2.718282}  },
        {{1.0, 3, 1.0},  {0, 20.085537, 20.085537, 0, 7.389056}         },
        {{1.0, 0, 0.8},  {0, 20.085537, 20.085537, 0, 7.389056}         },
        {{1.0, 0, 0.01}, {0, 1, 0, 0, 0}                                },
        {{1.0, 2, 0.51}, {0, 1, 1, 0, 0}                                },
        {{1.0, 9, 1.0},  {2.718282, 20.085537, 20.085537, 1.0, 7.389056}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        enum { DRAWS = 20000 };
        int count[5] = {0};
        double all = 0.0;
        for (int i = 0; i < DRAWS; i++)
            count[choose_token(logits, 5, &cases[c].rule, (i + 0.5) / DRAWS, work, &logprob)]++;
        for (int i = 0; i < 5; i++)
            all += cases[c].wanted[i];
        for (int i = 0; i < 5; i++)
            assert_float_equal((double)count[i] / DRAWS, cases[c].wanted[i] / all, 2e-4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generator_read__gives_the_same_logits_however_it_is_cut),
        cmocka_unit_test(generator_new__refuses_models_that_predict_no_token),
        cmocka_unit_test(choose_token__keeps_to_its_rule),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
