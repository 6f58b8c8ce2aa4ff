#include "exec/run/trainer_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/base/watch.h"
#include "exec/run/trainer.h"
#include "partition/base/safe_text.h"
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
    return (struct planning){t->comm, t->cores, t->job, t->options->db, t->options->plan};
}

struct run_state trainer_ask(const struct trainer *t, int64_t epoch, int64_t turn)
{
    const struct plan *plan = &t->layout.plan.plan;
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
    const struct sampler *sampler = &t->layout.samplers[SPLIT_TRAIN];
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
    const enum status rc = comm_max_i64(t->layout.place.active, &failed, 1, err);
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
                           .tokens = !vocab                ? HF_NO_TOKENIZER
                                     : path_is_json(vocab) ? HF_BPE
                                                           : HF_WORDPIECE,
                           .lower_case = from->lower_case,
                           .class_names = from->class_names,
                           .num_names = from->classes};
    memcpy(data.mean, from->pixel_mean, sizeof data.mean);
    memcpy(data.std, from->pixel_std, sizeof data.std);
    return data;
}

enum status trainer_save(struct trainer *t, struct err *err)
{
    watch_phase("checkpoint");
    const struct stage_list list = layout_list(&t->base, &t->layout);
    const struct checkpoint_state state = {
        .job = t->job,
        .list = &list,
        .write = t->layout.place.replica == 0,
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
        .eval_loss = t->evaluated_step == t->progress.step ? t->evaluated.loss : NAN};
    char *dir = NULL;
    enum status rc;
    if (t->last_saved == t->progress.step)
        return OK;
    if (t->files)
        run_files_flush(t->files);
    if (asprintf(&dir, "%s/checkpoint-%lld", t->out, (long long)t->progress.step) < 0)
        return err_nomem(err);
    rc = checkpoint_save(t->comm, dir, &state, err);
    if (rc == OK)
        t->last_saved = t->progress.step;
    else if (rc == ERR_SYSTEM && t->last_saved >= 0)
        err_hint(err,
                 "checkpoint-%lld is whole; with room to write, continue with: elapse train "
                 "--resume %s",
                 (long long)t->last_saved, SHELL_PATH(t->out));
    if (rc == OK && t->comm->rank == 0)
        checkpoint_prune(t->out, state.run_id, t->job->train.keep_checkpoints);
    free(dir);
    return rc;
}
