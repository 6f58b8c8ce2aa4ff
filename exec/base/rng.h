/* exec/base/rng.h - random numbers by counter: a number depends on its key and index, never on who
 * draws it or when. Weights are keyed by (seed, item, tensor), dropout by (seed, step, item, site)
 * and the sample's id. Inline, so that kernels can vectorise it. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define RNG_INLINE static inline __host__ __device__ /* kernels draw the same numbers */
#else
#define RNG_INLINE static inline
#endif

/* Finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection that avalanches. */
RNG_INLINE uint64_t rng_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

RNG_INLINE uint64_t rng_key(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    return rng_mix(rng_mix(rng_mix(rng_mix(seed) ^ a) ^ b) ^ c);
}

/* 32 random bits for index under key. Two rounds of a 32-bit mixer (constants of Wellons'
 * "lowbias32", 2018) with half of the key before each: two multiplications, 16 lanes at a time
 * under AVX-512. */
RNG_INLINE uint32_t rng_bits(uint64_t key, uint32_t index)
{
    uint32_t x = index * 0x9e3779b9u + (uint32_t)key;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= (uint32_t)(key >> 32);
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

/* Standard normal number `index` of key (Box-Muller on 2 x 32 bits). */
double rng_normal(uint64_t key, uint64_t index);
