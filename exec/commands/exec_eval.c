/* exec/commands/exec_eval.c - the accuracy and loss of a checkpoint. */
#include <stdio.h>

#include "exec/commands/exec_begin.h"
#include "exec/commands/exec_command.h"
#include "exec/run/report.h"
#include "exec/run/trainer_run.h"

static double number(const struct json *json, const char *key)
{
    const struct json *value = json_get(json, key);
    return value ? json_number(value) : 0;
}

static enum status run_eval(const struct exec_command *command, struct call *call, struct err *err)
{
    struct option_list set = {0};
    int64_t threads = 0;
    bool json = false;
    const char *db = NULL;
    struct job_ask ask = {.set = &set, .evaluates = true};
    const struct option table[] = {
        ADAPTER_OPTION(&ask.adapter),
        SET_OPTION(&set),
        DEVICE_OPTION(&ask.device),
        THREADS_OPTION(&threads),
        OPTION("db", STRING, &db, "FILE", "profile store to plan from"),
        OPTION_JSON(&json),
    };
    struct job job = {0};
    struct cores cores;
    struct json *summary = NULL;
    struct checkpoint_choice weights = {0};
    struct command_line line = COMMAND_LINE(table, 2);
    enum status rc = exec_parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    ask.path = line.positional[1];
    if (call->words.check)
        return exec_check(call, line.positional[0], db, &ask, false, err);
    rc = exec_begin(call, line.positional[0], &ask, true, &weights, &job, err);
    THEN(exec_bind(call, (int)threads, &cores, err));
    const struct trainer_options options = {.init = weights.dir, .adapter = ask.adapter, .db = db};
    THEN(trainer_eval(call->comm, &cores, &job, &options, &summary, err));
    if (rc == ERR_INPUT && ask.path && !weights.foreign && !err->hint[0])
        err_hint(err, "without JOB, the job that the run recorded is evaluated");
    if (rc == OK && call->comm->rank == 0) {
        const char *note = json_string(json_get(summary, "class_note"));
        if (note && *note)
            fprintf(stderr, "note: %s\n", note);
        if (json) {
            rc = exec_print(summary, err);
        } else {
            printf("accuracy %.2f %%, loss %.4f over %.0f test samples\n",
                   100 * number(summary, "eval_accuracy"), number(summary, "eval_loss"),
                   number(summary, "eval_samples"));
            report_scores(summary, stdout);
        }
    }
    json_free(summary);
    job_clear(&job);
    checkpoint_choice_clear(&weights);
    return rc;
}

const struct exec_command exec_eval = {
    .name = "eval",
    .args = "CHECKPOINT [JOB] [-n RANKS] [options]",
    .summary =
        "Evaluate a checkpoint (or safetensors file) on the test data of JOB (default: the run's "
        "own).",
    .num_needed = 1,
    .ranks = true,
    .run = run_eval,
};
