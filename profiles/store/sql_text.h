/* profiles/store/sql_text.h - profiles/schema.sql and profiles/shipped/ as text inside the program.
 *
 * The Makefile generates the C file from them. The first entry is the schema, then come the shipped
 * profiles, and the last entry has a NULL name. */
#pragma once

struct sql_text {
    const char *name; /* "schema", "rtx5000-paper" */
    const char *sql;
};
extern const struct sql_text sql_texts[];
