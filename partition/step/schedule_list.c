/* List scheduling over virtual time.
 *
 * Each rank chooses its best next op by the rules (better()). The rank whose chosen op starts first
 * commits it. So a message whose arrival is still unknown cannot arrive before the op that is
 * decided now, except for ops of 0 ns. Micro-batches pass every stage in ascending order. Read
 * schedule_list() at the end first, then better() and commit(). */
#include "partition/step/schedule_auto.h"

#include "partition/base/arrays.h"

#include <stdlib.h>
#include <string.h>

struct choice {
    int64_t start; /* INT64_MAX: nothing can run */
    struct op op;
};

struct list_state {
    const struct workload *w;
    const struct list_rules *rules;
    int num_microbatches;
    struct arrays arrays;                            /* those below */
    int *next_forward, *next_backward, *next_weight; /* [stage] */
    /* [stage][microbatch]: the latest arrival so far, and the number of messages still missing. */
    int64_t *input_at, *grad_at;
    uint16_t *inputs_missing, *grads_missing;
    int64_t *free_at;           /* [rank]: end of its last op */
    int *live;                  /* [rank]: pairs in flight */
    int *stages_first, *stages; /* stages of rank k: stages[stages_first[k] ..], ascending */
    struct choice *choices;     /* [rank] */
};

static size_t pair(const struct list_state *l, int stage, int microbatch)
{
    return (size_t)stage * (size_t)l->num_microbatches + (size_t)microbatch;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool is_frozen(const struct list_state *l, int stage)
{
    return stage < l->w->num_frozen_stages;
}

static bool weight_only(const struct list_state *l, int stage)
{
    return l->w->i_folded_into_w && stage == l->w->num_frozen_stages;
}

static int64_t op_ns(const struct list_state *l, enum op_kind kind, int stage, int microbatch)
{
    return workload_op_ns(
        l->w, 0,
        (struct op){.microbatch = microbatch, .stage = (uint16_t)stage, .kind = (uint8_t)kind});
}

/* Whether a is the better choice. Both ops can start; each is F, Z or a backward. */
static bool better(const struct list_state *l, const struct choice *a, const struct choice *b)
{
    const bool forward_a = a->op.kind == OP_F || a->op.kind == OP_Z;
    const bool forward_b = b->op.kind == OP_F || b->op.kind == OP_Z;
    if (b->start == INT64_MAX)
        return true;
    if (forward_a != forward_b && !l->rules->forward_first) {
        /* The rank may wait a little for the backward. */
        const int64_t wait =
            op_ns(l, OP_F, forward_a ? a->op.stage : b->op.stage, 0) / 100 * l->rules->wait_percent;
        return forward_a ? a->start + wait < b->start : a->start <= b->start + wait;
    }
    if (a->start != b->start)
        return a->start < b->start;
    if (forward_a != forward_b)
        return forward_a;
    /* Prefer the forward of the last stage and the backward of the first stage, because these bring
     * a micro-batch closest to its end. */
    return forward_a ? a->op.stage > b->op.stage : a->op.stage < b->op.stage;
}

static void choose(struct list_state *l, int rank)
{
    const int64_t now = l->free_at[rank];
    const int first = l->stages_first[rank], end = l->stages_first[rank + 1];
    struct choice best = {.start = INT64_MAX};
    int weight_stage = -1;
    for (int i = first; i < end; i++) {
        const int s = l->stages[i];
        const int f = l->next_forward[s], b = l->next_backward[s];
        /* Keep room for one pair of each later chunk, so that it can take this chunk's output. */
        const bool room = is_frozen(l, s) || l->live[rank] < l->rules->limits[rank] - (end - 1 - i);
        if (f < l->num_microbatches && room && l->inputs_missing[pair(l, s, f)] == 0) {
            const struct choice c = {
                .start = later(now, l->input_at[pair(l, s, f)]),
                .op = {
                       .microbatch = f, .stage = (uint16_t)s, .kind = is_frozen(l, s) ? OP_Z : OP_F}
            };
            if (better(l, &c, &best))
                best = c;
        }
        if (!is_frozen(l, s) && b < f && l->grads_missing[pair(l, s, b)] == 0) {
            const enum op_kind kind = !l->rules->split ? OP_B : weight_only(l, s) ? OP_W : OP_I;
            const struct choice c = {
                .start = later(now, l->grad_at[pair(l, s, b)]),
                .op = {.microbatch = b, .stage = (uint16_t)s, .kind = (uint8_t)kind}
            };
            if (better(l, &c, &best))
                best = c;
        }
        if (l->next_weight[s] < b &&
            (weight_stage < 0 || l->next_weight[s] <= l->next_weight[weight_stage]))
            weight_stage = s;
    }
    if (weight_stage >= 0) {
        const int m = l->next_weight[weight_stage];
        const int64_t ns = op_ns(l, OP_W, weight_stage, m);
        if (best.start == INT64_MAX || ns - ns / 100 * l->rules->fill_percent <= best.start - now) {
            best = (struct choice){
                .start = now,
                .op = {.microbatch = m, .stage = (uint16_t)weight_stage, .kind = OP_W}
            };
        }
    }
    l->choices[rank] = best;
}

/* Run the rank's chosen op and record its arrival at the stages that wait for it. */
static void commit(struct list_state *l, int rank)
{
    const struct workload *w = l->w;
    const struct choice c = l->choices[rank];
    const int s = c.op.stage, m = c.op.microbatch;
    const int mb = m == l->num_microbatches - 1 ? MB_LAST : MB_FULL;
    const bool backward =
        c.op.kind == OP_B || c.op.kind == OP_I || (c.op.kind == OP_W && weight_only(l, s));
    const int64_t end = c.start + op_ns(l, (enum op_kind)c.op.kind, s, m);
    int64_t held = end; /* by blocking sends */
    l->free_at[rank] = end;
    if (c.op.kind == OP_F || c.op.kind == OP_Z) {
        l->next_forward[s]++;
        l->live[rank] += c.op.kind == OP_F;
        for (int i = w->out_first[s]; i < w->out_first[s + 1]; i++) {
            const int e = w->out_edge[i], to = w->edges[e].to;
            int64_t *at = &l->input_at[pair(l, to, m)];
            const int64_t there = end + workload_edge_ns(w, 0, e, false, mb);
            *at = later(*at, there);
            held = later(held, there);
            l->inputs_missing[pair(l, to, m)]--;
            choose(l, w->rank_of_stage[to]);
        }
    }
    if (backward) {
        l->next_backward[s]++;
        for (int i = w->in_first[s]; i < w->in_first[s + 1]; i++) {
            const int e = w->in_edge[i], from = w->edges[e].from;
            if (w->edges[e].grad) {
                int64_t *at = &l->grad_at[pair(l, from, m)];
                const int64_t there = end + workload_edge_ns(w, 0, e, true, mb);
                *at = later(*at, there);
                held = later(held, there);
                l->grads_missing[pair(l, from, m)]--;
                choose(l, w->rank_of_stage[from]);
            }
        }
    }
    if (c.op.kind == OP_B || c.op.kind == OP_W) {
        l->next_weight[s]++;
        l->live[rank]--;
    }
    if (w->sends_blocking)
        l->free_at[rank] = held;
    choose(l, rank);
}

static bool list_init(struct list_state *l)
{
    const struct workload *w = l->w;
    const size_t S = (size_t)w->num_stages, K = (size_t)w->num_ranks;
    const size_t pairs = S * (size_t)l->num_microbatches;
    l->next_forward = arrays_new(&l->arrays, S, sizeof(int));
    l->next_backward = arrays_new(&l->arrays, S, sizeof(int));
    l->next_weight = arrays_new(&l->arrays, S, sizeof(int));
    l->input_at = arrays_new(&l->arrays, pairs, sizeof(int64_t));
    l->grad_at = arrays_new(&l->arrays, pairs, sizeof(int64_t));
    l->inputs_missing = arrays_new(&l->arrays, pairs, sizeof(uint16_t));
    l->grads_missing = arrays_new(&l->arrays, pairs, sizeof(uint16_t));
    l->free_at = arrays_new(&l->arrays, K, sizeof(int64_t));
    l->live = arrays_new(&l->arrays, K, sizeof(int));
    l->stages_first = arrays_new(&l->arrays, K + 1, sizeof(int));
    l->stages = arrays_new(&l->arrays, S, sizeof(int));
    l->choices = arrays_new(&l->arrays, K, sizeof *l->choices);
    if (l->arrays.failed)
        return false;
    int at = 0;
    for (int k = 0; k < w->num_ranks; k++) {
        l->stages_first[k] = at;
        for (int s = 0; s < w->num_stages; s++)
            if (w->rank_of_stage[s] == k)
                l->stages[at++] = s;
    }
    l->stages_first[w->num_ranks] = at;
    for (int s = 0; s < w->num_stages; s++) {
        int grads = 0;
        for (int i = w->out_first[s]; i < w->out_first[s + 1]; i++)
            grads += w->edges[w->out_edge[i]].grad;
        for (int m = 0; m < l->num_microbatches; m++) {
            l->inputs_missing[pair(l, s, m)] = (uint16_t)(w->in_first[s + 1] - w->in_first[s]);
            l->grads_missing[pair(l, s, m)] = (uint16_t)grads;
        }
    }
    return true;
}

enum status schedule_list(const struct workload *workload, const struct list_rules *rules,
                          struct schedule *compute, bool *complete, struct err *err)
{
    const int K = workload->num_ranks, S = workload->num_stages, M = workload->num_microbatches;
    struct list_state l = {.w = workload, .rules = rules, .num_microbatches = M};
    struct schedule got = {0};
    int64_t total = 0, *room = calloc((size_t)K, sizeof *room);
    enum status rc = room && list_init(&l) ? OK : err_nomem(err);
    if (rc != OK)
        goto out;
    for (int s = 0; s < S; s++) {
        const int kinds = is_frozen(&l, s) ? 1 : rules->split && !weight_only(&l, s) ? 3 : 2;
        room[workload->rank_of_stage[s]] += (int64_t)kinds * M;
        total += (int64_t)kinds * M;
    }
    rc = schedule_alloc(SCHEDULE_SEARCH, K, S, M, room, &got, err);
    if (rc != OK)
        goto out;
    memcpy(got.rank_of_stage, workload->rank_of_stage, (size_t)S * sizeof(int));
    got.num_frozen_stages = workload->num_frozen_stages;
    got.drop_first_input = rules->split && workload->i_folded_into_w;
    for (int k = 0; k < K; k++)
        choose(&l, k);
    int64_t done = 0;
    for (; done < total; done++) {
        int next = 0;
        for (int k = 1; k < K; k++)
            next = l.choices[k].start < l.choices[next].start ? k : next;
        if (l.choices[next].start == INT64_MAX)
            break;
        got.ranks[next].ops[got.ranks[next].num_ops++] = l.choices[next].op;
        commit(&l, next);
    }
    *complete = done == total;
    if (*complete) {
        *compute = got;
        got = (struct schedule){0};
    }
out:
    schedule_clear(&got);
    arrays_clear(&l.arrays);
    free(room);
    return rc;
}
