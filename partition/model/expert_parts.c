#include "partition/model/expert_parts.h"

#include <math.h>

static double choose(int n, int k)
{
    double got = k <= n ? 1 : 0;
    for (int i = 0; i < k && got > 0; i++)
        got *= (double)(n - i) / (i + 1);
    return got;
}

/* The probability that k of n, chosen at random, are none of x. */
static double chooses_none(int n, int x, int k)
{
    double none = 1;
    for (int i = 0; i < k; i++)
        none *= fmax(n - x - i, 0) / (n - i);
    return none;
}

/* Where experts are in G groups a token chooses g of these, and its k experts among theirs (DeepSeek-V3, section
 * 2.1.2). A part has `own` groups, of which j are chosen with the hypergeometric probability, or lies in one group. */
double model_expert_parts(const struct model *model, int P)
{
    const int n = model->experts, k = model->experts_active;
    const int G = model->expert_groups > 1 ? model->expert_groups : 1;
    const int g = G > 1 ? model->groups_active : 1, own = G > P ? G / P : 1;
    const int each = n / (G > P ? G : P);
    double none = 0;
    for (int j = 0; j <= own && j <= g; j++)
        none += choose(own, j) * choose(G - own, g - j) / choose(G, g) *
                chooses_none(n / G * g, j * each, k);
    return P * (1 - none);
}
