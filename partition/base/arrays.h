/* partition/base/arrays.h - arrays that are made for one purpose and freed together. */
#ifndef ELAPSE_PARTITION_ARRAYS_H
#define ELAPSE_PARTITION_ARRAYS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* {0} holds none. */
struct arrays {
    struct arrays_block *last; /* owned */
    bool failed;               /* an array could not be made: there was no memory */
};

/* An array of `count` elements of `size` bytes, all zero. NULL, and `failed` is set, without memory; so
 * a caller makes all of its arrays and then looks once. */
void *arrays_new(struct arrays *arrays, size_t count, size_t size);
/* Free all of them. Safe twice. */
void arrays_clear(struct arrays *arrays);

#ifdef __cplusplus
}
#endif
#endif
