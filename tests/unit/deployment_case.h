/* tests/unit/deployment_case.h - layouts of hand-made plans on the ranks of a test: for test_deployment.c,
 * test_move.c. */
#pragma once

#include "exec/cpu/backend_cpu.h"
#include "exec/data/dataset_open.h"
#include "exec/trainer/deployment.h"
#include "partition/step/lower.h"
#include "tests/unit/test.h"

/* The parts that a run has once. */
struct case_base {
    struct comm comm;
    struct job job;
    struct dataset dataset;
    struct deployment_base base;
};

static inline void case_ok(enum status rc, const struct err *err)
{
    if (rc != OK)
        fail_msg("%s", err->msg);
}

/* Four layers of ViT, of a GPT with a tied table whose rows are padded, or of a Llama. */
static inline void case_open(struct case_base *c, enum model_family family)
{
    const bool vit = family == FAMILY_VIT;
    const struct model_spec spec = {.family = family,
                                    .task = vit ? TASK_CLASSIFY : TASK_CAUSAL_LM,
                                    .name = "small",
                                    .num_layers = 4,
                                    .hidden = 16,
                                    .heads = 2,
                                    .mlp = 24,
                                    .image = vit ? 8 : 0,
                                    .patch = vit ? 4 : 0,
                                    .channels = vit ? 3 : 0,
                                    .classes = vit ? 10 : 0,
                                    .seq = vit ? 0 : 6,
                                    .max_seq = vit ? 0 : 8,
                                    .vocab = vit                    ? 0
                                             : family == FAMILY_GPT ? 50
                                                                    : 64,
                                    .elem_bytes = 4};
    struct err err = {0};
    job_defaults(&c->job);
    model_clear(&c->job.model);
    case_ok(model_build(&spec, &c->job.model, &err), &err);
    c->job.data.train_samples = 50;
    c->job.data.test_samples = 10;
    case_ok(dataset_open(&c->job, &c->dataset, &err), &err);
    c->base = (struct deployment_base){.comm = &c->comm,
                                       .job = &c->job,
                                       .backend = backend_cpu_new(DTYPE_FP32, 1, &err),
                                       .dataset = &c->dataset};
    assert_non_null(c->base.backend);
}

static inline void case_close(struct case_base *c)
{
    backend_free(c->base.backend);
    dataset_clear(&c->dataset);
    job_clear(&c->job);
}

/* K stages of about equally many items, R replicas of `batch` samples, on devices first, first + 1,
 * ... modulo the ranks. */
static inline struct train_plan case_plan(const struct case_base *c, int k, int r, int num_frozen,
                                          enum frozen_placement frozen, int first)
{
    const struct model *model = &c->job.model;
    const int items = model->num_items;
    const bool outside = frozen == FROZEN_FIRST || frozen == FROZEN_CACHED;
    const int begin = outside ? model_frozen_items(model, num_frozen) : 0;
    struct train_plan got = {0};
    struct cost cost;
    struct err err = {0};
    struct plan *plan = &got.plan;
    *plan = (struct plan){.num_ranks = k,
                          .chunks = 1,
                          .num_pipelines = r,
                          .batch = 4,
                          .microbatches = microbatches_of(4, 2),
                          .schedule = SCHEDULE_1F1B,
                          .num_frozen_layers = num_frozen,
                          .frozen = num_frozen ? frozen : FROZEN_NONE,
                          .num_stages = k,
                          .optim_bytes_per_param = 4};
    plan->first_item = calloc((size_t)k + 1, sizeof *plan->first_item);
    plan->device = calloc((size_t)(k * r), sizeof *plan->device);
    assert_non_null(plan->first_item);
    assert_non_null(plan->device);
    for (int s = 0; s <= k; s++)
        plan->first_item[s] = begin + s * (items - begin) / k;
    for (int i = 0; i < k * r; i++)
        plan->device[i] = (first + i) % c->comm.size;
    case_ok(cluster_grid(1, c->comm.size, &got.cluster, &err), &err);
    for (int i = 0; i < got.cluster.num_devices; i++)
        strcpy(got.cluster.devices[i].kind, "cpu");
    got.workload = calloc(1, sizeof *got.workload);
    got.full = calloc(1, sizeof *got.full);
    assert_non_null(got.workload);
    assert_non_null(got.full);
    cost_roofline(&cost, NULL);
    case_ok(plan_lower(&(struct setting){model, &got.cluster, &cost}, plan, got.workload, got.full,
                       &err),
            &err);
    return got;
}

/* Place and stages of a plan. */
static inline void case_deployment(const struct case_base *c, struct train_plan plan,
                                   struct deployment *deployment)
{
    struct err err = {0};
    case_ok(deployment_place(&c->base, &plan, deployment, &err), &err);
    case_ok(deployment_stages(&c->base, deployment, &err), &err);
}

/* Whether this rank runs an item under a deployment's plan, prefix included; a slow second answer. */
static inline bool case_runs(const struct plan *plan, int rank, int item)
{
    for (int i = 0; i < plan->num_ranks * plan->num_pipelines; i++) {
        const int s = i % plan->num_ranks; /* 1f1b, one chunk: stage = rank of the pipeline */
        const bool in_prefix = s == 0 && item < plan->first_item[0];
        if (plan->device[i] == rank &&
            (in_prefix || (item >= plan->first_item[s] && item < plan->first_item[s + 1])))
            return true;
    }
    return false;
}
