/* A recorded run made ready for a comparison: its job, plan and step times, and a simulation of its
 * plan on the run's own machines. Read replay_load() first. */
#include "cli/runs/replay.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/step/lower.h"
#include "partition/step/pool_memory.h"
#include "partition/base/units.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json.h"
#include "profiles/job/plan_json.h"

#define MAX_RANKS 4096

/* The number of ranks on each node of the run, in a fresh array. One node if the summary does not
 * say. */
static enum status node_ranks(const struct json *summary, int64_t num_ranks, const char *what,
                              int **ranks, int *num_nodes, struct err *err)
{
    const struct json *list = json_get(summary, "node_ranks");
    int64_t one = num_ranks, left = num_ranks;
    *num_nodes = list ? json_count(list) : 1;
    *ranks = calloc((size_t)*num_nodes + 1, sizeof **ranks);
    if (!*ranks)
        return err_nomem(err);
    for (int n = 0; n < *num_nodes && left > 0; n++) {
        if (list && (!json_int64(json_at(list, n), &one) || one < 1 || one > left))
            break;
        (*ranks)[n] = (int)one;
        left -= one;
        if (left == 0 && n + 1 == *num_nodes)
            return OK;
    }
    return err_set(err, ERR_INPUT, "%s: node_ranks must be counts >= 1 whose sum is %lld", what,
                   (long long)num_ranks);
}

/* The run's machines as a cluster, as the trainer described them. The measured costs contain the
 * speed of the links. With "cluster": "job" the job's own cluster is that of the run. */
static enum status run_cluster(const struct json *summary, int64_t num_ranks, const char *what,
                               struct job *job, struct err *err)
{
    struct cluster cluster = {0};
    const char *kind = json_string(json_get(json_get(summary, "machine"), "device_kind"));
    const char *origin = json_string(json_get(summary, "cluster"));
    int *ranks = NULL, num_nodes = 0;
    if (origin && strcmp(origin, "job") == 0)
        return OK;
    if (num_ranks < 1 || num_ranks > MAX_RANKS)
        return err_set(err, ERR_INPUT, "%s: ranks must be 1..%d", what, MAX_RANKS);
    enum status rc = node_ranks(summary, num_ranks, what, &ranks, &num_nodes, err);
    THEN(cluster_of_ranks(ranks, num_nodes, kind ? kind : "cpu", &cluster, err));
    free(ranks);
    if (rc != OK)
        return rc;
    cluster_clear(&job->cluster);
    job->cluster = cluster;
    return OK;
}

static bool same_plan(const struct step_row *a, const struct step_row *b)
{
    return a->pipeline_length == b->pipeline_length && a->replicas == b->replicas &&
           a->frozen_layers == b->frozen_layers;
}

/* Median and spread of the steps of the last plan, without its warm-up. */
static enum status count_steps(struct replay *replay, bool cached, struct err *err)
{
    int64_t n = replay->num_steps, first = n - 1;
    while (first > 0 && same_plan(&replay->steps[first - 1], &replay->steps[n - 1]))
        first--;
    if (cached && replay->steps[first].epoch < replay->steps[n - 1].epoch)
        for (int64_t fills = replay->steps[first].epoch; replay->steps[first].epoch == fills;)
            first++;
    else if (n - first > 2 * REPLAY_WARMUP)
        first += REPLAY_WARMUP;
    int64_t count = n - first;
    int64_t *times = malloc((size_t)count * sizeof *times);
    if (!times)
        return err_nomem(err);
    for (int64_t i = 0; i < count; i++)
        times[i] = replay->steps[first + i].step_ns;
    if (count >= REPLAY_PARTS * REPLAY_PART_STEPS)
        replay->num_parts = REPLAY_PARTS;
    for (int p = 0; p < replay->num_parts; p++) { /* each part is sorted; then the whole is */
        const int64_t from = count * p / REPLAY_PARTS,
                      n_part = count * (p + 1) / REPLAY_PARTS - from;
        qsort(times + from, (size_t)n_part, sizeof *times, compare_int64);
        replay->part_ns[p] = times[from + n_part / 2];
    }
    qsort(times, (size_t)count, sizeof *times, compare_int64);
    replay->num_counted = count;
    replay->real_step_ns = times[count / 2];
    replay->real_p10_ns = times[count / 10];
    replay->real_p90_ns = times[count - 1 - count / 10];
    free(times);
    return OK;
}

/* Find the recorded step, from `first` on, whose length is nearest to the median. */
static enum status pick_ops(struct store *store, struct replay *replay, int64_t first,
                            struct err *err)
{
    struct op_row *rows = NULL;
    int64_t n = 0, best = INT64_MAX, kept = 0;
    enum status rc = record_read_ops(store, replay->info.id, &rows, &n, err);
    if (rc != OK)
        return rc;
    replay->op_step = -1;
    const struct step_row *last = &replay->steps[replay->num_steps - 1];
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && rows[i].step == rows[i - 1].step)
            continue;
        for (int64_t s = first; s < replay->num_steps; s++) {
            const struct step_row *step = &replay->steps[s];
            int64_t off = step->step_ns - replay->real_step_ns;
            off = off < 0 ? -off : off;
            if (step->step == rows[i].step && same_plan(step, last) && off < best) {
                best = off;
                replay->op_step = step->step;
            }
        }
    }
    for (int64_t i = 0; i < n; i++)
        if (rows[i].step == replay->op_step)
            rows[kept++] = rows[i];
    replay->ops = rows;
    replay->num_ops = kept;
    return OK;
}

static enum status read_record(const char *run_dir, struct replay *replay, struct err *err)
{
    char path[PATH_MAX];
    struct store *store = NULL;
    struct device_memory_row *memories = NULL;
    int64_t num_memories = 0;
    bool cached = false;
    snprintf(path, sizeof path, "%s/run.db", run_dir);
    enum status rc = store_open(path, STORE_READ, &store, err);
    THEN(record_run(store, 0, &replay->info, err));
    THEN(record_read_steps(store, replay->info.id, &replay->steps, &replay->num_steps, err));
    if (rc == OK && replay->num_steps < 1)
        rc = err_set(err, ERR_INFEASIBLE, "%s: the run has no finished step", path);
    if (rc == OK) {
        snprintf(path, sizeof path, "%s/summary.json", run_dir);
        rc = json_read_file(path, &replay->summary, err);
    }
    if (rc == OK) {
        const char *frozen = json_string(json_get(json_get(replay->summary, "plan"), "frozen"));
        cached = frozen && strcmp(frozen, frozen_placement_name(FROZEN_CACHED)) == 0;
        rc = count_steps(replay, cached, err);
    }
    THEN(pick_ops(store, replay, cached ? replay->num_steps - replay->num_counted : 0, err));
    THEN(record_read_memory(store, replay->info.id, &memories, &num_memories, err));
    for (int64_t i = 0; rc == OK && i < num_memories; i++)
        if (strcmp(memories[i].what, "total") == 0 && memories[i].peak_bytes > replay->peak_bytes)
            replay->peak_bytes = memories[i].peak_bytes;
    free(memories);
    store_close(store);
    return rc;
}

enum status replay_read(const char *run_dir, struct replay *replay, struct err *err)
{
    char path[PATH_MAX];
    struct replay got = {0};
    struct json *job = NULL;
    const char *db;
    enum status rc = read_record(run_dir, &got, err);
    if (rc != OK)
        goto out;
    if (!got.info.job_json) {
        rc = err_set(err, ERR_INFEASIBLE, "%s/run.db: the record has no job", run_dir);
        goto out;
    }
    snprintf(path, sizeof path, "%s/summary.json", run_dir);
    if ((rc = json_parse(got.info.job_json, "job of the run", &job, err)) != OK ||
        (rc = job_from_record(job, "job of the run", NULL, 0, &got.job, err)) != OK)
        goto out;
    if (!json_int64(json_get(got.summary, "ranks"), &got.num_ranks))
        got.num_ranks = got.info.num_devices;
    if ((rc = run_cluster(got.summary, got.num_ranks, path, &got.job, err)) != OK ||
        (rc = plan_json_read(json_get(got.summary, "plan"), path, &got.job.model, &got.job.cluster,
                             &got.plan, err)) != OK)
        goto out;
    got.plan.lagged = job_lags(&got.job);
    db = json_string(json_get(got.summary, "db"));
    got.db = db ? strdup(db) : NULL;
    if (db && !got.db) {
        rc = err_nomem(err);
        goto out;
    }
    *replay = got;
    got = (struct replay){0};
out:
    replay_clear(&got);
    json_free(job);
    return rc;
}

enum status executor_memory(const struct cost_handle *cost, const struct setting *setting,
                            const struct lowered_plan *lowered, int64_t **rank_bytes,
                            struct err *err)
{
    const struct model *model = setting->model;
    const struct plan *plan = lowered->plan;
    const bool on_device = !device_is_host(&setting->cluster->devices[plan->device[0]]);
    int64_t *stash = calloc((size_t)model->num_items, sizeof *stash);
    int64_t *got = calloc((size_t)plan->num_ranks, sizeof *got);
    enum status rc = stash && got ? OK : err_nomem(err);
    bool known = rc == OK;
    for (int i = 0; rc == OK && i < model->num_items; i++)
        known = cost_item_stash(cost, model, i, &stash[i]) && known;
    if (known)
        rc = pool_memory(model, lowered->full, lowered->workload, plan, stash, on_device, got, err);
    if (rc == OK && known) {
        *rank_bytes = got;
        got = NULL;
    }
    free(got);
    free(stash);
    return rc;
}

/* Predict the memory of the rank that holds most. 0 if the profile does not say how much memory the
 * kernels keep. */
static enum status predict_memory(struct replay *replay, struct err *err)
{
    const struct setting setting = {&replay->job.model, &replay->job.cluster, &replay->cost.cost};
    const struct lowered_plan lowered = {&replay->plan, &replay->full, &replay->workload};
    int64_t *ranks = NULL;
    const enum status rc = executor_memory(&replay->cost, &setting, &lowered, &ranks, err);
    for (int k = 0; ranks && k < replay->plan.num_ranks; k++)
        replay->pool_bytes = ranks[k] > replay->pool_bytes ? ranks[k] : replay->pool_bytes;
    free(ranks);
    return rc;
}

static void copy_text(const struct json *json, const char *key, char *to, size_t size)
{
    const char *text = json_string(json_get(json, key));
    snprintf(to, size, "%s", text ? text : "");
}

/* Read the machine of the run. Returns false if an older version recorded the run without it. */
static bool run_machine(const struct json *summary, struct profile_info *machine)
{
    const struct json *json = json_get(summary, "machine");
    *machine = (struct profile_info){0};
    copy_text(json, "host", machine->host, sizeof machine->host);
    copy_text(json, "device_name", machine->device_name, sizeof machine->device_name);
    copy_text(json, "driver", machine->driver, sizeof machine->driver);
    copy_text(json, "libraries", machine->libraries, sizeof machine->libraries);
    copy_text(json, "bf16_kernel", machine->bf16_kernel, sizeof machine->bf16_kernel);
    copy_text(json, "fp32_kernel", machine->fp32_kernel, sizeof machine->fp32_kernel);
    if (!json_int64(json_get(json, "clock_mhz"), &machine->clock_mhz))
        machine->clock_mhz = 0;
    return json != NULL;
}

enum status replay_simulate(struct replay *replay, const char *db_path, struct err *err)
{
    const struct sim_options options = {.record_ops = true};
    const struct setting setting = {&replay->job.model, &replay->job.cluster, &replay->cost.cost};
    struct cost_query query = cost_query_of(&replay->job);
    const char *backend = json_string(json_get(replay->summary, "backend"));
    int64_t threads = 0;
    struct profile_info machine;
    enum status rc;
    if (run_machine(replay->summary, &machine))
        query.present = &machine;
    query.backend = backend ? backend : "cpu";
    if (json_int64(json_get(replay->summary, "threads_per_rank"), &threads) && threads > 0 &&
        threads < INT32_MAX)
        query.threads = (int)threads;
    rc = cost_choose_for(db_path ? db_path : replay->db, &replay->job.model, &replay->job.cluster,
                         &query, &replay->cost, err);
    if (rc == ERR_SYSTEM && !db_path && replay->db)
        err_hint(err, "the run was planned from '%s'; give its present path with --db", replay->db);
    THEN(plan_lower(&setting, &replay->plan, &replay->workload, &replay->full, err));
    THEN(predict_memory(replay, err));
    if (rc != OK)
        return rc;
    return sim_step(&replay->full, &replay->workload, &replay->plan, &options, &replay->sim, err);
}

enum status replay_load(const char *run_dir, const char *db_path, struct replay *replay,
                        struct err *err)
{
    enum status rc = replay_read(run_dir, replay, err);
    if (rc == OK && (rc = replay_simulate(replay, db_path, err)) != OK)
        replay_clear(replay);
    return rc;
}

void replay_clear(struct replay *replay)
{
    sim_result_clear(&replay->sim);
    schedule_clear(&replay->full);
    workload_clear(&replay->workload);
    cost_handle_clear(&replay->cost);
    plan_clear(&replay->plan);
    job_clear(&replay->job);
    free(replay->info.job_json);
    json_free(replay->summary);
    free(replay->db);
    free(replay->steps);
    free(replay->ops);
    *replay = (struct replay){0};
}
