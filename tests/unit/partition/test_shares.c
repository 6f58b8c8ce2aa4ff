/* Shares of weight gradients: the step as a project against schedule_time(), closed forms, and a search
 * over a grid of all shares. */
#include <math.h>

#include "partition/step/schedule_time.h"
#include "partition/step/shares_solve.h"
#include "tests/unit/plan_case.h"
#include "tests/unit/test.h"

static int64_t step_ns(struct plan_case *c)
{
    struct step_time time = {0};
    struct err err = {0};
    case_must(plan_case_lower(c, &err), &err);
    case_must(schedule_time(&c->full, &c->workload, &c->plan, &time, &err), &err);
    const int64_t ns = time.step_ns;
    step_time_clear(&time);
    return ns;
}

/* The project's end, for any shares, is schedule_time()'s step, but for what the first op waits and for
 * an op's rounding down. */
static void step_project__ends_when_schedule_time_says(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 400; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        struct crash_project project = {0};
        int *work_of = NULL;
        plan_case_random(&c, &seed, 4, 6);
        const int64_t without = step_ns(&c);
        case_must(step_project(&c.full, &c.workload, &c.plan, 0.5, &project, &work_of, &err), &err);
        double *event_ns = calloc((size_t)project.num_events, sizeof *event_ns);
        double *share = calloc((size_t)project.num_works + 1, sizeof *share);
        const double end = crash_end_ns(&project, share, event_ns);
        const double first = end - (double)without; /* the same for all shares */
        assert_true(first >= 0 && first <= (double)c.cluster.host_op_ns + 1);
        plan_case_shares(&c, &seed);
        for (int i = 0; i < c.plan.num_stages * c.plan.microbatches.count; i++)
            if (work_of[i] >= 0)
                share[work_of[i]] = c.plan.shares.share[i];
        const double with = crash_end_ns(&project, share, event_ns) - first;
        if (fabs(with - (double)step_ns(&c)) > 200)
            fail_msg("round %d: %g, schedule_time() says %lld, without shares %lld", round, with,
                     (long long)step_ns(&c), (long long)without);
        free(event_ns);
        free(share);
        free(work_of);
        crash_project_clear(&project);
        plan_case_clear(&c);
    }
}

/* Two works in a row and one beside them, each with a group of its own or all in one. */
static void crash_solve__meets_closed_forms(void **state)
{
    (void)state;
    struct crash_arc chain[] = {
        {0, 1, 0,  10, 10},
        {1, 2, 1,  10, 5 },
        {0, 2, -1, 8,  0 }
    };
    int group[] = {0, 0};
    double budget[] = {1}, share[2] = {0}, event_ns[3];
    struct crash_project p = {3, 3, chain, 2, 1, group, budget};
    struct err err = {0};
    /* One unit of share saves 10 in the first arc and 5 in the second. */
    assert_int_equal(crash_solve(&p, share, &err), OK);
    assert_true(fabs(crash_end_ns(&p, share, event_ns) - 10) < 2e-5);
    assert_true(fabs(share[0] - 1) < 1e-3 && share[1] < 1e-3);
    /* With two units the end stays at 8, so only 0.4 of the second is worth it. */
    budget[0] = 2;
    assert_int_equal(crash_solve(&p, share, &err), OK);
    assert_true(fabs(crash_end_ns(&p, share, event_ns) - 8) < 2e-5);
    assert_true(fabs(share[0] + share[1] - 1.4) < 1e-3);
}

/* Knuth's MMIX generator, as in tests/reference/shares_highs.py. */
static int below(uint64_t *state, int n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)n);
}

enum { MOST_EVENTS = 70, MOST_ARCS = 3 * MOST_EVENTS, MOST_GROUPS = 5 };
struct random_project {
    struct crash_project project;
    struct crash_arc arcs[MOST_ARCS];
    int group[MOST_ARCS];
    double budget[MOST_GROUPS];
};

/* project() of shares_highs.py. */
static void random_project(struct random_project *r, uint64_t state)
{
    const int events = 10 + below(&state, 60), groups = 1 + below(&state, MOST_GROUPS);
    int arcs = 0, works = 0;
    memset(r, 0, sizeof *r);
    for (int to = 1; to < events; to++)
        for (int k = 0; k < 3; k++) {
            struct crash_arc arc = {to - 1, to, -1, 0, 0};
            if (k > 0)
                arc.from -= below(&state, to < 12 ? to : 12);
            if (k > 0 && below(&state, 10) < 4)
                continue;
            arc.ns = 10 + below(&state, 9000) / 100.0;
            if (below(&state, 2)) {
                arc.work = works;
                arc.cut_ns = arc.ns * below(&state, 101) / 100.0;
                r->budget[r->group[works++] = below(&state, groups)]++;
            }
            r->arcs[arcs++] = arc;
        }
    const double part = (1 + below(&state, 10)) / 10.0;
    for (int g = 0; g < groups; g++)
        r->budget[g] = part * fmax(1, r->budget[g]);
    r->project = (struct crash_project){events, arcs, r->arcs, works, groups, r->group, r->budget};
}

/* Ends on 200 projects are HiGHS' within 1e-6, and sums of shares are the least ones within 0.1 %. */
static void crash_solve__ends_when_highs_does(void **state)
{
    (void)state;
    FILE *golden = fopen("tests/golden/shares-highs.txt", "r");
    assert_non_null(golden);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        static struct random_project r;
        double share[MOST_ARCS], event_ns[MOST_EVENTS], end, least, sum = 0;
        struct err err = {0};
        assert_int_equal(fscanf(golden, "%lf %lf", &end, &least), 2);
        random_project(&r, seed);
        assert_int_equal(crash_solve(&r.project, share, &err), OK);
        const double got = crash_end_ns(&r.project, share, event_ns);
        assert_true(fabs(got / end - 1) <= 1e-6 + 1e-9);
        for (int j = 0; j < r.project.num_works; j++) {
            assert_true(share[j] >= 0 && share[j] <= 1);
            sum += share[j];
        }
        if (sum > 1.001 * least + 0.001)
            fail_msg("seed %d: a sum of %g, not %g", (int)seed, sum, least);
    }
    fclose(golden);
}

/* The best of all shares on a grid of quarters. */
static double grid_best(const struct crash_project *p, double *share, int work, double *event_ns)
{
    double best = INFINITY;
    if (work == p->num_works) {
        for (int g = 0; g < p->num_groups; g++) {
            double sum = 0;
            for (int j = 0; j < work; j++)
                sum += p->group[j] == g ? share[j] : 0;
            if (sum > p->budget[g] + 1e-9)
                return INFINITY;
        }
        return crash_end_ns(p, share, event_ns);
    }
    for (int q = 0; q <= 4; q++) {
        share[work] = q / 4.0;
        best = fmin(best, grid_best(p, share, work + 1, event_ns));
    }
    return best;
}

/* No shares on a grid are better, and the answer keeps to the limits. */
static void crash_solve__is_as_good_as_every_point_of_a_grid(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 60; round++) {
        struct crash_arc arcs[16];
        int group[6], n = 0;
        double budget[2] = {1 + 0.5 * (double)case_below(&seed, 4),
                            1 + 0.5 * (double)case_below(&seed, 4)},
               share[6], grid[6], event_ns[6], sum[2] = {0};
        for (int to = 1; to < 6; to++)
            for (int from = to - 1; from >= 0 && from >= to - 3; from--)
                if (from == to - 1 || case_below(&seed, 2)) {
                    const double ns = 10 + (double)case_below(&seed, 90);
                    arcs[n++] = (struct crash_arc){from, to, n < 6 ? n : -1, ns,
                                                   ns * (double)case_below(&seed, 5) / 4};
                }
        for (int j = 0; j < 6; j++)
            group[j] = (int)case_below(&seed, 2);
        struct crash_project p = {6, n, arcs, n < 6 ? n : 6, 2, group, budget};
        struct err err = {0};
        for (int a = 0; a < n; a++)
            arcs[a].work = a < 6 ? a : -1;
        if (crash_solve(&p, share, &err) != OK)
            fail_msg("round %d: %s", round, err.msg);
        const double end = crash_end_ns(&p, share, event_ns);
        for (int j = 0; j < p.num_works; j++) {
            assert_true(share[j] >= 0 && share[j] <= 1);
            sum[group[j]] += share[j];
        }
        assert_true(sum[0] <= budget[0] * (1 + 1e-12) && sum[1] <= budget[1] * (1 + 1e-12));
        assert_true(end <= grid_best(&p, grid, 0, event_ns) * (1 + 2e-6));
    }
}

/* A plan of one item a stage; items take 100 to 100 + spread_us us in each pass. */
static void stage_items(struct plan_case *c, enum schedule_kind kind, int ranks, int chunks,
                        int microbatches, int spread_us)
{
    struct item items[16] = {{.kind = ITEM_OPAQUE}};
    struct err err = {0};
    uint64_t seed = 9;
    const int stages = ranks * chunks;
    for (int i = 0; i < stages; i++) {
        const int64_t ns = 100000 + (spread_us ? 1000 * case_below(&seed, spread_us) : 0);
        items[i] = (struct item){
            .kind = ITEM_OPAQUE, .layer = i, .fwd_ns = ns, .bwd_input_ns = ns, .bwd_weight_ns = ns};
        snprintf(items[i].name, sizeof items[i].name, "item%d", i);
    }
    case_must(model_explicit("equal", items, stages, NULL, 0, true, &c->model, &err), &err);
    case_must(cluster_grid(1, ranks, &c->cluster, &err), &err);
    cost_constant(&c->cost);
    c->plan.schedule = kind;
    c->plan.num_ranks = ranks;
    c->plan.num_stages = stages;
    c->plan.chunks = chunks;
    c->plan.num_pipelines = 1;
    c->plan.batch = microbatches;
    c->plan.microbatches = microbatches_of(microbatches, microbatches);
    c->plan.first_item = calloc((size_t)stages + 1, sizeof(int));
    c->plan.device = calloc((size_t)ranks, sizeof(int));
    for (int s = 0; s <= stages; s++)
        c->plan.first_item[s] = s;
    for (int k = 0; k < ranks; k++)
        c->plan.device[k] = k;
}

/* More room for shares never makes a step longer, and all of it leaves no weight gradient. */
static void shares_solve__settles_on_uneven_stages(void **state)
{
    (void)state;
    static const enum schedule_kind kinds[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_INTERLEAVED,
                                               SCHEDULE_ZB_H1};
    static const double most[] = {0.1, 0.5, 0.9, 1};
    for (int n = 0; n < 4; n++) {
        int64_t before = 0;
        for (int m = 0; m < 4; m++) {
            struct plan_case c = {0};
            struct err err = {0};
            stage_items(&c, kinds[n], 8, kinds[n] == SCHEDULE_INTERLEAVED ? 2 : 1, 64, 60);
            const struct setting setting = {&c.model, &c.cluster, &c.cost};
            case_must(plan_set_shares(&setting, most[m], &c.plan, &err), &err);
            if (m > 0)
                assert_true((double)c.plan.step_ns <= (double)before * (1 + 1e-6));
            before = c.plan.step_ns;
            for (int i = 0; m == 3 && i < c.plan.num_stages * 64; i++)
                c.plan.shares.share[i] = 1;
            if (m == 3)
                assert_true((double)before <= (double)step_ns(&c) * (1 + 1e-6) + 1000);
            plan_case_clear(&c);
        }
    }
}

/* Late systems are close to singular: a pivot that rounding took away once ended this one in NaN. */
static void shares_solve__outlives_lost_pivots(void **state)
{
    (void)state;
    struct plan_case c = {0};
    struct err err = {0};
    stage_items(&c, SCHEDULE_1F1B, 16, 1, 128, 60);
    const struct setting setting = {&c.model, &c.cluster, &c.cost};
    case_must(plan_set_shares(&setting, 0.9, &c.plan, &err), &err);
    for (int s = 0; s < c.plan.num_stages; s++)
        assert_true(shares_mean(&c.plan.shares, s) <= 0.9 + 1e-12);
    assert_int_equal(step_ns(&c), c.plan.step_ns);
    plan_case_clear(&c);
}

/* GPipe and 1F1B of equal stages whose mean share is rho, at least one half, of which each stage spends
 * enough on the way through the pipeline: (K - 1)(f + i) + M (f + i + (1 - rho) w). */
static void shares_solve__shortens_equal_stages_by_their_share(void **state)
{
    (void)state;
    enum { K = 4, M = 8 };
    static const double wanted[] = {0.5, 0.75, 0.9, 1};
    for (int n = 0; n < 8; n++) {
        struct plan_case c = {0};
        struct err err = {0};
        const double rho = wanted[n / 2];
        stage_items(&c, n % 2 ? SCHEDULE_1F1B : SCHEDULE_GPIPE, K, 1, M, 0);
        c.cluster.link_latency_ns = 0;
        const struct setting setting = {&c.model, &c.cluster, &c.cost};
        case_must(plan_set_shares(&setting, rho, &c.plan, &err), &err);
        const double want = (K - 1) * 200000.0 + M * (200000.0 + 100000.0 * (1 - rho));
        if (fabs((double)c.plan.step_ns - want) > want * 1e-6 + M * K)
            fail_msg("n %d: %lld, not %g", n, (long long)c.plan.step_ns, want);
        for (int s = 0; s < K; s++)
            assert_true(shares_mean(&c.plan.shares, s) <= rho + 1e-12);
        assert_int_equal(step_ns(&c), c.plan.step_ns);
        plan_case_clear(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_project__ends_when_schedule_time_says),
        cmocka_unit_test(crash_solve__meets_closed_forms),
        cmocka_unit_test(crash_solve__ends_when_highs_does),
        cmocka_unit_test(crash_solve__is_as_good_as_every_point_of_a_grid),
        cmocka_unit_test(shares_solve__settles_on_uneven_stages),
        cmocka_unit_test(shares_solve__outlives_lost_pivots),
        cmocka_unit_test(shares_solve__shortens_equal_stages_by_their_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
