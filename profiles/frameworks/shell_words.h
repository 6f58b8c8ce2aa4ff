/* profiles/frameworks/shell_words.h - the words of a command in a launch script.
 *
 * Nothing is executed. Comments, quotes, continuations, NAME=value, arrays, ${NAME:-default}, $(( )),
 * heredocs, case, and plain tests of an if or before && and || are understood. Every other construct is
 * named in `notes`, and what depends on it stays in the words as it was written ("$NAME"). */
#pragma once

#include "partition/base/status.h"
#include "profiles/json/json.h"

struct shell_words {
    char **word; /* owned, as its entries are; expanded */
    int count;
    char *document;     /* owned: the last heredoc; NULL: none */
    struct json *names; /* owned: an object of the variables with one known value */
    struct json *notes; /* owned: an array of what was not evaluated */
};

/* Find the command of a script: that with the most flags, of several the first. A text without a
 * command, as a file of flags, gives the words of all its lines or of all its variables.
 * what: the name of the script in notes. arguments: of the script, $1 first. *words must be zeroed;
 * the caller owns it. ERR_INPUT: a quote or a parenthesis is not closed. ERR_NOMEM. */
enum status shell_words_read(const char *text, const char *what, char *const *arguments,
                             int num_arguments, struct shell_words *words, struct err *err);
void shell_words_clear(struct shell_words *words);
