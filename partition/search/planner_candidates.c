/* The candidates that job, cluster and batch admit.
 *
 * search_seed() pushes one heap node for each family (K, R, place), with a bound from the least
 * work of a sample. When the search pops a family, search_open() pushes each of its candidates
 * (placement of the frozen forward, schedule, M, recompute) with a cheap bound. Read search_seed()
 * first, then search_open(). */
#include "partition/search/planner_search.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "partition/model/framework.h"
#include "partition/step/cache_rule.h"

/* Longer op lists are not candidates, because judging one would take more than about 0.1 s, unless
 * the job gives K and M. */
#define MAX_COMPUTE_OPS ((int64_t)1 << 21)

/* V-shaped schedules are candidates for pipelines of at most this many ranks, unless the job asks
 * for one schedule or one length. Their bound (peel() in planner_bound_cut.c) would otherwise take
 * most of the search's time. */
#define MAX_V_RANKS 16

int search_microbatches(const struct search *search, int64_t batch)
{
    const struct planner_problem *problem = search->problem;
    const int wanted = search->options->num_microbatches;
    const int64_t size = search->options->microbatch_size;
    if (size != AUTO)
        return batch % size == 0 ? (int)(batch / size) : INT_MAX;
    if (problem->batch_mode != BATCH_GLOBAL)
        return wanted;
    const int64_t num_replicas = problem->batch / batch, rest = wanted % num_replicas;
    if (problem->canonical && rest != 0)
        return INT_MAX; /* the leaves of the canonical tree are whole micro-batches */
    return (int)(wanted / num_replicas) + (rest != 0);
}

/* Set search->counts to planner_microbatches() or to the one fixed count. Kept until batch or
 * num_ranks changes. */
enum status search_counts(struct search *search, int64_t batch, int num_ranks)
{
    const int wanted = search_microbatches(search, batch);
    if (search->counts && search->counts_batch == batch && search->counts_ranks == num_ranks)
        return OK;
    free(search->counts);
    search->counts = NULL;
    search->num_counts = 0;
    search->counts_batch = batch;
    search->counts_ranks = num_ranks;
    if (wanted == AUTO) {
        enum status rc = planner_microbatches(batch, num_ranks, &search->counts,
                                              &search->num_counts, search->err);
        int kept = 0;
        for (int i = 0; i < search->num_counts; i++)
            if (!search->options->equal_microbatches ||
                search->counts[i].last_size == search->counts[i].size)
                search->counts[kept++] = search->counts[i];
        search->num_counts = kept;
        return rc;
    }
    search->counts = malloc(sizeof *search->counts);
    if (!search->counts)
        return err_nomem(search->err);
    if (wanted <= batch)
        search->counts[search->num_counts++] = microbatches_of(batch, wanted);
    return OK;
}

bool search_allows(const struct planner_options *options, enum schedule_kind kind)
{
    return options->schedules >> kind & 1;
}

/* What orders the schedules of a group: the live micro-batches of the first stage, with enough ranks
 * and micro-batches to tell them apart. */
static int64_t held(enum schedule_kind kind)
{
    return schedule_live(kind, 16, 64, schedule_default_chunks(kind), 0);
}

/* Add the group of the allowed schedules of a shape and a form of backward, if there are any. */
static void add_group(const struct planner_options *options, enum schedule_shape shape, bool splits,
                      int chunks, struct kind_group *groups, int *n)
{
    struct kind_group group = {.kind = SCHEDULE_KIND_COUNT, .chunks = chunks};
    for (int i = 0; i < SCHEDULE_SEARCH; i++) {
        const enum schedule_kind kind = (enum schedule_kind)i;
        if (!search_allows(options, kind) || schedule_shape(kind) != shape ||
            schedule_splits(kind) != splits)
            continue;
        if (group.kind == SCHEDULE_KIND_COUNT || held(kind) < held(group.kind))
            group.kind = kind;
        group.others |= 1u << kind;
    }
    if (group.kind == SCHEDULE_KIND_COUNT)
        return;
    group.others &= ~(1u << group.kind);
    groups[(*n)++] = group;
}

int search_kinds(const struct search *search, int num_ranks, int items, struct kind_group *groups)
{
    const struct planner_options *options = search->options;
    int n = 0;
    if (num_ranks <= items) {
        add_group(options, SHAPE_LINE, false, 1, groups, &n);
        if (num_ranks > 1 || n == 0)
            add_group(options, SHAPE_LINE, true, 1, groups, &n);
    }
    if (num_ranks == 1 && n > 0) {
        groups[0].others = 0;
        return n;
    }
    const int from = options->chunks == AUTO ? 2 : options->chunks;
    const int to = options->chunks == AUTO ? 4 : options->chunks;
    const bool few = num_ranks <= MAX_V_RANKS || n == 0 || options->num_ranks != AUTO;
    for (int v = from; v <= to; v++)
        for (int splits = 0; splits < 2 && (int64_t)num_ranks * v <= items; splits++)
            add_group(options, SHAPE_CHUNKS, splits, v, groups, &n);
    for (int splits = 0; splits < 2 && few && 2 * (int64_t)num_ranks <= items; splits++)
        add_group(options, SHAPE_V, splits, 2, groups, &n);
    return n;
}

static int placements_of(const struct search *search, enum frozen_placement *placements)
{
    const struct planner_options *options = search->options;
    const enum cache_use cache = search->problem->cache.use;
    int n = 0;
    if (search->problem->num_frozen_layers == 0) {
        placements[n++] = FROZEN_NONE;
        return n;
    }
    if (cache != CACHE_WANTED && !options->frozen_auto)
        placements[n++] = options->frozen;
    if (cache != CACHE_WANTED && options->frozen_auto) {
        placements[n++] = FROZEN_SPREAD;
        placements[n++] = FROZEN_FIRST;
    }
    if (cache != CACHE_UNUSED)
        placements[n++] = FROZEN_CACHED;
    return n;
}

enum frozen_placement search_first_placement(const struct search *search)
{
    enum frozen_placement placements[3];
    placements_of(search, placements);
    return placements[0];
}

int search_blocks_in_cut(const struct search *search, enum frozen_placement placement)
{
    return search->num_blocks -
           (frozen_outside(placement) ? search->block_of[search->table.num_frozen_items] : 0);
}

/* A bound from the work of all micro-batches, shared by K devices. O(1) if the devices are equal. */
static enum status work_bound(struct search *search, const struct node *node, int64_t *bound_ns)
{
    const int n = search->problem->setting.model->num_items;
    const int nf = search->table.num_frozen_items;
    const enum bound_again again =
                               bound_again_of(node->recompute, recompute_by_stage(node->recompute)),
                           again_last =
                               bound_again_of(node->recompute, recompute_every(node->recompute));
    const int from = frozen_outside(node->frozen) ? nf : 0;
    if (search->table.num_types > 1) {
        double mixed;
        const enum status rc =
            search_mixed_bound(search, &node->microbatches, again, again_last, from, &mixed);
        *bound_ns = rc == OK ? (int64_t)fmin(floor(mixed), (double)(INT64_MAX / 8)) : 0;
        return rc;
    }
    const struct bound_times *full, *last;
    enum status rc =
        bound_times_of(&search->table, 0, node->microbatches.size, again, 0, &full, search->err);
    THEN(bound_times_of(&search->table, 0, node->microbatches.last_size, again_last, 0, &last,
                        search->err));
    if (rc != OK)
        return rc;
    double total = ((double)bound_once_ns(full, from, n) * (node->microbatches.count - 1) +
                    (double)bound_once_ns(last, from, n)) /
                   node->num_ranks;
    *bound_ns = (int64_t)fmin(floor(total * (1 - 1e-12)), (double)(INT64_MAX / 8));
    return OK;
}

enum status search_fill(const struct search *search, const int *device, struct node *node,
                        bool *exists)
{
    const struct planner_problem *problem = search->problem;
    const struct planner_cache *cache = &problem->cache;
    const struct microbatches *mb = &node->microbatches;
    int prefix = search->table.num_frozen_items, where = device[0];
    const struct plan plan = {
        .microbatches = *mb, .first_item = &prefix, .device = &where, .frozen = FROZEN_CACHED};
    int64_t extra;
    struct err why = {0};
    node->fill_ns = 0;
    *exists = true;
    if (cache->filled)
        return OK;
    const enum status rc = cache_fill_extra(&problem->setting, &plan, cache->level, &extra, &why);
    *exists = rc == OK;
    if (rc != OK && rc != ERR_INFEASIBLE && rc != ERR_INPUT)
        return err_copy(search->err, &why);
    if (rc == OK)
        node->fill_ns =
            (double)extra * cache_fill_weight(cache->epochs, cache->views,
                                              cache_share(cache->room, mb->size, cache->whole));
    return OK;
}

/* Set fills[i] to the node's fill_ns for search->counts[i] in a family that reads a cache.
 * Negative: no plan with that count can fill the cache. */
static enum status fills_of(const struct search *search, const struct node *family, double *fills)
{
    int *device =
        malloc((size_t)family->num_ranks * (size_t)family->num_pipelines * sizeof *device);
    if (!device)
        return err_nomem(search->err);
    enum status rc = search_map(search, family, device, search->err);
    for (int i = 0; i < search->num_counts && rc == OK; i++) {
        struct node node = *family;
        const struct microbatches *mb = &node.microbatches;
        bool exists = false;
        node.microbatches = search->counts[i];
        /* If M is AUTO, only counts with full micro-batches are tried, because smaller ones are not
         * cached. */
        if (search->options->num_microbatches != AUTO || mb->last_size == mb->size)
            rc = search_fill(search, device, &node, &exists);
        fills[i] = exists ? node.fill_ns : -1;
    }
    free(device);
    return rc;
}

/* Push a candidate with its cheap bound, unless the bound shows that it cannot win. */
static enum status open_candidate(struct search *search, struct node node)
{
    enum status rc = work_bound(search, &node, &node.bound_ns);
    if (rc != OK)
        return rc;
    if (node.bound_ns < 1)
        node.bound_ns = 1;
    node.level = LEVEL_CHEAP;
    node.key = node_rate(&node, node.bound_ns);
    struct planner_length *length = search_length(search, &node);
    if (node.bound_ns <= search_limit(search, &node))
        return search_push(search, node);
    if (search->options->judge.step_ns) { /* it may find the best plan slower */
        if (node.key >
            (search->keep_rate > 0 ? search->keep_rate : KEEP_SHARE * search_beat(search)))
            return search_push(search, node);
        search->dropped_rate = fmax(search->dropped_rate, node.key);
    }
    length->bound_per_s = fmax(length->bound_per_s, node.key);
    length->rest_per_s = fmax(length->rest_per_s, node.key);
    return OK;
}

/* Whether a candidate may have this recompute mode. A mode that equals another one is left out when
 * all are tried. */
bool search_allows_mode(const struct search *search, const struct node *node)
{
    const struct planner_options *options = search->options;
    if (recompute_whole_backward(node->recompute) && schedule_splits(node->schedule))
        return false;
    if (!options->recompute_auto)
        return node->recompute == options->recompute;
    if (options->target && !options->target->given &&
        !(options->target->recomputes >> node->recompute & 1))
        return false;
    switch (node->recompute) {
    case RECOMPUTE_STAGE: /* never faster than RECOMPUTE_STAGE_EARLY, which frameworks lack */
        return options->recompute_inside;
    case RECOMPUTE_STAGE_EARLY:
        return !options->recompute_inside;
    case RECOMPUTE_EXCEPT_LAST: /* with one micro-batch it equals RECOMPUTE_NEVER */
        return !options->recompute_inside && node->microbatches.count > 1;
    case RECOMPUTE_SELECTIVE:
        return options->recompute_inside && search->table.has_part[RERUN_CORE];
    case RECOMPUTE_NORMS:
    case RECOMPUTE_OP:
        return options->recompute_inside && search->limited &&
               search->table.has_part[recompute_parts(node->recompute)] &&
               framework_reruns(search->problem->setting.model->framework,
                                recompute_parts(node->recompute));
    case RECOMPUTE_LAYER:
        return options->recompute_inside && search->limited;
    default:
        return true;
    }
}

/* Whether options->target runs this number of micro-batches and replicas. */
bool search_allows_count(const struct search *search, const struct node *node)
{
    const struct plan_target *target = search->options->target;
    return !target || target->given ||
           !((target->filled && node->microbatches.count < node->num_ranks) ||
             (target->whole_rounds && node->chunks > 1 &&
              node->microbatches.count % node->num_ranks != 0) ||
             (target->replicas_in_shard && node->num_pipelines > 1 &&
              search->problem->layout.shard < SHARD_GRADIENTS));
}

static bool counts_given(const struct search *search)
{
    const struct planner_options *options = search->options;
    return options->num_ranks != AUTO &&
           (options->num_microbatches != AUTO || options->microbatch_size != AUTO);
}

/* Open all candidates of a family with one placement of the frozen forward. fills[i] belongs to
 * search->counts[i]: the node's fill_ns, 0 if nothing is to be filled, negative if no such plan
 * exists. */
static enum status open_placement(struct search *search, const struct node *family,
                                  const double *fills, bool count_only)
{
    const int num_counts = search->num_counts;
    struct kind_group groups[KIND_GROUPS];
    enum status rc = OK;
    const int num_groups = search_kinds(search, family->num_ranks,
                                        search_blocks_in_cut(search, family->frozen), groups);
    for (int i = 0; i < num_groups * num_counts * RECOMPUTE_MODE_COUNT && rc == OK; i++) {
        const struct kind_group *group = &groups[i / (num_counts * RECOMPUTE_MODE_COUNT)];
        const int count = i / RECOMPUTE_MODE_COUNT % num_counts;
        struct node node = *family;
        node.microbatches = search->counts[count];
        node.fill_ns = fills[count];
        node.schedule = group->kind;
        node.others = group->others;
        node.chunks = group->chunks;
        node.recompute = (enum recompute_mode)(i % RECOMPUTE_MODE_COUNT);
        if (!search_allows_mode(search, &node) || !search_allows_count(search, &node))
            continue;
        const int64_t stages = (int64_t)family->num_ranks * group->chunks;
        if ((stages * node.microbatches.count > MAX_COMPUTE_OPS / 3 && !counts_given(search)) ||
            node.fill_ns < 0)
            continue;
        if (count_only)
            search->candidates += 1 + __builtin_popcount(group->others);
        else
            rc = open_candidate(search, node);
    }
    return rc;
}

enum status search_open(struct search *search, const struct node *family, bool count_only)
{
    enum status rc = search_counts(search, family->batch, family->num_ranks);
    if (rc != OK)
        return rc;
    if (!count_only && search->table.num_types > 1)
        rc = search_mix(search, family);
    if (rc != OK)
        return rc;
    enum frozen_placement placements[3];
    const int num_placements = placements_of(search, placements);
    double *fills = calloc((size_t)search->num_counts + 1, sizeof *fills);
    if (!fills)
        return err_nomem(search->err);
    for (int p = 0; p < num_placements && rc == OK; p++) {
        struct node node = *family;
        node.frozen = placements[p];
        if (node.frozen == FROZEN_CACHED)
            rc = fills_of(search, family, fills);
        THEN(open_placement(search, &node, fills, count_only));
    }
    free(fills);
    return rc;
}

/* The least work of a batch over all micro-batch counts, each item on the fastest device type. No
 * plan has less. */
static enum status least_work(struct search *search, int num_ranks, int64_t batch, double *work_ns)
{
    const struct planner_problem *problem = search->problem;
    const int n = problem->setting.model->num_items, types = search->table.num_types;
    const struct bound_times **times = malloc(2 * (size_t)types * sizeof *times);
    enum status rc = times ? search_counts(search, batch, num_ranks) : err_nomem(search->err);
    /* Frozen items may not run at all (cached). */
    const int from = problem->num_frozen_layers > 0 ? search->table.num_frozen_items : 0;
    *work_ns = INFINITY;
    for (int i = 0; rc == OK && i < search->num_counts; i++) {
        const struct microbatches *mb = &search->counts[i];
        for (int t = 0; t < types && rc == OK; t++) {
            rc = bound_times_of(&search->table, t, mb->size, AGAIN_LAYER, 0, &times[2 * t],
                                search->err);
            THEN(bound_times_of(&search->table, t, mb->last_size, AGAIN_LAYER, 0, &times[2 * t + 1],
                                search->err));
        }
        double total = 0;
        if (rc == OK && types == 1)
            total = (double)bound_once_ns(times[0], from, n) * (mb->count - 1) +
                    (double)bound_once_ns(times[1], from, n);
        for (int item = from; item < n && types > 1 && rc == OK; item++) {
            double once = INFINITY;
            for (int t = 0; t < types; t++) {
                const int64_t full = bound_once_ns(times[2 * t], item, item + 1),
                              last = bound_once_ns(times[2 * t + 1], item, item + 1);
                once = fmin(once, (double)full * (mb->count - 1) + (double)last);
            }
            total += once;
        }
        *work_ns = fmin(*work_ns, total);
    }
    free(times);
    return rc;
}

/* The least of search_mixed_bound() over all micro-batch counts of a family; 0: no bound. */
static enum status least_mixed(struct search *search, const struct node *family, double *bound_ns)
{
    const int from = search->problem->num_frozen_layers > 0 ? search->table.num_frozen_items : 0;
    *bound_ns = 0;
    if (search->table.num_types == 1)
        return OK;
    enum status rc = search_mix(search, family);
    double least = INFINITY;
    for (int i = 0; i < search->num_counts && rc == OK; i++) {
        double bound = 0;
        rc = search_mixed_bound(search, &search->counts[i], AGAIN_LAYER, AGAIN_LAYER, from, &bound);
        least = fmin(least, bound);
    }
    if (isfinite(least))
        *bound_ns = least;
    return rc;
}

/* Whether the weights and training state fit num_ranks devices of the largest memory in the
 * cluster. */
bool search_weights_fit(const struct search *search, int num_ranks)
{
    const struct planner_problem *problem = search->problem;
    const int first = problem->num_frozen_layers > 0 ? search->table.num_frozen_items : 0;
    return bound_weights_fit(&search->table, num_ranks, search->num_groups / num_ranks,
                             search->most_bytes, first);
}

bool search_allows_replicas(const struct search *search, int num_ranks, int num_pipelines,
                            struct node *family)
{
    const struct planner_problem *problem = search->problem;
    const struct planner_options *options = search->options;
    const int R = num_pipelines, C = layout_context(&problem->layout), width = R / C;
    const int group = problem->layout.shard_group;
    const bool global = problem->batch_mode == BATCH_GLOBAL;
    const bool alone = problem->layout.shard == SHARD_WEIGHTS &&
                       framework_shards_alone(problem->setting.model->framework);
    *family = (struct node){.level = LEVEL_FAMILY,
                            .num_ranks = num_ranks,
                            .num_pipelines = R,
                            .width = width,
                            .batch = global && width > 0 ? problem->batch / width : problem->batch};
    return R % C == 0 && (options->num_replicas == AUTO || options->num_replicas == width) &&
           R % layout_expert_span(&problem->layout) == 0 &&
           (group == 0 || (R % group == 0 && R != group)) &&
           /* of one replica there is nothing to divide, but hooks may run */
           (problem->layout.shard == SHARD_NONE || R > 1 || alone) &&
           (!global || problem->batch % width == 0) &&
           (!problem->canonical || (R & (R - 1)) == 0) &&
           (problem->most_samples == 0 || global || width == 1 ||
            problem->batch <= problem->most_samples / width);
}

/* Lower *per_sample_ns to the least work of a sample over the micro-batches of a pipeline's batch. */
static enum status least_of_batch(struct search *search, int64_t batch, double *per_sample_ns)
{
    enum status rc = OK;
    /* The counts of K reach to 6 K, so those of 1, 6, 36, ... have all. */
    for (int64_t K = 1; K <= mul_saturated(6, search->num_lengths) && rc == OK; K *= 6) {
        double work = INFINITY;
        rc = least_work(search, (int)K, batch, &work);
        *per_sample_ns = fmin(*per_sample_ns, work / (double)batch);
    }
    return rc;
}

enum status search_ceiling(struct search *search, double *rate)
{
    const struct planner_problem *problem = search->problem;
    const int C = layout_context(&problem->layout), most = search->num_groups / C;
    double per_sample_ns = INFINITY;
    enum status rc = OK;
    *rate = 0;
    if (problem->batch_mode != BATCH_GLOBAL)
        rc = least_of_batch(search, problem->batch, &per_sample_ns);
    for (int width = 1; problem->batch_mode == BATCH_GLOBAL && width <= most && rc == OK; width++)
        if (problem->batch % width == 0)
            rc = least_of_batch(search, problem->batch / width, &per_sample_ns);
    if (rc == OK && isfinite(per_sample_ns))
        *rate = most * 1e9 / fmax(per_sample_ns * (1 - 1e-9), 1e-9);
    return rc;
}

enum status search_seed(struct search *search)
{
    const struct planner_problem *problem = search->problem;
    const struct planner_options *options = search->options;
    const int devices = search->num_groups;
    for (int K = 1; K <= search->num_lengths; K++) {
        if (options->num_ranks != AUTO && options->num_ranks != K)
            continue;
        double work = -1;
        int64_t work_batch = -1;
        if (!search_weights_fit(search, K)) {
            search->lengths[K - 1].verdict = PLANNER_MEMORY;
            continue;
        }
        const int C = layout_context(&problem->layout);
        for (int R = devices / K / C * C; R >= 1; R -= C) {
            struct node node;
            if (!search_allows_replicas(search, K, R, &node))
                continue;
            if (!search_goes_on(search))
                return search_ceiling(search, &search->unseen_rate);
            enum status rc = OK;
            if (work_batch != node.batch) {
                rc = least_work(search, K, node.batch, &work);
                work_batch = node.batch;
            }
            if (rc != OK)
                return rc;
            if (!isfinite(work))
                continue; /* no micro-batch count exists */
            double bound = floor(work / K * (1 - 1e-9));
            const int *place;
            int num_places;
            int64_t of_place = 0;
            bool any = false;
            rc = rank_places_of(search->places, K, R, &place, &num_places, search->err);
            for (int i = 0; i < num_places && rc == OK; i++) {
                const int64_t before = search->candidates;
                double mixed;
                node.place = place[i];
                rc = least_mixed(search, &node, &mixed);
                node.key = node_rate(&node, 1) / fmax(fmax(bound, floor(mixed)), 1);
                if (rc == OK && i > 0 && problem->cache.use == CACHE_UNUSED)
                    search->candidates += of_place; /* they do not depend on the place */
                else
                    THEN(search_open(search, &node, true));
                of_place = search->candidates - before;
                if (rc == OK && of_place > 0)
                    rc = search_push(search, node);
                any = any || of_place > 0;
            }
            if (rc != OK)
                return rc;
            if (any && problem->most_replicas)
                break;
        }
    }
    return OK;
}
