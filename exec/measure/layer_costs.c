#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/measure/measure_state.h"
#include "exec/stage/stage.h"
#include "profiles/base/clock.h"

/* Layers are measured in passes over the whole model with several micro-batches in flight, so they
 * find the caches as in a step. Repeats continue until the budget of a phase is spent, within these
 * limits; those of a quick profile end with its time, too (is_due()). */
enum { MIN_REPEATS = 6, MAX_REPEATS = 60 };
enum { STASH_SAMPLES = 4 };
enum { SWEEP = 3, QUICK_SWEEP = 2 }; /* repeats of a sweep */
/* Micro-batches in flight while layers are measured: as many as make caches forget their stash, or
 * MAX_LIVE. What is saved with a single one in flight is measured apart. Before a run there is time
 * for MIN_LIVE only, and that is left out. */
enum { MIN_LIVE = 2, MAX_LIVE = 64 };
/* A cache has forgotten a stash when as many bytes were used since: on a device several times its
 * cache, on a processor, whose last cache may be shared, FAR_BYTES. */
enum { FAR_BYTES = 128 << 20, FAR_CACHES = 4 };
enum { NEAR_PASSES = PASS_BWD_WEIGHT + 1 };
/* Optimizer state tensors: 1 momentum, 2 Adam. */
enum { MAX_STATES = 2 };
static const int64_t phase_budget_ns = 12000000000, quick_budget_ns = 4000000000;

/* One distinct sublayer: all items of the model that cost the same. */
struct shape {
    struct layer_key key;
    int num_items;
    bool trains_first; /* an item of it was measured after frozen layers: PASS_BWD_REST */
    bool freezes;      /* an item of it was measured frozen: PASS_FWD_NOGRAD */
    double *times; /* [num_samples][PASS_UPDATE][MAX_REPEATS] of passes, [MAX_STATES] of updates */
};

struct layers {
    struct measure *m;
    struct stage *stage; /* the whole model */
    struct shape *shapes;
    int num_shapes;
    int *shape_of;    /* by item */
    int64_t *item_ns; /* [num_items][PASS_COUNT], of the round under way */
    double *item_sumsq;
    double *near_ns;          /* [num_samples][NEAR_PASSES][MAX_REPEATS]: saved, a MiB of stash */
    struct loss_sums *losses; /* [MAX_LIVE], pinned; NULL: backend memory is host memory */
    double norm_times[MAX_REPEATS];
    double op_times[MAX_REPEATS]; /* what a pass of a stage takes apart from its items */
    int *repeats;      /* [num_samples], so far; a size of which there are none gets no rows */
    int num_sweep;     /* repeats of a sweep */
    int num_warm_up;   /* passes of a sweep before them */
    double ns_of_work; /* that a sweep took for a sample, by the size measured last */
};

static double *pass_times(const struct shape *shape, int size, int pass)
{
    return shape->times + ((size_t)size * PASS_UPDATE + (size_t)pass) * MAX_REPEATS;
}

static double *update_times(const struct layers *l, const struct shape *shape, int states)
{
    return pass_times(shape, l->m->options->num_samples, 0) + (size_t)(states - 1) * MAX_REPEATS;
}

static double *near_times(const struct layers *l, int size, int pass)
{
    return l->near_ns + ((size_t)size * NEAR_PASSES + (size_t)pass) * MAX_REPEATS;
}

/* The stash of one micro-batch in the whole model. */
static int64_t stash_bytes(const struct layers *l, int size)
{
    const struct model *model = &l->m->job.model;
    int64_t bytes = 0;
    for (int i = 0; i < model->num_items; i++)
        bytes += model->items[i].stash_bytes;
    return bytes * l->m->options->samples[size];
}

static int64_t far_bytes(const struct layers *l)
{
    const int64_t cache = l->m->cache_bytes;
    return cache > 0 && cache < FAR_BYTES / FAR_CACHES ? FAR_CACHES * cache : FAR_BYTES;
}

static int live_of(const struct layers *l, int size)
{
    const int64_t live = far_bytes(l) / (stash_bytes(l, size) + 1) + 1;
    return l->m->options->for_run || live < MIN_LIVE ? MIN_LIVE
           : live > MAX_LIVE                         ? MAX_LIVE
                                                     : (int)live;
}

/* stash-distance of partition/step/step_rules.h. */
static int64_t stash_distance(const struct layers *l, int size, int live)
{
    return live * stash_bytes(l, size) - stash_bytes(l, size) / 2;
}

/* Whether one micro-batch's stash fits the cache. If not, there is no reuse to measure. */
static bool has_near(const struct layers *l, int size)
{
    return !l->m->options->for_run && stash_distance(l, size, 1) < far_bytes(l);
}

static void clear(struct layers *l)
{
    for (int i = 0; i < l->num_shapes; i++)
        free(l->shapes[i].times);
    free(l->shapes);
    free(l->shape_of);
    free(l->item_ns);
    free(l->item_sumsq);
    free(l->near_ns);
    free(l->repeats);
    if (l->losses)
        l->m->backend->free_host(l->m->backend, l->losses);
    stage_free(l->stage);
}

static enum status make_shapes(struct layers *l, struct err *err)
{
    const struct model *model = &l->m->job.model;
    const size_t n = (size_t)model->num_items;
    l->shapes = calloc(n, sizeof *l->shapes);
    l->shape_of = calloc(n, sizeof *l->shape_of);
    l->item_ns = calloc(n * PASS_COUNT, sizeof *l->item_ns);
    l->item_sumsq = calloc(n, sizeof *l->item_sumsq);
    l->near_ns =
        calloc((size_t)l->m->options->num_samples * NEAR_PASSES * MAX_REPEATS, sizeof *l->near_ns);
    l->repeats = calloc((size_t)l->m->options->num_samples, sizeof *l->repeats);
    if (!l->shapes || !l->shape_of || !l->item_ns || !l->item_sumsq || !l->near_ns || !l->repeats)
        return err_nomem(err);
    for (int i = 0; i < model->num_items; i++) {
        struct layer_key key;
        int j = 0;
        layer_key_of(model, i, &key);
        while (j < l->num_shapes && memcmp(&l->shapes[j].key, &key, sizeof key) != 0)
            j++;
        struct shape *shape = &l->shapes[j];
        l->shape_of[i] = j;
        shape->num_items++;
        if (j < l->num_shapes)
            continue;
        l->num_shapes++;
        shape->key = key;
        shape->times =
            calloc(((size_t)l->m->options->num_samples * PASS_UPDATE + MAX_STATES) * MAX_REPEATS,
                   sizeof *shape->times);
        if (!shape->times)
            return err_nomem(err);
    }
    if (l->m->backend->host_memory)
        return OK;
    void *losses = NULL;
    enum status rc = l->m->backend->alloc_host(l->m->backend, MAX_LIVE * (int64_t)sizeof *l->losses,
                                               &losses, err);
    l->losses = losses;
    return rc;
}

/* The whole model on this rank, as a pipeline of one stage holds it. */
static enum status make_stage(struct layers *l, int size, struct err *err)
{
    const struct model *model = &l->m->job.model;
    l->m->job.train.optimizer.kind = OPTIMIZER_ADAMW; /* room for the state of all */
    struct stage_spec spec = {.model = model,
                              .job = &l->m->job,
                              .backend = l->m->backend,
                              .end_item = model->num_items,
                              .max_samples = l->m->options->samples[size],
                              .max_live = live_of(l, size)};
    enum status rc = stage_new(&spec, &l->stage, err);
    THEN(stage_init_weights(l->stage, 1, err));
    return rc;
}

/* The mean time of the items of a shape before item `end` in one round, so that rows add up to a
 * stage; -1: there are none. */
static double shape_mean(const struct layers *l, int shape, int end, int pass, int rounds)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < end; i++) {
        if (l->shape_of[i] != shape)
            continue;
        sum += (double)l->item_ns[i * PASS_COUNT + pass];
        n++;
    }
    return n > 0 ? sum / ((double)rounds * n) : -1;
}

static void forget_round(struct layers *l)
{
    memset(l->item_ns, 0, (size_t)l->m->job.model.num_items * PASS_COUNT * sizeof *l->item_ns);
}

struct pass_time {
    bool items;     /* in: time each item */
    double all_ns;  /* all forwards and backwards */
    double rest_ns; /* of a backward, beside its items: forwards also hold copies of their input,
                       which the runtime makes ahead of the step */
};

/* Micro-batches of a size forward through the whole model, then backward: every item finds
 * weights, stash and caches as in a step, not as its own last call left them. With times->items,
 * the time of each item is in item_ns. On a device each forward starts a copy of its loss, as the
 * runtime's do, because a wait for the loss would drain the device's queue every time. */
static enum status run_passes(struct layers *l, int size, int live, struct pass_time *times,
                              struct err *err)
{
    struct sample_block block = {.num_samples = l->m->options->samples[size],
                                 .ids = l->m->ids,
                                 .images = l->m->images,
                                 .tokens = l->m->tokens,
                                 .token_types = l->m->types,
                                 .lengths = l->m->lengths,
                                 .labels = l->m->labels};
    struct stage_batch batch = {.block = &block, .grad_scale = 1};
    void *in[1] = {NULL}, *out[1], *grad_in[1];
    struct loss_sums loss;
    enum status rc = OK;
    int64_t items_ns = 0;
    stage_time_items(l->stage, times->items ? l->item_ns : NULL);
    measure_clock_start(l->m);
    for (int mb = 0; rc == OK && mb < live; mb++) {
        batch.slot = mb;
        rc = stage_forward(l->stage, &batch, in, out, true, err);
        if (rc == OK && l->losses)
            stage_loss_out(l->stage, mb, &l->losses[mb]);
        else if (rc == OK)
            rc = stage_loss(l->stage, mb, &loss, err);
    }
    measure_clock_mark(l->m);
    for (int mb = 0; rc == OK && mb < live; mb++) {
        batch.slot = mb;
        rc = stage_backward(l->stage, &batch, BACKWARD_BOTH, in, grad_in, err);
    }
    times->all_ns = measure_clock_ns(l->m);
    if (times->items)
        stage_time_read(l->stage);
    for (int i = 0; rc == OK && i < l->m->job.model.num_items * PASS_COUNT; i++)
        if (i % PASS_COUNT != PASS_FWD && i % PASS_COUNT != PASS_FWD_NOGRAD)
            items_ns += l->item_ns[i];
    times->rest_ns = (measure_clock_since_mark_ns(l->m) - (double)items_ns) / live;
    return rc == OK ? l->m->backend->sync(l->m->backend, err) : rc;
}

/* An event between two kernels of a device delays the second one, and a step has none between its
 * items. Take that delay, in equal parts, out of item_ns. `timed_ns` is the time of the work with
 * events between items, `plain_ns` without. */
static void subtract_events(struct layers *l, double timed_ns, double plain_ns)
{
    const int n = l->m->job.model.num_items * PASS_COUNT;
    int num_timed = 0;
    for (int i = 0; i < n; i++)
        num_timed += l->item_ns[i] > 0;
    if (num_timed == 0 || timed_ns <= plain_ns)
        return;
    const int64_t event_ns = llround((timed_ns - plain_ns) / num_timed);
    for (int i = 0; i < n; i++)
        l->item_ns[i] = l->item_ns[i] > event_ns ? l->item_ns[i] - event_ns : 0;
}

/* run_passes(), on a device without what the events between the items cost. */
static enum status run_items(struct layers *l, int size, int live, double *rest_ns, struct err *err)
{
    struct pass_time plain = {0}, timed = {.items = true};
    enum status rc = OK;
    if (!l->m->backend->host_memory)
        rc = run_passes(l, size, live, &plain, err);
    THEN(run_passes(l, size, live, &timed, err));
    if (rc == OK && !l->m->backend->host_memory)
        subtract_events(l, timed.all_ns, plain.all_ns);
    *rest_ns = timed.rest_ns;
    return rc;
}

/* The time of all items in one round. */
static double pass_sum(const struct layers *l, int pass, int rounds)
{
    double sum = 0;
    for (int i = 0; i < l->m->job.model.num_items; i++)
        sum += (double)l->item_ns[i * PASS_COUNT + pass];
    return sum / rounds;
}

/* A single micro-batch in flight, as on the last stage under 1F1B, beside far[] of a moment before.
 * Its stash is where that of the one before was, which is run first. */
static enum status time_near(struct layers *l, int size, int repeat, const double *far,
                             struct err *err)
{
    const double mib = (double)stash_bytes(l, size) / (1 << 20);
    double rest_ns;
    enum status rc = run_items(l, size, 1, &rest_ns, err);
    forget_round(l);
    THEN(run_items(l, size, 1, &rest_ns, err));
    for (int pass = 0; pass < NEAR_PASSES; pass++)
        near_times(l, size, pass)[repeat] = (far[pass] - pass_sum(l, pass, 1)) / mib;
    forget_round(l);
    return rc;
}

static enum status time_passes(struct layers *l, int size, int repeat, struct err *err)
{
    const int live = live_of(l, size);
    double rest_ns, far[NEAR_PASSES];
    enum status rc = run_items(l, size, live, &rest_ns, err);
    if (rc == OK && size == 0 && repeat >= 0)
        l->op_times[repeat] = rest_ns;
    for (int j = 0; rc == OK && repeat >= 0 && j < l->num_shapes; j++)
        for (int pass = 0; pass < PASS_BWD_REST; pass++)
            pass_times(&l->shapes[j], size, pass)[repeat] =
                shape_mean(l, j, l->m->job.model.num_items, pass, live);
    for (int pass = 0; pass < NEAR_PASSES; pass++)
        far[pass] = pass_sum(l, pass, live);
    forget_round(l);
    return rc == OK && repeat >= 0 && has_near(l, size) ? time_near(l, size, repeat, far, err) : rc;
}

/* The same after a frozen prefix, for what the first item that trains has left of its input half,
 * and for forwards that keep no stash: with half of the layers frozen, and with all, where the
 * caches are nobody else's (no forward is taken from there). The stage stays frozen. */
static enum status time_rests(struct layers *l, int size, int repeat, struct err *err)
{
    const int layers = l->m->job.model.num_layers, live = live_of(l, size);
    const int frozen[] = {layers > 1 ? layers / 2 : layers, layers};
    enum status rc = OK;
    for (int f = 0; rc == OK && f < 2; f++) {
        const int first = model_frozen_items(&l->m->job.model, frozen[f]);
        struct shape *shape = &l->shapes[l->shape_of[first]];
        double rest_ns;
        rc = stage_freeze(l->stage, first, err);
        for (int i = 0; rc == OK && i < l->num_sweep; i++) {
            rc = run_items(l, size, live, &rest_ns, err);
            pass_times(shape, size, PASS_BWD_REST)[repeat + i] =
                (double)l->item_ns[first * PASS_COUNT + PASS_BWD_REST] / live;
            for (int j = 0; f == 0 && j < l->num_shapes; j++) {
                const double ns = shape_mean(l, j, first, PASS_FWD_NOGRAD, live);
                l->shapes[j].freezes = ns >= 0;
                pass_times(&l->shapes[j], size, PASS_FWD_NOGRAD)[repeat + i] = ns;
            }
            forget_round(l);
        }
        shape->trains_first = true;
    }
    return rc;
}

/* The time of an update; with `items` that of each item is in item_ns. */
static double update_ns(struct layers *l, bool items)
{
    stage_time_items(l->stage, items ? l->item_ns : NULL);
    measure_clock_start(l->m);
    stage_update(l->stage, 0, 0, 1, false);
    const double ns = measure_clock_ns(l->m);
    if (items)
        stage_time_read(l->stage);
    return ns;
}

/* The end of a step: norm, and the update by each kind of optimizer state. Learning rate 0: the
 * weights stay what they are. */
static enum status time_update(struct layers *l, int repeat, struct err *err)
{
    measure_clock_start(l->m);
    enum status rc = stage_grad_sumsq(l->stage, l->item_sumsq, err);
    const double norm_ns = measure_clock_ns(l->m);
    if (repeat >= 0)
        l->norm_times[repeat] = norm_ns;
    for (int states = 1; rc == OK && states <= MAX_STATES; states++) {
        l->m->job.train.optimizer.kind = states == 1 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
        const double plain_ns = l->m->backend->host_memory ? 0 : update_ns(l, false);
        const double timed_ns = update_ns(l, true);
        if (!l->m->backend->host_memory)
            subtract_events(l, timed_ns, plain_ns);
        for (int j = 0; repeat >= 0 && j < l->num_shapes; j++)
            update_times(l, &l->shapes[j], states)[repeat] =
                shape_mean(l, j, l->m->job.model.num_items, PASS_UPDATE, 1);
        forget_round(l);
    }
    stage_begin_grad(l->stage);
    return rc;
}

/* Measure the overhead that the runtime and a stage add to the items of a compute op: the walk
 * over the list, a turn of the message engine, two clock readings, the checks of a block. */
static enum status add_op_overhead(struct layers *l, int ranks, struct err *err)
{
    enum { OPS = 1000 };
    const int repeats = l->repeats[0];
    struct host_row row = {
        .what = "op_overhead", .threads = l->m->backend->threads, .ranks = ranks};
    volatile int64_t sink = 0;
    for (int i = 0; i < repeats; i++) {
        int64_t begin = clock_now_ns();
        for (int j = 0; j < OPS; j++) {
            comm_progress(l->m->comm->all);
            sink += comm_now_ns(l->m->comm) + comm_now_ns(l->m->comm);
        }
        l->op_times[i] += (double)(clock_now_ns() - begin) / OPS;
    }
    snprintf(row.backend, sizeof row.backend, "%s", l->m->backend->name);
    row.ns = measure_spread(l->m, l->op_times, repeats);
    return profile_add_host(l->m->profile, &row, err);
}

static enum status add_row(struct layers *l, int shape, enum pass pass, int64_t samples, int ranks,
                           double *times, int repeats, struct err *err)
{
    struct layer_row row = {.threads = l->m->backend->threads,
                            .ranks = ranks,
                            .key = l->shapes[shape].key,
                            .samples = samples,
                            .ns = measure_spread(l->m, times, repeats)};
    snprintf(row.backend, sizeof row.backend, "%s", l->m->backend->name);
    snprintf(row.dtype, sizeof row.dtype, "%s", dtype_text(l->m->backend->dtype));
    snprintf(row.pass, sizeof row.pass, "%s", pass_name(pass));
    if (l->m->options->dropout && pass != PASS_FWD_NOGRAD && pass != PASS_UPDATE)
        layer_key_dropping(&row.key);
    return profile_add_layer(l->m->profile, &row, err);
}

/* The time that near stash saved. If a tenth of the repeats saved nothing, the rest may be noise.
 * Then the saving counts as 0, because noise can exceed the pass that it is subtracted from. */
static struct spread saving_of(double *times, int repeats)
{
    const struct spread ns = spread_of(times, repeats);
    return ns.p10_ns > 0 ? ns : (struct spread){.count = repeats};
}

/* Time saved by data still in the caches, by distance; and that it saves nothing where the layers
 * were measured. */
static enum status add_near(struct layers *l, int ranks, struct err *err)
{
    struct host_row row = {.threads = l->m->backend->threads, .ranks = ranks};
    int64_t far = INT64_MAX;
    bool any = false;
    enum status rc = OK;
    snprintf(row.backend, sizeof row.backend, "%s", l->m->backend->name);
    for (int size = 0; size < l->m->options->num_samples; size++) {
        if (l->repeats[size] == 0)
            continue;
        const int64_t distance = stash_distance(l, size, live_of(l, size));
        far = distance < far ? distance : far;
        any = any || has_near(l, size);
    }
    for (int pass = 0; any && pass < NEAR_PASSES; pass++) {
        near_row_name((enum pass)pass, l->m->backend->dtype, row.what);
        for (int size = 0; rc == OK && size < l->m->options->num_samples; size++) {
            if (!has_near(l, size) || l->repeats[size] == 0)
                continue;
            row.samples = l->m->options->samples[size];
            row.bytes = stash_distance(l, size, 1);
            row.ns = saving_of(near_times(l, size, pass), l->repeats[size]);
            rc = profile_add_host(l->m->profile, &row, err);
        }
        row.bytes = far;
        row.ns = (struct spread){.count = l->repeats[0]};
        THEN(profile_add_host(l->m->profile, &row, err));
    }
    return rc;
}

static enum status add_layers(struct layers *l, int ranks, struct err *err)
{
    struct host_row norm = {.what = "norm", .threads = l->m->backend->threads, .ranks = ranks};
    enum status rc = OK;
    for (int i = 0; i < l->num_shapes && rc == OK; i++) {
        for (int size = 0; size < l->m->options->num_samples; size++)
            for (int pass = 0; rc == OK && pass < PASS_UPDATE && l->repeats[size] > 0; pass++)
                if ((pass != PASS_BWD_REST || l->shapes[i].trains_first) &&
                    (pass != PASS_FWD_NOGRAD || l->shapes[i].freezes))
                    rc = add_row(l, i, (enum pass)pass, l->m->options->samples[size], ranks,
                                 pass_times(&l->shapes[i], size, pass), l->repeats[size], err);
        for (int states = 1; rc == OK && states <= MAX_STATES; states++)
            rc = add_row(l, i, PASS_UPDATE, states, ranks, update_times(l, &l->shapes[i], states),
                         l->repeats[0], err);
    }
    if (rc != OK)
        return rc;
    for (int i = 0; i < l->m->job.model.num_items; i++)
        norm.bytes += l->m->job.model.items[i].params * l->m->job.model.param_bytes;
    snprintf(norm.backend, sizeof norm.backend, "%s", l->m->backend->name);
    norm.ns = measure_spread(l->m, l->norm_times, l->repeats[0]);
    rc = profile_add_host(l->m->profile, &norm, err);
    return rc == OK ? add_near(l, ranks, err) : rc;
}

/* The samples that a pass of this size computes. */
static double work_of(const struct layers *l, int size)
{
    return (double)l->m->options->samples[size] * live_of(l, size);
}

/* Whether to measure this size now: in a quick profile, if it fits into what is left of the phase,
 * and the first size in any case. Rank 0 decides for all. */
static enum status is_due(struct layers *l, int size, bool together, int64_t *due, struct err *err)
{
    const struct measure *m = l->m;
    const bool fits = m->options->quick_ns == 0 || (size == 0 && l->repeats[0] == 0) ||
                      (double)(m->phase_end_ns - clock_now_ns()) > l->ns_of_work * work_of(l, size);
    *due = fits && !measure_stopped() && l->repeats[size] + l->num_sweep <= MAX_REPEATS;
    return together ? comm_bcast(m->comm->all, due, sizeof *due, 0, err) : OK;
}

/* Whether to leave a size half measured. All ranks together finish theirs, as they cannot agree in
 * the middle of it. */
static bool is_abandoned(bool together)
{
    return !together && measure_stopped();
}

/* Measure one size in a stage of its own, as a plan with that micro-batch would have it: where
 * buffers come to lie matters to the caches. */
static enum status sweep_size(struct layers *l, int size, bool together, struct err *err)
{
    const int64_t begin = clock_now_ns();
    const int repeat = l->repeats[size];
    enum status rc = make_stage(l, size, err);
    for (int i = 0; rc == OK && i < l->num_warm_up && !is_abandoned(together); i++)
        rc = time_passes(l, size, -1, err);
    if (rc == OK && together)
        rc = comm_barrier(l->m->comm->all, err);
    for (int i = 0; rc == OK && i < l->num_sweep && !is_abandoned(together); i++)
        rc = time_passes(l, size, repeat + i, err);
    if (rc == OK && size == 0)
        rc = time_update(l, -1, err);
    for (int i = 0; rc == OK && i < l->num_sweep && size == 0 && !is_abandoned(together); i++)
        rc = time_update(l, repeat + i, err);
    if (rc == OK && !is_abandoned(together))
        rc = time_rests(l, size, repeat, err);
    stage_free(l->stage);
    l->stage = NULL;
    if (!is_abandoned(together))
        l->repeats[size] += l->num_sweep;
    l->ns_of_work = (double)(clock_now_ns() - begin) / work_of(l, size);
    return rc;
}

/* The size to measure at a place of a sweep: the first, the last and the middle one before the
 * others, because times between two measured sizes can be interpolated. */
static int size_at(int place, int num_sizes)
{
    const int middle = (num_sizes - 1) / 2;
    if (place < 2)
        return place == 0 ? 0 : num_sizes - 1;
    return place == 2 ? middle : place - 2 < middle ? place - 2 : place - 1;
}

/* Sweeps over all sizes in turn: drift of the machine, and luck with memory, spread over all rows
 * alike. They end when the time is up, when none is due any more, or when the user stops them. */
static enum status sweep_all(struct layers *l, bool together, struct err *err)
{
    struct measure *m = l->m;
    const int num_sizes = m->options->num_samples;
    const int64_t begin = clock_now_ns(),
                  budget = m->options->quick_ns > 0 ? quick_budget_ns : phase_budget_ns;
    enum status rc = OK;
    for (int64_t go_on = 1; rc == OK && go_on;) {
        go_on = 0;
        for (int place = 0; rc == OK && place < num_sizes; place++) {
            const int size = size_at(place, num_sizes);
            int64_t due = 0;
            rc = is_due(l, size, together, &due, err);
            if (rc == OK && due)
                rc = sweep_size(l, size, together, err);
            go_on |= due;
            const double by_time = (double)(clock_now_ns() - begin) / (double)budget;
            measure_report(m, fmin(fmin(by_time, (double)l->repeats[size] / MIN_REPEATS), 1));
        }
        go_on = go_on && (clock_now_ns() - begin < budget || l->repeats[0] < MIN_REPEATS);
        if (rc == OK && together)
            rc = comm_bcast(m->comm->all, &go_on, sizeof go_on, 0, err);
    }
    return rc;
}

/* Measure the stash: the memory that one more micro-batch in flight adds to a stage of one item,
 * minus its output, the gradient of its input and, on a device, the copy of its inputs. */
static enum status measure_stash(struct layers *l, int shape, struct err *err)
{
    const struct model *model = &l->m->job.model;
    struct memory_row row = {0};
    struct stage_spec spec = {
        .model = model, .job = &l->m->job, .backend = l->m->backend, .max_samples = STASH_SAMPLES};
    int64_t bytes[2];
    enum status rc = OK;
    while (l->shape_of[spec.first_item] != shape)
        spec.first_item++;
    spec.end_item = spec.first_item + 1;
    for (int i = 0; i < 2; i++) {
        struct stage *stage = NULL;
        spec.max_live = i + 1;
        rc = stage_new(&spec, &stage, err);
        if (rc != OK)
            return rc;
        bytes[i] = stage_bytes(stage);
        stage_free(stage);
    }
    if (!l->m->backend->host_memory)
        bytes[1] -= model_block_bytes(model, spec.first_item == 0,
                                      spec.end_item == model->num_items, STASH_SAMPLES);
    stash_row_name(&l->shapes[shape].key, l->m->backend->dtype, row.what);
    row.predicted_bytes = model->items[spec.first_item].stash_bytes;
    row.measured_bytes = (bytes[1] - bytes[0]) / STASH_SAMPLES -
                         model->items[spec.first_item].act_bytes -
                         stage_input_elems(model, spec.first_item) * l->m->backend->elem_bytes;
    return profile_add_memory(l->m->profile, &row, err);
}

enum status measure_layers(struct measure *m, bool together, bool stash, struct err *err)
{
    const int ranks = together ? m->comm->local_size : 1;
    struct layers l = {.m = m,
                       .num_sweep = m->options->quick_ns > 0 ? QUICK_SWEEP : SWEEP,
                       .num_warm_up = m->options->quick_ns > 0 ? 1 : MEASURE_WARM_UP};
    enum status rc = make_shapes(&l, err);
    THEN(sweep_all(&l, together, err));
    const bool any = rc == OK && m->comm->rank == 0 && l.repeats[0] > 0;
    if (any)
        rc = add_layers(&l, ranks, err);
    if (rc == OK && any)
        rc = add_op_overhead(&l, ranks, err);
    for (int i = 0; rc == OK && i < l.num_shapes && stash && !measure_stopped(); i++)
        rc = measure_stash(&l, i, err);
    clear(&l);
    return rc;
}
