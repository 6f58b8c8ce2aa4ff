/* The time of each op, by relaxation over the op lists, without events or a queue of times.
 *
 * If no link is shared, an op starts at the latest of a few ends. In list order all of these ends
 * are known when the op is reached, except the arrival of a message from another rank. So a rank
 * runs until a message is missing, and continues when that message has been sent. Each op is looked
 * at once, and once more for each wait. Replicas of one class have equal times up to the
 * all-reduces and are run once. The classes meet in the tails of the lists (TIED, NORM, UPDATE).
 *
 * Read run_rank() first, then run_allreduces() and run_tails(). */
#include "partition/step/schedule_time.h"

#include <stdlib.h>
#include <string.h>

struct rank_clock {
    int64_t next;              /* position in the list */
    int64_t now;               /* end of the last compute op */
    int64_t ready;             /* messages, cache reads and blocking sends let the next compute op
                                  start then */
    int64_t launched;          /* number of ops that the host has launched */
    int64_t copy_in, copy_out; /* times from which the copy engines are free */
    int64_t busy, first, last; /* of the compute stream; first is INT64_MAX before the first op */
    int64_t backward_end;      /* end of the rank's last compute op before the tail */
    int64_t *missing;          /* the message that the rank waits for, or NULL */
};

struct timing {
    const struct schedule *full;
    const struct workload *workload;
    int64_t host_op_ns;
    int class_index;
    struct rank_clock *clocks;       /* [class][rank] */
    struct rank_clock *class_clocks; /* the clocks of the class that is run now */
    int64_t *arrival; /* [edge][grad][microbatch] of the class that is run now; -1: not sent */
    int64_t *backward_start, *backward_end; /* [stage], of its last backward op so far */
    uint8_t *backward_kind;                 /* [stage] */
    int64_t *bucket_ready;                  /* [bucket], latest over the classes */
    int64_t *reduced;                       /* [model stage], end of its all-reduces */
    int64_t *tied_from, *tied;              /* [class], start and end of TIED */
    int *stack, num_stacked;
    int64_t start, end; /* over all devices */
    bool stopped;       /* by a class that takes too long */
    /* Only where a chain is wanted, of the class that is run now: the start of each compute op, by its
     * place in the block of the lists, and by the index of a message's arrival the place of its send. */
    int64_t *starts, *sent;
    int *class_of_bucket;  /* [bucket]: the class that completes it last */
    int *first_of_reduced; /* [stage]: the bucket from which on all-reduces follow each other */
};

static int64_t max_ns(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct rank_clock *clock_of(const struct timing *t, int rank)
{
    return &t->class_clocks[rank];
}

static void set_class(struct timing *t, int class_index)
{
    t->class_index = class_index;
    t->class_clocks = &t->clocks[(int64_t)class_index * t->full->num_ranks];
}

/* The edge of a send or receive: one that leaves the op's stage, or one that enters it. */
static inline int edge_of(const struct workload *w, struct op op, bool leaving)
{
    return leaving ? w->out_edge[w->out_first[op.stage] + op.arg]
                   : w->in_edge[w->in_first[op.stage] + op.arg];
}

/* The stored arrival time of a message; -1 until the message is sent. */
static inline int64_t *arrival_of(const struct timing *t, int edge, bool grad, int microbatch)
{
    return &t->arrival[((int64_t)edge * 2 + grad) * t->workload->num_microbatches + microbatch];
}

/* Launch the rank's next op; returns the end of the launch, before which it cannot start
 * (launch-async). */
static inline int64_t launch(const struct timing *t, struct rank_clock *clock)
{
    return t->host_op_ns > 0 ? ++clock->launched * t->host_op_ns : 0;
}

/* Run a compute op; returns its start. */
static inline int64_t run_compute(const struct timing *t, struct rank_clock *clock, int64_t ns)
{
    const int64_t start = max_ns(max_ns(clock->now, clock->ready), launch(t, clock));
    if (start < clock->first)
        clock->first = start;
    clock->now = clock->last = start + ns;
    clock->busy += ns;
    return start;
}

/* Run C or P. */
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

/* Send a message and wake the rank that waits for it. A blocking send holds the sender until the
 * message arrives (time-3b). */
static inline void send(struct timing *t, struct rank_clock *clock, const struct op *at, bool grad)
{
    const struct workload *w = t->workload;
    const struct op op = *at;
    const int mb = op.microbatch == w->num_microbatches - 1 ? MB_LAST : MB_FULL;
    const int edge = edge_of(w, op, !grad);
    const int rank = t->full->rank_of_stage[grad ? w->edges[edge].from : w->edges[edge].to];
    struct rank_clock *receiver = clock_of(t, rank);
    int64_t *cell = arrival_of(t, edge, grad, op.microbatch);
    *cell = clock->now + workload_edge_ns(w, t->class_index, edge, grad, mb);
    if (t->sent)
        t->sent[cell - t->arrival] = at - t->full->block;
    if (w->sends_blocking)
        clock->ready = max_ns(clock->ready, *cell);
    if (receiver->missing == cell) {
        receiver->missing = NULL;
        t->stack[t->num_stacked++] = rank;
    }
}

/* Receive a message. Returns false if the rank has to wait for it. */
static inline bool receive(const struct timing *t, struct rank_clock *clock, struct op op,
                           bool grad)
{
    int64_t *cell = arrival_of(t, edge_of(t->workload, op, grad), grad, op.microbatch);
    if (*cell < 0)
        clock->missing = cell;
    else
        clock->ready = max_ns(clock->ready, *cell);
    return *cell >= 0;
}

/* The time of the F or B at *at, which runs as one op with its neighbour in the list. */
static int64_t pair_part_ns(const struct timing *t, const struct op *at)
{
    const struct op *f = at->kind == OP_F ? at : at - 1;
    int64_t forward_ns;
    const int64_t ns = workload_pair_ns(t->workload, t->class_index, f[0], f[1], &forward_ns);
    return at == f ? forward_ns : ns - forward_ns;
}

/* The time of a B or W whose arg is not 0: of a pair, or one that leaves weight gradients out. */
static int64_t backward_ns(const struct timing *t, const struct op *at)
{
    return op_overlapped(*at, OP_B) ? pair_part_ns(t, at)
                                    : workload_op_ns(t->workload, t->class_index, *at);
}

/* Run Z, F, I or R; returns its start. */
static inline int64_t run_forward(const struct timing *t, struct rank_clock *clock,
                                  const struct op *at, const struct stage_cost *stage, int mb)
{
    const struct op op = *at;
    if (op.kind == OP_Z && op.microbatch == OP_WHOLE_BATCH)
        return run_compute(t, clock, stage->whole_batch_ns[0]);
    if (op.kind == OP_F && op_overlapped(op, OP_F))
        return run_compute(t, clock, pair_part_ns(t, at));
    return run_compute(t, clock, stage->op_ns[op.kind][mb]);
}

/* Run B or W; returns its start. */
static inline int64_t run_backward(struct timing *t, struct rank_clock *clock, const struct op *at,
                                   const struct stage_cost *stage, int mb)
{
    const struct op op = *at;
    const int64_t start =
        run_compute(t, clock, op.arg ? backward_ns(t, at) : stage->op_ns[op.kind][mb]);
    t->backward_start[op.stage] = start;
    t->backward_end[op.stage] = clock->now;
    t->backward_kind[op.stage] = op.kind;
    return start;
}

/* The bucket of an all-reduce is ready when its last backward op has passed its gradients. */
static inline void complete_bucket(struct timing *t, struct op op)
{
    const int bucket = t->workload->first_bucket[op.stage] + op.arg;
    const struct bucket *const b = &t->workload->buckets[bucket];
    const int64_t lead = t->backward_kind[op.stage] == OP_W ? b->lead_w_ns : b->lead_ns;
    const int64_t ready = max_ns(t->backward_end[op.stage] - lead, t->backward_start[op.stage]);
    if (ready > t->bucket_ready[bucket]) {
        t->bucket_ready[bucket] = ready;
        t->class_of_bucket[bucket] = t->class_index;
    }
}

/* Run rank k until it misses a message or reaches its tail. */
static void run_rank(struct timing *t, int k)
{
    const struct workload *w = t->workload;
    const struct rank_ops *list = &t->full->ranks[k];
    const struct stage_cost *stages = &w->stages[(int64_t)t->class_index * w->num_stages];
    const int last_microbatch = w->num_microbatches - 1;
    const struct op *const end = list->ops + list->num_ops;
    struct rank_clock *clock = clock_of(t, k);
    const struct op *at = list->ops + clock->next;
    int64_t *const starts = t->starts ? t->starts + (list->ops - t->full->block) : NULL;
    for (; at < end; at++) {
        const struct op op = *at;
        const int mb = op.microbatch == last_microbatch ? MB_LAST : MB_FULL;
        int64_t start;
        switch (op.kind) {
        case OP_Z:
        case OP_F:
        case OP_I:
        case OP_R:
            start = run_forward(t, clock, at, &stages[op.stage], mb);
            if (starts)
                starts[at - list->ops] = start;
            break;
        case OP_B:
        case OP_W:
            start = run_backward(t, clock, at, &stages[op.stage], mb);
            if (starts)
                starts[at - list->ops] = start;
            break;
        case OP_C:
        case OP_P:
            run_copy(t, clock, op, workload_op_ns(w, t->class_index, op));
            break;
        case OP_SEND_ACT:
        case OP_SEND_GRAD:
            send(t, clock, at, op.kind == OP_SEND_GRAD);
            break;
        case OP_RECV_ACT:
        case OP_RECV_GRAD:
            if (!receive(t, clock, op, op.kind == OP_RECV_GRAD))
                goto missing;
            break;
        case OP_ALLREDUCE:
            complete_bucket(t, op);
            break;
        default: /* TIED, NORM, UPDATE: the tail */
            goto tail;
        }
    }
tail:
    clock->backward_end = clock->now;
    clock->next = at - list->ops;
    return;
missing:
    clock->next = at - list->ops;
    __builtin_prefetch(at + 8); /* needed when the rank continues */
}

enum status schedule_deadlock(const struct schedule *full, int replica, int rank, int64_t next,
                              struct err *err)
{
    const struct op op = full->ranks[rank].ops[next];
    const enum status rc =
        err_set(err, ERR_INFEASIBLE,
                "deadlock: rank %d of replica %d waits forever at op %lld, %s of stage %d, "
                "micro-batch %d",
                rank, replica, (long long)next, op_kind_name((enum op_kind)op.kind), op.stage,
                op.microbatch);
    err_hint(err, "'elapse schedule --check FILE' names the order that cannot work");
    return rc;
}

static enum status run_class(struct timing *t, struct err *err)
{
    const struct schedule *full = t->full;
    const int K = full->num_ranks;
    const size_t cells = (size_t)t->workload->num_edges * 2 * (size_t)full->num_microbatches;
    memset(t->arrival, 0xff, cells * sizeof *t->arrival);
    for (int k = 0; k < K; k++) {
        clock_of(t, k)->first = INT64_MAX;
        t->stack[t->num_stacked++] = K - 1 - k;
    }
    while (t->num_stacked > 0) {
        const int k = t->stack[--t->num_stacked];
        run_rank(t, k);
    }
    for (int k = 0; k < K; k++) {
        const struct rank_clock *clock = clock_of(t, k);
        if (clock->missing) {
            int replica = 0;
            while (t->workload->class_of_replica[replica] != t->class_index)
                replica++;
            return schedule_deadlock(full, replica, k, clock->next, err);
        }
        t->start = clock->first < t->start ? clock->first : t->start;
    }
    return OK;
}

/* Run the buckets of a stage one after another, over the devices that hold the stage (time-4). */
static enum status run_allreduces(struct timing *t, const struct plan *plan, struct step_time *time,
                                  struct err *err)
{
    const struct workload *w = t->workload;
    if (w->num_buckets == 0)
        return OK;
    const int n = w->num_pipelines;
    int *devices = malloc((size_t)n * sizeof *devices);
    if (!devices)
        return err_nomem(err);
    enum status rc = OK;
    int64_t all = 0;
    t->class_index = 0;
    for (int s = 0; s < w->num_stages && rc == OK; s++) {
        t->first_of_reduced[s] = -1;
        if (w->setting.cost->allreduce_ns)
            workload_holders(w, plan, s, devices);
        int64_t total = 0, bytes = -1, ns = 0; /* of the bucket before: most are of one size */
        for (int i = w->first_bucket[s]; i < w->first_bucket[s + 1]; i++) {
            if (w->buckets[i].bytes != bytes)
                ns = workload_bucket_ns(w, s, devices, w->buckets[i].bytes);
            bytes = w->buckets[i].bytes;
            rc = step_add_ns(&all, ns, "all-reduces", err);
            if (rc != OK)
                break;
            if (t->bucket_ready[i] >= t->reduced[s])
                t->first_of_reduced[s] = i;
            const int64_t start = max_ns(t->reduced[s], t->bucket_ready[i]);
            t->reduced[s] = start + ns;
            total += ns;
        }
        time->allreduce_ns = max_ns(time->allreduce_ns, total);
        t->end = max_ns(t->end, t->reduced[s]);
    }
    free(devices);
    return rc;
}

/* Run TIED of each class (time-8). rank_reduced[k] is the end of rank k's all-reduces. */
static void run_tied(struct timing *t, const int64_t *rank_reduced)
{
    const struct schedule *full = t->full;
    const int K = full->num_ranks;
    for (int c = 0; c < t->workload->num_classes && full->tied; c++) {
        for (int end = 0; end < 2; end++) {
            const int rank = full->rank_of_stage[end * (full->num_stages - 1)];
            const struct rank_clock *clock = &t->clocks[(int64_t)c * K + rank];
            t->tied_from[c] = max_ns(t->tied_from[c], max_ns(clock->now, rank_reduced[rank]));
        }
        t->tied[c] = t->tied_from[c] + workload_tied_ns(t->workload, c);
    }
}

/* Run the tail of a rank's list: TIED, NORM and UPDATE (time-5, time-6). */
static enum status run_tail(struct timing *t, int k, int64_t norm_end, struct err *err)
{
    const struct rank_ops *list = &t->full->ranks[k];
    struct rank_clock *clock = clock_of(t, k);
    const int c = t->class_index;
    for (; clock->next < list->num_ops; clock->next++) {
        const struct op op = list->ops[clock->next];
        if (op.kind == OP_TIED) {
            clock->ready = max_ns(clock->ready, t->tied[c]);
        } else if (op.kind == OP_NORM) {
            clock->ready = max_ns(clock->ready, norm_end);
        } else if (op.kind == OP_UPDATE) {
            clock->ready = max_ns(clock->ready, t->reduced[op.stage]);
            run_compute(t, clock, workload_op_ns(t->workload, c, op));
        } else {
            return err_set(err, ERR_INFEASIBLE, "rank %d: %d%s%d after the tail of its list", k,
                           op.stage, op_kind_name(op.kind), op.microbatch);
        }
    }
    t->end = max_ns(t->end, max_ns(clock->last, clock->copy_out));
    return OK;
}

/* Run the tails of all classes. NORM waits for all of them. */
static enum status run_tails(struct timing *t, struct step_time *time, struct err *err)
{
    const struct schedule *full = t->full;
    const struct workload *w = t->workload;
    const int K = full->num_ranks;
    const int64_t num_clocks = (int64_t)w->num_classes * K;
    int64_t norm_from = 0, *rank_reduced = calloc((size_t)K, sizeof *rank_reduced);
    enum status rc = OK;
    if (!rank_reduced)
        return err_nomem(err);
    for (int s = 0; s < full->num_stages; s++) {
        int64_t *end = &rank_reduced[full->rank_of_stage[s]];
        *end = max_ns(*end, t->reduced[s]);
    }
    run_tied(t, rank_reduced);
    for (int64_t i = 0; i < num_clocks; i++) {
        const struct rank_clock *clock = &t->clocks[i];
        const int64_t reduced = rank_reduced[i % K];
        norm_from = max_ns(norm_from, t->tied[i / K]);
        norm_from = max_ns(norm_from, max_ns(clock->now, reduced));
        time->allreduce_exposed_ns =
            max_ns(time->allreduce_exposed_ns, reduced - clock->backward_end);
    }
    free(rank_reduced);
    const int64_t norm_end = norm_from + w->norm_ns;
    if (full->norm)
        t->end = max_ns(t->end, norm_end);
    for (int64_t i = 0; i < num_clocks && rc == OK; i++) {
        set_class(t, (int)(i / K));
        rc = run_tail(t, (int)(i % K), norm_end, err);
    }
    return rc;
}

/* --- the critical chain ------------------------------------------------------------------------ */

void step_chain_clear(struct step_chain *chain)
{
    free(chain->counts);
    free(chain->message_ns);
    *chain = (struct step_chain){0};
}

int64_t step_chain_stage_ns(const struct step_chain *chain, int stage,
                            const struct stage_cost *cost)
{
    const int *count = chain->counts + (ptrdiff_t)stage * CHAIN_KINDS * MB_SIZES;
    int64_t ns = 0;
    for (int kind = 0; kind < CHAIN_KINDS; kind++)
        for (int mb = 0; mb < MB_SIZES; mb++)
            ns += *count++ * cost->op_ns[kind][mb];
    return ns;
}

static int size_of(const struct workload *w, struct op op)
{
    return op.microbatch == w->num_microbatches - 1 ? MB_LAST : MB_FULL;
}

/* The last compute op of a rank before `at`; NULL: there is none. */
static const struct op *op_before(const struct timing *t, int rank, const struct op *at)
{
    const struct op *first = t->full->ranks[rank].ops;
    while (at > first)
        if ((--at)->kind < CHAIN_KINDS)
            return at;
    return NULL;
}

static int64_t start_of(const struct timing *t, const struct op *at)
{
    return t->starts[at - t->full->block];
}

static int64_t end_of(const struct timing *t, const struct op *at)
{
    return start_of(t, at) + workload_op_ns(t->workload, t->class_index, *at);
}

/* The op whose message ends at `end` and is received, or holds its sender, between `before` (NULL: the
 * beginning of the list) and `at`. Adds the message to the chain. NULL: there is none. */
static const struct op *message_before(const struct timing *t, int rank, const struct op *before,
                                       const struct op *at, int64_t end, struct step_chain *chain)
{
    const struct workload *w = t->workload;
    const struct op *first = before ? before + 1 : t->full->ranks[rank].ops;
    while (at-- > first) {
        const bool in = at->kind == OP_RECV_ACT || at->kind == OP_RECV_GRAD,
                   out = w->sends_blocking && (at->kind == OP_SEND_ACT || at->kind == OP_SEND_GRAD);
        if (!in && !out)
            continue;
        const bool grad = at->kind == OP_RECV_GRAD || at->kind == OP_SEND_GRAD;
        const int edge = edge_of(w, *at, grad == in);
        const int64_t *cell = arrival_of(t, edge, grad, at->microbatch);
        if (*cell != end)
            continue;
        const int64_t ns = workload_edge_ns(w, t->class_index, edge, grad, size_of(w, *at));
        const struct op *send = t->full->block + t->sent[cell - t->arrival];
        const struct op *sender = op_before(t, t->full->rank_of_stage[send->stage], send);
        if (!sender || end_of(t, sender) + ns != end)
            continue;
        *(edge < t->full->num_stages - 1 ? &chain->message_ns[edge] : &chain->fixed_ns) += ns;
        return sender;
    }
    return NULL;
}

/* When the host has launched an op (launch-async). */
static int64_t launched_ns(const struct timing *t, int rank, const struct op *at)
{
    int64_t launches = 1;
    while ((at = op_before(t, rank, at)))
        launches++;
    return launches * t->host_op_ns;
}

/* Follow the chain back from an op to the beginning of the step. False: something else than ops,
 * messages and launches makes an op wait. */
static bool trace_back(const struct timing *t, const struct op *at, struct step_chain *chain)
{
    for (;;) {
        const int rank = t->full->rank_of_stage[at->stage];
        const int64_t start = start_of(t, at);
        if (at->arg != 0) /* a pair, or a backward that leaves something out */
            return false;
        if (at->microbatch == OP_WHOLE_BATCH)
            chain->fixed_ns += workload_op_ns(t->workload, t->class_index, *at);
        else
            chain->counts[(at->stage * CHAIN_KINDS + at->kind) * MB_SIZES +
                          size_of(t->workload, *at)]++;
        if (start == t->start)
            return true;
        const struct op *before = op_before(t, rank, at);
        const struct op *from = before && end_of(t, before) == start
                                    ? before
                                    : message_before(t, rank, before, at, start, chain);
        if (!from) {
            chain->fixed_ns += start - t->start;
            return launched_ns(t, rank, at) == start;
        }
        at = from;
    }
}

/* Where a chain enters the tails: at the last op of a rank in a class of replicas, or at the last
 * backward of a stage, whose gradients are all-reduced then. */
struct entry {
    bool known;
    int class_index, rank, stage; /* stage -1: the rank's last op */
};

/* The stage among those of a rank (-1: of all) whose all-reduces end at `end`. */
static struct entry entry_by_reduce(const struct timing *t, int rank, int64_t end)
{
    for (int s = 0; s < t->full->num_stages && t->workload->num_buckets > 0; s++)
        if ((rank < 0 || t->full->rank_of_stage[s] == rank) && t->reduced[s] == end &&
            t->first_of_reduced[s] >= 0)
            return (struct entry){true, t->class_of_bucket[t->first_of_reduced[s]],
                                  t->full->rank_of_stage[s], s};
    return (struct entry){0};
}

/* The op or all-reduce that ends at `end`, when a rank of a class begins its tail. */
static struct entry entry_of(const struct timing *t, int class_index, int rank, int64_t end)
{
    const struct rank_clock *clock = &t->clocks[(int64_t)class_index * t->full->num_ranks + rank];
    return clock->backward_end == end ? (struct entry){true, class_index, rank, -1}
                                      : entry_by_reduce(t, rank, end);
}

/* The entry of the tail of a rank that ends with the step. */
static struct entry tail_entry(const struct timing *t, int class_index, int rank)
{
    const struct schedule *full = t->full;
    const struct rank_ops *list = &full->ranks[rank];
    const int64_t num_clocks = (int64_t)t->workload->num_classes * full->num_ranks;
    int64_t end = t->end;
    struct entry entry = {0};
    for (const struct op *at = list->ops + list->num_ops - 1;
         at >= list->ops && at->kind == OP_UPDATE && !entry.known; at--) {
        end -= workload_op_ns(t->workload, class_index, *at);
        if (t->reduced[at->stage] == end)
            entry = entry_by_reduce(t, rank, end);
    }
    if (!entry.known)
        entry = entry_of(t, class_index, rank, end);
    if (!entry.known && full->norm)
        end -= t->workload->norm_ns;
    for (int64_t i = 0; i < num_clocks && full->norm && !entry.known; i++)
        entry = entry_of(t, (int)(i / full->num_ranks), (int)(i % full->num_ranks), end);
    for (int last = 0; last < 2 && full->tied && end == t->tied[class_index] && !entry.known;
         last++)
        entry = entry_of(t, class_index, full->rank_of_stage[last * (full->num_stages - 1)],
                         end - workload_tied_ns(t->workload, class_index));
    return entry;
}

/* Run a class again, so that the starts of its ops are known. */
static enum status run_again(struct timing *t, int class_index, struct err *err)
{
    set_class(t, class_index);
    memset(t->class_clocks, 0, (size_t)t->full->num_ranks * sizeof *t->class_clocks);
    return run_class(t, err);
}

/* The op at which a chain enters the tails, in the class that was run last. */
static const struct op *entry_op(const struct timing *t, const struct entry *entry)
{
    const struct rank_ops *list = &t->full->ranks[entry->rank];
    const struct op *at = op_before(t, entry->rank, list->ops + list->num_ops);
    while (at && entry->stage >= 0 &&
           !((at->kind == OP_B || at->kind == OP_W) && at->stage == entry->stage))
        at = op_before(t, entry->rank, at);
    return at;
}

static enum status trace_chain(struct timing *t, struct step_chain *chain, struct err *err)
{
    const int K = t->full->num_ranks;
    const size_t counts = (size_t)t->full->num_stages * CHAIN_KINDS * MB_SIZES;
    const int64_t num_clocks = (int64_t)t->workload->num_classes * K;
    struct step_chain got = {0};
    struct entry entry = {0};
    for (int64_t i = 0; i < num_clocks && !entry.known; i++)
        if (t->clocks[i].last == t->end) {
            const int c = (int)(i / K), k = (int)(i % K);
            entry = t->stopped ? entry_of(t, c, k, t->end) : tail_entry(t, c, k);
            got.end_rank = k;
        }
    if (!entry.known)
        return OK;
    enum status rc =
        entry.class_index == t->class_index ? OK : run_again(t, entry.class_index, err);
    got.counts = calloc(counts, sizeof *got.counts);
    got.message_ns = calloc((size_t)t->full->num_stages, sizeof *got.message_ns);
    if (!got.counts || !got.message_ns) {
        step_chain_clear(&got);
        return err_nomem(err);
    }
    const struct op *at = entry_op(t, &entry);
    if (rc == OK && at && trace_back(t, at, &got)) {
        got.class_index = entry.class_index;
        got.entry_rank = entry.rank;
        got.tail_ns =
            t->stopped ? 0 : t->end - end_of(t, at) - (t->full->norm ? t->workload->norm_ns : 0);
        *chain = got;
        got = (struct step_chain){0};
    }
    step_chain_clear(&got);
    return rc;
}

/* --- the step --------------------------------------------------------------------------------- */

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
    free(t->tied_from);
    free(t->tied);
    free(t->stack);
    free(t->starts);
    free(t->sent);
    free(t->class_of_bucket);
    free(t->first_of_reduced);
}

static enum status timing_init(struct timing *t, const struct schedule *full,
                               const struct workload *workload, bool traced, struct err *err)
{
    const size_t K = (size_t)full->num_ranks, S = (size_t)full->num_stages;
    const size_t classes = (size_t)workload->num_classes;
    const size_t cells = (size_t)workload->num_edges * 2 * (size_t)full->num_microbatches;
    *t = (struct timing){.full = full,
                         .workload = workload,
                         .host_op_ns =
                             workload->host_blocking ? 0 : workload->setting.cluster->host_op_ns,
                         .start = INT64_MAX};
    t->clocks = calloc(classes * K, sizeof *t->clocks);
    t->arrival = malloc((cells + 1) * sizeof *t->arrival);
    t->backward_start = calloc(S, sizeof *t->backward_start);
    t->backward_end = calloc(S, sizeof *t->backward_end);
    t->backward_kind = calloc(S, sizeof *t->backward_kind);
    t->bucket_ready = calloc((size_t)workload->num_buckets + 1, sizeof *t->bucket_ready);
    t->reduced = calloc(S, sizeof *t->reduced);
    t->tied_from = calloc(classes, sizeof *t->tied_from);
    t->tied = calloc(classes, sizeof *t->tied);
    t->stack = calloc(K, sizeof *t->stack);
    t->class_of_bucket = calloc((size_t)workload->num_buckets + 1, sizeof *t->class_of_bucket);
    t->first_of_reduced = malloc(S * sizeof *t->first_of_reduced);
    if (traced) {
        const struct rank_ops *last = &full->ranks[K - 1];
        t->starts =
            malloc((size_t)(last->ops + last->num_ops - full->block + 1) * sizeof *t->starts);
        t->sent = malloc((cells + 1) * sizeof *t->sent);
        if (!t->starts || !t->sent)
            return err_nomem(err);
    }
    return t->clocks && t->arrival && t->backward_start && t->backward_end && t->backward_kind &&
                   t->bucket_ready && t->reduced && t->tied_from && t->tied && t->stack &&
                   t->class_of_bucket && t->first_of_reduced
               ? OK
               : err_nomem(err);
}

/* Whether the class that was run last takes limit_ns or longer. `end` is then its end without tails. */
static bool takes(struct timing *t, int64_t limit_ns)
{
    int64_t end = 0;
    for (int k = 0; k < t->full->num_ranks; k++)
        end = max_ns(end, clock_of(t, k)->now);
    if (end - t->start < limit_ns)
        return false;
    t->end = end;
    return true;
}

/* Run all ops of a step, the classes of replicas from `first` on. Sets only the all-reduce members of
 * *time. */
static enum status timing_run(struct timing *t, const struct plan *plan, int first,
                              int64_t limit_ns, struct step_time *time, struct err *err)
{
    const int num = t->workload->num_classes;
    enum status rc = OK;
    for (int c = 0; c < num && rc == OK && !t->stopped; c++) {
        set_class(t, (first + c) % num);
        rc = run_class(t, err);
        t->stopped = rc == OK && limit_ns > 0 && takes(t, limit_ns);
    }
    const int last = t->class_index;
    if (rc == OK && !t->stopped)
        rc = run_allreduces(t, plan, time, err);
    if (rc == OK && !t->stopped)
        rc = run_tails(t, time, err);
    set_class(t, last);
    return rc;
}

enum status schedule_time(const struct schedule *full, const struct workload *workload,
                          const struct plan *plan, struct step_time *time, struct err *err)
{
    return schedule_time_chain(full, workload, plan, 0, time, NULL, err);
}

enum status schedule_time_chain(const struct schedule *full, const struct workload *workload,
                                const struct plan *plan, int64_t limit_ns, struct step_time *time,
                                struct step_chain *chain, struct err *err)
{
    const size_t K = (size_t)full->num_ranks;
    struct timing t;
    struct step_time got = {0};
    enum status rc = timing_init(&t, full, workload, chain != NULL, err);
    got.rank_busy_ns = calloc(K, sizeof *got.rank_busy_ns);
    got.rank_first_ns = calloc(K, sizeof *got.rank_first_ns);
    got.rank_last_ns = calloc(K, sizeof *got.rank_last_ns);
    if (rc == OK && (!got.rank_busy_ns || !got.rank_first_ns || !got.rank_last_ns))
        rc = err_nomem(err);
    THEN(timing_run(&t, plan, chain ? chain->class_index % workload->num_classes : 0, limit_ns,
                    &got, err));
    if (rc != OK)
        goto out;
    t.start = t.start == INT64_MAX ? 0 : t.start;
    got.step_ns = max_ns(t.end - t.start, workload->cache_read_ns); /* time-2b */
    const int last = t.class_index;
    set_class(&t, workload->class_of_replica[0]);
    for (size_t k = 0; k < K; k++) {
        const struct rank_clock *clock = clock_of(&t, (int)k);
        got.rank_busy_ns[k] = clock->busy;
        got.rank_first_ns[k] = clock->first == INT64_MAX ? 0 : clock->first - t.start;
        got.rank_last_ns[k] = clock->first == INT64_MAX ? 0 : clock->last - t.start;
    }
    if (chain) { /* last, because it runs classes again */
        set_class(&t, last);
        rc = trace_chain(&t, chain, err);
        if (rc != OK)
            goto out;
    }
    *time = got;
    got = (struct step_time){0};
out:
    timing_clear(&t);
    step_time_clear(&got);
    return rc;
}
