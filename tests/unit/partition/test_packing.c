/* Rows of documents: the closed forms beside random documents that a packer lays into rows one by
 * one, and the flops and kernels of a row beside sums over its documents. */
#include "partition/cost/cost.h"
#include "partition/cost/kernels.h"
#include "partition/model/packing.h"
#include "partition/plan/rates.h"
#include "tests/unit/test.h"

#define TEXT "llama3-8b:layers=2,seq=4096,dtype=bf16"
enum { SEQ = 4096, DOCUMENTS = 40000 };

/* A normal number by the sum of twelve uniform ones would cut the tails, so by Box and Muller. */
static double random_normal(void)
{
    const double u = ((double)random_bits() + 1) / 2147483649.0,
                 v = (double)random_bits() / 2147483648.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static double random_length(double mean, double deviation, double most)
{
    const double spread = sqrt(log1p(deviation * deviation / mean / mean));
    const double x = exp(log(mean) - spread * spread / 2 + spread * random_normal());
    return fmin(fmax(round(x), 1), most);
}

static struct model packed_model(const char *text, const struct packing_ask *ask)
{
    struct model model = {0};
    struct err err = {0};
    assert_int_equal(model_parse(text, &model, &err), OK);
    if (model_set_packing(&model, ask, &err) != OK)
        fail_msg("%s", err.msg);
    return model;
}

struct lain {
    double documents, tokens, pairs, windowed; /* of a row */
};

/* As text_lines.c lays them: a document that does not fit begins the next row. */
static struct lain lay_next_fit(const double *lengths, int num, double window)
{
    struct lain sum = {0};
    double rows = 1, used = 0;
    for (int i = 0; i < num; i++) {
        const double l = lengths[i], w = fmin(window, l);
        if (used + l > SEQ) {
            rows++;
            used = 0;
        }
        used += l;
        sum.documents++;
        sum.tokens += l;
        sum.pairs += l * l;
        sum.windowed += l * (2 * w - 1) - w * (w - 1);
    }
    return (struct lain){sum.documents / rows, sum.tokens / rows, sum.pairs / rows,
                         sum.windowed / rows};
}

static int falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* First fit by falling lengths. */
static double lay_ahead(double *lengths, int num)
{
    static double used[DOCUMENTS];
    int rows = 0, from = 0;
    qsort(lengths, (size_t)num, sizeof *lengths, falling);
    for (int i = 0; i < num; i++) {
        int r = from;
        while (r < rows && used[r] + lengths[i] > SEQ)
            r++;
        if (r == rows)
            used[rows++] = 0;
        used[r] += lengths[i];
        while (from < rows && used[from] + lengths[num - 1] > SEQ)
            from++;
    }
    return (double)num / rows;
}

static const struct {
    double mean, deviation;
} sets[] = {
    {180,  70  },
    {600,  900 },
    {1400, 700 },
    {2500, 1200},
    {60,   200 },
    {1500, 0   },
    {4096, 0   },
};
enum { SETS = sizeof sets / sizeof *sets };

static void assert_near(double got, double want, double share, const char *what, int set)
{
    if (!(fabs(got - want) <= share * want))
        fail_msg("%s of set %d: %g, by brute force %g", what, set, got, want);
}

static void model_set_packing__fills_rows_as_a_packer_does(void **state)
{
    (void)state;
    static double lengths[DOCUMENTS];
    random_state = 7;
    for (int s = 0; s < SETS; s++) {
        struct packing_ask ask = {.mean = sets[s].mean, .deviation = sets[s].deviation};
        struct model model = packed_model(TEXT, &ask), windowed;
        windowed = packed_model("mistral-7b:layers=2,seq=4096,window=512,dtype=bf16", &ask);
        for (int i = 0; i < DOCUMENTS; i++)
            lengths[i] = random_length(ask.mean, ask.deviation, SEQ);
        const struct lain lain = lay_next_fit(lengths, DOCUMENTS, 512);
        assert_near(model_row_documents(&model), lain.documents, 0.015, "documents", s);
        assert_near(model_row_tokens(&model), lain.tokens, 0.015, "tokens", s);
        assert_near(model_document_pairs(&model, 0), lain.pairs, 0.06, "pairs", s);
        assert_near(model_document_pairs(&windowed, 0), lain.windowed, 0.03, "pairs in windows", s);
        model_clear(&model);
        model_clear(&windowed);
    }
}

static void model_set_packing__fills_rows_better_where_the_packer_looks_ahead(void **state)
{
    (void)state;
    static double lengths[DOCUMENTS];
    const int num = DOCUMENTS / 8;
    random_state = 11;
    for (int s = 0; s < SETS; s++) {
        struct packing_ask ask = {.mean = sets[s].mean,
                                  .deviation = sets[s].deviation,
                                  .framework = FRAMEWORK_MEGATRON_TE};
        struct model model = packed_model(TEXT, &ask);
        for (int i = 0; i < num; i++)
            lengths[i] = random_length(ask.mean, ask.deviation, SEQ);
        assert_near(model_row_documents(&model), lay_ahead(lengths, num), 0.04, "documents", s);
        model_clear(&model);
    }
}

static double core_flops(const struct model *model, enum pass pass, int64_t samples, int64_t *rows)
{
    static const struct cost_options options = {.efficiency = 1};
    struct kernel list[KERNELS_MAX];
    const int num = kernels_of(model, 1, pass, samples, &options, list);
    for (int i = 0; i < num; i++)
        if (list[i].kind == KERNEL_ATTENTION) {
            *rows = list[i].batch * list[i].m;
            return list[i].flops;
        }
    return 0;
}

/* Four documents of 1,024 tokens in a row of 4,096: a quarter of the pairs, and all else as before. */
static void kernels__of_packed_rows_pay_for_each_documents_pairs(void **state)
{
    (void)state;
    const struct packing_ask ask = {.mean = 1024};
    struct model whole = {0}, model = packed_model(TEXT, &ask);
    const double width = 32.0 * 128, all = 4 * width * SEQ * SEQ;
    int64_t rows;
    assert_int_equal(model_parse(TEXT, &whole, NULL), OK);
    assert_near(model_row_documents(&model), 4, 1e-9, "documents", 0);
    assert_near(core_flops(&whole, PASS_FWD, 3, &rows), 3 * all, 1e-9, "core", 0);
    assert_near(core_flops(&model, PASS_FWD, 3, &rows), 3 * all / 4, 1e-6, "core", 1);
    assert_int_equal(rows, 3 * 32 * SEQ);
    assert_near(core_flops(&model, PASS_BWD_INPUT, 3, &rows), 3 * 2.5 * all / 4, 1e-6, "core", 2);
    assert_near((double)(whole.items[1].fwd_flops - model.items[1].fwd_flops), all * 3 / 4, 1e-6,
                "item", 0);
    assert_int_equal(model.items[2].fwd_flops, whole.items[2].fwd_flops);
    assert_int_equal(model.items[1].stash_bytes, whole.items[1].stash_bytes);
    model_clear(&model);
    /* A mask over the whole row saves nothing. */
    const struct packing_ask masked = {.mean = 1024, .framework = FRAMEWORK_MEGATRON_2021};
    model = packed_model(TEXT, &masked);
    assert_near(core_flops(&model, PASS_FWD, 3, &rows), 3 * all, 1e-9, "core", 3);
    model_clear(&model);
    model_clear(&whole);
}

/* Model flops of a row: three times 2 N tokens and 4 s^2 h of each document's own length. */
static void rates__count_tokens_of_documents_only(void **state)
{
    (void)state;
    static const enum fill_kind kinds[] = {FILL_PACKED, FILL_CONTEXT, FILL_LONGEST};
    const struct plan plan = {.num_ranks = 1, .num_pipelines = 1};
    for (int k = 0; k < 3; k++) {
        const struct packing_ask ask = {.mean = 1500, .rows = kinds[k], .batch = 8};
        struct model model = packed_model(TEXT, &ask);
        const double documents = k == 0 ? 2 : 1;
        const double N = 2 * (double)(model.items[1].params + model.items[2].params - 2 * 4096) +
                         4096.0 * 128256;
        const double want = 3 * documents * (2 * N * 1500 + 2 * 4 * 1500.0 * 1500 * 32 * 128);
        assert_near(model_row_tokens(&model), documents * 1500, 1e-9, "tokens", k);
        assert_near(rates_sample_flops(&model, &plan).model, want, 1e-6, "flops", k);
        assert_int_equal(model.seq, k == 2 ? 1500 : SEQ);
        model_clear(&model);
    }
}

/* Rows that are padded to the longest are those of a model of so many tokens. */
static void model_set_packing__pads_to_the_longest_of_a_batch(void **state)
{
    (void)state;
    enum { BATCH = 16, BATCHES = 4000 };
    const struct packing_ask ask = {
        .mean = 600, .deviation = 400, .rows = FILL_LONGEST, .batch = BATCH};
    struct model model = packed_model(TEXT, &ask), same = {0};
    double sum = 0;
    char text[64];
    random_state = 5;
    for (int b = 0; b < BATCHES; b++) {
        double longest = 0;
        for (int i = 0; i < BATCH; i++)
            longest = fmax(longest, random_length(600, 400, SEQ));
        sum += longest;
    }
    assert_near(model.seq, sum / BATCHES, 0.01, "longest", 0);
    snprintf(text, sizeof text, "llama3-8b:layers=2,seq=%d,dtype=bf16", model.seq);
    assert_int_equal(model_parse(text, &same, NULL), OK);
    for (int i = 0; i < model.num_items; i++) {
        assert_near((double)model.items[i].fwd_flops, (double)same.items[i].fwd_flops, 1e-6,
                    "flops", i);
        assert_near((double)model.items[i].stash_bytes, (double)same.items[i].stash_bytes, 1e-6,
                    "stash", i);
        assert_near((double)model.items[i].act_bytes, (double)same.items[i].act_bytes, 1e-6, "act",
                    i);
    }
    model_clear(&model);
    model_clear(&same);
}

static void model_set_packing__refuses_what_no_documents_are(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        struct packing_ask ask;
        const char *why;
    } rows[] = {
        {TEXT,
         {.mean = 5000},
         "data.length must be 1..4096, the tokens of a row of model 'llama3-8b', got 5000"},
        {TEXT,
         {.mean = -3},
         "data.length must be 1..4096, the tokens of a row of model 'llama3-8b', got -3"  },
        {TEXT,
         {.mean = 9, .deviation = -1},
         "data.length_deviation must be 0..100 times data.length, got -1"                 },
        {"vit-b16",
         {.mean = 9},
         "data.length: model 'vit-b16' is not a causal language model, whose samples are "
         "documents"                                                                      },
        {"t5-base",
         {.mean = 9},
         "data.length: model 't5-base' is not a causal language model, whose samples are "
         "documents"                                                                      },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model model = {0};
        struct err err = {0};
        assert_int_equal(model_parse(rows[i].model, &model, NULL), OK);
        assert_true(model_set_packing(&model, &rows[i].ask, &err) != OK);
        assert_string_equal(err.msg, rows[i].why);
        model_clear(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_set_packing__fills_rows_as_a_packer_does),
        cmocka_unit_test(model_set_packing__fills_rows_better_where_the_packer_looks_ahead),
        cmocka_unit_test(kernels__of_packed_rows_pay_for_each_documents_pairs),
        cmocka_unit_test(rates__count_tokens_of_documents_only),
        cmocka_unit_test(model_set_packing__pads_to_the_longest_of_a_batch),
        cmocka_unit_test(model_set_packing__refuses_what_no_documents_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
