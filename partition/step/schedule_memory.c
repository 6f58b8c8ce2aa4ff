/* The memory of a rank, by a walk over its list. Every change happens at an op of the device, so
 * the walk needs no times. */
#include "partition/step/schedule_memory.h"

#include <stdlib.h>

#include "partition/model/framework.h"
#include "partition/base/units.h"

static int size_of(const struct workload *w, struct op op)
{
    return op.microbatch == w->num_microbatches - 1 ? MB_LAST : MB_FULL;
}

void schedule_stash_distance(const struct schedule *full, const struct workload *w,
                             int64_t *distances)
{
    for (int s = 0; s < full->num_stages; s++) /* frozen stages keep no stash */
        distances[s] = STASH_FAR;
    for (int k = 0; k < full->num_ranks; k++) {
        const struct rank_ops *list = &full->ranks[k];
        int64_t held = 0, peak = 0;
        for (int64_t i = 0; i < list->num_ops; i++) {
            const struct op op = list->ops[i];
            const int64_t stash = w->stages[op.stage].stash_bytes[size_of(w, op)];
            if (op.kind == OP_R || (op.kind == OP_F && !schedule_recomputes(full, op)))
                held = add_saturated(held, stash);
            else if (op.kind == OP_B || op.kind == OP_W)
                held -= stash;
            peak = held > peak ? held : peak;
        }
        for (int64_t i = 0; i < list->num_ops; i++) {
            const struct op op = list->ops[i];
            if (op.kind == OP_F && op.microbatch == 0)
                distances[op.stage] = peak - w->stages[op.stage].stash_bytes[size_of(w, op)] / 2;
        }
    }
}

static int64_t received_bytes(const struct workload *w, struct op op, int mb)
{
    const int e = op.kind == OP_RECV_ACT ? w->in_edge[w->in_first[op.stage] + op.arg]
                                         : w->out_edge[w->out_first[op.stage] + op.arg];
    return w->edges[e].held_bytes[mb];
}

/* The memory during and after each op, filled by a walk; see schedule_memory_curve(). */
struct walk_curve {
    int64_t *during_bytes, *after_bytes;
};

/* Memory that a rank needs on its device for `bytes` of context and tensors. */
static int64_t taken_bytes(const struct workload *w, int64_t bytes)
{
    return bytes + framework_beyond_bytes(w->beyond_tensors, bytes - w->context_bytes);
}

/* A walk over a list. */
struct walk {
    int64_t held;        /* bytes, with what the current op needs */
    int64_t received;    /* the part of them in receive buffers */
    int64_t freed, work; /* what the op gives back when it ends, and what it needs while it runs */
    int live;            /* pairs that hold stash */
};

/* Allocate the memory of an op (memory-2 to memory-4). Returns whether it runs on the device. Other
 * ops are receives, which only need a buffer, and ops that need no memory. */
static inline bool allocate_op(const struct schedule *full, const struct workload *w, struct op op,
                               struct walk *at)
{
    const struct stage_cost *stage = &w->stages[op.stage];
    const int mb = size_of(w, op);
    int64_t bytes;
    at->freed = at->received;
    at->work = stage->work_bytes[op.kind == OP_B || op.kind == OP_I || op.kind == OP_W][mb];
    switch (op.kind) {
    case OP_F:
        at->held += schedule_recomputes(full, op) ? stage->input_bytes[mb] : stage->stash_bytes[mb];
        at->live++;
        return true;
    case OP_R:
        at->held += stage->stash_bytes[mb];
        at->freed = 0;
        return true;
    case OP_B:
    case OP_W:
        if (op.kind == OP_W && (op.arg & OP_PARTIAL) &&
            !(full->drop_first_input && op.stage == full->num_frozen_stages)) /* I freed it */
            at->freed -= workload_left_out(w, op.stage, op.microbatch, stage->stash_bytes[mb]);
        at->freed +=
            stage->stash_bytes[mb] + (schedule_recomputes(full, op) ? stage->input_bytes[mb] : 0);
        return true;
    case OP_I:
        if (op.arg & OP_PARTIAL)
            at->freed += workload_left_out(w, op.stage, op.microbatch, stage->stash_bytes[mb]);
        return true;
    case OP_Z:
        return true;
    case OP_UPDATE:
        at->work = at->freed = 0;
        return true;
    case OP_C:
    case OP_RECV_ACT:
    case OP_RECV_GRAD:
        bytes = op.kind == OP_C ? stage->copy_bytes[mb] : received_bytes(w, op, mb);
        at->received += bytes;
        at->held += bytes;
        return false;
    default:
        return false;
    }
}

/* Walk one list. On entry memory->peak_bytes is the memory that the rank holds all the time. All
 * receive buffers belong to the next compute op, because lowering puts a RECV and a C directly
 * before the op that needs them. */
static void walk_rank(const struct schedule *full, const struct workload *w, int k,
                      int64_t limit_bytes, struct rank_memory *memory,
                      const struct walk_curve *curve)
{
    const struct rank_ops *list = &full->ranks[k];
    const int64_t fixed = memory->peak_bytes;
    struct walk at = {.held = fixed};
    int64_t peak = taken_bytes(w, fixed), most = fixed; /* of tensors at the peak */
    int peak_live = 0;
    memory->full_op = -1;
    memory->parts.allocator = peak - fixed;
    for (int64_t i = 0; i < list->num_ops; i++) {
        const struct op op = list->ops[i];
        if (!allocate_op(full, w, op, &at)) {
            if (curve)
                curve->during_bytes[i] = curve->after_bytes[i] = taken_bytes(w, at.held);
            continue;
        }
        peak_live = at.live > peak_live ? at.live : peak_live;
        /* Receive buffers count here too, because the compute op holds them until it ends. */
        const int64_t bytes = at.held + at.work;
        if (bytes > most) {
            most = bytes;
            peak = taken_bytes(w, bytes);
            memory->parts.buffers = at.received;
            memory->parts.work = at.work;
            memory->parts.stash = at.held - at.received - fixed;
            memory->parts.allocator = peak - bytes;
        }
        if (peak > limit_bytes && memory->full_op < 0) {
            memory->full_op = i;
            memory->full_bytes = bytes;
            memory->full_buffer_bytes = at.received;
            memory->full_live = at.live;
        }
        at.live -= op.kind == OP_B || op.kind == OP_W;
        if (curve) {
            curve->during_bytes[i] = taken_bytes(w, bytes);
            curve->after_bytes[i] = taken_bytes(w, at.held - at.freed);
        }
        at.held -= at.freed;
        at.received = at.freed > 0 ? 0 : at.received;
    }
    memory->peak_bytes = peak;
    memory->peak_live = peak_live;
}

/* Refuse lists whose bytes could overflow a sum, so that the walk needs no checks. */
static enum status check_bytes(const struct schedule *full, const struct workload *w,
                               int64_t *fixed_bytes, struct err *err)
{
    for (int k = 0; k < full->num_ranks; k++)
        fixed_bytes[k] = w->context_bytes;
    for (int s = 0; s < full->num_stages; s++) {
        const struct stage_cost *stage = &w->stages[s];
        int64_t *sum = &fixed_bytes[full->rank_of_stage[s]], flow = 0;
        bool fits =
            add_ok(*sum, stage->weight_bytes, sum) && add_ok(*sum, stage->frozen_bytes, sum) &&
            add_ok(*sum, stage->grad_bytes, sum) && add_ok(*sum, stage->optim_bytes, sum) &&
            add_ok(*sum, stage->tree_bytes, sum) && add_ok(*sum, stage->lagged_bytes, sum) &&
            add_ok(stage->stash_bytes[MB_FULL], stage->input_bytes[MB_FULL], &flow) &&
            add_ok(flow, stage->copy_bytes[MB_FULL], &flow) &&
            add_ok(flow, stage->work_bytes[0][MB_FULL], &flow) &&
            add_ok(flow, stage->work_bytes[1][MB_FULL], &flow);
        for (int i = w->out_first[s]; fits && i < w->out_first[s + 1]; i++)
            fits = add_ok(flow, w->edges[w->out_edge[i]].held_bytes[MB_FULL], &flow);
        fits = fits && mul_ok(flow, 2 * (int64_t)full->num_microbatches, &flow) &&
               flow < INT64_MAX / 2 / full->num_stages && *sum < INT64_MAX / 2;
        if (!fits)
            return err_set(err, ERR_INPUT, "memory of stage %d overflows", s);
    }
    return OK;
}

enum status schedule_memory(const struct schedule *full, const struct workload *workload,
                            int64_t *memory_bytes, struct err *err)
{
    return schedule_memory_of(full, workload, NULL, memory_bytes, err);
}

enum status schedule_memory_of(const struct schedule *full, const struct workload *workload,
                               const bool *wanted, int64_t *memory_bytes, struct err *err)
{
    const enum status rc = check_bytes(full, workload, memory_bytes, err);
    for (int k = 0; rc == OK && k < full->num_ranks; k++) {
        if (wanted && !wanted[k])
            continue;
        struct rank_memory memory = {.peak_bytes = memory_bytes[k]};
        walk_rank(full, workload, k, INT64_MAX, &memory, NULL);
        memory_bytes[k] = memory.peak_bytes;
    }
    return rc;
}

/* Memory that a rank holds for the whole step. */
static struct memory_parts fixed_parts(const struct schedule *full, const struct workload *w, int k)
{
    struct memory_parts parts = {.context = w->context_bytes};
    for (int s = 0; s < full->num_stages; s++) {
        const struct stage_cost *stage = &w->stages[s];
        if (full->rank_of_stage[s] != k)
            continue;
        parts.weights += stage->weight_bytes + stage->frozen_bytes + stage->lagged_bytes;
        parts.gradients += stage->grad_bytes + stage->tree_bytes;
        parts.optimizer += stage->optim_bytes;
    }
    return parts;
}

enum status schedule_memory_limited(const struct schedule *full, const struct workload *workload,
                                    const int64_t *limit_bytes, struct rank_memory *memory,
                                    struct err *err)
{
    int64_t *fixed = malloc((size_t)full->num_ranks * sizeof *fixed);
    if (!fixed)
        return err_nomem(err);
    const enum status rc = check_bytes(full, workload, fixed, err);
    for (int k = 0; rc == OK && k < full->num_ranks; k++) {
        memory[k] =
            (struct rank_memory){.peak_bytes = fixed[k], .parts = fixed_parts(full, workload, k)};
        walk_rank(full, workload, k, limit_bytes[k], &memory[k], NULL);
    }
    free(fixed);
    return rc;
}

enum status schedule_memory_curve(const struct schedule *full, const struct workload *workload,
                                  int rank, int64_t *during_bytes, int64_t *after_bytes,
                                  struct err *err)
{
    const struct walk_curve curve = {during_bytes, after_bytes};
    int64_t *fixed = malloc((size_t)full->num_ranks * sizeof *fixed);
    if (!fixed)
        return err_nomem(err);
    const enum status rc = check_bytes(full, workload, fixed, err);
    if (rc == OK) {
        struct rank_memory memory = {.peak_bytes = fixed[rank]};
        walk_rank(full, workload, rank, INT64_MAX, &memory, &curve);
    }
    free(fixed);
    return rc;
}
