/* profiles/json/build_facts.h - what the programs were built from and with, for `--version`. */
#pragma once

#include "profiles/json/json.h"

/* Texts; "no" for a part that was left out. */
struct build_facts {
    const char *version;
    const char *commit; /* "" outside of git; "-dirty" at its end: files were changed */
    const char *date;   /* UTC, of SOURCE_DATE_EPOCH, else of the commit, else of README.md */
    const char *compiler, *flags;
    const char *mpi, *blas;        /* "ompi-c 4.1.4", "openblas 0.3.21" */
    const char *cuda, *cuda_archs; /* "13.0", "80 90" */
};
/* The Makefile writes it (profiles/json/build_facts.mk). */
extern const struct build_facts build_facts;

/* The first line and a line a fact on stdout, SQLite's version among them. */
void build_facts_print(const char *program);
/* "SQLite 3.40.1, cJSON 1.7.15", those that run now; returns buf. */
const char *build_libraries(char *buf, size_t size);
void build_facts_to_json(struct json *object);
