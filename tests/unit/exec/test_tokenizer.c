/* Tokens of tokenizer.json beside those of PyPI's `tokenizers`: tests/reference/tokenizers_peer.py writes the
 * golden files, and with ELAPSE_TOKENIZER_CASES=FOLDER others (e2e_tokenizers.sh: thousands of strings). */
#include "exec/data/tokenizer.h"
#include "exec/data/pattern.h"
#include "profiles/json/json.h"
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

#define GOLDEN "tests/golden/tokenizers"

static struct tokenizer *open_at(const char *dir, const char *name)
{
    struct tokenizer *t = NULL;
    struct err err = {0};
    char path[400];
    snprintf(path, sizeof path, "%s/%s.json", dir, name);
    if (tokenizer_open(path, NULL, LOWER_AUTO, &t, &err) != OK)
        fail_msg("%s", err.msg);
    return t;
}

/* The text of tokens without the special ones. The caller frees it. */
static char *text_of(const struct tokenizer *t, const struct token_list *tokens)
{
    char *text = calloc((size_t)tokens->count * 64 + 1, 1);
    size_t n = 0;
    for (int64_t i = 0; i < tokens->count; i++) {
        bool special;
        const size_t got = tokenizer_bytes(t, tokens->at[i].id, text + n, 64, &special);
        n += special ? 0 : got;
    }
    text[n] = '\0';
    if (tokenizer_strips(t) && text[0] == ' ')
        memmove(text, text + 1, n);
    return text;
}

static int compare(const char *name, const struct tokenizer *t, const struct json *row)
{
    const char *text = json_string(json_at(row, 0)), *back = json_string(json_at(row, 2));
    struct token_list tokens = {0};
    struct err err = {0};
    int wrong = 0;
    int64_t i = 0;
    if (tokenizer_encode(t, text, strlen(text), ENCODE_AROUND, &tokens, &err) != OK)
        fail_msg("%s", err.msg);
    for (const struct json *m = json_first(json_at(row, 1)); m; m = json_next(m), i++) {
        int64_t id = -1;
        json_int64(m, &id);
        wrong += i >= tokens.count || tokens.at[i].id != id;
    }
    wrong += i != tokens.count;
    char *ours = text_of(t, &tokens);
    if (!wrong && !strstr(back, "\xef\xbf\xbd") && strcmp(ours, back) != 0)
        wrong = 1;
    if (wrong) {
        char *want = NULL;
        json_text(json_at(row, 1), false, &want, NULL);
        print_error("%s: '%s' is '%s', wanted '%s', ids %s\n   ", name, text, ours, back, want);
        for (i = 0; i < tokens.count; i++)
            print_error(" %d", tokens.at[i].id);
        print_error("\n");
        free(want);
    }
    free(ours);
    token_list_clear(&tokens);
    return wrong != 0;
}

static void tokenizer_encode__equals_tokenizers_on_many_scripts(void **state)
{
    (void)state;
    const char *dir = getenv("ELAPSE_TOKENIZER_CASES");
    struct json *cases = NULL;
    struct err err = {0};
    char path[400];
    int wrong = 0, strings = 0;
    dir = dir ? dir : GOLDEN;
    snprintf(path, sizeof path, "%s/cases.json", dir);
    if (json_read_file(path, &cases, &err) != OK)
        fail_msg("%s", err.msg);
    for (const struct json *m = json_first(cases); m; m = json_next(m)) {
        struct tokenizer *t = open_at(dir, json_key(m));
        for (const struct json *row = json_first(m); row; row = json_next(row), strings++)
            wrong += compare(json_key(m), t, row);
        tokenizer_free(t);
    }
    json_free(cases);
    if (wrong)
        fail_msg("%d of %d strings differ", wrong, strings);
    assert_true(strings >= 7 * 24);
}

/* Write the vocabulary of a tokenizer.json as the files of before: vocab.txt, or vocab.json and
 * merges.txt. */
static void put_old_files(const struct json *model)
{
    const struct json *vocab = json_get(model, "vocab"), *merges = json_get(model, "merges");
    const int n = json_count(vocab);
    const char **by_id = calloc((size_t)n, sizeof *by_id);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    for (const struct json *m = json_first(vocab); m; m = json_next(m)) {
        int64_t id = -1;
        assert_true(json_int64(m, &id) && id >= 0 && id < n);
        by_id[id] = json_key(m);
    }
    for (int i = 0; i < n; i++)
        fprintf(out, "%s\n", by_id[i]);
    fclose(out);
    put_text("vocab.txt", text);
    free(text);
    assert_int_equal(json_text(vocab, false, &text, NULL), OK);
    put_text("vocab.json", text);
    free(text);
    out = open_memstream(&text, &size);
    fputs("#version: 0.2\n", out);
    for (const struct json *m = merges ? json_first(merges) : NULL; m; m = json_next(m))
        fprintf(out, "%s %s\n", json_string(json_at(m, 0)), json_string(json_at(m, 1)));
    fclose(out);
    put_text("merges.txt", text);
    free(text);
    free(by_id);
}

/* One encoder: the builders from the older files give the tokens of the same tokenizer.json. */
static void tokenizer_open__reads_three_forms_of_one_tokenizer(void **state)
{
    static const char *const names[] = {"bert", "gpt2"}, *const files[] = {"vocab.txt",
                                                                           "vocab.json"};
    struct json *cases = NULL;
    (void)state;
    assert_int_equal(json_read_file(GOLDEN "/cases.json", &cases, NULL), OK);
    for (int i = 0; i < 2; i++) {
        struct tokenizer *t = open_at(GOLDEN, names[i]), *old = NULL;
        struct json *root = NULL;
        struct err err = {0};
        char path[400];
        snprintf(path, sizeof path, "%s/%s.json", GOLDEN, names[i]);
        assert_int_equal(json_read_file(path, &root, NULL), OK);
        put_old_files(json_get(root, "model"));
        if (tokenizer_open(in_folder(files[i]), NULL, LOWER_AUTO, &old, &err) != OK)
            fail_msg("%s", err.msg);
        for (const struct json *m = json_first(json_get(cases, names[i])); m; m = json_next(m)) {
            const char *text = json_string(json_at(m, 0));
            struct token_list want = {0}, got = {0};
            if (strchr(text, '<')) /* tokens that were added to tokenizer.json alone */
                continue;
            assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, &want, NULL), OK);
            assert_int_equal(tokenizer_encode(old, text, strlen(text), 0, &got, NULL), OK);
            assert_int_equal(want.count, got.count);
            for (int64_t k = 0; k < got.count; k++)
                assert_int_equal(want.at[k].id, got.at[k].id);
            token_list_clear(&want);
            token_list_clear(&got);
        }
        tokenizer_free(t);
        tokenizer_free(old);
        json_free(root);
    }
    json_free(cases);
}

/* A byte-level file with parts in place of its own. */
static const char *file_with(const char *norm, const char *split, const char *model,
                             const char *added)
{
    char text[4000];
    snprintf(text, sizeof text,
             "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":null,\"post_processor\":null,"
             "\"added_tokens\":[%s],\"model\":%s}",
             norm, split, added, model);
    put_text("t.json", text);
    return in_folder("t.json");
}

static void tokenizer_open__names_what_it_does_not_know(void **state)
{
    static const char plain[] = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
                                "\"merges\":[\"a b\"]}";
    static const struct {
        const char *norm, *split, *model, *added, *words;
    } cases[] = {
        {"{\"type\":\"Lowercase\"}",                                                                "null",                                                                          plain,                                                                      "",                                                  "normalizer 'Lowercase' is not supported"},
        {"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Precompiled\"}]}",
         "null",                                                                                                                                                                     plain,                                                                      "",                                                  "normalizer 'Precompiled'"               },
        {"{\"type\":\"Replace\",\"content\":\"\"}",                                                 "null",                                                                          plain,                                                                      "",                                                  "Replace' has no pattern"                },
        {"null",                                                                                    "{\"type\":\"UnicodeScripts\"}",                                                 plain,                                                                      "",                                                  "pre_tokenizer 'UnicodeScripts'"         },
        {"null",                                                                                    "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(a\"}}",
         plain,                                                                                                                                                                                                                                                  "",                                                  "pattern '(a'"                           },
        {"null",                                                                                    "{\"type\":\"Split\",\"behavior\":\"x\",\"pattern\":{\"String\":\"a\"}}",        plain,
         "",                                                                                                                                                                                                                                                                                                          "has an unknown behavior"                },
        {"null",                                                                                    "null",                                                                          "{\"type\":\"Unigram\",\"vocab\":[]}",                                      "",
         "model 'Unigram' is not supported"                                                                                                                                                                                                                                                                                                                    },
        {"null",                                                                                    "null",                                                                          "{\"type\":\"WordPiece\",\"vocab\":{}}",                                    "",                                                  "unk_token is missing"                   },
        {"null",                                                                                    "null",                                                                          "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}",                    "",
         "the id of 'a' must be"                                                                                                                                                                                                                                                                                                                               },
        {"null",                                                                                    "null",                                                                          "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}",              "",
         "merge 0 does not join"                                                                                                                                                                                                                                                                                                                               },
        {"null",                                                                                    "null",                                                                          "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}",                "",
         "merge 0 does not join"                                                                                                                                                                                                                                                                                                                               },
        {"null",                                                                                    "null",                                                                          "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}",
         "",                                                                                                                                                                                                                                                                                                          "unk_token 'u' is not in"                },
        {"null",                                                                                    "null",
         "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}",                                                                                                                                                                 "",
         "end_of_word_suffix"                                                                                                                                                                                                                                                                                                                                  },
        {"null",                                                                                    "null",                                                                          "[]",                                                                       "",                                                  "the id of 'normalizer' must be"         },
        {"null",                                                                                    "null",                                                                          plain,                                                                      "{\"content\":\"x\"}",                               "has no content or id"                   },
        {"null",                                                                                    "null",                                                                          plain,                                                                      "{\"id\":7,\"content\":\"x\",\"single_word\":true}",
         "single_word is not supported"                                                                                                                                                                                                                                                                                                                        },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = NULL;
        struct err err = {0};
        const char *model = cases[i].words ? cases[i].model : plain;
        const char *path = file_with(cases[i].norm, cases[i].split, model, cases[i].added);
        if (tokenizer_open(path, NULL, LOWER_AUTO, &t, &err) != ERR_INPUT ||
            !strstr(err.msg, cases[i].words))
            fail_msg("case %zu: '%s', wanted '%s'", i, err.msg, cases[i].words);
    }
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(in_folder("none.json"), NULL, LOWER_AUTO, &t, NULL),
                     ERR_SYSTEM);
}

/* The first of two equal pairs joins first, and a pair that a join makes may come before waiting ones. */
static void tokenizer_encode__joins_by_rank_then_place(void **state)
{
    static const struct {
        const char *text;
        int32_t ids[4];
        int n;
    } cases[] = {
        {"aaa",  {3, 0}, 2},
        {"aaaa", {5},    1},
        {"baab", {4, 6}, 2},
        {"xab",  {0, 1}, 2}, /* no unknown token: x is dropped */
        {"",     {0},    0},
    };
    struct err err = {0};
    struct tokenizer *t = NULL;
    (void)state;
    const char *path =
        file_with("null", "null",
                  "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"aa\":3,\"ba\":4,"
                  "\"aaaa\":5,\"ab\":6},\"merges\":[\"b a\",\"aa aa\",\"a a\"]}",
                  "");
    if (tokenizer_open(path, NULL, LOWER_AUTO, &t, &err) != OK)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i + 1 < sizeof cases / sizeof *cases; i++) {
        struct token_list tokens = {0};
        if (i == 2)
            continue;
        assert_int_equal(
            tokenizer_encode(t, cases[i].text, strlen(cases[i].text), ENCODE_AROUND, &tokens, &err),
            OK);
        assert_int_equal(tokens.count, cases[i].n);
        for (int k = 0; k < cases[i].n; k++)
            assert_int_equal(tokens.at[k].id, cases[i].ids[k]);
        token_list_clear(&tokens);
    }
    tokenizer_free(t);
}

/* A megabyte without a space is one word of these files: its time must not be quadratic. */
static void tokenizer_encode__takes_a_long_word(void **state)
{
    enum { BYTES = 1 << 18 };
    struct tokenizer *t = open_at(GOLDEN, "llama2");
    struct token_list tokens = {0};
    struct err err = {0};
    char *text = malloc(BYTES);
    (void)state;
    for (int i = 0; i < BYTES; i++)
        text[i] = "the winter"[i % 10];
    assert_int_equal(tokenizer_encode(t, text, BYTES, ENCODE_AROUND, &tokens, &err), OK);
    assert_true(tokens.count > 1000 && tokens.count < BYTES);
    token_list_clear(&tokens);
    text[5] = (char)0xff; /* not UTF-8: as U+FFFD, here in bytes */
    assert_int_equal(tokenizer_encode(t, text, 8, 0, &tokens, &err), OK);
    char *back = text_of(t, &tokens);
    assert_string_equal(back, "the w\xef\xbf\xbdnt");
    free(back);
    token_list_clear(&tokens);
    free(text);
    tokenizer_free(t);
}

/* All matches of a pattern as "first-end ", or the error of the search. */
static enum status all_matches(const char *regex, const char *text, char *list, struct err *err)
{
    struct pattern *pattern = NULL;
    struct pattern_search search = {0};
    size_t first, end, last = 0;
    bool found = false;
    enum status rc = pattern_new(regex, false, &pattern, err);
    if (rc == OK)
        rc = pattern_search(pattern, text, strlen(text), &search, err);
    *list = '\0';
    while (rc == OK && (rc = pattern_next(&search, &found, &first, &end, err)) == OK && found) {
        assert_true(last <= first && first <= end && end <= strlen(text));
        assert_true(((unsigned char)text[first] & 0xc0) != 0x80);
        sprintf(list + strlen(list), "%zu-%zu ", first, end);
        last = end;
    }
    pattern_search_clear(&search);
    pattern_free(pattern);
    return rc;
}

/* A pattern is a stranger's: its matches come in order and end, or it is refused with its text. */
static void pattern_next__hands_out_ordered_matches_or_names_the_pattern(void **state)
{
    static const struct {
        const char *regex, *text, *want; /* matches, or words of the error */
    } cases[] = {
        {"b+",                               "abbab",                                    "1-3 4-5 "              },
        {"b*",                               "ab",                                       "0-0 1-2 2-2 "          },
        {"(?=b)|",                           "\xc3\xa4\xc3\xa4",                         "0-0 2-2 4-4 "          },
        {"a\\Kb",                            "abab",                                     "1-2 3-4 "              },
        {"(?(DEFINE)(?<s>a\\K))(?=(?&s))",   "aaab",                                     "a match begins after"  },
        {"(?(DEFINE)(?<s>b\\K))a(?=(?&s))",  "ab ab",                                    "a match begins after"  },
        {"(?(DEFINE)(?<s>\\Kb))(?<=(?&s))b", "abbbbb",                                   "before the end of"     },
        {"(?=a\\K)",                         "aa",                                       "\\K is not allowed"    },
        {"\\C",                              "\xc3\xa4",                                 "\\C is disabled"       },
        {"(a+)+$",                           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "limit exceeded"        },
        {"a",                                "a\xc3",                                    "fails on a text: UTF-8"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        char list[200];
        const bool fails = all_matches(cases[i].regex, cases[i].text, list, &err) != OK;
        const bool named = strncmp(err.msg, "pattern '", 9) == 0 &&
                           strncmp(err.msg + 9, cases[i].regex, strlen(cases[i].regex)) == 0;
        if (fails ? !named || !strstr(err.msg, cases[i].want) : strcmp(list, cases[i].want) != 0)
            fail_msg("%s: '%s', '%s', wanted '%s'", cases[i].regex, list, err.msg, cases[i].want);
    }
}

/* Both users of matches, a split and a replacement, hand on the refusal. */
static void tokenizer_encode__refuses_a_pattern_that_goes_back(void **state)
{
    static const char model[] = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}";
    static const char *const parts[][2] = {
        {"{\"type\":\"Replace\",\"content\":\"zz\",\"pattern\":{\"Regex\":"
         "\"(?(DEFINE)(?<s>\\\\Kb))(?<=(?&s))b\"}}", "null"     },
        {"null",                                              "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"
                 "\"(?(DEFINE)(?<s>a\\\\K))(?=(?&s))\"}}"}
    };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tokenizer *t = NULL;
        struct token_list tokens = {0};
        struct err err = {0};
        if (tokenizer_open(file_with(parts[i][0], parts[i][1], model, ""), NULL, LOWER_AUTO, &t,
                           &err) != OK)
            fail_msg("%s", err.msg);
        assert_int_equal(tokenizer_encode(t, "abbbb", 5, ENCODE_AROUND, &tokens, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "pattern '(?(DEFINE)"));
        token_list_clear(&tokens);
        tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenizer_encode__equals_tokenizers_on_many_scripts),
        cmocka_unit_test(tokenizer_open__reads_three_forms_of_one_tokenizer),
        cmocka_unit_test(tokenizer_open__names_what_it_does_not_know),
        cmocka_unit_test(tokenizer_encode__joins_by_rank_then_place),
        cmocka_unit_test(tokenizer_encode__takes_a_long_word),
        cmocka_unit_test(pattern_next__hands_out_ordered_matches_or_names_the_pattern),
        cmocka_unit_test(tokenizer_encode__refuses_a_pattern_that_goes_back),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
