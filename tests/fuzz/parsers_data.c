/* Data sets, tokenizers and pictures. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/data/dataset_open.h"
#include "exec/data/image_file.h"
#include "exec/data/jinja.h"
#include "exec/data/tokenizer.h"
#include "profiles/base/whole_file.h"
#include "tests/fuzz/fuzz.h"

void fuzz_image(const uint8_t *data, size_t size)
{
    struct pixels pixels = {0};
    struct err err = {0};
    fuzz_put("image", data, size);
    if (!fuzz_judge(image_read(fuzz_path("image"), &pixels, &err), &err))
        return;
    float *planes = malloc(3 * 8 * 8 * sizeof *planes);
    if (planes && image_square(&pixels, 8, planes, NULL) != OK)
        fuzz_wrong("a picture cannot be scaled");
    free(planes);
    free(pixels.rgb);
}

static const char words[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##b\nc\nthe\n##s\n.\n,\n";

/* Read the first and the last sample of each split: what the reader has accepted is readable. */
static void use_samples(const struct dataset *data)
{
    const size_t pixels = (size_t)data->channels * (size_t)data->image * (size_t)data->image;
    const size_t seq = (size_t)data->seq;
    float *image = malloc((pixels + 1) * sizeof *image);
    int32_t *tokens = malloc((4 * (seq + 2)) * sizeof *tokens);
    if (!image || !tokens)
        fuzz_wrong("no memory");
    const struct sample_out out = {.image = data->image ? image : NULL,
                                   .tokens = seq ? tokens : NULL,
                                   .token_types = seq ? tokens + seq : NULL,
                                   .labels = tokens + 2 * seq,
                                   .length = tokens + 3 * seq + 4};
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (int last = 0; last < 2 && data->num_samples[split] > 0; last++) {
            struct err err = {0};
            enum split source;
            const int64_t id = dataset_source(data, (enum split)split,
                                              last ? data->num_samples[split] - 1 : 0, &source);
            if (!fuzz_judge(data->sample(data, source, id, &out, &err), &err))
                fuzz_wrong(err.msg);
        }
    free(image);
    free(tokens);
}

/* Open what lies in the scratch folder. path, vocab: names in it. */
static void use_data(const char *model, enum data_kind kind, const char *path, const char *vocab)
{
    struct job job = {0};
    struct dataset data = {0};
    struct err err = {0};
    job_defaults(&job);
    if (model_parse(model, &job.model, &err) != OK)
        fuzz_wrong(err.msg);
    job.data.kind = kind;
    job.data.path = strdup(fuzz_path(path));
    job.data.vocab = vocab ? strdup(fuzz_path(vocab)) : NULL;
    if (fuzz_judge(dataset_open(&job, &data, &err), &err)) {
        use_samples(&data);
        dataset_clear(&data);
    }
    job_clear(&job);
}

void fuzz_tsv(const uint8_t *data, size_t size)
{
    fuzz_put("vocab.txt", words, strlen(words));
    fuzz_put("train.tsv", data, size);
    fuzz_put("dev.tsv", data, size);
    use_data("bert-base:task=classify,seq=8,classes=2,vocab=13,layers=1,hidden=8,heads=1,mlp=8",
             DATA_SST2, "", "vocab.txt");
}

/* One byte names the format; the rest is the file. */
void fuzz_table(const uint8_t *data, size_t size)
{
    static const char *const files[] = {"one.csv", "one.tsv", "one.jsonl"};
    if (size < 1)
        return;
    const char *file = files[data[0] % 3];
    fuzz_put("vocab.txt", words, strlen(words));
    fuzz_put(file, data + 1, size - 1);
    use_data("bert-base:task=classify,seq=8,classes=2,vocab=13,layers=1,hidden=8,heads=1,mlp=8",
             DATA_TABLE, file, "vocab.txt");
}

void fuzz_squad(const uint8_t *data, size_t size)
{
    fuzz_put("vocab.txt", words, strlen(words));
    fuzz_put("train-v1.1.json", data, size);
    fuzz_put("dev-v1.1.json", data, size);
    use_data("bert-base:task=qa,seq=16,vocab=13,layers=1,hidden=8,heads=1,mlp=8", DATA_SQUAD, "",
             "vocab.txt");
}

/* Encode a text. Its tokens stand for bytes of it, in its order, and are in the vocabulary. The places
 * do not change the tokens. */
static void use_tokenizer(const char *vocab, const char *merges, const uint8_t *text, size_t bytes)
{
    struct tokenizer *tokenizer = NULL;
    struct token_list tokens = {0}, plain = {0};
    struct err errs[3] = {0};
    char piece[64];
    bool special;
    int32_t before = 0;
    if (!fuzz_judge(tokenizer_open(vocab, merges, LOWER_AUTO, &tokenizer, &errs[0]), &errs[0]))
        return;
    const bool both =
        fuzz_judge(tokenizer_encode(tokenizer, (const char *)text, bytes, ENCODE_PLACES, &tokens,
                                    &errs[1]),
                   &errs[1]) &&
        fuzz_judge(tokenizer_encode(tokenizer, (const char *)text, bytes, 0, &plain, &errs[2]),
                   &errs[2]);
    for (int64_t i = 0; both && i < tokens.count; i++) {
        const struct token *t = &tokens.at[i];
        if (t->id < 0 || t->id >= tokenizer_size(tokenizer) || t->first < before ||
            t->end < t->first || (size_t)t->end > bytes)
            fuzz_wrong("a token lies outside of its text or of the vocabulary");
        before = t->first;
        tokenizer_bytes(tokenizer, t->id, piece, sizeof piece, &special);
        if (plain.count != tokens.count || plain.at[i].id != t->id)
            fuzz_wrong("with places, the tokens are others");
    }
    token_list_clear(&tokens);
    token_list_clear(&plain);
    tokenizer_free(tokenizer);
}

/* The vocabulary, and the text. */
void fuzz_wordpiece(const uint8_t *data, size_t size)
{
    size_t length;
    const uint8_t *part = fuzz_part(data, size, 0, &length);
    fuzz_put("vocab.txt", part, length);
    part = fuzz_part(data, size, 1, &length);
    use_tokenizer(fuzz_path("vocab.txt"), NULL, part, length);
}

/* vocab.json, merges.txt, and the text. */
void fuzz_bpe(const uint8_t *data, size_t size)
{
    size_t length;
    const uint8_t *part = fuzz_part(data, size, 0, &length);
    fuzz_put("vocab.json", part, length);
    part = fuzz_part(data, size, 1, &length);
    fuzz_put("merges.txt", part, length);
    part = fuzz_part(data, size, 2, &length);
    use_tokenizer(fuzz_path("vocab.json"), fuzz_path("merges.txt"), part, length);
}

/* Images, and labels. */
void fuzz_idx(const uint8_t *data, size_t size)
{
    size_t length;
    const uint8_t *part = fuzz_part(data, size, 0, &length);
    fuzz_put("train-images-idx3-ubyte", part, length);
    fuzz_put("t10k-images-idx3-ubyte", part, length);
    part = fuzz_part(data, size, 1, &length);
    fuzz_put("train-labels-idx1-ubyte", part, length);
    fuzz_put("t10k-labels-idx1-ubyte", part, length);
    use_data("vit-tiny:image=4,patch=2,channels=1,classes=3,layers=1,hidden=8,heads=1,mlp=8",
             DATA_IDX, "", NULL);
}

void fuzz_cifar(const uint8_t *data, size_t size)
{
    fuzz_put("data_batch_1.bin", data, size);
    fuzz_put("test_batch.bin", data, size);
    use_data("vit-tiny:image=32,patch=8,classes=10,layers=1,hidden=8,heads=1,mlp=8", DATA_CIFAR10,
             "", NULL);
}

void fuzz_lines(const uint8_t *data, size_t size)
{
    fuzz_put("input.txt", data, size);
    use_data("gpt2:seq=8,vocab=256,layers=1,hidden=8,heads=1,mlp=8", DATA_TEXT, "input.txt", NULL);
}

void fuzz_json_lines(const uint8_t *data, size_t size)
{
    fuzz_put("input.jsonl", data, size);
    use_data("gpt2:seq=8,vocab=256,layers=1,hidden=8,heads=1,mlp=8", DATA_TEXT, "input.jsonl",
             NULL);
}

/* tokenizer.json, and the text. */
void fuzz_tokenizer(const uint8_t *data, size_t size)
{
    size_t length;
    const uint8_t *part = fuzz_part(data, size, 0, &length);
    fuzz_put("tokenizer.json", part, length);
    part = fuzz_part(data, size, 1, &length);
    use_tokenizer(fuzz_path("tokenizer.json"), NULL, part, length);
}

/* A chat template, and JSON lines of messages. */
void fuzz_chat(const uint8_t *data, size_t size)
{
    char *tokenizer = NULL;
    size_t length, bytes;
    const uint8_t *part = fuzz_part(data, size, 0, &length);
    if (file_read("tests/golden/chats/tokenizer.json", &tokenizer, &bytes, NULL) != OK)
        fuzz_wrong("the tokenizer of the golden chats is missing");
    fuzz_put("tokenizer.json", tokenizer, bytes);
    free(tokenizer);
    fuzz_put("chat_template.jinja", part, length);
    part = fuzz_part(data, size, 1, &length);
    fuzz_put("input.jsonl", part, length);
    use_data("llama:seq=128,vocab=300,layers=1,hidden=8,heads=1,mlp=8", DATA_TEXT, "input.jsonl",
             "tokenizer.json");
    unlink(fuzz_path("tokenizer.json"));
    unlink(fuzz_path("chat_template.jinja"));
}

/* A template, and its variables. Marks are of messages that there are. */
void fuzz_jinja(const uint8_t *data, size_t size)
{
    size_t length, rest;
    const uint8_t *part = fuzz_part(data, size, 0, &length),
                  *more = fuzz_part(data, size, 1, &rest);
    char *template = fuzz_text(part, length), *variables = fuzz_text(more, rest);
    struct jinja *jinja = NULL;
    struct json *json = NULL;
    struct jinja_text text = {0};
    struct err err = {0}, second = {0};
    if (json_parse(variables, "variables", &json, NULL) == OK && json_type(json) == JSON_OBJECT &&
        fuzz_judge(jinja_new(template, &jinja, &err), &err) &&
        fuzz_judge(jinja_render(jinja, json, &text, &second), &second)) {
        const struct json *messages = json_get(json, "messages");
        const int most = messages ? json_count(messages) : 0;
        for (size_t i = 0; i < text.bytes; i++)
            if (text.marks[i] > most && text.marks[i] != JINJA_GENERATED)
                fuzz_wrong("a byte is of a message that there is not");
    }
    jinja_text_clear(&text);
    jinja_free(jinja);
    json_free(json);
    free(template);
    free(variables);
}
