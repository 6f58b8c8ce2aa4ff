/* tests/e2e/chaos_strike.c - ends or stops a process of a run at a chosen place, for tests/e2e/chaos.sh.
 *
 * In front of the libraries of elapse-exec (LD_PRELOAD; in other programs it does nothing) it counts
 * calls by place, and at the chosen one sends a signal to a process of the run, once a run:
 *
 *   CHAOS_DIR=DIR        must be set. DIR/pid.N: the ranks that were started. DIR/struck: "PID NS", whom
 *                        it has struck and when (realtime). DIR/counts.R: at its end, the calls of rank R
 *   CHAOS_AT=PLACE@N     at the Nth call of a place: message (of a pass), sum (over ranks), change (a
 *                        group of ranks is made), cache (a write to the spill), sync, rename, open (of a
 *                        file to write, or a folder is made), truncate (a file gets its length), file (any
 *                        of the last five within a change of plan); or time: N microseconds after the
 *                        first message
 *   CHAOS_RANK=R         by the rank R
 *   CHAOS_WHO=WHO        rank, launcher, front (the launcher's parent)
 *   CHAOS_SIGNAL=NUMBER  9 unless told
 *   CHAOS_ERRNO=NUMBER   no signal: from this call on, calls of the place (cache to file) fail so
 *   CHAOS_LOG=1          DIR/live.R: a line for each group that rank R makes after the first: groups and
 *                        windows that are there, descriptors, mappings of shared memory; KiB resident, of
 *                        SQLite's, allocated without SQLite's */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum place { MESSAGE, SUM, CHANGE, CACHE, SYNC, RENAME, OPENED, TRUNCATE, FILES, PLACES };
static const char *const names[PLACES] = {"message", "sum",  "change",   "cache", "sync",
                                          "rename",  "open", "truncate", "file"};

static const char *folder; /* NULL: this is no rank */
static int rank_here;
static _Atomic int64_t calls[PLACES];
static int num_groups, num_windows; /* that are not freed; the main thread's */
static MPI_Comm all;                /* the group that the program splits off first */
static _Atomic bool in_change;      /* from a later split to the next message of a pass */

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *in = fopen(path, "r");
    if (in) {
        (void)!fread(text, 1, sizeof text - 1, in);
        fclose(in);
    }
    const char *behind = strrchr(text, ')'); /* the name may hold anything */
    int parent = 0;
    if (!behind || sscanf(behind, ") %*c %d", &parent) != 1)
        return 0;
    return parent;
}

#define REAL(name)                                                                                 \
    __extension__({                                                                                \
        static void *at;                                                                           \
        if (!at)                                                                                   \
            at = dlsym(RTLD_NEXT, #name);                                                          \
        at;                                                                                        \
    })

/* A file of our own, which is no call of the program. */
static int make_file(const char *path, int flags)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))REAL(open);
    return real(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
}

static void strike(void)
{
    const char *who = getenv("CHAOS_WHO"), *number = getenv("CHAOS_SIGNAL");
    struct timespec now;
    char path[512], text[64];
    pid_t pid = getpid();
    if (who && strcmp(who, "rank") != 0)
        pid = getppid();
    if (who && strcmp(who, "front") == 0)
        pid = parent_of(pid);
    snprintf(path, sizeof path, "%s/struck", folder);
    const int fd = make_file(path, O_EXCL);
    if (fd < 0 || pid <= 1)
        return; /* once a run, also if it is started again */
    clock_gettime(CLOCK_REALTIME, &now);
    const int length =
        snprintf(text, sizeof text, "%d %lld\n", (int)pid, now.tv_sec * 1000000000LL + now.tv_nsec);
    (void)!write(fd, text, (size_t)length);
    close(fd);
    if (!getenv("CHAOS_ERRNO"))
        kill(pid, number ? atoi(number) : SIGKILL);
}

/* N of CHAOS_AT, if it names this place and this rank is chosen; else 0. */
static int64_t chosen(const char *place)
{
    const char *at = getenv("CHAOS_AT"), *only = getenv("CHAOS_RANK");
    const size_t length = strlen(place);
    if (!at || (only && atoi(only) != rank_here) || strncmp(at, place, length) != 0 ||
        at[length] != '@')
        return 0;
    return atoll(at + length + 1);
}

static void *strike_later(void *us)
{
    const int64_t ns = *(int64_t *)us * 1000;
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
    strike();
    return NULL;
}

/* True, with errno set: the call is to fail. */
static bool pass(enum place place)
{
    static int64_t us;
    if (!folder)
        return false;
    const int64_t n = ++calls[place], from = chosen(names[place]);
    if (n == from)
        strike();
    if (place == MESSAGE && n == 1 && (us = chosen("time")) > 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, strike_later, &us) == 0)
            pthread_detach(thread);
    }
    const char *code = getenv("CHAOS_ERRNO");
    if (!code || from == 0 || n < from)
        return false;
    errno = atoi(code);
    return true;
}

__attribute__((constructor)) static void begin(void)
{
    const char *dir = getenv("CHAOS_DIR"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    char path[512];
    if (!rank)
        rank = getenv("PMI_RANK");
    if (!dir || !rank || strcmp(program_invocation_short_name, "elapse-exec") != 0)
        return;
    folder = dir;
    rank_here = atoi(rank);
    snprintf(path, sizeof path, "%s/pid.%d", dir, (int)getpid());
    const int fd = make_file(path, 0);
    if (fd >= 0)
        close(fd);
}

static void write_counts(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/counts.%d", folder, rank_here);
    const int fd = make_file(path, O_TRUNC);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    for (int p = 0; out && p < PLACES; p++)
        fprintf(out, "%s %lld\n", names[p], (long long)calls[p]);
    if (out)
        fclose(out);
}

/* --- what a rank holds ------------------------------------------------------------------------ */

static int count_files(const char *path)
{
    int n = 0;
    DIR *list = opendir(path);
    while (list && readdir(list))
        n++;
    if (list)
        closedir(list);
    return n;
}

/* Lines of a file that have a text; *number: what follows it in the last one. */
static int count_lines(const char *path, const char *text, long *number)
{
    char line[1024];
    int n = 0;
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in)) {
        const char *found = strstr(line, text);
        n += found != NULL;
        if (found && number)
            *number = atol(found + strlen(text));
    }
    if (in)
        fclose(in);
    return n;
}

static void log_held(void)
{
    char path[512];
    long resident = 0;
    int64_t (*sqlite_used)(void) = dlsym(RTLD_DEFAULT, "sqlite3_memory_used");
    if (!folder || !getenv("CHAOS_LOG"))
        return;
    snprintf(path, sizeof path, "%s/live.%d", folder, rank_here);
    const int fd = make_file(path, O_APPEND);
    FILE *out = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (!out)
        return;
    const struct mallinfo2 heap = mallinfo2();
    const long used = (long)((heap.uordblks + heap.hblkhd) >> 10);
    const long sqlite = sqlite_used ? (long)(sqlite_used() >> 10) : 0;
    count_lines("/proc/self/status", "VmRSS:", &resident);
    fprintf(out, "%d %d %d %d %ld %ld %ld\n", num_groups, num_windows, count_files("/proc/self/fd"),
            count_lines("/proc/self/maps", "/dev/shm/", NULL), resident, sqlite, used - sqlite);
    fclose(out);
}

/* --- the places ------------------------------------------------------------------------------- */

int MPI_Finalize(void)
{
    if (folder)
        write_counts();
    return PMPI_Finalize();
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (comm != all)
        in_change = false;
    pass(MESSAGE);
    return PMPI_Isend(data, count, type, peer, tag, comm, request);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    pass(SUM);
    return PMPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Allgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int out_count,
                  MPI_Datatype out_type, MPI_Comm comm)
{
    pass(SUM);
    return PMPI_Allgather(in, in_count, in_type, out, out_count, out_type, comm);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    pass(CHANGE);
    log_held();
    const int code = PMPI_Comm_split(comm, color, key, out);
    num_groups += code == MPI_SUCCESS && color != MPI_UNDEFINED;
    if (!all)
        all = *out;
    else
        in_change = true;
    return code;
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out)
{
    const int code = PMPI_Comm_split_type(comm, type, key, info, out);
    num_groups += code == MPI_SUCCESS && type != MPI_UNDEFINED;
    return code;
}

int MPI_Comm_free(MPI_Comm *comm)
{
    const int code = PMPI_Comm_free(comm);
    num_groups -= code == MPI_SUCCESS;
    return code;
}

int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *at,
                            MPI_Win *window)
{
    const int code = PMPI_Win_allocate_shared(size, unit, info, comm, at, window);
    num_windows += code == MPI_SUCCESS;
    return code;
}

int MPI_Win_free(MPI_Win *window)
{
    const int code = PMPI_Win_free(window);
    num_windows -= code == MPI_SUCCESS;
    return code;
}

static bool pass_file(enum place place)
{
    const bool now = in_change && pass(FILES);
    return pass(place) || now;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t) =
        (ssize_t(*)(int, const void *, size_t, off_t))REAL(pwrite);
    return pass_file(CACHE) ? -1 : real(fd, bytes, length, offset);
}

int fsync(int fd)
{
    int (*real)(int) = (int (*)(int))REAL(fsync);
    return pass_file(SYNC) ? -1 : real(fd);
}

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))REAL(rename);
    return pass_file(RENAME) ? -1 : real(from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    int (*real)(int, const char *, int, const char *, unsigned) =
        (int (*)(int, const char *, int, const char *, unsigned))REAL(renameat2);
    return pass_file(RENAME) ? -1 : real(from_dir, from, to_dir, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    int (*real)(const char *, mode_t) = (int (*)(const char *, mode_t))REAL(mkdir);
    if (access(path, F_OK) == 0) /* EEXIST, on a full disk too */
        return real(path, mode);
    return pass_file(OPENED) ? -1 : real(path, mode);
}

#define FTRUNCATE(name)                                                                            \
    int name(int fd, off_t length)                                                                 \
    {                                                                                              \
        int (*real)(int, off_t) = (int (*)(int, off_t))REAL(name);                                 \
        return pass_file(TRUNCATE) ? -1 : real(fd, length);                                        \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

/* A device or a pipe is no file of the run. */
static bool is_file(const char *path)
{
    return strncmp(path, "/dev/", 5) != 0 || strncmp(path, "/dev/shm/", 9) == 0;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))REAL(name);         \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        const int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, int) : 0;                  \
        va_end(args);                                                                              \
        if ((flags & O_ACCMODE) != O_RDONLY && is_file(path) && pass_file(OPENED))                 \
            return -1;                                                                             \
        return real(path, flags, mode);                                                            \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                               \
    int name(int dir, const char *path, int flags, ...)                                            \
    {                                                                                              \
        int (*real)(int, const char *, int, ...) =                                                 \
            (int (*)(int, const char *, int, ...))REAL(name);                                      \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        const int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, int) : 0;                  \
        va_end(args);                                                                              \
        if ((flags & O_ACCMODE) != O_RDONLY && is_file(path) && pass_file(OPENED))                 \
            return -1;                                                                             \
        return real(dir, path, flags, mode);                                                       \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                                \
    FILE *name(const char *path, const char *mode)                                                 \
    {                                                                                              \
        FILE *(*real)(const char *, const char *) =                                                \
            (FILE * (*)(const char *, const char *)) REAL(name);                                   \
        return strpbrk(mode, "wa+") && is_file(path) && pass_file(OPENED) ? NULL                   \
                                                                          : real(path, mode);      \
    }
FOPEN(fopen)
FOPEN(fopen64)
