/* Whole runs: step counts, cache, transitions, against sums by hand. */
#include <stdio.h>

#include "sim/elastic_run.h"
#include "tests/sim_case.h"

/* Eight equal layers on 1x4 devices, constants per sample. */
static void make_job(struct job *job, int epochs)
{
    struct err err = {0};
    job_defaults(job);
    struct item items[8];
    for (int i = 0; i < 8; i++)
        items[i] = (struct item){.kind = ITEM_OPAQUE,
                                 .layer = i,
                                 .params = 1000,
                                 .act_bytes = 100,
                                 .fwd_ns = 1000,
                                 .bwd_input_ns = 1000,
                                 .bwd_weight_ns = 1000};
    model_clear(&job->model);
    assert_int_equal(model_explicit("eight", items, 8, NULL, 0, false, &job->model, &err), OK);
    cluster_clear(&job->cluster);
    assert_int_equal(cluster_grid(1, 4, &job->cluster, &err), OK);
    job->train.epochs = epochs;
    job->train.batch = 8;
    job->pipeline.num_stages = 4;
    job->pipeline.num_replicas = 1;
    job->pipeline.num_microbatches = 4;
    job->pipeline.schedule_auto = false;
    job->pipeline.schedule = SCHEDULE_GPIPE;
    job->cache.policy = CACHE_OFF;
}

static void run_job(const struct job *job, int64_t samples, struct elastic_run *run)
{
    struct cost cost;
    struct err err = {0};
    struct sim_options options = {.seed = 1};
    cost_constant(&cost);
    if (elastic_run(job, &cost, samples, 0, &options, run, &err) != OK)
        fail_msg("%s", err.msg);
}

static void elastic_run__counts_steps_and_the_last_partial_batch(void **state)
{
    (void)state;
    struct job job = {0};
    struct elastic_run run = {0};
    make_job(&job, 2);
    run_job(&job, 8 * 10 + 4, &run);
    assert_int_equal(run.num_epochs, 2);
    for (int e = 0; e < 2; e++) {
        assert_int_equal(run.epochs[e].steps, 11);
        assert_true(run.epochs[e].last_step_ns < run.epochs[e].step_ns);
        assert_int_equal(run.epochs[e].epoch_ns,
                         10 * run.epochs[e].step_ns + run.epochs[e].last_step_ns);
        assert_int_equal(run.epochs[e].transition_ns, 0);
    }
    assert_int_equal(run.total_ns, 2 * run.epochs[0].epoch_ns);
    assert_int_equal(run.steps_simulated, 2); /* identical epochs once */
    /* 2 layers a stage, 2 samples a micro-batch: (4 + 3) x 12 us, messages besides */
    assert_in_range(run.epochs[0].step_ns, 7 * 12000, 7 * 12000 + 6 * 5100);
    elastic_run_clear(&run);
    job_clear(&job);
}

/* R6: 20 test samples in micro-batches of 2 on 4 stages of 2 layers: 10 micro-batches of 4 us a
 * stage, three boundaries of 200 bytes. */
static void elastic_run__evaluates_beside_the_total(void **state)
{
    (void)state;
    struct job job = {0};
    struct cost cost;
    struct err err = {0};
    struct sim_options options = {.seed = 1};
    cost_constant(&cost);
    make_job(&job, 5);
    for (int every = 0; every < 3; every += 2) {
        struct elastic_run run = {0}, without = {0};
        job.train.eval_every_epochs = every;
        assert_int_equal(elastic_run(&job, &cost, 80, 20, &options, &run, &err), OK);
        run_job(&job, 80, &without);
        assert_int_equal(run.total_ns, without.total_ns);
        assert_int_equal(without.eval_ns, 0);
        int64_t once = 4 * 4000 + 3 * (5000 + 13) + 9 * 4000;
        for (int e = 0; e < 5; e++)
            assert_int_equal(run.epochs[e].eval_ns,
                             e == 4 || (every > 0 && e % every == 1) ? once : 0);
        assert_int_equal(run.eval_ns, every ? 3 * once : once);
        elastic_run_clear(&run);
        elastic_run_clear(&without);
    }
    job_clear(&job);
}

static void elastic_run__slow_devices_do_not_change_the_plan(void **state)
{
    (void)state;
    struct job job = {0};
    struct cost cost;
    struct err err = {0};
    struct cluster slowed = {0};
    struct sim_options options = {.seed = 1};
    struct elastic_run run = {0}, usual = {0};
    cost_constant(&cost);
    make_job(&job, 1);
    job.pipeline.num_stages = AUTO;
    run_job(&job, 80, &usual);
    assert_int_equal(cluster_copy(&job.cluster, &slowed, &err), OK);
    for (int d = 0; d < slowed.num_devices; d++)
        slowed.devices[d].speed = 0.5;
    options.slowed = &slowed;
    assert_int_equal(elastic_run(&job, &cost, 80, 0, &options, &run, &err), OK);
    assert_int_equal(run.epochs[0].pipeline_length, usual.epochs[0].pipeline_length);
    assert_true(run.total_ns > usual.total_ns * 3 / 2);
    elastic_run_clear(&run);
    elastic_run_clear(&usual);
    cluster_clear(&slowed);
    job_clear(&job);
}

static void elastic_run__refuses_a_run_longer_than_time(void **state)
{
    (void)state;
    struct job job = {0};
    struct cost cost;
    struct err err = {0};
    struct sim_options options = {.seed = 1};
    struct elastic_run run = {0};
    cost_constant(&cost);
    make_job(&job, 1);
    assert_int_equal(elastic_run(&job, &cost, INT64_MAX, 0, &options, &run, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "too long to simulate"));
    job_clear(&job);
}

static void set_table(struct job *job, const int *table, int n)
{
    job->freeze.policy = FREEZE_TABLE;
    job->freeze.table = malloc((size_t)n * sizeof *table);
    assert_non_null(job->freeze.table);
    memcpy(job->freeze.table, table, (size_t)n * sizeof *table);
    job->freeze.num_table = n;
}

static void elastic_run__frees_devices_for_replicas_only_with_auto_dp(void **state)
{
    (void)state;
    static const int table[3] = {0, 6, 6};
    for (int dp = 0; dp < 2; dp++) {
        struct job job = {0};
        struct elastic_run run = {0};
        make_job(&job, 3);
        set_table(&job, table, 3);
        job.elastic.auto_dp = dp;
        job.elastic.setup_ns = 1000000;
        run_job(&job, 800, &run);
        assert_int_equal(run.epochs[0].pipeline_length, 4);
        assert_int_equal(run.epochs[1].frozen_layers, 6);
        assert_int_equal(run.epochs[1].replicas == 1, !dp);
        bool changed = run.epochs[1].pipeline_length != 4 || run.epochs[1].replicas != 1;
        assert_int_equal(run.epochs[1].transition_ns >= 1000000, changed);
        assert_int_equal(run.epochs[2].transition_ns, 0);
        int64_t sum = 0;
        for (int e = 0; e < 3; e++)
            sum += run.epochs[e].epoch_ns + run.epochs[e].transition_ns;
        assert_int_equal(run.total_ns, sum);
        elastic_run_clear(&run);
        job_clear(&job);
    }
}

static void elastic_run__reads_the_cache_when_the_boundary_rests(void **state)
{
    (void)state;
    static const int table[5] = {0, 4, 4, 6, 6};
    struct job job = {0};
    struct elastic_run off = {0}, on = {0}, automatic = {0};
    make_job(&job, 5);
    set_table(&job, table, 5);
    for (int d = 0; d < 4; d++)
        job.cluster.devices[d].copy_bytes_per_s = 1e12;
    run_job(&job, 800, &off);
    job.cache.policy = CACHE_ON;
    run_job(&job, 800, &on);
    job.cache.policy = CACHE_AUTO;
    run_job(&job, 800, &automatic);
    static const int read[5] = {0, 0, 4, 4, 6};
    static const bool write[5] = {false, true, false, true, false};
    for (int e = 0; e < 5; e++) {
        assert_int_equal(on.epochs[e].cache_read, read[e]);
        assert_int_equal(on.epochs[e].cache_write, write[e]);
        assert_int_equal(off.epochs[e].cache_read, 0);
    }
    for (int e = 1; e < 5; e += 2) { /* an epoch that fills, then one that reads, on one plan */
        assert_int_equal(on.epochs[e].pipeline_length, on.epochs[e + 1].pipeline_length);
        assert_int_equal(on.epochs[e].replicas, on.epochs[e + 1].replicas);
        assert_true(on.epochs[e].cache_ns > 0);
        assert_int_equal(on.epochs[e].cache_ns, on.epochs[e].epoch_ns - on.epochs[e + 1].epoch_ns);
        assert_int_equal(on.epochs[e + 1].cache_ns, 0);
        assert_int_equal(on.epochs[e + 1].transition_ns, 0);
    }
    assert_true(on.epochs[2].step_ns < off.epochs[2].step_ns);
    assert_true(on.epochs[3].step_ns < off.epochs[3].step_ns); /* runs layers 4 and 5 only */
    assert_true(automatic.total_ns <= on.total_ns && automatic.total_ns <= off.total_ns);
    /* a cache that is dear is left alone */
    job.cache.read_ns = job.cache.write_ns = 1000000;
    elastic_run_clear(&automatic);
    run_job(&job, 800, &automatic);
    assert_int_equal(automatic.total_ns, off.total_ns);
    elastic_run_clear(&off);
    elastic_run_clear(&on);
    elastic_run_clear(&automatic);
    job_clear(&job);
}

static void elastic_run__follows_the_stages_of_the_job(void **state)
{
    (void)state;
    static const int table[4] = {0, 0, 4, 6}, stages[3] = {4, 2, 1};
    for (int dp = 0; dp < 2; dp++) {
        struct job job = {0};
        struct elastic_run run = {0};
        make_job(&job, 4);
        set_table(&job, table, 4);
        job.elastic.auto_dp = dp;
        job.elastic.stages = malloc(sizeof stages);
        assert_non_null(job.elastic.stages);
        memcpy(job.elastic.stages, stages, sizeof stages);
        job.elastic.num_stages = 3;
        run_job(&job, 800, &run);
        for (int e = 0; e < 4; e++) {
            int k = stages[e < 2 ? e : 2];
            assert_int_equal(run.epochs[e].pipeline_length, k);
            assert_int_equal(run.epochs[e].replicas, dp ? 4 / k : 1);
        }
        assert_int_equal(run.epochs[1].transition_ns,
                         run.epochs[1].move_ns + run.epochs[1].setup_ns);
        assert_true(run.epochs[1].move_ns > 0);
        elastic_run_clear(&run);
        job_clear(&job);
    }
}

static void elastic_run__freezes_by_recorded_norms(void **state)
{
    (void)state;
    /* layer 2, then layer 5 has the smallest norm; of the third epoch nothing is known */
    static const double norms[2][8] = {
        {5, 5, 1, 5, 5, 5, 5, 5},
        {5, 5, 5, 5, 5, 1, 5, 5}
    };
    struct job job = {0};
    struct elastic_run run = {0};
    make_job(&job, 4);
    job.freeze.policy = FREEZE_GRADIENT_NORM;
    job.freeze.alpha = 0.5;
    job.norms = malloc(sizeof norms);
    assert_non_null(job.norms);
    memcpy(job.norms, norms, sizeof norms);
    job.norm_epochs = 2;
    run_job(&job, 800, &run);
    static const int frozen[4] = {0, 2, 5, 7}; /* the last by the cap, half of what is active */
    for (int e = 0; e < 4; e++)
        assert_int_equal(run.epochs[e].frozen_layers, frozen[e]);
    elastic_run_clear(&run);
    job_clear(&job);
}

static void elastic_run__refuses_decisions_within_an_epoch(void **state)
{
    (void)state;
    static const int table[2] = {0, 4};
    struct job job = {0};
    struct elastic_run run = {0};
    struct err err = {0};
    struct cost cost;
    struct sim_options options = {.seed = 1};
    make_job(&job, 2);
    set_table(&job, table, 2);
    job.freeze.every_steps = 3;
    cost_constant(&cost);
    assert_int_equal(elastic_run(&job, &cost, 80, 0, &options, &run, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "freeze.every_steps"));
    job_clear(&job);
}

static void elastic_run__refuses_a_run_without_samples(void **state)
{
    (void)state;
    struct job job = {0};
    struct elastic_run run = {0};
    struct err err = {0};
    struct cost cost;
    struct sim_options options = {.seed = 1};
    make_job(&job, 1);
    cost_constant(&cost);
    assert_int_equal(elastic_run(&job, &cost, 0, 0, &options, &run, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "data.train_samples"));
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elastic_run__counts_steps_and_the_last_partial_batch),
        cmocka_unit_test(elastic_run__evaluates_beside_the_total),
        cmocka_unit_test(elastic_run__slow_devices_do_not_change_the_plan),
        cmocka_unit_test(elastic_run__refuses_a_run_longer_than_time),
        cmocka_unit_test(elastic_run__frees_devices_for_replicas_only_with_auto_dp),
        cmocka_unit_test(elastic_run__reads_the_cache_when_the_boundary_rests),
        cmocka_unit_test(elastic_run__follows_the_stages_of_the_job),
        cmocka_unit_test(elastic_run__freezes_by_recorded_norms),
        cmocka_unit_test(elastic_run__refuses_decisions_within_an_epoch),
        cmocka_unit_test(elastic_run__refuses_a_run_without_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
