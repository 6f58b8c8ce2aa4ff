#include "partition/cost/cost.h"
#include "partition/freeze/freeze.h"
#include "partition/base/options.h"
#include "partition/plan/job.h"
#include "partition/plan/plan.h"
#include "partition/base/units.h"
#include "tests/unit/test.h"

/* One variable of every type, with the table that points at them. */
struct vars {
    bool json, json_seen, ranks_seen;
    const char *out;
    struct option_list sets;
    int64_t ranks, latency_ns, mem_bytes;
    double link_bytes_per_s, alpha;
    struct command_line line;
    struct err err;
};

static enum status parse(struct vars *vars, int argc, char **argv)
{
    *vars = (struct vars){.out = "default", .ranks = 1, .latency_ns = 5000};
    const struct option table[] = {
        OPTION("json", FLAG, &vars->json, NULL, "one object", .seen = &vars->json_seen),
        OPTION("o", STRING, &vars->out, "FILE", "output"),
        OPTION("set", LIST, &vars->sets, "a.b=v", "override", .keys = &job_keys),
        OPTION("n", INT, &vars->ranks, "RANKS", "ranks (1)", .min = 1, .max = 64,
               .seen = &vars->ranks_seen),
        OPTION("latency", NS, &vars->latency_ns, "TIME", "latency (5us)"),
        OPTION("mem", BYTES, &vars->mem_bytes, "BYTES", "memory"),
        OPTION("link", RATE, &vars->link_bytes_per_s, "RATE", "bandwidth"),
        OPTION("alpha", RATIO, &vars->alpha, "A", "share"),
    };
    vars->line = (struct command_line)COMMAND_LINE(table, 2);
    return options_parse(&vars->line, argc, argv, &vars->err);
}

#define PARSE(vars, ...)                                                                           \
    parse(vars, (int)(sizeof(char *[]){"cmd", __VA_ARGS__} / sizeof(char *)),                      \
          (char *[]){"cmd", __VA_ARGS__})

static void options_parse__leaves_defaults_when_nothing_is_given(void **state)
{
    (void)state;
    struct vars v;
    assert_int_equal(parse(&v, 1, (char *[]){"cmd"}), OK);
    assert_string_equal(v.out, "default");
    assert_int_equal(v.ranks, 1);
    assert_int_equal(v.latency_ns, 5000);
    assert_false(v.json || v.json_seen || v.ranks_seen || v.line.help);
    assert_int_equal(v.line.num_positional, 0);
}

static void options_parse__takes_values_with_units_apart_or_joined(void **state)
{
    (void)state;
    struct vars v;
    assert_int_equal(PARSE(&v, "--latency=20us", "--mem", "16GiB", "--link", "5GBps", "--alpha=1/4",
                           "-n", "8", "--json"),
                     OK);
    assert_int_equal(v.latency_ns, 20000);
    assert_int_equal(v.mem_bytes, INT64_C(16) << 30);
    assert_true(v.link_bytes_per_s == 5e9);
    assert_true(v.alpha == 0.25);
    assert_int_equal(v.ranks, 8);
    assert_true(v.json && v.json_seen && v.ranks_seen);
    assert_int_equal(PARSE(&v, "-n3", "-o=x.svg"), OK);
    assert_int_equal(v.ranks, 3);
    assert_string_equal(v.out, "x.svg");
}

static void options_parse__keeps_list_order_and_positionals(void **state)
{
    (void)state;
    struct vars v;
    assert_int_equal(PARSE(&v, "a", "--set", "x=1", "--set=y=2", "--", "--json"), OK);
    assert_int_equal(v.sets.count, 2);
    assert_string_equal(v.sets.items[0], "x=1");
    assert_string_equal(v.sets.items[1], "y=2");
    assert_int_equal(v.line.num_positional, 2);
    assert_string_equal(v.line.positional[0], "a");
    assert_string_equal(v.line.positional[1], "--json");
    assert_false(v.json);
    assert_int_equal(PARSE(&v, "-"), OK); /* a lone dash is a file name */
    assert_string_equal(v.line.positional[0], "-");
}

static void options_parse__returns_at_once_when_help_is_asked(void **state)
{
    (void)state;
    struct vars v;
    assert_int_equal(PARSE(&v, "--help", "--nonsense"), OK);
    assert_true(v.line.help);
    assert_int_equal(PARSE(&v, "-h"), OK);
    assert_true(v.line.help);
}

static void options_parse__names_our_word_for_that_of_another_tool(void **state)
{
    (void)state;
    static char *const words[][2] = {
        {"-np",              "use -n"                          },
        {"--nproc-per-node", "use -n"                          },
        {"--gpus=4",         "use -n"                          },
        {"--epochs",         "use --set train.epochs=VALUE"    },
        {"--fsdp",           "use --set pipeline.shard=weights"},
        {"--tp",             "use --set pipeline.tensor=VALUE" }, /* this table has no --tensor */
    };
    struct vars v;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_int_equal(PARSE(&v, words[i][0], "2"), ERR_INPUT);
        assert_string_equal(v.err.hint, words[i][1]);
    }
    assert_int_equal(PARSE(&v, "-n4"), OK);
    assert_int_equal(v.ranks, 4);
}

/* Takes from `words` (blanks between them) what the table has, and joins what is left. */
struct taken {
    int64_t ranks;
    const char *out;
    bool check, help, rows;
    char left[128];
    struct err err;
};
static enum status take(const char *words, bool front, struct taken *t)
{
    static char text[128];
    char *argv[16] = {"elapse"};
    int argc = 1;
    *t = (struct taken){0};
    const struct option table[] = {
        OPTION("n", INT, &t->ranks, "RANKS", "ranks", .min = 1, .max = 64),
        OPTION("check", FLAG, &t->check, NULL, "only check"),
        OPTION("out", STRING, &t->out, "DIR", "folder", .leave = true),
    };
    struct command_line line = COMMAND_LINE(table, 0);
    snprintf(text, sizeof text, "%s", words);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    const enum status rc = options_take(&line, &argc, argv, front, &t->err);
    t->help = line.help;
    t->rows = line.rows;
    for (int i = 0; i < argc; i++)
        snprintf(t->left + strlen(t->left), sizeof t->left - strlen(t->left), "%s%s", i ? " " : "",
                 argv[i]);
    assert_null(argv[argc]);
    return rc;
}

static void options_take__leaves_what_is_not_in_the_table(void **state)
{
    (void)state;
    struct taken t;
    assert_int_equal(take("train job.json --lr 3 -n 4 -x --check --out d -- -n 5", false, &t), OK);
    assert_int_equal(t.ranks, 4);
    assert_true(t.check && !t.help);
    assert_string_equal(t.out, "d");
    assert_string_equal(t.left, "elapse train job.json --lr 3 -x --out d -- -n 5");
    assert_int_equal(take("train --help=rows -n=2", false, &t), OK);
    assert_true(t.help && t.rows && t.ranks == 2);
    assert_string_equal(t.left, "elapse train --help=rows");
    assert_int_equal(take("train -np 4", false, &t), ERR_INPUT); /* not -n with the value p */
    assert_string_equal(t.err.hint, "use -n");
    assert_int_equal(take("-n 4 -n 5", false, &t), ERR_INPUT);
    assert_string_equal(t.err.msg, "-n given twice");
    assert_int_equal(take("train -n", false, &t), ERR_INPUT);
}

static void options_take__stops_at_the_first_other_word(void **state)
{
    (void)state;
    struct taken t;
    assert_int_equal(take("--check -n 4 train -n 5 --check", true, &t), OK);
    assert_true(t.check && t.ranks == 4);
    assert_string_equal(t.left, "elapse train -n 5 --check");
    assert_int_equal(take("--other -n 4", true, &t), OK);
    assert_int_equal(t.ranks, 0);
    assert_string_equal(t.left, "elapse --other -n 4");
}

static void options_parse__names_the_nearest_when_option_is_unknown(void **state)
{
    (void)state;
    struct vars v;
    assert_int_equal(PARSE(&v, "--latencie", "1us"), ERR_INPUT);
    assert_string_equal(v.err.msg, "unknown option '--latencie'");
    assert_string_equal(v.err.hint, "did you mean '--latency'?");
    assert_int_equal(PARSE(&v, "-x"), ERR_INPUT);
    assert_int_equal(PARSE(&v, "--n", "2"), ERR_INPUT); /* single letters take one dash */
}

static void options_parse__refuses_misuse(void **state)
{
    (void)state;
    struct vars v;
    assert_int_equal(PARSE(&v, "-n"), ERR_INPUT);
    assert_string_equal(v.err.msg, "-n needs a value (RANKS)");
    assert_int_equal(PARSE(&v, "-n", "65"), ERR_INPUT);
    assert_non_null(strstr(v.err.msg, "-n"));
    assert_non_null(strstr(v.err.msg, "64"));
    assert_int_equal(PARSE(&v, "-n", "1", "-n", "2"), ERR_INPUT);
    assert_string_equal(v.err.msg, "-n given twice");
    assert_int_equal(PARSE(&v, "--json=yes"), ERR_INPUT);
    assert_int_equal(PARSE(&v, "--jsonx"), ERR_INPUT);
    assert_int_equal(PARSE(&v, "--latency", "5"), ERR_INPUT);
    assert_int_equal(PARSE(&v, "--mem", "-1"), ERR_INPUT);
    assert_int_equal(PARSE(&v, "--alpha", "nan"), ERR_INPUT);
    assert_int_equal(PARSE(&v, "a", "b", "c"), ERR_INPUT);
    assert_string_equal(v.err.msg, "unexpected argument 'c'");
}

static void options_parse__refuses_list_beyond_its_limit(void **state)
{
    (void)state;
    struct vars v;
    char *argv[1 + OPTION_LIST_MAX + 1] = {"cmd"};
    for (int i = 1; i <= OPTION_LIST_MAX + 1; i++)
        argv[i] = "--set=a=1";
    assert_int_equal(parse(&v, 1 + OPTION_LIST_MAX, argv), OK);
    assert_int_equal(parse(&v, 1 + OPTION_LIST_MAX + 1, argv), ERR_INPUT);
}

static void options_help__aligns_and_reports_the_length_needed(void **state)
{
    (void)state;
    const struct option table[] = {
        OPTION("json", FLAG, NULL, NULL, "one object"),
        OPTION("n", INT, NULL, "RANKS", "ranks"),
    };
    char text[256], small[8];
    size_t need = options_help(table, 2, true, text, sizeof text);
    assert_string_equal(text, "  --json    one object\n  -n RANKS  ranks\n  --help    this text\n");
    assert_int_equal(need, strlen(text));
    assert_int_equal(options_help(table, 2, true, small, sizeof small), need);
    assert_int_equal(small[7], '\0');
    assert_int_equal(options_help(table, 2, true, NULL, 0), need);
}

static void options_help__prints_the_heading_of_a_group(void **state)
{
    (void)state;
    const struct option table[] = {
        OPTION("a", FLAG, NULL, NULL, "one"),
        OPTION("b", FLAG, NULL, NULL, "two", .group = "others"),
    };
    char text[256];
    options_help(table, 2, true, text, sizeof text);
    assert_string_equal(text, "  -a      one\n\nothers:\n  -b      two\n\n  --help  this text\n");
}

static void options_help__puts_the_values_in_place(void **state)
{
    (void)state;
    const struct option table[] = {
        OPTION("by", STRING, NULL, "WHAT", "one of %s (default a)", .values = "a b-c d"),
        OPTION("set", LIST, NULL, "a.b=v", "override 5 %s", .group = "job"),
    };
    char text[512], small[8];
    options_help(table, 1, false, text, sizeof text);
    assert_string_equal(text, "  --by WHAT  one of a, b-c, d (default a)\n");
    const size_t need = options_rows(table, 2, text, sizeof text);
    assert_string_equal(text, "option\t--by\tWHAT\ta b-c d\t\t\tone of a, b-c, d (default a)\n"
                              "option\t--set\ta.b=v\t\trepeat\tjob\toverride 5 %s\n");
    assert_int_equal(need, strlen(text));
    assert_int_equal(options_rows(table, 2, small, sizeof small), need);
    assert_int_equal(small[7], '\0');
}

static void options_help__prints_the_names_of_an_enum(void **state)
{
    (void)state;
    char text[256];
    const struct option option =
        OPTION("shard", STRING, NULL, "WHAT", "%s (none)", .names = shard_mode_names);
    options_help(&option, 1, false, text, sizeof text);
    assert_string_equal(text, "  --shard WHAT  none, optimizer, gradients, weights (none)\n");
    options_rows(&option, 1, text, sizeof text);
    assert_string_equal(text, "option\t--shard\tWHAT\tnone optimizer gradients weights\t\t\t"
                              "none, optimizer, gradients, weights (none)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_parse__leaves_defaults_when_nothing_is_given),
        cmocka_unit_test(options_parse__takes_values_with_units_apart_or_joined),
        cmocka_unit_test(options_parse__keeps_list_order_and_positionals),
        cmocka_unit_test(options_parse__returns_at_once_when_help_is_asked),
        cmocka_unit_test(options_parse__names_our_word_for_that_of_another_tool),
        cmocka_unit_test(options_take__leaves_what_is_not_in_the_table),
        cmocka_unit_test(options_take__stops_at_the_first_other_word),
        cmocka_unit_test(options_parse__names_the_nearest_when_option_is_unknown),
        cmocka_unit_test(options_parse__refuses_misuse),
        cmocka_unit_test(options_parse__refuses_list_beyond_its_limit),
        cmocka_unit_test(options_help__aligns_and_reports_the_length_needed),
        cmocka_unit_test(options_help__prints_the_heading_of_a_group),
        cmocka_unit_test(options_help__puts_the_values_in_place),
        cmocka_unit_test(options_help__prints_the_names_of_an_enum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
