#include "partition/step/sites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"
#include "partition/base/units.h"

/* --- rings ------------------------------------------------------------------------------------ */

static bool same_ring(const struct ring *a, const struct ring *b)
{
    return a->n == b->n && a->inside == b->inside && a->between == b->between &&
           a->across == b->across && a->port_per_s == b->port_per_s &&
           a->uplink_per_s == b->uplink_per_s;
}

/* Add the ring of n devices to a list. False without memory. */
static bool add_ring(const struct cluster *cluster, const int *devices, int n,
                     struct ring_list *list)
{
    struct ring ring;
    cluster_ring(cluster, devices, n, &ring);
    for (int i = 0; i < list->num; i++)
        if (same_ring(&list->rings[i], &ring))
            return true;
    if (!array_extend(&list->rings, list->num, sizeof *list->rings))
        return false;
    list->rings[list->num++] = ring;
    return true;
}

/* The factor on the bytes of a ring of copies: rings that leave a node together share its
 * uplink. all: the devices of a rank, G of them a group. */
static double copies_weight(const struct cluster *cluster, const int *all, int n, int G)
{
    const struct device *first = &cluster->devices[all[0]];
    int members = 0, pod_members = 0;
    bool leaves = false, across = false;
    for (int i = 0; i < G; i++) {
        members += cluster->devices[all[i]].node == first->node;
        pod_members += cluster_device_pod(cluster, all[i]) == cluster_device_pod(cluster, all[0]);
    }
    for (int i = G; i < n; i += G) {
        leaves = leaves || cluster->devices[all[i]].node != first->node;
        across =
            across || cluster_device_pod(cluster, all[i]) != cluster_device_pod(cluster, all[0]);
    }
    const double uplink = cluster->uplink_bytes_per_s[first->node];
    const double port =
        first->nic_bytes_per_s > 0 ? first->nic_bytes_per_s : first->link_bytes_per_s;
    const double pod = across ? cluster->pod_uplink_bytes_per_s : INFINITY;
    return leaves ? fmin(fmin(port, uplink), pod) /
                        fmin(fmin(port, uplink / members), pod / pod_members)
                  : 1;
}

/* all: the devices of the rank, of which G divide something and C share samples; scratch: as many
 * entries. False without memory. */
static bool find_rank(const struct cluster *cluster, const int *all, int n, int G, int C,
                      int *scratch, struct rank_site *site)
{
    bool fits = true;
    site->together = true;
    site->least_speed = INFINITY;
    for (int i = 0; i < n; i++) {
        const struct device *device = &cluster->devices[all[i]];
        site->together = site->together && device->node == cluster->devices[all[0]].node;
        if (device->speed < site->least_speed)
            site->least_speed = device->speed;
    }
    for (int first = 0; first < n && fits; first += G)
        fits = add_ring(cluster, all + first, G, &site->sharers);
    for (int first = 0; C > 1 && first < n && fits; first += C)
        fits = add_ring(cluster, all + first, C, &site->contexts);
    site->copies_weight = copies_weight(cluster, all, n, G);
    for (int member = 0; G < n && member < G && fits; member++) {
        for (int i = 0; i < n / G; i++)
            scratch[i] = all[i * G + member];
        fits = add_ring(cluster, scratch, n / G, &site->copies);
    }
    return fits;
}

/* The longest time of a collective over these rings. */
static int64_t rings_ns(const struct ring_list *list, const struct setting *setting,
                        enum collective kind, int64_t bytes)
{
    int64_t longest = 0;
    for (int i = 0; i < list->num; i++) {
        const int64_t one = cost_ring_ns(setting, kind, &list->rings[i], bytes);
        longest = one > longest ? one : longest;
    }
    return longest;
}

int64_t sites_collective_ns(const struct sites *sites, const struct setting *setting, int rank,
                            enum collective kind, int64_t bytes)
{
    const struct rank_site *site = &sites->ranks[rank];
    const int64_t G = sites->shard_group;
    const int64_t ns = rings_ns(&site->sharers, setting, kind, bytes);
    if (kind != COLLECTIVE_REDUCE_SCATTER || site->copies.num == 0)
        return ns;
    const double share = (double)(bytes / G + (bytes % G != 0)) * site->copies_weight;
    return add_saturated(
        ns, rings_ns(&site->copies, setting, COLLECTIVE_ALLREDUCE, (int64_t)ceil(share)));
}

int64_t sites_context_ns(const struct sites *sites, const struct setting *setting, int rank,
                         enum collective kind, int64_t bytes)
{
    return rings_ns(&sites->ranks[rank].contexts, setting, kind, bytes);
}

/* --- kinds of replicas ------------------------------------------------------------------------ */

static bool devices_alike(const struct cluster *cluster, const struct device *a,
                          const struct device *b)
{
    return a == b ||
           (a->speed == b->speed && a->copy_bytes_per_s == b->copy_bytes_per_s &&
            a->link_bytes_per_s == b->link_bytes_per_s &&
            a->nic_bytes_per_s == b->nic_bytes_per_s &&
            cluster->uplink_bytes_per_s[a->node] == cluster->uplink_bytes_per_s[b->node] &&
            strcmp(a->kind, b->kind) == 0);
}

/* Whether two replicas, given by the devices of their ranks, are of one kind. */
static bool replicas_alike(const struct cluster *cluster, const int *one, const int *other, int K)
{
    const struct device *devices = cluster->devices;
    for (int k = 0; k < K; k++)
        if (!devices_alike(cluster, &devices[one[k]], &devices[other[k]]))
            return false;
    for (int k = 1; k < K; k++) {
        /* Ranks of a node are mostly neighbours, and then one look says all. */
        const int node = devices[one[k]].node, as = devices[other[k]].node;
        if (node == devices[one[k - 1]].node && as == devices[other[k - 1]].node)
            continue;
        for (int j = 0; j < k; j++)
            if ((devices[one[j]].node == node) != (devices[other[j]].node == as) ||
                (cluster_pod(cluster, devices[one[j]].node) == cluster_pod(cluster, node)) !=
                    (cluster_pod(cluster, devices[other[j]].node) == cluster_pod(cluster, as)))
                return false;
    }
    return true;
}

static void find_kinds(const struct cluster *cluster, const struct plan *plan, struct sites *sites)
{
    const int K = plan->num_ranks;
    for (int r = 0; r < plan->num_pipelines; r++) {
        const int *own = plan->device + (int64_t)r * K;
        int kind = 0;
        while (kind < sites->num_kinds &&
               !replicas_alike(cluster, plan->device + (int64_t)sites->example[kind] * K, own, K))
            kind++;
        if (kind == sites->num_kinds)
            sites->example[sites->num_kinds++] = r;
        sites->kind_of_replica[r] = kind;
    }
}

/* --- all of it -------------------------------------------------------------------------------- */

enum status sites_new(const struct cluster *cluster, const struct plan *plan, struct sites **sites,
                      struct err *err)
{
    const int K = plan->num_ranks, R = plan->num_pipelines;
    struct sites *got = calloc(1, sizeof *got);
    int *all = malloc(2 * (size_t)R * sizeof *all);
    bool fits = got && all;
    if (got) {
        *got = (struct sites){.num_ranks = K,
                              .num_pipelines = R,
                              .shard_group =
                                  plan->layout.shard_group > 1 ? plan->layout.shard_group : R,
                              .one_node = true,
                              .one_pod = true,
                              .ranks = calloc((size_t)K, sizeof *got->ranks),
                              .kind_of_replica = malloc((size_t)R * sizeof(int)),
                              .example = malloc((size_t)R * sizeof(int))};
        fits = fits && got->ranks && got->kind_of_replica && got->example;
    }
    for (int k = 0; k < K && fits; k++) {
        for (int r = 0; r < R; r++)
            all[r] = plan->device[(int64_t)r * K + k];
        fits = find_rank(cluster, all, R, got->shard_group, layout_context(&plan->layout), all + R,
                         &got->ranks[k]);
        got->one_node = got->one_node && got->ranks[k].together &&
                        cluster->devices[all[0]].node == cluster->devices[plan->device[0]].node;
        for (int r = 0; r < R; r++)
            got->one_pod = got->one_pod && cluster_device_pod(cluster, all[r]) ==
                                               cluster_device_pod(cluster, plan->device[0]);
    }
    free(all);
    if (!fits) {
        sites_free(got);
        return err_nomem(err);
    }
    find_kinds(cluster, plan, got);
    *sites = got;
    return OK;
}

void sites_free(struct sites *sites)
{
    if (!sites)
        return;
    for (int k = 0; sites->ranks && k < sites->num_ranks; k++) {
        free(sites->ranks[k].sharers.rings);
        free(sites->ranks[k].copies.rings);
        free(sites->ranks[k].contexts.rings);
    }
    free(sites->ranks);
    free(sites->kind_of_replica);
    free(sites->example);
    free(sites);
}
