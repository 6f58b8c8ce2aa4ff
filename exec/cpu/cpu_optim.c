/* Optimizers, and elementwise work on fp32 tensors.
 *
 * Every function runs over tiles of TILE elements. Sums of squares are taken per tile in double and
 * added in tile order, so they do not depend on the number of threads. update() is the entry point
 * of training: it calls one of the three optimizers per tensor, and rounds the new weights. */
#include <math.h>

#include "exec/cpu/cpu.h"

enum { TILE = 16384, LANES = 16 };

static void accumulate(struct backend *be, int64_t num, const float *x, float *y)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t i = 0; i < num; i++)
        y[i] += x[i];
}

static void scale(struct backend *be, int64_t num, float factor, float *x)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t i = 0; i < num; i++)
        x[i] *= factor;
}

static void add(struct backend *be, int64_t num, const void *x, void *y)
{
    if (be->elem_bytes == 4) {
        accumulate(be, num, x, y);
        return;
    }
    const uint16_t *from = x;
    uint16_t *to = y;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t i = 0; i < num; i++)
        to[i] = bf16_from(bf16_to(to[i]) + bf16_to(from[i]));
}

static void round_weights(struct backend *be, int64_t num, const float *master, void *low)
{
    if (be->elem_bytes == 4) {
        be->copy(be, low, master, num * (int64_t)sizeof *master);
        return;
    }
    uint16_t *to = low;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t i = 0; i < num; i++)
        to[i] = bf16_from(master[i]);
}

static double tile_sumsq(const float *x, int64_t n)
{
    double lane[LANES] = {0}, sum = 0.0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int k = 0; i < n; i++, k++)
        lane[k] += (double)x[i] * (double)x[i];
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

static double sum_of(const double *part, int64_t tiles)
{
    double all = 0.0;
    for (int64_t t = 0; t < tiles; t++)
        all += part[t];
    return all;
}

/* Sum of squares. false: no memory; sync() reports it. */
static bool sum_squares(struct backend *be, int64_t num, const float *x, double *sum)
{
    const int64_t tiles = cpu_tiles(num, TILE);
    double *part = cpu_scratch(be, (tiles + 1) * (int64_t)sizeof *part);
    if (!part)
        return false;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t t = 0; t < tiles; t++)
        part[t] = tile_sumsq(x + t * TILE, cpu_min(TILE, num - t * TILE));
    *sum = sum_of(part, tiles);
    return true;
}

static enum status sumsq_many(struct backend *be, int count, const int64_t *num,
                              const float *const *x, double *sums, struct err *err)
{
    for (int i = 0; i < count; i++)
        if (!sum_squares(be, num[i], x[i], &sums[i]))
            return be->sync(be, err);
    return OK;
}

/* SGD as in PyTorch: g += decay w; m = momentum m + g (m starts at zero); w -= lr m. part != NULL:
 * also receives the sums of squares of the gradient by tile, as sum_squares() computes them, while
 * the tile is in cache. */
static void sgd(struct backend *be, int64_t num, const struct sgd *o, const float *grad,
                float *weight, float *momentum, double *part)
{
    const float lr = o->lr, mu = o->momentum, decay = o->weight_decay, mul = o->grad_mul;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t t = 0; t < cpu_tiles(num, TILE); t++) {
        const int64_t first = t * TILE, end = cpu_min(first + TILE, num);
        if (part)
            part[t] = tile_sumsq(grad + first, end - first);
        for (int64_t i = first; i < end && !momentum; i++)
            weight[i] -= lr * (mul * grad[i] + decay * weight[i]);
        for (int64_t i = first; i < end && momentum; i++) {
            float g = mul * grad[i] + decay * weight[i];
            float m = mu * momentum[i] + g;
            momentum[i] = m;
            weight[i] -= lr * m;
        }
    }
}

/* AdamW: decoupled weight decay (Loshchilov and Hutter, 2019), in PyTorch's order of operations.
 * part as in sgd(). */
static void adamw(struct backend *be, int64_t num, const struct adam *o, const float *grad,
                  float *weight, float *m, float *v, double *part)
{
    const double fix1 = 1.0 - pow(o->beta1, (double)o->step);
    const double fix2 = sqrt(1.0 - pow(o->beta2, (double)o->step));
    const float b1 = (float)o->beta1, b2 = (float)o->beta2, eps = (float)o->eps;
    const float c1 = (float)(1.0 - o->beta1), c2 = (float)(1.0 - o->beta2), mul = o->grad_mul;
    const float rate = (float)(o->lr / fix1), inv2 = (float)(1.0 / fix2);
    const float shrink = (float)(1.0 - o->lr * o->weight_decay);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t t = 0; t < cpu_tiles(num, TILE); t++) {
        if (part)
            part[t] = tile_sumsq(grad + t * TILE, cpu_min(TILE, num - t * TILE));
        for (int64_t i = t * TILE; i < cpu_min((t + 1) * TILE, num); i++) {
            float g = mul * grad[i];
            float m1 = b1 * m[i] + c1 * g;
            float v1 = b2 * v[i] + c2 * g * g;
            m[i] = m1;
            v[i] = v1;
            weight[i] = weight[i] * shrink - rate * m1 / (sqrtf(v1) * inv2 + eps);
        }
    }
}

/* LAMB (You et al. 2020, algorithm 2) with bias correction. Per tensor, the step is the Adam
 * direction plus decay, scaled to the length of the weights. */
static void lamb(struct backend *be, int64_t num, const struct adam *o, const float *grad,
                 float *weight, float *m, float *v)
{
    const double fix1 = 1.0 - pow(o->beta1, (double)o->step);
    const double fix2 = sqrt(1.0 - pow(o->beta2, (double)o->step));
    const float b1 = (float)o->beta1, b2 = (float)o->beta2, eps = (float)o->eps;
    const float c1 = (float)(1.0 - o->beta1), c2 = (float)(1.0 - o->beta2), mul = o->grad_mul;
    const float inv1 = (float)(1.0 / fix1), inv2 = (float)(1.0 / fix2),
                decay = (float)o->weight_decay;
    const int64_t tiles = cpu_tiles(num, TILE);
    double *part = cpu_scratch(be, 2 * (tiles + 1) * (int64_t)sizeof *part);
    if (!part)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t t = 0; t < tiles; t++) {
        double ww = 0.0, uu = 0.0;
        for (int64_t i = t * TILE; i < cpu_min((t + 1) * TILE, num); i++) {
            float g = mul * grad[i];
            m[i] = b1 * m[i] + c1 * g;
            v[i] = b2 * v[i] + c2 * g * g;
            float u = m[i] * inv1 / (sqrtf(v[i]) * inv2 + eps) + decay * weight[i];
            ww += (double)weight[i] * (double)weight[i];
            uu += (double)u * (double)u;
        }
        part[2 * t] = ww;
        part[2 * t + 1] = uu;
    }
    double ww = 0.0, uu = 0.0;
    for (int64_t t = 0; t < tiles; t++) {
        ww += part[2 * t];
        uu += part[2 * t + 1];
    }
    const float trust = ww > 0.0 && uu > 0.0 ? (float)sqrt(ww / uu) : 1.0f;
    const float rate = (float)o->lr * trust;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, num))
    for (int64_t t = 0; t < tiles; t++)
        for (int64_t i = t * TILE; i < cpu_min((t + 1) * TILE, num); i++) {
            float u = m[i] * inv1 / (sqrtf(v[i]) * inv2 + eps) + decay * weight[i];
            weight[i] -= rate * u;
        }
}

static void update(struct backend *be, const struct update_rule *rule, int count,
                   const struct update *tensors)
{
    for (int t = 0; t < count; t++) {
        const struct update *u = &tensors[t];
        struct sgd q = rule->sgd;
        struct adam o = rule->adam;
        const int64_t tiles = cpu_tiles(u->num, TILE);
        double *part = NULL;
        /* LAMB uses the scratch itself, so its sum of squares is a pass of its own. */
        if (u->sumsq && rule->kind == OPTIMIZER_LAMB)
            (void)sum_squares(be, u->num, u->grad, u->sumsq);
        else if (u->sumsq)
            part = cpu_scratch(be, (tiles + 1) * (int64_t)sizeof *part);
        if (!u->decay) {
            q.weight_decay = 0.0f;
            o.weight_decay = 0.0;
        }
        switch (rule->kind) {
        case OPTIMIZER_SGD:
            sgd(be, u->num, &q, u->grad, u->weight, u->state[0], part);
            break;
        case OPTIMIZER_ADAMW:
            adamw(be, u->num, &o, u->grad, u->weight, u->state[0], u->state[1], part);
            break;
        case OPTIMIZER_LAMB:
            lamb(be, u->num, &o, u->grad, u->weight, u->state[0], u->state[1]);
            break;
        }
        if (part)
            *u->sumsq = sum_of(part, tiles);
        if (u->low)
            round_weights(be, u->num, u->weight, u->low);
    }
}

static void apf(struct backend *be, const struct apf_rule *rule, const struct apf_update *u)
{
    int64_t held = 0;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(be, u->num)) reduction(+ : held)
    for (int64_t i = 0; i < u->num; i++) {
        float state[APF_STATES];
        for (int s = 0; s < APF_STATES; s++)
            state[s] = u->state[s][i];
        apf_step(rule, &u->weight[i], state);
        for (int s = 0; s < APF_STATES && rule->check; s++)
            u->state[s][i] = state[s];
        held += state[APF_LEFT] > 0;
    }
    if (u->held)
        *u->held = (double)held;
    if (u->low)
        round_weights(be, u->num, u->weight, u->low);
}

void cpu_optim_install(struct backend *be)
{
    be->update = update;
    be->apf = apf;
    be->round = round_weights;
    be->add = add;
    be->accumulate = accumulate;
    be->scale = scale;
    be->sumsq_many = sumsq_many;
}
