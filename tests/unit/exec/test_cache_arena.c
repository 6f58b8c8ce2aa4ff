/* The arena, with fork()ed processes as ranks. Judge of what is read: a function of (sample, level)
 * that says what each value must be. */
#include "exec/cache/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/base/rng.h"
#include "tests/unit/test.h"

enum { ELEMS = 197 }; /* odd, so that the tail of the checksum counts */

static char folder[64];

static struct cache_spec spec_of(int64_t samples)
{
    return (struct cache_spec){
        .dir = folder, .job_key = 0x1234, .num_samples = samples, .sample_elems = ELEMS};
}

static float value(int64_t sample, int level, int i)
{
    return (float)(rng_bits(rng_key(7, (uint64_t)sample, (uint64_t)level, 0), (uint32_t)i) >> 8) -
           8e6f;
}

static void fill(int64_t sample, int level, float *data)
{
    for (int i = 0; i < ELEMS; i++)
        data[i] = value(sample, level, i);
}

static bool right(int64_t sample, int level, const float *data)
{
    for (int i = 0; i < ELEMS; i++)
        if (data[i] != value(sample, level, i))
            return false;
    return true;
}

static struct cache_arena *created(const struct cache_spec *spec)
{
    struct cache_arena *arena = NULL;
    struct err err = {0};
    if (cache_arena_create(spec, &arena, &err) != OK)
        fail_msg("%s", err.msg);
    return arena;
}

static int files_left(void)
{
    char command[128], text[16] = "";
    snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(text, sizeof text, pipe));
    pclose(pipe);
    return atoi(text);
}

static char *path_of(int tier)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/elapse-cache-%016x-%d", folder, 0x1234, tier);
    return path;
}

static void cache_arena__gives_back_what_was_put(void **state)
{
    (void)state;
    struct cache_spec spec = spec_of(10);
    struct cache_arena *a = created(&spec), *b = NULL;
    float data[ELEMS], got[ELEMS];
    assert_int_equal(cache_arena_attach(&spec, &b, NULL), OK);
    cache_arena_unlink(a);
    assert_int_equal(files_left(), 0); /* arena-5: both go on without a name */
    for (int s = 0; s < 10; s++) {
        assert_int_equal(cache_arena_take(b, s, 1, got), CACHE_MISS);
        assert_int_equal(cache_arena_level(b, s), 0);
        fill(s, 1, data);
        assert_true(cache_arena_put(a, s, 1, data));
        assert_false(cache_arena_put(b, s, 1, data)); /* there already */
        assert_int_equal(cache_arena_take(b, s, 2, got), CACHE_MISS);
        assert_int_equal(cache_arena_take(b, s, 1, got), CACHE_HIT);
        assert_true(right(s, 1, got));
    }
    fill(3, 4, data);
    assert_true(cache_arena_put(b, 3, 4, data)); /* the level rises in place */
    assert_int_equal(cache_arena_level(a, 3), 4);
    assert_int_equal(cache_arena_take(a, 3, 1, got), CACHE_MISS);
    assert_int_equal(cache_arena_take(a, 3, 4, got), CACHE_HIT);
    assert_true(right(3, 4, got));
    fill(3, 2, data);
    assert_false(cache_arena_put(b, 3, 2, data)); /* and never falls */
    assert_int_equal(cache_arena_take(a, 10, 1, got), CACHE_MISS);
    assert_int_equal(cache_arena_take(a, -1, 1, got), CACHE_MISS);
    assert_false(cache_arena_put(a, 10, 1, data));
    assert_false(cache_arena_put(a, 4, 0, data));
    assert_false(cache_arena_put(a, 4, CACHE_LEVEL_MAX + 1, data));
    cache_arena_free(b);
    cache_arena_free(a);
}

/* Outputs computed through layers that train again are of no use. */
static void cache_arena_fall__drops_what_lies_above_the_boundary(void **state)
{
    enum { LEVELS = 6 };
    (void)state;
    for (int boundary = 0; boundary <= LEVELS; boundary++) {
        const struct cache_spec spec = spec_of(LEVELS + 1);
        struct cache_arena *arena = created(&spec);
        float data[ELEMS];
        for (int sample = 1; sample <= LEVELS; sample++) { /* the level of each is its number */
            fill(sample, sample, data);
            assert_true(cache_arena_put(arena, sample, sample, data));
        }
        cache_arena_fall(arena, boundary);
        for (int sample = 1; sample <= LEVELS; sample++) {
            const bool stays = sample <= boundary;
            assert_int_equal(cache_arena_level(arena, sample), stays ? sample : 0);
            fill(sample, 1, data);
            assert_int_equal(cache_arena_put(arena, sample, 1, data), !stays);
            assert_int_equal(cache_arena_take(arena, sample, stays ? sample : 1, data), CACHE_HIT);
            assert_true(right(sample, stays ? sample : 1, data));
        }
        cache_arena_unlink(arena);
        cache_arena_free(arena);
    }
}

static void cache_arena__rounds_to_nearest_bf16(void **state)
{
    (void)state;
    struct cache_spec spec = spec_of(1);
    float data[ELEMS], got[ELEMS];
    spec.bf16 = true;
    struct cache_arena *a = created(&spec);
    for (int i = 0; i < ELEMS; i++)
        data[i] = (float)rng_normal(3, (uint64_t)i);
    data[0] = 1.00390625f; /* half way: to even */
    data[1] = -0.0f;
    data[2] = 1.01171875f;                        /* likewise: up */
    memcpy(&data[3], &(uint32_t){0x7f800001}, 4); /* a NaN whose upper half is infinity's */
    assert_true(cache_arena_put(a, 0, 1, data));
    assert_int_equal(cache_arena_take(a, 0, 1, got), CACHE_HIT);
    assert_true(got[0] == 1.0f && got[1] == 0.0f && got[2] == 1.015625f);
    assert_true(got[3] != got[3]);
    for (int i = 0; i < ELEMS; i++) {
        float off = got[i] - data[i], most = (data[i] < 0 ? -data[i] : data[i]) / 256;
        assert_true(i == 3 || (off <= most && -off <= most));
        uint32_t bits;
        memcpy(&bits, got + i, sizeof bits);
        assert_int_equal(bits & 0xffff, 0);
    }
    assert_true(cache_arena_sizes(a)->slot_bytes < 4 * ELEMS);
    cache_arena_unlink(a);
    cache_arena_free(a);
}

static void cache_arena__caches_only_what_has_room_and_spills_the_next(void **state)
{
    (void)state;
    struct cache_spec spec = spec_of(100);
    struct cache_size size;
    float data[ELEMS], got[ELEMS];
    assert_int_equal(cache_arena_size(&spec, &size, NULL), OK);
    assert_int_equal(size.num_slots[0], 100);
    spec.limit_bytes = 30 * size.slot_bytes + 128 + 20 * 16; /* states of the spill */
    spec.spill_bytes = 20 * size.slot_bytes + 200;
    spec.spill_dir = folder;
    assert_int_equal(cache_arena_size(&spec, &size, NULL), OK);
    assert_int_equal(size.num_slots[0], 30);
    assert_int_equal(size.num_slots[1], 20);
    assert_true(size.bytes[0] <= spec.limit_bytes && size.bytes[1] <= spec.spill_bytes);
    struct cache_size less;
    spec.limit_bytes--; /* the states count */
    assert_int_equal(cache_arena_size(&spec, &less, NULL), OK);
    assert_int_equal(less.num_slots[0], 29);
    assert_true(less.bytes[0] <= spec.limit_bytes);
    spec.limit_bytes++;
    struct cache_arena *a = created(&spec), *b = NULL;
    for (int t = 0; t < 2; t++) { /* arena-4 */
        struct stat st;
        assert_int_equal(stat(path_of(t), &st), 0);
        assert_true(st.st_size == size.bytes[t] && st.st_blocks * 512 >= st.st_size);
    }
    struct err short_of = {0}; /* the spill's states */
    assert_int_equal(truncate(path_of(0), 128 + 30 * size.slot_bytes), 0);
    assert_int_equal(cache_arena_attach(&spec, &b, &short_of), ERR_SYSTEM);
    assert_non_null(strstr(short_of.msg, "too few for 50 slots"));
    assert_int_equal(truncate(path_of(0), size.bytes[0]), 0);
    assert_int_equal(cache_arena_attach(&spec, &b, NULL), OK);
    assert_int_equal(files_left(), 2);
    for (int s = 0; s < 100; s++) {
        fill(s, 2, data);
        assert_int_equal(cache_arena_put(a, s, 2, data), s < 50);
    }
    for (int s = 0; s < 100; s++) {
        assert_int_equal(cache_arena_take(b, s, 2, got), s < 50 ? CACHE_HIT : CACHE_MISS);
        assert_true(s >= 50 || right(s, 2, got));
    }
    cache_arena_unlink(a);
    cache_arena_free(a);
    cache_arena_free(b);
    spec.limit_bytes = 10;
    spec.spill_dir = NULL;
    struct err err = {0};
    assert_int_equal(cache_arena_create(&spec, &a, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "no room for one sample"));
}

static void cache_arena__gives_up_a_slot_whose_checksum_does_not_fit(void **state)
{
    (void)state;
    struct cache_spec spec = spec_of(8);
    struct cache_arena *a = created(&spec);
    const struct cache_size *size = cache_arena_sizes(a);
    float data[ELEMS], got[ELEMS];
    int fd = open(path_of(0), O_RDWR);
    assert_true(fd >= 0);
    for (int s = 0; s < 8; s++) {
        char byte;
        /* Every part of the content in turn: first, last, and some between. */
        off_t at = 128 + s * size->slot_bytes + 16 + (s == 7 ? 4 * ELEMS - 1 : s * 97);
        fill(s, 1, data);
        assert_true(cache_arena_put(a, s, 1, data));
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (char)(1 << s % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_int_equal(cache_arena_take(a, s, 1, got), CACHE_CORRUPT);
        assert_int_equal(cache_arena_take(a, s, 1, got), CACHE_MISS); /* once */
        assert_true(cache_arena_put(a, s, 1, data));
        assert_int_equal(cache_arena_take(a, s, 1, got), CACHE_HIT);
        assert_true(right(s, 1, got));
    }
    /* The whole slot of another sample, and a level that the content has not. */
    char slot[1024];
    assert_true(size->slot_bytes <= (int64_t)sizeof slot);
    assert_int_equal(pread(fd, slot, (size_t)size->slot_bytes, 128), size->slot_bytes);
    assert_int_equal(pwrite(fd, slot, (size_t)size->slot_bytes, 128 + 3 * size->slot_bytes),
                     size->slot_bytes);
    assert_int_equal(cache_arena_take(a, 3, 1, got), CACHE_CORRUPT);
    uint64_t word;
    memcpy(&word, slot, sizeof word);
    word ^= (1 ^ 5) << 2; /* level 1 to 5 */
    assert_int_equal(pwrite(fd, &word, sizeof word, 128), sizeof word);
    assert_int_equal(cache_arena_level(a, 0), 5);
    assert_int_equal(cache_arena_take(a, 0, 5, got), CACHE_CORRUPT);
    close(fd);
    cache_arena_unlink(a);
    cache_arena_free(a);
}

static void cache_arena__takes_a_slot_over_from_a_dead_writer(void **state)
{
    (void)state;
    enum { SAMPLES = 64, ROUNDS = 30 };
    struct cache_spec spec = spec_of(SAMPLES);
    struct cache_arena *a = created(&spec);
    float data[ELEMS], got[ELEMS];
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            for (int level = 1 + round * 64;; level = level % 4000 + 1)
                for (int s = 0; s < SAMPLES; s++) {
                    fill(s, level, data);
                    cache_arena_put(a, s, level, data);
                }
        usleep(3000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        for (int s = 0; s < SAMPLES; s++) {
            int level = cache_arena_level(a, s);
            if (level > 0) {
                assert_int_equal(cache_arena_take(a, s, level, got), CACHE_HIT);
                assert_true(right(s, level, got));
            } else {
                fill(s, 4001, data);
                assert_true(cache_arena_put(a, s, 4001, data));
                assert_int_equal(cache_arena_take(a, s, 4001, got), CACHE_HIT);
            }
        }
    }
    /* The same without luck: a slot left in `writing` by a process that is gone. */
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    int fd = open(path_of(0), O_RDWR);
    uint64_t word = 1 | 1 << 2 | (uint64_t)pid << 14;
    assert_int_equal(pwrite(fd, &word, 8, 128), 8);
    assert_int_equal(cache_arena_take(a, 0, 1, got), CACHE_MISS);
    fill(0, 1, data);
    assert_true(cache_arena_put(a, 0, 1, data));
    assert_int_equal(cache_arena_take(a, 0, 1, got), CACHE_HIT);
    /* And one whose writer lives is left to it. */
    word = 1 | 1 << 2 | (uint64_t)getpid() << 14;
    assert_int_equal(pwrite(fd, &word, 8, 128), 8);
    assert_false(cache_arena_put(a, 0, 1, data));
    close(fd);
    cache_arena_unlink(a);
    cache_arena_free(a);
}

/* Four processes take and put at random; nobody may ever see a wrong value, nor a checksum that
 * does not fit. Slots are long and values cheap, so that most of the time goes into copies. */
static void cache_arena__is_never_torn_under_concurrent_upgrades(void **state)
{
    (void)state;
    enum { SAMPLES = 2, RANKS = 4, TURNS = 1000, LONG = 1 << 18 };
    struct cache_spec spec = spec_of(SAMPLES);
    spec.sample_elems = LONG;
    struct cache_arena *a = created(&spec);
    pid_t pids[RANKS];
    int64_t *hits = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(hits != MAP_FAILED);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            static float data[LONG];
            struct cache_arena *mine = NULL;
            if (cache_arena_attach(&spec, &mine, NULL) != OK)
                _exit(2);
            for (int i = 0; i < TURNS; i++) {
                uint32_t draw = rng_bits(99 + (uint64_t)r, (uint32_t)i);
                int s = (int)(draw % SAMPLES), level = cache_arena_level(mine, s);
                enum cache_answer answer = CACHE_MISS;
                if (draw & 1 << 20 && level < CACHE_LEVEL_MAX) {
                    for (int j = 0; j < LONG; j++)
                        data[j] = (float)(s + 2 * (level + 1));
                    cache_arena_put(mine, s, level + 1, data);
                } else if (level > 0) {
                    answer = cache_arena_take(mine, s, level, data);
                }
                if (answer == CACHE_CORRUPT)
                    _exit(1);
                for (int j = 0; answer == CACHE_HIT && j < LONG; j++)
                    if (data[j] != (float)(s + 2 * level))
                        _exit(3);
                hits[r] += answer == CACHE_HIT;
            }
            _exit(0);
        }
    }
    int64_t sum = 0;
    int torn = 0;
    for (int r = 0; r < RANKS; r++) {
        int status;
        waitpid(pids[r], &status, 0);
        torn += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
        sum += hits[r];
    }
    munmap(hits, 4096);
    cache_arena_unlink(a);
    cache_arena_free(a);
    assert_int_equal(torn, 0);
    /* The scheduler decides how often a rank meets a slot that a sleeping writer holds, but all ranks
     * together read something. */
    assert_true(sum > TURNS / 20);
}

/* Two threads put the same level of a sample, each its own values, at the same moment. */
struct race {
    struct cache_arena *arena;
    atomic_int arrived;
    int mine[2]; /* puts that were taken */
};

struct racer {
    struct race *race;
    int number;
};

static void *race_for_slots(void *arg)
{
    const struct racer *me = arg;
    struct race *race = me->race;
    float data[ELEMS];
    for (int level = 1; level <= CACHE_LEVEL_MAX; level++) {
        for (int i = 0; i < ELEMS; i++)
            data[i] = (float)me->number;
        atomic_fetch_add(&race->arrived, 1);
        for (long spins = 0; atomic_load(&race->arrived) < 2 * level; spins++)
            if (spins > 1000)
                sched_yield();
        race->mine[me->number] += cache_arena_put(race->arena, 0, level, data);
    }
    return NULL;
}

static void cache_arena_put__has_one_winner(void **state)
{
    (void)state;
    struct cache_spec spec = spec_of(1);
    struct race race = {.arena = created(&spec)};
    struct racer racers[] = {
        {&race, 0},
        {&race, 1}
    };
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, race_for_slots, &racers[1]), 0);
    race_for_slots(&racers[0]);
    pthread_join(other, NULL);
    assert_int_equal(race.mine[0] + race.mine[1], CACHE_LEVEL_MAX);
    cache_arena_unlink(race.arena);
    cache_arena_free(race.arena);
}

static void cache_arena__refuses_what_is_not_its_own(void **state)
{
    (void)state;
    struct cache_spec spec = spec_of(5), other = spec;
    struct cache_arena *a = created(&spec), *b = NULL;
    struct err err = {0};
    assert_int_equal(cache_arena_create(&spec, &b, &err), ERR_SYSTEM); /* its maker lives: we do */
    assert_non_null(strstr(err.msg, "belongs to the running process"));
    other.sample_elems++;
    err = (struct err){0};
    assert_int_equal(cache_arena_attach(&other, &b, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "another job, shape or version"));
    other = spec;
    other.bf16 = true;
    assert_int_equal(cache_arena_attach(&other, &b, NULL), ERR_SYSTEM);
    other = spec;
    other.job_key++;
    err = (struct err){0};
    assert_int_equal(cache_arena_attach(&other, &b, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "No such file"));
    assert_int_equal(truncate(path_of(0), 500), 0);
    err = (struct err){0};
    assert_int_equal(cache_arena_attach(&spec, &b, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "too few for 5 slots"));
    assert_int_equal(truncate(path_of(0), 3), 0);
    assert_int_equal(cache_arena_attach(&spec, &b, NULL), ERR_SYSTEM);
    cache_arena_free(a);
    unlink(path_of(0));
    assert_int_equal(cache_arena_attach(&spec, &b, NULL), ERR_SYSTEM);
    /* A foreign file is left alone; a dead maker's is replaced. */
    FILE *file = fopen(path_of(0), "w");
    fputs("somebody else's notes, long enough to hold a header of ours, really, and then some more "
          "of the same",
          file);
    fclose(file);
    assert_int_equal(cache_arena_create(&spec, &b, NULL), ERR_SYSTEM);
    unlink(path_of(0));
    pid_t pid = fork();
    if (pid == 0)
        _exit(cache_arena_create(&spec, &b, NULL) != OK);
    waitpid(pid, NULL, 0);
    assert_int_equal(files_left(), 1);
    b = created(&spec);
    cache_arena_unlink(b);
    cache_arena_free(b);
}

static void cache_arena__reports_a_full_disk_and_leaves_nothing(void **state)
{
    (void)state;
    struct cache_spec spec = spec_of(INT64_C(1) << 40);
    struct cache_arena *a = NULL;
    struct err err = {0};
    spec.limit_bytes = INT64_C(1) << 50;
    spec.sample_elems = 256;
    assert_int_equal(cache_arena_create(&spec, &a, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "no room for"));
    assert_int_equal(files_left(), 0);
    spec.dir = "/nowhere/at/all";
    assert_int_equal(cache_arena_create(&spec, &a, NULL), ERR_SYSTEM);
    spec = spec_of(0);
    assert_int_equal(cache_arena_create(&spec, &a, NULL), ERR_INPUT);
    spec = spec_of(INT64_MAX);
    spec.limit_bytes = 0;
    spec.sample_elems = INT64_MAX / 2;
    assert_int_equal(cache_arena_create(&spec, &a, NULL), ERR_INPUT);
    spec = spec_of(4);
    spec.limit_bytes = -1;
    assert_int_equal(cache_arena_create(&spec, &a, NULL), ERR_INPUT);
}

/* The descriptor of this process's open spill, whose name is gone. */
static int spill_fd(void)
{
    for (int fd = 3; fd < 64; fd++) {
        char link[64], target[256] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) > 0 && strstr(target, "elapse-cache") &&
            strstr(target, "-1 (deleted)"))
            return fd;
    }
    return -1;
}

static void cache_arena__computes_again_what_a_disk_loses(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct cache_spec spec = spec_of(10);
        struct cache_size size;
        float data[ELEMS], got[ELEMS];
        spec.bf16 = bf16;
        assert_int_equal(cache_arena_size(&spec, &size, NULL), OK);
        spec.limit_bytes = 128 + 2 * size.slot_bytes + 10 * 16;
        spec.spill_dir = folder;
        struct cache_arena *a = created(&spec);
        assert_int_equal(cache_arena_sizes(a)->num_slots[0], 2);
        assert_int_equal(cache_arena_sizes(a)->num_slots[1], 8);
        cache_arena_unlink(a);
        assert_int_equal(files_left(), 0);
        for (int s = 0; s < 10; s++) {
            for (int i = 0; i < ELEMS; i++)
                data[i] = (float)(s * 7 + i % 100);
            assert_true(cache_arena_put(a, s, 1, data));
            assert_int_equal(cache_arena_take(a, s, 1, got), CACHE_HIT);
            assert_memory_equal(got, data, sizeof data);
        }
        /* The second half of the file is gone; then one byte is another. */
        const int fd = spill_fd();
        assert_true(fd >= 0);
        assert_int_equal(cache_arena_take(a, 9, 1, got), CACHE_HIT);
        assert_int_equal(ftruncate(fd, 128 + 4 * size.slot_bytes), 0);
        assert_int_equal(cache_arena_take(a, 9, 1, got), CACHE_CORRUPT); /* though got holds it */
        assert_true(cache_arena_level(a, 9) == 0);
        for (int s = 0; s < 10; s++)
            assert_int_equal(cache_arena_take(a, s, 1, got), s < 6    ? CACHE_HIT
                                                             : s == 9 ? CACHE_MISS
                                                                      : CACHE_CORRUPT);
        assert_int_equal(pwrite(fd, "x", 1, 128 + 3 * size.slot_bytes + 5), 1);
        assert_int_equal(cache_arena_take(a, 5, 1, got), CACHE_CORRUPT);
        assert_int_equal(cache_arena_take(a, 5, 1, got), CACHE_MISS);
        /* A write that fails is no put; the slot is free for the next. */
        const struct rlimit small = {.rlim_cur = (rlim_t)(128 + 7 * size.slot_bytes),
                                     .rlim_max = RLIM_INFINITY},
                            all = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
        signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        assert_false(cache_arena_put(a, 9, 2, data));
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
        signal(SIGXFSZ, SIG_DFL);
        assert_int_equal(cache_arena_level(a, 9), 0);
        assert_int_equal(cache_arena_take(a, 9, 2, got), CACHE_MISS);
        /* A lost sample can be put again. */
        assert_true(cache_arena_put(a, 9, 2, data));
        assert_int_equal(cache_arena_take(a, 9, 2, got), CACHE_HIT);
        assert_memory_equal(got, data, sizeof data);
        cache_arena_free(a);
    }
}

static void cache_arena__removes_what_dead_runs_left(void **state)
{
    (void)state;
    struct cache_spec spec = spec_of(4), other = spec;
    struct cache_arena *a = NULL;
    char foreign[128];
    pid_t pid = fork();
    if (pid == 0) {
        other.job_key = 0x999;
        _exit(cache_arena_create(&other, &a, NULL) != OK);
    }
    waitpid(pid, NULL, 0);
    snprintf(foreign, sizeof foreign, "%s/elapse-cache-notes", folder);
    FILE *file = fopen(foreign, "w");
    assert_non_null(file);
    for (int i = 0; i < 50; i++)
        fputs("notes ", file);
    fclose(file);
    other.job_key = 0x777;
    struct cache_arena *living = created(&other); /* of this process */
    assert_int_equal(files_left(), 2);            /* the dead one's is gone already */
    a = created(&spec);
    assert_int_equal(files_left(), 3);
    cache_arena_unlink(living);
    cache_arena_free(living);
    cache_arena_unlink(a);
    cache_arena_free(a);
    assert_int_equal(files_left(), 1);
    unlink(foreign);
}

/* Empty: somebody is about to write the header, or was killed before that. */
static void cache_arena_create__removes_empty_files_of_long_ago(void **state)
{
    (void)state;
    const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    struct cache_spec spec = spec_of(4);
    struct cache_arena *a = NULL;
    char old[128], young[128];
    snprintf(old, sizeof old, "%s/elapse-cache-old-0", folder);
    snprintf(young, sizeof young, "%s/elapse-cache-young-0", folder);
    assert_int_equal(mknod(old, S_IFREG | 0600, 0), 0);
    assert_int_equal(mknod(young, S_IFREG | 0600, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, old, long_ago, 0), 0);
    assert_int_equal(cache_arena_create(&spec, &a, NULL), OK);
    cache_arena_unlink(a);
    cache_arena_free(a);
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(unlink(young), 0);
    assert_int_equal(files_left(), 0);
}

/* Nobody would ever write into these. */
static void cache_arena__waits_for_no_pipe_of_its_name(void **state)
{
    (void)state;
    struct cache_spec spec = spec_of(4);
    char other[128];
    int status;
    snprintf(other, sizeof other, "%s/elapse-cache-pipe", folder);
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_int_equal(mkfifo(path_of(0), 0600), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct cache_arena *a = NULL;
        alarm(20);
        const enum status rc = cache_arena_create(&spec, &a, NULL);
        if (rc == OK)
            cache_arena_unlink(a);
        _exit(rc != OK);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(files_left(), 0);
}

static void cache_checksum__changes_with_every_bit_and_order(void **state)
{
    (void)state;
    unsigned char data[77];
    for (int i = 0; i < 77; i++)
        data[i] = (unsigned char)rng_bits(1, (uint32_t)i);
    for (int n = 0; n <= 77; n++) {
        uint64_t sum = cache_checksum(data, n, 5);
        assert_true(n == 0 || sum != cache_checksum(data, n - 1, 5));
        assert_true(sum != cache_checksum(data, n, 6));
        for (int bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_true(sum != cache_checksum(data, n, 5));
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    }
    unsigned char moved[64];
    memcpy(moved, data + 8, 24);
    memcpy(moved + 24, data, 8);
    memcpy(moved + 32, data + 32, 32);
    assert_true(cache_checksum(moved, 64, 5) != cache_checksum(data, 64, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_arena__gives_back_what_was_put),
        cmocka_unit_test(cache_arena_fall__drops_what_lies_above_the_boundary),
        cmocka_unit_test(cache_arena__rounds_to_nearest_bf16),
        cmocka_unit_test(cache_arena__caches_only_what_has_room_and_spills_the_next),
        cmocka_unit_test(cache_arena__gives_up_a_slot_whose_checksum_does_not_fit),
        cmocka_unit_test(cache_arena__takes_a_slot_over_from_a_dead_writer),
        cmocka_unit_test(cache_arena__is_never_torn_under_concurrent_upgrades),
        cmocka_unit_test(cache_arena_put__has_one_winner),
        cmocka_unit_test(cache_arena__refuses_what_is_not_its_own),
        cmocka_unit_test(cache_arena__reports_a_full_disk_and_leaves_nothing),
        cmocka_unit_test(cache_arena__computes_again_what_a_disk_loses),
        cmocka_unit_test(cache_arena__removes_what_dead_runs_left),
        cmocka_unit_test(cache_arena_create__removes_empty_files_of_long_ago),
        cmocka_unit_test(cache_arena__waits_for_no_pipe_of_its_name),
        cmocka_unit_test(cache_checksum__changes_with_every_bit_and_order),
    };
    strcpy(folder, "/tmp/elapse-test-cache-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
