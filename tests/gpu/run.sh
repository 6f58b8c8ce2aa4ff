#!/bin/bash
# run COMMAND... - a program of the bundle with the bundle's libraries, and CUDA's of this machine
# (GPU_LIBRARY_PATH, from tests/gpu/look.sh). Python keeps the machine's own libraries.
bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sys=$bundle/sys lib=$bundle/sys/usr/lib/x86_64-linux-gnu
path=$lib${GPU_LIBRARY_PATH:+:$GPU_LIBRARY_PATH}:$bundle/sys/cuda
# Only where the machine has none: its own are newer, and its CUDA libraries may need that.
{ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q 'libstdc++\.so\.6 ' || path=$path:$bundle/sys/cxx
export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PATH="$sys/usr/bin:$PATH"
# Open MPI was built for /usr and finds itself by this.
export OPAL_PREFIX="$sys/usr" OPAL_LIBDIR="$lib/openmpi/lib" PMIX_INSTALL_PREFIX="$lib/pmix2"
export OPAL_PKGDATADIR="$sys/usr/share/openmpi" OPAL_SYSCONFDIR="$sys/etc/openmpi" OPAL_PKGLIBDIR="$lib/openmpi/lib/openmpi3"
export OMPI_MCA_mca_base_component_path="$lib/openmpi/lib/openmpi3" PMIX_MCA_pcompress_base_silence_warning=1
# mpirun does not start without a program for other machines, even where it needs none.
command -v ssh >/dev/null || export OMPI_MCA_plm_rsh_agent=false
# One machine: shared memory, and the loopback for what mpirun says to its ranks.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_oob_tcp_if_include=lo
# Containers often forbid one process to read another's memory.
export OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec "$@"
