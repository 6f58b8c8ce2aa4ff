/* exec/base/free_memory.h - how much memory this machine has left. */
#ifndef ELAPSE_EXEC_BASE_FREE_MEMORY_H
#define ELAPSE_EXEC_BASE_FREE_MEMORY_H

#include <stdint.h>

/* Bytes that programs can still get, by the kernel's own estimate; INT64_MAX where unknown. */
int64_t memory_available(void);

#endif
