#include "partition/cache_rule.h"

#include <math.h>

#include "partition/units.h"

const char *cache_refusal(const struct job *job)
{
    if (job->cache.policy == CACHE_OFF)
        return "cache.policy is off";
    if (job_views(job) == 0)
        return job->data.augment
                   ? "data.augment shows another view in each epoch, cache.views may bound them"
                   : "masks change each epoch, cache.views may bound them";
    if (job->model.num_skips > 0)
        return "the model has skip edges";
    if (job->model.num_items < 2 || job->model.num_items > CACHE_LEVEL_MAX)
        return "the model has too many items";
    return NULL;
}

bool cache_whole_wanted(const struct job *job, bool rows_alone)
{
    const bool rounds = job->cache.bf16 && job->train.dtype != DTYPE_BF16;
    return !rounds && !rows_alone;
}

double cache_share(double have, int64_t microbatch_size, bool whole)
{
    return whole ? pow(have, (double)microbatch_size) : have;
}

double cache_case_ns(const struct cache_case *c)
{
    const int64_t fills = c->views < c->epochs ? c->views : c->epochs;
    const double read = c->share * c->read_ns + (1 - c->share) * c->fill_ns;
    if (c->epochs <= 0 || c->views <= 0)
        return c->fill_ns;
    return ((double)fills * c->fill_ns + (double)(c->epochs - fills) * read) / (double)c->epochs;
}

bool cache_case_pays(const struct cache_case *c)
{
    return cache_case_ns(c) < c->plain_ns;
}

enum status cache_fill_extra(const struct model *model, const struct cluster *cluster,
                             const struct cost *cost, const struct plan *plan, int level,
                             int64_t *ns, struct err *err)
{
    const struct device *device = &cluster->devices[plan->device[0]];
    const int64_t samples = plan->microbatches.size;
    bool extrapolated = false;
    int64_t sum = 0, write;
    for (int i = level; i < plan->first_item[0]; i++) {
        int64_t item;
        enum status rc = cost->item_ns(cost->ctx, model, i, PASS_FWD, samples, device, &item,
                                       &extrapolated, err);
        if (rc != OK)
            return rc;
        if (!add_ok(sum, (int64_t)((double)item / device->speed), &sum))
            return err_set(err, ERR_INPUT, "a frozen forward is too long");
    }
    if (!mul_ok(cost->cache_write_ns, samples, &write) || !add_ok(sum, write, &sum) ||
        !mul_ok(sum, plan->microbatches.count, &sum))
        return err_set(err, ERR_INPUT, "a frozen forward is too long");
    *ns = sum;
    return OK;
}
