/* The inputs of tests/fuzz, corpus and past findings, through their parsers. seconds: 1
 *
 * `make fuzz` looks for new findings; this needs no clang. Under `make asan` it finds again all that
 * sanitizers had found. With ELAPSE_FUZZ_SECONDS=N the inputs are changed at random for N seconds, shared
 * by the parsers; a crash, an endless loop or a contradiction fails. ELAPSE_FUZZ_SEED repeats a run. */
#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include "exec/checkpoint/checkpoint.h" /* this and those of the parsers are the rooms to link */
#include "profiles/base/whole_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/test.h"

struct input {
    char *bytes; /* owned */
    size_t size;
};
enum { MAX_INPUTS = 64, MAX_BYTES = 1 << 16, MAX_SECONDS_OF_INPUT = 30 };

/* Read the inputs of a folder by name, so that a seed means the same everywhere; returns their number. */
static int read_inputs(const struct fuzz_parser *parser, const char *folder, struct input *inputs)
{
    char path[512];
    struct dirent **entries = NULL;
    int num = 0;
    snprintf(path, sizeof path, "tests/fuzz/%s/%s", folder, parser->name);
    const int num_entries = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < num_entries; i++) {
        if (*entries[i]->d_name != '.') {
            assert_true(num < MAX_INPUTS);
            snprintf(path, sizeof path, "tests/fuzz/%s/%s/%.200s", folder, parser->name,
                     entries[i]->d_name);
            struct input *input = &inputs[num++];
            assert_int_equal(file_read(path, &input->bytes, &input->size, NULL), OK);
        }
        free(entries[i]);
    }
    free(entries);
    return num;
}

/* Returns the number of inputs. */
static int replay(const struct fuzz_parser *parser, const char *folder)
{
    struct input inputs[MAX_INPUTS];
    const int num = read_inputs(parser, folder, inputs);
    for (int i = 0; i < num; i++) {
        parser->run((const uint8_t *)inputs[i].bytes, inputs[i].size);
        free(inputs[i].bytes);
    }
    return num;
}

/* A corpus of which the parser accepts nothing has grown old. */
static void stands_its_inputs(void **state)
{
    const struct fuzz_parser *parser = *state;
    replay(parser, "found");
    fuzz_accepted = 0;
    assert_true(replay(parser, "corpus") > 0);
    assert_true(fuzz_accepted > 0);
}

/* --- random changes ------------------------------------------------------------------------------ */

static uint64_t seed;

/* xorshift64 (Marsaglia, 2003); below n > 0. */
static size_t any(size_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (size_t)(seed % n);
}

/* Change one place of text, which has room for MAX_BYTES. Returns the new size. */
static size_t change(uint8_t *text, size_t size, const struct input *other)
{
    static const char *const odd[] = {"",      "-1",   "0",        "9223372036854775807",
                                      "1e999", "null", "\"",       "[[[[[[[[",
                                      "\n",    "\xff", "\xc0\x80", "1000000000000000000000"};
    const size_t at = any(size + 1), length = any(size - at + 1);
    switch (any(6)) {
    case 0: /* a bit */
        if (at < size)
            text[at] ^= (uint8_t)(1u << any(8));
        return size;
    case 1: /* a byte */
        if (at < size)
            text[at] = (uint8_t)any(256);
        return size;
    case 2: /* without a piece */
        memmove(text + at, text + at + length, size - at - length);
        return size - length;
    case 3: /* cut off */
        return at;
    case 4: { /* a piece of another input */
        const size_t from = any(other->size + 1), piece = any(other->size - from + 1);
        if (size + piece > MAX_BYTES)
            return size;
        memmove(text + at + piece, text + at, size - at);
        memcpy(text + at, other->bytes + from, piece);
        return size + piece;
    }
    default: { /* an odd word */
        const char *word = odd[any(sizeof odd / sizeof *odd)];
        const size_t piece = strlen(word);
        if (size + piece > MAX_BYTES)
            return size;
        memmove(text + at + piece, text + at, size - at);
        memcpy(text + at, word, piece);
        return size + piece;
    }
    }
}

static void stands_changed_inputs(void **state)
{
    const struct fuzz_parser *parser = *state;
    const double seconds = atof(getenv("ELAPSE_FUZZ_SECONDS")) / FUZZ_PARSERS;
    const char *wanted = getenv("ELAPSE_FUZZ_SEED");
    struct input inputs[MAX_INPUTS];
    struct timespec begun, now;
    const int num = read_inputs(parser, "corpus", inputs);
    uint8_t *text = malloc(MAX_BYTES);
    int64_t runs = 0;
    assert_non_null(text);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    seed = wanted ? strtoull(wanted, NULL, 10) : (uint64_t)begun.tv_nsec * 2 + 1;
    print_message("# %s: ELAPSE_FUZZ_SEED=%llu\n", parser->name, (unsigned long long)seed);
    do {
        const struct input *from = &inputs[any((size_t)num)];
        size_t size = from->size < MAX_BYTES ? from->size : MAX_BYTES;
        memcpy(text, from->bytes, size);
        for (size_t left = 1 + any(5); left > 0; left--)
            size = change(text, size, &inputs[any((size_t)num)]);
        alarm(MAX_SECONDS_OF_INPUT);
        parser->run(text, size);
        runs++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (difftime(now.tv_sec, begun.tv_sec) + 1e-9 * (double)(now.tv_nsec - begun.tv_nsec) <
             seconds);
    alarm(0);
    print_message("# %s: %lld inputs\n", parser->name, (long long)runs);
    for (int i = 0; i < num; i++)
        free(inputs[i].bytes);
    free(text);
}

static int begin(void **state)
{
    (void)state;
    fuzz_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    fuzz_end();
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[FUZZ_PARSERS];
    const bool smoke = getenv("ELAPSE_FUZZ_SECONDS") != NULL;
    for (int i = 0; i < FUZZ_PARSERS; i++)
        tests[i] =
            (struct CMUnitTest){.name = fuzz_parsers[i].name,
                                .test_func = smoke ? stands_changed_inputs : stands_its_inputs,
                                .initial_state = (void *)&fuzz_parsers[i]};
    return cmocka_run_group_tests_name("fuzz", tests, begin, end);
}
