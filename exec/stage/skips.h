/* exec/stage/skips.h - skip tensors of a stage (U-ViT): the edges by which they enter and leave
 * it. */
#pragma once

#include "exec/stage/stage_state.h"

/* Open after the slots exist; close is safe twice. */
enum status stage_skips_open(struct stage *stage, struct err *err);
void stage_skips_close(struct stage *stage);
/* n: samples of the micro-batch. The first two give NULL where no tensor enters item i, or where
 * nobody wants its gradient. stage_skip_leave() copies item i's output y to the edges that leave
 * it; stage_skip_grad_out() adds the gradients that come back on those edges to dy. */
const void *stage_skip_in(struct stage *stage, void *const *in, int item, int64_t n);
void *stage_skip_grad_in(struct stage *stage, const struct slot *slot, int item, int64_t n);
void stage_skip_leave(struct stage *stage, const struct slot *slot, int item, int64_t n,
                      const void *y);
void stage_skip_grad_out(struct stage *stage, void *const *grad_out, int item, int64_t n, void *dy);
