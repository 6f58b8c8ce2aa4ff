/* exec/data/unicode_tables.h - the tables behind unicode.c; private to it. */
#ifndef ELAPSE_EXEC_DATA_UNICODE_TABLES_H
#define ELAPSE_EXEC_DATA_UNICODE_TABLES_H

#include <stdint.h>

enum { UNICODE_FOLD_MAX = 3 };

/* A run of code points of one class is first << 3 | class. */
struct unicode_folding {
    uint32_t from, to[UNICODE_FOLD_MAX]; /* 0: no more */
};
extern const uint32_t unicode_runs[];
extern const int unicode_num_runs;
extern const struct unicode_folding unicode_folds[];
extern const int unicode_num_folds;

#endif
