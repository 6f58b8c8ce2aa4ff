/* The policy `safe` on histories whose answers follow from closed forms. */
#include "partition/freeze/freeze_replay.h"
#include "partition/model/model.h"
#include "partition/search/turn.h"
#include "tests/unit/test.h"

enum { LAYERS = 8, STEPS = 10, TURNS = 10 };

struct run {
    struct freeze_spec spec;
    struct freeze freeze;
    struct freeze_history history;
    int frozen;
    char reason[160];
};

static void begin(struct run *run, double max_loss)
{
    *run = (struct run){
        .spec = {.policy = FREEZE_SAFE, .alpha = 0.5, .max_loss = max_loss, .min_active = 0}
    };
    assert_int_equal(freeze_init(&run->freeze, &run->spec, LAYERS, NULL), OK);
    run->freeze.passes = 1000;
}

static void end(struct run *run)
{
    freeze_clear(&run->freeze);
    freeze_history_clear(&run->history);
}

/* A row of a run of TURNS turns at a constant rate, with loss 1 and accuracy 0.5: one nat is worth 50
 * points. The whole fall is known well. */
static struct freeze_evidence row_at(const struct run *run, int turn, double fall)
{
    return (struct freeze_evidence){.turn = turn,
                                    .step = (turn + 1) * STEPS,
                                    .num_frozen = run->frozen,
                                    .rate_window = STEPS,
                                    .rate_left = (TURNS - 1 - turn) * STEPS,
                                    .steps_window = STEPS,
                                    .steps_left = (TURNS - 1 - turn) * STEPS,
                                    .loss = 1,
                                    .loss_before = 1 + fall,
                                    .fall_se = 1e-6,
                                    .accuracy = 0.5,
                                    .num_probe = 100};
}

static void add(struct freeze_evidence *row, int frozen, double share, double se)
{
    assert_int_equal(freeze_evidence_add(row, (struct freeze_candidate){frozen, share, se}, NULL),
                     OK);
}

/* The row's turn is over: decide on the next one. */
static const struct freeze_verdict *decide(struct run *run, struct freeze_evidence *row)
{
    const int64_t turn = row->turn + 1;
    assert_int_equal(freeze_history_add(&run->history, row, NULL), OK);
    const struct turn_facts facts = {.history = &run->history};
    assert_int_equal(turn_decide(&run->freeze, &facts, turn, &run->frozen, run->reason, NULL), OK);
    return &run->freeze.verdict;
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-4 * (fabs(want) + 1e-3))
        fail_msg("got %g, want %g", got, want);
}

/* The mean of max(x, 0) for a normal x, summed over fine steps. */
static double positive_part(double mean, double sd)
{
    const double step = 1e-4;
    double sum = 0;
    for (double z = -8; z < 8; z += step) {
        const double x = mean + z * sd;
        sum += (x > 0 ? x : 0) * exp(-z * z / 2) / sqrt(2 * 3.14159265358979) * step;
    }
    return sum;
}

static void cost__is_share_times_what_is_left(void **state)
{
    struct run run;
    (void)state;
    begin(&run, 100);
    struct freeze_evidence row = row_at(&run, 1, 0.5);
    add(&row, 4, 0.01, 1e-7);
    decide(&run, &row);
    assert_int_equal(run.frozen, 4);
    near(run.freeze.verdict.cost, 0.01 * 8 * 50); /* 8 windows are left */
    near(run.freeze.verdict.left, 100 - 0.01 * 8 * 50);
    end(&run);
}

static void cost__counts_rates_in_a_warm_up_and_steps_in_a_decay(void **state)
{
    (void)state;
    for (int decay = 0; decay < 2; decay++) {
        struct run run;
        begin(&run, 1000);
        struct freeze_evidence row = row_at(&run, 1, 0.5);
        row.rate_window = decay ? 100 : 1;
        row.rate_left = 80;
        add(&row, 4, 0.01, 1e-7);
        decide(&run, &row);
        near(run.freeze.verdict.cost, 0.01 * (decay ? 8 : 80) * 50);
        end(&run);
    }
}

/* A language model's budget is per cent of its loss. */
static void cost__is_per_cent_of_the_loss_without_an_accuracy(void **state)
{
    struct run run;
    (void)state;
    begin(&run, 100);
    struct freeze_evidence row = row_at(&run, 1, 0.5);
    row.accuracy = NAN;
    row.loss = 4, row.loss_before = 4.5;
    add(&row, 4, 0.01, 1e-7);
    decide(&run, &row);
    near(run.freeze.verdict.cost, 0.01 * 8 * 100 / 4);
    end(&run);
}

/* The plateau before a model begins to learn is no reason to freeze, however little any layer brings. */
static void freeze__waits_until_something_is_learned(void **state)
{
    struct run run;
    (void)state;
    begin(&run, 1);
    struct freeze_evidence flat = row_at(&run, 1, 0.001);
    flat.fall_se = 0.002;
    add(&flat, 4, 0, 1e-6);
    decide(&run, &flat);
    assert_int_equal(run.frozen, 0);
    assert_non_null(strstr(run.freeze.verdict.reason, "nothing is learned yet"));
    struct freeze_evidence falls = row_at(&run, 2, 0.1);
    falls.fall_se = 0.002;
    add(&falls, 4, 0, 1e-6);
    decide(&run, &falls);
    assert_int_equal(run.frozen, 4);
    end(&run);
}

/* Two windows from step 0 to 10 and to 20, of 100 steps. The first one counts as if its mean rate
 * were that at its end. */
static void cost__follows_the_law_of_the_falls(void **state)
{
    static const struct {
        double falls[2], se, windows; /* what a share of the second window costs, in shares */
    } cases[] = {
        {{0.1, 0.2},           1e-7, 2 * 8                                                   }, /* grows */
        {{0.1, 0.9},           1e-7, 4 * 8                                                   }, /* most */
        {{0.1, 0.1},           1e-7, 8                                                       },
 /* rate t^-1/2; the prefix brings 0.01 / 0.8284 of it */
        {{0.1, 0.08284271247}, 1e-7, 2 * (10 - 9.951598593944) / 0.01207106781 / 2.6197165897},
 /* rate 1/t, and slower: log(100 / (20 + 0.9 * 80)) / 0.1, and log 2 a window */
        {{0.1, 0.01},          1e-7, 0.8338160894 / 0.6931471806                             },
        {{1.0, 0.1},           0.2,  1.6094379124 / 0.6931471806                             }, /* noise */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        begin(&run, 1000);
        struct freeze_evidence first = row_at(&run, 0, cases[i].falls[0]);
        first.fall_se = cases[i].se;
        decide(&run, &first);
        struct freeze_evidence row = row_at(&run, 1, cases[i].falls[1]);
        row.fall_se = cases[i].se;
        add(&row, 4, 0.001, 1e-8);
        decide(&run, &row);
        near(run.freeze.verdict.cost, 0.001 * 50 * cases[i].windows);
        end(&run);
    }
}

/* Training as a flow: the loss falls at a rate that depends on the loss alone, and the prefix
 * brings 60 % of it. Frozen at step 20 of 100, it costs what the two runs differ by at the end. */
static void cost__is_what_a_slower_run_lacks(void **state)
{
    const double a = 0.05, share = 0.6, step = 1e-3;
    double with = -a * log(20), without = with; /* a / t = a exp(loss / a) */
    struct run run;
    (void)state;
    for (double t = 20; t < 100; t += step) {
        with -= a * exp(with / a) * step;
        without -= (1 - share) * a * exp(without / a) * step;
    }
    begin(&run, 1000);
    struct freeze_evidence first = row_at(&run, 0, 1);
    decide(&run, &first);
    struct freeze_evidence row = row_at(&run, 1, a * log(2));
    row.fall_se = 1e-9;
    add(&row, 4, share * a * log(2), 1e-9);
    decide(&run, &row);
    near(run.freeze.verdict.cost, 50 * (without - with));
    end(&run);
}

/* In the first window the layers above 4 brought 0.04. In the second, with 4 frozen, they bring as
 * much more slowly as a rate of 1/t has it, though the whole fall shrinks faster. */
static void cost__knows_the_law_behind_a_freeze(void **state)
{
    struct run run;
    (void)state;
    begin(&run, 1000);
    struct freeze_evidence first = row_at(&run, 0, 0.1);
    add(&first, 4, 0.06, 1e-9);
    decide(&run, &first);
    assert_int_equal(run.frozen, 4);
    const double spent = run.freeze.verdict.cost, fall = 0.04 * log(2);
    struct freeze_evidence row = row_at(&run, 1, fall);
    row.fall_se = 1e-9;
    add(&row, 6, fall / 4, 1e-9);
    decide(&run, &row);
    near(run.freeze.verdict.cost - spent, 50 * fall * log(100 / (20 + 0.75 * 80)) / log(2));
    end(&run);
}

/* From 0.1 to 0.5 on a fall of 0.5 nats: 80 points a nat, less what noise of the samples explains. */
static void cost__counts_a_rise_of_the_accuracy_beyond_noise(void **state)
{
    (void)state;
    for (int few = 0; few < 2; few++) {
        struct run run;
        begin(&run, 1000);
        struct freeze_evidence first = row_at(&run, 0, 0.5);
        first.accuracy = 0.1;
        first.loss = 1.5, first.loss_before = 2;
        decide(&run, &first);
        struct freeze_evidence row = row_at(&run, 1, 0.5);
        row.num_probe = few ? 4 : 100;
        add(&row, 4, 0.001, 1e-8);
        decide(&run, &row);
        const double noise = 0.8416 * sqrt((0.09 + 0.25) / 100);
        near(run.freeze.verdict.cost, 0.001 * 8 * (few ? 50 : 100 * (0.4 - noise) / 0.5));
        end(&run);
    }
}

static void cost__weighs_a_noisy_share_against_the_whole_fall(void **state)
{
    struct run run;
    (void)state;
    begin(&run, 1000);
    struct freeze_evidence row = row_at(&run, 1, 0.003);
    add(&row, 4, 0.01, 0.004);
    decide(&run, &row);
    const double trust = 9e-6 / (9e-6 + 16e-6);
    const double mean = 0.01 * trust * 8 * 50, se = sqrt(trust) * 0.004 * 8 * 50;
    near(run.freeze.verdict.cost, positive_part(mean, se));
    near(run.freeze.verdict.cost_se, se);
    end(&run);
}

/* Rows of equal shares are one long window: the noise of each averages out. */
static void cost__pools_rows(void **state)
{
    struct run run;
    (void)state;
    begin(&run, 10);
    for (int turn = 0; turn < 4; turn++) {
        struct freeze_evidence row = row_at(&run, turn, 10);
        add(&row, 4, 0.01, 0.05);
        decide(&run, &row);
        if (turn < 3) /* not sure enough */
            assert_int_equal(run.frozen, 0);
    }
    assert_int_equal(run.frozen, 4);
    const double mean = 4 * 0.01 * 6 / 4 * 50, se = sqrt(4) * 0.05 * 6 / 4 * 50;
    near(run.freeze.verdict.cost, positive_part(mean, se));
    near(run.freeze.verdict.cost_se, se);
    end(&run);
}

static void decision__is_never_to_freeze_without_a_budget(void **state)
{
    struct run run;
    (void)state;
    begin(&run, 0);
    for (int turn = 0; turn < TURNS - 1; turn++) {
        struct freeze_evidence row = row_at(&run, turn, 0);
        assert_false(freeze_safe_due(&run.freeze, &run.history, &row));
        add(&row, 1, -1, 0);
        decide(&run, &row);
        assert_int_equal(run.frozen, 0);
        assert_string_equal(run.reason, "freeze.max_loss is 0, so nothing freezes");
    }
    end(&run);
}

static void decision__spends_the_budget_once(void **state)
{
    struct run run;
    (void)state;
    begin(&run, 1);
    struct freeze_evidence row = row_at(&run, 4, 0.5);
    add(&row, 4, 0.0024, 1e-8); /* 5 windows, 50 points a nat: 0.6 points */
    decide(&run, &row);
    assert_int_equal(run.frozen, 4);
    row = row_at(&run, 5, 0.4976);
    add(&row, 6, 0.0024, 1e-8); /* 0.48 points */
    decide(&run, &row);
    assert_int_equal(run.frozen, 4);
    assert_non_null(strstr(run.reason, "stay at 4"));
    row = row_at(&run, 6, 0.4976);
    add(&row, 6, 0.0024, 1e-8); /* 0.36 points */
    decide(&run, &row);
    assert_int_equal(run.frozen, 6);
    near(run.freeze.verdict.cost, 0.96);
    end(&run);
}

static void decision__takes_what_saves_most_of_what_fits(void **state)
{
    static const double falling[LAYERS + 1] = {10, 9, 8, 8, 6, 6, 6, 6, 6},
                                         flat[LAYERS + 1] = {10, 10, 9.96, 10, 10, 10, 10, 10, 10};
    (void)state;
    for (int saves = 0; saves < 2; saves++) {
        struct run run;
        begin(&run, 1);
        struct freeze_evidence row = row_at(&run, 4, 0.5);
        row.sample_ns = malloc(sizeof falling);
        memcpy(row.sample_ns, saves ? falling : flat, sizeof falling);
        add(&row, 1, 0, 0);
        add(&row, 2, 0.0001, 1e-8);
        add(&row, 3, 0.0002, 1e-8); /* saves no more than 2 */
        add(&row, 4, 0.01, 1e-8);   /* does not fit */
        decide(&run, &row);
        assert_int_equal(run.frozen, saves ? 2 : 0);
        if (!saves)
            assert_string_equal(run.reason, "stay at 0: no measured prefix would save time");
        end(&run);
    }
}

/* Two windows of the same fall, of which the layers above 4 bring all; then a third in which these
 * layers bring `later`. */
static void freeze_then(struct run *run, double later, double se)
{
    begin(run, 1);
    for (int turn = 3; turn < 5; turn++) {
        struct freeze_evidence row = row_at(run, turn, 0.1);
        if (turn == 4)
            add(&row, 4, 0, 1e-6);
        decide(run, &row);
    }
    assert_int_equal(run->frozen, 4);
    int least, most;
    freeze_bounds(&run->freeze, 6, &least, &most);
    assert_int_equal(least, 0);
    assert_int_equal(freeze_lowest(&run->freeze, 6), 0);
    struct freeze_evidence row = row_at(run, 5, later);
    row.fall_se = se;
    decide(run, &row);
}

static void undo__comes_when_the_rest_brings_too_little(void **state)
{
    /* Due are 0.1 * 5/6: the fall goes on as 1/t. One point is 0.02 nats. */
    static const struct {
        double later, se;
        int frozen;
    } cases[] = {
        {0.08,            1e-6, 4},
        {0.0834 - 0.0195, 1e-6, 4}, /* within the budget */
        {0.0834 - 0.0210, 1e-6, 0},
        {0.0834 - 0.0210, 0.05, 4}, /* noise */
        {-0.1,            0.05, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        freeze_then(&run, cases[i].later, cases[i].se);
        assert_int_equal(run.frozen, cases[i].frozen);
        assert_int_equal(freeze_lowest(&run.freeze, 7), cases[i].frozen);
        assert_true((strstr(run.reason, "undo 4, back to 0") != NULL) == (cases[i].frozen == 0));
        end(&run);
    }
}

static void undo__is_followed_by_two_turns_without_a_freeze(void **state)
{
    struct run run;
    (void)state;
    freeze_then(&run, 0.0834 - 0.0210, 1e-6);
    assert_true(run.freeze.verdict.left >
                0.2); /* what is left of the run makes up for most of it */
    for (int turn = 6; turn < 9; turn++) {
        struct freeze_evidence row = row_at(&run, turn, 0.1);
        assert_int_equal(freeze_safe_due(&run.freeze, &run.history, &row), turn == 8);
        add(&row, 4, 0, 1e-9);
        decide(&run, &row);
        assert_int_equal(run.frozen, turn == 8 ? 4 : 0);
    }
    end(&run);
}

static void ask__halves_what_surely_does_not_fit_and_is_near(void **state)
{
    struct run run;
    (void)state;
    begin(&run, 1);
    struct freeze_evidence row = row_at(&run, 3, 0.5);
    add(&row, 4, 0.012, 1e-6); /* one window shows no law */
    assert_int_equal(freeze_safe_ask(&run.freeze, &run.history, &row), -1);
    decide(&run, &row);
    row = row_at(&run, 4, 0.5);
    static const int wanted[] = {4, 2, 1};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(freeze_safe_ask(&run.freeze, &run.history, &row), wanted[i]);
        add(&row, wanted[i], 0.012, 1e-6); /* 3 points */
    }
    assert_int_equal(freeze_safe_ask(&run.freeze, &run.history, &row), -1);
    freeze_evidence_clear(&row);
    for (int far = 0; far < 2; far++) {
        row = row_at(&run, 4, 0.5);
        add(&row, 4, far ? 0.017 : 0, 1e-6);
        assert_int_equal(freeze_safe_ask(&run.freeze, &run.history, &row), -1);
        freeze_evidence_clear(&row);
    }
    row = row_at(&run, 4, 0.5);
    add(&row, 4, 0.005, 0.005); /* 1.25 points and as much noise */
    assert_int_equal(freeze_safe_ask(&run.freeze, &run.history, &row), -1);
    freeze_evidence_clear(&row);
    end(&run);
}

/* Random runs, evidence asked for as the trainer asks: what it costs stays within the allowance, F
 * within its bounds and not below what freeze_lowest() said; and a repetition from the rows alone
 * decides the same. */
static void random_runs__keep_the_promises_of_the_interface(void **state)
{
    int frozen_ever = 0, undone_ever = 0;
    (void)state;
    for (int trial = 0; trial < 400; trial++) {
        struct run run, again;
        int lowest = 0, decisions[TURNS + 1] = {0};
        double base;
        begin(&run, trial % 3 ? 1 : 5);
        run.freeze.passes = 8 + trial % 40;
        base = random_unit() * 0.01;
        for (int turn = 0; turn < TURNS - 1; turn++) {
            struct freeze_evidence row = row_at(&run, turn, base + 0.2 * (random_unit() - 0.5));
            const bool due = freeze_safe_due(&run.freeze, &run.history, &row);
            int frozen = due ? freeze_safe_ask(&run.freeze, &run.history, &row) : -1, least, most;
            row.fall_se = 0.003;
            for (; frozen > 0; frozen = freeze_safe_ask(&run.freeze, &run.history, &row)) {
                add(&row, frozen, 0.004 * (random_unit() - 0.6), 0.001 * random_unit());
                row.passes = freeze_safe_row_passes(&run.freeze, &run.history, &row);
            }
            row.passes = freeze_safe_row_passes(&run.freeze, &run.history, &row);
            freeze_bounds(&run.freeze, turn + 1, &least, &most);
            const int before = run.frozen;
            if (due) {
                decide(&run, &row);
            } else {
                const struct turn_facts facts = {.history = &run.history};
                assert_int_equal(
                    turn_decide(&run.freeze, &facts, turn + 1, &run.frozen, run.reason, NULL), OK);
            }
            assert_in_range(run.frozen, least, most);
            assert_true(run.frozen >= lowest);
            lowest = freeze_lowest(&run.freeze, turn + 2);
            decisions[turn + 1] = run.frozen;
            frozen_ever += run.frozen > before;
            undone_ever += run.frozen < before;
            freeze_evidence_clear(&row);
        }
        double passes = 0;
        for (int64_t i = 0; i < run.history.num_rows; i++)
            passes += run.history.rows[i].passes;
        assert_true(passes <= run.freeze.passes);
        begin(&again, run.spec.max_loss);
        for (int turn = 0; turn < TURNS; turn++) {
            const struct turn_facts facts = {.history = &run.history};
            assert_int_equal(
                turn_decide(&again.freeze, &facts, turn, &again.frozen, again.reason, NULL), OK);
            assert_int_equal(again.frozen, decisions[turn]);
        }
        end(&again);
        end(&run);
    }
    assert_true(frozen_ever > 100 && undone_ever > 10); /* or the test shows nothing */
}

static void probe__is_as_large_as_its_cost_allows(void **state)
{
    (void)state;
    assert_int_equal(freeze_safe_probe(0, 25600, 10000), 96);
    assert_int_equal(freeze_safe_probe(0, 25600, 90), 90);
    assert_int_equal(freeze_safe_probe(0, 500000, 10000), 1024);
    assert_int_equal(freeze_safe_probe(0, 100, 10000), 32);
    assert_int_equal(freeze_safe_probe(77, 100, 10000), 77);
    near(freeze_safe_passes(0, 25600, 128), 12); /* 12 * 128 = 2 % of 3 * 25600 */
    near(freeze_safe_passes(512, 25600, 512), 16);
    near(freeze_safe_passes(0, 25600, 512), 3);
}

/* Eight equal layers behind an embedding that takes no time. */
/* On a first row the fall continues as it was, so a share s costs 50 s fall left / STEPS points. */
static void shares__fit_the_budget_by_the_closed_form(void **state)
{
    (void)state;
    for (int turn = 0; turn < 8; turn++)
        for (double fall = 0.001; fall < 1; fall *= 3)
            for (double budget = 0.1; budget < 20; budget *= 2) {
                struct run run;
                begin(&run, budget);
                run.spec.max_share = 0.9;
                run.spec.min_active = LAYERS; /* no prefix */
                struct freeze_evidence row = row_at(&run, turn, fall);
                const double want = budget / (50 * fall * (TURNS - 1 - turn));
                decide(&run, &row);
                if (fabs(run.freeze.safe.share - (want < 0.9 ? want : 0.9)) > 2e-3 * want)
                    fail_msg("share %g, want %g", run.freeze.safe.share, want);
                end(&run);
            }
}

/* Rows of equal falls: what earlier turns have left out is gone, so that all together stays within
 * the budget. A row that shows a larger fall lowers the share; nothing learned, or no budget: 0. */
static void shares__are_lowered_by_what_they_have_cost_and_by_new_rows(void **state)
{
    struct run run, more;
    double lost = 0;
    (void)state;
    begin(&run, 2);
    run.spec.max_share = 0.9;
    run.spec.min_active = LAYERS;
    for (int turn = 0; turn < TURNS - 1; turn++) {
        struct freeze_evidence row = row_at(&run, turn, 0.01);
        lost += run.freeze.safe.share * STEPS;
        decide(&run, &row);
        near(run.freeze.safe.lost_steps, lost);
        assert_true(run.freeze.safe.share <= 0.9);
        /* at half a point a turn of steps; the noise lets the law slow down by a little */
        if (run.freeze.safe.share > 0)
            assert_true(0.5 * (lost + run.freeze.safe.share * (TURNS - 1 - turn) * STEPS) / STEPS <=
                        2.02);
    }
    assert_true(lost > 0);
    end(&run);
    for (int large = 0; large < 2; large++) {
        begin(&more, 2);
        more.spec.max_share = 0.9;
        more.spec.min_active = LAYERS;
        struct freeze_evidence first = row_at(&more, 3, 0.01);
        decide(&more, &first);
        const double before = more.freeze.safe.share;
        struct freeze_evidence second = row_at(&more, 4, large ? 0.3 : 0.002);
        decide(&more, &second);
        assert_true(before > 0);
        assert_true(large ? more.freeze.safe.share < before : more.freeze.safe.share >= before);
        end(&more);
    }
    for (int none = 0; none < 2; none++) {
        begin(&more, none ? 0 : 2);
        more.spec.max_share = 0.9;
        struct freeze_evidence row = row_at(&more, 1, none ? 0.01 : -0.1);
        decide(&more, &row);
        assert_true(more.freeze.safe.share == 0);
        end(&more);
    }
}

static void passes__count_the_layers_that_run(void **state)
{
    struct item items[LAYERS + 1] = {{.layer = -1}};
    const struct model model = {.items = items, .num_items = LAYERS + 1, .num_layers = LAYERS};
    struct run run;
    (void)state;
    for (int l = 0; l < LAYERS; l++)
        items[l + 1] = (struct item){.layer = l, .fwd_flops = 100};
    begin(&run, 1);
    run.freeze.keeps = &model;
    struct freeze_evidence row = row_at(&run, 4, 0.5);
    near(freeze_safe_candidate_passes(&run.freeze, &run.history, &row, 4), 1); /* 2 * 1/2 */
    add(&row, 4, 0.01, 1e-8);
    near(freeze_safe_row_passes(&run.freeze, &run.history, &row), 3);
    decide(&run, &row);
    assert_int_equal(run.frozen, 0);
    row = row_at(&run, 5, 0.5); /* L(o,o) and the lagged prefix are known */
    near(freeze_safe_row_passes(&run.freeze, &run.history, &row), 1);
    add(&row, 4, 0, 1e-8);
    near(freeze_safe_row_passes(&run.freeze, &run.history, &row), 2);
    near(freeze_safe_candidate_passes(&run.freeze, &run.history, &row, 2), 2);
    decide(&run, &row);
    assert_int_equal(run.frozen, 4);
    row = row_at(&run, 6, 0.5); /* behind 4 the input was kept, behind 6 that of today */
    near(freeze_safe_row_passes(&run.freeze, &run.history, &row), 0.5);
    near(freeze_safe_candidate_passes(&run.freeze, &run.history, &row, 6), 0.25 + 0.5);
    freeze_evidence_clear(&row);
    end(&run);
}

/* Half of the allowance is there in advance, the other half with the time of the steps: none comes
 * where frozen layers leave nearly no time. */
static void passes__become_due_with_the_time_of_the_run(void **state)
{
    (void)state;
    for (int idle = 0; idle < 2; idle++) {
        struct run run;
        begin(&run, 1);
        run.freeze.passes = 12;
        struct freeze_evidence row = row_at(&run, 4, 0.5);
        row.sample_ns = calloc(LAYERS + 1, sizeof *row.sample_ns);
        row.sample_ns[0] = 100, row.sample_ns[4] = idle ? 1 : 90;
        row.passes = 6;
        add(&row, 4, 0, 1e-8);
        decide(&run, &row);
        assert_int_equal(run.frozen, 4);
        for (int turn = 5; turn < 9; turn++) {
            /* 12 * (0.5 + 0.9 * (0.1 * (turn - 4) + 0.05 * (9 - turn))) are due, 6 are spent */
            struct freeze_evidence next = row_at(&run, turn, 0.5);
            run.freeze.safe.pending = false;
            assert_int_equal(freeze_safe_due(&run.freeze, &run.history, &next),
                             !idle && 12 * 0.9 * 0.05 * (turn + 1) >= 3);
        }
        end(&run);
    }
}

/* A recorded run that measured prefixes 2, 4 and 8 in every turn. */
static struct freeze_history recorded_run(int num_frozen, double share)
{
    struct freeze_history recorded = {0};
    for (int turn = 0; turn < TURNS - 1; turn++) {
        const struct run as = {.frozen = num_frozen};
        struct freeze_evidence row = row_at(&as, turn, 0.5);
        row.passes = 7; /* the replay counts its own */
        for (int f = num_frozen + 2; f <= LAYERS; f *= 2)
            add(&row, f, share * (f - num_frozen), 1e-6);
        assert_int_equal(freeze_history_add(&recorded, &row, NULL), OK);
    }
    return recorded;
}

static void replay__interpolates_and_leaves_out_what_is_frozen(void **state)
{
    struct freeze_history recorded = recorded_run(0, 0.01);
    struct freeze_candidate got;
    (void)state;
    assert_true(freeze_replay_share(&recorded.rows[0], 0, 3, &got));
    near(got.share, 0.03);
    near(got.share_se, 1e-6);
    assert_true(freeze_replay_share(&recorded.rows[0], 0, 1, &got));
    near(got.share, 0.01);
    assert_true(freeze_replay_share(&recorded.rows[0], 3, 7, &got));
    near(got.share, 0.04);
    assert_false(freeze_replay_share(&recorded.rows[0], 0, 9, &got));
    freeze_history_clear(&recorded);
    recorded = recorded_run(2, 0.01); /* what lies below was not trained */
    assert_false(freeze_replay_share(&recorded.rows[0], 0, 4, &got));
    assert_true(freeze_replay_share(&recorded.rows[0], 2, 4, &got));
    near(got.share, 0.02);
    freeze_history_clear(&recorded);
}

/* Drive a replay as simulator and `elapse freeze` do. */
static void replay_all(struct run *run, const struct freeze_history *recorded,
                       struct freeze_replay *replay)
{
    *replay = (struct freeze_replay){.recorded = recorded};
    for (int turn = 0; turn < TURNS; turn++) {
        const struct turn_facts facts = {.history = &replay->history};
        if (turn > 0)
            assert_int_equal(freeze_replay_turn(replay, &run->freeze, turn - 1, NULL, NULL), OK);
        assert_int_equal(turn_decide(&run->freeze, &facts, turn, &run->frozen, run->reason, NULL),
                         OK);
    }
}

static void replay__adds_turns_up_to_the_window_that_is_wanted(void **state)
{
    struct freeze_history recorded = recorded_run(0, 0.01);
    struct freeze_replay replay;
    struct run run;
    (void)state;
    begin(&run, 0.5);
    run.freeze.passes = 7.5; /* after one turn 4.1 may be spent: two ends and one candidate */
    replay_all(&run, &recorded, &replay);
    assert_int_equal(replay.history.num_rows, 2);
    assert_int_equal(replay.history.rows[0].turn, 0);
    assert_int_equal(replay.history.rows[1].turn, 8); /* 7.1: another end and candidate */
    near(replay.history.rows[1].steps_window, 8 * STEPS);
    near(replay.history.rows[1].rate_window, 8 * STEPS);
    near(replay.history.rows[1].candidates[0].share, 8 * 0.04);
    near(replay.history.rows[1].candidates[0].share_se, sqrt(8) * 1e-6);
    assert_int_equal(run.frozen, 0);
    freeze_replay_clear(&replay);
    end(&run);
    freeze_history_clear(&recorded);
}

static void replay__freezes_further_by_what_a_static_run_has_shown(void **state)
{
    struct freeze_history recorded = recorded_run(0, 0);
    struct freeze_replay replay;
    struct run run;
    (void)state;
    begin(&run, 1);
    replay_all(&run, &recorded, &replay);
    assert_int_equal(run.frozen, 8); /* 4, 6, 7, 8: half of what is active each time */
    freeze_replay_clear(&replay);
    end(&run);
    freeze_history_clear(&recorded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freeze__waits_until_something_is_learned),
        cmocka_unit_test(cost__is_share_times_what_is_left),
        cmocka_unit_test(cost__counts_rates_in_a_warm_up_and_steps_in_a_decay),
        cmocka_unit_test(cost__is_per_cent_of_the_loss_without_an_accuracy),
        cmocka_unit_test(cost__follows_the_law_of_the_falls),
        cmocka_unit_test(cost__is_what_a_slower_run_lacks),
        cmocka_unit_test(cost__knows_the_law_behind_a_freeze),
        cmocka_unit_test(cost__counts_a_rise_of_the_accuracy_beyond_noise),
        cmocka_unit_test(cost__weighs_a_noisy_share_against_the_whole_fall),
        cmocka_unit_test(cost__pools_rows),
        cmocka_unit_test(decision__is_never_to_freeze_without_a_budget),
        cmocka_unit_test(decision__spends_the_budget_once),
        cmocka_unit_test(decision__takes_what_saves_most_of_what_fits),
        cmocka_unit_test(undo__comes_when_the_rest_brings_too_little),
        cmocka_unit_test(undo__is_followed_by_two_turns_without_a_freeze),
        cmocka_unit_test(ask__halves_what_surely_does_not_fit_and_is_near),
        cmocka_unit_test(random_runs__keep_the_promises_of_the_interface),
        cmocka_unit_test(replay__interpolates_and_leaves_out_what_is_frozen),
        cmocka_unit_test(replay__adds_turns_up_to_the_window_that_is_wanted),
        cmocka_unit_test(replay__freezes_further_by_what_a_static_run_has_shown),
        cmocka_unit_test(probe__is_as_large_as_its_cost_allows),
        cmocka_unit_test(shares__fit_the_budget_by_the_closed_form),
        cmocka_unit_test(shares__are_lowered_by_what_they_have_cost_and_by_new_rows),
        cmocka_unit_test(passes__count_the_layers_that_run),
        cmocka_unit_test(passes__become_due_with_the_time_of_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
