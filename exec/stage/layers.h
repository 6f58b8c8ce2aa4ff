/* exec/stage/layers.h - the passes of one item over one micro-batch, as calls into a backend.
 *
 * Backward comes in two halves that share nothing but the stash: layer_backward_input() turns the
 * gradient of the output into that of the input and leaves in the stash what the weights need
 * (gradients overwrite what they replace: dqkv over qkv where it goes to no place of its own, the
 * GELU's over its input, the sum's over the sum); layer_backward_weight() adds to the accumulators,
 * or writes them where they hold nothing yet (layer_pass.fresh).
 * One after the other is the full backward: the same calls on the same operands, so the same bits.
 */
#ifndef ELAPSE_EXEC_STAGE_LAYERS_H
#define ELAPSE_EXEC_STAGE_LAYERS_H

#include "exec/stage/layer_parts.h"

#ifdef __cplusplus
extern "C" {
#endif

void layer_forward(const struct layer *l, const struct layer_pass *p);

/* dx NULL: nobody below wants it. A pre-norm item's dx may be its x. scale multiplies the loss's
 * gradient (heads). */
void layer_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                          float scale, void *dx);
void layer_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy,
                           float scale);

/* Whether the weights' half may be fresh. Not that of an embedding, which adds to rows of a table:
 * its accumulators must be zero before the first. */
bool layer_writes(const struct layer *l);

/* Whether dx may overwrite x: the weights' half reads the norm's output, not x. */
bool layer_in_place(const struct layer *l, const struct arch *arch);

#ifdef __cplusplus
}
#endif
#endif
