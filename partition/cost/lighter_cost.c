#include "partition/cost/lighter_cost.h"

static enum status lighter_item_ns(const void *ctx, const struct model *model, int item,
                                   enum pass pass, int64_t samples, const struct device *device,
                                   int64_t *ns, bool *extrapolated, struct err *err)
{
    const struct lighter_cost *l = ctx;
    const enum status rc =
        l->of->item_ns(l->of->ctx, model, item, pass, samples, device, ns, extrapolated, err);
    if (rc == OK && pass == PASS_BWD_WEIGHT)
        *ns = (int64_t)(l->part * (double)*ns);
    return rc;
}

static enum status lighter_rerun_ns(const void *ctx, const struct model *model, int item,
                                    enum rerun rerun, int64_t samples, const struct device *device,
                                    int64_t *ns, bool *extrapolated, struct err *err)
{
    const struct lighter_cost *l = ctx;
    return l->of->rerun_ns(l->of->ctx, model, item, rerun, samples, device, ns, extrapolated, err);
}

static enum status lighter_beside_ns(const void *ctx, const struct model *model, int item,
                                     enum pass pass, int64_t samples, const struct device *device,
                                     enum collective kind, int64_t *ns, struct err *err)
{
    const struct lighter_cost *l = ctx;
    return l->of->beside_ns(l->of->ctx, model, item, pass, samples, device, kind, ns, err);
}

static double lighter_near_ns(const void *ctx, const struct device *device, enum pass pass,
                              int64_t distance)
{
    const struct lighter_cost *l = ctx;
    return (pass == PASS_BWD_WEIGHT ? l->part : 1) *
           l->of->near_ns_per_byte(l->of->ctx, device, pass, distance);
}

static int64_t lighter_transfer_ns(const void *ctx, const struct cluster *cluster, int from, int to,
                                   int64_t bytes)
{
    const struct lighter_cost *l = ctx;
    return l->of->transfer_ns(l->of->ctx, cluster, from, to, bytes);
}

static int64_t lighter_allreduce_ns(const void *ctx, const struct cluster *cluster,
                                    const int *devices, int n, int64_t bytes)
{
    const struct lighter_cost *l = ctx;
    return l->of->allreduce_ns(l->of->ctx, cluster, devices, n, bytes);
}

void lighter_cost_init(const struct cost *of, double part, struct lighter_cost *lighter)
{
    *lighter = (struct lighter_cost){.cost = *of, .of = of, .part = part};
    struct cost *cost = &lighter->cost;
    cost->ctx = lighter;
    cost->item_ns = lighter_item_ns;
    cost->rerun_ns = of->rerun_ns ? lighter_rerun_ns : NULL;
    cost->beside_ns = of->beside_ns ? lighter_beside_ns : NULL;
    cost->near_ns_per_byte = of->near_ns_per_byte ? lighter_near_ns : NULL;
    cost->transfer_ns = of->transfer_ns ? lighter_transfer_ns : NULL;
    cost->allreduce_ns = of->allreduce_ns ? lighter_allreduce_ns : NULL;
}
