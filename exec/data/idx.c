/* exec/data/idx.c - the IDX files of MNIST and its relatives.
 *
 * A file is a magic number (two zero bytes, 8 for unsigned bytes, the number of dimensions), the
 * dimensions as big-endian 32-bit numbers, then the bytes. Source: yann.lecun.com/exdb/mnist, "FILE
 * FORMATS". Images are normalised with the mean and standard deviation of MNIST's training pixels /
 * 255, also for its relatives. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/data/dataset.h"

enum { TYPE_UBYTE = 8, MAX_SIDE = 4096, CLASSES = 10 };
static const float idx_mean = 0.1307f, idx_std = 0.3081f;

struct idx_file {
    char *path;
    int fd;
    int64_t count, header_bytes;
};

struct idx {
    struct idx_file images[SPLIT_COUNT], labels[SPLIT_COUNT];
};

static void idx_clear(struct dataset *dataset)
{
    struct idx *idx = dataset->ctx;
    if (!idx)
        return;
    for (int split = 0; split < SPLIT_COUNT; split++) {
        struct idx_file *files[2] = {&idx->images[split], &idx->labels[split]};
        for (int i = 0; i < 2; i++) {
            if (files[i]->path && files[i]->fd >= 0)
                close(files[i]->fd);
            free(files[i]->path);
        }
    }
    free(idx);
    dataset->ctx = NULL;
}

static enum status read_at(const struct idx_file *file, void *to, int64_t bytes, int64_t at,
                           struct err *err)
{
    ssize_t got = pread(file->fd, to, (size_t)bytes, at);
    if (got != bytes)
        return err_set(err, ERR_SYSTEM, "cannot read '%s': %s", file->path,
                       got < 0 ? strerror(errno) : "it shrank");
    return OK;
}

/* Open and check against its own header; side gets the images' side. */
static enum status open_file(struct idx_file *file, const char *dir, const char *name, int ndim,
                             int *side, struct err *err)
{
    unsigned char header[16] = {0};
    int64_t dims[3] = {0}, want;
    struct stat st;
    enum status rc;
    file->header_bytes = 4 + 4 * ndim;
    file->fd = -1;
    if (asprintf(&file->path, "%s/%s", dir, name) < 0) {
        file->path = NULL;
        return err_nomem(err);
    }
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &st) != 0)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", file->path, strerror(errno));
    if (st.st_size < file->header_bytes)
        return err_set(err, ERR_INPUT, "'%s' has %lld bytes, its header alone takes %lld",
                       file->path, (long long)st.st_size, (long long)file->header_bytes);
    rc = read_at(file, header, file->header_bytes, 0, err);
    if (rc != OK)
        return rc;
    if (header[0] || header[1] || header[2] != TYPE_UBYTE || header[3] != ndim)
        return err_set(err, ERR_INPUT, "'%s' is not an IDX file of bytes in %d dimensions",
                       file->path, ndim);
    for (int d = 0; d < ndim; d++)
        for (int i = 0; i < 4; i++)
            dims[d] = dims[d] << 8 | header[4 + 4 * d + i];
    if (ndim == 3) {
        if (dims[1] != dims[2] || dims[1] < 1 || dims[1] > MAX_SIDE)
            return err_set(err, ERR_INPUT,
                           "'%s': images must be square, 1..%d a side, got %lldx%lld", file->path,
                           MAX_SIDE, (long long)dims[1], (long long)dims[2]);
        *side = (int)dims[1];
    }
    file->count = dims[0];
    want = file->header_bytes + dims[0] * (ndim == 3 ? dims[1] * dims[2] : 1);
    if (dims[0] < 1 || st.st_size != want)
        return err_set(err, ERR_INPUT, "'%s' has %lld bytes, must be %lld for %lld records",
                       file->path, (long long)st.st_size, (long long)want, (long long)dims[0]);
    return OK;
}

static enum status check_labels(const struct idx_file *file, struct err *err)
{
    unsigned char *labels = malloc((size_t)file->count); /* no more than the file's size */
    enum status rc;
    if (!labels)
        return err_nomem(err);
    rc = read_at(file, labels, file->count, file->header_bytes, err);
    for (int64_t i = 0; rc == OK && i < file->count; i++)
        if (labels[i] >= CLASSES)
            rc = err_set(err, ERR_INPUT, "'%s': label of record %lld must be 0..%d, got %d",
                         file->path, (long long)i, CLASSES - 1, labels[i]);
    free(labels);
    return rc;
}

static enum status idx_sample(const struct dataset *dataset, enum split split, int64_t id,
                              const struct sample_out *out, struct err *err)
{
    const struct idx *idx = dataset->ctx;
    const struct idx_file *images = &idx->images[split], *labels = &idx->labels[split];
    int64_t pixels = (int64_t)dataset->image * dataset->image;
    unsigned char label = 0, *bytes;
    enum status rc = read_at(labels, &label, 1, labels->header_bytes + id, err);
    if (rc != OK)
        return rc;
    if (out->labels)
        out->labels[0] = label;
    if (!out->image)
        return OK;
    bytes = malloc((size_t)pixels);
    if (!bytes)
        return err_nomem(err);
    rc = read_at(images, bytes, pixels, images->header_bytes + id * pixels, err);
    for (int64_t p = 0; rc == OK && p < pixels; p++)
        out->image[p] = ((float)bytes[p] / 255.0f - idx_mean) / idx_std;
    free(bytes);
    return rc;
}

enum status idx_open(const char *dir, int64_t max_train, int64_t max_test, struct dataset *dataset,
                     struct err *err)
{
    static const char *const names[SPLIT_COUNT][2] = {
        {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
        {"t10k-images-idx3-ubyte",  "t10k-labels-idx1-ubyte" }
    };
    const int64_t limit[SPLIT_COUNT] = {max_train, max_test};
    struct dataset got = {.channels = 1,
                          .labels_per_sample = 1,
                          .targets_per_sample = 1,
                          .classes = CLASSES,
                          .sample = idx_sample,
                          .clear = idx_clear};
    struct idx *idx = calloc(1, sizeof *idx);
    enum status rc = OK;
    if (!idx)
        return err_nomem(err);
    got.ctx = idx;
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++) {
        int side = 0;
        rc = open_file(&idx->images[split], dir, names[split][0], 3, &side, err);
        if (rc == OK)
            rc = open_file(&idx->labels[split], dir, names[split][1], 1, NULL, err);
        if (rc == OK)
            rc = check_labels(&idx->labels[split], err);
        if (rc == OK && idx->images[split].count != idx->labels[split].count)
            rc = err_set(err, ERR_INPUT, "'%s' holds %lld images, '%s' %lld labels",
                         idx->images[split].path, (long long)idx->images[split].count,
                         idx->labels[split].path, (long long)idx->labels[split].count);
        if (rc == OK && got.image && side != got.image)
            rc = err_set(err, ERR_INPUT, "'%s': images have %d pixels a side, the training ones %d",
                         idx->images[split].path, side, got.image);
        if (rc == OK && limit[split] > idx->labels[split].count)
            rc = err_set(err, ERR_INPUT, "'%s' holds %lld samples, the job asks for %lld",
                         idx->labels[split].path, (long long)idx->labels[split].count,
                         (long long)limit[split]);
        got.image = side;
        got.num_samples[split] = limit[split] ? limit[split] : idx->labels[split].count;
    }
    if (rc == OK)
        *dataset = got;
    else
        idx_clear(&got);
    return rc;
}
