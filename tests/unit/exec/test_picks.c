/* The samples of a run are drawn from the whole split, the same for every rank, and those that freezing
 * is judged by are not trained on. */
#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

#include "exec/data/picks.h"

enum { TRAIN = 1000, TEST = 200, CLASSES = 10, GROUP = 7 };

static int64_t by_seven(const struct dataset *dataset, enum split source, int64_t id)
{
    (void)dataset;
    (void)source;
    return id / GROUP;
}

/* A job of a kind with files, and its sources; the policy none unless a test sets another. */
static struct job a_job(void)
{
    struct job job;
    job_defaults(&job);
    job.data.kind = DATA_IMAGES;
    job.data.path = strdup("set");
    return job;
}

static struct dataset sources(int64_t train, int64_t test)
{
    return (struct dataset){
        .num_samples = {train, test}
    };
}

static void pick(const struct job *job, struct dataset *data)
{
    struct err err = {0};
    if (picks_make(job, data, &err) != OK)
        fail_msg("%s", err.msg);
}

static void refuse(const struct job *job, int64_t train, int64_t test, const char *words)
{
    struct dataset data = sources(train, test);
    struct err err = {0};
    assert_int_equal(picks_make(job, &data, &err), ERR_INPUT);
    if (!strstr(err.msg, words))
        fail_msg("'%s', wanted '%s'", err.msg, words);
    dataset_clear(&data);
}

/* Mark the samples of a split in `used` [source], each at most once; returns their number. */
static int64_t mark(const struct dataset *data, enum split split, enum split want, char *used)
{
    int64_t last = -1;
    for (int64_t i = 0; i < data->num_samples[split]; i++) {
        enum split source;
        const int64_t id = dataset_source(data, split, i, &source);
        assert_int_equal(source, want);
        assert_true(id > last); /* ascending, so files are read in their order */
        assert_false(used[id]);
        used[id] = 1;
        last = id;
    }
    return data->num_samples[split];
}

/* Data in the order of their classes, as folders are: a part holds all classes. */
static void picks_make__draws_from_the_whole_split(void **state)
{
    struct job job = a_job();
    struct dataset data = sources(TRAIN, TEST), again = sources(TRAIN, TEST);
    struct dataset other = sources(TRAIN, TEST);
    char used[TRAIN] = {0};
    int64_t of_class[CLASSES] = {0}, same = 0;
    (void)state;
    job.data.train_samples = 200;
    job.data.test_samples = 60;
    pick(&job, &data);
    assert_int_equal(mark(&data, SPLIT_TRAIN, SPLIT_TRAIN, used), 200);
    assert_int_equal(data.num_samples[SPLIT_VALID], 0);
    for (int id = 0; id < TRAIN; id++)
        of_class[id / (TRAIN / CLASSES)] += used[id];
    for (int c = 0; c < CLASSES; c++) /* 20 expected, standard deviation 4 */
        assert_in_range(of_class[c], 5, 40);
    memset(used, 0, sizeof used);
    assert_int_equal(mark(&data, SPLIT_TEST, SPLIT_TEST, used), 60);
    assert_non_null(strstr(data.notes, "200 of 1000 training samples, drawn by train.seed"));
    assert_non_null(strstr(data.notes, "60 of 200 test samples, drawn by train.seed"));
    pick(&job, &again); /* another rank, or a resumed run */
    assert_memory_equal(data.picks[SPLIT_TRAIN].ids, again.picks[SPLIT_TRAIN].ids,
                        200 * sizeof(int64_t));
    job.train.seed = 2;
    pick(&job, &other);
    for (int i = 0; i < 200; i++)
        same += data.picks[SPLIT_TRAIN].ids[i] == other.picks[SPLIT_TRAIN].ids[i];
    assert_true(same < 50);
    dataset_clear(&data);
    dataset_clear(&again);
    dataset_clear(&other);
    job_clear(&job);
}

static void picks_make__leaves_a_whole_split_as_it_is(void **state)
{
    struct job job = a_job();
    struct dataset data = sources(TRAIN, TEST);
    (void)state;
    pick(&job, &data);
    assert_null(data.picks[SPLIT_TRAIN].ids);
    assert_null(data.picks[SPLIT_TEST].ids);
    assert_null(data.notes);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], TRAIN);
    assert_int_equal(data.num_samples[SPLIT_TEST], TEST);
    dataset_clear(&data);
    job.data.train_samples = TRAIN + 1;
    refuse(&job, TRAIN, TEST,
           "'set' holds 1000 training samples, data.train_samples asks for 1001");
    job.data.train_samples = 0;
    job.data.test_samples = TEST + 1;
    refuse(&job, TRAIN, TEST, "'set' holds 200 test samples, data.test_samples asks for 201");
    job_clear(&job);
}

static void picks_make__holds_the_probe_out_of_training(void **state)
{
    struct job job = a_job();
    struct dataset data = sources(TRAIN, TEST), part = sources(TRAIN, TEST);
    struct dataset few = sources(40, 10);
    char used[TRAIN] = {0};
    (void)state;
    job.freeze.policy = FREEZE_SAFE;
    job.freeze.max_loss = 1;
    pick(&job, &data); /* 32 samples: 3/800 of the run's are fewer */
    assert_int_equal(mark(&data, SPLIT_VALID, SPLIT_TRAIN, used), 32);
    assert_int_equal(mark(&data, SPLIT_TRAIN, SPLIT_TRAIN, used), TRAIN - 32);
    assert_int_equal(job_train_samples(&job, TRAIN), TRAIN - 32); /* as plan and sim count */
    assert_null(data.picks[SPLIT_TEST].ids);
    dataset_clear(&data);
    /* Samples that training leaves over are the probe's, and training loses none. */
    memset(used, 0, sizeof used);
    job.data.train_samples = 500;
    pick(&job, &part);
    assert_int_equal(mark(&part, SPLIT_VALID, SPLIT_TRAIN, used), 32);
    assert_int_equal(mark(&part, SPLIT_TRAIN, SPLIT_TRAIN, used), 500);
    dataset_clear(&part);
    job.data.train_samples = 0;
    pick(&job, &few); /* an eighth at most */
    assert_int_equal(few.num_samples[SPLIT_VALID], 5);
    assert_int_equal(few.num_samples[SPLIT_TRAIN], 35);
    dataset_clear(&few);
    job.freeze.probe = 21;
    refuse(&job, 40, 10, "freeze.probe of 21 samples exceeds half of the 40 training samples");
    job_clear(&job);
}

static void picks_make__takes_the_probe_from_the_test_set_only_if_told(void **state)
{
    struct job job = a_job();
    struct dataset data = sources(TRAIN, TEST), own = sources(TRAIN, TEST);
    char used[TRAIN] = {0};
    (void)state;
    job.freeze.policy = FREEZE_SAFE;
    job.freeze.max_loss = 1;
    job.data.valid = strdup("test");
    job.data.test_samples = 100;
    pick(&job, &data);
    assert_int_equal(mark(&data, SPLIT_VALID, SPLIT_TEST, used), 32);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], TRAIN);
    for (int64_t i = 0; i < 100; i++) { /* some of the test samples in use */
        enum split source;
        used[dataset_source(&data, SPLIT_TEST, i, &source)] = 0;
    }
    for (int id = 0; id < TRAIN; id++)
        assert_false(used[id]);
    assert_non_null(strstr(data.notes, "by 32 of the test samples"));
    dataset_clear(&data);
    job.freeze.probe = 101;
    refuse(&job, TRAIN, TEST, "freeze.probe of 101 samples exceeds the 100 test samples");
    job.freeze.probe = 50;
    free(job.data.valid);
    job.data.valid = strdup("/some/where");
    own.num_samples[SPLIT_VALID] = 80;
    pick(&job, &own);
    assert_int_equal(mark(&own, SPLIT_VALID, SPLIT_VALID, used), 50);
    assert_int_equal(own.num_samples[SPLIT_TRAIN], TRAIN);
    dataset_clear(&own);
    job_clear(&job);
}

/* A source of one file: a tenth is the test split, and no sample is in two. */
static void picks_make__divides_a_source_without_a_test_split(void **state)
{
    struct job job = a_job();
    struct dataset data = sources(TRAIN, 0);
    char used[TRAIN] = {0};
    (void)state;
    job.freeze.policy = FREEZE_SAFE;
    job.freeze.max_loss = 1;
    pick(&job, &data);
    assert_int_equal(mark(&data, SPLIT_TEST, SPLIT_TRAIN, used), 100);
    assert_int_equal(mark(&data, SPLIT_VALID, SPLIT_TRAIN, used), 32);
    assert_int_equal(mark(&data, SPLIT_TRAIN, SPLIT_TRAIN, used), 868);
    dataset_clear(&data);
    job.data.train_samples = 901;
    refuse(&job, TRAIN, 0, "'set' holds 900 training samples");
    job_clear(&job);
}

static void picks_make__keeps_groups_whole_and_on_one_side(void **state)
{
    struct job job = a_job();
    struct dataset data = sources(TRAIN, TEST);
    char used[TRAIN] = {0};
    int both = 0, cut = 0;
    (void)state;
    data.group = by_seven;
    job.data.train_samples = 500;
    job.freeze.policy = FREEZE_SAFE;
    job.freeze.max_loss = 1;
    pick(&job, &data);
    assert_int_equal(mark(&data, SPLIT_TRAIN, SPLIT_TRAIN, used), 500);
    char trained[TRAIN];
    memcpy(trained, used, sizeof used);
    assert_int_equal(mark(&data, SPLIT_VALID, SPLIT_TRAIN, used), 32);
    for (int g = 0; g < TRAIN / GROUP; g++) {
        int train = 0, valid = 0;
        for (int i = 0; i < GROUP; i++) {
            train += trained[GROUP * g + i];
            valid += used[GROUP * g + i] && !trained[GROUP * g + i];
        }
        both += train > 0 && valid > 0;
        cut += (train > 0 && train < GROUP) || (valid > 0 && valid < GROUP);
    }
    assert_int_equal(both, 0);
    assert_true(cut <= 2); /* the last group of each */
    dataset_clear(&data);
    job_clear(&job);
}

static void picks_make__fails_clean_without_memory(void **state)
{
    (void)state;
#if FAIL_MALLOC
    struct job job = a_job();
    job.freeze.policy = FREEZE_SAFE;
    job.freeze.max_loss = 1;
    job.data.test_samples = 60;
    for (int n = 0;; n++) {
        struct dataset data = sources(TRAIN, TEST);
        data.group = by_seven;
        fail_malloc_after(n);
        const enum status rc = picks_make(&job, &data, NULL);
        dataset_clear(&data);
        if (fail_malloc_done()) {
            assert_int_equal(rc, OK);
            break;
        }
        assert_true(rc == ERR_NOMEM || rc == OK); /* OK: qsort() did without */
    }
    job_clear(&job);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picks_make__draws_from_the_whole_split),
        cmocka_unit_test(picks_make__leaves_a_whole_split_as_it_is),
        cmocka_unit_test(picks_make__holds_the_probe_out_of_training),
        cmocka_unit_test(picks_make__takes_the_probe_from_the_test_set_only_if_told),
        cmocka_unit_test(picks_make__divides_a_source_without_a_test_split),
        cmocka_unit_test(picks_make__keeps_groups_whole_and_on_one_side),
        cmocka_unit_test(picks_make__fails_clean_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
