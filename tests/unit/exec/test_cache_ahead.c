/* ranks: 1
 * The cache's thread: the same answers as looks made at once, in whatever order they are asked
 * for. */
#include "exec/cache/cache_ahead.h"

#include <unistd.h>

#include "tests/unit/cache_case.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/test.h"

enum { SAMPLES = 51, BATCH = 12, M = 3, LEVEL = 3 };

static struct comm comm;

struct rig {
    struct job job;
    struct cache *cache;
    struct sampler sampler;
    struct cache_ahead *ahead;
    float *buffers[CACHE_AHEAD], *own;
    int64_t elems, size;
    int *levels;
};

static void rig_open(struct rig *rig, int replica, bool full)
{
    char note[256];
    *rig = (struct rig){0};
    case_job(&rig->job, FAMILY_VIT, DTYPE_FP32);
    rig->cache = case_cache(&comm, &rig->job, SAMPLES, note);
    assert_non_null(rig->cache);
    assert_int_equal(sampler_init(&rig->sampler,
                                  &(struct sampler_spec){SAMPLES, 9, true, 2, BATCH / 2, M}, NULL),
                     OK);
    rig->elems = stage_input_elems(&rig->job.model, LEVEL);
    rig->size = rig->sampler.microbatches.size;
    rig->levels = calloc((size_t)rig->size, sizeof *rig->levels);
    rig->own = calloc((size_t)(rig->size * rig->elems), sizeof *rig->own);
    struct cache_ahead_spec ahead = {.cache = rig->cache,
                                     .sampler = &rig->sampler,
                                     .replica = replica,
                                     .level = LEVEL,
                                     .elems = rig->elems,
                                     .full = full};
    for (int i = 0; i < CACHE_AHEAD; i++) {
        rig->buffers[i] = calloc((size_t)(rig->size * rig->elems), sizeof *rig->own);
        ahead.buffers[i] = rig->buffers[i];
    }
    assert_int_equal(cache_ahead_new(&ahead, &rig->ahead, NULL), OK);
}

static void rig_close(struct rig *rig)
{
    void *last[CACHE_AHEAD];
    cache_ahead_free(rig->ahead, last);
    for (int i = 0; i < CACHE_AHEAD; i++)
        free(last[i]);
    free(rig->own);
    free(rig->levels);
    cache_close(rig->cache);
    job_clear(&rig->job);
}

static void content(int64_t sample, int64_t elems, float *data)
{
    for (int64_t i = 0; i < elems; i++)
        data[i] = (float)rng_normal((uint64_t)sample, (uint64_t)i);
}

static void put(struct rig *rig, int64_t sample)
{
    float *data = calloc((size_t)rig->elems, sizeof *data);
    content(sample, rig->elems, data);
    cache_put(rig->cache, 0, sample, LEVEL, rig->elems, data);
    free(data);
}

/* One micro-batch, against looks made now. */
static void check(struct rig *rig, int replica, int64_t epoch, int64_t step, int m, bool full)
{
    void *buffer = rig->own;
    float *want = calloc((size_t)rig->elems, sizeof *want);
    int64_t first, n = sampler_microbatch(&rig->sampler, step, replica, m, &first);
    if (n == 0) {
        free(want);
        return;
    }
    cache_ahead_get(rig->ahead, epoch, step, m, &buffer, rig->levels);
    rig->own = buffer;
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = sampler_id(&rig->sampler, epoch, first + i);
        const bool there = id % 3 != 0 && (!full || n == rig->size);
        assert_int_equal(rig->levels[i], there ? LEVEL : 0);
        content(id, rig->elems, want);
        if (there)
            assert_memory_equal(rig->own + i * rig->elems, want, (size_t)rig->elems * sizeof *want);
    }
    free(want);
}

static void cache_ahead_get__gives_epochs_in_order(void **state)
{
    (void)state;
    for (int replica = 0; replica < 2; replica++)
        for (int full = 0; full < 2; full++) {
            struct rig rig;
            rig_open(&rig, replica, full);
            for (int64_t s = 0; s < SAMPLES; s++)
                if (s % 3 != 0)
                    put(&rig, s);
            for (int64_t epoch = 0; epoch < 3; epoch++)
                for (int64_t step = 0; step < sampler_steps_per_epoch(&rig.sampler); step++)
                    for (int m = 0; m < rig.sampler.microbatches.count; m++)
                        check(&rig, replica, epoch, step, m, full);
            const struct cache_counts counts = cache_counts(rig.cache);
            assert_int_equal(counts.hits + counts.misses, 0); /* whoever computes counts */
            rig_close(&rig);
        }
}

static void cache_ahead_get__follows_jumps(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1, false);
    for (int64_t s = 0; s < SAMPLES; s++)
        if (s % 3 != 0)
            put(&rig, s);
    const int64_t steps = sampler_steps_per_epoch(&rig.sampler);
    for (uint64_t i = 0; i < 400; i++) {
        const uint64_t bits = rng_bits(3, i);
        check(&rig, 1, (int64_t)(bits & 3), (int64_t)(bits >> 8) % steps, (int)(bits >> 40) % M,
              false);
    }
    for (int m = M - 1; m >= 0; m--) /* backwards, and one left out */
        check(&rig, 1, 7, 0, m, false);
    check(&rig, 1, 7, 1, 0, false);
    check(&rig, 1, 7, 1, 2, false);
    check(&rig, 1, 7, 2, 0, false);
    /* The order changes in mid-epoch; the thread sees that at the next jump. */
    assert_int_equal(sampler_go_on(&rig.sampler, 17), 0);
    for (int64_t step = 0; step < sampler_steps_per_epoch(&rig.sampler); step++)
        for (int m = 0; m < rig.sampler.microbatches.count; m++)
            check(&rig, 1, 8, step, m, false);
    rig_close(&rig);
}

/* Whether one of the buffers holds a micro-batch of which all samples are there. */
static bool lies_ready(const struct rig *rig, float *const *buffers, int64_t epoch, int64_t step,
                       int m)
{
    float *want = calloc((size_t)rig->elems, sizeof *want);
    int64_t first, n = sampler_microbatch(&rig->sampler, step, 0, m, &first);
    bool any = false;
    assert_true(n > 0);
    for (int b = 0; b <= CACHE_AHEAD; b++) {
        bool all = true;
        for (int64_t i = 0; i < n; i++) {
            content(sampler_id(&rig->sampler, epoch, first + i), rig->elems, want);
            all = all &&
                  memcmp(buffers[b] + i * rig->elems, want, (size_t)rig->elems * sizeof *want) == 0;
        }
        any |= all;
    }
    free(want);
    return any;
}

/* Reading ahead, seen from outside: samples that were not asked for yet appear in the buffers. */
static void cache_ahead__reads_the_next_two_without_being_asked(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 0, false);
    for (int64_t s = 0; s < SAMPLES; s++)
        put(&rig, s);
    float *buffers[CACHE_AHEAD + 1] = {rig.buffers[0], rig.buffers[1], rig.own};
    void *buffer = rig.own;
    cache_ahead_get(rig.ahead, 0, 0, 1, &buffer, rig.levels);
    rig.own = buffer;
    bool ready = false;
    for (int i = 0; i < 20000 && !ready; i++) { /* 20 s */
        usleep(1000);
        ready = lies_ready(&rig, buffers, 0, 0, 2) && lies_ready(&rig, buffers, 0, 1, 0);
    }
    assert_true(ready);
    rig_close(&rig);
}

static void cache_ahead__stops_at_the_end_of_the_epoch(void **state)
{
    (void)state;
    struct rig rig;
    const int replica = 0;
    rig_open(&rig, replica, false);
    for (int64_t step = 0; step < sampler_steps_per_epoch(&rig.sampler); step++)
        for (int m = 0; m < rig.sampler.microbatches.count; m++) {
            int64_t first;
            void *buffer = rig.own;
            if (sampler_microbatch(&rig.sampler, step, replica, m, &first) == 0)
                continue;
            cache_ahead_get(rig.ahead, 0, step, m, &buffer, rig.levels);
            rig.own = buffer;
            assert_int_equal(rig.levels[0], 0);
        }
    usleep(20000); /* for a thread that would go on */
    for (int64_t s = 0; s < SAMPLES; s++)
        if (s % 3 != 0)
            put(&rig, s);
    for (int64_t step = 0; step < sampler_steps_per_epoch(&rig.sampler); step++)
        for (int m = 0; m < rig.sampler.microbatches.count; m++)
            check(&rig, replica, 1, step, m, false);
    rig_close(&rig);
}

static void cache_ahead_put__is_there_after_the_flush(void **state)
{
    (void)state;
    enum { AGAIN = 100, SLOW = 100000 };
    struct rig rig;
    int64_t ids[SAMPLES];
    rig_open(&rig, 0, false);
    float *data = calloc((size_t)(SAMPLES * rig.elems), sizeof *data);
    float *got = calloc((size_t)rig.elems, sizeof *got);
    for (int64_t s = 0; s < SAMPLES; s++) {
        ids[s] = s;
        content(s, rig.elems, data + s * rig.elems);
    }
    /* The thread is kept busy by looks at what is there, so that the queue fills up. */
    int64_t *same = calloc(SLOW, sizeof *same);
    float *far = malloc((size_t)(SLOW * rig.elems) * sizeof *far); /* but for the first not read */
    memcpy(far, data, (size_t)rig.elems * sizeof *far);
    cache_ahead_put(rig.ahead, 0, same, SLOW, far);
    for (int r = 0; r < SAMPLES + AGAIN; r++) { /* more than the queue holds; each once, then one */
        const int id = r < SAMPLES ? r : 0;
        cache_ahead_put(rig.ahead, 0, ids + id, 1, data + id * rig.elems);
    }
    cache_ahead_flush(rig.ahead);
    assert_int_equal(cache_counts(rig.cache).puts, SAMPLES); /* the others were there */
    for (int64_t s = 0; s < SAMPLES; s++) {
        assert_int_equal(cache_look(rig.cache, 0, s, LEVEL, rig.elems, got), LEVEL);
        assert_memory_equal(got, data + s * rig.elems, (size_t)rig.elems * sizeof *got);
    }
    cache_ahead_flush(NULL);
    free(same);
    free(far);
    free(data);
    free(got);
    rig_close(&rig);
}

static void cache_ahead_free__makes_the_puts_first(void **state)
{
    (void)state;
    struct rig rig;
    int64_t ids[SAMPLES];
    void *last[CACHE_AHEAD];
    rig_open(&rig, 0, false);
    float *data = calloc((size_t)(SAMPLES * rig.elems), sizeof *data);
    for (int64_t s = 0; s < SAMPLES; s++)
        ids[s] = s;
    for (int64_t s = 0; s < SAMPLES; s++)
        cache_ahead_put(rig.ahead, 0, ids + s, 1, data);
    cache_ahead_free(rig.ahead, last);
    rig.ahead = NULL;
    assert_int_equal(cache_counts(rig.cache).puts, SAMPLES);
    for (int i = 0; i < CACHE_AHEAD; i++)
        free(last[i]);
    free(data);
    free(rig.own);
    free(rig.levels);
    cache_close(rig.cache);
    job_clear(&rig.job);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_ahead_get__gives_epochs_in_order),
        cmocka_unit_test(cache_ahead_get__follows_jumps),
        cmocka_unit_test(cache_ahead__reads_the_next_two_without_being_asked),
        cmocka_unit_test(cache_ahead__stops_at_the_end_of_the_epoch),
        cmocka_unit_test(cache_ahead_put__is_there_after_the_flush),
        cmocka_unit_test(cache_ahead_free__makes_the_puts_first),
    };
    on_ranks_begin(&argc, &argv, 1, &comm);
    return on_ranks_end(&comm, cmocka_run_group_tests(tests, NULL, NULL));
}
