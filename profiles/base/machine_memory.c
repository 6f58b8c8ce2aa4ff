/* profiles/base/machine_memory.c - machine_memory.h, by /proc/meminfo and the files of control groups.
 *
 * Version 2 has one tree at /sys/fs/cgroup, version 1 one for memory at /sys/fs/cgroup/memory; a line of
 * /proc/self/cgroup says where in it the process is. A group's limit counts for all groups in it, so every
 * folder up to the tree's root is read. In a container the root is often the group itself, and the line
 * names a path of the host's that is not there. Source: the kernel's cgroup-v2 and memcg documents. */
#include "profiles/base/machine_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct tree {
    const char *folder, *limit, *use, *unused; /* unused: the key of memory.stat */
};
static const struct tree version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                      "memory.usage_in_bytes", "total_inactive_file"};
static const struct tree version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                      "inactive_file"};

/* The number after `key` at the begin of a line, or of the whole file if key is NULL. -1: none. */
static int64_t number_in(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    char line[256];
    long long found = -1;
    const char *const start = key ? key : "";
    const size_t n = strlen(start);
    while (file && found < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, start, n) == 0 && sscanf(line + n, " %lld", &found) != 1)
            found = -1;
    if (file)
        fclose(file);
    return found;
}

static int64_t group_number(const char *folder, const char *name, const char *key)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return number_in(path, key);
}

/* The least limit of the folder and those around it up to the tree's root, or the least that is left of
 * one. */
static int64_t least_of(char *folder, size_t root, const struct tree *tree, bool left)
{
    int64_t least = INT64_MAX;
    for (;;) {
        int64_t limit = group_number(folder, tree->limit, NULL); /* "max" is no number */
        if (limit >= 0 && left) {
            const int64_t used = group_number(folder, tree->use, NULL);
            const int64_t unused = group_number(folder, "memory.stat", tree->unused);
            limit -= (used > 0 ? used : 0) - (unused > 0 ? unused : 0);
            limit = limit < 0 ? 0 : limit;
        }
        if (limit >= 0 && limit < least)
            least = limit;
        if (strlen(folder) <= root)
            return least;
        char *slash = strrchr(folder, '/');
        *slash = '\0';
    }
}

/* The place of the process in a tree: "/" if its line is missing. line: its begin, or of version 1 the
 * name of the tree among those of the second field. */
static void place_in(const char *root, bool second, char *place, size_t size)
{
    char path[PATH_MAX], line[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    snprintf(place, size, "%s", "/");
    while (file && fgets(line, sizeof line, file)) {
        char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;
        if (!at)
            continue;
        *at = '\0';
        at[1 + strcspn(at + 1, "\n")] = '\0';
        bool mine = second && names + 1 == at;
        for (char *name = strtok(names + 1, ","); !second && name; name = strtok(NULL, ","))
            mine |= strcmp(name, "memory") == 0;
        if (mine)
            snprintf(place, size, "%s", at + 1);
    }
    if (file)
        fclose(file);
}

static int64_t of_tree(const char *root, const struct tree *tree, bool left)
{
    char folder[2 * PATH_MAX], place[PATH_MAX];
    place_in(root, tree == &version_2, place, sizeof place);
    snprintf(folder, sizeof folder, "%s%s", root, tree->folder);
    const size_t n = strlen(folder);
    if (strcmp(place, "/") != 0)
        snprintf(folder + n, sizeof folder - n, "%s", place);
    return least_of(folder, n, tree, left);
}

static int64_t of_groups(const char *root, bool left)
{
    const int64_t old = of_tree(root, &version_1, left), now = of_tree(root, &version_2, left);
    return old < now ? old : now;
}

int64_t memory_limit_in(const char *root)
{
    return of_groups(root, false);
}

int64_t memory_available_in(const char *root)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const int64_t kib = number_in(path, "MemAvailable:"), left = of_groups(root, true);
    return kib >= 0 && kib * 1024 < left ? kib * 1024 : left;
}

int64_t memory_available(void)
{
    return memory_available_in("");
}

int64_t memory_total(void)
{
    const int64_t limit = memory_limit_in("");
    const int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return limit < all ? limit : all;
}
