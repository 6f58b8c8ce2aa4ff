#include "cli/runs/rates_show.h"

#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct step_rates, member)
const struct rate_column rate_columns[NUM_RATE_COLUMNS] = {
    {"images_per_s",                    "images/s",               AT(images_per_s),            1    },
    {"tokens_per_s",                    "tokens/s",               AT(tokens_per_s),            1    },
    {"tokens_per_s_per_device",         "tokens/s a device",      AT(tokens_per_s_per_device), 1    },
    {"flops_per_s_per_device",          "TFLOP/s a device",       AT(flops_per_s_per_device),  1e-12},
    {"mfu",                             "% MFU",                  AT(mfu),                     100  },
    {"hardware_flops_per_s_per_device", "TFLOP/s with recompute",
     AT(hardware_flops_per_s_per_device),                                                      1e-12},
    {"hfu",                             "% HFU",                  AT(hfu),                     100  },
};

double rate_column_of(const struct rate_column *column, const struct step_rates *rates)
{
    double value;
    memcpy(&value, (const char *)rates + column->offset, sizeof value);
    return value;
}

void rates_add(struct json *json, const struct step_rates *rates)
{
    for (int i = 0; i < NUM_RATE_COLUMNS; i++) {
        const double value = rate_column_of(&rate_columns[i], rates);
        if (value > 0)
            json_add_double(json, rate_columns[i].key, value);
    }
}

/* Three digits at least, without an exponent. */
static void append(char *text, size_t size, const char *before, double value, const char *unit)
{
    const size_t at = strlen(text);
    snprintf(text + at, size - at, "%s%.*f%s%s", before,
             value < 9.995   ? 2
             : value < 999.5 ? 1
                             : 0,
             value, *unit ? " " : "", unit);
}

/* The best published runs reach about 60 %. */
#define DOUBTFUL_MFU 0.75

const char *rates_text(const struct step_rates *rates, const struct cost *cost, char *text,
                       size_t size)
{
    const bool ideal = cost && cost->source == COST_ROOFLINE && rates->mfu > DOUBTFUL_MFU;
    const bool again = rates->hardware_flops_per_s_per_device > rates->flops_per_s_per_device;
    *text = '\0';
    if (!(rates->images_per_s > 0)) /* a sample is an image: one of the two is enough */
        append(text, size, "", rates->samples_per_s, "samples/s");
    for (int i = 0; i < NUM_RATE_COLUMNS; i++) {
        const struct rate_column *column = &rate_columns[i];
        const double value = rate_column_of(column, rates);
        const bool hardware =
            column->offset == AT(hardware_flops_per_s_per_device) || column->offset == AT(hfu);
        if (value > 0 && (again || !hardware))
            append(text, size, *text ? ", " : "", value * column->scale,
                   ideal && column->offset == AT(mfu) ? "% MFU (ideal costs)" : column->unit);
    }
    return text;
}

void run_cost_add_price(struct json *json, const struct run_cost *run)
{
    if (run->cost > 0)
        json_add_double(json, "cost", run->cost);
    if (run->energy_kwh > 0)
        json_add_double(json, "energy_kwh", run->energy_kwh);
}

void run_cost_add(struct json *json, const struct run_cost *run)
{
    json_add_int(json, "run_ns", run->run_ns);
    json_add_double(json, "run_device_hours", run->device_hours);
    run_cost_add_price(json, run);
}

const char *run_cost_text(const struct run_cost *run, char *text, size_t size)
{
    *text = '\0';
    if (run->cost > 0)
        append(text, size, ", cost ", run->cost, "");
    if (run->energy_kwh > 0)
        append(text, size, ", ", run->energy_kwh, "kWh");
    return text;
}
