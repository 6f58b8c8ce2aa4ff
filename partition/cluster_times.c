/* Unshared times of messages and collectives. wire_ns() computes all of them in integers, so they
 * are equal on every machine. Read cluster.h first. */
#include "partition/cluster.h"

#include <stdlib.h>

#include "partition/units.h"

/* ceil(numerator * bytes / (denominator * bandwidth)) in ns, exactly. The bandwidth is rounded to
 * whole bytes per second, so every machine computes the same integer. */
static int64_t wire_ns(int64_t bytes, int64_t numerator, int64_t denominator, double bytes_per_s)
{
    uint64_t small_top, small_bottom = (uint64_t)(bytes_per_s + 0.5);
    if (!__builtin_mul_overflow((uint64_t)bytes, 1000000000u, &small_top) &&
        !__builtin_mul_overflow(small_top, (uint64_t)numerator, &small_top) &&
        !__builtin_mul_overflow(small_bottom, (uint64_t)denominator, &small_bottom)) {
        uint64_t quotient = small_top / small_bottom + (small_top % small_bottom != 0);
        return quotient > INT64_MAX ? INT64_MAX : (int64_t)quotient;
    }
    unsigned __int128 top = (unsigned __int128)bytes * 1000000000u * (uint64_t)numerator;
    unsigned __int128 bottom =
        (unsigned __int128)(uint64_t)(bytes_per_s + 0.5) * (uint64_t)denominator;
    unsigned __int128 ns = (top + bottom - 1) / bottom;
    return ns > INT64_MAX ? INT64_MAX : (int64_t)ns;
}

static double min_rate(double a, double b)
{
    return a < b ? a : b;
}

int64_t cluster_transfer_ns(const struct cluster *cluster, int from, int to, int64_t bytes)
{
    if (from == to)
        return 0;
    const struct device *src = &cluster->devices[from], *dst = &cluster->devices[to];
    double rate = min_rate(src->link_bytes_per_s, dst->link_bytes_per_s);
    int64_t latency = cluster->link_latency_ns;
    if (src->node != dst->node) {
        rate = min_rate(rate, min_rate(cluster->uplink_bytes_per_s[src->node],
                                       cluster->uplink_bytes_per_s[dst->node]));
        latency = cluster->uplink_latency_ns;
    }
    return add_saturated(latency, wire_ns(bytes, 1, 1, rate));
}

/* A group of n devices in ring order. */
struct group {
    const struct cluster *cluster;
    const int *devices;
    int n;
};

static const struct device *group_device(const struct group *group, int i)
{
    return &group->cluster->devices[group->devices[i < group->n ? i : i - group->n]];
}

/* Number of ring edges that leave a node. As many enter it, because the ring is closed. */
static int edges_leaving(const struct group *group, int node)
{
    int count = 0;
    for (int i = 0; i < group->n; i++)
        count += group_device(group, i)->node == node && group_device(group, i + 1)->node != node;
    return count;
}

static int devices_on(const struct group *group, int node)
{
    int count = 0;
    for (int i = 0; i < group->n; i++)
        count += group_device(group, i)->node == node;
    return count;
}

/* Up to this many nodes, the tables of counts per node are on the stack. */
#define TABLE_NODES 4096

/* For each node, fill `counts` with the number of ring edges that leave it (edges) or of devices on
 * it. */
static void count_nodes(const struct group *group, bool edges, int *counts)
{
    for (int i = 0; i < group->n; i++)
        counts[group_device(group, i)->node] = 0;
    for (int i = 0; i < group->n; i++) {
        int node = group_device(group, i)->node;
        counts[node] += !edges || node != group_device(group, i + 1)->node;
    }
}

/* The lowest rate and the longest latency of an edge of the ring. counts: of count_nodes(), or NULL
 * without memory for it. */
static double ring_rate(const struct group *group, const int *counts, int64_t *latency)
{
    const struct cluster *cluster = group->cluster;
    const double both = cluster->half_duplex ? 2 : 1; /* a ring sends and receives at once */
    double rate = 1e18;
    *latency = 0;
    for (int i = 0; i < group->n; i++) {
        const struct device *src = group_device(group, i), *dst = group_device(group, i + 1);
        rate = min_rate(rate, min_rate(src->link_bytes_per_s, dst->link_bytes_per_s) / both);
        int64_t edge_latency = cluster->link_latency_ns;
        if (src->node != dst->node) {
            int out = counts ? counts[src->node] : edges_leaving(group, src->node);
            int in = counts ? counts[dst->node] : edges_leaving(group, dst->node);
            rate = min_rate(rate, cluster->uplink_bytes_per_s[src->node] / (both * out));
            rate = min_rate(rate, cluster->uplink_bytes_per_s[dst->node] / (both * in));
            edge_latency = cluster->uplink_latency_ns;
        }
        if (edge_latency > *latency)
            *latency = edge_latency;
    }
    return rate < 1 ? 1 : rate;
}

/* Every device sends bytes / n to each other device, all messages in flight together: the busiest
 * port or uplink decides, and one latency. */
static int64_t alltoall_ns(const struct group *group, const int *counts, int64_t bytes)
{
    const struct cluster *cluster = group->cluster;
    const double both = cluster->half_duplex ? 2 : 1;
    const int n = group->n;
    int64_t longest = 0, latency = cluster->link_latency_ns;
    for (int i = 0; i < n; i++) {
        const struct device *device = group_device(group, i);
        int64_t inside = counts ? counts[device->node] : devices_on(group, device->node);
        int64_t port = wire_ns(bytes, n - 1, n, device->link_bytes_per_s / both);
        int64_t uplink = 0;
        if (inside < n) {
            uplink = wire_ns(bytes, inside * (n - inside), n,
                             cluster->uplink_bytes_per_s[device->node] / both);
            latency = cluster->uplink_latency_ns;
        }
        longest = port > longest ? port : longest;
        longest = uplink > longest ? uplink : longest;
    }
    return add_saturated(latency, longest);
}

int64_t cluster_collective_ns(const struct cluster *cluster, enum collective kind,
                              const int *devices, int n, int64_t bytes)
{
    if (n < 2)
        return 0;
    const struct group group = {.cluster = cluster, .devices = devices, .n = n};
    const bool alltoall = kind == COLLECTIVE_ALLTOALL;
    int few[TABLE_NODES];
    int *counts = cluster->num_nodes <= TABLE_NODES
                      ? few
                      : malloc((size_t)cluster->num_nodes * sizeof *counts);
    if (counts)
        count_nodes(&group, !alltoall, counts);
    int64_t ns, latency;
    if (alltoall) {
        ns = alltoall_ns(&group, counts, bytes);
    } else {
        const int64_t steps = (kind == COLLECTIVE_ALLREDUCE ? 2 : 1) * ((int64_t)n - 1);
        const double rate = ring_rate(&group, counts, &latency);
        ns = add_saturated(mul_saturated(steps, latency), wire_ns(bytes, steps, n, rate));
    }
    if (counts != few)
        free(counts);
    return ns;
}

int64_t cluster_allreduce_ns(const struct cluster *cluster, const int *devices, int n,
                             int64_t bytes)
{
    return cluster_collective_ns(cluster, COLLECTIVE_ALLREDUCE, devices, n, bytes);
}

const char *collective_name(enum collective kind)
{
    static const char *const names[COLLECTIVE_COUNT] = {"all-reduce", "reduce-scatter",
                                                        "all-gather", "all-to-all"};
    return (unsigned)kind < COLLECTIVE_COUNT ? names[kind] : "?";
}
