/* cli/figures/report_timeline.h - the timeline of `elapse page` in a report. */
#pragma once

#include "cli/figures/report_page.h"

/* Write the style and the script of timelines, once, before the first. */
void report_timeline_begin(FILE *out);

/* Write a timeline of the subject's simulated step and one of its measured step, as far as there are
 * such. Errors of subject_real_ops(), ERR_NOMEM. */
enum status report_timelines(FILE *out, struct subject *subject, struct err *err);
