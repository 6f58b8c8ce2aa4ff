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
    THEN(sim_step(&full, &workload, plan, &quiet, &result, err));
    if (rc == OK) {
        *step_ns = result.step_ns;
        *bubble = result.bubble_fraction;
        if (on->extrapolated && workload.extrapolated)
            *on->extrapolated = true;
    }
    if (rc == OK && on->keep) {
        sim_result_clear(&on->keep->result);
        *on->keep = (struct judged_step){plan_digest(plan), result};
        result = (struct sim_result){0};
    }
    workload_clear(&workload);
    schedule_clear(&full);
    sim_result_clear(&result);
    return rc;
}

void plan_judge_set(struct plan_judge *judge, const struct setting *setting)
{
    *judge = (struct plan_judge){.setting = *setting, .extrapolated = judge->extrapolated};
}

enum status plan_judge_step(void *ctx, const struct plan *plan, int64_t *step_ns, struct err *err)
{
    struct plan_judge *on = ctx;
    static const struct sim_options plain = {.seed = 1};
    const int max_known = (int)(sizeof on->known / sizeof *on->known);
    const uint64_t digest = plan_digest(plan);
    double bubble;
    for (int i = 0; i < max_known && digest != 0; i++)
        if (on->known[i].digest == digest) {
            *step_ns = on->known[i].step_ns;
            return OK;
        }
    if (sim_check_size(plan, NULL) != OK) { /* too large to simulate: it has the planner's time */
        *step_ns = plan->step_ns;
        return OK;
    }
    const enum status rc = plan_simulate(on, plan, &plain, step_ns, &bubble, err);
    if (rc == OK) {
        on->known[on->num_known].digest = digest;
        on->known[on->num_known].step_ns = *step_ns;
        on->num_known = (on->num_known + 1) % max_known;
    }
    return rc;
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
