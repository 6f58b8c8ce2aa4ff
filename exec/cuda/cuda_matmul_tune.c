/* Finds the fastest plan of a product by timing, and compares it with separate kernels
 * (cuda_matmul_plan.h).
 *
 * Every timed call writes to memory of its own, so the operands stay as they are. Read
 * matmul_fastest() first, then matmul_beats(), which also checks cuDNN's results. */
#include "exec/cuda/cuda_matmul_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_arena.h"
#include "exec/cuda/cuda_scratch.h"

enum { MAX_CUDNN_PROPOSALS = 4 };

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
    if (p->d_sums)
        timed->d_sums = sums;
}

struct plan_call {
    struct backend *be;
    struct matmul_plan plan;
    const struct matmul *p;
};
static bool run_plan(const void *ctx)
{
    const struct plan_call *c = ctx;
    return matmul_issue(c->be, &c->plan, c->p) == NULL;
}

/* The ways of a product that race against each other. */
struct field {
    struct way ways[MAX_PROPOSALS + MAX_CUDNN_PROPOSALS];
    struct plan_call calls[MAX_PROPOSALS + MAX_CUDNN_PROPOSALS];
    int num;
};
static struct matmul_plan *enter(struct field *f, struct backend *be, const struct matmul_plan *e,
                                 const struct matmul *timed)
{
    struct plan_call *call = &f->calls[f->num];
    *call = (struct plan_call){be, *e, timed};
    f->ways[f->num++] = (struct way){.once = run_plan, .ctx = call};
    return &call->plan;
}

bool matmul_fastest(struct backend *be, struct matmul_plan *e, const struct matmul *p,
                    const cublasLtMatmulHeuristicResult_t *proposals, int count, bool cudnn)
{
    struct field *f = calloc(1, sizeof *f);
    struct matmul timed = {0};
    int best = -1;
    if (count > 0)
        matmul_take_proposal(e, &proposals[0]);
    if (f)
        put_aside(be, p, &timed);
    for (int i = 0; timed.d && i < count; i++)
        matmul_take_proposal(enter(f, be, e, &timed), &proposals[i]);
    for (int i = 0; timed.d && cudnn && i < MAX_CUDNN_PROPOSALS; i++)
        if (!matmul_plan_by_cudnn(be, enter(f, be, e, &timed), i))
            f->num--;
    if (timed.d)
        best = cuda_choices_race(be, f->ways, f->num);
    for (int i = 0; f && i < f->num; i++)
        if (i == best)
            *e = f->calls[i].plan;
        else
            cuda_cudnn_plan_free(f->calls[i].plan.cudnn);
    cuda_arena_release(cuda_of(be)->arena, timed.d);
    free(f);
    return count > 0 || e->cudnn;
}

bool matmul_works_in_place(struct backend *be, const struct matmul_plan *e, const struct matmul *p)
{
    const size_t bytes = (size_t)(e->key.ldd * e->key.n * be->elem_bytes);
    const size_t room = (bytes + 255) / 256 * 256;
    cudaStream_t stream = cuda_of(be)->stream;
    char *aside = cuda_scratch_or(be, 2 * (int64_t)room, NULL), *host = malloc(2 * bytes);
    struct matmul apart = *p, twin = *p;
    bool same = false;
    apart.d_sums = twin.d_sums = NULL;
    if (aside && host) {
        apart.d = aside;
        twin.aux = twin.d = aside + room;
        /* If rows are longer than the output, the rest of a row keeps its contents, so both copies
         * start equal. */
        CUDA_NOTE(cudaMemcpyAsync(apart.d, p->aux, bytes, cudaMemcpyDeviceToDevice, stream));
        CUDA_NOTE(cudaMemcpyAsync(twin.d, p->aux, bytes, cudaMemcpyDeviceToDevice, stream));
        same = !matmul_issue(be, e, &apart) && !matmul_issue(be, e, &twin);
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

/* Whether cuDNN's outputs equal those of the separate kernels, up to rounding. d goes to other
 * memory; an aux that is written is written twice. */
static bool agrees(struct backend *be, const struct matmul_plan *e, const struct matmul *p,
                   struct apart_call pieces)
{
    const struct cuda_matmul *mm = cuda_of(be)->matmul;
    const int64_t num = p->ldd * (p->n - 1) + p->m, bytes = num * be->elem_bytes;
    const bool aux = p->epilogue == MATMUL_GELU && p->aux;
    const int num_outputs = aux ? 2 : 1;
    struct matmul fused = *p;
    struct err broken = {0};
    char why[sizeof mm->refused.msg] = "";
    uint16_t *host = malloc((size_t)bytes * 4);
    fused.d = take_aside(be, p, &pieces.bias_grad);
    fused.d_sums = NULL;
    pieces.d = fused.d;
    if (!host || !fused.d) {
        snprintf(why, sizeof why, "no memory to compare cuDNN with the pieces");
    } else if (matmul_issue(be, e, &fused)) {
        (void)cudaGetLastError();
        snprintf(why, sizeof why, "%s", mm->refused.msg);
    } else {
        be->copy_out(be, host, fused.d, bytes);
        if (aux)
            be->copy_out(be, host + num, p->aux, bytes);
        run_apart(&pieces);
        be->copy_out(be, host + 2 * num, pieces.d, bytes);
        if (aux)
            be->copy_out(be, host + 3 * num, p->aux, bytes);
        if (be->sync(be, &broken) != OK) { /* leave it for the next sync() to report */
            cuda_note_text(broken.status, "%s", broken.msg);
            snprintf(why, sizeof why, "the device failed");
        }
        for (int i = 0; i < num_outputs && !why[0]; i++) {
            const double apart = cuda_choices_distance(host + i * num, host + (2 + i) * num, num);
            if (!(apart <= CHOICE_TOLERANCE))
                snprintf(why, sizeof why, "cuDNN's %s differs by %.2g of its norm (limit %.2g)",
                         i ? "aux" : "output", apart, CHOICE_TOLERANCE);
        }
    }
    if (why[0])
        fprintf(stderr, "elapse: GELU stays apart from its product of %lld x %lld x %lld: %s\n",
                (long long)p->n, (long long)p->k, (long long)p->m, why);
    cuda_arena_release(cuda_of(be)->arena, fused.d);
    free(host);
    return !why[0];
}

bool matmul_beats(struct backend *be, const struct matmul_plan *e, const struct matmul *p,
                  matmul_apart *apart, const void *call)
{
    struct apart_call pieces = {be, apart, call, NULL, NULL};
    bool pays = !e->cudnn || agrees(be, e, p, pieces);
    if (pays && e->tuned) {
        struct matmul timed;
        const struct plan_call whole = {be, *e, &timed};
        struct way ways[2] = {
            {.once = run_plan,  .ctx = &whole },
            {.once = run_apart, .ctx = &pieces}
        };
        put_aside(be, p, &timed);
        pieces.d = timed.d;
        pieces.bias_grad = timed.bias_grad;
        pays = !timed.d || cuda_choices_race(be, ways, 2) != 1;
        cuda_arena_release(cuda_of(be)->arena, timed.d);
    }
    return pays;
}
