/* JSON text, and what is read from it: jobs, models, clusters, plans, arrays, evidence. */
#include <stdlib.h>
#include <string.h>

#include "profiles/job/evidence_json.h"
#include "profiles/job/job_json.h"
#include "profiles/job/plan_json.h"
#include "tests/fuzz/fuzz.h"

static char *printed(const struct json *json)
{
    char *text = NULL;
    if (json_text(json, false, &text, NULL) != OK)
        fuzz_wrong("a value cannot be written");
    return text;
}

/* Printed JSON is parsed, and printed alike. */
void fuzz_json(const uint8_t *data, size_t size)
{
    struct err err = {0};
    char *text = fuzz_text(data, size);
    struct json *json = NULL, *again = NULL;
    if (fuzz_judge(json_parse(text, "input", &json, &err), &err)) {
        char *once = printed(json), *twice;
        if (json_parse(once, "printed", &again, NULL) != OK)
            fuzz_wrong("what was printed is not JSON");
        twice = printed(again);
        if (strcmp(once, twice) != 0)
            fuzz_wrong("printed twice, and not alike");
        free(once);
        free(twice);
    }
    json_free(json);
    json_free(again);
    free(text);
}

/* A job file, and behind it a line for each override. */
void fuzz_job(const uint8_t *data, size_t size)
{
    enum { MAX_OVERRIDES = 8 };
    struct job job = {0}, again = {0};
    struct err err = {0}, second = {0};
    const char *overrides[MAX_OVERRIDES];
    char *save = NULL;
    size_t length, rest;
    int num = 0;
    const uint8_t *file = fuzz_part(data, size, 0, &length),
                  *lines = fuzz_part(data, size, 1, &rest);
    char *text = fuzz_text(lines, rest);
    for (char *line = strtok_r(text, "\n", &save); line && num < MAX_OVERRIDES;
         line = strtok_r(NULL, "\n", &save))
        overrides[num++] = line;
    fuzz_put("job.json", file, length);
    if (fuzz_judge(job_load(fuzz_path("job.json"), overrides, num, &job, &err), &err)) {
        fuzz_put("again.json", job.json, strlen(job.json));
        if (!fuzz_judge(job_load(fuzz_path("again.json"), NULL, 0, &again, &second), &second))
            fuzz_wrong(second.msg);
        if (strcmp(job.json, again.json) != 0)
            fuzz_wrong("the resolved job, loaded again, is another one");
    }
    job_clear(&job);
    job_clear(&again);
    free(text);
}

void fuzz_model(const uint8_t *data, size_t size)
{
    struct model model = {0};
    struct err err = {0}, second = {0};
    char *text = fuzz_text(data, size);
    fuzz_put("model.json", data, size);
    if (fuzz_judge(model_load(fuzz_path("model.json"), &model, &err), &err))
        model_clear(&model);
    if (fuzz_judge(model_parse(text, &model, &second), &second))
        model_clear(&model);
    free(text);
}

void fuzz_cluster(const uint8_t *data, size_t size)
{
    struct cluster cluster = {0};
    struct err err = {0}, second = {0};
    char *text = fuzz_text(data, size);
    fuzz_put("cluster.json", data, size);
    if (fuzz_judge(cluster_load(fuzz_path("cluster.json"), &cluster, &err), &err))
        cluster_clear(&cluster);
    if (fuzz_judge(cluster_parse(text, &cluster, &second), &second))
        cluster_clear(&cluster);
    free(text);
}

/* A plan file of a job with a small model and four devices. */
void fuzz_plan(const uint8_t *data, size_t size)
{
    static struct job job;
    struct plan plan = {0}, again = {0};
    struct err err = {0}, second = {0};
    static const char text[] =
        "{\"name\": \"small\", \"train\": {\"batch\": {\"global\": 8}},"
        " \"cluster\": {\"nodes\": 2, \"devices_per_node\": 2, \"kind\": \"a100\"},"
        " \"model\": \"gpt2:layers=4,hidden=8,heads=2,seq=4,vocab=16\"}";
    if (job.model.num_items == 0) {
        fuzz_put("job.json", text, strlen(text));
        if (!fuzz_judge(job_load(fuzz_path("job.json"), NULL, 0, &job, &err), &err))
            fuzz_wrong(err.msg);
    }
    fuzz_put("plan.json", data, size);
    if (fuzz_judge(plan_json_load(fuzz_path("plan.json"), &job, &job.cluster, &plan, &err), &err)) {
        struct json *root = json_object_new();
        plan_json_add(root, &plan);
        if (!fuzz_judge(plan_json_read(root, "again", &job.model, &job.cluster, &again, &second),
                        &second))
            fuzz_wrong(second.msg);
        json_free(root);
    }
    plan_clear(&plan);
    plan_clear(&again);
}

void fuzz_arrays(const uint8_t *data, size_t size)
{
    const struct fields_source source = {.file = "input", .prefix = "array"};
    const struct count_limits limits = {0, 12, "layers"};
    struct err errs[2] = {0};
    char *text = fuzz_text(data, size);
    struct json *json = NULL;
    double *norms = NULL;
    int epochs = 0, num = 0, *counts = NULL;
    if (json_parse(text, "input", &json, NULL) == OK) {
        fuzz_judge(norms_from_json(json, &source, 3, &norms, &epochs, &errs[0]), &errs[0]);
        fuzz_judge(counts_from_json(json, &source, &limits, &counts, &num, &errs[1]), &errs[1]);
    }
    json_free(json);
    free(norms);
    free(counts);
    free(text);
}

/* Evidence of a model with three layers. */
void fuzz_evidence(const uint8_t *data, size_t size)
{
    struct err err = {0}, second = {0};
    struct model model = {0};
    struct freeze_history history = {0}, again = {0};
    struct json *json = NULL;
    char *text = fuzz_text(data, size);
    if (model_parse("vit-tiny:layers=3,hidden=8,heads=2,mlp=8,image=8,patch=4,classes=2", &model,
                    NULL) != OK)
        fuzz_wrong("no model");
    if (json_parse(text, "input", &json, NULL) == OK &&
        fuzz_judge(evidence_from_json(json, "input", &model, &history, &err), &err)) {
        struct json *root = json_object_new();
        evidence_to_json(root, &model, &history);
        if (!fuzz_judge(evidence_from_json(root, "again", &model, &again, &second), &second))
            fuzz_wrong(second.msg);
        json_free(root);
    }
    freeze_history_clear(&history);
    freeze_history_clear(&again);
    model_clear(&model);
    json_free(json);
    free(text);
}
