/* cli/figures/report_subject.h - the part of a report that is about one run, record, job or plan file. */
#pragma once

#include "cli/figures/report_page.h"

/* The first lines of a report about a subject. Numbers that are not known are NaN or 0. */
struct verdict {
    int64_t steps, total_ns; /* training time without evaluation */
    double samples_per_s;
    double accuracy_before, accuracy, loss_first, loss_last;
    double static_samples_per_s;   /* predicted of the best static plan without freezing */
    double baseline_samples_per_s; /* predicted of a job's baseline */
    double step_error;             /* simulated / measured step - 1 */
    bool noisy; /* equal steps of the run spread too much for an error or a factor */
};

/* Simulate what the verdict needs and fill it. Errors of a job pass; a run without a prediction is
 * OK. */
enum status verdict_find(struct subject *subject, struct verdict *verdict, struct err *err);

/* Write the heading, verdict, figures and tables of a subject; interactive: timelines, too, after
 * report_timeline_begin(). */
enum status report_subject(FILE *out, struct subject *subject, const struct verdict *verdict,
                           bool interactive, struct err *err);
