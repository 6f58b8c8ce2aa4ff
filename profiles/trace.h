/* profiles/trace.h - ops with start and end as a Chrome trace (Perfetto opens it) and as CSV.
 *
 * Rows are those of run records (struct op_row), so that simulated and real runs draw alike: a
 * process a replica, a thread a rank, and one more thread per rank for its sends and receives. */
#ifndef ELAPSE_PROFILES_TRACE_H
#define ELAPSE_PROFILES_TRACE_H

#include <stdint.h>
#include <stdio.h>

#include "partition/status.h"
#include "profiles/record.h"

struct trace; /* opaque */

/* Streams: nothing is kept but the set of names already announced. title names the processes
 * ("simulated", "real"); base_ns is added to every time of trace_ops() (a step's place in the run).
 * The FILE stays the caller's, and a failed write shows in it alone. */
enum status trace_begin(FILE *out, const char *title, struct trace **trace, struct err *err);
void trace_ops(struct trace *trace, const struct op_row *rows, int64_t n, int64_t base_ns);
enum status trace_end(struct trace *trace, struct err *err); /* ERR_NOMEM; frees it in any case */

/* Both in whole files, appearing at once or not at all. CSV columns: step,replica,rank,op,stage,
 * microbatch,arg,start_ns,end_ns. */
enum status trace_write_file(const char *path, const char *title, const struct op_row *rows,
                             int64_t n, struct err *err);
enum status ops_csv_write_file(const char *path, const struct op_row *rows, int64_t n,
                               struct err *err);

#endif
