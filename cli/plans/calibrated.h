/* cli/plans/calibrated.h - the error interval of a step time that was predicted with a
 * calibration. */
#pragma once

#include "partition/plan/plan.h"
#include "profiles/json/json.h"
#include "profiles/cost/profile_cost.h"

/* A step whose time was predicted; all borrowed. */
struct calibrated {
    const char *db_path; /* the store of the costs */
    const struct setting *setting;
    const struct cost_query *query; /* that the costs answer */
    const struct cost_handle *cost;
    const struct plan *plan;
};

/* Set ns to the interval that holds the step with a probability of 80 %, or to zeros without a
 * calibration. The plan is simulated once more for each factor. The plan need not fit the
 * memory. */
enum status calibrated_interval(const struct calibrated *on, int64_t step_ns, int64_t ns[2],
                                struct err *err);

/* Write "predicted_interval_ns", or print it as a line; nothing without a calibration. */
void calibrated_add(const struct calibrated *on, const int64_t ns[2], struct json *json);
void calibrated_print(const struct calibrated *on, const int64_t ns[2]);
