/* profiles/store/schema.h - set up a store's tables, and the store that has only the shipped profiles.
 *
 * The Makefile makes the text of profiles/schema.sql and profiles/shipped a part of the program
 * (sql_text.h), and by write_store.c the bytes of a store set up from it: SQL takes 20 ms, which a
 * command without a store of its own would wait for. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>

#define APPLICATION_ID 0x456c6170 /* "Elap" */
/* sqlite3_serialize() may be missing from older ones. */
#define SQLITE_HAS_IMAGES (SQLITE_VERSION_NUMBER >= 3036000)

/* The number of sections of schema.sql, which user_version counts. */
int schema_newest(void);

/* Apply the sections above `version`, inside the caller's transaction; where version is 0 and `shipped`
 * is set, insert the shipped profiles. A code of SQLite; after an error *what says at what. */
int schema_apply(sqlite3 *db, int version, bool shipped, const char **what);

/* A database file with all sections and the shipped profiles. Empty without SQLITE_HAS_IMAGES. */
extern const unsigned char shipped_store[];
extern const long shipped_store_bytes;
