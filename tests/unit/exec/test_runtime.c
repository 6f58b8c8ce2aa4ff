/* Runtime. ranks: 2
 *
 * Judge: the same job on one rank. Each rank also runs it alone, in a message group of its own, and
 * compares its stages with that, bit by bit. */
#include "exec/cpu/backend_cpu.h"
#include "exec/data/dataset_open.h"
#include "exec/data/loader.h"
#include "exec/step/runtime.h"
#include "partition/step/lower.h"
#include "partition/step/pool_memory.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/test.h"

enum { STEPS = 3, BATCH = 12, TRAIN = 30 }; /* 30 = 12 + 12 + 6: the last step is short */

static struct comm world;

/* Settings of few tests, for the rigs made next. */
static struct {
    int64_t bucket_bytes;
    enum reduction reduction;
    enum optimizer_kind optimizer;
    double share; /* of weight gradients that are left out; 0: no rule is set */
    int period;   /* instead of `share`: all in micro-batches m with m % period != 0 */
    enum freeze_choice choice;
    bool rescale;
} rare;

/* A job with its plan, stages and runtime on this rank. */
struct rig {
    struct job job;
    struct cluster cluster;
    struct plan plan;
    struct workload workload;
    struct schedule full;
    struct backend *backend;
    struct stage **stages;
    struct dataset dataset;
    struct sampler sampler;
    struct loader *loader;
    struct runtime_spec spec;
    struct runtime *runtime;
    struct runtime_groups groups;
    double *shares; /* [stages][micro-batches] */
    double losses[STEPS], norms[STEPS];
    double eval_loss;
};

static void ok(enum status rc, const struct err *err)
{
    if (rc != OK)
        fail_msg("rank %d: %s", world.rank, err->msg);
}

static void rig_plan(struct rig *rig, int k, int r, int m, enum schedule_kind kind, int chunks,
                     enum recompute_mode recompute)
{
    struct plan *plan = &rig->plan;
    int stages = k * chunks, items = rig->job.model.num_items;
    *plan = (struct plan){.num_ranks = k,
                          .chunks = chunks,
                          .num_pipelines = r,
                          .batch = BATCH / r,
                          .microbatches = microbatches_of(BATCH / r, m / r),
                          .schedule = kind,
                          .recompute = recompute,
                          .num_stages = stages,
                          .clip = rig->job.train.clip_norm > 0,
                          .bucket_bytes = rare.bucket_bytes,
                          .optim_bytes_per_param = 4};
    plan->first_item = calloc((size_t)stages + 1, sizeof(int));
    plan->device = calloc((size_t)(k * r), sizeof(int));
    for (int s = 0; s <= stages; s++)
        plan->first_item[s] = items * s / stages;
    for (int i = 0; i < k * r; i++)
        plan->device[i] = i;
}

static void rig_shares(struct rig *rig)
{
    const int count = rig->plan.microbatches.count, num = rig->plan.num_stages * count;
    const struct leave_out rule = {rig->shares = calloc((size_t)num, sizeof(double)), 1,
                                   rare.choice, NULL, rare.rescale};
    struct err err = {0};
    for (int i = 0; i < num; i++)
        rig->shares[i] = rare.period > 0 ? i % count % rare.period != 0 : rare.share;
    if (rare.period > 0 || rare.share > 0)
        ok(runtime_leave_out(rig->runtime, &rule, &err), &err);
}

static void rig_init(struct rig *rig, const struct comm *comm, const char *model, int k, int r,
                     int m, enum schedule_kind kind, int chunks, enum recompute_mode recompute,
                     double clip)
{
    struct err err = {0};
    struct cost cost;
    memset(rig, 0, sizeof *rig);
    job_defaults(&rig->job);
    rig->job.train.clip_norm = clip;
    rig->job.train.dropout = 0.1;
    rig->job.train.reduction = rare.reduction;
    rig->job.train.optimizer.lr = 0.05;
    rig->job.train.optimizer.kind = rare.optimizer;
    rig->job.data.train_samples = TRAIN;
    rig->job.data.test_samples = 20;
    ok(model_parse(model, &rig->job.model, &err), &err);
    if (rig->job.model.num_skips > 0)
        rig->job.train.dropout = 0; /* the only way stage.h offers */
    rig_plan(rig, k, r, m, kind, chunks, recompute);
    ok(cluster_grid(1, k * r, &rig->cluster, &err), &err);
    for (int i = 0; i < k * r; i++)
        strcpy(rig->cluster.devices[i].kind, "cpu");
    cost_roofline(&cost, NULL);
    ok(plan_lower(&(struct setting){&rig->job.model, &rig->cluster, &cost}, &rig->plan,
                  &rig->workload, &rig->full, &err),
       &err);
    ok(runtime_groups_open(comm, &rig->plan, &rig->groups, &err), &err);
    rig->backend = backend_cpu_new(DTYPE_FP32, 1, &err);
    assert_non_null(rig->backend);
    rig->stages = calloc((size_t)rig->plan.num_stages, sizeof *rig->stages);
    for (int s = 0; s < rig->plan.num_stages; s++) {
        struct stage_spec spec = {.model = &rig->job.model,
                                  .job = &rig->job,
                                  .backend = rig->backend,
                                  .first_item = rig->plan.first_item[s],
                                  .end_item = rig->plan.first_item[s + 1],
                                  .first_items = rig->plan.first_item,
                                  .num_stages = rig->plan.num_stages,
                                  .max_samples = rig->plan.microbatches.size,
                                  .max_live = pool_slots(&rig->full, s),
                                  .recompute = recompute != RECOMPUTE_NEVER};
        if (rig->full.rank_of_stage[s] != rig->groups.rank)
            continue;
        ok(stage_new(&spec, &rig->stages[s], &err), &err);
        ok(stage_init_weights(rig->stages[s], 1, &err), &err);
    }
    ok(dataset_open(&rig->job, &rig->dataset, &err), &err);
    ok(sampler_init(
           &rig->sampler,
           &(struct sampler_spec){TRAIN, 1, true, r, rig->plan.batch, rig->plan.microbatches.count},
           &err),
       &err);
    struct loader_spec loader = {.dataset = &rig->dataset,
                                 .sampler = &rig->sampler,
                                 .replica = rig->groups.replica,
                                 .want_inputs = true,
                                 .want_labels = true,
                                 .prefetch = true};
    ok(loader_new(&loader, &rig->loader, &err), &err);
    rig->spec = (struct runtime_spec){.model = &rig->job.model,
                                      .job = &rig->job,
                                      .plan = &rig->plan,
                                      .workload = &rig->workload,
                                      .full = &rig->full,
                                      .comm = comm,
                                      .active = rig->groups.active,
                                      .pipeline = rig->groups.pipeline,
                                      .replicas = rig->groups.replicas,
                                      .backend = rig->backend,
                                      .stages = rig->stages,
                                      .sampler = &rig->sampler,
                                      .replica = rig->groups.replica,
                                      .rank = rig->groups.rank};
    ok(runtime_new(&rig->spec, &rig->runtime, &err), &err);
    rig_shares(rig);
}

static void rig_train(struct rig *rig)
{
    struct err err = {0};
    const struct batch *batch;
    struct loss_sums sums;
    /* An evaluation in front must leave nothing behind. */
    ok(loader_get(rig->loader, 1, 2, &batch, &err), &err);
    ok(runtime_eval(rig->runtime, batch, &sums, &err), &err);
    for (int s = 0; s < STEPS; s++) {
        struct step_result result;
        ok(loader_get(rig->loader, 0, s, &batch, &err), &err);
        ok(runtime_step(rig->runtime, batch, s, .05, 0, &result, &err), &err);
        rig->losses[s] = result.loss;
        rig->norms[s] = result.grad_norm;
    }
    ok(loader_get(rig->loader, 1, 0, &batch, &err), &err);
    ok(runtime_eval(rig->runtime, batch, &sums, &err), &err);
    rig->eval_loss = sums.loss;
}

static void rig_clear(struct rig *rig)
{
    runtime_free(rig->runtime);
    free(rig->shares);
    loader_free(rig->loader);
    dataset_clear(&rig->dataset);
    for (int s = 0; s < rig->plan.num_stages; s++)
        stage_free(rig->stages[s]);
    free(rig->stages);
    backend_free(rig->backend);
    runtime_groups_clear(&rig->groups);
    workload_clear(&rig->workload);
    schedule_clear(&rig->full);
    plan_clear(&rig->plan);
    cluster_clear(&rig->cluster);
    job_clear(&rig->job);
}

static const struct param *find_param(const struct rig *rig, const char *name)
{
    for (int s = 0; s < rig->plan.num_stages; s++)
        for (int i = 0; rig->stages[s] && i < stage_num_params(rig->stages[s]); i++)
            if (strcmp(stage_params(rig->stages[s])[i].name, name) == 0)
                return &stage_params(rig->stages[s])[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Every tensor of this rank against the other rig, bit by bit, optimizer state included. */
static void assert_same_weights(const struct rig *rig, const struct rig *judge)
{
    int tensors = 0;
    for (int s = 0; s < rig->plan.num_stages; s++)
        for (int i = 0; rig->stages[s] && i < stage_num_params(rig->stages[s]); i++) {
            const struct param *a = &stage_params(rig->stages[s])[i];
            const struct param *b = find_param(judge, a->name);
            size_t bytes = (size_t)a->num_elems * sizeof(float);
            assert_int_equal(a->num_elems, b->num_elems);
            if (memcmp(a->weight, b->weight, bytes) != 0)
                fail_msg("rank %d: '%s' differs", world.rank, a->name);
            if (a->state[0] && memcmp(a->state[0], b->state[0], bytes) != 0)
                fail_msg("rank %d: momentum of '%s' differs", world.rank, a->name);
            tensors++;
        }
    assert_true(tensors > 0);
}

static struct comm alone(void)
{
    struct comm comm = {.size = 1, .local_size = 1, .num_nodes = 1, .max_tag = world.max_tag};
    struct err err = {0};
    ok(comm_split(&world, world.rank, 0, &comm.all, &err), &err);
    return comm;
}

static const char *const small_models[] = {
    "vit-tiny:image=16,patch=8,classes=10,hidden=32,heads=2,mlp=64,layers=4",
    "bert-base:hidden=32,heads=2,mlp=64,layers=3,seq=12,vocab=70",
    "gpt2:hidden=32,heads=2,mlp=64,layers=3,seq=12,vocab=70",
    "bert-base:task=mlm,hidden=32,heads=2,mlp=64,layers=3,seq=12,vocab=70",
    "bert-base:task=qa,hidden=32,heads=2,mlp=64,layers=3,seq=12,vocab=70",
    "vit-tiny:image=16,patch=8,classes=10,hidden=32,heads=2,mlp=64,layers=4,unet_skips=1",
};

/* Momentum starts at 0, so after the first step it is the gradient. Its squares are added here,
 * tensor by tensor, over all stages of all ranks. */
static void runtime_step__reports_the_norm_of_every_parameter(void **state)
{
    (void)state;
    for (size_t model = 0; model < sizeof small_models / sizeof *small_models; model++) {
        struct rig rig;
        struct err err = {0};
        const struct batch *batch;
        struct step_result result;
        double sum = 0, items[64] = {0};
        rig_init(&rig, &world, small_models[model], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_NEVER,
                 1e30);
        ok(loader_get(rig.loader, 0, 0, &batch, &err), &err);
        ok(runtime_step(rig.runtime, batch, 0, .05, 0, &result, &err), &err);
        for (int s = 0; s < rig.plan.num_stages; s++)
            for (int i = 0; rig.stages[s] && i < stage_num_params(rig.stages[s]); i++) {
                const struct param *p = &stage_params(rig.stages[s])[i];
                for (int64_t e = 0; e < p->num_elems && !p->tied_copy; e++)
                    items[p->item] += (double)p->state[0][e] * (double)p->state[0][e];
            }
        ok(comm_sum_f64(world.all, items, rig.job.model.num_items, &err), &err);
        for (int i = 0; i < rig.job.model.num_items; i++) { /* each goes to a freeze policy */
            assert_true(fabs(runtime_item_sumsq(rig.runtime)[i] - items[i]) <= 1e-6 * items[i]);
            sum += items[i];
        }
        if (!(fabs(result.grad_norm - sqrt(sum)) < 1e-6 * sqrt(sum)))
            fail_msg("%s: the norm is %.9g, the sum over all parameters gives %.9g",
                     small_models[model], result.grad_norm, sqrt(sum));
        rig_clear(&rig);
    }
}

static void compare(const char *model, int k, int r, int m, enum schedule_kind kind, int chunks,
                    enum recompute_mode recompute, double clip)
{
    struct comm solo = alone();
    struct rig judge, rig;
    rig_init(&judge, &solo, model, 1, 1, m, SCHEDULE_GPIPE, 1, RECOMPUTE_NEVER, clip);
    rig_train(&judge);
    rig_init(&rig, &world, model, k, r, m, kind, chunks, recompute, clip);
    rig_train(&rig);
    if (r == 1 || rare.reduction == REDUCTION_CANONICAL) {
        assert_memory_equal(rig.losses, judge.losses, sizeof rig.losses);
        assert_memory_equal(rig.norms, judge.norms, sizeof rig.norms);
        assert_true(rig.eval_loss == judge.eval_loss);
        assert_same_weights(&rig, &judge);
    } else {
        for (int s = 0; s < STEPS; s++)
            assert_true(fabs(rig.losses[s] - judge.losses[s]) < 1e-5 * fabs(judge.losses[s]));
    }
    assert_true(judge.losses[0] > 0 && judge.losses[1] != judge.losses[0]);
    rig_clear(&rig);
    rig_clear(&judge);
    comm_group_free(solo.all);
}

static void runtime_new__says_so_when_memory_ends_anywhere(void **state)
{
    struct comm solo = alone();
    struct rig rig;
    (void)state;
    /* More micro-batches than the least window, so that the check may widen it. */
    rig_init(&rig, &solo, small_models[0], 1, 1, 8, SCHEDULE_GPIPE, 1, RECOMPUTE_NEVER, 0);
    for (int n = 0; FAIL_MALLOC; n++) {
        struct runtime *other = NULL;
        struct err err = {0};
        fail_malloc_after(n);
        const enum status rc = runtime_new(&rig.spec, &other, &err);
        const bool done = fail_malloc_done();
        runtime_free(other);
        if (done)
            break;
        if (rc == OK || err.status != rc || !err.msg[0])
            fail_msg("allocation %d: status %d, '%s'", n, (int)rc, err.msg);
    }
    rig_clear(&rig);
    comm_group_free(solo.all);
}

static void runtime_step__knows_the_norm_with_and_without_clipping(void **state)
{
    struct comm solo = alone();
    struct rig off, high;
    (void)state;
    rig_init(&off, &solo, small_models[2], 1, 1, 2, SCHEDULE_GPIPE, 1, RECOMPUTE_NEVER, 0);
    rig_init(&high, &solo, small_models[2], 1, 1, 2, SCHEDULE_GPIPE, 1, RECOMPUTE_NEVER, 1e9);
    rig_train(&off);
    rig_train(&high);
    assert_true(off.norms[0] > 0);
    assert_memory_equal(off.norms, high.norms, sizeof off.norms);
    assert_same_weights(&off, &high);
    rig_clear(&off);
    rig_clear(&high);
    comm_group_free(solo.all);
}

/* The closed form of AdamW's first step (Loshchilov and Hutter 2019), from the moments that it
 * leaves. */
static void runtime_step__begins_adam_with_the_first_step(void **state)
{
    struct comm solo = alone();
    struct rig rig;
    struct err err = {0};
    const struct batch *batch;
    struct step_result result;
    (void)state;
    rare.optimizer = OPTIMIZER_ADAMW;
    rig_init(&rig, &solo, small_models[0], 1, 1, 2, SCHEDULE_GPIPE, 1, RECOMPUTE_NEVER, 0);
    memset(&rare, 0, sizeof rare);
    rig.job.train.optimizer.weight_decay = 0;
    const double beta1 = rig.job.train.optimizer.beta1, beta2 = rig.job.train.optimizer.beta2;
    const struct param *p = find_param(&rig, stage_params(rig.stages[0])[2].name);
    float *before = malloc((size_t)p->num_elems * sizeof *before);
    memcpy(before, p->weight, (size_t)p->num_elems * sizeof *before);
    ok(loader_get(rig.loader, 0, 0, &batch, &err), &err);
    ok(runtime_step(rig.runtime, batch, 0, .05, 0, &result, &err), &err);
    for (int64_t e = 0; e < p->num_elems; e++) {
        const double m = (double)p->state[0][e] / (1 - beta1),
                     v = (double)p->state[1][e] / (1 - beta2);
        const double want = (double)before[e] - .05 * m / (sqrt(v) + rig.job.train.optimizer.eps);
        if (!(fabs((double)p->weight[e] - want) < 1e-5))
            fail_msg("%s[%d]: %g, not %g", p->name, (int)e, (double)p->weight[e], want);
    }
    free(before);
    rig_clear(&rig);
    comm_group_free(solo.all);
}

/* The norm that the first step reports, and that of what it put into the momentum. */
static void first_norms(double clip, double *reported, double *applied)
{
    struct comm solo = alone();
    struct rig rig;
    struct err err = {0};
    const struct batch *batch;
    struct step_result result;
    double sum = 0;
    rig_init(&rig, &solo, small_models[0], 1, 1, 2, SCHEDULE_GPIPE, 1, RECOMPUTE_NEVER, clip);
    ok(loader_get(rig.loader, 0, 0, &batch, &err), &err);
    ok(runtime_step(rig.runtime, batch, 0, .05, 0, &result, &err), &err);
    for (int i = 0; i < stage_num_params(rig.stages[0]); i++) {
        const struct param *p = &stage_params(rig.stages[0])[i];
        for (int64_t e = 0; e < p->num_elems; e++)
            sum += (double)p->state[0][e] * (double)p->state[0][e];
    }
    *reported = result.grad_norm;
    *applied = sqrt(sum);
    rig_clear(&rig);
    comm_group_free(solo.all);
}

static void runtime_step__clips_what_is_longer_than_the_limit(void **state)
{
    double norm, free_norm, reported, applied;
    (void)state;
    first_norms(0, &norm, &free_norm);
    assert_true(fabs(free_norm - norm) < 1e-6 * norm);
    for (double share = .25; share < 2; share += .25) {
        const double clip = share * norm, want = share < 1 ? clip : norm;
        first_norms(clip, &reported, &applied);
        assert_true(reported == norm);
        if (!(fabs(applied - want) < 1e-5 * want))
            fail_msg("clipped at %g, a gradient of norm %g has %g", clip, norm, applied);
    }
}

static void runtime_step__has_the_same_bits_at_k_1_and_k_2_under_every_schedule(void **state)
{
    static const struct {
        enum schedule_kind kind;
        int chunks;
    } kinds[] = {
        {SCHEDULE_GPIPE,         1},
        {SCHEDULE_1F1B,          1},
        {SCHEDULE_INTERLEAVED,   2},
        {SCHEDULE_ZB_H1,         1},
        {SCHEDULE_ZB_H2,         1},
        {SCHEDULE_ZB_V,          2},
        {SCHEDULE_DUALPIPE_V,    2},
        {SCHEDULE_EAGER_1F1B,    1},
        {SCHEDULE_BREADTH_FIRST, 2},
        {SCHEDULE_LOOPED_BFS,    2},
        {SCHEDULE_V_HALF,        2},
        {SCHEDULE_V_MIN,         2}
    };
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        compare(small_models[0], 2, 1, 6, kinds[i].kind, kinds[i].chunks, RECOMPUTE_NEVER, 1.0);
}

static void runtime_step__has_the_same_bits_for_every_family(void **state)
{
    (void)state;
    for (int i = 1; i < 6; i++)
        compare(small_models[i], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_NEVER, 1.0);
    compare(small_models[5], 2, 1, 4, SCHEDULE_INTERLEAVED, 2, RECOMPUTE_NEVER, 1.0);
    compare(small_models[5], 2, 1, 4, SCHEDULE_ZB_V, 2, RECOMPUTE_NEVER, 1.0);
}

static void runtime_step__has_the_same_bits_with_recompute_and_without_clipping(void **state)
{
    (void)state;
    compare(small_models[0], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_STAGE, 1.0);
    compare(small_models[0], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_STAGE_EARLY, 1.0);
    compare(small_models[0], 2, 1, 4, SCHEDULE_GPIPE, 1, RECOMPUTE_EXCEPT_LAST, 0);
}

static void runtime_step__agrees_with_one_replica_when_there_are_two(void **state)
{
    (void)state;
    compare(small_models[0], 1, 2, 4, SCHEDULE_1F1B, 1, RECOMPUTE_NEVER, 1.0);
}

/* Sums start while the last backward still runs, whatever they hold; one replica is the judge. */
static void
runtime_step__has_the_same_bits_when_buckets_are_summed_beside_the_backward(void **state)
{
    static const enum schedule_kind kinds[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_ZB_H1};
    (void)state;
    rare.reduction = REDUCTION_CANONICAL;
    for (rare.bucket_bytes = 0; rare.bucket_bytes < 100000;
         rare.bucket_bytes = 7 * rare.bucket_bytes + 1)
        for (int i = 0; i < 5; i += i == 0 ? 2 : 1)
            compare(small_models[i], 1, 2, 4, kinds[i % 3], 1, RECOMPUTE_NEVER, 1.0);
    rare.bucket_bytes = 1;
    compare(small_models[0], 1, 2, 8, SCHEDULE_INTERLEAVED, 2, RECOMPUTE_NEVER, 0);
    memset(&rare, 0, sizeof rare);
}

/* --- weight gradients that are left out (step/leave_out.c) --- */

static const double some_shares[] = {0.25, 0.5, 0.9, 1};

static void runtime_leave_out__has_the_same_bits_at_k_1_and_k_2(void **state)
{
    static const struct {
        enum schedule_kind kind;
        int chunks;
    } kinds[] = {
        {SCHEDULE_GPIPE,       1},
        {SCHEDULE_1F1B,        1},
        {SCHEDULE_INTERLEAVED, 2},
        {SCHEDULE_ZB_H1,       1},
        {SCHEDULE_ZB_V,        2}
    };
    (void)state;
    for (int i = 0; i < 20; i++) {
        rare.share = some_shares[i / 5];
        rare.rescale = i % 2;
        rare.optimizer = i % 3 ? OPTIMIZER_ADAMW : OPTIMIZER_SGD;
        compare(small_models[i % 4 < 2 ? 0 : 2], 2, 1, 6, kinds[i % 5].kind, kinds[i % 5].chunks,
                RECOMPUTE_NEVER, i % 4 ? 1.0 : 0);
    }
    for (int model = 0; model < 6; model++) {
        rare.share = 0.5;
        rare.rescale = true;
        compare(small_models[model], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_STAGE, 1.0);
    }
    memset(&rare, 0, sizeof rare);
}

/* All or nothing by the micro-batch, so that a replica's m-th one leaves out what the m-th and the
 * (m + 2)-nd do without replicas. The last step has no samples for the second replica. */
static void runtime_leave_out__has_the_same_bits_with_two_replicas(void **state)
{
    (void)state;
    for (int model = 0; model < 4; model++)
        for (int rescale = 0; rescale < 2; rescale++) {
            rare.reduction = REDUCTION_CANONICAL;
            rare.period = 2;
            rare.rescale = rescale;
            rare.bucket_bytes = rescale ? 1 : 1000;
            compare(small_models[model], 1, 2, 4, model % 2 ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B, 1,
                    RECOMPUTE_NEVER, 1.0);
        }
    memset(&rare, 0, sizeof rare);
}

/* The gradients of the first step, which momentum holds after it, in the order of stages and
 * tensors of this rank. */
static float *first_gradients(const struct comm *comm, int model, int r, int m, int only,
                              int64_t *num)
{
    struct rig rig;
    struct err err = {0};
    const struct batch *batch;
    struct step_result result;
    rig_init(&rig, comm, small_models[model], 1, r, m, SCHEDULE_GPIPE, 1, RECOMPUTE_NEVER, 0);
    const struct leave_out rule = {rig.shares, 1, CHOICE_ROTATE, NULL, false};
    if (only >= 0) {
        for (int i = 0; i < m; i++)
            rig.shares[i] = i != only;
        ok(runtime_leave_out(rig.runtime, &rule, &err), &err);
    }
    ok(loader_get(rig.loader, 0, 0, &batch, &err), &err);
    ok(runtime_step(rig.runtime, batch, 0, .05, 0, &result, &err), &err);
    float *all = NULL;
    *num = 0;
    for (int i = 0; i < stage_num_params(rig.stages[0]); i++) {
        const struct param *p = &stage_params(rig.stages[0])[i];
        all = realloc(all, (size_t)(*num + p->num_elems) * sizeof *all);
        memcpy(all + *num, p->state[0], (size_t)p->num_elems * sizeof *all);
        *num += p->num_elems;
    }
    rig_clear(&rig);
    return all;
}

/* Each micro-batch alone, then the sum that the choice asks for. */
static void check_sums(int model, int r, bool rescale)
{
    enum { M = 4 };
    struct comm solo = alone();
    struct rig rig;
    float *one[M];
    int64_t num, at = 0, differ = 0;
    for (int m = 0; m < M; m++)
        one[m] = first_gradients(&solo, model, 1, M, m, &num);
    rare.share = 0.5;
    rare.rescale = rescale;
    rare.reduction = rescale ? REDUCTION_CANONICAL : REDUCTION_FAST;
    float *got = first_gradients(r > 1 ? &world : &solo, model, r, M, -1, &num);
    rig_init(&rig, &solo, small_models[model], 1, 1, M, SCHEDULE_GPIPE, 1, RECOMPUTE_NEVER, 0);
    for (int i = 0; i < stage_num_params(rig.stages[0]); i++) {
        const struct param *p = &stage_params(rig.stages[0])[i];
        const int last = rig.job.model.num_items - 1;
        const bool table = i == 0 && stage_shares_table(&rig.job.model);
        if (table) { /* two items have a part in it, which this judge does not tell apart */
            at += p->num_elems;
            continue;
        }
        assert_true(p->item <= last);
        int counted = 0;
        bool out[M];
        for (int m = 0; m < M; m++) {
            const struct freeze_pass pass = {rig.job.train.seed, 0,   m % (M / r), p->item,
                                             p->item + 1,        0.5, NULL};
            freeze_choose(CHOICE_ROTATE, &pass, &out[m]);
            counted += !out[m];
        }
        for (int64_t e = 0; e < p->num_elems; e++, at++) {
            double want = 0, size = 1e-6;
            for (int m = 0; m < M; m++) {
                want += out[m] ? 0 : (double)one[m][at];
                size += fabs((double)one[m][at]);
            }
            want *= rescale && counted > 0 ? (double)M / counted : 1;
            if (!(fabs((double)got[at] - want) <= 4e-6 * size))
                fail_msg("%s of %s: %g, not %g", p->name, small_models[model], (double)got[at],
                         want);
        }
        differ += counted < M;
    }
    assert_true(differ > 0);
    assert_int_equal(at, num);
    memset(&rare, 0, sizeof rare);
    rig_clear(&rig);
    for (int m = 0; m < M; m++)
        free(one[m]);
    free(got);
    comm_group_free(solo.all);
}

static void runtime_leave_out__sums_what_is_counted_and_divides_by_its_samples(void **state)
{
    (void)state;
    for (int model = 0; model < 4; model++)
        for (int r = 1; r <= 2; r++)
            for (int rescale = 0; rescale < 2; rescale++)
                check_sums(model, r, rescale);
}

/* Also of a table that embedding and head share, which has two sums. */
static void runtime_leave_out__divides_every_sum_by_half_the_samples(void **state)
{
    struct comm solo = alone();
    int64_t num;
    (void)state;
    float *whole = first_gradients(&solo, 2, 1, 2, -1, &num);
    rare.rescale = true;
    rare.period = 2;
    float *half = first_gradients(&solo, 2, 1, 2, -1, &num);
    rare.rescale = false;
    float *part = first_gradients(&solo, 2, 1, 2, -1, &num);
    for (int64_t e = 0; e < num; e++)
        assert_true(half[e] == 2 * part[e]);
    assert_int_not_equal(memcmp(whole, half, (size_t)num * sizeof *half), 0);
    memset(&rare, 0, sizeof rare);
    free(whole);
    free(half);
    free(part);
    comm_group_free(solo.all);
}

/* After a step that trains, one that leaves out everything changes nothing. */
static void runtime_leave_out__of_everything_changes_neither_weights_nor_state(void **state)
{
    (void)state;
    for (int model = 0; model < 4; model++) {
        struct rig rig, judge;
        struct err err = {0};
        const struct batch *batch;
        struct step_result result;
        rare.optimizer = model % 2 ? OPTIMIZER_ADAMW : OPTIMIZER_SGD;
        rig_init(&rig, &world, small_models[model], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_NEVER, 1);
        rig_init(&judge, &world, small_models[model], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_NEVER,
                 1);
        for (int i = 0; i < 2 * 4; i++)
            rig.shares[i] = 1;
        const struct leave_out rule = {rig.shares, 1, CHOICE_ROTATE, NULL, true};
        ok(loader_get(judge.loader, 0, 0, &batch, &err), &err);
        ok(runtime_step(judge.runtime, batch, 0, .05, 0, &result, &err), &err);
        for (int s = 0; s < 3; s++) {
            ok(runtime_leave_out(rig.runtime, s == 0 ? NULL : &rule, &err), &err);
            ok(loader_get(rig.loader, 0, s, &batch, &err), &err);
            ok(runtime_step(rig.runtime, batch, s, .05, 0, &result, &err), &err);
        }
        assert_true(result.grad_norm == 0);
        assert_same_weights(&rig, &judge);
        /* Without a rule all is as if there had never been one. */
        for (int s = 1; s < 3; s++) {
            ok(runtime_leave_out(rig.runtime, NULL, &err), &err);
            ok(loader_get(rig.loader, 0, s, &batch, &err), &err);
            ok(runtime_step(rig.runtime, batch, s, .05, 0, &result, &err), &err);
            ok(loader_get(judge.loader, 0, s, &batch, &err), &err);
            ok(runtime_step(judge.runtime, batch, s, .05, 0, &result, &err), &err);
        }
        assert_same_weights(&rig, &judge);
        rig_clear(&rig);
        rig_clear(&judge);
    }
    memset(&rare, 0, sizeof rare);
}

static void runtime_times__of_a_bucket_begin_inside_the_last_backward(void **state)
{
    struct rig rig;
    struct err err = {0};
    const struct batch *batch;
    struct step_result result;
    int early = 0, sums = 0;
    (void)state;
    rare.bucket_bytes = 1;
    rig_init(&rig, &world, small_models[0], 1, 2, 4, SCHEDULE_1F1B, 1, RECOMPUTE_NEVER, 1.0);
    memset(&rare, 0, sizeof rare);
    ok(loader_get(rig.loader, 0, 0, &batch, &err), &err);
    ok(runtime_step(rig.runtime, batch, 0, .05, 0, &result, &err), &err);
    const struct op_time *times = runtime_times(rig.runtime);
    const struct rank_ops *ops = &rig.full.ranks[0];
    int64_t backward_end = 0, sums_end = 0;
    for (int64_t i = 0; i < ops->num_ops; i++) {
        if (ops->ops[i].kind == OP_B)
            backward_end = times[i].end_ns;
        if (ops->ops[i].kind == OP_NORM)
            assert_true(times[i].start_ns >= sums_end);
        if (ops->ops[i].kind != OP_ALLREDUCE)
            continue;
        early += times[i].start_ns < backward_end;
        assert_true(times[i].start_ns >= sums_end); /* one after the other */
        sums_end = times[i].end_ns;
        sums++;
    }
    assert_int_equal(sums,
                     rig.job.model.num_items); /* items of no bytes have none: here all have */
    assert_true(early >= 1);
    rig_clear(&rig);
}

static void runtime_step__stops_before_the_weights_change_when_the_loss_is_not_finite(void **state)
{
    struct rig rig;
    struct err err = {0};
    const struct batch *batch;
    struct step_result result;
    (void)state;
    rig_init(&rig, &world, small_models[0], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_NEVER, 1.0);
    const struct param *param = NULL;
    for (int s = 0; s < 2; s++)
        if (rig.stages[s])
            param = &stage_params(rig.stages[s])[0];
    if (world.rank == 0)
        param->weight[0] = NAN;
    float *before = malloc((size_t)param->num_elems * sizeof *before);
    memcpy(before, param->weight, (size_t)param->num_elems * sizeof *before);
    ok(loader_get(rig.loader, 0, 0, &batch, &err), &err);
    assert_int_equal(runtime_step(rig.runtime, batch, 0, .05, 0, &result, &err), ERR_INFEASIBLE);
    assert_string_equal(err.msg, "the loss of micro-batch 0 of replica 0 is nan, first in "
                                 "'embedding' (rank 0)");
    assert_true(runtime_not_finite(rig.runtime));
    assert_memory_equal(before, param->weight, (size_t)param->num_elems * sizeof *before);
    if (world.rank == 0)
        param->weight[0] = 0;
    ok(runtime_step(rig.runtime, batch, 0, .05, 0, &result, &err), &err);
    assert_false(runtime_not_finite(rig.runtime));
    free(before);
    rig_clear(&rig);
}

static enum status infinite_sums(struct backend *be, int count, const int64_t *num,
                                 const float *const *values, double *sums, struct err *err)
{
    (void)be, (void)num, (void)values, (void)err;
    for (int i = 0; i < count; i++)
        sums[i] = INFINITY;
    return OK;
}

static void runtime_step__names_the_rank_whose_gradient_is_not_finite(void **state)
{
    struct rig rig;
    struct err err = {0};
    const struct batch *batch;
    struct step_result result;
    char want[128];
    (void)state;
    rig_init(&rig, &world, small_models[0], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_NEVER, 1.0);
    if (rig.groups.rank == 1)
        rig.backend->sumsq_many = infinite_sums;
    ok(loader_get(rig.loader, 0, 0, &batch, &err), &err);
    assert_int_equal(runtime_step(rig.runtime, batch, 0, .05, 0, &result, &err), ERR_INFEASIBLE);
    snprintf(want, sizeof want, "the gradient of '%s' is not finite (rank 1)",
             rig.job.model.items[rig.plan.first_item[1]].name);
    assert_string_equal(err.msg, want);
    rig_clear(&rig);
}

static void runtime_step__names_the_first_item_that_is_not_finite(void **state)
{
    static const struct {
        const char *tensor, *words;
    } cases[] = {
        {"vit.encoder.layer.1.attention.output.dense.weight", "first in 'attn1' (rank 0)"},
        {"vit.encoder.layer.3.output.dense.bias",             "first in 'mlp3' (rank 1)" },
        {"classifier.bias",                                   "first in 'head' (rank 1)" },
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct rig rig;
        struct err err = {0};
        const struct batch *batch;
        struct step_result result;
        rig_init(&rig, &world, small_models[0], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_NEVER, 1.0);
        const struct stage *mine = rig.stages[world.rank];
        for (int i = 0; i < stage_num_params(mine); i++) {
            const struct param *param = &stage_params(rig.stages[world.rank])[i];
            if (strcmp(param->name, cases[c].tensor) == 0)
                param->weight[0] = INFINITY;
        }
        ok(loader_get(rig.loader, 0, 0, &batch, &err), &err);
        assert_int_equal(runtime_step(rig.runtime, batch, 0, .05, 0, &result, &err),
                         ERR_INFEASIBLE);
        if (!strstr(err.msg, cases[c].words))
            fail_msg("'%s' lacks '%s'", err.msg, cases[c].words);
        rig_clear(&rig);
    }
}

static void runtime_times__are_ordered_and_cover_the_list(void **state)
{
    struct rig rig;
    struct err err = {0};
    const struct batch *batch;
    struct step_result result;
    (void)state;
    rig_init(&rig, &world, small_models[0], 2, 1, 4, SCHEDULE_1F1B, 1, RECOMPUTE_NEVER, 1.0);
    ok(loader_get(rig.loader, 0, 0, &batch, &err), &err);
    ok(runtime_step(rig.runtime, batch, 0, .05, world.rank, &result, &err), &err);
    assert_int_equal(result.vote, 1);
    const struct op_time *times = runtime_times(rig.runtime);
    for (int64_t i = 0; i < rig.full.ranks[rig.groups.rank].num_ops; i++) {
        assert_true(times[i].start_ns >= result.start_ns);
        assert_true(times[i].end_ns >= times[i].start_ns);
        assert_true(times[i].end_ns <= result.start_ns + result.step_ns);
        if (i > 0)
            assert_true(times[i].start_ns >= times[i - 1].end_ns);
    }
    rig_clear(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runtime_step__reports_the_norm_of_every_parameter),
        cmocka_unit_test(runtime_new__says_so_when_memory_ends_anywhere),
        cmocka_unit_test(runtime_step__knows_the_norm_with_and_without_clipping),
        cmocka_unit_test(runtime_step__clips_what_is_longer_than_the_limit),
        cmocka_unit_test(runtime_step__begins_adam_with_the_first_step),
        cmocka_unit_test(runtime_step__has_the_same_bits_at_k_1_and_k_2_under_every_schedule),
        cmocka_unit_test(runtime_step__has_the_same_bits_for_every_family),
        cmocka_unit_test(runtime_step__has_the_same_bits_with_recompute_and_without_clipping),
        cmocka_unit_test(runtime_step__agrees_with_one_replica_when_there_are_two),
        cmocka_unit_test(
            runtime_step__has_the_same_bits_when_buckets_are_summed_beside_the_backward),
        cmocka_unit_test(runtime_leave_out__has_the_same_bits_at_k_1_and_k_2),
        cmocka_unit_test(runtime_leave_out__has_the_same_bits_with_two_replicas),
        cmocka_unit_test(runtime_leave_out__sums_what_is_counted_and_divides_by_its_samples),
        cmocka_unit_test(runtime_leave_out__divides_every_sum_by_half_the_samples),
        cmocka_unit_test(runtime_leave_out__of_everything_changes_neither_weights_nor_state),
        cmocka_unit_test(runtime_times__of_a_bucket_begin_inside_the_last_backward),
        cmocka_unit_test(runtime_step__stops_before_the_weights_change_when_the_loss_is_not_finite),
        cmocka_unit_test(runtime_step__names_the_rank_whose_gradient_is_not_finite),
        cmocka_unit_test(runtime_step__names_the_first_item_that_is_not_finite),
        cmocka_unit_test(runtime_times__are_ordered_and_cover_the_list),
    };
    on_ranks_begin(&argc, &argv, 2, &world);
    return on_ranks_end(&world, cmocka_run_group_tests(tests, NULL, NULL));
}
