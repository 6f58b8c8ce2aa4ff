/* What is answered can be true: random questions over models, machines, data types, frameworks and
 * layouts, each planned and simulated, and claims that cannot be true, which are refused.
 *
 * 400 questions; in make test-rest 500 others, in make test-all 2,000. ELAPSE_PLAUSIBLE_FIRST and
 * ELAPSE_PLAUSIBLE_COUNT say which.
 * repeated: yes, seconds: 6 */
#include "partition/plan/plausible.h"

#include "partition/search/plan_for.h"
#include "profiles/cost/profile_cost.h"
#include "profiles/job/job_json.h"
#include "sim/run/plan_judge.h"
#include "tests/unit/test.h"

#define PICK(list) (list)[random_between(0, (int64_t)(sizeof(list) / sizeof *(list)) - 1)]

enum { MOST_KEYS = 16, KEY_BYTES = 96 };

struct question {
    char keys[MOST_KEYS][KEY_BYTES];
    int num_keys;
    int frozen;
};

__attribute__((format(printf, 2, 3))) static void add_key(struct question *q, const char *format,
                                                          ...)
{
    va_list args;
    assert_true(q->num_keys < MOST_KEYS);
    va_start(args, format);
    vsnprintf(q->keys[q->num_keys++], KEY_BYTES, format, args);
    va_end(args);
}

static bool chance(int in)
{
    return random_between(1, in) == 1;
}

static void add_machine(struct question *q)
{
    static const char *const kinds[] = {"v100",    "t4",    "a100",  "a100-40gb", "a100-pcie",
                                        "rtx4090", "l4",    "h100",  "h200",      "h20",
                                        "b200",    "gb300", "a6000", "mi300x",    "mi355x",
                                        "rtx5090", "h800",  "a30",   "tpu-v5p",   "gaudi3"};
    static const char *const links[] = {"uplink=1Gbps", "uplink=10Gbps", "uplink=400Gbps",
                                        "link=16GBps", "link=900GBps"};
    static const int nodes[] = {1, 1, 2, 3, 4, 8}, devices[] = {1, 2, 4, 8};
    add_key(q, "cluster={\"nodes\": %d, \"devices_per_node\": %d, \"kind\": \"%s\"}", PICK(nodes),
            PICK(devices), PICK(kinds));
    if (chance(2))
        add_key(q, "cluster.%s", PICK(links));
}

static void add_training(struct question *q)
{
    static const char *const dtypes[] = {"bf16", "bf16", "bf16",  "fp32", "tf32",
                                         "fp16", "fp8",  "mxfp8", "nvfp4"};
    static const char *const optimizers[] = {"adamw", "sgd"};
    static const char *const frameworks[] = {"auto", "megatron-te",   "megatron-2021", "deepspeed",
                                             "fsdp", "fsdp-compiled", "hf-eager"};
    static const int batches[] = {1, 2, 4, 8, 16, 24, 64, 128, 256};
    static const char *const sources[] = {"kernels", "kernels", "roofline"};
    add_key(q, "train.dtype=%s", PICK(dtypes));
    add_key(q, "train.optimizer.kind=%s", PICK(optimizers));
    add_key(q, "train.framework=%s", PICK(frameworks));
    add_key(q, "train.batch.global=%d", PICK(batches));
    add_key(q, "cost.source=%s", PICK(sources));
    if (chance(6))
        add_key(q, "train.lora.rank=%d", 1 << random_between(2, 6));
}

static void add_layout(struct question *q)
{
    static const char *const keys[] = {
        "pipeline.num_stages=1", "pipeline.num_stages=2",   "pipeline.num_stages=4",
        "pipeline.tensor=2",     "pipeline.tensor=4",       "pipeline.context=2",
        "pipeline.shard=none",   "pipeline.shard=weights",  "pipeline.recompute=never",
        "pipeline.expert=2",     "pipeline.recompute=layer"};
    static const char *const schedules[] = {"1f1b",        "gpipe", "zb-h1",
                                            "interleaved", "zb-v",  "dualpipe-v"};
    if (chance(2))
        add_key(q, "pipeline.schedule=%s", chance(3) ? "auto" : PICK(schedules));
    if (chance(3))
        add_key(q, "%s", PICK(keys));
    if (chance(4))
        add_key(q, "cluster.mem=%dGiB", (int)random_between(8, 200));
}

static void random_question(int seed, struct question *q)
{
    static const char *const models[] = {"gpt2:seq=%d",          "gpt2-xl:seq=%d",
                                         "gpt3-6.7b:seq=%d",     "bert-large:seq=%d",
                                         "llama3.2-1b:seq=%d",   "llama3-8b:seq=%d",
                                         "qwen2.5-7b:seq=%d",    "mixtral-8x7b:seq=%d",
                                         "gemma2-9b:seq=%d",     "deepseek-v2-lite:seq=%d",
                                         "qwen3-30b-a3b:seq=%d", "gemma3-4b:seq=%d",
                                         "gpt-oss-20b:seq=%d",   "llama2-70b:seq=%d",
                                         "phi3-mini:seq=%d",     "falcon-7b:seq=%d"};
    static const char *const images[] = {"vit-b16",  "vit-h14",  "swin-l",      "whisper-large",
                                         "dit-xl/2", "t5-large", "clip-vit-l14"};
    static const int lengths[] = {128, 384, 512};
    *q = (struct question){0};
    random_state = (uint64_t)seed * 99991 + 77;
    random_between(0, 1);
    const char *text = PICK(models);
    char model[KEY_BYTES];
    const int seq = strncmp(text, "bert", 4) == 0 ? PICK(lengths) : 1 << random_between(7, 15);
    snprintf(model, sizeof model, text, strncmp(text, "gpt2", 4) == 0 && seq > 1024 ? 1024 : seq);
    add_key(q, "model=%s", chance(5) ? PICK(images) : model);
    add_machine(q);
    add_training(q);
    add_layout(q);
    q->frozen = chance(6) ? (int)random_between(1, 6) : 0;
}

/* A watch that takes the first plan. */
static bool first_plan(void *ctx, const struct planner_progress *progress)
{
    (void)ctx;
    return progress->best_per_s <= 0;
}

static void say(int seed, const struct question *q, const char *what)
{
    printf("# %d: %s:", seed, what);
    for (int i = 0; i < q->num_keys; i++)
        printf(" --set '%s'", q->keys[i]);
    printf(" --frozen %d\n", q->frozen);
}

/* Judge the plan of a question, as the planner and as the engine see it. */
static bool plan_is_plausible(const struct job *job, const struct cost *cost,
                              const struct planner_result *result, struct err *err)
{
    static const struct sim_options plain = {.seed = 1};
    const struct setting setting = {&job->model, &job->cluster, cost};
    const struct plan_judge judge = {.setting = setting};
    const struct plan *plan = &result->plan;
    struct step_claim claim = {.setting = &setting,
                               .plan = plan,
                               .step_ns = plan->step_ns,
                               .rates = rates_of_step(&job->model, &job->cluster, plan,
                                                      job->train.dtype, result->samples_per_s),
                               .bubble = NAN,
                               .memory_bytes = plan->memory_bytes,
                               .fits = true,
                               .speed = 1};
    enum status rc = plausible_step(&claim, err);
    THEN(plan_simulate(&judge, plan, &plain, &claim.step_ns, &claim.bubble, err));
    if (rc == OK) {
        claim.rates = rates_of_step(&job->model, &job->cluster, plan, job->train.dtype,
                                    (double)plan_samples(plan) * 1e9 / (double)claim.step_ns);
        rc = plausible_step(&claim, err);
    }
    return rc == OK;
}

/* Ask a question. *planned: it has a plan. */
static bool ask(int seed, bool *planned)
{
    struct question q;
    const char *list[MOST_KEYS];
    struct json *json = NULL;
    struct job job = {0};
    struct cost_handle cost = {0};
    struct err err = {0}, why = {0};
    bool good = true;
    random_question(seed, &q);
    for (int i = 0; i < q.num_keys; i++)
        list[i] = q.keys[i];
    assert_int_equal(json_parse("{\"data\": {\"kind\": \"synthetic\", \"train_samples\": 4096}}",
                                "job", &json, NULL),
                     OK);
    *planned = false;
    enum status rc = job_from_json(json, "job", NULL, list, q.num_keys, &job, &err);
    THEN(cost_choose(NULL, &job, &cost, &err));
    if (getenv("ELAPSE_PLAUSIBLE_SAY") && rc != OK)
        say(seed, &q, err.msg);
    if (rc == OK && q.frozen < job.model.num_layers) {
        const struct setting setting = {&job.model, &job.cluster, &cost.cost};
        const struct run_state state = {.num_frozen_layers = q.frozen,
                                        .num_samples = job_num_samples(&job, true)};
        const struct planner_judge judge = {.watch = first_plan};
        struct planner_result result = {0};
        rc = plan_for(&job, &setting, &state, &judge, &result, &err);
        *planned = rc == OK;
        good = rc != OK || plan_is_plausible(&job, &cost.cost, &result, &why);
        if (!good)
            say(seed, &q, why.msg);
        planner_result_clear(&result);
    }
    json_free(json);
    cost_handle_clear(&cost);
    job_clear(&job);
    return good;
}

/* Each claim is a true answer but for one value. */
static void plausible_step__refuses_what_cannot_be(void **state)
{
    (void)state;
    static const char *const list[] = {"model=gpt2-xl", "cluster=h100-1x4", "train.dtype=bf16",
                                       "train.batch.global=32", "train.optimizer.kind=adamw"};
    struct json *json = NULL;
    struct job job = {0};
    struct cost_handle cost = {0};
    struct planner_result result = {0};
    struct err err = {0};
    assert_int_equal(json_parse("{\"data\": {\"kind\": \"synthetic\", \"train_samples\": 64}}",
                                "job", &json, NULL),
                     OK);
    assert_int_equal(job_from_json(json, "job", NULL, list, 5, &job, &err), OK);
    assert_int_equal(cost_choose(NULL, &job, &cost, &err), OK);
    const struct setting setting = {&job.model, &job.cluster, &cost.cost};
    const struct run_state start = {.num_samples = 64};
    assert_int_equal(plan_for(&job, &setting, &start, NULL, &result, &err), OK);
    const struct plan *plan = &result.plan;
    const struct step_claim good = {.setting = &setting,
                                    .plan = plan,
                                    .step_ns = plan->step_ns,
                                    .rates = rates_of_step(&job.model, &job.cluster, plan,
                                                           job.train.dtype, result.samples_per_s),
                                    .bubble = 0.25,
                                    .memory_bytes = plan->memory_bytes,
                                    .fits = true,
                                    .speed = 1};
    assert_int_equal(plausible_step(&good, &err), OK);
    int64_t large[64], nothing[64] = {0};
    for (int k = 0; k < plan->num_ranks; k++)
        large[k] = job.cluster.devices[0].mem_bytes + 1;
    enum { CLAIMS = 8 };
    struct step_claim bad[CLAIMS];
    for (int i = 0; i < CLAIMS; i++)
        bad[i] = good;
    bad[0].rates.mfu = 8.9;
    bad[1].rates.hfu = 1.01;
    bad[2].step_ns = 0;
    bad[3].step_ns = 1000;
    bad[4].bubble = -0.01;
    bad[5].bubble = 1.01;
    bad[6].memory_bytes = large;
    bad[7].memory_bytes = nothing;
    for (int i = 0; i < CLAIMS; i++) {
        struct err why = {0};
        assert_int_equal(plausible_step(&bad[i], &why), ERR_SYSTEM);
        assert_non_null(strstr(why.msg, "internal error"));
        assert_non_null(strstr(why.hint, "report"));
    }
    bad[0].speed = 10; /* the job asks for more than the published peak */
    assert_int_equal(plausible_step(&bad[0], &err), OK);
    bad[6].fits = false;
    assert_int_equal(plausible_step(&bad[6], &err), OK);
    planner_result_clear(&result);
    json_free(json);
    cost_handle_clear(&cost);
    job_clear(&job);
}

static int from_env(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static void answers__are_plausible_to_random_questions(void **state)
{
    (void)state;
    const int first = from_env("ELAPSE_PLAUSIBLE_FIRST", test_rest() ? 400 : 0),
              count = from_env("ELAPSE_PLAUSIBLE_COUNT", test_rest()  ? 500
                                                         : test_all() ? 2000
                                                                      : 400);
    int planned = 0, bad = 0;
    for (int i = 0; i < count; i++) {
        bool has_plan;
        bad += !ask(first + i, &has_plan);
        planned += has_plan;
    }
    printf("# %d questions, %d with a plan, %d implausible\n", count, planned, bad);
    assert_true(planned * 3 > count);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plausible_step__refuses_what_cannot_be),
        cmocka_unit_test(answers__are_plausible_to_random_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
