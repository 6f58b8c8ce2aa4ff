/* Overrides of a job, "a.b=v", on the JSON tree before it is read; and the baseline, a list of
 * overrides that the job carries. */
#include "profiles/job/job_parts.h"

#include "partition/base/arrays.h"
#include "partition/base/synonyms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a key such as "model.classes", "cluster.link" or "baseline.freeze.policy" belongs to an
 * object whose reader checks its keys. */
static bool inside_other(const char *key)
{
    return strncmp(key, "model.", 6) == 0 || strncmp(key, "cluster.", 8) == 0 ||
           strncmp(key, "baseline.", 9) == 0;
}

static enum status check_key(const char *what, const char *prefix, const char *key, struct err *err)
{
    const struct fields_source source = {.file = what, .prefix = prefix};
    bool group;
    if (fields_find(job_keys.rows, job_keys.num, key, &group) || group || inside_other(key))
        return OK;
    return fields_unknown(job_keys.rows, job_keys.num, &source, key, err);
}

/* Replace the text of root's member by an object: "model": "vit-b16" with model.classes set becomes
 * {"preset": "vit-b16", ...}, and a cluster file becomes its content. */
static enum status open_text(struct json *root, const char *dir, const char *part, struct err *err)
{
    const char *text = json_string(json_get(root, part));
    struct json *object = NULL;
    enum status rc = OK;
    if (strcmp(part, "cluster") == 0 && path_is_json(text)) {
        char *path = NULL;
        if (asprintf(&path, "%s%s%s", dir && *text != '/' ? dir : "",
                     dir && *text != '/' ? "/" : "", text) < 0)
            return err_nomem(err);
        rc = json_read_file(path, &object, err);
        free(path);
    } else {
        object = json_object_new();
        json_add_string(object, "preset", text);
        rc = json_check(object, err);
    }
    if (rc == OK)
        json_add_copy(root, part, object);
    json_free(object);
    return rc;
}

/* Find the object that holds the last part of key. Missing objects on the way are made. */
static enum status holder_of(struct json *root, const char *dir, const char *key,
                             struct json **holder, const char **last, struct err *err)
{
    const char *const whole = key;
    struct json *at = root;
    for (const char *dot = strchr(key, '.'); dot && at; dot = strchr(key, '.')) {
        char part[96];
        snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
        struct json *next = json_get(at, part);
        if (next && at == root && json_string(next)) {
            enum status rc = open_text(root, dir, part, err);
            if (rc != OK)
                return rc;
            next = json_get(at, part);
        } else if (!next) {
            next = json_add_object(at, part);
        }
        at = json_type(next) == JSON_OBJECT ? next : NULL;
        key = dot + 1;
    }
    *last = key;
    *holder = at;
    enum status rc = json_check(root, err);
    if (rc == OK && !at)
        rc = err_set(err, ERR_INPUT, "--set %s: there is no object to set it in", whole);
    return rc;
}

/* Read the value of "key=value" into the member "value" of a fresh object *box. It is JSON if it
 * parses as JSON and the key is not a text, otherwise a text. */
static enum status override_value(const char *key, const char *text, struct json **box,
                                  struct err *err)
{
    const struct member *field = fields_find(job_keys.rows, job_keys.num, key, NULL);
    bool is_text = field && (field->type == MEMBER_TEXT || field->type == MEMBER_STRING ||
                             field->type == MEMBER_PATH);
    struct json *value = NULL;
    enum status rc = is_text ? ERR_INPUT : json_parse(text, "--set", &value, NULL);
    if (rc == ERR_NOMEM)
        return err_nomem(err);
    *box = json_object_new();
    if (rc == OK)
        json_add_copy(*box, "value", value);
    else
        json_add_string(*box, "value", text);
    json_free(value);
    return json_check(*box, err);
}

enum status job_override(struct json *root, const char *dir, const char *text, struct err *err)
{
    char key[96], hint[96];
    const char *equals = strchr(text, '='), *last;
    struct json *box = NULL, *at = NULL;
    enum status rc;
    if (!equals || equals == text || equals - text >= (ptrdiff_t)sizeof key)
        return err_set(err, ERR_INPUT, "--set '%.100s': must be key=value", text);
    snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    const char *word = strncmp(key, "pipeline.", 9) == 0 ? key + 9 : key;
    const struct member *ours =
        synonym_is_short(word) ? member_called(&job_keys, word, hint, sizeof hint) : NULL;
    if (ours)
        snprintf(key, sizeof key, "%s", ours->name);
    rc = check_key("--set", "", key, err);
    THEN(override_value(key, equals + 1, &box, err));
    THEN(holder_of(root, dir, key, &at, &last, err));
    if (rc == OK) {
        /* The two sizes of a batch exclude each other, so the new one replaces the old one. */
        if (strncmp(key, "train.batch.", 12) == 0 && strcmp(last, "micro") != 0) {
            json_remove(at, "per_pipeline");
            json_remove(at, "global");
        }
        json_add_copy(at, last, json_get(box, "value"));
        rc = json_check(root, err);
    }
    json_free(box);
    return rc;
}

static enum status add_baseline(struct job *job, const char *key, const char *value,
                                struct err *err)
{
    size_t size = strlen(key) + strlen(value) + 2;
    char *text = array_extend(&job->baseline, job->num_baseline, sizeof *job->baseline)
                     ? malloc(size)
                     : NULL;
    if (!text)
        return err_nomem(err);
    snprintf(text, size, "%s%s%s", key, *key ? "=" : "", value);
    job->baseline[job->num_baseline++] = text;
    return OK;
}

/* Turn the leaves of an object into overrides. Keys may be nested objects or dotted names. */
static enum status flatten_baseline(const struct json *object, const char *at, const char *file,
                                    struct job *job, struct err *err)
{
    enum status rc = OK;
    for (struct json *m = json_first(object); m && rc == OK; m = json_next(m)) {
        char key[96];
        if (snprintf(key, sizeof key, "%s%s%s", at, *at ? "." : "", json_key(m)) >= (int)sizeof key)
            return err_set(err, ERR_INPUT, "%s: baseline: key '%.60s...' is too long", file, key);
        if (json_type(m) == JSON_OBJECT && strcmp(key, "model") != 0 &&
            strcmp(key, "cluster") != 0) {
            rc = flatten_baseline(m, key, file, job, err);
            continue;
        }
        char *text = NULL;
        rc = check_key(file, "baseline", key, err);
        if (rc == OK && !json_string(m))
            rc = json_text(m, false, &text, err);
        THEN(add_baseline(job, key, text ? text : json_string(m), err));
        free(text);
    }
    return rc;
}

enum status job_read_baseline(const struct json *value, const struct fields_source *source,
                              struct job *job, struct err *err)
{
    if (json_type(value) == JSON_OBJECT)
        return flatten_baseline(value, "", source->file, job, err);
    if (json_type(value) != JSON_ARRAY)
        return fields_refuse(source, "", "an object of overrides", value, err);
    enum status rc = OK;
    for (struct json *m = json_first(value); m && rc == OK; m = json_next(m)) {
        char key[96];
        const char *text = json_string(m), *equals = text ? strchr(text, '=') : NULL;
        if (!equals || equals - text >= (ptrdiff_t)sizeof key)
            return fields_refuse(source, "", "texts \"key=value\"", m, err);
        snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
        rc = check_key(source->file, "baseline", key, err);
        THEN(add_baseline(job, "", text, err));
    }
    return rc;
}
