/* Clusters from JSON. A file gives a preset, a grid or a list of devices; struct figures holds the
 * values that override it. Read cluster_fields, the table of keys, first. */
#include "profiles/job/job_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partition/base/units.h"
#include "partition/cluster/device_kinds.h"
#include "profiles/base/machine_memory.h"
#include "profiles/job/job_parts.h"
#include "profiles/job/kind_json.h"
#include "profiles/job/links_json.h"

/* The figures of a cluster object, which override a preset or a grid, or of one device object.
 * A figure that the file does not set is negative (0 for rates) and overrides nothing. */
struct figures {
    char name[64], preset[64], kind[32];
    struct kind *own; /* owned reference: the user's figures of kind; NULL: none */
    int64_t nodes, devices_per_node, pod, pod_latency_ns;
    int64_t mem_bytes, latency_ns, uplink_latency_ns, host_op_ns, message_host_ns, context_bytes;
    double link, uplink, nic, copy, speed, overlap_share, host_bandwidth, price, power,
        oversubscription, pod_uplink, message_host_rate;
    struct share_curve link_shares, uplink_shares; /* with link and uplink */
    bool half_duplex, host_blocking;
    int sends; /* enum cluster_sends, negative: not set */
};

/* clang-format off */
static const struct member cluster_fields[] = {
    MEMBER(figures, "name", TEXT, name, "shown in reports"),
    MEMBER(figures, "preset", TEXT, preset, "CLUSTER text; the other keys override it"),
    MEMBER(figures, "nodes", INT, nodes, "in place of a preset's, or with devices_per_node", .min = 1, .max = 1 << 20),
    MEMBER(figures, "devices_per_node", INT, devices_per_node, "in place of a preset", .min = 1, .max = 1 << 20),
    MEMBER(figures, "kind", TEXT, kind, "of the devices: key of a profile or roofline, or an object", .flags = MEMBER_OBJECT),
    MEMBER(figures, "mem", BYTES, mem_bytes, "memory of a device"),
    MEMBER(figures, "speed", REAL, speed, "of a device [1: nominal]", .max = 1000000000),
    MEMBER_OWN("link", "a device's port, each direction: a rate, or [[bytes, rate], ...]"),
    MEMBER(figures, "nic", RATE, nic, "a device's port to other nodes [of a published kind, else as link]"),
    MEMBER(figures, "copy", RATE, copy, "host to device, each direction"),
    MEMBER_OWN("uplink", "a node's, each direction: a rate, or [[bytes, rate], ...]"),
    MEMBER(figures, "latency", NS, latency_ns, "of a message inside a node"),
    MEMBER(figures, "uplink_latency", NS, uplink_latency_ns, "of a message between nodes [latency]"),
    MEMBER(figures, "pod", INT, pod, "nodes that share an uplink to the fabric: a leaf, a rail group, a scalable unit "
        "[none]", .min = 1, .max = 1 << 20),
    MEMBER(figures, "oversubscription", REAL, oversubscription, "uplinks of a pod's nodes over the pod's own uplink [1]", .max = 1000000),
    MEMBER(figures, "pod_uplink", RATE, pod_uplink, "bandwidth of a pod's uplink, each direction, in place of oversubscription"),
    MEMBER(figures, "pod_latency", NS, pod_latency_ns, "of a message between pods [uplink_latency]"),
    MEMBER(figures, "half_duplex", BOOL, half_duplex, "both directions share [false]"),
    MEMBER(figures, "host_op", NS, host_op_ns, "host time to launch one op"),
    MEMBER(figures, "host_blocking", BOOL, host_blocking, "launching adds to the step [false]"),
    MEMBER(figures, "message_host", NS, message_host_ns, "processor time that a message takes from the compute of each of its ranks [0]"),
    MEMBER(figures, "message_host_rate", RATE, message_host_rate, "bytes of a message over further such time [none]"),
    MEMBER(figures, "sends", NAME, sends,
        "a rank after a send: continues, or waits for the transfer's end; auto: as train.framework has it [auto]",
        .names = cluster_sends_names),
    MEMBER(figures, "overlap_share", REAL, overlap_share,
        "of a device that messages use during an overlapped F and B (dualpipe-v) [0.152]", .max = 1),
    MEMBER(figures, "context", BYTES, context_bytes, "device memory taken beforehand"),
    MEMBER(figures, "host_bandwidth", RATE, host_bandwidth, "of a node's host memory, for pipeline.offload [409.6GB/s]"),
    MEMBER(figures, "price", REAL, price, "of a device and hour, in any currency: runs have a cost then", .max = 1000000000),
    MEMBER(figures, "power", REAL, power, "watts of a device with its share of the node: runs have an energy then", .max = 1000000000),
    MEMBER_OWN("devices", "in place of nodes and devices_per_node: an array of objects"),
    MEMBER_OWN("uplinks", "bandwidth of each node"),
    MEMBER_OWN("faults", "how sim loses nodes: an object with the keys of --faults"),
    MEMBER_OWN("collective", "figures of collectives where they differ from messages: an object"),
};
static const struct member device_fields[] = {
    MEMBER(figures, "node", INT, nodes, "that it is in, ascending [as the device before]", .max = 1 << 20),
    MEMBER(figures, "kind", TEXT, kind, "key of a profile or roofline, or an object [the cluster's]", .flags = MEMBER_OBJECT),
    MEMBER(figures, "mem", BYTES, mem_bytes, "memory [the cluster's]"),
    MEMBER(figures, "speed", REAL, speed, "1: nominal [the cluster's]", .max = 1000000000),
    MEMBER(figures, "link", RATE, link, "its port, each direction [the cluster's]"),
    MEMBER(figures, "nic", RATE, nic, "its port to other nodes [the cluster's]"),
    MEMBER(figures, "copy", RATE, copy, "host to device, each direction [the cluster's]"),
};
/* clang-format on */
enum {
    NUM_CLUSTER_FIELDS = sizeof cluster_fields / sizeof *cluster_fields,
    NUM_DEVICE_FIELDS = sizeof device_fields / sizeof *device_fields
};

static const struct figures unset = {.nodes = -1,
                                     .devices_per_node = -1,
                                     .mem_bytes = -1,
                                     .latency_ns = -1,
                                     .uplink_latency_ns = -1,
                                     .host_op_ns = -1,
                                     .message_host_ns = -1,
                                     .context_bytes = -1,
                                     .sends = -1,
                                     .pod = -1,
                                     .pod_latency_ns = -1,
                                     .overlap_share = -1,
                                     .price = -1,
                                     .power = -1,
                                     .speed = -1};

static void set_kind(const struct figures *f, struct device *device)
{
    if (!*f->kind)
        return;
    snprintf(device->kind, sizeof device->kind, "%s", f->kind);
    device->own = f->own;
}

/* Find the figures of "kind" where they are a user's own: an object, or the name of a file. */
static enum status read_own_kind(const struct json *object, const char *file, const char *prefix,
                                 struct figures *f, struct err *err)
{
    const struct json *value = json_get(object, "kind");
    char at[160];
    if (json_type(value) != JSON_OBJECT)
        return *f->kind ? kind_find_own(f->kind, &f->own, err) : OK;
    snprintf(at, sizeof at, "%s%skind", prefix, *prefix ? "." : "");
    const struct fields_source source = {.file = file, .prefix = at};
    const enum status rc = kind_from_json(value, &source, &f->own, err);
    if (rc == OK)
        snprintf(f->kind, sizeof f->kind, "%s", f->own->name);
    return rc;
}

/* Devices of one kind have one set of figures. The cluster keeps f's kind; an equal one that it
 * already has stands for it. */
static enum status keep_kind(struct figures *f, struct cluster *cluster, const char *file,
                             struct err *err)
{
    for (int i = 0; f->own && i < cluster->num_own_kinds; i++) {
        struct kind *other = cluster->own_kinds[i];
        if (strcmp(other->name, f->own->name) != 0)
            continue;
        for (int k = 0; k < NUM_KIND_FIGURES; k++)
            if (kind_figure_value(other, k) != kind_figure_value(f->own, k)) {
                err_set(err, ERR_INPUT, "%s: two device kinds are named '%s' and differ in %s",
                        file, other->name, kind_figures[k].key);
                err_hint(err, "give each a \"name\"");
                return ERR_INPUT;
            }
        kind_release(f->own);
        f->own = kind_hold(other);
        return OK;
    }
    return f->own ? cluster_keep_kind(cluster, f->own, err) : OK;
}

static void apply_device(const struct figures *f, struct device *device)
{
    if (f->mem_bytes >= 0)
        device->mem_bytes = f->mem_bytes;
    if (f->speed >= 0)
        device->speed = f->speed;
    if (f->link > 0)
        device->link_bytes_per_s = f->link;
    if (f->nic > 0)
        device->nic_bytes_per_s = f->nic;
    if (f->copy > 0)
        device->copy_bytes_per_s = f->copy;
}

/* The third level. Nodes may have different uplinks: a pod's is made of the first node's. */
static enum status apply_pods(const struct figures *f, const char *file, const char *key,
                              struct cluster *cluster, struct err *err)
{
    if (f->pod < 0 && (f->oversubscription > 0 || f->pod_uplink > 0 || f->pod_latency_ns >= 0))
        return err_set(err, ERR_INPUT,
                       "%s: %s: oversubscription, pod_uplink and pod_latency need pod, the nodes "
                       "of one",
                       file, key);
    if (f->oversubscription > 0 && f->pod_uplink > 0)
        return err_set(err, ERR_INPUT, "%s: %s: pod_uplink stands in place of oversubscription",
                       file, key);
    if (f->pod < 0)
        return OK;
    cluster->pod_nodes = (int)f->pod;
    cluster->pod_uplink_bytes_per_s = f->pod_uplink > 0
                                          ? f->pod_uplink
                                          : (double)f->pod * cluster->uplink_bytes_per_s[0] /
                                                (f->oversubscription > 0 ? f->oversubscription : 1);
    cluster->pod_latency_ns =
        f->pod_latency_ns >= 0 ? f->pod_latency_ns : cluster->uplink_latency_ns;
    return OK;
}

static void apply_cluster(const struct figures *f, struct cluster *cluster)
{
    for (int i = 0; i < cluster->num_devices; i++)
        apply_device(f, &cluster->devices[i]);
    if (f->link > 0)
        cluster->link_shares = f->link_shares;
    for (int n = 0; n < cluster->num_nodes && f->uplink > 0; n++)
        cluster->uplink_bytes_per_s[n] = f->uplink;
    if (f->uplink > 0)
        cluster->uplink_shares = f->uplink_shares;
    if (f->latency_ns >= 0)
        cluster->link_latency_ns = cluster->uplink_latency_ns = f->latency_ns;
    if (f->uplink_latency_ns >= 0)
        cluster->uplink_latency_ns = f->uplink_latency_ns;
    if (f->host_op_ns >= 0)
        cluster->host_op_ns = f->host_op_ns;
    if (f->message_host_ns >= 0)
        cluster->message_host_ns = f->message_host_ns;
    if (f->message_host_rate > 0)
        cluster->message_host_bytes_per_s = f->message_host_rate;
    if (f->context_bytes >= 0)
        cluster->context_bytes = f->context_bytes;
    if (f->overlap_share >= 0)
        cluster->overlap_share = f->overlap_share;
    if (f->host_bandwidth > 0)
        cluster->host_mem_bytes_per_s = f->host_bandwidth;
    if (f->price >= 0)
        cluster->price_per_hour = f->price;
    if (f->power >= 0)
        cluster->power_watts = f->power;
    if (f->sends >= 0)
        cluster->sends = (enum cluster_sends)f->sends;
    cluster->half_duplex = f->half_duplex;
    cluster->host_blocking = f->host_blocking;
    if (*f->name)
        snprintf(cluster->name, sizeof cluster->name, "%s", f->name);
}

/* Name a cluster of listed devices by their kinds, as "4 a100, 2 v100". */
static void name_devices(struct cluster *cluster)
{
    size_t at = 0;
    for (int d = 0, end; d < cluster->num_devices && at < sizeof cluster->name; d = end) {
        const char *kind = cluster->devices[d].kind;
        for (end = d + 1;
             end < cluster->num_devices && strcmp(cluster->devices[end].kind, kind) == 0;)
            end++;
        at += (size_t)snprintf(cluster->name + at, sizeof cluster->name - at, "%s%d %s",
                               d ? ", " : "", end - d, kind);
    }
    if (at >= sizeof cluster->name) /* too many changes of kind */
        snprintf(cluster->name, sizeof cluster->name, "%s",
                 COUNT_TEXT(cluster->num_devices, "device"));
}

/* Read a list of devices that may differ. A figure that a device does not set is the cluster's. */
static enum status list_devices(const struct json *array, struct figures *whole, const char *file,
                                const char *key, struct cluster *cluster, struct err *err)
{
    int n = json_count(array), i = 0;
    struct figures *each = NULL;
    if (json_type(array) != JSON_ARRAY || n < 1 || n > 1 << 20)
        return err_set(err, ERR_INPUT, "%s: %s.devices must be an array of 1..%d, got %s of %d",
                       file, key, 1 << 20, json_type_name(json_type(array)), n);
    each = calloc((size_t)n, sizeof *each);
    if (!each)
        return err_nomem(err);
    enum status rc = OK;
    for (struct json *m = json_first(array); m && rc == OK; m = json_next(m), i++) {
        char at[128];
        snprintf(at, sizeof at, "%s%sdevices[%d]", key, *key ? "." : "", i);
        const struct fields_source source = {.file = file, .prefix = at};
        each[i] = unset;
        each[i].nodes = i ? each[i - 1].nodes : 0;
        rc = fields_read(device_fields, NUM_DEVICE_FIELDS, m, &source, &each[i], err);
        THEN(read_own_kind(m, file, at, &each[i], err));
        if (rc == OK && each[i].nodes != (i ? each[i - 1].nodes : 0) &&
            (i == 0 || each[i].nodes != each[i - 1].nodes + 1))
            rc = err_set(err, ERR_INPUT, "%s: %s.node must be %lld or the next, got %lld", file, at,
                         (long long)(i ? each[i - 1].nodes : 0), (long long)each[i].nodes);
    }
    THEN(cluster_grid(1, n, cluster, err));
    THEN(keep_kind(whole, cluster, file, err));
    if (rc == OK) {
        cluster->num_nodes = (int)each[n - 1].nodes + 1;
        double uplink = cluster->uplink_bytes_per_s[0];
        free(cluster->uplink_bytes_per_s);
        cluster->uplink_bytes_per_s = calloc((size_t)cluster->num_nodes, sizeof(double));
        for (i = 0; i < cluster->num_nodes && cluster->uplink_bytes_per_s; i++)
            cluster->uplink_bytes_per_s[i] = uplink;
        for (i = 0; i < n && rc == OK; i++) {
            rc = keep_kind(&each[i], cluster, file, err);
            cluster->devices[i].node = (int)each[i].nodes;
            set_kind(whole, &cluster->devices[i]);
            set_kind(&each[i], &cluster->devices[i]);
        }
        if (cluster->uplink_bytes_per_s)
            cluster_use_kinds(cluster, true);
        for (i = 0; i < n; i++) {
            apply_device(whole, &cluster->devices[i]);
            apply_device(&each[i], &cluster->devices[i]);
        }
        name_devices(cluster);
        if (!cluster->uplink_bytes_per_s)
            rc = err_nomem(err);
    }
    for (i = 0; i < n; i++)
        kind_release(each[i].own);
    free(each);
    return rc;
}

static enum status read_uplinks(const struct json *array, const char *file, const char *key,
                                struct cluster *cluster, struct err *err)
{
    int n = 0;
    if (json_type(array) != JSON_ARRAY || json_count(array) != cluster->num_nodes)
        return err_set(err, ERR_INPUT,
                       "%s: %s.uplinks must be an array of %d (nodes), got %s of %d", file, key,
                       cluster->num_nodes, json_type_name(json_type(array)), json_count(array));
    for (struct json *m = json_first(array); m; m = json_next(m), n++) {
        const struct fields_source source = {.file = file, .prefix = key};
        double rate = json_number(m);
        if (json_string(m) && parse_rate(json_string(m), "uplinks", &rate, NULL) != OK)
            rate = -1;
        if (!(rate >= 1 && rate <= 1e18))
            return fields_refuse(&source, "uplinks", "bandwidths like \"5GBps\"", m, err);
        cluster->uplink_bytes_per_s[n] = rate;
    }
    return OK;
}

static enum status read_links(const struct json *object, const char *file, const char *key,
                              struct figures *figures, struct err *err)
{
    struct link_rates rates;
    enum status rc = link_rates_from_json(object, file, key, &rates, err);
    if (rc != OK)
        return rc;
    figures->link = rates.link.bytes_per_s;
    figures->link_shares = rates.link.shares;
    figures->uplink = rates.uplink.bytes_per_s;
    figures->uplink_shares = rates.uplink.shares;
    return OK;
}

/* Keep the losses as a text, with the names of files and folders resolved. */
static enum status read_faults(const struct json *object, const struct fields_source *source,
                               struct cluster *cluster, struct err *err)
{
    static const char *const paths[] = {"trace", "trace_steps", "run"};
    const struct json *given = json_get(object, "faults");
    enum status rc = OK;
    if (!given)
        return OK;
    if (json_type(given) != JSON_OBJECT)
        return fields_refuse(source, "faults", "an object with the keys of sim --faults", given,
                             err);
    struct json *box = json_object_new();
    json_add_copy(box, "faults", given);
    struct json *faults = json_get(box, "faults");
    for (size_t i = 0; rc == OK && i < sizeof paths / sizeof *paths; i++) {
        const char *name = json_string(json_get(faults, paths[i]));
        char *whole = name ? path_join(source->dir, name) : NULL;
        if (whole) {
            json_remove(faults, paths[i]);
            json_add_string(faults, paths[i], whole);
        } else if (name) {
            rc = err_nomem(err);
        }
        free(whole);
    }
    THEN(json_check(box, err));
    THEN(json_text(faults, false, &cluster->faults, err));
    json_free(box);
    return rc;
}

static bool text_is_object(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '{';
}

enum status cluster_text_json(const char *text, struct json **root, const char **name,
                              struct err *err)
{
    *root = NULL;
    *name = text_is_object(text) ? "CLUSTER" : path_is_json(text) ? text : NULL;
    if (!*name)
        return OK;
    return *name == text ? json_read_file(text, root, err) : json_parse(text, *name, root, err);
}

/* Load the object that a text is or names. The files that a cluster file names are beside it. */
static enum status load_cluster_object(const char *text, struct cluster *cluster, struct err *err)
{
    struct json *root = NULL;
    const char *name;
    enum status rc = cluster_text_json(text, &root, &name, err);
    const char *slash = rc == OK ? strrchr(name, '/') : NULL;
    char *dir = slash ? strndup(name, (size_t)(slash - name) + 1) : NULL;
    const struct fields_source source = {.file = name, .prefix = "cluster", .dir = dir};
    if (slash && !dir)
        rc = err_nomem(err);
    THEN(json_type(root) == JSON_OBJECT ? cluster_from_json(root, &source, cluster, err)
                                        : err_set(err, ERR_INPUT, "%s: must be an object, got %s",
                                                  name, json_type_name(json_type(root))));
    json_free(root);
    free(dir);
    return rc;
}

/* A CLUSTER text of a job file: its paths are beside the file. */
static enum status cluster_from_text(const char *text, const struct fields_source *source,
                                     struct cluster *cluster, struct err *err)
{
    struct err inner = {0};
    char *path = path_is_json(text) ? path_join(source->dir, text) : strdup(text);
    const enum status rc = path ? cluster_load(path, cluster, &inner) : err_nomem(&inner);
    if (rc != OK && path && path_is_json(text)) {
        err_copy(err, &inner);
    } else if (rc != OK) {
        err_set(err, rc, "%s: %s: %s", source->file, source->prefix, inner.msg);
        err_hint(err, "%s", inner.hint);
    }
    free(path);
    return rc;
}

/* Make the cluster's devices: those of a list, a grid or a preset. */
static enum status read_devices(const struct json *value, struct figures *figures,
                                const struct fields_source *source, struct cluster *got,
                                struct err *err)
{
    const char *file = source->file, *key = source->prefix;
    struct err inner = {0};
    enum status rc = OK;
    const struct json *devices = json_get(value, "devices");
    const bool grid = figures->devices_per_node >= 0 || (figures->nodes >= 0 && !*figures->preset);
    if ((devices != NULL) + grid + (*figures->preset != 0) != 1) {
        return err_set(
            err, ERR_INPUT,
            "%s: %s must have exactly one of preset, devices, nodes with devices_per_node; "
            "a preset may have nodes",
            file, key);
    }
    if (devices) {
        rc = list_devices(devices, figures, file, key, got, err);
        if (rc != OK)
            return rc;
        got->link_shares = figures->link_shares;
        figures->mem_bytes = -1; /* list_devices() has applied these already */
        figures->speed = -1;
        figures->link = figures->nic = figures->copy = 0;
        figures->kind[0] = '\0';
    } else if (grid) {
        rc = cluster_grid(figures->nodes >= 0 ? (int)figures->nodes : 1,
                          figures->devices_per_node >= 0 ? (int)figures->devices_per_node : 1, got,
                          err);
    } else {
        rc = cluster_load(figures->preset, got, &inner);
        if (rc != OK) {
            err_set(err, rc, "%s: %s.preset: %s", file, key, inner.msg);
            err_hint(err, "%s", inner.hint);
        } else if (figures->nodes >= 0) {
            rc = cluster_set_nodes(got, (int)figures->nodes, err);
        }
    }
    return rc;
}

enum status cluster_from_json(const struct json *value, const struct fields_source *source,
                              struct cluster *cluster, struct err *err)
{
    const char *file = source->file, *key = source->prefix;
    const char *text = json_string(value);
    struct figures figures = unset;
    struct cluster got = {0};
    enum status rc;
    if (text)
        return cluster_from_text(text, source, cluster, err);
    if (json_type(value) != JSON_OBJECT)
        return fields_refuse(source, "", "a CLUSTER text or an object", value, err);
    rc = fields_read(cluster_fields, NUM_CLUSTER_FIELDS, value, source, &figures, err);
    THEN(read_own_kind(value, file, key, &figures, err));
    THEN(read_links(value, file, key, &figures, err));
    if (rc == OK && (path_is_json(figures.preset) || text_is_object(figures.preset)))
        rc = err_set(err, ERR_INPUT, "%s: %s.preset must not be a file or an object, got '%s'",
                     file, key, figures.preset);
    if (rc != OK)
        goto out;
    rc = read_devices(value, &figures, source, &got, err);
    if (rc != OK)
        goto out;
    /* Figures that the file does not set are those published for the kind. A preset of devices
     * keeps its network when the file gives it others. */
    const bool plain = strcmp(got.devices[0].kind, "uniform") == 0;
    rc = *figures.kind ? keep_kind(&figures, &got, file, err) : OK;
    if (rc != OK)
        goto out;
    if (*figures.kind && strcmp(figures.kind, got.devices[0].kind) != 0) {
        for (int i = 0; i < got.num_devices; i++)
            set_kind(&figures, &got.devices[i]);
        cluster_use_kinds(&got, plain);
        if (plain && kind_of_device(&got.devices[0]))
            snprintf(got.name, sizeof got.name, "%s-%dx%d", figures.kind, got.num_nodes,
                     got.num_devices / got.num_nodes);
    }
    apply_cluster(&figures, &got);
    if (json_get(value, "uplinks"))
        rc = read_uplinks(json_get(value, "uplinks"), file, key, &got, err);
    THEN(apply_pods(&figures, file, key, &got, err));
    THEN(collectives_from_json(value, file, key, &got, err));
    THEN(read_faults(value, source, &got, err));
    THEN(cluster_check(&got, err));
    if (rc != OK)
        goto out;
    *cluster = got;
    got = (struct cluster){0};
out:
    kind_release(figures.own);
    cluster_clear(&got);
    return rc;
}

/* One node whose devices are the online cores, each with an equal share of the memory. Ports and
 * latency are the preset's. */
static enum status this_machine(struct cluster *cluster, struct err *err)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int64_t memory = memory_total();
    char text[32];
    if (cores < 1 || memory < 1)
        return err_set(err, ERR_SYSTEM, "this-machine: cannot count cores and memory");
    snprintf(text, sizeof text, "cpu-1x%ld", cores);
    enum status rc = cluster_parse(text, cluster, err);
    if (rc != OK)
        return rc;
    for (int i = 0; i < cluster->num_devices; i++)
        cluster->devices[i].mem_bytes = memory / cores;
    snprintf(cluster->name, sizeof cluster->name, "this-machine");
    return OK;
}

enum status cluster_load(const char *text, struct cluster *cluster, struct err *err)
{
    if (strcmp(text, "this-machine") == 0)
        return this_machine(cluster, err);
    if (path_is_json(text) || text_is_object(text))
        return load_cluster_object(text, cluster, err);
    /* KIND-NODESxDEVICES of a kind of the user's. */
    const char *dash = strrchr(text, '-');
    char name[32] = "";
    struct kind *own = NULL;
    if (dash && (size_t)(dash - text) < sizeof name && !machine_of_text(text))
        snprintf(name, sizeof name, "%.*s", (int)(dash - text), text);
    enum status rc = kind_find_own(name, &own, err);
    THEN(cluster_parse_own(text, own, cluster, err));
    kind_release(own);
    return rc;
}

void cluster_keys_each(enum key_table table, key_visitor *visit, void *ctx)
{
    if (table == KEYS_CLUSTER)
        fields_each(cluster_fields, NUM_CLUSTER_FIELDS, visit, ctx);
    else if (table == KEYS_DEVICE)
        fields_each(device_fields, NUM_DEVICE_FIELDS, visit, ctx);
    else if (table == KEYS_KIND)
        kind_keys_each(visit, ctx);
    else
        collective_keys_each(visit, ctx);
}
