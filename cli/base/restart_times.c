#include "cli/base/restart_times.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/json/json.h"

struct sums {
    int num;
    double end, begin; /* ns: until elapse has seen the ranks end; from there to the first step */
};

static double member(const struct json *json, const char *key)
{
    const struct json *value = json_path(json, key);
    return value ? json_number(value) : 0;
}

static enum status read_restarts(const char *dir, struct sums sums[2], struct err *err)
{
    char path[PATH_MAX], *line = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *in = fopen(path, "r");
    if (!in)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", path, strerror(errno));
    while (getline(&line, &size, in) > 0) {
        struct json *json = NULL;
        const char *why;
        if (json_parse(line, path, &json, NULL) == OK && json_get(json, "end_ns") &&
            (why = json_string(json_get(json, "why")))) {
            struct sums *s = &sums[strncmp(why, "returned", 8) == 0];
            s->num++;
            s->end += member(json, "end_ns");
            s->begin += member(json, "lost_ns") - member(json, "end_ns");
        }
        json_free(json);
    }
    free(line);
    fclose(in);
    return OK;
}

enum status restart_times_read(const char *dir, struct fault_setting *set, struct err *err)
{
    struct sums sums[2] = {0};
    struct json *summary = NULL;
    char path[PATH_MAX];
    enum status rc = read_restarts(dir, sums, err);
    if (rc != OK)
        return rc;
    if (sums[0].num > 0) {
        set->detect_ns = (int64_t)(sums[0].end / sums[0].num);
        set->restart_ns = (int64_t)(sums[0].begin / sums[0].num);
    }
    if (sums[1].num > 0) /* the restart is set->restart_ns in both cases */
        set->join_ns = (int64_t)((sums[1].end + sums[1].begin) / sums[1].num) - set->restart_ns;
    if (set->join_ns < 0)
        set->join_ns = 0;
    snprintf(path, sizeof path, "%s/summary.json", dir);
    const double count =
        json_read_file(path, &summary, NULL) == OK ? member(summary, "checkpoints.count") : 0;
    if (count > 0) {
        set->async = true;
        set->stall_ns = (int64_t)(member(summary, "checkpoints.stall_ns") / count);
        set->write_ns = (int64_t)(member(summary, "checkpoints.write_ns") / count);
    }
    json_free(summary);
    return OK;
}
