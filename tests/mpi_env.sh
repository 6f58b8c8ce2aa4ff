# tests/mpi_env.sh - sourced: Open MPI 4 (OMPI_) and 5 (PRTE_) as tests want it: as root, with more
# ranks than cores, none of them bound.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
# Threads that spin while others want the cores take minutes for what takes seconds.
export OMP_WAIT_POLICY=passive OMPI_MCA_mpi_yield_when_idle=1
# Looking for networks takes most of a small run.
export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1}
