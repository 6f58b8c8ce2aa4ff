/* Figures of runs that lose nodes: `plot goodput` of an answer of `sim --faults --json`, and `plot
 * losses` of the file that its --timeline has written. */
#include <string.h>

#include "cli/figures/figure_draw.h"
#include "profiles/json/json.h"

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
        rc = err_set(err, ERR_INPUT, "%.200s: it has tried no intervals between checkpoints", path);
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
        rc = figure_end(call, "goodput", err);
    }
    json_free(answer);
    return rc;
}

/* The parts of a timeline, in the order of their colours. */
static const char *const parts[] = {"useful",  "lost",        "detect", "waiting",
                                    "restart", "checkpoints", "slower"};
enum { NUM_PARTS = sizeof parts / sizeof *parts };

/* Write the intervals of one part. *end becomes the end of the last one. Returns how many, or -1 at a
 * line that is none. */
static int write_part(FILE *in, FILE *out, const char *part, double unit_ns, double *end)
{
    char line[160], word[24];
    double from, to;
    int nodes, n = 0;
    rewind(in);
    if (!fgets(line, sizeof line, in) || strcmp(line, "from_ns,to_ns,part,nodes\n") != 0)
        return -1;
    while (fgets(line, sizeof line, in)) {
        if (sscanf(line, "%lf,%lf,%23[a-z],%d", &from, &to, word, &nodes) != 4)
            return -1;
        *end = to;
        if (strcmp(word, part) != 0)
            continue;
        n++;
        if (out)
            fprintf(out, "%.9g %.9g %d\n", from / unit_ns, to / unit_ns, nodes);
    }
    return n;
}

enum status figure_losses(struct figure_call *call, struct err *err)
{
    const char *path = call->args[0];
    double end = 0;
    int shown = 0;
    FILE *in = fopen(path, "r");
    if (!in)
        return err_set(err, ERR_SYSTEM, "cannot open '%s'", path);
    if (write_part(in, NULL, "", 1, &end) < 0) {
        fclose(in);
        return err_set(err, ERR_INPUT,
                       "%.200s: it is no timeline of 'elapse sim JOB --faults ... --timeline'",
                       path);
    }
    const double unit_ns = end > 2e13 ? 3.6e12 : 1e9;
    FILE *out = figure_begin(call, 900, 320);
    fprintf(out, "array names[%d]\n", NUM_PARTS);
    for (int p = 0; p < NUM_PARTS; p++) {
        if (write_part(in, NULL, parts[p], unit_ns, &end) <= 0)
            continue;
        fprintf(out, "names[%d] = \"%s\"\n$part_%d << EOD\n", shown + 1, parts[p], shown + 1);
        (void)write_part(in, out, parts[p], unit_ns, &end);
        fputs("EOD\n", out);
        shown++;
    }
    fclose(in);
    fprintf(out, "parts = %d\n", shown);
    figure_text(call, "title", "a run on a cluster that loses nodes");
    figure_text(call, "unit", "%s", unit_ns > 1e9 ? "h" : "s");
    return figure_end(call, "losses", err);
}
