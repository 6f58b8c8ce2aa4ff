/* partition/options.h - parse long options with units from a table, for both programs.
 *
 * A command declares an array of struct option whose values point at its own variables. Those hold
 * the defaults before options_parse() is called. "--name value" and "--name=value" both work; "--"
 * ends the options. Pure: prints nothing. */
#ifndef ELAPSE_PARTITION_OPTIONS_H
#define ELAPSE_PARTITION_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/status.h"

/* A rank started by `elapse` exits with this code for ERR_INFEASIBLE. It cannot use 1, because an
 * MPI launcher exits with 1 when the launcher itself fails. */
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
    const char *name; /* without dashes; a single letter takes one dash: "n" is "-n" */
    enum option_type type;
    void *value;
    const char *arg;  /* placeholder in the help, NULL for flags */
    const char *help; /* one line that states the default */
    int64_t min, max; /* OPTION_INT only */
    bool *seen;       /* may be NULL; set when the option was given */
};

/* Parse argv[1..argc). Positional arguments go to positional (borrowed), at most max_positional.
 * On --help it sets *help and returns OK at once. ERR_INPUT: an unknown option (the hint names the
 * nearest), a missing or malformed value, too many positionals, an option given twice that is not
 * an OPTION_LIST. */
enum status options_parse(const struct option *options, int num_options, int argc, char **argv,
                          const char **positional, int max_positional, int *num_positional,
                          bool *help, struct err *err);

/* Write the aligned help text of a table into buf (always terminated). Returns the length needed.
 */
size_t options_help(const struct option *options, int num_options, char *buf, size_t size);

#endif
