#include "exec/device/backend_count.h"

#include <stdlib.h>

#include "partition/base/arrays.h"

struct counter {
    struct backend base; /* first: the table is the object */
    int64_t *pieces;     /* owned */
    int64_t num, room;
};

static void free_counter(struct backend *be)
{
    free(((struct counter *)be)->pieces);
    free(be);
}

/* Returns distinct addresses of memory that does not exist. */
static enum status count_alloc(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    struct counter *counter = (struct counter *)be;
    if (!array_grow(&counter->pieces, counter->num + 1, &counter->room, sizeof *counter->pieces))
        return err_nomem(err);
    counter->pieces[counter->num++] = bytes;
    *ptr = (void *)(uintptr_t)(256 * counter->num);
    return OK;
}

static void ignore_pointer(struct backend *be, void *ptr)
{
    (void)be;
    (void)ptr;
}

static void ignore_zero(struct backend *be, void *dst, int64_t bytes)
{
    (void)be;
    (void)dst;
    (void)bytes;
}

static void ignore_copy(struct backend *be, void *dst, const void *src, int64_t bytes)
{
    (void)src;
    ignore_zero(be, dst, bytes);
}

static void ignore_round(struct backend *be, int64_t num, const float *master, void *low)
{
    (void)master;
    ignore_zero(be, low, num);
}

static enum status nothing_issued(struct backend *be, struct err *err)
{
    (void)be;
    (void)err;
    return OK;
}

static enum status host_alloc(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    (void)be;
    *ptr = calloc(1, bytes > 0 ? (size_t)bytes : 1);
    return *ptr ? OK : err_nomem(err);
}

static void host_free(struct backend *be, void *ptr)
{
    (void)be;
    free(ptr);
}

static enum status ignore_need(struct backend *be, const struct memory_need *need, struct err *err)
{
    (void)need;
    return nothing_issued(be, err);
}

static enum status no_event(struct backend *be, struct backend_event **event, struct err *err)
{
    *event = NULL;
    return nothing_issued(be, err);
}

static void ignore_event(struct backend *be, struct backend_event *event)
{
    (void)be;
    (void)event;
}

static bool event_passed(struct backend *be, struct backend_event *event)
{
    ignore_event(be, event);
    return true;
}

static int64_t no_time(struct backend *be, struct backend_event *from, struct backend_event *to)
{
    ignore_event(be, from);
    ignore_event(be, to);
    return 0;
}

static enum status no_lane(struct backend *be, struct backend_lane **lane, struct err *err)
{
    *lane = NULL; /* the main lane */
    return nothing_issued(be, err);
}

static void ignore_lane(struct backend *be, struct backend_lane *lane)
{
    (void)be;
    (void)lane;
}

static void ignore_lane_event(struct backend *be, struct backend_lane *lane,
                              struct backend_event *event)
{
    (void)lane;
    ignore_event(be, event);
}

static void ignore_lane_copy(struct backend *be, struct backend_lane *lane, void *dst,
                             const void *src, int64_t bytes)
{
    (void)lane;
    ignore_copy(be, dst, src, bytes);
}

static void *no_stream(struct backend *be, struct backend_lane *lane)
{
    ignore_lane(be, lane);
    return NULL;
}

enum status backend_count_new(const struct backend *like, struct backend **count, struct err *err)
{
    struct counter *counter = calloc(1, sizeof *counter);
    if (!counter)
        return err_nomem(err);
    counter->base = (struct backend){.name = like->name,
                                     .dtype = like->dtype,
                                     .elem_bytes = like->elem_bytes,
                                     .threads = like->threads,
                                     .free_backend = free_counter,
                                     .alloc = count_alloc,
                                     .alloc_zeroed = count_alloc,
                                     .free = ignore_pointer,
                                     .zero = ignore_zero,
                                     .copy = ignore_copy,
                                     .copy_in = ignore_copy,
                                     .copy_out = ignore_copy,
                                     .sync = nothing_issued,
                                     .failure = nothing_issued,
                                     .reserve = ignore_need,
                                     .alloc_host = host_alloc,
                                     .free_host = host_free,
                                     .event_new = no_event,
                                     .event_free = ignore_event,
                                     .event_record = ignore_event,
                                     .event_done = event_passed,
                                     .event_wait = ignore_event,
                                     .event_ns = no_time,
                                     .lane_new = no_lane,
                                     .lane_free = ignore_lane,
                                     .lane_record = ignore_lane_event,
                                     .lane_wait = ignore_lane_event,
                                     .lane_copy_in = ignore_lane_copy,
                                     .lane_copy_out = ignore_lane_copy,
                                     .lane_stream = no_stream,
                                     .round = ignore_round};
    *count = &counter->base;
    return OK;
}

const int64_t *backend_count_pieces(const struct backend *count, int64_t *num)
{
    const struct counter *counter = (const struct counter *)count;
    *num = counter->num;
    return counter->pieces;
}
