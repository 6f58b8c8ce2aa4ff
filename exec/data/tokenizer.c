/* Opens tokenizer.json (tokenizer.h), and what is common to all three forms. read_file() reads the parts
 * in the order of the file's meaning; each read_*() knows one kind of component and refuses others by
 * name. */
#include "exec/data/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/data/tokenizer_parts.h"
#include "profiles/base/utf8.h"
#include "profiles/json/fields.h"
#include "profiles/json/json.h"

/* The file and the part of it that errors name. */
struct source {
    const char *path, *part;
};

static bool is(const struct json *json, const char *text)
{
    const char *string = json_string(json);
    return string && strcmp(string, text) == 0;
}

static const char *type_of(const struct json *json)
{
    const char *type = json_string(json_get(json, "type"));
    return type ? type : "?";
}

static enum status refuse(const struct source *at, const struct json *json, struct err *err)
{
    return err_set(err, ERR_INPUT, "'%s': %s '%.60s' is not supported", at->path, at->part,
                   type_of(json));
}

static bool flag(const struct json *json, const char *key, bool fallback)
{
    const struct json *value = json_get(json, key);
    return value && json_type(value) == JSON_BOOL ? json_true(value) : fallback;
}

static enum status copy_text(const struct source *at, const struct json *json, const char *key,
                             char **to, struct err *err)
{
    const char *text = json_string(json_get(json, key));
    if (!text)
        return err_set(err, ERR_INPUT, "'%s': %s '%.60s' has no %s", at->path, at->part,
                       type_of(json), key);
    *to = strdup(text);
    return *to ? OK : err_nomem(err);
}

/* Compile {"String": text} or {"Regex": text}. */
static enum status read_pattern(const struct source *at, const struct json *json,
                                struct pattern **pattern, struct err *err)
{
    const struct json *value = json_get(json, "pattern");
    const char *literal = json_string(json_get(value, "String"));
    const char *regex = json_string(json_get(value, "Regex"));
    struct err why = {0};
    if (!literal && !regex)
        return err_set(err, ERR_INPUT, "'%s': %s '%.60s' has no pattern", at->path, at->part,
                       type_of(json));
    const enum status rc = pattern_new(literal ? literal : regex, literal != NULL, pattern, &why);
    return rc == OK ? OK : err_set(err, rc, "'%s': %s: %s", at->path, at->part, why.msg);
}

/* --- sequences -------------------------------------------------------------------------------- */

typedef enum status read_component(struct tokenizer *t, const struct source *at,
                                   const struct json *json, struct err *err);

/* Read a component, or each of a Sequence; null has none. */
static enum status read_each(struct tokenizer *t, const struct source *at, const struct json *json,
                             const char *list, read_component *read, struct err *err)
{
    enum status rc = OK;
    if (!json || json_type(json) == JSON_NULL)
        return OK;
    if (!is(json_get(json, "type"), "Sequence"))
        return read(t, at, json, err);
    const struct json *members = json_get(json, list);
    for (const struct json *m = members ? json_first(members) : NULL; rc == OK && m;
         m = json_next(m))
        rc = read_each(t, at, m, list, read, err);
    return rc;
}

static enum status read_norm(struct tokenizer *t, const struct source *at, const struct json *json,
                             struct err *err)
{
    static const char *const names[] = {[NORM_NFC] = "NFC",
                                        [NORM_NFD] = "NFD",
                                        [NORM_NFKC] = "NFKC",
                                        [NORM_NFKD] = "NFKD",
                                        [NORM_PREPEND] = "Prepend",
                                        [NORM_REPLACE] = "Replace",
                                        [NORM_BERT] = "BertNormalizer"};
    int kind = 0;
    while (kind <= NORM_BERT && strcmp(names[kind], type_of(json)) != 0)
        kind++;
    if (kind > NORM_BERT || t->num_norms == MAX_STEPS)
        return refuse(at, json, err);
    struct norm_step *step = &t->norms[t->num_norms++];
    step->kind = (enum form_kind)kind;
    step->clean = flag(json, "clean_text", true);
    step->ideographs = flag(json, "handle_chinese_chars", true);
    step->lower = flag(json, "lowercase", true);
    if (kind == NORM_BERT && flag(json, "strip_accents", step->lower) != step->lower)
        return err_set(err, ERR_INPUT,
                       "'%s': BertNormalizer has strip_accents %s and lowercase %s, and only equal "
                       "values are computed",
                       at->path, step->lower ? "false" : "true", step->lower ? "true" : "false");
    enum status rc = OK;
    if (kind == NORM_REPLACE)
        rc = read_pattern(at, json, &step->pattern, err);
    if (rc == OK && (kind == NORM_REPLACE || kind == NORM_PREPEND))
        rc = copy_text(at, json, kind == NORM_PREPEND ? "prepend" : "content", &step->text, err);
    return rc;
}

static enum status read_split(struct tokenizer *t, const struct source *at, const struct json *json,
                              struct err *err)
{
    static const char *const matches[] = {[MATCH_ISOLATED] = "Isolated",
                                          [MATCH_REMOVED] = "Removed",
                                          [MATCH_CONTIGUOUS] = "Contiguous",
                                          [MATCH_PREVIOUS] = "MergedWithPrevious",
                                          [MATCH_NEXT] = "MergedWithNext"};
    const char *type = type_of(json);
    if (t->num_splits == MAX_STEPS)
        return refuse(at, json, err);
    struct split_step *step = &t->splits[t->num_splits++];
    if (strcmp(type, "ByteLevel") == 0) {
        step->kind = SPLIT_BYTES;
        step->prepend = flag(json, "add_prefix_space", true) ? PREPEND_ALWAYS : PREPEND_NEVER;
        return flag(json, "use_regex", true) ? pattern_new(GPT2_PATTERN, false, &step->pattern, err)
                                             : OK;
    }
    if (strcmp(type, "BertPreTokenizer") == 0) {
        step->kind = SPLIT_WORDS;
        return OK;
    }
    if (strcmp(type, "Digits") == 0) {
        step->match = flag(json, "individual_digits", false) ? MATCH_ISOLATED : MATCH_CONTIGUOUS;
        return pattern_new("\\p{N}", false, &step->pattern, err);
    }
    if (strcmp(type, "Split") == 0) {
        int match = 0;
        while (match <= MATCH_NEXT && !is(json_get(json, "behavior"), matches[match]))
            match++;
        if (match > MATCH_NEXT)
            return err_set(err, ERR_INPUT, "'%s': %s Split has an unknown behavior", at->path,
                           at->part);
        step->match = (enum split_match)match;
        step->invert = flag(json, "invert", false);
        return read_pattern(at, json, &step->pattern, err);
    }
    if (strcmp(type, "Metaspace") == 0) {
        const struct json *scheme = json_get(json, "prepend_scheme");
        step->kind = SPLIT_METASPACE;
        step->match = MATCH_NEXT;
        /* Files of older versions have add_prefix_space in its place. */
        step->prepend = is(scheme, "never")                                ? PREPEND_NEVER
                        : is(scheme, "first")                              ? PREPEND_FIRST
                        : !scheme && !flag(json, "add_prefix_space", true) ? PREPEND_NEVER
                                                                           : PREPEND_ALWAYS;
        enum status rc = copy_text(at, json, "replacement", &step->mark, err);
        if (rc == OK && flag(json, "split", true))
            rc = pattern_new(step->mark, true, &step->pattern, err);
        return rc;
    }
    return refuse(at, json, err);
}

/* Add an id that stands before the text, or after it. */
static enum status add_around(struct tokenizer *t, const struct source *at, bool after,
                              const struct json *json, struct err *err)
{
    int64_t id;
    int *n = after ? &t->num_after : &t->num_before;
    if (*n == MAX_AROUND || !json_int64(json, &id) || id < 0 || id >= MAX_ID)
        return err_set(err, ERR_INPUT, "'%s': %s has an id or a number of ids out of range",
                       at->path, at->part);
    (after ? t->after : t->before)[(*n)++] = (int32_t)id;
    return OK;
}

static enum status read_post(struct tokenizer *t, const struct source *at, const struct json *json,
                             struct err *err)
{
    const char *type = type_of(json);
    bool seen = false;
    if (strcmp(type, "ByteLevel") == 0)
        return OK; /* changes places of tokens only */
    if (t->num_before || t->num_after)
        return refuse(at, json, err);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        enum status rc = add_around(t, at, false, json_at(json_get(json, "cls"), 1), err);
        THEN(add_around(t, at, true, json_at(json_get(json, "sep"), 1), err));
        return rc;
    }
    if (strcmp(type, "TemplateProcessing") != 0)
        return refuse(at, json, err);
    const struct json *single = json_get(json, "single");
    for (const struct json *m = single ? json_first(single) : NULL; m; m = json_next(m)) {
        const char *name = json_string(json_path(m, "SpecialToken.id"));
        if (json_get(m, "Sequence")) {
            seen = true;
            continue;
        }
        const struct json *token = name ? json_get(json_get(json, "special_tokens"), name) : NULL;
        const struct json *ids = token ? json_get(token, "ids") : NULL;
        if (!ids)
            return err_set(err, ERR_INPUT, "'%s': %s has no ids of '%.60s'", at->path, at->part,
                           name ? name : "?");
        enum status rc = OK;
        for (const struct json *i = json_first(ids); rc == OK && i; i = json_next(i))
            rc = add_around(t, at, seen, i, err);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static enum status read_decoder(struct tokenizer *t, const struct source *at,
                                const struct json *json, struct err *err)
{
    const char *type = type_of(json);
    int64_t start = 0, stop = 0;
    if (strcmp(type, "ByteLevel") == 0) {
        t->decode_bytes = true;
    } else if (strcmp(type, "ByteFallback") == 0) {
        t->decode_fallback = true;
    } else if (strcmp(type, "Metaspace") == 0 && !t->decode_from) {
        t->decode_strip =
            !is(json_get(json, "prepend_scheme"), "never") && flag(json, "add_prefix_space", true);
        t->decode_to = strdup(" ");
        return t->decode_to ? copy_text(at, json, "replacement", &t->decode_from, err)
                            : err_nomem(err);
    } else if (strcmp(type, "Replace") == 0 && !t->decode_from &&
               json_string(json_path(json, "pattern.String"))) {
        enum status rc = copy_text(at, json_get(json, "pattern"), "String", &t->decode_from, err);
        return rc == OK ? copy_text(at, json, "content", &t->decode_to, err) : rc;
    } else if (strcmp(type, "Strip") == 0 && is(json_get(json, "content"), " ") &&
               json_int64(json_get(json, "start"), &start) &&
               json_int64(json_get(json, "stop"), &stop) && start <= 1 && stop == 0) {
        t->decode_strip = start == 1;
    } else if (strcmp(type, "Fuse") != 0 && strcmp(type, "WordPiece") != 0) {
        return refuse(at, json, err);
    }
    return OK;
}

/* --- the model -------------------------------------------------------------------------------- */

static enum status read_vocab(struct tokenizer *t, const char *path, const struct json *vocab,
                              struct err *err)
{
    enum status rc = OK;
    if (!vocab || json_type(vocab) != JSON_OBJECT)
        return err_set(err, ERR_INPUT, "'%s': model.vocab must be an object of tokens and ids",
                       path);
    for (const struct json *m = json_first(vocab); rc == OK && m; m = json_next(m)) {
        int64_t id;
        if (!json_int64(m, &id) || id < 0 || id >= MAX_ID)
            rc = err_set(err, ERR_INPUT, "'%s': the id of '%.60s' must be 0..%d", path, json_key(m),
                         MAX_ID - 1);
        else
            rc = vocab_put(&t->vocab, json_key(m), strlen(json_key(m)), (int32_t)id, err);
    }
    return rc;
}

/* The two tokens of a merge: "a b", or ["a", "b"]. */
static bool merge_parts(const struct json *merge, const char **a, size_t *a_bytes, const char **b)
{
    const char *text = json_string(merge);
    if (text) {
        const char *space = strchr(text, ' ');
        *a = text;
        *a_bytes = space ? (size_t)(space - text) : 0;
        *b = space ? space + 1 : "";
        return space && !strchr(*b, ' ');
    }
    *a = json_type(merge) == JSON_ARRAY ? json_string(json_at(merge, 0)) : NULL;
    *b = *a && json_count(merge) == 2 ? json_string(json_at(merge, 1)) : NULL;
    *a_bytes = *a ? strlen(*a) : 0;
    return *b != NULL;
}

static enum status read_merges(struct tokenizer *t, const char *path, const struct json *merges,
                               struct err *err)
{
    int32_t rank = 0;
    if (!merges || json_type(merges) != JSON_ARRAY)
        return err_set(err, ERR_INPUT, "'%s': model.merges must be an array", path);
    for (const struct json *m = json_first(merges); m; m = json_next(m), rank++) {
        const char *a, *b;
        size_t a_bytes;
        bool twice;
        enum status rc = ERR_INPUT;
        if (merge_parts(m, &a, &a_bytes, &b))
            rc = tokenizer_add_merge(t, a, a_bytes, b, strlen(b), rank, &twice, err);
        if (rc == ERR_INPUT)
            err_set(err, rc, "'%s': merge %d does not join two tokens of the vocabulary to a third",
                    path, rank);
        if (rc != OK)
            return rc;
    }
    return OK;
}

/* The parts of a model that only BPE, or only WordPiece has. */
static enum status read_bpe(struct tokenizer *t, const char *path, const struct json *model,
                            struct err *err)
{
    static const char *const no_text[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const char *text = json_string(json_get(model, no_text[i]));
        if (text && *text)
            return err_set(err, ERR_INPUT, "'%s': model.%s '%.40s' is not supported", path,
                           no_text[i], text);
    }
    if (json_number(json_get(model, "dropout")) > 0.0)
        return err_set(err, ERR_INPUT, "'%s': model.dropout is not supported", path);
    t->model = MODEL_BPE;
    t->byte_fallback = flag(model, "byte_fallback", false);
    t->fuse_unknown = flag(model, "fuse_unk", false);
    t->ignore_merges = flag(model, "ignore_merges", false);
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        t->byte_ids[byte] = vocab_find(&t->vocab, name, strlen(name));
    }
    return read_merges(t, path, json_get(model, "merges"), err);
}

static enum status read_wordpiece(struct tokenizer *t, const char *path, const struct json *model,
                                  struct err *err)
{
    const char *inside = json_string(json_get(model, "continuing_subword_prefix"));
    t->model = MODEL_WORDPIECE;
    t->most_chars = MAX_WORD_CHARS;
    json_int64(json_get(model, "max_input_chars_per_word"), &t->most_chars);
    t->inside = strdup(inside ? inside : "##");
    if (!t->inside)
        return err_nomem(err);
    return t->unknown >= 0 ? OK : err_set(err, ERR_INPUT, "'%s': model.unk_token is missing", path);
}

static enum status read_model(struct tokenizer *t, const char *path, const struct json *model,
                              struct err *err)
{
    const struct json *unknown = json_get(model, "unk_token"), *type = json_get(model, "type");
    const struct source at = {path, "model"};
    const bool pieces = is(type, "WordPiece");
    /* Files of older versions have no type. */
    if (!pieces && (type ? !is(type, "BPE") : !json_get(model, "merges"))) {
        refuse(&at, model, err);
        err_hint(err, "models that are known: BPE, WordPiece");
        return ERR_INPUT;
    }
    enum status rc = read_vocab(t, path, json_get(model, "vocab"), err);
    if (rc == OK && json_string(unknown)) {
        t->unknown = tokenizer_id(t, json_string(unknown));
        if (t->unknown < 0)
            rc = err_set(err, ERR_INPUT, "'%s': model.unk_token '%.60s' is not in the vocabulary",
                         path, json_string(unknown));
    }
    THEN(pieces ? read_wordpiece(t, path, model, err) : read_bpe(t, path, model, err));
    return rc;
}

/* --- added tokens ----------------------------------------------------------------------------- */

static enum status add_token(struct tokenizer *t, const char *path, const struct json *token,
                             struct err *err)
{
    const char *text = json_string(json_get(token, "content"));
    const bool special = flag(token, "special", false);
    const bool normalized = flag(token, "normalized", !special);
    struct buffer normal = {0};
    const size_t bytes = text ? strlen(text) : 0;
    int64_t id;
    enum status rc = OK;
    if (!text || !json_int64(json_get(token, "id"), &id) || id < 0 || id >= MAX_ID)
        return err_set(err, ERR_INPUT, "'%s': an added token has no content or id", path);
    if (flag(token, "single_word", false))
        return err_set(err, ERR_INPUT,
                       "'%s': added token '%.60s' with single_word is not supported", path, text);
    if (bytes == 0)
        return OK;
    t->added[id] =
        (struct added_token){flag(token, "lstrip", false), flag(token, "rstrip", false), special};
    if (vocab_find(&t->added_text, text, bytes) < 0)
        rc = vocab_put(&t->added_text, text, bytes, (int32_t)id, err);
    if (rc == OK && normalized)
        rc = tokenizer_normalize(t, (struct span){text, bytes, NULL}, &normal, err);
    THEN(normalized ? markers_add(&t->normal, normal.at, normal.bytes, (int32_t)id, err)
                    : markers_add(&t->raw, text, bytes, (int32_t)id, err));
    buffer_clear(&normal);
    return rc;
}

static enum status read_added(struct tokenizer *t, const char *path, const struct json *list,
                              struct err *err)
{
    int size = t->vocab.count > 0 ? t->vocab.max_id + 1 : 0;
    for (const struct json *m = list ? json_first(list) : NULL; m; m = json_next(m)) {
        int64_t id = -1;
        json_int64(json_get(m, "id"), &id);
        if (id >= size && id < MAX_ID)
            size = (int)id + 1;
    }
    enum status rc = tokenizer_make_ids(t, size, err);
    for (const struct json *m = list ? json_first(list) : NULL; rc == OK && m; m = json_next(m))
        rc = add_token(t, path, m, err);
    return rc;
}

static void index_tokens(struct tokenizer *t, const struct vocab *vocab)
{
    for (int64_t i = 0; i < vocab->num_slots; i++)
        if (vocab->slots[i].length >= 0)
            t->by_id[vocab->slots[i].id] = &vocab->slots[i];
}

/* --- the file --------------------------------------------------------------------------------- */

static enum status read_file(struct tokenizer *t, const char *path, const struct json *root,
                             struct err *err)
{
    const struct source norm = {path, "normalizer"}, split = {path, "pre_tokenizer"},
                        post = {path, "post_processor"}, decoder = {path, "decoder"};
    const struct json *model = json_get(root, "model");
    if (json_type(root) != JSON_OBJECT || !model || json_type(model) != JSON_OBJECT)
        return err_set(err, ERR_INPUT, "'%s' is not a tokenizer.json: it has no model", path);
    enum status rc = read_model(t, path, model, err);
    THEN(read_each(t, &norm, json_get(root, "normalizer"), "normalizers", read_norm, err));
    if (rc == OK)
        rc =
            read_each(t, &split, json_get(root, "pre_tokenizer"), "pretokenizers", read_split, err);
    THEN(read_each(t, &post, json_get(root, "post_processor"), "processors", read_post, err));
    THEN(read_each(t, &decoder, json_get(root, "decoder"), "decoders", read_decoder, err));
    THEN(read_added(t, path, json_get(root, "added_tokens"), err));
    for (int i = 0; rc == OK && i < t->num_before + t->num_after; i++) {
        const int32_t id = i < t->num_before ? t->before[i] : t->after[i - t->num_before];
        if (id >= t->size)
            rc = err_set(err, ERR_INPUT, "'%s': post_processor adds token %d of %d", path, id,
                         t->size);
    }
    return rc;
}

/* Read a tokenizer.json, or a vocab.json, whose members are ids. */
static enum status open_json(struct tokenizer *t, const char *path, const char *merges,
                             enum lower_case lower, struct err *err)
{
    struct json *root = NULL;
    enum status rc = json_read_file(path, &root, err);
    if (rc == OK) {
        const struct json *model = json_get(root, "model");
        rc = path_ends(path, "tokenizer.json") || (model && json_type(model) == JSON_OBJECT)
                 ? read_file(t, path, root, err)
                 : vocab_files_bpe(t, path, root, merges, err);
    }
    for (int i = 0; lower != LOWER_AUTO && i < t->num_norms; i++)
        t->norms[i].lower = lower == LOWER_ON;
    json_free(root);
    return rc;
}

enum status tokenizer_open(const char *vocab, const char *merges, enum lower_case lower,
                           struct tokenizer **tokenizer, struct err *err)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    enum status rc;
    if (!t)
        return err_nomem(err);
    t->find_special = true;
    t->unknown = -1;
    if (!vocab)
        rc = tokenizer_make_ids(t, 256, err);
    else if (path_is_json(vocab))
        rc = open_json(t, vocab, merges, lower, err);
    else
        rc = vocab_files_wordpiece(t, vocab, lower, err);
    if (rc == OK) {
        index_tokens(t, &t->vocab);
        index_tokens(t, &t->added_text);
        *tokenizer = t;
        t = NULL;
    }
    tokenizer_free(t);
    return rc;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    for (int i = 0; i < MAX_STEPS; i++) {
        pattern_free(t->norms[i].pattern);
        free(t->norms[i].text);
        pattern_free(t->splits[i].pattern);
        free(t->splits[i].mark);
    }
    vocab_clear(&t->vocab);
    vocab_clear(&t->pairs);
    vocab_clear(&t->added_text);
    markers_clear(&t->raw);
    markers_clear(&t->normal);
    free(t->merges);
    free(t->inside);
    free(t->added);
    free(t->by_id);
    free(t->decode_from);
    free(t->decode_to);
    free(t);
}

int tokenizer_size(const struct tokenizer *tokenizer)
{
    return tokenizer->size;
}

int32_t tokenizer_id(const struct tokenizer *tokenizer, const char *piece)
{
    const int32_t id = vocab_find(&tokenizer->added_text, piece, strlen(piece));
    return id >= 0 ? id : vocab_find(&tokenizer->vocab, piece, strlen(piece));
}

bool tokenizer_special(const struct tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->size && tokenizer->added[id].special;
}

bool tokenizer_is_wordpiece(const struct tokenizer *tokenizer)
{
    return tokenizer->model == MODEL_WORDPIECE;
}

bool tokenizer_lowers(const struct tokenizer *tokenizer)
{
    bool lowers = false;
    for (int i = 0; i < tokenizer->num_norms; i++)
        lowers |= tokenizer->norms[i].kind == NORM_BERT && tokenizer->norms[i].lower;
    return lowers;
}

void tokenizer_find_special(struct tokenizer *tokenizer, bool find)
{
    tokenizer->find_special = find;
}

bool tokenizer_strips(const struct tokenizer *tokenizer)
{
    return tokenizer->decode_strip;
}

/* --- decoding --------------------------------------------------------------------------------- */

/* Write the bytes that a token's text stands for, at most size, and return their number. */
static size_t decode_text(const struct tokenizer *t, const char *text, size_t length, bool is_added,
                          char *bytes, size_t size)
{
    const size_t from = t->decode_from ? strlen(t->decode_from) : 0;
    size_t n = 0, at = 0;
    while (at < length) {
        if (t->decode_bytes && !is_added) {
            const int one = byte_of_char(utf8_next(text, length, &at));
            if (n < size && one >= 0)
                bytes[n++] = (char)one;
        } else if (from > 0 && length - at >= from &&
                   memcmp(text + at, t->decode_from, from) == 0) {
            for (const char *c = t->decode_to; *c && n < size; c++)
                bytes[n++] = *c;
            at += from;
        } else {
            if (n < size)
                bytes[n++] = text[at];
            at++;
        }
    }
    return n;
}

size_t tokenizer_bytes(const struct tokenizer *t, int32_t id, char *bytes, size_t size,
                       bool *special)
{
    const struct vocab_slot *slot = id >= 0 && id < t->size ? t->by_id[id] : NULL;
    unsigned byte;
    *special = tokenizer_special(t, id);
    if (t->model == MODEL_BYTES && id >= 0 && id < t->size && size > 0) {
        bytes[0] = (char)id;
        return 1;
    }
    if (!slot)
        return 0;
    const bool is_added = vocab_holds(&t->added_text, slot);
    const char *text = (is_added ? &t->added_text : &t->vocab)->bytes + slot->text;
    const size_t length = (size_t)slot->length;
    if (t->decode_fallback && length == 6 && sscanf(text, "<0x%2X>", &byte) == 1 &&
        text[5] == '>') {
        if (size > 0)
            bytes[0] = (char)byte;
        return size > 0;
    }
    return decode_text(t, text, length, is_added, bytes, size);
}
