/* A multifrontal method (Duff and Reid, ACM Trans. Mathematical Software, 1983).
 *
 * The columns that are eliminated together, with those that the factor has below them, are a front:
 * a small dense matrix. A front adds up its rows of A and what its children have left, eliminates
 * its columns, and leaves the rest to its parent. Fronts are merged where that brings few zeros
 * into the factor, because larger ones run faster.
 *
 * Read normal_init(), then normal_factor(). */
#include "partition/step/normal.h"

#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"
#include "partition/step/column_order.h"

enum { NONE = -1, PANEL = 4 };
#define LOST 1e-12 /* of a column's diagonal: less is rounding alone */
#define LARGE 1e20 /* times that diagonal */

/* Also compile for wider registers, chosen at run time. Without contraction the bits are the
 * same. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

struct front {
    int first;             /* position of its first pivot */
    int num_pivots, width; /* rows: pivots, then those below */
    int64_t rows_at;       /* in front_rows */
    int64_t factor_at;     /* width * num_pivots entries, column after column */
    int first_line, num_lines;
    int num_children; /* what they leave is on top of the stack, that of the front before on top */
    int before;       /* the last front that is not in its subtree */
};

/* --- the symbolic part ------------------------------------------------------------------------ */

struct symbolic {
    const struct sparse_rows *rows;
    struct arrays arrays;
    int *order, *first_of_node, nodes;
    int *node_of, *front_of;              /* [column]; [node] */
    int *parent;                          /* [node] */
    int *child, *sibling;                 /* [node]: lists */
    int *line, *next_line;                /* [node]: rows of A that no earlier node has; [row] */
    int64_t *below_at;                    /* [node]: columns below its own, in `below` */
    int *num_below, *num_pivots, *merged; /* [node]; merged: into its parent */
    double *zeros;                        /* [node]: entries of the factor that are 0 */
    int *below;                           /* owned */
    int64_t used, room;
    int *stamp; /* [column] */
};

static bool symbolic_arrays(struct symbolic *s)
{
    const size_t columns = (size_t)s->rows->num_columns;
    int **const by_column[] = {&s->order,  &s->first_of_node, &s->node_of,    &s->front_of,
                               &s->parent, &s->child,         &s->sibling,    &s->line,
                               &s->stamp,  &s->num_below,     &s->num_pivots, &s->merged};
    for (size_t i = 0; i < sizeof by_column / sizeof *by_column; i++)
        *by_column[i] = arrays_new(&s->arrays, columns + 1, sizeof(int));
    s->next_line = arrays_new(&s->arrays, (size_t)s->rows->num_rows + 1, sizeof(int));
    s->below_at = arrays_new(&s->arrays, columns + 1, sizeof(int64_t));
    s->zeros = arrays_new(&s->arrays, columns + 1, sizeof(double));
    return !s->arrays.failed;
}

static void add_below(struct symbolic *s, int node, int column)
{
    if (s->node_of[column] == node || s->stamp[column] == node)
        return;
    s->stamp[column] = node;
    s->below[s->used++] = column;
}

/* Find the columns below a node, from its rows of A and its children. */
static bool find_below(struct symbolic *s, int node)
{
    int64_t most = 0;
    for (int r = s->line[node]; r != NONE; r = s->next_line[r])
        most += s->rows->first[r + 1] - s->rows->first[r];
    for (int c = s->child[node]; c != NONE; c = s->sibling[c])
        most += s->num_below[c];
    if (!array_grow(&s->below, s->used + most, &s->room, sizeof *s->below))
        return false;
    s->below_at[node] = s->used;
    for (int r = s->line[node]; r != NONE; r = s->next_line[r])
        for (int i = s->rows->first[r]; i < s->rows->first[r + 1]; i++)
            add_below(s, node, s->rows->column[i]);
    for (int c = s->child[node]; c != NONE; c = s->sibling[c])
        for (int i = 0; i < s->num_below[c]; i++)
            add_below(s, node, s->below[s->below_at[c] + i]);
    s->num_below[node] = (int)(s->used - s->below_at[node]);
    int parent = NONE;
    for (int64_t i = s->below_at[node]; i < s->used; i++) {
        const int other = s->node_of[s->below[i]];
        parent = parent == NONE || other < parent ? other : parent;
    }
    s->parent[node] = parent;
    if (parent != NONE) {
        s->sibling[node] = s->child[parent];
        s->child[parent] = node;
    }
    return true;
}

/* Whether a front with this many pivots may hold this share of zeros: small fronts gain most. */
static bool few_zeros(int pivots, double zeros, double entries)
{
    return pivots <= 4 || zeros <= entries * (pivots <= 16 ? 0.4 : pivots <= 48 ? 0.1 : 0.05);
}

/* Merge children into a node while that brings few zeros. */
static void merge_children(struct symbolic *s, int node)
{
    for (int c = s->child[node]; c != NONE; c = s->sibling[c]) {
        const double width = s->num_pivots[node] + s->num_below[node];
        const int pivots = s->num_pivots[node] + s->num_pivots[c];
        const double zeros =
            s->zeros[node] + s->zeros[c] + (width - s->num_below[c]) * s->num_pivots[c];
        const double entries = (width + s->num_pivots[c] - 0.5 * pivots) * pivots;
        if (width > s->num_below[c] && !few_zeros(pivots, zeros, entries))
            continue;
        s->merged[c] = 1;
        s->num_pivots[node] = pivots;
        s->zeros[node] = zeros;
    }
}

static bool find_fronts(struct symbolic *s)
{
    for (int n = 0; n < s->nodes; n++) {
        s->child[n] = s->line[n] = NONE;
        s->num_pivots[n] = s->first_of_node[n + 1] - s->first_of_node[n];
        for (int i = s->first_of_node[n]; i < s->first_of_node[n + 1]; i++) {
            s->node_of[s->order[i]] = n;
            s->stamp[s->order[i]] = NONE;
        }
    }
    for (int r = s->rows->num_rows - 1; r >= 0; r--) {
        int first = s->nodes;
        for (int i = s->rows->first[r]; i < s->rows->first[r + 1]; i++)
            first = s->node_of[s->rows->column[i]] < first ? s->node_of[s->rows->column[i]] : first;
        s->next_line[r] = s->line[first];
        s->line[first] = r;
    }
    for (int n = 0; n < s->nodes; n++) {
        if (!find_below(s, n))
            return false;
        merge_children(s, n);
    }
    return true;
}

/* --- fronts in the order of their work -------------------------------------------------------- */

struct layout {
    struct symbolic *s;
    struct normal *normal;
    int *front_of; /* [node] */
    int64_t rows_used, factor_used, most_stacked;
    int widest;
};

static int compare_ints(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Make a front of each node that is not merged, children first and a subtree's together. */
static void number_fronts(struct layout *l)
{
    struct symbolic *s = l->s;
    int *const path = s->stamp;
    for (int root = 0; root < s->nodes; root++) {
        int depth = 0;
        if (s->parent[root] == NONE)
            path[depth++] = root;
        while (depth > 0) {
            const int node = path[depth - 1], child = s->child[node];
            if (child != NONE) {
                s->child[node] = s->sibling[child];
                path[depth++] = child;
                continue;
            }
            depth--;
            if (s->merged[node])
                continue;
            const int at = l->normal->num_fronts++;
            l->front_of[node] = at;
            l->normal->fronts[at] =
                (struct front){.num_pivots = s->num_pivots[node],
                               .width = s->num_pivots[node] + s->num_below[node],
                               .rows_at = s->below_at[node], /* until positions are known */
                               .before = at - 1};
        }
    }
    for (int node = s->nodes - 1; node >= 0; node--)
        if (s->merged[node])
            l->front_of[node] = l->front_of[s->parent[node]];
}

/* Where the pivots, the rows and the factor of each front begin. */
static void size_fronts(struct layout *l)
{
    struct normal *n = l->normal;
    int position = 0;
    for (int i = 0; i < n->num_fronts; i++) {
        struct front *f = &n->fronts[i];
        f->first = position;
        position += f->num_pivots;
        f->factor_at = l->factor_used;
        l->factor_used += (int64_t)f->width * f->num_pivots;
        l->rows_used += f->width;
        l->widest = f->width > l->widest ? f->width : l->widest;
    }
    for (int node = 0; node < l->s->nodes; node++)
        if (l->s->parent[node] != NONE && !l->s->merged[node])
            n->fronts[l->front_of[l->s->parent[node]]].num_children++;
}

/* Where the subtree of each front begins. */
static void find_subtrees(struct normal *n)
{
    for (int i = 0; i < n->num_fronts; i++)
        for (int c = 0; c < n->fronts[i].num_children; c++)
            n->fronts[i].before = n->fronts[n->fronts[i].before].before;
}

/* Give positions to the columns of each node, and its rows of A to its front. */
static void place_columns(struct layout *l)
{
    struct symbolic *s = l->s;
    struct normal *n = l->normal;
    int *const placed = s->num_pivots; /* [front] */
    memset(placed, 0, (size_t)n->num_fronts * sizeof *placed);
    for (int node = 0; node < s->nodes; node++) {
        struct front *f = &n->fronts[l->front_of[node]];
        for (int i = s->first_of_node[node]; i < s->first_of_node[node + 1]; i++)
            n->position[s->order[i]] = f->first + placed[l->front_of[node]]++;
        for (int r = s->line[node]; r != NONE; r = s->next_line[r])
            f->num_lines++;
    }
    for (int i = 0, line = 0; i < n->num_fronts; i++) {
        n->fronts[i].first_line = line;
        line += n->fronts[i].num_lines;
        n->fronts[i].num_lines = 0;
    }
    for (int node = 0; node < s->nodes; node++) {
        struct front *f = &n->fronts[l->front_of[node]];
        for (int r = s->line[node]; r != NONE; r = s->next_line[r])
            n->lines[f->first_line + f->num_lines++] = r;
    }
}

/* The rows of each front as positions, and the space that the stack takes. */
static void place_rows(struct layout *l)
{
    struct normal *n = l->normal;
    int64_t at = 0, stacked = 0;
    int *tops = l->s->stamp, num_tops = 0; /* widths on the stack */
    for (int i = 0; i < n->num_fronts; i++) {
        struct front *f = &n->fronts[i];
        const int *below = l->s->below + f->rows_at;
        const int num_below = f->width - f->num_pivots;
        f->rows_at = at;
        for (int k = 0; k < f->num_pivots; k++)
            n->front_rows[at++] = f->first + k;
        for (int k = 0; k < num_below; k++)
            n->front_rows[at + k] = n->position[below[k]];
        qsort(n->front_rows + at, (size_t)num_below, sizeof *n->front_rows, compare_ints);
        at += num_below;
        for (int c = 0; c < f->num_children; c++) {
            num_tops--;
            stacked -= (int64_t)tops[num_tops] * tops[num_tops];
        }
        tops[num_tops++] = num_below;
        stacked += (int64_t)num_below * num_below;
        l->most_stacked = stacked > l->most_stacked ? stacked : l->most_stacked;
    }
}

/* Where the entries of A go in their fronts. */
static void place_lines(struct normal *n)
{
    for (int i = 0; i < n->num_fronts; i++) {
        const struct front *f = &n->fronts[i];
        for (int k = 0; k < f->width; k++)
            n->place[n->front_rows[f->rows_at + k]] = k;
        for (int l = f->first_line; l < f->first_line + f->num_lines; l++)
            for (int e = n->rows->first[n->lines[l]]; e < n->rows->first[n->lines[l] + 1]; e++)
                n->line_of[e] = n->place[n->position[n->rows->column[e]]];
    }
}

static bool layout_all(struct layout *l)
{
    struct normal *n = l->normal;
    struct symbolic *s = l->s;
    const size_t columns = (size_t)s->rows->num_columns;
    n->position = arrays_new(&n->arrays, columns, sizeof(int));
    n->place = arrays_new(&n->arrays, columns, sizeof(int));
    n->x = arrays_new(&n->arrays, columns, sizeof(double));
    n->fronts = arrays_new(&n->arrays, columns, sizeof *n->fronts);
    n->lines = arrays_new(&n->arrays, (size_t)s->rows->num_rows, sizeof(int));
    n->line_of = arrays_new(&n->arrays, (size_t)s->rows->first[s->rows->num_rows], sizeof(int));
    l->front_of = s->front_of;
    if (n->arrays.failed)
        return false;
    number_fronts(l);
    size_fronts(l);
    find_subtrees(n);
    place_columns(l);
    n->front_rows = arrays_new(&n->arrays, (size_t)l->rows_used, sizeof(int));
    if (n->arrays.failed)
        return false;
    place_rows(l);
    place_lines(n);
    n->work = arrays_new(&n->arrays, (size_t)l->widest * (size_t)l->widest, sizeof(double));
    n->stack = arrays_new(&n->arrays, (size_t)l->most_stacked + 1, sizeof(double));
    n->factor = malloc((size_t)(l->factor_used + 1) * sizeof *n->factor);
    return !n->arrays.failed && n->factor;
}

enum status normal_init(const struct sparse_rows *rows, struct normal *normal, struct err *err)
{
    struct symbolic s = {.rows = rows};
    struct layout layout = {.s = &s, .normal = normal};
    normal->rows = rows;
    enum status rc = symbolic_arrays(&s) ? OK : err_nomem(err);
    THEN(column_order(rows, s.order, s.first_of_node, &s.nodes, err));
    if (rc == OK && !(find_fronts(&s) && layout_all(&layout)))
        rc = err_nomem(err);
    free(s.below);
    arrays_clear(&s.arrays);
    if (rc != OK)
        normal_clear(normal);
    return rc;
}

void normal_clear(struct normal *normal)
{
    free(normal->factor);
    arrays_clear(&normal->arrays);
    *normal = (struct normal){0};
}

/* --- the numeric part ------------------------------------------------------------------------- */

/* Add weight * row^T row for the rows of A of a front. */
static void add_lines(const struct normal *n, const struct front *f, const double *weight,
                      double *work)
{
    for (int l = f->first_line; l < f->first_line + f->num_lines; l++) {
        const int r = n->lines[l];
        for (int a = n->rows->first[r]; a < n->rows->first[r + 1]; a++)
            for (int b = n->rows->first[r]; b <= a; b++) {
                const int i = n->line_of[a], j = n->line_of[b];
                const size_t at = i > j ? (size_t)j * (size_t)f->width + (size_t)i
                                        : (size_t)i * (size_t)f->width + (size_t)j;
                work[at] += weight[r] * n->rows->value[a] * n->rows->value[b];
            }
    }
}

/* Add what a child has left to its parent's front. */
static void add_child(struct normal *n, const struct front *child, const double *left,
                      const struct front *f, double *work)
{
    const int num = child->width - child->num_pivots;
    const int *rows = n->front_rows + child->rows_at + child->num_pivots;
    int *const to = n->place;
    for (int k = 0, at = 0; k < num; k++) { /* both ascend */
        while (n->front_rows[f->rows_at + at] != rows[k])
            at++;
        to[k] = at;
    }
    for (int j = 0; j < num; j++) {
        double *const column = work + (size_t)to[j] * (size_t)f->width;
        for (int i = j; i < num; i++)
            column[to[i]] += left[(size_t)j * (size_t)num + (size_t)i];
    }
}

/* Eliminate the columns of a panel within it; their pivots. whole: the diagonal before any
 * elimination. What rounding has left of a pivot is lost. A large one stands for it, which holds
 * its unknown still (Wright, SIAM J. Optimization, 1999): a small one would divide the column's
 * rounding by itself. */
WIDE static void factor_panel(double *work, int width, int first, int num, const double *whole,
                              double *pivot)
{
    for (int t = 0; t < num; t++) {
        const int c = first + t;
        double *const column = work + (size_t)c * (size_t)width;
        for (int u = 0; u < t; u++) {
            const double *const before = work + (size_t)(first + u) * (size_t)width;
            const double times = pivot[u] * before[c];
            for (int i = c; i < width; i++)
                column[i] -= times * before[i];
        }
        pivot[t] = column[c] > LOST * whole[c] ? column[c] : LARGE * whole[c];
        column[c] = pivot[t];
        for (int i = c + 1; i < width; i++)
            column[i] /= pivot[t];
    }
}

/* Subtract a full panel's part from two columns of the front, from row `from` on. */
static inline __attribute__((always_inline)) void
update_pair(double *restrict one, double *restrict two, const double *restrict p0,
            const double *restrict p1, const double *restrict p2, const double *restrict p3,
            const double *a, const double *b, int from, int width)
{
    const double a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
    const double b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3];
    for (int i = from; i < width; i++) {
        one[i] -= a0 * p0[i] + a1 * p1[i] + a2 * p2[i] + a3 * p3[i];
        two[i] -= b0 * p0[i] + b1 * p1[i] + b2 * p2[i] + b3 * p3[i];
    }
}

/* Subtract a panel's part from the columns after it. The last odd one and narrow panels go
 * singly. */
WIDE static void update_columns(double *work, int width, int first, int num, const double *pivot)
{
    const double *const panel = work + (size_t)first * (size_t)width;
    int k = first + num;
    for (; num == PANEL && k + 1 < width; k += 2) {
        double a[PANEL], b[PANEL];
        double *const one = work + (size_t)k * (size_t)width, *const two = one + width;
        for (int t = 0; t < PANEL; t++) {
            a[t] = pivot[t] * panel[(size_t)t * (size_t)width + (size_t)k];
            b[t] = pivot[t] * panel[(size_t)t * (size_t)width + (size_t)k + 1];
        }
        update_pair(one, two, panel, panel + width, panel + 2 * (size_t)width,
                    panel + 3 * (size_t)width, a, b, k, width);
    }
    for (; k < width; k++)
        for (int t = 0; t < num; t++) {
            const double *const before = panel + (size_t)t * (size_t)width;
            const double times = pivot[t] * before[k];
            double *const column = work + (size_t)k * (size_t)width;
            for (int i = k; i < width; i++)
                column[i] -= times * before[i];
        }
}

void normal_factor(struct normal *n, const double *weight)
{
    double *top = n->stack;
    memset(n->x, 0, (size_t)n->rows->num_columns * sizeof *n->x);
    for (int r = 0; r < n->rows->num_rows; r++)
        for (int i = n->rows->first[r]; i < n->rows->first[r + 1]; i++)
            n->x[n->position[n->rows->column[i]]] +=
                weight[r] * n->rows->value[i] * n->rows->value[i];
    for (int at = 0; at < n->num_fronts; at++) {
        const struct front *f = &n->fronts[at];
        const size_t width = (size_t)f->width, below = width - (size_t)f->num_pivots;
        double *const work = n->work;
        memset(work, 0, width * width * sizeof *work);
        add_lines(n, f, weight, work);
        for (int c = 0, child = at - 1; c < f->num_children; c++) {
            const size_t num = (size_t)(n->fronts[child].width - n->fronts[child].num_pivots);
            top -= num * num;
            add_child(n, &n->fronts[child], top, f, work);
            child = n->fronts[child].before;
        }
        for (int j = 0; j < f->num_pivots; j += PANEL) {
            const int num = f->num_pivots - j < PANEL ? f->num_pivots - j : PANEL;
            double pivot[PANEL];
            factor_panel(work, f->width, j, num, n->x + f->first, pivot);
            update_columns(work, f->width, j, num, pivot);
        }
        memcpy(n->factor + f->factor_at, work, width * (size_t)f->num_pivots * sizeof *work);
        for (size_t j = 0; j < below; j++)
            memcpy(top + j * below + j, work + ((size_t)f->num_pivots + j) * (width + 1),
                   (below - j) * sizeof *work);
        top += below * below;
    }
}

/* The inner product of a column below its pivot and the solution there, in four sums because a
 * single one would wait for each addition. */
static double inner(const double *column, const double *part, int from, int width)
{
    double sum[4] = {0, 0, 0, 0};
    int i = from;
    for (; i + 4 <= width; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += column[i + k] * part[i + k];
    for (; i < width; i++)
        sum[0] += column[i] * part[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void normal_solve(struct normal *n, double *x)
{
    double *const y = n->x, *const part = n->work;
    for (int c = 0; c < n->rows->num_columns; c++)
        y[n->position[c]] = x[c];
    for (int at = 0; at < n->num_fronts; at++) {
        const struct front *f = &n->fronts[at];
        const int *rows = n->front_rows + f->rows_at;
        for (int i = 0; i < f->width; i++)
            part[i] = i < f->num_pivots ? y[rows[i]] : 0;
        for (int j = 0; j < f->num_pivots; j++) {
            const double *column = n->factor + f->factor_at + (size_t)j * (size_t)f->width;
            for (int i = j + 1; i < f->width; i++)
                part[i] -= column[i] * part[j];
        }
        for (int i = 0; i < f->num_pivots; i++)
            y[rows[i]] = part[i];
        for (int i = f->num_pivots; i < f->width; i++)
            y[rows[i]] += part[i];
    }
    for (int at = n->num_fronts - 1; at >= 0; at--) {
        const struct front *f = &n->fronts[at];
        const int *rows = n->front_rows + f->rows_at;
        for (int i = 0; i < f->width; i++)
            part[i] = y[rows[i]];
        for (int j = f->num_pivots - 1; j >= 0; j--) {
            const double *column = n->factor + f->factor_at + (size_t)j * (size_t)f->width;
            part[j] = part[j] / column[j] - inner(column, part, j + 1, f->width);
        }
        for (int i = 0; i < f->num_pivots; i++)
            y[rows[i]] = part[i];
    }
    for (int c = 0; c < n->rows->num_columns; c++)
        x[c] = y[n->position[c]];
}
