#include "exec/data/sampler.h"

#include <assert.h>

#include "exec/data/counter.h"
#include "partition/base/units.h"

enum { FEISTEL_ROUNDS = 6 };

enum status sampler_init(struct sampler *sampler, const struct sampler_spec *spec, struct err *err)
{
    int64_t global;
    if (spec->num_samples < 1)
        return err_set(err, ERR_INPUT, "cannot sample from %lld samples, need at least 1",
                       (long long)spec->num_samples);
    if (spec->num_replicas < 1 || spec->batch < 1 || spec->num_microbatches < 1)
        return err_set(err, ERR_INPUT,
                       "replicas, batch and micro-batches must be at least 1, got %d, %lld, %d",
                       spec->num_replicas, (long long)spec->batch, spec->num_microbatches);
    if (!mul_ok(spec->batch, spec->num_replicas, &global) || spec->num_samples > INT64_MAX - global)
        return err_set(err, ERR_INPUT, "batch of %lld samples times %d replicas is too large",
                       (long long)spec->batch, spec->num_replicas);
    *sampler = (struct sampler){
        .spec = *spec, .microbatches = microbatches_of(spec->batch, spec->num_microbatches)};
    return OK;
}

static int64_t global_batch(const struct sampler *sampler)
{
    return sampler->spec.batch * sampler->spec.num_replicas;
}

int64_t sampler_steps_per_epoch(const struct sampler *sampler)
{
    return (sampler->spec.num_samples - sampler->origin + global_batch(sampler) - 1) /
           global_batch(sampler);
}

int64_t sampler_steps_per_whole_epoch(const struct sampler *sampler)
{
    return (sampler->spec.num_samples + global_batch(sampler) - 1) / global_batch(sampler);
}

int64_t sampler_go_on(struct sampler *sampler, int64_t position)
{
    const bool divides = position % global_batch(sampler) == 0;
    sampler->origin = divides ? 0 : position;
    return divides ? position / global_batch(sampler) : 0;
}

int64_t sampler_position(const struct sampler *sampler, int64_t step_in_epoch)
{
    return sampler->origin + step_in_epoch * global_batch(sampler);
}

int64_t sampler_step_samples(const struct sampler *sampler, int64_t step_in_epoch)
{
    int64_t left = sampler->spec.num_samples - sampler_position(sampler, step_in_epoch);
    if (left < 0)
        left = 0;
    return left < global_batch(sampler) ? left : global_batch(sampler);
}

int64_t sampler_microbatch(const struct sampler *sampler, int64_t step_in_epoch, int replica,
                           int microbatch, int64_t *first)
{
    const struct microbatches *mb = &sampler->microbatches;
    int64_t offset = replica * sampler->spec.batch + microbatch * mb->size;
    int64_t count = microbatch == mb->count - 1 ? mb->last_size : mb->size;
    int64_t left = sampler_step_samples(sampler, step_in_epoch) - offset;
    assert(replica >= 0 && replica < sampler->spec.num_replicas);
    assert(microbatch >= 0 && microbatch < mb->count);
    if (left < count)
        count = left < 0 ? 0 : left;
    *first = sampler_position(sampler, step_in_epoch) + offset;
    return count;
}

/* A balanced Feistel network on 2 * half_bits bits, applied repeatedly until the result is inside
 * [0, n) (cycle walking: Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). The
 * domain is smaller than 4 n, so fewer than 4 applications are needed on average. */
int64_t sampler_id(const struct sampler *sampler, int64_t epoch, int64_t position)
{
    uint64_t n = (uint64_t)sampler->spec.num_samples, x = (uint64_t)position;
    uint64_t key = counter_key(sampler->spec.seed, (uint64_t)epoch, 0x73616d706c65u);
    int half_bits = 1;
    assert(position >= 0 && position < sampler->spec.num_samples);
    if (!sampler->spec.shuffle)
        return position;
    while (half_bits < 31 && (UINT64_C(1) << (2 * half_bits)) < n)
        half_bits++;
    if ((UINT64_C(1) << (2 * half_bits)) < n)
        half_bits = 32;
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    do {
        uint64_t left = x >> half_bits, right = x & mask;
        for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
            uint64_t next = left ^ (counter_bits(key + round, right) & mask);
            left = right;
            right = next;
        }
        x = left << half_bits | right;
    } while (x >= n);
    return (int64_t)x;
}
