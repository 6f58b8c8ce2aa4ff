/* exec/change/elastic.c - decisions to freeze, changes of plan, and orders to idle ranks.
 *
 * The file has four parts: the state of the freeze policy with its norms; notes of changes for the
 * records; orders from rank 0 to idle ranks; and change(), which all ranks run together. Read
 * elastic_turn_start() first, then change(). */
#include "exec/change/elastic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/base/watch.h"
#include "exec/change/move.h"
#include "exec/change/plan_ahead.h"
#include "exec/probe/probe.h"
#include "exec/change/slow_ranks.h"
#include "exec/change/thaw.h"
#include "exec/trainer/trainer_state.h"
#include "partition/base/arrays.h"
#include "partition/freeze/freeze_choice.h"
#include "profiles/job/job_json.h"

enum { ORDER_TAG = 7 };
enum { LEAST_SLEEP_NS = 50000, MOST_SLEEP_NS = 5000000 };

/* The decision of rank 0 before a turn. */
struct decision {
    int64_t epoch, turn, start_ns, decide_ns;
    int num_frozen;
    int lowest;   /* frozen layers below this one never train again */
    int next;     /* layers that the next turn is certain to have frozen */
    double share; /* of weight gradients, under the policy safe */
    bool change;
    char reason[160];
};

struct order {
    enum order_kind kind;
    enum status status;
    bool interrupted;
    struct progress progress;
    struct decision decision;
    struct err err;
};

/* --- freeze ----------------------------------------------------------------------------------- */

void elastic_clear(struct elastic *elastic)
{
    freeze_clear(&elastic->freeze);
    free(elastic->norms.sumsq);
    free(elastic->norms.rows);
    free(elastic->notes);
    free(elastic->order);
    kept_clear(&elastic->kept);
    *elastic = (struct elastic){0};
}

/* Turn the sums, if there are any, into a row of norms, and clear them. */
static enum status close_turn(struct turn_norms *norms, int num_layers, struct err *err)
{
    const size_t n = (size_t)num_layers, at = (size_t)norms->num_turns * n;
    if (norms->steps == 0)
        return OK;
    if (!array_extend(&norms->rows, norms->num_turns, n * sizeof *norms->rows))
        return err_nomem(err);
    for (size_t l = 0; l < n; l++)
        norms->rows[at + l] = sqrt(norms->sumsq[l] / (double)norms->steps);
    norms->num_turns++;
    memset(norms->sumsq, 0, n * sizeof *norms->sumsq);
    norms->steps = 0;
    return OK;
}

static enum status decide(struct trainer *t, int64_t turn, int *num_frozen, char reason[160],
                          struct err *err)
{
    struct elastic *elastic = &t->elastic;
    const struct turn_facts facts = {elastic->norms.rows, elastic->norms.num_turns,
                                     &t->probe.history};
    struct freeze_evidence *row = freeze_history_at(&t->probe.history, turn - 1);
    enum status rc = turn_decide(&elastic->freeze, &facts, turn, num_frozen, reason, err);
    if (rc == OK && row && t->job->freeze.policy == FREEZE_SAFE)
        row->verdict = elastic->freeze.verdict;
    if (rc == OK && elastic->freeze.held)
        snprintf(elastic->held, sizeof elastic->held, "before epoch %lld: %s",
                 (long long)t->progress.epoch, reason);
    return rc;
}

static int next_frozen(const struct trainer *t)
{
    return turn_next_frozen(t->job, &t->elastic.freeze, trainer_turn(t), t->total_steps);
}

static int items_of(const struct trainer *t, int num_layers)
{
    return model_frozen_items(&t->job->model, num_layers);
}

/* freeze.choice norm: the order in which items are left out, once two turns are over. Collective over
 * the group, whose rank 0 is rank 0. */
static enum status order_items(struct trainer *t, struct comm_group *group, struct err *err)
{
    const struct model *model = &t->job->model;
    const struct turn_norms *norms = &t->elastic.norms;
    const int n = model->num_items;
    if (t->job->freeze.choice != CHOICE_NORM || t->job->freeze.max_share <= 0)
        return OK;
    if (!t->elastic.order)
        t->elastic.order = calloc((size_t)n + 1, sizeof *t->elastic.order); /* the last: is known */
    int *order = t->elastic.order;
    if (!order)
        return err_nomem(err);
    if (t->comm->rank == 0 && norms->num_turns >= 2) {
        freeze_order(model, norms->rows, norms->num_turns, order);
        order[n] = 1;
    }
    return comm_bcast(group, order, (n + 1) * (int64_t)sizeof *order, 0, err);
}

const int *elastic_order_of_items(const struct trainer *t)
{
    const int *order = t->elastic.order;
    return order && order[t->job->model.num_items] ? order : NULL;
}

/* The frozen prefix does not change within a turn, whatever the policy says now. It shrinks only
 * where the checkpoint holds the optimizer state of the layers that would train again. What it
 * holds of layers that stay frozen is kept. */
static enum status settle_frozen(struct trainer *t, const char *checkpoint, bool begins,
                                 int *num_frozen, struct err *err)
{
    struct elastic *elastic = &t->elastic;
    const int was = t->progress.num_frozen_layers;
    enum status rc = OK;
    if (!begins)
        *num_frozen = was;
    if (*num_frozen < was && checkpoint)
        rc = kept_load(checkpoint, t->job, items_of(t, *num_frozen), items_of(t, was),
                       &elastic->kept, err);
    if (*num_frozen < was && !kept_has(&elastic->kept, items_of(t, *num_frozen), items_of(t, was)))
        *num_frozen = was;
    kept_clear(&elastic->kept); /* the stages read their own */
    if (t->job->freeze.policy != FREEZE_NONE)
        elastic->freeze.num_frozen = *num_frozen;
    if (rc == OK && checkpoint)
        rc = kept_load(checkpoint, t->job,
                       items_of(t, freeze_lowest(&elastic->freeze, (int)trainer_turn(t) + 1)),
                       items_of(t, *num_frozen), &elastic->kept, err);
    return rc;
}

enum status elastic_open(struct trainer *t, const char *resume_dir, int *num_frozen,
                         struct err *err)
{
    struct elastic *elastic = &t->elastic;
    const struct job *job = t->job;
    const bool begins = trainer_turn_due(t);
    char *dir = NULL, reason[160];
    int frozen[4] = {0}; /* in the first turn, and now; whether a window is open; undecided */
    enum status rc = freeze_init(&elastic->freeze, &job->freeze, job->model.num_layers, err);
    elastic->freeze.passes =
        job_probe_passes(job, t->dataset.num_samples[SPLIT_TRAIN], t->probe.num);
    elastic->freeze.keeps = job_probe_keeps(job, t->dataset.num_samples[SPLIT_TRAIN], t->probe.num);
    elastic->norms.sumsq = calloc((size_t)job->model.num_layers + 1, sizeof(double));
    if (rc == OK && !elastic->norms.sumsq)
        rc = err_nomem(err);
    if (rc == OK && t->comm->rank == 0) {
        if (resume_dir)
            rc = checkpoint_find(resume_dir, &dir, err);
        if (rc == OK && dir)
            rc = checkpoint_norms(dir, job->model.num_layers, &elastic->norms, err);
        if (rc == OK && dir && t->probe.on)
            rc = checkpoint_evidence(dir, &job->model, &t->probe.history, &t->probe.rate,
                                     &t->probe.steps, err);
        if (rc == OK && begins) /* the checkpoint was written at the end of a turn */
            rc = close_turn(&elastic->norms, job->model.num_layers, err);
        frozen[3] = begins && t->probe.steps > 0;
        for (int64_t e = 0; rc == OK && e <= trainer_turn(t) - frozen[3]; e++) {
            rc = decide(t, e, &frozen[1], reason, err);
            frozen[0] = e == 0 ? frozen[1] : frozen[0];
        }
        THEN(settle_frozen(t, dir, begins && !frozen[3], &frozen[1], err));
        frozen[2] = t->probe.steps > 0;
    }
    free(dir);
    rc = comm_agree(t->comm, rc, err);
    THEN(comm_bcast(t->comm->all, frozen, sizeof frozen, 0, err));
    THEN(order_items(t, t->comm->all, err));
    elastic->share = elastic->freeze.safe.share;
    THEN(comm_bcast(t->comm->all, &elastic->share, sizeof elastic->share, 0, err));
    elastic->first_frozen = frozen[0];
    t->probe.open = frozen[2];
    elastic->undecided = frozen[3];
    *num_frozen = frozen[1];
    return rc;
}

enum status elastic_look_ahead(struct trainer *t, struct err *err)
{
    if (t->comm->rank == 0)
        t->elastic.next_frozen = next_frozen(t);
    return comm_bcast(t->comm->all, &t->elastic.next_frozen, sizeof t->elastic.next_frozen, 0, err);
}

void elastic_count(struct trainer *t)
{
    const struct model *model = &t->job->model;
    const double *sumsq = runtime_item_sumsq(t->deployment.runtime);
    for (int i = 0; i < model->num_items; i++)
        if (model->items[i].layer >= 0)
            t->elastic.norms.sumsq[model->items[i].layer] += sumsq[i];
    t->elastic.norms.steps++;
}

/* --- notes of changes --------------------------------------------------------------------------
 */

/* Record the changes of the last note's epoch, summed. */
static void write_notes(struct trainer *t)
{
    static const char *const names[] = {"decide", "plan", "move", "groups", "cache", "total"};
    const struct elastic *elastic = &t->elastic;
    const struct transition_note *end = elastic->notes + elastic->num_notes;
    const int64_t epoch = end[-1].epoch;
    struct transition_row rows[TRANSITION_PARTS + 1];
    for (int i = 0; i <= TRANSITION_PARTS; i++) {
        bool moves = i == PART_MOVE || i == TRANSITION_PARTS;
        rows[i] = (struct transition_row){.epoch = epoch};
        for (const struct transition_note *n = end; n-- > elastic->notes && n->epoch == epoch;) {
            rows[i].ns += i < TRANSITION_PARTS ? n->part_ns[i] : n->total_ns;
            rows[i].bytes += moves ? n->bytes : 0;
        }
        snprintf(rows[i].part, sizeof rows[i].part, "%s", names[i]);
    }
    run_files_transitions(t->files, rows, TRANSITION_PARTS + 1);
}

static enum status note_change(struct trainer *t, const struct transition_note *note,
                               struct err *err)
{
    struct elastic *elastic = &t->elastic;
    if (!array_extend(&elastic->notes, elastic->num_notes, sizeof *elastic->notes))
        return err_nomem(err);
    elastic->notes[elastic->num_notes++] = *note;
    elastic->transition_ns += note->total_ns;
    write_notes(t);
    return OK;
}

/* The time that the present plan has spent on filling the cache belongs to the change that made it.
 */
static enum status note_fill(struct trainer *t, struct err *err)
{
    struct elastic *elastic = &t->elastic;
    int64_t ns = runtime_fill_ns(t->deployment.runtime);
    if (!t->base.cache)
        return OK;
    enum status rc = comm_max_i64(t->deployment.place.active, &ns, 1, err);
    if (rc != OK || t->comm->rank != 0 || elastic->num_notes == 0 || ns == 0)
        return rc;
    elastic->notes[elastic->num_notes - 1].part_ns[PART_CACHE] = ns;
    write_notes(t);
    return OK;
}

/* --- turns ------------------------------------------------------------------------------------ */

static enum status count_held(struct trainer *t, struct err *err)
{
    double sums[2] = {0};
    if (t->job->freeze.policy != FREEZE_APF)
        return OK;
    runtime_held(t->deployment.runtime, &sums[0], &sums[1]);
    const enum status rc = comm_sum_f64(t->deployment.place.active, sums, 2, err);
    t->elastic.weights_held = sums[1] > 0 ? sums[0] / sums[1] : 0;
    return rc;
}

enum status elastic_turn_end(struct trainer *t, struct err *err)
{
    struct turn_norms *norms = &t->elastic.norms;
    const int num_layers = t->job->model.num_layers;
    struct json *root;
    char *path = NULL;
    enum status rc = note_fill(t, err);
    THEN(count_held(t, err));
    const bool trained = norms->steps > 0 || (t->elastic.undecided && norms->num_turns > 0);
    if (rc == OK && t->comm->rank == 0)
        rc = close_turn(norms, num_layers, err);
    THEN(probe_end(
        t, trained && t->comm->rank == 0 ? norms->rows + (norms->num_turns - 1) * num_layers : NULL,
        err));
    if (rc != OK || !trained || t->comm->rank != 0)
        return rc;
    if (asprintf(&path, "%s/norms.json", t->out) < 0)
        return err_nomem(err);
    root = json_array_new();
    norms_to_json(root, norms->rows, norms->num_turns, num_layers);
    rc = json_write_file(root, path, err);
    trainer_hint_saved(t, rc, err);
    json_free(root);
    free(path);
    return rc;
}

enum status elastic_go_on(struct trainer *t, bool *ended, struct err *err)
{
    const int64_t turn = trainer_turn(t);
    *ended = t->elastic.undecided;
    if (!*ended)
        return OK;
    const enum status rc = elastic_turn_end(t, err);
    t->elastic.undecided = false;
    if (!t->probe.cut && turn_stages(t->job, turn) != turn_stages(t->job, turn - 1))
        probe_cut(&t->probe); /* as the change of plan did, which this run has begun after */
    return rc;
}

/* --- orders to idle ranks -----------------------------------------------------------------------
 */

static bool has_place(const struct plan *plan, int rank)
{
    for (int i = 0; i < plan->num_ranks * plan->num_pipelines; i++)
        if (plan->device[i] == rank)
            return true;
    return false;
}

static enum status give_order(struct trainer *t, const struct order *order, struct err *err)
{
    enum status rc = OK;
    for (int r = 1; rc == OK && t->comm->rank == 0 && r < t->comm->size; r++) {
        struct comm_request request = {0};
        if (has_place(&t->deployment.plan.plan, r))
            continue;
        rc = comm_isend(t->comm->all, order, sizeof *order, r, ORDER_TAG, &request, err);
        THEN(comm_wait(&request, err));
    }
    return rc;
}

enum status elastic_order(struct trainer *t, enum order_kind kind, enum status status,
                          struct err *err)
{
    struct order order = {
        .kind = kind, .status = status, .interrupted = t->interrupted, .progress = t->progress};
    struct err ignored = {0};
    if (err && status != OK)
        order.err = *err;
    return give_order(t, &order, status != OK ? &ignored : err);
}

static enum status wait_for_order(struct trainer *t, struct order *order, struct err *err)
{
    struct comm_request request = {0};
    int64_t sleep_ns = LEAST_SLEEP_NS;
    bool done = false;
    enum status rc = comm_irecv(t->comm->all, order, sizeof *order, 0, ORDER_TAG, &request, err);
    watch_wait("for the next plan of", 0, 1);
    while (rc == OK && !done) {
        rc = comm_test(&request, &done, err);
        if (rc == OK && !done && t->nccl) {
            rc = nccl_go_on(t->nccl, true, err);
            if (rc != OK) /* the message must not arrive in memory that is gone */
                comm_cancel(&request);
        }
        if (rc == OK && !done) {
            nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
            sleep_ns = 2 * sleep_ns < MOST_SLEEP_NS ? 2 * sleep_ns : MOST_SLEEP_NS;
        }
    }
    watch_wait_end();
    return rc;
}

/* --- changes ---------------------------------------------------------------------------------- */

static void lap(const struct comm *comm, int64_t *since, int64_t *sum)
{
    int64_t now = comm_now_ns(comm);
    *sum += now - *since;
    *since = now;
}

/* Note it where the ranks could form more replicas, but an epoch has too few samples for them, or
 * they cannot share the micro-batches of a canonical sum evenly (their number is the first plan's).
 */
static void add_limit(struct trainer *t, char *reason, size_t room)
{
    const struct plan *now = &t->deployment.plan.plan;
    const struct job *job = t->job;
    const int64_t samples = t->dataset.num_samples[SPLIT_TRAIN];
    const int64_t count = (int64_t)now->microbatches.count * now->num_pipelines;
    const int could = job->elastic.auto_dp ? t->comm->size / now->num_ranks : now->num_pipelines;
    const size_t at = strlen(reason);
    char why[120] = "";
    if (job->train.batch_mode == BATCH_PER_PIPELINE && could > now->num_pipelines &&
        now->batch > samples / (now->num_pipelines + 1))
        snprintf(why, sizeof why, "%d replicas of %lld samples exceed the %lld of an epoch",
                 now->num_pipelines + 1, (long long)now->batch, (long long)samples);
    if (job->train.batch_mode == BATCH_GLOBAL && job->train.reduction == REDUCTION_CANONICAL &&
        could >= 2 * now->num_pipelines && count % (2 * now->num_pipelines) != 0)
        snprintf(why, sizeof why, "%d replicas cannot share %lld micro-batches evenly",
                 2 * now->num_pipelines, (long long)count);
    if (*why) {
        snprintf(reason + at, room - at, "%s%s", at ? "; " : "", why);
        snprintf(t->elastic.limited, sizeof t->elastic.limited, "before epoch %lld: %s",
                 (long long)t->progress.epoch, why);
    }
}

/* Note that all ranks have agreed on this status. Failures of MPI are not agreed on. */
static enum status agreed(struct trainer *t, enum status rc)
{
    t->failure_agreed = rc == ERR_INFEASIBLE;
    return rc;
}

/* Weights and optimizer state go from the deployment in place to `next`. Rank 0 keeps the state of
 * layers that freeze and may train again; layers that train again get it back. The cache
 * drops the outputs of these layers. Collective over all ranks. */
static enum status move_state(struct trainer *t, struct deployment *next, int lowest,
                              int64_t *bytes, struct err *err)
{
    const int was = items_of(t, t->progress.num_frozen_layers);
    const int is = items_of(t, next->plan.plan.num_frozen_layers), low = items_of(t, lowest);
    enum status rc =
        thaw_keep(&t->base, &t->deployment, was > low ? was : low, is, &t->elastic.kept, err);
    THEN(move_weights(&t->base, &t->deployment, next, bytes, err));
    if (rc == OK && is < was)
        rc = agreed(t, thaw_return(&t->base, next, is, was, &t->elastic.kept, bytes, err));
    if (rc == OK && is < was && t->cache)
        cache_fall(t->cache, is);
    kept_drop(&t->elastic.kept, 0, low);
    return rc;
}

/* From the deployment in place to `next`, whose stages are still to be made: weights move, and the
 * runtime is built anew. Collective over all ranks. On failure *next keeps what is not in place
 * yet. */
static enum status change_deployment(struct trainer *t, struct deployment *next, int lowest,
                                     struct transition_note *note, int64_t *since, struct err *err)
{
    const struct comm *comm = t->comm;
    enum status rc;
    runtime_free(t->deployment.runtime);
    t->deployment.runtime = NULL;
    for (int split = 0; split < SPLIT_COUNT; split++) {
        loader_free(t->deployment.loaders[split]);
        t->deployment.loaders[split] = NULL;
    }
    rc = agreed(t, comm_agree(comm, deployment_stages(&t->base, next, err), err));
    THEN(move_state(t, next, lowest, &note->bytes, err));
    if (rc == OK) /* a rank that failed ends the job instead: the others wait for its messages */
        rc = comm_agree(comm, OK, err);
    lap(comm, since, &note->part_ns[PART_MOVE]);
    if (rc != OK)
        return rc;
    deployment_clear(&t->deployment);
    t->deployment = *next; /* the runtime will point into it, so it must not move any more */
    *next = (struct deployment){0};
    rc = comm_agree(comm, deployment_batches(&t->base, t->progress.position, &t->deployment, err),
                    err);
    THEN(comm_agree(comm, deployment_runtime(&t->base, &t->deployment, err), err));
    return agreed(t, rc);
}

/* Rank 0 records a change that has ended. */
static enum status describe_change(struct trainer *t, const struct decision *decision,
                                   const struct nccl_counts *before, struct transition_note *note,
                                   struct err *err)
{
    const struct plan *now = &t->deployment.plan.plan;
    note->part_ns[PART_DECIDE] = decision->decide_ns;
    note->frozen_layers = decision->num_frozen;
    note->pipeline_length = now->num_ranks;
    note->replicas = plan_width(now);
    note->links = nccl_counts(t->nccl);
    note->links.ready -= before->ready;
    note->links.made -= before->made;
    memcpy(note->reason, decision->reason, sizeof note->reason);
    add_limit(t, note->reason, sizeof note->reason);
    return note_change(t, note, err);
}

/* Make the plan of the decision, and change to it. Collective over all ranks. */
static enum status change(struct trainer *t, const struct decision *decision, struct err *err)
{
    const struct comm *comm = t->comm;
    struct run_state ask = trainer_ask(t, decision->epoch, decision->turn);
    struct transition_note note = {.epoch = decision->epoch, .step = t->progress.step};
    const struct planning with = trainer_planning(t);
    struct train_plan plan = {0};
    struct deployment next = {0};
    const struct nccl_counts before = nccl_counts(t->nccl);
    int64_t since = comm_now_ns(comm);
    /* A rank that loses its stages votes no more that it still writes. */
    enum status rc = trainer_saved(t, err);
    if (rc != OK)
        return rc;
    watch_phase("change of plan");
    watch_plan();
    probe_cut(&t->probe);
    ask.num_frozen_layers = decision->num_frozen;
    rc = agreed(t, train_plan_make(&with, &ask, &plan, err));
    lap(comm, &since, &note.part_ns[PART_PLAN]);
    THEN(deployment_place(&t->base, &plan, &next, err));
    lap(comm, &since, &note.part_ns[PART_GROUPS]);
    THEN(change_deployment(t, &next, decision->lowest, &note, &since, err));
    THEN(order_items(t, comm->all, err));
    if (rc == OK) {
        t->progress.num_frozen_layers = decision->num_frozen;
        slow_ranks_weighed(t);
        lap(comm, &since, &note.part_ns[PART_GROUPS]);
        note.total_ns = since - decision->start_ns;
        if (comm->rank == 0)
            rc = describe_change(t, decision, &before, &note, err);
    }
    if (t->failure_agreed) /* otherwise messages may be in flight in it */
        deployment_clear(&next);
    train_plan_clear(&plan);
    return rc;
}

/* Rank 0, policy safe: say what was decided on the turn's evidence, and write it into the run
 * folder. */
static enum status log_decision(struct trainer *t, const struct decision *decision, struct err *err)
{
    if (t->job->freeze.policy != FREEZE_SAFE ||
        !freeze_history_at(&t->probe.history, decision->turn - 1))
        return OK;
    char text[240];
    snprintf(text, sizeof text, "freeze: epoch %lld, step %lld: %s", (long long)decision->epoch,
             (long long)t->progress.step, decision->reason);
    run_log_say(&t->log, text, stderr);
    return probe_write(t, err);
}

enum status elastic_turn_start(struct trainer *t, struct err *err)
{
    const struct job *job = t->job;
    const struct plan *plan = &t->deployment.plan.plan;
    struct order order = {.kind = ORDER_CHANGE, .progress = t->progress};
    struct decision *decision = &order.decision;
    enum status rc = OK;
    if (!turn_elastic(job))
        return OK;
    decision->epoch = t->progress.epoch;
    decision->turn = trainer_turn(t);
    decision->num_frozen = t->progress.num_frozen_layers;
    decision->start_ns = comm_now_ns(t->comm);
    ahead_stop(t);
    if (t->comm->rank == 0) {
        if (job->freeze.policy != FREEZE_NONE)
            rc = decide(t, decision->turn, &decision->num_frozen, decision->reason, err);
        if (rc != OK) /* only this rank knows: the caller ends the job */
            return rc;
        decision->lowest = freeze_lowest(&t->elastic.freeze, (int)decision->turn + 1);
        decision->next = next_frozen(t);
        decision->share = t->elastic.freeze.safe.share;
        decision->change =
            turn_changes(job, decision->turn, decision->num_frozen, plan) || slow_ranks_replan(t);
        decision->decide_ns = comm_now_ns(t->comm) - decision->start_ns;
        rc = log_decision(t, decision, err);
        if (rc != OK)
            return rc;
    }
    rc = comm_bcast(t->deployment.place.active, decision, sizeof *decision, 0, err);
    t->elastic.next_frozen = decision->next;
    t->elastic.share = decision->share;
    if (rc == OK && decision->change)
        rc = give_order(t, &order, err);
    if (rc == OK)
        rc = decision->change ? change(t, decision, err)
                              : order_items(t, t->deployment.place.active, err);
    if (rc == OK)
        ahead_start(t);
    return rc;
}

enum status elastic_idle(struct trainer *t, bool *ended, struct err *err)
{
    enum status rc = OK;
    *ended = false;
    while (rc == OK && deployment_idle(&t->deployment) && !*ended) {
        struct order order;
        rc = wait_for_order(t, &order, err);
        if (rc != OK)
            break;
        t->progress = order.progress;
        t->interrupted = order.interrupted;
        t->elastic.next_frozen = order.decision.next;
        t->elastic.share = order.decision.share;
        if (order.kind == ORDER_CHANGE)
            rc = change(t, &order.decision, err);
        if (order.kind == ORDER_AHEAD)
            rc = ahead_share(t, err);
        if (order.kind == ORDER_SAVE)
            rc = trainer_save(t, true, err);
        if (order.kind == ORDER_SAVED)
            rc = trainer_saved(t, err);
        if (order.kind == ORDER_COPY)
            rc = trainer_copy(t, err);
        if (order.kind == ORDER_END) {
            *ended = true;
            rc = order.status;
            t->failure_agreed = rc != OK;
            if (rc != OK)
                err_copy(err, &order.err);
        }
    }
    return rc;
}

void elastic_json(const struct trainer *t, struct json *root)
{
    static const char *const keys[] = {"decide_ns", "plan_ns", "move_ns", "groups_ns", "cache_ns"};
    const struct elastic *elastic = &t->elastic;
    struct json *list = json_add_array(root, "transitions");
    int64_t total = 0;
    for (int i = 0; i < elastic->num_notes; i++) {
        const struct transition_note *note = &elastic->notes[i];
        struct json *one = json_add_object(list, NULL);
        json_add_int(one, "epoch", note->epoch);
        json_add_int(one, "step", note->step);
        json_add_int(one, "frozen_layers", note->frozen_layers);
        json_add_int(one, "pipeline_length", note->pipeline_length);
        json_add_int(one, "replicas", note->replicas);
        json_add_string(one, "reason", note->reason);
        for (int p = 0; p < TRANSITION_PARTS; p++)
            json_add_int(one, keys[p], note->part_ns[p]);
        json_add_int(one, "total_ns", note->total_ns);
        json_add_int(one, "moved_bytes", note->bytes);
        json_add_int(one, "communicators_ready", note->links.ready);
        json_add_int(one, "communicators_made", note->links.made);
        total += note->total_ns;
    }
    json_add_int(root, "transition_ns", total);
    json_add_string(root, "held_note", elastic->held);
    if (t->job->freeze.policy == FREEZE_APF)
        json_add_double(root, "weights_held", elastic->weights_held);
    json_add_string(root, "limit_note", elastic->limited);
}
