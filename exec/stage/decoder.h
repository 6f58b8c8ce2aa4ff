/* exec/stage/decoder.h - the passes of attention, mlp and norm items of the llama family; layers.h
 * says what the three passes of an item are. */
#pragma once

#include "exec/stage/layer_parts.h"

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
