/* exec/cuda/act.cuh - activation functions and their derivatives, of one element in fp32.
 *
 * T is the dtype that results are stored in. For bf16, whose last bit is 2^-8, they use the
 * approximate instructions of the special-function unit. */
#pragma once

#include "exec/cuda/elem.cuh"
#include "exec/cuda/ptx.cuh"

#define SQRT_HALF 0.70710678118654752440f
#define SQRT_2_OVER_PI 0.79788456080286535588f
#define INV_SQRT_2PI 0.39894228040143267794f
#define TANH_CUBIC 0.044715f
#define LOG2E 1.4426950408889634f

/* The tail of the normal distribution below -|x|, by Abramowitz and Stegun 7.1.26 (absolute error
 * below 1.5e-7); *bell = exp(-x^2 / 2). For bf16, whose last bit is 2^-8, two instructions of the
 * special-function unit and a few FMAs replace erff(), expf() and tanhf(), which would make the
 * pass slower than memory. */
static __device__ __forceinline__ float normal_tail(float x, float *bell)
{
    const float t = rcp_approx(1.0f + 0.3275911f * SQRT_HALF * fabsf(x));
    float sum = fmaf(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f);
    sum = fmaf(t, sum, 0.5f * 1.421413741f);
    sum = fmaf(t, sum, 0.5f * -0.284496736f);
    sum = fmaf(t, sum, 0.5f * 0.254829592f);
    *bell = exp2_approx(x * x * (-0.5f * LOG2E));
    return t * sum * *bell;
}
/* The factor that GELU multiplies x with: the normal distribution function at x, or its
 * approximation (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)). *slope: its derivative. */
template <int ACT, typename T>
static __device__ __forceinline__ float gelu_gate(float x, float *slope)
{
    const bool low = sizeof(T) == 2;
    if (ACT == ACT_GELU_ERF) {
        float bell;
        if (low) {
            const float tail = normal_tail(x, &bell);
            *slope = INV_SQRT_2PI * bell;
            return x < 0.0f ? tail : 1.0f - tail;
        }
        *slope = INV_SQRT_2PI * expf(-0.5f * x * x);
        return 0.5f * (1.0f + erff(x * SQRT_HALF));
    }
    const float u = SQRT_2_OVER_PI * (x + TANH_CUBIC * x * x * x);
    const float gate =
        low ? rcp_approx(1.0f + exp2_approx(-2.0f * LOG2E * u)) : 0.5f * (1.0f + tanhf(u));
    *slope = 2.0f * gate * (1.0f - gate) * SQRT_2_OVER_PI * (1.0f + 3.0f * TANH_CUBIC * x * x);
    return gate;
}

/* SiLU multiplies x with 1 / (1 + exp(-x)). */
template <typename T> static __device__ __forceinline__ float silu_gate(float x)
{
    return sizeof(T) == 2 ? rcp_approx(1.0f + exp2_approx(-LOG2E * x)) : 1.0f / (1.0f + expf(-x));
}

template <int ACT, typename T> static __device__ __forceinline__ float act_of(float x)
{
    float slope;
    if (ACT == ACT_SILU)
        return x * silu_gate<T>(x);
    if (ACT == ACT_GELU_ERF && sizeof(T) == 2) /* x (1 - tail), or x tail where x < 0 */
        return fmaxf(x, 0.0f) - fabsf(x) * normal_tail(x, &slope);
    if (ACT == ACT_GELU_ERF || ACT == ACT_GELU_TANH)
        return x * gelu_gate<ACT, T>(x, &slope);
    return ACT == ACT_TANH ? tanhf(x) : x;
}

/* The derivative of the activation at its input x; for ACT_TANH x is the output. */
template <int ACT, typename T> static __device__ __forceinline__ float act_grad_of(float x)
{
    float slope;
    if (ACT == ACT_SILU) {
        const float gate = silu_gate<T>(x);
        return gate * (1.0f + x * (1.0f - gate));
    }
    if (ACT == ACT_GELU_ERF || ACT == ACT_GELU_TANH) {
        const float gate = gelu_gate<ACT, T>(x, &slope);
        return gate + x * slope;
    }
    return ACT == ACT_TANH ? 1.0f - x * x : 1.0f;
}
