/* exec/cpu/cpu_memory.c - memory of the cpu backend: aligned blocks, and scratch for kernels. */
#include <stdlib.h>
#include <string.h>

#include "exec/cpu/cpu.h"

/* The pointer that malloc() or calloc() returned stands just in front of the aligned one. Zeroed
 * memory comes from calloc() because that leaves fresh pages of the system untouched. */
void *cpu_alloc64(int64_t bytes, bool zeroed)
{
    const size_t room = sizeof(void *) + 64;
    if (bytes < 0 || bytes > INT64_MAX - (int64_t)room)
        return NULL;
    char *got = zeroed ? calloc(1, (size_t)bytes + room) : malloc((size_t)bytes + room);
    if (!got)
        return NULL;
    char *at = got + room - (uintptr_t)(got + room) % 64;
    memcpy(at - sizeof got, &got, sizeof got);
    return at;
}

void cpu_free64(void *ptr)
{
    void *got = NULL;
    if (ptr)
        memcpy(&got, (char *)ptr - sizeof got, sizeof got);
    free(got);
}

void *cpu_scratch(struct backend *be, int64_t bytes)
{
    struct cpu_backend *cpu = (struct cpu_backend *)be;
    if (bytes > cpu->scratch_bytes) {
        cpu_free64(cpu->scratch);
        cpu->scratch = cpu_alloc64(bytes, false);
        cpu->scratch_bytes = cpu->scratch ? bytes : 0;
        if (!cpu->scratch)
            err_set(&cpu->failed, ERR_NOMEM, "cpu backend: no memory for %lld bytes of scratch",
                    (long long)bytes);
    }
    return cpu->scratch;
}
