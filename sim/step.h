/* sim/step.h - what the two engines share: the step's tables, a device's progress, the rules.
 *
 * The engines (event_run.c, relax_run.c) differ in who tells time: a queue of events over a shared
 * network, or arrival times worked out as each message is sent. Everything else is here, so that
 * the rules T1-T8, H1, H2, M1-M3 of partition/workload.h exist once in the simulator. */
#ifndef ELAPSE_SIM_STEP_H
#define ELAPSE_SIM_STEP_H

#include <stddef.h>

#include "sim/engine.h"

/* A way of messages between two stages of different ranks: 2 * edge + (1 for the gradient). */
struct link {
    int32_t from_rank, to_rank; /* equal: no messages */
    int64_t num_sent[MB_SIZES];
};

/* What one pass over a rank's list tells. */
struct rank_survey {
    int64_t num_compute; /* F B I W R Z C P TIED NORM UPDATE */
    int64_t num_sends;
    int32_t num_forward; /* F and Z of single micro-batches */
};

enum proc_state { PROC_RUN, PROC_MESSAGE, PROC_BUCKET, PROC_TIED, PROC_NORM, PROC_DONE };

/* A device's progress through its list. */
struct proc {
    int64_t pc;
    int64_t clock;    /* end of its last op, or of its last wait */
    int64_t marked;   /* idle time is attributed up to here */
    int64_t launches; /* H1 */
    int64_t gate;     /* the cache read that the next compute op waits for; 0: none */
    int64_t copy_in, copy_out;
    int64_t busy, first, last; /* first -1: nothing yet */
    int64_t end;               /* of anything on it: ops, copies */
    int64_t excess_ns[2];      /* what slowness added since its last activation, gradient left */
    int64_t made_ns;           /* its last op, as a transfer carries it */
    uint8_t made_kind;
    int64_t backward_ns, backward_end; /* its last backward op: how long, when */
    int64_t idle[IDLE_CAUSE_COUNT];
    int64_t wait_message; /* link * M + micro-batch */
    int32_t forward_left;
    uint8_t state, cause; /* enum proc_state; why its last op started late, enum idle_cause */
    bool backward_seen;
};

struct bucket_run {
    int num_ready; /* replicas whose last backward has started */
    int64_t ready_ns, start_ns, end_ns;
};

/* TIED of a replica (T8). */
struct tied_run {
    int num_ready; /* ends that have reached it */
    int64_t start_ns;
};

/* Memory of one rank of one class by M1-M3. */
struct rank_memory {
    int64_t peak_bytes;
    int peak_live;
    int64_t full_op; /* first op at which a device of this rank overflows; -1: never */
};

struct step {
    const struct schedule *full;
    const struct workload *workload;
    const struct cluster *cluster;
    const struct cost *cost;
    const struct plan *plan;
    const struct sim_options *options;
    int num_ranks, num_replicas, num_procs, num_links, num_microbatches;
    bool async_host;
    int64_t origin_ns;           /* T7: when the first op starts */
    struct link *links;          /* owned, num_links */
    struct rank_survey *surveys; /* owned, num_ranks */
    int64_t *last_backward;      /* owned, num_stages: op index in its rank's list; -1 none */
    struct rank_memory *memory;  /* owned, [class][rank] */
    struct proc *procs;          /* owned, by replica then rank */
    struct bucket_run *buckets;  /* owned, num_buckets */
    int *stage_done;             /* owned, num_stages: buckets of the stage that have ended */
    struct tied_run *tied;       /* owned, num_replicas */
    int num_norm;                /* procs that have reached NORM */
    int64_t norm_from_ns;        /* the last of them */
    int64_t full_ns;             /* first overflow; INT64_MAX: none */
    int full_proc;
    struct sim_op *ops; /* owned, with record_ops */
    int64_t num_ops, max_ops;
};

enum status step_init(struct step *step, const struct schedule *full,
                      const struct workload *workload, const struct cluster *cluster,
                      const struct cost *cost, const struct plan *plan,
                      const struct sim_options *options, struct err *err);
void step_clear(struct step *step);

/* All procs, buckets and records back to the start. */
void step_reset(struct step *step);

/* The two engines. ERR_INFEASIBLE on deadlock; an overflow is left in full_ns. *shared: two
 * transfers met; the times of relax_run() are then not the answer. */
enum status event_run(struct step *step, bool *shared, struct err *err);
enum status relax_run(struct step *step, bool *shared, struct err *err);

/* Survey of all lists: counts, last backwards, messages a link. */
void step_survey(struct step *step);
/* M1-M3 over one rank's list; limit_bytes is the smallest device that runs it. */
enum status memory_walk(const struct step *step, int class_index, int rank, int64_t limit_bytes,
                        struct rank_memory *memory, struct err *err);
/* The sentence "weights 1 GiB, ..." of what is there when list position full_op starts. */
void memory_explain(const struct step *step, int class_index, int rank, int64_t full_op, char *text,
                    size_t size);

/* Name where the first unfinished device waits. */
enum status step_deadlock(const struct step *step, struct err *err);

void step_record(struct step *step, int proc, struct op op, int64_t start_ns, int64_t end_ns);

/* A message as a SEND op from leaving to arrival. */
void step_record_send(struct step *step, int replica, int link, int microbatch, int64_t start_ns,
                      int64_t end_ns);

/* Start the compute op at the proc's pc no earlier than now_ns: waits for launch and cache read are
 * accounted, *end_ns is set, pc moves on. Returns the start. */
int64_t step_start_op(struct step *step, int proc, struct op op, int64_t now_ns, int64_t *end_ns);
/* C and P on their engines (T2). */
void step_copy(struct step *step, int proc, struct op op, int64_t now_ns);

/* A proc stops waiting at now_ns for a message that was sent as told. */
void step_woken(struct proc *proc, bool grad, int64_t sent_ns, int64_t made_ns, int64_t excess_ns,
                uint8_t cause, int64_t now_ns);
/* A proc stops waiting at now_ns for buckets, TIED or NORM that began at from_ns. */
void step_reduced(struct proc *proc, int64_t from_ns, int64_t now_ns);
/* Likewise, and TIED or NORM was the op at its pc: it is recorded, pc moves on. */
void step_together(struct step *step, int proc, int64_t from_ns, int64_t now_ns);
/* The proc of a replica that holds the first (end 0) or the last stage. */
int step_tied_proc(const struct step *step, int replica, int end);

/* Note that a replica's last backward of a stage runs start..end: its buckets' ready times.
 * Returns true when this replica was the last. */
bool step_last_backward(struct step *step, struct op op, int64_t start_ns, int64_t end_ns);

/* What slowness has added since the proc's last message of that direction; starts anew. */
static inline int64_t step_take_excess(struct proc *proc, bool grad)
{
    int64_t excess = proc->excess_ns[grad];
    proc->excess_ns[grad] = 0;
    return excess;
}

static inline bool op_is_compute(uint8_t kind)
{
    return kind <= OP_Z || kind == OP_UPDATE;
}

static inline int step_link(const struct step *step, struct op op)
{
    const struct workload *w = step->workload;
    switch (op.kind) {
    case OP_SEND_ACT:
        return 2 * w->out_edge[w->out_first[op.stage] + op.arg];
    case OP_RECV_ACT:
        return 2 * w->in_edge[w->in_first[op.stage] + op.arg];
    case OP_SEND_GRAD:
        return 2 * w->in_edge[w->in_first[op.stage] + op.arg] + 1;
    default:
        return 2 * w->out_edge[w->out_first[op.stage] + op.arg] + 1;
    }
}

static inline int mb_size(const struct step *step, int microbatch)
{
    return microbatch == step->num_microbatches - 1 ? MB_LAST : MB_FULL;
}

/* All buckets of a stage / of a rank's stages have ended. */
static inline bool stage_reduced(const struct step *step, int stage)
{
    const struct workload *w = step->workload;
    return step->stage_done[stage] == w->first_bucket[stage + 1] - w->first_bucket[stage];
}
bool rank_reduced(const struct step *step, int rank);

#endif
