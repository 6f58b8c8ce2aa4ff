/* `plot error`: simulated against measured step time, from a file of `elapse compare --json`. */
#include <math.h>
#include <string.h>

#include "cli/figure_draw.h"
#include "profiles/json.h"

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

/* Which keys differ between the configurations. K and M always name a point. */
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

static void write_label(FILE *out, const struct json *config, const bool *differs)
{
    char text[64];
    fputs("\"", out);
    bool any = false;
    for (int t = 0; t < NUM_TELLING; t++) {
        value_text(config, telling[t].key, text, sizeof text);
        if (!differs[t] || !*text)
            continue;
        fprintf(out, "%s%s", any ? " " : "", telling[t].name);
        for (const char *c = text; *c; c++)
            if (*c != '"' && *c != '\\' && (unsigned char)*c >= ' ')
                fputc(*c, out);
        any = true;
    }
    fputs("\"\n", out);
}

/* Name the points for the key, where each has its number. */
static void write_names(FILE *out, const struct json *configs, const bool *differs)
{
    int num = 0;
    for (const struct json *c = json_first(configs); c; c = json_next(c)) {
        if (!(json_number(json_get(c, "real_step_ns")) > 0) ||
            !(json_number(json_get(c, "sim_step_ns")) > 0))
            continue;
        fprintf(out, "names[%d] = ", ++num);
        write_label(out, c, differs);
    }
}

static enum status write_points(struct figure_call *call, const struct json *root, struct err *err)
{
    const struct json *configs = json_get(root, "configs");
    bool differs[NUM_TELLING];
    double top = 0, low = INFINITY;
    int num = 0;
    FILE *out = figure_begin(call, 1000, 640);
    if (configs && json_type(configs) == JSON_ARRAY && json_count(configs) > 0)
        find_differences(configs, differs);
    fprintf(out, "array names[%d]\n", json_count(configs) + 1);
    for (const struct json *c = json_first(configs); c; c = json_next(c)) {
        const double real = json_number(json_get(c, "real_step_ns")) / NS_PER_MS;
        const double sim = json_number(json_get(c, "sim_step_ns")) / NS_PER_MS;
        const double spread = json_number(json_get(c, "noise"));
        if (!(real > 0) || !(sim > 0))
            continue;
        if (num == 0)
            fputs("$points << EOD\n", out);
        fprintf(out, "%.6f %.6f %.6f %d\n", real, sim, isfinite(spread) ? real * spread / 2 : 0,
                num + 1);
        top = fmax(top, fmax(real, sim));
        low = fmin(low, fmin(real, sim));
        num++;
    }
    if (num == 0)
        return err_set(err, ERR_INPUT, "%s: no configs[] with real_step_ns and sim_step_ns",
                       call->args[0]);
    fputs("EOD\n", out);
    write_names(out, configs, differs);
    const double median = json_number(json_get(root, "median_abs_error"));
    const double worst = json_number(json_get(root, "worst_abs_error"));
    fprintf(out, "top_ms = %.6f\nlow_ms = %.6f\nwide = %d\nlabels = %d\n", top, low, top > 8 * low,
            num <= 24 ? num : 0);
    if (isfinite(median)) /* it is null if all configurations are noisy */
        figure_text(
            call, "heading",
            "predicted against measured step time: off by %.1f %% (median), %.1f %% (worst)",
            100 * median, 100 * worst);
    else
        figure_text(
            call, "heading",
            "predicted against measured step time; equal steps spread too much for an error");
    return figure_end(call, "error", err);
}

enum status figure_error(struct figure_call *call, struct err *err)
{
    struct json *root = NULL;
    if (call->num_args != 1)
        return err_set(err, ERR_INPUT,
                       "plot error takes one FILE of 'elapse compare --json', got %d",
                       call->num_args);
    enum status rc = json_read_file(call->args[0], &root, err);
    if (rc == OK)
        rc = write_points(call, root, err);
    json_free(root);
    return rc;
}
