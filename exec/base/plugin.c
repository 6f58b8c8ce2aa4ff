#include "exec/base/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct library {
    const char *file, *variable, *what;
} libraries[] = {
    [PLUGIN_CUDA] = {"elapse-cuda.so", "ELAPSE_CUDA_LIB", "device cuda"         },
    [PLUGIN_NCCL] = {"elapse-nccl.so", "ELAPSE_NCCL_LIB", "train.transport nccl"},
};

/* Tries the folder bin/ beside the program's folder (for tests), then lib/elapse/ there (for installed
 * programs), then the program's own folder. */
static bool find_library(const struct library *library, char *path, size_t size)
{
    static const char *const places[] = {"/", "/../lib/elapse/", "/../bin/"};
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

static void *load(enum plugin which, struct err *err)
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

void *plugin_symbol(enum plugin plugin, const char *name, struct err *err)
{
    void *from = load(plugin, err), *symbol = from ? dlsym(from, name) : NULL;
    if (from && !symbol)
        err_set(err, ERR_SYSTEM, "%s: the backend has no '%s': %s", libraries[plugin].what, name,
                dlerror());
    return symbol;
}
