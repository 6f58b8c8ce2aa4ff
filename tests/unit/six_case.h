/* tests/unit/six_case.h - a job of six items on four ranks of one machine, for tests of turns and plans.
 */
#pragma once

#include "partition/plan/job.h"
#include "tests/unit/test.h"

enum { LAYERS = 6 };

static inline void make_job(struct job *job)
{
    struct err err = {0};
    struct item items[LAYERS];
    static const int num_ranks = 4;
    *job = (struct job){0};
    job_defaults(job);
    for (int i = 0; i < LAYERS; i++)
        items[i] = (struct item){.kind = ITEM_OPAQUE,
                                 .layer = i,
                                 .params = 20000 + 5000 * i,
                                 .act_bytes = 1000,
                                 .fwd_ns = 9000 + 1500 * (i % 3),
                                 .bwd_input_ns = 8000,
                                 .bwd_weight_ns = 9000};
    model_clear(&job->model);
    assert_int_equal(model_explicit("six", items, LAYERS, NULL, 0, false, &job->model, &err), OK);
    cluster_clear(&job->cluster);
    assert_int_equal(cluster_of_ranks(&num_ranks, 1, "cpu", &job->cluster, &err), OK);
    job->train.epochs = 6;
    job->train.batch = 44; /* 11 samples on each of 4 */
    job->train.batch_mode = BATCH_GLOBAL;
    job->pipeline.schedule_auto = false;
    job->pipeline.schedule = SCHEDULE_1F1B;
}
