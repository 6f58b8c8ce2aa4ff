/* cli/figures/report_freeze.h - the part of a run's report that says what the policy `safe` decided, and on
 * what evidence. */
#pragma once

#include <stdio.h>

/* Write the table of evidence.json in a run's folder. A folder without it, or with evidence that
 * nothing was decided on, writes nothing. */
void report_freeze(FILE *out, const char *run_dir);
