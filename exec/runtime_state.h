/* exec/runtime_state.h - what a runtime holds, for runtime.c (building, the walk over the list),
 * runtime_ops.c (compute ops and messages) and runtime_grad.c (sums over ranks).
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
 * R8  The gradient of an item is final when the stage's last backward (B or W of the last
 *     micro-batch) has passed it; the sum of its bucket starts then.
 * R7  What stage 0 reads of the frozen prefix is made once a step and micro-batch: by Z of the
 * whole batch, by C, or, in evaluation, when F asks for it. */
#ifndef ELAPSE_EXEC_RUNTIME_STATE_H
#define ELAPSE_EXEC_RUNTIME_STATE_H

#include "exec/runtime.h"

enum { LOSS_WORDS = 3 }; /* loss, count, correct of a micro-batch */

enum direction { ACT, GRAD, DIRECTIONS };

/* One receive buffer: backend memory, and host memory where the backend's is not. */
struct buffer {
    void *data, *host;
    struct comm_request request;
    int microbatch; /* -1: free */
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
    struct comm_request *sends[DIRECTIONS]; /* by slot of the sending stage */
    void **send_host[DIRECTIONS];           /* likewise, where the backend's memory is not host */
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
    int next_slot;
    float **tree; /* R6: sums that wait for their right neighbour; backend memory, tree_depth */
    int tree_depth, tree_top;
    int64_t grad_elems; /* of all accumulators of the stage */
};

struct runtime {
    struct runtime_spec spec;
    const struct rank_ops *ops;
    int num_microbatches, window;
    struct edge *edges;
    struct stage_state *stages;
    struct op_time *times;
    void **prefix_out; /* R7: by micro-batch, backend memory; NULL without a prefix */
    bool *prefix_ready;
    bool training;               /* a step, not an evaluation */
    struct runtime_cache *cache; /* runtime_cache.c; NULL: the prefix meets no cache */
    struct reducer *reducer;     /* runtime_reduce.c */
    double *sums;                /* [replicas * microbatches][LOSS_WORDS] */
    double *item_sumsq;          /* num_items */
    bool have_norm;
    bool gradients_final; /* tied tables exchanged in this step */
    double grad_norm;
    float grad_mul;
    int64_t bytes;
    runtime_eval_hook on_eval;
    void *on_eval_ctx;
};

/* Post what the list will receive next on this edge, as far as buffers are free (R3). */
enum status runtime_post_receives(struct runtime *rt, struct edge *edge, enum direction d,
                                  const struct batch *batch, struct err *err);
/* Wait until all messages that read from a slot have left (R2). */
enum status runtime_wait_slot(struct runtime *rt, struct stage_state *s, int slot, struct err *err);

/* Ops. F, R and Z; B, I and W; the four messages. train false: evaluation. */
enum status runtime_forward(struct runtime *rt, const struct op *op, const struct batch *batch,
                            uint64_t step, bool train, struct err *err);
enum status runtime_backward(struct runtime *rt, const struct op *op, const struct batch *batch,
                             int64_t step, struct err *err);
enum status runtime_message(struct runtime *rt, const struct op *op, const struct batch *batch,
                            struct err *err);

/* R7: the prefix's output of a micro-batch lies in prefix_out afterwards. */
enum status runtime_prefix(struct runtime *rt, int microbatch, const struct batch *batch,
                           struct err *err);

/* Training steps of a plan that reads the cache: its buffers and its thread. */
enum status runtime_cache_init(struct runtime *rt, struct err *err);
void runtime_cache_clear(struct runtime *rt);
/* Before a step ends: all that it made is in the cache. */
void runtime_cache_flush(struct runtime *rt);

/* R7 by way of the cache: what it has is read, the rest computed and put there. */
enum status runtime_prefix_cached(struct runtime *rt, int microbatch, const struct batch *batch,
                                  struct err *err);

/* R6: buffers of a stage; what follows the weight gradients of a micro-batch; and, in front of
 * that, the sums that are complete with it for one item, where that is wanted earlier (folded). */
enum status runtime_tree_init(struct runtime *rt, struct stage_state *s, struct err *err);
void runtime_tree_add(struct runtime *rt, struct stage_state *s, int microbatch, bool folded);
void runtime_tree_fold(struct runtime *rt, struct stage_state *s, int microbatch, int item);

/* Sums over replicas (runtime_reduce.c). A step begins; an ALLREDUCE op and those before it are
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
