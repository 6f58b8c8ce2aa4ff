/* JSON lines as packed windows (text_lines.h). text_lines_open() at the end first, then read_file(),
 * make_document() and place_document(). */
#include "exec/data/text_lines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "exec/data/chat.h"
#include "partition/base/arrays.h"
#include "profiles/json/json.h"

enum { MAX_BYTES = 1 << 30, NO_LABEL = -100, TEST_PART = 10 };

/* Windows of a split, seq entries each. */
struct windows {
    int32_t *ids, *labels,
        *first;                /* owned; token, label, where in the window its document begins */
    int64_t count, room;       /* entries */
    int64_t used;              /* of them, by documents; the rest of the window is free */
    int64_t documents, silent; /* silent: left out, since no token counts in the loss */
    double tokens, squares;    /* of documents, and of their lengths */
};

struct text_lines {
    struct tokenizer *tokenizer; /* owned */
    const char *vocab;           /* file of the tokenizer, borrowed; NULL: bytes */
    struct chat *chat;           /* owned; opened by the first row of messages */
    int32_t end;                 /* token after a document; -1: none */
    struct windows splits[SPLIT_COUNT];
    int64_t cut; /* documents that were cut off */
};

/* A document on its way. */
struct document {
    struct token_list tokens; /* owned; those with end > 0 count in the loss */
    bool goes_on;             /* may continue in the next window */
};

static void lines_clear(struct dataset *dataset)
{
    struct text_lines *lines = dataset->ctx;
    if (!lines)
        return;
    chat_free(lines->chat);
    tokenizer_free(lines->tokenizer);
    for (int s = 0; s < SPLIT_COUNT; s++) {
        free(lines->splits[s].ids);
        free(lines->splits[s].labels);
        free(lines->splits[s].first);
    }
    free(lines);
    dataset->ctx = NULL;
}

/* --- windows ---------------------------------------------------------------------------------- */

/* Begin a window, all padding. Padding sees itself alone: it is its own document. */
static enum status add_window(struct windows *w, int seq, struct err *err)
{
    int32_t **const arrays[] = {&w->ids, &w->labels, &w->first};
    int64_t room = 0;
    for (int i = 0; i < 3; i++) {
        room = w->room;
        if (!array_grow(arrays[i], w->count + seq, &room, sizeof **arrays[i]))
            return err_nomem(err);
    }
    w->room = room;
    for (int i = 0; i < seq; i++) {
        w->ids[w->count + i] = 0;
        w->labels[w->count + i] = NO_LABEL;
        w->first[w->count + i] = i;
    }
    w->used = w->count;
    w->count += seq;
    return OK;
}

/* Whether a token after the first, which is nobody's label, counts. */
static bool has_loss(const struct document *d, int64_t num_tokens)
{
    for (int64_t i = 1; i < num_tokens; i++)
        if (d->tokens.at[i].end > 0)
            return true;
    return false;
}

/* Write a document's tokens; the label of a token is its successor. The last one has no label. */
static enum status place_document(struct text_lines *lines, struct windows *w, int seq,
                                  const struct document *d, struct err *err)
{
    int64_t at = 0, n = d->tokens.count;
    enum status rc = OK;
    if (n > seq && !d->goes_on) {
        n = seq;
        lines->cut++;
    }
    if (!has_loss(d, n)) {
        w->silent++;
        return OK;
    }
    w->documents++;
    w->tokens += (double)n;
    w->squares += (double)n * (double)n;
    if (w->count - w->used < n && (rc = add_window(w, seq, err)) != OK)
        return rc;
    while (rc == OK && at + 1 < n) {
        const int64_t part = n - at < w->count - w->used ? n - at : w->count - w->used;
        const int64_t first = w->used - (w->count - seq);
        for (int64_t i = 0; i < part; i++, at++, w->used++) {
            w->ids[w->used] = d->tokens.at[at].id;
            w->first[w->used] = (int32_t)first;
            if (at + 1 < n && d->tokens.at[at + 1].end > 0)
                w->labels[w->used] = d->tokens.at[at + 1].id;
        }
        if (at + 1 < n)
            rc = add_window(w, seq, err);
    }
    return rc;
}

/* --- documents -------------------------------------------------------------------------------- */

static enum status append_text(const struct text_lines *lines, struct document *d, const char *text,
                               bool loss, struct err *err)
{
    const int64_t first = d->tokens.count;
    const enum status rc = tokenizer_encode(lines->tokenizer, text, strlen(text),
                                            first == 0 ? ENCODE_AROUND : 0, &d->tokens, err);
    for (int64_t i = first; rc == OK && i < d->tokens.count; i++)
        d->tokens.at[i].end = loss;
    return rc;
}

static enum status end_document(const struct text_lines *lines, struct document *d, struct err *err)
{
    const int64_t n = d->tokens.count;
    if (lines->end < 0)
        return OK;
    return token_list_add(&d->tokens,
                          (struct token){lines->end, 0, n > 0 && d->tokens.at[n - 1].end > 0}, err);
}

static enum status make_document(struct text_lines *lines, const struct json *row,
                                 struct document *d, struct err *err)
{
    const char *text = json_string(json_get(row, "text"));
    const char *prompt = json_string(json_get(row, "prompt"));
    const char *completion = json_string(json_get(row, "completion"));
    const struct json *messages = json_get(row, "messages");
    enum status rc = OK;
    if (text) {
        d->goes_on = true;
        rc = append_text(lines, d, text, true, err);
    } else if (prompt && completion) {
        rc = append_text(lines, d, prompt, false, err);
        THEN(append_text(lines, d, completion, true, err));
    } else if (messages && json_type(messages) == JSON_ARRAY) {
        if (!lines->chat)
            rc = chat_open(lines->vocab, lines->tokenizer, &lines->chat, err);
        return rc == OK ? chat_tokens(lines->chat, row, &d->tokens, err) : rc;
    } else {
        return err_set(err, ERR_INPUT,
                       "a line needs \"text\", \"prompt\" and \"completion\", or \"messages\"");
    }
    return rc == OK ? end_document(lines, d, err) : rc;
}

static enum status read_line(struct text_lines *lines, const char *line, int seq, struct windows *w,
                             struct err *err)
{
    struct json *row = NULL;
    struct document d = {0};
    enum status rc = json_parse(line, "the line", &row, err);
    if (rc == OK && json_type(row) != JSON_OBJECT)
        rc = err_set(err, ERR_INPUT, "a line must be an object, got %s",
                     json_type_name(json_type(row)));
    THEN(make_document(lines, row, &d, err));
    THEN(place_document(lines, w, seq, &d, err));
    json_free(row);
    token_list_clear(&d.tokens);
    return rc;
}

/* --- files ------------------------------------------------------------------------------------ */

static bool is_blank(const char *line)
{
    return line[strspn(line, " \t\r")] == '\0';
}

/* Read a file into a split; its last lines into `rest`, if that is not NULL. */
static enum status read_file(struct text_lines *lines, const char *path, int seq,
                             struct windows *into, struct windows *rest, struct err *err)
{
    char *text = NULL;
    int64_t bytes = 0, num_lines = 0, number = 0, line_number = 0;
    enum status rc = data_read_text(path, MAX_BYTES, &text, &bytes, err);
    for (int64_t i = 0; rc == OK && i < bytes; i++)
        text[i] = text[i] == '\n' ? '\0' : text[i];
    for (const char *line = text; rc == OK && line < text + bytes; line += strlen(line) + 1)
        num_lines += !is_blank(line);
    const int64_t tested = num_lines / TEST_PART > 0 ? num_lines / TEST_PART : 1;
    for (const char *line = text; rc == OK && line < text + bytes; line += strlen(line) + 1) {
        struct err why = {0};
        line_number++;
        if (is_blank(line))
            continue;
        struct windows *w = rest && number++ >= num_lines - tested ? rest : into;
        rc = read_line(lines, line, seq, w, &why);
        if (rc != OK)
            err_set(err, rc, "'%s' line %lld: %s", path, (long long)line_number, why.msg);
    }
    free(text);
    return rc;
}

static enum status read_files(const struct job *job, struct text_lines *lines, struct err *err)
{
    const int seq = job->model.seq;
    struct windows *w = lines->splits;
    struct stat st;
    char *path = NULL;
    enum status rc = OK;
    if (stat(job->data.path, &st) == 0 && S_ISDIR(st.st_mode)) {
        static const char *const names[] = {"train.jsonl", "test.jsonl"};
        for (int i = 0; i < 2 && rc == OK; i++) {
            if (asprintf(&path, "%s/%s", job->data.path, names[i]) < 0)
                return err_nomem(err);
            rc = read_file(lines, path, seq, &w[i ? SPLIT_TEST : SPLIT_TRAIN], NULL, err);
            free(path);
        }
    } else {
        rc = read_file(lines, job->data.path, seq, &w[SPLIT_TRAIN], &w[SPLIT_TEST], err);
    }
    if (rc == OK && dataset_valid_path(job))
        rc = read_file(lines, job->data.valid, seq, &w[SPLIT_VALID], NULL, err);
    return rc;
}

bool text_lines_at(const char *path)
{
    const size_t n = strlen(path);
    struct stat st;
    char *inside = NULL;
    if (n > 6 && strcmp(path + n - 6, ".jsonl") == 0)
        return true;
    if (asprintf(&inside, "%s/train.jsonl", path) < 0)
        return false;
    const bool found = stat(inside, &st) == 0;
    free(inside);
    return found;
}

static enum status lines_sample(const struct dataset *dataset, enum split split, int64_t id,
                                const struct sample_out *out, struct err *err)
{
    const struct windows *w = &((const struct text_lines *)dataset->ctx)->splits[split];
    const int64_t at = id * dataset->seq;
    const size_t bytes = (size_t)dataset->seq * sizeof *w->ids;
    (void)err;
    if (out->length)
        out->length[0] = dataset->seq;
    if (out->tokens)
        memcpy(out->tokens, w->ids + at, bytes);
    if (out->token_types)
        memcpy(out->token_types, w->first + at, bytes);
    if (out->labels)
        memcpy(out->labels, w->labels + at, bytes);
    return OK;
}

/* The token that ends a document. */
static int32_t end_token(const struct tokenizer *tokenizer)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    int32_t id = -1;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && id < 0; i++)
        id = tokenizer_id(tokenizer, ends[i]);
    return id;
}

static enum status refuse_split(const struct job *job, const struct text_lines *lines, int split,
                                struct err *err)
{
    const int64_t silent = lines->splits[split].silent;
    if (silent == 0)
        return err_set(err, ERR_INPUT, "'%s': the %s split has no document of 2 tokens or more",
                       job->data.path, dataset_split_name((enum split)split));
    err_set(err, ERR_INPUT,
            "'%s': the %s split has no token that counts in the loss, in none of %lld documents",
            job->data.path, dataset_split_name((enum split)split), (long long)silent);
    if (lines->cut > 0)
        err_hint(err, "%lld documents are cut off after model.seq %d tokens", (long long)lines->cut,
                 job->model.seq);
    else
        err_hint(err, "completions, and messages whose role is assistant, count");
    return ERR_INPUT;
}

/* What was left out, and by which template chats were written. */
static enum status note_documents(struct dataset *dataset, const struct job *job,
                                  const struct text_lines *lines, struct err *err)
{
    int64_t silent = 0, all = 0;
    enum status rc = OK;
    for (int split = 0; split < SPLIT_COUNT; split++) {
        silent += lines->splits[split].silent;
        all += lines->splits[split].silent + lines->splits[split].documents;
    }
    if (lines->cut > 0)
        rc =
            dataset_note(dataset, err, "'%s': %lld documents are longer than %d tokens and cut off",
                         job->data.path, (long long)lines->cut, job->model.seq);
    if (rc == OK && silent > 0)
        rc = dataset_note(dataset, err,
                          "'%s': %lld of %lld documents have no token that counts in the loss and "
                          "are left out",
                          job->data.path, (long long)silent, (long long)all);
    if (rc == OK && lines->chat && chat_source(lines->chat))
        rc = dataset_note(dataset, err, "'%s': messages are written by the chat template of '%s'%s",
                          job->data.path, chat_source(lines->chat),
                          chat_has_date(lines->chat) ? ", which may write today's date" : "");
    return rc;
}

/* How the training split fills its windows, in the keys by which plan and sim know it. */
static enum status note_rows(struct dataset *dataset, const struct job *job,
                             const struct text_lines *lines, struct err *err)
{
    const struct windows *w = &lines->splits[SPLIT_TRAIN];
    const double n = (double)w->documents, mean = w->tokens / n;
    const double spread = sqrt(fmax(0, w->squares / n - mean * mean));
    return dataset_note(dataset, err,
                        "'%s': %lld documents in %lld rows of %d tokens, %.1f %% padding; for plan "
                        "and sim data.length=%.4g, data.length_deviation=%.4g",
                        job->data.path, (long long)w->documents,
                        (long long)dataset->num_samples[SPLIT_TRAIN], dataset->seq,
                        100 * (1 - w->tokens / (double)w->count), fmin(mean, dataset->seq), spread);
}

enum status text_lines_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    const struct model *model = &job->model;
    struct dataset got = {.seq = model->seq,
                          .labels_per_sample = model->seq,
                          .packed = true,
                          .classes = model->vocab,
                          .seed = job->train.seed,
                          .sample = lines_sample,
                          .clear = lines_clear};
    struct text_lines *lines = calloc(1, sizeof *lines);
    if (!lines)
        return err_nomem(err);
    got.ctx = lines;
    enum status rc = tokenizer_open(job->data.vocab, job->data.merges, job->data.lower_case,
                                    &lines->tokenizer, err);
    THEN(dataset_vocab_fits(job, tokenizer_size(lines->tokenizer), err));
    if (rc == OK) {
        lines->vocab = job->data.vocab;
        lines->end = end_token(lines->tokenizer);
        rc = read_files(job, lines, err);
    }
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++) {
        if (!dataset_reads(job, split))
            continue;
        got.num_samples[split] = lines->splits[split].count / model->seq;
        if (got.num_samples[split] < 1)
            rc = refuse_split(job, lines, split, err);
    }
    THEN(note_documents(&got, job, lines, err));
    THEN(note_rows(&got, job, lines, err));
    return dataset_hand_over(rc, &got, dataset);
}
