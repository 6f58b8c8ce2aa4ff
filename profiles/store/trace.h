/* profiles/store/trace.h - write the ops of a run as a Chrome trace (Perfetto opens it) or as CSV.
 *
 * Rows are those of run records (struct op_row), so simulated and real runs look the same in a
 * viewer. Each pipeline is a process. Each rank has a thread for its passes, and one each for its
 * sends, receives, all-reduces and cache copies. Ops of a thread never overlap, because viewers
 * expect nested slices: a thread that would need it gets a second lane ("rank 0 sends 2"). An arrow
 * goes from each send to its receive. Counters show idle ranks and, where known, memory. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "partition/base/status.h"
#include "profiles/store/record.h"

struct trace; /* opaque */

/* Write a trace as a stream. It keeps the names that were written and the rows of one step. title
 * names the processes ("simulated", "measured"). base_ns is added to every time of trace_ops(): the
 * start of the step in the run. Rows of one step may come in several calls, but before those of the
 * next step. The caller keeps the FILE and checks ferror(); a failed write is not returned. */
enum status trace_begin(FILE *out, const char *title, struct trace **trace, struct err *err);
void trace_ops(struct trace *trace, const struct op_row *rows, int64_t n, int64_t base_ns);

/* Begin another group of processes, at most TRACE_GROUPS_MAX in a file. Rows and counters from here
 * on belong to it. */
#define TRACE_GROUPS_MAX 16
void trace_group(struct trace *trace, const char *title);

/* Write a sample of the counter "NAME of rank N", in bytes. It holds until the next sample. */
void trace_bytes(struct trace *trace, const char *name, int64_t replica, int64_t rank,
                 int64_t at_ns, int64_t bytes);
enum status trace_end(struct trace *trace, struct err *err); /* ERR_NOMEM; always frees the trace */

/* Write a CSV file, which appears whole or not at all. Columns:
 * step,replica,rank,op,stage,microbatch,arg,start_ns,end_ns. */
enum status ops_csv_write_file(const char *path, const struct op_row *rows, int64_t n,
                               struct err *err);
