/* Sums of 16 MiB over ranks of one machine: shm_reduce beside MPI_Allreduce, alternated. ranks: 2
 *   mpirun -n 2 bench_allreduce [BYTES] [ROUNDS]
 * Prints the medians of the slowest rank's times over rounds, their spread, and the ratio. */
#include <stdio.h>
#include <stdlib.h>

#include "exec/comm/shm_reduce.h"

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    const int64_t bytes = argc > 1 ? atoll(argv[1]) : 16 << 20, count = bytes / 4;
    const int rounds = argc > 2 ? atoi(argv[2]) : 41;
    struct shm_reduce *reduce = NULL;
    struct err err = {0};
    int rank, size, rc = 1;
    float *values = calloc((size_t)count + 1, sizeof *values);
    double *times[2] = {calloc((size_t)rounds + 1, sizeof **times),
                        calloc((size_t)rounds + 1, sizeof **times)};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!values || !times[0] || !times[1] || rounds < 1 || count < 1 || count > 1 << 29 ||
        shm_reduce_new(MPI_COMM_WORLD, count, &reduce, &err) != OK) {
        fprintf(stderr, "bench_allreduce: %s\n", err.msg[0] ? err.msg : "bad sizes, no memory");
        MPI_Abort(MPI_COMM_WORLD, 1);
        return rc;
    }
    for (int r = -3; r < rounds; r++)
        for (int ours = 0; ours < 2; ours++) {
            float *mine = ours ? shm_reduce_buffer(reduce) : values;
            for (int64_t i = 0; i < count; i++)
                mine[i] = (float)(i % 7);
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime(), took, slowest;
            if (ours) {
                shm_reduce_start(reduce, 0, count, false);
                shm_reduce_wait(reduce);
            } else {
                MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            }
            took = MPI_Wtime() - start;
            MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            if (r >= 0)
                times[ours][r] = slowest * 1e3;
        }
    for (int ours = 0; ours < 2; ours++)
        qsort(times[ours], (size_t)rounds, sizeof **times, by_value);
    if (rank == 0)
        printf("%lld bytes, %d ranks: shm_reduce %.2f ms (p10 %.2f, p90 %.2f), MPI_Allreduce %.2f "
               "ms (%.2f, %.2f), ratio %.2f\n",
               (long long)bytes, size, times[1][rounds / 2], times[1][rounds / 10],
               times[1][rounds * 9 / 10], times[0][rounds / 2], times[0][rounds / 10],
               times[0][rounds * 9 / 10], times[0][rounds / 2] / times[1][rounds / 2]);
    shm_reduce_free(reduce);
    free(values);
    free(times[0]);
    free(times[1]);
    MPI_Finalize();
    return 0;
}
