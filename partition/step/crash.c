/* An interior-point method.
 *
 * The project is the linear program
 *     minimise  the end, or the sum of shares
 *     over event times and shares, so that
 *         time[to] - time[from] + cut * share >= ns     for each arc,
 *         0 <= share <= 1, and the shares of a group sum up to at most its budget.
 * It is solved twice by Mehrotra's predictor and corrector (SIAM J. Optimization, 1992): for the end
 * alone, then for the shares alone with the end bounded by what came out.
 *
 * A budget couples all works of its group, which would fill the systems. In place of shares they hence
 * have their running sums along the group: a share is the difference of two neighbours, and the last
 * sum alone meets the budget. Then each row has four entries at most, near each other in time and
 * stages, and the systems stay sparse (normal.h).
 *
 * Nothing rests on the iterate being exact. Its shares, brought within their limits, give an end; its
 * multipliers, scaled so that what comes to an event leaves it, give a bound from below. The run ends
 * when the two meet.
 *
 * Unknowns are numbered: events, then shares (works). Event 0 is none.
 * Rows are numbered: arcs, then the lower bounds of shares, their upper bounds, groups.
 *
 * Read crash_solve() first, then iterate(). */
#include "partition/step/crash.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"
#include "partition/step/normal.h"

enum { MOST_ITERATIONS = 60, MOST_SOLVES = 12 };
#define GAP_TOLERANCE (0.3 * CRASH_TOLERANCE) /* of the end */
#define END_TOLERANCE (0.6 * CRASH_TOLERANCE) /* of the end, that the second run aims for */
#define SUM_TOLERANCE 4e-4                    /* of the sum of shares, and of one share */
#define SOLVE_TOLERANCE 1e-18                 /* of the square of the right-hand side */
#define STEP_PART 0.97                        /* of the way to the nearest bound */
#define LEAST_SLACK 1e-4                      /* at the begin, in the unit of times */
#define SECOND_SLACK 1e-5                     /* at the second begin */
#define SECOND_PRODUCT 1e-2                   /* of multiplier and slack there */
#define ROUNDING 1e-15                        /* of a row, in the unit of times */

struct lp {
    const struct crash_project *project;
    int events, works, groups, arcs, unknowns, rows;
    double unit_ns;                 /* times are divided by it */
    double end_cost, price, latest; /* the objective's coefficients, and the end's limit */
    int *before, *after;            /* [work]: its neighbours in its group; -1: none */
    int *last_of;                   /* [group]: its last work; -1: it has none */
    struct sparse_rows matrix;
    struct normal normal;
    double *y, *dy;                       /* [unknown]: times and shares */
    double *x, *z, *dx, *dz;              /* [row]: multiplier and slack */
    double *weight, *target;              /* [row]: x / z, and the wanted x z */
    double *line_weight;                  /* [row of the matrix] */
    double *rhs, *found, *along, *curved; /* [unknown] */
    double *column;                       /* [column of the systems] */
    double *lack, *excess;                /* [unknown], [row] */
    double *flow, *share, *event_ns;      /* of the bounds: [event], [work], [event] */
};

static int work_at(const struct lp *lp, int work)
{
    return lp->events + work;
}

/* The column of the systems that is the sum of a group's shares up to this work. */
static int sum_at(const struct lp *lp, int work)
{
    return lp->events - 1 + work;
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

/* --- the systems ------------------------------------------------------------------------------ */

/* Link the works of each group. */
static void number_works(struct lp *lp)
{
    const struct crash_project *project = lp->project;
    for (int g = 0; g < lp->groups; g++)
        lp->last_of[g] = -1;
    for (int j = 0; j < lp->works; j++) {
        int *const last = &lp->last_of[project->group[j]];
        lp->before[j] = *last;
        lp->after[j] = -1;
        if (*last >= 0)
            lp->after[*last] = j;
        *last = j;
    }
}

static void put(int *column, double *value, int *at, int c, double v)
{
    column[*at] = c;
    value[(*at)++] = v;
}

/* The entries of a share, times `times`: its running sum less the one before. */
static void put_share(const struct lp *lp, int *column, double *value, int *at, int work,
                      double times)
{
    put(column, value, at, sum_at(lp, work), times);
    if (lp->before[work] >= 0)
        put(column, value, at, sum_at(lp, lp->before[work]), -times);
}

/* The matrix has a row for each arc, then one for both bounds of each share, then one for each group. */
static void fill_matrix(struct lp *lp, int *first, int *column, double *value)
{
    const struct crash_project *project = lp->project;
    int row = 0, at = 0;
    for (int a = 0; a < lp->arcs; a++) {
        const struct crash_arc *arc = &project->arcs[a];
        first[row++] = at;
        put(column, value, &at, arc->to - 1, 1);
        if (arc->from > 0)
            put(column, value, &at, arc->from - 1, -1);
        if (arc->work >= 0)
            put_share(lp, column, value, &at, arc->work, arc->cut_ns / lp->unit_ns);
    }
    for (int j = 0; j < lp->works; j++) {
        first[row++] = at;
        put_share(lp, column, value, &at, j, 1);
    }
    for (int g = 0; g < lp->groups; g++) {
        first[row++] = at;
        if (lp->last_of[g] >= 0)
            put(column, value, &at, sum_at(lp, lp->last_of[g]), 1);
    }
    first[row++] = at;
    put(column, value, &at, lp->events - 2, 1);
    first[row] = at;
}

static enum status make_matrix(struct lp *lp, struct arrays *arrays, struct err *err)
{
    const int rows = lp->arcs + lp->works + lp->groups + 1;
    const size_t most = 4 * (size_t)lp->arcs + 2 * (size_t)lp->works + (size_t)lp->groups;
    int *first = arrays_new(arrays, (size_t)rows + 1, sizeof *first);
    int *column = arrays_new(arrays, most + 2, sizeof *column);
    double *value = arrays_new(arrays, most + 2, sizeof *value);
    lp->line_weight = arrays_new(arrays, (size_t)rows, sizeof(double));
    if (arrays->failed)
        return err_nomem(err);
    number_works(lp);
    fill_matrix(lp, first, column, value);
    lp->matrix = (struct sparse_rows){rows, lp->events - 1 + lp->works, first, column, value};
    return normal_init(&lp->matrix, &lp->normal, err);
}

static void factor(struct lp *lp)
{
    for (int a = 0; a < lp->arcs; a++)
        lp->line_weight[a] = lp->weight[a];
    for (int j = 0; j < lp->works; j++)
        lp->line_weight[lp->arcs + j] = lp->weight[lower_row(lp, j)] + lp->weight[upper_row(lp, j)];
    for (int g = 0; g < lp->groups; g++)
        lp->line_weight[lp->arcs + lp->works + g] = lp->weight[group_row(lp, g)];
    lp->line_weight[lp->arcs + lp->works + lp->groups] = lp->weight[end_row(lp)];
    normal_factor(&lp->normal, lp->line_weight);
}

/* Solve for rhs by the factor alone, into dy. */
static void precondition(struct lp *lp)
{
    const double *rhs = &lp->rhs[work_at(lp, 0)];
    memcpy(lp->column, lp->rhs + 1, (size_t)(lp->events - 1) * sizeof *lp->column);
    for (int j = 0; j < lp->works; j++)
        lp->column[sum_at(lp, j)] = rhs[j] - (lp->after[j] >= 0 ? rhs[lp->after[j]] : 0);
    normal_solve(&lp->normal, lp->column);
    memcpy(lp->dy + 1, lp->column, (size_t)(lp->events - 1) * sizeof *lp->column);
    for (int j = 0; j < lp->works; j++)
        lp->dy[work_at(lp, j)] = lp->column[sum_at(lp, j)] -
                                 (lp->before[j] >= 0 ? lp->column[sum_at(lp, lp->before[j])] : 0);
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

/* The rows' curvature along p: A^T W A p. */
static void curve(struct lp *lp, const double *p, double *sum)
{
    rows_of(lp, p, lp->dz);
    for (int r = 0; r < lp->rows; r++)
        lp->dz[r] *= lp->weight[r];
    memset(sum, 0, (size_t)lp->unknowns * sizeof *sum);
    add_columns(lp, lp->dz, sum);
}

static double inner(const struct lp *lp, const double *a, const double *b)
{
    double sum = 0;
    for (int u = 1; u < lp->unknowns; u++)
        sum += a[u] * b[u];
    return sum;
}

/* Solve for rhs, into dy: conjugate gradients, to which the factor is a close approximation but where late
 * systems are ill conditioned. rhs is lost. */
static void solve(struct lp *lp)
{
    double *const rest = lp->rhs, *const found = lp->found, *const along = lp->along;
    const double enough = SOLVE_TOLERANCE * inner(lp, rest, rest);
    double energy = 0;
    memset(found, 0, (size_t)lp->unknowns * sizeof *found);
    for (int i = 0; i < MOST_SOLVES && inner(lp, rest, rest) > enough; i++) {
        const double before = energy;
        precondition(lp);
        energy = inner(lp, rest, lp->dy);
        for (int u = 1; u < lp->unknowns; u++)
            along[u] = lp->dy[u] + (i > 0 ? energy / before * along[u] : 0);
        curve(lp, along, lp->curved);
        const double length = energy / inner(lp, along, lp->curved);
        if (!(energy > 0 && length < INFINITY))
            break;
        for (int u = 1; u < lp->unknowns; u++) {
            found[u] += length * along[u];
            rest[u] -= length * lp->curved[u];
        }
    }
    memcpy(lp->dy, found, (size_t)lp->unknowns * sizeof *found);
}

/* The step dy, dx, dz that brings the products x z to `target`. */
static void newton_solve(struct lp *lp)
{
    for (int r = 0; r < lp->rows; r++)
        lp->dx[r] = (lp->target[r] - lp->x[r] * lp->excess[r]) / lp->z[r];
    for (int u = 0; u < lp->unknowns; u++)
        lp->rhs[u] = -lp->lack[u];
    add_columns(lp, lp->dx, lp->rhs);
    solve(lp);
    rows_of(lp, lp->dy, lp->dz);
    for (int r = 0; r < lp->rows; r++) {
        lp->dz[r] += lp->excess[r];
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

/* lack: of each unknown's cost over what the multipliers give. excess: of each row over its slack. */
static void find_residuals(struct lp *lp)
{
    double *const lack = lp->lack, *const excess = lp->excess;
    memset(lack, 0, (size_t)lp->unknowns * sizeof *lack);
    add_columns(lp, lp->x, lack);
    for (int u = 0; u < lp->unknowns; u++)
        lack[u] = (u == lp->events - 1 ? lp->end_cost : u >= lp->events ? lp->price : 0) - lack[u];
    rows_of(lp, lp->y, excess);
    for (int r = 0; r < lp->rows; r++) {
        excess[r] -= row_limit(lp, r) + lp->z[r];
        if (fabs(excess[r]) < ROUNDING)
            excess[r] = 0;
    }
}

/* One iteration of predictor and corrector. */
static void iterate(struct lp *lp)
{
    find_residuals(lp);
    for (int r = 0; r < lp->rows; r++) {
        lp->weight[r] = lp->x[r] / lp->z[r];
        lp->target[r] = -lp->x[r] * lp->z[r];
    }
    factor(lp);
    newton_solve(lp);
    const double mean = mean_product(lp, 0, 0);
    const double hoped = mean_product(lp, longest_step(lp->x, lp->dx, lp->rows),
                                      longest_step(lp->z, lp->dz, lp->rows));
    const double centre = mean * pow(hoped / mean, 3);
    for (int r = 0; r < lp->rows; r++)
        lp->target[r] = centre - lp->x[r] * lp->z[r] - lp->dx[r] * lp->dz[r];
    newton_solve(lp);
    const double x_length = STEP_PART * longest_step(lp->x, lp->dx, lp->rows);
    const double z_length = STEP_PART * longest_step(lp->z, lp->dz, lp->rows);
    for (int r = 0; r < lp->rows; r++) {
        lp->x[r] += x_length * lp->dx[r];
        lp->z[r] += z_length * lp->dz[r];
    }
    for (int u = 1; u < lp->unknowns; u++)
        lp->y[u] += z_length * lp->dy[u];
}

/* Begin between all limits: shares at half of what their groups allow, events later than they need to
 * be, multipliers that make all products equal. */
static void begin(struct lp *lp, int *depth)
{
    double *const event_ns = lp->event_ns;
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
    int deepest = 1;
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

/* --- the bounds ------------------------------------------------------------------------------- */

/* Bring shares within their limits to the last bit. The objective that they give; infinite where the
 * end is too late. */
static double bound_above(struct lp *lp, double *share)
{
    const struct crash_project *project = lp->project;
    double *const sum = lp->rhs;
    double all = 0;
    memset(sum, 0, (size_t)lp->groups * sizeof *sum);
    for (int j = 0; j < lp->works; j++) {
        share[j] = fmin(fmax(lp->y[work_at(lp, j)], 0), 1);
        sum[project->group[j]] += share[j];
    }
    for (int j = 0; j < lp->works; j++) {
        if (sum[project->group[j]] > project->budget[project->group[j]])
            share[j] *= project->budget[project->group[j]] / sum[project->group[j]];
        all += share[j];
    }
    const double end = crash_end_ns(project, share, lp->event_ns) / lp->unit_ns;
    return end > lp->latest * (1 + GAP_TOLERANCE) ? INFINITY : lp->end_cost * end + lp->price * all;
}

/* What no shares are below: the multipliers of arcs as a flow from the end to the begin, and what it
 * makes each share worth. */
static double bound_below(struct lp *lp)
{
    const struct crash_project *project = lp->project;
    double *const flow = lp->flow, *const worth = lp->rhs;
    double bound = 0;
    memset(flow, 0, (size_t)lp->events * sizeof *flow);
    memset(worth, 0, (size_t)lp->works * sizeof *worth);
    flow[lp->events - 1] = lp->end_cost > 0 ? lp->end_cost : lp->x[end_row(lp)];
    bound -= lp->end_cost > 0 ? 0 : lp->x[end_row(lp)] * lp->latest;
    for (int end = lp->arcs, first; end > 0; end = first) {
        const int to = project->arcs[end - 1].to;
        double in = 0;
        for (first = end; first > 0 && project->arcs[first - 1].to == to; first--)
            in += lp->x[first - 1];
        for (int a = first; a < end; a++) {
            const struct crash_arc *arc = &project->arcs[a];
            const double part = flow[to] * lp->x[a] / in;
            flow[arc->from] += part;
            bound += part * arc->ns / lp->unit_ns;
            if (arc->work >= 0)
                worth[arc->work] += part * arc->cut_ns / lp->unit_ns;
        }
    }
    for (int j = 0; j < lp->works; j++)
        bound -= fmax(worth[j] - lp->price - lp->x[group_row(lp, project->group[j])], 0);
    for (int g = 0; g < lp->groups; g++)
        bound -= lp->x[group_row(lp, g)] * project->budget[g];
    return bound;
}

static bool lp_arrays(struct lp *lp, struct arrays *arrays)
{
    double **const by_row[] = {&lp->x,      &lp->z,      &lp->dx,    &lp->dz,
                               &lp->weight, &lp->target, &lp->excess};
    double **const by_unknown[] = {&lp->y,     &lp->dy,       &lp->rhs,   &lp->found,
                                   &lp->along, &lp->curved,   &lp->lack,  &lp->flow,
                                   &lp->share, &lp->event_ns, &lp->column};
    for (size_t i = 0; i < sizeof by_row / sizeof *by_row; i++)
        *by_row[i] = arrays_new(arrays, (size_t)lp->rows, sizeof(double));
    for (size_t i = 0; i < sizeof by_unknown / sizeof *by_unknown; i++)
        *by_unknown[i] = arrays_new(arrays, (size_t)(lp->unknowns + lp->groups), sizeof(double));
    lp->before = arrays_new(arrays, (size_t)lp->works + 1, sizeof(int));
    lp->after = arrays_new(arrays, (size_t)lp->works + 1, sizeof(int));
    lp->last_of = arrays_new(arrays, (size_t)lp->groups + 1, sizeof(int));
    return !arrays->failed;
}

/* Iterate until the bounds meet, or no more comes of it. The best shares, and the gap that is left. */
static double settle(struct lp *lp, double tolerance, double least, double *share)
{
    double above = INFINITY, below = -INFINITY;
    for (int i = 0; i < MOST_ITERATIONS; i++) {
        const double got = bound_above(lp, lp->share), bound = bound_below(lp);
        if (got < above) {
            above = got;
            memcpy(share, lp->share, (size_t)lp->works * sizeof *share);
        }
        below = bound > below ? bound : below;
        const bool met = above < INFINITY && above - below <= tolerance * above + least;
        if (met || !(mean_product(lp, 0, 0) < INFINITY))
            break;
        iterate(lp);
    }
    return above - below;
}

/* Begin again where the first iterations ended, for the shares alone. */
static void begin_again(struct lp *lp)
{
    lp->end_cost = 0;
    lp->price = 1;
    lp->latest *= 1 + END_TOLERANCE;
    rows_of(lp, lp->y, lp->z);
    for (int r = 0; r < lp->rows; r++) {
        lp->z[r] = fmax(lp->z[r] - row_limit(lp, r), SECOND_SLACK);
        lp->x[r] = SECOND_PRODUCT / lp->z[r];
    }
}

enum status crash_solve(const struct crash_project *project, double *share, struct err *err)
{
    struct arrays arrays = {0};
    struct lp lp = {.project = project,
                    .events = project->num_events,
                    .works = project->num_works,
                    .groups = project->num_groups,
                    .arcs = project->num_arcs};
    lp.unknowns = lp.events + lp.works;
    lp.rows = lp.arcs + 2 * lp.works + lp.groups + 1;
    int *depth = arrays_new(&arrays, (size_t)lp.events, sizeof *depth);
    enum status rc = lp_arrays(&lp, &arrays) && depth ? OK : err_nomem(err);
    if (rc == OK) {
        lp.unit_ns = crash_end_ns(project, NULL, lp.event_ns);
        lp.end_cost = 1;
        lp.latest = 3; /* no limit: at the begin the end is at 1.5 at most */
        begin(&lp, depth);
        rc = make_matrix(&lp, &arrays, err);
    }
    if (rc == OK) {
        const double gap = settle(&lp, GAP_TOLERANCE, 0, share);
        lp.latest = crash_end_ns(project, share, lp.event_ns) / lp.unit_ns;
        if (gap > GAP_TOLERANCE * lp.latest)
            rc = err_set(err, ERR_INPUT, "shares of %d works do not settle", lp.works);
    }
    if (rc == OK) {
        begin_again(&lp);
        settle(&lp, SUM_TOLERANCE, SUM_TOLERANCE, share);
    }
    normal_clear(&lp.normal);
    arrays_clear(&arrays);
    return rc;
}
