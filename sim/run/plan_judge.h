/* sim/run/plan_judge.h - the step time of a plan by the event engine, where transfers share links. */
#pragma once

#include "partition/search/planner.h"
#include "sim/step/engine.h"

/* The context of the functions here. */
struct plan_judge {
    struct setting setting; /* change it with plan_judge_set() */
    bool *extrapolated;     /* set if a step uses extrapolated costs; may be NULL */
    struct {
        uint64_t digest; /* plan_digest(); 0: none */
        int64_t step_ns;
    } known[8]; /* the last steps that plan_judge_step() simulated */
    int num_known;
    struct judged_step *keep; /* borrowed: the last of these steps goes there; may be NULL */
};

/* A step that was simulated without jitter and without a record of its ops. */
struct judged_step {
    uint64_t digest; /* plan_digest(); 0: none */
    struct sim_result result;
};

/* Let the judge simulate on another setting. */
void plan_judge_set(struct plan_judge *judge, const struct setting *setting);

/* Lower a plan and simulate its step. ERR_INFEASIBLE: out of memory, or sim_check_size() refuses
 * the step. */
enum status plan_simulate(const struct plan_judge *on, const struct plan *plan,
                          const struct sim_options *options, int64_t *step_ns, double *bubble,
                          struct err *err);

/* A function for planner_judge.step_ns: plan_simulate() without jitter; of a plan that is too large
 * to simulate the planner's time. A plan of which it knows the step is not simulated again. */
enum status plan_judge_step(void *judge, const struct plan *plan, int64_t *step_ns,
                            struct err *err);

/* For a result that was found without a judge: replace the step time of the chosen plan, and the
 * figures that follow from it, by the event engine's if that is longer. Nothing changes if the step
 * is infeasible for the engine, as one that is too large to simulate. */
enum status plan_judge_chosen(struct plan_judge *judge, struct planner_result *result,
                              struct err *err);
