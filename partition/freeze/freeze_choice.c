#include "partition/freeze/freeze_choice.h"

#include <math.h>
#include <stddef.h>

#include "partition/base/units.h"

const char *const freeze_choice_names[] = {"rotate", "random", "norm", NULL};

/* Fractional parts in units of 2^-64, so that a sum's overflow takes its fractional part. */
static const uint64_t golden = 0x9e3779b97f4a7c15u; /* of (sqrt(5) - 1) / 2 */
static const uint64_t root_2 = 0x6a09e667f3bcc908u;
static const uint64_t root_3 = 0xbb67ae8584caa73bu;

static const double front_weight = 1.0, back_weight = 0.1; /* choice-3 */

static uint64_t place_of(const struct freeze_pass *pass, int item)
{
    return mix64(pass->seed) + (uint64_t)item * golden + (uint64_t)pass->step * root_2 +
           (uint64_t)pass->microbatch * root_3;
}

static void rotate(const struct freeze_pass *pass, bool *left_out)
{
    const uint64_t below = (uint64_t)(pass->share * 0x1p64); /* share < 1 */
    for (int item = pass->first_item; item < pass->end_item; item++)
        left_out[item - pass->first_item] = place_of(pass, item) < below;
}

/* A number in (0, 1) for an item of a pass. */
static double uniform_of(const struct freeze_pass *pass, int item)
{
    uint64_t x = mix64(mix64(pass->seed) ^ (uint64_t)pass->step);
    x = mix64(mix64(x ^ (uint64_t)pass->microbatch) ^ (uint64_t)item);
    return ((double)(x >> 12) + 0.5) * 0x1p-52;
}

/* Leave out the item whose rank by falling key is below num. With keys log(u) / weight that is a
 * weighted draw without replacement (Efraimidis and Spirakis, 2006). */
static void draw(const struct freeze_pass *pass, int num, bool *left_out)
{
    const int n = pass->end_item - pass->first_item;
    for (int taken = 0; taken < num; taken++) {
        double best = -INFINITY;
        int next = 0;
        for (int i = 0; i < n; i++) {
            const double part = n > 1 ? (double)i / (n - 1) : 0;
            const double weight =
                pass->first_item > 0 ? 1 : front_weight + part * (back_weight - front_weight);
            const double key = log(uniform_of(pass, pass->first_item + i)) / weight;
            if (!left_out[i] && key > best) {
                best = key;
                next = i;
            }
        }
        left_out[next] = true;
    }
}

static void by_order(const struct freeze_pass *pass, int num, bool *left_out)
{
    const int n = pass->end_item - pass->first_item;
    const int *order = pass->order + pass->first_item;
    for (int i = 0; i < n; i++) {
        int before = 0;
        for (int j = 0; j < n; j++)
            before += order[j] < order[i];
        left_out[i] = before < num;
    }
}

void freeze_choose(enum freeze_choice choice, const struct freeze_pass *pass, bool *left_out)
{
    const int n = pass->end_item - pass->first_item;
    const int num = (int)lround(n * pass->share);
    for (int i = 0; i < n; i++)
        left_out[i] = pass->share >= 1;
    if (pass->share <= 0 || pass->share >= 1)
        return;
    if (choice == CHOICE_RANDOM)
        draw(pass, num, left_out);
    else if (choice == CHOICE_NORM && pass->order)
        by_order(pass, num, left_out);
    else
        rotate(pass, left_out);
}

static double change_of(int layer, const double *norms, int64_t num_turns, int num_layers)
{
    double now = 0;
    for (int64_t turn = num_turns - 1; layer >= 0 && turn >= 0; turn--) {
        const double norm = norms[turn * num_layers + layer];
        if (norm > 0 && now > 0)
            return fabs(now - norm) / norm;
        now = norm > 0 ? norm : now;
    }
    return INFINITY;
}

void freeze_order(const struct model *model, const double *norms, int64_t num_turns, int *order)
{
    const int n = model->num_items, layers = model->num_layers;
    for (int i = 0; i < n; i++) {
        const double change = change_of(model->items[i].layer, norms, num_turns, layers);
        order[i] = 0;
        for (int j = 0; j < n; j++) {
            const double other = change_of(model->items[j].layer, norms, num_turns, layers);
            order[i] += other < change || (other == change && j < i);
        }
    }
}
