/* The arrays of a job: F per epoch, K per epoch, recorded gradient norms and evidence. */
#include "profiles/job/job_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/job/evidence_json.h"
#include "profiles/job/job_json.h"

/* The array of a key, which is inside the job file or in a file of its own. In the second case
 * *owned holds the parsed file, and the caller frees it. */
static enum status array_of(const struct json *value, const struct fields_source *source,
                            const struct json **array, struct json **owned, struct err *err)
{
    const char *file = json_string(value);
    *array = value;
    if (file) {
        char *path = path_join(source->dir, file);
        if (!path)
            return err_nomem(err);
        enum status rc = json_read_file(path, owned, err);
        free(path);
        if (rc != OK)
            return rc;
        *array = *owned;
    }
    if (json_type(*array) != JSON_ARRAY || json_count(*array) == 0)
        return fields_refuse(source, "", "an array that is not empty, or a file that holds one",
                             *array, err);
    return OK;
}

/* Refuse a value of an array, whose index is in `place`: "[3]". */
static enum status refuse_at(const struct fields_source *source, const char *place,
                             const char *limit, const struct json *value, struct err *err)
{
    char key[96];
    snprintf(key, sizeof key, "%s%s", source->prefix, place);
    const struct fields_source here = {.file = source->file, .prefix = key};
    return fields_refuse(&here, "", limit, value, err);
}

enum status counts_from_json(const struct json *array, const struct fields_source *source,
                             const struct count_limits *limits, int **counts, int *num,
                             struct err *err)
{
    if (json_type(array) != JSON_ARRAY)
        return fields_refuse(source, "", "an array", array, err);
    int n = 0, *got = calloc((size_t)json_count(array) + 1, sizeof *got);
    if (!got)
        return err_nomem(err);
    for (struct json *m = json_first(array); m; m = json_next(m), n++) {
        int64_t count;
        if (!json_int64(m, &count) || count < limits->low || count > limits->high) {
            char place[48], limit[48];
            snprintf(place, sizeof place, "[%d]", n);
            snprintf(limit, sizeof limit, "%d..%d (%s)", limits->low, limits->high, limits->unit);
            free(got);
            return refuse_at(source, place, limit, m, err);
        }
        got[n] = (int)count;
    }
    free(*counts);
    *counts = got;
    *num = n;
    return OK;
}

enum status norms_from_json(const struct json *array, const struct fields_source *source,
                            int num_layers, double **norms, int *num_epochs, struct err *err)
{
    char place[64];
    int epoch = 0;
    if (json_type(array) != JSON_ARRAY)
        return fields_refuse(source, "", "an array of epochs", array, err);
    /* Every epoch must have num_layers entries in the text, so the text bounds the memory. calloc
     * checks the product. */
    for (struct json *m = json_first(array); m; m = json_next(m), epoch++)
        if (json_type(m) != JSON_ARRAY || json_count(m) != num_layers) {
            char count[32] = "";
            if (json_type(m) == JSON_ARRAY)
                snprintf(count, sizeof count, " of %d", json_count(m));
            return err_set(err, ERR_INPUT,
                           "%s: %s[%d] must be an array of %d norms (layers), got %s%s",
                           source->file, source->prefix, epoch, num_layers,
                           json_type_name(json_type(m)), count);
        }
    double *got = calloc((size_t)epoch * (size_t)num_layers + 1, sizeof *got), *at = got;
    if (!got)
        return err_nomem(err);
    for (struct json *m = json_first(array); m; m = json_next(m))
        for (struct json *norm = json_first(m); norm; norm = json_next(norm), at++) {
            *at = json_number(norm);
            if (!(*at >= 0)) {
                snprintf(place, sizeof place, "[%d][%d]", (int)((at - got) / num_layers),
                         (int)((at - got) % num_layers));
                free(got);
                return refuse_at(source, place, "a number at least 0", norm, err);
            }
        }
    free(*norms);
    *norms = got;
    *num_epochs = epoch;
    return OK;
}

void norms_to_json(struct json *array, const double *norms, int64_t num_epochs, int num_layers)
{
    for (int64_t e = 0; e < num_epochs; e++) {
        struct json *epoch = json_add_array(array, NULL);
        for (int l = 0; l < num_layers; l++)
            json_add_double(epoch, NULL, norms[e * num_layers + l]);
    }
}

/* Read an array of whole numbers of the job and replace *counts by it. */
static enum status read_counts(const struct json *value, const struct fields_source *source,
                               const struct count_limits *limits, int **counts, int *num,
                               struct err *err)
{
    struct json *owned = NULL;
    const struct json *array;
    enum status rc = array_of(value, source, &array, &owned, err);
    THEN(counts_from_json(array, source, limits, counts, num, err));
    json_free(owned);
    return rc;
}

enum status job_read_table(const struct json *value, const struct fields_source *source,
                           struct job *job, struct err *err)
{
    const char *text = json_string(value);
    if (text && !strchr(text, '/') && !strchr(text, '.')) {
        struct freeze_spec named = {0};
        enum status rc =
            freeze_named_table(text, job->model.num_layers, job->train.epochs, &named, err);
        if (rc == OK) {
            free(job->freeze.table);
            job->freeze.table = named.table;
            job->freeze.num_table = named.num_table;
        }
        return rc;
    }
    const struct count_limits limits = {0, job->model.num_layers, "layers"};
    return read_counts(value, source, &limits, &job->freeze.table, &job->freeze.num_table, err);
}

enum status job_read_stages(const struct json *value, const struct fields_source *source,
                            struct job *job, struct err *err)
{
    const struct count_limits limits = {1, job->model.num_items, "items"};
    return read_counts(value, source, &limits, &job->elastic.stages, &job->elastic.num_stages, err);
}

enum status job_read_norms(const struct json *value, const struct fields_source *source,
                           struct job *job, struct err *err)
{
    struct json *owned = NULL;
    const struct json *array;
    enum status rc = array_of(value, source, &array, &owned, err);
    THEN(
        norms_from_json(array, source, job->model.num_layers, &job->norms, &job->norm_epochs, err));
    json_free(owned);
    return rc;
}

enum status job_read_evidence(const struct json *value, const struct fields_source *source,
                              struct job *job, struct err *err)
{
    const char *file = json_string(value);
    struct freeze_history got = {0};
    struct json *owned = NULL;
    char *path = NULL, where[512];
    enum status rc = OK;
    snprintf(where, sizeof where, "%s: %s", source->file, source->prefix);
    if (file) {
        path = path_join(source->dir, file);
        rc = path ? json_read_file(path, &owned, err) : err_nomem(err);
    }
    const struct json *root = file ? owned : value;
    if (rc == OK && json_type(root) != JSON_OBJECT)
        rc = fields_refuse(source, "", "evidence.json of a run, or its object", root, err);
    THEN(evidence_from_json(root, path ? path : where, &job->model, &got, err));
    if (rc == OK) {
        freeze_history_clear(&job->evidence);
        job->evidence = got;
    }
    json_free(owned);
    free(path);
    return rc;
}
