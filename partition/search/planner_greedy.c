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

/* Fill *node with K, R, M and the cut of the greedy rules. cached: the plan reads the frozen
 * prefix's output from the cache. */
static enum status greedy_node(struct search *search, bool cached, struct node *node)
{
    const struct planner_problem *problem = search->problem;
    const struct planner_options *options = search->options;
    const struct model *model = problem->setting.model;
    const bool released = options->balancer == BALANCER_RELEASED;
    const enum balancer_kind balancer = options->balancer;
    const int n = model->num_items, nf = search->table.num_frozen_items;
    enum status rc;
    double *sizes = malloc((size_t)n * sizeof *sizes);
    int *count = malloc((size_t)n * sizeof *count);
    double *load = malloc((size_t)n * sizeof *load);
    if (!sizes || !count || !load) {
        rc = err_nomem(search->err);
        goto out;
    }
    balance_sizes(model, sizes);
    int K = options->num_ranks;
    if (K == AUTO) {
        /* Start with the number of devices of a node. The budget is the largest stage of the
         * unfrozen model. */
        int per_node = problem->setting.cluster->num_devices / problem->setting.cluster->num_nodes;
        K = per_node < n ? per_node : n;
        rc = balance_greedy(balancer, sizes, n, 0, K, count, load, search->err);
        if (rc != OK)
            goto out;
        double budget = balance_max(balancer, sizes, 0, K, load);
        /* In the paper F grows step by step, and each step may halve K. */
        for (int f = 1; f <= problem->num_frozen_layers && rc == OK; f++)
            rc = balance_compress(balancer, sizes, n, model_frozen_items(model, f), budget, &K,
                                  search->err);
        if (rc != OK)
            goto out;
    }
    *node = (struct node){.level = LEVEL_TIGHT, .num_ranks = K, .schedule = SCHEDULE_GPIPE};
    if (!search_allows(options, SCHEDULE_GPIPE))
        for (int kind = 0; kind < SCHEDULE_KIND_COUNT; kind++)
            if (search_allows(options, (enum schedule_kind)kind))
                node->schedule = (enum schedule_kind)kind;
    node->chunks = schedule_chunks(node->schedule, options->chunks);
    const int stages = (int)bound_min((int64_t)K * node->chunks, INT_MAX);
    rc = balance_greedy(balancer, sizes, n, nf, stages, count, load, search->err);
    if (rc != OK)
        goto out;
    node->num_pipelines =
        options->num_replicas != AUTO ? options->num_replicas : replicas_of(problem, K);
    if (node->num_pipelines < 1 || K > problem->setting.cluster->num_devices) {
        rc = err_set(search->err, ERR_INFEASIBLE, "a pipeline of %d does not fit %d devices", K,
                     problem->setting.cluster->num_devices);
        goto out;
    }
    if (node->num_pipelines % layout_expert_span(&problem->layout) != 0) {
        rc = err_set(search->err, ERR_INFEASIBLE, "pipeline.expert %d does not divide %d replicas",
                     problem->layout.expert, node->num_pipelines);
        goto out;
    }
    node->width = node->num_pipelines;
    rc = place_greedy(search, node);
    if (rc != OK)
        goto out;
    node->batch = problem->batch;
    if (problem->batch_mode == BATCH_GLOBAL) {
        node->batch = problem->batch / node->num_pipelines;
        if (problem->batch % node->num_pipelines != 0) {
            rc = err_set(search->err, ERR_INFEASIBLE,
                         "global batch %lld is no multiple of %d replicas",
                         (long long)problem->batch, node->num_pipelines);
            goto out;
        }
    }
    int wanted = search_microbatches(search, node->batch);
    if (options->microbatch_size != AUTO && node->batch % options->microbatch_size != 0) {
        rc = err_set(search->err, ERR_INFEASIBLE,
                     "the batch of a pipeline, %lld, is no multiple of micro-batches of %lld",
                     (long long)node->batch, (long long)options->microbatch_size);
        goto out;
    }
    if (wanted == AUTO)
        wanted = K == 1 ? 4 : 16;
    if (wanted > node->batch)
        wanted = (int)node->batch;
    node->microbatches = microbatches_of(node->batch, wanted);
    node->recompute = options->recompute_auto ? RECOMPUTE_NEVER : options->recompute;
    node->frozen = FROZEN_NONE;
    if (problem->num_frozen_layers > 0) {
        node->frozen = options->frozen_auto ? FROZEN_FIRST : options->frozen;
        if (!released) /* the paper keeps frozen items on stage 0, inside the pipeline */
            node->frozen = FROZEN_SPREAD;
        if (cached)
            node->frozen = FROZEN_CACHED;
    }
    int at = frozen_outside(node->frozen) ? nf : 0;
    node->first_item = malloc(((size_t)stages + 1) * sizeof *node->first_item);
    if (!node->first_item) {
        rc = err_nomem(search->err);
        goto out;
    }
    node->first_item[0] = at;
    at = released ? nf : 0;
    for (int k = 0; k < stages; k++) {
        at += count[k];
        node->first_item[k + 1] = at;
        if (node->first_item[k + 1] <= node->first_item[k]) {
            rc =
                err_set(search->err, ERR_INFEASIBLE,
                        "the %s balancer leaves stage %d of %d empty for model '%s' with %d frozen "
                        "layers",
                        released ? "released" : "paper", k, stages, model->name,
                        problem->num_frozen_layers);
            err_hint(search->err, "balancer 'optimal' never leaves a stage empty");
            goto out;
        }
    }
    if (released && node->frozen == FROZEN_SPREAD)
        node->first_item[0] = 0;
out:
    free(sizes);
    free(count);
    free(load);
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
