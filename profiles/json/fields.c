/* Reading, writing and help of JSON objects by a table of fields. fields_read() walks the members
 * of an object and finds their fields by the dotted key; read_field() reads a value by the type of
 * its field. Read struct field in fields.h first. */
#include "profiles/json/fields.h"

#include <math.h>
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

const struct field *fields_find(const struct field *fields, int n, const char *key, bool *group)
{
    size_t length = strlen(key);
    if (group)
        *group = false;
    for (int i = 0; i < n; i++) {
        if (strcmp(fields[i].key, key) == 0)
            return &fields[i];
        if (group && strncmp(fields[i].key, key, length) == 0 && fields[i].key[length] == '.')
            *group = true;
    }
    return NULL;
}

/* Name the key of the table that others call by the last part of `key`, if there is one. */
static bool hint_synonym(const struct field *fields, int n, const char *key, struct err *err)
{
    const char *dot = strrchr(key, '.'), *ours = synonym_key(dot ? dot + 1 : key);
    char name[MAX_KEY];
    if (!ours)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(ours, " =,"), ours);
    if (!fields_find(fields, n, name, NULL))
        return false;
    err_hint(err, "use %s", ours);
    return true;
}

enum status fields_unknown(const struct field *fields, int n, const struct fields_source *source,
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
        names[num_names++] = fields[i].key;
        if (strncmp(fields[i].key, key, parent) != 0)
            continue;
        const char *rest = fields[i].key + parent;
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

static void store_int(const struct field *field, void *base, int64_t value)
{
    char *at = (char *)base + field->offset;
    if (field->size == sizeof(bool))
        *(bool *)at = value != 0;
    else if (field->size == sizeof(int))
        *(int *)at = (int)value;
    else
        *(int64_t *)at = value;
}

static int64_t fetch_int(const struct field *field, const void *base)
{
    const char *at = (const char *)base + field->offset;
    if (field->size == sizeof(bool))
        return *(const bool *)at;
    return field->size == sizeof(int) ? *(const int *)at : *(const int64_t *)at;
}

static enum status read_int(const struct field *field, const struct json *value,
                            const struct fields_source *source, void *base, struct err *err)
{
    char limit[96];
    int64_t number;
    bool automatic = field->type == FIELD_COUNT;
    if (automatic && json_string(value) && strcmp(json_string(value), "auto") == 0) {
        store_int(field, base, 0);
        return OK;
    }
    if (!json_int64(value, &number) || number < field->min || number > field->max) {
        const char *kind = json_type(value) == JSON_NUMBER ? "" : "an integer ";
        if (field->max == INT64_MAX)
            snprintf(limit, sizeof limit, "%s%sat least %lld", automatic ? "\"auto\" or " : "",
                     kind, (long long)field->min);
        else
            snprintf(limit, sizeof limit, "%s%s%lld..%lld", automatic ? "\"auto\" or " : "", kind,
                     (long long)field->min, (long long)field->max);
        return fields_refuse(source, field->key, limit, value, err);
    }
    store_int(field, base, number);
    return OK;
}

static enum status read_real(const struct field *field, const struct json *value,
                             const struct fields_source *source, void *base, struct err *err)
{
    char limit[96] = "a number";
    double number = json_number(value);
    if (json_string(value) && parse_ratio(json_string(value), field->key, &number, NULL) != OK)
        number = NAN;
    bool bounded = field->max > field->min;
    if (bounded)
        snprintf(limit, sizeof limit, "a number %lld..%lld", (long long)field->min,
                 (long long)field->max);
    if (!isfinite(number) ||
        (bounded && (number < (double)field->min || number > (double)field->max)))
        return fields_refuse(source, field->key, limit, value, err);
    *(double *)((char *)base + field->offset) = number;
    return OK;
}

/* Describe the values of a field for the help: "0..1024", "gpipe|1f1b|auto". */
static void describe(const struct field *field, char *buf, size_t size)
{
    static const char *const words[] = {"",     "",     "number", "true|false", "",          "text",
                                        "text", "path", "time",   "size",       "bandwidth", ""};
    snprintf(buf, size, "%s%s", words[field->type],
             field->type == FIELD_BOOL && field->auto_offset ? "|auto" : "");
    if (field->type == FIELD_INT || field->type == FIELD_COUNT) {
        const char *automatic = field->type == FIELD_COUNT ? "auto|" : "";
        if (field->max >= INT32_MAX) /* the size of the variable, no limit that people meet */
            snprintf(buf, size, "%s%lld..", automatic, (long long)field->min);
        else
            snprintf(buf, size, "%s%lld..%lld", automatic, (long long)field->min,
                     (long long)field->max);
    } else if (field->type == FIELD_CHOICE) {
        size_t used = 0;
        for (int i = 0; field->names[i] && used < size; i++)
            if (*field->names[i])
                used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? "|" : "",
                                         field->names[i]);
        if (field->auto_offset && used < size)
            snprintf(buf + used, size - used, "|auto%s", field->min > 0 ? "|[...]" : "");
    }
}

static enum status read_bool(const struct field *field, const struct json *value,
                             const struct fields_source *source, void *base, struct err *err)
{
    const char *text = field->auto_offset ? json_string(value) : NULL;
    const bool automatic = text && strcmp(text, "auto") == 0;
    if (!automatic && json_type(value) != JSON_BOOL)
        return fields_refuse(source, field->key,
                             field->auto_offset ? "true, false or auto" : "true or false", value,
                             err);
    *(bool *)((char *)base + field->offset) = !automatic && json_true(value);
    if (field->auto_offset)
        *(bool *)((char *)base + field->auto_offset) = automatic;
    return OK;
}

/* The place of a name among the field's; -1: none. */
static int name_index(const struct field *field, const char *text)
{
    for (int i = 0; text && *text && field->names[i]; i++)
        if (strcmp(field->names[i], current_value(text)) == 0)
            return i;
    return -1;
}

static unsigned *choice_list(const struct field *field, void *base)
{
    return field->min > 0 ? (unsigned *)((char *)base + field->min) : NULL;
}

/* Set the bits of a list of names; 0 where it is none. */
static unsigned read_names(const struct field *field, const struct json *value)
{
    unsigned got = 0;
    if (field->min == 0 || json_type(value) != JSON_ARRAY)
        return 0;
    for (const struct json *m = json_first(value); m; m = json_next(m)) {
        const int i = name_index(field, json_string(m));
        if (i < 0)
            return 0;
        got |= 1u << i;
    }
    return got;
}

static enum status read_choice(const struct field *field, const struct json *value,
                               const struct fields_source *source, void *base, struct err *err)
{
    const char *text = json_string(value);
    char limit[200];
    if (json_type(value) == JSON_BOOL) /* of a choice between true, false and more */
        text = json_true(value) ? "true" : "false";
    const unsigned names = read_names(field, value);
    if ((text && field->auto_offset && strcmp(text, "auto") == 0) || names) {
        *(bool *)((char *)base + field->auto_offset) = true;
        if (choice_list(field, base))
            *choice_list(field, base) = names;
        return OK;
    }
    const int index = name_index(field, text);
    if (index >= 0) {
        store_int(field, base, index);
        if (field->auto_offset)
            *(bool *)((char *)base + field->auto_offset) = false;
        return OK;
    }
    describe(field, limit, sizeof limit);
    const enum status rc = fields_refuse(source, field->key, limit, value, err);
    const char *ours = text ? synonym_value(text, field->names) : NULL;
    if (ours)
        err_hint(err, "use %s", ours);
    return rc;
}

/* Whether a key says itself that its numbers are ns: "fwd_ns". */
static bool key_in_ns(const struct field *field)
{
    const size_t length = strlen(field->key);
    return length > 3 && strcmp(field->key + length - 3, "_ns") == 0;
}

/* Read a number in the base unit, or a text with a unit. A time whose key does not end in _ns needs
 * its unit, as on the command line: 5 could be meant as seconds. */
static enum status read_unit(const struct field *field, const struct json *value,
                             const struct fields_source *source, void *base, struct err *err)
{
    static const char *const limits[] = {"a time like \"1ms\" or whole ns 0..2^60",
                                         "a size like \"16GiB\" or whole bytes at least 0",
                                         "a bandwidth like \"5GBps\" or bytes per second 1..10^18"};
    const char *text = json_string(value);
    void *at = (char *)base + field->offset;
    int64_t number;
    bool ok;
    if (field->type == FIELD_RATE) {
        double rate = json_number(value);
        ok = text ? parse_rate(text, field->key, &rate, NULL) == OK : rate >= 1 && rate <= 1e18;
        if (ok)
            *(double *)at = rate;
    } else {
        if (text)
            ok = (field->type == FIELD_NS ? parse_ns(text, field->key, &number, NULL)
                                          : parse_bytes(text, field->key, &number, NULL)) == OK;
        else
            ok = json_int64(value, &number) && number >= 0 &&
                 (field->type != FIELD_NS || number <= NS_MAX) &&
                 (number == 0 || field->type != FIELD_NS || key_in_ns(field));
        if (ok)
            *(int64_t *)at = number;
    }
    if (ok)
        return OK;
    return fields_refuse(source, field->key,
                         field->type == FIELD_NS && !key_in_ns(field)
                             ? "a time with a unit, like \"20us\" or \"1.5ms\""
                             : limits[field->type - FIELD_NS],
                         value, err);
}

/* Names are printed, so they must not break a line or send control codes to a terminal. */
static bool has_control(const char *text)
{
    while ((unsigned char)*text >= ' ' && *text != 0x7f)
        text++;
    return *text != '\0';
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

static enum status read_text(const struct field *field, const struct json *value,
                             const struct fields_source *source, void *base, struct err *err)
{
    const char *text = json_string(value);
    char *at = (char *)base + field->offset;
    char limit[96], joined[512];
    if (field->type == FIELD_TEXT && field->min == 1 && json_type(value) == JSON_OBJECT)
        return OK;
    if (field->type == FIELD_TEXT && field->min == 2 && json_type(value) == JSON_ARRAY)
        text = join_texts(value, joined, sizeof joined);
    if (field->type == FIELD_TEXT) {
        snprintf(limit, sizeof limit, "a text of at most %zu characters, no control characters",
                 field->size - 1);
        if (!text || strlen(text) >= field->size || has_control(text))
            return fields_refuse(source, field->key, limit, value, err);
        memset(at, 0, field->size);
        memcpy(at, text, strlen(text));
        return OK;
    }
    if (json_type(value) == JSON_NULL) {
        free(*(char **)at);
        *(char **)at = NULL;
        return OK;
    }
    if (!text || !*text)
        return fields_refuse(source, field->key, "a text that is not empty", value, err);
    bool is_path = field->type == FIELD_PATH;
    for (int i = 0; is_path && field->names && field->names[i]; i++)
        is_path = strcmp(text, field->names[i]) != 0; /* a word that stands in place of a path */
    char *copy = is_path ? path_join(source->dir, text) : strdup(text);
    if (!copy)
        return err_nomem(err);
    free(*(char **)at);
    *(char **)at = copy;
    return OK;
}

static enum status read_field(const struct field *field, const struct json *value,
                              const struct fields_source *source, void *base, struct err *err)
{
    switch (field->type) {
    case FIELD_INT:
    case FIELD_COUNT:
        return read_int(field, value, source, base, err);
    case FIELD_REAL:
        return read_real(field, value, source, base, err);
    case FIELD_BOOL:
        return read_bool(field, value, source, base, err);
    case FIELD_CHOICE:
        return read_choice(field, value, source, base, err);
    case FIELD_TEXT:
    case FIELD_STRING:
    case FIELD_PATH:
        return read_text(field, value, source, base, err);
    case FIELD_NS:
    case FIELD_BYTES:
    case FIELD_RATE:
        return read_unit(field, value, source, base, err);
    case FIELD_OTHER:
        break;
    }
    return OK;
}

/* Refuse a value where keys belong, such as 64 for train.batch. */
static enum status refuse_value_of_group(const struct field *fields, int n,
                                         const struct fields_source *source, const char *key,
                                         const struct json *value, struct err *err)
{
    const enum status rc = fields_refuse(source, key, "an object", value, err);
    hint_synonym(fields, n, key, err);
    return rc;
}

/* Read the members of one level. `at` is the level's own dotted key. The parser limits the depth.
 */
static enum status read_level(const struct field *fields, int n, const struct json *object,
                              const char *at, const struct fields_source *source, void *base,
                              struct err *err)
{
    for (struct json *m = json_first(object); m; m = json_next(m)) {
        char key[MAX_KEY];
        bool group;
        enum status rc;
        if (strchr(json_key(m), '.')) /* callers that read FIELD_OTHER would not find such a key */
            return err_set(err, ERR_INPUT,
                           "%s: key '%.100s' must be written as nested objects; dots are for --set",
                           source->file, json_key(m));
        if (snprintf(key, sizeof key, "%s%s%s", at, *at ? "." : "", json_key(m)) >= MAX_KEY)
            return fields_unknown(fields, n, source, key, err);
        const struct field *field = fields_find(fields, n, key, &group);
        if (field)
            rc = read_field(field, m, source, base, err);
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

enum status fields_read(const struct field *fields, int n, const struct json *object,
                        const struct fields_source *source, void *base, struct err *err)
{
    if (json_type(object) != JSON_OBJECT)
        return *source->prefix ? fields_refuse(source, "", "an object", object, err)
                               : err_set(err, ERR_INPUT, "%s: must be an object, got %s",
                                         source->file, json_type_name(json_type(object)));
    return read_level(fields, n, object, "", source, base, err);
}

/* The list that "auto" is restricted to, or "auto". */
static void write_auto(const struct field *field, const void *base, const char *key,
                       struct json *to)
{
    const unsigned names =
        field->min > 0 ? *(const unsigned *)((const char *)base + field->min) : 0;
    struct json *list = names ? json_add_array(to, key) : NULL;
    if (!list)
        json_add_string(to, key, "auto");
    for (int i = 0; list && field->names[i]; i++)
        if (names >> i & 1)
            json_add_string(list, NULL, field->names[i]);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void write_field(const struct field *field, const void *base, struct json *to,
                        const char *key)
{
    const char *at = (const char *)base + field->offset;
    switch (field->type) {
    case FIELD_COUNT:
        if (fetch_int(field, base) == 0) {
            json_add_string(to, key, "auto");
            return;
        }
        json_add_int(to, key, fetch_int(field, base));
        return;
    case FIELD_INT:
        json_add_int(to, key, fetch_int(field, base));
        return;
    case FIELD_NS:
        if (!key_in_ns(field)) {
            char text[32];
            json_add_string(to, key, write_ns(*(const int64_t *)at, text, sizeof text));
            return;
        }
        json_add_int(to, key, *(const int64_t *)at);
        return;
    case FIELD_BYTES:
        json_add_int(to, key, *(const int64_t *)at);
        return;
    case FIELD_REAL:
    case FIELD_RATE:
        json_add_double(to, key, *(const double *)at);
        return;
    case FIELD_BOOL:
        if (field->auto_offset && *(const bool *)((const char *)base + field->auto_offset))
            json_add_string(to, key, "auto");
        else
            json_add_bool(to, key, *(const bool *)at);
        return;
    case FIELD_CHOICE:
        if (field->auto_offset && *(const bool *)((const char *)base + field->auto_offset))
            write_auto(field, base, key, to);
        else
            json_add_string(to, key, field->names[fetch_int(field, base)]);
        return;
    case FIELD_TEXT:
        json_add_string(to, key, at);
        return;
    case FIELD_STRING:
    case FIELD_PATH:
        if (*(char *const *)at)
            json_add_string(to, key, *(char *const *)at);
        return;
    case FIELD_OTHER:
        return;
    }
}

void fields_write(const struct field *fields, int n, const void *base, struct json *object)
{
    for (int i = 0; i < n; i++) {
        struct json *to = object;
        const char *key = fields[i].key;
        if (fields[i].type == FIELD_OTHER)
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

void fields_each(const struct field *fields, int n, key_visitor *visit, void *ctx)
{
    for (int i = 0; i < n; i++) {
        char takes[256];
        describe(&fields[i], takes, sizeof takes);
        visit(&(struct key_help){fields[i].key, takes, fields[i].help ? fields[i].help : ""}, ctx);
    }
}
