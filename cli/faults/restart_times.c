#include "cli/faults/restart_times.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/run_metrics.h"

struct sums {
    int num;
    double end, begin; /* ns: until elapse has seen the ranks end; from there to the first step */
};

static double member(const struct json *json, const char *key)
{
    const struct json *value = json_path(json, key);
    return value ? json_number(value) : 0;
}

static void add_restart(void *ctx, const struct json *line, bool is_restart)
{
    struct sums *sums = ctx;
    const char *why = is_restart ? json_string(json_get(line, "why")) : NULL;
    if (!why || !json_get(line, "end_ns"))
        return;
    struct sums *s = &sums[strncmp(why, "returned", 8) == 0];
    s->num++;
    s->end += member(line, "end_ns");
    s->begin += member(line, "lost_ns") - member(line, "end_ns");
}

enum status restart_times_read(const char *dir, struct fault_setting *set, struct err *err)
{
    struct sums sums[2] = {0};
    struct json *summary = NULL;
    char path[PATH_MAX];
    enum status rc = metrics_each(dir, add_restart, sums, err);
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
    (void)json_read_file(path, &summary, NULL);
    const double count = member(summary, "checkpoints.count");
    const double copies = member(summary, "memory_copies.count");
    if (copies > 0)
        set->memory_stall_ns = (int64_t)(member(summary, "memory_copies.stall_ns") / copies);
    if (count > 0) {
        set->async = true;
        set->stall_ns = (int64_t)(member(summary, "checkpoints.stall_ns") / count);
        set->write_ns = (int64_t)(member(summary, "checkpoints.write_ns") / count);
    }
    json_free(summary);
    return OK;
}
