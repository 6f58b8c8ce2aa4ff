#include "profiles/json/json_diff.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 256 };

struct walk {
    json_difference each;
    void *ctx;
    struct err *err;
};

static enum status text_of(const struct json *value, char **text, struct err *err)
{
    if (value)
        return json_text(value, false, text, err);
    *text = strdup("none");
    return *text ? OK : err_nomem(err);
}

static enum status compare_values(const struct walk *walk, const char *key, const struct json *was,
                                  const struct json *is)
{
    char *old = NULL, *new = NULL;
    enum status rc = text_of(was, &old, walk->err);
    THEN(text_of(is, &new, walk->err));
    if (rc == OK && strcmp(old, new) != 0)
        walk->each(walk->ctx, key, old, new);
    free(old);
    free(new);
    return rc;
}

static enum status compare(const struct walk *walk, const char *key, const struct json *was,
                           const struct json *is)
{
    char inner[KEY_BYTES];
    enum status rc = OK;
    if (!was || !is || json_type(was) != JSON_OBJECT || json_type(is) != JSON_OBJECT)
        return compare_values(walk, key, was, is);
    for (const struct json *m = json_first(was); rc == OK && m; m = json_next(m)) {
        snprintf(inner, sizeof inner, "%s%s%s", key, *key ? "." : "", json_key(m));
        rc = compare(walk, inner, m, json_get(is, json_key(m)));
    }
    for (const struct json *m = json_first(is); rc == OK && m; m = json_next(m)) {
        if (json_get(was, json_key(m)))
            continue;
        snprintf(inner, sizeof inner, "%s%s%s", key, *key ? "." : "", json_key(m));
        rc = compare(walk, inner, NULL, m);
    }
    return rc;
}

enum status json_diff(const struct json *was, const struct json *is, json_difference each,
                      void *ctx, struct err *err)
{
    return compare(&(struct walk){each, ctx, err}, "", was, is);
}
