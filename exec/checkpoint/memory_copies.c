#include "exec/checkpoint/memory_copies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "exec/checkpoint/node_copies.h"
#include "exec/checkpoint/owned_folder.h"
#include "partition/base/units.h"
#include "profiles/base/clock.h"
#include "profiles/base/memory_folder.h"

/* The most that a node holds, where the nodes have like parts of the model: two copies of weights and
 * optimizer states in fp32, of its own ranks and of the node before. */
static int64_t bytes_of(const struct job *job, int num_nodes)
{
    const int64_t bytes =
        2 * model_total_params(&job->model) * (4 + job_optim_bytes_per_param(job));
    return num_nodes > 2 ? bytes / num_nodes * 2 : bytes;
}

/* Whether all nodes have that memory. *left: of the one that has least. */
static enum status have_memory(const struct comm *comm, int64_t bytes, int64_t *left, bool *have,
                               struct err *err)
{
    int64_t least = -node_memory_left();
    const enum status rc = comm_max_i64(comm->all, &least, 1, err);
    *left = -least;
    *have = bytes <= *left;
    return rc;
}

/* Each node gets the run's folder. A resumed run has it, and the copy that it resumes from, until the
 * next one is whole. */
static enum status make_folder(const struct comm *comm, struct memory_copies *copies,
                               struct err *err)
{
    int64_t failed = comm->local_rank == 0 && !owned_folder_is(copies->dir, copies->run_id) &&
                     owned_folder_make(copies->dir, copies->run_id, NULL) != OK;
    const enum status rc = comm_max_i64(comm->all, &failed, 1, err);
    if (failed)
        snprintf(copies->note, sizeof copies->note,
                 "no copies in memory: '%s' cannot be made; files count", copies->dir);
    copies->on = !failed;
    return rc;
}

enum status memory_copies_open(const struct comm *comm, const struct job *job, const char *run_id,
                               bool from_copy, struct memory_copies *copies, struct err *err)
{
    const int64_t bytes = bytes_of(job, comm->num_nodes);
    const bool one = comm->num_nodes == 1;
    int64_t left = 0;
    char need[32], have[32];
    *copies = (struct memory_copies){.whole_step = -1};
    snprintf(copies->run_id, sizeof copies->run_id, "%s", run_id);
    enum status rc = comm_bcast(comm->all, copies->run_id, sizeof copies->run_id, 0, err);
    memory_folder(copies->run_id, copies->dir);
    if (comm->local_rank == 0 && !from_copy)
        (void)owned_folder_remove_all(copies->dir, copies->run_id);
    if (rc != OK || job->train.memory_every_steps == 0)
        return rc;
    rc = have_memory(comm, bytes, &left, &copies->on, err);
    format_bytes(bytes, need, sizeof need);
    if (!copies->on)
        snprintf(
            copies->note, sizeof copies->note,
            "no copies in memory: they need %s of shared memory%s, and %s are available; files "
            "count",
            need, one ? "" : " on each node", format_bytes(left, have, sizeof have));
    else
        snprintf(copies->note, sizeof copies->note,
                 "a copy of the state is kept in %s%s after every %s: %s %s%s", copies->dir,
                 one ? "" : " of its node and of another one",
                 job->train.memory_every_steps == 1
                     ? "step"
                     : COUNT_TEXT(job->train.memory_every_steps, "step"),
                 comm->num_nodes > 2 ? "about" : "at most", need, one ? "" : " on each node");
    return rc == OK && copies->on ? make_folder(comm, copies, err) : rc;
}

/* Wait until the copy that is being written is complete, then delete older ones. */
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
    if (comm->local_rank == 0 && checkpoint_steps(copies->dir, &steps, &num, NULL) == OK)
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
    struct checkpoint_state own = *state;
    own.run_id = copies->run_id;
    own.per_node = comm->num_nodes > 1;
    THEN(checkpoint_begin(comm, path, &own, true, &copies->write, &why));
    copies->step = state->progress->step;
    const int64_t waited = clock_now_ns() - begin;
    copies->stall_ns += waited;
    if (waited > copies->longest_stall_ns)
        copies->longest_stall_ns = waited;
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
    if (comm->local_rank == 0)
        (void)owned_folder_remove_all(copies->dir, copies->run_id);
    return rc;
}

/* Facts about the run in folder `from` that rank 0 finds for all ranks. */
struct origin {
    char run_id[RUN_ID_SIZE]; /* "": not known */
    int64_t saved;            /* the step of the file that was chosen; -1: none was */
};

static struct origin origin_of(const char *from, const struct checkpoint_choice *choice)
{
    struct origin origin = {.saved = -1};
    if (run_id_read(from, origin.run_id, NULL) != OK)
        *origin.run_id = '\0';
    const char *name = choice->dir ? strrchr(choice->dir, '/') : NULL;
    if (name && strncmp(name, "/checkpoint-", 12) == 0)
        origin.saved = strtoll(name + 12, NULL, 10);
    return origin;
}

/* The largest step below `below` and above `above` of this node's copies; -1: there is none. */
static int64_t copy_below(const char *dir, const char *run_id, int64_t below, int64_t above)
{
    int64_t *steps = NULL, step = -1;
    int num = 0;
    if (owned_folder_is(dir, run_id) && checkpoint_steps(dir, &steps, &num, NULL) == OK)
        for (int i = 0; step < 0 && i < num; i++)
            step = steps[i] < below && steps[i] > above ? steps[i] : -1;
    free(steps);
    return step;
}

enum status memory_copies_choose(const struct comm *comm, const char *from,
                                 struct checkpoint_choice *choice, struct err *err)
{
    struct origin origin = {.saved = -1};
    struct checkpoint_choice copy = {0};
    struct err first = {0};
    char dir[MEMORY_FOLDER_SIZE], path[160];
    if (comm->rank == 0)
        origin = origin_of(from, choice);
    enum status rc = comm_bcast(comm->all, &origin, sizeof origin, 0, err);
    if (rc != OK || !*origin.run_id)
        return rc;
    memory_folder(origin.run_id, dir);
    for (int64_t step = INT64_MAX; !copy.dir;) {
        struct err why = {0};
        step = copy_below(dir, origin.run_id, step, origin.saved);
        rc = comm_max_i64(comm->all, &step, 1, err);
        if (rc != OK || step < 0)
            break;
        snprintf(path, sizeof path, "%s/checkpoint-%lld", dir, (long long)step);
        if (comm->num_nodes > 1)
            rc = node_copies_complete(comm, dir, origin.run_id, step, &why);
        THEN(checkpoint_choose(comm, path, &copy, &why));
        if (rc == ERR_NOMEM)
            return err_copy(err, &why);
        err_copy(&first, &why);
    }
    if (rc != OK || !copy.dir) {
        if (first.status != OK)
            snprintf(choice->note, sizeof choice->note, "the copy in memory cannot be used: %.300s",
                     first.msg);
        return rc;
    }
    free(choice->dir);
    choice->dir = copy.dir;
    choice->run = strdup(from);
    if (!choice->run)
        return err_nomem(err);
    snprintf(choice->note, sizeof choice->note, "continuing from the copy of step %s in memory",
             strrchr(path, '-') + 1);
    return OK;
}
