/* sim/elastic_run.h - a whole elastic job in virtual time: turns of freeze decision, plan,
 * transition and steps.
 *
 * A step's time depends on the plan and on what the cache holds, so identical steps are simulated
 * once. Transitions count in the total; start-up does not, and evaluation is reported apart.
 *
 * R1  When decisions are due, what they decide and the plan that follows is partition/turn.h, as in
 *     the trainer; norms are recorded ones where the job has them.
 * R2  Plans are those of partition/plan_for.h, static and elastic ones alike, as in the trainer.
 * R3  Under a plan that reads the cache, what the cache lacks of its level is computed on the first
 *     device of each pipeline, before the pipeline, and written: from a lower level on where that
 *     is there, else from the input on. Epochs draw the order of the samples anew, so after a
 *     decision within an epoch samples of several levels meet by chance: a step takes the mean over
 *     its micro-batches (sim/cache_levels.h). Short micro-batches count as full ones here.
 * R4  An epoch has ceil(samples / (R * B)) steps; the last one holds what is left: replicas, and
 *     their micro-batches, are filled one after the other, so it takes what its first replica does.
 *     A decision within an epoch parts it: the rest goes on at the next sample, with the plan's own
 *     R and B. train.max_steps ends the run, in mid-epoch too.
 * R5  A change of K or R costs elastic.setup_ns and the transfers of partition/autodp.h.
 * R6  After every eval_every_epochs-th epoch and at the end, the test samples go forward
 *     through all layers on the epoch's plan, in steps as in R4, whose losses are summed up before
 *     the next begins: the first micro-batch's way through all stages and boundaries, then one more
 *     of the slowest device for each other.
 */
#ifndef ELAPSE_SIM_ELASTIC_RUN_H
#define ELAPSE_SIM_ELASTIC_RUN_H

#include "partition/job.h"
#include "sim/engine.h"

/* The plan is that of the epoch's end; times are of all of it. */
struct elastic_epoch {
    int frozen_layers, pipeline_length, replicas, microbatches;
    enum schedule_kind schedule;
    enum frozen_placement frozen; /* of what is not read from the cache */
    int64_t microbatch_size;
    int64_t samples;                       /* all of the data, but where train.max_steps ends it */
    int64_t steps, last_step_ns, epoch_ns; /* epoch_ns: the steps */
    int64_t step_ns;                       /* of a full step; of a parted epoch the mean of all */
    int64_t transition_ns, moved_bytes;    /* the former is move_ns + setup_ns */
    int64_t move_ns, setup_ns;
    int64_t cache_ns; /* of epoch_ns: what the steps take longer because they fill the cache */
    int64_t eval_ns;  /* R6; 0: none after this epoch */
    double samples_per_s, bubble_fraction; /* 0 where the steps take no time */
    int cache_read;   /* level from which most micro-batches went on at its end, 0: none */
    bool cache_write; /* some had to be computed, and were written */
    char reason[160]; /* of the last freeze decision */
};

struct elastic_run {
    int num_epochs;               /* begun; at least 1 */
    struct elastic_epoch *epochs; /* owned */
    int64_t samples;              /* of all epochs */
    int64_t total_ns;             /* steps and transitions */
    int64_t eval_ns;              /* evaluations, not in total_ns */
    double device_hours;          /* devices in use x time */
    int64_t steps_simulated;      /* distinct steps */
    bool stopped;                 /* train.max_steps ended it before its last sample */
    bool extrapolated;            /* the costs of one of them, or of an evaluation, are */
};

/* *run must be zeroed or cleared; the caller owns it. num_samples: of an epoch; num_test: of an
 * evaluation, 0: none. ERR_INPUT when the run is longer than 2^63 ns; ERR_INFEASIBLE when the job
 * has no epochs; errors of the planner and of the steps pass through. */
enum status elastic_run(const struct job *job, const struct cost *cost, int64_t num_samples,
                        int64_t num_test, const struct sim_options *options,
                        struct elastic_run *run, struct err *err);
void elastic_run_clear(struct elastic_run *run);

/* How many times faster than `other` a run is: total time by total time; where one of them was
 * stopped, which may be after other numbers of samples, by the sample. 0: the run takes no time. */
double elastic_speedup(const struct elastic_run *run, const struct elastic_run *other);

/* The event engine's word on a plan, for planner_judge.step_ns: links are shared there. A
 * struct plan_judge is its ctx. ERR_INFEASIBLE also for steps that sim_check_size() refuses. */
struct plan_judge {
    struct setting setting;
    bool *extrapolated; /* set when a step's costs are; NULL: nobody asks */
};
enum status plan_judge_step(void *judge, const struct plan *plan, int64_t *step_ns,
                            struct err *err);

#endif
