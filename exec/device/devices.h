/* exec/device/devices.h - a compute backend by the name of its device.
 *
 * The wing device/ stands between the backends (exec/cpu/, exec/cuda/) and those who train or
 * measure: it makes a backend, loads the CUDA one from its shared object, describes the machine,
 * shares out cores, and hands the choices of GPU libraries from the profile store to all ranks. */
#pragma once

#include "exec/base/backend.h"

struct backend_spec {
    const char *device; /* "cpu" or "cuda"; NULL: cpu */
    enum dtype dtype;
    int threads;    /* of the cpu backend, and of the cuda backend's work on the host */
    int local_rank; /* among the ranks of this machine: chooses one of its GPUs */
    bool tune;      /* time the library's alternatives and keep the fastest; for a profiler */
};

/* NULL on failure: ERR_INPUT (unknown device, or a value that the backend refuses), ERR_INFEASIBLE
 * (this machine or build lacks the device or the dtype), ERR_NOMEM. Released with backend_free().
 */
struct backend *backend_new(const struct backend_spec *spec, struct err *err);
