#include "cli/simulate/rank_memory.h"

#include <stdlib.h>

#include "partition/step/schedule_memory.h"

/* Whether an op changes what its device computes or holds at its own time. */
static bool is_pass(int kind)
{
    return kind == OP_F || kind == OP_B || kind == OP_I || kind == OP_W || kind == OP_R ||
           kind == OP_Z || kind == OP_UPDATE;
}

static bool same_op(struct op a, struct op b)
{
    return a.kind == b.kind && a.stage == b.stage && a.microbatch == b.microbatch && a.arg == b.arg;
}

/* The passes of a rank's list and of its simulated ops have the same order, so one walk finds the
 * list's place of each. */
enum status rank_memory(const struct traced_step *step, int replica, int rank,
                        struct memory_point **points, int64_t *n, struct err *err)
{
    const struct sim_result *sim = step->sim;
    const struct rank_ops *list = &step->full->ranks[rank];
    int64_t *during = calloc((size_t)list->num_ops * 2 + 2, sizeof *during);
    int64_t *after = during ? during + list->num_ops + 1 : NULL, at = 0;
    struct memory_point *got = calloc((size_t)list->num_ops * 2 + 1, sizeof *got);
    enum status rc =
        during && got ? schedule_memory_curve(step->full, step->workload, rank, during, after, err)
                      : err_nomem(err);
    *n = 0;
    for (int64_t i = 0; rc == OK && i < sim->num_ops; i++) {
        const struct sim_op *op = &sim->ops[i];
        if (op->rank != rank || op->replica != replica || !is_pass(op->op.kind))
            continue;
        int64_t found = at;
        while (found < list->num_ops && !same_op(list->ops[found], op->op))
            found++;
        if (found == list->num_ops)
            continue;
        at = found + 1;
        got[(*n)++] = (struct memory_point){op->start_ns, during[found], i};
        got[(*n)++] = (struct memory_point){op->end_ns, after[found], i};
    }
    free(during);
    if (rc == OK)
        *points = got;
    else
        free(got);
    return rc;
}
