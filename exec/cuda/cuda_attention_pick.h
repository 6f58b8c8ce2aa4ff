/* exec/cuda/cuda_attention_pick.h - whose attention a shape gets: our own kernels or cuDNN's.
 *
 * ELAPSE_ATTENTION in the environment:
 *   auto    (the default) the faster, as timing found it: `elapse profile` times both at the first
 *           use of a shape, by itself in each direction, and the profile store keeps the answer for
 *           the runs (cuda_choice.h). A number of samples that was not timed goes the way of the
 *           nearest that was; a shape without an answer stays with our own
 *   own     our kernels
 *   cudnn   cuDNN's wherever it can
 *   fastest cuDNN's wherever it can, its backward by kernels that add to dq in any order: the bits
 *           of gradients differ from run to run, and so does all that follows. Gives up what the
 *           others promise: equal bits of two runs, of K pipelines and one, of a resumed run
 *
 * cuDNN can in bf16 without dropout. A shape is decided at its first use and stays as it is. Where
 * it goes to cuDNN both compute the given data then; where cuDNN refuses the shape, finds no memory
 * for its workspace, fails, or differs by more than roundings (CHOICE_TOLERANCE; PICK_LSE of the
 * log-sum-exp), our kernels keep it, with one line on stderr (none where it was to be timed and
 * cuDNN has no engine for it). A run times nothing: equal shapes go the same way in every run and
 * rank, unless one of these says otherwise. The first use of a shape by cuDNN takes seconds and
 * waits for the device.
 */
#ifndef ELAPSE_EXEC_CUDA_CUDA_ATTENTION_PICK_H
#define ELAPSE_EXEC_CUDA_CUDA_ATTENTION_PICK_H

#include "exec/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

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
