/* Layouts of plans. ranks: 4
 *
 * Judge: who runs what, counted slowly from the plan. */
#include "exec/trainer/deployment.h"

#include "exec/device/backend_count.h"
#include "exec/stage/arch.h"
#include "partition/step/pool_memory.h"
#include "tests/unit/deployment_case.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/test.h"

static struct case_base c;

struct shape {
    int k, r, num_frozen, first;
    enum frozen_placement frozen;
};
static const struct shape shapes[] = {
    {4, 1, 0, 0, FROZEN_NONE  },
    {2, 2, 0, 1, FROZEN_NONE  },
    {1, 4, 2, 0, FROZEN_FIRST },
    {2, 1, 1, 2, FROZEN_CACHED},
    {3, 1, 3, 0, FROZEN_SPREAD},
    {1, 1, 4, 3, FROZEN_CACHED},
    {2, 2, 4, 0, FROZEN_CACHED},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

static struct train_plan plan_of(const struct shape *s)
{
    return case_plan(&c, s->k, s->r, s->num_frozen, s->frozen, s->first);
}

static void deployment_stages__gives_each_rank_what_it_runs(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SHAPES; i++) {
        struct deployment deployment = {0};
        case_deployment(&c, plan_of(&shapes[i]), &deployment);
        const struct plan *plan = &deployment.plan.plan;
        bool any = false;
        for (int item = 0; item < c.job.model.num_items; item++) {
            const bool runs = case_runs(plan, c.comm.rank, item);
            int holds = 0;
            for (int s = 0; s <= plan->num_stages; s++) {
                struct stage *stage = deployment.stages[s];
                bool here = false;
                for (int p = 0; stage && p < stage_num_params(stage); p++) {
                    const struct param *param = &stage_params(stage)[p];
                    if (param->item != item || param->tied_copy)
                        continue;
                    const bool frozen =
                        item < model_frozen_items(&c.job.model, plan->num_frozen_layers);
                    assert_int_equal(param->grad != NULL, !frozen);
                    assert_int_equal(param->state[0] != NULL, !frozen);
                    assert_null(param->state[1]); /* momentum */
                    here = true;
                }
                holds += here;
                assert_int_equal(stage != NULL,
                                 s < plan->num_stages
                                     ? deployment_has(&deployment, s)
                                     : deployment_has(&deployment, 0) && plan->first_item[0] > 0);
            }
            assert_int_equal(holds, runs);
            any |= runs;
        }
        assert_int_equal(deployment_idle(&deployment), !any);
        assert_int_equal(deployment_bytes(&deployment) > 0, any);
        const struct stage_list list = deployment_list(&c.base, &deployment);
        assert_int_equal(list.num_stages, plan->num_stages + (plan->first_item[0] > 0));
        deployment_clear(&deployment);
        deployment_clear(&deployment); /* safe twice */
        assert_int_equal(comm_barrier(c.comm.all, NULL), OK);
    }
}

static void deployment_place__groups_pipelines_and_replicas(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SHAPES; i++) {
        struct deployment deployment = {0};
        struct train_plan plan = plan_of(&shapes[i]);
        struct err err = {0};
        case_ok(deployment_place(&c.base, &plan, &deployment, &err), &err);
        assert_null(plan.full); /* taken over */
        const struct plan *p = &deployment.plan.plan;
        int place = -1;
        for (int d = 0; d < p->num_ranks * p->num_pipelines; d++)
            place = p->device[d] == c.comm.rank ? d : place;
        assert_int_equal(deployment.place.rank, place < 0 ? -1 : place % p->num_ranks);
        assert_int_equal(deployment.place.replica, place < 0 ? -1 : place / p->num_ranks);
        if (place >= 0) { /* sums say who is in a group */
            double sums[3] = {1, 1, 1};
            assert_int_equal(comm_sum_f64(deployment.place.active, &sums[0], 1, NULL), OK);
            assert_int_equal(comm_sum_f64(deployment.place.pipeline, &sums[1], 1, NULL), OK);
            assert_int_equal(comm_sum_f64(deployment.place.replicas, &sums[2], 1, NULL), OK);
            assert_int_equal((int)sums[0], p->num_ranks * p->num_pipelines);
            assert_int_equal((int)sums[1], p->num_ranks);
            assert_int_equal((int)sums[2], p->num_pipelines);
        }
        deployment_clear(&deployment);
        assert_int_equal(comm_barrier(c.comm.all, NULL), OK);
    }
}

static void deployment_batches__go_on_where_the_run_stands(void **state)
{
    (void)state;
    struct deployment deployment = {0};
    struct err err = {0};
    case_deployment(&c, plan_of(&shapes[1]),
                    &deployment); /* 2 replicas of 4: 8 a step, 50 samples */
    case_ok(deployment_batches(&c.base, 16, &deployment, &err), &err);
    struct sampler *sampler = &deployment.samplers[SPLIT_TRAIN];
    assert_int_equal(sampler->origin, 0); /* step 2 begins there anyway */
    case_ok(deployment_epoch(&c.base, &deployment, &err), &err);
    assert_int_equal(sampler_steps_per_epoch(sampler), 7);
    for (int split = 0; split < SPLIT_COUNT; split++) {
        loader_free(deployment.loaders[split]);
        deployment.loaders[split] = NULL;
    }
    case_ok(deployment_batches(&c.base, 20, &deployment, &err), &err);
    assert_int_equal(sampler->origin, 20);
    assert_int_equal(sampler_steps_per_epoch(sampler), 4);
    assert_int_equal(deployment.samplers[SPLIT_TEST].origin, 0);
    if (!deployment_idle(&deployment)) {
        const struct batch *batch;
        case_ok(loader_get(deployment.loaders[SPLIT_TRAIN], 0, 3, &batch, &err), &err);
        assert_int_equal(batch->num_samples, 6); /* 20 + 3 * 8 = 44 */
        case_ok(deployment_epoch(&c.base, &deployment, &err), &err);
        case_ok(loader_get(deployment.loaders[SPLIT_TRAIN], 1, 0, &batch, &err), &err);
        for (int m = 0; m < batch->num_blocks; m++)
            for (int64_t i = 0; i < batch->blocks[m].num_samples; i++) {
                int64_t first;
                sampler_microbatch(sampler, 0, deployment.place.replica, m, &first);
                assert_int_equal(batch->blocks[m].ids[i], sampler_id(sampler, 1, first + i));
                assert_true(first + i < 8);
            }
    }
    deployment_clear(&deployment);
}

static void deployment_batches__refuse_more_replicas_than_samples(void **state)
{
    (void)state;
    struct deployment deployment = {0};
    struct err err = {0};
    struct train_plan plan = case_plan(&c, 1, 4, 0, FROZEN_NONE, 0);
    plan.plan.batch = 13; /* times 4 exceeds 50 */
    case_deployment(&c, plan, &deployment);
    assert_int_equal(deployment_batches(&c.base, 0, &deployment, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "13 samples times 4 replicas exceeds the 50"));
    deployment_clear(&deployment);
}

/* The table has every function that making stages and a runtime may call, also those that it gets in
 * future: all from the first to round() but those that a backend may lack. */
static void backend_count__has_all_but_kernels_and_what_may_lack(void **state)
{
    static const size_t may_lack[] = {offsetof(struct backend, range_push),
                                      offsetof(struct backend, range_pop),
                                      offsetof(struct backend, choices),
                                      offsetof(struct backend, choose),
                                      offsetof(struct backend, measure_row_position),
                                      offsetof(struct backend, hold),
                                      offsetof(struct backend, release)};
    struct backend *be;
    struct err err = {0};
    (void)state;
    case_ok(backend_count_new(c.base.backend, &be, &err), &err);
    assert_false(be->host_memory);
    for (size_t at = offsetof(struct backend, free_backend); at <= offsetof(struct backend, round);
         at += sizeof be->round) {
        bool lacks = false;
        for (size_t i = 0; i < sizeof may_lack / sizeof *may_lack; i++)
            lacks |= at == may_lack[i];
        void (*function)(void);
        memcpy(&function, (const char *)be + at, sizeof function);
        if (!lacks && !function)
            fail_msg("function %zu of the table is NULL",
                     (at - offsetof(struct backend, free_backend)) / sizeof function);
    }
    backend_free(be);
}

/* The stages of a deployment on a backend that only counts. */
static void open_counted(const struct shape *shape, struct deployment_base *counted,
                         struct deployment *deployment)
{
    struct train_plan plan = plan_of(shape);
    struct err err = {0};
    *counted = c.base;
    case_ok(backend_count_new(c.base.backend, &counted->backend, &err), &err);
    case_ok(deployment_place(counted, &plan, deployment, &err), &err);
    case_ok(deployment_stages(counted, deployment, &err), &err);
}

static void close_counted(struct deployment_base *counted, struct deployment *deployment)
{
    deployment_clear(deployment);
    backend_free(counted->backend);
    assert_int_equal(comm_barrier(c.comm.all, NULL), OK);
}

/* A deployment made on it whole, and freed; what it counted is no more than stages and runtime say they
 * hold. */
static void backend_count__makes_whole_deployments(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SHAPES; i++) {
        struct deployment deployment;
        struct deployment_base counted;
        struct err err = {0};
        open_counted(&shapes[i], &counted, &deployment);
        case_ok(deployment_runtime(&counted, &deployment, &err), &err);
        int64_t num, total = 0;
        const int64_t *pieces = backend_count_pieces(counted.backend, &num);
        for (int64_t k = 0; k < num; k++)
            total += pieces[k];
        assert_int_equal(total > 0, !deployment_idle(&deployment));
        assert_true(total <= deployment_bytes(&deployment) || deployment_idle(&deployment));
        close_counted(&counted, &deployment);
    }
}

/* The memory that a plan is said to hold (partition/step/pool_memory.h) is what its deployment announces to a
 * device, but for the padding of weights and sums, less than 16 bytes a piece here. */
static void foresee_deployments(void)
{
    for (int i = 0; i < NUM_SHAPES; i++) {
        struct deployment deployment;
        struct deployment_base counted;
        struct err err = {0};
        int64_t stash[64] = {0}, foreseen[4], num = 0;
        open_counted(&shapes[i], &counted, &deployment);
        backend_count_pieces(counted.backend, &num);
        struct arch arch;
        const int64_t n = deployment.plan.plan.microbatches.size;
        case_ok(arch_init(&c.job.model, &arch, &err), &err);
        for (int item = 0; item < c.job.model.num_items; item++) {
            int64_t bytes[MAX_STASH], out;
            arch_stash(&c.job.model, &arch, item, n, 4, true, bytes, &out);
            for (int b = 0; b < MAX_STASH; b++)
                stash[item] += (bytes[b] + 63) / 64 * 64 / n;
        }
        case_ok(pool_memory(&c.job.model, deployment.plan.full, deployment.plan.workload,
                            &deployment.plan.plan, stash, true, foreseen, &err),
                &err);
        if (!deployment_idle(&deployment)) {
            const int64_t padding = deployment_bytes(&deployment) - foreseen[deployment.place.rank];
            assert_in_range(padding, 0, 16 * num);
        }
        close_counted(&counted, &deployment);
    }
}

static void pool_memory__is_what_a_deployment_announces_to_a_device(void **state)
{
    static const enum model_family families[] = {FAMILY_LLAMA, FAMILY_VIT};
    (void)state;
    for (int f = 0; f < 2; f++) {
        case_close(&c);
        case_open(&c, families[f]);
        foresee_deployments();
    }
}

/* The stage with the embedding reads the images; with a cached prefix it seldom does. */
static void deployment_stages__uploads_images_where_they_are_read(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SHAPES; i++) {
        struct deployment deployment;
        struct deployment_base counted;
        open_counted(&shapes[i], &counted, &deployment);
        int uploading = 0;
        for (int s = 0; s <= deployment.plan.plan.num_stages; s++) {
            const bool reads =
                deployment.stages[s] && stage_params(deployment.stages[s])[0].item == 0;
            if (!deployment.stages[s])
                continue;
            assert_int_equal(stage_uploads(deployment.stages[s]),
                             reads && shapes[i].frozen != FROZEN_CACHED);
            uploading += stage_uploads(deployment.stages[s]);
        }
        assert_int_equal(uploading, case_runs(&deployment.plan.plan, c.comm.rank, 0) &&
                                        shapes[i].frozen != FROZEN_CACHED);
        close_counted(&counted, &deployment);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deployment_stages__gives_each_rank_what_it_runs),
        cmocka_unit_test(deployment_place__groups_pipelines_and_replicas),
        cmocka_unit_test(deployment_batches__go_on_where_the_run_stands),
        cmocka_unit_test(deployment_batches__refuse_more_replicas_than_samples),
        cmocka_unit_test(backend_count__has_all_but_kernels_and_what_may_lack),
        cmocka_unit_test(backend_count__makes_whole_deployments),
        cmocka_unit_test(pool_memory__is_what_a_deployment_announces_to_a_device),
        cmocka_unit_test(deployment_stages__uploads_images_where_they_are_read),
    };
    on_ranks_begin(&argc, &argv, 4, &c.comm);
    case_open(&c, FAMILY_VIT);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    case_close(&c);
    return on_ranks_end(&c.comm, failed);
}
