/* A list of blocks: each begins with the address of the one before it. */
#include "partition/base/arrays.h"

#include <stdint.h>
#include <stdlib.h>

struct arrays_block {
    struct arrays_block *before;
    max_align_t data[];
};

void *arrays_new(struct arrays *arrays, size_t count, size_t size)
{
    struct arrays_block *block = NULL;
    if (size == 0 || count <= (SIZE_MAX - sizeof *block) / size)
        block = calloc(1, sizeof *block + count * size);
    if (!block) {
        arrays->failed = true;
        return NULL;
    }
    block->before = arrays->last;
    arrays->last = block;
    return block->data;
}

void arrays_clear(struct arrays *arrays)
{
    while (arrays->last) {
        struct arrays_block *block = arrays->last;
        arrays->last = block->before;
        free(block);
    }
    arrays->failed = false;
}
