#include "exec/comm/start_sign.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

static int lock = -1; /* the sign, open while MPI starts */

static void sign_path(const char *folder, const char *state, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s-%lld", folder, state, (long long)getpid());
}

/* The file gets its name after the lock, because without a lock it would be a dead rank's. */
void start_sign_begin(void)
{
    const char *folder = getenv("ELAPSE_STARTS");
    char made[PATH_MAX], begun[PATH_MAX];
    if (!folder)
        return;
    sign_path(folder, "made", made);
    sign_path(folder, "begun", begun);
    lock = open(made, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0)
        rename(made, begun);
}

void start_sign_ready(void)
{
    const char *folder = getenv("ELAPSE_STARTS");
    char begun[PATH_MAX], ready[PATH_MAX];
    if (lock < 0 || !folder)
        return;
    sign_path(folder, "begun", begun);
    sign_path(folder, "ready", ready);
    rename(begun, ready);
    close(lock);
    lock = -1;
}
