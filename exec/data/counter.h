/* exec/data/counter.h - random numbers of exec/data/, drawn by counter: a key and an index give the
 * same number on every rank, for every K and R, in any order of calls. Built on exec/base/rng.h.
 * Pure, O(1). */
#pragma once

#include <stdint.h>

#include "exec/base/rng.h"

/* A stream key from three words. */
static inline uint64_t counter_key(uint64_t a, uint64_t b, uint64_t c)
{
    return rng_mix(rng_mix(rng_mix(a) ^ b) ^ c);
}

/* Number `index` of a stream: 64 bits, or a double in [0, 1). */
static inline uint64_t counter_bits(uint64_t key, uint64_t index)
{
    return rng_mix(key ^ rng_mix(index));
}
static inline double counter_unit(uint64_t key, uint64_t index)
{
    return (double)(counter_bits(key, index) >> 11) * 0x1p-53;
}
