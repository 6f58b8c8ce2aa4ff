/* exec/comm/mpi_progress.h - tags, and what keeps MPI's messages moving; private to exec/comm/. */
#ifndef ELAPSE_EXEC_COMM_MPI_PROGRESS_H
#define ELAPSE_EXEC_COMM_MPI_PROGRESS_H

#include <mpi.h>

/* The largest tag for messages: MPIs differ in it. */
int mpi_max_tag(void);

/* Run MPI's progress engine: a probe for a message that nobody sends, of the one tag above. Less
 * than 1 us when there is nothing to do. */
void mpi_progress(MPI_Comm comm);

#endif
