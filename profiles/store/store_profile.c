/* Profiles in the store. Table profile has one row for each; the rows of profile_tables refer to it
 * by its id. Read profile.h first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "profiles/store/store_internal.h"

/* Find the id of a profile; 0 if there is none. */
static enum status find_profile(struct store *store, const char *name, int64_t *id, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc = store_prepare(store, "SELECT id FROM profile WHERE name = ?", &stmt, err);
    if (rc != OK)
        return rc;
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    int step = store_step(store, stmt);
    *id = step == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = store_fail(store, "cannot read", err);
    sqlite3_finalize(stmt);
    return rc;
}

/* Table profile as it is in this store. An older store lacks the last columns. If the table is
 * missing, one column remains, so the next query fails and reports the damage. */
static enum status info_table(struct store *store, struct row_table *table, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc = store_prepare(
        store,
        "SELECT max(1, min(count(*), ?)) FROM pragma_table_info('profile') WHERE name <> 'id'",
        &stmt, err);
    if (rc != OK)
        return rc;
    sqlite3_bind_int(stmt, 1, profile_info_table.num_columns);
    *table = profile_info_table;
    if (store_step(store, stmt) == SQLITE_ROW)
        table->num_columns = sqlite3_column_int(stmt, 0);
    else
        rc = store_fail(store, "cannot read", err);
    sqlite3_finalize(stmt);
    return rc;
}

static enum status no_profile(struct store *store, const char *name, struct err *err)
{
    struct profile_info *infos = NULL;
    const char *names[64];
    int count = 0, n = 0;
    char list[200];
    if (store_list_profiles(store, NULL, &infos, &count, NULL) != OK)
        count = 0;
    for (int i = 0; i < count && n < 64; i++)
        names[n++] = infos[i].name;
    const char *near = nearest_name(name, names, n);
    enum status rc =
        err_set(err, ERR_INFEASIBLE, "no profile '%s' in store '%s'%s%s%s", name, store->path,
                near ? ", nearest is '" : "", near ? near : "", near ? "'" : "");
    err_hint(err, "profiles: %s", n ? join_names(names, n, list, sizeof list) : "none");
    free(infos);
    return rc;
}

/* Insert the row of a profile, or update it in place, because replacing it would delete the rows
 * that refer to it. */
static enum status put_info(struct store *store, const struct profile_info *info, int64_t id,
                            int64_t *new_id, struct err *err)
{
    char sql[1024];
    sqlite3_stmt *stmt = NULL;
    const struct member *columns = profile_info_table.columns;
    const int n = profile_info_table.num_columns;
    size_t used;
    if (id) {
        used = (size_t)snprintf(sql, sizeof sql, "UPDATE profile SET ");
        for (int c = 0; c < n; c++)
            used += (size_t)snprintf(sql + used, sizeof sql - used, "%s%s = ?%d", c ? ", " : "",
                                     columns[c].name, c + 1);
        snprintf(sql + used, sizeof sql - used, " WHERE id = ?%d", n + 1);
    } else {
        snprintf(sql, sizeof sql, "INSERT INTO profile (");
        store_name_columns(sql, sizeof sql, columns, n);
        used = strlen(sql);
        used += (size_t)snprintf(sql + used, sizeof sql - used, ") VALUES (?");
        for (int c = 1; c < n; c++)
            used += (size_t)snprintf(sql + used, sizeof sql - used, ", ?");
        snprintf(sql + used, sizeof sql - used, ")");
    }
    enum status rc = store_prepare(store, sql, &stmt, err);
    if (rc != OK)
        return rc;
    for (int c = 0; c < n; c++)
        store_bind_column(stmt, c + 1, &columns[c], info);
    if (id)
        sqlite3_bind_int64(stmt, n + 1, id);
    if (store_step(store, stmt) != SQLITE_DONE)
        rc = store_fail(store, "cannot write", err);
    sqlite3_finalize(stmt);
    *new_id = id ? id : sqlite3_last_insert_rowid(store->db);
    return rc;
}

static enum status delete_by_id(struct store *store, const char *table, const char *column,
                                int64_t id, struct err *err)
{
    char sql[128];
    sqlite3_stmt *stmt = NULL;
    snprintf(sql, sizeof sql, "DELETE FROM %s WHERE %s = ?", table, column);
    enum status rc = store_prepare(store, sql, &stmt, err);
    if (rc != OK)
        return rc;
    sqlite3_bind_int64(stmt, 1, id);
    if (store_step(store, stmt) != SQLITE_DONE)
        rc = store_fail(store, "cannot write", err);
    sqlite3_finalize(stmt);
    return rc;
}

enum status store_put_profile(struct store *store, struct profile *profile, enum profile_write how,
                              struct err *err)
{
    int64_t id = 0;
    enum status rc = profile_check(profile, profile->info.name, err);
    THEN(store_begin(store, err));
    if (rc != OK)
        return rc;
    rc = find_profile(store, profile->info.name, &id, err);
    if (rc == OK && id && how == PROFILE_CREATE) {
        rc = err_set(err, ERR_INPUT, "profile '%s' is already in store '%s'", profile->info.name,
                     store->path);
        err_hint(err, "give it another name, remove the old one, or --replace it");
    }
    THEN(put_info(store, &profile->info, id, &id, err));
    for (int t = 0; t < PROFILE_TABLES && rc == OK; t++) {
        const struct row_table *table = &profile_tables[t];
        int n = profile_num_rows(profile, table);
        if (how == PROFILE_REPLACE)
            rc = delete_by_id(store, table->name, "profile_id", id, err);
        if (rc == OK && n > 0)
            rc = store_put_rows(store, table, id, profile_row(profile, table, 0), n, err);
    }
    return store_end(store, rc, err);
}

enum status store_get_profile(struct store *store, const char *name, struct profile *profile,
                              struct err *err)
{
    struct profile got = {0};
    struct row_table infos;
    struct rows rows = {0};
    int64_t id = 0;
    enum status rc = find_profile(store, name, &id, err);
    if (rc == OK && !id)
        rc = no_profile(store, name, err);
    THEN(info_table(store, &infos, err));
    THEN(store_get_rows(store, &infos, "WHERE id = ?", &id, &rows, err));
    if (rc == OK && rows.n == 1)
        got.info = *(struct profile_info *)rows.at;
    free(rows.at);
    for (int t = 0; t < PROFILE_TABLES && rc == OK; t++) {
        const struct row_table *table = &profile_tables[t];
        rows = (struct rows){0};
        /* The primary key gives this order already; profile_check() sorts to be certain. */
        rc = store_get_rows(store, table, "WHERE profile_id = ?", &id, &rows, err);
        for (int64_t i = 0; i < rows.n && rc == OK; i++)
            rc = profile_add_row(&got, table, (char *)rows.at + (size_t)i * table->row_size, err);
        free(rows.at);
    }
    THEN(profile_check(&got, store->path, err));
    if (rc == OK) {
        *profile = got;
        got = (struct profile){0};
    }
    profile_clear(&got);
    return rc;
}

enum status store_remove_profile(struct store *store, const char *name, struct err *err)
{
    int64_t id = 0;
    enum status rc = store_begin(store, err);
    if (rc != OK)
        return rc;
    rc = find_profile(store, name, &id, err);
    if (rc == OK && !id)
        rc = no_profile(store, name, err);
    THEN(delete_by_id(store, "profile", "id", id, err));
    return store_end(store, rc, err);
}

/* The rows of a profile in all its tables. */
static enum status count_rows(struct store *store, struct profile_info *info, struct err *err)
{
    enum status rc = OK;
    for (int t = 0; t < PROFILE_TABLES && rc == OK; t++) {
        char sql[160];
        sqlite3_stmt *stmt = NULL;
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM %s WHERE profile_id = (SELECT id FROM profile WHERE "
                 "name = ?)",
                 profile_tables[t].name);
        rc = store_prepare(store, sql, &stmt, err);
        if (rc != OK)
            break;
        sqlite3_bind_text(stmt, 1, info->name, -1, SQLITE_STATIC);
        if (store_step(store, stmt) == SQLITE_ROW)
            info->num_rows += sqlite3_column_int64(stmt, 0);
        else
            rc = store_fail(store, "cannot read", err);
        sqlite3_finalize(stmt);
    }
    return rc;
}

enum status store_list_profiles(struct store *store, const char *device_kind,
                                struct profile_info **infos, int *count, struct err *err)
{
    int64_t kept = 0;
    struct row_table table;
    struct rows all = {0};
    enum status rc = info_table(store, &table, err);
    THEN(store_get_rows(store, &table, "ORDER BY name", NULL, &all, err));
    struct profile_info *got = all.at;
    for (int64_t i = 0; i < all.n && rc == OK; i++)
        if (!device_kind || strcmp(got[i].device_kind, device_kind) == 0) {
            got[kept] = got[i];
            rc = count_rows(store, &got[kept++], err);
        }
    if (rc != OK) {
        free(got);
        return rc;
    }
    *infos = got;
    *count = (int)kept;
    return OK;
}
