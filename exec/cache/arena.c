/* exec/cache/arena.c - files, mappings and slots of the arena.
 *
 * The file has three parts: the checksum; sizes and files (create, attach, unlink), which run once;
 * and the slots. A slot's state word is changed by compare-and-swap, and content is copied without
 * a lock. Read cache_arena_put() and cache_arena_take() against rules arena-1 to arena-3 of the
 * header. */
#include "exec/cache/arena.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "exec/base/bf16.h"
#include "exec/base/file_part.h"
#include "exec/base/rng.h"
#include "partition/base/units.h"
#include "profiles/base/machine_memory.h"

enum { VERSION = 2, NAME_BYTES = 512 };
static const uint64_t magic = 0x3165686361636c45ULL; /* "Elcache1" */
static const char prefix[] = "elapse-cache-";

/* First bytes of a file of the arena. */
struct header {
    uint64_t magic;
    uint32_t version, pid; /* of the maker */
    uint64_t job_key, host;
    int64_t slot_bytes, num_slots, first_sample, sample_elems;
    uint32_t bf16, ready; /* ready is written last */
};

_Static_assert(sizeof(struct header) <= CACHE_HEADER_BYTES, "slots begin after the header");

/* A slot: word and checksum, then the content, all aligned to a cache line. */
struct slot_head {
    _Atomic uint64_t word;
    _Atomic uint64_t checksum;
};

_Static_assert(sizeof(struct slot_head) == CACHE_STATE_BYTES, "as cache_fit() counts");

/* The word of arena-1: state 2 bits, level 12, pid of the writer 24 (Linux uses 22), number 26. */
enum slot_state { SLOT_FREE, SLOT_WRITING, SLOT_FULL };

struct word {
    enum slot_state state;
    int level;
    uint32_t pid, number;
};

static uint64_t pack(struct word w)
{
    return (uint64_t)w.state | (uint64_t)w.level << 2 | (uint64_t)(w.pid & 0xffffff) << 14 |
           (uint64_t)(w.number & 0x3ffffff) << 38;
}

static struct word unpack(uint64_t bits)
{
    return (struct word){.state = (enum slot_state)(bits & 3),
                         .level = (int)(bits >> 2 & 0xfff),
                         .pid = (uint32_t)(bits >> 14 & 0xffffff),
                         .number = (uint32_t)(bits >> 38)};
}

struct tier {
    char path[NAME_BYTES];
    char *map; /* tier 0 */
    int fd;    /* of the spill */
    int64_t bytes;
    bool open;
};

struct cache_arena {
    struct cache_size size;
    int64_t num_samples, sample_elems;
    bool bf16, widen; /* widen: fp32 outside */
    struct tier tiers[CACHE_TIERS];
};

/* --- checksum --------------------------------------------------------------------------------- */

/* Four lanes of 8 bytes, each a multiply, rotate and add, so that they overlap in the pipeline;
 * mixed at the end by SplitMix64's finaliser. Every step is a bijection of its lane for given
 * data, so a change of any single word always changes the sum. */
uint64_t cache_checksum(const void *data, int64_t bytes, uint64_t seed)
{
    const uint64_t odd = 0x9e3779b97f4a7c15ULL;
    uint64_t lane[4] = {seed, seed + odd, seed + 2 * odd, seed + 3 * odd};
    const char *at = data;
    int64_t i = 0;
    for (; i + 32 <= bytes; i += 32)
        for (int l = 0; l < 4; l++) {
            uint64_t x;
            memcpy(&x, at + i + 8 * l, 8);
            x = (lane[l] ^ x) * odd;
            lane[l] = x << 29 | x >> 35;
        }
    for (int l = 0; i < bytes; l++, i += 8) {
        uint64_t x = 0;
        memcpy(&x, at + i, (size_t)(bytes - i < 8 ? bytes - i : 8));
        x = (lane[l] ^ x) * odd;
        lane[l] = x << 29 | x >> 35;
    }
    for (int l = 1; l < 4; l++)
        lane[0] = rng_mix(lane[0]) ^ lane[l];
    return rng_mix(lane[0] ^ (uint64_t)bytes);
}

/* --- sizes and files -------------------------------------------------------------------------- */

/* Half of the free space of the folder's file system; in shared memory at most half of the
 * machine's available memory. */
static int64_t default_limit(const char *dir, bool memory)
{
    struct statvfs st;
    int64_t room;
    if (statvfs(dir, &st) != 0 || !mul_ok((int64_t)st.f_bavail, (int64_t)st.f_frsize, &room))
        return INT64_MAX;
    if (memory && memory_available() < room)
        room = memory_available();
    return room / 2;
}

static const char *shm_dir(const struct cache_spec *spec)
{
    return spec->dir ? spec->dir : "/dev/shm";
}

enum status cache_arena_size(const struct cache_spec *spec, struct cache_size *size,
                             struct err *err)
{
    int64_t limits[CACHE_TIERS] = {spec->limit_bytes, spec->spill_bytes};
    if (spec->limit_bytes < 0 || spec->spill_bytes < 0)
        return err_set(err, ERR_INPUT, "cache: limits must be at least 0 bytes, got %lld, %lld",
                       (long long)spec->limit_bytes, (long long)spec->spill_bytes);
    for (int t = 0; t < CACHE_TIERS; t++) {
        const char *dir = t ? spec->spill_dir : shm_dir(spec);
        if (!dir)
            limits[t] = 0;
        else if (limits[t] == 0)
            limits[t] = default_limit(dir, t == 0);
    }
    return cache_fit(spec->num_samples, spec->sample_elems, spec->bf16, limits, size, err);
}

static enum status arena_new(const struct cache_spec *spec, struct cache_arena **arena,
                             struct err *err)
{
    struct cache_arena *got = calloc(1, sizeof *got);
    enum status rc;
    if (!got)
        return err_nomem(err);
    rc = cache_arena_size(spec, &got->size, err);
    got->num_samples = spec->num_samples;
    got->sample_elems = spec->sample_elems;
    got->bf16 = spec->bf16;
    got->widen = spec->bf16 && !spec->bf16_values;
    for (int t = 0; rc == OK && t < CACHE_TIERS; t++) {
        const char *dir = t ? spec->spill_dir : shm_dir(spec);
        got->tiers[t].fd = -1;
        if (dir && snprintf(got->tiers[t].path, NAME_BYTES, "%s/%s%016llx-%d", dir, prefix,
                            (unsigned long long)spec->job_key, t) >= NAME_BYTES)
            rc = err_set(err, ERR_INPUT, "cache: the folder name '%.100s...' is too long", dir);
    }
    if (rc == OK) {
        *arena = got;
        got = NULL;
    }
    free(got);
    return rc;
}

uint64_t cache_host(void)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return cache_checksum(name, sizeof name, 0);
}

static struct header header_of(const struct cache_arena *arena, const struct cache_spec *spec,
                               int tier)
{
    return (struct header){.magic = magic,
                           .version = VERSION,
                           .pid = (uint32_t)getpid(),
                           .job_key = spec->job_key,
                           .host = cache_host(),
                           .slot_bytes = arena->size.slot_bytes,
                           .num_slots = arena->size.num_slots[tier],
                           .first_sample = tier ? arena->size.num_slots[0] : 0,
                           .sample_elems = arena->sample_elems,
                           .bf16 = arena->bf16,
                           .ready = 1};
}

static bool alive(uint32_t pid)
{
    return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

/* Returns the bytes read. O_NONBLOCK, because the name could be a pipe without a writer. */
static ssize_t read_header(const char *path, struct header *h)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, h, sizeof *h);
    if (fd >= 0)
        close(fd);
    return n;
}

/* A file of that name exists. Remove it if its maker is dead. */
static enum status replace_stale(const char *path, struct err *err)
{
    struct header h = {0};
    const ssize_t n = read_header(path, &h);
    if (n > 0 && (n < (ssize_t)sizeof h || h.magic != magic) && h.magic != 0)
        return err_set(err, ERR_SYSTEM, "cache: '%s' exists and is not a cache of elapse", path);
    if (n == (ssize_t)sizeof h && h.magic == magic && alive(h.pid))
        return err_set(err, ERR_SYSTEM, "cache: '%s' belongs to the running process %u", path,
                       h.pid);
    if (unlink(path) != 0 && errno != ENOENT)
        return err_set(err, ERR_SYSTEM, "cache: cannot replace '%s': %s", path, strerror(errno));
    return OK;
}

/* An empty file whose maker had an hour to write the header was killed before that. */
static bool is_abandoned(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 &&
           time(NULL) - st.st_mtime > 3600;
}

/* Remove files that crashed runs of this machine have left in a folder (arena-5). Other machines
 * may share the folder. */
static void remove_stale(const char *dir)
{
    DIR *files = opendir(dir);
    for (struct dirent *at = files ? readdir(files) : NULL; at; at = readdir(files)) {
        char path[NAME_BYTES];
        struct header h;
        if (strncmp(at->d_name, prefix, sizeof prefix - 1) != 0 ||
            snprintf(path, sizeof path, "%s/%s", dir, at->d_name) >= (int)sizeof path)
            continue;
        const bool has_header = read_header(path, &h) == (ssize_t)sizeof h && h.magic == magic;
        if (has_header ? h.host == cache_host() && !alive(h.pid) : is_abandoned(path))
            unlink(path);
    }
    if (files)
        closedir(files);
}

static enum status no_room(const struct tier *tier, int64_t bytes, int failed, struct err *err)
{
    enum status rc = err_set(err, ERR_SYSTEM, "cache: no room for %lld bytes in '%s': %s",
                             (long long)bytes, tier->path, strerror(failed));
    err_hint(err, "smaller limits, another cache.dir or cache.spill_dir, or cache.policy 'off'");
    return rc;
}

/* Map tier 0, keep the spill open. Takes over the descriptor. */
static enum status open_tier(struct tier *tier, int t, int fd, int64_t bytes, struct err *err)
{
    tier->bytes = bytes;
    tier->fd = fd;
    tier->open = true;
    if (t > 0)
        return OK;
    void *map = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_set(err, ERR_SYSTEM, "cache: cannot map '%s': %s", tier->path, strerror(errno));
    tier->map = map;
    close(fd);
    tier->fd = -1;
    return OK;
}

static enum status create_tier(struct cache_arena *arena, const struct cache_spec *spec, int t,
                               struct err *err)
{
    struct tier *tier = &arena->tiers[t];
    const char *dir = t ? spec->spill_dir : shm_dir(spec);
    const int64_t bytes = arena->size.bytes[t];
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    struct header h = header_of(arena, spec, t);
    struct statvfs st;
    int64_t room;
    enum status rc = OK;
    int failed = 0, fd;
    remove_stale(dir);
    /* Asking for more than there is would fill the disk for a moment before it fails. */
    if (statvfs(dir, &st) == 0 && mul_ok((int64_t)st.f_bavail, (int64_t)st.f_frsize, &room) &&
        bytes > room)
        return no_room(tier, bytes, ENOSPC, err);
    fd = open(tier->path, flags, 0600);
    if (fd < 0 && errno == EEXIST) {
        rc = replace_stale(tier->path, err);
        fd = rc == OK ? open(tier->path, flags, 0600) : -1;
    }
    if (fd < 0)
        return rc != OK ? rc
                        : err_set(err, ERR_SYSTEM, "cache: cannot make '%s': %s", tier->path,
                                  strerror(errno));
    /* The header with the maker's pid is written before the pages are allocated. */
    h.ready = 0;
    if (!file_write_at(fd, &h, sizeof h, 0))
        failed = errno ? errno : EIO;
    while (!failed && (failed = posix_fallocate(fd, 0, (off_t)bytes)) == EINTR)
        failed = 0;
    h.ready = 1;
    if (!failed && !file_write_at(fd, &h, sizeof h, 0))
        failed = errno ? errno : EIO;
    if (failed) {
        close(fd);
        rc = no_room(tier, bytes, failed, err);
    } else {
        rc = open_tier(tier, t, fd, bytes, err);
    }
    if (rc != OK)
        unlink(tier->path);
    return rc;
}

static enum status attach_tier(struct cache_arena *arena, const struct cache_spec *spec, int t,
                               struct err *err)
{
    struct tier *tier = &arena->tiers[t];
    struct header want = header_of(arena, spec, t), h;
    struct stat st;
    enum status rc;
    int fd = open(tier->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_set(err, ERR_SYSTEM, "cache: cannot open '%s': %s", tier->path, strerror(errno));
    if (!file_read_at(fd, &h, sizeof h, 0) || fstat(fd, &st) != 0) {
        rc = err_set(err, ERR_SYSTEM, "cache: '%s' is shorter than its header", tier->path);
        goto out;
    }
    want.pid = h.pid;
    want.num_slots = h.num_slots; /* the maker decided by the room it found; checked below */
    want.first_sample = h.first_sample;
    if (memcmp(&h, &want, sizeof h) != 0) {
        rc = err_set(err, ERR_SYSTEM, "cache: '%s' belongs to another job, shape or version",
                     tier->path);
        goto out;
    }
    if (h.num_slots < 0 || h.num_slots > arena->num_samples ||
        h.first_sample != (t ? arena->size.num_slots[0] : 0) ||
        h.num_slots > (st.st_size - CACHE_HEADER_BYTES) / h.slot_bytes) {
        rc = err_set(err, ERR_SYSTEM, "cache: '%s' has %lld bytes, too few for %lld slots",
                     tier->path, (long long)st.st_size, (long long)h.num_slots);
        goto out;
    }
    arena->size.num_slots[t] = h.num_slots;
    arena->size.bytes[t] = (int64_t)st.st_size;
    return open_tier(tier, t, fd, (int64_t)st.st_size, err);
out:
    close(fd);
    return rc;
}

enum status cache_arena_create(const struct cache_spec *spec, struct cache_arena **arena,
                               struct err *err)
{
    struct cache_arena *got = NULL;
    enum status rc = arena_new(spec, &got, err);
    if (rc == OK && got->size.num_slots[0] + got->size.num_slots[1] == 0)
        rc = err_set(err, ERR_SYSTEM, "cache: no room for one sample of %lld bytes",
                     (long long)got->size.slot_bytes);
    for (int t = 0; rc == OK && t < CACHE_TIERS; t++)
        if (got->size.bytes[t] > 0)
            rc = create_tier(got, spec, t, err);
    if (rc == OK) {
        *arena = got;
        got = NULL;
    }
    if (got)
        cache_arena_unlink(got);
    cache_arena_free(got);
    return rc;
}

/* Whether tier 0 has room for the states of the spill's slots (arena-6). */
static bool heads_fit(const struct cache_arena *arena)
{
    const int64_t behind = CACHE_HEADER_BYTES + arena->size.num_slots[0] * arena->size.slot_bytes;
    return arena->size.num_slots[1] <=
           (arena->size.bytes[0] - behind) / (int64_t)sizeof(struct slot_head);
}

enum status cache_arena_attach(const struct cache_spec *spec, struct cache_arena **arena,
                               struct err *err)
{
    struct cache_arena *got = NULL;
    enum status rc = arena_new(spec, &got, err);
    for (int t = 0; rc == OK && t < CACHE_TIERS; t++) {
        /* The maker decided which files exist; the free space may have changed since. */
        if (got->tiers[t].path[0] && access(got->tiers[t].path, F_OK) == 0)
            rc = attach_tier(got, spec, t, err);
        else
            got->size.num_slots[t] = got->size.bytes[t] = 0;
    }
    if (rc == OK && !got->tiers[0].open)
        rc = err_set(err, ERR_SYSTEM, "cache: cannot open '%s': %s", got->tiers[0].path,
                     strerror(ENOENT));
    if (rc == OK && !heads_fit(got))
        rc = err_set(err, ERR_SYSTEM, "cache: '%s' has %lld bytes, too few for %lld slots",
                     got->tiers[0].path, (long long)got->size.bytes[0],
                     (long long)(got->size.num_slots[0] + got->size.num_slots[1]));
    if (rc == OK) {
        *arena = got;
        got = NULL;
    }
    cache_arena_free(got);
    return rc;
}

void cache_arena_unlink(struct cache_arena *arena)
{
    for (int t = 0; t < CACHE_TIERS; t++)
        if (arena->tiers[t].open)
            unlink(arena->tiers[t].path);
}

void cache_arena_free(struct cache_arena *arena)
{
    if (!arena)
        return;
    for (int t = 0; t < CACHE_TIERS; t++) {
        if (arena->tiers[t].map)
            munmap(arena->tiers[t].map, (size_t)arena->tiers[t].bytes);
        if (arena->tiers[t].open && arena->tiers[t].fd >= 0)
            close(arena->tiers[t].fd);
    }
    free(arena);
}

const struct cache_size *cache_arena_sizes(const struct cache_arena *arena)
{
    return &arena->size;
}

/* --- slots ------------------------------------------------------------------------------------ */

/* The place of a slot's content: after its head in memory, or in the spill. */
struct slot {
    struct slot_head *head; /* NULL: the sample has none */
    char *content;          /* NULL: in the spill */
    int64_t offset;
};

static struct slot slot_of(const struct cache_arena *arena, int64_t sample)
{
    const int64_t in_memory = arena->size.num_slots[0], bytes = arena->size.slot_bytes;
    struct slot slot = {0};
    if (sample >= 0 && sample < in_memory) {
        slot.head =
            (struct slot_head *)(void *)(arena->tiers[0].map + CACHE_HEADER_BYTES + sample * bytes);
        slot.content = (char *)(slot.head + 1);
    } else if (sample >= in_memory && sample - in_memory < arena->size.num_slots[1]) {
        char *heads = arena->tiers[0].map + CACHE_HEADER_BYTES + in_memory * bytes;
        slot.head = (struct slot_head *)(void *)heads + (sample - in_memory);
        slot.offset = CACHE_HEADER_BYTES + (sample - in_memory) * bytes;
    }
    return slot;
}

static int64_t content_bytes(const struct cache_arena *arena)
{
    return arena->sample_elems * (arena->bf16 ? 2 : 4);
}

/* The seed makes the checksum cover sample and level, so content of another sample or level does
 * not match. */
static uint64_t seed_of(int64_t sample, int level)
{
    return rng_mix((uint64_t)sample) ^ (uint64_t)level;
}

int cache_arena_level(const struct cache_arena *arena, int64_t sample)
{
    const struct slot_head *head = slot_of(arena, sample).head;
    struct word w;
    if (!head)
        return 0;
    w = unpack(atomic_load_explicit(&head->word, memory_order_acquire));
    return w.state == SLOT_FULL ? w.level : 0;
}

/* If bf16 is to be widened, its bytes are read into the upper half of data, checked there, and
 * widened in place from the front. Value i is read at byte 2 (elems + i), which no earlier value
 * has overwritten: value i is written at 4 i. */
enum cache_answer cache_arena_take(struct cache_arena *arena, int64_t sample, int level, void *data)
{
    const struct slot slot = slot_of(arena, sample);
    const int64_t bytes = content_bytes(arena), n = arena->sample_elems;
    char *to = (char *)data + (arena->widen ? 2 * n : 0);
    uint64_t bits, checksum;
    bool whole = true;
    struct word w;
    if (!slot.head)
        return CACHE_MISS;
    bits = atomic_load_explicit(&slot.head->word, memory_order_acquire);
    w = unpack(bits);
    if (w.state != SLOT_FULL || w.level != level)
        return CACHE_MISS;
    checksum = atomic_load_explicit(&slot.head->checksum, memory_order_relaxed);
    if (slot.content)
        memcpy(to, slot.content, (size_t)bytes);
    else
        whole = file_read_at(arena->tiers[1].fd, to, bytes, slot.offset);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&slot.head->word, memory_order_relaxed) != bits) /* arena-3 */
        return CACHE_MISS;
    if (!whole || cache_checksum(to, bytes, seed_of(sample, level)) != checksum) {
        w.state = SLOT_FREE;
        w.number++;
        atomic_compare_exchange_strong(&slot.head->word, &bits, pack(w));
        return CACHE_CORRUPT;
    }
    for (int64_t i = 0; arena->widen && i < n; i++) {
        uint16_t half;
        memcpy(&half, to + 2 * i, sizeof half);
        ((float *)data)[i] = bf16_to(half);
    }
    return CACHE_HIT;
}

static void round_values(const float *from, int64_t n, char *to)
{
    for (int64_t i = 0; i < n; i++) {
        const uint16_t half = bf16_from(from[i]);
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

bool cache_arena_put(struct cache_arena *arena, int64_t sample, int level, const void *data)
{
    const struct slot slot = slot_of(arena, sample);
    const int64_t bytes = content_bytes(arena), n = arena->sample_elems;
    const char *lies = data; /* the bytes that the checksum covers */
    char *rounded = NULL;    /* for the spill */
    bool done = true;
    uint64_t bits;
    struct word w;
    if (!slot.head || level < 1 || level > CACHE_LEVEL_MAX)
        return false;
    bits = atomic_load_explicit(&slot.head->word, memory_order_relaxed);
    w = unpack(bits);
    if ((w.state == SLOT_FULL && w.level >= level) || (w.state == SLOT_WRITING && alive(w.pid)))
        return false;
    if (!slot.content && arena->widen && !(lies = rounded = malloc((size_t)bytes)))
        return false;
    w = (struct word){SLOT_WRITING, level, (uint32_t)getpid(), w.number + 1};
    if (!atomic_compare_exchange_strong(&slot.head->word, &bits, pack(w))) { /* arena-2 */
        free(rounded);
        return false;
    }
    atomic_thread_fence(memory_order_release);
    if (arena->widen)
        round_values(data, n, rounded ? rounded : slot.content);
    else if (slot.content)
        memcpy(slot.content, data, (size_t)bytes);
    if (slot.content) /* check the bytes in the slot, so that damage by the copy is found too */
        lies = slot.content;
    else
        done = file_write_at(arena->tiers[1].fd, lies, bytes, slot.offset);
    atomic_store_explicit(&slot.head->checksum, cache_checksum(lies, bytes, seed_of(sample, level)),
                          memory_order_relaxed);
    free(rounded);
    w.state = done ? SLOT_FULL : SLOT_FREE;
    w.number++;
    atomic_store_explicit(&slot.head->word, pack(w), memory_order_release);
    return done;
}

void cache_arena_fall(struct cache_arena *arena, int level)
{
    const int64_t num = arena->size.num_slots[0] + arena->size.num_slots[1];
    for (int64_t sample = 0; sample < num; sample++) {
        struct slot_head *head = slot_of(arena, sample).head;
        uint64_t bits = atomic_load_explicit(&head->word, memory_order_acquire);
        struct word w = unpack(bits);
        if (w.state != SLOT_FULL || w.level <= level)
            continue;
        w = (struct word){SLOT_FREE, 0, w.pid, w.number + 1};
        atomic_compare_exchange_strong(&head->word, &bits, pack(w));
    }
}
