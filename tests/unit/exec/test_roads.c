/* A job comes to its plan by three roads: `elapse plan`, a simulated run, and the trainer's rank 0.
 * Over random small jobs all three end at the same plan.
 * repeated: yes */
#include "exec/trainer/train_plan.h"
#include "partition/search/plan_for.h"
#include "partition/search/turn.h"
#include "profiles/job/job_json.h"
#include "profiles/job/plan_json.h"
#include "profiles/cost/profile_cost.h"
#include "sim/run/elastic_run.h"
#include "tests/unit/test.h"

/* A trainable model on the ranks of one or two nodes, some choices of the pipeline made. */
static void make_text(char *text, size_t size, int num_ranks)
{
    static const char *const schedules[] = {"auto", "auto",  "gpipe",
                                            "1f1b", "zb-h1", "interleaved"};
    char stages[8] = "\"auto\"", counts[8] = "\"auto\"";
    const int global = (int)random_below(2), canonical = (int)random_below(4) == 0;
    if ((int)random_below(3) == 0)
        snprintf(stages, sizeof stages, "%d", 1 + (int)random_below(num_ranks));
    if ((int)random_below(3) == 0)
        snprintf(counts, sizeof counts, "%d", 1 << (int)random_below(4));
    snprintf(text, size,
             "{\"name\": \"roads\", \"model\": {\"family\": \"vit\", \"preset\": \"vit-tiny\","
             " \"image\": 16, \"patch\": 8, \"layers\": %d, \"hidden\": %d, \"heads\": 2,"
             " \"classes\": 10}, \"data\": {\"kind\": \"synthetic\", \"train_samples\": 64},"
             " \"train\": {\"epochs\": 1, \"max_steps\": 1, \"batch\": {\"%s\": %d},"
             " \"clip_norm\": %d, \"reduction\": \"%s\"},"
             " \"pipeline\": {\"num_stages\": %s, \"num_microbatches\": %s, \"schedule\": \"%s\","
             " \"recompute\": \"%s\"}}",
             4 + (int)random_below(4), 32 << (int)random_below(3),
             global ? "global" : "per_pipeline", 8 << (int)random_below(3), (int)random_below(2),
             canonical ? "canonical" : "fast", stages, counts, schedules[(int)random_below(6)],
             (int)random_below(2) ? "auto" : "never");
}

/* A plan as text: every field of it. */
static char *text_of(const struct plan *plan)
{
    struct json *json = json_object_new();
    char *text = NULL;
    plan_json_add(json, plan);
    assert_int_equal(json_text(json, false, &text, NULL), OK);
    json_free(json);
    return text;
}

/* A whole simulated run shows the counts of its plan, and its step to the nanosecond. */
static void check_sim(const struct job *job, const struct setting *setting, const struct plan *plan)
{
    struct elastic_run run = {0};
    struct err err = {0};
    struct plan_judge engine = {.setting = *setting};
    const struct sim_options options = {.seed = 1};
    int64_t step_ns = 0;
    if (elastic_run(job, setting->cost, 64, 0, &options, &run, &err) != OK)
        fail_msg("%s", err.msg);
    const struct elastic_epoch *epoch = &run.epochs[0];
    assert_int_equal(epoch->pipeline_length, plan->num_ranks);
    assert_int_equal(epoch->replicas, plan->num_pipelines);
    assert_int_equal(epoch->microbatches, plan->microbatches.count);
    assert_int_equal(epoch->microbatch_size, plan->microbatches.size);
    assert_int_equal(epoch->schedule, plan->schedule);
    assert_int_equal(plan_judge_step(&engine, plan, &step_ns, &err), OK);
    if (plan->batch * plan->num_pipelines <= 64)
        assert_int_equal(epoch->step_ns, step_ns);
    elastic_run_clear(&run);
}

static void plan_sim_and_train__find_the_same_plan(void **state)
{
    (void)state;
    int found = 0, idle = 0, refused = 0;
    int first;
    const int num_jobs = test_trials(20, 150, &first) - first;
    random_state = (uint64_t)(11 + first);
    for (int i = 0; i < num_jobs; i++) {
        const int ranks[2] = {1 + (int)random_below(4), 1 + (int)random_below(4)},
                  num_nodes = 1 + (int)random_below(2);
        const int num_ranks = ranks[0] + (num_nodes > 1 ? ranks[1] : 0);
        const struct comm comm = {.size = num_ranks, .local_size = ranks[0]};
        const struct cores cores = {.threads = 1};
        char text[1200];
        struct json *json = NULL;
        struct job job = {0};
        struct err err = {0}, train_err = {0};
        struct cost_handle cost = {0};
        struct train_plan train = {0};
        struct planner_result planned = {0};
        make_text(text, sizeof text, num_ranks);
        assert_int_equal(json_parse(text, "job", &json, NULL), OK);
        if (job_from_json(json, "job", NULL, NULL, 0, &job, &err) != OK)
            fail_msg("%s\n%s", err.msg, text);
        cluster_clear(&job.cluster);
        assert_int_equal(cluster_of_ranks(ranks, num_nodes, "cpu", &job.cluster, NULL), OK);
        /* As `elapse plan` asks. */
        const struct run_state at = {.num_samples = 64};
        const struct setting setting = {&job.model, &job.cluster, &cost.cost};
        if (cost_choose(NULL, &job, &cost, &err) != OK)
            fail_msg("%s", err.msg);
        cost.cost = turn_cost(&job, &cost.cost);
        const enum status rc = plan_for(&job, &setting, &at, NULL, &planned, &err);
        /* As rank 0 of the trainer chooses, with its own way to the costs. */
        const struct planning with = {&comm, &cores, &job, NULL, NULL, NULL};
        train.present = (struct profile_info){.device_kind = "cpu"};
        assert_int_equal(cluster_of_ranks(ranks, num_nodes, "cpu", &train.cluster, NULL), OK);
        assert_int_equal(train_plan_choose(&with, &at, &train, &train_err), rc);
        if (rc == OK) {
            char *a = text_of(&planned.plan), *b = text_of(&train.plan);
            if (strcmp(a, b) != 0)
                fail_msg("job %d on %d ranks:\n%s\nplan  %s\ntrain %s", i, num_ranks, text, a, b);
            free(a);
            free(b);
            check_sim(&job, &setting, &planned.plan);
            found++;
            idle += planned.plan.num_ranks * planned.plan.num_pipelines < num_ranks;
        } else {
            assert_string_equal(err.msg, train_err.msg);
            refused++;
        }
        train_plan_clear(&train);
        planner_result_clear(&planned);
        cost_handle_clear(&cost);
        job_clear(&job);
        json_free(json);
    }
    assert_true(found > num_jobs / 2 && idle > num_jobs / 15 && refused < num_jobs / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_sim_and_train__find_the_same_plan),
    };
    setenv("ELAPSE_DB", "/tmp/elapse-no-such-store.db", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
