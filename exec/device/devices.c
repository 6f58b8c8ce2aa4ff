#include "exec/device/devices.h"

#include <string.h>

#include "exec/cpu/backend_cpu.h"
#include "exec/device/cuda_load.h"

struct backend *backend_new(const struct backend_spec *spec, struct err *err)
{
    const char *device = spec->device ? spec->device : "cpu";
    if (strcmp(device, "cpu") == 0)
        return backend_cpu_new(spec->dtype, spec->threads, err);
    if (strcmp(device, "cuda") == 0)
        return cuda_load_backend(&(struct cuda_spec){.device = -1,
                                                     .local_rank = spec->local_rank,
                                                     .dtype = spec->dtype,
                                                     .threads = spec->threads,
                                                     .tune = spec->tune},
                                 err);
    err_set(err, ERR_INPUT, "device must be cpu or cuda, got '%s'", device);
    return NULL;
}
