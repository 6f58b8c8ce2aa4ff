#include "exec/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/rng.h"
#include "exec/stage.h"
#include "partition/units.h"

struct cache {
    struct cache_arena *arena;
    int64_t elems;
    bool bf16_values, exact;
    struct cache_counts counts; /* but for puts */
    _Atomic int64_t puts;
};

const char *cache_refusal(const struct job *job)
{
    if (job->cache.policy == CACHE_OFF)
        return "cache.policy is off";
    if (job->data.augment)
        return "data.augment is on: a cached sample would keep one view";
    if (job->model.num_skips > 0)
        return "the model has skip edges";
    if (job->model.num_items < 2 || job->model.num_items > CACHE_LEVEL_MAX)
        return "the model has too many items";
    return NULL;
}

bool cache_pays(int64_t read_ns, int64_t write_ns, int64_t frozen_fwd_ns, int64_t reads)
{
    return reads > 0 && (double)(frozen_fwd_ns - read_ns) * (double)reads > (double)write_ns;
}

/* The key that keeps runs apart; drawn by rank 0. */
static enum status share_key(const struct comm *comm, uint64_t *key, struct err *err)
{
    *key = rng_mix((uint64_t)comm_now_ns(comm)) ^ (uint64_t)getpid();
    return comm_bcast(comm->all, key, sizeof *key, 0, err);
}

enum status cache_open(const struct comm *comm, const struct job *job, int64_t num_samples,
                       struct cache **cache, char *note, int64_t note_bytes, struct err *err)
{
    const char *refusal = cache_refusal(job);
    struct cache_spec spec = {.dir = job->cache.dir,
                              .num_samples = num_samples,
                              .limit_bytes = job->cache.limit_bytes,
                              .bf16 = job->cache.bf16 || job->train.dtype == DTYPE_BF16,
                              .bf16_values = job->train.dtype == DTYPE_BF16};
    struct cache *got;
    struct err why = {0};
    enum status rc, one = OK;
    *cache = NULL;
    if (refusal) {
        snprintf(note, (size_t)note_bytes, "cache off: %s", refusal);
        return OK;
    }
    rc = share_key(comm, &spec.job_key, err);
    if (rc != OK)
        return rc;
    spec.sample_elems = stage_input_elems(&job->model, 1);
    got = calloc(1, sizeof *got);
    if (!got)
        one = err_nomem(&why);
    if (one == OK && comm->local_rank == 0)
        one = cache_arena_create(&spec, &got->arena, &why);
    one = comm_agree(comm, one, &why);
    if (one == OK) {
        if (comm->local_rank != 0)
            one = cache_arena_attach(&spec, &got->arena, &why);
        one = comm_agree(comm, one, &why);
    }
    if (got && got->arena && comm->local_rank == 0)
        cache_arena_unlink(got->arena);
    if (one != OK) {
        cache_close(got);
        snprintf(note, (size_t)note_bytes, "cache off: %.200s", why.msg);
        return OK;
    }
    got->elems = spec.sample_elems;
    got->bf16_values = spec.bf16_values;
    got->exact = spec.bf16 == spec.bf16_values;
    const struct cache_size *size = cache_arena_sizes(got->arena);
    const int64_t slots = size->num_slots[0] + size->num_slots[1];
    snprintf(note, (size_t)note_bytes,
             "cache: %.1f MiB in %s for %lld of %lld samples, %lld bytes each",
             (double)(size->bytes[0] + size->bytes[1]) / 1048576, spec.dir ? spec.dir : "/dev/shm",
             (long long)slots, (long long)num_samples, (long long)size->slot_bytes);
    *cache = got;
    return OK;
}

void cache_close(struct cache *cache)
{
    if (!cache)
        return;
    cache_arena_free(cache->arena);
    free(cache);
}

int cache_look(const struct cache *cache, int64_t epoch, int64_t sample, int level, int64_t elems,
               void *data)
{
    enum cache_answer answer = CACHE_MISS;
    int found = elems == cache->elems ? cache_arena_level(cache->arena, sample) : 0;
    (void)epoch;
    if (found > 0 && found <= level)
        answer = cache_arena_take(cache->arena, sample, found, data);
    return answer == CACHE_HIT ? found : answer == CACHE_CORRUPT ? -1 : 0;
}

void cache_count(struct cache *cache, int level, int got)
{
    cache->counts.hits += got == level;
    cache->counts.upgrades += got > 0 && got < level;
    cache->counts.misses += got <= 0;
    cache->counts.corrupt += got < 0;
}

void cache_put(struct cache *cache, int64_t epoch, int64_t sample, int level, int64_t elems,
               const void *data)
{
    (void)epoch;
    if (elems == cache->elems)
        cache->puts += cache_arena_put(cache->arena, sample, level, data);
}

int cache_elem_bytes(const struct cache *cache)
{
    return cache->bf16_values ? 2 : 4;
}

bool cache_exact(const struct cache *cache)
{
    return cache->exact;
}

struct cache_counts cache_counts(const struct cache *cache)
{
    struct cache_counts counts = cache->counts;
    counts.puts = cache->puts;
    return counts;
}

enum status cache_counts_all(const struct comm *comm, const struct cache *cache,
                             struct cache_counts *sums, struct err *err)
{
    const struct cache_counts c = cache_counts(cache);
    double all[5] = {(double)c.hits, (double)c.upgrades, (double)c.misses, (double)c.corrupt,
                     (double)c.puts};
    enum status rc = comm_sum_f64(comm->all, all, 5, err);
    if (rc == OK)
        *sums = (struct cache_counts){(int64_t)all[0], (int64_t)all[1], (int64_t)all[2],
                                      (int64_t)all[3], (int64_t)all[4]};
    return rc;
}
