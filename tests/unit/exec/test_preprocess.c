/* Pictures scaled as Pillow scales them, and prepared by a preprocessor_config.json. */
#include <math.h>

#include "exec/data/preprocess.h"
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

static struct pixels made(int width, int height)
{
    struct pixels p = {width, height, malloc((size_t)width * (size_t)height * 3)};
    assert_non_null(p.rgb);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                p.rgb[(y * width + x) * 3 + c] =
                    (unsigned char)(37 * x * y + 11 * x + 5 * c * y + 90 * ((x + y) % 3));
    return p;
}

/* The red of 10 x 7 pixels at 4 x 3: Image.resize((4, 3), filter) of Pillow 13. */
static void resample__gives_the_bytes_of_pillow(void **state)
{
    static const unsigned char want[RESAMPLE_COUNT][12] = {
        {228, 234, 122, 128, 212, 110, 220, 132, 196, 0,   76, 122},
        {114, 151, 138, 57,  124, 77,  80,  136, 123, 104, 77, 163},
        {119, 138, 126, 72,  116, 90,  96,  126, 122, 101, 84, 151},
        {118, 143, 133, 63,  117, 83,  87,  132, 123, 104, 79, 158},
        {120, 130, 139, 63,  98,  91,  82,  146, 134, 115, 97, 144},
        {123, 139, 136, 69,  114, 92,  102, 129, 127, 103, 81, 153}
    };
    struct pixels from = made(10, 7), to = {0};
    (void)state;
    for (int filter = 0; filter < RESAMPLE_COUNT; filter++) {
        assert_int_equal(resample(&from, 4, 3, (enum resample)filter, &to, NULL), OK);
        for (int i = 0; i < 12; i++)
            if (to.rgb[3 * i] != want[filter][i])
                fail_msg("filter %d: pixel %d is %d, not %d", filter, i, to.rgb[3 * i],
                         want[filter][i]);
        free(to.rgb);
    }
    free(from.rgb);
}

#define VIT                                                                                        \
    "{\"image_processor_type\": \"ViTImageProcessor\", \"size\": {\"height\": 4, \"width\": 4}"
#define DEIT "{\"feature_extractor_type\": \"DeiTFeatureExtractor\", \"size\": 6, \"crop_size\": 4"
#define CLIP                                                                                       \
    "{\"image_processor_type\": \"CLIPImageProcessorFast\", \"size\": {\"shortest_edge\": 4}, "    \
    "\"crop_size\": {\"height\": 4, \"width\": 4}"

/* Each rule by steps of its own: scale, take the middle, then the levels. */
static void preprocess__follows_the_file(void **state)
{
    static const struct {
        const char *text;
        int width, height; /* scaled */
        enum resample filter;
        float mean, deviation, factor;
    } rules[] = {
        {VIT "}",                                                                               4,  4, RESAMPLE_BILINEAR, .5f,        .5f,        1 / 255.f},
        {VIT ", \"resample\": 3, \"image_mean\": [0.4, 0.1, 0.1], \"image_std\": [0.2, 1, 1]}", 4,
         4,                                                                                            RESAMPLE_BICUBIC,  .4f,        .2f,        1 / 255.f},
        {VIT ", \"do_normalize\": false}",                                                      4,  4, RESAMPLE_BILINEAR, 0,          1,          1 / 255.f},
        {VIT ", \"do_rescale\": false, \"image_mean\": 127.5, \"image_std\": 63.75}",           4,  4,
         RESAMPLE_BILINEAR,                                                                                               127.5f,     63.75f,     1        },
        {VIT ", \"rescale_factor\": 0.0078431372549, \"image_mean\": 1, \"image_std\": 1}",     4,  4,
         RESAMPLE_BILINEAR,                                                                                               1,          1,          2 / 255.f},
        {DEIT "}",                                                                              6,  6, RESAMPLE_BICUBIC,  .5f,        .5f,        1 / 255.f},
        {CLIP "}",                                                                              5,  4, RESAMPLE_BICUBIC,  .48145466f, .26862954f, 1 / 255.f},
        {CLIP ", \"do_resize\": false}",                                                        10, 7, RESAMPLE_BOX,      .48145466f, .26862954f, 1 / 255.f}
    };
    struct pixels from = made(10, 7);
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct preprocess got;
        struct pixels scaled = {0};
        struct err err = {0};
        float planes[3 * 4 * 4];
        put_text("preprocessor_config.json", rules[i].text);
        if (preprocess_read(in_folder("model.safetensors"), &got, &err) != OK)
            fail_msg("%s", err.msg);
        assert_null(got.text); /* the weights are not there */
        put_text("model.safetensors", "");
        if (preprocess_read(in_folder("model.safetensors"), &got, &err) != OK ||
            preprocess_check_side(&got, 4, &err) != OK ||
            preprocess_check(&got, "a.png", &from, 4, &err) != OK ||
            preprocess_apply(&got, &from, 4, planes, &err) != OK)
            fail_msg("%s", err.msg);
        assert_int_equal(remove(in_folder("model.safetensors")), 0);
        assert_int_equal(
            resample(&from, rules[i].width, rules[i].height, rules[i].filter, &scaled, NULL), OK);
        for (int y = 0; y < 4; y++)
            for (int x = 0; x < 4; x++) {
                const int sy = y + (rules[i].height - 4) / 2, sx = x + (rules[i].width - 4) / 2;
                const float want =
                    ((float)scaled.rgb[(sy * rules[i].width + sx) * 3] * rules[i].factor -
                     rules[i].mean) /
                    rules[i].deviation;
                if (fabsf(planes[y * 4 + x] - want) > 1e-5f)
                    fail_msg("rule %zu: %d, %d is %g, not %g", i, x, y, (double)planes[y * 4 + x],
                             (double)want);
            }
        free(scaled.rgb);
        preprocess_clear(&got);
    }
    free(from.rgb);
}

static void preprocess__gives_a_small_picture_a_black_border(void **state)
{
    struct preprocess rules = {
        .crops = true, .crop_height = 5, .crop_width = 5, .deviation = {1, 1, 1}
    };
    struct pixels white = made(2, 3);
    float planes[3 * 25];
    (void)state;
    memset(white.rgb, 255, 2 * 3 * 3);
    assert_int_equal(preprocess_apply(&rules, &white, 5, planes, NULL), OK);
    for (int i = 0; i < 3 * 25; i++) {
        const int y = i % 25 / 5, x = i % 5;
        assert_true(fabsf(planes[i] - (y >= 1 && y < 4 && x >= 1 && x < 3 ? 1 : 0)) < 1e-6f);
    }
    free(white.rgb);
}

static void preprocess__refuses_what_it_does_not_know(void **state)
{
    static const char *const bad[][2] = {
        {"[1]",                                                                                "is not an object"                },
        {"{",                                                                                  "preprocessor_config.json"        },
        {"{\"size\": 4}",                                                                      "a processor of ViT, DeiT or CLIP"},
        {"{\"image_processor_type\": \"BeitImageProcessor\"}",                                 "got 'BeitImageProcessor'"        },
        {VIT ", \"crop_pct\": 0.9}",                                                           "key 'crop_pct' is not known"     },
        {VIT ", \"resample\": 6}",                                                             "resample must be 0 to 5"         },
        {VIT ", \"do_rescale\": 1}",                                                           "do_rescale must be true or false"},
        {VIT ", \"image_mean\": [0.5]}",                                                       "image_mean must have 3 numbers"  },
        {VIT ", \"image_std\": 0}",                                                            "image_std must be above 0"       },
        {VIT ", \"rescale_factor\": -1}",                                                      "rescale_factor must be above 0"  },
        {VIT ", \"do_center_crop\": true}",                                                    "crop_size is missing"            },
        {VIT ", \"do_center_crop\": true, \"crop_size\": 0}",                                  "crop_size must be 1..8192 pixels"},
        {"{\"image_processor_type\": \"ViTImageProcessor\", \"size\": {\"longest_edge\": 4}}",
         "a shortest_edge"                                                                                                       }
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct preprocess rules;
        struct err err = {0};
        put_text("preprocessor_config.json", bad[i][0]);
        assert_int_equal(preprocess_read(in_folder("."), &rules, &err), ERR_INPUT);
        if (!strstr(err.msg, bad[i][1]))
            fail_msg("'%s', wanted '%s'", err.msg, bad[i][1]);
    }
}

static void preprocess__refuses_another_side(void **state)
{
    struct preprocess rules;
    struct err err = {0};
    struct pixels from = made(10, 7);
    (void)state;
    put_text("preprocessor_config.json", VIT "}");
    assert_int_equal(preprocess_read(in_folder("."), &rules, NULL), OK);
    assert_int_equal(preprocess_check_side(&rules, 8, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "gives pictures of 4 x 4 pixels, the model takes 8 x 8"));
    preprocess_clear(&rules);
    put_text("preprocessor_config.json", VIT ", \"do_resize\": false}");
    assert_int_equal(preprocess_read(in_folder("."), &rules, NULL), OK);
    assert_int_equal(preprocess_check_side(&rules, 8, NULL), OK);
    err = (struct err){0};
    assert_int_equal(preprocess_check(&rules, "a.png", &from, 8, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "'a.png': 10 x 7 pixels become 10 x 7"));
    preprocess_clear(&rules);
    free(from.rgb);
}

/* A checkpoint of ours says whether its run had rules. */
static void preprocess__reads_the_manifest_of_a_checkpoint(void **state)
{
    struct preprocess rules;
    (void)state;
    put_text("manifest.json", "{\"preprocessor\": " VIT "}}");
    assert_int_equal(preprocess_read(in_folder("."), &rules, NULL), OK);
    assert_null(rules.text);
    put_text("manifest.json", "{\"preprocessor_read\": true, \"preprocessor\": " VIT "}}");
    assert_int_equal(preprocess_read(in_folder("."), &rules, NULL), OK);
    assert_int_equal(rules.height, 4);
    preprocess_clear(&rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resample__gives_the_bytes_of_pillow),
        cmocka_unit_test_setup_teardown(preprocess__follows_the_file, make_folder, remove_folder),
        cmocka_unit_test(preprocess__gives_a_small_picture_a_black_border),
        cmocka_unit_test_setup_teardown(preprocess__refuses_what_it_does_not_know, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(preprocess__refuses_another_side, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(preprocess__reads_the_manifest_of_a_checkpoint, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
