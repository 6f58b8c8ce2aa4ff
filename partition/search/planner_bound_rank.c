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

static inline struct bound_edges rank_edges(const struct bound_shape *shape, int s, int a)
{
    const struct bound_stage *stage = &shape->stages[s];
    const int nf = shape->table->num_frozen_items;
    const int64_t ops_ns = all_ops_ns(shape, s);
    const struct bound_times *ff = shape->fill_full, *fl = shape->fill_last;
    struct bound_edges got = {.base = shape->before_ns + stage->hop_act_ns + ops_ns};
    if (ff) {
        got.base += ff->fwd[a] - ff->fwd[shape->first_item];
        got.drain_in = fl->bwd_input[a] - fl->bwd_input[shape->first_item];
        got.drain = got.drain_in + fl->bwd_weight[a] - fl->bwd_weight[shape->first_item];
    }
    /* Gradients cross every link below an active stage, unless the prefix in the cut is frozen. */
    if (nf == 0 || shape->first_item == nf) {
        got.drain += stage->hop_grad_ns + ops_ns;
        got.drain_in += stage->hop_grad_ns + (nf == 0 ? ops_ns : 0);
    }
    got.drain += shape->tied_ns;
    got.drain_in += shape->tied_ns;
    return got;
}

struct bound_edges bound_rank_edges(const struct bound_shape *shape, int s, int a)
{
    return rank_edges(shape, s, a);
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

/* bound_rank_ns() from the prefix sums over all micro-batches, on one type of device whose ops take
 * nothing beyond their passes. No sum of these saturates. */
static inline int64_t rank_sums_ns(const struct bound_shape *shape, const struct bound_part *parts,
                                   int num_parts)
{
    const struct bound_stage *stage = &shape->stages[parts[0].stage];
    const struct bound_edges edges = rank_edges(shape, parts[0].stage, parts[0].a);
    const int64_t *grad_bytes = shape->table->grad_bytes, *update_sum = stage->full[0]->update,
                  *weight_sum = stage->last[0]->bwd_weight, *input_sum = stage->last[0]->bwd_input;
    int64_t work = 0, halves = 0, update = 0, tail = INT64_MAX, again = 0, but_last = 0;
    if (shape->mode == RECOMPUTE_LAYER)
        again = bound_again_ns(shape, parts, num_parts, 0, &but_last);
    for (int i = 0; i < num_parts; i++) {
        const int a = parts[i].a, b = parts[i].b;
        const int64_t own = update_sum[b] - update_sum[a], bytes = grad_bytes[b] - grad_bytes[a];
        int64_t wait = 0;
        work += shape->work[b] - shape->work[a];
        halves += shape->halves[b] - shape->halves[a];
        if (bytes > 0) {
            const double ns = stage->allreduce_ns_per_byte * (double)bytes;
            wait =
                stage->allreduce_ns + (ns < (double)BOUND_MAX_TERM ? (int64_t)ns : BOUND_MAX_TERM);
            wait -= weight_sum[b] - weight_sum[a];
            if (!shape->split)
                wait -= input_sum[b] - input_sum[a];
        }
        tail = bound_min(tail, bound_max(0, wait) + own);
        update += own;
    }
    const int64_t before = shape->split
                               ? bound_add(halves, edges.base + edges.drain_in)
                               : bound_add(bound_add(again, work), edges.base + edges.drain);
    return bound_max(before,
                     bound_add(bound_add(but_last, work), edges.base + bound_max(tail, update)));
}

int64_t bound_rank_ns(const struct bound_shape *shape, const struct bound_part *parts,
                      int num_parts)
{
    const struct bound_stage *stage = &shape->stages[parts[0].stage];
    const struct bound_table *table = shape->table;
    if (shape->work && shape->op_ns == 0)
        return rank_sums_ns(shape, parts, num_parts);
    const struct bound_edges edges = rank_edges(shape, parts[0].stage, parts[0].a);
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

/* Set the parts of rank r under a cut; returns how many there are. */
static inline int parts_of_rank(const struct bound_shape *shape, const int *first_item, int r,
                                struct bound_part *parts)
{
    const int K = shape->num_ranks, n = shape->chunks;
    for (int c = 0; c < n; c++) {
        const int s = c > 0 && shape->peel ? 2 * K - 1 - r : c * K + r;
        parts[c] = (struct bound_part){s, first_item[s], first_item[s + 1]};
    }
    return n;
}

int64_t bound_of_cut(const struct bound_shape *shape, const int *first_item)
{
    int64_t bound = shape->floor_ns;
    for (int r = 0; r < shape->num_ranks; r++) {
        const int n = parts_of_rank(shape, first_item, r, shape->parts);
        bound = bound_max(bound, bound_rank_ns(shape, shape->parts, n));
    }
    return bound;
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
 * power lets the longest rank dominate a sum over ranks, and still tells the others apart. */
static double rank_load(const struct bound_shape *shape, const int *first_item, int r,
                        const struct scale *scale)
{
    const int64_t mem_bytes = scale->has_room ? INT64_MAX : shape->stages[r].mem_bytes;
    const int n = parts_of_rank(shape, first_item, r, shape->parts);
    const double x = (double)bound_rank_ns(shape, shape->parts, n) / scale->unit_ns;
    double over = 0;
    if (mem_bytes != INT64_MAX)
        over = (double)bound_max(bound_rank_need_bytes(shape, shape->parts, n) - mem_bytes, 0);
    return x * x * x * x * x * x * x * x + over * 1e6;
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
        loads[s - from + 1] = rank_load(shape, first_item, shape->stages[s].rank, scale);
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
        shape->loads[r] = rank_load(shape, first_item, r, &scale);
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
