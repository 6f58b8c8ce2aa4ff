/* Textbook layouts, which are judged before the search. Each is a row of textbooks[]: a way to divide
 * a model that people configure by hand. Of a row some pipelines are timed: lengths that double, as
 * many replicas as the batch allows on all nodes and on one, 1F1B and interleaved schedules,
 * micro-batch counts that double, and the first recompute mode that fits. The fastest is what the
 * search begins with, so no search is slower than a textbook. Nothing here grows with the number of
 * candidates. Read search_textbook() at the end first. */
#include "partition/search/planner_search.h"

#include <stdlib.h>
#include <string.h>

static const struct textbook textbooks[] = {
  /* name, T, experts, context, shard, group: struct textbook */
    {"FSDP (ZeRO-3)",                    0, false, false, SHARD_WEIGHTS,   false},
    {"HSDP",                             0, false, false, SHARD_WEIGHTS,   true },
    {"ZeRO-2",                           0, false, false, SHARD_GRADIENTS, false},
    {"replicas, pipelines",              0, false, false, SHARD_NONE,      false},
    {"ZeRO-1, pipelines",                0, false, false, SHARD_OPTIMIZER, false},
    {"Megatron-LM",                      1, false, false, SHARD_OPTIMIZER, false},
    {"Megatron-LM, half a node",         2, false, false, SHARD_OPTIMIZER, false},
    {"long samples",                     1, false, true,  SHARD_OPTIMIZER, false},
    {"long samples, half a node",        2, false, true,  SHARD_OPTIMIZER, false},
    {"Megatron-LM, a quarter of a node", 4, false, false, SHARD_OPTIMIZER, false},
    {"one Megatron-LM pipeline",         1, false, false, SHARD_NONE,      false},
    {"groups, FSDP",                     1, false, false, SHARD_WEIGHTS,   false},
    {"half groups, FSDP",                2, false, false, SHARD_WEIGHTS,   false},
    {"experts, ZeRO-1",                  0, true,  false, SHARD_OPTIMIZER, false},
    {"experts, FSDP",                    0, true,  false, SHARD_WEIGHTS,   false},
    {"long samples, FSDP",               0, false, true,  SHARD_WEIGHTS,   false},
};

const struct textbook *textbook_list(int *num)
{
    *num = (int)(sizeof textbooks / sizeof *textbooks);
    return textbooks;
}

/* Lengths of pipelines that are timed: the shortest one whose weights fit, and at most this many doublings. */
#define DOUBLINGS 4
/* Longer op lists are not timed, but for the first plan: that takes some milliseconds. */
#define TEXTBOOK_OPS ((int64_t)1 << 17)
/* Places of the ranks that are timed. */
#define TEXTBOOK_PLACES 3

/* The first of these modes that fits is the one that costs least. */
static const enum recompute_mode modes[] = {RECOMPUTE_NEVER, RECOMPUTE_SELECTIVE,
                                            RECOMPUTE_LAYER, RECOMPUTE_EXCEPT_LAST,
                                            RECOMPUTE_STAGE, RECOMPUTE_STAGE_EARLY};

/* The schedules of a textbook: of one device, and of a pipeline. */
struct lists {
    enum schedule_kind kind;
    int chunks;
};
enum { MOST_LISTS = 4 };

static void add_list(const struct search *search, int num_ranks, int blocks,
                     enum schedule_kind kind, int chunks, struct lists *lists, int *n)
{
    const int given = search->options->chunks;
    if (search_allows(search->options, kind) &&
        (!schedule_any_chunks(kind) || given == AUTO || given == chunks) &&
        (int64_t)num_ranks * chunks <= blocks)
        lists[(*n)++] = (struct lists){kind, chunks};
}

static int lists_of(const struct search *search, const struct node *node, struct lists *lists)
{
    const int num_ranks = node->num_ranks, blocks = search_blocks_in_cut(search, node->frozen);
    const int given = search->options->chunks;
    const unsigned allowed = search->options->schedules & PLANNER_ALL_SCHEDULES;
    int n = 0;
    add_list(search, num_ranks, blocks, SCHEDULE_1F1B, 1, lists, &n);
    for (int chunks = 2; num_ranks > 1 && chunks <= 4; chunks *= 2)
        add_list(search, num_ranks, blocks, SCHEDULE_INTERLEAVED, chunks, lists, &n);
    if (num_ranks > 1 && num_ranks <= 16)
        add_list(search, num_ranks, blocks, SCHEDULE_ZB_V, 2, lists, &n);
    if (n == 0) { /* the job asks for others: take the first one */
        const enum schedule_kind kind = (enum schedule_kind)__builtin_ctz(allowed);
        add_list(search, num_ranks, blocks, kind, schedule_chunks(kind, given == AUTO ? 0 : given),
                 lists, &n);
    }
    return n;
}

/* Set search->cut to the framework's own cut, or to equal stages that are then balanced. */
static bool set_cut(struct search *search, const struct bound_shape *shape)
{
    const struct planner_options *options = search->options;
    const int S = shape->num_stages, first = search->block_of[shape->first_item],
              blocks = search->num_blocks - first;
    if (options->target && options->target->own_cut)
        return options->target->own_cut(search->problem->setting.model, S, search->cut);
    for (int s = 0; s <= S; s++)
        search->cut[s] = search->block[first + (int64_t)blocks * s / S];
    bound_balance(shape, search->cut);
    search_snap(search, S);
    return true;
}

/* Time a candidate at one cut: the node's own, or a balanced one. *fits: the memory holds it, or it is slower
 * than the best one in any case. solve: where the cut does not fit, take the one with the least bound that does. */
static enum status time_candidate(struct search *search, struct node node, bool solve, bool *fits)
{
    struct bound_shape shape = {0};
    int64_t step_ns = 0, unshared_ns = 0;
    enum status rc = search_shape(search, &node, &shape);
    *fits = rc == OK && bound_average_ns(&shape) > search_limit(search, &node);
    if (rc != OK || *fits)
        goto out;
    if (node.first_item && !search_cut_given(search->options))
        memcpy(search->cut, node.first_item, ((size_t)shape.num_stages + 1) * sizeof *search->cut);
    else if (!set_cut(search, &shape))
        goto out;
    if (!bound_cut_fits(&shape, search->cut, search->over)) {
        if (!solve || search_cut_given(search->options) ||
            !bound_solve(&shape, search_limit(search, &node), &node.bound_ns, search->cut, NULL))
            goto out;
        search_snap(search, shape.num_stages);
    }
    node.bound_ns = bound_max(bound_of_cut(&shape, search->cut), 1);
    *fits = node.bound_ns > search_limit(search, &node);
    if (*fits)
        goto out;
    node.level = LEVEL_TIGHT;
    node.order = search->order++;
    rc = search_judge_cut(search, &node, &shape, search->cut, 0, &step_ns, &unshared_ns);
    *fits = step_ns > 0;
    if (rc == ERR_INPUT) /* it takes longer than time is counted, and the search will say so */
        rc = OK;
    if (rc == OK && *fits)
        rc = search_keep(search, node, search->cut, step_ns, unshared_ns);
out:
    bound_shape_clear(&shape);
    return rc;
}

/* Time the first mode that fits. */
static enum status time_modes(struct search *search, struct node node, bool solve)
{
    const int64_t ops = 3 * (int64_t)node.num_ranks * node.chunks * node.microbatches.count;
    if (ops > TEXTBOOK_OPS && search_beat(search) > 0)
        return OK;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        bool fits = false;
        node.recompute = modes[i];
        if (!search_allows_mode(search, &node))
            continue;
        if (search_beat(search) > 0 && !search_goes_on(search))
            return OK;
        const enum status rc = time_candidate(search, node, solve, &fits);
        if (rc != OK || fits)
            return rc;
    }
    return OK;
}

/* Time micro-batch counts that double, each under the textbook's schedules. */
static enum status time_counts(struct search *search, struct node node)
{
    struct lists lists[MOST_LISTS];
    const int num_lists = lists_of(search, &node, lists);
    enum status rc = search_counts(search, node.batch, node.num_ranks);
    int64_t next = node.num_ranks;
    for (int i = 0; i < search->num_counts && rc == OK; i++) {
        const struct microbatches *mb = &search->counts[i];
        if (i + 1 < search->num_counts && (mb->count < next || mb->last_size != mb->size))
            continue;
        next = 2 * (int64_t)mb->count;
        for (int l = 0; l < num_lists && rc == OK; l++) {
            node.microbatches = *mb;
            node.schedule = lists[l].kind;
            node.chunks = lists[l].chunks;
            if (search_allows_count(search, &node))
                rc = time_modes(search, node, false);
        }
    }
    return rc;
}

/* Time pipelines of K ranks, as many as the batch allows on these groups of devices. */
static enum status time_length(struct search *search, int num_ranks, int num_groups)
{
    struct node node = {.num_ranks = num_ranks};
    const int *place;
    int num_places, R = num_groups / num_ranks;
    while (R > 0 && !search_allows_replicas(search, num_ranks, R, &node))
        R--;
    if (R == 0)
        return OK;
    enum status rc = rank_places_of(search->places, num_ranks, R, &place, &num_places, search->err);
    node.frozen = search_first_placement(search);
    for (int i = 0; i < num_places && i < TEXTBOOK_PLACES && rc == OK; i++) {
        node.place = place[i];
        rc = time_counts(search, node);
        THEN(rank_places_of(search->places, num_ranks, R, &place, &num_places, search->err));
    }
    return rc;
}

/* The groups of the cluster's first node. */
static int groups_of_node(const struct search *search)
{
    const struct cluster *cluster = search->problem->setting.cluster;
    int devices = 1;
    while (devices < cluster->num_devices &&
           cluster->devices[devices].node == cluster->devices[0].node)
        devices++;
    return devices / bound_tensor(search->problem->setting.model);
}

enum status search_textbook(struct search *search)
{
    const int given = search->options->num_ranks, node = groups_of_node(search);
    const struct layout *layout = &search->problem->layout;
    const int most = layout->shard < SHARD_GRADIENTS ? DOUBLINGS : layout->expert > 1 ? 2 : 0;
    enum status rc = OK;
    int lengths = 0;
    for (int K = given != AUTO ? given : 1; K <= search->num_lengths && rc == OK; K *= 2) {
        if (search_weights_fit(search, K)) {
            rc = time_length(search, K, search->num_groups);
            if (K <= node && node < search->num_groups)
                THEN(time_length(search, K, node));
            lengths++;
        }
        if (given != AUTO || lengths > most)
            break;
    }
    return rc;
}

static bool group_has(const struct kind_group *group, enum schedule_kind kind)
{
    return group->kind == kind || group->others >> kind & 1;
}

/* Whether the search has the node's schedule and chunks for a number of ranks. */
static bool has_kind(struct search *search, const struct node *node)
{
    struct kind_group groups[KIND_GROUPS];
    const int num_groups =
        search_kinds(search, node->num_ranks, search_blocks_in_cut(search, node->frozen), groups);
    for (int i = 0; i < num_groups; i++)
        if (group_has(&groups[i], node->schedule) && groups[i].chunks == node->chunks)
            return true;
    return false;
}

/* Whether the node's candidate was timed, in whatever mode. */
static bool is_timed(const struct search *search, const struct node *node)
{
    for (int i = 0; i < search->num_judged; i++) {
        const struct node *one = &search->judged[i].node;
        if (one->num_ranks == node->num_ranks && one->num_pipelines == node->num_pipelines &&
            one->place == node->place && one->microbatches.count == node->microbatches.count &&
            one->schedule == node->schedule && one->chunks == node->chunks)
            return true;
    }
    return false;
}

/* Time a variation of a plan: K ranks, at most R replicas, at some places, and micro-batches of about `size` samples. */
static enum status time_variation(struct search *search, const struct node *from, int num_ranks,
                                  int num_pipelines, int64_t size)
{
    struct node node;
    const int *place;
    int num_places = 0, R = num_pipelines, at = 0;
    if (num_ranks < 1 || num_ranks > search->num_lengths || size < 1 ||
        (search->options->num_ranks != AUTO && search->options->num_ranks != num_ranks) ||
        num_ranks * from->chunks > search_blocks_in_cut(search, from->frozen) ||
        !search_weights_fit(search, num_ranks))
        return OK;
    R = (int)bound_min(R, search->num_groups / num_ranks);
    while (R > 0 && !search_allows_replicas(search, num_ranks, R, &node))
        R--;
    if (R == 0)
        return OK;
    node.frozen = from->frozen;
    node.schedule = from->schedule;
    node.chunks = from->chunks;
    enum status rc = search_counts(search, node.batch, num_ranks);
    const int64_t count = (node.batch + size - 1) / size;
    while (rc == OK && at + 1 < search->num_counts && search->counts[at].count < count)
        at++;
    if (rc != OK || at == search->num_counts)
        return rc;
    node.microbatches = search->counts[at];
    if (!has_kind(search, &node) || !search_allows_count(search, &node))
        return OK;
    rc = rank_places_of(search->places, num_ranks, R, &place, &num_places, search->err);
    for (int i = 0; i < num_places && i < TEXTBOOK_PLACES && rc == OK; i++) {
        node.place = place[i];
        if (!is_timed(search, &node))
            rc = time_modes(search, node, true);
        THEN(rank_places_of(search->places, num_ranks, R, &place, &num_places, search->err));
    }
    return rc;
}

/* Time a plan under each other schedule. */
static enum status time_kinds(struct search *search, struct node node)
{
    struct kind_group groups[KIND_GROUPS];
    const int num_groups =
        search_kinds(search, node.num_ranks, search_blocks_in_cut(search, node.frozen), groups);
    enum status rc = OK;
    for (int i = 0; i < num_groups * SCHEDULE_SEARCH && rc == OK; i++) {
        const struct kind_group *group = &groups[i / SCHEDULE_SEARCH];
        const enum schedule_kind kind = (enum schedule_kind)(i % SCHEDULE_SEARCH);
        struct node other = node;
        other.schedule = kind;
        other.chunks = group->chunks;
        if (group_has(group, kind) && !is_timed(search, &other) &&
            search_allows_count(search, &other))
            rc = time_modes(search, other, true);
    }
    return rc;
}

enum status search_vary_one(struct search *search, int index)
{
    struct node node = search->judged[index].node;
    const int K = node.num_ranks, R = node.num_pipelines;
    const int64_t size = node.microbatches.size;
    const int other[][2] = {
        {2 * K, R / 2},
        {K / 2, 2 * R},
        {K,     R / 2},
        {K,     2 * R},
        {2 * K, R    },
        {K / 2, R    },
        {K + 1, R    },
        {K - 1, R    }
    };
    node.first_item = NULL; /* the judged one owns it */
    search->judged[index].varied = true;
    enum status rc = time_kinds(search, node);
    for (int64_t s = size > 1 ? size - 1 : 1; s <= size + 1 && rc == OK; s++)
        rc = time_variation(search, &node, K, R, s);
    for (int s = -1; s <= 1 && rc == OK; s++) {
        const int64_t scaled = s < 0 ? size / 2 : size << s;
        rc = time_variation(search, &node, K, R, scaled);
        for (size_t i = 0; i < sizeof other / sizeof *other && rc == OK; i++)
            rc = time_variation(search, &node, other[i][0], other[i][1], scaled);
    }
    return rc;
}

enum status search_vary(struct search *search)
{
    enum status rc = OK;
    while (rc == OK && !search_is_varied(search) && search_goes_on(search))
        rc = search_vary_one(search, search->best);
    return rc;
}

/* Set node->place to the place in this search's list that has the devices of `there` in the search `from`. Each
 * search numbers the places that it lists. *found: there is one. */
static enum status find_place(struct search *search, const struct search *from,
                              const struct node *there, struct node *node, bool *found)
{
    const size_t num = (size_t)there->num_ranks * (size_t)there->num_pipelines;
    const int *place;
    int num_places;
    int *want = malloc(2 * num * sizeof *want);
    enum status rc = want ? search_map(from, there, want, search->err) : err_nomem(search->err);
    THEN(rank_places_of(search->places, there->num_ranks, there->num_pipelines, &place, &num_places,
                        search->err));
    *found = false;
    for (int i = 0; rc == OK && !*found && i < num_places; i++) {
        node->place = place[i];
        rc = search_map(search, node, want + num, search->err);
        *found = rc == OK && memcmp(want, want + num, num * sizeof *want) == 0;
    }
    free(want);
    return rc;
}

enum status search_adopt(struct search *search, const struct search *other)
{
    const struct node *from = &other->judged[other->best].node;
    struct node node;
    bool found;
    if (from->num_ranks > search->num_lengths ||
        !search_allows_replicas(search, from->num_ranks, from->num_pipelines, &node) ||
        !search_weights_fit(search, from->num_ranks))
        return OK;
    enum status rc = find_place(search, other, from, &node, &found);
    if (rc != OK || !found)
        return rc;
    node.batch = from->batch;
    node.microbatches = from->microbatches;
    node.frozen = from->frozen;
    node.schedule = from->schedule;
    node.chunks = from->chunks;
    node.first_item = from->first_item;
    if (is_timed(search, &node) || !has_kind(search, &node) || !search_allows_count(search, &node))
        return OK;
    const int before = search->num_judged;
    rc = time_modes(search, node, true);
    if (rc != OK || !search->asking || search->num_judged == before)
        return rc;
    struct judged *judged = &search->judged[before];
    rc = search_ask(search, judged);
    if (rc == OK)
        search_note_asked(search, before);
    return rc;
}
