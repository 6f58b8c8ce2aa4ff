/* ranks: 2
 * AutoCache on the ranks of one machine, and what it rests on: a sample's frozen forward has the
 * same bits wherever it stands in a micro-batch, and at whatever level it starts. */
#include "exec/cache.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/rng.h"
#include "exec/stage.h"

static struct comm comm;

static void open_job(struct job *job, enum model_family family)
{
    const struct model_spec spec = {.family = family,
                                    .task = TASK_CLASSIFY,
                                    .name = "small",
                                    .num_layers = 3,
                                    .hidden = 32,
                                    .heads = 2,
                                    .mlp = 64,
                                    .image = 12,
                                    .patch = 4,
                                    .channels = 3,
                                    .classes = 5,
                                    .seq = family == FAMILY_VIT ? 0 : 9,
                                    .max_seq = family == FAMILY_VIT ? 0 : 12,
                                    .vocab = family == FAMILY_VIT ? 0 : 50,
                                    .elem_bytes = 4};
    struct model_spec with = spec;
    struct err err = {0};
    if (family != FAMILY_VIT)
        with.image = with.patch = with.channels = 0;
    job_defaults(job);
    model_clear(&job->model);
    if (model_build(&with, &job->model, &err) != OK)
        fail_msg("%s", err.msg);
    job->cache.policy = CACHE_ON;
    job->train.dropout = 0.1;
}

static int take(struct cache *cache, int64_t sample, int level, int64_t elems, float *data)
{
    const int got = cache_look(cache, 0, sample, level, elems, data);
    cache_count(cache, level, got);
    return got;
}

static void cache_open__gives_all_ranks_one_arena(void **state)
{
    (void)state;
    struct job job;
    struct cache *cache = NULL;
    struct cache_counts sums;
    char note[256];
    open_job(&job, FAMILY_VIT);
    const int64_t elems = stage_input_elems(&job.model, 3);
    float *data = calloc((size_t)elems, sizeof *data), *got = calloc((size_t)elems, sizeof *got);
    assert_int_equal(cache_open(&comm, &job, 6, &cache, note, sizeof note, NULL), OK);
    assert_non_null(cache);
    assert_non_null(strstr(note, "6 of 6 samples"));
    for (int64_t s = comm.rank; s < 6; s += comm.size) {
        for (int64_t i = 0; i < elems; i++)
            data[i] = (float)(100 * s + i);
        assert_int_equal(take(cache, s, 3, elems, got), 0);
        cache_put(cache, 0, s, 3, elems, data);
    }
    assert_int_equal(comm_barrier(comm.all, NULL), OK);
    for (int64_t s = 0; s < 6; s++) {
        assert_int_equal(take(cache, s, 3, elems, got), 3);
        for (int64_t i = 0; i < elems; i++)
            assert_true(got[i] == (float)(100 * s + i));
        assert_int_equal(take(cache, s, 5, elems, got), 3); /* a start for level 5 */
        assert_int_equal(take(cache, s, 2, elems, got), 0); /* too far */
        assert_int_equal(take(cache, s, 3, elems - 1, got), 0);
    }
    assert_int_equal(cache_counts_all(&comm, cache, &sums, NULL), OK);
    assert_int_equal(sums.hits, 6 * comm.size);
    assert_int_equal(sums.upgrades, 6 * comm.size);
    assert_int_equal(sums.misses, 6 + 2 * 6 * comm.size);
    assert_int_equal(sums.puts, 6);
    assert_int_equal(sums.corrupt, 0);
    cache_close(cache);
    free(data);
    free(got);
    job_clear(&job);
}

static void cache_open__turns_itself_off_with_a_note(void **state)
{
    (void)state;
    struct job job;
    struct cache *cache = NULL;
    char note[256];
    open_job(&job, FAMILY_VIT);
    job.data.augment = true;
    assert_int_equal(cache_open(&comm, &job, 6, &cache, note, sizeof note, NULL), OK);
    assert_null(cache);
    assert_non_null(strstr(note, "data.augment"));
    job.data.augment = false;
    char dir[] = "/nowhere/at/all";
    job.cache.dir = dir;
    assert_int_equal(cache_open(&comm, &job, 6, &cache, note, sizeof note, NULL), OK);
    assert_null(cache);
    assert_non_null(strstr(note, "cache off: cache: "));
    job.cache.dir = NULL;
    job.cache.policy = CACHE_OFF;
    assert_non_null(cache_refusal(&job));
    job_clear(&job);
}

static void cache_views__have_a_slot_each(void **state)
{
    (void)state;
    struct job job;
    struct cache *cache = NULL;
    char note[256];
    open_job(&job, FAMILY_VIT);
    job.data.augment = true;
    job.cache.views = 3;
    assert_null(cache_refusal(&job));
    assert_int_equal(cache_open(&comm, &job, 4, &cache, note, sizeof note, NULL), OK);
    assert_non_null(cache);
    assert_non_null(strstr(note, "12 of 12 views"));
    const int64_t elems = stage_input_elems(&job.model, 3);
    float *data = calloc((size_t)elems, sizeof *data);
    for (int64_t epoch = 0; epoch < 6 && comm.rank == 0; epoch++)
        for (int64_t s = 0; s < 4; s++) {
            const int got = cache_look(cache, epoch, s, 3, elems, data);
            assert_int_equal(got, epoch < 3 ? 0 : 3);
            assert_true(epoch < 3 || data[0] == (float)(10 * (epoch - 3) + s));
            data[0] = (float)(10 * epoch + s);
            cache_put(cache, epoch, s, 3, elems, data);
        }
    cache_close(cache);
    free(data);
    /* Where every epoch sees the same there is one. */
    job.data.augment = false;
    assert_int_equal(job_views(&job), 1);
    job_clear(&job);
}

static void cache_open__makes_do_with_the_room_there_is(void **state)
{
    (void)state;
    struct job job;
    struct cache *cache = NULL;
    char note[256], nowhere[] = "/nowhere/at/all", tmp[] = "/tmp";
    open_job(&job, FAMILY_VIT);
    job.cache.limit_bytes = 100000;
    job.cache.spill_dir = nowhere;
    assert_int_equal(cache_open(&comm, &job, 400, &cache, note, sizeof note, NULL), OK);
    assert_non_null(cache);
    assert_true(comm.rank > 0 || strstr(note, "nowhere")); /* rank 0 is the one that prints it */
    assert_false(cache_complete(cache));
    const double share = cache_share(cache, 1);
    assert_true(share > 0.05 && share < 0.5);
    assert_true(fabs(cache_share(cache, 3) - share * share * share) < 1e-12);
    cache_close(cache);
    job.cache.spill_dir = tmp;
    assert_int_equal(cache_open(&comm, &job, 400, &cache, note, sizeof note, NULL), OK);
    assert_non_null(cache);
    assert_non_null(strstr(note, "400 of 400 samples"));
    assert_non_null(strstr(note, "in /tmp"));
    assert_true(cache_complete(cache));
    assert_true(cache_share(cache, 8) == 1.0);
    cache_close(cache);
    job.cache.spill_dir = NULL;
    job_clear(&job);
}

static void frozen_forward__has_the_same_bits_in_any_place(void **state)
{
    (void)state;
    enum { N = 7 };
    static const enum model_family families[] = {FAMILY_VIT, FAMILY_BERT, FAMILY_GPT};
    for (int f = 0; f < 3; f++) {
        struct job job;
        struct err err = {0};
        open_job(&job, families[f]);
        const struct model *m = &job.model;
        const bool vit = m->family == FAMILY_VIT;
        struct backend *be = backend_cpu_new(DTYPE_FP32, 2, &err);
        struct stage *stage = NULL, *low = NULL;
        const int end = 5, middle = 2;
        const int64_t elems = stage_input_elems(m, end);
        const int64_t image = vit ? (int64_t)m->channels * m->image * m->image : 1;
        struct stage_spec spec = {.model = m,
                                  .job = &job,
                                  .backend = be,
                                  .end_item = end,
                                  .num_frozen_items = end,
                                  .max_samples = N,
                                  .max_live = 1};
        assert_int_equal(stage_new(&spec, &stage, &err), OK);
        assert_int_equal(stage_init_weights(stage, 5, &err), OK);
        spec.end_item = middle;
        assert_int_equal(stage_new(&spec, &low, &err), OK);
        assert_int_equal(stage_init_weights(low, 5, &err), OK);
        float *images = calloc((size_t)(N * image), sizeof *images);
        int32_t *tokens = calloc((size_t)(N * m->seq), sizeof *tokens);
        int32_t lengths[N], types[N * 16] = {0};
        int64_t ids[N];
        float *want = calloc((size_t)(N * elems), sizeof *want);
        float *half = calloc((size_t)(N * elems), sizeof *half);
        /* Turned round in the block: sample i at place (i + way) mod N. */
        for (int way = 0; way < N; way++) {
            for (int i = 0; i < N; i++) {
                const int from = (i + N - way) % N;
                ids[i] = 3 * from;
                lengths[i] = 1 + from;
                for (int64_t j = 0; j < image; j++)
                    images[i * image + j] = (float)rng_normal(7, (uint64_t)(from * image + j));
                for (int64_t j = 0; j < m->seq && !vit; j++)
                    tokens[i * m->seq + j] =
                        (int32_t)(rng_bits(1, (uint32_t)(from * m->seq + j)) % 50);
            }
            const struct sample_block block = {
                .num_samples = N,
                .ids = ids,
                .images = vit ? images : NULL,
                .tokens = vit ? NULL : tokens,
                .token_types = m->family == FAMILY_BERT ? types : NULL,
                .lengths = m->family == FAMILY_BERT ? lengths : NULL};
            const size_t one = (size_t)elems * sizeof(float);
            void *in[1] = {NULL}, *out[1];
            assert_int_equal(stage_forward(stage, 0, &block, STEP_EVAL, in, out, false, NULL, &err),
                             OK);
            if (way == 0)
                memcpy(want, out[0], N * one);
            for (int i = 0; i < N; i++)
                assert_memory_equal(want + (i + N - way) % N * elems,
                                    (const float *)out[0] + i * elems, one);
            assert_int_equal(stage_forward(low, 0, &block, STEP_EVAL, in, out, false, NULL, &err),
                             OK);
            memcpy(half, out[0], N * one);
            out[0] = NULL;
            assert_int_equal(stage_forward_tail(stage, 0, &block, middle, half, out, &err), OK);
            for (int i = 0; i < N; i++)
                assert_memory_equal(want + (i + N - way) % N * elems,
                                    (const float *)out[0] + i * elems, one);
        }
        free(want);
        free(half);
        free(images);
        free(tokens);
        stage_free(stage);
        stage_free(low);
        backend_free(be);
        job_clear(&job);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_open__gives_all_ranks_one_arena),
        cmocka_unit_test(cache_open__turns_itself_off_with_a_note),
        cmocka_unit_test(cache_views__have_a_slot_each),
        cmocka_unit_test(cache_open__makes_do_with_the_room_there_is),
        cmocka_unit_test(frozen_forward__has_the_same_bits_in_any_place),
    };
    struct err err = {0};
    if (comm_init(&argc, &argv, &comm, &err) != OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    comm_finalize(&comm);
    return failed;
}
