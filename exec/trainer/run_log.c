#include "exec/trainer/run_log.h"

#include "partition/base/units.h"
#include "profiles/base/ticker.h"

enum { TERMINAL_NS = 200000000 };

void run_log_step(struct run_log *log, const struct run_log_step *s, FILE *out)
{
    char left[32], memory[32];
    const bool first = log->told_ns == 0, last = s->step >= s->total_steps;
    const int64_t every = log->mode == RUN_LOG_TERMINAL ? TERMINAL_NS : log->every_ns;
    if (log->mode == RUN_LOG_QUIET)
        return;
    if (first) {
        log->told_ns = s->now_ns - s->step_ns;
        log->told_step = s->step - 1;
    }
    log->samples += s->samples;
    const bool due = s->now_ns - log->told_ns >= every;
    const bool ends = last && (log->mode == RUN_LOG_TERMINAL || log->told);
    if (!due && !ends && !(first && log->mode == RUN_LOG_TERMINAL))
        return;
    const double seconds = (double)(s->now_ns - log->told_ns) / 1e9;
    const double per_step = seconds / (double)(s->step - log->told_step);
    format_left(per_step * (double)(s->total_steps - s->step), left, sizeof left);
    fprintf(out,
            "%sstep %lld/%lld  epoch %lld  loss %.4f  lr %.3g  %.0f samples/s  %s left  "
            "K=%d R=%d F=%d  %s%s",
            log->mode == RUN_LOG_TERMINAL ? "\r" : "", (long long)s->step,
            (long long)s->total_steps, (long long)s->epoch, s->loss, s->lr,
            seconds > 0 ? (double)log->samples / seconds : 0, left, s->pipeline_length, s->replicas,
            s->frozen_layers, format_bytes(s->bytes, memory, sizeof memory),
            log->mode == RUN_LOG_TERMINAL ? "\033[K" : "\n");
    fflush(out);
    log->told = true;
    log->told_ns = s->now_ns;
    log->told_step = s->step;
    log->samples = 0;
}

static void put_line(const struct run_log *log, const char *who, const char *text, FILE *out)
{
    if (log->mode != RUN_LOG_QUIET)
        fprintf(out, "%s%s: %s\n", log->mode == RUN_LOG_TERMINAL ? "\r\033[K" : "", who, text);
}

void run_log_say(const struct run_log *log, const char *text, FILE *out)
{
    put_line(log, "elapse", text, out);
}

void run_log_note(const struct run_log *log, const char *text, FILE *out)
{
    put_line(log, "note", text, out);
}

void run_log_end(struct run_log *log, FILE *out)
{
    if (log->mode == RUN_LOG_TERMINAL && log->told)
        fputc('\n', out);
}
