/* The critical path, walked back from the last op.
 *
 * At each op, predecessor() finds the op that it waited for. That is the op before it on its
 * device, or a message or all-reduce that ended just when it started (find_far()). For a message it
 * is the op that made it (find_maker()). Read critical_path_find() first, then predecessor(). */
#include "sim/step/critical.h"

#include <stdlib.h>

struct far_end {
    int64_t end_ns, op;
};

struct finder {
    const struct sim_result *result;
    const struct schedule *full;
    const struct workload *workload;
    int64_t *before;     /* [op]: the op before it on its device's stream; -1: none */
    struct far_end *far; /* ops that ops of other devices wait for, sorted by end */
    int64_t num_far;
};

static bool on_stream(uint8_t kind)
{
    return kind <= OP_Z || kind >= OP_TIED;
}

static int by_end(const void *a, const void *b)
{
    const struct far_end *x = a, *y = b;
    if (x->end_ns != y->end_ns)
        return x->end_ns < y->end_ns ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

/* Whether op i could have waited for the message or all-reduce j. A blocking send holds its own rank
 * too (time-3b). */
static bool waits_for(const struct finder *f, const struct sim_op *i, const struct sim_op *j)
{
    const struct workload *w = f->workload;
    const bool sent = j->op.kind == OP_SEND_ACT || j->op.kind == OP_SEND_GRAD;
    if (sent && w->sends_blocking && i->replica == j->replica && i->rank == j->rank)
        return true;
    switch (j->op.kind) {
    case OP_SEND_ACT:
        return (i->op.kind == OP_F || i->op.kind == OP_Z) && i->replica == j->replica &&
               i->op.microbatch == j->op.microbatch &&
               w->edges[w->out_edge[w->out_first[j->op.stage] + j->op.arg]].to == i->op.stage;
    case OP_SEND_GRAD:
        return i->replica == j->replica && i->op.microbatch == j->op.microbatch &&
               w->edges[w->in_edge[w->in_first[j->op.stage] + j->op.arg]].from == i->op.stage;
    case OP_ALLREDUCE:
        return i->op.kind == OP_NORM || (i->op.kind == OP_UPDATE && i->op.stage == j->op.stage);
    default:
        return i->replica == j->replica && i->rank == j->rank &&
               i->op.microbatch == j->op.microbatch;
    }
}

/* The B after F i that runs as one op with it (time-1b), or -1. */
static int64_t partner_of(const struct finder *f, int64_t i)
{
    if (!op_overlapped(f->result->ops[i].op, OP_F))
        return -1;
    for (int64_t j = i + 1; j < f->result->num_ops; j++)
        if (on_stream(f->result->ops[j].op.kind) && f->before[j] == i)
            return j;
    return -1;
}

/* The message or all-reduce that ended just when op i started. */
static int64_t find_far(const struct finder *f, int64_t i)
{
    const struct sim_op *ops = f->result->ops;
    const int64_t partner = partner_of(f, i);
    int64_t low = 0, high = f->num_far;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (f->far[middle].end_ns < ops[i].start_ns)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < f->num_far && f->far[low].end_ns == ops[i].start_ns; low++)
        if (waits_for(f, &ops[i], &ops[f->far[low].op]) ||
            (partner >= 0 && waits_for(f, &ops[partner], &ops[f->far[low].op])))
            return f->far[low].op;
    return -1;
}

/* The compute op that made a message, or the backward that completed a bucket. */
static int64_t find_maker(const struct finder *f, int64_t i)
{
    const struct sim_op *ops = f->result->ops, *at = &ops[i];
    for (int64_t j = i - 1; j >= 0; j--) {
        const struct sim_op *x = &ops[j];
        const bool reduced = at->op.kind == OP_ALLREDUCE;
        if (!on_stream(x->op.kind) || x->start_ns > at->start_ns || x->op.stage != at->op.stage)
            continue;
        if (reduced) {
            if (x->op.kind == OP_B || x->op.kind == OP_W || x->op.kind == OP_I)
                return j;
        } else if (x->replica == at->replica && x->op.microbatch == at->op.microbatch) {
            const int64_t partner = partner_of(f, j); /* what F makes leaves when its B ends */
            if (x->end_ns == at->start_ns && partner < 0)
                return j;
            if (partner >= 0 && at->op.kind == OP_SEND_ACT && ops[partner].end_ns == at->start_ns)
                return partner;
        }
    }
    return -1;
}

/* Whether op i waits for the device of op j: NORM waits for all devices, TIED for two. */
static bool meets(const struct finder *f, const struct sim_op *i, const struct sim_op *j)
{
    const struct schedule *full = f->full;
    return i->op.kind == OP_NORM || ((j->rank == full->rank_of_stage[0] ||
                                      j->rank == full->rank_of_stage[full->num_stages - 1]) &&
                                     (j->replica == i->replica || j->op.kind == OP_ALLREDUCE));
}

/* The last op before NORM or TIED op i on the device that reached it last. */
static int64_t last_there(const struct finder *f, int64_t i)
{
    const struct sim_op *ops = f->result->ops;
    int64_t best = -1;
    for (int64_t j = 0; j < f->result->num_ops; j++)
        if ((on_stream(ops[j].op.kind) || ops[j].op.kind == OP_ALLREDUCE) &&
            ops[j].op.kind < ops[i].op.kind && ops[j].end_ns == ops[i].start_ns &&
            meets(f, &ops[i], &ops[j]))
            best = j;
    return best;
}

static int64_t predecessor(const struct finder *f, int64_t i)
{
    const struct sim_op *ops = f->result->ops;
    uint8_t kind = ops[i].op.kind;
    if (kind == OP_NORM || kind == OP_TIED)
        return last_there(f, i);
    if (kind == OP_SEND_ACT || kind == OP_SEND_GRAD || kind == OP_ALLREDUCE)
        return find_maker(f, i);
    int64_t before = f->before[i];
    if (before >= 0 && ops[before].end_ns == ops[i].start_ns)
        return before;
    int64_t far = find_far(f, i);
    return far >= 0 ? far : before;
}

static enum status finder_init(struct finder *f, struct err *err)
{
    const struct sim_result *result = f->result;
    int64_t n = result->num_ops;
    int64_t *last = malloc((size_t)result->num_devices * sizeof *last);
    f->before = malloc(((size_t)n + 1) * sizeof *f->before);
    f->far = malloc(((size_t)n + 1) * sizeof *f->far);
    if (!last || !f->before || !f->far) {
        free(last);
        return err_nomem(err);
    }
    for (int d = 0; d < result->num_devices; d++)
        last[d] = -1;
    for (int64_t i = 0; i < n; i++) {
        const struct sim_op *op = &result->ops[i];
        f->before[i] = -1;
        if (on_stream(op->op.kind)) {
            int d = op->replica * f->full->num_ranks + op->rank;
            f->before[i] = last[d];
            last[d] = i;
        } else {
            f->far[f->num_far++] = (struct far_end){op->end_ns, i};
        }
    }
    qsort(f->far, (size_t)f->num_far, sizeof *f->far, by_end);
    free(last);
    return OK;
}

enum status critical_path_find(const struct sim_result *result, const struct schedule *full,
                               const struct workload *workload, struct critical_path *path,
                               struct err *err)
{
    struct finder f = {.result = result, .full = full, .workload = workload};
    struct critical_path got = {.num_stages = full->num_stages};
    enum status rc = finder_init(&f, err);
    got.stage_ns = calloc((size_t)full->num_stages, sizeof *got.stage_ns);
    got.ops = malloc(((size_t)result->num_ops + 1) * sizeof *got.ops);
    if (rc == OK && (!got.stage_ns || !got.ops))
        rc = err_nomem(err);
    if (rc != OK)
        goto out;
    int64_t at = -1;
    for (int64_t i = 0; i < result->num_ops; i++)
        if (at < 0 || result->ops[i].end_ns >= result->ops[at].end_ns)
            at = i;
    int64_t until = result->step_ns;
    while (at >= 0 && got.num_ops < result->num_ops) {
        const struct sim_op *op = &result->ops[at];
        int64_t end = op->end_ns < until ? op->end_ns : until;
        int64_t ns = end > op->start_ns ? end - op->start_ns : 0;
        got.host_ns += until - end; /* no op of the path ran: the host was launching */
        if (op->op.kind == OP_SEND_ACT || op->op.kind == OP_SEND_GRAD)
            got.transfer_ns += ns;
        else if (op->op.kind == OP_ALLREDUCE || op->op.kind == OP_TIED || op->op.kind == OP_NORM)
            got.allreduce_ns += ns;
        else if (op->op.kind == OP_C || op->op.kind == OP_P)
            got.host_ns += ns;
        else
            got.stage_ns[op->op.stage] += ns;
        until = op->start_ns < until ? op->start_ns : until;
        got.ops[got.num_ops++] = at;
        at = predecessor(&f, at);
    }
    got.host_ns += until;
    for (int64_t i = 0; i < got.num_ops / 2; i++) {
        int64_t swap = got.ops[i];
        got.ops[i] = got.ops[got.num_ops - 1 - i];
        got.ops[got.num_ops - 1 - i] = swap;
    }
    *path = got;
    got = (struct critical_path){0};
out:
    critical_path_clear(&got);
    free(f.before);
    free(f.far);
    return rc;
}

void critical_path_clear(struct critical_path *path)
{
    free(path->ops);
    free(path->stage_ns);
    *path = (struct critical_path){0};
}
