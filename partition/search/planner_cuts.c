/* Better cuts for candidates that were judged at their starting cut.
 *
 * If a candidate has few cuts, all are tried. Otherwise plain cuts are tried, and for the best
 * candidates climb() moves items from stage to stage while the step gets shorter; then all cuts of
 * those nearest to the best are tried, if they can be counted. A cut is judged only if its own
 * bound is shorter than the step already found. Read search_improve() first. */
#include "partition/search/planner_search.h"

#include <stdlib.h>
#include <string.h>

#include "partition/plan/cut.h"

/* All cuts of a candidate are tried if there are at most this many. */
#define FEW_CUTS 3000     /* if K is given; a ViT-B on 4 devices has 2,600 cuts */
#define FEW_CUTS_EACH 128 /* if all K are tried */

/* Climbing may time as many ops as the search has timed before it, and at least this many: about
 * 40 ms. */
#define CLIMB_OPS ((int64_t)1 << 21)
/* The fastest candidates climb: this many, and twice as many if they are at most 1 / NEAR_CLIMB
 * slower than the best one. All cuts are tried of those that end within 1 / NEAR_ALL. */
#define CLIMBERS PLANNER_KEEP
#define NEAR_CLIMB 8
#define NEAR_ALL 20
#define FARTHEST 2         /* blocks of one move: a transformer layer has two items */
#define FARTHEST_SHARED 12 /* where links are shared: there the best cut may be far from even */

/* n choose k, or FEW_CUTS + 1 if it is larger than FEW_CUTS. */
static int64_t choose(int n, int k)
{
    int64_t c = 1;
    for (int i = 1; i <= k; i++) {
        c = c * (n - k + i) / i;
        if (c > FEW_CUTS)
            return FEW_CUTS + 1;
    }
    return c;
}

void search_snap(struct search *search, int num_stages)
{
    const int *block = search->block, *of = search->block_of;
    int *cut = search->cut;
    for (int s = 1; s < num_stages; s++) {
        const int b = of[cut[s]], after = of[cut[s - 1]] + 1;
        const int near = b + (2 * (cut[s] - block[b]) > block[b + 1] - block[b]);
        const int at = near > after ? near : after;
        cut[s] = block[at < search->num_blocks ? at : search->num_blocks];
    }
    for (int s = num_stages - 1; s > 0 && of[cut[s]] >= of[cut[s + 1]]; s--)
        cut[s] = block[of[cut[s + 1]] - 1];
}

/* Judge search->cut for a candidate; *better tells whether the candidate took it. The cut need not
 * make the candidate the best one, because it may be a step on the way to one that does. */
static enum status try_step(struct search *search, int index, const struct bound_shape *shape,
                            bool *better)
{
    struct judged *judged = &search->judged[index];
    int64_t step_ns, unshared_ns;
    *better = false;
    if (judged->step_ns > 0 && (!bound_cut_within(shape, search->cut, judged->step_ns - 1) ||
                                memcmp(search->cut, judged->node.first_item,
                                       ((size_t)shape->num_stages + 1) * sizeof *search->cut) == 0))
        return OK;
    enum status rc =
        search_judge_cut(search, &judged->node, shape, search->cut,
                         judged->step_ns > 0 ? judged->step_ns : INT64_MAX, &step_ns, &unshared_ns);
    if (rc == OK && step_ns > 0 &&
        (judged->step_ns == 0 || step_ns < judged->step_ns ||
         (step_ns == judged->step_ns && unshared_ns < judged->unshared_ns))) {
        judged->step_ns = step_ns;
        judged->unshared_ns = unshared_ns;
        judged->share = search->share;
        memcpy(judged->node.first_item, search->cut,
               ((size_t)shape->num_stages + 1) * sizeof *search->cut);
        search_note_best(search, index);
        *better = true;
    }
    return rc;
}

/* Like try_step(), but leaves out cuts that cannot make the candidate the best one. */
static enum status try_cut(struct search *search, int index, const struct bound_shape *shape,
                           bool *better)
{
    *better = false;
    if (search->best >= 0 &&
        !bound_cut_within(shape, search->cut, search_limit(search, &search->judged[index].node)))
        return OK;
    return try_step(search, index, shape, better);
}

/* Like try_cut(), but compares the judge's times. The judge is asked about a cut only if the
 * planner finds its step shorter than the shortest that the judge has found. */
static enum status try_shared_cut(struct search *search, int index, const struct bound_shape *shape,
                                  bool *better)
{
    struct judged *judged = &search->judged[index];
    const size_t size = ((size_t)shape->num_stages + 1) * sizeof *search->cut;
    struct judged other = {.node = judged->node};
    *better = false;
    if (!bound_cut_within(shape, search->cut, judged->asked_ns - 1) ||
        memcmp(search->cut, judged->node.first_item, size) == 0)
        return OK;
    enum status rc = search_judge_cut(search, &judged->node, shape, search->cut, judged->asked_ns,
                                      &other.step_ns, &other.unshared_ns);
    if (rc != OK || other.step_ns == 0 || other.step_ns >= judged->asked_ns)
        return rc;
    other.node.first_item = search->cut;
    rc = search_ask(search, &other);
    if (rc == OK && other.asked_ns > 0 && other.asked_ns < judged->asked_ns) {
        memcpy(judged->node.first_item, search->cut, size);
        judged->step_ns = other.step_ns;
        judged->unshared_ns = other.unshared_ns;
        judged->share = search->share;
        judged->asked_ns = other.asked_ns;
        judged->recut = true;
        if (search->best < 0 || judged->asked_ns <= search_limit(search, &judged->node))
            search->best = index;
        *better = true;
    }
    return rc;
}

/* A way to compare cuts, and the count of ops at which it ends. */
struct trial {
    enum status (*cut)(struct search *search, int index, const struct bound_shape *shape,
                       bool *better);
    const int64_t *ops; /* these count up to `until` */
    int64_t until;
    bool shared;
};

static bool trial_continues(struct search *search, int index, const struct trial *trial)
{
    const struct judged *judged = &search->judged[index];
    const int64_t got = trial->shared ? judged->asked_ns : judged->step_ns;
    return (got == 0 || got > judged->node.bound_ns) && *trial->ops <= trial->until &&
           search_goes_on(search);
}

/* Try all cuts in lexicographic order. */
static enum status all_cuts(struct search *search, int index, const struct bound_shape *shape,
                            const struct trial *trial)
{
    const int S = shape->num_stages, *block = search->block, *of = search->block_of;
    for (int s = 0; s < S; s++)
        search->cut[s] = block[of[shape->first_item] + s];
    search->cut[S] = shape->num_items;
    for (;;) {
        bool better;
        enum status rc = OK;
        if (!trial_continues(search, index, trial))
            return OK;
        rc = trial->cut(search, index, shape, &better);
        if (rc != OK)
            return rc;
        int s = S - 1;
        while (s >= 1 && of[search->cut[s]] == search->num_blocks - (S - s))
            s--;
        if (s < 1)
            return OK;
        search->cut[s] = block[of[search->cut[s]] + 1];
        for (int later = s + 1; later < S; later++)
            search->cut[later] = block[of[search->cut[later - 1]] + 1];
    }
}

/* Move the beginnings of `width` stages from s on by `step` blocks; false if one leaves the
 * chain. */
static bool shift(struct search *search, int s, int width, int step)
{
    for (int i = s; i < s + width; i++) {
        const int b = search->block_of[search->cut[i]] + step;
        if (b < 0 || b > search->num_blocks)
            return false;
        search->cut[i] = search->block[b];
    }
    return true;
}

/* Hill climbing: move a block from a stage to one of the next three stages, and shift the stages
 * between; where that makes no step shorter, up to FARTHEST blocks. Ends when no move helps, or with the
 * trial. */
static enum status climb(struct search *search, int index, const struct bound_shape *shape,
                         const struct trial *trial)
{
    const int S = shape->num_stages;
    const size_t size = ((size_t)S + 1) * sizeof *search->cut;
    const int farthest = trial->shared ? FARTHEST_SHARED : FARTHEST;
    int far = 1;
    for (int round = 0; far <= farthest && round < 4 * S; round++) {
        bool better = false;
        for (int width = 1; width <= 3; width++)
            for (int s = 1; s + width <= S; s++)
                for (int step = -far; step <= far; step += 2 * far) {
                    const struct judged *judged = &search->judged[index];
                    if (!trial_continues(search, index, trial))
                        return OK;
                    memcpy(search->cut, judged->node.first_item, size);
                    if (!shift(search, s, width, step) || search->cut[s] <= search->cut[s - 1] ||
                        search->cut[s + width - 1] >= search->cut[s + width])
                        continue;
                    bool moved;
                    enum status rc = trial->cut(search, index, shape, &moved);
                    if (rc != OK)
                        return rc;
                    better |= moved;
                }
        far = better ? 1 : far + 1;
    }
    return OK;
}

/* Try two plain cuts: equally many items a stage, and the cut whose longest stage is shortest by
 * the times of one micro-batch. */
static enum status plain_cuts(struct search *search, int index, const struct bound_shape *shape,
                              const struct trial *trial)
{
    const int S = shape->num_stages, first = shape->first_item, n = shape->num_items - first;
    const struct bound_times *times = shape->stages[0].full[0];
    struct cut cut = {0};
    bool better;
    for (int s = 0; s <= S; s++)
        search->cut[s] = first + (int)((int64_t)n * s / S);
    search_snap(search, S);
    enum status rc = trial->cut(search, index, shape, &better);
    if (rc != OK || (trial->shared && !trial_continues(search, index, trial)))
        return rc;
    int64_t *sizes = malloc((size_t)n * sizeof *sizes);
    if (!sizes)
        return err_nomem(search->err);
    for (int i = 0; i < n; i++)
        sizes[i] = bound_once_ns(times, first + i, first + i + 1);
    rc = cut_sizes(sizes, n, S, &cut, search->err);
    free(sizes);
    if (rc != OK)
        return rc;
    for (int s = 0; s <= S; s++)
        search->cut[s] = first + cut.first_item[s];
    cut_clear(&cut);
    search_snap(search, S);
    rc = trial->cut(search, index, shape, &better);
    if (rc != OK || (trial->shared && !trial_continues(search, index, trial)))
        return rc;
    bound_balance(shape, search->cut);
    search_snap(search, S);
    return trial->cut(search, index, shape, &better);
}

/* Whether another cut of a judged candidate could still be the best plan. */
static bool may_win(const struct search *search, int index)
{
    const struct judged *judged = &search->judged[index];
    if (judged->step_ns > 0 && judged->step_ns <= judged->node.bound_ns)
        return false; /* its step equals its bound, so no cut is better */
    if (search->asking && (judged->asked_ns != 0 || search->ops > search->until))
        return false;
    return index == search->best || judged->node.bound_ns <= search_limit(search, &judged->node);
}

/* Whether a candidate has at most this number of cuts. */
static bool has_cuts(const struct search *search, const struct node *node, int64_t most)
{
    const int blocks = search_blocks_in_cut(search, node->frozen);
    return choose(blocks - 1, node->num_ranks * node->chunks - 1) <= most;
}

/* Whether a candidate has so few cuts that all are tried. */
static bool few_cuts(const struct search *search, const struct node *node)
{
    return has_cuts(search, node, search->options->num_ranks == AUTO ? FEW_CUTS_EACH : FEW_CUTS);
}

/* Whether a candidate is slower than the best one by at most 1 / share. */
static bool near_best(const struct search *search, int index, int64_t share)
{
    const struct judged *judged = &search->judged[index];
    const int64_t limit = search_limit(search, &judged->node);
    return judged->step_ns > 0 && judged->step_ns - limit <= limit / share;
}

enum status search_recut(struct search *search, int index)
{
    const struct node *node = &search->judged[index].node;
    struct bound_shape shape = {0};
    if (search_cut_given(search->options) || !may_win(search, index))
        return OK;
    const struct trial step = {.cut = try_step, .ops = &search->ops, .until = search->until},
                       whole = {.cut = try_cut, .ops = &search->ops, .until = INT64_MAX};
    enum status rc = search_shape(search, node, &shape);
    THEN(few_cuts(search, node) ? all_cuts(search, index, &shape, &whole)
                                : climb(search, index, &shape, &step));
    bound_shape_clear(&shape);
    return rc;
}

enum status search_recut_shared(struct search *search, int index, int64_t until)
{
    const struct node *node = &search->judged[index].node;
    const struct trial trial = {
        .cut = try_shared_cut, .ops = &search->asked_ops, .until = until, .shared = true};
    struct bound_shape shape = {0};
    if (search_cut_given(search->options))
        return OK;
    enum status rc = search_shape(search, node, &shape);
    if (trial_continues(search, index, &trial))
        THEN(plain_cuts(search, index, &shape, &trial));
    THEN(has_cuts(search, node, FEW_CUTS) ? all_cuts(search, index, &shape, &trial)
                                          : climb(search, index, &shape, &trial));
    bound_shape_clear(&shape);
    return rc;
}

enum status search_take_cut(struct search *search, int index, bool *better)
{
    const struct judged *judged = &search->judged[index];
    const struct node *best = &search->judged[search->best].node;
    struct bound_shape shape = {0};
    *better = false;
    if (judged->node.num_ranks != best->num_ranks || judged->node.chunks != best->chunks ||
        judged->node.first_item[0] != best->first_item[0] ||
        judged->node.bound_ns > search_limit(search, &judged->node))
        return OK;
    enum status rc = search_shape(search, &judged->node, &shape);
    if (rc == OK) {
        memcpy(search->cut, best->first_item, ((size_t)shape.num_stages + 1) * sizeof *search->cut);
        rc = judged->asked_ns != 0 ? try_shared_cut(search, index, &shape, better)
                                   : try_cut(search, index, &shape, better);
    }
    bound_shape_clear(&shape);
    return rc;
}

/* Round 0: all cuts of a candidate that has few, otherwise plain ones, if any can win. */
static enum status first_cuts(struct search *search, int index, bool few)
{
    const struct trial trial = {.cut = try_cut, .ops = &search->ops, .until = INT64_MAX};
    struct bound_shape shape = {0};
    const struct node *node = &search->judged[index].node;
    enum status rc = search_shape(search, node, &shape);
    if (rc == OK &&
        (few || search->best < 0 || bound_of_cuts(&shape) <= search_limit(search, node)))
        rc = few ? all_cuts(search, index, &shape, &trial)
                 : plain_cuts(search, index, &shape, &trial);
    bound_shape_clear(&shape);
    return rc;
}

/* Round 1: climb from the best of the first cuts. If that ends near the best candidate, try all
 * cuts where they can be counted, because climbing may end at a local optimum. */
static enum status climb_best(struct search *search, int index, int64_t until)
{
    const struct trial step = {.cut = try_step, .ops = &search->ops, .until = until},
                       trial = {.cut = try_cut, .ops = &search->ops, .until = until};
    struct bound_shape shape = {0};
    enum status rc = search_shape(search, &search->judged[index].node, &shape);
    THEN(plain_cuts(search, index, &shape, &step));
    THEN(climb(search, index, &shape, &step));
    if (rc == OK && near_best(search, index, NEAR_ALL) &&
        has_cuts(search, &search->judged[index].node, FEW_CUTS))
        rc = all_cuts(search, index, &shape, &trial);
    bound_shape_clear(&shape);
    return rc;
}

static enum status improve(struct search *search)
{
    for (int round = 0; round < 2; round++) {
        const int64_t until = search->ops + (search->ops > CLIMB_OPS ? search->ops : CLIMB_OPS);
        int climbed = 0;
        search_sort(search);
        for (int i = 0; i < search->num_judged; i++) {
            const struct node *node = &search->judged[i].node;
            const bool few = few_cuts(search, node);
            if (!may_win(search, i) || (round == 1 && (few || search->judged[i].step_ns == 0)))
                continue;
            if (round == 1 &&
                climbed++ >= (near_best(search, i, NEAR_CLIMB) ? 2 * CLIMBERS : CLIMBERS))
                break;
            if (!search_goes_on(search))
                return OK;
            const enum status rc =
                round == 1 ? climb_best(search, i, until) : first_cuts(search, i, few);
            if (rc != OK)
                return rc;
        }
    }
    return OK;
}

enum status search_improve(struct search *search)
{
    if (search_cut_given(search->options))
        return OK;
    search->improving = true;
    const enum status rc = improve(search);
    search->improving = false;
    return rc;
}
