/* tests/unit/on_ranks.h - the main of a test program whose tests run on all ranks of mpirun at once.
 * Each test counts once: rank 0 prints, the others only where a test fails on them. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/comm/comm.h"

static FILE *on_ranks_held; /* of ranks that do not print */

/* Ends the program where that many ranks (0: any number) were not started. */
static inline void on_ranks_begin(int *argc, char ***argv, int num_ranks, struct comm *comm)
{
    struct err err = {0};
    if (comm_init(argc, argv, comm, &err) != OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(3);
    }
    if (num_ranks > 0 && comm->size != num_ranks) {
        fprintf(stderr, "start with mpirun -n %d\n", num_ranks);
        comm_finalize(comm);
        exit(3);
    }
    if (comm->rank == 0)
        return;
    on_ranks_held = tmpfile();
    if (!on_ranks_held || dup2(fileno(on_ranks_held), STDOUT_FILENO) < 0)
        comm_abort(comm, 3);
}

/* The exit status of main. Where tests failed it ends all ranks: others may wait for this one. */
static inline int on_ranks_end(struct comm *comm, int failed)
{
    fflush(stdout);
    if (failed && on_ranks_held) {
        rewind(on_ranks_held);
        fprintf(stderr, "rank %d:\n", comm->rank);
        for (int c; (c = getc(on_ranks_held)) != EOF;)
            fputc(c, stderr);
    }
    if (failed)
        comm_abort(comm, 1);
    comm_finalize(comm);
    return 0;
}
