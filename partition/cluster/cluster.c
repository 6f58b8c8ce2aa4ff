/* Clusters: grids, checks, and the resources of a message. cluster_grid() builds every cluster.
 * CLUSTER texts and published figures: cluster_presets.c. Times: cluster_times.c. Read cluster.h
 * first. */
#include "partition/cluster/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"
#include "partition/base/units.h"
#include "partition/cluster/device_kinds.h"

#define GB 1e9

/* Defaults of the command line. */
#define DEFAULT_LINK_BYTES_PER_S (16 * GB)
#define DEFAULT_LATENCY_NS 5000

const char *const cluster_sends_names[] = {"eager", "blocking", "auto", NULL};

enum status cluster_grid(int num_nodes, int devices_per_node, struct cluster *cluster,
                         struct err *err)
{
    int64_t total;
    if (num_nodes < 1 || devices_per_node < 1 || !mul_ok(num_nodes, devices_per_node, &total) ||
        total > CLUSTER_DEVICES_MAX)
        return err_set(err, ERR_INPUT, "cluster: %dx%d devices, must be 1..%d in all", num_nodes,
                       devices_per_node, CLUSTER_DEVICES_MAX);

    enum status rc;
    struct cluster got = {.num_nodes = num_nodes,
                          .num_devices = (int)total,
                          .sends = SENDS_AUTO,
                          .overlap_share = CLUSTER_OVERLAP_SHARE,
                          .link_latency_ns = DEFAULT_LATENCY_NS,
                          .uplink_latency_ns = DEFAULT_LATENCY_NS};
    snprintf(got.name, sizeof got.name, "%dx%d", num_nodes, devices_per_node);
    got.devices = calloc((size_t)total, sizeof *got.devices);
    got.uplink_bytes_per_s = calloc((size_t)num_nodes, sizeof *got.uplink_bytes_per_s);
    if (!got.devices || !got.uplink_bytes_per_s) {
        rc = err_nomem(err);
        goto out;
    }
    for (int i = 0; i < got.num_devices; i++) {
        struct device *device = &got.devices[i];
        strcpy(device->kind, "uniform");
        device->node = i / devices_per_node;
        device->mem_bytes = INT64_MAX;
        device->speed = 1;
        device->link_bytes_per_s = DEFAULT_LINK_BYTES_PER_S;
        device->copy_bytes_per_s = DEFAULT_LINK_BYTES_PER_S;
    }
    for (int n = 0; n < num_nodes; n++)
        got.uplink_bytes_per_s[n] = DEFAULT_LINK_BYTES_PER_S;
    for (int kind = 0; kind < COLLECTIVE_COUNT; kind++)
        got.collectives[kind].link_latency_ns = got.collectives[kind].uplink_latency_ns = -1;
    *cluster = got;
    got = (struct cluster){0};
    rc = OK;
out:
    cluster_clear(&got);
    return rc;
}

bool device_is_host(const struct device *device)
{
    return strcmp(device->kind, "cpu") == 0;
}

int64_t device_ns(const struct device *device, int64_t ns)
{
    const double got = (double)ns / device->speed;
    return device->speed == 1.0 ? ns : got < 9e18 ? llround(got) : INT64_MAX;
}

double device_nic(const struct device *device)
{
    return device->nic_bytes_per_s > 0 ? device->nic_bytes_per_s : device->link_bytes_per_s;
}

double device_copy_ns(const struct device *device, int64_t bytes)
{
    return device_is_host(device) ? 0 : (double)bytes / device->copy_bytes_per_s * 1e9;
}

/* Build a grid in which every node is as large as the largest, then drop the devices too many. */
enum status cluster_of_ranks(const int *node_ranks, int num_nodes, const char *kind,
                             struct cluster *cluster, struct err *err)
{
    int most = 0, num = 0;
    for (int n = 0; n < num_nodes; n++) {
        if (node_ranks[n] < 1)
            return err_set(err, ERR_INPUT, "cluster: node %d must have at least 1 rank, got %d", n,
                           node_ranks[n]);
        most = node_ranks[n] > most ? node_ranks[n] : most;
    }
    enum status rc = cluster_grid(num_nodes, most, cluster, err);
    for (int n = 0; rc == OK && n < num_nodes; n++)
        for (int i = 0; i < node_ranks[n]; i++) {
            struct device *device = &cluster->devices[num++];
            device->node = n;
            snprintf(device->kind, sizeof device->kind, "%s", kind);
        }
    if (rc == OK && num < cluster->num_devices) {
        cluster->num_devices = num;
        snprintf(cluster->name, sizeof cluster->name, "%s on %s", COUNT_TEXT(num, "rank"),
                 COUNT_TEXT(num_nodes, "node"));
    }
    return rc;
}

enum status cluster_copy(const struct cluster *src, struct cluster *dst, struct err *err)
{
    size_t devices_size = (size_t)src->num_devices * sizeof *src->devices;
    size_t uplinks_size = (size_t)src->num_nodes * sizeof *src->uplink_bytes_per_s;
    struct cluster got = *src;
    got.devices = malloc(devices_size ? devices_size : 1);
    got.uplink_bytes_per_s = malloc(uplinks_size ? uplinks_size : 1);
    got.own_kinds = NULL;
    got.num_own_kinds = 0;
    got.faults = src->faults ? strdup(src->faults) : NULL;
    enum status rc =
        got.devices && got.uplink_bytes_per_s && !got.faults == !src->faults ? OK : err_nomem(err);
    for (int i = 0; i < src->num_own_kinds && rc == OK; i++)
        rc = cluster_keep_kind(&got, src->own_kinds[i], err);
    if (rc != OK) {
        cluster_clear(&got);
        return rc;
    }
    if (devices_size)
        memcpy(got.devices, src->devices, devices_size);
    if (uplinks_size)
        memcpy(got.uplink_bytes_per_s, src->uplink_bytes_per_s, uplinks_size);
    *dst = got;
    return OK;
}

enum status cluster_keep_kind(struct cluster *cluster, struct kind *kind, struct err *err)
{
    if (!array_extend(&cluster->own_kinds, cluster->num_own_kinds, sizeof *cluster->own_kinds))
        return err_nomem(err);
    cluster->own_kinds[cluster->num_own_kinds++] = kind_hold(kind);
    return OK;
}

void cluster_clear(struct cluster *cluster)
{
    for (int i = 0; i < cluster->num_own_kinds; i++)
        kind_release(cluster->own_kinds[i]);
    free(cluster->own_kinds);
    free(cluster->devices);
    free(cluster->uplink_bytes_per_s);
    free(cluster->faults);
    *cluster = (struct cluster){0};
}

enum status cluster_set_nodes(struct cluster *cluster, int num_nodes, struct err *err)
{
    int per_node = 0;
    while (per_node < cluster->num_devices && cluster->devices[per_node].node == 0)
        per_node++;
    if (num_nodes < 1 || per_node > CLUSTER_DEVICES_MAX / num_nodes)
        return err_set(err, ERR_INPUT, "cluster '%s': %d nodes of %d devices, limit %d devices",
                       cluster->name, num_nodes, per_node, CLUSTER_DEVICES_MAX);
    struct cluster got = *cluster;
    got.num_nodes = num_nodes;
    got.num_devices = num_nodes * per_node;
    got.devices = calloc((size_t)got.num_devices, sizeof *got.devices);
    got.uplink_bytes_per_s = calloc((size_t)num_nodes, sizeof *got.uplink_bytes_per_s);
    if (!got.devices || !got.uplink_bytes_per_s) {
        free(got.devices);
        free(got.uplink_bytes_per_s);
        return err_nomem(err);
    }
    for (int d = 0; d < got.num_devices; d++) {
        got.devices[d] = cluster->devices[d % per_node];
        got.devices[d].node = d / per_node;
    }
    for (int n = 0; n < num_nodes; n++)
        got.uplink_bytes_per_s[n] = cluster->uplink_bytes_per_s[0];
    snprintf(got.name, sizeof got.name, "%s of %.40s", COUNT_TEXT(num_nodes, "node"),
             cluster->name);
    cluster->own_kinds =
        NULL; /* got owns them and the losses, so cluster_clear() must not free them */
    cluster->faults = NULL;
    cluster->num_own_kinds = 0;
    cluster_clear(cluster);
    *cluster = got;
    return OK;
}

static bool rate_ok(double bytes_per_s)
{
    return bytes_per_s >= 1 && bytes_per_s <= 1e18; /* false for NaN too */
}

enum status share_curve_check(const struct share_curve *curve, const char *name, struct err *err)
{
    for (int i = 0; i < curve->num_points; i++) {
        const bool first = i == 0;
        if (curve->bytes[i] < 1 || !(curve->share[i] > 0 && curve->share[i] <= 1e9))
            return err_set(err, ERR_INPUT, "%s: point %d must have 1 byte and a rate at least",
                           name, i + 1);
        if (!first &&
            (curve->bytes[i] <= curve->bytes[i - 1] || curve->share[i] < curve->share[i - 1]))
            return err_set(
                err, ERR_INPUT,
                "%s: point %d must have more bytes than the one before and no lower rate", name,
                i + 1);
        if (!first && (double)curve->bytes[i] / curve->share[i] <
                          (double)curve->bytes[i - 1] / curve->share[i - 1])
            return err_set(err, ERR_INPUT, "%s: %lld bytes take less time than %lld", name,
                           (long long)curve->bytes[i], (long long)curve->bytes[i - 1]);
    }
    return OK;
}

static enum status check_curves(const struct cluster *cluster, struct err *err)
{
    char name[64];
    enum status rc = share_curve_check(&cluster->link_shares, "cluster: link", err);
    THEN(share_curve_check(&cluster->uplink_shares, "cluster: uplink", err));
    for (int kind = 0; kind < COLLECTIVE_COUNT && rc == OK; kind++) {
        const struct collective_figures *figures = &cluster->collectives[kind];
        snprintf(name, sizeof name, "cluster: %s: link", collective_name((enum collective)kind));
        rc = share_curve_check(&figures->link, name, err);
        snprintf(name, sizeof name, "cluster: %s: uplink", collective_name((enum collective)kind));
        THEN(share_curve_check(&figures->uplink, name, err));
        if (rc == OK && figures->fixed_ns < 0)
            rc =
                err_set(err, ERR_INPUT, "cluster: %s: fixed time must not be negative, got %lld ns",
                        collective_name((enum collective)kind), (long long)figures->fixed_ns);
    }
    return rc;
}

static enum status check_devices(const struct cluster *cluster, struct err *err)
{
    int node = 0;
    for (int i = 0; i < cluster->num_devices; i++) {
        const struct device *device = &cluster->devices[i];
        if (i == 0 ? device->node != 0 : device->node != node && device->node != node + 1)
            return err_set(err, ERR_INPUT,
                           "cluster: device %d is on node %d, devices must stand in "
                           "node order without gaps",
                           i, device->node);
        node = device->node;
        if (device->mem_bytes < 0)
            return err_set(err, ERR_INPUT,
                           "cluster: device %d: memory must not be negative, got "
                           "%lld bytes",
                           i, (long long)device->mem_bytes);
        if (!(device->speed >= 1e-9 && device->speed <= 1e9))
            return err_set(err, ERR_INPUT,
                           "cluster: device %d: speed must be 1e-9..1e9, got "
                           " %g",
                           i, device->speed);
        if (device->nic_bytes_per_s != 0 && !rate_ok(device->nic_bytes_per_s))
            return err_set(err, ERR_INPUT,
                           "cluster: device %d: nic must be 1..10^18 B/s, or 0 for none, got %g", i,
                           device->nic_bytes_per_s);
        if (!rate_ok(device->link_bytes_per_s) || !rate_ok(device->copy_bytes_per_s))
            return err_set(err, ERR_INPUT,
                           "cluster: device %d: bandwidth must be 1..10^18 B/s, "
                           "got %g",
                           i,
                           rate_ok(device->link_bytes_per_s) ? device->copy_bytes_per_s
                                                             : device->link_bytes_per_s);
    }
    if (node != cluster->num_nodes - 1)
        return err_set(err, ERR_INPUT, "cluster: %d nodes, but the last device is on node %d",
                       cluster->num_nodes, node);
    return OK;
}

enum status cluster_check(const struct cluster *cluster, struct err *err)
{
    if (cluster->num_nodes < 1 || cluster->num_devices < cluster->num_nodes ||
        cluster->num_devices > CLUSTER_DEVICES_MAX)
        return err_set(err, ERR_INPUT,
                       "cluster: %d devices in %d nodes, must be 1..%d and one a "
                       "node at least",
                       cluster->num_devices, cluster->num_nodes, CLUSTER_DEVICES_MAX);
    if (cluster->link_latency_ns < 0 || cluster->uplink_latency_ns < 0)
        return err_set(err, ERR_INPUT, "cluster: latency must not be negative, got %lld ns",
                       (long long)(cluster->link_latency_ns < 0 ? cluster->link_latency_ns
                                                                : cluster->uplink_latency_ns));
    if (cluster->pod_nodes < 0 || cluster->pod_latency_ns < 0 ||
        (cluster->pod_nodes > 0 && !rate_ok(cluster->pod_uplink_bytes_per_s)))
        return err_set(err, ERR_INPUT,
                       "cluster: a pod must have a node at least, pod_uplink 1..10^18 B/s and no "
                       "negative latency, got %d nodes, %g B/s, %lld ns",
                       cluster->pod_nodes, cluster->pod_uplink_bytes_per_s,
                       (long long)cluster->pod_latency_ns);
    if (cluster->host_op_ns < 0)
        return err_set(err, ERR_INPUT, "cluster: host_op_ns must not be negative, got %lld",
                       (long long)cluster->host_op_ns);
    if (cluster->message_host_ns < 0 || !(cluster->message_host_bytes_per_s >= 0))
        return err_set(
            err, ERR_INPUT,
            "cluster: message_host and message_host_rate must not be negative, got %lld ns, "
            "%g B/s",
            (long long)cluster->message_host_ns, cluster->message_host_bytes_per_s);
    if (!(cluster->overlap_share >= 0 && cluster->overlap_share <= 1))
        return err_set(err, ERR_INPUT, "cluster: overlap_share must be 0..1, got %g",
                       cluster->overlap_share);
    if (cluster->context_bytes < 0)
        return err_set(err, ERR_INPUT, "cluster: context_bytes must not be negative, got %lld",
                       (long long)cluster->context_bytes);
    const enum status rc = check_devices(cluster, err);
    if (rc != OK)
        return rc;
    for (int n = 0; n < cluster->num_nodes; n++)
        if (!rate_ok(cluster->uplink_bytes_per_s[n]))
            return err_set(err, ERR_INPUT,
                           "cluster: uplink of node %d must be 1..10^18 B/s, got %g", n,
                           cluster->uplink_bytes_per_s[n]);
    return check_curves(cluster, err);
}

int cluster_num_pods(const struct cluster *cluster)
{
    return cluster_pod(cluster, cluster->num_nodes - 1) + 1;
}

int cluster_device_pod(const struct cluster *cluster, int device)
{
    return cluster_pod(cluster, cluster->devices[device].node);
}

int64_t cluster_latency_ns(const struct cluster *cluster, int from, int to)
{
    const int a = cluster->devices[from].node, b = cluster->devices[to].node;
    return a == b                                               ? cluster->link_latency_ns
           : cluster_pod(cluster, a) == cluster_pod(cluster, b) ? cluster->uplink_latency_ns
                                                                : cluster->pod_latency_ns;
}

int cluster_num_resources(const struct cluster *cluster)
{
    const int pods = cluster->pod_nodes > 0 ? cluster_num_pods(cluster) : 0;
    return 2 * (2 * cluster->num_devices + cluster->num_nodes + pods);
}

int64_t cluster_capacity(const struct cluster *cluster, int resource)
{
    const int d = resource / 2, n = d - cluster->num_devices, nic = n - cluster->num_nodes;
    const double rate = n < 0                        ? cluster->devices[d].link_bytes_per_s
                        : nic < 0                    ? cluster->uplink_bytes_per_s[n]
                        : nic < cluster->num_devices ? device_nic(&cluster->devices[nic])
                                                     : cluster->pod_uplink_bytes_per_s;
    return (int64_t)(uint64_t)(rate + 0.5); /* rounded like in cluster_times.c */
}

int cluster_path(const struct cluster *cluster, int from, int to, int32_t path[PATH_MAX_HOPS])
{
    const int in = !cluster->half_duplex, first_node = cluster->num_devices;
    const int first_nic = first_node + cluster->num_nodes;
    const int a = cluster->devices[from].node, b = cluster->devices[to].node;
    if (a == b) {
        path[0] = 2 * from;
        path[1] = 2 * to + in;
        return 2;
    }
    path[0] = 2 * (cluster->devices[from].nic_bytes_per_s > 0 ? first_nic + from : from);
    path[1] = 2 * (first_node + a);
    path[2] = 2 * (first_node + b) + in;
    path[3] = 2 * (cluster->devices[to].nic_bytes_per_s > 0 ? first_nic + to : to) + in;
    const int first_pod = first_nic + cluster->num_devices;
    const int pod = cluster_pod(cluster, a), other = cluster_pod(cluster, b);
    if (pod == other)
        return 4;
    path[4] = 2 * (first_pod + pod);
    path[5] = 2 * (first_pod + other) + in;
    return PATH_MAX_HOPS;
}
