/* All-reduce algorithms against their formulas. */
#include "partition/cost/collective.h"
#include "tests/unit/test.h"

static void build(struct cluster *cluster, int nodes, int devices)
{
    struct err err = {0};
    assert_int_equal(cluster_grid(nodes, devices, cluster, &err), OK);
    for (int d = 0; d < nodes * devices; d++)
        cluster->devices[d].link_bytes_per_s = 1e9;
    for (int n = 0; n < nodes; n++)
        cluster->uplink_bytes_per_s[n] = 0.25e9;
    cluster->link_latency_ns = 10;
    cluster->uplink_latency_ns = 100;
}

static void collective_ns__ring_and_tree_take_their_formulas(void **state)
{
    (void)state;
    struct cluster cluster = {0};
    struct cost cost;
    const int devices[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    cost_constant(&cost);
    build(&cluster, 1, 8);
    for (int n = 2; n <= 8; n *= 2) {
        int log = n == 2 ? 1 : n == 4 ? 2 : 3;
        assert_int_equal(collective_ns(ALLREDUCE_RING, &cost, &cluster, devices, n, 8000),
                         2 * (n - 1) * 8000 / n + 2 * (n - 1) * 10);
        assert_int_equal(collective_ns(ALLREDUCE_TREE, &cost, &cluster, devices, n, 8000),
                         2 * 8000 + 2 * log * 10);
        assert_int_equal(collective_ns(ALLREDUCE_HIERARCHICAL, &cost, &cluster, devices, n, 8000),
                         collective_ns(ALLREDUCE_RING, &cost, &cluster, devices, n, 8000));
    }
    assert_int_equal(collective_ns(ALLREDUCE_TREE, &cost, &cluster, devices, 1, 8000), 0);
    cluster_clear(&cluster);
}

static void collective_ns__hierarchical_carries_each_byte_once_between_nodes(void **state)
{
    (void)state;
    struct cluster cluster = {0};
    struct cost cost;
    const int devices[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    cost_constant(&cost);
    build(&cluster, 2, 4);
    /* inside: ring of 4; between: 2(2-1)/2 x 8000 B over 0.25 GB/s */
    assert_int_equal(collective_ns(ALLREDUCE_HIERARCHICAL, &cost, &cluster, devices, 8, 8000),
                     (2 * 3 * 8000 / 4 + 2 * 3 * 10) + (8000 * 4 + 2 * 100));
    /* one ring over both nodes: 2(8-1)/8 x 8000 B over 0.25 GB/s, 14 long latencies */
    assert_int_equal(collective_ns(ALLREDUCE_RING, &cost, &cluster, devices, 8, 8000),
                     2 * 7 * 8000 / 8 * 4 + 14 * 100);
    /* unequal shares: the ring */
    assert_int_equal(collective_ns(ALLREDUCE_HIERARCHICAL, &cost, &cluster, devices, 7, 7000),
                     collective_ns(ALLREDUCE_RING, &cost, &cluster, devices, 7, 7000));
    cluster_clear(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collective_ns__ring_and_tree_take_their_formulas),
        cmocka_unit_test(collective_ns__hierarchical_carries_each_byte_once_between_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
