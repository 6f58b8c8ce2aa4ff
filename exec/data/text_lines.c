/* JSON lines as packed windows (text_lines.h). text_lines_open() at the end first, then read_file(),
 * make_document() and place_document(). */
#include "exec/data/text_lines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "exec/data/tokenizer.h"
#include "profiles/json/json.h"

enum { MAX_BYTES = 1 << 30, NO_LABEL = -100, TEST_PART = 10 };

/* Windows of a split, seq entries each. */
struct windows {
    int32_t *ids, *labels,
        *first;          /* owned; token, label, where in the window its document begins */
    int64_t count, room; /* entries */
    int64_t used;        /* of them, by documents; the rest of the window is free */
    int64_t documents;
    double tokens, squares; /* of documents, and of their lengths */
};

enum chat { CHAT_NONE, CHAT_ML, CHAT_LLAMA3 };

struct text_lines {
    struct tokenizer *tokenizer; /* owned */
    enum chat chat;
    int32_t end; /* token behind a document; -1: none */
    struct windows splits[SPLIT_COUNT];
    int64_t cut; /* documents that were cut off */
};

/* A document on its way: its tokens, and which of them count. */
struct document {
    struct token_list tokens;
    int64_t *spoken; /* owned; [2 * num_spoken], ranges of tokens that count */
    int num_spoken, room_spoken;
    bool goes_on; /* may continue in the next window */
};

static void lines_clear(struct dataset *dataset)
{
    struct text_lines *lines = dataset->ctx;
    if (!lines)
        return;
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
    if (w->count + seq > w->room) {
        const int64_t room = 2 * w->room + 16 * (int64_t)seq;
        int32_t **const arrays[] = {&w->ids, &w->labels, &w->first};
        for (int i = 0; i < 3; i++) {
            int32_t *more = realloc(*arrays[i], (size_t)room * sizeof *more);
            if (!more)
                return err_nomem(err);
            *arrays[i] = more;
        }
        w->room = room;
    }
    for (int i = 0; i < seq; i++) {
        w->ids[w->count + i] = 0;
        w->labels[w->count + i] = NO_LABEL;
        w->first[w->count + i] = i;
    }
    w->used = w->count;
    w->count += seq;
    return OK;
}

static bool counts(const struct document *d, int64_t token)
{
    for (int i = 0; i < d->num_spoken; i++)
        if (token >= d->spoken[2 * i] && token < d->spoken[2 * i + 1])
            return true;
    return false;
}

/* Write a document's tokens; the label of a token is its successor. The last one has no label. */
static enum status place_document(struct text_lines *lines, struct windows *w, int seq,
                                  const struct document *d, struct err *err)
{
    int64_t at = 0, n = d->tokens.count;
    enum status rc = OK;
    if (n < 2)
        return OK;
    if (n > seq && !d->goes_on) {
        n = seq;
        lines->cut++;
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
            if (at + 1 < n && counts(d, at + 1))
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
    enum status rc = tokenizer_encode(lines->tokenizer, text, strlen(text),
                                      first == 0 ? ENCODE_AROUND : 0, &d->tokens, err);
    if (rc != OK || !loss || d->tokens.count == first)
        return rc;
    if (d->num_spoken == d->room_spoken) {
        const int room = 2 * d->room_spoken + 8;
        int64_t *more = realloc(d->spoken, 2 * (size_t)room * sizeof *more);
        if (!more)
            return err_nomem(err);
        d->spoken = more;
        d->room_spoken = room;
    }
    d->spoken[2 * d->num_spoken] = first;
    d->spoken[2 * d->num_spoken++ + 1] = d->tokens.count;
    return OK;
}

static enum status end_document(const struct text_lines *lines, struct document *d, struct err *err)
{
    if (lines->end < 0)
        return OK;
    if (d->num_spoken > 0 && d->spoken[2 * d->num_spoken - 1] == d->tokens.count)
        d->spoken[2 * d->num_spoken - 1]++;
    return token_list_add(&d->tokens, (struct token){.id = lines->end}, err);
}

/* ChatML: OpenAI's documentation of gpt-3.5-turbo-0301. Llama 3: its model card, "prompt format". */
static enum status say_message(const struct text_lines *lines, struct document *d,
                               const struct json *message, struct err *err)
{
    const char *role = json_string(json_get(message, "role"));
    const char *content = json_string(json_get(message, "content"));
    const bool ml = lines->chat == CHAT_ML;
    char head[96];
    char *text = NULL;
    if (!role || !content || strlen(role) > 32)
        return err_set(err, ERR_INPUT, "a message needs role and content, as texts");
    snprintf(head, sizeof head,
             ml ? "<|im_start|>%s\n" : "<|start_header_id|>%s<|end_header_id|>\n\n", role);
    if (asprintf(&text, "%s%s", content, ml ? "<|im_end|>" : "<|eot_id|>") < 0)
        return err_nomem(err);
    enum status rc = append_text(lines, d, head, false, err);
    THEN(append_text(lines, d, text, strcmp(role, "assistant") == 0, err));
    if (rc == OK && ml)
        rc = append_text(lines, d, "\n", false, err);
    free(text);
    return rc;
}

static enum status refuse_chat(const struct text_lines *lines, struct err *err)
{
    static const struct {
        const char *token, *name;
    } others[] = {
        {"<start_of_turn>",  "Gemma"  },
        {"[INST]",           "Mistral"},
        {"<|user|>",         "Phi-3"  },
        {"<|header_start|>", "Llama 4"},
        {"<|start|>",        "gpt-oss"}
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (tokenizer_id(lines->tokenizer, others[i].token) >= 0)
            return err_set(err, ERR_INPUT,
                           "messages in the template of %s (%s) are not supported, only ChatML and "
                           "Llama 3's",
                           others[i].name, others[i].token);
    return err_set(err, ERR_INPUT,
                   "messages need a tokenizer with <|im_start|> (ChatML) or <|start_header_id|> "
                   "(Llama 3)");
}

static enum status make_document(const struct text_lines *lines, const struct json *row,
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
        if (lines->chat == CHAT_NONE)
            return refuse_chat(lines, err);
        for (const struct json *m = json_first(messages); rc == OK && m; m = json_next(m))
            rc = say_message(lines, d, m, err);
        return rc; /* the template ends it */
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
    free(d.spoken);
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

/* The token that ends a document, and the template of chats, by the tokens that there are. */
static void find_tokens(struct text_lines *lines)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    const struct tokenizer *t = lines->tokenizer;
    lines->end = -1;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && lines->end < 0; i++)
        lines->end = tokenizer_id(t, ends[i]);
    if (tokenizer_id(t, "<|im_start|>") >= 0 && tokenizer_id(t, "<|im_end|>") >= 0)
        lines->chat = CHAT_ML;
    else if (tokenizer_id(t, "<|start_header_id|>") >= 0 && tokenizer_id(t, "<|eot_id|>") >= 0)
        lines->chat = CHAT_LLAMA3;
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
        find_tokens(lines);
        rc = read_files(job, lines, err);
    }
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++) {
        if (!dataset_reads(job, split))
            continue;
        got.num_samples[split] = lines->splits[split].count / model->seq;
        if (got.num_samples[split] < 1)
            rc = err_set(err, ERR_INPUT, "'%s': the %s split has no document of 2 tokens or more",
                         job->data.path, dataset_split_name(split));
    }
    if (rc == OK && lines->cut > 0)
        rc = dataset_note(&got, err, "'%s': %lld documents are longer than %d tokens and cut off",
                          job->data.path, (long long)lines->cut, model->seq);
    THEN(note_rows(&got, job, lines, err));
    if (rc == OK)
        *dataset = got;
    else {
        lines_clear(&got);
        free(got.notes);
    }
    return rc;
}
