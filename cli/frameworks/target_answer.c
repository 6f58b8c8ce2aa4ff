#include "cli/frameworks/target_answer.h"

#include <stdio.h>

#include "profiles/base/whole_file.h"

static enum status write_text(const char *text, const char *path, struct err *err)
{
    struct atomic_file file = {0};
    const enum status rc = output_open(&file, path, err);
    if (rc != OK)
        return rc;
    fputs(text, file.out);
    return atomic_close(&file, OK, err);
}

static void add_target(struct json *json, const struct job *job, const struct target_file *file)
{
    struct json *target = json_add_object(json, "for");
    json_add_string(target, "framework", job->pipeline.target->name);
    json_add_string(target, "version", job->pipeline.target->version);
    json_add_string(target, "text", file->text);
    if (file->csv)
        json_add_string(target, "csv", file->csv);
    json_add_copy(json, "not_expressible", file->missing);
}

enum status target_answer_make(const struct job *job, const struct plan *plan, const char *out_path,
                               struct json *json, struct target_answer *target, struct err *err)
{
    const struct target_file *file = &target->file;
    snprintf(target->csv, sizeof target->csv, "%s.csv", out_path ? out_path : "FILE");
    enum status rc = target_file_make(job, plan, target->csv, &target->file, err);
    if (rc == OK && json)
        add_target(json, job, file);
    if (rc == OK && out_path && file->csv)
        rc = write_text(file->csv, target->csv, err);
    if (rc == OK && out_path)
        rc = write_text(file->text, out_path, err);
    return rc;
}

void target_answer_print(const struct job *job, const struct target_answer *target,
                         const char *out_path)
{
    const bool both = out_path && target->file.csv;
    printf("\nfor %s %s%s%s%s%s\n", job->pipeline.target->name, job->pipeline.target->version,
           out_path ? ": " : "; -o FILE writes its configuration", out_path ? out_path : "",
           both ? " and " : "", both ? target->csv : "");
    for (struct json *m = json_first(target->file.missing); m; m = json_next(m))
        printf("not expressible there: %s\n", json_string(m));
}

void target_answer_clear(struct target_answer *target)
{
    target_file_clear(&target->file);
}
