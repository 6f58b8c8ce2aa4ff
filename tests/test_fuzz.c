/* The inputs of tests/fuzz, corpus and past findings, through their parsers. seconds: 1
 *
 * `make fuzz` looks for new findings; this needs no clang. Under `make asan` it finds again all that
 * sanitizers had found. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "exec/save/checkpoint.h" /* this and those of the parsers are the rooms to link */
#include "profiles/whole_file.h"
#include "tests/fuzz/fuzz.h"

/* Returns the number of inputs in a folder. */
static int replay(const struct fuzz_parser *parser, const char *folder)
{
    char path[512];
    int num = 0;
    snprintf(path, sizeof path, "tests/fuzz/%s/%s", folder, parser->name);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char *bytes = NULL;
        size_t size;
        if (*entry->d_name == '.')
            continue;
        snprintf(path, sizeof path, "tests/fuzz/%s/%s/%.200s", folder, parser->name, entry->d_name);
        assert_int_equal(file_read(path, &bytes, &size, NULL), OK);
        parser->run((const uint8_t *)bytes, size);
        free(bytes);
        num++;
    }
    if (dir)
        closedir(dir);
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
    for (int i = 0; i < FUZZ_PARSERS; i++)
        tests[i] = (struct CMUnitTest){.name = fuzz_parsers[i].name,
                                       .test_func = stands_its_inputs,
                                       .initial_state = (void *)&fuzz_parsers[i]};
    return cmocka_run_group_tests_name("fuzz", tests, begin, end);
}
