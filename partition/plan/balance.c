/* The greedy balancers: Algorithm 1 of He et al. 2021 with the population variance of the released
 * code. The order of every floating-point operation is part of the definition, because the result
 * depends on the rounding. */
#include "partition/plan/balance.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "partition/base/units.h"

const char *const balancer_kind_names[] = {"optimal", "released", "paper", NULL};

#define LAMBDA (1.0 / 6) /* weight of a frozen parameter, from the paper */

static double population_variance(const double *sizes, int n)
{
    double mean = 0, sum = 0;
    if (n == 0)
        return 0;
    for (int i = 0; i < n; i++)
        mean += sizes[i];
    mean /= n;
    for (int i = 0; i < n; i++)
        sum += (sizes[i] - mean) * (sizes[i] - mean);
    return sum / n;
}

static double sum_of(const double *sizes, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += sizes[i];
    return sum;
}

static enum status check(const double *sizes, int num_items, int num_frozen, int num_stages,
                         struct err *err)
{
    if (num_stages < 1)
        return err_set(err, ERR_INPUT, "stages must be at least 1, got %d", num_stages);
    if (num_items < 1)
        return err_set(err, ERR_INPUT, "items must be at least 1, got %d", num_items);
    if (num_frozen < 0 || num_frozen > num_items)
        return err_set(err, ERR_INPUT, "frozen items must be 0..%d, got %d", num_items, num_frozen);
    for (int i = 0; i < num_items; i++)
        if (!(sizes[i] >= 0 && isfinite(sizes[i])))
            return err_set(err, ERR_INPUT,
                           "size of item %d must be finite and not negative, got %g", i, sizes[i]);
    return OK;
}

enum status balance_greedy(enum balancer_kind balancer, const double *sizes, int num_items,
                           int num_frozen, int num_stages, int *count, double *load,
                           struct err *err)
{
    bool pinned = balancer == BALANCER_PAPER;
    double frozen, discount, rest;
    int first = num_frozen; /* a of Algorithm 1: the first item not yet taken */
    enum status rc = check(sizes, num_items, num_frozen, num_stages, err);
    if (rc != OK)
        return rc;
    if (num_stages > num_items - (pinned ? 0 : num_frozen))
        return err_set(err, ERR_INFEASIBLE, "cannot cut %s into %s",
                       COUNT_TEXT(num_items - (pinned ? 0 : num_frozen), "item"),
                       COUNT_TEXT(num_stages, "stage"));
    frozen = pinned ? sum_of(sizes, num_frozen) : 0;
    discount = frozen * (1 - LAMBDA);
    rest = sum_of(sizes + num_frozen, num_items - num_frozen);
    for (int k = 0; k < num_stages; k++) {
        double mean = rest / (num_stages - k);
        double slack = population_variance(sizes + first, num_items - first) / (num_stages - k);
        count[k] = pinned && k == 0 ? num_frozen : 0;
        load[k] = k == 0 ? frozen : 0;
        for (; first < num_items; first++) {
            double size = sizes[first];
            if (k < num_stages - 1 && !(load[k] + size - (k == 0 ? discount : 0) < mean + slack))
                break;
            count[k]++;
            load[k] += size;
            rest -= size;
        }
    }
    return OK;
}

double balance_max(enum balancer_kind balancer, const double *sizes, int num_frozen, int num_stages,
                   const double *load)
{
    double largest = load[0];
    if (balancer == BALANCER_PAPER)
        largest -= sum_of(sizes, num_frozen) * (1 - LAMBDA);
    for (int k = 1; k < num_stages; k++)
        if (load[k] > largest)
            largest = load[k];
    return largest;
}

enum status balance_compress(enum balancer_kind balancer, const double *sizes, int num_items,
                             int num_frozen, double budget, int *num_stages, struct err *err)
{
    int items = num_items - (balancer == BALANCER_PAPER ? 0 : num_frozen), *count = NULL;
    double *load = NULL;
    int stages = *num_stages;
    enum status rc = check(sizes, num_items, num_frozen, stages, err);
    if (rc != OK)
        return rc;
    count = malloc((size_t)num_items * sizeof *count);
    load = malloc((size_t)num_items * sizeof *load);
    if (!count || !load) {
        rc = err_nomem(err);
        goto out;
    }
    for (; stages >= 2; stages /= 2) {
        if (stages / 2 <= items) { /* else there are more stages than items: halve again */
            rc = balance_greedy(balancer, sizes, num_items, num_frozen, stages / 2, count, load,
                                err);
            if (rc != OK)
                goto out;
            if (balance_max(balancer, sizes, num_frozen, stages / 2, load) > budget)
                break;
        }
    }
    if (stages > items) {
        rc = err_set(err, ERR_INFEASIBLE, "no active item is left to cut");
        goto out;
    }
    *num_stages = stages;
out:
    free(count);
    free(load);
    return rc;
}

void balance_sizes(const struct model *model, double *sizes)
{
    for (int i = 0; i < model->num_items; i++)
        sizes[i] = (double)model->items[i].params / 1e6;
}
