/* Opens and closes the cuda backend; its memory, copies and events.
 *
 * Device memory comes from the arena, copies go through the staging ring; both are filled into the
 * table here. The kernels are entered by the *_install() functions of the other files, none of
 * which calls this one. Read backend_cuda_new() and open_device() first. */
#include "exec/base/cuda.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_arena.h"
#include "exec/cuda/cuda_attention_pick.h"
#include "exec/cuda/cuda_choice.h"
#include "exec/cuda/cuda_cudnn.h"
#include "exec/cuda/cuda_matmul.h"
#include "exec/cuda/cuda_scratch.h"
#include "exec/cuda/cuda_staging.h"
#include "partition/base/units.h"

#ifndef ELAPSE_CUDA_MIN_ARCH
#define ELAPSE_CUDA_MIN_ARCH 80 /* compute capability times ten */
#endif

static enum status cuda_failure(struct backend *be, struct err *err)
{
    const struct cuda_backend *cuda = cuda_of(be);
    cuda_note_work(cudaStreamQuery(cuda->stream));
    const struct err first = cuda_failures();
    return err_copy(err, cuda->failed.status != OK ? &cuda->failed : &first);
}

static enum status cuda_sync(struct backend *be, struct err *err)
{
    struct cuda_backend *cuda = cuda_of(be);
    cuda_note_work(cudaStreamSynchronize(cuda->stream));
    cuda_staging_flush(cuda->staging);
    const enum status rc = cuda_failure(be, err);
    cuda->failed = (struct err){0};
    cuda_set_failures(&cuda->failed);
    return rc;
}

/* --- memory ----------------------------------------------------------------------------------- */

static enum status cuda_alloc(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    return cuda_arena_alloc(cuda_of(be)->arena, bytes, ptr, err);
}

static void cuda_free(struct backend *be, void *ptr)
{
    cuda_arena_release(cuda_of(be)->arena, ptr);
}

/* Reserve scratch and the workspace of products first, which are taken at once, then the caller's
 * sizes. */
static enum status cuda_reserve(struct backend *be, const struct memory_need *need, struct err *err)
{
    struct cuda_backend *cuda = cuda_of(be);
    int64_t num = 0, *bytes = malloc((size_t)(need->num + 2) * sizeof *bytes);
    if (!bytes)
        return err_nomem(err);
    if (need->kernel_bytes > cuda->scratch_bytes) {
        cuda_scratch_drop(cuda);
        bytes[num++] = need->kernel_bytes;
    }
    if (cuda_matmul_wants(cuda->matmul) > 0)
        bytes[num++] = cuda_matmul_wants(cuda->matmul);
    if (need->num > 0)
        memcpy(bytes + num, need->bytes, (size_t)need->num * sizeof *bytes);
    enum status rc = cuda_arena_reserve(cuda->arena, bytes, num + need->num, err);
    free(bytes);
    THEN(cuda_matmul_take(cuda->matmul, err));
    if (rc == OK && need->kernel_bytes > 0 && !cuda_scratch(be, need->kernel_bytes))
        rc = be->sync(be, err); /* sync() returns the reason */
    return rc;
}

static void cuda_zero(struct backend *be, void *dst, int64_t bytes)
{
    if (bytes > 0)
        CUDA_NOTE(cudaMemsetAsync(dst, 0, (size_t)bytes, cuda_of(be)->stream));
}

static enum status cuda_alloc_zeroed(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    enum status rc = cuda_alloc(be, bytes, ptr, err);
    if (rc == OK)
        cuda_zero(be, *ptr, bytes);
    return rc;
}

static void cuda_copy(struct backend *be, void *dst, const void *src, int64_t bytes)
{
    if (bytes > 0)
        CUDA_NOTE(cudaMemcpyAsync(dst, src, (size_t)bytes, cudaMemcpyDeviceToDevice,
                                  cuda_of(be)->stream));
}

static void cuda_copy_in(struct backend *be, void *dst, const void *host, int64_t bytes)
{
    cuda_staging_in(cuda_of(be)->staging, dst, host, bytes);
}

static void cuda_copy_out(struct backend *be, void *host, const void *src, int64_t bytes)
{
    cuda_staging_out(cuda_of(be)->staging, host, src, bytes);
}

static enum status cuda_alloc_host(struct backend *be, int64_t bytes, void **ptr, struct err *err)
{
    return cuda_staging_pin(cuda_of(be)->staging, bytes, ptr, err);
}

static void cuda_free_host(struct backend *be, void *ptr)
{
    if (ptr)
        cuda_staging_unpin(cuda_of(be)->staging, ptr);
}

/* --- events ----------------------------------------------------------------------------------- */

static enum status cuda_event_new(struct backend *be, struct backend_event **event, struct err *err)
{
    enum status rc;
    struct backend_event *e = calloc(1, sizeof *e);
    (void)be;
    if (!e)
        return err_nomem(err);
    CUDA_TRY(cudaEventCreateWithFlags(&e->event, cudaEventDefault));
    *event = e;
    e = NULL;
    rc = OK;
out:
    free(e);
    return rc;
}

static void cuda_event_free(struct backend *be, struct backend_event *event)
{
    (void)be;
    if (event)
        cudaEventDestroy(event->event);
    free(event);
}

static void cuda_event_record(struct backend *be, struct backend_event *event)
{
    CUDA_NOTE(cudaEventRecord(event->event, cuda_of(be)->stream));
}

static bool cuda_event_done(struct backend *be, struct backend_event *event)
{
    (void)be;
    cudaError_t code = cudaEventQuery(event->event);
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return false;
    }
    CUDA_NOTE(code);
    return true;
}

static void cuda_event_wait(struct backend *be, struct backend_event *event)
{
    (void)be;
    CUDA_NOTE(cudaEventSynchronize(event->event));
}

static int64_t cuda_event_ns(struct backend *be, struct backend_event *from,
                             struct backend_event *to)
{
    float ms = 0.0f;
    (void)be;
    CUDA_NOTE(cudaEventSynchronize(to->event));
    CUDA_NOTE(cudaEventElapsedTime(&ms, from->event, to->event));
    return (int64_t)((double)ms * 1e6 + 0.5);
}

static int cuda_choices(struct backend *be, const struct library_choice **list)
{
    return cuda_choices_made(cuda_of(be)->choices, list);
}

static enum status cuda_choose(struct backend *be, const struct library_choice *list, int num,
                               struct err *err)
{
    return cuda_choices_give(cuda_of(be)->choices, list, num, err);
}

/* --- devices ---------------------------------------------------------------------------------- */

int cuda_num_devices(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return count;
}

/* Counts the devices. If there is none, err says why: no driver, a driver older than the runtime,
 * or nothing visible. */
static enum status find_devices(int *count, struct err *err)
{
    int driver = 0, runtime = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    cudaError_t code = cudaGetDeviceCount(count);
    if (code == cudaSuccess && *count > 0)
        return OK;
    (void)cudaGetLastError();
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
        err_set(err, ERR_SYSTEM, "cuda: this machine has no NVIDIA driver");
        err_hint(err, "--device cpu trains without one");
    } else if (code == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000) {
        err_set(err, ERR_SYSTEM, "cuda: the driver is for CUDA %d.%d, this build needs %d.%d",
                driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
        err_hint(err, "update the driver, or build with an older toolkit (12.4 or later)");
    } else if (code == cudaSuccess || code == cudaErrorNoDevice) {
        err_set(err, ERR_SYSTEM, "cuda: no device%s%s%s", visible ? " (CUDA_VISIBLE_DEVICES='" : "",
                visible ? visible : "", visible ? "')" : "");
    } else {
        return cuda_failed(err, "cudaGetDeviceCount", code, __FILE__, __LINE__);
    }
    return ERR_SYSTEM;
}

enum status cuda_device_info(int device, struct cuda_device *info, struct err *err)
{
    enum status rc;
    struct cudaDeviceProp prop;
    struct cuda_device got = {0};
    size_t available = 0, total = 0;
    int count = 0;
    rc = find_devices(&count, err);
    if (rc != OK)
        return rc;
    if (device < 0 || device >= count)
        return err_set(err, ERR_INPUT, "cuda: device %d is not in 0..%d", device, count - 1);
    CUDA_TRY(cudaGetDeviceProperties(&prop, device));
    CUDA_TRY(cudaDeviceGetAttribute(&got.clock_khz, cudaDevAttrClockRate, device));
    CUDA_TRY(cudaDriverGetVersion(&got.driver));
    CUDA_TRY(cudaRuntimeGetVersion(&got.runtime));
    CUDA_TRY(cudaSetDevice(device));
    CUDA_TRY(cudaMemGetInfo(&available, &total));
    snprintf(got.name, sizeof got.name, "%.127s", prop.name);
    got.major = prop.major;
    got.minor = prop.minor;
    got.multiprocessors = prop.multiProcessorCount;
    got.memory_bytes = (int64_t)total;
    got.free_bytes = (int64_t)available;
    got.l2_bytes = prop.l2CacheSize;
    size_t version = cublasLtGetVersion();
    snprintf(got.cublaslt, sizeof got.cublaslt, "%zu.%zu.%zu", version / 10000,
             version % 10000 / 100, version % 100);
    *info = got;
    rc = OK;
out:
    return rc;
}

static void cuda_backend_free(struct backend *be)
{
    struct cuda_backend *cuda = cuda_of(be);
    if (cuda->stream)
        cudaStreamSynchronize(cuda->stream);
    cuda_hold_free(cuda->hold);
    cuda_pick_free(cuda->pick);
    cuda_matmul_free(cuda->matmul);
    cuda_cudnn_free(cuda->cudnn);
    cuda_choices_free(cuda->choices);
    cuda_staging_free(cuda->staging);
    cuda_arena_free(cuda->arena);
    if (cuda->stream)
        cudaStreamDestroy(cuda->stream);
    (void)cudaGetLastError();
    free(cuda);
}

static enum status open_device(struct cuda_backend *cuda, const struct cuda_spec *spec,
                               struct err *err)
{
    enum status rc;
    struct cuda_device info;
    int count = 0, device = spec->device, shared = 0;
    if (spec->threads < 1 || spec->threads > 1024)
        return err_set(err, ERR_INPUT, "cuda: threads must be 1..1024, got %d", spec->threads);
    rc = find_devices(&count, err);
    if (rc != OK)
        return rc;
    if (device < 0)
        device = (spec->local_rank < 0 ? 0 : spec->local_rank) % count;
    rc = cuda_device_info(device, &info, err);
    if (rc != OK)
        return rc;
    if (info.major * 10 + info.minor < ELAPSE_CUDA_MIN_ARCH) {
        err_set(err, ERR_SYSTEM,
                "cuda: device %d, '%s', has compute capability %d.%d, this build needs %d.%d",
                device, info.name, info.major, info.minor, ELAPSE_CUDA_MIN_ARCH / 10,
                ELAPSE_CUDA_MIN_ARCH % 10);
        err_hint(err, "build with CUDA_ARCH=%d%d (8.0 is the least for bf16)", info.major,
                 info.minor);
        return ERR_SYSTEM;
    }
    CUDA_TRY(cudaSetDevice(device));
    CUDA_TRY(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    cuda->device = device;
    cuda->major = info.major;
    cuda->minor = info.minor;
    cuda->num_sms = info.multiprocessors;
    cuda->l2_bytes = info.l2_bytes;
    cuda->shared_bytes = shared;
    CUDA_TRY(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking));
    rc = cuda_arena_new(&cuda->arena, err);
    THEN(cuda_hold_new(&cuda->hold, err));
    THEN(cuda_staging_new(cuda->stream, &cuda->staging, err));
    THEN(cuda_choices_new(spec->tune, cuda_matmul_keep_busy, &cuda->choices, err));
    THEN(cuda_matmul_new(&cuda->base, &cuda->matmul, err));
    THEN(cuda_pick_new(&cuda->base, &cuda->pick, err));
out:
    return rc;
}

struct backend *backend_cuda_new(const struct cuda_spec *spec, struct err *err)
{
    struct cuda_backend *cuda = calloc(1, sizeof *cuda);
    if (!cuda) {
        err_nomem(err);
        return NULL;
    }
    struct backend *be = &cuda->base;
    cuda_failures_init();
    be->name = "cuda";
    be->dtype = spec->dtype;
    be->elem_bytes = spec->dtype == DTYPE_BF16 ? 2 : 4;
    be->threads = spec->threads;
    be->free_backend = cuda_backend_free;
    be->alloc = cuda_alloc;
    be->alloc_zeroed = cuda_alloc_zeroed;
    be->free = cuda_free;
    be->reserve = cuda_reserve;
    be->zero = cuda_zero;
    be->copy = cuda_copy;
    be->copy_in = cuda_copy_in;
    be->copy_out = cuda_copy_out;
    be->sync = cuda_sync;
    be->failure = cuda_failure;
    be->alloc_host = cuda_alloc_host;
    be->free_host = cuda_free_host;
    be->event_new = cuda_event_new;
    be->event_free = cuda_event_free;
    be->event_record = cuda_event_record;
    be->event_done = cuda_event_done;
    be->event_wait = cuda_event_wait;
    be->event_ns = cuda_event_ns;
    cuda_lane_install(be);
    cuda_hold_install(be);
    cuda_range_install(be);
    be->choices = cuda_choices;
    be->choose = cuda_choose;
    cuda_linear_install(be);
    cuda_rows_install(be);
    cuda_sums_install(be);
    cuda_norm_install(be);
    cuda_decoder_install(be);
    cuda_attention_install(be);
    cuda_embed_install(be);
    cuda_loss_install(be);
    cuda_elementwise_install(be);
    cuda_optim_install(be);
    if (open_device(cuda, spec, err) != OK) {
        cuda_backend_free(be);
        return NULL;
    }
    return be;
}
