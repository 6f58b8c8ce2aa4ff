/* A simulated run. */
#include "library/handles.h"

#include <stdlib.h>

#include "profiles/job/job_json.h"

/* As `elapse sim JOB` does for the job's own run. */
static enum status simulate(const struct elapse_job *job, const struct elapse_run_options *options,
                            struct elastic_run *run, struct err *err)
{
    const struct plan *plan = options->plan ? &options->plan->plan : NULL;
    const struct sim_options sim = {.jitter = options->jitter, .seed = options->seed, .plan = plan};
    if (!(options->jitter >= 0 && options->jitter <= 1))
        return err_set(err, ERR_INPUT, "jitter must be 0..1, got %g", options->jitter);
    const enum status rc = plan ? plan_check(plan, &job->job.model, &job->job.cluster, err) : OK;
    if (rc != OK)
        return rc;
    return elastic_run(&job->job, &job->cost.cost, job_num_samples(&job->job, true),
                       job_num_samples(&job->job, false), &sim, run, err);
}

enum elapse_status elapse_run_simulate(struct elapse_job *job,
                                       const struct elapse_run_options *given,
                                       struct elapse_run **run, struct elapse_error *error)
{
    struct elapse_run_options options;
    struct call call;
    call_begin(&call);
    copy_in(&options, sizeof options, given);
    struct elapse_run *got = calloc(1, sizeof *got);
    enum status rc = got ? simulate(job, &options, &got->run, &call.err) : err_nomem(&call.err);
    if (rc == OK) {
        got->band = job_band(job);
        *run = got;
    } else {
        elapse_run_free(got);
    }
    return call_end(&call, rc, error);
}

void elapse_run_free(struct elapse_run *run)
{
    if (!run)
        return;
    elastic_run_clear(&run->run);
    free(run);
}

void elapse_run_info(const struct elapse_run *run, struct elapse_run_info *info)
{
    const struct elastic_run *r = &run->run;
    const struct elapse_run_info ours = {
        .num_epochs = r->num_epochs,
        .stopped = r->stopped,
        .samples = r->samples,
        .total_ns = r->total_ns,
        .eval_ns = r->eval_ns,
        .device_hours = r->device_hours,
        .extrapolated = r->extrapolated,
    };
    copy_out(&ours, sizeof ours, info);
}

enum elapse_status elapse_run_epoch(const struct elapse_run *run, int index,
                                    struct elapse_epoch *epoch)
{
    if (index < 0 || index >= run->run.num_epochs)
        return ELAPSE_ERR_INPUT;
    const struct elastic_epoch *e = &run->run.epochs[index];
    struct elapse_epoch ours = {
        .frozen_layers = e->frozen_layers,
        .pipeline_length = e->pipeline_length,
        .replicas = e->replicas,
        .microbatches = e->microbatches,
        .schedule = schedule_kind_name(e->schedule),
        .frozen = frozen_placement_name(e->frozen),
        .reason = e->reason,
        .microbatch_size = e->microbatch_size,
        .samples = e->samples,
        .steps = e->steps,
        .step_ns = e->step_ns,
        .epoch_ns = e->epoch_ns,
        .transition_ns = e->transition_ns,
        .eval_ns = e->eval_ns,
        .samples_per_s = e->samples_per_s,
        .bubble_fraction = e->bubble_fraction,
    };
    band_out(&run->band, e->step_ns, ours.step_band_ns);
    copy_out(&ours, sizeof ours, epoch);
    return ELAPSE_OK;
}
