#include "cli/simulate/sweep_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plans/band_show.h"
#include "cli/plans/plan_search.h"
#include "cli/plans/plan_show.h"
#include "partition/base/units.h"
#include "profiles/job/plan_json.h"

enum { PLAN_COLUMNS = 5 };

#define VALUE(type, member, ...) COLUMN(sweep_values, #member, type, member, __VA_ARGS__)
#define RATE(member, ...)                                                                          \
    COLUMN(sweep_values, #member, REAL, rates.member, .flags = MEMBER_KNOWN, __VA_ARGS__)
#define WHOLE(name, type, member)                                                                  \
    COLUMN(sweep_values, name, type, run.member, .flags = MEMBER_KNOWN)
#define PERCENT .format = "%.1f %%", .scale = 100

static const struct row_table step_table = ROW_TABLE(
    sweep_values, VALUE(INT, step_ns, SHOWN(" step", 8)),
    VALUE(REAL, bubble_fraction, SHOWN(" bubble", 7), .leaves = 4, PERCENT),
    VALUE(REAL, samples_per_s, SHOWN(" samples/s", 9), .leaves = 11),
    VALUE(INT, peak_bytes, SHOWN(" peak memory", 11), .leaves = 6), VALUE(INT, allreduce_ns),
    VALUE(INT, allreduce_exposed_ns, SHOWN(" all-reduce", 10), .leaves = 1), VALUE(INT, events),
    RATE(images_per_s), RATE(documents_per_s), RATE(tokens_per_s),
    RATE(tokens_per_s_per_device, SHOWN(" tokens/s/dev", 12), .leaves = 12),
    RATE(flops_per_s_per_device), RATE(mfu, SHOWN(" MFU", 7), .leaves = 8, PERCENT),
    RATE(hardware_flops_per_s_per_device), RATE(hfu), WHOLE("run_ns", INT, run_ns),
    WHOLE("run_device_hours", REAL, device_hours), WHOLE("cost", REAL, cost),
    WHOLE("energy_kwh", REAL, energy_kwh));

static const struct row_table run_table =
    ROW_TABLE(sweep_values, VALUE(INT, total_ns, SHOWN(" total", 8)),
              VALUE(INT, baseline_ns, SHOWN(" baseline", 8), .leaves = 5, .flags = MEMBER_KNOWN),
              VALUE(REAL, speedup, SHOWN(" speed-up", 8), .format = "%.2f", .flags = MEMBER_KNOWN),
              VALUE(REAL, device_hours, SHOWN(" device h", 9), .leaves = 7),
              VALUE(REAL, samples_per_s, SHOWN(" samples/s", 9), .leaves = 11),
              VALUE(INT, step_ns, SHOWN(" step", 8)),
              VALUE(REAL, cost, SHOWN(" cost", 9), .leaves = 3, .flags = MEMBER_KNOWN),
              VALUE(REAL, energy_kwh, SHOWN(" kWh", 9), .leaves = 2, .flags = MEMBER_KNOWN));

static const struct row_table plan_table = ROW_TABLE(
    sweep_values, VALUE(INT, pipeline_length, SHOWN("K", 3)), VALUE(INT, replicas, SHOWN(" R", 4)),
    COLUMN(sweep_values, "tensor", INT, layout.tensor, SHOWN(" T", 2)),
    VALUE(INT, microbatches, SHOWN(" M", 4), .leaves = 10),
    VALUE(NAME, schedule, SHOWN(" schedule", -11), .leaves = 9, .names = schedule_names));

static const struct row_table *table_of(const struct sweep_table *t)
{
    return t->of_runs ? &run_table : &step_table;
}

double sweep_cost(const struct sweep_table *table, const struct sweep_values *values)
{
    if (table->of_runs)
        return (double)values->total_ns;
    return values->samples_per_s > 0 ? 1 / values->samples_per_s : 0;
}

/* Whether an axis has this name: its column then holds what was asked, and one is enough. */
static bool is_axis(const struct sweep_table *t, const char *name)
{
    for (int i = 0; i < t->num_axes; i++)
        if (strcmp(t->paths[i], name) == 0)
            return true;
    return false;
}

/* Whether an axis is the option that sets this key: "shard_group" is --shard-group. */
static bool is_option(const struct sweep_table *t, const char *key)
{
    char option[32];
    size_t i = 0;
    for (; key[i] && i + 1 < sizeof option; i++)
        option[i] = key[i] == '_' ? '-' : key[i];
    option[i] = 0;
    return is_axis(t, option);
}

/* The columns of the plan that no axis has. */
static struct row_table plan_beside_axes(const struct sweep_table *t,
                                         struct member columns[PLAN_COLUMNS])
{
    struct row_table table = plan_table;
    table.columns = columns;
    table.num_columns = 0;
    for (int c = 0; c < plan_table.num_columns; c++)
        if (!is_axis(t, plan_table.columns[c].name))
            columns[table.num_columns++] = plan_table.columns[c];
    return table;
}

void sweep_fit(struct sweep_table *t)
{
    const struct row_table *const tables[] = {&plan_table, table_of(t)};
    int besides = 0;
    for (int i = 0; i < t->num_axes; i++)
        besides += t->widths[i] + 2;
    t->num_left_out = rows_left_out(tables, 2, besides);
}

/* Whether the budget stopped the search for the plan of a point, so that a better plan may
 * exist. */
static bool cut_short(const struct sweep_values *values)
{
    return values->searched.judged > 0 && !values->searched.complete;
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void add_value(struct json *json, const char *path, const char *text)
{
    char *end;
    double number = strtod(text, &end);
    int64_t whole;
    if (parse_int(text, path, INT64_MIN / 2, INT64_MAX / 2, &whole, NULL) == OK)
        json_add_int(json, path, whole);
    else if (end != text && *end == '\0')
        json_add_double(json, path, number);
    else
        json_add_string(json, path, text);
}

static char *json_line(const struct sweep_table *t, const struct sweep_row *row)
{
    const struct sweep_values *values = row->values;
    struct json *json = command_json(t->command);
    char *text = NULL;
    for (int i = 0; i < t->num_axes; i++)
        add_value(json, t->paths[i], row->texts[i]);
    struct member columns[PLAN_COLUMNS];
    const struct row_table plan = plan_beside_axes(t, columns);
    if (!row->error) {
        row_to_json(json, table_of(t), values);
        row_to_json(json, &plan, values);
    }
    for (int d = LAYOUT_TENSOR + 1; d < LAYOUT_DIM_COUNT && !row->error; d++)
        if (layout_uses(&values->layout, (enum layout_dim)d) &&
            !is_option(t, layout_members[d].key))
            layout_json_add_dim(json, &values->layout, (enum layout_dim)d);
    if (!row->error && values->searched.judged > 0)
        searched_add(json_add_object(json, "searched"), &values->searched, t->timed);
    if (values->assumed.dtype || values->assumed.optimizer)
        plan_assumed_add(json, values->assumed);
    if (!row->error && *values->note)
        json_add_string(json, "cost_note", values->note);
    if (!row->error && values->step_band_ns[1] > 0)
        band_add_ns(values->step_band_ns, json);
    if (row->error)
        json_add_string(json, "error", row->error);
    else
        json_add_bool(json, "extrapolated", values->extrapolated);
    if (json_text(json, false, &text, NULL) != OK)
        text = NULL;
    json_free(json);
    return text;
}

/* --- CSV ------------------------------------------------------------------------------------- */

/* Write a cell in quotes, so that CSV readers take it as one text. */
static void put_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++)
        fputs(*text == '"' ? "\"\"" : (char[]){*text, '\0'}, out);
    fputc('"', out);
}

static void csv_cells(FILE *out, const struct row_table *table, const struct sweep_row *row)
{
    for (int c = 0; c < table->num_columns; c++) {
        char text[CELL_MAX];
        fprintf(out, ",%s", row->error ? "" : column_csv(&table->columns[c], row->values, text));
    }
}

/* The settings, the answer, the plan, and in the last cell the error if there is one. */
static void csv_line(FILE *out, const struct sweep_table *t, const struct sweep_row *row)
{
    struct member columns[PLAN_COLUMNS];
    const struct row_table plan = plan_beside_axes(t, columns);
    for (int i = 0; i < t->num_axes; i++)
        fprintf(out, "%s%s", i ? "," : "", row->texts[i]);
    csv_cells(out, table_of(t), row);
    csv_cells(out, &plan, row);
    fputs(row->error ? "," : cut_short(row->values) ? ",false" : ",true", out);
    fputs(row->error ? ",," : row->values->extrapolated ? ",true," : ",false,", out);
    if (row->error)
        put_quoted(out, row->error);
}

/* --- a table --------------------------------------------------------------------------------- */

static void table_line(FILE *out, const struct sweep_table *t, const struct sweep_row *row)
{
    for (int i = 0; i < t->num_axes; i++)
        fprintf(out, "%*s  ", t->widths[i], row->texts[i]);
    if (row->error) {
        fprintf(out, "no: %s", row->error);
        return;
    }
    struct member columns[ROW_COLUMNS];
    struct row_table shown = row_table_without(&plan_table, t->num_left_out, columns);
    row_print(out, &shown, row->values);
    shown = row_table_without(table_of(t), t->num_left_out, columns);
    row_print(out, &shown, row->values);
    if (!t->of_runs) {
        char text[96];
        fputs(run_cost_text(&row->values->run, text, sizeof text), out);
    }
    if (cut_short(row->values))
        fputs("  search stopped", out);
    if (row->values->extrapolated)
        fputs("  extrapolated", out);
}

void sweep_head(const struct sweep_table *t)
{
    struct member columns[PLAN_COLUMNS];
    const struct row_table plan = plan_beside_axes(t, columns);
    if (t->form == SWEEP_JSON)
        return;
    for (int i = 0; i < t->num_axes; i++)
        if (t->form == SWEEP_CSV)
            printf("%s,", t->paths[i]);
        else
            printf("%*s  ", t->widths[i], t->paths[i]);
    if (t->form == SWEEP_TABLE) {
        struct member room[ROW_COLUMNS];
        struct row_table shown = row_table_without(&plan_table, t->num_left_out, room);
        row_print_head(stdout, &shown);
        shown = row_table_without(table_of(t), t->num_left_out, room);
        row_print_head(stdout, &shown);
        putchar('\n');
        return;
    }
    for (int c = 0; c < table_of(t)->num_columns; c++)
        printf("%s,", table_of(t)->columns[c].name);
    for (int c = 0; c < plan.num_columns; c++)
        printf("%s,", columns[c].name);
    printf("complete,extrapolated,error\n");
}

char *sweep_line(const struct sweep_table *t, const struct sweep_row *row)
{
    char *text = NULL;
    size_t size = 0;
    if (t->form == SWEEP_JSON)
        return json_line(t, row);
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    if (t->form == SWEEP_CSV)
        csv_line(out, t, row);
    else
        table_line(out, t, row);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
