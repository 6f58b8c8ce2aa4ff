/* library/handles.h - the content of elapse.h's opaque handles, and what its functions share. */
#pragma once

#include <locale.h>

#include "library/elapse.h"
#include "partition/plan/job.h"
#include "partition/search/planner.h"
#include "partition/step/framework_range.h"
#include "profiles/cost/profile_cost.h"
#include "sim/run/elastic_run.h"

/* The members are owned. */
struct elapse_job {
    struct job job;
    struct cost_handle cost;
};

struct elapse_plan {
    struct plan plan;
    int64_t *stage_ns; /* NULL: not known */
    double samples_per_s;
    int64_t lower_bound_ns, candidates;
    struct framework_range range;
    struct step_band band;
};

struct elapse_step {
    struct sim_result result;
    double samples_per_s;
    struct framework_range range;
    bool extrapolated;
    struct step_band band;
};

struct elapse_run {
    struct elastic_run run;
    struct step_band band;
};

/* The band of a job's steps; runs 0: none. It has no name of a kind, which the job owns. */
struct step_band job_band(const struct elapse_job *job);
void band_out(const struct step_band *band, int64_t step_ns, int64_t ns[2]);

/* From here to call_end() the calling thread reads and writes numbers as in the "C" locale. The
 * program's own locale stays. */
struct call {
    locale_t c, before;
    struct err err;
};
void call_begin(struct call *call);
/* Hand the failure to the caller, whose error may be NULL, and return its status. */
enum elapse_status call_end(struct call *call, enum status rc, struct elapse_error *error);

/* Set the shortest and the longest time of a range; 0: none. */
void range_ends(const struct framework_range *range, int64_t *low_ns, int64_t *high_ns);

/* Copy a struct of ours to the caller's, of which only the first `size` bytes exist. Both begin
 * with their size. Members of the caller's that we do not have become zero. */
void copy_out(const void *ours, size_t our_size, void *theirs);
/* Copy options of the caller, which may be NULL, to a struct of ours. */
void copy_in(void *ours, size_t our_size, const void *theirs);
