#include "cli/launch.h"

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

#include "partition/options.h"
#include "profiles/clock.h"

#ifndef ELAPSE_LAUNCHER /* make names the one of the MPI that elapse-exec is built with */
#define ELAPSE_LAUNCHER "mpirun"
#endif
#define STOP_GRACE_S 60  /* to write a checkpoint in */
#define EXIT_NO_EXEC 127 /* as the shell: the child could not start its program */
#define EXIT_SIGNALLED 128

static volatile sig_atomic_t stop_count;
static volatile pid_t child_pid;
static volatile time_t last_stop_s; /* monotonic clock */

/* First Ctrl-C or SIGTERM: SIGUSR1, which mpirun hands to every rank ("checkpoint and stop"), and
 * again each second, as mpirun hands it to nobody while it starts them. The second, or the alarm
 * STOP_GRACE_S later: SIGTERM, which ends them. The third: SIGKILL, as mpirun may wait for a node
 * that is lost; its daemons and ranks end when they find it gone. What comes within about a second
 * is the same wish said twice (timeout(1) signals its child and then the child's group). */
static void on_stop(int signal_number)
{
    static const int signals[] = {SIGUSR1, SIGTERM, SIGKILL};
    int saved = errno;
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

/* elapse-exec lies beside the running program. */
static enum status find_exec(char path[PATH_MAX], struct err *err)
{
    static const char name[] = "elapse-exec";
    ssize_t len = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (len <= 0)
        return err_set(err, ERR_SYSTEM, "cannot read /proc/self/exe: %s", strerror(errno));
    path[len] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash + 1 - path) + sizeof name > PATH_MAX)
        return err_set(err, ERR_SYSTEM, "path of the program is too long");
    memcpy(slash + 1, name, sizeof name);
    if (access(path, X_OK) != 0) {
        enum status rc = err_set(err, ERR_SYSTEM, "cannot start '%s': %s", path, strerror(errno));
        err_hint(err, "it needs MPI and BLAS: make deps && make");
        return rc;
    }
    return OK;
}

/* What mpirun must know on a machine like any other: may run as root (CI), with more ranks than
 * cores, binds nothing (elapse-exec does), keeps its banners to itself (not where the launcher has
 * words of its own, as for several nodes: they name the node that is lost). Its daemons look every
 * second whether the others' machines answer, and end the job when five looks in a row found none;
 * it is the kernel that answers, so ranks and daemons may stop for as long as they like. Threads of
 * a rank wait for one another awake for some 0.1 ms only: libgomp's 300,000 turns take twenty times
 * as long as the work where others want the cores, and gain nothing where nobody does. Names that
 * the present MPI does not know do nothing; what the user has set stays. */
static void set_environment(const char *launcher)
{
    static const char *const settings[][2] = {
        {"OMPI_ALLOW_RUN_AS_ROOT",                "1"             },
        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",        "1"             },
        {"OMPI_MCA_rmaps_base_oversubscribe",     "1"             },
        {"OMPI_MCA_hwloc_base_binding_policy",    "none"          },
        {"OMPI_MCA_oob_tcp_keepalive_time",       "1"             }, /* s */
        {"OMPI_MCA_oob_tcp_keepalive_intvl",      "1"             }, /* s */
        {"OMPI_MCA_oob_tcp_keepalive_probes",     "5"             },
        {"PRTE_ALLOW_RUN_AS_ROOT",                "1"             }, /* Open MPI 5 */
        {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",        "1"             },
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
        {"PRTE_MCA_hwloc_default_binding_policy", "none"          },
        {"PRTE_MCA_oob_tcp_keepalive_time",       "1"             },
        {"PRTE_MCA_oob_tcp_keepalive_intvl",      "1"             },
        {"PRTE_MCA_oob_tcp_keepalive_probes",     "5"             },
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        setenv(settings[i][0], settings[i][1], 0);
    if (!getenv("OMP_WAIT_POLICY"))
        setenv("GOMP_SPINCOUNT", "3000", 0);
    if (!strchr(launcher, ' '))
        setenv("OMPI_MCA_orte_execute_quiet", "1", 0);
    if (isatty(STDERR_FILENO)) /* mpirun puts a pipe in between */
        setenv("ELAPSE_TTY", "1", 1);
}

/* In the child: its own process group, so that a Ctrl-C reaches it through on_stop() only; it ends
 * with its parent. */
static void run_child(char **argv)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_DFL);
    if (!freopen("/dev/null", "r", stdin))
        _exit(EXIT_NO_EXEC);
    execvp(argv[0], argv);
    _exit(EXIT_NO_EXEC);
}

static enum status wait_child(const char *what, const char *launcher, struct err *err)
{
    int wstatus = 0, code;
    while (waitpid(child_pid, &wstatus, 0) < 0) {
        if (errno != EINTR)
            return err_set(err, ERR_SYSTEM, "cannot wait for %s: %s", what, strerror(errno));
    }
    child_pid = 0;
    if (stop_count > 0 && (WIFSIGNALED(wstatus) || WEXITSTATUS(wstatus) > EXIT_SIGNALLED))
        return err_set(err, ERR_SYSTEM, "%s was stopped", what); /* by on_stop()'s own signals */
    if (WIFSIGNALED(wstatus))
        return err_set(err, ERR_SYSTEM, "%s was ended by signal %d (%s)", what, WTERMSIG(wstatus),
                       strsignal(WTERMSIG(wstatus)));
    code = WEXITSTATUS(wstatus);
    switch (code) { /* those of a rank, which has said why */
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
    err_hint(err, "with several nodes: one of them may be lost, or not to be reached; "
                  "OMPI_MCA_orte_execute_quiet=0 shows what Open MPI's mpirun has to say");
    return rc;
}

static enum status spawn_and_wait(char **argv, const char *what, int stdout_fd, struct err *err)
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
        if (stdout_fd >= 0 && dup2(stdout_fd, STDOUT_FILENO) < 0)
            _exit(EXIT_NO_EXEC);
        run_child(argv);
    }
    child_pid = pid;
    rc = pid < 0 ? err_set(err, ERR_SYSTEM, "cannot start a process: %s", strerror(errno))
                 : wait_child(what, argv[0], err);
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

/* Onto stdout, where main sees whether it could be written. */
static void print_answer(int answer)
{
    char part[4096];
    ssize_t got;
    for (off_t at = 0; (got = pread(answer, part, sizeof part, at)) > 0; at += got)
        fwrite(part, 1, (size_t)got, stdout);
}

enum status launch_exec(int64_t num_ranks, int argc, char *const *argv, bool quiet, struct err *err)
{
    enum status rc;
    char path[PATH_MAX], ranks[24];
    char *launcher = NULL, *save = NULL;
    char **words = NULL;
    int n = 0, answer = -1;
    rc = find_exec(path, err);
    if (rc != OK)
        goto out;
    const char *wanted = getenv("ELAPSE_MPIRUN");
    launcher = strdup(wanted && *wanted ? wanted : ELAPSE_LAUNCHER);
    words = launcher ? calloc((size_t)argc + strlen(launcher) / 2 + 7, sizeof *words) : NULL;
    if (!words) {
        rc = err_nomem(err);
        goto out;
    }
    set_environment(launcher);
    if (num_ranks > 0) { /* mpirun does not say when it cannot write what ranks print: keep it */
        answer = memfd_create("elapse-stdout", MFD_CLOEXEC);
        if (answer < 0) {
            rc = err_set(err, ERR_SYSTEM, "cannot keep what ranks print: %s", strerror(errno));
            goto out;
        }
        for (char *word = strtok_r(launcher, " ", &save); word; word = strtok_r(NULL, " ", &save))
            words[n++] = word;
        snprintf(ranks, sizeof ranks, "%lld", (long long)num_ranks);
        words[n++] = "-n";
        words[n++] = ranks;
    }
    words[n++] = path;
    if (num_ranks > 0) { /* a rank looks whether the launcher is of its MPI */
        words[n++] = "-n";
        words[n++] = ranks;
    }
    for (int i = 0; i < argc; i++)
        words[n++] = argv[i];
    rc = spawn_and_wait(words, argv[0], answer, err);
    if (answer >= 0 && !quiet)
        print_answer(answer);
out:
    if (answer >= 0)
        close(answer);
    free(words);
    free(launcher);
    return rc;
}
