/* exec/stage/heads.h - the passes of pooler and heads; a head computes the loss, so it has no dy. */
#pragma once

#include "exec/stage/layer_parts.h"

void pooler_forward(const struct layer *l, const struct layer_pass *p);
void pooler_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                           void *dx);
void pooler_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy);
void head_forward(const struct layer *l, const struct layer_pass *p);
void head_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                         void *dx);
void head_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy);
