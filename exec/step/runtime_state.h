/* exec/step/runtime_state.h - what a runtime holds, for runtime.c (building, the walk over the
 * list), ops.c (compute ops), messages.c (activations and their gradients between ranks) and
 * grad_sums.c (sums over ranks).
 *
 * R1  A stage has num_slots slots; a micro-batch takes one at its F (Z) and gives it back after its
 *     B (W), or at once where nothing is kept.
 * R2  Before a forward writes into a slot, all messages that read from that slot have left.
 * R3  A message buffer of an edge is posted for the next micro-batch of the list as soon as it is
 *     free; it is free when the slot of the micro-batch that it was for is.
 * R4  There are num_slots + window buffers an edge and direction; schedule_check() has proved that
 *     no rank waits for ever with `window` messages an edge in flight.
 * R5  Micro-batches without samples (end of an epoch) are skipped alike on all ranks: no compute,
 *     no message.
 * R6  Canonical reduction: the gradient of each micro-batch is complete before it is added; sums
 *     form by the tree that halves [0, R * M) at midpoints. A rank's part [r * M, (r + 1) * M) is a
 *     node of it, since R is a power of two. An empty micro-batch counts as zeros.
 * R7  What stage 0 reads of the frozen prefix is made once a step and micro-batch: by Z of the
 *     whole batch, by C, or, in evaluation, when F asks for it.
 * R8  The gradient of an item is final when the stage's last backward (B or W of the last
 *     micro-batch) has passed it; the sum of its bucket starts then.
 *
 * On a device (backend memory is not host memory) the host runs ahead of it:
 *
 * R9  Ops are issued to the main lane in the order of the list. What other lanes do beside it is
 *     tied to it by events: a message leaves behind the op that made it, the slot is written again
 *     behind its departure (R2), a buffer is filled behind its last reader and read behind the
 *     arrival. The end of a step is behind all of them.
 * R10 The host waits for what it needs itself: the losses, the norm, a sum or a tied table that
 *     goes through it, host memory of a message or of the cache that is still under way, the end of
 *     the step. None of these waits for work that is not issued yet, and in each of them messages
 *     go on: a staged send starts when its copy has left the device.
 * R11 With links (NCCL) each edge has a communicator and a lane a direction, and the receiver posts
 *     in the order of the sender's list. A message that a rank waits for is preceded on its link by
 *     at most `window` - 1 that wait in buffers and num_slots that are in use, so a buffer is there
 *     and R4's proof holds.
 * R12 Images go to the device one micro-batch ahead of who reads them, on a lane of their own; the
 *     first of the next step as soon as this one has read its last and the loader has it.
 * R13 What comes for the first time (a kernel made at run time, an algorithm tried, a pass recorded
 *     as a graph) may wait for all that the device has before it. A message between devices is part
 *     of that and waits for the peer, which may do the same. So the first NEW_PASSES steps and as
 *     many evaluations of a runtime with links are staged, and each batch whose micro-batches have
 *     other sizes than the plan's (end of an epoch): then no stage's device waits for its
 *     neighbour's. Sums over replicas wait for what the same list has before them on all. */
#ifndef ELAPSE_EXEC_STEP_RUNTIME_STATE_H
#define ELAPSE_EXEC_STEP_RUNTIME_STATE_H

#include "exec/step/runtime.h"

enum { LOSS_WORDS = 3 }; /* loss, count, correct of a micro-batch */
enum { NEW_PASSES = 2 }; /* R13; a pass may be recorded when it comes for the second time */

enum direction { ACT, GRAD, DIRECTIONS };

/* How messages get from rank to rank. */
enum carriage {
    CARRY_HOST,   /* backend memory is host memory: MPI takes it from there */
    CARRY_STAGED, /* through pinned host memory, copied on lanes of their own, and MPI */
    CARRY_LINKS   /* from device to device, R11; staged at first, R13 */
};

/* One receive buffer: backend memory, and host memory, which is the same where the backend's is. */
struct buffer {
    void *data, *host;
    struct comm_request request;
    struct backend_event *arrived, *freed; /* R9; NULL: not on a device */
    int microbatch;                        /* -1: free */
};

/* The message that leaves a slot on an edge. */
struct outgoing {
    struct comm_request request;
    void *host;                 /* on a device: owned */
    struct backend_event *left; /* R9, borrowed: its op's mark; NULL: nothing under way */
    int64_t bytes;
    int peer, tag;
    bool waits; /* CARRY_STAGED: for its copy, in the queue of those that do */
    struct outgoing *next;
};

/* What one edge brings to this rank in one direction. */
struct inbox {
    struct buffer *buffers;
    int num_buffers;
    int *order; /* micro-batches in the order of the list's RECVs */
    int num_order, next;
    int *buffer_of; /* by micro-batch; -1 */
};

/* One edge as this rank sees it. */
struct edge {
    int from, to, peer; /* stages; the other rank, -1: both ends are here */
    bool grad;
    int64_t sample_elems;
    struct inbox inbox[DIRECTIONS];
    struct outgoing *out[DIRECTIONS];    /* by slot of the sending stage */
    struct nccl_group *link[DIRECTIONS]; /* borrowed; NULL: without links */
};

struct stage_state {
    struct stage *stage;
    int num_slots, num_in, num_out;
    int *in, *out;       /* edges that enter and leave, borrowed from the workload */
    bool *busy;          /* by slot */
    int *slot_of;        /* by micro-batch; the last one it had */
    void **in_ptr;       /* scratch, num_in + 1 */
    void **grad_out_ptr; /* scratch, num_out + 1 */
    void **out_ptr;      /* [slot][num_out + 1] */
    void **grad_in_ptr;  /* [slot][num_in + 1] */
    bool *has_r, *has_i; /* by micro-batch */
    bool summed;         /* this step's update has summed the squares of its gradients */
    int next_slot;
    float **tree; /* R6: sums that wait for their right neighbour; backend memory, tree_depth */
    int tree_depth, tree_top;
    int64_t grad_elems; /* of all accumulators of the stage */
};

/* The device's times of an op: places on its lane, in a step that is not over. */
struct op_mark {
    struct backend_event *from, *to;
    bool set;
};

struct runtime {
    struct runtime_spec spec;
    const struct rank_ops *ops;
    int num_microbatches, window;
    struct edge *edges;
    struct stage_state *stages;
    struct op_time *times;
    /* On a device: of all ops, the place that anchors them to the clock, and what the clock said
     * there. NULL where the clock times ops. */
    struct op_mark *marks, *mark; /* mark: of the op being issued */
    struct backend_event *anchor;
    int64_t anchor_ns;
    enum carriage carriage;                    /* of this pass */
    struct backend_lane *lane_in, *lane_out;   /* on a device, for what is staged */
    struct outgoing *first_waits, *last_waits; /* in the order of their copies */
    struct loss_sums *losses;                  /* [microbatches], alloc_host()'s */
    struct backend_event *losses_out;          /* behind the last of them; NULL on the host */
    void **prefix_out; /* R7: by micro-batch, backend memory; NULL without a prefix */
    bool *prefix_ready;
    /* R12: the stage that reads images, if it is here and on a device; micro-batches in the order
     * in which it does, and how many of them it has read in this step. */
    struct stage *reader;
    int *reads, num_reads, reads_done;
    bool training;               /* a step, not an evaluation */
    int passes[2];               /* over the list, begun, of evaluations and of steps; R13 */
    struct runtime_cache *cache; /* step_cache.c; NULL: the prefix meets no cache */
    struct reducer *reducer;     /* allreduce.c */
    double *sums;                /* [replicas * microbatches][LOSS_WORDS] */
    double *item_sumsq;          /* num_items */
    bool have_norm, losses_known;
    bool not_finite;      /* a loss, or the norm */
    bool gradients_final; /* tied tables exchanged in this step */
    double grad_norm;
    float grad_mul;
    int64_t bytes;
    runtime_eval_hook on_eval;
    void *on_eval_ctx;
};

static inline bool runtime_on_device(const struct runtime *rt)
{
    return !rt->spec.backend->host_memory;
}

/* --- messages.c --- */
enum status runtime_edges_init(struct runtime *rt, struct err *err);
void runtime_edges_clear(struct runtime *rt);
/* A pass over the list begins, of a step (train) or an evaluation: how its messages go (R13), and
 * what comes first on every edge is posted (R3). */
enum status runtime_post_first(struct runtime *rt, const struct batch *batch, bool train,
                               struct err *err);
/* Before a stage writes into a slot: R2. */
enum status runtime_wait_slot(struct runtime *rt, struct stage_state *s, int slot, struct err *err);
/* Until no message of this rank is under way (R9: on a device, the main lane is behind them). */
enum status runtime_finish_sends(struct runtime *rt, struct err *err);
/* Messages go on: those of MPI, and staged ones whose copy has left. */
enum status runtime_progress(struct runtime *rt, struct err *err);
/* R10. Until the device is past the event (NULL: there is none) and no send waits for its copy, so
 * that a collective of the host may follow; likewise past all that was issued, its failures known.
 */
enum status runtime_await(struct runtime *rt, struct backend_event *event, struct err *err);
enum status runtime_settle(struct runtime *rt, struct err *err);

/* R12, behind an op. */
enum status runtime_reads_init(struct runtime *rt, struct err *err);
void runtime_upload(struct runtime *rt, const struct op *op, const struct batch *batch);

/* The four message ops. */
enum status runtime_message(struct runtime *rt, const struct op *op, const struct batch *batch,
                            struct err *err);
/* From stage to stage inside the rank: a copy, so that the sender's slot is free. */
enum status runtime_hand_over(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                              const void *data, const struct batch *batch, struct err *err);
/* What has come for a micro-batch, NULL where the edge brings nothing; and its buffer is free for
 * the next message behind what was issued so far. */
void *runtime_received(const struct edge *edge, enum direction d, int mb);
enum status runtime_release(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                            const struct batch *batch, struct err *err);

/* Entry e of the stage's in[] (out[]) array: [0] is the chain's, skip edges behind it. The first
 * stage has no chain input. */
static inline int runtime_in_place(int stage, int e)
{
    return stage == 0 ? e + 1 : e;
}

/* --- the rest --- */
void *runtime_new_zeroed(struct runtime *rt, int64_t count, size_t size); /* counted; or NULL */

/* Ops. F, R and Z; B, I and W. train false: evaluation. */
enum status runtime_forward(struct runtime *rt, const struct op *op, const struct batch *batch,
                            uint64_t step, bool train, struct err *err);
enum status runtime_backward(struct runtime *rt, const struct op *op, const struct batch *batch,
                             int64_t step, struct err *err);

/* R7: the prefix's output of a micro-batch lies in prefix_out afterwards. */
enum status runtime_prefix(struct runtime *rt, int microbatch, const struct batch *batch,
                           struct err *err);

/* Training steps of a plan that reads the cache: its buffers and its thread. */
enum status runtime_cache_init(struct runtime *rt, struct err *err);
void runtime_cache_clear(struct runtime *rt);
/* Before a step ends: all that it made is in the cache; where the step has failed (rc, which it
 * then returns), no thread reads what it made any more. */
enum status runtime_cache_flush(struct runtime *rt, enum status rc, struct err *err);

/* R7 by way of the cache: what it has is read, the rest computed and put there. */
enum status runtime_prefix_cached(struct runtime *rt, int microbatch, const struct batch *batch,
                                  struct err *err);

/* R6: buffers of a stage; what follows the weight gradients of a micro-batch; and, in front of
 * that, the sums that are complete with it for one item, where that is wanted earlier (folded). */
enum status runtime_tree_init(struct runtime *rt, struct stage_state *s, struct err *err);
void runtime_tree_add(struct runtime *rt, struct stage_state *s, int microbatch, bool folded);
void runtime_tree_fold(struct runtime *rt, struct stage_state *s, int microbatch, int item);

/* Sums over replicas (allreduce.c). A step begins; an ALLREDUCE op and those before it are
 * ready; sums go on, or, with wait, end. */
enum status runtime_reduce_init(struct runtime *rt, struct err *err);
void runtime_reduce_clear(struct runtime *rt);
enum status runtime_reduce_begin(struct runtime *rt, struct err *err);
enum status runtime_reduce_ready(struct runtime *rt, const struct op *op, struct err *err);
enum status runtime_reduce_advance(struct runtime *rt, bool wait, struct err *err);
/* Whether a backward makes gradients final (R8); then runtime_reduce_item() is its stage_grad_hook.
 */
bool runtime_reduce_ahead(const struct runtime *rt, const struct op *op);
struct final_grads {
    struct runtime *rt;
    int stage;
};
enum status runtime_reduce_item(void *final_grads, int item, struct err *err);

/* NORM; and what comes before NORM and UPDATE once a step: the exchange of tied tables. */
enum status runtime_norm(struct runtime *rt, struct err *err);
enum status runtime_finish_gradients(struct runtime *rt, struct err *err);

#endif
