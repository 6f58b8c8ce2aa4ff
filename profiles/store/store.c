/* Open, migrate and lock the SQLite file, and move rows between tables and arrays. The functions
 * follow in that order: errors, opening, transactions, generic rows. Read these invariants first:
 *   1  A file is ours if its application_id says so. No other file is ever written to.
 *   2  user_version counts the applied sections of schema.sql. A section is applied whole or not.
 *   3  Every write is inside BEGIN IMMEDIATE ... COMMIT. Writers therefore queue (busy timeout)
 *      instead of failing halfway. A killed writer leaves only WAL frames that readers ignore.
 *   4  Readers never create, migrate or write.
 *   5  Nothing in a file runs code of its own: views, triggers and virtual tables are refused, the
 *      schema is not trusted, and each step of a statement has a limit. */
#include "profiles/store/store.h"

#include <errno.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "partition/base/arrays.h"
#include "partition/schedule/schedule.h"
#include "profiles/base/clock.h"
#include "profiles/store/schema.h"
#include "profiles/store/store_internal.h"
#include "profiles/base/whole_file.h"

#define BUSY_TIMEOUT_MS 30000
/* Readers work with stores from this version on. Versions 3 and 7 only allow more rows. Functions
 * that read what versions 4 to 6 added check that it exists. */
#define OLDEST_READABLE 2
/* Limits against damaged files. STEP_OPS_MAX: instructions of SQLite's machine in one step; sorting
 * 10 million rows takes some 3 * 10^8. VALUE_BYTES_MAX: the longest value is a job's text. */
#define STEP_OPS_MAX INT64_C(1000000000)
#define OPS_PER_LOOK 100000
#define VALUE_BYTES_MAX (64 << 20)

enum status store_fail(struct store *store, const char *what, struct err *err)
{
    int code = store->db ? sqlite3_extended_errcode(store->db) : SQLITE_NOMEM;
    const char *text = store->db ? sqlite3_errmsg(store->db) : "out of memory";
    enum status rc;
    if (code == SQLITE_IOERR_SHMSIZE) /* SQLite's own file beside the store cannot grow */
        code = SQLITE_FULL;
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        return err_nomem(err);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        store->busy = true;
        rc = err_set(err, ERR_SYSTEM, "%s: store '%s' is locked by another process", what,
                     store->path);
        err_hint(err, "wait for the other process to end, or use another store with --db");
        return rc;
    case SQLITE_READONLY:
        return err_set(err, ERR_SYSTEM, "%s: store '%s' is read-only", what, store->path);
    case SQLITE_FULL:
        return err_set(err, ERR_SYSTEM, "%s: no room left on the disk of store '%s'", what,
                       store->path);
    case SQLITE_NOTADB:
        return err_set(err, ERR_INPUT, "%s: '%s' is not an SQLite file", what, store->path);
    case SQLITE_CORRUPT:
    case SQLITE_ERROR: /* our statements fit our schema, so a table or column must be missing */
        return err_set(err, ERR_INPUT, "%s: store '%s' is damaged: %s", what, store->path, text);
    case SQLITE_INTERRUPT:
        return err_set(err, ERR_INPUT,
                       "%s: store '%s' is damaged: a query exceeds the limit on instructions", what,
                       store->path);
    case SQLITE_CONSTRAINT:
        return err_set(err, ERR_INPUT, "%s: store '%s': %s", what, store->path, text);
    default:
        return err_set(err, ERR_SYSTEM, "%s: store '%s': %s", what, store->path, text);
    }
}

/* --- transactions ----------------------------------------------------------------------------- */

static enum status exec_sql(struct store *store, const char *sql, const char *what, struct err *err)
{
    store->ops = 0;
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? OK
               : store_fail(store, what, err);
}

static void rollback(struct store *store)
{
    store->ops = 0;
    if (store->depth > 0 && !sqlite3_get_autocommit(store->db))
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    store->depth = 0;
}

enum status store_begin(struct store *store, struct err *err)
{
    if (store->depth == 0) {
        enum status rc = exec_sql(store, "BEGIN IMMEDIATE", "cannot write", err);
        if (rc != OK)
            return rc;
    }
    store->depth++;
    return OK;
}

enum status store_end(struct store *store, enum status rc, struct err *err)
{
    if (rc == OK && store->depth == 0)
        rc = err_set(err, ERR_SYSTEM, "store '%s': the transaction was rolled back", store->path);
    if (rc == OK && store->depth == 1)
        rc = exec_sql(store, "COMMIT", "cannot write", err);
    if (rc == OK)
        store->depth--;
    else
        rollback(store);
    return rc;
}

/* --- opening ---------------------------------------------------------------------------------- */

static enum status default_path(char *path, size_t size, struct err *err)
{
    const char *own = getenv("ELAPSE_DB"), *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    char names[4096]; /* of the user's entry; getpwuid() would share its buffer with all threads */
    struct passwd entry, *user = NULL;
    int length;
    if (!home || !*home)
        getpwuid_r(getuid(), &entry, names, sizeof names, &user);
    if (user)
        home = user->pw_dir;
    if (own && *own)
        length = snprintf(path, size, "%s", own);
    else if (data && *data)
        length = snprintf(path, size, "%s/elapse/profiles.db", data);
    else if (home && *home)
        length = snprintf(path, size, "%s/.local/share/elapse/profiles.db", home);
    else
        return err_set(err, ERR_SYSTEM, "no place for the store: no HOME (or use --db)");
    if (length < 0 || (size_t)length >= size)
        return err_set(err, ERR_INPUT, "the store's path is longer than %zu", size - 1);
    return OK;
}

/* SQLite calls this every OPS_PER_LOOK instructions; other than 0 interrupts the step. */
static int count_ops(void *ctx)
{
    struct store *store = ctx;
    store->ops += OPS_PER_LOOK;
    return store->ops > store->ops_limit;
}

/* Behind every sqlite3_open_v2(): see invariant 5. */
static void distrust(struct store *store)
{
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_limit(store->db, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX);
    store->ops_limit = STEP_OPS_MAX;
    sqlite3_progress_handler(store->db, OPS_PER_LOOK, count_ops, store);
}

static int open_db(struct store *store, const char *name, int flags)
{
    const int code = sqlite3_open_v2(name, &store->db, flags, NULL);
    if (code == SQLITE_OK) {
        distrust(store);
        file_note_input(store->path);
    }
    return code;
}

int store_step(struct store *store, sqlite3_stmt *stmt)
{
    store->ops = 0;
    return sqlite3_step(stmt);
}

static enum status get_int(struct store *store, const char *sql, int64_t *value, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc = OK;
    if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) != SQLITE_OK ||
        store_step(store, stmt) != SQLITE_ROW)
        rc = store_fail(store, "cannot open", err);
    else
        *value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return rc;
}

/* Apply the sections of schema.sql above `version`, inside the caller's transaction. */
static enum status migrate(struct store *store, int version, bool shipped, struct err *err)
{
    const char *what = NULL;
    store->ops = 0;
    return schema_apply(store->db, version, shipped, &what) == SQLITE_OK
               ? OK
               : store_fail(store, what, err);
}

/* Invariant 5: a view or trigger in the place of a table would run its own SQL for our queries. */
static enum status refuse_code(struct store *store, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status rc = store_prepare(store,
                                   "SELECT type, name FROM sqlite_schema WHERE type NOT IN "
                                   "('table', 'index') OR sql LIKE 'create virtual%' LIMIT 1",
                                   &stmt, err);
    if (rc != OK)
        return rc;
    const int step = store_step(store, stmt);
    if (step == SQLITE_ROW)
        rc = err_set(err, ERR_INPUT, "store '%s' holds a %.16s '%.64s', which Elapse never writes",
                     store->path, (const char *)sqlite3_column_text(stmt, 0),
                     (const char *)sqlite3_column_text(stmt, 1));
    else if (step != SQLITE_DONE)
        rc = store_fail(store, "cannot open", err);
    sqlite3_finalize(stmt);
    return rc;
}

enum status store_open_other(const char *path, struct store *store, struct err *err)
{
    int fd = -1;
    enum status rc = input_open(path, "open", &fd, NULL, err);
    if (fd >= 0)
        close(fd);
    store->path = rc == OK ? strdup(path) : NULL;
    if (rc == OK && !store->path)
        rc = err_nomem(err);
    if (rc == OK && open_db(store, path, SQLITE_OPEN_READONLY) != SQLITE_OK)
        rc = store_fail(store, "cannot open", err);
    THEN(refuse_code(store, err));
    return rc;
}

void store_close_other(struct store *store)
{
    sqlite3_close(store->db);
    free(store->path);
    *store = (struct store){0};
}

/* Check that the file is ours and read its version. *fresh: it is an empty database. The savepoint
 * makes the queries one snapshot, because another process may be setting the file up. */
static enum status identify(struct store *store, int64_t *version, bool *fresh, struct err *err)
{
    int64_t application = 0, objects = 0;
    enum status rc = exec_sql(store, "SAVEPOINT identify", "cannot open", err);
    THEN(get_int(store, "PRAGMA application_id", &application, err));
    THEN(get_int(store, "PRAGMA user_version", version, err));
    THEN(get_int(store, "SELECT count(*) FROM sqlite_schema", &objects, err));
    THEN(exec_sql(store, "RELEASE identify", "cannot open", err));
    if (rc != OK)
        return rc;
    *fresh = application == 0 && *version == 0 && objects == 0;
    if (*fresh)
        return OK;
    if (application != APPLICATION_ID)
        return err_set(err, ERR_INPUT, "'%s' is an SQLite file of another program", store->path);
    if (*version < 1 || *version > schema_newest()) {
        rc = err_set(err, ERR_INPUT, "store '%s' has schema version %lld, this program knows 1..%d",
                     store->path, (long long)*version, schema_newest());
        if (*version > schema_newest())
            err_hint(err, "a newer Elapse wrote it: use that version");
        return rc;
    }
    return refuse_code(store, err);
}

static uint32_t big_endian(const unsigned char bytes[4])
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static bool has_wal(const char *path)
{
    char wal[4096];
    struct stat st;
    snprintf(wal, sizeof wal, "%s-wal", path);
    return stat(wal, &st) == 0 && st.st_size > 0;
}

/* Check the header before SQLite opens the file, because SQLite might recover another program's
 * WAL. The file must be an SQLite file, ours or without an application_id yet, and as long as the
 * header says; a shorter file was cut off. (If a WAL exists the file may be shorter; SQLite
 * recovers that itself.) File format: sqlite.org/fileformat2.html, section 1.3. */
static enum status check_header(const char *path, struct err *err)
{
    /* Another process may run a checkpoint while we read, so a short file is checked again. */
    for (int look = 0;; look++) {
        unsigned char header[100];
        struct stat st;
        FILE *file = NULL;
        struct err why = {0};
        if (input_file(path, &file, &why) == ERR_INPUT) /* SQLite would wait for a pipe's writer */
            return err_set(err, ERR_INPUT, "%s", why.msg);
        if (!file)
            return OK; /* SQLite will report the reason */
        size_t got = fread(header, 1, sizeof header, file);
        bool known = fstat(fileno(file), &st) == 0;
        fclose(file);
        if (got == 0 || !known)
            return OK;
        if (memcmp(header, "SQLite format 3", got < 16 ? got : 16) != 0)
            return err_set(err, ERR_INPUT, "'%s' is not an SQLite file", path);
        int64_t page = header[16] << 8 | header[17], wanted = sizeof header;
        if (got == sizeof header) {
            uint32_t application = big_endian(header + 68);
            if (application != 0 && application != APPLICATION_ID)
                return err_set(err, ERR_INPUT, "'%s' is an SQLite file of another program", path);
            wanted = (page == 1 ? 65536 : page) * (int64_t)big_endian(header + 28);
        }
        if (wanted <= st.st_size || has_wal(path))
            return OK;
        if (look == 2)
            return err_set(err, ERR_INPUT, "store '%s' is truncated: %lld bytes of %lld", path,
                           (long long)st.st_size, (long long)wanted);
        usleep(1000);
    }
}

/* Open a WAL database in a folder that cannot be written to. SQLite then needs immutable=1. */
static int open_immutable(struct store *store)
{
    size_t length = strlen(store->path), used = 5;
    char *uri = malloc(3 * length + 32);
    if (!uri)
        return SQLITE_NOMEM;
    strcpy(uri, "file:");
    for (const char *c = store->path; *c; c++)
        if (strchr("%?#", *c))
            used += (size_t)sprintf(uri + used, "%%%02x", (unsigned char)*c);
        else
            uri[used++] = *c;
    strcpy(uri + used, "?immutable=1");
    sqlite3_close(store->db);
    store->db = NULL;
    int rc = open_db(store, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
    free(uri);
    return rc;
}

/* Open a store in memory that has only the shipped profiles, for reading. Its path stays that of the
 * user's file, which does not exist yet. */
static enum status open_shipped(struct store *store, struct err *err)
{
    sqlite3_close(store->db);
    store->db = NULL;
    if (open_db(store, ":memory:", SQLITE_OPEN_READWRITE) != SQLITE_OK)
        return store_fail(store, "cannot open", err);
#if SQLITE_HAS_IMAGES
    /* SQLite only reads what is marked so, hence all readers share the bytes. */
    return sqlite3_deserialize(store->db, "main", (unsigned char *)shipped_store,
                               shipped_store_bytes, shipped_store_bytes,
                               SQLITE_DESERIALIZE_READONLY) == SQLITE_OK
               ? OK
               : store_fail(store, "cannot open", err);
#else
    return migrate(store, 0, true, err);
#endif
}

/* Open for reading. users: the path is the user's default store, which need not exist. */
static enum status open_reader(struct store *store, bool users, struct err *err)
{
    int64_t version = 0;
    bool fresh;
    if (access(store->path, F_OK) != 0)
        return users ? open_shipped(store, err)
                     : err_set(err, ERR_SYSTEM, "cannot open store '%s': %s", store->path,
                               strerror(errno));
    enum status rc = check_header(store->path, err);
    if (rc != OK)
        return rc;
    if (open_db(store, store->path, SQLITE_OPEN_READWRITE) != SQLITE_OK)
        return store_fail(store, "cannot open", err);
    sqlite3_busy_timeout(store->db, store->patience_ms);
    rc = exec_sql(store, "PRAGMA query_only = ON", "cannot open", err);
    if (rc != OK)
        return rc;
    int probe = sqlite3_exec(store->db, "SELECT 1 FROM sqlite_schema", NULL, NULL, NULL);
    if ((probe == SQLITE_CANTOPEN || probe == SQLITE_READONLY) && access(store->path, R_OK) == 0) {
        if (has_wal(store->path)) { /* opened as immutable, the rows in the WAL would be missing */
            rc = err_set(err, ERR_SYSTEM, "cannot open store '%s': '-wal' next to it holds rows",
                         store->path);
            err_hint(err, "open it once where its folder can be written to");
            return rc;
        }
        if (open_immutable(store) != SQLITE_OK)
            return store_fail(store, "cannot open", err);
    }
    rc = identify(store, &version, &fresh, err);
    if (rc == OK && fresh)
        return users ? open_shipped(store, err)
                     : err_set(err, ERR_INPUT, "store '%s' is empty", store->path);
    if (rc == OK && version < OLDEST_READABLE) {
        rc = err_set(err, ERR_INPUT, "store '%s' has the old schema version %lld, not %d..%d",
                     store->path, (long long)version, OLDEST_READABLE, schema_newest());
        err_hint(err, "open it once for writing (elapse profiles import), which migrates it");
    }
    return rc;
}

static enum status open_writer(struct store *store, bool shipped, struct err *err)
{
    int64_t version = 0;
    bool fresh;
    enum status rc = folders_make(store->path, false, err);
    THEN(check_header(store->path, err));
    if (rc != OK)
        return rc;
    if (open_db(store, store->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) != SQLITE_OK)
        return store_fail(store, "cannot open", err);
    sqlite3_busy_timeout(store->db, store->patience_ms);
    rc = identify(store, &version, &fresh, err); /* must come before any write */
    THEN(exec_sql(store, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", "cannot open",
                  err));
    if (rc == OK && (fresh || version < schema_newest())) {
        rc = store_begin(store, err);
        if (rc == OK)
            rc = identify(store, &version, &fresh, err); /* another process may have migrated it */
        if (rc == OK && version < schema_newest())
            rc = migrate(store, (int)version, shipped, err);
        rc = store_end(store, rc, err);
    }
    THEN(exec_sql(store, "PRAGMA foreign_keys = ON", "cannot open", err));
    return rc;
}

/* Open a file that other processes may be creating at this moment. The switch to WAL needs
 * exclusive access. If waiting could deadlock, SQLite returns busy at once and ignores the timeout,
 * so this function tries again. */
static enum status open_patiently(struct store *store, enum store_mode mode, bool users,
                                  struct err *err)
{
    const int64_t start = clock_now_ns();
    for (;;) {
        struct err inner = {0};
        enum status rc = mode == STORE_READ ? open_reader(store, users, &inner)
                                            : open_writer(store, mode == STORE_WRITE, &inner);
        if (rc == OK)
            return OK;
        if (!store->busy || clock_now_ns() - start > (int64_t)store->patience_ms * 1000000)
            return err_copy(err, &inner);
        rollback(store);
        sqlite3_close(store->db);
        store->db = NULL;
        store->busy = false;
        usleep(5000);
    }
}

enum status store_open_within(const char *path, enum store_mode mode, int patience_ms, bool *locked,
                              struct store **store, struct err *err)
{
    const bool users = path == NULL;
    char found[4096];
    enum status rc = OK;
    struct store *got = calloc(1, sizeof *got);
    *locked = false;
    if (!got)
        return err_nomem(err);
    got->patience_ms = patience_ms;
    if (users) {
        rc = default_path(found, sizeof found, err);
        if (rc != OK)
            goto out;
        path = found;
    } else if (!*path) { /* SQLite would make a temporary store */
        rc = err_set(err, ERR_SYSTEM, "cannot open store '': %s", strerror(ENOENT));
        goto out;
    }
    got->path = strdup(path);
    if (!got->path) {
        rc = err_nomem(err);
        goto out;
    }
    rc = open_patiently(got, mode, users, err);
    *locked = rc != OK && got->busy;
    if (rc != OK)
        goto out;
    *store = got;
    got = NULL;
out:
    store_close(got);
    return rc;
}

enum status store_open(const char *path, enum store_mode mode, struct store **store,
                       struct err *err)
{
    bool locked;
    return store_open_within(path, mode, BUSY_TIMEOUT_MS, &locked, store, err);
}

void store_close(struct store *store)
{
    if (!store)
        return;
    sqlite3_close(store->db);
    free(store->path);
    free(store);
}

void store_set_patience(struct store *store, int patience_ms)
{
    store->patience_ms = patience_ms;
    sqlite3_busy_timeout(store->db, patience_ms);
}

bool store_was_locked(const struct store *store)
{
    return store->busy;
}

const char *store_path(const struct store *store)
{
    return store->path;
}

/* --- generic rows ----------------------------------------------------------------------------- */

enum status store_prepare(struct store *store, const char *sql, sqlite3_stmt **stmt,
                          struct err *err)
{
    return sqlite3_prepare_v2(store->db, sql, -1, stmt, NULL) == SQLITE_OK
               ? OK
               : store_fail(store, "cannot query", err);
}

void store_bind_column(sqlite3_stmt *stmt, int index, const struct member *column, const void *row)
{
    const char *at = (const char *)row + column->offset, *text;
    switch (column->type) {
    case MEMBER_TEXT:
        sqlite3_bind_text(stmt, index, at, -1, SQLITE_STATIC);
        break;
    case MEMBER_INT:
    case MEMBER_BOOL:
        sqlite3_bind_int64(stmt, index, member_int(column, row));
        break;
    case MEMBER_REAL:
        sqlite3_bind_double(stmt, index, *(const double *)at); /* NaN becomes NULL */
        break;
    case MEMBER_NAME:
        text = member_name(column, row);
        sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC);
        break;
    default: /* other types are never stored */
        break;
    }
}

static void fetch_column(sqlite3_stmt *stmt, int index, const struct member *column, void *row)
{
    char *at = (char *)row + column->offset;
    const char *text;
    int value;
    switch (column->type) {
    case MEMBER_TEXT:
        text = (const char *)sqlite3_column_text(stmt, index);
        snprintf(at, column->size, "%s", text ? text : "");
        break;
    case MEMBER_INT:
        member_put_int(column, sqlite3_column_int64(stmt, index), row);
        break;
    case MEMBER_BOOL:
        *(bool *)at = sqlite3_column_int64(stmt, index) != 0;
        break;
    case MEMBER_REAL:
        *(double *)at = sqlite3_column_type(stmt, index) == SQLITE_NULL
                            ? NAN
                            : sqlite3_column_double(stmt, index);
        break;
    case MEMBER_NAME:
        text = (const char *)sqlite3_column_text(stmt, index);
        value = text ? member_find_name(column, text) : 0;
        member_put_int(column, value > 0 ? value : 0, row);
        break;
    default:
        break;
    }
}

void store_name_columns(char *sql, size_t size, const struct member *columns, int n)
{
    size_t used = strlen(sql);
    for (int c = 0; c < n && used < size; c++)
        used += (size_t)snprintf(sql + used, size - used, "%s%s", c ? ", " : "", columns[c].name);
}

enum status store_put_rows(struct store *store, const struct row_table *table, int64_t owner,
                           const void *rows, int64_t n, struct err *err)
{
    char sql[1024];
    sqlite3_stmt *stmt = NULL;
    if (n == 0)
        return OK;
    const int first = table->owner ? 1 : 0; /* of the columns after the owner's id */
    snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO %s (%s%s", table->name,
             first ? table->owner : "", first ? ", " : "");
    store_name_columns(sql, sizeof sql, table->columns, table->num_columns);
    size_t used = strlen(sql);
    used += (size_t)snprintf(sql + used, sizeof sql - used, ") VALUES (");
    for (int c = 0; c < first + table->num_columns; c++)
        used += (size_t)snprintf(sql + used, sizeof sql - used, "%s?", c ? ", " : "");
    snprintf(sql + used, sizeof sql - used, ")");
    enum status rc = store_begin(store, err);
    if (rc != OK)
        return rc;
    rc = store_prepare(store, sql, &stmt, err);
    for (int64_t i = 0; i < n && rc == OK; i++) {
        const char *row = (const char *)rows + (size_t)i * table->row_size;
        if (first)
            sqlite3_bind_int64(stmt, 1, owner);
        for (int c = 0; c < table->num_columns; c++)
            store_bind_column(stmt, c + first + 1, &table->columns[c], row);
        if (store_step(store, stmt) != SQLITE_DONE)
            rc = store_fail(store, "cannot write", err);
        sqlite3_reset(stmt);
    }
    sqlite3_finalize(stmt);
    return store_end(store, rc, err);
}

enum status store_collect(struct store *store, sqlite3_stmt *stmt, const struct row_table *table,
                          struct rows *rows, struct err *err)
{
    char *got = NULL;
    int64_t count = 0, room = 0;
    enum status rc = OK;
    int step;
    while ((step = store_step(store, stmt)) == SQLITE_ROW) {
        if (!array_grow(&got, count + 1, &room, table->row_size)) {
            rc = err_nomem(err);
            break;
        }
        char *row = got + (size_t)count++ * table->row_size;
        memset(row, 0, table->row_size);
        for (int c = 0; c < table->num_columns; c++)
            fetch_column(stmt, c, &table->columns[c], row);
    }
    if (rc == OK && step != SQLITE_DONE)
        rc = store_fail(store, "cannot read", err);
    sqlite3_finalize(stmt);
    if (rc != OK) {
        free(got);
        return rc;
    }
    *rows = (struct rows){got, count};
    return OK;
}

enum status store_get_rows(struct store *store, const struct row_table *table, const char *tail,
                           const int64_t *args, struct rows *rows, struct err *err)
{
    char sql[1024] = "SELECT ";
    sqlite3_stmt *stmt = NULL;
    store_name_columns(sql, sizeof sql, table->columns, table->num_columns);
    size_t used = strlen(sql);
    snprintf(sql + used, sizeof sql - used, " FROM %s %s", table->name, tail);
    enum status rc = store_prepare(store, sql, &stmt, err);
    if (rc != OK)
        return rc;
    for (int i = 0; i < sqlite3_bind_parameter_count(stmt); i++)
        sqlite3_bind_int64(stmt, i + 1, args[i]);
    return store_collect(store, stmt, table, rows, err);
}
