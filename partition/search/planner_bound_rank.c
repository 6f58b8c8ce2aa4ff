/* The bounds of planner_bound.h for one rank and for one cut.
 *
 * bound_rank_ns() computes bound-1 to bound-3 of a rank, and bound_rank_need_bytes() bound-4.
 * bound_balance() at the end is a heuristic that evens out a cut; it proves nothing. Read
 * planner_bound.h first. */
#include <math.h>
#include <string.h>

#include "partition/search/planner_bound.h"

/* The time of n ops beyond their passes; 0 for most cost sources. */
static inline int64_t all_ops_ns(const struct bound_shape *shape, int64_t n)
{
    return shape->op_ns == 0 ? 0 : bound_mul_add(n, shape->op_ns, 0);
}

static inline int64_t work_ns(const struct bound_shape *shape, const struct bound_stage *stage,
                              int t, int a, int b)
{
    const int64_t ops = bound_ops_of_stage(b > shape->table->num_frozen_items),
                  ops_ns = all_ops_ns(shape, ops * shape->num_microbatches);
    if (shape->work)
        return bound_min(shape->work[b] - shape->work[a] + ops_ns, BOUND_MAX_TERM);
    return bound_mul_add(bound_once_ns(stage->full[t], a, b), shape->num_microbatches - 1,
                         bound_add(ops_ns, bound_once_ns(stage->last[t], a, b)));
}

int64_t bound_work_ns(const struct bound_shape *shape, const struct bound_stage *stage, int t,
                      int a, int b)
{
    return work_ns(shape, stage, t, a, b);
}

/* Forwards and input halves of all micro-batches. */
static inline int64_t halves_ns(const struct bound_shape *shape, const struct bound_stage *stage,
                                int t, int a, int b)
{
    if (shape->halves)
        return shape->halves[b] - shape->halves[a];
    const struct bound_times *full = stage->full[t], *last = stage->last[t];
    const int64_t once = full->fwd[b] - full->fwd[a] + full->bwd_input[b] - full->bwd_input[a],
                  end = last->fwd[b] - last->fwd[a] + last->bwd_input[b] - last->bwd_input[a];
    return bound_mul_add(once, shape->num_microbatches - 1, end);
}

/* The sums over the stages of a rank on one type of device, whose ops take nothing beyond their passes. Any
 * stage may run the rank's last backward, so the least tail counts. */
struct rank_sums {
    int64_t work, halves, update, tail; /* halves: only with a split backward */
};

static inline void add_stage(const struct bound_shape *shape, const struct bound_stage *stage,
                             int a, int b, struct rank_sums *sums)
{
    const int64_t *update = stage->full[0]->update, own = update[b] - update[a];
    sums->work += shape->work[b] - shape->work[a];
    if (shape->split)
        sums->halves += shape->halves[b] - shape->halves[a];
    sums->update += own;
    sums->tail = bound_min(sums->tail, bound_tail_ns(shape, stage, a, b, own));
}

/* bound_rank_ns() of a rank whose lowest stage begins at item a, from these sums. again: of
 * RECOMPUTE_LAYER. At most eight numbers are added, so no sum overflows. */
static inline int64_t sums_ns(const struct bound_shape *shape, int stage, int a,
                              const struct rank_sums *sums, int64_t again, int64_t but_last)
{
    const struct bound_edges edges = bound_rank_edges(shape, stage, a);
    const int64_t before =
        shape->split ? sums->halves + edges.drain_in : bound_add(again, sums->work) + edges.drain;
    const int64_t behind = bound_add(but_last, sums->work) + bound_max(sums->tail, sums->update);
    return bound_min(edges.base + bound_max(before, behind), BOUND_MAX_TERM);
}

static inline bool has_sums(const struct bound_shape *shape)
{
    return shape->work && shape->op_ns == 0;
}

static inline int64_t parts_ns(const struct bound_shape *shape, const struct bound_part *parts,
                               int num_parts)
{
    struct rank_sums sums = {.tail = INT64_MAX};
    int64_t again = 0, but_last = 0;
    if (shape->mode == RECOMPUTE_LAYER)
        again = bound_again_ns(shape, parts, num_parts, 0, &but_last);
    for (int i = 0; i < num_parts; i++)
        add_stage(shape, &shape->stages[parts[0].stage], parts[i].a, parts[i].b, &sums);
    return sums_ns(shape, parts[0].stage, parts[0].a, &sums, again, but_last);
}

int64_t bound_rank_ns(const struct bound_shape *shape, const struct bound_part *parts,
                      int num_parts)
{
    const struct bound_stage *stage = &shape->stages[parts[0].stage];
    const struct bound_table *table = shape->table;
    if (has_sums(shape))
        return num_parts == 1 ? parts_ns(shape, parts, 1) : parts_ns(shape, parts, num_parts);
    const struct bound_edges edges = bound_rank_edges(shape, parts[0].stage, parts[0].a);
    int64_t bound = 0;
    for (int t = 0; t < stage->num_types; t++) {
        const struct bound_times *full = stage->full[t], *last = stage->last[t];
        int64_t work, halves = 0, update = 0, tail = INT64_MAX, but_last;
        const int64_t again = bound_again_ns(shape, parts, num_parts, t, &but_last);
        work = again;
        for (int i = 0; i < num_parts; i++) {
            const int b = parts[i].b, from = parts[i].a;
            work = bound_add(work_ns(shape, stage, t, from, b), work);
            if (shape->split)
                halves = bound_add(halves_ns(shape, stage, t, from, b), halves);
            /* Any stage of the rank may run the rank's last backward, so the least tail counts. */
            int64_t last_op = last->bwd_weight[b] - last->bwd_weight[from] + shape->op_ns;
            if (!shape->split)
                last_op += last->bwd_input[b] - last->bwd_input[from];
            int64_t bytes = table->grad_bytes[b] - table->grad_bytes[from], reduce = 0;
            if (bytes > 0) {
                const double ns = stage->allreduce_ns_per_byte * (double)bytes;
                reduce = stage->allreduce_ns +
                         (ns < (double)BOUND_MAX_TERM ? (int64_t)ns : BOUND_MAX_TERM);
            }
            int64_t own = full->update[b] - full->update[from];
            tail = bound_min(tail, bound_max(0, reduce - last_op) + own);
            update = bound_add(own, update);
        }
        if (shape->split)
            bound = bound_max(bound, bound_add(halves, edges.base + edges.drain_in));
        else
            bound = bound_max(bound, bound_add(work, edges.base + edges.drain));
        /* The last backward, which overlaps with the all-reduce, may run layers again. */
        work -= again - but_last;
        bound = bound_max(bound, bound_add(work, edges.base + bound_max(tail, update)));
    }
    return bound;
}

int64_t bound_rank_need_bytes(const struct bound_shape *shape, const struct bound_part *parts,
                              int num_parts)
{
    const struct bound_table *table = shape->table;
    const bool each = !table->problem->setting.model->per_microbatch;
    const int64_t size = each ? shape->size : 1, last = each ? shape->last_size : 1;
    int64_t fixed = 0, moment = 0, most = 0;
    for (int i = 0; i < num_parts; i++) {
        const struct bound_stage *stage = &shape->stages[parts[i].stage];
        const int a = parts[i].a, b = parts[i].b;
        const int64_t stash = shape->stash_bytes[b] - shape->stash_bytes[a];
        const int64_t live = stage->live;
        fixed = bound_add(bound_fixed_bytes(table, a, b, shape->num_pipelines), fixed);
        if (!shape->recompute) {
            moment = bound_mul_add(stash, stage->held_samples, moment);
        } else {
            /* The rank's first backward is of its highest stage. At that moment the stash of that
             * stage is rebuilt, and the other micro-batches hold only their inputs. */
            if (b > table->num_frozen_items && parts[i].stage > 0)
                moment = bound_mul_add(live < shape->num_microbatches ? live : live - 1,
                                       shape->input_bytes, moment);
            const int64_t whole =
                bound_mul_add(stash, shape->num_microbatches > 1 ? size : last, 0);
            if (parts[i].stage >= shape->num_stages - shape->num_ranks)
                moment = bound_add(whole, moment);
            most = bound_max(most, whole);
        }
    }
    return bound_add(bound_max(moment, most), fixed);
}

/* --- one cut -------------------------------------------------------------------------------- */

/* Stage c of rank r. */
static inline int stage_of_rank(const struct bound_shape *shape, int r, int c)
{
    const int K = shape->num_ranks;
    return c > 0 && shape->peel ? 2 * K - 1 - r : c * K + r;
}

/* Set the parts of rank r under a cut; returns how many there are. */
static inline int parts_of_rank(const struct bound_shape *shape, const int *first_item, int r,
                                struct bound_part *parts)
{
    for (int c = 0; c < shape->chunks; c++) {
        const int s = stage_of_rank(shape, r, c);
        parts[c] = (struct bound_part){s, first_item[s], first_item[s + 1]};
    }
    return shape->chunks;
}

/* bound_rank_ns() of rank r under a cut. */
static inline int64_t rank_of_cut_ns(const struct bound_shape *shape, const int *first_item, int r)
{
    const struct bound_stage *stage = &shape->stages[r];
    struct rank_sums sums = {.tail = INT64_MAX};
    if (!has_sums(shape) || shape->mode == RECOMPUTE_LAYER) {
        const int n = parts_of_rank(shape, first_item, r, shape->parts);
        return bound_rank_ns(shape, shape->parts, n);
    }
    add_stage(shape, stage, first_item[r], first_item[r + 1], &sums);
    for (int c = 1; c < shape->chunks; c++) {
        const int s = stage_of_rank(shape, r, c);
        add_stage(shape, stage, first_item[s], first_item[s + 1], &sums);
    }
    return sums_ns(shape, r, first_item[r], &sums, 0, 0);
}

int64_t bound_of_cut(const struct bound_shape *shape, const int *first_item)
{
    int64_t bound = shape->floor_ns;
    for (int r = 0; r < shape->num_ranks; r++)
        bound = bound_max(bound, rank_of_cut_ns(shape, first_item, r));
    return bound;
}

bool bound_cut_within(const struct bound_shape *shape, const int *first_item, int64_t limit_ns)
{
    bool within = shape->floor_ns <= limit_ns;
    for (int r = 0; r < shape->num_ranks && within; r++)
        within = rank_of_cut_ns(shape, first_item, r) <= limit_ns;
    return within;
}

/* The rank of stage r begins behind r items at least. */
int64_t bound_of_cuts(const struct bound_shape *shape)
{
    const int K = shape->num_ranks, a = shape->first_item, b = shape->num_items;
    int64_t base = 0, drain = 0;
    if (!has_sums(shape))
        return 0;
    for (int r = 0; r < K; r++) {
        const struct bound_edges edges = bound_rank_edges(shape, r, a + r);
        base = bound_add(edges.base, base);
        drain = bound_add(shape->split ? edges.drain_in : edges.drain, drain);
    }
    struct rank_sums all = {.tail = INT64_MAX};
    add_stage(shape, &shape->stages[0], a, b, &all);
    const int64_t before = bound_add(shape->split ? all.halves : all.work, drain),
                  behind = bound_add(all.work, all.update);
    return bound_add(bound_max(before, behind), base) / K;
}

bool bound_cut_fits(const struct bound_shape *shape, const int *first_item, int64_t *over)
{
    bool fits = true;
    for (int r = 0; r < shape->num_ranks; r++) {
        const int64_t mem_bytes = shape->stages[r].mem_bytes;
        const int n = parts_of_rank(shape, first_item, r, shape->parts);
        const int64_t need =
            mem_bytes == INT64_MAX ? 0 : bound_rank_need_bytes(shape, shape->parts, n) - mem_bytes;
        over[r] = bound_max(need, 0);
        fits = fits && over[r] == 0;
    }
    return fits;
}

enum { MOST_MOVED = 3 }; /* boundaries that a move of bound_balance() takes along */

/* What bound_balance() measures its penalties by. */
struct scale {
    double unit_ns;
    bool has_room; /* no rank exceeds its memory, whatever the cut */
};

/* Whether the smallest memory would hold all items, each at the moment when most is held. */
static bool has_room(const struct bound_shape *shape)
{
    const int first = shape->first_item, n = shape->num_items;
    int64_t mem_bytes = INT64_MAX, held = 0, inputs = 0;
    for (int s = 0; s < shape->num_stages; s++) {
        mem_bytes = bound_min(mem_bytes, shape->stages[s].mem_bytes);
        held = bound_max(held, bound_max(shape->stages[s].held_samples, shape->size));
        inputs = bound_mul_add(shape->stages[s].live, shape->input_bytes, inputs);
    }
    const int64_t stash = shape->stash_bytes[n] - shape->stash_bytes[first],
                  fixed = bound_fixed_bytes(shape->table, first, n, shape->num_pipelines);
    return bound_add(bound_mul_add(stash, held, inputs), fixed + shape->chunks) <= mem_bytes;
}

/* The penalty of a rank: (bound / unit_ns)^8, plus 1e6 for each byte beyond its memory. The eighth
 * power lets the longest rank dominate a sum over ranks, and still tells the others apart. From `most` on
 * it may be less than that. */
static inline double rank_load(const struct bound_shape *shape, const int *first_item, int r,
                               const struct scale *scale, double most)
{
    const int64_t mem_bytes = scale->has_room ? INT64_MAX : shape->stages[r].mem_bytes;
    const double x = (double)rank_of_cut_ns(shape, first_item, r) / scale->unit_ns,
                 load = x * x * x * x * x * x * x * x;
    if (mem_bytes == INT64_MAX || load >= most)
        return load;
    const int n = parts_of_rank(shape, first_item, r, shape->parts);
    return load +
           (double)bound_max(bound_rank_need_bytes(shape, shape->parts, n) - mem_bytes, 0) * 1e6;
}

/* Move the boundaries `from` to `to` by `step` items if that lowers the sum of penalties. */
static bool balance_move(const struct bound_shape *shape, int *first_item, int from, int to,
                         int step, const struct scale *scale)
{
    double before = 0, after = 0;
    if (first_item[from] + step <= first_item[from - 1] ||
        first_item[to] + step >= first_item[to + 1])
        return false;
    for (int s = from - 1; s <= to; s++)
        before += shape->loads[shape->stages[s].rank];
    for (int s = from; s <= to; s++)
        first_item[s] += step;
    /* The stage that gains items first: mostly it makes the move fail by itself. */
    const double most = before * (1 - 1e-9);
    double loads[MOST_MOVED + 1];
    for (int i = from - 1; i <= to && after < most; i++) {
        const int s = step > 0 ? i : from - 1 + to - i;
        loads[s - from + 1] = rank_load(shape, first_item, shape->stages[s].rank, scale, most);
        after += loads[s - from + 1];
    }
    if (after < most) {
        for (int s = from - 1; s <= to; s++)
            shape->loads[shape->stages[s].rank] = loads[s - from + 1];
        return true;
    }
    for (int s = from; s <= to; s++)
        first_item[s] -= step;
    return false;
}

/* Whether a rank of stages [from, to] has changed after a time. */
static bool changed_since(const struct bound_shape *shape, const int *changed, int from, int to,
                          int time)
{
    for (int s = from; s <= to; s++)
        if (changed[shape->stages[s].rank] > time)
            return true;
    return false;
}

/* A move that failed fails again until one of its ranks changes, so it is not tried before. Times
 * count the moves that were made: changed[r] is that of rank r's last one, tried[] that of a move's
 * last attempt. */
void bound_balance(const struct bound_shape *shape, int *first_item)
{
    const int S = shape->num_stages;
    const struct scale scale = {fmax((double)bound_of_cut(shape, first_item), 1), has_room(shape)};
    int *tried = shape->tried, *changed = tried + 6 * (ptrdiff_t)S, time = 1;
    memset(tried, 0, 6 * (size_t)S * sizeof *tried);
    for (int r = 0; r < shape->num_ranks; r++) {
        shape->loads[r] = rank_load(shape, first_item, r, &scale, INFINITY);
        changed[r] = time;
    }
    bool better = true;
    for (int round = 0; better && round < 4 * S; round++) {
        better = false;
        for (int width = 1; width <= MOST_MOVED; width++) {
            for (int s = 1; s + width <= S; s++) {
                bool moved = false;
                for (int up = 0; up < 2 && !moved; up++) {
                    int *last = &tried[2 * ((width - 1) * S + s) + up];
                    const int to = s + width - 1;
                    if (!changed_since(shape, changed, s - 1, to, *last))
                        continue;
                    moved = balance_move(shape, first_item, s, to, up ? 1 : -1, &scale);
                    *last = time;
                    time += moved;
                    for (int t = s - 1; moved && t <= to; t++)
                        changed[shape->stages[t].rank] = time;
                }
                better |= moved;
            }
        }
    }
}
