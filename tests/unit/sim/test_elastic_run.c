/* Whole runs: step counts, cache, transitions, against sums by hand. */
#include "partition/search/plan_for.h"
#include "partition/search/turn.h"
#include "sim/run/elastic_run.h"
#include "tests/unit/sim_case.h"
#include "tests/unit/test.h"

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

/* Two pipelines of 8 samples in micro-batches of 2, as exec/data/sampler.h deals them out: of what
 * is left the first takes all that it can. Four layers a stage, no messages: rounds of 24 us. */
static void elastic_run__gives_the_last_samples_to_the_first_replicas(void **state)
{
    (void)state;
    for (int left = 2; left < 16; left += 2) {
        struct job job = {0};
        struct elastic_run run = {0};
        make_job(&job, 1);
        for (int i = 0; i < 8; i++)
            job.model.items[i].params = job.model.items[i].act_bytes = 0;
        job.cluster.link_latency_ns = 0;
        job.pipeline.num_stages = job.pipeline.num_replicas = 2;
        run_job(&job, 160 + left, &run);
        assert_int_equal(run.epochs[0].steps, 11);
        assert_int_equal(run.epochs[0].step_ns, (4 + 1) * 24000);
        assert_int_equal(run.epochs[0].last_step_ns, ((left < 8 ? left / 2 : 4) + 1) * 24000);
        elastic_run_clear(&run);
        job_clear(&job);
    }
}

/* 20 test samples in steps of 8, in micro-batches of 2, on 4 stages of 2 layers. Three steps take
 * the time of a first micro-batch through four stages of 4 us and three boundaries of 200 bytes.
 * The 7 other micro-batches take the time of the slowest device. */
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
        int64_t once = 3 * (4 * 4000 + 3 * (5000 + 13)) + 7 * 4000;
        for (int e = 0; e < 5; e++)
            assert_int_equal(run.epochs[e].eval_ns,
                             e == 4 || (every > 0 && e % every == 1) ? once : 0);
        assert_int_equal(run.eval_ns, every ? 3 * once : once);
        elastic_run_clear(&run);
        elastic_run_clear(&without);
    }
    /* Steps that end the run: after the second epoch of ten, or in the middle of the third. */
    for (int steps = 20; steps <= 25; steps += 5) {
        struct elastic_run run = {0};
        job.train.max_steps = steps;
        assert_int_equal(elastic_run(&job, &cost, 80, 20, &options, &run, &err), OK);
        assert_int_equal(run.num_epochs, steps == 20 ? 2 : 3);
        assert_int_equal(run.epochs[0].eval_ns, 0);
        for (int e = 1; e < run.num_epochs; e++)
            assert_int_equal(run.epochs[e].eval_ns, 3 * (4 * 4000 + 3 * (5000 + 13)) + 7 * 4000);
        elastic_run_clear(&run);
    }
    job_clear(&job);
}

/* Constants that were measured for some sizes of micro-batch and some passes only. */
struct measured {
    struct cost base;
    int64_t unknown; /* samples at which nothing was measured; 0: all was */
    int before_item; /* of these items only the forward at that size */
};

static enum status measured_item_ns(const void *ctx, const struct model *model, int item,
                                    enum pass pass, int64_t samples, const struct device *device,
                                    int64_t *ns, bool *extrapolated, struct err *err)
{
    const struct measured *measured = ctx;
    if (pass != PASS_UPDATE && samples == measured->unknown &&
        (measured->before_item == 0 || (item < measured->before_item && pass == PASS_FWD_NOGRAD)))
        *extrapolated = true;
    return measured->base.item_ns(measured->base.ctx, model, item, pass, samples, device, ns,
                                  extrapolated, err);
}

static bool run_extrapolates(const struct job *job, int64_t samples, int64_t tests, int64_t unknown,
                             int before_item)
{
    struct measured measured = {.unknown = unknown, .before_item = before_item};
    struct cost cost;
    struct elastic_run run = {0};
    struct err err = {0};
    struct sim_options options = {.seed = 1};
    cost_constant(&measured.base);
    cost = measured.base;
    cost.item_ns = measured_item_ns;
    cost.ctx = &measured;
    if (elastic_run(job, &cost, samples, tests, &options, &run, &err) != OK)
        fail_msg("%s", err.msg);
    const bool extrapolated = run.extrapolated;
    elastic_run_clear(&run);
    return extrapolated;
}

/* Batches of 8 are micro-batches of 2; the last of 83 samples is a micro-batch of 1. A prefix of
 * two frozen layers runs ahead over all 8, and in the evaluation in micro-batches of 2. */
static void elastic_run__says_whose_costs_were_not_measured(void **state)
{
    int table[] = {2};
    struct job job = {0};
    (void)state;
    make_job(&job, 2);
    assert_false(run_extrapolates(&job, 83, 20, 0, 0));
    assert_false(run_extrapolates(&job, 83, 20, 3, 0));
    assert_true(run_extrapolates(&job, 83, 0, 2, 0));  /* a full step */
    assert_true(run_extrapolates(&job, 83, 0, 1, 0));  /* the last step */
    assert_false(run_extrapolates(&job, 80, 0, 1, 0)); /* there is none of the kind */
    job.freeze.policy = FREEZE_TABLE;
    job.freeze.table = table;
    job.freeze.num_table = 1;
    job.pipeline.frozen_auto = false;
    job.pipeline.frozen = FROZEN_FIRST;
    assert_true(run_extrapolates(&job, 80, 0, 8, 2));
    assert_false(run_extrapolates(&job, 80, 0, 2, 2));
    assert_true(run_extrapolates(&job, 80, 20, 2, 2)); /* the evaluation */
    job.freeze.table = NULL;
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

/* Steps of a plan with F frozen layers, from a run of its own. */
static struct elastic_epoch epoch_of(const struct job *like, int num_frozen, int64_t samples)
{
    struct job job = *like;
    struct elastic_run run = {0};
    job.freeze = (struct freeze_spec){.policy = FREEZE_TABLE, .table = &num_frozen, .num_table = 1};
    job.train.epochs = 1;
    job.train.max_steps = 0;
    run_job(&job, samples, &run);
    struct elastic_epoch epoch = run.epochs[0];
    elastic_run_clear(&run);
    return epoch;
}

/* Sample by sample: each step takes what the plan of its turn takes, the last of an epoch what is
 * left; R, and with it the global batch, may change in mid-epoch. The job ends after `most` steps,
 * 0: with its epochs. Returns how many epochs froze more. */
static int check_parts(int every, bool dp, int64_t most)
{
    static const int table[8] = {0, 0, 2, 4, 4, 6, 7, 7};
    enum { EPOCHS = 3, SAMPLES = 8 * 10 + 4 };
    struct job job = {0};
    struct elastic_run run = {0};
    int changes = 0, e = 0;
    int64_t step = 0, total = 0, samples = 0;
    struct elastic_epoch now = {0};
    make_job(&job, EPOCHS);
    job.pipeline.num_stages = job.pipeline.num_replicas = AUTO;
    job.elastic.auto_dp = dp;
    if (!dp)
        job.pipeline.num_replicas = 1;
    set_table(&job, table, 8);
    job.freeze.every_steps = every;
    job.train.max_steps = most;
    run_job(&job, SAMPLES, &run);
    for (; e < EPOCHS && (most == 0 || step < most); e++) {
        int64_t ns = 0, steps = 0, at = 0;
        int before = now.frozen_layers, frozen = before;
        for (; at < SAMPLES && (most == 0 || step < most); steps++) {
            if (step % every == 0) {
                frozen = table[step / every < 7 ? step / every : 7];
                now = epoch_of(&job, frozen, SAMPLES);
            }
            const int64_t global = 8 * now.replicas;
            const int64_t rest = SAMPLES - at < global ? SAMPLES - at : global;
            /* the first replica has as many of them as it can take */
            ns += rest >= 8 ? now.step_ns : epoch_of(&job, frozen, rest).last_step_ns;
            at += rest;
            step++;
        }
        assert_true(e < run.num_epochs);
        const struct elastic_epoch *got = &run.epochs[e];
        assert_int_equal(got->frozen_layers, frozen);
        assert_int_equal(got->pipeline_length, now.pipeline_length);
        assert_int_equal(got->replicas, now.replicas);
        assert_int_equal(got->steps, steps);
        assert_int_equal(got->samples, at);
        assert_true(got->samples_per_s == (double)at * 1e9 / (double)ns);
        assert_int_equal(got->epoch_ns, ns);
        assert_int_equal(got->cache_ns, 0);
        assert_int_equal(got->transition_ns, got->move_ns + got->setup_ns);
        total += ns + got->transition_ns;
        samples += at;
        changes += frozen > before;
    }
    assert_int_equal(run.num_epochs, e);
    assert_int_equal(run.total_ns, total);
    assert_int_equal(run.samples, samples);
    assert_int_equal(run.stopped, samples < EPOCHS * SAMPLES);
    elastic_run_clear(&run);
    job_clear(&job);
    return changes;
}

static void elastic_run__parts_epochs_at_decisions(void **state)
{
    (void)state;
    int changes = 0;
    for (int every = 1; every <= 12; every++)
        for (int dp = 0; dp < 2; dp++)
            changes += check_parts(every, dp, 0);
    assert_true(changes > 24);
}

/* Without replicas an epoch has 11 steps. */
static void elastic_run__ends_after_the_steps_that_the_job_says(void **state)
{
    (void)state;
    static const int64_t most[] = {1, 7, 10, 11, 12, 22, 32, 33, 34, INT64_MAX};
    for (int every = 1; every <= 11; every += 5)
        for (int dp = 0; dp < 2; dp++)
            for (size_t i = 0; i < sizeof most / sizeof most[0]; i++)
                check_parts(every, dp, most[i]);
}

/* If runs end after equally many steps, the one with more replicas has seen more. */
static void elastic_speedup__goes_by_the_sample_when_a_run_was_stopped(void **state)
{
    (void)state;
    const struct elastic_run run = {.total_ns = 100, .samples = 40, .stopped = true},
                             twice = {.total_ns = 300, .samples = 80, .stopped = true},
                             all = {.total_ns = 100, .samples = 80},
                             more = {.total_ns = 400, .samples = 160}, none = {0};
    assert_true(elastic_speedup(&run, &twice) == 1.5);
    assert_true(elastic_speedup(&all, &run) == 2);
    assert_true(elastic_speedup(&run, &all) == 0.5);
    assert_true(elastic_speedup(&all, &more) == 4);
    assert_true(elastic_speedup(&none, &all) == 0);
    assert_true(elastic_speedup(&all, &none) == 0);
}

/* The cache is filled by the second half of an epoch: of the next one's micro-batches of n samples
 * 1 in 2^n finds all of its samples, the others are computed; then all are read. */
static void elastic_run__meets_a_half_full_cache(void **state)
{
    (void)state;
    static const int table[2] = {0, 4};
    enum { SAMPLES = 1024, HALF = 64 };
    struct job job = {0};
    struct elastic_run plain = {0}, parted = {0};
    make_job(&job, 4);
    job.cache.policy = CACHE_ON;
    set_table(&job, table, 2);
    run_job(&job, SAMPLES, &plain); /* 0, then 4 that fills, then 4 that reads */
    const int replicas = plain.epochs[1].replicas;
    job.freeze.every_steps = HALF;
    run_job(&job, SAMPLES, &parted);
    const struct elastic_epoch *fills = &plain.epochs[1], *reads = &plain.epochs[2];
    assert_true(reads->step_ns < fills->step_ns);
    assert_int_equal(parted.epochs[0].steps, HALF + HALF / replicas);
    assert_int_equal(parted.epochs[0].epoch_ns,
                     HALF * plain.epochs[0].step_ns + HALF / replicas * fills->step_ns);
    assert_int_equal(parted.epochs[0].cache_ns,
                     HALF / replicas * (fills->step_ns - reads->step_ns));
    const double found = pow(.5, (double)reads->microbatch_size);
    assert_true(found > 0 && found < 1);
    const double mean = found * (double)reads->step_ns + (1 - found) * (double)fills->step_ns;
    assert_true(fabs((double)parted.epochs[1].step_ns - mean) <= 1);
    assert_true(parted.epochs[1].cache_write);
    assert_int_equal(parted.epochs[2].epoch_ns, reads->epoch_ns);
    assert_int_equal(parted.epochs[2].cache_read, 4);
    assert_false(parted.epochs[2].cache_write);
    elastic_run_clear(&plain);
    elastic_run_clear(&parted);
    job_clear(&job);
}

/* Four stages on two ranks, one after the other in turn, then in a V: half of them change ranks. */
static void elastic_run__moves_weights_when_only_their_ranks_change(void **state)
{
    (void)state;
    static const int64_t us[4][3] = {
        {7,  9, 11},
        {4,  8, 16},
        {12, 6, 12},
        {5,  8, 9 }
    };
    static const int table[2] = {1, 2};
    struct job job = {0};
    struct elastic_run run = {0};
    make_job(&job, 2);
    struct item items[4];
    for (int i = 0; i < 4; i++)
        items[i] = (struct item){.kind = ITEM_OPAQUE,
                                 .layer = i,
                                 .params = 1000,
                                 .act_bytes = 1000,
                                 .fwd_ns = 1000 * us[i][0],
                                 .bwd_input_ns = 1000 * us[i][1],
                                 .bwd_weight_ns = 1000 * us[i][2]};
    model_clear(&job.model);
    assert_int_equal(model_explicit("four", items, 4, NULL, 0, false, &job.model, NULL), OK);
    cluster_clear(&job.cluster);
    assert_int_equal(cluster_grid(1, 2, &job.cluster, NULL), OK);
    job.pipeline.num_stages = 2;
    job.pipeline.num_microbatches = 8;
    job.pipeline.schedule_auto = true;
    job.pipeline.frozen_auto = false;
    job.pipeline.frozen = FROZEN_SPREAD;
    job.elastic.auto_pipe = job.elastic.auto_dp = false;
    set_table(&job, table, 2);
    run_job(&job, 80, &run);
    assert_int_equal(run.epochs[0].schedule, SCHEDULE_INTERLEAVED);
    assert_int_equal(run.epochs[1].schedule, SCHEDULE_ZB_V);
    /* Devices trade places, so that the two items that are frozen move, which have no momentum. */
    assert_int_equal(run.epochs[1].moved_bytes, 2 * 4 * 1000);
    elastic_run_clear(&run);
    job_clear(&job);
}

/* The calls of the trainer (exec/change/elastic.c), one after the other. */
static void elastic_run__takes_the_plans_that_the_trainer_takes(void **state)
{
    (void)state;
    static const double norms[4][8] = {
        {5, 5, 1, 5, 5, 5, 5, 5},
        {5, 5, 5, 5, 1, 5, 5, 5},
        {5, 5, 5, 5, 1, 5, 5, 5},
        {5, 5, 5, 5, 5, 5, 1, 5}
    };
    int cached = 0, changes = 0;
    for (int policy = CACHE_OFF; policy <= CACHE_AUTO; policy++)
        for (int64_t read_ns = 1; read_ns < 100000; read_ns *= 10)
            for (int room = 0; room < 2; room++) {
                struct job job = {0};
                struct elastic_run run = {0};
                struct freeze freeze = {0};
                struct plan plan = {0};
                struct cost cost;
                struct err err = {0};
                cost_constant(&cost);
                make_job(&job, 6);
                for (int d = 0; d < 4; d++)
                    job.cluster.devices[d].copy_bytes_per_s = 1e12;
                job.pipeline.num_stages = job.pipeline.num_replicas = AUTO;
                job.cache.policy = (enum cache_policy)policy;
                job.cache.read_ns = read_ns;
                job.cache.limit_bytes = room * 700 * 100; /* 0: for all; of 800 samples */
                job.freeze.policy = FREEZE_GRADIENT_NORM;
                job.freeze.alpha = 0.5;
                job.norms = malloc(sizeof norms);
                assert_non_null(job.norms);
                memcpy(job.norms, norms, sizeof norms);
                job.norm_epochs = 4;
                run_job(&job, 800, &run);
                assert_int_equal(freeze_init(&freeze, &job.freeze, 8, &err), OK);
                for (int e = 0; e < 6; e++) {
                    int frozen = -1;
                    char reason[160];
                    assert_int_equal(
                        turn_decide(&freeze,
                                    &(struct turn_facts){.norms = &norms[0][0], .num_norms = 4}, e,
                                    &frozen, reason, &err),
                        OK);
                    if (e == 0 || turn_changes(&job, e, frozen, &plan)) {
                        const struct run_state ask = {.turn = e,
                                                      .epoch = e,
                                                      .num_frozen_layers = frozen,
                                                      .num_samples = 800,
                                                      .cache_room = policy == CACHE_OFF ? 0
                                                                    : room              ? 700 / 800.
                                                                                        : 1,
                                                      .cache_whole = true,
                                                      .old = e > 0 ? &plan : NULL};
                        const struct cost own = turn_cost(&job, &cost);
                        const struct setting setting = {&job.model, &job.cluster, &own};
                        struct planner_result next = {0};
                        assert_int_equal(plan_for(&job, &setting, &ask, NULL, &next, &err), OK);
                        plan_clear(&plan);
                        plan = next.plan;
                        next.plan = (struct plan){0};
                        planner_result_clear(&next);
                        changes += e > 0;
                    }
                    const struct elastic_epoch *got = &run.epochs[e];
                    assert_int_equal(got->frozen_layers, frozen);
                    assert_int_equal(got->pipeline_length, plan.num_ranks);
                    assert_int_equal(got->replicas, plan.num_pipelines);
                    assert_int_equal(got->microbatches, plan.microbatches.count);
                    assert_int_equal(got->frozen, plan.frozen);
                    assert_string_equal(got->reason, reason);
                    cached += plan.frozen == FROZEN_CACHED;
                }
                freeze_clear(&freeze);
                plan_clear(&plan);
                elastic_run_clear(&run);
                job_clear(&job);
            }
    assert_true(changes > 0 && cached > 0 && cached < changes * 3);
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
    job.train.epochs = 0;
    err = (struct err){0};
    assert_int_equal(elastic_run(&job, &cost, 8, 0, &options, &run, &err), ERR_INFEASIBLE);
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elastic_run__counts_steps_and_the_last_partial_batch),
        cmocka_unit_test(elastic_run__gives_the_last_samples_to_the_first_replicas),
        cmocka_unit_test(elastic_run__evaluates_beside_the_total),
        cmocka_unit_test(elastic_run__says_whose_costs_were_not_measured),
        cmocka_unit_test(elastic_run__slow_devices_do_not_change_the_plan),
        cmocka_unit_test(elastic_run__refuses_a_run_longer_than_time),
        cmocka_unit_test(elastic_run__frees_devices_for_replicas_only_with_auto_dp),
        cmocka_unit_test(elastic_run__reads_the_cache_when_the_boundary_rests),
        cmocka_unit_test(elastic_run__follows_the_stages_of_the_job),
        cmocka_unit_test(elastic_run__freezes_by_recorded_norms),
        cmocka_unit_test(elastic_run__parts_epochs_at_decisions),
        cmocka_unit_test(elastic_run__ends_after_the_steps_that_the_job_says),
        cmocka_unit_test(elastic_speedup__goes_by_the_sample_when_a_run_was_stopped),
        cmocka_unit_test(elastic_run__meets_a_half_full_cache),
        cmocka_unit_test(elastic_run__moves_weights_when_only_their_ranks_change),
        cmocka_unit_test(elastic_run__takes_the_plans_that_the_trainer_takes),
        cmocka_unit_test(elastic_run__refuses_a_run_without_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
