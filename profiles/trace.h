/* profiles/trace.h - write the ops of a run as a Chrome trace (Perfetto opens it) or as CSV.
 *
 * Rows are those of run records (struct op_row), so simulated and real runs look the same in a
 * viewer. Each replica is a process. Each rank is a thread, with one more thread for its sends and
 * receives. An arrow goes from each send to its receive. */
#ifndef ELAPSE_PROFILES_TRACE_H
#define ELAPSE_PROFILES_TRACE_H

#include <stdint.h>
#include <stdio.h>

#include "partition/status.h"
#include "profiles/record.h"

struct trace; /* opaque */

/* Write a trace as a stream; only the names that were written are kept in memory. title names the
 * processes ("simulated", "real"). base_ns is added to every time of trace_ops(): the start of the
 * step in the run. The caller keeps the FILE and checks ferror(); a failed write is not returned.
 */
enum status trace_begin(FILE *out, const char *title, struct trace **trace, struct err *err);
void trace_ops(struct trace *trace, const struct op_row *rows, int64_t n, int64_t base_ns);
enum status trace_end(struct trace *trace, struct err *err); /* ERR_NOMEM; always frees the trace */

/* Write a trace or a CSV file, which appears whole or not at all. CSV columns:
 * step,replica,rank,op, stage,microbatch,arg,start_ns,end_ns. */
enum status trace_write_file(const char *path, const char *title, const struct op_row *rows,
                             int64_t n, struct err *err);
enum status ops_csv_write_file(const char *path, const struct op_row *rows, int64_t n,
                               struct err *err);

#endif
