/* tests/unit/checkpoint_case.h - a small model in two stages, to be saved in checkpoints. */
#pragma once

#include "exec/cpu/backend_cpu.h"
#include "exec/checkpoint/checkpoint.h"
#include "tests/unit/test.h"

struct rig {
    struct job job;
    struct backend *backend;
    struct stage *stages[2];
};

static inline void ok(enum status rc, const struct err *err)
{
    if (rc != OK)
        fail_msg("%s", err->msg);
}

/* Stages [0, cut) and [cut, n) of a small model; this rank gets those with its bit in `mine`. */
static inline void rig_init(struct rig *rig, int cut, unsigned mine, uint64_t seed, int classes)
{
    struct err err = {0};
    char text[160];
    memset(rig, 0, sizeof *rig);
    job_defaults(&rig->job);
    rig->job.train.optimizer.kind = OPTIMIZER_ADAMW; /* two states a tensor */
    snprintf(text, sizeof text,
             "vit-tiny:image=16,patch=8,classes=%d,hidden=32,heads=2,mlp=64,layers=2", classes);
    ok(model_parse(text, &rig->job.model, &err), &err);
    rig->backend = backend_cpu_new(DTYPE_FP32, 1, &err);
    assert_non_null(rig->backend);
    for (int s = 0; s < 2; s++) {
        struct stage_spec spec = {.model = &rig->job.model,
                                  .job = &rig->job,
                                  .backend = rig->backend,
                                  .first_item = s ? cut : 0,
                                  .end_item = s ? rig->job.model.num_items : cut,
                                  .max_samples = 1,
                                  .max_live = 1};
        if (!(mine >> s & 1))
            continue;
        ok(stage_new(&spec, &rig->stages[s], &err), &err);
        ok(stage_init_weights(rig->stages[s], seed, &err), &err);
        for (int i = 0; i < stage_num_params(rig->stages[s]); i++) {
            struct param *param = &stage_params(rig->stages[s])[i];
            for (int64_t e = 0; e < param->num_elems && param->state[0]; e++) {
                param->state[0][e] = param->weight[e] * 3 + (float)seed;
                param->state[1][e] = param->weight[e] * 5 - (float)seed;
            }
        }
    }
}

static inline void rig_clear(struct rig *rig)
{
    for (int s = 0; s < 2; s++)
        stage_free(rig->stages[s]);
    backend_free(rig->backend);
    job_clear(&rig->job);
}

static inline struct stage_list list_of(struct rig *rig)
{
    return (struct stage_list){.stages = rig->stages, .num_stages = 2, .backend = rig->backend};
}

static const char own_run[] = "0123456789abcdef0123456789abcdef";

/* Collective: the stages of rig that this rank has, as run own_run. */
static inline enum status case_save(const struct comm *comm, const char *dir, struct rig *rig,
                                    const struct progress *progress, const struct turn_norms *norms,
                                    struct err *err)
{
    const struct stage_list list = list_of(rig);
    const struct checkpoint_state what = {.job = &rig->job,
                                          .list = &list,
                                          .write = true,
                                          .run_id = own_run,
                                          .progress = progress,
                                          .norms = norms,
                                          .eval_loss = NAN};
    return checkpoint_save(comm, dir, &what, err);
}
