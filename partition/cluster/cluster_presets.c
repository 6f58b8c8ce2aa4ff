/* Published figures of machines, and CLUSTER texts. apply_machine() fills them
 * into a grid. Every figure names its source; `elapse cluster` and `elapse devices` print them. */
#include "partition/cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "partition/cluster/device_kinds.h"

#define GB 1e9
#define GBIT 0.125e9

/* The figures of machines are built as those of device kinds (profiles/devices): copy is PCIe x16
 * of generation 3, 4 or 5 (PCI-SIG). Latencies: a typical small message over NVLink or PCIe (5 us)
 * and over InfiniBand with its software (10 us), over EFA 20 us (round numbers). */
#define PCIE3 .copy_bytes_per_s = 15.754 * GB, .copy_source = "PCI-SIG: PCIe 3.0 x16"
#define PCIE4 .copy_bytes_per_s = 31.508 * GB, .copy_source = "PCI-SIG: PCIe 4.0 x16"
#define PCIE5 .copy_bytes_per_s = 63.015 * GB, .copy_source = "PCI-SIG: PCIe 5.0 x16"
#define USUAL .link_latency_ns = 5000, .uplink_latency_ns = 10000, .context_bytes = 867LL << 20
#define EFA .link_latency_ns = 5000, .uplink_latency_ns = 20000, .context_bytes = 867LL << 20
#define NETWORK(ports, gbit, per_device)                                                           \
    .uplink_bytes_per_s = (ports) * (gbit)*GBIT, .nic_bytes_per_s = (per_device)*GBIT

/* clang-format off */
static const struct machine machines[] = {
    {.name = "dgx-1-v100", .kind = "v100", .devices = 8, NETWORK(4, 100, 100), PCIE3, USUAL,
     .source = "NVIDIA DGX-1 data sheet: 8 V100, 4 x EDR InfiniBand"},
    {.name = "dgx-a100", .kind = "a100", .devices = 8, NETWORK(8, 200, 200), PCIE4, USUAL,
     .source = "NVIDIA DGX A100 data sheet: 8 A100 80 GB, 8 x 200 Gb/s HDR InfiniBand"},
    {.name = "dgx-h100", .kind = "h100", .devices = 8, NETWORK(8, 400, 400), PCIE5, USUAL,
     .source = "NVIDIA DGX H100 data sheet: 8 H100, 8 x 400 Gb/s NDR InfiniBand"},
    {.name = "dgx-h200", .kind = "h200", .devices = 8, NETWORK(8, 400, 400), PCIE5, USUAL,
     .source = "NVIDIA DGX H200 data sheet: 8 H200, 8 x 400 Gb/s NDR InfiniBand"},
    {.name = "dgx-b200", .kind = "b200", .devices = 8, NETWORK(8, 400, 400), PCIE5, USUAL,
     .source = "NVIDIA DGX B200 data sheet: 8 B200, 8 x 400 Gb/s NDR InfiniBand"},
    {.name = "p3dn.24xlarge", .kind = "v100", .devices = 8, NETWORK(1, 100, 0), PCIE3, EFA,
     .source = "Amazon EC2 P3 instances: 8 V100 32 GB, 100 Gb/s"},
    {.name = "p4d.24xlarge", .kind = "a100", .devices = 8, NETWORK(4, 100, 100), PCIE4, EFA,
     .mem_bytes = 40LL << 30,
     .source = "Amazon EC2 P4 instances: 8 A100 40 GB, 4 x 100 Gb/s EFA"},
    {.name = "p4de.24xlarge", .kind = "a100", .devices = 8, NETWORK(4, 100, 100), PCIE4, EFA,
     .source = "Amazon EC2 P4 instances: 8 A100 80 GB, 4 x 100 Gb/s EFA"},
    {.name = "p5.48xlarge", .kind = "h100", .devices = 8, NETWORK(32, 100, 400), PCIE5, EFA,
     .source = "Amazon EC2 P5 instances: 8 H100, 3200 Gb/s EFA"},
    {.name = "p5en.48xlarge", .kind = "h200", .devices = 8, NETWORK(16, 200, 400), PCIE5, EFA,
     .source = "Amazon EC2 P5 instances: 8 H200, 3200 Gb/s EFA"},
    {.name = "a2-ultragpu-8g", .kind = "a100", .devices = 8, NETWORK(1, 100, 0), PCIE4, EFA,
     .source = "Google Cloud A2 Ultra machine type: 8 A100 80 GB, 100 Gb/s"},
    {.name = "a3-highgpu-8g", .kind = "h100", .devices = 8, NETWORK(4, 200, 200), PCIE5, EFA,
     .source = "Google Cloud A3 High machine type: 8 H100, 4 x 200 Gb/s for GPUs"},
    {.name = "nd96amsr-a100-v4", .kind = "a100", .devices = 8, NETWORK(8, 200, 200), PCIE4, USUAL,
     .source = "Azure NDm A100 v4 series: 8 A100 80 GB, 8 x 200 Gb/s HDR InfiniBand"},
    {.name = "nd96isr-h100-v5", .kind = "h100", .devices = 8, NETWORK(8, 400, 400), PCIE5, USUAL,
     .source = "Azure ND H100 v5 series: 8 H100, 8 x 400 Gb/s NDR InfiniBand"},
    {.name = "gb200-nvl72", .kind = "gb200", .devices = 72, NETWORK(72, 400, 400), .copy_bytes_per_s = 225 * GB,
        .copy_source = "NVIDIA brief: half of NVLink-C2C a GPU", USUAL,
     .source = "NVIDIA GB200 NVL72: one NVLink domain of 72 GPUs, ConnectX-7 of 400 Gb/s each"},
    {.name = "gb300-nvl72", .kind = "gb300", .devices = 72, NETWORK(72, 800, 800), .copy_bytes_per_s = 225 * GB,
        .copy_source = "NVIDIA brief: half of NVLink-C2C a GPU", USUAL,
     .source = "NVIDIA GB300 NVL72: one NVLink domain of 72 GPUs, ConnectX-8 of 800 Gb/s each"},
    {.name = "dgx-b300", .kind = "b300", .devices = 8, NETWORK(8, 800, 800), PCIE5, USUAL,
     .source = "NVIDIA DGX B300 data sheet: 8 B300, 8 x 800 Gb/s ConnectX-8"},
    {.name = "hgx-h20", .kind = "h20", .devices = 8, NETWORK(8, 400, 400), PCIE5, USUAL,
     .source = "8 H20; network as a DGX H100: 8 x 400 Gb/s"},
    {.name = "hgx-h800", .kind = "h800", .devices = 8, NETWORK(8, 400, 400), PCIE5, USUAL,
     .source = "DeepSeek-V3 report, 2024: 8 H800, 8 x 400 Gb/s InfiniBand"},
    {.name = "a2-highgpu-8g", .kind = "a100-40gb", .devices = 8, NETWORK(1, 100, 0), PCIE4, EFA,
     .source = "Google Cloud A2 Standard machine type: 8 A100 40 GB, 100 Gb/s"},
    {.name = "g2-standard-96", .kind = "l4", .devices = 8, NETWORK(1, 100, 0), PCIE4, EFA,
     .source = "Google Cloud G2 machine type: 8 L4, 100 Gb/s"},
    {.name = "g6.48xlarge", .kind = "l4", .devices = 8, NETWORK(1, 100, 0), PCIE4, EFA,
     .source = "Amazon EC2 G6 instances: 8 L4, 100 Gb/s"},
    {.name = "g6e.48xlarge", .kind = "l40s", .devices = 8, NETWORK(1, 400, 0), PCIE4, EFA,
     .source = "Amazon EC2 G6e instances: 8 L40S, 400 Gb/s"},
    {.name = "g4dn.metal", .kind = "t4", .devices = 8, NETWORK(1, 100, 0), PCIE3, EFA,
     .source = "Amazon EC2 G4 instances: 8 T4, 100 Gb/s"},
    {.name = "nd96isr-h200-v5", .kind = "h200", .devices = 8, NETWORK(8, 400, 400), PCIE5, USUAL,
     .source = "Azure ND H200 v5 series: 8 H200, 8 x 400 Gb/s NDR InfiniBand"},
    {.name = "nd96isr-mi300x-v5", .kind = "mi300x", .devices = 8, NETWORK(8, 400, 400), PCIE5, USUAL,
     .source = "Azure ND MI300X v5 series: 8 MI300X, 8 x 400 Gb/s NDR InfiniBand"},
    {.name = "grand-teton", .kind = "h100", .devices = 8, NETWORK(8, 400, 400), PCIE5, USUAL, .pod_nodes = 384, .oversubscription = 7,
     .source = "Llama 3 report, 2024, section 3.3.1: 8 H100, 400 Gb/s RoCE each; pods of 3,072 GPUs, 1:7 between pods"},
};
enum { NUM_MACHINES = sizeof machines / sizeof machines[0] };

/* Presets of help texts and checks. */
static const char *const preset_names[] = {
    "rtx5000-2x8", "v100-1x8", "a100-1x8", "h100-1x8", "h200-1x8", "b200-1x8", "dgx-a100",
    "dgx-h100", "dgx-b200", "p4d.24xlarge", "p5.48xlarge", "this-machine", NULL};

/* clang-format on */

const char *const *cluster_preset_names(void)
{
    return preset_names;
}

const struct machine *machine_at(int i)
{
    return i < NUM_MACHINES ? &machines[i] : NULL;
}

const struct machine *machine_find(const char *name)
{
    char typed[64], own[64];
    const bool fits = name_fold(name, typed, sizeof typed);
    for (int i = 0; fits && i < NUM_MACHINES; i++)
        if (name_fold(machines[i].name, own, sizeof own) && strcmp(own, typed) == 0)
            return &machines[i];
    return NULL;
}

const struct machine *kind_node(const struct kind *kind)
{
    return kind && kind->node.uplink_bytes_per_s > 0 ? &kind->node : NULL;
}

const char *collective_source_text(const struct collective_source *source, enum collective kind)
{
    return kind == COLLECTIVE_ALLREDUCE || !source->others ? source->source : source->others;
}

/* Times of all-reduces over 2 and 4 devices of a node: medians of Vidur's profiles, which end at 64
 * MiB (github.com/microsoft/vidur, data/profiling/network/{a100,h100}_dgx/all_reduce.csv, 2024).
 * Below 16 MiB they are the host's time to launch. 1 GiB: 208 GB/s of two A100 (nccl-tests issue
 * 178), and for four the share of eight. A reduce-scatter and an all-gather, its halves, have its
 * shares. */
#define MIB (1LL << 20)
/* clang-format off */
static const struct ring_times {
    const char *kind;
    int devices, num_points;
    int64_t bytes[5];
    double us[5];
} ring_times[] = {
    {"a100", 2, 4, {16 * MIB, 32 * MIB, 64 * MIB, 1024 * MIB}, {139, 246, 430, 5180}},
    {"a100", 4, 5, {16 * MIB, 20 * MIB, 32 * MIB, 64 * MIB, 1024 * MIB}, {200, 222, 319, 603, 7004}},
    {"h100", 2, 1, {64 * MIB}, {245}},
    {"h100", 4, 1, {64 * MIB}, {318}},
};
/* clang-format on */

static struct share_curve constant_share(double share)
{
    return (struct share_curve){.num_points = 1, .bytes = {1}, .share = {share}};
}

/* The measured shares of the link rate that rings of N devices of a kind reach. No points: none was
 * measured. */
static struct share_curve measured_shares(const struct collective_source *source, int devices)
{
    struct share_curve curve = {0};
    const struct roofline *roofline = source->rings_of ? roofline_find(source->rings_of) : NULL;
    for (size_t i = 0; roofline && i < sizeof ring_times / sizeof ring_times[0]; i++) {
        const struct ring_times *t = &ring_times[i];
        const double steps = 2 * (devices - 1);
        if (strcmp(t->kind, source->rings_of) != 0 || t->devices != devices)
            continue;
        curve.num_points = t->num_points;
        for (int k = 0; k < t->num_points; k++) {
            const double wire_ns = t->us[k] * 1e3 - (double)source->fixed_ns[COLLECTIVE_ALLREDUCE] -
                                   steps * (double)source->link_latency_ns;
            curve.bytes[k] = t->bytes[k];
            curve.share[k] =
                (double)t->bytes[k] * steps / devices / wire_ns * 1e9 / roofline->link_bytes_per_s;
        }
    }
    return curve;
}

/* Give the cluster the collectives of a kind, if there are figures. */
static void use_collectives(const struct kind *device_kind, struct cluster *cluster)
{
    const struct collective_source *source = &device_kind->collectives;
    for (int kind = 0; source->link[0] > 0 && kind < COLLECTIVE_COUNT; kind++) {
        struct collective_figures *figures = &cluster->collectives[kind];
        *figures = (struct collective_figures){.link = constant_share(source->link[kind]),
                                               .uplink = constant_share(source->uplink),
                                               .link_latency_ns = source->link_latency_ns,
                                               .uplink_latency_ns = source->uplink_latency_ns,
                                               .fixed_ns = source->fixed_ns[kind]};
        if (collective_passes((enum collective)kind) == 0)
            continue;
        figures->pair = measured_shares(source, 2);
        figures->quad = measured_shares(source, 4);
    }
}

/* The figures of a device that its kind and its node's machine publish. machine may be NULL. */
static void use_published(struct device *device, const struct kind *kind,
                          const struct machine *machine)
{
    device->mem_bytes = machine && machine->mem_bytes ? machine->mem_bytes : kind->roof.mem_bytes;
    device->link_bytes_per_s = kind->roof.link_bytes_per_s;
    device->copy_bytes_per_s = machine ? machine->copy_bytes_per_s : kind->roof.link_bytes_per_s;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void use_message_share(struct cluster *cluster, const struct machine *machine)
{
    if (machine->message_share > 0)
        cluster->link_shares = constant_share(machine->message_share);
}

/* Give every device of a grid its kind's published figures. machine may be NULL. */
static void apply_machine(struct cluster *cluster, const struct kind *kind,
                          const struct machine *machine)
{
    for (int i = 0; i < cluster->num_devices; i++) {
        struct device *device = &cluster->devices[i];
        snprintf(device->kind, sizeof device->kind, "%s", kind->name);
        device->own = kind_find(kind->name) == kind ? NULL : kind;
        use_published(device, kind, machine);
        device->nic_bytes_per_s = machine ? machine->nic_bytes_per_s : 0;
    }
    if (machine) {
        for (int n = 0; n < cluster->num_nodes; n++)
            cluster->uplink_bytes_per_s[n] = machine->uplink_bytes_per_s;
        use_message_share(cluster, machine);
        cluster->link_latency_ns = machine->link_latency_ns;
        cluster->uplink_latency_ns = machine->uplink_latency_ns;
        cluster->context_bytes = machine->context_bytes;
    }
    if (machine && machine->pod_nodes > 0 && cluster->num_nodes > machine->pod_nodes) {
        cluster->pod_nodes = machine->pod_nodes;
        cluster->pod_uplink_bytes_per_s =
            machine->pod_nodes * machine->uplink_bytes_per_s / machine->oversubscription;
        cluster->pod_latency_ns = machine->uplink_latency_ns;
    }
    use_collectives(kind, cluster);
}

const struct kind *cluster_collectives_kind(const struct cluster *cluster)
{
    const struct kind *slowest = NULL;
    for (int i = 0; i < cluster->num_devices; i++) {
        const struct device *device = &cluster->devices[i];
        if (i > 0 && strcmp(device->kind, device[-1].kind) == 0)
            continue;
        const struct kind *kind = kind_of_device(device);
        if (!kind)
            return NULL;
        if (!slowest || kind->roof.link_bytes_per_s < slowest->roof.link_bytes_per_s)
            slowest = kind;
    }
    return slowest;
}

void cluster_use_kinds(struct cluster *cluster, bool network)
{
    bool first = true;
    for (int i = cluster->num_devices - 1; i >= 0; i--) {
        struct device *device = &cluster->devices[i];
        const struct kind *kind = kind_of_device(device);
        const struct machine *machine = kind_node(kind);
        if (kind)
            use_published(device, kind, machine);
        if (!machine || !network)
            continue;
        use_message_share(cluster, machine);
        device->nic_bytes_per_s = machine->nic_bytes_per_s;
        cluster->uplink_bytes_per_s[device->node] = machine->uplink_bytes_per_s;
        cluster->link_latency_ns =
            larger(first ? 0 : cluster->link_latency_ns, machine->link_latency_ns);
        cluster->uplink_latency_ns =
            larger(first ? 0 : cluster->uplink_latency_ns, machine->uplink_latency_ns);
        cluster->context_bytes = larger(cluster->context_bytes, machine->context_bytes);
        first = false;
    }
    const struct kind *kind = cluster_collectives_kind(cluster);
    if (kind)
        use_collectives(kind, cluster);
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

/* "dgx-h100", "dgx-h100-16". NULL if text is no machine. */
static const struct machine *parse_machine(const char *text, int64_t *nodes)
{
    const struct machine *machine = machine_find(text);
    const char *dash = strrchr(text, '-');
    char name[32];
    *nodes = 1;
    if (machine || !dash || (size_t)(dash - text) >= sizeof name)
        return machine;
    memcpy(name, text, (size_t)(dash - text));
    name[dash - text] = '\0';
    machine = machine_find(name);
    return machine && parse_int(dash + 1, "nodes", INT64_MIN + 1, INT64_MAX, nodes, NULL) == OK
               ? machine
               : NULL;
}

const struct machine *machine_of_text(const char *text)
{
    int64_t nodes;
    return parse_machine(text, &nodes);
}

/* Whether a text is KIND-N, KINDxN, NxKIND or N-KIND, which others read as N devices in one
 * node. */
static bool kind_and_count(const char *text, char kind[32], int64_t *devices)
{
    char first[32], second[32];
    const char *mark = strrchr(text, '-');
    if (!mark)
        mark = strrchr(text, 'x');
    if (!mark || mark - text >= (ptrdiff_t)sizeof first || strlen(mark + 1) >= sizeof second)
        return false;
    snprintf(first, sizeof first, "%.*s", (int)(mark - text), text);
    snprintf(second, sizeof second, "%s", mark + 1);
    const bool kind_first = kind_find_typed(first) != NULL;
    const struct kind *found = kind_find_typed(kind_first ? first : second);
    if (found)
        snprintf(kind, sizeof first, "%s", found->name);
    return found && parse_int(kind_first ? second : first, "devices", 1, CLUSTER_DEVICES_MAX,
                              devices, NULL) == OK;
}

static enum status unknown_cluster(const char *text, struct err *err)
{
    const char *all[sizeof preset_names / sizeof *preset_names + NUM_MACHINES];
    int num = 0;
    for (int i = 0; preset_names[i]; i++)
        all[num++] = preset_names[i];
    for (int i = 0; i < NUM_MACHINES; i++)
        all[num++] = machines[i].name;
    char kind[32];
    int64_t devices;
    if (kind_and_count(text, kind, &devices)) {
        const enum status rc = err_set(err, ERR_INPUT, "unknown cluster '%.80s'", text);
        err_hint(err, "%lld devices of kind %s in one node are %s-1x%lld", (long long)devices, kind,
                 kind, (long long)devices);
        return rc;
    }
    const char *near = nearest_name(text, all, num);
    enum status rc = err_set(err, ERR_INPUT, "unknown cluster '%.80s'%s%s%s", text,
                             near ? ", nearest is '" : "", near ? near : "", near ? "'" : "");
    err_hint(err, "a machine with or without its number of nodes (dgx-a100, p4d.24xlarge-4; "
                  "'elapse cluster' lists them), KIND-NODESxDEVICES (a100-2x8), NODESxDEVICES, "
                  "this-machine, a JSON file, or its object");
    return rc;
}

enum status cluster_parse(const char *text, struct cluster *cluster, struct err *err)
{
    return cluster_parse_own(text, NULL, cluster, err);
}

enum status cluster_parse_own(const char *text, struct kind *own, struct cluster *cluster,
                              struct err *err)
{
    char name[32] = "cpu";
    const struct kind *kind = NULL;
    const char *grid = text;
    int64_t nodes, devices = 0;
    const struct machine *machine = parse_machine(text, &nodes);
    if (machine) {
        kind = kind_find(machine->kind);
        devices = machine->devices;
    } else if (strcmp(text, "this-machine") == 0) {
        kind = kind_find(name);
        grid = "1x2"; /* partition does no I/O; the mains set the number of cores that they find */
    } else if (!parse_grid(text, &nodes, &devices)) {
        const char *dash = strrchr(text, '-');
        if (!dash || (size_t)(dash - text) >= sizeof name)
            return unknown_cluster(text, err);
        memcpy(name, text, (size_t)(dash - text));
        name[dash - text] = '\0';
        grid = dash + 1;
        kind = own && strcmp(own->name, name) == 0 ? own : kind_find_typed(name);
        if (!kind)
            return unknown_cluster(text, err);
    }
    if (!machine && !parse_grid(grid, &nodes, &devices))
        return unknown_cluster(text, err);
    if (nodes < 1 || devices < 1 || nodes > CLUSTER_DEVICES_MAX || devices > CLUSTER_DEVICES_MAX)
        return err_set(err, ERR_INPUT, "cluster '%.80s': must have 1..%d devices", text,
                       CLUSTER_DEVICES_MAX);
    struct cluster got = {0};
    enum status rc = cluster_grid((int)nodes, (int)devices, &got, err);
    if (rc == OK && own && kind == own)
        rc = cluster_keep_kind(&got, own, err);
    if (rc != OK) {
        cluster_clear(&got);
        return rc;
    }
    if (kind)
        apply_machine(&got, kind, machine ? machine : kind_node(kind));
    snprintf(got.name, sizeof got.name, "%s", text);
    *cluster = got;
    return OK;
}
