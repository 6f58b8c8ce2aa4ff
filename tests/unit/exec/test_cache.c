/* ranks: 2
 * AutoCache on the ranks of one machine, and what it rests on: a sample's frozen forward has the
 * same bits wherever it stands in a micro-batch, and at whatever level it starts. */
#include "exec/cache/cache.h"

#include "exec/cpu/backend_cpu.h"
#include "tests/unit/cache_case.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/test.h"

static struct comm comm;

static int look_and_count(struct cache *cache, int64_t sample, int level, int64_t elems,
                          float *data)
{
    const int got = cache_look(cache, 0, sample, level, elems, data);
    cache_count(cache, level, got);
    return got;
}

static void cache_open__gives_all_ranks_one_arena(void **state)
{
    (void)state;
    struct job job;
    struct cache *cache;
    struct cache_counts sums;
    char note[256];
    case_job(&job, FAMILY_VIT, DTYPE_FP32);
    const int64_t elems = stage_input_elems(&job.model, 3);
    float *data = calloc((size_t)elems, sizeof *data), *got = calloc((size_t)elems, sizeof *got);
    cache = case_cache(&comm, &job, 6, note);
    assert_non_null(cache);
    assert_non_null(strstr(note, "6 of 6 samples"));
    for (int64_t s = comm.rank; s < 6; s += comm.size) {
        for (int64_t i = 0; i < elems; i++)
            data[i] = (float)(100 * s + i);
        assert_int_equal(look_and_count(cache, s, 3, elems, got), 0);
        cache_put(cache, 0, s, 3, elems, data);
    }
    assert_int_equal(comm_barrier(comm.all, NULL), OK);
    for (int64_t s = 0; s < 6; s++) {
        assert_int_equal(look_and_count(cache, s, 3, elems, got), 3);
        for (int64_t i = 0; i < elems; i++)
            assert_true(got[i] == (float)(100 * s + i));
        assert_int_equal(look_and_count(cache, s, 5, elems, got), 3); /* a start for level 5 */
        assert_int_equal(look_and_count(cache, s, 2, elems, got), 0); /* too far */
        assert_int_equal(look_and_count(cache, s, 3, elems - 1, got), 0);
    }
    assert_int_equal(cache_counts_all(&comm, cache, &sums, NULL), OK);
    assert_int_equal(sums.hits, 6 * comm.size);
    assert_int_equal(sums.upgrades, 6 * comm.size);
    assert_int_equal(sums.misses, 6 + 2 * 6 * comm.size);
    assert_int_equal(sums.puts, 6);
    assert_int_equal(sums.corrupt, 0);
    /* A damaged one is a miss too, and nothing else. */
    const struct cache_counts was = cache_counts(cache);
    cache_count(cache, 3, -1);
    const struct cache_counts is = cache_counts(cache);
    assert_int_equal(is.hits + is.upgrades, was.hits + was.upgrades);
    assert_int_equal(is.misses, was.misses + 1);
    assert_int_equal(is.corrupt, 1);
    cache_close(cache);
    free(data);
    free(got);
    job_clear(&job);
}

static void cache_open__turns_itself_off_with_a_note(void **state)
{
    (void)state;
    struct job job;
    struct cache *cache;
    char note[256];
    case_job(&job, FAMILY_VIT, DTYPE_FP32);
    job.data.augment = true;
    cache = case_cache(&comm, &job, 6, note);
    assert_null(cache);
    assert_non_null(strstr(note, "data.augment"));
    job.data.augment = false;
    char dir[] = "/nowhere/at/all";
    job.cache.dir = dir;
    cache = case_cache(&comm, &job, 6, note);
    assert_null(cache);
    assert_non_null(strstr(note, "cache off: cache: "));
    job.cache.dir = NULL;
    job.cache.policy = CACHE_OFF;
    assert_non_null(cache_refusal(&job));
    job.cache.policy = CACHE_ON;
    assert_null(cache_refusal(&job));
    job.model.num_skips = 1; /* what enters an item is more than one tensor then */
    assert_non_null(strstr(cache_refusal(&job), "skip edges"));
    job.model.num_skips = 0;
    job_clear(&job);
}

static void cache_views__have_a_slot_each(void **state)
{
    (void)state;
    struct job job;
    struct cache *cache;
    char note[256];
    case_job(&job, FAMILY_VIT, DTYPE_FP32);
    job.data.augment = true;
    job.cache.views = 3;
    assert_null(cache_refusal(&job));
    cache = case_cache(&comm, &job, 4, note);
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
    /* There is one view if every epoch sees the same samples. */
    job.data.augment = false;
    assert_int_equal(job_views(&job), 1);
    job_clear(&job);
}

static void cache_open__makes_do_with_the_room_there_is(void **state)
{
    (void)state;
    struct job job;
    struct cache *cache;
    char note[256], nowhere[] = "/nowhere/at/all", tmp[] = "/tmp";
    case_job(&job, FAMILY_VIT, DTYPE_FP32);
    job.freeze.policy = FREEZE_TABLE;
    job.cache.limit_bytes = 100000;
    job.cache.spill_dir = nowhere;
    cache = case_cache(&comm, &job, 400, note);
    assert_non_null(cache);
    assert_true(comm.rank > 0 || strstr(note, "nowhere")); /* rank 0 is the one that prints it */
    assert_false(cache_complete(cache));
    const double share = cache_room(cache);
    assert_true(share > 0.05 && share < 0.5);
    job.cache.spill_dir = NULL; /* it was not there */
    assert_true(cache_job_room(&job, 400) == share);
    assert_true(fabs(cache_share(share, 3, true) - share * share * share) < 1e-12);
    assert_true(cache_share(share, 3, false) == share);
    cache_close(cache);
    job.cache.spill_dir = tmp;
    cache = case_cache(&comm, &job, 400, note);
    assert_non_null(cache);
    assert_non_null(strstr(note, "400 of 400 samples"));
    assert_non_null(strstr(note, "in /tmp"));
    assert_true(cache_complete(cache));
    assert_true(cache_room(cache) == 1.0 && cache_job_room(&job, 400) == 1.0);
    cache_close(cache);
    job.cache.spill_bytes = 50000;
    cache = case_cache(&comm, &job, 400, note);
    assert_non_null(cache);
    assert_true(cache_room(cache) > share && cache_room(cache) < 1);
    assert_true(cache_job_room(&job, 400) == cache_room(cache));
    cache_close(cache);
    job.cache.spill_dir = NULL;
    job_clear(&job);
}

static void cache_whole__only_where_bits_depend_on_the_number_of_rows(void **state)
{
    (void)state;
    static const struct {
        enum dtype dtype;
        bool bf16_cache, bits_independent_of_row_count, whole;
    } cases[] = {
        {DTYPE_FP32, false, false, true }, /* exact values, bits by the number of rows */
        {DTYPE_FP32, false, true,  false},
        {DTYPE_FP32, true,  false, false}, /* rounds: no equal bits are promised */
        {DTYPE_BF16, false, false, true },
        {DTYPE_BF16, false, true,  false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job;
        struct cache *cache = NULL;
        char note[256];
        case_job(&job, FAMILY_VIT, cases[i].dtype);
        job.cache.bf16 = cases[i].bf16_cache;
        job.cache.limit_bytes = 100000;
        const struct backend be = {.bits_independent_of_row_count =
                                       cases[i].bits_independent_of_row_count};
        assert_int_equal(cache_open(&comm, &job, &be, 400, &cache, note, NULL), OK);
        assert_non_null(cache);
        assert_int_equal(cache_whole(cache), cases[i].whole);
        assert_int_equal(cache_elem_bytes(cache), dtype_bytes(cases[i].dtype));
        assert_true(cache_room(cache) > 0.05 && cache_room(cache) < 0.8);
        cache_close(cache);
        job_clear(&job);
    }
}

enum { N = 7 };

/* Sample i of a block is number (i + N - way) mod N. */
struct turned {
    float *images; /* owned, [N, image] */
    int32_t *tokens, lengths[N], types[N * 16];
    int64_t ids[N];
};

static struct sample_block turn(const struct model *m, struct turned *t, int way)
{
    const bool vit = m->family == FAMILY_VIT;
    const int64_t image = (int64_t)m->channels * m->image * m->image;
    for (int i = 0; i < N; i++) {
        const int from = (i + N - way) % N;
        t->ids[i] = 3 * from;
        t->lengths[i] = 1 + from;
        for (int64_t j = 0; j < image; j++)
            t->images[i * image + j] = (float)rng_normal(7, (uint64_t)(from * image + j));
        for (int64_t j = 0; j < m->seq && !vit; j++)
            t->tokens[i * m->seq + j] = (int32_t)(rng_bits(1, (uint32_t)(from * m->seq + j)) % 50);
    }
    return (struct sample_block){.num_samples = N,
                                 .ids = t->ids,
                                 .images = vit ? t->images : NULL,
                                 .tokens = vit ? NULL : t->tokens,
                                 .token_types = m->family == FAMILY_BERT ? t->types : NULL,
                                 .lengths = m->family == FAMILY_BERT ? t->lengths : NULL};
}

/* A frozen stage of items [0, end), and the same of fewer items. */
static void frozen_forward(enum model_family family, enum dtype dtype)
{
    struct job job;
    struct err err = {0};
    case_job(&job, family, dtype);
    job.train.dropout = 0.1;
    const struct model *m = &job.model;
    struct backend *be = backend_cpu_new(dtype, 2, &err);
    struct stage *stage = NULL, *low = NULL;
    const int end = 5, middle = 2;
    if (!be->bits_independent_of_row_position) {
        backend_free(be);
        job_clear(&job);
        print_message("this BLAS rounds a row by its place, as the cache's note says: skipped\n");
        skip();
    }
    const size_t one = (size_t)backend_bytes(be, stage_input_elems(m, end));
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
    struct turned t = {.images = calloc((size_t)N * 3 * 12 * 12, sizeof(float)),
                       .tokens = calloc((size_t)(N * m->seq), sizeof(int32_t))};
    char *want = calloc(N, one), *half = calloc(N, one);
    for (int way = 0; way < N; way++) {
        struct sample_block block = turn(m, &t, way);
        void *in[1] = {NULL}, *out[1];
        assert_int_equal(stage_forward(stage,
                                       &(struct stage_batch){.block = &block, .step = STEP_EVAL},
                                       in, out, false, &err),
                         OK);
        if (way == 0)
            memcpy(want, out[0], N * one);
        for (int i = 0; i < N; i++)
            assert_memory_equal(want + (size_t)((i + N - way) % N) * one,
                                (const char *)out[0] + (size_t)i * one, one);
        assert_int_equal(stage_forward(low,
                                       &(struct stage_batch){.block = &block, .step = STEP_EVAL},
                                       in, out, false, &err),
                         OK);
        memcpy(half, out[0], N * one);
        /* All of them; where rows stand alone, ever fewer. */
        for (int n = N; n >= (be->bits_independent_of_row_count ? 1 : N); n--) {
            block.num_samples = n;
            assert_int_equal(stage_forward_tail(stage, &block, middle, half, out, &err), OK);
            for (int i = 0; i < n; i++)
                assert_memory_equal(want + (size_t)((i + N - way) % N) * one,
                                    (const char *)out[0] + (size_t)i * one, one);
            assert_int_equal(
                stage_forward(stage, &(struct stage_batch){.block = &block, .step = STEP_EVAL}, in,
                              out, false, &err),
                OK);
            for (int i = 0; i < n; i++)
                assert_memory_equal(want + (size_t)((i + N - way) % N) * one,
                                    (const char *)out[0] + (size_t)i * one, one);
        }
    }
    free(want);
    free(half);
    free(t.images);
    free(t.tokens);
    stage_free(stage);
    stage_free(low);
    backend_free(be);
    job_clear(&job);
}

static void frozen_forward__has_the_same_bits_in_any_place(void **state)
{
    (void)state;
    static const enum model_family families[] = {FAMILY_VIT, FAMILY_BERT, FAMILY_GPT};
    for (int f = 0; f < 3; f++) {
        frozen_forward(families[f], DTYPE_FP32);
        frozen_forward(families[f], DTYPE_BF16);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_open__gives_all_ranks_one_arena),
        cmocka_unit_test(cache_open__turns_itself_off_with_a_note),
        cmocka_unit_test(cache_views__have_a_slot_each),
        cmocka_unit_test(cache_open__makes_do_with_the_room_there_is),
        cmocka_unit_test(cache_whole__only_where_bits_depend_on_the_number_of_rows),
        cmocka_unit_test(frozen_forward__has_the_same_bits_in_any_place),
    };
    on_ranks_begin(&argc, &argv, 2, &comm);
    int failed = cmocka_run_group_tests_name("cache", tests, NULL, NULL);
    setenv("ELAPSE_GEMM", "blas", 1); /* whose bits depend on the number of rows */
    failed += cmocka_run_group_tests_name("cache, blas", tests, NULL, NULL);
    return on_ranks_end(&comm, failed);
}
