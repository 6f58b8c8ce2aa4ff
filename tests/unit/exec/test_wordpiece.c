/* WordPiece on a small vocabulary made here, worked by hand; the real one is compared with another
 * tokenizer in e2e_minilm.sh. Unicode and the vocabulary table below it. */
#include "exec/data/unicode.h"
#include "exec/data/tokenizer.h"
#include "tests/unit/fail_malloc.h" /* before data_case.h, which then tests allocations too */
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

static const char *const small_vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
                                       "un\n##aff\n##able\n,\n!\nhello\nworld\n"
                                       "cafe\n中\n文\n##s\naffable\n$\n";
enum { PAD, UNK, CLS, SEP, MASK, UN, AFF, ABLE, COMMA, BANG, HELLO, WORLD, CAFE, ZHONG, WEN, S };

static void open_small(struct tokenizer **wp)
{
    struct err err = {0};
    put_text("vocab.txt", small_vocab);
    if (tokenizer_open(in_folder("vocab.txt"), NULL, LOWER_AUTO, wp, &err) != OK)
        fail_msg("%s", err.msg);
}

static void expect_ids(const struct tokenizer *wp, const char *text, size_t bytes, int n,
                       const int32_t *want)
{
    struct token_list tokens = {0};
    struct err err = {0};
    assert_int_equal(tokenizer_encode(wp, text, bytes, 0, &tokens, &err), OK);
    if (tokens.count != n)
        fail_msg("'%s': %d tokens, wanted %d", text, (int)tokens.count, n);
    for (int i = 0; i < n; i++)
        if (tokens.at[i].id != want[i])
            fail_msg("'%s': token %d is %d, wanted %d", text, i, tokens.at[i].id, want[i]);
    token_list_clear(&tokens);
}
#define EXPECT(text, ...)                                                                          \
    expect_ids(wp, text, strlen(text), (int)(sizeof((int32_t[]){__VA_ARGS__}) / 4),                \
               (const int32_t[]){__VA_ARGS__})

static void tokenizer_encode__takes_the_longest_pieces_of_each_word(void **state)
{
    struct tokenizer *wp = NULL;
    (void)state;
    open_small(&wp);
    assert_int_equal(tokenizer_size(wp), 18);
    assert_int_equal(tokenizer_id(wp, "[SEP]"), SEP);
    EXPECT("unaffable", UN, AFF, ABLE);
    EXPECT("Hello, WORLD!", HELLO, COMMA, WORLD, BANG);
    EXPECT("hello\tworld\nhello", HELLO, WORLD, HELLO);
    EXPECT("worlds", WORLD, S);
    EXPECT("worldx hello", UNK, HELLO); /* a rest without a piece: the whole word */
    EXPECT("Caf\xc3\xa9 cafe\xcc\x81 CAFE", CAFE, CAFE, CAFE);
    EXPECT("\xe4\xb8\xad\xe6\x96\x87hello", ZHONG, WEN, HELLO);
    EXPECT("hello\xe4\xb8\xadworld", HELLO, ZHONG, WORLD);
    EXPECT("hel\xe2\x80\x8blo", HELLO); /* U+200B is dropped, not a space */
    EXPECT("hello\xc2\xa0world", HELLO, WORLD);
    EXPECT("hello\xff\xc0world", UNK); /* bad bytes vanish: one word */
    EXPECT("[CLS]", CLS);
    tokenizer_free(wp);
}

static void tokenizer_encode__bounds_words_at_a_hundred_characters(void **state)
{
    struct tokenizer *wp = NULL;
    char text[300];
    int32_t want[100];
    (void)state;
    open_small(&wp);
    memcpy(text, "affable", 7);
    memset(text + 7, 's', 200);
    for (int i = 0; i < 100; i++)
        want[i] = i == 0 ? 16 : S;
    expect_ids(wp, text, 100, 94, want);
    want[0] = UNK;
    expect_ids(wp, text, 101, 1, want);
    expect_ids(wp, "", 0, 0, want);
    tokenizer_free(wp);
}

static void tokenizer_encode__says_which_bytes_a_token_stands_for(void **state)
{
    struct tokenizer *wp = NULL;
    struct token_list tokens = {0};
    const char *text = " un\xc3\xa4"
                       "ff\xcc\x81"
                       "able, caf\xc3\xa9!";
    static const char *const want[] = {"un", "\303\244ff", "able", ",", "caf\xc3\xa9", "!"};
    (void)state;
    open_small(&wp);
    assert_int_equal(tokenizer_encode(wp, text, strlen(text), ENCODE_PLACES, &tokens, NULL), OK);
    assert_int_equal(tokens.count, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(tokens.at[i].end - tokens.at[i].first, strlen(want[i]));
        assert_memory_equal(text + tokens.at[i].first, want[i], strlen(want[i]));
    }
    token_list_clear(&tokens);
    tokenizer_free(wp);
}

static void tokenizer_open__keeps_capitals_where_the_vocabulary_has_them(void **state)
{
    struct tokenizer *wp = NULL;
    (void)state;
    put_text("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nThe\r\nthe\r\ncaf\xc3\xa9\r\n");
    assert_int_equal(tokenizer_open(in_folder("vocab.txt"), NULL, LOWER_AUTO, &wp, NULL), OK);
    assert_false(tokenizer_lowers(wp));
    assert_int_equal(tokenizer_id(wp, "[MASK]"), -1);
    EXPECT("The the THE caf\xc3\xa9", 4, 5, 1, 6);
    tokenizer_free(wp);
}

/* As Google's Chinese and multilingual uncased files: <S> and <T> are the only capitals. */
static void tokenizer_open__knows_an_uncased_vocabulary_by_its_pieces_or_its_settings(void **state)
{
    static const char *const base = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[unused1]\n<S>\n<T>\n";
    static const struct {
        const char *pieces, *config;
        enum lower_case asked;
        bool lower;
    } cases[] = {
        {"apple\n",                    NULL,                                                 LOWER_AUTO, true },
        {"apple\nApple\n",             NULL,                                                 LOWER_AUTO, false},
        {"\xd0\x9c\xd0\xb8\xd1\x80\n", NULL,                                                 LOWER_AUTO, false}, /* Cyrillic, cased */
        {"\xd0\xbc\xd0\xb8\xd1\x80\n", NULL,                                                 LOWER_AUTO, true },
        {"apple\nApple\n",             NULL,                                                 LOWER_ON,   true },
        {"apple\n",                    NULL,                                                 LOWER_OFF,  false},
        {"apple\n",                    "{\"do_lower_case\": false}",                         LOWER_AUTO, false},
        {"apple\nApple\n",             "{\"do_lower_case\": true, \"strip_accents\": null}", LOWER_AUTO, true },
        {"apple\n",                    "{\"do_lower_case\": false}",                         LOWER_ON,   true },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *wp = NULL;
        struct err err = {0};
        char text[200];
        snprintf(text, sizeof text, "%s%s", base, cases[i].pieces);
        put_text("vocab.txt", text);
        unlink(in_folder("tokenizer_config.json"));
        if (cases[i].config)
            put_text("tokenizer_config.json", cases[i].config);
        if (tokenizer_open(in_folder("vocab.txt"), NULL, cases[i].asked, &wp, &err) != OK)
            fail_msg("case %zu: %s", i, err.msg);
        if (tokenizer_lowers(wp) != cases[i].lower)
            fail_msg("case %zu: lower is %d", i, tokenizer_lowers(wp));
        tokenizer_free(wp);
    }
}

static void
tokenizer_open__takes_added_tokens_and_refuses_settings_it_does_not_compute(void **state)
{
    struct tokenizer *wp = NULL;
    struct err err = {0};
    (void)state;
    put_text("vocab.txt", small_vocab);
    put_text("tokenizer_config.json",
             "{\"tokenize_chinese_chars\": false, \"added_tokens_decoder\":"
             " {\"18\": {\"content\": \"[SPEAKER]\"}}}");
    put_text("added_tokens.json", "{\"hello hello\": 19}");
    if (tokenizer_open(in_folder("vocab.txt"), NULL, LOWER_AUTO, &wp, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(tokenizer_size(wp), 20);
    EXPECT("un[SPEAKER]hello helloun", UN, 18, 19, UN);
    EXPECT("\xe4\xb8\xad\xe6\x96\x87", UNK); /* one word */
    tokenizer_free(wp);
    put_text("tokenizer_config.json", "{\"strip_accents\": false}");
    assert_int_equal(tokenizer_open(in_folder("vocab.txt"), NULL, LOWER_AUTO, &wp, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.msg, "strip_accents false, lower case is true"));
    err = (struct err){0};
    put_text("tokenizer_config.json", "{\"added_tokens_decoder\": {\"-1\": {\"content\": \"x\"}}}");
    assert_int_equal(tokenizer_open(in_folder("vocab.txt"), NULL, LOWER_AUTO, &wp, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.msg, "the id of 'x' must be 0..2147483646, got -1"));
}

static void tokenizer_encode__knows_special_tokens_that_are_spelled_out(void **state)
{
    struct tokenizer *wp = NULL;
    struct token_list tokens = {0};
    (void)state;
    open_small(&wp);
    EXPECT("hello [SEP] world", HELLO, SEP, WORLD);
    EXPECT("un[MASK]affable[MASK]", UN, MASK, 16, MASK);
    EXPECT("[sep] [SE", UNK, UNK, UNK, UNK, UNK); /* as spelled in the vocabulary only */
    assert_int_equal(tokenizer_encode(wp, "un [SEP]", 8, ENCODE_PLACES, &tokens, NULL), OK);
    assert_int_equal(tokens.at[1].first, 3);
    assert_int_equal(tokens.at[1].end, 8);
    token_list_clear(&tokens);
    tokenizer_find_special(wp, false); /* data.special_tokens false */
    EXPECT("hello [SEP]", HELLO, UNK, UNK, UNK);
    tokenizer_free(wp);
}

static void tokenizer_open__refuses_what_is_no_vocabulary(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"",                                      "not a WordPiece vocabulary: [PAD] is missing"},
        {"[PAD]\n[UNK]\n[CLS]\nhello\n",          "[SEP] is missing"                            },
        {"[PAD]\n[UNK]\n[CLS]\n[SEP]\nx\ny\nx\n", "line 7: 'x' occurs twice"                    },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *wp = NULL;
        struct err err = {0};
        put_text("bad.txt", cases[i].text);
        assert_int_equal(tokenizer_open(in_folder("bad.txt"), NULL, LOWER_AUTO, &wp, &err),
                         ERR_INPUT);
        if (!strstr(err.msg, cases[i].words) || !strstr(err.msg, "bad.txt"))
            fail_msg("'%s'", err.msg);
    }
    struct tokenizer *wp = NULL;
    struct err err = {0};
    assert_int_equal(tokenizer_open(in_folder("none.txt"), NULL, LOWER_AUTO, &wp, &err),
                     ERR_SYSTEM);
    assert_int_equal(tokenizer_open(folder, NULL, LOWER_AUTO, &wp, NULL), ERR_SYSTEM);
}

static void tokenizer_open__and_encode_fail_clean_without_memory(void **state)
{
    (void)state;
#if FAIL_MALLOC
    put_text("vocab.txt", small_vocab);
    for (int n = 0;; n++) {
        struct tokenizer *wp = NULL;
        struct token_list tokens = {0};
        fail_malloc_after(n);
        enum status rc = tokenizer_open(in_folder("vocab.txt"), NULL, LOWER_AUTO, &wp, NULL);
        if (rc == OK)
            rc = tokenizer_encode(wp, "unaffable", 9, 0, &tokens, NULL);
        bool done = fail_malloc_done();
        token_list_clear(&tokens);
        tokenizer_free(wp);
        if (done)
            break;
        assert_true(rc == ERR_NOMEM || rc == OK || rc == ERR_INPUT || rc == ERR_SYSTEM);
    }
#else
    skip();
#endif
}

static void utf8_next__accepts_exactly_what_encodes_a_code_point(void **state)
{
    char text[8];
    (void)state;
    for (uint32_t code = 0; code < 0x110000; code++) {
        size_t at = 0;
        if (code >= 0xd800 && code < 0xe000)
            continue;
        int n = utf8_put(code, text);
        if (utf8_next(text, (size_t)n, &at) != code || at != (size_t)n)
            fail_msg("U+%04X comes back as another", code);
        at = 0;
        if (n > 1 && (utf8_next(text, (size_t)n - 1, &at) != UNICODE_BAD || at != 1))
            fail_msg("U+%04X cut off is accepted", code);
    }
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t at = 0;
        assert_int_equal(utf8_next(bad[i], strlen(bad[i]), &at), UNICODE_BAD);
        assert_int_equal(at, 1);
    }
}

static void unicode_class_of__and_fold_know_every_kind(void **state)
{
    static const struct {
        uint32_t code;
        enum unicode_class class;
        int n;
        uint32_t to[3];
    } cases[] = {
        {'a',      UNICODE_LETTER,      1, {'a'}                   },
        {'Z',      UNICODE_LETTER,      1, {'z'}                   },
        {'7',      UNICODE_NUMBER,      1, {'7'}                   },
        {'$',      UNICODE_OTHER,       1, {'$'}                   },
        {'_',      UNICODE_PUNCTUATION, 1, {'_'}                   },
        {0,        UNICODE_CONTROL,     1, {0}                     },
        {0x2028,   UNICODE_SPACE,       1, {0x2028}                },
        {0x301,    UNICODE_MARK,        0, {0}                     },
        {0xc5,     UNICODE_LETTER,      1, {'a'}                   },
        {0x130,    UNICODE_LETTER,      1, {'i'}                   },
        {0x3a3,    UNICODE_LETTER,      1, {0x3c3}                 },
        {0xac01,   UNICODE_LETTER,      3, {0x1100, 0x1161, 0x11a8}},
        {0xac00,   UNICODE_LETTER,      2, {0x1100, 0x1161}        },
        {0x1f600,  UNICODE_OTHER,       1, {0x1f600}               },
        {0x10ffff, UNICODE_CONTROL,     1, {0x10ffff}              },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t to[UNICODE_FOLD_MAX];
        int n = unicode_fold(cases[i].code, to);
        if (unicode_class_of(cases[i].code) != cases[i].class || n != cases[i].n ||
            memcmp(to, cases[i].to, (size_t)n * sizeof *to) != 0)
            fail_msg("U+%04X: class %d, %d code points, first %x", cases[i].code,
                     unicode_class_of(cases[i].code), n, to[0]);
    }
}

static void vocab_find__finds_all_of_a_hundred_thousand_and_nothing_else(void **state)
{
    struct vocab vocab = {0};
    char piece[16];
    (void)state;
    for (int i = 0; i < 100000; i++) {
        int n = snprintf(piece, sizeof piece, "w%d", 7 * i);
        assert_int_equal(vocab_put(&vocab, piece, (size_t)n, i, NULL), OK);
    }
    assert_int_equal(vocab_put(&vocab, "w7", 2, 1, NULL), ERR_INPUT);
    for (int i = 0; i < 700000; i++) {
        int n = snprintf(piece, sizeof piece, "w%d", i);
        if (vocab_find(&vocab, piece, (size_t)n) != (i % 7 == 0 ? i / 7 : -1))
            fail_msg("%s", piece);
    }
    assert_int_equal(vocab_find(&vocab, "w", 1), -1);
    vocab_clear(&vocab);
    assert_int_equal(vocab_find(&vocab, "w", 1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tokenizer_encode__takes_the_longest_pieces_of_each_word,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(tokenizer_encode__bounds_words_at_a_hundred_characters,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(tokenizer_encode__says_which_bytes_a_token_stands_for,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(
            tokenizer_open__keeps_capitals_where_the_vocabulary_has_them, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(
            tokenizer_open__knows_an_uncased_vocabulary_by_its_pieces_or_its_settings, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(
            tokenizer_open__takes_added_tokens_and_refuses_settings_it_does_not_compute,
            make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(tokenizer_encode__knows_special_tokens_that_are_spelled_out,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(tokenizer_open__refuses_what_is_no_vocabulary, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(tokenizer_open__and_encode_fail_clean_without_memory,
                                        make_folder, remove_folder),
        cmocka_unit_test(utf8_next__accepts_exactly_what_encodes_a_code_point),
        cmocka_unit_test(unicode_class_of__and_fold_know_every_kind),
        cmocka_unit_test(vocab_find__finds_all_of_a_hundred_thousand_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
