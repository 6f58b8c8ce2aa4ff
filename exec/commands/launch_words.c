#include "exec/commands/launch_words.h"

#include <string.h>

#include "partition/base/units.h"

/* The value of option `name` if it comes next; it is taken out of argv. Else NULL. */
static const char *take_next(const char *name, int *argc, char ***argv)
{
    if (*argc <= 2 || strcmp((*argv)[1], name) != 0)
        return NULL;
    const char *value = (*argv)[2];
    (*argv)[2] = (*argv)[0];
    *argv += 2;
    *argc -= 2;
    return value;
}

enum status launch_words_take(int *argc, char ***argv, struct launch_words *words, struct err *err)
{
    const char *ranks = take_next("-n", argc, argv);
    enum status rc = ranks ? parse_int(ranks, "-n", 1, INT32_MAX, &words->ranks, err) : OK;
    if (words->ranks == 0)
        return rc;
    if (*argc > 1 && strcmp((*argv)[1], "--check") == 0) {
        words->check = true;
        (*argv)[1] = (*argv)[0];
        (*argv)++;
        (*argc)--;
    }
    words->call = take_next("--call", argc, argv);
    const char *ended = take_next("--ended", argc, argv);
    if (rc == OK && ended)
        rc = parse_int(ended, "--ended", 0, INT64_MAX, &words->ended_ns, err);
    words->restarted = take_next("--restarted", argc, argv);
    words->losses = take_next("--losses", argc, argv);
    return rc;
}
