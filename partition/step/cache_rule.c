#include "partition/step/cache_rule.h"

#include <math.h>

#include "partition/base/units.h"

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

bool cache_whole_wanted(const struct job *job, bool bits_independent_of_row_count)
{
    const bool rounds = job->cache.bf16 && job->train.dtype != DTYPE_BF16;
    return !rounds && !bits_independent_of_row_count;
}

enum status cache_fit(int64_t num_samples, int64_t sample_elems, bool bf16,
                      const int64_t limits[CACHE_TIERS], struct cache_size *size, struct err *err)
{
    struct cache_size got = {0};
    int64_t bytes, states, room[CACHE_TIERS];
    if (num_samples < 1 || sample_elems < 1)
        return err_set(err, ERR_INPUT,
                       "cache: samples and values must be at least 1, got %lld, %lld",
                       (long long)num_samples, (long long)sample_elems);
    if (!mul_ok(sample_elems, bf16 ? 2 : 4, &bytes) || bytes > INT64_MAX - 2 * CACHE_ALIGN_BYTES)
        return err_set(err, ERR_INPUT, "cache: %lld values a sample overflow",
                       (long long)sample_elems);
    got.slot_bytes =
        (CACHE_STATE_BYTES + bytes + CACHE_ALIGN_BYTES - 1) / CACHE_ALIGN_BYTES * CACHE_ALIGN_BYTES;
    for (int t = 0; t < CACHE_TIERS; t++)
        room[t] =
            limits[t] < CACHE_HEADER_BYTES ? 0 : (limits[t] - CACHE_HEADER_BYTES) / got.slot_bytes;
    if (room[0] < num_samples && room[1] > 0) { /* the spill's states take room too */
        states = (room[1] < num_samples ? room[1] : num_samples) * CACHE_STATE_BYTES;
        room[0] = limits[0] < CACHE_HEADER_BYTES + states
                      ? 0
                      : (limits[0] - CACHE_HEADER_BYTES - states) / got.slot_bytes;
    }
    got.num_slots[0] = room[0] < num_samples ? room[0] : num_samples;
    got.num_slots[1] =
        room[1] < num_samples - got.num_slots[0] ? room[1] : num_samples - got.num_slots[0];
    states = got.num_slots[1] * CACHE_STATE_BYTES;
    for (int t = 0; t < CACHE_TIERS; t++)
        if (got.num_slots[t] + (t == 0 ? got.num_slots[1] : 0) > 0 &&
            (!mul_ok(got.num_slots[t], got.slot_bytes, &got.bytes[t]) ||
             !add_ok(got.bytes[t], CACHE_HEADER_BYTES + (t == 0 ? states : 0), &got.bytes[t])))
            return err_set(err, ERR_INPUT, "cache: %lld samples of %lld bytes exceed 63 bits",
                           (long long)got.num_slots[t], (long long)got.slot_bytes);
    *size = got;
    return OK;
}

double cache_job_room(const struct job *job, int64_t num_samples)
{
    const int64_t elem_bytes = job->model.elem_bytes;
    const bool bf16 = job->cache.bf16 || job->train.dtype == DTYPE_BF16;
    const int64_t limits[CACHE_TIERS] = {job->cache.limit_bytes ? job->cache.limit_bytes
                                                                : INT64_MAX,
                                         !job->cache.spill_dir    ? 0
                                         : job->cache.spill_bytes ? job->cache.spill_bytes
                                                                  : INT64_MAX};
    struct cache_size size;
    int64_t slots, act_bytes = 1;
    if (job->freeze.policy == FREEZE_NONE || cache_refusal(job))
        return 0;
    for (int i = 0; i < job->model.num_items - 1; i++)
        if (job->model.items[i].act_bytes > act_bytes)
            act_bytes = job->model.items[i].act_bytes;
    if (!mul_ok(num_samples, job_views(job), &slots) ||
        cache_fit(slots, (act_bytes - 1) / elem_bytes + 1, bf16, limits, &size, NULL) != OK)
        return 0;
    return (double)(size.num_slots[0] + size.num_slots[1]) / (double)slots;
}

double cache_share(double have, int64_t microbatch_size, bool whole)
{
    return whole ? pow(have, (double)microbatch_size) : have;
}

double cache_fill_weight(int64_t epochs, int64_t views, double share)
{
    const int64_t fills = views < epochs ? views : epochs;
    if (epochs <= 0 || views <= 0)
        return 1;
    return ((double)fills + (double)(epochs - fills) * (1 - share)) / (double)epochs;
}

enum status cache_fill_extra(const struct setting *setting, const struct plan *plan, int level,
                             int64_t *ns, struct err *err)
{
    const struct cost *cost = setting->cost;
    const struct device *device = &setting->cluster->devices[plan->device[0]];
    const int64_t samples = plan->microbatches.size;
    bool extrapolated = false;
    int64_t sum = 0, write;
    for (int i = level; i < plan->first_item[0]; i++) {
        int64_t item;
        enum status rc = cost->item_ns(cost->ctx, setting->model, i, PASS_FWD_NOGRAD, samples,
                                       device, &item, &extrapolated, err);
        if (rc != OK)
            return rc;
        if (!add_ok(sum, device_ns(device, item), &sum))
            return err_set(err, ERR_INPUT, "a frozen forward is too long");
    }
    if (!mul_ok(cost->cache_write_ns, samples, &write) || !add_ok(sum, write, &sum) ||
        !mul_ok(sum, plan->microbatches.count, &sum))
        return err_set(err, ERR_INPUT, "a frozen forward is too long");
    *ns = sum;
    return OK;
}
