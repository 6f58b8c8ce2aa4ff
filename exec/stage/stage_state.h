/* exec/stage/stage_state.h - the inside of a stage; private to exec/stage/. */
#pragma once

#include "exec/stage/layer_parts.h"
#include "exec/stage/stage.h"
#include "partition/base/arrays.h"

/* Stash of one micro-batch: buffers of every item, and the outputs between items. */
struct stash_set {
    void *mem; /* owned, backend; NULL until first used */
    void *(*buf)[MAX_STASH];
    void **y; /* output of item i, i < num_items - 1; the last item's is the slot's out */
    bool used;
};

enum slot_state { SLOT_FREE, SLOT_FORWARD, SLOT_INPUT_DONE };

/* A micro-batch in flight. */
struct slot {
    enum slot_state state;
    struct stash_set *set;
    void *out, *grad_in;          /* owned, backend */
    void *in, *grad_out;          /* borrowed */
    void **skip_out, **skip_grad; /* owned, backend; by edge, [0] unused */
    void *inputs;                 /* owned, backend; on a device, a copy of the block */
    uint64_t serial;              /* of the block in inputs */
    struct batch_refs batch;
    int32_t *rows;          /* owned, host: batch_refs' rows, then from half way their labels */
    struct xent_sums *sums; /* owned, backend */
    const void **dy;        /* owned; gradient of item i's output, for its weights */
};

/* One end of a skip tensor. */
struct skip_port {
    int skip, item; /* of the model; of the stage */
    int edge;       /* index into in[] or out[]; 0: both ends are here */
    int nth;        /* position in the edge's buffer, which holds all tensors of its two stages */
    bool grad;      /* the source trains */
};

/* For stage_time_items(): the end of an item's pass, or the beginning of a run of items (entry <
 * 0). */
struct mark {
    struct backend_event *at; /* owned */
    int entry;                /* of item_ns */
};

/* For stage_upload(): a block that is being copied into `area`. The next forward exchanges the area
 * for its slot's. */
struct upload {
    void *area; /* owned, backend; NULL: the stage uploads nothing */
    struct backend_lane *lane;
    struct backend_event *freed, *ready; /* after the area's last reader; after the copy */
    uint64_t serial;                     /* 0: no copy waits for a forward */
};

struct stage {
    struct stage_spec spec;
    struct arch arch;
    int num_items;
    struct arrays arrays; /* layers, weights, grads, states, low, ..._elems, slots and sets */
    struct layer *layers; /* num_items; blocks of each in weights/grads/states */
    float **weights, **grads, **states[STAGE_STATES]; /* one backend allocation an item, owned */
    void **low; /* compute copies of weights[i] in the same layout; in fp32 weights[i] itself */
    /* Elements of grads[i], weights[i] and states[][i], [num_items]. At the head they leave out the
     * tied table: in grads if it has frozen, in weights if it lies in the first item, in states in
     * either case. */
    int64_t *block_elems, *weight_elems, *state_elems;
    int num_params, num_states;
    struct param *params; /* owned */
    float **lagged;       /* owned; NULL without spec.lagged; by item, NULL for a frozen one */
    float *lag_room;      /* owned, backend; for the exchange */
    bool *decay;          /* owned, num_params */
    double *sumsq;        /* of gradients, by the last update that summed them */
    double *held;         /* of weights, by apf's last check */
    struct apf_rule apf;  /* of stage_apf() */
    int num_slots;
    struct slot *slots;
    struct upload upload;
    struct stash_set *sets; /* [num_slots] live, the last one for passes without stash */
    void *flow;             /* gradient between items that cannot overwrite their input */
    void *scratch[2];       /* [rows, arch.scratch] */
    float *angles;          /* owned, backend; decoders: rope.h */
    void *cols;
    void *ping[2];                     /* outputs between items in a pass that keeps nothing */
    bool has_table, has_head;          /* of a tied table */
    float *tied_other;                 /* the accumulator of the side that lives elsewhere */
    int num_enters, num_leaves;        /* skip tensors that end or start in this stage */
    struct skip_port *enters, *leaves; /* owned */
    int num_in, num_out;            /* skip edges to other stages: in[1..num_in], out[1..num_out] */
    void **inner_act, **inner_grad; /* owned, backend; by skip of the model, inside this stage */
    void *wide;                     /* [rows, 2 hidden], where a skip joins */
    int64_t bytes;
    int *first_bad;                /* borrowed, of stage_watch() */
    const struct stage_taps *taps; /* borrowed, of stage_tap() */
    stage_grad_hook on_grad;
    void *on_grad_ctx;
    int anneal_end; /* model's items below it train with `anneal` of the learning rate */
    double anneal;
    bool *fresh;         /* by item; stage_begin_grad(): no backward has written it since */
    const bool *counted; /* borrowed, of stage_counted() */
    bool table_counted;
    int64_t *item_ns;   /* borrowed, of stage_time_items() */
    struct mark *marks; /* owned; since it was last read */
    int num_marks, room_marks;
};

/* updates.c: no backward has written item i's accumulators, and none will before they are read. */
void stage_skip_item(struct stage *stage, int i);
/* First item of the stage that trains, as an index into layers; num_items when none does. */
int stage_first_active(const struct stage *stage);
/* Backend memory that stage_bytes() counts; ptr points at a pointer of any type. */
enum status stage_grab(struct stage *stage, int64_t bytes, void *ptr, struct err *err);
enum status stage_grab_zeroed(struct stage *stage, int64_t bytes, void *ptr, struct err *err);
void stage_drop(struct stage *stage, void *ptr, int64_t bytes);
/* The fields of a block that this stage reads, in the order of model_block_fields(): bytes of a
 * sample (0: not read) and where the field begins in a copy. Either may be NULL. Returns a copy's
 * bytes. */
int64_t stage_block_bytes(const struct stage *stage, int64_t sample_bytes[BLOCK_FIELDS],
                          int64_t first[BLOCK_FIELDS]);

/* For stage_time_items(): start the clock; add the time since then to this pass of the stage's
 * item. */
void stage_clock_start(struct stage *stage);
void stage_clock_lap(struct stage *stage, int item, enum pass pass);

/* taps.c. tap_begin(): the item of the stage that a forward of n samples begins with; *x is its
 * input, unless it is the first one. tap_keep(): x is the input of item i. */
int tap_begin(struct stage *stage, int64_t n, const void **x);
void tap_keep(struct stage *stage, int i, int64_t n, const void *x);
