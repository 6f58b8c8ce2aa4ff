/* planner_solve(): one search for each layout, a T and a shard mode. A layout is searched with its
 * own model, cluster and costs (tensor_group.h). What an earlier layout reached is the floor of the next
 * search, which leaves out what cannot beat it. Read planner_solve() first. */
#include <math.h>
#include <stdlib.h>

#include "partition/tensor_group.h"
#include "partition/model_shard.h"
#include "partition/planner_search.h"

struct solver {
    const struct planner_problem *problem;
    const struct planner_options *options;
    struct planner_layout_fate *fates; /* owned, room for all layouts */
    int num_layouts;
    struct planner_result best; /* owned */
    int best_layout;            /* its fate; -1: none yet */
    double bound_rate;          /* no plan of the layouts searched so far is faster */
    int64_t candidates, evaluated;
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

/* List the T that may be searched, in ascending order; returns how many. */
static int tensors_of(const struct solver *s, int *tensors, int room)
{
    const struct setting *setting = &s->problem->setting;
    const int widest = widest_node(setting->cluster);
    int n = 0;
    if (!s->options->tensor_auto) {
        tensors[n++] = s->options->tensor > 1 ? s->options->tensor : 1;
        return n;
    }
    for (int T = 1; T <= widest && n < room; T++)
        if (T == 1 ||
            (!cost_is_measured(setting->cost) &&
             model_shard_check(setting->model, T, s->options->sequence_parallel, NULL) == OK))
            tensors[n++] = T;
    return n;
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
static enum status take(struct solver *s, struct planner_result *result)
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

static enum status search_one(struct solver *s, const struct planner_layout *layout)
{
    struct planner_problem problem = *s->problem;
    struct planner_result result = {0};
    struct planner_layout_fate *fate = &s->fates[s->num_layouts];
    struct tensor_group *made = NULL;
    struct err why = {0};
    enum status rc = tensor_group_new(&s->problem->setting, layout->tensor,
                                      layout->sequence_parallel, &made, &why);
    *fate = (struct planner_layout_fate){.layout = *layout, .verdict = PLANNER_NONE};
    problem.setting = tensor_group_setting(made, &s->problem->setting);
    problem.layout = *layout;
    if (rc == OK)
        rc = search_layout(&problem, s->options, s->best_layout < 0 ? 0 : s->best.samples_per_s,
                           &result, fate, &why);
    s->candidates += result.candidates;
    s->evaluated += result.evaluated;
    if (rc == OK) {
        const double samples = (double)result.plan.num_replicas * (double)result.plan.batch;
        s->bound_rate =
            fmax(s->bound_rate, samples * 1e9 / ((double)result.lower_bound_ns + result.fill_ns));
        rc = take(s, &result);
    } else if (rc == ERR_INFEASIBLE) {
        note_refusal(s, fate, &why);
        rc = OK;
    } else {
        err_copy(s->err, &why);
    }
    s->num_layouts++;
    planner_result_clear(&result);
    tensor_group_free(made);
    return rc;
}

/* Complete the best result: what holds over all layouts. */
static void finish_best(struct solver *s)
{
    struct planner_result *best = &s->best;
    const struct plan *plan = &best->plan;
    const double samples = (double)plan->num_replicas * (double)plan->batch;
    if (s->num_layouts > 1) {
        const double bound = samples * 1e9 / s->bound_rate - best->fill_ns;
        best->lower_bound_ns =
            bound_max(1, bound_min(plan->step_ns, (int64_t)floor(bound * (1 + 1e-12))));
        best->gap = (double)plan->step_ns / (double)best->lower_bound_ns - 1;
    }
    best->candidates = s->candidates;
    best->evaluated = s->evaluated;
    s->fates[s->best_layout].verdict = PLANNER_CHOSEN;
    best->layouts = s->fates;
    best->num_layouts = s->num_layouts;
    s->fates = NULL;
}

enum status planner_solve(const struct planner_problem *problem,
                          const struct planner_options *options, struct planner_result *result,
                          struct err *err)
{
    enum { MOST_TENSORS = 64 };
    struct solver s = {.problem = problem, .options = options, .best_layout = -1, .err = err};
    int tensors[MOST_TENSORS];
    const int num_tensors = tensors_of(&s, tensors, MOST_TENSORS);
    const int num_shards = options->shard_auto ? SHARD_MODE_COUNT : 1;
    enum status rc = OK;
    s.fates = calloc((size_t)num_tensors * SHARD_MODE_COUNT, sizeof *s.fates);
    if (!s.fates)
        return err_nomem(err);
    /* Wide groups first: a large model mostly wants one, and its rate rules the others out. */
    for (int i = num_tensors - 1; i >= 0 && rc == OK; i--)
        for (int shard = 0; shard < num_shards && rc == OK; shard++) {
            const struct planner_layout layout = {
                .tensor = tensors[i],
                .sequence_parallel = options->sequence_parallel && tensors[i] > 1,
                .shard = options->shard_auto ? (enum shard_mode)shard : options->shard};
            rc = search_one(&s, &layout);
        }
    if (rc == OK && s.best_layout < 0)
        rc = err_copy(err, &s.refused);
    if (rc == OK) {
        finish_best(&s);
        *result = s.best;
        s.best = (struct planner_result){0};
    }
    free(s.fates);
    planner_result_clear(&s.best);
    return rc;
}
