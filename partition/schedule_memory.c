/* The memory of a rank, by a walk over its list. Every change happens at an op of the device, so
 * the walk needs no times. */
#include "partition/schedule_memory.h"

#include <stdlib.h>

#include "partition/units.h"

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

/* Where a walk leaves the memory around each op; see schedule_memory_curve(). */
struct walk_curve {
    int64_t *during_bytes, *after_bytes;
};

/* Walk one list (memory-1 to memory-4). On entry memory->peak_bytes is the memory that the rank
 * holds all the time. All receive buffers belong to the next compute op, because lowering puts a
 * RECV and a C directly before the op that needs them. */
static void walk_rank(const struct schedule *full, const struct workload *w, int k,
                      int64_t limit_bytes, struct rank_memory *memory,
                      const struct walk_curve *curve)
{
    const struct rank_ops *list = &full->ranks[k];
    int64_t held = memory->peak_bytes, received = 0, peak = held;
    int live = 0, peak_live = 0;
    memory->full_op = -1;
    for (int64_t i = 0; i < list->num_ops; i++) {
        const struct op op = list->ops[i];
        const struct stage_cost *stage = &w->stages[op.stage];
        const int mb = size_of(w, op);
        int64_t freed = 0, work = stage->work_bytes[0][mb];
        if (curve) /* of an op that takes nothing */
            curve->during_bytes[i] = curve->after_bytes[i] = held;
        switch (op.kind) {
        case OP_F:
            held += schedule_recomputes(full, op) ? stage->input_bytes[mb] : stage->stash_bytes[mb];
            peak_live = ++live > peak_live ? live : peak_live;
            freed = received;
            break;
        case OP_R:
            held += stage->stash_bytes[mb];
            break;
        case OP_B:
        case OP_W:
            work = stage->work_bytes[1][mb];
            freed = received + stage->stash_bytes[mb] +
                    (schedule_recomputes(full, op) ? stage->input_bytes[mb] : 0);
            break;
        case OP_Z:
            freed = received;
            break;
        case OP_I:
            work = stage->work_bytes[1][mb];
            freed = received;
            break;
        case OP_C:
            received += stage->copy_bytes[mb];
            held += stage->copy_bytes[mb];
            if (curve)
                curve->during_bytes[i] = curve->after_bytes[i] = held;
            continue;
        case OP_RECV_ACT:
        case OP_RECV_GRAD: {
            const int64_t bytes = received_bytes(w, op, mb);
            received += bytes;
            held += bytes;
            if (curve)
                curve->during_bytes[i] = curve->after_bytes[i] = held;
            continue;
        }
        case OP_UPDATE:
            work = 0;
            break;
        default:
            continue;
        }
        /* Receive buffers count here too, because the compute op holds them until it ends. */
        peak = held + work > peak ? held + work : peak;
        if (peak > limit_bytes && memory->full_op < 0) {
            memory->full_op = i;
            memory->full_bytes = held + work;
            memory->full_buffer_bytes = received;
            memory->full_live = live;
        }
        live -= op.kind == OP_B || op.kind == OP_W;
        if (curve) {
            curve->during_bytes[i] = held + work;
            curve->after_bytes[i] = held - freed;
        }
        held -= freed;
        received = freed > 0 ? 0 : received;
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
        bool fits = add_ok(*sum, stage->weight_bytes, sum) &&
                    add_ok(*sum, stage->frozen_bytes, sum) &&
                    add_ok(*sum, stage->grad_bytes, sum) && add_ok(*sum, stage->optim_bytes, sum) &&
                    add_ok(*sum, stage->tree_bytes, sum) &&
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
    const enum status rc = check_bytes(full, workload, memory_bytes, err);
    for (int k = 0; rc == OK && k < full->num_ranks; k++) {
        struct rank_memory memory = {.peak_bytes = memory_bytes[k]};
        walk_rank(full, workload, k, INT64_MAX, &memory, NULL);
        memory_bytes[k] = memory.peak_bytes;
    }
    return rc;
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
        memory[k] = (struct rank_memory){.peak_bytes = fixed[k]};
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
