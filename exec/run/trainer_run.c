#include "exec/run/trainer.h"

#include <math.h>
#include <stdlib.h>

#include "exec/run/elastic.h"
#include "exec/run/evaluation.h"
#include "exec/run/summary.h"
#include "exec/run/trainer_setup.h"
#include "exec/run/training_loop.h"
#include "exec/save/weights_digest.h"

/* What each rank holds under the last plan: all of it before that plan's first step, so this is the
 * peak. */
static enum status record_bytes(struct trainer *t, struct err *err)
{
    const struct plan *plan = &t->layout.plan.plan;
    int64_t bytes = layout_bytes(&t->layout), *sizes = NULL, *predicted = NULL;
    void *all = NULL;
    enum status rc;
    rc = comm_gather(t->comm->all, &bytes, sizeof bytes, &all, &sizes, err);
    if (rc == OK && t->comm->rank == 0) {
        predicted = calloc((size_t)t->comm->size, sizeof *predicted);
        for (int i = 0; predicted && plan->memory_bytes && i < plan->num_ranks * plan->num_replicas;
             i++)
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

/* No step is left. */
static bool finished(const struct trainer *t)
{
    const struct job *job = t->job;
    return t->progress.epoch >= job->train.epochs ||
           (job->train.max_steps > 0 && t->progress.step >= job->train.max_steps);
}

/* A run that goes on at its end and has its summary: that is the answer, and nothing is written.
 * *summary stays NULL on all ranks where it is not so. */
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
    *over = kept != NULL;
    rc = comm_bcast(t->comm->all, over, sizeof *over, 0, err);
    if (rc == OK)
        *summary = kept;
    else
        json_free(kept);
    return rc;
}

enum status trainer_run(const struct comm *comm, const struct cores *cores, const struct job *job,
                        const struct trainer_options *options, struct json **summary,
                        struct err *err)
{
    struct trainer t = {.comm = comm,
                        .cores = cores,
                        .job = job,
                        .options = options,
                        .db = options->db,
                        .trains = true,
                        .fresh_head = true,
                        .last_saved = -1,
                        .evaluated_step = -1,
                        .first_loss = NAN,
                        .last_loss = NAN};
    struct evaluation before = {0}, after = {0};
    struct cache_counts counts = {0};
    int64_t start = comm_now_ns(comm);
    trainer_clear_epoch(&t);
    const char *weights = options->resume ? options->resume : options->init;
    char digest[65] = "";
    bool over, alone = false; /* an error may be this rank's own */
    enum status rc;
    rc = trainer_set_up(&t, weights, options->resume != NULL, err);
    if (rc != OK)
        goto out;
    t.total_steps = t.first_steps_per_epoch * job->train.epochs;
    if (job->train.max_steps > 0 && job->train.max_steps < t.total_steps)
        t.total_steps = job->train.max_steps;
    if (t.goes_on) /* it lies there */
        t.last_saved = t.progress.step;
    rc = recall(&t, summary, &over, err);
    if (rc != OK || over)
        goto out;
    if (comm->rank == 0)
        rc = run_files_open(t.out, t.goes_on, &t.progress, job, comm->size,
                            t.layout.plan.cost_label, options->trace, &t.files, err);
    if (rc == OK && comm->rank == 0)
        run_files_losses(t.files, &t.first_loss, &t.last_loss);
    rc = comm_agree(comm, rc, err);
    if (rc != OK)
        goto out;
    alone = true;
    if (options->evaluate && !layout_idle(&t.layout))
        rc = trainer_evaluate(&t, &before, err);
    if (rc == OK)
        rc = trainer_train(&t, err);
    if (rc != OK && t.layout.runtime && runtime_not_finite(t.layout.runtime)) {
        (void)elastic_order(&t, ORDER_END, rc, err); /* all that are at work have seen it */
        t.all_know = true;
    }
    alone = !t.all_know;
    if (rc == OK)
        rc = record_bytes(&t, err);
    if (rc == OK && (options->evaluate || t.interrupted))
        rc = trainer_save(&t, err);
    if (t.evaluated_step == t.progress.step)
        after = t.evaluated;
    else if (rc == OK && options->evaluate && !t.interrupted && !layout_idle(&t.layout))
        rc = trainer_evaluate(&t, &after, err);
    if (rc == OK && t.layout.place.replica == 0) {
        struct stage_list list = layout_list(&t.base, &t.layout);
        rc = weights_digest(t.layout.place.pipeline, &list, digest, err);
    }
    if (rc == OK) /* from the first rank of that pipeline */
        rc = comm_bcast(comm->all, digest, sizeof digest, t.layout.plan.plan.device[0], err);
    if (rc == OK && t.cache)
        rc = cache_counts_all(comm, t.cache, &counts, err);
    if (rc == OK && comm->rank == 0) {
        struct json *got =
            trainer_summary(&t, &counts, &before, &after, digest, comm_now_ns(comm) - start);
        rc = run_files_finish(t.files, got, t.train_ns, err);
        if (rc == OK)
            *summary = got;
        else
            json_free(got);
    }
out:
    run_files_free(t.files);
    if (rc != OK && alone)
        trainer_fail_alone(&t, err);
    trainer_clear(&t);
    return rc;
}

enum status trainer_eval(const struct comm *comm, const struct cores *cores, const struct job *job,
                         const char *checkpoint, const char *db, struct json **summary,
                         struct err *err)
{
    static const struct trainer_options none = {0};
    struct job any = *job; /* its members are borrowed */
    struct trainer t = {.comm = comm, .cores = cores, .job = job, .options = &none, .db = db};
    struct evaluation got = {0};
    bool alone = false;
    enum status rc;
    if (train_plan_check(job, comm->size, NULL) != OK) {
        any.pipeline.num_stages = any.pipeline.num_replicas = AUTO;
        any.elastic.num_stages = 0;
        t.job = &any;
    }
    rc = trainer_set_up(&t, checkpoint, false, err);
    if (rc == OK && !layout_idle(&t.layout)) {
        alone = true;
        rc = trainer_evaluate(&t, &got, err);
    }
    if (rc == OK && comm->rank == 0) {
        struct json *root = json_object_new();
        json_add_int(root, "schema", 1);
        json_add_string(root, "version", ELAPSE_VERSION);
        json_add_string(root, "command", "eval");
        json_add_string(root, "checkpoint", checkpoint);
        json_add_string(root, "model", job->model.name);
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
