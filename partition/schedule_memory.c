#include "partition/workload.h"

#include "partition/units.h"

static int size_of(const struct workload *w, struct op op)
{
    return op.microbatch == w->num_microbatches - 1 ? MB_LAST : MB_FULL;
}

void schedule_stash_distance(const struct schedule *full, const struct workload *w,
                             int64_t *distances)
{
    for (int s = 0; s < full->num_stages; s++) { /* of stages without an F: they keep nothing */
        distances[s] = STASH_FAR;
    }
    for (int k = 0; k < full->num_ranks; k++) {
        const struct rank_ops *list = &full->ranks[k];
        int64_t held = 0, peak = 0;
        for (int64_t i = 0; i < list->num_ops; i++) {
            const struct op op = list->ops[i];
            const int64_t stash = w->stages[op.stage].stash_bytes[size_of(w, op)];
            if (op.kind == OP_R || (op.kind == OP_F && !schedule_recomputes(full, op))) {
                held = add_saturated(held, stash);
            } else if (op.kind == OP_B || op.kind == OP_W) {
                held -= stash;
            }
            peak = held > peak ? held : peak;
        }
        for (int64_t i = 0; i < list->num_ops; i++) {
            const struct op op = list->ops[i];
            if (op.kind == OP_F && op.microbatch == 0) {
                distances[op.stage] = peak - w->stages[op.stage].stash_bytes[size_of(w, op)] / 2;
            }
        }
    }
}

/* Rules M1-M3. Walks one list; live is what the ops hold beside the constant part. */
static int64_t peak_of_rank(const struct schedule *full, const struct workload *w, int k)
{
    const struct rank_ops *list = &full->ranks[k];
    int64_t live = 0, peak = 0, received = 0;
    for (int64_t i = 0; i < list->num_ops; i++) {
        const struct op op = list->ops[i];
        const struct stage_cost *stage = &w->stages[op.stage];
        const int mb = size_of(w, op);
        const bool again = schedule_recomputes(full, op);
        int64_t freed = 0;
        switch (op.kind) {
        case OP_F:
            live += again ? stage->input_bytes[mb] : stage->stash_bytes[mb];
            freed = received;
            break;
        case OP_R:
            live += stage->stash_bytes[mb];
            break;
        case OP_B:
        case OP_W:
            freed = received + stage->stash_bytes[mb] + (again ? stage->input_bytes[mb] : 0);
            break;
        case OP_Z:
        case OP_I:
            freed = received;
            break;
        case OP_C:
            received += stage->copy_bytes[mb];
            live += stage->copy_bytes[mb];
            break;
        case OP_RECV_ACT:
        case OP_RECV_GRAD: {
            const int e = op.kind == OP_RECV_ACT ? w->in_edge[w->in_first[op.stage] + op.arg]
                                                 : w->out_edge[w->out_first[op.stage] + op.arg];
            received += w->edges[e].bytes[mb];
            live += w->edges[e].bytes[mb];
            break;
        }
        default:
            break;
        }
        peak = live > peak ? live : peak;
        live -= freed;
        if (freed > 0) {
            received = 0;
        }
    }
    return peak;
}

enum status schedule_memory(const struct schedule *full, const struct workload *workload,
                            int64_t *memory_bytes, struct err *err)
{
    for (int k = 0; k < full->num_ranks; k++) {
        memory_bytes[k] = workload->context_bytes;
    }
    for (int s = 0; s < full->num_stages; s++) {
        /* What the lists hold is bounded here, so that the walk needs no checks. */
        const struct stage_cost *stage = &workload->stages[s];
        int64_t *sum = &memory_bytes[full->rank_of_stage[s]], flow = 0;
        bool fits = add_ok(*sum, stage->weight_bytes, sum) &&
                    add_ok(*sum, stage->frozen_bytes, sum) &&
                    add_ok(*sum, stage->grad_bytes, sum) && add_ok(*sum, stage->optim_bytes, sum) &&
                    add_ok(*sum, stage->tree_bytes, sum) &&
                    add_ok(stage->stash_bytes[MB_FULL], stage->input_bytes[MB_FULL], &flow) &&
                    add_ok(flow, stage->copy_bytes[MB_FULL], &flow);
        for (int i = workload->out_first[s]; fits && i < workload->out_first[s + 1]; i++) {
            fits = add_ok(flow, workload->edges[workload->out_edge[i]].bytes[MB_FULL], &flow);
        }
        fits = fits && mul_ok(flow, 2 * (int64_t)full->num_microbatches, &flow) &&
               flow < INT64_MAX / 2 / full->num_stages && *sum < INT64_MAX / 2;
        if (!fits) {
            return err_set(err, ERR_INPUT, "memory of stage %d overflows", s);
        }
    }
    for (int k = 0; k < full->num_ranks; k++) {
        memory_bytes[k] += peak_of_rank(full, workload, k);
    }
    return OK;
}
