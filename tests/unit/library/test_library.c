/* library/elapse.h: closed forms, errors, structs of older and newer programs, threads, locales.
 * tests/e2e/e2e_install.sh compares its answers with those of `elapse`. */
#include <locale.h>
#include <pthread.h>

#include "library/elapse.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

/* Two stages of two layers: a forward of 2 ms and a backward of 4 ms, messages of no time. */
static const char small_job[] =
    "{\"model\": \"uniform:layers=4,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,act=0B,params=1000\","
    " \"data\": {\"kind\": \"synthetic\", \"train_samples\": 64, \"test_samples\": 8},"
    " \"train\": {\"batch\": {\"global\": 8}, \"epochs\": 2},"
    " \"cluster\": {\"preset\": \"1x2\", \"latency\": \"0us\"},"
    " \"pipeline\": {\"num_stages\": 2, \"num_microbatches\": 4, \"schedule\": \"gpipe\"}}";
static const char gpt_job[] =
    "{\"model\": \"gpt2:seq=256\", \"data\": {\"kind\": \"text\", \"train_samples\": 64},"
    " \"train\": {\"batch\": {\"global\": 16}, \"dtype\": \"bf16\"}, \"cluster\": \"a100-1x4\","
    " \"cost\": {\"source\": \"kernels\", \"efficiency\": 0.5},"
    " \"freeze\": {\"policy\": \"closed-form\", \"alpha\": \"1/3\"}}";

static const char context_job[] =
    "{\"model\": \"gpt2:seq=1024\", \"data\": {\"kind\": \"text\", \"train_samples\": 64},"
    " \"train\": {\"batch\": {\"global\": 8}, \"dtype\": \"bf16\"}, \"cluster\": \"a100-1x2\","
    " \"pipeline\": {\"num_stages\": 1, \"context\": 2, \"tensor\": 1}}";

/* Its costs come from a profile inside the library. */
static const char vit_job[] =
    "{\"model\": \"vit-b16:classes=100\", \"data\": {\"kind\": \"cifar100\"},"
    " \"train\": {\"batch\": {\"per_pipeline\": 320}, \"max_steps\": 4},"
    " \"cluster\": \"rtx5000-1x4\", \"pipeline\": {\"schedule\": \"1f1b\", \"balancer\": "
    "\"optimal\"}}";

static struct elapse_job *parse(const char *text)
{
    struct elapse_error error;
    struct elapse_job *job = NULL;
    if (elapse_job_parse(text, NULL, &job, &error) != ELAPSE_OK)
        fail_msg("%s", error.message);
    return job;
}

static struct elapse_plan *find(struct elapse_job *job)
{
    struct elapse_error error;
    struct elapse_plan *plan = NULL;
    if (elapse_plan_find(job, NULL, &plan, &error) != ELAPSE_OK)
        fail_msg("%s", error.message);
    return plan;
}

/* (M + K - 1) (forward + backward), of which K - 1 are idle (Huang et al., GPipe, 2019). */
static void a_step__has_the_closed_form_of_gpipe(void **state)
{
    (void)state;
    struct elapse_job *job = parse(small_job);
    struct elapse_plan *plan = find(job);
    struct elapse_step *step = NULL;
    struct elapse_step_options options = {.size = sizeof options, .ops = 1};
    assert_int_equal(elapse_step_simulate(job, plan, &options, &step, NULL), ELAPSE_OK);
    struct elapse_plan_info p = {.size = sizeof p};
    struct elapse_step_info s = {.size = sizeof s};
    elapse_plan_info(plan, &p);
    elapse_step_info(step, &s);
    assert_int_equal(s.step_ns, (4 + 2 - 1) * 6000000);
    assert_int_equal(p.step_ns, s.step_ns);
    assert_float_equal(s.bubble_fraction, 0.2, 1e-6);
    assert_float_equal(s.samples_per_s, 8 / 0.030, 1e-3);
    assert_int_equal(p.pipeline_length * 10 + p.microbatches, 24);
    assert_string_equal(p.schedule, "gpipe");
    int64_t busy_ns = 0, forwards = 0;
    int items = 0;
    for (int64_t i = 0; i < s.num_ops; i++) {
        struct elapse_op op = {.size = sizeof op};
        assert_int_equal(elapse_step_op(step, i, &op), ELAPSE_OK);
        forwards += strcmp(op.kind, "F") == 0;
        assert_true(op.end_ns >= op.start_ns && op.end_ns <= s.step_ns);
    }
    for (int d = 0; d < s.num_devices; d++) {
        struct elapse_device device = {.size = sizeof device};
        assert_int_equal(elapse_step_device(step, d, &device), ELAPSE_OK);
        assert_int_equal(device.device, elapse_plan_device(plan, device.replica, device.rank));
        busy_ns += device.busy_ns;
    }
    for (int k = 0; k < p.num_stages; k++) {
        struct elapse_stage stage = {.size = sizeof stage};
        assert_int_equal(elapse_plan_stage(plan, k, &stage), ELAPSE_OK);
        assert_int_equal(stage.first_item, items);
        assert_int_equal(stage.pass_ns, 6000000);
        items += stage.num_items;
    }
    assert_int_equal(forwards, 2 * 4);
    assert_int_equal(busy_ns, 2 * 24000000);
    assert_int_equal(items, 4);
    elapse_step_free(step);
    elapse_plan_free(plan);
    elapse_job_free(job);
}

/* Two pipelines, each for half of the tokens of every sample: one replica for users. */
static void a_plan_with_context_2__has_the_samples_of_one_replica(void **state)
{
    (void)state;
    struct elapse_job *job = parse(context_job);
    struct elapse_plan *plan = find(job), *again = NULL;
    struct elapse_step *step = NULL;
    struct elapse_plan_info p = {.size = sizeof p}, q = {.size = sizeof q};
    struct elapse_step_info s = {.size = sizeof s};
    char *text = NULL;
    assert_int_equal(elapse_plan_json(plan, &text, NULL), ELAPSE_OK);
    assert_int_equal(elapse_plan_load(job, file_with("context.json", text), &again, NULL),
                     ELAPSE_OK);
    assert_int_equal(elapse_step_simulate(job, again, NULL, &step, NULL), ELAPSE_OK);
    elapse_plan_info(plan, &p);
    elapse_plan_info(again, &q);
    elapse_step_info(step, &s);
    assert_int_equal(p.replicas, 1);
    assert_int_equal(s.num_devices, 2);
    assert_true(p.framework_low_ns > 0 && p.framework_high_ns > p.framework_low_ns);
    assert_int_equal(s.framework_low_ns, p.framework_low_ns);
    assert_int_equal(s.framework_high_ns, p.framework_high_ns);
    assert_int_equal(q.step_ns, p.step_ns);
    assert_int_equal(s.step_ns, p.step_ns);
    const double rate = 8 / (1e-9 * (double)p.step_ns);
    assert_float_equal(p.samples_per_s / rate, 1, 1e-9);
    assert_float_equal(q.samples_per_s / rate, 1, 1e-9);
    assert_float_equal(s.samples_per_s / rate, 1, 1e-9);
    free(text);
    elapse_step_free(step);
    elapse_plan_free(plan);
    elapse_plan_free(again);
    elapse_job_free(job);
}

static void a_run__is_its_epochs(void **state)
{
    (void)state;
    struct elapse_job *job = parse(small_job);
    struct elapse_run *run = NULL;
    assert_int_equal(elapse_run_simulate(job, NULL, &run, NULL), ELAPSE_OK);
    elapse_job_free(job); /* a run outlives its job */
    struct elapse_run_info info = {.size = sizeof info};
    elapse_run_info(run, &info);
    assert_int_equal(info.num_epochs, 2);
    assert_int_equal(info.samples, 128);
    assert_int_equal(info.total_ns, 2 * 8 * 30000000);
    struct elapse_epoch epoch = {.size = sizeof epoch};
    assert_int_equal(elapse_run_epoch(run, 1, &epoch), ELAPSE_OK);
    assert_int_equal(epoch.steps, 8);
    assert_int_equal(epoch.epoch_ns, 8 * 30000000);
    assert_int_equal(elapse_run_epoch(run, 2, &epoch), ELAPSE_ERR_INPUT);
    assert_int_equal(elapse_run_epoch(run, -1, &epoch), ELAPSE_ERR_INPUT);
    elapse_run_free(run);
}

static void a_plan__goes_through_a_file(void **state)
{
    (void)state;
    struct elapse_job *job = parse(small_job);
    struct elapse_plan *plan = find(job), *again = NULL, *none = NULL;
    struct elapse_error error;
    char *text = NULL, *text_again = NULL;
    assert_int_equal(elapse_plan_json(plan, &text, NULL), ELAPSE_OK);
    const char *path = file_with("plan.json", text);
    assert_int_equal(elapse_plan_load(job, path, &again, NULL), ELAPSE_OK);
    assert_int_equal(elapse_plan_json(again, &text_again, NULL), ELAPSE_OK);
    assert_string_equal(text, text_again);
    struct elapse_job *other = parse(gpt_job);
    assert_int_not_equal(elapse_plan_load(other, path, &none, &error), ELAPSE_OK);
    assert_non_null(strstr(error.message, path));
    struct elapse_step *step = NULL; /* nor does it run for a job that it does not fit */
    assert_int_equal(elapse_step_simulate(other, again, NULL, &step, &error),
                     ELAPSE_ERR_INFEASIBLE);
    assert_null(none);
    assert_null(step);
    free(text);
    free(text_again);
    elapse_plan_free(plan);
    elapse_plan_free(again);
    elapse_job_free(job);
    elapse_job_free(other);
}

static void failures__say_what_and_leave_the_pointer(void **state)
{
    (void)state;
    struct elapse_job *job = (void *)&job;
    struct elapse_error error = {0};
    assert_int_equal(elapse_job_load("/no/such.json", NULL, &job, &error), ELAPSE_ERR_SYSTEM);
    assert_non_null(strstr(error.message, "/no/such.json"));
    assert_int_equal(elapse_job_parse("{", NULL, &job, &error), ELAPSE_ERR_INPUT);
    assert_int_equal(elapse_job_parse("{\"modell\": 1}", NULL, &job, &error), ELAPSE_ERR_INPUT);
    assert_int_equal(error.status, ELAPSE_ERR_INPUT);
    assert_non_null(strstr(error.message, "modell"));
    const char *const bad[] = {"pipeline.num_stages=many"};
    const char *const tiny[] = {"cluster.mem=1KB"};
    struct elapse_job_options options = {
        .size = sizeof options, .overrides = bad, .num_overrides = 1};
    assert_int_equal(elapse_job_parse(small_job, &options, &job, &error), ELAPSE_ERR_INPUT);
    assert_ptr_equal(job, &job);
    options.overrides = tiny;
    assert_int_equal(elapse_job_parse(small_job, &options, &job, &error), ELAPSE_OK);
    assert_int_equal(error.status, ELAPSE_OK);
    struct elapse_plan *plan = NULL;
    assert_int_equal(elapse_plan_find(job, NULL, &plan, &error), ELAPSE_ERR_INFEASIBLE);
    assert_true(strlen(error.message) > 0);
    const struct elapse_plan_options frozen = {.size = sizeof frozen, .frozen_layers = 5};
    assert_int_equal(elapse_plan_find(job, &frozen, &plan, &error), ELAPSE_ERR_INPUT);
    assert_null(plan);
    elapse_job_free(job);
    elapse_job_free(NULL);
    elapse_plan_free(NULL);
    elapse_step_free(NULL);
    elapse_run_free(NULL);
}

/* An older program has fewer members, which are all that may be written. A newer one has more,
 * which become zero. */
static void structs__may_be_shorter_or_longer(void **state)
{
    (void)state;
    struct elapse_job *job = parse(small_job);
    struct elapse_plan *plan = find(job);
    union {
        struct elapse_plan_info info;
        unsigned char bytes[sizeof(struct elapse_plan_info) + 64];
    } older, newer;
    const size_t cut = offsetof(struct elapse_plan_info, tensor);
    memset(&older, 0x5a, sizeof older);
    memset(&newer, 0x5a, sizeof newer);
    older.info.size = cut;
    newer.info.size = sizeof newer;
    elapse_plan_info(plan, &older.info);
    elapse_plan_info(plan, &newer.info);
    assert_int_equal(older.info.pipeline_length, 2);
    assert_int_equal(newer.info.pipeline_length, 2);
    for (size_t i = cut; i < sizeof older; i++)
        assert_int_equal(older.bytes[i], 0x5a);
    for (size_t i = sizeof newer.info; i < sizeof newer; i++)
        assert_int_equal(newer.bytes[i], 0);
    assert_int_equal(newer.info.size, sizeof newer);
    /* Options: seed and ops lie behind the size, so they are not read. */
    const struct elapse_step_options with = {.size = sizeof with, .ops = 1},
                                     without = {.size = offsetof(struct elapse_step_options, seed),
                                                .ops = 1};
    for (int i = 0; i < 2; i++) {
        struct elapse_step *step = NULL;
        struct elapse_step_info info = {.size = sizeof info};
        assert_int_equal(elapse_step_simulate(job, plan, i ? &without : &with, &step, NULL),
                         ELAPSE_OK);
        elapse_step_info(step, &info);
        assert_int_equal(info.num_ops > 0, i == 0);
        elapse_step_free(step);
    }
    elapse_plan_free(plan);
    elapse_job_free(job);
}

/* A plan, its step and the first epoch of its run have the band of published runs, by computed times alone. */
static void steps__have_the_band_of_published_runs(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct elapse_job *job = parse(i ? small_job : gpt_job);
        struct elapse_plan *plan = find(job);
        struct elapse_step *step = NULL;
        struct elapse_run *run = NULL;
        struct elapse_plan_info p = {.size = sizeof p};
        struct elapse_step_info s = {.size = sizeof s};
        struct elapse_epoch e = {.size = sizeof e};
        assert_int_equal(elapse_step_simulate(job, plan, NULL, &step, NULL), ELAPSE_OK);
        assert_int_equal(elapse_run_simulate(job, NULL, &run, NULL), ELAPSE_OK);
        elapse_plan_info(plan, &p);
        elapse_step_info(step, &s);
        assert_int_equal(elapse_run_epoch(run, 0, &e), ELAPSE_OK);
        const int64_t *bands[] = {p.step_band_ns, s.step_band_ns, e.step_band_ns};
        const int64_t steps[] = {p.step_ns, s.step_ns, e.step_ns};
        for (int b = 0; b < 3; b++) {
            const double low = (double)bands[b][0] / (double)steps[b],
                         high = (double)bands[b][1] / (double)steps[b];
            assert_float_equal(low, (double)bands[0][0] / (double)steps[0], 1e-6);
            assert_true(i ? high == 0 : low > 0.5 && low < 1.1 && high > low && high < 2);
        }
        elapse_run_free(run);
        elapse_step_free(step);
        elapse_plan_free(plan);
        elapse_job_free(job);
    }
}

/* The figures of a job, as one thread works them out. */
static void *figures(void *text)
{
    struct elapse_job *job = parse(text);
    struct elapse_plan *plan = find(job);
    struct elapse_run *run = NULL;
    struct elapse_plan_info p = {.size = sizeof p};
    struct elapse_run_info r = {.size = sizeof r};
    char *said = malloc(200);
    elapse_plan_info(plan, &p);
    if (elapse_run_simulate(job, NULL, &run, NULL) == ELAPSE_OK)
        elapse_run_info(run, &r);
    snprintf(said, 200, "%d %d %d %s %lld %a %lld", p.pipeline_length, p.replicas, p.microbatches,
             p.schedule, (long long)p.step_ns, p.samples_per_s, (long long)r.total_ns);
    elapse_run_free(run);
    elapse_plan_free(plan);
    elapse_job_free(job);
    return said;
}

enum { THREADS = 8 };

static void threads__with_their_own_handles_get_equal_answers(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    const char *const jobs[3] = {gpt_job, small_job, vit_job};
    char *alone[3];
    for (int i = 0; i < 3; i++)
        alone[i] = figures((void *)jobs[i]);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, figures, (void *)jobs[i % 3]), 0);
    for (int i = 0; i < THREADS; i++) {
        void *said = NULL;
        pthread_join(threads[i], &said);
        assert_string_equal(said, alone[i % 3]);
        free(said);
    }
    for (int i = 0; i < 3; i++)
        free(alone[i]);
}

/* Make a locale with a decimal comma and switch to it; false: this machine cannot. */
static bool set_comma(void)
{
    char command[512];
    file_with("source", "LC_CTYPE\ncopy \"POSIX\"\nEND LC_CTYPE\nLC_NUMERIC\ndecimal_point \",\"\n"
                        "thousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n");
    snprintf(
        command, sizeof command,
        "cd %s; localedef -c -i source -f ANSI_X3.4-1968 ./comma >/dev/null 2>&1; test -d comma",
        scratch);
    return system(command) == 0 && setenv("LOCPATH", scratch, 1) == 0 &&
           setlocale(LC_NUMERIC, "comma");
}

static void a_decimal_comma_of_the_program__changes_nothing(void **state)
{
    (void)state;
    char half[8];
    char *before = figures((void *)gpt_job);
    const bool can = set_comma();
    snprintf(half, sizeof half, "%.1f", 0.5);
    char *during = figures((void *)gpt_job);
    snprintf(half + 4, sizeof half - 4, "%.1f", 0.5);
    setlocale(LC_NUMERIC, "C");
    if (can) {
        assert_string_equal(half, "0,5");
        assert_string_equal(half + 4, "0,5"); /* the program's locale is what it was */
        /* figures() prints one number by the program's locale itself: %a */
        for (char *c = during; *c; c++)
            if (*c == ',')
                *c = '.';
        assert_string_equal(before, during);
    }
    free(before);
    free(during);
    if (!can)
        skip();
}

static void every_failed_allocation__is_reported(void **state)
{
    (void)state;
    bool failed = FAIL_MALLOC;
    for (int n = 0; failed; n += 1 + n / 40) {
        struct elapse_job *job = NULL;
        struct elapse_plan *plan = NULL;
        struct elapse_step *step = NULL;
        struct elapse_run *run = NULL;
        struct elapse_error error;
        fail_malloc_after(n);
        enum elapse_status rc = elapse_job_parse(small_job, NULL, &job, &error);
        if (rc == ELAPSE_OK)
            rc = elapse_plan_find(job, NULL, &plan, &error);
        if (rc == ELAPSE_OK)
            rc = elapse_step_simulate(job, plan, NULL, &step, &error);
        if (rc == ELAPSE_OK)
            rc = elapse_run_simulate(job, NULL, &run, &error);
        failed = !fail_malloc_done();
        assert_int_equal(rc, failed ? ELAPSE_ERR_NOMEM : ELAPSE_OK);
        assert_int_equal(error.status, rc);
        assert_int_equal(run != NULL, !failed);
        elapse_run_free(run);
        elapse_step_free(step);
        elapse_plan_free(plan);
        elapse_job_free(job);
    }
}

/* The epochs of the simulated run are the judge. */
static void a_freezer__decides_as_the_simulated_run(void **state)
{
    (void)state;
    static const char *const policies[] = {"freeze.policy=closed-form", "freeze.policy=table"};
    for (int i = 0; i < 2; i++) {
        const char *const overrides[] = {"train.epochs=5", policies[i], "freeze.table=[0,1,2,2,3]"};
        const struct elapse_job_options options = {
            .size = sizeof options, .overrides = overrides, .num_overrides = 2 + (size_t)i};
        struct elapse_job *job = NULL;
        struct elapse_run *run = NULL;
        struct elapse_freezer *freezer = NULL;
        struct elapse_plan *plan = NULL;
        struct elapse_error error;
        if (elapse_job_parse(small_job, &options, &job, &error) != ELAPSE_OK)
            fail_msg("%s", error.message);
        assert_int_equal(elapse_run_simulate(job, NULL, &run, &error), ELAPSE_OK);
        assert_int_equal(elapse_freezer_new(job, NULL, &freezer, &error), ELAPSE_OK);
        int frozen = 0;
        for (int e = 0; e < 5; e++) {
            struct elapse_epoch epoch = {.size = sizeof epoch};
            struct elapse_freeze_decision decision = {.size = sizeof decision};
            elapse_run_epoch(run, e, &epoch);
            assert_int_equal(elapse_freezer_decide(freezer, e, NULL, 0, plan, &decision, &error),
                             ELAPSE_OK);
            assert_int_equal(decision.num_frozen, epoch.frozen_layers);
            assert_string_equal(decision.reason, epoch.reason);
            assert_int_equal(decision.change, e == 0 || decision.num_frozen != frozen);
            frozen = decision.num_frozen;
            if (!plan && decision.num_frozen == 0)
                plan = find(job);
            if (decision.change && plan) {
                const struct elapse_plan_options next = {
                    .size = sizeof next, .frozen_layers = frozen, .current = plan, .turn = e};
                struct elapse_plan *changed = NULL;
                assert_int_equal(elapse_plan_find(job, &next, &changed, &error), ELAPSE_OK);
                elapse_plan_free(plan);
                plan = changed;
            }
        }
        assert_true(frozen > 0);
        elapse_plan_free(plan);
        elapse_freezer_free(freezer);
        elapse_run_free(run);
        elapse_job_free(job);
    }
}

/* Windows in which the first layers bring nothing: `safe` asks for a prefix and freezes it. */
/* The choice knows no stages, so that a cut changes nothing; the ramp is a line over three turns. */
static void elapse_freeze_choose__chooses_items_of_any_cut(void **state)
{
    enum { ITEMS = 20 };
    unsigned char whole[ITEMS], parts[ITEMS];
    struct elapse_error error;
    int left = 0;
    (void)state;
    struct elapse_freeze_pass pass = {
        .size = sizeof pass, .seed = 5, .end_item = ITEMS, .share = .5, .choice = "rotate"};
    for (int step = 0; step < 50; step++) {
        pass.step = step;
        pass.first_item = 0, pass.end_item = ITEMS;
        assert_int_equal(elapse_freeze_choose(&pass, whole, &error), ELAPSE_OK);
        for (int i = 0; i < ITEMS; i++) {
            pass.first_item = i, pass.end_item = i + 1;
            assert_int_equal(elapse_freeze_choose(&pass, parts + i, &error), ELAPSE_OK);
            left += parts[i];
        }
        assert_memory_equal(whole, parts, sizeof whole);
    }
    assert_in_range(left, 50 * ITEMS / 2 - 5, 50 * ITEMS / 2 + 5);
    pass.share = 1.5;
    assert_int_equal(elapse_freeze_choose(&pass, whole, &error), ELAPSE_ERR_INPUT);
    assert_string_equal(error.message, "a share must be 0..1, got 1.5");
    pass.share = .5, pass.choice = "best";
    assert_int_equal(elapse_freeze_choose(&pass, whole, &error), ELAPSE_ERR_INPUT);
    pass.choice = "random", pass.end_item = pass.first_item;
    assert_int_equal(elapse_freeze_choose(&pass, whole, &error), ELAPSE_ERR_INPUT);
    struct elapse_job *job = parse(small_job);
    for (int64_t position = 0; position <= 64; position += 8)
        assert_true(elapse_freeze_ramp(job, 0, 1, position, 64) == (1 + (double)position / 64) / 3);
    assert_true(elapse_freeze_ramp(job, 0, 7, 8, 64) == 1);
    elapse_job_free(job);
}

static void a_freezer__measures_what_it_asks_for(void **state)
{
    (void)state;
    static const char *const overrides[] = {"train.epochs=20", "freeze.policy=safe"};
    const struct elapse_job_options options = {
        .size = sizeof options, .overrides = overrides, .num_overrides = 2};
    const struct elapse_freezer_options given = {
        .size = sizeof given, .train_samples = 100000, .probe_source = 1000};
    struct elapse_freeze_decision decision = {.size = sizeof decision};
    struct elapse_freezer_info info = {.size = sizeof info};
    struct elapse_job *job = NULL;
    struct elapse_freezer *freezer = NULL;
    struct elapse_error error;
    int due = 0, frozen = 0, rows = 0;
    assert_int_equal(elapse_job_parse(small_job, &options, &job, &error), ELAPSE_OK);
    assert_int_equal(elapse_freezer_new(job, &given, &freezer, &error), ELAPSE_OK);
    elapse_freezer_info(freezer, &info);
    assert_string_equal(info.policy, "safe");
    assert_true(info.uses_evidence && info.probe_samples > 0 && info.probe_samples <= 1000);
    assert_int_equal(elapse_freezer_share(freezer, 1, 0, 0, &error), ELAPSE_ERR_INPUT);
    assert_int_equal(elapse_freezer_end(freezer, &error), ELAPSE_ERR_INPUT);
    assert_int_equal(elapse_freezer_decide(freezer, 1, NULL, 0, NULL, &decision, &error),
                     ELAPSE_ERR_INPUT); /* turn 0 is due */
    assert_string_equal(error.message, "turn 0 is due, got 1");
    for (int64_t turn = 0; turn < 12; turn++) {
        assert_int_equal(elapse_freezer_decide(freezer, turn, NULL, 0, NULL, &decision, &error),
                         ELAPSE_OK);
        const struct elapse_freeze_window window = {.size = sizeof window,
                                                    .turn = turn,
                                                    .step = (turn + 1) * 100,
                                                    .steps_window = 100,
                                                    .rate_window = 3,
                                                    .steps_left = 100. * (double)(19 - turn),
                                                    .rate_left = 3. * (double)(19 - turn)};
        assert_int_equal(elapse_freezer_begin(freezer, &window, &due, &error), ELAPSE_OK);
        if (!due)
            continue;
        rows++;
        elapse_freezer_ask(freezer, &frozen);
        const struct elapse_freeze_losses losses = {.size = sizeof losses,
                                                    .loss = 1 - .02 * (double)turn,
                                                    .loss_before = 1.02 - .02 * (double)turn,
                                                    .fall_se = 1e-4,
                                                    .accuracy = -1,
                                                    .num_probe = info.probe_samples};
        assert_int_equal(elapse_freezer_losses(freezer, &losses, &error), ELAPSE_OK);
        for (; frozen > 0; elapse_freezer_ask(freezer, &frozen))
            assert_int_equal(elapse_freezer_share(freezer, frozen, 0, 1e-6, &error), ELAPSE_OK);
        assert_int_equal(elapse_freezer_end(freezer, &error), ELAPSE_OK);
    }
    assert_true(rows > 0);
    assert_true(decision.num_frozen > 0);
    elapse_freezer_free(freezer);
    elapse_job_free(job);
}

int main(void)
{
    setenv("ELAPSE_DB", "/nowhere/profiles.db", 1); /* not the user's own store */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step__has_the_closed_form_of_gpipe),
        cmocka_unit_test(a_plan_with_context_2__has_the_samples_of_one_replica),
        cmocka_unit_test(a_run__is_its_epochs),
        cmocka_unit_test(a_plan__goes_through_a_file),
        cmocka_unit_test(failures__say_what_and_leave_the_pointer),
        cmocka_unit_test(steps__have_the_band_of_published_runs),
        cmocka_unit_test(structs__may_be_shorter_or_longer),
        cmocka_unit_test(threads__with_their_own_handles_get_equal_answers),
        cmocka_unit_test(a_decimal_comma_of_the_program__changes_nothing),
        cmocka_unit_test(a_freezer__decides_as_the_simulated_run),
        cmocka_unit_test(elapse_freeze_choose__chooses_items_of_any_cut),
        cmocka_unit_test(a_freezer__measures_what_it_asks_for),
        cmocka_unit_test(every_failed_allocation__is_reported),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
