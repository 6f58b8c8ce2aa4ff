/* tests/unit/cache_case.h - a small job that caches, and its arena: for test_cache.c,
 * test_cache_ahead.c.
 */
#pragma once

#include "exec/base/rng.h"
#include "exec/cache/cache.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/stage/stage.h"
#include "tests/unit/test.h"

/* Three layers of a family; dtype is that of the run. */
static inline void case_job(struct job *job, enum model_family family, enum dtype dtype)
{
    const bool vit = family == FAMILY_VIT;
    const struct model_spec spec = {.family = family,
                                    .task = TASK_CLASSIFY,
                                    .name = "small",
                                    .num_layers = 3,
                                    .hidden = 32,
                                    .heads = 2,
                                    .mlp = 64,
                                    .image = vit ? 12 : 0,
                                    .patch = vit ? 4 : 0,
                                    .channels = vit ? 3 : 0,
                                    .classes = 5,
                                    .seq = vit ? 0 : 9,
                                    .max_seq = vit ? 0 : 12,
                                    .vocab = vit ? 0 : 50,
                                    .elem_bytes = dtype_bytes(dtype)};
    struct err err = {0};
    job_defaults(job);
    model_clear(&job->model);
    if (model_build(&spec, &job->model, &err) != OK)
        fail_msg("%s", err.msg);
    job->cache.policy = CACHE_ON;
    job->train.dtype = dtype;
}

/* The job's arena for that many samples; NULL where the job or the machine has none. */
static inline struct cache *case_cache(const struct comm *comm, const struct job *job,
                                       int64_t samples, char note[256])
{
    struct cache *cache = NULL;
    struct backend *be = backend_cpu_new(job->train.dtype, 1, NULL);
    assert_non_null(be);
    assert_int_equal(cache_open(comm, job, be, samples, &cache, note, NULL), OK);
    backend_free(be);
    return cache;
}
