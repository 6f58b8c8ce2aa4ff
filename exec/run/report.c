#include "exec/run/report.h"

#include <string.h>

#include "partition/base/safe_text.h"
#include "partition/base/units.h"

static double number(const struct json *json, const char *key)
{
    const struct json *value = json_get(json, key);
    return value ? json_number(value) : 0;
}

static const char *text_of(const struct json *json, const char *path)
{
    const struct json *value = json_path(json, path);
    return value && json_string(value) ? json_string(value) : "";
}

void report_scores(const struct json *summary, FILE *out)
{
    if (json_type(json_get(summary, "perplexity")) == JSON_NUMBER)
        fprintf(out, "perplexity %.2f\n", number(summary, "perplexity"));
    if (json_type(json_get(summary, "exact_match")) == JSON_NUMBER)
        fprintf(out, "answers    %.2f %% exact match, F1 %.2f %%\n",
                100 * number(summary, "exact_match"), 100 * number(summary, "f1"));
}

void report_train(const struct json *summary, FILE *out)
{
    char train[32], wall[32], lost[32], redo[32];
    fprintf(out, "model      %s, %.0f rank%s, %.0f thread%s each\n", text_of(summary, "model"),
            number(summary, "ranks"), number(summary, "ranks") == 1 ? "" : "s",
            number(summary, "threads_per_rank"),
            number(summary, "threads_per_rank") == 1 ? "" : "s");
    const struct json *plan = json_get(summary, "plan");
    fprintf(out, "plan       K=%.0f R=%.0f M=%.0f x %.0f samples, %s, cut",
            number(plan, "pipeline_length"), number(plan, "replicas"), number(plan, "microbatches"),
            number(plan, "microbatch_size"), text_of(plan, "schedule"));
    const struct json *cut = json_get(plan, "cut");
    for (int i = 0; i < json_count(cut); i++)
        fprintf(out, "%c%.0f", i ? ',' : ' ', json_number(json_at(cut, i)));
    fprintf(out, "\nsteps      %.0f of %.0f", number(summary, "steps"),
            number(summary, "total_steps"));
    if (number(summary, "total_epochs") > 0) /* an older summary has none */
        fprintf(out, ", %.0f of %.0f epochs", number(summary, "epochs"),
                number(summary, "total_epochs"));
    fprintf(out, "%s\n", json_true(json_get(summary, "interrupted")) ? " (interrupted)" : "");
    if (json_type(json_get(summary, "initial_loss")) == JSON_NUMBER) /* none without a step */
        fprintf(out, "loss       %.4f -> %.4f\n", number(summary, "initial_loss"),
                number(summary, "final_loss"));
    if (json_type(json_get(summary, "eval_accuracy")) == JSON_NUMBER)
        fprintf(out, "accuracy   %.2f %% -> %.2f %% (%.0f test samples)\n",
                100 * number(summary, "initial_accuracy"), 100 * number(summary, "eval_accuracy"),
                number(summary, "test_samples"));
    report_scores(summary, out);
    fprintf(out, "time       %s training, %s in all\n",
            format_ns((int64_t)number(summary, "train_ns"), train, sizeof train),
            format_ns((int64_t)number(summary, "wall_ns"), wall, sizeof wall));
    const struct json *changes = json_get(summary, "transitions");
    for (int i = 0; i < json_count(changes); i++) {
        const struct json *one = json_at(changes, i);
        char total[32];
        fprintf(out, "change     before epoch %.0f: F=%.0f K=%.0f R=%.0f in %s\n",
                number(one, "epoch"), number(one, "frozen_layers"), number(one, "pipeline_length"),
                number(one, "replicas"),
                format_ns((int64_t)number(one, "total_ns"), total, sizeof total));
    }
    const struct json *restarts = json_get(summary, "restarts");
    if (number(restarts, "count") > 0)
        fprintf(out, "restarts   %.0f: lost %s, and %s for %s to do again\n",
                number(restarts, "count"),
                format_ns((int64_t)number(restarts, "lost_ns"), lost, sizeof lost),
                format_ns((int64_t)number(restarts, "redo_ns"), redo, sizeof redo),
                COUNT_TEXT((int64_t)number(restarts, "lost_steps"), "step"));
    if (json_type(json_get(summary, "freeze_cost")) == JSON_NUMBER)
        fprintf(out, "freezing   cost an estimated %.2f %s (80 %%: %.2f to %.2f)\n",
                number(summary, "freeze_cost"), text_of(summary, "freeze_cost_unit"),
                number(summary, "freeze_cost_low"), number(summary, "freeze_cost_high"));
    fprintf(out, "weights    sha256 %s\nwrote      %s\n", text_of(summary, "weights_sha256"),
            text_of(summary, "out"));
}

void report_notes(const struct json *summary, bool timing, FILE *out)
{
    if (json_true(json_get(summary, "already_finished")))
        fprintf(out,
                "note: the run is finished after %.0f steps, so nothing was trained; a larger "
                "train.epochs or train.max_steps with --override continues it\n",
                number(summary, "steps"));
    if (number(summary, "epochs") >= number(summary, "total_epochs") &&
        number(summary, "steps") < number(summary, "max_steps"))
        fprintf(
            out,
            "note: train.max_steps is %.0f, but train.epochs=%.0f ends the run after %.0f steps; "
            "raise train.epochs to train longer\n",
            number(summary, "max_steps"), number(summary, "total_epochs"),
            number(summary, "steps"));
    if (text_of(summary, "cost_note")[0] && !timing)
        fprintf(out, "note: %s\n", text_of(summary, "cost_note"));
    if (json_true(json_get(summary, "cache_lacks")) && !timing)
        fprintf(out, "note: %s\n", text_of(summary, "cache_note"));
    if (number(summary, "cache_corrupt") > 0)
        fprintf(out, "note: cache: %.0f damaged samples were computed again\n",
                number(summary, "cache_corrupt"));
    const struct json *plan = json_get(summary, "plan");
    const double idle =
        number(summary, "ranks") - number(plan, "pipeline_length") * number(plan, "replicas");
    if (idle > 0 && !timing)
        fprintf(out, "note: plan: %.0f of %.0f ranks are left without work\n", idle,
                number(summary, "ranks"));
    if (text_of(summary, "record_note")[0])
        fprintf(out, "note: record: %s\n", text_of(summary, "record_note"));
    if (text_of(summary, "held_note")[0])
        fprintf(out, "note: freeze: %s\n", text_of(summary, "held_note"));
    if (text_of(summary, "limit_note")[0])
        fprintf(out, "note: replicas: %s\n", text_of(summary, "limit_note"));
    if (strcmp(text_of(summary, "probe_source"), "test") == 0)
        fprintf(out,
                "note: freeze: decided on %.0f of the test samples (data.valid test), so the "
                "accuracy is not one on unseen samples\n",
                number(summary, "probe_samples"));
    if (text_of(summary, "init_note")[0])
        fprintf(out, "note: --init: %s\n", text_of(summary, "init_note"));
}

void report_verdicts(const struct json *answer, const char *dir, FILE *out)
{
    const struct json *files = json_get(answer, "files");
    for (const struct json *file = json_first(files); file; file = json_next(file))
        if (!json_true(json_get(file, "ok")))
            fprintf(out, "%s\n", json_string(json_get(file, "reason")));
    if (json_true(json_get(answer, "ok")))
        fprintf(out, "'%s' is whole: %s, step %.0f\n", dir, COUNT_TEXT(json_count(files), "file"),
                number(answer, "step"));
}

void report_start(const char *note, const char *model_note, const char *differences, FILE *out)
{
    if (*note)
        fprintf(out, "note: %s\n", note);
    if (*model_note)
        fprintf(out, "note: %s\n", model_note);
    for (const char *line = differences; line && *line; line = strchr(line, '\n') + 1)
        fprintf(out, "note: job: %.*s\n", (int)strcspn(line, "\n"), line);
}

void report_stop(const struct json *summary, int num_ranks, FILE *out)
{
    fprintf(out, "elapse: stopped by a signal: %.0f of %.0f steps are done and saved\n",
            number(summary, "steps"), number(summary, "total_steps"));
    fprintf(out, "hint: continue with: elapse train --resume %s -n %d\n",
            SHELL_PATH(text_of(summary, "out")), num_ranks);
}
