/* Values with units: exact integers, whole strings only, every refusal names the option. */
#include "partition/base/units.h"
#include "tests/unit/test.h"

static void parse_ns__reads_every_unit_exactly(void **state)
{
    static const struct {
        const char *text;
        int64_t ns;
    } cases[] = {
        {"0",                                          0               },
        {"0us",                                        0               },
        {"7ns",                                        7               },
        {"20us",                                       20000           },
        {"1.5ms",                                      1500000         },
        {"2s",                                         2000000000      },
        {".5us",                                       500             },
        {"1e3us",                                      1000000         },
        {"1.0000005s",                                 1000000500      },
        {"0.4ns",                                      0               },
        {"0.5ns",                                      1               },
        {"1.49999999ns",                               1               },
        {"9007199254740993ns",                         9007199254740993},
        {"1152921504606846976ns",                      NS_MAX          },
        {"00012ns",                                    12              },
        {"0.000000000000000000000000000000000000001s", 0               }
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t ns = -1;
        assert_int_equal(parse_ns(cases[i].text, "--x", &ns, NULL), OK);
        assert_int_equal(ns, cases[i].ns);
    }
}

static void parse_ns__refuses_everything_else(void **state)
{
    static const char *const bad[] = {"",
                                      "5",
                                      "ms",
                                      "-1ms",
                                      "1 ms",
                                      "1msx",
                                      "1MS",
                                      "nan",
                                      "nanms",
                                      "infms",
                                      "1.2.3ms",
                                      "1e99s",
                                      "1e-99s",
                                      "1152921504606846977ns",
                                      "9223372036854775808ns",
                                      "300y",
                                      "10000000000s",
                                      "0x10ns",
                                      "1e",
                                      "+1ms",
                                      "1,5ms",
                                      "99999999999999999999999999999999ns"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t ns = 77;
        struct err err = {0};
        assert_int_equal(parse_ns(bad[i], "--latency", &ns, &err), ERR_INPUT);
        assert_int_equal(ns, 77);
        assert_non_null(strstr(err.msg, "--latency"));
    }
}

static void parse_bytes__knows_powers_of_1000_and_1024(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        {"0B",         0                     },
        {"0",          0                     },
        {"17",         17                    },
        {"64KB",       64000                 },
        {"64KiB",      65536                 },
        {"1.5MiB",     1572864               },
        {"16GB",       16000000000           },
        {"16GiB",      17179869184           },
        {"2TB",        2000000000000         },
        {"1TiB",       1099511627776         },
        {"8388607TiB", INT64_C(8388607) << 40}
    };
    static const char *const bad[] = {"8388608TiB", "-1B",    "1.GBps", "1kb",
                                      "1Gi",        "16 GiB", "B",      ""};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t bytes = -1;
        assert_int_equal(parse_bytes(cases[i].text, "--mem", &bytes, NULL), OK);
        assert_int_equal(bytes, cases[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t bytes = 77;
        assert_int_equal(parse_bytes(bad[i], "--mem", &bytes, NULL), ERR_INPUT);
        assert_int_equal(bytes, 77);
    }
}

static void parse_rate__wants_a_positive_rate_with_its_unit(void **state)
{
    static const struct {
        const char *text;
        double rate;
    } cases[] = {
        {"1Bps",        1         },
        {"16GBps",      16e9      },
        {"15.754GBps",  15.754e9  },
        {"1GiBps",      1073741824},
        {"1000000TBps", 1e18      },
        {"0.5KBps",     500       },
        {"12.5GB/s",    12.5e9    },
        {"1GiB/s",      1073741824},
        {"100Gbps",     12.5e9    },
        {"100Gb/s",     12.5e9    },
        {"200Gbit/s",   25e9      },
        {"200Gbitps",   25e9      },
        {"0.4Tb/s",     50e9      },
        {"100Mb/s",     12.5e6    },
        {"8kb/s",       1000      },
        {"64bit/s",     8         }
    };
    static const char *const bad[] = {
        "0GBps", "5",   "5GB",    "5GBs",  "-5GBps", "2000000TBps", "Bps",     "0.5Bps", "1e30TBps",
        "",      "5Gb", "5Gib/s", "5GB/S", "7b/s",   "5/s",         "5GB/sec", "5 GB/s", "5Gbit"};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double rate = -1;
        assert_int_equal(parse_rate(cases[i].text, "--link", &rate, NULL), OK);
        assert_true(rate == cases[i].rate);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double rate = 77;
        assert_int_equal(parse_rate(bad[i], "--link", &rate, NULL), ERR_INPUT);
        assert_true(rate == 77);
    }
}

static void parse_ratio__gives_the_double_the_compiler_gives(void **state)
{
    static const struct {
        const char *text;
        double ratio;
    } cases[] = {
        {"1/3",                   1.0 / 3              },
        {"0.03",                  0.03                 },
        {"5%",                    5.0 / 100            },
        {"2",                     2                    },
        {"1e-3",                  1e-3                 },
        {"0.1234567890123456789", 0.1234567890123456789},
        {"3.141592653589793",     3.141592653589793    },
        {"0.5/2",                 0.25                 },
        {"1e-30",                 1e-30                }
    };
    static const char *const bad[] = {"1/0",  "nan", "inf", "-1",  "1/-3",  "/3",    "1/",
                                      "1/3x", "1.x", "",    "0x1", "1/3/4", "1e400", "50%%"};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double ratio = -1;
        assert_int_equal(parse_ratio(cases[i].text, "alpha", &ratio, NULL), OK);
        assert_true(ratio == cases[i].ratio);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double ratio = 77;
        struct err err = {0};
        assert_int_equal(parse_ratio(bad[i], "alpha", &ratio, &err), ERR_INPUT);
        assert_true(ratio == 77);
        assert_non_null(strstr(err.msg, "alpha"));
    }
}

static void parse_int__keeps_to_its_limits(void **state)
{
    int64_t value = 77;
    struct err err = {0};
    (void)state;
    assert_int_equal(parse_int("-9223372036854775808", "x", INT64_MIN, INT64_MAX, &value, NULL),
                     OK);
    assert_true(value == INT64_MIN);
    assert_int_equal(parse_int("12", "x", 1, 12, &value, NULL), OK);
    assert_int_equal(value, 12);
    assert_int_equal(parse_int("0", "--stages", 1, 12, &value, &err), ERR_INPUT);
    assert_string_equal(err.msg, "--stages must be 1..12, got '0'");
    assert_int_equal(parse_int("9223372036854775808", "x", 0, INT64_MAX, &value, NULL), ERR_INPUT);
    assert_int_equal(parse_int("1.0", "x", 0, 9, &value, NULL), ERR_INPUT);
    assert_int_equal(parse_int("", "x", 0, 9, &value, NULL), ERR_INPUT);
    assert_int_equal(parse_int("-", "x", -9, 9, &value, NULL), ERR_INPUT);
    assert_int_equal(parse_int(" 1", "x", 0, 9, &value, NULL), ERR_INPUT);
    assert_int_equal(value, 12);
    assert_int_equal(parse_int("12e3", "x", 1, 12000, &value, NULL), OK);
    assert_int_equal(value, 12000);
    assert_int_equal(parse_int("-1e0", "x", -1, 0, &value, NULL), OK);
    assert_int_equal(value, -1);
    static const char *const wrong[] = {"e3",    "1e",    "1e-3", "1.5e3", "1e99",
                                        "1e3e3", "10e18", "0x10", "1_000", "1e+3"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(parse_int(wrong[i], "x", INT64_MIN, INT64_MAX, &value, NULL), ERR_INPUT);
}

static void parse_int_list__reads_all_or_nothing(void **state)
{
    static const char *const bad[] = {"", ",", "1,", ",1", "1,,2", "1,x", "1,-2", "1,100", "1 ,2"};
    int64_t *values = NULL;
    int count = 0;
    (void)state;
    assert_int_equal(parse_int_list("3,1,2", "--sizes", 0, 99, &values, &count, NULL), OK);
    assert_int_equal(count, 3);
    assert_int_equal(values[0], 3);
    assert_int_equal(values[2], 2);
    free(values);
    values = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {0};
        assert_int_equal(parse_int_list(bad[i], "--sizes", 0, 99, &values, &count, &err),
                         ERR_INPUT);
        assert_null(values);
        assert_non_null(strstr(err.msg, "--sizes"));
    }
}

static void add_ok_mul_ok__refuse_what_does_not_fit(void **state)
{
    int64_t out;
    (void)state;
    assert_true(add_ok(INT64_MAX - 1, 1, &out));
    assert_true(out == INT64_MAX);
    assert_false(add_ok(INT64_MAX, 1, &out));
    assert_true(mul_ok(INT64_C(1) << 31, INT64_C(1) << 31, &out));
    assert_false(mul_ok(INT64_C(1) << 32, INT64_C(1) << 31, &out));
}

static void nearest_name__guesses_only_what_is_near(void **state)
{
    static const char *const names[] = {"classes", "image", "patch", "layers"};
    (void)state;
    assert_string_equal(nearest_name("clases", names, 4), "classes");
    assert_string_equal(nearest_name("layer", names, 4), "layers");
    assert_null(nearest_name("optimizer", names, 4));
    assert_null(nearest_name("x", names, 0));
}

static void name_fold__keeps_letters_and_digits_that_fit(void **state)
{
    (void)state;
    char out[8];
    assert_true(name_fold("DGX_h-100", out, sizeof out));
    assert_string_equal(out, "dgxh100");
    assert_false(name_fold("dgx-h1000", out, sizeof out));
    assert_false(name_fold("-_", out, sizeof out));
}

static void nearest_name__counts_swapped_neighbours_as_one_edit(void **state)
{
    static const char *const names[] = {"plan", "plot", "profile", "profiles"};
    (void)state;
    assert_string_equal(nearest_name("plto", names, 4), "plot");
    assert_string_equal(nearest_name("lpan", names, 4), "plan");
    assert_string_equal(nearest_name("profiels", names, 4), "profiles");
    assert_string_equal(nearest_name("proflie", names, 4), "profile");
}

static void format_speed__says_slower_below_one(void **state)
{
    char buf[64];
    (void)state;
    assert_string_equal(format_speed(2.5, buf, sizeof buf), "2.50 times faster");
    assert_string_equal(format_speed(0.8, buf, sizeof buf), "1.25 times slower");
    assert_string_equal(format_speed(0.9999, buf, sizeof buf), "1.00 times faster");
    assert_string_equal(format_speed(0, buf, sizeof buf), "takes no time");
    assert_string_equal(format_count(1, "rank", buf, sizeof buf), "1 rank");
    assert_string_equal(format_count(0, "rank", buf, sizeof buf), "0 ranks");
    assert_string_equal(format_count(8, "microbatch", buf, sizeof buf), "8 microbatches");
    assert_string_equal(format_count(2, "epoch", buf, sizeof buf), "2 epochs");
    assert_string_equal(format_count(2, "memory copy", buf, sizeof buf), "2 memory copies");
    assert_string_equal(format_count(1, "memory copy", buf, sizeof buf), "1 memory copy");
}

static void write_ns__is_read_back_exactly(void **state)
{
    static const int64_t times[] = {
        0,     1, 999, 1000, 1500000, 16000000000, 60000000001, 1234567000, (INT64_C(1) << 53) + 1,
        NS_MAX};
    char buf[32];
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        int64_t ns = -1;
        assert_int_equal(parse_ns(write_ns(times[i], buf, sizeof buf), "t", &ns, NULL), OK);
        assert_true(ns == times[i]);
    }
    assert_string_equal(write_ns(16000000000, buf, sizeof buf), "16s");
    assert_string_equal(write_ns(1500000, buf, sizeof buf), "1500us");
}

static void format__keeps_three_digits(void **state)
{
    char buf[32];
    (void)state;
    assert_string_equal(format_ns(999, buf, sizeof buf), "999 ns");
    assert_string_equal(format_ns(1250000, buf, sizeof buf), "1.25 ms");
    assert_string_equal(format_ns(12500, buf, sizeof buf), "12.5 us");
    assert_string_equal(format_ns(89900000000, buf, sizeof buf), "89.9 s");
    assert_string_equal(format_ns(125000000000, buf, sizeof buf), "2.08 min");
    assert_string_equal(format_ns(5399000000000, buf, sizeof buf), "90.0 min");
    assert_string_equal(format_ns(121320000000000, buf, sizeof buf), "33.7 h");
    assert_string_equal(format_ns(INT64_MAX, buf, sizeof buf), "2562048 h");
    assert_string_equal(format_bytes(512, buf, sizeof buf), "512 B");
    assert_string_equal(format_bytes(INT64_C(16) << 30, buf, sizeof buf), "16.0 GiB");
    assert_string_equal(format_bytes(1536, buf, sizeof buf), "1.50 KiB");
}

static void join_names__stops_where_the_room_ends(void **state)
{
    static const char *const names[] = {"vit", "bert", "gpt"};
    char buf[16];
    (void)state;
    assert_string_equal(join_names(names, 3, buf, sizeof buf), "vit bert gpt");
    assert_string_equal(join_names(names, 0, buf, sizeof buf), "");
    for (size_t size = 1; size < 13; size++) {
        memset(buf, '#', sizeof buf);
        assert_int_equal(strlen(join_names(names, 3, buf, size)), size - 1);
        assert_int_equal(strncmp(buf, "vit bert gpt", size - 1), 0);
        assert_int_equal(buf[size], '#');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(format_speed__says_slower_below_one),
        cmocka_unit_test(parse_ns__reads_every_unit_exactly),
        cmocka_unit_test(parse_ns__refuses_everything_else),
        cmocka_unit_test(parse_bytes__knows_powers_of_1000_and_1024),
        cmocka_unit_test(parse_rate__wants_a_positive_rate_with_its_unit),
        cmocka_unit_test(parse_ratio__gives_the_double_the_compiler_gives),
        cmocka_unit_test(parse_int__keeps_to_its_limits),
        cmocka_unit_test(parse_int_list__reads_all_or_nothing),
        cmocka_unit_test(add_ok_mul_ok__refuse_what_does_not_fit),
        cmocka_unit_test(nearest_name__guesses_only_what_is_near),
        cmocka_unit_test(name_fold__keeps_letters_and_digits_that_fit),
        cmocka_unit_test(nearest_name__counts_swapped_neighbours_as_one_edit),
        cmocka_unit_test(join_names__stops_where_the_room_ends),
        cmocka_unit_test(write_ns__is_read_back_exactly),
        cmocka_unit_test(format__keeps_three_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
