/* exec/checkpoint/kept_state.h - optimizer state of frozen layers that may train again.
 *
 * A stage drops the optimizer state of an item when it freezes. If a later decision can undo that
 * (freeze_lowest()), rank 0 keeps the state in host memory, and checkpoints hold it in a file of its
 * own under the names of the other optimizer state. So the item continues where it was left, at any
 * cut, in the same run and in a resumed one. exec/change/thaw.h moves it from and to the stages. */
#pragma once

#include <stdbool.h>

#include "exec/weights/safetensors.h"
#include "exec/stage/stage.h"

struct kept_state {
    int num_items;  /* of the model */
    float **blocks; /* owned; by item, NULL: not kept. State 0 of all tensors, then state 1 */
};

/* One tensor of optimizer state, in a block. */
struct kept_tensor {
    int param, state; /* the param's number in its item, as stage_item_params() lists it */
    int64_t first;    /* of the block's elements */
};
enum { KEPT_TENSORS = STAGE_STATES * STAGE_ITEM_PARAMS };

/* List the state of an item. *num_elems (may be NULL) gets the block's size. Returns the number of
 * tensors; 0 if the job's optimizer has no state. */
int kept_list(const struct job *job, const struct param *params, int num_params,
              struct kept_tensor tensors[KEPT_TENSORS], int64_t *num_elems);

/* Make room for an item's state; it stays if it is there. ERR_NOMEM. */
enum status kept_make(struct kept_state *kept, const struct job *job, int item, struct err *err);
/* Forget items [first, end). */
void kept_drop(struct kept_state *kept, int first, int end);
void kept_clear(struct kept_state *kept); /* safe twice */
bool kept_any(const struct kept_state *kept);
/* Whether items [first, end) are all there. An optimizer without state keeps empty blocks. */
bool kept_has(const struct kept_state *kept, int first, int end);

/* Hand everything to put(). */
enum status kept_put(const struct kept_state *kept, const struct job *job, tensor_put put,
                     void *ctx, struct err *err);
/* Read items [first, end) from a checkpoint, the last one first, until one is not there, as in
 * checkpoints of older versions. */
enum status kept_load(const char *dir, const struct job *job, int first, int end,
                      struct kept_state *kept, struct err *err);
