/* cli/figures/report_losses.h - the part of a run's report that says which ranks it lost and took back, and what
 * that took. */
#ifndef ELAPSE_CLI_REPORT_LOSSES_H
#define ELAPSE_CLI_REPORT_LOSSES_H

#include <stdio.h>

/* Write a table of the restarts in metrics.jsonl of a run's folder, with their parts. A run without a
 * restart writes nothing. Lines that are not whole are passed over. */
void report_losses(FILE *out, const char *run_dir);

#endif
