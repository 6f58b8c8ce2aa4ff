/* exec/step/device_links.c - opens the communicators between devices that a plan needs.
 *
 * NCCL communicators are made by all ranks together, so the pairs of ranks that exchange messages
 * are gathered into rounds: within a round no rank is in two pairs, and one split makes all pairs
 * of the round. The same list tells plan_ahead.c which communicators a later plan may need. */
#include <stdlib.h>

#include "exec/step/runtime_state.h"

#include "partition/base/arrays.h"

/* Thread blocks that the kernels of a link may occupy while they wait for its peer. */
enum { LINK_BLOCKS = 4 };
enum { TIED = -1, NO_ROUND = -1 };

/* Two ranks of a pipeline; the same two in every replica. */
struct link_pair {
    int a, b;
    int at;    /* edge times DIRECTIONS plus direction, or TIED */
    int round; /* index of its pattern */
};

/* List every direction of every edge between ranks, and the two ends of a tied table. */
static enum status list_pairs(const struct link_plan *of, struct link_patterns *list,
                              struct err *err)
{
    const struct workload *w = of->workload;
    const struct schedule *full = of->full;
    const int first = full->rank_of_stage[0], last = full->rank_of_stage[w->num_stages - 1];
    struct link_pair *pairs = calloc((size_t)w->num_edges * DIRECTIONS + 1, sizeof *pairs);
    int n = 0;
    if (!pairs)
        return err_nomem(err);
    for (int i = 0; i < w->num_edges * DIRECTIONS; i++) {
        const struct stage_edge *edge = &w->edges[i / DIRECTIONS];
        const int a = full->rank_of_stage[edge->from], b = full->rank_of_stage[edge->to];
        if (a != b && (i % DIRECTIONS == ACT || edge->grad))
            pairs[n++] = (struct link_pair){.a = a, .b = b, .at = i, .round = NO_ROUND};
    }
    if (stage_shares_table(of->workload->setting.model) && of->plan->num_frozen_layers == 0 &&
        first != last)
        pairs[n++] = (struct link_pair){.a = first, .b = last, .at = TIED, .round = NO_ROUND};
    list->pairs = pairs;
    list->num_pairs = n;
    return OK;
}

static const int *ranks_of(const struct plan *plan, int replica)
{
    return plan->device + (size_t)replica * (size_t)plan->num_ranks;
}

/* Add the pair of each replica to the round, unless one of their ranks is in the round already. */
static bool join_round(const struct plan *plan, const struct link_pair *pair, int *color, int *key)
{
    for (int r = 0; r < plan->num_pipelines; r++)
        if (color[ranks_of(plan, r)[pair->a]] >= 0 || color[ranks_of(plan, r)[pair->b]] >= 0)
            return false;
    for (int r = 0; r < plan->num_pipelines; r++) {
        const int a = ranks_of(plan, r)[pair->a], b = ranks_of(plan, r)[pair->b];
        color[a] = color[b] = a;
        key[b] = 1;
    }
    return true;
}

/* Edges between the same ranks have separate patterns, which differ in their copy number only. */
static void number_copies(struct link_patterns *list, int num_ranks)
{
    for (int i = 0; i < list->num; i++)
        for (int j = 0; j < i; j++)
            list->patterns[i].copy +=
                nccl_pattern_same(&list->patterns[j], &list->patterns[i], num_ranks);
}

/* Append a pattern in which no rank is in a group yet. */
static enum status add_pattern(struct link_patterns *list, int num_ranks, bool sums, int **color,
                               int **key, struct err *err)
{
    const bool grown = array_extend(&list->patterns, list->num, sizeof *list->patterns);
    *color = malloc((size_t)num_ranks * sizeof **color);
    *key = calloc((size_t)num_ranks, sizeof **key);
    if (!grown || !*color || !*key) {
        free(*color);
        free(*key);
        return err_nomem(err);
    }
    for (int i = 0; i < num_ranks; i++)
        (*color)[i] = -1;
    list->patterns[list->num++] = (struct nccl_pattern){
        .color = *color, .key = *key, .most_blocks = sums ? 0 : LINK_BLOCKS, .sums = sums};
    return OK;
}

enum status runtime_links_list(const struct link_plan *of, int num_ranks,
                               struct link_patterns *list, struct err *err)
{
    const struct plan *plan = of->plan;
    int *color, *key;
    *list = (struct link_patterns){0};
    enum status rc = list_pairs(of, list, err);
    for (int done = 0; rc == OK && done < list->num_pairs;) {
        rc = add_pattern(list, num_ranks, false, &color, &key, err);
        for (int i = 0; rc == OK && i < list->num_pairs; i++) {
            struct link_pair *pair = &list->pairs[i];
            if (pair->round == NO_ROUND && join_round(plan, pair, color, key)) {
                pair->round = list->num - 1;
                done++;
            }
        }
    }
    THEN(add_pattern(list, num_ranks, true, &color, &key, err));
    for (int i = 0; rc == OK && i < plan->num_ranks * plan->num_pipelines; i++) {
        color[plan->device[i]] = i % plan->num_ranks;
        key[plan->device[i]] = i;
    }
    if (rc == OK)
        number_copies(list, num_ranks);
    else
        link_patterns_clear(list);
    return rc;
}

void link_patterns_clear(struct link_patterns *list)
{
    for (int i = 0; i < list->num; i++) {
        free((void *)list->patterns[i].color);
        free((void *)list->patterns[i].key);
    }
    free(list->patterns);
    free(list->pairs);
    *list = (struct link_patterns){0};
}

enum status runtime_links_open(const struct comm *comm, struct nccl *nccl,
                               const struct link_plan *of, struct runtime_links *links,
                               struct err *err)
{
    const struct plan *plan = of->plan;
    const struct workload *w = of->workload;
    struct link_patterns list = {0};
    int place = -1; /* in its pipeline */
    enum status rc = runtime_links_list(of, comm->size, &list, err);
    *links = (struct runtime_links){
        .edges = calloc((size_t)w->num_edges * DIRECTIONS + 1, sizeof *links->edges),
        .groups = calloc((size_t)list.num + 1, sizeof *links->groups)};
    if (rc == OK && (!links->edges || !links->groups))
        rc = err_nomem(err);
    rc = comm_agree(comm, rc, err);
    for (int i = 0; rc == OK && i < list.num; i++) {
        rc = nccl_group_open(nccl, &list.patterns[i], &links->groups[i], err);
        links->num_groups += rc == OK;
    }
    for (int i = 0; i < plan->num_ranks * plan->num_pipelines; i++)
        if (plan->device[i] == comm->rank)
            place = i % plan->num_ranks;
    for (int i = 0; rc == OK && i < list.num_pairs; i++) {
        const struct link_pair *pair = &list.pairs[i];
        if (place == pair->a || place == pair->b)
            *(pair->at == TIED ? &links->tied : &links->edges[pair->at]) =
                links->groups[pair->round];
    }
    if (rc == OK && place >= 0)
        links->replicas = links->groups[list.num - 1];
    link_patterns_clear(&list);
    return comm_agree(comm, rc, err);
}

void runtime_links_clear(struct runtime_links *links)
{
    for (int i = 0; i < links->num_groups; i++)
        nccl_group_free(links->groups[i]);
    free(links->groups);
    free(links->edges);
    *links = (struct runtime_links){0};
}
