/* planner_solve(): one search for each layout (partition/layout/layout.h). A layout is searched with its
 * own model, cluster and costs (tensor_group.h). What an earlier one reached is the floor of the next
 * search, which leaves out what cannot beat it. Read planner_solve() first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/layout/tensor_group.h"
#include "partition/layout/model_shard.h"
#include "partition/search/planner_search.h"

enum { MOST_TENSORS = 64 };
/* AUTO divides the tokens of a sample where each part keeps so many: shorter ones save no memory that
 * recompute and shards do not save for less, and every C multiplies the layouts. At most
 * MOST_CONTEXTS of them are searched, the smallest last. */
enum { LEAST_TOKENS = 8192, MOST_CONTEXTS = 3 };
/* Groups that span whole nodes are searched up to this T. */
#define GROUP_BEYOND 8
/* Cuts after which a probe gives up: a layout that does not fit is found out later. */
#define PROBE_CUTS 32

struct solver {
    const struct planner_problem *problem;
    const struct planner_options *options;
    struct planner_layout_fate *fates; /* owned, room for all layouts */
    int num_layouts;
    struct planner_result best;    /* owned */
    int best_layout;               /* its fate; -1: none yet */
    double bound_rate;             /* no plan of the layouts searched so far is faster */
    int64_t candidates, evaluated; /* of the layouts searched so far */
    struct search_common common;
    struct err refused; /* of the layout that came nearest to the memory, or of the first */
    int64_t refused_over;
    struct err *err;
};

/* The most devices of a node. */
static int widest_node(const struct cluster *cluster)
{
    int most = 0;
    for (int d = 0, end; d < cluster->num_devices; d = end) {
        for (end = d;
             end < cluster->num_devices && cluster->devices[end].node == cluster->devices[d].node;)
            end++;
        most = end - d > most ? end - d : most;
    }
    return most;
}

static bool may_offload(const struct planner_options *options)
{
    return !options->target || options->target->offloads;
}

/* --- the layouts of a search ------------------------------------------------------------------- */

/* The layouts that an ask allows, one after the other: dimension by dimension as the digits of an
 * odometer, of which the last turns fastest. The values of a dimension depend on those before it. */
enum { MOST_VALUES = 256 };
struct layout_turns {
    const struct setting *setting;
    const struct planner_options *options;
    struct layout at;
    bool begun;
    int num[LAYOUT_DIM_COUNT], turn[LAYOUT_DIM_COUNT];
    int values[LAYOUT_DIM_COUNT][MOST_VALUES];
};

/* Each list_*() writes the values of a dimension after those of turns->at before it, and returns how
 * many there are: one unless the ask leaves it open. */
static int list_tensor(const struct layout_turns *turns, int *values)
{
    const struct setting *setting = turns->setting;
    const struct layout_ask *ask = &turns->options->layout;
    const int widest = widest_node(setting->cluster);
    const int most = widest > GROUP_BEYOND ? widest : GROUP_BEYOND;
    int n = 0;
    values[n++] = ask->open[LAYOUT_TENSOR] ? 1 : layout_tensor(&ask->at);
    for (int T = 2; ask->open[LAYOUT_TENSOR] && T <= most && n < MOST_TENSORS; T++)
        if (!cost_is_measured(setting->cost) && tensor_group_list(setting->cluster, T, NULL) > 0 &&
            (model_shard_check(setting->model, T, ask->at.sequence_parallel, NULL) == OK ||
             (ask->open[LAYOUT_SEQUENCE] &&
              model_shard_check(setting->model, T, true, NULL) == OK)))
            values[n++] = T;
    return n;
}

static int list_sequence(const struct layout_turns *turns, int *values)
{
    const struct layout_ask *ask = &turns->options->layout;
    const int T = turns->at.tensor;
    int n = 0;
    if (T == 1 || !ask->open[LAYOUT_SEQUENCE]) {
        values[n++] = T > 1 && ask->at.sequence_parallel;
        return n;
    }
    for (int tokens = 0; tokens <= 1; tokens++)
        if (model_shard_check(turns->setting->model, T, tokens, NULL) == OK)
            values[n++] = tokens;
    return n;
}

static int list_expert(const struct layout_turns *turns, int *values)
{
    const struct setting *setting = turns->setting;
    const bool open = turns->options->layout.open[LAYOUT_EXPERT];
    const int experts = setting->model->experts, devices = setting->cluster->num_devices;
    int n = 0;
    values[n++] = open ? 1 : turns->options->layout.at.expert;
    for (int E = 2; open && !cost_is_measured(setting->cost) && E <= experts && E <= devices; E++)
        if (experts % E == 0 && n < MOST_VALUES)
            values[n++] = E;
    return n;
}

/* With AUTO each expert is on a divisor of a group's devices, all of them first. A value that the job
 * gives stays, even where it is wrong: its error says why. */
static int list_expert_tensor(const struct layout_turns *turns, int *values)
{
    const struct layout_ask *ask = &turns->options->layout;
    const int T = turns->at.tensor, groups = turns->setting->cluster->num_devices / T;
    const bool open = ask->at.expert_tensor == AUTO;
    struct layout layout = turns->at;
    int n = 0;
    for (int X = open ? T : ask->at.expert_tensor; X > 0 && n < MOST_VALUES; X = open ? X - 1 : 0) {
        layout.expert_tensor = X;
        if ((!open || T % X == 0) && layout_expert_span(&layout) <= groups &&
            model_experts_check(turns->setting->model, &layout, NULL) == OK)
            values[n++] = X;
    }
    if (n == 0 && !ask->open[LAYOUT_EXPERT])
        values[n++] = open ? T : ask->at.expert_tensor;
    return n;
}

static int list_context(const struct layout_turns *turns, int *values)
{
    const struct setting *setting = turns->setting;
    const struct layout_ask *ask = &turns->options->layout;
    const int tensor = turns->at.tensor, groups = setting->cluster->num_devices / tensor;
    int most = 1, n = 0;
    values[n++] = ask->open[LAYOUT_CONTEXT] ? 1 : layout_context(&ask->at);
    while (ask->open[LAYOUT_CONTEXT] && !cost_is_measured(setting->cost) && most * 2 <= groups &&
           setting->model->seq / (most * 2) >= LEAST_TOKENS &&
           model_context_check(setting->model, most * 2, CONTEXT_RING, tensor, NULL) == OK)
        most *= 2;
    for (int C = most; C > 1 && n <= MOST_CONTEXTS; C /= 2)
        values[n++] = C;
    return n;
}

/* The one value of the ask, or all names of an open dimension. */
static int list_names(const struct layout_ask *ask, enum layout_dim dim, int *values)
{
    int n = 0;
    if (!ask->open[dim])
        values[n++] = layout_get(&ask->at, dim);
    for (int i = 0; ask->open[dim] && layout_members[dim].names[i]; i++)
        values[n++] = i;
    return n;
}

static int list_context_kind(const struct layout_turns *turns, int *values)
{
    struct layout_ask ask = turns->options->layout;
    ask.open[LAYOUT_CONTEXT_KIND] = ask.open[LAYOUT_CONTEXT_KIND] && turns->at.context > 1;
    return list_names(&ask, LAYOUT_CONTEXT_KIND, values);
}

static int list_shard(const struct layout_turns *turns, int *values)
{
    return list_names(&turns->options->layout, LAYOUT_SHARD, values);
}

/* All replicas divide, and where the shard is open also those on a node, whose links are faster. */
static int list_shard_group(const struct layout_turns *turns, int *values)
{
    const struct cluster *cluster = turns->setting->cluster;
    const struct layout_ask *ask = &turns->options->layout;
    const struct layout *at = &turns->at;
    const bool open = ask->open[LAYOUT_SHARD], asked = ask->at.shard_group != AUTO;
    const bool grouped = at->shard >= SHARD_GRADIENTS && layout_expert_span(at) < 2;
    const int node = widest_node(cluster) / at->tensor;
    int n = 0;
    values[n++] = asked && (grouped || !open) ? ask->at.shard_group : 0;
    if (open && !asked && grouped && node > 1 && cluster->num_nodes > 1)
        values[n++] = node;
    return n;
}

static int list_offload(const struct layout_turns *turns, int *values)
{
    const struct planner_options *options = turns->options;
    int n = 0;
    if (options->offload != OFFLOAD_OPTIMIZER)
        values[n++] = false;
    if (options->offload == OFFLOAD_OPTIMIZER ||
        (options->offload == OFFLOAD_AUTO && may_offload(options)))
        values[n++] = true;
    return n;
}

static int (*const list_values[LAYOUT_DIM_COUNT])(const struct layout_turns *, int *) = {
    [LAYOUT_TENSOR] = list_tensor,   [LAYOUT_SEQUENCE] = list_sequence,
    [LAYOUT_EXPERT] = list_expert,   [LAYOUT_EXPERT_TENSOR] = list_expert_tensor,
    [LAYOUT_CONTEXT] = list_context, [LAYOUT_CONTEXT_KIND] = list_context_kind,
    [LAYOUT_SHARD] = list_shard,     [LAYOUT_SHARD_GROUP] = list_shard_group,
    [LAYOUT_OFFLOAD] = list_offload,
};

/* Turn to the next layout, at first to the first one. false: there is none. A dimension that has no
 * value left turns the one before it. */
static bool layout_next(struct layout_turns *turns)
{
    bool back = turns->begun;
    int d = turns->begun ? LAYOUT_DIM_COUNT - 1 : 0;
    turns->begun = true;
    while (d >= 0 && d < LAYOUT_DIM_COUNT) {
        if (back) {
            turns->turn[d]++;
        } else {
            turns->num[d] = list_values[d](turns, turns->values[d]);
            turns->turn[d] = 0;
        }
        back = turns->turn[d] == turns->num[d];
        if (!back)
            layout_set(&turns->at, (enum layout_dim)d, turns->values[d][turns->turn[d]]);
        d += back ? -1 : 1;
    }
    return d > 0;
}

static bool without_pipeline(const struct plan_target *target, const struct layout *layout)
{
    return target && target->alone && (layout->tensor > 1 || layout->shard >= SHARD_GRADIENTS);
}

/* Whether the framework that is planned for runs a layout. */
static bool layout_runs(const struct planner_options *options, const struct layout *layout)
{
    const struct plan_target *target = options->target;
    return !target || target->given ||
           ((target->shards >> layout->shard & 1) && layout->shard_group == 0 &&
            !(target->tokens_whole && layout->sequence_parallel) &&
            !(without_pipeline(target, layout) && options->num_ranks > 1) &&
            (layout->context <= 1 || (target->contexts >> layout->context_kind & 1)) &&
            !(target->expert_in_shard && (layout->expert > 1 || layout->context > 1) &&
              layout->shard < SHARD_GRADIENTS) &&
            !(target->experts_by_group && layout->expert_tensor < layout->tensor));
}

/* List the layouts that are searched, in a fresh array of *num that the caller owns. */
static enum status list_layouts(const struct solver *s, struct layout **list, int *num)
{
    struct layout_turns turns = {.setting = &s->problem->setting, .options = s->options};
    struct layout *layouts = NULL;
    int n = 0;
    while (layout_next(&turns)) {
        if (!layout_runs(s->options, &turns.at))
            continue;
        if ((n & (n - 1)) == 0) { /* full: 1, 2, 4, ... */
            struct layout *more = realloc(layouts, (n > 0 ? 2 * (size_t)n : 1) * sizeof *layouts);
            if (!more) {
                free(layouts);
                return err_nomem(s->err);
            }
            layouts = more;
        }
        layouts[n++] = turns.at;
    }
    *list = layouts;
    *num = n;
    return OK;
}

/* Move the best candidates of two lists, both fastest first, into one. */
static int merge(struct planner_result *one, struct planner_result *other,
                 struct planner_candidate *both)
{
    int n = 0, a = 0, b = 0;
    while (n < PLANNER_KEEP && (a < one->num_best || b < other->num_best)) {
        const bool left =
            b == other->num_best ||
            (a < one->num_best && one->best[a].samples_per_s >= other->best[b].samples_per_s);
        struct planner_candidate *from = left ? &one->best[a++] : &other->best[b++];
        both[n++] = *from;
        *from = (struct planner_candidate){0};
    }
    return n;
}

/* Keep the faster of the best result and a new one, with the best candidates of both. */
static enum status merge_result(struct solver *s, struct planner_result *result)
{
    struct planner_result *best = &s->best;
    if (s->best_layout < 0) {
        *best = *result;
        *result = (struct planner_result){0};
        s->best_layout = s->num_layouts;
        return OK;
    }
    struct planner_candidate *both = calloc(2 * PLANNER_KEEP, sizeof *both);
    if (!both)
        return err_nomem(s->err);
    const int n = merge(best, result, both);
    if (result->samples_per_s > best->samples_per_s) {
        const struct planner_result old = *best;
        *best = *result;
        *result = old;
        s->best_layout = s->num_layouts;
    }
    for (int i = 0; i < best->num_best; i++)
        plan_clear(&best->best[i].plan);
    free(best->best);
    best->best = both;
    best->num_best = n;
    return OK;
}

static void note_refusal(struct solver *s, const struct planner_layout_fate *fate,
                         const struct err *why)
{
    const bool memory = fate->verdict == PLANNER_MEMORY && fate->need_bytes > 0;
    const int64_t over = memory ? fate->need_bytes - fate->have_bytes : INT64_MAX;
    if (s->refused.status == OK || over < s->refused_over) {
        s->refused = *why;
        s->refused_over = over;
    }
}

/* The search of one layout, while it is open. */
struct open_search {
    struct planner_problem problem;
    struct planner_options options;
    struct tensor_group *group; /* owned */
    struct search search;
    struct err why;
    bool open;
    enum status begun;
};

static void open_clear(struct open_search *one)
{
    if (one->open)
        search_clear(&one->search);
    tensor_group_free(one->group);
}

/* Tell what all layouts but `one` have come to, before its search continues. */
static void set_common(struct solver *s, const struct open_search *all, int n,
                       const struct open_search *one)
{
    struct search_common *common = &s->common;
    common->candidates = s->candidates;
    common->evaluated = s->evaluated;
    common->rest_rate = s->bound_rate;
    for (int i = 0; i < n; i++) {
        if (&all[i] == one || !all[i].open || all[i].begun != OK)
            continue;
        common->candidates += all[i].search.candidates;
        common->evaluated += all[i].search.evaluated;
        common->rest_rate = fmax(common->rest_rate, search_bound_rate(&all[i].search));
    }
}

/* Begin the search of a layout. The layouts whose group is refused have no search. */
static void begin(struct solver *s, const struct layout *layout, struct open_search *one)
{
    *one = (struct open_search){.problem = *s->problem, .options = *s->options};
    if (without_pipeline(s->options->target, layout))
        one->options.num_ranks = 1;
    enum status rc = tensor_group_new(&s->problem->setting, layout, &one->group, &one->why);
    one->problem.setting = tensor_group_setting(one->group, &s->problem->setting);
    one->problem.layout = *layout;
    if (rc == OK) {
        one->open = true;
        rc = search_begin(&one->search, &s->common, &one->problem, &one->options, &one->why);
    }
    one->begun = rc;
}

/* The rate of the best plan that a probe found; 0 if it found none. A layout that was refused before
 * its search began has no search to ask. */
static double open_rate(const struct open_search *one)
{
    return one->begun == OK ? search_beat(&one->search) : 0;
}

/* Begin a search, and take it to its first plan that fits and is faster than *rate, which becomes
 * that plan's. */
static enum status probe(struct solver *s, const struct layout *layout, bool alone,
                         struct open_search *one, double *rate)
{
    begin(s, layout, one);
    if (one->begun == OK && !alone && s->options->balancer == BALANCER_OPTIMAL) {
        one->search.probe = PROBE_CUTS;
        one->search.floor_rate = *rate;
        one->begun = search_run(&one->search);
        one->search.probe = 0;
        one->search.floor_rate = 0;
        *rate = fmax(*rate, open_rate(one));
    }
    return one->begun == OK || one->begun == ERR_INFEASIBLE ? OK : err_copy(s->err, &one->why);
}

static double best_rate(const struct solver *s)
{
    return s->best_layout < 0 ? 0 : s->best.samples_per_s;
}

/* A plan must make more samples per second to be looked for. */
static double floor_rate(const struct solver *s)
{
    return fmax(best_rate(s), s->options->judge.floor_per_s);
}

/* Finish a search, and enter what it found. */
static enum status finish_one(struct solver *s, struct open_search *one,
                              struct planner_layout_fate *fate)
{
    struct planner_result result = {0};
    enum status rc = one->begun;
    if (rc == OK) {
        one->search.floor_rate = floor_rate(s);
        rc = search_end(&one->search, &result, fate);
    }
    if (rc == OK) {
        rc = merge_result(s, &result);
    } else if (rc == ERR_INFEASIBLE) {
        note_refusal(s, fate, &one->why);
        rc = OK;
    } else {
        err_copy(s->err, &one->why);
    }
    planner_result_clear(&result);
    return rc;
}

/* Search a layout to its end, and let go of its search. If the judge found the best plan so much
 * slower that candidates which were dropped because of it may be faster, search once more, with
 * those. */
static enum status search_one(struct solver *s, struct open_search *one)
{
    struct planner_layout_fate *fate = &s->fates[s->num_layouts];
    *fate = (struct planner_layout_fate){.layout = one->problem.layout, .verdict = PLANNER_NONE};
    enum status rc = finish_one(s, one, fate);
    if (rc == OK && one->begun == OK && one->search.dropped_rate > floor_rate(s) &&
        !s->common.stopped) {
        const struct layout layout = one->problem.layout;
        const double keep = floor_rate(s), found = fate->samples_per_s;
        s->evaluated += one->search.evaluated;
        s->common.evaluated += one->search.evaluated; /* the watch's count continues */
        open_clear(one);
        begin(s, &layout, one);
        one->search.keep_rate = keep;
        rc = finish_one(s, one, fate);
        if (fate->samples_per_s < found) {
            fate->samples_per_s = found;
            fate->verdict = PLANNER_SLOWER;
        }
    }
    s->candidates += one->search.candidates;
    s->evaluated += one->search.evaluated;
    if (one->begun == OK)
        s->bound_rate = fmax(s->bound_rate, search_bound_rate(&one->search));
    s->num_layouts++;
    open_clear(one);
    *one = (struct open_search){0};
    return rc;
}

/* The open search whose probe is the fastest, or the first one. */
static int next_open(const struct open_search *all, const bool *done, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!done[i] && (best < 0 || open_rate(&all[i]) > open_rate(&all[best])))
            best = i;
    return best;
}

/* Complete the best result: what holds over all layouts. */
static void finish_best(struct solver *s)
{
    struct planner_result *best = &s->best;
    const struct plan *plan = &best->plan;
    const double samples = (double)plan_samples(plan);
    if (s->num_layouts > 1) {
        const double bound =
            samples * 1e9 / fmax(s->bound_rate, best->samples_per_s) - best->fill_ns;
        best->lower_bound_ns =
            bound_max(1, bound_min(plan->step_ns, (int64_t)floor(bound * (1 + 1e-12))));
        best->gap = (double)plan->step_ns / (double)best->lower_bound_ns - 1;
    }
    best->complete = !s->common.stopped && !s->common.judged_enough;
    best->candidates = s->candidates;
    best->evaluated = s->evaluated;
    s->fates[s->best_layout].verdict = PLANNER_CHOSEN;
    best->layouts = s->fates;
    best->num_layouts = s->num_layouts;
    s->fates = NULL;
}

/* Probe all layouts, then search them, the fastest first: what it reaches rules most others out. */
static enum status search_all(struct solver *s, const struct layout *layouts, int n)
{
    struct open_search *all = calloc((size_t)n, sizeof *all);
    bool *done = calloc((size_t)n, sizeof *done);
    enum status rc = all && done ? OK : err_nomem(s->err);
    double rate = s->options->judge.floor_per_s;
    /* Large groups first, because they fit a little memory soonest. */
    for (int i = n - 1; i >= 0 && rc == OK; i--) {
        set_common(s, all, n, &all[i]);
        rc = probe(s, &layouts[i], n == 1, &all[i], &rate);
    }
    for (int i = 0; i < n && rc == OK; i++) {
        const int next = next_open(all, done, n);
        done[next] = true;
        set_common(s, all, n, &all[next]);
        rc = search_one(s, &all[next]);
    }
    for (int i = 0; all && i < n; i++)
        open_clear(&all[i]);
    free(all);
    free(done);
    return rc;
}

static enum status solve_on(const struct planner_problem *problem,
                            const struct planner_options *options, struct planner_result *result,
                            struct err *err)
{
    struct solver s = {.problem = problem, .options = options, .best_layout = -1, .err = err};
    struct layout *layouts = NULL;
    int n = 0;
    enum status rc = list_layouts(&s, &layouts, &n);
    s.fates = calloc((size_t)n + 1, sizeof *s.fates);
    THEN(s.fates ? search_all(&s, layouts, n) : err_nomem(err));
    if (rc == OK && n == 0)
        rc = err_set(err, ERR_INFEASIBLE, "%s runs no layout that the job allows",
                     options->target ? options->target->name : "the planner");
    if (rc == OK && s.best_layout < 0)
        rc = err_copy(err, &s.refused);
    if (rc == OK) {
        finish_best(&s);
        *result = s.best;
        s.best = (struct planner_result){0};
    }
    free(layouts);
    free(s.fates);
    planner_result_clear(&s.best);
    return rc;
}

/* Whether all nodes have equal devices, as many, and equal uplinks. */
static bool equal_nodes(const struct cluster *cluster, int width)
{
    const struct device *first = &cluster->devices[0];
    bool equal = cluster->num_devices == cluster->num_nodes * width;
    for (int d = 0; d < cluster->num_devices && equal; d++) {
        const struct device *device = &cluster->devices[d];
        equal = device->node == d / width && device->speed == first->speed &&
                device->mem_bytes == first->mem_bytes &&
                device->link_bytes_per_s == first->link_bytes_per_s &&
                device->nic_bytes_per_s == first->nic_bytes_per_s &&
                device->copy_bytes_per_s == first->copy_bytes_per_s &&
                cluster->uplink_bytes_per_s[device->node] == cluster->uplink_bytes_per_s[0] &&
                strcmp(device->kind, first->kind) == 0;
    }
    return equal;
}

/* The first nodes of a cluster of equal ones, as many as the batch can use: R divides it, K is at most
 * the items, and no place of these ranks is on more nodes than it has groups (rank_places.h). The
 * search costs nothing for the others. Borrows from the cluster, which it is if no node is left
 * over. */
static struct cluster usable_nodes(const struct planner_problem *problem,
                                   const struct planner_options *options)
{
    const struct setting *setting = &problem->setting;
    struct cluster cluster = *setting->cluster;
    const int width = widest_node(&cluster);
    const int64_t tensor = options->layout.open[LAYOUT_TENSOR]
                               ? (width > GROUP_BEYOND ? width : GROUP_BEYOND)
                               : bound_max(options->layout.at.tensor, 1),
                  context = options->layout.open[LAYOUT_CONTEXT]
                                ? 1 + setting->model->seq / LEAST_TOKENS
                                : bound_max(options->layout.at.context, 1);
    const int64_t of_pipeline =
        (mul_saturated(tensor, setting->model->num_items) + width - 1) / width;
    const int64_t nodes = mul_saturated(mul_saturated(problem->batch, context), of_pipeline);
    if (problem->batch_mode == BATCH_GLOBAL && options->balancer == BALANCER_OPTIMAL &&
        nodes < cluster.num_nodes && equal_nodes(&cluster, width)) {
        cluster.num_nodes = (int)nodes;
        cluster.num_devices = cluster.num_nodes * width;
    }
    return cluster;
}

static enum status solve_with(const struct planner_problem *problem,
                              const struct planner_options *options, struct planner_result *result,
                              struct err *err)
{
    const struct cluster cluster = usable_nodes(problem, options);
    struct planner_problem fewer = *problem;
    fewer.setting.cluster = &cluster;
    struct err why = {0};
    enum status rc = ERR_INFEASIBLE;
    if (cluster.num_nodes < problem->setting.cluster->num_nodes)
        rc = solve_on(&fewer, options, result, &why);
    if (rc == ERR_INFEASIBLE) /* the error speaks of all devices */
        return solve_on(problem, options, result, err);
    return rc == OK ? OK : err_copy(err, &why);
}

/* The optimizer in host memory may leave room for a faster plan. Copies and the host's own work are less
 * certain than the rest of a step, so the plan must be this much faster. */
#define HOST_GAIN 1.05

/* A plan of OFFLOAD_FIT in place of *result that keeps the optimizer in host memory, if one is faster. */
static enum status move_to_host(const struct planner_problem *problem,
                                const struct planner_options *options,
                                struct planner_result *result, struct err *err)
{
    struct planner_options both = *options;
    struct planner_result other = {0};
    const double floor = result->samples_per_s * HOST_GAIN;
    both.offload = OFFLOAD_AUTO;
    both.judge.floor_per_s = fmax(floor, options->judge.floor_per_s);
    const enum status rc = solve_with(problem, &both, &other, err);
    if (rc == OK && other.samples_per_s >= both.judge.floor_per_s) {
        other.candidates += result->candidates;
        other.evaluated += result->evaluated;
        planner_result_clear(result);
        *result = other;
        return OK;
    }
    planner_result_clear(&other);
    return rc == ERR_INFEASIBLE ? OK : rc;
}

/* With OFFLOAD_FIT the optimizer goes to the host if no plan exists without, or where one with may be, and is,
 * HOST_GAIN faster. The error speaks of plans without. */
enum status planner_solve(const struct planner_problem *problem,
                          const struct planner_options *options, struct planner_result *result,
                          struct err *err)
{
    const bool fit = options->offload == OFFLOAD_FIT && may_offload(options);
    struct planner_options away = *options;
    struct err why = {0}, second = {0};
    enum status rc = solve_with(problem, options, result, &why);
    if (rc == OK && fit && result->gap > HOST_GAIN - 1)
        return move_to_host(problem, options, result, err);
    if (rc == ERR_INFEASIBLE && fit) {
        away.offload = OFFLOAD_OPTIMIZER;
        rc = solve_with(problem, &away, result, &second);
    }
    if (rc != OK)
        err_copy(err, second.status == OK || rc == ERR_INFEASIBLE ? &why : &second);
    return rc;
}

/* Whether options leave nothing to choose but K, R, M, the schedule, the place and the cut, which one
 * search counts. */
static bool one_layout(const struct planner_problem *problem, const struct planner_options *options)
{
    const bool host = options->offload == OFFLOAD_AUTO || options->offload == OFFLOAD_FIT;
    return options->balancer == BALANCER_OPTIMAL && !options->by_params && !options->target &&
           !(host && may_offload(options)) && !options->recompute_auto &&
           usable_nodes(problem, options).num_nodes == problem->setting.cluster->num_nodes;
}

enum status planner_only(const struct planner_problem *problem,
                         const struct planner_options *options, bool any_cut, struct plan *plan,
                         struct err *err)
{
    struct solver s = {.problem = problem, .options = options, .best_layout = -1, .err = err};
    struct layout *layouts = NULL;
    struct open_search one = {0};
    struct judged only = {0};
    int n = 0;
    bool found = false, one_cut = false;
    enum status rc = one_layout(problem, options) ? list_layouts(&s, &layouts, &n) : OK;
    if (rc == OK && n == 1) {
        begin(&s, &layouts[0], &one);
        if (one.begun == OK)
            one.begun = search_only(&one.search, &only, &one_cut, &found);
        if (one.begun == OK && found && (one_cut || any_cut))
            one.begun = search_make_plan(&one.search, &only, plan);
        if (one.begun == ERR_NOMEM) /* planner_solve() tells all else in the words of a search */
            rc = err_copy(err, &one.why);
    }
    free(only.node.first_item);
    open_clear(&one);
    free(layouts);
    return rc;
}
