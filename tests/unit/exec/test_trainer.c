/* Trainer: learning rates, the files of a run. The run itself is tests/e2e/e2e_train.sh. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/trainer/learning_rate.h"
#include "exec/trainer/trainer.h"
#include "exec/checkpoint/owned_folder.h"
#include "exec/record/record_rows.h"
#include "exec/record/run_files.h"
#include "profiles/base/clock.h"
#include "profiles/store/store_internal.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

static void learning_rate__warms_up_then_follows_the_curve(void **state)
{
    struct job job;
    (void)state;
    job_defaults(&job);
    job.train.optimizer.lr = 0.5;
    job.train.warmup_steps = 4;
    assert_true(learning_rate(&job, 0, 104) == 0.125);
    assert_true(learning_rate(&job, 3, 104) == 0.5);
    assert_true(learning_rate(&job, 50, 104) == 0.5);
    job.train.lr_schedule = LR_LINEAR;
    assert_true(learning_rate(&job, 4, 104) == 0.5);
    assert_true(fabs(learning_rate(&job, 54, 104) - 0.25) < 1e-15);
    assert_true(fabs(learning_rate(&job, 103, 104) - 0.005) < 1e-15);
    job.train.lr_schedule = LR_COSINE;
    assert_true(learning_rate(&job, 4, 104) == 0.5);
    assert_true(fabs(learning_rate(&job, 54, 104) - 0.25) < 1e-15);
    assert_true(learning_rate(&job, 103, 104) < 0.001);
    /* A warm-up as long as the run leaves no curve. */
    assert_true(learning_rate(&job, 3, 4) == 0.5);
    job_clear(&job);
}

static int64_t lines_of(const char *path)
{
    FILE *in = fopen(path, "r");
    int64_t lines = 0;
    assert_non_null(in);
    for (int c; (c = fgetc(in)) != EOF;)
        lines += c == '\n';
    fclose(in);
    return lines;
}

static void write_steps(struct run_files *files, int64_t first, int64_t last)
{
    struct err err = {0};
    for (int64_t step = first; step <= last; step++) {
        const struct step_row row = {.step = step,
                                     .start_ns = 1000 * step,
                                     .step_ns = 10,
                                     .loss = 1.0 / (double)step,
                                     .grad_norm = NAN};
        assert_int_equal(run_files_step(files, &row, &err), OK);
    }
}

static enum status open_run(const char *dir, bool resume, const struct progress *progress,
                            const struct job *job, const char *trace, struct run_files **files,
                            struct err *err)
{
    const struct run_start start = {.resume = resume,
                                    .progress = progress,
                                    .job = job,
                                    .num_ranks = 2,
                                    .cost_label = "test",
                                    .trace = trace};
    return run_files_open(dir, &start, files, err);
}

static void run_files_open__leaves_nothing_where_it_fails(void **state)
{
    char dir[] = "/tmp/elapse-run.XXXXXX", path[64];
    const struct progress progress = {0};
    struct run_files *files = NULL;
    struct job job;
    struct err err = {0};
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/run.db", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    job_defaults(&job);
    assert_int_not_equal(open_run(dir, false, &progress, &job, NULL, &files, &err), OK);
    assert_null(files);
    rmdir(path);
    assert_int_equal(open_run(dir, false, &progress, &job, "/proc/none", &files, NULL), ERR_SYSTEM);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(open_run(dir, false, &progress, &job, "/proc/none", &files, NULL), ERR_SYSTEM);
    assert_int_not_equal(access(dir, F_OK), 0);
    assert_null(files);
}

/* Metrics and summary of a run are the user's until the resumed run has begun. */
static void run_files_open__keeps_metrics_when_memory_ends_on_resume(void **state)
{
    char dir[] = "/tmp/elapse-run.XXXXXX", metrics[64], summary[64], command[64];
    struct run_files *files = NULL;
    struct progress progress = {0};
    struct job job;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", dir);
    snprintf(summary, sizeof summary, "%s/summary.json", dir);
    job_defaults(&job);
    assert_int_equal(open_run(dir, false, &progress, &job, NULL, &files, NULL), OK);
    write_steps(files, 1, 3);
    run_files_free(files);
    assert_int_equal(close(creat(summary, 0666)), 0);
    progress.step = 3;
    for (int n = 0; FAIL_MALLOC && n < 200; n++) { /* the store's own thousands are SQLite's */
        struct err err = {0};
        files = NULL;
        fail_malloc_after(n);
        enum status rc = open_run(dir, true, &progress, &job, NULL, &files, &err);
        assert_false(fail_malloc_done());
        assert_int_equal(lines_of(metrics), 3);
        assert_int_equal(access(summary, F_OK) == 0, rc != OK);
        run_files_free(files);
        assert_int_equal(close(creat(summary, 0666)), 0);
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    job_clear(&job);
}

static void run_files_free__keeps_the_steps_of_a_run_that_failed(void **state)
{
    char dir[] = "/tmp/elapse-run.XXXXXX", db[64], command[64];
    const struct progress progress = {0};
    struct run_files *files = NULL;
    struct store *store = NULL;
    struct step_row *rows = NULL;
    struct job job;
    struct err err = {0};
    int64_t n = 0;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(db, sizeof db, "%s/run.db", dir);
    job_defaults(&job);
    assert_int_equal(open_run(dir, false, &progress, &job, NULL, &files, &err), OK);
    write_steps(files, 1, 3);
    run_files_free(files);
    assert_int_equal(store_open(db, STORE_READ, &store, &err), OK);
    assert_int_equal(record_read_steps(store, 1, &rows, &n, &err), OK);
    assert_int_equal(n, 3);
    assert_int_equal(rows[2].step, 3);
    free(rows);
    store_close(store);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    job_clear(&job);
}

/* A backup that holds the lock of run.db must not hold up the training, let alone end it. */
static void run_files_step__waits_for_no_lock_and_loses_no_row(void **state)
{
    char dir[] = "/tmp/elapse-run.XXXXXX", db[64], waiting[64], command[64];
    const struct progress progress = {0};
    struct job job;
    struct err err = {0};
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(db, sizeof db, "%s/run.db", dir);
    snprintf(waiting, sizeof waiting, "%s/run-waiting.db", dir);
    job_defaults(&job);
    for (int kept = 0; kept < 2; kept++) { /* kept: to the end of the run */
        struct run_files *files = NULL;
        struct store *backup = NULL, *store = NULL;
        struct step_row *rows = NULL;
        int64_t n = 0;
        struct json *summary = json_object_new();
        assert_int_equal(open_run(dir, kept, &progress, &job, NULL, &files, &err), OK);
        assert_int_equal(store_open(db, STORE_RECORD, &backup, &err), OK);
        assert_int_equal(store_begin(backup, &err), OK);
        const int64_t begun = clock_now_ns();
        write_steps(files, 1, 600); /* two batches of 256 meet the lock */
        assert_true(clock_now_ns() - begun < 2000000000);
        if (!kept)
            store_end(backup, OK, &err);
        assert_int_equal(run_files_finish(files, summary, 1, &err), OK);
        run_files_free(files);
        if (kept)
            store_end(backup, OK, &err);
        store_close(backup);
        assert_int_equal(json_get(summary, "record_note") != NULL, kept);
        if (kept)
            assert_non_null(strstr(json_string(json_get(summary, "record_note")),
                                   "600 rows in run-waiting.db"));
        assert_int_equal(access(waiting, F_OK) == 0, kept);
        assert_int_equal(store_open(kept ? waiting : db, STORE_READ, &store, &err), OK);
        assert_int_equal(record_read_steps(store, 1, &rows, &n, &err), OK);
        assert_int_equal(n, 600);
        assert_int_equal(rows[599].step, 600);
        free(rows);
        store_close(store);
        json_free(summary);
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    job_clear(&job);
}

/* A lock for a night must not fill the memory: behind the limit, rows go to the second store. A row
 * that was written anew since then is not replaced by the old one from there. */
static void record_rows_add__keeps_to_the_limit_of_rows_in_memory(void **state)
{
    enum { BATCH = 2000 };
    char dir[] = "/tmp/elapse-run.XXXXXX", db[64], waiting[64], command[64];
    struct run_info info = {.name = "locked"};
    struct record_rows *rows = NULL;
    struct store *backup = NULL;
    struct err err = {0};
    struct op_row *ops = calloc(BATCH, sizeof *ops), *read = NULL;
    struct epoch_row epoch = {.epoch = 3, .steps = 1}, *epochs = NULL;
    char note[ROWS_NOTE_BYTES];
    int64_t bytes = 0, n = 0;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(db, sizeof db, "%s/run.db", dir);
    snprintf(waiting, sizeof waiting, "%s/run-waiting.db", dir);
    assert_int_equal(record_rows_open(dir, &info, &rows, &err), OK);
    assert_int_equal(store_open(db, STORE_RECORD, &backup, &err), OK);
    assert_int_equal(store_begin(backup, &err), OK);
    record_rows_add(rows, ROWS_EPOCH, &epoch, 1);
    bytes += (int64_t)sizeof epoch;
    for (int64_t step = 0; bytes <= ROWS_WAIT_BYTES; step++) {
        assert_int_equal(access(waiting, F_OK), -1);
        const int64_t num = step == 0 ? BATCH : ROWS_WAIT_BYTES / (int64_t)sizeof *ops - BATCH;
        ops = realloc(ops, (size_t)(num + BATCH) * sizeof *ops);
        for (int64_t i = 0; i < num; i++)
            ops[i] = (struct op_row){.step = step, .end_ns = 1, .op = {.microbatch = (int32_t)i}};
        record_rows_add(rows, ROWS_OP, ops, step < 2 ? num : BATCH);
        bytes += (step < 2 ? num : BATCH) * (int64_t)sizeof *ops;
    }
    assert_int_equal(access(waiting, F_OK), 0);
    store_end(backup, OK, &err); /* then all of them come back */
    epoch.steps = 2;
    record_rows_add(rows, ROWS_EPOCH, &epoch, 1);
    record_rows_finish(rows, 1, 2000, note);
    assert_string_equal(note, "");
    assert_int_equal(access(waiting, F_OK), -1);
    record_rows_free(rows);
    assert_int_equal(record_read_ops(backup, 1, &read, &n, &err), OK);
    assert_int_equal(n * (int64_t)sizeof *ops + (int64_t)sizeof epoch, bytes);
    free(read);
    assert_int_equal(record_read_epochs(backup, 1, &epochs, &n, &err), OK);
    assert_int_equal(n, 1);
    assert_int_equal(epochs->steps, 2);
    free(epochs);
    store_close(backup);
    free(ops);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void run_files_open__begins_under_a_lock(void **state)
{
    char dir[] = "/tmp/elapse-run.XXXXXX", db[64], command[64];
    struct progress progress = {0};
    struct run_files *files = NULL;
    struct store *backup = NULL, *store = NULL;
    struct step_row *rows = NULL;
    int64_t n = 0;
    struct job job;
    struct err err = {0};
    struct json *summary = json_object_new();
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(db, sizeof db, "%s/run.db", dir);
    job_defaults(&job);
    assert_int_equal(open_run(dir, false, &progress, &job, NULL, &files, &err), OK);
    write_steps(files, 1, 5);
    run_files_free(files);
    files = NULL;
    progress.step = 5;
    assert_int_equal(store_open(db, STORE_RECORD, &backup, &err), OK);
    assert_int_equal(store_begin(backup, &err), OK);
    const int64_t begun = clock_now_ns();
    assert_int_equal(open_run(dir, true, &progress, &job, NULL, &files, &err), OK);
    write_steps(files, 6, 305); /* a batch of 256 meets the lock */
    assert_true(clock_now_ns() - begun < 5000000000);
    store_end(backup, OK, &err);
    store_close(backup);
    assert_int_equal(run_files_finish(files, summary, 1, &err), OK);
    run_files_free(files);
    assert_null(json_get(summary, "record_note"));
    json_free(summary);
    assert_int_equal(store_open(db, STORE_READ, &store, &err), OK);
    assert_int_equal(record_read_steps(store, 2, &rows, &n, &err), OK);
    assert_int_equal(n, 300);
    assert_int_equal(rows[299].step, 305);
    free(rows);
    store_close(store);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    job_clear(&job);
}

/* The steps of a call are counted from where its first start began; the next call counts its own. */
/* A reader holds run.db while the ranks are killed: the steps that wait are in metrics.jsonl alone. */
static void run_files_open__fills_run_db_from_the_metrics(void **state)
{
    char dir[] = "/tmp/elapse-run.XXXXXX", db[64], command[64];
    struct progress progress = {0};
    struct run_files *files = NULL;
    struct store *backup = NULL;
    struct step_row *rows = NULL;
    int64_t n = 0;
    struct job job;
    struct err err = {0};
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(db, sizeof db, "%s/run.db", dir);
    job_defaults(&job);
    const pid_t child = fork();
    if (child == 0) {
        if (open_run(dir, false, &progress, &job, NULL, &files, &err) != OK ||
            store_open(db, STORE_RECORD, &backup, &err) != OK)
            _exit(1);
        write_steps(files, 1, 3);
        run_files_flush(files);
        write_steps(files, 4, 6);
        if (store_begin(backup, &err) != OK)
            _exit(1);
        run_files_flush(files);
        write_steps(files, 7, 9);
        _exit(0); /* without anything that the end of a run does */
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    progress.step = 7;
    assert_int_equal(open_run(dir, true, &progress, &job, NULL, &files, &err), OK);
    write_steps(files, 8, 8);
    run_files_free(files);
    assert_int_equal(store_open(db, STORE_READ, &backup, &err), OK);
    assert_int_equal(record_read_steps(backup, 1, &rows, &n, &err), OK);
    assert_int_equal(n, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(rows[i].step, i + 1);
        assert_true(rows[i].loss == 1.0 / (i + 1) && rows[i].step_ns == 10);
    }
    free(rows);
    assert_int_equal(record_read_steps(backup, 2, &rows, &n, &err), OK);
    assert_int_equal(n, 1);
    free(rows);
    store_close(backup);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    job_clear(&job);
}

/* The clock is set back by a day, or forward, while a run restarts. */
static void run_files_step__tells_no_negative_part_of_a_restart(void **state)
{
    static const int64_t day = (int64_t)86400 * 1000000000;
    (void)state;
    for (int jump = -1; jump <= 1; jump++) {
        char dir[] = "/tmp/elapse-run.XXXXXX", metrics[64], command[64], text[4096] = "";
        struct progress progress = {0};
        struct run_files *files = NULL;
        struct job job;
        struct err err = {0};
        assert_non_null(mkdtemp(dir));
        snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", dir);
        job_defaults(&job);
        assert_int_equal(open_run(dir, false, &progress, &job, NULL, &files, &err), OK);
        write_steps(files, 1, 2);
        run_files_free(files);
        progress.step = 2;
        const int64_t now = clock_wall_ns(), after = now + jump * day;
        const struct run_start start = {
            .resume = true,
            .progress = &progress,
            .job = &job,
            .num_ranks = 2,
            .cost_label = "test",
            .restarted = "a rank was lost",
            .times = {.ended_ns = now, .ready_ns = after, .data_ns = after, .built_ns = after}
        };
        assert_int_equal(run_files_open(dir, &start, &files, &err), OK);
        write_steps(files, 3, 3);
        run_files_free(files);
        FILE *in = fopen(metrics, "r");
        assert_non_null(in);
        assert_true(fread(text, 1, sizeof text - 1, in) > 0);
        fclose(in);
        assert_non_null(strstr(text, "\"lost_ns\":"));
        assert_null(strstr(text, "_ns\":-"));
        /* A jump ahead ends after the first step's begin here: that part would be negative too. */
        assert_int_equal(strstr(text, "launch_ns") != NULL, jump == 0);
        snprintf(command, sizeof command, "rm -r %s", dir);
        assert_int_equal(system(command), 0);
        job_clear(&job);
    }
}

static void run_call_begin__keeps_the_first_step_of_a_call(void **state)
{
    char dir[] = "/tmp/elapse-run.XXXXXX", id[RUN_ID_SIZE], command[64];
    const char *own = "0123456789abcdef0123456789abcdef";
    struct err err = {0};
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(run_id_write(dir, own, &err), OK);
    static const struct {
        const char *call;
        int64_t step, want;
    } starts[] = {
        {"a", 3,  3 },
        {"a", 12, 3 },
        {"b", 12, 12},
        {"b", 30, 12},
        {"a", 40, 40}
    };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        int64_t step = starts[i].step;
        assert_int_equal(run_call_begin(dir, own, starts[i].call, &step, &err), OK);
        assert_int_equal(step, starts[i].want);
        assert_int_equal(run_id_read(dir, id, &err), OK);
        assert_string_equal(id, own);
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void run_files_open__drops_what_is_behind_the_checkpoint_on_resume(void **state)
{
    char dir[] = "/tmp/elapse-run.XXXXXX", path[128], run[64];
    static const char *const names[] = {"metrics.jsonl", "run.db",       "run.db-wal",
                                        "run.db-shm",    "summary.json", "run.json"};
    struct run_files *files = NULL;
    struct progress progress = {0};
    struct job job;
    struct err err = {0};
    struct json *summary, *read = NULL;
    struct restart_total restarts;
    double first, last;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(run, sizeof run, "%s/a/b", dir);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    job_defaults(&job);
    assert_int_equal(open_run(run, false, &progress, &job, NULL, &files, &err), OK);
    write_steps(files, 1, 7);
    struct run_files *second = NULL;
    assert_int_equal(open_run(run, true, &progress, &job, NULL, &second, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "in use by a run that has not ended"));
    assert_int_equal(lines_of(path), 7);
    err = (struct err){0};
    run_files_free(files);
    assert_int_equal(open_run(run, false, &progress, &job, NULL, &files, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "already holds a run"));
    FILE *torn = fopen(path, "a");
    assert_non_null(torn);
    fputs("{\"event\":\"restart\",\"step\":7,\"lost_ns\":30,\"lost_steps\":2,\"redo_ns\":4}\n"
          "{\"step\":8,\"los",
          torn);
    fclose(torn);
    progress.step = 5;
    err = (struct err){0};
    assert_int_equal(open_run(run, true, &progress, &job, NULL, &files, &err), OK);
    assert_int_equal(lines_of(path), 6); /* a restart's time stays lost */
    run_files_restarts(files, &restarts);
    assert_int_equal(restarts.num, 1);
    assert_int_equal(restarts.cost.lost_ns + restarts.cost.lost_steps + restarts.cost.redo_ns, 36);
    run_files_losses(files, &first, &last);
    assert_true(first == 1.0 && last == 1.0 / 5);
    write_steps(files, 6, 9);
    assert_int_equal(lines_of(path), 10);
    summary = json_object_new();
    json_add_int(summary, "steps", 9);
    assert_int_equal(run_files_finish(files, summary, 1, &err), OK);
    run_files_free(files);
    snprintf(path, sizeof path, "%s/summary.json", run);
    assert_int_equal(json_read_file(path, &read, &err), OK);
    assert_true(json_number(json_get(read, "steps")) == 9);
    json_free(read);
    json_free(summary);
    summary = run_files_summary(run, 9);
    assert_non_null(summary);
    assert_null(run_files_summary(run, 8));
    json_add_bool(summary, "interrupted", true);
    assert_int_equal(json_write_file(summary, path, &err), OK);
    assert_null(run_files_summary(run, 9));
    json_free(summary);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", run, names[i]);
        unlink(path);
    }
    rmdir(run);
    run[strlen(run) - 2] = '\0';
    rmdir(run);
    assert_int_equal(rmdir(dir), 0);
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learning_rate__warms_up_then_follows_the_curve),
        cmocka_unit_test(run_files_open__leaves_nothing_where_it_fails),
        cmocka_unit_test(run_files_open__keeps_metrics_when_memory_ends_on_resume),
        cmocka_unit_test(run_files_free__keeps_the_steps_of_a_run_that_failed),
        cmocka_unit_test(run_files_step__waits_for_no_lock_and_loses_no_row),
        cmocka_unit_test(record_rows_add__keeps_to_the_limit_of_rows_in_memory),
        cmocka_unit_test(run_files_open__begins_under_a_lock),
        cmocka_unit_test(run_files_open__fills_run_db_from_the_metrics),
        cmocka_unit_test(run_files_step__tells_no_negative_part_of_a_restart),
        cmocka_unit_test(run_call_begin__keeps_the_first_step_of_a_call),
        cmocka_unit_test(run_files_open__drops_what_is_behind_the_checkpoint_on_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
