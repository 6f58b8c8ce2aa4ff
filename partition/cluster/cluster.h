/* partition/cluster/cluster.h - nodes, devices and the links between them.
 *
 * The network model: the devices of a node connect to a non-blocking full-duplex switch, each
 * through a port of link_bytes_per_s per direction. The devices of a node share one uplink to the
 * other nodes, of uplink_bytes_per_s per direction. A transfer inside a node uses the sender's
 * outgoing port and the receiver's incoming port; a transfer between nodes also uses both uplinks.
 * It takes latency + bytes / bandwidth, also for 0 bytes. A device may have a port of its own to the
 * network (nic_bytes_per_s); transfers between nodes use it in place of the other port. A third level
 * is optional: pods of several nodes share an uplink to the fabric (a leaf switch, a rail group, a
 * scalable unit), and a transfer between pods also uses both of theirs. Small
 * messages may use less of the bandwidth (struct share_curve), and collectives have figures of their
 * own (struct collective_figures). The functions here give unshared times; sim/step/network.h
 * shares a port or uplink max-min fairly among its transfers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kind; /* partition/cluster/device_kinds.h */

struct device {
    char kind[32]; /* key of a roofline or a profile: "rtx5000", "h200", "cpu" */
    /* A user's own figures of that kind, kept alive by the cluster; NULL: the shipped ones, if
     * any. */
    const struct kind *own;
    int node;
    int64_t mem_bytes;       /* INT64_MAX: unlimited */
    double speed;            /* divides the times of the cost source; 1 is nominal */
    double link_bytes_per_s; /* bandwidth of the port, each direction */
    double nic_bytes_per_s;  /* its port to other nodes, each direction; 0: link_bytes_per_s */
    double copy_bytes_per_s; /* host <-> device, each direction */
};

/* Whether the device is the host's processor, which computes in host memory. */
bool device_is_host(const struct device *device);

/* Time on this device of work that takes ns at nominal speed, to the nearest ns. INT64_MAX if the
 * time overflows. */
int64_t device_ns(const struct device *device, int64_t ns);
/* Bandwidth of its port towards other nodes. */
double device_nic(const struct device *device);
/* Time of the device's copy engine for bytes from or to the host; 0 for a host. */
double device_copy_ns(const struct device *device, int64_t bytes);

/* Host memory of a node that says nothing of it: two sockets of 8 channels DDR4-3200, as in a DGX
 * A100 (AMD EPYC 7742 data sheet: 204.8 GB/s a socket). */
#define HOST_MEM_BYTES_PER_S 409.6e9

/* The time at which a rank continues after a send of its own. */
enum cluster_sends {
    SENDS_EAGER,    /* at once: a copy engine or the network sends while the rank computes */
    SENDS_BLOCKING, /* when the receiver has the message, as in Megatron-LM and DeepSpeed: time-3b */
    SENDS_AUTO      /* not given: as the model's framework has it (workload_sends_block()) */
};
extern const char *const cluster_sends_names[]; /* by value, NULL-terminated */

/* The share of the bandwidth that a message of some size gets. Between two points, the time on the
 * wire is linear in the bytes; below the first and above the last, the share is theirs. Bytes, shares
 * and times on the wire ascend. Without points the share is 1. */
#define CURVE_POINTS_MAX 16
struct share_curve {
    int num_points;
    int64_t bytes[CURVE_POINTS_MAX];
    double share[CURVE_POINTS_MAX];
};
/* The share of a message of this size. */
double share_curve_at(const struct share_curve *curve, int64_t bytes);
/* ERR_INPUT unless the curve ascends as it must. name is for errors: "cluster.link". */
enum status share_curve_check(const struct share_curve *curve, const char *name, struct err *err);

/* Collectives over n devices. `bytes` is the size of the whole tensor: what an all-reduce sums, what
 * a reduce-scatter sums and leaves divided, what an all-gather leaves on every device, and what each
 * device has before an all-to-all, in which it sends (n-1)/n of it.
 *
 * Of each: value, name in files and answers, and how often a ring of the devices passes the whole
 * tensor on, in n-1 steps each time. 0: no ring, each device sends to each other one at once. */
#define COLLECTIVES(ROW)                                                                           \
    ROW(COLLECTIVE_ALLREDUCE, "all-reduce", 2)                                                     \
    ROW(COLLECTIVE_REDUCE_SCATTER, "reduce-scatter", 1)                                            \
    ROW(COLLECTIVE_ALLGATHER, "all-gather", 1)                                                     \
    ROW(COLLECTIVE_ALLTOALL, "all-to-all", 0)

#define COLLECTIVE_VALUE(value, name, passes) value,
enum collective { COLLECTIVES(COLLECTIVE_VALUE) COLLECTIVE_COUNT };
const char *collective_name(enum collective kind);
int collective_passes(enum collective kind); /* of a ring; 0: no ring */

/* The rates and latencies of a kind of collective, which differ from those of messages. */
struct collective_figures {
    struct share_curve link;       /* of the ports inside a node, by bytes of the whole tensor */
    struct share_curve pair, quad; /* the same for rings of 2 or 3 and of 4 to 7 devices; without
                                      points: link */
    struct share_curve uplink;     /* of uplinks and ports to the network */
    int64_t link_latency_ns;       /* of a step of the ring inside a node; negative: a message's */
    int64_t uplink_latency_ns;     /* of a step in a ring between nodes; negative: a message's */
    int64_t fixed_ns;              /* once per collective */
};

/* 20 of an H800's 132 SMs: DeepSeek-V3 Technical Report, 2024, section 3.2.2. */
#define CLUSTER_OVERLAP_SHARE (20.0 / 132)

struct cluster {
    char name[64];
    int num_nodes, num_devices;
    struct device *devices;     /* owned; devices of a node are contiguous, nodes ascending */
    double *uplink_bytes_per_s; /* owned, num_nodes; each direction */
    int64_t link_latency_ns;    /* inside a node */
    int64_t uplink_latency_ns;  /* between nodes; replaces link_latency_ns */
    int pod_nodes; /* nodes [i * pod_nodes, (i + 1) * pod_nodes) are a pod; 0: no pods */
    double pod_uplink_bytes_per_s; /* of a pod, each direction */
    int64_t pod_latency_ns;        /* between pods; replaces uplink_latency_ns */
    bool half_duplex;              /* both directions of a port or uplink share its bandwidth */
    int64_t host_op_ns;            /* host time to launch one op */
    bool host_blocking;      /* true: one process launches the ops of a whole pipeline and waits, so
                              launching adds to the step. false: a thread per device runs ahead */
    int64_t message_host_ns; /* processor time of a message on each of its ends (time-3c) */
    double message_host_bytes_per_s; /* at which it grows with the bytes; 0: it does not */
    int64_t context_bytes;           /* device memory in use before the first tensor */
    double host_mem_bytes_per_s;     /* of a node's host memory; 0: HOST_MEM_BYTES_PER_S */
    double price_per_hour;           /* of a device, in the user's currency; 0: not given */
    double power_watts;              /* of a device with its share of the node; 0: not given */
    enum cluster_sends sends;
    /* of a device: what messages beside an overlapped F and B take (time-1b) */
    double overlap_share;
    struct share_curve link_shares, uplink_shares; /* of messages inside a node and between nodes */
    struct collective_figures collectives[COLLECTIVE_COUNT];
    /* owned: how it loses nodes, a JSON object of the keys of `sim --faults`; NULL: not given. Only
     * the simulator of losses reads it */
    char *faults;
    struct kind **own_kinds; /* owned references: of devices with figures of a user's own */
    int num_own_kinds;
};

/* Keep a user's kind as long as the cluster and its copies. The kind is held, not taken over. */
enum status cluster_keep_kind(struct cluster *cluster, struct kind *kind, struct err *err);

/* Build from a CLUSTER text: a machine, with a number of nodes or without ("dgx-h100",
 * "dgx-h100-16"), KIND-NODESxDEVICES ("rtx5000-2x8"), or NODESxDEVICES ("2x8": kind "uniform", links
 * and uplinks 16 GB/s, latency 5 us, unlimited memory). *cluster must be zeroed or cleared. */
enum status cluster_parse(const char *text, struct cluster *cluster, struct err *err);
/* cluster_parse() of a text that may also name the user's kind `own` (held; NULL: none). */
enum status cluster_parse_own(const char *text, struct kind *own, struct cluster *cluster,
                              struct err *err);

/* The pod of a node; 0 without pods. */
static inline int cluster_pod(const struct cluster *cluster, int node)
{
    return cluster->pod_nodes > 0 ? node / cluster->pod_nodes : 0;
}
/* The pod of a device. */
int cluster_device_pod(const struct cluster *cluster, int device);
int cluster_num_pods(const struct cluster *cluster);
/* The latency of a message between two devices. */
int64_t cluster_latency_ns(const struct cluster *cluster, int from, int to);

/* Build num_nodes x devices_per_node equal devices with the defaults of cluster_parse(). */
#define CLUSTER_DEVICES_MAX (1 << 20) /* real clusters have far fewer */
enum status cluster_grid(int num_nodes, int devices_per_node, struct cluster *cluster,
                         struct err *err);
/* Make the cluster num_nodes nodes like its first one. Its name says so. *cluster is untouched on
 * failure. ERR_INPUT: more devices than cluster_parse() allows. */
enum status cluster_set_nodes(struct cluster *cluster, int num_nodes, struct err *err);
/* Build the cluster that a run's processes see: node n has node_ranks[n] devices, all of one kind,
 * with the defaults of cluster_parse(). */
enum status cluster_of_ranks(const int *node_ranks, int num_nodes, const char *kind,
                             struct cluster *cluster, struct err *err);
enum status cluster_copy(const struct cluster *src, struct cluster *dst, struct err *err);
void cluster_clear(struct cluster *cluster);

/* Refuse zero bandwidth, negative latency, memory or speed, and devices out of node order
 * (ERR_INPUT). Every cluster from a file or an option is checked once. */
enum status cluster_check(const struct cluster *cluster, struct err *err);

const char *const *cluster_preset_names(void);

/* Published figures of a machine, or of a node of devices of a kind. */
struct machine {
    const char *name;          /* "dgx-a100"; NULL: any node of these devices */
    const char *kind;          /* of its devices */
    int devices;               /* of a node; 0: any number */
    double uplink_bytes_per_s; /* of a node, each direction */
    double nic_bytes_per_s;    /* of a device; 0: they share the uplink */
    double copy_bytes_per_s;
    double
        message_share; /* of a port, that one message inside a node reaches where links join pairs of devices; 0:
                             all of it */
    int64_t link_latency_ns, uplink_latency_ns;
    int64_t mem_bytes; /* of a device; 0: the roofline's */
    int64_t context_bytes;
    const char *source, *copy_source;
    int pod_nodes;           /* of larger clusters, whose pods share an uplink; 0: none */
    double oversubscription; /* uplinks of a pod's nodes over the pod's own */
};
const struct machine *machine_find(const char *name); /* NULL when unknown */
/* The network of a node of such devices, where it is published; kind may be NULL. */
const struct machine *kind_node(const struct kind *kind);
/* Machine i of all, from 0; NULL after the last. */
const struct machine *machine_at(int i);
/* The machine of a CLUSTER text, with a number of nodes or without; NULL: none. */
const struct machine *machine_of_text(const char *text);

/* Collectives of a device kind as measured by others, as shares of the port and of the uplink. */
struct collective_source {
    const char *kind;
    const char *rings_of;          /* kind whose rings of 2 and 4 devices it has; NULL: none */
    double link[COLLECTIVE_COUNT]; /* of 1 GiB over 8 devices */
    double uplink;
    int64_t link_latency_ns, uplink_latency_ns; /* of a step; negative: a message's */
    int64_t fixed_ns[COLLECTIVE_COUNT];
    const char *source, *others; /* of the all-reduce; of the other kinds, NULL: the same source */
};
/* The source of the figures of one kind of collective. */
const char *collective_source_text(const struct collective_source *source, enum collective kind);
/* The kind whose collectives a cluster has: that with the slowest published port, because it holds up
 * a ring. NULL where a kind is not published. */
const struct kind *cluster_collectives_kind(const struct cluster *cluster);
/* Give each device whose kind has published figures its memory, port and copy engine, and with
 * `network` its port to the network; a node gets the uplink of its first such device's machine.
 * Latencies and context are the largest of the kinds' machines. Collectives are those of
 * cluster_collectives_kind(). Devices of other kinds keep what they have. */
void cluster_use_kinds(struct cluster *cluster, bool network);

/* A resource is one direction of a port or uplink; messages share it. Device d has resource 2 d
 * (out) and 2 d + 1 (in). Node n's uplink has 2 (num_devices + n) and the next. After them, the
 * ports to the network stand like the devices, and then pods. With half_duplex both directions use
 * the even one. */
int cluster_num_resources(const struct cluster *cluster);
int64_t cluster_capacity(const struct cluster *cluster, int resource); /* bytes per second */
/* Write the resources that a message between two different devices uses, and return their number:
 * 2, 4 between nodes, 6 between pods. */
enum { PATH_MAX_HOPS = 6 };
int cluster_path(const struct cluster *cluster, int from, int to, int32_t path[PATH_MAX_HOPS]);

/* Unshared time of a message between two devices: latency + bytes / (share x lowest bandwidth on the
 * path), rounded up to whole ns; 0 if from == to. */
int64_t cluster_transfer_ns(const struct cluster *cluster, int from, int to, int64_t bytes);

/* Unshared time of a collective over n devices in the given order; 0 for n < 2. A ring of n-1 steps
 * of bytes / n each, an all-reduce two of them: fixed + (n-1)/n * bytes / lowest bandwidth +
 * (n-1) * latency (Thakur et al. 2005; Patarasuk and Yuan 2009). The ring edges that leave a node
 * share its uplink, those that leave a pod that of the pod, and use the ports to the network of all
 * devices of the group on it, because NCCL makes as many rings. In an all-to-all, each device sends
 * to all others at once: fixed + one latency + what the busiest port or uplink takes. */
int64_t cluster_collective_ns(const struct cluster *cluster, enum collective kind,
                              const int *devices, int n, int64_t bytes);

/* The properties of a ring of n devices that the time of a collective depends on, for any size. */
struct ring {
    int n;
    bool inside, between, across;    /* edges inside nodes; between nodes; between pods */
    double port_per_s, uplink_per_s; /* the lowest rates of these edges, without any share */
};
/* Set *ring to that of n devices in the given order. O(n). */
void cluster_ring(const struct cluster *cluster, const int *devices, int n, struct ring *ring);
/* cluster_collective_ns() of a ring's devices, except for an all-to-all. */
int64_t cluster_ring_ns(const struct cluster *cluster, enum collective kind,
                        const struct ring *ring, int64_t bytes);

/* The all-reduce of cluster_collective_ns(). */
int64_t cluster_allreduce_ns(const struct cluster *cluster, const int *devices, int n,
                             int64_t bytes);

#ifdef __cplusplus
}
#endif
