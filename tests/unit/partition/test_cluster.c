/* Clusters: presets, checks, and the closed forms of time on the wire. */
#include "partition/cluster/cluster.h"
#include "partition/cost/cost.h"
#include "tests/unit/test.h"

static void cluster_parse__knows_every_preset_when_named(void **state)
{
    (void)state;
    for (const char *const *name = cluster_preset_names(); *name; name++) {
        struct cluster cluster = {0};
        struct err err = {0};
        assert_int_equal(cluster_parse(*name, &cluster, &err), OK);
        assert_int_equal(cluster_check(&cluster, &err), OK);
        assert_string_equal(cluster.name, *name);
        assert_non_null(roofline_find(cluster.devices[0].kind));
        cluster_clear(&cluster);
        cluster_clear(&cluster); /* safe twice */
    }
}

static void cluster_parse__gives_the_papers_cluster_when_asked(void **state)
{
    (void)state;
    struct cluster c = {0};
    assert_int_equal(cluster_parse("rtx5000-2x8", &c, NULL), OK);
    assert_int_equal(c.num_nodes, 2);
    assert_int_equal(c.num_devices, 16);
    assert_int_equal(c.devices[7].node, 0);
    assert_int_equal(c.devices[8].node, 1);
    assert_true(c.devices[0].mem_bytes == 16LL << 30);
    assert_true(c.devices[0].link_bytes_per_s == 15.754e9);
    assert_true(c.uplink_bytes_per_s[1] == 5e9);
    assert_true(c.context_bytes == 867LL << 20);
    cluster_clear(&c);
    assert_int_equal(cluster_parse("h100-128x8", &c, NULL), OK);
    assert_int_equal(c.num_devices, 1024);
    assert_int_equal(c.devices[1023].node, 127);
    cluster_clear(&c);
}

static void device_ns__is_the_nearest_that_there_is(void **state)
{
    (void)state;
    const struct {
        double speed;
        int64_t ns, want;
    } cases[] = {
        {1,     INT64_MAX, INT64_MAX },
        {2,     3,         2         },
        {0.5,   3,         6         },
        {1e-14, 1000000,   INT64_MAX },
        {1e9,   INT64_MAX, 9223372037}
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct device device = {.speed = cases[i].speed};
        assert_int_equal(device_ns(&device, cases[i].ns), cases[i].want);
    }
}

static void device_copy_ns__is_nothing_where_the_host_computes(void **state)
{
    (void)state;
    struct device device = {.kind = "rtx5000", .copy_bytes_per_s = 4e9};
    assert_true(device_copy_ns(&device, 1000) == 250);
    strcpy(device.kind, "cpu");
    assert_true(device_copy_ns(&device, 1000) == 0);
}

static void cluster_parse__uses_the_defaults_when_given_a_grid(void **state)
{
    (void)state;
    struct cluster c = {0};
    assert_int_equal(cluster_parse("2x3", &c, NULL), OK);
    assert_int_equal(c.num_devices, 6);
    assert_true(c.devices[5].link_bytes_per_s == 16e9);
    assert_true(c.uplink_bytes_per_s[0] == 16e9);
    assert_int_equal(c.link_latency_ns, 5000);
    assert_true(c.devices[0].mem_bytes == INT64_MAX);
    assert_int_equal(c.host_op_ns, 0);
    cluster_clear(&c);
}

static void cluster_set_nodes__equals_the_text_with_that_number(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct cluster made = {0}, parsed = {0};
        char text[32];
        snprintf(text, sizeof text, "a100-%dx4", counts[i]);
        assert_int_equal(cluster_parse("a100-2x4", &made, NULL), OK);
        assert_int_equal(cluster_parse(text, &parsed, NULL), OK);
        assert_int_equal(cluster_set_nodes(&made, counts[i], NULL), OK);
        snprintf(text, sizeof text, "%d %s of a100-2x4", counts[i],
                 counts[i] == 1 ? "node" : "nodes");
        assert_string_equal(made.name, text);
        assert_int_equal(made.num_nodes, parsed.num_nodes);
        assert_int_equal(made.num_devices, parsed.num_devices);
        for (int d = 0; d < made.num_devices; d++)
            assert_memory_equal(&made.devices[d], &parsed.devices[d], sizeof made.devices[d]);
        for (int n = 0; n < made.num_nodes; n++)
            assert_true(made.uplink_bytes_per_s[n] == parsed.uplink_bytes_per_s[n]);
        assert_int_equal(cluster_check(&made, NULL), OK);
        assert_int_equal(cluster_set_nodes(&made, CLUSTER_DEVICES_MAX, NULL), ERR_INPUT);
        assert_int_equal(made.num_nodes, counts[i]);
        cluster_clear(&made);
        cluster_clear(&parsed);
    }
}

static void cluster_parse__refuses_when_text_is_wrong(void **state)
{
    (void)state;
    const char *const bad[] = {"",          "x",       "2x",          "x8",
                               "0x8",       "2x0",     "-1x4",        "2x8x",
                               "2x8 ",      "rtx5000", "rtx9-2x8",    "99999999x99999999",
                               "1048577x1", "2.5x8",   "this-machin", "999999999999999999999x2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cluster c = {0};
        struct err err = {0};
        assert_int_equal(cluster_parse(bad[i], &c, &err), ERR_INPUT);
        assert_true(err.msg[0] != '\0');
        assert_null(c.devices);
    }
}

static void cluster_parse__names_the_text_that_a_count_of_devices_means(void **state)
{
    (void)state;
    static const char *const texts[] = {"h100-8", "8xh100", "h100x8"};
    for (int i = 0; i < 3; i++) {
        struct cluster c = {0};
        struct err err = {0};
        assert_int_equal(cluster_parse(texts[i], &c, &err), ERR_INPUT);
        assert_string_equal(err.hint, "8 devices of kind h100 in one node are h100-1x8");
    }
}

static void cluster_parse__takes_a_kind_as_people_type_it(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        {"H100-1x8",                  "h100"      },
        {"nvidia-h100-80gb-2x8",      "h100"      },
        {"NVIDIA A100-SXM4-80GB-1x4", "a100"      },
        {"a100_40GB-1x4",             "a100-40gb" },
        {"rtx-4090-1x4",              "rtx4090"   },
        {"4090-1x4",                  "rtx4090"   },
        {"RTX 6000 Ada-1x2",          "rtx6000ada"},
        {"rtx-a6000-1x2",             "a6000"     },
        {"tpuv5p-1x8",                "tpu-v5p"   },
        {"DGX_H100",                  "h100"      },
        {"dgxa100-4",                 "a100"      },
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        struct cluster c = {0};
        struct err err = {0};
        assert_int_equal(cluster_parse(same[i][0], &c, &err), OK);
        assert_string_equal(c.devices[0].kind, same[i][1]);
        cluster_clear(&c);
    }
    /* Another memory than the kind's, or another number, is another device. */
    static const char *const other[] = {"h100-24gb-1x8", "a1001-1x8", "sxm-1x8", "-1x8", "rtx-1x8"};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        struct cluster c = {0};
        assert_int_equal(cluster_parse(other[i], &c, NULL), ERR_INPUT);
    }
}

static void cluster_check__names_the_field_when_out_of_range(void **state)
{
    (void)state;
    struct cluster c = {0};
    assert_int_equal(cluster_grid(2, 2, &c, NULL), OK);
    struct err err = {0};
#define REFUSES(field, value, word)                                                                \
    do {                                                                                           \
        __typeof__(field) kept_ = (field);                                                         \
        (field) = (value);                                                                         \
        err = (struct err){0};                                                                     \
        assert_int_equal(cluster_check(&c, &err), ERR_INPUT);                                      \
        assert_non_null(strstr(err.msg, word));                                                    \
        (field) = kept_;                                                                           \
        assert_int_equal(cluster_check(&c, NULL), OK);                                             \
    } while (0)
    REFUSES(c.uplink_bytes_per_s[1], 0, "uplink of node 1");
    REFUSES(c.uplink_bytes_per_s[1], NAN, "uplink");
    REFUSES(c.devices[2].link_bytes_per_s, 0, "device 2: bandwidth");
    REFUSES(c.devices[2].link_bytes_per_s, 2e18, "10^18");
    REFUSES(c.devices[1].copy_bytes_per_s, -1, "bandwidth");
    REFUSES(c.devices[1].speed, 0, "speed");
    REFUSES(c.devices[1].speed, NAN, "speed");
    REFUSES(c.devices[1].mem_bytes, -1, "memory");
    REFUSES(c.devices[3].node, 0, "node order");
    REFUSES(c.devices[3].node, 2, "node");
    REFUSES(c.devices[0].node, 1, "node");
    REFUSES(c.link_latency_ns, -1, "latency");
    REFUSES(c.uplink_latency_ns, -1, "latency");
    REFUSES(c.host_op_ns, -1, "host_op_ns");
    REFUSES(c.context_bytes, -1, "context_bytes");
    cluster_clear(&c);
}

static void cluster_of_ranks__has_what_each_node_has(void **state)
{
    (void)state;
    static const int uneven[] = {2, 1, 3}, even[] = {2, 2}, bad[] = {1, 0};
    static const int node_of[] = {0, 0, 1, 2, 2, 2};
    struct cluster c = {0};
    struct err err = {0};
    assert_int_equal(cluster_of_ranks(uneven, 3, "cpu", &c, &err), OK);
    assert_int_equal(cluster_check(&c, &err), OK);
    assert_int_equal(c.num_nodes, 3);
    assert_int_equal(c.num_devices, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(c.devices[i].node, node_of[i]);
        assert_true(device_is_host(&c.devices[i]));
    }
    assert_true(c.uplink_bytes_per_s[2] == 16e9);
    cluster_clear(&c);
    assert_int_equal(cluster_of_ranks(even, 2, "h100", &c, &err), OK);
    assert_string_equal(c.name, "2x2");
    assert_int_equal(c.devices[2].node, 1);
    assert_int_equal(c.uplink_latency_ns, 5000); /* what the links do is for profiles to say */
    cluster_clear(&c);
    assert_int_equal(cluster_of_ranks(bad, 2, "cpu", &c, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "node 1"));
    assert_null(c.devices);
}

static void cluster_copy__is_independent_when_the_source_changes(void **state)
{
    (void)state;
    struct cluster a = {0}, b = {0};
    assert_int_equal(cluster_grid(1, 2, &a, NULL), OK);
    assert_int_equal(cluster_copy(&a, &b, NULL), OK);
    a.devices[1].speed = 7;
    a.uplink_bytes_per_s[0] = 1;
    assert_true(b.devices[1].speed == 1 && b.uplink_bytes_per_s[0] == 16e9);
    cluster_clear(&a);
    cluster_clear(&b);
}

static void cluster_transfer_ns__is_latency_plus_wire_when_unshared(void **state)
{
    (void)state;
    struct cluster c = {0};
    assert_int_equal(cluster_grid(2, 2, &c, NULL), OK);
    c.uplink_latency_ns = 9000;
    c.uplink_bytes_per_s[1] = 4e9;
    c.devices[1].link_bytes_per_s = 8e9;
    assert_int_equal(cluster_transfer_ns(&c, 1, 1, 1 << 20), 0);
    assert_int_equal(cluster_transfer_ns(&c, 0, 1, 0), 5000);
    assert_int_equal(cluster_transfer_ns(&c, 0, 1, 1 << 20), 5000 + 131072); /* 2^20 / 8 GB/s */
    assert_int_equal(cluster_transfer_ns(&c, 2, 3, 1 << 20), 5000 + 65536);
    assert_int_equal(cluster_transfer_ns(&c, 0, 3, 1 << 20), 9000 + 262144);
    assert_int_equal(cluster_transfer_ns(&c, 2, 3, 1), 5000 + 1); /* rounds up */
    assert_true(cluster_transfer_ns(&c, 0, 1, INT64_MAX) > 0);    /* no overflow */
    for (int i = 0; i < 4; i++)
        c.devices[i].link_bytes_per_s = 1;
    assert_true(cluster_transfer_ns(&c, 0, 1, INT64_MAX) == INT64_MAX);
    cluster_clear(&c);
}

/* The judge: the slowest edge of one ring step, 2(n-1) times, in long double. */
static long double ring_ns(const struct cluster *c, const int *devices, int n, int64_t bytes)
{
    long double slowest = 0, latency = 0;
    for (int i = 0; i < n; i++) {
        int a = devices[i], b = devices[(i + 1) % n];
        long double rate = fminl(c->devices[a].link_bytes_per_s, c->devices[b].link_bytes_per_s);
        int na = c->devices[a].node, nb = c->devices[b].node;
        latency = fmaxl(latency, na == nb ? c->link_latency_ns : c->uplink_latency_ns);
        int out = 0, in = 0;
        for (int j = 0; j < n; j++) {
            int ja = c->devices[devices[j]].node, jb = c->devices[devices[(j + 1) % n]].node;
            out += ja == na && jb != na;
            in += jb == nb && ja != nb;
        }
        if (na != nb) {
            rate = fminl(rate, c->uplink_bytes_per_s[na] / out);
            rate = fminl(rate, c->uplink_bytes_per_s[nb] / in);
        }
        slowest = fmaxl(slowest, 1e9L * bytes / n / rate);
    }
    return 2 * (n - 1) * (slowest + latency);
}

static void cluster_allreduce_ns__is_the_ring_when_compared_edge_by_edge(void **state)
{
    (void)state;
    struct cluster c = {0};
    assert_int_equal(cluster_grid(3, 4, &c, NULL), OK);
    c.uplink_latency_ns = 20000;
    c.uplink_bytes_per_s[1] = 3e9;
    c.devices[5].link_bytes_per_s = 2e9;
    const struct {
        int n, devices[6];
    } rings[] = {
        {1, {3}               },
        {2, {0, 1}            },
        {2, {0, 4}            },
        {4, {0, 1, 2, 3}      },
        {4, {0, 4, 8, 9}      },
        {4, {0, 4, 1, 6}      },
        {3, {0, 5, 8}         },
        {6, {0, 4, 1, 6, 2, 7}},
        {6, {0, 1, 4, 5, 8, 9}},
    };
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        int64_t got = cluster_allreduce_ns(&c, rings[i].devices, rings[i].n, 123456789);
        long double want = ring_ns(&c, rings[i].devices, rings[i].n, 123456789);
        assert_true(fabsl((long double)got - want) <= 1.001L);
    }
    int two[] = {0, 1};
    /* 2(n-1)/n x bytes / bandwidth + 2(n-1) x latency, exactly */
    assert_int_equal(cluster_allreduce_ns(&c, two, 2, 16000), 1000 + 2 * 5000);
    c.half_duplex = true; /* sends and receives of a ring share the link */
    assert_int_equal(cluster_allreduce_ns(&c, two, 2, 16000), 2 * 1000 + 2 * 5000);
    cluster_clear(&c);
}

/* Four nodes of two devices in pods of two nodes, whose uplink is a quarter of their nodes'. */
static void pods__are_a_third_level(void **state)
{
    struct cluster c = {0};
    const int all[8] = {0, 1, 2, 3, 4, 5, 6, 7}, mixed[4] = {0, 4, 2, 6};
    int32_t path[PATH_MAX_HOPS];
    (void)state;
    assert_int_equal(cluster_grid(4, 2, &c, NULL), OK);
    c.pod_nodes = 2;
    c.pod_uplink_bytes_per_s = 8e9;
    c.pod_latency_ns = 20000;
    assert_int_equal(cluster_check(&c, NULL), OK);
    assert_int_equal(cluster_num_pods(&c), 2);
    assert_int_equal(cluster_path(&c, 0, 2, path), 4);
    assert_int_equal(cluster_path(&c, 0, 4, path), 6);
    for (int i = 0; i < 6; i++)
        assert_true(path[i] < cluster_num_resources(&c));
    assert_int_equal(cluster_capacity(&c, path[4]), 8000000000);
    assert_int_equal(cluster_capacity(&c, path[5]), 8000000000);
    assert_int_equal(cluster_transfer_ns(&c, 0, 2, 16000), 5000 + 1000); /* 16 GB/s, one pod */
    assert_int_equal(cluster_transfer_ns(&c, 0, 4, 16000), 20000 + 2000);
    /* A ring leaves each pod once: 2 x 7/8 x bytes / 8 GB/s + 14 latencies; in this order twice. */
    assert_int_equal(cluster_allreduce_ns(&c, all, 8, 64000), 14 * 20000 + 14000);
    assert_int_equal(cluster_allreduce_ns(&c, mixed, 4, 64000), 6 * 20000 + 24000);
    /* All-to-all: 4 devices of a pod send 4/8 of their bytes each through its uplink. */
    assert_int_equal(cluster_collective_ns(&c, COLLECTIVE_ALLTOALL, all, 8, 64000), 20000 + 16000);
    c.pod_nodes = 4; /* one pod is none */
    assert_int_equal(cluster_allreduce_ns(&c, all, 8, 64000), 14 * 5000 + 7000);
    c.pod_uplink_bytes_per_s = 0;
    assert_int_equal(cluster_check(&c, NULL), ERR_INPUT);
    cluster_clear(&c);
}

/* Meta's cluster of 24,576 H100: eight pods, a seventh of their nodes' uplinks between them (Llama 3, section
 * 3.3.1). A cluster of one pod has none. */
static void cluster_parse__knows_the_pods_of_a_machine(void **state)
{
    struct cluster c = {0};
    (void)state;
    assert_int_equal(cluster_parse("grand-teton-3072", &c, NULL), OK);
    assert_int_equal(c.num_devices, 24576);
    assert_int_equal(cluster_num_pods(&c), 8);
    assert_true(fabs(c.pod_uplink_bytes_per_s / (384 * 8 * 50e9 / 7) - 1) < 1e-12);
    cluster_clear(&c);
    assert_int_equal(cluster_parse("grand-teton-384", &c, NULL), OK);
    assert_int_equal(c.pod_nodes, 0);
    cluster_clear(&c);
}

/* The judge: every device sends bytes / n to each other one; count what each port and uplink
 * carries. */
static long double alltoall_ns(const struct cluster *c, const int *devices, int n, int64_t bytes)
{
    long double busiest = 0, latency = c->link_latency_ns;
    for (int i = 0; i < n; i++) {
        const struct device *from = &c->devices[devices[i]];
        long double port = 0, uplink = 0;
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++) {
                const struct device *a = &c->devices[devices[j]], *b = &c->devices[devices[k]];
                port += j == i && k != i;
                uplink += a->node == from->node && b->node != from->node;
            }
        latency = uplink > 0 ? c->uplink_latency_ns : latency;
        busiest = fmaxl(busiest, port * bytes / n / from->link_bytes_per_s);
        busiest = fmaxl(busiest, uplink * bytes / n / c->uplink_bytes_per_s[from->node]);
    }
    return 1e9L * busiest + latency;
}

static void cluster_collective_ns__takes_the_closed_form_of_each_kind(void **state)
{
    (void)state;
    struct cluster c = {0};
    assert_int_equal(cluster_grid(3, 4, &c, NULL), OK);
    c.uplink_latency_ns = 20000;
    c.uplink_bytes_per_s[1] = 3e9;
    c.devices[5].link_bytes_per_s = 2e9;
    const struct {
        int n, devices[8];
    } groups[] = {
        {2, {0, 1}                  },
        {4, {0, 1, 2, 3}            },
        {4, {4, 5, 6, 7}            },
        {3, {0, 5, 8}               },
        {8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {6, {0, 4, 5, 8, 9, 10}     },
    };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const int *devices = groups[i].devices, n = groups[i].n;
        const int64_t bytes = 123456789;
        const long double half = ring_ns(&c, devices, n, bytes) / 2;
        int64_t scatter = cluster_collective_ns(&c, COLLECTIVE_REDUCE_SCATTER, devices, n, bytes);
        int64_t gather = cluster_collective_ns(&c, COLLECTIVE_ALLGATHER, devices, n, bytes);
        int64_t all = cluster_collective_ns(&c, COLLECTIVE_ALLTOALL, devices, n, bytes);
        assert_true(fabsl(scatter - half) <= 1.001L);
        assert_int_equal(gather, scatter);
        assert_int_equal(cluster_collective_ns(&c, COLLECTIVE_ALLREDUCE, devices, n, bytes),
                         cluster_allreduce_ns(&c, devices, n, bytes));
        assert_true(fabsl(all - alltoall_ns(&c, devices, n, bytes)) <= 1.001L);
    }
    for (int kind = 0; kind < COLLECTIVE_COUNT; kind++)
        assert_int_equal(
            cluster_collective_ns(&c, (enum collective)kind, groups[0].devices, 1, 1000), 0);
    cluster_clear(&c);
}

/* Published times of all-reduces over 2 and 4 devices come back; 8 have one share for all sizes. */
static void rings__of_published_kinds_take_what_was_measured(void **state)
{
    static const struct {
        const char *cluster;
        int devices;
        int64_t mib;
        double us;
    } rows[] = {
        {"a100-1x8", 2, 64,   430                                      },
        {"a100-1x8", 2, 16,   139                                      },
        {"a100-1x8", 4, 32,   319                                      },
        {"a100-1x8", 8, 1024, 40.6 + 1.75 * (1 << 30) / (0.769 * 300e3)},
        {"h100-1x8", 4, 64,   318                                      },
        {"h200-1x8", 2, 64,   245                                      },
    };
    const int devices[] = {0, 1, 2, 3, 4, 5, 6, 7};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cluster c = {0};
        assert_int_equal(cluster_parse(rows[i].cluster, &c, NULL), OK);
        assert_int_equal(cluster_check(&c, NULL), OK);
        const int64_t bytes = rows[i].mib << 20;
        const int n = rows[i].devices;
        const double ns = (double)cluster_allreduce_ns(&c, devices, n, bytes);
        assert_true(fabs(ns - rows[i].us * 1e3) < 2);
        /* Half of it, but for what each has once. */
        const double scatter =
            (double)cluster_collective_ns(&c, COLLECTIVE_REDUCE_SCATTER, devices, n, bytes);
        assert_true(fabs(2 * scatter - ns - 14000) < 4);
        cluster_clear(&c);
    }
}

/* A node of 8 H100 has 8 ports of 400 Gb/s. A ring over all devices uses them all, 46 to 48 GB/s each
 * (NVIDIA/nccl-tests, issue 290). A ring of one device a node uses one, however many the node has (issue
 * 232: 50 GB/s with 4 of them). */
static void rings__between_nodes_use_the_port_of_each_device(void **state)
{
    const double bytes = 8.0 * (1 << 30);
    (void)state;
    for (int per_node = 1; per_node <= 8; per_node += 7) {
        struct cluster c = {0};
        int devices[16];
        const int n = 2 * per_node;
        assert_int_equal(cluster_parse("h100-2x8", &c, NULL), OK);
        for (int i = 0; i < n; i++)
            devices[i] = i / per_node * 8 + i % per_node;
        const double ns = (double)cluster_allreduce_ns(&c, devices, n, (int64_t)bytes);
        const double rate = 2.0 * (n - 1) / n * bytes / ns;
        assert_true(rate > 46.0 * per_node && rate < 48.0 * per_node);
        cluster_clear(&c);
    }
}

/* MI300X: a link of 64 GB/s joins each pair of devices, of which a message has 48; the port is seven of them. */
static void cluster_transfer_ns__has_one_link_of_a_mesh(void **state)
{
    struct cluster mesh = {0}, ports = {0};
    (void)state;
    assert_int_equal(cluster_parse("mi300x-1x8", &mesh, NULL), OK);
    assert_int_equal(cluster_parse("h100-1x8", &ports, NULL), OK);
    const int64_t bytes = 48000000, ns = cluster_transfer_ns(&mesh, 0, 1, bytes);
    assert_true(llabs(ns - 5000 - 1000000) < 5000);
    assert_true(llabs(cluster_transfer_ns(&ports, 0, 1, 450000000) - 5000 - 1000000) < 5000);
    cluster_clear(&mesh);
    cluster_clear(&ports);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cluster_transfer_ns__has_one_link_of_a_mesh),
        cmocka_unit_test(cluster_parse__takes_a_kind_as_people_type_it),
        cmocka_unit_test(cluster_parse__knows_every_preset_when_named),
        cmocka_unit_test(cluster_parse__gives_the_papers_cluster_when_asked),
        cmocka_unit_test(device_ns__is_the_nearest_that_there_is),
        cmocka_unit_test(device_copy_ns__is_nothing_where_the_host_computes),
        cmocka_unit_test(cluster_parse__uses_the_defaults_when_given_a_grid),
        cmocka_unit_test(cluster_set_nodes__equals_the_text_with_that_number),
        cmocka_unit_test(cluster_parse__refuses_when_text_is_wrong),
        cmocka_unit_test(cluster_parse__names_the_text_that_a_count_of_devices_means),
        cmocka_unit_test(cluster_check__names_the_field_when_out_of_range),
        cmocka_unit_test(cluster_of_ranks__has_what_each_node_has),
        cmocka_unit_test(cluster_copy__is_independent_when_the_source_changes),
        cmocka_unit_test(cluster_transfer_ns__is_latency_plus_wire_when_unshared),
        cmocka_unit_test(pods__are_a_third_level),
        cmocka_unit_test(cluster_parse__knows_the_pods_of_a_machine),
        cmocka_unit_test(cluster_allreduce_ns__is_the_ring_when_compared_edge_by_edge),
        cmocka_unit_test(cluster_collective_ns__takes_the_closed_form_of_each_kind),
        cmocka_unit_test(rings__of_published_kinds_take_what_was_measured),
        cmocka_unit_test(rings__between_nodes_use_the_port_of_each_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
