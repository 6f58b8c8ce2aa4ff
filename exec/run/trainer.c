#include "exec/run/trainer.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "exec/data/dataset_open.h"
#include "exec/device/choices.h"
#include "exec/device/cuda_load.h"
#include "exec/device/device_info.h"
#include "exec/device/devices.h"
#include "exec/run/plan_ahead.h"
#include "exec/run/trainer_state.h"

enum { PROGRESS_NS = 200000000 };
enum { PARCEL_BYTES = 2 << 20, NUM_PARCELS = 16 };

/* What rides along with a step; the largest of all ranks counts: rank 0 knows what to make ahead; a
 * communicator is still being split off here; a signal came. */
enum vote { VOTE_NONE, VOTE_AHEAD, VOTE_SPLITS, VOTE_STOP };

static volatile sig_atomic_t stop_wanted;

void trainer_stop(void)
{
    stop_wanted = 1;
}

double trainer_lr(const struct job *job, int64_t step, int64_t total_steps)
{
    double lr = job->train.optimizer.lr, warmup = (double)job->train.warmup_steps, done;
    if (step < job->train.warmup_steps)
        return lr * (double)(step + 1) / warmup;
    if (job->train.lr_schedule == LR_CONSTANT || total_steps <= job->train.warmup_steps)
        return lr;
    done = ((double)step - warmup) / ((double)total_steps - warmup);
    if (job->train.lr_schedule == LR_LINEAR)
        return lr * (1 - done);
    return lr * .5 * (1 + cos(done * 3.14159265358979323846));
}

/* --- set up ----------------------------------------------------------------------------------- */

static enum status refuse_unsupported(const struct job *job, struct err *err)
{
    const char *name = job->path ? job->path : job->name;
    if (job->model.family == FAMILY_UNIFORM || job->model.family == FAMILY_EXPLICIT)
        return err_set(err, ERR_INFEASIBLE,
                       "%s: model '%s' is for planning and simulation, it has no layers to train",
                       name, job->model.name);
    return OK;
}

/* Weights to start from are there and fit the job's model; where a resumed run goes on. */
static enum status check_weights(struct trainer *t, const char *path, bool resume, struct err *err)
{
    struct progress got;
    struct stat st;
    char *dir = NULL;
    enum status rc;
    if (!resume && stat(path, &st) != 0)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", path, strerror(errno));
    if (!resume && !S_ISDIR(st.st_mode))
        return OK; /* a safetensors file: hf_load_file() looks into it */
    rc = checkpoint_find(path, &dir, err);
    if (rc == OK)
        rc = checkpoint_peek(dir, t->job, resume, &got, err);
    free(dir);
    if (rc != OK || !resume)
        return rc;
    t->progress = got;
    if (got.position >= t->dataset.num_samples[SPLIT_TRAIN]) {
        t->progress.epoch++;
        t->progress.position = 0;
    }
    return OK;
}

/* From a path that check_weights() has passed. */
static enum status load_weights(struct trainer *t, const char *path, bool state, struct err *err)
{
    struct stage_list list = layout_list(&t->base, &t->layout);
    struct stat st;
    enum status rc;
    char *dir = NULL;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return hf_load_file(path, &t->job->model, &list, t->fresh_head, &t->import, err);
    rc = checkpoint_find(path, &dir, err);
    if (rc == OK)
        rc = checkpoint_load(dir, &list, state, err);
    free(dir);
    return rc;
}

/* Only a run that may freeze wants one. */
static enum status open_cache(struct trainer *t, struct err *err)
{
    enum status rc;
    snprintf(t->cache_note, sizeof t->cache_note, "cache off");
    if (t->job->freeze.policy == FREEZE_NONE || t->job->cache.policy == CACHE_OFF)
        return OK;
    rc = cache_open(t->comm, t->job, t->backend, t->dataset.num_samples[SPLIT_TRAIN], &t->cache,
                    t->cache_note, sizeof t->cache_note, err);
    t->base.cache = t->cache;
    return rc;
}

static enum status first_weights(struct trainer *t, struct err *err)
{
    enum status rc = OK;
    for (int s = 0; rc == OK && s <= t->layout.plan.plan.num_stages; s++)
        if (t->layout.stages[s])
            rc = stage_init_weights(t->layout.stages[s], t->job->train.seed, err);
    return rc;
}

/* What the device's libraries shall do where they have several ways: as the store has it. */
static enum status give_choices(struct trainer *t, struct err *err)
{
    struct profile_info present = {0};
    struct store *store = NULL;
    enum status rc = OK;
    if (t->comm->rank == 0 && t->backend->choose)
        rc = device_describe(t->job->train.device, t->cores, &present, err);
    if (rc == OK && t->comm->rank == 0 && t->backend->choose)
        rc = store_open(t->db, STORE_READ, &store, err);
    rc = comm_agree(t->comm, rc, err);
    if (rc == OK)
        rc = choices_give(t->comm, store, &present, t->backend, err);
    store_close(store);
    return rc;
}

/* runs/NAME: one folder, whatever the name holds. *out is NULL without memory. */
static void default_folder(const char *name, char **out)
{
    bool none = !*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    if (asprintf(out, "runs/%s", none ? "job" : name) < 0) {
        *out = NULL;
        return;
    }
    for (char *at = strchr(*out, '/') + 1; (at = strchr(at, '/'));)
        *at = '-';
}

/* Where the run's files go; a resumed run goes on in the folder that its checkpoint lies in, unless
 * another is named. */
static enum status out_folder(struct trainer *t, struct err *err)
{
    const struct trainer_options *options = t->options;
    struct stat own, named;
    char *run = NULL;
    enum status rc = options->resume ? checkpoint_run(options->resume, &run, err) : OK;
    if (rc != OK)
        return rc;
    if (options->out)
        t->out = strdup(options->out);
    else if (run)
        t->out = strdup(run);
    else
        default_folder(t->job->name, &t->out);
    t->goes_on = run && t->out && stat(run, &own) == 0 && stat(t->out, &named) == 0 &&
                 own.st_dev == named.st_dev && own.st_ino == named.st_ino;
    free(run);
    return t->out ? OK : err_nomem(err);
}

/* data.workers: as asked; else training samples are made beside what computes, test samples in its
 * place. */
static void share_workers(struct trainer *t)
{
    const int asked = t->job->data.workers;
    const bool on_device = t->backend && !t->backend->host_memory;
    t->base.workers[SPLIT_TRAIN] = asked > 0 ? asked : cores_beside(t->cores, on_device);
    t->base.workers[SPLIT_TEST] = asked > 0 ? asked : t->cores->num;
}

struct turn_ask trainer_ask(const struct trainer *t, int64_t epoch, int64_t turn)
{
    const struct plan *plan = &t->layout.plan.plan;
    return (struct turn_ask){.epoch = epoch,
                             .turn = turn,
                             .num_frozen_layers = t->progress.num_frozen_layers,
                             .cache_room = t->cache ? cache_room(t->cache) : 0,
                             .cache_whole = t->cache && cache_whole(t->cache),
                             .num_samples = t->dataset.num_samples[SPLIT_TRAIN],
                             .old = plan->num_ranks > 0 ? plan : NULL};
}

/* The plan to begin with. That of an elastic run that goes on follows upon the run's first one, as
 * it did before; learning rates count in the steps of the first one. */
static enum status begin_plan(struct trainer *t, struct train_plan *plan, struct err *err)
{
    const struct job *job = t->job;
    struct turn_ask ask = trainer_ask(t, t->progress.epoch, elastic_turn(t)), first = ask;
    struct train_plan begun = {0};
    struct sampler sampler;
    struct err why = {0};
    if (turn_elastic(job)) {
        first.epoch = first.turn = 0;
        first.num_frozen_layers = t->elastic.first_frozen;
    }
    enum status rc = train_plan_make(t->comm, t->cores, job, t->db, &first, &begun, &why);
    if (rc == ERR_INFEASIBLE && ask.turn > 0) { /* on these ranks, without what is frozen now */
        why = (struct err){0};
        rc = train_plan_make(t->comm, t->cores, job, t->db, &ask, &begun, &why);
    }
    if (rc != OK)
        return err_copy(err, &why);
    rc = sampler_init(&sampler, ask.num_samples, 0, false, begun.plan.num_replicas,
                      begun.plan.batch, 1, err);
    if (rc == OK)
        t->first_steps_per_epoch = sampler_steps_per_whole_epoch(&sampler);
    if (rc == OK && turn_changes(job, ask.turn, ask.num_frozen_layers, &begun.plan)) {
        ask.old = &begun.plan;
        rc = train_plan_make(t->comm, t->cores, job, t->db, &ask, plan, err);
    } else if (rc == OK) {
        *plan = begun;
        begun = (struct train_plan){0};
    }
    train_plan_clear(&begun);
    return rc;
}

/* All that can go wrong before the first file is made; agreed on by all ranks at each turn. */
static enum status set_up(struct trainer *t, const char *weights, bool resume, struct err *err)
{
    const struct comm *comm = t->comm;
    struct train_plan plan = {0};
    struct progress was;
    int num_frozen = 0;
    const struct backend_spec spec = {.device = device_text(t->job->train.device),
                                      .dtype = t->job->train.dtype,
                                      .threads = t->cores->threads,
                                      .local_rank = comm->local_rank};
    enum status rc = refuse_unsupported(t->job, err);
    if (t->job->train.transport == TRANSPORT_NCCL)
        nccl_environment();
    if (rc == OK)
        rc = dataset_open(t->job, &t->dataset, err);
    if (rc == OK && !(t->backend = backend_new(&spec, err)))
        rc = err ? err->status : ERR_NOMEM;
    if (rc == OK && weights)
        rc = check_weights(t, weights, resume, err);
    rc = comm_agree(comm, rc, err);
    t->base = (struct layout_base){
        .comm = comm, .job = t->job, .backend = t->backend, .dataset = &t->dataset};
    share_workers(t);
    if (rc == OK)
        rc = give_choices(t, err);
    if (rc == OK && t->trains)
        rc = comm_agree(comm, out_folder(t, err), err);
    if (rc == OK && t->trains && t->job->train.transport == TRANSPORT_NCCL)
        rc = nccl_open(comm, t->backend, folders_make(t->out, true, NULL) == OK ? t->out : NULL,
                       cuda_load_num_devices(), &t->nccl, err);
    t->base.nccl = t->nccl;
    if (rc == OK && t->trains && turn_elastic(t->job))
        rc = comm_agree(
            comm, parcel_room_new(t->backend, PARCEL_BYTES, NUM_PARCELS, &t->base.parcel_room, err),
            err);
    if (rc == OK)
        rc = elastic_open(t, resume ? weights : NULL, &num_frozen, err);
    if (rc == OK && t->trains)
        rc = open_cache(t, err);
    t->progress.num_frozen_layers = num_frozen;
    was = t->progress;
    if (rc == OK)
        rc = begin_plan(t, &plan, err);
    if (rc == OK)
        rc = layout_place(&t->base, &plan, &t->layout, err);
    if (rc == OK)
        rc = comm_agree(comm, layout_batches(&t->base, was.position, &t->layout, err), err);
    if (rc == OK)
        rc = comm_agree(comm, layout_stages(&t->base, &t->layout, err), err);
    if (rc == OK)
        rc = comm_agree(comm, first_weights(t, err), err);
    if (rc == OK && weights)
        rc = comm_agree(comm, load_weights(t, weights, resume, err), err);
    t->progress = was;
    if (rc == OK)
        rc = comm_agree(comm, layout_runtime(&t->base, &t->layout, err), err);
    train_plan_clear(&plan);
    return rc;
}

/* Messages may be under way in what this rank holds: it stays in place. */
static _Noreturn void fail_alone(struct trainer *t, const struct err *err)
{
    nccl_end(t->nccl);
    comm_fail(t->comm, err);
}

static void trainer_clear(struct trainer *t)
{
    ahead_stop(t);
    nccl_end(t->nccl);
    layout_clear(&t->layout);
    cache_close(t->cache);
    elastic_clear(&t->elastic);
    nccl_close(t->nccl);
    parcel_room_free(t->base.parcel_room);
    backend_free(t->backend);
    dataset_clear(&t->dataset);
    free(t->out);
}

/* --- evaluation ------------------------------------------------------------------------------- */

static enum status evaluate(struct trainer *t, struct evaluation *evaluation, struct err *err)
{
    int64_t start = comm_now_ns(t->comm);
    struct loss_sums total = {0};
    struct qa_eval spans = {.dataset = &t->dataset, .split = SPLIT_TEST};
    struct qa_score qa = {0};
    bool answers = t->dataset.kind == DATA_SQUAD;
    enum status rc = OK;
    if (answers)
        runtime_on_eval(t->layout.runtime, qa_eval_block, &spans);
    for (int64_t s = 0; rc == OK && s < sampler_steps_per_epoch(&t->layout.samplers[SPLIT_TEST]);
         s++) {
        const struct batch *batch;
        struct loss_sums sums;
        rc = loader_get(t->layout.loaders[SPLIT_TEST], 0, s, &batch, err);
        if (rc == OK)
            rc = runtime_eval(t->layout.runtime, batch, &sums, err);
        if (rc == OK) {
            total.loss += sums.loss;
            total.count += sums.count;
            total.correct += sums.correct;
        }
    }
    if (answers)
        runtime_on_eval(t->layout.runtime, NULL, NULL);
    if (rc == OK && answers)
        rc = qa_eval_score(&spans, t->layout.place.active, &qa, err);
    qa_eval_clear(&spans);
    if (rc == OK)
        *evaluation = (struct evaluation){
            .qa = qa,
            .loss = total.count ? total.loss / (double)total.count : 0,
            .accuracy = total.count ? (double)total.correct / (double)total.count : 0,
            .count = total.count,
            .ns = comm_now_ns(t->comm) - start};
    return rc;
}

/* --- the run ---------------------------------------------------------------------------------- */

enum status trainer_save(struct trainer *t, struct err *err)
{
    struct stage_list list = layout_list(&t->base, &t->layout);
    char *dir = NULL;
    enum status rc;
    if (t->last_saved == t->progress.step)
        return OK;
    if (asprintf(&dir, "%s/checkpoint-%lld", t->out, (long long)t->progress.step) < 0)
        return err_nomem(err);
    rc = checkpoint_save(t->comm, dir, t->job, &list, t->layout.place.replica == 0, &t->progress,
                         &t->elastic.norms, err);
    if (rc == OK)
        t->last_saved = t->progress.step;
    free(dir);
    return rc;
}

/* Times of every op of this step, from all ranks to rank 0's record. */
static enum status record_step_ops(struct trainer *t, const struct step_result *result,
                                   struct err *err)
{
    const struct schedule *full = t->layout.plan.full;
    int n = t->layout.plan.plan.num_ranks;
    void *all = NULL;
    int64_t *sizes = NULL;
    enum status rc =
        comm_gather(t->layout.place.active, runtime_times(t->layout.runtime),
                    full->ranks[t->layout.place.rank].num_ops * (int64_t)sizeof(struct op_time),
                    &all, &sizes, err);
    if (rc == OK && t->comm->rank == 0) {
        const char *at = all;
        int places = n * t->layout.plan.plan.num_replicas;
        for (int rank = 0, r = 0; rc == OK && rank < t->comm->size; rank++) {
            int place = 0;
            while (place < places && t->layout.plan.plan.device[place] != rank)
                place++;
            if (place == places) /* idle */
                continue;
            rc = run_files_ops(t->files, t->progress.step, place / n, place % n,
                               &full->ranks[place % n], (const struct op_time *)at,
                               result->start_ns, err);
            at += sizes[r++];
        }
    }
    free(all);
    free(sizes);
    return rc;
}

static void show_progress(struct trainer *t, const struct step_result *result, int64_t samples)
{
    int64_t now = comm_now_ns(t->comm);
    bool last = t->progress.step == t->total_steps;
    if (t->comm->rank != 0 || !t->options->progress || (now - t->shown_ns < PROGRESS_NS && !last))
        return;
    t->shown_ns = now;
    fprintf(stderr, "\rstep %lld/%lld  epoch %lld  loss %.4f  %.0f samples/s \033[K",
            (long long)t->progress.step, (long long)t->total_steps, (long long)t->progress.epoch,
            result->loss, (double)samples * 1e9 / (double)result->step_ns);
}

/* The learning rate follows epochs: where a change of R makes an epoch's steps fewer or more, each
 * counts for as many of the first plan's. It is not scaled with the batch. */
static int64_t lr_step(const struct trainer *t, int64_t step_in_epoch)
{
    const struct sampler *sampler = &t->layout.samplers[SPLIT_TRAIN];
    int64_t steps = sampler_steps_per_whole_epoch(sampler);
    int64_t global = sampler->batch * sampler->num_replicas;
    step_in_epoch = sampler_position(sampler, step_in_epoch) / global;
    if (steps != t->first_steps_per_epoch)
        step_in_epoch =
            (int64_t)((double)step_in_epoch * (double)t->first_steps_per_epoch / (double)steps);
    return t->progress.epoch * t->first_steps_per_epoch + step_in_epoch;
}

static enum vote vote_of(const struct trainer *t)
{
    return stop_wanted            ? VOTE_STOP
           : nccl_splits(t->nccl) ? VOTE_SPLITS
           : ahead_ready(t)       ? VOTE_AHEAD
                                  : VOTE_NONE;
}

static enum status one_step(struct trainer *t, int64_t step_in_epoch, bool trace,
                            struct step_result *result, struct err *err)
{
    const struct plan *plan = &t->layout.plan.plan;
    const struct batch *batch;
    double lr = trainer_lr(t->job, lr_step(t, step_in_epoch), t->total_steps);
    enum status rc =
        loader_get(t->layout.loaders[SPLIT_TRAIN], t->progress.epoch, step_in_epoch, &batch, err);
    if (rc == OK)
        rc = runtime_step(t->layout.runtime, batch, t->progress.step, lr, vote_of(t), result, err);
    if (runtime_not_finite(t->layout.runtime) && err) {
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
    t->progress.position = sampler_position(&t->layout.samplers[SPLIT_TRAIN], step_in_epoch + 1);
    t->last_loss = result->loss;
    if (isnan(t->first_loss))
        t->first_loss = result->loss;
    if (t->comm->rank == 0)
        rc = run_files_step(t->files,
                            &(struct step_row){.step = t->progress.step,
                                               .epoch = t->progress.epoch,
                                               .start_ns = result->start_ns,
                                               .step_ns = result->step_ns,
                                               .loss = result->loss,
                                               .lr = lr,
                                               .grad_norm = result->grad_norm,
                                               .samples_per_s = (double)batch->num_samples * 1e9 /
                                                                (double)result->step_ns,
                                               .frozen_layers = plan->num_frozen_layers,
                                               .pipeline_length = plan->num_ranks,
                                               .replicas = plan->num_replicas},
                            err);
    elastic_count(t);
    if (rc == OK && trace)
        rc = record_step_ops(t, result, err);
    show_progress(t, result, batch->num_samples);
    return rc;
}

/* Behind a step of a turn that goes on: communicators that a later plan may need. */
static enum status go_ahead(struct trainer *t, enum vote vote, struct err *err)
{
    enum status rc = OK;
    if (vote == VOTE_AHEAD) {
        rc = elastic_order(t, ORDER_AHEAD, OK, err);
        if (rc == OK)
            rc = ahead_share(t, err);
    }
    return rc == OK ? nccl_go_on(t->nccl, vote < VOTE_SPLITS, err) : rc;
}

/* The steps of an epoch up to last_step, or to the end of a turn within it. */
static enum status epoch_steps(struct trainer *t, int64_t first_step, int64_t last_step,
                               struct err *err)
{
    const struct sampler *sampler = &t->layout.samplers[SPLIT_TRAIN];
    const int64_t global = sampler->batch * sampler->num_replicas;
    const int64_t in_epoch = sampler_steps_per_epoch(sampler);
    const int64_t every = t->job->train.checkpoint_every_steps;
    int64_t begin = comm_now_ns(t->comm);
    bool over = false;
    enum status rc = OK;
    for (int64_t s = (t->progress.position - sampler->origin) / global;
         rc == OK && s < in_epoch && t->progress.step < last_step && !t->interrupted && !over;
         s++) {
        struct step_result result;
        /* The first two steps of a call touch memory for the first time; not typical. */
        int64_t done = t->progress.step - first_step;
        const bool last = t->progress.step + 1 == last_step ||
                          (s + 1 == in_epoch && t->progress.epoch + 1 == t->job->train.epochs);
        bool trace = (done >= 2 && done < 2 + t->options->trace_steps) || last;
        rc = one_step(t, s, trace, &result, err);
        if (rc != OK)
            break;
        t->epoch_row.steps++;
        t->epoch_samples += sampler_step_samples(sampler, s);
        t->epoch_step_ns += result.step_ns;
        t->epoch_loss += result.loss;
        t->interrupted = result.vote == VOTE_STOP;
        over = elastic_due(t);
        if (t->nccl && !over && !t->interrupted)
            rc = go_ahead(t, (enum vote)result.vote, err);
        if (rc == OK && every > 0 && t->progress.step % every == 0 && t->options->evaluate) {
            t->train_ns += comm_now_ns(t->comm) - begin;
            rc = elastic_order(t, ORDER_SAVE, OK, err);
            if (rc == OK)
                rc = trainer_save(t, err);
            begin = comm_now_ns(t->comm);
        }
    }
    t->train_ns += comm_now_ns(t->comm) - begin;
    return rc;
}

/* What is known of the epoch now: shape of the present plan, sums over all of it. */
static void describe_epoch(struct trainer *t)
{
    const struct plan *plan = &t->layout.plan.plan;
    struct epoch_row *row = &t->epoch_row;
    row->epoch = t->progress.epoch;
    row->frozen_layers = plan->num_frozen_layers;
    row->pipeline_length = plan->num_ranks;
    row->replicas = plan->num_replicas;
    row->microbatches = plan->microbatches.count;
    row->transition_ns += t->elastic.transition_ns;
    row->cached = plan->frozen == FROZEN_CACHED;
    row->step_ns = row->steps ? t->epoch_step_ns / row->steps : 0;
    row->train_loss = row->steps ? t->epoch_loss / (double)row->steps : NAN;
    row->samples_per_s =
        t->epoch_step_ns ? (double)t->epoch_samples * 1e9 / (double)t->epoch_step_ns : 0;
    t->train_ns += t->elastic.transition_ns;
    t->elastic.transition_ns = 0;
}

static void clear_epoch(struct trainer *t)
{
    t->epoch_row =
        (struct epoch_row){.bubble_fraction = NAN, .eval_loss = NAN, .eval_accuracy = NAN};
    t->epoch_samples = t->epoch_step_ns = 0;
    t->epoch_loss = 0;
}

/* An epoch, or what is left of it, or of a turn, on a rank that is at work. */
static enum status one_epoch(struct trainer *t, int64_t first_step, int64_t last_step,
                             struct err *err)
{
    const int64_t eval_every = t->job->train.eval_every_epochs;
    enum status rc = epoch_steps(t, first_step, last_step, err);
    bool over = t->progress.position >= t->layout.samplers[SPLIT_TRAIN].num_samples;
    describe_epoch(t);
    if (rc == OK && over) {
        t->progress.epoch++;
        t->progress.position = 0;
    }
    if (rc == OK && elastic_due(t))
        rc = elastic_turn_end(t, err);
    if (rc == OK && over && t->options->evaluate && eval_every > 0 &&
        t->progress.epoch % eval_every == 0) {
        rc = evaluate(t, &t->evaluated, err);
        t->evaluated_step = t->progress.step;
        t->epoch_row.eval_loss = t->evaluated.loss;
        t->epoch_row.eval_accuracy = t->evaluated.accuracy;
    }
    if (rc == OK && t->comm->rank == 0)
        rc = run_files_epoch(t->files, &t->epoch_row, err);
    if (over)
        clear_epoch(t);
    return rc;
}

/* Steps until the job, the call or a signal ends it. Idle ranks wait in here. */
static enum status train(struct trainer *t, struct err *err)
{
    const struct job *job = t->job;
    const int64_t first_step = t->progress.step;
    int64_t last_step = job->train.max_steps > 0 ? job->train.max_steps : INT64_MAX;
    bool ended = false, started = false; /* started: the next turn is still to be decided on */
    enum status rc = OK;
    if (t->options->max_steps > 0 && t->options->max_steps < last_step - first_step)
        last_step = first_step + t->options->max_steps;
    if (!turn_elastic(job) && t->total_steps < last_step)
        last_step = t->total_steps;
    ahead_start(t);
    while (rc == OK && !ended) {
        if (layout_idle(&t->layout)) {
            rc = elastic_idle(t, &ended, err);
            started = false; /* a newcomer joins behind the decision */
            continue;
        }
        ended = t->progress.epoch >= job->train.epochs || t->progress.step >= last_step ||
                t->interrupted;
        if (!ended && started && elastic_due(t)) {
            rc = elastic_turn_start(t, err);
            if (rc != OK || layout_idle(&t->layout))
                continue;
        }
        if (!ended && t->progress.position == 0)
            rc = layout_epoch(&t->base, &t->layout, err);
        if (!ended && rc == OK)
            rc = one_epoch(t, first_step, last_step, err);
        started = true;
        if (ended)
            rc = elastic_order(t, ORDER_END, OK, err);
    }
    if (rc == OK && t->nccl)
        rc = nccl_prepare(t->nccl, NULL, 0, err);
    if (t->comm->rank == 0 && t->options->progress)
        fputc('\n', stderr);
    return rc;
}

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
    clear_epoch(&t);
    const char *weights = options->resume ? options->resume : options->init;
    char digest[65] = "";
    bool over, alone = false; /* an error may be this rank's own */
    enum status rc;
    rc = set_up(&t, weights, options->resume != NULL, err);
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
        rc = evaluate(&t, &before, err);
    if (rc == OK)
        rc = train(&t, err);
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
        rc = evaluate(&t, &after, err);
    if (rc == OK && t.layout.place.replica == 0) {
        struct stage_list list = layout_list(&t.base, &t.layout);
        rc = checkpoint_digest(t.layout.place.pipeline, &list, digest, err);
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
        fail_alone(&t, err);
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
    rc = set_up(&t, checkpoint, false, err);
    if (rc == OK && !layout_idle(&t.layout)) {
        alone = true;
        rc = evaluate(&t, &got, err);
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
        fail_alone(&t, err);
    trainer_clear(&t);
    return rc;
}
