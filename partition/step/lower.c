/* From compute ops to everything that a step does.
 *
 * lower_before() and lower_behind() put messages, recompute, cache and all-reduces around a compute
 * op, lower_tails() ends the lists. What a stage needs is described once (describe_stages()), for
 * schedule_check() as well. plan_lower() at the end ties workload, compute list, freezing and
 * lowering together. */
#include "partition/step/lower.h"

#include <stdlib.h>

struct lowering {
    const struct workload *workload;
    struct schedule *full;
    struct op *next;
    bool early;    /* R before the gradient is there: recompute_early() */
    bool overlaps; /* an F and the B after it run as one op */
    /* Owned: the messages around an op of each stage, without its micro-batch: first those of OP_SEND_ACT,
     * then of the three kinds after it. first_message: MESSAGE_KINDS entries a stage, and the end. */
    struct op *messages;
    int *first_message;
};

enum { MESSAGE_KINDS = OP_RECV_GRAD - OP_SEND_ACT + 1 };

static void emit(struct lowering *to, enum op_kind kind, int stage, int microbatch, int arg)
{
    *to->next++ = (struct op){.microbatch = microbatch,
                              .stage = (uint16_t)stage,
                              .kind = (uint8_t)kind,
                              .arg = (uint8_t)arg};
}

static bool crosses(const struct lowering *to, int edge)
{
    const struct stage_edge *e = &to->workload->edges[edge];
    return to->full->rank_of_stage[e->from] != to->full->rank_of_stage[e->to];
}

/* Find the messages of each stage: of every kind one per edge that leaves (or enters) the stage towards
 * another rank. Returns false without memory. */
static bool find_messages(struct lowering *to)
{
    const struct workload *w = to->workload;
    const int S = to->full->num_stages;
    int n = 0;
    to->messages = malloc(((size_t)MESSAGE_KINDS * (size_t)w->num_edges + 1) * sizeof(struct op));
    to->first_message = malloc(((size_t)MESSAGE_KINDS * (size_t)S + 1) * sizeof(int));
    if (!to->messages || !to->first_message)
        return false;
    for (int at = 0; at < MESSAGE_KINDS * S; at++) {
        const int stage = at / MESSAGE_KINDS, kind = OP_SEND_ACT + at % MESSAGE_KINDS;
        const bool leaving = kind == OP_SEND_ACT || kind == OP_RECV_GRAD;
        const bool grad = kind == OP_SEND_GRAD || kind == OP_RECV_GRAD;
        const int *first = leaving ? w->out_first : w->in_first;
        to->first_message[at] = n;
        for (int i = first[stage]; i < first[stage + 1]; i++) {
            const int edge = leaving ? w->out_edge[i] : w->in_edge[i];
            if (crosses(to, edge) && (!grad || w->edges[edge].grad))
                to->messages[n++] = (struct op){.stage = (uint16_t)stage,
                                                .kind = (uint8_t)kind,
                                                .arg = (uint8_t)(i - first[stage])};
        }
    }
    to->first_message[MESSAGE_KINDS * S] = n;
    return true;
}

static inline void emit_messages(struct lowering *to, enum op_kind kind, int stage, int microbatch)
{
    const int *first = &to->first_message[MESSAGE_KINDS * stage + (int)(kind - OP_SEND_ACT)];
    for (int i = first[0]; i < first[1]; i++) {
        *to->next = to->messages[i];
        to->next++->microbatch = microbatch;
    }
}

static bool is_forward(struct op op)
{
    return op.kind == OP_F || op.kind == OP_Z;
}

/* Whether op starts its stage's backward of a micro-batch; after a dropped I that is W. */
static bool starts_backward(const struct schedule *full, struct op op)
{
    return op.kind == OP_B || op.kind == OP_I ||
           (op.kind == OP_W && full->drop_first_input && op.stage == full->num_frozen_stages);
}

/* Emit the start of a backward: receive its gradient, then R, or R first where that is early. */
static void emit_gradient(struct lowering *to, struct op op)
{
    const bool again = schedule_recomputes(to->full, op);
    if (again && to->early)
        emit(to, OP_R, op.stage, op.microbatch, 0);
    emit_messages(to, OP_RECV_GRAD, op.stage, op.microbatch);
    if (again && !to->early)
        emit(to, OP_R, op.stage, op.microbatch, 0);
}

/* The op as the list has it, which says whether it leaves something out (time-9). */
static struct op as_lowered(const struct lowering *to, struct op op)
{
    if ((op.kind == OP_B || op.kind == OP_I || op.kind == OP_W) &&
        shares_at(&to->workload->shares, op.stage, op.microbatch) > 0)
        op.arg |= OP_PARTIAL;
    return op;
}

/* Emit receives and recompute before a compute op. */
static void lower_before(struct lowering *to, struct op op)
{
    if (is_forward(op)) {
        if (to->full->lowered[op.stage].cache_read)
            emit(to, OP_C, op.stage, op.microbatch, 0);
        emit_messages(to, OP_RECV_ACT, op.stage, op.microbatch);
    } else if (starts_backward(to->full, op)) {
        emit_gradient(to, op);
    }
}

/* Emit sends and all-reduces after a compute op. */
static void lower_behind(struct lowering *to, struct op op)
{
    const struct lowered_stage *low = &to->full->lowered[op.stage];
    if (is_forward(op)) {
        emit_messages(to, OP_SEND_ACT, op.stage, op.microbatch);
        if (low->cache_write)
            emit(to, OP_P, op.stage, op.microbatch, 0);
    } else if (starts_backward(to->full, op)) {
        emit_messages(to, OP_SEND_GRAD, op.stage, op.microbatch);
    }
    if ((op.kind == OP_B || op.kind == OP_W) && op.microbatch == to->full->num_microbatches - 1)
        for (int i = 0; i < low->num_buckets; i++)
            emit(to, OP_ALLREDUCE, op.stage, OP_WHOLE_BATCH, i);
}

/* An F and a B that run as one op. R, which waits for what is received before it, must not wait for
 * the input of F. */
static void lower_pair(struct lowering *to, struct op f, struct op b)
{
    emit_gradient(to, b);
    emit_messages(to, OP_RECV_ACT, f.stage, f.microbatch);
    *to->next++ = f;
    *to->next++ = as_lowered(to, b);
    lower_behind(to, f);
    lower_behind(to, b);
}

static void lower_rank(struct lowering *to, const struct rank_ops *ops, int rank)
{
    struct schedule *full = to->full;
    to->next = full->ranks[rank].ops;
    if (full->rank_of_stage[0] == rank && full->lowered[0].whole_batch) {
        emit(to, OP_Z, 0, OP_WHOLE_BATCH, 0);
        if (full->lowered[0].whole_batch_written)
            emit(to, OP_P, 0, OP_WHOLE_BATCH, 0);
    }
    for (int64_t i = 0; i < ops->num_ops; i++) {
        struct op op = ops->ops[i];
        if (op_overlapped(op, OP_F) || (to->overlaps && op.kind == OP_F && i + 1 < ops->num_ops &&
                                        ops->ops[i + 1].kind == OP_B)) {
            struct op behind = ops->ops[++i];
            op.arg = behind.arg = OP_OVERLAPPED;
            lower_pair(to, op, behind);
            continue;
        }
        lower_before(to, op);
        *to->next++ = as_lowered(to, op);
        lower_behind(to, op);
    }
}

/* NORM belongs to no stage; it carries the rank's first. */
static void lower_tails(struct lowering *to)
{
    struct schedule *full = to->full;
    for (int end = 0; end < 2 && full->tied; end++) {
        const int s = end * (full->num_stages - 1);
        struct rank_ops *rank = &full->ranks[full->rank_of_stage[s]];
        to->next = rank->ops + rank->num_ops++;
        emit(to, OP_TIED, s, OP_WHOLE_BATCH, 0);
    }
    for (int s = 0; s < full->num_stages; s++) {
        struct rank_ops *rank = &full->ranks[full->rank_of_stage[s]];
        to->next = rank->ops + rank->num_ops;
        const struct op *last = rank->num_ops > 0 ? to->next - 1 : NULL;
        if (full->norm && !(last && (last->kind == OP_NORM || last->kind == OP_UPDATE)))
            emit(to, OP_NORM, s, OP_WHOLE_BATCH, 0);
        if (full->lowered[s].update)
            emit(to, OP_UPDATE, s, OP_WHOLE_BATCH, 0);
        rank->num_ops = to->next - rank->ops;
    }
}

static void describe_stages(const struct workload *w, const struct plan *plan,
                            struct schedule *full)
{
    for (int s = 0; s < full->num_stages; s++) {
        const bool first = s == 0;
        full->lowered[s] = (struct lowered_stage){
            .num_buckets = (uint16_t)(w->first_bucket[s + 1] - w->first_bucket[s]),
            .update = w->stages[s].weight_bytes > 0 || w->stages[s].op_ns[OP_UPDATE][MB_FULL] > 0,
            .cache_read = first && plan->frozen == FROZEN_CACHED,
            .cache_write = s == w->cache_write_stage,
            .whole_batch = first && plan->frozen == FROZEN_FIRST,
            .whole_batch_written = first && plan->frozen == FROZEN_FIRST && plan->cache_write,
            .recompute = recompute_by_stage(plan->recompute) && s >= full->num_frozen_stages,
            .recompute_last = recompute_every(plan->recompute)};
    }
    for (int e = 0; e < w->num_edges; e++) {
        full->edges[e] = (struct schedule_edge){.from = (uint16_t)w->edges[e].from,
                                                .to = (uint16_t)w->edges[e].to,
                                                .grad = w->edges[e].grad};
    }
}

bool workload_hides_messages(const struct workload *w)
{
    for (int64_t s = 0; s < (int64_t)w->num_classes * w->num_stages; s++)
        if (w->stages[s].hidden_ns[0][MB_FULL] + w->stages[s].hidden_ns[1][MB_FULL] > 0)
            return true;
    return false;
}

/* Upper bound of the ops of each rank. */
static void room_of_ranks(const struct schedule *compute, const struct workload *w, int64_t *room)
{
    for (int k = 0; k < compute->num_ranks; k++)
        room[k] = compute->ranks[k].num_ops + 4; /* Z, P of the whole batch; TIED, NORM */
    for (int s = 0; s < compute->num_stages; s++) {
        const int edges =
            w->out_first[s + 1] - w->out_first[s] + w->in_first[s + 1] - w->in_first[s];
        room[compute->rank_of_stage[s]] +=
            (int64_t)compute->num_microbatches * (2 * edges + 3) + /* C, P, R */
            w->first_bucket[s + 1] - w->first_bucket[s] + 1;
    }
}

enum status schedule_lower(const struct schedule *compute, const struct workload *workload,
                           const struct plan *plan, struct schedule *full, struct err *err)
{
    enum status rc;
    struct schedule got = {0};
    const int K = compute->num_ranks, S = compute->num_stages;
    if (compute->lowered || K != workload->num_ranks || S != workload->num_stages ||
        compute->num_microbatches != workload->num_microbatches) {
        return err_set(err, ERR_INPUT,
                       "cannot lower a schedule of %d ranks, %d stages, %d microbatches for a plan "
                       "of %d, %d, %d",
                       K, S, compute->num_microbatches, workload->num_ranks, workload->num_stages,
                       workload->num_microbatches);
    }
    struct lowering to = {.workload = workload,
                          .full = &got,
                          .early = recompute_early(plan->recompute),
                          .overlaps = schedule_overlaps(compute->kind) &&
                                      workload_hides_messages(workload)};
    int64_t *room = malloc((size_t)K * sizeof *room);
    if (!room)
        return err_nomem(err);
    room_of_ranks(compute, workload, room);
    rc = schedule_alloc(compute->kind, K, S, compute->num_microbatches, room, &got, err);
    if (rc != OK)
        goto out;
    got.lowered = calloc((size_t)S, sizeof *got.lowered);
    got.edges = calloc((size_t)workload->num_edges + 1, sizeof *got.edges);
    if (!got.lowered || !got.edges) {
        rc = err_nomem(err);
        goto out;
    }
    got.num_edges = workload->num_edges;
    got.num_frozen_stages = compute->num_frozen_stages;
    got.drop_first_input = compute->drop_first_input;
    got.norm = workload->clip;
    got.tied = workload->tied_bytes > 0;
    for (int s = 0; s < S; s++)
        got.rank_of_stage[s] = compute->rank_of_stage[s];
    describe_stages(workload, plan, &got);
    if (!find_messages(&to)) {
        rc = err_nomem(err);
        goto out;
    }
    for (int k = 0; k < K; k++) {
        lower_rank(&to, &compute->ranks[k], k);
        got.ranks[k].num_ops = to.next - got.ranks[k].ops;
    }
    lower_tails(&to);
    *full = got;
    got = (struct schedule){0};
    rc = OK;
out:
    schedule_clear(&got);
    free(room);
    free(to.messages);
    free(to.first_message);
    return rc;
}

/* sites NULL: of an unknown plan, which is checked. */
static enum status lower_plan(const struct setting *setting, const struct plan *plan,
                              const struct sites *sites, struct stage_memo *memo, bool checked,
                              struct workload *workload, struct schedule *full, struct err *err)
{
    struct workload w = {0};
    struct schedule compute = {0}, got = {0};
    enum status rc = sites ? plan_check_layout(plan, setting->model, setting->cluster, err)
                           : plan_check(plan, setting->model, setting->cluster, err);
    THEN(workload_build_at(setting, plan, NULL, sites, memo, &w, err));
    THEN(plan->order ? schedule_copy(plan->order, &compute, err)
                     : schedule_generate(plan->schedule, plan->num_ranks, plan->microbatches.count,
                                         plan->chunks, &compute, err));
    if (rc == OK && compute.num_frozen_stages == 0 && !compute.drop_first_input &&
        plan->num_frozen_layers > 0)
        rc = schedule_freeze(&compute, w.num_frozen_stages, w.i_folded_into_w, err);
    if (rc == OK && compute.num_frozen_stages != w.num_frozen_stages) {
        rc = err_set(err, ERR_INFEASIBLE, "schedule freezes %d stages, the plan %d",
                     compute.num_frozen_stages, w.num_frozen_stages);
    }
    THEN(schedule_lower(&compute, &w, plan, &got, err));
    THEN(workload_near(plan, &got, &w, err));
    if (rc == OK && checked)
        rc = schedule_check(&got, 0, err);
    if (rc == OK) {
        *workload = w;
        *full = got;
        w = (struct workload){0};
        got = (struct schedule){0};
    }
    workload_clear(&w);
    schedule_clear(&compute);
    schedule_clear(&got);
    return rc;
}

enum status plan_lower(const struct setting *setting, const struct plan *plan,
                       struct workload *workload, struct schedule *full, struct err *err)
{
    return lower_plan(setting, plan, NULL, NULL, true, workload, full, err);
}

enum status plan_lower_to_simulate(const struct setting *setting, const struct plan *plan,
                                   struct workload *workload, struct schedule *full,
                                   struct err *err)
{
    return lower_plan(setting, plan, NULL, NULL, plan->order != NULL, workload, full, err);
}

enum status plan_lower_unchecked(const struct setting *setting, const struct plan *plan,
                                 const struct sites *sites, struct stage_memo *memo,
                                 struct workload *workload, struct schedule *full, struct err *err)
{
    return lower_plan(setting, plan, sites, memo, false, workload, full, err);
}
