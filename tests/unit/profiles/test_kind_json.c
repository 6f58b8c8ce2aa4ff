/* Device kinds from JSON: the shipped ones, a user's own in a job or in the config folder, and what is
 * refused. The judge of a reading is the table of shipped kinds. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "partition/cluster/device_kinds.h"
#include "profiles/job/job_json.h"
#include "profiles/job/kind_json.h"
#include "tests/unit/test.h"

static enum status parse_kind(const char *text, struct kind **kind, struct err *err)
{
    struct json *json = NULL;
    if (json_parse(text, "k.json", &json, err) != OK)
        fail_msg("%s: %s", text, err->msg);
    const struct fields_source source = {.file = "k.json", .prefix = ""};
    const enum status rc = kind_from_json(json, &source, kind, err);
    json_free(json);
    return rc;
}

static struct kind *read_good(const char *text)
{
    struct kind *kind = NULL;
    struct err err = {0};
    if (parse_kind(text, &kind, &err) != OK)
        fail_msg("%s: %s", text, err.msg);
    return kind;
}

static void same_figures(const struct kind *a, const struct kind *b)
{
    for (int f = 0; f < NUM_KIND_FIGURES; f++)
        if (kind_figure_value(a, f) != kind_figure_value(b, f))
            fail_msg("%s: %s is %.17g, not %.17g", a->name, kind_figures[f].key,
                     kind_figure_value(a, f), kind_figure_value(b, f));
}

static void kind_to_json__is_read_back_to_the_last_bit(void **state)
{
    (void)state;
    for (int i = 0; i < num_shipped_kinds; i++) {
        const struct kind *shipped = &shipped_kinds[i];
        struct json *json = json_object_new();
        char *text = NULL;
        kind_to_json(shipped, json);
        json_remove(json, "kind");
        json_add_string(json, "name", "mine");
        assert_int_equal(json_text(json, false, &text, NULL), OK);
        struct kind *again = read_good(text);
        same_figures(shipped, again);
        const char *rings = shipped->collectives.rings_of;
        assert_string_equal(rings ? rings : "",
                            again->collectives.rings_of ? again->collectives.rings_of : "");
        for (int f = 0; f < NUM_KIND_FIGURES; f++)
            if (shipped->sources[f])
                assert_string_equal(shipped->sources[f], again->sources[f]);
        kind_release(again);
        free(text);
        json_free(json);
    }
}

static void shipped_kinds__have_every_figure_and_its_source(void **state)
{
    (void)state;
    assert_true(num_shipped_kinds >= 44);
    for (int i = 0; i < num_shipped_kinds; i++) {
        const struct kind *kind = &shipped_kinds[i];
        assert_string_equal(shipped_kind_names[i], kind->name);
        for (int f = 0; f < NUM_KIND_FIGURES; f++)
            if (kind_figure_value(kind, f) > 0 && !(kind->sources[f] && *kind->sources[f]))
                fail_msg("%s: %s has no source", kind->name, kind_figures[f].key);
    }
    assert_null(shipped_kind_names[num_shipped_kinds]);
}

static void like__gives_what_the_object_does_not(void **state)
{
    (void)state;
    struct kind *kind =
        read_good("{\"like\":\"a100\",\"peak_bf16\":\"165TFLOPS\",\"mem\":\"24GiB\","
                  "\"mem_bandwidth\":\"1008GB/s\",\"link\":\"32GB/s\"}");
    struct kind want = *kind_find("a100");
    want.roof.bf16_flops_per_s = 165e12;
    want.roof.mem_bytes = 24LL << 30;
    want.roof.mem_bytes_per_s = 1008e9;
    want.roof.link_bytes_per_s = 32e9;
    same_figures(kind, &want);
    assert_string_equal(kind->name, "like-a100");
    assert_string_equal(kind->curve.fitted_on, "a100-pcie");
    assert_string_equal(kind_source(kind, offsetof(struct kind, roof.mem_bytes)), "k.json");
    assert_string_equal(kind_source(kind, offsetof(struct kind, roof.fp32_flops_per_s)),
                        kind_source(&want, offsetof(struct kind, roof.fp32_flops_per_s)));
    kind_release(kind);
}

#define WHOLE "\"mem\":\"24GiB\",\"mem_bandwidth\":\"1TB/s\",\"link\":\"32GB/s\""

static void collectives__cost_as_the_all_reduce_unless_given(void **state)
{
    (void)state;
    struct kind *kind = read_good(
        "{" WHOLE ",\"peak_bf16\":\"1TFLOPS\",\"all-reduce\":{\"link_share\":0.7,\"fixed_ns\":900},"
        "\"all-gather\":{\"link_share\":0.6},\"collective\":{\"uplink_share\":0.5,"
        "\"latency_ns\":100,\"uplink_latency_ns\":200}}");
    for (int i = 0; i < COLLECTIVE_COUNT; i++) {
        assert_true(kind->collectives.link[i] == (i == COLLECTIVE_ALLGATHER ? 0.6 : 0.7));
        assert_int_equal(kind->collectives.fixed_ns[i], 900);
    }
    assert_string_equal(
        kind_source(kind, offsetof(struct kind, collectives.link[COLLECTIVE_ALLTOALL])),
        "not given: as all-reduce");
    kind_release(kind);
}

static void kind_from_json__refuses_what_cannot_be(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"peak_bf16\":\"1TFLOPS\",\"mem_bandwidth\":\"1TB/s\",\"link\":\"32GB/s\"}",
         "device kind 'own' must have mem (memory)"                                                                                            },
        {"{\"like\":\"a100\",\"mem\":0}",                                               "mem must be a size like \"24GiB\" above 0, got 0"     },
        {"{\"like\":\"a100\",\"peak_bf16\":-1}",
         "peak_bf16 must be a speed like \"165TFLOPS\" at least 0, got -1"                                                                     },
        {"{\"like\":\"a100\",\"peak_bf16\":\"-5TFLOPS\"}",                              "peak_bf16 must be a speed"                            },
        {"{\"like\":\"a100\",\"peak_bf16\":\"165\"}",                                   "peak_bf16 must be a speed"                            },
        {"{\"name\":\"x\",\"like\":\"x\"}",                                             "device kind 'x' is like itself"                       },
        {"{\"like\":\"a101\"}",                                                         "unknown device kind 'a101', nearest is 'a10"          },
        {"{\"name\":\"a100\",\"like\":\"a100\"}",                                       "device kind 'a100' is a shipped one"                  },
        {"{\"like\":\"a100\",\"mem\":\"1GiB\",\"mem_bytes\":5}",
         "mem_bytes and mem are one figure, so give one of them"                                                                               },
        {"{\"like\":\"a100\",\"memory\":\"1GiB\"}",                                     "unknown key 'memory'"                                 },
        {"{\"like\":\"a100\",\"all-reduce\":{\"share\":1}}",                            "unknown key 'all-reduce.share'"                       },
        {"{" WHOLE "}",                                                                 "device kind 'own' must have a peak, such as peak_bf16"},
        {"{" WHOLE ",\"peak_bf16\":\"1TFLOPS\",\"sms\":8}",                             "has figures of its kernels, but no "                  },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kind *kind = NULL;
        struct err err = {0};
        assert_int_equal(parse_kind(cases[i].text, &kind, &err), ERR_INPUT);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("%s: %s", cases[i].text, err.msg);
    }
}

static enum status load_cluster(const char *text, struct cluster *cluster, struct err *err)
{
    struct json *json = NULL;
    if (json_parse(text, "c.json", &json, err) != OK)
        fail_msg("%s: %s", text, err->msg);
    const struct fields_source source = {.file = "c.json", .prefix = "cluster"};
    const enum status rc = cluster_from_json(json, &source, cluster, err);
    json_free(json);
    return rc;
}

static void cluster__keeps_a_kind_of_its_own_with_its_copies(void **state)
{
    (void)state;
    struct cluster cluster = {0}, copy = {0};
    struct err err = {0};
    const char *text = "{\"nodes\":2,\"devices_per_node\":4,"
                       "\"kind\":{\"name\":\"mine\",\"like\":\"l40s\",\"mem\":\"20GiB\"}}";
    if (load_cluster(text, &cluster, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(cluster_copy(&cluster, &copy, NULL), OK);
    cluster_clear(&cluster);
    assert_int_equal(cluster_set_nodes(&copy, 3, NULL), OK);
    assert_string_equal(copy.devices[11].kind, "mine");
    assert_int_equal(copy.devices[11].mem_bytes, 20LL << 30);
    assert_true(copy.uplink_bytes_per_s[2] == 50e9);
    assert_true(device_roofline(&copy.devices[11])->bf16_flops_per_s == 362e12);
    cluster_clear(&copy);
    /* A list may mix them; two with one name must be equal. */
    assert_int_equal(load_cluster("{\"devices\":[{\"kind\":{\"like\":\"t4\"}},{\"kind\":"
                                  "{\"like\":\"t4\"}},{\"kind\":\"a100\"}]}",
                                  &cluster, &err),
                     OK);
    assert_int_equal(cluster.num_own_kinds, 1);
    cluster_clear(&cluster);
    assert_int_equal(load_cluster("{\"devices\":[{\"kind\":{\"like\":\"t4\"}},{\"kind\":"
                                  "{\"like\":\"t4\",\"mem\":\"8GiB\"}}]}",
                                  &cluster, &err),
                     ERR_INPUT);
    assert_non_null(
        strstr(err.msg, "two device kinds are named 'like-t4' and differ in mem_bytes"));
}

static void write_kind(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/elapse/devices/%s.json", folder, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void config_folder__has_kinds_that_texts_name(void **state)
{
    (void)state;
    char folder[] = "/tmp/kindXXXXXX", path[256];
    struct cluster cluster = {0};
    struct err err = {0}, circle = {0}, shadow = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/elapse", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/elapse/devices", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    setenv("XDG_CONFIG_HOME", folder, 1);
    write_kind(folder, "fast", "{\"like\":\"slow\",\"mem\":\"48GiB\"}");
    write_kind(folder, "slow", "{\"like\":\"rtx4090\",\"uplink\":\"1GB/s\"}");
    write_kind(folder, "one", "{\"like\":\"two\"}");
    write_kind(folder, "two", "{\"like\":\"one\"}");
    write_kind(folder, "t4", "{\"like\":\"a100\"}");
    if (cluster_load("fast-2x3", &cluster, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(cluster.devices[5].mem_bytes, 48LL << 30);
    assert_true(cluster.uplink_bytes_per_s[1] == 1e9);
    cluster_clear(&cluster);
    assert_int_equal(cluster_load("one-2x3", &cluster, &circle), ERR_INPUT);
    assert_non_null(strstr(circle.msg, "device kind 'one' is like itself, by way of two"));
    assert_int_equal(cluster_load("t4-2x3", &cluster, &shadow), ERR_INPUT);
    assert_non_null(strstr(shadow.msg, "device kind 't4' is a shipped one"));
    static const char *const files[] = {"fast", "slow", "one", "two", "t4"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/elapse/devices/%s.json", folder, files[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/elapse/devices", folder);
    rmdir(path);
    snprintf(path, sizeof path, "%s/elapse", folder);
    rmdir(path);
    rmdir(folder);
    unsetenv("XDG_CONFIG_HOME");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kind_to_json__is_read_back_to_the_last_bit),
        cmocka_unit_test(shipped_kinds__have_every_figure_and_its_source),
        cmocka_unit_test(like__gives_what_the_object_does_not),
        cmocka_unit_test(collectives__cost_as_the_all_reduce_unless_given),
        cmocka_unit_test(kind_from_json__refuses_what_cannot_be),
        cmocka_unit_test(cluster__keeps_a_kind_of_its_own_with_its_copies),
        cmocka_unit_test(config_folder__has_kinds_that_texts_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
