/* Better cuts for judged candidates: all of them where they are few, else one boundary by one item
 * while that helps. A cut whose own bound is no shorter than what is known is not judged. */
#include "partition/planner_search.h"

#include <string.h>

/* Cuts of a candidate are all tried where there are no more than this many. */
#define FEW_CUTS 3000     /* K is given; a ViT-B on 4 devices has 2,600 */
#define FEW_CUTS_EACH 128 /* every K is tried */

/* n choose k, or FEW_CUTS + 1 when it is more. */
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

/* Try search->cut for a judged candidate. */
static enum status try_cut(struct search *search, int index, const struct bound_shape *shape,
                           bool *better)
{
    struct judged *judged = &search->judged[index];
    int64_t step_ns, bound = bound_of_cut(shape, search->cut);
    *better = false;
    if ((judged->step_ns > 0 && bound >= judged->step_ns) ||
        (search->best >= 0 && bound > search_limit(search, &judged->node)) ||
        memcmp(search->cut, judged->node.first_item,
               ((size_t)shape->num_stages + 1) * sizeof *search->cut) == 0)
        return OK;
    enum status rc = search_judge_cut(search, &judged->node, search->cut, &step_ns, NULL);
    if (rc == OK && step_ns > 0 && (judged->step_ns == 0 || step_ns < judged->step_ns)) {
        judged->step_ns = step_ns;
        memcpy(judged->node.first_item, search->cut,
               ((size_t)shape->num_stages + 1) * sizeof *search->cut);
        search_note_best(search, index);
        *better = true;
    }
    return rc;
}

/* All cuts, in lexicographic order. */
static enum status all_cuts(struct search *search, int index, const struct bound_shape *shape)
{
    const int S = shape->num_stages;
    for (int s = 0; s < S; s++)
        search->cut[s] = shape->first_item + s;
    search->cut[S] = shape->num_items;
    for (;;) {
        bool better;
        enum status rc = try_cut(search, index, shape, &better);
        if (rc != OK)
            return rc;
        int s = S - 1;
        while (s >= 1 && search->cut[s] == shape->num_items - (S - s))
            s--;
        if (s < 1)
            return OK;
        search->cut[s]++;
        for (int later = s + 1; later < S; later++)
            search->cut[later] = search->cut[later - 1] + 1;
    }
}

/* Move one boundary by one item while that helps. */
static enum status climb(struct search *search, int index, const struct bound_shape *shape)
{
    const int S = shape->num_stages;
    const size_t size = ((size_t)S + 1) * sizeof *search->cut;
    bool better = true;
    for (int round = 0; better && round < 2 * S; round++) {
        better = false;
        for (int s = 1; s < S; s++)
            for (int step = -1; step <= 1; step += 2) {
                const struct judged *judged = &search->judged[index];
                if (judged->step_ns > 0 && judged->step_ns <= judged->node.bound_ns)
                    return OK;
                memcpy(search->cut, judged->node.first_item, size);
                search->cut[s] += step;
                if (search->cut[s] <= search->cut[s - 1] || search->cut[s] >= search->cut[s + 1])
                    continue;
                bool moved;
                enum status rc = try_cut(search, index, shape, &moved);
                if (rc != OK)
                    return rc;
                better |= moved;
            }
    }
    return OK;
}

enum status search_improve(struct search *search)
{
    if (search->options->by_params)
        return OK;
    int climbed = 0;
    for (int i = 0; i < search->num_judged; i++) {
        struct judged *judged = &search->judged[i];
        const struct node *node = &judged->node;
        if (node->bound_ns > search_limit(search, node) && i != search->best)
            continue;
        if (judged->step_ns > 0 && judged->step_ns <= node->bound_ns)
            continue; /* its cut is proven best */
        int items = search_items_in_cut(search, node->frozen);
        const bool many = search->options->num_ranks == AUTO || search->options->one_of_many;
        const int most = many ? FEW_CUTS_EACH : FEW_CUTS;
        bool few = choose(items - 1, node->num_ranks * node->chunks - 1) <= most;
        if (!few && (judged->step_ns == 0 || climbed++ >= PLANNER_KEEP))
            continue;
        struct bound_shape shape = {0};
        enum status rc = search_shape(search, node, &shape);
        if (rc == OK)
            rc = few ? all_cuts(search, i, &shape) : climb(search, i, &shape);
        bound_shape_clear(&shape);
        if (rc != OK)
            return rc;
    }
    return OK;
}
