/* The band of published steps beside a computed one. */
#include "partition/cost/step_band.h"

#include "partition/model/framework.h"
#include "tests/unit/test.h"

static struct model model;
static struct cluster cluster;

static struct step_band band_of(const char *model_text, const char *cluster_text,
                                enum framework_kind framework)
{
    model_clear(&model);
    cluster_clear(&cluster);
    assert_int_equal(model_parse(model_text, &model, NULL), OK);
    assert_int_equal(cluster_parse(cluster_text, &cluster, NULL), OK);
    model_set_framework(&model, framework, NORM_AUTO);
    return step_band_of(&model, &cluster);
}

/* The rows that take() says, joined by hand. */
static struct step_band joined(enum band_class models, const char *framework, const char *kind)
{
    struct step_band all = {.models = models, .low = 9, .high = -9};
    for (int i = 0; published_steps[i].framework; i++) {
        const struct published_steps *row = &published_steps[i];
        if (row->models == models && (!framework || strcmp(framework, row->framework) == 0) &&
            (!kind || strcmp(kind, row->kind) == 0)) {
            all.runs += row->runs;
            all.low = row->low < all.low ? row->low : all.low;
            all.high = row->high > all.high ? row->high : all.high;
        }
    }
    return all;
}

static void assert_same(struct step_band got, struct step_band want)
{
    assert_int_equal(got.models, want.models);
    assert_int_equal(got.runs, want.runs);
    assert_true(got.runs == 0 || (got.low == want.low && got.high == want.high));
}

static void published_steps__are_bands_of_known_kinds(void **state)
{
    (void)state;
    for (int i = 0; published_steps[i].framework; i++) {
        const struct published_steps *row = &published_steps[i];
        bool known = false;
        for (int k = 0; framework_kind_names[k]; k++)
            known = known || strcmp(framework_kind_names[k], row->framework) == 0;
        assert_true(known && roofline_find(row->kind));
        assert_true(row->runs > 0 && row->models > BAND_NONE && row->models <= BAND_STATE);
        assert_true(row->low <= row->high && row->low > -1 && row->high < 1);
    }
}

static void step_band__is_of_the_nearest_kind_with_enough_runs(void **state)
{
    (void)state;
    /* 12 runs of its own; two, so all frameworks of its kind; a kind without any */
    assert_same(band_of("llama3-8b", "h100-1x8", FRAMEWORK_MEGATRON_TE),
                joined(BAND_DENSE, "megatron-te", "h100"));
    assert_same(band_of("llama3-8b", "h100-1x8", FRAMEWORK_FSDP), joined(BAND_DENSE, NULL, "h100"));
    assert_same(band_of("llama3-8b", "b200-1x8", FRAMEWORK_MEGATRON_TE),
                joined(BAND_DENSE, "megatron-te", NULL));
    assert_same(band_of("llama3-8b", "b200-1x8", FRAMEWORK_AUTO), joined(BAND_DENSE, NULL, NULL));
    assert_same(band_of("mixtral-8x7b", "h100-1x8", FRAMEWORK_AUTO),
                joined(BAND_EXPERTS, NULL, "h100"));
    assert_int_equal(band_of("vit-b16", "h100-1x8", FRAMEWORK_AUTO).runs, 0);
}

static void step_band__holds_the_times_that_its_errors_allow(void **state)
{
    (void)state;
    struct step_band band = {BAND_DENSE, "fsdp", "h100", 7, -0.2, 0.25};
    int64_t ns[2];
    char text[256];
    step_band_ns(&band, 1000, ns);
    assert_int_equal(ns[0], 800);
    assert_int_equal(ns[1], 1250);
    assert_string_equal(
        step_band_text(&band, text, sizeof text),
        "7 published runs of its kind (dense models, fsdp on h100) read 20 % fast to 25 % slow");
    band = (struct step_band){BAND_EXPERTS, NULL, NULL, 7, -0.2, -0.04};
    assert_string_equal(step_band_text(&band, text, sizeof text),
                        "7 published runs of its kind (models with experts) read 4 to 20 % fast");
    band.low = 0.04;
    band.high = 0.2;
    assert_string_equal(step_band_text(&band, text, sizeof text),
                        "7 published runs of its kind (models with experts) read 4 to 20 % slow");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_steps__are_bands_of_known_kinds),
        cmocka_unit_test(step_band__is_of_the_nearest_kind_with_enough_runs),
        cmocka_unit_test(step_band__holds_the_times_that_its_errors_allow),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_clear(&model);
    cluster_clear(&cluster);
    return failed;
}
