/* `plot sweep`: the answers of `elapse sim --sweep --json`, as lines or as a heat map. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures/figure_draw.h"
#include "partition/base/arrays.h"
#include "partition/base/units.h"
#include "profiles/base/whole_file.h"
#include "profiles/json/json.h"

enum { MAX_AXES = 8, MAX_VALUES = 256, MAX_SERIES = 16, VALUE = 48 };

/* The values that one swept key took, in the order of the file. */
struct axis {
    char name[64];
    int num;
    char values[MAX_VALUES][VALUE];
    bool numbers; /* every value is one */
};

struct sweep_file {
    struct axis axes[MAX_AXES];
    int num_axes, num_points;
    int (*index)[MAX_AXES]; /* owned, [num_points] */
    double *y;              /* owned; NaN: no answer */
    bool *stopped;          /* owned; the search for the point's plan was cut short */
    bool any_stopped;
    const char *column;
};

/* The keys of an answer that are not swept: everything from its first result on. */
static bool is_result(const char *key)
{
    return strcmp(key, "step_ns") == 0 || strcmp(key, "total_ns") == 0 || strcmp(key, "error") == 0;
}

static bool is_head(const char *key)
{
    return strcmp(key, "schema") == 0 || strcmp(key, "version") == 0 || strcmp(key, "command") == 0;
}

/* A value as a number: JSON's own, or one with a unit, such as "10GBps" or "1/3". */
static bool as_number(const char *text, double *number)
{
    char *end;
    int64_t whole;
    *number = strtod(text, &end);
    if (end != text && *end == '\0')
        return true;
    if (parse_rate(text, "", number, NULL) == OK || parse_ratio(text, "", number, NULL) == OK)
        return true;
    if (parse_ns(text, "", &whole, NULL) == OK || parse_bytes(text, "", &whole, NULL) == OK) {
        *number = (double)whole;
        return true;
    }
    return false;
}

static void value_text(const struct json *value, char text[VALUE])
{
    if (json_string(value))
        snprintf(text, VALUE, "%s", json_string(value));
    else
        snprintf(text, VALUE, "%.10g", json_number(value));
}

/* The place of a value on its axis; a new value is added. -1: the axis is full. */
static int axis_place(struct axis *axis, const char *text)
{
    double number;
    for (int i = 0; i < axis->num; i++)
        if (strcmp(axis->values[i], text) == 0)
            return i;
    if (axis->num == MAX_VALUES)
        return -1;
    axis->numbers = (axis->num == 0 || axis->numbers) && as_number(text, &number);
    snprintf(axis->values[axis->num], VALUE, "%s", text);
    return axis->num++;
}

/* The key of the number that is drawn of an answer: a rate; of a whole run its speed-up or its time. NULL: it
 * has none. */
static const char *column_of(const struct json *line)
{
    const bool run = json_get(line, "total_ns");
    if (!run && json_type(json_get(line, "tokens_per_s")) == JSON_NUMBER)
        return "tokens_per_s";
    if (!run && json_get(line, "samples_per_s"))
        return "samples_per_s";
    if (json_type(json_get(line, "speedup")) == JSON_NUMBER)
        return "speedup";
    return run ? "total_ns" : NULL;
}

/* Make room for one more point. false: no memory. */
static bool point_room(struct sweep_file *f)
{
    return array_extend(&f->index, f->num_points, sizeof *f->index) &&
           array_extend(&f->y, f->num_points, sizeof *f->y) &&
           array_extend(&f->stopped, f->num_points, sizeof *f->stopped);
}

static enum status add_line(struct sweep_file *f, const struct json *line, const char *path,
                            struct err *err)
{
    int n = 0;
    if (!point_room(f))
        return err_nomem(err);
    for (const struct json *m = json_first(line); m && !is_result(json_key(m)); m = json_next(m)) {
        char text[VALUE];
        if (is_head(json_key(m)))
            continue;
        if (n == MAX_AXES)
            return err_set(err, ERR_INPUT, "%.200s: more than %d swept keys", path, MAX_AXES);
        struct axis *axis = &f->axes[n];
        if (f->num_points == 0)
            snprintf(axis->name, sizeof axis->name, "%s", json_key(m));
        else if (n >= f->num_axes || strcmp(axis->name, json_key(m)) != 0)
            return err_set(err, ERR_INPUT, "%.200s: line %d has other keys than the first", path,
                           f->num_points + 1);
        value_text(m, text);
        f->index[f->num_points][n] = axis_place(axis, text);
        if (f->index[f->num_points][n++] < 0)
            return err_set(err, ERR_INPUT, "%.200s: more than %d values of %s", path, MAX_VALUES,
                           axis->name);
    }
    if (n == 0 || (f->num_points > 0 && n != f->num_axes))
        return err_set(err, ERR_INPUT, "%.200s: line %d is not an answer of a sweep", path,
                       f->num_points + 1);
    f->num_axes = n;
    if (!f->column)
        f->column = column_of(line);
    const struct json *complete = json_path(line, "searched.complete");
    f->stopped[f->num_points] = complete && !json_true(complete);
    f->any_stopped = f->any_stopped || f->stopped[f->num_points];
    f->y[f->num_points++] = f->column ? json_number(json_get(line, f->column)) : NAN;
    return OK;
}

static enum status read_sweep(const char *path, struct sweep_file *f, struct err *err)
{
    enum status rc = OK;
    char *text = NULL;
    size_t room = 0;
    FILE *file = NULL;
    rc = input_file(path, &file, err);
    if (rc != OK)
        return rc;
    while (rc == OK && getline(&text, &room, file) > 0) {
        struct json *line = NULL;
        rc = json_parse(text, path, &line, err);
        if (rc == OK)
            rc = add_line(f, line, path, err);
        else
            err_hint(err, "plot sweep reads the lines of 'elapse sim --sweep ... --json'");
        json_free(line);
    }
    free(text);
    fclose(file);
    double sum = 0;
    for (int i = 0; i < f->num_points; i++)
        sum += isfinite(f->y[i]);
    if (rc == OK && sum == 0)
        rc = err_set(err, ERR_INPUT, "%.200s: no point has a number '%s'", path,
                     f->column ? f->column : "samples_per_s");
    return rc;
}

const char *figure_value_label(const char *column, double *factor)
{
    static const struct {
        const char *key, *label;
        double factor;
    } known[] = {
        {"step_ns",                         "time of a step, ms",                  1e-6             },
        {"total_ns",                        "training, s",                         1e-9             },
        {"baseline_ns",                     "training of the baseline, s",         1e-9             },
        {"samples_per_s",                   "samples per second",                  1                },
        {"tokens_per_s",                    "tokens per second",                   1                },
        {"images_per_s",                    "images per second",                   1                },
        {"documents_per_s",                 "documents per second",                1                },
        {"tokens_per_s_per_device",         "tokens per second of a device",       1                },
        {"flops_per_s_per_device",          "model TFLOP/s of a device",           1e-12            },
        {"hardware_flops_per_s_per_device", "TFLOP/s of a device, with recompute", 1e-12            },
        {"mfu",                             "MFU, %",                              100              },
        {"hfu",                             "HFU, %",                              100              },
        {"run_ns",                          "the whole run, hours",                1 / 3.6e12       },
        {"run_device_hours",                "device hours of the whole run",       1                },
        {"cost",                            "cost of the whole run",               1                },
        {"energy_kwh",                      "energy of the whole run, kWh",        1                },
        {"bubble_fraction",                 "bubble, % of the step",               100              },
        {"peak_bytes",                      "peak memory of a device, GiB",        1.0 / (1LL << 30)},
        {"allreduce_exposed_ns",            "exposed all-reduce, ms",              1e-6             },
        {"allreduce_ns",                    "all-reduce, ms",                      1e-6             },
        {"speedup",                         "speed, baseline = 1",                 1                },
        {"device_hours",                    "device hours",                        1                },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].key, column) == 0) {
            *factor = known[i].factor;
            return known[i].label;
        }
    *factor = 1;
    return column;
}

static enum status find_axis(const struct sweep_file *f, const char *name, int *axis,
                             struct err *err)
{
    for (*axis = 0; *axis < f->num_axes; ++*axis)
        if (!name || strcmp(f->axes[*axis].name, name) == 0)
            return OK;
    return err_set(err, ERR_INPUT, "-x: no swept key '%.64s' in the file", name);
}

/* Whether an axis spans so much that its numbers belong on a logarithmic scale. */
static bool wide(const struct axis *axis)
{
    double least = INFINITY, most = 0, number;
    for (int i = 0; i < axis->num; i++)
        if (as_number(axis->values[i], &number)) {
            least = fmin(least, number);
            most = fmax(most, number);
        }
    return axis->numbers && least > 0 && most >= 8 * least;
}

/* Ticks of an axis at its values, with the texts of the file. gnuplot takes a tick's text for a
 * format, so it gets no '%'. */
static void write_ticks(struct gnuplot *plot, const struct axis *axis, char which, bool by_number)
{
    fprintf(plot->program, "set %ctics (", which);
    for (int i = 0; i < axis->num; i++) {
        double at = i;
        char text[VALUE];
        size_t n = 0;
        if (by_number)
            (void)as_number(axis->values[i], &at);
        for (const char *c = axis->values[i]; *c && n + 1 < sizeof text; c++)
            if (*c != '%')
                text[n++] = *c;
        text[n] = '\0';
        fputs(i ? "," : "", plot->program);
        gnuplot_quote(plot, text);
        fprintf(plot->program, " %.12g", at);
    }
    fputs(")\n", plot->program);
}

/* The series that a point belongs to: its values on all axes but x. */
static int series_of(const struct sweep_file *f, int point, int x)
{
    int series = 0;
    for (int a = 0; a < f->num_axes; a++)
        if (a != x)
            series = series * f->axes[a].num + f->index[point][a];
    return series;
}

static void series_title(const struct sweep_file *f, int point, int x, char *text, size_t size)
{
    size_t used = 0;
    *text = '\0';
    for (int a = 0; a < f->num_axes; a++) {
        const char *dot = strrchr(f->axes[a].name, '.');
        if (a != x && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s=%s", used ? " " : "",
                                     dot ? dot + 1 : f->axes[a].name,
                                     f->axes[a].values[f->index[point][a]]);
    }
}

/* The place of a point on the x axis. */
static double place_of(const struct sweep_file *f, int point, int x)
{
    double at = f->index[point][x];
    if (f->axes[x].numbers)
        (void)as_number(f->axes[x].values[f->index[point][x]], &at);
    return at;
}

static enum status draw_lines(struct figure_call *call, const struct sweep_file *f, int x,
                              struct err *err)
{
    double factor;
    const char *label = figure_value_label(f->column, &factor);
    const struct axis *axis = &f->axes[x];
    int num = 0, series = 1;
    for (int a = 0; a < f->num_axes; a++)
        series *= a == x ? 1 : f->axes[a].num;
    if (series > MAX_SERIES)
        return err_set(err, ERR_INPUT, "%d lines are too many to tell apart (at most %d)", series,
                       MAX_SERIES);
    FILE *out = figure_begin(call, 1000, 500);
    fprintf(out, "array titles[%d]\narray types[%d]\narray dashes[%d]\n", series, series, series);
    for (int s = 0; s < series; s++) {
        char name[32], title[256];
        bool any = false;
        fprintf(out, "$s_%d << EOD\n", num + 1);
        for (int p = 0; p < f->num_points; p++) {
            if (series_of(f, p, x) != s || !isfinite(f->y[p]))
                continue;
            fprintf(out, "%.12g %.12g\n", place_of(f, p, x), f->y[p] * factor);
            series_title(f, p, x, title, sizeof title);
            any = true;
        }
        fputs("EOD\n", out);
        snprintf(name, sizeof name, "titles[%d]", num + 1);
        if (any) {
            figure_text(call, name, "%s", *title ? title : label);
            num++;
            fprintf(out, "types[%d] = %d\ndashes[%d] = %d\n", num, num, num, 1 + (num - 1) / 8);
        }
    }
    fputs("$stopped << EOD\n", out);
    for (int p = 0; p < f->num_points; p++)
        if (f->stopped[p] && isfinite(f->y[p]))
            fprintf(out, "%.12g %.12g\n", place_of(f, p, x), f->y[p] * factor);
    fprintf(out, "EOD\nstopped = %d\n", f->any_stopped);
    if (axis->num <= 16)
        write_ticks(&call->plot, axis, 'x', axis->numbers);
    fprintf(out,
            "series = %d\nlog_x = %d\nlog_y = 0\nhow = 'linespoints'\nlimit = 0\nlimit_name = "
            "''\nideal = 0\n",
            num, wide(axis));
    figure_text(call, "heading", "%s by %s", label, axis->name);
    figure_text(call, "x_label", "%s", axis->name);
    figure_text(call, "y_label", "%s", label);
    return figure_end(call, script_lines, err);
}

static enum status draw_heat(struct figure_call *call, const struct sweep_file *f, int x,
                             struct err *err)
{
    double factor;
    const char *label = figure_value_label(f->column, &factor);
    if (f->num_axes != 2)
        return err_set(err, ERR_INPUT, "--heat needs two swept keys, the file has %d", f->num_axes);
    const struct axis *across = &f->axes[x], *up = &f->axes[1 - x];
    double most = -INFINITY, least = INFINITY;
    for (int p = 0; p < f->num_points; p++)
        if (isfinite(f->y[p])) {
            most = fmax(most, f->y[p] * factor);
            least = fmin(least, f->y[p] * factor);
        }
    if (!(least < most)) { /* one value, or none: gnuplot needs a range */
        least = fmin(0, least);
        most = fmax(least + 1, most);
    }
    if (!isfinite(least))
        least = 0;
    FILE *out = figure_begin(call, 900, 620);
    fputs("$cells << EOD\n", out);
    for (int p = 0; p < f->num_points; p++)
        if (isfinite(f->y[p]))
            fprintf(out,
                    fabs(f->y[p] * factor) < 1000 ? "%d %d %.9g \"%.3g%s\"\n"
                                                  : "%d %d %.9g \"%.0f%s\"\n",
                    f->index[p][x], f->index[p][1 - x], f->y[p] * factor, f->y[p] * factor,
                    f->stopped[p] ? "*" : "");
        else
            fprintf(out, "%d %d NaN \"-\"\n", f->index[p][x], f->index[p][1 - x]);
    fputs("EOD\n", out);
    write_ticks(&call->plot, across, 'x', false);
    write_ticks(&call->plot, up, 'y', false);
    fprintf(out, "columns = %d\nrows = %d\nlow = %.9g\nmiddle = %.9g\nlabels = %d\nflip = 0\n",
            across->num, up->num, least, 0.5 * (least + most), across->num <= 16 && up->num <= 24);
    figure_text(call, "heading", "%s%s", label, f->any_stopped ? "; *: search stopped" : "");
    figure_text(call, "x_label", "%s", across->name);
    figure_text(call, "y_label", "%s", up->name);
    figure_text(call, "unit", "%s", label);
    return figure_end(call, script_heat, err);
}

enum status figure_sweep(struct figure_call *call, struct err *err)
{
    struct sweep_file *f = calloc(1, sizeof *f);
    int x = 0;
    if (!f)
        return err_nomem(err);
    f->column = call->options->y;
    enum status rc = read_sweep(call->args[0], f, err);
    THEN(find_axis(f, call->options->x, &x, err));
    for (int a = 0; rc == OK && !call->options->x && a < f->num_axes; a++)
        if (f->axes[a].numbers && !f->axes[x].numbers)
            x = a; /* the first key with numbers */
    THEN(call->options->heat ? draw_heat(call, f, x, err) : draw_lines(call, f, x, err));
    free(f->index);
    free(f->y);
    free(f->stopped);
    free(f);
    return rc;
}
