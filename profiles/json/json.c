/* JSON trees over cJSON: queries, building and writing. attach() adds every value to its parent and
 * marks the parent if memory runs out. Read json.h first. */
#include "profiles/json/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/base/utf8.h"

/* json_parse.c explains how the tree is represented. */

/* Flag of a node to which a value could not be added, because memory ran out. cJSON uses the low 10
 * bits of the type. */
#define TYPE_NOMEM (1 << 16)

static cJSON *node(const struct json *json)
{
    return (cJSON *)(uintptr_t)(const void *)json;
}

static struct json *handle(cJSON *item)
{
    return (struct json *)(void *)item;
}

/* --- reading ---------------------------------------------------------------------------------- */

void json_free(struct json *json)
{
    cJSON_Delete(node(json));
}

enum json_type json_type(const struct json *json)
{
    switch (json ? node(json)->type & 0xff : cJSON_NULL) {
    case cJSON_True:
    case cJSON_False:
        return JSON_BOOL;
    case cJSON_Raw:
    case cJSON_Number:
        return JSON_NUMBER;
    case cJSON_String:
        return JSON_STRING;
    case cJSON_Array:
        return JSON_ARRAY;
    case cJSON_Object:
        return JSON_OBJECT;
    default:
        return JSON_NULL;
    }
}

const char *json_type_name(enum json_type type)
{
    static const char *const names[] = {"null",   "true or false", "a number",
                                        "a text", "an array",      "an object"};
    return names[type];
}

struct json *json_get(const struct json *object, const char *key)
{
    if (json_type(object) != JSON_OBJECT)
        return NULL;
    return handle(cJSON_GetObjectItemCaseSensitive(node(object), key));
}

struct json *json_path(const struct json *root, const char *path)
{
    const struct json *at = root;
    while (at && *path) {
        size_t length = strcspn(path, ".");
        char part[128];
        if (length == 0 || length >= sizeof part)
            return NULL;
        memcpy(part, path, length);
        part[length] = '\0';
        if (json_type(at) == JSON_ARRAY) {
            char *end;
            long index = strtol(part, &end, 10);
            at = *end || index < 0 || index > INT32_MAX ? NULL : json_at(at, (int)index);
        } else {
            at = json_get(at, part);
        }
        path += length;
        if (*path == '.')
            path++;
    }
    return handle(node(at));
}

int json_count(const struct json *array_or_object)
{
    return array_or_object ? cJSON_GetArraySize(node(array_or_object)) : 0;
}

struct json *json_at(const struct json *array_or_object, int index)
{
    return array_or_object ? handle(cJSON_GetArrayItem(node(array_or_object), index)) : NULL;
}

struct json *json_first(const struct json *array_or_object)
{
    return array_or_object ? handle(node(array_or_object)->child) : NULL;
}

struct json *json_next(const struct json *member)
{
    return member ? handle(node(member)->next) : NULL;
}

const char *json_key(const struct json *member)
{
    return member ? node(member)->string : NULL;
}

const char *json_string(const struct json *json)
{
    return json_type(json) == JSON_STRING ? node(json)->valuestring : NULL;
}

double json_number(const struct json *json)
{
    if (json_type(json) != JSON_NUMBER)
        return NAN;
    return strtod(node(json)->valuestring, NULL);
}

bool json_int64(const struct json *json, int64_t *value)
{
    if (json_type(json) != JSON_NUMBER)
        return false;
    const char *text = node(json)->valuestring;
    char *end;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (!*end) {
        if (errno == ERANGE)
            return false;
        *value = whole;
        return true;
    }
    /* 1e3 and 10.0 are integers too, if a double holds them exactly. */
    double number = strtod(text, NULL);
    if (fabs(number) > 9007199254740992.0 || number != floor(number))
        return false;
    *value = (int64_t)number;
    return true;
}

bool json_true(const struct json *json)
{
    return json && (node(json)->type & 0xff) == cJSON_True;
}

/* --- building --------------------------------------------------------------------------------- */

/* Add item to parent. Marks the parent if the item is NULL or memory runs out. */
static struct json *attach(struct json *parent, const char *key, cJSON *item)
{
    cJSON *to = node(parent);
    if (to && item && (key ? cJSON_AddItemToObject(to, key, item) : cJSON_AddItemToArray(to, item)))
        return handle(item);
    cJSON_Delete(item);
    if (to)
        to->type |= TYPE_NOMEM;
    return NULL;
}

struct json *json_object_new(void)
{
    return handle(cJSON_CreateObject());
}

struct json *json_array_new(void)
{
    return handle(cJSON_CreateArray());
}

struct json *json_add_object(struct json *parent, const char *key)
{
    return attach(parent, key, cJSON_CreateObject());
}

struct json *json_add_array(struct json *parent, const char *key)
{
    return attach(parent, key, cJSON_CreateArray());
}

void json_add_int(struct json *parent, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    attach(parent, key, cJSON_CreateRaw(text));
}

void json_add_ints(struct json *parent, const char *key, const int *values, int n)
{
    struct json *array = json_add_array(parent, key);
    for (int i = 0; i < n; i++)
        json_add_int(array, NULL, values[i]);
}

void json_add_int64s(struct json *parent, const char *key, const int64_t *values, int n)
{
    struct json *array = json_add_array(parent, key);
    for (int i = 0; i < n; i++)
        json_add_int(array, NULL, values[i]);
}

void json_add_double(struct json *parent, const char *key, double value)
{
    char text[40];
    if (!isfinite(value)) {
        json_add_null(parent, key);
        return;
    }
    /* The shortest of 15, 16, 17 digits that reads back as the same double. */
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    attach(parent, key, cJSON_CreateRaw(text));
}

/* Paths may hold any bytes. Bytes that are not UTF-8 become the replacement character. */
static cJSON *create_text(const char *value)
{
    size_t length = strlen(value);
    char *text = malloc(3 * length + 1), *to = text; /* the replacement character has 3 bytes */
    cJSON *item = NULL;
    for (size_t at = 0; text && at < length;)
        to += utf8_put(utf8_next(value, length, &at), to);
    if (text) {
        *to = '\0';
        item = cJSON_CreateString(text);
    }
    free(text);
    return item;
}

void json_add_string(struct json *parent, const char *key, const char *value)
{
    attach(parent, key, value ? create_text(value) : cJSON_CreateNull());
}

void json_add_bool(struct json *parent, const char *key, bool value)
{
    attach(parent, key, cJSON_CreateBool(value));
}

void json_add_null(struct json *parent, const char *key)
{
    attach(parent, key, cJSON_CreateNull());
}

void json_remove(struct json *parent, const char *key)
{
    if (json_type(parent) == JSON_OBJECT)
        cJSON_DeleteItemFromObjectCaseSensitive(node(parent), key);
}

void json_add_copy(struct json *parent, const char *key, const struct json *value)
{
    /* Copy first, because value may be the value that is replaced. */
    cJSON *copy = value ? cJSON_Duplicate(node(value), true) : cJSON_CreateNull();
    if (key)
        json_remove(parent, key);
    attach(parent, key, copy);
}

void json_add_parsed(struct json *parent, const char *key, const char *text)
{
    struct json *value = NULL;
    const enum status rc = text ? json_parse(text, key, &value, NULL) : ERR_INPUT;
    if (rc == OK)
        json_add_copy(parent, key, value);
    else if (rc == ERR_NOMEM)
        attach(parent, key, NULL);
    json_free(value);
}

static bool lacks_memory(const cJSON *item)
{
    for (; item; item = item->next)
        if (item->type & TYPE_NOMEM || lacks_memory(item->child))
            return true;
    return false;
}

enum status json_check(const struct json *root, struct err *err)
{
    if (!root || node(root)->type & TYPE_NOMEM || lacks_memory(node(root)->child))
        return err_nomem(err);
    return OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

enum status json_text(const struct json *root, bool pretty, char **text, struct err *err)
{
    enum status rc = json_check(root, err);
    if (rc != OK)
        return rc;
    char *printed = pretty ? cJSON_Print(node(root)) : cJSON_PrintUnformatted(node(root));
    if (!printed)
        return err_nomem(err);
    *text = strdup(printed);
    cJSON_free(printed);
    return *text ? OK : err_nomem(err);
}

enum status json_write(const struct json *root, bool pretty, FILE *out, struct err *err)
{
    char *text = NULL;
    enum status rc = json_text(root, pretty, &text, err);
    if (rc == OK) {
        fputs(text, out);
        fputc('\n', out);
    }
    free(text);
    return rc;
}

enum status json_write_file(const struct json *root, const char *path, struct err *err)
{
    struct atomic_file file;
    enum status rc = atomic_open(&file, path, err);
    return rc == OK ? atomic_close(&file, json_write(root, true, file.out, err), err) : rc;
}

enum status json_write_output(const struct json *root, const char *path, struct err *err)
{
    struct atomic_file file;
    enum status rc = output_open(&file, path, err);
    return rc == OK ? atomic_close(&file, json_write(root, true, file.out, err), err) : rc;
}
