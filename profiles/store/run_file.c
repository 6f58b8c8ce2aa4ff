/* Runs of other programs. The whole file is read before the first row is written. */
#include "profiles/store/run_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/json/fields.h"
#include "profiles/store/record.h"

/* clang-format off */
static const struct member run_fields[] = {
    MEMBER(run_info, "name", TEXT, name, "the run's name"),
    MEMBER(run_info, "host", TEXT, host, "the machine"),
    MEMBER(run_info, "started_at", TEXT, started_at, "UTC"),
    MEMBER(run_info, "cost_source", TEXT, cost_source, "of its plan"),
    MEMBER(run_info, "devices", INT, num_devices, "ranks", .min = 1, .max = INT32_MAX),
    MEMBER_OWN("job", "the resolved job"),
    MEMBER_OWN("steps", "steps in order"),
    MEMBER_OWN("ops", "ops of some steps"),
};
static const struct member step_fields[] = {
    MEMBER(step_row, "step", INT, step, "number", .max = INT32_MAX),
    MEMBER(step_row, "epoch", INT, epoch, "number", .max = INT32_MAX),
    MEMBER(step_row, "start_ns", NS, start_ns, "since the run's begin"),
    MEMBER(step_row, "step_ns", NS, step_ns, "how long it took"),
    MEMBER(step_row, "loss", REAL, loss, "mean over the samples", .min = -INFINITY),
    MEMBER(step_row, "lr", REAL, lr, "learning rate", .min = -INFINITY),
    MEMBER(step_row, "samples_per_s", REAL, samples_per_s, "all pipelines", .min = -INFINITY),
    MEMBER(step_row, "frozen_layers", INT, frozen_layers, "F", .max = INT32_MAX),
    MEMBER(step_row, "pipeline_length", INT, pipeline_length, "K", .min = 1, .max = INT32_MAX),
    MEMBER(step_row, "replicas", INT, replicas, "R", .min = 1, .max = INT32_MAX),
};
struct op_cells {
    int64_t step, replica, rank, start_ns, end_ns;
    int kind, stage, microbatch;
};
static const struct member op_fields[] = {
    MEMBER(op_cells, "step", INT, step, "number", .max = INT32_MAX),
    MEMBER(op_cells, "replica", INT, replica, "of the pipeline", .max = INT32_MAX),
    MEMBER(op_cells, "rank", INT, rank, "in the pipeline", .max = INT32_MAX),
    MEMBER(op_cells, "start_ns", NS, start_ns, "since the step's begin"),
    MEMBER(op_cells, "end_ns", NS, end_ns, "since the step's begin"),
    MEMBER(op_cells, "op", NAME, kind, "F, B, I, W, ...", .names = op_kind_names),
    MEMBER(op_cells, "stage", INT, stage, "number", .max = UINT16_MAX),
    MEMBER(op_cells, "microbatch", INT, microbatch, "-1: the whole batch", .min = OP_WHOLE_BATCH, .max = INT32_MAX),
};
/* clang-format on */
enum {
    NUM_RUN_FIELDS = sizeof run_fields / sizeof *run_fields,
    NUM_STEP_FIELDS = sizeof step_fields / sizeof *step_fields,
    NUM_OP_FIELDS = sizeof op_fields / sizeof *op_fields
};

struct run_file {
    struct run_info info;
    struct step_row *steps;
    struct op_row *ops;
    int64_t num_steps, num_ops, total_ns;
};

static void run_file_clear(struct run_file *run)
{
    free(run->info.job_json);
    free(run->steps);
    free(run->ops);
    *run = (struct run_file){0};
}

/* The rows of an array; 0 if it is absent. */
static enum status count_rows(const struct json *root, const char *key, const char *file,
                              int64_t *count, struct err *err)
{
    const struct json *list = json_get(root, key);
    const struct fields_source source = {.file = file, .prefix = ""};
    *count = list ? json_count(list) : 0;
    return !list || json_type(list) == JSON_ARRAY
               ? OK
               : fields_refuse(&source, key, "an array of objects", list, err);
}

static enum status read_steps(const struct json *list, const char *file, struct run_file *run,
                              struct err *err)
{
    int64_t i = 0, end = 0;
    for (const struct json *m = json_first(list); m; m = json_next(m), i++) {
        char at[48];
        snprintf(at, sizeof at, "steps[%lld]", (long long)i);
        const struct fields_source source = {.file = file, .prefix = at};
        struct step_row *row = &run->steps[i];
        *row = (struct step_row){.step = i,
                                 .start_ns = end,
                                 .step_ns = -1,
                                 .loss = NAN,
                                 .lr = NAN,
                                 .grad_norm = NAN,
                                 .samples_per_s = NAN,
                                 .pipeline_length = 1,
                                 .replicas = 1};
        enum status rc = fields_read(step_fields, NUM_STEP_FIELDS, m, &source, row, err);
        if (rc == OK && row->step_ns < 0)
            rc = err_set(err, ERR_INPUT, "%s: %s.step_ns is missing", file, at);
        if (rc == OK && row->start_ns > INT64_MAX - row->step_ns)
            rc = err_set(err, ERR_INPUT, "%s: %s ends after 2^63 ns", file, at);
        if (rc != OK)
            return rc;
        end = row->start_ns + row->step_ns;
    }
    run->total_ns = end;
    return OK;
}

static enum status read_ops(const struct json *list, const char *file, struct run_file *run,
                            struct err *err)
{
    int64_t i = 0;
    for (const struct json *m = json_first(list); m; m = json_next(m), i++) {
        char at[48];
        snprintf(at, sizeof at, "ops[%lld]", (long long)i);
        const struct fields_source source = {.file = file, .prefix = at};
        struct op_cells cells = {0};
        enum status rc = fields_read(op_fields, NUM_OP_FIELDS, m, &source, &cells, err);
        if (rc == OK && cells.end_ns < cells.start_ns)
            rc = err_set(err, ERR_INPUT, "%s: %s ends before it starts", file, at);
        if (rc != OK)
            return rc;
        run->ops[i] = (struct op_row){
            cells.step,
            cells.replica,
            cells.rank,
            cells.start_ns,
            cells.end_ns,
            {.microbatch = cells.microbatch,
                     .stage = (uint16_t)cells.stage,
                     .kind = (uint8_t)cells.kind}
        };
    }
    return OK;
}

static enum status run_file_read(const struct json *root, const char *file, struct run_file *run,
                                 struct err *err)
{
    const struct fields_source source = {.file = file, .prefix = ""};
    run->info = (struct run_info){.num_devices = 1};
    enum status rc = fields_read(run_fields, NUM_RUN_FIELDS, root, &source, &run->info, err);
    THEN(count_rows(root, "steps", file, &run->num_steps, err));
    if (rc == OK && run->num_steps == 0)
        rc = err_set(err, ERR_INPUT, "%s: steps must have one at least", file);
    THEN(count_rows(root, "ops", file, &run->num_ops, err));
    if (rc == OK && json_get(root, "job"))
        rc = json_text(json_get(root, "job"), false, &run->info.job_json, err);
    if (rc != OK)
        return rc;
    run->steps = calloc((size_t)run->num_steps, sizeof *run->steps);
    run->ops = calloc((size_t)run->num_ops + 1, sizeof *run->ops);
    rc = run->steps && run->ops ? OK : err_nomem(err);
    THEN(read_steps(json_get(root, "steps"), file, run, err));
    return rc == OK ? read_ops(json_get(root, "ops"), file, run, err) : rc;
}

enum status run_file_check(const struct json *root, const char *file, struct err *err)
{
    struct run_file run = {0};
    const enum status rc = run_file_read(root, file, &run, err);
    run_file_clear(&run);
    return rc;
}

enum status run_file_import(const struct json *root, const char *file, struct store *store,
                            int64_t *run_id, int64_t *num_steps, struct err *err)
{
    struct run_file run = {0};
    enum status rc = run_file_read(root, file, &run, err);
    THEN(record_start(store, &run.info, run_id, err));
    THEN(record_steps(store, *run_id, run.steps, run.num_steps, err));
    if (rc == OK && run.num_ops > 0)
        rc = record_ops(store, *run_id, run.ops, run.num_ops, err);
    THEN(record_finish(store, *run_id, run.total_ns, err));
    *num_steps = run.num_steps;
    run_file_clear(&run);
    return rc;
}
