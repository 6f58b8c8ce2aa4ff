/* exec/base/cuda.h - the cuda backend: an NVIDIA GPU behind the table of exec/base/backend.h.
 *
 * One rank drives one device; several ranks may share a device. Calls are issued to a stream and
 * return at once. sync() waits and reports the first failure, with the place that issued the call.
 * The wing is linked as a plugin, which exec/device/ loads. */
#pragma once

#include "exec/base/backend.h"
#include "partition/plan/job.h"

struct cuda_spec {
    int device;       /* ordinal among the visible devices; -1: local_rank modulo their number */
    int local_rank;   /* rank of this process on its machine */
    enum dtype dtype; /* type of activations and of the weights that kernels read */
    int threads;      /* host threads for loops over data, at least 1 */
    bool tune; /* time the alternatives of libraries at the first use of a shape (cuda_choice.h) */
};

/* Number of devices that the driver shows; 0 without a driver or device. Never fails. */
int cuda_num_devices(void);

/* Open the device. NULL on failure. ERR_SYSTEM: no driver, no device, a driver too old for the
 * runtime, or a device that this build has no code for. ERR_INPUT: the device does not exist.
 * ERR_NOMEM. Takes no device memory before reserve() or alloc(). Release with backend_free(). */
struct backend *backend_cuda_new(const struct cuda_spec *spec, struct err *err);

/* Properties of a device, for profiles and summaries. */
struct cuda_device {
    char name[128];
    int major, minor, multiprocessors, clock_khz;
    int driver, runtime; /* 13000: 13.0 */
    int64_t memory_bytes, free_bytes, l2_bytes;
    char cublaslt[32], nccl[32]; /* versions; empty: not installed */
};
/* ERR_SYSTEM, ERR_INPUT as for backend_cuda_new(). */
enum status cuda_device_info(int device, struct cuda_device *info, struct err *err);
