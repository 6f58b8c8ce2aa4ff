/* exec/trainer/train_plan.h - the plan that a training run follows, and its op lists. Rank 0 plans; all
 * ranks get the same plan and lower it themselves. */
#pragma once

#include <stdbool.h>

#include "exec/comm/comm.h"
#include "exec/device/cores.h"
#include "partition/plan/job.h"
#include "partition/plan/plan.h"
#include "partition/search/plan_for.h"
#include "partition/search/turn.h"
#include "partition/step/workload.h"
#include "profiles/json/json.h"
#include "profiles/cost/profile_cost.h"
#include "profiles/store/profile.h"

struct train_plan {
    struct plan plan;
    struct cluster cluster;
    struct workload *workload;   /* owned; its setting has no cluster and costs */
    struct schedule *full;       /* owned */
    struct profile_info present; /* the machine whose costs were used */
    double sample_ns;            /* predicted time a sample, cache fills included; rank 0 */
    bool measured_here;          /* by costs measured on this machine, or not by costs; rank 0 */
    bool extrapolated;    /* its micro-batch lies outside of those that were measured; rank 0 */
    char cost_source[16]; /* cost_source_name(), or "plan" */
    char cost_label[96], cost_note[COST_NOTE_BYTES];
};

/* The inputs from which a run makes its plans. All are borrowed. */
struct planning {
    const struct comm *comm;
    const struct cores *cores;
    const struct job *job;
    const char *db;        /* profile store; NULL: the default one */
    const char *plan_path; /* file of the plan to begin with; NULL: it is planned */
    const double *speeds;  /* rank 0: of each rank, 1: nominal; NULL: all are 1 */
};

/* The plan of partition/search/turn.h for all ranks (an elastic job: for at most all of them), with the
 * costs of the machine. ERR_INFEASIBLE; ERR_INPUT with the key when ranks do not divide as asked.
 * Collective. */
enum status train_plan_make(const struct planning *with, const struct run_state *ask,
                            struct train_plan *plan, struct err *err);
/* Whether num_ranks ranks divide as the job asks; ERR_INPUT with the key, ERR_INFEASIBLE. */
enum status train_plan_check(const struct job *job, int num_ranks, struct err *err);
/* For a run that resumes with fewer ranks than its job asks for: open K and R where they do not
 * divide num_ranks, and limit elastic.stages to num_ranks. Other keys stay. */
void train_plan_fit(struct job *job, int num_ranks);
/* The part of rank 0: from ask and from the cluster and present of *plan, set its plan and the
 * source of its costs. Not collective; any thread. */
enum status train_plan_choose(const struct planning *with, const struct run_state *ask,
                              struct train_plan *plan, struct err *err);
void train_plan_clear(struct train_plan *plan);
/* The keys of `elapse plan --json` for the plan as run. */
void train_plan_json(const struct train_plan *plan, struct json *object);
