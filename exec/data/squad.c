/* exec/data/squad.c - SQuAD 1.1: questions about a context, and the place of the answer in it.
 *
 * data.path is a folder with train-v1.1.json and dev-v1.1.json. A sample is [CLS] question [SEP]
 * window [SEP]. A context that is too long becomes several windows that overlap: each starts half a
 * window, at most 128 tokens, after the one before. The label is the first and last token of the
 * first answer, or [CLS] twice if the window does not hold the whole answer (Devlin et al. 2018,
 * section 4.2, and google-research/bert, run_squad.py). Questions keep at most 64 tokens.
 * answer_start counts code points. Read squad_open() first, then read_paragraph() and add_windows()
 * (file to windows), squad_sample() (window to sample) and squad_score() (spans to scores). */
#include "exec/data/squad.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/data/unicode.h"
#include "partition/base/arrays.h"
#include "profiles/json/json.h"

enum { MAX_QUESTION = 64, MAX_STRIDE = 128, MIN_SEQ = 16, MAX_ANSWER_WORDS = 512 };

struct context {
    char *text;               /* owned */
    struct token_list tokens; /* owned; with byte ranges in text */
};
struct question {
    int32_t ids[MAX_QUESTION];
    int num_ids;
    int32_t context;
    /* Tokens of the context that hold the first answer; -1: no token does. */
    int32_t first_token, last_token;
    int32_t num_answers;
    char **answers; /* owned, like each answer */
};
struct window {
    int32_t question, first, count; /* first, count: tokens of the context */
};

/* A growing array of elements of one size. */
struct list {
    void *at; /* owned */
    int64_t count, room;
};
struct squad_split {
    struct list contexts, questions, windows;
};
struct squad {
    struct bert_tokens bert;
    struct squad_split splits[SPLIT_COUNT];
};

/* Appends a zeroed element. NULL: no memory. */
static void *list_add(struct list *list, size_t size)
{
    if (!array_grow(&list->at, list->count + 1, &list->room, size))
        return NULL;
    char *got = (char *)list->at + (size_t)list->count++ * size;
    memset(got, 0, size);
    return got;
}

static void split_clear(struct squad_split *split)
{
    struct context *contexts = split->contexts.at;
    struct question *questions = split->questions.at;
    for (int64_t i = 0; i < split->contexts.count; i++) {
        free(contexts[i].text);
        token_list_clear(&contexts[i].tokens);
    }
    for (int64_t i = 0; i < split->questions.count; i++) {
        for (int32_t j = 0; j < questions[i].num_answers; j++)
            free(questions[i].answers[j]);
        free(questions[i].answers);
    }
    free(contexts);
    free(questions);
    free(split->windows.at);
    *split = (struct squad_split){0};
}

static void squad_clear(struct dataset *dataset)
{
    struct squad *squad = dataset->ctx;
    if (!squad)
        return;
    tokenizer_free(squad->bert.tokenizer);
    for (int split = 0; split < SPLIT_COUNT; split++)
        split_clear(&squad->splits[split]);
    free(squad);
    dataset->ctx = NULL;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Place in the file, for error messages. */
struct place {
    const char *path;
    int article, paragraph, question;
};

static enum status refuse(const struct place *at, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "'%s': data.%d.paragraphs.%d.qas.%d: %s", at->path, at->article,
                   at->paragraph, at->question, what);
}

/* Byte offset of code point number `number`; -1: past the end. */
static int64_t byte_of(const char *text, int64_t number)
{
    size_t at = 0, bytes = strlen(text);
    while (number > 0 && at < bytes) {
        utf8_next(text, bytes, &at);
        number--;
    }
    return number == 0 ? (int64_t)at : -1;
}

static enum status read_answers(const struct json *qa, const struct context *context,
                                const struct place *at, struct question *question, struct err *err)
{
    const struct json *answers = json_get(qa, "answers");
    if (!answers || json_type(answers) != JSON_ARRAY || json_count(answers) < 1)
        return refuse(at, "answers is missing or empty", err);
    question->answers = calloc((size_t)json_count(answers), sizeof *question->answers);
    if (!question->answers)
        return err_nomem(err);
    question->first_token = question->last_token = -1;
    for (struct json *a = json_first(answers); a; a = json_next(a)) {
        const struct json *text = json_get(a, "text"), *start = json_get(a, "answer_start");
        const char *answer = text ? json_string(text) : NULL;
        int64_t number, first, end;
        if (!answer || !*answer || !start || !json_int64(start, &number) || number < 0)
            return refuse(at, "an answer must have a text and an answer_start of at least 0", err);
        first = byte_of(context->text, number);
        if (first < 0 || strncmp(context->text + first, answer, strlen(answer)) != 0)
            return err_set(err, ERR_INPUT,
                           "'%s': data.%d.paragraphs.%d.qas.%d: the context has no '%.60s' at "
                           "answer_start %lld",
                           at->path, at->article, at->paragraph, at->question, answer,
                           (long long)number);
        end = first + (int64_t)strlen(answer);
        question->answers[question->num_answers] = strdup(answer);
        if (!question->answers[question->num_answers])
            return err_nomem(err);
        if (question->num_answers++ > 0)
            continue;
        for (int64_t t = 0; t < context->tokens.count; t++) {
            const struct token *token = &context->tokens.at[t];
            if (token->end <= first || token->first >= end)
                continue;
            if (question->first_token < 0)
                question->first_token = (int32_t)t;
            question->last_token = (int32_t)t;
        }
    }
    return OK;
}

/* Adds the windows of question `number`: at least one, until the end of the context. */
static enum status add_windows(struct squad_split *split, int32_t number, int seq, struct err *err)
{
    const struct question *question = (struct question *)split->questions.at + number;
    const struct context *context = (struct context *)split->contexts.at + question->context;
    int32_t room = (int32_t)(seq - 3 - question->num_ids), total = (int32_t)context->tokens.count;
    int32_t stride = room / 2 < MAX_STRIDE ? room / 2 : MAX_STRIDE;
    for (int32_t first = 0;; first += stride) {
        struct window *window = list_add(&split->windows, sizeof *window);
        if (!window)
            return err_nomem(err);
        *window = (struct window){number, first, total - first < room ? total - first : room};
        if (first + window->count >= total)
            return OK;
    }
}

static enum status read_paragraph(struct squad *squad, struct squad_split *split,
                                  const struct json *paragraph, int seq, struct place *at,
                                  struct err *err)
{
    const struct json *text = json_get(paragraph, "context"), *qas = json_get(paragraph, "qas");
    struct context *context = list_add(&split->contexts, sizeof *context);
    int32_t number = (int32_t)split->contexts.count - 1;
    int limit = seq / 4 < MAX_QUESTION ? seq / 4 : MAX_QUESTION;
    struct token_list tokens = {0};
    enum status rc = OK;
    at->question = 0;
    if (!context)
        return err_nomem(err);
    if (!text || !json_string(text) || !qas || json_type(qas) != JSON_ARRAY)
        return refuse(at, "the paragraph must have a context and qas", err);
    context->text = strdup(json_string(text));
    if (!context->text)
        return err_nomem(err);
    rc = tokenizer_encode(squad->bert.tokenizer, context->text, strlen(context->text),
                          ENCODE_PLACES, &context->tokens, err);
    for (struct json *qa = json_first(qas); rc == OK && qa; qa = json_next(qa), at->question++) {
        const struct json *asked = json_get(qa, "question");
        struct question *question = list_add(&split->questions, sizeof *question);
        if (!question) {
            rc = err_nomem(err);
            break;
        }
        if (!asked || !json_string(asked)) {
            rc = refuse(at, "question is missing", err);
            break;
        }
        tokens.count = 0;
        rc = tokenizer_encode(squad->bert.tokenizer, json_string(asked), strlen(json_string(asked)),
                              0, &tokens, err);
        question->context = number;
        while (rc == OK && question->num_ids < tokens.count && question->num_ids < limit) {
            question->ids[question->num_ids] = tokens.at[question->num_ids].id;
            question->num_ids++;
        }
        THEN(read_answers(qa, context, at, question, err));
        THEN(add_windows(split, (int32_t)split->questions.count - 1, seq, err));
    }
    token_list_clear(&tokens);
    return rc;
}

static bool squad_2(const struct json *root)
{
    const struct json *version = json_get(root, "version");
    const char *text = version ? json_string(version) : NULL;
    return text && (strncmp(text, "v2", 2) == 0 || strncmp(text, "2", 1) == 0);
}

static enum status refuse_squad_2(const char *path, struct err *err)
{
    err_set(err, ERR_INPUT, "'%s' is SQuAD 2, whose questions may have no answer", path);
    err_hint(err, "SQuAD 1.1 can be trained: train-v1.1.json and dev-v1.1.json");
    return ERR_INPUT;
}

/* A folder with the training file of SQuAD 2 in place of ours. */
static enum status refuse_folder_of_2(const char *dir, const char *ours, struct err *err)
{
    char *path = NULL, *other = NULL;
    enum status rc = OK;
    if (asprintf(&path, "%s/%s", dir, ours) < 0)
        path = NULL;
    if (asprintf(&other, "%s/train-v2.0.json", dir) < 0)
        other = NULL;
    if (!path || !other)
        rc = err_nomem(err);
    else if (access(path, F_OK) != 0 && access(other, F_OK) == 0)
        rc = refuse_squad_2(other, err);
    free(path);
    free(other);
    return rc;
}

static enum status read_split(const struct job *job, struct dataset *dataset, enum split which,
                              const char *path, void *unused, struct err *err)
{
    (void)unused;
    struct squad *squad = dataset->ctx;
    struct squad_split *split = &squad->splits[which];
    struct json *root = NULL;
    const struct json *data;
    struct place at = {.path = path};
    enum status rc;
    rc = json_read_file(path, &root, err);
    data = rc == OK ? json_get(root, "data") : NULL;
    if (rc == OK && squad_2(root))
        rc = refuse_squad_2(path, err);
    if (rc == OK && (!data || json_type(data) != JSON_ARRAY))
        rc = err_set(err, ERR_INPUT, "'%s' is not a SQuAD file: the list data is missing", path);
    for (struct json *a = rc == OK ? json_first(data) : NULL; rc == OK && a;
         a = json_next(a), at.article++) {
        const struct json *paragraphs = json_get(a, "paragraphs");
        at.paragraph = at.question = 0;
        if (!paragraphs || json_type(paragraphs) != JSON_ARRAY) {
            rc = refuse(&at, "paragraphs is missing", err);
            break;
        }
        for (struct json *p = json_first(paragraphs); rc == OK && p;
             p = json_next(p), at.paragraph++)
            rc = read_paragraph(squad, split, p, job->model.seq, &at, err);
    }
    if (rc == OK && split->windows.count == 0)
        rc = err_set(err, ERR_INPUT, "'%s' holds no question", path);
    dataset->num_samples[which] = split->windows.count;
    json_free(root);
    return rc;
}

/* --- samples ---------------------------------------------------------------------------------- */

static enum status squad_sample(const struct dataset *dataset, enum split split, int64_t id,
                                const struct sample_out *out, struct err *err)
{
    const struct squad *squad = dataset->ctx;
    const struct squad_split *part = &squad->splits[split];
    const struct window *window = (const struct window *)part->windows.at + id;
    const struct question *question =
        (const struct question *)part->questions.at + window->question;
    const struct context *context = (const struct context *)part->contexts.at + question->context;
    int base = question->num_ids + 2, used = base + window->count + 1;
    (void)err;
    if (out->length)
        out->length[0] = used;
    if (out->labels) {
        bool inside = question->first_token >= window->first &&
                      question->last_token < window->first + window->count;
        out->labels[0] = inside ? base + question->first_token - window->first : 0;
        out->labels[1] = inside ? base + question->last_token - window->first : 0;
    }
    for (int i = 0; i < dataset->seq; i++) {
        int32_t token = squad->bert.pad;
        if (i == 0)
            token = squad->bert.cls;
        else if (i < base - 1)
            token = question->ids[i - 1];
        else if (i == base - 1 || i == used - 1)
            token = squad->bert.sep;
        else if (i < used)
            token = context->tokens.at[window->first + i - base].id;
        if (out->tokens)
            out->tokens[i] = token;
        if (out->token_types)
            out->token_types[i] = i >= base && i < used;
    }
    return OK;
}

/* Windows of one paragraph share its text. */
static int64_t squad_group(const struct dataset *dataset, enum split source, int64_t id)
{
    const struct squad_split *part = &((const struct squad *)dataset->ctx)->splits[source];
    const struct window *window = (const struct window *)part->windows.at + id;
    return ((const struct question *)part->questions.at + window->question)->context;
}

enum status squad_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    static const char *const names[SPLIT_COUNT] = {"train-v1.1.json", "dev-v1.1.json"};
    struct dataset got = {.seq = job->model.seq,
                          .labels_per_sample = 2,
                          .targets_per_sample = 2,
                          .classes = job->model.seq,
                          .sample = squad_sample,
                          .group = squad_group,
                          .clear = squad_clear};
    struct squad *squad = calloc(1, sizeof *squad);
    enum status rc;
    if (!squad)
        return err_nomem(err);
    got.ctx = squad;
    rc = dataset_text_model(job, TASK_QA, err);
    if (rc == OK && job->model.seq < MIN_SEQ)
        rc = err_set(err, ERR_INPUT, "%s: model.seq must be at least %d for squad, got %d",
                     dataset_job_name(job), MIN_SEQ, job->model.seq);
    THEN(dataset_wordpiece(job, &squad->bert, err));
    THEN(refuse_folder_of_2(job->data.path, names[SPLIT_TRAIN], err));
    THEN(dataset_each_split(job, &got, names, read_split, NULL, err));
    if (rc == OK)
        got.lower_case = tokenizer_lowers(squad->bert.tokenizer);
    return dataset_hand_over(rc, &got, dataset);
}

/* --- scoring ---------------------------------------------------------------------------------- */

void squad_context(const struct dataset *dataset, enum split split, int64_t sample, int *first,
                   int *end)
{
    sample = dataset_source(dataset, split, sample, &split);
    const struct squad_split *part = &((const struct squad *)dataset->ctx)->splits[split];
    const struct window *window = (const struct window *)part->windows.at + sample;
    const struct question *questions = part->questions.at;
    *first = questions[window->question].num_ids + 2;
    *end = *first + window->count;
}

bool squad_text(const struct dataset *dataset, const struct span *span, enum split split,
                const char **text, int *bytes)
{
    const struct squad *squad = dataset->ctx;
    if (span->sample < 0 || span->sample >= dataset->num_samples[split])
        return false;
    const int64_t id = dataset_source(dataset, split, span->sample, &split);
    const struct squad_split *part = &squad->splits[split];
    const struct window *window = (const struct window *)part->windows.at + id;
    const struct question *question =
        (const struct question *)part->questions.at + window->question;
    const struct context *context = (const struct context *)part->contexts.at + question->context;
    int base = question->num_ids + 2;
    if (span->start < base || span->end < span->start || span->end >= base + window->count)
        return false;
    const struct token *first = &context->tokens.at[window->first + span->start - base];
    const struct token *last = &context->tokens.at[window->first + span->end - base];
    *text = context->text + first->first;
    *bytes = last->end - first->first;
    return true;
}

/* The words of an answer: lower case, without ASCII punctuation and without a, an, the. */
struct words {
    char *text; /* owned; words separated by NUL */
    int count;
    const char *at[MAX_ANSWER_WORDS];
};

static enum status to_words(const char *text, int bytes, struct words *words, struct err *err)
{
    char *to = malloc((size_t)bytes * (UNICODE_FOLD_MAX + 1) + 2), *word;
    size_t at = 0;
    *words = (struct words){.text = to};
    if (!to)
        return err_nomem(err);
    word = to;
    while (at <= (size_t)bytes) {
        uint32_t code = at < (size_t)bytes ? utf8_next(text, (size_t)bytes, &at) : (at++, ' ');
        if (code >= 'A' && code <= 'Z')
            code += 'a' - 'A';
        if (code < 0x80 && ispunct((int)code))
            continue;
        if (!(code < 0x80 && isspace((int)code)) && unicode_class_of(code) != UNICODE_SPACE) {
            to += utf8_put(code, to);
            continue;
        }
        *to++ = '\0';
        bool drop = !*word || !strcmp(word, "a") || !strcmp(word, "an") || !strcmp(word, "the");
        if (drop || words->count == MAX_ANSWER_WORDS)
            to = word;
        else
            words->at[words->count++] = word;
        word = to;
    }
    return OK;
}

/* Exact match and F1 of two answers as lists of words. */
static void compare_words(const struct words *a, const struct words *b, double *exact, double *f1)
{
    bool used[MAX_ANSWER_WORDS] = {false}, same = a->count == b->count;
    int common = 0;
    for (int i = 0; i < a->count; i++) {
        same = same && strcmp(a->at[i], b->at[i]) == 0;
        for (int j = 0; j < b->count; j++)
            if (!used[j] && strcmp(a->at[i], b->at[j]) == 0) {
                used[j] = true;
                common++;
                break;
            }
    }
    *exact = same;
    *f1 = common ? 2.0 * common / (a->count + b->count) : 0;
}

static enum status score_question(const struct question *question, const char *text, int bytes,
                                  struct qa_score *score, struct err *err)
{
    struct words said, want;
    double exact = 0, f1 = 0;
    enum status rc = to_words(text, bytes, &said, err);
    for (int i = 0; rc == OK && i < question->num_answers; i++) {
        double e, f;
        rc = to_words(question->answers[i], (int)strlen(question->answers[i]), &want, err);
        if (rc == OK) {
            compare_words(&said, &want, &e, &f);
            exact = e > exact ? e : exact;
            f1 = f > f1 ? f : f1;
        }
        free(want.text);
    }
    free(said.text);
    score->exact += exact;
    score->f1 += f1;
    return rc;
}

enum status squad_score(const struct dataset *dataset, enum split split, const struct span *spans,
                        int64_t num_spans, struct qa_score *score, struct err *err)
{
    const struct squad *squad = dataset->ctx;
    const int64_t num = dataset->num_samples[split];
    enum split source;
    (void)dataset_source(dataset, split, 0, &source);
    const struct squad_split *part = &squad->splits[source];
    const struct window *windows = part->windows.at;
    const struct question *questions = part->questions.at;
    const struct span **best = calloc((size_t)part->questions.count, sizeof *best);
    bool *asked = calloc((size_t)part->questions.count, sizeof *asked);
    struct qa_score got = {0};
    enum status rc = best && asked ? OK : err_nomem(err);
    for (int64_t i = 0; rc == OK && i < num_spans; i++) {
        if (spans[i].sample < 0 || spans[i].sample >= num)
            continue;
        const int64_t id = dataset_source(dataset, split, spans[i].sample, &source);
        const struct span **at = &best[windows[id].question];
        if (!*at || spans[i].score > (*at)->score)
            *at = &spans[i];
    }
    /* Only questions with a window among the samples in use count. */
    for (int64_t i = 0; rc == OK && i < num; i++)
        asked[windows[dataset_source(dataset, split, i, &source)].question] = true;
    for (int64_t q = 0; rc == OK && q < part->questions.count; q++) {
        const char *text = "";
        int bytes = 0;
        if (!asked[q])
            continue;
        got.questions++;
        if (best[q] && !squad_text(dataset, best[q], split, &text, &bytes))
            bytes = 0;
        rc = score_question(&questions[q], text, bytes, &got, err);
    }
    if (rc == OK && got.questions) {
        got.exact /= (double)got.questions;
        got.f1 /= (double)got.questions;
    }
    if (rc == OK)
        *score = got;
    free(best);
    free(asked);
    return rc;
}
