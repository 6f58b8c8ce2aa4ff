/* exec/run/training_loop.c - the steps of a run.
 *
 * trainer_train() alternates between turns and decisions: one_epoch() runs the steps of an epoch or
 * of a turn within it, then elastic_turn_start() decides and may change the plan. A rank that has
 * no stage waits in elastic_idle(). Read trainer_train() first, then one_epoch(), epoch_steps(),
 * one_step(). */
#include "exec/run/training_loop.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/base/watch.h"
#include "exec/change/elastic.h"
#include "exec/run/evaluation.h"
#include "exec/trainer/learning_rate.h"
#include "exec/change/plan_ahead.h"
#include "exec/probe/probe.h"
#include "exec/change/slow_ranks.h"
#include "exec/trainer/stop.h"
#include "exec/trainer/trainer.h"
#include "partition/base/units.h"

enum { WARM_UP_STEPS = 2 };

/* Each rank votes once per step; the maximum wins. VOTE_AHEAD: rank 0 knows which communicators to
 * make ahead. VOTE_WRITES: this rank still writes a checkpoint. VOTE_SPLITS: this rank is still
 * splitting one off. VOTE_YIELD, in a step before a
 * checkpoint and the last one of an epoch only: the run is to end here, because ranks can join it.
 * VOTE_STOP: a signal came. */
enum vote { VOTE_NONE, VOTE_WRITES, VOTE_AHEAD, VOTE_SPLITS, VOTE_YIELD, VOTE_STOP };

/* Gather the times of this step's ops from all ranks into rank 0's record. */
static enum status record_step_ops(struct trainer *t, const struct step_result *result,
                                   struct err *err)
{
    const struct schedule *full = t->deployment.plan.full;
    int n = t->deployment.plan.plan.num_ranks;
    void *all = NULL;
    int64_t *sizes = NULL;
    enum status rc =
        comm_gather(t->deployment.place.active, runtime_times(t->deployment.runtime),
                    full->ranks[t->deployment.place.rank].num_ops * (int64_t)sizeof(struct op_time),
                    &all, &sizes, err);
    if (rc == OK && t->comm->rank == 0) {
        const char *at = all;
        int places = n * t->deployment.plan.plan.num_pipelines;
        for (int rank = 0, r = 0; rc == OK && rank < t->comm->size; rank++) {
            int place = 0;
            while (place < places && t->deployment.plan.plan.device[place] != rank)
                place++;
            if (place == places) /* idle */
                continue;
            rc = run_files_ops(t->files,
                               &(struct rank_step){.step = t->progress.step,
                                                   .start_ns = result->start_ns,
                                                   .replica = place / n,
                                                   .rank = place % n,
                                                   .ops = &full->ranks[place % n],
                                                   .times = (const struct op_time *)at},
                               err);
            at += sizes[r++];
        }
    }
    free(all);
    free(sizes);
    return rc;
}

/* Give a step to TensorBoard. */
static enum status show_step(struct trainer *t, const struct step_result *result, double lr,
                             int64_t samples, struct err *err)
{
    const struct plan *plan = &t->deployment.plan.plan;
    const struct event_scalar scalars[] = {
        {"train/loss",          result->loss                                   },
        {"train/lr",            lr                                             },
        {"train/grad_norm",     result->grad_norm                              },
        {"speed/step_ms",       (double)result->step_ns / 1e6                  },
        {"speed/samples_per_s", (double)samples * 1e9 / (double)result->step_ns},
        {"plan/K",              plan->num_ranks                                },
        {"plan/R",              plan_width(plan)                               },
        {"plan/F",              plan->num_frozen_layers                        },
    };
    return t->events ? event_file_write(t->events, t->progress.step, scalars,
                                        (int)(sizeof scalars / sizeof scalars[0]), err)
                     : OK;
}

/* Say how far the run is. */
static void show_progress(struct trainer *t, const struct step_result *result, int64_t samples,
                          double lr)
{
    const struct plan *plan = &t->deployment.plan.plan;
    if (t->comm->rank == 0)
        run_log_step(&t->log,
                     &(struct run_log_step){.now_ns = comm_now_ns(t->comm),
                                            .step = t->progress.step,
                                            .total_steps = trainer_whole_steps(t),
                                            .epoch = t->progress.epoch,
                                            .samples = samples,
                                            .step_ns = result->step_ns,
                                            .loss = result->loss,
                                            .lr = lr,
                                            .pipeline_length = plan->num_ranks,
                                            .replicas = plan_width(plan),
                                            .frozen_layers = plan->num_frozen_layers,
                                            .bytes = deployment_bytes(&t->deployment)},
                     stderr);
}

/* After the first step after a restart: what it has cost. */
static void show_restart(const struct trainer *t)
{
    struct restart_cost cost;
    char ranks[32], steps[32], lost[32], redo[32];
    if (t->comm->rank != 0 || !run_files_restart(t->files, &cost) || t->log.mode == RUN_LOG_QUIET)
        return;
    fprintf(stderr, "elapse: on %s from step %lld on; lost: %s, and %s for %s to do again\n",
            format_count(t->comm->size, "rank", ranks, sizeof ranks),
            (long long)t->progress.step - 1, format_ns(cost.lost_ns, lost, sizeof lost),
            format_ns(cost.redo_ns, redo, sizeof redo),
            format_count(cost.lost_steps, "step", steps, sizeof steps));
}

/* The learning rate follows epochs. If a change of R gives an epoch fewer or more steps, each of
 * them counts for proportionally more or fewer steps of the first plan. The rate is not scaled with
 * the batch. */
static int64_t lr_step(const struct trainer *t, int64_t step_in_epoch)
{
    const struct sampler *sampler = &t->deployment.samplers[SPLIT_TRAIN];
    int64_t steps = sampler_steps_per_whole_epoch(sampler);
    int64_t global = sampler->spec.batch * sampler->spec.num_replicas;
    step_in_epoch = sampler_position(sampler, step_in_epoch) / global;
    if (steps != t->first_steps_per_epoch)
        step_in_epoch =
            (int64_t)((double)step_in_epoch * (double)t->first_steps_per_epoch / (double)steps);
    return t->progress.epoch * t->first_steps_per_epoch + step_in_epoch;
}

/* Whether the run is to end at the present step, if it may, for ranks to join it. */
static bool wants_yield(const struct trainer *t)
{
    return stop_yielded() || (t->options->yields && t->progress.step + 1 >= t->options->yield_step);
}

static enum vote vote_of(const struct trainer *t, bool may_yield)
{
    return stop_wanted()                 ? VOTE_STOP
           : may_yield && wants_yield(t) ? VOTE_YIELD
           : nccl_splits(t->nccl)        ? VOTE_SPLITS
           : ahead_ready(t)              ? VOTE_AHEAD
           : checkpoint_busy(t->saving)  ? VOTE_WRITES
                                         : VOTE_NONE;
}

/* A step, and what is to be done about it. */
struct step_ask {
    int64_t in_epoch;
    bool trace, may_yield; /* may_yield: steps follow, and a checkpoint may come before them */
};

/* freeze.anneal: what freezes with the next turn trains with a falling rate. */
static void anneal(struct trainer *t)
{
    if (t->job->freeze.anneal)
        runtime_anneal(t->deployment.runtime,
                       model_frozen_items(&t->job->model, t->elastic.next_frozen),
                       turn_anneal(t->job, t->progress.step, t->progress.position,
                                   t->deployment.samplers[SPLIT_TRAIN].spec.num_samples));
}

/* Policy apf: what follows the step's update. */
static void apf(struct trainer *t)
{
    const struct freeze_spec *freeze = &t->job->freeze;
    const struct apf_rule rule = {.decay = (float)freeze->apf.decay,
                                  .threshold = (float)freeze->apf.threshold,
                                  .check = (t->progress.step + 1) % freeze->apf.every == 0,
                                  .freezes = trainer_turn(t) >= freeze->warmup};
    if (freeze->policy == FREEZE_APF)
        runtime_apf(t->deployment.runtime, &rule);
}

/* The plan's shares of weight gradients that the step leaves out: as far as the policy safe allows,
 * or by the ramp. */
static enum status leave_out(struct trainer *t, struct err *err)
{
    const struct freeze_spec *freeze = &t->job->freeze;
    const struct leave_out rule = {
        .share = t->deployment.plan.plan.shares.share,
        .ramp = freeze->policy == FREEZE_SAFE
                    ? t->elastic.share / freeze->max_share
                    : turn_ramp(t->job, t->progress.step, t->progress.epoch, t->progress.position,
                                t->deployment.samplers[SPLIT_TRAIN].spec.num_samples),
        .choice = freeze->choice,
        .order = elastic_order_of_items(t),
        .rescale = freeze->rescale};
    return rule.share ? runtime_leave_out(t->deployment.runtime, rule.ramp > 0 ? &rule : NULL, err)
                      : OK;
}

/* Add the step to the run's files. If they cannot be written, the run ends. */
static void record_step(struct trainer *t, const struct step_result *result, int64_t samples,
                        double lr)
{
    const struct plan *plan = &t->deployment.plan.plan;
    if (t->comm->rank == 0 && t->fault.status == OK &&
        run_files_step(
            t->files,
            &(struct step_row){.step = t->progress.step,
                               .epoch = t->progress.epoch,
                               .start_ns = result->start_ns,
                               .step_ns = result->step_ns,
                               .loss = result->loss,
                               .lr = lr,
                               .grad_norm = result->grad_norm,
                               .samples_per_s = (double)samples * 1e9 / (double)result->step_ns,
                               .frozen_layers = plan->num_frozen_layers,
                               .pipeline_length = plan->num_ranks,
                               .replicas = plan_width(plan)},
            &t->fault) != OK)
        trainer_stop(0); /* the weights are sound, so a checkpoint comes before the end */
}

static enum status one_step(struct trainer *t, const struct step_ask *ask,
                            struct step_result *result, struct err *err)
{
    const int64_t step_in_epoch = ask->in_epoch;
    const struct batch *batch;
    double lr = learning_rate(t->job, lr_step(t, step_in_epoch), t->total_steps);
    enum status rc = loader_get(t->deployment.loaders[SPLIT_TRAIN], t->progress.epoch,
                                step_in_epoch, &batch, err);
    anneal(t);
    apf(t);
    THEN(leave_out(t, err));
    if (t->options->dies && t->progress.step >= t->options->die_step)
        raise(SIGKILL);
    if (rc == OK) {
        watch_step(t->progress.step + 1);
        rc = runtime_step(t->deployment.runtime, batch, t->progress.step, lr,
                          vote_of(t, ask->may_yield), result, err);
        watch_step_end(rc == OK ? result->step_ns : 0);
    }
    if (runtime_not_finite(t->deployment.runtime) && err) {
        char what[sizeof err->msg];
        memcpy(what, err->msg, sizeof what);
        snprintf(err->msg, sizeof err->msg, "step %lld: %.400s", (long long)t->progress.step + 1,
                 what);
        err_hint(err, "a smaller train.optimizer.lr, warm-up or clip_norm; the last checkpoint is "
                      "untouched");
    }
    if (rc != OK)
        return rc;
    t->progress.step++;
    t->progress.position =
        sampler_position(&t->deployment.samplers[SPLIT_TRAIN], step_in_epoch + 1);
    t->last_loss = result->loss;
    if (isnan(t->first_loss))
        t->first_loss = result->loss;
    record_step(t, result, batch->num_samples, lr);
    THEN(show_step(t, result, lr, batch->num_samples, err));
    elastic_count(t);
    probe_count(t, lr);
    if (rc == OK && ask->trace)
        rc = record_step_ops(t, result, err);
    THEN(slow_ranks_look(t, err));
    show_restart(t);
    show_progress(t, result, batch->num_samples, lr);
    return rc;
}

/* After a step, if the turn continues: make communicators that a later plan may need. */
static enum status go_ahead(struct trainer *t, enum vote vote, struct err *err)
{
    enum status rc = OK;
    if (vote == VOTE_AHEAD) {
        rc = elastic_order(t, ORDER_AHEAD, OK, err);
        THEN(ahead_share(t, err));
    }
    return rc == OK ? nccl_go_on(t->nccl, vote < VOTE_SPLITS, err) : rc;
}

/* Whether the end of this epoch is followed by an evaluation, and that by a checkpoint. */
static bool evaluates_after(const struct trainer *t, int64_t epoch)
{
    const int64_t every = t->job->train.eval_every_epochs;
    return t->options->evaluate && every > 0 && (epoch + 1) % every == 0;
}

static enum status save_now(struct trainer *t, struct err *err)
{
    enum status rc = elastic_order(t, ORDER_SAVE, OK, err);
    return rc == OK ? trainer_save(t, true, err) : rc;
}

/* Give the last checkpoint its name, because all ranks have written their files. */
static enum status saved_now(struct trainer *t, struct err *err)
{
    enum status rc = elastic_order(t, ORDER_SAVED, OK, err);
    return rc == OK ? trainer_saved(t, err) : rc;
}

/* Do what is not training: the time since *begin counts as training, and *begin is then now. */
static enum status untimed(struct trainer *t, int64_t *begin,
                           enum status (*work)(struct trainer *t, struct err *err), struct err *err)
{
    t->train_ns += comm_now_ns(t->comm) - *begin;
    const enum status rc = work(t, err);
    *begin = comm_now_ns(t->comm);
    return rc;
}

/* Count a step; its votes end the loop. */
static void count_step(struct trainer *t, const struct step_result *result, int64_t samples)
{
    t->epoch_row.steps++;
    t->epoch_samples += samples;
    t->epoch_step_ns += result->step_ns;
    t->epoch_loss += result->loss;
    t->yielded = result->vote == VOTE_YIELD;
    t->interrupted = t->yielded || result->vote == VOTE_STOP;
}

/* Write what is due after a step: a checkpoint that a vote put off, a copy in memory, a checkpoint. */
static enum status save_due(struct trainer *t, int64_t *begin, enum vote vote, bool last,
                            bool ends_epoch, struct err *err)
{
    const int64_t every = t->job->train.checkpoint_every_steps;
    enum status rc = OK;
    if (t->saving && vote == VOTE_NONE)
        rc = untimed(t, begin, saved_now, err);
    if (rc == OK && t->copies.on && t->progress.step % t->job->train.memory_every_steps == 0 &&
        !last) {
        rc = elastic_order(t, ORDER_COPY, OK, err);
        THEN(trainer_copy(t, err));
    }
    if (rc == OK && every > 0 && t->progress.step % every == 0 && t->options->evaluate &&
        !(ends_epoch && evaluates_after(t, t->progress.epoch)))
        rc = untimed(t, begin, save_now, err);
    return rc;
}

/* The steps of an epoch up to last_step, or to the end of a turn within it. */
static enum status epoch_steps(struct trainer *t, int64_t first_step, int64_t last_step,
                               struct err *err)
{
    const struct sampler *sampler = &t->deployment.samplers[SPLIT_TRAIN];
    const int64_t global = sampler->spec.batch * sampler->spec.num_replicas;
    const int64_t in_epoch = sampler_steps_per_epoch(sampler);
    const int64_t every = t->job->train.checkpoint_every_steps;
    int64_t begin = comm_now_ns(t->comm);
    const int64_t first = (t->progress.position - sampler->origin) / global;
    bool over = false;
    enum status rc = OK;
    /* The ranks agree about each later batch at the end of the step before it. */
    if (first < in_epoch && t->progress.step < last_step && !t->interrupted)
        rc = trainer_batch(t, t->deployment.loaders[SPLIT_TRAIN], t->progress.epoch, first, NULL,
                           err);
    for (int64_t s = first;
         rc == OK && s < in_epoch && t->progress.step < last_step && !t->interrupted && !over;
         s++) {
        struct step_result result;
        /* The first two steps of a process touch memory for the first time, so they are not
         * typical. */
        const bool typical = t->progress.step - first_step >= WARM_UP_STEPS;
        const bool last = t->progress.step + 1 == last_step ||
                          (s + 1 == in_epoch && t->progress.epoch + 1 == t->job->train.epochs);
        const struct step_ask ask = {
            .in_epoch = s,
            .trace = (typical &&
                      t->progress.step - t->first_step < WARM_UP_STEPS + t->options->trace_steps) ||
                     last,
            .may_yield = !last && (s + 1 == in_epoch || (every > 0 && t->options->evaluate &&
                                                         (t->progress.step + 1) % every == 0))};
        rc = one_step(t, &ask, &result, err);
        if (rc != OK)
            break;
        count_step(t, &result, sampler_step_samples(sampler, s));
        if (result.next_fails && !last) { /* this rank's loader has failed, or that of another */
            (void)loader_next(t->deployment.loaders[SPLIT_TRAIN], &t->fault);
            t->interrupted = true;
        }
        over = trainer_turn_due(t);
        if (t->nccl && !over && !t->interrupted)
            rc = go_ahead(t, (enum vote)result.vote, err);
        THEN(save_due(t, &begin, (enum vote)result.vote, last, s + 1 == in_epoch, err));
    }
    t->train_ns += comm_now_ns(t->comm) - begin;
    return rc;
}

/* Whether the epoch read most of its samples from the cache at the level of its plan: not the epoch
 * that fills it. The simulator's epochs mean the same by `cached`. */
static bool epoch_read_cache(const struct trainer *t)
{
    if (!t->cache || t->deployment.plan.plan.frozen != FROZEN_CACHED)
        return false;
    const struct cache_counts now = cache_counts(t->cache), *then = &t->cache_at_epoch;
    return now.hits - then->hits > now.misses - then->misses + now.upgrades - then->upgrades;
}

/* Fill the epoch's record: the shape of the present plan, sums over the whole epoch so far. */
static void describe_epoch(struct trainer *t)
{
    const struct plan *plan = &t->deployment.plan.plan;
    struct epoch_row *row = &t->epoch_row;
    row->epoch = t->progress.epoch;
    row->frozen_layers = plan->num_frozen_layers;
    row->pipeline_length = plan->num_ranks;
    row->replicas = plan_width(plan);
    row->microbatches = plan->microbatches.count;
    row->transition_ns += t->elastic.transition_ns;
    row->cached = epoch_read_cache(t);
    row->step_ns = row->steps ? t->epoch_step_ns / row->steps : 0;
    row->train_loss = row->steps ? t->epoch_loss / (double)row->steps : NAN;
    row->samples_per_s =
        t->epoch_step_ns ? (double)t->epoch_samples * 1e9 / (double)t->epoch_step_ns : 0;
    t->train_ns += t->elastic.transition_ns;
    t->elastic.transition_ns = 0;
}

void trainer_clear_epoch(struct trainer *t)
{
    t->epoch_row =
        (struct epoch_row){.bubble_fraction = NAN, .eval_loss = NAN, .eval_accuracy = NAN};
    t->epoch_samples = t->epoch_step_ns = 0;
    t->epoch_loss = 0;
    if (t->cache)
        t->cache_at_epoch = cache_counts(t->cache);
}

/* Train to the end of the epoch or of the turn, on a rank that holds stages. */
static enum status one_epoch(struct trainer *t, int64_t first_step, int64_t last_step,
                             struct err *err)
{
    const bool evaluates = evaluates_after(t, t->progress.epoch);
    if (trainer_turn_due(t))
        probe_begin(t);
    enum status rc = epoch_steps(t, first_step, last_step, err);
    bool over = t->progress.position >= t->deployment.samplers[SPLIT_TRAIN].spec.num_samples;
    describe_epoch(t);
    if (rc == OK && over) {
        t->progress.epoch++;
        t->progress.position = 0;
    }
    if (rc == OK && trainer_turn_due(t))
        rc = elastic_turn_end(t, err);
    if (rc == OK && over && evaluates && !t->probe.cut) {
        rc = trainer_evaluate(t, &t->evaluated, err);
        t->evaluated_step = t->evaluated.stopped ? -1 : t->progress.step;
        t->epoch_row.eval_loss = t->evaluated.stopped ? NAN : t->evaluated.loss;
        t->epoch_row.eval_accuracy = t->evaluated.stopped ? NAN : t->evaluated.accuracy;
        if (rc == OK) /* so that the best one can be kept */
            rc = save_now(t, err);
    }
    if (rc == OK && t->comm->rank == 0)
        run_files_epoch(t->files, &t->epoch_row);
    t->written_row = t->epoch_row;
    if (over)
        trainer_clear_epoch(t);
    return rc;
}

enum status trainer_train(struct trainer *t, struct err *err)
{
    const struct job *job = t->job;
    const int64_t first_step = t->progress.step; /* of this start of the call */
    int64_t last_step = job->train.max_steps > 0 ? job->train.max_steps : INT64_MAX;
    bool ended = false, started = false; /* started: a turn has ended, the next one is undecided */
    enum status rc = OK;
    if (t->options->max_steps > 0 && t->options->max_steps < last_step - t->first_step)
        last_step = t->first_step + t->options->max_steps;
    if (!turn_elastic(job) && t->total_steps < last_step)
        last_step = t->total_steps;
    ahead_start(t);
    if (!deployment_idle(&t->deployment))
        rc = elastic_go_on(t, &started, err);
    while (rc == OK && !ended) {
        if (deployment_idle(&t->deployment)) {
            rc = elastic_idle(t, &ended, err);
            started = false; /* the decision of this turn has been made */
            continue;
        }
        ended = t->progress.epoch >= job->train.epochs || t->progress.step >= last_step ||
                t->interrupted;
        if (!ended && started && trainer_turn_due(t)) {
            rc = elastic_turn_start(t, err);
            if (rc != OK || deployment_idle(&t->deployment))
                continue;
        }
        if (!ended && t->progress.position == 0)
            rc = deployment_epoch(&t->base, &t->deployment, err);
        if (!ended && rc == OK)
            rc = one_epoch(t, first_step, last_step, err);
        started = true;
        if (ended)
            rc = elastic_order(t, ORDER_END, OK, err);
    }
    if (rc == OK && t->nccl)
        rc = nccl_prepare(t->nccl, NULL, 0, err);
    if (t->comm->rank == 0)
        run_log_end(&t->log, stderr);
    return rc;
}
