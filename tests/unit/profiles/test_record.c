#include "profiles/store/record.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <sqlite3.h>

#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static struct store *open_store(const char *path, enum store_mode mode)
{
    struct store *store = NULL;
    struct err err = {0};
    if (store_open(path, mode, &store, &err) != OK)
        fail_msg("%s", err.msg);
    return store;
}

static int64_t start(struct store *store, const char *name, bool simulated, char *job)
{
    struct run_info info = {.simulated = simulated, .num_devices = 4, .job_json = job};
    int64_t id = 0;
    strcpy(info.name, name);
    strcpy(info.cost_source, "profile x (measured)");
    assert_int_equal(record_start(store, &info, &id, NULL), OK);
    assert_true(id > 0);
    return id;
}

/* A run keeps its store open to the end. SQLite keeps pages of it in memory, at most 2,000 KiB. */
static void record_steps__keep_less_than_3_mib_of_a_long_run_in_memory(void **state)
{
    (void)state;
    enum { BATCH = 1000, BATCHES = 130 };
    static struct step_row rows[BATCH];
    struct store *store = open_store(at("long.db"), STORE_RECORD);
    const int64_t run = start(store, "long", false, NULL);
    int64_t most = 0;
    for (int b = 0; b < BATCHES; b++) {
        for (int i = 0; i < BATCH; i++)
            rows[i] =
                (struct step_row){.step = b * BATCH + i, .step_ns = 1000000, .loss = 1.0 / (i + 1)};
        assert_int_equal(record_steps(store, run, rows, BATCH, NULL), OK);
        most = sqlite3_memory_used() > most ? sqlite3_memory_used() : most;
    }
    store_close(store);
    struct stat file;
    assert_int_equal(stat(at("long.db"), &file), 0);
    print_message("# %lld bytes of memory, %lld of the file\n", (long long)most,
                  (long long)file.st_size);
    assert_true(file.st_size > 4 << 20);
    assert_true(most < 3 << 20);
}

static void record_read__gives_back_every_row(void **state)
{
    (void)state;
    struct store *store = open_store(at("run.db"), STORE_RECORD);
    int64_t run = start(store, "first", true, "{\"name\":\"first\"}");
    struct epoch_row epochs[2] = {
        {0, 0, 4, 1, 8, 10, 123456789012345, 0,  99.5,    0.25, false, NAN,  2.5, 0.1},
        {1, 6, 2, 2, 4, 10, 5,               77, 1e9 / 3, 0,    true,  1.25, NAN, NAN}
    };
    struct step_row steps[3];
    struct op_row ops[OP_KIND_COUNT];
    struct transition_row transition = {1, "plan", 1000, 1 << 20};
    struct device_memory_row memory = {1, 3, 1000, 2000, "stash"};
    memset(steps, 0, sizeof steps);
    memset(ops, 0, sizeof ops);
    for (int i = 0; i < 3; i++) {
        steps[i].step = i;
        steps[i].step_ns = INT64_C(9007199254740993) + i;
        steps[i].loss = i == 1 ? NAN : 1.0 / 3;
    }
    for (int k = 0; k < OP_KIND_COUNT; k++)
        ops[k] = (struct op_row){
            .step = 1,
            .replica = 1,
            .rank = k % 3,
            .start_ns = 10 * k,
            .end_ns = 10 * k + 7,
            .op = {.microbatch = k % 5 - 1,
                   .stage = (uint16_t)(65530 + k % 6),
                   .kind = (uint8_t)k,
                   .arg = (uint8_t)(250 + k % 6)}
        };
    assert_int_equal(record_epochs(store, run, epochs, 2, NULL), OK);
    assert_int_equal(record_steps(store, run, steps, 3, NULL), OK);
    assert_int_equal(record_ops(store, run, ops, OP_KIND_COUNT, NULL), OK);
    assert_int_equal(record_transitions(store, run, &transition, 1, NULL), OK);
    assert_int_equal(record_memory(store, run, &memory, 1, NULL), OK);
    assert_int_equal(record_finish(store, run, 42, NULL), OK);
    store_close(store);

    store = open_store(at("run.db"), STORE_READ);
    struct run_info info = {0};
    assert_int_equal(record_run(store, 0, &info, NULL), OK);
    assert_string_equal(info.name, "first");
    assert_string_equal(info.job_json, "{\"name\":\"first\"}");
    assert_true(info.simulated && info.finished && info.total_ns == 42 && info.num_devices == 4);
    assert_int_equal(strlen(info.started_at), 20);
    free(info.job_json);
    struct epoch_row *e = NULL;
    struct step_row *s = NULL;
    struct op_row *o = NULL;
    struct transition_row *t = NULL;
    struct device_memory_row *m = NULL;
    int64_t n;
    assert_int_equal(record_read_epochs(store, run, &e, &n, NULL), OK);
    assert_true(n == 2 && e[0].step_ns == 123456789012345 && isnan(e[0].train_loss));
    assert_true(e[1].samples_per_s == 1e9 / 3 && e[1].cached && !e[0].cached);
    assert_true(e[1].frozen_layers == 6 && e[1].transition_ns == 77 && e[1].train_loss == 1.25);
    assert_int_equal(record_read_steps(store, run, &s, &n, NULL), OK);
    assert_true(n == 3 && s[2].step_ns == INT64_C(9007199254740995) && isnan(s[1].loss));
    assert_true(s[0].loss == 1.0 / 3);
    assert_int_equal(record_read_ops(store, run, &o, &n, NULL), OK);
    assert_int_equal(n, OP_KIND_COUNT);
    assert_memory_equal(o, ops, sizeof ops);
    assert_int_equal(record_read_transitions(store, run, &t, &n, NULL), OK);
    assert_true(n == 1);
    assert_memory_equal(t, &transition, sizeof transition);
    assert_int_equal(record_read_memory(store, run, &m, &n, NULL), OK);
    assert_true(n == 1);
    assert_memory_equal(m, &memory, sizeof memory);
    free(e);
    free(s);
    free(o);
    free(t);
    free(m);
    store_close(store);
}

static void record_steps__replace_those_of_an_interrupted_run(void **state)
{
    (void)state;
    struct store *store = open_store(at("resume.db"), STORE_RECORD);
    int64_t run = start(store, "r", false, NULL), n;
    struct step_row rows[4] = {{.step = 0}, {.step = 1}, {.step = 2}, {.step = 3}}, *back = NULL;
    assert_int_equal(record_steps(store, run, rows, 4, NULL), OK);
    rows[2].loss = 7;
    assert_int_equal(record_steps(store, run, rows + 2, 2, NULL), OK);
    assert_int_equal(record_read_steps(store, run, &back, &n, NULL), OK);
    assert_true(n == 4 && back[2].loss == 7 && back[1].loss == 0);
    free(back);
    struct run_info info = {0};
    assert_int_equal(record_run(store, run, &info, NULL), OK);
    assert_true(!info.finished && !info.simulated && !info.job_json);
    store_close(store);
}

static void record_steps__refuses_rows_of_a_run_that_is_not_there(void **state)
{
    (void)state;
    struct store *store = open_store(at("none.db"), STORE_RECORD);
    struct run_info info = {0};
    struct err err = {0};
    assert_int_equal(record_run(store, 0, &info, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "no runs in store"));
    const int64_t run = start(store, "a", true, NULL);
    const struct step_row row = {.step = 5};
    err = (struct err){0};
    assert_int_equal(record_steps(store, run + 1, &row, 1, &err), ERR_INPUT);
    err = (struct err){0};
    assert_int_equal(record_finish(store, run + 1, 1, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "no run 2 in store"));
    assert_int_equal(record_finish(store, run, 1, NULL), OK);
    store_close(store);
}

static void record_ops__of_four_processes_are_all_there(void **state)
{
    (void)state;
    enum { WRITERS = 4, BATCHES = 8, OPS = 250 };
    char path[128];
    strcpy(path, at("many.db"));
    for (int w = 0; w < WRITERS; w++)
        if (fork() == 0) {
            struct store *store = NULL;
            struct run_info info = {.simulated = true};
            int64_t run;
            struct op_row rows[OPS];
            memset(rows, 0, sizeof rows);
            snprintf(info.name, sizeof info.name, "writer %d", w);
            bool ok = store_open(path, STORE_RECORD, &store, NULL) == OK &&
                      record_start(store, &info, &run, NULL) == OK;
            for (int b = 0; b < BATCHES && ok; b++) {
                for (int i = 0; i < OPS; i++)
                    rows[i] = (struct op_row){
                        .step = b, .start_ns = i, .end_ns = i + w, .op = {.microbatch = i}};
                ok = record_ops(store, run, rows, OPS, NULL) == OK;
            }
            store_close(store);
            _exit(ok ? 0 : 1);
        }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        assert_true(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    struct store *store = open_store(path, STORE_READ);
    struct run_info *infos = NULL;
    int count;
    assert_int_equal(record_list(store, &infos, &count, NULL), OK);
    assert_int_equal(count, WRITERS);
    for (int r = 0; r < count; r++) {
        struct op_row *ops = NULL;
        int64_t n;
        assert_int_equal(record_read_ops(store, infos[r].id, &ops, &n, NULL), OK);
        assert_int_equal(n, BATCHES * OPS);
        int writer = infos[r].name[7] - '0';
        for (int64_t i = 0; i < n; i++)
            assert_true(ops[i].end_ns - ops[i].start_ns == writer);
        free(ops);
    }
    free(infos);
    store_close(store);
}

static void record_run__leaves_out_a_real_run_without_a_step(void **state)
{
    const struct run_info first = {.name = "first"}, second = {.name = "second"};
    const struct step_row step = {.step = 1};
    int64_t run;
    struct run_info info = {0};
    (void)state;
    struct store *store = open_store(at("resumed.db"), STORE_RECORD);
    assert_int_equal(record_start(store, &first, &run, NULL), OK);
    assert_int_equal(record_run(store, 0, &info, NULL), OK); /* there is no other */
    assert_string_equal(info.name, "first");
    free(info.job_json);
    assert_int_equal(record_steps(store, run, &step, 1, NULL), OK);
    assert_int_equal(record_start(store, &second, &run, NULL), OK);
    assert_int_equal(record_run(store, 0, &info, NULL), OK);
    assert_string_equal(info.name, "first");
    free(info.job_json);
    assert_int_equal(record_steps(store, run, &step, 1, NULL), OK);
    assert_int_equal(record_run(store, 0, &info, NULL), OK);
    assert_string_equal(info.name, "second");
    free(info.job_json);
    store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_run__leaves_out_a_real_run_without_a_step),
        cmocka_unit_test(record_read__gives_back_every_row),
        cmocka_unit_test(record_steps__keep_less_than_3_mib_of_a_long_run_in_memory),
        cmocka_unit_test(record_steps__replace_those_of_an_interrupted_run),
        cmocka_unit_test(record_steps__refuses_rows_of_a_run_that_is_not_there),
        cmocka_unit_test(record_ops__of_four_processes_are_all_there),
    };
    return cmocka_run_group_tests_name("record", tests, scratch_make, scratch_remove);
}
