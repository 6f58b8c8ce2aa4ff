/* exec/data/vocab_files.c - tokenizers in the form before tokenizer.json: GPT-2's vocab.json with
 * merges.txt, and BERT's vocab.txt. The encoder is the same (tokenizer_encode.c).
 *
 * Both write special tokens as pieces in brackets, and add tokens in files beside them (markers.h).
 * Sources: Radford et al. 2019 and github.com/openai/gpt-2, encoder.py; Devlin et al. 2018. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/data/tokenizer_parts.h"
#include "profiles/base/utf8.h"
#include "profiles/json/json.h"

enum { MAX_FILE_BYTES = 64 << 20, SHOWN = 60 };

/* Make the tables by id, in which all markers are special tokens. */
static enum status add_markers(struct tokenizer *t, struct err *err)
{
    const struct vocab *table = &t->raw.table;
    const int pieces = t->vocab.count > 0 ? t->vocab.max_id + 1 : 0, size = markers_size(&t->raw);
    if (size > MAX_ID || pieces > MAX_ID)
        return err_set(err, ERR_INPUT, "the largest id of a token must be below %d, got %d", MAX_ID,
                       (size > pieces ? size : pieces) - 1);
    enum status rc = tokenizer_make_ids(t, size > pieces ? size : pieces, err);
    for (int64_t i = 0; i < table->num_slots && rc == OK; i++) {
        const struct vocab_slot *slot = &table->slots[i];
        if (slot->length < 0)
            continue;
        t->added[slot->id].special = true;
        rc = vocab_put(&t->added_text, table->bytes + slot->text, (size_t)slot->length, slot->id,
                       err);
    }
    return rc;
}

/* --- lines of a file ---------------------------------------------------------------------------- */

/* The lines of a file without their ends. */
struct lines {
    char *text; /* owned */
    int64_t bytes, at;
    int number; /* of the last line, from 1 */
};

static bool next_line(struct lines *lines, const char **line, size_t *length)
{
    if (lines->at >= lines->bytes)
        return false;
    *line = lines->text + lines->at;
    const char *stop = memchr(*line, '\n', (size_t)(lines->bytes - lines->at));
    *length = stop ? (size_t)(stop - *line) : (size_t)(lines->bytes - lines->at);
    lines->at += (int64_t)*length + 1;
    *length -= *length > 0 && (*line)[*length - 1] == '\r';
    lines->number++;
    return true;
}

/* --- vocab.json and merges.txt ------------------------------------------------------------------ */

static enum status read_vocab(struct tokenizer *t, const char *path, const struct json *root,
                              struct err *err)
{
    enum status rc = OK;
    if (json_type(root) != JSON_OBJECT)
        rc = err_set(err, ERR_INPUT, "'%s' must be an object of tokens and ids, got %s", path,
                     json_type_name(json_type(root)));
    for (struct json *m = rc == OK ? json_first(root) : NULL; rc == OK && m; m = json_next(m)) {
        struct err why = {0};
        int64_t id;
        if (!json_int64(m, &id) || id < 0 || id >= MAX_ID)
            rc = err_set(err, ERR_INPUT, "'%s': the id of '%.60s' must be 0..%d", path, json_key(m),
                         MAX_ID - 1);
        else if ((rc = vocab_put(&t->vocab, json_key(m), strlen(json_key(m)), (int32_t)id, &why)) !=
                 OK)
            err_set(err, rc, "'%s': %s", path, why.msg);
    }
    for (int byte = 0; rc == OK && byte < 256; byte++) {
        char one[4];
        if (vocab_find(&t->vocab, one, (size_t)byte_char(byte, one)) < 0)
            rc = err_set(err, ERR_INPUT,
                         "'%s' is not a byte-level vocabulary: byte %d has no token", path, byte);
    }
    return rc;
}

static enum status read_merges(struct tokenizer *t, const char *path, struct err *err)
{
    struct lines lines = {0};
    const char *line;
    size_t length;
    enum status rc = data_read_file(path, MAX_FILE_BYTES, &lines.text, &lines.bytes, err);
    while (rc == OK && next_line(&lines, &line, &length)) {
        const char *space = memchr(line, ' ', length);
        bool twice = false;
        if (length == 0 || (lines.number == 1 && strncmp(line, "#version", 8) == 0))
            continue;
        rc = ERR_INPUT;
        if (space)
            rc = tokenizer_add_merge(t, line, (size_t)(space - line), space + 1,
                                     length - (size_t)(space + 1 - line), (int32_t)t->pairs.count,
                                     &twice, err);
        if (rc == ERR_INPUT || twice)
            rc = err_set(err, ERR_INPUT,
                         "'%s' line %d: '%.*s' is not a pair of tokens of the vocabulary, or "
                         "occurs twice",
                         path, lines.number, length < SHOWN ? (int)length : SHOWN, line);
    }
    free(lines.text);
    return rc;
}

/* The pieces in brackets that no merge makes are special tokens. */
static enum status find_markers(struct tokenizer *t, struct err *err)
{
    bool *merged = calloc((size_t)t->vocab.max_id + 1, sizeof *merged);
    enum status rc = merged ? OK : err_nomem(err);
    for (int64_t i = 0; rc == OK && i < t->pairs.count; i++)
        merged[t->merges[i].id] = true;
    for (int64_t i = 0; rc == OK && i < t->vocab.num_slots; i++) {
        const struct vocab_slot *slot = &t->vocab.slots[i];
        if (slot->length <= 0)
            continue; /* -1: the slot is empty, and its text is not set */
        const char *piece = t->vocab.bytes + slot->text;
        if (!merged[slot->id] && marker_form(piece, (size_t)slot->length))
            rc = markers_add(&t->raw, piece, (size_t)slot->length, slot->id, err);
    }
    free(merged);
    return rc;
}

enum status vocab_files_bpe(struct tokenizer *t, const char *vocab, const struct json *root,
                            const char *merges, struct err *err)
{
    const char *slash = strrchr(vocab, '/');
    struct tokenizer_config config;
    char *beside = NULL;
    if (!merges &&
        asprintf(&beside, "%.*smerges.txt", slash ? (int)(slash + 1 - vocab) : 0, vocab) < 0)
        return err_nomem(err);
    t->model = MODEL_BPE;
    t->decode_bytes = true;
    t->splits[t->num_splits++].kind = SPLIT_BYTES;
    enum status rc = pattern_new(GPT2_PATTERN, false, &t->splits[0].pattern, err);
    THEN(read_vocab(t, vocab, root, err));
    THEN(read_merges(t, merges ? merges : beside, err));
    THEN(find_markers(t, err));
    THEN(tokenizer_config_read(vocab, &config, &t->raw, err));
    THEN(add_markers(t, err));
    free(beside);
    return rc;
}

/* --- vocab.txt ---------------------------------------------------------------------------------- */

/* Capital letters of the alphabets that have both cases: Latin with accents, Greek, Cyrillic,
 * Armenian. (From U+0100 on Latin capitals alternate with small letters.) */
static bool capital(uint32_t c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7) ||
           (c >= 0x391 && c <= 0x3ab) || (c >= 0x400 && c <= 0x42f) || (c >= 0x531 && c <= 0x556);
}

static bool has_capital(const char *piece, size_t length)
{
    bool found = false;
    for (size_t at = 0; at < length && !found;)
        found = capital(utf8_next(piece, length, &at));
    return found;
}

/* Read the pieces; *uncased: none but special tokens has a capital letter. */
static enum status read_pieces(struct tokenizer *t, const char *path, bool *uncased,
                               struct err *err)
{
    struct lines lines = {0};
    const char *line;
    size_t length;
    enum status rc = data_read_file(path, MAX_FILE_BYTES, &lines.text, &lines.bytes, err);
    *uncased = true;
    while (rc == OK && next_line(&lines, &line, &length)) {
        struct err why = {0};
        rc = vocab_put(&t->vocab, line, length, lines.number - 1, &why);
        if (rc != OK)
            err_set(err, rc, "'%s' line %d: %s", path, lines.number, why.msg);
        *uncased &= marker_form(line, length) || !has_capital(line, length);
    }
    free(lines.text);
    return rc;
}

enum status vocab_files_wordpiece(struct tokenizer *t, const char *path, enum lower_case lower,
                                  struct err *err)
{
    static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    struct tokenizer_config config;
    bool uncased;
    t->model = MODEL_WORDPIECE;
    t->most_chars = MAX_WORD_CHARS;
    t->inside = strdup("##");
    enum status rc = t->inside ? OK : err_nomem(err);
    THEN(read_pieces(t, path, &uncased, err));
    for (int i = 0; rc == OK && i < 5; i++) {
        const int32_t id = vocab_find(&t->vocab, names[i], strlen(names[i]));
        if (id >= 0)
            rc = markers_add(&t->raw, names[i], strlen(names[i]), id, err);
        else if (i < 4)
            rc = err_set(err, ERR_INPUT, "'%s' is not a WordPiece vocabulary: %s is missing", path,
                         names[i]);
    }
    THEN(tokenizer_config_read(path, &config, &t->raw, err));
    THEN(add_markers(t, err));
    if (rc != OK)
        return rc;
    const bool lowers = lower != LOWER_AUTO      ? lower == LOWER_ON
                        : config.lower_case >= 0 ? config.lower_case
                                                 : uncased;
    t->unknown = vocab_find(&t->vocab, "[UNK]", strlen("[UNK]"));
    t->norms[t->num_norms++] = (struct norm_step){.kind = NORM_BERT,
                                                  .clean = true,
                                                  .ideographs = config.split_ideographs != 0,
                                                  .lower = lowers};
    t->splits[t->num_splits++].kind = SPLIT_WORDS;
    if (config.strip_accents >= 0 && config.strip_accents != lowers)
        return err_set(
            err, ERR_INPUT,
            "'%s': tokenizer_config.json next to it says strip_accents %s, lower case is %s, "
            "and only equal values are computed",
            path, config.strip_accents ? "true" : "false", lowers ? "true" : "false");
    return OK;
}
