/* exec/stage/stage.h - a run of consecutive items on this rank: weights, gradients, optimizer
 * state, stash, and the passes over one micro-batch that the op lists name.
 *
 * The runtime (exec/step/runtime.c) knows ops, ranks and messages; a stage knows layers; a backend
 * (exec/base/backend.h) knows arithmetic. Arithmetic depends on the micro-batch only, never on K, R
 * or the rank, so that any cut gives the same bits. Pointers to activations and their gradients are
 * backend memory, elements of the backend's dtype; parameters, their gradients and the optimizer
 * state are fp32. Below fp32 kernels read a rounded compute copy of the parameters: who writes
 * parameters from outside (a checkpoint, a move) calls stage_round_weights() behind it. */
#ifndef ELAPSE_EXEC_STAGE_STAGE_H
#define ELAPSE_EXEC_STAGE_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"
#include "partition/cost.h"
#include "partition/job.h"
#include "partition/model.h"
#include "partition/status.h"

/* One micro-batch as the data room delivers it, host memory, borrowed. Fields that the model does
 * not use are NULL. */
struct sample_block {
    uint64_t serial; /* of this content: no other block has had it; 0: not known */
    int64_t num_samples;
    const int64_t *ids;         /* [n] sample ids, keys of dropout */
    const float *images;        /* [n, channels, image, image], normalised */
    const int32_t *tokens;      /* [n, seq] */
    const int32_t *token_types; /* [n, seq] */
    const int32_t *lengths;     /* [n] tokens that count; the rest is padding */
    const int32_t
        *labels; /* [n] class; [n, 2] span; [n, seq] next token or masked token, -100: none */
};

/* What the head found in one micro-batch: sums, so that the caller divides by the real count. */
struct loss_sums {
    double loss;     /* sum over counted targets of the cross-entropy, nats */
    int64_t count;   /* counted targets */
    int64_t correct; /* of them predicted right */
};

struct stage; /* opaque */

/* The stages of this rank, in a list that is num_stages long (NULL: another rank's). */
struct stage_list {
    struct stage **stages;
    int num_stages;
    struct backend *backend;
};

struct stage_spec {
    const struct model *model; /* borrowed while the stage lives */
    const struct job *job;     /* likewise: optimizer, dropout, dtype, seed */
    struct backend *backend;   /* likewise */
    int first_item, end_item;
    int num_frozen_items; /* items [0, n) of the model are frozen */
    int64_t max_samples;  /* of a micro-batch */
    int max_live;         /* slots 0..max_live-1: pool_slots() */
    bool recompute;
    bool uploads; /* stage_upload() will be called */
    /* First item of every stage of the model, num_stages + 1 entries, borrowed; needed only where
     * the model has skip edges and this stage is not all of it (may be NULL otherwise). */
    const int *first_items;
    int num_stages;
};

enum status stage_new(const struct stage_spec *spec, struct stage **stage, struct err *err);
void stage_free(struct stage *stage);

/* Initial weights: each tensor from a counter keyed by (seed, item, tensor), so that the cut does
 * not matter. */
enum status stage_init_weights(struct stage *stage, uint64_t seed, struct err *err);

/* Make the compute copy anew from the parameters: after writing into stage_params(). Nothing in
 * fp32, where the parameters are what kernels read. */
void stage_round_weights(struct stage *stage);

/* Elements per sample of the tensor that enters item `item` (== leaves item - 1); 0 for item 0. */
int64_t stage_input_elems(const struct model *model, int item);

/* step of a pass that is no training step: dropout is off. */
#define STEP_EVAL UINT64_MAX

/* Steps count from 0; the same step must be given to forward, recompute and backward of a
 * micro-batch (dropout is keyed by it). Weight decay applies to tensors of two dimensions and more
 * (not to biases and norms).
 *
 * Pointers passed as in[] and grad_out[] are borrowed until the slot is free again (after
 * BACKWARD_BOTH or BACKWARD_WEIGHT; at once when keep_stash is false, except in[] under recompute).
 * Pointers handed back in out[] and grad_in[] belong to the slot and stay valid until the next
 * forward into it. On a host-memory backend block too is borrowed until then; ids, labels, tokens
 * are read again.
 *
 * grad_out[0] may be overwritten (gradients of skip tensors are added to it).
 *
 * in[0] is the chain input [n, elems] (NULL on the first stage), in[1..] skip tensors in the order
 * of the workload's entering edges; out likewise for leaving ones. keep_stash false: frozen
 * forward, evaluation, or the first forward under recompute (which keeps the inputs only).
 *
 * Passes issue their work and return; the next sync of the backend reports what failed. loss, not
 * NULL, on the stage with the head: the call waits and fills it. */
enum status stage_forward(struct stage *stage, int slot, const struct sample_block *block,
                          uint64_t step, void *const *in, void **out, bool keep_stash,
                          struct loss_sums *loss, struct err *err);

/* Start to bring a block to the device, beside what that computes: the next stage_forward() of the
 * block with this serial finds it there. An earlier one that no forward has taken is dropped.
 * Images only, which are large: false where nothing was started, for other models, in host memory,
 * and where the block is on its way already. The block's arrays are alloc_host()'s and stay until
 * stage_upload_end(), behind which the main lane, and whoever waits for it, is past the copy. */
bool stage_upload(struct stage *stage, const struct sample_block *block);
bool stage_uploads(const struct stage *stage); /* false: stage_upload() never does anything */
void stage_upload_end(struct stage *stage);

/* Start to copy what the head found in the slot's last forward to host memory (alloc_host()'s: it
 * is there behind an event or a sync). false: this stage has no head. */
bool stage_loss_out(struct stage *stage, int slot, struct loss_sums *host);

/* Directly behind an evaluating forward (keep_stash false) of a stage with a span head: how
 * probable each position is as start and as end, [n][seq][2] in host memory. ERR_INPUT for other
 * stages. */
enum status stage_span_probabilities(struct stage *stage, const struct sample_block *block,
                                     float *probabilities, struct err *err);

/* The frozen forward of a stage that is frozen as a whole, from its item `first` > 0 on: in is what
 * enters that item. For what a cache holds of a lower level; the model has no skip edges. Bits as
 * by stage_forward(). */
enum status stage_forward_tail(struct stage *stage, int slot, const struct sample_block *block,
                               int first, void *in, void **out, struct err *err);

/* Backward of the micro-batch in slot. grad_scale multiplies the loss's gradient (1 / real count)
 * and matters on the stage with the head only. BACKWARD_BOTH frees the slot; BACKWARD_INPUT keeps
 * what BACKWARD_WEIGHT needs, which frees it. Weight gradients are added to the stage's
 * accumulators (stage_begin_grad()). BACKWARD_WEIGHT without a BACKWARD_INPUT before it does both
 * (the first active stage has no I ops). grad_in is NULL where nothing below needs it (first active
 * item inside the stage): *grad_in is then set to NULL. */
enum backward { BACKWARD_BOTH, BACKWARD_INPUT, BACKWARD_WEIGHT };
enum status stage_backward(struct stage *stage, int slot, const struct sample_block *block,
                           uint64_t step, enum backward what, float grad_scale,
                           void *const *grad_out, void **grad_in, struct err *err);

/* Parameters in a fixed order (by item, by tensor): name as in the checkpoint, weights, gradients,
 * optimizer state. Pointers are backend memory and live as long as the stage. */
struct param {
    char name[96];
    int item;
    bool frozen;
    int ndim;
    int64_t shape[4], num_elems;
    float *weight, *grad; /* grad NULL when frozen */
    float *state[2];      /* momentum / Adam moments; NULL when unused or frozen */
    bool tied_copy;       /* the head's copy of the token table, not a tensor of its own */
};
int stage_num_params(const struct stage *stage);
struct param *stage_params(struct stage *stage);

/* The accumulators begin again from zero, which a new stage's are. Nothing is stored for most: the
 * first backward that makes weight gradients writes where later ones add. Until it has come, or
 * stage_skip_grad() in place of one whose micro-batch is empty, what lies there is old. */
void stage_begin_grad(struct stage *stage);
void stage_skip_grad(struct stage *stage);
/* Sum of squares of all gradients, one partial a tensor added in order, in double. */
enum status stage_grad_sumsq(struct stage *stage,
                             double *per_item_sumsq /* end_item - first_item */, struct err *err);
/* The accumulators of item i of the stage (0-based in it), one block with its padding, frozen items
 * NULL. *num_elems is set. What sums over micro-batches and replicas works on; a tied table's two
 * accumulators both lie in such blocks. */
int stage_num_items(const struct stage *stage);
float *stage_grad_block(const struct stage *stage, int i, int64_t *num_elems);
/* One optimizer step with learning rate lr; gradients are multiplied by grad_mul (clipping) first.
 * sums: stage_update_sumsq() has what stage_grad_sumsq() says, at less cost, from the next sync()
 * on. */
void stage_update(struct stage *stage, uint64_t step, double lr, float grad_mul, bool sums);
void stage_update_sumsq(const struct stage *stage, double *per_item_sumsq);
/* Move the boundary up: frees optimizer state and gradients of items that froze. */
enum status stage_freeze(struct stage *stage, int num_frozen_items, struct err *err);

/* Take over the buffers of a model's item (weights, optimizer state) from another stage of the same
 * job and backend, which gets this one's in exchange and is to be freed. false, and nothing is
 * changed, where one of them does not hold the item or lays it out otherwise (the head beside a
 * tied table), or `from` has no optimizer state that this one needs. O(parameters of the stages) of
 * pointers, no bytes move. */
bool stage_adopt(struct stage *stage, struct stage *from, int item);

/* A table shared by embedding and head (GPT-2; BERT's masked-LM head). Each side has an
 * accumulator: table_grad is the embedding's, head_grad the head's. Where both live in one stage
 * (is_head and is_table), nothing needs to be sent. Else each side fills its own and provides the
 * other as a buffer: before NORM and UPDATE the two ranks exchange them (after the replicas were
 * summed), so that both hold both; then each calls stage_tied_add(), which forms table + head in
 * that order. false: no tied table in this stage. The head's copy counts no gradient norm
 * (stage_grad_sumsq skips it) and takes the same optimizer step. */
struct tied_table {
    bool is_table, is_head;
    int64_t num_elems;
    float *weight; /* the head's copy starts equal: both sides initialise from the same counter */
    float *table_grad, *head_grad;
};
bool stage_shares_table(const struct model *model); /* embedding and head read one table */
bool stage_tied(struct stage *stage, struct tied_table *tied);
void stage_tied_add(struct stage *stage);

/* While set, a backward that makes weight gradients calls it behind each item, last to first, once
 * that item's are issued: item is 0-based in the stage. Its error ends the backward. NULL: off. */
typedef enum status (*stage_grad_hook)(void *ctx, int item, struct err *err);
void stage_on_grad(struct stage *stage, stage_grad_hook hook, void *ctx);

/* While set, a forward notes in *first_bad the lowest item of the model, below what stands there,
 * whose output has a value that is not finite. Waits and copies behind each item. NULL: off. */
void stage_watch(struct stage *stage, int *first_bad);

/* For a profiler: while item_ns is set, forward, backward and update mark where each item begins
 * and ends on the device, by events, without waiting for it. stage_time_read() waits, and adds the
 * times to item_ns[(item - first_item) * PASS_COUNT + pass]. Borrowed; NULL ends it. */
void stage_time_items(struct stage *stage, int64_t *item_ns);
void stage_time_read(struct stage *stage);

int64_t stage_bytes(const struct stage *stage); /* all backend memory it holds */

#endif
