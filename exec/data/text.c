/* exec/data/text.c - a plain text file as bytes, for byte-level language models.
 *
 * The last tenth of the file is the test split. Sample i of a split is its bytes [i * seq, (i + 1)
 * * seq), the target of each byte is the one behind it; a rest shorter than seq is left out. Tokens
 * are byte values, so the model needs a vocabulary of at least 256. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/data/dataset.h"

enum { BYTE_VALUES = 256, TEST_SHARE = 10 };

struct text {
    char *path;
    int fd;
    int64_t first[SPLIT_COUNT]; /* byte at which a split begins */
};

static void text_clear(struct dataset *dataset)
{
    struct text *text = dataset->ctx;
    if (!text)
        return;
    if (text->fd >= 0)
        close(text->fd);
    free(text->path);
    free(text);
    dataset->ctx = NULL;
}

static enum status text_sample(const struct dataset *dataset, enum split split, int64_t id,
                               const struct sample_out *out, struct err *err)
{
    const struct text *text = dataset->ctx;
    int64_t want = dataset->seq + 1;
    unsigned char *bytes = malloc((size_t)want);
    ssize_t got;
    if (!bytes)
        return err_nomem(err);
    got = pread(text->fd, bytes, (size_t)want, text->first[split] + id * dataset->seq);
    for (int i = 0; got == want && i < dataset->seq; i++) {
        if (out->tokens)
            out->tokens[i] = bytes[i];
        if (out->token_types)
            out->token_types[i] = 0;
        if (out->labels)
            out->labels[i] = bytes[i + 1];
    }
    if (out->length)
        out->length[0] = dataset->seq;
    free(bytes);
    if (got != want)
        return err_set(err, ERR_SYSTEM, "cannot read '%s': %s", text->path,
                       got < 0 ? strerror(errno) : "it shrank");
    return OK;
}

static int64_t limited(int64_t count, int64_t limit)
{
    return limit > 0 && limit < count ? limit : count;
}

enum status text_open(const char *path, const struct model *model, int64_t max_train,
                      int64_t max_test, struct dataset *dataset, struct err *err)
{
    struct dataset got = {.seq = model->seq,
                          .labels_per_sample = model->seq,
                          .targets_per_sample = model->seq,
                          .classes = model->vocab,
                          .sample = text_sample,
                          .clear = text_clear};
    struct text *text;
    struct stat st;
    enum status rc = OK;
    if (model->task != TASK_CAUSAL_LM)
        return err_set(err, ERR_INPUT, "data.kind text needs a causal language model, '%s' is none",
                       model->name);
    if (model->vocab < BYTE_VALUES)
        return err_set(err, ERR_INPUT, "data.kind text needs model.vocab of at least %d, got %d",
                       BYTE_VALUES, model->vocab);
    text = calloc(1, sizeof *text);
    if (!text)
        return err_nomem(err);
    got.ctx = text;
    text->fd = -1;
    if (asprintf(&text->path, "%s%s", path,
                 stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? "/input.txt" : "") < 0) {
        text->path = NULL;
        rc = err_nomem(err);
        goto out;
    }
    text->fd = open(text->path, O_RDONLY | O_CLOEXEC);
    if (text->fd < 0 || fstat(text->fd, &st) != 0) {
        rc = err_set(err, ERR_SYSTEM, "cannot open '%s': %s", text->path, strerror(errno));
        goto out;
    }
    text->first[SPLIT_TEST] = (int64_t)st.st_size - (int64_t)st.st_size / TEST_SHARE;
    got.num_samples[SPLIT_TRAIN] = (text->first[SPLIT_TEST] - 1) / model->seq;
    got.num_samples[SPLIT_TEST] = ((int64_t)st.st_size - text->first[SPLIT_TEST] - 1) / model->seq;
    if (got.num_samples[SPLIT_TRAIN] < 1 || got.num_samples[SPLIT_TEST] < 1) {
        rc = err_set(err, ERR_INPUT, "'%s' has %lld bytes, must be at least %lld for model.seq %d",
                     text->path, (long long)st.st_size,
                     (long long)TEST_SHARE * ((long long)model->seq + 2), model->seq);
        goto out;
    }
    got.num_samples[SPLIT_TRAIN] = limited(got.num_samples[SPLIT_TRAIN], max_train);
    got.num_samples[SPLIT_TEST] = limited(got.num_samples[SPLIT_TEST], max_test);
    *dataset = got;
    got = (struct dataset){0};
out:
    if (got.clear)
        got.clear(&got);
    return rc;
}
