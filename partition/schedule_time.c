/* When each op runs, by relaxation over the op lists: no events, no queue of times.
 *
 * Without shared links an op's start is the latest of a few ends (T1-T8, H1, H2 in workload.h), and
 * in a list each of these is known once the op is reached, except a message from another rank. So a
 * rank runs on until a message is missing, and goes on when it has been sent: each op is looked at
 * once, each wait once more. Replicas of a class behave alike up to the all-reduce and are run
 * once; then the tails (all-reduce, norm, update) join the classes. */
#include "partition/workload.h"

#include <stdlib.h>
#include <string.h>

struct rank_clock {
    int64_t next;              /* position in the list */
    int64_t now;               /* end of the last compute op */
    int64_t ready;             /* the next compute op starts no earlier: messages, cache reads */
    int64_t launched;          /* ops the host has launched */
    int64_t copy_in, copy_out; /* the copy engines are free from then */
    int64_t busy, first, last; /* of the compute stream; first is INT64_MAX before the first op */
    int64_t backward_end;      /* of the last op of the pipeline */
    int64_t *missing;          /* the message it waits for, or NULL */
};

struct timing {
    const struct schedule *full;
    const struct workload *workload;
    int64_t host_op_ns;
    int class_index;
    struct rank_clock *clocks; /* [class][rank] */
    int64_t *arrival; /* [edge][grad][microbatch], -1: not sent; used by one class after another */
    int64_t *backward_start, *backward_end; /* [stage], of its last backward op so far */
    uint8_t *backward_kind;                 /* [stage] */
    int64_t *bucket_ready;                  /* [bucket], latest over the classes */
    int64_t *reduced;                       /* [stage], end of its all-reduces */
    int64_t *tied;                          /* [class], end of TIED */
    int *stack, num_stacked;
    int64_t start, end; /* over all devices */
};

static int64_t max_ns(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct rank_clock *clock_of(const struct timing *t, int rank)
{
    return &t->clocks[(int64_t)t->class_index * t->full->num_ranks + rank];
}

/* The cell of the message that a send or receive names; *other is the stage at the far end. */
static inline int64_t *message(const struct timing *t, struct op op, int *edge, int *other)
{
    const struct workload *w = t->workload;
    const bool leaving = op.kind == OP_SEND_ACT || op.kind == OP_RECV_GRAD;
    const bool grad = op.kind >= OP_SEND_GRAD;
    *edge = leaving ? w->out_edge[w->out_first[op.stage] + op.arg]
                    : w->in_edge[w->in_first[op.stage] + op.arg];
    *other = leaving ? w->edges[*edge].to : w->edges[*edge].from;
    return &t->arrival[((int64_t)*edge * 2 + grad) * w->num_microbatches + op.microbatch];
}

/* H1: the i-th launched op may start when its launch has ended. */
static inline int64_t launch(const struct timing *t, struct rank_clock *clock)
{
    return t->host_op_ns > 0 ? ++clock->launched * t->host_op_ns : 0;
}

static inline void run_compute(const struct timing *t, struct rank_clock *clock, int64_t ns)
{
    const int64_t start = max_ns(max_ns(clock->now, clock->ready), launch(t, clock));
    if (start < clock->first) {
        clock->first = start;
    }
    clock->now = clock->last = start + ns;
    clock->busy += ns;
}

static void run_copy(struct timing *t, struct rank_clock *clock, struct op op, int64_t ns)
{
    if (t->workload->host_blocking) {
        run_compute(t, clock, ns);
    } else if (op.kind == OP_C) {
        const int64_t start = max_ns(clock->copy_in, launch(t, clock));
        clock->copy_in = start + ns;
        clock->ready = max_ns(clock->ready, clock->copy_in);
        t->start = start < t->start ? start : t->start;
    } else {
        clock->copy_out = max_ns(max_ns(clock->copy_out, clock->now), launch(t, clock)) + ns;
    }
}

/* Run rank k until it misses a message or reaches its tail. */
static void run_rank(struct timing *t, int k)
{
    const struct workload *w = t->workload;
    const struct rank_ops *list = &t->full->ranks[k];
    const struct stage_cost *stages = &w->stages[(int64_t)t->class_index * w->num_stages];
    const int last_microbatch = w->num_microbatches - 1;
    struct rank_clock *clock = clock_of(t, k);
    int edge, other;
    for (; clock->next < list->num_ops; clock->next++) {
        const struct op op = list->ops[clock->next];
        const struct stage_cost *stage = &stages[op.stage];
        const int mb = op.microbatch == last_microbatch ? MB_LAST : MB_FULL;
        switch (op.kind) {
        case OP_Z:
            run_compute(t, clock,
                        op.microbatch == OP_WHOLE_BATCH ? stage->whole_batch_ns[0]
                                                        : stage->op_ns[OP_Z][mb]);
            break;
        case OP_F:
        case OP_I:
        case OP_R:
            run_compute(t, clock, stage->op_ns[op.kind][mb]);
            break;
        case OP_B:
        case OP_W:
            run_compute(t, clock, stage->op_ns[op.kind][mb]);
            t->backward_start[op.stage] = clock->now - stage->op_ns[op.kind][mb];
            t->backward_end[op.stage] = clock->now;
            t->backward_kind[op.stage] = op.kind;
            break;
        case OP_C:
        case OP_P:
            run_copy(t, clock, op, workload_op_ns(w, t->class_index, op));
            break;
        case OP_SEND_ACT:
        case OP_SEND_GRAD: {
            int64_t *cell = message(t, op, &edge, &other);
            *cell =
                clock->now + workload_edge_ns(w, t->class_index, edge, op.kind == OP_SEND_GRAD, mb);
            const int receiver = t->full->rank_of_stage[other];
            if (clock_of(t, receiver)->missing == cell) {
                clock_of(t, receiver)->missing = NULL;
                t->stack[t->num_stacked++] = receiver;
            }
            break;
        }
        case OP_RECV_ACT:
        case OP_RECV_GRAD: {
            int64_t *cell = message(t, op, &edge, &other);
            if (*cell < 0) {
                clock->missing = cell;
                __builtin_prefetch(list->ops + clock->next + 8); /* for when it comes back */
                return;
            }
            clock->ready = max_ns(clock->ready, *cell);
            break;
        }
        case OP_ALLREDUCE: {
            const int bucket = w->first_bucket[op.stage] + op.arg;
            const int64_t lead = t->backward_kind[op.stage] == OP_W ? w->buckets[bucket].lead_w_ns
                                                                    : w->buckets[bucket].lead_ns;
            const int64_t ready =
                max_ns(t->backward_end[op.stage] - lead, t->backward_start[op.stage]);
            t->bucket_ready[bucket] = max_ns(t->bucket_ready[bucket], ready);
            break;
        }
        default: /* TIED, NORM, UPDATE: the tail */
            clock->backward_end = clock->now;
            return;
        }
    }
    clock->backward_end = clock->now;
}

static enum status run_class(struct timing *t, struct err *err)
{
    const struct schedule *full = t->full;
    const int K = full->num_ranks;
    memset(t->arrival, 0xff,
           (size_t)t->workload->num_edges * 2 * (size_t)full->num_microbatches *
               sizeof *t->arrival);
    for (int k = 0; k < K; k++) {
        clock_of(t, k)->first = INT64_MAX;
        t->stack[t->num_stacked++] = K - 1 - k;
    }
    while (t->num_stacked > 0) {
        run_rank(t, t->stack[--t->num_stacked]);
    }
    for (int k = 0; k < K; k++) {
        const struct rank_clock *clock = clock_of(t, k);
        if (clock->missing) {
            const struct op op = full->ranks[k].ops[clock->next];
            return err_set(err, ERR_INFEASIBLE, "deadlock: rank %d waits for ever at %d%s%d", k,
                           op.stage, op_kind_name(op.kind), op.microbatch);
        }
        t->start = clock->first < t->start ? clock->first : t->start;
    }
    return OK;
}

/* T4: the buckets of a stage one after another, over the stage's devices in replica order. */
static enum status run_allreduces(struct timing *t, const struct cluster *cluster,
                                  const struct cost *cost, const struct plan *plan,
                                  struct step_time *time, struct err *err)
{
    const struct workload *w = t->workload;
    if (w->num_buckets == 0) {
        return OK;
    }
    int *devices = malloc((size_t)w->num_replicas * sizeof *devices);
    if (!devices) {
        return err_nomem(err);
    }
    enum status rc = OK;
    int64_t all = 0;
    for (int s = 0; s < w->num_stages && rc == OK; s++) {
        for (int r = 0; r < w->num_replicas; r++) {
            devices[r] = plan->device[(int64_t)r * w->num_ranks + t->full->rank_of_stage[s]];
        }
        int64_t total = 0;
        for (int i = w->first_bucket[s]; i < w->first_bucket[s + 1]; i++) {
            const int64_t ns =
                cost_allreduce_ns(cost, cluster, devices, w->num_replicas, w->buckets[i].bytes);
            rc = step_add_ns(&all, ns, "all-reduces", err);
            if (rc != OK) {
                break;
            }
            t->reduced[s] = max_ns(t->reduced[s], t->bucket_ready[i]) + ns;
            total += ns;
        }
        time->allreduce_ns = max_ns(time->allreduce_ns, total);
        t->end = max_ns(t->end, t->reduced[s]);
    }
    free(devices);
    return rc;
}

/* T8; rank_reduced: the end of each rank's all-reduces. */
static void run_tied(struct timing *t, const int64_t *rank_reduced)
{
    const struct schedule *full = t->full;
    const int K = full->num_ranks;
    for (int c = 0; c < t->workload->num_classes && full->tied; c++) {
        for (int end = 0; end < 2; end++) {
            const int rank = full->rank_of_stage[end * (full->num_stages - 1)];
            const struct rank_clock *clock = &t->clocks[(int64_t)c * K + rank];
            t->tied[c] = max_ns(t->tied[c], max_ns(clock->now, rank_reduced[rank]));
        }
        t->tied[c] += workload_tied_ns(t->workload, c);
    }
}

/* T5, T6: norm and updates of all classes. */
static enum status run_tails(struct timing *t, struct step_time *time, struct err *err)
{
    const struct schedule *full = t->full;
    const struct workload *w = t->workload;
    const int K = full->num_ranks;
    const int64_t num_clocks = (int64_t)w->num_classes * K;
    int64_t norm = 0, *rank_reduced = calloc((size_t)K, sizeof *rank_reduced);
    enum status rc = OK;
    if (!rank_reduced) {
        return err_nomem(err);
    }
    for (int s = 0; s < full->num_stages; s++) {
        int64_t *end = &rank_reduced[full->rank_of_stage[s]];
        *end = max_ns(*end, t->reduced[s]);
    }
    run_tied(t, rank_reduced);
    for (int64_t i = 0; i < num_clocks; i++) {
        const struct rank_clock *clock = &t->clocks[i];
        const int64_t reduced = rank_reduced[i % K];
        norm = max_ns(norm, t->tied[i / K]);
        norm = max_ns(norm, max_ns(clock->now, reduced));
        time->allreduce_exposed_ns =
            max_ns(time->allreduce_exposed_ns, reduced - clock->backward_end);
    }
    norm += w->norm_ns;
    if (full->norm) {
        t->end = max_ns(t->end, norm);
    }
    for (int64_t i = 0; i < num_clocks && rc == OK; i++) {
        struct rank_clock *clock = &t->clocks[i];
        const struct rank_ops *list = &full->ranks[i % K];
        t->class_index = (int)(i / K);
        for (; clock->next < list->num_ops; clock->next++) {
            const struct op op = list->ops[clock->next];
            if (op.kind == OP_TIED) {
                clock->ready = max_ns(clock->ready, t->tied[t->class_index]);
            } else if (op.kind == OP_NORM) {
                clock->ready = max_ns(clock->ready, norm);
            } else if (op.kind == OP_UPDATE) {
                clock->ready = max_ns(clock->ready, t->reduced[op.stage]);
                run_compute(t, clock, workload_op_ns(w, t->class_index, op));
            } else {
                rc = err_set(err, ERR_INFEASIBLE, "rank %d: %d%s%d behind the tail of its list",
                             (int)(i % K), op.stage, op_kind_name(op.kind), op.microbatch);
                break;
            }
        }
        t->end = max_ns(t->end, max_ns(clock->last, clock->copy_out));
    }
    free(rank_reduced);
    return rc;
}

void step_time_clear(struct step_time *time)
{
    free(time->rank_busy_ns);
    free(time->rank_first_ns);
    free(time->rank_last_ns);
    *time = (struct step_time){0};
}

static void timing_clear(struct timing *t)
{
    free(t->clocks);
    free(t->arrival);
    free(t->backward_start);
    free(t->backward_end);
    free(t->backward_kind);
    free(t->bucket_ready);
    free(t->reduced);
    free(t->tied);
    free(t->stack);
}

enum status schedule_time(const struct schedule *full, const struct workload *workload,
                          const struct cluster *cluster, const struct cost *cost,
                          const struct plan *plan, struct step_time *time, struct err *err)
{
    enum status rc = OK;
    const size_t K = (size_t)full->num_ranks, S = (size_t)full->num_stages;
    struct step_time got = {0};
    struct timing t = {.full = full,
                       .workload = workload,
                       .host_op_ns = workload->host_blocking ? 0 : cluster->host_op_ns,
                       .start = INT64_MAX};
    t.clocks = calloc((size_t)workload->num_classes * K, sizeof *t.clocks);
    t.arrival = malloc(((size_t)workload->num_edges * 2 * (size_t)full->num_microbatches + 1) *
                       sizeof *t.arrival);
    t.backward_start = calloc(S, sizeof *t.backward_start);
    t.backward_end = calloc(S, sizeof *t.backward_end);
    t.backward_kind = calloc(S, sizeof *t.backward_kind);
    t.bucket_ready = calloc((size_t)workload->num_buckets + 1, sizeof *t.bucket_ready);
    t.reduced = calloc(S, sizeof *t.reduced);
    t.tied = calloc((size_t)workload->num_classes, sizeof *t.tied);
    t.stack = calloc(K, sizeof *t.stack);
    got.rank_busy_ns = calloc(K, sizeof *got.rank_busy_ns);
    got.rank_first_ns = calloc(K, sizeof *got.rank_first_ns);
    got.rank_last_ns = calloc(K, sizeof *got.rank_last_ns);
    if (!t.clocks || !t.arrival || !t.backward_start || !t.backward_end || !t.backward_kind ||
        !t.bucket_ready || !t.reduced || !t.tied || !t.stack || !got.rank_busy_ns ||
        !got.rank_first_ns || !got.rank_last_ns) {
        rc = err_nomem(err);
        goto out;
    }
    for (int c = 0; c < workload->num_classes && rc == OK; c++) {
        t.class_index = c;
        rc = run_class(&t, err);
    }
    if (rc == OK) {
        rc = run_allreduces(&t, cluster, cost, plan, &got, err);
    }
    if (rc == OK) {
        rc = run_tails(&t, &got, err);
    }
    if (rc != OK) {
        goto out;
    }
    t.start = t.start == INT64_MAX ? 0 : t.start;
    got.step_ns = t.end - t.start;
    t.class_index = workload->class_of_replica[0];
    for (size_t k = 0; k < K; k++) {
        const struct rank_clock *clock = clock_of(&t, (int)k);
        got.rank_busy_ns[k] = clock->busy;
        got.rank_first_ns[k] = clock->first == INT64_MAX ? 0 : clock->first - t.start;
        got.rank_last_ns[k] = clock->first == INT64_MAX ? 0 : clock->last - t.start;
    }
    *time = got;
    got = (struct step_time){0};
out:
    timing_clear(&t);
    step_time_clear(&got);
    return rc;
}
