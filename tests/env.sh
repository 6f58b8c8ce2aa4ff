# tests/env.sh - sourced: what tests want of Open MPI 4 (OMPI_) and 5 (PRTE_), which are to run as root
# and more ranks than there are cores, none of them bound; and where they put their files.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
# Threads that spin while others want the cores take minutes for what takes seconds.
export OMP_WAIT_POLICY=passive OMPI_MCA_mpi_yield_when_idle=1
# mpirun waits this long, twice, behind each run that fails, also when its ranks have ended: 1 s unless told.
export OMPI_MCA_odls_base_sigkill_timeout=0 PRTE_MCA_odls_base_sigkill_timeout=0
# Looking for networks takes most of a small run.
export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1}
# In memory, where there is room (4 GiB, of 8): a busy virtual machine may keep fsync() waiting for a minute.
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "$(df -Pk /dev/shm | awk 'END {print $4}')" -ge 4194304 ] &&
    [ "$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)" -ge 8388608 ]; then
    export TMPDIR=/dev/shm
fi
