/* Memory of one rank over its list, rules M1-M3 of partition/workload.h. Every change happens at an
 * op of the device, so the walk needs no times; the engines tell when an overflow happens. */
#include <stdio.h>
#include <stdlib.h>

#include "partition/units.h"
#include "sim/step.h"

/* Bytes that arrived for an op to come (M3); in list order a rank holds very few at once. */
struct pending {
    int stage, microbatch;
    int64_t bytes;
};

struct holding {
    int64_t weights, grads, optimizer, stash, buffers, context;
    int64_t fixed; /* weights, grads, optimizer, context */
    int live;
    int num_pending, max_pending;
    struct pending *pending; /* owned */
};

/* Sums of sizes that workload_build() has checked; a few such cannot overflow together unless
 * absurd, and then stick at the top. */
static inline int64_t total(const struct holding *h)
{
    int64_t sum;
    if (__builtin_add_overflow(h->fixed, h->stash, &sum) ||
        __builtin_add_overflow(sum, h->buffers, &sum))
        return INT64_MAX;
    return sum;
}

static bool receive(struct holding *h, struct op op, int64_t bytes)
{
    if (h->num_pending == h->max_pending) {
        int max = h->max_pending ? 2 * h->max_pending : 8;
        struct pending *more = realloc(h->pending, (size_t)max * sizeof *more);
        if (!more)
            return false;
        h->pending = more;
        h->max_pending = max;
    }
    h->pending[h->num_pending++] = (struct pending){op.stage, op.microbatch, bytes};
    h->buffers += bytes;
    return true;
}

static void consume(struct holding *h, struct op op)
{
    for (int i = h->num_pending - 1; i >= 0; i--) {
        if (h->pending[i].stage == op.stage && h->pending[i].microbatch == op.microbatch) {
            h->buffers -= h->pending[i].bytes;
            h->pending[i] = h->pending[--h->num_pending];
        }
    }
}

static void hold_static(const struct step *step, const struct stage_cost *stages, int rank,
                        struct holding *h)
{
    h->context = step->workload->context_bytes;
    for (int s = 0; s < step->full->num_stages; s++) {
        if (step->full->rank_of_stage[s] != rank)
            continue;
        h->weights += stages[s].weight_bytes + stages[s].frozen_bytes;
        h->grads += stages[s].grad_bytes + stages[s].tree_bytes;
        h->optimizer += stages[s].optim_bytes;
    }
    h->fixed = h->context;
    const int64_t parts[] = {h->weights, h->grads, h->optimizer};
    for (int i = 0; i < 3; i++) {
        if (!add_ok(h->fixed, parts[i], &h->fixed))
            h->fixed = INT64_MAX;
    }
}

/* What the op takes when it starts; false when out of memory. */
static bool op_takes(const struct step *step, const struct stage_cost *stages, struct op op,
                     struct holding *h)
{
    const struct workload *w = step->workload;
    const struct stage_cost *stage = &stages[op.stage];
    int mb = mb_size(step, op.microbatch);
    switch (op.kind) {
    case OP_RECV_ACT:
    case OP_RECV_GRAD:
        return receive(h, op, w->edges[step_link(step, op) / 2].bytes[mb]);
    case OP_C:
        return receive(h, op, stage->copy_bytes[mb]);
    case OP_F:
        h->live++;
        h->stash +=
            schedule_recomputes(step->full, op) ? stage->input_bytes[mb] : stage->stash_bytes[mb];
        return true;
    case OP_R:
        h->stash += stage->stash_bytes[mb];
        return true;
    default:
        return true;
    }
}

/* What it gives back when it ends; split: the pair's W comes later. */
static void op_gives(const struct step *step, const struct stage_cost *stages, struct op op,
                     struct holding *h)
{
    const struct stage_cost *stage = &stages[op.stage];
    int mb = mb_size(step, op.microbatch);
    if (op_is_compute(op.kind))
        consume(h, op);
    if (op.kind == OP_B || op.kind == OP_W) {
        h->live--;
        h->stash -= stage->stash_bytes[mb];
        if (schedule_recomputes(step->full, op))
            h->stash -= stage->input_bytes[mb];
    }
}

enum status memory_walk(const struct step *step, int class_index, int rank, int64_t limit_bytes,
                        struct rank_memory *memory, struct err *err)
{
    const struct rank_ops *list = &step->full->ranks[rank];
    const struct stage_cost *stages =
        &step->workload->stages[(int64_t)class_index * step->full->num_stages];
    struct holding h = {0};
    hold_static(step, stages, rank, &h);
    *memory = (struct rank_memory){.peak_bytes = total(&h), .full_op = -1};
    for (int64_t i = 0; i < list->num_ops; i++) {
        struct op op = list->ops[i];
        if (!op_takes(step, stages, op, &h)) {
            free(h.pending);
            return err_nomem(err);
        }
        int64_t now = total(&h);
        if (now > memory->peak_bytes)
            memory->peak_bytes = now;
        if (h.live > memory->peak_live)
            memory->peak_live = h.live;
        /* An overflow shows at the compute op that needs the bytes: it cannot start. */
        if (memory->peak_bytes > limit_bytes && memory->full_op < 0 && op_is_compute(op.kind))
            memory->full_op = i;
        op_gives(step, stages, op, &h);
    }
    free(h.pending);
    return OK;
}

void memory_explain(const struct step *step, int class_index, int rank, int64_t full_op, char *text,
                    size_t size)
{
    const struct rank_ops *list = &step->full->ranks[rank];
    const struct stage_cost *stages =
        &step->workload->stages[(int64_t)class_index * step->full->num_stages];
    struct holding h = {0};
    hold_static(step, stages, rank, &h);
    for (int64_t i = 0; i <= full_op; i++) {
        if (!op_takes(step, stages, list->ops[i], &h))
            break;
        if (i < full_op)
            op_gives(step, stages, list->ops[i], &h);
    }
    char part[6][32];
    snprintf(text, size,
             "weights %s, gradients %s, optimizer %s, stash %s (%d live micro-batches), buffers "
             "%s, context %s",
             format_bytes(h.weights, part[0], sizeof part[0]),
             format_bytes(h.grads, part[1], sizeof part[1]),
             format_bytes(h.optimizer, part[2], sizeof part[2]),
             format_bytes(h.stash, part[3], sizeof part[3]), h.live,
             format_bytes(h.buffers, part[4], sizeof part[4]),
             format_bytes(h.context, part[5], sizeof part[5]));
    free(h.pending);
}
