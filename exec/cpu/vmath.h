/* exec/cpu/vmath.h - exp, GELU, tanh and their derivatives in fp32, without branches, so that the
 * compiler can vectorise the loops that call them. tests/unit/exec/test_backend_cpu.c checks the errors
 * stated here. */
#pragma once

#include <stdint.h>
#include <string.h>

/* x clamped to [-87, 88], NaN as it is. By masks, because GCC would compute what callers make of the
 * bounds beside each vector of theirs: x / (1 + exp(88)) is subnormal, which costs 100 cycles. */
static inline float vclamp(float x)
{
    const uint32_t below = 0u - (uint32_t)(x < -87.0f), above = 0u - (uint32_t)(x > 88.0f);
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits & ~(below | above)) | (below & 0xc2ae0000u) | (above & 0x42b00000u);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* exp(x), relative error below 2e-7 for x in [-87, 88]; arguments outside are clamped to that
 * range. Method of Cody and Waite: x = n ln 2 + r with |r| <= ln(2)/2; Taylor polynomial of degree
 * 7 in r (truncation error below 1e-8), times 2^n. */
static inline float vexp(float x)
{
    /* 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits of the sum. */
    const float magic = 12582912.0f;
    x = vclamp(x);
    float shifted = x * 1.44269504f + magic;
    float n = shifted - magic;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.0f;
    uint32_t bits; /* for NaN any bits: p is NaN */
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* Phi(x), the normal distribution function, and its density; GELU with erf is made of these two.
 * erfc(z) = exp(-z^2) t P(t) with t = 1 / (1 + 0.33 z). P was fitted by least squares of the
 * relative error at 400 Chebyshev nodes, z in [0, 9.9]; the relative error of the fit is 9.2e-8. */
static inline float vphi(float x, float *density)
{
    float z = (x < 0.0f ? -x : x) * 0.70710678f;
    float e = vexp(-z * z);
    float t = 1.0f / (1.0f + 0.33f * z);
    float p = -0.1356761972f;
    p = p * t + 0.4615877792f;
    p = p * t - 0.3534437248f;
    p = p * t + 0.4105949180f;
    p = p * t + 0.0461117268f;
    p = p * t + 0.2015636278f;
    p = p * t + 0.1829002178f;
    p = p * t + 0.1863615763f;
    float tail = 0.5f * e * (p * t);
    *density = 0.39894228f * e;
    return x < 0.0f ? tail : 1.0f - tail;
}

static inline float vgelu_erf(float x)
{
    float density;
    return x * vphi(x, &density);
}

static inline float vgelu_erf_grad(float x)
{
    float density;
    float phi = vphi(x, &density);
    return phi + x * density;
}

/* GELU with tanh: x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3). */
static inline float vgelu_tanh(float x)
{
    float u2 = 1.59576912f * (x + 0.044715f * x * x * x);
    return x / (1.0f + vexp(-u2));
}

static inline float vgelu_tanh_grad(float x)
{
    float u2 = 1.59576912f * (x + 0.044715f * x * x * x);
    float e = vexp(-u2), s = 1.0f / (1.0f + e);
    /* e * s is 1 - s without cancellation */
    return s + x * (e * s) * s * 1.59576912f * (1.0f + 0.134145f * x * x);
}

/* SiLU: x / (1 + exp(-x)). */
static inline float vsilu(float x)
{
    return x / (1.0f + vexp(-x));
}

static inline float vsilu_grad(float x)
{
    float e = vexp(-x), s = 1.0f / (1.0f + e);
    return s + x * (e * s) * s; /* e * s is 1 - s without cancellation */
}

/* tanh(x), absolute error below 2e-7. */
static inline float vtanh(float x)
{
    return 1.0f - 2.0f / (1.0f + vexp(2.0f * x));
}
