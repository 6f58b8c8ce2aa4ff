/* Best-first search (A*): a heap holds families of candidates (K, R, rank map), candidates with the
 * cheap bound of planner_bound.h, and candidates with their tight bound and its cut, all keyed by
 * the throughput that the bound still allows. The top is opened, tightened or judged by
 * schedule_time(). When the top cannot beat the best judged plan, nothing below it can: the search
 * is over, and exact over everything but the cut. Cuts are then improved for the candidates whose
 * bound still allows it.
 */
#include "partition/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/autodp.h"
#include "partition/balance.h"
#include "partition/cut.h"
#include "partition/planner_bound.h"
#include "partition/units.h"
#include "partition/workload.h"

/* Longer op lists are no candidates: some 0.1 s to judge one. */
#define MAX_COMPUTE_OPS ((int64_t)1 << 21)

/* Several chunks a rank are candidates for pipelines up to this long, unless the job asks for one
 * schedule or one length: their bounds are weak (B5), and each costs a simulation of its lists. */
#define MAX_CHUNKED_RANKS 16

/* Cuts of a candidate are all tried where there are no more than this many. */
#define FEW_CUTS 128

enum level { LEVEL_FAMILY, LEVEL_CHEAP, LEVEL_AVERAGE, LEVEL_TIGHT };

struct node {
    double key; /* samples per second that the bound allows */
    int64_t order;
    enum level level;
    int num_ranks, num_replicas, chunks;
    enum rank_map map;
    int64_t batch;
    struct microbatches microbatches;
    enum schedule_kind schedule;
    enum recompute_mode recompute;
    enum frozen_placement frozen;
    int64_t bound_ns;
    int *first_item; /* owned; LEVEL_TIGHT */
};

struct judged {
    struct node node; /* owns first_item: the best cut so far */
    int64_t step_ns;  /* 0: does not fit the memory */
};

/* What bound_family_init() found, kept while the search goes from family to family and back. */
#define FAMILY_SLOTS 1024
struct family_slot {
    int num_ranks, num_replicas;
    enum rank_map map;
    struct bound_family family; /* owned */
};

struct search {
    const struct planner_problem *problem;
    const struct planner_options *options;
    struct bound_table table;
    struct node *heap; /* owned; nodes own their cuts */
    int64_t heap_size, heap_room, order;
    struct judged *judged; /* owned */
    int num_judged, judged_room;
    struct planner_length *lengths; /* owned, by K - 1 */
    int num_lengths;
    int best; /* index into judged; -1: none */
    int64_t candidates, evaluated;
    int *cut;                     /* owned: scratch, num_items + 1 */
    struct family_slot *families; /* owned, FAMILY_SLOTS: a direct-mapped cache */
    struct microbatches *counts;  /* owned: planner_microbatches() of the last (batch, K) */
    int num_counts, counts_ranks;
    int64_t counts_batch;
    struct err *err;
};

static void free_nodes(struct search *search)
{
    for (int64_t i = 0; i < search->heap_size; i++)
        free(search->heap[i].first_item);
    free(search->heap);
    for (int i = 0; i < search->num_judged; i++)
        free(search->judged[i].node.first_item);
    free(search->judged);
    free(search->lengths);
    free(search->cut);
    free(search->counts);
    for (int i = 0; search->families && i < FAMILY_SLOTS; i++)
        bound_family_clear(&search->families[i].family);
    free(search->families);
    bound_table_clear(&search->table);
}

/* --- the heap -----------------------------------------------------------------------------------
 */

static bool before(const struct node *a, const struct node *b)
{
    return a->key != b->key ? a->key > b->key : a->order < b->order;
}

/* Takes over node->first_item, also on failure. */
static enum status push(struct search *search, struct node node)
{
    if (search->heap_size == search->heap_room) {
        int64_t room = search->heap_room ? 2 * search->heap_room : 256;
        struct node *grown = realloc(search->heap, (size_t)room * sizeof *grown);
        if (!grown) {
            free(node.first_item);
            return err_nomem(search->err);
        }
        search->heap = grown;
        search->heap_room = room;
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

/* --- candidates ---------------------------------------------------------------------------------
 */

static double rate_of(const struct node *node, int64_t step_ns)
{
    return (double)node->num_replicas * (double)node->batch / (double)step_ns * 1e9;
}

/* The longest step with which node still beats the best plan; INT64_MAX / 4 when there is none. */
static int64_t limit_for(const struct search *search, const struct node *node)
{
    if (search->best < 0)
        return INT64_MAX / 4;
    const struct judged *best = &search->judged[search->best];
    unsigned __int128 top = (unsigned __int128)best->step_ns *
                            ((unsigned __int128)node->num_replicas * (uint64_t)node->batch);
    unsigned __int128 bottom =
        (unsigned __int128)best->node.num_replicas * (uint64_t)best->node.batch;
    unsigned __int128 limit = (top + bottom - 1) / bottom - 1; /* strictly better */
    return limit > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)limit;
}

int optimizer_bytes_per_param(enum optimizer_kind kind, double momentum)
{
    if (kind == OPTIMIZER_SGD)
        return momentum > 0 ? 4 : 0;
    return 8;
}

static int compare_counts(const void *left, const void *right)
{
    const struct microbatches *a = left, *b = right;
    return (a->count > b->count) - (a->count < b->count);
}

enum status planner_microbatches(int64_t batch, int num_ranks, struct microbatches **list, int *num,
                                 struct err *err)
{
    int64_t room = 0;
    if (batch < 1 || batch > INT32_MAX || num_ranks < 1 || num_ranks > INT32_MAX / 8)
        return err_set(err, ERR_INPUT, "batch must be 1..%d, got %lld", INT32_MAX,
                       (long long)batch);
    for (int64_t d = 1; d * d <= batch; d++)
        room += batch % d == 0 ? 2 : 0;
    int64_t last = 6 * (int64_t)num_ranks < batch ? 6 * (int64_t)num_ranks : batch;
    if (num_ranks <= last)
        room += last - num_ranks + 1;
    struct microbatches *got = malloc((size_t)room * sizeof *got);
    if (!got)
        return err_nomem(err);
    int count = 0;
    for (int64_t m = num_ranks; m <= last; m++)
        got[count++] = microbatches_of(batch, (int)m);
    for (int64_t d = 1; d * d <= batch; d++)
        if (batch % d == 0) {
            got[count++] = microbatches_of(batch, (int)d);
            got[count++] = microbatches_of(batch, (int)(batch / d));
        }
    qsort(got, (size_t)count, sizeof *got, compare_counts);
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (i == 0 || got[i].count != got[kept - 1].count)
            got[kept++] = got[i];
    *list = got;
    *num = kept;
    return OK;
}

/* A plan without its cut; device is the caller's storage. */
static struct plan bare_plan(const struct search *search, const struct node *node, int *device)
{
    const struct planner_problem *problem = search->problem;
    return (struct plan){.num_ranks = node->num_ranks,
                         .chunks = node->chunks,
                         .num_replicas = node->num_replicas,
                         .batch = node->batch,
                         .microbatches = node->microbatches,
                         .schedule = node->schedule,
                         .num_frozen_layers = problem->num_frozen_layers,
                         .frozen = node->frozen,
                         .cache_write = search->options->cache_write &&
                                        problem->num_frozen_layers > 0 &&
                                        node->frozen != FROZEN_CACHED,
                         .recompute = node->recompute,
                         .num_stages = node->num_ranks * node->chunks,
                         .device = device,
                         .bucket_bytes = problem->bucket_bytes,
                         .clip = problem->clip,
                         .optim_bytes_per_param = problem->optim_bytes_per_param};
}

static struct planner_length *length_of(struct search *search, const struct node *node)
{
    return &search->lengths[node->num_ranks - 1];
}

/* Lower one plan, time it, weigh it. *step_ns is 0 when it does not fit; over[k] (may be NULL) is
 * by how many bytes rank k is too large. */
static enum status judge_cut(struct search *search, const struct node *node, const int *first_item,
                             int64_t *step_ns, int64_t *over)
{
    const struct planner_problem *problem = search->problem;
    enum status rc;
    struct plan plan = {0};
    struct workload workload = {0};
    struct schedule full = {0};
    struct step_time time = {0};
    struct err why = {0};
    int num_stages = node->num_ranks * node->chunks;
    *step_ns = 0;
    int *device = malloc((size_t)node->num_ranks * (size_t)node->num_replicas * sizeof *device);
    int *cut = malloc(((size_t)num_stages + 1) * sizeof *cut);
    int64_t *memory = malloc((size_t)node->num_ranks * sizeof *memory);
    if (!device || !cut || !memory) {
        rc = err_nomem(search->err);
        goto out;
    }
    memcpy(cut, first_item, ((size_t)num_stages + 1) * sizeof *cut);
    rc = autodp_map(problem->cluster, node->map, node->num_ranks, node->num_replicas, device,
                    search->err);
    if (rc != OK)
        goto out;
    plan = bare_plan(search, node, device);
    plan.first_item = cut;
    search->evaluated++;
    rc = plan_lower_unchecked(problem->model, problem->cluster, problem->cost, &plan, &workload,
                              &full, &why);
    if (rc == ERR_INFEASIBLE) { /* the schedule does not exist for these counts */
        rc = OK;
        goto out;
    }
    if (rc == OK)
        rc = schedule_memory(&full, &workload, &plan, memory, &why);
    if (rc != OK)
        goto out;
    bool fits = true;
    int64_t worst = 0;
    for (int k = 0; k < node->num_ranks; k++) {
        int64_t limit = INT64_MAX;
        for (int r = 0; r < node->num_replicas; r++) {
            int64_t mem = problem->cluster->devices[device[r * node->num_ranks + k]].mem_bytes;
            limit = mem < limit ? mem : limit;
        }
        if (over)
            over[k] = memory[k] > limit ? memory[k] - limit : 0;
        fits &= memory[k] <= limit;
        worst = memory[k] > worst ? memory[k] : worst;
    }
    if (!fits) {
        struct planner_length *length = length_of(search, node);
        if (length->need_bytes == 0 || worst < length->need_bytes)
            length->need_bytes = worst;
        goto out;
    }
    rc = schedule_time(&full, &workload, problem->cluster, problem->cost, &plan, &time, &why);
    if (rc == OK)
        *step_ns = time.step_ns > 0 ? time.step_ns : 1;
out:
    if (rc != OK)
        err_set(search->err, rc, "%s", why.msg);
    step_time_clear(&time);
    schedule_clear(&full);
    workload_clear(&workload);
    free(memory);
    free(cut);
    free(device);
    return rc;
}

static void note_best(struct search *search, int index)
{
    const struct judged *judged = &search->judged[index];
    struct planner_length *length = length_of(search, &judged->node);
    double rate = rate_of(&judged->node, judged->step_ns);
    if (rate > length->samples_per_s)
        length->samples_per_s = rate;
    if (search->best < 0 || judged->step_ns <= limit_for(search, &judged->node))
        search->best = index;
}

static enum status family_of(struct search *search, const struct node *node,
                             const struct bound_family **family)
{
    const int K = node->num_ranks, R = node->num_replicas;
    struct family_slot *slot =
        &search->families[((unsigned)K * 61u + (unsigned)R * 2u + (unsigned)node->map) %
                          FAMILY_SLOTS];
    *family = &slot->family;
    if (slot->family.ranks && slot->num_ranks == K && slot->num_replicas == R &&
        slot->map == node->map)
        return OK;
    bound_family_clear(&slot->family);
    int *device = malloc((size_t)K * (size_t)R * sizeof *device);
    if (!device)
        return err_nomem(search->err);
    enum status rc = autodp_map(search->problem->cluster, node->map, K, R, device, search->err);
    if (rc == OK)
        rc = bound_family_init(&slot->family, &search->table, K, R, device, search->err);
    slot->num_ranks = K;
    slot->num_replicas = R;
    slot->map = node->map;
    free(device);
    return rc;
}

static enum status shape_of(struct search *search, const struct node *node,
                            struct bound_shape *shape)
{
    const struct bound_family *family;
    enum status rc = family_of(search, node, &family);
    struct plan plan = bare_plan(search, node, NULL);
    if (rc == OK)
        rc = bound_shape_init(shape, &search->table, family, &plan, search->err);
    return rc;
}

/* planner_microbatches() or the one fixed count, kept from call to call. */
static enum status counts_of(struct search *search, int64_t batch, int num_ranks)
{
    const int wanted = search->options->num_microbatches;
    if (search->counts && search->counts_batch == batch && search->counts_ranks == num_ranks)
        return OK;
    free(search->counts);
    search->counts = NULL;
    search->num_counts = 0;
    search->counts_batch = batch;
    search->counts_ranks = num_ranks;
    if (wanted == AUTO)
        return planner_microbatches(batch, num_ranks, &search->counts, &search->num_counts,
                                    search->err);
    search->counts = malloc(sizeof *search->counts);
    if (!search->counts)
        return err_nomem(search->err);
    if (wanted <= batch)
        search->counts[search->num_counts++] = microbatches_of(batch, wanted);
    return OK;
}

/* Judge a candidate at its starting cut; where its memory overflows, at cuts that take items off
 * the ranks that overflowed. */
static enum status judge(struct search *search, struct node *node)
{
    struct bound_shape shape = {0};
    enum status rc = OK;
    int64_t step_ns = 0;
    int64_t *over = calloc((size_t)node->num_ranks, sizeof *over);
    if (!over)
        return err_nomem(search->err);
    rc = judge_cut(search, node, node->first_item, &step_ns, over);
    for (int round = 0; rc == OK && step_ns == 0 && round < 4; round++) {
        bool any = false;
        for (int k = 0; k < node->num_ranks; k++)
            any |= over[k] > 0;
        if (!any || search->options->by_params)
            break;
        if (!shape.stages)
            rc = shape_of(search, node, &shape);
        if (rc != OK)
            break;
        for (int s = 0; s < shape.num_stages; s++)
            if (shape.stages[s].mem_bytes != INT64_MAX)
                shape.stages[s].mem_bytes -= over[shape.stages[s].rank] / shape.chunks;
        int64_t bound;
        if (!bound_solve(&shape, limit_for(search, node), &bound, node->first_item, NULL))
            break;
        rc = judge_cut(search, node, node->first_item, &step_ns, over);
    }
    bound_shape_clear(&shape);
    free(over);
    if (rc != OK)
        return rc;
    if (search->num_judged == search->judged_room) {
        int room = search->judged_room ? 2 * search->judged_room : 64;
        struct judged *grown = realloc(search->judged, (size_t)room * sizeof *grown);
        if (!grown)
            return err_nomem(search->err);
        search->judged = grown;
        search->judged_room = room;
    }
    search->judged[search->num_judged] = (struct judged){.node = *node, .step_ns = step_ns};
    node->first_item = NULL;
    search->num_judged++;
    if (step_ns > 0)
        note_best(search, search->num_judged - 1);
    return OK;
}

/* From the cheap bound to the average of its shape. */
static enum status average(struct search *search, struct node node)
{
    struct bound_shape shape = {0};
    enum status rc = shape_of(search, &node, &shape);
    if (rc != OK)
        return rc;
    int64_t bound = bound_average_ns(&shape);
    bound_shape_clear(&shape);
    if (bound > node.bound_ns)
        node.bound_ns = bound;
    node.level = LEVEL_AVERAGE;
    node.key = rate_of(&node, node.bound_ns);
    return push(search, node);
}

/* From the average to the tight bound, with its cut; drops what cannot win. */
static enum status tighten(struct search *search, struct node node)
{
    const struct model *model = search->problem->model;
    struct bound_shape shape = {0};
    enum status rc = shape_of(search, &node, &shape);
    if (rc != OK)
        return rc;
    int64_t limit = limit_for(search, &node);
    struct planner_length *length = length_of(search, &node);
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
        node.bound_ns = bound_of_cut(&shape, search->cut);
        alive = node.bound_ns <= limit;
    } else {
        alive = bound_solve(&shape, limit, &node.bound_ns, search->cut, &memory_only);
    }
    if (alive) {
        size_t size = ((size_t)shape.num_stages + 1) * sizeof *node.first_item;
        node.first_item = malloc(size);
        if (!node.first_item) {
            rc = err_nomem(search->err);
            goto out;
        }
        memcpy(node.first_item, search->cut, size);
        node.level = LEVEL_TIGHT;
        node.key = rate_of(&node, node.bound_ns);
        if (node.key > length->bound_per_s)
            length->bound_per_s = node.key;
        rc = push(search, node);
    } else if (!memory_only) {
        /* Its bound is the limit at least. */
        double rate = rate_of(&node, limit);
        if (rate > length->bound_per_s)
            length->bound_per_s = rate;
    }
out:
    bound_shape_clear(&shape);
    return rc;
}

/* --- what exists --------------------------------------------------------------------------------
 */

static bool allowed(const struct planner_options *options, enum schedule_kind kind)
{
    return options->schedules >> kind & 1;
}

/* Schedules of a pipeline length: on one device all one-chunk schedules run the same ops, so that
 * only one is taken. */
static int schedules_of(const struct search *search, int num_ranks, int items,
                        enum schedule_kind *kinds, int *chunks)
{
    const struct planner_options *options = search->options;
    static const enum schedule_kind plain[] = {SCHEDULE_1F1B, SCHEDULE_GPIPE, SCHEDULE_ZB_H1,
                                               SCHEDULE_ZB_H2};
    int n = 0;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (allowed(options, plain[i]) && num_ranks <= items && !(num_ranks == 1 && n > 0)) {
            kinds[n] = plain[i];
            chunks[n++] = 1;
        }
    const bool few = num_ranks <= MAX_CHUNKED_RANKS || options->num_ranks != AUTO || n == 0;
    const bool others = (num_ranks > 1 || n == 0) && few;
    if (others && allowed(options, SCHEDULE_INTERLEAVED)) {
        int from = options->chunks == AUTO ? 2 : options->chunks;
        int to = options->chunks == AUTO ? 4 : options->chunks;
        for (int v = from; v <= to; v++)
            if ((int64_t)num_ranks * v <= items) {
                kinds[n] = SCHEDULE_INTERLEAVED;
                chunks[n++] = v;
            }
    }
    static const enum schedule_kind v_shaped[] = {SCHEDULE_ZB_V, SCHEDULE_DUALPIPE_V};
    for (size_t i = 0; i < sizeof v_shaped / sizeof *v_shaped; i++)
        if (others && allowed(options, v_shaped[i]) && 2 * (int64_t)num_ranks <= items) {
            kinds[n] = v_shaped[i];
            chunks[n++] = 2;
        }
    return n;
}

enum { MAX_KINDS = 4 + 3 + 2 };

static int placements_of(const struct search *search, enum frozen_placement *placements)
{
    const struct planner_options *options = search->options;
    int n = 0;
    if (search->problem->num_frozen_layers == 0) {
        placements[n++] = FROZEN_NONE;
    } else if (!options->frozen_auto) {
        placements[n++] = options->frozen;
    } else {
        placements[n++] = FROZEN_SPREAD;
        placements[n++] = FROZEN_FIRST;
        if (options->cache_filled)
            placements[n++] = FROZEN_CACHED;
    }
    return n;
}

static int items_in_cut(const struct search *search, enum frozen_placement placement)
{
    bool outside = placement == FROZEN_FIRST || placement == FROZEN_CACHED;
    return search->problem->model->num_items - (outside ? search->table.num_frozen_items : 0);
}

/* Work of all micro-batches over K devices, each item where it is fastest: O(1) on equal devices.
 */
static enum status work_bound(struct search *search, const struct node *node, int64_t *bound_ns)
{
    const int n = search->problem->model->num_items;
    const int nf = search->table.num_frozen_items;
    const bool again = node->recompute == RECOMPUTE_ALWAYS;
    *bound_ns = 0;
    if (search->table.num_types > 1)
        return OK;
    const struct bound_times *full, *last;
    enum status rc = bound_times_of(&search->table, 0, node->microbatches.size, &full, search->err);
    if (rc == OK)
        rc = bound_times_of(&search->table, 0, node->microbatches.last_size, &last, search->err);
    if (rc != OK)
        return rc;
    const int from = node->frozen == FROZEN_FIRST || node->frozen == FROZEN_CACHED ? nf : 0;
    double once =
        (double)(full->fwd[n] - full->fwd[from] + full->bwd_input[n] + full->bwd_weight[n]);
    if (node->recompute != RECOMPUTE_NEVER)
        once += (double)(full->fwd[n] - full->fwd[nf]);
    double end = (double)(last->fwd[n] - last->fwd[from] + last->bwd_input[n] +
                          last->bwd_weight[n] + (again ? last->fwd[n] - last->fwd[nf] : 0));
    double total = (once * (node->microbatches.count - 1) + end) / node->num_ranks;
    *bound_ns = (int64_t)fmin(floor(total * (1 - 1e-12)), (double)(INT64_MAX / 8));
    return OK;
}

/* Every candidate of a family, with its cheap bound; with count_only they are only counted. */
static enum status open_family(struct search *search, const struct node *family, bool count_only)
{
    const struct planner_options *options = search->options;
    enum status rc = counts_of(search, family->batch, family->num_ranks);
    if (rc != OK)
        return rc;
    const int num_counts = search->num_counts;
    enum frozen_placement placements[3];
    int num_placements = placements_of(search, placements);
    for (int p = 0; p < num_placements && rc == OK; p++) {
        enum schedule_kind kinds[MAX_KINDS];
        int chunks[MAX_KINDS];
        int num_kinds = schedules_of(search, family->num_ranks, items_in_cut(search, placements[p]),
                                     kinds, chunks);
        for (int i = 0; i < num_kinds * num_counts * RECOMPUTE_MODE_COUNT && rc == OK; i++) {
            int kind = i / (num_counts * RECOMPUTE_MODE_COUNT);
            enum recompute_mode recompute = (enum recompute_mode)(i % RECOMPUTE_MODE_COUNT);
            struct node node = *family;
            node.microbatches = search->counts[i / RECOMPUTE_MODE_COUNT % num_counts];
            if (!options->recompute_auto && recompute != options->recompute)
                continue;
            if (recompute == RECOMPUTE_EXCEPT_LAST && node.microbatches.count == 1 &&
                options->recompute_auto)
                continue; /* the same as never */
            int64_t stages = (int64_t)family->num_ranks * chunks[kind];
            if (stages * node.microbatches.count > MAX_COMPUTE_OPS / 3)
                continue;
            search->candidates += count_only;
            if (count_only)
                continue;
            node.schedule = kinds[kind];
            node.chunks = chunks[kind];
            node.recompute = recompute;
            node.frozen = placements[p];
            rc = work_bound(search, &node, &node.bound_ns);
            if (rc != OK)
                break;
            if (node.bound_ns < 1)
                node.bound_ns = 1;
            node.level = LEVEL_CHEAP;
            node.key = rate_of(&node, node.bound_ns);
            if (node.bound_ns <= limit_for(search, &node))
                rc = push(search, node);
            else if (node.key > length_of(search, &node)->bound_per_s)
                length_of(search, &node)->bound_per_s = node.key;
        }
    }
    return rc;
}

/* Least work of a sample, over micro-batch sizes and device types: what no plan can undercut. */
static enum status least_work(struct search *search, int num_ranks, int64_t batch, double *work_ns)
{
    const struct planner_problem *problem = search->problem;
    const int n = problem->model->num_items, types = search->table.num_types;
    const struct bound_times **times = malloc(2 * (size_t)types * sizeof *times);
    enum status rc = times ? counts_of(search, batch, num_ranks) : err_nomem(search->err);
    /* Frozen items may not run at all (cached). */
    const int from = problem->num_frozen_layers > 0 ? search->table.num_frozen_items : 0;
    *work_ns = INFINITY;
    for (int i = 0; rc == OK && i < search->num_counts; i++) {
        const struct microbatches *mb = &search->counts[i];
        for (int t = 0; t < types && rc == OK; t++) {
            rc = bound_times_of(&search->table, t, mb->size, &times[2 * t], search->err);
            if (rc == OK)
                rc = bound_times_of(&search->table, t, mb->last_size, &times[2 * t + 1],
                                    search->err);
        }
        double total = 0;
        for (int item = from; item < n && rc == OK; item++) {
            double once = INFINITY;
            for (int t = 0; t < types; t++) {
                double ns[2];
                for (int j = 0; j < 2; j++) {
                    const struct bound_times *of = times[2 * t + j];
                    ns[j] = (double)(of->fwd[item + 1] - of->fwd[item] + of->bwd_input[item + 1] -
                                     of->bwd_input[item] + of->bwd_weight[item + 1] -
                                     of->bwd_weight[item]);
                }
                once = fmin(once, ns[0] * (mb->count - 1) + ns[1]);
            }
            total += once;
        }
        *work_ns = fmin(*work_ns, total);
    }
    free(times);
    return rc;
}

static int max_length(const struct search *search)
{
    int devices = search->problem->cluster->num_devices, items = search->problem->model->num_items;
    return devices < items ? devices : items;
}

/* Whether the weights alone fit K of the largest devices. */
static bool weights_fit(const struct search *search, int num_ranks)
{
    const struct planner_problem *problem = search->problem;
    int64_t most = 0;
    for (int d = 0; d < problem->cluster->num_devices; d++)
        if (problem->cluster->devices[d].mem_bytes > most)
            most = problem->cluster->devices[d].mem_bytes;
    const int first = problem->num_frozen_layers > 0 ? search->table.num_frozen_items : 0;
    return bound_weights_fit(&search->table, num_ranks, most, first);
}

/* Families: every K, R and rank map that the cluster, the batch and the options admit. */
static enum status seed(struct search *search)
{
    const struct planner_problem *problem = search->problem;
    const struct planner_options *options = search->options;
    const int devices = problem->cluster->num_devices;
    for (int K = 1; K <= max_length(search); K++) {
        if (options->num_ranks != AUTO && options->num_ranks != K)
            continue;
        double work = -1;
        int64_t work_batch = -1;
        if (!weights_fit(search, K)) {
            search->lengths[K - 1].verdict = PLANNER_MEMORY;
            continue;
        }
        for (int R = devices / K; R >= 1; R--) {
            if (options->num_replicas != AUTO && options->num_replicas != R)
                continue;
            if (problem->batch_mode == BATCH_GLOBAL && problem->batch % R != 0)
                continue;
            struct node node = {.level = LEVEL_FAMILY, .num_ranks = K, .num_replicas = R};
            node.batch = problem->batch_mode == BATCH_GLOBAL ? problem->batch / R : problem->batch;
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
            node.key = rate_of(&node, 1) / fmax(bound, 1);
            bool crosses = problem->cluster->num_nodes > 1 && K > 1 && R > 1;
            for (int map = 0; map < (crosses ? MAP_COUNT : 1); map++) {
                node.map = (enum rank_map)map;
                rc = open_family(search, &node, true);
                if (rc == OK)
                    rc = push(search, node);
                if (rc != OK)
                    return rc;
            }
        }
    }
    return OK;
}

/* Bounds of what was left on the heap belong to the lengths they are of. */
static void note_rest(struct search *search)
{
    for (int64_t i = 0; i < search->heap_size; i++) {
        struct planner_length *length = length_of(search, &search->heap[i]);
        if (search->heap[i].key > length->bound_per_s)
            length->bound_per_s = search->heap[i].key;
    }
}

static enum status run(struct search *search)
{
    enum status rc = OK;
    while (rc == OK && search->heap_size > 0) {
        const struct node *top = &search->heap[0];
        if (search->best >= 0) {
            const struct judged *best = &search->judged[search->best];
            if (top->key <= rate_of(&best->node, best->step_ns))
                break;
        }
        struct node node = pop(search);
        switch (node.level) {
        case LEVEL_FAMILY:
            rc = open_family(search, &node, false);
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
    note_rest(search);
    return rc;
}

/* --- better cuts --------------------------------------------------------------------------------
 */

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
        memcmp(search->cut, judged->node.first_item,
               ((size_t)shape->num_stages + 1) * sizeof *search->cut) == 0)
        return OK;
    enum status rc = judge_cut(search, &judged->node, search->cut, &step_ns, NULL);
    if (rc == OK && step_ns > 0 && (judged->step_ns == 0 || step_ns < judged->step_ns)) {
        judged->step_ns = step_ns;
        memcpy(judged->node.first_item, search->cut,
               ((size_t)shape->num_stages + 1) * sizeof *search->cut);
        note_best(search, index);
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

static int compare_judged(const void *left, const void *right)
{
    const struct judged *a = left, *b = right;
    if ((a->step_ns > 0) != (b->step_ns > 0))
        return a->step_ns > 0 ? -1 : 1;
    double x = a->step_ns > 0 ? rate_of(&a->node, a->step_ns) : 0;
    double y = b->step_ns > 0 ? rate_of(&b->node, b->step_ns) : 0;
    if (x != y)
        return x > y ? -1 : 1;
    return (a->node.order > b->node.order) - (a->node.order < b->node.order);
}

static enum status improve(struct search *search)
{
    if (search->options->by_params)
        return OK;
    int climbed = 0;
    for (int i = 0; i < search->num_judged; i++) {
        struct judged *judged = &search->judged[i];
        const struct node *node = &judged->node;
        if (node->bound_ns > limit_for(search, node) && i != search->best)
            continue;
        if (judged->step_ns > 0 && judged->step_ns <= node->bound_ns)
            continue; /* its cut is proven best */
        int items = items_in_cut(search, node->frozen);
        bool few = choose(items - 1, node->num_ranks * node->chunks - 1) <= FEW_CUTS;
        if (!few && (judged->step_ns == 0 || climbed++ >= PLANNER_KEEP))
            continue;
        struct bound_shape shape = {0};
        enum status rc = shape_of(search, node, &shape);
        if (rc == OK)
            rc = few ? all_cuts(search, i, &shape) : climb(search, i, &shape);
        bound_shape_clear(&shape);
        if (rc != OK)
            return rc;
    }
    return OK;
}

/* --- the answer ---------------------------------------------------------------------------------
 */

void planner_result_clear(struct planner_result *result)
{
    plan_clear(&result->plan);
    free(result->stage_ns);
    for (int i = 0; i < result->num_best; i++)
        plan_clear(&result->best[i].plan);
    free(result->best);
    free(result->lengths);
    *result = (struct planner_result){0};
}

/* The full plan of a judged candidate, with its predictions. */
static enum status finish_plan(struct search *search, const struct judged *judged, struct plan *out,
                               int64_t **stage_ns)
{
    const struct planner_problem *problem = search->problem;
    const struct node *node = &judged->node;
    struct plan plan = {0};
    struct workload workload = {0};
    struct schedule full = {0};
    int num_stages = node->num_ranks * node->chunks;
    int64_t *stages = NULL;
    int *device = malloc((size_t)node->num_ranks * (size_t)node->num_replicas * sizeof *device);
    if (!device)
        return err_nomem(search->err);
    enum status rc = autodp_map(problem->cluster, node->map, node->num_ranks, node->num_replicas,
                                device, search->err);
    plan = bare_plan(search, node, device);
    plan.first_item = malloc(((size_t)num_stages + 1) * sizeof *plan.first_item);
    plan.memory_bytes = malloc((size_t)node->num_ranks * sizeof *plan.memory_bytes);
    stages = malloc((size_t)num_stages * sizeof *stages);
    if (rc == OK && (!plan.first_item || !plan.memory_bytes || !stages))
        rc = err_nomem(search->err);
    if (rc != OK)
        goto out;
    memcpy(plan.first_item, node->first_item, ((size_t)num_stages + 1) * sizeof *plan.first_item);
    plan.step_ns = judged->step_ns;
    rc = plan_lower(problem->model, problem->cluster, problem->cost, &plan, NULL, &workload, &full,
                    search->err);
    if (rc == OK)
        rc = schedule_memory(&full, &workload, &plan, plan.memory_bytes, search->err);
    if (rc != OK)
        goto out;
    for (int s = 0; s < num_stages; s++) {
        const struct stage_cost *cost = &workload.stages[s];
        bool frozen = s < workload.num_frozen_stages;
        stages[s] = cost->op_ns[OP_F][MB_FULL] + (frozen ? 0 : cost->op_ns[OP_B][MB_FULL]);
    }
    *out = plan;
    plan = (struct plan){0};
    if (stage_ns) {
        *stage_ns = stages;
        stages = NULL;
    }
out:
    free(stages);
    schedule_clear(&full);
    workload_clear(&workload);
    plan_clear(&plan);
    return rc;
}

/* The best judged candidates as plans, the judge's word on each, best first. */
static enum status collect(struct search *search, struct planner_result *result)
{
    const struct planner_options *options = search->options;
    if (search->num_judged > 0)
        qsort(search->judged, (size_t)search->num_judged, sizeof *search->judged, compare_judged);
    int num = 0;
    while (num < search->num_judged && num < PLANNER_KEEP && search->judged[num].step_ns > 0)
        num++;
    result->best = calloc((size_t)(num ? num : 1), sizeof *result->best);
    if (!result->best)
        return err_nomem(search->err);
    int chosen = -1;
    for (int i = 0; i < num; i++) {
        struct planner_candidate candidate = {.lower_bound_ns = search->judged[i].node.bound_ns};
        enum status rc = finish_plan(search, &search->judged[i], &candidate.plan, NULL);
        int64_t step_ns = candidate.plan.step_ns;
        if (rc == OK && options->judge) {
            struct err why = {0};
            rc = options->judge(options->judge_ctx, &candidate.plan, &candidate.judged_ns, &why);
            if (rc == ERR_INFEASIBLE) {
                plan_clear(&candidate.plan);
                continue;
            }
            if (rc != OK)
                err_set(search->err, rc, "%s", why.msg);
            step_ns = candidate.judged_ns;
        }
        if (rc != OK) {
            plan_clear(&candidate.plan);
            return rc;
        }
        candidate.samples_per_s = rate_of(&search->judged[i].node, step_ns > 0 ? step_ns : 1);
        int at = result->num_best++;
        while (at > 0 && result->best[at - 1].samples_per_s < candidate.samples_per_s) {
            result->best[at] = result->best[at - 1];
            at--;
        }
        result->best[at] = candidate;
        chosen = chosen < 0 || at == 0 ? i : chosen;
    }
    if (chosen < 0)
        return OK;
    enum status rc = finish_plan(search, &search->judged[chosen], &result->plan, &result->stage_ns);
    if (rc == OK) {
        result->samples_per_s = result->best[0].samples_per_s;
        if (result->best[0].judged_ns > 0)
            result->plan.step_ns = result->best[0].judged_ns;
    }
    return rc;
}

static void set_lengths(struct search *search, struct planner_result *result)
{
    for (int i = 0; i < search->num_lengths; i++) {
        struct planner_length *length = &search->lengths[i];
        if (length->num_ranks == result->plan.num_ranks)
            length->verdict = PLANNER_CHOSEN;
        else if (length->samples_per_s > 0)
            length->verdict = PLANNER_SLOWER;
        else if (length->bound_per_s > 0 && length->need_bytes == 0)
            length->verdict = PLANNER_BOUND;
        else
            length->verdict = length->verdict == PLANNER_NONE ? PLANNER_NONE : PLANNER_MEMORY;
    }
    result->lengths = search->lengths;
    result->num_lengths = search->num_lengths;
    search->lengths = NULL;
}

static enum status none_found(const struct search *search)
{
    int64_t least = 0;
    bool memory = search->num_judged > 0;
    for (int i = 0; i < search->num_lengths; i++)
        memory |= search->lengths[i].verdict == PLANNER_MEMORY;
    for (int i = 0; i < search->num_lengths; i++)
        if (search->lengths[i].need_bytes > 0 &&
            (least == 0 || search->lengths[i].need_bytes < least))
            least = search->lengths[i].need_bytes;
    const struct planner_problem *problem = search->problem;
    char need[32], have[32];
    if (!memory)
        return err_set(search->err, ERR_INFEASIBLE,
                       "no plan for model '%s' (%d items) on %d devices: no pipeline length, "
                       "replica count and micro-batch count fit together",
                       problem->model->name, problem->model->num_items,
                       problem->cluster->num_devices);
    enum status rc;
    if (least > 0)
        rc =
            err_set(search->err, ERR_INFEASIBLE,
                    "model '%s' does not fit: the least peak of any plan tried is %s, a device has "
                    "%s",
                    problem->model->name, format_bytes(least, need, sizeof need),
                    format_bytes(problem->cluster->devices[0].mem_bytes, have, sizeof have));
    else
        rc = err_set(search->err, ERR_INFEASIBLE,
                     "model '%s' does not fit %d devices of %s with any cut", problem->model->name,
                     problem->cluster->num_devices,
                     format_bytes(problem->cluster->devices[0].mem_bytes, have, sizeof have));
    err_hint(search->err, "more devices a pipeline, a smaller batch, or recompute");
    return rc;
}

static enum status finish(struct search *search, struct planner_result *result)
{
    enum status rc = collect(search, result);
    if (rc != OK)
        return rc;
    if (result->num_best == 0)
        return none_found(search);
    /* What no plan beats: judged candidates by their bounds, the others are slower than the best.
     */
    double rate = rate_of(&search->judged[0].node, search->judged[0].step_ns);
    for (int i = 0; i < search->num_judged; i++)
        rate = fmax(rate, rate_of(&search->judged[i].node, search->judged[i].node.bound_ns));
    const struct plan *plan = &result->plan;
    double bound = (double)plan->num_replicas * (double)plan->batch / rate * 1e9;
    result->lower_bound_ns = (int64_t)floor(bound * (1 + 1e-12));
    if (result->lower_bound_ns > plan->step_ns)
        result->lower_bound_ns = plan->step_ns;
    if (result->lower_bound_ns < 1)
        result->lower_bound_ns = 1;
    result->gap = (double)plan->step_ns / (double)result->lower_bound_ns - 1;
    result->candidates = search->candidates;
    result->evaluated = search->evaluated;
    result->extrapolated = search->table.extrapolated;
    set_lengths(search, result);
    return OK;
}

/* --- the greedy balancers -----------------------------------------------------------------------
 */

/* K, R, M and the cut by the published rules; one candidate. */
static enum status greedy_node(struct search *search, struct node *node)
{
    const struct planner_problem *problem = search->problem;
    const struct planner_options *options = search->options;
    const struct model *model = problem->model;
    const bool released = options->balancer == BALANCER_RELEASED;
    const enum balance_variant variant = released ? BALANCE_RELEASED : BALANCE_PAPER;
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
        /* Start with a node's devices, budget: the largest stage of the unfrozen model. */
        int per_node = problem->cluster->num_devices / problem->cluster->num_nodes;
        K = per_node < n ? per_node : n;
        rc = balance_greedy(variant, sizes, n, 0, K, count, load, search->err);
        if (rc != OK)
            goto out;
        double budget = balance_max(variant, sizes, 0, K, load);
        /* F grew step by step: each step may halve. */
        for (int f = 1; f <= problem->num_frozen_layers && rc == OK; f++)
            rc = balance_compress(variant, sizes, n, model_frozen_items(model, f), budget, &K,
                                  search->err);
        if (rc != OK)
            goto out;
    }
    rc = balance_greedy(variant, sizes, n, nf, K, count, load, search->err);
    if (rc != OK)
        goto out;
    *node = (struct node){.level = LEVEL_TIGHT, .num_ranks = K, .chunks = 1};
    node->num_replicas =
        options->num_replicas != AUTO ? options->num_replicas : problem->cluster->num_devices / K;
    if (node->num_replicas < 1 || K > problem->cluster->num_devices) {
        rc = err_set(search->err, ERR_INFEASIBLE, "a pipeline of %d does not fit %d devices", K,
                     problem->cluster->num_devices);
        goto out;
    }
    node->batch = problem->batch;
    if (problem->batch_mode == BATCH_GLOBAL) {
        node->batch = problem->batch / node->num_replicas;
        if (problem->batch % node->num_replicas != 0) {
            rc = err_set(search->err, ERR_INFEASIBLE,
                         "global batch %lld is no multiple of %d replicas",
                         (long long)problem->batch, node->num_replicas);
            goto out;
        }
    }
    int wanted = options->num_microbatches;
    if (wanted == AUTO)
        wanted = K == 1 ? 4 : 16;
    if (wanted > node->batch)
        wanted = (int)node->batch;
    node->microbatches = microbatches_of(node->batch, wanted);
    node->schedule = SCHEDULE_GPIPE;
    if (!allowed(options, SCHEDULE_GPIPE))
        for (int kind = 0; kind < SCHEDULE_KIND_COUNT; kind++)
            if (allowed(options, (enum schedule_kind)kind))
                node->schedule = (enum schedule_kind)kind;
    node->recompute = options->recompute_auto ? RECOMPUTE_NEVER : options->recompute;
    node->frozen = FROZEN_NONE;
    if (problem->num_frozen_layers > 0) {
        node->frozen = options->frozen_auto ? FROZEN_FIRST : options->frozen;
        if (options->frozen_auto && options->cache_filled)
            node->frozen = FROZEN_CACHED;
        if (!released) /* pinned to stage 0, in the pipeline */
            node->frozen =
                options->frozen_auto && options->cache_filled ? FROZEN_CACHED : FROZEN_SPREAD;
    }
    bool outside = node->frozen == FROZEN_FIRST || node->frozen == FROZEN_CACHED;
    int at = outside ? nf : 0;
    node->first_item = malloc(((size_t)K + 1) * sizeof *node->first_item);
    if (!node->first_item) {
        rc = err_nomem(search->err);
        goto out;
    }
    node->first_item[0] = at;
    at = released ? nf : 0;
    for (int k = 0; k < K; k++) {
        at += count[k];
        node->first_item[k + 1] = at;
        if (node->first_item[k + 1] <= node->first_item[k]) {
            rc = err_set(
                search->err, ERR_INFEASIBLE,
                "the %s balancer leaves stage %d of %d empty for model '%s' with %d frozen "
                "layers",
                released ? "released" : "paper", k, K, model->name, problem->num_frozen_layers);
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

static enum status solve_greedy(struct search *search)
{
    struct node node = {0};
    enum status rc = greedy_node(search, &node);
    struct bound_shape shape = {0};
    if (rc == OK)
        rc = shape_of(search, &node, &shape);
    if (rc == OK) {
        search->candidates = 1;
        node.bound_ns = bound_of_cut(&shape, node.first_item);
        int64_t step_ns = 0;
        rc = judge_cut(search, &node, node.first_item, &step_ns, NULL);
        search->judged = calloc(1, sizeof *search->judged);
        if (rc == OK && !search->judged)
            rc = err_nomem(search->err);
        if (rc == OK) {
            search->judged[0] = (struct judged){.node = node, .step_ns = step_ns};
            search->num_judged = search->judged_room = 1;
            node.first_item = NULL;
            if (step_ns > 0)
                note_best(search, 0);
        }
    }
    bound_shape_clear(&shape);
    free(node.first_item);
    return rc;
}

/* --- the front -------------------------------------------------------------------------------- */

static enum status check(const struct planner_problem *problem,
                         const struct planner_options *options, struct err *err)
{
    const struct model *model = problem->model;
    if (problem->batch < 1 || problem->batch > INT32_MAX)
        return err_set(err, ERR_INPUT, "batch must be 1..%d, got %lld", INT32_MAX,
                       (long long)problem->batch);
    if (problem->num_frozen_layers < 0 || problem->num_frozen_layers > model->num_layers)
        return err_set(err, ERR_INPUT, "%d frozen layers, model '%s' has %d",
                       problem->num_frozen_layers, model->name, model->num_layers);
    if (options->num_ranks < 0 || options->num_replicas < 0 || options->num_microbatches < 0 ||
        options->chunks < 0)
        return err_set(err, ERR_INPUT, "planner: a count is negative");
    if (options->num_ranks > model->num_items)
        return err_set(err, ERR_INFEASIBLE, "cannot cut %d items into %d stages", model->num_items,
                       options->num_ranks);
    if (options->num_ranks > problem->cluster->num_devices)
        return err_set(err, ERR_INFEASIBLE, "a pipeline of %d does not fit %d devices",
                       options->num_ranks, problem->cluster->num_devices);
    int64_t devices;
    if (!mul_ok(options->num_ranks == AUTO ? 1 : options->num_ranks,
                options->num_replicas == AUTO ? 1 : options->num_replicas, &devices) ||
        devices > problem->cluster->num_devices)
        return err_set(err, ERR_INFEASIBLE, "%d replicas of %d devices do not fit a cluster of %d",
                       options->num_replicas, options->num_ranks, problem->cluster->num_devices);
    if ((options->schedules & PLANNER_ALL_SCHEDULES) == 0)
        return err_set(err, ERR_INPUT, "planner: no schedule to choose from");
    if (!options->frozen_auto && problem->num_frozen_layers > 0 &&
        (options->frozen == FROZEN_NONE || options->frozen >= FROZEN_PLACEMENT_COUNT))
        return err_set(err, ERR_INPUT, "planner: frozen layers need a placement");
    return OK;
}

enum status planner_solve(const struct planner_problem *problem,
                          const struct planner_options *options, struct planner_result *result,
                          struct err *err)
{
    struct planner_result got = {0};
    struct search search = {.problem = problem, .options = options, .best = -1, .err = err};
    enum status rc = check(problem, options, err);
    if (rc != OK)
        return rc;
    rc = bound_table_init(&search.table, problem, err);
    if (rc != OK)
        return rc;
    search.num_lengths = max_length(&search);
    search.lengths = calloc((size_t)search.num_lengths, sizeof *search.lengths);
    search.families = calloc(FAMILY_SLOTS, sizeof *search.families);
    search.cut = malloc(((size_t)problem->model->num_items + 1) * sizeof *search.cut);
    if (!search.lengths || !search.families || !search.cut) {
        rc = err_nomem(err);
        goto out;
    }
    for (int i = 0; i < search.num_lengths; i++)
        search.lengths[i] = (struct planner_length){.num_ranks = i + 1, .verdict = PLANNER_NONE};
    if (options->balancer != BALANCER_OPTIMAL) {
        rc = solve_greedy(&search);
    } else {
        rc = seed(&search);
        for (int64_t i = 0; rc == OK && i < search.heap_size; i++)
            length_of(&search, &search.heap[i])->verdict = PLANNER_MEMORY; /* until seen better */
        if (rc == OK)
            rc = run(&search);
        if (rc == OK)
            rc = improve(&search);
    }
    if (rc == OK)
        rc = finish(&search, &got);
    if (rc == OK) {
        *result = got;
        got = (struct planner_result){0};
    }
out:
    planner_result_clear(&got);
    free_nodes(&search);
    return rc;
}

void planner_from_job(const struct job *job, const struct cost *cost, int num_frozen_layers,
                      struct planner_problem *problem, struct planner_options *options)
{
    *problem =
        (struct planner_problem){.model = &job->model,
                                 .cluster = &job->cluster,
                                 .cost = cost,
                                 .batch_mode = job->train.batch_mode,
                                 .batch = job->train.batch,
                                 .num_frozen_layers = num_frozen_layers,
                                 .bucket_bytes = job->pipeline.bucket_bytes,
                                 .clip = job->train.clip_norm > 0,
                                 .optim_bytes_per_param = optimizer_bytes_per_param(
                                     job->train.optimizer.kind, job->train.optimizer.momentum)};
    bool choose_schedule = job->pipeline.schedule_auto || job->pipeline.schedule == SCHEDULE_AUTO;
    *options = (struct planner_options){
        .num_ranks = job->pipeline.num_stages,
        .num_replicas = job->pipeline.num_replicas,
        .num_microbatches = job->pipeline.num_microbatches,
        .chunks = job->pipeline.chunks > 1 ? job->pipeline.chunks : AUTO,
        .schedules = choose_schedule ? PLANNER_ALL_SCHEDULES : 1u << job->pipeline.schedule,
        .balancer = job->pipeline.balancer,
        .by_params = job->pipeline.by_params,
        .recompute_auto = job->pipeline.recompute_auto,
        .recompute = job->pipeline.recompute,
        .frozen_auto = job->pipeline.frozen_auto,
        .frozen = job->pipeline.frozen,
        .cache_write = job->cache.policy != CACHE_OFF && num_frozen_layers > 0};
    if (!choose_schedule && job->pipeline.schedule == SCHEDULE_INTERLEAVED &&
        job->pipeline.chunks == 1)
        options->chunks = 1;
}
