#include "exec/trainer.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "exec/checkpoint.h"
#include "exec/data/loader.h"
#include "exec/hf_names.h"
#include "exec/run_files.h"
#include "exec/runtime.h"

enum { PROGRESS_NS = 200000000 };

static volatile sig_atomic_t stop_wanted;

/* Everything a run holds on one rank. */
struct trainer {
    const struct comm *comm;
    const struct cores *cores;
    const struct job *job;
    const struct trainer_options *options;
    struct train_plan plan;
    struct dataset dataset;
    struct sampler samplers[SPLIT_COUNT];
    struct loader *loaders[SPLIT_COUNT];
    struct backend *backend;
    struct stage **stages;
    struct comm_group *pipeline, *replicas;
    struct runtime *runtime;
    int replica, rank;
    struct progress progress;
    int64_t steps_per_epoch, total_steps;
    int64_t last_saved;      /* step of the last checkpoint of this call; -1 */
    struct run_files *files; /* rank 0 */
    int64_t train_ns, shown_ns;
    double first_loss, last_loss;
    bool interrupted;
    bool fresh_head;         /* a weights file may lack the head (--init) */
    struct hf_import import; /* what it held */
};

/* The outcome of an evaluation pass. */
struct evaluation {
    double loss, accuracy; /* per target */
    int64_t count, ns;
};

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

static struct stage_list stage_list(const struct trainer *t)
{
    return (struct stage_list){
        .stages = t->stages, .num_stages = t->plan.plan.num_stages, .backend = t->backend};
}

static bool has_stage(const struct trainer *t, int stage)
{
    return t->plan.full->rank_of_stage[stage] == t->rank;
}

static enum status open_data(struct trainer *t, struct err *err)
{
    const struct plan *plan = &t->plan.plan;
    enum status rc = dataset_open(t->job, &t->dataset, err);
    if (rc == OK && plan->batch > t->dataset.num_samples[SPLIT_TRAIN] / plan->num_replicas)
        rc = err_set(err, ERR_INPUT,
                     "%s: train.batch of %lld samples times %d replicas exceeds the %lld training "
                     "samples",
                     t->job->path ? t->job->path : t->job->name, (long long)plan->batch,
                     plan->num_replicas, (long long)t->dataset.num_samples[SPLIT_TRAIN]);
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++) {
        struct loader_spec spec = {.dataset = &t->dataset,
                                   .sampler = &t->samplers[split],
                                   .split = split,
                                   .replica = t->replica,
                                   .want_inputs = has_stage(t, 0),
                                   .want_labels = has_stage(t, plan->num_stages - 1),
                                   .prefetch = split == SPLIT_TRAIN};
        rc = sampler_init(&t->samplers[split], t->dataset.num_samples[split], t->job->train.seed,
                          split == SPLIT_TRAIN, plan->num_replicas, plan->batch,
                          plan->microbatches.count, err);
        if (rc == OK)
            rc = loader_new(&spec, &t->loaders[split], err);
    }
    return rc;
}

static enum status make_stages(struct trainer *t, struct err *err)
{
    const struct plan *plan = &t->plan.plan;
    enum status rc = OK;
    t->backend = backend_cpu_new(t->cores->threads, err);
    if (!t->backend)
        return err ? err->status : ERR_NOMEM;
    t->stages = calloc((size_t)plan->num_stages, sizeof *t->stages);
    if (!t->stages)
        return err_nomem(err);
    for (int s = 0; rc == OK && s < plan->num_stages; s++) {
        struct stage_spec spec = {.model = &t->job->model,
                                  .job = t->job,
                                  .backend = t->backend,
                                  .first_item = plan->first_item[s],
                                  .end_item = plan->first_item[s + 1],
                                  .first_items = plan->first_item,
                                  .num_stages = plan->num_stages,
                                  .max_samples = plan->microbatches.size,
                                  .max_live = runtime_num_slots(t->plan.full, s),
                                  .recompute = plan->recompute != RECOMPUTE_NEVER};
        if (!has_stage(t, s))
            continue;
        rc = stage_new(&spec, &t->stages[s], err);
        if (rc == OK)
            rc = stage_init_weights(t->stages[s], t->job->train.seed, err);
    }
    return rc;
}

static enum status refuse_unsupported(const struct job *job, struct err *err)
{
    const char *name = job->path ? job->path : job->name;
    if (job->model.family == FAMILY_UNIFORM || job->model.family == FAMILY_EXPLICIT)
        return err_set(err, ERR_INFEASIBLE,
                       "%s: model '%s' is for planning and simulation, it has no layers to train",
                       name, job->model.name);
    if (job->train.dtype != DTYPE_FP32)
        return err_set(err, ERR_INFEASIBLE, "%s: train.dtype must be fp32 on the cpu backend",
                       name);
    if (job->freeze.policy != FREEZE_NONE)
        return err_set(err, ERR_INFEASIBLE,
                       "%s: freeze.policy must be none, this executor trains every layer", name);
    if (job->train.reduction == REDUCTION_CANONICAL)
        return err_set(err, ERR_INFEASIBLE, "%s: train.reduction must be fast in this executor",
                       name);
    return OK;
}

static enum status load_weights(struct trainer *t, const char *path, bool state, struct err *err)
{
    struct stage_list list = stage_list(t);
    struct stat st;
    struct progress ignored;
    enum status rc;
    char *dir = NULL;
    if (stat(path, &st) != 0)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return hf_load_file(path, &t->job->model, &list, t->fresh_head, &t->import, err);
    rc = checkpoint_find(path, &dir, err);
    if (rc == OK)
        rc = checkpoint_peek(dir, t->job, state ? &t->progress : &ignored, err);
    if (rc == OK)
        rc = checkpoint_load(dir, &list, state, err);
    free(dir);
    return rc;
}

/* All that can go wrong before the first file is made; agreed on by all ranks at each turn. */
static enum status set_up(struct trainer *t, const char *db, const char *weights, bool resume,
                          struct err *err)
{
    const struct comm *comm = t->comm;
    struct runtime_spec spec;
    enum status rc = comm_agree(comm, refuse_unsupported(t->job, err), err);
    if (rc == OK)
        rc = train_plan_make(comm, t->cores, t->job, db, &t->plan, err);
    if (rc == OK)
        rc = runtime_groups(comm, &t->plan.plan, &t->replica, &t->rank, &t->pipeline, &t->replicas,
                            err);
    if (rc == OK)
        rc = comm_agree(comm, open_data(t, err), err);
    if (rc == OK)
        rc = comm_agree(comm, make_stages(t, err), err);
    if (rc == OK && weights)
        rc = comm_agree(comm, load_weights(t, weights, resume, err), err);
    if (rc != OK)
        return rc;
    spec = (struct runtime_spec){.model = &t->job->model,
                                 .job = t->job,
                                 .plan = &t->plan.plan,
                                 .workload = t->plan.workload,
                                 .full = t->plan.full,
                                 .comm = comm,
                                 .pipeline = t->pipeline,
                                 .replicas = t->replicas,
                                 .backend = t->backend,
                                 .stages = t->stages,
                                 .replica = t->replica,
                                 .rank = t->rank};
    return comm_agree(comm, runtime_new(&spec, &t->runtime, err), err);
}

static void trainer_clear(struct trainer *t)
{
    runtime_free(t->runtime);
    for (int split = 0; split < SPLIT_COUNT; split++)
        loader_free(t->loaders[split]);
    for (int s = 0; t->stages && s < t->plan.plan.num_stages; s++)
        stage_free(t->stages[s]);
    free(t->stages);
    backend_free(t->backend);
    dataset_clear(&t->dataset);
    comm_group_free(t->pipeline);
    comm_group_free(t->replicas);
    train_plan_clear(&t->plan);
}

/* --- evaluation ------------------------------------------------------------------------------- */

static enum status evaluate(struct trainer *t, struct evaluation *evaluation, struct err *err)
{
    int64_t start = comm_now_ns(t->comm);
    struct loss_sums total = {0};
    enum status rc = OK;
    for (int64_t s = 0; rc == OK && s < sampler_steps_per_epoch(&t->samplers[SPLIT_TEST]); s++) {
        const struct batch *batch;
        struct loss_sums sums;
        rc = loader_get(t->loaders[SPLIT_TEST], 0, s, &batch, err);
        if (rc == OK)
            rc = runtime_eval(t->runtime, batch, &sums, err);
        if (rc == OK) {
            total.loss += sums.loss;
            total.count += sums.count;
            total.correct += sums.correct;
        }
    }
    if (rc == OK)
        *evaluation = (struct evaluation){
            .loss = total.count ? total.loss / (double)total.count : 0,
            .accuracy = total.count ? (double)total.correct / (double)total.count : 0,
            .count = total.count,
            .ns = comm_now_ns(t->comm) - start};
    return rc;
}

/* --- the run ---------------------------------------------------------------------------------- */

static enum status save(struct trainer *t, const char *out, struct err *err)
{
    struct stage_list list = stage_list(t);
    char *dir = NULL;
    enum status rc;
    if (t->last_saved == t->progress.step)
        return OK;
    if (asprintf(&dir, "%s/checkpoint-%lld", out, (long long)t->progress.step) < 0)
        return err_nomem(err);
    rc = checkpoint_save(t->comm, dir, t->job, &list, t->replica == 0, &t->progress, err);
    if (rc == OK)
        t->last_saved = t->progress.step;
    free(dir);
    return rc;
}

/* Times of every op of this step, from all ranks to rank 0's record. */
static enum status record_step_ops(struct trainer *t, const struct step_result *result,
                                   struct err *err)
{
    const struct schedule *full = t->plan.full;
    int n = t->plan.plan.num_ranks;
    void *all = NULL;
    int64_t *sizes = NULL;
    enum status rc = comm_gather(t->comm->all, runtime_times(t->runtime),
                                 full->ranks[t->rank].num_ops * (int64_t)sizeof(struct op_time),
                                 &all, &sizes, err);
    if (rc == OK && t->comm->rank == 0) {
        const char *at = all;
        for (int r = 0; rc == OK && r < t->comm->size; r++) {
            int place = 0;
            while (t->plan.plan.device[place] != r)
                place++;
            rc = run_files_ops(t->files, t->progress.step, place / n, place % n,
                               &full->ranks[place % n], (const struct op_time *)at,
                               result->start_ns, err);
            at += sizes[r];
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

static enum status one_step(struct trainer *t, int64_t step_in_epoch, bool trace,
                            struct step_result *result, struct err *err)
{
    const struct plan *plan = &t->plan.plan;
    const struct batch *batch;
    double lr = trainer_lr(t->job, t->progress.step, t->total_steps);
    enum status rc =
        loader_get(t->loaders[SPLIT_TRAIN], t->progress.epoch, step_in_epoch, &batch, err);
    if (rc == OK)
        rc = runtime_step(t->runtime, batch, t->progress.step, lr, stop_wanted, result, err);
    if (rc == ERR_INFEASIBLE && err) { /* the loss or a gradient is not finite */
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
    t->progress.position = (step_in_epoch + 1) * plan->batch * plan->num_replicas;
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
                                               .pipeline_length = plan->num_ranks,
                                               .replicas = plan->num_replicas},
                            err);
    if (rc == OK && trace)
        rc = record_step_ops(t, result, err);
    show_progress(t, result, batch->num_samples);
    return rc;
}

/* Steps until the job, the call or a signal ends it. */
static enum status train(struct trainer *t, const char *out, struct err *err)
{
    const struct job *job = t->job;
    int64_t global = t->plan.plan.batch * t->plan.plan.num_replicas;
    int64_t every = job->train.checkpoint_every_steps, first_step = t->progress.step;
    int64_t last_step = t->total_steps;
    enum status rc = OK;
    if (t->options->max_steps > 0 && t->options->max_steps < last_step - first_step)
        last_step = first_step + t->options->max_steps;
    while (rc == OK && t->progress.step < last_step && !t->interrupted) {
        int64_t begin = comm_now_ns(t->comm), steps = 0, step_sum = 0;
        double loss_sum = 0;
        struct epoch_row row = {.epoch = t->progress.epoch,
                                .pipeline_length = t->plan.plan.num_ranks,
                                .replicas = t->plan.plan.num_replicas,
                                .microbatches = t->plan.plan.microbatches.count,
                                .bubble_fraction = NAN,
                                .eval_loss = NAN,
                                .eval_accuracy = NAN};
        for (int64_t s = t->progress.position / global;
             rc == OK && s < t->steps_per_epoch && t->progress.step < last_step && !t->interrupted;
             s++) {
            struct step_result result;
            /* The first two steps of a call touch memory for the first time; not typical. */
            int64_t done = t->progress.step - first_step;
            bool trace = (done >= 2 && done < 2 + t->options->trace_steps) ||
                         t->progress.step + 1 == last_step;
            rc = one_step(t, s, trace, &result, err);
            if (rc != OK)
                break;
            steps++;
            step_sum += result.step_ns;
            loss_sum += result.loss;
            t->interrupted = result.vote > 0;
            if (every > 0 && t->progress.step % every == 0 && t->options->evaluate) {
                t->train_ns += comm_now_ns(t->comm) - begin;
                rc = save(t, out, err);
                begin = comm_now_ns(t->comm);
            }
        }
        t->train_ns += comm_now_ns(t->comm) - begin;
        if (rc != OK)
            break;
        bool whole = t->progress.position >= t->samplers[SPLIT_TRAIN].num_samples;
        int64_t eval_every = job->train.eval_every_epochs;
        if (whole) {
            t->progress.epoch++;
            t->progress.position = 0;
            if (t->options->evaluate && eval_every > 0 && t->progress.epoch % eval_every == 0 &&
                t->progress.step < last_step) {
                struct evaluation evaluation;
                rc = evaluate(t, &evaluation, err);
                row.eval_loss = evaluation.loss;
                row.eval_accuracy = evaluation.accuracy;
            }
        }
        row.steps = steps;
        row.step_ns = steps ? step_sum / steps : 0;
        row.train_loss = steps ? loss_sum / (double)steps : NAN;
        row.samples_per_s = step_sum ? (double)(steps * global) * 1e9 / (double)step_sum : 0;
        if (rc == OK && t->comm->rank == 0)
            rc = run_files_epoch(t->files, &row, err);
    }
    if (t->comm->rank == 0 && t->options->progress)
        fputc('\n', stderr);
    return rc;
}

/* Language models: e to the loss a token. */
static void add_perplexity(struct json *root, const struct job *job,
                           const struct evaluation *evaluation)
{
    if (job->model.task == TASK_CAUSAL_LM || job->model.task == TASK_MLM)
        json_add_double(root, "perplexity", evaluation->count ? exp(evaluation->loss) : NAN);
}

/* What each rank holds. Everything is allocated before the first step, so this is the peak. */
static enum status record_bytes(struct trainer *t, struct err *err)
{
    const struct plan *plan = &t->plan.plan;
    int64_t bytes = runtime_bytes(t->runtime), *sizes = NULL, *predicted = NULL;
    void *all = NULL;
    enum status rc;
    for (int s = 0; s < plan->num_stages; s++)
        bytes += t->stages[s] ? stage_bytes(t->stages[s]) : 0;
    rc = comm_gather(t->comm->all, &bytes, sizeof bytes, &all, &sizes, err);
    if (rc == OK && t->comm->rank == 0) {
        predicted = calloc((size_t)t->comm->size, sizeof *predicted);
        for (int i = 0; predicted && plan->memory_bytes && i < t->comm->size; i++)
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

static struct json *make_summary(const struct trainer *t, const char *out,
                                 const struct evaluation *before, const struct evaluation *after,
                                 const char *digest, int64_t wall_ns)
{
    struct json *root = json_object_new(), *plan;
    json_add_int(root, "schema", 1);
    json_add_string(root, "version", ELAPSE_VERSION);
    json_add_string(root, "command", "train");
    json_add_string(root, "name", t->job->name);
    json_add_string(root, "model", t->job->model.name);
    json_add_string(root, "out", out);
    json_add_int(root, "ranks", t->comm->size);
    json_add_int(root, "threads_per_rank", t->cores->threads);
    json_add_string(root, "cores_of_rank_0", t->cores->list);
    json_add_int(root, "cores_at_hand", t->cores->at_hand);
    json_add_string(root, "backend", t->backend->name);
    if (t->options->db)
        json_add_string(root, "db", t->options->db);
    else
        json_add_null(root, "db");
    json_add_string(root, "cost_note", t->plan.cost_note);
    json_add_string(root, "init_note", t->import.note);
    json_add_int(root, "steps", t->progress.step);
    json_add_int(root, "total_steps", t->total_steps);
    json_add_int(root, "epochs", t->progress.epoch);
    json_add_bool(root, "interrupted", t->interrupted);
    json_add_int(root, "train_samples", t->dataset.num_samples[SPLIT_TRAIN]);
    json_add_int(root, "test_samples", t->dataset.num_samples[SPLIT_TEST]);
    json_add_double(root, "initial_loss", t->first_loss);
    json_add_double(root, "final_loss", t->last_loss);
    json_add_double(root, "initial_accuracy", before->count ? before->accuracy : NAN);
    json_add_double(root, "eval_accuracy", after->count ? after->accuracy : NAN);
    json_add_double(root, "eval_loss", after->count ? after->loss : NAN);
    add_perplexity(root, t->job, after);
    json_add_int(root, "train_ns", t->train_ns);
    json_add_int(root, "eval_ns", before->ns + after->ns);
    json_add_int(root, "wall_ns", wall_ns);
    json_add_array(root, "transitions");
    json_add_int(root, "cache_hits", 0);
    json_add_string(root, "weights_sha256", digest);
    plan = json_add_object(root, "plan");
    train_plan_json(&t->plan, plan);
    return root;
}

/* Where a resumed run goes on: in the run folder that its checkpoint lies in. */
static enum status out_folder(const struct trainer *t, char **out, struct err *err)
{
    const struct trainer_options *options = t->options;
    char *checkpoint = NULL;
    enum status rc = OK;
    if (options->out) {
        *out = strdup(options->out);
    } else if (options->resume) {
        rc = checkpoint_find(options->resume, &checkpoint, err);
        if (rc != OK)
            return rc;
        char *slash = strrchr(checkpoint, '/');
        if (slash && slash > checkpoint)
            *slash = '\0';
        *out = slash ? checkpoint : strdup(".");
        if (slash)
            checkpoint = NULL;
    } else if (asprintf(out, "runs/%s", t->job->name) < 0) {
        *out = NULL;
    }
    free(checkpoint);
    return *out ? OK : err_nomem(err);
}

static enum status check_resume(struct trainer *t, struct err *err)
{
    int64_t global = t->plan.plan.batch * t->plan.plan.num_replicas;
    if (t->progress.position % global != 0 &&
        t->progress.position < t->samplers[SPLIT_TRAIN].num_samples)
        return err_set(err, ERR_INPUT,
                       "cannot resume at sample %lld of epoch %lld: not a multiple of the global "
                       "batch %lld",
                       (long long)t->progress.position, (long long)t->progress.epoch,
                       (long long)global);
    if (t->progress.position >= t->samplers[SPLIT_TRAIN].num_samples) {
        t->progress.epoch++;
        t->progress.position = 0;
    }
    return OK;
}

enum status trainer_run(const struct comm *comm, const struct cores *cores, const struct job *job,
                        const struct trainer_options *options, struct json **summary, bool *alone,
                        struct err *err)
{
    struct trainer t = {.comm = comm,
                        .cores = cores,
                        .job = job,
                        .options = options,
                        .fresh_head = true,
                        .last_saved = -1,
                        .first_loss = NAN,
                        .last_loss = NAN};
    struct evaluation before = {0}, after = {0};
    int64_t start = comm_now_ns(comm);
    const char *weights = options->resume ? options->resume : options->init;
    char *out = NULL, digest[65] = "";
    enum status rc;
    *alone = false;
    rc = set_up(&t, options->db, weights, options->resume != NULL, err);
    if (rc == OK && options->resume)
        rc = check_resume(&t, err);
    if (rc != OK)
        goto out;
    t.steps_per_epoch = sampler_steps_per_epoch(&t.samplers[SPLIT_TRAIN]);
    t.total_steps = t.steps_per_epoch * job->train.epochs;
    if (job->train.max_steps > 0 && job->train.max_steps < t.total_steps)
        t.total_steps = job->train.max_steps;
    if (options->resume)
        t.last_saved = t.progress.step;
    rc = comm_agree(comm, out_folder(&t, &out, err), err);
    if (rc == OK && comm->rank == 0)
        rc = run_files_open(out, options->resume != NULL, &t.progress, job, comm->size,
                            t.plan.cost_label, &t.files, err);
    rc = comm_agree(comm, rc, err);
    if (rc != OK)
        goto out;
    /* From here on an error may be one rank's own. */
    *alone = true;
    if (options->evaluate)
        rc = evaluate(&t, &before, err);
    if (rc == OK)
        rc = train(&t, out, err);
    if (rc == OK)
        rc = record_bytes(&t, err);
    if (rc == ERR_INFEASIBLE)
        *alone = false; /* a bad loss or gradient, seen by all */
    if (rc == OK && (options->evaluate || t.interrupted))
        rc = save(&t, out, err);
    if (rc == OK && options->evaluate && !t.interrupted)
        rc = evaluate(&t, &after, err);
    if (rc == OK && t.replica == 0) {
        struct stage_list list = stage_list(&t);
        rc = checkpoint_digest(t.pipeline, &list, digest, err);
    }
    if (rc == OK && comm->rank == 0) {
        struct json *got =
            make_summary(&t, out, &before, &after, digest, comm_now_ns(comm) - start);
        rc = run_files_finish(t.files, got, t.train_ns, err);
        if (rc == OK)
            *summary = got;
        else
            json_free(got);
    }
out:
    run_files_free(t.files);
    trainer_clear(&t);
    free(out);
    return rc;
}

enum status trainer_eval(const struct comm *comm, const struct cores *cores, const struct job *job,
                         const char *checkpoint, const char *db, struct json **summary, bool *alone,
                         struct err *err)
{
    static const struct trainer_options none = {0};
    struct trainer t = {.comm = comm, .cores = cores, .job = job, .options = &none};
    struct evaluation got;
    enum status rc;
    *alone = false;
    rc = set_up(&t, db, checkpoint, false, err);
    if (rc == OK) {
        *alone = true;
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
        add_perplexity(root, job, &got);
        json_add_int(root, "eval_ns", got.ns);
        *summary = root;
    }
    trainer_clear(&t);
    return rc;
}
