/* exec/trainer/run_log.h - progress of a training run: one line on a terminal that is
 * overwritten, or a line every few seconds in a log. Rank 0 only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum run_log_mode {
    RUN_LOG_QUIET,
    RUN_LOG_TERMINAL, /* a line that is overwritten, five times a second */
    RUN_LOG_LINES     /* a line every every_ns; 0: every step */
};

struct run_log {
    enum run_log_mode mode;
    int64_t every_ns;
    /* Set by run_log_step(). */
    int64_t told_ns, told_step; /* the last line, or the first step */
    int64_t samples;            /* since told_ns */
    bool told;                  /* a line was written */
};

/* The step that has ended. */
struct run_log_step {
    int64_t now_ns, step, total_steps, epoch, samples, step_ns;
    double loss, lr;
    int pipeline_length, replicas, frozen_layers;
    int64_t bytes; /* memory that this rank holds */
};

/* Count a step, and write its line to out if one is due. The rate is that of the steps since the
 * last line. The last step always has a line, except where it would be the only one. */
void run_log_step(struct run_log *log, const struct run_log_step *step, FILE *out);
/* Write a line of its own: "elapse: TEXT". */
void run_log_say(const struct run_log *log, const char *text, FILE *out);
/* As "note: text". */
void run_log_note(const struct run_log *log, const char *text, FILE *out);
/* End the line of a terminal. */
void run_log_end(struct run_log *log, FILE *out);
