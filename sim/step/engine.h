/* sim/step/engine.h - one training step in virtual time.
 *
 * Runs the lowered op lists that exec/ runs, by the rules of partition/step/step_rules.h: a compute
 * stream and a host thread a device, ports and uplinks shared max-min fairly, copy engines. Integer
 * nanoseconds; events ordered by (time, kind, insertion number), so that every run repeats exactly.
 * A step whose transfers share no link takes one pass over its lists (direct_run.c) and no events.
 */
#pragma once

#include "partition/step/workload.h"
#include "partition/cost/collective.h"

struct job;
struct run_state;
struct planner_result;

struct sim_options {
    double jitter; /* standard deviation of an op's time over its mean; 0: none */
    uint64_t seed;
    /* Both or neither: the plan lowered with the 10th and the 90th percentile of the costs. Each op
     * draws its time from a normal law with those percentiles, one half on each side of the median;
     * messages keep their medians. */
    const struct workload *low, *high;
    const struct cluster *slowed; /* elastic_run() runs steps here and makes plans for the job's
                                     cluster; NULL: steps run on the job's cluster too */
    const double *cache_room; /* elastic_run(): cache_job_room() of a run that is known; NULL: of
                                 the job */
    const struct plan *plan;  /* elastic_run(): begins with it; NULL: with the planner's */
    /* elastic_run(): plans a run that keeps its plan, which must be a result of plan_for(). NULL:
     * plan_for(). A run that changes its plan always asks plan_for(), as the trainer does. */
    enum status (*first_plan)(const void *ctx, const struct job *job, const struct cost *cost,
                              const struct run_state *state, struct planner_result *result,
                              struct err *err);
    const void *first_plan_ctx;
    bool record_ops;
    bool every_event; /* handle each event where one pass over the lists would do; same answer */
    enum allreduce_kind allreduce; /* default: ring */
    /* May be NULL: called now and then in a long run with the events handled so far. */
    void (*progress)(void *ctx, int64_t events);
    void *progress_ctx;
};

/* Causes of a device's idle time; they sum to it. */
enum idle_cause {
    IDLE_FILL,
    IDLE_DRAIN,
    IDLE_IMBALANCE,
    IDLE_TRANSFER,
    IDLE_ALLREDUCE,
    IDLE_HOST,
    IDLE_STRAGGLER,
    IDLE_CAUSE_COUNT
};

struct sim_device {
    int device, replica, rank;
    int64_t busy_ns, idle_ns;
    /* Begin of the first and end of the last op that takes time; 0: none. */
    int64_t first_ns, last_ns;
    int64_t peak_bytes;
    int peak_live;
    int64_t idle_cause_ns[IDLE_CAUSE_COUNT];
};

struct sim_op {
    struct op op;
    int replica, rank;
    int64_t start_ns, end_ns;
};

struct sim_traffic {
    int from, to; /* devices */
    int64_t bytes;
};

struct sim_result {
    int64_t step_ns;
    /* After how long the next step begins, where devices do not wait for each other between steps:
     * the longest span of a device, from its first op to its last op and all-reduce. At most
     * step_ns. (Qi et al., "Zero Bubble Pipeline Parallelism", 2023, sections 2.3 and 4.) */
    int64_t period_ns;
    double bubble_fraction;
    int num_devices;
    struct sim_device *devices; /* owned; by replica, then rank */
    int64_t context_bytes;      /* of each device's peak: driver and communicators */
    int num_traffic;
    struct sim_traffic *traffic; /* owned; by (from, to); an all-reduce counts as a ring */
    int64_t allreduce_ns, allreduce_exposed_ns;
    int64_t events; /* op starts + op ends + transfer ends */
    bool shared;    /* some transfers shared a port or an uplink */
    int64_t num_ops;
    struct sim_op *ops; /* owned, by start time; only with record_ops */
};

/* Refuse, before any list is made, steps that would take longer than anyone waits: more than 2^27
 * (stage, micro-batch) pairs a pipeline or 2^30 over the replicas. */
enum status sim_check_size(const struct plan *plan, struct err *err);

/* Simulate one step of a lowered schedule. *result must be zeroed or cleared. ERR_INFEASIBLE:
 * deadlock, or a device out of memory (which device, when, what filled it). */
enum status sim_step(const struct schedule *full, const struct workload *workload,
                     const struct plan *plan, const struct sim_options *options,
                     struct sim_result *result, struct err *err);
void sim_result_clear(struct sim_result *result);
