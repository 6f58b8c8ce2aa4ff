/* partition/cluster.h - nodes, devices and the links between them.
 *
 * The network is this: a node's devices meet in a non-blocking full-duplex switch, each through a
 * port of link_bytes_per_s a direction; a node reaches the others through one uplink of
 * uplink_bytes_per_s a direction, shared by its devices. A transfer inside a node uses the sender's
 * port out and the receiver's port in; between nodes also both uplinks. It costs latency + bytes /
 * bandwidth, also for 0 bytes; transfers that meet on a port or uplink share it max-min fairly
 * (that sharing is sim/'s). */
#ifndef ELAPSE_PARTITION_CLUSTER_H
#define ELAPSE_PARTITION_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device {
    char kind[32]; /* key of a roofline or a profile: "rtx5000", "h200", "cpu" */
    int node;
    int64_t mem_bytes;       /* INT64_MAX: unlimited */
    double speed;            /* multiplies the cost source's speed; 1 is nominal */
    double link_bytes_per_s; /* its port, each direction */
    double copy_bytes_per_s; /* host <-> device, each direction */
};

/* Whether it is a host's processor, which computes in the memory that the programs have. */
bool device_is_host(const struct device *device);

/* Nearest whole ns of what takes ns at nominal speed; INT64_MAX where none holds it. */
int64_t device_ns(const struct device *device, int64_t ns);
/* How long its copy engine takes; a host has none. */
double device_copy_ns(const struct device *device, int64_t bytes);

struct cluster {
    char name[64];
    int num_nodes, num_devices;
    struct device *devices;     /* owned; devices of a node are contiguous, nodes ascending */
    double *uplink_bytes_per_s; /* owned, num_nodes; each direction */
    int64_t link_latency_ns;    /* inside a node */
    int64_t uplink_latency_ns;  /* between nodes (in place of, not on top of, link_latency_ns) */
    bool half_duplex;           /* both directions of a port or uplink share its bandwidth */
    int64_t host_op_ns;         /* host time to launch one op */
    bool host_blocking;    /* launching adds to the step (one process drives a whole pipeline and
                              waits); else a thread a device runs ahead of it */
    int64_t context_bytes; /* device memory taken before the first tensor */
};

/* Build from a CLUSTER text: a preset ("rtx5000-2x8") or NODESxDEVICES ("2x8": kind "uniform",
 * links and uplinks 16 GB/s, latency 5 us, unlimited memory). *cluster must be zeroed or cleared.
 */
enum status cluster_parse(const char *text, struct cluster *cluster, struct err *err);

/* num_nodes x devices_per_node equal devices with the defaults above. */
enum status cluster_grid(int num_nodes, int devices_per_node, struct cluster *cluster,
                         struct err *err);
/* The same as a run's processes see their machines: node n has node_ranks[n] devices, all of one
 * kind. */
enum status cluster_of_ranks(const int *node_ranks, int num_nodes, const char *kind,
                             struct cluster *cluster, struct err *err);
enum status cluster_copy(const struct cluster *src, struct cluster *dst, struct err *err);
void cluster_clear(struct cluster *cluster);

/* Refuse zero bandwidth, negative latency, memory or speed, devices out of node order; every
 * cluster that comes from a file or an option passes here once. */
enum status cluster_check(const struct cluster *cluster, struct err *err);

const char *const *cluster_preset_names(void);

/* What messages share: ports and uplinks, numbered: 2 d is the way out of device d, 2 d + 1 the way
 * in, behind those of all devices likewise of each node's uplink. With half_duplex both ways are
 * the first of the two. */
int cluster_num_resources(const struct cluster *cluster);
int64_t cluster_capacity(const struct cluster *cluster, int resource); /* bytes/s, each way */
/* The resources on the way between two devices that differ: 2, or 4 between nodes. */
int cluster_path(const struct cluster *cluster, int from, int to, int32_t path[4]);

/* Unshared time of bytes from device to device: latency + bytes / narrowest bandwidth on the way,
 * rounded up to whole ns; 0 when from == to. */
int64_t cluster_transfer_ns(const struct cluster *cluster, int from, int to, int64_t bytes);

/* Unshared ring all-reduce of bytes over n devices in the given order:
 * 2(n-1)/n * bytes / narrowest bandwidth + 2(n-1) * latency; 0 for n < 2. A node's uplink counts
 * once per ring edge that leaves it. (Thakur et al. 2005; Patarasuk and Yuan 2009.) */
int64_t cluster_allreduce_ns(const struct cluster *cluster, const int *devices, int n,
                             int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
