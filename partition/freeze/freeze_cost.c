/* The loss reduction that freezing gives up; freeze_cost.h has the two laws. Read
 * freeze_cost_weigh() at the end first, then freeze_cost_law(). */
#include "partition/freeze/freeze_cost.h"

#include <math.h>

#define GROWTH_MOST 4.0
#define SMALL_SHARE 1e-6 /* below this the limit for a share of 0 is taken */
enum { POOLED_ROWS = 4, BISECTIONS = 40 };

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

struct fall {
    double fall, se;
};

static struct fall fall_of(const struct freeze_evidence *row)
{
    return (struct fall){row->loss_before - row->loss, row->fall_se};
}

/* The fall that the layers above F brought. Returns false if the row does not show it. */
static bool rest_of(const struct freeze_evidence *row, int frozen, struct fall *rest)
{
    const struct freeze_candidate *prefix = freeze_evidence_find(row, frozen);
    *rest = fall_of(row);
    if (row->num_frozen == frozen)
        return true;
    if (!prefix)
        return false;
    rest->fall -= prefix->share;
    rest->se = hypot(rest->se, prefix->share_se);
    return true;
}

double freeze_cost_per_nat(const struct freeze_history *history, const struct freeze_evidence *row)
{
    const struct freeze_evidence *first = history->num_rows > 0 ? &history->rows[0] : row;
    const double then = first->accuracy, now = row->accuracy, fall = first->loss - row->loss;
    if (!isfinite(now))
        return row->loss > 0 ? 100 / row->loss : 100;
    if (fall <= ONE_SIDED * (first->fall_se + row->fall_se) || row->num_probe < 1)
        return 100 * now;
    const double se = sqrt((then * (1 - then) + now * (1 - now)) / (double)row->num_probe);
    return larger(100 * now, 100 * (now - then - ONE_SIDED * se) / fall);
}

/* ---- how the fall continues ---- */

/* The integral of t^-p from `from` to `to`. A law that is followed from step 0 on need not hold at
 * its begin, so there the rate at the end counts as the mean one. */
static double passed(double power, double from, double to)
{
    if (from <= 0)
        return pow(to, 1 - power);
    return power < 1 ? (pow(to, 1 - power) - pow(from, 1 - power)) / (1 - power) : log(to / from);
}

static double window_passed(double power, const struct freeze_evidence *row)
{
    return passed(power, (double)row->step - row->steps_window, (double)row->step);
}

/* The mean learning rate against that of a window, where it is higher. */
static double faster(double rate, double steps, double window_rate, double window_steps)
{
    return larger(ratio(ratio(rate, steps), ratio(window_rate, window_steps)), 1);
}

/* Loss reduction in `now` beyond the forecast from `before`, minus the noise margin. *forecast,
 * *noise: of the forecast alone. */
static double excess(double power, const struct freeze_evidence *before,
                     const struct freeze_evidence *now, double *forecast, double *noise)
{
    struct fall rest;
    rest_of(before, now->num_frozen, &rest);
    const double scale =
        window_passed(power, now) / window_passed(power, before) *
        faster(now->rate_window, now->steps_window, before->rate_window, before->steps_window);
    *forecast = rest.fall * scale;
    *noise = ONE_SIDED * rest.se * scale;
    return fall_of(now).fall - *forecast - hypot(ONE_SIDED * now->fall_se, *noise);
}

/* The law that two windows in turn allow. */
static struct fall_law law_of_pair(const struct freeze_evidence *before,
                                   const struct freeze_evidence *now)
{
    struct fall_law law = {.known = true, .power = 1, .growth = 1};
    double forecast, noise, low = 0;
    if (before->steps_window <= 0 || now->steps_window <= 0 ||
        excess(1, before, now, &forecast, &noise) <= 0)
        return law;
    const double more = excess(0, before, now, &forecast, &noise);
    if (more >= 0) {
        const double grown = 1 + ratio(more, larger(forecast, noise));
        law.power = 0;
        law.growth = grown < GROWTH_MOST ? grown : GROWTH_MOST;
        return law;
    }
    for (int i = 0; i < BISECTIONS; i++) {
        const double middle = (low + law.power) / 2;
        *(excess(middle, before, now, &forecast, &noise) > 0 ? &law.power : &low) = middle;
    }
    return law;
}

struct fall_law freeze_cost_law(const struct freeze_history *history,
                                const struct freeze_evidence *row)
{
    struct fall_law law = {.power = 0, .growth = 1};
    int pairs = 0;
    for (int64_t i = history->num_rows; i-- > 0 && pairs < 2;) {
        const struct freeze_evidence *before = &history->rows[i];
        if (before->turn >= row->turn)
            continue;
        struct fall rest;
        if (!rest_of(before, row->num_frozen, &rest))
            break;
        const struct fall_law one = law_of_pair(before, row);
        law.power = !law.known || one.power < law.power ? one.power : law.power;
        law.growth = larger(law.growth, one.growth);
        law.known = true;
        row = before;
        pairs++;
    }
    return law;
}

/* ---- what a freeze gives up ---- */

double freeze_cost_expected(const struct freeze_weight *weight)
{
    if (!(weight->se > 0))
        return larger(weight->cost, 0);
    const double at = weight->cost / weight->se;
    const double density = exp(-at * at / 2) / sqrt(2 * 3.14159265358979323846);
    return weight->se * density + weight->cost * erfc(-at / sqrt(2)) / 2;
}

/* Rows of one F, added up to one window. */
struct pool {
    int num;
    double share, share2, var; /* sums of shares, of their squares, and of their variances */
    double fall, fall_var, steps, rate, passed;
};

static void pool_add(struct pool *pool, const struct fall_law *law,
                     const struct freeze_evidence *row, const struct freeze_candidate *candidate)
{
    pool->num++;
    pool->share += candidate->share;
    pool->share2 += candidate->share * candidate->share;
    pool->var += candidate->share_se * candidate->share_se;
    pool->fall += row->loss_before - row->loss;
    pool->fall_var += row->fall_se * row->fall_se;
    pool->steps += row->steps_window;
    pool->rate += row->rate_window;
    pool->passed += window_passed(law->power, row);
}

/* The share that a pool shows. Its error is that over the probe's samples or that over the windows,
 * whichever is larger. A prefix brings rarely more than the whole model does, so the share is a
 * priori normal around 0 with the size of the whole fall and its error. The result is the mean of
 * the posterior distribution. */
static struct freeze_weight pool_share(const struct pool *pool)
{
    const double n = pool->num, gain = larger(pool->fall, 0);
    const double spread = n > 1 ? (pool->share2 - pool->share * pool->share / n) * n / (n - 1) : 0;
    const double var = larger(pool->var, spread), prior = gain * gain + pool->fall_var;
    const double trust = prior + var > 0 ? prior / (prior + var) : 0;
    return (struct freeze_weight){trust * pool->share, sqrt(trust * var)};
}

/* The cost until the run's end, for each nat of the pool's share. The prefix's part of the speed is
 * taken at its upper bound against the lower bound of the whole fall. */
static double factor_of(const struct pool *pool, const struct fall_law *law,
                        const struct freeze_evidence *row, const struct freeze_weight *share)
{
    const double now = (double)row->step, left = row->steps_left, end = now + left;
    const double most = share->cost + ONE_SIDED * share->se;
    const double whole = larger(pool->fall - ONE_SIDED * sqrt(pool->fall_var), most);
    const double part = most > 0 ? most / whole : 0;
    const double lost = part > SMALL_SHARE ? passed(law->power, now + (1 - part) * left, end) / part
                                           : left * pow(end, -law->power);
    return law->growth * faster(row->rate_left, left, pool->rate, pool->steps) *
           ratio(lost, pool->passed);
}

/* Earlier rows with this F are pooled with the newest one where that makes the bound tighter and
 * the fall does not grow, because their noise averages out. */
struct freeze_weight freeze_cost_weigh(const struct freeze_history *history,
                                       const struct freeze_evidence *row,
                                       const struct freeze_candidate *candidate)
{
    const double unit = freeze_cost_per_nat(history, row);
    const struct fall_law law = freeze_cost_law(history, row);
    struct freeze_weight best = {0};
    struct pool pool = {0};
    int64_t i = history->num_rows;
    pool_add(&pool, &law, row, candidate);
    for (;;) {
        const struct freeze_weight share = pool_share(&pool);
        const double scale = factor_of(&pool, &law, row, &share) * unit;
        const struct freeze_weight got = {scale * share.cost, scale * share.se};
        if (pool.num == 1 || got.cost + ONE_SIDED * got.se < best.cost + ONE_SIDED * best.se)
            best = got;
        do
            i--;
        while (i >= 0 && history->rows[i].turn >= row->turn);
        if (i < 0 || law.growth > 1 || pool.num == POOLED_ROWS ||
            history->rows[i].num_frozen != row->num_frozen)
            return best;
        const struct freeze_candidate *one =
            freeze_evidence_find(&history->rows[i], candidate->frozen);
        if (!one)
            return best;
        pool_add(&pool, &law, &history->rows[i], one);
    }
}
