/* profiles/store/store.h - the SQLite file that keeps profiles and run records.
 *
 * One file holds both; schema.sql has the tables. Invariants:
 *   - A transaction is whole or absent, even after kill -9 (WAL).
 *   - Writers of several processes queue up to 30 s and lose nothing.
 *   - A file of another program or of a newer version is refused and never changed.
 *   - An older file is migrated inside one transaction when it is opened for writing.
 * A handle belongs to one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"
#include "profiles/store/profile.h"

struct store; /* opaque */

enum store_mode {
    STORE_READ,  /* the file must exist and is not written */
    STORE_WRITE, /* a missing file is created (folders too), with the shipped profiles */
    STORE_RECORD /* a missing file is created without the shipped profiles: a run's own file */
};

/* Open a store. path NULL: $ELAPSE_DB, or $XDG_DATA_HOME/elapse/profiles.db, or
 * ~/.local/share/elapse/profiles.db (~: $HOME, or the home folder in the system's user database).
 * If that file is missing or empty, STORE_READ opens the shipped profiles in memory. ERR_SYSTEM:
 * missing, unreadable, read-only, locked for 30 s, disk full; ERR_INPUT: truncated, damaged, not
 * SQLite, of another program, of a newer version. */
enum status store_open(const char *path, enum store_mode mode, struct store **store,
                       struct err *err);
/* The same, but this and later calls wait for a lock for patience_ms. *locked: whether a lock is
 * what it failed of. */
enum status store_open_within(const char *path, enum store_mode mode, int patience_ms, bool *locked,
                              struct store **store, struct err *err);
void store_close(struct store *store); /* store may be NULL; rolls back an open transaction */
const char *store_path(const struct store *store);
/* Set how long a call waits for the lock of another process (30 s unless set). */
void store_set_patience(struct store *store, int patience_ms);
/* Whether a call has failed because of the lock of another process. */
bool store_was_locked(const struct store *store);

/* Write a whole profile in one transaction. MERGE adds to the profile of that name and replaces
 * rows with equal keys; REPLACE drops the old rows; CREATE is ERR_INPUT if the name is taken. */
enum profile_write { PROFILE_MERGE, PROFILE_REPLACE, PROFILE_CREATE };
enum status store_put_profile(struct store *store, struct profile *profile, enum profile_write how,
                              struct err *err);

/* ERR_INFEASIBLE "no profile 'x' in store 'y'" with the nearest name. *profile must be zeroed or
 * cleared. */
enum status store_get_profile(struct store *store, const char *name, struct profile *profile,
                              struct err *err);
enum status store_remove_profile(struct store *store, const char *name, struct err *err);

/* List all profiles by name, each with its num_rows; device_kind NULL: of any kind. *infos is fresh
 * (free() it). */
enum status store_list_profiles(struct store *store, const char *device_kind,
                                struct profile_info **infos, int *count, struct err *err);
