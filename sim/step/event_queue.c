#include "sim/step/event_queue.h"

#include <stdlib.h>

enum { DIGIT_BITS = 6, DIGIT_MASK = QUEUE_SLOTS - 1 };

static int level_of(int64_t time_ns, int64_t base_ns)
{
    return (63 - __builtin_clzll((uint64_t)(time_ns ^ base_ns))) / DIGIT_BITS;
}

static void list_append(struct event_queue *queue, struct event_list *list, int32_t entry)
{
    struct event_node *node = &queue->nodes[entry];
    node->next = -1;
    node->prev = list->tail;
    if (list->tail >= 0)
        queue->nodes[list->tail].next = entry;
    else
        list->head = entry;
    list->tail = entry;
}

static void list_remove(struct event_queue *queue, struct event_list *list, int32_t entry)
{
    const struct event_node *node = &queue->nodes[entry];
    if (node->prev >= 0)
        queue->nodes[node->prev].next = node->next;
    else
        list->head = node->next;
    if (node->next >= 0)
        queue->nodes[node->next].prev = node->prev;
    else
        list->tail = node->prev;
}

static void place(struct event_queue *queue, int32_t entry)
{
    int64_t time_ns = queue->nodes[entry].time_ns;
    if (time_ns == queue->base_ns) {
        list_append(queue, &queue->now[queue->kinds[entry]], entry);
        return;
    }
    int level = level_of(time_ns, queue->base_ns);
    int slot = (int)(time_ns >> (level * DIGIT_BITS)) & DIGIT_MASK;
    queue->used[level] |= 1ULL << slot;
    queue->levels |= 1u << level;
    list_append(queue, &queue->slots[level][slot], entry);
}

static void mark_slot_empty(struct event_queue *queue, int level, int slot)
{
    queue->used[level] &= ~(1ULL << slot);
    if (queue->used[level] == 0)
        queue->levels &= ~(1u << level);
}

enum status event_queue_init(struct event_queue *queue, int32_t capacity, struct err *err)
{
    *queue = (struct event_queue){0};
    for (int level = 0; level < QUEUE_LEVELS; level++)
        for (int slot = 0; slot < QUEUE_SLOTS; slot++)
            queue->slots[level][slot] = (struct event_list){-1, -1};
    for (int kind = 0; kind < EVENT_KIND_COUNT; kind++)
        queue->now[kind] = (struct event_list){-1, -1};
    queue->nodes = malloc((size_t)capacity * sizeof *queue->nodes);
    queue->kinds = malloc((size_t)capacity);
    if (!queue->nodes || !queue->kinds) {
        event_queue_clear(queue);
        return err_nomem(err);
    }
    return OK;
}

void event_queue_clear(struct event_queue *queue)
{
    free(queue->nodes);
    free(queue->kinds);
    *queue = (struct event_queue){0};
}

void event_queue_push(struct event_queue *queue, int32_t entry, enum event_kind kind,
                      int64_t time_ns)
{
    queue->nodes[entry].time_ns = time_ns;
    queue->kinds[entry] = (uint8_t)kind;
    place(queue, entry);
}

void event_queue_remove(struct event_queue *queue, int32_t entry)
{
    int64_t time_ns = queue->nodes[entry].time_ns;
    if (time_ns == queue->base_ns) {
        list_remove(queue, &queue->now[queue->kinds[entry]], entry);
        return;
    }
    int level = level_of(time_ns, queue->base_ns);
    int slot = (int)(time_ns >> (level * DIGIT_BITS)) & DIGIT_MASK;
    list_remove(queue, &queue->slots[level][slot], entry);
    if (queue->slots[level][slot].head < 0)
        mark_slot_empty(queue, level, slot);
}

bool event_queue_any_now(const struct event_queue *queue)
{
    for (int kind = 0; kind < EVENT_KIND_COUNT; kind++)
        if (queue->now[kind].head >= 0)
            return true;
    return false;
}

/* Move base_ns to the time of the first entry of the lowest slot. The slot's entries differ from each
 * other in lower digits only, so each of them goes to a lower level or to a now list. */
static void spread_slot(struct event_queue *queue, const struct event_list *list)
{
    queue->base_ns = INT64_MAX;
    for (int32_t entry = list->head; entry >= 0; entry = queue->nodes[entry].next)
        if (queue->nodes[entry].time_ns < queue->base_ns)
            queue->base_ns = queue->nodes[entry].time_ns;
    for (int32_t entry = list->head; entry >= 0;) {
        const int32_t next = queue->nodes[entry].next;
        place(queue, entry);
        entry = next;
    }
}

/* Most slots hold one entry when their turn comes. It is returned without a way through the lists. */
int32_t event_queue_pop(struct event_queue *queue, enum event_kind *kind, int64_t *time_ns)
{
    for (;;) {
        for (int k = 0; k < EVENT_KIND_COUNT; k++) {
            const int32_t entry = queue->now[k].head;
            if (entry < 0)
                continue;
            list_remove(queue, &queue->now[k], entry);
            *kind = (enum event_kind)k;
            *time_ns = queue->base_ns;
            return entry;
        }
        if (queue->levels == 0)
            return -1;
        const int level = __builtin_ctz(queue->levels);
        const int slot = __builtin_ctzll(queue->used[level]);
        const struct event_list list = queue->slots[level][slot];
        queue->slots[level][slot] = (struct event_list){-1, -1};
        mark_slot_empty(queue, level, slot);
        if (list.head == list.tail) {
            *kind = (enum event_kind)queue->kinds[list.head];
            *time_ns = queue->base_ns = queue->nodes[list.head].time_ns;
            return list.head;
        }
        spread_slot(queue, &list);
    }
}
