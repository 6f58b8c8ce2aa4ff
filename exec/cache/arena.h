/* exec/cache/arena.h - the memory of the cache, shared by the ranks of a machine.
 *
 * One rank creates the arena, the others attach, and all map the same pages: a sample that one rank
 * puts, every other rank can take, new replicas included. Slots are fixed: sample i has slot i. The
 * first slots lie in shared memory, the next in a file of a folder (the spill); samples beyond the
 * last slot are not cached. A slot has a state, the level of its content and a checksum. The level
 * counts the frozen items that the content has gone through; it rises in place, sample by sample.
 *
 * arena-1  Ranks agree by the state word of a slot only. It is free, writing (with the writer's
 *          pid) or full (with the level), and has a number that grows with each change.
 * arena-2  Only the process that changed a word to `writing` writes to its slot; it changes the
 *          word to `full` afterwards. A writer that dies leaves `writing`: nobody reads the slot,
 *          and the next writer may take it over.
 * arena-3  A reader copies the content, then checks the word and the checksum; if either has
 *          changed, it is a miss. So a reader never waits and never returns a half-written content.
 * arena-4  All pages exist before the first use (posix_fallocate). A full disk is therefore an
 *          error of creating, not a signal in the middle of a step.
 * arena-5  The files have names only until everybody has attached (cache_arena_unlink()). After
 *          that nobody can remove or truncate them, and no crash leaves them behind. The next
 *          create in that folder removes files that an earlier crash has left behind, empty ones
 *          (killed before the header) after an hour.
 * arena-6  States and checksums of the spill's slots lie in shared memory, after the slots there.
 *          Their contents are read and written by calls and not mapped, so that an unreadable disk
 *          gives a damaged sample and not a signal.
 *
 * Threads and processes may take and put at the same time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/step/cache_rule.h"

struct cache_spec {
    const char *dir;       /* borrowed for the call; NULL: /dev/shm */
    const char *spill_dir; /* borrowed for the call; NULL: no spill */
    uint64_t job_key;      /* the same for all ranks of a run, different for other runs */
    int64_t num_samples;
    int64_t sample_elems;             /* values of a sample, the same at every level */
    int64_t limit_bytes, spill_bytes; /* 0: all samples, but at most half of the free space */
    bool bf16;                        /* values are bf16 in the arena, rounded where they are not */
    bool bf16_values;                 /* values are bf16 outside too; then bf16 must be set */
};

struct cache_arena; /* opaque */

/* Compute the size that an arena would have (cache_fit()). Allocates nothing. */
enum status cache_arena_size(const struct cache_spec *spec, struct cache_size *size,
                             struct err *err);

/* Create, by one process of the machine. Removes files of arenas whose makers are dead; refuses a
 * file of the same name whose maker is alive. ERR_SYSTEM if there is no folder or no room. A
 * failure leaves nothing behind. */
enum status cache_arena_create(const struct cache_spec *spec, struct cache_arena **arena,
                               struct err *err);
/* Attach, by the other processes, with the same spec, after create. ERR_SYSTEM if the file is
 * missing, too short, or belongs to another job, shape or version. */
enum status cache_arena_attach(const struct cache_spec *spec, struct cache_arena **arena,
                               struct err *err);
/* Remove the names (arena-5). By any process; missing files are no error. */
void cache_arena_unlink(struct cache_arena *arena);
void cache_arena_free(struct cache_arena *arena); /* NULL is fine; unlinks nothing */

enum cache_answer {
    CACHE_MISS,
    CACHE_HIT,
    CACHE_CORRUPT /* unreadable, or a wrong checksum: a miss, and the slot is freed */
};

/* Copy the sample's content into data (sample_elems values, fp32 or bf16 as the spec says) if its
 * level is exactly this one. */
enum cache_answer cache_arena_take(struct cache_arena *arena, int64_t sample, int level,
                                   void *data);
/* The level that a take would find; 0: none. */
int cache_arena_level(const struct cache_arena *arena, int64_t sample);
/* Put content of a level >= 1. false: no slot, another rank is writing, the slot has this level or
 * a higher one already, or the disk did not take it. */
bool cache_arena_put(struct cache_arena *arena, int64_t sample, int level, const void *data);

/* Free every slot whose level is above this one, because the layers after it train again. Nobody
 * may put meanwhile. Several processes may call it. */
void cache_arena_fall(struct cache_arena *arena, int level);

const struct cache_size *cache_arena_sizes(const struct cache_arena *arena);

/* 64 bits of any number of bytes, seeded. About 10 GB/s. */
uint64_t cache_checksum(const void *data, int64_t bytes, uint64_t seed);

/* A checksum of this machine's name, to tell machines that share a folder apart. */
uint64_t cache_host(void);
