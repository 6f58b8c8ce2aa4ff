/* exec/data/text.c - plain text for language models.
 *
 * data.path is a file, or JSON lines (text_lines.h), or a folder with train.txt and test.txt, or a
 * folder with input.txt. A single file is split: the last tenth of its tokens is the test split.
 * Tokens: without data.vocab a token is a byte; with a tokenizer.json its tokens; with a vocab.json
 * the tokenizer is GPT-2's (data.merges, or merges.txt beside it); with a vocab.txt it is
 * WordPiece, for masked language models. Causal models read consecutive windows of seq tokens; the
 * label of a token is its successor. Masked models read [CLS] window [SEP]. 15 % of the tokens are
 * predicted (masking.h): 80 % of these are shown as [MASK], 10 % as a random token, 10 % unchanged
 * (Devlin et al. 2018, section 3.1). Read text_open() first, then read_all(), causal_sample() and
 * masked_sample(). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "exec/data/dataset.h"
#include "exec/data/masking.h"
#include "exec/data/text_lines.h"
#include "profiles/json/fields.h"

enum { MAX_BYTES = 1 << 30, NO_LABEL = -100, TEST_PART = 10 };

struct text {
    struct bert_tokens bert; /* of causal models: the tokenizer alone */
    bool masked;
    int32_t *ids[SPLIT_COUNT]; /* owned; if one file was split, [SPLIT_TEST] points into the block
                                  of [SPLIT_TRAIN] */
    int64_t count[SPLIT_COUNT];
    bool shared; /* one file was split */
};

static void text_clear(struct dataset *dataset)
{
    struct text *text = dataset->ctx;
    if (!text)
        return;
    tokenizer_free(text->bert.tokenizer);
    free(text->ids[SPLIT_TRAIN]);
    if (!text->shared)
        free(text->ids[SPLIT_TEST]);
    free(text->ids[SPLIT_VALID]);
    free(text);
    dataset->ctx = NULL;
}

static enum status open_tokenizer(const struct job *job, struct text *text, struct err *err)
{
    if (text->masked)
        return dataset_wordpiece(job, &text->bert, err);
    enum status rc = tokenizer_open(job->data.vocab, job->data.merges, job->data.lower_case,
                                    &text->bert.tokenizer, err);
    if (rc == OK)
        tokenizer_find_special(text->bert.tokenizer, job->data.special_tokens);
    THEN(dataset_vocab_fits(job, tokenizer_size(text->bert.tokenizer), err));
    return rc;
}

static enum status read_tokens(const struct text *text, const char *path, int32_t **ids,
                               int64_t *count, struct err *err)
{
    struct token_list tokens = {0};
    char *bytes = NULL;
    int64_t n = 0;
    enum status rc = data_read_text(path, MAX_BYTES, &bytes, &n, err);
    THEN(tokenizer_encode(text->bert.tokenizer, bytes, (size_t)n, text->masked ? 0 : ENCODE_AROUND,
                          &tokens, err));
    if (rc == OK) {
        *count = tokens.count;
        *ids = malloc(*count ? (size_t)*count * sizeof **ids : 1);
        if (!*ids)
            rc = err_nomem(err);
    }
    for (int64_t i = 0; rc == OK && i < *count; i++)
        (*ids)[i] = tokens.at[i].id;
    token_list_clear(&tokens);
    free(bytes);
    return rc;
}

static enum status read_all(const char *path, struct text *text, struct err *err)
{
    struct stat st;
    char *train = NULL, *test = NULL;
    enum status rc;
    if (stat(path, &st) != 0)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", path, strerror(errno));
    if (asprintf(&train, "%s/train.txt", path) < 0)
        train = NULL;
    if (asprintf(&test, "%s/test.txt", path) < 0)
        test = NULL;
    if (!train || !test) {
        rc = err_nomem(err);
        goto out;
    }
    if (S_ISDIR(st.st_mode) && stat(train, &st) == 0) {
        rc = read_tokens(text, train, &text->ids[SPLIT_TRAIN], &text->count[SPLIT_TRAIN], err);
        THEN(read_tokens(text, test, &text->ids[SPLIT_TEST], &text->count[SPLIT_TEST], err));
        goto out;
    }
    free(train);
    if (asprintf(&train, "%s%s", path, S_ISDIR(st.st_mode) ? "/input.txt" : "") < 0) {
        train = NULL;
        rc = err_nomem(err);
        goto out;
    }
    text->shared = true;
    rc = read_tokens(text, train, &text->ids[SPLIT_TRAIN], &text->count[SPLIT_TRAIN], err);
    if (rc == OK) {
        int64_t all = text->count[SPLIT_TRAIN];
        text->count[SPLIT_TEST] = all / TEST_PART;
        text->count[SPLIT_TRAIN] = all - text->count[SPLIT_TEST];
        text->ids[SPLIT_TEST] = text->ids[SPLIT_TRAIN] + text->count[SPLIT_TRAIN];
    }
out:
    free(train);
    free(test);
    return rc;
}

static enum status causal_sample(const struct dataset *dataset, enum split split, int64_t id,
                                 const struct sample_out *out, struct err *err)
{
    const struct text *text = dataset->ctx;
    const int32_t *ids = text->ids[split] + id * dataset->seq;
    size_t bytes = (size_t)dataset->seq * sizeof *ids;
    (void)err;
    if (out->length)
        out->length[0] = dataset->seq;
    if (out->tokens)
        memcpy(out->tokens, ids, bytes);
    if (out->token_types)
        memset(out->token_types, 0, bytes);
    if (out->labels)
        memcpy(out->labels, ids + 1, bytes);
    return OK;
}

static enum status masked_sample(const struct dataset *dataset, enum split split, int64_t id,
                                 const struct sample_out *out, struct err *err)
{
    const struct text *text = dataset->ctx;
    int inside = dataset->seq - 2;
    const int32_t *ids = text->ids[split] + id * inside;
    struct masking masks = masking_start(dataset->seed, split, out->epoch, id, inside);
    const int size = tokenizer_size(text->bert.tokenizer);
    (void)err;
    if (out->length)
        out->length[0] = dataset->seq;
    for (int i = 0; i < dataset->seq; i++) {
        int32_t token = i == 0 ? text->bert.cls : text->bert.sep, shown, label = NO_LABEL;
        if (i > 0 && i <= inside)
            token = ids[i - 1];
        shown = token;
        if (i > 0 && i <= inside && masking_next(&masks)) {
            uint64_t index = (UINT64_C(1) << 32) + 2 * (uint64_t)i;
            double draw = counter_unit(masks.key, index);
            label = token;
            if (draw < .8)
                shown = text->bert.mask;
            else if (draw < .9)
                shown = (int32_t)(counter_bits(masks.key, index + 1) % (uint64_t)size);
        }
        if (out->tokens)
            out->tokens[i] = shown;
        if (out->token_types)
            out->token_types[i] = 0;
        if (out->labels)
            out->labels[i] = label;
    }
    return OK;
}

enum status text_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    const struct model *model = &job->model;
    const char *name = dataset_job_name(job);
    bool causal = model->task == TASK_CAUSAL_LM;
    struct dataset got = {.seq = model->seq,
                          .labels_per_sample = model->seq,
                          .targets_per_sample =
                              causal ? model->seq : (int)model_masked_of(model->seq - 2),
                          .classes = model->vocab,
                          .seed = job->train.seed,
                          .sample = causal ? causal_sample : masked_sample,
                          .clear = text_clear};
    struct text *text;
    enum status rc = OK;
    if (!causal && model->task != TASK_MLM)
        return err_set(err, ERR_INPUT,
                       "%s: data.kind text is for language models (gpt, or bert with task mlm), "
                       "model is '%s'",
                       name, model->name);
    if (model->seq < 4)
        return err_set(err, ERR_INPUT, "%s: model.seq must be at least 4 for texts, got %d", name,
                       model->seq);
    if (!causal && !job->data.vocab)
        return err_set(
            err, ERR_INPUT,
            "%s: data.vocab must be a vocab.txt or tokenizer.json for masked models, got "
            "nothing",
            name);
    if (causal && text_lines_at(job->data.path))
        return text_lines_open(job, dataset, err);
    text = calloc(1, sizeof *text);
    if (!text)
        return err_nomem(err);
    got.ctx = text;
    text->masked = !causal;
    rc = open_tokenizer(job, text, err);
    if (rc == OK && !causal && text->bert.mask < 0)
        rc = err_set(err, ERR_INPUT, "'%s' has no [MASK]", job->data.vocab);
    THEN(read_all(job->data.path, text, err));
    if (rc == OK && dataset_valid_path(job))
        rc = read_tokens(text, job->data.valid, &text->ids[SPLIT_VALID], &text->count[SPLIT_VALID],
                         err);
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++) {
        if (!dataset_reads(job, split))
            continue;
        int64_t n =
            causal ? (text->count[split] - 1) / model->seq : text->count[split] / (model->seq - 2);
        got.num_samples[split] = n;
        if (n < 1)
            rc = err_set(err, ERR_INPUT,
                         "'%s': the %s split has %lld tokens, too few for one window of %d",
                         job->data.path, dataset_split_name(split), (long long)text->count[split],
                         model->seq);
    }
    if (rc == OK)
        got.lower_case = tokenizer_lowers(text->bert.tokenizer);
    return dataset_hand_over(rc, &got, dataset);
}
