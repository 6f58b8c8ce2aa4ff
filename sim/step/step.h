/* sim/step/step.h - the state of a step that is simulated: its tables and the accounts of its
 * devices.
 *
 * direct_run.c or event_run.c computes the times and reports ops and messages to this file, which
 * counts busy time, idle time by cause, recorded ops and overflows. */
#pragma once

#include <stddef.h>

#include "partition/base/arrays.h"
#include "partition/step/schedule_memory.h"
#include "sim/step/engine.h"

/* One direction of messages between two stages of different ranks. Its index is 2 * edge, plus 1
 * for gradients. */
struct link {
    int32_t from_rank, to_rank; /* equal: no messages */
    int64_t num_sent[MB_SIZES];
};

/* The result of one pass over a rank's list. */
struct rank_survey {
    int64_t num_compute; /* F B I W R Z C P TIED NORM UPDATE */
    int64_t num_sends;
    int32_t num_forward; /* F and Z of single micro-batches */
};

enum proc_state { PROC_RUN, PROC_MESSAGE, PROC_SEND, PROC_BUCKET, PROC_TIED, PROC_NORM, PROC_DONE };

/* A device's accounts, and its progress through its list. */
struct proc {
    int64_t marked; /* end of its last op or wait: its time is accounted for up to here */
    int64_t gate;   /* the cache read that the next compute op waits for; 0: none */
    int64_t held;   /* end of the blocking sends that the next compute op waits for; 0: none */
    struct op full; /* the first op at which its memory overflows; of kind OP_KIND_COUNT: never */
    int64_t busy, first, last; /* first -1: nothing yet */
    int64_t end;               /* of anything on it: ops, copies */
    int64_t excess_ns[2];      /* time added by slowness since its last activation, gradient left */
    int64_t made_ns;           /* its last op, as a transfer carries it */
    int64_t backward_ns, backward_end; /* its last backward op: how long, when */
    int64_t idle[IDLE_CAUSE_COUNT];
    int32_t replica, rank;
    int32_t forward_left;
    uint8_t cause; /* why its last op started late, enum idle_cause */
    bool backward_seen;
    uint8_t state; /* enum proc_state */
    int64_t pc;
    int64_t launches; /* ops that the host has launched */
    int32_t sending;  /* blocking sends on their way */
    int64_t copy_in, copy_out;
    int64_t wait_message; /* channel * M + micro-batch */
};

struct bucket_run {
    int num_ready; /* replicas whose last backward has started */
    int64_t ready_ns, start_ns, end_ns;
};

/* TIED of a replica. */
struct tied_run {
    int num_ready; /* ends that have reached it */
    int64_t start_ns;
};

/* A replica that runs for itself and for others that have its times: members[first_member ..]. */
struct replica_run {
    int replica, first_member, num_members;
};

struct step {
    const struct schedule *full;
    const struct workload *workload;
    const struct cluster *cluster;
    const struct cost *cost;
    const struct plan *plan;
    const struct sim_options *options;
    int num_ranks, num_pipelines, num_procs, num_links, num_microbatches;
    bool async_host;
    bool slow;                /* some device has a speed below 1 */
    int64_t origin_ns;        /* when the first op starts */
    struct arrays arrays;     /* those from runs to ring_ns, and stage_done, tied */
    struct replica_run *runs; /* num_runs */
    int num_runs;
    int *run_of, *members;       /* by replica: the run that has its times; replicas by run */
    int32_t *alike;              /* by resource: the first one shared alike; NULL: each is alone */
    struct link *links;          /* num_links */
    struct rank_survey *surveys; /* num_ranks */
    int64_t *last_backward;      /* num_stages: op index in its rank's list; -1 none */
    struct rank_memory *memory;  /* [class][rank]; limits are those of the smallest device */
    struct proc *procs;          /* by replica then rank */
    struct bucket_run *buckets;  /* num_buckets */
    int64_t *ring_latency_ns;    /* num_stages: of the all-reduces of a stage */
    int64_t *ring_ns;            /* num_buckets: of its all-reduce, after the latency */
    int64_t full_ns;             /* first overflow; INT64_MAX: none */
    int full_proc;
    int *stage_done;       /* by stage of the plan: buckets that have ended */
    struct tied_run *tied; /* num_pipelines */
    int num_norm;          /* procs that have reached NORM */
    int64_t norm_from_ns;  /* the last of them */
    struct sim_op *ops;    /* owned, with record_ops */
    int64_t num_ops, max_ops;
};

/* Make the tables of a step whose borrowed members (full to options) are set, the others zero. On
 * failure too, the caller releases them with step_clear(). */
enum status step_init(struct step *step, struct err *err);
void step_clear(struct step *step);

/* Put all devices back to the start of their lists, as step_init() leaves them. */
void step_rewind(struct step *step);

/* Choose which replicas run for others: none, the first of each class, or the first of each group
 * whose links are shared alike. Replicas whose times are drawn or recorded each run. O(replicas x
 * links) a round of refinement, of which there are few. */
enum step_groups { GROUP_NONE, GROUP_CLASSES, GROUP_ALIKE };
enum status step_group(struct step *step, enum step_groups groups, struct err *err);

static inline bool step_runs(const struct step *step, int replica)
{
    return step->runs[step->run_of[replica]].replica == replica;
}

/* The class of a run's replicas. */
static inline int step_class(const struct step *step, int run)
{
    return step->workload->class_of_replica[step->runs[run].replica];
}

/* Give each device the account of the one that ran for it. */
void step_share_accounts(struct step *step);

/* Run the step with every message as a transfer on the network, event by event. ERR_INFEASIBLE on
 * deadlock; an overflow is left in full_ns. *shared: two transfers shared a port or an uplink.
 * *done is false where rounding may tell replicas of a group apart; rewind the step then, and run it
 * with GROUP_NONE. */
enum status event_run(struct step *step, bool *shared, bool *done, struct err *err);

/* Run the step list by list, by GROUP_CLASSES, with the times that event_run() gives. *done is false where it cannot,
 * because transfers share a link, or a list deadlocks; rewind the step then. O(ops + messages x
 * hops). ERR_NOMEM. */
enum status direct_run(struct step *step, bool *done, struct err *err);

/* Whether gradients are summed over replicas. */
static inline bool step_has_rings(const struct step *step)
{
    return step->workload->num_pipelines > 1 && step->workload->num_buckets > 0;
}
/* The latency of a link in a replica, and of TIED. */
int64_t step_latency_ns(const struct step *step, int replica, int link);
int64_t step_tied_latency_ns(const struct step *step, int replica);

/* Start the compute op at the proc's pc no earlier than now_ns, account for it, and move pc on. */
void step_start_op(struct step *step, int proc, struct op op, int64_t now_ns, int64_t *start_ns,
                   int64_t *end_ns);
/* Put C or P onto its copy engine (time-2). */
void step_start_copy(struct step *step, int proc, struct op op, int64_t now_ns);

void step_record(struct step *step, int proc, struct op op, int64_t start_ns, int64_t end_ns);

/* A message as a SEND op from leaving to arrival. */
void step_record_send(struct step *step, int replica, int link, int microbatch, int64_t start_ns,
                      int64_t end_ns);

/* A message as its receiver sees it. */
struct arrival {
    bool grad;
    uint8_t cause;     /* why the op that made it started late, enum idle_cause */
    int64_t sent_ns;   /* that op's end */
    int64_t made_ns;   /* how long that op usually takes */
    int64_t excess_ns; /* time that slowness added to it and to the ops before it */
};

/* A proc stops waiting for a message at now_ns. */
void step_woken(struct proc *proc, const struct arrival *arrival, int64_t now_ns);
/* A proc stops waiting at now_ns for buckets, TIED or NORM that began at from_ns. */
void step_reduced(struct proc *proc, int64_t from_ns, int64_t now_ns);
/* TIED or NORM is the proc's op and runs from from_ns to now_ns. */
void step_together(struct step *step, int proc, struct op op, int64_t from_ns, int64_t now_ns);
/* A bucket's all-reduce runs from start_ns to end_ns. */
void step_bucket_done(struct step *step, int bucket, int64_t start_ns, int64_t end_ns);

/* Count the time of a proc up to until_ns as idle by this cause, unless it is accounted for. */
static inline void step_mark_idle(struct proc *p, enum idle_cause cause, int64_t until_ns)
{
    if (until_ns > p->marked) {
        p->idle[cause] += until_ns - p->marked;
        p->marked = until_ns;
        p->cause = (uint8_t)cause;
    }
}

/* Return the time that slowness has added since the proc's last message in that direction, and
 * reset it. */
static inline int64_t step_take_excess(struct proc *proc, bool grad)
{
    int64_t excess = proc->excess_ns[grad];
    proc->excess_ns[grad] = 0;
    return excess;
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
