#include "exec/base/ending.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* OpenBLAS's exit handler joins its threads. Out of memory, it waits for ever for one that could
 * not start; MPI_Init() calls exit() in that case. Handlers run in reverse order of registration,
 * and those of libraries are registered before main(), so this one comes first. */
static void leave(int code, void *none)
{
    (void)none;
    fflush(NULL);
    _exit(code);
}

/* The threads of OpenBLAS are of no use, because ranks call it from their own. Each takes 128 MiB of
 * addresses, and one that gets none tries for ever, which fork() and exit() wait for. */
static void without_blas_threads(char **argv)
{
    static const char name[] = "OPENBLAS_NUM_THREADS";
    char path[PATH_MAX];
    const ssize_t length = getenv(name) ? -1 : readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return;
    path[length] = '\0';
    setenv(name, "1", 1);
    execv(path, argv); /* returns only where it fails; then the run continues with the threads */
}

void ending_prepare(char **argv)
{
    without_blas_threads(argv);
    signal(SIGXFSZ, SIG_IGN);
#ifndef __SANITIZE_ADDRESS__ /* it looks for leaks in an exit handler */
    on_exit(leave, NULL);
#endif
}
