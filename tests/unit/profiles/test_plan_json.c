/* A plan through JSON and back: thousands of random ones, and each member changed. */
#include "profiles/job/plan_json.h"

#include <unistd.h>

#include "tests/unit/plan_case.h"
#include "tests/unit/test.h"

/* A random plan with its predictions. */
static void make_case(struct plan_case *c, uint64_t *seed)
{
    plan_case_random(c, seed, 8, 12);
    c->plan.canonical = case_below(seed, 2);
    if (c->plan.num_pipelines > 1 && !c->plan.canonical)
        c->plan.layout.shard = (enum shard_mode)case_below(seed, SHARD_MODE_COUNT);
    if (c->plan.num_pipelines % 2 == 0 && case_below(seed, 2)) {
        c->model.experts = 4;
        c->plan.layout.expert = 2;
    }
    c->plan.layout.sequence_parallel = c->plan.layout.shard != SHARD_NONE && case_below(seed, 2);
    if (!schedule_splits(c->plan.schedule) && case_below(seed, 3) == 0) {
        c->plan.recompute = RECOMPUTE_LAYER;
        c->plan.recompute_layers = calloc((size_t)c->plan.num_stages, sizeof(int));
        assert_non_null(c->plan.recompute_layers);
        for (int s = 0; s < c->plan.num_stages; s++)
            c->plan.recompute_layers[s] = (int)case_below(seed, 9);
    }
    if (!c->plan.recompute_layers && case_below(seed, 4) == 0) { /* op lists of its own */
        struct schedule list = {0};
        struct err err = {0};
        case_must(schedule_generate(c->plan.schedule, c->plan.num_ranks, c->plan.microbatches.count,
                                    c->plan.chunks, &list, &err),
                  &err);
        case_must(schedule_freeze(&list, (int)case_below(seed, c->plan.num_stages), false, &err),
                  &err);
        case_must(plan_set_order(&c->plan, case_below(seed, 2) ? SCHEDULE_SEARCH : SCHEDULE_CUSTOM,
                                 &list, &err),
                  &err);
        schedule_clear(&list);
    }
    if (case_below(seed, 3) == 0)
        plan_case_shares(c, seed);
    c->plan.step_ns = case_below(seed, 2) ? case_below(seed, 1000000000) : 0;
    if (case_below(seed, 2)) {
        c->plan.memory_bytes = calloc((size_t)c->plan.num_ranks, sizeof(int64_t));
        assert_non_null(c->plan.memory_bytes);
        for (int k = 0; k < c->plan.num_ranks; k++)
            c->plan.memory_bytes[k] = case_below(seed, INT32_MAX) * 5000;
    }
}

static struct json *plan_object(const struct plan *plan)
{
    struct json *json = json_object_new();
    plan_json_add(json, plan);
    assert_int_equal(json_check(json, NULL), OK);
    return json;
}

static bool same_bytes(const void *a, const void *b, size_t size)
{
    return (!a && !b) || (a && b && memcmp(a, b, size) == 0);
}

static bool same_order(const struct schedule *a, const struct schedule *b)
{
    bool same = a->kind == b->kind && a->num_ranks == b->num_ranks &&
                a->num_stages == b->num_stages && a->num_microbatches == b->num_microbatches &&
                a->num_frozen_stages == b->num_frozen_stages &&
                same_bytes(a->rank_of_stage, b->rank_of_stage,
                           (size_t)a->num_stages * sizeof *a->rank_of_stage);
    for (int k = 0; same && k < a->num_ranks; k++)
        same = a->ranks[k].num_ops == b->ranks[k].num_ops &&
               same_bytes(a->ranks[k].ops, b->ranks[k].ops,
                          (size_t)a->ranks[k].num_ops * sizeof(struct op));
    return same;
}

static bool same_plan(const struct plan *a, const struct plan *b)
{
    const size_t places = (size_t)a->num_ranks * (size_t)a->num_pipelines;
    return a->num_ranks == b->num_ranks && a->chunks == b->chunks &&
           a->num_pipelines == b->num_pipelines && a->batch == b->batch &&
           a->microbatches.count == b->microbatches.count &&
           a->microbatches.size == b->microbatches.size &&
           a->microbatches.last_size == b->microbatches.last_size && a->schedule == b->schedule &&
           a->num_frozen_layers == b->num_frozen_layers && a->frozen == b->frozen &&
           a->cache_write == b->cache_write && a->recompute == b->recompute &&
           a->num_stages == b->num_stages && a->bucket_bytes == b->bucket_bytes &&
           a->clip == b->clip && a->optim_bytes_per_param == b->optim_bytes_per_param &&
           a->canonical == b->canonical && a->step_ns == b->step_ns && !a->order == !b->order &&
           (!a->order || same_order(a->order, b->order)) &&
           layout_tensor(&a->layout) == layout_tensor(&b->layout) &&
           layout_expert(&a->layout) == layout_expert(&b->layout) &&
           a->layout.sequence_parallel == b->layout.sequence_parallel &&
           a->layout.shard == b->layout.shard &&
           same_bytes(a->recompute_layers, b->recompute_layers,
                      (size_t)a->num_stages * sizeof *a->recompute_layers) &&
           same_bytes(a->shares.share, b->shares.share,
                      (size_t)(a->num_stages * a->microbatches.count) * sizeof(double)) &&
           same_bytes(a->first_item, b->first_item,
                      ((size_t)a->num_stages + 1) * sizeof *a->first_item) &&
           same_bytes(a->device, b->device, places * sizeof *a->device) &&
           same_bytes(a->memory_bytes, b->memory_bytes,
                      (size_t)a->num_ranks * sizeof *a->memory_bytes);
}

static void plan_json__comes_back_as_it_went(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 4000; round++) {
        struct plan_case c = {0};
        struct plan got = {0};
        struct err err = {0};
        struct json *read = NULL;
        char *text = NULL, *again = NULL;
        make_case(&c, &seed);
        struct json *json = plan_object(&c.plan);
        assert_int_equal(json_text(json, round % 2, &text, NULL), OK);
        assert_int_equal(json_parse(text, "plan.json", &read, &err), OK);
        if (plan_json_read(read, "plan.json", &c.model, &c.cluster, &got, &err) != OK)
            fail_msg("round %d: %s\n%s", round, err.msg, text);
        if (!same_plan(&c.plan, &got))
            fail_msg("round %d: another plan than\n%s", round, text);
        json_free(json);
        json = plan_object(&got);
        assert_int_equal(json_text(json, round % 2, &again, NULL), OK);
        assert_string_equal(text, again);
        free(text);
        free(again);
        json_free(json);
        json_free(read);
        plan_clear(&got);
        plan_case_clear(&c);
    }
}

/* A value of the same JSON type that differs, or of another type. */
static void change(struct json *object, const char *key, const struct json *old, int how)
{
    int64_t number = 0;
    if (json_type(old) == JSON_NUMBER)
        json_int64(old, &number);
    const bool was = json_true(old);
    json_remove(object, key);
    if (how == 0)
        return; /* missing */
    if (how == 1)
        json_add_string(object, key, "no such name");
    else if (json_int64(old, &number) || json_type(old) == JSON_NUMBER)
        json_add_int(object, key, how == 2 ? number + 1 : -1 - number);
    else
        json_add_bool(object, key, !was);
}

static void plan_json__refuses_or_shows_each_member_that_is_changed(void **state)
{
    (void)state;
    uint64_t seed = 7;
    int64_t refused = 0, shown = 0;
    for (int round = 0; round < 100; round++) {
        struct plan_case c = {0};
        make_case(&c, &seed);
        struct json *whole = plan_object(&c.plan);
        for (int m = 0; m < json_count(whole); m++)
            for (int how = 0; how < 4; how++) {
                const struct json *member = json_at(whole, m);
                const char *key = json_key(member);
                struct json *json = plan_object(&c.plan);
                struct plan got = {0};
                struct err err = {0};
                int64_t number;
                /* Plan files of before lack these; without them they have these values. */
                const bool fallback =
                    (strcmp(key, "tensor") == 0 && layout_tensor(&c.plan.layout) == 1) ||
                    (strcmp(key, "shard") == 0 && c.plan.layout.shard == SHARD_NONE) ||
                    (strcmp(key, "expert") == 0 && layout_expert(&c.plan.layout) == 1) ||
                    (strcmp(key, "sequence_parallel") == 0 && !c.plan.layout.sequence_parallel);
                if (how == 0 && fallback) {
                    json_free(json);
                    continue;
                }
                if (how == 3 && json_int64(member, &number) && -1 - number == number)
                    continue;
                struct json *old = json_object_new();
                json_add_copy(old, "value", member);
                change(json, key, json_get(old, "value"), how);
                const enum status rc =
                    plan_json_read(json, "file", &c.model, &c.cluster, &got, &err);
                if (rc == OK && same_plan(&c.plan, &got))
                    fail_msg("%s: a change (%d) is not seen", key, how);
                if (rc != OK && (rc != ERR_INPUT && rc != ERR_INFEASIBLE))
                    fail_msg("%s: status %d", key, (int)rc);
                if (rc != OK && !strstr(err.msg, "plan"))
                    fail_msg("%s: '%s' names no member", key, err.msg);
                if (rc == ERR_INPUT && !strstr(err.msg, key) && strcmp(key, "batch") != 0 &&
                    strcmp(key, "pipeline_length") != 0 && strcmp(key, "replicas") != 0 &&
                    strcmp(key, "chunks") != 0)
                    fail_msg("%s: '%s' names another member", key, err.msg);
                refused += rc != OK;
                shown += rc == OK;
                plan_clear(&got);
                json_free(json);
                json_free(old);
            }
        json_free(whole);
        plan_case_clear(&c);
    }
    assert_true(refused > 1000 && shown > 100);
}

/* Four ranks, two replicas, eight items on eight devices, told from one text with one change. */
static void plan_json__says_which_member_does_not_fit(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"pipeline_length\": 2, \"chunks\": 1, \"replicas\": 2, \"microbatches\": 4,"
        " \"microbatch_size\": 3, \"batch\": 10, \"schedule\": \"1f1b\", \"frozen_layers\": 0,"
        " \"frozen\": \"none\", \"recompute\": \"never\", \"cut\": [3, 1],"
        " \"devices\": [[0, 1], [2, 3]], \"cache_write\": false, \"bucket_bytes\": 0,"
        " \"clip\": true, \"optimizer_bytes_per_param\": 4, \"canonical\": false,"
        " \"step_ns\": 7, \"other\": {\"plan\": 1}}";
    static const struct {
        const char *from, *to;
        enum status rc;
        const char *says;
    } cases[] = {
        {"[3, 1]",                 "[3, 1]",                                       OK,             ""                         },
        {"\"replicas\": 2",        "\"replicas\": 3",                              ERR_INFEASIBLE, "plan.replicas"            },
        {"\"pipeline_length\": 2", "\"pipeline_length\": 5",                       ERR_INFEASIBLE,
         "plan.pipeline_length"                                                                                               },
        {"\"chunks\": 1",          "\"chunks\": 3",                                ERR_INFEASIBLE, "plan.chunks"              },
        {"\"frozen_layers\": 0",   "\"frozen_layers\": 9",                         ERR_INFEASIBLE, "plan.frozen_layers"       },
        {"\"frozen\": \"none\"",   "\"frozen\": \"first\"",                        ERR_INFEASIBLE, "plan.frozen"              },
        {"[3, 1]",                 "[2, 1]",                                       ERR_INFEASIBLE, "plan.cut"                 },
        {"[3, 1]",                 "[3, 2]",                                       ERR_INFEASIBLE, "plan.cut[1]"              },
        {"[3, 1]",                 "[4, 0]",                                       ERR_INPUT,      "plan.cut[1]"              },
        {"[3, 1]",                 "[4]",                                          ERR_INPUT,      "plan.cut"                 },
        {"[2, 3]]",                "[2, 4]]",                                      ERR_INFEASIBLE, "plan.devices[1][1]"       },
        {"[2, 3]]",                "[2, 1]]",                                      ERR_INFEASIBLE, "plan.devices[1][1]"       },
        {"[2, 3]]",                "[2]]",                                         ERR_INPUT,      "plan.devices"             },
        {"\"batch\": 10",          "\"batch\": 9",                                 ERR_INFEASIBLE, "plan.microbatch_size"     },
        {"\"1f1b\"",               "\"best\"",                                     ERR_INPUT,      "plan.schedule"            },
        {"\"1f1b\"",               "\"custom\"",                                   ERR_INPUT,      "plan.order"               },
        {"\"1f1b\"",               "\"1f1b\", \"order\": \"0F0\"",                 ERR_INFEASIBLE, "plan.order"               },
        {"\"1f1b\"",               "\"search\", \"order\": \"0F\"",                ERR_INPUT,      "plan.order: row 1, cell 1"},
        {"\"1f1b\"",               "\"search\", \"order\": \"0F0,0B0\\n1F0,1B0\"", ERR_INFEASIBLE,
         "schedule of 2 ranks, 2 stages, 1 microbatches does not fit a plan of 2, 2, 4"                                       },
        {"\"1f1b\"",               "\"zb-v\"",                                     ERR_INFEASIBLE, "plan.chunks"              },
        {"\"never\"",              "\"seldom\"",                                   ERR_INPUT,      "plan.recompute"           },
        {"\"step_ns\": 7",         "\"step_ns\": 0.5",                             ERR_INPUT,      "plan.step_ns"             },
        {"\"clip\": true",         "\"clip\": 1",                                  ERR_INPUT,      "plan.clip"                },
    };
    struct model model = {0};
    struct cluster cluster = {0};
    struct item items[4];
    for (int i = 0; i < 4; i++)
        items[i] = (struct item){.kind = ITEM_OPAQUE, .layer = i, .params = 10, .fwd_ns = 5};
    assert_int_equal(model_explicit("four", items, 4, NULL, 0, false, &model, NULL), OK);
    assert_int_equal(cluster_grid(1, 4, &cluster, NULL), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        struct json *json = NULL;
        struct plan plan = {0};
        struct err err = {0};
        const char *at = strstr(whole, cases[i].from);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, cases[i].to,
                 at + strlen(cases[i].from));
        assert_int_equal(json_parse(text, "file", &json, NULL), OK);
        const enum status rc = plan_json_read(json, "file", &model, &cluster, &plan, &err);
        if (rc != cases[i].rc || !strstr(err.msg, cases[i].says))
            fail_msg("%s: status %d, '%s'", cases[i].to, (int)rc, err.msg);
        if (rc == OK)
            assert_int_equal(plan.microbatches.last_size, 1);
        else
            assert_null(plan.first_item);
        plan_clear(&plan);
        json_free(json);
    }
    model_clear(&model);
    cluster_clear(&cluster);
}

/* A plan of the model and the cluster may still be one of another job. */
static void plan_json_load__wants_a_plan_of_the_job(void **state)
{
    (void)state;
    char path[] = "/tmp/elapse-plan-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (int change = 0; change < 5; change++) {
        static const char *const keys[] = {NULL, "batch", "optimizer_bytes_per_param", "clip",
                                           "canonical"};
        uint64_t seed = 3;
        struct plan_case c = {0};
        struct job job = {0};
        struct plan got = {0};
        struct err err = {0};
        make_case(&c, &seed);
        job_defaults(&job);
        model_clear(&job.model);
        assert_int_equal(model_copy(&c.model, &job.model, NULL), OK);
        job.train.batch = c.plan.batch * c.plan.num_pipelines;
        job.train.batch_mode = BATCH_GLOBAL;
        c.plan.clip = job_wants_norm(&job);
        c.plan.optim_bytes_per_param = job_optim_bytes_per_param(&job);
        c.plan.canonical = false;
        job.train.batch += change == 1;
        c.plan.optim_bytes_per_param += 4 * (change == 2);
        c.plan.clip ^= change == 3;
        c.plan.canonical = change == 4;
        struct json *json = plan_object(&c.plan);
        assert_int_equal(json_write_file(json, path, NULL), OK);
        const enum status rc = plan_json_load(path, &job, &c.cluster, &got, &err);
        assert_int_equal(rc, change ? ERR_INFEASIBLE : OK);
        if (change) {
            assert_non_null(strstr(err.msg, keys[change]));
            assert_null(got.first_item);
        } else {
            assert_true(same_plan(&c.plan, &got));
        }
        json_free(json);
        plan_clear(&got);
        job_clear(&job);
        plan_case_clear(&c);
    }
    unlink(path);
    struct plan none = {0};
    struct job job = {0};
    job_defaults(&job);
    assert_int_equal(plan_json_load(path, &job, &job.cluster, &none, NULL), ERR_SYSTEM);
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_json__comes_back_as_it_went),
        cmocka_unit_test(plan_json__refuses_or_shows_each_member_that_is_changed),
        cmocka_unit_test(plan_json__says_which_member_does_not_fit),
        cmocka_unit_test(plan_json_load__wants_a_plan_of_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
