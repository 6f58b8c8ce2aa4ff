/* Closed forms, exact to the nanosecond; the engine and schedule_time() against each other. */
#include "partition/step/schedule_memory.h"
#include "partition/step/schedule_time.h"
#include "partition/step/traffic.h"
#include "sim/step/engine.h"
#include "tests/unit/sim_case.h"
#include "tests/unit/test.h"

static int64_t scheduled_ns(const struct sim_case *c)
{
    struct step_time time = {0};
    struct err err = {0};
    if (schedule_time(&c->full, &c->workload, &c->plan, &time, &err) != OK)
        fail_msg("%s", err.msg);
    const int64_t step_ns = time.step_ns;
    step_time_clear(&time);
    return step_ns;
}

static void assert_same(const struct sim_result *a, const struct sim_result *b, bool ops)
{
    assert_int_equal(a->step_ns, b->step_ns);
    assert_int_equal(a->period_ns, b->period_ns);
    assert_int_equal(a->allreduce_ns, b->allreduce_ns);
    assert_int_equal(a->allreduce_exposed_ns, b->allreduce_exposed_ns);
    assert_int_equal(a->events, b->events);
    assert_int_equal(a->shared, b->shared);
    assert_int_equal(a->num_devices, b->num_devices);
    assert_memory_equal(a->devices, b->devices, (size_t)a->num_devices * sizeof *a->devices);
    assert_int_equal(a->num_traffic, b->num_traffic);
    if (a->num_traffic > 0)
        assert_memory_equal(a->traffic, b->traffic, (size_t)a->num_traffic * sizeof *a->traffic);
    if (!ops)
        return;
    assert_int_equal(a->num_ops, b->num_ops);
    for (int64_t i = 0; i < a->num_ops; i++) {
        const struct sim_op *x = &a->ops[i], *y = &b->ops[i];
        assert_int_equal(x->start_ns, y->start_ns);
        assert_int_equal(x->end_ns, y->end_ns);
        assert_int_equal(x->replica, y->replica);
        assert_int_equal(x->rank, y->rank);
        assert_memory_equal(&x->op, &y->op, sizeof x->op);
    }
}

/* Simulate the case in one pass where that is possible, and judge the answer by the engine that handles
 * each event: all times and causes of all devices, and all ops. */
static enum status case_step(struct sim_case *c, struct err *err)
{
    struct sim_options options = c->options;
    struct err why = {0};
    const enum status rc = sim_case_step(c, err);
    for (int recorded = 0; recorded < 2; recorded++) {
        struct sim_result pass = {0}, events = {0};
        options.record_ops = recorded;
        options.every_event = true;
        assert_int_equal(sim_step(&c->full, &c->workload, &c->plan, &options, &events, &why), rc);
        options.every_event = false;
        assert_int_equal(sim_step(&c->full, &c->workload, &c->plan, &options, &pass, &why), rc);
        if (rc == OK) {
            assert_same(&pass, &events, recorded);
            assert_same(&pass, &c->result, false);
        } else if (err) {
            assert_string_equal(why.msg, err->msg);
        }
        sim_result_clear(&pass);
        sim_result_clear(&events);
    }
    return rc;
}

static void case_run(struct sim_case *c)
{
    struct err err = {0};
    sim_case_build(c);
    if (case_step(c, &err) != OK)
        fail_msg("%s", err.msg);
}

/* The engine and schedule_time() give this time of the step. */
static void assert_steps(struct sim_case *c, int64_t want_ns)
{
    case_run(c);
    assert_int_equal(c->result.step_ns, want_ns);
    assert_int_equal(scheduled_ns(c), want_ns);
    sim_case_clear(c);
}

/* time-9: (M + K - 1)(f + i) where every backward leaves all weight gradients out, under GPipe and 1F1B
 * of equal stages; (M + K - 1)(f + i + w / 2) where it leaves out one half. */
static void sim_step__leaving_out_all_weight_gradients_takes_f_and_i_alone(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * 6 * 4 * 2; n++) {
        const int half = n % 2, K = 1 + n / 2 % 6, M = 1 + n / 12 % 4 * 3;
        struct sim_case c = SIM_CASE(n / 48 ? SCHEDULE_GPIPE : SCHEDULE_1F1B, K, M, 1003, 700, 900);
        struct err err = {0};
        sim_case_build(&c);
        assert_int_equal(shares_init(K, M, &c.plan.shares, &err), OK);
        for (int i = 0; i < K * M; i++)
            c.plan.shares.share[i] = half ? 0.5 : 1;
        assert_int_equal(sim_case_lower(&c, &err), OK);
        assert_int_equal(case_step(&c, &err), OK);
        assert_int_equal(c.result.step_ns, (M + K - 1) * (1003 + 700 + half * 450));
        assert_int_equal(scheduled_ns(&c), c.result.step_ns);
        sim_case_clear(&c);
    }
}

/* (M + K - 1)(f + b): GPipe (Huang et al. 2019), 1F1B (Narayanan et al. 2019), equal stages. */
static void sim_step__gpipe_and_1f1b_take_m_plus_k_minus_1_rounds(void **state)
{
    (void)state;
    for (int kind = SCHEDULE_GPIPE; kind <= SCHEDULE_1F1B; kind++) {
        for (int K = 1; K <= 6; K++) {
            for (int M = 1; M <= 12; M += 3) {

                struct sim_case c = SIM_CASE((enum schedule_kind)kind, K, M, 1003, 700, 900);
                case_run(&c);
                assert_int_equal(c.result.step_ns, (M + K - 1) * (1003 + 1600));
                int64_t idle = 0;
                for (int k = 0; k < K; k++) {
                    const struct sim_device *d = &c.result.devices[k];
                    assert_int_equal(d->busy_ns, M * 2603);
                    assert_int_equal(d->peak_live,
                                     kind == SCHEDULE_GPIPE ? M : (K - k < M ? K - k : M));
                    idle += d->idle_ns;
                }
                assert_int_equal(idle, (int64_t)K * (K - 1) * 2603);
                sim_case_clear(&c);
            }
        }
    }
}

/* Bubble (K - 1)(f + b) / v a device (Narayanan et al. 2021), M a multiple of K. */
static void sim_step__interleaved_bubble_shrinks_with_chunks(void **state)
{
    (void)state;
    for (int K = 2; K <= 5; K++) {
        for (int v = 1; v <= 4; v++) {

            int M = 2 * K;
            struct sim_case c = SIM_CASE(SCHEDULE_INTERLEAVED, K, M, 600, 500, 700, .chunks = v);
            case_run(&c);
            /* a stage is 1/v of a device's work: f + b = v * 1800 */
            assert_int_equal(c.result.step_ns, M * v * 1800 + (K - 1) * 1800);
            sim_case_clear(&c);
        }
    }
}

/* Uneven stages under GPipe: sum f + (M - 1) max f, and the same for b. */
static void sim_step__gpipe_waits_for_its_slowest_stage(void **state)
{
    (void)state;
    const int64_t f[4] = {300, 1100, 200, 700};
    struct sim_case c = SIM_CASE(SCHEDULE_GPIPE, 4, 7, 1, 1, 1, .stage_f = f);
    assert_steps(&c, (2300 + 6 * 1100) + 2 * (2300 + 6 * 1100));
}

/* Zero bubble with f = I = W: ZB-H1 leaves (K-1) f of 1F1B's 3 (K-1) f on each device's own span;
 * ZB-H2, ZB-V none (Qi et al. 2023, 2024). */
static void sim_step__zero_bubble_schedules_fill_the_spans(void **state)
{
    (void)state;

    for (int K = 2; K <= 6; K++) {
        int M = 3 * K;
        struct sim_case h1 = SIM_CASE(SCHEDULE_ZB_H1, K, M, 1000, 1000, 1000);
        case_run(&h1);
        struct sim_case h2 = SIM_CASE(SCHEDULE_ZB_H2, K, M, 1000, 1000, 1000);
        case_run(&h2);
        struct sim_case v = SIM_CASE(SCHEDULE_ZB_V, K, M, 1000, 1000, 1000, .chunks = 2);
        case_run(&v);
        int64_t h1_idle = 0, h2_idle = 0, v_idle = 0;
        for (int k = 0; k < K; k++) {
            const struct sim_device *d = h1.result.devices;
            h1_idle += d[k].last_ns - d[k].first_ns - d[k].busy_ns > h1_idle
                           ? d[k].last_ns - d[k].first_ns - d[k].busy_ns - h1_idle
                           : 0;
            d = h2.result.devices;
            h2_idle += d[k].last_ns - d[k].first_ns - d[k].busy_ns;
            d = v.result.devices;
            v_idle += d[k].last_ns - d[k].first_ns - d[k].busy_ns;
            assert_int_equal(h1.result.devices[k].peak_live, K);
            assert_true(h2.result.devices[k].peak_live <= 2 * K - 1);
        }
        assert_int_equal(h1_idle, (K - 1) * 1000);
        assert_int_equal(h2_idle, 0);
        assert_int_equal(v_idle, 0);
        /* The next step begins a span later, so ZB-H2's and ZB-V's devices never idle; clipping
             * ends all devices at one time. */
        struct sim_case clipped = SIM_CASE(SCHEDULE_ZB_H2, K, M, 1000, 1000, 1000, .params = 1,
                                           .update = 500, .clip = true);
        case_run(&clipped);
        assert_int_equal(h1.result.period_ns, M * 3000 + (K - 1) * 1000);
        assert_int_equal(h2.result.period_ns, M * 3000);
        assert_int_equal(h2.result.step_ns, M * 3000 + (K - 1) * 1000);
        assert_int_equal(v.result.period_ns, M * 6000);
        assert_int_equal(clipped.result.period_ns, clipped.result.step_ns);
        sim_case_clear(&clipped);
        sim_case_clear(&h1);
        sim_case_clear(&h2);
        sim_case_clear(&v);
    }
}

/* The V schedules with f = I = W = t a stage, S = 2K stages, M >= 2K. ZB-V (Qi et al. 2023, 2024):
 * no idle time within a device's span, and p M_B of memory, that is 2K stages' activations on every
 * device. DualPipe-V (its README's table, PP = 2K): PP + 1 activations; bubble
 * (PP/2 - 1)(F&B + B - 3W), where F&B is the time of a forward and a backward run as one: 2 (K-1) t
 * when nothing of it overlaps. Our devices run F and B one after the other, but hand on each result
 * when its own op ends, not when the pair does: (K-1) t, what the formula gives for F&B = B. */
static void sim_step__v_schedules_hold_and_wait_as_published(void **state)
{
    (void)state;

    for (int K = 2; K <= 6; K++) {
        for (int M = 2 * K; M <= 4 * K; M += K) {
            struct sim_case v = {.kind = SCHEDULE_ZB_V, .K = K, .M = M, .chunks = 2};
            v.f = v.i = v.w = 1000;
            struct sim_case dual = v;
            dual.kind = SCHEDULE_DUALPIPE_V;
            case_run(&v);
            case_run(&dual);
            for (int k = 0; k < K; k++) {
                const struct sim_device *a = &v.result.devices[k];
                const struct sim_device *b = &dual.result.devices[k];
                assert_int_equal(a->last_ns - a->first_ns - a->busy_ns, 0);
                assert_int_equal(a->peak_live, 2 * K);
                assert_int_equal(b->idle_ns, (K - 1) * 1000);
                assert_int_equal(b->peak_live, 2 * K + 1);
            }
            sim_case_clear(&v);
            sim_case_clear(&dual);
        }
    }
}

/* With communication c < min(f, b) on every boundary, GPipe: 2(K-1)c more than without. */
static void sim_step__gpipe_pays_each_boundary_twice(void **state)
{
    (void)state;
    for (int K = 1; K <= 5; K++) {
        struct sim_case c =
            SIM_CASE(SCHEDULE_GPIPE, K, 6, 1000, 700, 800, .act = 100, .link = 1e9, .latency = 50);
        assert_steps(&c, (6 + K - 1) * 2500 + 2 * (K - 1) * 150);
    }
}

/* 1F1B with c a message and M a multiple of K: rank 0 may start micro-batch m + K only after m has
 * come back, a round trip of 2 (K - 1) c more for every K micro-batches; filling and draining the
 * inner ranks' shorter rounds adds 2 (K - 2) c. */
static void sim_step__1f1b_pays_a_round_trip_every_k_microbatches(void **state)
{
    (void)state;
    for (int K = 2; K <= 6; K++) {
        for (int n = 1; n <= 4; n++) {
            int M = n * K;
            struct sim_case c = SIM_CASE(SCHEDULE_1F1B, K, M, 1000, 1000, 1000, .latency = 10);
            assert_steps(&c, (M + K - 1) * 3000 + 10 * (2 * (K - 1) * n + 2 * (K - 2)));
        }
    }
}

/* Blocking sends (time-3b), by hand. K = 2, M = 3, f = 1000, b = 2000, c = 300. Rank 0: F0 0 to 1000,
 * F1 when the send of 0 has ended, 1300 to 2300, F2 2600 to 3600. Rank 1: F2 3900 to 4900, B0 to 6900,
 * B1 7200 to 9200, B2 9500 to 11500. Rank 0: B2 11800 to 13800. In general each of the M + K - 2
 * messages of a direction on the longest way takes c. */
static void sim_step__blocking_sends_hold_their_rank(void **state)
{
    (void)state;

    for (int K = 2; K <= 5; K++) {
        for (int M = 1; M <= 7; M++) {
            struct sim_case c = {.kind = SCHEDULE_GPIPE,
                                 .K = K,
                                 .M = M,
                                 .f = 1000,
                                 .i = 1000,
                                 .w = 1000,
                                 .latency = 300,
                                 .sends_blocking = true};
            case_run(&c);
            if (K == 2 && M == 3) {
                assert_int_equal(c.result.step_ns, 13800);
                /* Rank 1 waits for its first activation 1300; then 300 for each later one, and
                     * 300 for each of two gradients before its next backward. */
                assert_int_equal(c.result.devices[1].idle_cause_ns[IDLE_TRANSFER],
                                 300 + 300 + 300 + 2 * 300);
            }
            assert_int_equal(c.result.step_ns, (M + K - 1) * 3000 + 2 * (M + K - 2) * 300);
            sim_case_clear(&c);
        }
    }
}

/* Reads of 5000 ns end at 5000, 10000 and 15000. F and B (without I) of a micro-batch take 2000,
 * so the device waits for 5000, 3000 and 3000 ns of them, and for nothing else. */
static void sim_step__waiting_for_a_cache_read_counts_as_transfer(void **state)
{
    (void)state;

    struct sim_case c = {.kind = SCHEDULE_1F1B,
                         .K = 1,
                         .M = 3,
                         .num_frozen = 1,
                         .frozen = FROZEN_CACHED,
                         .f = 1000,
                         .i = 1000,
                         .w = 1000,
                         .act = 5000};
    struct err err = {0};
    sim_case_build(&c);
    c.cluster.devices[0].copy_bytes_per_s = 1e9;
    assert_int_equal(sim_case_lower(&c, &err), OK);
    assert_int_equal(case_step(&c, &err), OK);
    const struct sim_device *d = &c.result.devices[0];
    assert_int_equal(c.result.step_ns, 17000);
    assert_int_equal(d->busy_ns, 6000);
    assert_int_equal(d->idle_cause_ns[IDLE_TRANSFER], 5000 + 3000 + 3000);
    assert_int_equal(d->idle_ns, d->idle_cause_ns[IDLE_TRANSFER]);
    sim_case_clear(&c);
}

/* time-2b. F and B (without I) of three micro-batches take 6000, and copies take nothing. Reads of
 * 1000 each hide behind that. Of 7000 each the step is the host's 21000, in which the device idles
 * for 15000; schedule_time() gives the same integers. */
static void sim_step__lasts_as_long_as_the_host_reads_its_samples(void **state)
{
    (void)state;
    static const int64_t read_ns[] = {1000, 7000}, step_ns[] = {6000, 21000};
    for (int e = 0; e < 2; e++) {
        struct sim_case c = {.kind = SCHEDULE_1F1B,
                             .K = 1,
                             .M = 3,
                             .num_frozen = 1,
                             .frozen = FROZEN_CACHED,
                             .f = 1000,
                             .i = 1000,
                             .w = 1000};
        struct err err = {0};
        struct step_time time = {0};
        sim_case_build(&c);
        c.cost.cache_read_ns = read_ns[e];
        assert_int_equal(sim_case_lower(&c, &err), OK);
        assert_int_equal(case_step(&c, &err), OK);
        assert_int_equal(c.result.step_ns, step_ns[e]);
        assert_int_equal(c.result.devices[0].busy_ns, 6000);
        assert_int_equal(c.result.devices[0].idle_ns, step_ns[e] - 6000);
        assert_int_equal(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), OK);
        assert_int_equal(time.step_ns, step_ns[e]);
        step_time_clear(&time);
        sim_case_clear(&c);
    }
}

/* eager-1f1b: while a message takes at most half of f + b, the extra micro-batches in flight hide the
 * round trips that 1F1B pays, and each boundary is paid once a direction as in GPipe. */
static void sim_step__eager_1f1b_pays_each_boundary_twice(void **state)
{
    (void)state;
    for (int K = 1; K <= 6; K++) {
        for (int n = 1; n <= 4; n++) {
            struct sim_case c =
                SIM_CASE(SCHEDULE_EAGER_1F1B, K, n * K, 1000, 1000, 1000, .latency = 1500);
            assert_steps(&c, (n * K + K - 1) * 3000 + 2 * (K - 1) * 1500);
        }
    }
}

/* breadth-first: a chunk's M > K micro-batches keep every rank busy while messages travel to the
 * next chunk, so only the way to the last rank and back is paid. */
static void sim_step__breadth_first_pays_the_way_to_the_last_rank(void **state)
{
    (void)state;
    for (int K = 2; K <= 5; K++) {
        for (int v = 1; v <= 4; v++) {
            const int M = 2 * K;
            struct sim_case c = SIM_CASE(SCHEDULE_BREADTH_FIRST, K, M, 1000, 1000, 1000,
                                         .chunks = v, .latency = 500);
            assert_steps(&c, (M * v + K - 1) * 3000 + 2 * (K - 1) * 500);
        }
    }
}

/* Interleaved: K warm-up micro-batches a chunk keep every rank busy while messages travel, so each
 * of the K v - 1 boundaries is paid once a direction. */
static void sim_step__interleaved_pays_each_boundary_once_a_direction(void **state)
{
    (void)state;
    for (int K = 2; K <= 5; K++) {
        for (int v = 2; v <= 4; v++) {
            int M = 3 * K;
            struct sim_case c =
                SIM_CASE(SCHEDULE_INTERLEAVED, K, M, 1000, 1000, 1000, .chunks = v, .latency = 10);
            assert_steps(&c, (M * v + K - 1) * 3000 + 10 * 2 * (K * v - 1));
        }
    }
}

/* ZB-H1: deferred weight gradients absorb the rounds of the steady state; 4 (K - 1) c remain, two
 * boundaries' worth a direction, for M of two rounds or more. */
static void sim_step__zb_h1_absorbs_messages_in_the_steady_state(void **state)
{
    (void)state;
    for (int K = 2; K <= 6; K++) {
        for (int n = 2; n <= 4; n++) {
            int M = n * K;
            struct sim_case c = SIM_CASE(SCHEDULE_ZB_H1, K, M, 1000, 1000, 1000, .latency = 10);
            assert_steps(&c, M * 3000 + (K - 1) * 1000 + 10 * 4 * (K - 1));
        }
    }
}

/* A frozen prefix of p stages under GPipe: all run forward, K - p run backward, the first of them
 * without its input gradient. */
static void sim_step__frozen_stages_run_forward_only(void **state)
{
    (void)state;

    for (int p = 1; p < 5; p++) {
        int K = 6, M = 7;
        struct sim_case c = SIM_CASE(SCHEDULE_GPIPE, K, M, 1000, 700, 800, .num_frozen = p,
                                     .frozen = FROZEN_SPREAD);
        case_run(&c);
        assert_int_equal(c.result.step_ns,
                         (M + K - 1) * 1000 + (K - p - 1) * 1500 + 800 + (M - 1) * 1500);
        for (int k = 0; k < p; k++)
            assert_int_equal(c.result.devices[k].busy_ns, M * 1000);
        sim_case_clear(&c);
    }
}

/* Full recompute under GPipe: the forward again before each backward, M of them on every rank. Where
 * it is early, all but the last rank's first one runs while the gradient is on its way, so the drain
 * is not longer. Both forms hold as much memory, but for the buffer of the gradient that is there
 * while R runs. */
static void sim_step__recompute_repeats_every_forward(void **state)
{
    (void)state;

    int K = 4, M = 6;
    struct sim_case c = SIM_CASE(SCHEDULE_GPIPE, K, M, 1000, 700, 800, .stash = 100, .act = 1,
                                 .recompute = RECOMPUTE_STAGE);
    struct sim_case once = c, early = c;
    once.recompute = RECOMPUTE_NEVER;
    early.recompute = RECOMPUTE_STAGE_EARLY;
    case_run(&c);
    case_run(&once);
    case_run(&early);
    for (int k = 0; k < K; k++) {
        assert_int_equal(c.result.devices[k].busy_ns, M * 3500);
        assert_int_equal(once.result.devices[k].busy_ns, M * 2500);
        /* inputs of all (1 B, none on rank 0) and the stash of one in place of all stashes; the
             * last rank holds no gradient's buffer beside them */
        assert_int_equal(once.result.devices[k].peak_bytes - c.result.devices[k].peak_bytes,
                         (M - 1) * 100 - (k > 0 ? M : 0) + (k == K - 1));
        assert_int_equal(early.result.devices[k].busy_ns, M * 3500);
        assert_int_equal(early.result.devices[k].peak_bytes, c.result.devices[k].peak_bytes);
    }
    assert_int_equal(c.result.step_ns, (M + K - 1) * 3500 + 2 * (K - 1));
    assert_int_equal(early.result.step_ns,
                     (M + K - 1) * 1000 + M * 2500 + (K - 1) * 1500 + 2 * (K - 1));
    sim_case_clear(&c);
    sim_case_clear(&early);
    sim_case_clear(&once);
}

/* Full duplex: a slow port delays, half duplex delays more; what comes through a port in a step
 * cannot take less than its bytes over its bandwidth. */
static void sim_step__half_duplex_is_never_faster(void **state)
{
    (void)state;
    int64_t step[2];
    for (int half = 0; half < 2; half++) {
        struct sim_case c = SIM_CASE(SCHEDULE_1F1B, 4, 8, 1000, 1000, 1000, .act = 3000,
                                     .link = 1e9, .half_duplex = half);
        case_run(&c);
        step[half] = c.result.step_ns;
        /* an inner rank sends 8 activations and 8 gradients of 3 us */
        assert_true(step[half] >= (half ? 32 : 16) * 3000);
        sim_case_clear(&c);
    }
    assert_true(step[1] > step[0]);
}

/* 2(n-1)/n x bytes / bandwidth + 2(n-1) x latency, when nothing shares the ring's links. */
static void sim_step__ring_allreduce_takes_its_formula(void **state)
{
    (void)state;
    for (int R = 2; R <= 8; R++) {

        struct sim_case c = SIM_CASE(SCHEDULE_1F1B, 1, 4, 1000, 1000, 1000, .R = R, .params = 1000,
                                     .link = 1e9, .latency = 70);
        case_run(&c);
        int64_t wire = (2 * (R - 1) * 4000 + R - 1) / R;
        assert_int_equal(c.result.allreduce_ns, wire + 2 * (R - 1) * 70);
        assert_int_equal(c.result.step_ns - c.result.allreduce_exposed_ns, 12000);
        sim_case_clear(&c);
    }
}

/* Eight rings over one pair of uplinks take eight times their bandwidth part. */
static void sim_step__rings_share_an_uplink_fairly(void **state)
{
    (void)state;
    struct sim_case c = SIM_CASE(SCHEDULE_GPIPE, 4, 2, 0, 0, 0, .R = 2, .nodes = 2,
                                 .params = 1000000, .link = 1e12, .uplink = 1e9, .latency = 0);
    case_run(&c);
    assert_int_equal(c.result.step_ns, 4 * 4000000);
    assert_int_equal(c.result.allreduce_ns, 4 * 4000000);
    sim_case_clear(&c);
}

/* Two nodes are a pod each. R pipelines of two stages send 1 MB each way between them at once: over the
 * pod's 1 GB/s that takes R times 1 ms, with the pods' latency of 7 us (cluster.h). */
static void sim_step__pipelines_share_the_uplink_of_a_pod(void **state)
{
    (void)state;
    for (int R = 1; R <= 4; R *= 2) {
        struct err err = {0};
        struct sim_case c = SIM_CASE(SCHEDULE_GPIPE, 2, 1, 1000, 1000, 1000, .R = R, .nodes = 2,
                                     .act = 1000000, .latency = 100);
        sim_case_build(&c);
        c.cluster.pod_nodes = 1;
        c.cluster.pod_uplink_bytes_per_s = 1e9;
        c.cluster.pod_latency_ns = 7000;
        for (int r = 0; r < R; r++) {
            c.plan.device[2 * r] = r;
            c.plan.device[2 * r + 1] = R + r;
        }
        if (sim_case_lower(&c, &err) != OK || case_step(&c, &err) != OK)
            fail_msg("%s", err.msg);
        assert_int_equal(c.result.step_ns, 6000 + 2 * (7000 + R * 1000000));
        sim_case_clear(&c);
    }
}

static void random_case(struct sim_case *c, bool zero_bytes)
{
    static int64_t stage_f[64];
    *c = (struct sim_case){.kind = (enum schedule_kind)random_below(SCHEDULE_SEARCH),
                           .K = 1 + (int)random_below(5),
                           .R = 1 + (int)random_below(3)};
    c->chunks = schedule_chunks(c->kind, 1 + (int)random_below(3));
    c->M = c->K * (2 + (int)random_below(3));
    c->nodes = random_below(2) ? c->R : 1;
    c->f = 4;
    c->i = 3 + random_below(3);
    c->w = 2 + random_below(3);
    for (int s = 0; s < c->K * c->chunks; s++)
        stage_f[s] = 4 * (100 + random_below(900));
    c->stage_f = stage_f;
    c->act = zero_bytes ? 0 : 1 + random_below(2000);
    c->link = 1e9;
    c->uplink = 0.7e9;
    c->latency = random_below(300);
    c->update = random_below(500);
    c->params = zero_bytes ? 0 : random_below(1000);
    c->tied = zero_bytes || c->K == 1 ? 0 : stage_f[0] % 3 * 700;
    c->stash = 64;
    c->host_op = random_below(3) == 0 ? random_below(900) : 0;
    c->blocking = random_below(2);
    c->sends_blocking = random_below(2);
    c->clip = random_below(2);
    c->recompute = (enum recompute_mode)random_below(3);
    c->num_frozen = random_below(2) ? (int)random_below(c->K * c->chunks) : 0;
    c->frozen = c->num_frozen == 0 ? FROZEN_NONE : FROZEN_SPREAD;
}

/* Without shared links both give the same integers. */
static void sim_step__and_schedule_time_agree_when_nothing_is_shared(void **state)
{
    (void)state;
    random_state = 88172645463325252u;
    int compared = 0, met = 0, tied = 0, hidden = 0;
    for (int n = 0; n < 1500; n++) {
        struct sim_case c;
        random_case(&c, n % 2);
        struct err err = {0};
        case_run(&c);
        if (n % 5 ==
            0) { /* unequal devices, replicas of several classes, several buckets a stage */
            c.cluster.devices[random_below(c.cluster.num_devices)].speed = 0.75;
            c.plan.bucket_bytes = 1 + random_below(2000);
            assert_int_equal(sim_case_lower(&c, &err), OK);
            assert_int_equal(case_step(&c, &err), OK);
        }
        if (n % 4 == 0) { /* backwards leave weight gradients out */
            const int S = c.plan.num_stages;
            assert_int_equal(shares_init(S, c.M, &c.plan.shares, &err), OK);
            for (int i = 0; i < S * c.M; i++)
                c.plan.shares.share[i] = (double)random_below(5) / 4;
            assert_int_equal(sim_case_lower(&c, &err), OK);
            assert_int_equal(case_step(&c, &err), OK);
        }
        if (c.kind == SCHEDULE_DUALPIPE_V && c.num_frozen == 0 &&
            n % 3) { /* as if experts exchanged tokens */
            for (int i = 0; i < c.workload.num_classes * c.workload.num_stages; i++) {
                struct stage_cost *stage = &c.workload.stages[i];
                for (int mb = 0; mb < MB_SIZES; mb++) {
                    stage->hidden_ns[0][mb] = stage->op_ns[OP_F][mb] / (1 + n % 4);
                    stage->hidden_ns[1][mb] = stage->op_ns[OP_B][mb] / (1 + n % 5);
                }
            }
            struct schedule compute = {0};
            assert_int_equal(schedule_generate(c.kind, c.K, c.M, c.chunks, &compute, &err), OK);
            schedule_clear(&c.full);
            assert_int_equal(schedule_lower(&compute, &c.workload, &c.plan, &c.full, &err), OK);
            schedule_clear(&compute);
            assert_int_equal(case_step(&c, &err), OK);
            hidden++;
        }
        struct step_time time = {0};
        assert_int_equal(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), OK);
        int64_t memory[64];
        assert_int_equal(schedule_memory(&c.full, &c.workload, memory, &err), OK);
        for (int k = 0; k < c.K; k++)
            assert_int_equal(c.result.devices[k].peak_bytes, memory[k]);
        assert_true(c.result.step_ns >= time.step_ns);
        met += c.result.shared;
        if (!c.result.shared) {
            assert_int_equal(c.result.step_ns, time.step_ns);
            assert_int_equal(c.result.allreduce_ns, time.allreduce_ns);
            assert_int_equal(c.result.allreduce_exposed_ns, time.allreduce_exposed_ns);
            for (int k = 0; k < c.K; k++) { /* of replica 0 */
                assert_int_equal(c.result.devices[k].busy_ns, time.rank_busy_ns[k]);
                if (time.rank_busy_ns[k] > 0) {
                    assert_int_equal(c.result.devices[k].first_ns, time.rank_first_ns[k]);
                    if (c.update > 0) /* an update of no length is no work to the engine */
                        assert_int_equal(c.result.devices[k].last_ns, time.rank_last_ns[k]);
                }
            }
            compared++;
            tied += c.full.tied;
        }
        step_time_clear(&time);
        sim_case_clear(&c);
    }
    assert_true(compared > 500 && met > 100 && tied > 20 && hidden > 20);
}

/* A table that two stages share costs an all-reduce between these two, behind all else, and the
 * last one an update of its copy. */
static void sim_step__adds_a_tied_table_between_first_and_last_rank(void **state)
{
    (void)state;
    const int64_t took = 4 * 1000 + 2 * 70, update = 300;
    for (int n = 0; n < 24; n++) {
        struct sim_case one[2];
        for (int tied = 0; tied < 2; tied++) {
            one[tied] = (struct sim_case){.kind = n % 3 == 0   ? SCHEDULE_GPIPE
                                                  : n % 3 == 1 ? SCHEDULE_INTERLEAVED
                                                               : SCHEDULE_ZB_H1,
                                          .K = 2 + n / 3 % 2,
                                          .chunks = 1 + (n % 3 == 1),
                                          .M = 6,
                                          .f = 1000,
                                          .i = 1000,
                                          .w = 1000,
                                          .update = update,
                                          .clip = n / 6 % 2,
                                          .link = 1e9,
                                          .latency = 70,
                                          .num_frozen = n / 12,
                                          .frozen = n / 12 ? FROZEN_SPREAD : FROZEN_NONE,
                                          .tied = tied * 1000};
            case_run(&one[tied]);
        }
        assert_int_equal(one[1].result.step_ns - one[0].result.step_ns, n / 12 ? 0 : took + update);
        assert_int_equal(one[0].result.num_traffic, 0);
        assert_int_equal(one[1].result.num_traffic, n / 12 ? 0 : 2);
        for (int i = 0; i < one[1].result.num_traffic; i++)
            assert_int_equal(one[1].result.traffic[i].bytes, 4000);
        for (int d = 0; d < one[1].result.num_devices && one[1].result.num_traffic; d++) {
            const bool end = d % one[1].K == 0 || d % one[1].K == one[1].K - 1;
            const int64_t more = one[1].result.devices[d].idle_cause_ns[IDLE_ALLREDUCE] -
                                 one[0].result.devices[d].idle_cause_ns[IDLE_ALLREDUCE];
            assert_int_equal(more, end ? took : 0);
        }
        sim_case_clear(&one[0]);
        sim_case_clear(&one[1]);
    }
}

/* Two replicas whose ends lie on two nodes: their tables meet on the uplinks. */
static void sim_step__tied_tables_share_an_uplink(void **state)
{
    (void)state;
    struct err err = {0};
    struct sim_case c = SIM_CASE(SCHEDULE_GPIPE, 2, 2, 1000, 1000, 1000, .R = 2, .nodes = 2,
                                 .link = 1e12, .uplink = 1e9, .tied = 1000);
    case_run(&c);
    /* a replica on each node: the copy's gradient, of two replicas, crosses from 7000 on */
    assert_int_equal(c.result.step_ns, 7000 + 4000 + 4);
    c.plan.device[1] = 2;
    c.plan.device[2] = 1;
    assert_int_equal(sim_case_lower(&c, &err), OK);
    assert_int_equal(case_step(&c, &err), OK);
    assert_true(c.result.shared);
    assert_int_equal(c.result.step_ns, 9000 + 2 * 4000);
    sim_case_clear(&c);
}

/* Whatever is shared: busy time is the work, idle causes sum to idle, no faster than without. */
static void sim_step__conserves_work_and_idle_time_on_random_steps(void **state)
{
    (void)state;
    random_state = 1234567;
    for (int n = 0; n < 600; n++) {
        struct sim_case c;
        random_case(&c, false);
        c.half_duplex = random_below(4) == 0;
        case_run(&c);
        struct err err = {0};
        int64_t slow = c.result.step_ns;
        for (int i = 0; i < c.result.num_devices; i++) {
            const struct sim_device *d = &c.result.devices[i];
            int64_t sum = 0, work = 0;
            for (int cause = 0; cause < IDLE_CAUSE_COUNT; cause++) {
                assert_true(d->idle_cause_ns[cause] >= 0);
                sum += d->idle_cause_ns[cause];
            }
            const struct rank_ops *list = &c.full.ranks[d->rank];
            for (int64_t o = 0; o < list->num_ops; o++) {
                uint8_t kind = list->ops[o].kind;
                if (kind <= OP_Z || kind == OP_UPDATE)
                    work += workload_op_ns(&c.workload, c.workload.class_of_replica[d->replica],
                                           list->ops[o]);
            }
            assert_int_equal(sum, d->idle_ns);
            assert_int_equal(work, d->busy_ns);
            assert_int_equal(d->busy_ns + d->idle_ns, slow);
        }
        if (!c.half_duplex) {
            struct step_time time = {0};
            assert_int_equal(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), OK);
            assert_true(time.step_ns <= slow);
            step_time_clear(&time);
        }
        assert_int_equal(case_step(&c, &err), OK);
        assert_int_equal(c.result.step_ns, slow); /* repeats exactly */
        sim_case_clear(&c);
    }
}

/* Replicas that share links alike run once for all of them, unless rounding may tell them apart. Each
 * run alone is the judge (case_step()). */
static void sim_step__alike_replicas_have_the_times_of_each_alone(void **state)
{
    (void)state;
    static const double links[] = {1e9, 0.9e9, 1.7e9}, uplinks[] = {0.7e9, 0.6e9, 1e9};
    random_state = 20261129;
    int met = 0;
    for (int n = 0; n < 600; n++) {
        struct sim_case c;
        random_case(&c, false);
        c.K = c.kind == SCHEDULE_DUALPIPE_V ? c.K : 2 + (int)random_below(3);
        c.M = c.K * (2 + (int)random_below(3));
        c.R = 2 * (1 + (int)random_below(4));
        c.nodes = c.R * (random_below(2) ? c.K : 1) / (random_below(2) ? 2 : 1);
        c.act = 1 + random_below(4000);
        c.link = links[random_below(3)];
        c.uplink = uplinks[random_below(3)];
        c.num_frozen = 0;
        c.frozen = FROZEN_NONE;
        case_run(&c);
        met += c.result.shared;
        sim_case_clear(&c);
    }
    assert_true(met > 300);
}

/* The time for which the busiest port or uplink is busy with the bytes that the simulator sent. */
static double busiest_ns(const struct sim_case *c)
{
    const struct cluster *cluster = &c->cluster;
    double port[64][2] = {{0}}, uplink[64][2] = {{0}}, most = 0;
    const int in = c->half_duplex ? 0 : 1;
    for (int i = 0; i < c->result.num_traffic; i++) {
        const struct sim_traffic *t = &c->result.traffic[i];
        const int a = cluster->devices[t->from].node, b = cluster->devices[t->to].node;
        port[t->from][0] += (double)t->bytes / cluster->devices[t->from].link_bytes_per_s;
        port[t->to][in] += (double)t->bytes / cluster->devices[t->to].link_bytes_per_s;
        uplink[a][0] += a != b ? (double)t->bytes / cluster->uplink_bytes_per_s[a] : 0;
        uplink[b][in] += a != b ? (double)t->bytes / cluster->uplink_bytes_per_s[b] : 0;
    }
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 2; j++)
            most = fmax(most, fmax(port[i][j], uplink[i][j]));
    return most * 1e9;
}

static void
workload_traffic_ns__is_what_the_busiest_port_carries_and_no_step_is_shorter(void **state)
{
    (void)state;
    random_state = 1234567891011u;
    int tells = 0;
    for (int n = 0; n < 600; n++) {
        struct sim_case c;
        struct err err = {0};
        struct step_time time = {0};
        int64_t traffic_ns, most_ns;
        double share;
        random_case(&c, false);
        c.act *= 20;
        c.params *= 50;
        case_run(&c);
        assert_int_equal(workload_traffic_ns(&c.workload, &c.plan, &traffic_ns, &err), OK);
        assert_true(traffic_ns <= c.result.step_ns);
        /* A message takes whole nanoseconds. */
        const double messages = c.plan.num_pipelines * (2.0 * c.workload.num_edges * c.M +
                                                        2.0 * c.workload.num_buckets) +
                                1,
                     want = busiest_ns(&c);
        if (fabs((double)traffic_ns - want) > messages + 1e-8 * want)
            fail_msg("case %d: traffic of %lld ns, bytes need %.0f", n, (long long)traffic_ns,
                     want);
        assert_int_equal(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), OK);
        assert_int_equal(traffic_uplink_share(&c.cluster, &c.plan, &share, &err), OK);
        assert_int_equal(
            workload_traffic_most_ns(&c.workload, share, time.allreduce_ns, &most_ns, &err), OK);
        assert_true(traffic_ns <= most_ns);
        tells += traffic_ns > time.step_ns;
        step_time_clear(&time);
        sim_case_clear(&c);
    }
    assert_true(tells > 10);
}

/* For a fixed list without shared links, a slower link never makes it faster. */
static void schedule_time__slower_links_never_help_a_fixed_list(void **state)
{
    (void)state;
    random_state = 424242;
    for (int n = 0; n < 300; n++) {
        struct sim_case c;
        random_case(&c, false);
        sim_case_build(&c);
        struct err err = {0};
        const int64_t before = scheduled_ns(&c);
        for (int d = 0; d < c.cluster.num_devices; d++)
            c.cluster.devices[d].link_bytes_per_s /= 1.5;
        assert_int_equal(sim_case_lower(&c, &err), OK);
        assert_true(scheduled_ns(&c) >= before);
        sim_case_clear(&c);
    }
}

static void sim_step__jitter_repeats_for_a_seed_and_differs_between_seeds(void **state)
{
    (void)state;
    struct sim_case c =
        SIM_CASE(SCHEDULE_1F1B, 4, 8, 100000, 100000, 100000, .act = 1000, .link = 1e9);
    c.options.jitter = 0.05;
    c.options.seed = 1;
    case_run(&c);
    struct err err = {0};
    int64_t first = c.result.step_ns;
    assert_int_equal(case_step(&c, &err), OK);
    assert_int_equal(c.result.step_ns, first);
    c.options.seed = 2;
    assert_int_equal(case_step(&c, &err), OK);
    assert_int_not_equal(c.result.step_ns, first);
    assert_true(c.result.step_ns > 11 * 300000 * 9 / 10 &&
                c.result.step_ns < 11 * 300000 * 12 / 10);
    sim_case_clear(&c);
}

/* One op a step: over many seeds a tenth lies below the 10th percentile that was given, a tenth
 * above the 90th, half below the median. */
static void sim_step__draws_follow_the_given_percentiles(void **state)
{
    (void)state;
    struct sim_case c = {.kind = SCHEDULE_GPIPE, .K = 1, .M = 1, .f = 100000};
    struct sim_case low = c, high = c;
    low.f = 80000;
    high.f = 150000;
    sim_case_build(&low);
    sim_case_build(&high);
    sim_case_build(&c);
    c.options.low = &low.workload;
    c.options.high = &high.workload;
    int below = 0, above = 0, half = 0, n = 4000;
    for (int seed = 0; seed < n; seed++) {
        struct err err = {0};
        c.options.seed = (uint64_t)seed;
        assert_int_equal(case_step(&c, &err), OK);
        below += c.result.step_ns < 80000;
        above += c.result.step_ns > 150000;
        half += c.result.step_ns < 100000;
    }
    assert_in_range(below, n / 10 - 80, n / 10 + 80);
    assert_in_range(above, n / 10 - 80, n / 10 + 80);
    assert_in_range(half, n / 2 - 130, n / 2 + 130);
    sim_case_clear(&low);
    sim_case_clear(&high);
    sim_case_clear(&c);
}

/* A device at half speed makes the others wait; the waits are put down to it. */
static void sim_step__a_straggler_is_named_as_the_cause(void **state)
{
    (void)state;

    struct sim_case c = SIM_CASE(SCHEDULE_1F1B, 4, 16, 1000, 1000, 1000);
    struct err err = {0};
    sim_case_build(&c);
    c.cluster.devices[2].speed = 0.5;
    assert_int_equal(sim_case_lower(&c, &err), OK);
    assert_int_equal(case_step(&c, &err), OK);
    assert_int_equal(c.result.devices[2].busy_ns, 16 * 6000);
    assert_int_equal(c.result.devices[2].idle_cause_ns[IDLE_STRAGGLER], 0);
    assert_true(c.result.devices[3].idle_cause_ns[IDLE_STRAGGLER] >= 14 * 3000);
    assert_true(c.result.devices[1].idle_cause_ns[IDLE_STRAGGLER] > 0);
    sim_case_clear(&c);
}

static void sim_step__out_of_memory_names_device_time_and_contents(void **state)
{
    (void)state;

    struct sim_case c = SIM_CASE(SCHEDULE_GPIPE, 2, 8, 1000, 1000, 1000, .stash = 1000, .act = 10);
    sim_case_build(&c);
    c.cluster.devices[1].mem_bytes = 5100; /* buffer 10 + stash 1000 each: the sixth fails */
    struct err err = {0};
    assert_int_equal(case_step(&c, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "device 1 (rank 1 of replica 0) out of memory at "));
    assert_non_null(strstr(err.msg, "F of micro-batch 5"));
    assert_non_null(strstr(err.msg, "6 live micro-batches"));
    assert_non_null(strstr(err.msg, "stash 5.86 KiB"));
    assert_non_null(strstr(err.msg, "buffers 10 B"));
    sim_case_clear(&c);
}

static void sim_step__deadlock_is_an_error_that_names_the_op(void **state)
{
    (void)state;

    struct sim_case c = SIM_CASE(SCHEDULE_GPIPE, 2, 2, 1000, 1000, 1000);
    sim_case_build(&c);
    /* rank 0 sends nothing: its list ends at once */
    c.full.ranks[0].num_ops = 0;
    struct err err = {0};
    assert_int_equal(case_step(&c, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "deadlock: rank 1 of replica 0"));
    sim_case_clear(&c);
}

/* A network that would take longer gives no number that is not its time. */
static void sim_step__refuses_reductions_longer_than_time(void **state)
{
    (void)state;

    for (int kind = 0; kind < ALLREDUCE_KIND_COUNT + 1; kind++) {
        struct sim_case c = SIM_CASE(SCHEDULE_GPIPE, 1, 1, 1000, 1000, 1000, .R = 2, .chunks = 1,
                                     .nodes = 2, .params = 1000, .latency = INT64_MAX);
        struct err err = {0};
        sim_case_build(&c);
        c.options.allreduce = (enum allreduce_kind)(kind % ALLREDUCE_KIND_COUNT);
        c.plan.clip = kind == ALLREDUCE_KIND_COUNT;
        enum status rc = sim_case_lower(&c, &err);
        if (rc == OK)
            rc = case_step(&c, &err);
        assert_int_equal(rc, ERR_INPUT);
        assert_non_null(strstr(err.msg, c.plan.clip ? "norm" : "longer than 2^60 ns"));
        c.plan.clip = false;
        err = (struct err){0};
        struct step_time time = {0};
        assert_int_equal(sim_case_lower(&c, &err), OK);
        assert_int_equal(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), ERR_INPUT);
        /* and at a length that is still told, both say the same */
        err = (struct err){0};
        c.cluster.uplink_latency_ns = STEP_NS_MAX / 4;
        assert_int_equal(sim_case_lower(&c, &err), OK);
        assert_int_equal(case_step(&c, &err), OK);
        assert_int_equal(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), OK);
        if (c.options.allreduce == ALLREDUCE_RING)
            assert_int_equal(c.result.step_ns, time.step_ns);
        assert_in_range(c.result.step_ns, STEP_NS_MAX / 2, STEP_NS_MAX);
        step_time_clear(&time);
        sim_case_clear(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sim_step__gpipe_and_1f1b_take_m_plus_k_minus_1_rounds),
        cmocka_unit_test(sim_step__leaving_out_all_weight_gradients_takes_f_and_i_alone),
        cmocka_unit_test(sim_step__interleaved_bubble_shrinks_with_chunks),
        cmocka_unit_test(sim_step__gpipe_waits_for_its_slowest_stage),
        cmocka_unit_test(sim_step__zero_bubble_schedules_fill_the_spans),
        cmocka_unit_test(sim_step__v_schedules_hold_and_wait_as_published),
        cmocka_unit_test(sim_step__gpipe_pays_each_boundary_twice),
        cmocka_unit_test(sim_step__1f1b_pays_a_round_trip_every_k_microbatches),
        cmocka_unit_test(sim_step__waiting_for_a_cache_read_counts_as_transfer),
        cmocka_unit_test(sim_step__lasts_as_long_as_the_host_reads_its_samples),
        cmocka_unit_test(sim_step__blocking_sends_hold_their_rank),
        cmocka_unit_test(sim_step__eager_1f1b_pays_each_boundary_twice),
        cmocka_unit_test(sim_step__breadth_first_pays_the_way_to_the_last_rank),
        cmocka_unit_test(sim_step__interleaved_pays_each_boundary_once_a_direction),
        cmocka_unit_test(sim_step__zb_h1_absorbs_messages_in_the_steady_state),
        cmocka_unit_test(sim_step__frozen_stages_run_forward_only),
        cmocka_unit_test(sim_step__recompute_repeats_every_forward),
        cmocka_unit_test(sim_step__half_duplex_is_never_faster),
        cmocka_unit_test(sim_step__ring_allreduce_takes_its_formula),
        cmocka_unit_test(sim_step__rings_share_an_uplink_fairly),
        cmocka_unit_test(sim_step__pipelines_share_the_uplink_of_a_pod),
        cmocka_unit_test(sim_step__and_schedule_time_agree_when_nothing_is_shared),
        cmocka_unit_test(sim_step__adds_a_tied_table_between_first_and_last_rank),
        cmocka_unit_test(sim_step__tied_tables_share_an_uplink),
        cmocka_unit_test(sim_step__conserves_work_and_idle_time_on_random_steps),
        cmocka_unit_test(sim_step__alike_replicas_have_the_times_of_each_alone),
        cmocka_unit_test(
            workload_traffic_ns__is_what_the_busiest_port_carries_and_no_step_is_shorter),
        cmocka_unit_test(schedule_time__slower_links_never_help_a_fixed_list),
        cmocka_unit_test(sim_step__jitter_repeats_for_a_seed_and_differs_between_seeds),
        cmocka_unit_test(sim_step__draws_follow_the_given_percentiles),
        cmocka_unit_test(sim_step__a_straggler_is_named_as_the_cause),
        cmocka_unit_test(sim_step__out_of_memory_names_device_time_and_contents),
        cmocka_unit_test(sim_step__deadlock_is_an_error_that_names_the_op),
        cmocka_unit_test(sim_step__refuses_reductions_longer_than_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
