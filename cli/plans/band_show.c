#include "cli/plans/band_show.h"

#include <stdio.h>

#include "partition/base/units.h"
#include "partition/cost/step_band.h"

static bool has_band(const struct cost_handle *cost)
{
    return cost->cost.source == COST_KERNELS && !*cost->calibration.name;
}

void band_of_step(const struct setting *setting, const struct cost_handle *cost, int64_t step_ns,
                  int64_t ns[2])
{
    ns[0] = ns[1] = 0;
    if (!has_band(cost))
        return;
    const struct step_band band = step_band_of(setting->model, setting->cluster);
    if (band.runs > 0)
        step_band_ns(&band, step_ns, ns);
}

void band_add_ns(const int64_t ns[2], struct json *json)
{
    struct json *list = json_add_array(json, "step_band_ns");
    json_add_int(list, NULL, ns[0]);
    json_add_int(list, NULL, ns[1]);
}

void band_add(const struct setting *setting, const struct cost_handle *cost, int64_t step_ns,
              struct json *json)
{
    if (!has_band(cost))
        return;
    const struct step_band band = step_band_of(setting->model, setting->cluster);
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

void band_print(const struct setting *setting, const struct cost_handle *cost, int64_t step_ns)
{
    char text[256], low[32], high[32];
    int64_t ns[2];
    if (!has_band(cost))
        return;
    const struct step_band band = step_band_of(setting->model, setting->cluster);
    if (band.runs == 0) {
        printf("no published run of its kind says how far off this is\n");
        return;
    }
    step_band_ns(&band, step_ns, ns);
    if (step_ns > 0)
        printf("%s to %s: ", format_ns(ns[0], low, sizeof low),
               format_ns(ns[1], high, sizeof high));
    printf("%s\n", step_band_text(&band, text, sizeof text));
}
