#include "exec/cpu/cpu.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "exec/cpu/gemm.h"

/* What stands in the 64 bytes in front of memory that was given out. */
struct block {
    void *got;
    size_t mapped; /* bytes of a mapping of its own; 0: got is malloc()'s */
};
enum { IN_FRONT = 64, HUGE_PAGE = 2 << 20 };

/* Large memory lies in huge pages where the system has some for those who ask (Linux,
 * admin-guide/mm/transhuge): steps stride through it faster, and a first touch clears 512 pages in
 * one fault. */
static char *map_huge(size_t bytes, struct block *block)
{
    block->mapped = bytes + HUGE_PAGE;
    block->got =
        mmap(NULL, block->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block->got == MAP_FAILED)
        return NULL;
    char *at = (char *)block->got + HUGE_PAGE - (uintptr_t)block->got % HUGE_PAGE;
#ifdef MADV_HUGEPAGE
    madvise(at, bytes, MADV_HUGEPAGE); /* refused: small pages */
#endif
    return at;
}

/* 64-byte aligned. calloc() and mappings, not memset(): they leave fresh pages alone. */
static void *alloc64(int64_t bytes, bool zeroed)
{
    if (bytes < 0 || bytes > INT64_MAX - 2 * HUGE_PAGE)
        return NULL;
    const size_t room = (size_t)bytes + 2 * IN_FRONT;
    struct block block = {0};
    char *at = NULL;
    if (bytes >= HUGE_PAGE) {
        at = map_huge(room, &block);
    } else {
        block.got = zeroed ? calloc(1, room) : malloc(room);
        at = block.got;
    }
    if (!at)
        return NULL;
    at += IN_FRONT - (uintptr_t)at % IN_FRONT;
    memcpy(at + IN_FRONT - sizeof block, &block, sizeof block);
    return at + IN_FRONT;
}

static void free64(void *ptr)
{
    struct block block = {0};
    if (ptr)
        memcpy(&block, (char *)ptr - sizeof block, sizeof block);
    if (block.mapped)
        munmap(block.got, block.mapped);
    else
        free(block.got);
}

void *cpu_scratch(struct backend *be, int64_t bytes)
{
    struct cpu_backend *cpu = (struct cpu_backend *)be;
    if (bytes > cpu->scratch_bytes) {
        free64(cpu->scratch);
        cpu->scratch = alloc64(bytes, false);
        cpu->scratch_bytes = cpu->scratch ? bytes : 0;
        if (!cpu->scratch)
            err_set(&cpu->failed, ERR_NOMEM, "cpu backend: no memory for %lld bytes of scratch",
                    (long long)bytes);
    }
    return cpu->scratch;
}

static enum status take(int64_t bytes, bool zeroed, void **ptr, struct err *err)
{
    void *got = alloc64(bytes, zeroed);
    if (!got)
        return err_set(err, ERR_NOMEM, "cpu backend: cannot allocate %lld bytes", (long long)bytes);
    *ptr = got;
    return OK;
}

static enum status cpu_alloc(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    (void)be;
    return take(bytes, false, ptr, err);
}

static enum status cpu_alloc_zeroed(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    (void)be;
    return take(bytes, true, ptr, err);
}

static void cpu_free(struct backend *be, void *ptr)
{
    (void)be;
    free64(ptr);
}

enum { CHUNK = 1 << 20 }; /* bytes; smaller jobs stay on one thread */

static void cpu_zero(struct backend *be, void *dst, int64_t bytes)
{
    char *to = dst;
#pragma omp parallel for schedule(static) num_threads(be->threads) if (bytes > CHUNK)
    for (int64_t t = 0; t < cpu_tiles(bytes, CHUNK); t++)
        memset(to + t * CHUNK, 0, (size_t)cpu_min(CHUNK, bytes - t * CHUNK));
}

static void cpu_copy(struct backend *be, void *dst, const void *src, int64_t bytes)
{
    char *to = dst;
    const char *from = src;
#pragma omp parallel for schedule(static) num_threads(be->threads) if (bytes > CHUNK)
    for (int64_t t = 0; t < cpu_tiles(bytes, CHUNK); t++)
        memcpy(to + t * CHUNK, from + t * CHUNK, (size_t)cpu_min(CHUNK, bytes - t * CHUNK));
}

static enum status cpu_sync(struct backend *be, struct err *err)
{
    struct cpu_backend *cpu = (struct cpu_backend *)be;
    enum status rc = cpu->failed.status;
    if (rc != OK)
        err_set(err, rc, "%s", cpu->failed.msg);
    cpu->failed = (struct err){0};
    return rc;
}

static void cpu_backend_free(struct backend *be)
{
    struct cpu_backend *cpu = (struct cpu_backend *)be;
    free64(cpu->scratch);
    free(cpu);
}

struct backend *backend_cpu_new(enum dtype dtype, int threads, struct err *err)
{
    if (dtype == DTYPE_TF32) {
        err_set(err, ERR_INFEASIBLE,
                "train.dtype must be fp32 or bf16 on the cpu backend, got tf32");
        return NULL;
    }
    if (threads < 1 || threads > 1024) {
        err_set(err, ERR_INPUT, "cpu backend: threads must be 1..1024, got %d", threads);
        return NULL;
    }
    if (gemm_choose(err) != OK)
        return NULL;
    struct cpu_backend *cpu = calloc(1, sizeof *cpu);
    if (!cpu) {
        err_nomem(err);
        return NULL;
    }
    struct backend *be = &cpu->base;
    be->name = "cpu";
    be->dtype = dtype;
    be->elem_bytes = dtype_bytes(dtype);
    be->threads = threads;
    be->host_memory = true;
    be->rows_alone = gemm_rows_alone(be->elem_bytes);
    be->free_backend = cpu_backend_free;
    be->alloc = cpu_alloc;
    be->alloc_zeroed = cpu_alloc_zeroed;
    be->free = cpu_free;
    be->zero = cpu_zero;
    be->copy = cpu_copy;
    be->copy_in = cpu_copy;
    be->copy_out = cpu_copy;
    be->sync = be->failure = cpu_sync;
    cpu_host_install(be);
    cpu_linear_install(be);
    cpu_norm_install(be);
    cpu_attention_install(be);
    cpu_embed_install(be);
    cpu_loss_install(be);
    cpu_optim_install(be);
    /* Our tiles are the parallelism; a call of BLAS stays on the thread that makes it. */
    openblas_set_num_threads(1);
    return be;
}
