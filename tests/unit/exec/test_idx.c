/* IDX files made here, plain and gzip; no real MNIST is at hand. */
#include <zlib.h>

#include "exec/data/dataset_open.h"
#include "exec/data/dataset.h"
#include "tests/unit/fail_malloc.h" /* before data_case.h, which then tests allocations too */
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE };
static const char *const model = "vit-tiny:image=8,patch=4,channels=1,classes=3,layers=1";

/* Images: pixel p of image i is (11 i + p) % 256; labels i % 3. */
static size_t make_images(unsigned char *to, int n)
{
    const unsigned char header[16] = {0, 0, 8, 3,    0, 0, 0, (unsigned char)n,
                                      0, 0, 0, SIDE, 0, 0, 0, SIDE};
    memcpy(to, header, sizeof header);
    for (int i = 0; i < n * PIXELS; i++)
        to[16 + i] = (unsigned char)(11 * (i / PIXELS) + i % PIXELS);
    return 16 + (size_t)n * PIXELS;
}

static size_t make_labels(unsigned char *to, int n)
{
    const unsigned char header[8] = {0, 0, 8, 1, 0, 0, 0, (unsigned char)n};
    memcpy(to, header, sizeof header);
    for (int i = 0; i < n; i++)
        to[8 + i] = (unsigned char)(i % 3);
    return 8 + (size_t)n;
}

static void put_gzip(const char *name, const void *bytes, size_t count)
{
    gzFile out = gzopen(in_folder(name), "wb");
    assert_non_null(out);
    assert_int_equal(gzwrite(out, bytes, (unsigned)count), count);
    assert_int_equal(gzclose(out), Z_OK);
}

static void put_all(void)
{
    unsigned char bytes[16 + 20 * PIXELS];
    put_bytes("train-images-idx3-ubyte", bytes, make_images(bytes, 12));
    put_gzip("train-labels-idx1-ubyte.gz", bytes, make_labels(bytes, 12));
    put_gzip("t10k-images-idx3-ubyte.gz", bytes, make_images(bytes, 5));
    put_bytes("t10k-labels-idx1-ubyte", bytes, make_labels(bytes, 5));
}

static void idx_open__reads_plain_and_gzip_files(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    float image[PIXELS];
    int32_t label;
    const struct sample_out out = {.image = image, .labels = &label};
    double mean = 0, squares = 0;
    (void)state;
    put_all();
    make_job(&job, model, DATA_IDX, "", NULL);
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(data.channels, 1);
    assert_int_equal(data.image, SIDE);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 12);
    assert_int_equal(data.num_samples[SPLIT_TEST], 5);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(data.sample(&data, SPLIT_TRAIN, i, &out, NULL), OK);
        assert_int_equal(label, i % 3);
        for (int p = 0; p < PIXELS; p++) {
            mean += image[p] / (12 * PIXELS);
            squares += (double)image[p] * image[p] / (12 * PIXELS);
        }
        /* Steps of one grey level are even. */
        assert_true(fabsf((image[9] - image[8]) * 11 - (image[16] - image[5])) < 1e-4f);
    }
    assert_true(fabs(mean) < 1e-5);
    assert_true(fabs(squares - 1) < 1e-4);
    assert_int_equal(data.sample(&data, SPLIT_TEST, 4, &out, NULL), OK);
    assert_int_equal(label, 1);
    dataset_clear(&data);
    /* Names as some archives unpack. */
    char plain[256];
    strcpy(plain, in_folder("train-images-idx3-ubyte"));
    assert_int_equal(rename(plain, in_folder("train-images.idx3-ubyte")), 0);
    strcpy(plain, in_folder("t10k-images-idx3-ubyte.gz"));
    assert_int_equal(rename(plain, in_folder("t10k-images.idx3-ubyte.gz")), 0);
    job.data.test_samples = 2;
    assert_int_equal(dataset_open(&job, &data, NULL), OK);
    assert_int_equal(data.num_samples[SPLIT_TEST], 2);
    dataset_clear(&data);
    open_without_memory(&job);
    job_clear(&job);
}

static void idx_open__names_file_value_and_limit_of_bad_input(void **state)
{
    unsigned char bytes[16 + 20 * PIXELS];
    struct job job;
    size_t n;
    (void)state;
    put_all();
    make_job(&job, model, DATA_IDX, "", NULL);
    n = make_images(bytes, 12);
    put_bytes("train-images-idx3-ubyte", bytes, n - 1);
    refuse_open(&job, ERR_INPUT, "must have 768 bytes of data by its header, got 767");
    put_bytes("train-images-idx3-ubyte", bytes, 15);
    refuse_open(&job, ERR_INPUT, "is not an IDX file of unsigned bytes with 3 dimensions");
    put_bytes("train-images-idx3-ubyte", bytes, 0);
    refuse_open(&job, ERR_INPUT, "has 0 bytes");
    bytes[2] = 13;
    put_bytes("train-images-idx3-ubyte", bytes, n);
    refuse_open(&job, ERR_INPUT, "it begins 00000d03");
    bytes[2] = 8;
    memset(bytes + 4, 0xff, 12); /* counts whose product overflows */
    put_bytes("train-images-idx3-ubyte", bytes, n);
    refuse_open(&job, ERR_INPUT, "dimension 1 is 4294967295");
    make_images(bytes, 12);
    bytes[11] = 16;
    bytes[15] = 4;
    put_bytes("train-images-idx3-ubyte", bytes, n);
    refuse_open(&job, ERR_INPUT, "images must be square and at most 4096, got 16 x 4");
    put_bytes("train-images-idx3-ubyte", bytes, make_images(bytes, 11));
    refuse_open(&job, ERR_INPUT, "has 12 labels");
    put_bytes("train-images-idx3-ubyte", bytes, make_images(bytes, 12));
    n = make_labels(bytes, 5);
    bytes[8 + 3] = 3;
    put_bytes("t10k-labels-idx1-ubyte", bytes, n);
    refuse_open(&job, ERR_INPUT, "t10k-labels-idx1-ubyte': label of record 3 must be 0..2, got 3");
    put_bytes("t10k-labels-idx1-ubyte", bytes, make_labels(bytes, 5));
    unlink(in_folder("t10k-images-idx3-ubyte.gz"));
    refuse_open(&job, ERR_SYSTEM, "t10k-images-idx3-ubyte': No such file");
    put_all();
    /* A cut gzip stream: the file shorter by its last bytes. */
    assert_int_equal(truncate(in_folder("t10k-images-idx3-ubyte.gz"), 60), 0);
    refuse_open(&job, ERR_INPUT, "the gzip stream is cut off");
    put_all();
    model_clear(&job.model);
    assert_int_equal(model_parse("vit-tiny:image=16,patch=4,channels=1", &job.model, NULL), OK);
    refuse_open(&job, ERR_INPUT, "takes images of 16 pixels, the data have 8");
    model_clear(&job.model);
    assert_int_equal(model_parse("vit-tiny:image=8,patch=4", &job.model, NULL), OK);
    refuse_open(&job, ERR_INPUT, "takes 3 channels, the data have 1");
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(idx_open__reads_plain_and_gzip_files, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(idx_open__names_file_value_and_limit_of_bad_input,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
