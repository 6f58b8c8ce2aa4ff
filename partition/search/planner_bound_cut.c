/* The least bound over all cuts.
 *
 * bound_solve() bisects over the step time T. For each T it asks whether a cut exists: reaches()
 * answers for one chunk a rank by giving each stage as many items as T allows, and peel() answers
 * for V-shaped schedules by a table over both ends of the chain. Read planner_bound.h first, then
 * bound_solve(). */
#include <limits.h>

#include "partition/search/planner_bound.h"

static bool rank_fits(const struct bound_shape *shape, const struct bound_part *parts,
                      int num_parts)
{
    const int64_t mem_bytes = shape->stages[parts[0].stage].mem_bytes;
    return mem_bytes == INT64_MAX || bound_rank_need_bytes(shape, parts, num_parts) <= mem_bytes;
}

static bool rank_ok(const struct bound_shape *shape, const struct bound_part *parts, int num_parts,
                    int64_t limit_ns)
{
    return rank_fits(shape, parts, num_parts) && bound_rank_ns(shape, parts, num_parts) <= limit_ns;
}

/* The least step with items [a, b) on stage s; INT64_MAX: they do not fit its memory. With several
 * chunks this looks at the stage alone, so it is only a bound of that. */
static int64_t stage_ns(const struct bound_shape *shape, int s, int a, int b)
{
    const struct bound_part part = {s, a, b};
    int64_t most = 0;
    if (!rank_fits(shape, &part, 1))
        return INT64_MAX;
    if (shape->chunks == 1)
        return bound_rank_ns(shape, &part, 1);
    for (int t = 0; t < shape->stages[s].num_types; t++)
        most = bound_max(most, bound_work_ns(shape, &shape->stages[s], t, a, b));
    return most;
}

/* A stage that takes as many items as a limit allows: the step that these take, and the least step with
 * one more (INT64_MAX: none). */
struct fill {
    int64_t taken_ns, more_ns;
};

/* Whether stage s may hold items [a, b) within the limit. */
static bool stage_ok(const struct bound_shape *shape, int s, int a, int b, int64_t limit_ns,
                     struct fill *fill)
{
    const int64_t ns = stage_ns(shape, s, a, b);
    const bool ok = ns <= limit_ns && ns < INT64_MAX;
    if (ok)
        fill->taken_ns = ns;
    else
        fill->more_ns = ns;
    return ok;
}

/* The largest end b in [a, most] of a stage that starts at a. The search starts at a + guess,
 * because neighbouring stages usually have similar sizes. The last good and the last bad end that it
 * looks at are b and b + 1, so *fill is about these. */
static int stage_end(const struct bound_shape *shape, int s, int a, int most, int guess,
                     int64_t limit_ns, struct fill *fill)
{
    int good = a, bad = most + 1, at = a + guess < most ? a + guess : most;
    *fill = (struct fill){0, INT64_MAX};
    if (at > good) {
        if (stage_ok(shape, s, a, at, limit_ns, fill)) {
            good = at;
            for (int step = 1; good + step < bad; step *= 2) {
                if (!stage_ok(shape, s, a, good + step, limit_ns, fill)) {
                    bad = good + step;
                    break;
                }
                good += step;
            }
        } else {
            bad = at;
            for (int step = 1; bad - step > good; step *= 2) {
                if (stage_ok(shape, s, a, bad - step, limit_ns, fill)) {
                    good = bad - step;
                    break;
                }
                bad -= step;
            }
        }
    }
    while (bad - good > 1) {
        int middle = good + (bad - good) / 2;
        if (stage_ok(shape, s, a, middle, limit_ns, fill))
            good = middle;
        else
            bad = middle;
    }
    return good;
}

/* Give each empty stage an item: first from the stages before it, then from the stages after it. */
static void make_whole(const struct bound_shape *shape, int *first_item)
{
    for (int s = shape->num_stages - 1; s > 0; s--)
        first_item[s] = (int)bound_min(first_item[s], first_item[s + 1] - 1);
    for (int s = 1; s < shape->num_stages; s++)
        first_item[s] = (int)bound_max(first_item[s], first_item[s - 1] + 1);
}

/* Give each stage in turn as many items as limit_ns allows, and leave one item for each stage to
 * come. A stage that cannot take even the next item stays empty at first, because a later stage may
 * have a faster device or more memory. A bound may relax the rule that no stage is empty. The first
 * stage is the exception: if it is empty, there is no cut. make_whole() fills empty stages at the
 * end. *all: of the stage that takes longest, and of the one that takes more soonest. The stages have
 * the same items at all limits in between. */
static bool reaches(const struct bound_shape *shape, int64_t limit_ns, int *first_item,
                    struct fill *all)
{
    int a = shape->first_item, guess = (shape->num_items - a) / shape->num_stages;
    first_item[0] = a;
    *all = (struct fill){0, INT64_MAX};
    for (int s = 0; s < shape->num_stages; s++) {
        struct fill fill;
        int most = shape->num_items - (shape->num_stages - 1 - s);
        int end = stage_end(shape, s, a, most, guess, limit_ns, &fill);
        all->taken_ns = bound_max(all->taken_ns, fill.taken_ns);
        all->more_ns = bound_min(all->more_ns, fill.more_ns);
        if (s == 0 && end == a)
            return false;
        guess = end - a;
        a = end;
        first_item[s + 1] = a;
    }
    if (a < shape->num_items)
        return false;
    make_whole(shape, first_item);
    return true;
}

int64_t bound_average_ns(const struct bound_shape *shape)
{
    const struct bound_stage *stage = &shape->stages[0];
    const int a = shape->first_item, b = shape->num_items;
    if (!shape->fill_full) { /* several device types: each item counts on the fastest of them */
        struct bound_shape bare = *shape;
        bare.op_ns = 0;
        int64_t total = 0;
        for (int i = a; i < b; i++) {
            int64_t least = INT64_MAX;
            for (int s = 0; s < shape->num_stages; s++)
                for (int t = 0; t < shape->stages[s].num_types; t++)
                    least = bound_min(least, bound_work_ns(&bare, &shape->stages[s], t, i, i + 1));
            total = bound_add(least, total);
        }
        return bound_max(shape->before_ns + total / shape->num_ranks, shape->floor_ns);
    }
    int64_t work = bound_work_ns(shape, stage, 0, a, b);
    /* work_ns() took the chain as one stage. Add the ops of the other stages. */
    int64_t ops = bound_mul_add(bound_ops_of_stage(shape->table->num_frozen_items == 0),
                                shape->num_microbatches, 0);
    work = bound_mul_add(bound_mul_add(ops, shape->num_stages - 1, 0), shape->op_ns, work);
    /* Sum fill and drain over ranks r: the first r items of the cut lie before rank r. */
    int64_t fill = 0, drain = 0;
    for (int r = 1; r < shape->num_ranks; r++) {
        fill = bound_add(shape->fill_full->fwd[a + r] - shape->fill_full->fwd[a], fill);
        if (!shape->split)
            drain = bound_mul_add(
                shape->fill_last->bwd_input[a + r] - shape->fill_last->bwd_input[a] +
                    shape->fill_last->bwd_weight[a + r] - shape->fill_last->bwd_weight[a],
                1, drain);
    }
    /* After its work a rank waits for drain or runs its update. The larger sum counts. */
    int64_t update = shape->fill_full->update[b] - shape->fill_full->update[a];
    int64_t bound = bound_add(bound_max(drain, update), bound_add(work, fill)) / shape->num_ranks;
    int64_t through = shape->fill_full->fwd[b] - shape->fill_full->fwd[a] +
                      shape->fill_last->bwd_input[b] - shape->fill_last->bwd_input[a] +
                      shape->stages[shape->num_stages - 1].hop_act_ns;
    bound = bound_max(bound, through);
    bound = bound_max(shape->before_ns + bound, shape->floor_ns);
    return bound_max(bound, bound_again_average_ns(shape));
}

/* Whether the whole chain fits the memory of all ranks together. With several chunks a bound for
 * each stage alone is weak. The sum over the ranks must hold the weights, gradients and optimizer
 * state of all items. It must also hold stash: when a rank begins the backward of micro-batch 0 on
 * its last stage, micro-batch 0 is in flight on all stages of the rank, because their backwards
 * come later. Under recompute only one of the v stages has rebuilt its stash then, so 1/v of the
 * stash counts. */
static bool ranks_fit(const struct bound_shape *shape)
{
    const struct bound_table *table = shape->table;
    const int a = shape->first_item, b = shape->num_items;
    int64_t room = 0;
    for (int s = 0; s < shape->num_stages; s++) {
        if (shape->stages[s].mem_bytes == INT64_MAX)
            return true;
        if (s < shape->num_ranks) /* stages 0..K-1 are on different ranks: count each rank once */
            room = bound_add(bound_max(shape->stages[s].mem_bytes, 0), room);
    }
    int64_t samples = shape->recompute ? shape->last_size : shape->size;
    if (table->problem->setting.model->per_microbatch)
        samples = 1;
    int64_t fixed = bound_fixed_bytes(table, a, b, shape->num_pipelines);
    int64_t stash = shape->stash_bytes[b] - shape->stash_bytes[a];
    return bound_mul_add(shape->recompute ? stash / shape->chunks : stash, samples, fixed) <= room;
}

/* Upper limits of what a rank can hold: memory, and the time limit minus the time that the rank
 * waits. work_ns limits all ops, halves_ns limits forwards and input halves. */
struct room {
    int64_t bytes, work_ns, halves_ns;
};

/* The room of rank r if it begins at item a. It is an upper limit for each later rank too, because
 * later ranks wait at least as long. */
static struct room rank_room(const struct bound_shape *shape, int r, int a, int64_t limit_ns)
{
    const struct bound_edges edges = bound_rank_edges(shape, r, a);
    return (struct room){.bytes = shape->stages[r].mem_bytes,
                         .work_ns = bound_max(limit_ns - edges.base, 0),
                         .halves_ns = bound_max(limit_ns - edges.base - edges.drain_in, 0)};
}

/* Whether `ranks` ranks, with `room` for memory in all and for time each, can hold items [a, b) and
 * [c, d). Items may be split in any way here, so this is a necessary condition. */
static bool room_for(const struct bound_shape *shape, const struct room *room, int64_t ranks, int a,
                     int b, int c, int d)
{
    const struct bound_table *table = shape->table;
    const int R = shape->num_pipelines;
    if (bound_fixed_bytes(table, a, b, R) + bound_fixed_bytes(table, c, d, R) > room->bytes)
        return false;
    return !shape->work ||
           (shape->work[b] - shape->work[a] + shape->work[d] - shape->work[c] <=
                bound_mul_add(ranks, room->work_ns, 0) &&
            shape->halves[b] - shape->halves[a] + shape->halves[d] - shape->halves[c] <=
                bound_mul_add(ranks, room->halves_ns, 0));
}

/* rank_ok() of a V's rank on one type of device, without the loops: peel() asks it some 100,000 times.
 * Made once for each rank and first item. */
struct pair {
    const struct bound_shape *shape;
    bool known; /* false: ask rank_ok() */
    int rank;
    int64_t mem_bytes;
    int64_t held
        [2]; /* samples whose stash the stages hold, or with recompute inputs of micro-batches */
    int64_t whole; /* with recompute: samples of the stash that is there at once */
    /* Limits of all ops, of all ops and what follows the last backward, of forwards and input halves. */
    int64_t work_ns, end_ns, halves_ns;
};

static void pair_begin(const struct bound_shape *shape, int r, int a, int64_t limit_ns,
                       struct pair *pair)
{
    const struct bound_edges edges = bound_rank_edges(shape, r, a);
    const struct bound_stage *low = &shape->stages[r],
                             *high = &shape->stages[2 * shape->num_ranks - 1 - r];
    const bool each = !shape->table->problem->setting.model->per_microbatch;
    const int64_t more = shape->num_microbatches, limit = bound_min(limit_ns, BOUND_MAX_TERM);
    *pair = (struct pair){
        .shape = shape,
        .known = shape->work && shape->op_ns == 0 && shape->mode != RECOMPUTE_LAYER,
        .rank = r,
        .mem_bytes = low->mem_bytes,
        .held = {low->held_samples, high->held_samples},
        .whole = each ? (more > 1 ? shape->size : shape->last_size) : 1,
        .work_ns = limit - edges.base - (shape->split ? 0 : edges.drain),
        .end_ns = limit - edges.base,
        .halves_ns = limit - edges.base - edges.drain_in
    };
    if (shape->recompute) {
        pair->held[0] = r == 0 ? 0 : low->live < more ? low->live : low->live - 1;
        pair->held[1] = high->live < more ? high->live : high->live - 1;
    }
}

/* Whether the rank may hold [a, a2) and [b2, b) within its memory. */
static bool pair_fits(const struct pair *pair, int a, int a2, int b2, int b)
{
    const struct bound_shape *shape = pair->shape;
    const struct bound_table *table = shape->table;
    const int R = shape->num_pipelines;
    if (pair->mem_bytes == INT64_MAX)
        return true;
    const int64_t fixed = bound_fixed_bytes(table, a, a2, R) + bound_fixed_bytes(table, b2, b, R);
    const int64_t low = shape->stash_bytes[a2] - shape->stash_bytes[a],
                  high = shape->stash_bytes[b] - shape->stash_bytes[b2];
    if (fixed > pair->mem_bytes)
        return false;
    if (!shape->recompute)
        return bound_mul_add(high, pair->held[1], bound_mul_add(low, pair->held[0], fixed)) <=
               pair->mem_bytes;
    const int64_t whole = bound_mul_add(high, pair->whole, 0);
    int64_t inputs = 0;
    if (a2 > table->num_frozen_items)
        inputs = bound_mul_add(pair->held[0], shape->input_bytes, 0);
    if (b > table->num_frozen_items)
        inputs = bound_mul_add(pair->held[1], shape->input_bytes, inputs);
    const int64_t moment = bound_max(bound_add(inputs, whole), bound_mul_add(low, pair->whole, 0));
    return bound_add(moment, fixed) <= pair->mem_bytes;
}

static bool pair_ok(const struct pair *pair, int a, int a2, int b2, int b, int64_t limit_ns)
{
    const struct bound_shape *shape = pair->shape;
    const int r = pair->rank, other = 2 * shape->num_ranks - 1 - r;
    if (!pair->known) {
        const struct bound_part parts[2] = {
            {r,     a,  a2},
            {other, b2, b }
        };
        return rank_ok(shape, parts, 2, limit_ns);
    }
    if (limit_ns == INT64_MAX)
        return pair_fits(pair, a, a2, b2, b);
    const int64_t *update = shape->stages[r].full[0]->update;
    const int64_t work = shape->work[a2] - shape->work[a] + shape->work[b] - shape->work[b2];
    const int64_t own = update[a2] - update[a], others = update[b] - update[b2];
    if (work > pair->work_ns || work + own + others > pair->end_ns ||
        (shape->split &&
         shape->halves[a2] - shape->halves[a] + shape->halves[b] - shape->halves[b2] >
             pair->halves_ns) ||
        !pair_fits(pair, a, a2, b2, b))
        return false;
    const int64_t tail = bound_min(bound_tail_ns(shape, &shape->stages[r], a, a2, own),
                                   bound_tail_ns(shape, &shape->stages[other], b2, b, others));
    return work + tail <= pair->end_ns;
}

/* Write the cut that ends with the last rank's items from a to `middle` and from there on. */
static void write_peel(int K, int64_t width, const int *min_b, const int *from, int a, int middle,
                       int *first_item)
{
    first_item[K] = middle;
    for (int r = K - 1, at = a; r >= 0; r--) {
        first_item[r] = at;
        first_item[2 * K - r] = min_b[r * width + at];
        at = from[r * width + at];
    }
}

/* Whether a cut for a V-shaped schedule exists within limit_ns and the memory.
 *
 * Ranks 0..r-1 hold both ends of the chain and leave the items [a, b) in the middle. Rank r, with a
 * stage on each arm of the V, takes [a, a2) and [b2, b). Either may be empty, because a bound may
 * relax the rule that no stage is empty. For a given a, the smallest b is best whatever follows,
 * because then the ranks to come have to take fewer items. So the table min_b[r][a], filled rank by
 * rank, decides exactly whether the ranks can share the chain. A rank takes few items, so filling
 * the table takes O(num_items^2). */
static bool peel(const struct bound_shape *shape, int64_t limit_ns, int *first_item)
{
    const int K = shape->num_ranks, n = shape->num_items, first = shape->first_item;
    const int64_t width = n + 1;
    int *min_b = shape->peel, *from = min_b + K * width;
    for (int64_t i = 0; i < K * width; i++)
        min_b[i] = INT_MAX;
    min_b[first] = n;
    int64_t bytes_left = 0;
    for (int r = 0; r < K; r++)
        bytes_left = bound_add(bound_max(shape->stages[r].mem_bytes, 0), bytes_left);
    for (int r = 0; r + 1 < K; r++) {
        int *next = min_b + (r + 1) * width;
        for (int a = first; a <= n; a++) {
            const int b = min_b[r * width + a];
            if (b == INT_MAX)
                continue;
            struct room all = rank_room(shape, r, a, limit_ns);
            all.bytes = bytes_left;
            if (!room_for(shape, &all, K - r, a, b, b, b))
                continue;
            struct pair pair;
            pair_begin(shape, r, a, limit_ns, &pair);
            int b2 = b;
            while (b2 > a && pair_ok(&pair, a, a, b2 - 1, b, limit_ns))
                b2--;
            for (int a2 = a; a2 <= b; a2++) {
                b2 = (int)bound_max(b2, a2);
                bool ok;
                while (!(ok = pair_ok(&pair, a, a2, b2, b, limit_ns)) && b2 < b)
                    b2++;
                if (!ok)
                    break;
                if (b2 < next[a2]) {
                    next[a2] = b2;
                    from[(r + 1) * width + a2] = a;
                }
            }
        }
        if (bytes_left < BOUND_MAX_TERM)
            bytes_left -= bound_max(shape->stages[r].mem_bytes, 0);
    }
    for (int a = first; a <= n; a++) {
        const int b = min_b[(K - 1) * width + a];
        struct pair pair;
        if (b == INT_MAX)
            continue;
        pair_begin(shape, K - 1, a, limit_ns, &pair);
        for (int middle = a; middle <= b; middle++) {
            if (!pair_ok(&pair, a, middle, middle, b, limit_ns))
                continue;
            write_peel(K, width, min_b, from, a, middle, first_item);
            make_whole(shape, first_item);
            return true;
        }
    }
    return false;
}

/* The least limit above `low`, and at most `high`, that a cut of one chunk a rank reaches, given that one
 * reaches `high`, whose stages take taken_ns. Each answer of reaches() holds for a range of limits. */
static int64_t least_limit(const struct bound_shape *shape, int64_t low, int64_t high,
                           int64_t taken_ns, int *first_item)
{
    int64_t step = low / 8 + 1; /* the answer is near low, and high may be far away */
    high = bound_max(bound_min(high, taken_ns), low + 1);
    while (high - low > 1) {
        struct fill all;
        const int64_t half = (high - low) / 2, at = low + bound_min(step, half);
        if (reaches(shape, at, first_item, &all)) {
            high = bound_max(bound_min(at, all.taken_ns), low + 1);
        } else {
            low = bound_min(all.more_ns, high) - 1;
            step = bound_min(2 * step, BOUND_MAX_TERM);
        }
    }
    return high;
}

/* What bound_solve() asks about a limit. */
struct asked {
    const struct bound_shape *shape;
    int64_t least_ns; /* unless peel() decides: limits from here on have a cut */
    int *first_item;
};

static bool cut_exists(const struct asked *asked, int64_t limit_ns)
{
    return asked->shape->peel ? peel(asked->shape, limit_ns, asked->first_item)
                              : limit_ns >= asked->least_ns;
}

bool bound_solve(const struct bound_shape *shape, int64_t limit_ns, int64_t *bound_ns,
                 int *first_item, bool *memory_only)
{
    int64_t low = bound_average_ns(shape) - 1, high = limit_ns;
    struct asked asked = {.shape = shape, .first_item = first_item};
    struct fill all;
    if (memory_only)
        *memory_only = false;
    if (shape->chunks > 1 && !ranks_fit(shape)) {
        if (memory_only)
            *memory_only = true;
        return false;
    }
    if (low >= high ||
        !(shape->peel ? peel(shape, high, first_item) : reaches(shape, high, first_item, &all))) {
        if (memory_only)
            *memory_only = !(shape->peel ? peel(shape, INT64_MAX, first_item)
                                         : reaches(shape, INT64_MAX, first_item, &all));
        return false;
    }
    const bool exact = shape->chunks == 1 || shape->peel;
    if (!exact) {
        /* Only the average is proven, so it is the bound. The bisection then finds the cut whose
         * longest stage is shortest. */
        *bound_ns = low + 1;
        low = 0;
    }
    if (shape->peel)
        high = bound_min(high, bound_of_cut(shape, first_item));
    else
        asked.least_ns = least_limit(shape, low, high, all.taken_ns, first_item);
    /* Gallop up from the average first: the answer is near it, and limit_ns may be far away. */
    for (int64_t step = low / 8 + 1; low + step < high; step *= 2) {
        if (cut_exists(&asked, low + step)) {
            high = low + step;
            break;
        }
        low += step;
    }
    /* Bisect to the ns for short pipelines, to one part in 16,384 for long ones, and to one part in
     * 1,024 for V-shaped schedules. The bound is then a little lower, so the planner judges a few
     * more candidates. */
    const int shift = shape->peel ? 10 : shape->num_stages <= 16 ? 40 : 14;
    while (high - low > 1 + (bound_max(low, 0) >> shift)) { /* low is -1 if the work is 0 ns */
        int64_t middle = low + (high - low) / 2;
        if (cut_exists(&asked, middle))
            high = shape->peel
                       ? bound_max(bound_min(bound_of_cut(shape, first_item), middle), low + 1)
                       : middle;
        else
            low = middle;
    }
    if (shape->peel)
        peel(shape, high, first_item);
    else
        reaches(shape, high, first_item, &all);
    if (exact)
        *bound_ns = low + 1;
    return true;
}
