/* The policy `safe`; freeze_safe.h has its rules. Read freeze_safe_decide() at the end first, then
 * the questions that it asks, freeze_safe_due() and freeze_safe_ask(). */
#include "partition/freeze/freeze_safe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "partition/freeze/freeze.h"
#include "partition/freeze/freeze_cost.h"
#include "partition/model/model.h"

#define TWO_SIDED 1.2816 /* 80 % lie within */
#define UNDO_SURE 1.96   /* of a normal distribution, 97.5 %: an undo costs time */
#define LEAST_SAVING 0.005
#define COST_SHARE 0.02 /* of the step time, for evidence */
#define STEP_FORWARDS 3 /* a backward takes two forwards */
/* The automatic probe is as large as these many passes allow. Half of them, which are there in
 * advance, pay for a first row (3), two more of a prefix of half the layers (4) and one after a
 * further freeze (1). */
#define RUN_PASSES 16
#define FAR 4 /* a bound of this many budgets is far from the budget */
enum { PROBE_LEAST = 32, PROBE_MOST = 1024, MOST_CANDIDATES = 3, HOLD = 2 };

/* ---- what a freeze saves ---- */

/* Share of the predicted time a sample. Layers between two predictions save the same each, and so
 * do all without a prediction. */
static double saving(const struct freeze *freeze, const struct freeze_evidence *row, int frozen)
{
    int low = frozen, high = frozen;
    if (!row->sample_ns)
        return (double)(frozen - row->num_frozen) / (1.5 * freeze->num_layers);
    while (low > row->num_frozen && !(row->sample_ns[low] > 0))
        low--;
    while (high < freeze->num_layers && !(row->sample_ns[high] > 0))
        high++;
    const double now = row->sample_ns[row->num_frozen], from = row->sample_ns[low];
    const double to = row->sample_ns[high];
    if (!(now > 0 && from > 0 && to > 0))
        return 0;
    const double part = high > low ? (double)(frozen - low) / (high - low) : 0;
    return 1 - (from + part * (to - from)) / now;
}

static bool pays(const struct freeze *freeze, const struct freeze_evidence *row, int frozen)
{
    return row->steps_left > 0 && saving(freeze, row, frozen) >= LEAST_SAVING;
}

/* ---- what evidence may cost ---- */

double freeze_safe_passes(int64_t wanted, int64_t run_samples, int64_t probe)
{
    const double passes =
        probe > 0 ? COST_SHARE * STEP_FORWARDS * (double)run_samples / (double)probe : 0;
    return wanted > 0 && passes < RUN_PASSES ? RUN_PASSES : passes;
}

int64_t freeze_safe_probe(int64_t wanted, int64_t run_samples, int64_t test_samples)
{
    int64_t probe = wanted;
    if (probe == 0) {
        probe = (int64_t)freeze_safe_passes(0, run_samples, RUN_PASSES);
        probe = probe < PROBE_LEAST ? PROBE_LEAST : probe > PROBE_MOST ? PROBE_MOST : probe;
    }
    return test_samples <= 0 || probe < test_samples ? probe : test_samples;
}

/* The forward's part above the first F layers, of 1. */
static double above(const struct freeze *freeze, int frozen)
{
    const struct model *model = freeze->keeps;
    double all = 0, part = 0;
    if (!model)
        return 1;
    for (int i = 0, first = model_frozen_items(model, frozen); i < model->num_items; i++) {
        all += (double)model->items[i].fwd_flops;
        part += i >= first ? (double)model->items[i].fwd_flops : 0;
    }
    return all > 0 ? part / all : 1;
}

static const struct freeze_evidence *last_of(const struct freeze_history *history)
{
    return history->num_rows > 0 ? &history->rows[history->num_rows - 1] : NULL;
}

static int largest_of(const struct freeze_evidence *row)
{
    return row->num_candidates > 0 ? row->candidates[row->num_candidates - 1].frozen : -1;
}

/* L(n,n), from the first layer on where no forward has kept the output of the frozen prefix. In the
 * first row L(o,o); in later ones that is the row before's L(n,n). */
static double ends_passes(const struct freeze *freeze, const struct freeze_history *history,
                          const struct freeze_evidence *row)
{
    const struct freeze_evidence *last = last_of(history);
    const double rest = above(freeze, row->num_frozen);
    const bool seen = last && (last->num_frozen == row->num_frozen ||
                               freeze_evidence_find(last, row->num_frozen));
    return (seen ? rest : 1) + (last ? 0 : rest);
}

double freeze_safe_candidate_passes(const struct freeze *freeze,
                                    const struct freeze_history *history,
                                    const struct freeze_evidence *row, int frozen)
{
    const struct freeze_evidence *last = last_of(history);
    const double rest = above(freeze, row->num_frozen), up = above(freeze, frozen);
    if (largest_of(row) > frozen)
        return 2 * rest; /* nothing was kept there */
    const bool lagged =
        !last || (last->num_frozen == row->num_frozen && largest_of(last) == frozen);
    return up + (lagged ? up : rest);
}

double freeze_safe_row_passes(const struct freeze *freeze, const struct freeze_history *history,
                              const struct freeze_evidence *row)
{
    double passes = ends_passes(freeze, history, row);
    for (int c = 0; c < row->num_candidates; c++)
        passes += freeze_safe_candidate_passes(freeze, history, row, row->candidates[c].frozen);
    return passes;
}

/* The time a sample with F layers frozen, against the row's. */
static double faster_by(const struct freeze *freeze, const struct freeze_evidence *row, int frozen)
{
    const double saved = saving(freeze, row, frozen);
    return saved < 1 ? 1 - saved : 1;
}

/* Passes that the run may take until this row, in all. Half of what a static run may take is there
 * in advance, because early evidence saves most. Beyond that the allowance is the share of the time
 * that the steps so far have taken, and half of what those that are left will take with this F. */
static double passes_due(const struct freeze *freeze, const struct freeze_history *history,
                         const struct freeze_evidence *row)
{
    const double all = (double)row->step + row->steps_left;
    double time = 0, speed = 1, speed_before = 1; /* of a static run: time of all is 1 */
    int64_t from = 0;
    if (all <= 0)
        return freeze->passes;
    for (int64_t i = 0; i < history->num_rows && history->rows[i].step < row->step; i++) {
        const struct freeze_evidence *one = &history->rows[i];
        const bool last = i + 1 == history->num_rows || one[1].step >= row->step;
        const int then = last ? row->num_frozen : one[1].num_frozen;
        time += speed * (double)(one->step - from) / all;
        from = one->step;
        if (then > one->num_frozen) {
            speed_before = speed;
            speed *= faster_by(freeze, one, then);
        } else if (then < one->num_frozen) {
            speed = speed_before;
        }
    }
    time += speed * ((double)(row->step - from) + 0.5 * row->steps_left) / all;
    return freeze->passes * (time > 0.5 ? time : 0.5);
}

/* Passes that the row may take beyond its own. */
static double passes_left(const struct freeze *freeze, const struct freeze_history *history,
                          const struct freeze_evidence *row)
{
    double used = 0;
    for (int64_t i = 0; i < history->num_rows; i++)
        used += history->rows[i].passes;
    return passes_due(freeze, history, row) - used - row->passes;
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* ---- what to measure ---- */

static double budget_left(const struct freeze *freeze)
{
    const struct freeze_safe *safe = &freeze->safe;
    const double left = freeze->spec->max_loss - safe->cost - (safe->pending ? safe->last : 0);
    return left > 0 ? left : 0;
}

/* An upper bound of the total cost of freezing if this freeze is added: the estimates of earlier
 * ones plus the bound of this one. */
static double bound(const struct freeze *freeze, const struct freeze_weight *weight)
{
    const struct freeze_safe *safe = &freeze->safe;
    const double before = safe->cost + (safe->pending ? safe->last : 0);
    const double sure = weight->cost + ONE_SIDED * weight->se;
    return before + larger(sure, freeze_cost_expected(weight));
}

/* Rows to leave out after the last one: none, or one more for each row in turn whose candidates
 * were all far from fitting. */
static int rows_to_skip(const struct freeze *freeze, const struct freeze_history *history)
{
    int skip = 0;
    for (int64_t i = history->num_rows; i-- > 0 && skip < HOLD + 1;) {
        const struct freeze_evidence *row = &history->rows[i];
        const struct freeze_history before = {history->rows, i};
        bool far = row->num_candidates > 0;
        for (int c = 0; c < row->num_candidates; c++) {
            const struct freeze_weight weight =
                freeze_cost_weigh(&before, row, &row->candidates[c]);
            far = far && weight.cost - ONE_SIDED * weight.se > FAR * freeze->spec->max_loss;
        }
        if (!far)
            break;
        skip++;
    }
    return skip;
}

bool freeze_safe_due(const struct freeze *freeze, const struct freeze_history *history,
                     const struct freeze_evidence *row)
{
    const struct freeze_safe *safe = &freeze->safe;
    const double left =
        passes_left(freeze, history, row) - ends_passes(freeze, history, row) + row->passes;
    const int64_t last = history->num_rows > 0 ? history->rows[history->num_rows - 1].turn : -1;
    if (freeze->spec->max_loss <= 0 || row->steps_left <= 0 || row->turn + 1 < freeze->spec->warmup)
        return false;
    if (safe->hold > 0)
        return false;
    if (safe->pending)
        return left >= 0;
    if (row->turn - last <= rows_to_skip(freeze, history))
        return false;
    const int first = freeze_cap(freeze);
    if (freeze->spec->max_share > 0 && left >= 0)
        return true;
    return freeze->num_frozen < freeze->num_layers - freeze->spec->min_active &&
           left >= freeze_safe_candidate_passes(freeze, history, row, first);
}

int freeze_safe_ask(const struct freeze *freeze, const struct freeze_history *history,
                    const struct freeze_evidence *row)
{
    const int now = row->num_frozen;
    int next = freeze_cap(freeze);
    if (freeze->safe.hold > 0 || row->num_candidates >= MOST_CANDIDATES)
        return -1;
    if (row->num_candidates > 0) {
        const struct freeze_candidate *smallest = &row->candidates[0];
        const struct freeze_weight weight = freeze_cost_weigh(history, row, smallest);
        const double most = bound(freeze, &weight), budget = freeze->spec->max_loss;
        const double least = most - 2 * ONE_SIDED * weight.se;
        /* It fits, or another window will tell more than a smaller prefix. */
        if (least <= budget || !freeze_cost_law(history, row).known)
            return -1;
        if (most > FAR * budget) /* half as many layers would hardly do */
            return -1;
        next = now + (smallest->frozen - now) / 2;
    }
    while (next > now && !pays(freeze, row, next))
        next--;
    if (next <= now || passes_left(freeze, history, row) <
                           freeze_safe_candidate_passes(freeze, history, row, next))
        return -1;
    return next;
}

/* ---- decisions ---- */

/* The part of the fall that the layers above a candidate brought, per step, is due again. Returns
 * false where no two windows show how the fall continues, so that nothing can be said. */
static bool promise(struct freeze_safe *safe, const struct freeze_history *history,
                    const struct freeze_evidence *row, const struct freeze_candidate *candidate)
{
    const double t = ratio((double)row->step, row->steps_window);
    const double rest = row->loss_before - row->loss - candidate->share;
    const double se2 = row->fall_se * row->fall_se + candidate->share_se * candidate->share_se;
    const double steps = row->steps_window;
    if (!freeze_cost_law(history, row).known || steps <= 0)
        return false;
    safe->due = rest * (rest > 0 ? t / (t + 1) : 1) / steps;
    safe->due_var = se2 / (steps * steps);
    safe->due_rate = row->rate_window / steps;
    return true;
}

static void settle(struct freeze_safe *safe, double cost, double var)
{
    safe->cost += cost;
    safe->var += var;
}

/* Look whether the rest brought what was due. Returns whether the freeze is undone. */
static bool check_promise(struct freeze *freeze, const struct freeze_history *history,
                          const struct freeze_evidence *row, struct freeze_verdict *verdict)
{
    struct freeze_safe *safe = &freeze->safe;
    const double steps = row->steps_window, unit = freeze_cost_per_nat(history, row);
    const double slower = ratio(ratio(row->rate_window, steps), safe->due_rate);
    const double scale = steps * (slower < 1 && safe->due > 0 ? slower : 1);
    const double due = safe->due * scale, fall = row->loss_before - row->loss;
    const double se = sqrt(safe->due_var * scale * scale + row->fall_se * row->fall_se);
    const double lost = (due - fall) * unit, left = budget_left(freeze);
    const bool undo = due - fall > UNDO_SURE * se && lost > left;
    safe->pending = false;
    if (!undo) {
        settle(safe, safe->last, safe->last_var);
        return false;
    }
    /* The missed reduction of the loss is capped by the accepted upper bound. Training the
     * layers again recovers part of it. */
    const double kept = ratio(steps, steps + row->steps_left);
    const double most = safe->last + ONE_SIDED * sqrt(safe->last_var);
    settle(safe, kept * (lost < most ? lost : most), kept * kept * safe->last_var);
    safe->hold = HOLD;
    snprintf(
        verdict->reason, sizeof verdict->reason,
        "undo %d, back to %d: the rest brought %.3g nats where %.3g +- %.2g were due, more than "
        "%.2g left",
        row->num_frozen, safe->undo_to, fall, due, se, left);
    return true;
}

/* A measured prefix with what it gives up. */
struct option {
    const struct freeze_candidate *candidate; /* NULL: there is none */
    struct freeze_weight weight;
    double bound, saved;
};

/* *best: of the options that fit the budget, the one that saves most. *nearest: the one with the
 * lowest bound. */
static void compare_options(const struct freeze *freeze, const struct freeze_history *history,
                            const struct freeze_evidence *row, int most, struct option *best,
                            struct option *nearest)
{
    for (int c = 0; c < row->num_candidates; c++) {
        struct option one = {.candidate = &row->candidates[c]};
        const int frozen = one.candidate->frozen;
        if (frozen <= row->num_frozen || frozen > most || !pays(freeze, row, frozen))
            continue;
        one.weight = freeze_cost_weigh(history, row, one.candidate);
        one.bound = bound(freeze, &one.weight);
        one.saved = saving(freeze, row, frozen);
        if (!nearest->candidate || one.bound < nearest->bound)
            *nearest = one;
        if (one.bound <= freeze->spec->max_loss && one.saved > best->saved)
            *best = one;
    }
}

static void begin_freeze(struct freeze_safe *safe, const struct freeze_history *history,
                         const struct freeze_evidence *row, const struct option *option)
{
    safe->pending = promise(safe, history, row, option->candidate);
    safe->undo_to = row->num_frozen;
    safe->last = freeze_cost_expected(&option->weight);
    safe->last_var = option->weight.se * option->weight.se;
    if (!safe->pending)
        settle(safe, safe->last, safe->last_var);
}

/* The fall of the loss since the run's begin, and its standard error. The windows follow each other. */
static double fall_so_far(const struct freeze_history *history, const struct freeze_evidence *row,
                          double *se)
{
    double fall = row->loss_before - row->loss, var = row->fall_se * row->fall_se;
    for (int64_t i = 0; i < history->num_rows && history->rows[i].turn < row->turn; i++) {
        const struct freeze_evidence *one = &history->rows[i];
        fall += one->loss_before - one->loss;
        var += one->fall_se * one->fall_se;
    }
    *se = sqrt(var);
    return fall;
}

/* Freeze the candidate that saves most of those that fit, or none. */
static int choose(struct freeze *freeze, const struct freeze_history *history,
                  const struct freeze_evidence *row, int most, struct freeze_verdict *verdict)
{
    const char *unit = isfinite(row->accuracy) ? "points" : "%";
    const size_t room = sizeof verdict->reason;
    const double budget = freeze->spec->max_loss;
    struct option best = {0}, nearest = {0};
    double se;
    const double fall = fall_so_far(history, row, &se);
    if (fall <= UNDO_SURE * se) {
        snprintf(verdict->reason, room,
                 "stay at %d: nothing is learned yet, the loss fell by %.2g +- %.2g nats",
                 row->num_frozen, fall, se);
        return row->num_frozen;
    }
    compare_options(freeze, history, row, most, &best, &nearest);
    if (best.candidate) {
        snprintf(verdict->reason, room,
                 "freeze %d: costs %.2g +- %.2g %s, at most %.2g of %.3g with all before it; saves "
                 "%.0f %% of the time",
                 best.candidate->frozen, best.weight.cost, best.weight.se, unit, best.bound, budget,
                 100 * best.saved);
        begin_freeze(&freeze->safe, history, row, &best);
        return best.candidate->frozen;
    }
    if (nearest.candidate)
        snprintf(
            verdict->reason, room,
            "stay at %d: freezing %d costs %.2g +- %.2g %s, up to %.2g of %.3g with all before it",
            row->num_frozen, nearest.candidate->frozen, nearest.weight.cost, nearest.weight.se,
            unit, nearest.bound, budget);
    else
        snprintf(verdict->reason, room,
                 row->num_candidates > 0 ? "stay at %d: no measured prefix would save time"
                                         : "stay at %d: no further prefix was measured",
                 row->num_frozen);
    return row->num_frozen;
}

enum { SHARE_BISECTIONS = 30 };

/* The bound of all costs if this share is left out for the rest of the run. */
static double share_bound(const struct freeze *freeze, const struct freeze_history *history,
                          const struct freeze_evidence *row, double share)
{
    const double all = share + ratio(freeze->safe.lost_steps, row->steps_left);
    const double part = all < 1 ? all : 1;
    /* As a prefix that brings this part of the fall; it has no layers, so no other row has it. */
    const struct freeze_candidate as = {.frozen = -1,
                                        .share = part * (row->loss_before - row->loss),
                                        .share_se = part * row->fall_se};
    struct freeze_weight weight = freeze_cost_weigh(history, row, &as);
    if (all > 1) { /* more steps than are left */
        weight.cost *= all;
        weight.se *= all;
    }
    return bound(freeze, &weight);
}

/* The share of weight gradients until the next row. */
static void choose_share(struct freeze *freeze, const struct freeze_history *history,
                         const struct freeze_evidence *row, struct freeze_verdict *verdict)
{
    struct freeze_safe *safe = &freeze->safe;
    const double budget = freeze->spec->max_loss;
    double low = 0, high = freeze->spec->max_share, se;
    safe->lost_steps += safe->share * row->steps_window;
    if (fall_so_far(history, row, &se) <= UNDO_SURE * se || row->steps_left <= 0)
        high = 0;
    else if (share_bound(freeze, history, row, high) <= budget)
        low = high;
    for (int i = 0; i < SHARE_BISECTIONS && low < high; i++) {
        const double middle = (low + high) / 2;
        *(share_bound(freeze, history, row, middle) <= budget ? &low : &high) = middle;
    }
    safe->share = low;
    const size_t used = strlen(verdict->reason);
    snprintf(verdict->reason + used, sizeof verdict->reason - used, "; shares up to %.2g", low);
}

int freeze_safe_decide(struct freeze *freeze, const struct freeze_history *history,
                       const struct freeze_evidence *row, int most, struct freeze_verdict *verdict)
{
    struct freeze_safe *safe = &freeze->safe;
    const int now = freeze->num_frozen;
    int frozen = now;
    *verdict = (struct freeze_verdict){.made = true};
    if (freeze->spec->max_loss <= 0)
        snprintf(verdict->reason, sizeof verdict->reason,
                 "freeze.max_loss is 0, so nothing freezes");
    else if (safe->hold > 0)
        snprintf(verdict->reason, sizeof verdict->reason,
                 "stay at %d: a freeze was undone, %d more turns without one", now, --safe->hold);
    else if (!row)
        snprintf(verdict->reason, sizeof verdict->reason, "stay at %d: nothing was measured", now);
    else if (safe->pending && check_promise(freeze, history, row, verdict))
        frozen = safe->undo_to;
    else
        frozen = choose(freeze, history, row, most, verdict);
    if (row && freeze->spec->max_share > 0 && freeze->spec->max_loss > 0)
        choose_share(freeze, history, row, verdict);
    verdict->frozen = frozen;
    verdict->cost = safe->cost + (safe->pending ? safe->last : 0);
    verdict->cost_se = sqrt(safe->var + (safe->pending ? safe->last_var : 0));
    verdict->left = budget_left(freeze);
    return frozen;
}

void freeze_safe_interval(double cost, double cost_se, double *low, double *high)
{
    *low = larger(cost - TWO_SIDED * cost_se, 0);
    *high = cost + TWO_SIDED * cost_se;
}
