/* Reading whole files, and files that appear whole: a temporary file beside the path that is synced
 * and renamed. Streams, such as pipes and terminals, are written to directly. Read whole_file.h
 * first. */
#include "profiles/base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE_BYTES ((int64_t)1 << 30)
#define MAX_STREAM_BYTES ((int64_t)1 << 26)

/* --- inputs ----------------------------------------------------------------------------------- */

enum { MAX_INPUTS = 4096 }; /* files; a process that reads more forgets the first of them */

static struct {
    dev_t dev;
    ino_t ino;
} inputs[MAX_INPUTS];
static size_t num_inputs; /* ever noted */
static pthread_mutex_t inputs_lock = PTHREAD_MUTEX_INITIALIZER;

/* Call it under inputs_lock. */
static bool is_input(const struct stat *st)
{
    const size_t n = num_inputs < MAX_INPUTS ? num_inputs : MAX_INPUTS;
    size_t i = 0;
    while (i < n && (inputs[i].dev != st->st_dev || inputs[i].ino != st->st_ino))
        i++;
    return i < n;
}

static void note_input(const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return;
    pthread_mutex_lock(&inputs_lock);
    if (!is_input(st)) {
        inputs[num_inputs % MAX_INPUTS].dev = st->st_dev;
        inputs[num_inputs++ % MAX_INPUTS].ino = st->st_ino;
    }
    pthread_mutex_unlock(&inputs_lock);
}

void file_note_input(const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0)
        note_input(&st);
}

/* Whether a folder, named by the start of a path, has such a file. */
static bool folder_has(const char *path, int length, const char *name)
{
    char *file = NULL;
    const bool has = asprintf(&file, "%.*s%s", length, path, name) >= 0 && access(file, F_OK) == 0;
    free(file);
    return has;
}

enum status output_check(const char *path, struct err *err)
{
    struct stat st;
    char *real = realpath(path, NULL); /* a link is followed, as atomic_open() does */
    const char *target = real ? real : path, *slash = strrchr(target, '/');
    const int folder = slash ? (int)(slash + 1 - target) : 0;
    bool input = false;
    enum status rc = OK;
    if (stat(target, &st) == 0 && S_ISREG(st.st_mode)) {
        pthread_mutex_lock(&inputs_lock);
        input = is_input(&st);
        pthread_mutex_unlock(&inputs_lock);
    }
    if (input) {
        rc = err_set(err, ERR_INPUT, "cannot write '%s': this command reads it", path);
        err_hint(err, "give the output a name of its own");
    } else if (folder_has(target, folder, "manifest.json") &&
               (folder_has(target, folder, "owner") ||
                folder_has(target, folder, "stage-00000.safetensors"))) {
        rc = err_set(err, ERR_INPUT, "cannot write '%s': its folder is a checkpoint", path);
        err_hint(err, "write to another folder, because a checkpoint's files are checked");
    }
    free(real);
    return rc;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Whether a path names what this process was given open. */
static bool is_given(const char *path)
{
    static const char *const given[] = {"/dev/fd/", "/proc/self/fd/"};
    bool is = strcmp(path, "/dev/stdin") == 0 || strcmp(path, "-") == 0;
    for (int i = 0; i < 2; i++)
        is |= strncmp(path, given[i], strlen(given[i])) == 0;
    return is;
}

enum status input_open(const char *path, const char *verb, int *fd, struct stat *st,
                       struct err *err)
{
    struct stat own;
    enum status rc = OK;
    const char *name = strcmp(path, "-") == 0 ? "/dev/stdin" : path;
    const int got = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (got < 0 || fstat(got, &own) != 0)
        rc = err_set(err, ERR_SYSTEM, "cannot %s '%s': %s", verb, path, strerror(errno));
    else if (S_ISDIR(own.st_mode))
        rc = err_set(err, ERR_SYSTEM, "cannot %s '%s': it is a directory", verb, path);
    else if (!S_ISREG(own.st_mode) && !is_given(path))
        rc = err_set(err, ERR_INPUT, "cannot %s '%s': it is a %s, not a file", verb, path,
                     S_ISFIFO(own.st_mode)   ? "named pipe"
                     : S_ISSOCK(own.st_mode) ? "socket"
                                             : "device");
    else if (fcntl(got, F_SETFL, fcntl(got, F_GETFL) & ~O_NONBLOCK) != 0)
        rc = err_set(err, ERR_SYSTEM, "cannot %s '%s': %s", verb, path, strerror(errno));
    if (rc != OK) {
        if (got >= 0)
            close(got);
        return rc;
    }
    note_input(&own);
    *fd = got;
    if (st)
        *st = own;
    return OK;
}

enum status input_file(const char *path, FILE **in, struct err *err)
{
    int fd = -1;
    const enum status rc = input_open(path, "open", &fd, NULL, err);
    if (rc != OK)
        return rc;
    *in = fdopen(fd, "rb");
    if (*in)
        return OK;
    close(fd);
    return err_nomem(err);
}

int64_t file_limit(const struct stat *st, int64_t most)
{
    return S_ISREG(st->st_mode) || most < MAX_STREAM_BYTES ? most : MAX_STREAM_BYTES;
}

static enum status too_large(const char *path, size_t limit, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: larger than %zu MiB", path, limit >> 20);
}

enum status file_read(const char *path, char **bytes, size_t *length, struct err *err)
{
    enum status rc = OK;
    char *got = NULL;
    size_t used = 0;
    struct stat st;
    int fd = -1;
    FILE *file = NULL;
    rc = input_open(path, "read", &fd, &st, err);
    if (rc == OK && !(file = fdopen(fd, "rb"))) {
        close(fd);
        rc = err_nomem(err);
    }
    if (rc != OK)
        goto out;
    /* Read to the end rather than trust st_size: a pipe has none. */
    const size_t limit = (size_t)file_limit(&st, MAX_FILE_BYTES);
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > limit) {
        rc = too_large(path, limit, err);
        goto out;
    }
    for (size_t room = 4096;; room = 2 * room < limit ? 2 * room : limit + 1) {
        if (used > limit) {
            rc = too_large(path, limit, err);
            goto out;
        }
        char *more = realloc(got, room + 1);
        if (!more) {
            rc = err_nomem(err);
            goto out;
        }
        got = more;
        used += fread(got + used, 1, room - used, file);
        if (used < room)
            break;
    }
    if (ferror(file)) {
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': %s", path, strerror(errno));
        goto out;
    }
    got[used] = '\0';
    *bytes = got;
    *length = used;
    got = NULL;
out:
    if (file)
        fclose(file);
    free(got);
    return rc;
}

size_t file_mark(const char *text)
{
    return strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

enum status file_refuse_utf16(const char *path, const char *bytes, size_t length, struct err *err)
{
    if (length < 2 || (memcmp(bytes, "\xff\xfe", 2) != 0 && memcmp(bytes, "\xfe\xff", 2) != 0))
        return OK;
    err_set(err, ERR_INPUT, "%s: is UTF-16, must be UTF-8", path);
    err_hint(err, "iconv -f UTF-16 -t UTF-8 converts it");
    return ERR_INPUT;
}

enum status file_read_text(const char *path, char **text, struct err *err)
{
    char *got = NULL;
    size_t length = 0;
    enum status rc = file_read(path, &got, &length, err);
    if (rc != OK)
        return rc;
    rc = file_refuse_utf16(path, got, length, err);
    if (rc != OK) {
        free(got);
        return rc;
    }
    if (memchr(got, '\0', length)) {
        free(got);
        return err_set(err, ERR_INPUT, "%s: is not text", path);
    }
    memmove(got, got + file_mark(got), length + 1 - file_mark(got));
    *text = got;
    return OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The descriptor if path names standard output or standard error, else -1. */
static int standard_fd(const char *path)
{
    return strcmp(path, "/dev/stdout") == 0 || strcmp(path, "-") == 0 ? STDOUT_FILENO
           : strcmp(path, "/dev/stderr") == 0                         ? STDERR_FILENO
                                                                      : -1;
}

bool file_is_stream(const char *path)
{
    struct stat st;
    return standard_fd(path) >= 0 ||
           (stat(path, &st) == 0 && (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode)));
}

/* Open a path that is written to directly. Standard output and error are opened by their own
 * descriptors, which share their offset with other prints; terminals and pipes by name. NULL with
 * errno 0: an ordinary file, which the caller replaces. NULL with errno set: an error, for example
 * a folder. */
static FILE *open_direct(const char *path)
{
    struct stat st;
    int fd = standard_fd(path);
    errno = 0;
    if (fd >= 0) {
        fflush(fd == STDOUT_FILENO ? stdout : stderr);
        fd = dup(fd);
        return fd >= 0 ? fdopen(fd, "w") : NULL;
    }
    if (file_is_stream(path))
        return fopen(path, "w");
    errno = stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? EISDIR : 0;
    return NULL;
}

enum status atomic_open(struct atomic_file *file, const char *path, struct err *err)
{
    enum status rc = OK;
    int fd = -1;
    *file = (struct atomic_file){.out = open_direct(path)};
    if (file->out || errno) {
        file->path = strdup(path);
        if (file->out && file->path)
            return OK;
        rc = file->out ? err_nomem(err)
                       : err_set(err, ERR_SYSTEM, "cannot write '%s': %s", path, strerror(errno));
        goto failed;
    }
    /* Resolve symbolic links, so the file is replaced and not the link to it. */
    file->path = realpath(path, NULL);
    if (!file->path)
        file->path = strdup(path);
    size_t size = file->path ? strlen(file->path) + 16 : 0;
    file->temp = malloc(size);
    if (!file->path || !file->temp) {
        rc = err_nomem(err);
        goto failed;
    }
    snprintf(file->temp, size, "%s.tmp.XXXXXX", file->path);
    fd = mkstemp(file->temp);
    if (fd >= 0) {
        mode_t mask = umask(0);
        umask(mask);
        if (fchmod(fd, 0666 & ~mask) == 0)
            file->out = fdopen(fd, "w");
    }
    if (file->out)
        return OK;
    rc = err_set(err, ERR_SYSTEM, "cannot write '%s': %s", path, strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(file->temp);
    }
failed:
    if (file->out)
        fclose(file->out);
    free(file->path);
    free(file->temp);
    *file = (struct atomic_file){0};
    return rc;
}

enum status output_open(struct atomic_file *file, const char *path, struct err *err)
{
    enum status rc = file_is_stream(path) ? OK : output_check(path, err);
    *file = (struct atomic_file){0};
    THEN(atomic_open(file, path, err));
    file->is_output = rc == OK;
    return rc;
}

enum status folders_make(const char *path, bool whole, struct err *err)
{
    char *folder = strdup(path);
    enum status rc = folder ? OK : err_nomem(err);
    for (char *at = folder; rc == OK && *at; *at = path[at - folder]) {
        at += 1 + strcspn(at + 1, "/");
        if (!*at && !whole)
            break;
        *at = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            rc = err_set(err, ERR_SYSTEM, "cannot make folder '%s': %s", folder, strerror(errno));
    }
    free(folder);
    return rc;
}

void file_sync_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

enum status atomic_close(struct atomic_file *file, enum status status, struct err *err)
{
    errno = 0;
    bool ok = fflush(file->out) == 0 && !ferror(file->out) &&
              (!file->temp || fsync(fileno(file->out)) == 0);
    int why = errno ? errno : EIO; /* errno 0: an earlier write failed and fflush() did not */
    if (fclose(file->out) != 0 && ok) {
        ok = false;
        why = errno;
    }
    if (ok && status == OK && file->temp && file->is_output)
        status = output_check(file->path, err); /* inputs may have been read since */
    if (ok && status == OK && file->temp && rename(file->temp, file->path) != 0) {
        ok = false;
        why = errno;
    }
    if (!ok && status == OK)
        status = err_set(err, ERR_SYSTEM, "cannot write '%s': %s", file->path, strerror(why));
    if (file->temp && status == OK)
        file_sync_name(file->path);
    else if (file->temp)
        unlink(file->temp);
    free(file->path);
    free(file->temp);
    *file = (struct atomic_file){0};
    return status;
}
