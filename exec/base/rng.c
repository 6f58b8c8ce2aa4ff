#include "exec/base/rng.h"

#include <math.h>

double rng_normal(uint64_t key, uint64_t index)
{
    const double two_pi = 6.283185307179586;
    uint64_t bits = rng_mix(key ^ rng_mix(index));
    double u = ((double)(bits >> 32) + 0.5) * 0x1p-32; /* (0, 1): the logarithm is finite */
    double v = (double)(uint32_t)bits * 0x1p-32;
    return sqrt(-2.0 * log(u)) * cos(two_pi * v);
}
