/* partition/cost/calibration.h - factors between computed and measured times, fitted to measured
 * steps.
 *
 * A computed cost misses what is particular to a cluster and a framework: clocks, libraries, fused
 * kernels, networks. A few measured steps say how much. Each factor is a ratio of real to computed
 * time (of memory: of real to computed bytes), 1 before anything is measured. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum factor {
    FACTOR_COMPUTE,               /* work of kernels on a device */
    FACTOR_INSIDE,                /* collectives inside a node */
    FACTOR_BETWEEN,               /* collectives between nodes */
    FACTOR_LAUNCH,                /* the host's time to launch a kernel */
    FACTOR_TIMES,                 /* those above change times */
    FACTOR_MEMORY = FACTOR_TIMES, /* memory of a device, beyond the context */
    FACTOR_COUNT
};
const char *
factor_name(enum factor factor); /* "compute", "inside", "between", "launch", "memory" */

#define CALIBRATION_NAME_MAX 64
struct calibration {
    char name[CALIBRATION_NAME_MAX]; /* "": none, and every factor is 1 */
    char cluster[64], framework[32]; /* what was measured; "": not said */
    /* The kind of device, the data type and the train.framework of the rows: factors are good for
     * these (calibration_differs()). "": a store of before version 9 does not say. */
    char device[32], dtype[16], launcher[32];
    char made_at[32], version[32]; /* ISO 8601, UTC; of Elapse */
    int num_rows, num_peaks;       /* measured steps, and measured peaks of memory */
    double factor[FACTOR_COUNT];
    bool determined[FACTOR_COUNT]; /* false: the rows say too little, and the factor stays 1 */
    /* The covariance of ln factor[i] and ln factor[j] after the fit, including factors that stay
     * 1. */
    double covariance[FACTOR_COUNT][FACTOR_COUNT];
    double noise; /* standard deviation of ln (measured / predicted) that factors do not explain */
    /* Of the fit, not kept in the store: the standard deviation of ln factor[i] before any row, and
     * whether the bound on what so few rows may move kept the factor from going further. */
    double prior[FACTOR_COUNT];
    bool at_bound[FACTOR_COUNT];
    double held; /* calibration_prior.held of the prior in use */
};

/* What is known before any row: standard deviations of ln (real / computed) of compute, and of the
 * layouts of a source around their factor (calibration_prior.h). spread is wide, for the fit, so that
 * one odd row moves little; held is as wide as the rows of known sources lie apart, for intervals. */
struct calibration_prior {
    double compute, spread, held;
};

/* A calibration before any row is fitted: all factors are 1, with the covariance of the prior. */
void calibration_init(const struct calibration_prior *prior, struct calibration *calibration);

/* Predict the step of row `row` with these factors, in ns. */
typedef enum status calibration_predict(void *ctx, int row, const double factor[FACTOR_TIMES],
                                        double *ns, struct err *err);

/* What a fit leaves of one of its rows: the step at the fitted factors, and its sensitivity
 * d ln(step) / d ln(factor) to each. */
struct calibrated_row {
    double predicted_ns, sensitivity[FACTOR_TIMES];
};

/* Fit the factors of times to num_rows measured steps, and the factor of memory to ratios of a
 * measured to a predicted peak (num_peaks of them). *calibration must be initialised; its texts
 * stay. rows: num_rows of them, or NULL. Errors of predict pass through; ERR_INPUT: no rows at all.
 * Calls predict 1 + FACTOR_TIMES times for each row, and once or twice more where the step follows
 * the factors evenly. One row moves the logarithm of a factor of times by at most 1.5 standard
 * deviations of its prior, n rows by n^2 times as many, because one odd row (a slow release, a cold
 * machine) would otherwise carry all of its error to every other layout. */
enum status calibration_fit(calibration_predict *predict, void *ctx, const double *measured_ns,
                            int num_rows, const double *peak_ratios, int num_peaks,
                            struct calibration *calibration, struct calibrated_row *rows,
                            struct err *err);

/* Write to text what the rows of the calibration were measured on where that is not the device,
 * data type and framework of the question: "a100, bf16, deepspeed". "": they are the same, or are
 * not known. Returns text. */
const char *calibration_differs(const struct calibration *calibration, const char *device,
                                const char *dtype, const char *launcher, char *text, size_t size);

/* The interval that holds a step with a probability of 80 %, given its predicted time and its
 * sensitivity d ln(step) / d ln(factor) to each factor of times. */
void calibration_interval(const struct calibration *calibration,
                          const double sensitivity[FACTOR_TIMES], double step_ns, double ns[2]);

#ifdef __cplusplus
}
#endif
