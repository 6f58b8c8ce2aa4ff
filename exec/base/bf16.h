/* exec/base/bf16.h - bfloat16 in host memory: the upper half of an fp32. Loops that the compiler
 * vectorises. */
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* To nearest, ties to even; NaN stays NaN (made quiet), overflow goes to infinity. */
static inline uint16_t bf16_from(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

static inline float bf16_to(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* x and y do not overlap. */
static inline void bf16_widen(int64_t num, const uint16_t *x, float *y)
{
    for (int64_t i = 0; i < num; i++)
        y[i] = bf16_to(x[i]);
}

static inline void bf16_narrow(int64_t num, const float *x, uint16_t *y)
{
    for (int64_t i = 0; i < num; i++)
        y[i] = bf16_from(x[i]);
}

#ifdef __cplusplus
}
#endif
