/* exec/cuda/cuda_attention_pick.h - whose attention a shape gets: our own kernels or cuDNN's.
 *
 * ELAPSE_ATTENTION in the environment:
 *   own     our kernels (the default, until both have been measured on a GPU)
 *   cudnn   cuDNN's, in bf16 without dropout, wherever it can
 *   auto    the same, and no word where there is no cuDNN
 *
 * A shape is decided at its first use, each direction by itself, and stays as it is. Both compute
 * the given data then; where cuDNN refuses the shape, fails, or differs by more than roundings
 * (PICK_TOLERANCE of the reference's norm; PICK_LSE of the log-sum-exp), our kernels keep it, with
 * one line on stderr. Nothing is timed: equal shapes go the same way in every run and rank, unless
 * cuDNN computes something wrong. The first use of a shape takes seconds and waits for the device.
 */
#ifndef ELAPSE_EXEC_CUDA_CUDA_ATTENTION_PICK_H
#define ELAPSE_EXEC_CUDA_CUDA_ATTENTION_PICK_H

#include "exec/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of tensors in bf16, probabilities rounded to bf16 in between: 2^-9 of a value each, a few of them
 * behind one another. What is wrong by a mask or a tensor is off by tens of percent. */
#define PICK_TOLERANCE 2e-2
#define PICK_LSE 1e-3 /* absolute, and of the value */

struct cuda_pick;

/* Behind cuda_attention_install(), whose kernels it wraps in be's table; *pick stays NULL where our
 * own are all there is. ERR_INPUT: the environment's value is none of these; ERR_NOMEM. */
enum status cuda_pick_new(struct backend *be, struct cuda_pick **pick, struct err *err);
void cuda_pick_free(struct cuda_pick *pick); /* before the arena; NULL is fine */

/* How many shapes cuDNN serves so far, in one direction. For benchmarks and tests. */
int cuda_pick_served(struct backend *be, bool backward);

#ifdef __cplusplus
}
#endif
#endif
