/* Rates by message size, ports to the network, collectives with figures of their own, machines, and
 * how files give them. The judges are closed forms in long double. */
#include "partition/cluster/cluster.h"
#include "partition/cost/cost.h"
#include "profiles/json/fields.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json.h"
#include "tests/unit/test.h"

static struct cluster parse(const char *text)
{
    struct cluster cluster = {0};
    struct err err = {0};
    if (cluster_parse(text, &cluster, &err) != OK || cluster_check(&cluster, &err) != OK)
        fail_msg("%s: %s", text, err.msg);
    return cluster;
}

static enum status read(const char *text, struct cluster *cluster, struct err *err)
{
    struct json *json = NULL;
    if (json_parse(text, "c.json", &json, err) != OK)
        fail_msg("%s: %s", text, err->msg);
    const struct fields_source source = {.file = "c.json", .prefix = "cluster"};
    enum status rc = cluster_from_json(json, &source, cluster, err);
    json_free(json);
    return rc;
}

static struct cluster read_good(const char *text)
{
    struct cluster cluster = {0};
    struct err err = {0};
    if (read(text, &cluster, &err) != OK)
        fail_msg("%s: %s", text, err.msg);
    return cluster;
}

static void curve__is_met_at_its_points_and_linear_in_time_between(void **state)
{
    (void)state;
    struct cluster c = read_good("{\"nodes\":1,\"devices_per_node\":2,\"latency\":\"3us\",\"link\":"
                                 "[[1000,\"1GBps\"],[\"5000B\",\"2GB/s\"],[1000000,\"80Gbps\"]]}");
    const struct {
        int64_t bytes;
        double ns;
    } cases[] = {
        {0,        0                    }, /* latency only */
        {500,      500                  }, /* below the first point: its rate */
        {1000,     1000                 },
        {3000,     (1000 + 2500) / 2.0  },
        {5000,     2500                 },
        {502500,   (2500 + 100000) / 2.0},
        {1000000,  100000               },
        {10000000, 1000000              }, /* above the last: its rate */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double got = (double)cluster_transfer_ns(&c, 0, 1, cases[i].bytes) - 3000;
        if (fabs(got - cases[i].ns) > 1.5)
            fail_msg("%lld bytes: %g ns, want %g", (long long)cases[i].bytes, got, cases[i].ns);
    }
    int64_t last = 0;
    for (int64_t bytes = 0; bytes < 1200000; bytes += 97) {
        int64_t ns = cluster_transfer_ns(&c, 0, 1, bytes);
        assert_true(ns >= last);
        last = ns;
    }
    cluster_clear(&c);
}

static void curve__keeps_its_shape_when_the_port_changes(void **state)
{
    (void)state;
    struct cluster c = read_good("{\"nodes\":1,\"devices_per_node\":2,\"latency\":0,\"link\":"
                                 "[[1000,\"5GBps\"],[100000,\"10GBps\"]]}");
    assert_true(c.devices[1].link_bytes_per_s == 10e9);
    const int64_t before = cluster_transfer_ns(&c, 0, 1, 1000);
    assert_int_equal(before, 200);
    c.devices[0].link_bytes_per_s = c.devices[1].link_bytes_per_s = 20e9;
    assert_int_equal(cluster_transfer_ns(&c, 0, 1, 1000), 100);
    cluster_clear(&c);
}

static void network_port__limits_messages_but_not_rings_of_a_whole_node(void **state)
{
    (void)state;
    struct cluster c = parse("dgx-a100-2");
    assert_int_equal(c.num_devices, 16);
    assert_int_equal(c.num_nodes, 2);
    assert_true(c.uplink_bytes_per_s[0] == 200e9);
    assert_true(c.devices[0].nic_bytes_per_s == 25e9);
    /* a message: one port of 25 GB/s */
    assert_int_equal(cluster_transfer_ns(&c, 0, 8, 25000000), 10000 + 1000000);
    int32_t path[PATH_MAX_HOPS], whole_path[PATH_MAX_HOPS];
    assert_int_equal(cluster_path(&c, 0, 8, path), 4);
    assert_int_equal(cluster_capacity(&c, path[0]), 25000000000);
    assert_int_equal(cluster_capacity(&c, path[1]), 200000000000);
    assert_int_equal(cluster_capacity(&c, path[3]), 25000000000);
    assert_int_equal(cluster_path(&c, 0, 1, whole_path), 2);
    assert_int_equal(cluster_capacity(&c, whole_path[0]), 300000000000);
    for (int i = 0; i < 4; i++)
        assert_true(path[i] < cluster_num_resources(&c));
    /* rings over 1 and over 8 devices of each node: 1 port and all 8 */
    int all[16], one[2] = {3, 11};
    for (int i = 0; i < 16; i++)
        all[i] = i;
    for (int kind = 0; kind < COLLECTIVE_COUNT; kind++)
        c.collectives[kind] =
            (struct collective_figures){.link_latency_ns = 0, .uplink_latency_ns = 0};
    assert_int_equal(cluster_collective_ns(&c, COLLECTIVE_ALLGATHER, one, 2, 50000000), 1000000);
    assert_int_equal(cluster_collective_ns(&c, COLLECTIVE_ALLGATHER, all, 16, 1600000000),
                     15 * 100000000 / 200);
    /* all-to-all over both nodes: half of each device's bytes leave through its port */
    assert_int_equal(cluster_collective_ns(&c, COLLECTIVE_ALLTOALL, all, 16, 50000000), 1000000);
    cluster_clear(&c);
}

static void collectives__have_figures_of_their_own(void **state)
{
    (void)state;
    struct cluster c = read_good(
        "{\"nodes\":2,\"devices_per_node\":2,\"link\":\"100GBps\",\"uplink\":\"10GBps\","
        "\"latency\":\"5us\",\"collective\":{\"link\":\"80GBps\",\"uplink\":[[1000,\"1GBps\"],"
        "[1000000,\"8GBps\"]],\"latency\":\"1us\",\"uplink_latency\":\"2us\",\"fixed\":\"20us\","
        "\"all-to-all\":{\"link\":\"50GBps\",\"fixed\":0}}}");
    const int inside[2] = {0, 1}, ring[4] = {0, 1, 2, 3};
    /* fixed + 2 (n-1) latency + 2 (n-1)/n bytes / rate */
    assert_int_equal(cluster_collective_ns(&c, COLLECTIVE_ALLREDUCE, inside, 2, 8000000),
                     20000 + 2 * 1000 + 100000);
    assert_int_equal(cluster_collective_ns(&c, COLLECTIVE_REDUCE_SCATTER, inside, 2, 8000000),
                     20000 + 1000 + 50000);
    assert_int_equal(cluster_collective_ns(&c, COLLECTIVE_ALLTOALL, inside, 2, 8000000),
                     1000 + 80000);
    assert_int_equal(cluster_collective_ns(&c, COLLECTIVE_ALLGATHER, ring, 4, 1000000),
                     20000 + 3 * 2000 + 3 * 250000 / 8);
    assert_int_equal(cluster_collective_ns(&c, COLLECTIVE_ALLGATHER, ring, 4, 1000),
                     20000 + 3 * 2000 + 750);
    /* messages keep theirs */
    assert_int_equal(cluster_transfer_ns(&c, 0, 1, 1000000), 5000 + 10000);
    assert_int_equal(cluster_transfer_ns(&c, 1, 2, 1000000), 5000 + 100000);
    cluster_clear(&c);
}

/* 1 GiB over 8 A100 in 8142.6 us: NVIDIA/nccl issue 527. */
static void collectives__of_named_kinds_are_the_published_ones(void **state)
{
    (void)state;
    const int all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct cluster c = parse("dgx-a100");
    double us = (double)cluster_allreduce_ns(&c, all, 8, 1 << 30) / 1e3;
    assert_true(us > 8142.6 * 0.99 && us < 8142.6 * 1.01);
    cluster_clear(&c);
    c = read_good("{\"nodes\":1,\"devices_per_node\":8,\"kind\":\"a100\"}");
    assert_int_equal((int64_t)us, cluster_allreduce_ns(&c, all, 8, 1 << 30) / 1000);
    cluster_clear(&c);
}

static void machines__are_whole_and_take_a_number_of_nodes(void **state)
{
    (void)state;
    for (int i = 0; machine_at(i); i++) {
        const struct machine *machine = machine_at(i);
        assert_ptr_equal(machine_find(machine->name), machine);
        assert_non_null(roofline_find(machine->kind));
        assert_non_null(machine->source);
        assert_non_null(machine->copy_source);
        struct cluster c = parse(machine->name);
        assert_int_equal(c.num_nodes, 1);
        assert_int_equal(c.num_devices, machine->devices);
        assert_true(c.devices[0].nic_bytes_per_s <= c.uplink_bytes_per_s[0]);
        cluster_clear(&c);
    }
    struct cluster c = parse("p4d.24xlarge-4");
    assert_int_equal(c.num_devices, 32);
    assert_true(c.devices[31].mem_bytes == 40LL << 30);
    assert_true(c.uplink_bytes_per_s[3] == 50e9);
    assert_string_equal(c.name, "p4d.24xlarge-4");
    cluster_clear(&c);
}

static void files__are_refused_by_the_key_that_is_wrong(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"\"link\":[[1000,\"2GBps\"],[1000,\"3GBps\"]]",
         "cluster.link: point 2 must have more bytes"                                                              },
        {"\"link\":[[1000,\"2GBps\"],[500,\"3GBps\"]]",
         "cluster.link: point 2 must have more bytes"                                                              },
        {"\"uplink\":[[1000,\"2GBps\"],[2000,\"1GBps\"]]",
         "cluster.uplink: point 2 must have more bytes than the one before and no lower rate"                      },
        {"\"link\":[[1000,\"1GBps\"],[2000,\"4GBps\"]]",               "cluster.link: 2000 bytes take less time"   },
        {"\"link\":[]",                                                "cluster.link must have 1..16 points, got 0"},
        {"\"link\":[[1000]]",                                          "cluster.link must be a bandwidth like"     },
        {"\"link\":[[-5,\"1GBps\"]]",                                  "point 1 must have 1 byte"                  },
        {"\"link\":\"-5GBps\"",                                        "cluster.link must be a bandwidth like"     },
        {"\"link\":\"5Gib/s\"",                                        "cluster.link must be a bandwidth like"     },
        {"\"nic\":\"0GBps\"",                                          "cluster.nic must be"                       },
        {"\"collective\":5",                                           "cluster.collective must be an object"      },
        {"\"collective\":{\"lnk\":1}",                                 "cluster.collective.lnk"                    },
        {"\"collective\":{\"fixed\":\"-1us\"}",                        "cluster.collective.fixed"                  },
        {"\"collective\":{\"all-gather\":{\"uplink\":[[9,1],[8,1]]}}",
         "cluster.collective.all-gather.uplink: point 2"                                                           },
        {"\"collective\":{\"all-gather\":{\"all-gather\":{}}}",
         "cluster.collective.all-gather.all"                                                                       },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        struct cluster c = {0};
        struct err err = {0};
        snprintf(text, sizeof text, "{\"nodes\":1,\"devices_per_node\":2,%s}", cases[i].text);
        enum status rc = read(text, &c, &err);
        if (rc != ERR_INPUT || !strstr(err.msg, cases[i].says) || c.devices)
            fail_msg("%s: status %d, '%s'", text, (int)rc, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curve__is_met_at_its_points_and_linear_in_time_between),
        cmocka_unit_test(curve__keeps_its_shape_when_the_port_changes),
        cmocka_unit_test(network_port__limits_messages_but_not_rings_of_a_whole_node),
        cmocka_unit_test(collectives__have_figures_of_their_own),
        cmocka_unit_test(collectives__of_named_kinds_are_the_published_ones),
        cmocka_unit_test(machines__are_whole_and_take_a_number_of_nodes),
        cmocka_unit_test(files__are_refused_by_the_key_that_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
