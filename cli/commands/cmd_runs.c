/* cli/commands/cmd_runs.c - `elapse runs`: run records, simulated and real. */
#include "cli/base/command.h"

#include <stdlib.h>
#include <string.h>

#include "cli/runs/run_rows.h"
#include "partition/base/units.h"
#include "profiles/store/run_file.h"

static const char *kind_of(const void *row, char *buf, size_t size)
{
    snprintf(buf, size, "%s", ((const struct run_info *)row)->simulated ? "simulated" : "real");
    return buf;
}

static const char *total_of(const void *row, char *buf, size_t size)
{
    const struct run_info *info = row;
    return info->finished ? format_ns(info->total_ns, buf, size) : "unfinished";
}

#define RUN(type, member, ...) COLUMN(run_info, #member, type, member, __VA_ARGS__)
static const struct row_table run_table = ROW_TABLE(
    run_info, COLUMN(run_info, "run", INT, id, SHOWN("run", 5)),
    COLUMN(run_info, "kind", OTHER, simulated, SHOWN("  kind", -9), .leaves = 3, .text = kind_of),
    RUN(TEXT, name, SHOWN(" name", -24)),
    RUN(TEXT, started_at, SHOWN(" started at", -20), .leaves = 2), RUN(TEXT, host),
    RUN(TEXT, cost_source), RUN(INT, num_devices), RUN(BOOL, finished),
    RUN(INT, total_ns, SHOWN(" total", 12), .leaves = 4, .text = total_of),
    COLUMN(run_info, NULL, TEXT, cost_source, SHOWN("  costs", 0), .leaves = 1));

#define CHANGE(name, type, member) COLUMN(transition_row, name, type, member)
static const struct row_table change_table =
    ROW_TABLE(transition_row, CHANGE("epoch", INT, epoch), CHANGE("part", TEXT, part),
              CHANGE("transition_ns", INT, ns), CHANGE("moved_bytes", INT, bytes));

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
        rows_to_json(answer, "runs", &run_table, infos, count);
        rc = command_answer(answer, err);
    } else {
        rows_print(&run_table, infos, count);
    }
    free(infos);
    return rc;
}

static struct json *show_json(const struct command *command, const struct run_rows *rows)
{
    struct json *answer = command_json(command);
    row_to_json(answer, &run_table, &rows->info);
    json_add_parsed(answer, "job", rows->info.job_json);
    rows_to_json(answer, "epochs", &epoch_table, rows->epochs, rows->num_epochs);
    rows_to_json(answer, "steps", &step_table, rows->steps, rows->num_steps);
    rows_to_json(answer, "transitions", &change_table, rows->transitions, rows->num_transitions);
    rows_to_json(answer, "memory", &memory_table, rows->memories, rows->num_memories);
    return answer;
}

static void show_text(const struct run_rows *rows)
{
    const struct run_info *info = &rows->info;
    char buf[32];
    printf("run %lld: %s, %s, %s, started %s on %s, costs: %s\n", (long long)info->id, info->name,
           info->simulated ? "simulated" : "real", COUNT_TEXT(info->num_devices, "device"),
           info->started_at, info->host, *info->cost_source ? info->cost_source : "-");
    printf("total: %s\n",
           info->finished ? format_ns(info->total_ns, buf, sizeof buf) : "unfinished");
    if (rows->num_epochs > 0) {
        putchar('\n');
        rows_print(&epoch_table, rows->epochs, rows->num_epochs);
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
    THEN(run_file_check(root, path, err));
    THEN(store_open(db, db ? STORE_RECORD : STORE_WRITE, &store, err));
    THEN(run_file_import(root, path, store, &run_id, &num_steps, err));
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
        OPTION_JSON(&as_json),
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
    THEN(store_open(db, STORE_READ, &store, err));
    THEN(list ? run_list(command, store, as_json, err)
              : run_show(command, store, run_id, as_json, err));
    store_close(store);
    return rc;
}

const struct command command_runs = {"runs", "list | show [RUN] | import FILE [--db FILE] [--json]",
                                     "list recorded runs, simulated and real, show one (default: "
                                     "the last), or import a measured one",
                                     "list|show|import", run};
