/* Reads what a figure or a report is about. Read subject_open() first. */
#include "cli/simulate/subject.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "profiles/job/job_json.h"
#include "profiles/json/json.h"
#include "profiles/base/whole_file.h"
#include "profiles/job/plan_json.h"

/* The last part of a path without blanks, and without the suffix of a job or a plan. */
static void path_word(const char *path, char *word, size_t size)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    size_t first = len;
    while (first > 0 && path[first - 1] != '/')
        first--;
    if (len - first > 5 && strncmp(path + len - 5, ".json", 5) == 0)
        len -= 5;
    snprintf(word, size, "%.*s", (int)(len - first < size ? len - first : size - 1), path + first);
    for (char *c = word; *c; c++)
        if (*c == ' ')
            *c = '-';
}

/* starts: the store is a run's own, so all real runs in it are starts of one. */
static enum status open_rows(struct subject *s, const char *db, bool starts, struct err *err)
{
    struct store *store = NULL;
    enum status rc = store_open(db, STORE_READ, &store, err);
    THEN(run_rows_read(store, 0, &s->rows, err));
    if (rc == OK && starts)
        rc = run_rows_add_earlier(store, &s->rows, err);
    store_close(store);
    return rc;
}

static enum status open_run(struct subject *s, struct err *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%.4000s/run.db", s->path);
    enum status rc = open_rows(s, path, true, err);
    snprintf(path, sizeof path, "%.4000s/metrics.jsonl", s->path);
    THEN(run_rows_merge_metrics(path, &s->rows, err));
    THEN(run_rows_count_epochs(&s->rows, err));
    if (rc != OK)
        return rc;
    if (s->rows.num_differing > 0)
        fprintf(stderr, "note: run.db and metrics.jsonl of '%s' differ in %s; run.db is shown\n",
                s->path, COUNT_TEXT(s->rows.num_differing, "step"));
    s->finished = replay_read(s->path, &s->replay, &s->no_summary) == OK;
    if (s->finished) {
        s->model = &s->replay.job.model;
        s->plan = &s->replay.plan;
    }
    return OK;
}

/* The job that a record holds names the model. A record without a job is fine. */
static void open_recorded_job(struct subject *s)
{
    struct json *json = NULL;
    if (!s->rows.info.job_json ||
        json_parse(s->rows.info.job_json, "job of the run", &json, NULL) != OK)
        return;
    if (job_from_record(json, "job of the run", NULL, 0, &s->job, NULL) == OK && !s->model)
        s->model = &s->job.model;
    json_free(json);
}

/* A plan file holds its job. */
static enum status open_plan(struct subject *s, const struct json *root, struct err *err)
{
    enum status rc = job_from_record(
        json_get(root, "job"), s->path, s->options.overrides ? s->options.overrides->items : NULL,
        s->options.overrides ? s->options.overrides->count : 0, &s->job, err);
    THEN(plan_json_read(root, s->path, &s->job.model, &s->job.cluster, &s->given, err));
    s->given.lagged = rc == OK && job_lags(&s->job);
    s->kind = SUBJECT_PLAN;
    return rc;
}

static enum status open_job(struct subject *s, struct err *err)
{
    struct json *root = NULL;
    enum status rc = json_read_file(s->path, &root, err);
    if (rc == OK && json_get(root, "job") && json_get(root, "cut")) {
        rc = open_plan(s, root, err);
    } else if (rc == OK) {
        s->kind = SUBJECT_JOB;
        char *dir = folder_of(s->path);
        rc = job_from_json(root, s->path, dir,
                           s->options.overrides ? s->options.overrides->items : NULL,
                           s->options.overrides ? s->options.overrides->count : 0, &s->job, err);
        free(dir);
        if (rc == OK && s->options.plan_path)
            rc = plan_json_load(s->options.plan_path, &s->job, &s->job.cluster, &s->given, err);
    }
    json_free(root);
    return rc;
}

static bool is_store(const char *path)
{
    char head[16] = "";
    FILE *file = NULL;
    input_file(path, &file, NULL);
    const bool is = file && fread(head, 1, sizeof head, file) == sizeof head &&
                    memcmp(head, "SQLite format 3", sizeof head) == 0;
    if (file)
        fclose(file);
    return is;
}

enum status subject_open(const char *path, const struct subject_options *options,
                         struct subject *subject, struct err *err)
{
    struct stat info;
    enum status rc;
    subject->path = path;
    subject->options = *options;
    path_word(path, subject->word, sizeof subject->word);
    if (stat(path, &info) != 0)
        return err_set(err, ERR_SYSTEM, "cannot read '%.200s': %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) {
        subject->kind = SUBJECT_RUN;
        rc = open_run(subject, err);
    } else if (is_store(path)) {
        subject->kind = SUBJECT_RECORD;
        rc = open_rows(subject, path, false, err);
    } else {
        return open_job(subject, err);
    }
    if (rc == OK)
        open_recorded_job(subject);
    return rc;
}

static void borrow_answer(struct subject *s)
{
    s->sim = &s->answer.result;
    s->plan = &s->answer.plan;
    s->model = &s->answer.model;
    s->cluster = &s->answer.cluster;
    s->workload = &s->answer.workload;
    s->full = &s->answer.full;
    s->cost = &s->answer.cost;
}

static void borrow_replay(struct subject *s)
{
    s->sim = &s->replay.sim;
    s->cluster = &s->replay.job.cluster;
    s->workload = &s->replay.workload;
    s->full = &s->replay.full;
    s->cost = &s->replay.cost;
}

enum status subject_simulate(struct subject *s, struct err *err)
{
    struct step_request request;
    enum status rc;
    if (s->sim || s->no_sim.status != OK)
        return OK;
    switch (s->kind) {
    case SUBJECT_RUN:
        if (!s->finished)
            s->no_sim = s->no_summary;
        else if (replay_simulate(&s->replay, s->options.db_path, &s->no_sim) == OK)
            borrow_replay(s);
        return OK;
    case SUBJECT_RECORD:
        err_set(&s->no_sim, ERR_INFEASIBLE, "%.200s: a record holds epochs, no steps", s->path);
        return OK;
    default:
        step_request_init(&request);
        request.db_path = s->options.db_path;
        request.num_frozen = s->options.num_frozen;
        if (s->options.cached)
            request.frozen = FROZEN_CACHED;
        request.options.record_ops = true;
        rc = sim_step_of_job(&request, &s->job, s->given.num_ranks ? &s->given : NULL, &s->answer,
                             err);
        if (rc == OK)
            borrow_answer(s);
        return rc;
    }
}

/* plan NULL: the best one. */
static enum status rate_of(const struct subject *s, const struct job *job, const struct cost *cost,
                           const struct plan *plan, double *samples_per_s, struct err *err)
{
    struct step_request request;
    struct elastic_run run = {0};
    step_request_init(&request);
    request.db_path = s->options.db_path;
    const enum status rc = simulate_job(&request, job, cost, plan, &run, err);
    *samples_per_s = run.total_ns > 0 ? (double)run.samples * 1e9 / (double)run.total_ns : NAN;
    elastic_run_clear(&run);
    return rc;
}

enum status subject_rate(const struct subject *s, const struct job *job, const struct cost *cost,
                         double *samples_per_s, struct err *err)
{
    return rate_of(s, job, cost, NULL, samples_per_s, err);
}

enum status subject_static_rate(const struct subject *s, const struct cost *cost,
                                double *samples_per_s, struct err *err)
{
    const struct job *job = s->kind == SUBJECT_RUN ? &s->replay.job : &s->job;
    const struct job fixed = job_as_static(job);
    double given = NAN;
    *samples_per_s = NAN;
    if (job->freeze.policy == FREEZE_NONE)
        return OK;
    const enum status rc = subject_rate(s, &fixed, cost, samples_per_s, err);
    if (rc == OK && s->kind == SUBJECT_JOB && s->options.plan_path && s->plan)
        rate_of(s, &fixed, cost, s->plan, &given, NULL); /* it may begin with frozen layers */
    *samples_per_s = fmax(*samples_per_s, given);
    return rc;
}

enum status subject_epochs(struct subject *s, struct err *err)
{
    struct step_request request;
    struct elastic_run run = {0};
    struct cost_handle cost = {0};
    /* subject_simulate() moves the given plan. */
    const struct plan *plan = s->given.num_ranks     ? &s->given
                              : s->options.plan_path ? &s->answer.plan
                                                     : NULL;
    if (s->rows.num_epochs > 0 || s->kind == SUBJECT_RUN || s->kind == SUBJECT_RECORD)
        return OK;
    if (s->kind == SUBJECT_PLAN)
        return err_set(err, ERR_INPUT, "%.200s: a plan file describes one step; give the job",
                       s->path);
    step_request_init(&request);
    enum status rc = cost_choose(s->options.db_path, &s->job, &cost, err);
    THEN(simulate_job(&request, &s->job, &cost.cost, plan, &run, err));
    THEN(run_rows_simulated(&run, &s->rows, err));
    if (rc == OK) {
        snprintf(s->rows.info.name, sizeof s->rows.info.name, "%s", s->job.name);
        snprintf(s->rows.info.cost_source, sizeof s->rows.info.cost_source, "%s", cost.cost.label);
    }
    cost_handle_clear(&cost);
    elastic_run_clear(&run);
    return rc;
}

enum status subject_real_ops(struct subject *s, const struct op_row **rows, int64_t *n,
                             struct err *err)
{
    char db[4200];
    struct store *store = NULL;
    *n = 0;
    if (s->kind != SUBJECT_RUN)
        return OK;
    if (s->finished && s->replay.num_ops > 0) {
        *rows = s->replay.ops;
        *n = s->replay.num_ops;
        return OK;
    }
    if (!s->rows.ops) {
        snprintf(db, sizeof db, "%.4000s/run.db", s->path);
        enum status rc = store_open(db, STORE_READ, &store, err);
        THEN(run_rows_read_ops(store, &s->rows, err));
        store_close(store);
        if (rc != OK)
            return rc;
    }
    int64_t first = s->rows.num_ops;
    while (first > 0 && s->rows.ops[first - 1].step == s->rows.ops[s->rows.num_ops - 1].step)
        first--;
    *rows = s->rows.ops + first;
    *n = s->rows.num_ops - first;
    return OK;
}

struct op_row *sim_op_rows(const struct sim_result *result)
{
    struct op_row *rows = calloc((size_t)result->num_ops + 1, sizeof *rows);
    for (int64_t i = 0; rows && i < result->num_ops; i++) {
        const struct sim_op *op = &result->ops[i];
        rows[i] = (struct op_row){.replica = op->replica,
                                  .rank = op->rank,
                                  .start_ns = op->start_ns,
                                  .end_ns = op->end_ns,
                                  .op = op->op};
    }
    return rows;
}

void subject_clear(struct subject *s)
{
    job_clear(&s->job);
    run_rows_clear(&s->rows);
    replay_clear(&s->replay);
    step_answer_clear(&s->answer);
    plan_clear(&s->given);
    *s = (struct subject){0};
}
