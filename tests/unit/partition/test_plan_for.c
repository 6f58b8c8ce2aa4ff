/* Plans for a state of a run: against every K and M tried by hand, and when memory ends. */
#include "partition/search/plan_for.h"

#include "partition/search/turn.h"
#include "partition/step/lower.h"
#include "partition/step/schedule_memory.h"
#include "partition/step/schedule_time.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/six_case.h"
#include "tests/unit/test.h"

enum { SAMPLES = 480 };

static enum status make_plan(const struct job *job, const struct cost *cost,
                             const struct run_state *at, struct plan *plan, struct err *err)
{
    const struct cost own = turn_cost(job, cost);
    const struct setting setting = {&job->model, &job->cluster, &own};
    struct planner_result result = {0};
    const enum status rc = plan_for(job, &setting, at, NULL, &result, err);
    *plan = result.plan;
    result.plan = (struct plan){0};
    planner_result_clear(&result);
    return rc;
}

/* The planner's best of a K and R; of a cache that is full only plans with M micro-batches of the
 * global batch. ns a sample, INFINITY: none. */
static double best_of(const struct job *job, const struct cost *cost, int frozen, int k, int r,
                      int m, struct planner_result *result)
{
    const struct setting setting = {&job->model, &job->cluster, cost};
    struct planner_problem problem;
    struct planner_options options;
    planner_from_job(job, &setting, frozen, &problem, &options);
    options.num_ranks = k;
    options.num_replicas = r;
    options.num_microbatches = m;
    problem.cache.use = m == AUTO ? CACHE_UNUSED : CACHE_WANTED;
    problem.cache.filled = true;
    if (planner_solve(&problem, &options, result, NULL) != OK)
        return INFINITY;
    return 1e9 / result->samples_per_s;
}

/* Epoch by epoch, sample by sample: what the epochs left take under a plan that reads. */
static double with_cache(const struct job *job, const struct cost *cost, const struct plan *plan,
                         double read_ns, int level, double room, int epochs)
{
    const double samples = (double)plan->batch * plan->num_pipelines;
    double extra = 0, sum = 0;
    for (int m = 0; m < plan->microbatches.count; m++) {
        for (int i = level; i < plan->first_item[0]; i++)
            extra += (double)(plan->microbatches.size * job->model.items[i].fwd_ns);
        extra += (double)(plan->microbatches.size * cost->cache_write_ns);
    }
    for (int e = 0; e < epochs; e++) {
        double whole = 1; /* chance that a micro-batch finds all of its samples */
        for (int64_t i = 0; i < plan->microbatches.size; i++)
            whole *= room;
        sum += read_ns + (e == 0 ? 1 : 1 - whole) * extra / samples;
    }
    return sum / epochs;
}

static void plan_for__is_the_best_of_every_k_with_and_without_the_cache(void **state)
{
    (void)state;
    int reads = 0, computes = 0, lengths[5] = {0};
    for (int policy = CACHE_ON; policy <= CACHE_AUTO; policy++)
        for (int64_t read_ns = 10; read_ns <= 100000; read_ns *= 10)
            for (int room = 0; room < 3; room++)
                for (int epoch = 1; epoch < 6; epoch += 2)
                    for (int frozen = 1; frozen < LAYERS; frozen++)
                        for (int level = 0; level < frozen; level += 2) {
                            struct job job;
                            struct cost cost;
                            struct err err = {0};
                            struct plan old = {0}, got = {0};
                            make_job(&job);
                            cost_constant(&cost);
                            job.freeze.policy = FREEZE_CLOSED_FORM;
                            job.cache.policy = (enum cache_policy)policy;
                            job.cache.read_ns = read_ns;
                            job.cache.write_ns = 300;
                            const double has[3] = {0, .9, 1};
                            struct run_state ask = {.turn = epoch - 1,
                                                    .epoch = epoch - 1,
                                                    .num_frozen_layers = level,
                                                    .num_samples = SAMPLES,
                                                    .cache_room = level > 0 ? 1 : 0,
                                                    .cache_whole = true};
                            job.pipeline.num_stages = 1; /* more items than that are left */
                            job.cache.policy = level > 0 ? CACHE_ON : CACHE_OFF;
                            assert_int_equal(make_plan(&job, &cost, &ask, &old, &err), OK);
                            assert_int_equal(old.frozen == FROZEN_CACHED, level > 0);
                            job.pipeline.num_stages = AUTO;
                            job.cache.policy = (enum cache_policy)policy;
                            ask = (struct run_state){.turn = epoch,
                                                     .epoch = epoch,
                                                     .num_frozen_layers = frozen,
                                                     .num_samples = SAMPLES,
                                                     .cache_room = has[room],
                                                     .cache_whole = true,
                                                     .old = &old};
                            assert_int_equal(make_plan(&job, &cost, &ask, &got, &err), OK);
                            const struct cost own = turn_cost(&job, &cost);
                            double least = INFINITY;
                            int k_best = 0, m_best = 0, cached = 0;
                            for (int k = 1; k <= 4; k++) {
                                struct planner_result plain = {0};
                                const int r = 4 / k;
                                double ns = best_of(&job, &own, frozen, k, r, AUTO, &plain);
                                int m = plain.plan.microbatches.count, reading = 0;
                                double least_read = INFINITY;
                                int m_read = 0;
                                for (int all = r; has[room] > 0 && all <= job.train.batch;
                                     all += r) {
                                    struct planner_result read = {0};
                                    if (job.train.batch % all != 0 ||
                                        (all / r < k && job.train.batch % all != 0))
                                        continue;
                                    double with = best_of(&job, &own, frozen, k, r, all, &read);
                                    if (with < INFINITY)
                                        with = with_cache(&job, &own, &read.plan, with, level,
                                                          has[room], 6 - epoch);
                                    if (with < least_read) {
                                        least_read = with;
                                        m_read = read.plan.microbatches.count;
                                    }
                                    planner_result_clear(&read);
                                }
                                if (least_read < INFINITY &&
                                    (policy == CACHE_ON || least_read < ns)) {
                                    ns = least_read;
                                    m = m_read;
                                    reading = 1;
                                } else if (policy == CACHE_ON && has[room] > 0) {
                                    ns = INFINITY; /* another K reads */
                                }
                                if (ns < least) {
                                    least = ns;
                                    k_best = k;
                                    m_best = m;
                                    cached = reading;
                                }
                                planner_result_clear(&plain);
                            }
                            assert_int_equal(got.num_ranks, k_best);
                            assert_int_equal(got.num_pipelines, 4 / k_best);
                            assert_int_equal(got.microbatches.count, m_best);
                            assert_int_equal(got.frozen == FROZEN_CACHED, cached);
                            reads += cached;
                            computes += !cached && has[room] > 0;
                            lengths[k_best]++;
                            plan_clear(&old);
                            plan_clear(&got);
                            job_clear(&job);
                        }
    assert_true(reads > 0 && computes > 0); /* both sides of the rule are met */
    assert_true(lengths[1] > 0);
}

/* Its writes take longer than any time that can be counted with. */
static void plan_for__leaves_a_cache_that_cannot_be_filled(void **state)
{
    (void)state;
    for (int policy = CACHE_ON; policy <= CACHE_AUTO; policy++) {
        struct job job;
        struct cost cost;
        struct err err = {0};
        struct plan got = {0};
        make_job(&job);
        cost_constant(&cost);
        job.freeze.policy = FREEZE_CLOSED_FORM;
        job.cache.policy = (enum cache_policy)policy;
        job.cache.write_ns = INT64_MAX / 2;
        const struct run_state ask = {
            .num_frozen_layers = 4, .num_samples = SAMPLES, .cache_room = 1, .cache_whole = true};
        assert_int_equal(make_plan(&job, &cost, &ask, &got, &err), OK);
        assert_int_not_equal(got.frozen, FROZEN_CACHED);
        plan_clear(&got);
        job_clear(&job);
    }
}

static void plan_for__keeps_what_the_job_holds_fast(void **state)
{
    (void)state;
    for (int pipe = 0; pipe < 2; pipe++)
        for (int dp = 0; dp < 2; dp++)
            for (int frozen = 1; frozen < LAYERS; frozen++) {
                struct job job;
                struct cost cost;
                struct err err = {0};
                struct plan old = {0}, got = {0};
                make_job(&job);
                cost_constant(&cost);
                job.freeze.policy = FREEZE_CLOSED_FORM;
                job.pipeline.num_stages = 4;
                job.pipeline.num_replicas = 1;
                job.elastic.auto_pipe = pipe;
                job.elastic.auto_dp = dp;
                struct run_state ask = {.num_samples = SAMPLES, .executor = true};
                assert_int_equal(make_plan(&job, &cost, &ask, &old, &err), OK);
                ask = (struct run_state){.turn = 1,
                                         .epoch = 1,
                                         .num_frozen_layers = frozen,
                                         .num_samples = SAMPLES,
                                         .executor = true,
                                         .old = &old};
                assert_int_equal(make_plan(&job, &cost, &ask, &got, &err), OK);
                const int left = LAYERS - frozen;
                if (!pipe)
                    assert_int_equal(got.num_ranks, left < 4 ? left : 4);
                assert_int_equal(got.num_pipelines, dp ? 4 / got.num_ranks : 1);
                int zero = 0;
                for (int i = 0; i < got.num_ranks * got.num_pipelines; i++)
                    zero += got.device[i] == 0;
                assert_int_equal(zero, 1);
                plan_clear(&old);
                plan_clear(&got);
                job_clear(&job);
            }
}

/* The planner chooses only micro-batches that the canonical sum can be made of. */
static void plan_for__divides_the_batch_for_the_canonical_sum(void **state)
{
    (void)state;
    int ragged = 0;
    for (int64_t batch = 24; batch < 40; batch++)
        for (int canonical = 0; canonical < 2; canonical++) {
            struct job job;
            struct cost cost;
            struct err err = {0};
            struct plan plan = {0};
            make_job(&job);
            cost_constant(&cost);
            job.train.batch = batch;
            job.train.reduction = canonical ? REDUCTION_CANONICAL : REDUCTION_FAST;
            job.pipeline.num_stages = 4;
            job.pipeline.num_replicas = 1;
            job.cluster.host_blocking = true; /* micro-batches of one sample are dear */
            job.cluster.host_op_ns = 3000;
            const struct run_state ask = {.num_samples = SAMPLES};
            const enum status rc = make_plan(&job, &cost, &ask, &plan, &err);
            if (rc != OK)
                fail_msg("%d samples: %s", (int)batch, err.msg);
            if (canonical)
                assert_int_equal(batch % plan.microbatches.count, 0);
            else
                ragged += batch % plan.microbatches.count != 0;
            plan_clear(&plan);
            job_clear(&job);
        }
    assert_true(ragged > 0);
}

/* No plan is left out because there was no memory to look at it. */
static void plan_for__is_the_same_or_none_when_memory_ends_anywhere(void **state)
{
    (void)state;
    struct job job;
    struct cost cost;
    struct plan old = {0}, want = {0};
    make_job(&job);
    cost_constant(&cost);
    job.cache.policy = CACHE_ON;
    struct run_state ask = {.num_samples = SAMPLES};
    assert_int_equal(make_plan(&job, &cost, &ask, &old, NULL), OK);
    ask = (struct run_state){.turn = 1,
                             .epoch = 1,
                             .num_frozen_layers = 3,
                             .num_samples = SAMPLES,
                             .cache_room = 1,
                             .cache_whole = true,
                             .old = &old};
    job.freeze.policy = FREEZE_CLOSED_FORM;
    assert_int_equal(make_plan(&job, &cost, &ask, &want, NULL), OK);
    assert_int_equal(want.frozen, FROZEN_CACHED);
    for (int n = 0, step = 1; FAIL_MALLOC; n += step) {
        struct plan got = {0};
        struct err err = {0};
        fail_malloc_after(n);
        const enum status rc = make_plan(&job, &cost, &ask, &got, &err);
        if (fail_malloc_done()) {
            assert_int_equal(rc, OK);
            plan_clear(&got);
            break;
        }
        if (rc != ERR_NOMEM || got.first_item)
            fail_msg("allocation %d: status %d, K %d, %s", n, (int)rc, got.num_ranks, err.msg);
        step = n < 400 ? 1 : 13;
    }
    plan_clear(&old);
    plan_clear(&want);
    job_clear(&job);
}

/* A sum over replicas ends the tree over micro-batches only where their number is a power of two. */
static void plan_for__refuses_canonical_sums_over_other_than_powers_of_two(void **state)
{
    const int num_ranks = 16;
    (void)state;
    for (int r = 1; r <= num_ranks; r++) {
        const struct run_state at = {.num_samples = 5040};
        struct job job;
        struct plan plan = {0};
        struct cost cost;
        struct err err = {0};
        make_job(&job);
        cost_constant(&cost);
        cluster_clear(&job.cluster);
        assert_int_equal(cluster_of_ranks(&num_ranks, 1, "cpu", &job.cluster, &err), OK);
        job.train.reduction = REDUCTION_CANONICAL;
        job.train.batch_mode = BATCH_PER_PIPELINE;
        job.train.batch = 16;
        job.pipeline.num_replicas = r;
        job.pipeline.num_stages = 1;
        enum status rc = make_plan(&job, &cost, &at, &plan, &err);
        if (r == 1 || r == 2 || r == 4 || r == 8 || r == 16) {
            if (rc != OK)
                fail_msg("R=%d: %s", r, err.msg);
        } else {
            assert_int_equal(rc, ERR_INFEASIBLE);
            assert_non_null(strstr(err.msg, "needs a power of two of replicas"));
        }
        plan_clear(&plan);
        job_clear(&job);
    }
}

/* Micro-batches of the global batch are the leaves of the tree, so changes of plan keep their number.
 */
static void plan_for__keeps_the_microbatches_of_the_canonical_sum(void **state)
{
    (void)state;
    for (int frozen = 1; frozen < LAYERS; frozen++) {
        struct job job;
        struct cost cost;
        struct err err = {0};
        struct plan old = {0}, plan = {0};
        make_job(&job);
        cost_constant(&cost);
        job.train.batch = 64;
        job.train.reduction = REDUCTION_CANONICAL;
        job.pipeline.num_stages = 2;
        job.pipeline.num_replicas = 2;
        job.elastic.auto_pipe = job.elastic.auto_dp = true;
        struct run_state at = {.num_samples = SAMPLES};
        assert_int_equal(make_plan(&job, &cost, &at, &old, &err), OK);
        job.pipeline.num_stages = job.pipeline.num_replicas = AUTO;
        at = (struct run_state){.turn = 1,
                                .epoch = 1,
                                .num_frozen_layers = frozen,
                                .num_samples = SAMPLES,
                                .old = &old};
        assert_int_equal(make_plan(&job, &cost, &at, &plan, &err), OK);
        assert_int_equal(plan.microbatches.count * plan.num_pipelines, old.microbatches.count * 2);
        plan_clear(&old);
        plan_clear(&plan);
        job_clear(&job);
    }
}

static void plan_for__refuses_micro_batches_of_two_sizes_for_the_canonical_sum(void **state)
{
    (void)state;
    struct job job;
    struct cost cost;
    struct err err = {0};
    struct plan plan = {0};
    make_job(&job);
    cost_constant(&cost);
    job.train.batch_mode = BATCH_PER_PIPELINE;
    job.train.batch = 10;
    job.train.reduction = REDUCTION_CANONICAL;
    job.pipeline.num_stages = 2;
    job.pipeline.num_replicas = 1;
    job.pipeline.num_microbatches = 4;
    const struct run_state at = {.num_samples = SAMPLES};
    assert_int_equal(make_plan(&job, &cost, &at, &plan, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "equal micro-batches"));
    job_clear(&job);
}

static void plan_for__takes_a_given_plan_only_with_the_run_s_frozen_layers(void **state)
{
    (void)state;
    struct job job;
    struct cost cost;
    struct err err = {0};
    struct plan given = {0}, plan = {0};
    make_job(&job);
    cost_constant(&cost);
    struct run_state at = {.num_frozen_layers = 2, .num_samples = SAMPLES};
    assert_int_equal(make_plan(&job, &cost, &at, &given, &err), OK);
    at.given = &given;
    for (at.num_frozen_layers = 1; at.num_frozen_layers <= 3; at.num_frozen_layers++) {
        const enum status rc = make_plan(&job, &cost, &at, &plan, &err);
        assert_int_equal(rc, at.num_frozen_layers == 2 ? OK : ERR_INFEASIBLE);
        plan_clear(&plan);
    }
    plan_clear(&given);
    job_clear(&job);
}

/* RECOMPUTE_FIT is as fast as auto whatever the memory, so more memory never makes it slower. */
static void plan_for__recomputes_what_the_memory_asks_for(void **state)
{
    const struct run_state at = {.num_samples = SAMPLES};
    int both = 0, only_auto = 0;
    int64_t before_ns = INT64_MAX;
    (void)state;
    for (int64_t mem_bytes = 1 << 10; mem_bytes <= 1 << 30; mem_bytes += mem_bytes / 4) {
        enum status rc[3];
        int64_t step_ns[3] = {0};
        for (int way = 0; way < 3; way++) {
            struct job job;
            struct plan plan = {0};
            struct cost cost;
            struct err err = {0};
            make_job(&job);
            cost_constant(&cost);
            for (int i = 0; i < job.model.num_items; i++)
                job.model.items[i].stash_bytes = 8 * job.model.items[i].act_bytes + 1000;
            for (int d = 0; d < job.cluster.num_devices; d++)
                job.cluster.devices[d].mem_bytes = mem_bytes;
            job.pipeline.recompute = way == 0 ? RECOMPUTE_FIT : RECOMPUTE_NEVER;
            job.pipeline.recompute_auto = way == 2;
            rc[way] = make_plan(&job, &cost, &at, &plan, &err);
            step_ns[way] = plan.step_ns;
            plan_clear(&plan);
            job_clear(&job);
        }
        assert_int_equal(rc[0], rc[2]);
        assert_int_equal(step_ns[0], step_ns[2]);
        assert_true(rc[0] != OK || step_ns[0] <= before_ns);
        before_ns = rc[0] == OK ? step_ns[0] : before_ns;
        both += rc[1] == OK;
        only_auto += rc[1] != OK && rc[2] == OK;
    }
    assert_true(both > 3 && only_auto > 0);
}

static void plan_for__refuses_layouts_under_greedy_balancers(void **state)
{
    const struct run_state at = {.num_samples = SAMPLES};
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct job job;
        struct plan plan = {0};
        struct cost cost;
        struct err err = {0};
        make_job(&job);
        cost_constant(&cost);
        job.pipeline.balancer = way < 2 ? BALANCER_RELEASED : BALANCER_PAPER;
        job.pipeline.layout.at.tensor = way == 0 ? AUTO : way == 1 ? 2 : 1;
        job.pipeline.layout.open[LAYOUT_SHARD] = way == 2;
        job.pipeline.layout.at.shard = way == 3 ? SHARD_WEIGHTS : SHARD_NONE;
        assert_int_equal(make_plan(&job, &cost, &at, &plan, &err), ERR_INFEASIBLE);
        assert_non_null(
            strstr(err.msg, way < 2 ? "balancer released cannot be combined with "
                                      "pipeline.tensor"
                                    : "balancer paper cannot be combined with pipeline.shard"));
        job_clear(&job);
    }
}

/* Device 0 stands alone on its node and is slow. A plan for the executor uses it, and its step is
 * the step with it; other plans leave it out. Nothing is exchanged after the search. */
static void plan_for__uses_device_0_only_for_the_executor(void **state)
{
    (void)state;
    for (int executor = 0; executor < 2; executor++) {
        struct job job;
        struct cost cost;
        struct err err = {0};
        struct plan plan = {0};
        struct workload workload = {0};
        struct schedule full = {0};
        struct step_time time = {0};
        static const int node_ranks[] = {1, 2};
        make_job(&job);
        cost_constant(&cost);
        cluster_clear(&job.cluster);
        assert_int_equal(cluster_of_ranks(node_ranks, 2, "cpu", &job.cluster, &err), OK);
        job.cluster.devices[0].speed = 0.25;
        job.pipeline.num_stages = 2;
        job.pipeline.num_replicas = 1;
        const struct run_state at = {.num_samples = SAMPLES, .executor = executor};
        if (make_plan(&job, &cost, &at, &plan, &err) != OK)
            fail_msg("%s", err.msg);
        assert_int_equal(plan.device[0] == 0 || plan.device[1] == 0, executor);
        const struct setting setting = {&job.model, &job.cluster, &cost};
        assert_int_equal(plan_lower(&setting, &plan, &workload, &full, NULL), OK);
        assert_int_equal(schedule_time(&full, &workload, &plan, &time, NULL), OK);
        assert_int_equal(time.step_ns, plan.step_ns);
        step_time_clear(&time);
        schedule_clear(&full);
        workload_clear(&workload);
        plan_clear(&plan);
        job_clear(&job);
    }
}

/* The job with stashes and K ranks, and the memory of each device; INT64_MAX: unlimited. */
static void make_search_job(struct job *job, int num_ranks, int64_t mem_bytes)
{
    make_job(job);
    for (int i = 0; i < job->model.num_items; i++)
        job->model.items[i].stash_bytes = 8 * job->model.items[i].act_bytes + 1000;
    for (int d = 0; d < job->cluster.num_devices; d++)
        job->cluster.devices[d].mem_bytes = mem_bytes;
    job->pipeline.num_stages = num_ranks;
    job->pipeline.num_replicas = 1;
    job->pipeline.num_microbatches = 6;
    job->pipeline.schedule_auto = true;
    job->pipeline.recompute = RECOMPUTE_NEVER;
}

/* The memory of the plan's ranks, from its lowered lists. */
static int64_t most_memory(const struct job *job, const struct cost *cost, const struct plan *plan)
{
    const struct setting setting = {&job->model, &job->cluster, cost};
    struct workload workload = {0};
    struct schedule full = {0};
    int64_t memory[4], most = 0;
    assert_int_equal(plan_lower(&setting, plan, &workload, &full, NULL), OK);
    assert_int_equal(schedule_memory(&full, &workload, memory, NULL), OK);
    for (int k = 0; k < plan->num_ranks; k++) {
        assert_int_equal(memory[k], plan->memory_bytes[k]);
        most = memory[k] > most ? memory[k] : most;
    }
    workload_clear(&workload);
    schedule_clear(&full);
    return most;
}

static void plan_for__gives_a_plan_op_lists_of_its_own_where_these_are_faster(void **state)
{
    (void)state;
    int faster = 0, limited = 0;
    for (int k = 2; k <= 4; k += 2) {
        int64_t mem_bytes = INT64_MAX;
        for (int round = 0; round < 2; round++, mem_bytes -= mem_bytes / 6) {
            const struct run_state at = {.num_samples = SAMPLES};
            struct plan named = {0}, plan = {0}, again = {0};
            struct cost cost;
            struct err err = {0};
            struct job job;
            char *csv[2] = {NULL};
            cost_constant(&cost);
            make_search_job(&job, k, mem_bytes);
            if (make_plan(&job, &cost, &at, &named, &err) != OK) {
                job_clear(&job);
                break;
            }
            job.pipeline.schedule_auto = false;
            job.pipeline.schedule = SCHEDULE_SEARCH;
            assert_int_equal(make_plan(&job, &cost, &at, &plan, &err), OK);
            assert_int_equal(plan.step_ns < named.step_ns, plan.order != NULL);
            assert_true(plan.step_ns <= named.step_ns);
            const int64_t most = most_memory(&job, &cost, &plan);
            assert_true(most <= mem_bytes);
            if (plan.order) {
                assert_int_equal(plan.schedule, SCHEDULE_SEARCH);
                assert_int_equal(plan.num_stages, named.num_stages);
                assert_memory_equal(plan.first_item, named.first_item,
                                    ((size_t)plan.num_stages + 1) * sizeof *plan.first_item);
                if (faster == 0) { /* the same again */
                    assert_int_equal(make_plan(&job, &cost, &at, &again, &err), OK);
                    assert_int_equal(schedule_to_csv(plan.order, &csv[0], &err), OK);
                    assert_int_equal(schedule_to_csv(again.order, &csv[1], &err), OK);
                    assert_string_equal(csv[0], csv[1]);
                }
                faster++;
                limited += mem_bytes != INT64_MAX;
            }
            mem_bytes = mem_bytes == INT64_MAX ? most : mem_bytes;
            free(csv[0]);
            free(csv[1]);
            plan_clear(&named);
            plan_clear(&plan);
            plan_clear(&again);
            job_clear(&job);
        }
    }
    print_message("faster in %d, of these %d with little memory\n", faster, limited);
    assert_true(faster > 0 && limited > 0);
}

static void plan_for__refuses_more_than_the_search_of_op_lists_takes_at_the_first_plan(void **state)
{
    (void)state;
    struct plan first = {0}, later = {0};
    struct cost cost;
    struct err err = {0};
    struct job job;
    cost_constant(&cost);
    make_search_job(&job, 4, INT64_MAX);
    job.train.batch = job.pipeline.num_microbatches = 90000;
    job.pipeline.schedules = 1u << SCHEDULE_1F1B;
    struct run_state at = {.num_samples = 4 * job.train.batch};
    assert_int_equal(make_plan(&job, &cost, &at, &first, &err), OK);
    job.pipeline.schedules |= 1u << SCHEDULE_SEARCH;
    assert_int_equal(make_plan(&job, &cost, &at, &later, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "pipeline.schedule search takes up to 4194304 ops x ranks, 4 "
                                    "stages on 4 ranks and 90000 micro-batches have 4320000"));
    at.old = &first;
    assert_int_equal(make_plan(&job, &cost, &at, &later, &err), OK);
    assert_int_equal(later.schedule, SCHEDULE_1F1B);
    plan_clear(&first);
    plan_clear(&later);
    job_clear(&job);
}

/* The planner searches where plan_only() does not, so it is the judge of what is left to choose. */
static void plan_only__is_the_plan_of_a_search_where_nothing_is_left_to_choose(void **state)
{
    (void)state;
    int found = 0, open = 0;
    struct cost cost;
    cost_constant(&cost);
    for (int kind = 0; kind < SCHEDULE_SEARCH; kind++)
        for (int k = 1; k <= LAYERS; k++)
            for (int frozen = 0; frozen < 3; frozen++)
                for (int replicas = 0; replicas <= 2; replicas++) {
                    struct job job;
                    struct err err = {0};
                    struct plan only = {0}, any = {0}, best = {0};
                    make_job(&job);
                    cluster_clear(&job.cluster);
                    assert_int_equal(cluster_grid(2, LAYERS, &job.cluster, &err), OK);
                    job.train.batch = 24;
                    job.train.batch_mode = BATCH_PER_PIPELINE;
                    job.pipeline.schedule = (enum schedule_kind)kind;
                    job.pipeline.chunks = schedule_default_chunks((enum schedule_kind)kind);
                    job.pipeline.num_stages = k;
                    job.pipeline.num_replicas = replicas; /* AUTO the first time */
                    job.pipeline.num_microbatches = 12;
                    job.pipeline.frozen_auto = false;
                    job.pipeline.frozen = FROZEN_FIRST;
                    const struct setting setting = {&job.model, &job.cluster, &cost};
                    const struct run_state at = {.num_frozen_layers = frozen, .num_samples = 480};
                    const enum status rc = make_plan(&job, &cost, &at, &best, &err);
                    assert_int_equal(plan_only(&job, &setting, &at, false, &only, &err), OK);
                    assert_int_equal(plan_only(&job, &setting, &at, true, &any, &err), OK);
                    if (only.num_ranks > 0) {
                        const size_t stages = (size_t)only.num_stages + 1,
                                     devices = (size_t)k * (size_t)only.num_pipelines;
                        assert_int_equal(rc, OK);
                        assert_int_equal(only.num_stages, best.num_stages);
                        assert_int_equal(only.num_pipelines, best.num_pipelines);
                        assert_int_equal(only.microbatches.count, best.microbatches.count);
                        assert_int_equal(only.schedule, best.schedule);
                        assert_int_equal(only.recompute, best.recompute);
                        assert_int_equal(only.frozen, best.frozen);
                        assert_memory_equal(only.first_item, best.first_item,
                                            stages * sizeof *only.first_item);
                        assert_memory_equal(only.device, best.device,
                                            devices * sizeof *only.device);
                        assert_int_equal(any.num_ranks, k);
                        found++;
                    }
                    if (any.num_ranks > 0) { /* a valid plan, whatever its cut */
                        assert_int_equal(plan_check(&any, &job.model, &job.cluster, &err), OK);
                        assert_int_equal(rc, OK);
                        open += only.num_ranks == 0;
                    } else {
                        assert_int_equal(only.num_ranks, 0);
                    }
                    plan_clear(&only);
                    plan_clear(&any);
                    plan_clear(&best);
                    job_clear(&job);
                }
    print_message("nothing to choose %d times, only the cut %d times\n", found, open);
    assert_true(found > 10 && open > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_for__is_the_best_of_every_k_with_and_without_the_cache),
        cmocka_unit_test(plan_for__leaves_a_cache_that_cannot_be_filled),
        cmocka_unit_test(plan_for__keeps_what_the_job_holds_fast),
        cmocka_unit_test(plan_for__divides_the_batch_for_the_canonical_sum),
        cmocka_unit_test(plan_for__refuses_canonical_sums_over_other_than_powers_of_two),
        cmocka_unit_test(plan_for__keeps_the_microbatches_of_the_canonical_sum),
        cmocka_unit_test(plan_for__refuses_micro_batches_of_two_sizes_for_the_canonical_sum),
        cmocka_unit_test(plan_for__takes_a_given_plan_only_with_the_run_s_frozen_layers),
        cmocka_unit_test(plan_for__recomputes_what_the_memory_asks_for),
        cmocka_unit_test(plan_for__refuses_layouts_under_greedy_balancers),
        cmocka_unit_test(plan_for__uses_device_0_only_for_the_executor),
        cmocka_unit_test(plan_for__gives_a_plan_op_lists_of_its_own_where_these_are_faster),
        cmocka_unit_test(
            plan_for__refuses_more_than_the_search_of_op_lists_takes_at_the_first_plan),
        cmocka_unit_test(plan_only__is_the_plan_of_a_search_where_nothing_is_left_to_choose),
        cmocka_unit_test(plan_for__is_the_same_or_none_when_memory_ends_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
