#include "exec/measure/measure_state.h"

#include <signal.h>
#include <stdio.h>

#include "exec/base/rng.h"

static volatile sig_atomic_t stop_wanted;

void measure_stop(void)
{
    stop_wanted = 1;
}

bool measure_stopped(void)
{
    return stop_wanted != 0;
}

struct spread measure_spread(const struct measure *m, double *times_ns, int repeats)
{
    struct spread ns = spread_of(times_ns, repeats); /* sorts them */
    if (m->options->quick_ns > 0)
        ns.median_ns = ns.p10_ns = times_ns[0];
    return ns;
}

void measure_clock_start(struct measure *m)
{
    if (m->backend->hold)
        m->backend->hold(m->backend);
    m->backend->event_record(m->backend, m->from);
}

double measure_clock_ns(struct measure *m)
{
    m->backend->event_record(m->backend, m->to);
    if (m->backend->release)
        m->backend->release(m->backend);
    return (double)m->backend->event_ns(m->backend, m->from, m->to);
}

void measure_clock_mark(struct measure *m)
{
    m->backend->event_record(m->backend, m->middle);
}

double measure_clock_since_mark_ns(struct measure *m)
{
    return (double)m->backend->event_ns(m->backend, m->middle, m->to);
}

void measure_fill_normal(float *values, int64_t n, uint64_t key)
{
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)rng_normal(key, (uint64_t)i);
}

void measure_report(struct measure *m, double share)
{
    char text[128], left[32];
    if (!ticker_due(&m->progress))
        return;
    const double all = (m->phases_done + share) / m->num_phases;
    snprintf(text, sizeof text, "profile: %s (%d of %d), %s left", m->phase, m->phases_done + 1,
             m->num_phases, format_left(ticker_left(&m->progress, all), left, sizeof left));
    ticker_say(&m->progress, stderr, text);
}
