#include "profiles/store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiles/store/choice.h"
#include "profiles/store/record.h"
#include "profiles/store/store_calibration.h"
#include "profiles/store/store_internal.h"
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

static void refuses(const char *path, enum store_mode mode, enum status status, const char *message)
{
    struct store *store = NULL;
    struct err err = {0};
    assert_int_equal(store_open(path, mode, &store, &err), status);
    assert_null(store);
    if (!strstr(err.msg, message))
        fail_msg("'%s' does not say '%s'", err.msg, message);
}

static void exec(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static struct layer_row layer(int64_t hidden, int64_t samples, double ns)
{
    struct layer_row row = {.backend = "cpu",
                            .dtype = "fp32",
                            .threads = 1,
                            .ranks = 1,
                            .pass = "fwd",
                            .samples = samples};
    strcpy(row.key.item, "mlp");
    strcpy(row.key.variant, "erf");
    row.key.hidden = hidden;
    row.ns = (struct spread){ns, ns * 0.9, ns * 1.1, 5};
    return row;
}

static void fill(struct profile *profile, const char *name, int first, int n)
{
    struct link_row link = {
        "mpi", "node", 1, 4096, {1000.25, 900, 1200, 7}
    };
    struct collective_row sum = {
        "allreduce", "mpi", "node", 2, 1 << 20, {5e5, 4e5, 6e5, 7}
    };
    struct host_row host = {
        "op_overhead", "cpu", 1, 1, 0, 0, {1500, 1200, 2000, 100}
    };
    struct memory_row memory = {"vit K=2", 1000, 1010};
    *profile = (struct profile){0};
    strcpy(profile->info.name, name);
    strcpy(profile->info.device_kind, "cpu");
    strcpy(profile->info.note, "quotes ' \" and , commas\nlines");
    profile->info.load = 0.3;
    strcpy(profile->info.bf16_kernel, "amx");
    strcpy(profile->info.fp32_kernel, "avx512");
    for (int i = 0; i < n; i++) {
        struct layer_row row = layer(first + i, 8, 1e6 / 3 + i);
        assert_int_equal(profile_add_layer(profile, &row, NULL), OK);
    }
    assert_int_equal(profile_add_link(profile, &link, NULL), OK);
    assert_int_equal(profile_add_collective(profile, &sum, NULL), OK);
    assert_int_equal(profile_add_host(profile, &host, NULL), OK);
    assert_int_equal(profile_add_memory(profile, &memory, NULL), OK);
}

static void same_profile(const struct profile *a, const struct profile *b)
{
    assert_string_equal(a->info.note, b->info.note);
    assert_true(a->info.load == b->info.load);
    for (int t = 0; t < PROFILE_TABLES; t++) {
        const struct row_table *table = &profile_tables[t];
        assert_int_equal(profile_num_rows(a, table), profile_num_rows(b, table));
        for (int i = 0; i < profile_num_rows(a, table); i++)
            assert_memory_equal(profile_row(a, table, i), profile_row(b, table, i),
                                table->row_size);
    }
}

static void store_put_profile__comes_back_bit_for_bit(void **state)
{
    (void)state;
    struct profile profile, back = {0};
    struct store *store = open_store(at("sub/folder/a.db"), STORE_WRITE);
    fill(&profile, "mine", 64, 20);
    assert_int_equal(store_put_profile(store, &profile, PROFILE_CREATE, NULL), OK);
    store_close(store);
    store = open_store(at("sub/folder/a.db"), STORE_READ);
    assert_int_equal(store_get_profile(store, "mine", &back, NULL), OK);
    same_profile(&profile, &back);
    profile_clear(&back);
    profile_clear(&profile);
    store_close(store);
    /* The last to close leaves one file. */
    assert_int_equal(access(at("sub/folder/a.db-wal"), F_OK), -1);
    assert_int_equal(access(at("sub/folder/a.db-shm"), F_OK), -1);
}

static void store_put_profile__merges_replaces_and_refuses(void **state)
{
    (void)state;
    struct profile one, two, back = {0};
    struct err err = {0};
    struct store *store = open_store(at("merge.db"), STORE_RECORD);
    fill(&one, "p", 0, 10);
    fill(&two, "p", 5, 10);
    two.layers[0].ns.p90_ns = two.layers[0].ns.median_ns = 1e7;
    assert_int_equal(store_put_profile(store, &one, PROFILE_MERGE, NULL), OK);
    assert_int_equal(store_put_profile(store, &two, PROFILE_CREATE, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "profile 'p' is already in store"));
    assert_int_equal(store_put_profile(store, &two, PROFILE_MERGE, NULL), OK);
    assert_int_equal(store_get_profile(store, "p", &back, NULL), OK);
    assert_int_equal(back.num_layers, 15);
    assert_true(back.layers[5].key.hidden == 5 && back.layers[5].ns.median_ns == 1e7);
    profile_clear(&back);
    assert_int_equal(store_put_profile(store, &two, PROFILE_REPLACE, NULL), OK);
    assert_int_equal(store_get_profile(store, "p", &back, NULL), OK);
    same_profile(&two, &back);
    profile_clear(&back);
    /* Nothing changes when one row is bad. */
    one.layers[3].ns.median_ns = NAN;
    err = (struct err){0};
    assert_int_equal(store_put_profile(store, &one, PROFILE_REPLACE, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "median_ns must be a number of ns"));
    assert_int_equal(store_get_profile(store, "p", &back, NULL), OK);
    same_profile(&two, &back);
    profile_clear(&back);
    assert_int_equal(store_remove_profile(store, "p", NULL), OK);
    err = (struct err){0};
    assert_int_equal(store_get_profile(store, "p", &back, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "no profile 'p' in store"));
    store_close(store);
    /* The rows went with it. */
    exec(at("merge.db"), "CREATE TEMP TABLE t (n INTEGER CHECK (n = 0)); INSERT INTO t SELECT "
                         "count(*) FROM layer_cost");
    profile_clear(&one);
    profile_clear(&two);
}

static void store_open__loads_shipped_profiles_into_fresh_store(void **state)
{
    (void)state;
    struct profile profile = {0};
    struct profile_info *infos = NULL;
    int count = 0;
    struct store *store = open_store(at("fresh.db"), STORE_WRITE);
    assert_int_equal(store_list_profiles(store, "rtx5000", &infos, &count, NULL), OK);
    assert_int_equal(count, 1);
    assert_string_equal(infos[0].name, "rtx5000-paper");
    assert_true(infos[0].num_rows > 20);
    assert_int_equal(store_get_profile(store, "rtx5000-paper", &profile, NULL), OK);
    profile_clear(&profile);
    /* Removed means removed: opening again does not bring it back. */
    assert_int_equal(store_remove_profile(store, "rtx5000-paper", NULL), OK);
    store_close(store);
    store = open_store(at("fresh.db"), STORE_WRITE);
    assert_int_equal(store_get_profile(store, "rtx5000-paper", &profile, NULL), ERR_INFEASIBLE);
    store_close(store);
    free(infos);
    /* Reading the default store where there is none yet shows the shipped ones, and makes no file.
     */
    setenv("ELAPSE_DB", at("none.db"), 1);
    store = open_store(NULL, STORE_READ);
    assert_int_equal(store_get_profile(store, "rtx5000-paper", &profile, NULL), OK);
    profile_clear(&profile);
    assert_string_equal(store_path(store), at("none.db"));
    assert_int_equal(access(at("none.db"), F_OK), -1);
    /* All readers of a process share its bytes. */
    struct store *second = open_store(NULL, STORE_READ);
    store_close(store);
    assert_int_equal(store_get_profile(second, "rtx5000-paper", &profile, NULL), OK);
    profile_clear(&profile);
    assert_int_not_equal(store_remove_profile(second, "rtx5000-paper", NULL), OK);
    store_close(second);
    /* Likewise while another process makes it, or where a full disk ended that. */
    exec(at("none.db"), "PRAGMA journal_mode = WAL");
    store = open_store(NULL, STORE_READ);
    assert_int_equal(store_get_profile(store, "rtx5000-paper", &profile, NULL), OK);
    profile_clear(&profile);
    store_close(store);
}

static void store_list_profiles__calls_a_store_without_its_tables_damaged(void **state)
{
    (void)state;
    struct profile_info *infos = NULL;
    struct err err = {0};
    int count = 0;
    store_close(open_store(at("dropped.db"), STORE_WRITE));
    exec(at("dropped.db"), "DROP TABLE profile");
    struct store *store = open_store(at("dropped.db"), STORE_READ);
    assert_int_equal(store_list_profiles(store, NULL, &infos, &count, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "is damaged: no such table: profile"));
    store_close(store);
}

static void store_list_profiles__passes_over_a_column_that_somebody_added(void **state)
{
    (void)state;
    struct profile_info *infos = NULL;
    int count = 0;
    store_close(open_store(at("column.db"), STORE_WRITE));
    exec(at("column.db"), "ALTER TABLE profile ADD COLUMN mine TEXT");
    struct store *store = open_store(at("column.db"), STORE_READ);
    assert_int_equal(store_list_profiles(store, NULL, &infos, &count, NULL), OK);
    assert_true(count > 0);
    free(infos);
    store_close(store);
}

static void store_open__refuses_what_is_not_ours(void **state)
{
    (void)state;
    struct stat before, after;
    char text[64] = "";
    refuses(at("missing.db"), STORE_READ, ERR_SYSTEM, "cannot open store");
    refuses("", STORE_READ, ERR_SYSTEM, "cannot open store ''");
    refuses("", STORE_WRITE, ERR_SYSTEM, "cannot open store ''");
    FILE *out = fopen(at("text.db"), "w");
    fputs("this is no database, only text that is longer than the header of one, so that SQLite "
          "has something to look at for a while",
          out);
    fclose(out);
    refuses(at("text.db"), STORE_READ, ERR_INPUT, "is not an SQLite file");
    refuses(at("text.db"), STORE_WRITE, ERR_INPUT, "is not an SQLite file");
    out = fopen(at("text.db"), "r");
    assert_int_equal(fread(text, 1, 12, out), 12);
    fclose(out);
    assert_string_equal(text, "this is no d");
    /* Another program's file is left as it is. */
    exec(at("foreign.db"), "CREATE TABLE bookmarks (url TEXT)");
    assert_int_equal(stat(at("foreign.db"), &before), 0);
    refuses(at("foreign.db"), STORE_READ, ERR_INPUT, "is an SQLite file of another program");
    refuses(at("foreign.db"), STORE_WRITE, ERR_INPUT, "is an SQLite file of another program");
    assert_int_equal(stat(at("foreign.db"), &after), 0);
    assert_true(before.st_size == after.st_size && before.st_mtime == after.st_mtime);
    /* A newer one too. */
    store_close(open_store(at("newer.db"), STORE_WRITE));
    exec(at("newer.db"), "PRAGMA user_version = 99");
    refuses(at("newer.db"), STORE_READ, ERR_INPUT, "has schema version 99, this program knows 1..");
    refuses(at("newer.db"), STORE_WRITE, ERR_INPUT, "has schema version 99");
    /* So is a version that no program wrote. */
    for (int version = -1; version <= 0; version++) {
        exec(at("newer.db"), version ? "PRAGMA user_version = -1" : "PRAGMA user_version = 0");
        refuses(at("newer.db"), STORE_READ, ERR_INPUT, "this program knows 1..");
        refuses(at("newer.db"), STORE_WRITE, ERR_INPUT, "this program knows 1..");
    }
    /* An empty file is a fresh store to a writer, none to a reader. */
    fclose(fopen(at("empty.db"), "w"));
    refuses(at("empty.db"), STORE_READ, ERR_INPUT, "is empty");
    store_close(open_store(at("empty.db"), STORE_WRITE));
    store_close(open_store(at("empty.db"), STORE_READ));
    refuses(scratch, STORE_READ, ERR_SYSTEM, "store");
    refuses("/proc/nowhere/x.db", STORE_WRITE, ERR_SYSTEM, "cannot make folder");
}

/* A view in the place of a table, or a trigger, would run SQL that came with the file. */
static void store_open__refuses_files_with_code_of_their_own(void **state)
{
    static const struct {
        const char *sql, *message;
    } forged[] = {
        {"ALTER TABLE layer_cost RENAME TO t; CREATE VIEW layer_cost AS SELECT * FROM t",
         "holds a view 'layer_cost'"                                                                             },
        {"CREATE TRIGGER late AFTER INSERT ON profile BEGIN DELETE FROM profile; END",
         "holds a trigger 'late'"                                                                                },
        {"CREATE VIRTUAL TABLE words USING fts5(text)",                                   "holds a table 'words'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        unlink(at("forged.db"));
        store_close(open_store(at("forged.db"), STORE_RECORD));
        exec(at("forged.db"), forged[i].sql);
        refuses(at("forged.db"), STORE_READ, ERR_INPUT, forged[i].message);
        refuses(at("forged.db"), STORE_WRITE, ERR_INPUT, forged[i].message);
    }
}

static void store_step__gives_up_on_a_step_without_end(void **state)
{
    sqlite3_stmt *stmt = NULL;
    struct err err = {0};
    (void)state;
    struct store *store = open_store(at("endless.db"), STORE_RECORD);
    store->ops_limit = 1000000;
    assert_int_equal(store_prepare(store,
                                   "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
                                   " SELECT count(*) FROM c",
                                   &stmt, NULL),
                     OK);
    assert_int_equal(store_step(store, stmt), SQLITE_INTERRUPT);
    assert_int_equal(store_fail(store, "cannot read", &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "a query exceeds the limit on instructions"));
    sqlite3_finalize(stmt);
    store_close(store);
}

/* A file without our CHECKs may hold any number where a bool belongs. */
static void record_list__reads_any_number_but_zero_as_true(void **state)
{
    struct run_info *infos = NULL;
    int count = 0;
    (void)state;
    store_close(open_store(at("bool.db"), STORE_RECORD));
    exec(at("bool.db"), "PRAGMA ignore_check_constraints = ON;"
                        "INSERT INTO run (kind, name, started_at, host, version, cost_source,"
                        " num_devices, finished) VALUES ('real', 'n', '', '', '', '', 1, 256)");
    struct store *store = open_store(at("bool.db"), STORE_READ);
    assert_int_equal(record_list(store, &infos, &count, NULL), OK);
    assert_int_equal(count, 1);
    assert_true(infos[0].finished);
    free(infos);
    store_close(store);
}

/* Cut the file at every page boundary and in between: never a crash, never an answer. */
static void store_open__refuses_truncated_store(void **state)
{
    (void)state;
    struct profile profile;
    struct stat st;
    struct store *store = open_store(at("whole.db"), STORE_WRITE);
    fill(&profile, "p", 0, 500);
    assert_int_equal(store_put_profile(store, &profile, PROFILE_MERGE, NULL), OK);
    profile_clear(&profile);
    store_close(store);
    assert_int_equal(stat(at("whole.db"), &st), 0);
    for (off_t size = st.st_size - 1; size > 0; size -= size > 8192 ? 7919 : 501) {
        char command[256];
        snprintf(command, sizeof command, "cp %s/whole.db %s/cut.db", scratch, scratch);
        assert_int_equal(system(command), 0);
        assert_int_equal(truncate(at("cut.db"), size), 0);
        struct err err = {0};
        assert_int_equal(store_open(at("cut.db"), STORE_READ, &store, &err), ERR_INPUT);
        assert_true(strstr(err.msg, "truncated") || strstr(err.msg, "not an SQLite"));
        assert_int_equal(store_open(at("cut.db"), STORE_WRITE, &store, NULL), ERR_INPUT);
    }
}

/* Damage inside the pages: an error or an answer, never a crash. */
static void store_open__survives_flipped_bytes(void **state)
{
    (void)state;
    struct profile profile;
    struct stat st;
    struct store *store = open_store(at("whole2.db"), STORE_RECORD);
    fill(&profile, "p", 0, 50);
    assert_int_equal(store_put_profile(store, &profile, PROFILE_MERGE, NULL), OK);
    profile_clear(&profile);
    store_close(store);
    assert_int_equal(stat(at("whole2.db"), &st), 0);
    char *good = malloc((size_t)st.st_size);
    FILE *file = fopen(at("whole2.db"), "r");
    assert_int_equal(fread(good, 1, (size_t)st.st_size, file), st.st_size);
    fclose(file);
    unsigned seed = 1;
    for (int round = 0; round < 150; round++) {
        file = fopen(at("bad.db"), "w");
        fwrite(good, 1, (size_t)st.st_size, file);
        for (int i = 0; i < 20; i++) {
            seed = seed * 1103515245u + 12345u;
            fseek(file, (long)(seed >> 4) % st.st_size, SEEK_SET);
            fputc((int)(seed >> 20), file);
        }
        fclose(file);
        if (store_open(at("bad.db"), STORE_READ, &store, NULL) == OK) {
            struct profile got = {0};
            if (store_get_profile(store, "p", &got, NULL) == OK)
                profile_clear(&got);
            store_close(store);
        }
    }
    free(good);
}

static void store_calibration__comes_back_and_is_replaced(void **state)
{
    (void)state;
    struct calibration c, back;
    struct err err = {0};
    char(*names)[CALIBRATION_NAME_MAX] = NULL;
    int n = 0;
    calibration_init(&(struct calibration_prior){0.15, 0.12, 0.12}, &c);
    strcpy(c.name, "first");
    strcpy(c.cluster, "a100-1x8");
    strcpy(c.framework, "fsdp");
    strcpy(c.device, "a100");
    strcpy(c.dtype, "bf16");
    strcpy(c.launcher, "composer");
    c.num_rows = 3;
    c.factor[FACTOR_COMPUTE] = 1.25;
    c.determined[FACTOR_COMPUTE] = true;
    c.covariance[FACTOR_COMPUTE][FACTOR_INSIDE] = -0.01;
    struct store *store = open_store(at("calibrations.db"), STORE_RECORD);
    assert_int_equal(store_put_calibration(store, &c, NULL), OK);
    assert_int_equal(store_get_calibration(store, "first", &back, NULL), OK);
    assert_memory_equal(c.factor, back.factor, sizeof c.factor);
    assert_memory_equal(c.covariance, back.covariance, sizeof c.covariance);
    assert_memory_equal(c.determined, back.determined, sizeof c.determined);
    assert_string_equal(back.cluster, "a100-1x8");
    assert_string_equal(back.framework, "fsdp");
    assert_string_equal(back.device, "a100");
    assert_string_equal(back.dtype, "bf16");
    assert_string_equal(back.launcher, "composer");
    assert_true(back.noise == c.noise && back.num_rows == 3 && back.num_peaks == 0);
    c.factor[FACTOR_COMPUTE] = 1.5;
    assert_int_equal(store_put_calibration(store, &c, NULL), OK);
    assert_int_equal(store_get_calibration(store, "first", &back, NULL), OK);
    assert_true(back.factor[FACTOR_COMPUTE] == 1.5);
    assert_int_equal(store_list_calibrations(store, &names, &n, NULL), OK);
    assert_int_equal(n, 1);
    assert_string_equal(names[0], "first");
    free(names);
    assert_int_equal(store_get_calibration(store, "furst", &back, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "nearest is 'first'"));
    assert_int_equal(store_remove_calibration(store, "first", NULL), OK);
    assert_int_equal(store_remove_calibration(store, "first", NULL), ERR_INFEASIBLE);
    store_close(store);
}

/* A row that no program of ours wrote is refused, not used. */
static void store_calibration__refuses_factors_that_are_missing_or_unknown(void **state)
{
    static const char *const damage[] = {
        "DELETE FROM calibration_factor WHERE factor = 'launch'",
        "DELETE FROM calibration_covariance WHERE other = 'launch'",
        "UPDATE calibration_factor SET factor = 'wheels' WHERE factor = 'launch'",
        "UPDATE calibration_factor SET value = 9e999 WHERE factor = 'launch'",
    };
    (void)state;
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        struct calibration c, back;
        calibration_init(&(struct calibration_prior){0.15, 0.12, 0.12}, &c);
        strcpy(c.name, "c");
        struct store *store = open_store(at("damaged.db"), STORE_RECORD);
        assert_int_equal(store_put_calibration(store, &c, NULL), OK);
        store_close(store);
        exec(at("damaged.db"), damage[i]);
        store = open_store(at("damaged.db"), STORE_READ);
        assert_int_equal(store_get_calibration(store, "c", &back, NULL), ERR_INPUT);
        store_close(store);
    }
}

static void store_open__brings_older_schema_up(void **state)
{
    static const char back_to_2[] =
        "CREATE TABLE old (profile_id, backend, dtype, threads, ranks, item, variant, hidden, "
        "heads,"
        " mlp, seq, patch, image, vocab, classes,"
        " pass CHECK (pass IN ('fwd', 'bwd_input', 'bwd_weight', 'update')),"
        " samples, median_ns REAL, p10_ns REAL, p90_ns REAL, count);"
        "INSERT INTO old SELECT * FROM layer_cost; DROP TABLE layer_cost;"
        "ALTER TABLE old RENAME TO layer_cost; DROP TABLE library_choice;"
        "DROP TABLE calibration_covariance; DROP TABLE calibration_factor; DROP TABLE calibration;"
        "ALTER TABLE profile DROP COLUMN bf16_kernel; ALTER TABLE profile DROP COLUMN fp32_kernel;"
        "PRAGMA user_version = 2";
    (void)state;
    struct profile profile, back = {0};
    struct store *store = open_store(at("old.db"), STORE_RECORD);
    fill(&profile, "kept", 0, 3);
    assert_int_equal(store_put_profile(store, &profile, PROFILE_MERGE, NULL), OK);
    store_close(store);
    /* Back to version 2, which knew four passes: it is read as it is, and brought up when written.
     */
    exec(at("old.db"), back_to_2);
    store = open_store(at("old.db"), STORE_READ);
    assert_int_equal(store_get_profile(store, "kept", &back, NULL), OK);
    same_profile(&profile, &back);
    assert_string_equal(back.info.bf16_kernel, ""); /* not known then */
    assert_string_equal(back.info.fp32_kernel, "");
    profile_clear(&back);
    const struct choice_place place = {.device = "d", .libraries = "l"};
    struct library_choice *list = NULL;
    int num = -1;
    assert_int_equal(store_get_choices(store, &place, &list, &num, NULL), OK); /* none yet */
    assert_int_equal(num, 0);
    struct calibration none;
    assert_int_equal(store_get_calibration(store, "c", &none, NULL), ERR_INFEASIBLE);
    store_close(store);
    struct layer_row newer = layer(3, 8, 1e6);
    strcpy(newer.pass, "bwd_rest");
    assert_int_equal(profile_add_layer(&profile, &newer, NULL), OK);
    strcpy(newer.pass, "fwd_nograd");
    assert_int_equal(profile_add_layer(&profile, &newer, NULL), OK);
    store = open_store(at("old.db"), STORE_RECORD);
    assert_int_equal(store_put_profile(store, &profile, PROFILE_MERGE, NULL), OK);
    assert_int_equal(store_get_profile(store, "kept", &back, NULL), OK);
    same_profile(&profile, &back);
    assert_string_equal(back.info.bf16_kernel, "amx");
    assert_string_equal(back.info.fp32_kernel, "avx512");
    profile_clear(&back);
    /* Version 5 knew one kernel of the two. */
    exec(at("old.db"), "ALTER TABLE profile DROP COLUMN fp32_kernel; PRAGMA user_version = 5");
    assert_int_equal(store_get_profile(store, "kept", &back, NULL), OK);
    assert_string_equal(back.info.bf16_kernel, "amx");
    assert_string_equal(back.info.fp32_kernel, "");
    profile_clear(&back);
    exec(at("old.db"), "ALTER TABLE profile ADD COLUMN fp32_kernel TEXT NOT NULL DEFAULT '';"
                       "PRAGMA user_version = 9");
    store_close(store);
    profile.num_layers -= 2;
    exec(at("old.db"), "DELETE FROM layer_cost WHERE pass IN ('bwd_rest', 'fwd_nograd')");
    /* Back to version 1, which had no run records. */
    exec(at("old.db"), back_to_2);
    exec(at("old.db"), "DROP TABLE epoch; DROP TABLE step; DROP TABLE op; DROP TABLE transition;"
                       "DROP TABLE memory; DROP TABLE run; PRAGMA user_version = 1");
    refuses(at("old.db"), STORE_READ, ERR_INPUT, "has the old schema version 1, not 2..9");
    store = open_store(at("old.db"), STORE_WRITE);
    assert_int_equal(store_get_profile(store, "kept", &back, NULL), OK);
    same_profile(&profile, &back);
    profile_clear(&back);
    /* An old store is not a fresh one: nothing is shipped into it. */
    assert_int_equal(store_get_profile(store, "rtx5000-paper", &back, NULL), ERR_INFEASIBLE);
    store_close(store);
    exec(at("old.db"), "SELECT * FROM run, epoch, step, op, transition, memory");
    profile_clear(&profile);
}

static void store_choices__hold_the_last_of_a_problem_in_its_place(void **state)
{
    static const struct library_choice first[] = {
        {"b", "1"},
        {"a", "2"}
    };
    static const struct library_choice later[] = {
        {"a", "3"},
        {"c", "4"}
    };
    const struct choice_place here = {.device = "gpu", .libraries = "lib 1"};
    const struct choice_place there = {.device = "gpu", .libraries = "lib 2"};
    struct library_choice *list = NULL;
    int num = -1;
    (void)state;
    struct store *store = open_store(at("choices.db"), STORE_RECORD);
    assert_int_equal(store_put_choices(store, &here, first, 2, NULL), OK);
    assert_int_equal(store_put_choices(store, &here, later, 2, NULL), OK);
    store_close(store);
    store = open_store(at("choices.db"), STORE_READ);
    assert_int_equal(store_get_choices(store, &there, &list, &num, NULL), OK);
    assert_int_equal(num, 0);
    assert_null(list);
    assert_int_equal(store_get_choices(store, &here, &list, &num, NULL), OK);
    assert_int_equal(num, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(list[i].problem, i == 0 ? "a" : i == 1 ? "b" : "c");
        assert_string_equal(list[i].answer, i == 0 ? "3" : i == 1 ? "1" : "4");
    }
    free(list);
    store_close(store);
}

enum { WRITERS = 8, BATCHES = 4, ROWS = 20 };

/* All create the file, the schema and the profile, then add their own rows. */
static void write_in_a_crowd(const char *path, int writer)
{
    struct store *store = NULL;
    struct err err = {0};
    bool ok = store_open(path, STORE_WRITE, &store, &err) == OK;
    for (int b = 0; b < BATCHES && ok; b++) {
        struct profile profile = {0};
        strcpy(profile.info.name, "crowd");
        strcpy(profile.info.device_kind, "cpu");
        for (int i = 0; i < ROWS; i++) {
            struct layer_row row = layer(writer * 1000 + b * ROWS + i, 1, 100);
            ok = ok && profile_add_layer(&profile, &row, NULL) == OK;
        }
        ok = ok && store_put_profile(store, &profile, PROFILE_MERGE, &err) == OK;
        profile_clear(&profile);
    }
    store_close(store);
    if (!ok)
        fprintf(stderr, "writer %d: %s\n", writer, err.msg);
    _exit(ok ? 0 : 1);
}

/* Many rounds: two races on the way to a fresh store showed in one round of thirty. */
static void store_put_profile__loses_nothing_when_eight_write_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 25; round++) {
        char name[32];
        pid_t pids[WRITERS];
        snprintf(name, sizeof name, "crowd%d.db", round);
        const char *path = at(name);
        for (int w = 0; w < WRITERS; w++)
            if ((pids[w] = fork()) == 0)
                write_in_a_crowd(path, w);
        for (int w = 0; w < WRITERS; w++) {
            int status;
            assert_true(waitpid(pids[w], &status, 0) == pids[w]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        struct profile back = {0};
        struct store *store = open_store(path, STORE_READ);
        assert_int_equal(store_get_profile(store, "crowd", &back, NULL), OK);
        assert_int_equal(back.num_layers, WRITERS * BATCHES * ROWS);
        profile_clear(&back);
        store_close(store);
    }
}

static void store_put_profile__is_whole_or_absent_after_kill(void **state)
{
    (void)state;
    const char *path = at("killed.db");
    store_close(open_store(path, STORE_RECORD));
    int last = 0;
    for (int round = 0; round < 12; round++) {
        int written[2]; /* a byte for each version that is there */
        char byte;
        assert_int_equal(pipe(written), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct store *store = NULL;
            if (store_open(path, STORE_WRITE, &store, NULL) != OK)
                _exit(1);
            for (int n = 1;; n++) { /* each version of the profile has all its rows, or none */
                struct profile profile = {0};
                strcpy(profile.info.name, "k");
                strcpy(profile.info.device_kind, "cpu");
                profile.info.cores = 200 + n % 100;
                for (int i = 0; i < 200 + n % 100; i++) {
                    struct layer_row row = layer(i, 1, n);
                    profile_add_layer(&profile, &row, NULL);
                }
                store_put_profile(store, &profile, PROFILE_REPLACE, NULL);
                profile_clear(&profile);
                if (write(written[1], "", 1) != 1)
                    _exit(1);
            }
        }
        close(written[1]);
        for (int i = 0; i < round % 4; i++)
            assert_int_equal(read(written[0], &byte, 1), 1);
        usleep((useconds_t)(round * 3777));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        close(written[0]);
        struct profile back = {0};
        struct store *store = open_store(path, STORE_READ);
        enum status rc = store_get_profile(store, "k", &back, NULL);
        assert_true(rc == OK || (rc == ERR_INFEASIBLE && last == 0));
        if (rc == OK) {
            assert_int_equal(back.num_layers, back.info.cores);
            for (int i = 1; i < back.num_layers; i++)
                assert_true(back.layers[i].ns.median_ns == back.layers[0].ns.median_ns);
            last = back.num_layers;
        }
        profile_clear(&back);
        store_close(store);
    }
    assert_true(last > 0);
    exec(path, "CREATE TEMP TABLE t (ok TEXT CHECK (ok = 'ok')); INSERT INTO t SELECT * FROM "
               "pragma_integrity_check");
}

static void store_put_profile__says_so_when_locked(void **state)
{
    (void)state;
    struct profile profile;
    struct err err = {0};
    sqlite3 *db = NULL;
    struct store *store = open_store(at("locked.db"), STORE_RECORD);
    sqlite3_busy_timeout(store->db, 50); /* in place of 30 s */
    fill(&profile, "p", 0, 3);
    assert_int_equal(sqlite3_open(at("locked.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(store_put_profile(store, &profile, PROFILE_MERGE, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "is locked by another process"));
    /* Readers go on meanwhile. */
    store_close(open_store(at("locked.db"), STORE_READ));
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    assert_int_equal(store_put_profile(store, &profile, PROFILE_MERGE, NULL), OK);
    store_close(store);
    profile_clear(&profile);
}

/* The rest of a test as somebody whom permissions bind; true in that child. */
static bool as_nobody(pid_t *pid)
{
    *pid = fork();
    if (*pid == 0 && geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        _exit(77);
    return *pid == 0;
}

static void store_open__reads_but_does_not_write_read_only_store(void **state)
{
    (void)state;
    struct profile profile;
    pid_t pid;
    int status;
    assert_int_equal(mkdir(at("ro"), 0755), 0);
    struct store *store = open_store(at("ro/a?b#c.db"), STORE_RECORD);
    fill(&profile, "p", 0, 3);
    assert_int_equal(store_put_profile(store, &profile, PROFILE_MERGE, NULL), OK);
    store_close(store);
    assert_int_equal(chmod(at("ro/a?b#c.db"), 0444), 0);
    assert_int_equal(chmod(at("ro"), 0555), 0);
    assert_int_equal(chmod(scratch, 0755), 0);
    if (as_nobody(&pid)) {
        struct profile back = {0};
        struct err err = {0};
        if (store_open(at("ro/a?b#c.db"), STORE_READ, &store, &err) != OK ||
            store_get_profile(store, "p", &back, NULL) != OK || back.num_layers != 3)
            _exit(1);
        store_close(store);
        if (store_open(at("ro/a?b#c.db"), STORE_WRITE, &store, &err) == OK) {
            if (store_put_profile(store, &profile, PROFILE_MERGE, &err) != ERR_SYSTEM)
                _exit(2);
        }
        if (err.status != ERR_SYSTEM || !strstr(err.msg, "is read-only"))
            _exit(3);
        _exit(0);
    }
    assert_true(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
    profile_clear(&profile);
}

/* A run that was killed, on a disk that is mounted for reading: its rows lie in the WAL. */
static void store_open__refuses_read_only_store_whose_rows_lie_in_a_wal(void **state)
{
    (void)state;
    struct profile profile;
    pid_t pid;
    int status;
    assert_int_equal(mkdir(at("killed"), 0755), 0);
    fill(&profile, "p", 0, 3);
    if ((pid = fork()) == 0) {
        struct store *store = open_store(at("killed/a.db"), STORE_RECORD);
        _exit(store_put_profile(store, &profile, PROFILE_MERGE, NULL) != OK);
    }
    assert_true(waitpid(pid, &status, 0) == pid && status == 0);
    assert_int_equal(unlink(at("killed/a.db-shm")), 0);
    assert_int_equal(chmod(at("killed"), 0555), 0);
    assert_int_equal(chmod(scratch, 0755), 0);
    if (as_nobody(&pid)) {
        struct store *store = NULL;
        struct err err = {0};
        _exit(store_open(at("killed/a.db"), STORE_READ, &store, &err) != ERR_SYSTEM ||
              !strstr(err.msg, "'-wal' next to it holds rows"));
    }
    assert_true(waitpid(pid, &status, 0) == pid);
    profile_clear(&profile);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

/* SQLite's own page limit stands for a full disk: the same result code, the same path. */
static void store_put_profile__keeps_store_when_disk_is_full(void **state)
{
    (void)state;
    struct profile small, large, back = {0};
    pid_t pid;
    int status;
    struct store *store = open_store(at("full.db"), STORE_RECORD);
    fill(&small, "small", 0, 3);
    fill(&large, "large", 0, 20000);
    assert_int_equal(store_put_profile(store, &small, PROFILE_MERGE, NULL), OK);
    store_close(store);
    pid = fork();
    if (pid == 0) { /* a limit on the size of files, which only this child has */
        struct err err = {0};
        signal(SIGXFSZ, SIG_IGN);
        if (store_open(at("full.db"), STORE_WRITE, &store, &err) != OK)
            _exit(1);
        char command[64];
        snprintf(command, sizeof command, "prlimit --pid %d --fsize=400000", (int)getpid());
        if (system(command) != 0)
            _exit(77);
        if (store_put_profile(store, &large, PROFILE_MERGE, &err) != ERR_SYSTEM || !*err.msg)
            _exit(2);
        _exit(0);
    }
    assert_true(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
    store = open_store(at("full.db"), STORE_WRITE);
    assert_int_equal(store_get_profile(store, "large", &back, NULL), ERR_INFEASIBLE);
    assert_int_equal(store_get_profile(store, "small", &back, NULL), OK);
    same_profile(&small, &back);
    profile_clear(&back);
    assert_int_equal(store_put_profile(store, &large, PROFILE_MERGE, NULL), OK);
    store_close(store);
    profile_clear(&small);
    profile_clear(&large);
}

/* SQLite's allocator, with one allocation that fails. */
static sqlite3_mem_methods real_memory;
static int allocations_left = -1;

static void *scarce_malloc(int size)
{
    return allocations_left >= 0 && allocations_left-- == 0 ? NULL : real_memory.xMalloc(size);
}

static void *scarce_realloc(void *old, int size)
{
    return allocations_left >= 0 && allocations_left-- == 0 ? NULL
                                                            : real_memory.xRealloc(old, size);
}

static void make_memory_scarce(void)
{
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_memory);
    sqlite3_mem_methods scarce = real_memory;
    scarce.xMalloc = scarce_malloc;
    scarce.xRealloc = scarce_realloc;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &scarce);
}

static void store__is_whole_or_absent_when_an_allocation_fails(void **state)
{
    (void)state;
    struct profile profile;
    fill(&profile, "p", 0, 3);
    int n = 0, refused = 0;
    for (bool failed = true; failed; n += 1 + n / 20) {
        struct store *store = NULL;
        struct profile back = {0};
        struct err err = {0};
        unlink(at("oom.db"));
        unlink(at("oom.db-wal"));
        unlink(at("oom.db-shm"));
        allocations_left = n;
        enum status rc = store_open(at("oom.db"), STORE_RECORD, &store, &err);
        if (rc == OK)
            rc = store_put_profile(store, &profile, PROFILE_CREATE, &err);
        enum status found = store ? store_get_profile(store, "p", &back, NULL) : ERR_INFEASIBLE;
        failed = allocations_left < 0;
        allocations_left = -1;
        /* SQLite survives some failures by itself (a cache that stays small). */
        assert_true(rc == OK || (failed && *err.msg));
        refused += rc != OK;
        if (rc == OK && found == OK)
            same_profile(&profile, &back);
        profile_clear(&back);
        store_close(store);
        store = open_store(at("oom.db"), STORE_RECORD);
        found = store_get_profile(store, "p", &back, NULL);
        assert_int_equal(found, rc == OK ? OK : ERR_INFEASIBLE);
        if (found == OK)
            same_profile(&profile, &back);
        profile_clear(&back);
        store_close(store);
    }
    assert_true(n > 500 && refused > 50);
    profile_clear(&profile);
}

static void profile_check__refuses_what_no_profile_may_hold(void **state)
{
    (void)state;
    static const struct {
        double median, p10, p90;
        int64_t count, samples;
        const char *pass, *message;
    } bad[] = {
        {-1,       -1, 1, 1, 1,  "fwd",      "median_ns must be a number of ns from 0 to a year, got -1" },
        {INFINITY, 1,  1, 1, 1,  "fwd",      "median_ns must be a number of ns from 0 to a year, got inf"},
        {5,        6,  7, 1, 1,  "fwd",      "p10_ns, median_ns, p90_ns must ascend, got 6, 5, 7"        },
        {5,        4,  4, 1, 1,  "fwd",      "p10_ns, median_ns, p90_ns must ascend, got 4, 5, 4"        },
        {5,        4,  6, 0, 1,  "fwd",      "count must be at least 1, got 0"                           },
        {5,        4,  6, 1, -2, "fwd",      "samples must be at least 0, got -2"                        },
        {5,        4,  6, 1, 1,  "sideways",
         "pass must be fwd|bwd_input|bwd_weight|bwd_rest|fwd_nograd|update, got 'sideways'"              },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct profile profile = {0};
        struct err err = {0};
        struct layer_row row = layer(1, bad[i].samples, 1);
        strcpy(profile.info.name, "p");
        strcpy(profile.info.device_kind, "cpu");
        strcpy(row.pass, bad[i].pass);
        row.ns = (struct spread){bad[i].median, bad[i].p10, bad[i].p90, bad[i].count};
        profile_add_layer(&profile, &row, NULL);
        assert_int_equal(profile_check(&profile, "f", &err), ERR_INPUT);
        if (!strstr(err.msg, bad[i].message))
            fail_msg("'%s' does not say '%s'", err.msg, bad[i].message);
        profile_clear(&profile);
    }
    struct profile lines;
    struct err torn = {0};
    fill(&lines, "a\nb", 0, 1);
    assert_int_equal(profile_check(&lines, "f", &torn), ERR_INPUT);
    assert_non_null(strstr(torn.msg, "control characters, got byte 10 at 1"));
    profile_clear(&lines);
    struct profile twice;
    struct err err = {0};
    fill(&twice, "p", 0, 3);
    assert_int_equal(profile_add_layer(&twice, &twice.layers[1], NULL), OK);
    assert_int_equal(profile_check(&twice, "f", &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "is there twice"));
    profile_clear(&twice);
}

static void profile_noise__tells_how_well_layers_repeat(void **state)
{
    (void)state;
    struct profile profile = {0};
    struct profile_noise noise = profile_noise(&profile);
    assert_true(noise.mean == 0 && noise.worst == 0 && noise.num_rows == 0);
    const struct spread spreads[] = {
        {100, 95, 105, 9}, /* 10 % */
        {100, 80, 120, 9}, /* 40 % */
        {0,   0,  0,   9}, /* a pass that costs nothing */
    };
    for (int i = 0; i < 3; i++) {
        struct layer_row row = layer(64, i, 1);
        row.ns = spreads[i];
        assert_int_equal(profile_add_layer(&profile, &row, NULL), OK);
    }
    noise = profile_noise(&profile);
    assert_int_equal(noise.num_rows, 2);
    assert_int_equal(noise.num_noisy, 1);
    assert_true(noise.mean == 0.25 && noise.worst == 0.4);
    profile_clear(&profile);
}

static void spread_of__gives_quantiles(void **state)
{
    (void)state;
    double times[] = {9, 1, 5, 3, 7};
    struct spread spread = spread_of(times, 5);
    assert_true(spread.median_ns == 5 && spread.count == 5);
    assert_true(fabs(spread.p10_ns - 1.8) < 1e-12 && fabs(spread.p90_ns - 8.2) < 1e-12);
    double one[] = {4};
    spread = spread_of(one, 1);
    assert_true(spread.median_ns == 4 && spread.p10_ns == 4 && spread.p90_ns == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_put_profile__comes_back_bit_for_bit),
        cmocka_unit_test(store_put_profile__merges_replaces_and_refuses),
        cmocka_unit_test(store_open__loads_shipped_profiles_into_fresh_store),
        cmocka_unit_test(store_list_profiles__calls_a_store_without_its_tables_damaged),
        cmocka_unit_test(store_list_profiles__passes_over_a_column_that_somebody_added),
        cmocka_unit_test(store_open__refuses_what_is_not_ours),
        cmocka_unit_test(store_open__refuses_files_with_code_of_their_own),
        cmocka_unit_test(store_step__gives_up_on_a_step_without_end),
        cmocka_unit_test(record_list__reads_any_number_but_zero_as_true),
        cmocka_unit_test(store_open__refuses_truncated_store),
        cmocka_unit_test(store_open__survives_flipped_bytes),
        cmocka_unit_test(store_calibration__comes_back_and_is_replaced),
        cmocka_unit_test(store_calibration__refuses_factors_that_are_missing_or_unknown),
        cmocka_unit_test(store_open__brings_older_schema_up),
        cmocka_unit_test(store_choices__hold_the_last_of_a_problem_in_its_place),
        cmocka_unit_test(store_put_profile__loses_nothing_when_eight_write_at_once),
        cmocka_unit_test(store_put_profile__is_whole_or_absent_after_kill),
        cmocka_unit_test(store_put_profile__says_so_when_locked),
        cmocka_unit_test(store_open__reads_but_does_not_write_read_only_store),
        cmocka_unit_test(store_open__refuses_read_only_store_whose_rows_lie_in_a_wal),
        cmocka_unit_test(store_put_profile__keeps_store_when_disk_is_full),
        cmocka_unit_test(store__is_whole_or_absent_when_an_allocation_fails),
        cmocka_unit_test(profile_check__refuses_what_no_profile_may_hold),
        cmocka_unit_test(profile_noise__tells_how_well_layers_repeat),
        cmocka_unit_test(spread_of__gives_quantiles),
    };
    make_memory_scarce(); /* before SQLite's first call */
    return cmocka_run_group_tests_name("store", tests, scratch_make, scratch_remove);
}
