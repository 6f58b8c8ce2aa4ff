/* A row becomes layer rows with the key of an item of an explicit model (layer_key_of()), for each
 * pass and each dtype, because the table does not say with which it was measured. */
#include "profiles/store/item_csv.h"

#include <stdlib.h>
#include <string.h>

enum { KIND, ITEM, MICROBATCH, FWD, BWD_INPUT, BWD_WEIGHT, UPDATE, NUM_COLUMNS };
static const char *const columns[NUM_COLUMNS] = {
    "kind", "item", "microbatch", "fwd_ns", "bwd_input_ns", "bwd_weight_ns", "update_ns"};

#define CELL_BYTES 64

/* The reader's place in the text. */
struct reader {
    const char *at, *where;
    int line;
    int column_of[NUM_COLUMNS]; /* of each cell of a row */
    int num_cells;
};

bool item_csv_is(const char *text)
{
    const size_t length = strcspn(text, ",\r\n");
    for (int c = 0; c < NUM_COLUMNS; c++)
        if (length == strlen(columns[c]) && strncmp(text, columns[c], length) == 0)
            return text[length] == ',';
    return false;
}

/* Copy the cells of the next line. Returns how many there are; -1: a cell is too long, more cells
 * than columns, a quote, or no end of the line. */
static int next_line(struct reader *r, char cells[NUM_COLUMNS][CELL_BYTES])
{
    int n = 0;
    r->line++;
    for (;;) {
        const size_t length = strcspn(r->at, ",\r\n\"");
        if (n == NUM_COLUMNS || length >= CELL_BYTES || r->at[length] == '"' || !r->at[length])
            return -1;
        memcpy(cells[n], r->at, length);
        cells[n++][length] = '\0';
        r->at += length + 1;
        if (r->at[-1] == ',')
            continue;
        if (r->at[-1] == '\r' && *r->at++ != '\n')
            return -1;
        return n;
    }
}

static enum status bad_line(const struct reader *r, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "%s:%d: must be at most %d cells without quotes and end with a newline",
                   r->where, r->line, NUM_COLUMNS);
}

static enum status read_header(struct reader *r, struct err *err)
{
    char cells[NUM_COLUMNS][CELL_BYTES], list[128];
    bool seen[NUM_COLUMNS] = {false};
    r->num_cells = next_line(r, cells);
    if (r->num_cells < 0)
        return bad_line(r, err);
    for (int i = 0; i < r->num_cells; i++) {
        int c = 0;
        while (c < NUM_COLUMNS && strcmp(columns[c], cells[i]) != 0)
            c++;
        if (c == NUM_COLUMNS || seen[c])
            return err_set(err, ERR_INPUT, "%s:1: %s column '%s', the columns are %s", r->where,
                           c == NUM_COLUMNS ? "unknown" : "second", cells[i],
                           join_names(columns, NUM_COLUMNS, list, sizeof list));
        seen[c] = true;
        r->column_of[i] = c;
    }
    for (int c = 0; c < UPDATE; c++)
        if (!seen[c])
            return err_set(err, ERR_INPUT, "%s:1: column '%s' is missing", r->where, columns[c]);
    return OK;
}

struct row {
    char kind[32], item[32];
    int64_t samples;
    double ns[NUM_COLUMNS];
};

static enum status read_cell(const struct reader *r, int column, const char *cell, struct row *row,
                             struct err *err)
{
    char what[160], *end = NULL;
    if (column <= ITEM) {
        char *to = column == KIND ? row->kind : row->item;
        if (!*cell || strlen(cell) >= sizeof row->item)
            return err_set(err, ERR_INPUT, "%s:%d: %s must have 1..%zu characters, got '%s'",
                           r->where, r->line, columns[column], sizeof row->item - 1, cell);
        strcpy(to, cell);
        return OK;
    }
    if (column == MICROBATCH) {
        snprintf(what, sizeof what, "%.120s:%d: microbatch", r->where, r->line);
        return parse_int(cell, what, 1, INT32_MAX, &row->samples, err);
    }
    row->ns[column] = strtod(cell, &end);
    if (end == cell || *end || !(row->ns[column] >= 0) || isinf(row->ns[column]))
        return err_set(err, ERR_INPUT, "%s:%d: %s must be a number of ns, got '%s'", r->where,
                       r->line, columns[column], cell);
    return OK;
}

static enum status add_pass(struct profile *profile, const struct row *row, enum pass pass,
                            int64_t samples, double ns, struct err *err)
{
    struct layer_row layer = {
        .ranks = 1,
        .samples = samples,
        .ns = {.median_ns = ns, .p10_ns = ns, .p90_ns = ns, .count = 1}
    };
    enum status rc = OK;
    strcpy(layer.backend, strcmp(row->kind, "cpu") == 0 ? "cpu" : "cuda");
    layer_key_of_name(row->item, &layer.key);
    strcpy(layer.pass, pass_name(pass));
    for (int dtype = 0; dtype <= DTYPE_TF32 && rc == OK; dtype++) {
        memset(layer.dtype, 0, sizeof layer.dtype);
        strcpy(layer.dtype, dtype_text(dtype));
        rc = profile_add_layer(profile, &layer, err);
    }
    return rc;
}

static bool has_update(const struct profile *profile, const struct row *row)
{
    for (int i = 0; i < profile->num_layers; i++)
        if (strcmp(profile->layers[i].pass, pass_name(PASS_UPDATE)) == 0 &&
            strcmp(profile->layers[i].key.item, row->item) == 0)
            return true;
    return false;
}

/* The update of an item is the same for all micro-batch sizes and optimizers: its first row's. */
static enum status add_row(struct profile *profile, const struct row *row, struct err *err)
{
    enum status rc = add_pass(profile, row, PASS_FWD, row->samples, row->ns[FWD], err);
    THEN(add_pass(profile, row, PASS_BWD_INPUT, row->samples, row->ns[BWD_INPUT], err));
    THEN(add_pass(profile, row, PASS_BWD_WEIGHT, row->samples, row->ns[BWD_WEIGHT], err));
    if (has_update(profile, row))
        return rc;
    for (int states = 0; states <= 2 && rc == OK; states++)
        rc = add_pass(profile, row, PASS_UPDATE, states, row->ns[UPDATE], err);
    return rc;
}

enum status item_csv_read(const char *text, const char *where, struct profile *profile,
                          struct err *err)
{
    struct reader r = {.at = text, .where = where};
    struct profile got = {0};
    enum status rc = read_header(&r, err);
    while (rc == OK && *r.at) {
        char cells[NUM_COLUMNS][CELL_BYTES];
        struct row row = {0};
        const int n = next_line(&r, cells);
        if (n == 1 && !*cells[0])
            continue;
        if (n != r.num_cells)
            rc = n < 0 ? bad_line(&r, err)
                       : err_set(err, ERR_INPUT, "%s:%d: must have %d cells, got %d", where, r.line,
                                 r.num_cells, n);
        for (int i = 0; i < n && rc == OK; i++)
            rc = read_cell(&r, r.column_of[i], cells[i], &row, err);
        if (rc == OK && *got.info.device_kind && strcmp(got.info.device_kind, row.kind) != 0)
            rc = err_set(err, ERR_INPUT, "%s:%d: a file has one kind of device, got '%s' and '%s'",
                         where, r.line, got.info.device_kind, row.kind);
        if (rc == OK) {
            strcpy(got.info.device_kind, row.kind);
            rc = add_row(&got, &row, err);
        }
    }
    if (rc == OK && got.num_layers == 0)
        rc = err_set(err, ERR_INPUT, "%s: has no rows", where);
    if (rc == OK) {
        snprintf(got.info.name, sizeof got.info.name, "items-%s", got.info.device_kind);
        snprintf(got.info.note, sizeof got.info.note, "times of items, from a table");
        rc = profile_check(&got, where, err);
    }
    if (rc == OK) {
        *profile = got;
        got = (struct profile){0};
    }
    profile_clear(&got);
    return rc;
}
