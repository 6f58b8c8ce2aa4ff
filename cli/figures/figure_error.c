/* `plot error`: simulated against measured step time, from a file of `elapse compare --json`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures/figure_draw.h"
#include "profiles/json/json.h"

/* The keys that may tell configurations apart, as they are named beside a point. */
static const struct {
    const char *key, *name;
} telling[] = {
    {"epoch",           "epoch "    },
    {"pipeline_length", "K="        },
    {"replicas",        "R="        },
    {"microbatches",    "M="        },
    {"frozen_layers",   "F="        },
    {"schedule",        ""          },
    {"batch",           "B="        },
    {"recompute",       "recompute "},
    {"frozen",          "prefix "   },
};
enum { NUM_TELLING = sizeof telling / sizeof telling[0] };

/* The value of a key as text. The epochs of an elastic run hold their plan in "real". */
static void value_text(const struct json *config, const char *key, char *text, size_t size)
{
    const struct json *value = json_get(config, key);
    if (!value)
        value = json_get(json_get(config, "real"), key);
    if (value && json_type(value) == JSON_STRING)
        snprintf(text, size, "%s", json_string(value));
    else if (value && isfinite(json_number(value)))
        snprintf(text, size, "%g", json_number(value));
    else
        *text = '\0';
}

/* Find the keys that differ between the configurations. K and M always name a point. */
static void find_differences(const struct json *configs, bool *differs)
{
    char first[64], other[64];
    for (int t = 0; t < NUM_TELLING; t++) {
        value_text(json_first(configs), telling[t].key, first, sizeof first);
        differs[t] = strcmp(telling[t].name, "K=") == 0 || strcmp(telling[t].name, "M=") == 0;
        for (const struct json *c = json_first(configs); c && !differs[t]; c = json_next(c)) {
            value_text(c, telling[t].key, other, sizeof other);
            differs[t] = strcmp(first, other) != 0;
        }
    }
}

static void write_label(struct figure_call *call, const struct json *config, int number,
                        const bool *differs)
{
    char name[32], label[80 * NUM_TELLING] = "", text[64];
    for (int t = 0; t < NUM_TELLING; t++) {
        const size_t used = strlen(label);
        value_text(config, telling[t].key, text, sizeof text);
        if (differs[t] && *text)
            snprintf(label + used, sizeof label - used, "%s%s%s", used ? " " : "", telling[t].name,
                     text);
    }
    snprintf(name, sizeof name, "names[%d]", number);
    figure_text(call, name, "%s", label);
}

/* Name the points for the key, where each has its number. */
static void write_names(struct figure_call *call, const struct json *configs, const bool *differs)
{
    int num = 0;
    for (const struct json *c = json_first(configs); c; c = json_next(c))
        if (json_number(json_get(c, "real_step_ns")) > 0 &&
            json_number(json_get(c, "sim_step_ns")) > 0)
            write_label(call, c, ++num, differs);
}

/* A configuration's point in ms, and where its number stands, both in shares of the axes too. */
struct point {
    double real, sim, noise;
    double u, v, label_u, label_v;
};

struct axes {
    double first, last;
    bool wide; /* logarithmic */
};

static double share_of(const struct axes *a, double ms)
{
    return a->wide ? log(ms / a->first) / log(a->last / a->first)
                   : (ms - a->first) / (a->last - a->first);
}

static double ms_of(const struct axes *a, double share)
{
    return a->wide ? a->first * pow(a->last / a->first, share)
                   : a->first + share * (a->last - a->first);
}

/* Whether a number at (u, v) would cover a point or a number: two digits of 9 points are 2 % of an
 * axis wide and 3 % high. */
static bool is_taken(const struct point *points, int num, int placed, double u, double v)
{
    for (int i = 0; i < num; i++)
        if (fabs(points[i].u - u) < 0.014 && fabs(points[i].v - v) < 0.018)
            return true;
    for (int i = 0; i < placed; i++)
        if (fabs(points[i].label_u - u) < 0.024 && fabs(points[i].label_v - v) < 0.028)
            return true;
    return false;
}

/* Give each point the nearest free place for its number, on rings around it: below on the right
 * first, where the line of equal times and the bars of noise leave room. */
static void place_numbers(struct point *points, int num)
{
    enum { AROUND = 16, RINGS = 8 };
    static const double turn = 6.283185307179586 / AROUND;
    for (int p = 0; p < num; p++) {
        struct point *at = &points[p];
        bool found = false;
        for (int ring = 1; ring <= RINGS && !found; ring++)
            for (int k = 0; k < AROUND && !found; k++) {
                const int step = k % 2 ? -(k + 1) / 2 : k / 2;
                const double angle = turn * (step - 2);
                at->label_u = at->u + 0.024 * ring * cos(angle);
                at->label_v = at->v + 0.028 * ring * sin(angle);
                found = !is_taken(points, num, p, at->label_u, at->label_v);
            }
    }
}

/* Read the points that have both times into a fresh array. NULL: out of memory. */
static struct point *read_points(const struct json *configs, int *num)
{
    struct point *points = calloc((size_t)json_count(configs) + 1, sizeof *points);
    *num = 0;
    for (const struct json *c = json_first(configs); points && c; c = json_next(c)) {
        const double real = json_number(json_get(c, "real_step_ns")) / NS_PER_MS;
        const double sim = json_number(json_get(c, "sim_step_ns")) / NS_PER_MS;
        const double noise = json_number(json_get(c, "noise"));
        if (real > 0 && sim > 0)
            points[(*num)++] = (struct point){
                .real = real, .sim = sim, .noise = isfinite(noise) ? real * noise / 2 : 0};
    }
    return points;
}

static struct axes find_axes(const struct point *points, int num)
{
    double top = 0, low = INFINITY;
    for (int i = 0; i < num; i++) {
        top = fmax(top, fmax(points[i].real, points[i].sim));
        low = fmin(low, fmin(points[i].real, points[i].sim));
    }
    const bool wide = top > 8 * low;
    return (struct axes){wide ? low / 1.4 : 0, wide ? top * 1.6 : top * 1.12, wide};
}

static enum status write_points(struct figure_call *call, const struct json *root, struct err *err)
{
    const struct json *configs = json_get(root, "configs");
    bool differs[NUM_TELLING];
    int num;
    struct point *points = read_points(configs, &num);
    if (!points)
        return err_nomem(err);
    if (num == 0) {
        free(points);
        return err_set(err, ERR_INPUT, "%s: no configs[] with real_step_ns and sim_step_ns",
                       call->args[0]);
    }
    const struct axes axes = find_axes(points, num);
    for (int i = 0; i < num; i++) {
        points[i].u = share_of(&axes, points[i].real);
        points[i].v = share_of(&axes, points[i].sim);
    }
    place_numbers(points, num);
    FILE *out = figure_begin(call, 1000, 640);
    find_differences(configs, differs);
    fprintf(out, "array names[%d]\n$points << EOD\n", num);
    for (int i = 0; i < num; i++)
        fprintf(out, "%.6f %.6f %.6f %d %.6f %.6f\n", points[i].real, points[i].sim,
                points[i].noise, i + 1, ms_of(&axes, points[i].label_u),
                ms_of(&axes, points[i].label_v));
    fputs("EOD\n", out);
    free(points);
    write_names(call, configs, differs);
    const double median = json_number(json_get(root, "median_abs_error"));
    const double worst = json_number(json_get(root, "worst_abs_error"));
    fprintf(out, "first = %.6f\nlast = %.6f\nwide = %d\nlabels = %d\n", axes.first, axes.last,
            axes.wide, num <= 24 ? num : 0);
    if (isfinite(median)) /* it is null if all configurations are noisy */
        figure_text(
            call, "heading",
            "predicted against measured step time: off by %.1f %% (median), %.1f %% (worst)",
            100 * median, 100 * worst);
    else
        figure_text(
            call, "heading",
            "predicted against measured step time; equal steps spread too much for an error");
    return figure_end(call, script_error, err);
}

enum status figure_error(struct figure_call *call, struct err *err)
{
    struct json *root = NULL;
    if (call->num_args != 1)
        return err_set(err, ERR_INPUT,
                       "plot error takes one FILE of 'elapse compare --json', got %d",
                       call->num_args);
    enum status rc = json_read_file(call->args[0], &root, err);
    THEN(write_points(call, root, err));
    json_free(root);
    return rc;
}
