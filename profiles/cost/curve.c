#include <stdlib.h>

#include "profiles/cost/profile_cost.h"

struct point {
    double x, y, weight;
};

static int compare_points(const void *a, const void *b)
{
    const struct point *p = a, *q = b;
    return (p->x > q->x) - (p->x < q->x);
}

/* Merge q into p: both get the weighted mean of their y. */
static void pool(struct point *p, const struct point *q)
{
    double weight = p->weight + q->weight;
    p->y = weight > 0 ? (p->y * p->weight + q->y * q->weight) / weight : (p->y + q->y) / 2;
    p->weight = weight;
}

/* Isotonic regression by pooling adjacent violators (Barlow et al., 1972): the non-decreasing
 * sequence nearest to the medians in weighted least squares. O(n) after the sort. */
enum status curve_build(const double *x, const double *y, const double *weight, int n,
                        struct curve *curve, struct err *err)
{
    enum status rc = OK;
    struct point *points = malloc((size_t)n * sizeof *points);
    struct point *blocks = malloc((size_t)n * sizeof *blocks);
    int *size = malloc((size_t)n * sizeof *size);
    struct curve got = {.x = malloc((size_t)n * sizeof(double)),
                        .y = malloc((size_t)n * sizeof(double))};
    int num_points = 0, num_blocks = 0;
    if (!points || !blocks || !size || !got.x || !got.y) {
        rc = err_nomem(err);
        goto out;
    }
    for (int i = 0; i < n; i++)
        points[i] = (struct point){x[i], y[i], weight[i]};
    qsort(points, (size_t)n, sizeof *points, compare_points);
    for (int i = 0; i < n; i++)
        if (num_points > 0 && points[num_points - 1].x == points[i].x)
            pool(&points[num_points - 1], &points[i]);
        else
            points[num_points++] = points[i];
    for (int i = 0; i < num_points; i++) {
        blocks[num_blocks] = points[i];
        size[num_blocks++] = 1;
        while (num_blocks > 1 && blocks[num_blocks - 2].y > blocks[num_blocks - 1].y) {
            pool(&blocks[num_blocks - 2], &blocks[num_blocks - 1]);
            size[num_blocks - 2] += size[num_blocks - 1];
            num_blocks--;
        }
    }
    for (int b = 0; b < num_blocks; b++)
        for (int i = 0; i < size[b]; i++, got.n++) {
            got.x[got.n] = points[got.n].x;
            got.y[got.n] = blocks[b].y;
        }
    *curve = got;
    got = (struct curve){0};
out:
    curve_clear(&got);
    free(points);
    free(blocks);
    free(size);
    return rc;
}

void curve_clear(struct curve *curve)
{
    free(curve->x);
    free(curve->y);
    *curve = (struct curve){0};
}

double curve_at(const struct curve *curve, double x, bool *extrapolated)
{
    const double *xs = curve->x, *ys = curve->y;
    int last = curve->n - 1;
    if (x < xs[0] || x > xs[last])
        *extrapolated = true;
    if (last == 0 || x <= xs[0]) {
        if (x == xs[0])
            return ys[0];
        /* Below the first point: extrapolate with the first slope. The result stays between the
         * time in proportion to x (there may be fixed costs) and the smallest measured time. A
         * single point gives proportion only. */
        double share = xs[0] > 0 ? ys[0] * x / xs[0] : ys[0];
        if (last == 0)
            return share;
        double line = ys[0] + (ys[1] - ys[0]) / (xs[1] - xs[0]) * (x - xs[0]);
        return line > share ? line : share;
    }
    int low = 0, high = last;
    if (x >= xs[last]) {
        low = last - 1;
    } else {
        while (high - low > 1) {
            int middle = (low + high) / 2;
            if (xs[middle] <= x)
                low = middle;
            else
                high = middle;
        }
    }
    double slope = (ys[low + 1] - ys[low]) / (xs[low + 1] - xs[low]);
    if (x >= xs[last])
        return ys[last] + slope * (x - xs[last]);
    return ys[low] + slope * (x - xs[low]);
}
