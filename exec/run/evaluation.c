#include "exec/run/evaluation.h"

#include "exec/base/watch.h"
#include "exec/trainer/stop.h"
#include "exec/trainer/trainer.h"

static struct evaluation result_of(const struct loss_sums *total, const struct qa_score *qa,
                                   int64_t ns)
{
    const double count = total->count ? (double)total->count : 1;
    return (struct evaluation){.qa = *qa,
                               .loss = total->count ? total->loss / count : 0,
                               .accuracy = total->count ? (double)total->correct / count : 0,
                               .count = total->count,
                               .ns = ns};
}

static enum status write_events(struct trainer *t, const struct evaluation *evaluation,
                                struct err *err)
{
    const struct event_scalar scalars[] = {
        {"eval/loss",     evaluation->loss    },
        {"eval/accuracy", evaluation->accuracy}
    };
    return event_file_write(t->events, t->progress.step, scalars, 2, err);
}

enum status trainer_evaluate(struct trainer *t, struct evaluation *evaluation, struct err *err)
{
    int64_t start = comm_now_ns(t->comm);
    struct loss_sums total = {0};
    struct qa_eval spans = {.dataset = &t->dataset, .split = SPLIT_TEST};
    struct qa_score qa = {0};
    bool answers = t->dataset.kind == DATA_SQUAD, stopped = false;
    enum status rc = OK;
    watch_phase("evaluation");
    if (answers)
        runtime_on_eval(t->deployment.runtime, qa_eval_block, &spans);
    if (t->options->on_eval)
        runtime_on_eval(t->deployment.runtime, t->options->on_eval, t->options->on_eval_ctx);
    const int64_t steps = sampler_steps_per_epoch(&t->deployment.samplers[SPLIT_TEST]);
    for (int64_t s = 0; rc == OK && s < steps && !stopped; s++) {
        const struct batch *batch;
        struct loss_sums sums;
        rc = trainer_batch(t, t->deployment.loaders[SPLIT_TEST], 0, s, &batch, err);
        THEN(runtime_eval(t->deployment.runtime, batch, &sums, err));
        if (rc == OK) {
            total.loss += sums.loss;
            total.count += sums.count;
            total.correct += sums.correct;
        }
        if (rc == OK && s + 1 < steps)
            rc = stop_agreed(t->deployment.place.active, &stopped, err);
    }
    t->interrupted |= stopped;
    if (answers)
        runtime_on_eval(t->deployment.runtime, NULL, NULL);
    if (rc == OK && answers && !stopped)
        rc = qa_eval_score(&spans, t->deployment.place.active, &qa, err);
    qa_eval_clear(&spans);
    if (rc != OK)
        return rc;
    if (stopped)
        *evaluation = (struct evaluation){.stopped = true};
    else
        *evaluation = result_of(&total, &qa, comm_now_ns(t->comm) - start);
    return t->events && evaluation->count > 0 ? write_events(t, evaluation, err) : OK;
}
