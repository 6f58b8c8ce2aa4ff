/* Texts of others for a terminal and for a shell; a shell itself is the judge of words. */
#include "partition/base/safe_text.h"

#include "partition/base/status.h"
#include "tests/unit/test.h"

static void safe_byte__lets_no_control_character_through(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        const bool control = (c < ' ' && c != '\n' && c != '\t') || c == 0x7f;
        assert_int_equal(safe_byte('a', (char)c), control ? '?' : (char)c);
        const bool high = c >= 0x80 && c < 0xa0; /* U+0080 to U+009F behind 0xC2 */
        assert_int_equal(safe_byte((char)0xc2, (char)c), control ? '?'
                                                         : high  ? (char)0xbf
                                                                 : (char)c);
    }
}

static void err_set__makes_a_line_that_commands_no_terminal(void **state)
{
    struct err err = {0};
    (void)state;
    err_set(&err, ERR_INPUT,
            "a\n\033]0;b\a\xc2\x9b"
            "2J\xc3\xa9");
    assert_string_equal(err.msg, "a??]0;b?\xc2\xbf"
                                 "2J\xc3\xa9");
}

static void shell_path__is_one_word_with_these_bytes(void **state)
{
    static const char *const paths[] = {
        "run",
        "/a/b-1.x",
        "a b",
        "$(touch pwned)",
        "`touch pwned`",
        "it's",
        "''",
        "a\"b",
        "a;b",
        "a&b|c",
        "*",
        "~",
        "#x",
        "a\nb",
        "tab\there",
        "a\033[31mb'\\c",
        "\xc3\xa9",
        "!x",
        "a=b",
        "\xc2\x9b",
    };
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char command[700], got[200] = "";
        const char *word = SHELL_PATH(paths[i]);
        for (const char *c = word; *c; c++)
            assert_true((unsigned char)*c >= ' ' && *c != 0x7f);
        snprintf(command, sizeof command,
                 "bash -c \"$(cat <<'END'\nprintf '%%s|%%s' %s end\nEND\n)\"", word);
        FILE *out = popen(command, "r");
        assert_non_null(out);
        got[fread(got, 1, sizeof got - 1, out)] = '\0';
        assert_int_equal(pclose(out), 0);
        snprintf(command, sizeof command, "%s|end", paths[i]);
        assert_string_equal(got, command);
    }
    assert_string_equal(SHELL_PATH("runs/gpt2-3"), "runs/gpt2-3"); /* as it is, where it can be */
    assert_string_equal(SHELL_PATH("-x y"), "'./-x y'");
    assert_string_equal(SHELL_PATH(""), "''");
    char small[8];
    assert_string_equal(shell_path("1234567", small, sizeof small), "1234567");
    assert_string_equal(shell_path("12345678", small, sizeof small), "DIR");
    assert_string_equal(shell_path("a 3456", small, sizeof small), "DIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safe_byte__lets_no_control_character_through),
        cmocka_unit_test(err_set__makes_a_line_that_commands_no_terminal),
        cmocka_unit_test(shell_path__is_one_word_with_these_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
