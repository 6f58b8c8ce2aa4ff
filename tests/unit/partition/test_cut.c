/* Exact cuts against brute force over all cuts, and against a plain O(K n^2) dynamic program whose
 * cost function is written anew from the definition in cut.h. */
#include "partition/plan/cut.h"
#include "partition/model/model.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

#define FAR INT64_MAX

/* --- the judges ------------------------------------------------------------------------------- */

typedef int64_t (*stage_cost)(const void *ctx, int k, int a, int b); /* FAR: not allowed */

/* The best cut by trying all in lexicographic order; only a strictly better one replaces. */
static int64_t brute(stage_cost cost, const void *ctx, int n, int stages, int k, int *now,
                     int64_t worst, int64_t *best, int *best_cut)
{
    if (k == stages) {
        if (worst < *best) {
            *best = worst;
            memcpy(best_cut, now, (size_t)(stages + 1) * sizeof *now);
        }
        return *best;
    }
    for (int b = now[k] + 1; b <= n - (stages - 1 - k); b++) {
        int64_t one;
        if (k == stages - 1 && b < n)
            continue;
        one = cost(ctx, k, now[k], b);
        now[k + 1] = b;
        if (one < FAR)
            brute(cost, ctx, n, stages, k + 1, now, one > worst ? one : worst, best, best_cut);
    }
    return *best;
}

/* D(k, a) without any cleverness, and the earliest of the best cuts. */
static int64_t simple_program(stage_cost cost, const void *ctx, int n, int stages, int *cut)
{
    int64_t *table = malloc((size_t)(stages + 1) * (size_t)(n + 1) * sizeof *table), best;
    for (int i = 0; i < (stages + 1) * (n + 1); i++)
        table[i] = FAR;
    table[stages * (n + 1) + n] = 0;
    for (int k = stages - 1; k >= 0; k--)
        for (int a = 0; a < n; a++)
            for (int b = a + 1; b <= n; b++) {
                int64_t one = cost(ctx, k, a, b), rest = table[(k + 1) * (n + 1) + b];
                int64_t worst = one > rest ? one : rest;
                if (worst < table[k * (n + 1) + a])
                    table[k * (n + 1) + a] = worst;
            }
    best = table[0];
    if (best < FAR) {
        cut[0] = 0;
        for (int k = 0; k < stages; k++) {
            int b = cut[k] + 1;
            while (cost(ctx, k, cut[k], b) > best || table[(k + 1) * (n + 1) + b] > best)
                b++;
            cut[k + 1] = b;
        }
    }
    free(table);
    return best;
}

/* --- plain sizes ------------------------------------------------------------------------------ */

static int64_t sum_cost(const void *ctx, int k, int a, int b)
{
    const int64_t *sizes = ctx;
    int64_t sum = 0;
    (void)k;
    for (int i = a; i < b; i++)
        sum += sizes[i];
    return sum;
}

static void assert_cut(const struct cut *cut, int64_t best, const int *want)
{
    assert_int_equal(cut->max, best);
    for (int k = 0; k <= cut->num_stages; k++)
        assert_int_equal(cut->first_item[k], want[k]);
}

static void cut_sizes__equals_brute_force_on_small_chains(void **state)
{
    (void)state;
    random_state = 1;
    for (int round = 0; round < 6000; round++) {
        int n = 1 + (int)random_below(9), stages = 1 + (int)random_below(n);
        int now[10] = {0}, want[10] = {0};
        int64_t sizes[9], best = FAR, range = round % 3 == 0 ? 3 : round % 3 == 1 ? 10 : 1000000;
        struct cut cut = {0};
        for (int i = 0; i < n; i++)
            sizes[i] = random_below(range);
        brute(sum_cost, sizes, n, stages, 0, now, 0, &best, want);
        assert_int_equal(cut_sizes(sizes, n, stages, &cut, NULL), OK);
        assert_cut(&cut, best, want);
        cut_clear(&cut);
    }
}

static void cut_sizes__equals_the_simple_program_on_longer_chains(void **state)
{
    (void)state;
    random_state = 2;
    for (int round = 0; round < 30; round++) {
        int n = 20 + (int)random_below(60), stages = 1 + (int)random_below(20), want[32];
        int64_t sizes[80];
        struct cut cut = {0};
        for (int i = 0; i < n; i++)
            sizes[i] = random_below(10) == 0 ? random_below(INT64_MAX / 100) : random_below(1000);
        int64_t best = simple_program(sum_cost, sizes, n, stages, want);
        assert_int_equal(cut_sizes(sizes, n, stages, &cut, NULL), OK);
        assert_cut(&cut, best, want);
        cut_clear(&cut);
    }
}

static void cut_sizes__finds_the_published_optimum_of_vit_b(void **state)
{
    struct model model = {0};
    int64_t sizes[27];
    struct cut cut = {0};
    (void)state;
    assert_int_equal(model_parse("vit-b16", &model, NULL), OK);
    assert_int_equal(model.num_items, 27);
    for (int i = 0; i < 27; i++)
        sizes[i] = model.items[i].params;
    assert_int_equal(cut_sizes(sizes, 27, 8, &cut, NULL), OK);
    assert_int_equal((cut.max + 500) / 1000, 12582 /* thousands; the greedy cut has 14,176 */);
    cut_clear(&cut);
    model_clear(&model);
}

static void cut_sizes__handles_zeros_and_extremes(void **state)
{
    int64_t zeros[5] = {0}, huge[2] = {INT64_MAX - 1, 1};
    struct cut cut = {0};
    (void)state;
    assert_int_equal(cut_sizes(zeros, 5, 5, &cut, NULL), OK);
    assert_int_equal(cut.max, 0);
    for (int k = 0; k <= 5; k++)
        assert_int_equal(cut.first_item[k], k);
    cut_clear(&cut);
    assert_int_equal(cut_sizes(huge, 2, 1, &cut, NULL), OK);
    assert_true(cut.max == INT64_MAX);
    cut_clear(&cut);
    cut_clear(&cut);
}

static void cut_sizes__refuses_bad_input_and_leaves_the_cut_alone(void **state)
{
    static const int64_t negative[] = {1, -1, 2}, overflowing[] = {INT64_MAX, 1}, good[] = {1, 2};
    struct cut cut = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(cut_sizes(good, 2, 0, &cut, NULL), ERR_INPUT);
    assert_int_equal(cut_sizes(good, 2, -3, &cut, NULL), ERR_INPUT);
    assert_int_equal(cut_sizes(good, 0, 1, &cut, NULL), ERR_INPUT);
    assert_int_equal(cut_sizes(negative, 3, 2, &cut, NULL), ERR_INPUT);
    assert_int_equal(cut_sizes(overflowing, 2, 2, &cut, NULL), ERR_INPUT);
    assert_int_equal(cut_sizes(good, 2, 3, &cut, &err), ERR_INFEASIBLE);
    assert_string_equal(err.msg, "cannot cut 2 items into 3 stages");
    assert_null(cut.first_item);
}

/* --- the general problem ---------------------------------------------------------------------- */

static int64_t transfer(struct cut_link link, int64_t bytes)
{
    int64_t rate = (int64_t)link.bytes_per_s;
    return link.latency_ns + (bytes * 1000000000 + rate - 1) / rate;
}

/* The definition of cut.h, word by word. */
static int64_t real_cost(const void *ctx, int k, int a, int b)
{
    const struct cut_problem *p = ctx;
    const struct cut_time *times =
        p->times + (p->class_of_stage ? p->class_of_stage[k] : 0) * p->num_items;
    int64_t work = 0, update = 0, sends = 0, memory = 0, live = p->live ? p->live[k] : 1;
    bool has_active = b > p->num_frozen;
    for (int i = a; i < b; i++) {
        if (i < p->num_frozen || p->recompute)
            work += times[i].fwd_nograd_ns;
        if (i >= p->num_frozen) {
            work += times[i].fwd_ns + times[i].bwd_weight_ns;
            update += times[i].update_ns;
            work += i != p->num_frozen || p->num_frozen == 0 ? times[i].bwd_input_ns
                                                             : times[i].bwd_rest_ns;
        }
        if (p->items) {
            memory += p->items[i].weight_bytes;
            if (i >= p->num_frozen)
                memory +=
                    p->items[i].train_bytes + (p->recompute ? 1 : live) * p->items[i].stash_bytes;
            if (a > 0)
                memory += p->items[i].tied_bytes;
        }
    }
    if (p->items && p->recompute && has_active) {
        int first = a > p->num_frozen ? a : p->num_frozen;
        if (first > 0)
            memory += live * p->items[first - 1].out_bytes;
    }
    if (p->mem_limit_bytes && memory > p->mem_limit_bytes[k])
        return FAR;
    if (p->links && k < p->num_stages - 1) {
        int64_t bytes = p->items ? p->items[b - 1].out_bytes : 0;
        for (int e = 0; e < p->num_skips; e++)
            if (p->skips[e].from >= a && p->skips[e].from < b && p->skips[e].to >= b)
                bytes += p->skips[e].bytes;
        sends += transfer(p->links[k], bytes);
    }
    if (p->links && k > 0 && (p->num_frozen == 0 || a > p->num_frozen)) {
        int64_t bytes = p->items ? p->items[a - 1].out_bytes : 0;
        for (int e = 0; e < p->num_skips; e++)
            if (p->skips[e].from >= p->num_frozen && p->skips[e].from < a && p->skips[e].to >= a &&
                p->skips[e].to < b)
                bytes += p->skips[e].bytes;
        sends += transfer(p->links[k - 1], bytes);
    }
    work = work * p->num_microbatches + update;
    sends *= p->num_microbatches;
    if (p->overlap)
        return work > sends ? work : sends;
    return work + sends;
}

#define MOST_ITEMS 64
#define MOST_STAGES 16

/* One random instance; every feature comes and goes. */
struct instance {
    struct cut_problem problem;
    struct cut_time times[3 * MOST_ITEMS];
    struct cut_item items[MOST_ITEMS];
    struct cut_skip skips[8];
    struct cut_link links[MOST_STAGES];
    int classes[MOST_STAGES];
    int64_t live[MOST_STAGES], limits[MOST_STAGES];
};

static void draw_instance(struct instance *in, int n, int stages)
{
    struct cut_problem *p = &in->problem;
    int64_t range = random_below(2) ? 4 : 1000;
    memset(in, 0, sizeof *in);
    p->num_items = n;
    p->num_stages = stages;
    p->num_frozen = random_below(2) ? 0 : (int)random_below(n + 1);
    p->num_microbatches = 1 + random_below(4);
    p->num_classes = 1 + (int)random_below(3);
    p->times = in->times;
    for (int i = 0; i < p->num_classes * n; i++)
        in->times[i] =
            (struct cut_time){random_below(range), random_below(range),
                              random_below(range), random_below(3) ? 0 : random_below(range),
                              random_below(range), random_below(range)};
    for (int k = 0; k < stages; k++)
        in->classes[k] = (int)random_below(p->num_classes);
    if (p->num_classes > 1 || random_below(2))
        p->class_of_stage = in->classes;
    if (random_below(5)) {
        p->items = in->items;
        for (int i = 0; i < n; i++)
            in->items[i] = (struct cut_item){
                random_below(range), random_below(range), random_below(2) ? random_below(range) : 0,
                random_below(range), random_below(4) ? 0 : random_below(range)};
    }
    if (random_below(3)) {
        p->links = in->links;
        for (int k = 0; k + 1 < stages; k++)
            in->links[k] = (struct cut_link){random_below(3) ? 0 : random_below(range),
                                             (double)(1 + random_below(4)) * 500000000};
    }
    if (n > 1 && random_below(2)) {
        p->skips = in->skips;
        p->num_skips = 1 + (int)random_below(8);
        for (int e = 0; e < p->num_skips; e++) {
            int from = (int)random_below(n - 1);
            in->skips[e] = (struct cut_skip){from, from + 1 + (int)random_below(n - 1 - from),
                                             random_below(range)};
        }
    }
    p->overlap = random_below(2);
    p->recompute = random_below(3) == 0;
    if (random_below(2)) {
        p->live = in->live;
        for (int k = 0; k < stages; k++)
            in->live[k] = random_below(4);
    }
    if (random_below(2)) {
        p->mem_limit_bytes = in->limits;
        for (int k = 0; k < stages; k++)
            in->limits[k] =
                random_below(6) ? range * (1 + random_below(2 * n)) * 2 : random_below(range * n);
    }
}

static int check_instance(const struct cut_problem *p, int64_t best, const int *want)
{
    struct cut cut = {0};
    struct err err = {0};
    int64_t stage_ns[MOST_STAGES], memory[MOST_STAGES], worst = 0;
    enum status rc = cut_solve(p, &cut, &err);
    if (best == FAR) {
        assert_int_equal(rc, ERR_INFEASIBLE);
        assert_null(cut.first_item);
        return 0;
    }
    assert_int_equal(rc, OK);
    assert_cut(&cut, best, want);
    cut_evaluate(p, cut.first_item, stage_ns, memory);
    for (int k = 0; k < p->num_stages; k++) {
        assert_int_equal(stage_ns[k], real_cost(p, k, cut.first_item[k], cut.first_item[k + 1]));
        assert_true(!p->mem_limit_bytes || memory[k] <= p->mem_limit_bytes[k]);
        if (stage_ns[k] > worst)
            worst = stage_ns[k];
    }
    assert_int_equal(worst, best);
    cut_clear(&cut);
    return 1;
}

static void cut_solve__equals_brute_force_on_small_instances(void **state)
{
    int feasible = 0, rounds = 20000;
    (void)state;
    random_state = 3;
    for (int round = 0; round < rounds; round++) {
        int n = 1 + (int)random_below(8), stages = 1 + (int)random_below(n);
        int now[MOST_STAGES + 1] = {0}, want[MOST_STAGES + 1] = {0};
        int64_t best = FAR;
        struct instance in;
        draw_instance(&in, n, stages);
        brute(real_cost, &in.problem, n, stages, 0, now, 0, &best, want);
        feasible += check_instance(&in.problem, best, want);
    }
    /* both answers must have been tried in earnest */
    assert_in_range(feasible, rounds / 2, rounds * 95 / 100);
}

static void cut_solve__equals_the_simple_program_on_larger_instances(void **state)
{
    int feasible = 0;
    (void)state;
    random_state = 4;
    for (int round = 0; round < 120; round++) {
        int n = 20 + (int)random_below(MOST_ITEMS - 20),
            stages = 2 + (int)random_below(MOST_STAGES - 2);
        int want[MOST_STAGES + 1] = {0};
        struct instance in;
        draw_instance(&in, n, stages);
        int64_t best = simple_program(real_cost, &in.problem, n, stages, want);
        feasible += check_instance(&in.problem, best, want);
    }
    assert_in_range(feasible, 60, 120);
}

static void cut_solve__equals_cut_sizes_without_extras(void **state)
{
    (void)state;
    random_state = 5;
    for (int round = 0; round < 300; round++) {
        int n = 1 + (int)random_below(200), stages = 1 + (int)random_below(n);
        struct cut_time times[200];
        int64_t sizes[200];
        struct cut_problem p = {.num_items = n,
                                .num_stages = stages,
                                .num_microbatches = 1,
                                .num_classes = 1,
                                .times = times};
        struct cut plain = {0}, general = {0};
        for (int i = 0; i < n; i++) {
            times[i] =
                (struct cut_time){random_below(100), random_below(100), random_below(100), 0, 0, 0};
            sizes[i] = times[i].fwd_ns + times[i].bwd_input_ns + times[i].bwd_weight_ns;
        }
        assert_int_equal(cut_sizes(sizes, n, stages, &plain, NULL), OK);
        assert_int_equal(cut_solve(&p, &general, NULL), OK);
        assert_cut(&general, plain.max, plain.first_item);
        cut_clear(&plain);
        cut_clear(&general);
    }
}

static void cut_solve__avoids_a_skip_edge_when_its_bytes_cost_more_than_balance(void **state)
{
    /* Four equal items, two stages: the even cut 2,2 crosses the edge 1 -> 2's heavy tensor. */
    static const struct cut_time times[] = {
        {100, 0, 0, 0, 0, 0},
        {100, 0, 0, 0, 0, 0},
        {100, 0, 0, 0, 0, 0},
        {100, 0, 0, 0, 0, 0}
    };
    static const struct cut_item items[4] = {{0}};
    static const struct cut_skip heavy = {1, 2, 1000};
    static const struct cut_link link = {0, 1e9};
    struct cut_problem p = {.num_items = 4,
                            .num_stages = 2,
                            .num_microbatches = 1,
                            .num_classes = 1,
                            .times = times,
                            .items = items,
                            .links = &link};
    struct cut cut = {0};
    (void)state;
    assert_int_equal(cut_solve(&p, &cut, NULL), OK);
    assert_int_equal(cut.first_item[1], 2);
    cut_clear(&cut);
    p.skips = &heavy;
    p.num_skips = 1;
    assert_int_equal(cut_solve(&p, &cut, NULL), OK);
    assert_int_equal(cut.first_item[1], 1);
    assert_int_equal(cut.max, 300);
    cut_clear(&cut);
}

static void cut_solve__says_which_item_does_not_fit(void **state)
{
    static const struct cut_time times[3] = {
        {1, 1, 1, 0, 0, 1},
        {1, 1, 1, 0, 0, 1},
        {1, 1, 1, 0, 0, 1}
    };
    static const struct cut_item items[3] = {
        {.weight_bytes = 10}, {.weight_bytes = 90}, {.weight_bytes = 10}};
    static const int64_t limits[] = {80, 80};
    struct cut_problem p = {.num_items = 3,
                            .num_stages = 2,
                            .num_microbatches = 1,
                            .num_classes = 1,
                            .times = times,
                            .items = items,
                            .mem_limit_bytes = limits};
    struct cut cut = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(cut_solve(&p, &cut, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "item 1 alone needs 90 B"));
}

static void cut_solve__refuses_bad_problems(void **state)
{
    struct cut_time times[3] = {
        {1, 1, 1, 0, 0, 1},
        {1, 1, 1, 0, 0, 1},
        {1, 1, 1, 0, 0, 1}
    };
    struct cut_item items[3] = {{.out_bytes = 1}, {.out_bytes = 1}, {.out_bytes = 1}};
    struct cut_skip skip = {0, 2, 5};
    struct cut_link link = {0, 1e9};
    struct cut_problem good = {.num_items = 3,
                               .num_stages = 2,
                               .num_microbatches = 1,
                               .num_classes = 1,
                               .times = times,
                               .items = items,
                               .skips = &skip,
                               .num_skips = 1,
                               .links = &link},
                       p = good;
    struct cut cut = {0};
    (void)state;
    assert_int_equal(cut_solve(&good, &cut, NULL), OK);
    cut_clear(&cut);
    p.num_stages = 0;
    assert_int_equal(cut_solve(&p, &cut, NULL), ERR_INPUT);
    p.num_stages = 4;
    assert_int_equal(cut_solve(&p, &cut, NULL), ERR_INFEASIBLE);
    p = good;
    p.num_microbatches = 0;
    assert_int_equal(cut_solve(&p, &cut, NULL), ERR_INPUT);
    p = good;
    p.num_frozen = 4;
    assert_int_equal(cut_solve(&p, &cut, NULL), ERR_INPUT);
    skip = (struct cut_skip){2, 2, 5}; /* a cycle */
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    skip = (struct cut_skip){2, 0, 5}; /* backward */
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    skip = (struct cut_skip){0, 3, 5};
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    skip = (struct cut_skip){0, 2, -5};
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    skip = (struct cut_skip){0, 2, 5};
    link.bytes_per_s = 0;
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    link = (struct cut_link){-1, 1e9};
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    link = (struct cut_link){0, 1e9};
    items[1].stash_bytes = -1;
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    items[1].stash_bytes = INT64_MAX;
    items[2].stash_bytes = INT64_MAX;
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    items[1].stash_bytes = items[2].stash_bytes = 0;
    items[0].out_bytes = INT64_MAX - 10;
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    items[0].out_bytes = 0;
    times[2].fwd_ns = -1;
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    times[2].fwd_ns = INT64_MAX;
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    times[2].fwd_ns = 1;
    times[2].fwd_nograd_ns = -1;
    assert_int_equal(cut_solve(&good, &cut, NULL), ERR_INPUT);
    times[2].fwd_nograd_ns = 1;
    assert_int_equal(cut_solve(&good, &cut, NULL), OK);
    cut_clear(&cut);
}

static void cuts__survive_the_failure_of_any_allocation(void **state)
{
    static const int64_t sizes[] = {3, 1, 2, 5};
    struct instance in;
    struct cut cut = {0};
    (void)state;
    if (!FAIL_MALLOC)
        skip();
    for (int n = 0;; n++) {
        fail_malloc_after(n);
        enum status rc = cut_sizes(sizes, 4, 2, &cut, NULL);
        if (fail_malloc_done())
            break;
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(cut.first_item);
    }
    cut_clear(&cut);
    random_state = 6;
    do
        draw_instance(&in, 12, 4);
    while (!in.problem.num_skips || in.problem.mem_limit_bytes);
    for (int n = 0;; n++) {
        fail_malloc_after(n);
        enum status rc = cut_solve(&in.problem, &cut, NULL);
        if (fail_malloc_done())
            break;
        assert_true(n < 100);
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(cut.first_item);
    }
    assert_non_null(cut.first_item);
    cut_clear(&cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_sizes__equals_brute_force_on_small_chains),
        cmocka_unit_test(cut_sizes__equals_the_simple_program_on_longer_chains),
        cmocka_unit_test(cut_sizes__finds_the_published_optimum_of_vit_b),
        cmocka_unit_test(cut_sizes__handles_zeros_and_extremes),
        cmocka_unit_test(cut_sizes__refuses_bad_input_and_leaves_the_cut_alone),
        cmocka_unit_test(cut_solve__equals_brute_force_on_small_instances),
        cmocka_unit_test(cut_solve__equals_the_simple_program_on_larger_instances),
        cmocka_unit_test(cut_solve__equals_cut_sizes_without_extras),
        cmocka_unit_test(cut_solve__avoids_a_skip_edge_when_its_bytes_cost_more_than_balance),
        cmocka_unit_test(cut_solve__says_which_item_does_not_fit),
        cmocka_unit_test(cut_solve__refuses_bad_problems),
        cmocka_unit_test(cuts__survive_the_failure_of_any_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
