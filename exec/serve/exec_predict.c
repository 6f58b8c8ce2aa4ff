/* exec/serve/exec_predict.c - classes of new samples. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "exec/serve/exec_serve.h"
#include "exec/commands/exec_begin.h"
#include "exec/serve/predict_request.h"
#include "profiles/json/fields.h"

static enum status run_predict(const struct exec_command *command, struct call *call,
                               struct err *err)
{
    struct option_list set = {0}, texts = {0}, pairs = {0};
    struct predict_request q = {
        .inputs = {.texts = &texts, .pairs = &pairs}
    };
    struct job_ask ask = {.set = &set, .evaluates = true};
    bool csv = false, json = false;
    int64_t threads = 0;
    const struct option table[] = {
        OPTION("text", LIST, &texts, "TEXT", "a text to classify (repeatable)"),
        OPTION("text-pair", LIST, &pairs, "TEXT", "the second text of each --text"),
        OPTION("top", INT, &q.top, "N", "print the N likeliest classes (default: all)", .min = 1,
               .max = INT32_MAX),
        OPTION("csv", FLAG, &csv, NULL, "print CSV with a header"),
        OPTION("json", FLAG, &json, NULL, "print JSON lines, an object a sample"),
        OPTION("o", STRING, &q.out, "FILE", "write there; .csv and .jsonl choose the form"),
        OPTION("job", STRING, &ask.path, "JOB", "the job of weights that no run recorded"),
        ADAPTER_OPTION(&ask.adapter),
        SET_OPTION(&set),
        DEVICE_OPTION(&ask.device),
        THREADS_OPTION(&threads),
        OPTION("db", STRING, &q.db, "FILE", "profile store to plan from"),
    };
    struct job job = {0};
    struct cores cores;
    struct checkpoint_choice weights = {0};
    struct command_line line = COMMAND_LINE(table, POSITIONAL_MAX);
    enum status rc = exec_parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    if (csv && json)
        return err_set(err, ERR_INPUT, "--csv and --json exclude each other");
    q.form = csv || (!json && path_ends(q.out, ".csv")) ? PREDICT_CSV
             : json || path_ends(q.out, ".jsonl")       ? PREDICT_JSON
                                                        : PREDICT_TEXT;
    q.inputs.paths = line.positional + 1;
    q.inputs.num_paths = line.num_positional - 1;
    if (call->words.check) {
        for (int i = 0; i < q.inputs.num_paths; i++)
            if (access(q.inputs.paths[i], R_OK) != 0)
                return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", q.inputs.paths[i],
                               strerror(errno));
        return exec_check(call, line.positional[0], q.db, &ask, false, err);
    }
    rc = exec_begin(call, line.positional[0], &ask, true, &weights, &job, err);
    THEN(exec_bind(call, (int)threads, &cores, err));
    q.weights = weights.dir;
    q.adapter = ask.adapter;
    THEN(predict_request_run(call->comm, &cores, &job, &q, err));
    job_clear(&job);
    checkpoint_choice_clear(&weights);
    return rc;
}

const struct exec_command exec_predict = {
    .name = "predict",
    .args = "CHECKPOINT [FILE|DIR ...] [--text TEXT] [options]",
    .summary = "Classify pictures, texts or table rows by a run; without any, its test samples.",
    .num_needed = 1,
    .ranks = true,
    .run = run_predict,
};
