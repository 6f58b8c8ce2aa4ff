/* cli/plans/plan_search.h - search for the plan of a job as `plan` and `sim` do: by the event engine,
 * within a time, with progress, until Ctrl-C. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/plan/job.h"
#include "partition/search/plan_for.h"
#include "partition/search/planner.h"
#include "profiles/json/json.h"

#define PLAN_BUDGET_NS ((int64_t)10000000000)   /* 10 s */
#define PLAN_LONGEST_NS ((int64_t)300000000000) /* 5 min, in place of 0 */

/* How long a search may take: processor time (0: PLAN_LONGEST_NS, so that it ends), and time of the clock
 * (0: any). max_looks > 0: calls of the planner's watch in place of processor time. The answer then depends
 * on no clock. */
struct plan_time {
    int64_t budget_ns, deadline_ns, max_looks;
    struct judged_step *keep; /* as in struct plan_judge; plan_for_sim() alone keeps a step */
};
#define PLAN_TIME ((struct plan_time){.budget_ns = PLAN_BUDGET_NS})

struct plan_search {
    int num_frozen_layers;
    bool cached;   /* the cache holds the prefix's output of all samples */
    bool unshared; /* rank plans without shared links, and do not simulate the best one */
    bool fills;    /* take the fastest plan, however full its memory is */
    bool explain;  /* judge more plans than it takes */
    bool quiet;    /* no progress */
    bool advise;   /* if there is no plan, look for a number of devices that would do */
    struct plan_time time;
};

/* Add how far a search came: complete, judged, and if timed its processor_ns, which differs from run
 * to run. */
void searched_add(struct json *json, const struct searched *searched, bool timed);

/* The largest share of its memory that a device needs for the plan; 0 if no device has a limit. */
double plan_memory_share(const struct plan *plan, const struct cluster *cluster);

/* Find the best plan that the budget allows, or a safe one that is nearly as fast. A search without
 * any plan yet exceeds the budget up to three times. SIGINT ends the search with the best plan so
 * far (result->searched.complete is false); a second one ends the program. Errors of plan_for(). Not for
 * several threads at once. */
enum status plan_search(const struct job *job, const struct cost *cost,
                        const struct plan_search *search, struct planner_result *result,
                        struct err *err);

/* The plan that a simulated step, run or point of a sweep begins with, which is that of plan_search()
 * in this time: searched without the event engine, and once more with it if links are shared
 * so that the first plan is slower there, if a memory is nearly full, or if the first search has not
 * ended after a fifth of the time. Both share the time. time is a struct plan_time. *result must be
 * zeroed. Errors of plan_for(). Threads may call it on distinct objects. */
enum status plan_for_sim(const void *time, const struct job *job, const struct cost *cost,
                         const struct run_state *state, struct planner_result *result,
                         struct err *err);
