/* A simulated step. */
#include "library/handles.h"

#include <stdlib.h>

#include "partition/step/lower.h"
#include "partition/step/recompute_fit.h"

/* As `elapse sim JOB --step --plan FILE` does. */
static enum status simulate(const struct elapse_job *job, const struct plan *given,
                            const struct sim_options *options, struct elapse_step *step,
                            struct err *err)
{
    const struct setting setting = {&job->job.model, &job->job.cluster, &job->cost.cost};
    struct plan plan = {0}; /* a copy, because recompute_fit() limits its counts */
    struct workload workload = {0};
    struct schedule full = {0};
    enum status rc = plan_check(given, &job->job.model, &job->job.cluster, err);
    THEN(sim_check_size(given, err));
    THEN(plan_copy(given, &plan, err));
    THEN(plan_lower(&setting, &plan, &workload, &full, err));
    if (rc == OK && plan.recompute_layers)
        rc = recompute_fit(&plan, false, &full, &workload, err);
    THEN(sim_step(&full, &workload, &plan, options, &step->result, err));
    if (rc == OK)
        rc = framework_range_find(&setting, &plan, step->result.step_ns, &step->range, err);
    if (rc == OK)
        step->samples_per_s = plan_samples_per_s(&plan, step->result.step_ns);
    step->extrapolated = workload.extrapolated;
    step->band = job_band(job);
    workload_clear(&workload);
    schedule_clear(&full);
    plan_clear(&plan);
    return rc;
}

enum elapse_status elapse_step_simulate(struct elapse_job *job, const struct elapse_plan *plan,
                                        const struct elapse_step_options *given,
                                        struct elapse_step **step, struct elapse_error *error)
{
    struct elapse_step_options options;
    struct call call;
    call_begin(&call);
    copy_in(&options, sizeof options, given);
    const struct sim_options sim = {
        .jitter = options.jitter, .seed = options.seed, .record_ops = options.ops != 0};
    struct elapse_step *got = calloc(1, sizeof *got);
    enum status rc = got ? OK : err_nomem(&call.err);
    if (rc == OK && !(options.jitter >= 0 && options.jitter <= 1))
        rc = err_set(&call.err, ERR_INPUT, "jitter must be 0..1, got %g", options.jitter);
    THEN(simulate(job, &plan->plan, &sim, got, &call.err));
    if (rc == OK)
        *step = got;
    else
        elapse_step_free(got);
    return call_end(&call, rc, error);
}

void elapse_step_free(struct elapse_step *step)
{
    if (!step)
        return;
    sim_result_clear(&step->result);
    free(step);
}

void elapse_step_info(const struct elapse_step *step, struct elapse_step_info *info)
{
    const struct sim_result *r = &step->result;
    struct elapse_step_info ours = {
        .num_devices = r->num_devices,
        .num_traffic = r->num_traffic,
        .num_ops = r->num_ops,
        .step_ns = r->step_ns,
        .bubble_fraction = r->bubble_fraction,
        .samples_per_s = step->samples_per_s,
        .allreduce_ns = r->allreduce_ns,
        .allreduce_exposed_ns = r->allreduce_exposed_ns,
        .events = r->events,
        .extrapolated = step->extrapolated,
    };
    range_ends(&step->range, &ours.framework_low_ns, &ours.framework_high_ns);
    band_out(&step->band, r->step_ns, ours.step_band_ns);
    copy_out(&ours, sizeof ours, info);
}

enum elapse_status elapse_step_device(const struct elapse_step *step, int index,
                                      struct elapse_device *device)
{
    if (index < 0 || index >= step->result.num_devices)
        return ELAPSE_ERR_INPUT;
    const struct sim_device *d = &step->result.devices[index];
    const struct elapse_device ours = {
        .device = d->device,
        .replica = d->replica,
        .rank = d->rank,
        .peak_live = d->peak_live,
        .busy_ns = d->busy_ns,
        .idle_ns = d->idle_ns,
        .first_ns = d->first_ns,
        .last_ns = d->last_ns,
        .peak_bytes = d->peak_bytes,
    };
    copy_out(&ours, sizeof ours, device);
    return ELAPSE_OK;
}

enum elapse_status elapse_step_op(const struct elapse_step *step, int64_t index,
                                  struct elapse_op *op)
{
    if (index < 0 || index >= step->result.num_ops)
        return ELAPSE_ERR_INPUT;
    const struct sim_op *o = &step->result.ops[index];
    const struct elapse_op ours = {
        .kind = op_kind_name(o->op.kind),
        .stage = o->op.stage,
        .microbatch = o->op.microbatch,
        .replica = o->replica,
        .rank = o->rank,
        .start_ns = o->start_ns,
        .end_ns = o->end_ns,
    };
    copy_out(&ours, sizeof ours, op);
    return ELAPSE_OK;
}

enum elapse_status elapse_step_traffic(const struct elapse_step *step, int index,
                                       struct elapse_traffic *traffic)
{
    if (index < 0 || index >= step->result.num_traffic)
        return ELAPSE_ERR_INPUT;
    const struct sim_traffic *t = &step->result.traffic[index];
    const struct elapse_traffic ours = {.from = t->from, .to = t->to, .bytes = t->bytes};
    copy_out(&ours, sizeof ours, traffic);
    return ELAPSE_OK;
}
