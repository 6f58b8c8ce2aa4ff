/* exec/cuda/cuda_failure.h - failures of the device and of CUDA's libraries; private to exec/cuda/.
 *
 * Calls of the backend's table return at once, so a failure is recorded and the next sync() reports
 * it. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Record a failure. The first one sticks, with the text and place of the call, and the next sync()
 * of a backend reports it. Returns OK if code is cudaSuccess. */
enum status cuda_note(cudaError_t code, const char *call, const char *file, int line);
/* Record a failure of another library, as text. */
void cuda_note_text(enum status status, const char *fmt, ...) ELAPSE_PRINTF(2, 3);
/* Read the first failure since the last sync(), and restore it; {0}: forget it. */
struct err cuda_failures(void);
void cuda_set_failures(const struct err *failures);
/* Read ELAPSE_CUDA_SYNC and forget earlier failures; for a new backend. */
void cuda_failures_init(void);
/* Called after every launch (by CUDA_LAUNCH). With ELAPSE_CUDA_SYNC=1 in the environment it waits
 * for the kernel, so that a fault is reported for the launch that caused it. */
void cuda_launched(const char *kernel, const char *file, int line);
/* Record a failure of work that was issued before, with the place of the last launch. */
void cuda_note_work(cudaError_t code);
#define CUDA_NOTE(call) cuda_note((call), #call, __FILE__, __LINE__)

/* Set err to `cuda: CALL failed: TEXT (file:line)`. Returns ERR_INFEASIBLE if device memory ran
 * out, else ERR_SYSTEM. For functions with one exit, CUDA_TRY(call) sets rc and goes to out. */
enum status cuda_failed(struct err *err, const char *call, cudaError_t code, const char *file,
                        int line);
#define CUDA_TRY(call)                                                                             \
    do {                                                                                           \
        cudaError_t cuda_code_ = (call);                                                           \
        if (cuda_code_ != cudaSuccess) {                                                           \
            rc = cuda_failed(err, #call, cuda_code_, __FILE__, __LINE__);                          \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
