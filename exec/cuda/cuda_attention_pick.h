/* exec/cuda/cuda_attention_pick.h - decides by shape whether attention uses our own kernels or
 * cuDNN's.
 *
 * ELAPSE_ATTENTION in the environment:
 *   auto      (the default) use the faster one. `elapse profile` times both at the first use of a
 *             shape, forward and backward separately, and the profile store keeps the answers for
 *             later runs (cuda_choice.h). A number of samples that was not timed uses the answer of
 *             the nearest one that was; a shape without an answer uses our own kernels
 *   own       our kernels
 *   cudnn     cuDNN's wherever possible
 *
 * cuDNN needs bf16 and no dropout. A shape is decided at its first use and then stays as it is. If
 * it goes to cuDNN, both compute the given data at that first use. Our kernels keep the shape if
 * cuDNN refuses it, finds no memory for its workspace, fails, or differs by more than rounding
 * (CHOICE_TOLERANCE; PICK_LSE for the log-sum-exp); one line on stderr says so, except when the
 * shape was only to be timed and cuDNN has no engine for it. A training run times nothing, so equal
 * shapes are served alike in every run and on every rank, unless one of these failures occurs. The
 * first use of a shape by cuDNN takes seconds and waits for the device. */
#pragma once

#include "exec/cuda/cuda_internal.h"

#define PICK_LSE 1e-3 /* tolerance, absolute plus relative */

struct cuda_pick;

/* Call it after cuda_attention_install(); it wraps those kernels in be's table. *pick stays NULL if
 * our own kernels are the only choice. ERR_INPUT: ELAPSE_ATTENTION has another value. ERR_NOMEM. */
enum status cuda_pick_new(struct backend *be, struct cuda_pick **pick, struct err *err);
void cuda_pick_free(struct cuda_pick *pick); /* call it before the arena is freed; NULL is fine */

/* Number of shapes that cuDNN serves so far, in one direction. For benchmarks and tests. */
int cuda_pick_served(struct backend *be, bool backward);
