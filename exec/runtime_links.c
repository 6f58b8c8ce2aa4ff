/* exec/runtime_links.c - the communicators of a plan between devices. */
#include <stdlib.h>

#include "exec/runtime_state.h"

/* Blocks of the device that the kernels of a link may take while they wait for its peer. */
enum { LINK_BLOCKS = 4 };

/* Two ranks of a pipeline, in every replica alike, and where their communicator goes. */
struct pair {
    int a, b;
    struct nccl_group **group;
    bool done;
};

/* What one call splits off: pairs of ranks, no rank of them twice. */
struct round {
    bool *taken; /* by rank of the message group */
    int color;   /* of this rank's pair; -1: in none */
    int key;
    struct nccl_group **group;
};

/* Every edge between ranks in its directions, and the ends of a tied table. *pairs is the caller's.
 */
static enum status list_pairs(const struct model *model, const struct plan *plan,
                              const struct workload *w, const struct schedule *full,
                              struct runtime_links *links, struct pair **pairs, int *num,
                              struct err *err)
{
    const int first = full->rank_of_stage[0], last = full->rank_of_stage[w->num_stages - 1];
    struct pair *list = calloc((size_t)w->num_edges * DIRECTIONS + 1, sizeof *list);
    int n = 0;
    if (!list)
        return err_nomem(err);
    for (int i = 0; i < w->num_edges * DIRECTIONS; i++) {
        const struct stage_edge *edge = &w->edges[i / DIRECTIONS];
        const int a = full->rank_of_stage[edge->from], b = full->rank_of_stage[edge->to];
        if (a != b && (i % DIRECTIONS == ACT || edge->grad))
            list[n++] = (struct pair){.a = a, .b = b, .group = &links->edges[i]};
    }
    if (stage_shares_table(model) && plan->num_frozen_layers == 0 && first != last)
        list[n++] = (struct pair){.a = first, .b = last, .group = &links->tied};
    *pairs = list;
    *num = n;
    return OK;
}

/* Take the pair in, in all replicas, unless the round has one of their ranks already. */
static bool join_round(const struct comm *comm, const struct plan *plan, const struct pair *pair,
                       struct round *round)
{
    for (int r = 0; r < plan->num_replicas; r++) {
        const int *ranks = plan->device + (size_t)r * (size_t)plan->num_ranks;
        if (round->taken[ranks[pair->a]] || round->taken[ranks[pair->b]])
            return false;
    }
    for (int r = 0; r < plan->num_replicas; r++) {
        const int *ranks = plan->device + (size_t)r * (size_t)plan->num_ranks;
        const int a = ranks[pair->a], b = ranks[pair->b];
        round->taken[a] = round->taken[b] = true;
        if (comm->rank == a || comm->rank == b) {
            round->color = a;
            round->key = comm->rank == b;
            round->group = pair->group;
        }
    }
    return true;
}

/* In as few rounds as come of taking each pair into the first that has room; the same on all ranks,
 * those without a place too. */
static enum status open_pairs(const struct comm *comm, struct nccl *nccl, const struct plan *plan,
                              struct pair *pairs, int num, bool *taken, struct err *err)
{
    enum status rc = OK;
    for (int done = 0; rc == OK && done < num;) {
        struct round round = {.taken = taken, .color = -1};
        struct nccl_group *group = NULL;
        for (int i = 0; i < comm->size; i++)
            taken[i] = false;
        for (int i = 0; i < num; i++)
            if (!pairs[i].done && join_round(comm, plan, &pairs[i], &round)) {
                pairs[i].done = true;
                done++;
            }
        rc = nccl_split(nccl, round.color, round.key, LINK_BLOCKS, &group, err);
        if (group)
            *round.group = group;
        if (rc == OK && group)
            rc = nccl_meet(group, false, err);
    }
    return rc;
}

enum status runtime_links_open(const struct comm *comm, struct nccl *nccl,
                               const struct model *model, const struct plan *plan,
                               const struct workload *w, const struct schedule *full,
                               struct runtime_links *links, struct err *err)
{
    struct pair *pairs = NULL;
    bool *taken = calloc((size_t)comm->size, sizeof *taken);
    int num = 0, place = -1;
    *links = (struct runtime_links){
        .edges = calloc((size_t)w->num_edges * DIRECTIONS + 1, sizeof *links->edges),
        .num_edges = w->num_edges};
    for (int i = 0; i < plan->num_ranks * plan->num_replicas; i++)
        if (plan->device[i] == comm->rank)
            place = i;
    enum status rc = taken && links->edges
                         ? list_pairs(model, plan, w, full, links, &pairs, &num, err)
                         : err_nomem(err);
    rc = comm_agree(comm, rc, err);
    if (rc == OK)
        rc = open_pairs(comm, nccl, plan, pairs, num, taken, err);
    if (rc == OK)
        rc = nccl_split(nccl, place < 0 ? -1 : place % plan->num_ranks, place, 0, &links->replicas,
                        err);
    if (rc == OK && links->replicas)
        rc = nccl_meet(links->replicas, true, err);
    free(pairs);
    free(taken);
    return comm_agree(comm, rc, err);
}

void runtime_links_clear(struct runtime_links *links)
{
    for (int i = 0; links->edges && i < links->num_edges * DIRECTIONS; i++)
        nccl_group_free(links->edges[i]);
    free(links->edges);
    nccl_group_free(links->tied);
    nccl_group_free(links->replicas);
    *links = (struct runtime_links){0};
}
