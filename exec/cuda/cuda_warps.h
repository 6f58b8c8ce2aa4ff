/* exec/cuda/cuda_warps.h - chooses the number of warps per block for attention's backward, where a
 * block holds a whole head and several numbers are possible (cuda_flash_whole.cu).
 *
 * The number changes only the time, no bit of a result. ELAPSE_ATTENTION_WARPS in the environment:
 *   auto    (the default) the fastest one. `elapse profile` times the numbers at the first use of a
 *           shape, and the profile store keeps the answers for later runs (cuda_choice.h). A
 *           number of samples that was not timed uses the answer of the nearest one that was; a
 *           shape without an answer uses the default
 *   7, 8    this number, for all shapes that can use it */
#ifndef ELAPSE_EXEC_CUDA_CUDA_WARPS_H
#define ELAPSE_EXEC_CUDA_CUDA_WARPS_H

#include "exec/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_warps;

/* ERR_INPUT: ELAPSE_ATTENTION_WARPS has another value. ERR_NOMEM. */
enum status cuda_warps_new(struct cuda_warps **warps, struct err *err);
void cuda_warps_free(struct cuda_warps *warps); /* NULL is fine */

/* A call that may use any of `num` numbers of warps (at most MOST_WARPS), the default first. */
enum { MOST_WARPS = 2 };
struct warps_call {
    const struct attention *a;
    bool drops; /* the call has dropout */
    int warps[MOST_WARPS], num;
    /* Issues the call with this number of warps, and writes its out_bytes of output to `out`
     * instead. */
    void (*issue)(struct backend *be, const void *call, int warps, void *out);
    const void *call;
    int64_t out_bytes;
};
/* The number of warps for a call. It does not change for the same shape. */
int cuda_warps_for(struct backend *be, const struct warps_call *c);

#ifdef __cplusplus
}
#endif
#endif
