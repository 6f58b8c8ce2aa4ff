/* Minimum degree on the quotient graph.
 *
 * A row of A is an element: all of its columns are neighbours. To eliminate a column joins the elements
 * that it is in to one, less itself; these are absorbed. The column with the fewest neighbours goes
 * next, and the number is an upper bound that is cheap to keep (Amestoy, Davis and Duff, SIAM J. Matrix
 * Analysis, 1996). Columns in equal elements are merged and eliminated together.
 *
 * Read column_order(), then eliminate(). */
#include "partition/step/column_order.h"

#include <string.h>

enum { NONE = -1 };

struct quotient {
    int columns, elements;         /* elements: rows, then those that eliminations make, in order */
    int *members_at, *num_members; /* [element]: columns, in pool; 0 members: absorbed */
    int *size;                     /* [element]: columns with those that are merged into them */
    int *pool, used, room;         /* of members */
    int *lists_at, *num_lists, *all; /* [column]: the elements that it is in */
    int *weight;                     /* [column]: columns that it stands for; 0: it is gone */
    int *last, *chain;               /* [column]: those that it stands for, as a list */
    int *degree, *next, *before;     /* [column]: lists by degree */
    int *head, least;                /* [degree] */
    int *stamp, now;                 /* [column] or [element] with `outside` */
    int *outside;                    /* [element]: columns of it that the new element lacks */
    int *bucket_of, *bucket;         /* [column]: sums of element numbers, and lists by them */
    int left;                        /* columns that are not eliminated */
};

static bool quotient_arrays(struct quotient *q, struct arrays *arrays, int entries)
{
    const size_t columns = (size_t)q->columns, elements = (size_t)q->elements;
    int **const by_column[] = {&q->lists_at, &q->num_lists, &q->weight,    &q->last,
                               &q->chain,    &q->degree,    &q->next,      &q->before,
                               &q->head,     &q->stamp,     &q->bucket_of, &q->bucket};
    int **const by_element[] = {&q->members_at, &q->num_members, &q->size, &q->outside};
    for (size_t i = 0; i < sizeof by_column / sizeof *by_column; i++)
        *by_column[i] = arrays_new(arrays, columns + 1, sizeof(int));
    for (size_t i = 0; i < sizeof by_element / sizeof *by_element; i++)
        *by_element[i] = arrays_new(arrays, elements, sizeof(int));
    q->room = 2 * entries + q->columns;
    q->pool = arrays_new(arrays, (size_t)q->room, sizeof(int));
    q->all = arrays_new(arrays, (size_t)entries + 1, sizeof(int));
    return !arrays->failed;
}

static void list_by_degree(struct quotient *q, int column, int degree)
{
    q->degree[column] = degree;
    q->before[column] = NONE;
    q->next[column] = q->head[degree];
    if (q->head[degree] != NONE)
        q->before[q->head[degree]] = column;
    q->head[degree] = column;
    q->least = degree < q->least ? degree : q->least;
}

static void unlist(struct quotient *q, int column)
{
    const int next = q->next[column], before = q->before[column];
    if (next != NONE)
        q->before[next] = before;
    if (before != NONE)
        q->next[before] = next;
    else
        q->head[q->degree[column]] = next;
}

static void quotient_begin(struct quotient *q, const struct sparse_rows *rows)
{
    const int entries = rows->first[rows->num_rows];
    memcpy(q->pool, rows->column, (size_t)entries * sizeof *q->pool);
    q->used = entries;
    for (int r = 0; r < rows->num_rows; r++) {
        q->members_at[r] = rows->first[r];
        q->num_members[r] = q->size[r] = rows->first[r + 1] - rows->first[r];
        for (int i = rows->first[r]; i < rows->first[r + 1]; i++) {
            q->num_lists[rows->column[i]]++;
            q->degree[rows->column[i]] += q->size[r] - 1;
        }
    }
    for (int c = 0, at = 0; c < q->columns; c++) {
        q->lists_at[c] = at;
        at += q->num_lists[c];
        q->num_lists[c] = 0;
        q->weight[c] = 1;
        q->last[c] = c;
        q->chain[c] = q->head[c] = q->bucket[c] = NONE;
    }
    for (int r = 0; r < rows->num_rows; r++)
        for (int i = rows->first[r]; i < rows->first[r + 1]; i++) {
            const int c = rows->column[i];
            q->all[q->lists_at[c] + q->num_lists[c]++] = r;
        }
    q->left = q->least = q->columns;
    for (int c = q->columns - 1; c >= 0; c--)
        list_by_degree(q, c, q->degree[c] < q->columns ? q->degree[c] : q->columns - 1);
}

/* Move the members of all elements to the front of the pool, where they are in the order of elements. */
static void pool_pack(struct quotient *q)
{
    int used = 0;
    for (int e = 0; e < q->elements; e++) {
        int kept = 0;
        for (int i = 0; i < q->num_members[e]; i++) {
            const int c = q->pool[q->members_at[e] + i];
            if (q->weight[c] > 0)
                q->pool[used + kept++] = c;
        }
        q->members_at[e] = used;
        q->num_members[e] = kept;
        used += kept;
    }
    q->used = used;
}

static void merge_into(struct quotient *q, int into, int column)
{
    q->weight[into] += q->weight[column];
    q->weight[column] = 0;
    q->chain[q->last[into]] = column;
    q->last[into] = q->last[column];
}

/* The element that the elimination of a column makes of those that it is in. */
static void join_elements(struct quotient *q, int column, int made)
{
    int most = 0;
    for (int l = 0; l < q->num_lists[column]; l++)
        most += q->num_members[q->all[q->lists_at[column] + l]];
    if (q->used + most > q->room)
        pool_pack(q);
    int *const members = q->pool + q->used;
    int n = 0, size = 0;
    q->now++;
    q->stamp[column] = q->now;
    for (int l = 0; l < q->num_lists[column]; l++) {
        const int e = q->all[q->lists_at[column] + l];
        for (int i = 0; i < q->num_members[e]; i++) {
            const int c = q->pool[q->members_at[e] + i];
            if (q->weight[c] == 0 || q->stamp[c] == q->now)
                continue;
            q->stamp[c] = q->now;
            members[n++] = c;
            size += q->weight[c];
        }
        q->num_members[e] = 0;
    }
    q->members_at[made] = q->used;
    q->num_members[made] = n;
    q->size[made] = size;
    q->used += n;
}

/* For each element that shares a column with the new one, count what it has beside it. */
static void count_outside(struct quotient *q, int made)
{
    const int *members = q->pool + q->members_at[made];
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < q->num_members[made]; i++)
            for (int l = 0; l < q->num_lists[members[i]]; l++) {
                const int e = q->all[q->lists_at[members[i]] + l];
                if (pass == 0)
                    q->outside[e] = q->size[e];
                else
                    q->outside[e] -= q->weight[members[i]];
            }
}

/* Renew the elements and the degree of a column of the new element; the sum of its elements. */
static unsigned renew(struct quotient *q, int column, int made)
{
    int *const list = q->all + q->lists_at[column];
    int kept = 0, degree = q->size[made] - q->weight[column];
    unsigned sum = 0;
    for (int l = 0; l < q->num_lists[column]; l++) {
        const int e = list[l];
        if (q->num_members[e] == 0)
            continue;
        if (q->outside[e] == 0) { /* the new one has all of it */
            q->num_members[e] = 0;
            continue;
        }
        list[kept++] = e;
        sum += (unsigned)e;
        degree = degree + q->outside[e] < q->columns ? degree + q->outside[e] : q->columns - 1;
    }
    list[kept++] = made;
    q->num_lists[column] = kept;
    q->degree[column] = degree;
    return sum;
}

static bool equal_lists(struct quotient *q, int a, int b)
{
    if (q->num_lists[a] != q->num_lists[b])
        return false;
    q->now++;
    for (int l = 0; l < q->num_lists[a]; l++)
        q->outside[q->all[q->lists_at[a] + l]] = -q->now;
    for (int l = 0; l < q->num_lists[b]; l++)
        if (q->outside[q->all[q->lists_at[b] + l]] != -q->now)
            return false;
    return true;
}

/* Merge the columns of the new element that are in equal elements, and list the others by degree. */
static void merge_equal(struct quotient *q, int made)
{
    const int *members = q->pool + q->members_at[made];
    for (int i = 0; i < q->num_members[made]; i++) {
        const int c = members[i];
        if (q->weight[c] == 0)
            continue;
        int into = q->bucket[q->bucket_of[c]];
        while (into != NONE && !equal_lists(q, into, c))
            into = q->next[into];
        if (into != NONE) {
            q->degree[into] -= q->weight[c];
            merge_into(q, into, c);
        } else {
            q->next[c] = q->bucket[q->bucket_of[c]];
            q->bucket[q->bucket_of[c]] = c;
        }
    }
    for (int i = 0; i < q->num_members[made]; i++) {
        const int c = members[i];
        q->bucket[q->bucket_of[c]] = NONE;
        if (q->weight[c] == 0)
            continue;
        const int others = q->left - q->weight[c];
        list_by_degree(q, c, q->degree[c] < others ? q->degree[c] : others);
    }
}

/* Eliminate a column and those that have no other neighbours; they make an element. */
static void eliminate(struct quotient *q, int column, int made)
{
    unlist(q, column);
    join_elements(q, column, made);
    count_outside(q, made);
    int *const members = q->pool + q->members_at[made];
    int kept = 0, left = q->size[made];
    for (int i = 0; i < q->num_members[made]; i++) {
        const int c = members[i];
        unlist(q, c);
        const unsigned sum = renew(q, c, made);
        if (q->num_lists[c] == 1) {
            left -= q->weight[c];
            merge_into(q, column, c);
            continue;
        }
        q->bucket_of[c] = (int)(sum % (unsigned)q->columns);
        members[kept++] = c;
    }
    for (int i = 0; i < kept; i++)
        q->degree[members[i]] -= q->size[made] - left;
    q->num_members[made] = kept;
    q->size[made] = left;
    q->left -= q->weight[column];
    q->weight[column] = 0;
    merge_equal(q, made);
}

enum status column_order(const struct sparse_rows *rows, int *order, int *first_of_node,
                         int *num_nodes, struct err *err)
{
    struct arrays arrays = {0};
    struct quotient q = {.columns = rows->num_columns,
                         .elements = rows->num_rows + rows->num_columns};
    const bool made = quotient_arrays(&q, &arrays, rows->first[rows->num_rows]);
    int placed = 0, nodes = 0;
    if (made)
        quotient_begin(&q, rows);
    while (made && q.left > 0) {
        while (q.head[q.least] == NONE)
            q.least++;
        const int column = q.head[q.least];
        eliminate(&q, column, rows->num_rows + nodes);
        first_of_node[nodes++] = placed;
        for (int c = column; c != NONE; c = q.chain[c])
            order[placed++] = c;
    }
    first_of_node[nodes] = placed;
    *num_nodes = nodes;
    arrays_clear(&arrays);
    return made ? OK : err_nomem(err);
}
