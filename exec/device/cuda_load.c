#include "exec/device/cuda_load.h"

#include <string.h>

#include "exec/base/plugin.h"

/* ISO C does not convert an object pointer to a function pointer. */
#define LOAD(function, name, err)                                                                  \
    do {                                                                                           \
        void *symbol_ = plugin_symbol(PLUGIN_CUDA, name, err);                                     \
        memcpy(&(function), &symbol_, sizeof symbol_);                                             \
    } while (0)

struct backend *cuda_load_backend(const struct cuda_spec *spec, struct err *err)
{
    struct backend *(*open_backend)(const struct cuda_spec *, struct err *);
    LOAD(open_backend, "backend_cuda_new", err);
    return open_backend ? open_backend(spec, err) : NULL;
}

enum status cuda_load_device_info(int device, struct cuda_device *info, struct err *err)
{
    enum status (*ask)(int, struct cuda_device *, struct err *);
    struct err why = {0};
    LOAD(ask, "cuda_device_info", &why);
    return ask ? ask(device, info, err) : err_copy(err, &why);
}

int cuda_load_num_devices(void)
{
    int (*count)(void);
    LOAD(count, "cuda_num_devices", NULL);
    return count ? count() : 0;
}
