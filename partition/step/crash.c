/* An interior-point method whose linear systems are solved by a frontal method.
 *
 * The project is the linear program
 *     minimise  end
 *     over event times and shares, so that
 *         time[to] - time[from] + cut * share >= ns     for each arc,
 *         0 <= share <= 1, and the shares of a group sum up to at most its budget.
 * and then, with the end bounded by what came out, the same with the sum of shares minimised.
 * Both are solved by Mehrotra's predictor and corrector (SIAM J. Optimization, 1992). Each of his
 * systems is a Laplacian of the graph with shares and groups at its sides. Along a step's graph only
 * as many events are open at once as there are ranks and messages on their way, so the events are
 * eliminated in the order of their times within one small dense matrix, the front (Irons, Int. J.
 * Numerical Methods in Engineering, 1970). A group's row is kept apart by an unknown of its own, which
 * is eliminated last; that makes the matrix quasi-definite, and elimination without pivoting is stable
 * (Vanderbei, SIAM J. Optimization, 1995).
 *
 * Unknowns are numbered: events, then shares (works), then groups. Event 0 is no unknown.
 * Rows are numbered: arcs, then the lower bounds of shares, their upper bounds, groups.
 *
 * Read crash_solve() first, then newton_solve() and front_factor(). */
#include "partition/step/crash.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"

enum { MOST_ITERATIONS = 100, REFINEMENTS = 1, NOT_OPEN = -1 };
#define GAP_TOLERANCE (0.6 * CRASH_TOLERANCE) /* of the objective */
#define LACK_TOLERANCE 1e-7                   /* of a cost of about 1 */
#define LOOSE_TOLERANCE 1e-5 /* of it, where rounding keeps multipliers from more */
#define STEP_PART 0.95       /* of the way to the nearest bound */
#define LEAST_SLACK 1e-4     /* at the begin, in the unit of times */
#define SECOND_PRODUCT 1e-6  /* of multiplier and slack, at the second begin */

/* The order of elimination: before an unknown is eliminated, arcs are added to the front. */
struct turn {
    int unknown;
    int first_arc; /* arc_order[first_arc .. first_arc of the next turn) */
};

struct lp {
    const struct crash_project *project;
    int events, works, groups, arcs, unknowns, rows;
    double unit_ns;                 /* times are divided by it */
    double end_cost, price, latest; /* the objective's coefficients, and the end's limit */
    /* The elimination. */
    struct turn *turns; /* unknowns (without event 0) + 1 entries */
    int num_turns;
    int *arc_order;
    int *slot; /* [unknown]: its row of the front while it is open */
    int width; /* of the front */
    double *front, *column, *pivot;
    uint16_t *factor_slot; /* the factor's entries, turn after turn */
    double *factor;
    int64_t *factor_first; /* [turn] */
    int64_t factor_room;
    /* The iterate and its step. */
    double *y, *dy;                   /* [unknown]: times and shares; of groups unused */
    double *x, *z, *dx, *dz;          /* [row]: multiplier and slack */
    double *weight, *target;          /* [row]: x / z, and the wanted x z */
    double *rhs, *kept_rhs, *kept_dy; /* [unknown] */
    double *open;                     /* [slot]: right-hand sides of open unknowns */
};

static int work_at(const struct lp *lp, int work)
{
    return lp->events + work;
}

static int group_at(const struct lp *lp, int group)
{
    return lp->events + lp->works + group;
}

static int lower_row(const struct lp *lp, int work)
{
    return lp->arcs + work;
}

static int upper_row(const struct lp *lp, int work)
{
    return lp->arcs + lp->works + work;
}

static int group_row(const struct lp *lp, int group)
{
    return lp->arcs + 2 * lp->works + group;
}

static int end_row(const struct lp *lp)
{
    return group_row(lp, lp->groups);
}

double crash_end_ns(const struct crash_project *project, const double *share, double *event_ns)
{
    for (int i = 0; i < project->num_events; i++)
        event_ns[i] = 0;
    for (int a = 0; a < project->num_arcs; a++) {
        const struct crash_arc *arc = &project->arcs[a];
        const double ns = event_ns[arc->from] + arc->ns -
                          (arc->work >= 0 && share ? arc->cut_ns * share[arc->work] : 0);
        if (ns > event_ns[arc->to])
            event_ns[arc->to] = ns;
    }
    return event_ns[project->num_events - 1];
}

/* --- the order of elimination ----------------------------------------------------------------- */

struct ordering {
    struct lp *lp;
    int *first_of_event, *arc_of_event; /* arcs at an event, in either direction */
    int *by_time;
    int *arcs_left; /* [work] */
    bool *added;    /* [arc] */
    int *free_slots, num_free;
    int num_ordered, num_given; /* arcs in order, and those of them that turns have */
};

static void open_unknown(struct ordering *o, int unknown)
{
    struct lp *lp = o->lp;
    if (unknown == 0 || lp->slot[unknown] != NOT_OPEN)
        return;
    lp->slot[unknown] = o->num_free > 0 ? o->free_slots[--o->num_free] : lp->width++;
}

static void add_turn(struct ordering *o, int unknown)
{
    struct lp *lp = o->lp;
    open_unknown(o, unknown);
    lp->turns[lp->num_turns++] = (struct turn){unknown, o->num_given};
    o->num_given = o->num_ordered;
    o->free_slots[o->num_free++] = lp->slot[unknown];
}

/* Add the arcs at an event that are not in the front, then eliminate the works that have all of theirs
 * there, then the event. */
static void order_event(struct ordering *o, int event)
{
    struct lp *lp = o->lp;
    const struct crash_project *project = lp->project;
    const int first_arc = o->num_ordered;
    for (int i = o->first_of_event[event]; i < o->first_of_event[event + 1]; i++) {
        const int a = o->arc_of_event[i];
        const struct crash_arc *arc = &project->arcs[a];
        if (o->added[a])
            continue;
        o->added[a] = true;
        lp->arc_order[o->num_ordered++] = a;
        open_unknown(o, arc->from);
        open_unknown(o, arc->to);
        if (arc->work >= 0) {
            open_unknown(o, work_at(lp, arc->work));
            open_unknown(o, group_at(lp, project->group[arc->work]));
            o->arcs_left[arc->work]--;
        }
    }
    for (int i = first_arc, end = o->num_ordered; i < end; i++) {
        const int work = project->arcs[lp->arc_order[i]].work;
        if (work >= 0 && o->arcs_left[work] == 0) {
            o->arcs_left[work] = -1;
            add_turn(o, work_at(lp, work));
        }
    }
    if (event > 0)
        add_turn(o, event);
}

/* Sort events by time; equal times by number. Merge sort, because most of the order is there. */
static void sort_by_time(int *events, int *spare, int n, const double *ns)
{
    if (n < 2)
        return;
    const int half = n / 2;
    sort_by_time(events, spare, half, ns);
    sort_by_time(events + half, spare, n - half, ns);
    memcpy(spare, events, (size_t)half * sizeof *events);
    for (int i = 0, j = half, k = 0; i < half; k++)
        events[k] = j < n && ns[events[j]] < ns[spare[i]] ? events[j++] : spare[i++];
}

static void order_all(struct ordering *o)
{
    struct lp *lp = o->lp;
    const struct crash_project *project = lp->project;
    int *const first = o->first_of_event;
    for (int a = 0; a < lp->arcs; a++) {
        first[project->arcs[a].from + 1]++;
        first[project->arcs[a].to + 1]++;
        if (project->arcs[a].work >= 0)
            o->arcs_left[project->arcs[a].work]++;
    }
    for (int i = 0; i < lp->events; i++)
        first[i + 1] += first[i];
    for (int a = 0; a < lp->arcs; a++) {
        o->arc_of_event[first[project->arcs[a].from]++] = a;
        o->arc_of_event[first[project->arcs[a].to]++] = a;
    }
    for (int i = lp->events; i > 0; i--)
        first[i] = first[i - 1];
    first[0] = 0;
    for (int u = 0; u < lp->unknowns; u++)
        lp->slot[u] = NOT_OPEN;
    for (int i = 0; i < lp->events; i++)
        order_event(o, o->by_time[i]);
    for (int j = 0; j < lp->works; j++) /* that no arc has */
        if (o->arcs_left[j] == 0) {
            open_unknown(o, group_at(lp, project->group[j]));
            add_turn(o, work_at(lp, j));
        }
    for (int g = 0; g < lp->groups; g++)
        add_turn(o, group_at(lp, g));
    lp->turns[lp->num_turns].first_arc = o->num_ordered;
}

static enum status make_order(struct lp *lp, const double *event_ns, struct err *err)
{
    struct arrays arrays = {0};
    const size_t events = (size_t)lp->events, arcs = (size_t)lp->arcs;
    struct ordering o = {
        .lp = lp,
        .first_of_event = arrays_new(&arrays, events + 2, sizeof(int)),
        .arc_of_event = arrays_new(&arrays, 2 * arcs + 1, sizeof(int)),
        .by_time = arrays_new(&arrays, events, sizeof(int)),
        .arcs_left = arrays_new(&arrays, (size_t)lp->works + 1, sizeof(int)),
        .added = arrays_new(&arrays, arcs + 1, sizeof(bool)),
        .free_slots = arrays_new(&arrays, (size_t)lp->unknowns, sizeof(int)),
    };
    if (!arrays.failed) {
        for (int i = 0; i < lp->events; i++)
            o.by_time[i] = i;
        sort_by_time(o.by_time, o.free_slots, lp->events, event_ns);
        order_all(&o);
    }
    const bool failed = arrays.failed;
    arrays_clear(&arrays);
    return failed ? err_nomem(err) : OK;
}

/* --- the front -------------------------------------------------------------------------------- */

static double *front_at(const struct lp *lp, int a, int b)
{
    return &lp->front[(size_t)(a > b ? a : b) * (size_t)lp->width + (size_t)(a > b ? b : a)];
}

/* Add the outer product of an arc's row, times its weight. */
static void add_arc(const struct lp *lp, int a)
{
    const struct crash_arc *arc = &lp->project->arcs[a];
    const double weight = lp->weight[a];
    int slot[3], n = 0;
    double entry[3];
    slot[n] = lp->slot[arc->to];
    entry[n++] = 1;
    if (arc->from > 0) {
        slot[n] = lp->slot[arc->from];
        entry[n++] = -1;
    }
    if (arc->work >= 0) {
        slot[n] = lp->slot[work_at(lp, arc->work)];
        entry[n++] = arc->cut_ns / lp->unit_ns;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            *front_at(lp, slot[i], slot[j]) += weight * entry[i] * entry[j];
}

/* Add what an unknown has apart from arcs: the bounds and the group of a share, the group's own row. */
static void add_own(const struct lp *lp, int unknown)
{
    double *own = front_at(lp, lp->slot[unknown], lp->slot[unknown]);
    if (unknown < lp->events) {
        *own += unknown == lp->events - 1 ? lp->weight[end_row(lp)] : 0;
    } else if (unknown < group_at(lp, 0)) {
        const int work = unknown - lp->events;
        const int group = group_at(lp, lp->project->group[work]);
        *own += lp->weight[lower_row(lp, work)] + lp->weight[upper_row(lp, work)];
        *front_at(lp, lp->slot[unknown], lp->slot[group]) += 1;
    } else {
        *own -= 1 / lp->weight[group_row(lp, unknown - lp->events - lp->works)];
    }
}

/* Subtract column * column^T / pivot from the front; `count` entries of the column are not 0. */
static void update_front(struct lp *lp, const uint16_t *slots, int count, double pivot)
{
    const double *column = lp->column;
    for (int a = 0; a < count; a++) {
        const int i = slots[a];
        double *row = &lp->front[(size_t)i * (size_t)lp->width];
        const double times = column[i] / pivot;
        if (count * 4 < lp->width)
            for (int b = 0; b <= a; b++)
                row[slots[b]] -= times * column[slots[b]];
        else
            for (int j = 0; j <= i; j++)
                row[j] -= times * column[j];
    }
}

/* Take an unknown's column out of the front, and keep it as the factor's. */
static void eliminate(struct lp *lp, int turn, int unknown)
{
    const int p = lp->slot[unknown], width = lp->width;
    int64_t at = lp->factor_first[turn];
    uint16_t *const slots = lp->factor_slot + at;
    double *const own = front_at(lp, p, p), pivot = *own;
    *own = 0;
    int count = 0;
    for (int i = 0; i < width; i++) {
        double *entry = front_at(lp, i, p);
        lp->column[i] = *entry;
        if (*entry != 0)
            slots[count++] = (uint16_t)i;
        *entry = 0;
    }
    lp->pivot[turn] = pivot;
    update_front(lp, slots, count, pivot);
    for (int a = 0; a < count; a++)
        lp->factor[at++] = lp->column[slots[a]] / pivot;
    lp->factor_first[turn + 1] = at;
}

/* Make space for one more column of the factor. */
static bool factor_grow(struct lp *lp, int64_t used)
{
    if (used + lp->width <= lp->factor_room)
        return true;
    const int64_t room = 2 * (lp->factor_room + lp->width);
    double *factor = realloc(lp->factor, (size_t)room * sizeof *factor);
    if (factor)
        lp->factor = factor;
    uint16_t *slots = realloc(lp->factor_slot, (size_t)room * sizeof *slots);
    if (slots)
        lp->factor_slot = slots;
    if (factor && slots)
        lp->factor_room = room;
    return factor && slots;
}

static bool front_factor(struct lp *lp)
{
    memset(lp->front, 0, (size_t)lp->width * (size_t)lp->width * sizeof *lp->front);
    for (int t = 0; t < lp->num_turns; t++) {
        for (int i = lp->turns[t].first_arc; i < lp->turns[t + 1].first_arc; i++)
            add_arc(lp, lp->arc_order[i]);
        add_own(lp, lp->turns[t].unknown);
        if (!factor_grow(lp, lp->factor_first[t]))
            return false;
        eliminate(lp, t, lp->turns[t].unknown);
    }
    return true;
}

/* Solve for rhs, into dy. */
static void front_solve(struct lp *lp)
{
    for (int i = 0; i < lp->width; i++)
        lp->open[i] = 0;
    for (int t = 0; t < lp->num_turns; t++) {
        const int u = lp->turns[t].unknown;
        double *open = &lp->open[lp->slot[u]];
        const double value = lp->rhs[u] + *open;
        *open = 0;
        for (int64_t i = lp->factor_first[t]; i < lp->factor_first[t + 1]; i++)
            lp->open[lp->factor_slot[i]] -= lp->factor[i] * value;
        lp->dy[u] = value / lp->pivot[t];
    }
    for (int t = lp->num_turns - 1; t >= 0; t--) {
        const int u = lp->turns[t].unknown;
        double value = lp->dy[u];
        for (int64_t i = lp->factor_first[t]; i < lp->factor_first[t + 1]; i++)
            value -= lp->factor[i] * lp->open[lp->factor_slot[i]];
        lp->dy[u] = lp->open[lp->slot[u]] = value;
    }
}

/* --- the rows --------------------------------------------------------------------------------- */

/* The rows' left-hand sides. */
static void rows_of(const struct lp *lp, const double *y, double *rows)
{
    const struct crash_project *project = lp->project;
    for (int a = 0; a < lp->arcs; a++) {
        const struct crash_arc *arc = &project->arcs[a];
        rows[a] = y[arc->to] - y[arc->from] +
                  (arc->work >= 0 ? arc->cut_ns / lp->unit_ns * y[work_at(lp, arc->work)] : 0);
    }
    rows[end_row(lp)] = -y[lp->events - 1];
    for (int g = 0; g < lp->groups; g++)
        rows[group_row(lp, g)] = 0;
    for (int j = 0; j < lp->works; j++) {
        const double share = y[work_at(lp, j)];
        rows[lower_row(lp, j)] = share;
        rows[upper_row(lp, j)] = -share;
        rows[group_row(lp, project->group[j])] -= share;
    }
}

/* The rows' least right-hand sides. */
static double row_limit(const struct lp *lp, int row)
{
    if (row < lp->arcs)
        return lp->project->arcs[row].ns / lp->unit_ns;
    if (row < upper_row(lp, 0))
        return 0;
    if (row < group_row(lp, 0))
        return -1;
    return row == end_row(lp) ? -lp->latest : -lp->project->budget[row - group_row(lp, 0)];
}

/* Add the transposed rows times `row` to `sum`, by unknown. */
static void add_columns(const struct lp *lp, const double *row, double *sum)
{
    const struct crash_project *project = lp->project;
    for (int a = 0; a < lp->arcs; a++) {
        const struct crash_arc *arc = &project->arcs[a];
        sum[arc->to] += row[a];
        sum[arc->from] -= row[a];
        if (arc->work >= 0)
            sum[work_at(lp, arc->work)] += arc->cut_ns / lp->unit_ns * row[a];
    }
    sum[lp->events - 1] -= row[end_row(lp)];
    for (int j = 0; j < lp->works; j++)
        sum[work_at(lp, j)] +=
            row[lower_row(lp, j)] - row[upper_row(lp, j)] - row[group_row(lp, project->group[j])];
}

/* --- the iterations --------------------------------------------------------------------------- */

/* Solve for rhs, into dy, and take the solution's own residuals in once more: late systems are ill
 * conditioned. */
static void solve_refined(struct lp *lp)
{
    double *const rhs = lp->kept_rhs, *const dy = lp->kept_dy;
    memcpy(rhs, lp->rhs, (size_t)lp->unknowns * sizeof *rhs);
    front_solve(lp);
    for (int i = 0; i < REFINEMENTS; i++) {
        memcpy(dy, lp->dy, (size_t)lp->unknowns * sizeof *dy);
        rows_of(lp, lp->dy, lp->dz);
        for (int r = 0; r < lp->rows; r++)
            lp->dz[r] *= -lp->weight[r];
        memcpy(lp->rhs, rhs, (size_t)lp->unknowns * sizeof *rhs);
        add_columns(lp, lp->dz, lp->rhs);
        front_solve(lp);
        for (int u = 1; u < group_at(lp, 0); u++)
            lp->dy[u] += dy[u];
    }
}

/* The step dy, dx, dz that brings the products x z to `target`. lack: of each unknown's cost over what
 * the multipliers x give; excess: of each row over its slack z. */
static void newton_solve(struct lp *lp, const double *lack, const double *excess)
{
    for (int r = 0; r < lp->rows; r++)
        lp->dx[r] = (lp->target[r] - lp->x[r] * excess[r]) / lp->z[r];
    for (int u = 0; u < lp->unknowns; u++)
        lp->rhs[u] = -lack[u];
    add_columns(lp, lp->dx, lp->rhs);
    solve_refined(lp);
    rows_of(lp, lp->dy, lp->dz);
    for (int r = 0; r < lp->rows; r++) {
        lp->dz[r] += excess[r];
        lp->dx[r] = (lp->target[r] - lp->x[r] * lp->dz[r]) / lp->z[r];
    }
}

/* How far values may go along a step before one of them is 0; at most 1. */
static double longest_step(const double *value, const double *step, int n)
{
    double length = 1;
    for (int i = 0; i < n; i++)
        if (step[i] < 0 && -value[i] > step[i] * length)
            length = -value[i] / step[i];
    return length;
}

/* The mean of the products after steps of these lengths. */
static double mean_product(const struct lp *lp, double x_length, double z_length)
{
    double sum = 0;
    for (int r = 0; r < lp->rows; r++)
        sum += (lp->x[r] + x_length * lp->dx[r]) * (lp->z[r] + z_length * lp->dz[r]);
    return sum / lp->rows;
}

static void find_residuals(const struct lp *lp, double *lack, double *excess)
{
    memset(lack, 0, (size_t)lp->unknowns * sizeof *lack);
    add_columns(lp, lp->x, lack);
    for (int u = 0; u < lp->unknowns; u++)
        lack[u] = (u == lp->events - 1                      ? lp->end_cost
                   : u >= lp->events && u < group_at(lp, 0) ? lp->price
                                                            : 0) -
                  lack[u];
    rows_of(lp, lp->y, excess);
    for (int r = 0; r < lp->rows; r++)
        excess[r] -= row_limit(lp, r) + lp->z[r];
}

/* One iteration of predictor and corrector. False: no memory. */
static bool iterate(struct lp *lp, const double *lack, const double *excess)
{
    for (int r = 0; r < lp->rows; r++)
        lp->weight[r] = lp->x[r] / lp->z[r];
    if (!front_factor(lp))
        return false;
    for (int r = 0; r < lp->rows; r++)
        lp->target[r] = -lp->x[r] * lp->z[r];
    newton_solve(lp, lack, excess);
    const double mean = mean_product(lp, 0, 0);
    const double hoped = mean_product(lp, longest_step(lp->x, lp->dx, lp->rows),
                                      longest_step(lp->z, lp->dz, lp->rows));
    const double centre = fmax(mean * pow(hoped / mean, 3), 0.6 * GAP_TOLERANCE / lp->rows);
    for (int r = 0; r < lp->rows; r++)
        lp->target[r] = centre - lp->x[r] * lp->z[r] - lp->dx[r] * lp->dz[r];
    newton_solve(lp, lack, excess);
    const double x_length = STEP_PART * longest_step(lp->x, lp->dx, lp->rows);
    const double z_length = STEP_PART * longest_step(lp->z, lp->dz, lp->rows);
    for (int r = 0; r < lp->rows; r++) {
        lp->x[r] += x_length * lp->dx[r];
        lp->z[r] += z_length * lp->dz[r];
    }
    for (int u = 1; u < group_at(lp, 0); u++)
        lp->y[u] += z_length * lp->dy[u];
    return true;
}

/* Begin between all limits: shares at half of what their groups allow, events later than they need to
 * be, multipliers that make all products equal. */
static void begin(struct lp *lp, double *event_ns)
{
    const struct crash_project *project = lp->project;
    double *share = &lp->y[work_at(lp, 0)];
    double *count = lp->rhs; /* of works, by group */
    memset(count, 0, (size_t)lp->groups * sizeof *count);
    for (int j = 0; j < lp->works; j++)
        count[project->group[j]]++;
    for (int j = 0; j < lp->works; j++)
        share[j] = 0.5 * fmin(1, project->budget[project->group[j]] / count[project->group[j]]);
    crash_end_ns(project, share, event_ns);
    for (int i = 1; i < lp->events; i++)
        event_ns[i] /= lp->unit_ns;
    /* Later by a part that grows with the number of arcs from the begin. */
    int *depth = lp->slot, deepest = 1;
    memset(depth, 0, (size_t)lp->events * sizeof *depth);
    for (int a = 0; a < lp->arcs; a++) {
        const struct crash_arc *arc = &project->arcs[a];
        depth[arc->to] =
            depth[arc->from] + 1 > depth[arc->to] ? depth[arc->from] + 1 : depth[arc->to];
        deepest = depth[arc->to] > deepest ? depth[arc->to] : deepest;
    }
    for (int i = 0; i < lp->events; i++)
        lp->y[i] = event_ns[i] + 0.5 * depth[i] / deepest;
    rows_of(lp, lp->y, lp->z);
    double mean = 0;
    for (int r = 0; r < lp->rows; r++) {
        lp->z[r] = fmax(lp->z[r] - row_limit(lp, r), LEAST_SLACK);
        mean += lp->z[r] / lp->rows;
    }
    for (int r = 0; r < lp->rows; r++)
        lp->x[r] = mean / (lp->z[r] * (lp->groups + 1) * 4);
}

/* Begin again where the first iterations ended, with other costs. */
static void begin_again(struct lp *lp)
{
    rows_of(lp, lp->y, lp->z);
    for (int r = 0; r < lp->rows; r++) {
        lp->z[r] = fmax(lp->z[r] - row_limit(lp, r), SECOND_PRODUCT);
        lp->x[r] = fmax(lp->x[r], SECOND_PRODUCT / lp->z[r]);
    }
}

static bool lp_arrays(struct lp *lp, struct arrays *arrays)
{
    const size_t rows = (size_t)lp->rows, unknowns = (size_t)lp->unknowns;
    double **const by_row[] = {&lp->x, &lp->z, &lp->dx, &lp->dz, &lp->weight, &lp->target};
    for (size_t i = 0; i < sizeof by_row / sizeof *by_row; i++)
        *by_row[i] = arrays_new(arrays, rows, sizeof(double));
    lp->y = arrays_new(arrays, unknowns, sizeof(double));
    lp->dy = arrays_new(arrays, unknowns, sizeof(double));
    lp->rhs = arrays_new(arrays, unknowns, sizeof(double));
    lp->kept_rhs = arrays_new(arrays, unknowns, sizeof(double));
    lp->kept_dy = arrays_new(arrays, unknowns, sizeof(double));
    lp->pivot = arrays_new(arrays, unknowns, sizeof(double));
    lp->factor_first = arrays_new(arrays, unknowns + 1, sizeof(int64_t));
    lp->turns = arrays_new(arrays, unknowns + 1, sizeof *lp->turns);
    lp->slot = arrays_new(arrays, unknowns, sizeof(int));
    lp->arc_order = arrays_new(arrays, (size_t)lp->arcs + 1, sizeof(int));
    return !arrays->failed;
}

static bool front_arrays(struct lp *lp, struct arrays *arrays)
{
    const size_t width = (size_t)lp->width;
    lp->front = arrays_new(arrays, width * width, sizeof(double));
    lp->column = arrays_new(arrays, width, sizeof(double));
    lp->open = arrays_new(arrays, width, sizeof(double));
    return !arrays->failed;
}

/* Keep shares within their limits to the last bit. */
static void keep_shares(const struct lp *lp, double *share)
{
    const struct crash_project *project = lp->project;
    double *sum = lp->rhs;
    memset(sum, 0, (size_t)lp->groups * sizeof *sum);
    for (int j = 0; j < lp->works; j++) {
        const double got = lp->y[work_at(lp, j)];
        share[j] = got < 1e-6 ? 0 : got > 1 ? 1 : got;
        sum[project->group[j]] += share[j];
    }
    for (int j = 0; j < lp->works; j++)
        if (sum[project->group[j]] > project->budget[project->group[j]])
            share[j] *= project->budget[project->group[j]] / sum[project->group[j]];
}

static enum status settle(struct lp *lp, double *lack, double *excess, struct err *err)
{
    double gap = INFINITY, least = INFINITY;
    for (int i = 0; i < MOST_ITERATIONS; i++) {
        find_residuals(lp, lack, excess);
        double most = 0;
        for (int u = 1; u < group_at(lp, 0); u++)
            most = fmax(most, fabs(lack[u]));
        gap = mean_product(lp, 0, 0) * lp->rows;
        if (gap < GAP_TOLERANCE && most < LACK_TOLERANCE)
            return OK;
        least = fmin(least, most);
        if (!(gap < INFINITY))
            break;
        if (!iterate(lp, lack, excess))
            return err_nomem(err);
    }
    if (gap < GAP_TOLERANCE && least < LOOSE_TOLERANCE)
        return OK;
    return err_set(err, ERR_INPUT, "shares of %d works do not settle", lp->works);
}

enum status crash_solve(const struct crash_project *project, double *share, struct err *err)
{
    struct arrays arrays = {0};
    struct lp lp = {.project = project,
                    .events = project->num_events,
                    .works = project->num_works,
                    .groups = project->num_groups,
                    .arcs = project->num_arcs};
    lp.unknowns = lp.events + lp.works + lp.groups;
    lp.rows = lp.arcs + 2 * lp.works + lp.groups + 1;
    double *event_ns = arrays_new(&arrays, (size_t)lp.events, sizeof(double));
    double *lack = arrays_new(&arrays, (size_t)lp.unknowns, sizeof(double));
    double *excess = arrays_new(&arrays, (size_t)lp.rows, sizeof(double));
    enum status rc = OK;
    struct err later = {0};
    if (!lp_arrays(&lp, &arrays)) {
        rc = err_nomem(err);
        goto out;
    }
    double most = 0;
    for (int g = 0; g < lp.groups; g++)
        most += project->budget[g];
    lp.unit_ns = crash_end_ns(project, NULL, event_ns);
    lp.end_cost = 1;
    lp.latest = 3; /* no limit: at the begin the end is at 1.5 at most */
    begin(&lp, event_ns);
    rc = make_order(&lp, event_ns, err);
    if (rc == OK && !front_arrays(&lp, &arrays))
        rc = err_nomem(err);
    THEN(settle(&lp, lack, excess, err));
    lp.end_cost = 0;
    lp.price = 1 / fmax(most, 1);
    lp.latest = lp.y[lp.events - 1] * (1 + CRASH_TOLERANCE / 4);
    if (rc == OK) {
        keep_shares(&lp, share);
        begin_again(&lp);
        rc = settle(&lp, lack, excess, &later);
        if (rc == OK)
            keep_shares(&lp, share);
        else if (rc == ERR_INPUT)
            rc = OK; /* the end stands; the shares are not proved to be the least */
    }
out:
    free(lp.factor);
    free(lp.factor_slot);
    arrays_clear(&arrays);
    return rc;
}
