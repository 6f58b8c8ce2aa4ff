/* cli/commands/cmd_cluster.c - `elapse cluster`: every figure of a cluster, with its source.
 *
 * A figure comes from the file, if the file has its key, else from the machine or the device kind
 * that the cluster is made of, else it is a default. */
#include "cli/base/command.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/sourced.h"
#include "cli/commands/cluster_import.h"
#include "partition/cluster/cluster.h"
#include "partition/cluster/device_kinds.h"
#include "partition/cost/cost.h"
#include "partition/base/units.h"
#include "profiles/json/columns.h"
#include "profiles/json/fields.h"
#include "profiles/job/job_json.h"

enum { IMPORT_FILES_MAX = 8 };

/* The sources of a cluster's figures. */
struct origin {
    const char *file;         /* of a file or an object; NULL: it is neither */
    struct json *root;        /* owned: of the file, or the object */
    const struct json *first; /* in root: its first device, where it has a list */
    /* The sources of the figures of the first device, its port to the network, the uplink of the
     * first node, and latencies and context are; NULL: of no published machine. */
    const struct machine *device, *nic, *uplink, *network;
    bool counted_here; /* memory and devices are those of this machine */
};

static const char *from(const struct origin *origin, const char *key, const char *otherwise)
{
    const bool has = (origin->root && json_get(origin->root, key)) ||
                     (origin->first && json_get(origin->first, key));
    return has ? origin->file : otherwise;
}

static const char *source_of(const struct machine *machine)
{
    return machine ? machine->source : "default of a plain grid";
}

/* The machine of the first device, up to a node, whose kind has one; NULL: none. */
static const struct machine *machine_before(const struct cluster *cluster, int end_node)
{
    for (int i = 0; i < cluster->num_devices && cluster->devices[i].node < end_node; i++) {
        const struct machine *machine = kind_node(kind_of_device(&cluster->devices[i]));
        if (machine)
            return machine;
    }
    return NULL;
}

/* Whether the devices of a CLUSTER text have no kind. *kind is theirs. */
static bool is_plain(const char *text, char kind[32])
{
    struct cluster cluster = {0};
    *kind = '\0';
    if (cluster_load(text, &cluster, NULL) == OK)
        snprintf(kind, 32, "%s", cluster.devices[0].kind);
    cluster_clear(&cluster);
    return strcmp(kind, "uniform") == 0;
}

static enum status find_origin(const char *text, const struct cluster *cluster,
                               struct origin *origin, struct err *err)
{
    const char *base = text;
    char kind[32];
    *origin = (struct origin){0};
    const enum status rc = cluster_text_json(text, &origin->root, &origin->file, err);
    if (rc != OK)
        return rc;
    if (origin->root) {
        base = json_string(json_get(origin->root, "preset"));
        origin->first = json_first(json_get(origin->root, "devices"));
    }
    origin->device = origin->nic = kind_node(kind_of_device(&cluster->devices[0]));
    origin->uplink = machine_before(cluster, 1);
    origin->network = machine_before(cluster, cluster->num_nodes);
    if (base && !is_plain(base, kind)) {
        const struct machine *machine = machine_of_text(base);
        origin->network = machine ? machine : kind_node(kind_find(kind));
        origin->uplink = origin->nic = origin->network;
        origin->counted_here = strcmp(base, "this-machine") == 0;
        if (strcmp(kind, cluster->devices[0].kind) == 0)
            origin->device = origin->network;
    }
    return OK;
}

static void show_collective(const struct sourced *out, const struct cluster *cluster,
                            enum collective kind, const char *source)
{
    const struct collective_figures *figures = &cluster->collectives[kind];
    const char *name = collective_name(kind);
    const int64_t large = INT64_MAX;
    char words[48];
    struct sourced one = *out;
    if (out->values) {
        one.values = json_add_object(out->values, name);
        one.sources = json_add_object(out->sources, name);
    }
    snprintf(words, sizeof words, "%s, rate of a port", name);
    sourced_rate(&one, "link_bytes_per_s", words,
                 cluster->devices[0].link_bytes_per_s * share_curve_at(&figures->link, large),
                 source);
    snprintf(words, sizeof words, "%s, rate of an uplink", name);
    sourced_rate(&one, "uplink_bytes_per_s", words,
                 cluster->uplink_bytes_per_s[0] * share_curve_at(&figures->uplink, large), source);
    snprintf(words, sizeof words, "%s, a step in a node", name);
    sourced_ns(&one, "latency_ns", words,
               figures->link_latency_ns >= 0 ? figures->link_latency_ns : cluster->link_latency_ns,
               source);
    snprintf(words, sizeof words, "%s, a step between nodes", name);
    sourced_ns(&one, "uplink_latency_ns", words,
               figures->uplink_latency_ns >= 0 ? figures->uplink_latency_ns
                                               : cluster->uplink_latency_ns,
               source);
    snprintf(words, sizeof words, "%s, once", name);
    sourced_ns(&one, "fixed_ns", words, figures->fixed_ns, source);
}

/* The points of a curve as further lines or a list. */
static void show_curve(const struct sourced *out, const char *name, double bytes_per_s,
                       const struct share_curve *curve)
{
    struct json *list = out->values && curve->num_points ? json_add_array(out->values, name) : NULL;
    for (int i = 0; i < curve->num_points; i++) {
        char bytes[32];
        if (list) {
            struct json *point = json_add_array(list, NULL);
            json_add_int(point, NULL, curve->bytes[i]);
            json_add_double(point, NULL, curve->share[i] * bytes_per_s);
        } else {
            printf("    %-30s %9.4g GB/s\n", format_bytes(curve->bytes[i], bytes, sizeof bytes),
                   curve->share[i] * bytes_per_s / 1e9);
        }
    }
}

/* The source of the context bytes that a machine with such devices needs. */
static const char *context_source(const char *kind, const struct device *first)
{
    const struct kind *shipped = kind_find(kind);
    return kind_source(shipped ? shipped : kind_of_device(first),
                       offsetof(struct kind, node.context_bytes));
}

static void show_devices(const struct sourced *out, const struct cluster *cluster,
                         const struct origin *origin)
{
    const struct device *first = &cluster->devices[0];
    const struct roofline *roof = device_roofline(first);
    const char *published = roof ? roof->source : "default of a plain grid";
    const struct machine *device = origin->device;
    sourced_number(out, "num_nodes", "nodes", cluster->num_nodes, "");
    sourced_number(out, "num_devices", "devices", cluster->num_devices, "");
    sourced_text(out, "kind", "kind of the first device", first->kind, from(origin, "kind", ""));
    sourced_bytes(out, "mem_bytes", "memory", first->mem_bytes,
                  from(origin, "mem",
                       origin->counted_here              ? "this machine, shared by its cores"
                       : device && device->mem_bytes > 0 ? device->source
                                                         : published));
    sourced_bytes(out, "context_bytes", "memory taken beforehand", cluster->context_bytes,
                  from(origin, "context",
                       origin->network ? context_source(origin->network->kind, first) : "default"));
    sourced_number(out, "speed", "speed, 1 is nominal", first->speed,
                   from(origin, "speed", "default"));
    sourced_rate(out, "link_bytes_per_s", "port, each direction", first->link_bytes_per_s,
                 from(origin, "link", published));
    show_curve(out, "link_curve", first->link_bytes_per_s, &cluster->link_shares);
    if (first->nic_bytes_per_s > 0)
        sourced_rate(out, "nic_bytes_per_s", "port to the network", first->nic_bytes_per_s,
                     from(origin, "nic", source_of(origin->nic)));
    sourced_rate(out, "copy_bytes_per_s", "host to device", first->copy_bytes_per_s,
                 from(origin, "copy", device ? device->copy_source : published));
}

static void show_network(const struct sourced *out, const struct cluster *cluster,
                         const struct origin *origin)
{
    const char *usual = origin->network ? "round figure of a small message (docs/clusters.md)"
                                        : "default of a plain grid";
    const struct kind *ring_kind = cluster_collectives_kind(cluster);
    const struct collective_source *collectives =
        ring_kind && ring_kind->collectives.link[0] > 0 ? &ring_kind->collectives : NULL;
    sourced_rate(out, "uplink_bytes_per_s", "uplink of a node, each direction",
                 cluster->uplink_bytes_per_s[0],
                 from(origin, "uplinks", from(origin, "uplink", source_of(origin->uplink))));
    show_curve(out, "uplink_curve", cluster->uplink_bytes_per_s[0], &cluster->uplink_shares);
    sourced_ns(out, "latency_ns", "latency in a node", cluster->link_latency_ns,
               from(origin, "latency", usual));
    sourced_ns(out, "uplink_latency_ns", "latency between nodes", cluster->uplink_latency_ns,
               from(origin, "uplink_latency", from(origin, "latency", usual)));
    if (cluster->pod_nodes > 0) {
        const bool published = origin->uplink && origin->uplink->pod_nodes > 0;
        const char *const source = published ? origin->uplink->source : "its nodes' uplinks";
        sourced_number(out, "pod_nodes", "nodes of a pod", cluster->pod_nodes,
                       from(origin, "pod", source));
        sourced_rate(out, "pod_uplink_bytes_per_s", "uplink of a pod, each direction",
                     cluster->pod_uplink_bytes_per_s,
                     from(origin, "pod_uplink", from(origin, "oversubscription", source)));
        sourced_ns(out, "pod_latency_ns", "latency between pods", cluster->pod_latency_ns,
                   from(origin, "pod_latency", "as between nodes"));
    }
    sourced_ns(out, "host_op_ns", "host time to launch one op", cluster->host_op_ns,
               from(origin, "host_op", "default"));
    if (cluster->message_host_ns > 0 || cluster->message_host_bytes_per_s > 0) {
        sourced_ns(out, "message_host_ns", "processor time of a message", cluster->message_host_ns,
                   from(origin, "message_host", "default"));
        sourced_rate(out, "message_host_bytes_per_s", "bytes over further such time",
                     cluster->message_host_bytes_per_s, from(origin, "message_host_rate", "none"));
    }
    sourced_text(out, "sends", "a stage's sends", cluster_sends_names[cluster->sends],
                 from(origin, "sends", "default"));
    sourced_number(
        out, "overlap_share", "messages during a pair take", cluster->overlap_share,
        from(origin, "overlap_share", "DeepSeek-V3 Technical Report, 3.2.2: 20 of 132 SMs"));
    for (int k = 0; k < COLLECTIVE_COUNT; k++) {
        const enum collective kind = (enum collective)k;
        const char *source =
            collectives ? collective_source_text(collectives, kind) : "as a message";
        show_collective(out, cluster, kind, from(origin, "collective", source));
    }
}

static enum status show(const struct command *command, const char *text, bool as_json,
                        struct err *err)
{
    struct cluster cluster = {0};
    struct origin origin = {0};
    struct json *answer = NULL;
    enum status rc = cluster_load(text, &cluster, err);
    THEN(find_origin(text, &cluster, &origin, err));
    if (rc == OK && as_json) {
        answer = command_json(command);
        json_add_string(answer, "cluster", cluster.name);
    } else if (rc == OK) {
        printf("%s\n", cluster.name);
    }
    if (rc == OK) {
        const struct sourced out = {answer, answer ? json_add_object(answer, "sources") : NULL};
        show_devices(&out, &cluster, &origin);
        show_network(&out, &cluster, &origin);
    }
    if (answer)
        rc = command_answer(answer, err);
    json_free(origin.root);
    cluster_clear(&cluster);
    return rc;
}

#define MACHINE(type, member, ...) COLUMN(machine, #member, type, member, __VA_ARGS__)
static const struct row_table machine_table =
    ROW_TABLE(machine, MACHINE(STRING, name, SHOWN("machine", -18)),
              MACHINE(STRING, kind, SHOWN(" kind", -8), .leaves = 3),
              MACHINE(INT, devices, SHOWN(" devices", 7), .leaves = 4),
              MACHINE(REAL, uplink_bytes_per_s, SHOWN(" uplink GB/s", 12), .scale = 1e-9),
              MACHINE(REAL, nic_bytes_per_s, SHOWN(" nic GB/s", 12), .leaves = 2, .scale = 1e-9),
              MACHINE(STRING, source, SHOWN("  source", 0), .max = 64, .leaves = 1));

static enum status list_machines(const struct command *command, bool as_json, struct err *err)
{
    struct json *answer = as_json ? command_json(command) : NULL;
    struct json *list = as_json ? json_add_array(answer, "machines") : NULL;
    if (!as_json)
        row_print_head(stdout, &machine_table);
    for (int i = 0; machine_at(i); i++) {
        if (as_json) {
            row_to_json(json_add_object(list, NULL), &machine_table, machine_at(i));
            continue;
        }
        putchar('\n');
        row_print(stdout, &machine_table, machine_at(i));
    }
    if (as_json)
        return command_answer(answer, err);
    printf(
        "\n\nalso MACHINE-NODES, KIND-NODESxDEVICES (a100-2x8; 'elapse devices' lists the kinds), "
        "NODESxDEVICES, this-machine, a JSON file or its object\n");
    return OK;
}

static enum status import(const struct command_line *line, const char *kind, const char *out_path,
                          struct err *err)
{
    struct json *cluster = NULL;
    if (line->num_positional < 2)
        return err_set(err, ERR_INPUT, "cluster import: FILE is missing");
    enum status rc = out_path ? output_check(out_path, err) : OK;
    THEN(cluster_import(line->positional + 1, line->num_positional - 1, kind, &cluster, err));
    if (rc == OK && out_path)
        rc = json_write_output(cluster, out_path, err);
    else
        THEN(json_write(cluster, true, stdout, err));
    json_free(cluster);
    return rc;
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    bool as_json = false;
    const char *kind = NULL, *out_path = NULL;
    const struct option options[] = {
        OPTION_JSON(&as_json),
        OPTION("kind", STRING, &kind, "KIND", "import: the devices, if no FILE names them"),
        OPTION("o", STRING, &out_path, "FILE", "import: write the cluster file there"),
    };
    struct command_line line = COMMAND_LINE(options, IMPORT_FILES_MAX + 1);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    const bool importing = line.num_positional > 0 && strcmp(line.positional[0], "import") == 0;
    if (importing)
        return import(&line, kind, out_path, err);
    if (line.num_positional > 1 || kind || out_path)
        return err_set(err, ERR_INPUT,
                       "cluster: only 'cluster import' takes several files, --kind "
                       "and -o");
    if (line.num_positional == 1)
        return show(command, line.positional[0], as_json, err);
    return list_machines(command, as_json, err);
}

const struct command command_cluster = {
    .name = "cluster",
    .args = "[CLUSTER] | import FILE...",
    .summary = "every figure of a cluster, with its source; the machines; import of measured links",
    .takes = "CLUSTER",
    .run = run};
