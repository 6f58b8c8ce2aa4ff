/* A list of blocks: each begins with the address of the one before it. */
#include "partition/base/arrays.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

bool array_extend(void *array, int64_t num, size_t size)
{
    void *at;
    memcpy(&at, array, sizeof at); /* of whatever type the pointer is */
    void *more = realloc(at, ((size_t)num + 1) * size);
    if (!more)
        return false;
    memcpy(array, &more, sizeof more);
    return true;
}

bool array_enlarge(void *array, int64_t needed, int64_t *room, size_t size)
{
    const int64_t wanted = 2 * needed + 64;
    if (!array_extend(array, wanted - 1, size))
        return false;
    *room = wanted;
    return true;
}
