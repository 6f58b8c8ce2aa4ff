/* profiles/store.h - the SQLite file that keeps profiles and run records.
 *
 * One file holds both (schema.sql): profiles for years, run records for every simulated or real
 * run. Invariants: a transaction is whole or absent, also after kill -9 (WAL); writers of several
 * processes queue up to 30 s and lose nothing; a file that is not ours, or of a newer version, is
 * refused and never touched; an older one is migrated step by step inside one transaction. A handle
 * belongs to one thread. */
#ifndef ELAPSE_PROFILES_STORE_H
#define ELAPSE_PROFILES_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/status.h"
#include "profiles/profile.h"

struct store; /* opaque */

enum store_mode {
    STORE_READ,  /* must exist; nothing is written */
    STORE_WRITE, /* created where missing (folders too), with the shipped profiles */
    STORE_RECORD /* the same without the shipped profiles: a run's own file */
};

/* path NULL: $ELAPSE_DB, or $XDG_DATA_HOME/elapse/profiles.db, or
 * ~/.local/share/elapse/profiles.db (~: $HOME, or where the system has the user at home), and in
 * STORE_READ mode the shipped profiles alone (in memory) where no file is there yet, or an empty
 * one. ERR_SYSTEM: missing, unreadable, read-only, locked for 30 s, disk full; ERR_INPUT:
 * truncated, damaged, not SQLite, not ours, newer. */
enum status store_open(const char *path, enum store_mode mode, struct store **store,
                       struct err *err);
void store_close(struct store *store); /* NULL is fine; an open transaction is rolled back */
const char *store_path(const struct store *store);

/* Write a whole profile in one transaction. MERGE adds to a profile of that name and replaces rows
 * of equal key; REPLACE drops what it held before; CREATE is ERR_INPUT when the name is taken. */
enum profile_write { PROFILE_MERGE, PROFILE_REPLACE, PROFILE_CREATE };
enum status store_put_profile(struct store *store, struct profile *profile, enum profile_write how,
                              struct err *err);

/* ERR_INFEASIBLE "no profile 'x' in store 'y'" with the nearest name. *profile must be zeroed or
 * cleared. */
enum status store_get_profile(struct store *store, const char *name, struct profile *profile,
                              struct err *err);
enum status store_remove_profile(struct store *store, const char *name, struct err *err);

/* All profiles, by name; device_kind NULL: any. *infos is fresh (free() it); rows may be NULL, else
 * fresh too: the number of rows of each. */
enum status store_list_profiles(struct store *store, const char *device_kind,
                                struct profile_info **infos, int64_t **rows, int *count,
                                struct err *err);

/* A transaction around several calls; store_commit() or store_rollback() ends it. */
enum status store_begin(struct store *store, struct err *err);
enum status store_commit(struct store *store, struct err *err);
void store_rollback(struct store *store);

#endif
