#include "profiles/store/choice.h"

#include <stddef.h>

#include "profiles/store/store_internal.h"

static enum status has_table(struct store *store, bool *has, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc = store_prepare(
        store, "SELECT 1 FROM sqlite_schema WHERE name = 'library_choice'", &stmt, err);
    if (rc != OK)
        return rc;
    int step = store_step(store, stmt);
    *has = step == SQLITE_ROW;
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = store_fail(store, "cannot read", err);
    sqlite3_finalize(stmt);
    return rc;
}

static void bind_place(sqlite3_stmt *stmt, const struct choice_place *place)
{
    sqlite3_bind_text(stmt, 1, place->device, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, place->libraries, -1, SQLITE_STATIC);
}

static const struct row_table choice_table = {
    .name = "library_choice",
    .row_size = sizeof(struct library_choice),
    COLUMNS(COLUMN(library_choice, "problem", TEXT, problem),
            COLUMN(library_choice, "answer", TEXT, answer))};

enum status store_get_choices(struct store *store, const struct choice_place *place,
                              struct library_choice **list, int *num, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    struct rows rows = {0};
    bool has = false;
    enum status rc = has_table(store, &has, err);
    if (rc == OK && has)
        rc = store_prepare(store,
                           "SELECT problem, answer FROM library_choice WHERE device_name = ? AND "
                           "libraries = ? ORDER BY problem",
                           &stmt, err);
    if (rc == OK && stmt) {
        bind_place(stmt, place);
        rc = store_collect(store, stmt, &choice_table, &rows, err);
    }
    if (rc != OK)
        return rc;
    *list = rows.at;
    *num = (int)rows.n;
    return OK;
}

enum status store_put_choices(struct store *store, const struct choice_place *place,
                              const struct library_choice *list, int num, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc = store_begin(store, err);
    if (rc != OK)
        return rc;
    rc = store_prepare(store, "INSERT OR REPLACE INTO library_choice VALUES (?, ?, ?, ?)", &stmt,
                       err);
    for (int i = 0; rc == OK && i < num; i++) {
        bind_place(stmt, place);
        sqlite3_bind_text(stmt, 3, list[i].problem, -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 4, list[i].answer, -1, SQLITE_STATIC);
        if (store_step(store, stmt) != SQLITE_DONE)
            rc = store_fail(store, "cannot write", err);
        sqlite3_reset(stmt);
    }
    sqlite3_finalize(stmt);
    return store_end(store, rc, err);
}
