#include "exec/change/plan_ahead.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "exec/trainer/trainer_state.h"
#include "partition/step/lower.h"

/* The thread's input and result. The trainer does not change its plan while the thread runs. */
struct ahead {
    const struct trainer *t; /* borrowed */
    pthread_t thread;
    struct run_state ask;      /* of the next turn; the thread sets the number of frozen layers */
    int least, most;           /* frozen layers that the next decision may choose */
    struct link_patterns list; /* without pairs */
    bool runs;
    _Atomic bool done, unwanted; /* unwanted: make no further plan */
};

/* A pattern is sent as an array of ints: copy, most_blocks, sums, then colors and keys. */
enum { HEADER_INTS = 3 };

/* Move patterns into the list that it does not have yet. */
static enum status join(struct link_patterns *list, struct link_patterns *more, int num_ranks,
                        struct err *err)
{
    struct nccl_pattern *grown =
        realloc(list->patterns, (size_t)(list->num + more->num + 1) * sizeof *grown);
    if (!grown)
        return err_nomem(err);
    list->patterns = grown;
    for (int i = 0; i < more->num; i++) {
        int j = 0;
        while (j < list->num &&
               !nccl_pattern_same(&list->patterns[j], &more->patterns[i], num_ranks))
            j++;
        if (j < list->num)
            continue;
        list->patterns[list->num++] = more->patterns[i];
        more->patterns[i] = (struct nccl_pattern){0};
    }
    return OK;
}

/* Add the groups that a plan with this many frozen layers needs. The caller ignores failures: a
 * plan that cannot be made needs no groups. */
static enum status add_plan(struct ahead *ahead, int num_frozen, struct err *err)
{
    const struct trainer *t = ahead->t;
    struct train_plan next = {.cluster = t->deployment.plan.cluster,
                              .present = t->deployment.plan.present};
    const struct planning with = trainer_planning(t);
    struct link_patterns groups = {0};
    struct workload workload = {0};
    struct schedule full = {0};
    struct cost roofline;
    ahead->ask.num_frozen_layers = num_frozen;
    cost_roofline(&roofline, NULL);
    enum status rc = train_plan_choose(&with, &ahead->ask, &next, err);
    THEN(plan_lower(&(struct setting){&t->job->model, &next.cluster, &roofline}, &next.plan,
                    &workload, &full, err));
    THEN(runtime_links_list(&(struct link_plan){&next.plan, &workload, &full}, t->comm->size,
                            &groups, err));
    THEN(join(&ahead->list, &groups, t->comm->size, err));
    link_patterns_clear(&groups);
    workload_clear(&workload);
    schedule_clear(&full);
    plan_clear(&next.plan); /* the cluster belongs to the present plan */
    return rc;
}

/* Begin with the most frozen layers, because policies usually freeze up to their cap. */
static void *plan_ahead(void *arg)
{
    struct ahead *ahead = arg;
    const struct trainer *t = ahead->t;
    (void)cores_release(t->cores, NULL); /* this rank's own cores are busy computing */
    for (int f = ahead->most; f >= ahead->least && !atomic_load(&ahead->unwanted); f--)
        if (turn_changes(t->job, ahead->ask.turn, f, &t->deployment.plan.plan))
            (void)add_plan(ahead, f, NULL);
    atomic_store(&ahead->done, true);
    return NULL;
}

void ahead_start(struct trainer *t)
{
    const bool steps = t->job->freeze.every_steps > 0; /* turns may be shorter than epochs */
    const int64_t epoch = t->progress.epoch + !steps;
    if (!t->nccl || t->comm->rank != 0 || !turn_elastic(t->job) || epoch >= t->job->train.epochs)
        return;
    struct ahead *ahead = calloc(1, sizeof *ahead);
    if (!ahead)
        return;
    ahead->t = t;
    ahead->ask = trainer_ask(t, epoch, trainer_turn(t) + 1);
    ahead->least = ahead->most = t->progress.num_frozen_layers;
    if (t->job->freeze.policy != FREEZE_NONE)
        freeze_bounds(&t->elastic.freeze, (int)ahead->ask.turn, &ahead->least, &ahead->most);
    ahead->runs = pthread_create(&ahead->thread, NULL, plan_ahead, ahead) == 0;
    t->elastic.ahead = ahead;
}

void ahead_stop(struct trainer *t)
{
    struct ahead *ahead = t->elastic.ahead;
    if (!ahead)
        return;
    atomic_store(&ahead->unwanted, true);
    if (ahead->runs)
        pthread_join(ahead->thread, NULL);
    link_patterns_clear(&ahead->list);
    free(ahead);
    t->elastic.ahead = NULL;
}

bool ahead_ready(const struct trainer *t)
{
    const struct ahead *ahead = t->elastic.ahead;
    return ahead && atomic_load(&ahead->done) && ahead->list.num > 0;
}

static void pack(const struct nccl_pattern *pattern, int num_ranks, int *to)
{
    to[0] = pattern->copy;
    to[1] = pattern->most_blocks;
    to[2] = pattern->sums;
    memcpy(to + HEADER_INTS, pattern->color, (size_t)num_ranks * sizeof *to);
    memcpy(to + HEADER_INTS + num_ranks, pattern->key, (size_t)num_ranks * sizeof *to);
}

static struct nccl_pattern unpack(const int *from, int num_ranks)
{
    return (struct nccl_pattern){.copy = from[0],
                                 .most_blocks = from[1],
                                 .sums = from[2],
                                 .color = from + HEADER_INTS,
                                 .key = from + HEADER_INTS + num_ranks};
}

enum status ahead_share(struct trainer *t, struct err *err)
{
    const struct comm *comm = t->comm;
    const struct ahead *ahead = t->elastic.ahead;
    const size_t each = HEADER_INTS + 2 * (size_t)comm->size;
    struct nccl_pattern *patterns = NULL;
    int *all = NULL, num = ahead ? ahead->list.num : 0;
    enum status rc = comm_bcast(comm->all, &num, sizeof num, 0, err);
    if (rc != OK)
        return rc;
    all = malloc((size_t)num * each * sizeof *all + 1);
    patterns = malloc((size_t)num * sizeof *patterns + 1);
    rc = comm_agree(comm, all && patterns ? OK : err_nomem(err), err);
    for (int i = 0; rc == OK && ahead && i < num; i++)
        pack(&ahead->list.patterns[i], comm->size, all + (size_t)i * each);
    THEN(comm_bcast(comm->all, all, (int64_t)((size_t)num * each * sizeof *all), 0, err));
    for (int i = 0; rc == OK && i < num; i++)
        patterns[i] = unpack(all + (size_t)i * each, comm->size);
    THEN(nccl_prepare(t->nccl, patterns, num, err));
    free(all);
    free(patterns);
    ahead_stop(t); /* all ranks know the groups now */
    return rc;
}
