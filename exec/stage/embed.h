/* exec/stage/embed.h - the passes of an embedding: patches of images, or token tables. */
#pragma once

#include "exec/stage/layer_parts.h"

void embedding_forward(const struct layer *l, const struct layer_pass *p);
void embedding_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                              void *dx);
void embedding_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy);
