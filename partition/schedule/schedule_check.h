/* partition/schedule/schedule_check.h - the state that the two passes of schedule_check() share. Only
 * schedule_check.c and schedule_check_ops.c include it. */
#pragma once

#include <stdio.h>

#include "partition/base/arrays.h"
#include "partition/schedule/schedule.h"

enum { F_SEEN = 1, F_DONE = 2, R_SEEN = 4, R_DONE = 8, C_SEEN = 16, C_DONE = 32, P_SEEN = 64 };
/* Bits of one activation message. The bits of its gradient message are shifted by GRAD_SHIFT. */
enum { SEND_SEEN = 1, RECV_SEEN = 2, SENT = 4, RECEIVED = 8, GRAD_SHIFT = 4 };

struct stage_state {
    int32_t num_forward;                     /* pass 1: number of F or Z seen */
    int32_t next_input, next_weight;         /* pass 1: micro-batch of the next B/I and B/W */
    int32_t input_done, weight_done;         /* pass 2: number of B/I and of B/W that have run */
    int32_t next_bucket, buckets_done;       /* all-reduces: pass 1 and pass 2 */
    int32_t unreceived_act, unreceived_grad; /* compute lists: messages to s+1 and to s-1 */
    uint8_t whole_seen, whole_done, update_seen;
};

struct rank_state {
    int64_t next; /* position in the list */
    bool queued, tied_seen, tied_done, norm_seen, norm_done;
    bool sending; /* compute lists: the op before next has run, but its message has no room yet */
};

struct check {
    const struct schedule *schedule;
    int limit;            /* unreceived messages per edge and direction; INT_MAX: unbounded */
    struct arrays arrays; /* those below */
    struct stage_state *stages;
    struct rank_state *ranks;
    uint8_t *cells;                                 /* [stage][microbatch] */
    uint8_t *mail;                                  /* [edge][microbatch], lowered lists */
    int32_t *unreceived;                            /* [edge][grad], lowered lists */
    int *out_first, *out_edge, *in_first, *in_edge; /* lowered lists: edges of a stage */
    bool *crosses;                                  /* [edge]: its stages are on two ranks */
    int *stack, num_stacked;                        /* ranks that may be able to continue */
};

/* Print an op as stage, kind and micro-batch, such as "5B3" or "5UPDATE"; returns buf. */
static inline const char *op_text(struct op op, char buf[48])
{
    if (op.kind == OP_NORM)
        snprintf(buf, 48, "NORM");
    else if (op.microbatch == OP_WHOLE_BATCH)
        snprintf(buf, 48, "%d%s", op.stage, op_kind_name(op.kind));
    else
        snprintf(buf, 48, "%d%s%d", op.stage, op_kind_name(op.kind), op.microbatch);
    return buf;
}

static inline struct op make_op(enum op_kind kind, int stage, int microbatch)
{
    return (struct op){.microbatch = microbatch, .stage = (uint16_t)stage, .kind = (uint8_t)kind};
}

static inline uint8_t *cell(const struct check *check, int stage, int microbatch)
{
    return &check->cells[(int64_t)stage * check->schedule->num_microbatches + microbatch];
}

static inline uint8_t *mail(const struct check *check, int edge, int microbatch)
{
    return &check->mail[(int64_t)edge * check->schedule->num_microbatches + microbatch];
}

static inline bool is_frozen(const struct schedule *schedule, int stage)
{
    return stage < schedule->num_frozen_stages;
}

/* Whether `stage` is the first active stage of a list in which that stage has no I. */
static inline bool input_is_folded(const struct schedule *schedule, int stage)
{
    return schedule->drop_first_input && stage == schedule->num_frozen_stages;
}

/* The edge that a send or receive uses; -1 if there is none. */
static inline int edge_of(const struct check *check, struct op op)
{
    const bool leaving = op.kind == OP_SEND_ACT || op.kind == OP_RECV_GRAD;
    const int *first = leaving ? check->out_first : check->in_first;
    const int *edges = leaving ? check->out_edge : check->in_edge;
    const int at = first[op.stage] + op.arg;
    return at < first[op.stage + 1] ? edges[at] : -1;
}

/* Pass 1: check that every op is on its stage's rank, that none is missing or appears twice, and
 * that backwards ascend. ERR_INFEASIBLE. */
enum status schedule_check_ops(struct check *check, struct err *err);
