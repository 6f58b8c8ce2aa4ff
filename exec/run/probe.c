/* exec/run/probe.c - the passes over the probe, and the row of evidence made of them. Read
 * probe_end() first, then measure_candidate() and measure(). */
#include "exec/run/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/run/learning_rate.h"
#include "profiles/evidence_json.h"

enum { DEFAULT_SAMPLES = 256, LEAST_BLOCKS = 8 };

/* The blocks of one pass. */
struct blocks {
    struct loss_sums *sums; /* owned */
    int num;
};

/* --- the run ---------------------------------------------------------------------------------- */

enum status probe_open(struct trainer *t, struct err *err)
{
    const struct job *job = t->job;
    const int64_t test = t->dataset.num_samples[SPLIT_TEST];
    struct probe *probe = &t->probe;
    int64_t num = job->freeze.probe;
    probe->on = t->trains && job_lags(job);
    if (!probe->on)
        return OK;
    if (num > test)
        return err_set(err, ERR_INPUT, "freeze.probe of %lld samples exceeds the %lld test samples",
                       (long long)num, (long long)test);
    if (num == 0)
        num = job->freeze.record
                  ? DEFAULT_SAMPLES
                  : freeze_safe_probe(0, job_run_samples(job, t->dataset.num_samples[SPLIT_TRAIN]),
                                      test);
    num = num < 2 ? 2 : num;
    probe->num = num < test ? num : test;
    return OK;
}

void probe_clear(struct probe *probe)
{
    free(probe->base);
    freeze_history_clear(&probe->history);
    *probe = (struct probe){0};
}

static void each_stage(struct trainer *t, void (*visit)(struct stage *stage, const int *range),
                       const int *range)
{
    for (int s = 0; t->layout.stages && s <= t->layout.plan.plan.num_stages; s++)
        if (t->layout.stages[s])
            visit(t->layout.stages[s], range);
}

static void take(struct stage *stage, const int *range)
{
    (void)range;
    stage_lag_take(stage);
}

static void swap(struct stage *stage, const int *range)
{
    stage_lag_swap(stage, range[0], range[1]);
}

void probe_begin(struct trainer *t)
{
    struct probe *probe = &t->probe;
    if (!probe->on || probe->open)
        return;
    probe->open = true;
    probe->rate = probe->steps = 0;
    each_stage(t, take, NULL);
}

void probe_cut(struct probe *probe)
{
    if (probe->open) /* else the base is of the present weights */
        probe->num_base = 0;
    probe->open = false;
}

void probe_count(struct trainer *t, double lr)
{
    t->probe.rate += lr;
    t->probe.steps++;
}

/* The steps that are left and the sum of their learning rates, in steps of the present plan. */
static void look_ahead(const struct trainer *t, struct freeze_evidence *row)
{
    const int64_t first = t->first_steps_per_epoch, all = t->dataset.num_samples[SPLIT_TRAIN];
    const int64_t now = sampler_steps_per_whole_epoch(&t->layout.samplers[SPLIT_TRAIN]);
    double sum = 0;
    int64_t step = t->progress.epoch * first +
                   (int64_t)((double)t->progress.position / (double)all * (double)first);
    const int64_t left = t->total_steps > step ? t->total_steps - step : 0;
    for (; step < t->total_steps; step++)
        sum += learning_rate(t->job, step, t->total_steps);
    row->rate_left = sum * (double)now / (double)first;
    row->steps_left = (double)left * (double)now / (double)first;
}

/* --- passes ----------------------------------------------------------------------------------- */

static enum status append(struct blocks *blocks, const struct runtime *runtime, struct err *err)
{
    const int most = runtime_num_blocks(runtime);
    struct loss_sums *grown =
        realloc(blocks->sums, ((size_t)blocks->num + (size_t)most) * sizeof *grown);
    if (!grown)
        return err_nomem(err);
    blocks->sums = grown;
    for (int i = 0; i < most; i++) {
        const struct loss_sums one = runtime_block(runtime, i);
        if (one.count > 0)
            grown[blocks->num++] = one;
    }
    return OK;
}

/* Run the probe with the weights of items [first, end) lagged. */
static enum status measure(struct trainer *t, struct loader *loader, const struct sampler *sampler,
                           const int range[2], struct blocks *blocks, struct err *err)
{
    const int64_t steps = sampler_steps_per_epoch(sampler);
    enum status rc = OK;
    each_stage(t, swap, range);
    for (int64_t s = 0; rc == OK && s < steps; s++) {
        const struct batch *batch;
        struct loss_sums sums;
        rc = loader_get(loader, 0, s, &batch, err);
        if (rc == OK)
            rc = runtime_eval(t->layout.runtime, batch, &sums, err);
        if (rc == OK)
            rc = append(blocks, t->layout.runtime, err);
        if (rc == OK)
            runtime_keep_prefix(t->layout.runtime, steps == 1);
    }
    each_stage(t, swap, range);
    t->probe.passes++;
    return rc;
}

static double mean(const struct blocks *blocks)
{
    double loss = 0, count = 0;
    for (int i = 0; i < blocks->num; i++) {
        loss += blocks->sums[i].loss;
        count += (double)blocks->sums[i].count;
    }
    return count > 0 ? loss / count : 0;
}

/* Sum over the passes of weight[k] * loss, in block b. */
static double block_loss(const struct blocks *const *passes, const double *weight, int num_passes,
                         int b)
{
    double loss = 0;
    for (int k = 0; k < num_passes; k++)
        loss += weight[k] * passes[k]->sums[b].loss;
    return loss;
}

/* Mean of weight[k] * loss over the passes, and its standard error over the blocks: that of a ratio
 * of sums. With one block nothing is known, so the error is as large as the value. */
static void combine(const struct blocks *const *passes, const double *weight, int num_passes,
                    double *value, double *se)
{
    const struct blocks *any = passes[0];
    double sum = 0, count = 0, squares = 0;
    for (int b = 0; b < any->num; b++) {
        sum += block_loss(passes, weight, num_passes, b);
        count += (double)any->sums[b].count;
    }
    *value = count > 0 ? sum / count : 0;
    for (int b = 0; b < any->num; b++) {
        const double rest =
            block_loss(passes, weight, num_passes, b) - *value * (double)any->sums[b].count;
        squares += rest * rest;
    }
    *se = any->num > 1 && count > 0 ? sqrt(squares * any->num / (any->num - 1)) / count
                                    : fabs(*value);
}

/* --- a row ------------------------------------------------------------------------------------ */

struct window {
    struct loader *loader;
    struct sampler sampler;
    struct blocks now, before; /* L(n,n), L(o,o) */
};

static bool same_blocks(const struct blocks *blocks, const struct loss_sums *base, int num)
{
    bool same = blocks->num == num;
    for (int i = 0; same && i < num; i++)
        same = blocks->sums[i].count == base[i].count;
    return same;
}

/* Whether the last window's end was measured, in blocks like those of `now`. Every rank of the plan
 * gets rank 0's answer and its base, because a rank that had no stage has an old base or none. */
static enum status share_base(struct trainer *t, const struct blocks *now, bool *known,
                              struct err *err)
{
    const struct comm_group *active = t->layout.place.active;
    const size_t bytes = (size_t)now->num * sizeof *now->sums;
    struct probe *probe = &t->probe;
    int answer = same_blocks(now, probe->base, probe->num_base);
    enum status rc = comm_bcast(active, &answer, sizeof answer, 0, err);
    *known = answer;
    if (rc != OK || !answer)
        return rc;
    if (t->comm->rank != 0) {
        struct loss_sums *grown = realloc(probe->base, bytes + 1);
        if (!grown)
            return err_nomem(err);
        probe->base = grown;
    }
    return comm_bcast(active, probe->base, (int64_t)bytes, 0, err);
}

/* L(n,n), and L(o,o): the last turn's end, or a pass with all weights lagged where that was not
 * measured, or in other blocks. */
static enum status measure_ends(struct trainer *t, struct window *window, struct err *err)
{
    const int none[2] = {0, 0}, all[2] = {0, t->job->model.num_items};
    struct probe *probe = &t->probe;
    bool known = false;
    enum status rc = measure(t, window->loader, &window->sampler, none, &window->now, err);
    if (rc == OK)
        rc = share_base(t, &window->now, &known, err);
    if (rc != OK)
        return rc;
    if (known) {
        window->before = (struct blocks){probe->base, window->now.num};
        probe->base = NULL;
    } else {
        rc = measure(t, window->loader, &window->sampler, all, &window->before, err);
    }
    free(probe->base);
    probe->num_base = 0;
    probe->base = rc == OK ? malloc((size_t)window->now.num * sizeof *probe->base + 1) : NULL;
    if (rc == OK && !probe->base)
        return err_nomem(err);
    if (rc == OK) {
        probe->num_base = window->now.num;
        memcpy(probe->base, window->now.sums, (size_t)window->now.num * sizeof *probe->base);
    }
    return rc;
}

static enum status measure_candidate(struct trainer *t, struct window *window, int frozen,
                                     struct freeze_evidence *row, struct err *err)
{
    const struct model *model = &t->job->model;
    const int cut = model_frozen_items(model, frozen);
    const int below[2] = {0, cut}, above[2] = {cut, model->num_items};
    static const double weight[] = {.5, -.5, .5, -.5};
    struct freeze_candidate candidate = {.frozen = frozen};
    struct blocks prefix = {0}, rest = {0}; /* L(o,n), L(n,o) */
    enum status rc = measure(t, window->loader, &window->sampler, below, &prefix, err);
    if (rc == OK)
        rc = measure(t, window->loader, &window->sampler, above, &rest, err);
    if (rc == OK) {
        const struct blocks *passes[] = {&prefix, &window->now, &window->before, &rest};
        combine(passes, weight, 4, &candidate.share, &candidate.share_se);
        rc = freeze_evidence_add(row, candidate, err);
    }
    free(prefix.sums);
    free(rest.sums);
    return rc;
}

/* The next prefix to measure, or -1. Every rank of the plan gets rank 0's answer. */
static enum status next_candidate(struct trainer *t, struct freeze_evidence *row, int *frozen,
                                  struct err *err)
{
    const int next = t->progress.num_frozen_layers + row->num_candidates + 1;
    row->passes = freeze_safe_row_passes(&t->probe.history, row->num_candidates);
    *frozen = next <= t->job->model.num_layers ? next : -1;
    if (!t->job->freeze.record && t->comm->rank == 0)
        *frozen = freeze_safe_ask(&t->elastic.freeze, &t->probe.history, row);
    return comm_bcast(t->layout.place.active, frozen, sizeof *frozen, 0, err);
}

/* Whether the window is to end with this turn. Every rank of the plan gets rank 0's answer. */
static enum status window_due(struct trainer *t, const struct freeze_evidence *row, bool *due,
                              struct err *err)
{
    int answer = t->job->freeze.record;
    if (!answer && t->comm->rank == 0)
        answer = freeze_safe_due(&t->elastic.freeze, &t->probe.history, row);
    enum status rc = comm_bcast(t->layout.place.active, &answer, sizeof answer, 0, err);
    *due = answer;
    return rc;
}

/* Rank 0, policy safe: predict the time a sample by F. A prediction is kept until F changes, so
 * that a run that goes on elsewhere decides as it would have here. A plan that cannot be made
 * leaves 0. */
static enum status predict(struct trainer *t, struct freeze_evidence *row, struct err *err)
{
    const int num_layers = t->job->model.num_layers, now = row->num_frozen;
    const struct freeze_history *history = &t->probe.history;
    const struct freeze_evidence *last =
        history->num_rows > 0 ? &history->rows[history->num_rows - 1] : NULL;
    const struct planning with = trainer_planning(t);
    struct run_state ask = trainer_ask(t, t->progress.epoch, trainer_turn(t));
    if (t->job->freeze.policy != FREEZE_SAFE || t->comm->rank != 0)
        return OK;
    row->sample_ns = calloc((size_t)num_layers + 1, sizeof *row->sample_ns);
    if (!row->sample_ns)
        return err_nomem(err);
    if (last && last->sample_ns && last->num_frozen == now) {
        memcpy(row->sample_ns, last->sample_ns, ((size_t)num_layers + 1) * sizeof *row->sample_ns);
        return OK;
    }
    const int most = freeze_cap(&t->elastic.freeze);
    for (int f = now; f <= most; f++) {
        struct train_plan next = {.cluster = t->layout.plan.cluster,
                                  .present = t->layout.plan.present};
        ask.num_frozen_layers = f;
        if (train_plan_choose(&with, &ask, &next, NULL) == OK)
            row->sample_ns[f] = next.sample_ns;
        plan_clear(&next.plan); /* the cluster belongs to the present plan */
    }
    return OK;
}

/* Relative movement of each layer's weights since the window's begin. Only where weights lie in
 * host memory, because elsewhere they would have to be copied. Collective. */
static enum status movement(struct trainer *t, struct freeze_evidence *row, struct err *err)
{
    const struct model *model = &t->job->model;
    const int num_layers = model->num_layers;
    double *sums = calloc((size_t)model->num_items * 2, sizeof *sums);
    row->plasticity = calloc((size_t)num_layers + 1, sizeof *row->plasticity);
    enum status rc = sums && row->plasticity ? OK : err_nomem(err);
    for (int s = 0; rc == OK && t->layout.place.replica == 0 && s <= t->layout.plan.plan.num_stages;
         s++) {
        struct stage *stage = t->layout.stages[s];
        for (int i = 0; stage && i < stage_num_params(stage); i++) {
            const struct param *param = &stage_params(stage)[i];
            const int layer = model->items[param->item].layer;
            const bool counts = layer >= 0 && layer < num_layers;
            const float *lagged = counts ? stage_lagged(stage, param) : NULL;
            double moved = 0, size = 0;
            for (int64_t e = 0; lagged && e < param->num_elems; e++) {
                const double d = (double)param->weight[e] - (double)lagged[e];
                moved += d * d;
                size += (double)lagged[e] * (double)lagged[e];
            }
            if (lagged) {
                sums[2 * param->item] += moved;
                sums[2 * param->item + 1] += size;
            }
        }
    }
    if (rc == OK)
        rc = comm_sum_f64(t->layout.place.active, sums, 2 * model->num_items, err);
    /* By item first, because a cut may run between the items of a layer. */
    for (int l = 0; rc == OK && l < num_layers; l++) {
        double moved = 0, size = 0;
        for (int i = 0; i < model->num_items; i++)
            if (model->items[i].layer == l) {
                moved += sums[2 * i];
                size += sums[2 * i + 1];
            }
        row->plasticity[l] = size > 0 ? sqrt(moved / size) : 0;
    }
    free(sums);
    return rc;
}

static enum status describe(struct trainer *t, struct window *window, const double *norms,
                            struct freeze_evidence *row, struct err *err)
{
    static const double weight[] = {1, -1};
    const struct blocks *ends[] = {&window->before, &window->now};
    const enum model_task task = t->job->model.task;
    const size_t num_layers = (size_t)t->job->model.num_layers;
    int64_t count = 0, correct = 0;
    double fall;
    row->loss = mean(&window->now);
    row->loss_before = mean(&window->before);
    combine(ends, weight, 2, &fall, &row->fall_se);
    for (int i = 0; i < window->now.num; i++) {
        count += window->now.sums[i].count;
        correct += window->now.sums[i].correct;
    }
    row->accuracy = task == TASK_CAUSAL_LM || task == TASK_MLM || count == 0
                        ? NAN
                        : (double)correct / (double)count;
    if (norms) {
        row->norms = malloc((num_layers + 1) * sizeof *row->norms);
        if (!row->norms)
            return err_nomem(err);
        memcpy(row->norms, norms, num_layers * sizeof *row->norms);
    }
    return t->backend->host_memory ? movement(t, row, err) : OK;
}

enum status probe_write(struct trainer *t, struct err *err)
{
    char *path = NULL;
    if (!t->probe.on || t->comm->rank != 0)
        return OK;
    if (asprintf(&path, "%s/evidence.json", t->out) < 0)
        return err_nomem(err);
    struct json *root = json_object_new();
    evidence_to_json(root, &t->job->model, &t->probe.history);
    enum status rc = json_write_file(root, path, err);
    json_free(root);
    free(path);
    return rc;
}

/* Samples of a pipeline in one forward: those of a step, or fewer where the probe would have less
 * than LEAST_BLOCKS micro-batches, since the error of a mean over two or three blocks is not
 * known. */
static int64_t batch_of(const struct trainer *t)
{
    const struct plan *plan = &t->layout.plan.plan;
    const int64_t size = t->probe.num / LEAST_BLOCKS > 0 ? t->probe.num / LEAST_BLOCKS : 1;
    return size < plan->microbatches.size ? size * plan->microbatches.count : plan->batch;
}

static enum status open_window(struct trainer *t, struct window *window, struct err *err)
{
    const struct plan *plan = &t->layout.plan.plan;
    const struct sampler_spec samples = {.num_samples = t->probe.num,
                                         .seed = t->job->train.seed,
                                         .num_replicas = plan->num_replicas,
                                         .batch = batch_of(t),
                                         .num_microbatches = plan->microbatches.count};
    const struct loader_spec loads = {.dataset = &t->dataset,
                                      .sampler = &window->sampler,
                                      .split = SPLIT_TEST,
                                      .replica = t->layout.place.replica,
                                      .want_inputs = layout_has(&t->layout, 0),
                                      .want_labels = layout_has(&t->layout, plan->num_stages - 1),
                                      .workers = t->base.workers[SPLIT_TEST],
                                      .backend = t->backend};
    enum status rc = sampler_init(&window->sampler, &samples, err);
    return rc == OK ? loader_new(&loads, &window->loader, err) : rc;
}

/* Measure the window, and close it. */
static enum status measure_window(struct trainer *t, const double *norms,
                                  struct freeze_evidence *row, struct err *err)
{
    struct window window = {0};
    int frozen = 0;
    enum status rc = open_window(t, &window, err);
    if (rc == OK)
        rc = measure_ends(t, &window, err);
    if (rc == OK)
        rc = describe(t, &window, norms, row, err);
    if (rc == OK)
        rc = predict(t, row, err);
    if (rc == OK)
        rc = next_candidate(t, row, &frozen, err);
    while (rc == OK && frozen > 0) {
        rc = measure_candidate(t, &window, frozen, row, err);
        if (rc == OK)
            rc = next_candidate(t, row, &frozen, err);
    }
    runtime_keep_prefix(t->layout.runtime, false);
    loader_free(window.loader);
    free(window.now.sums);
    free(window.before.sums);
    t->probe.open = false;
    return rc;
}

enum status probe_end(struct trainer *t, const double *norms, struct err *err)
{
    const int64_t begin = comm_now_ns(t->comm);
    struct freeze_evidence row = {.turn = trainer_turn(t) - 1,
                                  .step = t->progress.step,
                                  .num_frozen = t->progress.num_frozen_layers,
                                  .rate_window = t->probe.rate,
                                  .steps_window = t->probe.steps,
                                  .num_probe = t->probe.num};
    bool due = false;
    if (!t->probe.on)
        return OK;
    look_ahead(t, &row);
    enum status rc = window_due(t, &row, &due, err);
    if (rc == OK && due)
        rc = measure_window(t, norms, &row, err);
    if (rc == OK && due && t->comm->rank == 0)
        rc = freeze_history_add(&t->probe.history, &row, err);
    freeze_evidence_clear(&row);
    if (rc == OK && due)
        rc = probe_write(t, err);
    t->probe.ns += comm_now_ns(t->comm) - begin;
    t->train_ns += comm_now_ns(t->comm) - begin;
    return rc;
}

/* What `safe` decided, and an estimate of what that has cost. */
static void add_decisions(const struct trainer *t, struct json *root)
{
    const struct freeze_history *history = &t->probe.history;
    const struct freeze_verdict *last = NULL;
    bool points = false;
    double low, high;
    struct json *list = json_add_array(root, "freeze_decisions");
    for (int64_t i = 0; i < history->num_rows; i++) {
        const struct freeze_evidence *row = &history->rows[i];
        if (!row->verdict.made)
            continue;
        struct json *one = json_add_object(list, NULL);
        json_add_int(one, "turn", row->turn);
        json_add_int(one, "step", row->step);
        json_add_int(one, "frozen_before", row->num_frozen);
        json_add_int(one, "frozen", row->verdict.frozen);
        json_add_double(one, "left", row->verdict.left);
        json_add_string(one, "reason", row->verdict.reason);
        points = isfinite(row->accuracy);
        last = &row->verdict;
    }
    if (!last)
        return;
    freeze_safe_interval(last->cost, last->cost_se, &low, &high);
    json_add_string(root, "freeze_cost_unit", points ? "points" : "per cent of the loss");
    json_add_double(root, "freeze_cost", last->cost);
    json_add_double(root, "freeze_cost_low", low);
    json_add_double(root, "freeze_cost_high", high);
}

void probe_json(const struct trainer *t, struct json *root)
{
    if (t->job->freeze.policy == FREEZE_SAFE)
        add_decisions(t, root);
    const struct probe *probe = &t->probe;
    if (!probe->on)
        return;
    json_add_int(root, "probe_samples", probe->num);
    json_add_int(root, "probe_passes", probe->passes);
    json_add_int(root, "probe_ns", probe->ns);
    json_add_double(root, "probe_share",
                    t->train_ns > 0 ? (double)probe->ns / (double)t->train_ns : 0);
}
