/* config.json of decoders: parameters as transformers counts them, windows by layer, and what is
 * refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partition/model/model.h"
#include "profiles/job/job_json.h"
#include "profiles/job/model_config.h"
#include "profiles/json/json.h"
#include "tests/unit/test.h"

static enum status read_text(const char *text, struct model *model, struct err *err)
{
    struct json *json = NULL;
    if (json_parse(text, "config.json", &json, err) != OK)
        fail_msg("%s: %s", text, err->msg);
    enum status rc = model_from_config(json, "config.json", 2, model, err);
    json_free(json);
    return rc;
}

/* tests/reference/hf_params.py counted the parameters with transformers 5.24.0. */
static void configs__have_the_parameters_that_transformers_counts(void **state)
{
    (void)state;
    struct json *rows = NULL;
    struct err err = {0};
    int n = 0;
    if (json_read_file("tests/golden/hf_configs.json", &rows, &err) != OK)
        fail_msg("%s", err.msg);
    for (const struct json *row = json_first(rows); row; row = json_next(row), n++) {
        const char *name = json_string(json_get(row, "name"));
        struct model model = {0};
        int64_t params = 0;
        if (model_from_config(json_get(row, "config"), name, 2, &model, &err) != OK)
            fail_msg("%s", err.msg);
        assert_true(json_int64(json_get(row, "params"), &params));
        if (model_total_params(&model) != params)
            fail_msg("%s: %lld parameters, transformers %lld", name,
                     (long long)model_total_params(&model), (long long)params);
        if (*model.note && !strstr(model.note, "num_nextn"))
            fail_msg("%s", model.note);
        model_clear(&model);
    }
    assert_true(n >= 150);
    json_free(rows);
}

/* Each decoder of transformers is read, or the line names its type. */
static void types__are_read_or_refused_by_name(void **state)
{
    (void)state;
    FILE *in = fopen("tests/golden/hf_types.txt", "r");
    char line[128], text[160];
    int num_read = 0, num_refused = 0;
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) {
        struct model model = {0};
        struct err err = {0};
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#')
            continue;
        snprintf(text, sizeof text, "{\"model_type\": \"%s\"}", line);
        if (read_text(text, &model, &err) == OK) {
            num_read++;
            model_clear(&model);
            continue;
        }
        num_refused++;
        if (!strstr(err.msg, line))
            fail_msg("%s: %s", line, err.msg);
    }
    fclose(in);
    assert_int_equal(num_read + num_refused, 196);
    assert_true(num_read >= 60);
}

/* A name that people copy from the hub is a preset of as many parameters, or is unknown. */
static void presets__have_the_parameters_of_their_configs(void **state)
{
    (void)state;
    struct json *rows = NULL;
    int known = 0;
    assert_int_equal(json_read_file("tests/golden/hf_configs.json", &rows, NULL), OK);
    for (const struct json *row = json_first(rows); row; row = json_next(row)) {
        char name[96];
        struct model model = {0};
        int64_t params = 0;
        snprintf(name, sizeof name, "%s", json_string(json_get(row, "name")));
        if (strchr(name, ' ')) /* "google/gemma-3-4b text" */
            *strchr(name, ' ') = 0;
        if (model_parse(name, &model, NULL) != OK)
            continue;
        known++;
        assert_true(json_int64(json_get(row, "params"), &params));
        if (model_total_params(&model) != params)
            fail_msg("%s: %lld parameters, transformers %lld", name,
                     (long long)model_total_params(&model), (long long)params);
        model_clear(&model);
    }
    assert_true(known >= 55);
    json_free(rows);
}

static void windows__alternate_as_the_family_does(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int layers[7]; /* windows of the first ones with 8192 tokens */
    } cases[] = {
        {"{\"model_type\":\"gemma2\"}",                             {4096, 0, 4096, 0, 4096, 0, 4096}         },
        {"{\"model_type\":\"gemma3_text\",\"sliding_window\":512}",
         {512, 512, 512, 512, 512, 0, 512}                                                                    },
        {"{\"model_type\":\"gpt_oss\"}",                            {128, 0, 128, 0, 128, 0, 128}             },
        {"{\"model_type\":\"mistral\"}",                            {4096, 4096, 4096, 4096, 4096, 4096, 4096}},
        {"{\"model_type\":\"mistral\",\"sliding_window\":null}",    {0}                                       },
        {"{\"model_type\":\"qwen3\",\"sliding_window\":4096}",      {0}                                       },
        {"{\"model_type\":\"qwen3\",\"sliding_window\":64,\"use_sliding_window\":true,"
         "\"max_window_layers\":3}",                       {0, 0, 0, 64, 64, 64, 64}                 },
        {"{\"model_type\":\"qwen3\",\"sliding_window\":64,\"use_sliding_window\":true,"
         "\"num_hidden_layers\":3,\"layer_types\":[\"sliding_attention\",\"sliding_attention\","
         "\"full_attention\"]}",                           {64, 64, 0}                               },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model model = {0};
        struct err err = {0};
        if (read_text(cases[i].text, &model, &err) != OK)
            fail_msg("%s", err.msg);
        model.seq = 8192;
        for (int layer = 0; layer < 7 && layer < model.num_layers; layer++)
            if (model_window(&model, layer) != cases[i].layers[layer])
                fail_msg("%s: window of layer %d is %d", cases[i].text, layer,
                         model_window(&model, layer));
        model_clear(&model);
    }
}

/* Pairs one by one: a query sees itself and the window - 1 tokens before it; masked pairs after the
 * query count as in a full layer, so a pair apart from the diagonal counts twice. */
static void attention_pairs__are_those_of_the_mask(void **state)
{
    (void)state;
    struct model model = {
        .seq = 100, .block = {.window = 7, .full_every = 2}
    };
    int64_t pairs = 0;
    for (int q = 0; q < 100; q++)
        for (int k = 0; k <= q; k++)
            pairs += q - k >= 7 ? 0 : q == k ? 1 : 2;
    assert_int_equal(model_attention_pairs(&model, 0), pairs);
    assert_int_equal(model_attention_pairs(&model, 1), 10000);
}

static void other_computations__are_refused_by_key(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"model_type\":\"phi\",\"qk_layernorm\":true}",                      "qk_layernorm must be false"                        },
        {"{\"model_type\":\"opt\",\"do_layer_norm_before\":false}",
         "do_layer_norm_before must be true"                                                                                        },
        {"{\"model_type\":\"opt\",\"word_embed_proj_dim\":512}",
         "word_embed_proj_dim must be hidden_size 768, got 512"                                                                     },
        {"{\"model_type\":\"falcon\",\"alibi\":true}",                          "alibi must be false"                               },
        {"{\"model_type\":\"gemma\",\"hidden_act\":\"silu\"}",                  "hidden_act must be"                                },
        {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":[1]}",              "mlp_only_layers must be []"                        },
        {"{\"model_type\":\"hy_v3\",\"num_hidden_layers\":3,\"mlp_layer_types\":[\"sparse\","
         "\"dense\",\"sparse\"]}",                                     "dense layers, then sparse ones"                    },
        {"{\"model_type\":\"hy_v3\",\"mlp_layer_types\":[\"dense\"]}",
         "must have 80 layers, got 1"                                                                                               },
        {"{\"model_type\":\"ernie4_5_moe\",\"moe_layer_end_index\":9}",
         "must be the last layer, 27"                                                                                               },
        {"{\"model_type\":\"kimi_linear\"}",                                    "delta attention layers of model_type 'kimi_linear'"},
        {"{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":3,\"layer_types\":[\"sliding_"
         "attention\","
         "\"full_attention\",\"full_attention\"]}",                    "layer_types must repeat"                           },
        {"{\"model_type\":\"gpt_oss\",\"layer_types\":[\"linear_attention\"]}",
         "layer_types must be sliding_attention"                                                                                    },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model model = {0};
        struct err err = {0};
        assert_int_equal(read_text(cases[i][0], &model, &err), ERR_INPUT);
        if (!strstr(err.msg, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], err.msg);
    }
}

/* Files as Python writes them. */
static void files_of_python__are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says; /* NULL: it is read */
    } cases[] = {
        {"{\"model_type\": \"nemotron_h\", \"time_step_limit\": [0.0, Infinity]}", NULL            },
        {"{\"model_type\": \"zamba2\", \"time_step_limit\": [0.0, Infinity]}",
         "the Mamba-2 layers of model_type 'zamba2' are not modelled"                              },
        {"{\"model_type\": \"llama\", \"a \\\" NaN\": \"Infinity\", \"top_p\": NaN, \"top_k\": "
         "-Infinity}",                                                    NULL            },
        {"{\"model_type\": \"qwen2_moe\", \"sliding_window\": 0}",                 NULL            },
        {"{\"_class_name\": \"UNet2DConditionModel\", \"in_channels\": 4}",
         "the 'UNet2DConditionModel' of diffusers is not modelled"                                 },
        {"{\"model_type\": \"llama\", \"top_p\": Infinite}",                       "config.json:1:"},
    };
    char folder[] = "/tmp/elapse-config-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model model = {0};
        struct err err = {0};
        FILE *out = fopen(path, "w");
        assert_true(out && fputs(cases[i].text, out) >= 0 && fclose(out) == 0);
        const enum status rc = model_load(path, &model, &err);
        if ((rc == OK) != !cases[i].says || (rc != OK && !strstr(err.msg, cases[i].says)))
            fail_msg("%s: %s", cases[i].text, err.msg);
        model_clear(&model);
    }
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets__have_the_parameters_of_their_configs),
        cmocka_unit_test(files_of_python__are_read),
        cmocka_unit_test(types__are_read_or_refused_by_name),
        cmocka_unit_test(configs__have_the_parameters_that_transformers_counts),
        cmocka_unit_test(windows__alternate_as_the_family_does),
        cmocka_unit_test(attention_pairs__are_those_of_the_mask),
        cmocka_unit_test(other_computations__are_refused_by_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
