/* Rows of members: what is parsed, refused, printed and compared. */
#include "partition/base/member.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/test.h"

enum colour { RED, GREEN, BLUE };
static const char *const colours[] = {"red", "green", "blue", NULL};

struct sample {
    int count, small;
    uint8_t byte;
    int64_t large, wait_ns, wait, room;
    double share, rate, speed, load;
    bool on, on_auto, colour_auto;
    unsigned only;
    enum colour colour, plain;
    char word[8];
    char *text, *path;
};

static const struct member rows[] = {
    MEMBER(sample, "count", COUNT, count, "", .min = 1, .max = 64, .init = "1; more on GPUs",
           .also = "num|n_of|many=7, or more"),
    MEMBER(sample, "small", INT, small, "", .min = -2, .max = 9, .init = "-1: none"),
    MEMBER(sample, "byte", INT, byte, ""),
    MEMBER(sample, "large", INT, large, "", .init = "7"),
    MEMBER(sample, "wait_ns", NS, wait_ns, ""),
    MEMBER(sample, "wait", NS, wait, "", .init = "20us"),
    MEMBER(sample, "room", BYTES, room, "", .init = "25MiB"),
    MEMBER(sample, "share", REAL, share, "", .max = 1, .flags = MEMBER_BELOW, .init = "1/3"),
    MEMBER(sample, "rate", RATE, rate, "", .init = "5GBps"),
    MEMBER(sample, "speed", REAL, speed, "", .flags = MEMBER_ABOVE, .init = "1e-6"),
    MEMBER(sample, "load", REAL, load, "", .min = 1, .max = 16, .flags = MEMBER_UNSET),
    MEMBER(sample, "on", BOOL, on, "", .auto_offset = offsetof(struct sample, on_auto),
           .init = "true"),
    MEMBER(sample, "colour", NAME, colour, "", .names = colours, .min = GREEN, .init = "auto",
           .auto_offset = offsetof(struct sample, colour_auto),
           .list_offset = offsetof(struct sample, only)),
    MEMBER(sample, "plain", NAME, plain, "", .names = colours, .max = GREEN, .init = "green"),
    MEMBER(sample, "word", TEXT, word, "", .init = "all, or some"),
    MEMBER(sample, "text", STRING, text, "", .init = "none"),
    MEMBER(sample, "path", PATH, path, ""),
    MEMBER_OWN("own", ""),
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

static const struct member *row(const char *name)
{
    int i = 0;
    while (i < NUM_ROWS && strcmp(rows[i].name, name) != 0)
        i++;
    assert_true(i < NUM_ROWS);
    return &rows[i];
}

static void sample_clear(struct sample *sample)
{
    free(sample->text);
    free(sample->path);
}

static struct sample defaults(void)
{
    struct sample sample = {0};
    for (int i = 0; i < NUM_ROWS; i++)
        assert_int_equal(member_default(&rows[i], &sample, NULL), OK);
    return sample;
}

static void member_default__reads_the_first_word(void **state)
{
    (void)state;
    struct sample sample = defaults();
    assert_int_equal(sample.count, 1);
    assert_int_equal(sample.small, -1);
    assert_int_equal(sample.byte, 0);
    assert_int_equal(sample.large, 7);
    assert_int_equal(sample.wait, 20000);
    assert_int_equal(sample.room, 25 << 20);
    assert_true(sample.share == 1.0 / 3 && sample.rate == 5e9 && sample.speed == 1e-6);
    assert_true(sample.on && !sample.on_auto && sample.colour_auto);
    assert_int_equal(sample.plain, GREEN);
    assert_string_equal(sample.word, "all");
    assert_string_equal(sample.text, "none");
    assert_null(sample.path);
    sample_clear(&sample);
}

/* One text of each row on either side of a limit. */
static const struct {
    const char *name, *good, *bad, *takes, *message;
} limits[] = {
    {"count",  "64",      "65",       "auto|1..64",            "must be \"auto\" or 1..64, got '65'"     },
    {"count",  "auto",    "0",        "auto|1..64",            "must be \"auto\" or 1..64, got '0'"      },
    {"small",  "-2",      "-3",       "-2..9",                 "must be -2..9, got '-3'"                 },
    {"small",  "9",       "x",        "-2..9",                 "must be -2..9, got 'x'"                  },
    {"byte",   "255",     "256",      "0..255",                "must be 0..255, got '256'"               },
    {"large",  "0",       "-1",       "0..",                   "must be at least 0, got '-1'"            },
    {"share",  "0.99",    "1",        "number in [0, 1)",      "must be in [0, 1), got '1'"              },
    {"share",  "0",       "-0.1",     "number in [0, 1)",      "must not be negative, got '-0.1'"        },
    {"speed",  "1e-9",    "0",        "number above 0",        "must be above 0, got '0'"                },
    {"load",   "0",       "0.5",      "number 0 or 1..16",     "must be 0 or 1..16, got '0.5'"           },
    {"load",   "16",      "x",        "number 0 or 1..16",     "got 'x'"                                 },
    {"on",     "auto",    "yes",      "true|false|auto",       "must be true, false or auto, got 'yes'"  },
    {"colour", "blue",    "red",      "green|blue|auto|[...]", "must be green|blue|auto|[...], got 'red'"},
    {"plain",  "red",     "blue",     "red|green",             "must be red|green, got 'blue'"           },
    {"word",   "1234567", "12345678", "text",
     "must be a text of at most 7 characters, no control characters, got '12345678'"                     },
    {"word",   "a",       "a\tb",     "text",                  "no control characters"                   },
    {"text",   "x",       "",         "text",                  "must be a text that is not empty"        },
    {"wait",   "0",       "5",        "time",                  "wait needs a unit"                       },
    {"room",   "7",       "-1",       "size",                  "room must not be negative"               },
    {"rate",   "1GBps",   "0Bps",     "bandwidth",             "rate must be"                            },
};

static void member_parse__agrees_with_what_help_and_errors_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct member *member = row(limits[i].name);
        struct sample sample = {0};
        struct err err = {0};
        char takes[96];
        assert_string_equal(member_takes(member, takes, sizeof takes), limits[i].takes);
        if (member_parse(member, member->name, limits[i].good, &sample, &err) != OK)
            fail_msg("%s", err.msg);
        assert_int_equal(member_check(member, &sample, "file", NULL), OK);
        if (member_parse(member, member->name, limits[i].bad, &sample, &err) != ERR_INPUT ||
            !strstr(err.msg, limits[i].message))
            fail_msg("%s=%s: '%s'", limits[i].name, limits[i].bad, err.msg);
        sample_clear(&sample);
    }
}

static void member_check__names_value_and_limit(void **state)
{
    (void)state;
    struct sample sample = defaults();
    struct err err = {0};
    sample.share = 1.5;
    assert_int_equal(member_check(row("share"), &sample, "a.json", &err), ERR_INPUT);
    assert_string_equal(err.msg, "a.json: share must be in [0, 1), got 1.5");
    err = (struct err){0};
    sample.count = -1;
    assert_int_equal(member_check(row("count"), &sample, "a.json", &err), ERR_INPUT);
    assert_string_equal(err.msg, "a.json: count must be \"auto\" or 1..64, got -1");
    err = (struct err){0};
    sample.wait = -1;
    assert_int_equal(member_check(row("wait"), &sample, "a.json", &err), ERR_INPUT);
    sample.plain = BLUE;
    assert_int_equal(member_check(row("plain"), &sample, "a.json", NULL), ERR_INPUT);
    sample.plain = 3;
    assert_int_equal(member_check(row("plain"), &sample, "a.json", NULL), ERR_INPUT);
    sample.share = NAN;
    assert_int_equal(member_check(row("share"), &sample, "a.json", NULL), ERR_INPUT);
    sample.load = 0;
    assert_int_equal(member_check(row("load"), &sample, "a.json", NULL), OK);
    sample_clear(&sample);
}

static void member_text__is_read_back(void **state)
{
    (void)state;
    struct sample sample = defaults(), again = {0};
    sample.share = 0.1 + 0.2;
    sample.wait_ns = 1500;
    for (int i = 0; i < NUM_ROWS - 1; i++) {
        char text[64];
        member_text(&rows[i], &sample, text, sizeof text);
        if (!*text)
            continue;
        assert_int_equal(member_parse(&rows[i], rows[i].name, text, &again, NULL), OK);
        if (!member_equal(&rows[i], &sample, &again))
            fail_msg("%s: %s", rows[i].name, text);
    }
    sample_clear(&sample);
    sample_clear(&again);
}

static void member_equal__sees_each_member(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_ROWS - 1; i++) {
        static const char *const others[] = {"2",    "5",     "9ns", "9B",  "1/7",
                                             "9Bps", "false", "red", "blue"};
        struct sample a = defaults(), b = defaults();
        assert_true(member_equal(&rows[i], &a, &b));
        enum status rc = ERR_INPUT;
        for (size_t k = 0; k < sizeof others / sizeof *others && rc != OK; k++)
            rc = member_parse(&rows[i], rows[i].name, others[k], &b, NULL);
        assert_int_equal(rc, OK);
        if (member_equal(&rows[i], &a, &b))
            fail_msg("%s", rows[i].name);
        sample_clear(&a);
        sample_clear(&b);
    }
    struct sample a = defaults(), b = defaults();
    a.colour = BLUE; /* not chosen while "auto" is */
    assert_true(member_equal(row("colour"), &a, &b));
    a.only = 1;
    assert_false(member_equal(row("colour"), &a, &b));
    sample_clear(&a);
    sample_clear(&b);
}

static void member_called__names_ours_for_a_word_of_others(void **state)
{
    static const struct member_table table = {rows, NUM_ROWS};
    char hint[64];
    (void)state;
    assert_ptr_equal(member_called(&table, "num", hint, sizeof hint), row("count"));
    assert_string_equal(hint, "count");
    assert_ptr_equal(member_called(&table, "N-of", hint, sizeof hint), row("count"));
    assert_ptr_equal(member_called(&table, "many", hint, sizeof hint), row("count"));
    assert_string_equal(hint, "count=7, or more");
    assert_null(member_called(&table, "nu", hint, sizeof hint));
    assert_null(member_called(&table, "number", hint, sizeof hint));
    assert_null(member_called(&table, "", hint, sizeof hint));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(member_default__reads_the_first_word),
        cmocka_unit_test(member_parse__agrees_with_what_help_and_errors_say),
        cmocka_unit_test(member_check__names_value_and_limit),
        cmocka_unit_test(member_text__is_read_back),
        cmocka_unit_test(member_equal__sees_each_member),
        cmocka_unit_test(member_called__names_ours_for_a_word_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
