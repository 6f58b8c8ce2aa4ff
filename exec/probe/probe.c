/* exec/probe/probe.c - the passes over the probe, and the row of evidence made of them. Read
 * probe_end() first, then measure_ends(), measure_candidate() and measure(). */
#include "exec/probe/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/base/watch.h"
#include "exec/trainer/learning_rate.h"
#include "exec/probe/probe_pass.h"
#include "profiles/job/evidence_json.h"

enum { LEAST_BLOCKS = 8 };

/* --- the run ---------------------------------------------------------------------------------- */

void probe_open(struct trainer *t)
{
    t->probe.on = t->trains && job_lags(t->job);
    t->probe.num = t->dataset.num_samples[SPLIT_VALID];
}

static void boundary_move(struct boundary *from, struct boundary *to)
{
    boundary_clear(to);
    *to = *from;
    *from = (struct boundary){0};
}

static void drop_kept(struct probe *probe)
{
    boundary_clear(&probe->frozen);
    boundary_clear(&probe->upper);
    boundary_clear(&probe->lagged);
    boundary_clear(&probe->smaller);
}

void probe_clear(struct probe *probe)
{
    free(probe->base);
    drop_kept(probe);
    freeze_history_clear(&probe->history);
    *probe = (struct probe){0};
}

static void take_lag(struct stage *stage, const int *range)
{
    (void)range;
    stage_lag_take(stage);
}

void probe_begin(struct trainer *t)
{
    struct probe *probe = &t->probe;
    if (!probe->on || probe->open)
        return;
    probe->open = true;
    probe->rate = probe->steps = 0;
    probe_each_stage(t, take_lag, NULL);
}

void probe_cut(struct probe *probe)
{
    if (probe->open) {
        probe->num_base = 0;
        drop_kept(probe);
    } else { /* base and upper boundary are of the present weights, with which layers freeze now */
        boundary_move(&probe->upper, &probe->frozen);
    }
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
    const int64_t now = sampler_steps_per_whole_epoch(&t->deployment.samplers[SPLIT_TRAIN]);
    double sum = 0;
    int64_t step = t->progress.epoch * first +
                   (int64_t)((double)t->progress.position / (double)all * (double)first);
    const int64_t left = t->total_steps > step ? t->total_steps - step : 0;
    for (; step < t->total_steps; step++)
        sum += learning_rate(t->job, step, t->total_steps);
    row->rate_left = sum * (double)now / (double)first;
    row->steps_left = (double)left * (double)now / (double)first;
}

/* --- a row ------------------------------------------------------------------------------------ */

static bool same_blocks(const struct probe_blocks *blocks, const struct loss_sums *base, int num)
{
    bool same = blocks->num == num;
    for (int i = 0; same && i < num; i++)
        same = blocks->sums[i].count == base[i].count;
    return same;
}

/* Whether the last window's end was measured, in blocks like those of `now`. Every rank of the plan
 * gets rank 0's answer and its base, because a rank that had no stage has an old base or none. */
static enum status share_base(struct trainer *t, const struct probe_blocks *now, bool *known,
                              struct err *err)
{
    const struct comm_group *active = t->deployment.place.active;
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

/* Make room to keep the input of an item; item 0: none. */
static enum status keep_at(struct trainer *t, const struct probe_window *window, int item,
                           struct boundary *boundary, struct err *err)
{
    boundary_clear(boundary);
    return t->elastic.freeze.keeps && item > 0
               ? boundary_make(t->deployment.runtime, item,
                               sampler_steps_per_epoch(&window->sampler), boundary, err)
               : OK;
}

/* Whether all ranks of the plan have kept what the frozen prefix puts out. */
static enum status has_frozen(struct trainer *t, const struct probe_window *window, int item,
                              bool *has, struct err *err)
{
    const int64_t batches = sampler_steps_per_epoch(&window->sampler);
    struct probe *probe = &t->probe;
    int64_t lacks[2] = {!boundary_fits(t->deployment.runtime, item, batches, &probe->frozen),
                        !boundary_fits(t->deployment.runtime, item, batches, &probe->smaller)};
    enum status rc = comm_max_i64(t->deployment.place.active, lacks, 2, err);
    *has = lacks[0] == 0 || lacks[1] == 0;
    if (lacks[0] != 0 && lacks[1] == 0)
        boundary_move(&probe->smaller, &probe->frozen);
    boundary_clear(&probe->smaller);
    return rc;
}

/* L(n,n). The last row's upper boundary becomes the lagged one if this row's is the same. */
static enum status measure_now(struct trainer *t, struct probe_window *window, int cut,
                               struct err *err)
{
    const int frozen = model_frozen_items(&t->job->model, t->progress.num_frozen_layers);
    struct probe *probe = &t->probe;
    struct probe_pass pass = {
        .part.keep = {NULL, &probe->upper}
    };
    bool has = false;
    if (probe->upper.item == cut)
        boundary_move(&probe->upper, &probe->lagged);
    enum status rc = has_frozen(t, window, frozen, &has, err);
    if (rc == OK && !has)
        rc = keep_at(t, window, frozen, &probe->frozen, err);
    THEN(keep_at(t, window, cut, &probe->upper, err));
    if (rc != OK)
        return rc;
    *(has ? &pass.part.from : &pass.part.keep[0]) = &probe->frozen;
    return probe_measure(t, window, &pass, &window->now, err);
}

/* L(o,o) by a pass, where the last turn's end was not measured, or in other blocks. */
static enum status measure_before(struct trainer *t, struct probe_window *window, int cut,
                                  struct err *err)
{
    struct probe *probe = &t->probe;
    struct probe_pass pass = {
        .lagged = {0,                      t->job->model.num_items },
        .part = {.from = &probe->frozen, .keep = {&probe->lagged}}
    };
    enum status rc = keep_at(t, window, cut, &probe->lagged, err);
    return rc == OK ? probe_measure(t, window, &pass, &window->before, err) : rc;
}

/* L(n,n) and L(o,o). cut: items of the row's first candidate, 0: there is none. */
static enum status measure_ends(struct trainer *t, struct probe_window *window, int cut,
                                struct err *err)
{
    struct probe *probe = &t->probe;
    bool known = false;
    enum status rc = measure_now(t, window, cut, err);
    THEN(share_base(t, &window->now, &known, err));
    if (rc != OK)
        return rc;
    if (known) {
        window->before = (struct probe_blocks){probe->base, window->now.num};
        probe->base = NULL;
    } else {
        rc = measure_before(t, window, cut, err);
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

/* The boundary to begin at where the items below cut are in order: the kept one there, or the
 * frozen prefix. */
static const struct boundary *begin_at(const struct probe *probe, const struct boundary *kept,
                                       int cut)
{
    return kept->item == cut ? kept : &probe->frozen;
}

static enum status measure_candidate(struct trainer *t, struct probe_window *window, int frozen,
                                     struct freeze_evidence *row, struct err *err)
{
    const struct model *model = &t->job->model;
    struct probe *probe = &t->probe;
    const int cut = model_frozen_items(model, frozen);
    static const double weight[] = {.5, -.5, .5, -.5};
    struct freeze_candidate candidate = {.frozen = frozen};
    struct probe_blocks prefix = {0}, rest = {0}; /* L(o,n), L(n,o) */
    struct probe_pass lower = {
        .lagged = {0, cut},
          .part.from = begin_at(probe, &probe->lagged, cut)
    };
    struct probe_pass upper = {
        .lagged = {cut, model->num_items},
          .part.from = begin_at(probe, &probe->upper, cut)
    };
    if (lower.part.from == &probe->lagged && !stage_shares_table(model))
        lower.lagged[1] = 0; /* none of these weights is used */
    enum status rc = OK;
    if (upper.part.from == &probe->frozen) {
        rc = keep_at(t, window, cut, &probe->smaller, err);
        upper.part.keep[0] = &probe->smaller;
    }
    THEN(probe_measure(t, window, &lower, &prefix, err));
    THEN(probe_measure(t, window, &upper, &rest, err));
    if (rc == OK) {
        const struct probe_blocks *passes[] = {&prefix, &window->now, &window->before, &rest};
        probe_combine(passes, weight, 4, &candidate.share, &candidate.share_se);
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
    row->passes = freeze_safe_row_passes(&t->elastic.freeze, &t->probe.history, row);
    *frozen = next <= t->job->model.num_layers ? next : -1;
    if (!t->job->freeze.record && t->comm->rank == 0)
        *frozen = freeze_safe_ask(&t->elastic.freeze, &t->probe.history, row);
    return comm_bcast(t->deployment.place.active, frozen, sizeof *frozen, 0, err);
}

/* Whether the window is to end with this turn. Every rank of the plan gets rank 0's answer. */
static enum status window_due(struct trainer *t, const struct freeze_evidence *row, bool *due,
                              struct err *err)
{
    int answer = t->job->freeze.record;
    if (!answer && t->comm->rank == 0)
        answer = freeze_safe_due(&t->elastic.freeze, &t->probe.history, row);
    enum status rc = comm_bcast(t->deployment.place.active, &answer, sizeof answer, 0, err);
    *due = answer;
    return rc;
}

/* The predicted time a sample with F layers frozen; 0: there is no plan. */
static double predict_one(struct trainer *t, int frozen)
{
    const struct planning with = trainer_planning(t);
    struct run_state ask = trainer_ask(t, t->progress.epoch, trainer_turn(t));
    struct train_plan next = {.cluster = t->deployment.plan.cluster,
                              .present = t->deployment.plan.present};
    double sample_ns = 0;
    ask.num_frozen_layers = frozen;
    if (train_plan_choose(&with, &ask, &next, NULL) == OK)
        sample_ns = next.sample_ns;
    plan_clear(&next.plan); /* the cluster belongs to the present plan */
    return sample_ns;
}

/* Rank 0, policy safe: predict the time a sample with F as it is and at its most; the policy
 * interpolates. What the last row has predicted is kept, so that a run that resumes elsewhere
 * decides as it would have here. */
static enum status predict(struct trainer *t, struct freeze_evidence *row, struct err *err)
{
    const int num_layers = t->job->model.num_layers, now = row->num_frozen;
    const struct freeze_history *history = &t->probe.history;
    const struct freeze_evidence *last =
        history->num_rows > 0 ? &history->rows[history->num_rows - 1] : NULL;
    if (t->job->freeze.policy != FREEZE_SAFE || t->comm->rank != 0)
        return OK;
    row->sample_ns = calloc((size_t)num_layers + 1, sizeof *row->sample_ns);
    if (!row->sample_ns)
        return err_nomem(err);
    const int wanted[2] = {now, freeze_cap(&t->elastic.freeze)};
    for (int i = 0; i < 2; i++) {
        double *sample_ns = &row->sample_ns[wanted[i]];
        *sample_ns = last && last->sample_ns ? last->sample_ns[wanted[i]] : 0;
        if (!(*sample_ns > 0))
            *sample_ns = predict_one(t, wanted[i]);
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
    for (int s = 0;
         rc == OK && t->deployment.place.replica == 0 && s <= t->deployment.plan.plan.num_stages;
         s++) {
        struct stage *stage = t->deployment.stages[s];
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
    THEN(comm_sum_f64(t->deployment.place.active, sums, 2 * model->num_items, err));
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

static enum status describe(struct trainer *t, struct probe_window *window, const double *norms,
                            struct freeze_evidence *row, struct err *err)
{
    static const double weight[] = {1, -1};
    const struct probe_blocks *ends[] = {&window->before, &window->now};
    const enum model_task task = t->job->model.task;
    const size_t num_layers = (size_t)t->job->model.num_layers;
    int64_t count = 0, correct = 0;
    double fall;
    row->loss = probe_mean(&window->now);
    row->loss_before = probe_mean(&window->before);
    probe_combine(ends, weight, 2, &fall, &row->fall_se);
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
    const struct plan *plan = &t->deployment.plan.plan;
    const int64_t size = t->probe.num / LEAST_BLOCKS > 0 ? t->probe.num / LEAST_BLOCKS : 1;
    return size < plan->microbatches.size ? size * plan->microbatches.count : plan->batch;
}

static enum status open_window(struct trainer *t, struct probe_window *window, struct err *err)
{
    const struct plan *plan = &t->deployment.plan.plan;
    const struct sampler_spec samples = {.num_samples = t->probe.num,
                                         .seed = t->job->train.seed,
                                         .num_replicas = plan->num_pipelines,
                                         .batch = batch_of(t),
                                         .num_microbatches = plan->microbatches.count};
    const struct loader_spec loads = {.dataset = &t->dataset,
                                      .sampler = &window->sampler,
                                      .split = SPLIT_VALID,
                                      .replica = t->deployment.place.replica,
                                      .want_inputs = deployment_has(&t->deployment, 0),
                                      .want_labels =
                                          deployment_has(&t->deployment, plan->num_stages - 1),
                                      .workers = t->base.workers[SPLIT_VALID],
                                      .backend = t->backend};
    enum status rc = sampler_init(&window->sampler, &samples, err);
    return rc == OK ? loader_new(&loads, &window->loader, err) : rc;
}

/* Measure the window, and close it. */
static enum status measure_window(struct trainer *t, const double *norms,
                                  struct freeze_evidence *row, struct err *err)
{
    struct probe_window window = {0};
    int frozen = 0;
    enum status rc = open_window(t, &window, err);
    THEN(predict(t, row, err));
    THEN(next_candidate(t, row, &frozen, err));
    THEN(
        measure_ends(t, &window, frozen > 0 ? model_frozen_items(&t->job->model, frozen) : 0, err));
    THEN(describe(t, &window, norms, row, err));
    while (rc == OK && frozen > 0) {
        rc = measure_candidate(t, &window, frozen, row, err);
        THEN(next_candidate(t, row, &frozen, err));
    }
    boundary_clear(&t->probe.lagged);
    loader_free(window.loader);
    free(window.now.sums);
    free(window.before.sums);
    t->probe.open = t->probe.cut;
    return rc;
}

enum status probe_end(struct trainer *t, const double *norms, struct err *err)
{
    watch_phase("probe");
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
    if (t->probe.cut) { /* the resumed run measures the whole window again */
        t->interrupted = true;
        due = false;
        rc = OK;
    }
    if (rc == OK && due && t->comm->rank == 0)
        rc = freeze_history_add(&t->probe.history, &row, err);
    freeze_evidence_clear(&row);
    if (rc == OK && due)
        rc = probe_write(t, err);
    t->probe.ns += comm_now_ns(t->comm) - begin;
    t->train_ns += comm_now_ns(t->comm) - begin;
    return rc;
}

/* The decision of `safe`, and an estimate of its cost. */
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
    static const char *const sources[] = {"held out", "test", "path"}; /* enum valid_source */
    json_add_string(root, "probe_source", sources[job_valid_source(t->job)]);
    json_add_int(root, "probe_samples", probe->num);
    json_add_int(root, "probe_passes", probe->passes);
    json_add_int(root, "probe_ns", probe->ns);
    json_add_double(root, "probe_share",
                    t->train_ns > 0 ? (double)probe->ns / (double)t->train_ns : 0);
}
