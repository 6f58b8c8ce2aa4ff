#include "exec/device/device_info.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "exec/device/cuda_load.h"
#include "exec/measure/measure.h"
#include "partition/cost.h"

const char *device_gpu_kind(const char *name, int major)
{
    char plain[128]; /* lower case, letters and digits: "quadrortx5000" */
    size_t n = 0;
    for (; *name && n + 1 < sizeof plain; name++)
        if (isalnum((unsigned char)*name))
            plain[n++] = (char)tolower((unsigned char)*name);
    plain[n] = '\0';
    for (const char *const *kind = roofline_names(); *kind; kind++)
        if (strstr(plain, *kind))
            return *kind;
    return major >= 10 ? "b200" : major == 9 ? "h100" : major == 8 ? "a100" : "v100";
}

enum status device_describe(enum device_kind device, const struct cores *cores,
                            struct profile_info *info, struct err *err)
{
    struct cuda_device gpu;
    enum status rc;
    measure_describe(cores, info);
    if (device == DEVICE_CPU)
        return OK;
    rc = cuda_load_device_info(0, &gpu, err);
    if (rc != OK)
        return rc;
    snprintf(info->device_kind, sizeof info->device_kind, "%s",
             device_gpu_kind(gpu.name, gpu.major));
    snprintf(info->device_name, sizeof info->device_name, "%.95s", gpu.name);
    snprintf(info->name, sizeof info->name, "%.12s-%.50s", info->device_kind, info->host);
    snprintf(info->driver, sizeof info->driver, "CUDA %d.%d", gpu.driver / 1000,
             gpu.driver % 1000 / 10);
    snprintf(info->libraries, sizeof info->libraries, "CUDA %d.%d; cuBLASLt %s", gpu.runtime / 1000,
             gpu.runtime % 1000 / 10, gpu.cublaslt);
    info->bf16_kernel[0] = info->fp32_kernel[0] = '\0'; /* the host's */
    info->mem_bytes = gpu.memory_bytes;
    info->cores = gpu.multiprocessors;
    info->clock_mhz = gpu.clock_khz / 1000;
    return OK;
}
