/* exec/stage/rope.h - the angles of rotary positions. Pure. */
#pragma once

#include "partition/model/model.h"

/* Cosine and sine of every angle of positions 0..seq-1: angles [seq, head_dim / 2, 2] in host
 * memory. Angles are products of fp32 numbers, as transformers computes them. */
void rope_angles(const struct rope *rope, int seq, int head_dim, float *angles);
