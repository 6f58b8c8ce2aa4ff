/* cli/replay.h - a real run read back from its folder, and the same step simulated.
 *
 * The prediction starts from what the run wrote down (job, plan) and from the profile store, never
 * from the run's times: the two sides meet here for the first time. */
#ifndef ELAPSE_CLI_REPLAY_H
#define ELAPSE_CLI_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/job.h"
#include "partition/plan.h"
#include "partition/status.h"
#include "partition/workload.h"
#include "profiles/profile_cost.h"
#include "profiles/record.h"
#include "sim/engine.h"

struct json;

struct replay {
    struct run_info info;
    struct job job; /* its cluster is the one the run had: this machine */
    struct plan plan;
    struct cost_handle cost;
    struct workload workload;
    struct schedule full;
    struct sim_result sim; /* with ops */
    int64_t num_ranks;     /* processes of the run */
    char *db;              /* owned: the store that the run names; NULL */
    struct json *summary;  /* owned: RUN_DIR/summary.json */
    int64_t num_steps;
    struct step_row *steps;                         /* owned; all of the run */
    int64_t num_counted;                            /* steps of the last plan, after warm-up */
    int64_t real_step_ns, real_p10_ns, real_p90_ns; /* of those */
    int64_t op_step;                                /* recorded step nearest to the median; -1 */
    int64_t peak_bytes, pool_bytes; /* of the rank that holds most: recorded; by pool_memory() */
    int64_t num_ops;
    struct op_row *ops; /* owned; of op_step */
};

/* Read RUN_DIR/run.db and RUN_DIR/summary.json: everything but cost, workload, full and sim. The
 * first REPLAY_WARMUP steps of a plan do not count, where more than twice as many follow; of a plan
 * that reads the cache the epoch that fills it does not, where another follows. *replay
 * must be zeroed; on OK the caller clears it. ERR_SYSTEM: no such run; ERR_INFEASIBLE: the run did
 * not finish a step. */
#define REPLAY_WARMUP 3
enum status replay_read(const char *run_dir, struct replay *replay, struct err *err);

/* Simulate one step of what was read, with the costs of the store db_path (NULL: the one the run
 * names, else the default). ERR_INFEASIBLE: nobody has measured the model, or it does not fit. */
enum status replay_simulate(struct replay *replay, const char *db_path, struct err *err);

/* Both. */
enum status replay_load(const char *run_dir, const char *db_path, struct replay *replay,
                        struct err *err);
void replay_clear(struct replay *replay);

/* What each rank of a real run of the plan holds (partition/pool_memory.h), rank_bytes is
 * the caller's, plan.num_ranks. *known false, and rank_bytes untouched: the profile does not tell
 * what the executor's kernels keep of a sample. */
enum status executor_memory(const struct cost_handle *cost, const struct model *model,
                            const struct schedule *full, const struct workload *workload,
                            const struct plan *plan, bool on_device, int64_t *rank_bytes,
                            bool *known, struct err *err);

#endif
