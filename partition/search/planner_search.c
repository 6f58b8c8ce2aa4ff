/* Best-first search (A*) over the candidates of a problem.
 *
 * A heap holds nodes keyed by the throughput that their bound still allows. A node is a family of
 * candidates (K, R, place), or a candidate with a cheap, an average or a tight bound (enum
 * level). A tight bound comes with its cut. The top node is opened, its bound is tightened, or
 * schedule_time() judges it. When the top cannot beat the best judged plan, no other node can, so
 * the search ends. It is exact over everything but the cut. planner_cuts.c then improves the cuts
 * of candidates whose bound still allows a better plan. Read search_run() at the end first, then
 * judge() and tighten(). */
#include "partition/search/planner_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"
#include "partition/plan/cut.h"
#include "partition/step/lower.h"
#include "partition/step/recompute_fit.h"
#include "partition/step/schedule_memory.h"
#include "partition/step/schedule_time.h"
#include "partition/step/stage_memo.h"
#include "partition/step/traffic.h"
#include "partition/step/workload.h"

/* List where stages may begin. */
static void list_blocks(struct search *search)
{
    const struct model *model = search->problem->setting.model;
    const bool whole = search->options->target;
    for (int i = 0; i < model->num_items; i++) {
        if (i == 0 || !whole || model->items[i].layer != model->items[i - 1].layer)
            search->block[search->num_blocks++] = i;
        search->block_of[i] = search->num_blocks - 1;
    }
    search->block[search->num_blocks] = model->num_items;
    search->block_of[model->num_items] = search->num_blocks;
}

enum status search_init(struct search *search, struct search_common *common,
                        const struct planner_problem *problem,
                        const struct planner_options *options, struct err *err)
{
    *search = (struct search){
        .common = common, .problem = problem, .options = options, .best = -1, .err = err};
    enum status rc = bound_table_init(&search->table, problem, err);
    if (rc != OK)
        return rc;
    rc = rank_places_new(problem->setting.cluster, bound_tensor(problem->setting.model),
                         problem->with_device_0, &search->places, err);
    if (rc != OK)
        return rc;
    if (options->target)
        rank_places_by_stage(search->places);
    search->num_groups =
        tensor_group_list(problem->setting.cluster, bound_tensor(problem->setting.model), NULL);
    search->num_lengths = (int)bound_min(search->num_groups, problem->setting.model->num_items);
    for (int d = 0; d < problem->setting.cluster->num_devices; d++) {
        const int64_t bytes = problem->setting.cluster->devices[d].mem_bytes;
        search->limited |= bytes != INT64_MAX;
        search->most_bytes = bound_max(search->most_bytes, bytes);
    }
    search->lengths = calloc((size_t)search->num_lengths, sizeof *search->lengths);
    search->cut = malloc(((size_t)problem->setting.model->num_items + 1) * sizeof *search->cut);
    search->over = calloc((size_t)search->num_lengths, sizeof *search->over);
    search->block = malloc(((size_t)problem->setting.model->num_items + 1) * sizeof(int));
    search->block_of = malloc(((size_t)problem->setting.model->num_items + 1) * sizeof(int));
    if (!search->lengths || !search->cut || !search->over || !search->block || !search->block_of)
        return err_nomem(err);
    search->memo = stage_memo_new();
    search->chains = search_chains_new(problem->setting.model->num_items);
    if (!search->memo || !search->chains)
        return err_nomem(err);
    list_blocks(search);
    for (int i = 0; i < search->num_lengths; i++)
        search->lengths[i] = (struct planner_length){.num_ranks = i + 1, .verdict = PLANNER_NONE};
    return OK;
}

void search_clear(struct search *search)
{
    for (int64_t i = 0; i < search->heap_size; i++)
        free(search->heap[i].first_item);
    free(search->heap);
    for (int i = 0; i < search->num_judged; i++)
        free(search->judged[i].node.first_item);
    free(search->judged);
    free(search->lengths);
    free(search->cut);
    free(search->block);
    free(search->block_of);
    free(search->over);
    free(search->counts);
    for (int i = 0; search->families && i < FAMILY_SLOTS; i++)
        bound_family_clear(&search->families[i].family);
    free(search->families);
    free(search->judged_family.device);
    sites_free(search->judged_family.sites);
    search_chains_free(search->chains);
    stage_memo_free(search->memo);
    rank_places_free(search->places);
    search_mixed_free(search->mixed);
    bound_table_clear(&search->table);
}

/* --- the heap ------------------------------------------------------------------------------ */

static bool before(const struct node *a, const struct node *b)
{
    return a->key != b->key ? a->key > b->key : a->order < b->order;
}

enum status search_push(struct search *search, struct node node)
{
    if (!array_grow(&search->heap, search->heap_size + 1, &search->heap_room,
                    sizeof *search->heap)) {
        free(node.first_item);
        return err_nomem(search->err);
    }
    node.order = search->order++;
    int64_t i = search->heap_size++;
    while (i > 0 && before(&node, &search->heap[(i - 1) / 2])) {
        search->heap[i] = search->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    search->heap[i] = node;
    return OK;
}

static struct node pop(struct search *search)
{
    struct node top = search->heap[0], last = search->heap[--search->heap_size];
    int64_t i = 0, n = search->heap_size;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(&search->heap[child + 1], &search->heap[child]))
            child++;
        if (!before(&search->heap[child], &last))
            break;
        search->heap[i] = search->heap[child];
        i = child;
    }
    search->heap[i] = last;
    return top;
}

/* --- candidates ---------------------------------------------------------------------------- */

/* Samples of a step. */
static double node_samples(const struct node *node)
{
    return (double)node->width * (double)node->batch;
}

double node_rate(const struct node *node, int64_t step_ns)
{
    return node_samples(node) / ((double)step_ns + node->fill_ns) * 1e9;
}

double search_beat(const struct search *search)
{
    if (search->best < 0)
        return search->floor_rate;
    const struct judged *best = &search->judged[search->best];
    return fmax(node_rate(&best->node, judged_ns(best)), search->floor_rate);
}

int64_t search_limit(const struct search *search, const struct node *node)
{
    const double beat = search_beat(search), most = (double)(INT64_MAX / 4);
    int64_t limit = (int64_t)fmin(node_samples(node) * 1e9 / beat + 1 - node->fill_ns, most);
    while (limit > 0 && node_rate(node, limit) <= beat)
        limit--;
    return bound_max(limit, 0);
}

bool search_goes_on(struct search *search)
{
    struct search_common *common = search->common;
    const struct planner_judge *judge = &search->options->judge;
    bool *over = search->asking      ? &common->judged_enough
                 : search->improving ? &common->improved_enough
                                     : &common->stopped;
    if (*over || !judge->watch)
        return !*over;
    const struct judged *best = search->best >= 0 ? &search->judged[search->best] : NULL;
    const double beat = search_beat(search),
                 top = search->heap_size > 0 ? search->heap[0].key : search->dropped_rate;
    const struct planner_progress progress = {
        .candidates = common->candidates + search->candidates,
        .evaluated = common->evaluated + search->evaluated,
        .best_per_s = beat,
        .memory_share = best && node_rate(&best->node, judged_ns(best)) >= beat
                            ? best->share
                            : common->floor_share,
        .bound_per_s = fmax(beat, fmax(common->rest_rate, fmax(top, search->dropped_rate))),
        .phase = search->asking      ? PLANNER_JUDGES
                 : search->improving ? PLANNER_IMPROVES
                                     : PLANNER_SEARCHES};
    *over = !judge->watch(judge->watch_ctx, &progress);
    common->stopped = common->stopped || *over;
    return !*over;
}

double search_bound_rate(const struct search *search)
{
    double rate = search->heap_size > 0 ? search->heap[0].key : 0;
    rate = fmax(rate, search->unseen_rate);
    rate = fmax(rate, search->dropped_rate);
    for (int i = 0; i < search->num_judged; i++)
        rate = fmax(rate, node_rate(&search->judged[i].node, search->judged[i].node.bound_ns));
    return rate;
}

struct plan search_bare_plan(const struct search *search, const struct node *node, int *device)
{
    const struct planner_problem *problem = search->problem;
    return (struct plan){
        .num_ranks = node->num_ranks,
        .chunks = node->chunks,
        .num_pipelines = node->num_pipelines,
        .layout = problem->layout,
        .batch = node->batch,
        .microbatches = node->microbatches,
        .schedule = node->schedule,
        .num_frozen_layers = problem->num_frozen_layers,
        .frozen = node->frozen,
        .recompute = node->recompute,
        .num_stages = node->num_ranks * node->chunks,
        .device = device,
        .bucket_bytes = problem->bucket_auto
                            ? framework_bucket_bytes(problem->setting.model, node->num_pipelines)
                            : problem->bucket_bytes,
        .clip = problem->clip,
        .optim_bytes_per_param = problem->optim_bytes_per_param,
        .canonical = problem->canonical,
        .lagged = problem->lagged};
}

static int compare_judged(const void *left, const void *right)
{
    const struct judged *a = left, *b = right;
    if ((a->step_ns > 0) != (b->step_ns > 0))
        return a->step_ns > 0 ? -1 : 1;
    double x = a->step_ns > 0 ? node_rate(&a->node, a->step_ns) : 0;
    double y = b->step_ns > 0 ? node_rate(&b->node, b->step_ns) : 0;
    if (x != y)
        return x > y ? -1 : 1;
    x = a->step_ns > 0 ? node_rate(&a->node, a->unshared_ns) : 0;
    y = b->step_ns > 0 ? node_rate(&b->node, b->unshared_ns) : 0;
    if (x != y)
        return x > y ? -1 : 1;
    return (a->node.order > b->node.order) - (a->node.order < b->node.order);
}

void search_sort(struct search *search)
{
    if (search->num_judged == 0)
        return;
    const int64_t best = search->best < 0 ? -1 : search->judged[search->best].node.order;
    qsort(search->judged, (size_t)search->num_judged, sizeof *search->judged, compare_judged);
    for (int i = 0; search->best >= 0 && i < search->num_judged; i++)
        if (search->judged[i].node.order == best)
            search->best = i;
}

enum status search_map(const struct search *search, const struct node *node, int *device,
                       struct err *err)
{
    return rank_places_map(search->places, node->place, node->num_ranks, node->num_pipelines,
                           device, err);
}

/* Give every stage the largest of the counts, as a framework with one count for all does. */
static enum status recompute_equally(struct plan *plan, struct workload *workload, struct err *err)
{
    int most = 0;
    for (int s = 0; s < plan->num_stages; s++)
        most = plan->recompute_layers[s] > most ? plan->recompute_layers[s] : most;
    for (int s = 0; s < plan->num_stages; s++) {
        const int has = recompute_layers_of(workload->setting.model, plan, s);
        plan->recompute_layers[s] = most < has ? most : has;
    }
    return workload_rebuild(plan, workload, err);
}

enum status search_lower(const struct search *search, struct plan *plan, const struct sites *sites,
                         struct stage_memo *memo, struct workload *workload, struct schedule *full,
                         struct err *err)
{
    const struct setting *setting = &search->problem->setting;
    if (plan->recompute == RECOMPUTE_LAYER && !plan->recompute_layers) {
        plan->recompute_layers = calloc((size_t)plan->num_stages, sizeof *plan->recompute_layers);
        if (!plan->recompute_layers)
            return err_nomem(err);
        for (int s = 0; s < plan->num_stages; s++)
            plan->recompute_layers[s] = search->options->recompute_layers;
    }
    enum status rc = plan_lower_unchecked(setting, plan, sites, memo, workload, full, err);
    if (rc == OK && plan->recompute == RECOMPUTE_LAYER)
        rc = recompute_fit(plan, search->options->recompute_layers == AUTO, full, workload, err);
    if (rc == OK && plan->recompute == RECOMPUTE_LAYER && search->options->target &&
        search->options->target->equal_layers)
        rc = recompute_equally(plan, workload, err);
    return rc;
}

enum status search_judged_family(struct search *search, const struct node *node)
{
    struct judged_family *family = &search->judged_family;
    const int K = node->num_ranks, R = node->num_pipelines;
    if (family->sites && family->num_ranks == K && family->num_pipelines == R &&
        family->place == node->place)
        return OK;
    free(family->device);
    sites_free(family->sites);
    *family = (struct judged_family){.num_ranks = K, .num_pipelines = R, .place = node->place};
    family->device = malloc((size_t)K * (size_t)R * sizeof *family->device);
    if (!family->device)
        return err_nomem(search->err);
    const struct plan plan = search_bare_plan(search, node, family->device);
    enum status rc = search_map(search, node, family->device, search->err);
    THEN(traffic_uplink_share(search->problem->setting.cluster, &plan, &family->uplink_share,
                              search->err));
    THEN(sites_new(search->problem->setting.cluster, &plan, &family->sites, search->err));
    return rc;
}

static enum status family_of(struct search *search, const struct node *node,
                             const struct bound_family **family)
{
    const int K = node->num_ranks, R = node->num_pipelines;
    if (!search->families) /* a search of one candidate has none */
        search->families = calloc(FAMILY_SLOTS, sizeof *search->families);
    if (!search->families)
        return err_nomem(search->err);
    struct family_slot *slot =
        &search->families[((unsigned)K * 61u + (unsigned)R * 2u + (unsigned)node->place) %
                          FAMILY_SLOTS];
    *family = &slot->family;
    if (slot->family.ranks && slot->num_ranks == K && slot->num_pipelines == R &&
        slot->place == node->place)
        return OK;
    bound_family_clear(&slot->family);
    int *device = malloc((size_t)K * (size_t)R * sizeof *device);
    if (!device)
        return err_nomem(search->err);
    enum status rc = search_map(search, node, device, search->err);
    THEN(bound_family_init(&slot->family, &search->table, K, R, device, search->err));
    slot->num_ranks = K;
    slot->num_pipelines = R;
    slot->place = node->place;
    free(device);
    return rc;
}

/* A cut does not fit. Note its need if it is the smallest so far, for the error message. */
static void note_need(struct search *search, const struct node *node,
                      const struct bound_family *family)
{
    int worst = 0;
    for (int k = 1; k < node->num_ranks; k++)
        worst = search->over[k] > search->over[worst] ? k : worst;
    const int64_t have = family->ranks[worst].mem_bytes, need = have + search->over[worst];
    struct planner_length *length = search_length(search, node);
    if (length->need_bytes == 0 || need < length->need_bytes)
        length->need_bytes = need;
    if (search->need_bytes == 0 || need - have < search->need_bytes - search->have_bytes) {
        search->need_bytes = need;
        search->have_bytes = have;
    }
}

/* A cut that is judged, as a plan with its lists. */
struct lowered_cut {
    struct plan plan; /* borrows its devices */
    struct workload workload;
    struct schedule full;
    struct step_chain chain;
};

static void lowered_clear(struct lowered_cut *cut)
{
    step_chain_clear(&cut->chain);
    schedule_clear(&cut->full);
    workload_clear(&cut->workload);
    free(cut->plan.recompute_layers);
    free(cut->plan.first_item);
    *cut = (struct lowered_cut){0};
}

/* Compute the memory of a cut: whether it fits, and search->over. */
static enum status cut_memory(struct search *search, const struct node *node,
                              const struct bound_family *family, const struct lowered_cut *cut,
                              bool *fits, struct err *err)
{
    int64_t *memory = malloc((size_t)node->num_ranks * sizeof *memory);
    if (!memory)
        return err_nomem(err);
    const enum status rc = schedule_memory(&cut->full, &cut->workload, memory, err);
    *fits = true;
    search->share = 0;
    for (int k = 0; k < node->num_ranks && rc == OK; k++) {
        const int64_t have = family->ranks[k].mem_bytes;
        if (have != INT64_MAX)
            search->share = fmax(search->share, (double)memory[k] / (double)have);
        search->over[k] = bound_max(memory[k] - have, 0);
        *fits &= search->over[k] == 0;
    }
    free(memory);
    if (rc == OK && !*fits)
        note_need(search, node, family);
    return rc;
}

/* Compute the step time of a cut. *step_ns stays 0 if that is limit_ns (0: none) or longer. */
static enum status cut_time(struct search *search, struct lowered_cut *cut, int64_t limit_ns,
                            bool traced, int64_t *step_ns, int64_t *unshared_ns, struct err *err)
{
    struct step_time time = {0};
    int64_t traffic_ns = 0;
    cut->chain.class_index = search_chain_class(search);
    int64_t most_ns = 0;
    enum status rc = schedule_time_chain(&cut->full, &cut->workload, &cut->plan, limit_ns, &time,
                                         traced ? &cut->chain : NULL, err);
    const bool shorter = rc == OK && (limit_ns == 0 || time.step_ns < limit_ns);
    if (shorter)
        rc = workload_traffic_most_ns(&cut->workload, search->judged_family.uplink_share,
                                      time.allreduce_ns, &most_ns, err);
    if (rc == OK && most_ns > time.step_ns)
        rc = workload_traffic_ns(&cut->workload, &cut->plan, &traffic_ns, err);
    if (rc == OK && shorter) {
        *unshared_ns = bound_max(time.step_ns, 1);
        *step_ns = bound_max(*unshared_ns, traffic_ns);
    }
    step_time_clear(&time);
    return rc;
}

/* Count a cut that is judged. What is remembered of stages is of one order of devices. */
static void count_cut(struct search *search, const struct node *node, int num_stages)
{
    if (search->memo_order != node->order) {
        stage_memo_forget(search->memo);
        search_chains_forget(search->chains);
    }
    search->memo_order = node->order;
    search->evaluated++;
    search->ops += 3 * (int64_t)num_stages * node->microbatches.count;
}

enum status search_judge_cut(struct search *search, const struct node *node,
                             const struct bound_shape *shape, const int *first_item,
                             int64_t limit_ns, int64_t *step_ns, int64_t *unshared_ns)
{
    const struct bound_family *family;
    struct lowered_cut cut = {0};
    struct err why = {0};
    const int num_stages = node->num_ranks * node->chunks;
    const size_t size = ((size_t)num_stages + 1) * sizeof *first_item;
    bool fits = true;
    *step_ns = 0;
    enum status rc = family_of(search, node, &family);
    if (rc != OK)
        return rc;
    if (!bound_cut_fits(shape, first_item, search->over)) {
        note_need(search, node, family);
        return OK;
    }
    rc = search_judged_family(search, node);
    if (rc != OK)
        return rc;
    const bool traced =
        limit_ns > 0 && search_chains_hold(search, node, search->judged_family.sites);
    cut.plan = search_bare_plan(search, node, search->judged_family.device);
    cut.plan.first_item = malloc(size);
    if (!cut.plan.first_item) {
        rc = err_nomem(&why);
        goto out;
    }
    memcpy(cut.plan.first_item, first_item, size);
    count_cut(search, node, num_stages);
    if (traced) {
        int64_t bound_ns;
        rc = search_chain_bound(search, shape, &cut.plan, limit_ns, &bound_ns);
        if (rc != OK || bound_ns >= limit_ns)
            goto out;
    }
    rc = search_lower(search, &cut.plan, search->judged_family.sites, search->memo, &cut.workload,
                      &cut.full, &why);
    if (rc == ERR_INFEASIBLE) { /* the schedule cannot be made for these counts */
        if (search->refused.status == OK)
            search->refused = why;
        rc = OK;
        goto out;
    }
    /* Most cuts fail by what limits them: a step that is too long, or the memory of the first one. */
    if (rc == OK && limit_ns == 0)
        rc = cut_memory(search, node, family, &cut, &fits, &why);
    if (rc == OK && fits)
        rc = cut_time(search, &cut, limit_ns, traced, step_ns, unshared_ns, &why);
    if (rc == OK && limit_ns > 0 && *step_ns > 0)
        rc = cut_memory(search, node, family, &cut, &fits, &why);
    if (!fits)
        *step_ns = 0;
    if (rc == OK && traced)
        rc = search_note_chain(search, &cut.plan, &cut.workload, &cut.chain);
out:
    if (rc != OK && why.status != OK)
        err_copy(search->err, &why);
    lowered_clear(&cut);
    return rc;
}

void search_note_best(struct search *search, int index)
{
    const struct judged *judged = &search->judged[index];
    struct planner_length *length = search_length(search, &judged->node);
    double rate = node_rate(&judged->node, judged->step_ns);
    if (rate > length->samples_per_s)
        length->samples_per_s = rate;
    if (!search->asking &&
        (search->best < 0 || judged->step_ns <= search_limit(search, &judged->node)))
        search->best = index;
}

enum status search_shape(struct search *search, const struct node *node, struct bound_shape *shape)
{
    const struct bound_family *family;
    enum status rc = family_of(search, node, &family);
    struct plan plan = search_bare_plan(search, node, NULL);
    THEN(bound_shape_init(shape, &search->table, family, &plan, search->err));
    return rc;
}

static enum status add_judged(struct search *search, struct judged judged)
{
    if (!array_grow(&search->judged, search->num_judged + 1, &search->judged_room,
                    sizeof *search->judged))
        return err_nomem(search->err);
    search->judged[search->num_judged++] = judged;
    return OK;
}

enum status search_keep(struct search *search, struct node node, const int *first_item,
                        int64_t step_ns, int64_t unshared_ns)
{
    const size_t size =
        ((size_t)node.num_ranks * (size_t)node.chunks + 1) * sizeof *node.first_item;
    node.first_item = malloc(size);
    if (!node.first_item)
        return err_nomem(search->err);
    memcpy(node.first_item, first_item, size);
    const enum status rc = add_judged(search, (struct judged){.node = node,
                                                              .step_ns = step_ns,
                                                              .unshared_ns = unshared_ns,
                                                              .share = search->share});
    if (rc != OK)
        free(node.first_item);
    else
        search_note_best(search, search->num_judged - 1);
    return rc;
}

#define NEAR_FIT 20 /* one that fits may be longer than the limit by 1 / NEAR_FIT */

/* Judge a candidate at its starting cut. It is skipped if its bounds show that it cannot win and
 * another candidate of this length has been timed. If a rank exceeds its memory, up to four more
 * cuts are judged, each with less memory for the ranks that exceeded it. These may be a little
 * too long, because search_improve() looks for better ones near a cut that fits. */
static enum status judge(struct search *search, struct node *node)
{
    const int64_t limit = search_limit(search, node), near = limit + limit / NEAR_FIT;
    struct bound_shape shape = {0}, tight = {0}; /* tight: with reduced memory of some ranks */
    int64_t step_ns = 0, unshared_ns = 0, bound;
    enum status rc = search_shape(search, node, &shape);
    for (int round = 0; rc == OK && round <= 4; round++) {
        if (search_length(search, node)->samples_per_s > 0 &&
            !bound_cut_within(&shape, node->first_item, near))
            break;
        memset(search->over, 0, (size_t)node->num_ranks * sizeof *search->over);
        rc = search_judge_cut(search, node, &shape, node->first_item, 0, &step_ns, &unshared_ns);
        bool any = false;
        for (int k = 0; k < node->num_ranks; k++)
            any |= search->over[k] > 0;
        if (rc != OK || step_ns > 0 || !any || search_cut_given(search->options) || round == 4)
            break;
        if (!tight.stages)
            rc = search_shape(search, node, &tight);
        for (int s = 0; rc == OK && s < tight.num_stages; s++)
            tight.stages[s].mem_bytes -= search->over[tight.stages[s].rank] / tight.chunks;
        if (rc == OK && !bound_solve(&tight, near, &bound, search->cut, NULL))
            break;
        search_snap(search, shape.num_stages);
        memcpy(node->first_item, search->cut, ((size_t)shape.num_stages + 1) * sizeof *search->cut);
    }
    bound_shape_clear(&tight);
    bound_shape_clear(&shape);
    if (rc != OK)
        return rc;
    rc = add_judged(search, (struct judged){.node = *node,
                                            .step_ns = step_ns,
                                            .unshared_ns = unshared_ns,
                                            .share = search->share});
    if (rc != OK)
        return rc;
    node->first_item = NULL;
    if (step_ns > 0)
        search_note_best(search, search->num_judged - 1);
    return OK;
}

/* Raise a node from its cheap bound to bound_average_ns(), and push it again. */
static enum status average(struct search *search, struct node node)
{
    struct bound_shape shape = {0};
    enum status rc = search_shape(search, &node, &shape);
    if (rc != OK)
        return rc;
    int64_t bound = bound_average_ns(&shape);
    bound_shape_clear(&shape);
    if (bound > node.bound_ns)
        node.bound_ns = bound;
    node.level = LEVEL_AVERAGE;
    node.key = node_rate(&node, node.bound_ns);
    return search_push(search, node);
}

/* Push a node with its tight bound and a copy of its cut. */
static enum status push_tight(struct search *search, struct node node, const int *first_item,
                              int num_stages)
{
    const size_t size = ((size_t)num_stages + 1) * sizeof *node.first_item;
    node.first_item = malloc(size);
    if (!node.first_item)
        return err_nomem(search->err);
    memcpy(node.first_item, first_item, size);
    node.level = LEVEL_TIGHT;
    node.others = 0;
    node.key = node_rate(&node, node.bound_ns);
    if (node.key > search_length(search, &node)->bound_per_s)
        search_length(search, &node)->bound_per_s = node.key;
    return search_push(search, node);
}

/* The cut in search->cut has the node's tight bound. Push the node, and each other schedule that it
 * stands for: with that bound and cut, if the cut may fit its memory, otherwise for a bound of its
 * own. Changes *shape. */
static enum status push_group(struct search *search, struct node node, struct bound_shape *shape)
{
    enum status rc = push_tight(search, node, search->cut, shape->num_stages);
    for (int kind = 0; kind < SCHEDULE_SEARCH && rc == OK; kind++) {
        if (!(node.others >> kind & 1))
            continue;
        struct node other = node;
        other.others = 0;
        other.schedule = (enum schedule_kind)kind;
        bound_shape_set_kind(shape, other.schedule);
        if (search_cut_given(search->options) || bound_cut_fits(shape, search->cut, search->over)) {
            rc = push_tight(search, other, search->cut, shape->num_stages);
        } else {
            other.level = LEVEL_AVERAGE;
            other.key = node_rate(&other, other.bound_ns);
            rc = search_push(search, other);
        }
    }
    return rc;
}

/* Raise a node to the tight bound with its cut, and push it again. A node that cannot win is
 * dropped. With a judge it is pushed with a lower key, because the judge may find the best plan
 * slower. */
static enum status tighten(struct search *search, struct node node)
{
    const struct model *model = search->problem->setting.model;
    struct bound_shape shape = {0};
    enum status rc = search_shape(search, &node, &shape);
    if (rc != OK)
        return rc;
    int64_t limit = search_limit(search, &node);
    struct planner_length *length = search_length(search, &node);
    bool alive, memory_only = false;
    if (search->options->by_params) {
        struct cut cut = {0};
        int count = shape.num_items - shape.first_item;
        int64_t *sizes = malloc((size_t)count * sizeof *sizes);
        if (!sizes) {
            rc = err_nomem(search->err);
            goto out;
        }
        for (int i = 0; i < count; i++)
            sizes[i] = model->items[shape.first_item + i].params;
        rc = cut_sizes(sizes, count, shape.num_stages, &cut, search->err);
        free(sizes);
        if (rc != OK)
            goto out;
        for (int s = 0; s <= shape.num_stages; s++)
            search->cut[s] = cut.first_item[s] + shape.first_item;
        cut_clear(&cut);
        search_snap(search, shape.num_stages);
        node.bound_ns = bound_of_cut(&shape, search->cut);
        alive = node.bound_ns <= limit;
    } else if (search_cut_given(search->options)) {
        memory_only = !search->options->target->own_cut(model, shape.num_stages, search->cut);
        if (!memory_only)
            node.bound_ns = bound_of_cut(&shape, search->cut);
        alive = !memory_only && node.bound_ns <= limit;
    } else {
        alive = bound_solve(&shape, limit, &node.bound_ns, search->cut, &memory_only);
        if (alive)
            search_snap(search, shape.num_stages);
    }
    if (alive) {
        rc = push_group(search, node, &shape);
    } else if (!memory_only) {
        /* The bound is longer than the limit. */
        double rate = node_rate(&node, limit);
        length->bound_per_s = fmax(length->bound_per_s, rate);
        length->rest_per_s = fmax(length->rest_per_s, rate);
        if (search->options->judge.step_ns) { /* the judge may find the best plan slower */
            node.bound_ns = limit + 1;
            node.key = node_rate(&node, node.bound_ns);
            rc = search_push(search, node);
        }
    }
out:
    bound_shape_clear(&shape);
    return rc;
}

/* --- the search ---------------------------------------------------------------------------- */

void search_note_rest(struct search *search)
{
    for (int64_t i = 0; i < search->heap_size; i++) {
        struct planner_length *length = search_length(search, &search->heap[i]);
        length->bound_per_s = fmax(length->bound_per_s, search->heap[i].key);
        length->rest_per_s = fmax(length->rest_per_s, search->heap[i].key);
    }
}

enum status search_only(struct search *search, struct judged *only, bool *one_cut, bool *found)
{
    *found = false;
    if (search->candidates != 1)
        return OK;
    const struct node family = pop(search);
    enum status rc = search_open(search, &family, false);
    if (rc != OK || search->heap_size != 1)
        return rc;
    *only = (struct judged){.node = pop(search)};
    struct node *node = &only->node;
    const int blocks = search_blocks_in_cut(search, node->frozen),
              stages = node->num_ranks * node->chunks;
    node->first_item = malloc(((size_t)stages + 1) * sizeof *node->first_item);
    if (!node->first_item)
        return err_nomem(search->err);
    for (int s = 0; s <= stages; s++)
        node->first_item[s] =
            search->block[search->num_blocks - blocks + (int)((int64_t)blocks * s / stages)];
    *one_cut = blocks == stages;
    *found = true;
    return OK;
}

enum status search_run(struct search *search)
{
    enum status rc = OK;
    while (rc == OK && search->heap_size > 0) {
        if (search->heap[0].key <= search_beat(search) ||
            (search->best >= 0 && search->asking && search->ops > search->until) ||
            !search_goes_on(search))
            break;
        struct node node = pop(search);
        switch (node.level) {
        case LEVEL_FAMILY:
            rc = search_open(search, &node, false);
            break;
        case LEVEL_CHEAP:
            rc = average(search, node);
            break;
        case LEVEL_AVERAGE:
            rc = tighten(search, node);
            break;
        case LEVEL_TIGHT:
            rc = judge(search, &node);
            free(node.first_item);
            break;
        }
    }
    return rc;
}
