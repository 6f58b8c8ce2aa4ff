/* exec/commands/launch_words.h - what `elapse` tells elapse-exec of a start, in front of the command. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

/* Texts are borrowed from argv. */
struct launch_words {
    int64_t ranks;         /* that it has asked for; 0: another launcher has started this process */
    bool check;            /* refuse what can be refused without MPI, and do nothing else */
    const char *call;      /* names all starts of one `elapse train --max-restarts`; NULL: none */
    const char *restarted; /* "KIND: REASON", by --max-restarts; NULL: it is not */
    const char *losses;    /* "STEP:RANK:STEP" (losses.h), by --plan-losses; NULL: none */
    int64_t ended_ns; /* when `elapse` saw the ranks of the start before end; 0: no such start */
};

/* Read "-n RANKS [--check] [--call NAME] [--ended NS] [--restarted WHY] [--losses TEXT]" in front of
 * the command, and take them out of argv. */
enum status launch_words_take(int *argc, char **argv, struct launch_words *words, struct err *err);
