/* Files that a run leaves and another one reads: stores, a run's folder, checkpoints, weights. */
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/runs/replay.h"
#include "cli/runs/run_rows.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/checkpoint_check.h"
#include "exec/weights/hf_names.h"
#include "exec/checkpoint/owned_folder.h"
#include "exec/record/run_files.h"
#include "profiles/job/job_json.h"
#include "profiles/store/profile_file.h"
#include "profiles/store/record.h"
#include "profiles/store/store_calibration.h"
#include "profiles/base/whole_file.h"
#include "tests/fuzz/fuzz.h"

static const char small_job[] =
    "{\"name\": \"small\", \"data\": {\"kind\": \"synthetic\"}, \"cluster\": \"1x2\","
    " \"train\": {\"batch\": {\"global\": 8}},"
    " \"model\": \"vit-tiny:layers=2,hidden=8,heads=2,mlp=8,image=8,patch=4,classes=10\"}";

static void must(enum status rc, const struct err *err)
{
    if (rc != OK)
        fuzz_wrong(err->msg);
}

/* --- stores -------------------------------------------------------------------------------------- */

/* Fill a store with a profile and a finished run. */
static void fill_store(const char *path)
{
    struct store *store = NULL;
    struct profile profile = {
        .info = {.name = "p", .source = "measured", .device_kind = "cpu"}
    };
    const struct layer_row layer = {
        .backend = "cpu",
        .dtype = "fp32",
        .threads = 1,
        .ranks = 1,
        .key = {.item = "attention", .hidden = 8, .heads = 2, .seq = 4},
        .pass = "fwd",
        .samples = 1,
        .ns = {10,                  9,           12,         5       }
    };
    const struct run_info info = {.name = "r", .num_devices = 2, .job_json = (char *)small_job};
    const struct epoch_row epoch = {.steps = 1, .step_ns = 100};
    const struct step_row step = {.step = 1, .step_ns = 100, .loss = 1, .pipeline_length = 2};
    const struct op_row op = {.step = 1, .end_ns = 9, .op = {.kind = OP_F}};
    const struct transition_row part = {.part = "plan", .ns = 3};
    const struct device_memory_row memory = {.what = "total", .peak_bytes = 9};
    struct calibration calibration = {
        .name = "c", .num_rows = 2, .factor = {1, 1, 1, 1, 1}
    };
    struct err err = {0};
    int64_t id = 0;
    must(store_open(path, STORE_RECORD, &store, &err), &err);
    must(profile_add_layer(&profile, &layer, &err), &err);
    must(store_put_profile(store, &profile, PROFILE_CREATE, &err), &err);
    must(store_put_calibration(store, &calibration, &err), &err);
    must(record_start(store, &info, &id, &err), &err);
    must(record_epochs(store, id, &epoch, 1, &err), &err);
    must(record_steps(store, id, &step, 1, &err), &err);
    must(record_ops(store, id, &op, 1, &err), &err);
    must(record_transitions(store, id, &part, 1, &err), &err);
    must(record_memory(store, id, &memory, 1, &err), &err);
    must(record_finish(store, id, 100, &err), &err);
    profile_clear(&profile);
    store_close(store);
}

/* A good store as one file, without SQLite's log beside it. */
static void good_store(const char *name)
{
    static char *bytes;
    static size_t size;
    if (!bytes) {
        sqlite3 *db = NULL;
        fill_store(fuzz_path("good.db"));
        if (sqlite3_open(fuzz_path("good.db"), &db) != SQLITE_OK ||
            sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL) != SQLITE_OK)
            fuzz_wrong("no good store");
        sqlite3_close(db);
        if (file_read(fuzz_path("good.db"), &bytes, &size, NULL) != OK)
            fuzz_wrong("no good store");
    }
    fuzz_put(name, bytes, size);
    for (int i = 0; i < 2; i++) {
        char beside[64];
        snprintf(beside, sizeof beside, "%s%s", name, i ? "-shm" : "-wal");
        unlink(fuzz_path(beside));
    }
}

static void read_profiles(struct store *store)
{
    struct profile_info *infos = NULL;
    struct err err = {0};
    int count = 0;
    if (!fuzz_judge(store_list_profiles(store, NULL, &infos, &count, &err), &err))
        return;
    for (int i = 0; i < count && i < 2; i++) {
        struct profile profile = {0};
        struct err second = {0};
        fuzz_judge(store_get_profile(store, infos[i].name, &profile, &second), &second);
        profile_clear(&profile);
    }
    free(infos);
}

static void read_calibrations(struct store *store)
{
    char(*names)[CALIBRATION_NAME_MAX] = NULL;
    struct err err = {0};
    int count = 0;
    if (!fuzz_judge(store_list_calibrations(store, &names, &count, &err), &err))
        return;
    for (int i = 0; i < count && i < 2; i++) {
        struct calibration calibration;
        struct err second = {0};
        fuzz_judge(store_get_calibration(store, names[i], &calibration, &second), &second);
    }
    free(names);
}

static void read_runs(struct store *store)
{
    struct run_info *infos = NULL;
    struct run_rows rows = {0};
    struct err listed = {0}, err = {0};
    int count = 0;
    if (fuzz_judge(record_list(store, &infos, &count, &listed), &listed))
        free(infos);
    if (fuzz_judge(run_rows_read(store, 0, &rows, &err), &err))
        fuzz_judge(run_rows_read_ops(store, &rows, &err), &err);
    run_rows_clear(&rows);
}

/* Read all of store.db, and write into it. */
static void use_store(void)
{
    struct profile profile = {
        .info = {.name = "q", .source = "measured", .device_kind = "cpu"}
    };
    struct store *store = NULL;
    struct err err = {0}, second = {0}, third = {0};
    if (fuzz_judge(store_open(fuzz_path("store.db"), STORE_READ, &store, &err), &err)) {
        read_profiles(store);
        read_calibrations(store);
        read_runs(store);
    }
    store_close(store);
    store = NULL;
    if (fuzz_judge(store_open(fuzz_path("store.db"), STORE_WRITE, &store, &second), &second))
        fuzz_judge(store_put_profile(store, &profile, PROFILE_MERGE, &third), &third);
    store_close(store);
}

/* A whole file, or changes to a good store: three bytes of a place, and the byte that goes there. */
void fuzz_store(const uint8_t *data, size_t size)
{
    good_store("store.db");
    if (size >= 6 && memcmp(data, "SQLite", 6) == 0) {
        fuzz_put("store.db", data, size);
    } else {
        FILE *file = fopen(fuzz_path("store.db"), "r+b");
        for (; file && size >= 4; data += 4, size -= 4) {
            const long place = data[0] | data[1] << 8 | (data[2] & 1) << 16;
            fseek(file, place, SEEK_SET);
            fputc(data[3], file);
        }
        if (!file || fclose(file) != 0)
            fuzz_wrong("no store");
    }
    use_store();
}

static int too_long(void *ctx)
{
    return ++*(int *)ctx > 20;
}

/* Statements may change only this store, and no setting of the whole program. */
static int allowed(void *ctx, int action, const char *first, const char *second, const char *db,
                   const char *trigger)
{
    static const char *const pragmas[] = {"writable_schema", "user_version", "application_id",
                                          "journal_mode",    "foreign_keys", "page_size",
                                          "auto_vacuum",     "encoding"};
    (void)ctx, (void)second, (void)db, (void)trigger;
    if (action == SQLITE_ATTACH || action == SQLITE_DETACH)
        return SQLITE_DENY;
    if (action != SQLITE_PRAGMA)
        return SQLITE_OK;
    for (size_t i = 0; i < sizeof pragmas / sizeof *pragmas; i++)
        if (sqlite3_stricmp(first, pragmas[i]) == 0)
            return SQLITE_OK;
    return SQLITE_DENY;
}

/* SQL statements change a good store: another schema, other types, values that no writer makes. */
void fuzz_store_sql(const uint8_t *data, size_t size)
{
    char *sql = fuzz_text(data, size), *save = NULL;
    sqlite3 *db = NULL;
    int looks = 0;
    good_store("store.db");
    if (sqlite3_open(fuzz_path("store.db"), &db) != SQLITE_OK)
        fuzz_wrong("no store");
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 1 << 20);
    sqlite3_exec(db, "PRAGMA max_page_count = 300", NULL, NULL, NULL);
    sqlite3_progress_handler(db, 10000, too_long, &looks);
    sqlite3_set_authorizer(db, allowed, NULL);
    for (char *line = strtok_r(sql, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        sqlite3_exec(db, line, NULL, NULL, NULL);
    sqlite3_close(db);
    free(sql);
    use_store();
}

/* --- a run's folder ------------------------------------------------------------------------------ */

/* summary.json, metrics.jsonl and run.json beside a good record. */
void fuzz_run(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"run/summary.json", "run/metrics.jsonl", "run/run.json"};
    struct replay replay = {0};
    struct run_rows rows = {0};
    struct err err = {0}, second = {0};
    char id[RUN_ID_SIZE];
    mkdir(fuzz_path("run"), 0700);
    for (int i = 0; i < 3; i++) {
        size_t length;
        const uint8_t *part = fuzz_part(data, size, i, &length);
        fuzz_put(names[i], part, length);
    }
    good_store("run/run.db");
    if (fuzz_judge(replay_read(fuzz_path("run"), &replay, &err), &err))
        replay_clear(&replay);
    if (run_rows_merge_metrics(fuzz_path("run/metrics.jsonl"), &rows, NULL) != OK)
        fuzz_wrong("no memory");
    run_rows_clear(&rows);
    json_free(run_files_summary(fuzz_path("run"), 1));
    fuzz_judge(run_id_read(fuzz_path("run"), id, &second), &second);
}

/* --- checkpoints --------------------------------------------------------------------------------- */

/* The manifest with its digest at the end, as checkpoint_files.h describes it. */
static void put_sealed(const char *name, const uint8_t *data, size_t size)
{
    unsigned char digest[SHA256_BYTES];
    char *text = malloc(size + 100);
    if (!text || sha256_digest(data, size, digest, NULL) != OK)
        fuzz_wrong("no memory");
    memcpy(text, data, size - 2);
    size_t length = size - 2 + (size_t)sprintf(text + size - 2, ",\"sha256\":\"");
    sha256_hex(digest, text + length);
    length += SHA256_HEX - 1;
    length += (size_t)sprintf(text + length, "\"}\n");
    fuzz_put(name, text, length);
    free(text);
}

static void use_checkpoint(const char *dir, const struct job *job)
{
    struct progress progress;
    double sumsq[2], rate, steps;
    struct turn_norms norms = {.sumsq = sumsq};
    struct freeze_history history = {0};
    struct checkpoint_choice choice = {0};
    struct json *answer = json_object_new(), *recorded = NULL;
    struct err errs[6] = {0};
    fuzz_judge(checkpoint_peek(dir, job, true, &progress, &errs[0]), &errs[0]);
    if (fuzz_judge(checkpoint_norms(dir, 2, &norms, &errs[1]), &errs[1]))
        free(norms.rows);
    if (fuzz_judge(checkpoint_evidence(dir, &job->model, &history, &rate, &steps, &errs[2]),
                   &errs[2]))
        freeze_history_clear(&history);
    fuzz_judge(checkpoint_verify(dir, answer, &errs[3]), &errs[3]);
    if (fuzz_judge(checkpoint_choose(NULL, dir, &choice, &errs[4]), &errs[4]))
        free(choice.dir);
    if (fuzz_judge(checkpoint_job(dir, &recorded, &errs[5]), &errs[5]))
        json_free(recorded);
    json_free(answer);
}

/* The manifest of step 7, as it is, and with the digest that fits. */
void fuzz_manifest(const uint8_t *data, size_t size)
{
    static struct job job;
    static const char empty[] = "\2\0\0\0\0\0\0\0{}";
    struct err err = {0};
    if (job.model.num_items == 0) {
        mkdir(fuzz_path("checkpoint-7"), 0700);
        fuzz_put("checkpoint-7/stage-00000.safetensors", empty, sizeof empty - 1);
        fuzz_put("job.json", small_job, strlen(small_job));
        must(job_load(fuzz_path("job.json"), NULL, 0, &job, &err), &err);
    }
    fuzz_put("checkpoint-7/manifest.json", data, size);
    use_checkpoint(fuzz_path("checkpoint-7"), &job);
    if (size > 2 && memcmp(data + size - 2, "}\n", 2) == 0) {
        put_sealed("checkpoint-7/manifest.json", data, size);
        use_checkpoint(fuzz_path("checkpoint-7"), &job);
    }
}

void fuzz_safetensors(const uint8_t *data, size_t size)
{
    struct safetensors *file = NULL;
    struct weights *weights = NULL;
    struct model model = {0};
    struct err err = {0}, checked = {0};
    fuzz_put("weights.safetensors", data, size);
    if (!fuzz_judge(safetensors_open(fuzz_path("weights.safetensors"), &file, &err), &err))
        return;
    for (int i = 0; i < safetensors_count(file); i++) {
        struct tensor_info info;
        struct err read = {0};
        const char *name = safetensors_name(file, i);
        if (!safetensors_find(file, name, &info))
            continue;
        float *values = malloc(info.num_elems ? (size_t)info.num_elems * sizeof *values : 1);
        if (values)
            fuzz_judge(safetensors_read(file, name, &info, values, &read), &read);
        free(values);
    }
    if (model_parse("gpt2:layers=1,hidden=2,heads=1,seq=2,vocab=2", &model, NULL) != OK)
        fuzz_wrong("no model");
    err = (struct err){0};
    if (fuzz_judge(weights_open(fuzz_path("weights.safetensors"), &weights, &err), &err))
        fuzz_judge(hf_check(weights, "weights", &model, true, NULL, &checked), &checked);
    model_clear(&model);
    weights_close(weights);
    safetensors_close(file);
}
