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
/* AUTO divides the tokens of a sample if each part keeps this many. Shorter parts save no memory that
 * recompute and shards do not save for less, and every C multiplies the layouts. At most MOST_CONTEXTS
 * of them are searched, the smallest last. If a step has fewer samples than there are devices, only
 * tokens are left to divide; a job that itself says "auto" wants all C. */
enum { LEAST_TOKENS = 8192, LEAST_TOKENS_FEW = 2048, LEAST_TOKENS_ASKED = 64, MOST_CONTEXTS = 3 };
/* Groups that span whole nodes are searched up to this T. */
#define GROUP_BEYOND 8

struct solver {
    const struct planner_problem *problem;
    const struct planner_options *options;
    struct planner_layout_fate *fates; /* owned, room for all layouts */
    int num_layouts;
    struct planner_result best;     /* owned */
    int best_layout;                /* its fate; -1: none yet */
    double bound_rate;              /* no plan of the layouts searched so far is faster */
    int64_t candidates, evaluated;  /* of the layouts searched so far */
    struct planner_result textbook; /* owned: the best of textbooks(), if there is one */
    struct search_common common;
    bool unfinished;    /* the watch ended the search of a layout that had no plan yet */
    struct err refused; /* of the layout that came nearest to the memory, or of the smallest */
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
    const bool asked = ask->at.context == AUTO;
    const int least = asked                         ? LEAST_TOKENS_ASKED
                      : turns->options->few_samples ? LEAST_TOKENS_FEW
                                                    : LEAST_TOKENS;
    int most = 1, n = 0;
    values[n++] = ask->open[LAYOUT_CONTEXT] ? 1 : layout_context(&ask->at);
    while (ask->open[LAYOUT_CONTEXT] && !cost_is_measured(setting->cost) && most * 2 <= groups &&
           setting->model->seq / (most * 2) >= least &&
           model_context_check(setting->model, most * 2, CONTEXT_RING, tensor, NULL) == OK)
        most *= 2;
    for (int C = most; C > 1 && (asked || n <= MOST_CONTEXTS); C /= 2)
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

/* The layout of a textbook, as far as the ask leaves it open. */
static struct layout textbook_layout(const struct solver *s, const struct textbook *book)
{
    const struct model *model = s->problem->setting.model;
    const int node = widest_node(s->problem->setting.cluster);
    struct layout layout = {.tensor = book->tensor > 0 ? node / book->tensor : 1,
                            .expert = 1,
                            .expert_tensor = 1,
                            .context = 1,
                            .shard = book->shard};
    layout.sequence_parallel = layout.tensor > 1;
    for (int E = 2; book->experts && E <= node && E <= model->experts; E++)
        if (model->experts % E == 0)
            layout.expert = E;
    layout.shard_group = book->group ? node : 0;
    return layout;
}

/* Set *layout to that of a textbook. false: the search would not try it. */
static bool find_textbook(const struct solver *s, const struct textbook *book,
                          struct layout *layout)
{
    const struct layout want = textbook_layout(s, book);
    struct layout_turns turns = {.setting = &s->problem->setting, .options = s->options};
    bool found = !book->experts || want.expert > 1;
    for (int d = 0; d < LAYOUT_DIM_COUNT && found; d++) {
        const bool open = d == LAYOUT_SHARD || d == LAYOUT_TENSOR || d == LAYOUT_EXPERT,
                   most = d == LAYOUT_CONTEXT && book->context;
        const int value = layout_get(&want, (enum layout_dim)d);
        const int n = list_values[d](&turns, turns.values[d]);
        int at = most ? 1 : 0;
        while (at < n && n > 1 && !most && turns.values[d][at] != value)
            at++;
        if (at == n && n > 0 && !open && !most)
            at = 0;
        found = at < n;
        if (found)
            layout_set(&turns.at, (enum layout_dim)d, turns.values[d][at]);
    }
    if (!found || !layout_runs(s->options, &turns.at))
        return false;
    *layout = turns.at;
    return true;
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
    if (s->refused.status == OK || over <= s->refused_over) {
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
    bool asked_more; /* the judge was asked about several plans of this textbook layout */
    enum status begun;
};

static void open_clear(struct open_search *one)
{
    if (one->open)
        search_clear(&one->search);
    tensor_group_free(one->group);
    *one = (struct open_search){0};
}

/* Tell what the layouts searched so far have come to, before the next search. No bound is known while
 * more are left after it. */
static void set_common(struct solver *s, bool last)
{
    s->common.candidates = s->candidates;
    s->common.evaluated = s->evaluated;
    s->common.rest_rate = last ? s->bound_rate : INFINITY;
    s->common.floor_share =
        s->best_layout >= 0 && s->best.samples_per_s >= s->textbook.samples_per_s
            ? s->best.memory_share
            : s->textbook.memory_share;
}

/* Begin the search of a layout, with its families or bare. The layouts whose group is refused have no
 * search. */
static void begin(struct solver *s, const struct layout *layout, bool bare, struct open_search *one)
{
    *one = (struct open_search){.problem = *s->problem, .options = *s->options};
    if (without_pipeline(s->options->target, layout))
        one->options.num_ranks = 1;
    enum status rc = tensor_group_new(&s->problem->setting, layout, &one->group, &one->why);
    one->problem.setting = tensor_group_setting(one->group, &s->problem->setting);
    one->problem.layout = *layout;
    if (rc == OK) {
        one->open = true;
        rc = (bare ? search_open_bare : search_begin)(&one->search, &s->common, &one->problem,
                                                      &one->options, &one->why);
    }
    one->begun = rc;
}

/* The rate of the best plan that was timed; 0 if there is none. A layout that was refused before its
 * search began has no search to ask. */
static double open_rate(const struct open_search *one)
{
    if (!one->open || one->begun != OK || one->search.best < 0)
        return 0;
    const struct judged *best = &one->search.judged[one->search.best];
    return node_rate(&best->node, judged_ns(best));
}

static double best_rate(const struct solver *s)
{
    return s->best_layout < 0 ? 0 : s->best.samples_per_s;
}

/* A plan must make more samples per second to be looked for. The search may find the textbook's plan
 * again, with its bounds. */
static double floor_rate(const struct solver *s)
{
    return fmax(fmax(best_rate(s), (1 - 1e-9) * s->textbook.samples_per_s),
                s->options->judge.floor_per_s);
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
    } else if (rc == ERR_UNFINISHED) {
        s->unfinished = true;
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
        begin(s, &layout, false, one);
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
    return rc;
}

/* --- textbooks --------------------------------------------------------------------------------- */

/* The searches of textbooks, and the layouts that are searched. */
struct books {
    const struct layout *layouts;
    double *rates; /* by layout: of its best textbook plan; 0: none is nearly as fast as the best */
    int *lengths;  /* by layout: of that plan's pipelines */
    int num_layouts;
    struct open_search *open;
    int num_open;
    double rate, share; /* of the fastest, and of its memory */
    double asked_rate;  /* of the fastest by the judge's times; 0: it was asked about none */
};

/* Plans of a layout are timed further if they are no slower than this share of the fastest. */
#define BOOK_SHARE 0.9
/* Layouts whose fastest textbook plan is varied: once the textbooks are timed, and at the end. */
#define FIRST_VARIED 4
#define LAST_VARIED 16
/* The ops that the judge may see when it is asked about several plans of layouts. */
#define BOOKS_OPS ((int64_t)1 << 22)

static void note_book(struct books *books, const struct open_search *one)
{
    const double rate = open_rate(one);
    for (int i = 0; i < books->num_layouts; i++)
        if (layout_equal(&one->problem.layout, &books->layouts[i])) {
            books->rates[i] = rate;
            books->lengths[i] = rate > 0 ? one->search.judged[one->search.best].node.num_ranks : 0;
        }
    if (rate > books->rate)
        books->share = one->search.judged[one->search.best].share;
    books->rate = fmax(books->rate, rate);
}

/* The rate below which plans are not timed further. On shared links the judge may find the fastest much slower
 * than it seemed, and then more of the others count. */
static double book_floor(const struct books *books)
{
    return BOOK_SHARE *
           (books->asked_rate > 0 ? fmin(books->asked_rate, books->rate) : books->rate);
}

/* Time the textbook plans of a layout, and keep its search if they are nearly as fast as the best. */
static enum status time_book(struct solver *s, const struct layout *layout, struct books *books)
{
    struct open_search *const one = &books->open[books->num_open];
    set_common(s, false);
    begin(s, layout, true, one);
    if (one->begun == OK) {
        one->search.floor_rate = book_floor(books);
        s->common.floor_share = books->share;
        one->begun = search_textbook(&one->search);
        s->evaluated += one->search.evaluated;
        one->search.evaluated = 0;
    }
    enum status rc = OK;
    if (one->begun != OK && one->begun != ERR_INFEASIBLE)
        rc = err_copy(s->err, &one->why);
    note_book(books, one);
    if (open_rate(one) > 0)
        books->num_open++;
    else
        open_clear(one);
    return rc;
}

/* Vary the fastest plans of `most` layouts, in the order of their rates. */
static enum status vary_books(struct solver *s, struct books *books, int most)
{
    enum status rc = OK;
    double below = INFINITY;
    for (int round = 0; round < most && !s->common.stopped && rc == OK; round++) {
        struct open_search *next = NULL;
        for (int i = 0; i < books->num_open; i++) {
            struct open_search *const one = &books->open[i];
            if (one->open && !one->search.asking && !search_is_varied(&one->search) &&
                open_rate(one) < below && (!next || open_rate(one) > open_rate(next)))
                next = one;
        }
        if (!next)
            break;
        below = open_rate(next);
        set_common(s, false);
        next->search.floor_rate = book_floor(books);
        s->common.floor_share = books->share;
        rc = search_vary(&next->search);
        if (rc != OK)
            err_copy(s->err, &next->why);
        s->evaluated += next->search.evaluated;
        next->search.evaluated = 0;
        note_book(books, next);
    }
    return rc;
}

/* The rate of a layout's best plan, by the judge's times once it was asked. */
static double book_rate(const struct open_search *one, bool asked)
{
    return one->search.asking == asked ? open_rate(one) : 0;
}

/* The layout with the best rate of those that the judge was asked about or was not; `more`: also of those that it
 * was asked about several plans of. */
static struct open_search *best_book(struct books *books, bool asked, bool more)
{
    struct open_search *best = NULL;
    for (int i = 0; i < books->num_open; i++)
        if ((more || !books->open[i].asked_more) && book_rate(&books->open[i], asked) > 0 &&
            (!best || open_rate(&books->open[i]) > open_rate(best)))
            best = &books->open[i];
    return best;
}

/* Try the best plan of a layout on the others that group the devices in the same way. */
static enum status spread_book(struct solver *s, struct books *books,
                               const struct open_search *from)
{
    enum status rc = OK;
    const struct layout *layout = &from->problem.layout;
    for (int i = 0; i < books->num_open && rc == OK; i++) {
        struct open_search *const one = &books->open[i];
        const struct layout *at = &one->problem.layout;
        if (one == from || !one->open || one->begun != OK || at->tensor != layout->tensor ||
            layout_context(at) != layout_context(layout))
            continue;
        set_common(s, false);
        one->search.floor_rate = BOOK_SHARE * open_rate(from);
        rc = search_adopt(&one->search, &from->search);
        one->search.floor_rate = 0;
        if (rc != OK)
            err_copy(s->err, &one->why);
        s->evaluated += one->search.evaluated;
        one->search.evaluated = 0;
    }
    return rc;
}

/* Ask the judge about the timed plans: one of each layout, the fastest by the planner's times first, as long
 * as one may be the best, then more of the fastest layouts. */
static enum status ask_books(struct solver *s, struct books *books)
{
    struct open_search *next;
    enum status rc = OK;
    int64_t asked = 0;
    for (int i = 0; i < books->num_open; i++)
        books->open[i].search.floor_rate = 0;
    set_common(s, false);
    while (rc == OK && (next = best_book(books, false, false)) &&
           open_rate(next) > books->asked_rate) {
        rc = search_ask_one(&next->search);
        if (rc != OK)
            err_copy(s->err, &next->why);
        books->asked_rate = fmax(books->asked_rate, open_rate(next));
        note_book(books, next);
    }
    while (rc == OK && asked < BOOKS_OPS && !s->common.judged_enough &&
           (next = best_book(books, true, false))) {
        const int64_t before = next->search.asked_ops;
        next->asked_more = true;
        set_common(s, false);
        next->search.floor_rate = BOOK_SHARE * books->asked_rate;
        rc = search_ask_more(&next->search);
        next->search.floor_rate = 0;
        if (rc != OK)
            err_copy(s->err, &next->why);
        s->evaluated += next->search.evaluated;
        next->search.evaluated = 0;
        asked += next->search.asked_ops - before;
        if (rc == OK && open_rate(next) > books->asked_rate)
            rc = spread_book(s, books, next);
        books->asked_rate = fmax(books->asked_rate, open_rate(next));
        note_book(books, next);
    }
    return rc;
}

/* Time all layouts again that the judge was not asked about, down to what the floor has become. */
static enum status books_again(struct solver *s, struct books *books, const struct layout *seen,
                               int num_seen)
{
    const int before = books->num_open;
    enum status rc = OK;
    for (int i = 0; i < before; i++)
        if (!books->open[i].search.asking)
            open_clear(&books->open[i]);
    for (int n = 0; n < num_seen && rc == OK && !s->common.stopped; n++) {
        bool asked = false;
        for (int i = 0; i < before && !asked; i++)
            asked = books->open[i].open && layout_equal(&books->open[i].problem.layout, &seen[n]);
        if (!asked)
            rc = time_book(s, &seen[n], books);
    }
    THEN(vary_books(s, books, LAST_VARIED));
    THEN(ask_books(s, books));
    return rc;
}

/* Keep the plan of the fastest as the textbook's. */
static enum status answer_books(struct solver *s, struct books *books)
{
    struct open_search *const best = best_book(books, s->options->judge.step_ns, true);
    struct planner_result result = {0};
    if (!best)
        return OK;
    const enum status rc = search_answer(&best->search, &result);
    s->textbook = result;
    return rc == OK || rc == ERR_INFEASIBLE ? OK : err_copy(s->err, &best->why);
}

/* Time the textbooks that the ask allows, then such plans of all other layouts. Greedy rules and our
 * executor's few layouts need none. rates, lengths: num_layouts entries, zeroed. */
static enum status textbooks(struct solver *s, const struct layout *layouts, int num_layouts,
                             double *rates, int *lengths)
{
    const struct planner_options *options = s->options;
    int num_rows;
    const struct textbook *rows = textbook_list(&num_rows);
    struct books books = {.layouts = layouts,
                          .rates = rates,
                          .lengths = lengths,
                          .num_layouts = num_layouts,
                          .rate = options->judge.floor_per_s};
    if (options->balancer != BALANCER_OPTIMAL || options->by_params || s->problem->with_device_0 ||
        s->problem->cache.use == CACHE_WANTED)
        return OK;
    const int most = num_rows + num_layouts;
    struct layout *seen = calloc((size_t)most, sizeof *seen);
    books.open = calloc(2 * (size_t)most, sizeof *books.open); /* books_again() leaves gaps */
    enum status rc = seen && books.open ? OK : err_nomem(s->err);
    int n = 0;
    for (int b = 0; b < most && rc == OK && !s->common.stopped; b++) {
        bool new = true;
        if (b == num_rows)
            rc = vary_books(s, &books, FIRST_VARIED);
        if (b < num_rows)
            new = find_textbook(s, &rows[b], &seen[n]);
        else
            seen[n] = layouts[b - num_rows];
        for (int i = 0; i < n && new; i++)
            new = !layout_equal(&seen[n], &seen[i]);
        if (rc == OK && new)
            rc = time_book(s, &seen[n++], &books);
    }
    THEN(vary_books(s, &books, LAST_VARIED));
    if (s->options->judge.step_ns)
        THEN(ask_books(s, &books));
    if (books.asked_rate > 0 && books.asked_rate < books.rate)
        THEN(books_again(s, &books, seen, n));
    THEN(answer_books(s, &books));
    for (int i = 0; i < books.num_open; i++)
        open_clear(&books.open[i]);
    free(books.open);
    free(seen);
    return rc;
}

/* Make the textbook's plan the best result, if the search was ended before it found one as fast. */
static enum status prefer_textbook(struct solver *s)
{
    struct planner_result *book = &s->textbook;
    if (book->samples_per_s <= best_rate(s) || book->samples_per_s < s->options->judge.floor_per_s)
        return OK;
    int at = 0;
    while (at < s->num_layouts && !layout_equal(&s->fates[at].layout, &book->plan.layout))
        at++;
    if (at == s->num_layouts)
        s->fates[s->num_layouts++] = (struct planner_layout_fate){.layout = book->plan.layout};
    s->fates[at].samples_per_s = book->samples_per_s;
    if (s->best_layout >= 0)
        s->fates[s->best_layout].verdict = PLANNER_SLOWER;
    free(book->lengths);
    book->lengths = NULL;
    book->num_lengths = 0;
    s->bound_rate = fmax(s->bound_rate, book->samples_per_s);
    const int n = s->num_layouts;
    s->num_layouts = at; /* merge_result() notes the layout of a better result */
    const enum status rc = merge_result(s, book);
    s->num_layouts = n;
    return rc;
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
    best->searched.complete = !s->common.stopped && !s->common.judged_enough;
    best->candidates = s->candidates;
    best->searched.judged = s->evaluated;
    s->fates[s->best_layout].verdict = PLANNER_CHOSEN;
    best->layouts = s->fates;
    best->num_layouts = s->num_layouts;
    s->fates = NULL;
}

/* The layout that was not searched whose textbook plan is the fastest; among equals the last one,
 * because large groups fit a little memory soonest. */
static int next_layout(const double *rates, const bool *done, int n)
{
    int best = -1;
    for (int i = n - 1; i >= 0; i--)
        if (!done[i] && (best < 0 || rates[i] > rates[best]))
            best = i;
    return best;
}

/* Whether items of two layouts take equal times: all but what the replicas divide is equal. */
static bool same_items(const struct layout *a, const struct layout *b)
{
    struct layout other = *b;
    other.shard = a->shard;
    other.shard_group = a->shard_group;
    other.offload = a->offload;
    return layout_equal(a, &other);
}

/* There is no time for a layout: find its bound alone, which is that of each layout with equal items. The
 * fates from `first` on are of such layouts. */
static enum status bound_one(struct solver *s, const struct layout *layout, int first)
{
    struct planner_layout_fate *fate = &s->fates[s->num_layouts++];
    *fate = (struct planner_layout_fate){.layout = *layout, .verdict = PLANNER_BOUND};
    s->unfinished = true;
    for (int i = first; i + 1 < s->num_layouts; i++)
        if (same_items(layout, &s->fates[i].layout)) {
            fate->bound_per_s = s->fates[i].bound_per_s;
            fate->verdict = s->fates[i].verdict;
            return OK;
        }
    struct open_search one = {0};
    begin(s, layout, true, &one);
    if (one.begun == OK)
        one.begun = search_ceiling(&one.search, &fate->bound_per_s);
    s->bound_rate = fmax(s->bound_rate, fate->bound_per_s);
    enum status rc = OK;
    if (one.begun == ERR_INFEASIBLE)
        fate->verdict = PLANNER_NONE;
    else if (one.begun != OK)
        rc = err_copy(s->err, &one.why);
    open_clear(&one);
    return rc;
}

static enum status search_all(struct solver *s, const struct layout *layouts, int n);

/* Search one layout for pipelines of one length with some schedules, as if a job had named them. *result has no
 * plan if there is none. */
static enum status search_alone(struct solver *s, const struct layout *layout, int num_ranks,
                                unsigned schedules, struct planner_result *result)
{
    struct planner_options options = *s->options;
    struct planner_layout_fate fates[2] = {0};
    struct solver one = {.problem = s->problem,
                         .options = &options,
                         .fates = fates,
                         .best_layout = -1,
                         .candidates = s->candidates, /* progress counts on */
                         .evaluated = s->evaluated,
                         .err = s->err};
    options.layout = (struct layout_ask){.at = *layout};
    options.num_ranks = num_ranks;
    options.schedules = schedules;
    enum status rc = search_all(&one, layout, 1);
    THEN(prefer_textbook(&one));
    s->evaluated = one.evaluated;
    if (rc == OK) {
        *result = one.best;
        one.best = (struct planner_result){0};
    }
    planner_result_clear(&one.best);
    planner_result_clear(&one.textbook);
    return rc;
}

/* Where there are more layouts than this, as of models with experts, this many are first searched at the lengths
 * of their textbooks. That takes a tenth of the whole search of a layout, and what it finds rules more out. */
#define NARROW_BEYOND 64
#define NARROW_MOST 8

static enum status search_narrow(struct solver *s, const struct layout *layouts, int n,
                                 const double *rates, const int *lengths)
{
    bool *done = calloc((size_t)n + 1, sizeof *done);
    enum status rc = done ? OK : err_nomem(s->err);
    for (int i = 0; i < NARROW_MOST && rc == OK && !search_is_over(&s->common); i++) {
        const int next = next_layout(rates, done, n);
        struct planner_result result = {0};
        if (lengths[next] == 0)
            break;
        done[next] = true;
        rc = search_alone(s, &layouts[next], lengths[next], s->options->schedules, &result);
        if (rc == OK && result.samples_per_s > s->textbook.samples_per_s) {
            const struct planner_result slower = s->textbook;
            s->textbook = result;
            result = slower;
        }
        planner_result_clear(&result);
    }
    free(done);
    return rc;
}

/* Time the textbooks, then search all layouts, that of the fastest first: what it reaches rules most
 * others out. */
static enum status search_all(struct solver *s, const struct layout *layouts, int n)
{
    double *rates = calloc((size_t)n + 1, sizeof *rates);
    int *lengths = calloc((size_t)n + 1, sizeof *lengths);
    bool *done = calloc((size_t)n + 1, sizeof *done);
    enum status rc =
        rates && lengths && done ? textbooks(s, layouts, n, rates, lengths) : err_nomem(s->err);
    if (n > NARROW_BEYOND)
        THEN(search_narrow(s, layouts, n, rates, lengths));
    const bool any = s->textbook.samples_per_s > 0 || s->options->judge.floor_per_s > 0;
    int late = -1; /* the fate of the first layout that the watch leaves no time for */
    for (int i = 0; i < n && rc == OK; i++) {
        struct open_search one = {0};
        const int next = next_layout(rates, done, n);
        done[next] = true;
        set_common(s, i + 1 == n);
        if (late < 0 && s->common.stopped && any)
            late = s->num_layouts;
        if (late >= 0) {
            rc = bound_one(s, &layouts[next], late);
        } else {
            begin(s, &layouts[next], false, &one);
            rc = search_one(s, &one);
        }
    }
    free(rates);
    free(lengths);
    free(done);
    return rc;
}

/* --- where links are shared ------------------------------------------------------------------------ */

/* The searches of search_nearest(), and how near the best plan those are that they begin with. */
#define ALONE_MOST 6
#define ALONE_SHARE 0.98

/* Put a result in place of the best. The bounds stay. */
static enum status take_alone(struct solver *s, struct planner_result *result)
{
    const int n = s->num_layouts;
    int at = 0;
    free(result->lengths);
    result->lengths = NULL;
    result->num_lengths = 0;
    while (!layout_equal(&s->fates[at].layout, &result->plan.layout))
        at++;
    s->fates[s->best_layout].verdict = PLANNER_SLOWER;
    s->fates[at].samples_per_s = result->samples_per_s;
    s->bound_rate = fmax(s->bound_rate, result->samples_per_s);
    s->num_layouts = at; /* merge_result() notes the layout of a better result */
    const enum status rc = merge_result(s, result);
    s->num_layouts = n;
    return rc;
}

/* Cuts for shared links are found by climbing, and where that ends depends on the plans it was compared
 * with. So the layouts and lengths of the best plans are asked for once more, each with each of the best
 * plans' schedules, as if a job had named them. */
static enum status search_nearest(struct solver *s)
{
    const struct planner_result *best = &s->best;
    struct plan like[ALONE_MOST];
    enum schedule_kind kinds[ALONE_MOST];
    int num_like = 0, num_kinds = 0;
    enum status rc = OK;
    const unsigned schedules = s->options->schedules;
    const bool alone =
        s->num_layouts == 1 && s->options->num_ranks != AUTO && (schedules & (schedules - 1)) == 0;
    if (alone || s->best_layout < 0 || best->num_best == 0 || search_is_over(&s->common) ||
        best->best[0].judged_ns <= best->best[0].unshared_ns)
        return OK;
    for (int i = 0; i < best->num_best; i++) {
        const struct plan *plan = &best->best[i].plan;
        if (best->best[i].samples_per_s < ALONE_SHARE * best->samples_per_s)
            break;
        bool seen = num_like == ALONE_MOST;
        for (int j = 0; j < num_like && !seen; j++)
            seen = like[j].num_ranks == plan->num_ranks &&
                   layout_equal(&like[j].layout, &plan->layout);
        if (!seen)
            like[num_like++] = *plan; /* without what it owns */
        seen = num_kinds == ALONE_MOST;
        for (int j = 0; j < num_kinds && !seen; j++)
            seen = kinds[j] == plan->schedule;
        if (!seen)
            kinds[num_kinds++] = plan->schedule;
    }
    for (int i = 0; i < num_like * num_kinds && i < ALONE_MOST && rc == OK; i++) {
        const struct plan *plan = &like[i / num_kinds];
        const enum schedule_kind kind = kinds[i % num_kinds];
        struct planner_result result = {0};
        if (plan->num_ranks == 1 && kind != plan->schedule) /* all are alike */
            continue;
        rc = search_alone(s, &plan->layout, plan->num_ranks, 1u << kind, &result);
        if (rc == OK && result.samples_per_s > best_rate(s))
            rc = take_alone(s, &result);
        planner_result_clear(&result);
    }
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
    s.fates = calloc((size_t)n + 2, sizeof *s.fates);
    if (rc == OK && !s.fates)
        rc = err_nomem(err);
    THEN(search_all(&s, layouts, n));
    THEN(prefer_textbook(&s));
    THEN(search_nearest(&s));
    if (rc == OK && n == 0)
        rc = err_set(err, ERR_INFEASIBLE, "%s runs no layout that the job allows",
                     options->target ? options->target->name : "the planner");
    if (rc == OK && s.best_layout < 0 && s.unfinished)
        rc = err_set(err, ERR_UNFINISHED,
                     "no plan for model '%s' yet: %lld of %lld candidates were tried",
                     problem->setting.model->name, (long long)s.evaluated, (long long)s.candidates);
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
    planner_result_clear(&s.textbook);
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

/* If all nodes are equal, the search looks at the first ones only: as many as the batch can use. R
 * divides the batch, K is at most the number of items, and a rank is on at most as many nodes as it has
 * groups (rank_places.h). The result borrows from the cluster. If every node is used, it is the whole
 * cluster. */
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

/* Whether the watch gives another search any time. */
static bool time_is_left(const struct planner_judge *judge, const struct planner_result *result)
{
    const struct planner_progress progress = {.best_per_s = result->samples_per_s,
                                              .memory_share = result->memory_share};
    return !judge->watch || judge->watch(judge->watch_ctx, &progress);
}

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
        other.searched.judged += result->searched.judged;
        planner_result_clear(result);
        *result = other;
        return OK;
    }
    planner_result_clear(&other);
    return rc == ERR_INFEASIBLE || rc == ERR_UNFINISHED ? OK : rc;
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
    if (rc == OK && fit && result->gap > HOST_GAIN - 1 && time_is_left(&options->judge, result))
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
        begin(&s, &layouts[0], false, &one);
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
