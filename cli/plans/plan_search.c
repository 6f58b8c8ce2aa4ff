#include "cli/plans/plan_search.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/command.h"
#include "cli/plans/plan_memory.h"
#include "partition/base/units.h"
#include "partition/search/plan_for.h"
#include "profiles/base/clock.h"
#include "profiles/base/ticker.h"
#include "profiles/job/job_json.h"
#include "sim/run/plan_judge.h"

/* The shares of the budget at which each phase of the search ends: while the best plan so far is not safe, while
 * it is, and of the search for a safe plan, which has what is left. */
static const double first_shares[PLANNER_PHASE_COUNT] = {0.35, 0.55, 0.7},
                    whole_shares[PLANNER_PHASE_COUNT] = {0.65, 0.85, 1},
                    safe_shares[PLANNER_PHASE_COUNT] = {0.8, 0.9, 1};
/* A search without any plan yet takes this many times its share. */
#define PATIENCE 6
/* plan_for_sim() searches by the planner's own times for at most this part of its budget. */
#define PLAIN_SHARE 0.2
/* Limits of the search for a larger cluster on which the job fits: its time, and its devices. */
#define HINT_NS ((int64_t)1000000000)
#define HINT_DEVICES 16384

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

struct watch {
    struct ticker ticker;
    int64_t begin_work_ns, budget_ns; /* of the thread's processor time */
    int64_t looks, max_looks;         /* calls of search_continues(); max_looks > 0: the budget */
    int64_t deadline_ns;              /* of the clock; 0: none */
    const double *shares;             /* by phase */
    double patience;
    double safe_memory; /* a plan that needs no more of its memory is safe; 0: no plan must be */
    bool first;         /* any plan will do */
    bool ended;         /* a search was ended before its end */
};

/* Tell how far a long search is. Most candidates are never judged, and how many will be is not
 * known before the end, so there is no estimate of the time left. */
static void show_progress(struct ticker *ticker, int64_t ns, const struct planner_progress *p)
{
    char text[200], time[32], bound[64] = "";
    if (p->bound_per_s > 0 && p->bound_per_s < 1e15)
        snprintf(bound, sizeof bound, ", at most %.4g", p->bound_per_s);
    snprintf(text, sizeof text,
             "plan: %s, %" PRId64 " candidates, %" PRId64
             " cuts of them judged, best so far %.4g samples/s%s%s",
             format_ns(ns, time, sizeof time), p->candidates, p->evaluated, p->best_per_s, bound,
             p->phase == PLANNER_JUDGES ? ", simulating" : "");
    ticker_say(ticker, stderr, text);
}

/* Whether the search has had this share of its budget. Processor time is no more than the time of
 * the clock, which costs less to read. */
static bool used_up(const struct watch *watch, double share)
{
    const double ns = share * (double)watch->budget_ns;
    const int64_t clock_ns = clock_now_ns() - watch->ticker.begin_ns;
    if (watch->deadline_ns > 0 && (double)clock_ns >= share * (double)watch->deadline_ns)
        return true;
    if (watch->max_looks > 0)
        return (double)watch->looks >= share * (double)watch->max_looks;
    return (double)clock_ns >= ns && (double)(clock_work_ns() - watch->begin_work_ns) >= ns;
}

static bool search_continues(void *ctx, const struct planner_progress *p)
{
    struct watch *watch = ctx;
    const int64_t ns = clock_now_ns() - watch->ticker.begin_ns;
    if (ticker_due(&watch->ticker))
        show_progress(&watch->ticker, ns, p);
    watch->looks++;
    const double patience = p->best_per_s > 0 ? 1 : watch->patience;
    const bool safe = p->best_per_s > 0 && p->memory_share <= watch->safe_memory;
    watch->ended = interrupted || (watch->first && p->best_per_s > 0) ||
                   used_up(watch, (safe ? whole_shares : watch->shares)[p->phase] * patience);
    return !watch->ended;
}

void searched_add(struct json *json, const struct searched *searched, bool timed)
{
    json_add_bool(json, "complete", searched->complete);
    json_add_int(json, "judged", searched->judged);
    if (timed)
        json_add_int(json, "processor_ns", searched->work_ns);
}

double plan_memory_share(const struct plan *plan, const struct cluster *cluster)
{
    double most = 0;
    for (int i = 0; plan->memory_bytes && i < plan->num_ranks * plan->num_pipelines; i++) {
        const int64_t have = cluster->devices[plan->device[i]].mem_bytes;
        if (have != INT64_MAX)
            most = fmax(most, (double)plan->memory_bytes[i % plan->num_ranks] / (double)have);
    }
    return most;
}

/* Make the plan of `safe`, which it loses, the chosen one of `result`. Its bound and all other
 * fates stay; lengths are kept if they are of the new plan's layout. */
static void choose_safe(struct planner_result *result, struct planner_result *safe)
{
    const double bound =
        (double)plan_samples(&result->plan) / ((double)result->lower_bound_ns + result->fill_ns);
    plan_clear(&result->plan);
    free(result->stage_ns);
    result->plan = safe->plan;
    result->stage_ns = safe->stage_ns;
    result->fill_ns = safe->fill_ns;
    result->samples_per_s = safe->samples_per_s;
    safe->plan = (struct plan){0};
    safe->stage_ns = NULL;
    const struct plan *plan = &result->plan;
    const double least = (double)plan_samples(plan) / bound - result->fill_ns;
    result->lower_bound_ns = (int64_t)fmax(1, fmin(floor(least), (double)plan->step_ns));
    result->gap = (double)plan->step_ns / (double)result->lower_bound_ns - 1;
    result->searched.judged += safe->searched.judged;
    result->searched.complete = result->searched.complete && safe->searched.complete;
    planner_result_shift(result);
    result->best[0] = safe->best[0];
    safe->best[0] = (struct planner_candidate){0};
    planner_result_mark(result);
}

/* Replace a result that is not safe by the best of the safe plans that are nearly as fast, if there
 * is one: search once more, with less memory and a floor. The bound of the first search stays. */
static enum status prefer_safe(const struct job *job, const struct run_state *state,
                               const struct planner_judge *judge, struct planner_result *result,
                               struct err *err)
{
    struct plan_judge *engine = judge->ctx;
    struct watch *watch = judge->watch_ctx;
    struct planner_judge above = *judge;
    struct job less = *job; /* borrows all but the cluster */
    struct planner_result safe = {0};
    struct err why = {0};
    const struct plan_margin margin =
        plan_margin_of(job_headroom(job), &job->model, engine->setting.cost);
    if (plan_memory_share(&result->plan, &job->cluster) <= 1 - margin.memory)
        return OK;
    watch->shares = safe_shares;
    watch->patience = 1;
    watch->safe_memory = 0;
    if (interrupted || used_up(watch, safe_shares[PLANNER_SEARCHES])) {
        result->searched.complete = false;
        return OK;
    }
    less.cluster = (struct cluster){0};
    if (!result->plan.layout.offload) /* the host's memory is no margin of the device's */
        less.pipeline.offload = OFFLOAD_NONE;
    else if (less.pipeline.offload == OFFLOAD_FIT)
        less.pipeline.offload = OFFLOAD_OPTIMIZER;
    enum status rc = cluster_copy(&job->cluster, &less.cluster, err);
    if (rc != OK)
        return rc;
    for (int d = 0; d < less.cluster.num_devices; d++) {
        struct device *device = &less.cluster.devices[d];
        if (device->mem_bytes != INT64_MAX)
            device->mem_bytes = (int64_t)((double)device->mem_bytes * (1 - margin.memory));
    }
    const struct setting all = engine->setting, setting = {&job->model, &less.cluster, all.cost};
    plan_judge_set(engine, &setting);
    watch->ended = false;
    above.floor_per_s = result->samples_per_s * (1 - margin.nearly);
    rc = plan_for(&less, &setting, state, &above, &safe, &why);
    plan_judge_set(engine, &all);
    cluster_clear(&less.cluster);
    if (rc == OK && safe.samples_per_s >= above.floor_per_s)
        choose_safe(result, &safe);
    else if (rc == ERR_INFEASIBLE || rc == ERR_UNFINISHED)
        rc = OK;
    else if (rc != OK)
        err_copy(err, &why);
    result->searched.complete = result->searched.complete && !watch->ended;
    planner_result_clear(&safe);
    return rc;
}

/* Whether the job has a plan on this number of nodes like its first one. *devices becomes their
 * devices. */
static bool fits_nodes(const struct job *job, const struct run_state *state,
                       const struct planner_judge *judge, int num_nodes, int *devices)
{
    struct plan_judge *engine = judge->ctx;
    struct planner_judge any = {.watch = judge->watch, .watch_ctx = judge->watch_ctx};
    struct job more = job_with_named_schedules(job); /* borrows all but the cluster */
    struct planner_result result = {0};
    more.cluster = (struct cluster){0};
    if (cluster_copy(&job->cluster, &more.cluster, NULL) != OK)
        return false;
    const struct setting setting = {&job->model, &more.cluster, engine->setting.cost};
    const bool fits = cluster_set_nodes(&more.cluster, num_nodes, NULL) == OK &&
                      plan_for(&more, &setting, state, &any, &result, NULL) == OK;
    *devices = more.cluster.num_devices;
    cluster_clear(&more.cluster);
    planner_result_clear(&result);
    return fits;
}

/* No plan exists. If one does on more nodes, say how many devices would do. Whatever time the
 * search had, this one has a second, or as many looks as the search. */
static void hint_devices(const struct job *job, const struct run_state *state,
                         const struct planner_judge *judge, struct err *err)
{
    struct watch *watch = judge->watch_ctx;
    const struct cluster *cluster = &job->cluster;
    const int a_node = cluster->num_devices / cluster->num_nodes;
    int low = cluster->num_nodes, high = 0, devices = 0, would_do = 0;
    for (int d = 1; d < cluster->num_devices; d++)
        if (cluster->devices[d].mem_bytes != cluster->devices[0].mem_bytes ||
            strcmp(cluster->devices[d].kind, cluster->devices[0].kind) != 0)
            return;
    watch->first = true;
    watch->shares = safe_shares;
    watch->patience = 1;
    watch->deadline_ns = 0;
    watch->budget_ns = clock_work_ns() - watch->begin_work_ns + HINT_NS;
    if (watch->max_looks > 0)
        watch->max_looks += watch->looks;
    /* Double the nodes until a plan exists, then bisect. */
    while ((high == 0 && low <= HINT_DEVICES / 2 / a_node) || high - low > 1) {
        const int nodes = high == 0 ? 2 * low : low + (high - low) / 2;
        if (used_up(watch, 1))
            break;
        if (fits_nodes(job, state, judge, nodes, &devices)) {
            high = nodes;
            would_do = devices;
        } else {
            low = nodes;
        }
    }
    if (would_do == 0)
        return;
    err->hint[0] = 0; /* in place of "more devices" */
    err_hint(err, "%d such devices are enough", would_do);
}

/* Search within watch->budget_ns by the event engine, or without it if `unshared`. */
static enum status search_once(const struct job *job, struct plan_judge *engine,
                               const struct run_state *state, const struct plan_search *search,
                               struct watch *watch, struct planner_result *result, struct err *err)
{
    const struct planner_judge judge = {.step_ns = search->unshared ? NULL : plan_judge_step,
                                        .ctx = engine,
                                        .all = search->explain,
                                        .watch = search_continues,
                                        .watch_ctx = watch};
    const bool optimal = job->pipeline.balancer == BALANCER_OPTIMAL,
               weighs = optimal && !search->fills;
    watch->shares = first_shares;
    watch->patience = PATIENCE;
    watch->ended = false;
    watch->safe_memory =
        weighs ? 1 - plan_margin_of(job_headroom(job), &job->model, engine->setting.cost).memory
               : 0;
    ticker_begin(&watch->ticker, command_progress(search->quiet));
    watch->begin_work_ns = clock_work_ns();
    enum status rc = plan_for(job, &engine->setting, state, &judge, result, err);
    if (rc == OK && weighs)
        rc = prefer_safe(job, state, &judge, result, err);
    else if (rc == ERR_INFEASIBLE && search->advise && !interrupted && optimal)
        hint_devices(job, state, &judge, err);
    ticker_clear(&watch->ticker, stderr);
    if (rc == OK)
        result->searched.work_ns = clock_work_ns() - watch->begin_work_ns;
    return rc;
}

static int64_t budget_of(const struct plan_time *time)
{
    return time->budget_ns > 0 ? time->budget_ns : PLAN_LONGEST_NS;
}

enum status plan_search(const struct job *job, const struct cost *cost,
                        const struct plan_search *search, struct planner_result *result,
                        struct err *err)
{
    const struct run_state state = {.num_frozen_layers = search->num_frozen_layers,
                                    .num_samples = job_num_samples(job, true),
                                    .cache_room = search->cached,
                                    .cache_filled = search->cached};
    struct plan_judge engine = {
        .setting = {&job->model, &job->cluster, cost}
    };
    struct watch watch = {.budget_ns = budget_of(&search->time),
                          .deadline_ns = search->time.deadline_ns,
                          .max_looks = search->time.max_looks};
    struct sigaction stop = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, before;
    interrupted = 0;
    sigaction(SIGINT, &stop, &before);
    const enum status rc = search_once(job, &engine, &state, search, &watch, result, err);
    sigaction(SIGINT, &before, NULL);
    if (rc == ERR_UNFINISHED)
        err_hint(err, "--budget gives the search more time");
    return rc;
}

/* Whether plan_search() may answer another plan than the one that was found without the engine. */
static enum status may_differ(const struct job *job, struct plan_judge *engine,
                              const struct planner_result *result, bool *differs, struct err *err)
{
    int64_t step_ns = 0;
    *differs = !result->searched.complete ||
               plan_memory_share(&result->plan, &job->cluster) >
                   1 - plan_margin_of(job_headroom(job), &job->model, engine->setting.cost).memory;
    if (*differs)
        return OK;
    const enum status rc = plan_judge_step(engine, &result->plan, &step_ns, err);
    *differs = rc == ERR_INFEASIBLE || step_ns > result->plan.step_ns;
    return rc == ERR_INFEASIBLE ? OK : rc;
}

/* The rest of a limit after `spent_ns`: at least 1, because a limit of 0 means that there is
 * none. */
static int64_t left_of(int64_t whole_ns, int64_t spent_ns)
{
    return whole_ns > spent_ns ? whole_ns - spent_ns : 1;
}

enum status plan_for_sim(const void *ctx, const struct job *job, const struct cost *cost,
                         const struct run_state *state, struct planner_result *result,
                         struct err *err)
{
    struct plan_judge engine = {
        .setting = {&job->model, &job->cluster, cost},
        .keep = ((const struct plan_time *)ctx)->keep
    };
    const struct plan_search plain = {.quiet = true, .unshared = true, .fills = true},
                             judged = {.quiet = true};
    const struct plan_time *time = ctx;
    const int64_t begin_ns = clock_work_ns(), start_ns = clock_now_ns();
    struct watch watch = {.budget_ns = (int64_t)(PLAIN_SHARE * (double)budget_of(time)),
                          .deadline_ns = (int64_t)(PLAIN_SHARE * (double)time->deadline_ns),
                          .max_looks = (int64_t)(PLAIN_SHARE * (double)time->max_looks)};
    struct planner_result better = {0};
    struct err why = {0};
    bool differs = true;
    enum status rc = search_once(job, &engine, state, &plain, &watch, result, &why);
    const enum status plain_rc = rc;
    if (rc == OK && job->pipeline.balancer != BALANCER_OPTIMAL)
        return OK;
    if (rc == OK)
        rc = may_differ(job, &engine, result, &differs, &why);
    else if (rc == ERR_UNFINISHED)
        rc = OK; /* the time was too short for a first plan */
    if (rc != OK)
        return err_copy(err, &why);
    if (!differs)
        return OK;
    watch.budget_ns = left_of(budget_of(time), clock_work_ns() - begin_ns);
    if (time->deadline_ns > 0)
        watch.deadline_ns = left_of(time->deadline_ns, clock_now_ns() - start_ns);
    if (time->max_looks > 0)
        watch.max_looks = left_of(time->max_looks, watch.looks);
    watch.looks = 0;
    rc = search_once(job, &engine, state, &judged, &watch, &better, &why);
    if (rc == OK) {
        planner_result_clear(result);
        *result = better;
    } else if ((rc == ERR_INFEASIBLE || rc == ERR_UNFINISHED) && plain_rc == OK) {
        rc = OK; /* the engine takes none of the plans that it was asked about, or had no time */
    } else {
        err_copy(err, &why);
    }
    if (rc == OK)
        result->searched.work_ns = clock_work_ns() - begin_ns;
    if (rc == ERR_UNFINISHED)
        err_hint(err, "--budget gives the search more time");
    return rc;
}
