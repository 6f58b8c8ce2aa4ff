/* A whole elastic job in virtual time; sim/run/elastic_run.h has its rules.
 *
 * elastic_run() goes from epoch to epoch. begin_turn() asks the freeze policy and changes the plan
 * if needed, run_steps() adds the steps up to the next turn. A step is simulated by the step engine
 * (sim/step/step.h) on a `cached_view`: a model whose first items are replaced by one item that reads
 * their output from the cache. Read elastic_run() at the end first, then run_steps() and
 * mean_step(). */
#include "sim/run/elastic_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"
#include "partition/plan/autodp.h"
#include "partition/step/cache_rule.h"
#include "partition/freeze/freeze_replay.h"
#include "partition/search/plan_for.h"
#include "partition/search/turn.h"
#include "partition/base/units.h"
#include "sim/run/cache_levels.h"

enum { MOST_TURNS = 1000000 };

/* A distinct step of the plan in force. */
struct step_cost {
    int from;      /* level from which the frozen forward is computed; F: nothing is computed */
    int64_t batch; /* samples per pipeline */
    double ramp;   /* of the plan's shares of weight gradients */
    int64_t ns;
    double bubble;
};

struct runner {
    const struct job *job;
    struct cost cost; /* with the job's cache times */
    int64_t num_samples, num_test;
    const struct sim_options *options;
    struct freeze freeze;
    struct freeze_replay replay; /* of recorded evidence, policy safe */
    int64_t turn;                /* the present one */
    int epoch;
    struct cache_levels cache;
    double *from;            /* owned, layers + 1: scratch of cache_levels_from() */
    struct plan plan;        /* owned; the plan in force */
    struct step_cost *known; /* owned; the steps of that plan that have been simulated */
    int num_known;
    int64_t max_known;
    double ramp;                       /* of the steps that are being simulated */
    int64_t step, position, num_turns; /* steps of the run and samples of the epoch that are done */
    char reason[160];                  /* the reason of the last decision */
    double device_ns;                  /* devices in use x time */
    double idle_ns;                    /* devices that the plan leaves idle x time */
    int64_t steps_simulated;
    bool extrapolated;
    struct searched searched; /* for the plan of the first turn */
    struct err *err;
};

/* ---- a model whose first `cut` items are replaced by reading their output from the cache ---- */

struct cached_view {
    const struct model *whole;
    const struct cost *base;
    int offset; /* item i of the view is item i + offset of the model, for i > 0 */
    int64_t bytes;
    struct model model; /* owned */
    struct cost cost;   /* its ctx points to this view */
};

static enum status view_item_ns(const void *ctx, const struct model *model, int item,
                                enum pass pass, int64_t samples, const struct device *device,
                                int64_t *ns, bool *extrapolated, struct err *err)
{
    const struct cached_view *view = ctx;
    (void)model;
    if (item > 0)
        return view->base->item_ns(view->base->ctx, view->whole, item + view->offset, pass, samples,
                                   device, ns, extrapolated, err);
    *ns = 0;
    if (pass == PASS_FWD || pass == PASS_FWD_NOGRAD)
        *ns = samples * view->base->cache_read_ns +
              (int64_t)((double)samples * device_copy_ns(device, view->bytes) + 0.5);
    return OK;
}

static double view_near_ns_per_byte(const void *ctx, const struct device *device, enum pass pass,
                                    int64_t distance)
{
    const struct cached_view *view = ctx;
    return view->base->near_ns_per_byte(view->base->ctx, device, pass, distance);
}

static int64_t view_transfer_ns(const void *ctx, const struct cluster *cluster, int from, int to,
                                int64_t bytes)
{
    const struct cached_view *view = ctx;
    return cost_transfer_ns(view->base, cluster, from, to, bytes);
}

static int64_t view_allreduce_ns(const void *ctx, const struct cluster *cluster, const int *devices,
                                 int n, int64_t bytes)
{
    const struct cached_view *view = ctx;
    return cost_allreduce_ns(view->base, cluster, devices, n, bytes);
}

static void view_clear(struct cached_view *view)
{
    model_clear(&view->model);
}

/* Make a view in which layers [0, level) come from the cache. The view must not be moved, because
 * its cost points to it. */
static enum status view_init(struct cached_view *view, const struct model *model,
                             const struct cost *base, int level, struct err *err)
{
    *view = (struct cached_view){.whole = model, .base = base};
    int gone = model_frozen_items(model, level);
    view->offset = gone - 1;
    view->bytes = model->items[gone - 1].act_bytes;
    enum status rc = model_copy(model, &view->model, err);
    if (rc != OK)
        return rc;
    struct model *m = &view->model;
    m->num_items -= view->offset;
    m->num_layers -= level;
    memmove(&m->items[1], &m->items[gone], (size_t)(m->num_items - 1) * sizeof *m->items);
    m->items[0] = (struct item){
        .name = "cache", .kind = ITEM_EMBEDDING, .layer = -1, .act_bytes = view->bytes};
    for (int i = 1; i < m->num_items; i++)
        m->items[i].layer -= level;
    m->num_skips = 0;
    view->cost = *base;
    view->cost.ctx = view;
    view->cost.item_ns = view_item_ns;
    view->cost.near_ns_per_byte = base->near_ns_per_byte ? view_near_ns_per_byte : NULL;
    view->cost.transfer_ns = view_transfer_ns;
    view->cost.allreduce_ns = view_allreduce_ns;
    return OK;
}

/* ---- changes of plan ---- */

/* Set the time and bytes of the change from the old plan to the next one. */
static enum status transition_parts(struct runner *run, const struct plan *old,
                                    const struct plan *plan, struct elastic_epoch *epoch)
{
    struct transition transition = {0};
    enum status rc =
        transition_build(&run->job->model, &run->job->cluster, old, plan, &transition, run->err);
    if (rc != OK)
        return rc;
    const bool shape =
        old->num_ranks != plan->num_ranks || old->num_pipelines != plan->num_pipelines;
    const int64_t setup_ns = shape ? run->job->elastic.setup_ns : 0;
    epoch->moved_bytes += transition.bytes;
    rc = add_ok(epoch->move_ns, transition.ns, &epoch->move_ns) &&
                 add_ok(epoch->setup_ns, setup_ns, &epoch->setup_ns) &&
                 add_ok(epoch->move_ns, epoch->setup_ns, &epoch->transition_ns)
             ? OK
             : ERR_INPUT;
    transition_clear(&transition);
    if (rc != OK)
        return err_set(run->err, ERR_INPUT, "a change of plan is too long to simulate");
    return OK;
}

/* ---- steps ---- */

/* Shift a plan's cut by `offset` items: negative from the model to a view, positive back. */
static void shift_cut(struct plan *plan, int offset)
{
    for (int s = plan->first_item[0] == 0 ? 1 : 0; s <= plan->num_stages; s++)
        plan->first_item[s] += offset;
}

/* The setting of the steps: the job's cluster, slowed as the options say. */
static struct setting step_setting(const struct runner *run)
{
    const struct cluster *slowed = run->options->slowed;
    return (struct setting){&run->job->model, slowed ? slowed : &run->job->cluster, &run->cost};
}

static enum status batch_overflows(const struct runner *run, const struct plan *plan)
{
    return err_set(run->err, ERR_INPUT, "batch %lld x %d replicas overflows",
                   (long long)plan->batch, plan_width(plan));
}

/* The time of one evaluation, see elastic_run.h. */
static enum status evaluation_ns(struct runner *run, const struct plan *plan, int64_t *ns)
{
    struct plan eval = {0};
    struct workload w = {0};
    int64_t global;
    *ns = 0;
    if (!mul_ok(plan->batch, plan_width(plan), &global))
        return batch_overflows(run, plan);
    const int64_t steps = (run->num_test - 1) / global + 1;
    const int64_t rest = run->num_test - (steps - 1) * global;
    const int64_t last = (rest < plan->batch ? rest : plan->batch) - 1;
    /* The micro-batches of the first replica, without the first one of each step. */
    const int64_t others =
        (steps - 1) * (plan->microbatches.count - 1) + last / plan->microbatches.size;
    enum status rc = plan_copy(plan, &eval, run->err);
    if (rc == OK) {
        eval.num_frozen_layers = 0;
        eval.frozen = FROZEN_NONE;
        eval.cache_write = false;
        eval.recompute = RECOMPUTE_STAGE; /* so that forwards keep no stash */
        eval.first_item[0] = 0;
        const struct setting setting = step_setting(run);
        rc = workload_build(&setting, &eval, NULL, &w, run->err);
    }
    run->extrapolated = run->extrapolated || w.extrapolated;
    for (int c = 0; c < w.num_classes && rc == OK; c++) {
        int64_t once = 0, slowest = 0;
        for (int k = 0; k < w.num_ranks; k++) {
            int64_t busy = 0;
            for (int s = 0; s < w.num_stages; s++)
                if (w.rank_of_stage[s] == k)
                    busy += w.stages[c * w.num_stages + s].op_ns[OP_F][MB_FULL];
            once += busy;
            if (busy > slowest)
                slowest = busy;
        }
        for (int e = 0; e < w.num_stages - 1; e++)
            once += workload_edge_ns(&w, c, e, false, MB_FULL);
        int64_t all;
        if (!mul_ok(slowest, others, &all) || !mul_ok(once, steps, &once) ||
            !add_ok(all, once, &all))
            rc = err_set(run->err, ERR_INPUT,
                         "an evaluation of %lld samples is too long (data.test_samples)",
                         (long long)run->num_test);
        else if (all > *ns)
            *ns = all;
    }
    workload_clear(&w);
    plan_clear(&eval);
    return rc;
}

/* Simulate one step of the plan in force with step->batch samples per pipeline. The cache holds
 * level step->from of these samples. The layers from there to the plan's level are computed before
 * the pipeline, and the output is written to the cache. */
static enum status simulate_step(struct runner *run, struct step_cost *step)
{
    struct plan_judge on = {.setting = step_setting(run), .extrapolated = &run->extrapolated};
    struct cached_view view = {0};
    struct plan plan = {0};
    const int frozen = run->plan.num_frozen_layers;
    enum status rc = plan_copy(&run->plan, &plan, run->err);
    if (rc == OK && step->batch < plan.batch) {
        struct microbatches *mb = &plan.microbatches;
        plan.batch = step->batch;
        mb->count = (int)((plan.batch - 1) / mb->size) + 1;
        mb->last_size = plan.batch - mb->size * (mb->count - 1);
    }
    for (int i = 0;
         rc == OK && plan.shares.share && i < plan.num_stages * run->plan.shares.num_micro_batches;
         i++)
        plan.shares.share[i] *= step->ramp;
    if (rc == OK && plan.frozen == FROZEN_CACHED && step->from < frozen) {
        plan.frozen = FROZEN_FIRST;
        plan.cache_write = true;
        if (step->from > 0) {
            rc = view_init(&view, model_at(&run->job->model, frozen), &run->cost, step->from,
                           run->err);
            on.setting.model = &view.model;
            on.setting.cost = &view.cost;
            shift_cut(&plan, -view.offset);
            plan.num_frozen_layers = frozen - step->from;
        }
    }
    THEN(plan_simulate(&on, &plan, run->options, &step->ns, &step->bubble, run->err));
    run->steps_simulated++;
    view_clear(&view);
    plan_clear(&plan);
    return rc;
}

/* Return a step from run->known, or simulate it. */
static enum status step_cost(struct runner *run, int from, int64_t batch, struct step_cost *found)
{
    struct step_cost step = {.from = from, .batch = batch, .ramp = run->ramp};
    for (int i = 0; i < run->num_known; i++)
        if (run->known[i].from == from && run->known[i].batch == batch &&
            run->known[i].ramp == run->ramp) {
            *found = run->known[i];
            return OK;
        }
    enum status rc = simulate_step(run, &step);
    if (rc == ERR_INFEASIBLE && batch < run->plan.batch) {
        /* The schedule allows only some M, which a short batch does not have: take a full step. */
        *run->err = (struct err){0};
        rc = step_cost(run, from, run->plan.batch, found);
        step.ns = found->ns;
        step.bubble = found->bubble;
    }
    if (rc != OK)
        return rc;
    if (!array_grow(&run->known, run->num_known + 1, &run->max_known, sizeof *run->known))
        return err_nomem(run->err);
    run->known[run->num_known++] = step;
    *found = step;
    return OK;
}

/* A step with the present cache: the mean over the levels that its micro-batches find. *read_ns is
 * the time of the step if the cache held everything. */
static enum status mean_step(struct runner *run, int64_t batch, struct step_cost *step,
                             int64_t *read_ns)
{
    const struct plan *plan = &run->plan;
    const int frozen = plan->num_frozen_layers;
    double ns = 0, bubble_ns = 0, most = 0;
    enum status rc = step_cost(run, frozen, batch, step);
    *read_ns = step->ns;
    if (rc != OK || plan->frozen != FROZEN_CACHED)
        return rc;
    cache_levels_from(&run->cache, frozen, plan->microbatches.size, run->from);
    for (int l = 0; rc == OK && l <= frozen; l++) {
        struct step_cost one;
        if (run->from[l] == 0)
            continue;
        rc = step_cost(run, l, batch, &one);
        if (rc != OK)
            return rc;
        ns += run->from[l] * (double)one.ns;
        bubble_ns += run->from[l] * one.bubble * (double)one.ns;
        if (run->from[l] >= most) {
            most = run->from[l];
            step->from = l;
        }
    }
    step->ns = (int64_t)(ns + 0.5);
    step->bubble = ns > 0 ? bubble_ns / ns : 0;
    return rc;
}

/* ---- the run ---- */

/* The state of the run in the present turn, for which the planner is asked. */
static struct run_state ask_of(const struct runner *run, int num_frozen)
{
    return (struct run_state){.turn = run->turn,
                              .epoch = run->epoch,
                              .num_frozen_layers = num_frozen,
                              .num_samples = run->num_samples,
                              .cache_room = run->cache.room,
                              .cache_whole = run->cache.whole,
                              .old = run->plan.num_ranks ? &run->plan : NULL,
                              .given = run->options->plan};
}

/* For the policy safe: the time a sample with F frozen layers, by the planner as in the trainer. A plan
 * that cannot be made leaves 0. */
static enum status predict_sample_ns(void *ctx, int most, double *sample_ns, struct err *err)
{
    struct runner *run = ctx;
    const struct setting setting = {&run->job->model, &run->job->cluster, &run->cost};
    (void)err;
    for (int f = run->freeze.num_frozen; f <= most; f++) {
        const struct run_state state = ask_of(run, f);
        struct planner_result result = {0};
        if (plan_for(run->job, &setting, &state, NULL, &result, NULL) == OK &&
            result.samples_per_s > 0)
            sample_ns[f] = 1e9 / result.samples_per_s;
        planner_result_clear(&result);
    }
    return OK;
}

/* Make the plan that a turn begins with, and add the time of the change to the epoch. */
static enum status change_plan(struct runner *run, int num_frozen, struct elastic_epoch *epoch)
{
    const struct job *job = run->job;
    const struct plan *old = run->plan.num_ranks ? &run->plan : NULL;
    const struct run_state state = ask_of(run, num_frozen);
    const struct setting setting = {&job->model, &job->cluster, &run->cost};
    struct planner_result result = {0};
    const bool keeps = !old && !state.given && !turn_elastic(job) && run->options->first_plan;
    enum status rc = keeps ? run->options->first_plan(run->options->first_plan_ctx, job, &run->cost,
                                                      &state, &result, run->err)
                           : plan_for(job, &setting, &state, NULL, &result, run->err);
    const struct plan *plan = &result.plan;
    if (rc == OK && old)
        rc = transition_parts(run, old, plan, epoch);
    if (rc == OK) {
        if (old && num_frozen < old->num_frozen_layers)
            cache_levels_fall(&run->cache, num_frozen);
        plan_clear(&run->plan);
        run->plan = result.plan;
        if (!old)
            run->searched = result.searched;
        result.plan = (struct plan){0};
        run->num_known = 0;
    }
    planner_result_clear(&result);
    return rc;
}

/* Count the devices that are in use and idle while the present plan runs. */
static void add_device_time(struct runner *run, int64_t ns)
{
    const int64_t used = plan_num_devices(&run->plan);
    run->device_ns += (double)ns * (double)used;
    run->idle_ns += (double)ns * (double)(run->job->cluster.num_devices - used);
}

/* Begin a turn: decide F, and change the plan if the decision asks for it. */
static enum status begin_turn(struct runner *run, int e, struct elastic_epoch *epoch)
{
    const struct job *job = run->job;
    const int64_t turn = turn_at(job, run->step, e), before = epoch->transition_ns;
    int num_frozen;
    if (++run->num_turns > MOST_TURNS)
        return err_set(run->err, ERR_INPUT,
                       "freeze.every_steps %lld: more than %d decisions, too many to simulate",
                       (long long)job->freeze.every_steps, MOST_TURNS);
    const struct turn_facts facts = {job->norms, job->norm_epochs, &run->replay.history};
    const struct freeze_predict predict = {predict_sample_ns, run};
    enum status rc = OK;
    run->turn = turn;
    run->epoch = e;
    if (job->freeze.policy == FREEZE_SAFE && turn > 0)
        rc = freeze_replay_turn(&run->replay, &run->freeze, turn - 1, &predict, run->err);
    THEN(turn_decide(&run->freeze, &facts, turn, &num_frozen, run->reason, run->err));
    if (job->freeze.policy == FREEZE_SAFE && job->evidence.num_rows == 0 && turn > 0)
        snprintf(run->reason, sizeof run->reason,
                 "no evidence recorded (freeze.evidence): nothing freezes");
    if (rc == OK && (!run->plan.num_ranks || turn_changes(job, turn, num_frozen, &run->plan)))
        rc = change_plan(run, num_frozen, epoch);
    add_device_time(run, epoch->transition_ns - before);
    return rc;
}

/* Number of steps until train.max_steps ends the run. */
static int64_t steps_left(const struct runner *run)
{
    const int64_t most = run->job->train.max_steps;
    return most > 0 ? most - run->step : INT64_MAX;
}

/* What `train` multiplies the shares of the next steps with, in the mean, as the policy safe or the ramp
 * has it. *most: how many steps, where the ramp rises a part of a turn. */
static double ramp_of(const struct runner *run, int64_t global, int64_t *most)
{
    enum { PARTS = 8 }; /* of a turn, within which one step stands for all */
    const struct job *job = run->job;
    if (!run->plan.shares.share)
        return 1;
    if (job->freeze.policy == FREEZE_SAFE)
        return run->freeze.safe.share / job->freeze.max_share;
    const int64_t turn =
        job->freeze.every_steps > 0 ? job->freeze.every_steps : (run->num_samples - 1) / global + 1;
    const double now = turn_ramp(job, run->step, run->epoch, run->position, run->num_samples);
    if (now >= 1)
        return 1;
    *most = *most < turn / PARTS + 1 ? *most : turn / PARTS + 1;
    const int64_t left = (run->num_samples - run->position - 1) / global;
    const int64_t last = *most - 1 < left ? *most - 1 : left;
    return (now + turn_ramp(job, run->step + last, run->epoch, run->position + last * global,
                            run->num_samples)) /
           2;
}

/* Run steps until the next turn, the end of the epoch or the end of the run, or as many as a ramp
 * allows. Adds to *bubble_ns. */
static enum status run_steps(struct runner *run, struct elastic_epoch *epoch, double *bubble_ns)
{
    const struct plan *plan = &run->plan;
    const bool cached = plan->frozen == FROZEN_CACHED;
    const int64_t left = run->num_samples - run->position;
    const int64_t until_turn = turn_steps_left(run->job, run->step), until_end = steps_left(run);
    int64_t most = until_turn < until_end ? until_turn : until_end;
    struct step_cost step, last;
    int64_t global, read_ns, last_read_ns, ns;
    if (!mul_ok(plan->batch, plan_width(plan), &global))
        return batch_overflows(run, plan);
    run->ramp = ramp_of(run, global, &most);
    int64_t steps = (left - 1) / global + 1;
    const bool ends = steps <= most;
    steps = ends ? steps : most;
    const int64_t rest = ends ? left - (steps - 1) * global : global;
    const int64_t most_of_one = rest < plan->batch ? rest : plan->batch; /* of the first replica */
    enum status rc = mean_step(run, plan->batch, &step, &read_ns);
    if (rc != OK)
        return rc;
    if (!mul_ok(steps, step.ns, &ns) || ns > INT64_MAX / 4)
        return err_set(run->err, ERR_INPUT,
                       "an epoch of %lld samples is too long to simulate (data.train_samples)",
                       (long long)run->num_samples);
    rc = mean_step(run, most_of_one, &last, &last_read_ns);
    if (rc != OK)
        return rc;
    ns = (steps - 1) * step.ns + last.ns;
    if (!add_ok(epoch->epoch_ns, ns, &epoch->epoch_ns))
        return err_set(run->err, ERR_INPUT,
                       "an epoch of %lld samples is too long to simulate (data.train_samples)",
                       (long long)run->num_samples);
    const bool whole = epoch->steps == 0 && ends;
    epoch->steps += steps;
    epoch->step_ns = whole ? step.ns : epoch->epoch_ns / epoch->steps;
    epoch->last_step_ns = last.ns;
    epoch->cache_ns += ns - (steps - 1) * read_ns - last_read_ns;
    epoch->cache_read = cached ? step.from : 0;
    epoch->cache_write |= cached && run->from[plan->num_frozen_layers] < 1;
    *bubble_ns += (double)ns * step.bubble;
    add_device_time(run, ns);
    cache_levels_visit(&run->cache,
                       (double)(ends ? left : steps * global) / (double)run->num_samples, cached,
                       plan->num_frozen_layers);
    run->step += steps;
    run->position = ends ? run->num_samples : run->position + steps * global;
    return OK;
}

static enum status one_epoch(struct runner *run, int e, struct elastic_epoch *epoch)
{
    const struct job *job = run->job;
    const int64_t every = job->train.eval_every_epochs;
    const struct plan *plan = &run->plan;
    double bubble_ns = 0;
    enum status rc = OK;
    *epoch = (struct elastic_epoch){0};
    run->position = 0;
    cache_levels_begin(&run->cache, e);
    while (rc == OK && run->position < run->num_samples && steps_left(run) > 0) {
        if (turn_begins(job, run->step, run->position))
            rc = begin_turn(run, e, epoch);
        THEN(run_steps(run, epoch, &bubble_ns));
    }
    if (rc != OK)
        return rc;
    cache_levels_end(&run->cache);
    epoch->frozen_layers = plan->num_frozen_layers;
    epoch->pipeline_length = plan->num_ranks;
    epoch->replicas = plan_width(plan);
    epoch->devices = plan_num_devices(plan);
    epoch->microbatches = plan->microbatches.count;
    epoch->microbatch_size = plan->microbatches.size;
    epoch->schedule = plan->schedule;
    epoch->frozen = plan->frozen;
    epoch->samples = run->position;
    epoch->samples_per_s =
        epoch->epoch_ns > 0 ? (double)epoch->samples * 1e9 / (double)epoch->epoch_ns : 0;
    epoch->bubble_fraction = epoch->epoch_ns > 0 ? bubble_ns / (double)epoch->epoch_ns : 0;
    memcpy(epoch->reason, run->reason, sizeof epoch->reason);
    const bool last = e == job->train.epochs - 1 || steps_left(run) == 0;
    const bool due = every > 0 && (e + 1) % every == 0 && run->position == run->num_samples;
    if (run->num_test > 0 && (last || due))
        rc = evaluation_ns(run, plan, &epoch->eval_ns);
    return rc;
}

static enum status open_runner(struct runner *run, struct err *err)
{
    const struct job *job = run->job;
    const int64_t views = job_views(job);
    const double *room = run->options ? run->options->cache_room : NULL;
    enum status rc;
    if (run->num_samples < 1)
        return err_set(err, ERR_INPUT,
                       "data.train_samples must be set: the data kind has no published size");
    if (job->train.epochs < 1)
        return err_set(err, ERR_INFEASIBLE, "train.epochs is 0: there is no step to simulate");
    rc = freeze_init(&run->freeze, &job->freeze, job->model.num_layers, err);
    run->replay.recorded = &job->evidence;
    const int64_t source = job_probe_limit(job, run->num_samples, run->num_test);
    run->freeze.passes = job_probe_passes(job, run->num_samples, source);
    run->freeze.keeps = job_probe_keeps(job, run->num_samples, source);
    THEN(cache_levels_init(&run->cache, job->model.num_layers, views > 0 ? views : 1,
                           room ? *room : cache_job_room(job, run->num_samples),
                           cache_whole_wanted(job, run->cost.bits_independent_of_row_count), err));
    run->from = calloc((size_t)job->model.num_layers + 1, sizeof *run->from);
    return rc == OK && !run->from ? err_nomem(err) : rc;
}

enum status elastic_run(const struct job *job, const struct cost *cost, int64_t num_samples,
                        int64_t num_test, const struct sim_options *options,
                        struct elastic_run *result, struct err *err)
{
    int num = job->train.epochs;
    struct err local = {0};
    struct runner run = {.job = job,
                         .cost = turn_cost(job, cost),
                         .num_samples = num_samples,
                         .num_test = num_test,
                         .options = options,
                         .err = &local};
    struct elastic_run got = {0};
    enum status rc = open_runner(&run, &local);
    if (rc != OK)
        goto out;
    got.epochs = calloc((size_t)num, sizeof *got.epochs);
    if (!got.epochs)
        rc = err_nomem(&local);
    for (int e = 0; rc == OK && e < num && steps_left(&run) > 0; e++) {
        const struct elastic_epoch *epoch = &got.epochs[e];
        got.num_epochs++;
        rc = one_epoch(&run, e, &got.epochs[e]);
        if (rc == OK && (!add_ok(got.total_ns, epoch->epoch_ns, &got.total_ns) ||
                         !add_ok(got.total_ns, epoch->transition_ns, &got.total_ns)))
            rc = err_set(&local, ERR_INPUT, "a run of %d epochs is too long to simulate", num);
        if (rc == OK && !add_ok(got.samples, epoch->samples, &got.samples))
            rc = err_set(&local, ERR_INPUT, "a run of %d epochs has too many samples", num);
        if (rc == OK && !add_ok(got.eval_ns, epoch->eval_ns, &got.eval_ns))
            rc = err_set(&local, ERR_INPUT, "evaluations are too long to simulate");
    }
    if (rc != OK)
        goto out;
    got.stopped = got.num_epochs < num || run.position < num_samples;
    got.device_hours = run.device_ns / 3.6e12;
    got.device_hours_idle = run.idle_ns / 3.6e12;
    got.steps_simulated = run.steps_simulated;
    got.extrapolated = run.extrapolated;
    got.searched = run.searched;
    *result = got;
    got = (struct elastic_run){0};
out:
    if (rc != OK)
        err_copy(err, &local);
    freeze_clear(&run.freeze);
    freeze_replay_clear(&run.replay);
    cache_levels_clear(&run.cache);
    plan_clear(&run.plan);
    free(run.from);
    free(run.known);
    elastic_run_clear(&got);
    return rc;
}

double elastic_speedup(const struct elastic_run *run, const struct elastic_run *other)
{
    if (run->total_ns <= 0 || other->samples <= 0)
        return 0;
    const double times = (double)other->total_ns / (double)run->total_ns;
    const double share = (double)run->samples / (double)other->samples;
    return run->stopped || other->stopped ? times * share : times;
}

void elastic_run_clear(struct elastic_run *run)
{
    free(run->epochs);
    *run = (struct elastic_run){0};
}
