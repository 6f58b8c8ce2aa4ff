#include "exec/device/device_info.h"

#include <cblas.h>
#include <ctype.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/cpu/gemm.h"
#include "exec/device/cuda_load.h"
#include "partition/cost/cost.h"
#include "profiles/base/machine_memory.h"

const char *device_gpu_kind(const char *name, int major)
{
    char plain[128]; /* lower case, letters and digits: "quadrortx5000" */
    size_t n = 0;
    for (; *name && n + 1 < sizeof plain; name++)
        if (isalnum((unsigned char)*name))
            plain[n++] = (char)tolower((unsigned char)*name);
    plain[n] = '\0';
    const char *longest = NULL; /* "a100", not "a10" */
    for (const char *const *kind = shipped_kind_names; *kind; kind++)
        if (strstr(plain, *kind) && (!longest || strlen(*kind) > strlen(longest)))
            longest = *kind;
    if (longest)
        return longest;
    return major >= 10 ? "b200" : major == 9 ? "h100" : major == 8 ? "a100" : "v100";
}

/* The value of the first line "KEY : VALUE" of a file. */
static void read_line(const char *path, const char *key, char *to, size_t size)
{
    FILE *in = fopen(path, "r");
    char line[256];
    while (in && fgets(line, sizeof line, in)) {
        char *value = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !value)
            continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(to, size, "%s", value);
        break;
    }
    if (in)
        fclose(in);
}

/* The processor of this machine, its libraries and its environment. A text that cannot be found
 * out stays empty. */
static void describe_host(const struct cores *cores, struct profile_info *info)
{
    char mhz[32] = "", library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    double load[1] = {0};
    time_t now = time(NULL);
    struct tm utc;
    snprintf(info->source, sizeof info->source, "measured");
    snprintf(info->device_kind, sizeof info->device_kind, "cpu");
    read_line("/proc/cpuinfo", "model name", info->device_name, sizeof info->device_name);
    read_line("/proc/cpuinfo", "cpu MHz", mhz, sizeof mhz);
    info->clock_mhz = (int64_t)strtod(mhz, NULL);
    info->cores = cores->at_hand;
    info->mem_bytes = memory_total();
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0';
    snprintf(info->libraries, sizeof info->libraries, "%.60s; %.60s", openblas_get_config(),
             library);
    snprintf(info->bf16_kernel, sizeof info->bf16_kernel, "%s", gemm_name(2));
    snprintf(info->fp32_kernel, sizeof info->fp32_kernel, "%s", gemm_name(4));
    if (gethostname(info->host, sizeof info->host) != 0)
        snprintf(info->host, sizeof info->host, "unknown");
    info->host[sizeof info->host - 1] = '\0';
    snprintf(info->name, sizeof info->name, "cpu-%.50s", info->host);
    gmtime_r(&now, &utc);
    strftime(info->measured_at, sizeof info->measured_at, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(info->version, sizeof info->version, "%s", ELAPSE_VERSION);
    if (getloadavg(load, 1) == 1)
        info->load = load[0];
}

enum status device_describe(enum device_kind device, const struct cores *cores,
                            struct profile_info *info, struct err *err)
{
    struct cuda_device gpu;
    enum status rc;
    describe_host(cores, info);
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
    info->bf16_kernel[0] = info->fp32_kernel[0] = '\0'; /* kernels of the host */
    info->mem_bytes = gpu.memory_bytes;
    info->cores = gpu.multiprocessors;
    info->clock_mhz = gpu.clock_khz / 1000;
    return OK;
}
