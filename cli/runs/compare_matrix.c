/* The matrix of `elapse compare --matrix`: the product of lists of settings. Read matrix_run() at the
 * end first, then run_entries() and run_config(). */
#include "cli/runs/compare_matrix.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/base/command.h"
#include "cli/launch/launch.h"
#include "cli/runs/replay.h"
#include "partition/base/units.h"
#include "profiles/job/job_json.h"

#define FILL_STEPS 4 /* steps of the epoch that fills the cache; they are not compared */

/* The options with their lists read. */
struct matrix {
    const struct matrix_ask *ask;
    int64_t *stages, *replicas, *microbatches, *frozen; /* owned */
    int num_stages, num_replicas, num_microbatches;
    int num_frozen; /* 0: the job decides about freezing */
    int64_t batch;  /* of the job, per pipeline or global */
    bool per_pipeline;
};

/* One entry of a matrix. */
struct entry {
    int64_t stages, replicas, microbatches;
    int64_t frozen; /* layers frozen from the first epoch on; -1: the job decides */
    bool cached;
    char schedule[64], recompute[64];
};

enum { MAX_ENTRY_SETS = 13, SET_BYTES = 96 };

/* Write the overrides that turn the job into an entry; returns how many. A cached run has epochs of
 * FILL_STEPS steps. The first epoch fills the cache, and replay_read() counts the steps after it.
 */
static int entry_sets(const struct matrix *m, const struct entry *e,
                      char sets[MAX_ENTRY_SETS][SET_BYTES])
{
    const int64_t steps = m->ask->steps + (e->cached ? FILL_STEPS : 0);
    int n = 0;
    snprintf(sets[n++], SET_BYTES, "pipeline.num_stages=%lld", (long long)e->stages);
    snprintf(sets[n++], SET_BYTES, "pipeline.num_replicas=%lld", (long long)e->replicas);
    /* A job with a global batch counts the micro-batches of all replicas. */
    snprintf(sets[n++], SET_BYTES, "pipeline.num_microbatches=%lld",
             (long long)(e->microbatches * (m->per_pipeline ? 1 : e->replicas)));
    snprintf(sets[n++], SET_BYTES, "train.batch.micro=auto");
    snprintf(sets[n++], SET_BYTES, "pipeline.schedule=%s", e->schedule);
    snprintf(sets[n++], SET_BYTES, "pipeline.recompute=%s", e->recompute);
    snprintf(sets[n++], SET_BYTES, "train.max_steps=%lld", (long long)steps);
    if (e->frozen == 0)
        snprintf(sets[n++], SET_BYTES, "freeze.policy=none");
    if (e->frozen > 0) {
        snprintf(sets[n++], SET_BYTES, "freeze.policy=table");
        snprintf(sets[n++], SET_BYTES, "freeze.table=[%lld]", (long long)e->frozen);
        snprintf(sets[n++], SET_BYTES, "cache.policy=%s", e->cached ? "on" : "off");
    }
    if (e->cached) {
        snprintf(sets[n++], SET_BYTES, "pipeline.frozen=cached");
        snprintf(sets[n++], SET_BYTES, "data.train_samples=%lld",
                 (long long)(FILL_STEPS * m->batch * (m->per_pipeline ? e->replicas : 1)));
        snprintf(sets[n++], SET_BYTES, "train.epochs=%lld", (long long)(steps / FILL_STEPS + 1));
    }
    return n;
}

/* Run `elapse-exec train` for one entry into run_dir, and replay it. */
static enum status run_config(const struct matrix *m, const struct entry *entry,
                              const char *run_dir, struct comparison *c, struct err *err)
{
    char sets[MAX_ENTRY_SETS][SET_BYTES], threads[24];
    char *argv[10 + 2 * MAX_ENTRY_SETS + 2 * OPTION_LIST_MAX];
    int argc = 0;
    struct replay replay = {0};
    argv[argc++] = "train";
    argv[argc++] = (char *)m->ask->job;
    argv[argc++] = "--out";
    argv[argc++] = (char *)run_dir;
    argv[argc++] = "--no-eval";
    snprintf(threads, sizeof threads, "%lld", (long long)m->ask->threads);
    if (m->ask->db_path) {
        argv[argc++] = "--db";
        argv[argc++] = (char *)m->ask->db_path;
    }
    if (m->ask->threads > 0) {
        argv[argc++] = "--threads";
        argv[argc++] = threads;
    }
    for (int i = 0; i < m->ask->sets.count; i++) {
        argv[argc++] = "--set";
        argv[argc++] = (char *)m->ask->sets.items[i];
    }
    const int num_sets = entry_sets(m, entry, sets);
    for (int i = 0; i < num_sets; i++) {
        argv[argc++] = "--set";
        argv[argc++] = sets[i];
    }
    enum status rc =
        launch_exec(&(struct launch){.num_ranks = entry->stages * entry->replicas, .quiet = true},
                    argc, argv, NULL, err);
    if (rc == OK && launch_stopped())
        rc = err_set(err, ERR_SYSTEM, "the matrix was stopped");
    THEN(replay_load(run_dir, m->ask->db_path, &replay, err));
    if (rc == OK && entry->cached && replay.plan.frozen != FROZEN_CACHED)
        rc = err_set(err, ERR_INFEASIBLE, "--cache on: the run with F=%lld had no cache",
                     (long long)entry->frozen);
    THEN(comparison_add_run(c, &replay, err));
    replay_clear(&replay);
    return rc;
}

/* Read entry n, counted from 0, of a list of names "a,b,c". Returns false if there is none. */
static bool nth_name(const char *list, int n, char *name, size_t size)
{
    for (; n > 0 && list; n--) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    if (list)
        snprintf(name, size, "%.*s", (int)strcspn(list, ","), list);
    return list != NULL;
}

static int count_names(const char *list)
{
    char name[64];
    int n = 0;
    while (nth_name(list, n, name, sizeof name))
        n++;
    return n;
}

/* Make entry `at` of the product K x R x F x cache x recompute x M x schedule. Returns false if it
 * does not exist: it needs too many ranks, or a cache with no frozen layers. */
static bool nth_entry(const struct matrix *m, int64_t at, struct entry *e)
{
    char cache[64];
    const int64_t num_schedules = count_names(m->ask->schedules);
    const int64_t num_modes = count_names(m->ask->recomputes);
    const int64_t num_caches = count_names(m->ask->caches);
    const int64_t num_frozen = m->num_frozen > 0 ? m->num_frozen : 1;
    nth_name(m->ask->schedules, (int)(at % num_schedules), e->schedule, sizeof e->schedule);
    at /= num_schedules;
    e->microbatches = m->microbatches[at % m->num_microbatches];
    at /= m->num_microbatches;
    nth_name(m->ask->recomputes, (int)(at % num_modes), e->recompute, sizeof e->recompute);
    at /= num_modes;
    nth_name(m->ask->caches, (int)(at % num_caches), cache, sizeof cache);
    e->cached = strcmp(cache, "on") == 0;
    at /= num_caches;
    e->frozen = m->num_frozen > 0 ? m->frozen[at % num_frozen] : -1;
    at /= num_frozen;
    e->replicas = m->replicas[at % m->num_replicas];
    e->stages = m->stages[at / m->num_replicas];
    return e->stages * e->replicas <= m->ask->ranks && (!e->cached || e->frozen > 0);
}

/* Refuse an entry that its job would refuse, before the other entries run for minutes. */
static enum status check_entry(const struct matrix *m, const struct entry *e, struct err *err)
{
    char sets[MAX_ENTRY_SETS][SET_BYTES];
    const char *all[OPTION_LIST_MAX + MAX_ENTRY_SETS];
    struct job job = {0};
    int n = 0;
    for (int i = 0; i < m->ask->sets.count; i++)
        all[n++] = m->ask->sets.items[i];
    const int num_sets = entry_sets(m, e, sets);
    for (int i = 0; i < num_sets; i++)
        all[n++] = sets[i];
    enum status rc = job_load(m->ask->job, all, n, &job, err);
    job_clear(&job);
    return rc;
}

/* Run all entries. Repeats are the outermost loop, so that a slow minute of the machine affects all
 * entries equally. */
static enum status run_entries(const struct matrix *m, const char *work, struct comparison *configs,
                               int *num_configs, struct err *err)
{
    char run_dir[PATH_MAX + 64], frozen[48], left[32];
    struct entry e;
    const int64_t all = (int64_t)m->num_stages * m->num_replicas * m->num_microbatches *
                        (m->num_frozen > 0 ? m->num_frozen : 1) * count_names(m->ask->caches) *
                        count_names(m->ask->schedules) * count_names(m->ask->recomputes);
    enum status rc = OK;
    int fit = 0;
    for (int64_t i = 0; i < all && rc == OK; i++)
        if (nth_entry(m, i, &e))
            rc = fit++ < COMPARISONS_MAX
                     ? check_entry(m, &e, err)
                     : err_set(err, ERR_INPUT, "the matrix has more than %d entries",
                               COMPARISONS_MAX);
    if (rc != OK)
        return rc;
    struct ticker progress;
    ticker_begin(&progress, TICKER_LINES);
    for (int64_t repeat = 0; repeat < m->ask->repeats; repeat++) {
        int n = 0;
        for (int64_t i = 0; i < all; i++) {
            if (!nth_entry(m, i, &e))
                continue;
            snprintf(frozen, sizeof frozen, " F=%lld%s", (long long)e.frozen,
                     e.cached ? " cached" : "");
            const int64_t done = repeat * fit + n, runs = m->ask->repeats * fit;
            fprintf(
                stderr, "run %lld of %lld, %s left: K=%lld R=%lld M=%lld%s %s recompute %s\n",
                (long long)done + 1, (long long)runs,
                format_left(ticker_left(&progress, (double)done / (double)runs), left, sizeof left),
                (long long)e.stages, (long long)e.replicas, (long long)e.microbatches,
                e.frozen >= 0 ? frozen : "", e.schedule, e.recompute);
            snprintf(run_dir, sizeof run_dir, "%s/run-%lld-%d", work, (long long)repeat, n);
            rc = run_config(m, &e, run_dir, &configs[n], err);
            if (rc != OK)
                return rc;
            n++;
        }
        *num_configs = n;
    }
    return *num_configs > 0 ? OK
                            : err_set(err, ERR_INPUT, "no entry of the matrix fits %s",
                                      COUNT_TEXT(m->ask->ranks, "rank"));
}

/* Check --frozen and --cache against the job: names, F within its layers, and the samples of an
 * epoch. */
static enum status check_frozen(struct matrix *m, struct err *err)
{
    char cache[64];
    bool on = false, any = false;
    struct job job = {0};
    for (int i = 0; nth_name(m->ask->caches, i, cache, sizeof cache); i++) {
        if (strcmp(cache, "on") != 0 && strcmp(cache, "off") != 0)
            return err_set(err, ERR_INPUT, "--cache must be a list of on and off, got '%s'", cache);
        on = on || cache[1] == 'n';
    }
    enum status rc = job_load(m->ask->job, m->ask->sets.items, m->ask->sets.count, &job, err);
    if (rc == OK && m->ask->frozen)
        rc = parse_int_list(m->ask->frozen, "--frozen", 0, job.model.num_layers, &m->frozen,
                            &m->num_frozen, err);
    for (int i = 0; i < m->num_frozen; i++)
        any = any || m->frozen[i] > 0;
    if (rc == OK && on && !any)
        rc = err_set(err, ERR_INPUT, "--cache on needs --frozen with a value above 0");
    m->batch = job.train.batch;
    m->per_pipeline = job.train.batch_mode == BATCH_PER_PIPELINE;
    if (rc == OK && on && m->batch > INT32_MAX / FILL_STEPS / m->ask->ranks)
        rc = err_set(err, ERR_INPUT, "--cache on: train.batch must be at most %lld, got %lld",
                     INT32_MAX / FILL_STEPS / (long long)m->ask->ranks, (long long)m->batch);
    job_clear(&job);
    return rc;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

/* Read the lists of numbers. */
static enum status read_lists(struct matrix *m, struct err *err)
{
    const struct matrix_ask *ask = m->ask;
    char ends[48];
    snprintf(ends, sizeof ends, "1,%lld", (long long)ask->ranks);
    if (ask->ranks == 1)
        ends[1] = '\0';
    enum status rc = parse_int_list(ask->stages ? ask->stages : ends, "--stages", 1, ask->ranks,
                                    &m->stages, &m->num_stages, err);
    THEN(parse_int_list(ask->replicas ? ask->replicas : ends, "--replicas", 1, ask->ranks,
                        &m->replicas, &m->num_replicas, err));
    THEN(parse_int_list(ask->microbatches, "--microbatches", 1, 1 << 20, &m->microbatches,
                        &m->num_microbatches, err));
    return rc == OK ? check_frozen(m, err) : rc;
}

enum status matrix_run(const struct matrix_ask *ask, struct comparison *configs, int *num,
                       struct err *err)
{
    char work[PATH_MAX];
    const char *tmp = getenv("TMPDIR");
    struct matrix m = {.ask = ask};
    *num = 0;
    enum status rc = read_lists(&m, err);
    snprintf(work, sizeof work, "%s/elapse-matrix.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (rc == OK && !mkdtemp(work))
        rc = err_set(err, ERR_SYSTEM, "cannot make a folder '%s': %s", work, strerror(errno));
    else if (rc == OK) {
        rc = run_entries(&m, work, configs, num, err);
        nftw(work, remove_entry, 16, FTW_DEPTH | FTW_PHYS); /* a temporary folder: ignore errors */
    }
    free(m.stages);
    free(m.replicas);
    free(m.microbatches);
    free(m.frozen);
    return rc;
}
