#include "profiles/base/ticker.h"

#include <math.h>

#include "profiles/base/clock.h"

/* A terminal has a first line after 2 s and then five a second. */
static const int64_t first_ns = 2000000000, terminal_ns = 200000000, lines_ns = 10000000000;

void ticker_begin(struct ticker *progress, enum ticker_mode mode)
{
    *progress = (struct ticker){.mode = mode, .begin_ns = clock_now_ns()};
    progress->told_ns = progress->begin_ns;
}

bool ticker_due(const struct ticker *p)
{
    const int64_t now = p->mode == TICKER_QUIET ? 0 : clock_now_ns();
    if (p->mode == TICKER_TERMINAL)
        return now - p->begin_ns >= first_ns && now - p->told_ns >= terminal_ns;
    return p->mode == TICKER_LINES && now - p->told_ns >= lines_ns;
}

void ticker_say(struct ticker *p, FILE *out, const char *text)
{
    const bool terminal = p->mode == TICKER_TERMINAL;
    fprintf(out, "%s%s%s", terminal ? "\r" : "", text, terminal ? "\033[K" : "\n");
    fflush(out);
    p->told_ns = clock_now_ns();
    p->shown = terminal;
}

void ticker_clear(struct ticker *p, FILE *out)
{
    if (p->shown)
        fputs("\r\033[K", out);
    p->shown = false;
}

double ticker_left(const struct ticker *p, double share)
{
    return share > 0 ? (double)(clock_now_ns() - p->begin_ns) / 1e9 * (1 - share) / share : NAN;
}

const char *format_left(double seconds, char *text, size_t size)
{
    if (!(seconds < 1e9))
        snprintf(text, size, "?");
    else if (seconds < 99.5)
        snprintf(text, size, "%.0f s", seconds);
    else if (seconds < 5400)
        snprintf(text, size, "%.0f min", seconds / 60);
    else
        snprintf(text, size, "%d h %d min", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    return text;
}
