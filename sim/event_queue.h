/* sim/event_queue.h - what happens next, in the order (time, kind, insertion).
 *
 * A hierarchical wheel with 64 slots a level: an entry lies on the level of the highest base-64
 * digit in which its time differs from the present, so it moves at most once a level, and entries
 * of equal time keep the order in which they came. Entries are small integers that the caller
 * hands out (a device, a flow); each is in the queue at most once. */
#ifndef ELAPSE_SIM_EVENT_QUEUE_H
#define ELAPSE_SIM_EVENT_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

/* Kinds of event, first things first where times are equal. */
enum event_kind {
    EVENT_FLOW_END,   /* a transfer's last byte arrives */
    EVENT_FLOW_START, /* a transfer's latency is over, it starts to use bandwidth */
    EVENT_BUCKET,     /* a gradient bucket is complete on a replica */
    EVENT_DEVICE,     /* an op ends, or the host has launched one */
    EVENT_KIND_COUNT
};

#define QUEUE_LEVELS 11 /* base-64 digits of a 63-bit time */
#define QUEUE_SLOTS 64

struct event_list {
    int32_t head, tail; /* -1: empty */
};

struct event_node {
    int64_t time_ns;
    int32_t next, prev;
};

struct event_queue {
    int64_t base_ns;          /* nothing earlier is in the queue */
    struct event_node *nodes; /* owned; by entry */
    uint8_t *kinds;           /* owned; by entry */
    uint64_t used[QUEUE_LEVELS];
    unsigned levels; /* bit l: level l has entries */
    struct event_list slots[QUEUE_LEVELS][QUEUE_SLOTS];
    struct event_list now[EVENT_KIND_COUNT]; /* entries at base_ns */
};

/* Entries 0 .. capacity - 1. *queue must be zeroed or cleared. */
enum status event_queue_init(struct event_queue *queue, int32_t capacity, struct err *err);
void event_queue_clear(struct event_queue *queue);

/* The entry must be out of the queue, time_ns not before the last popped time. O(1). */
void event_queue_push(struct event_queue *queue, int32_t entry, enum event_kind kind,
                      int64_t time_ns);
/* The entry must be in the queue. O(1). */
void event_queue_remove(struct event_queue *queue, int32_t entry);
/* Whether an entry is left at the time of the last pop. O(1). */
bool event_queue_any_now(const struct event_queue *queue);
/* Take the first entry; -1 when empty. *kind and *time_ns are its own. Amortised O(levels). */
int32_t event_queue_pop(struct event_queue *queue, enum event_kind *kind, int64_t *time_ns);

#endif
