/* The search of one layout: search_begin() checks the problem, search_end() runs the search
 * (planner_search.c) or the greedy rules (planner_greedy.c), asks the judge about the best
 * candidates, and turns the result into plans. Read search_end() at the end first, then
 * planner_search.h. planner_layouts.c calls it once for each layout. */
#include "partition/search/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/step/lower.h"
#include "partition/search/planner_search.h"
#include "partition/base/units.h"
#include "partition/step/schedule_memory.h"
#include "partition/step/workload.h"

/* Limits of ask_judge(). Rounds beyond ASK_ROUNDS are only for small plans. ASKED_OPS and
 * ASKED_SMALL_OPS count the ops on all devices in the plans that the judge was asked about; they
 * take it some seconds and some tenths of a second. */
#define ASK_ROUNDS 4
#define ASK_SMALL_ROUNDS 512
#define ASKED_OPS ((int64_t)1 << 22)       /* no further round beyond this many */
#define ASKED_SMALL_OPS ((int64_t)1 << 19) /* from round ASK_ROUNDS on */
#define MORE_OPS ((int64_t)1 << 20)        /* ops that may be timed while asking, see `until` */
#define RECUT_OPS ((int64_t)1 << 20) /* ops that the judge may see for better cuts of a plan */
#define RECUT_FIRST 8                /* of these for each candidate at first */
#define RECUT_LAST 4                 /* candidates that have them all */
#define VARY_SHARE 0.9               /* of the best rate, of candidates that are varied */
#define VARY_MOST 64                 /* of them in a layout; small jobs have thousands */
#define BOOK_OPS ((int64_t)1 << 19)  /* in place of RECUT_OPS for the textbook plans of a layout */

static int compare_counts(const void *left, const void *right)
{
    const struct microbatches *a = left, *b = right;
    return (a->count > b->count) - (a->count < b->count);
}

/* The least number of micro-batches that makes them smaller than m does; INT64_MAX: they have one
 * sample. */
static int64_t next_count(int64_t batch, int64_t m)
{
    const int64_t size = (batch + m - 1) / m;
    return size > 1 ? (batch + size - 2) / (size - 1) : INT64_MAX;
}

enum status planner_microbatches(int64_t batch, int num_ranks, struct microbatches **list, int *num,
                                 struct err *err)
{
    int64_t room = 0, num_divisors = 0;
    if (batch < 1 || batch > INT32_MAX || num_ranks < 1 || num_ranks > INT32_MAX / 8)
        return err_set(err, ERR_INPUT, "batch must be 1..%d, got %lld", INT32_MAX,
                       (long long)batch);
    int64_t last = 6 * (int64_t)num_ranks < batch ? 6 * (int64_t)num_ranks : batch;
    /* next_count() skips counts whose micro-batches have the size of the count before. */
    for (int64_t m = num_ranks; m <= last; m = next_count(batch, m))
        room++;
    for (int64_t d = 1; d * d <= batch; d++)
        num_divisors += batch % d == 0 ? 2 : 0;
    struct microbatches *got = malloc((size_t)(room + num_divisors) * sizeof *got);
    if (!got)
        return err_nomem(err);
    int count = 0;
    for (int64_t m = num_ranks; m <= last; m = next_count(batch, m))
        got[count++] = microbatches_of(batch, (int)m);
    for (int64_t d = 1; d * d <= batch; d++)
        if (batch % d == 0) {
            got[count++] = microbatches_of(batch, (int)d);
            got[count++] = microbatches_of(batch, (int)(batch / d));
        }
    qsort(got, (size_t)count, sizeof *got, compare_counts);
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (i == 0 || got[i].count != got[kept - 1].count)
            got[kept++] = got[i];
    *list = got;
    *num = kept;
    return OK;
}

/* --- the answer ---------------------------------------------------------------------------- */

void planner_result_clear(struct planner_result *result)
{
    plan_clear(&result->plan);
    free(result->stage_ns);
    for (int i = 0; i < result->num_best; i++)
        plan_clear(&result->best[i].plan);
    free(result->best);
    free(result->lengths);
    free(result->layouts);
    *result = (struct planner_result){0};
}

void planner_result_shift(struct planner_result *result)
{
    const int last = result->num_best < PLANNER_KEEP ? result->num_best : PLANNER_KEEP - 1;
    if (last < result->num_best)
        plan_clear(&result->best[last].plan);
    memmove(result->best + 1, result->best, (size_t)last * sizeof *result->best);
    result->best[0] = (struct planner_candidate){0};
    result->num_best = last + 1;
}

void planner_result_mark(struct planner_result *result)
{
    const struct plan *plan = &result->plan;
    bool same = true;
    for (int i = 0; i < result->num_layouts; i++) {
        struct planner_layout_fate *fate = &result->layouts[i];
        const bool chosen = layout_equal(&plan->layout, &fate->layout);
        same = same && chosen == (fate->verdict == PLANNER_CHOSEN);
        if (chosen)
            fate->verdict = PLANNER_CHOSEN;
        else if (fate->verdict == PLANNER_CHOSEN)
            fate->verdict = PLANNER_SLOWER;
    }
    result->num_lengths = same ? result->num_lengths : 0;
    for (int i = 0; i < result->num_lengths; i++) {
        struct planner_length *length = &result->lengths[i];
        if (length->num_ranks == plan->num_ranks)
            length->verdict = PLANNER_CHOSEN;
        else if (length->verdict == PLANNER_CHOSEN)
            length->verdict = PLANNER_SLOWER;
    }
}

enum status planner_result_prefer(struct planner_result *result, struct planner_candidate *first,
                                  struct err *err)
{
    struct plan plan = {0};
    const enum status rc = plan_copy(&first->plan, &plan, err);
    if (rc != OK)
        return rc;
    plan_clear(&result->plan);
    result->plan = plan;
    result->samples_per_s = first->samples_per_s =
        (double)plan_samples(&plan) * 1e9 / ((double)plan.step_ns + result->fill_ns);
    result->gap = (double)plan.step_ns / (double)result->lower_bound_ns - 1;
    planner_result_shift(result);
    result->best[0] = *first;
    first->plan = (struct plan){0};
    return OK;
}

enum status search_make_plan(const struct search *search, const struct judged *judged,
                             struct plan *out)
{
    const struct node *node = &judged->node;
    const size_t cut = ((size_t)node->num_ranks * (size_t)node->chunks + 1) * sizeof(int);
    int *device = malloc((size_t)node->num_ranks * (size_t)node->num_pipelines * sizeof *device);
    if (!device)
        return err_nomem(search->err);
    struct plan plan = search_bare_plan(search, node, device);
    enum status rc = search_map(search, node, device, search->err);
    plan.first_item = malloc(cut);
    if (rc == OK && !plan.first_item)
        rc = err_nomem(search->err);
    if (rc != OK) {
        plan_clear(&plan);
        return rc;
    }
    memcpy(plan.first_item, node->first_item, cut);
    plan.step_ns = judged->step_ns;
    if (plan.recompute == RECOMPUTE_LAYER) { /* the counts follow from the cut */
        struct workload workload = {0};
        struct schedule full = {0};
        struct sites *sites = NULL;
        rc = sites_new(search->problem->setting.cluster, &plan, &sites, search->err);
        THEN(search_lower(search, &plan, sites, NULL, &workload, &full, search->err));
        workload_clear(&workload);
        schedule_clear(&full);
        sites_free(sites);
    }
    if (rc == OK)
        *out = plan;
    else
        plan_clear(&plan);
    return rc;
}

/* Make the plan of the chosen candidate with memory_bytes and the times of its stages, and check
 * its op lists. *stage_ns is a fresh array that the caller owns. */
static enum status finish_plan(const struct search *search, const struct judged *judged,
                               struct plan *out, int64_t **stage_ns)
{
    const struct planner_problem *problem = search->problem;
    struct plan plan = {0};
    struct workload workload = {0};
    struct schedule full = {0};
    int64_t *stages = NULL;
    enum status rc = search_make_plan(search, judged, &plan);
    if (rc != OK)
        return rc;
    plan.memory_bytes = malloc((size_t)plan.num_ranks * sizeof *plan.memory_bytes);
    stages = malloc((size_t)plan.num_stages * sizeof *stages);
    if (!plan.memory_bytes || !stages) {
        rc = err_nomem(search->err);
        goto out;
    }
    rc = plan_lower(&problem->setting, &plan, &workload, &full, search->err);
    THEN(schedule_memory(&full, &workload, plan.memory_bytes, search->err));
    if (rc != OK)
        goto out;
    for (int s = 0; s < plan.num_stages; s++)
        stages[s] = workload_stage_ns(&workload, s);
    plan.step_ns = judged_ns(judged);
    *out = plan;
    plan = (struct plan){0};
    *stage_ns = stages;
    stages = NULL;
out:
    free(stages);
    schedule_clear(&full);
    workload_clear(&workload);
    plan_clear(&plan);
    return rc;
}

enum status search_ask(struct search *search, struct judged *judged)
{
    const struct planner_options *options = search->options;
    struct plan plan = {0};
    struct err why = {0};
    int64_t step_ns = 0;
    enum status rc = search_make_plan(search, judged, &plan);
    if (rc != OK)
        return rc;
    rc = options->judge.step_ns(options->judge.ctx, &plan, &step_ns, &why);
    search->asked_ops +=
        3 * (int64_t)plan.num_stages * plan.microbatches.count * plan.num_pipelines;
    plan_clear(&plan);
    judged->asked_ns = rc == OK ? bound_max(step_ns, judged->step_ns) : -1;
    return rc == OK || rc == ERR_INFEASIBLE ? OK : err_copy(search->err, &why);
}

void search_note_asked(struct search *search, int index)
{
    const struct judged *judged = &search->judged[index];
    if (judged->asked_ns > 0 &&
        (search->best < 0 || judged->asked_ns <= search_limit(search, &judged->node)))
        search->best = index;
}

/* Look for a better cut of a candidate, then ask the judge about it. */
static enum status ask(struct search *search, int index)
{
    struct judged *judged = &search->judged[index];
    enum status rc = search_recut(search, index);
    THEN(search_ask(search, judged));
    if (rc == OK)
        search_note_asked(search, index);
    return rc;
}

/* One round: ask about up to PLANNER_KEEP of the fastest candidates, as long as one could still be
 * the best; with `anyhow` about that many in any case. */
static enum status ask_round(struct search *search, bool anyhow, int *asked)
{
    *asked = 0;
    search_sort(search);
    for (int i = 0; i < search->num_judged && *asked < PLANNER_KEEP; i++) {
        struct judged *judged = &search->judged[i];
        if (judged->step_ns == 0)
            break;
        if (judged->asked_ns != 0)
            continue;
        if (judged->step_ns > search_limit(search, &judged->node) && !anyhow)
            break;
        if (search_beat(search) > 0 && !search_goes_on(search))
            break;
        (*asked)++;
        enum status rc = ask(search, i);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static int compare_asked(const void *left, const void *right)
{
    const struct judged *a = *(const struct judged *const *)left,
                        *b = *(const struct judged *const *)right;
    const double x = node_rate(&a->node, a->asked_ns), y = node_rate(&b->node, b->asked_ns);
    if (x != y)
        return x > y ? -1 : 1;
    return (a->node.order > b->node.order) - (a->node.order < b->node.order);
}

/* The ops that may be spent on cuts are mostly spent on the first candidates, so others may not have
 * been worked out. Try the best one's cut on all that are alike, ask about those that may win with
 * it, and look for a better cut of the winner. */
static enum status spread_cut(struct search *search, int64_t ops)
{
    const int first = search->best;
    enum status rc = OK;
    for (int i = 0, asked = 0; i < search->num_judged && asked < PLANNER_KEEP && rc == OK; i++) {
        struct judged *judged = &search->judged[i];
        bool better = false;
        if (i == search->best || !search_goes_on(search))
            continue;
        rc = search_take_cut(search, i, &better);
        if (rc != OK || !better || judged->asked_ns != 0 ||
            judged->step_ns > search_limit(search, &judged->node))
            continue;
        asked++;
        rc = search_ask(search, judged);
        if (rc == OK)
            search_note_asked(search, i);
    }
    return rc == OK && search->best != first
               ? search_recut_shared(search, search->best, search->asked_ops + ops)
               : rc;
}

static bool same_kind(const struct node *a, const struct node *b)
{
    return a->num_ranks == b->num_ranks && a->schedule == b->schedule && a->chunks == b->chunks;
}

/* Look for better cuts, by the judge, of the `most` candidates that it found fastest; with `kinds` one of each
 * length, schedule and chunks. ops: that it may see for each. *any: there is such a candidate. */
static enum status recut_fastest(struct search *search, int most, bool kinds, int64_t ops,
                                 bool *any)
{
    struct judged **order = malloc(((size_t)search->num_judged + 1) * sizeof *order);
    enum status rc = order ? OK : err_nomem(search->err);
    int n = 0;
    for (int i = 0; i < search->num_judged && order; i++)
        if (search->judged[i].asked_ns > search->judged[i].step_ns)
            order[n++] = &search->judged[i];
    if (n > 0)
        qsort(order, (size_t)n, sizeof(struct judged *), compare_asked);
    for (int i = 0, num = 0; i < n && num < most && rc == OK; i++) {
        bool seen = false;
        for (int j = 0; j < i && kinds && !seen; j++)
            seen = same_kind(&order[j]->node, &order[i]->node);
        num += !seen;
        if (!seen && order[i]->node.bound_ns <= search_limit(search, &order[i]->node))
            rc = search_recut_shared(search, (int)(order[i] - search->judged),
                                     search->asked_ops + ops);
    }
    free(order);
    *any = n > 0;
    return rc;
}

/* On shared links another cut can be better than the best without sharing, and the candidate with the best one
 * is not known before: some moves for many candidates, then more for the fastest of each kind. ops: that the judge may see for
 * one of those. */
static enum status recut_shared(struct search *search, int64_t ops)
{
    bool any;
    enum status rc = recut_fastest(search, PLANNER_KEEP, false, ops / RECUT_FIRST, &any);
    if (any)
        THEN(recut_fastest(search, RECUT_LAST, true, ops, &any));
    return rc == OK && any && search->best >= 0 && !search_cut_given(search->options)
               ? spread_cut(search, ops)
               : rc;
}

/* Ask the judge about the fastest candidates. The judge never makes a step shorter. If it makes the
 * best one longer, candidates that were left out because of that plan may win now, so the search
 * searches another round. */
static enum status ask_judge(struct search *search)
{
    const bool explain = search->options->judge.all && !search->common->explained;
    enum status rc = OK;
    search->asking = true;
    search->plain_best = search->best >= 0 ? search->judged[search->best].node.order : -1;
    search->best = -1;
    search->until = 2 * search->ops + MORE_OPS;
    for (int round = 0; round < ASK_SMALL_ROUNDS && rc == OK; round++) {
        int asked;
        rc = ask_round(search, round == 0 && explain, &asked);
        search->common->explained = search->common->explained || explain;
        if (rc != OK || asked == 0 || search->best < 0 ||
            search->asked_ops > (round + 1 < ASK_ROUNDS ? ASKED_OPS : ASKED_SMALL_OPS))
            break;
        rc = search_run(search);
        THEN(search_improve(search));
    }
    return rc == OK ? recut_shared(search, RECUT_OPS) : rc;
}

/* Collect the best candidates as plans, fastest first. With a judge only candidates that it was
 * asked about count. */
static enum status collect(struct search *search, struct planner_result *result)
{
    result->best = calloc(PLANNER_KEEP + 1, sizeof *result->best);
    if (!result->best)
        return err_nomem(search->err);
    search_sort(search);
    int chosen = -1;
    for (int i = 0; i < search->num_judged; i++) {
        const struct judged *judged = &search->judged[i];
        if (judged->step_ns == 0 || (search->asking && judged->asked_ns <= 0))
            continue;
        const double rate = node_rate(&judged->node, judged_ns(judged));
        int at = result->num_best;
        if (at == PLANNER_KEEP && result->best[at - 1].samples_per_s >= rate)
            continue;
        struct planner_candidate candidate = {.unshared_ns = judged->unshared_ns,
                                              .lower_bound_ns = judged->node.bound_ns,
                                              .judged_ns = judged->asked_ns,
                                              .samples_per_s = rate};
        enum status rc = search_make_plan(search, judged, &candidate.plan);
        if (rc != OK)
            return rc;
        for (; at > 0 && result->best[at - 1].samples_per_s < rate; at--)
            result->best[at] = result->best[at - 1];
        result->best[at] = candidate;
        chosen = at == 0 ? i : chosen;
        if (result->num_best < PLANNER_KEEP)
            result->num_best++;
        else
            plan_clear(&result->best[PLANNER_KEEP].plan);
    }
    if (chosen < 0)
        return OK;
    result->samples_per_s = result->best[0].samples_per_s;
    result->memory_share = search->judged[chosen].share;
    result->fill_ns = search->judged[chosen].node.fill_ns;
    result->judge_decided =
        search->asking &&
        (search->judged[chosen].recut || search->judged[chosen].node.order != search->plain_best);
    return finish_plan(search, &search->judged[chosen], &result->plan, &result->stage_ns);
}

/* The best rate by the judge's times of a pipeline length; 0 if it was not asked about any. */
static double asked_rate(const struct search *search, int num_ranks)
{
    double best = 0;
    for (int i = 0; i < search->num_judged; i++) {
        const struct judged *judged = &search->judged[i];
        if (judged->node.num_ranks == num_ranks && judged->asked_ns > 0)
            best = fmax(best, node_rate(&judged->node, judged->asked_ns));
    }
    return best;
}

/* Whether a candidate of this length fits. The judge need not have been asked about it. */
static bool length_fits(const struct search *search, int num_ranks)
{
    for (int i = 0; i < search->num_judged; i++)
        if (search->judged[i].node.num_ranks == num_ranks && search->judged[i].step_ns > 0)
            return true;
    return false;
}

static void set_lengths(struct search *search, struct planner_result *result)
{
    for (int i = 0; i < search->num_lengths; i++) {
        struct planner_length *length = &search->lengths[i];
        const double asked = asked_rate(search, length->num_ranks);
        if (search->asking)
            length->samples_per_s = asked;
        if (result->samples_per_s > 0 && length->num_ranks == result->plan.num_ranks)
            length->verdict = PLANNER_CHOSEN;
        else if (length->samples_per_s > 0)
            length->verdict = PLANNER_SLOWER;
        else if (length->rest_per_s > 0 || length_fits(search, length->num_ranks))
            length->verdict = PLANNER_BOUND;
        else
            length->verdict = length->verdict == PLANNER_NONE ? PLANNER_NONE : PLANNER_MEMORY;
        if (length->verdict != PLANNER_MEMORY) /* of some cuts that were tried on the way */
            length->need_bytes = 0;
    }
    result->lengths = search->lengths;
    result->num_lengths = search->num_lengths;
    search->lengths = NULL;
}

/* Record the outcome of the whole search. The result has the lengths, also where there is no plan. */
static void search_fate(const struct search *search, const struct planner_result *result,
                        struct planner_layout_fate *fate)
{
    *fate = (struct planner_layout_fate){.layout = search->problem->layout,
                                         .verdict = PLANNER_NONE,
                                         .samples_per_s = result->samples_per_s,
                                         .need_bytes = search->need_bytes,
                                         .have_bytes = search->have_bytes};
    bool memory = false;
    fate->bound_per_s = search_bound_rate(search);
    for (int i = 0; i < result->num_lengths; i++) {
        const struct planner_length *length = &result->lengths[i];
        memory = memory || length->verdict == PLANNER_MEMORY;
        if (length->verdict == PLANNER_BOUND)
            fate->verdict = PLANNER_BOUND;
    }
    if (result->samples_per_s > 0)
        fate->verdict = PLANNER_SLOWER;
    else if (fate->verdict == PLANNER_NONE && memory)
        fate->verdict = PLANNER_MEMORY;
    else if (fate->verdict == PLANNER_NONE && fate->bound_per_s > 0)
        fate->verdict = PLANNER_BOUND;
    if (fate->verdict != PLANNER_MEMORY)
        fate->need_bytes = fate->have_bytes = 0;
}

static enum status none_found(const struct search *search)
{
    const struct planner_problem *problem = search->problem;
    bool memory = false;
    for (int i = 0; i < search->num_lengths; i++)
        memory |= search->lengths[i].verdict == PLANNER_MEMORY;
    char need[32], have[32];
    if (search->common->stopped && (search->heap_size > 0 || search->unseen_rate > 0))
        return err_set(search->err, ERR_UNFINISHED, "the search ended");
    if (search->need_bytes == 0 && search->refused.status != OK)
        return err_set(search->err, ERR_INFEASIBLE, "no plan for model '%s': %s",
                       problem->setting.model->name, search->refused.msg);
    if (!memory && search->need_bytes == 0 && problem->layout.shard_group > 0)
        return err_set(search->err, ERR_INFEASIBLE,
                       "no plan for model '%s' on %d devices: no number of replicas makes whole "
                       "groups of pipeline.shard_group %d and fits batch, schedule and devices",
                       problem->setting.model->name, problem->setting.cluster->num_devices,
                       problem->layout.shard_group);
    const bool experts = layout_expert_span(&problem->layout) > 1;
    if (!memory && search->need_bytes == 0 && (experts || problem->layout.context > 1))
        return err_set(search->err, ERR_INFEASIBLE,
                       "no plan for model '%s' on %d devices: no number of replicas that "
                       "pipeline.%s %d divides fits batch, schedule and devices",
                       problem->setting.model->name, problem->setting.cluster->num_devices,
                       experts ? "expert" : "context",
                       experts ? layout_expert_span(&problem->layout) : problem->layout.context);
    if (!memory && search->need_bytes == 0)
        return err_set(search->err, ERR_INFEASIBLE,
                       "no plan for model '%s' (%d items) on %d devices: no pipeline length, "
                       "replica count, micro-batch count and schedule fit together",
                       problem->setting.model->name, problem->setting.model->num_items,
                       problem->setting.cluster->num_devices);
    const struct cluster *cluster = problem->setting.cluster;
    int64_t most = 0;
    bool same = true;
    for (int d = 0; d < cluster->num_devices; d++) {
        const int64_t bytes = cluster->devices[d].mem_bytes;
        most = bytes > most ? bytes : most;
        same = same && bytes == cluster->devices[0].mem_bytes;
    }
    enum status rc;
    if (search->need_bytes > 0)
        rc = err_set(search->err, ERR_INFEASIBLE,
                     "model '%s' does not fit: the nearest of the plans tried needs %s at least on "
                     "a device of %s",
                     problem->setting.model->name,
                     format_bytes(search->need_bytes, need, sizeof need),
                     format_bytes(search->have_bytes, have, sizeof have));
    else
        rc = err_set(search->err, ERR_INFEASIBLE,
                     "model '%s' does not fit %d devices of %s%s with any cut",
                     problem->setting.model->name, cluster->num_devices, same ? "" : "at most ",
                     format_bytes(most, have, sizeof have));
    err_hint(search->err, "use more devices per pipeline, a smaller batch, or recompute");
    return rc;
}

static enum status finish(struct search *search, struct planner_result *result)
{
    enum status rc = collect(search, result);
    if (rc != OK)
        return rc;
    search_note_rest(search);
    if (result->samples_per_s == 0) {
        rc = none_found(search);
        set_lengths(search, result);
        return rc;
    }
    const double rate = fmax(search_bound_rate(search), result->samples_per_s);
    const struct plan *plan = &result->plan;
    double bound = (double)plan_samples(plan) / rate * 1e9 - result->fill_ns;
    result->lower_bound_ns = (int64_t)floor(bound * (1 + 1e-12));
    if (result->lower_bound_ns > plan->step_ns)
        result->lower_bound_ns = plan->step_ns;
    if (result->lower_bound_ns < 1)
        result->lower_bound_ns = 1;
    result->gap = (double)plan->step_ns / (double)result->lower_bound_ns - 1;
    result->candidates = search->candidates;
    result->searched.judged = search->evaluated;
    result->extrapolated = search->table.extrapolated;
    set_lengths(search, result);
    return OK;
}

/* --- the front ----------------------------------------------------------------------------- */

static enum status check(const struct planner_problem *problem,
                         const struct planner_options *options, struct err *err)
{
    const struct model *model = problem->setting.model;
    if (problem->batch < 1 || problem->batch > INT32_MAX)
        return err_set(err, ERR_INPUT, "batch must be 1..%d, got %lld", INT32_MAX,
                       (long long)problem->batch);
    enum status rc = model_check_frozen(model, problem->num_frozen_layers, err);
    if (rc != OK)
        return rc;
    if (options->num_ranks < 0 || options->num_replicas < 0 || options->num_microbatches < 0 ||
        options->chunks < 0)
        return err_set(err, ERR_INPUT, "planner: a count is negative");
    if (options->num_ranks > model->num_items)
        return err_set(err, ERR_INFEASIBLE, "cannot cut %s into %s",
                       COUNT_TEXT(model->num_items, "item"),
                       COUNT_TEXT(options->num_ranks, "stage"));
    if (options->num_ranks > problem->setting.cluster->num_devices)
        return err_set(err, ERR_INFEASIBLE, "a pipeline of %d does not fit %d devices",
                       options->num_ranks, problem->setting.cluster->num_devices);
    int64_t devices;
    if (!mul_ok(options->num_ranks == AUTO ? 1 : options->num_ranks,
                options->num_replicas == AUTO ? 1 : options->num_replicas, &devices) ||
        devices > problem->setting.cluster->num_devices)
        return err_set(err, ERR_INFEASIBLE, "%d replicas of %d devices do not fit a cluster of %d",
                       options->num_replicas, options->num_ranks,
                       problem->setting.cluster->num_devices);
    if ((options->schedules & ((1u << SCHEDULE_SEARCH) - 1)) == 0)
        return err_set(err, ERR_INPUT, "planner: no schedule to choose from");
    if (!options->frozen_auto && problem->num_frozen_layers > 0 &&
        (options->frozen == FROZEN_NONE || options->frozen >= FROZEN_PLACEMENT_COUNT))
        return err_set(err, ERR_INPUT, "planner: frozen layers need a placement");
    return OK;
}

enum status search_open_bare(struct search *search, struct search_common *common,
                             const struct planner_problem *problem,
                             const struct planner_options *options, struct err *err)
{
    const enum status rc = check(problem, options, err);
    return rc == OK ? search_init(search, common, problem, options, err) : rc;
}

enum status search_ask_one(struct search *search)
{
    enum status rc = OK;
    search->asking = true;
    search->plain_best = search->best >= 0 ? search->judged[search->best].node.order : -1;
    search->best = -1;
    search_sort(search);
    for (int i = 0; rc == OK && i < search->num_judged && search->best < 0; i++) {
        rc = search_ask(search, &search->judged[i]);
        if (search->judged[i].asked_ns > 0)
            search->best = i;
    }
    return rc;
}

/* The fastest candidate by the judge that was not varied, if it is near the best; -1: none. */
static int next_to_vary(const struct search *search)
{
    int next = -1;
    double rate = VARY_SHARE * search_beat(search);
    for (int i = 0; i < search->num_judged; i++) {
        const struct judged *judged = &search->judged[i];
        if (judged->asked_ns > 0 && !judged->varied &&
            node_rate(&judged->node, judged->asked_ns) > rate) {
            rate = node_rate(&judged->node, judged->asked_ns);
            next = i;
        }
    }
    return next;
}

/* Whether a candidate before this one has its length, place, schedule and chunks. */
static bool kind_before(const struct search *search, int index)
{
    const struct node *one = &search->judged[index].node;
    for (int i = 0; i < index; i++) {
        const struct node *other = &search->judged[i].node;
        if (other->num_ranks == one->num_ranks && other->place == one->place &&
            other->schedule == one->schedule && other->chunks == one->chunks)
            return true;
    }
    return false;
}

/* A schedule may be slower at a plain cut and faster at its best one: look for a better cut of the fastest
 * candidate of each length, place and schedule, if it is near the best one. Where no link is shared, search_run()
 * finds it. */
static enum status recut_kinds(struct search *search)
{
    enum status rc = OK;
    if (search->best < 0 ||
        search->judged[search->best].asked_ns <= search->judged[search->best].step_ns)
        return OK;
    search_sort(search);
    for (int i = 0; i < search->num_judged && rc == OK && search_goes_on(search); i++) {
        const struct judged *judged = &search->judged[i];
        if (judged->step_ns > 0 && judged->asked_ns == 0 &&
            VARY_SHARE * (double)judged->step_ns <= (double)search_limit(search, &judged->node) &&
            !kind_before(search, i))
            rc = search_recut(search, i);
    }
    return rc;
}

enum status search_ask_more(struct search *search)
{
    const int64_t most = search->asked_ops + BOOK_OPS;
    int asked, next, varied = 0;
    search->until = 2 * search->ops + MORE_OPS;
    enum status rc = ask_round(search, false, &asked);
    THEN(recut_kinds(search));
    THEN(ask_round(search, false, &asked));
    while (rc == OK && varied++ < VARY_MOST && search->asked_ops < most &&
           (next = next_to_vary(search)) >= 0 && search_goes_on(search)) {
        rc = search_vary_one(search, next);
        THEN(ask_round(search, false, &asked));
    }
    return rc == OK ? recut_shared(search, BOOK_OPS) : rc;
}

enum status search_answer(struct search *search, struct planner_result *result)
{
    return finish(search, result);
}

enum status search_begin(struct search *search, struct search_common *common,
                         const struct planner_problem *problem,
                         const struct planner_options *options, struct err *err)
{
    enum status rc = search_open_bare(search, common, problem, options, err);
    if (rc != OK || options->balancer != BALANCER_OPTIMAL)
        return rc;
    rc = search_seed(search);
    for (int64_t i = 0; rc == OK && i < search->heap_size; i++)
        search->lengths[search->heap[i].num_ranks - 1].verdict =
            PLANNER_MEMORY; /* until a candidate fits */
    return rc;
}

enum status search_end(struct search *search, struct planner_result *result,
                       struct planner_layout_fate *fate)
{
    enum status rc = OK;
    if (search->options->balancer != BALANCER_OPTIMAL) {
        rc = search_greedy(search);
    } else {
        rc = search_run(search);
        THEN(search_improve(search));
    }
    if (rc == OK && search->options->judge.step_ns)
        rc = ask_judge(search);
    THEN(finish(search, result));
    search_fate(search, result, fate);
    return rc;
}
