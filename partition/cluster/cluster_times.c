/* Unshared times of messages and collectives. wire_ns() computes all of them in integers, so they
 * are equal on every machine. Read cluster.h first. */
#include "partition/cluster/cluster.h"

#include <stdlib.h>

#include "partition/base/units.h"

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

/* Rates below 1 B/s, which small shares may make, count as 1. */
static double at_least_one(double rate)
{
    return rate < 1 ? 1 : rate;
}

static double min_rate(double a, double b)
{
    return a < b ? a : b;
}

double share_curve_at(const struct share_curve *curve, int64_t bytes)
{
    const int n = curve->num_points;
    if (n == 0)
        return 1;
    if (bytes <= curve->bytes[0])
        return curve->share[0];
    if (bytes >= curve->bytes[n - 1])
        return curve->share[n - 1];
    int i = 1;
    while (curve->bytes[i] < bytes)
        i++;
    const double left = (double)curve->bytes[i - 1], right = (double)curve->bytes[i];
    const double early = left / curve->share[i - 1], late = right / curve->share[i];
    return (double)bytes / (early + (late - early) * ((double)bytes - left) / (right - left));
}

int64_t cluster_transfer_ns(const struct cluster *cluster, int from, int to, int64_t bytes)
{
    if (from == to)
        return 0;
    const struct device *src = &cluster->devices[from], *dst = &cluster->devices[to];
    if (src->node == dst->node) {
        const double rate = min_rate(src->link_bytes_per_s, dst->link_bytes_per_s) *
                            share_curve_at(&cluster->link_shares, bytes);
        return add_saturated(cluster->link_latency_ns, wire_ns(bytes, 1, 1, at_least_one(rate)));
    }
    const double uplinks =
        min_rate(cluster->uplink_bytes_per_s[src->node], cluster->uplink_bytes_per_s[dst->node]);
    double rate = min_rate(uplinks, min_rate(device_nic(src), device_nic(dst)));
    if (cluster_pod(cluster, src->node) != cluster_pod(cluster, dst->node))
        rate = min_rate(rate, cluster->pod_uplink_bytes_per_s);
    rate *= share_curve_at(&cluster->uplink_shares, bytes);
    return add_saturated(cluster_latency_ns(cluster, from, to),
                         wire_ns(bytes, 1, 1, at_least_one(rate)));
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

static int pod_of(const struct group *group, int i)
{
    return cluster_pod(group->cluster, group_device(group, i)->node);
}

/* Number of ring edges that leave a pod. */
static int edges_leaving_pod(const struct group *group, int pod)
{
    int count = 0;
    for (int i = 0; i < group->n; i++)
        count += pod_of(group, i) == pod && pod_of(group, i + 1) != pod;
    return count;
}

static int devices_in(const struct group *group, int pod)
{
    int count = 0;
    for (int i = 0; i < group->n; i++)
        count += pod_of(group, i) == pod;
    return count;
}

/* Up to this many nodes, the tables of counts per node are on the stack. */
#define TABLE_NODES 2048

/* For each node and each pod of the group, the number of ring edges that leave it and of devices on
 * it. NULL without memory for the tables: then they are counted again for each device. */
struct counts {
    int *edges, *devices, *pod_edges, *pod_devices;
};

static void count_nodes(const struct group *group, const struct counts *counts)
{
    for (int i = 0; i < group->n; i++) {
        const int node = group_device(group, i)->node;
        counts->edges[node] = counts->devices[node] = 0;
    }
    for (int i = 0; i < group->n; i++) {
        const int node = group_device(group, i)->node;
        counts->devices[node]++;
        counts->edges[node] += node != group_device(group, i + 1)->node;
    }
    if (group->cluster->pod_nodes == 0)
        return;
    for (int i = 0; i < group->n; i++)
        counts->pod_edges[pod_of(group, i)] = counts->pod_devices[pod_of(group, i)] = 0;
    for (int i = 0; i < group->n; i++) {
        counts->pod_edges[pod_of(group, i)] += pod_of(group, i) != pod_of(group, i + 1);
        counts->pod_devices[pod_of(group, i)]++;
    }
}

/* The rate at which each ring edge that leaves or enters a node passes its uplink. */
static double edge_uplink(const struct group *group, const struct counts *counts,
                          const struct device *device, double both)
{
    const int node = device->node;
    const int edges = counts->edges ? counts->edges[node] : edges_leaving(group, node);
    const int inside = counts->devices ? counts->devices[node] : devices_on(group, node);
    const double rate = group->cluster->uplink_bytes_per_s[node] / (both * edges);
    if (device->nic_bytes_per_s <= 0)
        return min_rate(rate, device->link_bytes_per_s / both);
    return min_rate(rate, device->nic_bytes_per_s * inside / (both * edges));
}

static void find_ring(const struct group *group, const struct counts *counts, struct ring *ring)
{
    const double both = group->cluster->half_duplex ? 2 : 1; /* it sends and receives at once */
    *ring = (struct ring){.n = group->n, .port_per_s = 1e18, .uplink_per_s = 1e18};
    for (int i = 0; i < group->n; i++) {
        const struct device *src = group_device(group, i), *dst = group_device(group, i + 1);
        if (src->node != dst->node) {
            const double up = min_rate(edge_uplink(group, counts, src, both),
                                       edge_uplink(group, counts, dst, both));
            ring->between = true;
            ring->uplink_per_s = min_rate(ring->uplink_per_s, up);
            const int pod = pod_of(group, i);
            if (pod == pod_of(group, i + 1))
                continue;
            const int edges =
                counts->edges ? counts->pod_edges[pod] : edges_leaving_pod(group, pod);
            ring->across = true;
            ring->uplink_per_s = min_rate(ring->uplink_per_s,
                                          group->cluster->pod_uplink_bytes_per_s / (both * edges));
        } else {
            const double port = min_rate(src->link_bytes_per_s, dst->link_bytes_per_s) / both;
            ring->inside = true;
            ring->port_per_s = min_rate(ring->port_per_s, port);
        }
    }
}

int64_t cluster_ring_ns(const struct cluster *cluster, enum collective kind,
                        const struct ring *ring, int64_t bytes)
{
    const struct collective_figures *figures = &cluster->collectives[kind];
    const struct share_curve *few = ring->n < 4 ? &figures->pair : &figures->quad;
    const int64_t inside =
        figures->link_latency_ns >= 0 ? figures->link_latency_ns : cluster->link_latency_ns;
    const int64_t between =
        figures->uplink_latency_ns >= 0 ? figures->uplink_latency_ns : cluster->uplink_latency_ns;
    const int64_t steps = collective_passes(kind) * ((int64_t)ring->n - 1);
    double rate = 1e18;
    int64_t latency = 0;
    if (ring->n < 2)
        return 0;
    if (ring->inside) {
        const struct share_curve *curve = ring->n < 8 && few->num_points > 0 ? few : &figures->link;
        rate = min_rate(rate, ring->port_per_s * share_curve_at(curve, bytes));
        latency = inside > latency ? inside : latency;
    }
    if (ring->between) {
        rate = min_rate(rate, ring->uplink_per_s * share_curve_at(&figures->uplink, bytes));
        latency = between > latency ? between : latency;
    }
    if (ring->across && cluster->pod_latency_ns > latency)
        latency = cluster->pod_latency_ns;
    const int64_t ns = add_saturated(mul_saturated(steps, latency),
                                     wire_ns(bytes, steps, ring->n, at_least_one(rate)));
    return add_saturated(figures->fixed_ns, ns);
}

/* Every device sends bytes / n to each other device, all messages in flight together: the busiest
 * port or uplink decides, and one latency. A device with a port to the network sends through that
 * what leaves the node, and the rest through the other. */
static int64_t alltoall_ns(const struct group *group, const struct collective_figures *figures,
                           const struct counts *counts, int64_t bytes)
{
    const struct cluster *cluster = group->cluster;
    const double both = cluster->half_duplex ? 2 : 1;
    const double link_share = share_curve_at(&figures->link, bytes) / both;
    const double uplink_share = share_curve_at(&figures->uplink, bytes) / both;
    const int64_t n = group->n;
    int64_t longest = 0;
    bool between = false, across = false;
    for (int i = 0; i < n; i++) {
        const struct device *device = group_device(group, i);
        const int64_t inside =
            counts->devices ? counts->devices[device->node] : devices_on(group, device->node);
        const bool nic = device->nic_bytes_per_s > 0;
        int64_t took[4] = {wire_ns(bytes, (nic ? inside : n) - 1, n,
                                   at_least_one(device->link_bytes_per_s * link_share))};
        between = between || inside < n;
        if (inside < n && nic)
            took[1] =
                wire_ns(bytes, n - inside, n, at_least_one(device->nic_bytes_per_s * uplink_share));
        if (inside < n)
            took[2] =
                wire_ns(bytes, inside * (n - inside), n,
                        at_least_one(cluster->uplink_bytes_per_s[device->node] * uplink_share));
        if (inside < n && cluster->pod_nodes > 0) {
            const int pod = pod_of(group, i);
            const int64_t members =
                counts->devices ? counts->pod_devices[pod] : devices_in(group, pod);
            across = across || members < n;
            if (members < n)
                took[3] = wire_ns(bytes, members * (n - members), n,
                                  at_least_one(cluster->pod_uplink_bytes_per_s * uplink_share));
        }
        for (int k = 0; k < 4; k++)
            longest = took[k] > longest ? took[k] : longest;
    }
    const int64_t own = between ? figures->uplink_latency_ns : figures->link_latency_ns;
    const int64_t message = between ? cluster->uplink_latency_ns : cluster->link_latency_ns;
    int64_t latency = own >= 0 ? own : message;
    if (across && cluster->pod_latency_ns > latency)
        latency = cluster->pod_latency_ns;
    return add_saturated(latency, longest);
}

/* Set *ring to that of a group, or *ns, if it is not NULL, to the time of what it sends at once. */
static void ask_group(const struct group *group, enum collective kind, int64_t bytes,
                      struct ring *ring, int64_t *ns)
{
    const struct cluster *cluster = group->cluster;
    int few[4 * TABLE_NODES];
    int *table = cluster->num_nodes <= TABLE_NODES
                     ? few
                     : malloc(4 * (size_t)cluster->num_nodes * sizeof *table);
    const int n = table ? cluster->num_nodes : 0;
    const struct counts counts = {table, table ? table + n : NULL, table ? table + 2 * n : NULL,
                                  table ? table + 3 * n : NULL};
    if (table)
        count_nodes(group, &counts);
    if (ns)
        *ns = alltoall_ns(group, &cluster->collectives[kind], &counts, bytes);
    else if (ring)
        find_ring(group, &counts, ring);
    if (table != few)
        free(table);
}

void cluster_ring(const struct cluster *cluster, const int *devices, int n, struct ring *ring)
{
    const struct group group = {.cluster = cluster, .devices = devices, .n = n};
    ask_group(&group, COLLECTIVE_ALLREDUCE, 0, ring, NULL);
}

int64_t cluster_collective_ns(const struct cluster *cluster, enum collective kind,
                              const int *devices, int n, int64_t bytes)
{
    const struct group group = {.cluster = cluster, .devices = devices, .n = n};
    struct ring ring;
    int64_t ns;
    if (n < 2)
        return 0;
    if (collective_passes(kind) > 0) {
        ask_group(&group, kind, bytes, &ring, NULL);
        return cluster_ring_ns(cluster, kind, &ring, bytes);
    }
    ask_group(&group, kind, bytes, NULL, &ns);
    return add_saturated(cluster->collectives[kind].fixed_ns, ns);
}

int64_t cluster_allreduce_ns(const struct cluster *cluster, const int *devices, int n,
                             int64_t bytes)
{
    return cluster_collective_ns(cluster, COLLECTIVE_ALLREDUCE, devices, n, bytes);
}

const char *collective_name(enum collective kind)
{
#define NAME(value, name, passes) name,
    static const char *const names[] = {COLLECTIVES(NAME)};
    return (unsigned)kind < COLLECTIVE_COUNT ? names[kind] : "?";
}

int collective_passes(enum collective kind)
{
#define PASSES(value, name, passes) passes,
    static const int passes_of[] = {COLLECTIVES(PASSES)};
    return passes_of[kind];
}
