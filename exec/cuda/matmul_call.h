/* exec/cuda/matmul_call.h - a matrix product with its epilogue, as kernels ask for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"

enum matmul_epilogue {
    MATMUL_PLAIN,
    MATMUL_GELU,      /* d = gelu(d) by tanh; aux: NULL, or receives gelu's input */
    MATMUL_DGELU,     /* d = d * gelu'(aux) */
    MATMUL_BIAS_GRAD, /* bias_grad = sums over k of op(B) (n values), or of op(A) (m values) */
};

/* D [m, n] = epilogue(alpha op(A) op(B) + beta C + bias), column-major; op(A) [m, k], op(B) [k, n].
 * A, B, bias and aux have the backend's dtype, and so have D and C unless fp32_out. bias has m
 * elements, NULL: none. C may be D. C NULL: there is no C, and beta is 0. With C and beta = 0, C is
 * not read, but the algorithm is the one that adds, so a shape that writes first and adds later has
 * one plan.
 *
 * MATMUL_DGELU with aux == D: the library does not document whether this is allowed. It saves a
 * pass over memory, so it is used after a test at the first call of the shape: the algorithm must
 * give the same bits as out of place. Otherwise there is no such product. */
struct matmul {
    int64_t m, n, k, lda, ldb, ldd; /* ldd also applies to C and aux */
    bool trans_a, trans_b, fp32_out;
    bool grad_of_a; /* MATMUL_BIAS_GRAD sums op(A) */
    enum matmul_epilogue epilogue;
    float alpha, beta;
    const void *a, *b, *c, *bias;
    void *aux, *d;
    float *bias_grad; /* fp32; fp32_out only */
};

/* Computes a product with its epilogue in separate kernels. Output for p->d goes to `d` (rows ldd
 * apart); output for p->bias_grad is added to `bias_grad`. */
typedef void matmul_apart(struct backend *be, const void *call, void *d, float *bias_grad);
