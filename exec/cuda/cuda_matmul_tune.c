/* Finds the fastest plan of a product by timing, and compares it with separate kernels
 * (cuda_matmul_plan.h).
 *
 * Every timed call writes to memory of its own, so the operands stay as they are. Read
 * matmul_fastest() first, then matmul_beats(). */
#include "exec/cuda/cuda_matmul_plan.h"

#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_arena.h"
#include "exec/cuda/cuda_scratch.h"

/* Memory for the outputs of a timed product: d, followed by the bias gradient. NULL: none left. */
static void *take_aside(struct backend *be, const struct matmul *p, float **bias_grad)
{
    const int64_t d_bytes = (p->ldd * p->n * (p->fp32_out ? 4 : be->elem_bytes) + 255) / 256 * 256;
    const int64_t bytes = d_bytes + (p->m > p->n ? p->m : p->n) * (int64_t)sizeof **bias_grad;
    void *aside = NULL;
    if (cuda_arena_alloc(cuda_of(be)->arena, bytes, &aside, NULL) != OK)
        return NULL;
    CUDA_NOTE(cudaMemsetAsync(aside, 0, (size_t)bytes, cuda_of(be)->stream));
    *bias_grad = (float *)(void *)((char *)aside + d_bytes);
    return aside;
}

/* Copies p with other memory for its outputs; timed->d is NULL if there is none. */
static void put_aside(struct backend *be, const struct matmul *p, struct matmul *timed)
{
    float *sums = NULL;
    *timed = *p;
    timed->d = take_aside(be, p, &sums);
    timed->bias_grad = sums;
    if (p->c == p->d)
        timed->c = timed->d;
}

struct plan_call {
    struct backend *be;
    struct matmul_plan plan;
    const struct matmul *p;
};
static bool run_plan(const void *ctx)
{
    const struct plan_call *c = ctx;
    return matmul_issue(c->be, &c->plan, c->p) == CUBLAS_STATUS_SUCCESS;
}

/* The proposals for a product, which race against each other. */
struct field {
    struct way ways[MAX_PROPOSALS];
    struct plan_call calls[MAX_PROPOSALS];
};

void matmul_fastest(struct backend *be, struct matmul_plan *e, const struct matmul *p,
                    const cublasLtMatmulHeuristicResult_t *proposals, int count)
{
    struct field *f = calloc(1, sizeof *f);
    struct matmul timed = {0};
    int best = -1;
    matmul_take_proposal(e, &proposals[0]);
    if (f)
        put_aside(be, p, &timed);
    for (int i = 0; timed.d && i < count; i++) {
        f->calls[i] = (struct plan_call){be, *e, &timed};
        matmul_take_proposal(&f->calls[i].plan, &proposals[i]);
        f->ways[i] = (struct way){.once = run_plan, .ctx = &f->calls[i]};
    }
    if (timed.d)
        best = cuda_choices_race(be, f->ways, count);
    if (best >= 0)
        *e = f->calls[best].plan;
    cuda_arena_release(cuda_of(be)->arena, timed.d);
    free(f);
}

bool matmul_works_in_place(struct backend *be, const struct matmul_plan *e, const struct matmul *p)
{
    const size_t bytes = (size_t)(e->key.ldd * e->key.n * be->elem_bytes);
    const size_t room = (bytes + 255) / 256 * 256;
    cudaStream_t stream = cuda_of(be)->stream;
    char *aside = cuda_scratch_or(be, 2 * (int64_t)room, NULL), *host = malloc(2 * bytes);
    struct matmul apart = *p, twin = *p;
    bool same = false;
    if (aside && host) {
        apart.d = aside;
        twin.aux = twin.d = aside + room;
        /* If rows are longer than the output, the rest of a row keeps its contents, so both copies
         * start equal. */
        CUDA_NOTE(cudaMemcpyAsync(apart.d, p->aux, bytes, cudaMemcpyDeviceToDevice, stream));
        CUDA_NOTE(cudaMemcpyAsync(twin.d, p->aux, bytes, cudaMemcpyDeviceToDevice, stream));
        same = matmul_issue(be, e, &apart) == CUBLAS_STATUS_SUCCESS &&
               matmul_issue(be, e, &twin) == CUBLAS_STATUS_SUCCESS;
        CUDA_NOTE(cudaMemcpyAsync(host, aside, bytes, cudaMemcpyDeviceToHost, stream));
        CUDA_NOTE(cudaMemcpyAsync(host + bytes, twin.d, bytes, cudaMemcpyDeviceToHost, stream));
        CUDA_NOTE(cudaStreamSynchronize(stream));
        same = same && memcmp(host, host + bytes, bytes) == 0;
    }
    free(host);
    return same;
}

/* --- against the work in pieces --------------------------------------------------------------- */

struct apart_call {
    struct backend *be;
    matmul_apart *apart;
    const void *call;
    void *d;
    float *bias_grad;
};
static bool run_apart(const void *ctx)
{
    const struct apart_call *c = ctx;
    c->apart(c->be, c->call, c->d, c->bias_grad);
    return true;
}

bool matmul_beats(struct backend *be, const struct matmul_plan *e, const struct matmul *p,
                  matmul_apart *apart, const void *call)
{
    struct matmul timed;
    put_aside(be, p, &timed);
    const struct plan_call whole = {be, *e, &timed};
    const struct apart_call pieces = {be, apart, call, timed.d, timed.bias_grad};
    struct way ways[2] = {
        {.once = run_plan,  .ctx = &whole },
        {.once = run_apart, .ctx = &pieces}
    };
    const bool pays = !timed.d || cuda_choices_race(be, ways, 2) != 1;
    cuda_arena_release(cuda_of(be)->arena, timed.d);
    return pays;
}
