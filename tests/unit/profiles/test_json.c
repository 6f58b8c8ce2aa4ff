#include "profiles/json/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiles/base/whole_file.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static struct json *parse(const char *text)
{
    struct json *json = NULL;
    struct err err = {0};
    if (json_parse(text, "t", &json, &err) != OK)
        fail_msg("%s: %s", text, err.msg);
    return json;
}

static void refuses(const char *text, const char *message)
{
    struct json *json = NULL;
    struct err err = {0};
    assert_int_equal(json_parse(text, "t.json", &json, &err), ERR_INPUT);
    assert_null(json);
    assert_string_equal(err.msg, message);
}

static void json_parse__keeps_int64_exact(void **state)
{
    (void)state;
    static const int64_t values[] = {0, -1, INT64_MAX, INT64_MIN, INT64_C(9007199254740993)};
    for (int i = 0; i < 5; i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"v\":%" PRId64 "}", values[i]);
        struct json *json = parse(text);
        int64_t got;
        assert_true(json_int64(json_get(json, "v"), &got));
        assert_true(got == values[i]);
        char *again = NULL;
        assert_int_equal(json_text(json, false, &again, NULL), OK);
        assert_string_equal(again, text);
        free(again);
        json_free(json);
    }
    struct json *json = parse("[9223372036854775808, 1.5, 1e3, 10.0, 1e300]");
    int64_t got;
    assert_false(json_int64(json_at(json, 0), &got));
    assert_false(json_int64(json_at(json, 1), &got));
    assert_true(json_int64(json_at(json, 2), &got) && got == 1000);
    assert_true(json_int64(json_at(json, 3), &got) && got == 10);
    assert_false(json_int64(json_at(json, 4), &got));
    json_free(json);
}

static void json_add_double__round_trips_every_double(void **state)
{
    (void)state;
    uint64_t bits = UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < 20000; i++) {
        bits = bits * UINT64_C(6364136223846793005) + 1442695040888963407u;
        double value;
        memcpy(&value, &bits, sizeof value);
        struct json *root = json_object_new();
        json_add_double(root, "v", value);
        char *text = NULL;
        assert_int_equal(json_text(root, false, &text, NULL), OK);
        struct json *again = parse(text);
        if (isfinite(value))
            assert_true(json_number(json_get(again, "v")) == value);
        else
            assert_int_equal(json_type(json_get(again, "v")), JSON_NULL);
        json_free(again);
        json_free(root);
        free(text);
    }
}

static void json_parse__names_line_and_column_when_text_is_bad(void **state)
{
    (void)state;
    refuses("", "t.json:1:1: the text ends too early");
    refuses("{\n \"a\": [1, 2", "t.json:2:12: the text ends too early");
    refuses("{\"a\": tru", "t.json:1:7: a value is missing");
    refuses("{} x", "t.json:1:4: text follows the value");
    refuses("{\"a\":1,\n\"b\":2,\n\"a\":3}",
            "t.json:1:1: the object that starts here has the key 'a' twice");
    refuses("{\"a\":1,\"\\u0061\":3}",
            "t.json:1:1: the object that starts here has the key 'a' twice");
    refuses("[01]", "t.json:1:3: a number does not start with 0");
    refuses("[1.]", "t.json:1:4: a digit is missing after the point");
    refuses("[1e400]", "t.json:1:2: the number is out of the range of a double");
    refuses("[NaN]", "t.json:1:2: a value is missing");
    refuses("[1,]", "t.json:1:4: a value is missing");
    refuses("[\"a\tb\"]", "t.json:1:4: a control character inside a string");
    refuses("[\"\\x\"]", "t.json:1:4: an unknown escape");
    refuses("[\"\\ud800\"]", "t.json:1:9: half a surrogate pair");
    refuses("[\"\xc3\xa4\xff\"]", "t.json:1:5: a byte that is no UTF-8");
    refuses("[\"\xe2\x82\"]", "t.json:1:3: a byte that is no UTF-8");
    refuses("[\"\xed\xa0\x80\"]", "t.json:1:3: a byte that is no UTF-8"); /* half a pair */
    refuses("[\"\\u00", "t.json:1:7: the text ends too early");
    refuses("{\"a\" 1}", "t.json:1:6: ':' is missing");
    refuses("{a:1}", "t.json:1:2: a key in quotes is missing");
}

static void json_add_string__makes_any_bytes_utf8(void **state)
{
    struct json *root = json_object_new();
    char *text = NULL;
    struct err err = {0};
    (void)state;
    json_add_string(root, "a", "\xff/\xc3\xa4\xc3");
    json_add_string(root, "b", "");
    assert_int_equal(json_text(root, false, &text, &err), OK);
    assert_string_equal(text, "{\"a\":\"\xef\xbf\xbd/\xc3\xa4\xef\xbf\xbd\",\"b\":\"\"}");
    free(text);
    json_free(root);
}

static void json_parse__refuses_deep_nesting_without_crashing(void **state)
{
    (void)state;
    enum { N = 1000000 };
    char *text = malloc(N + 1);
    memset(text, '[', N);
    text[N] = '\0';
    struct json *json = NULL;
    struct err err = {0};
    assert_int_equal(json_parse(text, "t", &json, &err), ERR_INPUT);
    assert_string_equal(err.msg, "t:1:65: nested deeper than 64");
    memset(text + 64, ']', 64);
    text[128] = '\0';
    assert_int_equal(json_parse(text, "t", &json, NULL), OK);
    json_free(json);
    free(text);
}

/* Every prefix and every one-byte change of a good text either parses or gives one clean error. */
static void json_parse__survives_truncation_and_mutation(void **state)
{
    (void)state;
    const char good[] =
        "{\"a\":[1,-2.5e-3,true,null,\"x\\n\\u00e9\\ud83d\\ude00\"],\"b\":{\"c\":{}}}";
    struct json *json = NULL;
    for (size_t n = 0; n < sizeof good - 1; n++) {
        char *part = strndup(good, n);
        struct err err = {0};
        assert_int_equal(json_parse(part, "t", &json, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "t:1:"));
        free(part);
        for (int c = 1; c < 256; c++) {
            char *changed = strdup(good);
            changed[n] = (char)c;
            if (json_parse(changed, "t", &json, NULL) == OK)
                json_free(json);
            free(changed);
        }
    }
    json = parse(good);
    assert_string_equal(json_string(json_path(json, "a.4")), "x\n\xc3\xa9\xf0\x9f\x98\x80");
    assert_int_equal(json_type(json_path(json, "b.c")), JSON_OBJECT);
    assert_null(json_path(json, "a.5"));
    assert_null(json_path(json, "b.x.y"));
    json_free(json);
}

static int allocations_left; /* until the one that fails; those behind it succeed */

static void *scarce_malloc(size_t size)
{
    return allocations_left-- == 0 ? NULL : malloc(size);
}

static void json_text__reports_nomem_when_any_allocation_fails(void **state)
{
    (void)state;
    cJSON_Hooks hooks = {scarce_malloc, free};
    cJSON_InitHooks(&hooks);
    enum status rc = ERR_NOMEM;
    int n = 0;
    for (; rc != OK; n++) {
        allocations_left = n;
        struct json *root = json_object_new();
        struct json *list = json_add_array(root, "list");
        struct json *inner = json_add_object(list, NULL);
        json_add_int(inner, "i", 7);
        json_add_string(inner, "s", "text");
        json_add_copy(root, "copy", list);
        json_add_parsed(root, "parsed", "{\"p\":1}");
        json_add_parsed(root, "absent", NULL);
        json_add_parsed(root, "none", "{");
        char *text = NULL;
        struct err err = {0};
        rc = json_text(root, false, &text, &err);
        assert_true(rc == (allocations_left < 0 ? ERR_NOMEM : OK));
        if (rc == OK)
            assert_string_equal(
                text, "{\"list\":[{\"i\":7,\"s\":\"text\"}],\"copy\":[{\"i\":7,\"s\":\"text\"}],"
                      "\"parsed\":{\"p\":1}}");
        free(text);
        json_free(root);
    }
    assert_true(n > 10);
    /* The same for reading. */
    struct json *json = NULL;
    for (n = 0, rc = ERR_NOMEM; rc != OK; n++) {
        allocations_left = n;
        rc = json_parse("{\"a\":[1,{\"b\":\"c\"}],\"d\":null}", "t", &json, NULL);
        assert_true(rc == (allocations_left < 0 ? ERR_NOMEM : OK));
    }
    assert_true(n > 10);
    cJSON_InitHooks(NULL);
    json_free(json);
}

static void json_write_file__leaves_whole_file_or_none(void **state)
{
    (void)state;
    char path[64], command[128];
    snprintf(path, sizeof path, "%s/a.json", scratch);
    struct json *root = parse("{\"a\":1}"), *again = NULL;
    struct err err = {0};
    assert_int_equal(json_write_file(root, path, &err), OK);
    assert_int_equal(json_read_file(path, &again, &err), OK);
    json_free(again);
    /* The name is taken by a directory that is not empty: the rename fails, nothing is left. */
    snprintf(path, sizeof path, "%s/d", scratch);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/d/e", scratch);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/d", scratch);
    assert_int_equal(json_write_file(root, path, &err), ERR_SYSTEM);
    snprintf(command, sizeof command, "test \"$(ls %s)\" = \"$(printf 'a.json\\nd')\"", scratch);
    assert_int_equal(system(command), 0);
    err = (struct err){0};
    assert_int_equal(json_write_file(root, at("none/x.json"), &err), ERR_SYSTEM);
    snprintf(command, sizeof command, "cannot write '%s'", at("none/x.json"));
    assert_non_null(strstr(err.msg, command));
    /* A full disk. */
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        fclose(full);
        err = (struct err){0};
        assert_int_equal(json_write_file(root, "/dev/full", &err), ERR_SYSTEM);
        assert_string_equal(err.msg, "cannot write '/dev/full': No space left on device");
    }
    json_free(root);
}

static void atomic_open__keeps_links_and_standard_output(void **state)
{
    (void)state;
    char path[64], link[64], command[160];
    struct stat st;
    struct atomic_file file;
    struct json *root = parse("[1]"), *again = NULL;
    snprintf(path, sizeof path, "%s/real.json", scratch);
    snprintf(link, sizeof link, "%s/link.json", scratch);
    assert_int_equal(json_write_file(root, path, NULL), OK);
    json_free(root);
    assert_int_equal(symlink(path, link), 0);
    root = parse("[2]");
    assert_int_equal(json_write_file(root, link, NULL), OK);
    json_free(root);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(json_read_file(path, &again, NULL), OK);
    assert_true(json_number(json_at(again, 0)) == 2);
    json_free(again);
    /* In a shell's "> file": what is printed before, through and after stands in that order. */
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(path, sizeof path, "%s/out", scratch);
        if (!freopen(path, "w", stdout))
            _exit(1);
        printf("before ");
        if (atomic_open(&file, "/dev/stdout", NULL) != OK || fputs("through ", file.out) < 0 ||
            atomic_close(&file, OK, NULL) != OK)
            _exit(2);
        printf("after");
        fflush(stdout);
        _exit(0);
    }
    int status;
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    snprintf(command, sizeof command, "test \"$(cat %s/out)\" = 'before through after'", scratch);
    assert_int_equal(system(command), 0);
    assert_int_equal(lstat("/dev/stdout", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

static void json_read_file__distinguishes_missing_from_malformed(void **state)
{
    (void)state;
    struct json *json = NULL;
    struct err err = {0};
    assert_int_equal(json_read_file(at("none.json"), &json, &err), ERR_SYSTEM);
    err = (struct err){0};
    assert_int_equal(json_read_file("/tmp", &json, &err), ERR_SYSTEM);
    err = (struct err){0};
    FILE *empty = fopen(at("empty.json"), "w");
    assert_true(empty && fclose(empty) == 0);
    assert_int_equal(json_read_file(at("empty.json"), &json, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "empty.json:1:1: the text ends too early"));
}

static void json_read_file__takes_a_byte_order_mark(void **state)
{
    (void)state;
    struct json *json = NULL;
    char *text = NULL;
    assert_int_equal(json_read_file(file_with("mark.json", "\xef\xbb\xbf{}"), &json, NULL), OK);
    json_free(json);
    assert_int_equal(json_read_file(file_with("only.json", "\xef\xbb\xbf"), &json, NULL),
                     ERR_INPUT);
    assert_int_equal(file_read_text(file_with("mark.csv", "\xef\xbb\xbf"
                                                          "a,b\n"),
                                    &text, NULL),
                     OK);
    assert_string_equal(text, "a,b\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_parse__keeps_int64_exact),
        cmocka_unit_test(json_add_double__round_trips_every_double),
        cmocka_unit_test(json_parse__names_line_and_column_when_text_is_bad),
        cmocka_unit_test(json_add_string__makes_any_bytes_utf8),
        cmocka_unit_test(json_parse__refuses_deep_nesting_without_crashing),
        cmocka_unit_test(json_parse__survives_truncation_and_mutation),
        cmocka_unit_test(json_text__reports_nomem_when_any_allocation_fails),
        cmocka_unit_test_setup_teardown(json_write_file__leaves_whole_file_or_none, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(atomic_open__keeps_links_and_standard_output, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(json_read_file__distinguishes_missing_from_malformed,
                                        scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(json_read_file__takes_a_byte_order_mark, scratch_make,
                                        scratch_remove),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
