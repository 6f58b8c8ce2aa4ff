/* Factors by maximum a posteriori: least squares on ln(measured / predicted) with a normal prior on
 * the logarithm of each factor (ridge regression; Hoerl and Kennard 1970), by Gauss and Newton with
 * numerical derivatives. The prior makes one row enough, and shares its surprise among the factors
 * by how much they matter to that row. A factor about which the rows say little stays 1: keeping it
 * would carry the noise of these rows to other layouts. */
#include "partition/cost/calibration.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

/* Standard deviations of the logarithms before any row, but for compute's, which depends on what
 * has been judged (calibration_prior.c). */
static const double prior_of_factor[FACTOR_COUNT] = {0, 0.4, 0.4, 0.15, 0.1};
/* The prior (calibration_prior.c) of what one factor does not explain weighs as much as N rows. */
static const double PRIOR_ROWS = 3;
/* The number of sources from which it is known. */
static const double PRIOR_SOURCES = 25;
/* A factor counts as determined if its rows take as much of the prior's standard deviation. */
static const double SHARE_LEFT = 0.7;
/* How far n rows may move the logarithm of a factor: this times n^2, in standard deviations of the
 * prior. Seven of eight normally distributed deviations are smaller. Rows that agree are not
 * odd. */
static const double MOST_MOVE = 1.5;
static const double STEP = 0.02; /* of ln factor, for derivatives */
/* Derivatives are taken again where a factor has moved this far, and a fit ends where they give
 * every step within EXACT. */
static const double FAR = 0.25, EXACT = 0.002;
enum { ROUNDS = 4, MANY_ROWS = 20 };
static const double QUANTILE = 1.2816; /* of the normal distribution, which 80 % are within */

const char *factor_name(enum factor factor)
{
    static const char *const names[FACTOR_COUNT] = {"compute", "inside", "between", "launch",
                                                    "memory"};
    return names[factor];
}

void calibration_init(const struct calibration_prior *prior, struct calibration *calibration)
{
    *calibration = (struct calibration){.noise = prior->spread, .held = prior->held};
    for (int i = 0; i < FACTOR_COUNT; i++) {
        calibration->prior[i] = i == FACTOR_COMPUTE ? prior->compute : prior_of_factor[i];
        calibration->factor[i] = 1;
        calibration->covariance[i][i] = calibration->prior[i] * calibration->prior[i];
    }
}

/* Invert a symmetric positive definite matrix in place (Gauss and Jordan). */
static void invert(double a[FACTOR_TIMES][FACTOR_TIMES])
{
    enum { N = FACTOR_TIMES };
    double inverse[N][N] = {{0}};
    for (int i = 0; i < N; i++)
        inverse[i][i] = 1;
    for (int i = 0; i < N; i++) {
        const double pivot = a[i][i];
        for (int j = 0; j < N; j++) {
            a[i][j] /= pivot;
            inverse[i][j] /= pivot;
        }
        for (int k = 0; k < N; k++) {
            const double by = a[k][i];
            for (int j = 0; k != i && j < N; j++) {
                a[k][j] -= by * a[i][j];
                inverse[k][j] -= by * inverse[i][j];
            }
        }
    }
    memcpy(a, inverse, sizeof inverse);
}

/* The rows around some factors, where they were predicted: ln(measured / predicted) there, and the
 * derivatives of ln predicted. Elsewhere the residuals are those of a straight line. */
struct fit {
    calibration_predict *predict;
    void *ctx;
    const double *measured_ns;
    int num_rows;
    double prior_noise, prior_variance[FACTOR_TIMES], ln_factor[FACTOR_TIMES];
    double predicted_at[FACTOR_TIMES], sloped_at[FACTOR_TIMES]; /* ln factors */
    double *residual_there, *residual; /* owned, num_rows: at predicted_at, at ln_factor */
    double (*slope)[FACTOR_TIMES];     /* owned, num_rows */
};

static enum status predict_ln(const struct fit *fit, int row, const double ln_factor[FACTOR_TIMES],
                              double *ln_ns, struct err *err)
{
    double factor[FACTOR_TIMES], ns = 0;
    for (int k = 0; k < FACTOR_TIMES; k++)
        factor[k] = exp(ln_factor[k]);
    const enum status rc = fit->predict(fit->ctx, row, factor, &ns, err);
    *ln_ns = rc == OK && ns > 0 ? log(ns) : 0;
    return rc;
}

/* Predict all rows at the factors. Returns in *bend the most by which a residual differs from the
 * straight line's. */
static enum status evaluate(struct fit *fit, bool slopes, double *bend, struct err *err)
{
    enum status rc = OK;
    *bend = 0;
    for (int i = 0; i < fit->num_rows && rc == OK; i++) {
        double now = 0, more = 0, moved[FACTOR_TIMES];
        rc = predict_ln(fit, i, fit->ln_factor, &now, err);
        fit->residual_there[i] = log(fit->measured_ns[i]) - now;
        *bend = fmax(*bend, fabs(fit->residual_there[i] - fit->residual[i]));
        fit->residual[i] = fit->residual_there[i];
        for (int k = 0; slopes && k < FACTOR_TIMES && rc == OK; k++) {
            memcpy(moved, fit->ln_factor, sizeof moved);
            moved[k] += STEP;
            rc = predict_ln(fit, i, moved, &more, err);
            fit->slope[i][k] = (more - now) / STEP;
        }
    }
    memcpy(fit->predicted_at, fit->ln_factor, sizeof fit->predicted_at);
    if (slopes)
        memcpy(fit->sloped_at, fit->ln_factor, sizeof fit->sloped_at);
    return rc;
}

static void residuals_by_line(struct fit *fit)
{
    for (int i = 0; i < fit->num_rows; i++) {
        fit->residual[i] = fit->residual_there[i];
        for (int k = 0; k < FACTOR_TIMES; k++)
            fit->residual[i] -= fit->slope[i][k] * (fit->ln_factor[k] - fit->predicted_at[k]);
    }
}

/* The curvature of the misfit: rows over the noise's variance, and the prior's. */
static void curvature(const struct fit *fit, double noise, double h[FACTOR_TIMES][FACTOR_TIMES])
{
    for (int j = 0; j < FACTOR_TIMES; j++) {
        for (int k = 0; k < FACTOR_TIMES; k++) {
            h[j][k] = j == k ? 1 / fit->prior_variance[j] : 0;
            for (int i = 0; i < fit->num_rows; i++)
                h[j][k] += fit->slope[i][j] * fit->slope[i][k] / (noise * noise);
        }
    }
}

static double most_move(const struct fit *fit, int factor)
{
    const double n = fit->num_rows;
    return MOST_MOVE * n * n * sqrt(fit->prior_variance[factor]);
}

/* One step of Gauss and Newton over the factors in `free`; the others stay at 0. */
static void move(struct fit *fit, double noise, const bool free[FACTOR_TIMES])
{
    double h[FACTOR_TIMES][FACTOR_TIMES], gradient[FACTOR_TIMES];
    curvature(fit, noise, h);
    for (int j = 0; j < FACTOR_TIMES; j++) {
        gradient[j] = -fit->ln_factor[j] / fit->prior_variance[j];
        for (int i = 0; i < fit->num_rows; i++)
            gradient[j] += fit->slope[i][j] * fit->residual[i] / (noise * noise);
        for (int k = 0; k < FACTOR_TIMES && !free[j]; k++)
            h[j][k] = h[k][j] = j == k;
        gradient[j] = free[j] ? gradient[j] : 0;
    }
    for (int j = 0; j < FACTOR_TIMES; j++) /* rows of factors that stay, for later columns too */
        for (int k = 0; k < FACTOR_TIMES; k++)
            if (j != k && (!free[j] || !free[k]))
                h[j][k] = 0;
    invert(h);
    for (int j = 0; j < FACTOR_TIMES; j++) {
        const double most = most_move(fit, j);
        for (int k = 0; k < FACTOR_TIMES; k++)
            fit->ln_factor[j] += h[j][k] * gradient[k];
        fit->ln_factor[j] = fmax(-most, fmin(fit->ln_factor[j], most));
    }
}

static double noise_of(const struct fit *fit, int num_free, double middle)
{
    double sum = PRIOR_ROWS * fit->prior_noise * fit->prior_noise;
    for (int i = 0; i < fit->num_rows; i++)
        sum += (fit->residual[i] - middle) * (fit->residual[i] - middle);
    return sqrt(sum / (PRIOR_ROWS + fmax(0, fit->num_rows - num_free)));
}

/* What all rows have in common is not noise: the prior, or MOST_MOVE, kept it from the factors. */
static double scatter_of(const struct fit *fit, int num_free)
{
    double sum = 0;
    for (int i = 0; i < fit->num_rows; i++)
        sum += fit->residual[i];
    return noise_of(fit, num_free, sum / fit->num_rows);
}

static int count_free(const bool free[FACTOR_TIMES])
{
    int n = 0;
    for (int k = 0; k < FACTOR_TIMES; k++)
        n += free[k];
    return n;
}

/* Fit the factors in `free` by the straight lines, the others staying 1. Returns the noise. */
static double solve(struct fit *fit, const bool free[FACTOR_TIMES])
{
    double noise = fit->prior_noise;
    memset(fit->ln_factor, 0, sizeof fit->ln_factor);
    for (int round = 0; round < ROUNDS; round++) {
        residuals_by_line(fit);
        if (round > 0)
            noise = scatter_of(fit, count_free(free));
        move(fit, noise, free);
    }
    residuals_by_line(fit);
    return scatter_of(fit, count_free(free));
}

/* Fit the factors in `free`, and predict the rows again until the lines give them. */
static enum status solve_bent(struct fit *fit, const bool free[FACTOR_TIMES], struct err *err)
{
    double bend = INFINITY;
    enum status rc = OK;
    for (int round = 0; round < ROUNDS && rc == OK && bend > EXACT; round++) {
        bool far = false;
        solve(fit, free);
        for (int k = 0; k < FACTOR_TIMES; k++)
            far = far || fabs(fit->ln_factor[k] - fit->sloped_at[k]) > FAR;
        rc = evaluate(fit, far, &bend, err);
    }
    return rc;
}

/* Many rows say how wide an interval is that holds 80 % of others, whatever the shape of their
 * noise: ceil(0.8 (n + 1)) residuals lie within it (conformal prediction; Vovk, Gammerman, Shafer
 * 2005). Returns the noise of which that is an interval. Leaves the residuals sorted, without
 * signs. */
static double noise_that_holds(struct fit *fit, double noise)
{
    const int n = fit->num_rows, rank = (int)ceil(0.8 * (n + 1));
    if (n < MANY_ROWS)
        return noise;
    for (int i = 0; i < n; i++)
        fit->residual[i] = fabs(fit->residual[i]);
    qsort(fit->residual, (size_t)n, sizeof *fit->residual, compare_doubles);
    return fmax(noise, fit->residual[rank - 1] / QUANTILE);
}

/* Free the factors about which the rows say enough; if there is none, the one that they say most
 * about. */
static void find_determined(struct fit *fit, bool free[FACTOR_TIMES])
{
    double h[FACTOR_TIMES][FACTOR_TIMES];
    bool any = false;
    int best = 0;
    for (int k = 0; k < FACTOR_TIMES; k++)
        free[k] = true;
    curvature(fit, solve(fit, free), h);
    invert(h);
    for (int k = 0; k < FACTOR_TIMES; k++) {
        free[k] = sqrt(h[k][k] / fit->prior_variance[k]) < SHARE_LEFT;
        any = any || free[k];
        if (h[k][k] / fit->prior_variance[k] < h[best][best] / fit->prior_variance[best])
            best = k;
    }
    free[best] = free[best] || !any;
}

static enum status fit_times(struct fit *fit, struct calibration *c, struct calibrated_row *rows,
                             struct err *err)
{
    bool free[FACTOR_TIMES];
    double bend, h[FACTOR_TIMES][FACTOR_TIMES];
    enum status rc = evaluate(fit, true, &bend, err);
    if (rc != OK)
        return rc;
    find_determined(fit, free);
    rc = solve_bent(fit, free, err);
    if (rc != OK)
        return rc;
    for (int i = 0; rows && i < fit->num_rows; i++) {
        rows[i].predicted_ns = fit->measured_ns[i] / exp(fit->residual[i]);
        memcpy(rows[i].sensitivity, fit->slope[i], sizeof fit->slope[i]);
    }
    fit->prior_noise = c->held;
    c->noise = noise_that_holds(fit, noise_of(fit, count_free(free), 0));
    curvature(fit, c->noise, h);
    invert(h);
    for (int k = 0; k < FACTOR_TIMES; k++) {
        c->determined[k] = free[k];
        c->factor[k] = exp(fit->ln_factor[k]);
        c->at_bound[k] = free[k] && fabs(fit->ln_factor[k]) >= most_move(fit, k) * (1 - 1e-9);
        memcpy(c->covariance[k], h[k], sizeof h[k]);
    }
    return OK;
}

/* Peaks differ by few per cent among layouts of a framework, so their mean is the factor. */
static void fit_memory(const double *ratios, int n, struct calibration *c)
{
    const double before = 1 / c->covariance[FACTOR_MEMORY][FACTOR_MEMORY];
    const double row = 1 / (0.05 * 0.05); /* a peak repeats within 5 % (docs/measured.md) */
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += log(ratios[i]) * row;
    c->determined[FACTOR_MEMORY] = n > 0;
    c->factor[FACTOR_MEMORY] = exp(sum / (before + n * row));
    c->covariance[FACTOR_MEMORY][FACTOR_MEMORY] = 1 / (before + n * row);
}

enum status calibration_fit(calibration_predict *predict, void *ctx, const double *measured_ns,
                            int num_rows, const double *peak_ratios, int num_peaks,
                            struct calibration *calibration, struct calibrated_row *rows,
                            struct err *err)
{
    struct fit fit = {.predict = predict,
                      .ctx = ctx,
                      .measured_ns = measured_ns,
                      .num_rows = num_rows,
                      .prior_noise = calibration->noise,
                      .residual = calloc((size_t)num_rows + 1, sizeof *fit.residual),
                      .residual_there = calloc((size_t)num_rows + 1, sizeof *fit.residual),
                      .slope = calloc((size_t)num_rows + 1, sizeof *fit.slope)};
    enum status rc = fit.residual && fit.residual_there && fit.slope ? OK : err_nomem(err);
    for (int k = 0; k < FACTOR_TIMES; k++)
        fit.prior_variance[k] = calibration->covariance[k][k];
    if (rc == OK && num_rows + num_peaks < 1)
        rc = err_set(err, ERR_INPUT, "a calibration needs a measured step or peak");
    if (rc == OK && num_rows > 0)
        rc = fit_times(&fit, calibration, rows, err);
    if (rc == OK) {
        fit_memory(peak_ratios, num_peaks, calibration);
        calibration->num_rows = num_rows;
        calibration->num_peaks = num_peaks;
    }
    free(fit.residual);
    free(fit.residual_there);
    free(fit.slope);
    return rc;
}

static bool differs(const char *then, const char *now)
{
    return *then && strcmp(then, now) != 0;
}

const char *calibration_differs(const struct calibration *c, const char *device, const char *dtype,
                                const char *launcher, char *text, size_t size)
{
    *text = '\0';
    if (differs(c->device, device) || differs(c->dtype, dtype) || differs(c->launcher, launcher))
        snprintf(text, size, "%s, %s, %s", c->device, c->dtype, c->launcher);
    return text;
}

/* The quantile is Student's, since the noise is an estimate too: that of the normal distribution
 * with two terms of its expansion in 1 / degrees of freedom (Fisher and Cornish 1960). */
void calibration_interval(const struct calibration *calibration,
                          const double sensitivity[FACTOR_TIMES], double step_ns, double ns[2])
{
    const double z = QUANTILE, freedom = PRIOR_SOURCES + calibration->num_rows;
    const double z3 = z * z * z, z5 = z3 * z * z;
    const double quantile =
        z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom);
    double variance = calibration->noise * calibration->noise;
    for (int j = 0; j < FACTOR_TIMES; j++)
        for (int k = 0; k < FACTOR_TIMES; k++)
            variance += sensitivity[j] * calibration->covariance[j][k] * sensitivity[k];
    const double width = exp(quantile * sqrt(variance));
    ns[0] = step_ns / width;
    ns[1] = step_ns * width;
}
