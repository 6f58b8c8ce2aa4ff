#include "cli/runs/sweep_lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

/* How a column's values are shown: ratios and rates are doubles, the others integers. */
enum shown { SHOWN_NOT, SHOWN_TIME, SHOWN_BYTES, SHOWN_PERCENT, SHOWN_RATE, SHOWN_RATIO };

struct sweep_column {
    const char *name, *head; /* in JSON and CSV; in a table */
    bool real;
    enum shown shown; /* in a table */
};

static const struct sweep_column step_columns[] = {
    {"step_ns",                         "step",         false, SHOWN_TIME   },
    {"bubble_fraction",                 "bubble",       true,  SHOWN_PERCENT},
    {"samples_per_s",                   "samples/s",    true,  SHOWN_RATE   },
    {"peak_bytes",                      "peak memory",  false, SHOWN_BYTES  },
    {"allreduce_ns",                    "",             false, SHOWN_NOT    },
    {"allreduce_exposed_ns",            "all-reduce",   false, SHOWN_TIME   },
    {"events",                          "",             false, SHOWN_NOT    },
    {"images_per_s",                    "",             true,  SHOWN_NOT    },
    {"tokens_per_s",                    "",             true,  SHOWN_NOT    },
    {"tokens_per_s_per_device",         "tokens/s/dev", true,  SHOWN_RATE   },
    {"flops_per_s_per_device",          "",             true,  SHOWN_NOT    },
    {"mfu",                             "MFU",          true,  SHOWN_PERCENT},
    {"hardware_flops_per_s_per_device", "",             true,  SHOWN_NOT    },
    {"hfu",                             "",             true,  SHOWN_NOT    },
};
_Static_assert(sizeof step_columns / sizeof *step_columns == SWEEP_FIRST_RATE + NUM_RATE_COLUMNS,
               "the columns of rates_show.h follow those of a step");

static const struct sweep_column run_columns[] = {
    {"total_ns",      "total",     false, SHOWN_TIME },
    {"baseline_ns",   "baseline",  false, SHOWN_TIME },
    {"speedup",       "speed-up",  true,  SHOWN_RATIO},
    {"device_hours",  "device h",  true,  SHOWN_RATE },
    {"samples_per_s", "samples/s", true,  SHOWN_RATE },
    {"step_ns",       "step",      false, SHOWN_TIME },
    {"cost",          "cost",      true,  SHOWN_RATE },
    {"energy_kwh",    "kWh",       true,  SHOWN_RATE },
};

enum { CELL = 11 }; /* width of a table's columns */

static const char *const chosen_names[] = {"pipeline_length", "replicas", "tensor", "microbatches"};
static const char *const chosen_heads[] = {"K", "R", "T", "M"};

void sweep_columns(struct sweep_table *table, bool of_runs)
{
    table->columns = of_runs ? run_columns : step_columns;
    table->num_columns = of_runs ? (int)(sizeof run_columns / sizeof run_columns[0])
                                 : (int)(sizeof step_columns / sizeof step_columns[0]);
}

double sweep_cost(const struct sweep_table *table, const struct sweep_values *values)
{
    if (table->columns == run_columns)
        return (double)values->at[0].whole;
    return values->at[2].real > 0 ? 1 / values->at[2].real : 0;
}

/* Whether an axis has this name: its column then holds what was asked, and one is enough. */
static bool is_axis(const struct sweep_table *t, const char *name)
{
    for (int i = 0; i < t->num_axes; i++)
        if (strcmp(t->paths[i], name) == 0)
            return true;
    return false;
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
    for (int i = 0; i < t->num_columns && !row->error; i++)
        if (values->missing[i])
            json_add_null(json, t->columns[i].name);
        else if (t->columns[i].real)
            json_add_double(json, t->columns[i].name, values->at[i].real);
        else
            json_add_int(json, t->columns[i].name, values->at[i].whole);
    for (int i = 0; i < CHOSEN_COUNT && !row->error; i++)
        if (!is_axis(t, chosen_names[i]))
            json_add_int(json, chosen_names[i], values->chosen[i]);
    if (!row->error && !is_axis(t, "schedule"))
        json_add_string(json, "schedule", schedule_kind_name(values->schedule));
    if (!row->error && values->shard != SHARD_NONE && !is_axis(t, "shard"))
        json_add_string(json, "shard", shard_mode_name(values->shard));
    if (!row->error && values->shard_group > 0 && !is_axis(t, "shard-group"))
        json_add_int(json, "shard_group", values->shard_group);
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

/* The settings, the answer, the plan, and in the last cell the error if there is one. */
static void csv_line(FILE *out, const struct sweep_table *t, const struct sweep_row *row)
{
    const struct sweep_values *values = row->values;
    for (int i = 0; i < t->num_axes; i++)
        fprintf(out, "%s%s", i ? "," : "", row->texts[i]);
    for (int i = 0; i < t->num_columns; i++)
        if (row->error || values->missing[i])
            fputc(',', out);
        else if (t->columns[i].real)
            fprintf(out, ",%.17g", values->at[i].real);
        else
            fprintf(out, ",%" PRId64, values->at[i].whole);
    for (int i = 0; i < CHOSEN_COUNT; i++)
        if (!is_axis(t, chosen_names[i]) && row->error)
            fputc(',', out);
        else if (!is_axis(t, chosen_names[i]))
            fprintf(out, ",%d", values->chosen[i]);
    if (!is_axis(t, "schedule"))
        fprintf(out, ",%s", row->error ? "" : schedule_kind_name(values->schedule));
    fputs(row->error ? ",," : values->extrapolated ? ",true," : ",false,", out);
    if (row->error)
        put_quoted(out, row->error);
}

/* --- a table --------------------------------------------------------------------------------- */

static void table_cell(FILE *out, const struct sweep_column *column,
                       const struct sweep_values *values, int i)
{
    char text[32] = "-";
    if (!values->missing[i]) {
        switch (column->shown) {
        case SHOWN_TIME:
            format_ns(values->at[i].whole, text, sizeof text);
            break;
        case SHOWN_BYTES:
            format_bytes(values->at[i].whole, text, sizeof text);
            break;
        case SHOWN_PERCENT:
            snprintf(text, sizeof text, "%.1f %%", 100 * values->at[i].real);
            break;
        case SHOWN_RATIO:
            snprintf(text, sizeof text, "%.2f", values->at[i].real);
            break;
        default:
            snprintf(text, sizeof text, values->at[i].real >= 9999.5 ? "%.0f" : "%.4g",
                     values->at[i].real);
        }
    }
    fprintf(out, " %*s", CELL, text);
}

static void table_line(FILE *out, const struct sweep_table *t, const struct sweep_row *row)
{
    const struct sweep_values *values = row->values;
    for (int i = 0; i < t->num_axes; i++)
        fprintf(out, "%*s  ", t->widths[i], row->texts[i]);
    if (row->error) {
        fprintf(out, "no: %s", row->error);
        return;
    }
    for (int i = 0; i < CHOSEN_COUNT; i++)
        fprintf(out, "%4d ", values->chosen[i]);
    fprintf(out, "%-12s", schedule_kind_name(values->schedule));
    for (int i = 0; i < t->num_columns; i++)
        if (t->columns[i].shown != SHOWN_NOT)
            table_cell(out, &t->columns[i], values, i);
    if (values->extrapolated)
        fputs("  extrapolated", out);
}

void sweep_head(const struct sweep_table *t)
{
    if (t->form == SWEEP_JSON)
        return;
    for (int i = 0; i < t->num_axes; i++)
        if (t->form == SWEEP_CSV)
            printf("%s,", t->paths[i]);
        else
            printf("%*s  ", t->widths[i], t->paths[i]);
    for (int i = 0; t->form == SWEEP_TABLE && i < CHOSEN_COUNT; i++)
        printf("%4s ", chosen_heads[i]);
    if (t->form == SWEEP_TABLE)
        printf("%-12s", "schedule");
    for (int i = 0; i < t->num_columns; i++)
        if (t->form == SWEEP_CSV)
            printf("%s,", t->columns[i].name);
        else if (t->columns[i].shown != SHOWN_NOT)
            printf(" %*s", CELL, t->columns[i].head);
    for (int i = 0; t->form == SWEEP_CSV && i < CHOSEN_COUNT; i++)
        if (!is_axis(t, chosen_names[i]))
            printf("%s,", chosen_names[i]);
    if (t->form == SWEEP_CSV && !is_axis(t, "schedule"))
        printf("schedule,");
    printf(t->form == SWEEP_CSV ? "extrapolated,error\n" : "\n");
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
