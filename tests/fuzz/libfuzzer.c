/* tests/fuzz/libfuzzer.c - the entry points of libFuzzer (`make fuzz`).
 *
 *   ELAPSE_FUZZ=PARSER elapse-fuzz [libFuzzer's options] CORPUS...
 *   elapse-fuzz -names=1                       the parsers, one a line */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void (*chosen)(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("ELAPSE_FUZZ");
    const bool names = *argc == 2 && strcmp((*argv)[1], "-names=1") == 0;
    for (int i = 0; i < FUZZ_PARSERS; i++)
        if (names)
            puts(fuzz_parsers[i].name);
        else if (name && strcmp(fuzz_parsers[i].name, name) == 0)
            chosen = fuzz_parsers[i].run;
    if (names)
        exit(0);
    if (!chosen) {
        fprintf(stderr, "fuzz: ELAPSE_FUZZ must name a parser (-names=1 lists them)\n");
        exit(2);
    }
    fuzz_begin();
    atexit(fuzz_end);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    chosen(data, size);
    return 0;
}
