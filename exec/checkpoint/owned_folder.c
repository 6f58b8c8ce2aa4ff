#include "exec/checkpoint/owned_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "partition/base/arrays.h"
#include "partition/base/units.h"
#include "profiles/json/json.h"
#include "profiles/base/whole_file.h"

enum {
    LOST_PATIENCE_MS = 15000, /* for ranks whose launcher was killed: they notice after a second */
    SAY_MS = 2000,            /* of it, before the wait is said */
};

static bool is_id(const char *text)
{
    return strlen(text) == RUN_ID_SIZE - 1 && strspn(text, "0123456789abcdef") == RUN_ID_SIZE - 1;
}

/* --- the run's id ----------------------------------------------------------------------------- */

enum status run_id_new(char id[RUN_ID_SIZE], struct err *err)
{
    unsigned char bytes[(RUN_ID_SIZE - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return err_set(err, ERR_SYSTEM, "the system has no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    return OK;
}

enum status run_id_read(const char *dir, char id[RUN_ID_SIZE], struct err *err)
{
    char *path = NULL;
    struct json *root = NULL;
    enum status rc = OK;
    id[0] = '\0';
    if (asprintf(&path, "%s/run.json", dir) < 0)
        return err_nomem(err);
    if (access(path, F_OK) == 0) {
        rc = json_read_file(path, &root, err);
        const char *got = rc == OK ? json_string(json_get(root, "id")) : NULL;
        if (got && is_id(got))
            snprintf(id, RUN_ID_SIZE, "%s", got);
        else if (rc == OK)
            rc = err_set(err, ERR_INPUT, "'%s': id must be %d hex digits", path, RUN_ID_SIZE - 1);
    }
    json_free(root);
    free(path);
    return rc;
}

/* call NULL: none. */
static enum status write_mark(const char *dir, const char *id, const char *call, int64_t first_step,
                              struct err *err)
{
    char *path = NULL;
    struct json *root = json_object_new();
    if (asprintf(&path, "%s/run.json", dir) < 0) {
        json_free(root);
        return err_nomem(err);
    }
    json_add_string(root, "format", "elapse-run");
    json_add_int(root, "schema", 1);
    json_add_string(root, "id", id);
    if (call) {
        struct json *one = json_add_object(root, "call");
        json_add_string(one, "name", call);
        json_add_int(one, "first_step", first_step);
    }
    enum status rc = json_write_file(root, path, err);
    json_free(root);
    free(path);
    return rc;
}

enum status run_id_write(const char *dir, const char *id, struct err *err)
{
    return write_mark(dir, id, NULL, 0, err);
}

enum status run_call_begin(const char *dir, const char *id, const char *call, int64_t *first_step,
                           struct err *err)
{
    char *path = NULL;
    struct json *root = NULL;
    int64_t step;
    if (asprintf(&path, "%s/run.json", dir) < 0)
        return err_nomem(err);
    enum status rc = json_read_file(path, &root, err);
    const struct json *was = rc == OK ? json_get(root, "call") : NULL;
    const char *name = json_string(json_get(was, "name"));
    if (name && strcmp(name, call) == 0 && json_int64(json_get(was, "first_step"), &step))
        *first_step = step;
    else if (rc == OK)
        rc = write_mark(dir, id, call, *first_step, err);
    json_free(root);
    free(path);
    return rc;
}

/* --- marked folders --------------------------------------------------------------------------- */

enum status owned_folder_make(const char *path, const char *id, struct err *err)
{
    struct atomic_file mark;
    char *name = NULL;
    if (mkdir(path, 0777) != 0)
        return err_set(err, ERR_SYSTEM, "cannot create '%s': %s", path, strerror(errno));
    enum status rc = asprintf(&name, "%s/owner", path) < 0 ? err_nomem(err) : OK;
    if (rc != OK)
        name = NULL;
    THEN(atomic_open(&mark, name, err));
    if (rc == OK) {
        fprintf(mark.out, "%s\n", id);
        rc = atomic_close(&mark, OK, err);
    }
    if (rc != OK) /* without its mark it would be nobody's, and stay for ever */
        rmdir(path);
    free(name);
    return rc;
}

/* The folder, never one that a link points to. Below 0 with errno. */
static int open_folder(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool has_mark(int folder, const char *id)
{
    char text[RUN_ID_SIZE + 1] = "";
    const int fd = openat(folder, "owner", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    const ssize_t got = fd >= 0 ? read(fd, text, RUN_ID_SIZE) : -1;
    if (fd >= 0)
        close(fd);
    return got == RUN_ID_SIZE && text[RUN_ID_SIZE - 1] == '\n' &&
           memcmp(text, id, RUN_ID_SIZE - 1) == 0;
}

bool owned_folder_is(const char *path, const char *id)
{
    const int folder = open_folder(path);
    const bool is = folder >= 0 && has_mark(folder, id);
    if (folder >= 0)
        close(folder);
    return is;
}

/* Whether a checkpoint has a file of that name, or had one under way (atomic_open()). */
static bool is_ours(const char *name)
{
    static const char *const names[] = {"manifest.json", "owner"};
    static const char tail[] = ".safetensors";
    size_t length = strlen(name);
    const char *temp = strstr(name, ".tmp.");
    if (temp && strlen(temp) == strlen(".tmp.XXXXXX"))
        length = (size_t)(temp - name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (length == strlen(names[i]) && strncmp(name, names[i], length) == 0)
            return true;
    if (strncmp(name, "stage-", 6) != 0 || length <= 6 + strlen(tail))
        return false;
    return strspn(name + 6, "0123456789") == length - 6 - strlen(tail) &&
           strncmp(name + length - strlen(tail), tail, strlen(tail)) == 0;
}

bool owned_folder_remove(const char *path, const char *id)
{
    struct dirent *entry;
    const int folder = open_folder(path);
    if (folder < 0)
        return errno == ENOENT;
    DIR *list = has_mark(folder, id) ? fdopendir(folder) : NULL;
    if (!list) {
        close(folder);
        return false;
    }
    while ((entry = readdir(list)))
        if (is_ours(entry->d_name) && strcmp(entry->d_name, "owner") != 0)
            unlinkat(folder, entry->d_name, 0);
    rewinddir(list);
    bool others = false;
    while ((entry = readdir(list)))
        others |= strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                  strcmp(entry->d_name, "owner") != 0;
    if (!others)
        unlinkat(folder, "owner", 0);
    closedir(list);
    return !others && rmdir(path) == 0;
}

bool owned_folder_remove_all(const char *path, const char *id)
{
    struct dirent *entry;
    char inner[PATH_MAX];
    DIR *list = owned_folder_is(path, id) ? opendir(path) : NULL;
    while (list && (entry = readdir(list)))
        if (strncmp(entry->d_name, "checkpoint-", 11) == 0 &&
            snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) < (int)sizeof inner)
            (void)owned_folder_remove(inner, id);
    if (list)
        closedir(list);
    return owned_folder_remove(path, id);
}

/* --- the checkpoints in a folder -------------------------------------------------------------- */

static int newest_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

enum status checkpoint_steps(const char *dir, int64_t **steps, int *num, struct err *err)
{
    int64_t *got = NULL;
    int64_t room = 0;
    int n = 0;
    enum status rc = OK;
    struct dirent *entry;
    DIR *folder = opendir(dir);
    if (!folder)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", dir, strerror(errno));
    while (rc == OK && (entry = readdir(folder))) {
        int64_t step;
        if (strncmp(entry->d_name, "checkpoint-", 11) != 0 ||
            parse_int(entry->d_name + 11, "step", 0, INT64_MAX, &step, NULL) != OK)
            continue;
        if (array_grow(&got, n + 1, &room, sizeof *got))
            got[n++] = step;
        else
            rc = err_nomem(err);
    }
    closedir(folder);
    if (rc != OK) {
        free(got);
        return rc;
    }
    if (n > 1)
        qsort(got, (size_t)n, sizeof *got, newest_first);
    *steps = got;
    *num = n;
    return OK;
}

/* --- one run at a time -------------------------------------------------------------------------- */

enum status run_folder_lock(const char *dir, bool wait, int *lock, struct err *err)
{
    int left_ms = wait ? LOST_PATIENCE_MS : 0;
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0)
        return err_set(err, ERR_SYSTEM, "cannot open folder '%s': %s", dir, strerror(errno));
    while (flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        if (left_ms == LOST_PATIENCE_MS - SAY_MS)
            fprintf(stderr,
                    "elapse: folder '%s' is in use by a run that has not ended; waiting %d s\n",
                    dir, (LOST_PATIENCE_MS - SAY_MS) / 1000);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if ((left_ms -= 10) > 0)
            continue;
        close(*lock);
        *lock = -1;
        return err_set(err, ERR_SYSTEM, "folder '%s' is in use by a run that has not ended", dir);
    }
    return OK;
}

enum status run_folder_hold(const char *named, int *lock, struct err *err)
{
    struct stat st;
    char *run = realpath(named, NULL), *slash = run ? strrchr(run, '/') : NULL;
    enum status rc = OK;
    if (slash && slash != run && strncmp(slash + 1, "checkpoint-", 11) == 0)
        *slash = '\0';
    *lock = -1;
    if (run && stat(run, &st) == 0 && S_ISDIR(st.st_mode))
        rc = run_folder_lock(run, true, lock, err);
    free(run);
    return rc;
}
