#include "exec/cuda_load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "elapse-cuda.so"

/* Beside the program, or in bin/ beside the program's folder (the tests'). */
static bool find_library(char *path, size_t size)
{
    static const char *const places[] = {"/" LIBRARY, "/../bin/" LIBRARY};
    const char *named = getenv("ELAPSE_CUDA_LIB");
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
    snprintf(path, size, "%s%s", program, places[0]);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char tried[PATH_MAX + 32];
        snprintf(tried, sizeof tried, "%s%s", program, places[i]);
        if (access(tried, R_OK) == 0) {
            snprintf(path, size, "%s", tried);
            return true;
        }
    }
    return false;
}

/* Loaded once and kept: CUDA's libraries do not survive being unloaded. */
static void *library(struct err *err)
{
    static void *loaded;
    char path[PATH_MAX + 32];
    if (loaded)
        return loaded;
    if (!find_library(path, sizeof path)) {
        err_set(err, ERR_INFEASIBLE,
                "device cuda: this build has no cuda backend ('%s' is missing)", path);
        err_hint(err, "build where nvcc is (make prints what it found), or use --device cpu");
        return NULL;
    }
    loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!loaded)
        err_set(err, ERR_SYSTEM, "device cuda: cannot load the backend: %s", dlerror());
    return loaded;
}

void *cuda_load_symbol(const char *name, struct err *err)
{
    void *from = library(err), *symbol = from ? dlsym(from, name) : NULL;
    if (from && !symbol)
        err_set(err, ERR_SYSTEM, "device cuda: the backend has no '%s': %s", name, dlerror());
    return symbol;
}

/* ISO C has no cast from an object pointer to a function's. */
#define LOAD(function, name, err)                                                                  \
    do {                                                                                           \
        void *symbol_ = cuda_load_symbol(name, err);                                               \
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
    if (ask)
        return ask(device, info, err);
    if (err && err->status == OK)
        *err = why;
    return why.status;
}

int cuda_load_num_devices(void)
{
    int (*count)(void);
    LOAD(count, "cuda_num_devices", NULL);
    return count ? count() : 0;
}
