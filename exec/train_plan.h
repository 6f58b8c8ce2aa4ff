/* exec/train_plan.h - the plan that a training run follows, and its op lists. Rank 0 plans; all
 * ranks get the same plan and lower it themselves. */
#ifndef ELAPSE_EXEC_TRAIN_PLAN_H
#define ELAPSE_EXEC_TRAIN_PLAN_H

#include <stdbool.h>

#include "exec/cache.h"
#include "exec/comm/comm.h"
#include "exec/cores.h"
#include "partition/job.h"
#include "partition/plan.h"
#include "partition/workload.h"
#include "profiles/json.h"

struct train_plan {
    struct plan plan;
    struct cluster cluster;
    struct workload *workload; /* owned */
    struct schedule *full;     /* owned */
    char cost_label[96], cost_note[256];
};

/* What to plan for. */
struct train_ask {
    int64_t epoch;
    int64_t turn; /* freeze decisions so far: the entry of elastic.stages */
    int num_frozen_layers;
    const struct cache *cache; /* for the frozen prefix's output; NULL: none */
    int64_t num_samples;       /* of an epoch: no plan needs more for a step */
    const struct plan *old;    /* the plan in force, whose devices are kept; NULL: the first one */
};

/* Whether plans may change in mid-run, and leave ranks idle: a freeze policy or elastic.stages. */
bool train_plan_elastic(const struct job *job);

/* The planner's plan for all ranks (an elastic job: for at most all of them; then rank 0 has a
 * place always). Where the job is elastic and `old` is given, elastic.auto_pipe and auto_dp say
 * what may change. Under train.reduction canonical with a global batch, pipeline.num_microbatches
 * (or the first plan's) counts the micro-batches of the global batch, so that they hold the same
 * samples at every R. ERR_INFEASIBLE; ERR_INPUT with the key when ranks do not divide as asked.
 * Collective. */
enum status train_plan_make(const struct comm *comm, const struct cores *cores,
                            const struct job *job, const char *db, const struct train_ask *ask,
                            struct train_plan *plan, struct err *err);
void train_plan_clear(struct train_plan *plan);
/* The keys of `elapse plan --json` for the plan as run. */
void train_plan_json(const struct train_plan *plan, struct json *object);

#endif
