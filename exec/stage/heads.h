/* exec/stage/heads.h - the passes of pooler and heads; a head computes the loss, so it has no dy. */
#ifndef ELAPSE_EXEC_STAGE_HEADS_H
#define ELAPSE_EXEC_STAGE_HEADS_H

#include "exec/stage/layer_parts.h"

#ifdef __cplusplus
extern "C" {
#endif

void pooler_forward(const struct layer *l, const struct layer_pass *p);
void pooler_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                           void *dx);
void pooler_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy);
void head_forward(const struct layer *l, const struct layer_pass *p);
void head_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                         void *dx);
void head_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy);

#ifdef __cplusplus
}
#endif
#endif
