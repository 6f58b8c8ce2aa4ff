/* exec/record/record_rows.h - the rows of a run's record on their way into run.db.
 *
 * Training never depends on run.db. Rows wait in memory while another process, such as a backup,
 * holds its lock, or while it cannot be written for another reason; each later call tries again.
 * From ROWS_WAIT_BYTES on, rows of steps and ops go into a second store of equal form,
 * run-waiting.db beside run.db. At the end of the run the others follow, and all come back from
 * there if they can. What neither store takes is dropped and counted. Rank 0 only. */
#pragma once

#include "profiles/store/record.h"

enum { ROWS_WAIT_BYTES = 16 << 20, ROWS_NOTE_BYTES = 320 };

struct record_rows; /* opaque */

enum row_kind { ROWS_EPOCH, ROWS_STEP, ROWS_OP, ROWS_TRANSITION, ROWS_MEMORY, ROW_KINDS };

/* Open the store of folder dir and begin the run's record. A lock is waited for for 2 s; if it is
 * held longer, rows wait from the start. Otherwise it fails as store_open() and record_start():
 * then nothing has been trained yet. */
enum status record_rows_open(const char *dir, const struct run_info *info,
                             struct record_rows **rows, struct err *err);

/* Give the record the steps that it lacks of those that the run took before this start: rows that still
 * waited when a start was killed are in metrics.jsonl alone. They join the start before this one. steps
 * ascend, and are changed. While run.db is locked nothing is done. */
void record_rows_fill(struct record_rows *rows, struct step_row *steps, int64_t n);

/* Hand over n rows of a kind (struct epoch_row, step_row, ...), which are copied. Waits at most
 * some 50 ms for a lock. */
void record_rows_add(struct record_rows *rows, enum row_kind kind, const void *at, int64_t n);

/* Write what waits, and mark the record finished. A lock is waited for for patience_ms at most.
 * note is empty, or says where rows are that run.db has not. */
void record_rows_finish(struct record_rows *rows, int64_t total_ns, int patience_ms,
                        char note[ROWS_NOTE_BYTES]);

/* Write what waits, and close the stores. NULL is fine. */
void record_rows_free(struct record_rows *rows);
