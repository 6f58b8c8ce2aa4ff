/* all-MiniLM-L6-v2 against PyTorch: hidden states behind every layer, and tokens.
 *
 * tests/e2e/e2e_minilm.sh fetches the weights, writes the references (tests/reference/minilm.py) and
 * names their folder in ELAPSE_MINILM; without it these tests skip. */
#include "exec/cpu/backend_cpu.h"
#include "exec/data/tokenizer.h"
#include "exec/weights/hf_names.h"
#include "tests/unit/test.h"

static char folder[256];

static void path_of(char *path, const char *name)
{
    snprintf(path, 400, "%s/%s", folder, name);
}

static int need_folder(void **state)
{
    const char *dir = getenv("ELAPSE_MINILM");
    (void)state;
    snprintf(folder, sizeof folder, "%s", dir ? dir : "");
    return 0;
}

static void tokenizer_encode__gives_the_tokens_of_an_independent_tokenizer(void **state)
{
    struct tokenizer *wp = NULL;
    struct token_list tokens = {0};
    struct err err = {0};
    char path[400], *line = NULL, *want = NULL;
    size_t line_room = 0, want_room = 0;
    ssize_t length;
    int lines = 0;
    (void)state;
    if (!*folder)
        skip();
    path_of(path, "vocab.txt");
    assert_int_equal(tokenizer_open(path, NULL, LOWER_AUTO, &wp, &err), OK);
    assert_int_equal(tokenizer_size(wp), 30522);
    assert_true(tokenizer_lowers(wp));
    path_of(path, "texts.txt");
    FILE *texts = fopen(path, "r");
    path_of(path, "tokens.txt");
    FILE *ids = fopen(path, "r");
    assert_non_null(texts);
    assert_non_null(ids);
    while ((length = getline(&line, &line_room, texts)) >= 0) {
        if (length > 0 && line[length - 1] == '\n')
            length--;
        lines++;
        assert_true(getline(&want, &want_room, ids) >= 0);
        tokens.count = 0;
        assert_int_equal(tokenizer_encode(wp, line, (size_t)length, 0, &tokens, &err), OK);
        char *at = want;
        for (int64_t i = 0; i < tokens.count; i++) {
            char *end;
            long id = strtol(at, &end, 10);
            if (end == at || id != tokens.at[i].id)
                fail_msg("line %d '%s': token %d is %d, wanted %ld", lines, line, (int)i,
                         tokens.at[i].id, id);
            at = end;
        }
        if (at[strspn(at, " \n")] != '\0')
            fail_msg("line %d '%s': %d tokens, wanted more", lines, line, (int)tokens.count);
    }
    print_message("%d lines\n", lines);
    assert_true(lines > 100);
    fclose(texts);
    fclose(ids);
    free(line);
    free(want);
    token_list_clear(&tokens);
    tokenizer_free(wp);
}

/* The stage ends behind layer `layer`; largest difference over the tokens that count. */
static double worst_difference(const char *weights, const struct safetensors *reference, int layer)
{
    struct job job = {0};
    struct backend *be;
    struct stage *stage = NULL;
    struct err err = {0};
    struct tensor_info info;
    struct hf_import import;
    char name[32];
    double worst = 0;
    job_defaults(&job);
    assert_true(safetensors_find(reference, "tokens", &info));
    int n = (int)info.shape[0], seq = (int)info.shape[1];
    float *values = malloc((size_t)(n * seq) * sizeof *values);
    int32_t *tokens = calloc((size_t)(n * seq), sizeof *tokens);
    int32_t *types = calloc((size_t)(n * seq), sizeof *types);
    int32_t *lengths = calloc((size_t)n, sizeof *lengths);
    int64_t *ids = calloc((size_t)n, sizeof *ids);
    assert_int_equal(safetensors_read(reference, "tokens", &info, values, &err), OK);
    for (int i = 0; i < n * seq; i++)
        tokens[i] = (int32_t)values[i];
    assert_true(safetensors_find(reference, "lengths", &info));
    assert_int_equal(safetensors_read(reference, "lengths", &info, values, &err), OK);
    for (int i = 0; i < n; i++)
        lengths[i] = (int32_t)values[i];
    char text[64];
    snprintf(text, sizeof text, "minilm-l6:task=classify,classes=2,seq=%d", seq);
    assert_int_equal(model_parse(text, &job.model, &err), OK);
    be = backend_cpu_new(DTYPE_FP32, 2, &err);
    assert_non_null(be);
    const struct stage_spec spec = {.model = &job.model,
                                    .job = &job,
                                    .backend = be,
                                    .end_item = 1 + 2 * (layer + 1),
                                    .max_samples = n,
                                    .max_live = 1};
    assert_int_equal(stage_new(&spec, &stage, &err), OK);
    assert_int_equal(stage_init_weights(stage, 1, &err), OK);
    const struct stage_list list = {&stage, 1, be};
    assert_int_equal(hf_load(weights, &job.model, NULL, &list, true, &import, &err), OK);
    assert_int_equal(import.num_fresh, 2); /* the classifier */
    const struct sample_block block = {
        .num_samples = n, .ids = ids, .tokens = tokens, .token_types = types, .lengths = lengths};
    void *out = NULL;
    assert_int_equal(stage_forward(stage, &(struct stage_batch){.block = &block, .step = STEP_EVAL},
                                   NULL, &out, false, &err),
                     OK);
    snprintf(name, sizeof name, "hidden.%d", layer);
    assert_true(safetensors_find(reference, name, &info));
    float *want = malloc((size_t)info.num_elems * sizeof *want);
    assert_int_equal(safetensors_read(reference, name, &info, want, &err), OK);
    int64_t h = info.shape[2];
    for (int i = 0; i < n; i++)
        for (int64_t e = 0; e < lengths[i] * h; e++) {
            double d =
                fabs((double)((const float *)out)[i * seq * h + e] - (double)want[i * seq * h + e]);
            worst = d > worst ? d : worst;
        }
    free(want);
    free(values);
    free(tokens);
    free(types);
    free(lengths);
    free(ids);
    stage_free(stage);
    backend_free(be);
    job_clear(&job);
    return worst;
}

static void hf_load__gives_pytorch_s_hidden_states_behind_every_layer(void **state)
{
    struct safetensors *reference = NULL;
    struct err err = {0};
    char path[400];
    (void)state;
    if (!*folder)
        skip();
    path_of(path, "reference.safetensors");
    assert_int_equal(safetensors_open(path, &reference, &err), OK);
    path_of(path, "model.safetensors");
    for (int layer = 0; layer < 6; layer++) {
        double worst = worst_difference(path, reference, layer);
        print_message("layer %d: largest difference %.2e\n", layer, worst);
        /* Values are about 1; fp32 sums of 384 and 1,536 terms in another order. */
        assert_true(worst < 2e-5);
    }
    safetensors_close(reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(tokenizer_encode__gives_the_tokens_of_an_independent_tokenizer,
                               need_folder),
        cmocka_unit_test_setup(hf_load__gives_pytorch_s_hidden_states_behind_every_layer,
                               need_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
