/* Text for language models: bytes, GPT-2 BPE on a vocabulary made here (no real one is at hand),
 * masked models. */
#include "exec/data/dataset_open.h"
#include "exec/data/tokenizer.h"
#include "exec/data/unicode.h"
#include "exec/data/dataset.h"
#include "profiles/base/whole_file.h"
#include "tests/unit/fail_malloc.h" /* before data_case.h, which then tests allocations too */
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

static const char *const gpt = "gpt2:layers=1,hidden=8,heads=1,mlp=8,vocab=300,seq=8";

static void text_open__byte_windows_lie_end_to_end(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    unsigned char bytes[100];
    int32_t tokens[8], labels[8], length;
    const struct sample_out out = {.tokens = tokens, .labels = labels, .length = &length};
    (void)state;
    for (int i = 0; i < 100; i++)
        bytes[i] = (unsigned char)(200 + i); /* no text at all: bytes are bytes */
    put_bytes("input.txt", bytes, sizeof bytes);
    make_job(&job, gpt, DATA_TEXT, "input.txt", NULL);
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    /* 90 training bytes: 11 windows of 8 with a successor each; 10 test bytes: 1. */
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 11);
    assert_int_equal(data.num_samples[SPLIT_TEST], 1);
    for (int s = 0; s < 12; s++) {
        int first = s < 11 ? 8 * s : 90;
        assert_int_equal(
            data.sample(&data, s < 11 ? SPLIT_TRAIN : SPLIT_TEST, s < 11 ? s : 0, &out, NULL), OK);
        assert_int_equal(length, 8);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(tokens[i], bytes[first + i]);
            assert_int_equal(labels[i], bytes[first + i + 1]);
        }
    }
    dataset_clear(&data);
    open_without_memory(&job);
    job_clear(&job);
    /* A folder with its own split. */
    make_job(&job, gpt, DATA_TEXT, "", NULL);
    put_bytes("train.txt", bytes, 33);
    put_bytes("test.txt", bytes, 9);
    assert_int_equal(dataset_open(&job, &data, NULL), OK);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 4);
    assert_int_equal(data.num_samples[SPLIT_TEST], 1);
    dataset_clear(&data);
    put_bytes("test.txt", bytes, 8);
    refuse_open(&job, ERR_INPUT, "the test split has 8 tokens, too few for one window of 8");
    put_bytes("test.txt", "\xfe\xff\0a\0b", 6);
    refuse_open(&job, ERR_INPUT, "test.txt: is UTF-16, must be UTF-8");
    unlink(in_folder("test.txt"));
    refuse_open(&job, ERR_SYSTEM, "test.txt': No such file");
    job.model.vocab = 255;
    refuse_open(&job, ERR_INPUT, "'bytes' has 256 tokens, model 'gpt2' has room for 255");
    job_clear(&job);
}

/* A file is read in pieces, the first of 128 KiB. */
static void text_open__reads_every_byte_of_a_long_file(void **state)
{
    enum { LONG = 400000 };
    struct job job;
    struct dataset data = {0};
    unsigned char *bytes = malloc(LONG);
    int32_t tokens[8], labels[8];
    const struct sample_out out = {.tokens = tokens, .labels = labels};
    (void)state;
    for (int i = 0; i < LONG; i++)
        bytes[i] = (unsigned char)(i * 31 + i / 256 * 7 + i / 65536);
    put_bytes("input.txt", bytes, LONG);
    make_job(&job, gpt, DATA_TEXT, "input.txt", NULL);
    assert_int_equal(dataset_open(&job, &data, NULL), OK);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], LONG / 10 * 9 / 8 - 1);
    for (int s = 0; s < data.num_samples[SPLIT_TRAIN]; s++) {
        assert_int_equal(data.sample(&data, SPLIT_TRAIN, s, &out, NULL), OK);
        for (int i = 0; i < 8; i++)
            assert_int_equal(tokens[i], bytes[8 * s + i]);
    }
    dataset_clear(&data);
    job_clear(&job);
    free(bytes);
}

/* --- GPT-2 BPE ---------------------------------------------------------------------------------
 */

/* The printable form of a byte. */
static int print_byte(int byte, char *to)
{
    int next = 0x100;
    for (int b = 0; b < 256; b++) {
        bool plain = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte)
            return utf8_put((uint32_t)(plain ? b : next), to);
        next += !plain;
    }
    return 0;
}

/* Ids 0..255 are the bytes; then each merge's result in order, then an end-of-text mark. */
static void put_bpe(const char *const *merges, int n, const char *tail)
{
    char text[8000] = "{", lines[2000] = "#version: 0.2\n";
    for (int b = 0; b < 256; b++) {
        char one[8] = "", quoted[16] = "";
        print_byte(b, one);
        snprintf(quoted, sizeof quoted, "%s%s", b == '"' || b == '\\' ? "\\" : "", one);
        snprintf(text + strlen(text), 32, "\"%s\": %d, ", quoted, b);
    }
    for (int i = 0; i < n; i++) {
        const char *space = strchr(merges[i], ' ');
        snprintf(text + strlen(text), 64, "\"%.*s%s\": %d, ", (int)(space - merges[i]), merges[i],
                 space + 1, 256 + i);
        snprintf(lines + strlen(lines), 64, "%s\n", merges[i]);
    }
    snprintf(text + strlen(text), 100, "\"<|endoftext|>\": %d}", 256 + n);
    strcat(lines, tail);
    put_text("vocab.json", text);
    put_text("merges.txt", lines);
}

/* "\xc4\xa0" is the printable form of a space. */
static const char *const merges[] = {"l o",
                                     "lo w",
                                     "e r",
                                     "\xc4\xa0 l",
                                     "\xc4\xa0 low",
                                     "low er",
                                     "' s",
                                     "1 2",
                                     "\xc4\xa0 \xc4\xa0",
                                     "\xc4\xa0l o",
                                     "\xc3\x83 \xc2\xa9"};
enum { LO = 256, LOW, ER, _L, _LOW, LOWER, APOS_S, TWELVE, SPACES, _LO, E_ACUTE, END };

static void expect_bpe(const struct tokenizer *bpe, const char *text, size_t bytes, int n,
                       const int32_t *want)
{
    struct token_list tokens = {0};
    int32_t at = 0;
    assert_int_equal(tokenizer_encode(bpe, text, bytes, ENCODE_PLACES, &tokens, NULL), OK);
    for (int i = 0; i < (int)tokens.count && i < n; i++) {
        if (tokens.at[i].id != want[i])
            fail_msg("'%s': token %d is %d, wanted %d", text, i, tokens.at[i].id, want[i]);
        assert_int_equal(tokens.at[i].first, at); /* nothing is lost: tokens tile the text */
        at = tokens.at[i].end;
    }
    if (tokens.count != n || at != (int32_t)bytes)
        fail_msg("'%s': %d tokens, wanted %d", text, (int)tokens.count, n);
    token_list_clear(&tokens);
}
#define EXPECT(text, ...)                                                                          \
    expect_bpe(bpe, text, strlen(text), (int)(sizeof((int32_t[]){__VA_ARGS__}) / 4),               \
               (const int32_t[]){__VA_ARGS__})

static void tokenizer_encode__joins_the_first_listed_pair_first(void **state)
{
    struct tokenizer *bpe = NULL;
    struct err err = {0};
    (void)state;
    put_bpe(merges, 11, "");
    if (tokenizer_open(in_folder("vocab.json"), in_folder("merges.txt"), LOWER_AUTO, &bpe, &err) !=
        OK)
        fail_msg("%s", err.msg);
    assert_int_equal(tokenizer_size(bpe), END + 1);
    EXPECT("low", LOW);
    EXPECT("lower", LOWER);
    EXPECT("lowlow", LOW, LOW);
    EXPECT(" low", _LOW);
    EXPECT(" lower", _LOW, ER); /* "_ low" stands before "low er" */
    EXPECT("it's", 'i', 't', APOS_S);
    EXPECT("12 12", TWELVE, ' ', TWELVE);
    EXPECT("a12", 'a', TWELVE);   /* letters and digits are words of their own */
    EXPECT("  x", ' ', ' ', 'x'); /* the last space belongs to the word: no pair of spaces */
    EXPECT("   x", SPACES, ' ', 'x');
    EXPECT("x  ", 'x', SPACES);
    EXPECT("x\n\ny", 'x', '\n', '\n', 'y');
    EXPECT("'S", '\'', 'S');
    EXPECT("\xc3\xa9", E_ACUTE);
    EXPECT("low<|endoftext|> low", LOW, END, _LOW);
    EXPECT("<|endoftext|><|endoftext|>", END, END);
    EXPECT("<|endoftext|", '<', '|', 'e', 'n', 'd', 'o', 'f', 't', 'e', 'x', 't', '|');
    tokenizer_find_special(bpe, false); /* data.special_tokens false */
    EXPECT("<|endoftext|>", '<', '|', 'e', 'n', 'd', 'o', 'f', 't', 'e', 'x', 't', '|', '>');
    tokenizer_free(bpe);
    /* Added tokens that vocab.json does not have. */
    put_text("tokenizer_config.json",
             "{\"added_tokens_decoder\": {\"300\": {\"content\": \"<|im_start|>\"}}}");
    if (tokenizer_open(in_folder("vocab.json"), in_folder("merges.txt"), LOWER_AUTO, &bpe, &err) !=
        OK)
        fail_msg("%s", err.msg);
    assert_int_equal(tokenizer_size(bpe), 301);
    EXPECT("<|im_start|>low<|endoftext|>", 300, LOW, END);
    tokenizer_free(bpe);
    unlink(in_folder("tokenizer_config.json"));
}

static void tokenizer_encode__takes_linear_time_on_a_word_without_end(void **state)
{
    struct tokenizer *bpe = NULL;
    struct token_list tokens = {0};
    enum { LONG = 1 << 20 };
    char *text = malloc(LONG);
    (void)state;
    put_bpe(merges, 11, "");
    assert_int_equal(
        tokenizer_open(in_folder("vocab.json"), in_folder("merges.txt"), LOWER_AUTO, &bpe, NULL),
        OK);
    memset(text, 'x', LONG);
    assert_int_equal(tokenizer_encode(bpe, text, LONG, 0, &tokens, NULL), OK);
    assert_int_equal(tokens.count, LONG);
    tokens.count = 0;
    memset(text, ' ', LONG);
    assert_int_equal(tokenizer_encode(bpe, text, LONG, 0, &tokens, NULL), OK);
    assert_int_equal(tokens.count, LONG / 2);
    token_list_clear(&tokens);
    tokenizer_free(bpe);
    free(text);
}

static void text_open__reads_gpt2_tokens(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    char text[400] = "";
    int32_t tokens[8], labels[8];
    const struct sample_out out = {.tokens = tokens, .labels = labels};
    (void)state;
    put_bpe(merges, 11, "");
    for (int i = 0; i < 45; i++)
        strcat(text, "lower\n");
    put_text("input.txt", text);
    make_job(&job, gpt, DATA_TEXT, "input.txt", "vocab.json");
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 10); /* 81 of 90 tokens */
    assert_int_equal(data.sample(&data, SPLIT_TRAIN, 3, &out, NULL), OK);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(tokens[i], i % 2 ? '\n' : LOWER);
        assert_int_equal(labels[i], i % 2 ? LOWER : '\n');
    }
    dataset_clear(&data);
    job.model.vocab = END;
    refuse_open(&job, ERR_INPUT, "vocab.json' has 268 tokens, model 'gpt2' has room for 267");
    job.model.vocab = 300;
    put_bpe(merges, 11, "l o\n");
    refuse_open(&job, ERR_INPUT, "merges.txt' line 13: 'l o' is not a pair of tokens");
    put_bpe(merges, 11, "x y\n");
    refuse_open(&job, ERR_INPUT, "line 13: 'x y' is not a pair");
    put_bpe(merges, 11, "nospace\n");
    refuse_open(&job, ERR_INPUT, "line 13: 'nospace'");
    put_text("vocab.json", "{\"a\": 0}");
    refuse_open(&job, ERR_INPUT, "is not a byte-level vocabulary: byte 0 has no token");
    put_text("vocab.json", "{\"a\": -1}");
    refuse_open(&job, ERR_INPUT, "the id of 'a' must be 0..268435455");
    put_text("vocab.json", "[1]");
    refuse_open(&job, ERR_INPUT, "must be an object of tokens and ids, got an array");
    put_bpe(merges, 11, "");
    unlink(in_folder("merges.txt"));
    refuse_open(&job, ERR_SYSTEM, "merges.txt': No such file");
    job_clear(&job);
}

/* --- masked models ---------------------------------------------------------------------------- */

static void text_open__reads_a_tokenizer_json(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    int32_t tokens[8];
    const struct sample_out out = {.tokens = tokens};
    char *file = NULL, text[400] = "the";
    size_t bytes = 0;
    (void)state;
    assert_int_equal(file_read("tests/golden/tokenizers/llama3.json", &file, &bytes, NULL), OK);
    put_bytes("tokenizer.json", file, bytes);
    free(file);
    for (int i = 1; i < 90; i++)
        strcat(text, " 12");
    put_text("input.txt", text);
    make_job(&job, gpt, DATA_TEXT, "input.txt", "tokenizer.json");
    refuse_open(&job, ERR_INPUT, "tokenizer.json' has 422 tokens, model 'gpt2' has room for 300");
    job.model.vocab = 422;
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(data.sample(&data, SPLIT_TRAIN, 0, &out, NULL), OK);
    assert_int_equal(tokens[0], 420); /* <|begin_of_text|> */
    assert_int_equal(tokens[2], tokens[5]);
    assert_int_equal(tokens[3], tokens[6]);
    dataset_clear(&data);
    open_without_memory(&job);
    job_clear(&job);
}

static void text_open__masks_fifteen_percent_for_masked_models(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    enum { SEQ = 12, LETTERS = 26, REPEAT = 800, EPOCHS = 4000 };
    char vocab[200] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n",
         *text = malloc(2 * LETTERS * REPEAT + 1);
    int32_t tokens[SEQ], labels[SEQ], again_tokens[SEQ], again[SEQ];
    const struct sample_out out = {.tokens = tokens, .labels = labels},
                            other = {.tokens = again_tokens, .labels = again};
    int inside = 0, predicted = 0, masked = 0, same = 0;
    (void)state;
    for (char c = 'a'; c <= 'z'; c++)
        snprintf(vocab + strlen(vocab), 4, "%c\n", c);
    put_text("vocab.txt", vocab);
    for (int i = 0; i < LETTERS * REPEAT; i++)
        snprintf(text + 2 * i, 3, "%c ", 'a' + i % LETTERS);
    put_text("input.txt", text);
    make_job(&job, "minilm-l6:task=mlm,vocab=31,seq=12", DATA_TEXT, "input.txt", "vocab.txt");
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], LETTERS * REPEAT * 9 / 10 / 10);
    for (int64_t id = 0; id < data.num_samples[SPLIT_TRAIN]; id++) {
        assert_int_equal(data.sample(&data, SPLIT_TRAIN, id, &out, NULL), OK);
        assert_int_equal(tokens[0], 2);
        assert_int_equal(tokens[SEQ - 1], 3);
        for (int i = 1; i < SEQ - 1; i++) {
            int truth = 5 + (int)((id * (SEQ - 2) + i - 1) % LETTERS);
            inside++;
            if (labels[i] == -100) {
                assert_int_equal(tokens[i], truth);
                continue;
            }
            assert_int_equal(labels[i], truth);
            predicted++;
            masked += tokens[i] == 4;
            same += tokens[i] == truth;
        }
    }
    assert_int_equal(predicted * 5, inside); /* 2 of 10, each sample */
    assert_int_equal(data.targets_per_sample, 2);
    assert_true(fabs((double)masked / predicted - .8) < .04);
    assert_true(fabs((double)same / predicted - .1) < .04);
    /* A training sample shows other masks each epoch, all places alike; a test sample never. */
    int at[SEQ] = {0}, repeats = 0;
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        memcpy(again, labels, sizeof again);
        assert_int_equal(dataset_view(&data, SPLIT_TRAIN, epoch, 7, &out, NULL, NULL), OK);
        repeats += memcmp(again, labels, sizeof again) == 0;
        for (int i = 0; i < SEQ; i++)
            at[i] += labels[i] >= 0;
        assert_int_equal(dataset_view(&data, SPLIT_TRAIN, epoch, 7, &other, NULL, NULL), OK);
        assert_memory_equal(again_tokens, tokens, sizeof tokens);
        assert_memory_equal(again, labels, sizeof labels);
        assert_int_equal(dataset_view(&data, SPLIT_TEST, epoch, 7, &other, NULL, NULL), OK);
        assert_int_equal(dataset_view(&data, SPLIT_TEST, 0, 7, &out, NULL, NULL), OK);
        assert_memory_equal(again_tokens, tokens, sizeof tokens);
    }
    for (int i = 1; i < SEQ - 1; i++) /* of 4000, 800 expected, deviation 25 */
        assert_in_range(at[i], 700, 900);
    assert_true(at[0] == 0 && at[SEQ - 1] == 0);
    assert_in_range(repeats, EPOCHS / 90, EPOCHS / 22); /* 45 pairs of places */
    dataset_clear(&data);
    free(job.data.vocab);
    job.data.vocab = NULL;
    refuse_open(&job, ERR_INPUT,
                "data.vocab must be a vocab.txt or tokenizer.json for masked models");
    job_clear(&job);
    make_job(&job, "minilm-l6:task=classify,vocab=31,seq=12", DATA_TEXT, "input.txt", "vocab.txt");
    refuse_open(&job, ERR_INPUT, "data.kind text is for language models");
    job_clear(&job);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text_open__byte_windows_lie_end_to_end, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(text_open__reads_every_byte_of_a_long_file, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(tokenizer_encode__joins_the_first_listed_pair_first,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(tokenizer_encode__takes_linear_time_on_a_word_without_end,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(text_open__reads_gpt2_tokens, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(text_open__reads_a_tokenizer_json, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(text_open__masks_fifteen_percent_for_masked_models,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
