/* cli/launch/launch.h - start elapse-exec, for the commands that need a real run. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

/* A start of elapse-exec: its ranks, launcher, output and options. */
struct launch {
    int64_t num_ranks; /* 0: elapse-exec itself, without mpirun */
    int64_t
        check_ranks;  /* with num_ranks 0: only check a call of this number of ranks; 0: no check */
    bool quiet;       /* the stdout of the ranks is dropped */
    char **answer;    /* their stdout goes here, a fresh text, and is not printed; NULL: printed */
    char **complaint; /* and their stderr, with the launcher's; NULL: it is not redirected */
    const char *launcher; /* words of MPI's launcher; NULL: launch_words() */
    const char *call;     /* for `elapse-exec --call`; NULL: the run is never restarted */
    const char *restart;  /* for `elapse-exec --restarted`; NULL: the run is not restarted */
    const char *ended;    /* for `elapse-exec --ended`; NULL: the run is not restarted */
    const char *losses;   /* for `elapse-exec --losses`; NULL: no rank is to be killed */
    /* Called about fifty times a second while the ranks run; NULL: never. Once it has returned true,
     * the ranks are asked to stop at their next checkpoint or the end of their epoch (SIGUSR2). */
    bool (*wants_yield)(void *ctx);
    /* After ranks have ended without a failure: whether they stopped early for others to join.
     * Their stdout is then dropped, because the run continues. */
    bool (*has_yielded)(void *ctx);
    void *ctx;
};

/* Run `mpirun -n num_ranks elapse-exec argv...` and wait. argv[0] is the command of elapse-exec.
 * The stdout of the ranks is printed after they have ended. *yielded (may be NULL): they stopped
 * early because of wants_yield(). If a rank fails, its status is returned without a message,
 * because the rank has printed one. Any other failure is ERR_SYSTEM with a message. The first
 * Ctrl-C or SIGTERM becomes SIGUSR1 for every rank, the second one SIGTERM, and the third one kills
 * the launcher. Not for use from several threads. */
enum status launch_exec(const struct launch *launch, int argc, char *const *argv, bool *yielded,
                        struct err *err);

/* Whether the default launcher starts all ranks on this machine, so that files that are missing here
 * are missing there. */
bool launch_is_local(void);

/* The path of elapse-exec. ERR_SYSTEM: it is not installed. */
enum status launch_find(char path[PATH_MAX], struct err *err);

/* The words of MPI's launcher: ELAPSE_MPIRUN, or the one that the program was built for. */
const char *launch_words(void);

/* Whether a Ctrl-C or SIGTERM stopped the last run. */
bool launch_stopped(void);
/* That signal; 0: none. The program then ends with EXIT_SIGNALLED plus its number, as shells do. */
int launch_stop_signal(void);
#define EXIT_SIGNALLED 128
