#include "profiles/json/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "profiles/base/safe_output.h"
#include "profiles/json/fields.h"

/* The value of a column that is a text or has a name; NULL for a number. */
static const char *column_string(const struct member *column, const void *row, char buf[CELL_MAX])
{
    const char *at = (const char *)row + column->offset;
    switch (column->type) {
    case MEMBER_TEXT:
        return at;
    case MEMBER_STRING:
        return *(const char *const *)(const void *)at;
    case MEMBER_NAME:
        return member_name(column, row);
    case MEMBER_OTHER:
        return column->text(row, buf, CELL_MAX);
    default:
        return NULL;
    }
}

/* Whether a value is missing: NaN, or what the flags call so. */
static bool is_missing(const struct member *column, const void *row)
{
    const bool may = column->flags & (MEMBER_KNOWN | MEMBER_OPTIONAL);
    const double real = column->type == MEMBER_REAL ? member_real(column, row) : 0;
    char buf[CELL_MAX];
    if (column->type == MEMBER_REAL)
        return isnan(real) || (may && !(real > 0));
    if (column->type == MEMBER_INT || column->type == MEMBER_BOOL)
        return may && member_int(column, row) <= 0;
    const char *string = column_string(column, row, buf);
    return !string || (may && !*string);
}

/* --- JSON ------------------------------------------------------------------------------------- */

void row_to_json(struct json *object, const struct row_table *table, const void *row)
{
    for (int c = 0; c < table->num_columns; c++) {
        const struct member *column = &table->columns[c];
        char buf[CELL_MAX];
        if (!column->name || (is_missing(column, row) && (column->flags & MEMBER_OPTIONAL)))
            continue;
        if (is_missing(column, row))
            json_add_null(object, column->name);
        else if (column->type == MEMBER_OTHER)
            json_add_string(object, column->name, column->text(row, buf, CELL_MAX));
        else
            fields_write(column, 1, row, object);
    }
}

void rows_to_json(struct json *parent, const char *key, const struct row_table *table,
                  const void *rows, int64_t n)
{
    struct json *list = json_add_array(parent, key);
    for (int64_t i = 0; i < n; i++)
        row_to_json(json_add_object(list, NULL), table,
                    (const char *)rows + (size_t)i * table->row_size);
}

const char *column_csv(const struct member *column, const void *row, char buf[CELL_MAX])
{
    *buf = '\0';
    if (is_missing(column, row))
        return "";
    if (column->type == MEMBER_REAL)
        snprintf(buf, CELL_MAX, "%.17g", member_real(column, row));
    else if (column->type == MEMBER_INT)
        snprintf(buf, CELL_MAX, "%lld", (long long)member_int(column, row));
    else
        return column_string(column, row, buf);
    return buf;
}

/* --- text ------------------------------------------------------------------------------------- */

const char *column_text(const struct member *column, const void *row, char buf[CELL_MAX])
{
    const size_t size = CELL_MAX;
    if (column->text)
        return column->text(row, buf, size);
    if (is_missing(column, row))
        return "-";
    const char *string = column_string(column, row, buf);
    if (string)
        return string;
    if (column->type == MEMBER_BOOL)
        return member_int(column, row) ? "yes" : "no";
    const double real = column->type == MEMBER_REAL
                            ? member_real(column, row) * (column->scale != 0 ? column->scale : 1)
                            : 0;
    if (column->type == MEMBER_REAL)
        snprintf(buf, size,
                 column->format   ? column->format
                 : real >= 9999.5 ? "%.0f"
                                  : "%.4g",
                 real);
    else if (text_ends(column->name, "_ns"))
        format_ns(member_int(column, row), buf, size);
    else if (text_ends(column->name, "_bytes"))
        format_bytes(member_int(column, row), buf, size);
    else
        snprintf(buf, size, "%lld", (long long)member_int(column, row));
    return buf;
}

static bool is_shown(const struct member *column, int left_out)
{
    return column->head && (column->leaves == 0 || column->leaves > left_out);
}

static int width_of(const struct row_table *table, int left_out)
{
    enum { WORD = 16 }; /* a last column of any width that does not say more */
    int width = table->besides;
    for (int c = 0; c < table->num_columns; c++) {
        const struct member *column = &table->columns[c];
        const int most = column->max > 0 ? (int)column->max : WORD;
        if (is_shown(column, left_out))
            width += (int)strspn(column->head, " ") + (column->width ? abs(column->width) : most);
    }
    return width;
}

int rows_left_out(const struct row_table *const *tables, int num, int besides)
{
    const int columns = terminal_columns();
    int left_out = -1, most = 0, width;
    if (columns == 0)
        return 0;
    for (int t = 0; t < num; t++)
        for (int c = 0; c < tables[t]->num_columns; c++)
            most = tables[t]->columns[c].leaves > most ? tables[t]->columns[c].leaves : most;
    do {
        left_out++;
        width = besides;
        for (int t = 0; t < num; t++)
            width += width_of(tables[t], left_out);
    } while (width > columns && left_out < most);
    return left_out;
}

struct row_table row_table_without(const struct row_table *table, int left_out,
                                   struct member columns[ROW_COLUMNS])
{
    struct row_table rest = *table;
    rest.columns = columns;
    rest.num_columns = 0;
    for (int c = 0; c < table->num_columns && rest.num_columns < ROW_COLUMNS; c++)
        if (is_shown(&table->columns[c], left_out))
            columns[rest.num_columns++] = table->columns[c];
    return rest;
}

static int left_out_of(FILE *out, const struct row_table *table)
{
    return out == stdout ? rows_left_out(&table, 1, 0) : 0;
}

void row_print_head(FILE *out, const struct row_table *table)
{
    const int left_out = left_out_of(out, table);
    for (int c = 0; c < table->num_columns; c++) {
        const char *head = table->columns[c].head;
        const int gap = head ? (int)strspn(head, " ") : 0;
        if (is_shown(&table->columns[c], left_out))
            fprintf(out, "%*s%*s", gap, "", table->columns[c].width, head + gap);
    }
}

void row_print(FILE *out, const struct row_table *table, const void *row)
{
    const int left_out = left_out_of(out, table);
    for (int c = 0; c < table->num_columns; c++) {
        const struct member *column = &table->columns[c];
        char buf[CELL_MAX];
        if (is_shown(column, left_out))
            fprintf(out, "%*s%*s", (int)strspn(column->head, " "), "", column->width,
                    column_text(column, row, buf));
    }
}

void rows_print(const struct row_table *table, const void *rows, int64_t n)
{
    row_print_head(stdout, table);
    putchar('\n');
    for (int64_t i = 0; i < n; i++) {
        row_print(stdout, table, (const char *)rows + (size_t)i * table->row_size);
        putchar('\n');
    }
}
