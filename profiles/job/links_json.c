/* A rate in a file is one rate, or points [bytes, rate]. struct cluster keeps the last rate, which is
 * that of large messages, and for each point the share of it (share_curve). Rates of collectives
 * become shares of the cluster's fastest port and uplink. */
#include "profiles/job/links_json.h"

#include <stdio.h>
#include <string.h>

#include "partition/base/units.h"
#include "profiles/json/fields.h"

static bool read_rate(const struct json *json, double *rate)
{
    *rate = json_number(json);
    if (json_string(json) && parse_rate(json_string(json), "rate", rate, NULL) != OK)
        return false;
    return *rate >= 1 && *rate <= 1e18;
}

static bool read_bytes(const struct json *json, int64_t *bytes)
{
    return json_string(json) ? parse_bytes(json_string(json), "bytes", bytes, NULL) == OK
                             : json_int64(json, bytes);
}

static enum status read_sized(const struct json *json, const struct fields_source *source,
                              const char *key, struct sized_rate *sized, struct err *err)
{
    static const char limit[] =
        "a bandwidth like \"5GBps\" or bytes per second 1..10^18, or [[bytes, rate], ...]";
    struct sized_rate got = {0};
    char name[160];
    int n = json_type(json) == JSON_ARRAY ? json_count(json) : 0;
    if (json_type(json) != JSON_ARRAY) {
        if (!read_rate(json, &got.bytes_per_s))
            return fields_refuse(source, key, limit, json, err);
        *sized = got;
        return OK;
    }
    if (n < 1 || n > CURVE_POINTS_MAX)
        return err_set(err, ERR_INPUT, "%s: %s.%s must have 1..%d points, got %d", source->file,
                       source->prefix, key, CURVE_POINTS_MAX, n);
    for (const struct json *m = json_first(json); m; m = json_next(m)) {
        const int i = got.shares.num_points++;
        if (json_type(m) != JSON_ARRAY || json_count(m) != 2 ||
            !read_bytes(json_at(m, 0), &got.shares.bytes[i]) ||
            !read_rate(json_at(m, 1), &got.shares.share[i]))
            return fields_refuse(source, key, limit, m, err);
    }
    got.bytes_per_s = got.shares.share[n - 1];
    for (int i = 0; i < n; i++)
        got.shares.share[i] /= got.bytes_per_s;
    snprintf(name, sizeof name, "%s: %s.%s", source->file, source->prefix, key);
    enum status rc = share_curve_check(&got.shares, name, err);
    if (rc == OK)
        *sized = got;
    return rc;
}

static double fastest_port(const struct cluster *cluster)
{
    double most = 0;
    for (int i = 0; i < cluster->num_devices; i++)
        if (cluster->devices[i].link_bytes_per_s > most)
            most = cluster->devices[i].link_bytes_per_s;
    return most;
}

static double fastest_uplink(const struct cluster *cluster)
{
    double most = 0;
    for (int n = 0; n < cluster->num_nodes; n++)
        if (cluster->uplink_bytes_per_s[n] > most)
            most = cluster->uplink_bytes_per_s[n];
    return most;
}

/* Read one rate of collectives as shares of full_rate. */
static enum status read_share(const struct json *object, const struct fields_source *source,
                              const char *key, double full_rate, struct share_curve *shares,
                              struct err *err)
{
    struct sized_rate sized;
    if (!json_get(object, key))
        return OK;
    enum status rc = read_sized(json_get(object, key), source, key, &sized, err);
    if (rc != OK)
        return rc;
    if (sized.shares.num_points == 0)
        sized.shares = (struct share_curve){.num_points = 1, .bytes = {1}, .share = {1}};
    for (int i = 0; i < sized.shares.num_points; i++)
        sized.shares.share[i] *= sized.bytes_per_s / full_rate;
    *shares = sized.shares;
    return OK;
}

struct times {
    int64_t latency_ns, uplink_latency_ns, fixed_ns;
};
/* clang-format off */
static const struct member collective_fields[] = {
    MEMBER_OWN("link", "rate of the cluster's fastest port; slower ports in proportion"),
    MEMBER_OWN("uplink", "rate of the cluster's fastest uplink; ports to the network in proportion"),
    MEMBER(times, "latency", NS, latency_ns, "of a step inside a node [a message's]"),
    MEMBER(times, "uplink_latency", NS, uplink_latency_ns, "of a step between nodes [latency]"),
    MEMBER(times, "fixed", NS, fixed_ns, "once per collective [0]"),
#define ONE(value, name, passes) MEMBER_OWN(name, "an object of these keys for one kind"),
    COLLECTIVES(ONE)
};
/* clang-format on */
enum {
    NUM_FIELDS = sizeof collective_fields / sizeof collective_fields[0],
    NUM_OWN_FIELDS = NUM_FIELDS - COLLECTIVE_COUNT /* those of one kind */
};

/* Read the figures of one kind from an object; whole: it may hold the objects of kinds too. */
static enum status read_collective(const struct json *object, const struct fields_source *source,
                                   bool whole, const struct cluster *cluster,
                                   struct collective_figures *figures, struct err *err)
{
    struct times times = {-1, -1, -1};
    if (json_type(object) != JSON_OBJECT)
        return err_set(err, ERR_INPUT, "%s: %s must be an object, got %s", source->file,
                       source->prefix, json_type_name(json_type(object)));
    enum status rc = fields_read(collective_fields, whole ? NUM_FIELDS : NUM_OWN_FIELDS, object,
                                 source, &times, err);
    THEN(read_share(object, source, "link", fastest_port(cluster), &figures->link, err));
    if (json_get(object, "link")) /* holds for groups of all sizes */
        figures->pair = figures->quad = (struct share_curve){0};
    THEN(read_share(object, source, "uplink", fastest_uplink(cluster), &figures->uplink, err));
    if (times.latency_ns >= 0)
        figures->link_latency_ns = figures->uplink_latency_ns = times.latency_ns;
    if (times.uplink_latency_ns >= 0)
        figures->uplink_latency_ns = times.uplink_latency_ns;
    if (times.fixed_ns >= 0)
        figures->fixed_ns = times.fixed_ns;
    return rc;
}

static enum status read_collectives(const struct json *object, const char *file, const char *key,
                                    struct cluster *cluster, struct err *err)
{
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%s%scollective", key, *key ? "." : "");
    const struct fields_source all = {.file = file, .prefix = prefix};
    enum status rc = OK;
    for (int kind = 0; kind < COLLECTIVE_COUNT && rc == OK; kind++)
        rc = read_collective(object, &all, true, cluster, &cluster->collectives[kind], err);
    for (int kind = 0; kind < COLLECTIVE_COUNT && rc == OK; kind++) {
        const char *name = collective_name((enum collective)kind);
        char at[128];
        snprintf(at, sizeof at, "%s.%s", prefix, name);
        const struct fields_source one = {.file = file, .prefix = at};
        if (json_get(object, name))
            rc = read_collective(json_get(object, name), &one, false, cluster,
                                 &cluster->collectives[kind], err);
    }
    return rc;
}

enum status link_rates_from_json(const struct json *object, const char *file, const char *key,
                                 struct link_rates *rates, struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = key};
    enum status rc = OK;
    *rates = (struct link_rates){0};
    if (json_get(object, "link"))
        rc = read_sized(json_get(object, "link"), &source, "link", &rates->link, err);
    if (rc == OK && json_get(object, "uplink"))
        rc = read_sized(json_get(object, "uplink"), &source, "uplink", &rates->uplink, err);
    return rc;
}

enum status collectives_from_json(const struct json *object, const char *file, const char *key,
                                  struct cluster *cluster, struct err *err)
{
    const struct json *json = json_get(object, "collective");
    return json ? read_collectives(json, file, key, cluster, err) : OK;
}

void collective_keys_each(key_visitor *visit, void *ctx)
{
    fields_each(collective_fields, NUM_FIELDS, visit, ctx);
}
