#include "exec/base/free_memory.h"

#include <stdio.h>

int64_t memory_available(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    long long kib = -1;
    while (file && kib < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lld kB", &kib) != 1)
            kib = -1;
    if (file)
        fclose(file);
    return kib < 0 ? INT64_MAX : (int64_t)kib * 1024;
}
