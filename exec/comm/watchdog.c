/* The thread's loop is watching(); read it and progressed() first. */
#include "exec/comm/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "exec/base/watch.h"
#include "exec/comm/mpi_group.h"
#include "exec/comm/shm_map.h"
#include "partition/base/units.h"
#include "profiles/base/clock.h"

enum {
    LONGEST_STEPS = 20,
    LEAST_S = 60,
    UNKNOWN_S = 600,
    ALONE_S = 1800,
    LEAST_START_S = 10, /* for MPI's start on a busy machine */
    TICK_NS = 250000000,
    STOPPED_TICKS = 8, /* a process that has no tick while others have this many does not run */
    GRACE_S = 5,       /* for MPI_Abort(); then SIGALRM ends the process */
    RANKS_TOLD = 6     /* the others are counted */
};
#define NS_PER_S INT64_C(1000000000)

/* The memory that the ranks of a machine share. */
struct page {
    _Atomic bool told; /* a rank ends the run */
    struct watch_post posts[];
};

struct watchdog {
    struct comm comm; /* a copy, because the program clears its own at the end */
    struct page *page;
    int64_t fixed_ns; /* ELAPSE_STALL; 0: the limit follows from the steps */
    int num, first;   /* ranks of this machine, and the first one's number */
    uint64_t *ticks;  /* [num] as last seen, */
    int *since;       /* [num] and how many of our own ticks ago that was */
    uint64_t beats;   /* of all ranks, as last seen */
};

static int64_t get(const _Atomic int64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static bool runs(const struct watchdog *w, int rank)
{
    return w->since[rank] < STOPPED_TICKS;
}

/* Whether a rank has had a beat since the last call, or is at work outside of steps. */
static bool progressed(struct watchdog *w)
{
    uint64_t beats = 0;
    bool works = false;
    for (int i = 0; i < w->num; i++) {
        const struct watch_post *post = &w->page->posts[i];
        const uint64_t ticks = atomic_load_explicit(&post->ticks, memory_order_relaxed);
        beats += atomic_load_explicit(&post->beats, memory_order_acquire);
        w->since[i] = ticks == w->ticks[i] ? w->since[i] + 1 : 0;
        w->ticks[i] = ticks;
        works |= runs(w, i) && !post->waits && (!post->in_step || post->reads_data);
    }
    const bool beaten = beats != w->beats;
    w->beats = beats;
    return beaten || works;
}

static int64_t limit_of(const struct watchdog *w)
{
    int64_t longest = 0, least = w->comm.num_nodes > 1 ? UNKNOWN_S : LEAST_S;
    bool in_step = false, known = true;
    for (int i = 0; i < w->num; i++) {
        const struct watch_post *post = &w->page->posts[i];
        const int64_t step_ns = get(&post->step_ns);
        known &= step_ns > 0 || !post->in_step;
        longest = step_ns > longest ? step_ns : longest;
        in_step |= post->in_step;
    }
    if (w->fixed_ns > 0)
        return w->fixed_ns;
    if (w->comm.num_nodes > 1 && !in_step)
        least = ALONE_S;
    else if (longest == 0 || !known)
        least = UNKNOWN_S;
    return longest > least * NS_PER_S / LONGEST_STEPS ? longest * LONGEST_STEPS : least * NS_PER_S;
}

/* Describe what a rank of this machine does, for the error. */
static void describe(const struct watchdog *w, int i, char *text, size_t size)
{
    const struct watch_post *post = &w->page->posts[i];
    char doing[WATCH_TEXT], waits_for[WATCH_TEXT], at[160] = "";
    const int stage = post->stage, microbatch = post->microbatch, peer = post->peer;
    watch_read(&post->doing, doing);
    watch_read(&post->waits_for, waits_for);
    if (stage >= 0 && microbatch >= 0)
        snprintf(at, sizeof at, "%s of stage %d, micro-batch %d, step %lld", doing, stage,
                 microbatch, (long long)get(&post->step));
    else if (post->in_step)
        snprintf(at, sizeof at, "%s of step %lld", doing, (long long)get(&post->step));
    else
        snprintf(at, sizeof at, "%s after step %lld", doing, (long long)get(&post->step));
    if (!runs(w, i))
        snprintf(text, size, "rank %d does not run (%s)", w->first + i, at);
    else if (!post->waits)
        snprintf(text, size, "rank %d is in %s", w->first + i, at);
    else if (peer >= 0)
        snprintf(text, size, "rank %d waits %s rank %d (%s)", w->first + i, waits_for, peer, at);
    else
        snprintf(text, size, "rank %d waits %s of %d ranks (%s)", w->first + i, waits_for,
                 post->num_peers, at);
}

/* Ranks that do not run come first, because the others may wait for them. */
static void report_stall(const struct watchdog *w, int64_t quiet_ns, struct err *err)
{
    char text[sizeof err->msg] = "", one[256], time[32];
    size_t at = 0;
    int told = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < w->num; i++) {
            if (runs(w, i) != (pass == 1))
                continue;
            describe(w, i, one, sizeof one);
            const size_t length = strlen(one) + 2;
            if (told >= RANKS_TOLD || at + length + 120 > sizeof text)
                continue;
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", told ? "; " : "", one);
            told++;
        }
    if (told < w->num)
        snprintf(text + at, sizeof text - at, "; and %d more", w->num - told);
    err_set(err, ERR_SYSTEM, "no rank has made progress for %s: %s",
            format_ns(quiet_ns, time, sizeof time), text);
    err_hint(err, "--max-restarts starts such a run again from its last checkpoint; ELAPSE_STALL "
                  "sets the time (docs/trust.md)");
}

static void *watching(void *arg)
{
    struct watchdog *w = arg;
    struct watch_post *mine = &w->page->posts[w->comm.local_rank];
    int64_t quiet_ns = 0, last_ns = clock_now_ns();
    for (;;) {
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
        const int64_t now_ns = clock_now_ns(), passed_ns = now_ns - last_ns;
        last_ns = now_ns;
        atomic_fetch_add_explicit(&mine->ticks, 1, memory_order_relaxed);
        quiet_ns += passed_ns < 2 * TICK_NS ? passed_ns : 2 * TICK_NS;
        if (progressed(w))
            quiet_ns = 0;
        if (quiet_ns < limit_of(w) || atomic_exchange(&w->page->told, true))
            continue;
        struct err err = {0};
        report_stall(w, quiet_ns, &err);
        signal(SIGALRM, SIG_DFL);
        alarm(GRACE_S);
        comm_fail(&w->comm, &err);
    }
    return NULL;
}

static enum status read_setting(bool *off, int64_t *fixed_ns, struct err *err)
{
    const char *text = getenv("ELAPSE_STALL");
    *off = text && strcmp(text, "off") == 0;
    if (!text || !*text || *off)
        return OK;
    enum status rc = parse_ns(text, "ELAPSE_STALL", fixed_ns, err);
    if (rc == OK && *fixed_ns < 4 * (int64_t)TICK_NS)
        rc = err_set(err, ERR_INPUT, "ELAPSE_STALL must be off or at least 1s, got '%.40s'", text);
    return rc;
}

/* Signals go to the main thread. */
static bool start_thread(void *(*loop)(void *), void *arg)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const bool started = pthread_create(&thread, NULL, loop, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

/* --- MPI's start ------------------------------------------------------------------------------ */

static _Atomic bool mpi_started;

/* Until MPI has started. arg: the address of watchdog_begin()'s fail. */
static void *watching_init(void *arg)
{
    void (*const *fail)(const struct err *) = arg;
    int64_t limit_ns = 0, quiet_ns = 0;
    struct err err = {0};
    char time[32];
    bool off;
    if (read_setting(&off, &limit_ns, &err) != OK || off) /* watchdog_start() reports it */
        return NULL;
    if (limit_ns == 0) /* a launcher of one machine wants signs: start_sign.h */
        limit_ns = (getenv("ELAPSE_STARTS") ? LEAST_S : UNKNOWN_S) * NS_PER_S;
    else if (limit_ns < LEAST_START_S * NS_PER_S)
        limit_ns = LEAST_START_S * NS_PER_S;
    for (; quiet_ns < limit_ns; quiet_ns += TICK_NS) { /* our own ticks: a pause does not count */
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
        if (mpi_started)
            return NULL;
    }
    err_set(&err, ERR_SYSTEM,
            "MPI has not started within %s: another rank may have ended, its node is not to be "
            "reached, or a limit of this process (ulimit -a) is too low",
            format_ns(limit_ns, time, sizeof time));
    err_hint(&err, "ELAPSE_STALL sets the time (docs/trust.md)");
    (*fail)(&err);
    return NULL;
}

void watchdog_begin(void (*fail)(const struct err *err))
{
    static void (*kept)(const struct err *);
    kept = fail;
    start_thread(watching_init, &kept);
}

enum status watchdog_start(const struct comm *comm, struct err *err)
{
    static struct watchdog w;
    const size_t bytes =
        sizeof *w.page + (size_t)comm->local_size * sizeof(struct watch_post) + 4096;
    MPI_Comm local = MPI_COMM_NULL;
    struct err none = {0};
    void *page = NULL;
    bool off = false, fine = false;
    mpi_started = true;
    enum status rc = comm_agree(comm, read_setting(&off, &w.fixed_ns, err), err);
    int64_t any_off = off || comm->size == 1;
    THEN(comm_max_i64(comm->all, &any_off, 1, err));
    if (rc != OK || any_off)
        return rc;
    MPI_TRY(MPI_Comm_split_type(comm->all->mpi, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local));
    w.comm = *comm;
    w.num = comm->local_size;
    w.first = comm->rank - comm->local_rank;
    w.ticks = calloc((size_t)w.num, sizeof *w.ticks);
    w.since = calloc((size_t)w.num, sizeof *w.since);
    rc = shm_agree(local, w.ticks && w.since, &fine, err);
    if (rc == OK && fine && shm_map(local, bytes, &page, &none) == OK) {
        w.page = page;
        watch_use(&w.page->posts[comm->local_rank]);
        watch_phase("set-up");
        if (!start_thread(watching, &w)) /* its peers must not take it for stopped */
            atomic_store(&w.page->told, true);
    }
out:
    if (local != MPI_COMM_NULL)
        MPI_Comm_free(&local);
    return rc;
}
