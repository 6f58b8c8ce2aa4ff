/* Curves of one device kind, from the rows of a profile. kind_cost_build() lists the ways of
 * measuring in the profile, takes the nearest one that has every item of the model, and gathers the
 * rows of that way into curves. Read cost_internal.h first, then kind_cost_build() at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/cost/cost_internal.h"

enum { MAX_COMBOS = 256 };

/* One way of measuring (backend, threads, busy ranks). Rows of different ways are never mixed. */
struct combo {
    const char *backend;
    int64_t threads, ranks;
};

void kind_cost_clear(struct kind_cost *kind)
{
    for (int i = 0; i < kind->num_items; i++)
        for (int p = 0; p < PASS_COUNT; p++)
            curve_clear(&kind->items[i].passes[p]);
    for (int g = 0; g < kind->num_groups; g++)
        curve_clear(&kind->groups[g].bytes);
    for (int p = 0; p <= PASS_BWD_WEIGHT; p++)
        curve_clear(&kind->near[p]);
    curve_clear(&kind->node_link);
    curve_clear(&kind->net_link);
    free(kind->items);
    free(kind->groups);
    *kind = (struct kind_cost){0};
}

/* The points of a curve, gathered from rows. */
struct gather {
    double *x, *y, *weight;
    int n;
    int spread; /* as in struct cost_query: which percentile of a row counts */
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

/* List the distinct ways of measuring that match the query, nearest first: by threads, then ranks.
 */
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

/* Whether an item takes time in this pass, so the profile must have it. Profiles of older versions
 * lack PASS_BWD_REST and PASS_FWD_NOGRAD; gather_items() substitutes them. */
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

static void gather_rows(struct gather *gather, const struct profile *profile,
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

/* Gather the rows of one pass, with or without dropout as the query asks. Frozen layers and updates
 * have no dropout. If no such rows exist, the rows of the other kind are used, and
 * kind->dropout_unknown tells so. */
static void gather_pass(struct gather *gather, const struct profile *profile,
                        const struct combo *combo, const struct cost_query *query,
                        const struct layer_key *key, enum pass pass, struct kind_cost *kind)
{
    const char *dtype = dtype_text(query->dtype);
    struct layer_key dropping = *key;
    layer_key_dropping(&dropping);
    if (pass == PASS_FWD_NOGRAD || pass == PASS_UPDATE) {
        gather_rows(gather, profile, combo, dtype, key, pass);
        return;
    }
    gather_rows(gather, profile, combo, dtype, query->dropout ? &dropping : key, pass);
    if (gather->n > 0)
        return;
    gather_rows(gather, profile, combo, dtype, query->dropout ? key : &dropping, pass);
    kind->dropout_unknown = kind->dropout_unknown || gather->n > 0;
}

/* Make the curves of every distinct item of the model. ERR_INFEASIBLE if the profile lacks one. */
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
            gather_pass(&gather, profile, combo, query, &key, (enum pass)p, kind);
            if (gather.n == 0 && p == PASS_BWD_REST && item->passes[PASS_BWD_INPUT].n > 0) {
                gather_pass(&gather, profile, combo, query, &key, PASS_BWD_INPUT, kind);
                item->rest_unknown = true;
            }
            if (gather.n == 0 && p == PASS_FWD_NOGRAD)
                gather_pass(&gather, profile, combo, query, &key, PASS_FWD, kind);
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

/* Whether PASS_BWD_REST is unknown for an item that can be the first one after frozen layers. */
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

/* The smallest number of busy pairs that was measured at a place; -1: nothing was. */
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
    /* All-reduces get a curve for each place and number of ranks. */
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

/* Make the curves of the time that near stash saves. Only rows of this way of measuring count,
 * because threads and ranks share the processor's caches. */
static enum status gather_near(const struct profile *profile, const struct combo *combo,
                               const struct cost_query *query, struct kind_cost *kind,
                               struct err *err)
{
    struct gather gather = {0};
    /* The sign flips: the 10th percentile of times goes with the 90th percentile of savings. */
    enum status rc = gather_init(&gather, profile->num_hosts, -query->spread, err);
    for (int p = 0; p <= PASS_BWD_WEIGHT && rc == OK; p++) {
        char name[24];
        near_row_name((enum pass)p, query->dtype, name);
        for (int i = 0; i < profile->num_hosts; i++) {
            const struct host_row *row = &profile->hosts[i];
            if (strcmp(row->what, name) == 0 && strcmp(row->backend, combo->backend) == 0 &&
                row->threads == combo->threads && row->ranks == combo->ranks) {
                gather_add(&gather, row->bytes, &row->ns);
                gather.y[gather.n - 1] *= -1;
            }
        }
        rc = gather_curve(&gather, &kind->near[p], err);
    }
    gather_clear(&gather);
    return rc;
}

/* A host cost, from the rows whose threads and ranks are nearest to the combo's. If the rows have
 * sizes, it is read from their curve at `bytes`. */
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

/* Time per sample (or per byte) in the rows named `what`; 0: not measured. Uses the row whose bytes
 * are nearest to near_bytes, or with near_bytes 0 the row whose threads and ranks are nearest to
 * the combo's. */
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

/* Time to prepare a sample on the cores that compute, in proportion to the sample's size. */
static double input_rate(const struct profile *profile, const struct model *model,
                         const struct combo *combo, int spread)
{
    int64_t bytes = 0, own = 4 * (int64_t)model->seq;
    if (model_has_images(model))
        own = 4 * (int64_t)model->channels * model->image * model->image;
    double rate = host_rate(profile, "input", combo, spread, true, own, &bytes);
    return strcmp(combo->backend, "cpu") == 0 && bytes > 0 ? rate * (double)own / (double)bytes : 0;
}

/* Mean relative spread of the rows of this way of measuring, weighted by time; see profile_noise().
 */
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

/* Say how the profile's machine differs from the one that is asked about, and what is wrong with it. */
static void write_note(const struct profile *profile, const struct model *model,
                       const struct cost_query *query, const struct combo *combo, int64_t ranks,
                       const struct kind_cost *kind, char note[COST_NOTE_BYTES])
{
    if (query->threads && combo->threads && combo->threads != query->threads)
        cost_note_add(note, "profile '%s' was measured with %lld threads a rank, not %d",
                      profile->info.name, (long long)combo->threads, query->threads);
    else if (strcmp(profile->info.source, "published") != 0 && combo->ranks != ranks)
        cost_note_add(note, "profile '%s' was measured with %lld busy ranks a node, not %lld",
                      profile->info.name, (long long)combo->ranks, (long long)ranks);
    else if (strcmp(profile->info.source, "published") != 0 && kind->dropout_unknown)
        cost_note_add(note, "profile '%s' was measured with%s dropout: 'elapse profile%s' with%s",
                      profile->info.name, query->dropout ? "out" : "",
                      query->dropout ? " --dropout" : "", query->dropout ? "" : "out");
    else if (rest_unknown(kind, model))
        cost_note_add(note,
                      "profile '%s' has no bwd_rest time of the first trained item after frozen "
                      "layers; its bwd_input time is used instead",
                      profile->info.name);
    if (kind->spread > PROFILE_NOISY)
        cost_note_add(note, "profile '%s' is noisy: p10 to p90 spans %.0f %% of the median",
                      profile->info.name, 100 * kind->spread);
    const char *lacks = strstr(profile->info.note, PROFILE_INCOMPLETE);
    if (lacks)
        cost_note_add(note, "profile '%s' is %s", profile->info.name, lacks);
}

/* Gather the items' times by the first of n combos that has them all. *chosen: that one. */
static enum status gather_by_combo(const struct profile *profile, const struct model *model,
                                   const struct combo *combos, int n,
                                   const struct cost_query *query, struct kind_cost *kind,
                                   int *chosen, struct err *err)
{
    struct err first = {0};
    for (int c = 0; c < n; c++) {
        struct err inner = {0};
        *kind = (struct kind_cost){0};
        const enum status rc = gather_items(profile, model, &combos[c], query, kind, &inner);
        *chosen = c;
        if (rc == OK)
            return OK;
        kind_cost_clear(kind);
        if (c == 0)
            first = inner;
        if (rc != ERR_INFEASIBLE)
            return err_copy(err, &inner);
    }
    if (n > 0)
        return err_copy(err, &first);
    return err_set(err, ERR_INFEASIBLE,
                   "no layers for model '%s' in profile '%s': nothing in %s%s%s", model->name,
                   profile->info.name, dtype_text(query->dtype),
                   query->backend ? " for backend " : "", query->backend ? query->backend : "");
}

enum status kind_cost_build(const struct profile *profile, const struct model *model,
                            const struct cluster *cluster, const struct cost_query *query,
                            struct kind_cost *kind, char note[COST_NOTE_BYTES], struct err *err)
{
    const char *dtype = dtype_text(query->dtype);
    struct combo combos[MAX_COMBOS];
    int per_node = devices_per_node(cluster), n, c = 0;
    int64_t threads = query->threads ? query->threads : per_node > 1 ? 1 : INT32_MAX;
    int64_t ranks = query->ranks ? query->ranks : per_node;
    n = list_combos(profile, query, threads, ranks, combos);
    enum status rc = gather_by_combo(profile, model, combos, n, query, kind, &c, err);
    if (rc != OK)
        return rc;
    int64_t sample_bytes = (int64_t)model->hidden * model->seq * 4;
    rc = gather_links(profile, query, kind, err);
    THEN(gather_near(profile, &combos[c], query, kind, err));
    THEN(gather_host(profile, "op_overhead", &combos[c], 0, query->spread, &kind->op_overhead_ns,
                     err));
    THEN(gather_host(profile, "cache_read", &combos[c], sample_bytes, query->spread,
                     &kind->cache_read_ns, err));
    THEN(gather_host(profile, "cache_write", &combos[c], sample_bytes, query->spread,
                     &kind->cache_write_ns, err));
    if (rc != OK) {
        kind_cost_clear(kind);
        return rc;
    }
    int64_t bytes;
    kind->norm_ns_per_byte =
        host_rate(profile, "norm", &combos[c], query->spread, false, 0, &bytes);
    const int64_t large =
        INT64_MAX / 2; /* more than any measured copy: host_rate() takes the largest */
    kind->copy_in_ns_per_byte =
        host_rate(profile, "copy_in", &combos[c], query->spread, false, large, &bytes);
    kind->copy_out_ns_per_byte =
        host_rate(profile, "copy_out", &combos[c], query->spread, false, large, &bytes);
    /* If a node has more cores than its ranks have threads, idle cores prepare the samples. */
    if (query->input && combos[c].threads * ranks >= profile->info.cores)
        kind->input_ns_per_sample = input_rate(profile, model, &combos[c], query->spread);
    kind->spread = mean_spread(profile, &combos[c], dtype);
    kind->bits_independent_of_row_count =
        profile_bits_independent_of_row_count(&profile->info, query->dtype);
    snprintf(kind->kind, sizeof kind->kind, "%s", profile->info.device_kind);
    snprintf(kind->profile, sizeof kind->profile, "%s", profile->info.name);
    write_note(profile, model, query, &combos[c], ranks, kind, note);
    return OK;
}
