/* Tables of item times as profiles: what they answer for an explicit model, and what is refused. */
#include "partition/model/model.h"
#include "profiles/store/item_csv.h"
#include "profiles/cost/profile_cost.h"
#include "profiles/store/store.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static const char table[] = "kind,item,microbatch,bwd_input_ns,fwd_ns,bwd_weight_ns,update_ns\n"
                            "a100,embedding of tokens,1,0,100,300,50\n"
                            "a100,embedding of tokens,4,0,160,360,50\r\n"
                            "\n"
                            "a100,block,2,90,80,70.5,8\n";

static void table__answers_by_the_names_of_the_items(void **state)
{
    (void)state;
    struct profile profile = {0};
    struct err err = {0};
    assert_true(item_csv_is(table));
    assert_false(item_csv_is("table,name\n"));
    assert_false(item_csv_is("{}"));
    if (item_csv_read(table, "t.csv", &profile, &err) != OK)
        fail_msg("%s", err.msg);
    assert_string_equal(profile.info.name, "items-a100");
    assert_string_equal(profile.info.device_kind, "a100");

    const char *path = at("items.db");
    struct store *store = NULL;
    assert_int_equal(store_open(path, STORE_WRITE, &store, &err), OK);
    assert_int_equal(store_put_profile(store, &profile, PROFILE_CREATE, &err), OK);
    store_close(store);
    profile_clear(&profile);

    struct item items[] = {
        {.name = "embedding of tokens", .kind = ITEM_OPAQUE, .layer = 0, .params = 5},
        {.name = "block",               .kind = ITEM_OPAQUE, .layer = 1, .params = 5}
    };
    struct model model = {0};
    struct cluster cluster = {0};
    struct cost_handle handle = {0};
    assert_int_equal(model_explicit("m", items, 2, NULL, 0, false, &model, &err), OK);
    assert_int_equal(cluster_parse("a100-1x2", &cluster, &err), OK);
    if (cost_choose_for(path, &model, &cluster, NULL, &handle, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(handle.cost.source, COST_MEASURED);
    const struct {
        int item;
        enum pass pass;
        int64_t samples, want;
        bool extrapolated;
    } cases[] = {
        {0, PASS_FWD,        1, 100, false},
        {0, PASS_FWD,        2, 120, false},
        {0, PASS_BWD_WEIGHT, 4, 360, false},
        {0, PASS_UPDATE,     2, 50,  false},
        {1, PASS_BWD_INPUT,  2, 90,  false},
        {1, PASS_UPDATE,     1, 8,   false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t ns = -1;
        bool extrapolated = false;
        assert_int_equal(handle.cost.item_ns(handle.cost.ctx, &model, cases[i].item, cases[i].pass,
                                             cases[i].samples, &cluster.devices[0], &ns,
                                             &extrapolated, &err),
                         OK);
        if (ns != cases[i].want || extrapolated != cases[i].extrapolated)
            fail_msg("case %zu: %lld ns, extrapolated %d", i, (long long)ns, extrapolated);
    }
    cost_handle_clear(&handle);
    snprintf(model.items[1].name, sizeof model.items[1].name, "other");
    const struct cost_query query = {.choice = COST_BY_PROFILE};
    assert_int_equal(cost_choose_for(path, &model, &cluster, &query, &handle, &err),
                     ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "'other'"));
    model_clear(&model);
    cluster_clear(&cluster);
}

static void table__is_refused_with_the_line_that_is_wrong(void **state)
{
#define HEADER "kind,item,microbatch,fwd_ns,bwd_input_ns,bwd_weight_ns\n"
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"kind,item,microbatch,fwd_ns,bwd_input_ns\n",
         "t.csv:1: column 'bwd_weight_ns' is missing"                                            },
        {"kind,item,microbatch,fwd_ms\n",              "t.csv:1: unknown column 'fwd_ms'"        },
        {"kind,item,kind\n",                           "t.csv:1: second column 'kind'"           },
        {HEADER,                                       "t.csv: has no rows"                      },
        {HEADER "a100,x,1,2,3\n",                      "t.csv:2: must have 6 cells, got 5"       },
        {HEADER "a100,x,1,2,3,4,5,6\n",                "t.csv:2: must be at most 7 cells"        },
        {HEADER "a100,x,1,2,3,4",                      "end with a newline"                      },
        {HEADER "a100,\"x\",1,2,3,4\n",                "t.csv:2: must be at most 7 cells without"},
        {HEADER "a100,,1,2,3,4\n",                     "t.csv:2: item must have 1..31 characters"},
        {HEADER "a100,x,0,2,3,4\n",                    "t.csv:2: microbatch must be 1.."         },
        {HEADER "a100,x,1,-2,3,4\n",                   "t.csv:2: fwd_ns must be a number of ns"  },
        {HEADER "a100,x,1,2,nan,4\n",                  "bwd_input_ns must be a number of ns"     },
        {HEADER "a100,x,1,2,3,4ms\n",                  "bwd_weight_ns must be a number of ns"    },
        {HEADER "a100,x,1,2,3,4\nh100,x,2,2,3,4\n",    "t.csv:3: a file has one kind of device"  },
        {HEADER "a100,x,1,2,3,4\na100,x,1,2,3,4\n",    "is there twice"                          },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct profile profile = {0};
        struct err err = {0};
        enum status rc = item_csv_read(cases[i].text, "t.csv", &profile, &err);
        if (rc != ERR_INPUT || !strstr(err.msg, cases[i].says) || profile.layers)
            fail_msg("%s: status %d, '%s'", cases[i].text, (int)rc, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table__answers_by_the_names_of_the_items),
        cmocka_unit_test(table__is_refused_with_the_line_that_is_wrong),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
