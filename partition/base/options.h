/* partition/base/options.h - parse long options with units from a table, and describe them, for both
 * programs.
 *
 * A command declares an array of struct option whose values point at its own variables. Those hold
 * the defaults before options_parse() is called. "--name value" and "--name=value" both work; "--"
 * ends the options. Pure: prints nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/member.h"
#include "partition/base/status.h"

/* A rank started by `elapse` exits with this code for ERR_INFEASIBLE. It cannot use 1, because an
 * MPI launcher exits with 1 when the launcher itself fails. */
#define EXIT_RANK_INFEASIBLE 65

/* The types of members, two of them with other values, and a list. */
enum option_type {
    OPTION_FLAG = MEMBER_BOOL,     /* bool */
    OPTION_STRING = MEMBER_STRING, /* const char *, borrowed from argv */
    OPTION_LIST = MEMBER_OTHER,    /* struct option_list, repeatable */
    OPTION_INT = MEMBER_INT,       /* int64_t, min..max */
    OPTION_NS = MEMBER_NS,
    OPTION_BYTES = MEMBER_BYTES,
    OPTION_RATE = MEMBER_RATE,
    OPTION_RATIO = MEMBER_REAL
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
    const char *arg;   /* placeholder in the help, NULL for flags */
    const char *help;  /* one line that states the default; %s in it becomes the values */
    int64_t min, max;  /* OPTION_INT only */
    bool *seen;        /* may be NULL; set when the option was given */
    const char *group; /* a heading that the help prints above this option; NULL: none */
    const struct member_table
        *keys;                /* of the job that it overrides, whose words of other tools hints
                                  know; NULL: none */
    const char *const *names; /* the words that it takes, NULL-terminated; or */
    const char *values;       /* the words that it takes, "ring tree"; NULL: not a fixed set */
    bool leave;               /* options_take() reads it, and leaves it in argv */
};

/* A row of an option table: OPTION("n", INT, &ranks, "RANKS", "ranks (default 1)", .max = 64). The
 * arguments after the help text set further members. */
#define OPTION(name_, type_, value_, arg_, help_, ...)                                             \
    {                                                                                              \
        .name = (name_), .type = OPTION_##type_, .value = (value_), .arg = (arg_),                 \
        .help = (help_), __VA_ARGS__                                                               \
    }
/* Options that many commands have. */
#define OPTION_JSON(flag) OPTION("json", FLAG, flag, NULL, "one JSON object on standard output")
#define OPTION_QUIET(flag) OPTION("quiet", FLAG, flag, NULL, "no progress on stderr")
#define OPTION_DB(path)                                                                            \
    OPTION("db", STRING, path, "FILE",                                                             \
           "profile store (default: $ELAPSE_DB, else ~/.local/share/elapse)")

#define POSITIONAL_MAX 64

/* An option that a command declares, with the value that it was given. */
struct command_line {
    const struct option *options;
    int num_options;
    int max_positional; /* 0..POSITIONAL_MAX */
    /* Filled by options_parse(). */
    bool help; /* --help was given, and what follows it was not read */
    bool rows; /* it was --help=rows: options_rows() in place of options_help() */
    int num_positional;
    const char *positional[POSITIONAL_MAX]; /* borrowed from argv; NULL where none was given */
};

/* The initializer of a struct command_line from an array of options. */
#define COMMAND_LINE(table, max_positional_)                                                       \
    {                                                                                              \
        .options = (table), .num_options = (int)(sizeof(table) / sizeof *(table)),                 \
        .max_positional = (max_positional_)                                                        \
    }

/* Append rows to a table that has room for them. Returns the new number of options. */
int options_add(struct option *options, int num_options, const struct option *rows,
                size_t num_rows);

/* Parse argv[1..argc) into the variables of line->options and into line. On --help it returns OK
 * at once. ERR_INPUT: an unknown option (the hint names ours, or the nearest), a missing or malformed
 * value, too many positionals, an option given twice that is not an OPTION_LIST. */
enum status options_parse(struct command_line *line, int argc, char **argv, struct err *err);

/* For a program that starts another one: like options_parse(), but words that the table does not have
 * stay in argv, in their order, *argc of them with the first; --help is noted and stays, and so does all
 * after "--". front: the first word that is no option of the table ends the reading. ERR_INPUT as there,
 * but for unknown options: of those only another program's word for one of the table. */
enum status options_take(struct command_line *line, int *argc, char **argv, bool front,
                         struct err *err);

/* Combinations of options that a command refuses: ERR_INPUT with what the first wrong one says. */
struct refusal {
    bool wrong;
    const char *says; /* NULL ends the list */
};
enum status options_refuse(const struct refusal *refused, struct err *err);
/* clang-format off */
#define OPTIONS_REFUSE(err, ...) options_refuse((const struct refusal[]){__VA_ARGS__, {false, NULL}}, err)
/* clang-format on */

/* Write the aligned help text of a table into buf (always terminated), with a line for --help at its
 * end if `last`. Returns the length needed. */
size_t options_help(const struct option *options, int num_options, bool last, char *buf,
                    size_t size);

/* Write the table for programs, as options_help() writes it for people: one line an option, with
 * tabs between "option", its name with dashes, its placeholder, its values, "repeat" if it may be
 * given more than once, its group, its help. */
size_t options_rows(const struct option *options, int num_options, char *buf, size_t size);
