/* exec/stage/embed.h - the passes of an embedding: patches of images, or token tables. */
#ifndef ELAPSE_EXEC_STAGE_EMBED_H
#define ELAPSE_EXEC_STAGE_EMBED_H

#include "exec/stage/layer_parts.h"

#ifdef __cplusplus
extern "C" {
#endif

void embedding_forward(const struct layer *l, const struct layer_pass *p);
void embedding_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                              void *dx);
void embedding_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy);

#ifdef __cplusplus
}
#endif
#endif
