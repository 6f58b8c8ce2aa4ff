#include "cli/plans/rates_show.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "partition/model/packing.h"

#define RATE(member, head_, scale_)                                                                \
    COLUMN(step_rates, #member, REAL, member, .flags = MEMBER_OPTIONAL, .head = (head_),           \
           .scale = (scale_))
static const struct row_table rate_table = ROW_TABLE(
    step_rates, RATE(images_per_s, "images/s", 1), RATE(documents_per_s, "documents/s", 1),
    RATE(tokens_per_s, "tokens/s", 1), RATE(tokens_per_s_per_device, "tokens/s a device", 1),
    RATE(flops_per_s_per_device, "TFLOP/s a device", 1e-12), RATE(mfu, "% MFU", 100),
    RATE(hardware_flops_per_s_per_device, "TFLOP/s with recompute", 1e-12),
    RATE(hfu, "% HFU", 100));

void rates_add(struct json *json, const struct step_rates *rates)
{
    row_to_json(json, &rate_table, rates);
}

double rates_value(const struct step_rates *rates, const char *key)
{
    if (strcmp(key, "samples_per_s") == 0)
        return rates->samples_per_s;
    for (int i = 0; i < rate_table.num_columns; i++)
        if (strcmp(rate_table.columns[i].name, key) == 0) {
            const double value = member_real(&rate_table.columns[i], rates);
            return value > 0 ? value : NAN;
        }
    return NAN;
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

double rates_allowed_speed(const struct cost_query *query)
{
    return *query->calibration || query->factors ? INFINITY : fmax(1, query->efficiency);
}

const char *rates_text(const struct step_rates *rates, const struct cost *cost, char *text,
                       size_t size)
{
    const bool ideal = cost && cost->source == COST_ROOFLINE && rates->mfu > DOUBTFUL_MFU;
    const bool again = rates->hardware_flops_per_s_per_device > rates->flops_per_s_per_device;
    *text = '\0';
    if (!(rates->images_per_s > 0)) /* a sample is an image: one of the two is enough */
        append(text, size, "", rates->samples_per_s,
               rates->documents_per_s > 0 ? "rows/s" : "samples/s");
    for (int i = 0; i < rate_table.num_columns; i++) {
        const struct member *column = &rate_table.columns[i];
        const double value = member_real(column, rates);
        const bool hardware =
            strcmp(column->name, "hfu") == 0 || strncmp(column->name, "hardware", 8) == 0;
        if (value > 0 && (again || !hardware))
            append(text, size, *text ? ", " : "", value * column->scale,
                   ideal && strcmp(column->name, "mfu") == 0 ? "% MFU (ideal costs)"
                                                             : column->head);
    }
    return text;
}

const char *rows_text(const struct model *model, char *text, size_t size)
{
    const double documents = model_row_documents(model), tokens = model_row_tokens(model);
    *text = '\0';
    if (model->packing.documents > 0)
        snprintf(text, size, "rows of %d tokens: %.3g document%s of %.4g tokens, %.1f %% padding",
                 model->seq, documents, documents == 1 ? "" : "s", tokens / documents,
                 100 * fmax(0, 1 - tokens / model->seq));
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
