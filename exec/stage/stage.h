/* exec/stage/stage.h - a run of consecutive items on this rank: weights, gradients, optimizer
 * state, stash, and the passes over one micro-batch that the op lists name.
 *
 * The runtime (exec/step/run_step.c) knows ops, ranks and messages; a stage knows layers; a backend
 * (exec/base/backend.h) knows arithmetic. Arithmetic depends on the micro-batch only, never on K, R
 * or the rank, so that any cut gives the same bits. Pointers to activations and their gradients are
 * backend memory, elements of the backend's dtype; parameters, their gradients and the optimizer
 * state are fp32. Below fp32 kernels read a rounded compute copy of the parameters: who writes
 * parameters from outside (a checkpoint, a move) calls stage_round_weights() after it.
 *
 * stage_build.c makes a stage, params.c and stash.c its memory, passes.c runs forward and backward,
 * layers.c, embed.c and heads.c the layers, updates.c the optimizer. Read passes.c first. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"
#include "partition/cost/cost.h"
#include "partition/plan/job.h"
#include "partition/model/model.h"
#include "partition/base/status.h"

/* One micro-batch as data/ delivers it, in host memory, borrowed. Fields that the model does not
 * use are NULL. */
struct sample_block {
    uint64_t serial; /* identifies the content: no other block has had this number; 0: unknown */
    int64_t num_samples;
    const int64_t *ids;         /* [n] sample ids, keys of dropout */
    const float *images;        /* [n, channels, image, image], normalised */
    const int32_t *tokens;      /* [n, seq] */
    const int32_t *token_types; /* [n, seq] NULL: 0 */
    bool documents;             /* token_types say where in the sample the token's document begins,
                                   whose tokens alone a causal model lets it see; ascends */
    const int32_t *lengths;     /* [n] tokens that count; the rest is padding */
    /* [n] class; [n, 2] span; [n, seq] next token or masked token, -100: none */
    const int32_t *labels;
};

/* The head's result for one micro-batch: sums, so that the caller divides by the real count. */
struct loss_sums {
    double loss;     /* sum over counted targets of the cross-entropy, nats */
    int64_t count;   /* counted targets */
    int64_t correct; /* counted targets that were predicted right */
};

struct stage; /* opaque */

/* All stages of the model; NULL where another rank holds the stage. */
struct stage_list {
    struct stage **stages;
    int num_stages;
    struct backend *backend;
};

struct stage_spec {
    const struct model *model; /* borrowed while the stage lives */
    const struct job *job;     /* borrowed: optimizer, dropout, dtype, seed */
    struct backend *backend;   /* borrowed */
    int first_item, end_item;
    int num_frozen_items; /* items [0, n) of the model are frozen */
    int64_t max_samples;  /* of a micro-batch */
    int max_live;         /* slots 0..max_live-1: pool_slots() */
    bool recompute;
    bool uploads; /* stage_upload() will be called */
    bool lagged;  /* make room for a lagged copy of the weights that train */
    /* First item of every stage of the model, num_stages + 1 entries, borrowed; needed only where
     * the model has skip edges and this stage is not all of it (may be NULL otherwise). */
    const int *first_items;
    int num_stages;
};

enum status stage_new(const struct stage_spec *spec, struct stage **stage, struct err *err);
void stage_free(struct stage *stage);

/* Initial weights. The random numbers of a tensor depend on (seed, item, tensor) only, not on the
 * cut. */
enum status stage_init_weights(struct stage *stage, uint64_t seed, struct err *err);

/* Round the parameters into their compute copy. Call it after writing into stage_params(). In fp32,
 * where kernels read the parameters themselves, it does nothing. */
void stage_round_weights(struct stage *stage);

/* Elements per sample of the tensor that enters item `item` (== leaves item - 1); 0 for item 0. */
int64_t stage_input_elems(const struct model *model, int item);

/* The step to pass outside of training: dropout is off. */
#define STEP_EVAL UINT64_MAX

/* A micro-batch on its way through the stage. Its forward, recompute and backward must get the same
 * block, slot and step. */
struct stage_batch {
    const struct sample_block *block;
    int slot;
    uint64_t step;    /* from 0; dropout is keyed by it */
    float grad_scale; /* backward of the stage with the head: multiplies the loss's gradient (1 /
                         real count) */
    /* Backward: the items of the stage whose weight gradients are left out, [items], borrowed;
     * NULL: none. */
    const bool *left_out;
    /* Backward: the accumulators are read before the next one adds to them, so items that no
     * backward has written yet are zeroed. */
    bool completes;
};

/* Weight decay applies to tensors of two dimensions and more
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
 * of the workload's entering edges; out: the same for leaving ones. keep_stash false: frozen
 * forward, evaluation, or the first forward under recompute (which keeps the inputs only).
 *
 * Passes issue their work and return; the next sync of the backend reports what failed. */
enum status stage_forward(struct stage *stage, const struct stage_batch *batch, void *const *in,
                          void **out, bool keep_stash, struct err *err);

/* Start to copy a block to the device while the device computes. The next stage_forward() of the
 * block with this serial uses the copy. An earlier copy that no forward has used is dropped. Only
 * images are copied ahead, because they are large. Returns false if nothing was started: for other
 * models, on a host-memory backend, or if the block is being copied already. The block's arrays
 * come from alloc_host() and must stay until stage_upload_end(), which makes the main lane wait for
 * the copy. */
bool stage_upload(struct stage *stage, const struct sample_block *block);
bool stage_uploads(const struct stage *stage); /* false: stage_upload() never starts a copy */
void stage_upload_end(struct stage *stage);

/* Start to copy the head's result of the slot's last forward to host memory (from alloc_host()); it
 * has arrived after an event or a sync. false: this stage has no head. */
bool stage_loss_out(struct stage *stage, int slot, struct loss_sums *host);
/* Wait for that result. Does nothing on a stage without a head. */
enum status stage_loss(struct stage *stage, int slot, struct loss_sums *loss, struct err *err);

/* The probability of each position to be the start and the end of the span, [n][seq][2] in host
 * memory. Call it directly after an evaluating forward (keep_stash false) of a stage with a span
 * head. ERR_INPUT for other stages. */
enum status stage_span_probabilities(struct stage *stage, const struct sample_block *block,
                                     float *probabilities, struct err *err);
/* The probability of each class, [n][classes] in host memory. Call it directly after an evaluating
 * forward of a stage with a head that classifies. ERR_INPUT for other stages. */
enum status stage_class_probabilities(struct stage *stage, const struct sample_block *block,
                                      float *probabilities, struct err *err);

/* The forward of a completely frozen stage, in slot 0, from its item `first` > 0 on; `in` is the
 * input of that item. It continues from a lower level that a cache holds. The model has no skip
 * edges. The bits are those of stage_forward(). */
enum status stage_forward_tail(struct stage *stage, const struct sample_block *block, int first,
                               void *in, void **out, struct err *err);

/* Backward of the micro-batch in its slot. BACKWARD_BOTH frees the slot; BACKWARD_INPUT keeps
 * what BACKWARD_WEIGHT needs, which frees it. Weight gradients are added to the stage's
 * accumulators (stage_begin_grad()). BACKWARD_WEIGHT without a BACKWARD_INPUT before it does both
 * (the first active stage has no I ops). grad_in is NULL where nothing below needs it (first active
 * item inside the stage): *grad_in is then set to NULL. */
enum backward { BACKWARD_BOTH, BACKWARD_INPUT, BACKWARD_WEIGHT };
enum status stage_backward(struct stage *stage, const struct stage_batch *batch, enum backward what,
                           void *const *grad_out, void **grad_in, struct err *err);

enum { STAGE_STATES = 2 + APF_STATES };
/* Parameters in a fixed order (by item, by tensor): name as in the checkpoint, weights, gradients,
 * optimizer state. Pointers are backend memory and live as long as the stage. */
struct param {
    char name[96];
    int item;
    bool frozen;
    int ndim;
    int64_t shape[4], num_elems;
    float *weight, *grad; /* grad NULL when frozen */
    /* Momentum or Adam's moments, then, under the policy apf, its states; NULL when unused or
     * frozen. */
    float *state[STAGE_STATES];
    bool tied_copy; /* the head's copy of the token table, not a tensor of its own */
    const char
        *began_as; /* static; of a head's own table (freeze.head): the shared table's name; NULL */
};
/* The tensors of an item of the model, without memory and without a copy of a tied table: name,
 * item, shape, num_elems and frozen (beside adapters) of each, in the order in which a stage lists
 * them. ERR_INPUT: a family that has no kernels. */
enum { STAGE_ITEM_PARAMS = 20 };
enum status stage_item_params(const struct model *model, int item,
                              struct param params[STAGE_ITEM_PARAMS], int *num, struct err *err);
int stage_num_states(const struct job *job); /* tensors of optimizer state of a parameter */
int stage_num_params(const struct stage *stage);
struct param *stage_params(struct stage *stage);

/* Reset the accumulators; those of a new stage are zero. Most are not written: instead, the first
 * backward that makes an item's weight gradients writes where later ones add. Until then they hold
 * old values. If the micro-batch of a backward is empty, call stage_skip_grad() in its place. */
void stage_begin_grad(struct stage *stage);
void stage_skip_grad(struct stage *stage);
/* Sums of squares of the gradients by item, in double; tensors are added in order. */
enum status stage_grad_sumsq(struct stage *stage,
                             double *per_item_sumsq /* end_item - first_item */, struct err *err);
/* The accumulators of item i of the stage (counted from its first), as one block with padding; NULL
 * for a frozen item. *num_elems is set. Sums over micro-batches and replicas work on these blocks;
 * both accumulators of a tied table lie in them. */
int stage_num_items(const struct stage *stage);
float *stage_grad_block(const struct stage *stage, int i, int64_t *num_elems);
/* Multiply the accumulators of item i. */
void stage_scale_grad(struct stage *stage, int i, float factor);
/* The items that the next updates change: item i of the stage where counted[i], a tied table where
 * `table`. The others keep weights and optimizer state. counted is borrowed; NULL: all. */
void stage_counted(struct stage *stage, const bool *counted, bool table);
/* One optimizer step with learning rate lr; gradients are multiplied by grad_mul (clipping) first.
 * With sums it also sums the gradients' squares as it reads them: after the next sync(),
 * stage_update_sumsq() gives the result of stage_grad_sumsq() at less cost. */
void stage_update(struct stage *stage, uint64_t step, double lr, float grad_mul, bool sums);
void stage_update_sumsq(const struct stage *stage, double *per_item_sumsq);
/* From now on the model's items below end_item, and a tied table whose embedding is one of them,
 * are updated with this share of the learning rate. 0 items: off, as in a new stage. */
void stage_anneal(struct stage *stage, int end_item, double share);
/* Policy apf: each update from now on is followed by this rule (copied). stage_held(), after the sync
 * that follows a check: how many weights the check has held, and of how many. */
void stage_apf(struct stage *stage, const struct apf_rule *rule);
void stage_held(const struct stage *stage, double *held, double *all);
/* Freeze more items: frees their optimizer state and gradients. */
enum status stage_freeze(struct stage *stage, int num_frozen_items, struct err *err);

/* The lagged copy of the weights that train, on a stage with spec.lagged; without it these do
 * nothing. stage_lag_take(): the present weights become the copy. stage_lag_swap(): weights and
 * copy of the model's items [first, end) change places, so two calls restore both. Frozen items
 * have no copy, and do not change. Both issue their work and return. stage_lagged(): the copy of
 * one parameter, in backend memory; NULL: none. */
void stage_lag_take(struct stage *stage);
void stage_lag_swap(struct stage *stage, int first_item, int end_item);
float *stage_lagged(const struct stage *stage, const struct param *param);

/* While taps are set, forwards that keep nothing for a backward copy the input of the items
 * keep[].item to keep[].host, and begin with item from.item, whose input is at from.host; in[0] is
 * not read then. Items are the model's; 0 or an item of another stage: none. Memory is
 * alloc_host()'s, [n, elems of that input]. For models without skip edges. The bits are those of a
 * whole forward. NULL: off. */
enum { STAGE_KEEPS = 2 };
struct stage_tap {
    int item;
    void *host;
};
struct stage_taps {
    struct stage_tap from, keep[STAGE_KEEPS];
};
void stage_tap(struct stage *stage, const struct stage_taps *taps);

/* Exchange the buffers of a model's item (weights, optimizer state) with another stage of the same
 * job and backend, which is about to be freed. Moves no bytes; O(parameters of both stages).
 * Returns false and changes nothing if one of them does not hold the item, if they lay it out
 * differently (the head beside a tied table), or if `from` lacks optimizer state that this stage
 * needs. */
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
bool stage_shares_table(const struct model *model); /* embedding and head use one table */
bool stage_tied(struct stage *stage, struct tied_table *tied);
void stage_tied_add(struct stage *stage);

/* While a hook is set, a backward that makes weight gradients calls it for each item, last to
 * first, once the item's gradients are issued. item is counted from the stage's first. An error of
 * the hook ends the backward. NULL: off. */
typedef enum status (*stage_grad_hook)(void *ctx, int item, struct err *err);
void stage_on_grad(struct stage *stage, stage_grad_hook hook, void *ctx);

/* While set, each forward lowers *first_bad to the first item of the model whose output has a value
 * that is not finite. It waits and copies after each item, so it is slow. NULL: off. */
void stage_watch(struct stage *stage, int *first_bad);

/* For a profiler: while item_ns is set, forward, backward and update record events at the beginning
 * and end of each item, without waiting. stage_time_read() waits, and adds the times to
 * item_ns[(item - first_item) * PASS_COUNT + pass]. item_ns is borrowed; NULL ends it. */
void stage_time_items(struct stage *stage, int64_t *item_ns);
void stage_time_read(struct stage *stage);

int64_t stage_bytes(const struct stage *stage); /* all backend memory it holds */
