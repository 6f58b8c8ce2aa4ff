#include "cli/launch/losses.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/base/fault_trace.h"

enum status losses_read(const char *path, int num_ranks, struct losses *losses, struct err *err)
{
    struct losses got = {.num_ranks = num_ranks};
    enum status rc = fault_trace_read(path, true, &got.events, &got.num, err);
    THEN(fault_trace_check(got.events, got.num, num_ranks, err));
    got.down = calloc((size_t)num_ranks, sizeof *got.down);
    if (rc == OK && !got.down)
        rc = err_nomem(err);
    if (rc == OK)
        *losses = got;
    else
        losses_clear(&got);
    return rc;
}

void losses_clear(struct losses *losses)
{
    free(losses->events);
    free(losses->down);
    *losses = (struct losses){0};
}

/* The next loss, or the first of the returns before it. NULL: there is none. */
static const struct fault_event *find_next(const struct losses *losses, bool back)
{
    for (int i = losses->next; i < losses->num; i++)
        if (losses->events[i].back == back)
            return &losses->events[i];
        else if (back)
            return NULL;
    return NULL;
}

void losses_text(const struct losses *losses, char text[64])
{
    const struct fault_event *lost = find_next(losses, false), *back = find_next(losses, true);
    int rank = -1;
    if (lost && losses->down[lost->node]) /* not taken back yet: it is lost when it is */
        lost = NULL;
    if (lost) {
        rank = 0;
        for (int n = 0; n < lost->node; n++)
            rank += !losses->down[n];
    }
    snprintf(text, 64, "%lld:%d:%lld", lost ? (long long)lost->at_ns : -1, rank,
             back ? (long long)back->at_ns : -1);
}

/* A rank that is killed before rank 0 has written the line of its last step leaves step - 1. */
bool losses_happen(struct losses *losses, bool lost, int64_t step)
{
    const struct fault_event *next = find_next(losses, !lost);
    const int first = losses->next;
    if (!next || next->at_ns > step + lost)
        return false;
    for (; losses->next < losses->num; losses->next++) {
        const struct fault_event *e = &losses->events[losses->next];
        if (lost ? e > next : !e->back || e->at_ns > step)
            break;
        losses->down[e->node] = !e->back;
        losses->num_down += e->back ? -1 : 1;
    }
    return losses->next > first;
}
