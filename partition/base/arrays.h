/* partition/base/arrays.h - arrays that are made for one purpose and freed together, and arrays that
 * grow. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Make room for one more element behind `num` in an array that stays short, and has no room beyond its
 * elements. array as in array_grow(). false, with the array as it was: no memory. */
bool array_extend(void *array, int64_t num, size_t size);

bool array_enlarge(void *array, int64_t needed, int64_t *room, size_t size);
/* Make room for `needed` elements of `size` bytes in an array. array: the address of the pointer to
 * it, which is NULL where *room is 0. *room: elements that it has space for; where these are too few,
 * it gets space for twice as many as needed. false, with the array as it was: no memory. */
static inline bool array_grow(void *array, int64_t needed, int64_t *room, size_t size)
{
    return needed <= *room || array_enlarge(array, needed, room, size);
}
