/* Proves that op lists run to their end, in two passes.
 *
 * Pass 1 (schedule_check_ops.c) checks which ops there are: every op is on its stage's rank, no op
 * is missing or appears twice, and backwards and weight halves are each in ascending micro-batch
 * order. Pass 2 runs the lists without time. A rank runs until its next op waits for another rank,
 * and that rank wakes it. Each op runs once and each wait ends once, so the pass is O(ops).
 *
 * The result does not depend on the order in which ranks are taken. Ranks share only message
 * buffers, and each buffer has one writer and one reader, so an op that may run stays able to run.
 * If no rank can continue before the end, a rank violates its own order or the lists deadlock. Read
 * schedule_check() at the end first, then ready() and run(). */
#include "partition/schedule/schedule_check.h"

#include <stdlib.h>

/* Whether a gradient goes from stage to stage - 1 in a compute list. */
static bool grad_leaves(const struct schedule *schedule, int stage)
{
    return stage > schedule->num_frozen_stages;
}

static enum status counts_check(const struct schedule *schedule, struct err *err)
{
    const int K = schedule->num_ranks, S = schedule->num_stages, M = schedule->num_microbatches;
    if (K < 1 || S < K || S > SCHEDULE_MAX_STAGES || M < 1) {
        return err_set(err, ERR_INFEASIBLE, "schedule with %d ranks, %d stages and %d microbatches",
                       K, S, M);
    }
    if (schedule->num_frozen_stages < 0 || schedule->num_frozen_stages >= S) {
        return err_set(err, ERR_INFEASIBLE, "schedule freezes %d of %d stages",
                       schedule->num_frozen_stages, S);
    }
    for (int s = 0; s < S; s++) {
        if (schedule->rank_of_stage[s] < 0 || schedule->rank_of_stage[s] >= K) {
            return err_set(err, ERR_INFEASIBLE, "stage %d is on rank %d of %d", s,
                           schedule->rank_of_stage[s], K);
        }
    }
    const int boundaries = S - 1;
    for (int e = 0; e < schedule->num_edges; e++) {
        const struct schedule_edge *edge = &schedule->edges[e];
        if (edge->from >= edge->to || edge->to >= S ||
            (e < boundaries && (edge->from != e || edge->to != e + 1))) {
            return err_set(err, ERR_INFEASIBLE, "edge %d goes from stage %d to stage %d of %d", e,
                           edge->from, edge->to, S);
        }
    }
    if (schedule->lowered && schedule->num_edges < boundaries) {
        return err_set(err, ERR_INFEASIBLE, "lowered schedule of %d stages has %d edges", S,
                       schedule->num_edges);
    }
    /* Each (stage, micro-batch) pair needs at least one op, so the number of ops bounds the memory
     * that is allocated below. */
    int64_t ops = 0;
    for (int k = 0; k < K; k++)
        ops += schedule->ranks[k].num_ops;
    if ((int64_t)S * M > 4 * ops + 4096) {
        return err_set(err, ERR_INFEASIBLE, "%lld ops cannot run %d microbatches through %d stages",
                       (long long)ops, M, S);
    }
    return OK;
}

static enum status edges_build(struct check *check)
{
    const struct schedule *schedule = check->schedule;
    const int S = schedule->num_stages, E = schedule->num_edges;
    check->out_first = arrays_new(&check->arrays, (size_t)S + 2, sizeof(int));
    check->in_first = arrays_new(&check->arrays, (size_t)S + 2, sizeof(int));
    check->out_edge = arrays_new(&check->arrays, (size_t)E + 1, sizeof(int));
    check->in_edge = arrays_new(&check->arrays, (size_t)E + 1, sizeof(int));
    check->unreceived = arrays_new(&check->arrays, 2 * (size_t)E + 1, sizeof *check->unreceived);
    check->crosses = arrays_new(&check->arrays, (size_t)E + 1, sizeof *check->crosses);
    check->mail = arrays_new(&check->arrays, (size_t)E * (size_t)schedule->num_microbatches + 1, 1);
    if (check->arrays.failed)
        return ERR_NOMEM;
    /* Count one entry further on, so that the starts are in place after filling. */
    for (int e = 0; e < E; e++) {
        check->out_first[schedule->edges[e].from + 2]++;
        check->in_first[schedule->edges[e].to + 2]++;
    }
    for (int s = 2; s < S + 2; s++) {
        check->out_first[s] += check->out_first[s - 1];
        check->in_first[s] += check->in_first[s - 1];
    }
    for (int e = 0; e < E; e++) {
        check->crosses[e] = schedule->rank_of_stage[schedule->edges[e].from] !=
                            schedule->rank_of_stage[schedule->edges[e].to];
        check->out_edge[check->out_first[schedule->edges[e].from + 1]++] = e;
        check->in_edge[check->in_first[schedule->edges[e].to + 1]++] = e;
    }
    return OK;
}

/* Pass 2. */

static bool wait_for(struct op *waits, enum op_kind kind, int stage, int microbatch)
{
    *waits = make_op(kind, stage, microbatch);
    return false;
}

/* Whether op has all gradients that it needs from later stages. */
static bool gradient_ready(const struct check *check, struct op op, struct op *waits)
{
    const struct schedule *schedule = check->schedule;
    const int s = op.stage, m = op.microbatch;
    if (!schedule->lowered) {
        if (s + 1 < schedule->num_stages && check->stages[s + 1].input_done <= m)
            return wait_for(waits, OP_B, s + 1, m);
        return true;
    }
    for (int i = check->out_first[s]; i < check->out_first[s + 1]; i++) {
        const int e = check->out_edge[i];
        const struct schedule_edge *edge = &schedule->edges[e];
        if (!edge->grad)
            continue;
        if (check->crosses[e]) {
            if (!(*mail(check, e, m) & RECEIVED << GRAD_SHIFT))
                return wait_for(waits, OP_RECV_GRAD, s, m);
        } else if (check->stages[edge->to].input_done <= m) {
            return wait_for(waits, OP_B, edge->to, m);
        }
    }
    return true;
}

static bool input_ready(const struct check *check, struct op op, struct op *waits)
{
    const struct schedule *schedule = check->schedule;
    const int s = op.stage, m = op.microbatch;
    if (!schedule->lowered) {
        if (s > 0 && !(*cell(check, s - 1, m) & F_DONE))
            return wait_for(waits, is_frozen(schedule, s - 1) ? OP_Z : OP_F, s - 1, m);
        return true;
    }
    if (schedule->lowered[s].cache_read && !(*cell(check, s, m) & C_DONE))
        return wait_for(waits, OP_C, s, m);
    if (schedule->lowered[s].whole_batch && !check->stages[s].whole_done)
        return wait_for(waits, OP_Z, s, OP_WHOLE_BATCH);
    for (int i = check->in_first[s]; i < check->in_first[s + 1]; i++) {
        const int e = check->in_edge[i], from = schedule->edges[e].from;
        if (check->crosses[e]) {
            if (!(*mail(check, e, m) & RECEIVED))
                return wait_for(waits, OP_RECV_ACT, s, m);
        } else if (!(*cell(check, from, m) & F_DONE)) {
            return wait_for(waits, is_frozen(schedule, from) ? OP_Z : OP_F, from, m);
        }
    }
    return true;
}

static bool message_ready(const struct check *check, struct op op, struct op *waits)
{
    const struct schedule *schedule = check->schedule;
    const int m = op.microbatch, e = edge_of(check, op);
    const struct schedule_edge *edge = &schedule->edges[e];
    const bool grad = op.kind == OP_SEND_GRAD || op.kind == OP_RECV_GRAD;
    if (op.kind == OP_RECV_ACT || op.kind == OP_RECV_GRAD) {
        if (*mail(check, e, m) & (grad ? SENT << GRAD_SHIFT : SENT))
            return true;
        return wait_for(waits, grad ? OP_SEND_GRAD : OP_SEND_ACT, grad ? edge->to : edge->from, m);
    }
    if (grad ? check->stages[op.stage].input_done <= m : !(*cell(check, op.stage, m) & F_DONE)) {
        return wait_for(waits,
                        grad                            ? OP_B
                        : is_frozen(schedule, op.stage) ? OP_Z
                                                        : OP_F,
                        op.stage, m);
    }
    if (check->unreceived[2 * e + grad] >= check->limit)
        return wait_for(waits, grad ? OP_RECV_GRAD : OP_RECV_ACT, grad ? edge->from : edge->to, m);
    return true;
}

/* Whether all backwards and all-reduces of stage s have run. If not, *waits is one that has not. */
static bool reduced(const struct check *check, int s, struct op *waits)
{
    const struct schedule *schedule = check->schedule;
    const int M = schedule->num_microbatches;
    if (!is_frozen(schedule, s) && check->stages[s].weight_done < M)
        return wait_for(waits, OP_W, s, M - 1);
    if (check->stages[s].buckets_done < schedule->lowered[s].num_buckets)
        return wait_for(waits, OP_ALLREDUCE, s, OP_WHOLE_BATCH);
    return true;
}

static bool rank_reduced(const struct check *check, int rank, struct op *waits)
{
    const struct schedule *schedule = check->schedule;
    for (int s = 0; s < schedule->num_stages; s++)
        if (schedule->rank_of_stage[s] == rank && !reduced(check, s, waits))
            return false;
    return true;
}

/* The stage at the other end of a tied table. */
static int tied_to(const struct check *check, int stage)
{
    return stage == 0 ? check->schedule->num_stages - 1 : 0;
}

/* Whether both ends of the tied table have reached TIED, or the other end has already run it. */
static bool tied_ready(const struct check *check, int rank, int stage, struct op *waits)
{
    const struct schedule *schedule = check->schedule;
    const int other = tied_to(check, stage), far = schedule->rank_of_stage[other];
    const struct rank_state *peer = &check->ranks[far];
    struct op ignored;
    if (!rank_reduced(check, rank, waits))
        return false;
    if (peer->tied_done || (peer->next < schedule->ranks[far].num_ops &&
                            schedule->ranks[far].ops[peer->next].kind == OP_TIED &&
                            rank_reduced(check, far, &ignored)))
        return true;
    return wait_for(waits, OP_TIED, other, OP_WHOLE_BATCH);
}

/* Whether the rank has run its TIED, if it has one. NORM and UPDATE come after it. */
static bool tied_done(const struct check *check, int rank, struct op *waits)
{
    const struct rank_state *at = &check->ranks[rank];
    const int last = check->schedule->num_stages - 1;
    return !at->tied_seen || at->tied_done ||
           wait_for(waits, OP_TIED, check->schedule->rank_of_stage[0] == rank ? 0 : last,
                    OP_WHOLE_BATCH);
}

/* Whether the list's next op, the B of a pair that runs as one op, can run once its F has. */
static bool partner_ready(const struct check *check, int rank, struct op *waits)
{
    const struct schedule *schedule = check->schedule;
    const struct op b = schedule->ranks[rank].ops[check->ranks[rank].next + 1];
    if (!(*cell(check, b.stage, b.microbatch) & F_DONE))
        return wait_for(waits, OP_F, b.stage, b.microbatch);
    if (schedule_recomputes(schedule, b) && !(*cell(check, b.stage, b.microbatch) & R_DONE))
        return wait_for(waits, OP_R, b.stage, b.microbatch);
    return gradient_ready(check, b, waits);
}

/* Whether op can run now. If not, *waits is an op that it waits for. */
static bool ready(const struct check *check, int rank, struct op op, struct op *waits)
{
    const struct schedule *schedule = check->schedule;
    const struct stage_state *stage = &check->stages[op.stage];
    const int s = op.stage, m = op.microbatch, M = schedule->num_microbatches;
    switch (op.kind) {
    case OP_F:
    case OP_Z:
        return m == OP_WHOLE_BATCH ||
               (input_ready(check, op, waits) &&
                (!op_overlapped(op, OP_F) || partner_ready(check, rank, waits)));
    case OP_W:
        if (!input_is_folded(schedule, s)) {
            return stage->input_done > m || wait_for(waits, OP_I, s, m);
        } /* fall through */
    case OP_B:
    case OP_I:
        if (!(*cell(check, s, m) & F_DONE))
            return wait_for(waits, OP_F, s, m);
        if (schedule_recomputes(schedule, op) && !(*cell(check, s, m) & R_DONE))
            return wait_for(waits, OP_R, s, m);
        return gradient_ready(check, op, waits);
    case OP_R:
        return *cell(check, s, m) & F_DONE || wait_for(waits, OP_F, s, m);
    case OP_P:
        if (m == OP_WHOLE_BATCH)
            return stage->whole_done || wait_for(waits, OP_Z, s, m);
        return *cell(check, s, m) & F_DONE ||
               wait_for(waits, is_frozen(schedule, s) ? OP_Z : OP_F, s, m);
    case OP_SEND_ACT:
    case OP_RECV_ACT:
    case OP_SEND_GRAD:
    case OP_RECV_GRAD:
        return message_ready(check, op, waits);
    case OP_ALLREDUCE:
        return stage->weight_done == M || wait_for(waits, OP_W, s, M - 1);
    case OP_TIED:
        return tied_ready(check, rank, s, waits);
    case OP_NORM:
        return rank_reduced(check, rank, waits) && tied_done(check, rank, waits);
    case OP_UPDATE:
        if (!tied_done(check, rank, waits))
            return false;
        if (schedule->norm)
            return check->ranks[rank].norm_done || wait_for(waits, OP_NORM, s, OP_WHOLE_BATCH);
        return reduced(check, s, waits);
    default:
        return true;
    }
}

static void wake(struct check *check, int rank)
{
    if (!check->ranks[rank].queued) {
        check->ranks[rank].queued = true;
        check->stack[check->num_stacked++] = rank;
    }
}

/* Let a compute op of a compute list take its message from the neighbour stage. Returns whether the
 * op itself makes a message. */
static bool exchange(struct check *check, struct op op)
{
    const struct schedule *schedule = check->schedule;
    const int *rank = schedule->rank_of_stage, s = op.stage;
    const bool is_last = s == schedule->num_stages - 1;
    const bool forward = op.kind == OP_F || op.kind == OP_Z;
    const bool takes_grad =
        op.kind == OP_B || op.kind == OP_I || (op.kind == OP_W && input_is_folded(schedule, s));
    bool owes = false;
    if (forward) {
        if (s > 0 && rank[s - 1] != rank[s]) {
            check->stages[s - 1].unreceived_act--;
            wake(check, rank[s - 1]);
        }
        owes = !is_last && rank[s + 1] != rank[s];
    } else if (takes_grad) {
        if (!is_last && rank[s + 1] != rank[s]) {
            check->stages[s + 1].unreceived_grad--;
            wake(check, rank[s + 1]);
        }
        owes = grad_leaves(schedule, s) && rank[s - 1] != rank[s];
    }
    return owes;
}

/* Put the message of a compute list's op on its edge. Returns false if the edge is full. */
static bool deliver(struct check *check, struct op op)
{
    const struct schedule *schedule = check->schedule;
    struct stage_state *stage = &check->stages[op.stage];
    const bool forward = op.kind == OP_F || op.kind == OP_Z;
    int32_t *unreceived = forward ? &stage->unreceived_act : &stage->unreceived_grad;
    if (*unreceived >= check->limit)
        return false;
    (*unreceived)++;
    if (forward)
        *cell(check, op.stage, op.microbatch) |= F_DONE;
    else
        stage->input_done = op.microbatch + 1;
    wake(check, schedule->rank_of_stage[forward ? op.stage + 1 : op.stage - 1]);
    return true;
}

/* Note that a message was sent or received, and wake the rank at its other end. */
static void pass_message(struct check *check, struct op op)
{
    const bool grad = op.kind == OP_SEND_GRAD || op.kind == OP_RECV_GRAD;
    const bool send = op.kind == OP_SEND_ACT || op.kind == OP_SEND_GRAD;
    const int e = edge_of(check, op), bit = send ? SENT : RECEIVED;
    const int other = op.kind == OP_SEND_ACT || op.kind == OP_RECV_GRAD
                          ? check->schedule->edges[e].to
                          : check->schedule->edges[e].from;
    *mail(check, e, op.microbatch) |= (uint8_t)(grad ? bit << GRAD_SHIFT : bit);
    check->unreceived[2 * e + grad] += send ? 1 : -1;
    wake(check, check->schedule->rank_of_stage[other]);
}

/* Run an op that is ready. Returns false if, in a compute list, its message must wait because the
 * edge is full. */
static bool run(struct check *check, int rank, struct op op)
{
    const struct schedule *schedule = check->schedule;
    struct stage_state *stage = &check->stages[op.stage];
    const int s = op.stage, m = op.microbatch;
    if (!schedule->lowered && exchange(check, op)) {
        if (op.kind == OP_B)
            stage->weight_done = m + 1;
        return deliver(check, op);
    }
    switch (op.kind) {
    case OP_F:
    case OP_Z:
        if (m == OP_WHOLE_BATCH)
            stage->whole_done = 1;
        else
            *cell(check, s, m) |= F_DONE;
        break;
    case OP_B:
        stage->input_done = stage->weight_done = m + 1;
        break;
    case OP_I:
        stage->input_done = m + 1;
        break;
    case OP_W:
        stage->weight_done = m + 1;
        break;
    case OP_R:
        *cell(check, s, m) |= R_DONE;
        break;
    case OP_C:
        *cell(check, s, m) |= C_DONE;
        break;
    case OP_SEND_ACT:
    case OP_RECV_ACT:
    case OP_SEND_GRAD:
    case OP_RECV_GRAD:
        pass_message(check, op);
        break;
    case OP_ALLREDUCE:
        stage->buckets_done++;
        break;
    case OP_TIED:
        check->ranks[rank].tied_done = true;
        wake(check, schedule->rank_of_stage[tied_to(check, s)]);
        break;
    case OP_NORM:
        check->ranks[rank].norm_done = true;
        break;
    default:
        break;
    }
    return true;
}

static void run_rank(struct check *check, int k)
{
    const struct rank_ops *list = &check->schedule->ranks[k];
    struct rank_state *rank = &check->ranks[k];
    struct op waits;
    if (rank->sending) {
        if (!deliver(check, list->ops[rank->next - 1]))
            return;
        rank->sending = false;
    }
    while (rank->next < list->num_ops && ready(check, k, list->ops[rank->next], &waits)) {
        if (!run(check, k, list->ops[rank->next++])) {
            rank->sending = true;
            return;
        }
    }
    __builtin_prefetch(list->ops + rank->next + 8); /* needed when the rank continues */
}

/* Find why rank k is stuck: *at is its next op, *waits the op that it waits for. */
static void stuck_at(const struct check *check, int k, struct op *at, struct op *waits)
{
    const struct rank_state *rank = &check->ranks[k];
    const struct op *ops = check->schedule->ranks[k].ops;
    if (rank->sending) {
        *at = ops[rank->next - 1];
        const bool forward = at->kind == OP_F || at->kind == OP_Z;
        /* The buffer is full: its reader has not taken the oldest message. */
        *waits =
            make_op(forward ? OP_F : OP_B, forward ? at->stage + 1 : at->stage - 1, at->microbatch);
        return;
    }
    *at = ops[rank->next];
    ready(check, k, *at, waits);
}

static enum status explain_stuck(const struct check *check, struct err *err)
{
    const struct schedule *schedule = check->schedule;
    char text[48], other[48], list[400] = "";
    struct op at, waits;
    int first = -1;
    for (int k = 0; k < schedule->num_ranks; k++) {
        if (check->ranks[k].next == schedule->ranks[k].num_ops && !check->ranks[k].sending)
            continue;
        stuck_at(check, k, &at, &waits);
        if (schedule->rank_of_stage[waits.stage] == k) {
            return err_set(err, ERR_INFEASIBLE, "rank %d: %s before %s", k, op_text(at, text),
                           op_text(waits, other));
        }
        first = first < 0 ? k : first;
    }
    /* Follow the chain of waiting ranks until a rank appears twice, and print at most four. */
    size_t used = 0;
    for (int k = first, shown = 0; shown < 4; shown++) {
        stuck_at(check, k, &at, &waits);
        const int next = schedule->rank_of_stage[waits.stage];
        used += (size_t)snprintf(list + used, sizeof list - used,
                                 "%srank %d stands at %s for %s of rank %d", shown ? "; " : "", k,
                                 op_text(at, text), op_text(waits, other), next);
        k = next;
        if (k == first)
            break;
    }
    return err_set(err, ERR_INFEASIBLE, "deadlock: %s", list);
}

static enum status pass_two(struct check *check, struct err *err)
{
    const struct schedule *schedule = check->schedule;
    for (int k = schedule->num_ranks - 1; k >= 0; k--)
        wake(check, k);
    while (check->num_stacked > 0) {
        const int k = check->stack[--check->num_stacked];
        check->ranks[k].queued = false;
        run_rank(check, k);
    }
    for (int k = 0; k < schedule->num_ranks; k++)
        if (check->ranks[k].next < schedule->ranks[k].num_ops || check->ranks[k].sending)
            return explain_stuck(check, err);
    return OK;
}

enum status schedule_check(const struct schedule *schedule, int buffer_limit, struct err *err)
{
    enum status rc = counts_check(schedule, err);
    if (rc != OK)
        return rc;
    struct check check = {.schedule = schedule,
                          .limit = buffer_limit > 0 ? buffer_limit : INT32_MAX};
    const size_t S = (size_t)schedule->num_stages, K = (size_t)schedule->num_ranks;
    check.stages = arrays_new(&check.arrays, S, sizeof *check.stages);
    check.ranks = arrays_new(&check.arrays, K, sizeof *check.ranks);
    check.stack = arrays_new(&check.arrays, K, sizeof *check.stack);
    check.cells = arrays_new(&check.arrays, S, (size_t)schedule->num_microbatches);
    if (check.arrays.failed || (schedule->lowered && edges_build(&check) != OK)) {
        rc = err_nomem(err);
        goto out;
    }
    rc = schedule_check_ops(&check, err);
    THEN(pass_two(&check, err));
out:
    arrays_clear(&check.arrays);
    return rc;
}
