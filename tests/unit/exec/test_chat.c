/* Chats beside transformers: tests/reference/chats_peer.py writes the golden file, and with
 * ELAPSE_CHAT_CASES=FOLDER one of the present version (e2e_tokenizers.sh). */
#include "exec/data/chat.h"
#include "exec/data/jinja.h"
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

static struct json *golden(char *tokenizer, size_t size)
{
    const char *dir = getenv("ELAPSE_CHAT_CASES");
    struct json *root = NULL;
    struct err err = {0};
    char path[400];
    dir = dir ? dir : "tests/golden/chats";
    snprintf(path, sizeof path, "%s/chats.json", dir);
    if (json_read_file(path, &root, &err) != OK)
        fail_msg("%s", err.msg);
    snprintf(tokenizer, size, "%s/tokenizer.json", dir);
    return root;
}

/* Whether the bytes that are marked as generated are those of the parts, which count characters. */
static bool same_parts(const struct jinja_text *text, const struct json *parts)
{
    int64_t chars = -1;
    for (size_t i = 0; i < text->bytes; i++) {
        bool inside = false;
        chars += ((unsigned char)text->at[i] & 0xc0) != 0x80;
        for (const struct json *p = json_first(parts); p; p = json_next(p)) {
            int64_t first = 0, end = 0;
            json_int64(json_at(p, 0), &first);
            json_int64(json_at(p, 1), &end);
            inside |= chars >= first && chars < end;
        }
        if (inside != (text->marks[i] == JINJA_GENERATED))
            return false;
    }
    return true;
}

static void jinja_render__writes_what_transformers_writes(void **state)
{
    char tokenizer[420];
    struct json *root = golden(tokenizer, sizeof tokenizer);
    int rows = 0, wrong = 0;
    (void)state;
    for (const struct json *m = json_first(json_get(root, "texts")); m; m = json_next(m), rows++) {
        const char *name = json_string(json_at(m, 0)), *want = json_string(json_at(m, 2));
        const struct json *parts = json_at(m, 3);
        struct jinja *jinja = NULL;
        struct jinja_text text = {0};
        struct err err = {0};
        enum status rc =
            jinja_new(json_string(json_get(json_get(root, "templates"), name)), &jinja, &err);
        THEN(jinja_render(jinja, json_at(m, 1), &text, &err));
        if (want ? rc != OK || strcmp(text.at, want) != 0 : rc != ERR_INPUT) {
            print_error("%s: '%s' %s\n  wanted '%s'\n", name, text.at ? text.at : "", err.msg,
                        want ? want : "a refusal");
            wrong++;
        } else if (want && json_type(parts) == JSON_ARRAY && !same_parts(&text, parts)) {
            print_error("%s: other parts are generated\n", name);
            wrong++;
        }
        jinja_text_clear(&text);
        jinja_free(jinja);
    }
    json_free(root);
    if (wrong)
        fail_msg("%d of %d texts differ", wrong, rows);
    assert_true(rows > 100);
}

static void chat_tokens__equal_apply_chat_template(void **state)
{
    char path[420];
    struct json *root = golden(path, sizeof path), *config = NULL;
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    int rows = 0;
    (void)state;
    if (tokenizer_open(path, NULL, LOWER_AUTO, &tokenizer, &err) != OK)
        fail_msg("%s", err.msg);
    for (const struct json *m = json_first(json_get(root, "tokens")); m; m = json_next(m), rows++) {
        const char *name = json_string(json_at(m, 0));
        struct json *row = json_object_new();
        struct token_list tokens = {0};
        struct chat *chat = NULL;
        char *text = NULL;
        int64_t i = 0, id;
        config = json_object_new();
        json_add_string(config, "chat_template",
                        json_string(json_get(json_get(root, "templates"), name)));
        json_add_string(config, "bos_token", "<s>");
        json_add_string(json_add_object(config, "eos_token"), "content", "</s>");
        assert_int_equal(json_text(config, false, &text, NULL), OK);
        put_text("tokenizer_config.json", text);
        free(text);
        json_add_copy(row, "messages", json_at(m, 1));
        if (chat_open(in_folder("tokenizer.json"), tokenizer, &chat, &err) != OK ||
            chat_tokens(chat, row, &tokens, &err) != OK)
            fail_msg("%s: %s", name, err.msg);
        for (const struct json *t = json_first(json_at(m, 2)); t; t = json_next(t), i++)
            if (!json_int64(t, &id) || i >= tokens.count || tokens.at[i].id != id)
                fail_msg("%s: token %lld is another, or missing", name, (long long)i);
        assert_int_equal(tokens.count, i);
        token_list_clear(&tokens);
        chat_free(chat);
        json_free(config);
        json_free(row);
    }
    assert_true(rows >= 20);
    tokenizer_free(tokenizer);
    json_free(root);
}

/* The text of the tokens that count, with '|' between runs of them. */
static void counted(const char *template, const char *messages, char *to, struct err *err)
{
    struct tokenizer *tokenizer = NULL;
    struct chat *chat = NULL;
    struct token_list tokens = {0};
    struct json *row = NULL;
    size_t n = 0;
    bool before = false;
    put_text("chat_template.jinja", template);
    assert_int_equal(json_parse(messages, "messages", &row, err), OK);
    assert_int_equal(
        tokenizer_open("tests/golden/chats/tokenizer.json", NULL, LOWER_AUTO, &tokenizer, err), OK);
    enum status rc = chat_open(in_folder("tokenizer.json"), tokenizer, &chat, err);
    THEN(chat_tokens(chat, row, &tokens, err));
    for (int64_t i = 0; i < tokens.count; i++) {
        bool special;
        const bool now = tokens.at[i].end > 0;
        if (now && !before && n > 0)
            to[n++] = '|';
        if (now)
            n += tokenizer_bytes(tokenizer, tokens.at[i].id, to + n, 40, &special);
        before = now;
    }
    to[n] = '\0';
    token_list_clear(&tokens);
    chat_free(chat);
    tokenizer_free(tokenizer);
    json_free(row);
}

static void chat_tokens__count_what_an_assistant_says(void **state)
{
    static const char talk[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
                               "{\"role\":\"assistant\",\"content\":\" yo \"},"
                               "{\"role\":\"user\",\"content\":\"x\"},"
                               "{\"role\":\"assistant\",\"content\":\"ok\"}]}";
    static const struct {
        const char *template, *want;
    } cases[] = {
        {"{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor "
         "%}",                                                                            " yo <|im_end|>|ok<|im_end|>"          },
        {"{% for m in messages %}[{{ m.role }}]{{ m.content | trim + ' ' + '</s>' }}{% endfor %}",
         "yo </s>|ok </s>"                                                                                                                },
 /* The next turn's first token ends nothing. */
        {"{% for m in messages %}<|im_start|>{{ m.content }}\\n{% endfor %}",                      " yo |ok"                              },
        {"{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}, {{ m.content }}"
         "<|im_end|><|im_start|>{% endif %}{% endfor %}",                                 " yo ,  yo <|im_end|>|ok, ok<|im_end|>"},
        {"{% for m in messages %}{{ m.content }}{% generation %}{{ m.role }}{% endgeneration %}"
         "<|im_end|>{% endfor %}",                                                        "user|assistant|user|assistant"        },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        char text[400];
        counted(cases[i].template, talk, text, &err);
        if (strcmp(text, cases[i].want) != 0)
            fail_msg("case %zu: '%s' %s, wanted '%s'", i, text, err.msg, cases[i].want);
    }
}

static void jinja_new__and_render_name_what_they_lack(void **state)
{
    static const struct {
        const char *template, *words;
    } cases[] = {
        {"a\n{% include 'x' %}",                                     "line 2: statement 'include' is not"      },
        {"{{ a | sort }}",                                           "filter 'sort' is not supported"          },
        {"{{ a is upper }}",                                         "test 'upper' is not supported"           },
        {"{{ a.encode() }}",                                         "method 'encode' is not supported"        },
        {"{{ lipsum() }}",                                           "function 'lipsum' is not supported"      },
        {"{{ [1] }}",                                                "writes a list"                           },
        {"{{ 'a' | trim('a', 'b') }}",                               "'trim' with 2 arguments is not supported"},
        {"{{ '0x1f' | int(base=16) }}",                              "'int' with 'base' is not supported"      },
        {"{{ messages | map(attribute='x', default='y') }}",         "'map' with 'default' is not"             },
        {"{{ messages[0].get('a', default='b') }}",                  "'get' with 'default' is not supported"   },
        {"{{ 1 is odd(2) }}",                                        "'odd' with 1 arguments is not supported" },
        {"{{ range(1, stop=2) }}",                                   "'range' with 'stop' is not supported"    },
        {"{% macro f(a) %}{{ varargs }}{% endmacro %}{{ f(1, 2) }}", "that a macro does not name"              },
        {"{% macro f(a) %}{{ kwargs }}{% endmacro %}{{ f(b=2) }}",   "that a macro does not name"              },
        {"{{ 'a }}",                                                 "a text has no end"                       },
        {"{% if a %}",                                               "'elif' is missing"                       },
        {"{{ a",                                                     "a tag has no end"                        },
        {"{{ a b }}",                                                "'b' is not expected here"                },
        {"{{ raise_exception('no') }}",                              "it refuses the messages: no"             },
        {"{% for a in range(99999999) %}{% endfor %}",               "more than"                               },
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",          "calls have more than"                    },
        {"{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}"
         "{% set ns.x = ns.x + ns.x %}{% endfor %}",        "needs more than 256 MiB"                 },
    };
    char deep[3000];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        char text[100];
        counted(cases[i].template, "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", text,
                &err);
        if (!strstr(err.msg, cases[i].words))
            fail_msg("%s: '%s', wanted '%s'", cases[i].template, err.msg, cases[i].words);
    }
    for (int i = 0; i < 3; i++) {
        struct jinja *jinja = NULL;
        struct err err = {0};
        memset(deep, "([-"[i], sizeof deep);
        memcpy(deep, "{{ ", 3);
        deep[sizeof deep - 1] = '\0';
        assert_int_equal(jinja_new(deep, &jinja, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "levels"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jinja_render__writes_what_transformers_writes),
        cmocka_unit_test(chat_tokens__equal_apply_chat_template),
        cmocka_unit_test_setup_teardown(chat_tokens__count_what_an_assistant_says, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(jinja_new__and_render_name_what_they_lack, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
