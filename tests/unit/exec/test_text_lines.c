/* JSON lines: which tokens count, how documents are packed, what is refused. tests/e2e/e2e_lines.sh trains
 * on them. */
#include "exec/data/dataset.h"
#include "exec/data/dataset_open.h"
#include "profiles/base/whole_file.h"
#include "tests/unit/fail_malloc.h" /* before data_case.h, which then tests allocations too */
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

enum { SEQ = 8, NONE = -100 };
static const char *const llama = "llama:layers=1,hidden=8,heads=1,mlp=8,vocab=256,seq=8";

struct window {
    const char *tokens; /* '.': 0, padding */
    const char *labels; /* '.': none */
    int32_t first[SEQ];
};

static void expect_windows(const struct dataset *data, enum split split,
                           const struct window *windows, int n)
{
    assert_int_equal(data->num_samples[split], n);
    for (int s = 0; s < n; s++) {
        int32_t tokens[SEQ], labels[SEQ], first[SEQ];
        const struct sample_out out = {.tokens = tokens, .labels = labels, .token_types = first};
        assert_int_equal(data->sample(data, split, s, &out, NULL), OK);
        for (int i = 0; i < SEQ; i++) {
            const char token = windows[s].tokens[i], label = windows[s].labels[i];
            if (tokens[i] != (token == '.' ? 0 : token) ||
                labels[i] != (label == '.' ? NONE : label) || first[i] != windows[s].first[i])
                fail_msg("window %d, token %d: %d, label %d, from %d", s, i, tokens[i], labels[i],
                         first[i]);
        }
    }
}

static void open_lines(struct job *job, struct dataset *data)
{
    struct err err = {0};
    if (dataset_open(job, data, &err) != OK)
        fail_msg("%s", err.msg);
}

static void text_lines_open__packs_documents_and_counts_completions(void **state)
{
    static const struct window train[] = {
        {"abcde...",                 "bcde....", {0, 0, 0, 0, 0, 5, 6, 7}}, /* the next one does not fit */
        {"PQxyzPc.",                 ".xyz.c..", {0, 0, 0, 0, 0, 5, 5, 7}},
        {"0123456789" /* goes on */, "12345678", {0, 0, 0, 0, 0, 0, 0, 0}},
        {"89.......",                "9.......", {0, 0, 2, 3, 4, 5, 6, 7}},
    };
    static const struct window test[] = {
        {"to......", "o.......", {0, 0, 2, 3, 4, 5, 6, 7}}
    };
    struct job job;
    struct dataset data = {0};
    (void)state;
    put_text("d.jsonl", "{\"text\":\"abcde\"}\n"
                        "{\"prompt\":\"PQ\",\"completion\":\"xyz\"}\n"
                        "\n"
                        "{\"prompt\":\"P\",\"completion\":\"c\",\"id\":7}\r\n"
                        "{\"text\":\"0123456789\"}\n"
                        "{\"text\":\"to\"}");
    make_job(&job, llama, DATA_TEXT, "d.jsonl", NULL);
    open_lines(&job, &data);
    expect_windows(&data, SPLIT_TRAIN, train, 4);
    expect_windows(&data, SPLIT_TEST, test, 1);
    assert_true(data.packed);
    dataset_clear(&data);
    open_without_memory(&job);
    job_clear(&job);
    /* A folder with its own split; a prompt that is too long is cut off, and a note says so. */
    put_text("train.jsonl",
             "{\"prompt\":\"0123456789\",\"completion\":\"x\"}\n{\"text\":\"ab\"}\n");
    put_text("test.jsonl", "{\"text\":\"ab\"}\n");
    make_job(&job, llama, DATA_TEXT, "", NULL);
    open_lines(&job, &data);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 1);
    assert_non_null(strstr(data.notes, "1 documents are longer than 8 tokens"));
    assert_non_null(strstr(data.notes, "1 of 3 documents have no token that counts in the loss"));
    dataset_clear(&data);
    put_text("train.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\"}\n{\"text\":\"ab\"}\n");
    open_lines(&job, &data);
    assert_non_null(strstr(data.notes, "2 of 4 documents have no token that counts in the loss"));
    dataset_clear(&data);
    /* Nothing counts at all. */
    put_text("train.jsonl", "{\"prompt\":\"0123456789\",\"completion\":\"x\"}\n");
    refuse_open(&job, ERR_INPUT,
                "training split has no token that counts in the loss, in none of 1");
    put_text("train.jsonl", "{\"prompt\":\"01\",\"completion\":\"\"}\n");
    refuse_open(&job, ERR_INPUT, "no token that counts in the loss");
    put_text("train.jsonl", "{\"text\":\"ab\"}\n");
    put_text("test.jsonl", "{\"prompt\":\"01\",\"completion\":\"\"}\n");
    refuse_open(&job, ERR_INPUT, "the test split has no token that counts in the loss");
    job_clear(&job);
}

/* A tokenizer.json of bytes with some special tokens. */
static void put_tokenizer(const char *specials)
{
    char *text = NULL, *added = NULL;
    size_t bytes = 0;
    assert_int_equal(file_read("tests/golden/tokenizers/qwen.json", &text, &bytes, NULL), OK);
    text = realloc(text, bytes + 1);
    text[bytes] = '\0';
    char *start = strstr(text, "\"added_tokens\":["), *end = strchr(start, ']');
    assert_true(asprintf(&added, "%.*s\"added_tokens\":[%s%s", (int)(start - text), text, specials,
                         end) > 0);
    put_text("tokenizer.json", added);
    free(added);
    free(text);
}
#define TOKEN(id, text) "{\"id\":" #id ",\"content\":\"" text "\",\"special\":true}"

/* Every token that the assistant says counts, and the one that ends its message; nothing else. */
static void text_lines_open__writes_chats_by_their_template(void **state)
{
    static const struct {
        const char *specials;
        int32_t begin, end;
        int spoken; /* tokens */
    } cases[] = {
        {TOKEN(600,                             "<|im_start|>") "," TOKEN(601, "<|im_end|>"), 600, 601, 3},
        { TOKEN(600, "<|start_header_id|>") "," TOKEN(602,               "<|end_header_id|>") "," TOKEN(
             601,               "<|eot_id|>"),
         600,                                                                                      601, 3},
    };
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"7\"},"
                               "{\"role\":\"assistant\",\"content\":\"7 7\"}]}\n";
    struct job job;
    (void)state;
    put_text("c.jsonl", chat);
    put_text("train.jsonl", chat);
    put_text("test.jsonl", chat);
    for (int i = 0; i < 2; i++) {
        struct dataset data = {0};
        int32_t tokens[64], labels[64];
        const struct sample_out out = {.tokens = tokens, .labels = labels};
        int spoken = 0, begins = 0;
        put_tokenizer(cases[i].specials);
        make_job(&job, "llama:layers=1,hidden=8,heads=1,mlp=8,vocab=603,seq=64", DATA_TEXT, "",
                 "tokenizer.json");
        open_lines(&job, &data);
        assert_int_equal(data.sample(&data, SPLIT_TRAIN, 0, &out, NULL), OK);
        assert_int_equal(tokens[0], cases[i].begin);
        for (int k = 0; k < 64; k++) {
            begins += tokens[k] == cases[i].begin;
            spoken += labels[k] != NONE;
            if (labels[k] == cases[i].end)
                assert_int_equal(spoken, 4); /* 7, space, 7, the end: the last one */
        }
        assert_int_equal(begins, 2);
        assert_int_equal(spoken, 4);
        dataset_clear(&data);
        job_clear(&job);
    }
    put_tokenizer(TOKEN(600, "<start_of_turn>"));
    make_job(&job, "llama:layers=1,hidden=8,heads=1,mlp=8,vocab=603,seq=64", DATA_TEXT, "",
             "tokenizer.json");
    refuse_open(&job, ERR_INPUT, "messages need a chat_template");
    job_clear(&job);
}

/* The template beside the tokenizer counts, whatever tokens there are; the first of the files that may
 * hold one. */
static void text_lines_open__writes_chats_by_the_template_beside_the_tokenizer(void **state)
{
    static const struct {
        const char *file, *text, *words; /* of a note, or of an error */
        int begins;                      /* tokens <|im_start|>; -1: an error */
    } cases[] = {
        {"tokenizer_config.json",
         "{\"chat_template\":\"{% for m in messages %}<|im_start|>{{ m.content }}"
         "{% endfor %}\"}",                                                                 "by the chat template of",                            2 },
        {"tokenizer_config.json",
         "{\"chat_template\":[{\"name\":\"tools\",\"template\":\"{{\"},"
         "{\"name\":\"default\",\"template\":\"<|im_start|>{{ messages[1].content }}\"}]}", "tokenizer_config.json'",                             1 },
        {"chat_template.json",    "{\"chat_template\":\"{{ x | nope }}\"}",                 "tokenizer_config.json'",
         1                                                                                                                                          },
        {"chat_template.jinja",
         "{{ strftime_now('%d') }}<|im_start|><|im_start|><|im_start|>"
         "{{ messages[1].content }}\n",                                                     "chat_template.jinja', which may write today's date", 3 },
        {"chat_template.jinja",   "{{ messages | nope }}",
         "chat_template.jinja': chat template line 1: filter 'nope' is not supported",                                                            -1},
        {"chat_template.jinja",   "{{ messages[0].content }} x",                            "no token that counts",                               -1},
    };
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"7\"},"
                               "{\"role\":\"assistant\",\"content\":\"7 7\"}]}\n";
    struct job job;
    (void)state;
    put_text("train.jsonl", chat);
    put_text("test.jsonl", chat);
    put_tokenizer(TOKEN(600, "<|im_start|>") "," TOKEN(601, "<|im_end|>"));
    make_job(&job, "llama:layers=1,hidden=8,heads=1,mlp=8,vocab=603,seq=64", DATA_TEXT, "",
             "tokenizer.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dataset data = {0};
        int32_t tokens[64];
        const struct sample_out out = {.tokens = tokens};
        int begins = 0;
        put_text(cases[i].file, cases[i].text);
        if (cases[i].begins < 0) {
            refuse_open(&job, ERR_INPUT, cases[i].words);
            continue;
        }
        open_lines(&job, &data);
        assert_int_equal(data.sample(&data, SPLIT_TRAIN, 0, &out, NULL), OK);
        for (int k = 0; k < 64; k++)
            begins += tokens[k] == 600;
        if (begins != cases[i].begins || !strstr(data.notes, cases[i].words))
            fail_msg("case %zu: %d, '%s'", i, begins, data.notes);
        dataset_clear(&data);
    }
    put_text("chat_template.jinja", "{% set a = [1] %}{{ messages[1].content }} x");
    open_without_memory(&job);
    job_clear(&job);
}

static void text_lines_open__names_file_and_line(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{\"text\":\"ab\"}\n{\"tex\":\"ab\"}\n", "d.jsonl' line 2: a line needs \"text\""},
        {"{\"prompt\":\"ab\"}\n",                 "line 1: a line needs"                  },
        {"{\"text\":\"ab\"\n",                    "line 1: "                              },
        {"[1]\n",                                 "line 1: a line must be an object"      },
        {"{\"text\":\"a\"}\n",                    "has no document of 2 tokens or more"   },
        {"{\"messages\":[]}\n",                   "messages need a chat_template"         },
        {"",                                      "has no document"                       },
    };
    struct job job;
    (void)state;
    make_job(&job, llama, DATA_TEXT, "d.jsonl", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text("d.jsonl", cases[i].text);
        refuse_open(&job, ERR_INPUT, cases[i].words);
    }
    job.model.vocab = 255;
    refuse_open(&job, ERR_INPUT, "'bytes' has 256 tokens, model 'llama' has room for 255");
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_lines_open__packs_documents_and_counts_completions),
        cmocka_unit_test(text_lines_open__writes_chats_by_their_template),
        cmocka_unit_test(text_lines_open__writes_chats_by_the_template_beside_the_tokenizer),
        cmocka_unit_test(text_lines_open__names_file_and_line),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
