/* partition/step/crash.h - the time-cost trade-off of project scheduling (Kelley, 1961;
 * Fulkerson, 1961): shorten some tasks of a project, within budgets, so that it ends soonest.
 *
 * A project is a graph of events. An arc from one event to another says how long after the first
 * the second can come. An arc may belong to a task ("work"). Shortening a task by a share in [0, 1]
 * shortens its arcs in proportion. Tasks belong to groups, and each group has a budget: the shares
 * of its tasks add up to at most that. shares_solve.h makes such a project of a pipeline step. */
#pragma once

#include "partition/base/status.h"

/* Event `to` comes no earlier than ns - cut_ns * share[work] after event `from`. */
struct crash_arc {
    int from, to;
    int work; /* -1: nothing shortens the arc */
    double ns, cut_ns;
};

struct crash_project {
    int num_events; /* event 0 is the begin, the last one is the end */
    int num_arcs;
    struct crash_arc *arcs; /* owned by the holder; from < to, ordered by `to` */
    int num_works, num_groups;
    int *group;     /* owned by the holder, num_works */
    double *budget; /* owned by the holder, num_groups: of the sum of its works' shares */
};

/* The time of the end, for given shares. event_ns: num_events entries of the caller's. O(arcs). */
double crash_end_ns(const struct crash_project *project, const double *share, double *event_ns);

/* Set share[num_works] so that the end comes soonest, and with as little of all shares in sum as
 * lets it. The end is at most CRASH_TOLERANCE of its time later than the soonest one, by a bound
 * that the method finds. The sum is within 0.1 % of the least one on the projects of
 * tests/reference/shares_highs.py; its bound may stay open on others.
 *
 * ERR_INPUT: the bounds of the end do not meet, which no project is known to cause. ERR_NOMEM. Time
 * O(iterations * the factor's work, normal.h) with 25 to 75 iterations: 0.15 s of a processor for
 * 2,048 works, 10 to 22 s for 65,536 (64 ranks, 1,024 micro-batches; AMD EPYC). */
#define CRASH_TOLERANCE 1e-6
enum status crash_solve(const struct crash_project *project, double *share, struct err *err);
