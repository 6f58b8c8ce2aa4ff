/* profiles/base/memory_folder.h - where a run keeps copies of its state in shared memory. */
#pragma once

#include <stdio.h>

enum { MEMORY_FOLDER_SIZE = 80 };
#define SHARED_MEMORY "/dev/shm"

/* The folder of the run with this id. It is there while the run is, or when the run was killed. */
static inline void memory_folder(const char *run_id, char path[MEMORY_FOLDER_SIZE])
{
    snprintf(path, MEMORY_FOLDER_SIZE, SHARED_MEMORY "/elapse-run-%.32s", run_id);
}
