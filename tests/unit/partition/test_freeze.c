/* The freeze policies against the release's goldens, and against numbers worked out by hand. */
#include "partition/freeze/freeze.h"
#include "partition/freeze/apf.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

static struct freeze_spec spec_of(enum freeze_policy policy, double alpha)
{
    return (struct freeze_spec){.policy = policy, .alpha = alpha};
}

/* Decisions before epochs 0..n-1; norms of epoch e at norms[e * layers], NULL: none. */
static void run(const struct freeze_spec *spec, int layers, int n, const double *norms, int *out)
{
    struct freeze freeze = {0};
    struct err err = {0};
    assert_int_equal(freeze_init(&freeze, spec, layers, &err), OK);
    for (int e = 0; e < n; e++)
        assert_int_equal(freeze_decide(&freeze, e, norms && e > 0 ? norms + (e - 1) * layers : NULL,
                                       &out[e], NULL, &err),
                         OK);
    freeze_clear(&freeze);
}

static void closed_form__gives_the_published_sequences(void **state)
{
    static const int third12[] = {0, 4, 7, 9, 10, 11, 11, 12, 12, 12};
    static const int third24[] = {0, 8, 14, 17, 20, 21, 22, 23, 24, 24};
    static const int half12[] = {0, 6, 9, 11, 12, 12, 12, 12, 12, 12};
    struct freeze_spec third = spec_of(FREEZE_CLOSED_FORM, 1.0 / 3),
                       half = spec_of(FREEZE_CLOSED_FORM, 0.5);
    int got[10];
    (void)state;
    run(&third, 12, 10, NULL, got);
    assert_memory_equal(got, third12, sizeof got);
    run(&third, 24, 10, NULL, got);
    assert_memory_equal(got, third24, sizeof got);
    run(&half, 12, 10, NULL, got);
    assert_memory_equal(got, half12, sizeof got);
}

static void closed_form__equals_the_geometric_sum_up_to_rounding(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 96; layers++)
        for (int a = 1; a < 20; a++)
            for (int epoch = 0; epoch < 40; epoch++) {
                double alpha = a / 20.0, exact = layers * (1 - pow(1 - alpha, epoch));
                int got = freeze_closed_form(layers, alpha, epoch);
                assert_in_range(got, (int)ceil(exact - 1e-9), (int)ceil(exact + 1e-9));
            }
}

static void closed_form__ends_at_all_layers_when_powers_leave_the_doubles(void **state)
{
    (void)state;
    assert_int_equal(freeze_closed_form(12, 0.9, 1000000), 12);
    assert_int_equal(freeze_closed_form(12, 1e-9, 1), 1);
}

static void gradient_norm__takes_the_smaller_of_cap_and_argmin(void **state)
{
    /* L = 6, alpha = 1/2. Before epoch 1: cap 3, smallest at 1 -> 1. Before 2: cap ceil(1 + 2.5) =
     * 4, smallest active at 5 -> 4. Before 3: cap 5, smallest at 4 -> 4, a rest (layer 0's zero is
     * frozen and does not count). Before 4: cap 5, smallest at 5 -> 5. Before 5: only layer 5. */
    static const double norms[] = {5, 1, 4, 4, 4, 4, 0, 5, 4, 3, 2, 1, 0, 0, 0,
                                   0, 1, 2, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 1};
    static const int want[] = {0, 1, 4, 4, 5, 5};
    struct freeze_spec spec = spec_of(FREEZE_GRADIENT_NORM, 0.5);
    int got[6];
    (void)state;
    run(&spec, 6, 6, norms, got);
    assert_memory_equal(got, want, sizeof got);
}

static void gradient_norm__takes_the_lowest_of_equal_norms(void **state)
{
    static const double norms[] = {3, 1, 1, 1, 3, 3, 3, 3};
    static const int want[] = {0, 1};
    struct freeze_spec spec = spec_of(FREEZE_GRADIENT_NORM, 0.5);
    int got[2];
    (void)state;
    run(&spec, 8, 2, norms, got);
    assert_memory_equal(got, want, sizeof got);
}

static void gradient_norm__uses_its_cap_alone_and_says_so_without_norms(void **state)
{
    static const int want[] = {0, 4, 7, 9, 10, 11, 12, 12};
    struct freeze_spec spec = spec_of(FREEZE_GRADIENT_NORM, 1.0 / 3);
    struct freeze freeze = {0};
    char reason[160];
    int frozen, got[8];
    (void)state;
    run(&spec, 12, 8, NULL, got);
    assert_memory_equal(got, want, sizeof got);
    assert_int_equal(freeze_init(&freeze, &spec, 12, NULL), OK);
    assert_int_equal(freeze_decide(&freeze, 0, NULL, &frozen, reason, NULL), OK);
    assert_int_equal(freeze_decide(&freeze, 1, NULL, &frozen, reason, NULL), OK);
    assert_non_null(strstr(reason, "cap alone"));
    freeze_clear(&freeze);
}

static void gradient_norm__caps_at_the_exact_share_for_every_ratio(void **state)
{
    (void)state;
    for (int q = 2; q <= 64; q++) {
        for (int p = 1; p < q; p++) {
            struct freeze_spec spec = spec_of(FREEZE_GRADIENT_NORM, (double)p / q);
            for (int layers = 1; layers <= 96; layers++) {
                int got[4], frozen = 0;
                run(&spec, layers, 4, NULL, got);
                for (int epoch = 1; epoch < 4; epoch++) {
                    frozen += (p * (layers - frozen) + q - 1) / q; /* in whole numbers */
                    if (got[epoch] != frozen)
                        fail_msg("alpha %d/%d, %d layers, epoch %d: %d, not %d", p, q, layers,
                                 epoch, got[epoch], frozen);
                }
            }
        }
    }
    /* a share far below one layer is one layer */
    struct freeze_spec spec = spec_of(FREEZE_GRADIENT_NORM, 1e-12);
    int got[2];
    run(&spec, 12, 2, NULL, got);
    assert_int_equal(got[1], 1);
}

static void relative_change__freezes_up_to_the_first_layer_at_the_median(void **state)
{
    /* Changes before epoch 2: .1 .2 .3 .4 -> median .25 -> layer 2 -> F = 3. Before 3: one active
     * layer is its own median -> F = 4. */
    static const double norms[] = {10, 10, 10, 10, 9, 8, 7, 6, 9, 8, 7, 5};
    static const int want[] = {0, 0, 3, 4};
    /* Before epoch 2: .4 .1 .1 .1 -> median .1 -> layer 0 -> F = 1; then .5 .1 .2 of layers 1..3 ->
     * median .2 -> layer 1 -> F = 2. */
    static const double rest[] = {10, 10, 10, 10, 6, 9, 9, 9, 6, 4.5, 8.1, 7.2};
    static const int want_rest[] = {0, 0, 1, 2};
    struct freeze_spec spec = spec_of(FREEZE_RELATIVE_CHANGE, 0);
    int got[4];
    (void)state;
    run(&spec, 4, 4, norms, got);
    assert_memory_equal(got, want, sizeof got);
    run(&spec, 4, 4, rest, got);
    assert_memory_equal(got, want_rest, sizeof got);
}

/* The same changes: the walk ends before the layer that changed by the median. */
static void autofreeze__freezes_the_layers_below_the_median(void **state)
{
    static const double norms[] = {10, 10, 10, 10, 9, 8, 7, 6, 9, 8, 7, 5};
    static const int want[] = {0, 0, 2, 3};
    static const double rest[] = {10, 10, 10, 10, 6, 9, 9, 9, 6, 4.5, 8.1, 7.2};
    static const int want_rest[] = {0, 0, 0, 1};
    struct freeze_spec spec = spec_of(FREEZE_AUTOFREEZE, 0);
    int got[4];
    (void)state;
    run(&spec, 4, 4, norms, got);
    assert_memory_equal(got, want, sizeof got);
    run(&spec, 4, 4, rest, got);
    assert_memory_equal(got, want_rest, sizeof got);
}

enum { CHECKS = 40, INTERVAL = 3 };

/* One weight under apf: moves[] are the optimizer's, of each step; NULL: to 1 and back to 0 in turn.
 * held[c]: whether check c holds it. */
static void run_apf(const struct apf_rule *rule, const float *moves, bool *held, float *weight)
{
    float state[APF_STATES] = {[APF_BEFORE] = *weight};
    for (int c = 0; c < CHECKS; c++) {
        for (int s = 0; s < INTERVAL; s++) {
            struct apf_rule now = *rule;
            now.check = s == INTERVAL - 1;
            if (moves)
                *weight += moves[c * INTERVAL + s];
            else if (s == 0)
                *weight = 1 - *weight;
            apf_step(&now, weight, state);
        }
        held[c] = state[APF_LEFT] > 0;
    }
}

/* The second answer: sums over the whole history, in double. False where rounding decides. */
static bool judge_apf(double decay, double threshold, const float *moves, bool *held,
                      double *weight)
{
    double moved[CHECKS] = {0};
    int n = 0, period = 0, until = -1; /* the last interval that is held */
    for (int c = 0; c < CHECKS; c++) {
        double mean = 0, size = 0;
        const bool was = c <= until;
        for (int s = 0; s < INTERVAL && !was; s++)
            moved[n] += (double)moves[c * INTERVAL + s];
        *weight += moved[n];
        n += !was;
        for (int k = 0; k < n; k++) {
            mean += (1 - decay) * pow(decay, n - 1 - k) * moved[k];
            size += (1 - decay) * pow(decay, n - 1 - k) * fabs(moved[k]);
        }
        if (fabs(fabs(mean) / size - threshold) < 1e-4)
            return false;
        if (!was) {
            period = fabs(mean) / size < threshold ? period + 1 : period / 2;
            until = c + period;
        }
        held[c] = c < until;
    }
    return true;
}

static void apf__holds_weights_by_their_effective_perturbation(void **state)
{
    int judged = 0, held = 0, halved = 0;
    (void)state;
    for (int trial = 0; trial < 3000; trial++) {
        const struct apf_rule rule = {.decay = trial % 2 ? 0.9f : 0.5f,
                                      .threshold = trial % 3 ? 0.3f : 0.1f,
                                      .freezes = true};
        const double drift = 0.3 * random_unit();
        float moves[CHECKS * INTERVAL], weight = 1;
        bool got[CHECKS], want[CHECKS];
        double judge = 1;
        for (int i = 0; i < CHECKS * INTERVAL; i++)
            moves[i] = (float)(random_unit() - 0.5 + (i < 60 ? 0 : drift));
        run_apf(&rule, moves, got, &weight);
        if (!judge_apf((double)rule.decay, (double)rule.threshold, moves, want, &judge))
            continue;
        assert_memory_equal(got, want, sizeof got);
        assert_true(fabs((double)weight - judge) < 1e-4);
        judged++;
        for (int c = 0; c < CHECKS; c++)
            held += got[c];
        halved += got[20] && !got[CHECKS - 1];
    }
    assert_in_range(judged, 1000, 3000);
    assert_in_range(held, judged, judged * (CHECKS - 1));
    assert_true(halved > 100);
}

/* A weight that moves by 1 and -1 in turn has the perturbation (1 - a) / (1 + a) * (1 - (-a)^n) /
 * (1 - a^n) after n checks that counted: with a = 0.99 that is 1, then 0.34 at most (n = 3). So it is
 * held for 1 interval from check 1 on, then 2, 3, ..., each time after an interval of training. One
 * that moves in one direction is never held; nor is any where nothing freezes. */
static void apf__holds_longer_each_time_what_moves_to_and_fro(void **state)
{
    float on[CHECKS * INTERVAL] = {0}, weight = 0;
    struct apf_rule rule = {.decay = 0.99f, .threshold = 0.4f, .freezes = true};
    bool held[CHECKS];
    (void)state;
    for (int c = 0; c < CHECKS; c++)
        on[c * INTERVAL] = 1;
    run_apf(&rule, NULL, held, &weight);
    int c = 0;
    assert_false(held[c++]);
    for (int period = 1; c < CHECKS; period++) {
        for (int i = 0; i < period && c < CHECKS; i++)
            assert_true(held[c++]);
        if (c < CHECKS)
            assert_false(held[c++]);
    }
    weight = 0;
    run_apf(&rule, on, held, &weight);
    for (int i = 0; i < CHECKS; i++)
        assert_false(held[i]);
    assert_true(weight == CHECKS);
    rule.freezes = false;
    run_apf(&rule, NULL, held, &weight);
    for (int i = 0; i < CHECKS; i++)
        assert_false(held[i]);
}

static void relative_change__takes_the_first_of_equal_changes(void **state)
{
    static const double norms[] = {8, 8, 8, 8, 4, 4, 4, 4};
    static const int want[] = {0, 0, 1};
    struct freeze_spec spec = spec_of(FREEZE_RELATIVE_CHANGE, 0);
    int got[3];
    (void)state;
    run(&spec, 4, 3, norms, got);
    assert_memory_equal(got, want, sizeof got);
}

static void relative_change__survives_norms_of_zero(void **state)
{
    static const double norms[] = {0, 0, 1, 1, 0, 1, 1, 1}; /* changes 0 inf 0 0: median 0 */
    static const double half[] = {1, 0, 1, 1};              /* 0 inf: median inf */
    struct freeze_spec spec = spec_of(FREEZE_RELATIVE_CHANGE, 0);
    int got[3];
    (void)state;
    run(&spec, 4, 3, norms, got);
    assert_int_equal(got[2], 1);
    run(&spec, 2, 3, half, got);
    assert_int_equal(got[2], 2);
}

static void table__repeats_its_last_entry_and_may_go_down(void **state)
{
    int table[] = {0, 6, 4, 8};
    static const int want[] = {0, 6, 4, 8, 8, 8};
    struct freeze_spec spec = {.policy = FREEZE_TABLE, .table = table, .num_table = 4};
    int got[6];
    (void)state;
    run(&spec, 12, 6, NULL, got);
    assert_memory_equal(got, want, sizeof got);
}

/* Against all later entries, one by one. */
static void lowest__is_the_least_of_the_later_decisions(void **state)
{
    int table[] = {0, 6, 4, 8, 7};
    struct freeze_spec spec = {.policy = FREEZE_TABLE, .table = table, .num_table = 5};
    struct freeze freeze = {0};
    (void)state;
    for (int warmup = 0; warmup < 3; warmup++) {
        spec.warmup = warmup;
        spec.min_active = 5 * (warmup == 1);
        table[4] = warmup == 2 ? 3 : 7; /* the last entry may be the lowest */
        assert_int_equal(freeze_init(&freeze, &spec, 12, NULL), OK);
        for (int e = 0, f; e < 9; e++) {
            assert_int_equal(freeze_decide(&freeze, e, NULL, &f, NULL, NULL), OK);
            int least = f;
            for (int later = e + 1; later < 12; later++) {
                const int at = later - warmup < 4 ? later - warmup : 4;
                int of = at < 0 ? 0 : table[at];
                of = of < 12 - spec.min_active ? of : 12 - spec.min_active;
                least = of < least ? of : least;
            }
            assert_int_equal(freeze_lowest(&freeze, e + 1), least);
        }
        freeze_clear(&freeze);
    }
    spec = (struct freeze_spec){.policy = FREEZE_CLOSED_FORM, .alpha = .5};
    assert_int_equal(freeze_init(&freeze, &spec, 12, NULL), OK);
    freeze.num_frozen = 7;
    assert_int_equal(freeze_lowest(&freeze, 3), 7);
    freeze_clear(&freeze);
}

static void named_table__expresses_the_release_history(void **state)
{
    static const struct {
        const char *name;
        int want[10];
    } cases[] = {
        {"mild",       {0, 0, 6, 8, 8, 8, 10, 10, 12, 12}},
        {"mild-early", {0, 6, 6, 8, 8, 8, 10, 10, 12, 12}},
        {"by_epoch",   {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}    },
        {"linear",     {2, 3, 4, 5, 6, 8, 9, 10, 11, 12} }
    };
    struct freeze_spec spec = {0};
    struct err err = {0};
    int got[10];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(freeze_named_table(cases[i].name, 12, 10, &spec, &err), OK);
        run(&spec, 12, 10, NULL, got);
        assert_memory_equal(got, cases[i].want, sizeof got);
    }
    freeze_spec_clear(&spec);
    assert_int_equal(freeze_named_table("mildd", 12, 10, &spec, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "mild"));
}

static void none__freezes_nothing(void **state)
{
    struct freeze_spec spec = spec_of(FREEZE_NONE, 0);
    int got[3];
    (void)state;
    run(&spec, 12, 3, NULL, got);
    for (int e = 0; e < 3; e++)
        assert_int_equal(got[e], 0);
}

/* Norms of layers that learn: layer l's share decays towards its level at its own pace, under a
 * rate that scales both all norms and how far a layer moves in an epoch. Deterministic noise. */
static void learning(int layers, int epochs, double scale_decay, double *norms)
{
    unsigned seed = 7;
    for (int e = 0; e < epochs; e++)
        for (int l = 0; l < layers; l++) {
            double noise, drift = l < 2 ? 0 : 0.15 * e; /* layers 2.. keep drifting, steadily */
            seed = seed * 1103515245u + 12345u;
            noise = ((seed >> 16) % 1000 / 1000.0 - 0.5) * 0.02;
            if (l < 2) /* settled: alternates about its level */
                noise = (e % 2 ? 0.02 : -0.02) * (l + 1);
            norms[e * layers + l] = pow(scale_decay, e) * exp((l % 2 ? drift : -drift) + noise);
        }
}

static void plateau__freezes_settled_layers_only(void **state)
{
    enum { L = 6, N = 10 };
    double norms[L * N];
    struct freeze_spec spec = spec_of(FREEZE_PLATEAU, 0.5);
    int got[N];
    (void)state;
    learning(L, N, 1, norms);
    run(&spec, L, N, norms, got);
    assert_int_equal(got[1], 0);
    assert_int_equal(got[2], 0); /* too young to tell */
    assert_int_equal(got[N - 1], 2);
}

static void plateau__does_not_follow_learning_rate_or_loss_scale(void **state)
{
    enum { L = 6, N = 10 };
    double norms[L * N], decayed[L * N];
    struct freeze_spec spec = spec_of(FREEZE_PLATEAU, 0.5),
                       relative = spec_of(FREEZE_RELATIVE_CHANGE, 0);
    int plain[N], scaled[N], released[N];
    (void)state;
    learning(L, N, 1, norms);
    run(&spec, L, N, norms, plain);
    for (int e = 0; e < N; e++) /* the loss scale of epoch e is 4^e */
        for (int l = 0; l < L; l++)
            decayed[e * L + l] = norms[e * L + l] * pow(4, e);
    run(&spec, L, N, decayed, scaled);
    assert_memory_equal(plain, scaled, sizeof plain);
    /* a drift that slows with a decaying rate is a drift still */
    for (int l = 0; l < L; l++) {
        double level = 1;
        for (int e = 0; e < N; e++) {
            decayed[e * L + l] = level;
            level *= exp((l % 2 ? 0.3 : -0.3) * pow(0.5, e));
        }
    }
    run(&spec, L, N, decayed, scaled);
    run(&relative, L, N, decayed, released);
    assert_int_equal(scaled[N - 1], 0);
    assert_true(released[N - 1] > 0); /* what the median test does with the same record */
}

static void plateau__wants_two_quiet_decisions_in_a_row(void **state)
{
    /* One turn, then a steady drift: quiet once, before epoch 3, and never again. */
    static const double logs[] = {0, 0.1, 0, -0.1, -0.2, -0.3};
    struct freeze_spec spec = spec_of(FREEZE_PLATEAU, 0.5);
    double norms[12];
    int got[7];
    (void)state;
    for (int e = 0; e < 6; e++) {
        norms[2 * e] = exp(logs[e]);
        norms[2 * e + 1] = exp(-logs[e]);
    }
    run(&spec, 2, 7, norms, got);
    assert_int_equal(got[6], 0);
}

static void plateau__takes_no_more_than_its_share_at_once(void **state)
{
    enum { L = 12, N = 6 };
    double norms[L * N];
    struct freeze_spec spec = spec_of(FREEZE_PLATEAU, 1.0 / 3);
    int got[N];
    (void)state;
    for (int e = 0; e < N; e++)
        for (int l = 0; l < L; l++)
            norms[e * L + l] = 1; /* nothing moves at all */
    run(&spec, L, N, norms, got);
    for (int e = 1; e < N; e++)
        assert_true(got[e] <= ceil(got[e - 1] + (L - got[e - 1]) / 3.0));
    assert_true(got[N - 1] > 0);
}

static void decide__keeps_min_active_layers_and_says_so(void **state)
{
    struct freeze_spec spec = spec_of(FREEZE_CLOSED_FORM, 0.5);
    struct freeze freeze = {0};
    char reason[160];
    int frozen = -1;
    (void)state;
    spec.min_active = 2;
    assert_int_equal(freeze_init(&freeze, &spec, 12, NULL), OK);
    for (int e = 0; e < 8; e++)
        assert_int_equal(freeze_decide(&freeze, e, NULL, &frozen, reason, NULL), OK);
    assert_int_equal(frozen, 10);
    assert_non_null(strstr(reason, "2 must stay active"));
    freeze.num_frozen = 11; /* as a resumed run may have it: nothing unfreezes */
    assert_int_equal(freeze_decide(&freeze, 8, NULL, &frozen, reason, NULL), OK);
    assert_int_equal(frozen, 11);
    freeze_clear(&freeze);
}

/* Every policy does after the warm-up what it does from the start without one. */
static void decide__starts_policies_behind_the_warmup(void **state)
{
    enum { LAYERS = 6, EPOCHS = 12, WARMUP = 3 };
    double norms[EPOCHS * LAYERS];
    int table[] = {1, 2, 5}, got[EPOCHS], want[EPOCHS];
    (void)state;
    learning(LAYERS, EPOCHS, 0.9, norms);
    for (int policy = FREEZE_NONE; policy < FREEZE_POLICY_COUNT; policy++) {
        struct freeze_spec spec = spec_of((enum freeze_policy)policy, 1.0 / 3);
        if (policy == FREEZE_TABLE)
            spec.table = table, spec.num_table = 3;
        struct freeze freeze = {0};
        assert_int_equal(freeze_init(&freeze, &spec, LAYERS, NULL), OK);
        for (int e = 0; e + WARMUP < EPOCHS; e++) /* the norms that the warm-up ends with */
            assert_int_equal(
                freeze_decide(&freeze, e, norms + (e + WARMUP - 1) * LAYERS, &want[e], NULL, NULL),
                OK);
        freeze_clear(&freeze);
        spec.warmup = WARMUP;
        run(&spec, LAYERS, EPOCHS, norms, got);
        for (int e = 0; e < EPOCHS; e++)
            assert_int_equal(got[e], e < WARMUP ? 0 : want[e - WARMUP]);
        /* safe has no evidence here, and timed and apf freeze no prefix */
        assert_int_equal(want[EPOCHS - WARMUP - 1] > 0,
                         policy != FREEZE_NONE && policy != FREEZE_SAFE && policy != FREEZE_TIMED &&
                             policy != FREEZE_APF);
    }
}

/* Whatever the norms say, a decision lies within what was said of it before; and without norms that
 * matter both bounds are the decision. */
static void bounds__hold_every_decision(void **state)
{
    static const int table[] = {0, 3, 2, 9, 12};
    int reached[FREEZE_POLICY_COUNT] = {0}, decisions = 0;
    (void)state;
    for (int trial = 0; trial < 4000; trial++) {
        const enum freeze_policy policy = (enum freeze_policy)(trial % FREEZE_POLICY_COUNT);
        struct freeze_spec spec = spec_of(policy, 0.05 + 0.9 * random_unit());
        struct freeze freeze = {0};
        spec.table = (int *)table;
        spec.num_table = 5;
        spec.min_active = trial % 7 == 0 ? 3 : 0;
        spec.warmup = trial % 5 == 0 ? 2 : 0;
        assert_int_equal(freeze_init(&freeze, &spec, 12, NULL), OK);
        for (int e = 0; e < 8; e++) {
            double norms[12];
            int least, most, got;
            for (int l = 0; l < 12; l++)
                norms[l] = trial % 3 == 0 ? 1 + 0.001 * random_unit() : random_unit();
            freeze_bounds(&freeze, e, &least, &most);
            assert_int_equal(
                freeze_decide(&freeze, e, e > 0 && trial % 11 ? norms : NULL, &got, NULL, NULL),
                OK);
            assert_in_range(got, least, most);
            if (policy == FREEZE_NONE || policy == FREEZE_CLOSED_FORM || policy == FREEZE_TABLE)
                assert_int_equal(least, most);
            reached[policy] += got == most && most > least;
            decisions++;
        }
        freeze_clear(&freeze);
    }
    assert_int_equal(decisions, 32000);
    assert_true(reached[FREEZE_GRADIENT_NORM] > 0 && reached[FREEZE_RELATIVE_CHANGE] > 0 &&
                reached[FREEZE_PLATEAU] > 0); /* no looser than need be */
}

static void decide__refuses_norms_that_are_no_numbers_and_stays_unchanged(void **state)
{
    static const double bad[] = {NAN, INFINITY, -1};
    double norms[] = {1, 1, 1, 1};
    (void)state;
    for (int policy = 0; policy < FREEZE_POLICY_COUNT; policy++) {
        int table[] = {0}, frozen = 77;
        struct freeze_spec spec = {
            .policy = (enum freeze_policy)policy, .alpha = 0.5, .table = table, .num_table = 1};
        struct freeze freeze = {0};
        assert_int_equal(freeze_init(&freeze, &spec, 4, NULL), OK);
        for (int i = 0; i < 3; i++) {
            struct err err = {0};
            norms[2] = bad[i];
            assert_int_equal(freeze_decide(&freeze, 1, norms, &frozen, NULL, &err), ERR_INPUT);
            assert_non_null(strstr(err.msg, "layer 2"));
            assert_int_equal(frozen, 77);
            assert_int_equal(freeze.num_seen, 0);
        }
        norms[2] = 1;
        freeze_clear(&freeze);
        freeze_clear(&freeze);
    }
}

static void init__refuses_alpha_outside_0_to_1(void **state)
{
    static const double bad[] = {0, 1, -0.5, 1.5, NAN, INFINITY};
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct freeze_spec spec = spec_of(FREEZE_CLOSED_FORM, bad[i]);
        struct freeze freeze = {0};
        struct err err = {0};
        assert_int_equal(freeze_init(&freeze, &spec, 12, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "alpha"));
        assert_null(freeze.prev);
    }
}

static void init__refuses_wrong_counts(void **state)
{
    int table[] = {0, 13};
    struct freeze_spec tables = {.policy = FREEZE_TABLE, .table = table, .num_table = 2},
                       empty = {.policy = FREEZE_TABLE}, none = {.min_active = 13};
    struct freeze freeze = {0};
    (void)state;
    assert_int_equal(freeze_init(&freeze, &tables, 12, NULL), ERR_INPUT);
    assert_int_equal(freeze_init(&freeze, &empty, 12, NULL), ERR_INPUT);
    assert_int_equal(freeze_init(&freeze, &none, 12, NULL), ERR_INPUT);
    none.min_active = 0;
    assert_int_equal(freeze_init(&freeze, &none, 0, NULL), ERR_INPUT);
}

static void policy_parse__names_the_nearest(void **state)
{
    enum freeze_policy policy;
    struct err err = {0};
    (void)state;
    for (int i = 0; i < FREEZE_POLICY_COUNT; i++) {
        assert_int_equal(
            freeze_policy_parse(freeze_policy_name((enum freeze_policy)i), &policy, NULL), OK);
        assert_int_equal(policy, i);
    }
    assert_int_equal(freeze_policy_parse("gradient-nrom", &policy, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "'gradient-norm'"));
}

static void policies__survive_the_failure_of_any_allocation(void **state)
{
    static const double norms[] = {1, 2, 3, 4};
    struct freeze_spec spec = spec_of(FREEZE_RELATIVE_CHANGE, 0), table = {0};
    (void)state;
    if (!FAIL_MALLOC)
        skip();
    for (int n = 0;; n++) {
        struct freeze freeze = {0};
        int frozen = 0, decided = 0;
        fail_malloc_after(n);
        enum status rc = freeze_init(&freeze, &spec, 4, NULL);
        for (int e = 1; rc == OK && e < 3; e++, decided++)
            rc = freeze_decide(&freeze, e, norms, &frozen, NULL, NULL);
        bool done = fail_malloc_done();
        if (!done) {
            assert_int_equal(rc, ERR_NOMEM);
            assert_int_equal(freeze.num_frozen, 0);
            assert_int_equal(freeze.num_seen, decided > 1 ? 1 : decided > 0);
        }
        freeze_clear(&freeze);
        if (done)
            break;
    }
    fail_malloc_after(0);
    assert_int_equal(freeze_named_table("mild", 12, 10, &table, NULL), ERR_NOMEM);
    assert_false(fail_malloc_done());
    assert_null(table.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_form__gives_the_published_sequences),
        cmocka_unit_test(closed_form__equals_the_geometric_sum_up_to_rounding),
        cmocka_unit_test(closed_form__ends_at_all_layers_when_powers_leave_the_doubles),
        cmocka_unit_test(gradient_norm__takes_the_smaller_of_cap_and_argmin),
        cmocka_unit_test(gradient_norm__takes_the_lowest_of_equal_norms),
        cmocka_unit_test(gradient_norm__uses_its_cap_alone_and_says_so_without_norms),
        cmocka_unit_test(gradient_norm__caps_at_the_exact_share_for_every_ratio),
        cmocka_unit_test(relative_change__freezes_up_to_the_first_layer_at_the_median),
        cmocka_unit_test(autofreeze__freezes_the_layers_below_the_median),
        cmocka_unit_test(apf__holds_weights_by_their_effective_perturbation),
        cmocka_unit_test(apf__holds_longer_each_time_what_moves_to_and_fro),
        cmocka_unit_test(relative_change__takes_the_first_of_equal_changes),
        cmocka_unit_test(relative_change__survives_norms_of_zero),
        cmocka_unit_test(table__repeats_its_last_entry_and_may_go_down),
        cmocka_unit_test(lowest__is_the_least_of_the_later_decisions),
        cmocka_unit_test(named_table__expresses_the_release_history),
        cmocka_unit_test(none__freezes_nothing),
        cmocka_unit_test(plateau__freezes_settled_layers_only),
        cmocka_unit_test(plateau__does_not_follow_learning_rate_or_loss_scale),
        cmocka_unit_test(plateau__wants_two_quiet_decisions_in_a_row),
        cmocka_unit_test(plateau__takes_no_more_than_its_share_at_once),
        cmocka_unit_test(decide__keeps_min_active_layers_and_says_so),
        cmocka_unit_test(decide__starts_policies_behind_the_warmup),
        cmocka_unit_test(bounds__hold_every_decision),
        cmocka_unit_test(decide__refuses_norms_that_are_no_numbers_and_stays_unchanged),
        cmocka_unit_test(init__refuses_alpha_outside_0_to_1),
        cmocka_unit_test(init__refuses_wrong_counts),
        cmocka_unit_test(policies__survive_the_failure_of_any_allocation),
        cmocka_unit_test(policy_parse__names_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
