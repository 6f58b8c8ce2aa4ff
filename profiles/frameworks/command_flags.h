/* profiles/frameworks/command_flags.h - one reader of the flags and settings of other frameworks.
 *
 * A framework is a table of rows. Each flag of it stands in one of four lists: it is read, it costs
 * nothing, it changes the answer and is not counted, or it is refused. A flag that stands in none is
 * named. The values come from the words of a command or from a file of settings. */
#pragma once

#include "partition/base/status.h"
#include "profiles/json/json.h"

enum flag_kind {
    FLAG_COUNT,  /* a whole number from 1 */
    FLAG_NUMBER, /* a whole number from -1 */
    FLAG_REAL,
    FLAG_ON,    /* set without a value; in a file of settings true or false */
    FLAG_TRUTH, /* as FLAG_ON, and true or false may follow */
    FLAG_WORD,  /* one word; of several the last */
    FLAG_LIST,  /* all words up to the next flag, with a space between two */
    FLAG_FREE,  /* costs nothing */
    FLAG_LEFT_OUT,
    FLAG_REFUSED
};

struct flag_row {
    const char *name; /* without dashes; a star stands for any end */
    enum flag_kind kind;
    const char *key; /* of the job, written by flags_write(); NULL: the framework's rules read it */
    /* FLAG_WORD with a key: "theirs=ours ...", NULL: as it is. FLAG_ON with a key: the value, NULL:
     * true. FLAG_LEFT_OUT: what is counted in its place, and the direction of the error.
     * FLAG_REFUSED: why. */
    const char *says;
};

struct command_flags {
    const char *program; /* and its version, for messages */
    const char *dashes;  /* before a flag's name in messages: "--", or "" for settings */
    const struct flag_row *rows;
    int num_rows;
    char *script; /* owned: the program that the words name; NULL: none */
    /* owned: after "activation-checkpoint:", a subcommand of torchtitan; NULL: none */
    char *policy;
    char **value;             /* owned, num_rows entries, owned too: NULL: not given */
    struct json *not_counted; /* owned: an array of lines */
};

/* *flags must have its first four members, and be zeroed otherwise. */
enum status flags_begin(struct command_flags *flags, struct err *err);
void flags_clear(struct command_flags *flags);

/* Take words "--name value", "--name=value". Those before the program (a .py file, or a module after
 * -m) are the launcher's: of these only the number of processes is read, and named if it is not
 * num_devices. */
enum status flags_take_words(struct command_flags *flags, char *const *words, int count,
                             int num_devices, struct err *err);
/* Whether a path ends as a file of settings. */
bool flags_settings_name(const char *path);
/* Take the values of an object; names of objects in objects are joined with dots, after a section
 * that is not empty. last: only the last name of each counts, as with a file of Megatron-LM's flags, and
 * names in capitals are variables of the environment. null and "auto" are not given. */
enum status flags_take_settings(struct command_flags *flags, const char *section, bool last,
                                const struct json *object, struct err *err);

/* Values. name must have a row. */
bool flag_given(const struct command_flags *flags, const char *name);
int64_t flag_int(const struct command_flags *flags, const char *name, int64_t otherwise);
double flag_real(const struct command_flags *flags, const char *name, double otherwise);
bool flag_on(const struct command_flags *flags, const char *name);
const char *flag_word(const struct command_flags *flags, const char *name, const char *otherwise);
bool flag_is(const struct command_flags *flags, const char *name, const char *value);

/* Write the values of all rows with a key. */
enum status flags_write(const struct command_flags *flags, struct json *job, struct err *err);
/* Set a value of the job by its path; objects on the way are made. text: JSON, or a word. */
void job_set(struct json *job, const char *path, const char *text);
void job_set_int(struct json *job, const char *path, int64_t value);
/* Name what changes the answer and is not counted. */
void flags_left_out(struct command_flags *flags, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
