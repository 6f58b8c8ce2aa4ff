/* exec/comm/shm_map.h - memory that the ranks of one machine share; private to exec/comm/. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "partition/base/status.h"

/* Map the same zeroed memory into all ranks of comm, which must be on one machine. A file of our own
 * and not a window of MPI, because a window that fails on one rank only leaves the others waiting in
 * MPI_Win_allocate_shared(). The file has no name any more when this returns. Collective; all ranks
 * return the same status. ERR_SYSTEM: a rank cannot map it. Release with munmap(). */
enum status shm_map(MPI_Comm comm, size_t bytes, void **memory, struct err *err);

/* Whether all ranks of comm are fine. Every step that can fail on one rank alone is agreed, because
 * a rank that fell back by itself would leave its peers waiting. */
enum status shm_agree(MPI_Comm comm, bool fine, bool *all_fine, struct err *err);

/* Set err for a call of MPI that has failed. ERR_SYSTEM. */
enum status shm_failed(const char *what, int code, struct err *err);
