/* exec/base/plugin.h - shared objects of the build that are loaded when they are wanted.
 *
 * CUDA and NCCL live in shared objects beside the program. So the program starts and trains on the
 * CPU on machines without CUDA's libraries, and does not load them where they exist but are not
 * asked for. A plugin is loaded once and stays: CUDA's libraries do not survive being unloaded. */
#pragma once

#include "partition/base/status.h"

enum plugin {
    PLUGIN_CUDA, /* elapse-cuda.so; ELAPSE_CUDA_LIB in the environment names another file */
    PLUGIN_NCCL  /* elapse-nccl.so; ELAPSE_NCCL_LIB */
};

/* A function or an object of the plugin. NULL on failure: ERR_INFEASIBLE (the file is missing: a
 * build without nvcc), ERR_SYSTEM (it cannot be loaded, or has no such symbol). One thread. */
void *plugin_symbol(enum plugin plugin, const char *name, struct err *err);
