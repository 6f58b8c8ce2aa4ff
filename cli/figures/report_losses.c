#include "cli/figures/report_losses.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures/report_page.h"
#include "partition/base/units.h"
#include "profiles/json/json.h"

/* The columns that are times, in the order of the table. */
static const char *const parts[] = {"lost_ns", "redo_ns",  "end_ns",  "launch_ns",
                                    "data_ns", "build_ns", "load_ns", "first_ns"};
enum { NUM_PARTS = sizeof parts / sizeof *parts, LINE_BYTES = 1 << 16 };

static int64_t whole_number(const struct json *object, const char *key)
{
    int64_t value = 0;
    return json_int64(json_get(object, key), &value) ? value : 0;
}

static void put_restart(FILE *out, const struct json *line)
{
    char time[32];
    const char *why = json_string(json_get(line, "why"));
    fprintf(out, "<tr><td>%lld</td><td>%lld</td><td>%lld</td>",
            (long long)whole_number(line, "step"), (long long)whole_number(line, "ranks"),
            (long long)whole_number(line, "lost_steps"));
    for (int p = 0; p < NUM_PARTS; p++)
        fprintf(out, "<td>%s</td>", format_ns(whole_number(line, parts[p]), time, sizeof time));
    fputs("<td>", out);
    page_text(out, why ? why : "");
    fputs("</td></tr>\n", out);
}

void report_losses(FILE *out, const char *run_dir)
{
    char path[PATH_MAX], *text = malloc(LINE_BYTES);
    int64_t restarts = 0, steps = 0, lost_ns = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    FILE *file = text ? fopen(path, "r") : NULL;
    while (file && fgets(text, LINE_BYTES, file)) {
        struct json *line = NULL;
        const char *event = NULL;
        if (strstr(text, "\"restart\"") && json_parse(text, path, &line, NULL) == OK)
            event = json_string(json_get(line, "event"));
        if (event && strcmp(event, "restart") == 0) {
            if (restarts++ == 0) {
                page_put(out, "h3", "Ranks lost and returned");
                page_table(out,
                           "step|ranks|steps redone|until the next step|redoing|end|start|data|"
                           "build|load|first step|why");
            }
            put_restart(out, line);
            steps += whole_number(line, "lost_steps");
            lost_ns += whole_number(line, "lost_ns") + whole_number(line, "redo_ns");
        }
        json_free(line);
    }
    if (restarts > 0) {
        char time[32];
        page_table_end(out);
        page_put(
            out, "p",
            "The run started again %lld times. That took %s in all, with %lld steps done twice.",
            (long long)restarts, format_ns(lost_ns, time, sizeof time), (long long)steps);
    }
    if (file)
        fclose(file);
    free(text);
}
