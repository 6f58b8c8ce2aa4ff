/* exec/cuda/cuda_matmul.h - matrix products by cuBLASLt, with plans by shape.
 *
 * A plan holds the library's descriptors and one algorithm. The algorithm is fixed at the first
 * call of a shape: the one that was given for it (cuda_choice.h; the answer is the library's
 * description of an algorithm, valid for the same library version); otherwise, if the backend
 * tunes, the fastest of the library's proposals, timed against each other on the real operands;
 * otherwise the library's first proposal. A plan lives as long as the backend, so a shape gives the
 * same bits on every call. Algorithms that may add partial products in a varying order are
 * excluded. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"
#include "exec/cuda/matmul_call.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_matmul;

/* Call it after the backend's arena and choices exist. */
enum status cuda_matmul_new(struct backend *be, struct cuda_matmul **matmul, struct err *err);
/* Bytes of device memory that it still needs for its workspace; 0: it has them. cuda_matmul_take()
 * allocates them now; otherwise the first product does. */
int64_t cuda_matmul_wants(const struct cuda_matmul *matmul);
enum status cuda_matmul_take(struct cuda_matmul *matmul, struct err *err);
void cuda_matmul_free(struct cuda_matmul *matmul); /* NULL is fine */

/* Issue the product. false: the library cannot do it in one piece, and nothing was issued.
 * MATMUL_PLAIN without bias never returns false: there it is a failure that sync() reports. */
bool cuda_matmul_run(struct backend *be, const struct matmul *p);

/* Whether to issue p in one piece: yes if the library can, unless `apart` is faster. Tuning finds
 * that out at the first call of a shape, with other memory for d and bias_grad. (Not every epilogue
 * is part of its product's kernel; some run after it and are slower than ours.) May use
 * cuda_scratch(). */
bool cuda_matmul_pays(struct backend *be, const struct matmul *p, matmul_apart *apart,
                      const void *call);

/* Keep the device busy with products for at least `ns` ns, and wait for it. Keeps no plan. Does
 * nothing if the device has no memory for the operands. */
void cuda_matmul_keep_busy(struct backend *be, int64_t ns);

#ifdef __cplusplus
}
#endif
