/* exec/comm/mpi_progress.h - the tag limit of MPI, and a call that makes MPI's messages progress;
 * private to exec/comm/. */
#pragma once

#include <mpi.h>

/* The largest tag that messages may use; it differs between MPI libraries. */
int mpi_max_tag(void);

/* Run MPI's progress engine, by a probe for a message that nobody sends (its tag is mpi_max_tag() +
 * 1). Costs less than 1 us when there is nothing to do. */
void mpi_progress(MPI_Comm comm);
