/* exec/cache/arena.h - what a frozen prefix made of each sample, shared by the ranks of a machine.
 *
 * One rank creates the arena, the others attach, all map the same pages: what one rank puts, every
 * other can take, new replicas included. Slots are fixed: sample i has slot i, first in shared
 * memory, then in a file of a folder (the spill); samples beyond the last slot are not cached. A
 * slot has a state, the level of its content and a checksum. The level counts the frozen items
 * that the content has gone through; it rises in place, one sample after the other.
 *
 * A1  The state word of a slot is the only thing that ranks agree by: free, writing (with the
 *     writer's pid), or full (with the level), and a number that grows with each change.
 * A2  Only who turned a word to `writing` writes to its slot; it turns it to `full` afterwards. A
 *     writer that died leaves `writing`: nobody reads that, and the next writer may take it over.
 * A3  A reader copies, then looks whether word and checksum still fit; else it is a miss. So a
 *     reader never waits and never returns half of something.
 * A4  All pages exist before the first use (posix_fallocate): a full disk is an error of creating,
 *     not a signal in the middle of a step.
 * A5  Names exist until everybody has attached (cache_arena_unlink()); after that nobody can remove
 *     or cut the files, and no crash leaves them behind. What a crash before that has left behind,
 *     the next create in that folder removes.
 * A6  States and checksums of the spill's slots lie in shared memory, behind the slots there; the
 *     contents are read and written by calls, not mapped: what a disk cannot give back is a damaged
 *     sample, not a signal.
 *
 * Threads and processes may take and put at the same time. */
#ifndef ELAPSE_EXEC_CACHE_ARENA_H
#define ELAPSE_EXEC_CACHE_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/cache_rule.h"

struct cache_spec {
    const char *dir;       /* borrowed for the call; NULL: /dev/shm */
    const char *spill_dir; /* borrowed for the call; NULL: no spill */
    uint64_t job_key;      /* the same for all ranks of a run, different for other runs */
    int64_t num_samples;
    int64_t sample_elems;             /* values of a sample, the same at every level */
    int64_t limit_bytes, spill_bytes; /* 0: all samples, as far as half of the room goes */
    bool bf16;                        /* values are bf16 in the arena, rounded where they are not */
    bool bf16_values;                 /* values are bf16 outside too; then bf16 must be set */
};

struct cache_arena; /* opaque */

/* What an arena would take (cache_fit()); says so before anything is allocated. */
enum status cache_arena_size(const struct cache_spec *spec, struct cache_size *size,
                             struct err *err);

/* Create: by one process of the machine. Files of arenas whose makers are dead are removed; one of
 * the same name and a living process is refused. ERR_SYSTEM where no folder or room is there.
 * Nothing stays behind after a failure. */
enum status cache_arena_create(const struct cache_spec *spec, struct cache_arena **arena,
                               struct err *err);
/* Attach: by the others, with the same spec, after create. ERR_SYSTEM where the file is missing,
 * short, or belongs to another job, shape or version. */
enum status cache_arena_attach(const struct cache_spec *spec, struct cache_arena **arena,
                               struct err *err);
/* A5. By any process; missing files are no error. */
void cache_arena_unlink(struct cache_arena *arena);
void cache_arena_free(struct cache_arena *arena); /* NULL is fine; unlinks nothing */

enum cache_answer {
    CACHE_MISS,
    CACHE_HIT,
    CACHE_CORRUPT /* unreadable, or the checksum does not fit; a miss, and the slot is given up */
};

/* Sample's content into data (sample_elems values, fp32 or bf16 as the spec says) if it has this
 * level exactly. */
enum cache_answer cache_arena_take(struct cache_arena *arena, int64_t sample, int level,
                                   void *data);
/* The level that a take would find; 0: none. */
int cache_arena_level(const struct cache_arena *arena, int64_t sample);
/* Put content of a level >= 1. false: no slot, another rank is writing, the slot has this level or
 * a higher one already, or the disk did not take it. */
bool cache_arena_put(struct cache_arena *arena, int64_t sample, int level, const void *data);

const struct cache_size *cache_arena_sizes(const struct cache_arena *arena);

/* 64 bits of any number of bytes, seeded. About 10 GB/s. */
uint64_t cache_checksum(const void *data, int64_t bytes, uint64_t seed);

/* Tells machines that share a folder apart: a checksum of this one's name. */
uint64_t cache_host(void);

#endif
