/* profiles/cost/profile_cost.h - struct cost from measured profiles, and the choice of a cost source.
 *
 * Between measured micro-batch or message sizes a time is interpolated linearly. Isotonic
 * regression (pooling neighbours that fall) makes the medians monotone first, so noise never makes
 * a larger micro-batch faster. Outside the measured sizes the time continues with the last slope
 * and is flagged as extrapolated. The time that near stash saves (cost.h) falls with distance; it
 * is interpolated in the same way, but stays constant outside the measured distances.
 *
 * A profile of an older version lacks some rows. PASS_BWD_REST is then PASS_BWD_INPUT, which the
 * note says. PASS_FWD_NOGRAD is PASS_FWD, a few per cent too much. Near stash saves nothing. */
#pragma once

#include "partition/cost/calibration.h"
#include "partition/cost/cost.h"
#include "partition/cost/step_band.h"
#include "partition/plan/job.h"
#include "profiles/store/profile.h"
#include "profiles/store/store.h"

#define COST_NOTE_BYTES 1024

/* A cost source and the data that it answers from. Zero it before use. */
struct cost_handle {
    struct cost cost;             /* hand out &handle.cost; valid until cost_handle_clear() */
    char note[COST_NOTE_BYTES];   /* "" or one line that says how the profile does not fit */
    bool bf16_is_faster;          /* the note says by how much the peak is */
    bool measured_here;           /* profiles of this host answer */
    bool other_host;              /* a profile was measured on another host than query->present */
    double spread;                /* mean of profile_noise(); 0: unknown */
    struct profile_cost *ctx;     /* owned; NULL unless a profile answers */
    struct kernel_costs *kernels; /* owned; what kernels and the roofline answer from, else NULL */
    struct calibration calibration; /* name "": none */
};
void cost_handle_clear(struct cost_handle *handle);

/* The band of published runs around steps of these costs. false: they have none, because they are not
 * those of kernels, or a calibration has an interval of its own. */
bool cost_band(const struct cost_handle *handle, const struct setting *setting,
               struct step_band *band);

/* The rows of the profiles to use. 0 or NULL: any, the nearest first. */
struct cost_query {
    const char *backend; /* "cpu", "cuda"; NULL: any */
    enum dtype dtype;
    int threads; /* per rank; 0: 1 if ranks share a node, else the most that was measured */
    int ranks;   /* ranks busy on a node; 0: as many as the cluster has devices a node */
    int spread;  /* 0: medians; -1: the 10th, 1: the 90th percentile of every time, for intervals */
    enum graph_parts graphs; /* of computed costs, as the next two */
    bool fp8_attention, delayed_scaling;
    bool dropout; /* use rows measured with dropout for layers that train, if there are any */
    enum cost_choice choice;
    double efficiency;                      /* of computed costs (cost_options); 0: 1 */
    char calibration[CALIBRATION_NAME_MAX]; /* a name in the store, for computed costs; "": none */
    const double *factors; /* borrowed, FACTOR_COUNT: in place of those of the calibration */
    bool input; /* the job reads the built-in data set: count the time to prepare its samples */
    const struct profile_info *present; /* this machine, as a profiler describes it; the note says
                                           how the profile's machine differs. NULL: only the host is
                                           compared, for cluster this-machine */
};

/* The query of a job, and of a model without a job; other fields are 0 or NULL. */
struct cost_query cost_query_of(const struct job *job);
struct cost_query cost_query_of_model(const struct model *model);

/* Choose the cost source of a job. With COST_AUTO it is the constants of a uniform or explicit model
 * that has times. Otherwise it is measured, if every device kind of the cluster has a profile with
 * every item of the model; else kernels, if every kind has a curve; else the roofline. A query with a
 * calibration takes no profile then. Sources are never mixed. db_path NULL: the default store (see
 * store_open()). ERR_INFEASIBLE if no source knows a device kind, or the store lacks the
 * calibration; ERR_INPUT: an efficiency out of range, or an efficiency or a calibration of costs
 * that are not computed;
 * errors of the store pass through. */
enum status cost_choose(const char *db_path, const struct job *job, struct cost_handle *handle,
                        struct err *err);

/* Like cost_choose(), without a job. query NULL: cost_query_of_model(). */
enum status cost_choose_for(const char *db_path, const struct model *model,
                            const struct cluster *cluster, const struct cost_query *query,
                            struct cost_handle *handle, struct err *err);

/* Bytes that the backend keeps of one sample of an item until its backward, apart from the output, on
 * the handle's first device kind. True: measured; false: the model's formula. */
bool cost_item_stash(const struct cost_handle *handle, const struct model *model, int item,
                     int64_t *bytes);

/* Make a cost source of one profile, for the cluster's devices of the profile's kind.
 * ERR_INFEASIBLE "no layers for model 'x' in profile 'y'" names the first missing item. The profile
 * is not needed afterwards. */
enum status profile_cost(const struct profile *profile, const struct model *model,
                         const struct cluster *cluster, const struct cost_query *query,
                         struct cost_handle *handle, struct err *err);

/* Monotone piecewise-linear curve over sizes; public for tests and reports. */
struct curve {
    double *x, *y; /* owned; n ascending sizes, non-decreasing times */
    int n;
};
/* Build a curve of n > 0 points. They need not be sorted; equal sizes are averaged by weight.
 * ERR_NOMEM. */
enum status curve_build(const double *x, const double *y, const double *weight, int n,
                        struct curve *curve, struct err *err);
/* The curve's value at x. Sets *extrapolated outside the points; never clears it. */
double curve_at(const struct curve *curve, double x, bool *extrapolated);
void curve_clear(struct curve *curve);
