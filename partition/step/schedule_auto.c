/* The search for the lists of SCHEDULE_SEARCH. schedule_time() judges every candidate.
 *
 * 1. The named schedules for the plan's chunks.
 * 2. List schedules (schedule_list.c) over a grid of rules: backward whole or split, forward or
 *    backward first, how long to wait for a backward, how far a W may overrun a gap, and how many
 *    pairs may be in flight, up to about as many as the memory holds.
 * 3. Local moves of one op within its list. The random numbers are seeded and the moves counted, so
 *    every machine finds the same schedule.
 *
 * The search ends as soon as a proven lower bound is reached. Steps 2 and 3 look at a limited
 * number of ops (SCHEDULE_SEARCH_WORK, MOVE_WORK). For a larger schedule the result is the best named one.
 * Read schedule_auto() at the end first, then judge(). */
#include "partition/step/schedule_auto.h"
#include "partition/step/lower.h"
#include "partition/step/schedule_memory.h"
#include "partition/step/schedule_time.h"

#include <stdlib.h>
#include <string.h>

#define MOVE_WORK ((int64_t)1 << 22) /* ops timed by all moves together: about half a second */
#define MOVE_REACH 12                /* a move carries an op over at most this many places */

/* The verdict of judge() on a list. */
struct verdict {
    bool fits;       /* every rank keeps within its memory; the times are set only then */
    int64_t step_ns; /* INT64_MAX: none yet */
    int64_t span_ns; /* the longest time of a device from its first op to its last */
};

struct search {
    const struct plan *plan;
    struct workload *workload;     /* its times hold for the list judged last (stash-distance) */
    struct schedule best;          /* frozen compute list */
    int64_t best_ns, best_span_ns; /* INT64_MAX: none yet */
    /* While no candidate fits: excess, need and memory of the one that came nearest, in bytes. */
    int64_t least_excess, excess_need, excess_have;
    int excess_rank;
    int64_t *memory;
    const int64_t *limits; /* memory of each rank, the smallest of its devices in all replicas */
    int *room; /* [rank]: about how many pairs fit its memory, by the first candidate; 0: unknown */
};

/* Estimate from a candidate, whose memory is in s->memory, how many (stage, micro-batch) pairs each
 * rank can hold. The lists that this leads to are judged by their true memory. */
static enum status estimate_room(struct search *s, const struct schedule *compute, struct err *err)
{
    const struct workload *w = s->workload;
    int *live = calloc((size_t)compute->num_ranks, sizeof *live);
    if (!live)
        return err_nomem(err);
    schedule_peak_live(compute, live);
    for (int k = 0; k < compute->num_ranks; k++) {
        int64_t pair_bytes = INT64_MAX;
        for (int t = 0; t < w->num_stages; t++) {
            const struct stage_cost *stage = &w->stages[t];
            const int64_t bytes = s->plan->recompute == RECOMPUTE_NEVER
                                      ? stage->stash_bytes[MB_FULL]
                                      : stage->input_bytes[MB_FULL];
            if (w->rank_of_stage[t] == k && bytes < pair_bytes)
                pair_bytes = bytes;
        }
        const int64_t most = (int64_t)w->num_microbatches * w->num_stages;
        int64_t room = most;
        if (pair_bytes > 0 && s->limits[k] != INT64_MAX)
            room = live[k] + (s->limits[k] - s->memory[k]) / pair_bytes;
        s->room[k] = (int)(room < 1 ? 1 : room < most ? room : most);
    }
    free(live);
    return OK;
}

/* The longest time that a device spends from its first op to its last. */
static int64_t longest_span(const struct step_time *time, int num_ranks)
{
    int64_t longest = 0;
    for (int k = 0; k < num_ranks; k++) {
        const int64_t span = time->rank_last_ns[k] - time->rank_first_ns[k];
        longest = span > longest ? span : longest;
    }
    return longest;
}

/* Time a frozen compute list. */
static enum status judge(struct search *s, const struct schedule *compute, struct verdict *verdict,
                         struct err *err)
{
    struct schedule full = {0};
    struct step_time time = {0};
    int worst = 0;
    enum status rc = schedule_lower(compute, s->workload, s->plan, &full, err);
    THEN(schedule_memory(&full, s->workload, s->memory, err));
    for (int k = 1; rc == OK && k < full.num_ranks; k++)
        if (s->memory[k] - s->limits[k] > s->memory[worst] - s->limits[worst])
            worst = k;
    if (rc == OK && s->room[0] == 0)
        rc = estimate_room(s, compute, err);
    const int64_t excess = rc == OK ? s->memory[worst] - s->limits[worst] : 0;
    verdict->fits = excess <= 0;
    if (excess > 0 && excess < s->least_excess) {
        s->least_excess = excess;
        s->excess_rank = worst;
        s->excess_need = s->memory[worst];
        s->excess_have = s->limits[worst];
    }
    if (rc == OK && verdict->fits)
        rc = workload_near(s->plan, &full, s->workload, err);
    if (rc == OK && verdict->fits) {
        rc = schedule_time(&full, s->workload, s->plan, &time, err);
        if (rc == OK) {
            verdict->step_ns = time.step_ns;
            verdict->span_ns = longest_span(&time, full.num_ranks);
        }
    }
    step_time_clear(&time);
    schedule_clear(&full);
    return rc;
}

/* The shorter step wins. Of equal steps the one whose devices have the shorter longest span wins,
 * which is what the zero-bubble papers minimize: it is the period of steps that overlap. */
static bool better(const struct search *s, const struct verdict *got)
{
    return got->step_ns < s->best_ns ||
           (got->step_ns == s->best_ns && got->span_ns < s->best_span_ns);
}

/* Judge *compute and keep it if it is the best so far; consumes it. */
static enum status offer(struct search *s, struct schedule *compute, struct err *err)
{
    struct verdict got = {0};
    enum status rc = judge(s, compute, &got, err);
    if (rc == OK && got.fits && better(s, &got)) {
        schedule_clear(&s->best);
        s->best = *compute;
        *compute = (struct schedule){0};
        s->best_ns = got.step_ns;
        s->best_span_ns = got.span_ns;
    }
    schedule_clear(compute);
    return rc;
}

static enum status offer_named(struct search *s, struct err *err)
{
    const struct plan *plan = s->plan;
    for (int kind = 0; kind < SCHEDULE_SEARCH; kind++) {
        const bool chunks = schedule_default_chunks((enum schedule_kind)kind) > 1;
        bool here = chunks == (plan->chunks > 1) && !(recompute_whole_backward(plan->recompute) &&
                                                      schedule_splits((enum schedule_kind)kind));
        for (int t = 0; t < plan->num_stages && here; t++) {
            here = schedule_rank_of_stage((enum schedule_kind)kind, plan->num_ranks, t) ==
                   s->workload->rank_of_stage[t];
        }
        struct schedule compute = {0};
        struct err none = {0};
        if (!here ||
            schedule_generate((enum schedule_kind)kind, plan->num_ranks, plan->microbatches.count,
                              plan->chunks, &compute, &none) == ERR_INFEASIBLE)
            continue;
        enum status rc = err_copy(err, &none);
        if (rc == OK && plan->num_frozen_layers > 0) {
            rc = schedule_freeze(&compute, s->workload->num_frozen_stages,
                                 s->workload->i_folded_into_w, err);
        }
        THEN(offer(s, &compute, err));
        if (rc != OK) {
            schedule_clear(&compute);
            return rc;
        }
    }
    return OK;
}

/* Set how many (stage, micro-batch) pairs may be in flight on each rank. The variants range from
 * the depth of 1F1B to all micro-batches, within about what fits the memory. The last two are what
 * fits, and one less. */
static void set_limits(const struct search *s, int variant, int *limits)
{
    const int K = s->plan->num_ranks, M = s->plan->microbatches.count, v = s->plan->chunks;
    for (int k = 0; k < K; k++) {
        const int each[] = {K - k, K, K + (K - k) / 2, 2 * (K - k) - 1, 2 * K - 1, 2 * K + 1, M};
        const int room = variant == 8 && s->room[k] > 1 ? s->room[k] - 1 : s->room[k];
        const int wanted = variant < 7 && each[variant] * v < room ? each[variant] * v : room;
        limits[k] = wanted > v * M ? v * M : wanted < v ? v : wanted;
    }
}
enum { LIMIT_VARIANTS = 9 };

static enum status offer_lists(struct search *s, struct err *err)
{
    const struct plan *plan = s->plan;
    const bool whole = recompute_whole_backward(plan->recompute);
    if (schedule_search_work(plan) > SCHEDULE_SEARCH_WORK)
        return OK;
    static const int waits[] = {0, 30, 70, 110}, fills[] = {0, 40, 80, 100};
    enum status rc = OK;
    int *limits = calloc((size_t)plan->num_ranks, sizeof *limits);
    if (!limits)
        return err_nomem(err);
    for (int variant = 0; variant < LIMIT_VARIANTS; variant++) {
        set_limits(s, variant, limits);
        /* The bits of i choose split, forward_first, wait and fill. If one switch makes another one
         * meaningless, only one value of the other is tried. */
        for (int i = 0; i < 64 && rc == OK; i++) {
            const bool split = i & 1, forward_first = i & 2;
            const int wait = (i >> 2) & 3, fill = i >> 4;
            if ((forward_first && wait > 0) || (!split && fill > 0) || (split && whole))
                continue;
            const struct list_rules rules = {.split = split,
                                             .forward_first = forward_first,
                                             .wait_percent = waits[wait],
                                             .fill_percent = fills[fill],
                                             .limits = limits};
            struct schedule compute = {0};
            bool complete = false;
            rc = schedule_list(s->workload, &rules, &compute, &complete, err);
            if (rc == OK && complete)
                rc = offer(s, &compute, err);
        }
    }
    free(limits);
    return rc;
}

/* Set *bound_ns such that no schedule is faster: the first forward has to reach a rank, and then
 * the rank has to do all its work. */
static enum status lower_bound(const struct workload *w, int64_t *bound_ns, struct err *err)
{
    const int M = w->num_microbatches;
    int64_t bound = 0, reach = 0, *end = calloc((size_t)w->num_ranks, sizeof *end);
    if (!end)
        return err_nomem(err);
    for (int s = 0; s < w->num_stages; s++) {
        const struct stage_cost *stage = &w->stages[s];
        int64_t *rank_end = &end[w->rank_of_stage[s]];
        *rank_end = *rank_end > 0 ? *rank_end : reach; /* set at the rank's lowest stage */
        for (int mb = 0; mb < MB_SIZES; mb++) {
            const int64_t backward = s < w->num_frozen_stages ? 0 : stage->op_ns[OP_B][mb];
            *rank_end += (mb == MB_LAST ? 1 : M - 1) * (stage->op_ns[OP_F][mb] + backward);
        }
        bound = *rank_end > bound ? *rank_end : bound;
        /* The last micro-batch may be the smaller one, and may come first. */
        const int small =
            stage->op_ns[OP_F][MB_LAST] < stage->op_ns[OP_F][MB_FULL] ? MB_LAST : MB_FULL;
        reach += stage->op_ns[OP_F][M == 1 ? MB_LAST : small];
        if (s + 1 < w->num_stages) {
            const int64_t full = workload_edge_ns(w, 0, s, false, MB_FULL);
            const int64_t last = workload_edge_ns(w, 0, s, false, MB_LAST);
            reach += full < last ? full : last;
        }
    }
    free(end);
    *bound_ns = bound;
    return OK;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state; /* xorshift64 (Marsaglia 2003) */
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* Whether a and b, neighbours on a rank, may change places without breaking the order that the ops
 * of one rank must keep. */
static bool may_swap(struct op a, struct op b)
{
    const bool forward_a = a.kind == OP_F || a.kind == OP_Z;
    const bool forward_b = b.kind == OP_F || b.kind == OP_Z;
    const int apart = a.stage > b.stage ? a.stage - b.stage : b.stage - a.stage;
    if (a.microbatch == b.microbatch)
        return apart > 1; /* schedule_check() finds a broken skip edge inside the rank */
    if (a.stage != b.stage)
        return true;
    if (forward_a || forward_b)
        return forward_a != forward_b;
    return (a.kind == OP_I && b.kind == OP_W) || (a.kind == OP_W && b.kind == OP_I);
}

/* Move the op at `from` towards `to` as far as may_swap() allows; returns its new place. */
static int64_t move_op(struct rank_ops *rank, int64_t from, int64_t to)
{
    const int step = to > from ? 1 : -1;
    while (from != to && may_swap(rank->ops[from], rank->ops[from + step])) {
        const struct op kept = rank->ops[from];
        rank->ops[from] = rank->ops[from + step];
        rank->ops[from + step] = kept;
        from += step;
    }
    return from;
}

static void move_back(struct rank_ops *rank, int64_t from, int64_t to)
{
    const struct op op = rank->ops[from];
    if (to > from)
        memmove(rank->ops + from, rank->ops + from + 1, (size_t)(to - from) * sizeof op);
    else
        memmove(rank->ops + to + 1, rank->ops + to, (size_t)(from - to) * sizeof op);
    rank->ops[to] = op;
}

/* Hill climbing. It also accepts moves that change nothing, to cross plateaus. A move that makes
 * the lists deadlock is undone. */
static enum status improve(struct search *s, struct err *err)
{
    int64_t ops = 0;
    for (int k = 0; k < s->best.num_ranks; k++)
        ops += s->best.ranks[k].num_ops;
    struct schedule now = {0};
    enum status rc = schedule_copy(&s->best, &now, err);
    uint64_t random = 0x9e3779b97f4a7c15u;
    int64_t now_ns = s->best_ns;
    for (int64_t left = MOVE_WORK / (ops + 1); left > 0 && rc == OK; left--) {
        struct rank_ops *rank = &now.ranks[next_random(&random) % (uint64_t)now.num_ranks];
        if (rank->num_ops < 2)
            continue;
        const int64_t from = (int64_t)(next_random(&random) % (uint64_t)rank->num_ops);
        int64_t to = from + (int64_t)(next_random(&random) % (2 * MOVE_REACH + 1)) - MOVE_REACH;
        to = to < 0 ? 0 : to >= rank->num_ops ? rank->num_ops - 1 : to;
        const int64_t at = move_op(rank, from, to);
        if (at == from)
            continue;
        struct verdict got = {0};
        struct err why = {0};
        const enum status judged = judge(s, &now, &got, &why);
        if (judged != OK && judged != ERR_INFEASIBLE) {
            rc = err_copy(err, &why);
        } else if (judged != OK || !got.fits || got.step_ns > now_ns) {
            move_back(rank, at, from);
        } else if (better(s, &got) && schedule_check(&now, 0, NULL) == OK) {
            for (int k = 0; k < now.num_ranks; k++) {
                memcpy(s->best.ranks[k].ops, now.ranks[k].ops,
                       (size_t)now.ranks[k].num_ops * sizeof(struct op));
            }
            s->best.kind = SCHEDULE_SEARCH;
            s->best_ns = now_ns = got.step_ns;
            s->best_span_ns = got.span_ns;
        } else {
            now_ns = got.step_ns;
        }
    }
    schedule_clear(&now);
    return rc;
}

static enum status run_search(struct search *s, struct err *err)
{
    s->best_ns = s->best_span_ns = s->least_excess = INT64_MAX;
    int64_t bound = 0, *nearest = calloc((size_t)s->plan->num_stages, sizeof *nearest);
    enum status rc = nearest ? OK : err_nomem(err);
    THEN(workload_set_distances(s->plan, nearest, s->workload, err));
    free(nearest);
    THEN(lower_bound(s->workload, &bound, err));
    THEN(offer_named(s, err));
    if (rc == OK && s->best_ns > bound)
        rc = offer_lists(s, err);
    /* A move could part the pairs of DualPipe that run as one op. */
    const bool pairs = schedule_overlaps(s->best.kind) && workload_hides_messages(s->workload);
    if (rc == OK && s->best_ns > bound && s->best_ns < INT64_MAX && !pairs)
        rc = improve(s, err);
    return rc;
}

enum status schedule_auto(const struct setting *setting, const struct plan *plan,
                          struct workload *workload, struct schedule *compute, struct err *err)
{
    const size_t K = (size_t)plan->num_ranks, S = (size_t)plan->num_stages;
    int64_t *limits = calloc(K, sizeof *limits), *memory = calloc(K, sizeof *memory);
    int *ranks = calloc(S, sizeof *ranks);
    struct workload kept = {0};
    int *room = calloc(K, sizeof *room);
    struct search best = {.best_ns = INT64_MAX, .least_excess = INT64_MAX};
    enum status rc = limits && memory && ranks && room ? OK : err_nomem(err);
    if (rc == OK)
        plan_memory_limits(plan, setting->cluster, limits);
    /* Shape 0 puts stage s on rank s mod K. Shape 1, with two chunks, is the V. */
    for (int shape = 0; shape < (plan->chunks == 2 ? 2 : 1) && rc == OK; shape++) {
        struct workload w = {0};
        struct search s = {
            .plan = plan, .workload = &w, .memory = memory, .limits = limits, .room = room};
        memset(room, 0, K * sizeof *room);
        for (int t = 0; t < plan->num_stages; t++) {
            ranks[t] =
                schedule_rank_of_stage(shape ? SCHEDULE_ZB_V : SCHEDULE_1F1B, plan->num_ranks, t);
        }
        rc = workload_build(setting, plan, ranks, &w, err);
        THEN(run_search(&s, err));
        if (rc == OK && (s.best_ns < best.best_ns ||
                         (best.best_ns == INT64_MAX && s.least_excess < best.least_excess))) {
            struct workload old = kept;
            struct schedule old_list = best.best;
            kept = w;
            w = old;
            best = s;
            s.best = old_list;
        }
        schedule_clear(&s.best);
        workload_clear(&w);
    }
    if (rc == OK && best.best_ns == INT64_MAX) {
        rc = err_set(err, ERR_INFEASIBLE,
                     "no schedule fits: rank %d needs %lld bytes, its device has %lld",
                     best.excess_rank, (long long)best.excess_need, (long long)best.excess_have);
        err_hint(err, "fewer samples a micro-batch, recompute or more stages need less");
    }
    if (rc == OK) {
        *workload = kept;
        *compute = best.best;
        kept = (struct workload){0};
        best.best = (struct schedule){0};
    }
    schedule_clear(&best.best);
    workload_clear(&kept);
    free(limits);
    free(memory);
    free(ranks);
    free(room);
    return rc;
}

enum status schedule_auto_uniform(int num_ranks, int num_microbatches, int chunks,
                                  struct schedule *compute, struct err *err)
{
    struct model model = {0};
    struct cluster cluster = {0};
    struct cost cost;
    struct workload workload = {0};
    struct schedule probe = {0};
    struct plan plan = {
        .num_ranks = num_ranks,
        .chunks = chunks,
        .num_pipelines = 1,
        .batch = num_microbatches,
        .microbatches = {num_microbatches, 1, 1}
    };
    struct item *items = NULL;
    /* Counts have the limits that they have for a named schedule. */
    enum status rc =
        schedule_generate(SCHEDULE_INTERLEAVED, num_ranks, num_microbatches, chunks, &probe, err);
    schedule_clear(&probe);
    if (rc != OK)
        return rc;
    const int S = plan.num_stages = num_ranks * chunks;
    items = calloc((size_t)S, sizeof *items);
    plan.first_item = calloc((size_t)S + 1, sizeof *plan.first_item);
    plan.device = calloc((size_t)num_ranks, sizeof *plan.device);
    if (!items || !plan.first_item || !plan.device) {
        rc = err_nomem(err);
        goto out;
    }
    for (int s = 0; s < S; s++) {
        items[s] = (struct item){.kind = ITEM_OPAQUE,
                                 .layer = s,
                                 .fwd_ns = 1000,
                                 .bwd_input_ns = 1000,
                                 .bwd_weight_ns = 1000};
        plan.first_item[s + 1] = s + 1;
    }
    for (int k = 0; k < num_ranks; k++)
        plan.device[k] = k;
    rc = model_explicit("equal stages", items, S, NULL, 0, true, &model, err);
    THEN(cluster_grid(1, num_ranks, &cluster, err));
    if (rc == OK) {
        cluster.link_latency_ns = cluster.uplink_latency_ns = 0;
        cost_constant(&cost);
        rc = schedule_auto(&(struct setting){&model, &cluster, &cost}, &plan, &workload, compute,
                           err);
    }
out:
    free(items);
    plan_clear(&plan);
    model_clear(&model);
    cluster_clear(&cluster);
    workload_clear(&workload);
    return rc;
}
