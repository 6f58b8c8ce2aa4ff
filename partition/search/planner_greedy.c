/* The greedy rules of the release and of the paper (balance.h), each as one candidate, or as two if
 * a plan may read the cache. */
#include "partition/search/planner_search.h"

#include <limits.h>
#include <stdlib.h>

#include "partition/plan/autodp.h"
#include "partition/plan/balance.h"

/* The largest R for which there are devices, that shares a global batch evenly, that is a power of
 * two under canonical sums, and whose step has at most most_samples. */
static int replicas_of(const struct planner_problem *problem, int num_ranks)
{
    int r = problem->setting.cluster->num_devices / num_ranks;
    for (; r > 1; r--) {
        const bool shared = problem->batch_mode != BATCH_GLOBAL || problem->batch % r == 0;
        const bool tree = !problem->canonical || (r & (r - 1)) == 0;
        const bool filled = problem->batch_mode == BATCH_GLOBAL || problem->most_samples == 0 ||
                            problem->batch <= problem->most_samples / r;
        if (shared && tree && filled)
            break;
    }
    return r;
}

/* Set the place of a node's ranks: pipelines inside nodes, or the first place that uses device 0 if
 * it must be used and they do not. */
static enum status place_greedy(struct search *search, struct node *node)
{
    const int K = node->num_ranks, R = node->num_pipelines;
    const int *place;
    int num;
    node->place = RANK_PLACE_PIPELINE_INSIDE;
    int *device = malloc((size_t)K * (size_t)R * sizeof *device);
    if (!device)
        return err_nomem(search->err);
    enum status rc =
        autodp_map_groups(search->problem->setting.cluster, MAP_PIPELINE_INSIDE,
                          bound_tensor(search->problem->setting.model), K, R, device, search->err);
    bool used = !search->problem->with_device_0;
    for (int64_t i = 0; rc == OK && i < (int64_t)K * R && !used; i++)
        used = device[i] == 0;
    if (rc == OK && !used)
        rc = rank_places_of(search->places, K, R, &place, &num, search->err);
    if (rc == OK && !used && num > 0)
        node->place = place[0];
    free(device);
    return rc;
}

/* What the greedy rules cut: the sizes of n items, and arrays of n entries for the answers. */
struct sizes {
    int n;
    double *sizes, *load; /* owned */
    int *count;           /* owned */
};

static enum status sizes_init(struct sizes *s, const struct search *search)
{
    const struct model *model = search->problem->setting.model;
    const size_t n = (size_t)model->num_items;
    *s = (struct sizes){.n = model->num_items,
                        .sizes = malloc(n * sizeof *s->sizes),
                        .load = malloc(n * sizeof *s->load),
                        .count = malloc(n * sizeof *s->count)};
    if (!s->sizes || !s->load || !s->count)
        return err_nomem(search->err);
    balance_sizes(model, s->sizes);
    return OK;
}

static void sizes_clear(struct sizes *s)
{
    free(s->sizes);
    free(s->load);
    free(s->count);
}

/* Set *K to the length that the job asks for, or that the paper's rule ends at. It starts with the
 * number of devices of a node; the budget is the largest stage of the unfrozen model. F grows step
 * by step, and each step may halve K. */
static enum status choose_length(const struct search *search, const struct sizes *s, int *K)
{
    const struct planner_problem *problem = search->problem;
    const enum balancer_kind balancer = search->options->balancer;
    const struct cluster *cluster = problem->setting.cluster;
    const int per_node = cluster->num_devices / cluster->num_nodes;
    *K = search->options->num_ranks;
    if (*K != AUTO)
        return OK;
    *K = per_node < s->n ? per_node : s->n;
    enum status rc =
        balance_greedy(balancer, s->sizes, s->n, 0, *K, s->count, s->load, search->err);
    const double budget = rc == OK ? balance_max(balancer, s->sizes, 0, *K, s->load) : 0;
    for (int f = 1; f <= problem->num_frozen_layers && rc == OK; f++)
        rc =
            balance_compress(balancer, s->sizes, s->n,
                             model_frozen_items(problem->setting.model, f), budget, K, search->err);
    return rc;
}

/* GPipe, unless the job allows others only. */
static enum schedule_kind choose_schedule(const struct planner_options *options)
{
    enum schedule_kind chosen = SCHEDULE_GPIPE;
    for (int i = 0; i < SCHEDULE_KIND_COUNT && !search_allows(options, SCHEDULE_GPIPE); i++)
        if (search_allows(options, (enum schedule_kind)i))
            chosen = (enum schedule_kind)i;
    return chosen;
}

/* Set the node's R and place. */
static enum status choose_devices(struct search *search, struct node *node)
{
    const struct planner_problem *problem = search->problem;
    const int K = node->num_ranks, asked = search->options->num_replicas;
    node->num_pipelines = asked != AUTO ? asked : replicas_of(problem, K);
    if (node->num_pipelines < 1 || K > problem->setting.cluster->num_devices)
        return err_set(search->err, ERR_INFEASIBLE, "a pipeline of %d does not fit %d devices", K,
                       problem->setting.cluster->num_devices);
    if (node->num_pipelines % layout_expert_span(&problem->layout) != 0)
        return err_set(search->err, ERR_INFEASIBLE,
                       "pipeline.expert %d does not divide %d replicas", problem->layout.expert,
                       node->num_pipelines);
    node->width = node->num_pipelines;
    return place_greedy(search, node);
}

/* Set the node's batch and micro-batches: those of the job, or 16 (4 on one device). */
static enum status choose_batch(const struct search *search, struct node *node)
{
    const struct planner_problem *problem = search->problem;
    const int64_t size = search->options->microbatch_size;
    const bool global = problem->batch_mode == BATCH_GLOBAL;
    if (global && problem->batch % node->num_pipelines != 0)
        return err_set(search->err, ERR_INFEASIBLE,
                       "global batch %lld is not a multiple of %d replicas",
                       (long long)problem->batch, node->num_pipelines);
    node->batch = global ? problem->batch / node->num_pipelines : problem->batch;
    if (size != AUTO && node->batch % size != 0)
        return err_set(search->err, ERR_INFEASIBLE,
                       "the batch of a pipeline, %lld, is not a multiple of micro-batches of %lld",
                       (long long)node->batch, (long long)size);
    int wanted = search_microbatches(search, node->batch);
    if (wanted == AUTO)
        wanted = node->num_ranks == 1 ? 4 : 16;
    if (wanted > node->batch)
        wanted = (int)node->batch;
    node->microbatches = microbatches_of(node->batch, wanted);
    return OK;
}

/* Where the frozen prefix runs. The paper keeps it on stage 0, inside the pipeline. */
static enum frozen_placement choose_frozen(const struct search *search, bool cached)
{
    const struct planner_options *options = search->options;
    if (search->problem->num_frozen_layers == 0)
        return FROZEN_NONE;
    if (cached)
        return FROZEN_CACHED;
    if (options->balancer != BALANCER_RELEASED)
        return FROZEN_SPREAD;
    return options->frozen_auto ? FROZEN_FIRST : options->frozen;
}

/* Set node->first_item from the number of items of each stage. */
static enum status set_cut(const struct search *search, const int *count, int stages,
                           struct node *node)
{
    const bool released = search->options->balancer == BALANCER_RELEASED;
    const int nf = search->table.num_frozen_items;
    int at = released ? nf : 0;
    node->first_item = malloc(((size_t)stages + 1) * sizeof *node->first_item);
    if (!node->first_item)
        return err_nomem(search->err);
    node->first_item[0] = frozen_outside(node->frozen) ? nf : 0;
    for (int k = 0; k < stages; k++) {
        at += count[k];
        node->first_item[k + 1] = at;
        if (at > node->first_item[k])
            continue;
        err_set(search->err, ERR_INFEASIBLE,
                "the %s balancer leaves stage %d of %d empty for model '%s' with %d frozen layers",
                released ? "released" : "paper", k, stages, search->problem->setting.model->name,
                search->problem->num_frozen_layers);
        err_hint(search->err, "balancer 'optimal' never leaves a stage empty");
        return ERR_INFEASIBLE;
    }
    if (released && node->frozen == FROZEN_SPREAD)
        node->first_item[0] = 0;
    return OK;
}

/* Fill *node with K, R, M and the cut of the greedy rules. cached: the plan reads the frozen
 * prefix's output from the cache. */
static enum status greedy_node(struct search *search, bool cached, struct node *node)
{
    const struct planner_options *options = search->options;
    struct sizes s = {0};
    int K = 0, stages = 0;
    enum status rc = sizes_init(&s, search);
    THEN(choose_length(search, &s, &K));
    *node =
        (struct node){.level = LEVEL_TIGHT,
                      .num_ranks = K,
                      .schedule = choose_schedule(options),
                      .recompute = options->recompute_auto ? RECOMPUTE_NEVER : options->recompute,
                      .frozen = choose_frozen(search, cached)};
    node->chunks = schedule_chunks(node->schedule, options->chunks);
    stages = (int)bound_min((int64_t)K * node->chunks, INT_MAX);
    THEN(balance_greedy(options->balancer, s.sizes, s.n, search->table.num_frozen_items, stages,
                        s.count, s.load, search->err));
    THEN(choose_devices(search, node));
    THEN(choose_batch(search, node));
    THEN(set_cut(search, s.count, stages, node));
    sizes_clear(&s);
    return rc;
}

/* Judge the candidate and append it to search->judged. */
static enum status judge_node(struct search *search, struct node *node)
{
    struct bound_shape shape = {0};
    int64_t step_ns = 0, unshared_ns = 0;
    enum status rc = search_shape(search, node, &shape);
    if (rc != OK)
        return rc;
    search->candidates++;
    node->bound_ns = bound_of_cut(&shape, node->first_item);
    rc = search_judge_cut(search, node, &shape, node->first_item, 0, &step_ns, &unshared_ns);
    bound_shape_clear(&shape);
    if (rc != OK)
        return rc;
    search->judged[search->num_judged++] =
        (struct judged){.node = *node, .step_ns = step_ns, .unshared_ns = unshared_ns};
    node->first_item = NULL;
    if (step_ns > 0)
        search_note_best(search, search->num_judged - 1);
    return OK;
}

/* For a greedy plan that reads the cache: set node->fill_ns. *exists tells whether the cache can be
 * filled. */
static enum status fill_greedy(const struct search *search, struct node *node, bool *exists)
{
    const size_t places = (size_t)node->num_ranks * (size_t)node->num_pipelines;
    int *device = malloc(places * sizeof *device);
    if (!device)
        return err_nomem(search->err);
    enum status rc = search_map(search, node, device, search->err);
    THEN(search_fill(search, device, node, exists));
    free(device);
    return rc;
}

enum status search_greedy(struct search *search)
{
    const enum cache_use cache = search->problem->cache.use;
    const bool frozen = search->problem->num_frozen_layers > 0;
    enum status rc = OK;
    search->judged = calloc(2, sizeof *search->judged);
    if (!search->judged)
        return err_nomem(search->err);
    search->judged_room = 2;
    for (int cached = 0; cached < 2 && rc == OK; cached++) {
        struct node node = {0};
        bool exists = true;
        if (cached ? !frozen || cache == CACHE_UNUSED : frozen && cache == CACHE_WANTED)
            continue;
        rc = greedy_node(search, cached, &node);
        node.order = cached;
        if (rc == OK && cached)
            rc = fill_greedy(search, &node, &exists);
        if (rc == OK && exists)
            rc = judge_node(search, &node);
        free(node.first_item);
    }
    return rc;
}
