/* The figures of `elapse plot` and `elapse report`.
 *
 * Each plot_*() function writes the data of a figure in front of its gnuplot script, and gnuplot.c
 * draws it. Read figure_draw() at the end first. */
#include "cli/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/gnuplot.h"
#include "cli/replay.h"
#include "partition/units.h"
#include "profiles/json.h"

#define NS_PER_MS 1e6

/* The ops that a timeline shows, and their colours. Sends and receives appear as gaps. */
static const struct {
    enum op_kind kind;
    const char *name, *colour;
} shown_ops[] = {
    {OP_F,         "F",          "#4c8dc9"},
    {OP_B,         "B",          "#5cb85c"},
    {OP_I,         "I",          "#8fd19e"},
    {OP_W,         "W",          "#e0a030"},
    {OP_R,         "R",          "#9aa5b1"},
    {OP_Z,         "Z",          "#9ecae1"},
    {OP_C,         "C",          "#b39ddb"},
    {OP_P,         "P",          "#8e6bbf"},
    {OP_ALLREDUCE, "all-reduce", "#d9534f"},
    {OP_TIED,      "tied",       "#b03a2e"},
    {OP_NORM,      "norm",       "#6d4c41"},
    {OP_UPDATE,    "update",     "#f5d33f"},
};
enum { NUM_SHOWN = sizeof shown_ops / sizeof shown_ops[0] };

static int shown_index(enum op_kind kind)
{
    for (int i = 0; i < NUM_SHOWN; i++)
        if (shown_ops[i].kind == kind)
            return i;
    return -1;
}

/* Write the bar of one op, with its micro-batch as a label if the bar is wide enough. */
static void write_bar(FILE *out, struct op op, int lane, int64_t start_ns, int64_t end_ns,
                      int64_t span_ns)
{
    int shown = shown_index((enum op_kind)op.kind);
    if (shown < 0 || end_ns <= start_ns)
        return;
    fprintf(out, "%.6f %.6f %d 0x%s ", (double)start_ns / NS_PER_MS, (double)end_ns / NS_PER_MS,
            lane, shown_ops[shown].colour + 1);
    if (op.microbatch >= 0 && op.kind <= OP_P &&
        (double)(end_ns - start_ns) > 0.018 * (double)span_ns)
        fprintf(out, "\"%d\"\n", (int)op.microbatch);
    else
        fputs("\"\"\n", out);
}

static enum status plot_timeline(const char *const *runs, int num_runs, const char *db_path,
                                 struct gnuplot *plot, struct err *err)
{
    char title[128], time[32];
    bool used[NUM_SHOWN] = {false};
    struct replay replay = {0};
    if (num_runs != 1)
        return err_set(err, ERR_INPUT, "plot timeline takes one RUN_DIR, got %d", num_runs);
    enum status rc = replay_load(runs[0], db_path, &replay, err);
    if (rc != OK)
        return rc;
    int k = replay.plan.num_ranks;
    int64_t span_ns = replay.sim.step_ns, real_span_ns = 0;
    for (int64_t i = 0; i < replay.num_ops; i++)
        if (replay.ops[i].end_ns > real_span_ns &&
            shown_index((enum op_kind)replay.ops[i].op.kind) >= 0)
            real_span_ns = replay.ops[i].end_ns;
    if (real_span_ns > span_ns)
        span_ns = real_span_ns;
    FILE *out = plot->program;
    fprintf(out, "panels = %d\nranks = %d\nspan_ms = %.6f\n", replay.num_ops > 0 ? 2 : 1,
            k * replay.plan.num_replicas, (double)span_ns / NS_PER_MS);
    snprintf(title, sizeof title, "simulated: %s a step (%s)",
             format_ns(replay.sim.step_ns, time, sizeof time), replay.cost.cost.label);
    fputs("title_1 = ", out);
    gnuplot_quote(plot, title);
    snprintf(title, sizeof title, "measured: step %lld, %s", (long long)replay.op_step,
             format_ns(real_span_ns, time, sizeof time));
    fputs("\ntitle_2 = ", out);
    gnuplot_quote(plot, title);
    fputs("\n$ops_1 << EOD\n", out);
    for (int64_t i = 0; i < replay.sim.num_ops; i++) {
        const struct sim_op *op = &replay.sim.ops[i];
        write_bar(out, op->op, op->replica * k + op->rank, op->start_ns, op->end_ns, span_ns);
        if (shown_index((enum op_kind)op->op.kind) >= 0)
            used[shown_index((enum op_kind)op->op.kind)] = true;
    }
    fputs("EOD\n$ops_2 << EOD\n", out);
    for (int64_t i = 0; i < replay.num_ops; i++) {
        const struct op_row *op = &replay.ops[i];
        write_bar(out, op->op, (int)(op->replica * k + op->rank), op->start_ns, op->end_ns,
                  span_ns);
    }
    fputs("EOD\nkinds = '", out);
    for (int i = 0; i < NUM_SHOWN; i++)
        if (used[i])
            fprintf(out, "%s ", shown_ops[i].name);
    fputs("'\ncolours = '", out);
    for (int i = 0; i < NUM_SHOWN; i++)
        if (used[i])
            fprintf(out, "%s ", shown_ops[i].colour);
    fputs("'\n", out);
    replay_clear(&replay);
    return gnuplot_run(plot, "timeline", err);
}

/* The value of a step that a curve shows. */
static double step_value(const char *kind, const struct step_row *step)
{
    if (strcmp(kind, "loss") == 0)
        return step->loss;
    if (strcmp(kind, "lr") == 0)
        return step->lr;
    if (strcmp(kind, "throughput") == 0)
        return step->samples_per_s;
    return (double)step->step_ns / NS_PER_MS;
}

/* The last part of a path without blanks, as a word for the figure's key. */
static void run_word(const char *path, char *word, size_t size)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    size_t first = len;
    while (first > 0 && path[first - 1] != '/')
        first--;
    snprintf(word, size, "%.*s", (int)(len - first < size ? len - first : size - 1), path + first);
    for (char *c = word; *c; c++)
        if (*c == ' ' || *c == '_')
            *c = '-';
}

static enum status plot_curves(const char *kind, const char *what, const char *const *runs,
                               int num_runs, struct gnuplot *plot, struct err *err)
{
    char names[FIGURE_MAX_RUNS * 64] = "", word[64], path[4200];
    FILE *out = plot->program;
    for (int r = 0; r < num_runs; r++) {
        struct store *store = NULL;
        struct run_info info = {0};
        struct step_row *steps = NULL;
        int64_t n = 0;
        snprintf(path, sizeof path, "%.4000s/run.db", runs[r]);
        enum status rc = store_open(path, STORE_READ, &store, err);
        if (rc == OK)
            rc = record_run(store, 0, &info, err);
        if (rc == OK)
            rc = record_read_steps(store, info.id, &steps, &n, err);
        if (rc == OK && n < 1)
            rc = err_set(err, ERR_INFEASIBLE, "%s: the run has no finished step", path);
        if (rc == OK) {
            fprintf(out, "$run_%d << EOD\n", r + 1);
            for (int64_t i = 0; i < n; i++) {
                double value = step_value(kind, &steps[i]);
                if (isfinite(value))
                    fprintf(out, "%lld %.9g\n", (long long)steps[i].step, value);
            }
            fputs("EOD\n", out);
            run_word(runs[r], word, sizeof word);
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", word);
        }
        free(steps);
        free(info.job_json);
        store_close(store);
        if (rc != OK)
            return rc;
    }
    fprintf(out, "runs = %d\nkey_on = %d\nlog_y = 0\nnames = ", num_runs, num_runs > 1);
    gnuplot_quote(plot, names);
    fputs("\nwhat = ", out);
    gnuplot_quote(plot, what);
    fputc('\n', out);
    return gnuplot_run(plot, "curves", err);
}

/* Plot the answers of `elapse compare --json` as points. */
static enum status plot_error(const char *const *files, int num_files, struct gnuplot *plot,
                              struct err *err)
{
    struct json *root = NULL;
    double top = 0;
    FILE *out = plot->program;
    if (num_files != 1)
        return err_set(err, ERR_INPUT,
                       "plot error takes one FILE of 'elapse compare --json', got %d", num_files);
    enum status rc = json_read_file(files[0], &root, err);
    if (rc != OK)
        return rc;
    const struct json *configs = json_get(root, "configs");
    int n = configs && json_type(configs) == JSON_ARRAY ? json_count(configs) : 0;
    fputs("$points << EOD\n", out);
    for (int i = 0; i < n; i++) {
        const struct json *config = json_at(configs, i);
        double real = json_number(json_get(config, "real_step_ns")) / NS_PER_MS;
        double sim = json_number(json_get(config, "sim_step_ns")) / NS_PER_MS;
        if (!isfinite(real) || !isfinite(sim))
            continue;
        const struct json *epoch = json_get(config, "real"); /* of an elastic run */
        const struct json *plan = epoch ? epoch : config;
        fprintf(out, "%.6f %.6f \"K=%g M=%g\"\n", real, sim,
                json_number(json_get(plan, "pipeline_length")),
                json_number(json_get(plan, "microbatches")));
        top = fmax(top, fmax(real, sim));
    }
    double median = json_number(json_get(root, "median_abs_error"));
    json_free(root);
    if (top <= 0)
        return err_set(err, ERR_INPUT, "%s: no configs[] with real_step_ns and sim_step_ns",
                       files[0]);
    fprintf(out, "EOD\ntop_ms = %.6f\nmedian = 'configurations", top * 1.15);
    if (isfinite(median)) /* it is null if all configurations are noisy */
        fprintf(out, " (median error %.1f %%)", 100 * median);
    fputs("'\n", out);
    return gnuplot_run(plot, "error", err);
}

static const struct {
    const char *name, *label; /* of the y axis; NULL: not a curve */
} figures[] = {
    {"timeline",   NULL           },
    {"loss",       "loss"         },
    {"throughput", "samples / s"  },
    {"step-time",  "step time, ms"},
    {"lr",         "learning rate"},
    {"error",      NULL           },
};
enum { NUM_FIGURES = sizeof figures / sizeof figures[0] };

static enum status find_figure(const char *name, int *index, struct err *err)
{
    const char *names[NUM_FIGURES];
    for (int i = 0; i < NUM_FIGURES; i++) {
        names[i] = figures[i].name;
        if (strcmp(names[i], name) == 0) {
            *index = i;
            return OK;
        }
    }
    const char *near = nearest_name(name, names, NUM_FIGURES);
    enum status rc = err_set(err, ERR_INPUT,
                             "no figure '%.64s'; there are timeline, loss, throughput, step-time, "
                             "lr, error",
                             name);
    if (near)
        err_hint(err, "did you mean '%s'?", near);
    return rc;
}

enum status figure_draw(const char *name, const char *const *args, int num_args,
                        const struct figure_options *options, struct err *err)
{
    struct gnuplot plot = {0};
    int index = 0;
    enum status rc = find_figure(name, &index, err);
    if (rc != OK)
        return rc;
    bool timeline = strcmp(name, "timeline") == 0;
    if (options->db_path && !timeline)
        return err_set(err, ERR_INPUT, "--db: only a timeline shows a prediction");
    rc = gnuplot_begin(&plot, options->out_path, options->term,
                       options->width ? options->width : 1100,
                       options->height ? options->height : (timeline ? 620 : 550), err);
    if (rc != OK)
        return rc;
    if (timeline)
        rc = plot_timeline(args, num_args, options->db_path, &plot, err);
    else if (figures[index].label)
        rc = plot_curves(name, figures[index].label, args, num_args, &plot, err);
    else
        rc = plot_error(args, num_args, &plot, err);
    gnuplot_clear(&plot);
    return rc;
}
