/* exec/stage/layers.h - forward and backward of one item over one micro-batch, as calls into a
 * backend.
 *
 * The backward has two halves that share only the stash. layer_backward_input() computes the
 * gradient of the input from that of the output, and leaves in the stash what the second half
 * needs. It overwrites tensors that are no longer used with their gradients: qkv by dqkv (unless
 * layer_pass.aside is set), the GELU's input by its gradient, a sum by its gradient.
 * layer_backward_weight() adds the gradients of the weights to the accumulators, or writes them if
 * layer_pass.fresh. Called in this order they are the full backward: the same calls on the same
 * operands, so the same bits. */
#pragma once

#include "exec/stage/layer_parts.h"

void layer_forward(const struct layer *l, const struct layer_pass *p);

/* dx NULL: no item below needs it. dx may be x if layer_in_place(). */
void layer_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                          void *dx);
void layer_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy);

/* Whether layer_backward_weight() may be fresh. An embedding may not, because it adds to rows of a
 * table: zero its accumulators before the first micro-batch. */
bool layer_writes(const struct layer *l);

/* Whether dx may overwrite x. True where layer_backward_weight() reads the norm's output and not x.
 */
bool layer_in_place(const struct layer *l, const struct arch *arch);
