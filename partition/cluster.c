/* Clusters: presets and CLUSTER texts, the checks, and the resources of a message. cluster_grid()
 * builds every cluster and apply_kind() fills in published figures of a device kind. Times:
 * cluster_times.c. Read cluster.h first. */
#include "partition/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/cost.h"
#include "partition/units.h"

#define GB 1e9
#define MAX_DEVICES (1 << 20) /* per cluster; real ones have far fewer */

/* Defaults of the command line. */
#define DEFAULT_LINK_BYTES_PER_S (16 * GB)
#define DEFAULT_LATENCY_NS 5000

/* Published figures of a node of each device kind. The device's own memory and port are in the
 * roofline table of cost.c. */
struct node_preset {
    const char *kind;
    double uplink_bytes_per_s;
    double copy_bytes_per_s;
    int64_t link_latency_ns, uplink_latency_ns;
    int64_t context_bytes;
};

/* uplink: RTX 5000 from PipeTransformer's evaluation; the others are the InfiniBand ports of
 * NVIDIA's DGX-1, DGX A100, DGX H100, DGX H200 and DGX B200 data sheets (4 x 100, 8 x 200, 8 x 400
 * Gb/s). copy: PCIe x16 of generation 3, 4 or 5 (15.754, 31.508, 63.015 GB/s, PCI-SIG). context:
 * measured on the RTX 5000 of PipeTransformer's evaluation; the others use that figure until they
 * are measured. Latencies: a typical small message over NVLink or PCIe (5 us) and over InfiniBand
 * with its software (10 us). */
static const struct node_preset node_presets[] = {
    {"rtx5000", 5 * GB,   15.754 * GB, 5000, 10000, 867LL << 20},
    {"v100",    50 * GB,  15.754 * GB, 5000, 10000, 867LL << 20},
    {"a100",    200 * GB, 31.508 * GB, 5000, 10000, 867LL << 20},
    {"h100",    400 * GB, 63.015 * GB, 5000, 10000, 867LL << 20},
    {"h200",    400 * GB, 63.015 * GB, 5000, 10000, 867LL << 20},
    {"b200",    400 * GB, 63.015 * GB, 5000, 10000, 867LL << 20},
};

static const char *const preset_names[] = {"rtx5000-2x8", "v100-1x8", "a100-1x8",     "h100-1x8",
                                           "h200-1x8",    "b200-1x8", "this-machine", NULL};

const char *const *cluster_preset_names(void)
{
    return preset_names;
}

enum status cluster_grid(int num_nodes, int devices_per_node, struct cluster *cluster,
                         struct err *err)
{
    int64_t total;
    if (num_nodes < 1 || devices_per_node < 1 || !mul_ok(num_nodes, devices_per_node, &total) ||
        total > MAX_DEVICES)
        return err_set(err, ERR_INPUT, "cluster: %dx%d devices, must be 1..%d in all", num_nodes,
                       devices_per_node, MAX_DEVICES);

    enum status rc;
    struct cluster got = {.num_nodes = num_nodes,
                          .num_devices = (int)total,
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
    *cluster = got;
    got = (struct cluster){0};
    rc = OK;
out:
    cluster_clear(&got);
    return rc;
}

/* Give every device of a grid its kind's published figures. */
static void apply_kind(struct cluster *cluster, const char *kind)
{
    const struct roofline *roofline = roofline_find(kind);
    const struct node_preset *node = NULL;
    for (size_t i = 0; i < sizeof node_presets / sizeof *node_presets; i++)
        if (strcmp(node_presets[i].kind, kind) == 0)
            node = &node_presets[i];
    for (int i = 0; i < cluster->num_devices; i++) {
        struct device *device = &cluster->devices[i];
        snprintf(device->kind, sizeof device->kind, "%s", kind);
        device->mem_bytes = roofline->mem_bytes;
        device->link_bytes_per_s = roofline->link_bytes_per_s;
        device->copy_bytes_per_s = node ? node->copy_bytes_per_s : roofline->link_bytes_per_s;
    }
    if (node) {
        for (int n = 0; n < cluster->num_nodes; n++)
            cluster->uplink_bytes_per_s[n] = node->uplink_bytes_per_s;
        cluster->link_latency_ns = node->link_latency_ns;
        cluster->uplink_latency_ns = node->uplink_latency_ns;
        cluster->context_bytes = node->context_bytes;
    }
}

/* "2x8" -> 2, 8. False if text is not such a pair. */
static bool parse_grid(const char *text, int64_t *nodes, int64_t *devices)
{
    char left[16];
    const char *x = strchr(text, 'x');
    if (!x || x == text || (size_t)(x - text) >= sizeof left)
        return false;
    memcpy(left, text, (size_t)(x - text));
    left[x - text] = '\0';
    return parse_int(left, "nodes", INT64_MIN + 1, INT64_MAX, nodes, NULL) == OK &&
           parse_int(x + 1, "devices", INT64_MIN + 1, INT64_MAX, devices, NULL) == OK;
}

static enum status unknown_cluster(const char *text, struct err *err)
{
    int num_names = (int)(sizeof preset_names / sizeof *preset_names) - 1;
    const char *near = nearest_name(text, preset_names, num_names);
    char list[128];
    enum status rc = err_set(err, ERR_INPUT, "unknown cluster '%.80s'%s%s%s", text,
                             near ? ", nearest is '" : "", near ? near : "", near ? "'" : "");
    err_hint(err, "a preset (%s), KIND-NODESxDEVICES, NODESxDEVICES, or a JSON file",
             join_names(preset_names, num_names, list, sizeof list));
    return rc;
}

enum status cluster_parse(const char *text, struct cluster *cluster, struct err *err)
{
    char kind[32] = "";
    const char *grid = text;
    int64_t nodes, devices;
    if (strcmp(text, "this-machine") == 0) {
        strcpy(kind, "cpu");
        grid = "1x2"; /* partition does no I/O; the mains set the number of cores that they find */
    } else if (!parse_grid(text, &nodes, &devices)) {
        const char *dash = strrchr(text, '-');
        if (!dash || (size_t)(dash - text) >= sizeof kind)
            return unknown_cluster(text, err);
        memcpy(kind, text, (size_t)(dash - text));
        kind[dash - text] = '\0';
        grid = dash + 1;
        if (!roofline_find(kind))
            return unknown_cluster(text, err);
    }
    if (!parse_grid(grid, &nodes, &devices))
        return unknown_cluster(text, err);
    if (nodes < 1 || devices < 1 || nodes > MAX_DEVICES || devices > MAX_DEVICES)
        return err_set(err, ERR_INPUT, "cluster '%.80s': must have 1..%d devices", text,
                       MAX_DEVICES);
    enum status rc = cluster_grid((int)nodes, (int)devices, cluster, err);
    if (rc != OK)
        return rc;
    if (kind[0])
        apply_kind(cluster, kind);
    snprintf(cluster->name, sizeof cluster->name, "%s", text);
    return OK;
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
        snprintf(cluster->name, sizeof cluster->name, "%d ranks on %d nodes", num, num_nodes);
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
    if (!got.devices || !got.uplink_bytes_per_s) {
        cluster_clear(&got);
        return err_nomem(err);
    }
    if (devices_size)
        memcpy(got.devices, src->devices, devices_size);
    if (uplinks_size)
        memcpy(got.uplink_bytes_per_s, src->uplink_bytes_per_s, uplinks_size);
    *dst = got;
    return OK;
}

void cluster_clear(struct cluster *cluster)
{
    free(cluster->devices);
    free(cluster->uplink_bytes_per_s);
    *cluster = (struct cluster){0};
}

static bool rate_ok(double bytes_per_s)
{
    return bytes_per_s >= 1 && bytes_per_s <= 1e18; /* false for NaN too */
}

enum status cluster_check(const struct cluster *cluster, struct err *err)
{
    if (cluster->num_nodes < 1 || cluster->num_devices < cluster->num_nodes ||
        cluster->num_devices > MAX_DEVICES)
        return err_set(err, ERR_INPUT,
                       "cluster: %d devices in %d nodes, must be 1..%d and one a "
                       "node at least",
                       cluster->num_devices, cluster->num_nodes, MAX_DEVICES);
    if (cluster->link_latency_ns < 0 || cluster->uplink_latency_ns < 0)
        return err_set(err, ERR_INPUT, "cluster: latency must not be negative, got %lld ns",
                       (long long)(cluster->link_latency_ns < 0 ? cluster->link_latency_ns
                                                                : cluster->uplink_latency_ns));
    if (cluster->host_op_ns < 0)
        return err_set(err, ERR_INPUT, "cluster: host_op_ns must not be negative, got %lld",
                       (long long)cluster->host_op_ns);
    if (cluster->context_bytes < 0)
        return err_set(err, ERR_INPUT, "cluster: context_bytes must not be negative, got %lld",
                       (long long)cluster->context_bytes);
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
        if (!(device->speed > 0 && device->speed <= 1e9))
            return err_set(err, ERR_INPUT,
                           "cluster: device %d: speed must be above 0 and at most "
                           "1e9, got %g",
                           i, device->speed);
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
    for (int n = 0; n < cluster->num_nodes; n++)
        if (!rate_ok(cluster->uplink_bytes_per_s[n]))
            return err_set(err, ERR_INPUT,
                           "cluster: uplink of node %d must be 1..10^18 B/s, got %g", n,
                           cluster->uplink_bytes_per_s[n]);
    return OK;
}

int cluster_num_resources(const struct cluster *cluster)
{
    return 2 * (cluster->num_devices + cluster->num_nodes);
}

int64_t cluster_capacity(const struct cluster *cluster, int resource)
{
    const int d = resource / 2, n = d - cluster->num_devices;
    const double rate =
        n < 0 ? cluster->devices[d].link_bytes_per_s : cluster->uplink_bytes_per_s[n];
    return (int64_t)(uint64_t)(rate + 0.5); /* rounded like in cluster_times.c */
}

int cluster_path(const struct cluster *cluster, int from, int to, int32_t path[4])
{
    const int in = !cluster->half_duplex, first_node = cluster->num_devices;
    const int a = cluster->devices[from].node, b = cluster->devices[to].node;
    int n = 0;
    path[n++] = 2 * from;
    if (a != b) {
        path[n++] = 2 * (first_node + a);
        path[n++] = 2 * (first_node + b) + in;
    }
    path[n++] = 2 * to + in;
    return n;
}
