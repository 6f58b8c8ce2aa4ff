/* exec/run/trainer_run.c - a run from beginning to end: set up, open its files, evaluate, train,
 * evaluate again, sum up; and the evaluation of a checkpoint alone.
 *
 * Until the run's files are open, all ranks agree on each step, so a failure is returned
 * everywhere. After that a failure may be known to one rank only; that rank ends the job
 * (trainer_fail_alone()), because its peers may wait for its messages. */
#include "exec/run/trainer_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/change/elastic.h"
#include "exec/run/evaluation.h"
#include "exec/run/summary.h"
#include "exec/run/trainer_setup.h"
#include "exec/run/training_loop.h"
#include "exec/checkpoint/weights_digest.h"
#include "partition/base/safe_text.h"
#include "partition/base/units.h"

/* Record the bytes that each rank holds under the last plan. A plan takes all its memory before its
 * first step, so this is the plan's peak. */
static enum status record_bytes(struct trainer *t, struct err *err)
{
    const struct plan *plan = &t->deployment.plan.plan;
    int64_t bytes = deployment_bytes(&t->deployment), *sizes = NULL, *predicted = NULL;
    void *all = NULL;
    enum status rc;
    rc = comm_gather(t->comm->all, &bytes, sizeof bytes, &all, &sizes, err);
    if (rc == OK && t->comm->rank == 0) {
        predicted = calloc((size_t)t->comm->size, sizeof *predicted);
        for (int i = 0;
             predicted && plan->memory_bytes && i < plan->num_ranks * plan->num_pipelines; i++)
            predicted[plan->device[i]] = plan->memory_bytes[i % plan->num_ranks];
        rc = predicted
                 ? run_files_memory(t->files, all, t->comm->size, predicted, t->progress.epoch, err)
                 : err_nomem(err);
    }
    free(predicted);
    free(all);
    free(sizes);
    return rc;
}

/* Whether no step is left. */
static bool finished(const struct trainer *t)
{
    const struct job *job = t->job;
    return t->progress.epoch >= job->train.epochs ||
           (job->train.max_steps > 0 && t->progress.step >= job->train.max_steps);
}

/* If a resumed run had reached its end and has its summary, hand that back; then nothing is
 * written. Else *over is false. *over is the same on all ranks; only rank 0 gets *summary. */
static enum status recall(const struct trainer *t, struct json **summary, bool *over,
                          struct err *err)
{
    struct json *kept = NULL;
    enum status rc;
    *over = false;
    if (!t->goes_on || !finished(t))
        return OK;
    if (t->comm->rank == 0)
        kept = run_files_summary(t->out, t->progress.step);
    if (kept)
        json_add_bool(kept, "already_finished", true);
    *over = kept != NULL;
    rc = comm_bcast(t->comm->all, over, sizeof *over, 0, err);
    if (rc == OK)
        *summary = kept;
    else
        json_free(kept);
    return rc;
}

/* Say what was read. */
static void log_data(const struct trainer *t)
{
    for (const char *line = t->dataset.notes; line && *line; line = strchr(line, '\n') + 1) {
        char text[600];
        snprintf(text, sizeof text, "data: %.*s", (int)strcspn(line, "\n"), line);
        run_log_say(&t->log, text, stderr);
    }
    if (t->import.classes[0])
        run_log_say(&t->log, t->import.classes, stderr);
}

/* Rank 0: open the run's files, and take from them what an earlier start has recorded. */
static enum status open_files(struct trainer *t, struct err *err)
{
    const struct trainer_options *options = t->options;
    const struct run_start start = {.resume = t->goes_on,
                                    .is_held = options->is_held,
                                    .progress = &t->progress,
                                    .job = t->job,
                                    .num_ranks = t->comm->size,
                                    .cost_label = t->deployment.plan.cost_label,
                                    .trace = options->trace,
                                    .call = options->call,
                                    .restarted = options->restarted,
                                    .times = t->times};
    log_data(t);
    enum status rc = run_files_open(t->out, &start, &t->files, err);
    if (options->tensorboard)
        THEN(event_file_open(options->tensorboard, &t->events, err));
    if (rc == OK)
        run_files_losses(t->files, &t->first_loss, &t->last_loss);
    if (options->resume)
        THEN(checkpoint_history(options->resume, &t->history, err));
    if (rc == OK && isfinite(t->history.first_loss))
        t->first_loss = t->history.first_loss;
    if (rc == OK)
        t->first_step = run_files_first_step(t->files);
    return rc;
}

/* After trainer_set_up(): count the steps, and open the run's files on rank 0. *over: the run had
 * ended before and *summary is its summary. Collective; all ranks agree on the status. */
static enum status open_run(struct trainer *t, struct json **summary, bool *over, struct err *err)
{
    const struct job *job = t->job;
    t->total_steps = t->first_steps_per_epoch * job->train.epochs;
    if (job->train.max_steps > 0 && job->train.max_steps < t->total_steps)
        t->total_steps = job->train.max_steps;
    if (t->goes_on && !t->options->run) /* the checkpoint of this step is in the folder */
        t->last_saved = t->progress.step;
    enum status rc = recall(t, summary, over, err);
    if (rc == OK && !*over)
        rc = elastic_look_ahead(t, err);
    if (rc != OK || *over)
        return rc;
    if (t->comm->rank == 0)
        rc = open_files(t, err);
    rc = comm_agree(t->comm, rc, err);
    if (rc == OK && t->options->evaluate)
        rc = memory_copies_open(t->comm, job, t->files ? run_files_id(t->files) : "",
                                t->options->run != NULL, &t->copies, err);
    if (rc == OK && t->comm->rank == 0 && *t->copies.note && !t->options->restarted)
        run_log_note(&t->log, t->copies.note, stderr);
    return rc == OK ? comm_bcast(t->comm->all, &t->first_step, sizeof t->first_step, 0, err) : rc;
}

/* If samples could not be read, ranks with stages are between two steps with the same weights. The
 * failure becomes OK, so that the run ends with a checkpoint, and end_faulty() returns the fault. */
static enum status hold_unreadable(const struct trainer *t, enum status rc, struct err *err)
{
    if (!t->unreadable)
        return rc;
    if (err)
        *err = (struct err){0};
    return OK;
}

static void hint_saved(const struct trainer *t, struct err *err)
{
    if (t->trains && t->last_saved == t->progress.step)
        err_hint(err, "saved: %s; when this is fixed, continue with: elapse train --resume %s",
                 COUNT_TEXT(t->progress.step, "step"), SHELL_PATH(t->out));
}

/* If metrics could not be written or samples not be read, the run ends here, on all ranks, after its
 * checkpoint. */
static enum status end_faulty(struct trainer *t, bool *alone, struct err *err)
{
    struct err why = t->fault;
    enum status rc = comm_agree(t->comm, why.status, &why);
    if (rc == OK)
        return OK;
    *alone = false;
    hint_saved(t, &why);
    return err_copy(err, &why);
}

/* Train, with an evaluation before and after. *alone becomes false if all ranks know of a failure.
 */
static enum status train_between_evaluations(struct trainer *t, struct evaluation *before,
                                             struct evaluation *after, bool *alone, struct err *err)
{
    const bool evaluate = t->options->evaluate;
    enum status rc = OK;
    if (evaluate && !deployment_idle(&t->deployment))
        rc = trainer_evaluate(t, before, err);
    if (before->count > 0 && isnan(t->history.first_accuracy))
        t->history.first_accuracy = before->accuracy;
    THEN(trainer_train(t, err));
    if (rc != OK && t->deployment.runtime && runtime_not_finite(t->deployment.runtime)) {
        (void)elastic_order(t, ORDER_END, rc, err); /* ranks with stages know; tell the idle ones */
        t->failure_agreed = true;
    }
    if (rc != OK && t->unreadable) {
        rc = hold_unreadable(t, rc, err);
        if (rc == OK) /* ranks without stages wait for an order */
            rc = elastic_order(t, ORDER_END, OK, err);
    }
    *alone = !t->failure_agreed;
    if (rc != OK && t->failure_agreed) /* the run leaves the last checkpoint whole */
        (void)trainer_saved(t, NULL);
    THEN(record_bytes(t, err));
    if (rc == OK && (evaluate || t->interrupted))
        rc = trainer_save(t, false, err);
    THEN(trainer_saved(t, err));
    if (rc == OK) /* the last file has the state */
        rc = memory_copies_end(t->comm, &t->copies, err);
    if (t->evaluated_step == t->progress.step)
        *after = t->evaluated;
    else if (rc == OK && evaluate && !t->interrupted && !deployment_idle(&t->deployment))
        rc = hold_unreadable(t, trainer_evaluate(t, after, err), err);
    THEN(end_faulty(t, alone, err));
    if (rc == OK && after->count > 0 && t->written_row.steps > 0 && t->comm->rank == 0) {
        t->written_row.eval_loss = after->loss;
        t->written_row.eval_accuracy = after->accuracy;
        run_files_epoch(t->files, &t->written_row);
    }
    return rc;
}

/* Digest of the weights, counts of the cache, and on rank 0 the summary. Collective. */
static enum status sum_up(struct trainer *t, const struct evaluation *before,
                          const struct evaluation *after, int64_t start_ns, struct json **summary,
                          struct err *err)
{
    struct cache_counts counts = {0};
    char digest[65] = "";
    enum status rc = OK;
    if (t->deployment.place.replica == 0) {
        struct stage_list list = deployment_list(&t->base, &t->deployment);
        rc = weights_digest(t->deployment.place.pipeline, &list, digest, err);
    }
    if (rc == OK) /* from the first rank of that pipeline */
        rc =
            comm_bcast(t->comm->all, digest, sizeof digest, t->deployment.plan.plan.device[0], err);
    if (rc == OK && t->cache)
        rc = cache_counts_all(t->comm, t->cache, &counts, err);
    if (rc != OK || t->comm->rank != 0)
        return rc;
    struct json *got =
        trainer_summary(t, &counts, before, after, digest, comm_now_ns(t->comm) - start_ns);
    rc = run_files_finish(t->files, got, t->train_ns, err);
    if (rc == OK) {
        *summary = got;
    } else {
        hint_saved(t, err);
        json_free(got);
    }
    return rc;
}

enum status trainer_run(const struct comm *comm, const struct cores *cores, const struct job *job,
                        const struct trainer_options *options, struct json **summary,
                        struct err *err)
{
    struct trainer t = {
        .comm = comm,
        .cores = cores,
        .job = job,
        .options = options,
        .trains = true,
        .fresh_head = true,
        .last_saved = -1,
        .evaluated_step = -1,
        .log = options->log,
        .first_loss = NAN,
        .last_loss = NAN,
        .history = {.first_loss = NAN, .first_accuracy = NAN}
    };
    struct evaluation before = {0}, after = {0};
    const int64_t start_ns = comm_now_ns(comm);
    const char *weights = options->resume ? options->resume : options->init;
    bool over = false, alone = false; /* alone: other ranks may not know of a failure */
    trainer_clear_epoch(&t);
    enum status rc = trainer_set_up(&t, weights, options->resume != NULL, err);
    THEN(open_run(&t, summary, &over, err));
    if (rc == OK && !over) {
        alone = true;
        if (comm->rank == 0 && options->log.mode != RUN_LOG_QUIET &&
            job->train.device == DEVICE_CPU)
            cores_report(cores, comm->local_size, stderr);
        if (options->heeds_signals)
            options->heeds_signals();
        rc = train_between_evaluations(&t, &before, &after, &alone, err);
        THEN(sum_up(&t, &before, &after, start_ns, summary, err));
    }
    run_files_free(t.files);
    event_file_close(t.events);
    if (rc != OK && alone)
        trainer_fail_alone(&t, err);
    trainer_clear(&t);
    return rc;
}

enum status trainer_eval(const struct comm *comm, const struct cores *cores, const struct job *job,
                         const struct trainer_options *options, struct json **summary,
                         struct err *err)
{
    struct job any = *job; /* its members are borrowed */
    struct trainer t = {.comm = comm, .cores = cores, .job = job, .options = options};
    struct evaluation got = {0};
    bool alone = false;
    enum status rc;
    if (train_plan_check(job, comm->size, NULL) != OK) {
        any.pipeline.num_stages = any.pipeline.num_replicas = AUTO;
        any.elastic.num_stages = 0;
        t.job = &any;
    }
    rc = trainer_set_up(&t, options->init, false, err);
    if (rc == OK && !deployment_idle(&t.deployment)) {
        alone = true;
        rc = hold_unreadable(&t, trainer_evaluate(&t, &got, err), err);
    }
    THEN(end_faulty(&t, &alone, err));
    if (rc == OK && comm->rank == 0) {
        struct json *root = json_object_new();
        json_add_int(root, "schema", 1);
        json_add_string(root, "version", ELAPSE_VERSION);
        json_add_string(root, "command", "eval");
        json_add_string(root, "checkpoint", options->init);
        json_add_string(root, "model", job->model.name);
        json_add_string(root, "class_note", t.import.classes);
        json_add_int(root, "ranks", comm->size);
        json_add_int(root, "eval_samples", t.dataset.num_samples[SPLIT_TEST]);
        json_add_double(root, "eval_loss", got.loss);
        json_add_double(root, "eval_accuracy", got.accuracy);
        trainer_add_metrics(root, job, &got);
        json_add_int(root, "eval_ns", got.ns);
        *summary = root;
    }
    if (rc != OK && alone)
        trainer_fail_alone(&t, err);
    trainer_clear(&t);
    return rc;
}
