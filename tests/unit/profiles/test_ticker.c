/* tests/unit/profiles/test_ticker.c - when a line about long work is due, and what it says about the rest. */
#include "profiles/base/ticker.h"
#include "tests/unit/test.h"

/* As if the work had begun, and the last line had come, so long ago. */
static struct ticker after(enum ticker_mode mode, double begun_s, double told_s)
{
    struct ticker p;
    ticker_begin(&p, mode);
    p.begin_ns -= (int64_t)(begun_s * 1e9);
    p.told_ns -= (int64_t)(told_s * 1e9);
    return p;
}

static bool due(enum ticker_mode mode, double begun_s, double told_s)
{
    const struct ticker p = after(mode, begun_s, told_s);
    return ticker_due(&p);
}

static void progress_due__leaves_short_work_alone(void **state)
{
    (void)state;
    assert_false(due(TICKER_TERMINAL, 1, 1));
    assert_true(due(TICKER_TERMINAL, 2.5, 2.5));
    assert_false(due(TICKER_TERMINAL, 60, 0));
    assert_false(due(TICKER_LINES, 9, 9));
    assert_true(due(TICKER_LINES, 10.5, 10.5));
    assert_false(due(TICKER_LINES, 60, 5));
    assert_false(due(TICKER_QUIET, 3600, 3600));
}

static char *said(enum ticker_mode mode)
{
    char *text = NULL;
    size_t size = 0;
    struct ticker p = after(mode, 30, 30);
    FILE *out = open_memstream(&text, &size);
    ticker_say(&p, out, "half");
    assert_false(ticker_due(&p));
    ticker_clear(&p, out);
    ticker_clear(&p, out); /* once is enough */
    fclose(out);
    return text;
}

static void progress_say__overwrites_on_a_terminal_only(void **state)
{
    (void)state;
    char *terminal = said(TICKER_TERMINAL), *lines = said(TICKER_LINES);
    assert_string_equal(terminal, "\rhalf\033[K\r\033[K");
    assert_string_equal(lines, "half\n");
    free(terminal);
    free(lines);
}

static void progress_left__goes_on_at_the_rate_so_far(void **state)
{
    (void)state;
    char text[32];
    const struct ticker p = after(TICKER_LINES, 30, 0);
    assert_true(fabs(ticker_left(&p, 0.25) - 90) < 1);
    assert_true(isnan(ticker_left(&p, 0)));
    assert_string_equal(format_left(ticker_left(&p, 0), text, sizeof text), "?");
    assert_string_equal(format_left(45.2, text, sizeof text), "45 s");
    assert_string_equal(format_left(750, text, sizeof text), "12 min");
    assert_string_equal(format_left(3 * 3600 + 1234, text, sizeof text), "3 h 20 min");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_due__leaves_short_work_alone),
        cmocka_unit_test(progress_say__overwrites_on_a_terminal_only),
        cmocka_unit_test(progress_left__goes_on_at_the_rate_so_far),
    };
    return cmocka_run_group_tests_name("ticker", tests, NULL, NULL);
}
