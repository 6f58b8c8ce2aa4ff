/* Two readers of lines. Each makes its tree by json_add_*(); add_value() reads one value of both. */
#include "profiles/frameworks/settings_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lines {
    const char *at, *file;
    int line;
    char *text; /* owned: the current one, without its comment and the blanks around it */
    int indent; /* of it; -1 after the last one */
};

/* Length of a line without its comment. */
static size_t without_comment(const char *line, size_t n)
{
    char quote = '\0';
    for (size_t i = 0; i < n; i++)
        if (quote)
            quote = line[i] == quote ? '\0' : quote;
        else if (line[i] == '"' || line[i] == '\'')
            quote = line[i];
        else if (line[i] == '#' && (i == 0 || isspace((unsigned char)line[i - 1])))
            return i;
    return n;
}

static int depth_of(const char *text)
{
    int depth = 0;
    for (; *text; text++)
        depth += (*text == '[' || *text == '{') - (*text == ']' || *text == '}');
    return depth;
}

/* Go to the next line that has something. A list over several lines is one. */
static enum status next(struct lines *l, struct err *err)
{
    free(l->text);
    l->text = NULL;
    l->indent = -1;
    while (*l->at) {
        const size_t whole = strcspn(l->at, "\n");
        size_t n = without_comment(l->at, whole);
        const size_t blank = strspn(l->at, " ");
        const char *const from = l->at + blank;
        l->at += whole + (l->at[whole] == '\n');
        l->line++;
        while (n > 0 && isspace((unsigned char)(from - blank)[n - 1]))
            n--;
        if (n <= blank && !l->text)
            continue;
        n -= n > blank ? blank : n;
        const size_t had = l->text ? strlen(l->text) : 0;
        char *const grown = realloc(l->text, had + n + 2);
        if (!grown)
            return err_nomem(err);
        if (had == 0)
            l->indent = (int)blank;
        memcpy(grown + had, from, n);
        grown[had + n] = '\0';
        l->text = grown;
        if (depth_of(grown) <= 0 || grown[0] == '[')
            break;
    }
    return OK;
}

/* A mapping in braces as JSON: bare words get quotes. Fresh; NULL: no memory. */
static char *flow_to_json(const char *text)
{
    char *json = NULL;
    size_t size;
    FILE *out = open_memstream(&json, &size);
    if (!out)
        return NULL;
    while (*text) {
        size_t n = strcspn(text, "{}[],:\"' \t");
        if (*text == '"' || *text == '\'') {
            n = strcspn(text + 1, (char[2]){*text, '\0'});
            fprintf(out, "\"%.*s\"", (int)n, text + 1);
            text += n + 1 + (text[n + 1] != '\0');
            continue;
        }
        while (text[n] && strchr(": \t", text[n]) && n > 0 && !strchr("{}[],", text[n + 1]) &&
               !(text[n] == ':' && isspace((unsigned char)text[n + 1])) && text[n + 1])
            n += 1 + strcspn(text + n + 1, "{}[],: \t"); /* "a b", "http://x" */
        char word[256];
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        struct json *value = NULL;
        if (n > 0 && strcmp(word, "True") != 0 && strcmp(word, "False") != 0 &&
            json_parse(word, "", &value, NULL) != OK)
            fprintf(out, "\"%s\"", word);
        else if (n > 0)
            fputs(*word == 'T' ? "true" : *word == 'F' ? "false" : word, out);
        else
            fputc(*text, out);
        json_free(value);
        text += n > 0 ? n : 1;
    }
    return fclose(out) == 0 ? json : NULL;
}

/* Add a value; quotes go, and words in brackets need none. */
static void add_value(struct json *parent, const char *key, const char *text)
{
    const size_t n = strlen(text);
    struct json *value = NULL;
    char *copy = strdup(text), *flow = NULL;
    for (char *c = copy, *to = copy; c && text[0] != '"' && text[0] != '\''; c++) {
        *to = *c == '\'' ? '"' : *c; /* numbers of TOML: 1_000 */
        to += !(*c == '_' && c > copy && isdigit((unsigned char)c[-1]) &&
                isdigit((unsigned char)c[1]) && isdigit((unsigned char)text[0]));
        if (!*c)
            break;
    }
    if (n == 0 || strcmp(text, "~") == 0) {
        json_add_null(parent, key);
    } else if (n > 1 && (text[0] == '"' || text[0] == '\'') && text[n - 1] == text[0]) {
        copy[n - 1] = '\0';
        json_add_string(parent, key, copy + 1);
    } else if (strcmp(text, "True") == 0 || strcmp(text, "False") == 0) {
        json_add_bool(parent, key, text[0] == 'T');
    } else if (text[0] == '{' && (flow = flow_to_json(text)) &&
               json_parse(flow, key ? key : "", &value, NULL) == OK) {
        json_add_copy(parent, key, value);
    } else if (copy && json_parse(copy, key ? key : "", &value, NULL) == OK) {
        if (key)
            json_add_copy(parent, key, value);
        else
            json_add_copy(parent, NULL, value);
    } else {
        json_add_string(parent, key, text);
    }
    json_free(value);
    free(copy);
    free(flow);
}

static enum status refuse(const struct lines *l, const char *why, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s:%d: %s: '%.60s'", l->file, l->line, why,
                   l->text ? l->text : "");
}

/* --- YAML -------------------------------------------------------------------------------------- */

/* The colon that ends a key; NULL: there is none. */
static char *colon_of(char *text)
{
    char quote = '\0';
    for (char *c = text; *c; c++)
        if (quote)
            quote = *c == quote ? '\0' : quote;
        else if (*c == '"' || *c == '\'')
            quote = *c;
        else if (*c == '[' || *c == '{')
            return NULL;
        else if (*c == ':' && (!c[1] || isspace((unsigned char)c[1])))
            return c;
    return NULL;
}

static enum status read_block(struct lines *l, int indent, struct json *parent, const char *key,
                              int depth, struct err *err);

/* Read "key: value" of l->text from `at` on into the object; a value of more lines stands deeper. */
static enum status read_pair(struct lines *l, char *at, int indent, struct json *object, int depth,
                             struct err *err)
{
    char *const colon = colon_of(at);
    if (!colon)
        return refuse(l, "this is no 'key: value'", err);
    char *key = strndup(at, (size_t)(colon - at));
    char *const value = colon + 1 + strspn(colon + 1, " \t");
    enum status rc = key ? OK : err_nomem(err);
    char *name = key;
    if (key && (key[0] == '"' || key[0] == '\'') && strlen(key) > 1) {
        name = key + 1;
        name[strlen(name) - 1] = '\0';
    }
    if (rc == OK && (*value == '|' || *value == '>' || *value == '&' || *value == '*'))
        rc = refuse(l, "anchors and texts over several lines are not read", err);
    if (rc == OK && *value) {
        json_remove(object, name);
        add_value(object, name, value);
        rc = next(l, err);
    } else if (rc == OK) {
        rc = next(l, err);
        const bool list = l->text && l->text[0] == '-' && l->indent == indent;
        if (rc == OK && (l->indent > indent || list))
            rc = read_block(l, l->indent, object, name, depth + 1, err);
        else if (rc == OK)
            json_add_null(object, name);
    }
    free(key);
    return rc;
}

static enum status read_mapping(struct lines *l, int indent, struct json *object, int depth,
                                struct err *err)
{
    enum status rc = OK;
    while (rc == OK && l->indent == indent && l->text[0] != '-')
        rc = read_pair(l, l->text, indent, object, depth, err);
    while (rc == OK && l->indent == indent && strncmp(l->text, "--", 2) == 0)
        rc = read_pair(l, l->text, indent, object, depth, err);
    if (rc == OK && l->indent > indent)
        rc = refuse(l, "the indent fits nothing above", err);
    return rc == OK && l->indent == indent && l->text[0] != '-'
               ? read_mapping(l, indent, object, depth, err)
               : rc;
}

static enum status read_block(struct lines *l, int indent, struct json *parent, const char *key,
                              int depth, struct err *err)
{
    enum status rc = OK;
    if (depth > 32)
        return refuse(l, "nested too deeply", err);
    if (l->text[0] != '-' || l->text[1] == '-')
        return read_mapping(l, indent,
                            key ? json_add_object(parent, key) : json_add_object(parent, NULL),
                            depth, err);
    struct json *const array = json_add_array(parent, key);
    while (rc == OK && l->indent == indent && l->text[0] == '-' &&
           (!l->text[1] || isspace((unsigned char)l->text[1]))) {
        char *const item = l->text + 1 + strspn(l->text + 1, " ");
        if (*item && colon_of(item)) { /* a mapping that begins on the line of its dash */
            const int inner = indent + (int)(item - l->text);
            struct json *const object = json_add_object(array, NULL);
            rc = read_pair(l, item, inner, object, depth + 1, err);
            if (rc == OK && l->indent == inner)
                rc = read_mapping(l, inner, object, depth + 1, err);
        } else if (*item) {
            add_value(array, NULL, item);
            rc = next(l, err);
        } else {
            rc = next(l, err);
            if (rc == OK && l->indent > indent)
                rc = read_block(l, l->indent, array, NULL, depth + 1, err);
        }
    }
    return rc;
}

/* --- TOML -------------------------------------------------------------------------------------- */

/* The object of a dotted name below root; objects on the way are made. */
static struct json *table_of(struct json *root, char *name)
{
    char *rest = NULL;
    for (char *part = strtok_r(name, ".", &rest); part; part = strtok_r(NULL, ".", &rest)) {
        part += strspn(part, " \t\"");
        part[strcspn(part, " \t\"")] = '\0';
        struct json *const inner = json_get(root, part);
        root = inner && json_type(inner) == JSON_OBJECT ? inner : json_add_object(root, part);
    }
    return root;
}

static enum status read_toml(struct lines *l, struct json *root, struct err *err)
{
    struct json *table = root;
    enum status rc = OK;
    while (rc == OK && l->text) {
        char *const equals = strchr(l->text, '=');
        const size_t n = strlen(l->text);
        if (l->text[0] == '[' && l->text[n - 1] == ']') {
            const size_t open = strspn(l->text, "[");
            l->text[n - open] = '\0';
            table = table_of(root, l->text + open);
        } else if (equals && equals > l->text) {
            char *const value = equals + 1 + strspn(equals + 1, " \t");
            *equals = '\0';
            char *const dot = strrchr(l->text, '.');
            char *name = dot ? dot + 1 : l->text;
            if (dot)
                *dot = '\0';
            struct json *const to = dot ? table_of(table, l->text) : table;
            name += strspn(name, " \t\"");
            name[strcspn(name, " \t\"")] = '\0';
            json_remove(to, name);
            add_value(to, name, value);
        } else {
            rc = refuse(l, "this is no 'key = value'", err);
        }
        THEN(next(l, err));
    }
    return rc;
}

void settings_without_comments(char *text)
{
    char *comma = NULL;
    if (text[strspn(text, " \t\r\n")] != '{')
        return;
    for (char *c = text; *c;) {
        size_t n = 0;
        if (*c == '"') {
            for (n = 1; c[n] && c[n] != '"'; n++)
                n += c[n] == '\\' && c[n + 1];
            c += n + (c[n] == '"');
            comma = NULL;
            continue;
        }
        if (*c == '#' || strncmp(c, "//", 2) == 0)
            n = strcspn(c, "\n");
        else if (strncmp(c, "/*", 2) == 0)
            n = strstr(c, "*/") ? (size_t)(strstr(c, "*/") + 2 - c) : strlen(c);
        for (size_t i = 0; i < n; i++)
            c[i] = c[i] == '\n' ? '\n' : ' ';
        if (n == 0 && comma && (*c == '}' || *c == ']'))
            *comma = ' ';
        if (n == 0 && !isspace((unsigned char)*c))
            comma = *c == ',' ? c : NULL;
        c += n > 0 ? n : 1;
    }
}

enum status settings_read(const char *text, const char *file, struct json **object, struct err *err)
{
    struct lines l = {.at = text, .file = file};
    const size_t n = strlen(file);
    if (text[strspn(text, " \t\r\n")] == '{')
        return json_parse(text, file, object, err);
    struct json *root = json_object_new();
    enum status rc = next(&l, err);
    if (rc == OK && l.text && strncmp(l.text, "---", 4) == 0)
        rc = next(&l, err);
    if (rc == OK && n > 5 && strcmp(file + n - 5, ".toml") == 0)
        rc = read_toml(&l, root, err);
    else if (rc == OK && l.text)
        rc = read_mapping(&l, l.indent, root, 0, err);
    if (rc == OK && l.text)
        rc = refuse(&l, "the indent fits nothing above", err);
    THEN(json_check(root, err));
    free(l.text);
    if (rc == OK)
        *object = root;
    else
        json_free(root);
    return rc;
}
