#include "partition/step/recompute_fit.h"

#include <stdlib.h>

#include "partition/step/schedule_memory.h"

int recompute_layers_of(const struct model *model, const struct plan *plan, int stage)
{
    int i = plan->first_item[stage], count = 0, last = -1;
    const int frozen = model_frozen_items(model, plan->num_frozen_layers);
    for (i = i > frozen ? i : frozen; i < plan->first_item[stage + 1]; i++) {
        const int layer = model->items[i].layer;
        if (recompute_in_layer(model, i) && layer != last) {
            last = layer;
            count++;
        }
    }
    return count;
}

/* Spread `total` layers over the stages of a rank, one after the other. */
static void spread(struct plan *plan, const int *rank_of_stage, const int *most, int rank,
                   int total)
{
    bool any = true;
    for (int s = 0; s < plan->num_stages; s++)
        if (rank_of_stage[s] == rank)
            plan->recompute_layers[s] = 0;
    while (total > 0 && any) {
        any = false;
        for (int s = 0; s < plan->num_stages && total > 0; s++)
            if (rank_of_stage[s] == rank && plan->recompute_layers[s] < most[s]) {
                plan->recompute_layers[s]++;
                total--;
                any = true;
            }
    }
}

struct ranks {
    int *most;               /* owned, by stage: its layers */
    int *low;                /* owned, by rank: too few layers, or -1 */
    int *high;               /* owned, by rank: enough, or all of its layers */
    bool *open;              /* owned, by rank: low and high are not yet neighbours */
    int64_t *limit, *memory; /* owned, by rank */
};

static bool any_again(const struct plan *plan)
{
    for (int s = 0; s < plan->num_stages; s++)
        if (plan->recompute_layers[s] > 0)
            return true;
    return false;
}

/* The layers of an open rank that a round asks about: none, which most ranks need, then all but one, because
 * most of the others need all. */
static int asked(const struct ranks *ranks, int k, int round)
{
    return round == 0 ? 0 : round == 1 ? ranks->high[k] - 1 : (ranks->low[k] + ranks->high[k]) / 2;
}

/* w was built with no layer that runs again. Bisect for all ranks at once; their memory does not depend on each other's counts. */
static enum status bisect(struct plan *plan, const struct schedule *full, struct workload *w,
                          struct ranks *ranks, struct err *err)
{
    enum status rc = OK;
    for (int round = 0; rc == OK; round++) {
        bool open = false;
        for (int k = 0; k < plan->num_ranks; k++) {
            ranks->open[k] = ranks->high[k] - ranks->low[k] > 1;
            open = open || ranks->open[k];
            spread(plan, full->rank_of_stage, ranks->most, k,
                   ranks->open[k] ? asked(ranks, k, round) : ranks->high[k]);
        }
        if (!open)
            return any_again(plan) ? workload_rebuild(plan, w, err) : OK;
        if (any_again(plan))
            rc = workload_rebuild_bytes(plan, ranks->open, w, err);
        THEN(schedule_memory_of(full, w, ranks->open, ranks->memory, err));
        for (int k = 0; k < plan->num_ranks && rc == OK; k++) {
            const int at = asked(ranks, k, round);
            if (!ranks->open[k])
                continue;
            if (ranks->memory[k] <= ranks->limit[k])
                ranks->high[k] = at;
            else
                ranks->low[k] = at;
        }
    }
    return rc;
}

enum status recompute_fit(struct plan *plan, bool search, const struct schedule *full,
                          struct workload *workload, struct err *err)
{
    const size_t S = (size_t)plan->num_stages, K = (size_t)plan->num_ranks;
    struct ranks ranks = {.most = malloc(S * sizeof(int)),
                          .low = malloc(K * sizeof(int)),
                          .high = calloc(K, sizeof(int)),
                          .open = malloc(K * sizeof(bool)),
                          .limit = malloc(K * sizeof(int64_t)),
                          .memory = malloc(K * sizeof(int64_t))};
    enum status rc =
        ranks.most && ranks.low && ranks.high && ranks.open && ranks.limit && ranks.memory
            ? OK
            : err_nomem(err);
    for (int s = 0; s < plan->num_stages && rc == OK; s++) {
        ranks.most[s] = recompute_layers_of(workload->setting.model, plan, s);
        ranks.high[full->rank_of_stage[s]] += ranks.most[s];
        if (!search && plan->recompute_layers[s] > ranks.most[s])
            plan->recompute_layers[s] = ranks.most[s];
    }
    if (rc == OK && search) {
        for (size_t k = 0; k < K; k++)
            ranks.low[k] = -1;
        plan_memory_limits(plan, workload->setting.cluster, ranks.limit);
        rc = bisect(plan, full, workload, &ranks, err);
    }
    free(ranks.most);
    free(ranks.low);
    free(ranks.high);
    free(ranks.open);
    free(ranks.limit);
    free(ranks.memory);
    return rc;
}
