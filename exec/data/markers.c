#include "exec/data/markers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/json/json.h"

enum { MAX_MARKER = 256 }; /* bytes; longer ones are ordinary text, so that a search stays short */

void markers_clear(struct markers *markers)
{
    vocab_clear(&markers->table);
    *markers = (struct markers){0};
}

enum status markers_add(struct markers *markers, const char *text, size_t length, int32_t id,
                        struct err *err)
{
    if (length == 0 || length > MAX_MARKER || vocab_find(&markers->table, text, length) >= 0)
        return OK;
    markers->begins[(unsigned char)text[0]] = true;
    return vocab_put(&markers->table, text, length, id, err);
}

size_t markers_next(const struct markers *markers, const char *text, size_t bytes, size_t at,
                    size_t *length, int32_t *id)
{
    for (; markers->table.count > 0 && at < bytes; at++) {
        size_t n = (size_t)markers->table.max_length;
        if (!markers->begins[(unsigned char)text[at]])
            continue;
        for (n = n < bytes - at ? n : bytes - at; n > 0; n--) {
            *id = vocab_find(&markers->table, text + at, n);
            if (*id >= 0) {
                *length = n;
                return at;
            }
        }
    }
    *length = 0;
    return bytes;
}

int markers_size(const struct markers *markers)
{
    return markers->table.count > 0 ? markers->table.max_id + 1 : 0;
}

bool marker_form(const char *piece, size_t length)
{
    return length > 2 && ((piece[0] == '[' && piece[length - 1] == ']') ||
                          (piece[0] == '<' && piece[length - 1] == '>'));
}

/* A file beside the vocabulary. *root is NULL if there is none. */
static enum status read_beside(const char *vocab_path, const char *name, struct json **root,
                               char **path, struct err *err)
{
    const char *slash = strrchr(vocab_path, '/');
    *root = NULL;
    if (asprintf(path, "%.*s%s", slash ? (int)(slash + 1 - vocab_path) : 0, vocab_path, name) < 0) {
        *path = NULL;
        return err_nomem(err);
    }
    return access(*path, F_OK) == 0 ? json_read_file(*path, root, err) : OK;
}

static enum status add_token(const char *path, const char *text, int64_t id,
                             struct markers *markers, struct err *err)
{
    if (id < 0 || id >= INT32_MAX)
        return err_set(err, ERR_INPUT, "'%s': the id of '%.60s' must be 0..%d, got %lld", path,
                       text, INT32_MAX - 1, (long long)id);
    return markers_add(markers, text, strlen(text), (int32_t)id, err);
}

static int flag_of(const struct json *root, const char *key)
{
    const struct json *value = json_get(root, key);
    return value && json_type(value) == JSON_BOOL ? json_true(value) : -1;
}

/* tokenizer_config.json: flags, and added_tokens_decoder, {"id": {"content": text}}. */
static enum status read_config(const char *path, const struct json *root,
                               struct tokenizer_config *config, struct markers *markers,
                               struct err *err)
{
    const struct json *added = json_get(root, "added_tokens_decoder");
    enum status rc = OK;
    config->lower_case = flag_of(root, "do_lower_case");
    config->strip_accents = flag_of(root, "strip_accents");
    config->split_ideographs = flag_of(root, "tokenize_chinese_chars");
    if (!added || json_type(added) != JSON_OBJECT)
        return OK;
    for (struct json *m = json_first(added); rc == OK && m; m = json_next(m)) {
        const struct json *content = json_type(m) == JSON_OBJECT ? json_get(m, "content") : NULL;
        char *end;
        const long long id = strtoll(json_key(m), &end, 10);
        if (content && json_string(content) && end != json_key(m) && !*end)
            rc = add_token(path, json_string(content), id, markers, err);
    }
    return rc;
}

/* added_tokens.json: {text: id}. */
static enum status read_added(const char *path, const struct json *root, struct markers *markers,
                              struct err *err)
{
    enum status rc = OK;
    for (struct json *m = json_first(root); rc == OK && m; m = json_next(m)) {
        int64_t id;
        if (json_int64(m, &id))
            rc = add_token(path, json_key(m), id, markers, err);
    }
    return rc;
}

enum status tokenizer_config_read(const char *vocab_path, struct tokenizer_config *config,
                                  struct markers *markers, struct err *err)
{
    static const char *const names[] = {"tokenizer_config.json", "added_tokens.json"};
    enum status rc = OK;
    *config = (struct tokenizer_config){-1, -1, -1};
    for (int i = 0; rc == OK && i < 2; i++) {
        struct json *root = NULL;
        char *path = NULL;
        rc = read_beside(vocab_path, names[i], &root, &path, err);
        if (rc == OK && root && json_type(root) != JSON_OBJECT)
            rc = err_set(err, ERR_INPUT, "'%s' must be an object, got %s", path,
                         json_type_name(json_type(root)));
        if (rc == OK && root)
            rc = i == 0 ? read_config(path, root, config, markers, err)
                        : read_added(path, root, markers, err);
        json_free(root);
        free(path);
    }
    return rc;
}
