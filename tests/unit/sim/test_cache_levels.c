/* The expected contents of a cache, against samples that are really shuffled, looked up and
 * written one micro-batch at a time. */
#include "sim/run/cache_levels.h"

#include "tests/unit/test.h"

enum { SAMPLES = 60000, LAYERS = 6, EPOCHS = 7, MOST_VIEWS = 3 };

static void shuffle(int *order)
{
    for (int i = 0; i < SAMPLES; i++)
        order[i] = i;
    for (int i = SAMPLES - 1; i > 0; i--) {
        const int j = (int)random_below(i + 1), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

/* The levels in the slots of each view; -1: a sample without a slot. */
static int slots[MOST_VIEWS][SAMPLES], order[SAMPLES];

static void check(int views, double room, bool whole, int size)
{
    /* epoch, share of it that is done, and the plan from there on (-1: one without a cache) */
    static const struct {
        int epoch;
        double at;
        int level;
    } plans[] = {
        {0, 0,   -1},
        {1, .4,  2 },
        {2, .25, 3 },
        {2, .75, -1},
        {4, 0,   5 },
        {5, .5,  6 }
    };
    struct cache_levels levels = {0};
    struct err err = {0};
    random_state = 12345;
    double from[LAYERS + 1];
    int at = 0, level = -1;
    const int full = sizeof plans / sizeof *plans;
    assert_int_equal(cache_levels_init(&levels, LAYERS, views, room, whole, &err), OK);
    for (int v = 0; v < views; v++)
        for (int i = 0; i < SAMPLES; i++)
            slots[v][i] = (double)i < room * SAMPLES ? 0 : -1;
    for (int e = 0; e < EPOCHS; e++) {
        int *slot = slots[e % views];
        shuffle(order);
        cache_levels_begin(&levels, e);
        for (int p = 0; p < SAMPLES;) {
            for (; at < full && plans[at].epoch <= e && plans[at].at * SAMPLES <= p; at++)
                level = plans[at].level;
            const int end =
                at < full && plans[at].epoch == e ? (int)(plans[at].at * SAMPLES) : SAMPLES;
            double seen[LAYERS + 1] = {0}, all = 0;
            for (int m = p; level > 0 && m < end; m += size) { /* a micro-batch */
                int low = LAYERS, high = 0;
                for (int i = m; i < m + size; i++) {
                    const int has = slot[order[i]] > 0 ? slot[order[i]] : 0;
                    low = has < low ? has : low;
                    high = has > high ? has : high;
                    if (!whole)
                        seen[has] += 1. / size;
                    if (slot[order[i]] >= 0)
                        slot[order[i]] = level;
                }
                if (whole)
                    seen[low == high ? low : 0] += 1;
                all++;
            }
            if (level > 0) {
                double sum = 0;
                cache_levels_from(&levels, level, size, from);
                for (int l = 0; l <= level; l++) {
                    const double sigma = sqrt(from[l] * (1 - from[l]) / all);
                    assert_true(fabs(from[l] - seen[l] / all) <= 5 * sigma + 1e-9);
                    sum += from[l];
                }
                assert_true(fabs(sum - 1) < 1e-9);
            }
            cache_levels_visit(&levels, (double)(end - p) / SAMPLES, level > 0, level);
            p = end;
        }
        cache_levels_end(&levels);
    }
    cache_levels_clear(&levels);
    cache_levels_clear(&levels);
}

/* Outputs computed through layers that train again are gone, in every view; the rest stays. */
static void cache_levels_fall__leaves_what_lies_below(void **state)
{
    enum { VIEWS = 2 };
    (void)state;
    for (int boundary = 0; boundary <= LAYERS; boundary++)
        for (int level = 1; level <= LAYERS; level++) {
            struct cache_levels levels = {0};
            double from[LAYERS + 1];
            assert_int_equal(cache_levels_init(&levels, LAYERS, VIEWS, .5, false, NULL), OK);
            for (int epoch = 0; epoch < VIEWS; epoch++) { /* half of the samples have a slot */
                cache_levels_begin(&levels, epoch);
                cache_levels_visit(&levels, 1, true, level);
                cache_levels_end(&levels);
            }
            cache_levels_fall(&levels, boundary);
            for (int epoch = 0; epoch < VIEWS; epoch++) {
                cache_levels_begin(&levels, epoch);
                cache_levels_from(&levels, LAYERS, 1, from);
                for (int l = 1; l <= LAYERS; l++)
                    assert_true(from[l] == (l == level && level <= boundary ? .5 : 0));
            }
            cache_levels_clear(&levels);
        }
}

static void cache_levels__say_what_micro_batches_find(void **state)
{
    (void)state;
    for (int views = 1; views <= MOST_VIEWS; views++)
        for (int r = 0; r < 3; r++)
            for (int whole = 0; whole < 2; whole++)
                for (int size = 1; size <= 5; size++)
                    if (size != 4) /* sizes that divide all parts */
                        check(views, (const double[]){1, .9, .3}[r], whole, size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_levels_fall__leaves_what_lies_below),
        cmocka_unit_test(cache_levels__say_what_micro_batches_find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
