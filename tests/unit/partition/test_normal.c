/* Systems A^T W A x = b: the x that b was made from is the judge. */
#include <math.h>
#include <string.h>

#include "partition/step/normal.h"
#include "tests/unit/near_case.h"
#include "tests/unit/plan_case.h"
#include "tests/unit/test.h"

enum { MOST_COLUMNS = 40, MOST_ROWS = 120, MOST_ENTRIES = 4 };

struct random_rows {
    int first[MOST_ROWS + 1], column[MOST_ROWS * MOST_ENTRIES];
    double value[MOST_ROWS * MOST_ENTRIES], weight[MOST_ROWS];
    struct sparse_rows rows;
};

/* Each column has a row of its own; the others have up to four columns. */
static void random_rows(struct random_rows *r, uint64_t *seed)
{
    const int columns = 1 + (int)case_below(seed, MOST_COLUMNS);
    const int rows = columns + (int)case_below(seed, MOST_ROWS - MOST_COLUMNS);
    int at = 0;
    for (int i = 0; i < rows; i++) {
        r->first[i] = at;
        const int most = columns < MOST_ENTRIES ? columns : MOST_ENTRIES;
        const int from = i < columns ? i : (int)case_below(seed, columns);
        const int n = i < columns ? 1 : 1 + (int)case_below(seed, most);
        const int step = 1 + (int)case_below(seed, columns / MOST_ENTRIES + 1);
        for (int k = 0; k < n && from + k * step < columns; k++) {
            r->column[at] = from + k * step;
            r->value[at++] = 0.001 + (double)(case_below(seed, 200) - 100) / 50;
        }
        r->weight[i] = exp((double)(case_below(seed, 100) - 50) / 20);
    }
    r->first[rows] = at;
    r->rows = (struct sparse_rows){rows, columns, r->first, r->column, r->value};
}

/* b = A^T W A x. */
static void multiply(const struct random_rows *r, const double *x, double *b)
{
    memset(b, 0, MOST_COLUMNS * sizeof *b);
    for (int i = 0; i < r->rows.num_rows; i++) {
        double sum = 0;
        for (int e = r->first[i]; e < r->first[i + 1]; e++)
            sum += r->value[e] * x[r->column[e]];
        for (int e = r->first[i]; e < r->first[i + 1]; e++)
            b[r->column[e]] += r->weight[i] * sum * r->value[e];
    }
}

static void normal_solve__finds_what_the_right_hand_side_was_made_from(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 1000; round++) {
        static struct random_rows r;
        struct normal normal = {0};
        struct err err = {0};
        double x[MOST_COLUMNS], b[MOST_COLUMNS];
        random_rows(&r, &seed);
        assert_int_equal(normal_init(&r.rows, &normal, &err), OK);
        for (int again = 0; again < 2; again++) {
            for (int c = 0; c < r.rows.num_columns; c++)
                x[c] = (double)case_below(&seed, 100) / 10;
            multiply(&r, x, b);
            normal_factor(&normal, r.weight);
            normal_solve(&normal, b);
            for (int c = 0; c < r.rows.num_columns; c++)
                assert_true(fabs(b[c] - x[c]) < 1e-5);
            r.weight[0] *= 3;
        }
        normal_clear(&normal);
        normal_clear(&normal);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_solve__finds_what_the_right_hand_side_was_made_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
