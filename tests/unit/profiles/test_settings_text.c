/* TOML and YAML as JSON; right is what tomllib and PyYAML 6 make of the same text. */
#include "profiles/frameworks/settings_text.h"
#include "tests/unit/test.h"

static void files__become_objects(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text, *json;
    } cases[] = {
        {"a.toml",
         "# x\n[training]\nsteps = 1_000 # y\nname = \"a # b\"\n[model.args]\nlist = [1,\n 2]\non "
         "= true\n",                                                                               "{\"training\":{\"steps\":1000,\"name\":\"a # "
         "b\"},\"model\":{\"args\":{\"list\":[1,2],\"on\":true}}}"                                                                                                  },
        {"a.toml", "a.b = 3\n[c]\nd.e = 'x'\n",                                                    "{\"a\":{\"b\":3},\"c\":{\"d\":{\"e\":\"x\"}}}"                                      },
        {"a.yaml",
         "a: 1\nb:\n  c: x y\n  d: [1, 2]\n  e:\n  - p\n  - q: 1\n    r: 2\nf: null\ng: 'x: y'\n", "{\"a\":1,\"b\":{\"c\":\"x "
         "y\",\"d\":[1,2],\"e\":[\"p\",{\"q\":1,\"r\":2}]},\"f\":null,\"g\":\"x: y\"}"},
        {"a.yaml",
         "MODEL_ARGS:\n  --num-layers: 4\n  --bf16: true\n  # --fp16: true\n  --split: 99,1\n",    "{\"MODEL_ARGS\":{\"--num-layers\":4,\"--bf16\":true,\"--split\":\"99,1\"}}"         },
        {"a.yaml", "---\na: 5e7\nb:\nc: 1\n",                                                      "{\"a\":5e7,\"b\":null,\"c\":1}"                                                     },
        {"a.json", "{\"a\": 1}",                                                                   "{\"a\":1}"                                                                          },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json *object = NULL;
        struct err err = {0};
        char *text = NULL;
        if (settings_read(cases[i].text, cases[i].file, &object, &err) != OK)
            fail_msg("%s: %s", cases[i].text, err.msg);
        assert_int_equal(json_text(object, false, &text, &err), OK);
        assert_string_equal(text, cases[i].json);
        free(text);
        json_free(object);
    }
}

static void other_texts__are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text, *says;
    } cases[] = {
        {"a.yaml", "a: 1\nb\n",      "a.yaml:2: this is no 'key: value'" },
        {"a.yaml", "a: 1\n  b: 2\n", "a.yaml:2: the indent fits nothing" },
        {"a.yaml", "a: &x 1\n",      "a.yaml:1: anchors"                 },
        {"a.toml", "[a]\nb\n",       "a.toml:2: this is no 'key = value'"},
        {"a.json", "{\"a\": ",       "a.json"                            },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json *object = NULL;
        struct err err = {0};
        assert_int_equal(settings_read(cases[i].text, cases[i].file, &object, &err), ERR_INPUT);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("%s: %s", cases[i].text, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files__become_objects),
        cmocka_unit_test(other_texts__are_refused_with_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
