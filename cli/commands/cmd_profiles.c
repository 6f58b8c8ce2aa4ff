/* cli/commands/cmd_profiles.c - `elapse profiles`: list, show, export, import, compare and delete measured
 * profiles of a store. One function runs each action; run() at the end chooses it. */
#include "cli/base/command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partition/base/units.h"
#include "profiles/store/profile_file.h"
#include "profiles/store/store.h"

struct request {
    const struct command *command;
    const char *args[3]; /* arguments of the action */
    int num_args;
    const char *db, *out, *name, *device;
    bool json, csv, sql, replace, merge;
};

static bool given(const char *text)
{
    return text && *text;
}

/* Open the store. A store that was named must exist, except for an import. */
static enum status open_store(const struct request *q, enum store_mode mode, bool create,
                              struct store **store, struct err *err)
{
    if (q->db && !create && access(q->db, F_OK) != 0)
        return err_set(err, ERR_SYSTEM, "cannot open store '%s': no such file", q->db);
    return store_open(q->db, mode, store, err);
}

/* --- list ------------------------------------------------------------------------------------- */

#define LISTED(member, ...) COLUMN(profile_info, #member, TEXT, member, __VA_ARGS__)
static const struct row_table list_table = ROW_TABLE(
    profile_info, LISTED(name, SHOWN("profile", -20)),
    LISTED(source, SHOWN(" source", -10), .leaves = 3),
    LISTED(device_kind, SHOWN(" device", -12), .leaves = 5), LISTED(device_name), LISTED(host),
    LISTED(measured_at),
    COLUMN(profile_info, "rows", INT, num_rows, SHOWN(" rows", 6), .leaves = 2),
    COLUMN(profile_info, NULL, TEXT, measured_at, SHOWN("  measured at", -20), .leaves = 4,
           .flags = MEMBER_KNOWN),
    COLUMN(profile_info, NULL, TEXT, host, SHOWN(" host", 0), .leaves = 1, .flags = MEMBER_KNOWN));

static enum status run_list(const struct request *q, struct err *err)
{
    struct store *store = NULL;
    struct profile_info *infos = NULL;
    int count = 0;
    enum status rc = open_store(q, STORE_READ, false, &store, err);
    THEN(store_list_profiles(store, given(q->device) ? q->device : NULL, &infos, &count, err));
    if (rc == OK && q->json) {
        struct json *answer = command_json(q->command);
        json_add_string(answer, "store", store_path(store));
        rows_to_json(answer, "profiles", &list_table, infos, count);
        rc = command_answer(answer, err);
    } else if (rc == OK) {
        rows_print(&list_table, infos, count);
    }
    free(infos);
    store_close(store);
    return rc;
}

/* --- show ------------------------------------------------------------------------------------- */

/* Print the figures that are known, a line each. */
static void print_info(const struct profile_info *info)
{
    const bool measured = strcmp(info->source, "measured") == 0;
    for (int c = 0; c < profile_info_table.num_columns; c++) {
        const struct member *column = &profile_info_table.columns[c];
        char buf[CELL_MAX];
        const char *text = column_text(column, info, buf);
        if (column->type == MEMBER_TEXT  ? *text
            : column->type == MEMBER_INT ? member_int(column, info) != 0
                                         : measured)
            printf("%-12s %s%s\n", column->head, text,
                   strcmp(column->name, "clock_mhz") == 0 ? " MHz" : "");
    }
}

/* Print the key columns that are not empty, then median, p10..p90 and count. */
static void print_row(const struct row_table *table, const void *row)
{
    const struct spread *spread = NULL;
    for (int c = 0; c < table->num_columns; c++) {
        const struct member *column = &table->columns[c];
        const void *at = (const char *)row + column->offset;
        if (strcmp(column->name, "median_ns") == 0)
            spread = at;
        if (spread)
            break;
        if (column->type == MEMBER_TEXT && *(const char *)at)
            printf(" %s", (const char *)at);
        else if (column->type == MEMBER_INT && *(const int64_t *)at)
            printf(" %s=%lld", column->name, (long long)*(const int64_t *)at);
    }
    if (spread)
        printf(": %.9g ns (%.9g..%.9g, n=%lld)", spread->median_ns, spread->p10_ns, spread->p90_ns,
               (long long)spread->count);
    putchar('\n');
}

static enum status run_show(const struct request *q, struct err *err)
{
    struct store *store = NULL;
    struct profile profile = {0};
    enum status rc = open_store(q, STORE_READ, false, &store, err);
    THEN(store_get_profile(store, q->args[0], &profile, err));
    if (rc == OK && q->json) {
        struct json *answer = command_json(q->command);
        json_add_string(answer, "store", store_path(store));
        profile_to_json(&profile, answer);
        rc = command_answer(answer, err);
    } else if (rc == OK) {
        print_info(&profile.info);
        for (int t = 0; t < PROFILE_TABLES; t++) {
            int n = profile_num_rows(&profile, &profile_tables[t]);
            if (n > 0)
                printf("\n%s (%d)\n", profile_tables[t].name, n);
            for (int i = 0; i < n; i++)
                print_row(&profile_tables[t], profile_row(&profile, &profile_tables[t], i));
        }
    }
    profile_clear(&profile);
    store_close(store);
    return rc;
}

/* --- export and import ------------------------------------------------------------------------ */

static enum status write_profile(const struct request *q, const struct profile *profile, FILE *out,
                                 struct err *err)
{
    enum status rc = OK;
    if (q->csv) {
        profile_to_csv(profile, out);
    } else if (q->sql) {
        profile_to_sql(profile, out);
    } else {
        struct json *root = json_object_new();
        profile_to_json(profile, root);
        rc = json_write(root, true, out, err);
        json_free(root);
    }
    return rc;
}

static enum status run_export(const struct request *q, struct err *err)
{
    struct store *store = NULL;
    struct profile profile = {0};
    struct atomic_file file = {0};
    if (q->csv && q->sql)
        return err_set(err, ERR_INPUT, "export takes one of --csv and --sql, got both");
    enum status rc = open_store(q, STORE_READ, false, &store, err);
    THEN(store_get_profile(store, q->args[0], &profile, err));
    THEN(output_open(&file, given(q->out) ? q->out : "/dev/stdout", err));
    THEN(atomic_close(&file, write_profile(q, &profile, file.out, err), err));
    profile_clear(&profile);
    store_close(store);
    return rc;
}

static int total_rows(const struct profile *profile)
{
    int total = 0;
    for (int t = 0; t < PROFILE_TABLES; t++)
        total += profile_num_rows(profile, &profile_tables[t]);
    return total;
}

static enum status run_import(const struct request *q, struct err *err)
{
    struct store *store = NULL;
    struct profile profile = {0};
    enum profile_write how = q->replace ? PROFILE_REPLACE
                             : q->merge ? PROFILE_MERGE
                                        : PROFILE_CREATE;
    if (q->replace && q->merge)
        return err_set(err, ERR_INPUT, "import takes one of --replace and --merge, got both");
    /* Read the file first, so that a bad file does not change or create the store. */
    enum status rc = profile_read_file(q->args[0], &profile, err);
    if (rc == OK && given(q->name) && strlen(q->name) >= sizeof profile.info.name)
        rc = err_set(err, ERR_INPUT, "--name must be at most %zu characters, got %zu",
                     sizeof profile.info.name - 1, strlen(q->name));
    if (rc == OK && given(q->name)) {
        memset(profile.info.name, 0, sizeof profile.info.name);
        memcpy(profile.info.name, q->name, strlen(q->name));
    }
    THEN(open_store(q, STORE_WRITE, true, &store, err));
    THEN(store_put_profile(store, &profile, how, err));
    if (rc == OK && q->json) {
        struct json *answer = command_json(q->command);
        json_add_string(answer, "store", store_path(store));
        json_add_string(answer, "name", profile.info.name);
        json_add_int(answer, "rows", total_rows(&profile));
        rc = command_answer(answer, err);
    } else if (rc == OK) {
        printf("%s: %s into %s\n", profile.info.name, COUNT_TEXT(total_rows(&profile), "row"),
               store_path(store));
    }
    profile_clear(&profile);
    store_close(store);
    return rc;
}

/* --- diff ------------------------------------------------------------------------------------- */

struct diff {
    struct json *rows; /* NULL: print rows as text */
    int64_t changed, only_a, only_b;
    double log_sum; /* sum of log(b / a) over rows with two medians, for a geometric mean */
    int64_t num_ratios;
};

static const struct spread *spread_in(const struct row_table *table, const void *row)
{
    for (int c = 0; row && c < table->num_columns; c++)
        if (strcmp(table->columns[c].name, "median_ns") == 0)
            return (const void *)((const char *)row + table->columns[c].offset);
    return NULL;
}

/* Add the columns of a row that are its key, or the others. */
static void add_part(struct json *entry, const char *name, const struct row_table *table,
                     const void *row, int flags)
{
    struct json *part = row ? json_add_object(entry, name) : NULL;
    for (int c = 0; row && c < table->num_columns; c++) {
        const struct row_table one = {.columns = &table->columns[c], .num_columns = 1};
        if ((one.columns->flags & MEMBER_KEY) == flags)
            row_to_json(part, &one, row);
    }
}

static double ratio_of(const struct spread *a, const struct spread *b)
{
    return a && b && a->median_ns > 0 ? b->median_ns / a->median_ns : NAN;
}

/* A row that differs, as JSON. */
static void add_difference(struct json *rows, const struct row_table *table, const void *a,
                           const void *b)
{
    const struct spread *sa = spread_in(table, a), *sb = spread_in(table, b);
    struct json *entry = json_add_object(rows, NULL);
    json_add_string(entry, "table", table->name);
    json_add_string(entry, "in", a && b ? "both" : a ? "first" : "second");
    add_part(entry, "key", table, a ? a : b, MEMBER_KEY);
    if (sa)
        json_add_double(entry, "first_ns", sa->median_ns);
    if (sb)
        json_add_double(entry, "second_ns", sb->median_ns);
    if (sa && sb)
        json_add_double(entry, "ratio", ratio_of(sa, sb));
    if (!sa && !sb) {
        add_part(entry, "first", table, a, 0);
        add_part(entry, "second", table, b, 0);
    }
}

static void report(void *ctx, const struct row_table *table, const void *a, const void *b)
{
    struct diff *diff = ctx;
    const struct spread *sa = spread_in(table, a), *sb = spread_in(table, b);
    diff->changed += a && b;
    diff->only_a += a && !b;
    diff->only_b += !a && b;
    const double ratio = ratio_of(sa, sb);
    if (ratio > 0) {
        diff->log_sum += log(ratio);
        diff->num_ratios++;
    }
    if (diff->rows) {
        add_difference(diff->rows, table, a, b);
        return;
    }
    printf("%c %-15s", a && b ? '~' : a ? '-' : '+', table->name);
    print_row(table, a ? a : b);
    if (sa && sb)
        printf("  %-15s  now %.9g ns, x %.3f\n", "", sb->median_ns, ratio);
    else if (a && b) {
        printf("  %-15s  now", "");
        print_row(table, b);
    }
}

static enum status run_diff(const struct request *q, struct err *err)
{
    struct store *store = NULL;
    struct profile a = {0}, b = {0};
    struct diff diff = {0};
    struct json *answer = NULL;
    enum status rc = open_store(q, STORE_READ, false, &store, err);
    THEN(store_get_profile(store, q->args[0], &a, err));
    THEN(store_get_profile(store, q->args[1], &b, err));
    if (rc == OK) {
        if (q->json) {
            answer = command_json(q->command);
            json_add_string(answer, "first", a.info.name);
            json_add_string(answer, "second", b.info.name);
            diff.rows = json_add_array(answer, "rows");
        }
        profile_diff(&a, &b, report, &diff);
        double mean = diff.num_ratios ? exp(diff.log_sum / (double)diff.num_ratios) : 1;
        if (q->json) {
            json_add_int(answer, "changed", diff.changed);
            json_add_int(answer, "only_first", diff.only_a);
            json_add_int(answer, "only_second", diff.only_b);
            json_add_double(answer, "mean_ratio", mean);
            rc = command_answer(answer, err);
        } else {
            printf("rows that differ: %lld (geometric mean of the ratios %.3f), %lld only in '%s', "
                   "%lld "
                   "only in '%s'\n",
                   (long long)diff.changed, mean, (long long)diff.only_a, a.info.name,
                   (long long)diff.only_b, b.info.name);
        }
    }
    profile_clear(&a);
    profile_clear(&b);
    store_close(store);
    return rc;
}

static enum status run_rm(const struct request *q, struct err *err)
{
    struct store *store = NULL;
    enum status rc = open_store(q, STORE_WRITE, false, &store, err);
    THEN(store_remove_profile(store, q->args[0], err));
    if (rc == OK && q->json) {
        struct json *answer = command_json(q->command);
        json_add_string(answer, "removed", q->args[0]);
        rc = command_answer(answer, err);
    }
    store_close(store);
    return rc;
}

/* ---------------------------------------------------------------------------------------------- */

static const struct action {
    const char *name, *args;
    int num_args;
    enum status (*run)(const struct request *q, struct err *err);
} actions[] = {
    {"list",   "",                0, run_list  },
    {"show",   "PROFILE",         1, run_show  },
    {"export", "PROFILE",         1, run_export},
    {"import", "FILE",            1, run_import},
    {"diff",   "PROFILE PROFILE", 2, run_diff  },
    {"rm",     "PROFILE",         1, run_rm    },
};
enum { NUM_ACTIONS = sizeof actions / sizeof *actions };

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    struct request q = {.command = command};
    const char *names[NUM_ACTIONS];
    bool seen[9] = {false};
    struct option options[] = {
        OPTION_DB(&q.db),
        OPTION_JSON(&q.json),
        OPTION("device", STRING, &q.device, "KIND", "list: only this kind of device"),
        OPTION("o", STRING, &q.out, "FILE", "export: to a file [stdout]"),
        OPTION("csv", FLAG, &q.csv, NULL, "export: as CSV [JSON]"),
        OPTION("sql", FLAG, &q.sql, NULL, "export: as SQL, for profiles/shipped"),
        OPTION("name", STRING, &q.name, "NAME", "import: under this name [the file's]"),
        OPTION("replace", FLAG, &q.replace, NULL, "import: in place of one of that name"),
        OPTION("merge", FLAG, &q.merge, NULL, "import: into one of that name"),
    };
    enum { NUM_OPTIONS = sizeof options / sizeof *options };
    static const char *const ways[] = {NULL,     NULL,     "list",   "export", "export",
                                       "export", "import", "import", "import"};
    _Static_assert(NUM_OPTIONS == sizeof seen / sizeof *seen, "one for each");
    _Static_assert(NUM_OPTIONS == sizeof ways / sizeof *ways, "one for each");
    for (int i = 0; i < NUM_OPTIONS; i++)
        options[i].seen = &seen[i];
    struct command_line line = COMMAND_LINE(options, 4);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    const int num = line.num_positional;
    const char *const *positional = line.positional;
    const struct action *action = NULL;
    for (int i = 0; i < NUM_ACTIONS; i++) {
        names[i] = actions[i].name;
        if (num > 0 && strcmp(actions[i].name, positional[0]) == 0)
            action = &actions[i];
    }
    if (!action) {
        const char *near = num > 0 ? nearest_name(positional[0], names, NUM_ACTIONS) : NULL;
        rc = err_set(err, ERR_INPUT,
                     "profiles: must be list|show|export|import|diff|rm, got %s%s%s%s",
                     num > 0 ? positional[0] : "nothing", near ? ", nearest is '" : "",
                     near ? near : "", near ? "'" : "");
        err_hint(err, "'elapse profiles --help' lists the options");
        return rc;
    }
    if (num - 1 != action->num_args)
        return err_set(err, ERR_INPUT, "profiles %s takes %s, got %d arguments", action->name,
                       action->num_args ? action->args : "no arguments", num - 1);
    rc = command_check_way(command, &line, ways, action->name, err);
    if (rc != OK)
        return rc;
    q.num_args = num - 1;
    for (int i = 0; i < q.num_args; i++)
        q.args[i] = positional[i + 1];
    return action->run(&q, err);
}

const struct command command_profiles = {
    "profiles", "list|show|export|import|diff|rm [PROFILE|FILE] [--db FILE] [--json]",
    "look after the store of measured devices", "list|show|export|import|diff|rm FILE", run};
