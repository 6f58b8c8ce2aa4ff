#include "cli/launch/start_signs.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "profiles/base/clock.h"

/* Whether the process that made a sign has ended: nobody holds its lock. */
static bool is_dead(int folder, const char *name)
{
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    const bool dead = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return dead;
}

/* A sign that a rank renames meanwhile is looked at again by the next call. */
bool start_signs_overdue(struct start_signs *signs)
{
    const struct dirent *entry;
    int64_t ready = 0;
    bool dead = false;
    DIR *list = signs->over ? NULL : opendir(signs->folder);
    if (!list)
        return false;
    while ((entry = readdir(list))) {
        ready += strncmp(entry->d_name, "ready-", 6) == 0;
        dead |= strncmp(entry->d_name, "begun-", 6) == 0 && is_dead(dirfd(list), entry->d_name);
    }
    closedir(list);
    signs->over = ready >= signs->num_ranks;
    if (!dead)
        signs->dead_ns = 0;
    else if (signs->dead_ns == 0)
        signs->dead_ns = clock_now_ns();
    return dead && clock_now_ns() - signs->dead_ns > START_DEADLINE_S * INT64_C(1000000000);
}
