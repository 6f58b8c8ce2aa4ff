/* Pass 1 of schedule_check(): which ops the lists hold.
 *
 * schedule_check_ops() sees each op of each list once and marks it. A see_*() function handles one
 * kind of op and refuses one that is out of place. At the end every stage must have all its ops.
 * Read schedule_check.h first, then schedule_check_ops() at the end. */
#include "partition/schedule/schedule_check.h"

static enum status twice(int rank, struct op op, struct err *err)
{
    char text[48];
    return err_set(err, ERR_INFEASIBLE, "rank %d: %s twice", rank, op_text(op, text));
}

static enum status unexpected(int rank, struct op op, const char *why, struct err *err)
{
    char text[48];
    return err_set(err, ERR_INFEASIBLE, "rank %d: unexpected %s, %s", rank, op_text(op, text), why);
}

/* See one half of a backward. Its micro-batch must be *next, which then grows by one. */
static enum status see_half(int rank, struct op op, int32_t *next, struct err *err)
{
    char text[48], missing[48];
    if (op.microbatch < *next)
        return twice(rank, op, err);
    if (op.microbatch > *next) {
        return err_set(err, ERR_INFEASIBLE, "rank %d: %s before %s", rank, op_text(op, text),
                       op_text(make_op(op.kind, op.stage, *next), missing));
    }
    (*next)++;
    return OK;
}

static enum status see_bit(int rank, struct op op, uint8_t *bits, uint8_t bit, struct err *err)
{
    if (*bits & bit)
        return twice(rank, op, err);
    *bits |= bit;
    return OK;
}

static enum status see_message(struct check *check, int rank, struct op op, struct err *err)
{
    const struct schedule *schedule = check->schedule;
    const bool grad = op.kind == OP_SEND_GRAD || op.kind == OP_RECV_GRAD;
    const bool send = op.kind == OP_SEND_ACT || op.kind == OP_SEND_GRAD;
    const int edge = edge_of(check, op);
    if (edge < 0)
        return unexpected(rank, op, "the stage has no such edge", err);
    if (!check->crosses[edge])
        return unexpected(rank, op, "both stages are on this rank", err);
    if (grad && !schedule->edges[edge].grad)
        return unexpected(rank, op, "no gradient comes back over this edge", err);
    const int bit = send ? SEND_SEEN : RECV_SEEN;
    return see_bit(rank, op, mail(check, edge, op.microbatch),
                   (uint8_t)(grad ? bit << GRAD_SHIFT : bit), err);
}

/* See an op of the whole mini-batch. */
static enum status see_whole(struct check *check, int rank, struct op op, struct err *err)
{
    const struct lowered_stage *low = &check->schedule->lowered[op.stage];
    struct stage_state *stage = &check->stages[op.stage];
    switch (op.kind) {
    case OP_Z:
        return low->whole_batch
                   ? see_bit(rank, op, &stage->whole_seen, 1, err)
                   : unexpected(rank, op, "nothing is frozen before the pipeline", err);
    case OP_P:
        return low->whole_batch_written ? see_bit(rank, op, &stage->whole_seen, 2, err)
                                        : unexpected(rank, op, "the cache is not written", err);
    case OP_ALLREDUCE:
        if (op.arg < stage->next_bucket)
            return twice(rank, op, err);
        if (op.arg > stage->next_bucket || op.arg >= low->num_buckets)
            return unexpected(rank, op, "buckets go 0, 1, 2, ... up to the stage's last", err);
        stage->next_bucket++;
        return OK;
    case OP_TIED:
        if (!check->schedule->tied || (op.stage > 0 && op.stage < check->schedule->num_stages - 1))
            return unexpected(rank, op, "the stage shares no table with another rank", err);
        if (check->ranks[rank].tied_seen)
            return twice(rank, op, err);
        check->ranks[rank].tied_seen = true;
        return OK;
    case OP_NORM:
        if (check->ranks[rank].norm_seen)
            return twice(rank, op, err);
        check->ranks[rank].norm_seen = true;
        return check->schedule->norm ? OK : unexpected(rank, op, "no norm is taken", err);
    case OP_UPDATE:
        return low->update ? see_bit(rank, op, &stage->update_seen, 1, err)
                           : unexpected(rank, op, "the stage has nothing to update", err);
    default:
        return unexpected(rank, op, "it needs a microbatch", err);
    }
}

static enum status see_backward(struct check *check, int rank, struct op op, struct err *err)
{
    struct stage_state *stage = &check->stages[op.stage];
    const bool folded = input_is_folded(check->schedule, op.stage);
    enum status rc = OK;
    if (op.kind == OP_I && folded)
        return unexpected(rank, op, "the stage has no input half", err);
    if (op.kind != OP_W && !folded)
        rc = see_half(rank, op, &stage->next_input, err);
    if (op.kind != OP_I)
        THEN(see_half(rank, op, &stage->next_weight, err));
    return rc;
}

static enum status see(struct check *check, int rank, struct op op, struct err *err)
{
    const struct schedule *schedule = check->schedule;
    const int S = schedule->num_stages, M = schedule->num_microbatches;
    if (op.kind >= OP_KIND_COUNT || op.stage >= S || op.microbatch < OP_WHOLE_BATCH ||
        op.microbatch >= M)
        return unexpected(rank, op, "stage or microbatch out of range", err);
    if (schedule->rank_of_stage[op.stage] != rank) {
        char text[48];
        return err_set(err, ERR_INFEASIBLE, "rank %d: %s belongs to rank %d", rank,
                       op_text(op, text), schedule->rank_of_stage[op.stage]);
    }
    const struct lowered_stage *low = schedule->lowered ? &schedule->lowered[op.stage] : NULL;
    if (!low && op.kind > OP_W && op.kind != OP_Z)
        return unexpected(rank, op, "the list has compute ops only", err);
    if (op.microbatch == OP_WHOLE_BATCH) {
        return low ? see_whole(check, rank, op, err)
                   : unexpected(rank, op, "it needs a microbatch", err);
    }
    uint8_t *bits = cell(check, op.stage, op.microbatch);
    const bool frozen = is_frozen(schedule, op.stage);
    switch (op.kind) {
    case OP_F:
    case OP_Z:
        if (frozen != (op.kind == OP_Z)) {
            return unexpected(rank, op, frozen ? "the stage is frozen" : "the stage is active",
                              err);
        }
        check->stages[op.stage].num_forward++;
        return see_bit(rank, op, bits, F_SEEN, err);
    case OP_B:
    case OP_I:
    case OP_W:
        return frozen ? unexpected(rank, op, "the stage is frozen", err)
                      : see_backward(check, rank, op, err);
    case OP_R:
        return schedule_recomputes(schedule, op) ? see_bit(rank, op, bits, R_SEEN, err)
                                                 : unexpected(rank, op, "its stash is kept", err);
    case OP_C:
        return low->cache_read ? see_bit(rank, op, bits, C_SEEN, err)
                               : unexpected(rank, op, "the stage reads no cache", err);
    case OP_P:
        return low->cache_write ? see_bit(rank, op, bits, P_SEEN, err)
                                : unexpected(rank, op, "the stage writes no cache", err);
    case OP_SEND_ACT:
    case OP_RECV_ACT:
    case OP_SEND_GRAD:
    case OP_RECV_GRAD:
        return see_message(check, rank, op, err);
    default:
        return unexpected(rank, op, "it stands for the whole batch", err);
    }
}

static enum status missing(const struct schedule *schedule, enum op_kind kind, int stage,
                           int microbatch, struct err *err)
{
    char text[48];
    return err_set(err, ERR_INFEASIBLE, "rank %d has no %s", schedule->rank_of_stage[stage],
                   op_text(make_op(kind, stage, microbatch), text));
}

/* Check that the messages of a stage go to the stages behind it, and their gradients back. */
static enum status messages_complete(const struct check *check, int s, struct err *err)
{
    const struct schedule *schedule = check->schedule;
    for (int i = check->out_first[s]; i < check->out_first[s + 1]; i++) {
        const int e = check->out_edge[i];
        const struct schedule_edge *edge = &schedule->edges[e];
        const uint8_t act = SEND_SEEN | RECV_SEEN;
        const uint8_t all = (uint8_t)(edge->grad ? act | act << GRAD_SHIFT : act);
        for (int m = 0; m < schedule->num_microbatches && check->crosses[e]; m++) {
            const uint8_t lack = (uint8_t)(all & ~*mail(check, e, m));
            if (lack) {
                const enum op_kind kind = lack & SEND_SEEN                 ? OP_SEND_ACT
                                          : lack & RECV_SEEN               ? OP_RECV_ACT
                                          : lack & SEND_SEEN << GRAD_SHIFT ? OP_SEND_GRAD
                                                                           : OP_RECV_GRAD;
                const bool here = kind == OP_SEND_ACT || kind == OP_RECV_GRAD;
                return missing(schedule, kind, here ? s : edge->to, m, err);
            }
        }
    }
    return OK;
}

/* Check that a stage of lowered lists has all ops that lowering adds. */
static enum status lowered_complete(const struct check *check, int s, struct err *err)
{
    const struct schedule *schedule = check->schedule;
    const struct lowered_stage *low = &schedule->lowered[s];
    const struct stage_state *stage = &check->stages[s];
    const int M = schedule->num_microbatches;
    for (int m = 0; m < M && (low->recompute || low->cache_read || low->cache_write); m++) {
        const uint8_t bits = *cell(check, s, m);
        if (schedule_recomputes(schedule, make_op(OP_R, s, m)) && !(bits & R_SEEN))
            return missing(schedule, OP_R, s, m, err);
        if (low->cache_read && !(bits & C_SEEN))
            return missing(schedule, OP_C, s, m, err);
        if (low->cache_write && !(bits & P_SEEN))
            return missing(schedule, OP_P, s, m, err);
    }
    const enum status rc = messages_complete(check, s, err);
    if (rc != OK)
        return rc;
    if (low->whole_batch && !(stage->whole_seen & 1))
        return missing(schedule, OP_Z, s, OP_WHOLE_BATCH, err);
    if (low->whole_batch_written && !(stage->whole_seen & 2))
        return missing(schedule, OP_P, s, OP_WHOLE_BATCH, err);
    if (stage->next_bucket < low->num_buckets)
        return missing(schedule, OP_ALLREDUCE, s, OP_WHOLE_BATCH, err);
    if (low->update && !stage->update_seen)
        return missing(schedule, OP_UPDATE, s, OP_WHOLE_BATCH, err);
    return OK;
}

/* Check that an F that runs as one op with a B has that B after it, and the other way round. */
static enum status see_pair(const struct rank_ops *list, int rank, int64_t i, struct err *err)
{
    const struct op op = list->ops[i];
    bool paired = true;
    if (op_overlapped(op, OP_F))
        paired = i + 1 < list->num_ops && op_overlapped(list->ops[i + 1], OP_B);
    else if (op_overlapped(op, OP_B))
        paired = i > 0 && op_overlapped(list->ops[i - 1], OP_F);
    return paired ? OK : unexpected(rank, op, "it has no partner to overlap with", err);
}

enum status schedule_check_ops(struct check *check, struct err *err)
{
    const struct schedule *schedule = check->schedule;
    enum status rc = OK;
    for (int k = 0; k < schedule->num_ranks && rc == OK; k++) {
        const struct rank_ops *rank = &schedule->ranks[k];
        for (int64_t i = 0; i < rank->num_ops && rc == OK; i++) {
            rc = see(check, k, rank->ops[i], err);
            THEN(see_pair(rank, k, i, err));
        }
    }
    for (int s = 0; s < schedule->num_stages && rc == OK; s++) {
        const struct stage_state *stage = &check->stages[s];
        const int M = schedule->num_microbatches;
        const bool frozen = is_frozen(schedule, s);
        if (stage->num_forward < M) {
            int m = 0;
            while (*cell(check, s, m) & F_SEEN)
                m++;
            rc = missing(schedule, frozen ? OP_Z : OP_F, s, m, err);
        } else if (!frozen && stage->next_weight < M) {
            rc = missing(schedule, stage->next_input > stage->next_weight ? OP_W : OP_B, s,
                         stage->next_weight, err);
        } else if (!frozen && stage->next_input < M && !input_is_folded(schedule, s)) {
            rc = missing(schedule, OP_I, s, stage->next_input, err);
        } else if (schedule->lowered) {
            rc = lowered_complete(check, s, err);
        }
    }
    for (int end = 0; end < 2 && rc == OK && schedule->tied; end++) {
        const int s = end * (schedule->num_stages - 1);
        if (!check->ranks[schedule->rank_of_stage[s]].tied_seen)
            rc = missing(schedule, OP_TIED, s, OP_WHOLE_BATCH, err);
    }
    for (int k = 0; k < schedule->num_ranks && rc == OK && schedule->norm; k++)
        if (!check->ranks[k].norm_seen)
            rc = err_set(err, ERR_INFEASIBLE, "rank %d has no NORM", k);
    return rc;
}
