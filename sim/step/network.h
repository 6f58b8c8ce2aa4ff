/* sim/step/network.h - transfers that share ports and uplinks max-min fairly, in integers.
 *
 * A channel is a path through the network: from a sender to a receiver, or the ring of an
 * all-reduce. Many transfers use it, one after the other or together. Transfers of one channel
 * always have equal rates, so the channel holds one rate, one count and one clock of service, and
 * an event touches channels, not transfers. The clock (served) counts the service that a transfer
 * would have received since the channel was last empty, in bytes/s x ns. A new transfer needs
 * solo_rate x solo_ns of it, so alone it takes solo_ns to the nanosecond.
 *
 * Rates are whole bytes per second. Progressive filling computes them for the resources that are
 * connected to a change. Shares are rounded down and are at least 1. Rates change once for each
 * time, after all events of that time (network_settle()).
 *
 * The remainder of a rounded share is left to the channels of a resource that are filled last. So
 * where channels of one resource are filled from several, their order counts, and channels that are
 * shared alike may differ by 1 byte/s. A network with `alike` fills one of them for all, and says so
 * in `unsure`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/arrays.h"
#include "partition/cluster/cluster.h"
#include "partition/base/status.h"
#include "sim/step/event_queue.h"

typedef unsigned __int128 service_t; /* bytes/s x ns: 10^18 B/s for 290 years is above 64 bits */

/* A channel's use of one resource. */
struct hop {
    int32_t resource;
    int32_t weight;   /* times that the channel's paths cross it (a ring may leave a node twice) */
    int32_t channel;  /* the channel that this hop belongs to */
    int32_t position; /* in the resource's list of active hops; -1: the channel is idle */
};

/* The active hops of a resource: network.active[first ..]. Apart from struct resource, because every
 * transfer changes it, and the rest is read only where transfers meet. */
struct hop_list {
    int32_t first, num;
};

struct transfer {
    service_t finish;
    int32_t next; /* the next transfer of the channel in the order (finish, entry) */
    int32_t message;
    int64_t sent_ns;
    int64_t made_ns, excess_ns; /* of the op that made it: its usual time; time added by slowness */
    uint8_t cause;              /* why that op started late, enum idle_cause */
};

struct channel {
    service_t served;
    int64_t since_ns; /* the time up to which `served` is counted */
    int64_t solo_rate, rate;
    int64_t next_rate; /* during filling; 0: not filled yet */
    int32_t first_hop, num_hops;
    int32_t num_paths, num_crossed; /* as added: paths, and resources on them */
    int32_t num_active, head, tail; /* active transfers; indices into network.transfers */
    int32_t wait_head, wait_tail;   /* transfers still in their latency, first in first out */
    uint32_t stamp;                 /* last fill that visited it */
    int32_t bound;                  /* the resource that sets its rate */
    bool stale, queued;             /* its event must be set again; its event is in the queue */
    bool spreads;                   /* its rate changes, so all its resources are filled */
    bool twins;                     /* paths of it meet on a resource */
};

struct resource {
    int64_t capacity; /* bytes/s */
    int32_t num_hops;
    uint32_t stamp;
    bool dirty;
    bool uneven;                 /* its share leaves a remainder */
    bool tied;                   /* the order of filling may have decided a rate here */
    int64_t left, weight, share; /* during filling: capacity and weight left, the one / the other */
};

struct network {
    int num_channels, num_resources, num_hops;
    struct arrays arrays; /* channels to fill_channels, and edge_count */
    struct channel *channels;
    struct resource *resources;
    struct hop *hops;
    struct hop_list *lists;        /* by resource */
    int32_t *active;               /* hops by resource */
    int32_t *dirty, num_dirty;     /* resources whose users changed */
    int32_t *fill, *fill_channels; /* scratch of network_settle() */
    int32_t *filled;               /* the same: channels in the order in which they were filled */
    struct transfer *transfers;    /* owned; pool */
    int32_t num_transfers, max_transfers, free_transfer;
    uint32_t stamp;
    int num_uneven; /* resources whose shares leave a remainder */
    int num_tied;   /* resources at which the order of filling may count */
    int64_t num_settles, num_tied_settles;
    bool whole;           /* fill all that is connected, because ties are many or to be found */
    bool met;             /* two transfers have been on one resource at one time */
    bool unsure;          /* rounding may have told alike resources apart */
    const int32_t *alike; /* borrowed: by resource, the one that stands for it; NULL: itself */
    struct event_queue *queue; /* borrowed; channel c is entry first_entry + c */
    int32_t first_entry;
    const struct cluster *cluster; /* borrowed */
    int *edge_count;               /* scratch of network_add_ring(), num_resources */
    int32_t *hop_of;               /* by resource: the last hop that was made over it */
};

/* Make the resources of the cluster, with room for num_channels channels of max_hops hops in all. With
 * `alike`, one resource stands for all that are shared alike, and one channel for the paths of a group
 * of replicas. */
enum status network_init(struct network *network, const struct cluster *cluster, int num_channels,
                         int64_t max_hops, const int32_t *alike, struct event_queue *queue,
                         int32_t first_entry, struct err *err);
void network_clear(struct network *network);

/* Add the paths of channels, in the order of the channels' numbers, then call network_ready() once.
 * Paths of one channel have equal capacities and carry equal transfers together. */
void network_add_pair(struct network *network, int channel, int from, int to);
void network_add_ring(struct network *network, int channel, const int *devices, int n);
void network_ready(struct network *network);

/* Take a transfer from the pool; -1 if out of memory. The call may move the pool. */
int32_t network_take(struct network *network);
void network_give(struct network *network, int32_t transfer);

/* Put a transfer that takes solo_ns > 0 alone onto the channel at now_ns. */
void network_start(struct network *network, int channel, int32_t transfer, int64_t solo_ns,
                   int64_t now_ns);
/* The channel's event was popped: remove and return its next finished transfer; -1 if there are no
 * more. */
int32_t network_finished(struct network *network, int channel, int64_t now_ns);
/* Set the rates and events of all channels whose rates a change moves. Call it before time moves on. */
void network_settle(struct network *network, int64_t now_ns);

static inline bool network_unsettled(const struct network *network)
{
    return network->num_dirty > 0;
}
