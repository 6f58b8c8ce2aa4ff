/* Today's layout is made into a plan as if memory were unlimited, given the command's cut, and
 * simulated; then its memory is held against the devices. It is a candidate of the search for the
 * best. Read plan_from() at the end first. */
#include "cli/frameworks/plan_from.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plans/plan_memory.h"
#include "cli/plans/plan_search.h"
#include "cli/plans/plan_show.h"
#include "cli/simulate/sim_command.h"
#include "partition/base/units.h"
#include "partition/search/turn.h"
#include "partition/step/recompute_fit.h"
#include "profiles/base/clock.h"
#include "profiles/frameworks/command_job.h"
#include "profiles/job/job_json.h"

/* A layout with its job and its costs. */
struct side {
    struct job job;
    struct cost_handle cost;
    struct plan_answer answer;
};

static void side_clear(struct side *side)
{
    plan_answer_clear(&side->answer);
    cost_handle_clear(&side->cost);
    job_clear(&side->job);
}

static enum status side_open(const struct plan_from *ask, const struct json *json,
                             struct side *side, struct err *err)
{
    enum status rc = job_from_json(json, ask->framework, NULL, ask->overrides->items,
                                   ask->overrides->count, &side->job, err);
    THEN(cost_choose(ask->db_path, &side->job, &side->cost, err));
    if (rc == OK)
        side->cost.cost = turn_cost(&side->job, &side->cost.cost);
    return rc;
}

/* Search for a part, 1 / part, of the time. */
static enum status search(const struct plan_from *ask, const struct job *job,
                          const struct cost *cost, int64_t part, struct plan_answer *answer)
{
    const struct plan_search search = {
        .unshared = ask->unshared,
        .quiet = ask->quiet,
        .advise = true,
        .time = {ask->time.budget_ns / part, ask->time.deadline_ns / part,
                 ask->time.max_looks / part}
    };
    const int64_t begin = clock_now_ns();
    enum status rc = plan_search(job, cost, &search, &answer->result, &answer->err);
    THEN(plan_answer_finish(job, cost, answer));
    answer->solve_ns = clock_now_ns() - begin;
    return rc;
}

/* --- today ------------------------------------------------------------------------------------- */

/* Cut the plan as the command does. */
static enum status cut_as_given(const struct job *job, const struct command_job *given,
                                struct plan *plan, struct err *err)
{
    const struct item *items = job->model.items;
    if (given->blocks && given->num_stages != plan->num_stages)
        return err_set(err, ERR_INPUT, "the cut has %d stages, the plan %d", given->num_stages,
                       plan->num_stages);
    for (int s = 0, item = 0; s < plan->num_stages && given->blocks; s++) {
        plan->first_item[s] = item;
        for (int b = 0; b < given->blocks[s] && item < job->model.num_items; b++)
            for (const int layer = items[item].layer;
                 item < job->model.num_items && items[item].layer == layer;)
                item++;
    }
    for (int s = 0; s < plan->num_stages && plan->recompute == RECOMPUTE_LAYER; s++) {
        const int has = recompute_layers_of(&job->model, plan, s);
        const int asked = job->pipeline.recompute_layers;
        plan->recompute_layers[s] = asked != AUTO && asked < has ? asked : has;
    }
    return plan_check(plan, &job->model, &job->cluster, err);
}

/* Time the plan of a job whose memory is unlimited, and find what it needs on the true cluster. */
static enum status judge(const struct plan_from *ask, const struct job *ample, struct side *today,
                         struct err *err)
{
    struct plan_answer *const a = &today->answer;
    struct step_request request;
    struct step_answer step = {0};
    step_request_init(&request);
    request.db_path = ask->db_path;
    enum status rc = sim_step_of_job(&request, ample, &a->result.plan, &step, err);
    if (rc == OK) {
        const struct setting of = {&today->job.model, &today->job.cluster, &step.cost.cost};
        rc = plan_memory_find(&of, &step.plan, &a->memory, err);
        a->memory.margin = plan_margin_of(job_headroom(&today->job), &today->job.model, of.cost);
        a->rates = step_answer_rates(&step);
        a->result.samples_per_s = step_answer_samples_per_s(&step);
        step.plan.step_ns = llround((double)today->job.train.batch / a->result.samples_per_s * 1e9);
    }
    a->result.plan = step.plan;
    step.plan = (struct plan){0};
    step_answer_clear(&step);
    return rc;
}

/* Make the plan of the job's layout. Its framework places ranks, but what the search may choose there
 * does not bind a layout that is given. */
static enum status make_today(const struct plan_from *ask, const struct command_job *given,
                              struct side *today, struct err *err)
{
    struct job ample = today->job; /* borrows all but the cluster */
    struct plan_target target = {0};
    struct err *const why = &today->answer.err;
    ample.cluster = (struct cluster){0};
    if (today->job.pipeline.target) {
        target = *today->job.pipeline.target;
        ample.pipeline.target = &target;
        target.given = true;
    }
    enum status rc = cluster_copy(&today->job.cluster, &ample.cluster, err);
    for (int d = 0; rc == OK && d < ample.cluster.num_devices; d++)
        ample.cluster.devices[d].mem_bytes = INT64_MAX;
    if (rc == OK && search(ask, &ample, &today->cost.cost, 4, &today->answer) == OK) {
        rc = cut_as_given(&ample, given, &today->answer.result.plan, err);
        THEN(judge(ask, &ample, today, err));
    } else if (rc == OK && why->status == OK) {
        err_set(why, ERR_INFEASIBLE, "no plan");
    }
    cluster_clear(&ample.cluster);
    return rc;
}

static bool fits(const struct plan_memory *memory)
{
    return memory->limit_bytes == INT64_MAX || memory->peak_bytes <= memory->limit_bytes;
}

/* Why a layout does not run; "" if it does. */
static void why_not(const struct plan_answer *a, char *text, size_t size)
{
    *text = '\0';
    if (a->err.status != OK)
        snprintf(text, size, "%s", a->err.msg);
    else if (!fits(&a->memory))
        plan_memory_needs(&a->memory, text, size);
}

/* --- the answer -------------------------------------------------------------------------------- */

static void print_layout(const char *what, const struct side *side)
{
    const struct plan_answer *const a = &side->answer;
    const struct plan *p = &a->result.plan;
    char time[32], rates[256], why[512];
    why_not(a, why, sizeof why);
    if (a->err.status != OK) {
        printf("%-6s %s\n", what, why);
        return;
    }
    printf("%-6s PP %d, TP %d, DP %d, VP %d, EP %d, CP %d, %s, shard %s, recompute %s: %s%s%s\n",
           what, p->num_ranks, layout_tensor(&p->layout), plan_width(p),
           p->num_stages / p->num_ranks, layout_expert(&p->layout), layout_context(&p->layout),
           schedule_kind_name(p->schedule), shard_mode_name(p->layout.shard),
           recompute_mode_name(p->recompute), *why ? why : format_ns(p->step_ns, time, sizeof time),
           *why ? "" : ", ",
           *why ? "" : rates_text(&a->rates, &side->cost.cost, rates, sizeof rates));
}

static void add_layout(struct json *out, const char *key, const struct side *side)
{
    char why[512];
    struct json *const json = json_add_object(out, key);
    why_not(&side->answer, why, sizeof why);
    plan_show_add(json, &side->answer, &side->job.cluster);
    json_add_bool(json, "runs", !*why);
    if (*why)
        json_add_string(json, "why_not", why);
}

/* Open the layout of a job, but for what the framework fixes. */
static void open_layout(const struct command_job *given)
{
    struct json *const job = given->job;
    json_remove(job, "pipeline");
    if (given->fixed)
        json_add_copy(job, "pipeline", given->fixed);
    json_remove(json_path(job, "train.batch"), "micro");
}

/* Take the model of --model, where the settings name none; they may have the length of its rows. */
static enum status add_model(const struct plan_from *ask, struct json *job, struct err *err)
{
    const bool named = json_path(job, "model.preset") || json_path(job, "model.family");
    if (!named && !ask->model)
        return err_set(err, ERR_INPUT, "%s names no model: give --model MODEL", ask->framework);
    if (named && ask->model)
        return err_set(err, ERR_INPUT, "--model: the flags of %s name the model", ask->framework);
    if (ask->model && json_get(job, "model"))
        job_set(job, "model.preset", ask->model);
    else if (ask->model)
        json_add_string(job, "model", ask->model);
    return OK;
}

static void print_sides(const struct side *today, const struct side *best, double faster,
                        const struct json *not_counted, bool stages)
{
    print_layout("today", today);
    print_layout("best", best);
    if (faster > 1)
        printf("%-6s %.3gx as fast as today\n", "", faster);
    else if (faster > 0)
        printf("nothing faster was found\n");
    for (struct json *name = json_first(not_counted); name; name = json_next(name))
        printf("not counted: %s\n", json_string(name));
    if (best->answer.err.status == OK) {
        printf("\nthe best plan:\n");
        plan_show_print(&best->job, &best->cost, &best->answer, NULL, stages);
    }
}

enum status plan_from(const struct command *command, const struct plan_from *ask, const char *text,
                      struct err *err)
{
    struct cluster cluster = {0};
    struct model model = {0};
    struct command_job given = {0};
    struct side today = {0}, other = {0};
    const struct plan_target *target = NULL;
    enum status rc = cluster_load(ask->cluster, &cluster, err);
    if (ask->model)
        THEN(model_load(ask->model, &model, err));
    THEN(
        command_job_read(ask->framework, text, cluster.num_devices, model.num_layers, &given, err));
    THEN(add_model(ask, given.job, err));
    if (rc == OK && given.target)
        rc = target_find(given.target, &target, err);
    if (rc == OK)
        json_add_string(given.job, "cluster", ask->cluster);
    THEN(side_open(ask, given.job, &today, err));
    today.job.pipeline.target = target;
    THEN(make_today(ask, &given, &today, err));
    if (rc == OK)
        open_layout(&given);
    THEN(side_open(ask, given.job, &other, err));
    other.job.pipeline.target = target;
    if (rc == OK)
        search(ask, &other.job, &other.cost.cost, 1, &other.answer);
    const bool runs = rc == OK && today.answer.err.status == OK && fits(&today.answer.memory);
    const double now = runs ? today.answer.result.samples_per_s : 0;
    const bool found = other.answer.err.status == OK && other.answer.result.samples_per_s > now;
    const struct side *const best = found || !runs ? &other : &today;
    const double faster = now > 0 ? best->answer.result.samples_per_s / now : 0;
    if (rc == OK && ask->as_json) {
        struct json *const out = plan_show_begin(command, &today.job, &today.cost);
        add_layout(out, "today", &today);
        add_layout(out, "best", best);
        if (faster > 0)
            json_add_double(out, "faster", faster);
        json_add_copy(out, "not_counted", given.not_counted);
        rc = command_answer(out, err);
    } else if (rc == OK) {
        print_sides(&today, best, faster, given.not_counted, ask->stages);
    }
    if (rc == OK && best->answer.err.status != OK)
        rc = err_copy(err, &best->answer.err);
    side_clear(&today);
    side_clear(&other);
    command_job_clear(&given);
    model_clear(&model);
    cluster_clear(&cluster);
    return rc;
}
