/* exec/stage/decoder.h - the passes of attention, mlp and norm items of the llama family; layers.h
 * says what the three passes of an item are. */
#ifndef ELAPSE_EXEC_STAGE_DECODER_H
#define ELAPSE_EXEC_STAGE_DECODER_H

#include "exec/stage/layer_parts.h"

#ifdef __cplusplus
extern "C" {
#endif

void decoder_attention_forward(const struct layer *l, const struct layer_pass *p);
void decoder_attention_backward_input(const struct layer *l, const struct layer_pass *p,
                                      const void *dy, void *dx);
void decoder_attention_backward_weight(const struct layer *l, const struct layer_pass *p,
                                       const void *dy);

void decoder_mlp_forward(const struct layer *l, const struct layer_pass *p);
void decoder_mlp_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                                void *dx);
void decoder_mlp_backward_weight(const struct layer *l, const struct layer_pass *p, const void *dy);

void decoder_norm_forward(const struct layer *l, const struct layer_pass *p);
void decoder_norm_backward_input(const struct layer *l, const struct layer_pass *p, const void *dy,
                                 void *dx);
void decoder_norm_backward_weight(const struct layer *l, const struct layer_pass *p,
                                  const void *dy);

#ifdef __cplusplus
}
#endif
#endif
