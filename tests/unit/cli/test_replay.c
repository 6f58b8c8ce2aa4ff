#include <unistd.h>

#include "cli/runs/replay.h"
#include "partition/step/lower.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json.h"
#include "profiles/job/plan_json.h"
#include "sim/step/engine.h"
#include "tests/unit/test.h"

static const char job_text[] =
    "{\"model\": \"uniform:layers=4,fwd=1ms,bwd_input=1ms,bwd_weight=2ms,act=1MiB\","
    " \"train\": {\"batch\": {\"per_pipeline\": 8}},"
    " \"pipeline\": {\"num_stages\": 2, \"num_replicas\": 1, \"num_microbatches\": 4,"
    " \"schedule\": \"1f1b\"}}";
#define PLAN_REST                                                                                  \
    " \"chunks\": 1, \"microbatch_size\": 2, \"recompute\": \"never\", \"devices\": [[0, 1]],"     \
    " \"cache_write\": false, \"bucket_bytes\": 0, \"clip\": false, \"canonical\": false,"         \
    " \"optimizer_bytes_per_param\": 4, \"step_ns\": 0}"
static const char plan_text[] =
    "{\"pipeline_length\": 2, \"replicas\": 1, \"microbatches\": 4, \"batch\": 8,"
    " \"schedule\": \"1f1b\", \"frozen_layers\": 0, \"frozen\": \"none\", \"cut\": [2, "
    "2]," PLAN_REST;
static const char cached_plan_text[] =
    "{\"pipeline_length\": 2, \"replicas\": 1, \"microbatches\": 4, \"batch\": 8,"
    " \"schedule\": \"1f1b\", \"frozen_layers\": 1, \"frozen\": \"cached\", \"cut\": [2, "
    "1]," PLAN_REST;

static void load_job(struct job *job)
{
    struct json *json = NULL;
    struct cluster cluster = {0};
    assert_int_equal(json_parse(job_text, "job", &json, NULL), OK);
    assert_int_equal(job_from_json(json, "job", NULL, NULL, 0, job, NULL), OK);
    json_free(json);
    assert_int_equal(cluster_grid(1, 2, &cluster, NULL), OK);
    for (int i = 0; i < 2; i++) {
        strcpy(cluster.devices[i].kind, "cpu");
        cluster.devices[i].copy_bytes_per_s = 1e18; /* as a run's own machine */
    }
    cluster_clear(&job->cluster);
    job->cluster = cluster;
}

/* A folder as a run leaves it, except that the simulator played the machine: step i took
 * step_ns + extra_ns[i], epoch_steps of them an epoch. */
static void write_run(const char *dir, const char *text, const int64_t *extra_ns, int num_steps,
                      int epoch_steps, int64_t *step_ns)
{
    char path[300];
    struct job job = {0};
    struct plan plan = {0};
    struct cost cost = {0};
    struct workload workload = {0};
    struct schedule full = {0};
    struct sim_result sim = {0};
    struct store *store = NULL;
    struct json *json = NULL;
    const struct sim_options options = {.record_ops = true};
    struct run_info info = {.name = "test", .num_devices = 2, .job_json = (char *)job_text};
    int64_t run_id;
    load_job(&job);
    assert_int_equal(json_parse(text, "plan", &json, NULL), OK);
    assert_int_equal(plan_json_read(json, "plan", &job.model, &job.cluster, &plan, NULL), OK);
    cost_constant(&cost);
    assert_int_equal(plan_lower(&(struct setting){&job.model, &job.cluster, &cost}, &plan,
                                &workload, &full, NULL),
                     OK);
    assert_int_equal(sim_step(&full, &workload, &plan, &options, &sim, NULL), OK);
    snprintf(path, sizeof path, "%s/run.db", dir);
    assert_int_equal(store_open(path, STORE_RECORD, &store, NULL), OK);
    assert_int_equal(record_start(store, &info, &run_id, NULL), OK);
    for (int i = 0; i < num_steps; i++) {
        struct step_row row = {.step = i,
                               .epoch = i / epoch_steps,
                               .step_ns = sim.step_ns + extra_ns[i],
                               .loss = 1,
                               .pipeline_length = 2,
                               .replicas = 1};
        assert_int_equal(record_steps(store, run_id, &row, 1, NULL), OK);
    }
    for (int64_t i = 0; i < sim.num_ops; i++) {
        struct op_row row = {.step = num_steps - 1,
                             .rank = sim.ops[i].rank,
                             .start_ns = sim.ops[i].start_ns,
                             .end_ns = sim.ops[i].end_ns,
                             .op = sim.ops[i].op};
        assert_int_equal(record_ops(store, run_id, &row, 1, NULL), OK);
    }
    assert_int_equal(record_finish(store, run_id, 1, NULL), OK);
    store_close(store);
    json_free(json);
    json = json_object_new();
    json_add_int(json, "ranks", 2);
    struct json *given = NULL;
    assert_int_equal(json_parse(text, "plan", &given, NULL), OK);
    json_add_copy(json, "plan", given);
    snprintf(path, sizeof path, "%s/summary.json", dir);
    assert_int_equal(json_write_file(json, path, NULL), OK);
    *step_ns = sim.step_ns;
    json_free(given);
    json_free(json);
    sim_result_clear(&sim);
    schedule_clear(&full);
    workload_clear(&workload);
    plan_clear(&plan);
    job_clear(&job);
}

static void remove_run(const char *dir)
{
    static const char *const names[] = {"run.db", "run.db-wal", "run.db-shm", "summary.json"};
    char path[300];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static void replay_load__predicts_exactly_when_the_machine_is_the_simulator(void **state)
{
    (void)state;
    char dir[] = "/tmp/elapse-replay-XXXXXX";
    const int64_t extra_ns[] = {9000000, 8000000, 7000000, 0, 0, 0, 0, 5000000};
    int64_t step_ns;
    struct replay replay = {0};
    struct err err = {0};
    assert_non_null(mkdtemp(dir));
    write_run(dir, plan_text, extra_ns, 8, 8, &step_ns);
    enum status rc = replay_load(dir, NULL, &replay, &err);
    remove_run(dir);
    if (rc != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(replay.num_steps, 8);
    assert_int_equal(replay.num_counted, 8 - REPLAY_WARMUP);
    assert_int_equal(replay.real_step_ns, step_ns); /* warm-up and the one slow step do not count */
    assert_int_equal(replay.sim.step_ns, step_ns);
    assert_int_equal(replay.num_ops, replay.sim.num_ops);
    for (int64_t i = 0; i < replay.num_ops; i++)
        assert_true(replay.ops[i].step == replay.op_step);
    replay_clear(&replay);
    replay_clear(&replay); /* safe twice */
}

static void replay_load__has_the_median_of_each_part_of_the_run(void **state)
{
    (void)state;
    char dir[] = "/tmp/elapse-replay-XXXXXX";
    int64_t extra_ns[REPLAY_WARMUP + 20] = {0}, step_ns;
    struct replay replay = {0};
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 20; i++) /* parts of 3, 3, 4, 3, 3, 4 steps */
        extra_ns[REPLAY_WARMUP + i] = 1000 * i;
    write_run(dir, plan_text, extra_ns, REPLAY_WARMUP + 20, 100, &step_ns);
    enum status rc = replay_read(dir, &replay, NULL);
    remove_run(dir);
    assert_int_equal(rc, OK);
    static const int middles[REPLAY_PARTS] = {1, 4, 8, 11, 14, 18};
    assert_int_equal(replay.num_parts, REPLAY_PARTS);
    for (int p = 0; p < REPLAY_PARTS; p++)
        assert_int_equal(replay.part_ns[p], step_ns + 1000 * middles[p]);
    assert_int_equal(replay.real_step_ns, step_ns + 10000);
    replay_clear(&replay);
}

static void replay_load__skips_the_epoch_that_fills_the_cache(void **state)
{
    (void)state;
    char dir[] = "/tmp/elapse-replay-XXXXXX";
    const int64_t extra_ns[] = {9000000, 9000000, 9000000, 9000000, 0, 0};
    int64_t step_ns;
    struct replay replay = {0};
    struct err err = {0};
    assert_non_null(mkdtemp(dir));
    write_run(dir, cached_plan_text, extra_ns, 6, 4, &step_ns);
    enum status rc = replay_load(dir, NULL, &replay, &err);
    remove_run(dir);
    if (rc != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(replay.plan.frozen, FROZEN_CACHED);
    assert_int_equal(replay.plan.first_item[0], 1);
    assert_int_equal(replay.num_counted, 2);
    assert_int_equal(replay.real_p90_ns, step_ns);
    assert_int_equal(replay.sim.step_ns, step_ns);
    assert_int_equal(replay.op_step, 5);
    replay_clear(&replay);
}

/* The run's summary, with "node_ranks": text. */
static enum status load_on_nodes(const char *dir, const char *text, struct replay *replay,
                                 struct err *err)
{
    char path[300];
    struct json *summary = NULL, *nodes = NULL, *fresh = json_object_new();
    snprintf(path, sizeof path, "%s/summary.json", dir);
    assert_int_equal(json_read_file(path, &summary, NULL), OK);
    assert_int_equal(json_parse(text, "nodes", &nodes, NULL), OK);
    json_add_int(fresh, "ranks", 2);
    json_add_copy(fresh, "plan", json_get(summary, "plan"));
    json_add_copy(fresh, "node_ranks", nodes);
    assert_int_equal(json_write_file(fresh, path, NULL), OK);
    json_free(summary);
    json_free(nodes);
    json_free(fresh);
    return replay_load(dir, NULL, replay, err);
}

static void replay_load__puts_ranks_on_the_nodes_they_ran_on(void **state)
{
    (void)state;
    static const char *const bad[] = {"[]", "[1]", "[2,1]", "[2,0]", "[1,-1,2]", "7", "[\"1\",1]"};
    char dir[] = "/tmp/elapse-replay-XXXXXX";
    const int64_t extra_ns[8] = {0};
    int64_t step_ns;
    struct replay replay = {0};
    assert_non_null(mkdtemp(dir));
    write_run(dir, plan_text, extra_ns, 8, 8, &step_ns);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err err = {0};
        assert_int_equal(load_on_nodes(dir, bad[i], &replay, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "node_ranks"));
    }
    enum status rc = load_on_nodes(dir, "[1,1]", &replay, NULL);
    remove_run(dir);
    assert_int_equal(rc, OK);
    assert_int_equal(replay.job.cluster.num_nodes, 2);
    assert_int_equal(replay.job.cluster.devices[0].node, 0);
    assert_int_equal(replay.job.cluster.devices[1].node, 1);
    replay_clear(&replay);
}

static void replay_load__refuses_what_is_no_run(void **state)
{
    (void)state;
    char dir[] = "/tmp/elapse-replay-XXXXXX";
    struct replay replay = {0};
    struct err err = {0};
    int64_t step_ns;
    assert_int_equal(replay_load("/tmp/elapse-no-such-run", NULL, &replay, &err), ERR_SYSTEM);
    assert_non_null(mkdtemp(dir));
    err = (struct err){0};
    write_run(dir, plan_text, NULL, 0, 1, &step_ns);
    enum status rc = replay_load(dir, NULL, &replay, &err);
    remove_run(dir);
    assert_int_equal(rc, ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "no finished step"));
    assert_null(replay.steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay_load__predicts_exactly_when_the_machine_is_the_simulator),
        cmocka_unit_test(replay_load__has_the_median_of_each_part_of_the_run),
        cmocka_unit_test(replay_load__skips_the_epoch_that_fills_the_cache),
        cmocka_unit_test(replay_load__puts_ranks_on_the_nodes_they_ran_on),
        cmocka_unit_test(replay_load__refuses_what_is_no_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
