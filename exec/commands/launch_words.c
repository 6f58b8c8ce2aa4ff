#include "exec/commands/launch_words.h"

#include "partition/base/options.h"

enum status launch_words_take(int *argc, char **argv, struct launch_words *words, struct err *err)
{
    const struct option table[] = {
        OPTION("n", INT, &words->ranks, "RANKS", "ranks", .min = 1, .max = INT32_MAX),
        OPTION("check", FLAG, &words->check, NULL, "refuse what can be refused without MPI"),
        OPTION("call", STRING, &words->call, "NAME", "of all starts"),
        OPTION("ended", INT, &words->ended_ns, "NS", "end of the start before", .max = INT64_MAX),
        OPTION("restarted", STRING, &words->restarted, "WHY", "KIND: REASON"),
        OPTION("losses", STRING, &words->losses, "TEXT", "STEP:RANK:STEP"),
    };
    struct command_line line = COMMAND_LINE(table, 0);
    return options_take(&line, argc, argv, true, err);
}
