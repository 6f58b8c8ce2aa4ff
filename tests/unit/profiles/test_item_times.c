/* Explicit models with times by device kind and micro-batch size: at the points, between and outside
 * them, in copies, from files, and what is refused. */
#include "partition/cost/cost.h"
#include "partition/model/model.h"
#include "profiles/cost/profile_cost.h"
#include "profiles/json/fields.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

static enum status read(const char *text, struct model *model, struct err *err)
{
    struct json *json = NULL;
    if (json_parse(text, "m.json", &json, err) != OK)
        fail_msg("%s: %s", text, err->msg);
    const struct fields_source source = {.file = "m.json", .prefix = "model"};
    enum status rc = model_from_json(json, &source, 0, model, err);
    json_free(json);
    return rc;
}

static struct model read_good(const char *text)
{
    struct model model = {0};
    struct err err = {0};
    if (read(text, &model, &err) != OK)
        fail_msg("%s: %s", text, err.msg);
    return model;
}

#define TABLES                                                                                     \
    "{\"items\":[{\"name\":\"a\",\"times\":{\"a100\":[[1,100,\"0.2us\",300],[4,160,260,360]],"     \
    "\"h100\":[[2,50,60,70]]}},{\"name\":\"b\",\"fwd_ns\":7,\"update_ns\":9},"                     \
    "{\"name\":\"c\",\"update_ns\":5,\"times\":{\"h100\":[[1,1,1,1],[2,2,2,2],[8,2,3,9]]}}]}"

struct asked {
    int item;
    const char *kind;
    enum pass pass;
    int64_t samples, want;
    bool extrapolated;
};

static void times__are_those_of_the_kind_at_and_between_the_points(void **state)
{
    static const struct asked cases[] = {
        {0, "a100", PASS_FWD,        1, 100, false},
        {0, "a100", PASS_FWD,        4, 160, false},
        {0, "a100", PASS_FWD,        2, 120, false}, /* linear between */
        {0, "a100", PASS_FWD_NOGRAD, 3, 140, false},
        {0, "a100", PASS_BWD_INPUT,  1, 200, false},
        {0, "a100", PASS_BWD_REST,   4, 260, false},
        {0, "a100", PASS_BWD_WEIGHT, 2, 320, false},
        {0, "a100", PASS_FWD,        6, 200, true }, /* on the line of the last two */
        {0, "h100", PASS_FWD,        2, 50,  false},
        {0, "h100", PASS_FWD,        4, 100, true }, /* one row: a time per sample */
        {0, "h100", PASS_BWD_WEIGHT, 1, 35,  true },
        {1, "a100", PASS_FWD,        3, 21,  false}, /* an item without tables: its constant */
        {1, "a100", PASS_UPDATE,     2, 9,   false},
        {2, "h100", PASS_UPDATE,     2, 5,   false},
        {2, "h100", PASS_BWD_WEIGHT, 5, 5,   false}, /* 2 + 7 x 3/6, down */
        {2, "h100", PASS_FWD,        9, 2,   true },
    };
    (void)state;
    struct model m = read_good(TABLES), copy = {0};
    struct cost cost;
    cost_constant(&cost);
    assert_int_equal(model_copy(&m, &copy, NULL), OK);
    model_clear(&m);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct asked *c = &cases[i];
        struct device device = {.speed = 1};
        int64_t ns = -1;
        bool extrapolated = false;
        snprintf(device.kind, sizeof device.kind, "%s", c->kind);
        assert_int_equal(cost.item_ns(NULL, &copy, c->item, c->pass, c->samples, &device, &ns,
                                      &extrapolated, NULL),
                         OK);
        if (ns != c->want || extrapolated != c->extrapolated)
            fail_msg("case %zu: %lld ns, extrapolated %d", i, (long long)ns, extrapolated);
    }
    model_clear(&copy);
}

static void times__of_another_kind_are_refused_with_the_kinds_that_there_are(void **state)
{
    (void)state;
    struct model m = read_good(TABLES);
    struct cost cost;
    struct err err = {0};
    struct device device = {.kind = "v100", .speed = 1};
    int64_t ns = -1;
    bool extrapolated = false;
    cost_constant(&cost);
    assert_int_equal(cost.item_ns(NULL, &m, 0, PASS_FWD, 1, &device, &ns, &extrapolated, &err),
                     ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "item 'a'"));
    assert_non_null(strstr(err.msg, "no times of device kind 'v100', only of a100 h100"));
    model_clear(&m);
}

static void times__of_the_framework_are_the_models(void **state)
{
    (void)state;
    struct model m = read_good("{\"op_overhead_ns\":\"30us\",\"split_backward\":0.25,"
                               "\"items\":[{\"fwd_ns\":7}]}");
    struct cluster cluster = {0};
    struct cost_handle handle;
    struct err err = {0};
    assert_true(m.split_backward == 0.25);
    assert_int_equal(cluster_grid(1, 1, &cluster, &err), OK);
    assert_int_equal(cost_choose_for("", &m, &cluster, NULL, &handle, &err), OK);
    assert_int_equal(handle.cost.op_overhead_ns, 30000);
    cost_handle_clear(&handle);
    cluster_clear(&cluster);
    model_clear(&m);
}

static void bytes__of_weights_and_gradients_are_the_models(void **state)
{
    (void)state;
    struct model m = read_good("{\"weight_bytes_per_param\":6,\"grad_bytes_per_param\":2,"
                               "\"items\":[{\"work_bytes\":\"1KiB\",\"bytes\":77}]}");
    assert_int_equal(model_weight_bytes(&m), 6);
    assert_int_equal(model_grad_bytes(&m), 2);
    assert_int_equal(m.items[0].work_bytes, 1024);
    assert_int_equal(m.items[0].moved_bytes, 77);
    model_clear(&m);
    m = read_good("{\"weight_bytes_per_param\":2,\"items\":[{}]}");
    assert_int_equal(model_weight_bytes(&m), 2);
    assert_int_equal(model_grad_bytes(&m), 2);
    model_clear(&m);
    m = read_good("{\"items\":[{}]}");
    assert_int_equal(model_weight_bytes(&m), 4);
    assert_int_equal(model_grad_bytes(&m), 4);
    model_clear(&m);
}

static void tables__are_refused_by_what_is_wrong(void **state)
{
    static const struct {
        const char *times, *says;
    } cases[] = {
        {"5",                                "model.items[0].times must be an object"        },
        {"{}",                               "must be an object with a kind at least"        },
        {"{\"a100\":7}",                     "model.items[0].times.a100 must be an array"    },
        {"{\"a100\":[]}",                    "times of 'a100' are empty"                     },
        {"{\"a100\":[[1,2,3]]}",             "times.a100 must be rows"                       },
        {"{\"a100\":[[1,2,3,\"4\"]]}",       "times.a100 must be rows"                       },
        {"{\"a100\":[[0,2,3,4]]}",           "micro-batch sizes must ascend from 1, got 0"   },
        {"{\"a100\":[[2,2,3,4],[2,5,5,5]]}", "must ascend from 1, got 2 after 2"             },
        {"{\"a100\":[[1,2,3,4],[2,1,3,4]]}", "2 samples must take no less than fewer samples"},
        {"{\"a100\":[[1,2,3,-4]]}",          "1 sample must take no less than 0 ns"          },
        {"{\"\":[[1,2,3,4]]}",               "a kind of device has 1..31 characters"         },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        struct model m = {0};
        struct err err = {0};
        snprintf(text, sizeof text, "{\"items\":[{\"name\":\"a\",\"times\":%s}]}", cases[i].times);
        enum status rc = read(text, &m, &err);
        if (rc != ERR_INPUT || !strstr(err.msg, cases[i].says) || m.items)
            fail_msg("%s: status %d, '%s'", text, (int)rc, err.msg);
    }
}

static void models__with_tables_survive_the_failure_of_any_allocation(void **state)
{
    (void)state;
    struct model m = read_good(TABLES);
    int n = 0;
    for (;; n++) {
        struct model copy = {0};
        fail_malloc_after(n);
        enum status rc = model_copy(&m, &copy, NULL);
        const bool done = fail_malloc_done();
        model_clear(&copy);
        if (done)
            break;
        assert_int_equal(rc, ERR_NOMEM);
    }
    assert_true(n >= 5 || !FAIL_MALLOC); /* items, tables, and the rows of three */
    model_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times__are_those_of_the_kind_at_and_between_the_points),
        cmocka_unit_test(times__of_another_kind_are_refused_with_the_kinds_that_there_are),
        cmocka_unit_test(times__of_the_framework_are_the_models),
        cmocka_unit_test(bytes__of_weights_and_gradients_are_the_models),
        cmocka_unit_test(tables__are_refused_by_what_is_wrong),
        cmocka_unit_test(models__with_tables_survive_the_failure_of_any_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
