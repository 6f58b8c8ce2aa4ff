/* Calibrations: against steps that are made of known factors. */
#include "partition/cost/calibration.h"

#include "tests/unit/test.h"

/* A step of four parts, one for each factor of times; the parts of a row add up. */
enum { ROWS = 40 };
static double parts[ROWS][FACTOR_TIMES];

static enum status add_parts(void *ctx, int row, const double factor[FACTOR_TIMES], double *ns,
                             struct err *err)
{
    (void)ctx;
    (void)err;
    *ns = 0;
    for (int k = 0; k < FACTOR_TIMES; k++)
        *ns += factor[k] * parts[row][k];
    return OK;
}

/* Normally distributed: Box and Muller 1958. */
static double draw_normal(void)
{
    return sqrt(-2 * log(1 - random_unit())) * cos(6.283185307179586 * random_unit());
}

/* Rows in which compute and collectives inside a node matter by turns. */
static void make_rows(double compute, double inside, double noise, double *measured)
{
    const double factor[FACTOR_TIMES] = {compute, inside, 1, 1};
    for (int i = 0; i < ROWS; i++) {
        parts[i][FACTOR_COMPUTE] = 1e9 * (0.2 + random_unit());
        parts[i][FACTOR_INSIDE] = 1e9 * random_unit();
        parts[i][FACTOR_BETWEEN] = 1e4;
        parts[i][FACTOR_LAUNCH] = 0;
        add_parts(NULL, i, factor, &measured[i], NULL);
        measured[i] *= exp(noise * draw_normal());
    }
}

static void calibration_fit__takes_one_row_for_compute_alone(void **state)
{
    (void)state;
    const double measured = 1.3e9;
    struct calibration c;
    double now;
    parts[0][FACTOR_COMPUTE] = 0.9e9;
    parts[0][FACTOR_INSIDE] = 0.1e9;
    parts[0][FACTOR_BETWEEN] = parts[0][FACTOR_LAUNCH] = 0;
    calibration_init(false, &c);
    assert_int_equal(calibration_fit(add_parts, NULL, &measured, 1, NULL, 0, &c, NULL), OK);
    assert_true(c.determined[FACTOR_COMPUTE]);
    for (int k = FACTOR_COMPUTE + 1; k < FACTOR_COUNT; k++) {
        assert_false(c.determined[k]);
        assert_true(c.factor[k] == 1);
    }
    add_parts(NULL, 0, c.factor, &now, NULL);
    assert_true(now > 1.15e9 && now < measured); /* the prior holds back a part */
    assert_int_equal(c.num_rows, 1);
}

static void calibration_fit__finds_as_many_factors_as_the_rows_determine(void **state)
{
    (void)state;
    double measured[ROWS];
    struct calibration c;
    make_rows(1.25, 1.6, 0, measured);
    calibration_init(false, &c);
    assert_int_equal(calibration_fit(add_parts, NULL, measured, ROWS, NULL, 0, &c, NULL), OK);
    assert_true(fabs(c.factor[FACTOR_COMPUTE] / 1.25 - 1) < 0.01);
    assert_true(fabs(c.factor[FACTOR_INSIDE] / 1.6 - 1) < 0.01);
    assert_true(c.determined[FACTOR_COMPUTE] && c.determined[FACTOR_INSIDE]);
    assert_false(c.determined[FACTOR_BETWEEN] || c.determined[FACTOR_LAUNCH]);
    assert_true(c.factor[FACTOR_BETWEEN] == 1 && c.factor[FACTOR_LAUNCH] == 1);
    assert_true(sqrt(c.covariance[FACTOR_COMPUTE][FACTOR_COMPUTE]) < 0.02);
    assert_true(fabs(sqrt(c.covariance[FACTOR_LAUNCH][FACTOR_LAUNCH]) - 0.15) < 1e-9);
}

/* The share of rows in their intervals where the first num_rows of ROWS are fitted and the others
 * asked; over many draws of noise. */
static double share_held(int num_rows, double noise)
{
    int held = 0, asked = 0;
    for (int trial = 0; trial < 200; trial++) {
        double measured[ROWS];
        struct calibration c;
        make_rows(exp(0.15 * draw_normal()), exp(0.4 * draw_normal()), noise, measured);
        calibration_init(false, &c);
        assert_int_equal(calibration_fit(add_parts, NULL, measured, num_rows, NULL, 0, &c, NULL),
                         OK);
        for (int i = num_rows; i < ROWS; i++, asked++) {
            double now, slope[FACTOR_TIMES], ns[2];
            add_parts(NULL, i, c.factor, &now, NULL);
            for (int k = 0; k < FACTOR_TIMES; k++)
                slope[k] = c.factor[k] * parts[i][k] / now;
            calibration_interval(&c, slope, now, ns);
            assert_true(ns[0] < now && now < ns[1]);
            held += measured[i] >= ns[0] && measured[i] <= ns[1];
        }
    }
    return (double)held / asked;
}

static void calibration_interval__holds_eight_of_ten_rows_that_were_not_fitted(void **state)
{
    (void)state;
    const double held = share_held(ROWS / 2, 0.08);
    assert_true(held > 0.77 && held < 0.87);
}

/* One row does not say how far layouts lie apart. In published sources that is 0.12 at most, but for
 * one (calibration.c). */
static void calibration_interval__from_one_row_holds_layouts_that_differ(void **state)
{
    (void)state;
    assert_true(share_held(1, 0.12) > 0.79);
    assert_true(share_held(3, 0.12) > 0.79);
}

enum { EVEN = 60 };
static double even_ns[EVEN];

static enum status one_part(void *ctx, int row, const double factor[FACTOR_TIMES], double *ns,
                            struct err *err)
{
    (void)ctx, (void)row, (void)err;
    *ns = 1e9 * factor[FACTOR_COMPUTE];
    return OK;
}

/* Evenly spread noise has no tails, so a normal distribution of its variance holds 74 % where it is
 * asked for 80. */
static void calibration_interval__of_many_rows_holds_noise_of_any_shape(void **state)
{
    (void)state;
    struct calibration c;
    double ns[2];
    int held = 0;
    for (int i = 0; i < EVEN; i++)
        even_ns[i] = 1e9 * exp(0.5 * (2.0 * i / (EVEN - 1) - 1));
    calibration_init(false, &c);
    assert_int_equal(calibration_fit(one_part, NULL, even_ns, EVEN, NULL, 0, &c, NULL), OK);
    calibration_interval(&c, (double[FACTOR_TIMES]){1, 0, 0, 0}, 1e9 * c.factor[FACTOR_COMPUTE],
                         ns);
    for (int i = 0; i < EVEN; i++)
        held += even_ns[i] >= ns[0] && even_ns[i] <= ns[1];
    assert_in_range(held, EVEN * 8 / 10, EVEN * 9 / 10);
}

static void calibration_fit__takes_the_ideal_further_than_kernels(void **state)
{
    (void)state;
    const double measured = 4e9;
    struct calibration kernels, ideal;
    parts[0][FACTOR_COMPUTE] = 1e9;
    parts[0][FACTOR_INSIDE] = parts[0][FACTOR_BETWEEN] = parts[0][FACTOR_LAUNCH] = 0;
    calibration_init(false, &kernels);
    calibration_init(true, &ideal);
    assert_int_equal(calibration_fit(add_parts, NULL, &measured, 1, NULL, 0, &kernels, NULL), OK);
    assert_int_equal(calibration_fit(add_parts, NULL, &measured, 1, NULL, 0, &ideal, NULL), OK);
    assert_true(ideal.factor[FACTOR_COMPUTE] > 3.8 && ideal.factor[FACTOR_COMPUTE] < 4);
    assert_true(kernels.factor[FACTOR_COMPUTE] < ideal.factor[FACTOR_COMPUTE]);
}

/* Qwen3 in two releases took 2.9 times as long as in the next (docs/costs-published.md): two rows may say so, one may
 * not. */
static void calibration_fit__believes_an_odd_step_when_it_repeats(void **state)
{
    (void)state;
    const double measured[] = {2.9e9, 2.9e9, 2.9e9};
    double factor[4];
    for (int i = 0; i < 3; i++)
        memcpy(parts[i], (double[FACTOR_TIMES]){1e9}, sizeof parts[i]);
    for (int rows = 1; rows <= 3; rows++) {
        struct calibration c;
        calibration_init(false, &c);
        assert_int_equal(calibration_fit(add_parts, NULL, measured, rows, NULL, 0, &c, NULL), OK);
        factor[rows] = c.factor[FACTOR_COMPUTE];
    }
    assert_true(factor[1] > 1.2 && factor[1] < exp(0.225) + 1e-9);
    assert_true(factor[2] > 2 && factor[2] < exp(0.9) + 1e-9);
    assert_true(factor[3] > 2.6 && factor[3] < 2.9);
}

static void calibration_differs__names_what_was_measured(void **state)
{
    (void)state;
    char text[96];
    struct calibration c;
    calibration_init(false, &c);
    assert_string_equal(calibration_differs(&c, "a100", "bf16", "fsdp", text, sizeof text), "");
    strcpy(c.device, "a100");
    strcpy(c.dtype, "bf16");
    strcpy(c.launcher, "fsdp");
    assert_string_equal(calibration_differs(&c, "a100", "bf16", "fsdp", text, sizeof text), "");
    assert_string_equal(calibration_differs(&c, "h100", "bf16", "fsdp", text, sizeof text),
                        "a100, bf16, fsdp");
    assert_string_equal(calibration_differs(&c, "a100", "fp8", "fsdp", text, sizeof text),
                        "a100, bf16, fsdp");
    assert_string_equal(calibration_differs(&c, "a100", "bf16", "auto", text, sizeof text),
                        "a100, bf16, fsdp");
}

static void calibration_fit__averages_peaks_of_memory(void **state)
{
    (void)state;
    const double ratios[] = {1.1, 1.2, 1.15, 1.15};
    struct calibration c;
    struct err err = {0};
    calibration_init(false, &c);
    assert_int_equal(calibration_fit(add_parts, NULL, NULL, 0, ratios, 4, &c, NULL), OK);
    assert_true(c.determined[FACTOR_MEMORY]);
    assert_true(fabs(c.factor[FACTOR_MEMORY] / 1.15 - 1) < 0.02);
    assert_false(c.determined[FACTOR_COMPUTE]);
    calibration_init(false, &c);
    assert_int_equal(calibration_fit(add_parts, NULL, NULL, 0, NULL, 0, &c, &err), ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calibration_fit__takes_one_row_for_compute_alone),
        cmocka_unit_test(calibration_fit__finds_as_many_factors_as_the_rows_determine),
        cmocka_unit_test(calibration_interval__holds_eight_of_ten_rows_that_were_not_fitted),
        cmocka_unit_test(calibration_interval__from_one_row_holds_layouts_that_differ),
        cmocka_unit_test(calibration_interval__of_many_rows_holds_noise_of_any_shape),
        cmocka_unit_test(calibration_fit__takes_the_ideal_further_than_kernels),
        cmocka_unit_test(calibration_fit__believes_an_odd_step_when_it_repeats),
        cmocka_unit_test(calibration_differs__names_what_was_measured),
        cmocka_unit_test(calibration_fit__averages_peaks_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
