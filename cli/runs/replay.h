/* cli/runs/replay.h - a real run, read from its folder, and a simulation of its step.
 *
 * The prediction uses the job and the plan that the run recorded, and the profile store. It never
 * uses the run's times. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/plan/job.h"
#include "partition/plan/plan.h"
#include "partition/base/status.h"
#include "partition/step/workload.h"
#include "profiles/cost/profile_cost.h"
#include "profiles/store/record.h"
#include "sim/step/engine.h"

struct json;

/* The counted steps are cut into six parts of equal length that follow one another. Were their
 * medians independent, the true median would lie between the smallest and the largest of six with a
 * probability of 1 - 2 / 2^6 = 97 %. */
#define REPLAY_PARTS 6
#define REPLAY_PART_STEPS 2 /* a part has at least as many */

struct replay {
    struct run_info info;
    struct job job; /* its cluster describes the machines of the run */
    struct plan plan;
    struct cost_handle cost;
    struct workload workload;
    struct schedule full;
    struct sim_result sim; /* with recorded ops */
    int64_t num_ranks;     /* processes of the run */
    char *db;              /* owned: the store that the run names; NULL: none */
    struct json *summary;  /* owned: RUN_DIR/summary.json */
    int64_t num_steps;
    struct step_row *steps;                         /* owned; all steps of the run */
    int64_t num_counted;                            /* steps of the last plan, after warm-up */
    int64_t real_step_ns, real_p10_ns, real_p90_ns; /* median and percentiles of these steps */
    int num_parts;                                  /* REPLAY_PARTS, or 0: too few steps */
    int64_t part_ns[REPLAY_PARTS]; /* median step of each part of the counted steps, in order */
    int64_t op_step; /* the step with recorded ops that is nearest to the median; -1: none */
    int64_t peak_bytes, pool_bytes; /* of the rank that holds most: recorded; by pool_memory() */
    int64_t num_ops;
    struct op_row *ops; /* owned; the ops of op_step */
};

/* Read RUN_DIR/run.db and RUN_DIR/summary.json into every member except cost, workload, full and
 * sim. The first REPLAY_WARMUP steps of a plan do not count if more than twice as many follow. If
 * the plan reads the cache, the epoch that fills it does not count if another epoch follows.
 * *replay must be zeroed; on OK the caller clears it. ERR_SYSTEM: the run does not exist.
 * ERR_INFEASIBLE: the run did not finish a step. */
#define REPLAY_WARMUP 3
enum status replay_read(const char *run_dir, struct replay *replay, struct err *err);

/* Simulate one step of the run's plan with the costs of the store db_path. NULL: the store that the
 * run names, or the default one. ERR_INFEASIBLE: the store has no costs for the model, or the plan
 * does not fit the memory. */
enum status replay_simulate(struct replay *replay, const char *db_path, struct err *err);

/* replay_read() and replay_simulate(). */
enum status replay_load(const char *run_dir, const char *db_path, struct replay *replay,
                        struct err *err);
void replay_clear(struct replay *replay);

/* A plan and what it was lowered to; all borrowed. */
struct lowered_plan {
    const struct plan *plan;
    const struct schedule *full;
    const struct workload *workload;
};
/* Set *rank_bytes to a fresh array with the memory of each rank of the plan in a real run
 * (partition/step/pool_memory.h). It stays NULL if the profile does not say how much memory the
 * executor's kernels keep for a sample. */
enum status executor_memory(const struct cost_handle *cost, const struct setting *setting,
                            const struct lowered_plan *lowered, int64_t **rank_bytes,
                            struct err *err);
