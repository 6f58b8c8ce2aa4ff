#include "cli/figures/report_losses.h"

#include <limits.h>
#include <stdlib.h>

#include "cli/base/run_metrics.h"
#include "cli/figures/report_page.h"
#include "partition/base/units.h"

/* The columns that are times, in the order of the table. */
static const char *const parts[] = {"lost_ns", "redo_ns",  "end_ns",  "launch_ns",
                                    "data_ns", "build_ns", "load_ns", "first_ns"};
enum { NUM_PARTS = sizeof parts / sizeof *parts };

struct table {
    FILE *out;
    int64_t restarts, steps, lost_ns;
};

static void put_restart(void *ctx, const struct json *line, bool is_restart)
{
    struct table *table = ctx;
    FILE *out = table->out;
    char time[32];
    if (!is_restart)
        return;
    if (table->restarts++ == 0)
        page_table(out, "step|ranks|steps redone|until the next step|redoing|end|start|data|build|"
                        "load|first step|why");
    const char *why = json_string(json_get(line, "why"));
    fprintf(out, "<tr><td>%lld</td><td>%lld</td><td>%lld</td>",
            (long long)metrics_int(line, "step"), (long long)metrics_int(line, "ranks"),
            (long long)metrics_int(line, "lost_steps"));
    for (int p = 0; p < NUM_PARTS; p++)
        fprintf(out, "<td>%s</td>", format_ns(metrics_int(line, parts[p]), time, sizeof time));
    fputs("<td>", out);
    page_text(out, why ? why : "");
    fputs("</td></tr>\n", out);
    table->steps += metrics_int(line, "lost_steps");
    table->lost_ns += metrics_int(line, "lost_ns") + metrics_int(line, "redo_ns");
}

static void put_waits(FILE *out, const struct json *saves, const char *what)
{
    char all[32], most[32], count[64];
    const int64_t num = metrics_int(saves, "count");
    if (num > 0)
        page_put(out, "p", "Steps waited %s for %s, at most %s for one.",
                 format_ns(metrics_int(saves, "stall_ns"), all, sizeof all),
                 format_count(num, what, count, sizeof count),
                 format_ns(metrics_int(saves, "longest_stall_ns"), most, sizeof most));
}

enum status report_losses(FILE *out, struct subject *s, struct err *err)
{
    char path[PATH_MAX], time[32], *text = NULL;
    size_t length = 0;
    struct table table = {.out = open_memstream(&text, &length)};
    struct json *summary = NULL;
    enum status rc = OK;
    snprintf(path, sizeof path, "%.4000s/summary.json", s->path);
    if (json_read_file(path, &summary, NULL) == OK) {
        put_waits(out, json_get(summary, "checkpoints"), "checkpoint");
        put_waits(out, json_get(summary, "memory_copies"), "memory copy");
    }
    json_free(summary);
    if (!table.out)
        return err_nomem(err);
    if (metrics_each(s->path, put_restart, &table, NULL) != OK)
        table.restarts = 0;
    if (fclose(table.out) != 0 || table.restarts == 0) {
        free(text);
        return OK;
    }
    page_put(out, "h3", "Ranks lost and returned");
    rc = page_figure(out, "losses", "time of the run by what it was spent on", s, 1, err);
    fputs(text, out);
    free(text);
    page_table_end(out);
    page_put(out, "p",
             "The run started again %lld times. That took %s in all, with %lld steps done twice.",
             (long long)table.restarts, format_ns(table.lost_ns, time, sizeof time),
             (long long)table.steps);
    return rc;
}
