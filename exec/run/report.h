/* exec/run/report.h - a run's summary as text for people. */
#pragma once

#include <stdio.h>

#include "profiles/json/json.h"

/* The answer of `elapse train`, of a summary as trainer_run() gives it. */
void report_train(const struct json *summary, FILE *out);
/* Scores that some tasks have apart from accuracy. */
void report_scores(const struct json *summary, FILE *out);
/* Notes on the run for the user, a line each. timing: a run without evaluation, of which
 * only notes on its result are told. */
void report_notes(const struct json *summary, bool timing, FILE *out);
/* The answer of `elapse checkpoint verify DIR`: a line for each damaged file, or one that all is
 * well. */
void report_verdicts(const struct json *answer, const char *dir, FILE *out);

/* Before a run: the notes of checkpoint_choose() and of the model, and the lines of resume_job()
 * (NULL: none). */
void report_start(const char *note, const char *model_note, const char *differences, FILE *out);
/* After a run that a signal stopped: how far it came, and how to resume. */
void report_stop(const struct json *summary, int num_ranks, FILE *out);
