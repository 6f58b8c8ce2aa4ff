/* exec/step/runtime_state.h - the members of a runtime; private to exec/step/.
 *
 * runtime_build.c makes a runtime, run_step.c walks the op list, ops.c runs the compute ops,
 * messages.c carries activations and their gradients between ranks, allreduce.c sums gradients over
 * replicas, grad_sums.c holds canonical sums, tied tables and the norm, step_cache.c reads and
 * fills the cache of frozen activations, leave_out.c chooses weight gradients that are left out,
 * device_links.c opens communicators between devices. Read run_step.c first.
 *
 * Slots and message buffers
 *
 * slot-1  A stage has num_slots slots. A micro-batch takes one at its F (Z) and gives it back after
 *         its B (W), or at once where nothing is kept. Before a forward writes into a slot, every
 *         message that reads from that slot must have left.
 * slot-2  Each edge has num_slots + window receive buffers in each direction. A free buffer is
 *         posted for the next micro-batch of the list. A buffer becomes free together with the slot
 *         of the micro-batch that it was for. schedule_check() has proved that no rank waits for
 *         ever while `window` messages are in flight on an edge.
 *
 * Micro-batches without samples (end of an epoch) are skipped on all ranks: no compute and no
 * message. A canonical sum counts them as zeros.
 *
 * On a device (backend memory is not host memory) the host runs ahead of the device
 *
 * lane-1  Ops are issued to the main lane in the order of the list. Events order the other lanes
 *         against it: a message leaves after the op that made it, a slot is written again after its
 *         message has left (slot-1), a buffer is filled after its last reader and read after the
 *         arrival. The end of a step comes after all of them.
 * lane-2  The host waits for what it needs itself: the losses, the norm, a sum or a tied table that
 *         goes through the host, host memory whose copy or message is still in flight, and the end
 *         of the step. It never waits for work that is not issued yet, and messages continue during
 *         each wait: a staged send starts once its copy has left the device.
 * lane-3  With links (NCCL) each edge has a communicator and a lane for each direction. The
 *         receiver posts in the order of the sender's list. At most window - 1 unread messages and
 *         num_slots messages in use precede the one that a rank waits for, so slot-2 has a buffer
 *         for it.
 * lane-4  Something that happens for the first time (a kernel compiled at run time, an algorithm
 *         tried, a pass recorded as a graph) can block until the device is idle. If a neighbour
 *         blocks too while each waits for the other's NCCL message, both wait for ever. Therefore
 *         the first NEW_PASSES steps and evaluations of a runtime go through the host, and so does
 *         each batch whose micro-batch sizes differ from the plan's (end of an epoch). Sums over
 *         replicas are safe, because all replicas run the same list before them. */
#pragma once

#include "exec/step/runtime.h"
#include "partition/base/arrays.h"

enum { LOSS_WORDS = 3 }; /* loss, count, correct of a micro-batch */
enum { NEW_PASSES = 2 }; /* lane-4; a graph may be recorded when a pass runs the second time */

enum direction { ACT, GRAD, DIRECTIONS };

/* The ways in which messages travel from rank to rank. */
enum carriage {
    CARRY_HOST,   /* backend memory is host memory, and MPI sends from there */
    CARRY_STAGED, /* by MPI from pinned host memory; separate lanes copy */
    CARRY_LINKS   /* from device to device (lane-3) */
};

/* One receive buffer. On a host-memory backend data and host are one pointer. */
struct buffer {
    void *data, *host;
    struct comm_request request;
    struct backend_event *arrived, *freed; /* lane-1; NULL on a host-memory backend */
    int microbatch;                        /* -1: free */
};

/* The message that leaves a slot on an edge. */
struct outgoing {
    struct comm_request request;
    void *host;                 /* on a device: owned */
    struct backend_event *left; /* lane-1; borrowed from its op's mark; NULL: none in flight */
    int64_t bytes;
    int peer, tag;
    bool waits; /* CARRY_STAGED: queued until its copy has left the device */
    struct outgoing *next;
};

/* Receive buffers of an edge in one direction. */
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
    float **tree; /* canonical sums that wait for their right half; backend memory, tree_depth */
    int tree_depth, tree_top;
    int64_t grad_elems; /* of all accumulators of the stage */
};

/* Marks of an op's begin and end on its lane; they are read as times at the end of the step. */
struct op_mark {
    struct backend_event *from, *to;
    bool set;
};

struct runtime {
    struct runtime_spec spec;
    struct arrays arrays; /* of runtime_new_zeroed() */
    const struct rank_ops *ops;
    int num_microbatches, window;
    struct edge *edges;
    struct stage_state *stages;
    struct op_time *times;
    /* On a device: marks of all ops, and an anchor event whose time on the host's clock is known.
     * NULL on a host-memory backend, where the clock times ops directly. */
    struct op_mark *marks, *mark; /* mark: of the op that is being issued */
    struct backend_event *anchor;
    int64_t anchor_ns;
    enum carriage carriage;                    /* for the present pass */
    struct backend_lane *lane_in, *lane_out;   /* on a device, for staged copies */
    struct outgoing *first_waits, *last_waits; /* in the order of their copies */
    struct loss_sums *losses;                  /* [microbatches], alloc_host()'s */
    struct backend_event *losses_out;          /* after the last copy; NULL on the host */
    /* Output of the frozen prefix by micro-batch, backend memory; NULL without a prefix. It is made
     * once a step and micro-batch: by Z of the whole batch, by C, or by F in an evaluation. */
    void **prefix_out;
    bool *prefix_ready;
    /* On a device, the stage that reads images, if this rank has it. Images are copied one
     * micro-batch ahead on a lane of their own; the first one of the next step starts as soon as
     * this step has read its last and the loader has the batch. reads: micro-batches in reading
     * order; reads_done: how many of them this step has read. */
    struct stage *reader;
    int *reads, num_reads, reads_done;
    bool training;               /* a step, not an evaluation */
    int passes[2];               /* evaluations and steps begun, up to NEW_PASSES (lane-4) */
    struct runtime_cache *cache; /* step_cache.c; NULL: the prefix uses no cache */
    struct reducer *reducer;     /* allreduce.c */
    double *sums;                /* [replicas * microbatches][LOSS_WORDS] */
    double *item_sumsq;          /* num_items */
    bool have_norm, losses_known;
    bool not_finite;      /* a loss, or the norm */
    bool gradients_final; /* tied tables exchanged in this step */
    double grad_norm;
    float grad_mul;
    int64_t bytes;
    const struct eval_part *part; /* of the present evaluation; NULL: all of the model */
    int first_stage;              /* that runs in it */
    runtime_eval_hook on_eval;
    void *on_eval_ctx;
    struct leave_out leave_out; /* share NULL: nothing is left out */
    struct left_out *left_out;  /* leave_out.c; NULL: nothing was ever left out */
};

static inline bool runtime_on_device(const struct runtime *rt)
{
    return !rt->spec.backend->host_memory;
}

/* --- messages.c --- */
enum status runtime_edges_init(struct runtime *rt, struct err *err);
void runtime_edges_clear(struct runtime *rt);
/* Begin a pass over the list, for a step (train) or an evaluation: choose how messages travel
 * (lane-4), and post the first receives of every edge (slot-2). */
enum status runtime_post_first(struct runtime *rt, const struct batch *batch, bool train,
                               struct err *err);
/* Called before a stage writes into a slot (slot-1). */
enum status runtime_wait_slot(struct runtime *rt, struct stage_state *s, int slot, struct err *err);
/* Wait until no message of this rank is in flight. On a device the main lane waits for them too. */
enum status runtime_finish_sends(struct runtime *rt, struct err *err);
/* Let MPI's messages move on, and start staged sends whose copy has left the device. */
enum status runtime_progress(struct runtime *rt, struct err *err);
/* lane-2. runtime_await() waits until the device is past the event (NULL: none) and no send waits
 * for its copy, so that a collective of the host may follow. runtime_settle() waits for everything
 * issued so far and reports the device's failures. */
enum status runtime_await(struct runtime *rt, struct backend_event *event, struct err *err);
enum status runtime_settle(struct runtime *rt, struct err *err);

/* Called after an op: start the copy of the next images, see struct runtime's reader. */
enum status runtime_reads_init(struct runtime *rt, struct err *err);
void runtime_upload(struct runtime *rt, const struct op *op, const struct batch *batch);

/* The four message ops. */
enum status runtime_message(struct runtime *rt, const struct op *op, const struct batch *batch,
                            struct err *err);
/* From stage to stage inside this rank. It copies, so that the sender's slot becomes free. */
enum status runtime_hand_over(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                              const void *data, const struct batch *batch, struct err *err);
/* runtime_received(): the data that have arrived for a micro-batch; NULL where the edge carries
 * none. runtime_release(): everything issued so far may still read the buffer; later messages may
 * fill it. */
void *runtime_received(const struct edge *edge, enum direction d, int mb);
enum status runtime_release(struct runtime *rt, struct edge *edge, enum direction d, int mb,
                            const struct batch *batch, struct err *err);

/* Entry e of the stage's in[] (out[]) array: [0] is the chain's, skip edges after it. The first
 * stage has no chain input. */
static inline int runtime_in_place(int stage, int e)
{
    return stage == 0 ? e + 1 : e;
}

/* --- boundary.c --- */
/* Whether the present evaluation begins at a boundary: in first_stage. */
static inline bool boundary_begins(const struct runtime *rt)
{
    return rt->part && rt->part->from && rt->part->from->item > 0;
}
/* An evaluation of this part begins, or (NULL) has ended. */
void boundary_part(struct runtime *rt, const struct eval_part *part);
/* Before the forward of a micro-batch in this stage. taps must live until the forward has ended. */
void boundary_tap(struct runtime *rt, int stage, int microbatch, struct stage_taps *taps);

/* --- leave_out.c --- */
/* A step begins: choose what its backwards leave out. */
void runtime_choose(struct runtime *rt, const struct batch *batch, int64_t step);
/* The items of a stage that the backward of a micro-batch leaves out, or NULL. */
const bool *runtime_left_out(const struct runtime *rt, int stage, int microbatch);
/* All gradients of the step are summed: divide each item's by the samples counted for it. */
void runtime_rescale(struct runtime *rt);

/* --- the rest --- */
/* An array of rt->arrays, counted in rt->bytes. */
void *runtime_new_zeroed(struct runtime *rt, int64_t count, size_t size);

/* Ops. F, R and Z; B, I and W. train false: evaluation. */
enum status runtime_forward(struct runtime *rt, const struct op *op, const struct batch *batch,
                            uint64_t step, bool train, struct err *err);
enum status runtime_backward(struct runtime *rt, const struct op *op, const struct batch *batch,
                             int64_t step, struct err *err);

/* Make sure that prefix_out holds the output of this micro-batch. */
enum status runtime_prefix(struct runtime *rt, int microbatch, const struct batch *batch,
                           struct err *err);

/* For training steps of a plan that reads the cache: buffers and a thread. */
enum status runtime_cache_init(struct runtime *rt, struct err *err);
void runtime_cache_clear(struct runtime *rt);
/* Called before a step ends, with its status: puts everything that the step computed into the
 * cache. After a failed step it only waits until no thread reads the step's memory. Returns rc, or
 * the first failure of its own. */
enum status runtime_cache_flush(struct runtime *rt, enum status rc, struct err *err);

/* Like runtime_prefix(), but reads samples from the cache. The rest is computed and cached. */
enum status runtime_prefix_cached(struct runtime *rt, int microbatch, const struct batch *batch,
                                  struct err *err);

/* Canonical sums of a stage's gradients (grad_sums.c). runtime_tree_init() allocates their buffers;
 * runtime_tree_add() follows the weight gradients of a micro-batch. runtime_tree_fold() adds, for
 * one item, the sums that this micro-batch completes; where it was called for all items before,
 * runtime_tree_add() gets folded = true. */
enum status runtime_tree_init(struct runtime *rt, struct stage_state *s, struct err *err);
void runtime_tree_add(struct runtime *rt, struct stage_state *s, int microbatch, bool folded);
void runtime_tree_fold(struct runtime *rt, struct stage_state *s, int microbatch, int item);

/* Sums over replicas (allreduce.c). begin: at a step's start. ready: this ALLREDUCE op and those
 * before it may start. advance: let sums move on; with wait, until all that may start have ended.
 */
enum status runtime_reduce_init(struct runtime *rt, struct err *err);
void runtime_reduce_clear(struct runtime *rt);
enum status runtime_reduce_begin(struct runtime *rt, struct err *err);
enum status runtime_reduce_ready(struct runtime *rt, const struct op *op, struct err *err);
enum status runtime_reduce_advance(struct runtime *rt, bool wait, struct err *err);
/* Whether this backward makes gradients final, because it is the stage's last one and a sum waits
 * for it. Then runtime_reduce_item() is its stage_grad_hook: the sum of a bucket starts as soon as
 * the backward has passed the bucket's items. */
bool runtime_reduce_ahead(const struct runtime *rt, const struct op *op);
struct final_grads {
    struct runtime *rt;
    int stage;
};
enum status runtime_reduce_item(void *final_grads, int item, struct err *err);

/* The NORM op. runtime_finish_gradients() exchanges tied tables, once a step, before NORM and
 * UPDATE. */
enum status runtime_norm(struct runtime *rt, struct err *err);
enum status runtime_finish_gradients(struct runtime *rt, struct err *err);
