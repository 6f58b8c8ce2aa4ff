/* Host memory, events and sumsq_many() of the cpu backend. */
#include <stdlib.h>

#include "exec/cpu/cpu.h"
#include "profiles/base/clock.h"

/* A call returns when its work is done, so an event is just a time. */
struct backend_event {
    int64_t at_ns;
};

static enum status reserve(struct backend *be, const struct memory_need *need, struct err *err)
{
    (void)be;
    (void)need;
    (void)err;
    return OK;
}

static enum status event_new(struct backend *be, struct backend_event **event, struct err *err)
{
    (void)be;
    *event = calloc(1, sizeof **event);
    return *event ? OK : err_nomem(err);
}

static void event_free(struct backend *be, struct backend_event *event)
{
    (void)be;
    free(event);
}

static void event_record(struct backend *be, struct backend_event *event)
{
    (void)be;
    event->at_ns = clock_now_ns();
}

static bool event_done(struct backend *be, struct backend_event *event)
{
    (void)be;
    (void)event;
    return true;
}

static void event_wait(struct backend *be, struct backend_event *event)
{
    (void)be;
    (void)event;
}

static int64_t event_ns(struct backend *be, struct backend_event *from, struct backend_event *to)
{
    (void)be;
    return to->at_ns - from->at_ns;
}

void cpu_host_install(struct backend *be)
{
    be->reserve = reserve;
    be->alloc_host = be->alloc;
    be->free_host = be->free;
    be->event_new = event_new;
    be->event_free = event_free;
    be->event_record = event_record;
    be->event_done = event_done;
    be->event_wait = event_wait;
    be->event_ns = event_ns;
}
