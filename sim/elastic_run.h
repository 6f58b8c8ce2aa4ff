/* sim/elastic_run.h - a whole elastic job in virtual time: epochs of freeze decision, plan,
 * transition and steps.
 *
 * A step's time depends on the plan alone, so identical steps are simulated once. Transitions
 * count in the total; start-up does not, and evaluation is reported apart.
 *
 * R1  Before each epoch the freeze policy decides F (partition/freeze.h), from recorded norms where
 *     the job has them.
 * R2  The first plan is what the job asks of the planner. When F grows and elastic.auto_pipe is on,
 *     K and the cut are chosen anew; without auto_dp the number of pipelines stays, with it the
 *     freed devices form new ones. Without auto_pipe K stays (unless fewer items are left than
 *     stages). elastic.stages says K in place of all this.
 * R3  Cache: in an epoch that moves the boundary the frozen output is written (level F); in one
 *     that does not it is read. A boundary that moves from F1 to F2 reads level F1 and runs layers
 *     F1..F2-1 only. The plan of an epoch that writes is that of the epochs that read (balancer
 *     optimal; a greedy balancer's is its own): what the cache lacks runs on the first device of
 *     each pipeline, as in exec/. The last epoch writes nothing. Policy auto starts with the epoch
 *     that makes the run shortest, or never.
 * R4  An epoch has ceil(samples / (R * B)) steps; the last one holds what is left, evenly.
 * R5  A change of K or R costs elastic.setup_ns and the transfers of partition/autodp.h.
 * R6  After every eval_every_epochs-th epoch and after the last, the test samples go forward
 * through all layers on the epoch's plan, split over its replicas, in its micro-batches: the first
 * one's way through all stages and boundaries, then one more of the slowest device for each other.
 */
#ifndef ELAPSE_SIM_ELASTIC_RUN_H
#define ELAPSE_SIM_ELASTIC_RUN_H

#include "partition/job.h"
#include "sim/engine.h"

struct elastic_epoch {
    int frozen_layers, pipeline_length, replicas, microbatches;
    enum schedule_kind schedule;
    enum frozen_placement frozen; /* of what is not read from the cache */
    int64_t microbatch_size;
    int64_t steps, step_ns, last_step_ns, epoch_ns; /* epoch_ns: the steps */
    int64_t transition_ns, moved_bytes;             /* the former is move_ns + setup_ns */
    int64_t move_ns, setup_ns;
    int64_t cache_ns; /* of epoch_ns: what the steps take longer because they fill the cache */
    int64_t eval_ns;  /* R6; 0: none after this epoch */
    double samples_per_s, bubble_fraction;
    int cache_read;   /* level that is read, 0: none */
    bool cache_write; /* level frozen_layers is written */
    char reason[160]; /* of the freeze decision */
};

struct elastic_run {
    int num_epochs;
    struct elastic_epoch *epochs; /* owned */
    int64_t total_ns;             /* steps and transitions */
    int64_t eval_ns;              /* evaluations, not in total_ns */
    double device_hours;          /* devices in use x time */
    int64_t steps_simulated;      /* distinct steps */
    bool extrapolated;            /* the costs of one of them, or of an evaluation, are */
};

/* *run must be zeroed or cleared; the caller owns it. num_samples: of an epoch; num_test: of an
 * evaluation, 0: none. ERR_INPUT when the run is longer than 2^63 ns; errors of the planner and of
 * the steps pass through. */
enum status elastic_run(const struct job *job, const struct cost *cost, int64_t num_samples,
                        int64_t num_test, const struct sim_options *options,
                        struct elastic_run *run, struct err *err);
void elastic_run_clear(struct elastic_run *run);

/* The plan of an epoch with F frozen layers as R2 makes it when the run starts there, before it is
 * simulated; for `sim JOB --step`. filled: the frozen output can be read from the cache; write: it
 * is written. *plan must be zeroed; the caller owns it. */
enum status elastic_plan(const struct job *job, const struct cost *cost, int num_frozen_layers,
                         bool filled, bool write, struct plan *plan, struct err *err);

#endif
