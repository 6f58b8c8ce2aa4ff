#include "exec/save/memory_copies.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "exec/base/free_memory.h"
#include "exec/save/owned_folder.h"
#include "partition/base/units.h"
#include "profiles/base/clock.h"
#include "profiles/base/memory_folder.h"

/* Two copies: weights and optimizer states in fp32. */
static int64_t bytes_of(const struct job *job)
{
    return 2 * model_total_params(&job->model) * (4 + job_optim_bytes_per_param(job));
}

/* The memory that this machine can spare for copies. */
static int64_t bytes_left(void)
{
    struct statvfs shared;
    const int64_t memory = memory_available() / 2;
    if (statvfs(SHARED_MEMORY, &shared) != 0)
        return 0;
    const int64_t left = (int64_t)(shared.f_bavail * shared.f_frsize) / 2;
    return left < memory ? left : memory;
}

enum status memory_copies_open(const struct comm *comm, const struct job *job, const char *run_id,
                               bool from_copy, struct memory_copies *copies, struct err *err)
{
    char need[32], have[32];
    *copies = (struct memory_copies){.whole_step = -1};
    snprintf(copies->run_id, sizeof copies->run_id, "%s", run_id);
    enum status rc = comm_bcast(comm->all, copies->run_id, sizeof copies->run_id, 0, err);
    memory_folder(copies->run_id, copies->dir);
    if (comm->rank == 0 && !from_copy)
        (void)owned_folder_remove_all(copies->dir, copies->run_id);
    if (rc != OK || job->train.memory_every_steps == 0)
        return rc;
    const int64_t left = bytes_left();
    copies->on = comm->local_size == comm->size && bytes_of(job) <= left;
    rc = comm_bcast(comm->all, &copies->on, sizeof copies->on, 0, err);
    format_bytes(bytes_of(job), need, sizeof need);
    if (!copies->on && comm->local_size != comm->size)
        snprintf(copies->note, sizeof copies->note,
                 "no copies in memory: the ranks are on several machines; files count");
    else if (!copies->on)
        snprintf(copies->note, sizeof copies->note,
                 "no copies in memory: they need %s of shared memory, and %s are to be had; files "
                 "count",
                 need, format_bytes(left, have, sizeof have));
    else
        snprintf(copies->note, sizeof copies->note,
                 "a copy of the state is kept in %s after every %s: at most %s", copies->dir,
                 job->train.memory_every_steps == 1
                     ? "step"
                     : COUNT_TEXT(job->train.memory_every_steps, "step"),
                 need);
    /* A run that goes on has the folder, and the copy it goes on from, until the next one is whole. */
    if (rc == OK && copies->on && comm->rank == 0 && !owned_folder_is(copies->dir, run_id) &&
        owned_folder_make(copies->dir, run_id, NULL) != OK) {
        copies->on = false;
        snprintf(copies->note, sizeof copies->note,
                 "no copies in memory: '%s' cannot be made; files count", copies->dir);
    }
    return rc == OK ? comm_bcast(comm->all, &copies->on, sizeof copies->on, 0, err) : rc;
}

/* Wait for the copy that is being written; older ones go. */
static enum status end_write(const struct comm *comm, struct memory_copies *copies, struct err *err)
{
    if (!copies->write)
        return OK;
    const enum status rc = checkpoint_end(comm, copies->write, NULL, err);
    copies->write = NULL;
    if (rc != OK)
        return rc;
    copies->num++;
    copies->whole_step = copies->step;
    int64_t *steps = NULL;
    int num = 0;
    if (comm->rank == 0 && checkpoint_steps(copies->dir, &steps, &num, NULL) == OK)
        for (int i = 0; i < num; i++) {
            char path[160];
            snprintf(path, sizeof path, "%s/checkpoint-%lld", copies->dir, (long long)steps[i]);
            if (steps[i] != copies->step)
                (void)owned_folder_remove(path, copies->run_id);
        }
    free(steps);
    return OK;
}

enum status memory_copies_make(const struct comm *comm, const struct checkpoint_state *state,
                               struct memory_copies *copies, struct err *err)
{
    struct err why = {0};
    char path[160];
    if (!copies->on)
        return OK;
    const int64_t begin = clock_now_ns();
    enum status rc = end_write(comm, copies, &why);
    snprintf(path, sizeof path, "%s/checkpoint-%lld", copies->dir,
             (long long)state->progress->step);
    if (rc == OK)
        rc = checkpoint_begin(comm, path, state, true, &copies->write, &why);
    copies->step = state->progress->step;
    copies->stall_ns += clock_now_ns() - begin;
    if (rc == OK || (rc != ERR_SYSTEM && rc != ERR_NOMEM))
        return rc == OK ? OK : err_copy(err, &why);
    copies->on = false;
    snprintf(copies->note, sizeof copies->note, "no more copies in memory: %.160s; files count",
             why.msg);
    return OK;
}

enum status memory_copies_end(const struct comm *comm, struct memory_copies *copies,
                              struct err *err)
{
    if (!*copies->dir)
        return OK;
    const enum status rc = end_write(comm, copies, err);
    if (comm->rank == 0)
        (void)owned_folder_remove_all(copies->dir, copies->run_id);
    return rc;
}

/* Rank 0: the step of the newest copy, if it is behind the file's; else -1. */
static int64_t newest_copy(const char *from, const struct checkpoint_choice *choice,
                           char dir[MEMORY_FOLDER_SIZE])
{
    char id[RUN_ID_SIZE];
    int64_t *steps = NULL, step = -1, saved = -1;
    int num = 0;
    if (run_id_read(from, id, NULL) != OK || !*id)
        return -1;
    memory_folder(id, dir);
    if (owned_folder_is(dir, id) && checkpoint_steps(dir, &steps, &num, NULL) == OK && num > 0)
        step = steps[0];
    free(steps);
    const char *name = choice->dir ? strrchr(choice->dir, '/') : NULL;
    if (name && strncmp(name, "/checkpoint-", 12) == 0)
        saved = strtoll(name + 12, NULL, 10);
    return step > saved ? step : -1;
}

enum status memory_copies_choose(const struct comm *comm, const char *from,
                                 struct checkpoint_choice *choice, struct err *err)
{
    struct {
        int64_t step;
        char dir[MEMORY_FOLDER_SIZE];
    } found = {.step = -1};
    struct checkpoint_choice copy = {0};
    struct err why = {0};
    char path[160];
    if (comm->rank == 0)
        found.step = newest_copy(from, choice, found.dir);
    enum status rc = comm_bcast(comm->all, &found, sizeof found, 0, err);
    if (rc != OK || found.step < 0)
        return rc;
    snprintf(path, sizeof path, "%s/checkpoint-%lld", found.dir, (long long)found.step);
    rc = checkpoint_choose(comm, path, &copy, &why);
    if (rc != OK) {
        snprintf(choice->note, sizeof choice->note, "the copy in memory cannot be used: %.300s",
                 why.msg);
        return rc == ERR_NOMEM ? err_copy(err, &why) : OK;
    }
    free(choice->dir);
    choice->dir = copy.dir;
    choice->run = strdup(from);
    if (!choice->run)
        return err_nomem(err);
    snprintf(choice->note, sizeof choice->note, "continuing from the copy of step %lld in memory",
             (long long)found.step);
    return OK;
}
