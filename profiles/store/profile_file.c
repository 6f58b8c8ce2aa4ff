/* Profiles as JSON, CSV and SQL text. Writers and readers go through profile_tables.
 * row_from_json() and cell_to_row() convert a value by its column. Read profile_file.h, which has
 * the formats, first. */
#include "profiles/store/profile_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/store/item_csv.h"

#define FORMAT_VERSION 1

/* --- writing ---------------------------------------------------------------------------------- */

void profile_to_json(const struct profile *profile, struct json *object)
{
    json_add_int(object, "elapse_profile", FORMAT_VERSION);
    row_to_json(json_add_object(object, "profile"), &profile_info_table, &profile->info);
    for (int t = 0; t < PROFILE_TABLES; t++) {
        const struct row_table *table = &profile_tables[t];
        rows_to_json(object, table->name, table, profile_row(profile, table, 0),
                     profile_num_rows(profile, table));
    }
}

static void write_real(FILE *out, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    /* SQLite's STRICT tables accept an integer for a REAL; ".0" only shows the type to a reader. */
    fprintf(out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

/* Write a text in quotes, and double the quotes inside it: '"' for CSV, '\'' for SQL. */
static void write_quoted(FILE *out, const char *text, char quote)
{
    fputc(quote, out);
    for (; *text; text++) {
        if (*text == quote)
            fputc(quote, out);
        fputc(*text, out);
    }
    fputc(quote, out);
}

static void write_cells(FILE *out, const struct row_table *table, const void *row, bool sql)
{
    for (int c = 0; c < table->num_columns; c++) {
        const struct member *column = &table->columns[c];
        const void *at = (const char *)row + column->offset;
        fputs(sql ? (c ? ", " : "") : ",", out);
        if (column->type == MEMBER_REAL)
            write_real(out, *(const double *)at);
        else if (column->type == MEMBER_INT)
            fprintf(out, "%" PRId64, *(const int64_t *)at);
        else if (sql || strpbrk(at, ",\"\r\n"))
            write_quoted(out, at, sql ? '\'' : '"');
        else
            fputs(at, out);
    }
}

static void write_names(FILE *out, const struct row_table *table, const char *separator)
{
    for (int c = 0; c < table->num_columns; c++)
        fprintf(out, "%s%s", c ? separator : "", table->columns[c].name);
}

void profile_to_csv(const struct profile *profile, FILE *out)
{
    for (int t = -1; t < PROFILE_TABLES; t++) {
        const struct row_table *table = t < 0 ? &profile_info_table : &profile_tables[t];
        int n = t < 0 ? 1 : profile_num_rows(profile, table);
        if (n == 0)
            continue;
        fputs("table,", out);
        write_names(out, table, ",");
        fputc('\n', out);
        for (int i = 0; i < n; i++) {
            fputs(table->name, out);
            write_cells(out, table, t < 0 ? &profile->info : profile_row(profile, table, i), false);
            fputc('\n', out);
        }
    }
}

void profile_to_sql(const struct profile *profile, FILE *out)
{
    fputs("INSERT INTO profile (", out);
    write_names(out, &profile_info_table, ", ");
    fputs(")\nVALUES (", out);
    write_cells(out, &profile_info_table, &profile->info, true);
    fputs(");\n", out);
    for (int t = 0; t < PROFILE_TABLES; t++) {
        const struct row_table *table = &profile_tables[t];
        int n = profile_num_rows(profile, table);
        for (int i = 0; i < n; i++) {
            /* 500 rows per statement, to keep statements readable; SQLite has no limit. */
            if (i % 500 == 0) {
                fprintf(out, "INSERT INTO %s (profile_id, ", table->name);
                write_names(out, table, ", ");
                fputs(")\nSELECT id, v.* FROM profile, (VALUES\n", out);
            }
            fputs(" (", out);
            write_cells(out, table, profile_row(profile, table, i), true);
            fputs(i % 500 == 499 || i == n - 1 ? ")) AS v\nWHERE name = " : "),\n", out);
            if (i % 500 == 499 || i == n - 1) {
                write_quoted(out, profile->info.name, '\'');
                fputs(";\n", out);
            }
        }
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

static int find_column(const struct row_table *table, const char *name)
{
    for (int c = 0; c < table->num_columns; c++)
        if (strcmp(table->columns[c].name, name) == 0)
            return c;
    return -1;
}

static enum status unknown_column(const struct row_table *table, const char *where,
                                  const char *name, struct err *err)
{
    const char *names[32], *near;
    char list[240];
    for (int c = 0; c < table->num_columns; c++)
        names[c] = table->columns[c].name;
    near = nearest_name(name, names, table->num_columns);
    enum status rc =
        err_set(err, ERR_INPUT, "%s: %s has no column '%.60s'%s%s%s", where, table->name, name,
                near ? ", nearest is '" : "", near ? near : "", near ? "'" : "");
    err_hint(err, "columns of %s: %s", table->name,
             join_names(names, table->num_columns, list, sizeof list));
    return rc;
}

static enum status bad_cell(const char *where, const struct member *column, const char *limit,
                            const char *value, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s must be %s, got %.60s", where, column->name, limit,
                   value);
}

static enum status put_text(const struct member *column, const char *text, const char *where,
                            void *row, struct err *err)
{
    char limit[64];
    if (strlen(text) >= column->size) {
        snprintf(limit, sizeof limit, "a text of at most %zu characters", column->size - 1);
        return bad_cell(where, column, limit, text, err);
    }
    memcpy((char *)row + column->offset, text, strlen(text));
    return OK;
}

static enum status row_from_json(const struct row_table *table, const struct json *object,
                                 const char *where, bool all, void *row, struct err *err)
{
    bool seen[32] = {false};
    if (json_type(object) != JSON_OBJECT)
        return err_set(err, ERR_INPUT, "%s: must be an object, got %s", where,
                       json_type_name(json_type(object)));
    for (struct json *m = json_first(object); m; m = json_next(m)) {
        int c = find_column(table, json_key(m));
        if (c < 0)
            return unknown_column(table, where, json_key(m), err);
        const struct member *column = &table->columns[c];
        void *at = (char *)row + column->offset;
        enum status rc = OK;
        seen[c] = true;
        if (column->type == MEMBER_TEXT) {
            rc = json_string(m)
                     ? put_text(column, json_string(m), where, row, err)
                     : bad_cell(where, column, "a text", json_type_name(json_type(m)), err);
        } else if (column->type == MEMBER_INT) {
            if (!json_int64(m, at))
                rc = bad_cell(where, column, "a whole number", json_type_name(json_type(m)), err);
        } else {
            *(double *)at = json_number(m);
            if (json_type(m) != JSON_NUMBER)
                rc = bad_cell(where, column, "a number", json_type_name(json_type(m)), err);
        }
        if (rc != OK)
            return rc;
    }
    for (int c = 0; c < table->num_columns && all; c++)
        if (!seen[c])
            return err_set(err, ERR_INPUT, "%s: %s is missing", where, table->columns[c].name);
    return OK;
}

/* Large enough for a row of any table. */
union any_row {
    struct profile_info info;
    struct layer_row layer;
    struct link_row link;
    struct collective_row collective;
    struct host_row host;
    struct memory_row memory;
};

static const struct row_table *find_table(const char *name)
{
    for (int t = 0; t < PROFILE_TABLES; t++)
        if (strcmp(profile_tables[t].name, name) == 0)
            return &profile_tables[t];
    return NULL;
}

static enum status profile_from_json(const struct json *root, const char *where,
                                     struct profile *profile, struct err *err)
{
    struct profile got = {0};
    char place[256];
    int64_t version = 0;
    enum status rc = OK;
    if (!json_int64(json_get(root, "elapse_profile"), &version) || version != FORMAT_VERSION)
        return err_set(err, ERR_INPUT, "%s: elapse_profile must be %d, got %s", where,
                       FORMAT_VERSION,
                       version ? "another version" : json_type_name(json_type(root)));
    for (struct json *m = json_first(root); m && rc == OK; m = json_next(m)) {
        const struct row_table *table = find_table(json_key(m));
        int i = 0;
        if (strcmp(json_key(m), "elapse_profile") == 0)
            continue;
        if (strcmp(json_key(m), "profile") == 0) {
            snprintf(place, sizeof place, "%s: profile", where);
            rc = row_from_json(&profile_info_table, m, place, false, &got.info, err);
            continue;
        }
        if (!table || json_type(m) != JSON_ARRAY) {
            rc = err_set(err, ERR_INPUT,
                         "%s: '%.60s' must be an array named layer_cost|link_cost|collective_cost|"
                         "host_cost|memory_use",
                         where, json_key(m));
            break;
        }
        for (struct json *r = json_first(m); r && rc == OK; r = json_next(r), i++) {
            union any_row row;
            memset(&row, 0, sizeof row);
            snprintf(place, sizeof place, "%s: %s[%d]", where, table->name, i);
            rc = row_from_json(table, r, place, true, &row, err);
            THEN(profile_add_row(&got, table, &row, err));
        }
    }
    THEN(profile_check(&got, where, err));
    if (rc == OK) {
        *profile = got;
        got = (struct profile){0};
    }
    profile_clear(&got);
    return rc;
}

enum { MAX_CELLS = 40, MAX_CELL = 512 };

/* Split one CSV record into cells and move *text past it. Returns the number of cells; -1 if a
 * quote does not end, or there are too many cells, or a cell is too long. */
static int split_record(const char **text, char cells[MAX_CELLS][MAX_CELL], int *lines)
{
    const char *at = *text;
    int n = 0;
    for (;;) {
        size_t used = 0;
        if (n == MAX_CELLS)
            return -1;
        bool quoted = *at == '"';
        if (quoted)
            at++;
        for (; *at; at++) {
            if (quoted && *at == '"') {
                if (at[1] != '"') {
                    at++;
                    quoted = false;
                    break;
                }
                at++;
            } else if (!quoted && (*at == ',' || *at == '\n' || *at == '\r')) {
                break;
            }
            *lines += *at == '\n';
            if (used == MAX_CELL - 1)
                return -1;
            cells[n][used++] = *at;
        }
        cells[n++][used] = '\0';
        if (quoted || (*at && *at != ',' && *at != '\n' && *at != '\r'))
            return -1;
        if (*at != ',')
            break;
        at++;
    }
    at += *at == '\r';
    if (*at == '\n') {
        at++;
        ++*lines;
    }
    *text = at;
    return n;
}

static enum status cell_to_row(const struct member *column, const char *cell, const char *where,
                               void *row, struct err *err)
{
    char *end = NULL;
    void *at = (char *)row + column->offset;
    if (column->type == MEMBER_TEXT)
        return put_text(column, cell, where, row, err);
    errno = 0;
    if (column->type == MEMBER_INT)
        *(int64_t *)at = strtoll(cell, &end, 10);
    else
        *(double *)at = strtod(cell, &end);
    if (end == cell || *end || (column->type == MEMBER_INT && errno == ERANGE))
        return bad_cell(where, column, column->type == MEMBER_INT ? "a whole number" : "a number",
                        cell, err);
    return OK;
}

/* Read the n cells of a record by the columns that the header names; the first cell is the table. */
static enum status cells_to_row(const struct row_table *table, char (*header)[MAX_CELL],
                                char (*cells)[MAX_CELL], int n, const char *place,
                                union any_row *row, struct err *err)
{
    bool seen[MAX_CELLS] = {false};
    enum status rc = OK;
    memset(row, 0, sizeof *row);
    for (int c = 1; c < n && rc == OK; c++) {
        const int column = find_column(table, header[c]);
        if (column < 0)
            return unknown_column(table, place, header[c], err);
        if (seen[column])
            return err_set(err, ERR_INPUT, "%s: column '%s' occurs twice", place, header[c]);
        rc = cell_to_row(&table->columns[column], cells[c], place, row, err);
        seen[column] = true;
    }
    return rc;
}

/* Whether a record of `n` cells can be a row: its table is known, and it has the header's cells. NULL
 * with err where not. */
static const struct row_table *table_of(const char *name, int n, int num_header, const char *place,
                                        struct err *err)
{
    const bool is_info = strcmp(name, "profile") == 0;
    const struct row_table *table = is_info ? &profile_info_table : find_table(name);
    if (!table)
        err_set(err, ERR_INPUT,
                "%s: the first cell must be table|profile|layer_cost|link_cost|"
                "collective_cost|host_cost|memory_use, got '%.40s'",
                place, name);
    else if (n != num_header)
        err_set(err, ERR_INPUT, "%s: must have %d cells, as the header has, got %d", place,
                num_header, n);
    else if (n != table->num_columns + 1 && !is_info)
        err_set(err, ERR_INPUT, "%s: %s must have %d columns, got %d", place, table->name,
                table->num_columns, n - 1);
    else
        return table;
    return NULL;
}

/* Add a row. *any: the row of the profile itself has been read. */
static enum status add_row(struct profile *profile, const struct row_table *table,
                           const union any_row *row, bool *any, const char *place, struct err *err)
{
    if (table != &profile_info_table)
        return profile_add_row(profile, table, row, err);
    if (*any)
        return err_set(err, ERR_INPUT, "%s: a file holds one profile", place);
    profile->info = row->info;
    *any = true;
    return OK;
}

enum status profile_from_csv(const char *text, const char *where, struct profile *profile,
                             struct err *err)
{
    struct profile got = {0};
    char(*cells)[MAX_CELL] = calloc(MAX_CELLS, sizeof *cells);
    char(*header)[MAX_CELL] = calloc(MAX_CELLS, sizeof *header);
    int line = 1, num_header = 0;
    bool any = false;
    enum status rc = cells && header ? OK : err_nomem(err);
    while (rc == OK && *text) {
        char place[256];
        int here = line, n = split_record(&text, cells, &line);
        snprintf(place, sizeof place, "%s:%d", where, here);
        if (n < 0) {
            rc = err_set(err, ERR_INPUT, "%s: a quote that does not end, or a record too long",
                         place);
            break;
        }
        if (n == 1 && !*cells[0])
            continue;
        if (strcmp(cells[0], "table") == 0) {
            memcpy(header, cells, MAX_CELLS * sizeof *cells);
            num_header = n;
            continue;
        }
        const struct row_table *table = table_of(cells[0], n, num_header, place, err);
        if (!table)
            rc = ERR_INPUT;
        union any_row row;
        THEN(cells_to_row(table, header, cells, n, place, &row, err));
        if (rc == OK && !*text && text[-1] != '\n') /* the last number may be cut off */
            rc = err_set(err, ERR_INPUT, "%s: the last line does not end: the text is cut off",
                         place);
        THEN(add_row(&got, table, &row, &any, place, err));
    }
    if (rc == OK && !any)
        rc = err_set(err, ERR_INPUT, "%s: has no row 'profile'", where);
    THEN(profile_check(&got, where, err));
    if (rc == OK) {
        *profile = got;
        got = (struct profile){0};
    }
    profile_clear(&got);
    free(cells);
    free(header);
    return rc;
}

enum status profile_read_file(const char *path, struct profile *profile, struct err *err)
{
    struct json *root = NULL;
    char *text = NULL;
    enum status rc = file_read_text(path, &text, err);
    if (rc != OK)
        return rc;
    const char first = text[strspn(text, " \t\r\n")];
    if (item_csv_is(text)) {
        rc = item_csv_read(text, path, profile, err);
    } else if (first != '{' && first != '\0') {
        rc = profile_from_csv(text, path, profile, err);
    } else {
        rc = json_parse(text, path, &root, err);
        THEN(profile_from_json(root, path, profile, err));
    }
    json_free(root);
    free(text);
    return rc;
}

/* --- difference ------------------------------------------------------------------------------- */

static bool same_values(const struct row_table *table, const void *a, const void *b)
{
    for (int c = 0; c < table->num_columns; c++) {
        const struct member *column = &table->columns[c];
        if (memcmp((const char *)a + column->offset, (const char *)b + column->offset,
                   column->size) != 0)
            return false;
    }
    return true;
}

void profile_diff(const struct profile *a, const struct profile *b, profile_diff_fn *report,
                  void *ctx)
{
    for (int t = 0; t < PROFILE_TABLES; t++) {
        const struct row_table *table = &profile_tables[t];
        int na = profile_num_rows(a, table), nb = profile_num_rows(b, table), i = 0, j = 0;
        while (i < na || j < nb) {
            const void *ra = i < na ? profile_row(a, table, i) : NULL;
            const void *rb = j < nb ? profile_row(b, table, j) : NULL;
            int order = !ra ? 1 : !rb ? -1 : profile_compare_rows(table, ra, rb);
            if (order < 0)
                report(ctx, table, ra, NULL);
            else if (order > 0)
                report(ctx, table, NULL, rb);
            else if (!same_values(table, ra, rb))
                report(ctx, table, ra, rb);
            i += order <= 0;
            j += order >= 0;
        }
    }
}
