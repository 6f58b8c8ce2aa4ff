/* profiles/base/machine_memory.h - how much memory this process may use: the machine's, or that of its control
 * group (cgroup), as in a container with a limit. */
#pragma once

#include <stdint.h>

/* Bytes that programs can still get, by the kernel's own estimate and by the limits of all control groups
 * around this process; INT64_MAX where unknown. Pages of files that a group has read and no longer uses
 * count as free. */
int64_t memory_available(void);

/* Bytes of the machine, or the least limit of a control group if that is less. */
int64_t memory_total(void);

/* Of a file system that begins at root, for tests; "" is the machine's. */
int64_t memory_available_in(const char *root);
int64_t memory_limit_in(const char *root); /* of control groups; INT64_MAX: none */
