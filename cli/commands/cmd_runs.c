/* cli/commands/cmd_runs.c - `elapse runs`: run records, simulated and real. */
#include "cli/base/command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/runs/run_rows.h"
#include "partition/base/units.h"
#include "profiles/store/run_file.h"

static void add_run(struct json *entry, const struct run_info *info)
{
    json_add_int(entry, "run", info->id);
    json_add_string(entry, "kind", info->simulated ? "simulated" : "real");
    json_add_string(entry, "name", info->name);
    json_add_string(entry, "started_at", info->started_at);
    json_add_string(entry, "host", info->host);
    json_add_string(entry, "cost_source", info->cost_source);
    json_add_int(entry, "num_devices", info->num_devices);
    json_add_bool(entry, "finished", info->finished);
    json_add_int(entry, "total_ns", info->total_ns);
}

static enum status run_list(const struct command *command, struct store *store, bool as_json,
                            struct err *err)
{
    struct run_info *infos = NULL;
    int count = 0;
    enum status rc = record_list(store, &infos, &count, err);
    if (rc != OK)
        return rc;
    if (as_json) {
        struct json *answer = command_json(command);
        json_add_string(answer, "store", store_path(store));
        struct json *list = json_add_array(answer, "runs");
        for (int i = 0; i < count; i++)
            add_run(json_add_object(list, NULL), &infos[i]);
        rc = command_answer(answer, err);
    } else {
        printf("%5s  %-9s %-24s %-20s %12s  %s\n", "run", "kind", "name", "started at", "total",
               "costs");
        for (int i = 0; i < count; i++) {
            char total[32] = "unfinished";
            if (infos[i].finished)
                format_ns(infos[i].total_ns, total, sizeof total);
            printf("%5lld  %-9s %-24s %-20s %12s  %s\n", (long long)infos[i].id,
                   infos[i].simulated ? "simulated" : "real", infos[i].name, infos[i].started_at,
                   total, infos[i].cost_source);
        }
    }
    free(infos);
    return rc;
}

static struct json *show_json(const struct command *command, const struct run_rows *rows)
{
    struct json *answer = command_json(command);
    add_run(answer, &rows->info);
    json_add_parsed(answer, "job", rows->info.job_json);
    struct json *list = json_add_array(answer, "epochs");
    for (int64_t i = 0; i < rows->num_epochs; i++) {
        const struct epoch_row *row = &rows->epochs[i];
        struct json *entry = json_add_object(list, NULL);
        json_add_int(entry, "epoch", row->epoch);
        json_add_int(entry, "frozen_layers", row->frozen_layers);
        json_add_int(entry, "pipeline_length", row->pipeline_length);
        json_add_int(entry, "replicas", row->replicas);
        json_add_int(entry, "microbatches", row->microbatches);
        json_add_int(entry, "steps", row->steps);
        json_add_int(entry, "step_ns", row->step_ns);
        json_add_double(entry, "samples_per_s", row->samples_per_s);
        json_add_double(entry, "bubble_fraction", row->bubble_fraction);
        json_add_int(entry, "transition_ns", row->transition_ns);
        json_add_bool(entry, "cached", row->cached);
        json_add_double(entry, "train_loss", row->train_loss);
        json_add_double(entry, "eval_loss", row->eval_loss);
        json_add_double(entry, "eval_accuracy", row->eval_accuracy);
    }
    list = json_add_array(answer, "steps");
    for (int64_t i = 0; i < rows->num_steps; i++) {
        const struct step_row *row = &rows->steps[i];
        struct json *entry = json_add_object(list, NULL);
        json_add_int(entry, "step", row->step);
        json_add_int(entry, "epoch", row->epoch);
        json_add_int(entry, "start_ns", row->start_ns);
        json_add_int(entry, "step_ns", row->step_ns);
        json_add_double(entry, "loss", row->loss);
        json_add_double(entry, "lr", row->lr);
        json_add_double(entry, "grad_norm", row->grad_norm);
        json_add_double(entry, "samples_per_s", row->samples_per_s);
    }
    list = json_add_array(answer, "transitions");
    for (int64_t i = 0; i < rows->num_transitions; i++) {
        struct json *entry = json_add_object(list, NULL);
        json_add_int(entry, "epoch", rows->transitions[i].epoch);
        json_add_string(entry, "part", rows->transitions[i].part);
        json_add_int(entry, "transition_ns", rows->transitions[i].ns);
        json_add_int(entry, "moved_bytes", rows->transitions[i].bytes);
    }
    list = json_add_array(answer, "memory");
    for (int64_t i = 0; i < rows->num_memories; i++) {
        const struct device_memory_row *row = &rows->memories[i];
        struct json *entry = json_add_object(list, NULL);
        json_add_int(entry, "epoch", row->epoch);
        json_add_int(entry, "device", row->device);
        json_add_string(entry, "what", row->what);
        json_add_int(entry, "predicted_bytes", row->predicted_bytes);
        json_add_int(entry, "peak_bytes", row->peak_bytes);
    }
    return answer;
}

static void show_text(const struct run_rows *rows)
{
    const struct run_info *info = &rows->info;
    char buf[32], gap[32];
    printf("run %lld: %s, %s, %s, started %s on %s, costs: %s\n", (long long)info->id, info->name,
           info->simulated ? "simulated" : "real", COUNT_TEXT(info->num_devices, "device"),
           info->started_at, info->host, *info->cost_source ? info->cost_source : "-");
    printf("total: %s\n",
           info->finished ? format_ns(info->total_ns, buf, sizeof buf) : "unfinished");
    if (rows->num_epochs > 0)
        printf("\n%5s %6s %4s %4s %5s %6s %12s %12s %7s %12s %6s %9s\n", "epoch", "frozen", "K",
               "R", "M", "steps", "step", "samples/s", "bubble", "transition", "cached",
               "accuracy");
    for (int64_t i = 0; i < rows->num_epochs; i++) {
        const struct epoch_row *row = &rows->epochs[i];
        char accuracy[16] = "-", bubble[16] = "-"; /* not recorded */
        if (!isnan(row->eval_accuracy))
            snprintf(accuracy, sizeof accuracy, "%.4f", row->eval_accuracy);
        if (!isnan(row->bubble_fraction))
            snprintf(bubble, sizeof bubble, "%.4f", row->bubble_fraction);
        printf(
            "%5lld %6lld %4lld %4lld %5lld %6lld %12s %12.1f %7s %12s %6s %9s\n",
            (long long)row->epoch, (long long)row->frozen_layers, (long long)row->pipeline_length,
            (long long)row->replicas, (long long)row->microbatches, (long long)row->steps,
            format_ns(row->step_ns, buf, sizeof buf), row->samples_per_s, bubble,
            format_ns(row->transition_ns, gap, sizeof gap), row->cached ? "yes" : "no", accuracy);
    }
    for (int64_t i = 0; i < rows->num_transitions; i++)
        if (strcmp(rows->transitions[i].part, "restart") == 0)
            printf("\nrestarted in epoch %lld: %s lost\n", (long long)rows->transitions[i].epoch,
                   format_ns(rows->transitions[i].ns, buf, sizeof buf));
    if (rows->num_steps > 0) {
        const struct step_row *last = &rows->steps[rows->num_steps - 1];
        printf("\n%s recorded; the last: step %lld, %s, loss %g\n",
               COUNT_TEXT(rows->num_steps, "step"), (long long)last->step,
               format_ns(last->step_ns, buf, sizeof buf), last->loss);
    }
}

static enum status run_show(const struct command *command, struct store *store, int64_t run_id,
                            bool as_json, struct err *err)
{
    struct run_rows rows = {0};
    enum status rc = run_rows_read(store, run_id, &rows, err);
    if (rc == OK && as_json)
        rc = command_answer(show_json(command, &rows), err);
    else if (rc == OK)
        show_text(&rows);
    run_rows_clear(&rows);
    return rc;
}

static enum status run_import(const struct command *command, const char *path, const char *db,
                              bool as_json, struct err *err)
{
    struct json *root = NULL;
    struct store *store = NULL;
    int64_t run_id = 0, num_steps = 0;
    enum status rc = json_read_file(path, &root, err);
    if (rc == OK)
        rc = store_open(db, db ? STORE_RECORD : STORE_WRITE, &store, err);
    if (rc == OK)
        rc = run_file_import(root, path, store, &run_id, &num_steps, err);
    if (rc == OK && as_json) {
        struct json *answer = command_json(command);
        json_add_string(answer, "store", store_path(store));
        json_add_int(answer, "run", run_id);
        json_add_int(answer, "steps", num_steps);
        rc = command_answer(answer, err);
    } else if (rc == OK) {
        printf("run %lld: %s into %s\n", (long long)run_id, COUNT_TEXT(num_steps, "step"),
               store_path(store));
    }
    store_close(store);
    json_free(root);
    return rc;
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    const char *db = NULL;
    bool as_json = false;
    int64_t run_id = 0;
    struct store *store = NULL;
    const struct option options[] = {
        OPTION("db", STRING, &db, "FILE", "the store, DIR/run.db of a training run [$ELAPSE_DB]"),
        OPTION("json", FLAG, &as_json, NULL, "one JSON object on stdout"),
    };
    struct command_line line = COMMAND_LINE(options, 2);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    const int num = line.num_positional;
    const char *const *positional = line.positional;
    bool list = num == 1 && strcmp(positional[0], "list") == 0;
    bool show = num >= 1 && strcmp(positional[0], "show") == 0;
    if (num == 2 && strcmp(positional[0], "import") == 0)
        return run_import(command, positional[1], db, as_json, err);
    if (!list && !show)
        return err_set(err, ERR_INPUT, "runs takes list, show [RUN], or import FILE, got %s%s",
                       num ? positional[0] : "nothing", num > 1 ? " and more" : "");
    if (show && num == 2)
        rc = parse_int(positional[1], "RUN", 1, INT64_MAX, &run_id, err);
    if (rc == OK)
        rc = store_open(db, STORE_READ, &store, err);
    if (rc == OK)
        rc = list ? run_list(command, store, as_json, err)
                  : run_show(command, store, run_id, as_json, err);
    store_close(store);
    return rc;
}

const struct command command_runs = {"runs", "list | show [RUN] | import FILE [--db FILE] [--json]",
                                     "list recorded runs, simulated and real, show one (default: "
                                     "the last), or import a measured one",
                                     "list|show|import", run};
