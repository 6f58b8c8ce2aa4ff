/* exec/cache/cache.c - opens the arena that a job may have, and counts its answers. Read
 * cache_open() first; everything else is a few lines around exec/cache/arena.h. */
#include "exec/cache/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/base/rng.h"
#include "exec/stage/stage.h"
#include "partition/base/units.h"

struct cache {
    struct cache_arena *arena;
    int64_t elems, num_samples, views;
    bool bf16_values, whole;
    struct cache_counts counts; /* but for puts */
    _Atomic int64_t puts;
};

/* The key that tells runs apart, drawn by rank 0. Machines that share a folder get different keys.
 */
static enum status share_key(const struct comm *comm, uint64_t *key, struct err *err)
{
    *key = rng_mix((uint64_t)comm_now_ns(comm)) ^ (uint64_t)getpid();
    enum status rc = comm_bcast(comm->all, key, sizeof *key, 0, err);
    *key ^= cache_host();
    return rc;
}

/* Create the arena as asked. If the disk has no room, go without the spill; if memory has no room,
 * take as much as there is. why: the first refusal, empty if all went well. */
static enum status create_what_fits(struct cache_spec *spec, struct cache_arena **arena,
                                    struct err *why)
{
    struct err later = {0};
    enum status rc = cache_arena_create(spec, arena, why);
    if (rc == ERR_SYSTEM && spec->spill_dir) {
        spec->spill_dir = NULL;
        rc = cache_arena_create(spec, arena, &later);
    }
    if (rc == ERR_SYSTEM && spec->limit_bytes > 0) {
        spec->limit_bytes = 0;
        rc = cache_arena_create(spec, arena, &later);
    }
    return rc;
}

/* The note that rank 0 prints. */
static void describe(const struct cache *cache, const struct cache_spec *spec, bool same_bits,
                     const struct err *why, char *note)
{
    const struct cache_size *size = cache_arena_sizes(cache->arena);
    const bool spills = size->bytes[1] > 0, refused = why->status != OK;
    char memory[32], disk[32];
    snprintf(note, CACHE_NOTE_BYTES,
             "cache: %s in %s%s%s%s%s for %lld of %lld %s, %lld bytes each%s%.90s%s%s",
             format_bytes(size->bytes[0], memory, sizeof memory),
             spec->dir ? spec->dir : "/dev/shm", spills ? ", " : "",
             spills ? format_bytes(size->bytes[1], disk, sizeof disk) : "", spills ? " in " : "",
             spills ? spec->spill_dir : "", (long long)(size->num_slots[0] + size->num_slots[1]),
             (long long)spec->num_samples, cache->views > 1 ? "views" : "samples",
             (long long)size->slot_bytes, refused ? " (" : "", refused ? why->msg : "",
             refused ? ")" : "",
             same_bits ? ""
                       : "; this BLAS rounds a row by its place, so a run without the cache has "
                         "other bits");
}

enum status cache_open(const struct comm *comm, const struct job *job, const struct backend *be,
                       int64_t num_samples, struct cache **cache, char note[CACHE_NOTE_BYTES],
                       struct err *err)
{
    const char *refusal = cache_refusal(job);
    struct cache_spec spec = {.dir = job->cache.dir,
                              .spill_dir = job->cache.spill_dir,
                              .limit_bytes = job->cache.limit_bytes,
                              .spill_bytes = job->cache.spill_bytes,
                              .bf16 = job->cache.bf16 || job->train.dtype == DTYPE_BF16,
                              .bf16_values = job->train.dtype == DTYPE_BF16};
    struct cache *got;
    struct err why = {0};
    enum status rc, one = OK;
    *cache = NULL;
    if (!refusal && !mul_ok(num_samples, job_views(job), &spec.num_samples))
        refusal = "samples times cache.views overflow";
    if (refusal) {
        snprintf(note, CACHE_NOTE_BYTES, "cache off: %s", refusal);
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
        one = create_what_fits(&spec, &got->arena, &why);
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
        snprintf(note, CACHE_NOTE_BYTES, "cache off: %.200s", why.msg);
        return OK;
    }
    got->elems = spec.sample_elems;
    got->num_samples = num_samples;
    got->views = job_views(job);
    got->bf16_values = spec.bf16_values;
    got->whole = cache_whole_wanted(job, be->bits_independent_of_row_count);
    describe(got, &spec, be->bits_independent_of_row_position, &why, note);
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

/* Each view of a sample has a slot of its own. */
static int64_t slot_of(const struct cache *cache, int64_t epoch, int64_t sample)
{
    return epoch % cache->views * cache->num_samples + sample;
}

int cache_look(const struct cache *cache, int64_t epoch, int64_t sample, int level, int64_t elems,
               void *data)
{
    const int64_t slot = slot_of(cache, epoch, sample);
    enum cache_answer answer = CACHE_MISS;
    int found = elems == cache->elems ? cache_arena_level(cache->arena, slot) : 0;
    if (found > 0 && found <= level)
        answer = cache_arena_take(cache->arena, slot, found, data);
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
    if (elems == cache->elems)
        cache->puts += cache_arena_put(cache->arena, slot_of(cache, epoch, sample), level, data);
}

void cache_fall(struct cache *cache, int level)
{
    cache_arena_fall(cache->arena, level);
}

int cache_elem_bytes(const struct cache *cache)
{
    return cache->bf16_values ? 2 : 4;
}

bool cache_whole(const struct cache *cache)
{
    return cache->whole;
}

bool cache_complete(const struct cache *cache)
{
    const struct cache_size *size = cache_arena_sizes(cache->arena);
    return size->num_slots[0] + size->num_slots[1] == cache->num_samples * cache->views;
}

double cache_room(const struct cache *cache)
{
    const struct cache_size *size = cache_arena_sizes(cache->arena);
    return (double)(size->num_slots[0] + size->num_slots[1]) /
           ((double)cache->num_samples * (double)cache->views);
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
