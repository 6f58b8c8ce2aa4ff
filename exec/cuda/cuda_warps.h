/* exec/cuda/cuda_warps.h - how many warps a block of attention's backward has where one block holds
 * a head and several numbers will do (cuda_flash_whole.cu).
 *
 * The number changes the time alone, no bit of a result. ELAPSE_ATTENTION_WARPS in the environment:
 *   auto    (the default) the fastest, as timing found it (cuda_choice.h): `elapse profile` times
 *           the numbers at the first use of a shape, and the profile store keeps the answer for the
 *           runs. A number of samples that was not timed goes the way of the nearest that was; a
 *           shape without an answer takes the first number
 *   7, 8    that one, for shapes that it will do for */
#ifndef ELAPSE_EXEC_CUDA_CUDA_WARPS_H
#define ELAPSE_EXEC_CUDA_CUDA_WARPS_H

#include "exec/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_warps;

/* ERR_INPUT: the environment's value is none of these; ERR_NOMEM. */
enum status cuda_warps_new(struct cuda_warps **warps, struct err *err);
void cuda_warps_free(struct cuda_warps *warps); /* NULL is fine */

/* A call that may go with any of `num` numbers (at most MOST_WARPS), the default first. */
enum { MOST_WARPS = 2 };
struct warps_call {
    const struct attention *a;
    bool drops; /* there is dropout */
    int warps[MOST_WARPS], num;
    /* Issues the call with so many warps, its output in `out` instead, of out_bytes. */
    void (*issue)(struct backend *be, const void *call, int warps, void *out);
    const void *call;
    int64_t out_bytes;
};
/* The number for the call; it stays for the shape. */
int cuda_warps_for(struct backend *be, const struct warps_call *c);

#ifdef __cplusplus
}
#endif
#endif
