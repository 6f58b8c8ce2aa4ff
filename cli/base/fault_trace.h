/* cli/base/fault_trace.h - reads traces of lost and returning nodes, as spot traces are published. */
#pragma once

#include "partition/base/status.h"
#include "partition/cluster/fault_event.h"

/* Read a CSV file of lines "AT,node,lost|back" into *events, which the caller frees, also after a
 * failure. A first line that begins with a letter is a head. AT is in seconds, and becomes at_ns;
 * with steps it is the number of a step, and at_ns is that number. fault_trace_check() checks what
 * the lines say. ERR_INPUT with the line, ERR_SYSTEM, ERR_NOMEM. */
enum status fault_trace_read(const char *path, bool steps, struct fault_event **events, int *count,
                             struct err *err);
