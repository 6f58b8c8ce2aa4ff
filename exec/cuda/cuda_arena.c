/* Slabs in the order in which they were taken; each slab is a list of pieces by address
 * (cuda_arena.h).
 *
 * cuda_arena_alloc() searches all slabs for a free piece and takes a new slab if there is none.
 * cuda_arena_release() merges a piece with its free neighbours. cuda_arena_reserve() first
 * rehearses: it allocates all that fits, adds up the rest, and releases everything again. */
#include "exec/cuda/cuda_arena.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "exec/cuda/cuda_internal.h"
#include "partition/base/units.h"

/* Small requests share a slab of this size; a larger request gets a slab of its own size. */
#define SLAB_BYTES ((int64_t)64 << 20)
#define ALIGNMENT ((int64_t)256)

/* The pieces of a slab cover it without gaps, in a list by address. Two free pieces are never
 * neighbours. */
struct piece {
    char *at;
    int64_t bytes;
    bool used;
    struct piece *next;
};

struct slab {
    char *base;
    int64_t bytes;
    struct piece *pieces;
    struct slab *next;
};

struct cuda_arena {
    struct slab *slabs; /* in the order in which they were taken */
    int64_t held;       /* bytes taken from the driver */
};

enum status cuda_arena_new(struct cuda_arena **arena, struct err *err)
{
    *arena = calloc(1, sizeof **arena);
    return *arena ? OK : err_nomem(err);
}

static void slab_free(struct slab *slab)
{
    for (struct piece *p = slab->pieces, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    cudaFree(slab->base);
    free(slab);
}

void cuda_arena_free(struct cuda_arena *arena)
{
    if (!arena)
        return;
    for (struct slab *s = arena->slabs, *next; s; s = next) {
        next = s->next;
        slab_free(s);
    }
    free(arena);
}

/* Returns empty slabs to the driver. True: there was one. */
static bool drop_empty(struct cuda_arena *arena)
{
    bool dropped = false;
    /* Work in flight may still use released pieces, and cudaFree() does not promise to wait for it.
     */
    if (arena->slabs)
        cudaDeviceSynchronize();
    for (struct slab **at = &arena->slabs; *at;) {
        struct slab *s = *at;
        if (s->pieces->used || s->pieces->next) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        arena->held -= s->bytes;
        slab_free(s);
        dropped = true;
    }
    return dropped;
}

static enum status too_much(const struct cuda_arena *arena, int64_t bytes, struct err *err)
{
    size_t available = 0, total = 0;
    char asked[32], left[32], all[32], ours[32];
    cudaMemGetInfo(&available, &total);
    err_set(err, ERR_INFEASIBLE,
            "cuda: out of device memory: %s asked for, %s of %s free, this rank holds %s",
            format_bytes(bytes, asked, sizeof asked),
            format_bytes((int64_t)available, left, sizeof left),
            format_bytes((int64_t)total, all, sizeof all),
            format_bytes(arena->held, ours, sizeof ours));
    err_hint(err,
             "a larger pipeline.num_microbatches or pipeline.recompute=always takes less; so do "
             "more stages or a smaller batch");
    return ERR_INFEASIBLE;
}

static enum status add_slab(struct cuda_arena *arena, int64_t bytes, struct err *err)
{
    struct slab **last = &arena->slabs, *slab = calloc(1, sizeof *slab);
    struct piece *piece = calloc(1, sizeof *piece);
    void *base = NULL;
    cudaError_t code = cudaErrorMemoryAllocation;
    if (slab && piece) {
        code = cudaMalloc(&base, (size_t)bytes);
        if (code == cudaErrorMemoryAllocation && drop_empty(arena)) {
            (void)cudaGetLastError();
            code = cudaMalloc(&base, (size_t)bytes);
        }
    }
    if (!slab || !piece || code != cudaSuccess) {
        enum status rc;
        if (!slab || !piece)
            rc = err_nomem(err);
        else if (code == cudaErrorMemoryAllocation)
            rc = too_much(arena, bytes, err);
        else
            rc = cuda_failed(err, "cudaMalloc", code, __FILE__, __LINE__);
        (void)cudaGetLastError();
        free(slab);
        free(piece);
        return rc;
    }
    *piece = (struct piece){.at = base, .bytes = bytes};
    *slab = (struct slab){.base = base, .bytes = bytes, .pieces = piece};
    while (*last)
        last = &(*last)->next;
    *last = slab;
    arena->held += bytes;
    return OK;
}

static bool round_up(int64_t bytes, int64_t *rounded)
{
    if (bytes < 0 || bytes > INT64_MAX - ALIGNMENT)
        return false;
    *rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (*rounded == 0)
        *rounded = ALIGNMENT;
    return true;
}

/* The first free piece of at least `bytes`. */
static struct piece *find_free(const struct cuda_arena *arena, int64_t bytes)
{
    for (struct slab *s = arena->slabs; s; s = s->next)
        for (struct piece *p = s->pieces; p; p = p->next)
            if (!p->used && p->bytes >= bytes)
                return p;
    return NULL;
}

/* Takes `bytes` from a free piece that is large enough; the rest stays free. NULL: no host memory
 * for the entry of the rest. */
static void *split_piece(struct piece *p, int64_t bytes)
{
    if (p->bytes > bytes) {
        struct piece *rest = malloc(sizeof *rest);
        if (!rest)
            return NULL;
        *rest = (struct piece){.at = p->at + bytes, .bytes = p->bytes - bytes, .next = p->next};
        p->next = rest;
        p->bytes = bytes;
    }
    p->used = true;
    return p->at;
}

enum status cuda_arena_alloc(struct cuda_arena *arena, int64_t bytes, void **ptr, struct err *err)
{
    int64_t want;
    if (!round_up(bytes, &want))
        return err_set(err, ERR_INPUT, "cuda: cannot allocate %lld bytes", (long long)bytes);
    for (int attempt = 0; attempt < 2; attempt++) {
        struct piece *piece = find_free(arena, want);
        if (piece) {
            *ptr = split_piece(piece, want);
            return *ptr ? OK : err_nomem(err);
        }
        /* A common slab for small requests if it fits in memory, otherwise a slab for this request
         * alone. */
        enum status rc = ERR_INFEASIBLE;
        struct err full = {0};
        if (attempt == 0 && want < SLAB_BYTES)
            rc = add_slab(arena, SLAB_BYTES, &full);
        if (attempt == 0 && rc != OK)
            rc = add_slab(arena, want, err);
        if (rc != OK)
            return rc;
    }
    assert(false); /* not reached: the new slab is large enough */
    return ERR_NOMEM;
}

void cuda_arena_release(struct cuda_arena *arena, void *ptr)
{
    if (!ptr)
        return;
    for (struct slab *s = arena->slabs; s; s = s->next) {
        struct piece *before = NULL;
        if ((char *)ptr < s->base || (char *)ptr >= s->base + s->bytes)
            continue;
        for (struct piece *p = s->pieces; p; before = p, p = p->next) {
            if (p->at != (char *)ptr)
                continue;
            assert(p->used);
            p->used = false;
            struct piece *next = p->next;
            if (next && !next->used) {
                p->bytes += next->bytes;
                p->next = next->next;
                free(next);
            }
            if (before && !before->used) {
                before->bytes += p->bytes;
                before->next = p->next;
                free(p);
            }
            return;
        }
    }
    assert(false); /* ptr was not allocated here */
}

/* Allocates whatever fits, and releases it again. *missing: the bytes that did not fit. */
static enum status rehearse(struct cuda_arena *arena, const int64_t *bytes, int64_t num,
                            int64_t *missing, struct err *err)
{
    void **taken = calloc((size_t)num + 1, sizeof *taken);
    enum status rc = taken ? OK : err_nomem(err);
    *missing = 0;
    for (int64_t i = 0; i < num && rc == OK; i++) {
        int64_t want;
        struct piece *piece;
        if (!round_up(bytes[i], &want) || want > INT64_MAX - *missing)
            rc = err_set(err, ERR_INPUT, "cuda: cannot reserve %lld bytes", (long long)bytes[i]);
        else if (!(piece = find_free(arena, want)))
            *missing += want;
        else if (!(taken[i] = split_piece(piece, want)))
            rc = err_nomem(err);
    }
    for (int64_t i = 0; taken && i < num; i++)
        cuda_arena_release(arena, taken[i]);
    free(taken);
    return rc;
}

enum status cuda_arena_reserve(struct cuda_arena *arena, const int64_t *bytes, int64_t num,
                               struct err *err)
{
    int64_t missing;
    enum status rc = rehearse(arena, bytes, num, &missing, err);
    /* Return empty slabs first, so that one new slab replaces them. */
    if (rc == OK && missing > 0 && drop_empty(arena))
        rc = rehearse(arena, bytes, num, &missing, err);
    return rc == OK && missing > 0 ? add_slab(arena, missing, err) : rc;
}
