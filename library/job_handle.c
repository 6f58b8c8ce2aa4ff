/* Jobs: read JSON, choose the costs. */
#include "library/handles.h"

#include <limits.h>
#include <stdlib.h>

#include "partition/search/turn.h"
#include "profiles/job/job_json.h"

/* Read text, or the file at path if text is NULL. */
static enum status read_job(const char *path, const char *text,
                            const struct elapse_job_options *options, struct job *job,
                            struct err *err)
{
    struct json *root = NULL;
    if (options->num_overrides > INT_MAX)
        return err_set(err, ERR_INPUT, "num_overrides must be 0..%d, got %zu", INT_MAX,
                       options->num_overrides);
    const int num_overrides = (int)options->num_overrides;
    if (!text)
        return job_load(path, options->overrides, num_overrides, job, err);
    enum status rc = json_parse(text, "job", &root, err);
    THEN(job_from_json(root, "job", options->dir, options->overrides, num_overrides, job, err));
    json_free(root);
    return rc;
}

static enum elapse_status open_job(const char *path, const char *text,
                                   const struct elapse_job_options *given, struct elapse_job **job,
                                   struct elapse_error *error)
{
    struct elapse_job_options options;
    struct call call;
    call_begin(&call);
    copy_in(&options, sizeof options, given);
    struct elapse_job *got = calloc(1, sizeof *got);
    enum status rc = got ? OK : err_nomem(&call.err);
    THEN(read_job(path, text, &options, &got->job, &call.err));
    THEN(cost_choose(options.profiles, &got->job, &got->cost, &call.err));
    if (rc == OK) {
        got->cost.cost = turn_cost(&got->job, &got->cost.cost);
        *job = got;
    } else {
        elapse_job_free(got);
    }
    return call_end(&call, rc, error);
}

enum elapse_status elapse_job_load(const char *path, const struct elapse_job_options *options,
                                   struct elapse_job **job, struct elapse_error *error)
{
    return open_job(path, NULL, options, job, error);
}

enum elapse_status elapse_job_parse(const char *text, const struct elapse_job_options *options,
                                    struct elapse_job **job, struct elapse_error *error)
{
    return open_job(NULL, text, options, job, error);
}

void elapse_job_free(struct elapse_job *job)
{
    if (!job)
        return;
    cost_handle_clear(&job->cost);
    job_clear(&job->job);
    free(job);
}

void elapse_job_info(const struct elapse_job *job, struct elapse_job_info *info)
{
    const struct model *model = &job->job.model;
    struct elapse_job_info ours = {
        .name = job->job.name,
        .model = model->name,
        .cluster = job->job.cluster.name,
        .json = job->job.json,
        .cost_source = cost_source_name(job->cost.cost.source),
        .cost_label = job->cost.cost.label,
        .cost_note = job->cost.note,
        .num_layers = model->num_layers,
        .num_items = model->num_items,
        .num_devices = job->job.cluster.num_devices,
        .num_epochs = job->job.train.epochs,
        .num_samples = job_num_samples(&job->job, true),
    };
    for (int i = 0; i < model->num_items; i++)
        ours.num_params += model->items[i].params;
    copy_out(&ours, sizeof ours, info);
}
