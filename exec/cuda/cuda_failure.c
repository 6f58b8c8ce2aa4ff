#include "exec/cuda/cuda_failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first failure. There is one of it, because a process drives one device from one thread. */
static struct {
    struct err first;
    const char *kernel, *file; /* of the last launch */
    int line;
    bool wait; /* ELAPSE_CUDA_SYNC */
} latch;

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *remedy(cudaError_t code)
{
    switch (code) {
    case cudaErrorECCUncorrectable:
        return "the device's memory is damaged (ECC); the last checkpoint is whole: --resume it on "
               "another device";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
        return "ELAPSE_CUDA_SYNC=1 names the kernel that failed; the last checkpoint is whole";
    case cudaErrorDevicesUnavailable:
        return "another process may hold the device exclusively";
    case cudaErrorNoKernelImageForDevice:
        return "build with CUDA_ARCH set to the device's compute capability";
    default:
        return NULL;
    }
}

enum status cuda_failed(struct err *err, const char *call, cudaError_t code, const char *file,
                        int line)
{
    enum status rc = code == cudaErrorMemoryAllocation ? ERR_INFEASIBLE : ERR_SYSTEM;
    err_set(err, rc, "cuda: %.100s failed: %s (%s:%d)", call, cudaGetErrorString(code),
            file_name(file), line);
    if (remedy(code))
        err_hint(err, "%s", remedy(code));
    return rc;
}

enum status cuda_note(cudaError_t code, const char *call, const char *file, int line)
{
    if (code == cudaSuccess)
        return OK;
    enum status rc = cuda_failed(&latch.first, call, code, file, line);
    (void)cudaGetLastError(); /* clear the error, or the next launch would report it */
    return rc;
}

void cuda_note_text(enum status status, const char *fmt, ...)
{
    char text[sizeof latch.first.msg];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err_set(&latch.first, status, "%s", text);
}

struct err cuda_failures(void)
{
    return latch.first;
}

void cuda_set_failures(const struct err *failures)
{
    latch.first = *failures;
}

void cuda_failures_init(void)
{
    const char *wait = getenv("ELAPSE_CUDA_SYNC");
    latch.wait = wait && strcmp(wait, "1") == 0;
    latch.first = (struct err){0};
}

void cuda_launched(const char *kernel, const char *file, int line)
{
    latch.kernel = kernel;
    latch.file = file;
    latch.line = line;
    cudaError_t code = cudaGetLastError();
    if (code == cudaSuccess && latch.wait)
        code = cudaDeviceSynchronize();
    if (code != cudaSuccess)
        cuda_note(code, kernel, file, line);
}

void cuda_note_work(cudaError_t code)
{
    if (code == cudaSuccess)
        return;
    if (code != cudaErrorNotReady && latch.first.status == OK)
        cuda_failed(&latch.first, "the device's work", code, latch.file ? latch.file : __FILE__,
                    latch.file ? latch.line : __LINE__);
    (void)cudaGetLastError(); /* clear the error, or the next launch would report it */
}
