#include "exec/run/resume.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "exec/weights/adapter_files.h"
#include "exec/checkpoint/memory_copies.h"
#include "exec/weights/weights_files.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json_diff.h"

enum status resume_choose(const struct comm *comm, const char *from,
                          struct checkpoint_choice *choice, struct err *err)
{
    struct stat st;
    int file = 0;
    enum status rc = OK;
    *choice = (struct checkpoint_choice){0};
    if (stat(from, &st) != 0)
        rc = err_set(err, ERR_SYSTEM, "cannot open '%s': %s", from, strerror(errno));
    else
        file = weights_are_at(from);
    rc = comm_agree(comm, rc, err);
    if (rc == OK) /* so that all ranks take the same way, whatever they see */
        rc = comm_bcast(comm->all, &file, sizeof file, 0, err);
    if (rc == OK && !file) {
        struct err why = {0}; /* a run that was killed early may have a copy in memory alone */
        (void)checkpoint_choose(comm, from, choice, &why);
        rc = memory_copies_choose(comm, from, choice, err);
        return rc != OK || choice->dir ? rc : err_copy(err, &why);
    }
    if (rc != OK)
        return rc;
    choice->foreign = true;
    choice->dir = strdup(from);
    return comm_agree(comm, choice->dir ? OK : err_nomem(err), err);
}

/* The lines of differences. */
struct lines {
    FILE *out;
    int count;
};

static void add_line(void *ctx, const char *key, const char *was, const char *is)
{
    struct lines *lines = ctx;
    fprintf(lines->out, "%s: %.200s -> %.200s\n", key, was, is);
    lines->count++;
}

/* The job that a checkpoint holds, resolved by this version, so that keys which the writer did not
 * know have their defaults. */
static enum status recorded_job(const struct json *kept, const struct option_list *set,
                                struct job *job, struct err *err)
{
    return job_from_record(kept, "the recorded job", set->items, set->count, job, err);
}

/* Compare two resolved jobs. */
static enum status compare_jobs(const struct job *was, const struct job *is, char **differences,
                                int *count, struct err *err)
{
    struct json *old = NULL, *new = NULL;
    char *text = NULL;
    size_t size = 0;
    struct lines lines = {.out = open_memstream(&text, &size)};
    enum status rc = lines.out ? OK : err_nomem(err);
    THEN(json_parse(was->json, "the recorded job", &old, err));
    THEN(json_parse(is->json, "the job", &new, err));
    THEN(json_diff(old, new, add_line, &lines, err));
    if (lines.out && fclose(lines.out) != 0 && rc == OK)
        rc = err_nomem(err);
    json_free(old);
    json_free(new);
    *count = lines.count;
    if (rc == OK && lines.count > 0)
        *differences = text;
    else
        free(text);
    return rc;
}

/* Give a job the keys train.lora of a folder of adapters. A job that has them must agree. */
static enum status add_adapter(const struct job_ask *ask, struct option_list *set, struct job *job,
                               struct err *err)
{
    char texts[4][300];
    struct lora_ask got;
    const double scale = job->model.lora.scale;
    enum status rc = adapter_files_ask(ask->adapter, &got, err);
    if (rc != OK)
        return rc;
    if (job->train.lora.rank > 0 && job->train.lora.rank != got.rank)
        return err_set(err, ERR_INPUT,
                       "'%s' has adapters of rank %d, the job's train.lora.rank is %d",
                       ask->adapter, got.rank, job->train.lora.rank);
    if (job->train.lora.rank > 0 && fabs(scale - got.alpha / got.rank) > 1e-6 * scale)
        return err_set(err, ERR_INPUT, "'%s' multiplies adapters by %g, the job by %g",
                       ask->adapter, got.alpha / got.rank, scale);
    if (job->train.lora.rank > 0)
        return OK;
    if (set->count + 4 > OPTION_LIST_MAX)
        return err_set(err, ERR_INPUT, "more than %d --set", OPTION_LIST_MAX - 4);
    snprintf(texts[0], sizeof texts[0], "train.lora.rank=%d", got.rank);
    snprintf(texts[1], sizeof texts[1], "train.lora.alpha=%.17g", got.alpha);
    snprintf(texts[2], sizeof texts[2], "train.lora.targets=%s", got.targets);
    snprintf(texts[3], sizeof texts[3], "train.lora.head=%s", got.head ? "true" : "false");
    for (int i = 0; i < 4; i++)
        set->items[set->count++] = texts[i];
    job_clear(job);
    return job_load(ask->path, set->items, set->count, job, err);
}

/* Load the job: the given file, else the one that the checkpoint holds, which is *kept. */
static enum status load_asked(const struct job_ask *ask, struct option_list *set,
                              struct json **kept, struct job *job, struct err *err)
{
    enum status rc = OK;
    if (ask->weights_only && !ask->path) {
        rc = err_set(err, ERR_INPUT, "'%s' holds weights alone, no job", ask->checkpoint);
        err_hint(err, "name the job file: elapse eval FILE JOB");
    } else if (ask->checkpoint && !ask->weights_only) {
        rc = checkpoint_job(ask->checkpoint, kept, err);
    }
    if (rc != OK)
        return rc;
    if (ask->path)
        rc = job_load(ask->path, set->items, set->count, job, err);
    else if (*kept)
        rc = recorded_job(*kept, set, job, err);
    else {
        rc = err_set(err, ERR_INPUT, "'%s' is of an older version and holds no job",
                     ask->checkpoint);
        err_hint(err, "name the job file: elapse %s",
                 ask->evaluates ? "eval CHECKPOINT JOB" : "train JOB --resume DIR");
    }
    if (rc != OK || !ask->adapter)
        return rc;
    if (!ask->path || *kept)
        return err_set(err, ERR_INPUT, "--adapter needs a job file, and weights of a base alone");
    return add_adapter(ask, set, job, err);
}

enum status resume_job(const struct job_ask *ask, struct job *job, char **differences,
                       struct err *err)
{
    const struct option_list none = {0};
    struct option_list set = *ask->set;
    struct json *kept = NULL;
    struct job recorded = {0};
    char device[64];
    int count = 0;
    *differences = NULL;
    if (ask->device && set.count == OPTION_LIST_MAX)
        return err_set(err, ERR_INPUT, "more than %d --set", OPTION_LIST_MAX - 1);
    if (ask->device) {
        snprintf(device, sizeof device, "train.device=%.40s", ask->device);
        set.items[set.count++] = device;
    }
    enum status rc = load_asked(ask, &set, &kept, job, err);
    if (rc == OK && kept)
        rc = recorded_job(kept, ask->evaluates ? &set : &none, &recorded, err);
    if (rc == OK && kept)
        rc = compare_jobs(&recorded, job, differences, &count, err);
    if (rc == OK && ask->evaluates && ask->checkpoint && !ask->weights_only)
        rc = checkpoint_untie(ask->checkpoint, &job->model, err);
    if (rc == OK && count > 0 && !ask->override && !ask->evaluates) {
        rc = err_set(err, ERR_INPUT, "the job differs from the one that the run recorded in %d %s",
                     count, count == 1 ? "value" : "values");
        err_hint(err, "--override takes the job as given; without JOB and --set the run continues "
                      "with its own");
    }
    job_clear(&recorded);
    json_free(kept);
    return rc;
}
