#include "profiles/profile_cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A measured cost is looked up by (device kind, layer key): a handful of each, searched in order.
 */
enum { MAX_KINDS = 32, MAX_COMBOS = 256 };

struct item_cost {
    struct layer_key key;
    struct curve passes[PASS_COUNT]; /* n = 0: costs nothing (an embedding's input gradient) */
    int64_t stash_bytes;             /* of one sample; -1: not measured */
    bool rest_unknown; /* PASS_BWD_REST was not measured: PASS_BWD_INPUT stands for it */
};

struct group_cost {
    bool net; /* between nodes */
    int ranks;
    struct curve bytes;
};

struct kind_cost {
    char kind[32], profile[64];
    struct item_cost *items; /* owned */
    int num_items;
    struct curve node_link, net_link; /* n = 0: not measured */
    struct group_cost *groups;        /* owned: all-reduce, by place and ranks */
    int num_groups;
    int64_t op_overhead_ns, cache_read_ns, cache_write_ns;
    double input_ns_per_sample, norm_ns_per_byte;
    double spread;
    bool rows_alone;
};

struct profile_cost {
    struct kind_cost *kinds; /* owned */
    int num_kinds;
};

/* One way of measuring: rows of different ways are never mixed. */
struct combo {
    const char *backend;
    int64_t threads, ranks;
};

/* --- answering -------------------------------------------------------------------------------- */

static const struct kind_cost *find_kind(const struct profile_cost *ctx, const char *kind)
{
    for (int k = 0; k < ctx->num_kinds; k++)
        if (strcmp(ctx->kinds[k].kind, kind) == 0)
            return &ctx->kinds[k];
    return NULL;
}

static enum status item_ns(const void *opaque, const struct model *model, int item, enum pass pass,
                           int64_t samples, const struct device *device, int64_t *ns,
                           bool *extrapolated, struct err *err)
{
    const struct kind_cost *kind = find_kind(opaque, device->kind);
    struct layer_key key;
    if (!kind)
        return err_set(err, ERR_INFEASIBLE, "no profile for device kind '%s'", device->kind);
    layer_key_of(model, item, &key);
    for (int i = 0; i < kind->num_items; i++) {
        if (memcmp(&kind->items[i].key, &key, sizeof key) != 0)
            continue;
        const struct curve *curve = &kind->items[i].passes[pass];
        bool beyond = false;
        *ns = 0;
        if (curve->n == 0)
            return OK;
        double x = (double)samples;
        if (pass == PASS_UPDATE) { /* of the optimizers that were measured */
            x = x < curve->x[0] ? curve->x[0] : x;
            x = x > curve->x[curve->n - 1] ? curve->x[curve->n - 1] : x;
        }
        double got = curve_at(curve, x, &beyond);
        if (pass == PASS_FWD_NOGRAD) /* who keeps nothing is not slower: noise */
            got = fmin(got, curve_at(&kind->items[i].passes[PASS_FWD], x, &beyond));
        if (!(got < 9e18))
            return err_set(err, ERR_INPUT, "time of item '%s' overflows: %g ns for %lld samples",
                           model->items[item].name, got, (long long)samples);
        *ns = (int64_t)(got + 0.5);
        if (beyond && extrapolated)
            *extrapolated = true;
        return OK;
    }
    return err_set(err, ERR_INFEASIBLE, "no layers for model '%s' in profile '%s': item '%s'",
                   model->name, kind->profile, model->items[item].name);
}

/* Of a message; where no int64_t holds it, whoever asked refuses it. */
static int64_t message_ns(double ns)
{
    return ns < 9e18 ? (int64_t)(ns + 0.5) : INT64_MAX;
}

static int64_t transfer_ns(const void *opaque, const struct cluster *cluster, int from, int to,
                           int64_t bytes)
{
    const struct device *src = &cluster->devices[from], *dst = &cluster->devices[to];
    const struct kind_cost *kind = find_kind(opaque, src->kind);
    bool beyond = false;
    if (from == to)
        return 0;
    const struct curve *curve = NULL;
    if (kind && strcmp(src->kind, dst->kind) == 0)
        curve = src->node == dst->node ? &kind->node_link : &kind->net_link;
    if (!curve || curve->n == 0)
        return cluster_transfer_ns(cluster, from, to, bytes);
    return message_ns(curve_at(curve, (double)bytes, &beyond));
}

/* As measured with so many ranks at the place. Between nodes, where nobody has measured just that:
 * the ring of cluster_allreduce_ns(), each of its 2 (n - 1) steps a message between nodes. */
static int64_t allreduce_ns(const void *opaque, const struct cluster *cluster, const int *devices,
                            int n, int64_t bytes)
{
    const struct device *first = &cluster->devices[devices[0]];
    const struct kind_cost *kind = find_kind(opaque, first->kind);
    bool alike = kind != NULL, net = false, beyond = false;
    for (int i = 1; i < n && alike; i++) {
        const struct device *other = &cluster->devices[devices[i]];
        net = net || other->node != first->node;
        alike = strcmp(other->kind, first->kind) == 0;
    }
    for (int g = 0; alike && g < kind->num_groups; g++)
        if (kind->groups[g].ranks == n && kind->groups[g].net == net)
            return message_ns(curve_at(&kind->groups[g].bytes, (double)bytes, &beyond));
    if (alike && net && kind->net_link.n > 0)
        return message_ns(2 * (n - 1) * curve_at(&kind->net_link, (double)bytes / n, &beyond));
    return cluster_allreduce_ns(cluster, devices, n, bytes);
}

bool cost_item_stash(const struct cost_handle *handle, const struct model *model, int item,
                     int64_t *bytes)
{
    struct layer_key key;
    layer_key_of(model, item, &key);
    *bytes = model->items[item].stash_bytes;
    for (int i = 0; handle->ctx && i < handle->ctx->kinds[0].num_items; i++) {
        const struct item_cost *known = &handle->ctx->kinds[0].items[i];
        if (known->stash_bytes >= 0 && memcmp(&known->key, &key, sizeof key) == 0) {
            *bytes = known->stash_bytes;
            return true;
        }
    }
    return false;
}

/* --- building --------------------------------------------------------------------------------- */

static void kind_clear(struct kind_cost *kind)
{
    for (int i = 0; i < kind->num_items; i++)
        for (int p = 0; p < PASS_COUNT; p++)
            curve_clear(&kind->items[i].passes[p]);
    for (int g = 0; g < kind->num_groups; g++)
        curve_clear(&kind->groups[g].bytes);
    curve_clear(&kind->node_link);
    curve_clear(&kind->net_link);
    free(kind->items);
    free(kind->groups);
    *kind = (struct kind_cost){0};
}

static void profile_cost_free(struct profile_cost *ctx)
{
    if (!ctx)
        return;
    for (int k = 0; k < ctx->num_kinds; k++)
        kind_clear(&ctx->kinds[k]);
    free(ctx->kinds);
    free(ctx);
}

void cost_handle_clear(struct cost_handle *handle)
{
    profile_cost_free(handle->ctx);
    *handle = (struct cost_handle){0};
}

/* Points of a curve while they are gathered from rows. */
struct gather {
    double *x, *y, *weight;
    int n, spread; /* of struct cost_query */
};

static enum status gather_init(struct gather *gather, int room, int spread, struct err *err)
{
    *gather = (struct gather){.spread = spread,
                              .x = malloc(((size_t)room + 1) * sizeof(double)),
                              .y = malloc(((size_t)room + 1) * sizeof(double)),
                              .weight = malloc(((size_t)room + 1) * sizeof(double))};
    return gather->x && gather->y && gather->weight ? OK : err_nomem(err);
}

static void gather_add(struct gather *gather, int64_t x, const struct spread *spread)
{
    gather->x[gather->n] = (double)x;
    gather->y[gather->n] = gather->spread < 0   ? spread->p10_ns
                           : gather->spread > 0 ? spread->p90_ns
                                                : spread->median_ns;
    gather->weight[gather->n++] = (double)spread->count;
}

static enum status gather_curve(struct gather *gather, struct curve *curve, struct err *err)
{
    enum status rc =
        gather->n ? curve_build(gather->x, gather->y, gather->weight, gather->n, curve, err) : OK;
    gather->n = 0;
    return rc;
}

static void gather_clear(struct gather *gather)
{
    free(gather->x);
    free(gather->y);
    free(gather->weight);
}

static bool in_combo(const struct layer_row *row, const struct combo *combo, const char *dtype)
{
    return row->threads == combo->threads && row->ranks == combo->ranks &&
           strcmp(row->backend, combo->backend) == 0 && strcmp(row->dtype, dtype) == 0;
}

/* The distinct ways of measuring that match the query, best first: threads before ranks. */
static int list_combos(const struct profile *profile, const struct cost_query *query,
                       int64_t threads, int64_t ranks, struct combo *combos)
{
    int n = 0;
    for (int i = 0; i < profile->num_layers; i++) {
        const struct layer_row *row = &profile->layers[i];
        bool known = strcmp(row->dtype, dtype_text(query->dtype)) != 0 ||
                     (query->backend && strcmp(query->backend, row->backend) != 0);
        for (int c = 0; c < n && !known; c++)
            known = in_combo(row, &combos[c], dtype_text(query->dtype));
        if (!known && n < MAX_COMBOS)
            combos[n++] = (struct combo){row->backend, row->threads, row->ranks};
    }
    for (int i = 1; i < n; i++) /* insertion sort: a few entries, stable */
        for (int j = i; j > 0; j--) {
            int64_t a = llabs(combos[j].threads - threads),
                    b = llabs(combos[j - 1].threads - threads);
            int64_t c = llabs(combos[j].ranks - ranks), d = llabs(combos[j - 1].ranks - ranks);
            if (a > b || (a == b && c >= d))
                break;
            struct combo swap = combos[j];
            combos[j] = combos[j - 1];
            combos[j - 1] = swap;
        }
    return n;
}

/* Does an item cost something in this pass, so that a profile must know it? Profiles of older
 * versions lack PASS_BWD_REST and PASS_FWD_NOGRAD; see gather_items(). */
static bool pass_matters(const struct item *item, int pass)
{
    if (pass == PASS_BWD_REST || pass == PASS_FWD_NOGRAD)
        return false;
    if (pass == PASS_BWD_INPUT)
        return item->kind != ITEM_EMBEDDING;
    return pass == PASS_FWD || item->params > 0 || (item->tied_params > 0 && pass != PASS_UPDATE);
}

static int64_t find_stash(const struct profile *profile, const struct layer_key *key,
                          enum dtype dtype)
{
    char name[48];
    stash_row_name(key, dtype, name);
    for (int i = 0; i < profile->num_memories; i++)
        if (strcmp(profile->memories[i].what, name) == 0)
            return profile->memories[i].measured_bytes;
    return -1;
}

static void gather_pass(struct gather *gather, const struct profile *profile,
                        const struct combo *combo, const char *dtype, const struct layer_key *key,
                        enum pass pass)
{
    for (int r = 0; r < profile->num_layers; r++) {
        const struct layer_row *row = &profile->layers[r];
        if (in_combo(row, combo, dtype) && memcmp(&row->key, key, sizeof *key) == 0 &&
            strcmp(row->pass, pass_name(pass)) == 0)
            gather_add(gather, row->samples, &row->ns);
    }
}

/* Curves of every distinct item of the model; ERR_INFEASIBLE when one is missing. */
static enum status gather_items(const struct profile *profile, const struct model *model,
                                const struct combo *combo, const struct cost_query *query,
                                struct kind_cost *kind, struct err *err)
{
    const char *dtype = dtype_text(query->dtype);
    struct gather gather = {0};
    enum status rc = gather_init(&gather, profile->num_layers, query->spread, err);
    kind->items = calloc((size_t)model->num_items, sizeof *kind->items);
    if (!kind->items)
        rc = err_nomem(err);
    for (int i = 0; i < model->num_items && rc == OK; i++) {
        struct layer_key key;
        bool known = false;
        layer_key_of(model, i, &key);
        for (int j = 0; j < kind->num_items && !known; j++)
            known = memcmp(&kind->items[j].key, &key, sizeof key) == 0;
        if (known)
            continue;
        struct item_cost *item = &kind->items[kind->num_items++];
        item->key = key;
        item->stash_bytes = find_stash(profile, &key, query->dtype);
        for (int p = 0; p < PASS_COUNT && rc == OK; p++) {
            gather_pass(&gather, profile, combo, dtype, &key, (enum pass)p);
            if (gather.n == 0 && p == PASS_BWD_REST && item->passes[PASS_BWD_INPUT].n > 0) {
                gather_pass(&gather, profile, combo, dtype, &key, PASS_BWD_INPUT);
                item->rest_unknown = true;
            }
            if (gather.n == 0 && p == PASS_FWD_NOGRAD)
                gather_pass(&gather, profile, combo, dtype, &key, PASS_FWD);
            if (gather.n == 0 && pass_matters(&model->items[i], p))
                rc = err_set(err, ERR_INFEASIBLE,
                             "no layers for model '%s' in profile '%s': item '%s' (%s, hidden "
                             "%lld, seq %lld, %s)",
                             model->name, profile->info.name, model->items[i].name, pass_name(p),
                             (long long)key.hidden, (long long)key.seq, dtype);
            else
                rc = gather_curve(&gather, &item->passes[p], err);
        }
    }
    gather_clear(&gather);
    return rc;
}

/* Whether PASS_BWD_REST is a guess for an item that can be the first behind frozen layers. */
static bool rest_unknown(const struct kind_cost *kind, const struct model *model)
{
    for (int i = 1; i < model->num_items; i++) {
        struct layer_key key;
        if (model->items[i].layer < 1 || model->items[i].layer == model->items[i - 1].layer)
            continue;
        layer_key_of(model, i, &key);
        for (int j = 0; j < kind->num_items; j++)
            if (kind->items[j].rest_unknown && memcmp(&kind->items[j].key, &key, sizeof key) == 0)
                return true;
    }
    return false;
}

/* The number of busy pairs nearest to alone that was measured at a place; -1: none. */
static int64_t fewest_pairs(const struct profile *profile, const char *place)
{
    int64_t fewest = -1;
    for (int i = 0; i < profile->num_links; i++)
        if (strcmp(profile->links[i].place, place) == 0 &&
            (fewest < 0 || profile->links[i].ranks < fewest))
            fewest = profile->links[i].ranks;
    return fewest;
}

static enum status gather_links(const struct profile *profile, const struct cost_query *query,
                                struct kind_cost *kind, struct err *err)
{
    static const char *const places[] = {"node", "net"};
    struct curve *const curves[] = {&kind->node_link, &kind->net_link};
    struct gather gather = {0};
    int room = profile->num_links > profile->num_collectives ? profile->num_links
                                                             : profile->num_collectives;
    enum status rc = gather_init(&gather, room, query->spread, err);
    for (int p = 0; p < 2 && rc == OK; p++) {
        int64_t pairs = fewest_pairs(profile, places[p]);
        for (int i = 0; i < profile->num_links; i++)
            if (profile->links[i].ranks == pairs && strcmp(profile->links[i].place, places[p]) == 0)
                gather_add(&gather, profile->links[i].bytes, &profile->links[i].ns);
        rc = gather_curve(&gather, curves[p], err);
    }
    /* All-reduces, a curve for each place and number of ranks. */
    kind->groups = calloc((size_t)profile->num_collectives + 1, sizeof *kind->groups);
    if (!kind->groups)
        rc = err_nomem(err);
    for (int i = 0; i < profile->num_collectives && rc == OK; i++) {
        const struct collective_row *row = &profile->collectives[i];
        const bool net = strcmp(row->place, "net") == 0;
        bool known = strcmp(row->op, "allreduce") != 0;
        for (int g = 0; g < kind->num_groups && !known; g++)
            known = kind->groups[g].ranks == row->ranks && kind->groups[g].net == net;
        if (known)
            continue;
        for (int j = i; j < profile->num_collectives; j++) {
            const struct collective_row *other = &profile->collectives[j];
            if (other->ranks == row->ranks && strcmp(other->op, row->op) == 0 &&
                strcmp(other->place, row->place) == 0)
                gather_add(&gather, other->bytes, &other->ns);
        }
        kind->groups[kind->num_groups].net = net;
        kind->groups[kind->num_groups].ranks = (int)row->ranks;
        rc = gather_curve(&gather, &kind->groups[kind->num_groups++].bytes, err);
    }
    gather_clear(&gather);
    return rc;
}

/* A host cost at the combo's threads and ranks, or the nearest; by bytes where it has sizes. */
static enum status gather_host(const struct profile *profile, const char *what,
                               const struct combo *combo, int64_t bytes, int spread, int64_t *ns,
                               struct err *err)
{
    struct gather gather = {0};
    struct curve curve = {0};
    int64_t best = INT64_MAX;
    bool beyond = false;
    enum status rc = gather_init(&gather, profile->num_hosts, spread, err);
    for (int pass = 0; pass < 2 && rc == OK; pass++)
        for (int i = 0; i < profile->num_hosts; i++) {
            const struct host_row *row = &profile->hosts[i];
            if (strcmp(row->what, what) != 0 || strcmp(row->backend, combo->backend) != 0)
                continue;
            int64_t far =
                llabs(row->threads - combo->threads) * 65536 + llabs(row->ranks - combo->ranks);
            if (pass == 0 && far < best)
                best = far;
            else if (pass == 1 && far == best)
                gather_add(&gather, row->bytes, &row->ns);
        }
    *ns = 0;
    if (rc == OK && gather.n > 0) {
        rc = gather_curve(&gather, &curve, err);
        if (rc == OK)
            *ns = (int64_t)(curve_at(&curve, curve.n > 1 ? (double)bytes : curve.x[0], &beyond) +
                            0.5);
    }
    curve_clear(&curve);
    gather_clear(&gather);
    return rc;
}

/* What the rows of a kind take per sample (or per byte): the row nearest in bytes, or (near_bytes
 * 0) in threads and ranks of the combo; 0: not measured. */
static double host_rate(const struct profile *profile, const char *what, const struct combo *combo,
                        int spread, bool per_sample, int64_t near_bytes, int64_t *bytes)
{
    int64_t best = INT64_MAX;
    double rate = 0;
    for (int i = 0; i < profile->num_hosts; i++) {
        const struct host_row *row = &profile->hosts[i];
        int64_t far = near_bytes > 0 ? llabs(row->bytes - near_bytes)
                                     : llabs(row->threads - combo->threads) * 65536 +
                                           llabs(row->ranks - combo->ranks);
        int64_t count = per_sample ? row->samples : row->bytes;
        if (strcmp(row->what, what) != 0 || strcmp(row->backend, combo->backend) != 0 ||
            far >= best || count <= 0)
            continue;
        best = far;
        rate = (spread < 0   ? row->ns.p10_ns
                : spread > 0 ? row->ns.p90_ns
                             : row->ns.median_ns) /
               (double)count;
        *bytes = row->bytes;
    }
    return rate;
}

/* Preparing a sample on the cores that compute: proportional to the sample's size. */
static double input_rate(const struct profile *profile, const struct model *model,
                         const struct combo *combo, int spread)
{
    int64_t bytes = 0, own = 4 * (int64_t)model->seq;
    if (model->family == FAMILY_VIT)
        own = 4 * (int64_t)model->channels * model->image * model->image;
    double rate = host_rate(profile, "input", combo, spread, true, own, &bytes);
    return strcmp(combo->backend, "cpu") == 0 && bytes > 0 ? rate * (double)own / (double)bytes : 0;
}

/* Relative spread of the rows that were measured this way, by time; see profile_noise(). */
static double mean_spread(const struct profile *profile, const struct combo *combo,
                          const char *dtype)
{
    double range = 0, sum = 0;
    for (int i = 0; i < profile->num_layers; i++) {
        const struct spread *ns = &profile->layers[i].ns;
        if (!in_combo(&profile->layers[i], combo, dtype))
            continue;
        range += ns->p90_ns - ns->p10_ns;
        sum += ns->median_ns;
    }
    return sum > 0 ? range / sum : 0;
}

static int devices_per_node(const struct cluster *cluster)
{
    int most = 0, here = 0;
    for (int i = 0; i < cluster->num_devices; i++) {
        here = i && cluster->devices[i].node == cluster->devices[i - 1].node ? here + 1 : 1;
        most = here > most ? here : most;
    }
    return most;
}

static enum status build_kind(const struct profile *profile, const struct model *model,
                              const struct cluster *cluster, const struct cost_query *query,
                              struct kind_cost *kind, char note[256], struct err *err)
{
    const char *dtype = dtype_text(query->dtype);
    struct combo combos[MAX_COMBOS];
    struct err first = {0};
    int per_node = devices_per_node(cluster), n, c;
    int64_t threads = query->threads ? query->threads : per_node > 1 ? 1 : INT32_MAX;
    int64_t ranks = query->ranks ? query->ranks : per_node;
    enum status rc = ERR_INFEASIBLE;
    n = list_combos(profile, query, threads, ranks, combos);
    for (c = 0; c < n; c++) {
        struct err inner = {0};
        *kind = (struct kind_cost){0};
        rc = gather_items(profile, model, &combos[c], query, kind, &inner);
        if (rc == OK)
            break;
        kind_clear(kind);
        if (c == 0)
            first = inner;
        if (rc != ERR_INFEASIBLE)
            return err_copy(err, &inner);
    }
    if (rc != OK && n > 0)
        return err_copy(err, &first);
    if (rc != OK)
        return err_set(err, ERR_INFEASIBLE,
                       "no layers for model '%s' in profile '%s': nothing in %s%s%s", model->name,
                       profile->info.name, dtype, query->backend ? " for backend " : "",
                       query->backend ? query->backend : "");
    int64_t sample_bytes = (int64_t)model->hidden * model->seq * 4;
    rc = gather_links(profile, query, kind, err);
    if (rc == OK)
        rc = gather_host(profile, "op_overhead", &combos[c], 0, query->spread,
                         &kind->op_overhead_ns, err);
    if (rc == OK)
        rc = gather_host(profile, "cache_read", &combos[c], sample_bytes, query->spread,
                         &kind->cache_read_ns, err);
    if (rc == OK)
        rc = gather_host(profile, "cache_write", &combos[c], sample_bytes, query->spread,
                         &kind->cache_write_ns, err);
    if (rc != OK) {
        kind_clear(kind);
        return rc;
    }
    int64_t bytes;
    kind->norm_ns_per_byte =
        host_rate(profile, "norm", &combos[c], query->spread, false, 0, &bytes);
    /* Where a node has more cores than its ranks have threads, a spare one prepares the samples. */
    if (query->input && combos[c].threads * ranks >= profile->info.cores)
        kind->input_ns_per_sample = input_rate(profile, model, &combos[c], query->spread);
    kind->spread = mean_spread(profile, &combos[c], dtype);
    kind->rows_alone = profile_rows_alone(&profile->info, query->dtype);
    snprintf(kind->kind, sizeof kind->kind, "%s", profile->info.device_kind);
    snprintf(kind->profile, sizeof kind->profile, "%s", profile->info.name);
    if (query->threads && combos[c].threads && combos[c].threads != query->threads)
        snprintf(note, 256, "profile '%s' was measured with %lld threads a rank, not %d",
                 profile->info.name, (long long)combos[c].threads, query->threads);
    else if (strcmp(profile->info.source, "published") != 0 && combos[c].ranks != ranks)
        snprintf(note, 256, "profile '%s' was measured with %lld busy ranks a node, not %lld",
                 profile->info.name, (long long)combos[c].ranks, (long long)ranks);
    else if (rest_unknown(kind, model))
        snprintf(note, 256,
                 "profile '%s' does not tell what is left of the backward of the first trained "
                 "item behind frozen layers; taken as the whole of its input half",
                 profile->info.name);
    else if (kind->spread > PROFILE_NOISY)
        snprintf(note, 256, "profile '%s' is noisy: p10 to p90 spans %.0f %% of the median",
                 profile->info.name, 100 * kind->spread);
    return OK;
}

/* Keep of a range what the curve covers too; {0, 0} is all. */
static void narrow(const struct curve *curve, int64_t range[2])
{
    if (curve->n == 0)
        return;
    const int64_t least = (int64_t)curve->x[0], most = (int64_t)curve->x[curve->n - 1];
    if (range[1] == 0 || least > range[0])
        range[0] = least;
    if (range[1] == 0 || most < range[1])
        range[1] = most;
}

/* Fill the rest of a handle whose ctx is complete. */
static void finish_handle(struct cost_handle *handle, struct profile_cost *ctx, bool published)
{
    struct cost *cost = &handle->cost;
    bool links = false, groups = false;
    size_t used;
    handle->ctx = ctx;
    *cost = (struct cost){.source = COST_MEASURED, .ctx = ctx, .item_ns = item_ns};
    cost->rows_alone = ctx->num_kinds > 0;
    used = (size_t)snprintf(cost->label, sizeof cost->label, "profile ");
    for (int k = 0; k < ctx->num_kinds; k++) {
        const struct kind_cost *kind = &ctx->kinds[k];
        if (used < sizeof cost->label)
            used += (size_t)snprintf(cost->label + used, sizeof cost->label - used, "%s%s",
                                     k ? ", " : "", kind->profile);
        handle->spread = kind->spread > handle->spread ? kind->spread : handle->spread;
        links = links || kind->node_link.n || kind->net_link.n;
        groups = groups || kind->num_groups || kind->net_link.n;
        narrow(&kind->node_link, cost->message_bytes);
        for (int g = 0; g < kind->num_groups; g++)
            if (!kind->groups[g].net)
                narrow(&kind->groups[g].bytes, cost->allreduce_bytes);
        cost->rows_alone = cost->rows_alone && kind->rows_alone;
        if (kind->op_overhead_ns > cost->op_overhead_ns)
            cost->op_overhead_ns = kind->op_overhead_ns;
        if (kind->input_ns_per_sample > cost->input_ns_per_sample)
            cost->input_ns_per_sample = kind->input_ns_per_sample;
        if (kind->norm_ns_per_byte > cost->norm_ns_per_byte)
            cost->norm_ns_per_byte = kind->norm_ns_per_byte;
        if (kind->cache_read_ns > cost->cache_read_ns)
            cost->cache_read_ns = kind->cache_read_ns;
        if (kind->cache_write_ns > cost->cache_write_ns)
            cost->cache_write_ns = kind->cache_write_ns;
    }
    if (used < sizeof cost->label)
        snprintf(cost->label + used, sizeof cost->label - used,
                 published ? " (published)" : " (measured)");
    if (links)
        cost->transfer_ns = transfer_ns;
    if (groups)
        cost->allreduce_ns = allreduce_ns;
}

static struct profile_cost *ctx_new(int num_kinds)
{
    struct profile_cost *ctx = calloc(1, sizeof *ctx);
    if (ctx)
        ctx->kinds = calloc((size_t)num_kinds, sizeof *ctx->kinds);
    if (ctx && !ctx->kinds) {
        free(ctx);
        ctx = NULL;
    }
    return ctx;
}

static const struct cost_query any_query = {.dtype = DTYPE_FP32};

enum status profile_cost(const struct profile *profile, const struct model *model,
                         const struct cluster *cluster, const struct cost_query *query,
                         struct cost_handle *handle, struct err *err)
{
    struct profile_cost *ctx = ctx_new(1);
    char note[256] = "";
    if (!ctx)
        return err_nomem(err);
    enum status rc =
        build_kind(profile, model, cluster, query ? query : &any_query, &ctx->kinds[0], note, err);
    if (rc != OK) {
        profile_cost_free(ctx);
        return rc;
    }
    ctx->num_kinds = 1;
    *handle = (struct cost_handle){0};
    strcpy(handle->note, note);
    finish_handle(handle, ctx, strcmp(profile->info.source, "published") == 0);
    return OK;
}

/* --- choosing --------------------------------------------------------------------------------- */

/* Measured before published, this host before others, later before earlier. */
static bool better(const struct profile_info *a, const struct profile_info *b, const char *host)
{
    bool a_measured = strcmp(a->source, "measured") == 0;
    bool b_measured = strcmp(b->source, "measured") == 0;
    bool a_here = strcmp(a->host, host) == 0, b_here = strcmp(b->host, host) == 0;
    if (a_measured != b_measured)
        return a_measured;
    if (a_here != b_here)
        return a_here;
    return strcmp(a->measured_at, b->measured_at) > 0;
}

/* What of the machine is not as it was when the profile was measured, "driver, libraries", behind
 * what the note says already. */
static void note_differences(const struct profile_info *then, const struct profile_info *now,
                             enum dtype dtype, char note[256])
{
    /* Of interest where it computes; a profile of before it was written down says nothing. */
    const bool bf16 = dtype == DTYPE_BF16 && *then->bf16_kernel,
               fp32 = dtype == DTYPE_FP32 && *then->fp32_kernel;
    const struct {
        const char *name, *then, *now;
    } texts[] = {
        {"host",        then->host,        now->host                   },
        {"device",      then->device_name, now->device_name            },
        {"driver",      then->driver,      now->driver                 },
        {"libraries",   then->libraries,   now->libraries              },
        {"bf16 kernel", then->bf16_kernel, bf16 ? now->bf16_kernel : ""},
        {"fp32 kernel", then->fp32_kernel, fp32 ? now->fp32_kernel : ""},
    };
    char list[64] = "";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i].now && strcmp(texts[i].then, texts[i].now) != 0)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "",
                     texts[i].name);
    /* A clock that a governor moves a little is still the same clock. */
    if (now->clock_mhz && llabs(then->clock_mhz - now->clock_mhz) * 20 > now->clock_mhz)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%sclock", *list ? ", " : "");
    const size_t used = strlen(note);
    if (*list && used)
        snprintf(note + used, 256 - used, "; it was measured with another %s", list);
    else if (*list)
        snprintf(note, 256, "profile '%s' was measured with another %s", then->name, list);
}

/* The best profile of a device kind that knows the whole model. ERR_INFEASIBLE: there is none, and
 * err says what the best of those that exist lacks. */
static enum status choose_kind(struct store *store, const char *device_kind,
                               const struct model *model, const struct cluster *cluster,
                               const struct cost_query *query, struct kind_cost *kind,
                               bool *published, char note[256], struct err *err)
{
    struct profile_info *infos = NULL;
    char host[64] = "";
    struct err first = {0};
    int count = 0;
    enum status rc = store_list_profiles(store, device_kind, &infos, NULL, &count, err);
    if (rc != OK)
        return rc;
    gethostname(host, sizeof host - 1);
    rc = ERR_INFEASIBLE;
    for (int i = 0; i < count; i++) { /* selection sort, one choice at a time */
        int best = i;
        for (int j = i + 1; j < count; j++)
            if (better(&infos[j], &infos[best], host))
                best = j;
        struct profile_info swap = infos[i];
        infos[i] = infos[best];
        infos[best] = swap;
        struct profile profile = {0};
        struct err inner = {0};
        char here[256] = "";
        rc = store_get_profile(store, infos[i].name, &profile, &inner);
        if (rc == OK)
            rc = build_kind(&profile, model, cluster, query, kind, here, &inner);
        profile_clear(&profile);
        if (rc == OK) {
            *published = strcmp(infos[i].source, "published") == 0;
            if (query->present)
                note_differences(&infos[i], query->present, query->dtype, here);
            else if (!*here && strcmp(cluster->name, "this-machine") == 0 &&
                     strcmp(infos[i].host, host) != 0)
                snprintf(here, sizeof here, "profile '%s' was measured on another machine, '%s'",
                         infos[i].name, infos[i].host);
            if (*here)
                memcpy(note, here, sizeof here);
            break;
        }
        if (rc != ERR_INFEASIBLE) {
            err_copy(err, &inner);
            break;
        }
        if (i == 0)
            first = inner;
    }
    if (rc == ERR_INFEASIBLE)
        err_set(err, rc, "%s", *first.msg ? first.msg : "");
    free(infos);
    return rc;
}

static int list_kinds(const struct cluster *cluster, const char *kinds[MAX_KINDS])
{
    int n = 0;
    for (int i = 0; i < cluster->num_devices; i++) {
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = strcmp(kinds[k], cluster->devices[i].kind) == 0;
        if (!known && n == MAX_KINDS)
            return -1;
        if (!known)
            kinds[n++] = cluster->devices[i].kind;
    }
    return n;
}

static bool is_opaque(const struct model *model)
{
    return model->family == FAMILY_UNIFORM || model->family == FAMILY_EXPLICIT;
}

/* The roofline, if it knows every kind of device of the cluster. */
static enum status choose_roofline(const struct model *model, const struct cluster *cluster,
                                   const char *const *kinds, int num_kinds,
                                   struct cost_handle *handle, struct err *err)
{
    cost_roofline(&handle->cost);
    for (int k = 0; k < num_kinds; k++) {
        for (int i = 0; i < cluster->num_devices; i++) {
            int64_t ns;
            bool beyond = false;
            if (strcmp(cluster->devices[i].kind, kinds[k]) != 0)
                continue;
            enum status rc = handle->cost.item_ns(handle->cost.ctx, model, 0, PASS_FWD, 1,
                                                  &cluster->devices[i], &ns, &beyond, err);
            if (rc != OK) {
                *handle = (struct cost_handle){0};
                return rc;
            }
            break;
        }
    }
    return OK;
}

enum status cost_choose_for(const char *db_path, const struct model *model,
                            const struct cluster *cluster, const struct cost_query *query,
                            struct cost_handle *handle, struct err *err)
{
    const char *kinds[MAX_KINDS];
    struct store *store = NULL;
    struct profile_cost *ctx = NULL;
    struct cost_handle got = {0};
    bool published = false;
    enum status rc = OK;
    int n = list_kinds(cluster, kinds);
    if (is_opaque(model)) {
        cost_constant(&got.cost);
        *handle = got;
        return OK;
    }
    if (n < 0)
        return err_set(err, ERR_INPUT, "cluster '%s' has more than %d kinds of device",
                       cluster->name, MAX_KINDS);
    if (!query)
        query = &any_query;
    rc = store_open(db_path, STORE_READ, &store, err);
    if (rc != OK)
        return rc;
    ctx = ctx_new(n);
    if (!ctx) {
        rc = err_nomem(err);
        goto out;
    }
    struct err inner = {0};
    for (int k = 0; k < n && rc == OK; k++) {
        bool from_paper = false;
        rc = choose_kind(store, kinds[k], model, cluster, query, &ctx->kinds[k], &from_paper,
                         got.note, &inner);
        ctx->num_kinds += rc == OK;
        published = published || from_paper;
    }
    if (rc == OK) {
        finish_handle(&got, ctx, published);
        ctx = NULL;
    } else if (rc == ERR_INFEASIBLE) {
        snprintf(got.note, sizeof got.note, "%.255s", inner.msg);
        rc = choose_roofline(model, cluster, kinds, n, &got, err);
    } else {
        err_copy(err, &inner);
    }
    if (rc == OK)
        *handle = got;
out:
    profile_cost_free(ctx);
    store_close(store);
    return rc;
}

enum status cost_choose(const char *db_path, const struct job *job, struct cost_handle *handle,
                        struct err *err)
{
    const struct cost_query query = {.dtype = job->train.dtype,
                                     .input = job->data.kind == DATA_SYNTHETIC};
    return cost_choose_for(db_path, &job->model, &job->cluster, &query, handle, err);
}
