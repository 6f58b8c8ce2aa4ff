/* The event engine as the judge of plans. Read plan_simulate() first. */
#include "sim/run/plan_judge.h"

#include "partition/step/lower.h"

enum status plan_simulate(const struct plan_judge *on, const struct plan *plan,
                          const struct sim_options *options, int64_t *step_ns, double *bubble,
                          struct err *err)
{
    struct workload workload = {0};
    struct schedule full = {0};
    struct sim_result result = {0};
    struct sim_options quiet = *options;
    quiet.record_ops = false;
    enum status rc = sim_check_size(plan, err);
    THEN(plan_lower_to_simulate(&on->setting, plan, &workload, &full, err));
    THEN(sim_step(&full, &workload, &on->setting, plan, &quiet, &result, err));
    if (rc == OK) {
        *step_ns = result.step_ns;
        *bubble = result.bubble_fraction;
        if (on->extrapolated && workload.extrapolated)
            *on->extrapolated = true;
    }
    workload_clear(&workload);
    schedule_clear(&full);
    sim_result_clear(&result);
    return rc;
}

enum status plan_judge_step(void *ctx, const struct plan *plan, int64_t *step_ns, struct err *err)
{
    static const struct sim_options plain = {.seed = 1};
    double bubble;
    if (sim_check_size(plan, NULL) != OK) { /* too large to simulate: it has the planner's time */
        *step_ns = plan->step_ns;
        return OK;
    }
    return plan_simulate(ctx, plan, &plain, step_ns, &bubble, err);
}

enum status plan_judge_chosen(struct plan_judge *judge, struct planner_result *result,
                              struct err *err)
{
    struct plan *plan = &result->plan;
    struct err why = {0};
    int64_t step_ns;
    const enum status rc = plan_judge_step(judge, plan, &step_ns, &why);
    if (rc == ERR_INFEASIBLE) /* too large to simulate */
        return OK;
    if (rc != OK)
        return err_copy(err, &why);
    if (step_ns > plan->step_ns)
        plan->step_ns = step_ns;
    result->samples_per_s = plan_samples_per_s(plan, plan->step_ns);
    result->gap = (double)plan->step_ns / (double)result->lower_bound_ns - 1;
    result->best[0].judged_ns = plan->step_ns;
    result->best[0].samples_per_s = result->samples_per_s;
    return OK;
}
