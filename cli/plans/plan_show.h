/* cli/plans/plan_show.h - the answer of `elapse plan` as text or JSON. */
#pragma once

#include "cli/base/command.h"
#include "cli/plans/framework_show.h"
#include "cli/plans/plan_memory.h"
#include "cli/plans/rates_show.h"
#include "partition/plan/job.h"
#include "partition/search/planner.h"
#include "profiles/json/json.h"
#include "profiles/cost/profile_cost.h"

enum { MOST_OF_CUT = 24 }; /* stages of a cut that a line shows */

/* A plan and how it was found, or the reason why there is none. */
struct plan_answer {
    struct planner_result result;
    struct err err;
    int64_t solve_ns;
    struct plan_memory memory;
    struct step_rates rates;
    /* of the plan in that dtype, where it is much faster; 0: not asked */
    double bf16_samples_per_s;
    struct framework_range range; /* of the plan's step */
    struct run_cost run;          /* run_ns 0: the length of the run is not known */
};

void plan_answer_clear(struct plan_answer *answer);
/* Complete an answer that has a plan by its memory and its rates. ERR_SYSTEM: it cannot be true
 * (plausible.h). The error is the answer's. */
enum status plan_answer_finish(const struct job *job, const struct cost *cost,
                               struct plan_answer *answer);

/* The head of an answer as JSON: the command, the job and its costs. */
struct json *plan_show_begin(const struct command *command, const struct job *job,
                             const struct cost_handle *cost);

/* Append a plan; an answer, or the reason why it has no plan; and with --explain the plans that it
 * was chosen over and a verdict on each pipeline length. */
void plan_show_add_plan(struct json *json, const struct plan *plan);
void plan_show_add(struct json *json, const struct plan_answer *answer,
                   const struct cluster *cluster);
void plan_show_add_others(struct json *json, const struct planner_result *result);

/* Print an answer, which has a plan: first its rates and settings, then the plans that it beat,
 * then its stages, all of them or the first few. released: the plan of the release, NULL: print
 * none. */
void plan_show_print(const struct job *job, const struct cost_handle *cost,
                     const struct plan_answer *answer, const struct plan_answer *released,
                     bool all_stages);
void plan_show_print_others(const struct job *job, const struct plan_answer *answer);
/* Write "assumed", the keys that nobody gave. */
void plan_assumed_add(struct json *json, struct job_assumed assumed);
/* The job's dtype and optimizer, and the options that change them where nobody gave them. */
const char *plan_training_text(const struct job *job, char *text, size_t size);
