/* cli/plans/rates_show.h - rates of a step and the cost of a run, as text and JSON. One table names
 * each value for commands and reports; sweep_lines.c repeats its keys in this order. */
#pragma once

#include "partition/plan/rates.h"
#include "profiles/cost/profile_cost.h"
#include "profiles/json/columns.h"

/* Add each known value but samples_per_s under its key. */
void rates_add(struct json *json, const struct step_rates *rates);
/* The value under a JSON key, samples_per_s too; NaN: it is not known, or there is no such rate. */
double rates_value(const struct step_rates *rates, const char *key);
/* How many times as fast as the published devices a job may be: as its efficiency says, or any number with
 * a calibration. For plausible_step(). */
double rates_allowed_speed(const struct cost_query *query);
/* Write "1480 samples/s, 3.03e6 tokens/s, 41.6 % MFU" into text, with every known value; hardware
 * flops and HFU only where recompute makes them differ. An MFU above 75 %, which nothing real
 * reaches, of the ideal roofline is marked "(ideal costs)"; cost may be NULL: of something
 * measured. Returns text. */
const char *rates_text(const struct step_rates *rates, const struct cost *cost, char *text,
                       size_t size);

/* "rows of 4096 tokens: 19.9 documents of 206 tokens, 0.3 % padding"; "" where samples are no rows of
 * documents. Returns text. */
const char *rows_text(const struct model *model, char *text, size_t size);

/* The hours of a whole run, and its cost and energy where the cluster has a price and a power: run_ns
 * run_device_hours cost energy_kwh. */
void run_cost_add(struct json *json, const struct run_cost *run);
/* Add cost and energy_kwh alone, as far as they are known. */
void run_cost_add_price(struct json *json, const struct run_cost *run);
/* ", cost 5390, 1890 kWh" as far as they are known. Returns text. */
const char *run_cost_text(const struct run_cost *run, char *text, size_t size);
