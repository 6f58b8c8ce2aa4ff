#include "cli/plans/band_show.h"

#include <stdio.h>

#include "partition/base/units.h"
#include "partition/cost/step_band.h"

void band_of_step(const struct setting *setting, const struct cost_handle *cost, int64_t step_ns,
                  int64_t ns[2])
{
    struct step_band band;
    ns[0] = ns[1] = 0;
    if (cost_band(cost, setting, &band) && band.runs > 0)
        step_band_ns(&band, step_ns, ns);
}

void band_add_ns(const int64_t ns[2], struct json *json)
{
    json_add_int64s(json, "step_band_ns", ns, 2);
}

void band_add(const struct setting *setting, const struct cost_handle *cost, int64_t step_ns,
              struct json *json)
{
    struct step_band band;
    if (!cost_band(cost, setting, &band))
        return;
    struct json *runs = json_add_object(json, "published_runs");
    json_add_string(runs, "models", band_class_names[band.models]);
    json_add_int(runs, "runs", band.runs);
    if (band.runs == 0)
        return;
    if (band.framework)
        json_add_string(runs, "framework", band.framework);
    if (band.kind)
        json_add_string(runs, "kind", band.kind);
    json_add_double(runs, "low", band.low);
    json_add_double(runs, "high", band.high);
    if (step_ns == 0)
        return;
    int64_t ns[2];
    step_band_ns(&band, step_ns, ns);
    band_add_ns(ns, json);
}

const char *band_text(const struct setting *setting, const struct cost_handle *cost,
                      int64_t step_ns, char *text, size_t size)
{
    char says[256], low[32], high[32];
    int64_t ns[2];
    struct step_band band;
    if (!cost_band(cost, setting, &band))
        return "";
    if (band.runs == 0)
        return "no published run of its kind says how far off this is";
    step_band_ns(&band, step_ns, ns);
    step_band_text(&band, says, sizeof says);
    if (step_ns == 0)
        snprintf(text, size, "%s", says);
    else
        snprintf(text, size, "%s to %s: %s", format_ns(ns[0], low, sizeof low),
                 format_ns(ns[1], high, sizeof high), says);
    return text;
}

void band_print(const struct setting *setting, const struct cost_handle *cost, int64_t step_ns)
{
    char text[BAND_TEXT];
    const char *line = band_text(setting, cost, step_ns, text, sizeof text);
    if (*line)
        printf("%s\n", line);
}
