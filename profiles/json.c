#include "profiles/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The tree is cJSON's, and so is the printing. Two things of cJSON do not serve us: its parser is
 * lenient and has no positions, and it keeps numbers as doubles that it prints to 15 digits. So
 * text is parsed here, strictly (RFC 8259), into cJSON nodes, and every number is a raw node that
 * holds its text: 64-bit integers stay exact, and doubles round-trip. */

#define MAX_DEPTH 64
#define MAX_FILE_BYTES (INT64_C(1) << 30)

/* A node to which something could not be added, for want of memory; cJSON uses the low 10 bits. */
#define TYPE_NOMEM (1 << 16)

static cJSON *node(const struct json *json)
{
    return (cJSON *)(uintptr_t)(const void *)json;
}

static struct json *handle(cJSON *item)
{
    return (struct json *)(void *)item;
}

/* --- parsing ---------------------------------------------------------------------------------- */

struct parser {
    const char *text, *at, *end;
    const char *what;
    char *scratch; /* end - text + 1 bytes: the string being decoded */
    int depth;
    struct err *err;
};

static cJSON *parse_value(struct parser *p);

/* Line and column (both from 1) of a place in the text, found only when they are needed. */
static void *fail_at(struct parser *p, const char *place, const char *what_failed)
{
    int line = 1;
    const char *start = p->text;
    for (const char *c = p->text; c < place; c++)
        if (*c == '\n') {
            line++;
            start = c + 1;
        }
    err_set(p->err, ERR_INPUT, "%s:%d:%d: %s", p->what, line, (int)(place - start) + 1,
            what_failed);
    return NULL;
}

static void *fail(struct parser *p, const char *what_failed)
{
    return fail_at(p, p->at, p->at == p->end ? "the text ends too early" : what_failed);
}

static void skip_space(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

static bool is_digit(const struct parser *p)
{
    return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

static cJSON *parse_number(struct parser *p)
{
    const char *start = p->at;
    if (*p->at == '-')
        p->at++;
    if (!is_digit(p))
        return fail(p, "a digit is missing");
    if (*p->at == '0') {
        p->at++;
        if (is_digit(p))
            return fail(p, "a number does not start with 0");
    }
    while (is_digit(p))
        p->at++;
    if (p->at < p->end && *p->at == '.') {
        p->at++;
        if (!is_digit(p))
            return fail(p, "a digit is missing after the point");
        while (is_digit(p))
            p->at++;
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        p->at++;
        if (p->at < p->end && (*p->at == '+' || *p->at == '-'))
            p->at++;
        if (!is_digit(p))
            return fail(p, "a digit is missing in the exponent");
        while (is_digit(p))
            p->at++;
    }
    size_t n = (size_t)(p->at - start);
    memcpy(p->scratch, start, n);
    p->scratch[n] = '\0';
    if (!isfinite(strtod(p->scratch, NULL)))
        return fail_at(p, start, "the number is out of the range of a double");
    cJSON *item = cJSON_CreateRaw(p->scratch);
    if (!item)
        err_nomem(p->err);
    return item;
}

static bool parse_hex4(struct parser *p, unsigned *code)
{
    unsigned value = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        unsigned c = p->at < p->end ? (unsigned char)*p->at : 0;
        if (c >= '0' && c <= '9')
            value = value * 16 + (c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            value = value * 16 + ((c | 32) - 'a' + 10);
        else
            return fail(p, "\\u needs four hexadecimal digits") != NULL;
    }
    *code = value;
    return true;
}

/* A code point as UTF-8. */
static char *put_utf8(char *out, unsigned code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* What follows a \u: one unit, or a surrogate pair. */
static bool parse_unicode(struct parser *p, char **out)
{
    unsigned code, low;
    if (!parse_hex4(p, &code))
        return false;
    if (code == 0)
        return fail(p, "a string does not hold \\u0000") != NULL;
    if (code >= 0xd800 && code < 0xe000) {
        if (code >= 0xdc00 || p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u')
            return fail(p, "half a surrogate pair") != NULL;
        p->at += 2;
        if (!parse_hex4(p, &low))
            return false;
        if (low < 0xdc00 || low >= 0xe000)
            return fail(p, "half a surrogate pair") != NULL;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = put_utf8(*out, code);
    return true;
}

/* Decode a string into scratch (an escape never grows); at stands on the opening quote. */
static const char *parse_string(struct parser *p)
{
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char *out = p->scratch;
    p->at++;
    for (;;) {
        if (p->at == p->end)
            return fail(p, "");
        unsigned char c = (unsigned char)*p->at;
        if (c == '"')
            break;
        if (c < 0x20)
            return fail(p, "a control character inside a string");
        p->at++;
        if (c != '\\') {
            *out++ = (char)c;
            continue;
        }
        if (p->at == p->end)
            return fail(p, "");
        const char *found = *p->at ? strchr(escapes, *p->at) : NULL;
        if (found) {
            *out++ = meanings[found - escapes];
            p->at++;
        } else if (*p->at == 'u') {
            p->at++;
            if (!parse_unicode(p, &out))
                return NULL;
        } else {
            return fail(p, "an unknown escape");
        }
    }
    p->at++;
    *out = '\0';
    return p->scratch;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp((*(cJSON *const *)a)->string, (*(cJSON *const *)b)->string);
}

/* Refuse duplicate keys: sorted, so that a hostile object costs n log n. */
static bool check_keys(struct parser *p, const cJSON *object, int count, const char *place)
{
    if (count < 2)
        return true;
    bool ok = true;
    cJSON **members = calloc((size_t)count, sizeof(cJSON *));
    if (!members)
        return err_nomem(p->err) == OK;
    int n = 0;
    for (cJSON *m = object->child; m; m = m->next)
        members[n++] = m;
    qsort(members, (size_t)n, sizeof(cJSON *), compare_keys);
    for (int i = 1; i < n && ok; i++)
        if (strcmp(members[i - 1]->string, members[i]->string) == 0) {
            char text[160];
            snprintf(text, sizeof text, "the object that starts here has the key '%s' twice",
                     members[i]->string);
            fail_at(p, place, text);
            ok = false;
        }
    free(members);
    return ok;
}

static cJSON *parse_container(struct parser *p, bool object)
{
    const char *place = p->at;
    char close = object ? '}' : ']';
    int count = 0;
    if (++p->depth > MAX_DEPTH)
        return fail(p, "nested deeper than 64");
    cJSON *self = object ? cJSON_CreateObject() : cJSON_CreateArray();
    if (!self) {
        err_nomem(p->err);
        return NULL;
    }
    p->at++;
    skip_space(p);
    if (p->at < p->end && *p->at == close)
        goto closed;
    for (;;) {
        char *key = NULL;
        if (object) {
            if (p->at == p->end || *p->at != '"') {
                fail(p, "a key in quotes is missing");
                goto failed;
            }
            const char *text = parse_string(p);
            if (!text)
                goto failed;
            key = strdup(text);
            if (!key) {
                err_nomem(p->err);
                goto failed;
            }
            skip_space(p);
            if (p->at == p->end || *p->at != ':') {
                free(key);
                fail(p, "':' is missing");
                goto failed;
            }
            p->at++;
            skip_space(p);
        }
        cJSON *value = parse_value(p);
        bool added = value && (object ? cJSON_AddItemToObject(self, key, value)
                                      : cJSON_AddItemToArray(self, value));
        free(key);
        if (!added) {
            if (value)
                err_nomem(p->err);
            cJSON_Delete(value);
            goto failed;
        }
        count++;
        skip_space(p);
        if (p->at < p->end && *p->at == close)
            break;
        if (p->at == p->end || *p->at != ',') {
            fail(p, object ? "',' or '}' is missing" : "',' or ']' is missing");
            goto failed;
        }
        p->at++;
        skip_space(p);
    }
closed:
    p->at++;
    p->depth--;
    if (!object || check_keys(p, self, count, place))
        return self;
failed:
    cJSON_Delete(self);
    return NULL;
}

static cJSON *parse_value(struct parser *p)
{
    static const struct {
        const char *word;
        size_t length;
    } words[] = {
        {"null",  4},
        {"true",  4},
        {"false", 5}
    };
    if (p->at == p->end)
        return fail(p, "");
    if (*p->at == '{' || *p->at == '[')
        return parse_container(p, *p->at == '{');
    if (*p->at == '-' || is_digit(p))
        return parse_number(p);
    cJSON *item = NULL;
    if (*p->at == '"') {
        const char *text = parse_string(p);
        if (!text)
            return NULL;
        item = cJSON_CreateString(text);
    } else {
        int w = 0;
        while (w < 3 && ((size_t)(p->end - p->at) < words[w].length ||
                         memcmp(p->at, words[w].word, words[w].length) != 0))
            w++;
        if (w == 3)
            return fail(p, "a value is missing");
        p->at += words[w].length;
        item = w == 0 ? cJSON_CreateNull() : cJSON_CreateBool(w == 1);
    }
    if (!item)
        err_nomem(p->err);
    return item;
}

static enum status parse_bytes_of(const char *text, size_t length, const char *what,
                                  struct json **json, struct err *err)
{
    struct err local = {0};
    struct parser p = {.text = text, .at = text, .end = text + length, .what = what, .err = &local};
    cJSON *root = NULL;
    p.scratch = malloc(length + 1);
    if (!p.scratch) {
        err_nomem(&local);
        goto out;
    }
    skip_space(&p);
    root = parse_value(&p);
    if (!root)
        goto out;
    skip_space(&p);
    if (p.at != p.end)
        fail(&p, "text follows the value");
out:
    free(p.scratch);
    if (local.status != OK) {
        cJSON_Delete(root);
        return err_set(err, local.status, "%s", local.msg);
    }
    *json = handle(root);
    return OK;
}

enum status json_parse(const char *text, const char *what, struct json **json, struct err *err)
{
    return parse_bytes_of(text, strlen(text), what, json, err);
}

enum status json_read_file(const char *path, struct json **json, struct err *err)
{
    enum status rc = OK;
    char *text = NULL;
    size_t length = 0;
    struct stat st;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &st) != 0) {
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': %s", path, strerror(errno));
        goto out;
    }
    if (S_ISDIR(st.st_mode)) {
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': it is a directory", path);
        goto out;
    }
    /* Read to the end rather than trust st_size: a pipe has none. */
    for (size_t room = 0;;) {
        if (length == room) {
            room = room ? room * 2 : 4096;
            if ((int64_t)room > MAX_FILE_BYTES) {
                rc = err_set(err, ERR_INPUT, "%s: larger than 1 GiB", path);
                goto out;
            }
            char *more = realloc(text, room);
            if (!more) {
                rc = err_nomem(err);
                goto out;
            }
            text = more;
        }
        size_t got = fread(text + length, 1, room - length, file);
        if (got == 0)
            break;
        length += got;
    }
    if (ferror(file)) {
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': %s", path, strerror(errno));
        goto out;
    }
    rc = parse_bytes_of(text, length, path, json, err);
out:
    if (file)
        fclose(file);
    free(text);
    return rc;
}

void json_free(struct json *json)
{
    cJSON_Delete(node(json));
}

/* --- reading ---------------------------------------------------------------------------------- */

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
    /* 1e3 and 10.0 are integers too, where a double holds them exactly. */
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

/* Hang item under parent; marks the parent when there was no memory for either. */
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

void json_add_string(struct json *parent, const char *key, const char *value)
{
    attach(parent, key, value ? cJSON_CreateString(value) : cJSON_CreateNull());
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
    /* The copy first: value may be the very thing that is replaced. */
    cJSON *copy = value ? cJSON_Duplicate(node(value), true) : cJSON_CreateNull();
    if (key)
        json_remove(parent, key);
    attach(parent, key, copy);
}

/* --- writing ---------------------------------------------------------------------------------- */

static bool lacks_memory(const cJSON *item)
{
    for (; item; item = item->next)
        if (item->type & TYPE_NOMEM || lacks_memory(item->child))
            return true;
    return false;
}

enum status json_text(const struct json *root, bool pretty, char **text, struct err *err)
{
    if (!root || node(root)->type & TYPE_NOMEM || lacks_memory(node(root)->child))
        return err_nomem(err);
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
    if (rc == OK && (fputs(text, out) == EOF || fputc('\n', out) == EOF || fflush(out) != 0))
        rc = err_set(err, ERR_SYSTEM, "cannot write JSON: %s", strerror(errno));
    free(text);
    return rc;
}

enum status atomic_open(struct atomic_file *file, const char *path, struct err *err)
{
    int fd;
    struct stat st;
    size_t size = strlen(path) + 16;
    *file = (struct atomic_file){.path = strdup(path), .temp = malloc(size)};
    if (!file->path || !file->temp) {
        err_nomem(err);
        goto failed;
    }
    if (stat(path, &st) == 0 && (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode))) {
        /* A terminal or a pipe cannot be replaced; it is written to as it is. */
        free(file->temp);
        file->temp = NULL;
        file->out = fopen(path, "w");
        if (file->out)
            return OK;
        err_set(err, ERR_SYSTEM, "cannot write '%s': %s", path, strerror(errno));
        goto failed;
    }
    snprintf(file->temp, size, "%s.tmp.XXXXXX", path);
    fd = mkstemp(file->temp);
    if (fd < 0) {
        err_set(err, ERR_SYSTEM, "cannot write '%s': %s", path, strerror(errno));
        goto failed;
    }
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(fd, 0666 & ~mask) == 0)
        file->out = fdopen(fd, "w");
    if (file->out)
        return OK;
    err_set(err, ERR_SYSTEM, "cannot write '%s': %s", path, strerror(errno));
    close(fd);
    unlink(file->temp);
failed:
    free(file->path);
    free(file->temp);
    *file = (struct atomic_file){0};
    return err ? err->status : ERR_SYSTEM;
}

/* A new name is durable once its folder is; not every file system can say so. */
static void sync_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path ? 1 : 0] = '\0';
    int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

enum status atomic_close(struct atomic_file *file, enum status status, struct err *err)
{
    bool ok = fflush(file->out) == 0 && !ferror(file->out) &&
              (!file->temp || fsync(fileno(file->out)) == 0);
    int why = errno;
    if (fclose(file->out) != 0 && ok) {
        ok = false;
        why = errno;
    }
    if (ok && status == OK && file->temp && rename(file->temp, file->path) != 0) {
        ok = false;
        why = errno;
    }
    if (!ok && status == OK)
        status = err_set(err, ERR_SYSTEM, "cannot write '%s': %s", file->path, strerror(why));
    if (file->temp && status == OK)
        sync_folder(file->path);
    else if (file->temp)
        unlink(file->temp);
    free(file->path);
    free(file->temp);
    *file = (struct atomic_file){0};
    return status;
}

enum status json_write_file(const struct json *root, const char *path, struct err *err)
{
    struct atomic_file file;
    enum status rc = atomic_open(&file, path, err);
    return rc == OK ? atomic_close(&file, json_write(root, true, file.out, err), err) : rc;
}
