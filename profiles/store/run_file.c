/* Runs of other programs. The whole file is read before the first row is written. */
#include "profiles/store/run_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/json/fields.h"
#include "profiles/store/record.h"

/* clang-format off */
static const struct field run_fields[] = {
    {"name", FIELD_TEXT, offsetof(struct run_info, name), sizeof ((struct run_info *)0)->name, 0, 0, NULL, 0, "the run's name"},
    {"host", FIELD_TEXT, offsetof(struct run_info, host), sizeof ((struct run_info *)0)->host, 0, 0, NULL, 0, "the machine"},
    {"started_at", FIELD_TEXT, offsetof(struct run_info, started_at), sizeof ((struct run_info *)0)->started_at, 0, 0, NULL, 0, "UTC"},
    {"cost_source", FIELD_TEXT, offsetof(struct run_info, cost_source), sizeof ((struct run_info *)0)->cost_source, 0, 0, NULL, 0, "of its plan"},
    {"devices", FIELD_INT, offsetof(struct run_info, num_devices), sizeof(int64_t), 1, INT32_MAX, NULL, 0, "ranks"},
    {"job", FIELD_OTHER, 0, 0, 0, 0, NULL, 0, "the resolved job"},
    {"steps", FIELD_OTHER, 0, 0, 0, 0, NULL, 0, "steps in order"},
    {"ops", FIELD_OTHER, 0, 0, 0, 0, NULL, 0, "ops of some steps"},
};
static const struct field step_fields[] = {
    {"step", FIELD_INT, offsetof(struct step_row, step), sizeof(int64_t), 0, INT32_MAX, NULL, 0, "number"},
    {"epoch", FIELD_INT, offsetof(struct step_row, epoch), sizeof(int64_t), 0, INT32_MAX, NULL, 0, "number"},
    {"start_ns", FIELD_NS, offsetof(struct step_row, start_ns), sizeof(int64_t), 0, 0, NULL, 0, "since the run's begin"},
    {"step_ns", FIELD_NS, offsetof(struct step_row, step_ns), sizeof(int64_t), 0, 0, NULL, 0, "how long it took"},
    {"loss", FIELD_REAL, offsetof(struct step_row, loss), sizeof(double), 0, 0, NULL, 0, "mean over the samples"},
    {"lr", FIELD_REAL, offsetof(struct step_row, lr), sizeof(double), 0, 0, NULL, 0, "learning rate"},
    {"samples_per_s", FIELD_REAL, offsetof(struct step_row, samples_per_s), sizeof(double), 0, 0, NULL, 0, "all pipelines"},
    {"frozen_layers", FIELD_INT, offsetof(struct step_row, frozen_layers), sizeof(int64_t), 0, INT32_MAX, NULL, 0, "F"},
    {"pipeline_length", FIELD_INT, offsetof(struct step_row, pipeline_length), sizeof(int64_t), 1, INT32_MAX, NULL, 0, "K"},
    {"replicas", FIELD_INT, offsetof(struct step_row, replicas), sizeof(int64_t), 1, INT32_MAX, NULL, 0, "R"},
};
struct op_cells {
    int64_t step, replica, rank, start_ns, end_ns;
    int kind, stage, microbatch;
};
static const struct field op_fields[] = {
    {"step", FIELD_INT, offsetof(struct op_cells, step), sizeof(int64_t), 0, INT32_MAX, NULL, 0, "number"},
    {"replica", FIELD_INT, offsetof(struct op_cells, replica), sizeof(int64_t), 0, INT32_MAX, NULL, 0, "of the pipeline"},
    {"rank", FIELD_INT, offsetof(struct op_cells, rank), sizeof(int64_t), 0, INT32_MAX, NULL, 0, "in the pipeline"},
    {"start_ns", FIELD_NS, offsetof(struct op_cells, start_ns), sizeof(int64_t), 0, 0, NULL, 0, "since the step's begin"},
    {"end_ns", FIELD_NS, offsetof(struct op_cells, end_ns), sizeof(int64_t), 0, 0, NULL, 0, "since the step's begin"},
    {"op", FIELD_CHOICE, offsetof(struct op_cells, kind), sizeof(int), 0, 0, NULL, 0, "F, B, I, W, ..."},
    {"stage", FIELD_INT, offsetof(struct op_cells, stage), sizeof(int), 0, UINT16_MAX, NULL, 0, "number"},
    {"microbatch", FIELD_INT, offsetof(struct op_cells, microbatch), sizeof(int), OP_WHOLE_BATCH, INT32_MAX, NULL, 0, "-1: the whole batch"},
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
    const char *names[OP_KIND_COUNT + 1] = {0};
    struct field fields[NUM_OP_FIELDS];
    int64_t i = 0;
    for (int k = 0; k < OP_KIND_COUNT; k++)
        names[k] = op_kind_name((enum op_kind)k);
    memcpy(fields, op_fields, sizeof fields);
    for (int f = 0; f < NUM_OP_FIELDS; f++)
        if (fields[f].type == FIELD_CHOICE)
            fields[f].names = names;
    for (const struct json *m = json_first(list); m; m = json_next(m), i++) {
        char at[48];
        snprintf(at, sizeof at, "ops[%lld]", (long long)i);
        const struct fields_source source = {.file = file, .prefix = at};
        struct op_cells cells = {0};
        enum status rc = fields_read(fields, NUM_OP_FIELDS, m, &source, &cells, err);
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
