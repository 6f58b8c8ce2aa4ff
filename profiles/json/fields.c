/* Reading, writing and help of JSON objects by a table of fields. fields_read() walks the members
 * of an object and finds their fields by the dotted key; fields_read_member() reads a value by the type of
 * its field. Read struct member first. */
#include "profiles/json/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "partition/base/synonyms.h"
#include "partition/base/units.h"

/* Large enough for a job's keys, which have at most 40 characters. */
enum { MAX_KEY = 96, MAX_NAMES = 128 };

static void full_key(const struct fields_source *source, const char *key, char *buf, size_t size)
{
    snprintf(buf, size, "%s%s%s", source->prefix, *source->prefix && *key ? "." : "", key);
}

enum status fields_refuse(const struct fields_source *source, const char *key, const char *limit,
                          const struct json *value, struct err *err)
{
    char full[2 * MAX_KEY], *text = NULL;
    full_key(source, key, full, sizeof full);
    enum json_type type = json_type(value);
    if (type == JSON_ARRAY || type == JSON_OBJECT || json_text(value, false, &text, NULL) != OK)
        text = NULL;
    enum status rc = err_set(err, ERR_INPUT, "%s: %s must be %s, got %.80s", source->file, full,
                             limit, text ? text : json_type_name(type));
    free(text);
    return rc;
}

const struct member *fields_find(const struct member *fields, int n, const char *key, bool *group)
{
    size_t length = strlen(key);
    if (group)
        *group = false;
    for (int i = 0; i < n; i++) {
        if (fields[i].name[0] != *key) /* most rows: cheaper than the calls below */
            continue;
        if (strcmp(fields[i].name, key) == 0)
            return &fields[i];
        if (group && strncmp(fields[i].name, key, length) == 0 && fields[i].name[length] == '.')
            *group = true;
    }
    return NULL;
}

/* Name the key of the table that others call by the last part of `key`, if there is one. */
static bool hint_synonym(const struct member *fields, int n, const char *key, struct err *err)
{
    const char *dot = strrchr(key, '.');
    char ours[2 * MAX_KEY];
    const struct member_table table = {fields, n};
    if (!member_called(&table, dot ? dot + 1 : key, ours, sizeof ours))
        return false;
    err_hint(err, "use %s", ours);
    return true;
}

enum status fields_unknown(const struct member *fields, int n, const struct fields_source *source,
                           const char *key, struct err *err)
{
    const char *names[MAX_NAMES], *dot = strrchr(key, '.');
    char list[220], full[2 * MAX_KEY], level[MAX_NAMES][MAX_KEY];
    size_t parent = dot ? (size_t)(dot - key) + 1 : 0;
    int num_names = 0, num_level = 0;
    full_key(source, key, full, sizeof full);
    if (hint_synonym(fields, n, key, NULL)) {
        const enum status rc =
            err_set(err, ERR_INPUT, "%s: unknown key '%.100s'", source->file, full);
        hint_synonym(fields, n, key, err);
        return rc;
    }
    /* List the valid keys with the parent of `key`, each up to its next dot and only once. */
    for (int i = 0; i < n && num_names < MAX_NAMES; i++) {
        names[num_names++] = fields[i].name;
        if (strncmp(fields[i].name, key, parent) != 0)
            continue;
        const char *rest = fields[i].name + parent;
        snprintf(level[num_level], MAX_KEY, "%.*s", (int)strcspn(rest, "."), rest);
        bool known = false;
        for (int j = 0; j < num_level; j++)
            known = known || strcmp(level[j], level[num_level]) == 0;
        num_level += !known;
    }
    const char *beside[MAX_NAMES];
    for (int j = 0; j < num_level; j++)
        beside[j] = level[j];
    const char *near = nearest_name(key + parent, beside, num_level);
    char near_full[2 * MAX_KEY] = "";
    if (near)
        snprintf(near_full, sizeof near_full, "%.*s%s", (int)parent, key, near);
    else if ((near = nearest_name(key, names, num_names)))
        snprintf(near_full, sizeof near_full, "%s", near);
    enum status rc = err_set(err, ERR_INPUT, "%s: unknown key '%.100s'%s%s%s", source->file, full,
                             near ? ", nearest is '" : "", near_full, near ? "'" : "");
    if (num_level > 0)
        err_hint(err, "valid keys%s%.*s: %s", parent ? " of " : "", parent ? (int)parent - 1 : 0,
                 key, join_names(beside, num_level, list, sizeof list));
    return rc;
}

char *path_join(const char *dir, const char *path)
{
    if (*path == '/' || !dir)
        return strdup(path);
    size_t size = strlen(dir) + strlen(path) + 2;
    char *joined = malloc(size);
    if (joined)
        snprintf(joined, size, "%s/%s", dir, path);
    return joined;
}

bool path_ends(const char *path, const char *suffix)
{
    const size_t length = path ? strlen(path) : 0, n = strlen(suffix);
    return length > n && strcasecmp(path + length - n, suffix) == 0;
}

bool path_is_json(const char *text)
{
    size_t length = strlen(text);
    return length > 5 && strcmp(text + length - 5, ".json") == 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Set the bits of a list of names; 0 where it is none. */
static unsigned read_names(const struct member *field, const struct json *value)
{
    unsigned got = 0;
    if (!field->list_offset || json_type(value) != JSON_ARRAY)
        return 0;
    for (const struct json *m = json_first(value); m; m = json_next(m)) {
        const int i = json_string(m) ? member_find_name(field, json_string(m)) : -1;
        if (i < 0)
            return 0;
        got |= 1u << i;
    }
    return got;
}

/* The texts of an array, joined by commas; NULL: it has none, something else, or more than fits. */
static const char *join_texts(const struct json *array, char *joined, size_t size)
{
    size_t n = 0;
    for (const struct json *v = json_first(array); v; v = json_next(v)) {
        const char *text = json_string(v);
        if (!text || n + strlen(text) + 2 > size)
            return NULL;
        n += (size_t)snprintf(joined + n, size - n, "%s%s", n ? "," : "", text);
    }
    return n ? joined : NULL;
}

/* Read a number. A time whose key does not end in _ns needs its unit, as on the command line: 5
 * could be meant as seconds. */
static bool read_number(const struct member *field, const struct json *value, void *base)
{
    int64_t number;
    switch (field->type) {
    case MEMBER_REAL:
    case MEMBER_RATE:
    case MEMBER_FLOPS:
        return member_set_real(field, json_number(value), base);
    case MEMBER_NS:
        return json_int64(value, &number) && (number == 0 || member_in_ns(field)) &&
               member_set_int(field, number, base);
    case MEMBER_INT:
    case MEMBER_COUNT:
    case MEMBER_BYTES:
        return json_int64(value, &number) && member_set_int(field, number, base);
    default:
        return false;
    }
}

/* Read a text. Where JSON has numbers, true and false, texts do not stand in their place. */
static enum status read_text(const struct member *field, const char *text,
                             const struct fields_source *source, void *base)
{
    const bool word =
        field->type == MEMBER_INT || field->type == MEMBER_COUNT || field->type == MEMBER_BOOL;
    bool is_path = field->type == MEMBER_PATH && *text;
    if (word && strcmp(text, "auto") != 0)
        return ERR_INPUT;
    for (int i = 0; is_path && field->names && field->names[i]; i++)
        is_path = strcmp(text, field->names[i]) != 0; /* a word that stands in place of a path */
    if (!is_path)
        return member_parse(field, field->name, text, base, NULL);
    char *joined = path_join(source->dir, text);
    const enum status rc =
        joined ? member_parse(field, field->name, joined, base, NULL) : ERR_NOMEM;
    free(joined);
    return rc;
}

/* Read a value; ERR_INPUT: it has another type, or is not within the limits. */
static enum status read_value(const struct member *field, const struct json *value,
                              const struct fields_source *source, void *base)
{
    const enum json_type type = json_type(value);
    char **owned = (char **)(void *)((char *)base + field->offset), joined[512];
    const char *text = json_string(value);
    unsigned names;
    switch (type) {
    case JSON_NUMBER:
        return read_number(field, value, base) ? OK : ERR_INPUT;
    case JSON_BOOL:
        if (field->type != MEMBER_BOOL && field->type != MEMBER_NAME)
            return ERR_INPUT;
        text = json_true(value) ? "true" : "false";
        return member_parse(field, field->name, text, base, NULL);
    case JSON_NULL:
        if (field->type != MEMBER_STRING && field->type != MEMBER_PATH)
            return ERR_INPUT;
        free(*owned);
        *owned = NULL;
        return OK;
    case JSON_ARRAY:
        names = read_names(field, value);
        if (names) {
            member_parse(field, field->name, "auto", base, NULL);
            *(unsigned *)(void *)((char *)base + field->list_offset) = names;
            return OK;
        }
        text = field->flags & MEMBER_LIST ? join_texts(value, joined, sizeof joined) : NULL;
        break;
    case JSON_OBJECT:
        return field->flags & MEMBER_OBJECT ? OK : ERR_INPUT;
    case JSON_STRING:
        break;
    }
    return text ? read_text(field, text, source, base) : ERR_INPUT;
}

enum status fields_read_member(const struct member *field, const struct json *value,
                               const struct fields_source *source, void *base, struct err *err)
{
    char limit[256];
    if (field->type == MEMBER_OTHER)
        return OK;
    enum status rc = read_value(field, value, source, base);
    if (rc == ERR_NOMEM)
        return err_nomem(err);
    if (rc == OK)
        return OK;
    member_limit(field, json_type(value) == JSON_NUMBER, limit, sizeof limit);
    rc = fields_refuse(source, field->name, limit, value, err);
    const char *text = json_string(value);
    const char *ours =
        text && field->type == MEMBER_NAME ? synonym_value(text, field->names) : NULL;
    if (ours)
        err_hint(err, "use %s", ours);
    return rc;
}

/* Refuse a value where keys belong, such as 64 for train.batch. */
static enum status refuse_value_of_group(const struct member *fields, int n,
                                         const struct fields_source *source, const char *key,
                                         const struct json *value, struct err *err)
{
    const enum status rc = fields_refuse(source, key, "an object", value, err);
    hint_synonym(fields, n, key, err);
    return rc;
}

/* Read the members of one level. `at` is the level's own dotted key. The parser limits the depth.
 */
static enum status read_level(const struct member *fields, int n, const struct json *object,
                              const char *at, const struct fields_source *source, void *base,
                              struct err *err)
{
    for (struct json *m = json_first(object); m; m = json_next(m)) {
        char key[MAX_KEY];
        bool group;
        enum status rc;
        if (strchr(json_key(m), '.')) /* callers that read MEMBER_OTHER would not find such a key */
            return err_set(err, ERR_INPUT,
                           "%s: key '%.100s' must be written as nested objects; dots are for --set",
                           source->file, json_key(m));
        if (snprintf(key, sizeof key, "%s%s%s", at, *at ? "." : "", json_key(m)) >= MAX_KEY)
            return fields_unknown(fields, n, source, key, err);
        const struct member *field = fields_find(fields, n, key, &group);
        if (field)
            rc = fields_read_member(field, m, source, base, err);
        else if (!group)
            rc = fields_unknown(fields, n, source, key, err);
        else if (json_type(m) != JSON_OBJECT)
            rc = refuse_value_of_group(fields, n, source, key, m, err);
        else
            rc = read_level(fields, n, m, key, source, base, err);
        if (rc != OK)
            return rc;
    }
    return OK;
}

enum status fields_read(const struct member *fields, int n, const struct json *object,
                        const struct fields_source *source, void *base, struct err *err)
{
    if (json_type(object) != JSON_OBJECT)
        return *source->prefix ? fields_refuse(source, "", "an object", object, err)
                               : err_set(err, ERR_INPUT, "%s: must be an object, got %s",
                                         source->file, json_type_name(json_type(object)));
    return read_level(fields, n, object, "", source, base, err);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The list that "auto" is restricted to, or "auto". */
static void write_auto(const struct member *field, const void *base, const char *key,
                       struct json *to)
{
    const void *at = (const char *)base + field->list_offset;
    const unsigned names = field->list_offset ? *(const unsigned *)at : 0;
    struct json *list = names ? json_add_array(to, key) : NULL;
    if (!list)
        json_add_string(to, key, "auto");
    for (int i = 0; list && field->names[i]; i++)
        if (names >> i & 1)
            json_add_string(list, NULL, field->names[i]);
}

static void write_field(const struct member *field, const void *base, struct json *to,
                        const char *key)
{
    const char *at = (const char *)base + field->offset;
    char text[32];
    if (member_auto(field, base)) {
        write_auto(field, base, key, to);
        return;
    }
    switch (field->type) {
    case MEMBER_NS:
        if (!member_in_ns(field)) {
            json_add_string(to, key, member_text(field, base, text, sizeof text));
            return;
        }
        json_add_int(to, key, member_int(field, base));
        return;
    case MEMBER_INT:
    case MEMBER_COUNT:
    case MEMBER_BYTES:
        json_add_int(to, key, member_int(field, base));
        return;
    case MEMBER_REAL:
    case MEMBER_RATE:
    case MEMBER_FLOPS:
        json_add_double(to, key, member_real(field, base));
        return;
    case MEMBER_BOOL:
        json_add_bool(to, key, member_int(field, base) != 0);
        return;
    case MEMBER_NAME:
        json_add_string(to, key, member_name(field, base));
        return;
    case MEMBER_TEXT:
        json_add_string(to, key, at);
        return;
    case MEMBER_STRING:
    case MEMBER_PATH:
        if (*(char *const *)(const void *)at)
            json_add_string(to, key, *(char *const *)(const void *)at);
        return;
    case MEMBER_OTHER:
        return;
    }
}

void fields_write(const struct member *fields, int n, const void *base, struct json *object)
{
    for (int i = 0; i < n; i++) {
        struct json *to = object;
        const char *key = fields[i].name;
        if (fields[i].type == MEMBER_OTHER)
            continue;
        for (const char *dot = strchr(key, '.'); dot && to; dot = strchr(key, '.')) {
            char part[MAX_KEY];
            snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
            struct json *next = json_get(to, part);
            to = next ? next : json_add_object(to, part);
            key = dot + 1;
        }
        write_field(&fields[i], base, to, key);
    }
}

/* --- help ------------------------------------------------------------------------------------- */

void fields_each(const struct member *fields, int n, key_visitor *visit, void *ctx)
{
    for (int i = 0; i < n; i++) {
        const char *help = fields[i].help ? fields[i].help : "", *init = fields[i].init;
        char takes[256], meaning[1024];
        member_takes(&fields[i], takes, sizeof takes);
        snprintf(meaning, sizeof meaning, "%s%s%s%s", help, init ? " [" : "", init ? init : "",
                 init ? "]" : "");
        visit(&(struct key_help){fields[i].name, takes, meaning}, ctx);
    }
}
