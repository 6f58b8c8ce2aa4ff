/* Sends and receives are found by their message: replica, edge between two stages, micro-batch and
 * direction. Sorted by it, the three ends of a message (sent, received, simulated) are
 * neighbours. */
#include "cli/runs/message_times.h"

#include <stdlib.h>

#include "partition/base/units.h"

enum end { END_SENT, END_RECEIVED, END_SIMULATED };

struct message_end {
    int64_t replica, edge, microbatch;
    int kind; /* enum message_kind */
    enum end end;
    int64_t start_ns, end_ns;
};

static int compare_ends(const void *a, const void *b)
{
    const struct message_end *x = a, *y = b;
    const int64_t keys[][2] = {
        {x->kind,       y->kind      },
        {x->replica,    y->replica   },
        {x->edge,       y->edge      },
        {x->microbatch, y->microbatch},
        {x->end,        y->end       }
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

static bool same_message(const struct message_end *a, const struct message_end *b)
{
    return a->kind == b->kind && a->replica == b->replica && a->edge == b->edge &&
           a->microbatch == b->microbatch;
}

/* Set *got to the end that an op is. Returns false if it is none. */
static bool end_of(struct op op, const struct workload *w, struct message_end *got)
{
    switch (op.kind) {
    case OP_SEND_ACT:
    case OP_RECV_GRAD:
        got->edge = w->out_edge[w->out_first[op.stage] + op.arg];
        break;
    case OP_RECV_ACT:
    case OP_SEND_GRAD:
        got->edge = w->in_edge[w->in_first[op.stage] + op.arg];
        break;
    default:
        return false;
    }
    got->kind =
        op.kind == OP_SEND_ACT || op.kind == OP_RECV_ACT ? MESSAGE_ACTIVATION : MESSAGE_GRADIENT;
    got->microbatch = op.microbatch;
    got->end = op.kind == OP_SEND_ACT || op.kind == OP_SEND_GRAD ? END_SENT : END_RECEIVED;
    return true;
}

static int64_t median(int64_t *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof *values, compare_int64);
    return n > 0 ? values[n / 2] : 0;
}

/* Sum up sorted ends [0, n). real and sim are scratch with room for n. */
static void sum_up(const struct message_end *ends, int64_t n, int64_t *real, int64_t *sim,
                   struct message_times times[MESSAGE_KINDS])
{
    int64_t known = 0;
    for (int64_t i = 0; i < n; i++) {
        struct message_times *t = &times[ends[i].kind];
        if (ends[i].end == END_SENT) {
            t->count++;
            t->post_ns += ends[i].end_ns - ends[i].start_ns;
            if (i + 2 < n && same_message(&ends[i], &ends[i + 2]) &&
                ends[i + 1].end == END_RECEIVED && ends[i + 2].end == END_SIMULATED &&
                ends[i + 1].start_ns <= ends[i].start_ns &&
                ends[i + 1].end_ns >= ends[i].start_ns) {
                real[known] = ends[i + 1].end_ns - ends[i].start_ns;
                sim[known++] = ends[i + 2].end_ns - ends[i + 2].start_ns;
            }
        }
        if (i + 1 == n || ends[i + 1].kind != ends[i].kind) {
            t->num_known = known;
            t->real_ns = median(real, known);
            t->sim_ns = median(sim, known);
            known = 0;
        }
    }
}

enum status message_times(const struct op_row *ops, int64_t num_ops, const struct sim_result *sim,
                          const struct workload *workload,
                          struct message_times times[MESSAGE_KINDS], struct err *err)
{
    const size_t room = (size_t)(num_ops + sim->num_ops) + 1;
    struct message_end *ends = calloc(room, sizeof *ends);
    int64_t *real = calloc(2 * room, sizeof *real), n = 0;
    enum status rc = ends && real ? OK : err_nomem(err);
    for (int k = 0; k < MESSAGE_KINDS; k++)
        times[k] = (struct message_times){0};
    for (int64_t i = 0; rc == OK && i < num_ops; i++) {
        ends[n] = (struct message_end){
            .replica = ops[i].replica, .start_ns = ops[i].start_ns, .end_ns = ops[i].end_ns};
        n += end_of(ops[i].op, workload, &ends[n]);
    }
    for (int64_t i = 0; rc == OK && i < sim->num_ops; i++) {
        const struct sim_op *op = &sim->ops[i];
        ends[n] = (struct message_end){
            .replica = op->replica, .start_ns = op->start_ns, .end_ns = op->end_ns};
        if (!end_of(op->op, workload, &ends[n]) || ends[n].end != END_SENT)
            continue;
        ends[n++].end = END_SIMULATED;
    }
    if (rc == OK) {
        qsort(ends, (size_t)n, sizeof *ends, compare_ends);
        sum_up(ends, n, real, real + room, times);
    }
    free(ends);
    free(real);
    return rc;
}
