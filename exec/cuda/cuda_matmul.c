/* Keeps plans of matrix products by shape, makes them at first use, and issues them
 * (cuda_matmul.h).
 *
 * plan_of() looks up the key of a product in a hash table. make_plan() and choose() decide
 * for a new shape: a given answer, else what find_way() finds by tuning, else the library's first
 * proposal. Read cuda_matmul_run() and choose() first. */
#include "exec/cuda/cuda_matmul.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_arena.h"
#include "exec/cuda/cuda_matmul_plan.h"
#include "profiles/base/clock.h"

enum { FIRST_TABLE = 64 };

enum status cuda_matmul_new(struct backend *be, struct cuda_matmul **out, struct err *err)
{
    enum status rc;
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_matmul *mm = calloc(1, sizeof *mm);
    cublasStatus_t code;
    if (!mm)
        return err_nomem(err);
    mm->arena = cuda->arena;
    mm->size = FIRST_TABLE;
    mm->table = calloc((size_t)mm->size, sizeof *mm->table);
    if (!mm->table) {
        rc = err_nomem(err);
        goto out;
    }
    code = cublasLtCreate(&mm->handle);
    if (code != CUBLAS_STATUS_SUCCESS) {
        mm->handle = NULL;
        rc = err_set(err, ERR_SYSTEM, "cuda: cublasLtCreate failed: %s",
                     cublasLtGetStatusString(code));
        goto out;
    }
    *out = mm;
    mm = NULL;
    rc = OK;
out:
    cuda_matmul_free(mm);
    return rc;
}

int64_t cuda_matmul_wants(const struct cuda_matmul *mm)
{
    return mm->workspace ? 0 : MATMUL_WORKSPACE_BYTES;
}

enum status cuda_matmul_take(struct cuda_matmul *mm, struct err *err)
{
    return mm->workspace ? OK
                         : cuda_arena_alloc(mm->arena, MATMUL_WORKSPACE_BYTES, &mm->workspace, err);
}

void cuda_matmul_free(struct cuda_matmul *mm)
{
    if (!mm)
        return;
    for (int i = 0; mm->table && i < mm->size; i++)
        if (mm->table[i].made)
            matmul_plan_clear(&mm->table[i]);
    cuda_arena_release(mm->arena, mm->workspace);
    if (mm->handle)
        cublasLtDestroy(mm->handle);
    free(mm->table);
    free(mm);
}

/* Alignment of a pointer, up to 16 bytes; kernels are fastest with 16. */
static int32_t alignment_of(const void *at)
{
    int32_t align = 16;
    while ((uintptr_t)at % (uintptr_t)align)
        align /= 2;
    return align;
}

static struct matmul_key key_of(const struct matmul *p)
{
    struct matmul_key key;
    memset(&key, 0, sizeof key);
    key.m = p->m;
    key.n = p->n;
    key.k = p->k;
    key.lda = p->lda;
    key.ldb = p->ldb;
    key.ldd = p->ldd;
    key.trans_a = p->trans_a;
    key.trans_b = p->trans_b;
    key.fp32_out = p->fp32_out;
    key.epilogue = p->epilogue;
    key.grad_of_a = p->grad_of_a;
    key.has_bias = p->bias != NULL;
    key.has_aux = p->aux != NULL;
    key.adds = p->c != NULL;
    key.in_place = p->c == p->d || !p->c;
    key.aux_in_place = p->aux != NULL && p->aux == p->d;
    key.align_a = alignment_of(p->a);
    key.align_b = alignment_of(p->b);
    key.align_d = alignment_of(p->d);
    key.align_c = p->c ? alignment_of(p->c) : key.align_d;
    key.align_extra = 16;
    if (p->bias)
        key.align_extra = alignment_of(p->bias);
    if (p->aux && alignment_of(p->aux) < key.align_extra)
        key.align_extra = alignment_of(p->aux);
    return key;
}

/* FNV-1a. */
static uint64_t hash_of(const struct matmul_key *key)
{
    const unsigned char *byte = (const unsigned char *)key;
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3ULL;
    return hash ^ hash >> 32;
}

static struct matmul_plan *place_of(struct matmul_plan *table, int size,
                                    const struct matmul_key *key)
{
    uint64_t at = hash_of(key) & (uint64_t)(size - 1);
    while (table[at].made && memcmp(&table[at].key, key, sizeof *key) != 0)
        at = (at + 1) & (uint64_t)(size - 1);
    return &table[at];
}

static struct matmul_plan *find_entry(struct cuda_matmul *mm, const struct matmul_key *key)
{
    if (mm->count * 2 >= mm->size) {
        struct matmul_plan *larger = calloc((size_t)mm->size * 2, sizeof *larger);
        if (larger) {
            for (int i = 0; i < mm->size; i++)
                if (mm->table[i].made)
                    *place_of(larger, mm->size * 2, &mm->table[i].key) = mm->table[i];
            free(mm->table);
            mm->table = larger;
            mm->size *= 2;
        } else if (mm->count + 1 >= mm->size) {
            cuda_note_text(ERR_NOMEM, "cuda: no memory for plans of matrix products");
            return NULL;
        }
    }
    return place_of(mm->table, mm->size, key);
}

/* --- plans ------------------------------------------------------------------------------------ */

/* Whether the caller can compute p in separate kernels instead. */
static bool in_pieces(const struct matmul *p)
{
    return p->epilogue != MATMUL_PLAIN || p->bias;
}

/* Choose by tuning, or else take the library's first proposal. false: there is none. */
static bool find_way(struct backend *be, struct matmul_plan *e, const struct matmul *p)
{
    cublasLtMatmulHeuristicResult_t proposals[MAX_PROPOSALS];
    e->tuned = cuda_choices_tune(cuda_of(be)->choices);
    const int count = matmul_propose(be, e, proposals, e->tuned ? MAX_PROPOSALS : 1);
    if (count > 0 && e->tuned)
        matmul_fastest(be, e, p, proposals, count);
    else if (count > 0)
        matmul_take_proposal(e, &proposals[0]);
    return count > 0;
}

/* Decide how the plan computes the product. false: it cannot. */
static bool choose(struct backend *be, struct matmul_plan *e, const struct matmul *p)
{
    char problem[CHOICE_BYTES];
    matmul_name(be, &e->key, problem);
    const char *given = cuda_choices_given(cuda_of(be)->choices, problem);
    if (given && in_pieces(p) && matmul_is_apart(given))
        return false;
    if (given && matmul_follow(be, e, given))
        return true;
    if (!find_way(be, e, p))
        return false;
    if (e->tuned)
        matmul_note(be, e);
    return true;
}

static void make_plan(struct backend *be, struct matmul_plan *e, const struct matmul *p)
{
    /* The library reads a bias and an aux 16 bytes at a time. Where it cannot, it only reports a
     * general failure, so check first. */
    const bool fits = e->key.align_extra == 16 && (!p->aux || p->ldd % 8 == 0);
    e->made = true;
    if (cuda_matmul_take(cuda_of(be)->matmul, &cuda_of(be)->failed) != OK)
        return;
    e->works = fits && matmul_describe(be, e, p) && choose(be, e, p) &&
               (!e->key.aux_in_place || matmul_works_in_place(be, e, p));
}

/* The plan of p's shape, made at its first call. NULL after recording that memory ran out. The
 * pointer is valid until the next call. */
static struct matmul_plan *plan_of(struct backend *be, const struct matmul *p)
{
    struct cuda_matmul *mm = cuda_of(be)->matmul;
    const struct matmul_key key = key_of(p);
    struct matmul_plan *e = find_entry(mm, &key);
    if (e && !e->made) {
        e->key = key;
        mm->count++;
        make_plan(be, e, p);
    }
    return e;
}

/* --- products --------------------------------------------------------------------------------- */

bool cuda_matmul_run(struct backend *be, const struct matmul *p)
{
    struct matmul_plan *e = plan_of(be, p);
    if (!e)
        return true; /* the failure is recorded */
    if (!e->works) {
        if (!in_pieces(p))
            cuda_note_text(
                ERR_SYSTEM,
                "cuda: cuBLASLt has no product of %lld x %lld x %lld (ld %lld, %lld, %lld)",
                (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->lda,
                (long long)p->ldb, (long long)p->ldd);
        return false;
    }
    const cublasStatus_t code = matmul_issue(be, e, p);
    if (code == CUBLAS_STATUS_SUCCESS)
        return true;
    if (in_pieces(p)) { /* the library proposed it, but refuses to run it */
        (void)cudaGetLastError();
        e->works = false;
        return false;
    }
    cuda_note_text(ERR_SYSTEM, "cuda: cublasLtMatmul of %lld x %lld x %lld failed: %s",
                   (long long)p->m, (long long)p->n, (long long)p->k,
                   cublasLtGetStatusString(code));
    return true;
}

bool cuda_matmul_pays(struct backend *be, const struct matmul *p, matmul_apart *apart,
                      const void *call)
{
    struct matmul_plan *e = plan_of(be, p);
    if (!e || !e->works || e->compared || !e->tuned)
        return e && e->works;
    const struct matmul_plan was = *e;
    const bool pays = matmul_beats(be, &was, p, apart, call);
    e = plan_of(be, p);
    if (e) {
        e->compared = true;
        e->works = pays;
        if (!pays)
            matmul_note_apart(be, e);
    }
    return e && e->works;
}

void cuda_matmul_keep_busy(struct backend *be, int64_t ns)
{
    /* 128 or 256 tiles, so every multiprocessor has at least one. */
    enum { SIDE = 2048, DEPTH = 256 };
    const int64_t square = (int64_t)SIDE * SIDE, flat = (int64_t)SIDE * DEPTH;
    const int64_t bytes = backend_bytes(be, square + 2 * flat), begin = clock_now_ns();
    struct matmul p = {
        .m = SIDE, .n = SIDE, .k = DEPTH, .lda = SIDE, .ldb = DEPTH, .ldd = SIDE, .alpha = 1.0f};
    struct cuda_arena *arena = cuda_of(be)->arena;
    cublasLtMatmulHeuristicResult_t proposal;
    void *operands = NULL;
    if (cuda_matmul_take(cuda_of(be)->matmul, NULL) != OK ||
        cuda_arena_alloc(arena, bytes, &operands, NULL) != OK)
        return;
    CUDA_NOTE(cudaMemsetAsync(operands, 0, (size_t)bytes, cuda_of(be)->stream));
    p.d = operands;
    p.a = backend_at(be, operands, square);
    p.b = backend_at(be, operands, square + flat);
    struct matmul_plan plan = {.key = key_of(&p)};
    bool ok = matmul_describe(be, &plan, &p) && matmul_propose(be, &plan, &proposal, 1) > 0;
    if (ok)
        matmul_take_proposal(&plan, &proposal);
    for (int runs = 1; ok && clock_now_ns() - begin < ns; runs *= 2) {
        for (int i = 0; ok && i < runs; i++)
            ok = matmul_issue(be, &plan, &p) == CUBLAS_STATUS_SUCCESS;
        ok = CUDA_NOTE(cudaStreamSynchronize(cuda_of(be)->stream)) == OK && ok;
    }
    matmul_plan_clear(&plan);
    cuda_arena_release(arena, operands);
}
