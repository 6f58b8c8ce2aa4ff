/* exec/data/cifar.c - CIFAR-10 and CIFAR-100 in their official binary format.
 *
 * A record is its label bytes (CIFAR-10: the class; CIFAR-100: the coarse, then the fine class) and
 * 3,072 pixel bytes: 1,024 red, 1,024 green, 1,024 blue, each plane row by row. Source:
 * www.cs.toronto.edu/~kriz/cifar.html. A file may hold any number of records. A sample is read with
 * pread() when it is asked for: all ranks of a node share the page cache, and a file that shrinks
 * during the run gives an error instead of a signal (as a mapping would). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/base/file_part.h"
#include "exec/data/dataset.h"
#include "profiles/base/whole_file.h"

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE, MAX_FILES = 6, CHUNK_RECORDS = 256 };

/* Mean and standard deviation of each channel of pixels / 255, over the 50,000 training images. */
static const float cifar10_mean[3] = {0.4914f, 0.4822f, 0.4465f};
static const float cifar10_std[3] = {0.2470f, 0.2435f, 0.2616f};
static const float cifar100_mean[3] = {0.5071f, 0.4865f, 0.4409f};
static const float cifar100_std[3] = {0.2673f, 0.2564f, 0.2762f};

struct cifar_file {
    char *path;
    int fd;
    int64_t first; /* sample id of the file's first record */
    int64_t count;
};

struct cifar {
    int label_bytes; /* label bytes of a record; the last one is the label */
    struct cifar_file files[SPLIT_COUNT][MAX_FILES];
    int num_files[SPLIT_COUNT];
};

static void cifar_clear(struct dataset *dataset)
{
    struct cifar *cifar = dataset->ctx;
    if (!cifar)
        return;
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (int i = 0; i < cifar->num_files[split]; i++) {
            close(cifar->files[split][i].fd);
            free(cifar->files[split][i].path);
        }
    free(cifar);
    dataset->ctx = NULL;
}

/* Checks that every label of the file is in range. */
static enum status check_file(const struct cifar *cifar, const struct cifar_file *file, int classes,
                              struct err *err)
{
    int record = cifar->label_bytes + PIXELS;
    unsigned char *chunk = malloc((size_t)record * CHUNK_RECORDS);
    enum status rc = OK;
    if (!chunk)
        return err_nomem(err);
    for (int64_t at = 0; rc == OK && at < file->count; at += CHUNK_RECORDS) {
        int64_t n = file->count - at < CHUNK_RECORDS ? file->count - at : CHUNK_RECORDS;
        if (!file_read_at(file->fd, chunk, n * record, at * record))
            rc = err_set(err, ERR_SYSTEM, "cannot read '%s': %s", file->path, file_read_why());
        for (int64_t i = 0; rc == OK && i < n; i++) {
            int label = chunk[i * record + cifar->label_bytes - 1];
            if (label >= classes)
                rc = err_set(err, ERR_INPUT, "'%s': label of record %lld must be 0..%d, got %d",
                             file->path, (long long)(at + i), classes - 1, label);
        }
    }
    free(chunk);
    return rc;
}

/* Opens and checks one file of a split, in a folder or (dir NULL) by its path. A missing file is an
 * error only if `required`. */
static enum status add_file(struct cifar *cifar, enum split split, const char *dir,
                            const char *name, int classes, bool required, int64_t *total,
                            struct err *err)
{
    struct cifar_file file = {.fd = -1};
    struct stat st;
    int record = cifar->label_bytes + PIXELS;
    enum status rc;
    if (asprintf(&file.path, "%s%s%s", dir ? dir : "", dir ? "/" : "", name) < 0)
        return err_nomem(err);
    rc = required || access(file.path, F_OK) == 0
             ? input_open(file.path, "open", &file.fd, &st, err)
             : OK;
    if (rc != OK || file.fd < 0)
        goto out;
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': not a regular file", file.path);
        goto out;
    }
    if (st.st_size == 0 || st.st_size % record != 0) {
        rc = err_set(err, ERR_INPUT,
                     "'%s' has %lld bytes, must be a positive multiple of %d (one record)",
                     file.path, (long long)st.st_size, record);
        goto out;
    }
    file.count = st.st_size / record;
    file.first = *total;
    rc = check_file(cifar, &file, classes, err);
    if (rc != OK)
        goto out;
    *total += file.count;
    cifar->files[split][cifar->num_files[split]++] = file;
    file = (struct cifar_file){.fd = -1};
out:
    if (file.fd >= 0)
        close(file.fd);
    free(file.path);
    return rc;
}

static enum status cifar_sample(const struct dataset *dataset, enum split split, int64_t id,
                                const struct sample_out *out, struct err *err)
{
    const struct cifar *cifar = dataset->ctx;
    const float *mean = dataset->classes == 10 ? cifar10_mean : cifar100_mean;
    const float *std = dataset->classes == 10 ? cifar10_std : cifar100_std;
    int record = cifar->label_bytes + PIXELS;
    unsigned char bytes[2 + PIXELS];
    int i = 0;
    while (id >= cifar->files[split][i].first + cifar->files[split][i].count)
        i++;
    const struct cifar_file *file = &cifar->files[split][i];
    if (!file_read_at(file->fd, bytes, record, (id - file->first) * record))
        return err_set(err, ERR_SYSTEM, "cannot read record %lld of '%s': %s",
                       (long long)(id - file->first), file->path, file_read_why());
    if (out->labels)
        out->labels[0] = bytes[cifar->label_bytes - 1];
    if (out->image) {
        const unsigned char *pixel = bytes + cifar->label_bytes;
        float *to = out->image;
        for (int c = 0; c < 3; c++) {
            float scale = 1.0f / (255.0f * std[c]), shift = mean[c] / std[c];
            for (int p = 0; p < SIDE * SIDE; p++)
                *to++ = (float)*pixel++ * scale - shift;
        }
    }
    return OK;
}

enum status cifar_open(const char *dir, const char *valid, int classes, struct dataset *dataset,
                       struct err *err)
{
    struct dataset got = {.channels = 3,
                          .image = SIDE,
                          .labels_per_sample = 1,
                          .targets_per_sample = 1,
                          .classes = classes,
                          .sample = cifar_sample,
                          .clear = cifar_clear};
    struct cifar *cifar = calloc(1, sizeof *cifar);
    enum status rc = OK;
    if (!cifar)
        return err_nomem(err);
    got.ctx = cifar;
    cifar->label_bytes = classes == 10 ? 1 : 2;
    if (classes == 10) {
        for (int i = 1; rc == OK && i <= 5; i++) {
            char name[32];
            snprintf(name, sizeof name, "data_batch_%d.bin", i);
            /* Only the first file is required, so a folder without training files names it as
             * missing. */
            rc = add_file(cifar, SPLIT_TRAIN, dir, name, classes, i == 1,
                          &got.num_samples[SPLIT_TRAIN], err);
        }
    } else {
        rc = add_file(cifar, SPLIT_TRAIN, dir, "train.bin", classes, true,
                      &got.num_samples[SPLIT_TRAIN], err);
    }
    THEN(add_file(cifar, SPLIT_TEST, dir, classes == 10 ? "test_batch.bin" : "test.bin", classes,
                  true, &got.num_samples[SPLIT_TEST], err));
    memcpy(got.pixel_mean, classes == 10 ? cifar10_mean : cifar100_mean, sizeof got.pixel_mean);
    memcpy(got.pixel_std, classes == 10 ? cifar10_std : cifar100_std, sizeof got.pixel_std);
    if (rc == OK && valid)
        rc = add_file(cifar, SPLIT_VALID, NULL, valid, classes, true, &got.num_samples[SPLIT_VALID],
                      err);
    return dataset_hand_over(rc, &got, dataset);
}
