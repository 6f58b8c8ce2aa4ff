/* Critical chains of a candidate's cuts, as bounds of its other cuts.
 *
 * Cuts of a candidate with equally many frozen stages have equal lists of ops, up to the all-reduces;
 * the times of their stages differ. So the ops of one cut's critical chain follow each other under
 * such another cut too, and their times there add up to a lower bound of its step. Most local moves
 * leave the longest chain as long as it is or make it longer, and a few sums show that. Read search_chain_bound() first. */
#include <stdlib.h>
#include <string.h>

#include "partition/search/planner_search.h"
#include "partition/step/recompute_fit.h"
#include "partition/step/stage_memo.h"

enum { MOST_CHAINS = 32, MOST_EXACT = 8 }; /* of the newest the exact sum is asked too */

struct chain_of_cut {
    struct step_chain chain;
    int *first_item;   /* owned: the cut */
    int64_t *stage_ns; /* owned: the chain's ops of each stage */
    int num_frozen_stages;
    bool i_folded_into_w;
};

struct search_chains {
    struct chain_of_cut chains[MOST_CHAINS];
    int num, oldest;
    int *layers;              /* owned scratch, a count for each item: recompute_layers */
    struct workload workload; /* of the cut that was timed last */
    struct builder *builder;  /* owned: of workload_stage() */
};

static void chain_clear(struct chain_of_cut *one)
{
    step_chain_clear(&one->chain);
    free(one->first_item);
    free(one->stage_ns);
    *one = (struct chain_of_cut){0};
}

void search_chains_forget(struct search_chains *chains)
{
    for (int i = 0; i < chains->num; i++)
        chain_clear(&chains->chains[i]);
    workload_clear(&chains->workload);
    workload_builder_free(chains->builder);
    chains->builder = NULL;
    chains->num = chains->oldest = 0;
}

struct search_chains *search_chains_new(int num_items)
{
    struct search_chains *chains = calloc(1, sizeof *chains);
    if (chains)
        chains->layers = calloc((size_t)num_items, sizeof *chains->layers);
    if (chains && !chains->layers) {
        free(chains);
        return NULL;
    }
    return chains;
}

void search_chains_free(struct search_chains *chains)
{
    if (!chains)
        return;
    search_chains_forget(chains);
    free(chains->layers);
    free(chains);
}

/* Whether messages between stages are equal for all cuts. */
static bool equal_messages(const struct model *model)
{
    for (int i = 1; i + 1 < model->num_items; i++)
        if (model->items[i].act_bytes != model->items[0].act_bytes)
            return false;
    return true;
}

bool search_chains_hold(const struct search *search, const struct node *node,
                        const struct sites *sites)
{
    const struct setting *setting = &search->problem->setting;
    const struct planner_options *options = search->options;
    if (setting->cost->near_ns_per_byte || setting->model->num_skips > 0)
        return false;
    /* The processor's time for a message depends on whether a gradient comes back. */
    if (search->problem->num_frozen_layers > 0 &&
        (node->frozen == FROZEN_CACHED || node->recompute == RECOMPUTE_LAYER ||
         setting->cluster->message_host_ns != 0 || setting->cluster->message_host_bytes_per_s != 0))
        return false;
    if (node->recompute == RECOMPUTE_LAYER &&
        (options->recompute_layers != AUTO || (options->target && options->target->equal_layers)))
        return false;
    /* Which replicas are alike may depend on the sizes of their messages. */
    return sites->num_kinds == 1 || equal_messages(setting->model);
}

/* The costs of a stage under a plan's cut when this number of its layers run again. Valid until the next
 * call. NULL: they are not known, which *rc explains. */
static const struct stage_cost *cost_of(struct search *search, struct plan *plan, int class_index,
                                        int stage, int layers, struct stage_cost *own,
                                        enum status *rc)
{
    struct search_chains *chains = search->chains;
    chains->layers[stage] = layers;
    const struct stage_memo_entry *entry = stage_memo_find(search->memo, plan, stage, class_index);
    if (entry->known)
        return &entry->cost;
    struct err why = {0};
    *own = (struct stage_cost){0};
    *rc = workload_stage(plan, &chains->workload, &chains->builder, class_index, stage, own, &why);
    return *rc == OK ? own : NULL;
}

/* Set *ns to a lower bound of the time that a stage's ops of the chain take with the plan's cut. */
static enum status stage_least_ns(struct search *search, const struct bound_shape *shape,
                                  struct plan *plan, const struct step_chain *chain, int stage,
                                  int64_t *ns)
{
    struct stage_cost own, mixed;
    enum status rc = OK;
    int layers = 0;
    *ns = 0;
    if (plan->recompute == RECOMPUTE_LAYER) {
        search->chains->layers[stage] = 0;
        layers = stage_memo_find(search->memo, plan, stage, chain->class_index)->fit;
    }
    const bool known = layers >= 0;
    if (!known) {
        const struct bound_part part = {stage, plan->first_item[stage],
                                        plan->first_item[stage + 1]};
        layers = shape->chunks == 1 ? bound_again_layers(shape, part) : 0;
    }
    const struct stage_cost *cost =
        cost_of(search, plan, chain->class_index, stage, layers, &own, &rc);
    if (!cost)
        return rc;
    if (!known) { /* more layers make backwards longer and may make forwards shorter */
        mixed = *cost;
        layers = recompute_layers_of(search->problem->setting.model, plan, stage);
        cost = cost_of(search, plan, chain->class_index, stage, layers, &own, &rc);
        if (!cost)
            return rc;
        for (int mb = 0; mb < MB_SIZES; mb++)
            mixed.op_ns[OP_F][mb] = bound_min(mixed.op_ns[OP_F][mb], cost->op_ns[OP_F][mb]);
        cost = &mixed;
    }
    *ns = step_chain_stage_ns(chain, stage, cost);
    return OK;
}

/* Whether a rank has other items under a cut. */
static bool rank_changes(const struct bound_shape *shape, int rank, const int *cut,
                         const int *other)
{
    for (int s = 0; s < shape->num_stages; s++)
        if (shape->stages[s].rank == rank && (cut[s] != other[s] || cut[s + 1] != other[s + 1]))
            return true;
    return false;
}

/* The updates of a rank. */
static enum status updates_ns(struct search *search, const struct bound_shape *shape,
                              struct plan *plan, const struct step_chain *chain, int64_t *ns)
{
    enum status rc = OK;
    *ns = 0;
    for (int s = 0; s < shape->num_stages; s++) {
        struct stage_cost own;
        if (shape->stages[s].rank != chain->end_rank)
            continue;
        const struct stage_cost *cost = cost_of(search, plan, chain->class_index, s, 0, &own, &rc);
        if (!cost)
            return rc;
        *ns += cost->op_ns[OP_UPDATE][MB_FULL];
    }
    return OK;
}

/* The least time of a chain's messages from a stage to the next: as under its own cut, unless they have
 * fewer bytes. */
static int64_t message_least_ns(const struct search *search, const struct chain_of_cut *one,
                                int stage, const int *cut)
{
    const struct item *items = search->problem->setting.model->items;
    return items[cut[stage + 1] - 1].act_bytes < items[one->first_item[stage + 1] - 1].act_bytes
               ? 0
               : one->chain.message_ns[stage];
}

/* The least time of a chain's ops under a plan's cut. */
static enum status chain_ns(struct search *search, const struct bound_shape *shape,
                            struct plan *plan, const struct chain_of_cut *one, int64_t *ns)
{
    const struct step_chain *chain = &one->chain;
    const int *cut = plan->first_item;
    const bool by_rank = plan->recompute == RECOMPUTE_LAYER && shape->chunks > 1;
    enum status rc = OK;
    int64_t sum = chain->fixed_ns;
    for (int s = 0; s < shape->num_stages && rc == OK; s++) {
        int64_t own = one->stage_ns[s];
        if (by_rank ? rank_changes(shape, shape->stages[s].rank, cut, one->first_item)
                    : cut[s] != one->first_item[s] || cut[s + 1] != one->first_item[s + 1])
            rc = stage_least_ns(search, shape, plan, chain, s, &own);
        sum += own + (s + 1 < shape->num_stages ? message_least_ns(search, one, s, cut) : 0);
    }
    int64_t tail = chain->tail_ns;
    if (rc == OK && (rank_changes(shape, chain->entry_rank, cut, one->first_item) ||
                     rank_changes(shape, chain->end_rank, cut, one->first_item)))
        rc = updates_ns(search, shape, plan, chain, &tail);
    *ns = sum + tail;
    return rc;
}

/* The chain that was noted i chains before the last one. */
static const struct chain_of_cut *newest(const struct search_chains *chains, int i)
{
    return &chains->chains[(chains->oldest + chains->num - 1 - i) % chains->num];
}

/* Whether as many stages are frozen under the cut that chains->workload is about. */
static bool lists_equal(const struct search_chains *chains, const struct chain_of_cut *one)
{
    return one->num_frozen_stages == chains->workload.num_frozen_stages &&
           one->i_folded_into_w == chains->workload.i_folded_into_w;
}

/* Less than stage_least_ns(), from sums over items that the search has anyway. */
static int64_t stage_quick_ns(const struct bound_shape *shape, const struct step_chain *chain,
                              int stage, int a, int b)
{
    const struct bound_times *times[MB_SIZES] = {shape->fill_full, shape->fill_last};
    int64_t ns = 0;
    for (int mb = 0; mb < MB_SIZES; mb++) {
        const int *count = chain->counts + (ptrdiff_t)stage * CHAIN_KINDS * MB_SIZES + mb;
        const struct bound_times *t = times[mb];
        ns += (count[OP_F * MB_SIZES] + count[OP_Z * MB_SIZES]) * (t->fwd[b] - t->fwd[a]) +
              (count[OP_B * MB_SIZES] + count[OP_I * MB_SIZES]) *
                  (t->bwd_input[b] - t->bwd_input[a]) +
              (count[OP_B * MB_SIZES] + count[OP_W * MB_SIZES]) *
                  (t->bwd_weight[b] - t->bwd_weight[a]) +
              count[OP_R * MB_SIZES] * (t->again[b] - t->again[a]);
    }
    return ns;
}

/* Less than chain_ns(), or as much, in O(num_stages). 0: no bound. */
static int64_t chain_quick_ns(const struct search *search, const struct bound_shape *shape,
                              const int *cut, const struct chain_of_cut *one)
{
    const struct step_chain *chain = &one->chain;
    const int *origin = one->first_item;
    int64_t ns = chain->fixed_ns, updates = 0;
    bool kept = true;
    if (!shape->fill_full)
        return 0;
    for (int s = 0; s < shape->num_stages; s++) {
        const int rank = shape->stages[s].rank;
        const bool equal = cut[s] == origin[s] && cut[s + 1] == origin[s + 1];
        const int64_t *update = shape->fill_full->update;
        ns += equal && (shape->chunks == 1 || shape->mode != RECOMPUTE_LAYER)
                  ? one->stage_ns[s]
                  : stage_quick_ns(shape, chain, s, cut[s], cut[s + 1]);
        ns += s + 1 < shape->num_stages ? message_least_ns(search, one, s, cut) : 0;
        updates += rank == chain->end_rank ? update[cut[s + 1]] - update[cut[s]] : 0;
        kept = kept && (equal || (rank != chain->entry_rank && rank != chain->end_rank));
    }
    return ns + (kept ? chain->tail_ns : updates);
}

enum status search_chain_bound(struct search *search, const struct bound_shape *shape,
                               const struct plan *plan, int64_t limit_ns, int64_t *bound_ns)
{
    struct search_chains *chains = search->chains;
    struct plan other = *plan;
    *bound_ns = 0;
    other.recompute_layers = chains->layers;
    if (chains->num > 0)
        workload_place_frozen(&chains->workload, plan);
    for (int i = 0; i < chains->num && *bound_ns < limit_ns; i++)
        if (lists_equal(chains, &chains->chains[i]))
            *bound_ns = bound_max(
                *bound_ns, chain_quick_ns(search, shape, plan->first_item, &chains->chains[i]));
    for (int i = 0; i < chains->num && i < MOST_EXACT && *bound_ns < limit_ns; i++) {
        const struct chain_of_cut *one = newest(chains, i);
        int64_t ns;
        if (!lists_equal(chains, one))
            continue;
        const enum status rc = chain_ns(search, shape, &other, one, &ns);
        if (rc == ERR_NOMEM)
            return err_nomem(search->err);
        if (rc == OK)
            *bound_ns = bound_max(*bound_ns, ns);
    }
    return OK;
}

int search_chain_class(const struct search *search)
{
    const struct search_chains *chains = search->chains;
    return chains->num > 0 ? newest(chains, 0)->chain.class_index : 0;
}

enum status search_note_chain(struct search *search, struct plan *plan, struct workload *workload,
                              struct step_chain *chain)
{
    struct search_chains *chains = search->chains;
    const size_t S = (size_t)plan->num_stages;
    if (!chain->counts)
        return OK;
    const int at = chains->num < MOST_CHAINS ? chains->num : chains->oldest;
    struct chain_of_cut *one = &chains->chains[at];
    chain_clear(one);
    one->first_item = malloc((S + 1) * sizeof *one->first_item);
    one->stage_ns = malloc(S * sizeof *one->stage_ns);
    if (!one->first_item || !one->stage_ns) {
        chain_clear(one);
        return err_nomem(search->err);
    }
    memcpy(one->first_item, plan->first_item, (S + 1) * sizeof *one->first_item);
    for (int s = 0; s < plan->num_stages; s++)
        one->stage_ns[s] = step_chain_stage_ns(
            chain, s, &workload->stages[(int64_t)chain->class_index * plan->num_stages + s]);
    one->num_frozen_stages = workload->num_frozen_stages;
    one->i_folded_into_w = workload->i_folded_into_w;
    one->chain = *chain;
    *chain = (struct step_chain){0};
    if (chains->num < MOST_CHAINS)
        chains->num++;
    else
        chains->oldest = (chains->oldest + 1) % MOST_CHAINS;
    if (plan->recompute == RECOMPUTE_LAYER && plan->chunks == 1) {
        struct plan bare = *plan;
        bare.recompute_layers = chains->layers;
        for (int s = 0; s < plan->num_stages; s++) {
            chains->layers[s] = 0;
            stage_memo_find(search->memo, &bare, s, one->chain.class_index)->fit =
                plan->recompute_layers[s];
        }
    }
    workload_clear(&chains->workload);
    chains->workload = *workload;
    *workload = (struct workload){0};
    return OK;
}
