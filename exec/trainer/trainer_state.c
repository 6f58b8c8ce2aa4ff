#include "exec/trainer/trainer_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/base/watch.h"
#include "exec/trainer/trainer.h"
#include "partition/base/safe_text.h"
#include "partition/base/units.h"
#include "profiles/json/fields.h"

int64_t trainer_turn(const struct trainer *t)
{
    return turn_at(t->job, t->progress.step, t->progress.epoch);
}

bool trainer_turn_due(const struct trainer *t)
{
    return turn_begins(t->job, t->progress.step, t->progress.position);
}

struct planning trainer_planning(const struct trainer *t)
{
    return (struct planning){
        t->comm,          t->cores,
        t->job,           t->options->db,
        t->options->plan, t->job->train.on_slow == ON_SLOW_REPLAN ? t->slow.speeds : NULL};
}

struct run_state trainer_ask(const struct trainer *t, int64_t epoch, int64_t turn)
{
    const struct plan *plan = &t->deployment.plan.plan;
    return (struct run_state){.epoch = epoch,
                              .turn = turn,
                              .num_frozen_layers = t->progress.num_frozen_layers,
                              .cache_room = t->cache ? cache_room(t->cache) : 0,
                              .cache_whole = t->cache && cache_whole(t->cache),
                              .num_samples = t->dataset.num_samples[SPLIT_TRAIN],
                              .old = plan->num_ranks > 0 ? plan : NULL};
}

int64_t trainer_whole_steps(const struct trainer *t)
{
    const struct sampler *sampler = &t->deployment.samplers[SPLIT_TRAIN];
    const int64_t global = sampler->spec.batch * sampler->spec.num_replicas;
    const int64_t epochs = t->job->train.epochs - t->progress.epoch, most = t->job->train.max_steps;
    const int64_t rest = sampler->spec.num_samples - t->progress.position; /* of this epoch */
    int64_t steps = t->progress.step;
    if (epochs > 0 && global > 0)
        steps +=
            (epochs - 1) * sampler_steps_per_whole_epoch(sampler) + (rest + global - 1) / global;
    return most > 0 && most < steps ? most : steps;
}

struct run_history trainer_history(const struct trainer *t)
{
    struct run_history history = t->history;
    history.first_loss = t->first_loss;
    history.train_ns += t->train_ns;
    return history;
}

enum status trainer_batch(struct trainer *t, struct loader *loader, int64_t epoch, int64_t step,
                          const struct batch **batch, struct err *err)
{
    struct err why = {0};
    const enum status mine = batch ? loader_get(loader, epoch, step, batch, &why)
                                   : loader_ready(loader, epoch, step, &why);
    int64_t failed = mine != OK;
    const enum status rc = comm_max_i64(t->deployment.place.active, &failed, 1, err);
    if (rc != OK || !failed)
        return rc;
    if (mine != OK)
        err_copy(&t->fault, &why);
    t->unreadable = t->interrupted = true;
    return err_set(err, ERR_SYSTEM, "samples cannot be read");
}

static struct hf_data describe_data(const struct trainer *t)
{
    const struct dataset *from = &t->dataset;
    const char *vocab = t->job->data.vocab;
    struct hf_data data = {.channels = from->pixel_std[0] > 0 ? from->channels : 0,
                           .tokens = !vocab                               ? HF_NO_TOKENIZER
                                     : path_ends(vocab, "tokenizer.json") ? HF_FILE
                                     : path_is_json(vocab)                ? HF_BPE
                                                                          : HF_WORDPIECE,
                           .lower_case = from->lower_case,
                           .class_names = from->class_names,
                           .num_names = from->classes,
                           .preprocessor = from->rules ? from->rules->text : NULL};
    memcpy(data.mean, from->pixel_mean, sizeof data.mean);
    memcpy(data.std, from->pixel_std, sizeof data.std);
    return data;
}

/* The checkpoint of step saving_step is whole: rank 0 counts it, and says once what it took. */
static void count_save(struct trainer *t, const struct checkpoint_cost *cost)
{
    struct saves *saves = &t->saves;
    char text[200], wrote[32], stall[32], bytes[32];
    saves->write_ns += cost->write_ns;
    saves->stall_ns += t->saving_stall_ns;
    if (t->saving_stall_ns > saves->longest_stall_ns)
        saves->longest_stall_ns = t->saving_stall_ns;
    if (cost->copy_bytes > saves->copy_bytes)
        saves->copy_bytes = cost->copy_bytes;
    if (saves->num++ > 0 || cost->copy_bytes == 0)
        return;
    snprintf(text, sizeof text,
             "checkpoint-%lld: on disk after %s, the steps waited %s; its copy takes up to %s a "
             "rank",
             (long long)t->saving_step, format_ns(cost->write_ns, wrote, sizeof wrote),
             format_ns(t->saving_stall_ns, stall, sizeof stall),
             format_bytes(cost->copy_bytes, bytes, sizeof bytes));
    run_log_note(&t->log, text, stderr);
}

void trainer_hint_saved(const struct trainer *t, enum status rc, struct err *err)
{
    if (rc == ERR_SYSTEM && t->last_saved >= 0)
        err_hint(err,
                 "checkpoint-%lld is whole; with room to write, continue with: elapse train "
                 "--resume %s",
                 (long long)t->last_saved, SHELL_PATH(t->out));
}

enum status trainer_saved(struct trainer *t, struct err *err)
{
    struct checkpoint_cost cost = {0};
    const int64_t begin = comm_now_ns(t->comm);
    if (!t->saving)
        return OK;
    watch_phase("checkpoint");
    enum status rc = checkpoint_end(t->comm, t->saving, &cost, err);
    t->saving = NULL;
    if (rc == OK)
        t->last_saved = t->saving_step;
    else
        trainer_hint_saved(t, rc, err);
    if (rc == OK && t->comm->rank == 0) {
        checkpoint_prune(t->out, run_files_id(t->files), t->job->train.keep_checkpoints);
        const int64_t waited = comm_now_ns(t->comm) - begin;
        t->saving_stall_ns += waited;
        run_files_stall(t->files, waited);
        count_save(t, &cost);
    }
    return rc;
}

static struct checkpoint_state describe_state(const struct trainer *t,
                                              const struct stage_list *list)
{
    return (struct checkpoint_state){
        .job = t->job,
        .list = list,
        .write = t->deployment.place.replica == 0,
        .run_id = t->files ? run_files_id(t->files) : "",
        .progress = &t->progress,
        .norms = &t->elastic.norms,
        .kept = &t->elastic.kept,
        .evidence = t->probe.on ? &t->probe.history : NULL,
        .rate = t->probe.open ? t->probe.rate : 0,
        .steps = t->probe.open ? t->probe.steps : 0,
        .lagged = t->probe.open,
        .history = trainer_history(t),
        .data = describe_data(t),
        .db = t->options->db,
        .eval_loss = t->evaluated_step == t->progress.step ? t->evaluated.loss : NAN};
}

enum status trainer_copy(struct trainer *t, struct err *err)
{
    const struct stage_list list = deployment_list(&t->base, &t->deployment);
    const struct checkpoint_state state = describe_state(t, &list);
    const bool on = t->copies.on;
    if (t->files)
        run_files_flush(t->files);
    const int64_t waited = t->copies.stall_ns;
    const enum status rc = memory_copies_make(t->comm, &state, &t->copies, err);
    if (t->files)
        run_files_stall(t->files, t->copies.stall_ns - waited);
    if (on && !t->copies.on && t->comm->rank == 0)
        run_log_note(&t->log, t->copies.note, stderr);
    return rc;
}

enum status trainer_save(struct trainer *t, bool beside, struct err *err)
{
    enum status rc = trainer_saved(t, err);
    if (rc != OK || t->last_saved == t->progress.step)
        return rc;
    watch_phase("checkpoint");
    const int64_t begin = comm_now_ns(t->comm);
    const struct stage_list list = deployment_list(&t->base, &t->deployment);
    const struct checkpoint_state state = describe_state(t, &list);
    char *dir = NULL;
    if (t->files)
        run_files_flush(t->files);
    if (asprintf(&dir, "%s/checkpoint-%lld", t->out, (long long)t->progress.step) < 0)
        return err_nomem(err);
    rc = checkpoint_begin(t->comm, dir, &state, beside, &t->saving, err);
    free(dir);
    trainer_hint_saved(t, rc, err);
    t->saving_step = t->progress.step;
    t->saving_stall_ns = comm_now_ns(t->comm) - begin;
    if (t->files)
        run_files_stall(t->files, t->saving_stall_ns);
    return rc == OK && !beside ? trainer_saved(t, err) : rc;
}
