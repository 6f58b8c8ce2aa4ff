/* partition/freeze/apf.h - Adaptive Parameter Freezing: each weight freezes and thaws by itself.
 *
 * Chen et al., "Communication-Efficient Federated Learning with Adaptive Parameter Freezing", ICDCS
 * 2021. At regular checks a weight that is not held counts by how much it has moved
 * since the last check, d. Its effective perturbation is
 *     |moving average of d| / moving average of |d|,    average = decay * average + (1 - decay) * d
 * 1 where it moves in one direction, near 0 where it moves to and fro. Below the threshold its
 * period grows by one interval between checks, else its period halves. Then it is held for its
 * period: each step's update of it is undone, while the optimizer's state advances. A period that
 * ends lets the weight train for one interval before it counts again.
 *
 * That saves the messages of federated clients, which is what it was made for. A backward here
 * leaves out whole items only, so a step takes no less time.
 *
 * Left out: the paper halves the threshold when four of five weights are held. */
#pragma once

#include <math.h>
#include <stdbool.h>

#ifdef __CUDACC__
#define APF_INLINE static inline __host__ __device__
#else
#define APF_INLINE static inline
#endif

/* The state of a weight; all 0 at first, but for APF_BEFORE, which is the initial weight. */
enum apf_state {
    APF_BEFORE, /* the weight at the last check */
    APF_MEAN,   /* moving averages of what it moved, */
    APF_SIZE,   /* and of how far */
    APF_PERIOD, /* intervals that it is held for, next time */
    APF_LEFT,   /* intervals that it is still held for; 0: it trains */
    APF_STATES
};

struct apf_rule {
    float decay, threshold;
    bool check;   /* a check comes after this step */
    bool freezes; /* false: checks count, and hold nothing */
};

/* After an update of the weight. */
APF_INLINE void apf_step(const struct apf_rule *rule, float *weight, float state[APF_STATES])
{
    const bool held = state[APF_LEFT] > 0;
    if (held)
        *weight = state[APF_BEFORE];
    if (held && rule->check)
        state[APF_LEFT] -= 1;
    if (held || !rule->check)
        return;
    const float d = *weight - state[APF_BEFORE], rest = 1 - rule->decay;
    state[APF_BEFORE] = *weight;
    state[APF_MEAN] = rule->decay * state[APF_MEAN] + rest * d;
    state[APF_SIZE] = rule->decay * state[APF_SIZE] + rest * fabsf(d);
    if (fabsf(state[APF_MEAN]) < rule->threshold * state[APF_SIZE])
        state[APF_PERIOD] += rule->freezes ? 1 : 0;
    else
        state[APF_PERIOD] = floorf(state[APF_PERIOD] / 2);
    state[APF_LEFT] = state[APF_PERIOD];
}
