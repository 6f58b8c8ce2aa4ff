/* Creates the cpu backend and fills its table: memory, zeroing and copies here, kernels by the
 * *_install() functions of the other files of exec/cpu/. */
#include "exec/cpu/backend_cpu.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cpu/cpu.h"
#include "exec/cpu/gemm.h"

static enum status allocate_bytes(int64_t bytes, bool zeroed, void **ptr, struct err *err)
{
    void *got = cpu_alloc64(bytes, zeroed);
    if (!got)
        return err_set(err, ERR_NOMEM, "cpu backend: cannot allocate %lld bytes", (long long)bytes);
    *ptr = got;
    return OK;
}

static enum status cpu_alloc(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    (void)be;
    return allocate_bytes(bytes, false, ptr, err);
}

static enum status cpu_alloc_zeroed(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    (void)be;
    return allocate_bytes(bytes, true, ptr, err);
}

static void cpu_free(struct backend *be, void *ptr)
{
    (void)be;
    cpu_free64(ptr);
}

enum { CHUNK = 1 << 20 }; /* in bytes; copies up to this size use one thread */

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

static enum status cpu_failure(struct backend *be, struct err *err)
{
    return err_copy(err, &((struct cpu_backend *)be)->failed);
}

static enum status cpu_sync(struct backend *be, struct err *err)
{
    enum status rc = cpu_failure(be, err);
    ((struct cpu_backend *)be)->failed = (struct err){0};
    return rc;
}

static void cpu_backend_free(struct backend *be)
{
    struct cpu_backend *cpu = (struct cpu_backend *)be;
    cpu_free64(cpu->scratch);
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
    be->bits_independent_of_row_count = gemm_bits_independent_of_row_count(be->elem_bytes);
    be->bits_independent_of_row_position = gemm_bits_independent_of_row_position(be->elem_bytes);
    be->free_backend = cpu_backend_free;
    be->alloc = cpu_alloc;
    be->alloc_zeroed = cpu_alloc_zeroed;
    be->free = cpu_free;
    be->zero = cpu_zero;
    be->copy = cpu_copy;
    be->copy_in = cpu_copy;
    be->copy_out = cpu_copy;
    be->sync = cpu_sync;
    be->failure = cpu_failure;
    cpu_host_install(be);
    cpu_linear_install(be);
    cpu_norm_install(be);
    cpu_decoder_install(be);
    cpu_attention_install(be);
    cpu_embed_install(be);
    cpu_loss_install(be);
    cpu_optim_install(be);
    /* Our loops over tiles use all threads already, so each call of BLAS uses only its own. */
    openblas_set_num_threads(1);
    return be;
}
