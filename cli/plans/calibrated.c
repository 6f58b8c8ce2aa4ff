#include "cli/plans/calibrated.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "partition/base/units.h"
#include "sim/run/plan_judge.h"

/* Simulate the plan with these factors. */
static enum status step_with(const struct calibrated *on, const double factors[FACTOR_COUNT],
                             int64_t *step_ns, struct err *err)
{
    struct cost_query query = *on->query;
    struct cost_handle cost = {0};
    query.factors = factors;
    enum status rc =
        cost_choose_for(on->db_path, on->setting->model, on->setting->cluster, &query, &cost, err);
    const struct plan_judge judge = {
        .setting = {on->setting->model, on->setting->cluster, &cost.cost}
    };
    const struct sim_options options = {0};
    double bubble;
    THEN(plan_simulate(&judge, on->plan, &options, step_ns, &bubble, err));
    cost_handle_clear(&cost);
    return rc;
}

enum status calibrated_interval(const struct calibrated *on, int64_t step_ns, int64_t ns[2],
                                struct err *err)
{
    const struct calibration *c = &on->cost->calibration;
    const double step = 0.05; /* of ln factor */
    double factors[FACTOR_COUNT], slope[FACTOR_TIMES], got[2];
    int64_t now, more;
    ns[0] = ns[1] = 0;
    if (!*c->name)
        return OK;
    memcpy(factors, c->factor, sizeof factors);
    enum status rc = step_with(on, factors, &now, err);
    for (int k = 0; k < FACTOR_TIMES && rc == OK; k++) {
        factors[k] = c->factor[k] * exp(step);
        rc = step_with(on, factors, &more, err);
        factors[k] = c->factor[k];
        slope[k] = now > 0 ? log((double)more / (double)now) / step : 0;
    }
    if (rc != OK)
        return rc;
    calibration_interval(c, slope, (double)step_ns, got);
    ns[0] = (int64_t)got[0];
    ns[1] = (int64_t)ceil(got[1]);
    return OK;
}

void calibrated_add(const struct calibrated *on, const int64_t ns[2], struct json *json)
{
    if (*on->cost->calibration.name)
        json_add_int64s(json, "predicted_interval_ns", ns, 2);
}

void calibrated_print(const struct calibrated *on, const int64_t ns[2])
{
    char low[32], high[32];
    if (*on->cost->calibration.name)
        printf("the step takes %s to %s with a probability of 80 %% (calibration '%s')\n",
               format_ns(ns[0], low, sizeof low), format_ns(ns[1], high, sizeof high),
               on->cost->calibration.name);
}
