/* sim/step/event_queue.h - the queue of events, in the order (time, kind, insertion).
 *
 * A hierarchical wheel with 64 slots on each level. An entry lies on the level of the highest
 * base-64 digit in which its time differs from base_ns. So it moves at most once for each level,
 * and entries of equal time keep their order of insertion. Entries are small integers that the
 * caller assigns, such as the number of a device or a flow. Each is in the queue at most once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

/* Kinds of event. At equal times the kind with the smaller value comes first. */
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
    int64_t base_ns;          /* no entry is earlier */
    struct event_node *nodes; /* owned; [entry] */
    uint8_t *kinds;           /* owned; [entry] */
    uint64_t used[QUEUE_LEVELS];
    unsigned levels; /* bit l is set if level l has entries */
    struct event_list slots[QUEUE_LEVELS][QUEUE_SLOTS];
    struct event_list now[EVENT_KIND_COUNT]; /* entries at base_ns */
};

/* Make a queue for the entries 0 .. capacity - 1. *queue must be zeroed or cleared. ERR_NOMEM. */
enum status event_queue_init(struct event_queue *queue, int32_t capacity, struct err *err);
void event_queue_clear(struct event_queue *queue);

/* Add an entry that is not in the queue. time_ns must not be before the last popped time. O(1). */
void event_queue_push(struct event_queue *queue, int32_t entry, enum event_kind kind,
                      int64_t time_ns);
/* Remove an entry that is in the queue. O(1). */
void event_queue_remove(struct event_queue *queue, int32_t entry);
/* Whether the queue holds another entry with the time of the last pop. O(1). */
bool event_queue_any_now(const struct event_queue *queue);
/* Remove and return the first entry, with its *kind and *time_ns. -1 if the queue is empty.
 * Amortised O(levels). */
int32_t event_queue_pop(struct event_queue *queue, enum event_kind *kind, int64_t *time_ns);
