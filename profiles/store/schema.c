#include "profiles/store/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/store/sql_text.h"

/* Sections of schema.sql: "-- version N" at the start of a line. */
static const char *section(int version)
{
    char mark[32];
    snprintf(mark, sizeof mark, "\n-- version %d\n", version);
    const char *at = strstr(sql_texts[0].sql, mark);
    return at ? at + 1 : NULL;
}

int schema_newest(void)
{
    int version = 0;
    while (section(version + 1))
        version++;
    return version;
}

static int exec(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

int schema_apply(sqlite3 *db, int version, bool shipped, const char **what)
{
    char pragma[96];
    const int newest = schema_newest(), first = version;
    int rc = SQLITE_OK;
    *what = "cannot set up";
    for (; version < newest && rc == SQLITE_OK; version++) {
        const char *from = section(version + 1), *to = section(version + 2);
        char *sql = to ? strndup(from, (size_t)(to - from)) : strdup(from);
        rc = sql ? exec(db, sql) : SQLITE_NOMEM;
        free(sql);
    }
    snprintf(pragma, sizeof pragma, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             APPLICATION_ID, newest);
    if (rc == SQLITE_OK)
        rc = exec(db, pragma);
    for (int i = 1; sql_texts[i].name && rc == SQLITE_OK && shipped && first == 0; i++) {
        *what = sql_texts[i].name;
        rc = exec(db, sql_texts[i].sql);
    }
    return rc;
}
