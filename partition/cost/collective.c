#include "partition/cost/collective.h"

#include "partition/base/units.h"

/* ceil(a * b / c), computed without overflow; INT64_MAX if the result does not fit. */
static int64_t mul_div_up(int64_t a, int64_t b, int64_t c)
{
    unsigned __int128 top = (unsigned __int128)(uint64_t)a * (uint64_t)b + (uint64_t)c - 1;
    unsigned __int128 got = top / (uint64_t)c;
    return got > INT64_MAX ? INT64_MAX : (int64_t)got;
}

static int ceil_log2(int n)
{
    int log = 0;
    while ((1LL << log) < n)
        log++;
    return log;
}

/* The longest latency of an edge of the ring. */
static int64_t edge_latency(const struct cluster *cluster, const int *devices, int n)
{
    int64_t latency = 0;
    for (int i = 0; i < n; i++) {
        const int64_t edge = cluster_latency_ns(cluster, devices[i], devices[(i + 1) % n]);
        if (edge > latency)
            latency = edge;
    }
    return latency;
}

/* Double binary tree: two trees carry half of the bytes each, up and down (Sanders, Speck, Traeff
 * 2009; NCCL 2.4). Every rank sends and receives 2 x bytes in all, a ring 2(n-1)/n x bytes. */
static int64_t tree_ns(const struct cost *cost, const struct cluster *cluster, const int *devices,
                       int n, int64_t bytes)
{
    int64_t start = cost_allreduce_ns(cost, cluster, devices, n, 0);
    int64_t wire = cost_allreduce_ns(cost, cluster, devices, n, bytes) - start;
    return add_saturated(mul_div_up(wire, n, n - 1),
                         mul_saturated(2 * ceil_log2(n), edge_latency(cluster, devices, n)));
}

/* Number of devices of each node; 0 if the nodes differ in it, or if the devices of a node are not
 * consecutive in the ring. */
static int devices_per_node(const struct cluster *cluster, const int *devices, int n)
{
    int per_node = 1;
    while (per_node < n &&
           cluster->devices[devices[per_node]].node == cluster->devices[devices[0]].node)
        per_node++;
    if (n % per_node != 0 || per_node == n)
        return 0;
    for (int i = 0; i < n; i++) {
        if (cluster->devices[devices[i]].node != cluster->devices[devices[i - i % per_node]].node)
            return 0;
        if (i > 0 && i % per_node == 0 &&
            cluster->devices[devices[i]].node == cluster->devices[devices[i - 1]].node)
            return 0;
    }
    return per_node;
}

static int64_t hierarchical_ns(const struct cost *cost, const struct cluster *cluster,
                               const int *devices, int n, int64_t bytes)
{
    int per_node = devices_per_node(cluster, devices, n);
    if (per_node == 0)
        return cost_allreduce_ns(cost, cluster, devices, n, bytes);
    int64_t inside = 0;
    for (int i = 0; i < n; i += per_node) {
        int64_t ns = cost_allreduce_ns(cost, cluster, &devices[i], per_node, bytes);
        if (ns > inside)
            inside = ns;
    }
    /* per_node rings of bytes / per_node each share an uplink. Together they take as long as one
     * ring of all bytes. */
    int nodes = n / per_node;
    int64_t latency = cluster->uplink_latency_ns;
    double rate = 1e18;
    for (int i = 0; i < n; i++) {
        const struct device *d = &cluster->devices[devices[i]];
        double port = d->link_bytes_per_s * per_node;
        double up = cluster->uplink_bytes_per_s[d->node];
        rate = port < rate ? port : rate;
        rate = up < rate ? up : rate;
        if (cluster_pod(cluster, d->node) != cluster_device_pod(cluster, devices[0])) {
            latency = cluster->pod_latency_ns;
            rate = cluster->pod_uplink_bytes_per_s < rate ? cluster->pod_uplink_bytes_per_s : rate;
        }
    }
    if (cluster->half_duplex)
        rate /= 2;
    int64_t whole = rate < 1 ? 1 : (int64_t)(rate + 0.5);
    int64_t shared = mul_div_up(bytes, 2 * ((int64_t)nodes - 1), nodes);
    const int64_t between = add_saturated(mul_div_up(shared, 1000000000, whole),
                                          mul_saturated(2 * ((int64_t)nodes - 1), latency));
    return add_saturated(inside, between);
}

#define ROW(value, name, ns) {name, ns},
static const struct {
    const char *name;
    int64_t (*ns)(const struct cost *cost, const struct cluster *cluster, const int *devices, int n,
                  int64_t bytes);
} allreduces[] = {ALLREDUCES(ROW)};

int64_t collective_ns(enum allreduce_kind kind, const struct cost *cost,
                      const struct cluster *cluster, const int *devices, int n, int64_t bytes)
{
    return n < 2 ? 0 : allreduces[kind].ns(cost, cluster, devices, n, bytes);
}

int64_t collective_bucket_ns(bool scatter, enum allreduce_kind kind, const struct setting *setting,
                             const int *devices, int n, int64_t bytes)
{
    return scatter ? cost_collective_ns(setting->cost, setting->cluster, COLLECTIVE_REDUCE_SCATTER,
                                        devices, n, bytes)
                   : collective_ns(kind, setting->cost, setting->cluster, devices, n, bytes);
}

const char *allreduce_kind_name(enum allreduce_kind kind)
{
    return (unsigned)kind < ALLREDUCE_KIND_COUNT ? allreduces[kind].name : "?";
}
