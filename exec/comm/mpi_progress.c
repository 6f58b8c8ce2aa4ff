#include "exec/comm/mpi_progress.h"

enum { TAG_UB_AT_LEAST = 32767 }; /* MPI 4.0, 9.1.2 */

/* MPI_TAG_UB does not change after MPI_Init(), so it is read once. */
static int upper_bound(void)
{
    static int bound;
    int *value, there = 0;
    if (bound == 0) {
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &there);
        bound = there ? *value : TAG_UB_AT_LEAST;
    }
    return bound;
}

int mpi_max_tag(void)
{
    return upper_bound() - 1;
}

void mpi_progress(MPI_Comm comm)
{
    int there;
    MPI_Iprobe(MPI_ANY_SOURCE, upper_bound(), comm, &there, MPI_STATUS_IGNORE);
}
