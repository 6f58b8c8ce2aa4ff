/* partition/options.h - long options with units, from a table; used by the mains of both programs.
 *
 * A command declares an array of struct option whose values point at its own variables (already
 * holding the defaults), and parses. "--name value" and "--name=value" both work; "--" ends
 * options. Pure: prints nothing. */
#ifndef ELAPSE_PARTITION_OPTIONS_H
#define ELAPSE_PARTITION_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/status.h"

/* Exit code of a rank that `elapse` has started, in place of ERR_INFEASIBLE's 1: that is what an
 * MPI's launcher ends with when it fails by itself. */
#define EXIT_RANK_INFEASIBLE 65

enum option_type {
    OPTION_FLAG,   /* bool */
    OPTION_STRING, /* const char *, borrowed from argv */
    OPTION_LIST,   /* struct option_list, repeatable */
    OPTION_INT,    /* int64_t, min..max */
    OPTION_NS,     /* int64_t */
    OPTION_BYTES,  /* int64_t */
    OPTION_RATE,   /* double, bytes per second */
    OPTION_RATIO   /* double */
};

#define OPTION_LIST_MAX 64
struct option_list {
    const char *items[OPTION_LIST_MAX]; /* borrowed from argv */
    int count;
};

struct option {
    const char *name; /* without dashes; "-n" as "n" (single letters take one dash) */
    enum option_type type;
    void *value;
    const char *arg;  /* placeholder in the help, NULL for flags */
    const char *help; /* one line, the default in it */
    int64_t min, max; /* OPTION_INT only */
    bool *seen;       /* may be NULL; set when the option was given */
};

/* Parse argv[1..argc). Positional arguments go to positional (borrowed), at most max_positional.
 * *help is set and OK returned at once on --help. ERR_INPUT: unknown option (with the nearest),
 * missing or malformed value, too many positionals, an option given twice (unless a list). */
enum status options_parse(const struct option *options, int num_options, int argc, char **argv,
                          const char **positional, int max_positional, int *num_positional,
                          bool *help, struct err *err);

/* The help text of a table, aligned, into buf (always terminated); returns the length needed. */
size_t options_help(const struct option *options, int num_options, char *buf, size_t size);

#endif
