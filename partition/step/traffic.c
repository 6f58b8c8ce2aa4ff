#include "partition/step/traffic.h"

#include <math.h>
#include <stdlib.h>

#include "partition/base/units.h"

/* The bytes that pass the ports and uplinks in one step, one flow after another. */
struct traffic {
    const struct cluster *cluster;
    double *busy_ns; /* owned, by resource */
    int32_t *times;  /* owned, by resource: how often the current flow crosses it */
    int32_t *used;   /* owned: those that it crosses */
    int num_used;
    double most_ns; /* of busy_ns so far */
};

static void cross(struct traffic *t, int from, int to)
{
    int32_t path[PATH_MAX_HOPS];
    const int hops = cluster_path(t->cluster, from, to, path);
    for (int i = 0; i < hops; i++)
        if (t->times[path[i]]++ == 0)
            t->used[t->num_used++] = path[i];
}

/* The current flow takes ns alone: as much as what it crosses lets through, the narrowest first. */
static void add_flow(struct traffic *t, double ns)
{
    double rate = INFINITY;
    for (int i = 0; i < t->num_used; i++) {
        const double own = (double)cluster_capacity(t->cluster, t->used[i]) / t->times[t->used[i]];
        rate = own < rate ? own : rate;
    }
    for (int i = 0; i < t->num_used; i++) {
        const int r = t->used[i];
        t->busy_ns[r] += ns * rate * t->times[r] / (double)cluster_capacity(t->cluster, r);
        t->most_ns = t->busy_ns[r] > t->most_ns ? t->busy_ns[r] : t->most_ns;
        t->times[r] = 0;
    }
    t->num_used = 0;
}

static double wire_ns(int64_t all_ns, int64_t latency_ns)
{
    return all_ns > latency_ns ? (double)(all_ns - latency_ns) : 0;
}

/* Activations and gradients between the stages of all pipelines. */
static void add_messages(struct traffic *t, const struct workload *w, const struct plan *plan,
                         const struct cost *cost)
{
    for (int r = 0; r < w->num_pipelines; r++)
        for (int e = 0; e < w->num_edges; e++)
            for (int grad = 0; grad < (w->edges[e].grad ? 2 : 1); grad++) {
                const int ends[2] = {w->rank_of_stage[w->edges[e].from],
                                     w->rank_of_stage[w->edges[e].to]};
                const int from = plan->device[r * w->num_ranks + ends[grad]],
                          to = plan->device[r * w->num_ranks + ends[!grad]];
                if (from == to)
                    continue;
                const int64_t latency = cost_transfer_ns(cost, t->cluster, from, to, 0);
                const int c = w->class_of_replica[r];
                cross(t, from, to);
                add_flow(t, wire_ns(workload_edge_ns(w, c, e, grad, MB_FULL), latency) *
                                    (w->num_microbatches - 1) +
                                wire_ns(workload_edge_ns(w, c, e, grad, MB_LAST), latency));
            }
}

/* The sums of each stage's replicas. group: room for one device each. */
static void add_sums(struct traffic *t, const struct workload *w, const struct plan *plan,
                     int *group)
{
    const int n = w->num_pipelines;
    for (int s = 0; n > 1 && s < w->num_stages; s++) {
        double all = 0;
        workload_holders(w, plan, s, group);
        for (int i = 0; i < n; i++)
            cross(t, group[i], group[(i + 1) % n]);
        const int64_t latency = workload_bucket_ns(w, s, group, 0);
        int64_t bytes = 0, bucket_ns = latency; /* of the bucket before: most are of one size */
        for (int b = w->first_bucket[s]; b < w->first_bucket[s + 1]; b++) {
            if (w->buckets[b].bytes != bytes)
                bucket_ns = workload_bucket_ns(w, s, group, w->buckets[b].bytes);
            bytes = w->buckets[b].bytes;
            all += wire_ns(bucket_ns, latency);
        }
        add_flow(t, all);
    }
}

enum status workload_traffic_ns(const struct workload *w, const struct plan *plan, int64_t *ns,
                                struct err *err)
{
    const struct cluster *cluster = w->setting.cluster;
    const struct cost *cost = w->setting.cost;
    const size_t resources = (size_t)cluster_num_resources(cluster);
    struct traffic t = {.cluster = cluster,
                        .busy_ns = calloc(resources, sizeof *t.busy_ns),
                        .times = calloc(resources, sizeof *t.times),
                        .used = malloc(resources * sizeof *t.used)};
    int *group = malloc((size_t)w->num_pipelines * sizeof *group);
    enum status rc = t.busy_ns && t.times && t.used && group ? OK : err_nomem(err);
    if (rc == OK)
        add_messages(&t, w, plan, cost);
    for (int r = 0; rc == OK && w->tied_bytes > 0 && r < w->num_pipelines; r++) {
        int ends[2];
        workload_tied_devices(w, plan, r, ends);
        cross(&t, ends[0], ends[1]);
        cross(&t, ends[1], ends[0]);
        add_flow(&t, wire_ns(workload_tied_ns(w, w->class_of_replica[r]),
                             cost_allreduce_ns(cost, cluster, ends, 2, 0)));
    }
    if (rc == OK)
        add_sums(&t, w, plan, group);
    *ns = (int64_t)fmin(floor(t.most_ns * (1 - 1e-9)), (double)STEP_NS_MAX);
    free(t.busy_ns);
    free(t.times);
    free(t.used);
    free(group);
    return rc;
}

/* Each crossing of an uplink is one of the port of a device on its node, which passes no more bytes in that time. */
enum status traffic_uplink_share(const struct cluster *cluster, const struct plan *plan,
                                 double *share, struct err *err)
{
    const int all = plan->num_ranks * plan->num_pipelines;
    double port = 0; /* no device sends faster through an uplink */
    int on_node = 0, *on = calloc((size_t)cluster->num_nodes, sizeof *on);
    if (!on)
        return err_nomem(err);
    for (int i = 0; i < all; i++) {
        const struct device *device = &cluster->devices[plan->device[i]];
        port = fmax(port, device_nic(device) + 1);
        on[device->node]++;
    }
    *share = 1;
    for (int n = 0; n < cluster->num_nodes; n++) {
        const double through = port / fmax(cluster->uplink_bytes_per_s[n] - 1, 1);
        *share = fmax(*share, on[n] * fmin(through, 1));
        on_node = on[n] > on_node ? on[n] : on_node;
    }
    free(on);
    if (cluster->pod_nodes > 0) {
        const double through =
            (cluster->half_duplex ? 2 : 1) * port / fmax(cluster->pod_uplink_bytes_per_s - 1, 1);
        *share = fmax(*share, fmin(all, (double)on_node * cluster->pod_nodes * fmin(through, 1)));
    }
    return OK;
}

/* A port carries the messages of its rank, on edges and as tied tables, and the rings of its stages. No flow
 * keeps what it crosses busy for longer than the flow takes alone. */
enum status workload_traffic_most_ns(const struct workload *w, double uplink_share,
                                     int64_t allreduce_ns, int64_t *most_ns, struct err *err)
{
    int64_t most = 0, stages = 0, *rank_ns = calloc(2 * (size_t)w->num_ranks, sizeof *rank_ns);
    if (!rank_ns)
        return err_nomem(err);
    for (int c = 0; c < w->num_classes; c++) {
        for (int k = 0; k < w->num_ranks; k++)
            rank_ns[k] = w->tied_bytes > 0 ? mul_saturated(2, workload_tied_ns(w, c)) : 0;
        for (int e = 0; e < w->num_edges; e++)
            for (int grad = 0; grad < (w->edges[e].grad ? 2 : 1); grad++) {
                const int64_t full = workload_edge_ns(w, c, e, grad, MB_FULL),
                              last = workload_edge_ns(w, c, e, grad, MB_LAST),
                              ns = mul_saturated(full > last ? full : last, w->num_microbatches);
                int64_t *const from = &rank_ns[w->rank_of_stage[w->edges[e].from]],
                               *const to = &rank_ns[w->rank_of_stage[w->edges[e].to]];
                *from = add_saturated(*from, ns);
                *to = to == from ? *to : add_saturated(*to, ns);
            }
        for (int k = 0; k < w->num_ranks; k++)
            most = rank_ns[k] > most ? rank_ns[k] : most;
    }
    int64_t *const held = rank_ns + w->num_ranks; /* stages, by rank */
    for (int s = 0; s < w->num_stages; s++) {
        const int64_t of_rank = ++held[w->rank_of_stage[s]];
        stages = of_rank > stages ? of_rank : stages;
    }
    const double ns = (double)add_saturated(most, mul_saturated(allreduce_ns, stages)) *
                      uplink_share * (1 + 1e-9);
    free(rank_ns);
    *most_ns = ns < (double)STEP_NS_MAX ? (int64_t)ns + 1 : STEP_NS_MAX;
    return OK;
}
