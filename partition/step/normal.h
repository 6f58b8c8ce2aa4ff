/* partition/step/normal.h - systems (A^T W A) x = b: many diagonals W for one sparse A.
 *
 * The interior point of crash.c solves some hundred of them. The columns are ordered once so that the
 * triangular factor stays sparse. */
#pragma once

#include "partition/base/arrays.h"
#include "partition/base/status.h"

/* A, row after row: row r has entries [first[r], first[r + 1]), each column at most once. */
struct sparse_rows {
    int num_rows, num_columns;
    const int *first, *column;
    const double *value;
};

struct front;

struct normal {
    const struct sparse_rows *rows; /* borrowed */
    struct arrays arrays;           /* owns what follows but `factor` */
    int *position;                  /* [column]: its place in the order of elimination */
    int num_fronts;
    struct front *fronts; /* children before parents */
    int *front_rows;      /* positions, ascending */
    int *lines, *line_of; /* rows of A by front; the row of the front that an entry of A is in */
    double *factor;       /* owned */
    double *work, *stack; /* one front; fronts that wait for their parent */
    double *x;            /* [position]: a solution, or the diagonal */
    int *place;           /* [position]: a row of the front, or of a parent's */
};

/* Order the columns of A, whose pattern and values stay as they are until normal_clear(). Each column
 * must have an entry. *normal must be zeroed or cleared. ERR_NOMEM. Time about O(entries of the factor). */
enum status normal_init(const struct sparse_rows *rows, struct normal *normal, struct err *err);
void normal_clear(struct normal *normal);

/* Factor A^T W A; weight[num_rows], each above 0. Where rounding takes a pivot away, a large one stands
 * for it, so the factor is a close approximation that leaves this unknown alone. */
void normal_factor(struct normal *normal, const double *weight);

/* Replace b by x, [column]. */
void normal_solve(struct normal *normal, double *x);
