/* exec/data/idx.c - the MNIST family: IDX files, plain or gzip.
 *
 * An IDX file is two zero bytes, a type (8: unsigned byte), the number of dimensions, the
 * dimensions as big-endian 32-bit counts, then the data, last dimension fastest. Source:
 * yann.lecun.com/exdb/mnist, "The IDX file format". data.path holds train-images-idx3-ubyte,
 * train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each with or without
 * .gz, or with a dot in place of the second hyphen, as some archives unpack. Images are kept in
 * memory as bytes and normalised by the mean and deviation of the training images. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/data/dataset.h"
#include "exec/data/vocab.h"
#include "partition/base/units.h"

enum { MAX_BYTES = 1 << 30, IDX_UBYTE = 8, IDX_MAX_DIMS = 3, MAX_SIDE = 4096 };

struct idx {
    /* Owned: the whole files, headers included. */
    unsigned char *images[SPLIT_COUNT], *labels[SPLIT_COUNT];
    int64_t first_pixel, first_label;
    float mean, deviation;
};

static void idx_clear(struct dataset *dataset)
{
    struct idx *idx = dataset->ctx;
    for (int split = 0; idx && split < SPLIT_COUNT; split++) {
        free(idx->images[split]);
        free(idx->labels[split]);
    }
    free(idx);
    dataset->ctx = NULL;
}

/* The path of a file under one of its names; of the first if it has none. */
static enum status find_idx(const char *dir, const char *name, char **path, struct err *err)
{
    const int stem = (int)(strstr(name, "-idx") - name);
    for (int i = 0; i <= 4; i++) { /* the last is the first again */
        free(*path);
        if (asprintf(path, "%s/%.*s%c%s%s", dir, stem, name, i & 2 ? '.' : '-', name + stem + 1,
                     i & 1 ? ".gz" : "") < 0) {
            *path = NULL;
            return err_nomem(err);
        }
        if (access(*path, F_OK) == 0)
            break;
    }
    return OK;
}

/* Reads one file with num_dims dimensions. *path (new; may be NULL) receives the name of the file
 * that was read. */
static enum status read_idx(const char *dir, const char *name, int num_dims, unsigned char **bytes,
                            int64_t *dims, char **path, struct err *err)
{
    char *text = NULL;
    int64_t num_bytes = 0, elems = 1, header = 4 + 4 * (int64_t)num_dims;
    const unsigned char *p;
    enum status rc;
    rc = find_idx(dir, name, path, err);
    if (rc != OK)
        return rc;
    rc = data_read_file(*path, MAX_BYTES, &text, &num_bytes, err);
    if (rc != OK)
        return rc;
    p = (const unsigned char *)text;
    if (num_bytes < header || p[0] || p[1] || p[2] != IDX_UBYTE || p[3] != num_dims) {
        rc = err_set(err, ERR_INPUT,
                     "'%s' is not an IDX file of unsigned bytes with %d dimensions: it begins "
                     "%02x%02x%02x%02x "
                     "and has %lld bytes",
                     *path, num_dims, num_bytes > 0 ? p[0] : 0, num_bytes > 1 ? p[1] : 0,
                     num_bytes > 2 ? p[2] : 0, num_bytes > 3 ? p[3] : 0, (long long)num_bytes);
        goto out;
    }
    for (int d = 0; d < num_dims; d++) {
        const unsigned char *q = p + 4 + 4 * d;
        dims[d] = (int64_t)q[0] << 24 | q[1] << 16 | q[2] << 8 | q[3];
        if (dims[d] < 1 || !mul_ok(elems, dims[d], &elems)) {
            rc =
                err_set(err, ERR_INPUT, "'%s': dimension %d is %lld", *path, d, (long long)dims[d]);
            goto out;
        }
    }
    if (num_bytes - header != elems) {
        rc = err_set(err, ERR_INPUT, "'%s' must have %lld bytes of data by its header, got %lld",
                     *path, (long long)elems, (long long)(num_bytes - header));
        goto out;
    }
    *bytes = (unsigned char *)text;
    text = NULL;
out:
    free(text);
    return rc;
}

static enum status idx_sample(const struct dataset *dataset, enum split split, int64_t id,
                              const struct sample_out *out, struct err *err)
{
    const struct idx *idx = dataset->ctx;
    int64_t pixels = (int64_t)dataset->image * dataset->image;
    (void)err;
    if (out->labels)
        out->labels[0] = idx->labels[split][idx->first_label + id];
    if (out->image) {
        const unsigned char *from = idx->images[split] + idx->first_pixel + id * pixels;
        for (int64_t p = 0; p < pixels; p++)
            out->image[p] = ((float)from[p] / 255.0f - idx->mean) / idx->deviation;
    }
    return OK;
}

static enum status read_split(struct idx *idx, const char *dir, enum split split, int classes,
                              int64_t *count, int *side, struct err *err)
{
    static const char *const images[] = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"};
    static const char *const labels[] = {"train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"};
    int64_t dims[IDX_MAX_DIMS], num_labels = 0;
    char *image_path = NULL, *label_path = NULL;
    enum status rc = read_idx(dir, images[split], 3, &idx->images[split], dims, &image_path, err);
    THEN(read_idx(dir, labels[split], 1, &idx->labels[split], &num_labels, &label_path, err));
    if (rc == OK && (dims[1] != dims[2] || dims[1] > MAX_SIDE))
        rc = err_set(err, ERR_INPUT, "'%s': images must be square and at most %d, got %lld x %lld",
                     image_path, MAX_SIDE, (long long)dims[1], (long long)dims[2]);
    if (rc == OK && *side && dims[1] != *side)
        rc = err_set(err, ERR_INPUT, "'%s' has images of %lld pixels, the training set of %d",
                     image_path, (long long)dims[1], *side);
    if (rc == OK && num_labels != dims[0])
        rc = err_set(err, ERR_INPUT, "'%s' has %lld labels, '%s' %lld images", label_path,
                     (long long)num_labels, image_path, (long long)dims[0]);
    for (int64_t i = 0; rc == OK && i < num_labels; i++) {
        int label = idx->labels[split][idx->first_label + i];
        if (label >= classes)
            rc = err_set(err, ERR_INPUT, "'%s': label of record %lld must be 0..%d, got %d",
                         label_path, (long long)i, classes - 1, label);
    }
    if (rc == OK) {
        *count = dims[0];
        *side = (int)dims[1];
    }
    free(image_path);
    free(label_path);
    return rc;
}

enum status idx_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    struct dataset got = {.channels = 1,
                          .labels_per_sample = 1,
                          .targets_per_sample = 1,
                          .classes = job->model.classes,
                          .sample = idx_sample,
                          .clear = idx_clear};
    struct idx *idx = calloc(1, sizeof *idx);
    enum status rc = OK;
    if (!idx)
        return err_nomem(err);
    got.ctx = idx;
    idx->first_pixel = 16;
    idx->first_label = 8;
    for (int split = 0; rc == OK && split <= SPLIT_TEST; split++)
        rc = read_split(idx, job->data.path, split, job->model.classes, &got.num_samples[split],
                        &got.image, err);
    if (rc == OK) {
        /* Summed in integers, so that every rank and machine gets the same values. */
        int64_t n = got.num_samples[SPLIT_TRAIN] * got.image * got.image, sum = 0, squares = 0;
        const unsigned char *p = idx->images[SPLIT_TRAIN] + idx->first_pixel;
        for (int64_t i = 0; i < n; i++) {
            sum += p[i];
            squares += p[i] * p[i];
        }
        double mean = (double)sum / (double)n;
        double variance = (double)squares / (double)n - mean * mean;
        idx->mean = (float)(mean / 255);
        idx->deviation = variance > 1 ? (float)(sqrt(variance) / 255) : 1.0f;
        got.pixel_mean[0] = idx->mean;
        got.pixel_std[0] = idx->deviation;
    }
    return dataset_hand_over(rc, &got, dataset);
}
