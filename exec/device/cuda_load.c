#include "exec/device/cuda_load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct library {
    const char *file, *variable, *what;
} libraries[] = {
    [CUDA_LOAD_BACKEND] = {"elapse-cuda.so", "ELAPSE_CUDA_LIB", "device cuda"         },
    [CUDA_LOAD_NCCL] = {"elapse-nccl.so", "ELAPSE_NCCL_LIB", "train.transport nccl"},
};

/* Beside the program, or in bin/ beside the program's folder (the tests'). */
static bool find_library(const struct library *library, char *path, size_t size)
{
    static const char *const places[] = {"/", "/../bin/"};
    const char *named = getenv(library->variable);
    char program[PATH_MAX];
    if (named && *named) {
        snprintf(path, size, "%s", named);
        return access(path, R_OK) == 0;
    }
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = sizeof places / sizeof *places; i-- > 0;) {
        snprintf(path, size, "%s%s%s", program, places[i], library->file);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

/* Loaded once and kept: CUDA's libraries do not survive being unloaded. */
static void *load(enum cuda_load_library which, struct err *err)
{
    static void *loaded[sizeof libraries / sizeof *libraries];
    const struct library *library = &libraries[which];
    char path[PATH_MAX + 64];
    if (loaded[which])
        return loaded[which];
    if (!find_library(library, path, sizeof path)) {
        err_set(err, ERR_INFEASIBLE, "%s: this build has no such backend ('%.300s' is missing)",
                library->what, path);
        err_hint(err, "build where nvcc is (make prints what it found), or use --device cpu");
        return NULL;
    }
    loaded[which] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!loaded[which])
        err_set(err, ERR_SYSTEM, "%s: cannot load the backend: %s", library->what, dlerror());
    return loaded[which];
}

void *cuda_load_symbol(enum cuda_load_library library, const char *name, struct err *err)
{
    void *from = load(library, err), *symbol = from ? dlsym(from, name) : NULL;
    if (from && !symbol)
        err_set(err, ERR_SYSTEM, "%s: the backend has no '%s': %s", libraries[library].what, name,
                dlerror());
    return symbol;
}

/* ISO C has no cast from an object pointer to a function's. */
#define LOAD(function, name, err)                                                                  \
    do {                                                                                           \
        void *symbol_ = cuda_load_symbol(CUDA_LOAD_BACKEND, name, err);                            \
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
