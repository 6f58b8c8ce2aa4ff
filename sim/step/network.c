/* Max-min fair sharing in integers; sim/step/network.h says what a channel is.
 *
 * network_start() puts a channel on its resources, network_finished() takes it off, and both mark
 * the resources whose users changed. network_settle() then gathers the channels and resources whose
 * rates may follow from a marked one, and computes these again. Read
 * set_event() for how a rate becomes a time, then settle(). */
#include "sim/step/network.h"

#include <stdlib.h>

enum status network_init(struct network *network, const struct cluster *cluster, int num_channels,
                         int64_t max_hops, const int32_t *alike, struct event_queue *queue,
                         int32_t first_entry, struct err *err)
{
    if (max_hops > INT32_MAX)
        return err_set(err, ERR_INPUT, "network: %lld hops, at most %d", (long long)max_hops,
                       INT32_MAX);
    struct network got = {0};
    got.cluster = cluster;
    got.num_channels = num_channels;
    got.num_resources = cluster_num_resources(cluster);
    got.alike = alike;
    got.whole = alike != NULL;
    got.queue = queue;
    got.first_entry = first_entry;
    got.free_transfer = -1;
    size_t resources = (size_t)got.num_resources, channels = (size_t)num_channels;
    got.channels = arrays_new(&got.arrays, channels + 1, sizeof *got.channels);
    got.resources = arrays_new(&got.arrays, resources, sizeof *got.resources);
    got.hops = arrays_new(&got.arrays, (size_t)max_hops + 1, sizeof *got.hops);
    got.active = arrays_new(&got.arrays, (size_t)max_hops + 1, sizeof *got.active);
    got.lists = arrays_new(&got.arrays, resources, sizeof *got.lists);
    got.dirty = arrays_new(&got.arrays, resources, sizeof *got.dirty);
    got.fill = arrays_new(&got.arrays, resources, sizeof *got.fill);
    got.fill_channels = arrays_new(&got.arrays, channels + 1, sizeof *got.fill_channels);
    got.filled = arrays_new(&got.arrays, channels + 1, sizeof *got.filled);
    got.edge_count = arrays_new(&got.arrays, resources, sizeof *got.edge_count);
    got.hop_of = arrays_new(&got.arrays, resources, sizeof *got.hop_of);
    if (got.arrays.failed) {
        network_clear(&got);
        return err_nomem(err);
    }
    for (int r = 0; r < got.num_resources; r++)
        got.resources[r].capacity = cluster_capacity(cluster, r);
    for (int c = 0; c < num_channels; c++)
        got.channels[c] = (struct channel){
            .head = -1, .tail = -1, .wait_head = -1, .wait_tail = -1, .solo_rate = INT64_MAX};
    *network = got;
    return OK;
}

void network_clear(struct network *network)
{
    arrays_clear(&network->arrays);
    free(network->transfers);
    *network = (struct network){0};
}

/* A path of the channel crosses a resource `count` times. */
static void cross(struct network *network, int channel, int32_t resource, int32_t count)
{
    struct channel *c = &network->channels[channel];
    const int32_t on = network->alike ? network->alike[resource] : resource;
    const int64_t rate = network->resources[resource].capacity / count;
    c->num_crossed++;
    if (rate < c->solo_rate)
        c->solo_rate = rate > 0 ? rate : 1;
    struct hop *hop = &network->hops[network->hop_of[on]];
    if (c->num_hops == 0)
        c->first_hop = network->num_hops;
    if (c->num_hops == 0 || hop->channel != channel || hop->resource != on) {
        network->hop_of[on] = network->num_hops;
        hop = &network->hops[network->num_hops++];
        *hop = (struct hop){on, 0, channel, -1};
        c->num_hops++;
        network->resources[on].num_hops++;
    }
    if (on == resource) {
        c->twins = c->twins || hop->weight > 0;
        hop->weight += count;
    }
}

void network_add_pair(struct network *network, int channel, int from, int to)
{
    int32_t path[PATH_MAX_HOPS];
    const int hops = cluster_path(network->cluster, from, to, path);
    network->channels[channel].num_paths++;
    for (int i = 0; i < hops; i++)
        cross(network, channel, path[i], 1);
}

void network_add_ring(struct network *network, int channel, const int *devices, int n)
{
    network->channels[channel].num_paths++;
    int *count = network->edge_count; /* scratch; all entries are 0 between calls */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            int32_t used[PATH_MAX_HOPS];
            const int hops = cluster_path(network->cluster, devices[i], devices[(i + 1) % n], used);
            for (int j = 0; j < hops; j++) {
                if (pass == 0) {
                    count[used[j]]++;
                } else if (count[used[j]] > 0) {
                    cross(network, channel, used[j], count[used[j]]);
                    count[used[j]] = 0;
                }
            }
        }
    }
}

void network_ready(struct network *network)
{
    int32_t first = 0;
    for (int r = 0; r < network->num_resources; r++) {
        network->lists[r].first = first;
        first += network->resources[r].num_hops;
    }
}

int32_t network_take(struct network *network)
{
    if (network->free_transfer >= 0) {
        int32_t got = network->free_transfer;
        network->free_transfer = network->transfers[got].next;
        return got;
    }
    if (network->num_transfers == network->max_transfers) {
        if (network->max_transfers > INT32_MAX / 2)
            return -1;
        int32_t max = network->max_transfers ? 2 * network->max_transfers : 256;
        struct transfer *more =
            realloc(network->transfers, (size_t)max * sizeof *network->transfers);
        if (!more)
            return -1;
        network->transfers = more;
        network->max_transfers = max;
    }
    return network->num_transfers++;
}

void network_give(struct network *network, int32_t transfer)
{
    network->transfers[transfer].next = network->free_transfer;
    network->free_transfer = transfer;
}

static void set_tied(struct network *network, struct resource *r, bool uneven, bool tied)
{
    network->num_uneven += uneven - r->uneven;
    network->num_tied += tied - r->tied;
    r->uneven = uneven;
    r->tied = tied;
}

static void mark_dirty(struct network *network, int32_t resource)
{
    struct resource *r = &network->resources[resource];
    if (!r->dirty) {
        r->dirty = true;
        network->dirty[network->num_dirty++] = resource;
    }
}

static void serve(struct channel *c, int64_t now_ns)
{
    c->served += (service_t)(uint64_t)c->rate * (uint64_t)(now_ns - c->since_ns);
    c->since_ns = now_ns;
}

/* Set the event at which the channel's first transfer ends, rounded up to whole ns. */
static void set_event(struct network *network, int channel)
{
    struct channel *c = &network->channels[channel];
    service_t finish = network->transfers[c->head].finish;
    int64_t after = 0;
    if (finish > c->served) {
        service_t need = finish - c->served;
        uint64_t rate = (uint64_t)c->rate;
        if ((need >> 64) == 0) {
            after = (int64_t)(((uint64_t)need - 1) / rate + 1);
        } else {
            service_t ns = (need - 1) / rate + 1;
            after = ns < (service_t)INT64_MAX - (uint64_t)c->since_ns ? (int64_t)ns
                                                                      : INT64_MAX - c->since_ns;
        }
    }
    int32_t entry = network->first_entry + channel;
    if (c->queued)
        event_queue_remove(network->queue, entry);
    c->queued = true;
    c->stale = false;
    event_queue_push(network->queue, entry, EVENT_FLOW_END, c->since_ns + after);
}

/* The resource that sets the rate of a channel alone. */
static int32_t narrowest(const struct network *network, const struct channel *c)
{
    const struct hop *hops = &network->hops[c->first_hop];
    int least = 0;
    for (int i = 1; i < c->num_hops; i++)
        if (network->resources[hops[i].resource].capacity / hops[i].weight <
            network->resources[hops[least].resource].capacity / hops[least].weight)
            least = i;
    return hops[least].resource;
}

void network_start(struct network *network, int channel, int32_t transfer, int64_t solo_ns,
                   int64_t now_ns)
{
    struct channel *c = &network->channels[channel];
    struct hop *hops = &network->hops[c->first_hop];
    bool shared = c->num_active > 0;
    if (!shared) {
        c->served = 0;
        c->since_ns = now_ns;
        c->bound = network->whole ? 0 : narrowest(network, c);
        for (int i = 0; i < c->num_hops; i++) {
            struct hop_list *list = &network->lists[hops[i].resource];
            shared |= list->num > 0;
            hops[i].position = list->num;
            network->active[list->first + list->num++] = c->first_hop + i;
        }
        shared |= c->twins;
    } else {
        serve(c, now_ns);
    }
    network->met |= shared;
    struct transfer *t = &network->transfers[transfer];
    t->finish = c->served + (service_t)(uint64_t)c->solo_rate * (uint64_t)solo_ns;
    c->num_active++;
    if (c->head < 0) {
        t->next = -1;
        c->head = c->tail = transfer;
    } else if (network->transfers[c->tail].finish <= t->finish) {
        t->next = -1;
        network->transfers[c->tail].next = transfer;
        c->tail = transfer;
    } else { /* this transfer is smaller than those before it: the last micro-batch */
        int32_t *at = &c->head;
        while (network->transfers[*at].finish <= t->finish)
            at = &network->transfers[*at].next;
        t->next = *at;
        *at = transfer;
    }
    if (!shared) {
        c->rate = c->solo_rate;
        set_event(network, channel);
        return;
    }
    if (c->num_active == 1)
        c->rate = 0; /* until network_settle() */
    c->stale = true;
    for (int i = 0; i < c->num_hops; i++)
        mark_dirty(network, hops[i].resource);
}

int32_t network_finished(struct network *network, int channel, int64_t now_ns)
{
    struct channel *c = &network->channels[channel];
    c->queued = false;
    if (c->num_active == 0)
        return -1;
    if (c->since_ns != now_ns)
        serve(c, now_ns);
    int32_t first = c->head;
    struct hop *hops = &network->hops[c->first_hop];
    if (network->transfers[first].finish > c->served) {
        c->stale = true; /* other transfers continue, but the channel's event was popped */
        for (int i = 0; i < c->num_hops; i++)
            mark_dirty(network, hops[i].resource);
        return -1;
    }
    c->head = network->transfers[first].next;
    if (c->head < 0)
        c->tail = -1;
    if (--c->num_active == 0) {
        c->rate = 0;
        c->stale = false;
        for (int i = 0; i < c->num_hops; i++) {
            struct hop_list *list = &network->lists[hops[i].resource];
            const int32_t last = network->active[list->first + --list->num];
            network->active[list->first + hops[i].position] = last;
            network->hops[last].position = hops[i].position;
            hops[i].position = -1;
            if (list->num > 0)
                mark_dirty(network, hops[i].resource);
            else
                set_tied(network, &network->resources[hops[i].resource], false, false);
        }
    }
    return first;
}

/* Gather resources that are connected to `first` through active channels, and their channels: all of
 * them, or with `near` only through channels whose users or rates change. Returns the number of
 * resources. */
static int gather(struct network *network, int32_t first, bool near, int *num_channels)
{
    int num = 0, seen = 0;
    const uint32_t stamp = ++network->stamp;
    network->resources[first].stamp = stamp;
    network->fill[num++] = first;
    for (int i = 0; i < num; i++) {
        struct resource *r = &network->resources[network->fill[i]];
        r->dirty = r->dirty && near; /* until the rates are taken */
        r->left = r->capacity;
        r->weight = 0;
        if (r->uneven || r->tied)
            set_tied(network, r, false, false);
        const struct hop_list list = network->lists[network->fill[i]];
        for (int j = 0; j < list.num; j++) {
            const struct hop *hop = &network->hops[network->active[list.first + j]];
            struct channel *c = &network->channels[hop->channel];
            r->weight += (int64_t)hop->weight * c->num_active;
            if (c->stamp == stamp)
                continue;
            c->stamp = stamp;
            c->next_rate = 0;
            network->fill_channels[seen++] = hop->channel;
            for (int k = c->first_hop; k < c->first_hop + c->num_hops; k++) {
                struct resource *next = &network->resources[network->hops[k].resource];
                if (next->stamp != stamp && (!near || c->spreads || next->dirty)) {
                    next->stamp = stamp;
                    network->fill[num++] = network->hops[k].resource;
                }
            }
        }
    }
    *num_channels = seen;
    return num;
}

static int64_t share_of(const struct resource *r)
{
    int64_t share = r->left / r->weight;
    return share > 0 ? share : 1;
}

/* Whether all channels of a resource that are not filled yet are also on the other one. Of channels
 * with several paths this is not known. */
static bool takes_all(const struct network *network, int32_t resource, int32_t other)
{
    const struct hop_list list = network->lists[resource];
    for (int j = 0; j < list.num; j++) {
        const struct channel *c =
            &network->channels[network->hops[network->active[list.first + j]].channel];
        bool on_it = c->next_rate > 0;
        for (int k = c->first_hop; k < c->first_hop + c->num_hops && c->num_paths == 1; k++)
            on_it = on_it || network->hops[k].resource == other;
        if (!on_it)
            return false;
    }
    return true;
}

/* Whether another resource of the least share may take the channel out and leave others of this one.
 * That may also be one for which this one stands. */
static bool taken_alone(const struct network *network, const struct channel *c, int32_t resource,
                        int64_t least)
{
    const bool again = c->num_crossed > c->num_hops * c->num_paths;
    for (int k = c->first_hop; k < c->first_hop + c->num_hops; k++) {
        const int32_t other = network->hops[k].resource;
        if ((other != resource || again) && network->resources[other].share == least &&
            !takes_all(network, resource, other))
            return true;
    }
    return false;
}

/* Whether the order in which resources of the least share are filled decides a rate: others may take
 * channels of this one out, and its remainder is enough for 1 byte/s more for each one left. */
static bool order_counts(const struct network *network, int32_t resource, int64_t least)
{
    const struct resource *r = &network->resources[resource];
    const int64_t rest = r->left - r->weight * least;
    const struct hop_list list = network->lists[resource];
    int64_t taken = 0, smallest = INT64_MAX;
    for (int j = 0; rest != 0 && j < list.num; j++) {
        const struct hop *hop = &network->hops[network->active[list.first + j]];
        const struct channel *c = &network->channels[hop->channel];
        const int64_t users = (int64_t)hop->weight * c->num_active;
        const int64_t one = c->num_paths == 1 ? users : c->num_active;
        if (c->next_rate > 0)
            continue;
        smallest = one < smallest ? one : smallest;
        if (taken_alone(network, c, resource, least))
            taken += users;
    }
    const int64_t left = taken < r->weight ? r->weight - taken : smallest;
    return taken > 0 && (rest < 0 || rest >= left);
}

/* Whether the order may count at a resource of the least share, by less work than order_counts(): it
 * and another one share a channel, and one of them has a remainder. The other one may lie outside what
 * was gathered; then its share and remainder are those of its last fill, which still hold. */
static bool may_tie(const struct network *network, int32_t resource, int64_t least)
{
    const bool uneven = network->resources[resource].uneven;
    const struct hop_list list = network->lists[resource];
    for (int j = 0; j < list.num; j++) {
        const struct channel *c =
            &network->channels[network->hops[network->active[list.first + j]].channel];
        for (int k = c->first_hop; c->next_rate == 0 && k < c->first_hop + c->num_hops; k++) {
            const int32_t at = network->hops[k].resource;
            const struct resource *other = &network->resources[at];
            if (at != resource && other->share == least && (uneven || other->uneven))
                return true;
        }
    }
    return false;
}

/* Note at which of the resources fill[0 .. num) the order of filling may count. */
static void note_ties(struct network *network, int num, int64_t least)
{
    for (int i = 0; i < num && network->alike; i++)
        if (!network->unsure && network->resources[network->fill[i]].share == least)
            network->unsure = order_counts(network, network->fill[i], least);
    if (network->whole)
        return;
    for (int i = 0; i < num; i++) {
        struct resource *r = &network->resources[network->fill[i]];
        if (r->share == least)
            set_tied(network, r, r->left != r->weight * least, r->tied);
    }
    for (int i = 0; i < num && network->num_uneven > 0; i++) {
        struct resource *r = &network->resources[network->fill[i]];
        if (r->share == least)
            set_tied(network, r, r->uneven, r->tied || may_tie(network, network->fill[i], least));
    }
}

/* Make the rate that was computed the channel's. */
static void take_rate(struct network *network, int channel, int64_t now_ns)
{
    struct channel *c = &network->channels[channel];
    c->spreads = false;
    if (c->rate == c->next_rate && !c->stale)
        return;
    serve(c, now_ns);
    c->rate = c->next_rate;
    set_event(network, channel);
}

/* Compute a channel's rate, and take it from its resources. */
static inline void fill_channel(struct network *network, int channel, int64_t rate)
{
    struct channel *c = &network->channels[channel];
    c->next_rate = rate;
    for (int k = c->first_hop; k < c->first_hop + c->num_hops; k++) {
        struct resource *r = &network->resources[network->hops[k].resource];
        int64_t users = (int64_t)network->hops[k].weight * c->num_active;
        r->left -= users * rate;
        if (r->left < 0)
            r->left = 0; /* happens only if a share was raised to 1 */
        r->weight -= users;
    }
}

/* Compute the shares of the resources fill[0 .. *num) that still have channels to fill, and move the
 * others behind them. Returns the least share. */
static int64_t least_share(struct network *network, int *num)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < *num;) {
        const int32_t at = network->fill[i];
        struct resource *r = &network->resources[at];
        if (r->weight == 0) {
            network->fill[i] = network->fill[--*num];
            network->fill[*num] = at;
            continue;
        }
        r->share = share_of(r);
        if (r->share < least)
            least = r->share;
        i++;
    }
    return least;
}

/* Keep the rate of channels that a resource outside the gathered ones has bound. Gathered are all
 * resources of a channel whose users changed, so these channels have a rate. Returns the least. */
static int64_t bound_outside(struct network *network, int num_channels, int *num_outside)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < num_channels; i++) {
        const int32_t channel = network->fill_channels[i];
        const struct channel *c = &network->channels[channel];
        if (network->resources[c->bound].stamp == network->stamp)
            continue;
        network->fill_channels[i] = network->fill_channels[*num_outside];
        network->fill_channels[(*num_outside)++] = channel;
        if (c->rate < least)
            least = c->rate;
    }
    return least;
}

/* Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2) of the resources that were
 * gathered. The resource with the smallest share gives its channels this rate. They are taken out, and
 * the next resource follows. With `near` the channels, network->filled, wait for take_rate(), and the
 * answer is false if a tie was found. */
static bool fill(struct network *network, int num, int num_channels, bool near, int64_t now_ns)
{
    int num_filled = 0, num_outside = 0;
    int64_t outside = near ? bound_outside(network, num_channels, &num_outside) : INT64_MAX;
    while (num_filled < num_channels) {
        int64_t least = least_share(network, &num);
        note_ties(network, num, least);
        if (near && network->num_tied > 0)
            return false;
        if (outside <= least) {
            least = outside;
            outside = INT64_MAX;
            for (int i = 0; i < num_outside; i++) {
                const struct channel *c = &network->channels[network->fill_channels[i]];
                if (c->next_rate > 0)
                    continue;
                if (c->rate == least) {
                    fill_channel(network, network->fill_channels[i], least);
                    network->filled[num_filled++] = network->fill_channels[i];
                } else if (c->rate < outside) {
                    outside = c->rate;
                }
            }
            continue;
        }
        for (int i = 0; i < num; i++) {
            const struct resource *r = &network->resources[network->fill[i]];
            if (r->weight == 0 || share_of(r) != least)
                continue;
            const struct hop_list list = network->lists[network->fill[i]];
            for (int j = 0; j < list.num; j++) {
                const int channel = network->hops[network->active[list.first + j]].channel;
                if (network->channels[channel].next_rate == 0) {
                    network->channels[channel].bound = network->fill[i];
                    fill_channel(network, channel, least);
                    if (near)
                        network->filled[num_filled] = channel;
                    else
                        take_rate(network, channel, now_ns);
                    num_filled++;
                }
            }
        }
    }
    return true;
}

/* Whether a channel that gets another rate has resources that were not gathered. All of them will be. */
static bool spreads(struct network *network, int num_channels)
{
    bool any = false;
    for (int i = 0; i < num_channels; i++) {
        struct channel *c = &network->channels[network->fill_channels[i]];
        if (c->next_rate == c->rate || c->spreads)
            continue;
        for (int k = c->first_hop; k < c->first_hop + c->num_hops && !c->spreads; k++)
            c->spreads = network->resources[network->hops[k].resource].stamp != network->stamp;
        any = any || c->spreads;
    }
    return any;
}

/* Compute the rates of what is connected to `first`. Where a change leaves the rate of a channel as it
 * was, what lies behind that channel keeps its rates, too. So with `near` the search goes on only
 * behind channels of other rates, and begins again when it finds one; after NEAR_TURNS it goes
 * everywhere, because a chain of n resources would cost O(n^2). false: with `near` a tie was found. */
static bool settle(struct network *network, int32_t first, bool near, int64_t now_ns)
{
    enum { NEAR_TURNS = 4 };
    int num, num_channels;
    bool some = near;
    for (int turn = 1;; turn++, some = near && turn < NEAR_TURNS) {
        num = gather(network, first, some, &num_channels);
        if (!fill(network, num, num_channels, some, now_ns) || (near && network->num_tied > 0))
            return false;
        if (!some || !spreads(network, num_channels))
            break;
    }
    for (int i = 0; some && i < num; i++)
        network->resources[network->fill[i]].dirty = false;
    for (int i = 0; some && i < num_channels; i++)
        take_rate(network, network->filled[i], now_ns);
    return true;
}

/* Settle each marked resource that no other one has settled. Components are filled one by one, because
 * the shares of one do not depend on another's. Filled together, each different share of one component
 * would cost a look at all of them. */
static bool settle_all(struct network *network, bool near, int64_t now_ns)
{
    for (int i = 0; i < network->num_dirty; i++)
        if (network->resources[network->dirty[i]].dirty &&
            !settle(network, network->dirty[i], near, now_ns))
            return false;
    return true;
}

/* Where the order of filling may count, all that is connected is filled, in the same order each time. */
void network_settle(struct network *network, int64_t now_ns)
{
    const bool near = !network->whole && network->num_tied == 0;
    if (!near || !settle_all(network, true, now_ns)) {
        for (int i = 0; near && i < network->num_dirty; i++)
            network->resources[network->dirty[i]].dirty = true;
        settle_all(network, false, now_ns);
    }
    network->num_dirty = 0;
    network->num_tied_settles += network->num_tied > 0;
    if (network->num_tied_settles > 64 + ++network->num_settles / 4)
        network->whole = true;
}
