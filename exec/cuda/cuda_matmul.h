/* exec/cuda/cuda_matmul.h - matrix products through cuBLASLt: plans by shape, kept.
 *
 * A plan is the library's descriptors and one algorithm, fixed at the first call of a shape: the
 * one that was given for it (cuda_choice.h; the answer is the library's description of an
 * algorithm, which it takes back in the same version); else, where tuning is on, the fastest of the
 * library's proposals, timed side by side on the real operands; else its first proposal. It stays
 * for the backend's life, so that a shape gives the same bits whenever it comes. Algorithms that
 * sum partial products in an order that may change are left out.
 *
 * A product in bf16 with GELU behind it, or with its gradient, may be one kernel of cuDNN's
 * (cuda_cudnn.h), which has GELU by erf too. ELAPSE_GELU in the environment:
 *   auto    (the default) where tuning found it the fastest: the answer names cuDNN's version, and
 *           another version does not take it
 *   own     never
 *   cudnn   wherever it can
 * At a shape's first use cuDNN and the product in pieces both compute the given data; where they
 * differ by more than roundings the pieces keep the shape, with a line on stderr. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_MATMUL_H
#define ELAPSE_EXEC_CUDA_CUDA_MATMUL_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_matmul;

/* Behind the backend's arena and choices. ERR_INPUT: ELAPSE_GELU is none of these. */
enum status cuda_matmul_new(struct backend *be, struct cuda_matmul **matmul, struct err *err);
/* Bytes of device memory that it will take for itself; 0: it has them. Taken now, or else with the
 * first product. */
int64_t cuda_matmul_wants(const struct cuda_matmul *matmul);
enum status cuda_matmul_take(struct cuda_matmul *matmul, struct err *err);
void cuda_matmul_free(struct cuda_matmul *matmul); /* NULL is fine */

enum matmul_epilogue {
    MATMUL_PLAIN,
    MATMUL_GELU,      /* d = gelu(d); aux, where not NULL, receives what entered it */
    MATMUL_DGELU,     /* d = d * gelu'(aux) */
    MATMUL_BIAS_GRAD, /* bias_grad = sums over k of op(B) (n of them), or of op(A) (m) */
};

/* MATMUL_DGELU where aux is D: nowhere does the library say that it may. Where it saves a pass over
 * memory it is taken, once the algorithm has shown, at the first call of the shape, that it gives
 * the bits that it gives out of place; else there is no such product.
 *
 * D [m, n] = epilogue(alpha op(A) op(B) + beta C + bias), column-major; op(A) [m, k], op(B) [k, n].
 * A, B, bias and aux have the backend's dtype, D and C too unless fp32_out. C may be D; NULL: none,
 * beta is 0. With C and beta 0 it is not read, and the algorithm is the one that adds: a shape that
 * writes first and adds from then on has one plan. bias, of the rows, NULL: none. */
struct matmul {
    int64_t m, n, k, lda, ldb, ldd; /* C and aux too have ldd */
    bool trans_a, trans_b, fp32_out;
    bool grad_of_a; /* MATMUL_BIAS_GRAD: of op(A) */
    bool erf;       /* of GELU, else its tanh form */
    enum matmul_epilogue epilogue;
    float alpha, beta;
    const void *a, *b, *c, *bias;
    void *aux, *d;
    float *bias_grad; /* fp32; fp32_out only */
    float *d_sums;    /* [m], MATMUL_DGELU: D's rows summed by a pass behind it; NULL: not wanted */
};

/* Issue it. false: the library has no such product in one piece, nothing was issued (never for
 * MATMUL_PLAIN without bias: there it is a failure that sync() reports). */
bool cuda_matmul_run(struct backend *be, const struct matmul *p);

/* The work of a product with an epilogue in pieces: what p writes to d goes to `d` (ldd apart),
 * what it writes to bias_grad is added to `bias_grad`. */
typedef void matmul_apart(struct backend *be, const void *call, void *d, float *bias_grad);

/* Whether to issue p in one piece: where the library has it, unless `apart` is faster. That is
 * found by tuning, at the first call of a shape, with d and bias_grad aside: not every epilogue is
 * part of its product's kernel, some run behind it, slower than ours. May use cuda_scratch(). */
bool cuda_matmul_pays(struct backend *be, const struct matmul *p, matmul_apart *apart,
                      const void *call);

/* The device multiplies for at least so long, then is waited for. Nothing of it is kept; where the
 * device has no room for the operands nothing is done. */
void cuda_matmul_keep_busy(struct backend *be, int64_t ns);

/* How many shapes cuDNN serves so far. For benchmarks and tests. */
int cuda_matmul_served(struct backend *be);

#ifdef __cplusplus
}
#endif
#endif
