/* Chats (chat.h). chat_open() finds the template; chat_tokens() renders, encodes, and finds the tokens of
 * the bytes that are marked. */
#include "exec/data/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/data/jinja.h"

struct chat {
    const struct tokenizer *tokenizer;
    struct jinja *jinja;
    struct json *variables; /* owned; what all rows share */
    char *source;           /* owned; path; NULL: told by the tokens */
};

/* --- the template ------------------------------------------------------------------------------- */

/* ChatML: OpenAI's documentation of gpt-3.5-turbo-0301. Llama 3: its model card, "prompt format". */
static const struct {
    const char *first, *second, *template;
} families[] = {
    {"<|im_start|>",        "<|im_end|>",
     "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"},
    {"<|start_header_id|>", "<|eot_id|>",
     "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
     "{{ m.content }}<|eot_id|>{% endfor %}"                                                   }
};

/* A file beside the tokenizer; *path stays NULL if it is not there. */
static enum status beside(const char *vocab, const char *name, char **path, struct err *err)
{
    const char *slash = strrchr(vocab, '/');
    char *got = NULL;
    if (asprintf(&got, "%.*s%s", slash ? (int)(slash + 1 - vocab) : 0, vocab, name) < 0)
        return err_nomem(err);
    if (access(got, F_OK) == 0)
        *path = got;
    else
        free(got);
    return OK;
}

/* The template of a file's chat_template: a text, or the one named "default" of a list. NULL: none. */
static const char *template_of(const struct json *value)
{
    if (!value || json_type(value) != JSON_ARRAY)
        return value ? json_string(value) : NULL;
    for (const struct json *m = json_first(value); m; m = json_next(m)) {
        const char *name = json_string(json_get(m, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string(json_get(m, "template"));
    }
    return NULL;
}

/* bos_token and the others, as texts or {"content": text}. */
static void add_specials(const struct json *config, struct json *variables)
{
    for (const struct json *m = json_first(config); m; m = json_next(m)) {
        const char *key = json_key(m), *end = strstr(key, "_token"), *text = json_string(m);
        if (!text && json_type(m) == JSON_OBJECT)
            text = json_string(json_get(m, "content"));
        if (end && strcmp(end, "_token") == 0 && text && !json_get(variables, key))
            json_add_string(variables, key, text);
    }
}

/* Parse a template and remember where it is from. *path becomes the chat's on OK. */
static enum status use_template(struct chat *chat, const char *template, char **path,
                                struct err *err)
{
    struct err why = {0};
    const enum status rc = jinja_new(template, &chat->jinja, &why);
    if (rc != OK)
        return err_set(err, rc, "'%s': %s", *path, why.msg);
    chat->source = *path;
    *path = NULL;
    return OK;
}

/* Look into a JSON file for special tokens and, unless there is one, a template. */
static enum status read_config(struct chat *chat, const char *vocab, const char *name,
                               struct err *err)
{
    struct json *root = NULL;
    char *path = NULL;
    enum status rc = beside(vocab, name, &path, err);
    if (rc != OK || !path)
        return rc;
    rc = json_read_file(path, &root, err);
    if (rc == OK && json_type(root) != JSON_OBJECT)
        rc = err_set(err, ERR_INPUT, "'%s' must be an object, got %s", path,
                     json_type_name(json_type(root)));
    if (rc == OK) {
        const char *template = template_of(json_get(root, "chat_template"));
        add_specials(root, chat->variables);
        if (template && !chat->jinja)
            rc = use_template(chat, template, &path, err);
    }
    json_free(root);
    free(path);
    return rc;
}

static enum status read_jinja(struct chat *chat, const char *vocab, struct err *err)
{
    char *path = NULL, *text = NULL;
    enum status rc = beside(vocab, "chat_template.jinja", &path, err);
    if (rc == OK && path) {
        rc = file_read_text(path, &text, err);
        THEN(use_template(chat, text, &path, err));
    }
    free(text);
    free(path);
    return rc;
}

static enum status use_family(struct chat *chat, struct err *err)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (tokenizer_id(chat->tokenizer, families[i].first) >= 0 &&
            tokenizer_id(chat->tokenizer, families[i].second) >= 0)
            return jinja_new(families[i].template, &chat->jinja, err);
    err_set(err, ERR_INPUT, "messages need a chat_template, and the tokenizer has none");
    err_hint(err,
             "chat_template.jinja, or chat_template in tokenizer_config.json; without one only "
             "ChatML (<|im_start|>) and Llama 3 (<|start_header_id|>) are known");
    return ERR_INPUT;
}

enum status chat_open(const char *vocab, const struct tokenizer *tokenizer, struct chat **chat,
                      struct err *err)
{
    static const char *const names[] = {"tokenizer_config.json", "chat_template.json",
                                        "special_tokens_map.json"};
    struct chat *got = calloc(1, sizeof *got);
    if (!got)
        return err_nomem(err);
    got->tokenizer = tokenizer;
    got->variables = json_object_new();
    json_add_null(got->variables, "documents");
    json_add_bool(got->variables, "add_generation_prompt", false);
    enum status rc = vocab ? read_jinja(got, vocab, err) : OK;
    for (int i = 0; vocab && i < 3; i++)
        THEN(read_config(got, vocab, names[i], err));
    if (rc == OK && !got->jinja)
        rc = use_family(got, err);
    if (rc == OK)
        *chat = got;
    else
        chat_free(got);
    return rc;
}

void chat_free(struct chat *chat)
{
    if (!chat)
        return;
    jinja_free(chat->jinja);
    json_free(chat->variables);
    free(chat->source);
    free(chat);
}

const char *chat_source(const struct chat *chat)
{
    return chat->source;
}

bool chat_has_date(const struct chat *chat)
{
    return jinja_has_date(chat->jinja);
}

/* --- a row -------------------------------------------------------------------------------------- */

static enum status check_messages(const struct chat *chat, const struct json *messages,
                                  struct err *err)
{
    for (const struct json *m = json_first(messages); m; m = json_next(m)) {
        const struct json *content = json_get(m, "content"), *calls = json_get(m, "tool_calls");
        const bool has_calls = calls && json_type(calls) == JSON_ARRAY && json_count(calls) > 0;
        if (json_type(m) != JSON_OBJECT || !json_string(json_get(m, "role")) ||
            (!has_calls &&
             (!content || (!json_string(content) && json_type(content) != JSON_ARRAY))))
            return err_set(err, ERR_INPUT, "a message needs role and content, as texts");
        if (has_calls && !jinja_generates(chat->jinja))
            return err_set(err, ERR_INPUT,
                           "tool_calls are not supported, because the chat template does not mark "
                           "by {%% generation %%} what counts of them");
    }
    return json_count(messages) > 0 ? OK : err_set(err, ERR_INPUT, "messages are empty");
}

/* Between two parts of one message, everything is the message's. */
static void fill_gaps(struct jinja_text *text)
{
    size_t last = text->bytes;
    for (size_t i = 0; i < text->bytes; i++) {
        if (text->marks[i] == 0)
            continue;
        for (size_t k = last + 1; k < i && text->marks[last] == text->marks[i]; k++)
            text->marks[k] = text->marks[i];
        last = i;
    }
}

/* From a row's first token on, mark the special token that ends each message, and blanks of the same line before it. */
static void mark_ends(const struct chat *chat, const struct jinja_text *text,
                      const struct token_list *tokens, int64_t first)
{
    for (int64_t i = first; i < tokens->count; i++) {
        const struct token *token = &tokens->at[i];
        size_t at = (size_t)token->first;
        if (!tokenizer_special(chat->tokenizer, token->id))
            continue;
        while (at > 0 && text->marks[at - 1] == 0 && text->at[at - 1] == ' ')
            at--;
        if (at == 0 || text->marks[at - 1] == 0 || text->marks[at - 1] == JINJA_GENERATED)
            continue; /* it follows no message, or the end of one */
        for (; at < (size_t)token->end; at++)
            text->marks[at] = JINJA_GENERATED;
    }
}

/* From a row's first token on, keep the places of tokens with a marked byte, and of no others. */
static void choose(const struct jinja_text *text, struct token_list *tokens, int64_t first)
{
    for (int64_t i = first; i < tokens->count; i++) {
        struct token *token = &tokens->at[i];
        bool counts = false;
        for (int32_t b = token->first; b < token->end && !counts; b++)
            counts = text->marks[b] != 0;
        if (!counts)
            token->first = token->end = 0;
    }
}

enum status chat_tokens(const struct chat *chat, const struct json *row, struct token_list *tokens,
                        struct err *err)
{
    const struct json *messages = json_get(row, "messages"), *tools = json_get(row, "tools");
    const int64_t first = tokens->count;
    struct jinja_text text = {0};
    struct json *variables = json_object_new();
    enum status rc = check_messages(chat, messages, err);
    for (const struct json *v = json_first(chat->variables); v; v = json_next(v))
        json_add_copy(variables, json_key(v), v);
    json_add_copy(variables, "messages", messages);
    if (tools && json_type(tools) == JSON_ARRAY)
        json_add_copy(variables, "tools", tools);
    else
        json_add_null(variables, "tools");
    THEN(json_check(variables, err));
    THEN(jinja_render(chat->jinja, variables, &text, err));
    THEN(tokenizer_encode(chat->tokenizer, text.at, text.bytes,
                          ENCODE_PLACES | (chat->source ? 0 : ENCODE_AROUND), tokens, err));
    if (rc == OK) {
        if (!jinja_generates(chat->jinja)) {
            fill_gaps(&text);
            mark_ends(chat, &text, tokens, first);
        }
        choose(&text, tokens, first);
    }
    jinja_text_clear(&text);
    json_free(variables);
    return rc;
}
