#include "cli/base/run_metrics.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/base/whole_file.h"

enum status metrics_each(const char *dir, metrics_visit *visit, void *ctx, struct err *err)
{
    char path[PATH_MAX], *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *in = NULL;
    const enum status rc = input_file(path, &in, err);
    if (rc != OK)
        return rc;
    while (getline(&text, &size, in) > 0) {
        struct json *line = NULL;
        if (json_parse(text, path, &line, NULL) == OK) {
            const char *event = json_string(json_get(line, "event"));
            const bool is_restart = event && strcmp(event, "restart") == 0;
            if (is_restart || json_get(line, "step_ns"))
                visit(ctx, line, is_restart);
        }
        json_free(line);
    }
    free(text);
    fclose(in);
    return OK;
}

int64_t metrics_int(const struct json *line, const char *key)
{
    int64_t value = 0;
    return json_int64(json_get(line, key), &value) ? value : 0;
}
