/* Figures of runs that lose nodes: `plot goodput` of an answer of `sim --faults --json`, and `plot
 * losses` of the file that its --timeline has written, or of a real run's folder. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/base/run_metrics.h"
#include "partition/base/arrays.h"
#include "profiles/base/whole_file.h"
#include "cli/figures/figure_draw.h"

static double number_of(const struct json *json, const char *key)
{
    const struct json *value = json_get(json, key);
    return value ? json_number(value) : 0;
}

enum status figure_goodput(struct figure_call *call, struct err *err)
{
    struct json *answer = NULL;
    const char *path = call->args[0];
    enum status rc = json_read_file(path, &answer, err);
    const struct json *tried = rc == OK ? json_get(answer, "intervals") : NULL;
    if (rc == OK && json_count(tried) == 0) {
        rc = err_set(err, ERR_INPUT, "%.200s: no interval between checkpoints was tried", path);
        err_hint(err, "plot goodput reads 'elapse sim JOB --faults ... --json' without interval");
    }
    if (rc == OK) {
        FILE *out = figure_begin(call, 760, 420);
        fputs("$points << EOD\n", out);
        for (const struct json *m = json_first(tried); m; m = json_next(m))
            fprintf(out, "%.9g %.6g\n", number_of(m, "interval_ns") / 1e9,
                    100 * number_of(m, "goodput"));
        fprintf(out, "EOD\nbest = %.9g\nyoung = %.9g\ndaly = %.9g\n",
                number_of(answer, "interval_ns") / 1e9, number_of(answer, "young_ns") / 1e9,
                number_of(answer, "daly_ns") / 1e9);
        figure_text(call, "title",
                    "useful time by the interval between checkpoints, %.4g losses per hour",
                    number_of(answer, "losses_per_hour"));
        rc = figure_end(call, script_goodput, err);
    }
    json_free(answer);
    return rc;
}

/* The parts of a timeline, in the order of their colours. */
static const char *const parts[] = {"useful",  "lost",        "detect", "waiting",
                                    "restart", "checkpoints", "slower"};
enum { NUM_PARTS = sizeof parts / sizeof *parts };
enum { USEFUL, LOST, DETECT, RESTART = 4, CHECKPOINTS };

/* Intervals of a run, in the order of time, each with the part of it that the run spent it on. */
struct spans {
    struct span {
        int64_t from_ns, to_ns;
        int part, nodes;
    } * list; /* owned */
    int num;
    int64_t room;
    bool failed; /* no memory */
};

static void add_span(struct spans *spans, const struct span *span)
{
    if (array_grow(&spans->list, spans->num + 1, &spans->room, sizeof *spans->list))
        spans->list[spans->num++] = *span;
    else
        spans->failed = true;
}

/* The file of a simulated run. */
static enum status read_csv(const char *path, struct spans *spans, struct err *err)
{
    char *line = NULL, word[24];
    size_t size = 0;
    FILE *in = NULL;
    const enum status rc = input_file(path, &in, err);
    if (rc != OK)
        return rc;
    bool fine = getline(&line, &size, in) > 0 && strcmp(line, "from_ns,to_ns,part,nodes\n") == 0;
    while (fine && getline(&line, &size, in) > 0) {
        struct span span = {0};
        fine = sscanf(line, "%" SCNd64 ",%" SCNd64 ",%23[a-z],%d", &span.from_ns, &span.to_ns, word,
                      &span.nodes) == 4;
        while (fine && span.part < NUM_PARTS && strcmp(word, parts[span.part]) != 0)
            span.part++;
        fine &= span.part < NUM_PARTS;
        if (fine)
            add_span(spans, &span);
    }
    free(line);
    fclose(in);
    return fine ? OK
                : err_set(err, ERR_INPUT,
                          "%.200s: not a timeline of 'elapse sim JOB --faults ... --timeline'",
                          path);
}

/* The lines of a real run. Its clock stands still while it neither trains nor saves nor restarts. */
struct real {
    struct spans *spans;
    int64_t now_ns;
    int64_t stall_ns, least_ns; /* waits that are not drawn yet; the least wait to draw */
    int ranks;
};

static void spend(struct real *run, int64_t ns, int part)
{
    struct spans *spans = run->spans;
    struct span *last = spans->num > 0 ? &spans->list[spans->num - 1] : NULL;
    const struct span span = {run->now_ns, run->now_ns + ns, part, run->ranks};
    run->now_ns += ns;
    if (ns > 0 && last && last->part == part && last->nodes == run->ranks)
        last->to_ns = run->now_ns;
    else if (ns > 0)
        add_span(spans, &span);
}

/* A wait for checkpoints in front of a line. */
static void wait_for_saves(struct real *run, int64_t ns)
{
    run->stall_ns += ns;
    if (run->stall_ns > run->least_ns) {
        spend(run, run->stall_ns, CHECKPOINTS);
        run->stall_ns = 0;
    }
}

static void add_line(void *ctx, const struct json *line, bool is_restart)
{
    struct real *run = ctx;
    wait_for_saves(run, metrics_int(line, "stall_ns"));
    if (!is_restart) {
        run->ranks = (int)(metrics_int(line, "pipeline_length") * metrics_int(line, "replicas"));
        spend(run, metrics_int(line, "step_ns"), USEFUL);
        return;
    }
    const char *why = json_string(json_get(line, "why"));
    const bool lost = why && strncmp(why, "lost", 4) == 0;
    const int64_t end_ns = lost ? metrics_int(line, "end_ns") : 0;
    spend(run, metrics_int(line, "redo_ns"), LOST); /* these steps follow once more */
    spend(run, end_ns, DETECT);
    run->ranks = (int)metrics_int(line, "ranks");
    spend(run, metrics_int(line, "lost_ns") - end_ns, RESTART);
}

static enum status read_run(const char *dir, struct spans *spans, struct err *err)
{
    struct spans whole = {0};
    struct real run = {.spans = &whole};
    const enum status read = metrics_each(dir, add_line, &run, err);
    enum status rc = read == OK && whole.failed ? err_nomem(err) : read;
    /* Waits that are narrower than a pixel are drawn together. */
    run = (struct real){.spans = spans, .least_ns = run.now_ns / 1000};
    for (int i = 0; rc == OK && i < whole.num; i++) {
        const struct span *span = &whole.list[i];
        const int64_t ns = span->to_ns - span->from_ns;
        if (span->part == CHECKPOINTS) {
            wait_for_saves(&run, ns);
            continue;
        }
        run.ranks = span->nodes;
        spend(&run, ns, span->part);
    }
    spend(&run, run.stall_ns, CHECKPOINTS);
    free(whole.list);
    if (rc == OK && spans->num == 0)
        rc = err_set(err, ERR_INFEASIBLE, "the run in '%.200s' has no step", dir);
    return rc;
}

enum status figure_losses(struct figure_call *call, struct err *err)
{
    const char *path = call->args[0];
    struct stat st;
    struct spans spans = {0};
    int shown = 0;
    const bool is_run = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    enum status rc = is_run ? read_run(path, &spans, err) : read_csv(path, &spans, err);
    if (rc == OK && spans.failed)
        rc = err_nomem(err);
    if (rc != OK) {
        free(spans.list);
        return rc;
    }
    const double end = spans.num > 0 ? (double)spans.list[spans.num - 1].to_ns : 0;
    const double unit_ns = end > 2e13 ? 3.6e12 : 1e9;
    FILE *out = figure_begin(call, 900, 320);
    fprintf(out, "array names[%d]\n", NUM_PARTS);
    for (int p = 0; p < NUM_PARTS; p++) {
        bool any = false;
        for (int i = 0; i < spans.num; i++) {
            const struct span *span = &spans.list[i];
            if (span->part != p)
                continue;
            if (!any)
                fprintf(out, "names[%d] = \"%s\"\n$part_%d << EOD\n", shown + 1, parts[p],
                        shown + 1);
            any = true;
            fprintf(out, "%.9g %.9g %d\n", (double)span->from_ns / unit_ns,
                    (double)span->to_ns / unit_ns, span->nodes);
        }
        if (any)
            fputs("EOD\n", out);
        shown += any;
    }
    free(spans.list);
    fprintf(out, "parts = %d\n", shown);
    figure_text(call, "title",
                is_run ? "a run that loses ranks" : "a run on a cluster that loses nodes");
    figure_text(call, "counted", is_run ? "ranks" : "nodes");
    figure_text(call, "unit", "%s", unit_ns > 1e9 ? "h" : "s");
    return figure_end(call, script_losses, err);
}
