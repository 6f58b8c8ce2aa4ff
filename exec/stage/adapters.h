/* exec/stage/adapters.h - low-rank adapters beside the products of a model (LoRA; Hu et al. 2021).
 *
 * Beside a product y = x W^T an adapter adds scale * (x A^T) B^T. W and all other tensors of the base
 * stay as they are. Names and shapes are those of the package peft: A [rank, in], B [out, rank], one
 * adapter for each named product, also where an item computes several products as one.
 *
 * The backward keeps nothing of its own: each half computes x A^T and dy B again, which costs little
 * beside the product because a rank is small. These lie in layer_pass.scratch[1], one adapter at a
 * time. */
#pragma once

#include "exec/stage/layer_parts.h"

/* The adapters of the item's first or second product. Without adapters these do nothing. Forward: y
 * += ... Backward: dx += ..., after the product's own gradient. Weights: gradients of A and B. */
void adapters_forward(const struct layer *l, const struct layer_pass *p, bool first, const void *x,
                      void *y);
void adapters_backward_input(const struct layer *l, const struct layer_pass *p, bool first,
                             const void *dy, void *dx);
void adapters_backward_weight(const struct layer *l, const struct layer_pass *p, bool first,
                              const void *dy, const void *x);

/* Whether the item's first or second product has adapters. */
bool adapters_on(const struct layer *l, const struct layer_pass *p, bool first);

/* w [out, in] += scale B A: the product with its adapter in one. in_out: w is [in, out]. O(out rank
 * in). */
void adapter_merge(int64_t out, int64_t in, bool in_out, int rank, float scale, const float *a,
                   const float *b, float *w);
