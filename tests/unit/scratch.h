/* tests/unit/scratch.h - a folder for a test or a group of them: its set-up and tear-down. */
#pragma once

#include <unistd.h>

#include "tests/unit/test.h"

static char scratch[32];

static inline int scratch_make(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/elapse-test-XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

/* With all that is in it, what may not be written too. */
static inline int scratch_remove(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -r %s", scratch, scratch);
    return system(command);
}

/* The path of a file in it; good for three more calls. */
static inline const char *at(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

/* Likewise, of a file with that text. */
static inline const char *file_with(const char *name, const char *text)
{
    const char *path = at(name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    return path;
}
