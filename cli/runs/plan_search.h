/* cli/runs/plan_search.h - search for the plan of a job as `plan` and `sim` do: by the event engine,
 * within a time, with progress, until Ctrl-C. */
#ifndef ELAPSE_CLI_PLAN_SEARCH_H
#define ELAPSE_CLI_PLAN_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/plan/job.h"
#include "partition/search/planner.h"

#define PLAN_BUDGET_NS ((int64_t)10000000000) /* 10 s */

struct plan_search {
    int num_frozen_layers;
    bool cached;       /* the cache holds the prefix's output of all samples */
    bool unshared;     /* rank plans without shared links, and do not simulate the best one */
    bool explain;      /* judge more plans than it takes */
    bool quiet;        /* no progress */
    int64_t budget_ns; /* 0: no limit */
};

/* Find the best plan that the budget allows; of a search without any plan yet it is exceeded up to
 * six times. SIGINT ends the search with the best plan so far (result->complete is false); a second
 * one ends the program. Errors of plan_for(). Not for several threads at once. */
enum status plan_search(const struct job *job, const struct cost *cost,
                        const struct plan_search *search, struct planner_result *result,
                        struct err *err);

#endif
