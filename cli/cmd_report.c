/* cli/cmd_report.c - `elapse report`: one HTML page about a run, with its figures, the prediction
 * and the measured values. Read run_report() at the end first. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/figures.h"
#include "cli/replay.h"
#include "partition/units.h"

#define NS_PER_S 1e9

static void put_text(FILE *out, const char *text)
{
    for (; text && *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

static void put_row(FILE *out, const char *name, const char *value)
{
    fputs("<tr><th>", out);
    put_text(out, name);
    fputs("</th><td>", out);
    put_text(out, value);
    fputs("</td></tr>\n", out);
}

/* Draw a figure into a temporary SVG file and copy its <svg> element into the page. */
static enum status put_figure(FILE *out, const char *name, const char *const *run_dirs, int n,
                              const char *db_path, struct err *err)
{
    char path[] = "/tmp/elapse-figure-XXXXXX.svg", line[4096];
    bool inside = false;
    FILE *svg = NULL;
    int fd = mkstemps(path, 4);
    if (fd < 0)
        return err_set(err, ERR_SYSTEM, "cannot make '%s': %s", path, strerror(errno));
    close(fd);
    const struct figure_options options = {
        .out_path = path, .subject.db_path = db_path, .width = 1000, .height = n > 1 ? 420 : 0};
    enum status rc = figure_draw(name, run_dirs, n, &options, err);
    if (rc == OK && !(svg = fopen(path, "r")))
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': %s", path, strerror(errno));
    while (rc == OK && fgets(line, sizeof line, svg)) {
        if (strncmp(line, "<svg", 4) == 0) { /* leave out the XML head */
            inside = true;
            fprintf(out, "<figure>\n");
        }
        if (inside)
            fputs(line, out);
    }
    if (inside)
        fputs("</figure>\n", out);
    if (svg)
        fclose(svg);
    unlink(path);
    return rc;
}

static void put_facts(FILE *out, const struct replay *replay, const struct err *sim_err)
{
    char text[512], a[32], b[32];
    const struct plan *plan = &replay->plan;
    const struct step_row *first = &replay->steps[0], *last = &replay->steps[replay->num_steps - 1];
    double accuracy = json_number(json_get(replay->summary, "eval_accuracy"));
    double before = json_number(json_get(replay->summary, "initial_accuracy"));
    size_t used;
    fputs("<table>\n", out);
    put_row(out, "job", replay->info.name);
    put_row(out, "model", replay->job.model.name);
    snprintf(text, sizeof text, "%s on %s, %lld ranks", replay->info.started_at, replay->info.host,
             (long long)replay->num_ranks);
    put_row(out, "run", text);
    snprintf(text, sizeof text, "K = %d, R = %d, M = %d, %s, %lld samples a pipeline, F = %d",
             plan->num_ranks, plan->num_replicas, plan->microbatches.count,
             schedule_kind_name(plan->schedule), (long long)plan->batch, plan->num_frozen_layers);
    put_row(out, "plan", text);
    used = 0;
    for (int s = 0; s < plan->num_stages && used < sizeof text; s++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", s ? ", " : "",
                                 plan->first_item[s + 1] - plan->first_item[s]);
    put_row(out, "items a stage", text);
    snprintf(text, sizeof text, "%.4f → %.4f in %lld steps", first->loss, last->loss,
             (long long)replay->num_steps);
    put_row(out, "loss", text);
    if (isfinite(accuracy)) {
        if (isfinite(before))
            snprintf(text, sizeof text, "%.1f %% → %.1f %%", 100 * before, 100 * accuracy);
        else
            snprintf(text, sizeof text, "%.1f %%", 100 * accuracy);
        put_row(out, "accuracy", text);
    }
    snprintf(text, sizeof text, "%s (p10 %s, p90 %s; %lld steps)",
             format_ns(replay->real_step_ns, a, sizeof a),
             format_ns(replay->real_p10_ns, b, sizeof b),
             format_ns(replay->real_p90_ns, (char[32]){0}, 32), (long long)replay->num_counted);
    put_row(out, "step, measured", text);
    if (sim_err->status == OK) {
        snprintf(text, sizeof text, "%s, off by %+.1f %% (%s)",
                 format_ns(replay->sim.step_ns, a, sizeof a),
                 100 * ((double)replay->sim.step_ns / (double)replay->real_step_ns - 1),
                 replay->cost.cost.label);
        put_row(out, "step, simulated", text);
        snprintf(text, sizeof text, "%.1f %%", 100 * replay->sim.bubble_fraction);
        put_row(out, "bubble, simulated", text);
    } else {
        put_row(out, "step, simulated", sim_err->msg);
    }
    fputs("</table>\n", out);
}

static void put_number(FILE *out, double value, double factor, int digits)
{
    if (isfinite(value))
        fprintf(out, "<td>%.*f</td>", digits, value * factor);
    else
        fputs("<td></td>", out);
}

static enum status put_epochs(FILE *out, const char *run_dir, int64_t run_id, struct err *err)
{
    char path[4200];
    struct store *store = NULL;
    struct epoch_row *rows = NULL;
    int64_t n = 0;
    snprintf(path, sizeof path, "%.4000s/run.db", run_dir);
    enum status rc = store_open(path, STORE_READ, &store, err);
    if (rc == OK)
        rc = record_read_epochs(store, run_id, &rows, &n, err);
    if (rc == OK && n > 0) {
        fputs("<table class=\"wide\">\n<tr><th>epoch</th><th>F</th><th>K</th><th>R</th><th>M</th>"
              "<th>steps</th><th>step, ms</th><th>samples / s</th><th>transition, ms</th>"
              "<th>loss</th><th>accuracy, %</th></tr>\n",
              out);
        for (int64_t i = 0; i < n; i++) {
            const struct epoch_row *row = &rows[i];
            fprintf(out,
                    "<tr><td>%lld</td><td>%lld</td><td>%lld</td><td>%lld</td><td>%lld</td>"
                    "<td>%lld</td>",
                    (long long)row->epoch, (long long)row->frozen_layers,
                    (long long)row->pipeline_length, (long long)row->replicas,
                    (long long)row->microbatches, (long long)row->steps);
            put_number(out, (double)row->step_ns, 1e3 / NS_PER_S, 2);
            put_number(out, row->samples_per_s, 1, 1);
            put_number(out, (double)row->transition_ns, 1e3 / NS_PER_S, 1);
            put_number(out, row->train_loss, 1, 4);
            put_number(out, row->eval_accuracy, 100, 1);
            fputs("</tr>\n", out);
        }
        fputs("</table>\n", out);
    }
    free(rows);
    store_close(store);
    return rc;
}

static enum status put_run(FILE *out, const char *run_dir, const char *db_path, struct err *err)
{
    struct replay replay = {0};
    struct err sim_err = {0};
    enum status rc = replay_read(run_dir, &replay, err);
    if (rc != OK)
        return rc;
    replay_simulate(&replay, db_path, &sim_err); /* without a prediction the run is still shown */
    fputs("<h2>", out);
    put_text(out, run_dir);
    fputs("</h2>\n", out);
    put_facts(out, &replay, &sim_err);
    rc = put_epochs(out, run_dir, replay.info.id, err);
    replay_clear(&replay);
    if (rc == OK && sim_err.status == OK)
        rc = put_figure(out, "timeline", &run_dir, 1, db_path, err);
    return rc;
}

static const char page_head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<title>Elapse report</title>\n<style>\n"
    "body { font: 15px/1.5 sans-serif; max-width: 1040px; margin: 2em auto; padding: 0 1em; }\n"
    "table { border-collapse: collapse; margin: 1em 0; }\n"
    "th, td { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: left; }\n"
    ".wide td, .wide th { text-align: right; }\n"
    "figure { margin: 1em 0; } svg { max-width: 100%; height: auto; }\n"
    "</style>\n</head>\n<body>\n<h1>Elapse report</h1>\n";

static enum status write_page(FILE *out, const char *const *run_dirs, int n, const char *db_path,
                              struct err *err)
{
    static const char *const curves[] = {"loss", "throughput"};
    enum status rc = OK;
    fputs(page_head, out);
    for (size_t i = 0; rc == OK && i < sizeof curves / sizeof curves[0]; i++)
        rc = put_figure(out, curves[i], run_dirs, n, NULL, err);
    for (int i = 0; rc == OK && i < n; i++)
        rc = put_run(out, run_dirs[i], db_path, err);
    fprintf(out, "<p>elapse %s</p>\n</body>\n</html>\n", ELAPSE_VERSION);
    return rc;
}

static enum status run_report(const struct command *command, int argc, char **argv, struct err *err)
{
    const char *out_path = NULL, *db_path = NULL;
    const struct option options[] = {
        OPTION("o", STRING, &out_path, "FILE", "the page (.html)"),
        OPTION("db", STRING, &db_path, "FILE", "profile store of the prediction (the run's own)"),
    };
    struct atomic_file page;
    struct command_line line = COMMAND_LINE(options, FIGURE_MAX_RUNS);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    if (line.num_positional < 1 || !out_path)
        return err_set(err, ERR_INPUT, "report needs a RUN_DIR and -o FILE");
    rc = atomic_open(&page, out_path, err);
    if (rc != OK)
        return rc;
    rc = write_page(page.out, line.positional, line.num_positional, db_path, err);
    rc = atomic_close(&page, rc, err);
    if (rc == OK)
        printf("%s\n", out_path);
    return rc;
}

const struct command command_report = {"report", "RUN_DIR... -o report.html",
                                       "one self-contained page about runs", run_report};
