/* cli/figures/report_losses.h - the part of a run's report that says which ranks it lost and took
 * back, and what losses and checkpoints took. */
#pragma once

#include <stdio.h>

#include "cli/simulate/subject.h"

/* Write the waits for checkpoints by summary.json, and for a run that was started again a figure and
 * a table of the restarts in metrics.jsonl with their parts. s is a run. What pages and figures
 * return. */
enum status report_losses(FILE *out, struct subject *s, struct err *err);
