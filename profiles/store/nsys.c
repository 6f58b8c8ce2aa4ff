/* The tables NVTX_EVENTS and StringIds, by the export schema of Nsight Systems (2021.5 to 2025): a
 * text is in the event or in StringIds; types 59 and 60 are ranges of push and pop, and of start and
 * end; times are in ns. */
#include "profiles/store/nsys.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "partition/base/arrays.h"
#include "partition/base/units.h"
#include "profiles/base/whole_file.h"
#include "profiles/store/store_internal.h"

/* Ranges of one name on one thread. */
struct series {
    char name[64]; /* without digits */
    int64_t thread, total_ns, room, n;
    int64_t *begin_ns; /* owned, n entries, ascending */
};
struct all_series {
    struct series *at; /* owned */
    int n;
};

/* Copy a range's name without its digits; false: it is no step. */
static bool step_name(const char *text, char *name, size_t size)
{
    static const char *const parts[] = {"forward", "backward", "micro"};
    size_t used = 0;
    for (; *text && used + 1 < size; text++)
        if (!isdigit((unsigned char)*text))
            name[used++] = *text;
    name[used] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcasestr(name, parts[i]))
            return false;
    return strcasestr(name, "step") || strcasestr(name, "iter");
}

static enum status add_range(struct all_series *all, const char *name, int64_t thread,
                             int64_t begin_ns, int64_t length_ns, struct err *err)
{
    int i = 0;
    while (i < all->n && (all->at[i].thread != thread || strcmp(all->at[i].name, name) != 0))
        i++;
    if (i == all->n) {
        if (!array_extend(&all->at, all->n, sizeof *all->at))
            return err_nomem(err);
        all->at[all->n] = (struct series){.thread = thread};
        snprintf(all->at[all->n++].name, sizeof all->at->name, "%s", name);
    }
    struct series *s = &all->at[i];
    if (!array_grow(&s->begin_ns, s->n + 1, &s->room, sizeof *s->begin_ns))
        return err_nomem(err);
    s->begin_ns[s->n++] = begin_ns;
    s->total_ns += length_ns;
    return OK;
}

static enum status collect(struct store *store, struct all_series *all, struct err *err)
{
    static const char sql[] =
        "SELECT coalesce(nullif(e.text, ''), s.value), e.start, e.\"end\" - e.start, e.globalTid "
        "FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId "
        "WHERE e.eventType IN (59, 60) AND e.\"end\" > e.start ORDER BY e.start";
    sqlite3_stmt *stmt = NULL;
    enum status rc = OK;
    int step;
    if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) != SQLITE_OK)
        return err_set(err, ERR_INPUT, "%s: no ranges of NVTX as Nsight Systems exports them: %s",
                       store->path, sqlite3_errmsg(store->db));
    while ((step = store_step(store, stmt)) == SQLITE_ROW && rc == OK) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        char name[64];
        if (text && step_name(text, name, sizeof name))
            rc = add_range(all, name, sqlite3_column_int64(stmt, 3), sqlite3_column_int64(stmt, 1),
                           sqlite3_column_int64(stmt, 2), err);
    }
    if (rc == OK && step != SQLITE_DONE)
        rc = err_set(err, ERR_INPUT, "%s: %s", store->path, sqlite3_errmsg(store->db));
    sqlite3_finalize(stmt);
    return rc;
}

/* The median distance between begins, which it replaces by the distances. */
static double median_distance(struct series *s, bool *first_left_out)
{
    if (s->n == 1)
        return (double)s->total_ns;
    for (int64_t i = 0; i + 1 < s->n; i++)
        s->begin_ns[i] = s->begin_ns[i + 1] - s->begin_ns[i];
    *first_left_out = s->n - 1 > 2;
    int64_t *const from = s->begin_ns + *first_left_out;
    const int64_t many = s->n - 1 - *first_left_out;
    qsort(from, (size_t)many, sizeof *from, compare_int64);
    return ((double)from[(many - 1) / 2] + (double)from[many / 2]) / 2;
}

enum status nsys_step_ns(const char *path, double *ns, bool *first_left_out, struct err *err)
{
    struct store store = {0};
    struct all_series all = {0};
    struct series *longest = NULL;
    enum status rc = store_open_other(path, &store, err);
    THEN(collect(&store, &all, err));
    for (int i = 0; i < all.n && rc == OK; i++)
        if (!longest || all.at[i].total_ns > longest->total_ns)
            longest = &all.at[i];
    if (rc == OK && !longest)
        rc = err_set(err, ERR_INPUT, "%s: no range of NVTX has 'step' or 'iter' in its name", path);
    *first_left_out = false;
    if (rc == OK)
        *ns = median_distance(longest, first_left_out);
    for (int i = 0; i < all.n; i++)
        free(all.at[i].begin_ns);
    free(all.at);
    store_close_other(&store);
    return rc;
}
