/* The lines that a run prints: when one is due, and what it holds. */
#include "exec/trainer/run_log.h"
#include "tests/unit/test.h"

#define S 1000000000LL

/* Run `steps` steps of one second and 64 samples each, and return what was written. */
static char *written(struct run_log *log, int64_t first, int64_t steps, int64_t total)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    for (int64_t s = first; s < first + steps; s++)
        run_log_step(log,
                     &(struct run_log_step){.now_ns = (100 + s) * S,
                                            .step = s,
                                            .total_steps = total,
                                            .epoch = 1,
                                            .samples = 64,
                                            .step_ns = S,
                                            .loss = 2.25,
                                            .lr = 0.002,
                                            .pipeline_length = 2,
                                            .replicas = 3,
                                            .frozen_layers = 4,
                                            .bytes = 1 << 20},
                     out);
    run_log_end(log, out);
    fclose(out);
    return text;
}

static int count(const char *text, char c)
{
    int n = 0;
    for (; *text; text++)
        n += *text == c;
    return n;
}

static void lines__say_everything_when_they_are_due(void **state)
{
    (void)state;
    struct run_log log = {.mode = RUN_LOG_LINES, .every_ns = 10 * S};
    char *text = written(&log, 1, 12, 100);
    assert_string_equal(text,
                        "step 10/100  epoch 1  loss 2.2500  lr 0.002  64 samples/s  90 s left  "
                        "K=2 R=3 F=4  1.00 MiB\n");
    free(text);
}

static void lines__end_with_the_last_step_unless_alone(void **state)
{
    (void)state;
    struct run_log log = {.mode = RUN_LOG_LINES, .every_ns = 10 * S};
    char *text = written(&log, 1, 13, 13);
    assert_int_equal(count(text, '\n'), 2); /* steps 10 and 13 */
    assert_non_null(strstr(text, "\nstep 13/13"));
    assert_non_null(strstr(text, "0 s left"));
    free(text);
    struct run_log fresh = {.mode = RUN_LOG_LINES, .every_ns = 10 * S};
    text = written(&fresh, 1, 3, 3);
    assert_string_equal(text, "");
    free(text);
    struct run_log resumed = {.mode = RUN_LOG_LINES, .every_ns = 10 * S};
    text = written(&resumed, 50, 3, 52);
    assert_string_equal(text, "");
    free(text);
}

static void lines__come_for_every_step_at_zero(void **state)
{
    (void)state;
    struct run_log log = {.mode = RUN_LOG_LINES};
    char *text = written(&log, 1, 4, 10000);
    assert_int_equal(count(text, '\n'), 4);
    assert_non_null(strstr(text, "2 h 46 min left"));
    free(text);
}

static void a_terminal__gets_one_line_that_is_overwritten(void **state)
{
    (void)state;
    struct run_log log = {.mode = RUN_LOG_TERMINAL}, quiet = {.mode = RUN_LOG_QUIET};
    char *text = written(&log, 1, 4, 10);
    assert_int_equal(count(text, '\n'), 1);
    assert_int_equal(count(text, '\r'), 4);
    free(text);
    text = written(&quiet, 1, 4, 4);
    assert_string_equal(text, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines__say_everything_when_they_are_due),
        cmocka_unit_test(lines__end_with_the_last_step_unless_alone),
        cmocka_unit_test(lines__come_for_every_step_at_zero),
        cmocka_unit_test(a_terminal__gets_one_line_that_is_overwritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
