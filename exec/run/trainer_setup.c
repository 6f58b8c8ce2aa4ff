/* exec/run/trainer_setup.c - what a run makes before its first step: data, backend, choices of GPU
 * libraries, output folder, NCCL, freeze state, cache, plan, stages, weights, runtime. Read
 * trainer_set_up() first; it makes them in this order. */
#include "exec/run/trainer_setup.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "exec/data/dataset_open.h"
#include "exec/run/data_check.h"
#include "exec/device/choices.h"
#include "exec/device/cuda_load.h"
#include "exec/device/device_info.h"
#include "exec/device/devices.h"
#include "exec/change/elastic.h"
#include "exec/change/plan_ahead.h"
#include "exec/probe/probe.h"
#include "exec/change/slow_ranks.h"
#include "exec/trainer/trainer.h"
#include "exec/weights/adapter_files.h"
#include "profiles/base/clock.h"

#define MEASURE_FROM_NS 1e10 /* a run that is predicted to take longer is measured first */
enum { MEASURE_FROM_PASSES = 1000 };

enum { PARCEL_BYTES = 2 << 20, NUM_PARCELS = 16 };

static enum status refuse_unsupported(const struct job *job, struct err *err)
{
    const char *name = job->path ? job->path : job->name;
    if (job->train.dtype >= DTYPE_FP16)
        return err_set(err, ERR_INPUT,
                       "train.dtype %s is for plan and sim; train runs fp32, bf16 or tf32",
                       dtype_text((int)job->train.dtype));
    for (int i = 0; i < job_keys.num; i++)
        if (job_keys.rows[i].instead && !job_is_default(job, &job_keys.rows[i]))
            return err_set(err, ERR_INPUT, "%s is for plan and sim; %s", job_keys.rows[i].name,
                           job_keys.rows[i].instead);
    if (!model_family_traits(job->model.family)->trainable)
        return err_set(
            err, ERR_INFEASIBLE,
            "%s: model '%s' of family %s is for planning and simulation, it has no layers "
            "to train",
            name, job->model.name, model_family_name(job->model.family));
    return OK;
}

/* Check that the weights to start from exist and fit the job's model. A resumed run takes its
 * progress from them. */
static enum status check_weights(struct trainer *t, const char *path, bool resume, struct err *err)
{
    struct progress got;
    struct stat st;
    char *dir = NULL;
    enum status rc;
    if (!resume && stat(path, &st) != 0)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", path, strerror(errno));
    if (!resume && weights_are_at(path))
        return OK; /* weights of another tool: hf_load() looks into them */
    rc = checkpoint_find(path, &dir, err);
    THEN(checkpoint_peek(dir, t->job, resume, &got, err));
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

/* Load weights from a path that check_weights() has accepted. */
static enum status load_weights(struct trainer *t, const char *path, bool state, struct err *err)
{
    struct stage_list list = deployment_list(&t->base, &t->deployment);
    enum status rc;
    char *dir = NULL;
    if (!state && weights_are_at(path)) {
        const struct class_names classes = {t->dataset.class_names, t->dataset.classes};
        rc = hf_load(path, &t->job->model, &classes, &list, t->fresh_head, &t->import, err);
        return rc == OK && t->options->adapter
                   ? adapter_files_load(t->options->adapter, path, &classes, &t->job->model, &list,
                                        err)
                   : rc;
    }
    rc = checkpoint_find(path, &dir, err);
    THEN(checkpoint_load(dir, &list, state, err));
    free(dir);
    return rc;
}

/* Only a run that may freeze layers needs a cache. */
static enum status open_cache(struct trainer *t, struct err *err)
{
    enum status rc;
    snprintf(t->cache_note, sizeof t->cache_note, "cache off");
    if (t->job->freeze.policy == FREEZE_NONE || t->job->cache.policy == CACHE_OFF)
        return OK;
    if (t->backend->measure_row_position) /* for the note */
        t->backend->measure_row_position(t->backend);
    rc = cache_open(t->comm, t->job, t->backend, t->dataset.num_samples[SPLIT_TRAIN], &t->cache,
                    t->cache_note, err);
    t->base.cache = t->cache;
    return rc;
}

static enum status first_weights(struct trainer *t, struct err *err)
{
    enum status rc = OK;
    for (int s = 0; rc == OK && s <= t->deployment.plan.plan.num_stages; s++)
        if (t->deployment.stages[s])
            rc = stage_init_weights(t->deployment.stages[s], t->job->train.seed, err);
    return rc;
}

/* Give the backend the choices of its libraries that the profile store holds. */
static enum status give_choices(struct trainer *t, struct err *err)
{
    struct profile_info present = {0};
    struct store *store = NULL;
    enum status rc = OK;
    if (t->comm->rank == 0 && t->backend->choose)
        rc = device_describe(t->job->train.device, t->cores, &present, err);
    if (rc == OK && t->comm->rank == 0 && t->backend->choose)
        rc = store_open(t->options->db, STORE_READ, &store, err);
    rc = comm_agree(t->comm, rc, err);
    THEN(choices_give(t->comm, store, &present, t->backend, err));
    store_close(store);
    return rc;
}

/* runs/NAME. Slashes in the name are replaced, so that it is one folder. *out is NULL if there is
 * no memory. */
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

/* Find the run's folder. A resumed run continues in the folder of its checkpoint, unless another is
 * named. */
static enum status out_folder(struct trainer *t, struct err *err)
{
    const struct trainer_options *options = t->options;
    struct stat own, named;
    char *run = options->run ? realpath(options->run, NULL) : NULL;
    enum status rc = OK;
    if (options->resume && !run)
        rc = checkpoint_run(options->resume, &run, err);
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
    if (!t->out)
        return err_nomem(err);
    return t->goes_on || t->comm->rank != 0 ? OK : run_folder_check(t->out, t->job->path, err);
}

/* data.workers, if the job sets it. Else training samples are made by cores that neither compute
 * nor launch work, and test samples by all cores. */
static void share_workers(struct trainer *t)
{
    const int asked = t->job->data.workers;
    const bool on_device = t->backend && !t->backend->host_memory;
    t->base.workers[SPLIT_TRAIN] = asked > 0 ? asked : cores_beside(t->cores, on_device);
    t->base.workers[SPLIT_TEST] = asked > 0 ? asked : t->cores->num;
    t->base.workers[SPLIT_VALID] = t->base.workers[SPLIT_TEST];
}

/* The plan to begin with. A resumed elastic run first makes the plan that the run had begun with,
 * because the learning rate counts in that plan's steps and later plans follow from it. */
static enum status begin_plan(struct trainer *t, struct train_plan *plan, struct err *err)
{
    const struct job *job = t->job;
    struct run_state ask = trainer_ask(t, t->progress.epoch, trainer_turn(t)), first = ask;
    struct train_plan begun = {0};
    struct sampler sampler;
    struct err why = {0};
    const struct planning with = trainer_planning(t);
    if (turn_elastic(job)) {
        first.epoch = first.turn = 0;
        first.num_frozen_layers = t->elastic.first_frozen;
    }
    enum status rc = train_plan_make(&with, &first, &begun, &why);
    if (rc == ERR_INFEASIBLE && ask.turn > 0) {
        /* these ranks hold the model only with its frozen layers */
        why = (struct err){0};
        rc = train_plan_make(&with, &ask, &begun, &why);
    }
    if (rc != OK)
        return err_copy(err, &why);
    const struct sampler_spec whole = {.num_samples = ask.num_samples,
                                       .num_replicas = begun.plan.num_pipelines,
                                       .batch = begun.plan.batch,
                                       .num_microbatches = 1};
    rc = sampler_init(&sampler, &whole, err);
    if (rc == OK)
        t->first_steps_per_epoch = sampler_steps_per_whole_epoch(&sampler);
    if (rc == OK && turn_changes(job, ask.turn, ask.num_frozen_layers, &begun.plan)) {
        ask.old = &begun.plan;
        rc = train_plan_make(&with, &ask, plan, err);
    } else if (rc == OK) {
        *plan = begun;
        begun = (struct train_plan){0};
    }
    train_plan_clear(&begun);
    return rc;
}

/* The time of this call's steps by the plan. */
static double predicted_ns(const struct trainer *t, const struct train_plan *plan)
{
    double steps = (double)t->first_steps_per_epoch * t->job->train.epochs;
    if (t->job->train.max_steps > 0)
        steps = fmin(steps, (double)t->job->train.max_steps);
    if (t->options->max_steps > 0)
        steps = fmin(steps, (double)t->options->max_steps);
    return steps * (double)plan_samples(&plan->plan) * plan->sample_ns;
}

/* Whether the run is to be measured first: it is long by costs of another machine, or by those of other
 * micro-batches than its own, and has so many of these that a measurement is a hundredth of it. Jobs that
 * name their costs are not measured. *samples: what of, as in trainer_options.measure. */
static bool is_measured(const struct trainer *t, const struct train_plan *plan, int64_t *samples)
{
    const struct job *job = t->job;
    const double ns = predicted_ns(t, plan),
                 microbatches = ns / (plan->sample_ns * (double)plan->plan.microbatches.size);
    *samples = plan->measured_here ? plan->plan.microbatches.size : 0;
    return t->options->measure && !t->options->restarted && job->train.device == DEVICE_CPU &&
           job->cost.source == COST_AUTO && job->train.lora.rank == 0 && ns > MEASURE_FROM_NS &&
           (!plan->measured_here || (plan->extrapolated && microbatches > MEASURE_FROM_PASSES));
}

/* Measure a run's machine, which takes seconds, and plan again; and once more, where that plan has
 * micro-batches that were not measured. A run that cannot be measured keeps its plan. */
static enum status measure_first(struct trainer *t, struct train_plan *plan, struct err *err)
{
    enum status rc = OK;
    for (int round = 0; rc == OK && round < 2; round++) {
        struct err why = {0};
        char what[96], text[sizeof why.msg + 128];
        int64_t ask[2]; /* whether to, what of */
        ask[0] = t->comm->rank == 0 && is_measured(t, plan, &ask[1]);
        rc = comm_bcast(t->comm->all, ask, sizeof ask, 0, err);
        if (rc != OK || !ask[0])
            return rc;
        const int64_t begin_ns = clock_now_ns();
        rc = t->options->measure(t->comm, t->cores, t->job, ask[1], t->options->db, &why);
        snprintf(what, sizeof what, ask[1] ? " at micro-batches of %lld" : "", (long long)ask[1]);
        if (rc == OK)
            snprintf(text, sizeof text,
                     "this machine had no profile of model '%s'%s: measured for %.1f s and kept",
                     t->job->model.name, what, (double)(clock_now_ns() - begin_ns) / 1e9);
        else
            snprintf(text, sizeof text, "no profile of this machine%s: %s", what, why.msg);
        if (t->comm->rank == 0)
            run_log_note(&t->options->log, text, stderr);
        if (rc != OK)
            return OK;
        train_plan_clear(plan);
        rc = begin_plan(t, plan, err);
    }
    return rc;
}

/* Open what needs no other rank: the data, the backend, and the weights to begin with. */
static enum status open_own(struct trainer *t, const char *weights, bool resume, struct err *err)
{
    const struct backend_spec spec = {.device = device_kind_names[t->job->train.device],
                                      .dtype = t->job->train.dtype,
                                      .threads = t->cores->threads,
                                      .local_rank = t->comm->local_rank};
    enum status rc = OK;
    if (t->job->train.transport == TRANSPORT_NCCL)
        nccl_environment();
    t->times =
        (struct start_times){.ended_ns = t->options->ended_ns, .ready_ns = t->options->ready_ns};
    if (t->options->samples)
        t->dataset = *t->options->samples;
    else
        rc = dataset_open_for(t->job, weights, &t->dataset, err);
    t->times.data_ns = clock_wall_ns();
    if (rc == OK && t->job->data.length > 0 && !t->dataset.packed)
        rc = err_set(err, ERR_INPUT,
                     "data.length: samples of data.kind %s are no rows of documents, only those of "
                     "JSON lines are",
                     data_kind_names[t->job->data.kind]);
    if (rc != OK)
        return rc;
    probe_open(t);
    if (!(t->backend = backend_new(&spec, err)))
        return err ? err->status : ERR_NOMEM;
    return weights ? check_weights(t, weights, resume, err) : OK;
}

/* Open what only training needs, evaluation does not: the run's folder, NCCL, room for elastic
 * moves. Collective. */
static enum status open_training(struct trainer *t, struct err *err)
{
    const struct comm *comm = t->comm;
    enum status rc = comm_agree(comm, out_folder(t, err), err);
    if (t->job->train.transport == TRANSPORT_NCCL)
        THEN(nccl_open(comm, t->backend, folders_make(t->out, true, NULL) == OK ? t->out : NULL,
                       cuda_load_num_devices(), &t->nccl, err));
    t->base.nccl = t->nccl;
    if (rc != OK || !turn_elastic(t->job))
        return rc;
    rc = parcel_room_new(t->backend, PARCEL_BYTES, NUM_PARCELS, &t->base.parcel_room, err);
    return comm_agree(comm, rc, err);
}

enum status trainer_set_up(struct trainer *t, const char *weights, bool resume, struct err *err)
{
    const struct comm *comm = t->comm;
    struct train_plan plan = {0};
    struct progress was;
    int num_frozen = 0;
    enum status rc = refuse_unsupported(t->job, err);
    THEN(open_own(t, weights, resume, err));
    rc = comm_agree(comm, rc, err);
    t->base = (struct deployment_base){.comm = comm,
                                       .job = t->job,
                                       .backend = t->backend,
                                       .dataset = &t->dataset,
                                       .lagged = t->probe.on};
    share_workers(t);
    THEN(give_choices(t, err));
    if (t->trains)
        THEN(open_training(t, err));
    THEN(elastic_open(t, resume ? weights : NULL, &num_frozen, err));
    if (rc == OK && t->trains)
        rc = open_cache(t, err);
    t->progress.num_frozen_layers = num_frozen;
    was = t->progress;
    THEN(begin_plan(t, &plan, err));
    if (rc == OK && !resume)
        rc = measure_first(t, &plan, err);
    THEN(data_check(t, err));
    THEN(deployment_place(&t->base, &plan, &t->deployment, err));
    THEN(comm_agree(comm, deployment_batches(&t->base, was.position, &t->deployment, err), err));
    THEN(comm_agree(comm, deployment_stages(&t->base, &t->deployment, err), err));
    THEN(comm_agree(comm, first_weights(t, err), err));
    const int64_t load_ns = clock_now_ns();
    if (rc == OK && weights)
        rc = comm_agree(comm, load_weights(t, weights, resume, err), err);
    t->times.load_ns = clock_now_ns() - load_ns;
    t->progress = was;
    THEN(comm_agree(comm, deployment_runtime(&t->base, &t->deployment, err), err));
    t->times.built_ns = clock_wall_ns();
    train_plan_clear(&plan);
    return rc;
}

_Noreturn void trainer_fail_alone(struct trainer *t, const struct err *err)
{
    nccl_end(t->nccl);
    comm_fail(t->comm, err);
}

void trainer_clear(struct trainer *t)
{
    ahead_stop(t);
    checkpoint_leave(t->saving);
    checkpoint_leave(t->copies.write);
    nccl_end(t->nccl);
    deployment_clear(&t->deployment);
    cache_close(t->cache);
    elastic_clear(&t->elastic);
    probe_clear(&t->probe);
    slow_ranks_clear(&t->slow);
    nccl_close(t->nccl);
    parcel_room_free(t->base.parcel_room);
    backend_free(t->backend);
    if (!t->options->samples)
        dataset_clear(&t->dataset);
    free(t->out);
}
