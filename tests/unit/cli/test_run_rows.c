/* Two records of one run: the store and metrics.jsonl. */
#include "cli/runs/run_rows.h"

#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static void run_rows_merge_metrics__fills_gaps_and_counts_differences(void **state)
{
    struct run_rows rows = {.num_steps = 3};
    struct err err = {0};
    (void)state;
    rows.steps = calloc(3, sizeof *rows.steps);
    assert_non_null(rows.steps);
    for (int i = 0; i < 3; i++) /* steps 3, 4 and 6 */
        rows.steps[i] = (struct step_row){.step = i == 2 ? 6 : 3 + i, .step_ns = 10, .loss = 0.5};
    const char *path =
        file_with("metrics.jsonl", "{\"step\":1,\"loss\":0.5,\"step_ns\":10}\n"
                                   "{\"event\":\"restart\",\"step\":2}\n"
                                   "{\"step\":2,\"loss\":0.5,\"step_ns\":10}\n"
                                   "{\"step\":3,\"loss\":0.5,\"step_ns\":10}\n"
                                   "{\"step\":4,\"loss\":0.25,\"step_ns\":10}\n"
                                   "{\"step\":5,\"loss\":0.5,\"step_ns\":10}\n"
                                   "{\"step\":6,\"loss\":0.5,\"step_ns\":10}\n"
                                   "{\"step\":7,\"loss\":0.5,\"step_ns\":10}\n{\"st");
    assert_int_equal(run_rows_merge_metrics(path, &rows, &err), OK);
    assert_int_equal(rows.num_steps, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(rows.steps[i].step, i + 1);
        assert_true(rows.steps[i].loss == 0.5);
    }
    assert_int_equal(rows.num_differing, 1); /* step 4 */
    assert_int_equal(run_rows_merge_metrics(at("none"), &rows, &err), OK);
    assert_int_equal(rows.num_steps, 7);
    run_rows_clear(&rows);
}

/* Three starts: the first was stopped in epoch 1, the second in epoch 2 after it had gone on from
 * there, the last one went on from within epoch 1 again, so steps 5 and 6 are its own. */
static void run_rows__are_one_history_of_all_starts(void **state)
{
    static const struct epoch_row epochs[3][3] = {
        {{.epoch = 0, .steps = 2, .step_ns = 10, .microbatches = 4, .eval_accuracy = 0.25},
         {.epoch = 1, .steps = 1, .step_ns = 30, .microbatches = 4, .transition_ns = 5},
         {.epoch = 3, .steps = 1, .step_ns = 99}},
        {{.epoch = 1, .steps = 1, .step_ns = 10},                                           {.epoch = 2, .steps = 1, .step_ns = 99}},
        {{.epoch = 1, .steps = 1, .step_ns = 10, .microbatches = 8, .transition_ns = 7}                                          },
    };
    static const int num_epochs[3] = {3, 2, 1};
    struct run_rows rows = {0};
    struct store *store = NULL;
    struct err err = {0};
    int64_t id = 0;
    (void)state;
    assert_int_equal(store_open(at("run.db"), STORE_RECORD, &store, &err), OK);
    for (int r = 0; r < 3; r++) {
        const struct run_info info = {.name = "j"};
        const struct step_row step = {
            .step = 4, .epoch = 1, .step_ns = 10, .loss = 2, .samples_per_s = 500};
        assert_int_equal(record_start(store, &info, &id, &err), OK);
        assert_int_equal(record_epochs(store, id, epochs[r], num_epochs[r], &err), OK);
        assert_int_equal(record_steps(store, id, &step, 1, &err), OK);
    }
    assert_int_equal(run_rows_read(store, 0, &rows, &err), OK);
    assert_int_equal(run_rows_add_earlier(store, &rows, &err), OK);
    const char *path =
        file_with("metrics.jsonl",
                  "{\"step\":1,\"epoch\":0,\"loss\":4,\"step_ns\":10,\"samples_per_s\":100}\n"
                  "{\"step\":2,\"epoch\":0,\"loss\":4,\"step_ns\":10,\"samples_per_s\":100}\n"
                  "{\"step\":3,\"epoch\":1,\"loss\":3,\"step_ns\":30,\"samples_per_s\":100}\n"
                  "{\"step\":4,\"epoch\":1,\"loss\":2,\"step_ns\":10,\"samples_per_s\":500}\n"
                  "{\"step\":5,\"epoch\":2,\"loss\":1,\"step_ns\":10,\"samples_per_s\":100,"
                  "\"frozen_layers\":3}\n");
    assert_int_equal(run_rows_merge_metrics(path, &rows, &err), OK);
    assert_int_equal(run_rows_count_epochs(&rows, &err), OK);
    assert_int_equal(rows.num_steps, 5);
    assert_int_equal(rows.num_epochs, 3); /* epoch 3 was dropped by a resume */
    assert_int_equal(rows.epochs[0].steps, 2);
    assert_true(rows.epochs[0].eval_accuracy == 0.25);
    assert_int_equal(rows.epochs[1].steps, 2);
    assert_int_equal(rows.epochs[1].microbatches, 8);
    assert_int_equal(rows.epochs[1].step_ns, 20);
    assert_int_equal(rows.epochs[1].transition_ns, 12);
    assert_true(rows.epochs[1].train_loss == 2.5);
    assert_true(rows.epochs[1].samples_per_s == 200);
    assert_int_equal(rows.epochs[2].steps, 1);
    run_rows_clear(&rows);
    store_close(store);
}

/* A run that was killed within an epoch has its steps, but no row of the epoch. */
static void run_rows_count_epochs__adds_an_epoch_without_a_row(void **state)
{
    struct run_rows rows = {.num_steps = 2};
    struct err err = {0};
    (void)state;
    rows.steps = calloc(2, sizeof *rows.steps);
    assert_non_null(rows.steps);
    rows.steps[1] = (struct step_row){.step = 2, .epoch = 0, .step_ns = 10, .frozen_layers = 3};
    assert_int_equal(run_rows_count_epochs(&rows, &err), OK);
    assert_int_equal(rows.num_epochs, 1);
    assert_int_equal(rows.epochs[0].steps, 2);
    assert_int_equal(rows.epochs[0].frozen_layers, 3);
    assert_true(isnan(rows.epochs[0].eval_accuracy));
    run_rows_clear(&rows);
}

/* Four devices in each of two groups. */
static void run_rows_simulated__counts_the_devices_of_groups(void **state)
{
    struct elastic_epoch epochs[] = {
        {.pipeline_length = 1, .replicas = 2, .devices = 8, .steps = 1},
        {.pipeline_length = 1, .replicas = 1, .devices = 4, .steps = 1},
    };
    const struct elastic_run run = {.num_epochs = 2, .epochs = epochs};
    struct run_rows rows = {0};
    (void)state;
    assert_int_equal(run_rows_simulated(&run, &rows, NULL), OK);
    assert_int_equal(rows.info.num_devices, 8);
    run_rows_clear(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_rows_merge_metrics__fills_gaps_and_counts_differences),
        cmocka_unit_test(run_rows__are_one_history_of_all_starts),
        cmocka_unit_test(run_rows_count_epochs__adds_an_epoch_without_a_row),
        cmocka_unit_test(run_rows_simulated__counts_the_devices_of_groups),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
