/* Sources: Su et al. 2021 (angles), Chen et al. 2023 (linear), the Llama 3.1 model card and Peng et
 * al. 2023 (YaRN). Names of the factors are those of transformers' config.json. */
#include "exec/stage/rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586;

/* The pair that turns `turns` times over the original context (YaRN, section 3.2). */
static double pair_of_turns(const struct rope *r, double theta, double turns, int dim)
{
    return dim * log(r->original / (turns * two_pi)) / (2.0 * log(theta));
}

/* The share of pair i's frequency that YaRN divides by the factor: 0 below the fast pairs, 1
 * above the slow ones. */
static double yarn_share(const struct rope *r, double theta, int i, int dim)
{
    const double fast = r->fast > 0.0 ? r->fast : 32.0, slow = r->slow > 0.0 ? r->slow : 1.0;
    double low = fmax(floor(pair_of_turns(r, theta, fast, dim)), 0.0);
    double high = fmin(ceil(pair_of_turns(r, theta, slow, dim)), dim - 1.0);
    if (low == high)
        high += 0.001;
    return fmin(fmax((i - low) / (high - low), 0.0), 1.0);
}

static double llama3_frequency(const struct rope *r, double frequency)
{
    const double turns = r->original * frequency / two_pi; /* over the original context */
    if (turns > r->high)
        return frequency;
    if (turns < r->low)
        return frequency / r->factor;
    const double smooth = (turns - r->low) / (r->high - r->low);
    return (1.0 - smooth) * frequency / r->factor + smooth * frequency;
}

static double scaled_frequency(const struct rope *r, double theta, int i, int dim)
{
    const double frequency = pow(theta, -2.0 * i / dim);
    double share;
    switch (r->kind) {
    case ROPE_PLAIN:
    case ROPE_OTHER: /* arch_init() refuses it */
        break;
    case ROPE_LINEAR:
        return frequency / r->factor;
    case ROPE_LLAMA3:
        return llama3_frequency(r, frequency);
    case ROPE_YARN:
        share = yarn_share(r, theta, i, dim);
        return frequency / r->factor * share + frequency * (1.0 - share);
    }
    return frequency;
}

void rope_angles(const struct rope *rope, int seq, int head_dim, float *angles)
{
    const double theta = rope->theta > 0.0 ? rope->theta : 10000.0;
    double scale = 1.0;
    if (rope->kind == ROPE_YARN)
        scale = rope->attention > 0.0 ? rope->attention
                : rope->factor > 1.0  ? 0.1 * log(rope->factor) + 1.0
                                      : 1.0;
    for (int i = 0; i < head_dim / 2; i++) {
        const float frequency = (float)scaled_frequency(rope, theta, i, head_dim);
        for (int t = 0; t < seq; t++) {
            const float angle = (float)t * frequency;
            float *at = angles + (int64_t)t * head_dim + 2 * i;
            at[0] = (float)(cos(angle) * scale);
            at[1] = (float)(sin(angle) * scale);
        }
    }
}
