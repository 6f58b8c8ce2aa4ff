/* cli/plans/band_show.h - the band of published runs beside a step's time, in text and JSON. */
#pragma once

#include "partition/plan/plan.h"
#include "profiles/cost/profile_cost.h"
#include "profiles/json/json.h"

/* Write "published_runs" and "step_band_ns", or print a line. Nothing where times are not those of
 * kernels, or a calibration has an interval of its own. step_ns 0: of no step, so the band is a share. */
void band_add(const struct setting *setting, const struct cost_handle *cost, int64_t step_ns,
              struct json *json);
/* The times of "step_band_ns", zeros where there are none; and that member alone. */
void band_of_step(const struct setting *setting, const struct cost_handle *cost, int64_t step_ns,
                  int64_t ns[2]);
void band_add_ns(const int64_t ns[2], struct json *json);
void band_print(const struct setting *setting, const struct cost_handle *cost, int64_t step_ns);
/* That line; "": nothing. */
enum { BAND_TEXT = 352 };
const char *band_text(const struct setting *setting, const struct cost_handle *cost,
                      int64_t step_ns, char *text, size_t size);
