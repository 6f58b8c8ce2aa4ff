/* profiles/base/ticker.h - one line about work that takes a while: on a terminal it is overwritten, in a
 * log there is a new one every 10 s. Short work says nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum ticker_mode { TICKER_QUIET, TICKER_TERMINAL, TICKER_LINES };

struct ticker {
    enum ticker_mode mode;
    int64_t begin_ns, told_ns; /* by clock_now_ns(); told_ns: of the last line, or the begin */
    bool shown;                /* a terminal shows a line now */
};

void ticker_begin(struct ticker *ticker, enum ticker_mode mode);
/* Whether a line is due: cheap, may be asked often. */
bool ticker_due(const struct ticker *ticker);
void ticker_say(struct ticker *ticker, FILE *out, const char *text);
/* Remove the line from a terminal, before other output and at the end. */
void ticker_clear(struct ticker *ticker, FILE *out);

/* Seconds that are left if the share that is done (0 to 1) took the time since the begin. NaN if
 * nothing is done yet. */
double ticker_left(const struct ticker *ticker, double share);
/* Remaining time as people say it: "45 s", "12 min", "3 h 20 min"; "?" if it is not known. Returns
 * text. */
const char *format_left(double seconds, char *text, size_t size);
