/* Logs by a table of the words that stand before or after the number of a step. */
#include "cli/commands/measured_log.h"

#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "profiles/base/whole_file.h"

enum log_unit { LOG_NS, LOG_STEPS, LOG_SAMPLES, LOG_TOKENS };

/* The first row that a line of the log matches is that of the log. Sources: megatron/training/
 * training.py (Megatron-DeepSpeed prints seconds); nemo/lightning/callbacks;
 * torchtitan/components/metrics.py; deepspeed/utils/timer.py, runtime/pipe/engine.py;
 * transformers/trainer_utils.py (speed_metrics); llm.c's train_gpt2.cu; nanoGPT's train.py. */
static const struct log_row {
    const char *line;   /* the line has it too; NULL: nothing */
    const char *before; /* stands before the number */
    const char *after;  /* and after it; "": anything */
    enum log_unit unit;
    double factor;
} rows[] = {
    {"iteration", "elapsed time per iteration (ms):", "",     LOG_NS,      1e6},
    {"iteration", "elapsed time per iteration (s):",  "",     LOG_NS,      1e9},
    {"iteration", "train_step_timing in s:",          "",     LOG_NS,      1e9},
    {"steps:",    "iter time (s):",                   "",     LOG_NS,      1e9},
    {NULL,        "CurrSamplesPerSec=",               "",     LOG_SAMPLES, 1  },
    {NULL,        "train_steps_per_second':",         "",     LOG_STEPS,   1  },
    {NULL,        "train_steps_per_second\":",        "",     LOG_STEPS,   1  },
    {"step:",     "tps:",                             "",     LOG_TOKENS,  1  },
    {"iter ",     ", time ",                          "ms",   LOG_NS,      1e6},
    {"step ",     "| ",                               " ms ", LOG_NS,      1e6},
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

/* The number that a row finds in a line, in its unit; 0: none. Commas stand between thousands. */
static double value_in(const struct log_row *row, const char *line)
{
    if (row->line && !strstr(line, row->line))
        return 0;
    for (const char *at = strstr(line, row->before); at; at = strstr(at + 1, row->before)) {
        char digits[48];
        size_t used = 0;
        const char *from = at + strlen(row->before), *end;
        while (*from && strchr(" '\"\033[", *from))
            from++;
        for (end = from; *end && strchr("0123456789.,eE+-", *end) && used + 1 < sizeof digits;
             end++)
            if (*end != ',')
                digits[used++] = *end;
        digits[used] = '\0';
        char *rest;
        const double value = strtod(digits, &rest);
        if (used > 0 && rest > digits && value > 0 &&
            strncmp(end, row->after, strlen(row->after)) == 0)
            return value * row->factor;
    }
    return 0;
}

enum status measured_log_read(const char *path, struct measured_log *log, struct err *err)
{
    char *text = NULL, *rest = NULL;
    enum status rc = file_read_text(path, &text, err);
    double *values = rc == OK ? malloc((strlen(text) + 1) * sizeof *values) : NULL;
    const struct log_row *row = NULL;
    size_t n = 0;
    if (rc == OK && !values)
        rc = err_nomem(err);
    for (char *line = rc == OK ? strtok_r(text, "\r\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\r\n", &rest)) {
        for (int i = 0; i < NUM_ROWS && !row; i++)
            row = value_in(&rows[i], line) > 0 ? &rows[i] : NULL;
        const double value = row ? value_in(row, line) : 0;
        if (value > 0)
            values[n++] = value;
    }
    if (rc == OK && n == 0)
        rc = err_set(
            err, ERR_INPUT,
            "%s: no line has the time of a step as Megatron-LM, NeMo, torchtitan, DeepSpeed, "
            "transformers, llm.c or nanoGPT print it",
            path);
    if (rc == OK) {
        double *const from = values + (n > 2);
        const size_t many = n - (n > 2);
        qsort(from, many, sizeof *from, compare_doubles);
        const double median = (from[(many - 1) / 2] + from[many / 2]) / 2;
        *log = (struct measured_log){.first_left_out = n > 2};
        *(row->unit == LOG_NS        ? &log->step_ns
          : row->unit == LOG_STEPS   ? &log->steps_per_s
          : row->unit == LOG_SAMPLES ? &log->samples_per_s
                                     : &log->tokens_per_s_per_device) = median;
    }
    free(values);
    free(text);
    return rc;
}
