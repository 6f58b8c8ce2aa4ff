/* Starts elapse-exec under mpirun, passes signals on, and turns the exit code into a status. Read
 * launch_exec() at the end first, then on_stop(). */
#include "cli/launch/launch.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/launch/launch_env.h"
#include "cli/launch/start_signs.h"
#include "partition/base/options.h"
#include "profiles/base/clock.h"

#ifndef ELAPSE_LAUNCHER /* the Makefile defines the launcher of the MPI that elapse-exec uses */
#define ELAPSE_LAUNCHER "mpirun"
#endif
#define STOP_GRACE_S 60   /* time to write a checkpoint after the first signal */
#define END_GRACE_S 5     /* for a launcher that has to end its ranks */
#define WATCH_NS 20000000 /* between looks at the ranks */
#define EXIT_NO_EXEC 127  /* the child could not start its program; the shell uses 127 too */

static volatile sig_atomic_t stop_count, stop_signal;
static volatile pid_t child_pid;
static volatile time_t last_stop_s; /* time of the last signal, by the monotonic clock */

/* Pass a Ctrl-C or SIGTERM on to mpirun.
 *   - The first one becomes SIGUSR1, which mpirun forwards to every rank: "checkpoint and stop". It
 *     is repeated each second, because mpirun does not forward it while it starts the ranks.
 *   - The second one, or the alarm STOP_GRACE_S later, becomes SIGTERM, which ends the ranks.
 *   - The third one becomes SIGKILL, because mpirun may wait for a lost node. Its daemons and ranks
 *     end when they notice that mpirun is gone.
 * A signal within about a second of another one is ignored, because timeout(1) signals its child
 * and then the child's group. */
static void on_stop(int signal_number)
{
    static const int signals[] = {SIGUSR1, SIGTERM, SIGKILL};
    int saved = errno;
    if (stop_signal == 0 && signal_number != SIGALRM)
        stop_signal = signal_number;
    const time_t now_s = clock_now_ns() / 1000000000;
    const bool soon = now_s - last_stop_s < (signal_number == SIGALRM ? STOP_GRACE_S : 2);
    if (child_pid > 0 && (stop_count == 0 || !soon)) {
        kill(child_pid, signals[stop_count < 2 ? stop_count : 2]);
        stop_count++;
        last_stop_s = now_s;
    } else if (child_pid > 0 && signal_number == SIGALRM && stop_count == 1) {
        kill(child_pid, SIGUSR1);
    }
    alarm(1);
    errno = saved;
}

/* Look beside the running program, and where a package may keep programs that only it starts. */
enum status launch_find(char path[PATH_MAX], struct err *err)
{
    static const char *const places[] = {"", "../lib/elapse/"};
    char folder[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (len <= 0)
        return err_set(err, ERR_SYSTEM, "cannot read /proc/self/exe: %s", strerror(errno));
    folder[len] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[1] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int length = snprintf(path, PATH_MAX, "%s%selapse-exec", folder, places[i]);
        if (length < PATH_MAX && access(path, X_OK) == 0)
            return OK;
    }
    enum status rc =
        err_set(err, ERR_SYSTEM, "elapse-exec is not installed next to elapse in '%s'", folder);
    err_hint(err, "it runs what needs MPI and BLAS; 'make deps && make' builds it");
    return rc;
}

/* mpirun itself listens on all interfaces, unless elapse-local.so is in front of its libraries
 * (local_bind.c). Runs in the child; beside: elapse-exec's path. Words of LD_PRELOAD end at blanks
 * and colons. */
static void preload_local(const char *beside)
{
    const char *slash = strrchr(beside, '/'), *others = getenv("LD_PRELOAD");
    char list[2 * PATH_MAX];
    const int folder = slash ? (int)(slash - beside) : 0;
    const int length = snprintf(list, sizeof list, "%.*s/elapse-local.so", folder, beside);
    if (!slash || length >= (int)sizeof list || strpbrk(list, " :") || access(list, R_OK) != 0)
        return;
    if (others && *others)
        snprintf(list + length, sizeof list - (size_t)length, " %s", others);
    if (!others || strlen(others) < sizeof list - (size_t)length - 1)
        setenv("LD_PRELOAD", list, 1);
}

/* Runs in the child. It gets its own process group, so that a Ctrl-C reaches it only through
 * on_stop(). It ends when its parent ends. */
static void run_child(char **argv)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_DFL); /* but SIGXFSZ stays ignored in mpirun and its ranks */
    /* It would end a launcher that does not yet forward it, or no longer does. */
    signal(SIGUSR2, SIG_IGN);
    if (!freopen("/dev/null", "r", stdin))
        _exit(EXIT_NO_EXEC);
    execvp(argv[0], argv);
    _exit(EXIT_NO_EXEC);
}

/* Wait for the child. Meanwhile ask whether it is to yield, and tell it so each second, because
 * mpirun does not forward signals while it starts the ranks. If a rank died in MPI's start, end the
 * others: *overdue. A launcher that does not end by SIGTERM is killed, and its ranks end with it. */
static pid_t wait_watching(const struct launch *launch, struct start_signs *signs, int *wstatus,
                           bool *overdue)
{
    int64_t told_ns = 0, ended_ns = 0;
    pid_t got;
    while ((got = waitpid(child_pid, wstatus, WNOHANG)) == 0) {
        if (launch->wants_yield && launch->wants_yield(launch->ctx) &&
            clock_now_ns() - told_ns > 1000000000) {
            kill(child_pid, SIGUSR2);
            told_ns = clock_now_ns();
        }
        if (!*overdue && start_signs_overdue(signs)) {
            *overdue = true;
            ended_ns = clock_now_ns();
            kill(child_pid, SIGTERM);
        } else if (*overdue && clock_now_ns() - ended_ns > END_GRACE_S * (int64_t)1000000000) {
            kill(child_pid, SIGKILL);
        }
        if (signs->over && !launch->wants_yield)
            return waitpid(child_pid, wstatus, 0);
        nanosleep(&(struct timespec){.tv_nsec = WATCH_NS}, NULL);
    }
    return got;
}

/* The status of an exit code of a launcher, or of a rank, which has printed its error. */
static enum status status_of_code(int code, const char *what, const char *launcher, struct err *err)
{
    switch (code) {
    case 0:
        return OK;
    case EXIT_RANK_INFEASIBLE:
        return ERR_INFEASIBLE;
    case 2:
        return ERR_INPUT;
    case 3:
        return ERR_SYSTEM;
    case EXIT_NO_EXEC: {
        enum status rc = err_set(err, ERR_SYSTEM, "cannot start '%s'", launcher);
        err_hint(err, "make deps installs Open MPI; ELAPSE_MPIRUN names another launcher");
        return rc;
    }
    default:
        break;
    }
    if (code > EXIT_SIGNALLED && code - EXIT_SIGNALLED < SIGRTMIN)
        return err_set(err, ERR_SYSTEM, "a rank of %s was ended by signal %d (%s)", what,
                       code - EXIT_SIGNALLED, strsignal(code - EXIT_SIGNALLED));
    enum status rc =
        err_set(err, ERR_SYSTEM, "'%s' ended %s with exit code %d", launcher, what, code);
    err_hint(err, "%s; OMPI_MCA_orte_execute_quiet=0 shows the messages of Open MPI's mpirun",
             launch_env_one_machine(launcher)
                 ? "it could not start the ranks, or one exited without a message"
                 : "a node may be lost or unreachable");
    return rc;
}

static enum status wait_child(const struct launch *launch, const char *what, const char *launcher,
                              struct start_signs *signs, struct err *err)
{
    const bool direct = launch->num_ranks == 0; /* without a launcher */
    int wstatus = 0, code;
    bool overdue = false;
    while (wait_watching(launch, signs, &wstatus, &overdue) < 0)
        if (errno != EINTR)
            return err_set(err, ERR_SYSTEM, "cannot wait for %s: %s", what, strerror(errno));
    child_pid = 0;
    if (overdue)
        return err_set(
            err, ERR_SYSTEM,
            "a rank of %s died while MPI started; its launcher did not end within %d s, and "
            "the other ranks were ended",
            what, START_DEADLINE_S);
    if (stop_count > 0 && (WIFSIGNALED(wstatus) || WEXITSTATUS(wstatus) > EXIT_SIGNALLED))
        return err_set(err, ERR_SYSTEM, "%s was stopped", what); /* by a signal of on_stop() */
    if (direct && WIFSIGNALED(wstatus) && WTERMSIG(wstatus) == SIGPIPE)
        return OK; /* the reader of our shared stdout has ended: "elapse train --help | head" */
    if (WIFSIGNALED(wstatus))
        return err_set(err, ERR_SYSTEM, "%s was ended by signal %d (%s)", what, WTERMSIG(wstatus),
                       strsignal(WTERMSIG(wstatus)));
    code = WEXITSTATUS(wstatus);
    if (direct && code == 1) /* its own answer; a launcher may fail with 1 for other reasons */
        return ERR_INFEASIBLE;
    return status_of_code(code, what, launcher, err);
}

/* fds: what becomes the child's stdout and stderr; negative: ours. local: elapse-exec's path, if a
 * launcher starts it on this machine, else NULL. */
static enum status spawn_and_wait(const struct launch *launch, char **argv, const char *what,
                                  const int fds[2], const char *local, struct start_signs *signs,
                                  struct err *err)
{
    struct sigaction stop = {.sa_handler = on_stop}, old_int, old_term, old_alarm;
    enum status rc;
    fflush(NULL);
    stop_count = 0;
    sigaction(SIGINT, &stop, &old_int);
    sigaction(SIGTERM, &stop, &old_term);
    sigaction(SIGALRM, &stop, &old_alarm);
    pid_t pid = fork();
    if (pid == 0) {
        if ((fds[0] >= 0 && dup2(fds[0], STDOUT_FILENO) < 0) ||
            (fds[1] >= 0 && dup2(fds[1], STDERR_FILENO) < 0))
            _exit(EXIT_NO_EXEC);
        if (local)
            preload_local(local);
        run_child(argv);
    }
    child_pid = pid;
    rc = pid < 0 ? err_set(err, ERR_SYSTEM, "cannot start a process: %s", strerror(errno))
                 : wait_child(launch, what, argv[0], signs, err);
    alarm(0);
    sigaction(SIGALRM, &old_alarm, NULL);
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
    return rc;
}

bool launch_stopped(void)
{
    return stop_count > 0;
}

int launch_stop_signal(void)
{
    return stop_signal;
}

/* Files in memory for the output of the ranks. Their stdout is stored also to be printed
 * afterwards, because mpirun does not report failed writes. */
static enum status open_files(const struct launch *launch, int fds[2], struct err *err)
{
    const bool wanted[] = {launch->num_ranks > 0 || launch->answer, launch->complaint != NULL};
    for (int i = 0; i < 2; i++) {
        fds[i] = wanted[i] ? memfd_create("elapse-output", MFD_CLOEXEC) : -1;
        if (wanted[i] && fds[i] < 0)
            return err_set(err, ERR_SYSTEM, "cannot store the output of the ranks: %s",
                           strerror(errno));
    }
    return OK;
}

/* The content of such a file as a text. NULL without memory. */
static char *file_text(int fd)
{
    const off_t size = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)(size > 0 ? size : 0) + 1);
    if (text && size > 0 && pread(fd, text, (size_t)size, 0) < 0)
        text[0] = '\0';
    return text;
}

/* Copy the answer to stdout. main() checks whether it could be written. */
static void print_answer(int answer)
{
    char part[4096];
    ssize_t got;
    for (off_t at = 0; (got = pread(answer, part, sizeof part, at)) > 0; at += got)
        fwrite(part, 1, (size_t)got, stdout);
}

const char *launch_words(void)
{
    const char *wanted = getenv("ELAPSE_MPIRUN");
    return wanted && *wanted ? wanted : ELAPSE_LAUNCHER;
}

bool launch_is_local(void)
{
    return launch_env_one_machine(launch_words());
}

/* mpirun's words, then elapse-exec's. words has room for all. */
static void put_words(const struct launch *launch, char *mpirun, char *path, char ranks[24],
                      char **words)
{
    char *save = NULL;
    int n = 0;
    const int64_t told = launch->num_ranks > 0 ? launch->num_ranks : launch->check_ranks;
    snprintf(ranks, 24, "%lld", (long long)told);
    if (launch->num_ranks > 0) {
        for (char *word = strtok_r(mpirun, " ", &save); word; word = strtok_r(NULL, " ", &save))
            words[n++] = word;
        words[n++] = "-n";
        words[n++] = ranks;
    }
    words[n++] = path;
    if (told > 0) { /* lets a rank check that the launcher belongs to its MPI */
        words[n++] = "-n";
        words[n++] = ranks;
    }
    if (launch->num_ranks == 0 && told > 0)
        words[n++] = "--check";
    if (launch->call) {
        words[n++] = "--call";
        words[n++] = (char *)launch->call;
    }
    if (launch->ended) {
        words[n++] = "--ended";
        words[n++] = (char *)launch->ended;
    }
    if (launch->restart) {
        words[n++] = "--restarted";
        words[n++] = (char *)launch->restart;
    }
    if (launch->losses) {
        words[n++] = "--losses";
        words[n++] = (char *)launch->losses;
    }
}

enum status launch_exec(const struct launch *launch, int argc, char *const *argv, bool *yielded,
                        struct err *err)
{
    enum status rc;
    char path[PATH_MAX], ranks[24], shared[SHARED_FOLDER_MAX] = "";
    char *launcher = NULL;
    char **words = NULL;
    int n = 0, fds[2] = {-1, -1};
    bool dropped = launch->quiet;
    if (yielded)
        *yielded = false;
    rc = launch_find(path, err);
    if (rc != OK)
        goto out;
    launcher = strdup(launch->launcher ? launch->launcher : launch_words());
    words = launcher ? calloc((size_t)argc + strlen(launcher) / 2 + 15, sizeof *words) : NULL;
    if (!words) {
        rc = err_nomem(err);
        goto out;
    }
    const bool local = launch->num_ranks > 0 && launch_env_one_machine(launcher);
    launch_env_set(launcher, local);
    launch_env_share(local, shared);
    rc = open_files(launch, fds, err);
    if (rc != OK)
        goto out;
    put_words(launch, launcher, path, ranks, words);
    while (words[n])
        n++;
    for (int i = 0; i < argc; i++)
        words[n++] = argv[i];
    struct start_signs signs = {.folder = shared, .num_ranks = launch->num_ranks, .over = !*shared};
    rc = spawn_and_wait(launch, words, argv[0], fds, local ? path : NULL, &signs, err);
    if (launch->has_yielded && rc == OK && stop_count == 0 && yielded)
        dropped = *yielded = launch->has_yielded(launch->ctx);
    if (launch->answer)
        *launch->answer = file_text(fds[0]);
    else if (fds[0] >= 0 && !dropped)
        print_answer(fds[0]);
    if (launch->complaint)
        *launch->complaint = file_text(fds[1]);
out:
    launch_env_unshare(shared);
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(words);
    free(launcher);
    return rc;
}
