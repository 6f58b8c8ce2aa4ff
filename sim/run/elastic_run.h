/* sim/run/elastic_run.h - a whole elastic job in virtual time: turns of freeze decision, plan,
 * transition and steps.
 *
 * A step's time depends only on the plan and on the content of the cache, so each distinct step is
 * simulated once. The total includes transitions but not start-up. Evaluation is reported
 * separately.
 *
 * Decisions and plans: partition/search/turn.h says when a decision is due and what it decides, and
 * partition/search/plan_for.h makes the plan. The trainer uses both too. Gradient norms are the recorded
 * ones if the job has them.
 *
 * Filling the cache: a plan that reads the cache needs the output of its frozen level. For samples
 * that lack it, the first device of each pipeline computes it before the pipeline and writes it to
 * the cache. It starts from a lower level if the cache holds one, otherwise from the input. Each
 * epoch has a new order of the samples, so after a decision within an epoch a step meets samples of
 * several levels by chance. Its time is the mean over its micro-batches (sim/run/cache_levels.h). Short
 * micro-batches count as full ones here.
 *
 * Steps: an epoch has ceil(samples / (R * B)) steps. In the last one the remaining samples fill one
 * replica after the other, and one micro-batch after the other, so its time is that of the first
 * replica. A decision within an epoch splits the epoch: the next plan continues at the next sample
 * with its own R and B. train.max_steps ends the run, also within an epoch.
 *
 * A change of K or R costs elastic.setup_ns and the transfers of partition/plan/autodp.h.
 *
 * Evaluation: after every eval_every_epochs-th epoch and at the end, the test samples go forward
 * through all layers on the epoch's plan. They are cut into steps like training samples, and a step
 * ends before the next begins, because its losses are summed. A step takes the time of its first
 * micro-batch through all stages and boundaries, plus the time of the slowest device for each
 * further micro-batch. */
#pragma once

#include "partition/plan/job.h"
#include "sim/run/plan_judge.h"

/* One epoch of a run. The members that describe a plan are those of the plan at its end. Times
 * cover the whole epoch. */
struct elastic_epoch {
    int frozen_layers, pipeline_length, replicas, microbatches;
    int64_t devices; /* in use: K x R x T */
    enum schedule_kind schedule;
    enum frozen_placement frozen; /* FROZEN_CACHED: the prefix's output is read from the cache */
    int64_t microbatch_size;
    int64_t samples; /* all samples of the data, or fewer if train.max_steps ended the run */
    int64_t steps, last_step_ns, epoch_ns; /* epoch_ns is the sum of all steps */
    int64_t step_ns;                    /* a full step, or the mean if a decision split the epoch */
    int64_t transition_ns, moved_bytes; /* transition_ns = move_ns + setup_ns */
    int64_t move_ns, setup_ns;
    int64_t cache_ns; /* the part of epoch_ns that filling the cache added to the steps */
    int64_t eval_ns;  /* the evaluation after this epoch; 0: none */
    double samples_per_s, bubble_fraction; /* 0 if the steps take no time */
    int cache_read;   /* level that most micro-batches read at the epoch's end; 0: none */
    bool cache_write; /* some micro-batches were computed and written to the cache */
    char reason[160]; /* of the last freeze decision */
};

struct elastic_run {
    int num_epochs;               /* epochs begun; at least 1 */
    struct elastic_epoch *epochs; /* owned */
    int64_t samples;              /* of all epochs */
    int64_t total_ns;             /* steps and transitions */
    int64_t eval_ns;              /* all evaluations; not in total_ns */
    double device_hours;          /* devices in use x time; evaluations are left out */
    double device_hours_idle;     /* other devices of the cluster x the same time */
    int64_t steps_simulated;      /* distinct steps */
    bool stopped;                 /* train.max_steps ended the run before its last sample */
    struct searched searched;     /* for the plan of its first turn */
    bool extrapolated;            /* a step or an evaluation used extrapolated costs */
};

/* Simulate a run. *run must be zeroed or cleared; the caller owns it. num_samples is the number of
 * samples of an epoch, num_test that of an evaluation (0: no evaluation). ERR_INPUT: the run is
 * longer than 2^63 ns. ERR_INFEASIBLE: the job has no epochs. Errors of the planner and of the
 * steps pass through. */
enum status elastic_run(const struct job *job, const struct cost *cost, int64_t num_samples,
                        int64_t num_test, const struct sim_options *options,
                        struct elastic_run *run, struct err *err);
void elastic_run_clear(struct elastic_run *run);

/* The speed-up of a run over `other`, by total time. If one of the runs was stopped, the times
 * per sample are compared, because the runs may have different numbers of samples. 0: the run
 * takes no time. */
double elastic_speedup(const struct elastic_run *run, const struct elastic_run *other);
