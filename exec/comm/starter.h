/* exec/comm/starter.h - finds out which launcher started this process: srun, or the mpirun of some
 * MPI.
 *
 * A launcher of another MPI, or srun with a plugin that the MPI of this program does not speak,
 * starts N processes that do not know each other. Each would train the whole job alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

/* Before MPI_Init(): ERR_SYSTEM if srun started several tasks and gave them no plugin by which they
 * could find each other. Open MPI would end this process with a page of text. */
enum status starter_check_plugin(struct err *err);

/* After it: ERR_SYSTEM if MPI knows another number of ranks than `elapse` asked for, or, where
 * nobody asked (0), if the launcher started several processes and MPI knows this one alone. */
enum status starter_check_ranks(int64_t num_asked, int num_ranks, struct err *err);

/* Whether this process speaks for those that its launcher started with it. */
bool starter_speaks(void);
