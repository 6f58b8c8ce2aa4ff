/* Plans: find one, read one, look at one. */
#include "library/handles.h"

#include <stdlib.h>

#include "partition/search/plan_for.h"
#include "profiles/job/job_json.h"
#include "profiles/job/plan_json.h"
#include "sim/run/plan_judge.h"

/* As `elapse plan` does. */
static enum status find_plan(const struct elapse_job *job,
                             const struct elapse_plan_options *options,
                             struct planner_result *result, struct err *err)
{
    const struct setting setting = {&job->job.model, &job->job.cluster, &job->cost.cost};
    const struct run_state state = {.turn = options->turn,
                                    .num_frozen_layers = options->frozen_layers,
                                    .old = options->current ? &options->current->plan : NULL,
                                    .num_samples = job_num_samples(&job->job, true),
                                    .cache_room = options->cached != 0,
                                    .cache_filled = options->cached != 0};
    struct plan_judge engine = {.setting = setting};
    const struct planner_judge judge = {.step_ns = plan_judge_step, .ctx = &engine};
    if (options->frozen_layers < 0 || options->frozen_layers > job->job.model.num_layers)
        return err_set(err, ERR_INPUT, "frozen_layers must be 0..%d for model '%s', got %d",
                       job->job.model.num_layers, job->job.model.name, options->frozen_layers);
    enum status rc =
        plan_for(&job->job, &setting, &state, options->simulate ? &judge : NULL, result, err);
    if (rc == OK && !options->simulate)
        rc = plan_judge_chosen(&engine, result, err);
    return rc;
}

enum elapse_status elapse_plan_find(struct elapse_job *job, const struct elapse_plan_options *given,
                                    struct elapse_plan **plan, struct elapse_error *error)
{
    struct elapse_plan_options options;
    struct planner_result result = {0};
    struct call call;
    call_begin(&call);
    copy_in(&options, sizeof options, given);
    struct elapse_plan *got = calloc(1, sizeof *got);
    struct framework_range range;
    const struct setting setting = {&job->job.model, &job->job.cluster, &job->cost.cost};
    enum status rc = got ? find_plan(job, &options, &result, &call.err) : err_nomem(&call.err);
    THEN(framework_range_find(&setting, &result.plan, result.plan.step_ns, &range, &call.err));
    if (rc == OK) {
        *got = (struct elapse_plan){.plan = result.plan,
                                    .stage_ns = result.stage_ns,
                                    .samples_per_s = result.samples_per_s,
                                    .lower_bound_ns = result.lower_bound_ns,
                                    .candidates = result.candidates,
                                    .range = range,
                                    .band = job_band(job)};
        result.plan = (struct plan){0};
        result.stage_ns = NULL;
        *plan = got;
    } else {
        free(got);
    }
    planner_result_clear(&result);
    return call_end(&call, rc, error);
}

enum elapse_status elapse_plan_load(struct elapse_job *job, const char *path,
                                    struct elapse_plan **plan, struct elapse_error *error)
{
    struct call call;
    call_begin(&call);
    struct elapse_plan *got = calloc(1, sizeof *got);
    enum status rc = got ? plan_json_load(path, &job->job, &job->job.cluster, &got->plan, &call.err)
                         : err_nomem(&call.err);
    if (rc == OK) {
        got->samples_per_s = plan_samples_per_s(&got->plan, got->plan.step_ns);
        got->band = job_band(job);
        *plan = got;
    } else {
        free(got);
    }
    return call_end(&call, rc, error);
}

void elapse_plan_free(struct elapse_plan *plan)
{
    if (!plan)
        return;
    plan_clear(&plan->plan);
    free(plan->stage_ns);
    free(plan);
}

void elapse_plan_info(const struct elapse_plan *plan, struct elapse_plan_info *info)
{
    const struct plan *p = &plan->plan;
    struct elapse_plan_info ours = {
        .pipeline_length = p->num_ranks,
        .replicas = plan_width(p),
        .tensor = layout_tensor(&p->layout),
        .expert = layout_expert(&p->layout),
        .num_stages = p->num_stages,
        .microbatches = p->microbatches.count,
        .frozen_layers = p->num_frozen_layers,
        .schedule = schedule_kind_name(p->schedule),
        .frozen = frozen_placement_name(p->frozen),
        .recompute = recompute_mode_name(p->recompute),
        .shard = shard_mode_name(p->layout.shard),
        .batch = p->batch,
        .microbatch_size = p->microbatches.size,
        .step_ns = p->step_ns,
        .samples_per_s = plan->samples_per_s,
        .lower_bound_ns = plan->lower_bound_ns,
        .candidates = plan->candidates,
    };
    range_ends(&plan->range, &ours.framework_low_ns, &ours.framework_high_ns);
    band_out(&plan->band, p->step_ns, ours.step_band_ns);
    copy_out(&ours, sizeof ours, info);
}

enum elapse_status elapse_plan_stage(const struct elapse_plan *plan, int index,
                                     struct elapse_stage *stage)
{
    const struct plan *p = &plan->plan;
    if (index < 0 || index >= p->num_stages)
        return ELAPSE_ERR_INPUT;
    const int rank = plan_rank_of_stage(p, index);
    const struct elapse_stage ours = {
        .rank = rank,
        .first_item = p->first_item[index],
        .num_items = p->first_item[index + 1] - p->first_item[index],
        .pass_ns = plan->stage_ns ? plan->stage_ns[index] : 0,
        .memory_bytes = p->memory_bytes ? p->memory_bytes[rank] : 0,
    };
    copy_out(&ours, sizeof ours, stage);
    return ELAPSE_OK;
}

int elapse_plan_device(const struct elapse_plan *plan, int replica, int rank)
{
    const struct plan *p = &plan->plan;
    if (replica < 0 || replica >= p->num_pipelines || rank < 0 || rank >= p->num_ranks)
        return -1;
    return p->device[replica * p->num_ranks + rank];
}

enum elapse_status elapse_plan_json(const struct elapse_plan *plan, char **text,
                                    struct elapse_error *error)
{
    struct call call;
    call_begin(&call);
    struct json *json = json_object_new();
    if (json)
        plan_json_add(json, &plan->plan);
    const enum status rc = json ? json_text(json, true, text, &call.err) : err_nomem(&call.err);
    json_free(json);
    return call_end(&call, rc, error);
}
