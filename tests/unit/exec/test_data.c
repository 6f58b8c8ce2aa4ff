/* Data: CIFAR files (small ones made here, in the official layout), the procedural sets, the
 * loader.
 */
#include <unistd.h>

#include "exec/data/dataset_open.h"
#include "exec/data/loader.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

enum { RECORD = 3073 };

/* Record i: label (first + i) % 10, pixel p is (7 i + p) % 256. */
static void write_cifar(const char *name, int records, int first, int extra_bytes, int bad_label)
{
    FILE *out = fopen(at(name), "wb");
    assert_non_null(out);
    for (int i = 0; i < records; i++) {
        fputc(i == bad_label ? 10 : (first + i) % 10, out);
        for (int p = 0; p < RECORD - 1; p++)
            fputc((7 * i + p) % 256, out);
    }
    for (int i = 0; i < extra_bytes; i++)
        fputc(0, out);
    assert_int_equal(fclose(out), 0);
}

static void cifar_open__reads_any_number_of_records_in_file_order(void **state)
{
    struct dataset data = {0};
    struct err err = {0};
    static float image[3072];
    int32_t label;
    const struct sample_out out = {.image = image, .labels = &label};
    (void)state;
    write_cifar("data_batch_1.bin", 3, 0, 0, -1);
    write_cifar("data_batch_3.bin", 300, 5, 0, -1);
    write_cifar("test_batch.bin", 2, 9, 0, -1);
    assert_int_equal(cifar_open(scratch, NULL, 10, &data, &err), OK);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 303);
    assert_int_equal(data.num_samples[SPLIT_TEST], 2);
    assert_int_equal(data.sample(&data, SPLIT_TRAIN, 3 + 290, &out, &err), OK);
    assert_int_equal(label, (5 + 290) % 10);
    /* Pixel 1030 is the 7th of the green plane. */
    float want = ((float)((7 * 290 + 1030) % 256) / 255.0f - 0.4822f) / 0.2435f;
    assert_true(fabsf(image[1030] - want) < 1e-5f);
    dataset_clear(&data);
}

static void dataset_open__takes_as_many_samples_as_are_asked_for(void **state)
{
    struct dataset data = {0};
    struct err err = {0};
    struct job job;
    (void)state;
    write_cifar("data_batch_1.bin", 4, 0, 0, -1);
    write_cifar("test_batch.bin", 2, 0, 0, -1);
    job_defaults(&job);
    job.data.kind = DATA_CIFAR10;
    job.data.path = strdup(scratch);
    job.data.train_samples = 3;
    job.data.test_samples = 1;
    assert_int_equal(model_parse("vit-tiny:classes=10,image=32,patch=8", &job.model, &err), OK);
    assert_int_equal(dataset_open(&job, &data, &err), OK);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 3);
    assert_int_equal(data.num_samples[SPLIT_TEST], 1);
    dataset_clear(&data);
    job.data.train_samples = 5;
    assert_int_equal(dataset_open(&job, &data, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "holds 4 training samples, data.train_samples asks for 5"));
    assert_null(data.ctx);
    job_clear(&job);
}

static void expect_cifar(enum status status, const char *text)
{
    struct dataset data = {0};
    struct err err = {0};
    assert_int_equal(cifar_open(scratch, NULL, 10, &data, &err), status);
    if (!strstr(err.msg, text))
        fail_msg("'%s' has no '%s'", err.msg, text);
    assert_null(data.ctx);
}

static void cifar_open__names_file_size_and_multiple_when_a_file_is_wrong(void **state)
{
    (void)state;
    write_cifar("data_batch_1.bin", 3, 0, 0, -1);
    expect_cifar(ERR_SYSTEM, "test_batch.bin': No such file");
    write_cifar("test_batch.bin", 2, 0, 0, -1);
    write_cifar("data_batch_3.bin", 2, 0, 100, -1);
    expect_cifar(ERR_INPUT,
                 "data_batch_3.bin' has 6246 bytes, must be a positive multiple of 3073");
    write_cifar("data_batch_3.bin", 0, 0, 0, -1);
    expect_cifar(ERR_INPUT, "data_batch_3.bin' has 0 bytes");
    write_cifar("data_batch_3.bin", 5, 0, 0, 4);
    expect_cifar(ERR_INPUT, "data_batch_3.bin': label of record 4 must be 0..9, got 10");
}

static void cifar_open__names_the_first_training_file_when_there_is_none(void **state)
{
    (void)state;
    write_cifar("test_batch.bin", 2, 0, 0, -1);
    expect_cifar(ERR_SYSTEM, "data_batch_1.bin': No such file");
}

/* The judge of "learnable, not trivial": the nearest class mean over pixels is right more often
 * than by chance, and far from always; the classes are there in equal parts. */
static void shapes__are_balanced_deterministic_and_not_linearly_trivial(void **state)
{
    enum { SIDE = 16, ELEMS = 3 * SIDE * SIDE, TRAIN = 2000, TEST = 500 };
    static float mean[10][ELEMS], image[ELEMS], again[ELEMS];
    struct dataset data = {0};
    int32_t label;
    int count[10] = {0}, right = 0;
    double sum = 0, squares = 0;
    struct sample_out out = {.image = image, .labels = &label};
    (void)state;
    assert_int_equal(shapes_open(SIDE, TRAIN, TEST, 1, &data, NULL), OK);
    for (int64_t id = 0; id < TRAIN; id++) {
        assert_int_equal(data.sample(&data, SPLIT_TRAIN, id, &out, NULL), OK);
        count[label]++;
        for (int e = 0; e < ELEMS; e++) {
            assert_true(isfinite(image[e]));
            mean[label][e] += image[e] / (TRAIN / 10);
            sum += image[e];
            squares += (double)image[e] * image[e];
        }
    }
    for (int c = 0; c < 10; c++)
        assert_int_equal(count[c], TRAIN / 10);
    sum /= (double)TRAIN * ELEMS;
    squares /= (double)TRAIN * ELEMS;
    assert_true(fabs(sum) < 0.1 && squares > 0.8 && squares < 1.3); /* about normalised */
    for (int64_t id = 0; id < TEST; id++) {
        int best = 0;
        double least = INFINITY;
        data.sample(&data, SPLIT_TEST, id, &out, NULL);
        for (int c = 0; c < 10; c++) {
            double distance = 0;
            for (int e = 0; e < ELEMS; e++)
                distance += (image[e] - mean[c][e]) * (image[e] - mean[c][e]);
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        right += best == label;
    }
    assert_in_range(right, TEST / 5, TEST * 3 / 5);
    data.sample(&data, SPLIT_TEST, 7, &out, NULL);
    out.image = again;
    data.sample(&data, SPLIT_TEST, 7, &out, NULL);
    assert_memory_equal(image, again, sizeof image);
    data.sample(&data, SPLIT_TRAIN, 7, &out, NULL);
    assert_memory_not_equal(image, again, sizeof image);
    dataset_clear(&data);
    assert_int_equal(shapes_open(7, 1, 1, 1, &data, NULL), ERR_INPUT);
}

static void dataset_view__augments_by_seed_epoch_and_sample(void **state)
{
    enum { SIDE = 16, ELEMS = 3 * SIDE * SIDE };
    static float a[ELEMS], b[ELEMS], room[ELEMS];
    struct dataset data = {0};
    struct sample_out out = {.image = a};
    int differ = 0;
    (void)state;
    assert_int_equal(shapes_open(SIDE, 100, 10, 1, &data, NULL), OK);
    data.augment = true;
    for (int64_t epoch = 0; epoch < 8; epoch++) {
        out.image = a;
        assert_int_equal(dataset_view(&data, SPLIT_TRAIN, epoch, 5, &out, room, NULL), OK);
        out.image = b;
        assert_int_equal(dataset_view(&data, SPLIT_TRAIN, epoch, 5, &out, room, NULL), OK);
        assert_memory_equal(a, b, sizeof a);
        assert_int_equal(dataset_view(&data, SPLIT_TRAIN, epoch + 1, 5, &out, room, NULL), OK);
        differ += memcmp(a, b, sizeof a) != 0;
    }
    assert_true(differ >= 7);
    out.image = a;
    dataset_view(&data, SPLIT_TEST, 0, 5, &out, room, NULL);
    out.image = b;
    dataset_view(&data, SPLIT_TEST, 9, 5, &out, room, NULL);
    assert_memory_equal(a, b, sizeof a);
    /* Two views in turn. */
    data.views = 2;
    dataset_view(&data, SPLIT_TRAIN, 1, 5, &out, room, NULL);
    out.image = a;
    dataset_view(&data, SPLIT_TRAIN, 3, 5, &out, room, NULL);
    assert_memory_equal(a, b, sizeof a);
    dataset_view(&data, SPLIT_TRAIN, 2, 5, &out, room, NULL);
    assert_memory_not_equal(a, b, sizeof a);
    dataset_clear(&data);
}

static void loader_get__gives_the_same_batches_whoever_makes_them(void **state)
{
    struct dataset data = {0};
    struct sampler sampler;
    struct loader *loaders[3]; /* one thread, one ahead, three ahead */
    struct err err = {0};
    (void)state;
    assert_int_equal(shapes_open(8, 21, 4, 1, &data, &err), OK);
    data.augment = true;
    assert_int_equal(sampler_init(&sampler, &(struct sampler_spec){21, 1, true, 2, 4, 2}, &err),
                     OK);
    for (int i = 0; i < 3; i++) {
        struct loader_spec spec = {.dataset = &data,
                                   .sampler = &sampler,
                                   .replica = 1,
                                   .want_inputs = true,
                                   .want_labels = true,
                                   .prefetch = i > 0,
                                   .workers = i == 2 ? 3 : i};
        assert_int_equal(loader_new(&spec, &loaders[i], &err), OK);
    }
    for (int64_t epoch = 0; epoch < 2; epoch++)
        for (int64_t at = epoch * 2; at < 6; at++) { /* one jump */
            const struct batch *a, *b;
            const int64_t step = at / 2;
            assert_int_equal(loader_get(loaders[0], epoch, step, &a, &err), OK);
            assert_int_equal(loader_get(loaders[1 + at % 2], epoch, step, &b, &err), OK);
            assert_int_equal(a->num_samples, step < 2 ? 8 : 5);
            assert_int_equal(a->num_targets, a->num_samples);
            for (int m = 0; m < 2; m++) {
                const struct sample_block *x = &a->blocks[m], *y = &b->blocks[m];
                assert_int_equal(x->num_samples, step < 2 ? 2 : m == 0 ? 1 : 0);
                assert_int_equal(x->num_samples, y->num_samples);
                size_t n = (size_t)x->num_samples;
                assert_memory_equal(x->ids, y->ids, n * sizeof *x->ids);
                assert_memory_equal(x->labels, y->labels, n * sizeof *x->labels);
                assert_memory_equal(x->images, y->images, n * 192 * sizeof *x->images);
            }
        }
    for (int i = 0; i < 3; i++)
        loader_free(loaders[i]);
    dataset_clear(&data);
}

static void loader_peek__shows_what_the_next_get_gives(void **state)
{
    struct dataset data = {0};
    struct sampler sampler;
    struct loader *loader;
    const struct batch *batch, *next = NULL;
    uint64_t last = 0;
    struct err err = {0};
    (void)state;
    assert_int_equal(shapes_open(8, 21, 4, 1, &data, &err), OK);
    assert_int_equal(sampler_init(&sampler, &(struct sampler_spec){21, 1, true, 1, 4, 2}, &err),
                     OK);
    struct loader_spec spec = {
        .dataset = &data, .sampler = &sampler, .want_inputs = true, .prefetch = true};
    assert_int_equal(loader_new(&spec, &loader, &err), OK);
    assert_null(loader_peek(NULL));
    assert_null(loader_peek(loader)); /* nobody has asked for anything yet */
    for (int64_t step = 0; step < 3; step++) {
        assert_int_equal(loader_get(loader, 0, step, &batch, &err), OK);
        assert_true(!next || next == batch);
        assert_ptr_equal(batch->loader, loader);
        for (int m = 0; m < 2; m++) { /* each content has a number of its own */
            assert_true(batch->blocks[m].serial > last);
            last = batch->blocks[m].serial;
        }
        while (!(next = loader_peek(loader)))
            usleep(100);
        assert_true(next != batch && next->step == step + 1);
    }
    loader_free(loader);
    dataset_clear(&data);
}

static enum status unreadable(const struct dataset *dataset, enum split split, int64_t id,
                              const struct sample_out *out, struct err *err)
{
    (void)dataset;
    (void)split;
    (void)out;
    if (id % 3 == 0)
        return OK;
    usleep(id % 3 == 1 ? 2000 : 0);
    return err_set(err, ERR_SYSTEM, "sample %lld", (long long)id);
}

static void loader_get__says_of_several_failures_the_first(void **state)
{
    struct dataset data = {0};
    struct sampler sampler;
    struct loader *loader;
    const struct batch *batch;
    char want[32] = "";
    struct err err = {0};
    (void)state;
    assert_int_equal(shapes_open(8, 21, 4, 1, &data, &err), OK);
    data.sample = unreadable;
    assert_int_equal(sampler_init(&sampler, &(struct sampler_spec){21, 1, true, 1, 20, 2}, &err),
                     OK);
    for (int64_t i = 0; i < 20 && !want[0]; i++)
        if (sampler_id(&sampler, 0, i) % 3)
            snprintf(want, sizeof want, "sample %lld", (long long)sampler_id(&sampler, 0, i));
    struct loader_spec spec = {
        .dataset = &data, .sampler = &sampler, .want_inputs = true, .workers = 4};
    assert_int_equal(loader_new(&spec, &loader, &err), OK);
    assert_int_equal(loader_get(loader, 0, 0, &batch, &err), ERR_SYSTEM);
    assert_string_equal(err.msg, want);
    loader_free(loader);
    dataset_clear(&data);
}

static void loader_get__counts_the_targets_of_masked_tokens(void **state)
{
    struct model model = {0};
    struct dataset data = {0};
    struct sampler sampler;
    struct loader *loader;
    struct err err = {0};
    const struct batch *batch;
    int64_t counted = 0;
    (void)state;
    assert_int_equal(
        model_parse("bert-base:task=mlm,hidden=32,heads=2,mlp=64,layers=1,seq=32,vocab=70", &model,
                    &err),
        OK);
    assert_int_equal(phrases_open(&model, 50, 10, 1, &data, &err), OK);
    assert_int_equal(sampler_init(&sampler, &(struct sampler_spec){50, 1, true, 1, 20, 3}, &err),
                     OK);
    struct loader_spec spec = {.dataset = &data,
                               .sampler = &sampler,
                               .want_inputs = true,
                               .want_labels = true,
                               .workers = 3};
    assert_int_equal(loader_new(&spec, &loader, &err), OK);
    assert_int_equal(loader_get(loader, 0, 1, &batch, &err), OK);
    for (int m = 0; m < batch->num_blocks; m++)
        for (int64_t i = 0; i < batch->blocks[m].num_samples * 32; i++)
            counted += batch->blocks[m].labels[i] >= 0;
    assert_true(counted > 20);
    assert_int_equal(batch->num_targets, counted);
    loader_free(loader);
    dataset_clear(&data);
    model_clear(&model);
}

/* The ranks of a pipeline's ends ask for one each. */
static void phrases__have_the_same_tokens_and_labels_when_asked_for_apart(void **state)
{
    enum { SEQ = 32 };
    static const char *const names[] = {
        "bert-base:task=classify,classes=3,hidden=32,heads=2,mlp=64,layers=1,seq=32,vocab=70",
        "bert-base:task=qa,hidden=32,heads=2,mlp=64,layers=1,seq=32,vocab=70",
        "bert-base:task=mlm,hidden=32,heads=2,mlp=64,layers=1,seq=32,vocab=70",
        "gpt2:hidden=32,heads=2,mlp=64,layers=1,seq=32,vocab=70"};
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        struct model model = {0};
        struct dataset data = {0};
        struct err err = {0};
        assert_int_equal(model_parse(names[n], &model, &err), OK);
        assert_int_equal(phrases_open(&model, 9, 1, 1, &data, &err), OK);
        for (int64_t id = 0; id < 9; id++) {
            int32_t tokens[2][SEQ] = {{0}}, labels[2][SEQ] = {{0}};
            const struct sample_out outs[] = {
                {.tokens = tokens[0], .labels = labels[0]},
                {.tokens = tokens[1]                  },
                {.labels = labels[1]}
            };
            for (int i = 0; i < 3; i++)
                assert_int_equal(data.sample(&data, SPLIT_TRAIN, id, &outs[i], &err), OK);
            assert_memory_equal(tokens[0], tokens[1], sizeof *tokens);
            assert_memory_equal(labels[0], labels[1], sizeof *labels);
        }
        dataset_clear(&data);
        model_clear(&model);
    }
}

static void dataset_open__refuses_data_that_do_not_fit_the_model(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    (void)state;
    write_cifar("data_batch_1.bin", 3, 0, 0, -1);
    write_cifar("test_batch.bin", 2, 9, 0, -1);
    job_defaults(&job);
    assert_int_equal(model_parse("vit-tiny:image=224,classes=10", &job.model, &err), OK);
    job.data.kind = DATA_CIFAR10;
    job.data.path = scratch;
    assert_int_equal(dataset_open(&job, &data, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "takes images of 224 pixels, the data have 32"));
    job.data.resize = true;
    err = (struct err){0};
    assert_int_equal(dataset_open(&job, &data, &err), OK);
    assert_int_equal(data.image, 224);
    float *image = malloc(3 * 224 * 224 * sizeof *image);
    const struct sample_out out = {.image = image};
    assert_int_equal(data.sample(&data, SPLIT_TRAIN, 2, &out, &err), OK);
    /* A corner keeps its value under bilinear scaling with clamped borders. */
    assert_true(fabsf(image[0] - ((float)(7 * 2 % 256) / 255.0f - 0.4914f) / 0.2470f) < 1e-4f);
    free(image);
    dataset_clear(&data);
    model_clear(&job.model);
    assert_int_equal(model_parse("vit-tiny:image=32,patch=4,classes=5", &job.model, &err), OK);
    assert_int_equal(dataset_open(&job, &data, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "has 5 classes, the data have 10"));
    job.data.path = NULL;
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cifar_open__reads_any_number_of_records_in_file_order,
                                        scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(dataset_open__takes_as_many_samples_as_are_asked_for,
                                        scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(
            cifar_open__names_file_size_and_multiple_when_a_file_is_wrong, scratch_make,
            scratch_remove),
        cmocka_unit_test_setup_teardown(
            cifar_open__names_the_first_training_file_when_there_is_none, scratch_make,
            scratch_remove),
        cmocka_unit_test(shapes__are_balanced_deterministic_and_not_linearly_trivial),
        cmocka_unit_test(dataset_view__augments_by_seed_epoch_and_sample),
        cmocka_unit_test(loader_get__gives_the_same_batches_whoever_makes_them),
        cmocka_unit_test(loader_peek__shows_what_the_next_get_gives),
        cmocka_unit_test(loader_get__says_of_several_failures_the_first),
        cmocka_unit_test(loader_get__counts_the_targets_of_masked_tokens),
        cmocka_unit_test(phrases__have_the_same_tokens_and_labels_when_asked_for_apart),
        cmocka_unit_test_setup_teardown(dataset_open__refuses_data_that_do_not_fit_the_model,
                                        scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
