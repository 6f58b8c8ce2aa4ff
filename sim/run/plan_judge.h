/* sim/run/plan_judge.h - the step time of a plan by the event engine, where transfers share links. */
#ifndef ELAPSE_SIM_PLAN_JUDGE_H
#define ELAPSE_SIM_PLAN_JUDGE_H

#include "partition/search/planner.h"
#include "sim/step/engine.h"

/* The context of the functions here. */
struct plan_judge {
    struct setting setting;
    bool *extrapolated; /* set if a step uses extrapolated costs; may be NULL */
};

/* Lower a plan and simulate its step. ERR_INFEASIBLE: out of memory, or sim_check_size() refuses
 * the step. */
enum status plan_simulate(const struct plan_judge *on, const struct plan *plan,
                          const struct sim_options *options, int64_t *step_ns, double *bubble,
                          struct err *err);

/* A function for planner_judge.step_ns: plan_simulate() without jitter; of a plan that is too large
 * to simulate the planner's time. */
enum status plan_judge_step(void *judge, const struct plan *plan, int64_t *step_ns,
                            struct err *err);

/* For a result that was found without a judge: replace the step time of the chosen plan, and the
 * figures that follow from it, by the event engine's if that is longer. Nothing changes if the step
 * is infeasible for the engine, as one that is too large to simulate. */
enum status plan_judge_chosen(struct plan_judge *judge, struct planner_result *result,
                              struct err *err);

#endif
